//! Closing of the account of a flow: its parts from other figures, reasons, verdict and notices.

use std::collections::BTreeMap;

use itg_core::distribution::Distribution;
use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::seed::RunSeed;
use itg_stats::fidelity::{Cause, Fidelity, Verdict};
use itg_stats::figures::{Ledger, LossSplit};
use itg_stats::metric::Sums;
use itg_stats::packet_account::{LostPackets, PacketAccount, Told, planned};
use itg_stats::report::Metrics;
use itg_testkit::logs::spec;

/// Figures of a flow that passes.
fn figures(sent: Option<u64>, left_out: Option<u64>) -> Metrics {
    let fidelity = Fidelity { verdict: Verdict::Pass, ..Fidelity::default() };
    Metrics { sent_packets: sent, skipped_packets: left_out, fidelity, ..Metrics::default() }
}

fn told(planned: Option<u64>, refused: Option<u64>) -> Told {
    let end = Some("the connection broke".to_owned());
    Told { planned, refused, end, ..Told::default() }
}

fn settled(mut metrics: Metrics, told: Told) -> Metrics {
    metrics.settle(told);
    metrics
}

#[test]
fn packets_that_did_not_leave_are_judged_by_their_share_of_the_plan() {
    use Verdict::{Fail, Pass, Warn};
    for (planned, [sent, refused, left_out], interrupted, verdict, reason) in [
        (Some(1000), [1000, 0, 0], false, Pass, ""),
        (Some(1000), [700, 0, 300], false, Pass, ""),
        (Some(1000), [990, 10, 0], false, Warn, "10 of 1000: 10 refused"),
        (Some(1000), [989, 11, 0], false, Fail, "11 of 1000: 11 refused"),
        (Some(1000), [985, 0, 5], false, Warn, "10 of 1000: 10 cut off"),
        (Some(1000), [980, 6, 5], false, Fail, "15 of 1000: 6 refused, 9 cut off"),
        (Some(1000), [400, 0, 0], true, Pass, ""),
        (Some(1000), [400, 1, 0], true, Warn, "1 of 1000: 1 refused, 599 cut off"),
        (None, [99, 1, 0], false, Warn, "1: 1 refused"),
        (None, [98, 2, 0], false, Fail, "2: 2 refused"),
        // More had their turn than are planned: the plan is not known.
        (Some(50), [99, 1, 0], false, Warn, "1: 1 refused"),
    ] {
        let refused_by = [("EPERM".to_owned(), refused)].into_iter().filter(|(_, n)| *n > 0);
        let refused_by = refused_by.collect();
        let told = Told { refused_by, interrupted, ..told(planned, Some(refused)) };
        let fidelity = settled(figures(Some(sent), Some(left_out)), told).fidelity;
        let words = format!("were refused by the sender's kernel ({refused} EPERM)");
        let reason = reason
            .replace(": ", " planned packets did not leave: ")
            .replace("refused", &words)
            .replace("cut off", "were not reached (the connection broke)");
        let what = format!("{sent} {refused} {left_out} of {planned:?}");
        assert_eq!((fidelity.verdict, fidelity.reasons.join("|")), (verdict, reason), "{what}");
        assert_eq!(fidelity.causes.contains(&Cause::Incomplete), verdict > Pass, "{what}");
    }
    let errors = BTreeMap::from([("EPERM".to_owned(), 2), ("ENETUNREACH".to_owned(), 1)]);
    for (refused_by, end) in [
        (errors, "3 were refused by the sender's kernel (1 ENETUNREACH, 2 EPERM)"),
        (BTreeMap::new(), "3 were refused by the sender's kernel"),
    ] {
        let told = Told { refused_by, ..told(Some(3), Some(3)) };
        let reasons = settled(figures(Some(0), Some(0)), told).fidelity.reasons;
        assert!(reasons[0].ends_with(end), "{reasons:?}");
    }
}

#[test]
fn a_plan_of_which_nobody_knows_the_rest_does_not_pass() {
    for (arrived, passes) in [(1000, true), (990, true), (989, false), (0, false)] {
        let told = Told { arrived: Some(arrived), ..told(Some(1000), None) };
        let fidelity = settled(figures(None, None), told).fidelity;
        let words = format!(
            "nothing is known of {} of 1000 planned packets: logs and accounts end before",
            1000 - arrived
        );
        let want = if passes { (Verdict::Pass, vec![]) } else { (Verdict::Unknown, vec![words]) };
        assert_eq!((fidelity.verdict, fidelity.reasons), want, "{arrived}");
    }
}

