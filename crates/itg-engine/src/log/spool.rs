//! Blocks on local disk while the log server is away, and the identity of their log.
//!
//! Two files: the blocks, one behind the other, and beside them `FILE.index.jsonl`, which tells a later
//! process what it needs to send them in the name of this one: a line with the identity of the log,
//! a line each time the first block goes into an empty spool, and a line at the end. A process that is
//! killed leaves both; what it held in memory is lost.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use itg_session::logs::{Registration, Role, SpooledBlock, SpooledLog, Transport};
use serde::{Deserialize, Serialize};

use super::scan::scan;

/// Account of a producer up to some block.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Done {
    /// Block numbers used.
    pub(super) blocks: u32,
    /// Records in the blocks that were not left out.
    pub(super) records: u64,
    /// Blocks left out.
    pub(super) dropped_blocks: u64,
    /// Records in them.
    pub(super) dropped_records: u64,
    /// At the end: records of each flow (index in the log, number).
    pub(super) per_flow: Vec<(u32, u64)>,
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
pub(super) struct Left {
    /// Registration of their producer.
    pub(super) who: Registration,
    /// State of the log, as far as it is known.
    pub(super) log: SpooledLog,
    /// Records of each flow (index in the log, number), if the producer has written its end.
    pub(super) per_flow: Vec<(u32, u64)>,
}

/// A file of blocks, by block number, with its index.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    index: File,
    path: PathBuf,
    end: u64,
    blocks: BTreeMap<u32, (u64, usize)>,
}

impl Spool {
    /// An empty spool of this log; a file of that name that holds something is refused.
    pub(super) fn create(path: &Path, who: &Registration) -> io::Result<Self> {
        let file = open(path)?;
        if file.metadata().map_err(|error| named(path, &error))?.len() > 0 {
            let words = "it holds blocks of an earlier run: send them with `itg-log forward`, \
                         decode or remove it, or choose another file";
            let error = io::Error::new(io::ErrorKind::AlreadyExists, words);
            return Err(named(path, &error));
        }
        let index_path = index_of(path);
        let index = OpenOptions::new()
            .create(true)
            .truncate(true)
            .write(true)
            // It holds the key with which the log is continued.
            .mode(0o640)
            .open(&index_path)
            .map_err(|error| named(&index_path, &error))?;
        let mut spool =
            Self { file, index, path: path.to_owned(), end: 0, blocks: BTreeMap::new() };
        let line = IndexLine::Log {
            key: who.key.iter().map(|byte| format!("{byte:02x}")).collect(),
            run: who.run.clone(),
            host: who.host.clone(),
            program: who.program.clone(),
            role: who.role,
            record_schema: who.record_schema,
            block_records: who.block_records,
            block_bytes: who.block_bytes,
        };
        spool.write(&line).map_err(|error| named(&index_path, &error))?;
        Ok(spool)
    }

    /// The spool that a process has left. It must have ended.
    pub(super) fn open(path: &Path) -> io::Result<(Self, Left)> {
        if !path.is_file() {
            let error = io::Error::new(io::ErrorKind::NotFound, "there is no such file");
            return Err(named(path, &error));
        }
        let file = open(path)?;
        let index_path = index_of(path);
        let text = fs::read_to_string(&index_path).map_err(|error| named(&index_path, &error))?;
        let index = OpenOptions::new()
            .append(true)
            .open(&index_path)
            .map_err(|error| named(&index_path, &error))?;
        let (end, found) = scan(&file).map_err(|error| named(path, &error))?;
        let (mut blocks, mut records) = (BTreeMap::new(), BTreeMap::new());
        for block in found {
            blocks.insert(block.facts.block_no, (block.at, block.facts.len));
            records.insert(block.facts.block_no, block.facts.records);
        }
        let spooled: Vec<_> = records
            .into_iter()
            .map(|(block_no, records)| SpooledBlock { block_no, records })
            .collect();
        let left = read_index(&text, spooled)
            .map_err(|why| named(&index_path, &io::Error::new(io::ErrorKind::InvalidData, why)))?;
        let spool = Self { file, index, path: path.to_owned(), end, blocks };
        Ok((spool, left))
    }

    /// Returns true if the next block is the first one.
    pub(super) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The spool is empty, and a block will come: what had been done before it.
    pub(super) fn begin(&mut self, done: Done) -> io::Result<()> {
        self.write(&IndexLine::From(done))
    }

    /// The producer ends and leaves blocks behind.
    pub(super) fn leave(&mut self, done: Done) -> io::Result<()> {
        self.write(&IndexLine::End(done))
    }

