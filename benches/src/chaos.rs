//! `itg-bench chaos`: agents die and come back while flows are sent between them; what became of each packet.
//!
//! Eight agents, each on a host of its own (network namespaces, as root; else all on this one), 64 flows. An
//! agent is killed every 5 s and started again 3 s later; with `--every` any agent, started again at once. Afterwards
//! all logs are read: every flow has been sent to its end, no packet was sent twice, and each packet that is missing
//! at its receiver has a cause. The console has told of it all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_core::flow::Flow;
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_record::{Item, Kind, LogReader, Note};
use itg_session::EndCause;
use itg_trials::{Claim, Lines, print};

use crate::agents::{Agents, logs};

const AGENTS: usize = 8;
const FLOWS: usize = 64;
/// Packets of a flow leave this far apart, in milliseconds.
const GAP_MS: u64 = 20;
const EVERY: Duration = Duration::from_secs(5);
/// Each second that something is wrong the console says so; it may be late by this time on a busy machine.
const SILENT: u64 = 3 * SECOND;
/// Time that the start may take on a busy machine.
const LOADED: Duration = Duration::from_secs(60);
const DOWN: Duration = Duration::from_secs(3);
/// Flows go on so long behind the last kill.
const AFTER_S: u64 = 10;
const SECOND: u64 = 1_000_000_000;
/// A killed process has not written the block of records that it was filling: a second of them, and
/// the time that writing a block takes on a busy machine.
const UNWRITTEN: u64 = SECOND + SECOND / 2;
/// From the return of a receiver to its first packet: it becomes a member, learns of the run, and its senders
/// try it again, with pauses of up to 2 s.
const RETURNING: u64 = 5 * SECOND;
/// From the end of an owner to the first packet of the next one: exclusion (3 s), a lease (1 s), a
/// worker.
const OWNERLESS: u64 = 7 * SECOND;
/// From the end of a lease of an owner that lives to its next packet: another lease, a worker.
const WITHOUT_LEASE: u64 = 5 * SECOND;
/// A packet that was due so shortly before the end of its owner may have been late, and never left.
const LATE: u64 = SECOND / 5;

/// Flows whose missing packets are explained.
const MOST_TOLD: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct ChaosArgs {
    /// Length of the time in which agents are killed, in seconds
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u64).range(5..=3600))]
    seconds: u64,
    /// Kill any of the agents each N milliseconds, and start it again at once
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every: Option<u64>,
    /// Number of runs
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1000))]
    runs: u64,
    /// Seed of the victims of the first run; the others follow
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Keep logs and report in this new directory
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Sender and receiver of a flow, counted from 0.
const fn route(flow: usize) -> (usize, usize) {
    (flow % AGENTS, (flow + 1 + flow / AGENTS % (AGENTS - 1)) % AGENTS)
}

fn unix_ns() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(passed.as_nanos()).unwrap_or(u64::MAX)
}

/// Unix nanoseconds at which an agent was killed, and at which it had been started again.
type Outage = (u64, u64);

/// Everything that is known when the run is over.
struct Evidence {
    /// By node.
    outages: Vec<Vec<Outage>>,
    /// Flow and number: node and time of each time that a sender's log has it.
    sent: BTreeMap<(u32, u64), Vec<(usize, u64)>>,
    /// Flow and number: number of records in the receiver's logs.
    received: BTreeMap<(u32, u64), u32>,
    /// Flow and number: Unix nanoseconds at which the packet was due.
    due: BTreeMap<(u32, u64), u64>,
    /// Owners of each flow with the Unix nanoseconds from which they were, as the console told it.
    owners: BTreeMap<u32, Vec<(u64, usize)>>,
    /// Ends of each flow in the logs of senders: Unix nanoseconds of its last packet there, node, reason.
    ends: BTreeMap<u32, Vec<(u64, usize, String)>>,
}

/// Cause of a missing packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cause {
    ReceiverDown,
    ReceiverLog,
    NobodyOwned,
    LeaseOver,
    Unknown,
}

impl Cause {
    const fn words(self) -> &'static str {
        match self {
            Self::ReceiverDown => "the receiver was down, or coming back",
            Self::ReceiverLog => "in the last second of a killed receiver, which is not in its log",
            Self::NobodyOwned => "nobody owned the flow: its owner had been killed",
            Self::LeaseOver => "its owner had no lease: nothing could be agreed for so long",
            Self::Unknown => "without a cause",
        }
    }
}

