//! Ends of flows in a sender's log: told when a flow has sent its last packet, and again when its receiver has told
//! what it counted, so that the log alone tells the loss.

use std::collections::BTreeMap;

use itg_engine::log::Producer;
use itg_record::{FlowEnd, Note};
use itg_session::FlowCounts;

/// Ends that have been told without the receiver's counts, by the place of the flow.
#[derive(Debug, Default)]
pub(super) struct FlowEnds(BTreeMap<usize, FlowEnd>);

impl FlowEnds {
    /// Tells the end of a flow.
    pub(super) fn tell(&mut self, place: usize, end: FlowEnd, notes: &mut Producer) {
        notes.note(Note::FlowEnd(end.clone()));
        self.0.insert(place, end);
    }

    /// Tells the end of a flow again, with what its receiver counted and what this host dropped meanwhile.
    pub(super) fn counted(
        &mut self,
        place: usize,
        counts: &FlowCounts,
        host_drops: Option<u64>,
        notes: &mut Producer,
    ) {
        let Some(end) = self.0.remove(&place) else { return };
        notes.note(Note::FlowEnd(FlowEnd {
            received_packets: Some(counts.packets),
            received_unique: Some(counts.unique),
            received_bytes: Some(counts.bytes),
            socket_drops: counts.socket_drops,
            checksum_drops: counts.more.checksum_drops,
            rebound: counts.more.rebound,
            corrupted_packets: counts.more.corrupted,
            host_drops,
            ..end
        }));
    }
}
