//! Estimates of plans, against other ways to count packets, and the warnings.
#![allow(
    clippy::cast_precision_loss,
    clippy::float_cmp,
    reason = "counts below 2^53; exact values are meant"
)]

use itg_core::flow::Flow;
use itg_core::seed::{Purpose, RunSeed};
use itg_experiment::{Estimate, Experiment, Method, Plan, PlanInputs};
use proptest::prelude::*;

fn plan(lines: &str, seed: u64) -> Plan {
    let text = format!("schema = 1\nname = \"x\"\n{lines}\n");
    let experiment = Experiment::parse(&text, "x.toml").unwrap_or_else(|error| panic!("{error}"));
    let mut files = |name: &str| Err(name.to_owned());
    Plan::resolve(&experiment, PlanInputs::new(RunSeed(seed), &mut files))
        .unwrap_or_else(|error| panic!("{error}"))
}

fn estimate(lines: &str) -> Estimate {
    plan(lines, 42).estimate()
}

#[test]
fn limits_and_laws_give_counts() {
    let inf = f64::INFINITY;
    for (lines, packets, bytes, end_s, method) in [
        // Constant times: packet k is due at k of them; one due at the end is not sent.
        ("idt = 'constant(1ms)'\nduration = '10s'", 10_000.0, 5.12e6, 9.999, Method::Walked),
        ("idt = 'constant(3ms)'\nduration = '10s'", 3334.0, 3334.0 * 512.0, 9.999, Method::Walked),
        ("idt = 'constant(1ms)'\npackets = 10", 10.0, 5120.0, 0.009, Method::Walked),
        ("idt = 'constant(1ms)'\nbytes = 5200", 10.0, 5120.0, 0.009, Method::Walked),
        ("idt = 'constant(1ms)'\npackets = 10\nbytes = 1100", 2.0, 1024.0, 0.001, Method::Walked),
        ("duration = '1s'\npackets = 10\nstart = '5s'", 10.0, 5120.0, 5.009, Method::Walked),
        ("idt = 'constant(10s)'\nduration = '1s'", 1.0, 512.0, 0.0, Method::Walked),
        ("idt = 'constant(0)'\npackets = 7", 7.0, 3584.0, 0.0, Method::Walked),
        ("bytes = 100", 0.0, 0.0, 0.0, Method::Walked),
        // More than is counted one by one: means.
        ("rate = '10kpps'\nduration = '1000s'", 1e7, 5.12e9, 1000.0, Method::Means),
        ("rate = '10kpps'\npackets = '2M'", 2e6, 1.024e9, 200.0, Method::Means),
        ("rate = '10kpps'\nbytes = '1024MB'", 2e6, 1.024e9, 200.0, Method::Means),
        ("idt = 'constant(0)'\npackets = '2M'", 2e6, 1.024e9, 0.0, Method::Means),
        ("idt = 'constant(0)'\nduration = '1s'", inf, inf, 1.0, Method::Means),
        ("idt = 'exp(1ms)'", inf, inf, inf, Method::Means),
        (
            "rate = '10kpps'\nduration = '1000s'\non_off = ['constant(1s)', 'constant(4s)']",
            2e6,
            1.024e9,
            1000.0,
            Method::Means,
        ),
    ] {
        let got = estimate(&format!("[[flow]]\n{lines}")).flows[0];
        let close = |got: f64, want: f64| got == want || (got - want).abs() <= 1e-9 * want.abs();
        assert_eq!(got.method, method, "flow:\n{lines}\n{got:?}");
        assert!(close(got.packets, packets), "packets of flow:\n{lines}\n{got:?}");
        assert!(close(got.bytes, bytes), "bytes of flow:\n{lines}\n{got:?}");
        assert!(close(got.end_ns, end_s * 1e9), "end of flow:\n{lines}\n{got:?}");
        assert_eq!(got.log_bytes, got.packets * 80.0, "flow:\n{lines}");
    }
}

#[test]
fn round_trips_take_a_third_record() {
    let got = estimate("[[flow]]\npackets = 10\nmeter = 'rtt'").flows[0];
    assert_eq!(got.log_bytes, 10.0 * 120.0);
}

