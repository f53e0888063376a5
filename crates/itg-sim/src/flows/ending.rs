//! Ends of flows, and of the simulation.

use std::io;

use itg_core::end::EndCause;
use itg_record::{FlowEnd, Note};

use super::{MOST_COUNTED, Run, Summary};

impl Run<'_> {
    pub(super) fn end(&mut self, at: usize) -> io::Result<()> {
        let now = self.now;
        let flow = &mut self.flows[at];
        if flow.ended.is_some() {
            return Ok(());
        }
        let left =
            flow.blocked.as_ref().map(|packet| packet.due_ns).or_else(|| flow.pacer.next_ns());
        let cause = match left {
            None => EndCause::ScheduleDone,
            Some(_) if now < flow.end => EndCause::SimulationOver,
            Some(due_ns) => {
                let late_ns = now.saturating_sub(flow.start).saturating_sub(due_ns);
                EndCause::TooSlow { late_ms: late_ns / 1_000_000 }
            }
        };
        let why = cause.to_string();
        flow.ended = Some(cause);
        self.open -= 1;
        // Packets that were due and did not get their turn are left out, as in real runs.
        let mut skipped = flow.pacer.skipped() + u64::from(flow.blocked.take().is_some());
        if flow.pacer.next_ns().is_some() {
            let next = usize::try_from(flow.pacer.next_seq()).unwrap_or(usize::MAX);
            let left = flow.spec.flow.schedule().skip(next).take(MOST_COUNTED);
            skipped += left.count() as u64;
        }
        let note = Note::FlowEnd(FlowEnd {
            sent_packets: Some(flow.sent.0),
            sent_bytes: Some(flow.sent.1),
            skipped_packets: Some(skipped),
            waited_packets: Some(flow.waited.1),
            refused_packets: Some(0),
            ..FlowEnd::new(flow.index, why)
        });
        self.sender.note(&note)
    }

    pub(super) fn finish(mut self) -> io::Result<Summary> {
        let mut packets = (0, 0);
        let mut retransmissions = 0;
        for at in 0..self.flows.len() {
            self.end(at)?;
            let flow = &self.flows[at];
            packets = (packets.0 + flow.sent.0, packets.1 + flow.received.0);
            if let Some(tcp) = &flow.tcp {
                retransmissions += tcp.0.retransmissions + tcp.1.retransmissions;
            }
            self.receiver.note(&Note::FlowEnd(FlowEnd {
                received_packets: Some(flow.received.0),
                received_unique: Some(flow.unique),
                received_bytes: Some(flow.received.1),
                socket_drops: Some(0),
                ..FlowEnd::new(
                    flow.index,
                    flow.ended.as_ref().map_or_else(String::new, EndCause::to_string),
                )
            }))?;
        }
        let usage = self.network.model.usage();
        self.sender.end()?;
        self.receiver.end()?;
        Ok(Summary {
            events: self.events,
            virtual_ns: self.now,
            packets,
            usage,
            dropped: self.dropped,
            retransmissions,
            logs: self.logs,
            hash: self.hash.value(),
        })
    }
}
