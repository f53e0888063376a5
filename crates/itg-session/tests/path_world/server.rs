//! The log server: sessions and their book, files and what survives, driven as `itg_node::logserver` does.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};

use itg_session::logs::keep::{OpenError, RunFiles};
use itg_session::logs::{
    self, FrameHead, LogBook, LogLimits, LogMessage, LogServerConfig, LogServerSession,
    LogServerTimeouts, Registration, ServerInput, ServerOutput, block_input,
};

use super::dice::MS;
use super::disk::SimFile;
use super::net::Client;
use super::plan::{Fault, Host};
use super::planted::Planted;
use super::world::{Event, World};

/// Something to be written.
#[derive(Clone, Debug)]
enum Job {
    Enrol { run: String, log_id: u32, who: Box<Registration> },
    Block { run: String, connection: usize, block_no: u32, bytes: Vec<u8> },
}

/// A log server that runs.
#[derive(Debug)]
pub struct Server {
    pub life: u64,
    pub book: LogBook,
    pub sessions: BTreeMap<usize, LogServerSession>,
    runs: BTreeMap<String, RunFiles<SimFile>>,
    jobs: VecDeque<Job>,
    busy: bool,
    full: bool,
    stopping: bool,
    /// Logs whose datagrams are taken, and their sessions.
    bound: BTreeMap<usize, usize>,
}

/// Files of an experiment.
pub fn file_names(run: &str) -> (String, String) {
    (format!("{run}.itg"), format!("{run}.index.jsonl"))
}

const RETRY_NS: u64 = 300 * MS;
const TOKEN: u64 = 0x5555;

impl Server {
    pub fn new(life: u64) -> Self {
        Self {
            life,
            book: LogBook::new(LogLimits { budget_bytes: 1 << 20, ..LogLimits::default() }),
            sessions: BTreeMap::new(),
            runs: BTreeMap::new(),
            jobs: VecDeque::new(),
            busy: false,
            full: false,
            stopping: false,
            bound: BTreeMap::new(),
        }
    }

    /// Returns true once it has been asked to end: it takes no more connections.
    pub const fn is_stopping(&self) -> bool {
        self.stopping
    }

    pub fn settle(&mut self, now_ns: u64) {
        for run in self.runs.values_mut().filter(|run| run.due_ns().is_some()) {
            run.settle(now_ns).expect("the disk takes syncs");
        }
    }

    pub fn settles_at(&self) -> Option<u64> {
        self.runs.values().filter_map(RunFiles::due_ns).min()
    }
}

impl World {
    pub fn accept_log(&mut self, connection: usize) {
        let now = self.host_ns(Host::Server);
        let Some(server) = &mut self.server else { return };
        let config = LogServerConfig {
            id: connection as u64,
            nonce: None,
            token: connection as u64 ^ TOKEN,
            data_port: 9003,
            record_schema: itg_record::RECORD_SCHEMA,
            timeouts: LogServerTimeouts::default(),
        };
        server.sessions.insert(connection, LogServerSession::new(config, now));
    }

    /// Whole frames that have come on a producer's connection.
    pub fn frames_at_server(&mut self, connection: usize) {
        loop {
            let Some(session) =
                self.server.as_ref().and_then(|server| server.sessions.get(&connection))
            else {
                return;
            };
            let most = session.block_bytes().unwrap_or(0);
            let buffer = &mut self.net.connections[connection].arrived[0];
            let Some(head) = buffer.first_chunk().copied() else { return };
            let input = match FrameHead::parse(head, most) {
                Err(error) => (ServerInput::Garbage(error), None),
                Ok(head) => {
                    let end = 4 + head.len as usize;
                    if buffer.len() < end {
                        return;
                    }
                    let bytes: Vec<u8> = buffer.drain(..end).skip(4).collect();
                    if head.is_block {
                        (block_input(&bytes, false), Some(bytes))
                    } else {
                        let message = logs::decode(&bytes);
                        (message.map_or_else(ServerInput::Garbage, ServerInput::Message), None)
                    }
                }
            };
            let garbage = matches!(input.0, ServerInput::Garbage(_));
            self.tell_server(connection, input.0, input.1);
            if garbage {
                return self.net.connections[connection].arrived[0].clear();
            }
        }
    }

    pub fn datagram_at_server(&mut self, log: usize, bytes: Vec<u8>) {
        if bytes.starts_with(b"XPC1") {
            let bound = self.server.as_ref().and_then(|server| server.bound.get(&log)).copied();
            if let Some(connection) = bound {
                self.tell_server(connection, block_input(&bytes, true), Some(bytes));
            }
        } else if let Ok(LogMessage::Bind { log_id, token, .. }) = logs::decode(&bytes) {
            let connection = usize::try_from(token ^ TOKEN).expect("small");
            self.binding = Some(log);
            self.tell_server(connection, ServerInput::Bind { log_id, token }, None);
            self.binding = None;
        }
    }

