//! The replicated experiment in virtual time: C-2 to C-6, faults drawn by seeds, planted faults.
#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

mod cluster;

use cluster::{Cluster, GAP, NET, Setup, cluster};
use itg_control::{Command, Mutant, Orphan, Planted, fence_wait};
use itg_core::rate::{RateChange, Rates};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_process::{MS, SECOND, Slot};
use itg_sim::{Exit, Fault, Kind, Swarm};

fn started(cluster: &Cluster) -> u64 {
    let facts = cluster.facts.lock().expect("one thread");
    facts.started.values().copied().max().unwrap_or(u64::MAX)
}

#[test]
fn every_flow_is_sent_whole_when_nothing_happens() {
    for nodes in [1, 2, 5] {
        let mut cluster = cluster(Setup::new(nodes, 4), NET, "3s", 1);
        cluster.run(8 * SECOND);
        let facts = cluster.facts.lock().expect("one thread");
        assert_eq!(facts.started.len(), nodes as usize + 1);
        for flow in 1..=4 {
            let numbers: Vec<u64> = facts.of(flow).into_iter().map(|packet| packet.2).collect();
            assert_eq!(numbers, (0..150).collect::<Vec<_>>(), "flow {flow} of {nodes} nodes");
            assert!(facts.of(flow).iter().all(|packet| packet.1 == (flow - 1) % nodes));
        }
    }
}

/// Nobody asks for a lease as long as nothing is due: nothing is ordered meanwhile. Then every packet is sent.
#[test]
fn flows_that_start_later_need_no_leases_until_then() {
    let mut setup = Setup::new(3, 6);
    setup.start_ns = 60 * SECOND;
    let mut cluster = cluster(setup, NET, "3s", 2);
    cluster.run(10 * SECOND);
    let ordered = |cluster: &Cluster| cluster.facts.lock().expect("one thread").ordered();
    let before = ordered(&cluster);
    cluster.run(45 * SECOND);
    assert_eq!(ordered(&cluster), before, "nothing is ordered while nothing is due");
    cluster.run(66 * SECOND);
    assert!(ordered(&cluster) > before + 10, "leases are");
    let facts = cluster.facts.lock().expect("one thread");
    for flow in 1..=6 {
        let numbers: Vec<u64> = facts.of(flow).into_iter().map(|packet| packet.2).collect();
        assert_eq!(numbers, (0..150).collect::<Vec<_>>(), "flow {flow}");
    }
}

/// C-2, the host vanishes: its flows go on elsewhere, with one gap, within T_exclude + lease + 300 ms.
#[test]
fn c_2_flows_of_a_host_that_vanishes_go_on_elsewhere() {
    for victim in 0..4 {
        let mut setup = Setup::new(4, 8);
        setup.packets = 500;
        let mut cluster = cluster(setup, NET, "1s", 3);
        let at = 2 * SECOND;
        cluster.world.fault_at(at, Fault::Crash(Slot(victim)));
        cluster.run(14 * SECOND);
        let facts = cluster.facts.lock().expect("one thread");
        for flow in [victim + 1, victim + 5] {
            let sent = facts.of(flow);
            let first = sent.iter().find(|packet| packet.1 != victim).expect("somebody goes on");
            println!("C-2: victim {victim}: flow {flow} goes on after {} ms", (first.0 - at) / MS);
            let most = SECOND + cluster.setup.rules.lease_ns + 300 * MS;
            assert!(first.0 - at <= most, "flow {flow}: {} ms", (first.0 - at) / MS);
            assert_eq!(facts.gaps(flow).len(), 1, "flow {flow}: one gap");
            assert_eq!(sent.last().map(|packet| packet.2), Some(499));
        }
        for flow in (1..=8).filter(|flow| (flow - 1) % 4 != victim) {
            assert!(facts.gaps(flow).is_empty(), "flow {flow} is not concerned");
        }
    }
}

