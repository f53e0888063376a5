//! Blocks in store while the log server is away, and the identity of their log.
//!
//! Two files: the blocks, one behind the other, and an index, which tells a later process what it needs to send them
//! in the name of this one: a line with the identity of the log, a line each time the first block goes into an empty
//! spool, and a line at the end. A process that is killed leaves both; what it held in memory is lost.

use std::collections::BTreeMap;
use std::io::{self, IoSlice};

use itg_record::find_blocks;
use serde::{Deserialize, Serialize};

use super::append::BlockFile;
use super::run_files::OpenError;
use super::storage::Storage;
use super::sync::Fsync;
use crate::logs::message::{Registration, Role, Transport};
use crate::logs::name::{hex, unhex};
use crate::logs::producer::{SpooledBlock, SpooledLog};

/// Account of a producer up to some block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// Block numbers used.
    pub blocks: u32,
    /// Records in the blocks that were not left out.
    pub records: u64,
    /// Blocks left out.
    pub dropped_blocks: u64,
    /// Records in them.
    pub dropped_records: u64,
    /// At the end: records of each flow (index in the log, number).
    pub per_flow: Vec<(u32, u64)>,
}

/// A line of the index.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "line", rename_all = "snake_case")]
enum IndexLine {
    /// Identity of the log whose blocks these are.
    Log {
        key: String,
        run: String,
        host: String,
        program: String,
        role: Role,
        record_schema: u64,
        block_records: u32,
        block_bytes: u32,
    },
    /// The spool was empty; what had been done before its first block.
    From(Done),
    /// The producer has ended.
    End(Done),
}

/// A log that a process has left in its spool.
#[derive(Debug)]
pub struct SpoolRest {
    /// Registration of their producer.
    pub who: Registration,
    /// State of the log, as far as it is known.
    pub log: SpooledLog,
    /// Records of each flow (index in the log, number), if the producer has written its end.
    pub per_flow: Vec<(u32, u64)>,
}

/// A file of blocks, by block number, with its index.
#[derive(Debug)]
pub struct Spool<F> {
    file: BlockFile<F>,
    index: BlockFile<F>,
    blocks: BTreeMap<u32, (u64, usize)>,
}

impl<F: Storage> Spool<F> {
    /// A spool of this log in two empty files. Both are on the disk before the first block comes: blocks of one log
    /// beside the index of another one, which a loss of power could leave else, would be sent in its name.
    ///
    /// # Errors
    /// The system's, of the index.
    pub fn create(file: F, index: F, who: &Registration) -> io::Result<Self> {
        file.sync_name()?;
        let [file, index] = [file, index].map(|file| BlockFile::new(file, 0, Fsync::Never));
        let mut spool = Self { file, index, blocks: BTreeMap::new() };
        spool.write(&IndexLine::Log {
            key: hex(&who.key),
            run: who.run.clone(),
            host: who.host.clone(),
            program: who.program.clone(),
            role: who.role,
            record_schema: who.record_schema,
            block_records: who.block_records,
            block_bytes: who.block_bytes,
        })?;
        spool.index.file().sync_name()?;
        Ok(spool)
    }

    /// The spool that a process has left. It must have ended.
    ///
    /// # Errors
    /// An index that does not say whose blocks these are; the system's.
    pub fn open(mut file: F, index: F) -> Result<(Self, SpoolRest), OpenError> {
        let invalid =
            |why: String| OpenError::Index(io::Error::new(io::ErrorKind::InvalidData, why));
        let text = index.view(|bytes| str::from_utf8(bytes).map(str::to_owned));
        let text = text.map_err(OpenError::Index)?.map_err(|error| invalid(error.to_string()))?;
        let index_bytes = index.bytes().map_err(OpenError::Index)?;
        let (end, found) = file.view(find_blocks).map_err(OpenError::Blocks)?;
        let (mut blocks, mut records) = (BTreeMap::new(), BTreeMap::new());
        for block in found {
            blocks.insert(block.facts.block_no, (block.at, block.facts.len));
            records.insert(block.facts.block_no, block.facts.records);
        }
        let spooled: Vec<_> = records
            .into_iter()
            .map(|(block_no, records)| SpooledBlock { block_no, records })
            .collect();
        let rest = read_index(&text, spooled).map_err(invalid)?;
        file.cut(end).map_err(OpenError::Blocks)?;
        let file = BlockFile::new(file, end, Fsync::Never);
        let index = BlockFile::new(index, index_bytes, Fsync::Never);
        Ok((Self { file, index, blocks }, rest))
    }

