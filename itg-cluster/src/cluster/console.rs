//! `itg-cluster run FILE` over agents: finds them, starts the experiment everywhere at one time, watches it,
//! gathers the logs and reports.
//!
//! The console is a member of the group of the run, the last one: what it wants goes through the ordered log
//! like everything else, and it knows what all others know.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use itg_cli::{Failure, Loaded, Signals, WordArgs, announce, draw_run, refuse, say};
use itg_core::units::format_duration_ns;
use itg_experiment::Manifest;
use itg_experiment::control::{Ask, Command, Phase, Replica, Rules, Stage, Tell};
use itg_net::clock;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::agent::EXCLUDE_MS;
use super::collect;
use super::ctl::{times, with_port};
use super::description::Description;
use super::member::{Member, compare_clocks, greet};
use super::trust::Trust;
use super::watch::{self, Watch};
use super::wire::{Call, Join, Reply, ask};
use crate::live::Live;
use crate::run::{Done, Place, RunArgs, conclude, decode, gates, prepare, why, write};

/// How long nodes may take to get the description and make ready.
const LOADING: Duration = Duration::from_secs(15);
/// From the order to start to the start: workers are started meanwhile.
const MARGIN_NS: u64 = 700_000_000;
/// How often the state is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// How long nodes may take to hear that a run that was interrupted does not begin.
const FORGETTING: Duration = Duration::from_secs(1);
/// How long senders may take to come to their end, and receivers behind them.
const ENDING: Duration = Duration::from_secs(20);

/// How many of the nodes must be there.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Require {
    /// Every one.
    All,
    /// At least so many; others count as failed.
    AtLeast(usize),
}

/// Reads `all` or a number.
pub(crate) fn require(text: &str) -> Result<Require, String> {
    match text.parse() {
        _ if text == "all" => Ok(Require::All),
        Ok(0) | Err(_) => Err(format!("`{text}`: expected `all` or a number of nodes")),
        Ok(number) => Ok(Require::AtLeast(number)),
    }
}

/// A node of the experiment.
#[derive(Clone, Debug)]
struct Node {
    name: String,
    address: String,
    /// Its clock minus ours, and how wrong that may be.
    clock: (i64, u64),
}

