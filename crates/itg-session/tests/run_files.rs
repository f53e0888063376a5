//! The log server's files when their disk fails.
#![allow(missing_docs, reason = "a test program")]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::rc::Rc;

use itg_record::{ClockPair, LogInfo, Note, Side, note_block};
use itg_session::logs::keep::{Done, Fsync, RunFiles, Spool, Storage};
use itg_session::logs::{Registration, Role, Transport};

/// A file in memory, which takes no bytes while it fails.
#[derive(Clone, Debug, Default)]
struct MemoryFile {
    bytes: Rc<RefCell<Vec<u8>>>,
    fails: Rc<Cell<bool>>,
    /// Nothing can be cut off.
    stays: Rc<Cell<bool>>,
    /// Something was changed since the last sync.
    unsynced: Rc<Cell<bool>>,
}

const NO_SPACE: i32 = 28;
const INPUT_OUTPUT: i32 = 5;

impl Storage for MemoryFile {
    fn bytes(&self) -> io::Result<u64> {
        Ok(self.bytes.borrow().len() as u64)
    }

    fn view<R>(&self, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        Ok(look(&self.bytes.borrow()))
    }

    fn read_at(&self, _: u64, _: &mut [u8]) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn append(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        for piece in pieces {
            // What a disk has taken before it fails.
            let taken = if self.fails.get() { piece.len() / 2 } else { piece.len() };
            self.bytes.borrow_mut().extend_from_slice(&piece[..taken]);
        }
        self.unsynced.set(true);
        if self.fails.get() { Err(io::Error::from_raw_os_error(NO_SPACE)) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        if self.stays.get() {
            return Err(io::Error::from_raw_os_error(INPUT_OUTPUT));
        }
        self.unsynced.set(true);
        self.bytes.borrow_mut().truncate(usize::try_from(len).expect("small"));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.unsynced.set(false);
        Ok(())
    }

    fn sync_name(&self) -> io::Result<()> {
        Ok(())
    }
}

fn who() -> Registration {
    Registration {
        key: [7; 16],
        run: "run".to_owned(),
        host: "a".to_owned(),
        program: "itg".to_owned(),
        role: Role::Sender,
        flows: 1,
        record_schema: itg_record::RECORD_SCHEMA,
        transport: Transport::Tcp,
        block_records: 8,
        block_bytes: 4096,
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    }
}

fn block() -> Vec<u8> {
    let clock = ClockPair { monotonic_ns: 1, unix_ns: 2, max_error_ns: None, synchronised: None };
    note_block(&Note::Clock(clock), 1, 0)
}

#[test]
fn no_block_is_stored_before_the_line_of_its_log() {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let open = || RunFiles::open(blocks.clone(), index.clone(), Fsync::Never).expect("opens");
    let (mut files, logs) = open();
    assert!(logs.is_empty());
    index.fails.set(true);
    files.enrol(1, 1, &who()).expect_err("the disk fails");
    let block = block();
    let store = |files: &mut RunFiles<_>| files.store(2, &mut [IoSlice::new(&block)]);
    store(&mut files).expect_err("its log is not in the index");
    assert_eq!(blocks.bytes().expect("in memory"), 0);
    index.fails.set(false);
    store(&mut files).expect("the line goes first");
    drop(files);
    let (_, logs) = open();
    assert_eq!((logs.len(), logs[0].key, logs[0].log_id), (1, [7; 16], 1));
    assert_eq!(logs[0].blocks.len(), 1);
}

/// A server keeps its producers waiting while its disk is full: it has to hear that, whatever else fails then.
#[test]
fn a_full_disk_is_told_as_such_when_its_last_block_cannot_be_cut_off() {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let (mut files, _) = RunFiles::open(blocks.clone(), index, Fsync::Never).expect("empty files");
    files.enrol(1, 1, &who()).expect("room");
    let block = block();
    let mut store = || files.store(2, &mut [IoSlice::new(&block)]);
    blocks.fails.set(true);
    blocks.stays.set(true);
    assert_eq!(store().expect_err("it is full").raw_os_error(), Some(NO_SPACE));
    blocks.fails.set(false);
    assert_eq!(store().expect_err("half a block").raw_os_error(), Some(INPUT_OUTPUT));
    blocks.stays.set(false);
    store().expect("room");
    assert_eq!(*blocks.bytes.borrow(), block, "what was half there is cut off first");
}

/// Blocks that the server has must not come back with a loss of power, before others of the same spool.
#[test]
fn what_is_released_from_a_spool_is_gone_for_good() {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let mut spool = Spool::create(blocks.clone(), index, &who()).expect("room");
    spool.begin(Done::default()).expect("room");
    spool.put(0, &block()).expect("room");
    spool.release(1).expect("it is cut off");
    assert_eq!(blocks.bytes().expect("in memory"), 0);
    assert!(!blocks.unsynced.get(), "the disk may have the blocks yet");
}

#[test]
fn a_torn_line_is_cut_off_and_the_next_one_is_read() {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let open = || RunFiles::open(blocks.clone(), index.clone(), Fsync::Never).expect("opens");
    for log_id in [1, 2] {
        let (mut files, _) = open();
        files.enrol(1, log_id, &who()).expect("room");
        index.bytes.borrow_mut().extend(b"{\"host\":\"a\",\xff\0\n\n\xfe");
    }
    let (_, logs) = open();
    let numbers: Vec<u32> = logs.iter().map(|log| log.log_id).collect();
    assert_eq!(numbers, [1, 2]);
}

fn info(host: String) -> LogInfo {
    LogInfo {
        schema: 1,
        side: Side::Sender,
        program: "itg".to_owned(),
        version: "1".to_owned(),
        host,
        os: "linux".to_owned(),
        boot_id: String::new(),
        pid: 1,
        started_unix_ns: 5,
        run: "run".to_owned(),
        seed: None,
        settings: BTreeMap::new(),
        block_records: 8,
        part: None,
    }
}

/// A log without an end, whose description has so many bytes, in files of its own.
fn described(bytes: usize) -> (MemoryFile, MemoryFile, RunFiles<MemoryFile>) {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let opened = RunFiles::open(blocks.clone(), index.clone(), Fsync::Never);
    let (mut files, _) = opened.expect("opens");
    files.enrol(1, 1, &who()).expect("room");
    let with_host = |len| note_block(&Note::Log(info("h".repeat(len))), 1, 0);
    let block = with_host(bytes.saturating_sub(with_host(0).len()));
    files.store(2, &mut [IoSlice::new(&block)]).expect("room");
    (blocks, index, files)
}

#[test]
fn files_that_cannot_be_begun_are_left_empty_and_the_old_ones_go_on() {
    let (_, index, mut files) = described(0);
    let (next, next_index) = (MemoryFile::default(), MemoryFile::default());
    next.fails.set(true);
    let go_on = |files: &mut RunFiles<_>| {
        files.go_on(3, next.clone(), Some(next_index.clone()), Fsync::Never)
    };
    go_on(&mut files).expect_err("the disk fails");
    assert_eq!([next.bytes().expect("in memory"), next_index.bytes().expect("in memory")], [0, 0]);
    next.fails.set(false);
    go_on(&mut files).expect("the disk takes more");
    assert_eq!(*next_index.bytes.borrow(), *index.bytes.borrow());
    let again = RunFiles::open(next.clone(), next_index.clone(), Fsync::Never);
    let (_, logs) = again.expect("opens");
    assert_eq!((logs.len(), logs[0].earlier.0.clone()), (1, vec![(0, 0)]));
}

#[test]
fn a_description_without_room_for_what_is_told_of_earlier_files_stays_in_its_own() {
    let (blocks, _, mut files) = described(itg_record::MAX_BLOCK_LEN);
    let before = blocks.bytes().expect("in memory");
    let next = MemoryFile::default();
    files.go_on(3, next.clone(), None, Fsync::Never).expect("room");
    assert_eq!([next.bytes().expect("in memory"), blocks.bytes().expect("in memory")], [0, before]);
}
