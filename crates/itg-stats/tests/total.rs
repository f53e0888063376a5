//! The total of several flows, against a calculation from its flows.

use itg_core::flow::{Proto, SocketOptions};
use itg_record::{FlowEnd, Note, ReceivedPacket, Record, SentPacket, Side, TcpSample};
use itg_stats::figures::LossModel;
use itg_stats::report::{Metrics, Report, TotalReport};
use itg_stats::sequence::Loss;
use itg_stats::stats::LossBasis;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, spec};

const DAY: i64 = 86_400_000_000_000;
const YEAR: u64 = 366 * DAY.unsigned_abs();

/// A flow of ten packets, one a millisecond.
struct Made {
    proto: Proto,
    /// Numbers in the order of their arrival.
    arrivals: Vec<u64>,
    /// Lateness and delay of each packet.
    late_ns: u64,
    delay_ns: i64,
    begins_ns: u64,
    /// Packets at the end that the kernel refused.
    refused: u64,
    /// Packets at the beginning that are in the sender's log.
    logged: u64,
    /// Packets that arrived last and are not in the receiver's log.
    unlogged: usize,
    sender_logs: bool,
    told_sent: bool,
    socket_drops: Option<u64>,
    checksum_drops: Option<u64>,
}

/// A flow whose packets arrive in this order.
fn made(arrivals: &[u64]) -> Made {
    Made {
        proto: Proto::Udp,
        arrivals: arrivals.to_vec(),
        late_ns: 0,
        delay_ns: 5_000,
        begins_ns: EPOCH,
        refused: 0,
        logged: 10,
        unlogged: 0,
        sender_logs: true,
        told_sent: true,
        socket_drops: Some(0),
        checksum_drops: None,
    }
}

fn all() -> Made {
    made(&(0..10).collect::<Vec<_>>())
}

fn report(flows: &[Made]) -> Report {
    let (mut sender, mut receiver) =
        (TestLog::new(Side::Sender, "b"), TestLog::new(Side::Receiver, "b"));
    for (flow, made) in (0_u32..).zip(flows) {
        let spec = spec(flow + 1, "constant(1ms)", "constant(100)", 10).proto(made.proto);
        receiver.flow(flow, &spec, ["b", "b"]);
        let sent_ns = |seq: u64| made.begins_ns + seq * 1_000_000 + made.late_ns;
        if made.sender_logs {
            sender.flow(flow, &spec, ["b", "b"]);
            sender.records((0..made.logged.min(10 - made.refused)).map(|seq| {
                let (sent_ns, planned_ns) = (sent_ns(seq), seq * 1_000_000);
                Record::sent(SentPacket { flow, seq, size: 100, planned_ns, sent_ns })
            }));
        }
        let there = made.arrivals.len() - made.unlogged;
        receiver.records(made.arrivals[..there].iter().map(|&seq| {
            let sent_ns = sent_ns(seq);
            let arrived_ns = sent_ns.saturating_add_signed(made.delay_ns);
            let (size, read_ns, ttl, tos) = (100, arrived_ns + 7, 64, 0);
            let packet = ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            Record::received(packet)
        }));
        let unique: std::collections::BTreeSet<_> = made.arrivals.iter().collect();
        let end = FlowEnd {
            sent_packets: made.told_sent.then_some(10 - made.refused),
            skipped_packets: made.told_sent.then_some(0),
            refused_packets: made.told_sent.then_some(made.refused),
            received_packets: Some(made.arrivals.len() as u64),
            received_unique: Some(unique.len() as u64),
            socket_drops: made.socket_drops,
            checksum_drops: made.checksum_drops,
            ..FlowEnd::new(flow, "end of the schedule".to_owned())
        };
        if made.sender_logs {
            sender.end_flow(end.clone());
        }
        receiver.end_flow(end);
    }
    let logs = [sender.finish(), receiver.finish()];
    let mut analysis = Analysis::new(Options::default());
    logs.iter().for_each(|log| analysis.add_log(log, "log").expect("a log"));
    analysis.finish()
}

fn total(flows: &[Made]) -> TotalReport {
    report(flows).total
}

