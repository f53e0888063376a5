//! Logs as they were given: their notes, their blocks of records (neither copied nor, in a compacted
//! log, decoded before they are used) and their damage.
//!
//! In a log that is whole by its headers and notes, each block is checked by the first reader of
//! its records, so that a file is gone through once. If a block turns out not to be as it was
//! written, all sums are discarded, and the files are read [strictly](Logs::strictly): block by
//! block, with an exact account.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU8, Ordering};

use itg_clocks::Reading;
use itg_core::flow::Meter;
use itg_core::rate::RateChange;
use itg_record::{
    Cause, ClockPair, ClockProbe, Departures, FlowEnd, FlowInfo, Item, Kind, LogEnd, LogInfo,
    LogReader, Note, Outline, Outlined, PackedRecords, Record, Records, Side, TcpSample,
    UncheckedRecords,
};
use serde_json::{Value, json};

use crate::exec::Executor;
use crate::promise::Promise;
use crate::report::LogDamage;

/// Bytes that a reader goes through before they leave memory.
const READ_BYTES: usize = 4 << 20;

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
        /// Fault at its start.
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

/// A block of records.
#[derive(Debug)]
pub(crate) struct Stored<'a> {
    packed: PackedRecords<'a>,
    /// Checks to do before the records are used.
    unchecked: Option<UncheckedRecords<'a>>,
    /// State of the check: [`OPEN`], [`GOOD`] or [`BAD`].
    found: AtomicU8,
}

const OPEN: u8 = 0;
const GOOD: u8 = 1;
const BAD: u8 = 2;

impl<'a> Stored<'a> {
    const fn checked(packed: PackedRecords<'a>) -> Self {
        Self { packed, unchecked: None, found: AtomicU8::new(GOOD) }
    }

    const fn unchecked(records: UncheckedRecords<'a>) -> Self {
        let packed = records.packed();
        Self { packed, unchecked: Some(records), found: AtomicU8::new(OPEN) }
    }

    /// The records, checked at the first call; none where they are not as they were written, which
    /// [`Logs::are_sound`] tells.
    pub(crate) fn records(&self) -> Records<'a> {
        // A thread that sees OPEN checks again: no order is needed.
        match (&self.unchecked, self.found.load(Ordering::Relaxed)) {
            (None, _) | (_, GOOD) => self.packed.records(),
            (Some(unchecked), OPEN) => {
                let checked = unchecked.check();
                // Another program may be writing to the file: a block that one of two checks finds
                // bad stays bad.
                let found = if checked.is_ok() { GOOD } else { BAD };
                self.found.fetch_max(found, Ordering::Relaxed);
                checked.unwrap_or_else(|_| Records::none())
            }
            _ => Records::none(),
        }
    }

    /// Bytes of the block in the file.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        self.packed.bytes()
    }

    /// Number of records.
    pub(crate) const fn len(&self) -> usize {
        self.packed.len()
    }

    fn is(&self, found: u8) -> bool {
        self.found.load(Ordering::Relaxed) == found
    }
}

/// One log. A file usually holds one, but logs may have been put together, and one that was rotated is in several.
#[derive(Debug, Default)]
pub(crate) struct Log<'a> {
    pub(crate) name: String,
    /// The whole files, with their names.
    files: Vec<(String, &'a [u8])>,
    /// Flows that began in an earlier part of the log, which is not given.
    pub(crate) headless: BTreeSet<u32>,
    pub(crate) info: Option<LogInfo>,
    /// Each lies by itself, as its end does: half of a map's nodes may be empty.
    pub(crate) flows: BTreeMap<u32, Box<FlowInfo>>,
    pub(crate) ends: BTreeMap<u32, Box<FlowEnd>>,
    pub(crate) clock: Option<ClockPair>,
    /// All looks at the clocks of the host.
    pub(crate) clocks: Vec<Reading>,
    /// By the index of a flow: the sender's last reading before the flow's description, by the monotonic clock.
    pub(crate) opened: BTreeMap<u32, u64>,
    /// The last one of each run in a probe.
    probed: BTreeMap<String, u64>,
    pub(crate) probes: Vec<ClockProbe>,
    /// Samples of the kernel's state of TCP connections, by the index of their flow.
    pub(crate) tcp: BTreeMap<u32, Vec<TcpSample>>,
    /// Departures of sampled packets, likewise.
    pub(crate) departures: BTreeMap<u32, Vec<Departures>>,
    pub(crate) end: Option<LogEnd>,
    /// In the order of the numbers of their blocks.
    pub(crate) blocks: Vec<Stored<'a>>,
    numbers: Vec<u32>,
    /// Number of the last part, where there are several.
    last_part: Option<u32>,
}

