//! A log on this host: one file, to which good blocks are only ever added.

use std::fs::OpenOptions;
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use itg_record::{BLOCK_HEADER_LEN, BlockBuf, LogBuilder, LogInfo, Note, RECORD_LEN};
use itg_session::logs::keep::{AppendError, BlockFile, Fsync};
use itg_socket::clock;

use super::disk::DiskFile;
use super::named::create_named;
use super::queue::{Job, LogOutcome, Shared, Sink, fail, give, left_out, take};
use super::quota::{LogQuota, LogRoom};
use super::throttle::Throttle;
use crate::clock_pair;

/// Outcome of what comes behind the end of a log that takes no more.
pub(crate) const LATER_LOST: &str = "later records are counted as lost";

/// Advice about a file that takes no more.
pub fn write_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => "; free some space or log to another disk",
        Some(libc::EFBIG) => "; the file size limit is reached",
        _ => "",
    }
}

pub(super) struct Writer {
    pub(super) file: BlockFile<DiskFile>,
    pub(super) path: PathBuf,
    pub(super) builder: LogBuilder,
    pub(super) records: u64,
    pub(super) shared: Arc<Shared>,
    pub(super) failed: bool,
    /// The log is as large as it may be: it gets its last note, and nothing else.
    pub(super) full: bool,
    /// Room of a log that a peer has named.
    pub(super) room: Option<LogRoom>,
    pub(super) throttle: Option<Throttle>,
}

impl Writer {
    /// Creates the file (an older one is replaced, unless a peer has named it: then it has a quota) and
    /// writes its [`LogInfo`].
    pub(super) fn create(
        (path, quota): (&Path, Option<&LogQuota>),
        info: LogInfo,
        shared: &Arc<Shared>,
        (throttle, fsync): (Option<Throttle>, Fsync),
    ) -> io::Result<Self> {
        let created = match quota {
            Some(quota) => {
                quota.create(path, || create_named(path)).map(|(file, room)| (file, Some(room)))
            }
            None => {
                let file = OpenOptions::new().create(true).write(true).truncate(true).open(path);
                file.map(|file| (file, None))
            }
        };
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
        };
        let (file, room) = created.map_err(named)?;
        let file = DiskFile::new(file, path);
        fsync.opened(&file).map_err(named)?;
        let mut writer = Self {
            file: BlockFile::new(file, 0, fsync),
            path: path.to_owned(),
            builder: LogBuilder::new(0),
            records: 0,
            shared: Arc::clone(shared),
            failed: false,
            full: false,
            room,
            throttle,
        };
        writer.note(&Note::Log(info));
        writer.note(&Note::Clock(clock_pair::clock_pair()));
        if writer.failed || writer.full {
            let why = shared.error().unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        Ok(writer)
    }

    pub(super) fn run(mut self, queue: &Receiver<Job>) -> LogOutcome {
        let shared = Arc::clone(&self.shared);
        take(&mut self, queue, &shared, clock::monotonic_ns());
        let lost_records = self.shared.lost();
        if !self.failed {
            let end = self.builder.end(lost_records);
            self.write(&end);
            self.settle(u64::MAX);
        }
        if let Some(why) = left_out(&self.shared) {
            let place = self.path.display();
            fail(&self.shared, format!("log {place}: {why}"));
        }
        self.shared.outcome(self.path.display().to_string(), self.records)
    }

    fn block(&mut self, block: &mut BlockBuf) {
        let count = block.len() as u64;
        self.make_room(BLOCK_HEADER_LEN + block.len() * RECORD_LEN);
        if self.full {
            self.builder.skip();
        } else if !self.failed {
            let sealed = self.builder.seal(block);
            if let Some(throttle) = &mut self.throttle {
                throttle.wait(sealed.len());
            }
            if let Err(why) = Self::append(&mut self.file, sealed) {
                self.failed = true;
                fail(&self.shared, why);
            }
        }
        if self.failed || self.full {
            self.shared.lose(count);
        } else {
            self.records += count;
        }
    }

    /// Takes room for so many bytes; without any the log is full from now on.
    fn make_room(&mut self, bytes: usize) {
        if !self.failed
            && !self.full
            && let Some(Err(why)) = self.room.as_mut().map(|room| room.take(bytes))
        {
            self.full = true;
            let path = self.path.display();
            fail(
                &self.shared,
                format!("log {path}: {why}; what was written before stays good, {LATER_LOST}"),
            );
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        if let Err(why) = Self::append(&mut self.file, bytes) {
            self.failed = true;
            fail(&self.shared, why);
        }
    }

    /// Writes one block, or cuts off what was written of it.
    fn append(file: &mut BlockFile<DiskFile>, bytes: &[u8]) -> Result<(), String> {
        let written = file.append(clock::monotonic_ns(), &mut [IoSlice::new(bytes)]);
        written.map_err(|AppendError { error, uncut }| {
            let (hint, place) = (write_hint(&error), file.file().path().display());
            let kept = match uncut {
                None => "what was written before stays good",
                Some(_) => "its last block may be incomplete",
            };
            format!("log {place}: {error}{hint}; {kept}, {LATER_LOST}")
        })
    }
}

impl Sink for Writer {
    fn records(&mut self, mut block: BlockBuf, give_back: SyncSender<BlockBuf>) {
        self.block(&mut block);
        give(block, &give_back);
    }

    fn left_out(&mut self) {
        self.builder.skip();
    }

    fn note(&mut self, note: &Note) {
        if self.failed || self.full {
            return;
        }
        let bytes = self.builder.note(note);
        self.make_room(bytes.len());
        if !self.full {
            self.write(&bytes);
        }
    }

    /// Syncs what has waited long enough.
    fn settle(&mut self, now_ns: u64) {
        if let Err(error) = self.file.settle(now_ns) {
            // What the disk has not taken is not known: all of it stays in the file, the user is told.
            let path = self.path.display();
            fail(&self.shared, format!("log {path}: {error}; a loss of power may take some of it"));
        }
    }
}
