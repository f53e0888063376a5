//! The accounts of flows that change hands: who sends which packet is what the replicated experiment decides under
//! faults that a seed draws (crashes, restarts, partitions, commands), and the logs of all owners and receivers add up.
//!
//! `ITG_ACCOUNT_SEEDS=N` runs so many seeds, instead of those of the gate. A failure names its seed.
#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

mod cluster;

use std::collections::{BTreeMap, BTreeSet};

use cluster::{GAP, Setup, cluster};
use itg_control::Command;
use itg_core::end::EndCause;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, happens};
use itg_process::{MS, SECOND, Slot};
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_sim::{Fault, Kind, Swarm};
use itg_stats::packet_account::PacketAccount;
use itg_stats::report::FlowReport;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::{EPOCH, TestLog, spec};

/// Seeds of the gate.
const SEEDS: u64 = 1000;
/// Kinds of faults that let flows change hands.
const KINDS: [Kind; 6] =
    [Kind::Crash, Kind::Recover, Kind::Pause, Kind::Partition, Kind::Cut, Kind::Suspicion];
/// Time in which faults are drawn.
const UNTIL: u64 = 4 * SECOND;

/// A fault in what a program counts, for the checker to find.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Planted {
    None,
    /// Packets that the network dropped are no packets that were sent.
    DropNotCounted,
    /// The packets of an owner count twice.
    CountedTwice,
    /// The rest that an owner left out is forgotten at its end.
    RemainderDropped,
}

/// An owner of a flow: a process that sent it under a fence.
#[derive(Debug, Default)]
struct Owner {
    slot: u32,
    /// Numbers that it sent, and when.
    sent: BTreeMap<u64, u64>,
    /// Packets between them that its kernel refused.
    refused: u64,
    /// Those of them that arrived.
    arrived: BTreeSet<u64>,
    /// The packet that would have been next when it ended; `None`: it was killed.
    next: Option<u64>,
}

impl Owner {
    /// Packets that it left out: they were late, or due while it had no lease. With its lease a worker of an agent ends:
    /// those behind its last packet are not reached by it.
    fn left_out(&self) -> u64 {
        let ends = self.sent.keys().next().zip(self.sent.keys().next_back());
        let between = ends.map_or(0, |(first, last)| last - first + 1 - self.sent.len() as u64);
        between - self.refused
    }
}

/// The flows of a run by their numbers: the owners of each, by fence.
struct Ran {
    text: String,
    packets: u64,
    flows: BTreeMap<u64, BTreeMap<u64, Owner>>,
}

fn run(seed: u64) -> Ran {
    let mut rng = RunSeed(seed).named("shape");
    let nodes = 2 + u32::try_from(below(&mut rng, 3)).expect("small");
    let mut setup = Setup::new(nodes, nodes);
    setup.packets = 50 + below(&mut rng, 150);
    setup.rules.lease_ns = (200 + below(&mut rng, 800)) * MS;
    let exclude = ["300ms", "1s"][usize::from(happens(&mut rng, 500_000))];
    let network = "kind = \"random\"\nmean = \"1ms\"";
    let mut cluster = cluster(setup, network, exclude, seed);
    let drawn = Swarm::draw(RunSeed(seed), nodes + 1, UNTIL, &KINDS, None, "detector");
    let mut partitions = vec![(0, Vec::new())];
    for (at, fault) in &drawn.faults {
        if let Fault::Partition(groups) = fault {
            partitions.push((SECOND + at, groups.clone()));
        }
        cluster.world.fault_at(SECOND + at, fault.clone());
    }
    // Somebody moves flows, and stops another one.
    let any = |rng: &mut _| u32::try_from(below(rng, nodes.into())).expect("small");
    let moves = (1..=nodes).map(|flow| Command::Reassign { flow, to: any(&mut rng) });
    for command in moves.chain([Command::Stop { flow: Some(2) }]).collect::<Vec<_>>() {
        if happens(&mut rng, 400_000) {
            cluster.world.run(SECOND + below(&mut rng, UNTIL / 2));
            cluster.say(any(&mut rng), command);
        }
    }
    cluster.world.run(SECOND + UNTIL);
    let all: Vec<_> = (0..=nodes).map(Slot).collect();
    cluster.world.heal(&all);
    cluster.world.run(SECOND + UNTIL + 200 * GAP + 6 * SECOND);
    assert_eq!(cluster.world.violation().map(ToString::to_string), None, "seed {seed}");
    partitions.push((SECOND + UNTIL, Vec::new()));
    let facts = cluster.facts.lock().expect("one thread");
    let mut flows: BTreeMap<u64, BTreeMap<u64, Owner>> = BTreeMap::new();
    let [losses, refusals, lates] = [200_000, 150_000, 150_000]
        .map(|most| u32::try_from(below(&mut rng, most)).expect("small"));
    for &(at, slot, flow, number, fence) in &facts.packets {
        let owner = flows.entry(flow).or_default().entry(fence).or_default();
        owner.slot = slot;
        // The first and the last packet of an owner leave: what is between them is its own.
        let last = facts.packets.iter().rfind(|packet| (packet.2, packet.4) == (flow, fence));
        if !owner.sent.is_empty() && last.is_some_and(|last| last.3 != number) {
            if happens(&mut rng, lates) {
                continue;
            }
            if happens(&mut rng, refusals) {
                owner.refused += 1;
                continue;
            }
        }
        owner.sent.insert(number, at);
        let to = setup.routes()[usize::try_from(flow - 1).expect("small")].to;
        let groups = partitions.iter().rfind(|(since, _)| *since <= at).map(|(_, groups)| groups);
        let group = |slot: u32| groups.and_then(|groups| groups.get(slot as usize));
        let down = || facts.crashed.iter().any(|&(when, who)| who == to && when <= at);
        if group(slot) == group(to) && !down() && !happens(&mut rng, losses) {
            owner.arrived.insert(number);
        }
    }
    for (&(slot, flow, fence), &next) in &facts.ended {
        let owner = flows.get_mut(&flow).and_then(|owners| owners.get_mut(&fence));
        if let Some(owner) = owner.filter(|owner| owner.slot == slot) {
            owner.next = Some(next);
        }
    }
    Ran { text: format!("seed {seed}: {nodes} nodes, {drawn}"), packets: setup.packets, flows }
}