/// All logs of one analysis.
#[derive(Debug, Default)]
pub(crate) struct Logs<'a> {
    files: Vec<(String, &'a [u8])>,
    pub(crate) logs: Vec<Log<'a>>,
    pub(crate) damage: Vec<LogDamage>,
    /// Incomplete, but no damage: logs without an end, blocks without theirs at the end of a file,
    /// and blocks that stood out of order.
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

    /// Returns true if this is the same flow at the other side.
    pub(crate) fn is_other_side_of(&self, key: &Self) -> bool {
        self.flow == key.flow && self.side != key.side && self.run == key.run
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
        let again = |(_, seen): &&(String, &[u8])| is_same(seen, bytes, executor);
        if let Some((first, _)) = self.files.iter().find(again) {
            return Err(LogError::Twice { name, first: first.clone() });
        }
        match Outline::of(bytes, |part| executor.leaving(part)) {
            Some(outline) => self.outlined(outline, bytes, &name),
            None => self.read(bytes, &name, executor)?,
        }
        self.files.push((name, bytes));
        self.share_what_senders_know();
        Ok(())
    }

    /// Copies the name of a flow and the changes of its rate from the log that has them to all logs: a
    /// receiver is told of neither.
    fn share_what_senders_know(&mut self) {
        let mut known: BTreeMap<(String, u32), (Option<String>, Vec<RateChange>)> = BTreeMap::new();
        for info in self.logs.iter().flat_map(|log| log.flows.values()) {
            if info.name.is_some() || !info.spec.changes.is_empty() {
                let (name, longest) = known.entry((info.run.clone(), info.flow)).or_default();
                *name = name.take().or_else(|| info.name.clone());
                if longest.len() < info.spec.changes.len() {
                    longest.clone_from(&info.spec.changes);
                }
            }
        }
        if known.is_empty() {
            return;
        }
        for info in self.logs.iter_mut().flat_map(|log| log.flows.values_mut()) {
            if let Some((name, changes)) = known.get(&(info.run.clone(), info.flow)) {
                info.name.clone_from(name);
                info.spec.changes.clone_from(changes);
            }
        }
    }

    /// Takes a file whose blocks are checked when they are used.
    fn outlined(&mut self, outline: Outline<'a>, bytes: &'a [u8], name: &str) {
        let mut logs: BTreeMap<u32, Log<'a>> = BTreeMap::new();
        for block in outline.blocks() {
            match block {
                Outlined::Note { log, note } => logs.entry(log).or_default().note(*note),
                Outlined::Records { log, block_no, records } => {
                    let log = logs.entry(log).or_default();
                    log.blocks.push(Stored::unchecked(records));
                    log.numbers.push(block_no);
                }
            }
        }
        self.take(logs, bytes, name);
    }

    fn take(&mut self, logs: BTreeMap<u32, Log<'a>>, bytes: &'a [u8], name: &str) {
        for log in logs.into_values() {
            let files = vec![(name.to_owned(), bytes)];
            self.logs.push(Log { name: name.to_owned(), files, ..log.sorted() });
        }
        self.join_parts();
    }

    /// Puts the parts of each log together, in whatever order they were given.
    fn join_parts(&mut self) {
        if self.logs.iter().all(|log| log.part().is_none_or(|number| number == 0)) {
            return;
        }
        let mut parts = std::mem::take(&mut self.logs);
        parts.sort_by(|a, b| (a.series(), a.part()).cmp(&(b.series(), b.part())));
        for log in parts {
            match self.logs.pop() {
                Some(last) if last.goes_on_in(&log) => self.logs.push(last.followed_by(log)),
                last => self.logs.extend(last.into_iter().chain([log])),
            }
        }
    }

    /// Takes a file block by block, with an account of what is not as it was written.
    fn read(
        &mut self,
        bytes: &'a [u8],
        name: &str,
        executor: &dyn Executor,
    ) -> Result<(), LogError> {
        let mut logs: BTreeMap<u32, Log<'a>> = BTreeMap::new();
        let (mut damage, mut not_closed) = (Vec::new(), Vec::new());
        let mut from = 0;
        for item in LogReader::sparse(bytes, executor.holes(bytes)) {
            match item {
                Item::Note { log, note, .. } => logs.entry(log).or_default().note(note),
                Item::Records { log, records, block_no, offset } => {
                    let to = usize::try_from(offset).unwrap_or(bytes.len());
                    if to.saturating_sub(from) > READ_BYTES {
                        executor.leaving(&bytes[from..to]);
                        from = to;
                    }
                    let log = logs.entry(log).or_default();
                    log.blocks.push(Stored::checked(records.packed()));
                    log.numbers.push(block_no);
                }
                Item::Damage(found) => {
                    let list = match found.cause {
                        Cause::Damaged => &mut damage,
                        Cause::NotClosed | Cause::OutOfOrder => &mut not_closed,
                    };
                    list.push(LogDamage {
                        log: name.to_owned(),
                        offset: found.offset,
                        len: found.len,
                        reason: found.reason,
                    });
                }
            }
        }
        executor.leaving(&bytes[from..]);
        if logs.is_empty() {
            damage.append(&mut not_closed);
            let (name, reason) = (name.to_owned(), damage.swap_remove(0).reason);
            return Err(LogError::NotALog { name, len: bytes.len(), reason });
        }
        self.damage.append(&mut damage);
        self.not_closed.append(&mut not_closed);
        self.take(logs, bytes, name);
        Ok(())
    }

    /// Returns true if every block of records is as it was written; checks those that have not been
    /// read yet.
    pub(crate) fn are_sound(&self, executor: &dyn Executor) -> bool {
        let open: Vec<_> = self.blocks().filter(|block| block.is(OPEN)).collect();
        executor.expect(open.iter().map(|block| block.bytes().len() as u64).sum());
        executor.run(open.len(), &|number| {
            let bytes = open[number].bytes();
            executor.coming(bytes);
            drop(open[number].records());
            executor.leaving(bytes);
            executor.passed(bytes);
        });
        !self.blocks().any(|block| block.is(BAD))
    }

    fn blocks(&self) -> impl Iterator<Item = &Stored<'a>> {
        self.logs.iter().flat_map(|log| &log.blocks)
    }

    /// The same files read block by block.
    pub(crate) fn strictly(&self, executor: &dyn Executor) -> Self {
        let mut all = Self::default();
        for (name, bytes) in &self.files {
            if let Err(error) = all.read(bytes, name, executor) {
                // Its first note was good when it was added: it is bad now only if a program writes
                // to the file meanwhile.
                let (log, len, reason) = (name.clone(), bytes.len() as u64, error.to_string());
                all.damage.push(LogDamage { log, offset: 0, len, reason });
            }
            all.files.push((name.clone(), bytes));
        }
        all.share_what_senders_know();
        all
    }
}

