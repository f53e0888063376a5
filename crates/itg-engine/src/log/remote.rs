//! A log on a log server: blocks leave memory to memory, over TCP with acknowledgements or over UDP
//! one a datagram, driven by the state machine of [`itg_session::logs`].
//!
//! The buffer of a block is kept until the server has it, or until it is in the spool; the producer
//! gets it back only then, so a block in flight is never written to.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, ErrorKind, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use itg_record::{
    BLOCK_HEADER_LEN, BlockBuf, LogEnd, LogInfo, Note, RECORD_LEN, note_block, record_header,
};
use itg_session::logs::{self, LogFate, LogProducer, ProducerInput, ProducerOutput, Transport};
use itg_socket::clock;
use itg_socket::mmsg::{self, BATCH, Outgoing};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::held::{Lent, UnconfirmedBlock, label};
use super::limits::{LogLimits, UDP_RECORDS};
use super::line::Line;
use super::link::{self, BLOCK_BIT};
use super::queue::{CLOCK_EVERY_NS, Job, LogOutcome, NetEvent, Shared, fail, give};
use super::spool::{Done, Spool};
use super::target::{LogServerTarget, producer_config, prove, registration};
use crate::clock_pair;

/// Longest wait for a socket to take a datagram before the datagram is given up, in milliseconds.
const DATAGRAM_WAIT_MS: u16 = 200;
/// Time that the server may be away before blocks go to the spool: 1 s.
const PATIENCE_NS: u64 = 1_000_000_000;
/// Flows that are counted for the account at the end.
const COUNTED_FLOWS: usize = 65_536;

/// The writer of a remote log.
pub(super) struct Remote {
    target: LogServerTarget,
    machine: LogProducer,
    shared: Arc<Shared>,
    events: SyncSender<Job>,
    held: BTreeMap<u32, UnconfirmedBlock>,
    spool: Option<Spool>,
    /// Number of the connection in use; events of others are stale.
    connection: u64,
    line: Option<Line>,
    datagrams: Option<UdpSocket>,
    threads: Vec<JoinHandle<()>>,
    log_id: u32,
    ready: bool,
    inbox: VecDeque<ProducerInput>,
    /// Datagrams that leave with the next system call.
    batch: Vec<u32>,
    /// The kernel cuts a message into datagrams, as far as is known.
    cuts: bool,
    together: mmsg::Together,
    datagram_records: usize,
    per_flow: BTreeMap<u32, u64>,
    /// Account of what producers have handed over and left out; the latter is counted as lost
    /// already.
    done: Done,
    fate: Option<(LogFate, Option<String>)>,
}

impl Remote {
    pub(super) fn new(
        target: &LogServerTarget,
        shared: &Arc<Shared>,
        limits: LogLimits,
        events: SyncSender<Job>,
    ) -> io::Result<Self> {
        let who = registration(target, limits);
        let spool = target.spool.as_deref().map(|path| Spool::create(path, &who)).transpose()?;
        let patience_ns = spool.is_some().then_some(PATIENCE_NS);
        let cut = match target.transport {
            Transport::Tcp => 1,
            Transport::Udp => limits.block_records.div_ceil(limits.datagram_records),
        };
        let config = producer_config(who, (limits.most_blocks() - 1) * cut, patience_ns);
        let machine = LogProducer::new(config, clock::machine_ns());
        let remote = Self::with(target.clone(), shared, machine, spool, events);
        Ok(Self { datagram_records: limits.datagram_records, ..remote })
    }

    /// The driver of this machine.
    pub(super) fn with(
        target: LogServerTarget,
        shared: &Arc<Shared>,
        machine: LogProducer,
        spool: Option<Spool>,
        events: SyncSender<Job>,
    ) -> Self {
        Self {
            target,
            machine,
            shared: Arc::clone(shared),
            events,
            held: BTreeMap::new(),
            spool,
            connection: 0,
            line: None,
            datagrams: None,
            threads: Vec::new(),
            log_id: 0,
            ready: false,
            inbox: VecDeque::new(),
            batch: Vec::with_capacity(BATCH),
            cuts: true,
            together: mmsg::Together::default(),
            datagram_records: UDP_RECORDS,
            per_flow: BTreeMap::new(),
            done: Done::default(),
            fate: None,
        }
    }

