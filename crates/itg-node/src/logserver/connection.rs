//! One connection of a producer: reads frames, drives the session, hands blocks to the writer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use itg_engine::log::prove;
use itg_session::logs::{
    self, FrameHead, LogCodecError, LogMessage, LogServerConfig, LogServerSession,
    LogServerTimeouts, NO_MEMORY, NO_ROOM, ServerInput, ServerOutput, SessionId, block_input,
};
use itg_socket::{clock, host};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::files;
use super::line::{Line, Reading, Writing, frame_of, revoked};
use super::shared::{Listener, SessionInput, Shared};
use crate::connection_slots::{ConnectionSlot, NoSlot};
use crate::control;
use crate::lock::lock;

/// Longest time in which a producer must accept a message.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);
/// Frames that were read and not looked at yet.
const FRAMES_AHEAD: usize = 4;

/// Event on a producer's connection.
enum Frame {
    Message(Result<LogMessage, LogCodecError>),
    Block(Vec<u8>),
    Lost(String),
}

pub(super) struct Connection {
    id: SessionId,
    token: u64,
    shared: Arc<Shared>,
    peer: SocketAddr,
    session: LogServerSession,
    told: mpsc::UnboundedSender<SessionInput>,
    tellings: mpsc::UnboundedReceiver<SessionInput>,
    /// Bytes of datagrams among the tellings.
    queued: Arc<AtomicU64>,
    /// Largest block that may come, for the reader.
    block_bytes: Arc<AtomicU32>,
    bound: Option<SocketAddr>,
    /// The block and the address that the machine is being asked about.
    block: Option<(Vec<u8>, u32)>,
    binding: Option<SocketAddr>,
    /// A block was refused for want of room, which has been told.
    refused: bool,
}

impl Connection {
    pub(super) fn new(id: SessionId, shared: Arc<Shared>, peer: SocketAddr) -> Self {
        let (told, tellings) = mpsc::unbounded_channel();
        let queued = Arc::new(AtomicU64::new(0));
        let listener = Listener { to: told.clone(), queued: Arc::clone(&queued) };
        lock(&shared.sessions).insert(id, listener);
        let token = host::random_u64();
        lock(&shared.tokens).insert(token, id);
        let nonce = shared.options.secret.is_some().then(|| {
            let mut nonce = [0; 32];
            for word in nonce.chunks_exact_mut(8) {
                word.copy_from_slice(&host::random_u64().to_le_bytes());
            }
            nonce
        });
        let timeouts = LogServerTimeouts::default();
        let config = LogServerConfig {
            id,
            nonce,
            token,
            data_port: shared.data_port,
            record_schema: itg_record::RECORD_SCHEMA,
            timeouts,
        };
        Self {
            session: LogServerSession::new(config, clock::machine_ns()),
            id,
            token,
            shared,
            peer,
            told,
            tellings,
            queued,
            block_bytes: Arc::new(AtomicU32::new(0)),
            bound: None,
            block: None,
            binding: None,
            refused: false,
        }
    }

