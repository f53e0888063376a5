//! Packets sent, lost and in excess, by the log of each side and by what the other one counted.

use itg_core::flow::Meter;
use itg_record::{ReceivedPacket, Record, SentPacket, Side};
use itg_stats::sequence::Loss;
use itg_stats::stats::{Account, Facts, FlowStats, LossBasis, Setup};
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, plan, spec};

fn sent(seq: u64) -> Record {
    let (planned_ns, sent_ns) = (seq * 1_000_000, EPOCH + seq * 1_000_000);
    Record::sent(SentPacket { flow: 0, seq, size: 100, planned_ns, sent_ns })
}

fn received(seq: u64) -> Record {
    let (sent_ns, arrived_ns) = (EPOCH + seq * 1_000_000, EPOCH + seq * 1_000_000 + 5_000);
    let (flow, size, read_ns, ttl, tos) = (0, 100, arrived_ns, 64, 0);
    Record::received(ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos })
}

/// A flow at one side, with these packets in its log.
fn flow(side: Side, seqs: impl IntoIterator<Item = u64>) -> FlowStats {
    let mut stats = FlowStats::new(Setup::unknown(side));
    let record = if side == Side::Sender { sent } else { received };
    seqs.into_iter().for_each(|seq| stats.add(&record(seq)));
    stats
}

fn sender(seqs: impl IntoIterator<Item = u64>) -> FlowStats {
    flow(Side::Sender, seqs)
}

fn receiver(seqs: impl IntoIterator<Item = u64>) -> FlowStats {
    flow(Side::Receiver, seqs)
}

/// Lost packets and how they were found.
fn lost(account: &Account) -> Option<(u64, LossBasis)> {
    account.loss.map(|(loss, basis)| (loss.lost, basis))
}

fn counts(sent_packets: u64) -> Facts<'static> {
    Facts { sent_packets: Some(sent_packets), ..Facts::default() }
}

#[test]
fn packets_sent_are_those_counted_or_else_those_of_the_log() {
    let none = Facts::default();
    for (what, stats, facts, want) in [
        ("a log", sender(0..3), none, Some(3)),
        ("a count", sender(0..3), counts(7), Some(7)),
        ("nothing", sender([]), none, None),
        ("a log that lacks some", sender(0..3), Facts { sender_lacks: true, ..none }, None),
        ("arrivals", receiver(0..3), none, None),
    ] {
        assert_eq!(stats.sent_packets(&facts), want, "{what}");
        assert_eq!(stats.account(&facts).sent_packets, want, "{what}");
    }
}

#[test]
fn a_sender_knows_losses_by_what_its_receiver_counted() {
    let told = |all, unique| Facts { received_packets: all, received_unique: unique, ..counts(9) };
    let by_count = |lost| Some((lost, LossBasis::ReceiverCount));
    for (facts, loss, excess) in [
        (told(Some(8), Some(7)), by_count(2), 0),
        (told(Some(8), None), by_count(1), 0),
        (told(Some(11), Some(9)), by_count(0), 0),
        (told(None, None), None, 0),
        (told(Some(12), Some(11)), None, 2),
        (Facts { contradicted: true, ..told(Some(8), Some(7)) }, None, 0),
    ] {
        let account = sender(0..9).account(&facts);
        assert_eq!((lost(&account), account.excess_packets), (loss, excess), "{facts:?}");
    }
    // Of the receiver's log, where that is given, the sender tells the same.
    let there = receiver([0, 1, 2, 5]);
    let here = sender(0..6);
    let account = here.account(&Facts { peer: Some(&there), ..counts(6) });
    assert_eq!(lost(&account), Some((2, LossBasis::SenderLog)));
}

#[test]
fn losses_are_those_of_the_senders_log_where_it_has_all() {
    let by_log = |lost| Some((lost, LossBasis::SenderLog));
    let by_count = |lost| Some((lost, LossBasis::SenderCount));
    for (what, logged, told, want, excess) in [
        ("all that was counted", sender(0..6), Some(6), by_log(2), 0),
        ("not all", sender(0..5), Some(6), by_count(2), 0),
        ("a number that two owners sent", sender([0, 1, 2, 3, 3, 4, 5]), Some(7), by_log(2), 0),
        ("no packet", sender([]), Some(6), by_count(2), 0),
        ("nobody counted", sender(0..6), None, by_log(2), 0),
        ("others arrived", sender([0, 1, 2, 3, 4, 6]), Some(6), None, 1),
        ("more arrived than were sent", sender(0..6), Some(3), None, 1),
        ("others arrived, uncounted", sender([0, 1, 2, 3]), None, None, 0),
    ] {
        let there = receiver([0, 1, 2, 5]);
        let facts = Facts { sent_packets: told, peer: Some(&logged), ..Facts::default() };
        let account = there.account(&facts);
        assert_eq!((lost(&account), account.excess_packets), (want, excess), "{what}");
    }
    // A log without packets does not say that none was sent.
    let (none, nothing) = (sender([]), receiver([]));
    let facts = Facts { peer: Some(&none), ..Facts::default() };
    assert_eq!(nothing.account(&facts).sent_packets, None);
    let (here, there) = (sender(0..6), receiver([0, 1, 2, 5, 8, 9]));
    assert_eq!(there.unmatched(&Facts { peer: Some(&here), ..Facts::default() }), 2);
    assert_eq!(there.unmatched(&Facts::default()), 6);
}

