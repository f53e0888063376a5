//! Accounts of logs that lack something: what is known stays known, and what is not is never made up.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_core::flow::Meter;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_stats::report::{FlowReport, Report};
use itg_stats::stats::LossBasis;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, end, spec};

fn report(logs: &[&[u8]]) -> Report {
    let mut analysis = Analysis::new(Options::default());
    for (log, name) in logs.iter().zip(["one", "two"]) {
        analysis.add_log(log, name).unwrap();
    }
    analysis.finish()
}

fn flow<'a>(report: &'a Report, number: u32, side: &str) -> &'a FlowReport {
    report.flows.iter().find(|flow| flow.flow == number && flow.side == side).unwrap()
}

fn sent(flow: u32, seq: u64) -> Record {
    let planned_ns = seq * 1_000_000;
    Record::sent(SentPacket { flow, seq, size: 64, planned_ns, sent_ns: EPOCH + planned_ns })
}

fn arrival(flow: u32, seq: u64) -> ReceivedPacket {
    let sent_ns = EPOCH + seq * 1_000_000;
    let (arrived_ns, read_ns) = (sent_ns + 10, sent_ns + 20);
    ReceivedPacket { flow, seq, size: 64, sent_ns, arrived_ns, read_ns, ttl: 64, tos: 0 }
}

fn received(flow: u32, seq: u64) -> Record {
    Record::received(arrival(flow, seq))
}

#[test]
fn a_record_that_one_flow_lacks_is_not_missing_in_another() {
    let mut log = TestLog::new(Side::Receiver, "b");
    log.flow(0, &spec(1, "constant(1ms)", "constant(64)", 10), ["a", "b"]);
    log.flow(1, &spec(2, "constant(1ms)", "constant(64)", 10), ["a", "b"]);
    log.records((0..9).map(|k| received(0, k)));
    log.records((0..5).map(|k| received(1, k)));
    let counted = |index, received, lost| FlowEnd {
        sent_packets: Some(10),
        received_packets: Some(received),
        log_lost_records: lost,
        ..end(index)
    };
    log.end_flow(counted(0, 9, 0));
    log.end_flow(counted(1, 10, 5));
    let report = report(&[&log.finish_lacking(5)]);
    let [whole, lacking] = [1, 2].map(|number| &flow(&report, number, "receiver").metrics);
    assert_eq!((whole.lost, whole.lost_basis), (Some(1), Some(LossBasis::SenderCount)));
    assert_eq!((lacking.lost, lacking.lost_basis), (Some(0), Some(LossBasis::ReceiverCount)));
}

#[test]
fn a_senders_log_that_breaks_off_does_not_say_what_was_sent() {
    let spec = spec(1, "constant(1ms)", "constant(64)", 1000);
    let mut sender = TestLog::new(Side::Sender, "a");
    sender.flow(0, &spec, ["a", "b"]);
    sender.records((0..700).map(|k| sent(0, k)));
    let mut receiver = TestLog::new(Side::Receiver, "b");
    receiver.flow(0, &spec, ["a", "b"]);
    receiver.records((0..310).map(|k| received(0, k)));
    receiver.end_flow(FlowEnd {
        received_packets: Some(990),
        received_unique: Some(990),
        log_lost_records: 680,
        ..end(0)
    });
    let report = report(&[&sender.killed(), &receiver.finish_lacking(680)]);
    let metrics = &flow(&report, 1, "receiver").metrics;
    assert_eq!((metrics.sent_packets, metrics.lost, metrics.excess_packets), (None, None, 0));
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn replies_behind_the_last_block_of_a_killed_sender_are_not_lost() {
    let mut spec = spec(1, "constant(1ms)", "constant(64)", 100);
    spec.meter = Meter::Rtt;
    let log = |whole: bool| {
        let mut log = TestLog::new(Side::Sender, "a");
        log.flow(0, &spec, ["a", "b"]);
        log.records((0..100).map(|k| sent(0, k)));
        log.records((0..60).map(|k| Record::echoed(arrival(0, k))));
        log.end_flow(FlowEnd { sent_packets: Some(100), ..end(0) });
        if whole { log.finish() } else { log.killed() }
    };
    let whole = report(&[&log(true)]);
    assert_eq!(whole.flows[0].metrics.lost, Some(40));
    let broken = report(&[&log(false)]);
    assert_eq!(broken.flows[0].metrics.lost, None);
    assert!(!broken.flows[0].notices.is_empty(), "a reader is told that the log breaks off");
}

#[test]
fn bursts_of_some_flows_are_not_those_of_all() {
    let flows = [1, 2].map(|id| spec(id, "constant(1ms)", "constant(64)", 10));
    let mut sender = TestLog::new(Side::Sender, "a");
    let mut receiver = TestLog::new(Side::Receiver, "b");
    for (index, spec) in (0..).zip(&flows) {
        sender.flow(index, spec, ["a", "b"]);
        sender.records((0..10).map(|k| sent(index, k)));
        sender.end_flow(FlowEnd { sent_packets: Some(10), ..end(index) });
        receiver.flow(index, spec, ["a", "b"]);
    }
    receiver.records((0..10).filter(|k| k % 5 != 2).map(|k| received(0, k)));
    receiver.end_flow(FlowEnd { received_packets: Some(8), ..end(0) });
    receiver.records((0..3).map(|k| received(1, k)));
    receiver.end_flow(FlowEnd {
        received_packets: Some(6),
        received_unique: Some(6),
        log_lost_records: 3,
        ..end(1)
    });
    let report = report(&[&sender.finish(), &receiver.finish_lacking(3)]);
    let own = &flow(&report, 1, "receiver").metrics;
    assert_eq!((own.lost, own.loss_bursts), (Some(2), Some(2)));
    let total = &report.total.metrics;
    assert_eq!((total.lost, total.loss_bursts, total.loss_burst_mean), (Some(6), None, None));
    assert!(total.loss_model.is_none());
}

/// The number of the records of a log that breaks off is neither what was sent nor what arrived.
#[test]
fn records_of_a_log_that_breaks_off_are_no_count() {
    let mut spec = spec(1, "constant(1ms)", "constant(64)", 500);
    for (meter, cut) in
        [(Meter::Owd, true), (Meter::Owd, false), (Meter::Rtt, true), (Meter::Rtt, false)]
    {
        spec.meter = meter;
        let mut sender = TestLog::new(Side::Sender, "a");
        sender.flow(0, &spec, ["a", "b"]);
        sender.records((0..308).map(|k| sent(0, k)));
        if meter == Meter::Rtt {
            sender.records((0..60).map(|k| Record::echoed(arrival(0, k))));
        }
        let mut receiver = TestLog::new(Side::Receiver, "b");
        receiver.flow(0, &spec, ["a", "b"]);
        receiver.records((0..64).map(|k| received(0, k)));
        let (sender, receiver, words) = if cut {
            (sender.killed(), receiver.killed(), "breaks off")
        } else {
            (sender.finish_lacking(192), receiver.finish_lacking(7), "lacks records")
        };
        for logs in [&[&sender[..]][..], &[&receiver], &[&sender, &receiver]] {
            for flow in report(logs).flows {
                let account = &flow.metrics.account;
                let text = format!("{meter:?} {}: {account:#?}", flow.side);
                assert_eq!((account.sent, account.arrived), (None, None), "{text}");
                assert_eq!(flow.metrics.lost, None, "{text}");
                let own = match (flow.side, meter) {
                    ("sender", Meter::Owd) => "sent",
                    _ => "arrived",
                };
                assert!(account.why[own].contains(words), "{own}: {text}");
            }
        }
    }
}