/// The logs of a flow: one of each owner, and the receiver's, which has an entry for each of them.
fn logs(ran: &Ran, owners: &BTreeMap<u64, Owner>, planted: Planted) -> Vec<Vec<u8>> {
    let spec = spec(1, "constant(20ms)", "constant(100)", ran.packets);
    let mut receiver = TestLog::new(Side::Receiver, "a");
    let mut logs = Vec::new();
    for (index, (fence, owner)) in (0_u32..).zip(owners) {
        let src = format!("10.0.{fence}.{}:4000", owner.slot);
        let mut sender = TestLog::with_id(10 + index, Side::Sender, "a");
        sender.flow_of(0, &spec, ["a", "a"], "c0ffee", &src);
        receiver.flow_of(index, &spec, ["a", "a"], "c0ffee", &src);
        sender.records(owner.sent.iter().map(|(&seq, at)| {
            let (planned_ns, sent_ns) = (seq * GAP, EPOCH + at);
            Record::sent(SentPacket { flow: 0, seq, size: 100, planned_ns, sent_ns })
        }));
        receiver.records(owner.arrived.iter().map(|&seq| {
            let (sent_ns, arrived_ns) = (EPOCH + owner.sent[&seq], EPOCH + owner.sent[&seq] + MS);
            let (flow, size, read_ns, ttl, tos) = (index, 100, arrived_ns, 64, 0);
            let packet = ReceivedPacket { flow, seq, size, sent_ns, arrived_ns, read_ns, ttl, tos };
            Record::received(packet)
        }));
        let done = owner.next == Some(ran.packets);
        let cause =
            if done { EndCause::ScheduleDone } else { EndCause::SessionOver("moved".into()) };
        let (mut sent, mut left_out) = (owner.sent.len() as u64, owner.left_out());
        match planted {
            Planted::None => {}
            Planted::DropNotCounted => sent = owner.arrived.len() as u64,
            Planted::CountedTwice => sent *= 1 + u64::from(index == 0),
            Planted::RemainderDropped => left_out = 0,
        }
        // A sender that was killed has told nobody.
        let told = owner.next.is_some();
        let arrived = Some(owner.arrived.len() as u64);
        let end = FlowEnd {
            sent_packets: told.then_some(sent),
            skipped_packets: told.then_some(left_out),
            refused_packets: told.then_some(owner.refused),
            refused_by: [("EPERM".to_owned(), owner.refused)]
                .into_iter()
                .filter(|_| told)
                .collect(),
            received_packets: arrived,
            received_unique: arrived,
            socket_drops: Some(0),
            ..FlowEnd::new(0, cause.to_string())
        };
        receiver.end_flow(FlowEnd { index, ..end.clone() });
        logs.push(if told {
            sender.end_flow(end);
            sender.finish()
        } else {
            sender.killed()
        });
    }
    logs.push(receiver.finish());
    logs
}

