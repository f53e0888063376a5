//! One line a packet, joined over the logs of both sides on (run, flow, sequence number).
//!
//! Unlike the metrics this keeps every packet in memory: sort and merge, n log n. Each arrival is
//! one line (a duplicate is a second one); a packet that never arrived has a line of its own. In a
//! flow that measures round trips the arrivals are the replies, when the sender's log is given.

use std::collections::BTreeMap;

use itg_core::flow::Meter;
use itg_record::{Kind, Record, flag};
use serde::Serialize;

use crate::logs::{Key, Log};

/// What is known of one packet. Times but `planned_ns` are Unix nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct PacketLine {
    /// Number of the flow.
    pub flow: u32,
    /// Sequence number, from 0.
    pub seq: u64,
    /// Size in bytes.
    pub size_bytes: u32,
    /// Planned, from the start of the flow; as the sender's log says.
    pub planned_ns: Option<u64>,
    /// Given to the kernel; as the sender's log says, else as the packet says.
    pub sent_ns: Option<u64>,
    /// Arrived.
    pub arrived_ns: Option<u64>,
    /// Read by the program that received it.
    pub read_ns: Option<u64>,
}

/// A flow of a run, whichever side.
type Flow = (u32, String);

#[derive(Default)]
struct Sides {
    sent: Vec<Record>,
    received: Vec<Record>,
    echoed: Vec<Record>,
    round_trip: bool,
}

/// The lines of all packets, by flow, run and sequence number, then in order of arrival.
pub(crate) fn join(logs: &[Log<'_>], wants: impl Fn(&Key) -> bool) -> Vec<PacketLine> {
    let mut flows: BTreeMap<Flow, Sides> = BTreeMap::new();
    for log in logs {
        let side = log.side();
        let mut records = log.records().peekable();
        while let Some(index) = records.peek().map(|record| record.flow) {
            let key = log.key(index, side);
            let mut sides = None;
            if wants(&key) {
                let found = flows.entry((key.flow, key.run)).or_default();
                found.round_trip |= log.meter(index) == Meter::Rtt;
                sides = Some(found);
            }
            while let Some(record) = records.next_if(|record| record.flow == index) {
                let Some(sides) = &mut sides else { continue };
                match record.kind {
                    Kind::Sent => sides.sent.push(record),
                    Kind::Received => sides.received.push(record),
                    Kind::Echoed => sides.echoed.push(record),
                }
            }
        }
    }
    let mut lines = Vec::new();
    for ((flow, _), sides) in flows {
        sides.lines(flow, &mut lines);
    }
    lines
}

impl Sides {
    fn lines(mut self, flow: u32, lines: &mut Vec<PacketLine>) {
        let replies = self.round_trip && !self.sent.is_empty() || !self.echoed.is_empty();
        let mut arrived = if replies { self.echoed } else { self.received };
        arrived.sort_by_key(|record| (record.seq, record.b));
        self.sent.sort_by_key(|record| (record.seq, record.b));
        let mut arrived = arrived.into_iter().peekable();
        for sent in self.sent {
            while let Some(stray) = arrived.next_if(|record| record.seq < sent.seq) {
                lines.push(PacketLine::arrival(flow, &stray));
            }
            let line = PacketLine::departure(flow, &sent);
            let before = lines.len();
            while let Some(record) = arrived.next_if(|record| record.seq == sent.seq) {
                let arrival = PacketLine::arrival(flow, &record);
                let PacketLine { planned_ns, sent_ns, .. } = line;
                lines.push(PacketLine { planned_ns, sent_ns, ..arrival });
            }
            if lines.len() == before {
                lines.push(line);
            }
        }
        lines.extend(arrived.map(|record| PacketLine::arrival(flow, &record)));
    }
}

impl PacketLine {
    fn departure(flow: u32, record: &Record) -> Self {
        Self {
            flow,
            seq: record.seq,
            size_bytes: record.size,
            planned_ns: Some(record.a),
            sent_ns: Some(record.b),
            arrived_ns: None,
            read_ns: None,
        }
    }

    fn arrival(flow: u32, record: &Record) -> Self {
        let read = record.b.checked_add(u64::from(record.delta));
        Self {
            flow,
            seq: record.seq,
            size_bytes: record.size,
            planned_ns: None,
            sent_ns: (record.a != 0).then_some(record.a),
            arrived_ns: Some(record.b),
            read_ns: read.filter(|_| record.flags & flag::DELTA_SATURATED == 0),
        }
    }
}
