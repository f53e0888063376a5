//! `itg-cluster run FILE` over agents: finds them, starts the experiment everywhere at one time, watches it,
//! gathers the logs and reports.
//!
//! The console is a member of the group of the run, the last one: what it wants goes through the ordered log
//! like everything else, and it knows what all others know.

mod gather;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use itg_cli::{Failure, Loaded, Signals, WordArgs, draw_run, refuse, say};
use itg_control::{
    Command, ControlDelivery, ControlRequest, Failover, Phase, Replica, Rules, Stage,
};
use itg_core::units::format_duration_ns;
use itg_experiment::Manifest;
use itg_run::events::What;
use itg_run::live::Live;
use itg_run::{Outcome, Output, Prepared, World, why};
use itg_socket::clock;
use itg_trust::{Role, plain};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use self::gather::{HURRY, USUAL};
use crate::description::Description;
use crate::ends::{ends_of, latest_end_ns};
use crate::finding::{Node, Run, receiver};
use crate::member::Member;
use crate::missing::{GIVE_UP_NS, Step, named};
use crate::options::{AgentsOptions, Require};
use crate::trust::Trust;
use crate::watch::Watch;
use crate::wire::{Join, times, with_port};

/// Time that nodes may take to get the description and make ready.
const LOADING: Duration = Duration::from_secs(15);
/// … and so many of the longest round trip to a node.
const LOADING_ROUND_TRIPS: u32 = 40;
/// Round trips that a lease lasts at least, and the longest that counts.
const LEASE_ROUND_TRIPS: u64 = 32;
const LONGEST_NS: u64 = 5_000_000_000;
/// From the order to start to the start: workers are started meanwhile.
const MARGIN_NS: u64 = 700_000_000;
/// … and so many of the longest round trip to a node: the order, a lease, and what sender and receiver agree.
const MARGIN_ROUND_TRIPS: u64 = 16;
/// Time between two looks at the state.
const LOOK: Duration = Duration::from_millis(100);
/// A flow that is not over so long after its plan is named.
const OVERDUE_NS: u64 = 10_000_000_000;
/// Beside the length of a lease, flows are waited for no longer than this after the plan.
const PATIENCE_NS: u64 = 30_000_000_000;
/// Time that flows may take to stop at a signal.
const STOPPING: Duration = Duration::from_secs(3);
/// Least time of the work of nodes at the start and at the end: nobody is missed sooner.
const SOON: Duration = Duration::from_secs(1);

/// The agents of the nodes of an experiment, as a world.
#[derive(Clone, Debug, Default)]
pub struct Agents {
    /// Options: how they are reached, and what they do on failures.
    pub options: AgentsOptions,
}

impl World for Agents {
    fn name(&self) -> &'static str {
        "cluster"
    }

    fn options(&self) -> Vec<String> {
        self.options.words()
    }

    fn prepare<'a>(&'a self, loaded: &'a mut Loaded) -> Result<Box<dyn Prepared + 'a>> {
        let Some(keys) = &self.options.keys else {
            return Err(refuse(
                "running over several nodes needs the keys of their agents: give --keys DIR (`itg-cluster keys` \
                 makes them), or add --local to run all nodes on this host, or --sim to simulate them",
            ));
        };
        let nodes = nodes(loaded)?;
        let trust = Trust::load(keys)?;
        trust.must_be(Role::Console)?;
        Ok(Box::new(Ready { options: &self.options, loaded, nodes, trust }))
    }
}

/// A run over agents that have not been called yet.
struct Ready<'a> {
    options: &'a AgentsOptions,
    loaded: &'a Loaded,
    nodes: Vec<Node>,
    trust: Trust,
}

impl Prepared for Ready<'_> {
    fn loaded(&self) -> &Loaded {
        self.loaded
    }

    fn settings(&self) -> Vec<(&'static str, String)> {
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        vec![("nodes", names.join(" "))]
    }

    /// Returns false: nodes that are not there leave an empty directory, so that the same command can be given again.
    fn writes_manifest_first(&self) -> bool {
        false
    }

    fn carry_out(
        self: Box<Self>,
        output: &Output,
        manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let done = runtime.block_on(self.conduct(output, manifest, words));
        runtime.shutdown_timeout(Duration::from_secs(1));
        done
    }
}