impl Evidence {
    fn new(outages: Vec<Vec<Outage>>) -> Self {
        let (sent, received, due) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let (owners, ends) = (BTreeMap::new(), BTreeMap::new());
        Self { outages, sent, received, due, owners, ends }
    }

    /// Takes an event of the console.
    fn told(&mut self, event: &serde_json::Value) {
        let owner = event["owner"].as_str();
        let node = owner.and_then(|name| (0..AGENTS).find(|node| Agents::name(*node) == name));
        let flow = event["flow"].as_u64().and_then(|flow| u32::try_from(flow).ok());
        if event["event"] == "flow"
            && let (Some(flow), Some(at), Some(node)) = (flow, event["at_unix_ns"].as_u64(), node)
        {
            self.owners.entry(flow).or_default().push((at, node));
        }
    }

    /// Takes a log of a node.
    fn add(&mut self, node: usize, bytes: &[u8]) -> Result<()> {
        let mut flows = BTreeMap::new();
        let mut last = BTreeMap::new();
        for item in LogReader::new(bytes) {
            match item {
                Item::Note { note: Note::Flow(info), .. } => {
                    if info.epoch_unix_ns > 0 && !self.due.contains_key(&(info.flow, 0)) {
                        let plan = Flow::resolve(info.spec.clone(), RunSeed(info.seed))?;
                        for packet in plan.schedule() {
                            let due = info.epoch_unix_ns + packet.due_ns;
                            self.due.insert((info.flow, packet.seq), due);
                        }
                    }
                    flows.insert(info.index, info.flow);
                }
                Item::Records { records, .. } => {
                    for record in records {
                        let Some(&flow) = flows.get(&record.flow) else { continue };
                        let packet = (flow, record.seq);
                        match record.kind {
                            Kind::Sent => {
                                last.insert(flow, record.b);
                                self.sent.entry(packet).or_default().push((node, record.b))
                            }
                            _ => *self.received.entry(packet).or_default() += 1,
                        }
                    }
                }
                Item::Note { note: Note::FlowEnd(end), .. } => {
                    let flow = flows.get(&end.index);
                    if let Some((flow, at)) = flow.and_then(|flow| Some((*flow, *last.get(flow)?)))
                    {
                        self.ends.entry(flow).or_default().push((at, node, end.reason));
                    }
                }
                // A killed process has not closed its log.
                Item::Note { .. } | Item::Damage(_) => {}
            }
        }
        Ok(())
    }

    fn down(&self, node: usize, at: u64, before: u64, after_kill: u64, after_return: u64) -> bool {
        self.outages[node].iter().any(|&(killed, back)| {
            let until = if after_return > 0 { back + after_return } else { killed + after_kill };
            at + before >= killed && at < until
        })
    }

    /// Cause for which a packet is missing in its receiver's log.
    fn cause(&self, (flow, seq): (u32, u64)) -> Cause {
        let Some(&due) = self.due.get(&(flow, seq)) else { return Cause::Unknown };
        let (from, to) = route(flow as usize - 1);
        if self.down(to, due, 0, 0, RETURNING) {
            return Cause::ReceiverDown;
        }
        if self.down(to, due, UNWRITTEN, 0, RETURNING) {
            return Cause::ReceiverLog;
        }
        // The nodes that sent the flow before and after the missing packet.
        let before = self.sent.range((flow, 0)..(flow, seq)).next_back();
        let behind = self.sent.range((flow, seq)..(flow, u64::MAX)).next();
        let mut owners: BTreeSet<usize> = [before, behind]
            .into_iter()
            .flatten()
            .flat_map(|(_, times)| times.iter().map(|(node, _)| *node))
            .collect();
        if before.is_none() {
            owners.insert(from);
        }
        // Those that owned it meanwhile, and may have been killed before they sent.
        let owned = self.owners.get(&flow).map_or(&[][..], Vec::as_slice);
        owners.extend(
            owned
                .iter()
                .filter(|(at, _)| (due..due + OWNERLESS).contains(&(at + OWNERLESS)))
                .map(|(_, node)| *node),
        );
        if self.sent.contains_key(&(flow, seq)) {
            return Cause::Unknown;
        }
        if owners.into_iter().any(|node| self.down(node, due, LATE, OWNERLESS, 0)) {
            return Cause::NobodyOwned;
        }
        let last = before.iter().flat_map(|(_, times)| times.iter());
        let over = EndCause::LeaseOver.to_string();
        let ends = self.ends.get(&flow).map_or(&[][..], Vec::as_slice);
        let mut over = last.filter(|(node, at)| {
            ends.iter().any(|end| (end.0, end.1, &end.2) == (*at, *node, &over))
        });
        if over.any(|(_, at)| due < at + WITHOUT_LEASE) { Cause::LeaseOver } else { Cause::Unknown }
    }
}