    pub(super) async fn run(
        mut self,
        line: Line,
        place: ConnectionSlot,
        mut stop: watch::Receiver<Option<String>>,
    ) {
        let Line { reading, mut writing, mut proof } = line;
        let (frames, mut framed) = mpsc::channel(FRAMES_AHEAD);
        let reader = tokio::spawn(read(reading, Arc::clone(&self.block_bytes), frames));
        let mut stopping = false;
        let mut connected = true;
        while !(self.session.is_over() && self.session.unsettled() == 0) {
            if self.session.log().is_some() {
                place.settle();
            }
            tokio::select! {
                biased;
                frame = framed.recv(), if connected => match frame {
                    Some(Frame::Message(Ok(message))) => {
                        self.handle(ServerInput::Message(message), &mut writing).await;
                    }
                    Some(Frame::Message(Err(error))) => {
                        self.handle(ServerInput::Garbage(error), &mut writing).await;
                    }
                    Some(Frame::Block(bytes)) => self.arrived(bytes, &mut writing).await,
                    Some(Frame::Lost(why)) => {
                        connected = false;
                        self.handle(ServerInput::Lost(why), &mut writing).await;
                    }
                    None => connected = false,
                },
                Some(told) = self.tellings.recv() => match told {
                    SessionInput::Input(input) => self.handle(input, &mut writing).await,
                    SessionInput::Datagram(bytes) => {
                        let len = bytes.len() as u64;
                        self.queued.fetch_sub(len, Ordering::Relaxed);
                        self.arrived(bytes, &mut writing).await;
                    }
                    SessionInput::Bind(input, from) => {
                        self.binding = Some(from);
                        self.handle(input, &mut writing).await;
                    }
                },
                () = control::sleep_until(self.session.deadline()) => {
                    self.handle(ServerInput::Timer, &mut writing).await;
                }
                why = revoked(&mut proof) => {
                    (connected, proof) = (false, None);
                    self.handle(ServerInput::Lost(why), &mut writing).await;
                }
                () = place.lost() => self.handle(ServerInput::Displaced, &mut writing).await,
                reason = reason_of(&mut stop), if !stopping => {
                    stopping = true;
                    let reason = reason.unwrap_or_else(|| "the log server ends".to_owned());
                    self.handle(ServerInput::Shutdown(reason), &mut writing).await;
                }
            }
        }
        // Fails when the producer has gone before.
        drop(timeout(WRITE_TIMEOUT, writing.shutdown()).await);
        reader.abort();
        lock(&self.shared.sessions).remove(&self.id);
        lock(&self.shared.tokens).remove(&self.token);
        if let Some(address) = self.bound {
            lock(&self.shared.addresses).remove(&address);
        }
    }

    /// A block came, by TCP or in a datagram.
    async fn arrived(&mut self, bytes: Vec<u8>, writing: &mut Writing) {
        let input = block_input(&bytes, self.bound.is_some());
        if !matches!(input, ServerInput::Block { intact: true, .. }) {
            tracing::debug!(peer = %self.peer, "a damaged block");
        }
        let records = match input {
            ServerInput::Block { records, .. } => records,
            _ => 0,
        };
        self.block = Some((bytes, records));
        self.handle(input, writing).await;
        self.block = None;
    }

    async fn handle(&mut self, input: ServerInput, writing: &mut Writing) {
        let mut inputs = vec![input];
        let mut out = Vec::new();
        while let Some(input) = inputs.pop() {
            {
                let mut book = lock(&self.shared.book);
                self.session.handle(clock::machine_ns(), input, &mut book, &mut out);
            }
            self.block_bytes.store(self.session.block_bytes().unwrap_or(0), Ordering::Relaxed);
            for output in out.drain(..) {
                match output {
                    ServerOutput::Send(message) => {
                        if let LogMessage::Refused { reason, .. } = &message {
                            tracing::warn!("{} is refused: {reason}", self.peer);
                            self.shared.counts.refused();
                        }
                        if let Err(why) = say(writing, &message).await {
                            inputs.push(ServerInput::Lost(why));
                        }
                    }
                    other => inputs.extend(self.act(other)),
                }
            }
        }
    }