impl Ready<'_> {
    /// Finds the agents, compares versions and clocks, and forms the group.
    async fn find(
        self,
        run: Run,
        words: WordArgs,
        manifest: Manifest,
        mut watch: Watch,
    ) -> Result<Console> {
        let Self { options, loaded, mut nodes, trust } = self;
        let absent = run.look_at(&mut nodes).await?;
        for text in absent.values() {
            say(format_args!("itg-cluster: {text}"));
        }
        let there = nodes.len() - absent.len();
        let enough = match options.require {
            Require::All => absent.is_empty(),
            Require::AtLeast(number) => there >= number.min(nodes.len()),
        };
        if !enough {
            let text = format!("{there} of {} nodes are there: nothing was started", nodes.len());
            return Err(Failure::new(3, text).into());
        }
        let console = u32::try_from(nodes.len())?;
        let mut addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        let receivers = addresses.iter().map(|at| receiver(at)).collect::<Result<Vec<_>>>()?;
        addresses.push(String::new());
        let join = Join {
            warrant: trust.vouch(&run.id, &addresses)?,
            run: run.id.clone(),
            start: 1,
            slot: console,
            from: console,
            addresses,
            offset_ns: 0,
            uncertainty_ns: 0,
            begin: true,
        };
        run.join(&join, (0_u32..).zip(&nodes).filter(|(slot, _)| !absent.contains_key(slot)))
            .await?;
        let (member, told) = Member::begin(join, &trust, None, None)?;
        watch.formed(&member, &absent);
        let keys = options.keys.as_deref().unwrap_or_else(|| Path::new("keys"));
        let fetch = format!(
            "itg-cluster fetch {} --at {} --keys {}",
            run.id,
            loaded.origin,
            keys.display()
        );
        let description = Description {
            run: run.id.clone(),
            manifest,
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            receivers,
        };
        let routes = description.routes(&loaded.plan)?;
        let lease_ns = lease_over(options.lease.0, &nodes);
        let rules = Rules {
            orphan: options.orphan.into(),
            orphan_after_ns: options.orphan_after.0,
            failover: options.failover.into(),
            lease_ns,
            console: Some(console),
        };
        member.ask(ControlRequest::Load(description.to_bytes()?, routes, rules)).await;
        Ok(Console {
            trust,
            members: (0..=console).collect(),
            nodes,
            absent,
            run: run.id,
            member,
            told,
            replica: Replica::default(),
            words,
            began: Instant::now(),
            events: Vec::new(),
            settings: BTreeMap::new(),
            lost_logs: Vec::new(),
            watch,
            fetch,
            ends: ends_of(&loaded.plan),
            overdue: BTreeSet::new(),
        })
    }

    /// Finds the agents, has them carry out the run, and fetches their logs.
    async fn conduct(
        self,
        output: &Output,
        manifest: &Manifest,
        words: WordArgs,
    ) -> Result<Outcome> {
        let Output { dir, events, .. } = output;
        let signals = Signals::watch()?;
        let names: Vec<&str> = self.nodes.iter().map(|node| node.name.as_str()).collect();
        let live = output.live.then(|| Live::start(events, signals.stop.clone())).flatten();
        let watch = Watch::new(events.clone(), live, &names);
        let names = names.into_iter().map(str::to_owned).collect();
        events.begin(What::run(&self.loaded.plan, "cluster", names));
        let run = Run { id: draw_run(), trust: self.trust.clone() };
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address.clone()).collect();
        let found = self.find(run.clone(), words, manifest.clone(), watch);
        let found = unless_stopped(&signals, found).await;
        if found.is_err() && signals.exit_code().is_some() {
            // Some may have joined already.
            run.forget(addresses).await;
        }
        let mut console = found?;
        console.event(&format!("run {}", console.run));
        console.conduct(&signals).await?;
        console.watch.close();
        let logs = if signals.exit_code().is_some() {
            // The run was ended by a signal, but its logs are wanted: the next signal ends the program.
            console.gather(dir, &HURRY).await?
        } else {
            let logs = unless_stopped(&signals, console.gather(dir, &USUAL)).await;
            if signals.exit_code().is_some() {
                let text = format!("the logs stay with the agents: {}", console.fetch);
                console.leave(&text).await;
            }
            logs?
        };
        if !console.lost_logs.is_empty() {
            console
                .event(&format!("logs that are missing may be with the agents: {}", console.fetch));
        }
        let stopped = signals.stop.borrow().clone();
        Ok(console.outcome(logs, signals.exit_code(), stopped))
    }
}