impl Evidence {
    /// Everything that is known of the time of these packets of a flow, for people.
    fn explain(&self, flow: u32, first: u64, last: u64, agents: &Agents) -> String {
        let start = self.due.get(&(flow, 0)).copied().unwrap_or(0);
        let seconds = |at: u64| (at as f64 - start as f64) / SECOND as f64;
        let due = |seq| self.due.get(&(flow, seq)).copied().unwrap_or(0);
        let (from, to) = (due(first).saturating_sub(3 * OWNERLESS), due(last) + OWNERLESS);
        let (_, receiver) = route(flow as usize - 1);
        let mut story: Vec<(u64, String)> = vec![
            (
                due(first),
                format!("packet {first} was due, the first that is missing without a cause"),
            ),
            (due(last), format!("packet {last} was due, the last one")),
        ];
        let owners = self.owners.get(&flow).into_iter().flatten();
        story.extend(owners.map(|(at, node)| (*at, format!("{} owns it", Agents::name(*node)))));
        let ends = self.ends.get(&flow).into_iter().flatten();
        story.extend(ends.map(|(at, node, reason)| {
            (*at, format!("{} sent its last packet: {reason}", Agents::name(*node)))
        }));
        for (node, outages) in self.outages.iter().enumerate() {
            let what = if node == receiver { ", the receiver," } else { "" };
            story.extend(outages.iter().map(|(killed, back)| {
                let back = seconds(*back);
                (
                    *killed,
                    format!("{}{what} is killed, and back at {back:.2} s", Agents::name(node)),
                )
            }));
        }
        story.retain(|(at, _)| (from..to).contains(at));
        story.sort();
        let mut text = format!("flow {flow}, to {}:\n", Agents::name(receiver));
        for (at, what) in story {
            text += &format!("  {:8.2} s  {what}\n", seconds(at));
        }
        for node in 0..AGENTS {
            let words = agents.words(node);
            let named = format!("flow={flow}");
            let of_flow =
                words.lines().filter(|line| line.split_whitespace().any(|word| word == named));
            of_flow.for_each(|line| text += &format!("  {}: {line}\n", Agents::name(node)));
        }
        text
    }
}

pub(crate) fn run(args: &ChaosArgs) -> Result<()> {
    let mut failed = 0;
    for number in 1..=args.runs {
        if let Err(error) = one(args, number) {
            print(format_args!("run {number} of {}: {error:#}", args.runs));
            failed += 1;
        }
    }
    let passed = args.runs - failed;
    print(Claim::new(
        failed == 0,
        &format!("{passed} of {} runs are as they should be", args.runs),
    ));
    ensure!(failed == 0, "{failed} of {} runs failed", args.runs);
    Ok(())
}

/// Kills agents for so long, and starts them again; when each of them was away.
fn kill(agents: &mut Agents, args: &ChaosArgs, number: u64) -> Result<Vec<Vec<Outage>>> {
    let every = args.every.map_or(EVERY, Duration::from_millis);
    let down = if args.every.is_some() { Duration::ZERO } else { DOWN };
    let mut dice = RunSeed(args.seed.wrapping_add(number - 1)).named("victims");
    let mut outages = vec![Vec::new(); AGENTS];
    let began = Instant::now();
    for round in 0.. {
        let at = every * round;
        if at >= Duration::from_secs(args.seconds) {
            break;
        }
        thread::sleep(at.saturating_sub(began.elapsed()));
        let victim = match args.every {
            Some(_) => usize::try_from(below(&mut dice, AGENTS as u64))?,
            // The first agent stays: it is the root.
            None => 1 + usize::try_from(round)? * 3 % (AGENTS - 1),
        };
        let killed = unix_ns();
        agents.kill(victim);
        thread::sleep(down);
        agents.start(victim)?;
        outages[victim].push((killed, unix_ns()));
    }
    Ok(outages)
}

