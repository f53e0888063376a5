//! Departures of sampled packets by the kernel's stamps: figures and verdicts.

use itg_record::{DepartureSample, DepartureTotals, Departures};
use itg_stats::departures::Departed;
use itg_stats::fidelity::{Cause, Fidelity, Verdict};
use itg_stats::figures::Way;

fn note(samples: &[(u64, u64, u64, i64)], totals: Option<DepartureTotals>) -> Departures {
    let samples = samples.iter().map(|sample| DepartureSample::from(*sample)).collect();
    Departures { index: 1, every: 4, held: false, samples, totals }
}

#[test]
fn the_stack_is_what_lies_between_hand_over_and_departure() {
    let totals = DepartureTotals { asked: 5, missing: 2, missed: 1, invalid: 0 };
    let notes = vec![
        note(&[(0, 0, 1_000, 40), (4, 10, 1_020, 60)], None),
        note(&[(8, 20, 1_030, -5)], None),
        note(&[], Some(totals)),
    ];
    let departed = Departed::of(&[(None, notes)], false).expect("notes");
    let stack = Way::of(&departed.stack).expect("samples");
    assert_eq!((stack.count, stack.min, stack.max), (3, -5, 60));
    let report = &departed.report;
    assert_eq!((report.every, report.asked, report.missing), (4, Some(5), Some(2)));
    assert_eq!(report.lateness_ns, None, "without its description no start is known");
    let notices = departed.notices();
    assert_eq!(notices.len(), 2, "{notices:?}");
    assert!(Departed::of(&[], false).is_none());
}

#[test]
fn each_owner_of_a_flow_has_an_account_and_a_clock_of_its_own() {
    let totals = |asked| DepartureTotals { asked, missing: 1, ..DepartureTotals::default() };
    let owner = |epoch, handed, totals| (Some(epoch), vec![note(&[(0, 5, handed, 1)], totals)]);
    let first = || owner(1_000, 1_005, Some(totals(3)));
    let both = Departed::of(&[first(), owner(9_000, 9_006, Some(totals(4)))], false);
    let report = both.expect("notes").report;
    assert_eq!((report.asked, report.missing), (Some(7), Some(2)));
    assert_eq!(report.lateness_ns.map(|way| (way.min, way.max)), Some((1, 2)));
    let cut = Departed::of(&[first(), owner(9_000, 9_006, None)], false).expect("notes").report;
    assert_eq!((cut.asked, cut.missing), (None, None), "one of them broke off");
}

#[test]
fn times_pass_only_where_they_are_known_to_be_kept() {
    let departed = |samples: &[i64], totals| {
        let samples: Vec<_> = samples.iter().map(|&left| (0, 0, 0, left)).collect();
        let notes = vec![note(&samples, Some(totals))];
        let mut departed = Departed::of(&[(None, notes)], true).expect("notes");
        // As with a description that puts the start to 0.
        departed.lateness = departed.stack.clone();
        departed
    };
    let none = DepartureTotals { asked: 2, ..DepartureTotals::default() };
    let missed = DepartureTotals { missed: 1, ..none };
    let invalid = DepartureTotals { invalid: 2, ..none };
    let (late, dropped, coarse) = (Cause::LateSender, Cause::DroppedPackets, Cause::Resolution);
    for (samples, totals, before, want, causes) in [
        (&[10, 99_000][..], none, Verdict::Pass, Verdict::Pass, vec![]),
        (&[10, 101_000], none, Verdict::Pass, Verdict::Warn, vec![late]),
        (&[10, -900_000], none, Verdict::Pass, Verdict::Warn, vec![late]),
        (&[10, 101_000], none, Verdict::Fail, Verdict::Fail, vec![late]),
        (&[10], missed, Verdict::Pass, Verdict::Warn, vec![dropped]),
        (&[101_000], invalid, Verdict::Pass, Verdict::Warn, vec![late]),
        (&[10], invalid, Verdict::Pass, Verdict::Warn, vec![late]),
        (&[], none, Verdict::Pass, Verdict::Unresolved, vec![coarse]),
        (&[], none, Verdict::Fail, Verdict::Fail, vec![coarse]),
        (&[], missed, Verdict::Pass, Verdict::Warn, vec![dropped, coarse]),
    ] {
        let mut fidelity =
            Fidelity { verdict: before, gap_ns: Some(100_000.0), ..Fidelity::default() };
        departed(samples, totals).judge(&mut fidelity);
        assert_eq!((fidelity.verdict, fidelity.causes), (want, causes), "{samples:?} {totals:?}");
        assert_eq!(fidelity.reasons.is_empty(), want == Verdict::Pass, "{samples:?} {totals:?}");
    }
}

#[test]
fn times_kept_by_the_kernel_without_stamps_leave_lateness_unknown() {
    let departed = Departed::of(&[], true).expect("held");
    assert!(departed.report.held && departed.notices()[0].contains("not known"));
    assert_eq!(departed.lateness.moments().count(), 0);
}
