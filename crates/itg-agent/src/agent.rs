//! `itg-cluster agent`: serves a node, one run at a time.

mod kept;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use itg_cli::{Failure, MetricsArgs, Program, Signals, WordArgs, promised, refuse, say};
use itg_control::{Command, ControlRequest, Phase, TOO_LATE, fence_wait};
use itg_core::units::parse_duration_ns;
use itg_node::metrics::MetricsServer;
use itg_node::{ConnectionSlot, ConnectionSlots, SlotLimits};
use itg_socket::{clock, host};
use itg_trust::Role;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, MutexGuard, Semaphore};

use crate::handle::{Handle, Leaving};
use crate::idle::{Decision, Idle, Sight};
use crate::member::{Again, Member};
use crate::metrics::{Facts, page};
use crate::policy::Policy;
use crate::roles::may;
use crate::run_dir::{LogState, run_dir, workers_are_gone};
use crate::state::{State, is_systems};
use crate::trust::{self, Line, Trust};
use crate::wire::{self, AGENT_PORT, Call, Hello, Join, NewRate, Reply, Status, answered};
use crate::work::{self, Setup};

/// Members that are about to leave a run that this agent has left, or to forget one that is over, do not bring it back
/// for so long: they may have begun to count only when it left.
const LEFT_NS: u64 = 70_000_000_000;
/// Time that a user at a terminal waits for a command to be ordered.
const ORDERED: Duration = Duration::from_secs(5);
/// From the order to change a rate to the change, beside the length of a lease: by then its sender has heard of
/// it, or is silent.
const RATE_MARGIN_NS: u64 = 500_000_000;
/// Attempts to order the change of a rate where the first ones take too long.
const RATE_TRIES: u32 = 5;
/// Time for all attempts together: less than the time that the caller waits for the answer.
const RATE_LIMIT: Duration = Duration::from_secs(8);
/// Message to a user at a terminal when that takes too long.
const SILENT: &str =
    "it has not been ordered in time: a majority of the nodes does not answer; it may be yet";
/// Time for closing the logs of a run when the agent is stopped: those of its workers, and the receiver's behind them. The
/// next agent waits for the directory a little longer.
const STOP_LIMIT: Duration = Duration::from_secs(9);
/// Time in which the workers of an agent that was killed come to their end; where one runs on, its lease is waited for.
const WORKERS_END: Duration = Duration::from_millis(300);
/// Longest remark, in bytes.
const MOST_LABEL: usize = 200;
/// Connections of programs that have proved that they belong to the cluster.
const MOST_LINES: usize = 4096;
/// Connections of programs that have not yet: the oldest one of the address that has the most gives way to a new one.
const PROVING: SlotLimits = SlotLimits { total: 256, per_address: 256 };
/// Members of a run.
const MOST_MEMBERS: usize = 4096;

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// Address that consoles and other agents call; data comes to the port behind it
    #[arg(long, value_name = "ADDR[:PORT]", default_value = "0.0.0.0:9020")]
    pub listen: String,
    /// Directory of the cluster's keys (`itg-cluster keys` makes them)
    #[arg(long, value_name = "DIR")]
    pub keys: PathBuf,
    /// Directory for logs, one below it for each run
    #[arg(long, value_name = "DIR", default_value = "itg-agent")]
    pub dir: PathBuf,
    /// Directory for what this agent remembers of its run through a restart, for it alone [default: `state` in the
    /// directory for logs]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Policy of this node (TOML): what experiments may ask of it; without it everything but
    /// payload files is allowed
    #[arg(long, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    #[command(flatten)]
    metrics: MetricsArgs,
    /// Log when one of N packets left the network stack of this host (the kernel's transmit stamps; one-way UDP in
    /// exact mode) [default: none; where the experiment's pacing is txtime: 16]
    #[arg(long, value_name = "N")]
    pub tx_stamps: Option<NonZeroU32>,
    /// Result of `itg-send doctor --output FILE` on this host: its promise goes into the logs of
    /// its senders, and the report says whether it was kept
    #[arg(long, value_name = "FILE")]
    pub promise: Option<PathBuf>,
    /// Leave a run after this time without its console, where too few members are left to agree, so that this node is
    /// free for the next one
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = patience)]
    pub leave_after: Duration,
}

