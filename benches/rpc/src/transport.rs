//! A process of layers whose network is remote calls: each frame that it sends to another process is one call,
//! and the next one to the same process waits for its reply.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use itg_mesh::Report;
use itg_mesh::tasks::{Input, Queues, drive};
use itg_process::{Event, Process, Slot, frame};
use itg_trials::MARGIN;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Frames that wait for a process, and calls that wait for their turn.
const QUEUE: usize = 4096;
/// Bytes of a frame's body at most.
const BODY: usize = 1 << 20;

/// Carrier of frames to a process by remote calls.
pub(crate) trait Carry: Sized + Send + 'static {
    /// Puts the frames of incoming calls into the inbox, until it is dropped.
    fn serve(
        listener: TcpListener,
        inbox: Inbox,
    ) -> impl Future<Output = Result<()>> + Send + 'static;

    /// Connects to a process.
    fn connect(at: SocketAddr) -> impl Future<Output = Result<Self>> + Send;

    /// Carries one frame there: done when the reply has come.
    fn carry(&mut self, frame: Bytes) -> impl Future<Output = Result<()>> + Send;
}

/// Inbox of a process, for frames.
#[derive(Clone)]
pub(crate) struct Inbox {
    me: Slot,
    inputs: Sender<Input>,
}

impl Inbox {
    /// Takes a frame; what is none, or comes after the end, is lost.
    pub(crate) async fn take(&self, bytes: &Bytes) {
        if let Ok(Some((frame, _))) = frame::decode(bytes, self.me, BODY) {
            self.inputs.send(Input::Message(frame.message)).await.unwrap_or_default();
        }
    }
}

/// The first byte of a frame, which is the reply to its call.
pub(crate) fn reply(frame: &Bytes) -> Bytes {
    frame.slice(..frame.len().min(1))
}

/// Listens for calls, on any port.
pub(crate) async fn listen() -> Result<TcpListener> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?)
}

/// Runs a process until it has stopped, and returns what its layers said. Its peers listen at these addresses, by
/// slot; what is said to one that has gone is lost.
pub(crate) async fn run<C: Carry>(
    process: Process,
    listener: TcpListener,
    peers: &[SocketAddr],
    limit: Duration,
) -> Result<Vec<Event>> {
    let me = process.slot();
    let (inputs, inbox) = channel(QUEUE);
    let server = Aborted(tokio::spawn(C::serve(listener, Inbox { me, inputs })));
    let events = Arc::new(Mutex::new(Vec::new()));
    let noted = Arc::clone(&events);
    let mut queues = Queues::new(Box::new(move |note| {
        if let Report::Event { event, .. } = note {
            noted.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }));
    let mut links = Vec::new();
    for (slot, at) in (0..).map(Slot).zip(peers).filter(|(slot, _)| *slot != me) {
        let carrier = timeout(MARGIN, C::connect(*at)).await.context("no connection")??;
        let (calls, waiting) = channel(QUEUE);
        queues.connect(slot, 0, calls);
        links.push(Aborted(tokio::spawn(call(carrier, waiting))));
    }
    let Ok(stopped) = timeout(limit, drive(process, inbox, queues)).await else {
        bail!("process {me} did not stop within {limit:?}");
    };
    stopped.context("nobody serves")?;
    // The last words: the others wait for them, but not for ever.
    for task in links {
        drop(timeout(Duration::from_secs(1), task.joined()).await);
    }
    drop(server);
    Ok(std::mem::take(&mut *events.lock().unwrap_or_else(PoisonError::into_inner)))
}

/// A task that is aborted when dropped.
struct Aborted<T>(JoinHandle<T>);

impl<T> Aborted<T> {
    async fn joined(mut self) {
        // What became of the last calls is of no interest.
        drop((&mut self.0).await);
    }
}

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// One call after the other to one process, until it has gone.
async fn call<C: Carry>(mut carrier: C, mut waiting: Receiver<Bytes>) -> Result<()> {
    while let Some(frame) = waiting.recv().await {
        carrier.carry(frame).await?;
    }
    Ok(())
}

/// A process of this configuration at this slot.
pub(crate) fn process(text: &str, slot: u32) -> Result<Process> {
    let config = itg_process::Config::parse(text, "benchmark")?;
    let network =
        itg_process::Network { name: "main".to_owned(), contract: itg_process::Contract::STREAM };
    let seed = itg_core::seed::RunSeed(1);
    let built = super::load::registry().processes(&config, seed, &Arc::from([network]))?;
    built.into_iter().nth(slot as usize).context("no such slot")
}