fn sum(parts: &[Option<u64>]) -> Option<u64> {
    parts.iter().try_fold(0, |sum, part| Some(sum + (*part)?))
}

/// Fault of the account of a flow, by what happened; whether all of its senders told theirs.
fn wrong(ran: &Ran, owners: &BTreeMap<u64, Owner>, planted: Planted) -> Result<bool, String> {
    let known = owners.values().all(|owner| owner.next.is_some());
    let logs = logs(ran, owners, planted);
    let (receiver, senders) = logs.split_last().expect("a receiver");
    let all: Vec<&[u8]> = logs.iter().map(Vec::as_slice).collect();
    for (name, given, whole) in [
        ("all logs", &all[..], known),
        ("the receiver's log", &[receiver], false),
        ("the owners' logs", &all[..senders.len()], false),
        ("all logs but the first owner's", &all[1..], false),
    ] {
        let mut analysis = Analysis::new(Options::default());
        given.iter().for_each(|log| analysis.add_log(log, "log").expect("a log"));
        for flow in &analysis.finish().flows {
            wrong_at(flow, (ran, owners), whole).map_err(|what| {
                let (side, account) = (flow.side, &flow.metrics.account);
                format!("{name}, {side}, {what}: {:?} {account:?}", flow.metrics.lost)
            })?;
        }
    }
    Ok(known)
}

/// The part that is wrong at a side; `whole`: none may be unknown.
fn wrong_at(
    flow: &FlowReport,
    (ran, owners): (&Ran, &BTreeMap<u64, Owner>),
    whole: bool,
) -> Result<(), &'static str> {
    let all = |count: fn(&Owner) -> u64| owners.values().map(count).sum::<u64>();
    let (sent, left_out) = (all(|owner| owner.sent.len() as u64), all(Owner::left_out));
    let (arrived, refused) = (all(|owner| owner.arrived.len() as u64), all(|owner| owner.refused));
    let (account, lost) = (&flow.metrics.account, flow.metrics.lost);
    let PacketAccount { logged, not_logged, .. } = *account;
    let parts = [account.sent, account.refused, account.left_out, account.not_reached];
    for (name, part, want) in [
        ("planned", account.planned, ran.packets),
        ("sent", account.sent, sent),
        ("refused", account.refused, refused),
        ("left_out", account.left_out, left_out),
        ("not_reached", account.not_reached, ran.packets - sent - refused - left_out),
        ("arrived", account.arrived, arrived),
        ("lost", lost, sent - arrived),
        ("the parts of the plan", sum(&parts), ran.packets),
        ("the parts of what arrived", sum(&[logged, not_logged]), arrived),
        ("the parts of what was sent", sum(&[account.arrived, lost]), sent),
    ] {
        let reason = name.starts_with("the parts") || account.why.contains_key(name);
        if part.map_or(whole || !reason, |part| part != want) {
            return Err(name);
        }
    }
    Ok(())
}

#[test]
fn parts_of_all_owners_add_up_to_the_plan() {
    let told = std::env::var_os("ITG_ACCOUNT_SEEDS").and_then(|text| text.into_string().ok());
    let seeds = told.map_or(SEEDS, |text| text.parse().expect("a number"));
    let (mut flows, mut moved, mut killed, mut packets) = (0, 0, 0, 0);
    for seed in 0..seeds {
        let ran = run(seed);
        for (flow, owners) in &ran.flows {
            match wrong(&ran, owners, Planted::None) {
                Ok(known) => killed += u64::from(!known),
                Err(text) => panic!("{}: flow {flow}: {text}\n{owners:?}", ran.text),
            }
            flows += 1;
            moved += u64::from(owners.len() > 1);
            packets += owners.values().map(|owner| owner.sent.len() as u64).sum::<u64>();
        }
    }
    println!(
        "{seeds} seeds: {flows} flows, {packets} packets; {moved} had several owners, {killed} one that was killed"
    );
    assert!(moved > seeds / 4 && killed > seeds / 10, "{moved} moved, {killed} killed");
}

#[test]
fn planted_faults_are_found() {
    for planted in [Planted::DropNotCounted, Planted::CountedTwice, Planted::RemainderDropped] {
        let found = (0..100).find_map(|seed| {
            let ran = run(seed);
            let found = ran.flows.values().find_map(|owners| wrong(&ran, owners, planted).err());
            Some((seed, found?))
        });
        let (seed, text) = found.unwrap_or_else(|| panic!("{planted:?} is not found"));
        println!("| {planted:?} | {} | {} |", seed + 1, text.split(':').next().unwrap_or_default());
    }
}
