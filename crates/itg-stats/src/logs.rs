//! Logs as they were given: their notes, their blocks of records (neither copied nor, in a compacted
//! log, decoded before they are used) and their damage.

use std::collections::BTreeMap;
use std::ops::Range;

use itg_core::flow::Meter;
use itg_record::{
    Candidate, Cause, Checked, ClockPair, ClockProbe, FlowEnd, FlowInfo, Item, Kind, LogEnd,
    LogInfo, LogReader, Note, PackedRecords, Record, Side, Survey, TcpSample,
};
use serde_json::{Value, json};

use crate::exec::{Executor, collect};
use crate::report::LogDamage;

/// Bytes that one task checks.
const CHECK_BYTES: usize = 4 << 20;

/// Bytes that come into memory and leave it at once.
const STRETCH: usize = 2 << 20;

/// Bytes that are no log, or no further one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// A file without bytes.
    #[error("{name}: the file is empty: expected a log of ITG")]
    Empty {
        /// Name of the file.
        name: String,
    },
    /// A file without any good block.
    #[error("{name}: not a log of ITG: no good block in {len} bytes ({reason})")]
    NotALog {
        /// Name of the file.
        name: String,
        /// Its length in bytes.
        len: usize,
        /// What is wrong at its start.
        reason: String,
    },
    /// The same bytes under two names.
    #[error("{name}: the same log as {first}: give each log once")]
    Twice {
        /// Name of the file.
        name: String,
        /// Name under which it was given before.
        first: String,
    },
}

/// One log. A file usually holds one, but logs may have been put together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log<'a> {
    pub(crate) name: String,
    /// The whole file.
    pub(crate) file: &'a [u8],
    pub(crate) info: Option<LogInfo>,
    pub(crate) flows: BTreeMap<u32, FlowInfo>,
    pub(crate) ends: BTreeMap<u32, FlowEnd>,
    pub(crate) clock: Option<ClockPair>,
    pub(crate) probes: Vec<ClockProbe>,
    /// What the kernel said of TCP connections, by the index of their flow.
    pub(crate) tcp: BTreeMap<u32, Vec<TcpSample>>,
    pub(crate) end: Option<LogEnd>,
    /// In the order of the numbers of their blocks.
    pub(crate) blocks: Vec<PackedRecords<'a>>,
    numbers: Vec<u32>,
}

/// All logs of one analysis.
#[derive(Clone, Debug, Default)]
pub(crate) struct Logs<'a> {
    files: Vec<(String, &'a [u8])>,
    pub(crate) logs: Vec<Log<'a>>,
    pub(crate) damage: Vec<LogDamage>,
    /// What is no damage: logs without an end, blocks without theirs at the end of a file, and blocks
    /// that stood out of order.
    pub(crate) not_closed: Vec<LogDamage>,
}

/// A flow at one side: one object of the report.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) flow: u32,
    pub(crate) run: String,
    pub(crate) side: Side,
}

impl Key {
    /// The same flow at the other side.
    pub(crate) fn other(&self) -> Self {
        let side = match self.side {
            Side::Sender => Side::Receiver,
            Side::Receiver => Side::Sender,
        };
        Self { side, ..self.clone() }
    }
}

impl<'a> Logs<'a> {
    /// Reads a file: notes, places of the records, damage.
    pub(crate) fn add(
        &mut self,
        bytes: &'a [u8],
        name: &str,
        executor: &dyn Executor,
    ) -> Result<(), LogError> {
        let name = name.to_owned();
        if bytes.is_empty() {
            return Err(LogError::Empty { name });
        }
        if let Some((first, _)) = self.files.iter().find(|(_, seen)| *seen == bytes) {
            return Err(LogError::Twice { name, first: first.clone() });
        }
        let mut logs: BTreeMap<u32, Log<'a>> = BTreeMap::new();
        let (mut damage, mut not_closed) = (Vec::new(), Vec::new());
        let mut from = 0;
        for item in LogReader::with_checked(bytes, check(bytes, executor)) {
            match item {
                Item::Note { log, note, .. } => logs.entry(log).or_default().note(note),
                Item::Records { log, records, block_no, offset } => {
                    let to = usize::try_from(offset).unwrap_or(bytes.len());
                    if to.saturating_sub(from) > CHECK_BYTES {
                        executor.leaving(&bytes[from..to]);
                        from = to;
                    }
                    let log = logs.entry(log).or_default();
                    log.blocks.push(records.packed());
                    log.numbers.push(block_no);
                }
                Item::Damage(found) => {
                    let list = match found.cause {
                        Cause::Damaged => &mut damage,
                        Cause::NotClosed | Cause::OutOfOrder => &mut not_closed,
                    };
                    list.push(LogDamage {
                        log: name.clone(),
                        offset: found.offset,
                        len: found.len,
                        reason: found.reason,
                    });
                }
            }
        }
        if logs.is_empty() {
            damage.append(&mut not_closed);
            let reason = damage.swap_remove(0).reason;
            return Err(LogError::NotALog { name, len: bytes.len(), reason });
        }
        self.damage.append(&mut damage);
        self.not_closed.append(&mut not_closed);
        let whole = |log: Log<'a>| Log { name: name.clone(), file: bytes, ..log.sorted() };
        self.logs.extend(logs.into_values().map(whole));
        self.files.push((name, bytes));
        Ok(())
    }
}

