//! The part of a run that a node does: one receiver, and workers that send its flows as long as the group
//! wants it to.

mod alone;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use itg_cli::Signals;
use itg_control::{Command, ControlDelivery, ControlRequest, Orphan, Phase, Replica};
use itg_core::rate::RateChange;
use itg_engine::clock_pair;
use itg_experiment::Plan;
use itg_node::Receiver;
use itg_socket::clock;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::description::Description;
use crate::ends::{GIVE_UP_NS, ends_of, latest_end_ns, received_ns};
use crate::handle::{Handle, Leaving};
use crate::member::Member;
use crate::metrics::labels;
use crate::policy::Policy;
use crate::run_dir::{LogState, keep_description, prepare_workers};
use crate::worker::{Job, News, Order, patient_receiver};
use crate::workers::{AGAIN_NS, Duty, Event, Worker, end_silent};

/// Time between two looks at what is to be done.
const LOOK: Duration = Duration::from_millis(100);
/// A run whose console is gone is looked at this often.
const ORPHAN: Duration = Duration::from_secs(1);
/// Time that the workers of a run that is left may take to close their logs: longer than they wait for a receiver that is
/// silent.
const WORKER_END: Duration = Duration::from_secs(6);

/// A receiver whose port is taken is no reason to refuse the run before this time.
const PORT_PATIENCE_NS: u64 = 3_000_000_000;
/// Reason of the end of a flow whose new rate the policy does not allow.
const TOO_FAST: &str = "the policy does not allow its new rate";
/// Reason of the end of a flow whose receiver was away for too long.
const TOO_LATE: &str = "its time was over before its receiver was reached";
/// Longest reason that others are told, in characters.
const MOST_REASON: usize = 200;

/// Settings of the work, which do not change.
pub(crate) struct Setup {
    /// SIGHUP has the log of the receiver opened anew.
    pub(crate) signals: Signals,
    pub(crate) policy: Arc<Policy>,
    pub(crate) dir: PathBuf,
    /// Address that the receiver listens on.
    pub(crate) listen: SocketAddr,
    /// True if the agent has taken part before, and was started again: it sends nothing before it has a lease.
    pub(crate) resumed: bool,
    /// True if it was started several times within a short time: it gives its flows away.
    pub(crate) restless: bool,
    /// One of how many packets is stamped when it leaves this host.
    pub(crate) tx_stamps: Option<NonZeroU32>,
    /// Properties of this host for the logs of senders.
    pub(crate) settings: BTreeMap<String, String>,
}

/// Parts of the experiment that are known once its description has come.
struct Known {
    description: Description,
    plan: Plan,
    /// Receivers by flow, with their slots.
    receivers: BTreeMap<u32, (u32, SocketAddr)>,
    end: watch::Sender<Option<String>>,
    receiving: Option<JoinHandle<itg_node::ReceiverOutcome>>,
    /// The receiver's port was not free yet.
    unbound: Option<Unbound>,
    /// Due time of the last packet of each flow, as asked for, and the end of its duration if it
    /// has one; in nanoseconds from the start of the run.
    ends_ns: BTreeMap<u32, (u64, Option<u64>)>,
    /// Highest rate that the policy allows, in millionths of what the flow asks for.
    most_ppm: BTreeMap<u32, u32>,
}

/// A receiver whose port is taken.
struct Unbound {
    since_ns: u64,
    /// Instant of the next attempt.
    at_ns: u64,
    /// Others have been told that this node cannot do its part.
    told: bool,
}

/// A flow that is being stopped.
#[derive(Clone, Copy, Debug)]
struct Ceasing {
    fence: u16,
    /// Number of the worker that is to say that it has ended.
    worker: u64,
    /// Reason that it is given up; `None` when another one sends it on, or it was stopped.
    given_up: Option<&'static str>,
}