/// Bytes at the start of two files that are compared first.
const START: usize = 4_096;

/// Returns true if two files are the same; what was never written is not looked at.
fn is_same(a: &[u8], b: &[u8], executor: &dyn Executor) -> bool {
    // Most differ here already, before the system is asked for their holes.
    let start = a.len().min(START);
    if a.len() != b.len() || a[..start] != b[..start] {
        return false;
    }
    let holes = executor.holes(a);
    if holes != executor.holes(b) {
        return false;
    }
    let starts = std::iter::once(0).chain(holes.iter().map(|hole| hole.end));
    let ends = holes.iter().map(|hole| hole.start).chain([a.len()]);
    starts.zip(ends).all(|(start, end)| a[start..end] == b[start..end])
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

    /// Identity of a log that may be in several files.
    fn series(&self) -> Option<(u64, &str, u32, &str, Side)> {
        let info = self.info.as_ref()?;
        let first = info.part.as_ref().map_or(info.started_unix_ns, |part| part.first_unix_ns);
        Some((first, &info.boot_id, info.pid, &info.host, info.side))
    }

    /// Number of the part that it begins with.
    fn part(&self) -> Option<u32> {
        self.info.as_ref().map(|info| info.part.as_ref().map_or(0, |part| part.number))
    }

    /// Returns true if another log is the next part of this one.
    fn goes_on_in(&self, other: &Self) -> bool {
        let next = other.part().and_then(|next| next.checked_sub(1));
        next.is_some()
            && next == self.last_part.or_else(|| self.part())
            && self.series() == other.series()
            && self.end.is_none_or(|end| end.continued)
    }

    /// Puts the next part behind this one.
    fn followed_by(mut self, next: Self) -> Self {
        let part = next.info.and_then(|info| info.part);
        let keeps_numbers = part.as_ref().is_some_and(|part| !part.blocks.is_empty());
        self.last_part = next.last_part.or_else(|| part.map(|part| part.number));
        self.files.extend(next.files);
        if let [(first, _), .., (last, _)] = &self.files[..] {
            self.name = format!("{first} to {last}");
        }
        // Flows whose beginning neither of them has.
        let here = &self.flows;
        self.headless.extend(next.headless.into_iter().filter(|index| !here.contains_key(index)));
        self.flows.extend(next.flows);
        self.ends.extend(next.ends);
        self.clock = next.clock.or(self.clock);
        self.clocks.extend(next.clocks);
        for (index, opened) in next.opened {
            self.opened.entry(index).or_insert(opened);
        }
        self.probes.extend(next.probes);
        for (index, samples) in next.tcp {
            self.tcp.entry(index).or_default().extend(samples);
        }
        for (index, samples) in next.departures {
            self.departures.entry(index).or_default().extend(samples);
        }
        self.end = match (self.end, next.end) {
            // It tells of all.
            (_, last) if keeps_numbers => last,
            (Some(one), Some(other)) => Some(LogEnd {
                blocks: one.blocks.saturating_add(other.blocks),
                records: one.records.saturating_add(other.records),
                lost_records: one.lost_records.saturating_add(other.lost_records),
                continued: other.continued,
            }),
            _ => None,
        };
        self.blocks.extend(next.blocks);
        let from = self.numbers.last().map_or(0, |number| number.saturating_add(1));
        self.numbers.extend(next.numbers.into_iter().map(|number| number.saturating_add(from)));
        self
    }

    /// Returns true if this file is one of the log's.
    pub(crate) fn is_in(&self, name: &str) -> bool {
        self.files.iter().any(|(file, _)| file == name)
    }

    /// Returns true if this log has all that was written of it: its end, which does not tell of a next part.
    pub(crate) fn is_ended(&self) -> bool {
        self.end.is_some_and(|end| !end.continued)
    }

    fn note(&mut self, note: Note) {
        match note {
            Note::Log(info) => {
                self.headless = info.part.iter().flat_map(|part| part.flows.clone()).collect();
                self.info = Some(info);
            }
            Note::Flow(mut info) => {
                info.spec.changes.clone_from(&info.changes);
                let looked = self.info.as_ref().is_some_and(|log| log.side == Side::Sender);
                let looked = self.clocks.last().filter(|_| looked).map(|look| look.monotonic_ns);
                if let Some(last) = looked.max(self.probed.get(&info.run).copied()) {
                    self.opened.entry(info.index).or_insert(last);
                }
                self.flows.insert(info.index, Box::new(info));
            }
            Note::FlowEnd(end) => {
                self.ends.insert(end.index, Box::new(end));
            }
            Note::Clock(clock) => {
                let ClockPair { unix_ns, monotonic_ns, .. } = clock;
                self.clocks.push(Reading { monotonic_ns, unix_ns });
                self.clock = Some(clock);
            }
            Note::Probe(probe) => {
                self.probed.insert(probe.run.clone(), probe.sent_monotonic_ns);
                self.probes.push(probe);
            }
            Note::Departures(note) => self.departures.entry(note.index).or_default().push(note),
            Note::Tcp(sample) => self.tcp.entry(sample.index).or_default().push(sample),
            Note::End(end) => self.end = Some(end),
        }
    }

    /// The records, block by block.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.blocks.iter().flat_map(Stored::records)
    }

    /// Blocks, by their places, in stretches that follow each other in the list and in the file, with the bytes of each
    /// stretch and what lies between its blocks: at most [`STRETCH`] unless it is one block.
    pub(crate) fn stretches(
        &self,
        blocks: impl Iterator<Item = usize>,
    ) -> Vec<(Range<usize>, &'a [u8])> {
        let mut list: Vec<(Range<usize>, &'a [u8], Range<usize>)> = Vec::new();
        for at in blocks {
            let bytes = self.blocks[at].bytes();
            let within = |file: &&[u8]| file.as_ptr_range().contains(&bytes.as_ptr());
            let Some(file) = self.files.iter().map(|(_, file)| *file).find(within) else {
                continue;
            };
            let from = bytes.as_ptr().addr() - file.as_ptr().addr();
            let to = from + bytes.len();
            match list.last_mut() {
                Some((places, same, whole))
                    if at == places.end
                        && std::ptr::eq(*same, file)
                        && from >= whole.end
                        && to - whole.start <= STRETCH =>
                {
                    (places.end, whole.end) = (at + 1, to);
                }
                _ => list.push((at..at + 1, file, from..to)),
            }
        }
        list.into_iter().map(|(places, file, bytes)| (places, &file[bytes])).collect()
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

    /// Description of the flow with this index.
    pub(crate) fn flow(&self, index: u32) -> Option<&FlowInfo> {
        self.flows.get(&index).map(Box::as_ref)
    }

    /// Flow that an index of this log stands for; the index itself if its description is lost.
    pub(crate) fn key(&self, index: u32, side: Side) -> Key {
        let flow = self.flows.get(&index).map_or(index, |info| info.flow);
        Key { flow, run: self.run(index).to_owned(), side }
    }

    /// The run of the flow with this index; empty where nothing says it.
    pub(crate) fn run(&self, index: u32) -> &str {
        let whole = || self.info.as_ref().map_or("", |info| &info.run);
        self.flows.get(&index).map_or_else(whole, |info| &info.run)
    }

    /// Kind of delay that the flow with this index measures.
    pub(crate) fn meter(&self, index: u32) -> Meter {
        self.flows.get(&index).map_or(Meter::Owd, |info| info.spec.meter)
    }

    /// Lateness that 99 % of the packets do not exceed, as the sender declared, in nanoseconds.
    pub(crate) fn declared_p99_ns(&self) -> Option<u64> {
        self.setting("pacing_max_error_p99_ns")?.parse().ok()
    }

    /// Returns true if the kernel kept the times of packets.
    pub(crate) fn is_held(&self) -> bool {
        self.setting("pacing_txtime").is_some()
    }

    /// A setting of the program that wrote this log.
    pub(crate) fn setting(&self, name: &str) -> Option<&str> {
        self.info.as_ref()?.settings.get(name).map(String::as_str)
    }

    /// Promise of the host for its sending.
    pub(crate) fn promise(&self) -> Option<Promise> {
        Promise::parse(self.setting("promise")?).ok()
    }

    /// Entry of this log in the manifest.
    pub(crate) fn manifest(&self) -> Value {
        let mut entry = json!({
            "name": self.name,
            "side": side_name(self.side()),
            "records": self.record_count(),
            "complete": self.is_ended(),
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

/// Transport of a flow, where it is known.
pub(crate) fn known_proto(info: &FlowInfo) -> Option<&'static str> {
    info.ditg.is_none_or(|told| told.proto_known).then(|| info.spec.proto.name())
}

/// The word for the meter of a flow in reports, where it is known.
pub(crate) fn known_meter(info: &FlowInfo) -> Option<&'static str> {
    info.ditg.is_none_or(|told| told.meter_known).then_some(match info.spec.meter {
        Meter::Owd => "owd",
        Meter::Rtt => "rtt",
    })
}