/// Parses the time after which a run is left.
fn patience(text: &str) -> Result<Duration, String> {
    let ns = parse_duration_ns(text).map_err(|error| error.to_string())?;
    if ns < 1_000_000_000 { Err("at least 1s".to_owned()) } else { Ok(Duration::from_nanos(ns)) }
}

struct Agent {
    signals: Signals,
    tx_stamps: Option<NonZeroU32>,
    /// Properties of this host for the logs of senders.
    settings: BTreeMap<String, String>,
    leave_after: Duration,
    trust: Trust,
    policy: Arc<Policy>,
    dir: PathBuf,
    state: State,
    data: SocketAddr,
    run: Mutex<Option<Run>>,
    /// The run that it has left last, and when (CLOCK_MONOTONIC).
    left: std::sync::Mutex<Option<(String, u64)>>,
}

/// The run that the agent takes part in; dropped, it is abandoned unless it is over.
struct Run {
    id: String,
    handle: Handle,
    idle: Idle,
    /// It was taken up again after a restart.
    resumed: bool,
}

impl Drop for Run {
    fn drop(&mut self) {
        self.handle.leave(Leaving::Abandoned("another run has taken this node"));
    }
}

/// Serves until a signal comes.
///
/// # Errors
/// The request makes no sense, or the address cannot be listened on.
pub fn run(args: &AgentArgs, words: WordArgs) -> Result<ExitCode> {
    let listen = itg_socket::resolve(&args.listen, AGENT_PORT).map_err(refuse)?;
    let trust = Trust::load(&args.keys)?;
    trust.must_be(Role::Agent)?;
    let policy = args.policy.as_deref().map(Policy::load).transpose()?.unwrap_or_default();
    fs::create_dir_all(&args.dir)
        .map_err(|error| refuse(format!("directory {}: {error}", args.dir.display())))?;
    let state = args.state.clone().unwrap_or_else(|| args.dir.join("state"));
    let state = State::open(&state).map_err(|error| refuse(format!("{error:#}")))?;
    let promise = args.promise.as_deref().map(promised).transpose()?;
    let taken = |error: std::io::Error| {
        Failure::new(1, format!("listening on {listen}: {error}; does another agent run there?"))
    };
    let listener = itg_socket::listen(listen).map_err(taken)?;
    let listen = listener.local_addr().map_err(taken)?;
    let data = SocketAddr::new(listen.ip(), listen.port().checked_add(1).unwrap_or(AGENT_PORT + 1));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let signals = runtime.block_on(async { Signals::watch_serving() })?;
    let agent = Arc::new(Agent {
        signals: signals.clone(),
        tx_stamps: args.tx_stamps,
        settings: promise.into_iter().flatten().collect(),
        leave_after: args.leave_after,
        trust,
        policy: Arc::new(policy),
        dir: args.dir.clone(),
        state,
        data,
        run: Mutex::default(),
        left: std::sync::Mutex::default(),
    });
    let done = runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        if !words.quiet {
            say(format_args!(
                "itg-cluster agent: listening on {listen}, data on {data}; end with Ctrl-C"
            ));
        }
        if let Some(server) = args.metrics.bind(words.quiet).await? {
            agent.serve_metrics(server);
        }
        tokio::spawn(agent.trust.clone().warn_of_expiry());
        let resumed = agent.resume().await;
        resumed.map_err(|error| Failure::new(1, format!("its run is not taken up: {error:#}")))?;
        let room = Arc::new(Semaphore::new(MOST_LINES));
        let proving = ConnectionSlots::new(PROVING);
        let mut stop = signals.stop.clone();
        let mut look = tokio::time::interval(Duration::from_secs(1));
        loop {
            tokio::select! {
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => {
                        // Nobody settles, so there is always a place.
                        let Ok(place) = proving.take(peer.ip()) else { continue };
                        let (agent, room) = (Arc::clone(&agent), Arc::clone(&room));
                        tokio::spawn(agent.let_in(stream, peer, (place, room)));
                    }
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                _ = look.tick() => agent.tidy().await,
                reason = stop.wait_for(Option::is_some) => {
                    if let Ok(reason) = reason {
                        tracing::info!("stopping: {}", reason.as_deref().unwrap_or_default());
                    }
                    break;
                }
            }
        }
        let _rests = agent.stop().await;
        Ok(ExitCode::from(signals.exit_code().unwrap_or(0)))
    });
    // A log on a disk that hangs is not waited for any longer.
    runtime.shutdown_timeout(Duration::from_secs(1));
    done
}

