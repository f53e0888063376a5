//! Numbers of packets: what is lost, reordered, and there twice, against sets and lists.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeSet;

use proptest::prelude::*;

use itg_fidelity::sequence::*;

/// The obvious twin: sets and lists.
fn twin(seqs: &[u64]) -> (BTreeSet<u64>, u64, u64) {
    let mut seen = BTreeSet::new();
    let (mut duplicated, mut reordered) = (0, 0);
    for &seq in seqs {
        let late = seen.last().is_some_and(|&max| seq < max);
        if !seen.insert(seq) {
            duplicated += 1;
        } else if late {
            reordered += 1;
        }
    }
    (seen, duplicated, reordered)
}

fn twin_loss(sent: impl Iterator<Item = u64>, got: &BTreeSet<u64>) -> Loss {
    let mut loss = Loss::default();
    let (mut before, mut burst) = (None, 0);
    for seq in sent {
        let missing = !got.contains(&seq);
        loss.lost += u64::from(missing);
        loss.bursts += u64::from(missing && before != Some(true));
        burst = if missing { burst + 1 } else { 0 };
        loss.longest = loss.longest.max(burst);
        match before {
            Some(true) => {
                loss.from_bad += 1;
                loss.bad_to_good += u64::from(!missing);
            }
            Some(false) => {
                loss.from_good += 1;
                loss.good_to_bad += u64::from(missing);
            }
            None => {}
        }
        before = Some(missing);
    }
    loss.at_end = Some(burst);
    loss
}

fn tracker(seqs: &[u64]) -> SeqTracker {
    let mut tracker = SeqTracker::new();
    for &seq in seqs {
        tracker.insert(seq);
    }
    tracker
}

/// Mostly ascending numbers with losses, duplicates and reordering over several chunks.
fn arrivals() -> impl Strategy<Value = Vec<u64>> {
    let walk = prop::collection::vec((1u64..4, 0u64..9), 0..1500).prop_map(|steps| {
        let mut at = 0u64;
        steps
            .into_iter()
            .map(|(step, back)| {
                at += step.saturating_sub(1).max(u64::from(step > 1));
                at += u64::from(step == 1);
                if back == 8 { at.saturating_sub(20) } else { at - 1 }
            })
            .collect::<Vec<_>>()
    });
    let dense = (0u64..2000, any::<u64>()).prop_map(|(n, salt)| {
        (0..n).filter(|k| k.wrapping_mul(salt | 1) >> 58 != 0).collect::<Vec<_>>()
    });
    let wild = prop::collection::vec(
        prop_oneof![0u64..50, 500u64..530, Just(u64::MAX), Just(u64::MAX - 1), any::<u64>()],
        0..60,
    );
    prop_oneof![walk, dense, wild]
}

proptest! {
    #[test]
    fn agrees_with_a_set(seqs in arrivals()) {
        let tracker = tracker(&seqs);
        let (seen, duplicated, reordered) = twin(&seqs);
        prop_assert_eq!(tracker.unique(), seen.len() as u64);
        prop_assert_eq!(tracker.duplicated(), duplicated);
        prop_assert_eq!(tracker.reordered(), reordered);
        prop_assert_eq!((tracker.min(), tracker.max()), (seen.first().copied(), seen.last().copied()));
        let mut listed = Vec::new();
        let mut before = None;
        for run in tracker.runs() {
            prop_assert!(before.is_none_or(|last| run.first > last + 1), "runs touch");
            before = Some(run.last);
            listed.extend(run.first..=run.last);
        }
        prop_assert_eq!(listed, seen.iter().copied().collect::<Vec<_>>());
        prop_assert!(seqs.iter().all(|&seq| tracker.contains(seq)));
        prop_assert_eq!(tracker.contains(77), seen.contains(&77));
    }

    #[test]
    fn losses_agree_with_a_walk(got in arrivals(), sent in arrivals(), end in 0u64..3000) {
        let seen = twin(&got).0;
        let tracked = tracker(&got);
        prop_assert_eq!(tracked.missing_before(end), twin_loss(0..end, &seen));
        let all = twin(&sent).0;
        prop_assert_eq!(
            tracked.missing_of(&tracker(&sent)),
            twin_loss(all.iter().copied(), &seen)
        );
    }

    #[test]
    fn appended_parts_are_the_whole(a in arrivals(), b in arrivals(), gap in 0u64..3, more in arrivals()) {
        // The later part above the earlier one, as it is at a clean cut.
        let above = a.iter().max().map_or(0, |max| max.saturating_add(1 + gap));
        let b: Vec<u64> = b.iter().map(|seq| seq.saturating_add(above)).collect();
        let mut appended = tracker(&a);
        let clean = a.iter().max() < b.iter().min() || b.is_empty();
        prop_assert_eq!(appended.append(&tracker(&b)), clean);
        if clean {
            // And it goes on as if nothing had happened.
            let mut whole = tracker(&[a, b].concat());
            for &seq in &more {
                prop_assert_eq!(appended.insert(seq), whole.insert(seq));
            }
            prop_assert_eq!(appended.unique(), whole.unique());
            prop_assert_eq!(appended.duplicated(), whole.duplicated());
            prop_assert_eq!(appended.reordered(), whole.reordered());
            prop_assert_eq!(appended.disorder_figures(), whole.disorder_figures());
            prop_assert_eq!((appended.min(), appended.max()), (whole.min(), whole.max()));
            prop_assert!(appended.runs().eq(whole.runs()));
        }
    }

    #[test]
    fn disorder_agrees_with_its_definition(seqs in arrivals()) {
        let tracker = tracker(&seqs);
        let mut want = Disorder::default();
        for (i, seq) in seqs.iter().enumerate() {
            let before = &seqs[..i];
            if before.contains(seq) {
                continue;
            }
            match before.iter().position(|earlier| earlier > seq) {
                None => want.in_order += 1,
                Some(j) => {
                    want.extent_sum += (i - j) as u64;
                    want.extent_max = want.extent_max.max((i - j) as u64);
                    want.free_runs += u64::from(want.in_order > 0);
                    want.free_packets += want.in_order;
                    want.in_order = 0;
                }
            }
        }
        prop_assert_eq!(*tracker.disorder_figures(), want);
    }
}