struct Work {
    setup: Setup,
    handle: Handle,
    replica: watch::Sender<Option<Replica>>,
    known: Option<Known>,
    duties: BTreeMap<u32, Duty>,
    /// Flows that are being stopped.
    ceasing: BTreeMap<u32, Ceasing>,
    workers: BTreeMap<u64, Worker>,
    next_worker: u64,
    news: mpsc::UnboundedSender<(u64, Event)>,
    lease_ns: u64,
    /// True unless flows may be sent before the first lease: once there was one, or an exclusion, or a restart.
    needs_lease: bool,
    /// Start of the run by this host's clock.
    t0_unix_ns: u64,
    /// … and by the clock of the process that started it.
    console_t0_unix_ns: Option<u64>,
    /// Packets that are due before this time of the run may have been sent before a restart.
    sent_before_ns: u64,
    draining: bool,
    ending: bool,
    /// Instant since which there has been no console.
    alone_since: Option<Instant>,
    /// Reason that no worker was started, as it was said last.
    silence: Option<&'static str>,
}

/// Does the work of a run until it is over.
pub(crate) fn begin(
    setup: Setup,
    member: Member,
    told: mpsc::UnboundedReceiver<ControlDelivery>,
) -> Handle {
    let (replica, looks) = watch::channel(None);
    let handle = Handle {
        member,
        seen: Arc::default(),
        applied: broadcast::channel(1024).0,
        replica: looks,
        left: Arc::new(watch::Sender::new(None)),
    };
    let (news, events) = mpsc::unbounded_channel();
    let needs_lease = setup.resumed;
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
        needs_lease,
        t0_unix_ns: 0,
        console_t0_unix_ns: None,
        sent_before_ns: 0,
        draining: false,
        ending: false,
        alone_since: None,
        silence: None,
    };
    // It ends by itself, or because the agent leaves it.
    let left = handle.left.subscribe();
    drop(tokio::spawn(work.run(told, events, left)));
    handle
}

impl Work {
    async fn run(
        mut self,
        mut told: mpsc::UnboundedReceiver<ControlDelivery>,
        mut events: mpsc::UnboundedReceiver<(u64, Event)>,
        mut left: watch::Receiver<Option<Leaving>>,
    ) {
        let mut look = tokio::time::interval(LOOK);
        look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut connections = self.handle.member.connections();
        let mut connected = BTreeSet::new();
        let mut orphan = tokio::time::interval(ORPHAN);
        orphan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        loop {
            tokio::select! {
                Ok(()) = left.changed() => {
                    let how = left.borrow_and_update().unwrap_or(Leaving::Stopped);
                    self.leave(how).await;
                    break;
                }
                tell = told.recv() => {
                    let Some(tell) = tell else {
                        let ended = Leaving::Abandoned("its member has ended");
                        let how = left.borrow_and_update().unwrap_or(ended);
                        self.leave(how).await;
                        break;
                    };
                    self.told(tell).await;
                    // What comes together is sent together.
                    while let Ok(tell) = told.try_recv() {
                        self.told(tell).await;
                    }
                }
                Some((worker, event)) = events.recv() => self.heard(worker, event).await,
                Ok(()) = connections.changed() => {
                    // A member that was started again before it was missed.
                    let now = self.handle.member.connected();
                    self.came(&now.difference(&connected).copied().collect());
                    connected = now;
                }
                _ = look.tick() => end_silent(&mut self.workers, LOOK),
                _ = orphan.tick() => self.look_for_console().await,
            }
            self.read_clock().await;
            self.bind_again().await;
            self.give_up().await;
            self.send_what_is_due();
            if self.draining && self.workers.is_empty() {
                self.handle.seen().drained = true;
                if self.ending {
                    self.close(LogState::Closed, "the run is over").await;
                    break;
                }
            }
            {
                let mut seen = self.handle.seen();
                (seen.workers, seen.lease_ns) = (self.workers.len(), self.lease_ns);
            }
        }
    }