#[test]
fn order_copies_and_losses_are_those_of_all_flows_together() {
    let flows = [made(&[0, 1, 3, 2, 2, 4, 5, 9, 8]), made(&[0, 2, 3, 4, 1, 6, 7, 5, 5, 9]), all()];
    let metrics = total(&flows).metrics;
    assert_eq!((metrics.packets, metrics.bytes), (29, 2900));
    assert_eq!((metrics.lost, metrics.duplicated, metrics.reordered), (Some(3), Some(2), Some(4)));
    assert_eq!((metrics.loss_bursts, metrics.loss_burst_mean), (Some(2), Some(1.5)));
    assert_eq!(metrics.lost_basis, Some(LossBasis::SenderLog));
    let order = metrics.reordering.expect("known");
    // Extents of 1 and 1, 3 and 2; in order before them 3 and 3, 4 and 2.
    assert_eq!((order.extent_mean, order.extent_max), (7.0 / 4.0, 3));
    assert_eq!((order.free_runs, order.free_run_mean), (4, 3.0));
    let rate = metrics.bitrate_bps.expect("a rate");
    let goodput = metrics.goodput_bps.expect("a rate");
    assert!((goodput / rate - 27.0 / 29.0).abs() < 1e-12, "{goodput} of {rate}");
    // The first loses 6 and 7, the second 8, the third nothing.
    let loss = Loss {
        from_good: 7 + 8 + 9,
        good_to_bad: 2,
        from_bad: 3,
        bad_to_good: 2,
        longest: 2,
        ..Loss::default()
    };
    assert_eq!(metrics.loss_model, LossModel::of(&loss));
    let ledger = metrics.ledger;
    let counts = [ledger.lateness_ns, ledger.network_ns, ledger.stack_ns]
        .map(|way| way.map(|way| way.count));
    assert_eq!(counts, [Some(30), Some(29), Some(29)]);
}

#[test]
fn the_place_of_losses_is_known_where_all_flows_tell_it() {
    let with = |arrivals: &[u64], socket_drops| Made { socket_drops, ..made(arrivals) };
    let (some, whole) = (&[0, 1, 2, 3, 4, 5, 6, 9][..], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9][..]);
    for (what, flows, want) in [
        ("the network alone", [with(some, Some(0)), with(some, Some(0))], (Some(0), Some(4))),
        ("one at its socket", [with(some, Some(2)), with(some, Some(0))], (Some(2), Some(2))),
        ("both at their sockets", [with(some, Some(2)), with(some, Some(1))], (None, None)),
        ("more than one has lost", [with(some, Some(3)), with(some, Some(0))], (Some(3), None)),
        ("more than the other has", [with(some, Some(0)), with(some, Some(3))], (Some(3), None)),
        ("drops of copies", [with(whole, Some(1)), with(whole, Some(2))], (None, None)),
        ("drops of one", [with(whole, Some(1)), with(whole, Some(0))], (Some(1), None)),
        ("the first does not tell", [with(some, None), with(some, Some(0))], (None, None)),
        ("the second does not tell", [with(some, Some(0)), with(some, None)], (None, None)),
        ("none tells", [with(some, None), with(some, None)], (None, None)),
        (
            "one that lost nothing does not",
            [with(some, Some(0)), with(whole, None)],
            (Some(0), Some(2)),
        ),
    ] {
        let metrics = total(&flows).metrics;
        let split = metrics.ledger.loss;
        assert_eq!((split.socket, split.network), want, "{what}");
    }
    // Two of three share a socket that dropped packets: no sum of all is known.
    let third = Made { checksum_drops: Some(1), ..with(whole, Some(0)) };
    let split = total(&[with(whole, Some(1)), with(whole, Some(2)), third]).metrics.ledger.loss;
    assert_eq!((split.socket, split.checksum), (None, None));
    // Nor what all left out, where one did not tell.
    let untold = Made { sender_logs: false, told_sent: false, ..all() };
    for (flows, skipped) in [([all(), all()], Some(0)), ([all(), untold], None)] {
        assert_eq!(total(&flows).metrics.ledger.loss.skipped, skipped);
    }
    // A stream has no drops at a socket.
    let stream = Made { proto: Proto::Tcp, ..with(some, None) };
    let metrics = total(&[with(some, Some(2)), stream]).metrics;
    assert_eq!((metrics.lost, metrics.ledger.loss.socket), (Some(4), Some(2)));
}

