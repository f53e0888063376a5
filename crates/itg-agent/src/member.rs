//! This process as a member of the group of a run: layers of the ordered log and the replicated experiment,
//! whose messages travel over the connections of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::{Bytes, BytesMut};
use itg_control::{ControlDelivery, ControlRequest, Planted, TELL};
use itg_core::seed::RunSeed;
use itg_engine::clock_pair;
use itg_group::detector::DetectorEvent;
use itg_group::membership::MembershipEvent;
use itg_group::{cast, detector, membership, overlay};
use itg_process::{
    Config, Contract, Ctx, Injected, Layer, Message, Network, Output, Process, ProcessContext,
    Registry, Slot, Time, everybody, frame,
};
use itg_run::figures::{self, Figures};
use itg_socket::clock;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::failure_report::{self, Sign, Signs};
use crate::trust::{self, Line, Trust, Unreachable};
use crate::wire::{Call, Hello, Join, Reply, answered, ask, hear, say};

/// Frames that wait for a member whose connection is slow.
const QUEUE: usize = 4096;
/// Inputs that wait to be handled.
const INBOX: usize = 4096;
/// Between two attempts to reach a member.
const AGAIN: Duration = Duration::from_millis(100);
/// Silence after which a member is excluded.
const EXCLUDE_MS: u64 = 3000;
/// For so long members only call those that know of the run: the console tells all members first.
const FIRST: Duration = Duration::from_secs(5);

/// Input of a member.
enum In {
    Ask(ControlRequest),
    /// Figures of this node's flows.
    Figures(Bytes),
    Frame(Message),
    Up(u32, u64, mpsc::Sender<Bytes>),
    Down(u32, u64),
    /// No process listens any more where this member was.
    Gone(u32),
}

/// A member of the group of a run.
#[derive(Clone)]
pub(crate) struct Member {
    inputs: mpsc::Sender<In>,
    /// Its run, slot and addresses.
    pub(crate) join: Arc<Join>,
    /// Figures of the flows of all nodes together.
    pub(crate) figures: watch::Receiver<Figures>,
    reports: Reports,
    lines: Lines,
    tasks: Arc<Tasks>,
}

/// Number of connections to other members, and number of these to the console.
type Lines = Arc<[AtomicUsize; 2]>;

/// A connection, counted as long as it exists.
struct Connected(Lines, bool);

impl Connected {
    fn new(lines: &Lines, console: bool) -> Self {
        let made = Self(Arc::clone(lines), console);
        made.count(|count| count.fetch_add(1, Ordering::Relaxed));
        made
    }

    fn count(&self, change: impl Fn(&AtomicUsize) -> usize) {
        let counts = if self.1 { 2 } else { 1 };
        for count in self.0.iter().take(counts) {
            change(count);
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.count(|count| count.fetch_sub(1, Ordering::Relaxed));
    }
}

/// Signs known here of members that have failed, by slot.
type Reports = Arc<std::sync::Mutex<BTreeMap<u32, Signs>>>;

/// Ended with the last handle.
struct Tasks(std::sync::Mutex<Vec<JoinHandle<()>>>);

impl Drop for Tasks {
    fn drop(&mut self) {
        let tasks = self.0.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        tasks.iter().for_each(JoinHandle::abort);
    }
}

/// The top of the stack: hands on what the experiment tells.
struct Outlet {
    tells: mpsc::UnboundedSender<ControlDelivery>,
    figures: watch::Sender<Figures>,
}

impl Layer for Outlet {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty == TELL
            && let Some(tell) = ControlDelivery::from_message(&message)
        {
            // No task listens once the run is over.
            drop(self.tells.send(tell));
        }
        match overlay::OverlayDelivery::from_message(&message) {
            // The root has the sum of all: all members get it.
            Some(overlay::OverlayDelivery::Gathered { topic: figures::TOPIC, bytes, .. }) => {
                if let Some(message) =
                    (overlay::OverlayRequest::Spread { lasting: false, bytes }).message()
                {
                    cx.down(message);
                }
            }
            Some(overlay::OverlayDelivery::Spread { bytes, .. }) => {
                if let Some(sum) = Figures::read(&bytes) {
                    self.figures.send_replace(sum);
                }
            }
            _ => {}
        }
    }
}