/// Runs an experiment over the agents of its nodes.
pub(crate) fn run(args: &RunArgs, loaded: &Loaded, place: &Place, words: WordArgs) -> Result<Done> {
    let Some(keys) = &args.keys else {
        return Err(refuse(
            "running over several nodes needs the keys of their agents: give --keys DIR (`itg-cluster keys` \
             makes them), or add --local to run all nodes on this host, or --sim to simulate them",
        ));
    };
    let nodes = nodes(loaded)?;
    let trust = Trust::load(keys)?;
    let started = jiff::Timestamp::now();
    let out = &place.out;
    let gates = gates(loaded)?;
    prepare(out)?;
    if !words.quiet {
        announce(&loaded.plan);
    }
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let unix_ns = u64::try_from(started.as_nanosecond()).unwrap_or(0);
    let manifest = Manifest::new(&loaded.plan, &loaded.origin, &loaded.text, loaded.duration_ns)
        .started(unix_ns)
        .setting("world", "cluster")
        .setting(
            "nodes",
            nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>().join(" "),
        );
    let done = runtime.block_on(async {
        let signals = Signals::watch()?;
        let names: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
        let live = place.live.then(|| Live::start(&place.events, signals.stop.clone())).flatten();
        let watch = Watch::new(place.events.clone(), live, &names);
        let names = names.into_iter().map(str::to_owned).collect();
        place.events.begin(watch::begin(loaded, "cluster", names));
        let run = Run { id: draw_run(), trust };
        let addresses: Vec<String> = nodes.iter().map(|node| node.address.clone()).collect();
        let found = Console::find(args, loaded, run.clone(), nodes, words, manifest.clone(), watch);
        let found = unless_stopped(&signals, found).await;
        if found.is_err() && signals.exit_code().is_some() {
            // Some may have joined already.
            drop(tokio::time::timeout(FORGETTING, run.forget(addresses)).await);
        }
        let mut console = found?;
        console.conduct(&signals).await?;
        console.watch.close();
        let logs = if signals.exit_code().is_some() {
            // The run was ended by a signal, but its logs are wanted: the next signal ends the program.
            console.gather(out).await?
        } else {
            let logs = unless_stopped(&signals, console.gather(out)).await;
            if signals.exit_code().is_some() {
                console.leave("the logs stay with the agents").await;
            }
            logs?
        };
        let stopped = signals.stop.borrow().clone();
        Ok::<_, anyhow::Error>((console, logs, signals.exit_code(), stopped))
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    if let Err(error) = &done {
        place.events.end(Some(format!("{error:#}")));
    }
    let (console, logs, signal, stopped) = done?;

    let mut text = console.story();
    let whole = console.lost_logs.is_empty() && console.refused.is_empty();
    let code = signal.unwrap_or_else(|| u8::from(!whole) * 4);
    let lost = console.lost_logs.iter().map(|(node, why)| format!("logs of node {node}: {why}"));
    place.events.end(why(stopped, lost, code));
    let manifest = console
        .settings
        .iter()
        .fold(manifest, |manifest, (key, value)| manifest.setting(key, value.clone()));
    let manifest = manifest.setting("exit_code", code.to_string());
    write(&out.join("manifest.json"), &manifest.to_json())?;
    write(&out.join("events.txt"), &text)?;
    if logs.is_empty() {
        return Err(
            Failure::new(4, "no node has given its logs: there is nothing to report").into()
        );
    }
    let report = decode(&logs, &manifest)?;
    text.insert_str(0, &itg_stats::text::render(&report));
    let gate = conclude(place, &report, &text, &gates, words)?;
    for (node, why) in &console.lost_logs {
        say(format_args!("itg-cluster: logs of node {node}: {why}"));
    }
    for (node, flows) in &console.refused {
        let flows: Vec<String> = flows.iter().map(u32::to_string).collect();
        say(format_args!(
            "itg-cluster: policy of node {node}: the changed rate of flows {} is not allowed, so they have ended",
            flows.join(" ")
        ));
    }
    if !words.quiet {
        say(format_args!("logs, report and manifest are in {}", out.display()));
    }
    let code = gate.filter(|_| code == 0).unwrap_or(code);
    Ok(Done { code, report })
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
        nodes.push(Node { name: name.clone(), address, clock: (0, 0) });
    }
    Ok(nodes)
}

/// Whether a name of a node is no more than a name.
fn plain(name: &str) -> bool {
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
}

/// The address of the receiver of an agent: the next port.
fn receiver(address: &str) -> Result<String> {
    let (host, port) = address.rsplit_once(':').context("an address without a port")?;
    let port: u16 = port.parse().context("port")?;
    let port = port
        .checked_add(1)
        .context("an agent cannot have the last port: data comes to the next one")?;
    Ok(format!("{host}:{port}"))
}

/// What a run is called, and the keys of those who may take part.
#[derive(Clone)]
struct Run {
    id: String,
    trust: Trust,
}

impl Run {
    /// Tells nodes that the run does not begin: they would wait for it.
    async fn forget(&self, addresses: Vec<String>) {
        let mut leaving = JoinSet::new();
        for address in addresses {
            let Self { trust, id } = self.clone();
            leaving.spawn(async move { call(&trust, &address, Call::Forget(id)).await });
        }
        while let Some(left) = leaving.join_next().await {
            if let Ok(Err(error)) = left {
                tracing::warn!("a node that had joined: {error:#}");
            }
        }
    }
}

struct Console {
    trust: Trust,
    nodes: Vec<Node>,
    /// Nodes that are not there from the start, with the reason.
    absent: BTreeMap<u32, String>,
    run: String,
    member: Member,
    told: mpsc::UnboundedReceiver<Tell>,
    replica: Replica,
    words: WordArgs,
    began: Instant,
    events: Vec<String>,
    settings: BTreeMap<String, String>,
    lost_logs: Vec<(String, String)>,
    /// Flows that the policy of a node has ended, by its name.
    refused: Vec<(String, BTreeSet<u32>)>,
    members: BTreeSet<u32>,
    watch: Watch,
}

impl Console {
    /// Finds the agents, compares versions and clocks, and forms the group.
    async fn find(
        args: &RunArgs,
        loaded: &Loaded,
        ours: Run,
        mut nodes: Vec<Node>,
        words: WordArgs,
        manifest: Manifest,
        mut watch: Watch,
    ) -> Result<Self> {
        let Run { id: run, trust } = ours.clone();
        let mut asking = JoinSet::new();
        for (slot, node) in nodes.iter().enumerate() {
            let (trust, address) = (trust.clone(), node.address.clone());
            asking.spawn(async move { (slot, look_at(&trust, &address).await) });
        }
        let mut problems = BTreeMap::new();
        while let Some(answer) = asking.join_next().await {
            match answer? {
                (slot, Ok(clock)) => nodes[slot].clock = clock,
                (slot, Err(error)) => {
                    let node = &nodes[slot];
                    let text = format!("node {} ({}): {error}", node.name, node.address);
                    problems.insert(u32::try_from(slot)?, text);
                }
            }
        }
        for text in problems.values() {
            say(format_args!("itg-cluster: {text}"));
        }
        let there = nodes.len() - problems.len();
        let enough = match args.require {
            Require::All => problems.is_empty(),
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
            run: run.clone(),
            start: 1,
            slot: console,
            from: console,
            addresses,
            offset_ns: 0,
            uncertainty_ns: 0,
            begin: true,
        };
        // All nodes know of the run before any of them misses another.
        let mut joining = JoinSet::new();
        for (node, slot) in
            nodes.iter().zip(0_u32..).filter(|(_, slot)| !problems.contains_key(slot))
        {
            let (trust, node) = (trust.clone(), node.clone());
            let join = Join {
                slot,
                offset_ns: node.clock.0,
                uncertainty_ns: node.clock.1,
                ..join.clone()
            };
            joining.spawn(async move {
                let joined = call(&trust, &node.address, Call::Join(join)).await;
                let place = format!("node {} ({})", node.name, node.address);
                match joined {
                    Ok(_) => Ok(node.address),
                    Err(error) => Err(Failure::new(3, format!("{place}: joining: {error:#}"))),
                }
            });
        }
        let (mut joined, mut failed) = (Vec::new(), None);
        while let Some(done) = joining.join_next().await {
            match done? {
                Ok(address) => joined.push(address),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        if let Some(failed) = failed {
            // The others would wait for a run that does not come.
            ours.forget(joined).await;
            return Err(failed.into());
        }
        let (member, told) = Member::begin(join, &trust, EXCLUDE_MS)?;
        watch.formed(&member, &problems);
        let description = Description {
            run: run.clone(),
            manifest,
            nodes: nodes.iter().map(|node| node.name.clone()).collect(),
            receivers,
        };
        let routes = description.routes(&loaded.plan)?;
        let rules = Rules {
            orphan: args.orphan.into(),
            failover: args.failover.into(),
            lease_ns: args.lease.0,
            console: Some(console),
        };
        member.ask(Ask::Load(description.to_bytes()?, routes, rules)).await;
        Ok(Self {
            trust,
            members: (0..=console).collect(),
            nodes,
            absent: problems,
            run,
            member,
            told,
            replica: Replica::default(),
            words,
            began: Instant::now(),
            events: Vec::new(),
            settings: BTreeMap::new(),
            lost_logs: Vec::new(),
            refused: Vec::new(),
            watch,
        })
    }

    fn name(&self, slot: u32) -> &str {
        self.nodes.get(slot as usize).map_or("console", |node| &node.name)
    }

    fn event(&mut self, text: &str) {
        let at = format_duration_ns(
            u64::try_from(self.began.elapsed().as_millis()).unwrap_or(0) * 1_000_000,
        );
        let line = format!("{at:>9}  {text}");
        if !self.words.quiet && !self.watch.shows() {
            say(&line);
        }
        self.events.push(line);
    }

    async fn order(&self, command: Command) {
        self.member.ask(Ask::Command(command)).await;
    }

    /// Waits for the next thing that the group tells, at most this long.
    async fn hear(&mut self, limit: Duration) -> Result<Option<Tell>> {
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
    fn note(&mut self, tell: &Tell) {
        self.watch.told(tell, &self.member);
        match tell {
            Tell::State(replica) => self.replica = (**replica).clone(),
            Tell::View { number, slots } => {
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
            Tell::Fenced => {
                self.event("this console was excluded: it begins again as another member")
            }
            Tell::Applied { command, void: None, by, .. } => {
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
        let t0_unix_ns = clock::unix_ns() + MARGIN_NS;
        self.order(Command::Start { t0_unix_ns }).await;
        let mut stop = signals.stop.clone();
        let mut stopping = false;
        let mut owners: BTreeMap<u32, (Option<u32>, u16)> = BTreeMap::new();
        loop {
            tokio::select! {
                told = self.hear(LOOK) => {
                    told?;
                }
                reason = stop.wait_for(Option::is_some), if !stopping => {
                    stopping = true;
                    let reason = reason.ok().and_then(|reason| reason.clone()).unwrap_or_default();
                    self.watch.word(&reason);
                    self.event(&reason);
                    self.order(Command::Stop { flow: None }).await;
                }
            }
            self.look().await?;
            self.watch.look(&self.replica);
            self.tell_moves(&mut owners);
            if self.replica.phase() >= Phase::Running && self.replica.is_settled() {
                break;
            }
        }
        self.event("all flows have ended");
        Ok(())
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
        self.member.ask(Ask::Look).await;
        loop {
            match self.hear(Duration::from_secs(5)).await? {
                Some(Tell::State(_)) => return Ok(()),
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
        let deadline = Instant::now() + LOADING;
        loop {
            self.look().await?;
            self.watch.look(&self.replica);
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
            if Instant::now() > deadline {
                let names: Vec<&str> = missing.iter().map(|slot| self.name(*slot)).collect();
                let text = format!(
                    "loading: no answer from node {} within {} s",
                    names.join(", "),
                    LOADING.as_secs()
                );
                return Err(Failure::new(3, text).into());
            }
            self.hear(Duration::from_millis(20)).await?;
        }
    }

    /// Ends the run and fetches the logs of all nodes.
    async fn gather(&mut self, out: &Path) -> Result<Vec<PathBuf>> {
        self.order(Command::Drain).await;
        let present: Vec<Node> = self.nodes.clone();
        let each = |closed: bool| {
            let mut waiting = JoinSet::new();
            for node in &present {
                let (trust, node, run) = (self.trust.clone(), node.clone(), self.run.clone());
                waiting.spawn(async move {
                    let done = collect::wait(&trust, &node.address, &run, closed, ENDING).await;
                    (node.name, done)
                });
            }
            waiting
        };
        // Receivers wait for the last words of all senders.
        let mut waiting = each(false);
        while let Some(done) = waiting.join_next().await {
            if let (name, Err(error)) = done? {
                tracing::warn!("node {name}: {error:#}");
            }
        }
        self.order(Command::End).await;
        let mut waiting = each(true);
        while let Some(done) = waiting.join_next().await {
            match done? {
                (name, Err(error)) => {
                    self.lost_logs.push((name, format!("its logs are not complete: {error:#}")));
                }
                (name, Ok(refused)) if !refused.is_empty() => self.refused.push((name, refused)),
                _ => {}
            }
        }
        let mut logs = Vec::new();
        for node in &present {
            let dir = out.join(&node.name);
            match collect::fetch(&self.trust, &node.address, &self.run, &dir).await {
                Ok(found) => {
                    self.skew(node, &found);
                    logs.extend(found);
                }
                Err(error) => self.lost_logs.push((node.name.clone(), format!("{error:#}"))),
            }
        }
        Ok(logs)
    }

    /// How well a node has kept the common start.
    fn skew(&mut self, node: &Node, logs: &[PathBuf]) {
        let mut worst: Option<(u64, usize)> = None;
        for log in logs {
            let Ok(bytes) = fs::read(log) else { continue };
            if let Some((late, flows)) = collect::start_lateness(&bytes) {
                let (before, count) = worst.unwrap_or_default();
                worst = Some((before.max(late), count + flows));
            }
        }
        let (offset, uncertainty) = node.clock;
        let text = match worst {
            Some((late, flows)) => format!(
                "first packets of {flows} flows at most {} late; clock {offset:+} ns from the console's, ± {}",
                format_duration_ns(late),
                format_duration_ns(uncertainty)
            ),
            None => format!(
                "sent nothing; clock {offset:+} ns from the console's, ± {}",
                format_duration_ns(uncertainty)
            ),
        };
        self.settings.insert(format!("start {}", node.name), text);
    }

    /// What happened, for the report.
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

/// Asks an agent one thing.
async fn call(trust: &Trust, address: &str, call: Call) -> Result<Reply> {
    let mut line = trust.connect(address).await?;
    greet(&mut line).await?;
    ask(&mut line, &call).await
}

/// Looks at an agent: its version, its clock.
async fn look_at(trust: &Trust, address: &str) -> Result<(i64, u64), String> {
    let mut line = trust.connect(address).await.map_err(|error| error.to_string())?;
    let greeted =
        greet(&mut line).await.map_err(|error| format!("comparing versions: {error:#}"))?;
    tracing::debug!("{address} is {}", greeted.host);
    compare_clocks(&mut line, &greeted.boot_id)
        .await
        .map_err(|error| format!("comparing clocks: {error:#}"))
}