    /// Sends a flow from here on, not before this instant of the monotonic clock.
    async fn take_on(
        &mut self,
        flow: u32,
        fence: u16,
        not_before_ns: u64,
        changes: Vec<RateChange>,
    ) {
        self.read_clock().await;
        // A sender of the time before a restart may be waiting for the start, too.
        let nobody_else = fence == 0 && not_before_ns <= clock::monotonic_ns();
        let early = nobody_else && clock::unix_ns() < self.t0_unix_ns;
        let resume_ns = (!early).then_some(not_before_ns);
        self.ceasing.remove(&flow);
        if self.is_too_fast(flow, &changes) {
            return self.give_up_one(flow, fence, TOO_FAST).await;
        }
        let (worker, at_ns, pause_ns) = (None, 0, 0);
        let duty = Duty { fence, resume_ns, worker, at_ns, pause_ns, changes };
        self.duties.insert(flow, duty);
    }

    /// Follows the state of the experiment. A member that was away when it was to drain learns it here.
    fn state(&mut self, replica: Replica) {
        self.draining |= replica.phase() >= Phase::Draining;
        self.ending |= replica.phase() >= Phase::Ended;
        // Without the console no member drains.
        if self.alone() && replica.phase() >= Phase::Running && replica.is_settled() {
            (self.draining, self.ending) = (true, true);
        }
        let mut seen = self.handle.seen();
        seen.begun |= replica.phase() >= Phase::Running;
        seen.receives_until_ns = self.receives_until_ns(&replica);
        drop(seen);
        self.give_away(&replica);
        self.replica.send_replace(Some(replica));
    }

    /// Follows the view: flows to members that came are tried at once.
    fn view(&mut self, number: u64, slots: Vec<u32>) {
        let mut seen = self.handle.seen();
        let before = std::mem::replace(&mut seen.slots, slots);
        let came = seen.slots.iter().copied().filter(|slot| !before.contains(slot)).collect();
        (seen.view, seen.ordered) = (number, seen.ordered + 1);
        drop(seen);
        self.came(&came);
    }

    /// Flows to members that are there again are tried at once.
    fn came(&mut self, slots: &BTreeSet<u32>) {
        let receivers = self.known.iter().flat_map(|known| &known.receivers);
        for (flow, _) in receivers.filter(|(_, (to, _))| slots.contains(to)) {
            if let Some(duty) = self.duties.get_mut(flow) {
                duty.try_at_once(clock::monotonic_ns());
            }
        }
    }

    async fn told(&mut self, tell: ControlDelivery) {
        match tell {
            ControlDelivery::Graph(bytes) => {
                match self.learn(&bytes).await {
                    // With the receiver's port taken it is told later.
                    Ok(true) => self.handle.member.ask(ControlRequest::Able).await,
                    Ok(false) => {}
                    Err(error) => {
                        self.handle.member.ask(ControlRequest::Unable(format!("{error:#}"))).await;
                    }
                }
                // A console that comes back finds a run that has begun.
                self.handle.member.ask(ControlRequest::Look).await;
            }
            ControlDelivery::Emit { flow, fence, not_before_ns, t0_unix_ns, changes } => {
                self.console_t0_unix_ns = Some(t0_unix_ns);
                self.take_on(flow, fence, not_before_ns, changes).await;
            }
            ControlDelivery::Rate { flow, changes } if self.is_too_fast(flow, &changes) => {
                if let Some(duty) = self.duties.remove(&flow) {
                    self.cease(flow, duty.fence, duty.worker, Some(TOO_FAST)).await;
                }
            }
            ControlDelivery::Rate { flow, changes } => {
                if let Some(duty) = self.duties.get_mut(&flow) {
                    duty.changes.clone_from(&changes);
                    if let Some(worker) = duty.worker.and_then(|id| self.workers.get(&id)) {
                        // One that has ended is reaped by its event.
                        drop(worker.orders.send(Order::Rate(flow, changes)));
                    }
                }
            }
            ControlDelivery::Cease { flow, fence } => {
                let worker = self.duties.remove(&flow).and_then(|duty| duty.worker);
                self.cease(flow, fence, worker, None).await;
            }
            ControlDelivery::Lease(until) => {
                tracing::debug!("lease until {until}");
                (self.lease_ns, self.needs_lease) = (until, true);
                self.order(|| Order::Lease(until));
            }
            ControlDelivery::Fenced => {
                (self.lease_ns, self.needs_lease) = (0, true);
                self.order(|| Order::Lease(0));
            }
            ControlDelivery::Applied { position, by, command, void } => {
                self.handle.seen().ordered += 1;
                if void.is_none() {
                    match command {
                        Command::Drain => self.draining = true,
                        Command::End => (self.draining, self.ending) = (true, true),
                        // When its flows are over is another time now.
                        Command::Start { .. } | Command::SetRate { .. } => {
                            self.handle.member.ask(ControlRequest::Look).await;
                        }
                        _ => {}
                    }
                }
                // Perhaps no task is waiting.
                drop(self.handle.applied.send((by, position, command, void)));
            }
            ControlDelivery::State(replica) => self.state(*replica),
            ControlDelivery::SentBefore(run_ns) => {
                self.sent_before_ns = self.sent_before_ns.max(run_ns);
            }
            ControlDelivery::View { number, slots } => self.view(number, slots),
        }
    }

