//! The part of a run that a node does: one receiver, and workers that send its flows as long as the group
//! wants it to.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use itg_experiment::Plan;
use itg_experiment::control::{Ask, Command, Phase, Replica, Tell};
use itg_net::{ClassicReceiving, LogLimits, LogTarget, Receiver, ReceiverOptions, clock};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;

use super::description::Description;
use super::member::Member;
use super::policy::Policy;
use super::worker::{Job, News, Order};

/// A flow whose receiver was not there is tried again after this time.
const AGAIN_NS: u64 = 200_000_000;
/// The longest pause before it is tried again.
const MOST_PAUSE_NS: u64 = 2_000_000_000;
/// How often it looks what is to be done.
const LOOK: Duration = Duration::from_millis(100);
/// A flow that cannot be sent is given up this long after its last packet was due.
const GIVE_UP_NS: u64 = 1_000_000_000;
/// A run whose console is gone is looked at this often.
const ORPHAN: Duration = Duration::from_secs(1);

/// What others may know of the work.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) name: String,
    pub(crate) nodes: Vec<String>,
    pub(crate) view: u64,
    /// Workers that run.
    pub(crate) workers: usize,
    /// No worker runs, and none will.
    pub(crate) drained: bool,
    /// All logs are closed.
    pub(crate) closed: bool,
    /// Slots of the view.
    pub(crate) slots: Vec<u32>,
}

/// The work of a run, as its agent sees it.
#[derive(Clone)]
pub(crate) struct Handle {
    pub(crate) member: Member,
    pub(crate) seen: Arc<Mutex<Seen>>,
    pub(crate) applied: broadcast::Sender<(u32, u64, Command, Option<String>)>,
    pub(crate) replica: watch::Receiver<Option<Replica>>,
}

impl Handle {
    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, as this member knows it now.
    pub(crate) async fn look(&self) -> Option<Replica> {
        let mut replica = self.replica.clone();
        replica.mark_unchanged();
        self.member.ask(Ask::Look).await;
        let waiting = tokio::time::timeout(Duration::from_secs(2), replica.changed());
        if !matches!(waiting.await, Ok(Ok(()))) {
            return None;
        }
        replica.borrow().clone()
    }
}

/// What does not change.
pub(crate) struct Setup {
    pub(crate) policy: Arc<Policy>,
    pub(crate) dir: PathBuf,
    /// Where the receiver listens.
    pub(crate) listen: SocketAddr,
}

/// A flow that this node is to send.
struct Duty {
    fence: u16,
    /// From when on it may leave; `None` for the first owner at the start.
    resume_ns: Option<u64>,
    /// Which worker sends it.
    worker: Option<u64>,
    /// When it is tried (again).
    at_ns: u64,
    /// How long it waited the last time.
    pause_ns: u64,
}

struct Worker {
    orders: mpsc::UnboundedSender<Order>,
    flows: BTreeSet<u32>,
    /// Waits for its end and kills it when dropped.
    task: JoinHandle<()>,
}

enum Event {
    News(News),
    Gone(String),
}

/// What is known of the experiment once its description has come.
struct Known {
    description: Description,
    plan: Plan,
    /// Receivers by flow, with their slots.
    receivers: BTreeMap<u32, (u32, SocketAddr)>,
    end: watch::Sender<Option<String>>,
    receiving: Option<JoinHandle<itg_net::ReceiverOutcome>>,
    /// When the last packet of each flow is due, counted from the start of the run.
    ends_ns: BTreeMap<u32, u64>,
}

struct Work {
    setup: Setup,
    handle: Handle,
    replica: watch::Sender<Option<Replica>>,
    known: Option<Known>,
    duties: BTreeMap<u32, Duty>,
    /// Flows that are being stopped, with their fences.
    ceasing: BTreeMap<u32, u16>,
    workers: BTreeMap<u64, Worker>,
    next_worker: u64,
    news: mpsc::UnboundedSender<(u64, Event)>,
    lease_ns: u64,
    /// Start of the run by this host's clock.
    t0_unix_ns: u64,
    draining: bool,
    ending: bool,
}