/// Does something unless a signal ends the program before.
async fn unless_stopped<T>(signals: &Signals, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut stop = signals.stop.clone();
    tokio::select! {
        done = work => done,
        reason = stop.wait_for(Option::is_some) => {
            let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
            Err(Failure::new(signals.exit_code().unwrap_or(1), reason).into())
        }
    }
}

/// A lease within which its renewal is ordered: that takes four ways at least, between agents that may be twice as far
/// from each other as from the console, and waits for what is being ordered. Renewals of all are to leave room on a
/// slow link, too.
fn lease_over(lease_ns: u64, nodes: &[Node]) -> u64 {
    let longest_ns = nodes.iter().map(|node| node.round_trip_ns).max().unwrap_or(0);
    let least_ns = LEASE_ROUND_TRIPS * longest_ns.min(LONGEST_NS);
    if least_ns > lease_ns {
        let lease = format_duration_ns(least_ns);
        say(format_args!("itg-cluster: leases last {lease}: the links to the nodes are slow"));
    }
    lease_ns.max(least_ns)
}

/// The nodes of the file, in the order of their names.
fn nodes(loaded: &Loaded) -> Result<Vec<Node>> {
    if loaded.experiment.nodes.is_empty() {
        return Err(refuse(
            "the experiment has no [nodes]: name them with their addresses, as `a = { address = \"10.0.0.4\" }`, \
             or add --local",
        ));
    }
    let mut taken = BTreeMap::new();
    let mut nodes = Vec::new();
    for (name, entry) in &loaded.experiment.nodes {
        // It is the name of a directory of logs, too.
        if !plain(name) {
            return Err(refuse(format!(
                "node `{name}`: use letters, digits, `-` and `_` in the names of nodes"
            )));
        }
        let address = with_port(&entry.address);
        if let Some(other) = taken.insert(address.clone(), name) {
            return Err(refuse(format!(
                "nodes `{other}` and `{name}` have the same address {address}: one agent is one node"
            )));
        }
        nodes.push(Node { name: name.clone(), address, clock: (0, 0), round_trip_ns: 0 });
    }
    Ok(nodes)
}

struct Console {
    trust: Trust,
    nodes: Vec<Node>,
    /// Nodes that are not there from the start, with the reason.
    absent: BTreeMap<u32, String>,
    run: String,
    member: Member,
    told: mpsc::UnboundedReceiver<ControlDelivery>,
    replica: Replica,
    words: WordArgs,
    began: Instant,
    events: Vec<String>,
    settings: BTreeMap<String, String>,
    lost_logs: Vec<(String, String)>,
    members: BTreeSet<u32>,
    watch: Watch,
    /// Command that makes the report of the run without this console.
    fetch: String,
    /// Ends of the flows by their plan.
    ends: BTreeMap<u32, (u64, Option<u64>)>,
    /// Flows that are not over although their plan is.
    overdue: BTreeSet<u32>,
}

impl Console {
    fn name(&self, slot: u32) -> &str {
        self.nodes.get(slot as usize).map_or("console", |node| &node.name)
    }