impl Agent {
    /// Serves Prometheus from here on.
    fn serve_metrics(self: &Arc<Self>, server: MetricsServer) {
        let server = server.writing_to([self.dir.clone()]);
        let agent = Arc::clone(self);
        let program = Program::started("itg-cluster agent", env!("CARGO_PKG_VERSION"));
        tokio::spawn(server.serve(move || {
            let agent = Arc::clone(&agent);
            async move { page(program, agent.trust.days_left(), &agent.facts().await) }
        }));
    }

    /// Lets a program in that proves to belong to the cluster, as long as there is room.
    async fn let_in(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        (proving, room): (ConnectionSlot, Arc<Semaphore>),
    ) {
        let accepted = tokio::select! {
            accepted = self.trust.accept(stream) => accepted,
            () = proving.lost() => Err("too many prove who they are: the oldest gives way".to_owned()),
        };
        drop(proving);
        match accepted {
            Ok(line) => match room.try_acquire_owned() {
                Ok(place) => drop(tokio::spawn(async move {
                    self.serve(line, peer).await;
                    drop(place);
                })),
                Err(_) => tracing::warn!(%peer, "turned away: too many connections"),
            },
            Err(why) => tracing::warn!(%peer, "turned away: {why}"),
        }
    }

    async fn serve(&self, mut line: Line, peer: SocketAddr) {
        let certificate = trust::certificate(&line);
        let serving = async {
            match self.converse(&mut line).await {
                Ok(join) => self.carry(line, &join).await,
                Err(error) => tracing::debug!(%peer, "a connection has ended: {error:#}"),
            }
        };
        tokio::select! {
            () = serving => {}
            why = self.trust.revoked(certificate) => tracing::warn!(%peer, "turned away: {why}"),
        }
    }

    /// Answers calls until one of them makes the connection that of a member.
    async fn converse(&self, line: &mut Line) -> Result<Join> {
        let hello: Hello = answered(wire::hear(line)).await?;
        if let Some(why) = hello.differs() {
            wire::say(line, &Reply::Refused(format!("at the agent: {why}"))).await?;
            bail!("{why}");
        }
        let welcome =
            Reply::Welcome { hello: Hello::ours(), host: host::name(), boot_id: host::boot_id() };
        wire::say(line, &welcome).await?;
        let caller = trust::holder(line);
        loop {
            let call = wire::hear(line).await?;
            if let Err(why) = may(&caller, &call) {
                wire::say(line, &Reply::Refused(why)).await?;
                continue;
            }
            let reply = match call {
                Call::Clock => Reply::Clock(clock::unix_ns()),
                Call::Join(join) => match self.prepare(&join).await {
                    Ok(()) => {
                        wire::say(line, &Reply::Joined).await?;
                        return Ok(join);
                    }
                    Err(error) => Reply::Refused(format!("{error:#}")),
                },
                Call::Forget(run) => {
                    self.forget(&run).await;
                    Reply::Joined
                }
                Call::Status => Reply::Status(Box::new(self.status().await)),
                Call::Command(command) => Reply::Ordered(self.order(command).await),
                Call::Rate { flow, rate } => Reply::Ordered(self.set_rate(flow, rate).await),
                Call::Runs => match self.runs().await {
                    Ok(runs) => Reply::Runs(runs),
                    Err(error) => Reply::Refused(format!("{error:#}")),
                },
                Call::List(run) => self.list(&run).await,
                Call::Fetch { run, name, offset } => match self.fetch(&run, &name, offset) {
                    Ok(bytes) => Reply::Bytes(bytes),
                    Err(error) => Reply::Refused(format!("{error:#}")),
                },
            };
            wire::reply(line, &reply).await?;
        }
    }