#[test]
fn parts_that_are_not_known_have_a_reason() {
    let a_part = ("not_reached", "a part of the plan is not known");
    let changed = "more packets had their turn than the description plans: its rate was changed, or \
                   several owners sent some";
    let parts = ["arrived", "left_out", "not_reached", "refused", "sent"];
    let whole = || Told { arrived: Some(8), corrupted: Some(0), ..told(Some(10), Some(0)) };
    let sent = |packets| figures(Some(packets), Some(0));
    for (what, metrics, told, not_reached, why) in [
        ("all", sent(10), whole(), Some(0), vec![]),
        ("an early end", sent(7), whole(), Some(3), vec![("not_reached", "the connection broke")]),
        (
            "an early end of which nobody tells",
            sent(7),
            Told { end: None, ..whole() },
            Some(3),
            vec![("not_reached", "no account of its end")],
        ),
        (
            "no plan",
            sent(10),
            Told { planned: None, ..whole() },
            None,
            vec![a_part, ("planned", "how many packets it plans is not known")],
        ),
        (
            "no plan, for a reason",
            sent(10),
            Told { planned: None, no_plan: "endless", ..whole() },
            None,
            vec![a_part, ("planned", "endless")],
        ),
        ("more than the plan", sent(11), whole(), None, vec![a_part, ("planned", changed)]),
        (
            "nothing told",
            figures(None, None),
            Told { refused: None, arrived: None, end: None, ..whole() },
            None,
            parts
                .map(|part| match part {
                    "arrived" => (part, "the receiver told no account"),
                    _ => (part, "no account of the sender's end"),
                })
                .to_vec(),
        ),
        (
            "an older sender",
            sent(10),
            Told { refused: None, ..whole() },
            None,
            vec![a_part, ("refused", "no side has told it, as in logs of an older version")],
        ),
        (
            "payloads as they came",
            sent(10),
            Told { corrupted: None, ..whole() },
            Some(0),
            vec![("corrupted", "payloads were not compared: itg-recv --check-payload")],
        ),
    ] {
        let account = settled(metrics, told).account;
        let of_plan =
            |part: &str| parts.contains(&part) || ["corrupted", "planned"].contains(&part);
        let all = account.why.iter().map(|(part, why)| (*part, why.as_ref()));
        let got: Vec<_> = all.filter(|(part, _)| of_plan(part)).collect();
        assert_eq!((account.not_reached, got), (not_reached, why), "{what}");
    }
}

#[test]
fn lost_packets_have_a_place_only_where_the_places_add_up() {
    let split = |[socket, checksum, too_late, network]: [Option<u64>; 4]| LossSplit {
        socket,
        checksum,
        too_late,
        network,
        log: Some(1),
        ..LossSplit::default()
    };
    let places = |[socket, checksum, too_late, network, unknown]: [Option<u64>; 5]| LostPackets {
        socket,
        checksum,
        too_late,
        network,
        unknown,
        ..LostPackets::default()
    };
    let all = [Some(3), Some(1), Some(2), Some(4)];
    let no_network = [Some(3), Some(1), Some(2), None];
    for (parts, lost, want) in [
        (all, None, [None; 5]),
        (all, Some(10), [Some(3), Some(1), Some(2), Some(4), Some(0)]),
        (all, Some(11), [Some(3), Some(1), Some(2), Some(4), Some(1)]),
        (all, Some(9), [None, None, None, None, Some(9)]),
        (no_network, Some(6), [Some(3), Some(1), Some(2), None, Some(0)]),
        (no_network, Some(1), [None, None, None, None, Some(1)]),
        ([None, None, None, Some(5)], Some(5), [None, None, None, Some(5), Some(0)]),
        ([None; 4], Some(5), [None, None, None, None, Some(5)]),
    ] {
        let metrics = || Metrics {
            lost,
            ledger: Ledger { loss: split(parts), ..Ledger::default() },
            duplicated: Some(2),
            ..figures(Some(20), Some(0))
        };
        let told = Told { arrived: Some(9), ..told(Some(20), Some(0)) };
        let one = settled(metrics(), told);
        // The total of one flow is that flow's.
        let (mut sums, mut total) = (Sums::default(), metrics());
        sums.add(&one);
        sums.put(&mut total);
        total.close_account();
        for account in [one.account, total.account] {
            assert_eq!(account.lost, places(want), "{lost:?} {parts:?}");
            let rest = [account.sent, account.logged, account.not_logged, account.duplicated];
            assert_eq!(rest, [Some(20), Some(8), Some(1), Some(2)]);
        }
    }
}

/// The sender's host counts drops of all its traffic: they tell for sure only that a flow lost nothing there.
#[test]
fn drops_of_the_senders_host_may_be_another_flows() {
    for (host, lost, want) in [
        (None, 5, [None, Some(5), Some(0)]),
        (Some(0), 5, [Some(0), Some(5), Some(0)]),
        (Some(7), 5, [None, None, Some(5)]),
        (Some(2), 5, [None, None, Some(5)]),
        (Some(7), 0, [Some(0), Some(0), Some(0)]),
        (None, 0, [Some(0), Some(0), Some(0)]),
    ] {
        let one =
            LossSplit { socket: Some(0), sender_host: host, ..LossSplit::default() }.of(Some(lost));
        let metrics = Metrics {
            lost: Some(lost),
            ledger: Ledger { loss: one, ..Ledger::default() },
            ..figures(Some(20), Some(0))
        };
        let told = Told { arrived: Some(20 - lost), ..told(Some(20), Some(0)) };
        let settled = settled(metrics, told);
        let LostPackets { sender_host, network, unknown, .. } = settled.account.lost;
        assert_eq!([sender_host, network, unknown], want, "{host:?} of {lost}");
        let told = settled.account_notices().iter().any(|notice| notice.contains("dropped"));
        assert_eq!(told, host > Some(0) && lost > 0, "{host:?} of {lost}");
    }
}