/// Does the work of a run until it is over.
pub(crate) fn begin(
    setup: Setup,
    member: Member,
    told: mpsc::UnboundedReceiver<Tell>,
) -> (Handle, JoinHandle<()>) {
    let (replica, looks) = watch::channel(None);
    let handle = Handle {
        member,
        seen: Arc::default(),
        applied: broadcast::channel(1024).0,
        replica: looks,
    };
    let (news, events) = mpsc::unbounded_channel();
    let work = Work {
        setup,
        handle: handle.clone(),
        replica,
        known: None,
        duties: BTreeMap::new(),
        ceasing: BTreeMap::new(),
        workers: BTreeMap::new(),
        next_worker: 0,
        news,
        lease_ns: 0,
        t0_unix_ns: 0,
        draining: false,
        ending: false,
    };
    (handle, tokio::spawn(work.run(told, events)))
}

impl Work {
    async fn run(
        mut self,
        mut told: mpsc::UnboundedReceiver<Tell>,
        mut events: mpsc::UnboundedReceiver<(u64, Event)>,
    ) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut orphan = tokio::time::interval(ORPHAN);
        orphan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                tell = told.recv() => {
                    let Some(tell) = tell else { break };
                    self.told(tell).await;
                    // What comes together is sent together.
                    while let Ok(tell) = told.try_recv() {
                        self.told(tell).await;
                    }
                }
                Some((worker, event)) = events.recv() => self.heard(worker, event).await,
                _ = look.tick() => {}
                _ = orphan.tick(), if self.alone() => self.handle.member.ask(Ask::Look).await,
            }
            self.give_up().await;
            self.send_what_is_due();
            if self.draining && self.workers.is_empty() {
                self.handle.seen().drained = true;
                if self.ending {
                    self.close().await;
                    break;
                }
            }
            self.handle.seen().workers = self.workers.len();
        }
    }

    /// Whether the console has gone.
    fn alone(&self) -> bool {
        let seen = self.handle.seen();
        let console = u32::try_from(self.handle.member.join.addresses.len()).unwrap_or(0) - 1;
        !seen.slots.is_empty() && !seen.slots.contains(&console)
    }

    async fn told(&mut self, tell: Tell) {
        match tell {
            Tell::Graph(bytes) => {
                let answer = match self.learn(&bytes).await {
                    Ok(()) => Ask::Able,
                    Err(error) => Ask::Unable(format!("{error:#}")),
                };
                self.handle.member.ask(answer).await;
            }
            Tell::Emit { flow, fence, not_before_ns, t0_unix_ns } => {
                let offset = self.handle.member.join.offset_ns;
                self.t0_unix_ns = t0_unix_ns.saturating_add_signed(offset);
                let early = fence == 0 && clock::unix_ns() < self.t0_unix_ns;
                let resume_ns = (!early).then_some(not_before_ns);
                self.ceasing.remove(&flow);
                self.duties
                    .insert(flow, Duty { fence, resume_ns, worker: None, at_ns: 0, pause_ns: 0 });
            }
            Tell::Cease { flow, fence } => {
                let worker = self.duties.remove(&flow).and_then(|duty| duty.worker);
                self.cease(flow, fence, worker).await;
            }
            Tell::Lease(until) => {
                self.lease_ns = until;
                self.order(|| Order::Lease(until));
            }
            Tell::Fenced => {
                self.lease_ns = 0;
                self.order(|| Order::Lease(0));
            }
            Tell::Applied { position, by, command, void } => {
                if void.is_none() {
                    match command {
                        Command::Drain => self.draining = true,
                        Command::End => (self.draining, self.ending) = (true, true),
                        _ => {}
                    }
                }
                // Nobody may be waiting.
                drop(self.handle.applied.send((by, position, command, void)));
            }
            Tell::State(replica) => {
                // Who was away when it was said learns it from the state that it gets.
                self.draining |= replica.phase() >= Phase::Draining;
                self.ending |= replica.phase() >= Phase::Ended;
                // Without the console nobody drains.
                if self.alone() && replica.is_settled() {
                    (self.draining, self.ending) = (true, true);
                }
                self.replica.send_replace(Some(*replica));
            }
            Tell::View { number, slots } => {
                let mut seen = self.handle.seen();
                (seen.view, seen.slots) = (number, slots);
            }
        }
    }

    /// Makes ready for an experiment: the plan, whether it is allowed, the receiver.
    async fn learn(&mut self, bytes: &[u8]) -> Result<()> {
        if self.known.is_some() {
            return Ok(());
        }
        let description = Description::read(bytes)?;
        let (_, plan) = description.plan()?;
        let routes = description.routes(&plan)?;
        let receivers = description.receivers.clone();
        let resolved: Vec<SocketAddr> = tokio::task::spawn_blocking(move || {
            let one = |at: &String| itg_net::resolve(at, super::wire::AGENT_PORT + 1);
            receivers.iter().map(one).collect::<Result<_, _>>()
        })
        .await??;
        if let Some(route) = routes.iter().find(|route| route.to as usize >= resolved.len()) {
            bail!("a flow goes to node {}, of which the description has no address", route.to);
        }
        let targets: BTreeSet<IpAddr> =
            routes.iter().map(|route| resolved[route.to as usize].ip()).collect();
        let targets: Vec<IpAddr> = targets.into_iter().collect();
        self.setup.policy.allows(&plan, &targets).map_err(|why| anyhow!(why))?;
        std::fs::create_dir_all(&self.setup.dir)
            .with_context(|| format!("directory {}", self.setup.dir.display()))?;
        let start = self.handle.member.join.start;
        let receiver = Receiver::bind(ReceiverOptions {
            shards: 1,
            busy_poll_us: None,
            receive_buffer: None,
            listen: self.setup.listen,
            data_port: 0,
            log: Some(LogTarget::File(self.setup.dir.join(format!("receiver-{start}.itg")))),
            log_limits: LogLimits::default(),
            allow_log_servers: false,
            secret: None,
            log_dir: None,
            once: false,
            classic: ClassicReceiving::default(),
            program: "itg-cluster".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: BTreeMap::new(),
        })?;
        let (end, ended) = watch::channel(None);
        let receiving = Some(tokio::spawn(receiver.serve(ended)));
        let estimate = plan.estimate();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "times are positive, and saturate"
        )]
        let ends_ns = estimate.flows.iter().map(|flow| (flow.flow, flow.end_ns as u64)).collect();
        let flows = plan.flows.iter().map(|flow| flow.flow.spec().id);
        let receivers =
            flows.zip(&routes).map(|(flow, r)| (flow, (r.to, resolved[r.to as usize]))).collect();
        {
            let mut seen = self.handle.seen();
            (seen.name, seen.nodes) = (plan.name.clone(), description.nodes.clone());
        }
        self.known = Some(Known { description, plan, receivers, end, receiving, ends_ns });
        Ok(())
    }

    fn order(&self, order: impl Fn() -> Order) {
        for worker in self.workers.values() {
            // One that has ended is reaped by its event.
            drop(worker.orders.send(order()));
        }
    }

    async fn cease(&mut self, flow: u32, fence: u16, worker: Option<u64>) {
        match worker.and_then(|id| self.workers.get(&id)) {
            Some(worker) if worker.flows.contains(&flow) => {
                self.ceasing.insert(flow, fence);
                drop(worker.orders.send(Order::Stop(flow)));
            }
            _ => self.handle.member.ask(Ask::Ended(flow, fence, 0)).await,
        }
    }

    async fn heard(&mut self, id: u64, event: Event) {
        match event {
            Event::News(News::Ended { flow, next, reason, whole }) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.flows.remove(&flow);
                }
                self.ended(id, flow, next, &reason, whole).await;
            }
            Event::Gone(why) => {
                let Some(worker) = self.workers.remove(&id) else { return };
                if !worker.flows.is_empty() {
                    tracing::warn!(
                        "a worker has ended ({why}): {} flows go on in another one",
                        worker.flows.len()
                    );
                }
                for flow in worker.flows {
                    if let Some(fence) = self.ceasing.remove(&flow) {
                        self.handle.member.ask(Ask::Ended(flow, fence, 0)).await;
                    }
                    if let Some(duty) = self.duties.get_mut(&flow).filter(|d| d.worker == Some(id))
                    {
                        // Its parent has seen it end: there is nothing to wait for.
                        let now = clock::monotonic_ns();
                        let resume_ns = Some(duty.resume_ns.map_or(now, |at| at.max(now)));
                        (duty.worker, duty.resume_ns, duty.at_ns) = (None, resume_ns, 0);
                    }
                }
            }
        }
    }

    /// A worker sends a flow no more.
    async fn ended(&mut self, id: u64, flow: u32, next: u64, reason: &str, whole: bool) {
        if let Some(fence) = self.ceasing.remove(&flow) {
            self.handle.member.ask(Ask::Ended(flow, fence, next)).await;
            return;
        }
        let late = self.is_too_late(flow);
        let Some(duty) = self.duties.get_mut(&flow).filter(|duty| duty.worker == Some(id)) else {
            return;
        };
        if whole || late {
            if !whole {
                tracing::warn!(flow, "given up: {reason}");
            }
            let fence = duty.fence;
            self.duties.remove(&flow);
            self.handle.member.ask(Ask::Ended(flow, fence, next)).await;
            return;
        }
        tracing::info!(flow, "goes on later: {reason}");
        duty.pause_ns = (duty.pause_ns * 2).clamp(AGAIN_NS, MOST_PAUSE_NS);
        let at_ns = clock::monotonic_ns() + duty.pause_ns;
        (duty.worker, duty.resume_ns, duty.at_ns) = (None, Some(at_ns), at_ns);
    }

    /// When the last packet of a flow was due, and it is too late to send any.
    fn is_too_late(&self, flow: u32) -> bool {
        let end_ns = self.known.as_ref().and_then(|known| known.ends_ns.get(&flow).copied());
        let last_ns = self.t0_unix_ns.saturating_add(end_ns.unwrap_or(u64::MAX));
        clock::unix_ns() > last_ns.saturating_add(GIVE_UP_NS)
    }

    /// Ends flows that wait for their receivers and whose time is over.
    async fn give_up(&mut self) {
        let waiting = self.duties.iter().filter(|(_, duty)| duty.worker.is_none());
        let late: Vec<(u32, u16)> = waiting
            .filter(|(flow, _)| self.is_too_late(**flow))
            .map(|(flow, duty)| (*flow, duty.fence))
            .collect();
        for (flow, fence) in late {
            tracing::warn!(flow, "given up: its time is over");
            self.duties.remove(&flow);
            self.handle.member.ask(Ask::Ended(flow, fence, 0)).await;
        }
    }

    /// Starts workers for flows that have none.
    fn send_what_is_due(&mut self) {
        let now = clock::monotonic_ns();
        let Some(known) = &self.known else { return };
        if now >= self.lease_ns && self.lease_ns > 0 || self.draining {
            return;
        }
        // Flows that begin together share a worker. Of those that are resumed only the ones to one receiver: it
        // may not be ready yet, which must not hold up the others.
        let mut jobs: BTreeMap<Option<(u64, u32)>, Vec<u32>> = BTreeMap::new();
        let slots = self.handle.seen().slots.clone();
        for (flow, duty) in &self.duties {
            // A receiver that is not there is waited for; before the first change of the view all are.
            let Some((to, _)) = known.receivers.get(flow).copied() else { continue };
            let there = slots.is_empty() || slots.contains(&to);
            if duty.worker.is_none() && duty.at_ns <= now && there {
                let key = duty.resume_ns.map(|at| (at.max(now), to));
                jobs.entry(key).or_default().push(*flow);
            }
        }
        for (key, flows) in jobs {
            let resume_ns = key.map(|(at, _)| at);
            self.next_worker += 1;
            let id = self.next_worker;
            let start = self.handle.member.join.start;
            let name = format!("sender-{start}-{id}.itg");
            let job = Job {
                description: known.description.clone(),
                flows: flows.iter().map(|flow| (*flow, known.receivers[flow].1)).collect(),
                epoch_unix_ns: self.t0_unix_ns,
                resume_ns,
                lease_ns: self.lease_ns,
                log: self.setup.dir.join(name),
            };
            match start_worker(id, &job, self.news.clone()) {
                Ok(worker) => {
                    for flow in &flows {
                        if let Some(duty) = self.duties.get_mut(flow) {
                            duty.worker = Some(id);
                        }
                    }
                    self.workers.insert(id, worker);
                }
                Err(error) => {
                    tracing::error!("a worker cannot be started: {error:#}");
                    for flow in &flows {
                        if let Some(duty) = self.duties.get_mut(flow) {
                            duty.at_ns = now + AGAIN_NS;
                        }
                    }
                }
            }
        }
    }

    /// Closes the receiver and its log.
    async fn close(&mut self) {
        if let Some(known) = &mut self.known {
            known.end.send_replace(Some("the run is over".to_owned()));
            if let Some(receiving) = known.receiving.take() {
                match receiving.await {
                    Ok(outcome) => {
                        if let Some(error) = outcome.log.and_then(|log| log.error) {
                            tracing::error!("the receiver's log: {error}");
                        }
                    }
                    Err(error) => tracing::error!("the receiver: {error}"),
                }
            }
            tracing::info!("experiment {} is over", known.plan.name);
        }
        self.handle.seen().closed = true;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        for worker in self.workers.values() {
            worker.task.abort();
        }
    }
}