impl Member {
    /// Becomes the member that `join` says; what the experiment tells comes out of the channel.
    pub(crate) fn begin(
        join: Join,
        trust: &Trust,
    ) -> Result<(Self, mpsc::UnboundedReceiver<ControlDelivery>)> {
        let (tells, told) = mpsc::unbounded_channel();
        let n = join.addresses.len();
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"control\"\nkind = \"cluster\"\n[[process]]\nlayers = [{{ layer = \
             \"detector\", exclude = \"{EXCLUDE_MS}ms\" }}, \"log\", \"membership\", \"overlay\", \"experiment\", \"outlet\"]\n"
        );
        let config = Config::parse(&text, "cluster")?;
        let (sums, figures) = watch::channel(Figures::default());
        let registry = Registry::new().with("outlet", move |_| {
            Ok(Box::new(Outlet { tells: tells.clone(), figures: sums.clone() }))
        });
        let registry = overlay::layers(registry, figures::merge);
        let registry = itg_control::layers(
            membership::layers(detector::layers(cast::layers(registry, cast::Planted::default()))),
            Planted::default(),
        );
        let networks: Arc<[Network]> =
            [Network { name: "control".to_owned(), contract: Contract::STREAM }].into();
        let place = ProcessContext {
            slot: Slot(join.slot),
            incarnation: join.start,
            seed: RunSeed(itg_socket::host::random_u64()),
            networks: &networks,
            everybody: &everybody(config.processes),
        };
        let process = registry.process(&config, &place)?;
        let (inputs, inbox) = mpsc::channel(INBOX);
        let member = Self {
            inputs,
            join: Arc::new(join),
            figures,
            reports: Arc::default(),
            lines: Arc::default(),
            tasks: Arc::new(Tasks(std::sync::Mutex::default())),
        };
        member.keep(tokio::spawn(drive(
            process,
            inbox,
            member.join.slot,
            Arc::clone(&member.reports),
        )));
        for to in 0..member.join.slot {
            let trust = trust.clone();
            let (inputs, join) = (member.inputs.clone(), Arc::clone(&member.join));
            let lines = Arc::clone(&member.lines);
            member.keep(tokio::spawn(reach(trust, join, to, inputs, lines)));
        }
        Ok((member, told))
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.tasks.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(task);
    }

    /// Is no member any more.
    pub(crate) fn end(&self) {
        let mut tasks = self.tasks.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        tasks.drain(..).for_each(|task| task.abort());
    }

    /// Asks the experiment for something.
    pub(crate) async fn ask(&self, ask: ControlRequest) {
        // A member that has ended is told nothing.
        drop(self.inputs.send(In::Ask(ask)).await);
    }

    /// Tells the others what this node knows of its flows.
    pub(crate) fn contribute(&self, figures: &Figures) {
        // With a full queue the next ones will do.
        drop(self.inputs.try_send(In::Figures(figures.to_bytes())));
    }

    /// Takes the first sign since the last question that one of these slots has failed: instant
    /// (CLOCK_MONOTONIC, in nanoseconds), slot and sign.
    pub(crate) fn failure_report(&self, slots: &BTreeSet<u32>) -> Option<(u64, u32, Sign)> {
        let mut reports = self.reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let failure_report = slots.iter().filter_map(|slot| Some((*slot, reports.remove(slot)?)));
        failure_report::first(failure_report)
    }

    /// Carries the frames of another member that has called, as long as the connection lasts.
    pub(crate) async fn carry(&self, line: Line, slot: u32) {
        let console = slot as usize + 1 == self.join.addresses.len();
        let _connected = Connected::new(&self.lines, console);
        carry(line, slot, self.join.slot, &self.inputs).await;
    }

    /// Number of members that it is connected to, and true if the console is one of them.
    pub(crate) fn lines(&self) -> (usize, bool) {
        let [all, console] = &*self.lines;
        (all.load(Ordering::Relaxed), console.load(Ordering::Relaxed) > 0)
    }
}

