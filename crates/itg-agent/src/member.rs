//! This process as a member of the group of a run: layers of the ordered log and the replicated experiment,
//! whose messages travel over the connections of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use itg_control::{ControlDelivery, ControlRequest, Planted, TELL};
use itg_core::seed::RunSeed;
use itg_engine::clock_pair;
use itg_group::detector::DetectorEvent;
use itg_group::membership::MembershipEvent;
use itg_group::{cast, detector, membership};
use itg_members::overlay;
use itg_mesh::Report;
use itg_mesh::journal_files::JournalFiles;
use itg_mesh::tasks::{self, Input, Queues};
use itg_process::{
    Config, Contract, Ctx, Event, Injected, Journals, Layer, Message, Network, Process,
    ProcessContext, Registry, Slot, Time, everybody,
};
use itg_run::figures::{self, Figures};
use itg_socket::clock;
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
/// Time between two heartbeats of a member.
const HEARTBEAT_MS: u64 = 1000;
/// Time within which members say how far they are when something has happened.
const STATUS_MS: u64 = 500;
/// While nothing happens members say how far they are once in this time.
const REST_MS: u64 = 30_000;
/// For so long members only call those that know of the run: the console tells all members first.
const FIRST: Duration = Duration::from_secs(5);

/// A member of the group of a run.
#[derive(Clone)]
pub(crate) struct Member {
    inputs: mpsc::Sender<Input>,
    /// Its run, slot and addresses.
    pub(crate) join: Arc<Join>,
    /// Figures of the flows of all nodes together.
    pub(crate) figures: watch::Receiver<Figures>,
    reports: Reports,
    connected: Connected,
    /// Too few members are reached to agree on anything.
    too_few: Arc<AtomicBool>,
    /// The longest round trip to another member, in nanoseconds.
    round_trip_ns: Arc<AtomicU64>,
    tasks: Arc<Tasks>,
    clock: SharedClock,
}

/// Knowledge of an agent that was started again in a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Again {
    /// It was started several times within a short time.
    pub(crate) restless: bool,
    /// None of its workers of before runs any more.
    pub(crate) alone: bool,
}

/// The clock of this host against the console's, which others measure and tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockOffset {
    /// This clock minus the console's.
    pub(crate) ns: i64,
    pub(crate) uncertainty_ns: u64,
    /// Slot of the member that has told it since this process was started; `None` when none has: the clock may have
    /// been set meanwhile.
    pub(crate) told_by: Option<u32>,
    /// Instant until which somebody is waited for who tells it.
    wait_until_ns: u64,
}

/// Time that others have to tell the offset of a clock after a restart: they connect within a second.
const CLOCK_WAIT_NS: u64 = 3_000_000_000;

type SharedClock = Arc<std::sync::Mutex<ClockOffset>>;

impl ClockOffset {
    fn of(join: &Join, told_by: Option<u32>) -> Self {
        let until_ns = || clock::monotonic_ns().saturating_add(CLOCK_WAIT_NS);
        let wait_until_ns = told_by.map_or_else(until_ns, |_| 0);
        Self { ns: join.offset_ns, uncertainty_ns: join.uncertainty_ns, told_by, wait_until_ns }
    }

    /// Returns true if the offset is known as well as it will be for now: without the console it is that of before.
    pub(crate) fn is_known(&self) -> bool {
        clock::monotonic_ns() >= self.wait_until_ns
    }

    /// Takes what another member has measured, unless one with a higher slot has told it: the console has the
    /// highest, and its own clock. Who does not know its own offset tells none.
    pub(crate) fn take(&mut self, join: &Join) {
        if join.uncertainty_ns < u64::MAX && self.told_by.is_none_or(|slot| slot <= join.from) {
            *self = Self::of(join, Some(join.from));
        }
    }
}

/// Members that this one is connected to.
type Connected = watch::Sender<BTreeSet<Slot>>;

/// Signs known here of members that have failed, by slot.
#[derive(Clone, Default)]
struct Reports(Arc<std::sync::Mutex<BTreeMap<u32, Signs>>>);

