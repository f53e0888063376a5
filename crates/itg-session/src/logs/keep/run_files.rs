//! The files of an experiment at a log server: one of blocks, and an index of the logs in it, a JSON object a line.
//!
//! A block is acknowledged when it has been handed to the system, so a killed server loses none of them; with
//! [`Fsync::Block`] when it is on the disk. After a crash the file is searched for good blocks; an incomplete block at
//! its end is cut off, and so is an incomplete line at the end of the index.
//!
//! Files that were moved away are gone on from in new ones ([`RunFiles::go_on`]): those begin with the descriptions of the
//! logs that have no end yet, and of their open flows, and tell which of their blocks are in earlier files.
//!
//! The index is synced before blocks follow, whatever the setting: without its line a log is no log, and its number
//! would be given to another.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, IoSlice};

use itg_record::{
    BlockFacts, FlowInfo, FoundBlock, LogEnd, LogInfo, LogPart, Note, find_blocks,
    fitting_note_block,
};
use serde_json::{Value, json};

use super::append::BlockFile;
use super::storage::Storage;
use super::sync::Fsync;
use crate::logs::blocks::BlockSet;
use crate::logs::book::RestoredLog;
use crate::logs::message::{Registration, Role};
use crate::logs::name::{hex, unhex};

/// Whole lines of text that make a file somebody's, in bytes: torn bytes hardly once in 2¹⁶ hold so many.
const TEXT: usize = 16;
/// Longest end of an index that may be a torn line, in bytes.
const MOST_TORN: u64 = 16 << 10;

/// The open files of an experiment.
#[derive(Debug)]
pub struct RunFiles<F> {
    blocks: BlockFile<F>,
    index: BlockFile<F>,
    /// Lines that could not be written: no block follows before them.
    unlisted: Vec<String>,
}

/// Failure to open the files of an experiment.
#[derive(Debug)]
pub enum OpenError {
    /// Of the file of blocks.
    Blocks(io::Error),
    /// Of the index.
    Index(io::Error),
}

impl<F: Storage> RunFiles<F> {
    /// Files that are there, perhaps empty, and the logs that they hold.
    ///
    /// # Errors
    /// A file of blocks that no log server has written; the system's.
    pub fn open(
        mut blocks: F,
        mut index: F,
        fsync: Fsync,
    ) -> Result<(Self, Vec<RestoredLog>), OpenError> {
        let found = blocks.view(|bytes| {
            let (good, found) = find_blocks(bytes);
            let parts = parts(bytes, &found);
            (good, found, parts)
        });
        let (good_bytes, found, parts) = found.map_err(OpenError::Blocks)?;
        let (index_bytes, entries) = index.view(entries).map_err(OpenError::Index)?;
        // What is cut off below must be ours: an index tells of each log before its first block.
        let [bytes, line_bytes] = [blocks.bytes(), index.bytes()];
        let no_log = good_bytes == 0 && entries.is_empty();
        if no_log && bytes.map_err(OpenError::Blocks)? > 0 {
            return Err(OpenError::Blocks(not_ours("is there already and no log")));
        }
        // A line that is torn has no end; where power was lost it may be any bytes, but hardly whole lines of text.
        let rest_is_text = index.view(|bytes| {
            let good = usize::try_from(index_bytes).unwrap_or(usize::MAX);
            let rest = bytes.get(good..).unwrap_or_default();
            let lines = rest.split_inclusive(|byte| *byte == b'\n');
            let text = lines.filter(|line| line.ends_with(b"\n") && str::from_utf8(line).is_ok());
            text.map(<[u8]>::len).sum::<usize>() >= TEXT
        });
        let torn = line_bytes.map_err(OpenError::Index)? - index_bytes;
        if torn > MOST_TORN || (entries.is_empty() && rest_is_text.map_err(OpenError::Index)?) {
            return Err(OpenError::Index(not_ours("is there already and no index of logs")));
        }
        blocks.cut(good_bytes).map_err(OpenError::Blocks)?;
        index.cut(index_bytes).map_err(OpenError::Index)?;
        // What an earlier server has acknowledged may wait in the system's memory.
        fsync.opened(&blocks).map_err(OpenError::Blocks)?;
        index.sync_name().map_err(OpenError::Index)?;
        let logs = restored(entries, found, parts);
        let blocks = BlockFile::new(blocks, good_bytes, fsync);
        let index = BlockFile::new(index, index_bytes, Fsync::Block);
        Ok((Self { blocks, index, unlisted: Vec::new() }, logs))
    }

    /// Adds a log to the index, before any of its blocks.
    ///
    /// # Errors
    /// The system's: it is not there yet, and is tried again before the next blocks.
    pub fn enrol(&mut self, now_ns: u64, log_id: u32, who: &Registration) -> io::Result<()> {
        let role = match who.role {
            Role::Sender => "sender",
            Role::Receiver => "receiver",
        };
        let line = json!({
            "log_id": log_id, "key": hex(&who.key), "run": who.run, "host": who.host,
            "program": who.program, "role": role,
        });
        let line = format!("{line}\n");
        if !self.unlisted.contains(&line) {
            self.unlisted.push(line);
        }
        self.list(now_ns)
    }

