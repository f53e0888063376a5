//! A log on this host: files to which good blocks are only ever added.
//!
//! A disk that takes no more costs the records that come meanwhile, which are counted; descriptions of flows and their
//! ends wait, and stand before the next records when it has space again. A log that goes on in another file, because it
//! was rotated or its file was moved away, begins that one with the descriptions of its open flows.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, IoSlice};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use itg_core::units::nanoseconds;
use itg_record::{
    BLOCK_HEADER_LEN, BlockBuf, FlowInfo, LogBuilder, LogInfo, LogPart, Note, RECORD_LEN,
    note_block,
};
use itg_session::logs::keep::{AppendError, BlockFile, Fsync};
use itg_socket::clock;

use super::disk::DiskFile;
use super::limits::LogLimits;
use super::named::create_named;
use super::place::{Beside, Opened, continued, may_go, rename_to_new};
use super::queue::{Job, LogOutcome, Shared, Sink, fail, give, left_out, take};
use super::quota::{LogQuota, LogRoom};
use super::rotation::{Rotation, move_away, remove_old};
use super::throttle::Throttle;
use crate::clock_pair;

/// Outcome of what comes behind the end of a log that takes no more.
pub(crate) const LATER_LOST: &str = "later records are counted as lost";
/// Outcome of what comes while a disk takes no more.
pub(crate) const MEANWHILE_LOST: &str = "records are left out, and counted, until it takes more";
/// Notes that wait for a disk to take more, at most: two for each of the flows that a receiver may have.
const MOST_UNSAID: usize = 2 * 65_536;
/// Interval between attempts to rotate a log that could not be rotated, in nanoseconds.
const ROTATE_AGAIN_NS: u64 = 10_000_000_000;

/// Advice about a file that takes no more.
pub fn write_hint(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC) => "; free some space or log to another disk",
        Some(libc::EFBIG) => "; the file size limit is reached",
        _ => "",
    }
}

/// Beginning of a log's file.
pub(super) enum Start<'a> {
    /// Behind what is there.
    Continued,
    /// When the first flow is open; what is there makes room then.
    Beside,
    /// A new file, whose name a peer has chosen.
    Named(&'a LogQuota),
}

/// The file that is being written.
pub(super) struct Part {
    pub(super) file: BlockFile<DiskFile>,
    builder: LogBuilder,
    /// Monotonic time of its beginning, in nanoseconds.
    since_ns: u64,
    /// Length of what it tells of the parts before.
    head_bytes: u64,
    /// Records lost when it began.
    lost_before: u64,
}

impl Part {
    fn new(opened: Opened, fsync: Fsync, lost_before: u64) -> io::Result<Self> {
        fsync.opened(&opened.file)?;
        Ok(Self {
            file: BlockFile::new(opened.file, opened.bytes, fsync),
            builder: LogBuilder::new(opened.log_id),
            since_ns: clock::monotonic_ns(),
            head_bytes: 0,
            lost_before,
        })
    }
}

pub(super) struct Writer {
    pub(super) part: Part,
    path: PathBuf,
    info: LogInfo,
    /// Of all parts.
    records: u64,
    shared: Arc<Shared>,
    /// Records left out since the disk took no more, while it does not.
    outage: Option<u64>,
    /// Notes that the disk has not taken, in order.
    unsaid: VecDeque<Note>,
    /// The log is as large as it may be: it gets its last note, and nothing else.
    full: bool,
    /// Room of a log that a peer has named.
    room: Option<LogRoom>,
    throttle: Option<Throttle>,
    fsync: Fsync,
    /// The name that the file is to get.
    beside: Option<Beside>,
    /// Flows that are open, where the log may go on in another file.
    flows: Option<BTreeMap<u32, FlowInfo>>,
    pub(super) rotation: Rotation,
    /// Time before which a log that could not be rotated is not tried again.
    rotate_from_ns: u64,
    /// The file was moved away, and a new one could not be made yet.
    to_reopen: bool,
}

