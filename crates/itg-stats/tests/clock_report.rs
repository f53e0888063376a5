//! Logs of two hosts whose clocks differ in a known way: what the report makes of them.
#![allow(missing_docs, reason = "a test program")]

use itg_record::{ClockProbe, FlowEnd, Note, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::report::{BasisKind, FlowReport, Report};
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, end, plan, spec};

/// The receiver's clock against the sender's.
#[derive(Clone, Copy)]
struct Clock {
    ahead_ns: i64,
    ppm: i64,
    /// Set by so much two seconds after the start.
    step_ns: i64,
}

const STEP_AT: u64 = EPOCH + 2_000_000_000;
/// On the way of packets: fixed, and up to as much more.
const WAY_NS: u64 = 400_000;
const MORE_NS: u64 = 100_000;

impl Clock {
    fn offset(self, unix_ns: u64) -> i64 {
        let since = i64::try_from(unix_ns).expect("small") - i64::try_from(EPOCH).expect("small");
        let set = if unix_ns >= STEP_AT { self.step_ns } else { 0 };
        self.ahead_ns + since / 1_000_000 * self.ppm + set
    }

    /// Time that the receiver's clock shows when the sender's shows this one.
    fn shows(self, unix_ns: u64) -> u64 {
        unix_ns.checked_add_signed(self.offset(unix_ns)).expect("in range")
    }

    /// A probe that the sender sends at this time, with these times on the way.
    fn probe(self, sent: u64, there: u64, back: u64, boots: [&str; 2]) -> Note {
        let answered = sent + there + 20_000;
        let set = if answered >= STEP_AT { self.step_ns } else { 0 };
        let replied = self.shows(answered);
        Note::Probe(ClockProbe {
            run: "c0ffee".to_owned(),
            sender_boot_id: boots[0].to_owned(),
            receiver_boot_id: boots[1].to_owned(),
            sent_unix_ns: sent,
            sent_monotonic_ns: sent - EPOCH / 2,
            received_unix_ns: self.shows(sent + there),
            replied_unix_ns: replied,
            replied_monotonic_ns: (replied - EPOCH / 2).checked_add_signed(-set).expect("in range"),
            arrived_unix_ns: answered + back,
        })
    }
}

/// Logs that hold the probes.
#[derive(Clone, Copy, PartialEq)]
enum In {
    Neither,
    Sender,
    Receiver,
    Both,
}

/// The logs of a flow of 4 s over such clocks, with a probe each 250 ms of at least `trip_ns` there and back.
fn logs(clock: Clock, boots: [&str; 2], probes: In, trip_ns: u64) -> [Vec<u8>; 2] {
    let mut sender = TestLog::new(Side::Sender, boots[0]);
    let mut receiver = TestLog::new(Side::Receiver, boots[1]);
    let spec = spec(1, "constant(10ms)", "constant(100)", 400);
    sender.flow(0, &spec, boots);
    receiver.flow(0, &spec, boots);
    for n in 0..18 {
        let queue = n * 7_919 % 13 * trip_ns / 20;
        let (there, back) = (trip_ns / 2 + queue, trip_ns / 2 + trip_ns / 3 - queue / 2);
        let sent = EPOCH - 100_000_000 + n * 250_000_000;
        let note = clock.probe(sent, there, back, boots);
        if matches!(probes, In::Sender | In::Both) {
            sender.note(&note);
        }
        if matches!(probes, In::Receiver | In::Both) {
            receiver.note(&note);
        }
    }
    for d in plan(&spec) {
        let at = EPOCH + d.due_ns + 2_000;
        let there = at + WAY_NS + d.seq * 7_919 % MORE_NS;
        let seen = clock.shows(there);
        sender.records([Record::sent(SentPacket {
            flow: 0,
            seq: d.seq,
            size: d.size,
            planned_ns: d.due_ns,
            sent_ns: at,
        })]);
        receiver.records([Record::received(ReceivedPacket {
            flow: 0,
            seq: d.seq,
            size: d.size,
            sent_ns: at,
            arrived_ns: seen,
            read_ns: seen + 900,
            ttl: 64,
            tos: 0,
        })]);
    }
    let counted = FlowEnd { sent_packets: Some(400), received_packets: Some(400), ..end(0) };
    sender.end_flow(counted.clone());
    receiver.end_flow(counted);
    [sender.finish(), receiver.finish()]
}

fn report(logs: &[Vec<u8>]) -> Report {
    let mut analysis = Analysis::new(Options::default());
    for (number, log) in logs.iter().enumerate() {
        analysis.add_log(log, &format!("{number}.itg")).expect("a log");
    }
    analysis.finish()
}