    /// Takes part in a run, if it does not already.
    async fn prepare(&self, join: &Join) -> Result<()> {
        check(join)?;
        let by_console = join.from as usize + 1 == join.addresses.len();
        let mut run = loop {
            let run = self.run.lock().await;
            let Some(present) = &*run else { break run };
            if present.id == join.run {
                let ours = &present.handle.member.join;
                if (ours.slot, &ours.addresses) != (join.slot, &join.addresses) {
                    bail!("it is another member of this run");
                }
                if present.resumed {
                    present.handle.member.take_clock(join);
                }
                return Ok(());
            }
            let over = present.handle.seen().closed;
            let now = clock::monotonic_ns();
            if over || present.idle.gives_way(now) {
                break run;
            }
            // A console has a run that was taken up again after a restart, unless that goes on.
            let led = present.handle.member.lines().1;
            match present.idle.yields_at().filter(|_| by_console && join.begin && !led) {
                Some(at) if at <= now => break run,
                Some(at) => {
                    drop(run);
                    tokio::time::sleep(Duration::from_nanos(at - now)).await;
                }
                None => {
                    let name = present.handle.seen().name.clone();
                    bail!("it takes part in another run (`{name}`, {}): one at a time", present.id);
                }
            }
        };
        if !join.begin {
            bail!("it knows nothing of this run yet");
        }
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if left.is_some_and(|(id, at)| id == join.run && clock::monotonic_ns() - at < LEFT_NS) {
            bail!("it has left this run just now");
        }
        self.trust.check_members(join)?;
        let dir = run_dir(&self.dir, &join.run).context("the name of the run makes no sense")?;
        if LogState::read(&dir) == Some(LogState::Closed) {
            bail!("this run is over here");
        }
        // What was there before ends here, and its logs say so.
        if let Some(before) = run.take() {
            self.end(before, "another run takes this node");
        }
        // The members of the first view have started once; who was here before is another one.
        let first = is_first_start(join, dir.exists());
        let start = if first { 1 } else { self.state.grant(join.start.max(2))? };
        let before = self.state.has(&join.run);
        let taken = self.take_part(Join { start, ..join.clone() }, dir, None);
        // Who is told that it failed does not find this node in the run after its next start.
        if taken.is_err() && !before {
            self.state.forget(&join.run);
        }
        *run = Some(taken?);
        tracing::info!("takes part in run {}", join.run);
        Ok(())
    }

    /// Takes up the run again in which this agent took part when its process ended.
    ///
    /// # Errors
    /// The system's: what was promised stays, for another start. A run that is over, or that this agent may not take
    /// part in, is forgotten.
    async fn resume(&self) -> Result<()> {
        let Some(join) = self.state.found()? else { return Ok(()) };
        let id = join.run.clone();
        let mut run = self.run.lock().await;
        let dir = run_dir(&self.dir, &id).context("the name of the run makes no sense")?;
        let over = match LogState::read(&dir) {
            Some(state @ (LogState::Closed | LogState::Abandoned)) => {
                Some(format!("its logs are {state:?}"))
            }
            _ => self.trust.check_members(&join).err().map(|error| format!("{error:#}")),
        };
        if let Some(why) = over {
            tracing::warn!("run {id} is not taken up again: {why}");
            self.state.forget(&id);
            return Ok(());
        }
        let start = self.state.grant(2)?;
        let restless = self.state.starts_again(clock::unix_ns() / 1_000_000_000)?;
        let alone = workers_are_gone(&dir, WORKERS_END).await;
        let taken = self.take_part(Join { start, ..join }, dir, Some(Again { restless, alone }));
        if let Some(error) = taken.as_ref().err().filter(|error| !is_systems(error)) {
            tracing::warn!("run {id} is not taken up again: {error:#}");
            self.state.forget(&id);
            return Ok(());
        }
        *run = Some(taken?);
        tracing::info!("takes part in run {id} again (start {start})");
        Ok(())
    }

