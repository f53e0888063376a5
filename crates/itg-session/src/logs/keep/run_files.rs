//! The files of an experiment at a log server: one of blocks, and an index of the logs in it, a JSON object a line.
//!
//! A block is acknowledged when it has been handed to the system, so a killed server loses none of them; with
//! [`Fsync::Block`] when it is on the disk. After a crash the file is searched for good blocks; an incomplete block at
//! its end is cut off, and so is an incomplete line at the end of the index.
//!
//! The index is synced before blocks follow, whatever the setting: without its line a log is no log, and its number
//! would be given to another.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use itg_record::{FoundBlock, find_blocks};
use serde_json::{Value, json};

use super::append::BlockFile;
use super::storage::Storage;
use super::sync::Fsync;
use crate::logs::book::RestoredLog;
use crate::logs::message::{Registration, Role};
use crate::logs::name::{hex, unhex};

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
        let (good_bytes, found) = blocks.view(find_blocks).map_err(OpenError::Blocks)?;
        let (index_bytes, entries) = index.view(entries).map_err(OpenError::Index)?;
        // What is cut off below must be ours: an index tells of each log before its first block.
        let [bytes, line_bytes] = [blocks.bytes(), index.bytes()];
        let no_log = good_bytes == 0 && entries.is_empty();
        if no_log && bytes.map_err(OpenError::Blocks)? > 0 {
            return Err(OpenError::Blocks(not_ours("is there already and no log")));
        }
        if line_bytes.map_err(OpenError::Index)? - index_bytes > MOST_TORN {
            return Err(OpenError::Index(not_ours("is there already and no index of logs")));
        }
        blocks.cut(good_bytes).map_err(OpenError::Blocks)?;
        index.cut(index_bytes).map_err(OpenError::Index)?;
        // What an earlier server has acknowledged may wait in the system's memory.
        fsync.opened(&blocks).map_err(OpenError::Blocks)?;
        index.sync_name().map_err(OpenError::Index)?;
        let logs = restored(entries, found);
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
        self.blocks.append(now_ns, blocks).map_err(super::append::AppendError::into_io)
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

/// The logs of an index, with the blocks that were found.
fn restored(entries: Vec<(u32, [u8; 16])>, blocks: Vec<FoundBlock>) -> Vec<RestoredLog> {
    let mut by_log = BTreeMap::<u32, (Vec<_>, u64)>::new();
    for FoundBlock { facts, .. } in blocks {
        let (list, bytes) = by_log.entry(facts.log_id).or_default();
        list.push((facts.block_no, facts.records, facts.checksum));
        *bytes += facts.len as u64;
    }
    let restored = entries.into_iter().map(|(log_id, key)| {
        let (blocks, bytes) = by_log.remove(&log_id).unwrap_or_default();
        RestoredLog { key, log_id, blocks, bytes }
    });
    restored.collect()
}