#[test]
fn arrivals_are_named() {
    let mut tracker = SeqTracker::new();
    for (seq, want) in [
        (2, Arrival::Ahead { skipped: 2 }),
        (3, Arrival::Ahead { skipped: 0 }),
        (0, Arrival::Late),
        (3, Arrival::Duplicate),
        (7, Arrival::Ahead { skipped: 3 }),
        (u64::MAX, Arrival::Ahead { skipped: u64::MAX - 8 }),
        (u64::MAX, Arrival::Duplicate),
    ] {
        assert_eq!(tracker.insert(seq), want, "seq {seq}");
    }
}

#[test]
fn nothing_is_lost_of_nothing() {
    let none = Loss { at_end: Some(0), ..Loss::default() };
    for got in [tracker(&[]), tracker(&[1])] {
        assert_eq!((got.missing_of(&tracker(&[])), got.missing_before(0)), (none, none));
    }
}

#[test]
fn chunks_without_holes_keep_their_places() {
    // Numbers are kept by 512: the first and third stretch are whole, nothing is between them.
    let (first, third, far) = (0..512, 1024..1536, 1 << 40);
    let seqs: Vec<u64> = first.chain(third.rev()).chain([far]).collect();
    let mut tracked = tracker(&seqs);
    for (seq, seen) in [(0, true), (511, true), (512, false), (700, false), (1023, false)] {
        assert_eq!(tracked.contains(seq), seen, "{seq}");
    }
    for seq in [0, 300, 511, 1024, 1535, far] {
        assert_eq!(tracked.insert(seq), Arrival::Duplicate, "{seq}");
    }
    // The second one comes late, backwards, then the fourth.
    for seq in (512..1024).rev().chain((1536..2048).rev()) {
        assert_eq!(tracked.insert(seq), Arrival::Late, "{seq}");
    }
    let runs: Vec<_> = tracked.runs().collect();
    assert_eq!(runs, [Run { first: 0, last: 2047 }, Run { first: far, last: far }]);
    assert!((0..2048).all(|seq| tracked.contains(seq)) && !tracked.contains(2048));
    assert_eq!((tracked.unique(), tracked.duplicated()), (2049, 6));
}

#[test]
fn stretches_end_where_they_end() {
    // A stretch over many chunks that ends within the 512th one.
    let last = 511 * 512 + 5;
    let tracked = tracker(&(0..=last).chain([1 << 40]).collect::<Vec<_>>());
    assert_eq!((tracked.contains(last), tracked.contains(last + 1)), (true, false));
    let far = (600 * 512 + 3, 602 * 512 + 5);
    for (first, last) in [(0, 511), (0, 1023), (512, 1535), (513, 1534), (5, 1536), (7, 1024), far]
    {
        let tracked = tracker(&(first..=last).chain([1 << 40]).collect::<Vec<_>>());
        assert_eq!(tracked.runs().next(), Some(Run { first, last }));
        assert_eq!(tracked.missing_before(last + 2).lost, first + 1, "{first} to {last}");
    }
}

#[test]
fn losses_of_two_flows_are_added() {
    let loss = |k: u64, longest| Loss {
        lost: k,
        bursts: 2 * k,
        longest,
        from_good: 3 * k,
        good_to_bad: 4 * k,
        from_bad: 5 * k,
        bad_to_good: 6 * k,
        at_end: None,
    };
    let mut sum = loss(10, 4);
    sum.add(&loss(1, 7));
    assert_eq!(sum, loss(11, 7));
    sum.add(&loss(2, 3));
    assert_eq!(sum, loss(13, 7));
}