/// Checks the record blocks of a file, some at a time.
fn check(bytes: &[u8], executor: &dyn Executor) -> Vec<Checked> {
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    let mut from = 0;
    for candidate in Survey::new(bytes) {
        let (start, _) = candidate.place();
        match groups.last_mut() {
            Some(group) if start - from < CHECK_BYTES => group.push(candidate),
            _ => {
                // The survey has touched every header on its way.
                executor.leaving(&bytes[from..start]);
                from = start;
                groups.push(vec![candidate]);
            }
        }
    }
    executor.expect(bytes.len() as u64);
    let checked = collect(executor, groups.len(), |number| {
        let group = &groups[number];
        let (Some(first), Some(last)) = (group.first(), group.last()) else { return Vec::new() };
        let (last, len) = last.place();
        let all = &bytes[first.place().0..last + len];
        executor.coming(all);
        let good = group.iter().filter_map(|candidate| candidate.check(bytes)).collect();
        executor.leaving(all);
        executor.passed(all);
        good
    });
    checked.concat()
}

impl<'a> Log<'a> {
    /// Puts blocks that overtook each other on their way to the file into their order.
    fn sorted(mut self) -> Self {
        if !self.numbers.is_sorted() {
            let mut blocks: Vec<_> = self.numbers.into_iter().zip(self.blocks).collect();
            blocks.sort_by_key(|(number, _)| *number);
            (self.numbers, self.blocks) = blocks.into_iter().unzip();
        }
        self
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Log(info) => self.info = Some(info),
            Note::Flow(info) => {
                self.flows.insert(info.index, info);
            }
            Note::FlowEnd(end) => {
                self.ends.insert(end.index, end);
            }
            Note::Clock(clock) => self.clock = Some(clock),
            Note::Probe(probe) => self.probes.push(probe),
            Note::Tcp(sample) => self.tcp.entry(sample.index).or_default().push(sample),
            Note::End(end) => self.end = Some(end),
        }
    }

    /// The records, block by block.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.blocks.iter().flat_map(PackedRecords::records)
    }

    /// Blocks, by their places in the list, in stretches that lie side by side in the file, with the bytes
    /// of each stretch: at most [`STRETCH`] unless it is one block.
    pub(crate) fn stretches(&self, blocks: Range<usize>) -> Vec<(Range<usize>, &'a [u8])> {
        let start = self.file.as_ptr().addr();
        let mut list: Vec<(Range<usize>, Range<usize>)> = Vec::new();
        for at in blocks {
            let bytes = self.blocks[at].bytes();
            let from = bytes.as_ptr().addr() - start;
            let to = from + bytes.len();
            match list.last_mut() {
                Some((places, whole)) if from >= whole.end && to - whole.start <= STRETCH => {
                    (places.end, whole.end) = (at + 1, to);
                }
                _ => list.push((at..at + 1, from..to)),
            }
        }
        list.into_iter().map(|(places, bytes)| (places, &self.file[bytes])).collect()
    }

    pub(crate) fn record_count(&self) -> u64 {
        self.blocks.iter().map(|block| block.len() as u64).sum()
    }

    /// The side of the log; where the note is lost, that of its first record.
    pub(crate) fn side(&self) -> Side {
        let said = self.info.as_ref().map(|info| info.side);
        let seen = || match self.records().next().map(|record| record.kind) {
            Some(Kind::Sent | Kind::Echoed) => Side::Sender,
            Some(Kind::Received) | None => Side::Receiver,
        };
        said.unwrap_or_else(seen)
    }

    /// What a flow index of this log stands for. Where its description is lost, the index itself.
    pub(crate) fn key(&self, index: u32, side: Side) -> Key {
        match self.flows.get(&index) {
            Some(info) => Key { flow: info.flow, run: info.run.clone(), side },
            None => {
                let run = self.info.as_ref().map_or_else(String::new, |info| info.run.clone());
                Key { flow: index, run, side }
            }
        }
    }

    /// What the flow with this index measures.
    pub(crate) fn meter(&self, index: u32) -> Meter {
        self.flows.get(&index).map_or(Meter::Owd, |info| info.spec.meter)
    }

    /// How late 99 % of the packets may be, as the sender declared.
    pub(crate) fn declared_p99_ns(&self) -> Option<u64> {
        self.info.as_ref()?.settings.get("pacing_max_error_p99_ns")?.parse().ok()
    }

    /// What the manifest says about this log.
    pub(crate) fn manifest(&self) -> Value {
        let mut entry = json!({
            "name": self.name,
            "side": side_name(self.side()),
            "records": self.record_count(),
            "complete": self.end.is_some(),
            "lost_records": self.end.map(|end| end.lost_records),
            "clock_synchronised": self.clock.and_then(|clock| clock.synchronised),
            "clock_max_error_ns": self.clock.and_then(|clock| clock.max_error_ns),
        });
        if let Some(info) = &self.info {
            let known = json!({
                "program": info.program,
                "version": info.version,
                "host": info.host,
                "os": info.os,
                "boot_id": info.boot_id,
                "pid": info.pid,
                "started_unix_ns": info.started_unix_ns,
                "run": info.run,
                "seed": info.seed,
                "settings": info.settings,
            });
            if let (Value::Object(entry), Value::Object(mut known)) = (&mut entry, known) {
                entry.append(&mut known);
            }
        }
        entry
    }
}

/// The word for a side in reports.
pub(crate) const fn side_name(side: Side) -> &'static str {
    match side {
        Side::Sender => "sender",
        Side::Receiver => "receiver",
    }
}

/// The word for a meter in reports.
pub(crate) const fn meter_name(meter: Meter) -> &'static str {
    match meter {
        Meter::Owd => "owd",
        Meter::Rtt => "rtt",
    }
}
