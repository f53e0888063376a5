//! The figures of the summary, of each flow and of all together.
//!
//! Loss is what D-ITG makes of the sequence numbers in the order of the log: they are assumed to
//! start at 1; what is lost behind the last record is not seen, a flow of one record has no loss, and
//! duplicates hide losses. All sums are in the order of the log.

use std::collections::BTreeMap;

use super::args::{Flows, counted};
use crate::log::{Address, LogRecord};

/// Identity of a flow: number, addresses and ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FlowKey {
    /// Number.
    pub flow: u32,
    /// Source address.
    pub src: Address,
    /// Destination address.
    pub dst: Address,
    /// Source port.
    pub src_port: u32,
    /// Destination port.
    pub dst_port: u32,
}

impl FlowKey {
    /// The flow of a record.
    #[must_use]
    pub const fn of(record: &LogRecord) -> Self {
        let LogRecord { flow, src, dst, src_port, dst_port, .. } = *record;
        Self { flow, src, dst, src_port, dst_port }
    }
}

/// Delays of packets one after the other, in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    count: u64,
    sum: f64,
    squares: f64,
    last: f64,
    /// Sum of the absolute differences of successive delays.
    steps: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Delays {
    /// D-ITG starts its minimum and maximum at these.
    pub(super) const NONE: Self = Self {
        count: 0,
        sum: 0.0,
        squares: 0.0,
        last: 0.0,
        steps: 0.0,
        min: 90_000.0,
        max: -86_400.0,
    };

    fn add(&mut self, delay: f64) {
        if self.count > 0 {
            self.steps += (delay - self.last).abs();
        }
        self.count += 1;
        self.last = delay;
        self.sum += delay;
        self.squares += delay * delay;
        if delay < self.min {
            self.min = delay;
        }
        if delay > self.max {
            self.max = delay;
        }
    }

    pub(super) fn mean(&self) -> f64 {
        crate::number::quotient(self.sum, self.count as f64)
    }

    /// Mean difference of successive delays; 0 for a single one.
    pub(super) fn jitter(&self) -> f64 {
        if self.count > 1 { self.steps / (self.count - 1) as f64 } else { 0.0 }
    }

    pub(super) fn deviation(&self) -> f64 {
        let mean = self.mean();
        let variance = self.squares / self.count as f64 - mean * mean;
        if variance > 0.0 { variance.sqrt() } else { 0.0 }
    }
}

/// Losses by sequence number, in D-ITG's way and width of integers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Losses {
    pub(super) packets: u64,
    pub(super) lost: u64,
    /// Loss events; may pass below 0, as there.
    pub(super) events: u32,
    duplicates: u32,
    max_seq: u32,
}

impl Losses {
    #[allow(clippy::cast_possible_truncation, reason = "32 bits, as in D-ITG")]
    fn add(&mut self, seq: u32) {
        self.packets += 1;
        let n = self.packets;
        if n == 1 {
            self.max_seq = seq;
            return;
        }
        self.max_seq = self.max_seq.max(seq);
        if u64::from(seq) > self.lost.wrapping_add(n) {
            self.events = self.events.wrapping_add(1);
        }
        let (max_seq, duplicates) = (u64::from(self.max_seq), u64::from(self.duplicates));
        if max_seq < n.wrapping_sub(duplicates) {
            self.duplicates = n.wrapping_sub(max_seq) as u32;
            self.lost = 0;
        } else {
            let lost = max_seq.wrapping_sub(n).wrapping_add(duplicates);
            if lost < self.lost {
                self.events = self.events.wrapping_sub(1);
            }
            self.lost = lost;
        }
    }
}

/// The figures of one flow.
#[derive(Clone, Debug)]
pub struct FlowFigures {
    /// Identity of the flow.
    pub key: FlowKey,
    pub(super) delays: Delays,
    pub(super) losses: Losses,
    pub(super) first_rx: f64,
    pub(super) last_rx: f64,
    pub(super) bytes: u64,
}

/// The figures of a log.
#[derive(Clone, Debug)]
pub struct Figures {
    /// Flows in the order in which they appear.
    pub flows: Vec<FlowFigures>,
    /// Records that are no records, or of flows that are left out.
    pub error_lines: u64,
    /// Delays of all records in the order of the log, whatever their flow.
    pub(super) delays: Delays,
    /// Earliest arrival; 90000 when there is none.
    pub(super) first_rx: f64,
}

impl Figures {
    /// Reads a log once.
    pub fn of(records: impl Iterator<Item = LogRecord>, flows: Flows) -> Self {
        let mut all =
            Self { flows: Vec::new(), error_lines: 0, delays: Delays::NONE, first_rx: 90_000.0 };
        let mut places: BTreeMap<FlowKey, usize> = BTreeMap::new();
        let mut last: Option<(FlowKey, usize)> = None;
        for record in records {
            let Some(record) = counted(record, flows) else {
                all.error_lines += 1;
                continue;
            };
            let key = FlowKey::of(&record);
            let place = match last {
                Some((known, place)) if known == key => place,
                _ => *places.entry(key).or_insert_with(|| {
                    all.flows.push(FlowFigures::new(key));
                    all.flows.len() - 1
                }),
            };
            last = Some((key, place));
            all.flows[place].add(&record);
            all.delays.add(record.delay());
            let rx = record.rx.seconds();
            if rx < all.first_rx {
                all.first_rx = rx;
            }
        }
        all
    }

    /// Latest arrival, at least 0.
    pub(super) fn last_rx(&self) -> f64 {
        self.flows
            .iter()
            .fold(0.0, |last, flow| if flow.last_rx > last { flow.last_rx } else { last })
    }

    /// Returns true if some delay is below minus half a day, or a flow took longer than half a day:
    /// the log passes midnight, most likely.
    pub(super) fn looks_past_midnight(&self) -> bool {
        let long = |flow: &FlowFigures| flow.last_rx - flow.first_rx > 43_200.0;
        self.delays.min < -43_200.0 || (!self.flows.is_empty() && self.flows.iter().any(long))
    }
}

impl FlowFigures {
    const fn new(key: FlowKey) -> Self {
        let losses = Losses { packets: 0, lost: 0, events: 0, duplicates: 0, max_seq: 0 };
        Self { key, delays: Delays::NONE, losses, first_rx: 0.0, last_rx: 0.0, bytes: 0 }
    }

    fn add(&mut self, record: &LogRecord) {
        let rx = record.rx.seconds();
        if self.losses.packets == 0 {
            (self.first_rx, self.last_rx) = (rx, rx);
        }
        if rx < self.first_rx {
            self.first_rx = rx;
        }
        if rx > self.last_rx {
            self.last_rx = rx;
        }
        self.delays.add(record.delay());
        self.losses.add(record.seq);
        self.bytes += u64::from(record.size);
    }
}