    /// Places the start of the run on this host's clock. What others tell of that clock after a restart counts until
    /// something is sent: then the time of the run does not move any more.
    async fn read_clock(&mut self) {
        let Some(t0_unix_ns) = self.console_t0_unix_ns else { return };
        let offset = self.handle.member.clock();
        let t0_unix_ns = t0_unix_ns.saturating_add_signed(offset.ns);
        if self.t0_unix_ns == t0_unix_ns || self.next_worker > 0 || !offset.is_known() {
            return;
        }
        self.t0_unix_ns = t0_unix_ns;
        tracing::debug!(?offset, "the run is placed on this host's clock");
        let now = clock_pair::reading();
        let to_come = t0_unix_ns.saturating_sub(now.unix_ns);
        let run_ns = now.unix_ns.saturating_sub(t0_unix_ns);
        let at_ns = now.monotonic_ns.saturating_add(to_come);
        self.handle.member.ask(ControlRequest::RunTime(at_ns, run_ns)).await;
    }

    /// Instant until which flows come to this node that go on without leases, by the clock of this
    /// host; 0 without any.
    fn receives_until_ns(&self, replica: &Replica) -> u64 {
        let Some(known) = &self.known else { return 0 };
        if replica.rules().orphan != Orphan::Finish || replica.phase() != Phase::Running {
            return 0;
        }
        let member = &self.handle.member;
        let t0_unix_ns = replica.t0_unix_ns().saturating_add_signed(member.clock().ns);
        let here = known.receivers.iter().filter(|(_, (to, _))| *to == member.join.slot);
        let ends = here.filter_map(|(flow, _)| {
            let (last_ns, over_ns) = *known.ends_ns.get(flow)?;
            Some(received_ns(last_ns, over_ns, replica.rates(*flow)))
        });
        ends.max().map_or(0, |end_ns| t0_unix_ns.saturating_add(end_ns))
    }

    /// Returns true if a changed rate is more than the policy of this agent allows.
    fn is_too_fast(&self, flow: u32, changes: &[RateChange]) -> bool {
        let most = self.known.as_ref().and_then(|known| known.most_ppm.get(&flow));
        most.zip(changes.last()).is_some_and(|(most, last)| last.ppm > *most)
    }

