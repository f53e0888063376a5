//! Rosters as runs of slots against one entry a slot.

use std::collections::BTreeMap;

use itg_members::{Changes, Member, Roster, Run};
use itg_process::Slot;
use proptest::prelude::*;

type Twin = BTreeMap<u32, (u64, u64)>;

/// The obvious way: one entry a slot.
fn apply(twin: &Twin, changes: &Changes, no: u64) -> Twin {
    let mut twin = twin.clone();
    for gone in changes.removed() {
        if twin.get(&gone.slot.0).is_some_and(|(inc, _)| *inc == gone.incarnation) {
            twin.remove(&gone.slot.0);
        }
    }
    for new in changes.added() {
        if twin.get(&new.slot.0).is_none_or(|(inc, _)| *inc < new.incarnation) {
            twin.insert(new.slot.0, (new.incarnation, no));
        }
    }
    twin
}

fn some() -> impl Strategy<Value = Vec<Member>> {
    prop::collection::vec((0u32..40, 1u64..4), 0..30)
        .prop_map(|list| list.into_iter().map(|(s, i)| Member::new(Slot(s), i)).collect())
}

proptest! {
    #[test]
    fn runs_agree_with_one_entry_a_slot(n in 0u32..40, steps in prop::collection::vec((some(), some()), 0..8)) {
        let mut roster = Roster::first(n);
        let mut twin: Twin = (0..n).map(|slot| (slot, (1, 1))).collect();
        for (no, (removed, added)) in (2..).zip(steps) {
            let changes = Changes::new(removed, added);
            prop_assert!(changes.is_sound());
            (roster, twin) = (roster.with(&changes, no), apply(&twin, &changes, no));
            prop_assert!(roster.is_sound());
            let got: Twin = roster
                .members()
                .map(|m| (m.slot.0, (m.incarnation, roster.entered(m.slot).unwrap())))
                .collect();
            prop_assert_eq!(&got, &twin);
            prop_assert_eq!(roster.len() as usize, twin.len());
            prop_assert_eq!(roster.capacity(), twin.last_key_value().map_or(0, |(slot, _)| slot + 1));
            for slot in 0..45 {
                let rank = twin.range(..slot).count();
                prop_assert_eq!(roster.rank(Slot(slot)) as usize, rank);
                prop_assert_eq!(roster.at(Slot(slot)).map(|m| m.incarnation), twin.get(&slot).map(|e| e.0));
                prop_assert_eq!(roster.any_in(slot..slot + 3), twin.range(slot..slot + 3).next().is_some());
                let of_rank = twin.keys().nth(slot as usize).map(|s| Slot(*s));
                prop_assert_eq!(roster.of_rank(slot), of_rank);
            }
            let back = Roster::first(n).changes_to(&roster);
            let there = Roster::first(n).with(&back, 9);
            prop_assert!(there.members().eq(roster.members()));
            // No two neighbouring runs could be one.
            for pair in roster.runs().windows(2) {
                let one = pair[0].span.end() == pair[1].span.first
                    && pair[0].span.incarnation == pair[1].span.incarnation
                    && pair[0].entered == pair[1].entered;
                prop_assert!(!one, "{:?}", pair);
            }
        }
    }
}

#[test]
fn a_view_of_many_is_one_run() {
    let roster = Roster::first(100_000);
    assert_eq!(roster.runs().len(), 1);
    let without = roster.with(&Changes::removal([Member::new(Slot(7), 1)]), 2);
    assert_eq!((without.runs().len(), without.len()), (2, 99_999));
    assert_eq!(size_of::<Run>(), 24);
}