impl Writer {
    /// Opens or creates the file and writes its [`LogInfo`].
    pub(super) fn create(
        (path, start): (&Path, Start<'_>),
        info: LogInfo,
        shared: &Arc<Shared>,
        limits: &LogLimits,
    ) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("log {}: {error}", path.display()))
        };
        let (mut room, mut beside) = (None, None);
        let opened = match start {
            Start::Continued => continued(path),
            Start::Beside => Beside::create(path, may_go).map(|(opened, how)| {
                beside = how;
                opened
            }),
            Start::Named(quota) => {
                quota.create(path, || create_named(path)).map(|(file, taken)| {
                    room = Some(taken);
                    Opened::empty(DiskFile::new(file, path))
                })
            }
        };
        let opened = opened.map_err(named)?;
        // A pipe or a device has no other file.
        let goes_on = matches!(start, Start::Continued) && !opened.is_special;
        let fsync = limits.fsync;
        let part = Part::new(opened, fsync, 0).map_err(named)?;
        let mut writer = Self {
            part,
            path: path.to_owned(),
            info,
            records: 0,
            shared: Arc::clone(shared),
            outage: None,
            unsaid: VecDeque::new(),
            full: false,
            room,
            throttle: limits.throttle_bytes_per_s.map(Throttle::new),
            fsync,
            beside,
            flows: goes_on.then(BTreeMap::new),
            rotation: limits.rotation,
            rotate_from_ns: 0,
            to_reopen: false,
        };
        let head = writer.info.clone();
        writer.note(&Note::Log(head));
        writer.note(&Note::Clock(clock_pair::clock_pair()));
        if writer.outage.is_some() || writer.full {
            let why = shared.error().unwrap_or_default();
            return Err(io::Error::new(io::ErrorKind::StorageFull, why));
        }
        Ok(writer)
    }

    pub(super) fn run(mut self, queue: &Receiver<Job>) -> LogOutcome {
        let shared = Arc::clone(&self.shared);
        take(&mut self, queue, &shared, clock::monotonic_ns());
        let lost_records = self.shared.lost() - self.part.lost_before;
        // What could not be written so far is tried once more.
        self.end_part(lost_records, false);
        if let Some(why) = left_out(&self.shared) {
            let place = self.path.display();
            fail(&self.shared, format!("log {place}: {why}"));
        }
        let outcome = self.shared.outcome(self.path.display().to_string(), self.records);
        LogOutcome { begun: self.beside.is_none(), ..outcome }
    }

    fn block(&mut self, block: &mut BlockBuf) {
        let count = block.len() as u64;
        self.make_room(BLOCK_HEADER_LEN + block.len() * RECORD_LEN);
        let mut written = false;
        if self.full || !self.say_rest() {
            self.part.builder.skip();
        } else {
            let Part { file, builder, .. } = &mut self.part;
            let sealed = builder.seal(block);
            if let Some(throttle) = &mut self.throttle {
                throttle.wait(sealed.len());
            }
            match Self::append(file, sealed) {
                Ok(()) => written = true,
                Err(why) => {
                    builder.unwritten(count);
                    self.stopped(why);
                }
            }
        }
        if written {
            self.records += count;
            self.goes_on();
        } else {
            self.shared.lose(count);
            if let Some(left_out) = &mut self.outage {
                *left_out += count;
            }
        }
    }

    /// Takes room for so many bytes; without any the log is full from now on.
    fn make_room(&mut self, bytes: usize) {
        if !self.full
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

    /// The disk takes no more, for now.
    fn stopped(&mut self, why: String) {
        if self.outage.is_none() {
            self.outage = Some(0);
            // The first one is told as the reason of the loss.
            if self.shared.error().is_some() {
                tracing::error!("{why}");
            }
            fail(&self.shared, why);
        }
    }

    /// The disk takes what is written.
    fn goes_on(&mut self) {
        if let Some(records) = self.outage.take() {
            let path = self.path.display();
            tracing::warn!(
                "log {path}: it is written again; {records} records were left out meanwhile"
            );
        }
    }

    /// Writes the notes that wait; returns true if there are none any more.
    fn say_rest(&mut self) -> bool {
        while let Some(note) = self.unsaid.front() {
            let Part { file, builder, .. } = &mut self.part;
            let bytes = builder.note(note);
            if let Err(why) = Self::append(file, &bytes) {
                builder.take_back();
                self.stopped(why);
                return false;
            }
            self.unsaid.pop_front();
            self.goes_on();
        }
        true
    }

    /// Ends the file, if it takes what has waited so far.
    fn end_part(&mut self, lost_records: u64, continued: bool) {
        if self.say_rest() {
            let builder = &mut self.part.builder;
            let end = builder.end_part(lost_records, continued);
            match Self::append(&mut self.part.file, &end) {
                Ok(()) => self.goes_on(),
                Err(why) => self.stopped(why),
            }
            self.sync(u64::MAX);
        }
    }

    /// Syncs what has waited long enough.
    fn sync(&mut self, now_ns: u64) {
        if let Err(error) = self.part.file.settle(now_ns) {
            // What the disk has not taken is not known: all of it stays in the file, the user is told.
            let path = self.path.display();
            fail(&self.shared, format!("log {path}: {error}; a loss of power may take some of it"));
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
            format!("log {place}: {error}{hint}; {kept}, {MEANWHILE_LOST}")
        })
    }

    /// Remembers the flows that are open, and gives the file its name with the first one.
    fn follow(&mut self, note: &Note) {
        match (note, &mut self.flows) {
            (Note::Flow(info), Some(flows)) => drop(flows.insert(info.index, info.clone())),
            (Note::FlowEnd(end), Some(flows)) => drop(flows.remove(&end.index)),
            _ => {}
        }
        if !matches!(note, Note::Flow(_)) {
            return;
        }
        match self.beside.take().map(Beside::take_name) {
            None => {}
            Some(Ok(())) => {
                if let Err(error) = self.fsync.opened(self.part.file.file()) {
                    let path = self.path.display();
                    fail(&self.shared, format!("log {path}: {error}; a loss of power may take it"));
                }
            }
            Some(Err((error, scratch))) => {
                fail(&self.shared, format!("log {}: {error}", self.path.display()));
                self.path = scratch;
            }
        }
    }

    /// Goes on in another file, if the part is complete.
    fn rotate(&mut self, now_ns: u64) {
        let Part { file, builder, since_ns, head_bytes, .. } = &self.part;
        // A part is more than its head, however many flows are open.
        let bytes = file.good_bytes().saturating_sub(*head_bytes);
        let large = self.rotation.bytes.is_some_and(|most| bytes >= most.max(*head_bytes));
        let age_ns = now_ns.saturating_sub(*since_ns);
        let old = self.rotation.every.is_some_and(|every| age_ns >= nanoseconds(every));
        let waits = builder.records() == 0 || now_ns < self.rotate_from_ns;
        if self.flows.is_none() || waits || !(large || old) {
            return;
        }
        let path = self.path.display().to_string();
        if let Err(error) = self.move_on() {
            self.rotate_from_ns = now_ns.saturating_add(ROTATE_AGAIN_NS);
            tracing::warn!("log {path}: it could not be rotated and goes on as it is: {error}");
        } else if let Some(keep) = self.rotation.keep
            && let Err(error) =
                std::fs::canonicalize(&self.path).and_then(|at| remove_old(&at, keep))
        {
            tracing::warn!("log {path}: an old part of it stays: {error}");
        }
    }

    /// Moves the file away and goes on in another one; it keeps its name if that fails.
    fn move_on(&mut self) -> io::Result<()> {
        if !self.is_at_path() {
            return self.begin_part();
        }
        // Where the name is a link, what it leads to is rotated.
        let at = std::fs::canonicalize(&self.path)?;
        let rights = std::fs::metadata(&at)?.permissions();
        let moved = move_away(&at)?;
        self.begin_part().inspect_err(|_| {
            if let Err(error) = rename_to_new(&moved, &at) {
                tracing::warn!(
                    "log {}: it is called {} now: {error}",
                    at.display(),
                    moved.display()
                );
            }
        })?;
        if let Err(error) = std::fs::set_permissions(&at, rights) {
            tracing::warn!(
                "log {}: it has not the rights of the part before: {error}",
                at.display()
            );
        }
        Ok(())
    }

    /// Returns true if the log's name leads to the file in use.
    fn is_at_path(&self) -> bool {
        self.part.file.file().is_at(&self.path)
    }

    /// Goes on in a new file of the same name, or behind the log that is there: first all is made ready there, then the
    /// file so far gets its end.
    fn begin_part(&mut self) -> io::Result<()> {
        let Some(flows) = &self.flows else { return Ok(()) };
        let opened = continued(&self.path)?;
        let before = opened.bytes;
        let lost = self.shared.lost();
        let mut part = Part::new(opened, self.fsync, lost)?;
        let number = self.info.part.as_ref().map_or(0, |part| part.number).saturating_add(1);
        let first_unix_ns =
            self.info.part.as_ref().map_or(self.info.started_unix_ns, |part| part.first_unix_ns);
        let info = LogInfo {
            started_unix_ns: clock::unix_ns(),
            part: Some(LogPart {
                number,
                first_unix_ns,
                flows: flows.keys().copied().collect(),
                blocks: Vec::new(),
                records: 0,
            }),
            ..self.info.clone()
        };
        let mut head = part.builder.note(&Note::Log(info.clone()));
        head.extend(part.builder.note(&Note::Clock(clock_pair::clock_pair())));
        for info in flows.values() {
            head.extend(part.builder.note(&Note::Flow(info.clone())));
        }
        let written = part.file.append(clock::monotonic_ns(), &mut [IoSlice::new(&head)]);
        written.map_err(|failed| {
            // Nobody else has it: it is locked.
            if before == 0
                && part.file.file().is_at(&self.path)
                && let Ok(at) = std::fs::canonicalize(&self.path)
            {
                drop(std::fs::remove_file(at));
            }
            failed.error
        })?;
        part.head_bytes = head.len() as u64;
        self.end_part(lost - self.part.lost_before, true);
        (self.part, self.info) = (part, info);
        Ok(())
    }
}