    fn list(&mut self, now_ns: u64) -> io::Result<()> {
        while let Some(line) = self.unlisted.first() {
            let line = &mut [IoSlice::new(line.as_bytes())];
            self.index.append(now_ns, line).map_err(|failed| failed.error)?;
            self.unlisted.remove(0);
        }
        Ok(())
    }

    /// Adds blocks: all of them, or none.
    ///
    /// # Errors
    /// The system's, of the blocks or of an index that lacks their log.
    pub fn store(&mut self, now_ns: u64, blocks: &mut [IoSlice<'_>]) -> io::Result<()> {
        self.list(now_ns)?;
        self.blocks.append(now_ns, blocks).map_err(|failed| failed.error)
    }

    /// The file of blocks.
    pub const fn blocks(&self) -> &F {
        self.blocks.file()
    }

    /// The index.
    pub const fn index(&self) -> &F {
        self.index.file()
    }

    /// Returns true if the file has logs without an end: their producers may come back.
    ///
    /// # Errors
    /// The system's.
    pub fn has_open_logs(&self) -> io::Result<bool> {
        Ok(!self.blocks.file().view(open_logs)?.is_empty())
    }

    /// Goes on in an empty file of blocks, and in an empty index where the old one was moved away too.
    ///
    /// # Errors
    /// The system's: the files are as before.
    pub fn go_on(
        &mut self,
        now_ns: u64,
        blocks: F,
        index: Option<F>,
        fsync: Fsync,
    ) -> io::Result<()> {
        self.list(now_ns)?;
        let open = self.blocks.file().view(open_logs)?;
        let (mut head, mut ends) = (Vec::new(), Vec::new());
        for (id, log) in &open {
            if let Some((first, end)) = log.part_and_end(*id) {
                head.extend(first);
                ends.extend(end);
            }
        }
        let mut next = BlockFile::new(blocks, 0, fsync);
        let mut index = index.map(|index| BlockFile::new(index, 0, Fsync::Block));
        let begun = self.begin(now_ns, &head, &mut next, index.as_mut(), fsync);
        if begun.is_err()
            && let Some(index) = &mut index
        {
            // Without blocks it would be another server's.
            let _cleared = index.clear();
        }
        begun?;
        if let Some(index) = index {
            self.index = index;
        }
        // Without them the old file has logs without an end, as after a kill.
        let _ended = self.blocks.append(now_ns, &mut [IoSlice::new(&ends)]);
        let _synced = self.blocks.settle(u64::MAX);
        self.blocks = next;
        Ok(())
    }

    /// Writes what the next files begin with: the index goes first, as it does with each log.
    fn begin(
        &self,
        now_ns: u64,
        head: &[u8],
        blocks: &mut BlockFile<F>,
        index: Option<&mut BlockFile<F>>,
        fsync: Fsync,
    ) -> io::Result<()> {
        if let Some(index) = index {
            let lines = self.index.file().view(<[u8]>::to_vec)?;
            index.append(now_ns, &mut [IoSlice::new(&lines)]).map_err(|failed| failed.error)?;
            index.file().sync_name()?;
        }
        fsync.opened(blocks.file())?;
        blocks.append(now_ns, &mut [IoSlice::new(head)]).map_err(|failed| failed.error)
    }

    /// Instant at which the blocks have to be synced, if they have.
    pub const fn due_ns(&self) -> Option<u64> {
        self.blocks.due_ns()
    }

    /// Syncs what has waited long enough at `now_ns`; the end is `u64::MAX`.
    ///
    /// # Errors
    /// The system's: a loss of power may take some of the blocks.
    pub fn settle(&mut self, now_ns: u64) -> io::Result<()> {
        self.blocks.settle(now_ns)
    }
}

fn not_ours(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::AlreadyExists, why)
}

/// The logs of an index, and its length up to the end of the last good line.
fn entries(index: &[u8]) -> (u64, Vec<(u32, [u8; 16])>) {
    let (mut at, mut good, mut entries) = (0, 0, Vec::new());
    for line in index.split_inclusive(|byte| *byte == b'\n') {
        at += line.len() as u64;
        let Ok(entry) = serde_json::from_slice::<Value>(line) else { continue };
        let log_id = entry["log_id"].as_u64().and_then(|id| u32::try_from(id).ok());
        let key = entry["key"].as_str().and_then(unhex);
        if let (Some(log_id), Some(key), true) = (log_id, key, line.ends_with(b"\n")) {
            entries.push((log_id, key));
            good = at;
        }
    }
    (good, entries)
}

/// Ranges of numbers that are told apart in the description of a log that goes on in another file.
const MOST_RANGES: usize = 1 << 16;
/// Descriptions of flows that are written again in another file, in bytes a log.
const MOST_DESCRIBED: usize = 16 << 20;