    /// Becomes a member of a run, whose logs are in this directory; `again` after a restart.
    fn take_part(&self, join: Join, dir: PathBuf, again: Option<Again>) -> Result<Run> {
        let resumed = again.is_some();
        let id = join.run.clone();
        let journals = self.state.keep(&join)?;
        let (member, told) = Member::begin(join, &self.trust, Some(journals), again)?;
        let policy = Arc::clone(&self.policy);
        let setup = Setup {
            signals: self.signals.clone(),
            policy,
            dir,
            listen: self.data,
            resumed,
            restless: again.is_some_and(|again| again.restless),
            tx_stamps: self.tx_stamps,
            settings: self.settings.clone(),
        };
        let handle = work::begin(setup, member, told);
        let idle = Idle::leaving_after(self.leave_after);
        let idle = if resumed { idle.resumed_at(clock::monotonic_ns()) } else { idle };
        Ok(Run { id, handle, idle, resumed })
    }

    /// Leaves a run that has not begun, and takes no part if it is still to hear of it.
    async fn forget(&self, run: &str) {
        let mut present = self.run.lock().await;
        let here = present.as_ref().filter(|known| known.id == run);
        let is_loaded = here.map(|known| !known.handle.seen().name.is_empty());
        match is_loaded {
            Some(true) => {}
            Some(false) => {
                let taken = present.take();
                taken.into_iter().for_each(|before| self.leave(before, "the run does not begin"));
            }
            None => self.remember_left(run),
        }
    }

    /// Ends the part in a run for good.
    fn leave(&self, before: Run, why: &'static str) {
        self.remember_left(&before.id);
        self.end(before, why);
    }