fn at_receiver(report: &Report) -> &FlowReport {
    report.flows.iter().find(|flow| flow.side == "receiver").expect("the receiver's entry")
}

const AHEAD: Clock = Clock { ahead_ns: 3_600_000_000_000, ppm: 60, step_ns: 0 };

#[test]
fn delays_over_two_clocks_are_absolute_within_the_bound() {
    for clock in [
        AHEAD,
        Clock { ahead_ns: -5_000_000, ppm: -100, step_ns: 0 },
        Clock { ahead_ns: 0, ppm: 0, step_ns: 0 },
    ] {
        for probes in [In::Sender, In::Receiver, In::Both] {
            let report = report(&logs(clock, ["a", "b"], probes, 300_000));
            let flow = at_receiver(&report);
            let basis = flow.metrics.delay_basis.expect("delays are known");
            assert_eq!(basis.kind, BasisKind::Absolute, "{:?}", flow.clock);
            let delay = flow.metrics.delay_ns.expect("known");
            let bound = basis.uncertainty_ns.expect("absolute");
            assert!((150_000..400_000).contains(&bound), "{bound}");
            assert!(delay.min.abs_diff(400_000) <= bound && delay.max.abs_diff(500_000) <= bound);
            // What changes from packet to packet does not depend on the clocks, but for their skew.
            let jitter = flow.metrics.jitter_ns.expect("known").mean;
            let more = |seq: u64| (seq * 7_919 % MORE_NS) as f64;
            let steps = (1..400).map(|seq| (more(seq) - more(seq - 1)).abs());
            assert!((jitter - steps.sum::<f64>() / 399.0).abs() < 500.0, "{jitter}");
            let clocks = flow.clock.as_ref().expect("probed");
            let truth = clock.offset(EPOCH + 2_000_000_000);
            assert!(clocks.offset_ns.abs_diff(truth) <= clocks.bound_ns, "{clocks:?}");
            assert!((clocks.skew_ppm - clock.ppm as f64).abs() <= clocks.skew_bound_ppm);
            assert!(!clocks.shared && clocks.steps.is_empty());
            assert_eq!((clocks.probes, clocks.refused_probes), (18, 0), "each once");
            assert_eq!(report.total.metrics.delay_basis, Some(basis));
        }
    }
}

#[test]
fn without_probes_or_with_poor_ones_delays_are_relative() {
    let unknown = report(&logs(AHEAD, ["a", "b"], In::Neither, 300_000));
    let flow = at_receiver(&unknown);
    assert_eq!(flow.metrics.delay_basis.map(|basis| basis.kind), Some(BasisKind::Relative));
    assert!(flow.clock.is_none());
    assert!(flow.metrics.delay_ns.expect("known").min > 3_500_000_000_000);

    // Round trips of 20 ms say little about delays of half a millisecond, but something about the skew.
    let poor = report(&logs(AHEAD, ["a", "b"], In::Both, 20_000_000));
    let flow = at_receiver(&poor);
    assert_eq!(flow.metrics.delay_basis.map(|basis| basis.kind), Some(BasisKind::Relative));
    let clocks = flow.clock.as_ref().expect("probed");
    let delay = flow.metrics.delay_ns.expect("known");
    assert!(clocks.bound_ns >= 10_000_000);
    assert!(delay.min.abs_diff(400_000) <= clocks.bound_ns, "corrected nevertheless: {delay:?}");
}

#[test]
fn negative_delays_that_remain_are_counted_and_shown() {
    // One direction of the probes is much slower than the other: the middle is off by nearly the bound.
    let clock = Clock { ahead_ns: 1_000_000, ppm: 0, step_ns: 0 };
    let boots = ["a", "b"];
    let [_, plain] = logs(clock, boots, In::Neither, 0);
    let mut probes = TestLog::with_id(9, Side::Receiver, "b");
    for n in 0..18 {
        probes.note(&clock.probe(EPOCH + n * 250_000_000, 3_000_000, 20_000, boots));
    }
    let report = report(&[plain, probes.finish()]);
    let flow = at_receiver(&report);
    assert_eq!(flow.metrics.negative_delays, 400);
    assert_eq!(flow.metrics.delay_basis.map(|basis| basis.kind), Some(BasisKind::Relative));
    let clocks = flow.clock.as_ref().expect("probed");
    assert!(clocks.offset_ns.abs_diff(1_000_000) <= clocks.bound_ns);
    assert!(flow.notices.iter().any(|notice| notice.starts_with("400 delays are below 0")));
}