#[test]
fn what_is_missing_in_a_log_is_no_loss() {
    let there = receiver([0, 1, 2, 5]);
    let here = sender(0..6);
    let facts = Facts { peer: Some(&here), ..counts(6) };
    let uncounted = Facts { sent_packets: None, ..facts };
    let told = Facts { received_packets: Some(5), received_unique: Some(5), ..facts };
    let by_receiver = Some((1, LossBasis::ReceiverCount));
    for (what, facts, want) in [
        ("whole", facts, Some((2, LossBasis::SenderLog))),
        ("it breaks off", Facts { breaks_off: true, ..facts }, None),
        ("it lacks records", Facts { lacks_records: true, ..facts }, None),
        ("it has more than was counted", Facts { contradicted: true, ..facts }, None),
        ("the sender's lacks some", Facts { sender_lacks: true, ..uncounted }, None),
        ("arrivals are not in it", Facts { unlogged: Some(1), ..told }, by_receiver),
        ("all are in it", Facts { unlogged: Some(0), ..told }, Some((2, LossBasis::SenderLog))),
    ] {
        assert_eq!(lost(&there.account(&facts)), want, "{what}");
    }
    // A log of D-ITG tells losses by its numbers, unless it is damaged.
    let numbers = Facts { by_numbers: true, ..Facts::default() };
    for (facts, want) in [
        (numbers, Some((2, LossBasis::SequenceNumbers))),
        (Facts { lacks_records: true, ..numbers }, None),
        (Facts { contradicted: true, ..numbers }, None),
        (Facts::default(), None),
    ] {
        let account = there.account(&facts);
        assert_eq!((lost(&account), account.sent_packets), (want, None), "{facts:?}");
    }
}

#[test]
fn which_packets_are_lost_is_not_known_where_some_were_not_sent() {
    let there = receiver([0, 1, 4, 5]);
    let of = |facts| there.account(&facts).loss.expect("known").0;
    let all = of(counts(6));
    assert_eq!((all.lost, all.bursts, all.longest, all.at_end), (2, 1, 2, Some(0)));
    let left_out = |skipped, refused| Facts {
        skipped_packets: Some(skipped),
        refused_packets: Some(refused),
        ..counts(6)
    };
    // Two were lost, and four numbers are missing.
    for (skipped, refused) in [(2, 0), (0, 2), (1, 1)] {
        let some = of(left_out(skipped, refused));
        assert_eq!(some, Loss { lost: 2, bursts: 2, ..Loss::default() }, "{skipped}, {refused}");
    }
    let one = receiver([0, 2, 4]).account(&Facts { refused_packets: Some(3), ..counts(4) });
    assert_eq!(one.loss.map(|(loss, _)| (loss.lost, loss.bursts)), Some((1, 1)));
}

#[test]
fn what_is_in_a_log_had_its_turn() {
    let spec = spec(1, "constant(1ms)", "constant(100)", 50);
    let due = plan(&spec);
    for (logged, told) in [(30_u64, Some("20 of 50")), (50, None)] {
        let mut log = TestLog::new(Side::Sender, "a");
        log.flow(0, &spec, ["a", "a"]);
        log.records(due.iter().take(usize::try_from(logged).expect("few")).map(|d| sent(d.seq)));
        // Its sender was killed: nobody told how many packets were sent.
        let log = log.killed();
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&log, "log").expect("a log");
        let flow = analysis.finish().flows.swap_remove(0);
        assert_eq!(flow.metrics.account.planned, Some(50));
        let reason = flow.metrics.fidelity.reasons.iter().find(|reason| reason.contains("of 50"));
        assert_eq!(reason.is_some(), told.is_some(), "{reason:?}");
        assert!(
            reason.is_none_or(|reason| reason.contains(told.unwrap_or_default())),
            "{reason:?}"
        );
    }
}

/// At the sender of round trips what arrives are the replies.
#[test]
fn replies_are_the_arrivals_of_a_round_trip() {
    let mut stats = FlowStats::new(Setup { meter: Meter::Rtt, ..Setup::unknown(Side::Sender) });
    (0..6).for_each(|seq| stats.add(&sent(seq)));
    for seq in [0, 3] {
        stats.add(&Record { kind: itg_record::Kind::Echoed, ..received(seq) });
    }
    let account = stats.account(&Facts { unlogged: Some(3), ..counts(6) });
    assert_eq!(lost(&account), Some((4, LossBasis::SenderLog)));
}