    /// Runs until the server has taken its leave; says once whether the log was registered.
    pub(super) fn run(
        mut self,
        queue: &Receiver<Job>,
        info: LogInfo,
        ready: &SyncSender<Result<(), String>>,
    ) -> LogOutcome {
        let mut waiting_for_registration = true;
        self.note(&Note::Log(info));
        self.note(&Note::Clock(clock_pair::clock_pair()));
        self.feed(ProducerInput::Timer);
        let mut next_clock_ns = clock::monotonic_ns() + CLOCK_EVERY_NS;
        let mut closing = false;
        while !self.is_over() {
            self.step(queue, &mut closing);
            let now = clock::monotonic_ns();
            if now >= next_clock_ns && !closing {
                next_clock_ns = now + CLOCK_EVERY_NS;
                self.note(&Note::Clock(clock_pair::clock_pair()));
            }
            if waiting_for_registration && self.ready {
                waiting_for_registration = false;
                // `Log::create` waits for this.
                ready.try_send(Ok(())).unwrap_or_default();
            }
        }
        let outcome = self.outcome();
        if waiting_for_registration {
            let why = outcome.error.clone().unwrap_or_default();
            ready.try_send(Err(why)).unwrap_or_default();
            return outcome;
        }
        // After a failure producers may still hand over blocks: they are counted as lost.
        while !closing {
            match queue.recv() {
                Ok(Job::Records(block, give_back)) => {
                    self.shared.lose(block.len() as u64);
                    give(block, &give_back);
                }
                Ok(Job::Settle(answer)) => self.shared.answer(&answer),
                Ok(Job::Close) | Err(_) => closing = true,
                Ok(Job::LeftOut(_) | Job::Note(_) | Job::Heard(_)) => {}
            }
        }
        self.shared.outcome(outcome.place, outcome.records)
    }

    /// Returns true once the machine has come to its end.
    pub(super) const fn is_over(&self) -> bool {
        self.fate.is_some()
    }

    /// Does the next job, if one comes before something else is due.
    pub(super) fn step(&mut self, queue: &Receiver<Job>, closing: &mut bool) {
        let now = clock::machine_ns();
        let wait = self.machine.deadline().map_or(CLOCK_EVERY_NS, |at| at.saturating_sub(now));
        // The writer itself holds a sender for its network threads, so the queue has no end.
        if let Ok(job) = queue.recv_timeout(clock::ns(wait.min(CLOCK_EVERY_NS))) {
            self.job(job, closing);
        }
        if self.machine.deadline().is_some_and(|at| at <= clock::machine_ns()) {
            self.feed(ProducerInput::Timer);
        }
        // A look at files, once a second at most.
        if let Some(Err(why)) = self.line.as_mut().map(Line::check) {
            self.lose(why);
        }
    }

    fn job(&mut self, job: Job, closing: &mut bool) {
        match job {
            Job::Records(block, give_back) => {
                self.done.records += block.len() as u64;
                self.count_flows(block.records());
                match self.target.transport {
                    Transport::Tcp => {
                        let block_no = self.machine.next_block();
                        let ready = ready(block_no, block.records().len());
                        self.held.insert(block_no, UnconfirmedBlock::Records(block, give_back));
                        self.inbox.push_back(ready);
                    }
                    Transport::Udp => self.cut(block, give_back),
                }
                self.work();
            }
            Job::LeftOut(records) => {
                self.done.dropped_blocks += 1;
                self.done.dropped_records += u64::from(records);
                let block_no = self.machine.next_block();
                self.feed(ProducerInput::Dropped { block_no, records });
            }
            Job::Note(note) => self.note(&note),
            Job::Settle(answer) => self.shared.answer(&answer),
            Job::Heard(event) => self.heard(event),
            Job::Close => {
                *closing = true;
                self.note(&Note::Clock(clock_pair::clock_pair()));
                let blocks = u64::from(self.machine.next_block()) + 1;
                let (records, lost_records) = (self.done.records, self.shared.lost());
                self.note(&Note::End(LogEnd { blocks, records, lost_records }));
                let per_flow = self.per_flow.iter().map(|(&flow, &n)| (flow, n)).collect();
                self.feed(ProducerInput::Close { per_flow });
            }
        }
    }

    /// Makes datagrams of a producer's buffer.
    fn cut(&mut self, block: BlockBuf, give_back: SyncSender<BlockBuf>) {
        let lent = Arc::new(Lent { block: Some(block), give_back });
        let mut at = 0;
        for (block_no, records) in (self.machine.next_block()..)
            .zip(lent.records().chunks(self.datagram_records * RECORD_LEN))
        {
            let head = record_header(records, self.log_id, block_no);
            let end = at + records.len();
            self.inbox.push_back(ready(block_no, records.len()));
            let lent = Arc::clone(&lent);
            self.held.insert(block_no, UnconfirmedBlock::Datagram { head, lent, at: at..end });
            at = end;
        }
    }

