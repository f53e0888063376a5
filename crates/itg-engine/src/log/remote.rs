//! A log on a log server: blocks leave memory to memory, over TCP with acknowledgements or over UDP
//! one a datagram. Sockets and threads below [`RemoteLog`].

use std::io::{self, ErrorKind, IoSlice};
use std::net::UdpSocket;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use itg_record::{BlockBuf, LogInfo, Note};
use itg_session::logs::keep::{DATAGRAMS_TOGETHER, GiveBack, LogLink, RemoteEnd, RemoteLog, Spool};
use itg_session::logs::{FrameHead, LogFate, LogProducer, ProducerInput, Transport};
use itg_socket::clock;
use itg_socket::mmsg::{self, BATCH, Outgoing};
use nix::poll::{PollFd, PollFlags, PollTimeout};

use super::disk::DiskFile;
use super::limits::{LogLimits, UDP_RECORDS};
use super::line::Line;
use super::link;
use super::queue::{CLOCK_EVERY_NS, Job, LogOutcome, NetEvent, Shared, fail, give};
use super::spool;
use super::target::{LogServerTarget, producer_config, prove, registration};
use crate::clock_pair;

/// Longest wait for a socket to take a datagram before the datagram is given up, in milliseconds.
const DATAGRAM_WAIT_MS: u16 = 200;
/// Time that the server may be away before blocks go to the spool: 1 s.
const PATIENCE_NS: u64 = 1_000_000_000;
const _: () = assert!(DATAGRAMS_TOGETHER <= BATCH, "one system call sends them");

/// The way of a buffer back to the thread that fills it.
pub(super) struct Way(SyncSender<BlockBuf>);

impl GiveBack for Way {
    fn give(&self, block: BlockBuf) {
        give(block, &self.0);
    }
}

/// Connections and datagrams of a producer.
struct Network {
    target: LogServerTarget,
    shared: Arc<Shared>,
    events: SyncSender<Job>,
    /// Number of the connection in use; events of others are stale.
    connection: u64,
    line: Option<Line>,
    datagrams: Option<UdpSocket>,
    threads: Vec<JoinHandle<()>>,
    /// The kernel cuts a message into datagrams, as far as is known.
    cuts: bool,
    together: mmsg::Together,
}

/// The writer of a remote log.
pub(super) struct Remote {
    log: RemoteLog<Network, DiskFile, Way>,
    shared: Arc<Shared>,
    place: String,
    /// The server's, for those who are to send it something later.
    url: String,
    spool: Option<PathBuf>,
}

impl Remote {
    pub(super) fn new(
        target: &LogServerTarget,
        shared: &Arc<Shared>,
        limits: LogLimits,
        events: SyncSender<Job>,
    ) -> io::Result<Self> {
        let who = registration(target, limits);
        let spool = target.spool.as_deref().map(|path| spool::create(path, &who)).transpose()?;
        let patience_ns = spool.is_some().then_some(PATIENCE_NS);
        let cut = match target.transport {
            Transport::Tcp => 1,
            Transport::Udp => limits.block_records.div_ceil(limits.datagram_records),
        };
        let config = producer_config(who, (limits.most_blocks() - 1) * cut, patience_ns);
        let machine = LogProducer::new(config, clock::machine_ns());
        let spool = target.spool.clone().zip(spool);
        Ok(Self::with(target.clone(), shared, (machine, limits.datagram_records), spool, events))
    }

    /// The driver of a machine that an earlier process has left in its spool.
    pub(super) fn resume(
        target: LogServerTarget,
        shared: &Arc<Shared>,
        machine: LogProducer,
        spool: (PathBuf, Spool<DiskFile>),
        events: SyncSender<Job>,
    ) -> Self {
        Self::with(target, shared, (machine, UDP_RECORDS), Some(spool), events)
    }

    fn with(
        target: LogServerTarget,
        shared: &Arc<Shared>,
        (machine, datagram_records): (LogProducer, usize),
        spool: Option<(PathBuf, Spool<DiskFile>)>,
        events: SyncSender<Job>,
    ) -> Self {
        let (place, transport) = (target.to_string(), target.transport);
        let url = LogServerTarget { transport: Transport::Tcp, ..target.clone() }.url();
        let (path, spool) = spool.unzip();
        let network = Network {
            target,
            shared: Arc::clone(shared),
            events,
            connection: 0,
            line: None,
            datagrams: None,
            threads: Vec::new(),
            cuts: true,
            together: mmsg::Together::default(),
        };
        let log = RemoteLog::new(network, machine, spool, transport, datagram_records);
        Self { log, shared: Arc::clone(shared), place, url, spool: path }
    }

