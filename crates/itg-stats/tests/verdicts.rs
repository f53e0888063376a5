//! Verdicts on logs of flows that went wrong in ways that a generator must not miss, and of flows that did not.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_core::flow::{Flow, FlowSpec, Proto};
use itg_core::seed::RunSeed;
use itg_record::{Record, SentPacket, Side};
use itg_stats::{Analysis, Options, Report, text};
use itg_testkit::logs::{EPOCH, SEED, TestLog, end, spec};

/// A flow, and when a packet of it leaves, by its number and its planned time in nanoseconds.
type Sent<'a> = (FlowSpec, &'a dyn Fn(u64, u64) -> u64);

/// Logs of senders: of each flow, its description, and when each packet left (number and planned time are
/// given, in nanoseconds from the start).
fn report(flows: &[Sent<'_>]) -> Report {
    let mut log = TestLog::new(Side::Sender, "b");
    for (index, (spec, leaves)) in (0..).zip(flows) {
        log.flow(index, spec, ["b", "b"]);
        let flow = Flow::resolve(spec.clone(), RunSeed(SEED)).unwrap();
        let mut last = 0;
        log.records(flow.schedule().map(|packet| {
            last = leaves(packet.seq, packet.due_ns).max(last);
            let (planned_ns, sent_ns) = (packet.due_ns, EPOCH + last);
            let (seq, size) = (packet.seq, packet.size);
            Record::sent(SentPacket { flow: index, seq, size, planned_ns, sent_ns })
        }));
        log.end_flow(end(index));
    }
    let bytes = log.finish();
    let mut analysis = Analysis::new(Options::default());
    analysis.add_log(&bytes, "sender.itg").unwrap();
    analysis.finish()
}

fn one(idt: &str, packets: u64, leaves: &dyn Fn(u64, u64) -> u64) -> (String, Vec<String>) {
    let report = report(&[(spec(1, idt, "constant(200)", packets), leaves)]);
    let fidelity = &report.flows[0].metrics.fidelity;
    (fidelity.verdict.name().to_owned(), fidelity.reasons.clone())
}

/// A draw from 0 to 1 that depends on the number alone.
fn draw(seq: u64) -> f64 {
    let mixed = (seq + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    ((mixed ^ (mixed >> 32)) >> 11) as f64 / (1u64 << 53) as f64
}

#[test]
fn ten_thousand_packets_a_second_beside_busy_loops_fail() {
    // As seen beside two of them: 53 % of the inter-departure times below 20 us, 99 % of the errors up to 3.3 ms,
    // lateness of 4 ms: the thread gets the processor once in a while, and sends what is due.
    let leaves = |seq: u64, due: u64| {
        let awake = |slice: u64| slice * 400_000 + if draw(slice) < 0.03 { 3_600_000 } else { 0 };
        let slice = due.div_ceil(400_000);
        let late = if draw(slice + 7) < 0.53 { awake(slice) } else { due };
        late + seq % 3 * 1_500
    };
    let (verdict, reasons) = one("constant(100us)", 20_000, &leaves);
    assert_eq!(verdict, "fail", "{reasons:?}");
}

#[test]
fn back_to_back_pairs_fail() {
    for first in [0, 1] {
        let pairs = |seq: u64, _| (seq / 2 + first) * 200_000 + seq % 2 * 2_000;
        let (verdict, reasons) = one("constant(100us)", 10_000, &pairs);
        assert_eq!(verdict, "fail", "{reasons:?}");
    }
}

#[test]
fn a_uniform_distribution_sent_as_a_constant_fails() {
    let (verdict, reasons) = one("uniform(50us,150us)", 10_000, &|seq, _| seq * 100_000);
    assert_eq!(verdict, "fail", "{reasons:?}");
}

#[test]
fn an_exponential_distribution_held_to_ticks_fails() {
    let ticks = |_, due: u64| due.next_multiple_of(200_000);
    let (verdict, reasons) = one("exp(100us)", 10_000, &ticks);
    assert_eq!(verdict, "fail", "{reasons:?}");
}

#[test]
fn a_stall_of_108_ms_fails_and_names_the_host() {
    let stall = |_, due: u64| {
        if (4_000_000_000..4_108_000_000).contains(&due) { 4_108_000_000 } else { due }
    };
    let report = report(&[(spec(1, "constant(1ms)", "constant(200)", 10_000), &stall)]);
    let fidelity = &report.flows[0].metrics.fidelity;
    assert_eq!(fidelity.verdict.name(), "fail", "{fidelity:?}");
    assert!(
        serde_json::to_string(&fidelity.causes).unwrap().contains("host_stalled"),
        "{fidelity:?}"
    );
    assert_eq!(
        fidelity.reasons,
        ["the sender stood still for 108ms, 108 mean inter-departure times"]
    );
}

#[test]
fn many_slow_flows_with_a_late_first_packet_pass() {
    // A tenth of a gap late at the start.
    let late_start = |seq: u64, due: u64| due + u64::from(seq == 0) * 20_000_000;
    let flows: Vec<Sent<'_>> = (1..=1_000)
        .map(|id| (spec(id, "constant(200ms)", "constant(200)", 20), &late_start as _))
        .collect();
    let report = report(&flows);
    assert_eq!(report.total.metrics.fidelity.verdict.name(), "pass");
    let tally = report.total.metrics.fidelity.tally.unwrap();
    assert_eq!(tally.verdicts.into_iter().collect::<Vec<_>>(), [("pass", 1_000)]);
}

#[test]
fn a_total_counts_causes_and_names_three_flows() {
    let slow = |_: u64, due: u64| due + due / 5;
    let slower = |_: u64, due: u64| due + due / 2;
    let flows: Vec<Sent<'_>> = (1..=200)
        .map(|id| {
            let leaves: &dyn Fn(u64, u64) -> u64 = if id == 77 { &slower } else { &slow };
            (spec(id, "constant(10ms)", "constant(200)", 200), leaves)
        })
        .collect();
    let report = report(&flows);
    let fidelity = &report.total.metrics.fidelity;
    assert_eq!(fidelity.reasons[0], "flows: 200 fail; causes: 200 late_sender");
    assert_eq!(fidelity.reasons.len(), 4, "{:#?}", fidelity.reasons);
    assert!(fidelity.reasons[1].starts_with("flow 77: "), "{:#?}", fidelity.reasons);
    let total = text::render(&report);
    let total = total.rsplit_once("TOTAL").map_or(&*total, |(_, total)| total).lines().count();
    assert!(total < 60, "{total} lines");
}

#[test]
fn a_stream_that_waits_for_the_network_is_network_limited() {
    for (waited, verdict) in [(Some(900), "network-limited"), (Some(3), "fail"), (None, "fail")] {
        let mut log = TestLog::new(Side::Sender, "b");
        let spec = spec(1, "constant(60us)", "constant(1500)", 1_000).proto(Proto::Tcp);
        log.flow(0, &spec, ["b", "b"]);
        log.records((0..1_000).map(|seq| {
            let (planned_ns, sent_ns) = (seq * 60_000, EPOCH + seq * 120_000);
            Record::sent(SentPacket { flow: 0, seq, size: 1_500, planned_ns, sent_ns })
        }));
        log.end_flow(itg_record::FlowEnd { waited_packets: waited, ..end(0) });
        let bytes = log.finish();
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&bytes, "sender.itg").unwrap();
        let fidelity = analysis.finish().flows[0].metrics.fidelity.clone();
        assert_eq!(fidelity.verdict.name(), verdict, "{fidelity:?}");
    }
}

#[test]
fn sound_traffic_passes_at_every_rate() {
    for gap_ns in [1_000u64, 10_000, 100_000, 10_000_000] {
        for idt in [format!("constant({gap_ns}ns)"), format!("exp({gap_ns}ns)")] {
            let jitter = |seq: u64, due: u64| due + seq * 7_919 % (1 + gap_ns / 50);
            let (verdict, reasons) = one(&idt, 5_000, &jitter);
            assert_eq!(verdict, "pass", "{idt}: {reasons:?}");
        }
    }
}
