//! Observers of each member: a function of the view.
//!
//! Each member is watched by its parent and its children in the tree, and by `k` members that
//! follow from the digest of the view: with offsets drawn from it, the member of rank r watches
//! those of ranks r + offset. In groups of fewer than eight all members watch each other.
//!
//! Where heartbeats are to be few, a member sends them to one observer alone, its keeper: that at the first offset.

use std::collections::BTreeSet;

use itg_process::Slot;

use crate::member::{Member, View};

/// Groups below this watch each other completely.
const SMALL: u32 = 8;

/// Processes to watch, and those that watch this one: a call of the membership to the layer
/// `detector`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watch {
    /// Processes to watch, and whether they have been members for longer than this view. One that
    /// has just joined is not suspected before it has sent something, or for twice the time-out.
    pub targets: Vec<(Slot, bool)>,
    /// Processes that watch this one.
    pub observers: Vec<Slot>,
    /// Processes that may be asked to probe.
    pub helpers: Vec<Slot>,
    /// Target whose heartbeats this process awaits where each has one keeper only.
    pub ward: Option<Slot>,
    /// Observer that awaits those of this process.
    pub keeper: Option<Slot>,
    /// The view: a keeper tells all its members that it misses its ward.
    pub view: Option<View>,
}

/// Longest round trip of late to a process that is watched, in nanoseconds: a call of the layer `detector` to those
/// whose time-outs follow it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrip(pub u64);

/// Distances in rank between watchers and watched: `k` different ones.
fn offsets(view: &View, k: u32) -> Vec<u32> {
    let n = view.len();
    let mut found = Vec::new();
    let mut word = view.digest();
    while found.len() < k.min(n - 1) as usize {
        word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23) ^ view.no();
        let offset = 1 + u32::try_from(word % u64::from(n - 1)).unwrap_or(0);
        if found.contains(&offset) {
            word = word.wrapping_add(1);
        } else {
            found.push(offset);
        }
    }
    found
}

/// The members at a distance in rank, ahead or behind.
fn around(view: &View, slot: Slot, k: u32, ahead: bool) -> BTreeSet<Slot> {
    let n = view.len();
    if n < SMALL {
        return view.slots().filter(|other| *other != slot).collect();
    }
    let rank = view.roster().rank(slot);
    let at = |offset: u32| (rank + if ahead { offset } else { n - offset }) % n;
    let mut found: BTreeSet<_> =
        offsets(view, k).into_iter().filter_map(|o| view.roster().of_rank(at(o))).collect();
    found.extend(view.tree().parent(slot));
    found.extend(view.tree().children(slot));
    found
}

/// The observer at the first distance in rank, or the target there: a ring, or several.
fn first_around(view: &View, slot: Slot, k: u32, ahead: bool) -> Option<Slot> {
    let n = view.len();
    let offset = if n < SMALL { (n > 1).then_some(1) } else { offsets(view, k).first().copied() };
    let rank = view.roster().rank(slot);
    offset.and_then(|o| view.roster().of_rank((rank + if ahead { o } else { n - o }) % n))
}

/// Members that watch the member on a slot.
#[must_use]
pub fn observers(view: &View, slot: Slot, k: u32) -> BTreeSet<Slot> {
    around(view, slot, k, false)
}

/// Numbers of reports that make a member go, and that make others wait: `h` and `l`.
#[must_use]
pub fn marks(view: &View, member: Member, k: u32) -> (usize, usize) {
    let n = view.len() as usize;
    if view.len() < SMALL {
        // A majority of the others; of two, the other one.
        return ((n - 1) / 2 + 1, 1);
    }
    let watchers = observers(view, member.slot, k).len();
    (2.max((2 * watchers).div_ceil(3)), 2)
}

/// Task of a member's failure detector in this view.
#[must_use]
pub fn watch(view: &View, me: Member, k: u32) -> Watch {
    let settled = |slot: Slot| view.roster().entered(slot).is_some_and(|no| no < view.no());
    let targets: BTreeSet<_> = around(view, me.slot, k, true);
    let observers: Vec<_> = observers(view, me.slot, k).into_iter().collect();
    let helpers: BTreeSet<_> = targets.iter().chain(&observers).copied().collect();
    Watch {
        targets: targets.into_iter().map(|slot| (slot, view.no() == 1 || settled(slot))).collect(),
        observers,
        helpers: helpers.into_iter().collect(),
        ward: first_around(view, me.slot, k, true),
        keeper: first_around(view, me.slot, k, false),
        view: Some(view.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::member::Rules;

    #[test]
    fn watchers_and_watched_agree() {
        for n in [1, 2, 5, 7, 8, 9, 40, 500] {
            let view = View::first(n, Rules::default());
            for slot in view.slots() {
                for other in observers(&view, slot, 3) {
                    assert!(around(&view, other, 3, true).contains(&slot), "{other} of {slot}");
                }
                let member = view.at(slot).expect("a member");
                let (h, l) = marks(&view, member, 3);
                let watchers = observers(&view, slot, 3).len();
                assert!(n == 1 || (h <= watchers && l <= h), "{h} {l} of {watchers}, n {n}");
                let Watch { targets, observers, ward, keeper, .. } = watch(&view, member, 3);
                assert_eq!((ward.is_some(), keeper.is_some()), (n > 1, n > 1), "{slot}, n {n}");
                assert!(ward.is_none_or(|ward| targets.iter().any(|(target, _)| *target == ward)));
                assert!(keeper.is_none_or(|keeper| observers.contains(&keeper)));
                let back = ward.and_then(|ward| watch(&view, view.at(ward)?, 3).keeper);
                assert!(n == 1 || back == Some(slot), "the ward of {slot} has another keeper");
            }
        }
    }
}