/// A log without an end, as its file has it.
#[derive(Debug)]
struct OpenLog {
    info: Option<LogInfo>,
    /// Open flows by index, with the numbers of the blocks that describe them, and the lengths of those.
    flows: BTreeMap<u32, (u32, usize, FlowInfo)>,
    /// The sum of those lengths.
    described: usize,
    /// Numbers of all its blocks so far, those in earlier files among them.
    numbers: BlockSet,
    highest: u32,
    /// Records in this file, and in earlier ones.
    records: (u64, u64),
}

/// The logs of a file that have no end yet, by their numbers.
fn open_logs(bytes: &[u8]) -> BTreeMap<u32, OpenLog> {
    let mut logs: BTreeMap<u32, OpenLog> = BTreeMap::new();
    let mut ended = BTreeSet::new();
    for FoundBlock { at, facts } in find_blocks(bytes).1 {
        let BlockFacts { log_id, block_no, records, len, .. } = facts;
        let log = logs.entry(log_id).or_insert_with(|| OpenLog {
            info: None,
            flows: BTreeMap::new(),
            described: 0,
            numbers: BlockSet::new(MOST_RANGES),
            highest: 0,
            records: (0, 0),
        });
        log.numbers.insert(block_no);
        log.highest = log.highest.max(block_no);
        log.records.0 += u64::from(records);
        let at = usize::try_from(at).unwrap_or(usize::MAX);
        match (records == 0).then(|| BlockFacts::note(&bytes[at..])).flatten() {
            Some(Note::Log(info)) if block_no == 0 => {
                let earlier = info.part.iter().flat_map(|part| &part.blocks);
                earlier.for_each(|&(first, last)| log.numbers.insert_range(first, last));
                log.records.1 = info.part.as_ref().map_or(0, |part| part.records);
                log.info = Some(info);
            }
            Some(Note::Flow(info)) => {
                log.close(info.index);
                if log.described + len <= MOST_DESCRIBED {
                    log.described += len;
                    log.flows.insert(info.index, (block_no, len, info));
                }
            }
            Some(Note::FlowEnd(end)) => log.close(end.index),
            Some(Note::End(_)) => drop(ended.insert(log_id)),
            _ => {}
        }
    }
    logs.retain(|log_id, _| !ended.contains(log_id));
    logs
}

impl OpenLog {
    fn close(&mut self, flow: u32) {
        self.described -= self.flows.remove(&flow).map_or(0, |(_, len, _)| len);
    }

    /// First blocks of the log in its next file, and the one that ends it in this file; none of a log whose description
    /// has not come, or has no room for what is told of earlier files.
    fn part_and_end(&self, log_id: u32) -> Option<(Vec<u8>, Vec<u8>)> {
        let info = self.info.as_ref()?;
        let before = info.part.as_ref();
        let part = LogPart {
            number: before.map_or(0, |part| part.number).saturating_add(1),
            first_unix_ns: before.map_or(info.started_unix_ns, |part| part.first_unix_ns),
            flows: self.flows.keys().copied().collect(),
            blocks: self.numbers.iter().collect(),
            records: self.records.0.saturating_add(self.records.1),
        };
        let info = LogInfo { part: Some(part), ..info.clone() };
        let mut head = fitting_note_block(&Note::Log(info), log_id, 0)?;
        for (block_no, _, info) in self.flows.values() {
            head.extend(fitting_note_block(&Note::Flow(info.clone()), log_id, *block_no)?);
        }
        let block_no = self.highest.saturating_add(1);
        let (blocks, records) = (u64::from(block_no) + 1, self.records.0);
        let end = LogEnd { blocks, records, lost_records: 0, continued: true };
        Some((head, fitting_note_block(&Note::End(end), log_id, block_no)?))
    }
}

/// Blocks of logs that are in earlier files, as their first blocks in this one tell.
fn parts(bytes: &[u8], found: &[FoundBlock]) -> BTreeMap<u32, (Vec<(u32, u32)>, u64)> {
    let mut parts = BTreeMap::new();
    for FoundBlock { at, facts } in found.iter().filter(|block| block.facts.block_no == 0) {
        let note = usize::try_from(*at).ok().and_then(|at| BlockFacts::note(&bytes[at..]));
        if let Some(Note::Log(LogInfo { part: Some(part), .. })) = note {
            parts.insert(facts.log_id, (part.blocks, part.records));
        }
    }
    parts
}

/// The logs of an index, with the blocks that were found.
fn restored(
    entries: Vec<(u32, [u8; 16])>,
    blocks: Vec<FoundBlock>,
    mut parts: BTreeMap<u32, (Vec<(u32, u32)>, u64)>,
) -> Vec<RestoredLog> {
    let mut by_log = BTreeMap::<u32, (Vec<_>, u64)>::new();
    for FoundBlock { facts, .. } in blocks {
        let (list, bytes) = by_log.entry(facts.log_id).or_default();
        list.push((facts.block_no, facts.records, facts.checksum));
        *bytes += facts.len as u64;
    }
    let restored = entries.into_iter().map(|(log_id, key)| {
        let (blocks, bytes) = by_log.remove(&log_id).unwrap_or_default();
        let earlier = parts.remove(&log_id).unwrap_or_default();
        RestoredLog { key, log_id, blocks, bytes, earlier }
    });
    restored.collect()
}