    /// Does what the machine says; an answer if it waits for one.
    fn act(&mut self, output: ServerOutput) -> Option<ServerInput> {
        match output {
            ServerOutput::Send(_) => {}
            ServerOutput::Check { text, proof } => {
                let secret = self.shared.options.secret.as_deref().unwrap_or_default();
                let right = prove(secret, &text);
                // Without an early end that would tell how much was right.
                let differ = right.iter().zip(&proof).fold(0, |sum, (a, b)| sum | (a ^ b));
                return Some(ServerInput::Checked(differ == 0));
            }
            ServerOutput::Open { run } => {
                let opened = tokio::task::block_in_place(|| self.shared.open(&run));
                return Some(ServerInput::Opened(opened));
            }
            ServerOutput::Enrol { run, log_id, who } => {
                tracing::info!(
                    "{}: log {log_id} of {} ({}) joins {run}",
                    self.peer,
                    who.host,
                    who.program
                );
                if let Some(experiment) = lock(&self.shared.experiments).get(&run) {
                    experiment.enrol(log_id, &who);
                }
            }
            ServerOutput::Authorise => {
                if let Some(from) = self.binding.take() {
                    lock(&self.shared.addresses).insert(from, self.id);
                    if let Some(before) = self.bound.replace(from).filter(|before| *before != from)
                    {
                        lock(&self.shared.addresses).remove(&before);
                    }
                }
            }
            ServerOutput::Store { block_no, .. } => {
                let run = self.session.log().map(|(run, _)| run.to_owned()).unwrap_or_default();
                let tell = self.told.clone();
                match (self.block.take(), lock(&self.shared.experiments).get(&run)) {
                    (Some((bytes, records)), Some(experiment)) => {
                        experiment.store(files::Block { bytes, records, block_no, tell });
                    }
                    _ => {
                        let reason = "the files of the experiment are closed".to_owned();
                        return Some(ServerInput::StoreFailed { block_no, reason });
                    }
                }
            }
            ServerOutput::Duplicate { block_no, same: true } => {
                tracing::debug!(block_no, peer = %self.peer, "a block came again");
            }
            ServerOutput::Duplicate { block_no, same: false } => {
                let (run, log_id) = self.session.log().unwrap_or_default();
                tracing::warn!(
                    "{}: block {block_no} of log {log_id} of {run} came with other contents than those stored \
                     before, which are kept: another program writes to this log",
                    self.peer
                );
            }
            ServerOutput::Discard { block_no, reason: reason @ (NO_ROOM | NO_MEMORY) } => {
                self.refused_for_want_of_room(block_no, reason);
            }
            ServerOutput::Discard { block_no, reason } => {
                tracing::debug!(block_no, reason, peer = %self.peer, "a block was discarded");
            }
            ServerOutput::Wake(session) => {
                self.shared.tell(session, SessionInput::Input(ServerInput::Woken));
            }
            ServerOutput::Account(account) => {
                self.shared.counts.account(&account);
                // The program may have stopped listening.
                drop(self.shared.accounts.send(*account));
            }
            ServerOutput::Idle { run } => {
                tokio::task::block_in_place(|| self.shared.close(&run));
            }
            ServerOutput::Disconnect { reason } => {
                tracing::info!("{}: {reason}", self.peer);
            }
        }
        None
    }
}

impl Connection {
    /// Counts a block for which there is no room; says so for the first one.
    fn refused_for_want_of_room(&mut self, block_no: u32, reason: &str) {
        self.shared.counts.refused_block();
        if !std::mem::replace(&mut self.refused, true) {
            let (run, log_id) = self.session.log().unwrap_or_default();
            tracing::warn!(
                "{}: block {block_no} of log {log_id} of {run} is refused: {reason}; so are others as long as that is so",
                self.peer
            );
        }
    }
}

/// Says that there are too many connections, if that can be said at once.
pub(super) fn turn_away(stream: &TcpStream, why: NoSlot) {
    let reason = why.to_string();
    if let Ok(frame) = frame_of(&LogMessage::Refused { reason, again: true }) {
        // It may have gone; the connection ends in any case.
        stream.try_write(&frame).unwrap_or_default();
    }
}

/// Waits until the server is to stop, and says why.
pub(super) async fn reason_of(stop: &mut watch::Receiver<Option<String>>) -> Option<String> {
    stop.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone())
}

async fn say(writing: &mut Writing, message: &LogMessage) -> Result<(), String> {
    let frame = frame_of(message)?;
    let writing = async {
        writing.write_all(&frame).await?;
        writing.flush().await
    };
    match timeout(WRITE_TIMEOUT, writing).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("it takes no more messages".to_owned()),
    }
}

/// Reads frames until the connection ends or breaks the rules.
async fn read(mut from: Reading, block_bytes: Arc<AtomicU32>, frames: mpsc::Sender<Frame>) {
    loop {
        let frame = match read_frame(&mut from, &block_bytes).await {
            Ok(frame) => frame,
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => {
                Frame::Lost("the connection was closed".to_owned())
            }
            Err(error) => Frame::Lost(error.to_string()),
        };
        let last = matches!(frame, Frame::Lost(_) | Frame::Message(Err(_)));
        if frames.send(frame).await.is_err() || last {
            return;
        }
    }
}

async fn read_frame(from: &mut Reading, block_bytes: &AtomicU32) -> std::io::Result<Frame> {
    let mut head = [0; 4];
    from.read_exact(&mut head).await?;
    let head = match FrameHead::parse(head, block_bytes.load(Ordering::Relaxed)) {
        Ok(head) => head,
        Err(error) => return Ok(Frame::Message(Err(error))),
    };
    let mut bytes = vec![0; head.len as usize];
    from.read_exact(&mut bytes).await?;
    Ok(if head.is_block { Frame::Block(bytes) } else { Frame::Message(logs::decode(&bytes)) })
}
