//! A process that one task drives: frames leave by a queue for each other process and come by one inbox.
//!
//! Whoever makes the connections (agents with TLS, remote calls of the benchmarks) puts the queues in, greets as
//! it likes and lets [`carry`] move the frames of a byte stream. A message to a process without a queue, or with
//! a full one, is refused.
//!
//! A process with journals writes them before anything leaves ([`Queues::keep`]). While that fails (a full disk) it
//! does nothing, and tries again: others take it for silent.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use itg_process::{
    LayerWrite, Message, Outgoing, Process, Report, Slot, StopReason, Stored, Time, Transport,
    frame,
};
use itg_socket::clock;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{sleep, timeout};

use crate::frame_reader::FrameReader;
use crate::journal_files::JournalFiles;
use crate::shared::Watch;

/// Time between two attempts to write a journal.
const STORE_AGAIN: Duration = Duration::from_millis(100);

/// Something that the application does with its process, and with the queues of its connections.
pub type Act = Box<dyn FnOnce(&mut Process, &mut Queues, Time) + Send>;

/// Input of a process.
pub enum Input {
    /// A message has come.
    Message(Message),
    /// The application does something.
    Act(Act),
}

impl Input {
    /// The application does this.
    pub fn act(act: impl FnOnce(&mut Process, &mut Queues, Time) + Send + 'static) -> Self {
        Self::Act(Box::new(act))
    }
}

/// Queues of frames to the other processes: the transport.
pub struct Queues {
    queues: BTreeMap<Slot, (u64, Sender<Bytes>)>,
    watch: Watch,
    journals: Option<JournalFiles>,
    /// Writes to journals are not durable yet.
    unstored: bool,
}

impl Queues {
    /// No queues yet; the reports of the process go to `watch`. Nothing is kept.
    #[must_use]
    pub fn new(watch: Watch) -> Self {
        Self { queues: BTreeMap::new(), watch, journals: None, unstored: false }
    }

    /// The same, with journals that are written to these files.
    #[must_use]
    pub fn keep(mut self, journals: JournalFiles) -> Self {
        self.journals = Some(journals);
        self
    }

    /// Writes to the journals; other tasks go on meanwhile where the runtime has threads for them.
    fn store(&mut self, write: impl FnOnce(&mut JournalFiles) -> Stored) -> Stored {
        let Some(journals) = &mut self.journals else { return Stored::Durable };
        let threads = Handle::try_current().map(|handle| handle.runtime_flavor());
        let stored = match threads {
            Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(|| write(journals)),
            _ => write(journals),
        };
        self.unstored = stored == Stored::Later;
        stored
    }

    /// A connection of this number stands: frames to the process go into its queue and no other.
    pub fn connect(&mut self, slot: Slot, number: u64, queue: Sender<Bytes>) {
        self.queues.insert(slot, (number, queue));
    }

    /// Processes that there is a connection to.
    pub fn slots(&self) -> impl Iterator<Item = Slot> {
        self.queues.keys().copied()
    }

    /// A connection has ended; returns true if it was the one that is used.
    pub fn disconnect(&mut self, slot: Slot, number: u64) -> bool {
        let used = self.queues.get(&slot).is_some_and(|(used, _)| *used == number);
        used && self.queues.remove(&slot).is_some()
    }
}

impl Transport for Queues {
    fn send(&mut self, _now: Time, message: &Outgoing, to: Slot) -> bool {
        let queue = self.queues.get(&to);
        queue.is_some_and(|(_, queue)| queue.try_send(message.frame()).is_ok())
    }

    fn persist(&mut self, _now: Time, writes: Vec<LayerWrite>) -> Stored {
        self.store(|journals| journals.persist(writes))
    }

    fn report(&mut self, report: Report) {
        (self.watch)(report);
    }
}

/// Starts a process and drives it until it has stopped, on the machine's monotonic clock. Returns the reason of
/// its stop; `None` when its inbox has closed before.
pub async fn drive(
    mut process: Process,
    mut inbox: Receiver<Input>,
    mut queues: Queues,
) -> Option<StopReason> {
    let now = || Time(clock::monotonic_ns());
    process.start(now());
    loop {
        process.wake(now());
        process.carry_out(now(), &mut queues);
        while queues.unstored {
            sleep(STORE_AGAIN).await;
            if queues.store(JournalFiles::store) == Stored::Durable {
                process.carry_out(now(), &mut queues);
            }
        }
        if let Some(why) = process.stopped() {
            return Some(why);
        }
        let input = match process.next_wake() {
            Some(due) => timeout(Duration::from_nanos(due.since(now())), inbox.recv()).await,
            None => Ok(inbox.recv().await),
        };
        match input {
            Ok(Some(Input::Message(message))) => process.deliver(now(), message),
            Ok(Some(Input::Act(act))) => act(&mut process, &mut queues, now()),
            Ok(None) => return None,
            // A timer is due.
            Err(_) => {}
        }
    }
}

/// Carries frames between process `me` and the process at the other end of a stream, both ways, until the stream
/// ends or its queue has been replaced.
///
/// # Errors
/// The stream is broken, or what comes is no frame.
pub async fn carry(
    stream: impl AsyncRead + AsyncWrite,
    (me, peer): (Slot, Slot),
    mut queue: Receiver<Bytes>,
    inbox: &Sender<Input>,
) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let writing = async {
        while let Some(frame) = queue.recv().await {
            to.write_all(&frame).await?;
            while let Ok(frame) = queue.try_recv() {
                to.write_all(&frame).await?;
            }
            to.flush().await?;
        }
        // Another connection has taken the place of this one.
        to.shutdown().await
    };
    let reading = async {
        let mut reader = FrameReader::new(frame::MAX_BODY);
        let mut frames = Vec::new();
        loop {
            let whole = reader.all(me, &mut frames);
            for frame in frames.drain(..) {
                // No process speaks for another.
                let message = Message { src: peer, ..frame.message };
                if inbox.send(Input::Message(message)).await.is_err() {
                    return Ok(());
                }
            }
            whole.map_err(io::Error::other)?;
            if from.read_buf(reader.buffer()).await? == 0 {
                return Ok(());
            }
        }
    };
    tokio::select! {
        ended = writing => ended,
        ended = reading => ended,
    }
}