impl Reports {
    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u32, Signs>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn note(&self, suspect: u32, now: Time, sign: Sign) {
        self.lock().entry(suspect).or_default().note(now.0, sign);
    }

    /// Takes the signs in what the layers say.
    fn watch(&self, now: Time, event: &Event) {
        if let Some(MembershipEvent::Reported { suspect, by, .. }) = event.decode() {
            return self.note(suspect.0, now, Sign::Reported(by.0));
        }
        match event.decode() {
            Some(DetectorEvent::Suspected { slot, .. }) => self.note(slot.0, now, Sign::Silent),
            Some(DetectorEvent::Trusted { slot, .. }) => {
                if let Some(signs) = self.lock().get_mut(&slot.0) {
                    signs.heard();
                }
            }
            _ => tracing::debug!("{} {:?}", event.name, event.values),
        }
    }
}

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
    /// Figures that the members of this view have been told.
    spread: Bytes,
}

impl Layer for Outlet {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty == TELL
            && let Some(tell) = ControlDelivery::from_message(&message)
        {
            if matches!(tell, ControlDelivery::View { .. }) {
                self.spread = Bytes::new();
            }
            // No task listens once the run is over.
            drop(self.tells.send(tell));
        }
        match overlay::OverlayDelivery::from_message(&message) {
            // The root has the sum of all: all members get it when it has changed.
            Some(overlay::OverlayDelivery::Gathered { topic: figures::TOPIC, bytes, .. })
                if bytes != self.spread =>
            {
                self.spread = bytes.clone();
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
    /// Becomes the member that `join` says, or the one that its journals tell of; what the experiment tells comes out
    /// of the channel.
    pub(crate) fn begin(
        join: Join,
        trust: &Trust,
        journals: Option<(JournalFiles, Journals)>,
        again: Option<Again>,
    ) -> Result<(Self, mpsc::UnboundedReceiver<ControlDelivery>)> {
        let (tells, told) = mpsc::unbounded_channel();
        let (n, alone) = (join.addresses.len(), again.is_some_and(|again| again.alone));
        let text = format!(
            "processes = {n}\n[[network]]\nname = \"control\"\nkind = \"cluster\"\n[[process]]\nlayers = [{{ layer = \
             \"detector\", exclude = \"{EXCLUDE_MS}ms\", ring = \"{HEARTBEAT_MS}ms\" }}, {{ layer = \"log\", \
             status = \"{STATUS_MS}ms\", rest = \"{REST_MS}ms\" }}, \"membership\", \"overlay\", \
             {{ layer = \"experiment\", alone = {alone} }}, \"outlet\"]\n"
        );
        let config = Config::parse(&text, "cluster")?;
        let (sums, figures) = watch::channel(Figures::default());
        let registry = Registry::new().with("outlet", move |_| {
            let (tells, figures) = (tells.clone(), sums.clone());
            Ok(Box::new(Outlet { tells, figures, spread: Bytes::new() }))
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
            journals: journals.as_ref().map(|(_, found)| found),
        };
        let process = registry.process(&config, &place)?;
        let (inputs, inbox) = mpsc::channel(INBOX);
        // What was measured before a restart may hold no more.
        let clock = ClockOffset::of(&join, again.is_none().then_some(join.from));
        let member = Self {
            inputs,
            join: Arc::new(join),
            figures,
            reports: Reports::default(),
            connected: Connected::default(),
            too_few: Arc::default(),
            round_trip_ns: Arc::default(),
            tasks: Arc::new(Tasks(std::sync::Mutex::default())),
            clock: Arc::new(std::sync::Mutex::new(clock)),
        };
        let (reports, too_few) = (member.reports.clone(), Arc::clone(&member.too_few));
        let round_trip_ns = Arc::clone(&member.round_trip_ns);
        let queues = Queues::new(Box::new(move |noted| {
            if let Report::Event { at: now, event, .. } = noted {
                if let Some(MembershipEvent::Suspended { suspended, .. }) = event.decode() {
                    too_few.store(suspended, Ordering::Relaxed);
                }
                if let Some(DetectorEvent::RoundTrips { longest_ns }) = event.decode() {
                    round_trip_ns.store(longest_ns, Ordering::Relaxed);
                }
                reports.watch(now, &event);
            }
        }));
        let queues = match journals {
            Some((files, _)) => queues.keep(files),
            None => queues,
        };
        member.keep(tokio::spawn(async move {
            tasks::drive(process, inbox, queues).await;
        }));
        for to in 0..member.join.slot {
            member.keep(tokio::spawn(reach(trust.clone(), member.links(), to)));
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
        let send = Input::act(move |process, _, now| process.send(now, ask.message()));
        drop(self.inputs.send(send).await);
    }

    /// Asks for something without waiting: a member that takes nothing, as on a full disk, is not asked.
    pub(crate) fn try_ask(&self, ask: &ControlRequest) {
        let message = ask.message();
        drop(self.inputs.try_send(Input::act(move |process, _, now| process.send(now, message))));
    }

    /// Tells the others what this node knows of its flows.
    pub(crate) fn contribute(&self, figures: &Figures) {
        let request = overlay::OverlayRequest::Contribute(figures::TOPIC, figures.to_bytes());
        let Some(message) = request.message() else { return };
        // With a full queue the next ones will do.
        drop(self.inputs.try_send(Input::act(move |process, _, now| process.send(now, message))));
    }

    /// Takes the first sign since the last question that one of these slots has failed: instant
    /// (CLOCK_MONOTONIC, in nanoseconds), slot and sign.
    pub(crate) fn failure_report(&self, slots: &BTreeSet<u32>) -> Option<(u64, u32, Sign)> {
        let mut reports = self.reports.lock();
        let failure_report = slots.iter().filter_map(|slot| Some((*slot, reports.remove(slot)?)));
        failure_report::first(failure_report)
    }

    /// Carries the frames of another member that has called, as long as the connection lasts.
    pub(crate) async fn carry(&self, line: Line, slot: u32) {
        self.links().carry(line, slot).await;
    }

    fn links(&self) -> Links {
        let (inputs, join) = (self.inputs.clone(), Arc::clone(&self.join));
        let connected = self.connected.clone();
        let clock = Arc::clone(&self.clock);
        Links { inputs, join, reports: self.reports.clone(), connected, clock }
    }

    /// The clock of this host against the console's, as far as it is known now.
    pub(crate) fn clock(&self) -> ClockOffset {
        *self.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes what another member has measured, if nothing was told since a restart that is better.
    pub(crate) fn take_clock(&self, join: &Join) {
        self.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take(join);
    }

    /// Slots of the members that it is connected to.
    pub(crate) fn connected(&self) -> BTreeSet<u32> {
        self.connected.borrow().iter().map(|slot| slot.0).collect()
    }

    /// The same, as it changes.
    pub(crate) fn connections(&self) -> watch::Receiver<BTreeSet<Slot>> {
        self.connected.subscribe()
    }

    /// Returns true if too few of the members whose majority decides are reached to agree on anything.
    pub(crate) fn too_few(&self) -> bool {
        self.too_few.load(Ordering::Relaxed)
    }

    /// The longest round trip to another member, as far as it is known.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_nanos(self.round_trip_ns.load(Ordering::Relaxed))
    }

    /// Number of members that it is connected to, and true if the console is one of them.
    pub(crate) fn lines(&self) -> (usize, bool) {
        let connected = self.connected.borrow();
        let is_console = |slot: &Slot| slot.index() + 1 == self.join.addresses.len();
        (connected.len(), connected.iter().any(is_console))
    }
}

/// Parts of a member that its connections need: they do not keep it alive.
struct Links {
    inputs: mpsc::Sender<Input>,
    join: Arc<Join>,
    reports: Reports,
    connected: Connected,
    clock: SharedClock,
}

impl Links {
    /// Lets the process do something; returns false when there is none any more.
    async fn act(
        &self,
        act: impl FnOnce(&mut Process, &mut Queues, Time) + Send + 'static,
    ) -> bool {
        self.inputs.send(Input::act(act)).await.is_ok()
    }

    /// Carries frames both ways until the connection ends.
    async fn carry(&self, line: Line, slot: u32) {
        let number = itg_socket::host::random_u64();
        let (queue, frames) = mpsc::channel::<Bytes>(QUEUE);
        let (reports, connected) = (self.reports.clone(), self.connected.clone());
        let up = self.act(move |process, queues, now| {
            queues.connect(Slot(slot), number, queue);
            connected.send_replace(queues.slots().collect());
            // What was said of it before is over.
            reports.lock().remove(&slot);
            for layer in ["log", "membership"] {
                process.control(now, layer, Box::new(Injected::Trust(Slot(slot))));
            }
        });
        if !up.await {
            return;
        }
        let _connection = Connection { links: self, slot, number };
        // Members ask each other; probes of all these connections would be most of what a group says.
        if let Err(error) = itg_socket::without_probes(line.get_ref().0) {
            tracing::debug!(slot, %error, "options of a connection of members");
        }
        let both = (Slot(self.join.slot), Slot(slot));
        if let Err(error) = tasks::carry(line, both, frames, &self.inputs).await {
            tracing::debug!(slot, %error, "a connection of members has ended");
        }
    }

    /// No process listens any more where a member was.
    async fn gone(&self, slot: u32) -> bool {
        let (reports, me) = (self.reports.clone(), self.join.slot);
        self.act(move |process, _, now| {
            reports.note(slot, now, Sign::Reported(me));
            process.control(now, "membership", Box::new(Injected::Suspect(Slot(slot))));
        })
        .await
    }
}

/// A connection that is carried: its end is told also when the task that carries it is dropped.
struct Connection<'a> {
    links: &'a Links,
    slot: u32,
    number: u64,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let &mut Self { links: Links { inputs, reports, connected, .. }, slot, number } = self;
        let (reports, connected) = (reports.clone(), connected.clone());
        let down = Input::act(move |_, queues, now| {
            if queues.disconnect(Slot(slot), number) {
                connected.send_replace(queues.slots().collect());
                reports.note(slot, now, Sign::Cut);
            }
        });
        // The member may have ended first.
        if let Err(mpsc::error::TrySendError::Full(down)) = inputs.try_send(down)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            let inputs = inputs.clone();
            drop(runtime.spawn(async move { inputs.send(down).await }));
        }
    }
}

/// Keeps a connection to a member of a lower slot.
async fn reach(trust: Trust, links: Links, to: u32) {
    let Some(address) = links.join.addresses.get(to as usize) else { return };
    let began = tokio::time::Instant::now();
    let mut was_there = false;
    loop {
        let begin = began.elapsed() > FIRST;
        let clock = *links.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match call(&trust, (&links.join, clock), to, address, begin).await {
            Ok(line) => {
                was_there = true;
                let certificate = trust::certificate(&line);
                tokio::select! {
                    () = links.carry(line, to) => {}
                    why = trust.revoked(certificate) => tracing::warn!(to, "turned away: {why}"),
                }
            }
            Err(error) => {
                tracing::debug!(to, %error, "a member is not reached");
                // A host that answers for a process that is gone is as good as its parent.
                if error.refused && was_there && !links.gone(to).await {
                    return;
                }
            }
        }
        if links.inputs.is_closed() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

/// Calls a member and tells it who calls.
async fn call(
    trust: &Trust,
    (join, clock): (&Join, ClockOffset),
    to: u32,
    address: &str,
    begin: bool,
) -> Result<Line, Unreachable> {
    let mut line = trust.connect(address).await?;
    let failed = |step| {
        move |error: anyhow::Error| Unreachable { step, text: format!("{error:#}"), refused: false }
    };
    let greeted = greet(&mut line).await.map_err(failed("comparing versions"))?;
    let compared = compare_clocks(&mut line, &greeted.boot_id).await;
    let Compared { offset_ns, uncertainty_ns, .. } =
        compared.map_err(failed("comparing clocks"))?;
    let known_ns = clock.told_by.map_or(u64::MAX, |_| clock.uncertainty_ns);
    let ours = Join {
        slot: to,
        from: join.slot,
        start: clock::unix_ns() / 1_000_000,
        offset_ns: clock.ns.saturating_add(offset_ns),
        uncertainty_ns: known_ns.saturating_add(uncertainty_ns),
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

/// Questions for the time; the quickest answer counts. Behind the first few no more are asked after the time given.
const PROBES: u32 = 12;
const FEW_PROBES: u32 = 3;
const PROBING: Duration = Duration::from_millis(500);

/// Comparison of two clocks, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compared {
    /// Lead of the other clock over this one.
    pub(crate) offset_ns: i64,
    /// Uncertainty of the lead: half of the quickest round trip.
    pub(crate) uncertainty_ns: u64,
    /// The quickest round trip.
    pub(crate) round_trip_ns: u64,
}

/// Measures the lead of the other clock over this one.
pub(crate) async fn compare_clocks(line: &mut Line, boot_id: &str) -> Result<Compared> {
    let mut best = (u64::MAX, 0);
    let began = tokio::time::Instant::now();
    for probe in 0..PROBES {
        if probe >= FEW_PROBES && began.elapsed() > PROBING {
            break;
        }
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
    let same_boot = boot_id == itg_socket::host::boot_id();
    let (offset_ns, uncertainty_ns) = lead(same_boot, offset, best.0 / 2);
    Ok(Compared { offset_ns, uncertainty_ns, round_trip_ns: best.0 })
}

/// Lead of a clock and its uncertainty, as measured, in nanoseconds: none where both hosts have one boot id, unless the
/// measurement contradicts it. Virtual machines from one snapshot have that of the snapshot.
const fn lead(same_boot: bool, offset_ns: i64, uncertainty_ns: u64) -> (i64, u64) {
    if same_boot && offset_ns.unsigned_abs() <= uncertainty_ns {
        (0, 0)
    } else {
        (offset_ns, uncertainty_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Warrant;

    #[test]
    fn one_boot_id_is_one_clock_unless_the_measurement_contradicts_it() {
        for (same_boot, offset_ns, want) in [
            (true, 40_000, (0, 0)),
            (true, -50_000, (0, 0)),
            (true, 3_000_000, (3_000_000, 50_000)),
            (true, i64::MIN, (i64::MIN, 50_000)),
            (false, 40_000, (40_000, 50_000)),
        ] {
            assert_eq!(lead(same_boot, offset_ns, 50_000), want, "{same_boot} {offset_ns}");
        }
    }

    /// The console's word counts most; of who does not know its own offset nothing is taken.
    #[test]
    fn an_offset_from_before_a_restart_gives_way_to_a_fresh_one() {
        let join = |from, offset_ns, uncertainty_ns| Join {
            run: "0".repeat(32),
            start: 2,
            slot: 0,
            from,
            addresses: vec![String::new(); 4],
            offset_ns,
            uncertainty_ns,
            begin: true,
            warrant: Warrant::default(),
        };
        let mut clock = ClockOffset::of(&join(3, 50, 1), None);
        for (from, offset_ns, uncertainty_ns, want) in [
            (2, 7, u64::MAX, (50, None)),
            (1, 6, 2, (6, Some(1))),
            (2, 5, 2, (5, Some(2))),
            (1, 9, 2, (5, Some(2))),
            (3, -4, 2, (-4, Some(3))),
            (2, 8, 2, (-4, Some(3))),
            (3, -3, 2, (-3, Some(3))),
        ] {
            clock.take(&join(from, offset_ns, uncertainty_ns));
            assert_eq!((clock.ns, clock.told_by), want, "from {from}: {offset_ns}");
        }
    }
}