    /// Runs until the server has taken its leave; says once whether the log was registered.
    pub(super) fn run(
        mut self,
        queue: &Receiver<Job>,
        info: LogInfo,
        ready: &SyncSender<Result<(), String>>,
    ) -> LogOutcome {
        let mut waiting_for_registration = true;
        self.log.note(&Note::Log(info));
        self.log.note(&Note::Clock(clock_pair::clock_pair()));
        self.feed(ProducerInput::Timer);
        let mut next_clock_ns = clock::monotonic_ns() + CLOCK_EVERY_NS;
        let mut closing = false;
        while !self.is_over() {
            self.step(queue, &mut closing);
            let now = clock::monotonic_ns();
            if now >= next_clock_ns && !closing {
                next_clock_ns = now + CLOCK_EVERY_NS;
                self.log.note(&Note::Clock(clock_pair::clock_pair()));
            }
            if waiting_for_registration && self.log.is_ready() {
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
                Ok(Job::LeftOut(_) | Job::Note(_) | Job::Reopen | Job::Heard(_)) => {}
            }
        }
        self.shared.outcome(outcome.place, outcome.records)
    }

    /// Returns true once the machine has come to its end.
    pub(super) const fn is_over(&self) -> bool {
        self.log.is_over()
    }

    /// Gives the machine an input.
    pub(super) fn feed(&mut self, input: ProducerInput) {
        self.log.feed(input);
    }

    /// Does the next job, if one comes before something else is due.
    pub(super) fn step(&mut self, queue: &Receiver<Job>, closing: &mut bool) {
        let now = clock::machine_ns();
        let wait = self.log.deadline().map_or(CLOCK_EVERY_NS, |at| at.saturating_sub(now));
        // The writer itself holds a sender for its network threads, so the queue has no end.
        if let Ok(job) = queue.recv_timeout(clock::ns(wait.min(CLOCK_EVERY_NS))) {
            self.job(job, closing);
        }
        if self.log.deadline().is_some_and(|at| at <= clock::machine_ns()) {
            self.feed(ProducerInput::Timer);
        }
        // A look at files, once a second at most.
        if let Some(Err(why)) = self.log.link().line.as_mut().map(Line::check) {
            self.log.lose(why);
        }
    }

    fn job(&mut self, job: Job, closing: &mut bool) {
        match job {
            Job::Records(block, give_back) => self.log.records(block, Way(give_back)),
            Job::LeftOut(records) => self.log.left_out(records),
            Job::Note(note) => self.log.note(&note),
            Job::Settle(answer) => self.shared.answer(&answer),
            // The server's files are its own.
            Job::Reopen => {}
            Job::Heard(event) => self.heard(event),
            Job::Close => {
                *closing = true;
                self.log.note(&Note::Clock(clock_pair::clock_pair()));
                self.log.close(self.shared.lost());
            }
        }
    }

    fn heard(&mut self, event: NetEvent) {
        let current = self.log.link().connection;
        match event {
            NetEvent::Connected(connection, line) if connection == current => {
                match self.log.link().listen(line) {
                    Ok(()) => self.feed(ProducerInput::Connected),
                    Err(why) => self.log.lose(why),
                }
            }
            NetEvent::Heard(connection, message) if connection == current => {
                self.feed(match message {
                    Ok(message) => ProducerInput::Message(message),
                    Err(error) => ProducerInput::Garbage(error),
                });
            }
            NetEvent::Lost(connection, why) if connection == current => self.log.lose(why),
            _ => {}
        }
    }

    /// Ends the threads; what became of a forwarded log, and why it failed, if it did. Removes the
    /// spool if it is empty.
    pub(super) fn end_of_forwarding(mut self) -> (LogFate, Option<String>) {
        let RemoteEnd { fate, reason, .. } = self.end();
        (fate, reason)
    }

    fn end(&mut self) -> RemoteEnd {
        let end = self.log.end();
        self.log.link().join();
        if let Some(path) = self.spool.as_ref().filter(|_| !self.log.has_spooled()) {
            spool::remove(path);
        }
        end
    }