impl Sink for Writer {
    fn records(&mut self, mut block: BlockBuf, give_back: SyncSender<BlockBuf>) {
        self.block(&mut block);
        give(block, &give_back);
        if self.rotation.bytes.is_some() {
            self.rotate(clock::monotonic_ns());
        }
    }

    fn left_out(&mut self) {
        self.part.builder.skip();
    }

    fn note(&mut self, note: &Note) {
        self.follow(note);
        let tells_of_flow = matches!(note, Note::Flow(_) | Note::FlowEnd(_) | Note::Log(_));
        // Samples of clocks and connections are not waited for.
        if self.full || (self.outage.is_some() && !tells_of_flow) {
            return;
        }
        if self.unsaid.len() >= MOST_UNSAID {
            self.unsaid.pop_front();
        }
        if self.room.is_some() {
            self.make_room(note_block(note, 0, 0).len());
        }
        if !self.full {
            self.unsaid.push_back(note.clone());
            self.say_rest();
        }
    }

    /// Syncs what has waited long enough, tries again what the disk has not taken, and rotates the log.
    fn settle(&mut self, now_ns: u64) {
        self.say_rest();
        self.sync(now_ns);
        if self.to_reopen {
            self.reopen();
        }
        self.rotate(now_ns);
    }

    /// Goes on in the file that has the log's name now, if the one in use was moved away.
    fn reopen(&mut self) {
        let again = std::mem::take(&mut self.to_reopen);
        if self.flows.is_none() || self.is_at_path() {
            return;
        }
        let path = self.path.display().to_string();
        match self.begin_part() {
            Ok(()) => tracing::info!("log {path}: opened anew"),
            Err(error) => {
                self.to_reopen = true;
                if !again {
                    tracing::error!(
                        "log {path}: it was moved away, and goes on where it is until it can be opened anew: {error}"
                    );
                }
            }
        }
    }
}
