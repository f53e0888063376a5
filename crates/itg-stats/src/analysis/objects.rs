//! Flows at their sides, while their records are added up.

use std::collections::{BTreeMap, BTreeSet};

use itg_record::{Departures, FlowInfo, Side, TcpSample};

use super::owners::Owners;
use crate::logs::Key;
use crate::stats::FlowStats;

/// A flow at one side, while its records are added up.
pub(super) struct Object {
    pub(super) info: Option<FlowInfo>,
    /// Owners of the flow: every node that sent it for some time.
    pub(super) owners: Owners,
    /// Of each connection, what the kernel said of it.
    pub(super) tcp: Vec<Vec<TcpSample>>,
    /// Of each owner, when sampled packets left, with the start of the flow on its clock.
    pub(super) departures: Vec<(Option<u64>, Vec<Departures>)>,
    /// True if the kernel kept the times of its packets.
    pub(super) held: bool,
    pub(super) stats: FlowStats,
    pub(super) notices: Vec<String>,
    /// True if the records of all owners have been added, one by one.
    pub(super) whole: bool,
    /// True if its socket dropped packets while other flows came to it.
    pub(super) shares_drops: bool,
}

/// All of them, found by their key.
#[derive(Default)]
pub(super) struct Objects {
    pub(super) list: Vec<Object>,
    pub(super) places: BTreeMap<Key, usize>,
}

impl Objects {
    pub(super) fn get(&self, key: &Key) -> Option<&Object> {
        self.places.get(key).map(|&place| &self.list[place])
    }

    /// By flow and run; of two sides of a flow, the one that the total counts comes first.
    pub(super) fn in_order(&self) -> Vec<(&Key, &Object)> {
        let mut all: Vec<_> =
            self.places.iter().map(|(key, &place)| (key, &self.list[place])).collect();
        all.sort_by_key(|(key, object)| (key.flow, &key.run, !object.is_primary()));
        all
    }

    /// Flows whose plan is computed again from what arrived: those at receivers whose sender, as far as
    /// given, is as asked for.
    pub(super) fn planned(
        &self,
        sender: impl Fn(Option<&Object>) -> bool,
    ) -> BTreeSet<(usize, u32)> {
        let receivers = self.places.iter().filter(|(key, _)| key.side == Side::Receiver);
        let asked = receivers.filter(|(key, _)| sender(self.get(&key.other())));
        asked.flat_map(|(_, &place)| self.list[place].owners.sources()).collect()
    }

    /// Returns true if the total counts this side of the flow.
    pub(super) fn counts(&self, key: &Key, object: &Object) -> bool {
        object.is_primary() || self.get(&key.other()).is_none()
    }
}