#[test]
fn a_clock_that_was_set_is_reported_and_corrected_on_both_sides() {
    let clock = Clock { ahead_ns: 70_000_000, ppm: 20, step_ns: 5_000_000 };
    let report = report(&logs(clock, ["a", "b"], In::Both, 300_000));
    let flow = at_receiver(&report);
    let clocks = flow.clock.as_ref().expect("probed");
    let [step] = clocks.steps[..] else { panic!("{clocks:?}") };
    assert!(step.by_ns.abs_diff(5_000_000) < 20_000, "{step:?}");
    assert!(step.from_unix_ns < STEP_AT && STEP_AT < step.until_unix_ns);
    // Between the last probe before it and the first behind it the offset is not known: half the
    // step.
    assert!(clocks.bound_ns >= 2_500_000);
    let delay = flow.metrics.delay_ns.expect("known");
    assert!(delay.p50.abs_diff(450_000) < 350_000, "{delay:?}");
    assert!(flow.notices.iter().any(|notice| notice.contains("a host's clock was set")));
    let text = itg_stats::text::render(&report);
    assert!(text.contains("Clock steps"), "{text}");
}

#[test]
fn one_host_needs_no_correction_and_shows_what_the_estimate_is_worth() {
    let clock = Clock { ahead_ns: 0, ppm: 0, step_ns: 0 };
    let report = report(&logs(clock, ["a", "a"], In::Both, 300_000));
    let flow = at_receiver(&report);
    let delay = flow.metrics.delay_ns.expect("known");
    assert_eq!((delay.min, flow.metrics.negative_delays), (400_000, 0));
    assert_eq!(flow.metrics.delay_basis.and_then(|basis| basis.uncertainty_ns), Some(1_000));
    let clocks = flow.clock.as_ref().expect("probed");
    assert!(clocks.shared && clocks.offset_ns.unsigned_abs() <= clocks.bound_ns);
}

#[test]
fn hosts_of_one_boot_id_whose_clocks_differ_are_two() {
    // Virtual machines started from one snapshot have the boot id of that.
    for ahead_ns in [50_000_000, -3_000_000, 3_600_000_000_000] {
        let clock = Clock { ahead_ns, ppm: 20, step_ns: 0 };
        let logs = logs(clock, ["a", "a"], In::Both, 300_000);
        let report = report(&logs);
        let flow = at_receiver(&report);
        let clocks = flow.clock.as_ref().expect("probed");
        let basis = flow.metrics.delay_basis.expect("known");
        let delay = flow.metrics.delay_ns.expect("known");
        let bound = basis.uncertainty_ns.expect("absolute");
        assert!(!clocks.shared && bound >= clocks.bound_ns, "{ahead_ns}: {basis:?} {clocks:?}");
        assert!(delay.min.abs_diff(400_000) <= bound && delay.max.abs_diff(500_000) <= bound);
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&logs[1], "receiver.itg").expect("a log");
        for packet in analysis.packets() {
            let delay = packet.delay_ns.expect("dated");
            assert!((0..1_000_000).contains(&delay), "{packet:?}");
        }
        let (_, flow) = analysis.packet_flows().pop_first().expect("one flow");
        assert!(flow.clock_bound_ns(EPOCH, EPOCH + 4_000_000_000).expect("compared") > 100_000);
    }
}

#[test]
fn each_owner_of_a_flow_is_corrected_by_its_own_clock() {
    let [_, remote] = logs(AHEAD, ["a", "b"], In::Receiver, 300_000);
    let local = Clock { ahead_ns: 0, ppm: 0, step_ns: 0 };
    let [_, local] = logs(local, ["b", "b"], In::Neither, 300_000);
    for order in [[&remote, &local], [&local, &remote]] {
        let mut analysis = Analysis::new(Options::default());
        for (log, name) in order.into_iter().zip(["one", "two"]) {
            analysis.add_log(log, name).expect("a log");
        }
        let packets = analysis.packets();
        assert_eq!(packets.len(), 800);
        for packet in packets {
            let delay = packet.delay_ns.expect("dated");
            assert!((0..1_000_000).contains(&delay), "{packet:?}");
        }
        let (_, flow) = analysis.packet_flows().pop_first().expect("one flow");
        let bound = flow.clock_bound_ns(EPOCH, EPOCH + 4_000_000_000).expect("compared");
        assert!((150_000..400_000).contains(&bound), "the bound of the two clocks: {bound}");
    }
}
