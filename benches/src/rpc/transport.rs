//! A process of layers whose network is remote calls: each frame that it sends to another process is one call,
//! and the next one to the same process waits for its reply.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::{Bytes, BytesMut};
use itg_process::{Dest, Event, Message, Output, Process, Slot, Time, frame};
use tokio::net::TcpListener;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::runtime::MARGIN;

/// Frames that wait for a process, and calls that wait for their turn.
const QUEUE: usize = 4096;
/// Bytes of a frame's body at most.
const BODY: usize = 1 << 20;

/// Carrier of frames to a process by remote calls.
pub(crate) trait Carry: Sized + Send + 'static {
    /// Puts the frames of incoming calls into the inbox, until it is dropped.
    fn serve(
        listener: TcpListener,
        inbox: Sender<Bytes>,
    ) -> impl Future<Output = Result<()>> + Send + 'static;

    /// Connects to a process.
    fn connect(at: SocketAddr) -> impl Future<Output = Result<Self>> + Send;

    /// Carries one frame there: done when the reply has come.
    fn carry(&mut self, frame: Bytes) -> impl Future<Output = Result<()>> + Send;
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
    mut process: Process,
    listener: TcpListener,
    peers: &[SocketAddr],
    limit: Duration,
) -> Result<Vec<Event>> {
    let (inbox, mut frames) = channel(QUEUE);
    let server = Aborted(tokio::spawn(C::serve(listener, inbox)));
    let mut links = Vec::new();
    for (slot, at) in peers.iter().enumerate() {
        links.push(if slot == process.slot().index() {
            None
        } else {
            let carrier = timeout(MARGIN, C::connect(*at)).await.context("no connection")??;
            let (calls, waiting) = channel(QUEUE);
            Some((calls, Aborted(tokio::spawn(call(carrier, waiting)))))
        });
    }
    let begin = Instant::now();
    let now = || Time(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX));
    let mut events = Vec::new();
    process.start(now());
    while process.stopped().is_none() || process.has_output() {
        while let Some(output) = process.poll() {
            match output {
                Output::Send { message, to } => {
                    let frame = framed(&process, &message);
                    for &to in to.slots() {
                        let link = links.get(to.index()).and_then(Option::as_ref);
                        if link.is_none_or(|(calls, _)| calls.try_send(frame.clone()).is_err()) {
                            let copy = Message { dst: Dest::One(to), ..message.clone() };
                            process.refuse(now(), copy);
                        }
                    }
                }
                Output::Event(event) => events.push(event),
                Output::Trace(_) | Output::Stopped(_) => {}
            }
        }
        if process.stopped().is_some() {
            break;
        }
        if begin.elapsed() > limit {
            bail!("process {} did not stop within {limit:?}", process.slot());
        }
        // A process that does not wait for a timer looks now and then whether the time is over.
        let wait = process.next_wake().map_or(MARGIN, |due| Duration::from_nanos(due.since(now())));
        tokio::select! {
            frame = frames.recv() => take(&mut process, now(), &frame.context("nobody serves")?)?,
            () = sleep(wait.min(MARGIN)) => process.wake(now()),
        }
    }
    // The last words: the others wait for them, but not for ever.
    for (calls, task) in links.into_iter().flatten() {
        drop(calls);
        drop(timeout(Duration::from_secs(1), task.joined()).await);
    }
    drop(server);
    Ok(events)
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

fn framed(process: &Process, message: &Message) -> Bytes {
    let mut bytes = BytesMut::new();
    frame::encode(message, process.incarnation(), process.view_number(), &mut bytes);
    bytes.freeze()
}

fn take(process: &mut Process, now: Time, bytes: &Bytes) -> Result<()> {
    let frame = frame::decode(bytes, process.slot(), BODY)?.context("half a frame")?;
    process.deliver(now, frame.0.message);
    Ok(())
}

/// A process of this configuration at this slot.
pub(crate) fn process(text: &str, slot: u32) -> Result<Process> {
    let config = itg_process::Config::parse(text, "benchmark")?;
    let everybody = itg_process::everybody(config.processes);
    let network =
        itg_process::Network { name: "main".to_owned(), contract: itg_process::Contract::STREAM };
    let place = itg_process::ProcessContext {
        slot: Slot(slot),
        incarnation: 1,
        seed: itg_core::seed::RunSeed(1),
        networks: &Arc::from([network]),
        everybody: &everybody,
    };
    Ok(super::load::registry().process(&config, &place)?)
}
