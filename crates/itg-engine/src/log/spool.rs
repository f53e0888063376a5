//! The files of a spool: the blocks, and beside them `FILE.index.jsonl`.

use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use itg_session::logs::Registration;
use itg_session::logs::keep::{OpenError, Spool, SpoolRest};

use super::disk::DiskFile;

/// An empty spool of this log; a file of that name that holds something is refused.
pub(super) fn create(path: &Path, who: &Registration) -> io::Result<Spool<DiskFile>> {
    let file = open_blocks(path)?;
    if file.is_written().map_err(|error| named(path, &error))? {
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
    let index = DiskFile::new(index, &index_path);
    Spool::create(file, index, who).map_err(|error| named(&index_path, &error))
}

/// The spool that a process has left. It must have ended.
pub(super) fn open(path: &Path) -> io::Result<(Spool<DiskFile>, SpoolRest)> {
    if !path.is_file() {
        let error = io::Error::new(io::ErrorKind::NotFound, "there is no such file");
        return Err(named(path, &error));
    }
    let file = open_blocks(path)?;
    let index_path = index_of(path);
    let index = OpenOptions::new()
        .read(true)
        .append(true)
        .open(&index_path)
        .and_then(|index| DiskFile::at_end(index, &index_path))
        .map_err(|error| named(&index_path, &error))?;
    Spool::open(file, index).map_err(|error| match error {
        OpenError::Blocks(error) => named(path, &error),
        OpenError::Index(error) => named(&index_path, &error),
    })
}

/// Removes the files of a spool in which nothing is left.
pub(super) fn remove(path: &Path) {
    for path in [path, &index_of(path)] {
        if let Err(error) = fs::remove_file(path) {
            tracing::debug!(%error, "the empty spool was not removed");
        }
    }
}

/// Opens a file of blocks for this process alone.
fn open_blocks(path: &Path) -> io::Result<DiskFile> {
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
    DiskFile::at_end(file, path).map_err(|error| named(path, &error))
}

fn index_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".index.jsonl");
    name.into()
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("spool {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use itg_session::logs::keep::Done;
    use itg_session::logs::{Role, Transport};

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
        let mut spool = create(&path, &who()).expect("writable");
        assert!(spool.is_empty());
        // A first outage, over; then a second one, with a gap and half a block at the end.
        spool.begin(done(3, 6)).expect("room");
        spool.put(3, &block(3)).expect("room");
        spool.release(4).expect("room");
        spool.begin(done(7, 14)).expect("room");
        for block_no in [7, 9] {
            spool.put(block_no, &block(block_no)).expect("room");
        }
        let mut torn = OpenOptions::new().append(true).open(&path).expect("there");
        torn.write_all(&block(10)[..70]).expect("room");

        let busy = open(&path).expect_err("the first one holds it").to_string();
        assert!(busy.contains("another program is using it"), "{busy}");
        drop(spool);
        let (spool, left) = open(&path).expect("left");
        assert_eq!(left.who, who());
        let numbers: Vec<u32> = left.log.spool.iter().map(|block| block.block_no).collect();
        assert_eq!((numbers, left.log.blocks, left.log.records), (vec![7, 9], 10, 18));
        assert_eq!(spool.get(9).expect("there"), block(9));
        drop(spool);
        let full = create(&path, &who()).expect_err("not empty").to_string();
        assert!(full.contains("itg-log forward"), "{full}");
    }

    #[test]
    fn what_a_process_knew_at_its_end_is_kept() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spool");
        let mut spool = create(&path, &who()).expect("writable");
        spool.begin(done(2, 4)).expect("room");
        spool.put(2, &block(2)).expect("room");
        let per_flow = vec![(1, 9)];
        let (dropped_blocks, dropped_records) = (1, 3);
        let last = Done { blocks: 4, records: 6, dropped_blocks, dropped_records, per_flow };
        spool.leave(last).expect("room");
        drop(spool);
        let (_, left) = open(&path).expect("left");
        assert_eq!((left.log.blocks, left.log.records, left.log.dropped_records), (4, 6, 3));
        assert_eq!(left.per_flow, [(1, 9)]);
    }

    #[test]
    fn an_index_that_says_nothing_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("spool");
        let error = open(&path).expect_err("nothing there").to_string();
        assert!(error.contains("there is no such file"), "{error}");
        fs::write(&path, block(0)).expect("room");
        let error = open(&path).expect_err("no index").to_string();
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
            let error = open(&path).expect_err(text).to_string();
            assert!(error.contains(want), "{error}");
        }
    }
}