    /// Returns true if the next block is the first one.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The spool is empty, and a block will come: what had been done before it.
    ///
    /// # Errors
    /// The system's.
    pub fn begin(&mut self, done: Done) -> io::Result<()> {
        self.write(&IndexLine::From(done))
    }

    /// The producer ends and leaves blocks behind.
    ///
    /// # Errors
    /// The system's.
    pub fn leave(&mut self, done: Done) -> io::Result<()> {
        self.write(&IndexLine::End(done))
    }

    fn write(&mut self, line: &IndexLine) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let line = &mut [IoSlice::new(text.as_bytes())];
        // Nothing waits for a sync.
        self.index.append(0, line).map_err(|failed| failed.error)
    }

    /// Puts a block in.
    ///
    /// # Errors
    /// The system's: it is not there.
    pub fn put(&mut self, block_no: u32, bytes: &[u8]) -> io::Result<()> {
        let at = self.file.good_bytes();
        self.file.append(0, &mut [IoSlice::new(bytes)]).map_err(|failed| failed.error)?;
        self.blocks.insert(block_no, (at, bytes.len()));
        Ok(())
    }

    /// Reads a block.
    ///
    /// # Errors
    /// It is not there; the system's.
    pub fn get(&self, block_no: u32) -> io::Result<Vec<u8>> {
        let &(at, len) = self.blocks.get(&block_no).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; len];
        self.file.file().read_at(at, &mut bytes)?;
        Ok(bytes)
    }

    /// Forgets blocks that are stored elsewhere; an empty spool takes no space, and after a loss of power none of them
    /// stands before later ones.
    ///
    /// # Errors
    /// The system's: it takes space.
    pub fn release(&mut self, up_to: u32) -> io::Result<()> {
        self.blocks = self.blocks.split_off(&up_to);
        if self.blocks.is_empty() && self.file.good_bytes() > 0 {
            self.file.clear()?;
            self.file.file().sync()?;
        }
        Ok(())
    }
}

/// Reads from an index the state of the log whose blocks these are.
fn read_index(text: &str, spool: Vec<SpooledBlock>) -> Result<SpoolRest, String> {
    let (mut who, mut before, mut end) = (None, Done::default(), None);
    for line in text.lines() {
        // The last line may be cut off by a crash; it is about blocks that are not there then.
        match serde_json::from_str::<IndexLine>(line) {
            Ok(IndexLine::Log {
                key,
                run,
                host,
                program,
                role,
                record_schema,
                block_records,
                block_bytes,
            }) => {
                let key = unhex(&key).ok_or_else(|| format!("`{key}` is no key of a log"))?;
                who = Some(Registration {
                    key,
                    run,
                    host,
                    program,
                    role,
                    flows: 0,
                    record_schema,
                    transport: Transport::Tcp,
                    block_records,
                    block_bytes,
                    clock_offset_ns: None,
                    uncertainty_ns: None,
                    next_block: 0,
                });
            }
            Ok(IndexLine::From(done)) => before = done,
            Ok(IndexLine::End(done)) => end = Some(done),
            Err(_) => {}
        }
    }
    let who = who.ok_or("it does not say whose log the spool is")?;
    let records: u64 = spool.iter().map(|block| u64::from(block.records)).sum();
    let done = end.unwrap_or_else(|| Done {
        // Killed: what came behind the last block in the spool is not known.
        blocks: spool.last().map_or(before.blocks, |block| block.block_no.saturating_add(1)),
        records: before.records.saturating_add(records),
        ..before
    });
    let Done { blocks, records, dropped_blocks, dropped_records, per_flow } = done;
    let log = SpooledLog { spool, blocks, records, dropped_blocks, dropped_records };
    Ok(SpoolRest { who, log, per_flow })
}