#[test]
fn rates_are_held_against_the_plan() {
    for (error, sent, [refused, left_out], want) in [
        (Some(0.0), Some(50), [30, 20], Some(-0.5)),
        (Some(0.5), Some(50), [50, 0], Some(-0.25)),
        (Some(0.25), Some(0), [0, 0], Some(0.25)),
        (Some(0.25), None, [5, 0], Some(0.25)),
        (None, Some(50), [50, 0], None),
    ] {
        let mut metrics = figures(sent, Some(left_out));
        metrics.fidelity.rate_error = error;
        let got = settled(metrics, told(Some(100), Some(refused))).fidelity.rate_error;
        assert_eq!(got, want, "{error:?} {sent:?}");
    }
    for (planned_ns, want) in
        [(None, None), (Some(2_000_000_000), Some(4000.0)), (Some(0), Some(8e12))]
    {
        let metrics = Metrics { bytes: 1000, ..figures(Some(1), Some(0)) };
        let got = settled(metrics, Told { planned_ns, ..told(Some(1), Some(0)) });
        assert_eq!(got.bitrate_over_plan_bps, want);
    }
    for (planned, sent, want) in [
        (Some(1000), Some(990), (Some(10), Some(0.01))),
        (Some(1000), Some(1000), (Some(0), Some(0.0))),
        (Some(0), Some(0), (Some(0), Some(0.0))),
        (Some(9), Some(10), (None, None)),
        (None, Some(10), (None, None)),
        (Some(9), None, (None, None)),
    ] {
        let account = PacketAccount { planned, sent, ..PacketAccount::default() };
        assert_eq!((account.unsent(), account.unsent_share()), want, "{planned:?} {sent:?}");
    }
}

#[test]
fn notices_tell_each_kind_of_loss_that_has_a_cause() {
    let late = "2 packets came when the receiver had counted the flow, and are told as lost: \
                --drain waits longer";
    let other = "4 packets arrived with another payload than their flow's";
    let limit = "the rate is what its sender holds it to (--pacing-rate, or --reverse-rate of \
                 itg-recv), not the path's";
    for (at_end, too_late, corrupted, limited, want) in [
        (None, None, None, false, vec![]),
        (Some(0), Some(0), Some(0), false, vec![]),
        (Some(1), None, None, false, vec!["the last packet that was sent did not arrive"]),
        (Some(3), None, None, false, vec!["the last 3 packets that were sent did not arrive"]),
        (Some(9), None, None, false, vec![]),
        (None, Some(2), Some(4), true, vec![late, other, limit]),
    ] {
        let mut metrics = Metrics { lost_at_end: at_end, ..figures(Some(9), None) };
        metrics.limited_by = limited.then(|| "pacing_rate".to_owned());
        metrics.account.lost.too_late = too_late;
        metrics.account.corrupted = corrupted;
        assert_eq!(metrics.account_notices(), want, "{at_end:?} {too_late:?}");
    }
}

#[test]
fn refusals_of_flows_are_summed_by_error() {
    let mut sum = Metrics::default();
    for errors in [vec![("EPERM", 3)], vec![("EPERM", 4), ("ENOBUFS", 1)], vec![]] {
        let mut flow = Metrics::default();
        flow.account.refused_by =
            errors.into_iter().map(|(error, n)| (error.to_owned(), n)).collect();
        sum.add_refusals(&flow);
    }
    let want = BTreeMap::from([("EPERM".to_owned(), 7), ("ENOBUFS".to_owned(), 1)]);
    assert_eq!(sum.account.refused_by, want);
}

#[test]
fn plans_are_counted_where_they_can_be() {
    let flow = |spec: FlowSpec| Flow::resolve(spec, RunSeed(1)).expect("valid");
    let for_a_second = |idt| {
        let stop = Stop { duration_ns: Some(1_000_000_000), ..Stop::default() };
        spec(1, idt, "constant(100)", 1).stop(stop)
    };
    let mut fast = for_a_second("constant(1ms)");
    fast.idt = Distribution::Constant(0.0);
    let walked = flow(for_a_second("exp(1ms)")).schedule().count() as u64;
    let none = "as fast as possible, for a time or without an end: there is no such number";
    let long = "the plan is too long to count";
    for (what, spec, whole, most, want) in [
        ("packets", spec(1, "exp(1ms)", "constant(100)", 70), None, 0, (Some(70), "")),
        ("as fast as possible", fast, Some(3), u64::MAX, (None, none)),
        ("walked", for_a_second("exp(1ms)"), None, 1 << 20, (Some(walked), "")),
        ("not walked", for_a_second("exp(1ms)"), Some(7), 1 << 20, (Some(7), "")),
        ("too long", for_a_second("exp(1ms)"), None, 10, (None, long)),
    ] {
        assert_eq!(planned(&flow(spec), whole, most), want, "{what}");
    }
}