    /// Remembers that nobody is to bring it back into this run.
    fn remember_left(&self, run: &str) {
        let left = Some((run.to_owned(), clock::monotonic_ns()));
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Ends the part in a run, and what is remembered of it: the member first, whose journals these are.
    fn end(&self, before: Run, why: &'static str) {
        before.handle.leave(Leaving::Abandoned(why));
        before.handle.member.end();
        self.state.forget(&before.id);
    }

    /// Stores what it holds of a run, which it takes up again when it is started again. Until then nobody else has the
    /// run, so that no call ends it for good.
    async fn stop(&self) -> MutexGuard<'_, Option<Run>> {
        let run = self.run.lock().await;
        let Some(present) = &*run else { return run };
        let handle = &present.handle;
        handle.leave(Leaving::Stopped);
        // Work that waits for a member whose disk is full hears of it, too.
        handle.member.end();
        let stored = async {
            while !handle.seen().closed {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(STOP_LIMIT, stored).await.is_err() {
            tracing::error!("the logs of its run are not closed within {STOP_LIMIT:?}");
        }
        run
    }

    /// Carries what another member says to this one.
    async fn carry(&self, line: Line, join: &Join) {
        let member = match &*self.run.lock().await {
            Some(run) if run.id == join.run => run.handle.member.clone(),
            _ => return,
        };
        member.carry(line, join.from).await;
    }

    /// Forgets a run that is over, and leaves one that no console ends.
    async fn tidy(&self) {
        let mut run = self.run.lock().await;
        let Some(present) = &mut *run else { return };
        let member = &present.handle.member;
        let sight = {
            let seen = present.handle.seen();
            let (lines, console) = member.lines();
            let (closed, sending) = (seen.closed, seen.workers > 0);
            let receiving = clock::unix_ns() < seen.receives_until_ns;
            // What it had known of a start before its own restart it may not know yet.
            let begun = seen.begun || present.resumed;
            Sight { begun, closed, sending, receiving, lines, console, ordered: seen.ordered }
        };
        let verdict = present.idle.look(clock::monotonic_ns(), sight);
        let why = match verdict {
            Decision::Stay => return,
            Decision::Try => {
                // Flows count from 1: void, but ordered.
                let nothing = Command::Released { flow: 0, fence: 0, next: 0 };
                return member.try_ask(&ControlRequest::Command(nothing));
            }
            Decision::Leave(why) => why,
            Decision::Forget => "the run is over",
        };
        run.take().into_iter().for_each(|before| self.leave(before, why));
    }

    async fn handle(&self) -> Option<(String, Handle)> {
        let run = self.run.lock().await;
        run.as_ref().map(|run| (run.id.clone(), run.handle.clone()))
    }

    /// Facts about this agent, for Prometheus.
    async fn facts(&self) -> Facts {
        let Some((id, handle)) = self.handle().await else { return Facts::default() };
        let figures = handle.figures();
        let seen = handle.seen();
        let left = seen.lease_ns.saturating_sub(clock::monotonic_ns());
        // Before the first change of the view all that have begun are members.
        let members = match seen.slots.len() {
            0 => handle.member.join.addresses.len(),
            members => members,
        };
        Facts {
            run: Some((id, seen.name.clone())),
            view: (seen.view, members),
            workers: seen.workers,
            labels: seen.labels.clone(),
            lease_left_ns: (left > 0 && seen.lease_ns < u64::MAX).then_some(left),
            figures,
        }
    }

    async fn status(&self) -> Status {
        let Some((id, handle)) = self.handle().await else { return Status::default() };
        let replica = handle.look().await;
        let seen = handle.seen();
        Status {
            run: Some(id),
            name: seen.name.clone(),
            nodes: seen.nodes.clone(),
            replica,
            view: seen.view,
            flows: seen.names.clone(),
            cut_off: handle.member.too_few(),
        }
    }

    /// Has a command of a user at a terminal ordered.
    async fn order(&self, command: Command) -> Result<u64, String> {
        let Some((_, handle)) = self.handle().await else {
            return Err("no experiment runs here".to_owned());
        };
        match &command {
            Command::Stop { .. } | Command::Reassign { .. } | Command::Mark { .. } => {}
            // A run whose console is gone has its end from who fetches its logs.
            Command::Drain | Command::End => {
                let replica = handle.look().await;
                if !replica.is_some_and(|replica| replica.is_settled()) {
                    return Err("its flows are not over".to_owned());
                }
            }
            _ => return Err("that is no command for a terminal".to_owned()),
        }
        if matches!(&command, Command::Mark { label } if label.len() > MOST_LABEL) {
            return Err(format!("a remark has {MOST_LABEL} bytes at most"));
        }
        Self::cast(&handle, command).await
    }

    /// Has a change of rates ordered: for an instant that all can still keep.
    async fn set_rate(&self, flow: Option<u32>, rate: NewRate) -> Result<u64, String> {
        let Some((_, handle)) = self.handle().await else {
            return Err("no experiment runs here".to_owned());
        };
        let means =
            flow.map_or(Some((f64::NAN, f64::NAN)), |flow| handle.seen().means.get(&flow).copied());
        let means = means.ok_or_else(|| "there is no such flow".to_owned())?;
        let ppm = rate.ppm(means).ok_or_else(|| {
            "a rate can be changed to 0.001 to 1000 times what was asked for, where that is a rate".to_owned()
        })?;
        let ordering = Self::order_rate(&handle, flow, ppm);
        tokio::time::timeout(RATE_LIMIT, ordering).await.unwrap_or_else(|_| Err(SILENT.to_owned()))
    }

    async fn order_rate(handle: &Handle, flow: Option<u32>, ppm: u32) -> Result<u64, String> {
        let mut done = Err(TOO_LATE.to_owned());
        for _ in 0..RATE_TRIES {
            let replica = handle.look().await.ok_or_else(|| "its state is not known".to_owned())?;
            if replica.phase() != Phase::Running {
                return Err("nothing runs".to_owned());
            }
            let t0_unix_ns = replica.t0_unix_ns().saturating_add_signed(handle.member.clock().ns);
            let margin_ns = fence_wait(replica.rules().lease_ns) + RATE_MARGIN_NS;
            let at_ns = clock::unix_ns().saturating_sub(t0_unix_ns) + margin_ns;
            done = Self::cast(handle, Command::SetRate { flow, at_ns, ppm }).await;
            if done.as_ref().err().is_none_or(|why| why != TOO_LATE) {
                break;
            }
        }
        done
    }

    /// Has a command ordered; its position in the order, or why nothing came of it.
    async fn cast(handle: &Handle, command: Command) -> Result<u64, String> {
        let mut applied = handle.applied.subscribe();
        let me = handle.member.join.slot;
        handle.member.ask(ControlRequest::Command(command.clone())).await;
        let waiting = async {
            loop {
                match applied.recv().await {
                    Ok((by, position, done, void)) if by == me && done == command => {
                        return void.map_or(Ok(position), Err);
                    }
                    Ok(_) | Err(tokio::sync::broadcast::error::RecvError::Lagged(_)) => {}
                    Err(_) => return Err("the experiment is over".to_owned()),
                }
            }
        };
        tokio::time::timeout(ORDERED, waiting).await.unwrap_or_else(|_| Err(SILENT.to_owned()))
    }
}

/// Returns true if a console begins the run with this call: its later calls, to an agent that may have lost its
/// disk, bring a number of their own, and a first start is not given twice.
fn is_first_start(join: &Join, known: bool) -> bool {
    join.from as usize + 1 == join.addresses.len() && join.start == 1 && !known
}

/// Checks a call: the called member is a node, and the caller is a member with a larger slot.
fn check(join: &Join) -> Result<()> {
    let members = join.addresses.len();
    if members > MOST_MEMBERS {
        bail!("a run of {members} members: {MOST_MEMBERS} at most");
    }
    let console = members.checked_sub(1).context("a run without members")?;
    if join.slot as usize >= console {
        bail!("slot {} is no node's", join.slot);
    }
    if join.from <= join.slot || join.from as usize > console {
        bail!("slot {} has no reason to call slot {}", join.from, join.slot);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_leaves_later_does_not_bring_an_agent_back() {
        // A member that sees the others go a little later counts from then.
        let dead_ns = crate::idle::Limits::default().dead_ns;
        assert_eq!((LEFT_NS, dead_ns), (70_000_000_000, 60_000_000_000), "see docs/cluster.md");
    }

    #[test]
    fn a_console_that_calls_again_begins_no_first_start() {
        for (from, start, known, want) in [
            (3, 1, false, true),
            (3, 1, true, false),
            (3, 1_700_000_000_000, false, false),
            (2, 1, false, false),
        ] {
            let join = Join {
                run: "0".repeat(32),
                start,
                slot: 0,
                from,
                addresses: vec![String::new(); 4],
                offset_ns: 0,
                uncertainty_ns: 0,
                begin: true,
                warrant: wire::Warrant::default(),
            };
            assert_eq!(is_first_start(&join, known), want, "from {from}, start {start}, {known}");
        }
    }

    #[test]
    fn who_calls_is_a_member_behind_the_called_one() {
        let join = |slot, from, members: usize| Join {
            run: "0".repeat(32),
            start: 1,
            slot,
            from,
            addresses: vec![String::new(); members],
            offset_ns: 0,
            uncertainty_ns: 0,
            begin: true,
            warrant: wire::Warrant::default(),
        };
        for (slot, from, members, want) in [
            (0, 3, 4, Ok(())),
            (2, 3, 4, Ok(())),
            (0, 1, 4, Ok(())),
            (1, 1, 4, Err("slot 1 has no reason to call slot 1")),
            (2, 1, 4, Err("slot 1 has no reason to call slot 2")),
            (0, 4, 4, Err("slot 4 has no reason to call slot 0")),
            (0, u32::MAX, 4, Err("slot 4294967295 has no reason to call slot 0")),
            (3, 4, 4, Err("slot 3 is no node's")),
            (0, 1, 0, Err("a run without members")),
            (0, 1, 5000, Err("a run of 5000 members: 4096 at most")),
        ] {
            let got = check(&join(slot, from, members)).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "slot {slot}, from {from} of {members}");
        }
    }
}