/// C-3: an isolated host falls silent before the new owner speaks, for longer than a lease; it comes back.
#[test]
fn c_3_an_isolated_host_is_silent_before_another_speaks() {
    let mut setup = Setup::new(4, 4);
    setup.packets = 900;
    let mut cluster = cluster(setup, NET, "1s", 4);
    let at = 2 * SECOND;
    cluster.world.fault_at(at, Fault::Partition(vec![0, 1, 0, 0, 0]));
    cluster.world.fault_at(12 * SECOND, Fault::Partition(vec![]));
    cluster.run(25 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    let sent = facts.of(2);
    let last = sent.iter().rfind(|packet| packet.1 == 1).expect("it began");
    let first = sent.iter().find(|packet| packet.1 != 1).expect("somebody goes on");
    assert!(last.0 < first.0, "{last:?} {first:?}");
    assert!(last.0 - at <= cluster.setup.rules.lease_ns, "silent when the lease is over");
    assert_eq!(facts.gaps(2).len(), 1);
    assert_eq!(sent.last().map(|packet| packet.2), Some(899));
}

/// A process that stands still for longer than its lease sends nothing when it goes on.
#[test]
fn a_host_that_stood_still_does_not_go_on() {
    let mut setup = Setup::new(4, 4);
    setup.packets = 700;
    let mut cluster = cluster(setup, NET, "1s", 5);
    cluster.world.fault_at(2 * SECOND, Fault::Pause(Slot(2), 8 * SECOND));
    cluster.run(18 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    assert_eq!(facts.gaps(3).len(), 1);
    let late = facts.of(3).into_iter().filter(|packet| packet.0 > 10 * SECOND && packet.1 == 2);
    assert_eq!(late.count(), 0, "another one has it");
}

/// C-4: a process that casts may crash at any instant: what it cast is carried out by all, or by none.
#[test]
fn c_4_the_console_crashes_at_every_moment_of_the_start() {
    for step in 0..60 {
        let mut setup = Setup::new(3, 6);
        setup.rules.orphan = Orphan::Stop;
        let mut cluster = cluster(setup, NET, "1s", step);
        cluster.world.fault_at(step * MS / 2, Fault::Crash(Slot(3)));
        // The oracle compares each command and the state behind it.
        cluster.run(6 * SECOND);
        let late = cluster.facts.lock().expect("one thread");
        let late = late.packets.iter().filter(|packet| packet.0 > 4 * SECOND).count();
        assert_eq!(late, 0, "crash at {} us: nothing goes on without the console", step * 500);
    }
}

/// C-5: most of the group is gone: flows behave by policy; when it is back they go on from the log's state.
#[test]
fn c_5_without_a_majority_flows_behave_by_policy() {
    for (orphan, goes_on) in [(Orphan::Pause, false), (Orphan::Stop, false), (Orphan::Finish, true)]
    {
        let mut setup = Setup::new(4, 4);
        setup.packets = 1200;
        setup.rules.orphan = orphan;
        let mut cluster = cluster(setup, NET, "1s", 6);
        // Every member alone.
        cluster.world.fault_at(2 * SECOND, Fault::Partition(vec![0, 1, 2, 3, 4]));
        cluster.world.fault_at(10 * SECOND, Fault::Partition(vec![]));
        cluster.run(20 * SECOND);
        let facts = cluster.facts.lock().expect("one thread");
        let between = |from: u64, to: u64| {
            facts.packets.iter().filter(|packet| (from..to).contains(&packet.0)).count()
        };
        let lease = cluster.setup.rules.lease_ns;
        let alone = between(2 * SECOND + lease, 10 * SECOND);
        assert_eq!(alone > 0, goes_on, "{orphan:?}: {alone} packets while alone");
        let after = between(16 * SECOND, 20 * SECOND);
        assert!(after > 0, "{orphan:?}: flows go on when the group is back");
    }
}

/// C-6: 10 000 flows on 100 hosts: from load to start in less than a second, one transfer for each edge.
#[test]
fn c_6_ten_thousand_flows_on_a_hundred_hosts_start_within_a_second() {
    let mut setup = Setup::new(100, 10_000);
    setup.packets = 1;
    let mut cluster = cluster(setup, NET, "3s", 7);
    cluster.world.run_while(5 * SECOND, |world| world.now() < SECOND);
    let at = started(&cluster);
    let facts = cluster.facts.lock().expect("one thread");
    println!(
        "C-6: {} hosts started after {} ms, {} transfers",
        facts.started.len(),
        at / MS,
        facts.graphs
    );
    assert_eq!(facts.started.len(), 101);
    assert!(at < SECOND, "{} ms", at / MS);
    // 101 members have 100 edges; the console gave it to the root besides.
    assert!(facts.graphs <= 101, "{} transfers", facts.graphs);
}

/// Reassignment by command: no packet is missing, none comes twice, and no owner waits for a lease.
#[test]
fn a_flow_is_handed_over_without_a_gap_longer_than_the_hand_over() {
    let mut setup = Setup::new(3, 3);
    setup.packets = 300;
    let mut cluster = cluster(setup, NET, "1s", 8);
    cluster.run(2 * SECOND);
    cluster.say(0, Command::Reassign { flow: 1, to: 2 });
    cluster.run(9 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    let sent = facts.of(1);
    assert!(sent.iter().any(|packet| packet.1 == 2) && sent.iter().any(|packet| packet.1 == 0));
    assert!(facts.gaps(1).iter().sum::<u64>() <= 1, "{:?}", facts.gaps(1));
    assert_eq!(sent.last().map(|packet| packet.2), Some(299));
}

/// A rate changes at one instant, the flow keeps its packets, and a new owner knows of the change.
#[test]
fn a_change_of_rate_holds_for_whoever_sends_the_flow() {
    let mut setup = Setup::new(4, 4);
    setup.packets = 1600;
    let mut cluster = cluster(setup, NET, "1s", 10);
    cluster.run(2 * SECOND);
    let changes = [
        RateChange { at_ns: 4 * SECOND + 500 * MS, ppm: 3_000_000 },
        RateChange { at_ns: 12 * SECOND, ppm: 500_000 },
    ];
    let say = |cluster: &mut Cluster, change: RateChange| {
        let RateChange { at_ns, ppm } = change;
        cluster.say(0, Command::SetRate { flow: Some(2), at_ns, ppm });
    };
    say(&mut cluster, changes[0]);
    // One that lies before the last one is void, and so are factors out of range.
    say(&mut cluster, RateChange { at_ns: SECOND, ppm: 2_000_000 });
    say(&mut cluster, RateChange { at_ns: 9 * SECOND, ppm: 0 });
    cluster.run(3 * SECOND + 400 * MS);
    // One that its sender may hear of too late is void: leases of up to 2 s have been asked for.
    say(&mut cluster, RateChange { at_ns: 4 * SECOND + 600 * MS, ppm: 2_000_000 });
    cluster.world.fault_at(6 * SECOND, Fault::Crash(Slot(1)));
    cluster.run(8 * SECOND);
    say(&mut cluster, changes[1]);
    cluster.run(40 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    let sent = facts.of(2);
    assert!(sent.iter().any(|packet| packet.1 != 1), "another one goes on");
    // The application starts 50 ms behind the order; the instant is that of the first packet.
    let (rates, t0) = (Rates::new(&changes), sent[0].0);
    for (at, _, number) in &sent {
        assert_eq!(*at, t0 + rates.due_at(number * GAP), "packet {number}");
    }
    assert_eq!(facts.gaps(2).len(), 1);
    assert_eq!(sent.last().map(|packet| packet.2), Some(1599));
    let whole: Vec<u64> = facts.of(3).iter().map(|packet| packet.2).collect();
    assert_eq!(whole, (0..1600).collect::<Vec<_>>(), "the others are as they were");
}

/// A sender that was away for less than its lease, and gets the state instead of the entries that it has missed,
/// hears of the change of rate in it.
#[test]
fn a_change_of_rate_inside_a_state_reaches_its_sender() {
    let mut setup = Setup::new(4, 4);
    (setup.packets, setup.retain) = (600, 2);
    let mut cluster = cluster(setup, NET, "3s", 11);
    cluster.world.fault_at(2 * SECOND, Fault::Partition(vec![0, 1, 0, 0, 0]));
    cluster.world.fault_at(3 * SECOND, Fault::Partition(vec![]));
    cluster.run(2 * SECOND + 100 * MS);
    let change = RateChange { at_ns: 6 * SECOND, ppm: 2_000_000 };
    let RateChange { at_ns, ppm } = change;
    cluster.say(0, Command::SetRate { flow: Some(2), at_ns, ppm });
    for mark in 0..40 {
        cluster.run(2 * SECOND + (110 + 10 * mark) * MS);
        cluster.say(0, Command::Mark { label: mark.to_string() });
    }
    cluster.run(20 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    let sent = facts.of(2);
    let (rates, t0) = (Rates::new(&[change]), sent[0].0);
    for (at, owner, number) in &sent {
        assert_eq!((*at, *owner), (t0 + rates.due_at(number * GAP), 1), "packet {number}");
    }
    assert_eq!(sent.len(), 600);
}

/// A change for all flows is one for each of them, or for none.
#[test]
fn a_change_for_all_flows_is_void_when_one_of_them_cannot_take_it() {
    let mut setup = Setup::new(3, 3);
    setup.packets = 600;
    let mut cluster = cluster(setup, NET, "1s", 12);
    cluster.run(SECOND);
    let say = |cluster: &mut Cluster, flow, at_ns, ppm| {
        cluster.say(0, Command::SetRate { flow, at_ns, ppm });
    };
    say(&mut cluster, Some(2), 9 * SECOND, 2_000_000);
    say(&mut cluster, None, 8 * SECOND, 3_000_000);
    cluster.run(20 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    for (flow, changes) in
        [(1, &[][..]), (2, &[RateChange { at_ns: 9 * SECOND, ppm: 2_000_000 }][..])]
    {
        let (rates, sent) = (Rates::new(changes), facts.of(flow));
        for (at, _, number) in &sent {
            assert_eq!(*at, sent[0].0 + rates.due_at(number * GAP), "flow {flow}: packet {number}");
        }
        assert_eq!(sent.len(), 600, "flow {flow}");
    }
}

#[test]
fn a_stopped_flow_stops_everywhere_and_the_others_go_on() {
    let mut cluster = cluster(Setup::new(3, 3), NET, "1s", 9);
    cluster.run(SECOND);
    cluster.say(1, Command::Stop { flow: Some(1) });
    cluster.run(6 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    assert!(facts.of(1).last().expect("it began").0 < SECOND + 100 * MS);
    assert_eq!((facts.of(2).len(), facts.of(3).len()), (150, 150));
}

struct Found {
    text: String,
    violation: Option<String>,
    packets: usize,
    fences: u64,
}

/// Faults that the seed draws, and what the oracles say of them.
fn swarm(seed: u64, planted: Planted) -> Found {
    let mut rng = RunSeed(seed).named("shape");
    let nodes = 2 + u32::try_from(below(&mut rng, 5)).expect("small");
    let mean = 1 + below(&mut rng, 5);
    let mut setup = Setup::new(nodes, nodes * 2);
    setup.packets = 1200;
    setup.planted = planted;
    setup.rules.lease_ns = (200 + below(&mut rng, 1800)) * MS;
    if below(&mut rng, 4) == 0 {
        setup.rules.orphan = Orphan::Stop;
    }
    let exclude = ["300ms", "1s", "3s"][usize::try_from(below(&mut rng, 3)).expect("small")];
    let network = format!("kind = \"random\"\nmean = \"{mean}ms\"");
    let mut cluster = cluster(setup, &network, exclude, seed);
    let n = nodes + 1;
    let until = 12 * SECOND;
    // A clock that jumps ends the wait of a new owner too early: no lease survives that.
    let kinds: Vec<_> = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Clocks).collect();
    let drawn = Swarm::draw(RunSeed(seed), n, until, &kinds, None, "detector");
    cluster.world.set_buggify(drawn.buggify);
    let first = u32::try_from(below(&mut rng, n.into())).expect("small");
    let may_crash = |slot: Slot| (slot.0 + n - first) % n < (n - 1) / 2;
    for (at, fault) in &drawn.faults {
        match fault {
            Fault::Crash(slot) | Fault::Recover(slot) if !may_crash(*slot) => {}
            // After the start: before it there is nothing to send.
            fault => cluster.world.fault_at(SECOND + *at, fault.clone()),
        }
    }
    // A member slows all flows down meanwhile: one that may not have crashed then.
    let at_ns = SECOND + below(&mut rng, until);
    cluster.world.run(at_ns);
    let ppm = 100_000 + u32::try_from(below(&mut rng, 2_000_000)).expect("small");
    let ahead = fence_wait(setup.rules.lease_ns) + below(&mut rng, SECOND);
    cluster.say((first + n - 1) % n, Command::SetRate { flow: None, at_ns: at_ns + ahead, ppm });
    let mut exit = cluster.world.run(SECOND + until);
    if exit == Exit::Until {
        cluster.world.heal(&(0..n).map(Slot).collect::<Vec<_>>());
        exit = cluster.world.run(until + 20 * SECOND);
    }
    let violation = cluster.world.finish().map(ToString::to_string);
    let facts = cluster.facts.lock().expect("one thread");
    Found {
        text: format!("seed {seed}: {nodes} nodes, exclude {exclude}, {drawn}; {exit:?}"),
        violation,
        packets: facts.packets.len(),
        fences: facts.packets.iter().map(|packet| packet.4).max().unwrap_or(0),
    }
}

fn sweep(seeds: std::ops::Range<u64>) {
    let count = seeds.end - seeds.start;
    let (mut packets, mut moved) = (0, 0);
    for seed in seeds {
        let found = swarm(seed, Planted::default());
        assert_eq!(found.violation, None, "{}", found.text);
        packets += found.packets;
        moved += u64::from(found.fences > 0);
    }
    println!("{count} seeds: {packets} packets, flows changed hands in {moved} runs");
    assert!(moved > count / 10, "flows change hands");
}

#[test]
fn one_owner_at_a_time_whatever_happens() {
    sweep(0..30);
}

#[test]
#[ignore = "thousands of seeds: the full size of one_owner_at_a_time_whatever_happens"]
fn one_owner_at_a_time_by_many_seeds() {
    sweep(0..3000);
}

/// Each planted fault is found by the oracles, within so many seeds.
#[test]
fn mutants_are_found() {
    for mutant in Mutant::ALL {
        let found = (0..400).find_map(|seed| {
            let found = swarm(seed, Planted::new(mutant));
            found.violation.map(|violation| (seed, violation))
        });
        let (seed, violation) = found.unwrap_or_else(|| panic!("{mutant:?} is not found"));
        println!("| {mutant:?} | {} | {violation} |", seed + 1);
    }
}