fn start_worker(id: u64, job: &Job, news: mpsc::UnboundedSender<(u64, Event)>) -> Result<Worker> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut child = process::Command::new(program)
        .args(["worker", "--quiet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("starting a worker")?;
    let mut stdin = child.stdin.take().context("the worker's input")?;
    let stdout = child.stdout.take().context("the worker's output")?;
    let (orders, mut given) = mpsc::unbounded_channel::<Order>();
    let flows = job.flows.keys().copied().collect();
    let mut first = serde_json::to_vec(job)?;
    first.push(b'\n');
    let task = tokio::spawn(async move {
        let ordering = async {
            if stdin.write_all(&first).await.is_err() {
                return;
            }
            while let Some(order) = given.recv().await {
                let Ok(mut line) = serde_json::to_vec(&order) else { continue };
                line.push(b'\n');
                if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                    return;
                }
            }
        };
        let listening = async {
            let mut lines = BufReader::new(stdout).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                match serde_json::from_str(&line) {
                    // The work may be over.
                    Ok(found) => drop(news.send((id, Event::News(found)))),
                    Err(error) => tracing::error!(%error, "news that make no sense"),
                }
            }
        };
        tokio::join!(listening, async {
            tokio::select! {
                () = ordering => {}
                // A worker that has ended takes no orders.
                _ = child.wait() => {}
            }
        });
        let why = match child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        drop(news.send((id, Event::Gone(why))));
    });
    Ok(Worker { orders, flows, task })
}

/// The directory of a run under that of an agent; a run is 32 digits of base 16.
pub(crate) fn run_dir(dir: &Path, run: &str) -> Option<PathBuf> {
    let plain = run.len() == 32 && run.bytes().all(|byte| byte.is_ascii_hexdigit());
    plain.then(|| dir.join(run))
}