/// The longest time between two events that the console told while agents were killed, in nanoseconds.
fn silence(events: &Path, from: u64, to: u64) -> Result<u64> {
    let text = fs::read_to_string(events)?;
    let mut times = vec![from, to];
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        let at = line["at_unix_ns"].as_u64().context("the time of an event")?;
        times.extend((from..to).contains(&at).then_some(at));
    }
    times.sort_unstable();
    Ok(times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0))
}

fn one(args: &ChaosArgs, number: u64) -> Result<()> {
    let mut agents = Agents::new(AGENTS, nix::unistd::geteuid().is_root())?;
    let out = args.out.clone().unwrap_or_else(|| agents.path("out"));
    let out = if args.runs > 1 { out.join(format!("run-{number}")) } else { out };
    let flows = experiment(args.seconds + AFTER_S);
    let events = agents.path("events");
    let told = events.to_str().context("a path in UTF-8")?;
    let console = agents.run(&flows, &out, &["--lease", "1s", "--events", told])?;
    console.after("all nodes are ready", LOADED)?;
    // The start lies 700 ms ahead.
    thread::sleep(Duration::from_secs(1));
    let from = unix_ns();
    let outages = kill(&mut agents, args, number)?;
    let silent = silence(&events, from, unix_ns())?;
    // Code 4 says that something is missing, which is judged below.
    let done = console.wait(Duration::from_secs(AFTER_S + 120))?.ended_with(&[0, 4])?;
    // The story, without the description of each flow.
    let story: Vec<&str> = done.err.lines().filter(|line| !line.starts_with("flow ")).collect();
    print(story.join("\n"));
    let mut seen = Evidence::new(outages);
    for line in fs::read_to_string(&events)?.lines() {
        seen.told(&serde_json::from_str(line)?);
    }
    for node in 0..AGENTS {
        for log in logs(&out.join(Agents::name(node)))? {
            seen.add(node, &fs::read(&log)?).with_context(|| log.display().to_string())?;
        }
    }
    if args.out.is_some() {
        for node in 0..AGENTS {
            fs::write(out.join(format!("{}.txt", Agents::name(node))), agents.words(node))?;
        }
    }
    judge(&seen, &agents, args.seconds)?;
    let text = format!("the console was silent for {} ms at most", silent / 1_000_000);
    print(Claim::new(silent < SILENT, &text));
    ensure!(silent < SILENT, "{text}");
    // What nobody owned when it was due was not sent, which the run says.
    drop(done.ended_with(&[4])?);
    Ok(())
}

fn experiment(seconds: u64) -> String {
    let flow = |flow: usize| {
        let (from, to) = route(flow);
        format!(
            "[[flow]]\nfrom = \"{}\"\nto = \"{}\"\nidt = \"constant({GAP_MS}ms)\"\nsize = \"constant(100)\"\n\
             packets = {}\n",
            Agents::name(from),
            Agents::name(to),
            seconds * 1000 / GAP_MS
        )
    };
    (0..FLOWS).map(flow).collect()
}