/// The total of streams with these limits of their rate and these congestion controls, each of which lost a packet.
fn streams(flows: &[(Option<u64>, Option<&str>)]) -> Metrics {
    let [mut sender, mut receiver] =
        [Side::Sender, Side::Receiver].map(|side| TestLog::new(side, "b"));
    for (flow, &(pacing_rate, congestion)) in (0_u32..).zip(flows) {
        let spec = spec(flow + 1, "constant(0)", "constant(100)", 10).proto(Proto::Tcp);
        let options = SocketOptions { pacing_rate, ..SocketOptions::default() };
        let spec = spec.socket(options);
        sender.flow(flow, &spec, ["b", "b"]);
        receiver.flow(flow, &spec, ["b", "b"]);
        receiver.records((0..9_u64).map(|seq| {
            let sent_ns = EPOCH + seq * 1_000_000;
            let (size, ttl, tos) = (100, 64, 0);
            let (arrived_ns, read_ns) = (sent_ns + 5, sent_ns + 7);
            let packet = ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            Record::received(packet)
        }));
        let congestion = congestion.map(str::to_owned);
        sender.note(&Note::Tcp(TcpSample {
            congestion,
            index: flow,
            unix_ns: EPOCH,
            rtt_ns: 40,
            rtt_var_ns: 5,
            min_rtt_ns: 30,
            cwnd_bytes: 10,
            ssthresh_bytes: None,
            in_flight_bytes: 3,
            acked_bytes: 100,
            retransmitted: 0,
            delivery_rate_bps: 7,
        }));
        let end = FlowEnd {
            sent_packets: Some(10),
            received_packets: Some(9),
            received_unique: Some(9),
            socket_drops: Some(0).filter(|_| flow == 0),
            ..FlowEnd::new(flow, "end of the schedule".to_owned())
        };
        sender.end_flow(end.clone());
        receiver.end_flow(end);
    }
    let logs = [sender.finish(), receiver.finish()];
    let mut analysis = Analysis::new(Options::default());
    logs.iter().for_each(|log| analysis.add_log(log, "log").expect("a log"));
    analysis.finish().total.metrics
}

#[test]
fn what_held_streams_is_the_totals_where_it_is_one_for_all() {
    let (slow, fast) = (Some(800_000), Some(8_000_000));
    let (cubic, bbr) = (Some("cubic"), Some("bbr"));
    for (what, flows, limited, control) in [
        ("one", vec![(slow, cubic)], true, cubic),
        ("the same", vec![(slow, cubic), (slow, cubic)], true, cubic),
        ("the second differs", vec![(slow, cubic), (fast, bbr)], false, None),
        ("the first differs", vec![(fast, bbr), (slow, cubic), (slow, cubic)], false, None),
        ("one is not known", vec![(slow, cubic), (None, None)], false, None),
        ("the first is not known", vec![(None, None), (slow, cubic)], false, None),
    ] {
        let metrics = streams(&flows);
        assert_eq!(metrics.limited_by.is_some(), limited, "{what}");
        assert_eq!(metrics.congestion_control.as_deref(), control, "{what}");
    }
}

#[test]
fn bursts_are_known_where_all_flows_tell_which_packets_are_lost() {
    let lossy = || made(&[0, 1, 2, 3, 4, 5, 6, 9]);
    let counted = || Made { sender_logs: false, ..lossy() };
    let lacking = || Made { logged: 8, ..made(&[0, 1, 2, 3, 4, 6, 7]) };
    let unknown = || Made { sender_logs: false, told_sent: false, ..lossy() };
    // Its receiver counted all, and has not all in its log.
    let unlogged = |made| Made { unlogged: 1, ..made };
    let (log, count) = (Some(LossBasis::SenderLog), Some(LossBasis::SenderCount));
    for (what, flows, want) in [
        ("by logs", vec![lossy(), lossy()], (Some(4), Some(2), log)),
        ("by counts", vec![counted(), counted()], (Some(4), Some(2), count)),
        ("by both", vec![lossy(), counted()], (Some(4), Some(2), None)),
        ("by both, again", vec![counted(), lossy(), lossy()], (Some(6), Some(3), None)),
        ("not at all", vec![unknown(), unknown()], (None, None, None)),
        ("not of all", vec![lossy(), unknown()], (None, None, None)),
        ("by a log that lacks some", vec![lacking(), lacking()], (Some(6), Some(4), count)),
        ("none", vec![all(), all()], (Some(0), Some(0), log)),
        ("of one that lost none", vec![lossy(), unlogged(all())], (Some(2), Some(1), None)),
        ("of one that lost some", vec![lossy(), unlogged(lossy())], (Some(4), None, None)),
    ] {
        let report = report(&flows);
        let metrics = &report.total.metrics;
        assert_eq!((metrics.lost, metrics.loss_bursts, metrics.lost_basis), want, "{what}");
        let told = report.notices.iter().any(|notice| notice.contains("losses after the last"));
        assert!(!told, "{what}");
        assert_eq!(metrics.loss_model.is_some(), metrics.loss_bursts.is_some(), "{what}");
    }
}