    fn write(&mut self, line: &IndexLine) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.index.write_all(text.as_bytes())
    }

    pub(super) fn put(&mut self, block_no: u32, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.blocks.insert(block_no, (self.end, bytes.len()));
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn get(&self, block_no: u32) -> io::Result<Vec<u8>> {
        let &(at, len) = self.blocks.get(&block_no).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Forgets blocks that are stored elsewhere; an empty spool takes no space.
    pub(super) fn release(&mut self, up_to: u32) -> io::Result<()> {
        self.blocks = self.blocks.split_off(&up_to);
        if self.blocks.is_empty() && self.end > 0 {
            self.file.set_len(0)?;
            self.end = 0;
        }
        Ok(())
    }

    /// Removes the files when nothing is left in them.
    pub(super) fn close(self) {
        if self.blocks.is_empty() {
            for path in [&self.path, &index_of(&self.path)] {
                if let Err(error) = fs::remove_file(path) {
                    tracing::debug!(%error, "the empty spool was not removed");
                }
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Opens a file of blocks for this process alone.
fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o640)
        .open(path)
        .map_err(|error| named(path, &error))?;
    file.try_lock().map_err(|error| {
        let words = "another program is using it: wait until it has ended";
        match error {
            fs::TryLockError::WouldBlock => {
                named(path, &io::Error::new(io::ErrorKind::ResourceBusy, words))
            }
            fs::TryLockError::Error(error) => named(path, &error),
        }
    })?;
    Ok(file)
}

fn index_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".index.jsonl");
    name.into()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("spool {}: {error}", path.display()))
}

/// Reads from an index the state of the log whose blocks these are.
fn read_index(text: &str, spool: Vec<SpooledBlock>) -> Result<Left, String> {
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
            Err(error) => tracing::debug!(%error, "a line of a spool's index"),
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
    Ok(Left { who, log, per_flow })
}

/// The 16 bytes of 32 hexadecimal digits.
pub fn unhex(text: &str) -> Option<[u8; 16]> {
    let mut key = [0; 16];
    for (i, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok()?;
    }
    (text.len() == 32).then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who() -> Registration {
        Registration {
            key: [0xAB; 16],
            run: "voip".to_owned(),
            host: "a".to_owned(),
            program: "itg".to_owned(),
            role: Role::Receiver,
            flows: 0,
            record_schema: u64::MAX,
            transport: Transport::Tcp,
            block_records: 2,
            block_bytes: 4096,
            clock_offset_ns: None,
            uncertainty_ns: None,
            next_block: 0,
        }
    }

    fn block(block_no: u32) -> Vec<u8> {
        let mut block = itg_record::BlockBuf::new(2);
        for seq in 0..2 {
            block.push(&itg_record::Record::sent(itg_record::SentPacket {
                flow: 1,
                seq,
                size: 100,
                planned_ns: seq,
                sent_ns: seq,
            }));
        }
        block.seal(5, block_no).to_vec()
    }

    fn done(blocks: u32, records: u64) -> Done {
        Done { blocks, records, ..Done::default() }
    }

    #[test]
    fn what_a_killed_process_left_is_found_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spool");
        let mut spool = Spool::create(&path, &who()).expect("writable");
        assert!(spool.is_empty());
        // A first outage, over; then a second one, with a gap and half a block at the end.
        spool.begin(done(3, 6)).expect("room");
        spool.put(3, &block(3)).expect("room");
        spool.release(4).expect("room");
        spool.begin(done(7, 14)).expect("room");
        for block_no in [7, 9] {
            spool.put(block_no, &block(block_no)).expect("room");
        }
        spool.file.write_all_at(&block(10)[..70], spool.end).expect("room");

        let busy = Spool::open(&path).expect_err("the first one holds it").to_string();
        assert!(busy.contains("another program is using it"), "{busy}");
        drop(spool);
        let (spool, left) = Spool::open(&path).expect("left");
        assert_eq!(left.who, who());
        let numbers: Vec<u32> = left.log.spool.iter().map(|block| block.block_no).collect();
        assert_eq!((numbers, left.log.blocks, left.log.records), (vec![7, 9], 10, 18));
        assert_eq!(spool.get(9).expect("there"), block(9));
        drop(spool);
        let full = Spool::create(&path, &who()).expect_err("not empty").to_string();
        assert!(full.contains("itg-log forward"), "{full}");
    }

    #[test]
    fn what_a_process_knew_at_its_end_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spool");
        let mut spool = Spool::create(&path, &who()).expect("writable");
        spool.begin(done(2, 4)).expect("room");
        spool.put(2, &block(2)).expect("room");
        let per_flow = vec![(1, 9)];
        let (dropped_blocks, dropped_records) = (1, 3);
        let last = Done { blocks: 4, records: 6, dropped_blocks, dropped_records, per_flow };
        spool.leave(last).expect("room");
        spool.close();
        let (_, left) = Spool::open(&path).expect("left");
        assert_eq!((left.log.blocks, left.log.records, left.log.dropped_records), (4, 6, 3));
        assert_eq!(left.per_flow, [(1, 9)]);
    }

    #[test]
    fn an_index_that_says_nothing_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spool");
        let error = Spool::open(&path).expect_err("nothing there").to_string();
        assert!(error.contains("there is no such file"), "{error}");
        fs::write(&path, block(0)).expect("room");
        let error = Spool::open(&path).expect_err("no index").to_string();
        assert!(error.contains("spool.index.jsonl: No such file"), "{error}");
        for (text, want) in [
            ("", "it does not say whose log the spool is"),
            ("{\"line\":\"log\",\"key", "it does not say whose log the spool is"),
            (
                "{\"line\":\"log\",\"key\":\"00\",\"run\":\"r\",\"host\":\"h\",\"program\":\"p\",\
                 \"role\":\"Sender\",\"record_schema\":1,\"block_records\":1,\"block_bytes\":1}",
                "`00` is no key of a log",
            ),
        ] {
            fs::write(index_of(&path), text).expect("room");
            let error = Spool::open(&path).expect_err(text).to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