    pub fn tell_server(&mut self, connection: usize, input: ServerInput, block: Option<Vec<u8>>) {
        let now = self.machine_ns(Host::Server);
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            self.note(|| format!("server {connection} <- {input:?}"));
            let Some(server) = &mut self.server else { return };
            let Some(session) = server.sessions.get_mut(&connection) else { return };
            let mut out = Vec::new();
            session.handle(now, input, &mut server.book, &mut out);
            if session.is_over() && session.unsettled() == 0 {
                server.sessions.remove(&connection);
            }
            for output in out {
                inputs.extend(self.act_server(connection, output, block.as_ref()));
            }
        }
    }

    fn act_server(
        &mut self,
        connection: usize,
        output: ServerOutput,
        block: Option<&Vec<u8>>,
    ) -> Option<ServerInput> {
        self.note(|| format!("server {connection}    -> {output:?}"));
        let run = self.run_of(connection);
        let server = self.server.as_mut()?;
        match output {
            ServerOutput::Send(message) => self.send_to_log(connection, message),
            ServerOutput::Check { .. } => return Some(ServerInput::Checked(true)),
            ServerOutput::Open { run } => {
                let opened = self.open_run(&run);
                let at = self.now + self.dice.below(self.plan.disk_ns + 1);
                let life = self.server.as_ref().map_or(0, |server| server.life);
                self.at(at, Event::Opened { life, connection, opened });
            }
            ServerOutput::Enrol { run, log_id, who } => {
                server.jobs.push_back(Job::Enrol { run, log_id, who: Box::new(who) });
                self.begin_write();
            }
            ServerOutput::Authorise => {
                if let Some(log) = self.binding {
                    server.bound.insert(log, connection);
                }
            }
            ServerOutput::Store { block_no, .. } => {
                let bytes = block.cloned()?;
                server.jobs.push_back(Job::Block { run: run?, connection, block_no, bytes });
                self.begin_write();
                if self.planted == Some(Planted::AckBeforeWritten) {
                    return Some(ServerInput::Stored { block_no });
                }
            }
            ServerOutput::Duplicate { block_no, same } => {
                self.seen.insert("a block came twice");
                if self.planted == Some(Planted::StoredTwice) {
                    let bytes = block.cloned()?;
                    server.jobs.push_back(Job::Block { run: run?, connection, block_no, bytes });
                    self.begin_write();
                }
                if !same {
                    self.broken(format!("block {block_no} came with other contents"));
                }
            }
            ServerOutput::Discard { reason, .. } => {
                self.seen.insert(reason);
            }
            ServerOutput::Wake(other) => {
                let (life, connection) = (server.life, usize::try_from(other).expect("small"));
                self.at(self.now, Event::Woken { life, connection });
            }
            ServerOutput::Account(_) => {}
            ServerOutput::Idle { run } => {
                if server.jobs.is_empty() && server.book.forget(&run) {
                    self.seen.insert("an experiment was closed");
                    if let Some(mut files) = server.runs.remove(&run) {
                        files.settle(u64::MAX).expect("the disk takes syncs");
                    }
                }
            }
            ServerOutput::Disconnect { .. } => {
                let later = self.net.close(connection, true, self.now);
                self.later(later);
            }
        }
        None
    }

    fn run_of(&self, connection: usize) -> Option<String> {
        let session = self.server.as_ref()?.sessions.get(&connection)?;
        session.log().map(|(run, _)| run.to_owned())
    }

    fn send_to_log(&mut self, connection: usize, mut message: LogMessage) {
        if let LogMessage::Ack { stored_to, .. } = message {
            self.check_ack(connection, stored_to);
        }
        if let LogMessage::Left { missing, blocks, records, .. } = &mut message
            && self.planted == Some(Planted::MissingHidden)
        {
            (*blocks, *records) = (u64::MAX, u64::MAX);
            missing.clear();
        }
        let bytes = logs::encode(&message).expect("fits");
        let frame = [&FrameHead::message(&bytes).to_bytes()[..], &bytes].concat();
        let later = self.net.write(connection, false, &frame, self.now);
        self.later(later);
    }

    /// Opens the files of an experiment, unless they are open.
    fn open_run(&mut self, run: &str) -> Result<(), String> {
        let disk = self.disks[Host::Server as usize].clone();
        let Some(server) = &mut self.server else { return Ok(()) };
        if server.runs.contains_key(run) {
            return Ok(());
        }
        let (blocks, index) = file_names(run);
        let file = match self.planted {
            Some(Planted::FileReplaced) => disk.replace(&blocks),
            _ => disk.open(&blocks),
        };
        disk.opening(true);
        let opened = RunFiles::open(file, disk.open(&index), self.plan.fsync);
        disk.opening(false);
        let (files, logs) = opened.map_err(|error| match error {
            OpenError::Blocks(error) | OpenError::Index(error) => error.to_string(),
        })?;
        if !server.book.knows(run) {
            let forgets = self.planted == Some(Planted::NumbersForgotten);
            server.book.restore(run, if forgets { Vec::new() } else { logs });
        }
        server.runs.insert(run.to_owned(), files);
        self.torn.remove(&blocks);
        self.check_acked();
        Ok(())
    }

    fn begin_write(&mut self) {
        let Some(server) = &mut self.server else { return };
        if !server.busy && !server.jobs.is_empty() {
            server.busy = true;
            let life = server.life;
            self.writes += 1;
            let kill = self.plan.kill_in.iter().find(|(write, _)| *write == self.writes).copied();
            if let Some((_, down)) = kill.filter(|_| !self.healed) {
                let power = self.dice.below(3) == 0;
                self.at(self.now, Event::Fault(Fault::Kill { host: Host::Server, power }));
                self.at(self.now + down, Event::Fault(Fault::Start(Host::Server)));
            }
            let at = self.now + self.dice.below(self.plan.disk_ns + 1);
            self.at(at, Event::Written { life });
        }
    }

    /// The writer comes to the end of a write: of an enrolment, or of the blocks before the next one.
    pub fn written(&mut self) {
        let now = self.host_ns(Host::Server);
        let most = self.dice.between(1, 6) as usize;
        let Some(server) = &mut self.server else { return };
        let batch = server.next_batch(most);
        if batch.is_empty() {
            server.busy = false;
            return;
        }
        let done = server.carry_out(now, &batch);
        match done {
            Err(error) if error.kind() == ErrorKind::StorageFull && !server.stopping => {
                batch.into_iter().rev().for_each(|job| server.jobs.push_front(job));
                if !std::mem::replace(&mut server.full, true) {
                    server.book.disk_full();
                }
                self.seen.insert("the log server's disk was full");
                let event = Event::Written { life: server.life };
                return self.at(self.now + RETRY_NS, event);
            }
            done => {
                let woken = match std::mem::take(&mut server.full) {
                    true => server.book.disk_free(),
                    false => Vec::new(),
                };
                let life = server.life;
                for id in woken {
                    let connection = usize::try_from(id).expect("small");
                    self.at(self.now, Event::Woken { life, connection });
                }
                for job in batch {
                    let Job::Block { connection, block_no, .. } = job else { continue };
                    let input = match &done {
                        Ok(()) => ServerInput::Stored { block_no },
                        Err(error) => {
                            ServerInput::StoreFailed { block_no, reason: error.to_string() }
                        }
                    };
                    self.tell_server(connection, input, None);
                }
            }
        }
        if let Some(server) = &mut self.server {
            server.busy = false;
        }
        self.begin_write();
    }

    /// The log server's program is gone; what it was writing may be there in part.
    pub fn kill_server(&mut self, power: bool) {
        let Some(mut server) = self.server.take() else { return };
        self.seen.insert("the log server was killed");
        let disk = self.disks[Host::Server as usize].clone();
        let batch = if server.busy { server.next_batch(6) } else { Vec::new() };
        if !batch.is_empty() && self.dice.half() {
            // The last write goes as far as it goes.
            disk.dying(true);
            let now = self.host_ns(Host::Server);
            server.carry_out(now, &batch).unwrap_or_default();
            disk.dying(false);
        }
        self.torn.extend(disk.names());
        if power {
            self.seen.insert("the log server lost its power");
            disk.lose_power();
            self.lost_power(Host::Server);
        }
        self.drop_connections(|client| matches!(client, Client::Log(_)), true, power);
    }

    pub fn shut_down_server(&mut self) {
        let Some(server) = &mut self.server else { return };
        self.seen.insert("the log server was shut down");
        server.stopping = true;
        for connection in server.sessions.keys().copied().collect::<Vec<_>>() {
            self.tell_server(connection, ServerInput::Shutdown("terminated".to_owned()), None);
        }
    }
}

