//! Flows at their sides, when their records have been added up.

use itg_record::{Departures, FlowInfo, Side, TcpSample};

use super::owners::Owners;
use crate::logs::Key;
use crate::stats::FlowStats;

/// A flow at one side; what its logs say of it is borrowed.
pub(super) struct Object<'l> {
    pub(super) info: Option<&'l FlowInfo>,
    /// Owners of the flow: every node that sent it for some time.
    pub(super) owners: Owners<'l>,
    /// Of each connection, what the kernel said of it.
    pub(super) tcp: Vec<Vec<TcpSample>>,
    /// Of each owner, when sampled packets left, with the start of the flow on its clock.
    pub(super) departures: Vec<(Option<u64>, Vec<Departures>)>,
    /// True if the kernel kept the times of its packets.
    pub(super) held: bool,
    pub(super) stats: Box<FlowStats>,
    pub(super) notices: Vec<String>,
    /// True if its socket dropped packets while other flows came to it.
    pub(super) shares_drops: bool,
}

impl Object<'_> {
    /// Returns true if the total counts this side of the flow; the other one is `peer`.
    pub(super) fn counts(&self, peer: Option<&Self>) -> bool {
        self.is_primary() || peer.is_none()
    }
}

/// All of them, in the order of their keys until they are put into that of the report.
pub(super) type Objects<'l> = Vec<(Key, Object<'l>)>;

/// The object with a key, in the order of keys.
pub(super) fn find<'o, 'l>(objects: &'o mut Objects<'l>, key: &Key) -> Option<&'o mut Object<'l>> {
    let place = objects.binary_search_by(|(at, _)| at.cmp(key)).ok()?;
    Some(&mut objects[place].1)
}

/// Puts objects in the order of the report: by flow and run; of two sides of a flow, the one that the total counts
/// comes first.
pub(super) fn put_in_order(objects: &mut Objects<'_>) {
    objects.sort_by(|(a, one), (b, other)| {
        let primary = other.is_primary().cmp(&one.is_primary());
        (a.flow, &a.run).cmp(&(b.flow, &b.run)).then(primary)
    });
}

/// The same flow at its other side, which stands beside it in either order.
pub(super) fn peer<'o, 'l>(all: &'o [(Key, Object<'l>)], place: usize) -> Option<&'o Object<'l>> {
    let beside = [place.checked_sub(1), place.checked_add(1)];
    let beside = beside.into_iter().flatten().filter_map(|at| all.get(at));
    beside
        .into_iter()
        .find(|(key, _)| key.is_other_side_of(&all[place].0))
        .map(|(_, object)| object)
}

/// Number of objects to report together: some, and the other side of the last one.
pub(super) fn together(all: &[(Key, Object<'_>)], some: usize) -> usize {
    let more = some.checked_sub(1).is_some_and(|last| {
        all.get(some).is_some_and(|(key, _)| key.is_other_side_of(&all[last].0))
    });
    some.min(all.len()) + usize::from(more)
}

/// Returns true if there are objects of both sides.
pub(super) fn are_of_both_sides(all: &[(Key, Object<'_>)]) -> bool {
    [Side::Sender, Side::Receiver].iter().all(|side| all.iter().any(|(key, _)| key.side == *side))
}