/// Drives the layers.
async fn drive(mut process: Process, mut inbox: mpsc::Receiver<In>, me: u32, reports: Reports) {
    let now = || Time(clock::monotonic_ns());
    let sign = |suspect: u32, sign: Sign| {
        let mut reports = reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        reports.entry(suspect).or_default().note(now().0, sign);
    };
    let mut lines: BTreeMap<u32, (u64, mpsc::Sender<Bytes>)> = BTreeMap::new();
    process.start(now());
    loop {
        while let Some(output) = process.poll() {
            match output {
                Output::Send { message, to } => {
                    let mut bytes = BytesMut::new();
                    frame::encode(
                        &message,
                        process.incarnation(),
                        process.view_number(),
                        &mut bytes,
                    );
                    let bytes = bytes.freeze();
                    for slot in to.slots() {
                        let sent = lines
                            .get(&slot.0)
                            .is_some_and(|(_, line)| line.try_send(bytes.clone()).is_ok());
                        if !sent {
                            process.refuse(now(), message.clone());
                        }
                    }
                }
                Output::Event(event) => {
                    if let Some(MembershipEvent::Reported { suspect, by, .. }) = event.decode() {
                        sign(suspect.0, Sign::Reported(by.0));
                        continue;
                    }
                    match event.decode() {
                        Some(DetectorEvent::Suspected { slot, .. }) => sign(slot.0, Sign::Silent),
                        Some(DetectorEvent::Trusted { slot, .. }) => {
                            let mut reports =
                                reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                            if let Some(failure_report) = reports.get_mut(&slot.0) {
                                failure_report.heard();
                            }
                        }
                        _ => tracing::debug!("{} {:?}", event.name, event.values),
                    }
                }
                Output::Trace(_) => {}
                Output::Stopped(_) => return,
            }
        }
        let wake = process.next_wake();
        let sleep = async {
            match wake {
                Some(at) => {
                    let left = at.0.saturating_sub(clock::monotonic_ns());
                    tokio::time::sleep(Duration::from_nanos(left)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            input = inbox.recv() => match input {
                None => return,
                Some(In::Ask(ask)) => process.send(now(), ask.message()),
                Some(In::Figures(bytes)) => {
                    let ask = overlay::OverlayRequest::Contribute(figures::TOPIC, bytes);
                    if let Some(message) = ask.message() {
                        process.send(now(), message);
                    }
                }
                Some(In::Frame(message)) => process.deliver(now(), message),
                Some(In::Up(slot, id, line)) => {
                    lines.insert(slot, (id, line));
                    // What was said of it before is over.
                    reports.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&slot);
                    let back = Box::new(Injected::Trust(Slot(slot)));
                    process.control(now(), "membership", back);
                }
                Some(In::Down(slot, id)) => {
                    if lines.get(&slot).is_some_and(|(other, _)| *other == id) {
                        lines.remove(&slot);
                        sign(slot, Sign::Cut);
                    }
                }
                Some(In::Gone(slot)) => {
                    sign(slot, Sign::Reported(me));
                    let gone = Box::new(Injected::Suspect(Slot(slot)));
                    process.control(now(), "membership", gone);
                }
            },
            () = sleep => process.wake(now()),
        }
    }
}

/// Keeps a connection to a member of a lower slot.
async fn reach(trust: Trust, join: Arc<Join>, to: u32, inputs: mpsc::Sender<In>, lines: Lines) {
    let Some(address) = join.addresses.get(to as usize) else { return };
    let began = tokio::time::Instant::now();
    let mut was_there = false;
    loop {
        let begin = began.elapsed() > FIRST;
        match call(&trust, &join, to, address, begin).await {
            Ok(line) => {
                was_there = true;
                let _connected = Connected::new(&lines, false);
                let certificate = trust::certificate(&line);
                tokio::select! {
                    () = carry(line, to, join.slot, &inputs) => {}
                    why = trust.revoked(certificate) => tracing::warn!(to, "turned away: {why}"),
                }
            }
            Err(error) => {
                tracing::debug!(to, %error, "a member is not reached");
                // A host that answers for a process that is gone is as good as its parent.
                if error.refused && was_there && inputs.send(In::Gone(to)).await.is_err() {
                    return;
                }
            }
        }
        if inputs.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Calls a member and tells it who calls.
async fn call(
    trust: &Trust,
    join: &Join,
    to: u32,
    address: &str,
    begin: bool,
) -> Result<Line, Unreachable> {
    let mut line = trust.connect(address).await?;
    let failed = |step| {
        move |error: anyhow::Error| Unreachable { step, text: format!("{error:#}"), refused: false }
    };
    let greeted = greet(&mut line).await.map_err(failed("comparing versions"))?;
    let clock = compare_clocks(&mut line, &greeted.boot_id).await;
    let (offset_ns, uncertainty_ns) = clock.map_err(failed("comparing clocks"))?;
    let ours = Join {
        slot: to,
        from: join.slot,
        start: clock::unix_ns() / 1_000_000,
        offset_ns: join.offset_ns.saturating_add(offset_ns),
        uncertainty_ns: join.uncertainty_ns.saturating_add(uncertainty_ns),
        begin,
        ..join.clone()
    };
    ask(&mut line, &Call::Join(ours)).await.map_err(failed("joining"))?;
    Ok(line)
}

/// Host of an agent that has answered.
#[derive(Clone, Debug)]
pub(crate) struct Greeted {
    /// Name of its host.
    pub(crate) host: String,
    /// Boot of its host.
    pub(crate) boot_id: String,
}

/// Says who calls, and compares versions.
pub(crate) async fn greet(line: &mut Line) -> Result<Greeted> {
    let heard = answered(async {
        say(line, &Hello::ours()).await?;
        hear(line).await
    });
    match heard.await? {
        Reply::Welcome { hello, host, boot_id } => match hello.differs() {
            Some(why) => anyhow::bail!("{why}"),
            None => Ok(Greeted { host, boot_id }),
        },
        Reply::Refused(why) => anyhow::bail!("{why}"),
        other => anyhow::bail!("an answer that makes no sense: {other:?}"),
    }
}

/// Questions for the time; the quickest answer counts.
const PROBES: u32 = 12;

/// Measures the lead of the other clock over this one, and its uncertainty (half of the quickest
/// round trip), in nanoseconds.
pub(crate) async fn compare_clocks(line: &mut Line, boot_id: &str) -> Result<(i64, u64)> {
    if boot_id == itg_socket::host::boot_id() {
        return Ok((0, 0));
    }
    let mut best = (u64::MAX, 0);
    for _ in 0..PROBES {
        let sent = clock_pair::reading();
        let Reply::Clock(there) = ask(line, &Call::Clock).await? else {
            anyhow::bail!("no answer to the question for the time");
        };
        let back = clock::monotonic_ns();
        let took = back.saturating_sub(sent.monotonic_ns);
        let here = sent.unix_ns + took / 2;
        best = best.min((took, i128::from(there) - i128::from(here)));
    }
    let offset = i64::try_from(best.1).unwrap_or(i64::MAX);
    Ok((offset, best.0 / 2))
}

/// Carries frames both ways until the connection ends.
async fn carry(line: Line, slot: u32, me: u32, inputs: &mpsc::Sender<In>) {
    let id = itg_socket::host::random_u64();
    let (mut from, mut to) = tokio::io::split(line);
    let (queue, mut frames) = mpsc::channel::<Bytes>(QUEUE);
    if inputs.send(In::Up(slot, id, queue)).await.is_err() {
        return;
    }
    let writing = async {
        while let Some(frame) = frames.recv().await {
            to.write_all(&frame).await?;
            while let Ok(frame) = frames.try_recv() {
                to.write_all(&frame).await?;
            }
            to.flush().await?;
        }
        // Another connection has taken the place of this one.
        to.shutdown().await
    };
    let reading = async {
        let mut buffer = BytesMut::new();
        loop {
            let bytes = buffer.split().freeze();
            let mut at = 0;
            loop {
                let rest = bytes.slice(at..);
                match frame::decode(&rest, Slot(me), frame::MAX_BODY) {
                    Ok(Some((found, used))) => {
                        at += used;
                        let mut message = found.message;
                        // No member speaks for another.
                        message.src = Slot(slot);
                        if inputs.send(In::Frame(message)).await.is_err() {
                            return Ok(());
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return Err(std::io::Error::other(error)),
                }
            }
            buffer.extend_from_slice(&bytes[at..]);
            if from.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
    };
    let ended: std::io::Result<()> = tokio::select! {
        ended = writing => ended,
        ended = reading => ended,
    };
    if let Err(error) = ended {
        tracing::debug!(slot, %error, "a connection of members has ended");
    }
    // The member may have ended first.
    drop(inputs.send(In::Down(slot, id)).await);
}