#[test]
fn rates_are_those_of_the_laws_and_totals_their_sums() {
    let Estimate { flows, total, .. } = estimate(
        "duration = '10s'\n[[flow]]\nidt = 'exp(1ms)'\nsize = 'uniform(400,600)'\n[[flow]]\nrate = \
         '8Mbps'\nsize = 1000\non_off = ['exp(1s)', 'exp(3s)']\n[[flow]]\nstart = '4s'\npackets = 5",
    );
    let rates: Vec<_> = flows.iter().map(|flow| (flow.packet_rate, flow.bit_rate)).collect();
    for (got, want) in rates.into_iter().zip([(1000.0, 4e6), (250.0, 2e6), (1000.0, 4.096e6)]) {
        assert!((got.0 / want.0 - 1.0).abs() < 1e-6, "{got:?}, want {want:?}");
        assert!((got.1 / want.1 - 1.0).abs() < 1e-6, "{got:?}, want {want:?}");
    }
    assert_eq!(total.packets, flows.iter().map(|flow| flow.packets).sum::<f64>());
    assert_eq!(total.bytes, flows.iter().map(|flow| flow.bytes).sum::<f64>());
    assert_eq!(total.log_bytes, total.packets * 80.0);
    assert!(total.end_ns < 10e9 && total.end_ns > 9e9);
}

/// Counts packets without the schedule: inter-departure times and sizes drawn one by one and summed here.
fn by_hand(flow: &Flow) -> (u64, u64) {
    let stream = |purpose| flow.seed().stream(flow.spec().id, purpose);
    let (mut gaps, mut sizes) = (stream(Purpose::Idt), stream(Purpose::Size));
    let stop = flow.spec().stop;
    let (mut due, mut packets, mut bytes) = (0, 0, 0);
    while stop.duration_ns.is_none_or(|end| due < end)
        && stop.packets.is_none_or(|limit| packets < limit)
    {
        let size = flow.size().sample(&mut sizes, packets);
        if stop.bytes.is_some_and(|limit| bytes + size > limit) {
            break;
        }
        bytes += size;
        due += flow.idt().sample(&mut gaps, packets);
        packets += 1;
    }
    (packets, bytes)
}