    fn outcome(&mut self) -> LogOutcome {
        let RemoteEnd { fate, reason, lost_records } = self.end();
        if let (Err(why), Some(path)) = (self.log.leave_spool(), &self.spool) {
            tracing::warn!("spool {}: {why}", path.display());
        }
        self.shared.lose(lost_records);
        let mut error = (reason.is_some() || !fate.is_complete()).then(|| {
            let why = reason.map_or_else(String::new, |reason| format!("{reason}; "));
            format!("log on {}: {why}{fate}", self.place)
        });
        if fate.spooled_blocks > 0
            && let (Some(error), Some(path)) = (&mut error, &self.spool)
        {
            let (path, url) = (path.display(), &self.url);
            error.push_str(&format!(
                "; what is missing there is in {path}: send it with `itg-log forward {path} --to {url}`"
            ));
        }
        if let Some(why) = &error {
            fail(&self.shared, why.clone());
        }
        self.shared.outcome(self.place.clone(), fate.stored_records)
    }
}

impl Network {
    /// Starts reading a new connection.
    fn listen(&mut self, line: Line) -> Result<(), String> {
        let reading = line.reader().map_err(|error| error.to_string())?;
        let (connection, events) = (self.connection, self.events.clone());
        self.spawn(move || link::read(reading, connection, &events))?;
        self.line = Some(line);
        Ok(())
    }

    fn spawn(&mut self, work: impl FnOnce() + Send + 'static) -> Result<(), String> {
        self.threads.retain(|thread| !thread.is_finished());
        let thread = thread::Builder::new().name("itg-log-net".to_owned()).spawn(work);
        self.threads.push(thread.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn join(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a network thread of the log stopped on a bug");
            }
        }
    }
}

impl LogLink for Network {
    fn now_ns(&self) -> u64 {
        clock::machine_ns()
    }

    fn connect(&mut self) -> Result<(), String> {
        let (connection, events) = (self.connection, self.events.clone());
        let target = self.target.clone();
        self.spawn(move || link::connect(&target, connection, &events))
    }

    fn hang_up(&mut self) {
        self.connection += 1;
        self.datagrams = None;
        if let Some(line) = self.line.take() {
            line.shut_down();
        }
    }

    fn write(&mut self, head: FrameHead, [first, second]: [&[u8]; 2]) -> Result<(), String> {
        let Some(line) = &mut self.line else { return Ok(()) };
        let head = head.to_bytes();
        let mut slices = [IoSlice::new(&head), IoSlice::new(first), IoSlice::new(second)];
        line.write(&mut slices).map_err(|error| link::why_lost(&error))
    }

    fn prove(&self, text: &[u8]) -> [u8; 32] {
        // Without the secret a wrong proof makes the server say so.
        self.target.secret.as_deref().map_or([0; 32], |secret| prove(secret, text))
    }

    fn open_datagrams(&mut self, port: u16) -> Result<(), String> {
        let any = if self.target.address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let mut to = self.target.address;
        to.set_port(port);
        let socket = UdpSocket::bind(any).and_then(|socket| {
            socket.connect(to)?;
            Ok(socket)
        });
        self.datagrams = Some(socket.map_err(|error| error.to_string())?);
        Ok(())
    }

    fn send_datagram(&mut self, bytes: &[u8]) {
        if let Some(socket) = &self.datagrams
            && let Err(error) = socket.send(bytes)
        {
            // As lost as a datagram on its way: the server's account shows it.
            tracing::debug!(%error, "a datagram was not sent");
        }
    }

    /// Sends them with as few system calls as possible.
    fn send_blocks(&mut self, blocks: &[[&[u8]; 2]]) {
        let Some(socket) = &self.datagrams else { return };
        let mut packets = [Outgoing::new(&[], &[]); BATCH];
        for (packet, [head, body]) in packets.iter_mut().zip(blocks) {
            *packet = Outgoing::new(head, body);
        }
        let mut rest = &packets[..blocks.len()];
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
    }

    fn failed(&mut self, why: String) {
        fail(&self.shared, why);
    }
}

/// Waits until a socket takes a datagram, but not for ever.
fn writable(socket: &UdpSocket) -> bool {
    let mut fds = [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)];
    // An interrupted wait is no reason to give a datagram up.
    !matches!(nix::poll::poll(&mut fds, PollTimeout::from(DATAGRAM_WAIT_MS)), Ok(0))
}