impl Server {
    /// Writes an enrolment, or blocks.
    fn carry_out(&mut self, now: u64, batch: &[Job]) -> io::Result<()> {
        match &batch[0] {
            Job::Enrol { run, log_id, who } => {
                let files = self.runs.get_mut(run);
                files.map_or(Ok(()), |files| files.enrol(now, *log_id, who))
            }
            Job::Block { run, .. } => {
                let bytes = batch.iter().filter_map(|job| match job {
                    Job::Block { bytes, .. } => Some(IoSlice::new(bytes)),
                    Job::Enrol { .. } => None,
                });
                let mut slices: Vec<_> = bytes.collect();
                let files = self.runs.get_mut(run);
                let files = files.ok_or_else(|| ErrorKind::NotFound.into());
                files.and_then(|files| files.store(now, &mut slices))
            }
        }
    }

    /// Jobs of one write.
    fn next_batch(&mut self, most: usize) -> Vec<Job> {
        let mut batch = Vec::new();
        while batch.len() < most
            && let Some(job) = self.jobs.pop_front()
        {
            let alike = match (&batch.first(), &job) {
                (None, _) => true,
                (Some(Job::Block { run, .. }), Job::Block { run: other, .. }) => run == other,
                _ => false,
            };
            if !alike {
                self.jobs.push_front(job);
                break;
            }
            batch.push(job);
        }
        batch
    }
}
