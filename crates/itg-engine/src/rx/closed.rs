//! Flows that have been counted: packets that still come are theirs, and too late.
//!
//! One is kept until another flow has its slot or its log is closed, and a bounded number of them. Then its end is told
//! again, with how many came.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use itg_core::flow::Proto;
use itg_core::header::{PacketHeader, PacketKey};
use itg_record::FlowEnd;
use itg_session::Arrivals;

use super::origin::{Origins, Sender};

/// Flows that are kept at most, each some kilobyte.
const MOST: usize = 1024;

/// A flow that has been counted.
pub(super) struct Closed {
    pub(super) handle: u32,
    pub(super) proto: Proto,
    /// Its number.
    pub(super) flow: u32,
    pub(super) key: Option<PacketKey>,
    pub(super) origins: Origins,
    /// Arrivals: those that it was counted with, and later ones.
    pub(super) arrivals: Arrivals,
    /// Different packets that it was counted with.
    pub(super) counted: u64,
    /// Its log, and what that was told of its end.
    pub(super) told: Option<(usize, FlowEnd)>,
}

/// Packets with successive numbers and equal sizes that name a flow: the bytes of the first, as far as they are here.
pub(super) struct Naming<'a> {
    pub(super) header: PacketHeader,
    pub(super) proto: Proto,
    pub(super) bytes: &'a [u8],
    pub(super) size: u32,
    pub(super) packets: usize,
    pub(super) from: Option<SocketAddr>,
}

/// Counted flows by their slots.
#[derive(Default)]
pub(super) struct ClosedFlows(BTreeMap<usize, Closed>);

impl ClosedFlows {
    /// Keeps a flow; returns one that is forgotten for it.
    pub(super) fn keep(&mut self, slot: usize, flow: Closed) -> Option<Closed> {
        let full = self.0.len() >= MOST;
        self.0
            .insert(slot, flow)
            .or_else(|| full.then(|| self.0.pop_first()).flatten().map(|(_, one)| one))
    }

    /// Takes packets of no flow that is open; returns true if they come from the sender of one that was.
    pub(super) fn take(&mut self, came: &Naming<'_>, allowed: &[IpAddr]) -> bool {
        let slot = (came.header.handle & 0xFFFF) as usize;
        let Some(flow) = self.0.get_mut(&slot) else { return false };
        let its = flow.handle == came.header.handle
            && flow.proto == came.proto
            && matches!(flow.origins.judge(came.from, allowed), Sender::Known | Sender::New)
            && flow.key.as_ref().is_none_or(|key| key.holds(came.bytes, came.size));
        if its {
            flow.arrivals.count(came.header.seq, came.packets, came.size);
        }
        its
    }

    /// Forgets the flow of a slot.
    pub(super) fn forget(&mut self, slot: usize) -> Option<Closed> {
        self.0.remove(&slot)
    }

    /// Forgets the flows of a log, or all of them.
    pub(super) fn forget_all(
        &mut self,
        log: Option<usize>,
    ) -> impl Iterator<Item = Closed> + use<> {
        let of_log = |flow: &Closed| flow.told.as_ref().map(|(log, _)| *log) == log;
        self.0
            .extract_if(.., |_, flow| log.is_none() || of_log(flow))
            .map(|(_, flow)| flow)
            .collect::<Vec<_>>()
            .into_iter()
    }
}

impl Closed {
    /// Different packets that came too late.
    pub(super) const fn too_late(&self) -> u64 {
        self.arrivals.unique().saturating_sub(self.counted)
    }
}