#[test]
fn times_that_nobody_believes_are_left_out_and_named() {
    let words = |numbers: &str| {
        format!(
            "the total leaves out delays and lateness of {numbers}: some are longer than a day, so times were made up \
             or clocks are apart"
        )
    };
    let delayed = |delay_ns| Made { delay_ns, ..all() };
    let late = |late_ns| Made { late_ns, ..all() };
    for (what, flows, delays, left_out) in [
        ("a day but for little", vec![all(), delayed(DAY - 1)], 20, None),
        ("a day", vec![all(), delayed(DAY)], 10, Some(words("flow 2"))),
        ("late by a day", vec![late(DAY.unsigned_abs()), all()], 20, Some(words("flow 1"))),
        ("two", vec![delayed(DAY), all(), delayed(DAY)], 10, Some(words("flows 1, 3"))),
        (
            "many",
            (0..9).map(|_| delayed(DAY)).chain([all()]).collect(),
            10,
            Some(words("flows 1, 2, 3, 4, 5, 6, 7, 8 and 1 more")),
        ),
    ] {
        let report = report(&flows);
        let network = report.total.metrics.ledger.network_ns.expect("some");
        assert_eq!(network.count, delays, "{what}");
        let told = report.notices.iter().find(|notice| notice.contains("leaves out delays"));
        assert_eq!(told, left_out.as_ref(), "{what}");
    }
    let far = |begins_ns| Made { begins_ns, ..all() };
    for (what, flows, left_out) in [
        ("a year but for little", [all(), all(), far(EPOCH - YEAR)], None),
        ("more than a year", [all(), all(), far(EPOCH - YEAR - 1)], Some("flow 3")),
        ("before the others", [far(EPOCH - 2 * YEAR), all(), all()], Some("flow 1")),
    ] {
        let report = report(&flows);
        let told = report.notices.iter().find(|notice| notice.contains("total's time"));
        let want = left_out.map(|flow| {
            format!("the total's time leaves out {flow}: more than a year away from the others")
        });
        assert_eq!(told, want.as_ref(), "{what}");
        let at_most = if left_out.is_some() { 10_000_000 } else { 2 * YEAR };
        assert!(report.total.metrics.duration_ns <= at_most, "{what}");
    }
}

#[test]
fn the_worst_flow_is_the_totals_and_named() {
    let lacking = || Made { refused: 5, ..made(&[0, 1, 2, 3, 4]) };
    let early = || Made { delay_ns: -1_000, ..all() };
    let words = "5 of 10 planned packets did not leave: 5 were refused by the sender's kernel";
    let two = "flows: 1 fail, 1 pass; causes: 1 incomplete";
    for (what, flows, rate_error, reasons) in [
        ("all pass", vec![all(), all()], 0.0, vec![]),
        ("one alone", vec![lacking()], -0.5, vec![format!("flow 1: {words}")]),
        (
            "the first",
            vec![lacking(), all()],
            -0.5,
            vec![two.to_owned(), format!("flow 1: {words}")],
        ),
        (
            "the second",
            vec![all(), lacking()],
            -0.5,
            vec![two.to_owned(), format!("flow 2: {words}")],
        ),
    ] {
        let fidelity = total(&flows).metrics.fidelity;
        assert!((fidelity.rate_error.expect("known") - rate_error).abs() < 1e-9, "{what}");
        assert_eq!(fidelity.reasons, reasons, "{what}");
    }
    assert_eq!(total(&[early(), all(), early()]).metrics.negative_delays, 20);
}