    /// Makes ready for an experiment: the plan, whether it is allowed, the receiver. Returns whether that
    /// has its port.
    async fn learn(&mut self, bytes: &[u8]) -> Result<bool> {
        if let Some(known) = &self.known {
            return Ok(known.unbound.is_none());
        }
        let description = Description::read(bytes)?;
        let (_, plan) = description.plan()?;
        let routes = description.routes(&plan)?;
        let receivers = description.receivers.clone();
        let resolved: Vec<SocketAddr> = tokio::task::spawn_blocking(move || {
            let one = |at: &String| itg_socket::resolve(at, crate::wire::AGENT_PORT + 1);
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
        LogState::Open.write(&self.setup.dir)?;
        keep_description(&self.setup.dir, bytes)?;
        prepare_workers(&self.setup.dir)?;
        let (end, _) = watch::channel(None);
        let ends_ns = ends_of(&plan);
        let flows = plan.flows.iter().map(|flow| flow.flow.spec().id);
        let receivers =
            flows.zip(&routes).map(|(flow, r)| (flow, (r.to, resolved[r.to as usize]))).collect();
        {
            let mut seen = self.handle.seen();
            (seen.name, seen.nodes) = (plan.name.clone(), description.nodes.clone());
            seen.names = plan.flows.iter().map(|flow| flow.name.clone()).collect();
            seen.labels = labels(&plan);
            let mean = |flow: &itg_core::flow::Flow| (flow.mean_packet_rate(), flow.size().mean());
            seen.means =
                plan.flows.iter().map(|flow| (flow.flow.spec().id, mean(&flow.flow))).collect();
        }
        let now = clock::monotonic_ns();
        let unbound = Some(Unbound { since_ns: now, at_ns: now, told: false });
        let receiving = None;
        let most_ppm = self.setup.policy.most_ppm(&plan);
        self.known = Some(Known {
            description,
            plan,
            receivers,
            end,
            receiving,
            unbound,
            ends_ns,
            most_ppm,
        });
        Ok(false)
    }

    /// Starts the receiver, again and again while its port is taken: a run before this one may hold it yet.
    async fn bind_again(&mut self) {
        let now = clock::monotonic_ns();
        let Some(known) = &mut self.known else { return };
        let Some(unbound) = known.unbound.as_mut().filter(|unbound| unbound.at_ns <= now) else {
            return;
        };
        let log = self.setup.dir.join(format!("receiver-{}.itg", self.handle.member.join.start));
        let answer = match Receiver::bind(patient_receiver(log, self.setup.listen)) {
            Ok(receiver) => {
                self.setup.signals.at_hangup(receiver.reopen_log());
                known.receiving = Some(tokio::spawn(receiver.serve(known.end.subscribe())));
                known.unbound = None;
                ControlRequest::Able
            }
            Err(error) => {
                unbound.at_ns = now + AGAIN_NS;
                if unbound.told || now - unbound.since_ns < PORT_PATIENCE_NS {
                    return;
                }
                unbound.told = true;
                ControlRequest::Unable(error.to_string())
            }
        };
        self.handle.member.ask(answer).await;
    }

    fn order(&self, order: impl Fn() -> Order) {
        for worker in self.workers.values() {
            // One that has ended is reaped by its event.
            drop(worker.orders.send(order()));
        }
    }

    /// Has a flow stopped; others are told when its worker sends it no more.
    async fn cease(
        &mut self,
        flow: u32,
        fence: u16,
        worker: Option<u64>,
        given_up: Option<&'static str>,
    ) {
        let ceasing = |worker| Ceasing { fence, worker, given_up };
        let sends = worker.and_then(|id| Some((id, self.workers.get(&id)?)));
        match sends.filter(|(_, worker)| worker.flows.contains(&flow)) {
            Some((id, worker)) => {
                self.ceasing.insert(flow, ceasing(id));
                drop(worker.orders.send(Order::Stop(flow)));
            }
            None => self.tell_ceased(flow, ceasing(0), 0).await,
        }
    }

    async fn tell_ceased(&self, flow: u32, ceased: Ceasing, next: u64) {
        match ceased.given_up {
            Some(why) => self.give_up_one(flow, ceased.fence, why).await,
            None => self.handle.member.ask(ControlRequest::Ended(flow, ceased.fence, next)).await,
        }
    }

    async fn heard(&mut self, id: u64, event: Event) {
        if let Some(worker) = self.workers.get_mut(&id) {
            worker.silent = Duration::ZERO;
        }
        match event {
            Event::News(News::LogFailed(why)) => {
                tracing::error!("a sender's log: {why}");
                self.handle.seen().trouble = Some(format!("a sender's log: {why}"));
            }
            Event::News(News::Ended { flow, next, reason, whole }) => {
                if let Some(worker) = self.workers.get_mut(&id) {
                    worker.flows.remove(&flow);
                }
                self.ended(id, flow, next, &reason, whole).await;
            }
            Event::News(News::Figures(figures)) => {
                self.handle.seen().figures.insert(id, figures);
                self.handle.member.contribute(&self.handle.figures());
            }
            Event::Gone(why) => {
                let Some(worker) = self.workers.remove(&id) else { return };
                self.handle.seen().fold(id);
                let now = clock::monotonic_ns();
                if !worker.flows.is_empty() {
                    tracing::warn!(
                        "a worker has ended ({why}): {} flows go on in another one",
                        worker.flows.len()
                    );
                }
                for flow in worker.flows {
                    if let Some(ceased) = self.ceased(id, flow) {
                        self.tell_ceased(flow, ceased, 0).await;
                    }
                    if let Some(duty) = self.duties.get_mut(&flow).filter(|d| d.worker == Some(id))
                    {
                        duty.lost_worker(worker.began_ns, now);
                    }
                }
            }
        }
    }

    /// A worker sends a flow no more.
    async fn ended(&mut self, id: u64, flow: u32, next: u64, reason: &str, whole: bool) {
        if let Some(ceased) = self.ceased(id, flow) {
            return self.tell_ceased(flow, ceased, next).await;
        }
        let late = self.is_too_late(flow);
        let Some(duty) = self.duties.get_mut(&flow).filter(|duty| duty.worker == Some(id)) else {
            return;
        };
        let fence = duty.fence;
        if whole {
            self.duties.remove(&flow);
            self.handle.member.ask(ControlRequest::Ended(flow, fence, next)).await;
        } else if late {
            self.duties.remove(&flow);
            self.give_up_one(flow, fence, reason).await;
        } else {
            tracing::info!(flow, "goes on later: {reason}");
            let now = clock::monotonic_ns();
            duty.put_off(self.workers.get(&id).map_or(now, |worker| worker.began_ns), now);
        }
    }

    /// A worker sends a flow no more; returns what is known of it if it was to stop.
    fn ceased(&mut self, id: u64, flow: u32) -> Option<Ceasing> {
        self.ceasing.get(&flow).filter(|ceasing| ceasing.worker == id)?;
        self.ceasing.remove(&flow)
    }

    /// Ends a flow before its last packet, and says why to all.
    async fn give_up_one(&self, flow: u32, fence: u16, why: &str) {
        tracing::warn!(flow, "given up: {why}");
        let why: String = why.chars().take(MOST_REASON).collect();
        self.handle.member.ask(ControlRequest::GaveUp(flow, fence, why)).await;
    }

    /// Returns true if [`GIVE_UP_NS`] have passed since the last packet of a flow was due: it is
    /// too late to send any.
    fn is_too_late(&self, flow: u32) -> bool {
        let ends_ns = self.known.as_ref().and_then(|known| known.ends_ns.get(&flow).copied());
        let changes = self.duties.get(&flow).map_or(&[][..], |duty| &duty.changes);
        let end_ns = ends_ns.map_or(u64::MAX, |(last, over)| latest_end_ns(last, over, changes));
        clock::unix_ns() > self.t0_unix_ns.saturating_add(end_ns).saturating_add(GIVE_UP_NS)
    }

    /// Ends flows that wait and whose time is over: those that might have been sent are given up.
    async fn give_up(&mut self) {
        let silence = self.silence(clock::monotonic_ns());
        let waiting = self.duties.iter().filter(|(_, duty)| duty.worker.is_none());
        let late: Vec<(u32, u16)> = waiting
            .filter(|(flow, _)| self.t0_unix_ns > 0 && self.is_too_late(**flow))
            .map(|(flow, duty)| (*flow, duty.fence))
            .collect();
        for (flow, fence) in late {
            self.duties.remove(&flow);
            match silence {
                // Who sent it before may have come to its end.
                Some(_) => self.handle.member.ask(ControlRequest::Ended(flow, fence, 0)).await,
                None => self.give_up_one(flow, fence, TOO_LATE).await,
            }
        }
    }

    /// Reason that no worker may be started now.
    fn silence(&self, now_ns: u64) -> Option<&'static str> {
        // A clock that was set back would have what was sent before a restart sent again.
        let sent_ns = self.t0_unix_ns.saturating_add(self.sent_before_ns);
        if self.known.is_none() {
            Some("the experiment is not known yet")
        } else if self.draining {
            Some("the run ends")
        } else if self.t0_unix_ns == 0 {
            Some("the start is not known yet")
        } else if now_ns >= self.lease_ns && self.needs_lease {
            Some("there is no lease")
        } else if self.sent_before_ns > 0 && clock::unix_ns() < sent_ns {
            Some("packets of this time of the run may have been sent before the restart")
        } else {
            None
        }
    }

    /// Starts workers for flows that have none.
    fn send_what_is_due(&mut self) {
        let now = clock::monotonic_ns();
        let silence = self.silence(now);
        if silence != self.silence && !self.duties.is_empty() {
            match silence {
                Some(why) => tracing::info!("nothing is sent: {why}"),
                None => tracing::info!("flows are sent"),
            }
            self.silence = silence;
        }
        let Some(known) = self.known.as_ref().filter(|_| silence.is_none()) else { return };
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
                changes: flows
                    .iter()
                    .filter_map(|flow| Some((*flow, self.duties.get(flow)?.changes.clone())))
                    .collect(),
                epoch_unix_ns: self.t0_unix_ns,
                resume_ns,
                lease_ns: self.lease_ns,
                tx_stamps: self.setup.tx_stamps,
                settings: self.setup.settings.clone(),
                log: self.setup.dir.join(name),
            };
            match Worker::start(id, &job, self.news.clone()) {
                Ok(worker) => {
                    let after_ns = resume_ns.map(|at| at.saturating_sub(now));
                    tracing::debug!(
                        "worker {id} begins with flows {flows:?}, after {after_ns:?} ns"
                    );
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

    /// The agent leaves the run: no packet leaves any more, what was received is kept.
    async fn leave(&mut self, how: Leaving) {
        self.handle.member.end();
        if self.handle.seen().closed {
            return;
        }
        let (kept, why) = match how {
            Leaving::Abandoned(why) => (LogState::Abandoned, why),
            Leaving::Stopped => (LogState::Open, "the agent is stopped"),
        };
        // Their lease is over; a worker that does not end is killed with its task.
        self.order(|| Order::Lease(0));
        // They end together: without a channel for orders they know that this is the end.
        let workers = std::mem::take(&mut self.workers).into_values();
        let tasks: Vec<_> = workers.map(|worker| worker.task).collect();
        let until = Instant::now() + WORKER_END;
        for mut task in tasks {
            if tokio::time::timeout_at(until, &mut task).await.is_err() {
                task.abort();
            }
        }
        self.close(kept, why).await;
    }

    /// Closes the receiver and its log.
    async fn close(&mut self, kept: LogState, why: &str) {
        if let Some(known) = &mut self.known {
            known.end.send_replace(Some(why.to_owned()));
            if let Some(receiving) = known.receiving.take() {
                match receiving.await {
                    Ok(outcome) => {
                        if let Some(error) = outcome.log.and_then(|log| log.error) {
                            tracing::error!("the receiver's log: {error}");
                            self.handle.seen().trouble =
                                Some(format!("its receiver's log: {error}"));
                        }
                    }
                    Err(error) => tracing::error!("the receiver: {error}"),
                }
            }
            if let Err(error) = kept.write(&self.setup.dir) {
                tracing::error!("{}: {error}", self.setup.dir.display());
            }
            let name = &known.plan.name;
            match kept {
                LogState::Closed => tracing::info!("experiment {name} is over"),
                LogState::Open | LogState::Abandoned => {
                    tracing::warn!("experiment {name} is left: {why}")
                }
            }
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