fn idt() -> impl Strategy<Value = (&'static str, f64)> {
    // Distribution with a mean of 1 ms, and its squared coefficient of variation.
    prop_oneof![
        Just(("constant(1ms)", 0.0)),
        Just(("uniform(0,2ms)", 1.0 / 3.0)),
        Just(("exp(1ms)", 1.0)),
        Just(("gamma(4,250us)", 0.25)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn counting_agrees_with_drawing_by_hand(
        (idt, _) in idt(), seed: u64, duration_ms in 1u64..3000, packets in 1u64..4000,
        bytes in 2000u64..2_000_000,
    ) {
        let plan = plan(&format!(
            "[[flow]]\nidt = '{idt}'\nsize = 'uniform(100,1400)'\nduration = '{duration_ms}ms'\n\
             packets = {packets}\nbytes = {bytes}"
        ), seed);
        let got = plan.estimate().flows[0];
        let (packets, bytes) = by_hand(&plan.flows[0].flow);
        prop_assert_eq!((got.packets, got.bytes), (packets as f64, bytes as f64));
        prop_assert_eq!(got.method, Method::Walked);
    }

    /// Renewal theory: the count over T has mean T/m and variance T·cv²/m (Feller, vol. II, XI.5),
    /// so the realisation is within six deviations of the mean but for one in 10⁸.
    #[test]
    fn counting_agrees_with_the_means(
        (idt, cv2) in idt(), seed: u64, duration_s in 2u64..20, on_off: bool,
    ) {
        let on_off_line = if on_off { "on_off = ['constant(50ms)', 'constant(150ms)']\n" } else { "" };
        let plan = plan(&format!(
            "[[flow]]\nidt = '{idt}'\n{on_off_line}duration = '{duration_s}s'"
        ), seed);
        let got = plan.estimate().flows[0];
        prop_assert_eq!(got.method, Method::Walked);
        let mean = got.packet_rate * duration_s as f64;
        let bound = 6.0 * (mean * cv2).sqrt() + 2.0;
        prop_assert!((got.packets - mean).abs() <= bound, "{} against {mean} ± {bound}", got.packets);
    }
}

#[test]
fn heavy_bursts_do_not_make_counting_long() {
    let got = estimate(
        "[[flow]]\nidt = 'exp(1s)'\non_off = ['constant(20us)', 'constant(20us)']\nduration = \
         '1000s'",
    );
    assert_eq!(got.flows[0].method, Method::Means);
    assert_eq!(got.flows[0].packets, 500.0);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn wishes_that_cannot_be_met_are_named() {
    for (lines, want) in [
        ("duration = '1s'\n[[flow]]\nidt = 'exp(1ms)'", vec![]),
        (
            "duration = '1s'\n[[flow]]\nrate = '20Gbps'\nsize = 60000\nproto = 'tcp'",
            vec!["flow 1: 20.00 Gbit/s: few hosts reach 10 Gbit/s through sockets"],
        ),
        (
            "duration = '1s'\n[[flow]]\nrate = '2Mpps'",
            vec!["flow 1: 2.00 M packets/s: few hosts reach 1 M packets/s through sockets"],
        ),
        (
            "duration = '1s'\n[[flow]]\nrate = '0.6Mpps'\ncount = 2",
            vec![
                "all flows together: 1.20 M packets/s: few hosts reach 1 M packets/s through \
                 sockets",
            ],
        ),
        (
            "duration = '1s'\n[[flow]]\nidt = 'constant(0)'",
            vec!["flow 1: no gaps: sends as fast as the host and the path allow"],
        ),
        (
            "[[flow]]\n[[flow]]\npackets = 1\n[[flow]]",
            vec![
                "flows 1, 3: no end: `run` refuses it: give the experiment a `duration`, or the \
                 flow `duration`, `packets` or `bytes`",
            ],
        ),
        (
            "[[flow]]\nbytes = 100",
            vec!["flow 1: sends nothing: the first packet exceeds the limit of bytes"],
        ),
        (
            "duration = '10s'\n[[flow]]\nidt = 'exp(20s)'",
            vec![
                "flow 1: the mean gap, 20s, is longer than the flow, 10s: hardly more than a \
                 packet",
            ],
        ),
        (
            "duration = '1s'\n[[flow]]\nidt = 'exp(10ms)'\non_off = ['exp(1ms)', 'exp(1ms)']",
            vec![
                "flow 1: ON periods, 1ms on average, are shorter than the mean gap, 10ms: many are \
                 empty",
            ],
        ),
        (
            "duration = '1s'\n[[flow]]\nsize = 'uniform(472.5,2472.5)'\n[[flow]]\nproto = 'tcp'\n\
             size = 9000",
            vec![
                "flow 1: 50.0 % of the packets exceed 1472 bytes: where the path's MTU is 1500 they \
                 travel in fragments, or not at all",
            ],
        ),
        ("duration = '1s'\n[[flow]]\nsize = 1472\n[[flow]]\nsize = 20", vec![]),
        (
            "duration = '1s'\n[[flow]]\nprofile = 'voip-g729.2:header=crtp,vad=yes'\n[[flow]]\n\
             proto = 'tcp'\nsize = 23",
            vec![
                "flow 1: all of the packets are shorter than 20 bytes and carry no time of \
                 sending: their delay needs the sender's log",
                "flow 2: all of the packets are shorter than 24 bytes and carry no time of \
                 sending: their delay needs the sender's log",
            ],
        ),
        (
            "duration = '1s'\n[[flow]]\nproto = 'tcp'\necn = 'ect0'\nttl = 1",
            vec![
                "flow 1: TCP sets the ECN field itself: the wish for `ecn` has no effect",
                "flow 1: a time to live of 1 ends at the first router",
            ],
        ),
        (
            "duration = '1s'\n[[flow]]\nproto = 'icmp'\n[[flow]]\nproto = 'sctp'\n[[flow]]\n\
             proto = 'dccp'\n[[flow]]\nproto = 'tcp'\nmeter = 'rtt'",
            vec![
                "flow 1: ICMP needs root, CAP_NET_RAW, or a group in net.ipv4.ping_group_range",
                "flow 2: SCTP needs a kernel that has it (modprobe sctp)",
                "flow 3: DCCP needs a kernel that has it (Linux before 6.16, modprobe dccp)",
                "flow 4: the round-trip time over TCP includes waiting in both hosts' send buffers",
            ],
        ),
        (
            "duration = '1h'\n[[flow]]\nrate = '50kpps'",
            vec!["the logs will take 14.4 GB: see that the disks have room"],
        ),
    ] {
        assert_eq!(estimate(lines).warnings, want, "file:\n{lines}");
    }
}