    fn count_flows(&mut self, records: &[u8]) {
        let (mut flow, mut run) = (0, 0);
        for record in records.chunks_exact(RECORD_LEN) {
            // The flow is the first field of a record (see docs/formats.md).
            let this = record.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            if this != flow {
                self.count(flow, run);
                (flow, run) = (this, 0);
            }
            run += 1;
        }
        self.count(flow, run);
    }

    fn count(&mut self, flow: u32, records: u64) {
        let room = self.per_flow.len() < COUNTED_FLOWS || self.per_flow.contains_key(&flow);
        if records > 0 && room {
            *self.per_flow.entry(flow).or_default() += records;
        }
    }

    fn note(&mut self, note: &Note) {
        let block_no = self.machine.next_block();
        let bytes = note_block(note, 0, block_no);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.held.insert(block_no, UnconfirmedBlock::Note(bytes));
        self.feed(ProducerInput::BlockReady { block_no, records: 0, bytes: len });
    }

    fn heard(&mut self, event: NetEvent) {
        match event {
            NetEvent::Connected(connection, line) if connection == self.connection => {
                self.listen(line);
            }
            NetEvent::Heard(connection, message) if connection == self.connection => {
                self.feed(match message {
                    Ok(message) => ProducerInput::Message(message),
                    Err(error) => ProducerInput::Garbage(error),
                });
            }
            NetEvent::Lost(connection, why) if connection == self.connection => self.lose(why),
            _ => {}
        }
    }

    /// Starts reading a new connection.
    fn listen(&mut self, line: Line) {
        match line.reader() {
            Ok(reading) => {
                let (connection, events) = (self.connection, self.events.clone());
                self.spawn(move || link::read(reading, connection, &events));
                self.line = Some(line);
                self.feed(ProducerInput::Connected);
            }
            Err(error) => self.lose(error.to_string()),
        }
    }

    fn lose(&mut self, why: String) {
        self.hang_up();
        self.feed(ProducerInput::Lost(why));
    }

    fn hang_up(&mut self) {
        self.connection += 1;
        self.datagrams = None;
        // The machine has them sent again.
        self.batch.clear();
        if let Some(line) = self.line.take() {
            line.shut_down();
        }
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) {
        self.threads.retain(|thread| !thread.is_finished());
        match thread::Builder::new().name("itg-log-net".to_owned()).spawn(work) {
            Ok(thread) => self.threads.push(thread),
            Err(error) => self.inbox.push_back(ProducerInput::Lost(error.to_string())),
        }
    }

    /// Gives the machine an input, and does what it says, and so on.
    pub(super) fn feed(&mut self, input: ProducerInput) {
        self.inbox.push_back(input);
        self.work();
    }

    fn work(&mut self) {
        let mut out = Vec::new();
        loop {
            while let Some(input) = self.inbox.pop_front() {
                self.machine.handle(clock::machine_ns(), input, &mut out);
                for output in out.drain(..) {
                    self.act(output);
                }
            }
            if self.batch.is_empty() {
                return;
            }
            self.send_batch();
        }
    }