    /// A line with the time since the beginning.
    fn stamped(&self, text: &str) -> String {
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0);
        format!("{:>9}  {text}", format_duration_ns(ms * 1_000_000))
    }

    fn event(&mut self, text: &str) {
        let line = self.stamped(text);
        if !self.words.quiet && !self.watch.shows() {
            say(&line);
        }
        self.events.push(line);
    }

    async fn order(&self, command: Command) {
        self.member.ask(ControlRequest::Command(command)).await;
    }

    /// Waits for the next thing that the group tells, at most this long.
    async fn hear(&mut self, limit: Duration) -> Result<Option<ControlDelivery>> {
        match tokio::time::timeout(limit, self.told.recv()).await {
            Ok(Some(tell)) => {
                self.note(&tell);
                Ok(Some(tell))
            }
            Ok(None) => Err(anyhow!("the group of the run has ended")),
            Err(_) => Ok(None),
        }
    }

    /// Remembers what matters of what the group tells.
    fn note(&mut self, tell: &ControlDelivery) {
        self.watch.told(tell, &self.member);
        match tell {
            ControlDelivery::State(replica) => self.replica = (**replica).clone(),
            ControlDelivery::View { number, slots } => {
                let now: BTreeSet<u32> = slots.iter().copied().collect();
                let before = std::mem::replace(&mut self.members, now.clone());
                let names = |slots: Vec<&u32>| {
                    slots.iter().map(|slot| self.name(**slot)).collect::<Vec<_>>().join(", ")
                };
                let (left, came) = (
                    names(before.difference(&now).collect()),
                    names(now.difference(&before).collect()),
                );
                let mut text =
                    format!("view {number}: {} of {} members", now.len(), self.nodes.len() + 1);
                if !left.is_empty() {
                    text += &format!("; {left} left");
                }
                if !came.is_empty() {
                    text += &format!("; {came} came back");
                }
                self.event(&text);
            }
            ControlDelivery::Fenced => {
                self.event("this console was excluded: it begins again as another member")
            }
            ControlDelivery::Applied { command, void: None, by, .. } => {
                let text = match command {
                    Command::Stop { flow: Some(flow) } => format!("flow {flow} is stopped"),
                    Command::Stop { flow: None } => "all flows are stopped".to_owned(),
                    Command::Reassign { flow, to } => {
                        format!("flow {flow} is handed to {}", self.name(*to))
                    }
                    Command::Mark { label } => format!("mark: {label}"),
                    Command::SetRate { flow, at_ns, ppm } => format!(
                        "{}: rate x {} from {} after the start on",
                        flow.map_or_else(|| "all flows".to_owned(), |flow| format!("flow {flow}")),
                        times(*ppm),
                        format_duration_ns(*at_ns)
                    ),
                    Command::GiveUp { flow, why, .. } => {
                        format!("{} gives flow {flow} up: {why}", self.name(*by))
                    }
                    Command::Refuses { why, .. } => format!("{} refuses: {why}", self.name(*by)),
                    Command::Arm => "all nodes are ready".to_owned(),
                    _ => return,
                };
                self.event(&text);
            }
            _ => {}
        }
    }

    /// From loading to the end of all flows.
    async fn conduct(&mut self, signals: &Signals) -> Result<()> {
        if let Err(error) = unless_stopped(signals, self.load()).await {
            self.leave("the experiment was not started").await;
            return Err(error);
        }
        let longest = self.nodes.iter().map(|node| node.round_trip_ns).max().unwrap_or(0);
        let longest_ns = longest.max(nanoseconds(self.member.round_trip())).min(LONGEST_NS);
        let margin_ns = MARGIN_NS + MARGIN_ROUND_TRIPS * longest_ns;
        let t0_unix_ns = clock::unix_ns() + margin_ns;
        let t0_ns = clock::monotonic_ns() + margin_ns;
        self.order(Command::Start { t0_unix_ns }).await;
        let mut stop = signals.stop.clone();
        let mut stopping: Option<Instant> = None;
        let mut owners: BTreeMap<u32, (Option<u32>, u16)> = BTreeMap::new();
        let mut asking = None;
        loop {
            tokio::select! {
                told = self.hear(LOOK) => {
                    told?;
                }
                reason = stop.wait_for(Option::is_some), if stopping.is_none() => {
                    stopping = Some(Instant::now());
                    let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
                    self.watch.word(&reason);
                    self.event(&reason);
                    self.event(&format!(
                        "flows are stopped and logs fetched; after another signal the logs stay with the agents: {}",
                        self.fetch
                    ));
                    self.order(Command::Stop { flow: None }).await;
                }
            }
            self.look().await?;
            self.watch.look(&self.replica);
            self.tell_moves(&mut owners);
            let there = self.reached();
            self.miss(&there, &self.running(&there));
            if self.watch.gives_up() {
                let text = format!(
                    "nothing could be agreed for {} s, so the run is given up; the logs stay with the agents: {}",
                    GIVE_UP_NS / 1_000_000_000,
                    self.fetch
                );
                return Err(Failure::new(signals.exit_code().unwrap_or(3), text).into());
            }
            if self.replica.phase() >= Phase::Running && self.replica.is_settled() {
                break;
            }
            if stopping.is_some_and(|since| since.elapsed() > STOPPING) {
                self.event("flows are not stopped by all: the logs that are there are fetched");
                return Ok(());
            }
            let run_ns = clock::monotonic_ns().saturating_sub(t0_ns);
            if self.is_overdue(run_ns) {
                self.order(Command::Stop { flow: None }).await;
                return Ok(());
            }
            if self.is_left_behind(run_ns, &mut asking).await {
                self.event("all nodes have closed their logs without this console");
                return Ok(());
            }
        }
        self.event("all flows have ended");
        Ok(())
    }

    /// Says which flows are not over although their plan is, and who is to send them; true when they are waited for no
    /// longer, so long after the start of the run.
    fn is_overdue(&mut self, run_ns: u64) -> bool {
        let words = self.replica.words().iter().zip(1_u32..);
        let open = words.filter(|(word, _)| word.stage() < Stage::Stopped);
        let mut late: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
        let mut last_ns = 0;
        for (word, flow) in open {
            let (end_ns, over_ns) = self.ends.get(&flow).copied().unwrap_or((u64::MAX, None));
            let end_ns = latest_end_ns(end_ns, over_ns, self.replica.rates(flow));
            last_ns = last_ns.max(end_ns);
            if run_ns > end_ns.saturating_add(OVERDUE_NS) && !self.overdue.contains(&flow) {
                let owner = word.owner().map_or("nobody", |slot| self.name(slot));
                late.entry(owner).or_default().push(flow);
            }
        }
        let told: Vec<String> = late
            .iter()
            .map(|(owner, flows)| {
                let after = OVERDUE_NS / 1_000_000_000;
                format!(
                    "flows {}: not over {after} s after their plan; {owner} is to send them",
                    named(flows)
                )
            })
            .collect();
        let late: Vec<u32> = late.into_values().flatten().collect();
        self.overdue.extend(late);
        told.iter().for_each(|text| self.event(text));
        let patience_ns = self.replica.rules().lease_ns.saturating_add(PATIENCE_NS);
        let over = last_ns > 0 && run_ns > last_ns.saturating_add(patience_ns);
        if over {
            self.event("flows that are not over are given up: the logs that are there are fetched");
        }
        over
    }

    /// Returns true when all nodes have closed their logs while this console was cut off: no member of the run is there any
    /// more that would tell it.
    async fn is_left_behind(&self, run_ns: u64, asking: &mut Option<JoinHandle<bool>>) -> bool {
        let latest = |(flow, (end_ns, over_ns)): (&u32, &(u64, Option<u64>))| {
            latest_end_ns(*end_ns, *over_ns, self.replica.rates(*flow))
        };
        if !self.reached().is_empty() || self.ends.iter().map(latest).any(|end| run_ns < end) {
            return false;
        }
        match asking.take() {
            Some(task) if task.is_finished() => task.await.unwrap_or(false),
            Some(task) => {
                *asking = Some(task);
                false
            }
            None => {
                *asking = Some(self.ask_whether_closed());
                false
            }
        }
    }

    /// Members that are reached.
    fn reached(&self) -> BTreeSet<u32> {
        let mut there = self.member.connected();
        there.retain(|slot| self.members.contains(slot));
        there
    }

    /// The step of a run whose flows are sent while only these members are reached.
    fn running(&self, there: &BTreeSet<u32>) -> Step {
        let words = self.replica.words().iter().zip(1_u32..);
        let waits = words.filter(|(word, _)| {
            word.stage() < Stage::Stopped && word.owner().is_none_or(|slot| !there.contains(&slot))
        });
        Step::Running {
            too_few: self.member.too_few(),
            flows: waits.map(|(_, flow)| flow).collect(),
            fails_over: self.replica.rules().failover == Failover::Move,
        }
    }

    /// Says which nodes are missing, when it is time to.
    fn miss(&mut self, there: &BTreeSet<u32>, step: &Step) {
        let all = (0_u32..).take(self.nodes.len());
        let wanted = |slot: &u32| self.members.contains(slot) || !self.absent.contains_key(slot);
        let nodes: BTreeSet<u32> = all.filter(wanted).collect();
        if let Some(text) = self.watch.miss(&nodes, there, step)
            && !self.words.quiet
            && !self.watch.shows()
        {
            say(self.stamped(&text));
        }
    }

    /// Ends the experiment before its time, saying so.
    async fn leave(&mut self, what: &str) {
        self.event(what);
        self.order(Command::End).await;
        // What is ordered goes out.
        tokio::time::sleep(Duration::from_millis(200)).await;
    }

    /// Asks for the state as this member knows it.
    async fn look(&mut self) -> Result<()> {
        self.member.ask(ControlRequest::Look).await;
        loop {
            match self.hear(Duration::from_secs(5)).await? {
                Some(ControlDelivery::State(_)) => return Ok(()),
                Some(_) => {}
                None => {
                    return Err(anyhow!("this program's own part of the group does not answer"));
                }
            }
        }
    }

    /// Says which flows have changed hands.
    fn tell_moves(&mut self, owners: &mut BTreeMap<u32, (Option<u32>, u16)>) {
        let mut moves: BTreeMap<(Option<u32>, Option<u32>), Vec<String>> = BTreeMap::new();
        for (word, flow) in self.replica.words().iter().zip(1_u32..) {
            if word.stage() == Stage::Stopped || word.stage() == Stage::Finished {
                continue;
            }
            let now = (word.owner(), word.fence());
            if let Some(before) = owners.insert(flow, now).filter(|before| *before != now) {
                moves.entry((before.0, now.0)).or_default().push(flow.to_string());
            }
        }
        for ((from, to), flows) in moves {
            let name = |slot: Option<u32>| slot.map_or("nobody", |slot| self.name(slot)).to_owned();
            let (from, to, flows) = (name(from), name(to), flows.join(" "));
            self.event(&format!("flows {flows}: from {from} to {to}"));
        }
    }

    /// Waits until every node has the description and can do its part; arms.
    async fn load(&mut self) -> Result<()> {
        let (began, began_ns) = (Instant::now(), clock::monotonic_ns());
        loop {
            let patience = LOADING + LOADING_ROUND_TRIPS * self.member.round_trip();
            let until_ns = began_ns.saturating_add(nanoseconds(patience));
            self.look().await?;
            self.watch.look(&self.replica);
            if began.elapsed() > SOON {
                let mut there = self.reached();
                there.retain(|slot| self.replica.holders().contains(slot));
                self.miss(&there, &Step::Loading(until_ns));
            }
            if let Some((slot, why)) = self.replica.refusals().first_key_value() {
                let text = format!("node {}: {why}", self.name(*slot));
                return Err(Failure::new(3, text).into());
            }
            let console = u32::try_from(self.nodes.len())?;
            let missing: Vec<u32> = self
                .members
                .iter()
                .copied()
                .filter(|slot| *slot != console && !self.replica.holders().contains(slot))
                .collect();
            let waiting_for_absent = self.absent.keys().any(|slot| self.members.contains(slot));
            if self.replica.phase() == Phase::Loaded && missing.is_empty() && !waiting_for_absent {
                self.order(Command::Arm).await;
            }
            if self.replica.phase() >= Phase::Armed {
                return Ok(());
            }
            if began.elapsed() > patience {
                let names: Vec<&str> = missing.iter().map(|slot| self.name(*slot)).collect();
                let text = format!(
                    "loading: no answer from node {} within {} s",
                    names.join(", "),
                    patience.as_secs()
                );
                return Err(Failure::new(3, text).into());
            }
            self.hear(Duration::from_millis(20)).await?;
        }
    }

    /// Outcome of the run, for the report.
    fn outcome(self, logs: Vec<PathBuf>, signal: Option<u8>, stopped: Option<String>) -> Outcome {
        let given_up = self.replica.given_up();
        let whole = self.lost_logs.is_empty() && given_up.is_empty();
        let code = signal.unwrap_or_else(|| u8::from(!whole) * 4);
        let story = self.story();
        let lost = self.lost_logs.iter().map(|(node, why)| format!("logs of node {node}: {why}"));
        let mut failures: Vec<String> = lost.collect();
        let interrupted = why(stopped, failures.iter().cloned(), code);
        failures.extend(given_up.iter().map(|(flow, why)| {
            let owner = self.replica.word(*flow).and_then(itg_control::Word::owner);
            let owner = owner.map_or("nobody", |slot| self.name(slot));
            format!("flow {flow} was given up by {owner}: {why}")
        }));
        Outcome {
            logs,
            code,
            interrupted,
            settings: self.settings,
            story: Some(story),
            failures,
            ..Outcome::default()
        }
    }

    /// Starts of the nodes and events of the run, for the report.
    fn story(&self) -> String {
        let mut text = String::from("\nStart\n");
        for (key, value) in &self.settings {
            let node = key.strip_prefix("start ").unwrap_or(key);
            text += &format!("  node {node}: {value}\n");
        }
        text += "Events\n";
        for event in &self.events {
            text += &format!("  {event}\n");
        }
        text
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
