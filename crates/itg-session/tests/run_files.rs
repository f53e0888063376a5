//! The log server's files when their disk fails.
#![allow(missing_docs, reason = "a test program")]

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::rc::Rc;

use itg_record::{ClockPair, Note, note_block};
use itg_session::logs::keep::{Fsync, RunFiles, Storage};
use itg_session::logs::{Registration, Role, Transport};

/// A file in memory, which takes no bytes while it fails.
#[derive(Clone, Debug, Default)]
struct MemoryFile {
    bytes: Rc<RefCell<Vec<u8>>>,
    fails: Rc<Cell<bool>>,
}

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
        if self.fails.get() { Err(io::Error::other("input/output error")) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.bytes.borrow_mut().truncate(usize::try_from(len).expect("small"));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
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

#[test]
fn a_torn_line_is_cut_off_and_the_next_one_is_read() {
    let (blocks, index) = (MemoryFile::default(), MemoryFile::default());
    let open = || RunFiles::open(blocks.clone(), index.clone(), Fsync::Never).expect("opens");
    for log_id in [1, 2] {
        let (mut files, _) = open();
        files.enrol(1, log_id, &who()).expect("room");
        index.bytes.borrow_mut().extend(b"{\"host\":\"a\",\xff\0");
    }
    let (_, logs) = open();
    let numbers: Vec<u32> = logs.iter().map(|log| log.log_id).collect();
    assert_eq!(numbers, [1, 2]);
}