fn judge(seen: &Evidence, agents: &Agents, seconds: u64) -> Result<()> {
    let planned = seen.due.len();
    let received = seen.received.keys().filter(|packet| seen.due.contains_key(packet)).count();
    let mut causes: BTreeMap<Cause, usize> = BTreeMap::new();
    let mut unknown = Vec::new();
    let mut worst: BTreeMap<u32, usize> = BTreeMap::new();
    for packet in seen.due.keys().filter(|packet| !seen.received.contains_key(packet)) {
        let cause = seen.cause(*packet);
        *causes.entry(cause).or_default() += 1;
        *worst.entry(packet.0).or_default() += 1;
        if cause == Cause::Unknown {
            unknown.push(*packet);
        }
    }
    let mut lines = Lines::new(["packets", "number"]);
    lines.row(["planned", &planned.to_string()]);
    lines.row(["in a receiver's log", &received.to_string()]);
    for cause in [
        Cause::ReceiverDown,
        Cause::ReceiverLog,
        Cause::NobodyOwned,
        Cause::LeaseOver,
        Cause::Unknown,
    ] {
        let count = causes.get(&cause).copied().unwrap_or(0);
        lines.row([format!("missing: {}", cause.words()), count.to_string()]);
    }
    let kills: usize = seen.outages.iter().map(Vec::len).sum();
    let place = agents.place();
    print(format_args!(
        "\n{AGENTS} agents, {place}, {FLOWS} flows, {kills} kills in {seconds} s\n\n{lines}\n"
    ));
    let twice: Vec<_> = seen
        .sent
        .iter()
        .filter(|(_, times)| times.len() > 1)
        .map(|(packet, _)| packet)
        .chain(seen.received.iter().filter(|(_, count)| **count > 1).map(|(packet, _)| packet))
        .collect();
    // The last packet of each flow, or one shortly before it that its receiver has logged.
    let last = |flow: u32| seen.due.range((flow, 0)..(flow, u64::MAX)).next_back();
    let ended = (1..=FLOWS).filter(|flow| {
        let flow = u32::try_from(*flow).unwrap_or(0);
        last(flow).is_some_and(|(packet, _)| {
            seen.sent.contains_key(packet) || seen.received.contains_key(packet)
        })
    });
    let ended = ended.count();
    let most = worst.values().max().copied().unwrap_or(0);
    print(Claim::new(ended == FLOWS, &format!("{ended} of {FLOWS} flows are sent to their end")));
    print(Claim::new(
        twice.is_empty(),
        &format!("{} packets were sent or arrived twice", twice.len()),
    ));
    print(Claim::new(
        unknown.is_empty(),
        &format!("{} packets are missing without a cause", unknown.len()),
    ));
    print(format_args!("the flow that lost most lacks {most} packets"));
    let mut gaps: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    for (flow, seq) in &unknown {
        let (first, last) = gaps.entry(*flow).or_insert((*seq, *seq));
        (*first, *last) = ((*first).min(*seq), (*last).max(*seq));
    }
    for (flow, (first, last)) in gaps.into_iter().take(MOST_TOLD) {
        print(seen.explain(flow, first, last, agents));
    }
    ensure!(ended == FLOWS, "{} flows were not sent to their end", FLOWS - ended);
    ensure!(
        twice.is_empty(),
        "packets twice, by flow and number: {:?}",
        &twice[..twice.len().min(20)]
    );
    ensure!(
        unknown.is_empty(),
        "packets without a cause, by flow and number: {:?}",
        &unknown[..unknown.len().min(20)]
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_packet_has_the_right_cause() {
        // Flow 1 goes from node 0 to node 1, flow 2 from node 1 to node 2.
        let mut seen = Evidence::new(vec![Vec::new(); AGENTS]);
        seen.outages[1] = vec![(100 * SECOND, 103 * SECOND)];
        for flow in 1..=2 {
            for seq in 0..120 {
                seen.due.insert((flow, seq), (seq + 80) * SECOND);
            }
        }
        seen.sent.insert((2, 19), vec![(1, 99 * SECOND)]);
        seen.sent.insert((2, 30), vec![(5, 110 * SECOND)]);
        // An owner that is killed before it sends.
        seen.outages[3] = vec![(112 * SECOND, 113 * SECOND)];
        seen.told(&serde_json::json!({
            "event": "flow", "flow": 2, "owner": "n03", "at_unix_ns": 111 * SECOND,
        }));
        // An owner that lives, and gets no other lease for some time.
        seen.sent.insert((1, 60), vec![(0, 140 * SECOND)]);
        seen.ends.insert(1, vec![(140 * SECOND, 0, EndCause::LeaseOver.to_string())]);
        for (packet, want) in [
            ((1, 61), Cause::LeaseOver),
            ((1, 64), Cause::LeaseOver),
            ((1, 65), Cause::Unknown),
            ((2, 33), Cause::NobodyOwned),
            ((1, 10), Cause::Unknown),
            ((1, 19), Cause::ReceiverLog),
            ((1, 20), Cause::ReceiverDown),
            ((1, 25), Cause::ReceiverDown),
            ((1, 28), Cause::Unknown),
            ((2, 19), Cause::Unknown),
            ((2, 20), Cause::NobodyOwned),
            ((2, 26), Cause::NobodyOwned),
            ((2, 27), Cause::Unknown),
            ((2, 30), Cause::Unknown),
            ((2, 500), Cause::Unknown),
        ] {
            assert_eq!(seen.cause(packet), want, "{packet:?}");
        }
    }

    #[test]
    fn nobody_sends_to_itself_and_everybody_sends() {
        for flow in 0..FLOWS {
            assert_ne!(route(flow).0, route(flow).1, "flow {flow}");
        }
        let from: BTreeSet<usize> = (0..FLOWS).map(|flow| route(flow).0).collect();
        assert_eq!(from.len(), AGENTS);
    }
}