    fn act(&mut self, output: ProducerOutput) {
        match output {
            ProducerOutput::Connect => {
                self.hang_up();
                let (connection, events) = (self.connection, self.events.clone());
                let target = self.target.clone();
                self.spawn(move || link::connect(&target, connection, &events));
            }
            ProducerOutput::Disconnect => self.hang_up(),
            ProducerOutput::Send(message) => {
                let sent = logs::encode(&message)
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| self.write(0, [&bytes, &[]]));
                self.check(sent);
            }
            ProducerOutput::Prove { text } => {
                let proof = self.target.secret.as_deref().map(|secret| prove(secret, &text));
                // Without the secret a wrong proof makes the server say so.
                self.inbox.push_back(ProducerInput::Proof(proof.unwrap_or([0; 32])));
            }
            ProducerOutput::Registered { log_id, data_port } => {
                self.log_id = log_id;
                self.ready = true;
                if self.target.transport == Transport::Udp {
                    let opened = self.open_datagrams(data_port);
                    self.check(opened.map_err(|error| error.to_string()));
                }
            }
            ProducerOutput::SendBind(message) => {
                if let (Some(socket), Ok(bytes)) = (&self.datagrams, logs::encode(&message))
                    && let Err(error) = socket.send(&bytes)
                {
                    // It is repeated until the server says that it came.
                    tracing::debug!(%error, "announcing the data address");
                }
            }
            ProducerOutput::SendBlock { block_no } => match self.target.transport {
                Transport::Tcp => self.send_block(block_no),
                Transport::Udp => {
                    self.batch.push(block_no);
                    if self.batch.len() == BATCH {
                        self.send_batch();
                    }
                }
            },
            ProducerOutput::Unspool { block_no } => self.send_spooled(block_no),
            ProducerOutput::Release { up_to } => {
                let kept = self.held.split_off(&up_to);
                std::mem::replace(&mut self.held, kept)
                    .into_values()
                    .for_each(UnconfirmedBlock::release);
                if let Some(Err(error)) = self.spool.as_mut().map(|spool| spool.release(up_to)) {
                    tracing::debug!(%error, "the spool was not shortened");
                }
            }
            ProducerOutput::Spool { block_no } => self.put_into_spool(block_no),
            ProducerOutput::Finished(fate) => self.fate = Some((fate, None)),
            ProducerOutput::Failed { reason, fate } => self.fate = Some((fate, Some(reason))),
        }
    }

    fn open_datagrams(&mut self, data_port: u16) -> io::Result<()> {
        let any = if self.target.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        let mut to = self.target.address;
        to.set_port(data_port);
        socket.connect(to)?;
        self.datagrams = Some(socket);
        Ok(())
    }

    fn send_block(&mut self, block_no: u32) {
        let Some(mut held) = self.held.remove(&block_no) else { return };
        let sent = self.write(BLOCK_BIT, held.pieces(self.log_id, block_no));
        self.held.insert(block_no, held);
        self.check(sent);
    }

    /// Sends the datagrams of the batch, in ascending order, with as few system calls as possible.
    fn send_batch(&mut self) {
        let (first, last) = (self.batch.first().copied(), self.batch.last().copied());
        self.batch.clear();
        let (Some(first), Some(last), Some(socket)) = (first, last, &self.datagrams) else {
            return;
        };
        let mut packets = [Outgoing::new(&[], &[]); BATCH];
        let mut count = 0;
        let held = self.held.range_mut(first..=last);
        for (packet, (block_no, held)) in packets.iter_mut().zip(held) {
            let [head, body] = held.pieces(self.log_id, *block_no);
            *packet = Outgoing::new(head, body);
            count += 1;
        }
        let mut rest = &packets[..count];
        let mut refused = false;
        while !rest.is_empty() {
            let alike = mmsg::alike(rest);
            let sent = if self.cuts && alike > 1 {
                mmsg::send_cut(socket.as_fd(), rest, &mut self.together)
            } else {
                mmsg::send(socket.as_fd(), rest)
            };
            match sent {
                Ok(sent) => rest = &rest[sent.max(1)..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock && writable(socket) => {}
                // Said of a datagram before; the next try is a new one.
                Err(error) if error.kind() == ErrorKind::ConnectionRefused && !refused => {
                    refused = true;
                }
                Err(error) if self.cuts && alike > 1 => {
                    // The link, or a device on the way, wants each datagram by itself.
                    tracing::debug!(%error, "blocks leave one by one");
                    self.cuts = false;
                }
                Err(error) => {
                    // As lost as a datagram on its way: the server's account shows it.
                    tracing::debug!(%error, "a block was not sent");
                    rest = &rest[1..];
                }
            }
        }
        self.inbox.push_back(ProducerInput::BlockSent { block_no: last });
    }

    fn send_spooled(&mut self, block_no: u32) {
        let got = self.spool.as_ref().map(|spool| spool.get(block_no));
        match got {
            Some(Ok(mut bytes)) => {
                label(&mut bytes, self.log_id);
                let sent = self.transmit(block_no, &bytes);
                self.check(sent);
            }
            Some(Err(error)) => {
                fail(
                    &self.shared,
                    format!("block {block_no} was not read from the spool: {error}"),
                );
                self.inbox.push_back(ProducerInput::Dropped { block_no, records: 0 });
            }
            None => {}
        }
    }

    /// Sends a block from the spool on the connection or as a datagram.
    fn transmit(&mut self, block_no: u32, bytes: &[u8]) -> Result<(), String> {
        match &self.datagrams {
            Some(socket) => {
                if let Err(error) = socket.send(bytes) {
                    // As lost as a datagram on its way: the server's account shows it.
                    tracing::debug!(%error, block_no, "a block was not sent");
                }
                self.inbox.push_back(ProducerInput::BlockSent { block_no });
                Ok(())
            }
            None => self.write(BLOCK_BIT, [bytes, &[]]),
        }
    }

    fn write(&mut self, kind: u32, [first, second]: [&[u8]; 2]) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let len = first.len() + second.len();
        let head = (kind | u32::try_from(len).unwrap_or(0)).to_le_bytes();
        let mut slices = [IoSlice::new(&head), IoSlice::new(first), IoSlice::new(second)];
        line.write(&mut slices).map_err(|error| error.to_string())
    }

    fn check(&mut self, done: Result<(), String>) {
        if let Err(why) = done {
            self.hang_up();
            self.inbox.push_back(ProducerInput::Lost(why));
        }
    }

    fn put_into_spool(&mut self, block_no: u32) {
        let begin = self.spool.as_ref().is_some_and(Spool::is_empty);
        let before = begin.then(|| self.done_before(block_no));
        let Some(mut held) = self.held.remove(&block_no) else { return };
        let bytes = held.pieces(self.log_id, block_no).concat();
        let put = self.spool.as_mut().map(|spool| {
            before.map_or(Ok(()), |before| spool.begin(before))?;
            spool.put(block_no, &bytes)
        });
        if let Some(Err(error)) = put {
            fail(&self.shared, format!("block {block_no} was not written to the spool: {error}"));
        }
        held.release();
    }

    /// Account of the time before a block that is held, as far as it matters to a process that
    /// finds the spool: blocks left out may be counted that come after it.
    fn done_before(&self, block_no: u32) -> Done {
        let held: u64 = self.held.range(block_no..).map(|(_, held)| held.records()).sum();
        let records = self.done.records.saturating_sub(held);
        Done { blocks: block_no, records, ..self.done.clone() }
    }

    /// Ends the threads; what became of a forwarded log, and why it failed, if it did. Removes the
    /// spool if it is empty.
    pub(super) fn end_of_forwarding(mut self) -> (LogFate, Option<String>) {
        self.hang_up();
        self.join();
        if let Some(spool) = self.spool.take() {
            spool.close();
        }
        self.fate.unwrap_or_default()
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a network thread of the log stopped on a bug");
            }
        }
    }

    fn outcome(&mut self) -> LogOutcome {
        self.hang_up();
        self.join();
        std::mem::take(&mut self.held).into_values().for_each(UnconfirmedBlock::release);
        let (fate, reason) = self.fate.take().unwrap_or_default();
        self.shared
            .lose((fate.records - fate.stored_records).saturating_sub(self.done.dropped_records));
        let mut error = (reason.is_some() || !fate.is_complete()).then(|| {
            let why = reason.map_or_else(String::new, |reason| format!("{reason}; "));
            format!("log on {}: {why}{fate}", self.target)
        });
        if let Some(mut spool) = self.spool.take() {
            if fate.spooled_blocks > 0 {
                let per_flow = std::mem::take(&mut self.per_flow).into_iter().collect();
                let blocks = self.machine.next_block();
                let done = Done { blocks, per_flow, ..std::mem::take(&mut self.done) };
                if let Err(why) = spool.leave(done) {
                    tracing::warn!("spool {}: {why}", spool.path().display());
                }
                if let Some(error) = &mut error {
                    let path = spool.path().display();
                    error.push_str(&format!(
                        "; what is missing there is in {path}: send it with `itg-log forward {path}`"
                    ));
                }
            }
            spool.close();
        }
        if let Some(why) = &error {
            fail(&self.shared, why.clone());
        }
        self.shared.outcome(self.target.to_string(), fate.stored_records)
    }
}

/// Makes the input that announces a block of this many bytes of records to the machine.
fn ready(block_no: u32, records: usize) -> ProducerInput {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (records, bytes) = (count(records / RECORD_LEN), count(BLOCK_HEADER_LEN + records));
    ProducerInput::BlockReady { block_no, records, bytes }
}

/// Waits until a socket takes a datagram, but not for ever.
fn writable(socket: &UdpSocket) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    // An interrupted wait is no reason to give a datagram up.
    !matches!(nix::poll::poll(&mut fds, PollTimeout::from(DATAGRAM_WAIT_MS)), Ok(0))
}
