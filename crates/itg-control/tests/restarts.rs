//! The replicated experiment on hosts with disks: nodes that are started again are the same members, and go on.
#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

mod cluster;

use cluster::{Cluster, NET, Setup, cluster};
use itg_control::{Command, Planted};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_process::{MS, SECOND, Slot};
use itg_sim::{Disks, Fault};

/// Nodes with disks, whose flows last this long.
fn stored(nodes: u32, flows: u32, seconds: u64, exclude: &str, seed: u64) -> Cluster {
    let mut setup = Setup::new(nodes, flows);
    setup.packets = seconds * SECOND / cluster::GAP;
    setup.planted = Planted::default();
    with_disks(setup, exclude, seed)
}

fn with_disks(setup: Setup, exclude: &str, seed: u64) -> Cluster {
    let mut cluster = cluster(setup, NET, exclude, seed);
    cluster.world.set_disks(Disks { sync_ns: 2 * MS, ..Disks::default() });
    cluster
}

/// Every flow was sent to its last packet.
#[track_caller]
fn all_ended(cluster: &Cluster, what: &str) {
    let facts = cluster.facts.lock().expect("one thread");
    for flow in 1..=cluster.setup.flows {
        let last = facts.of(flow).last().map(|packet| packet.2);
        assert_eq!(last, Some(cluster.setup.packets - 1), "{what}: flow {flow}");
    }
}

/// All nodes are killed at one instant of the run, and started again: the flows go on, and nothing leaves before
/// what ran before the crash can send no more.
#[test]
fn all_nodes_are_killed_at_once_and_go_on() {
    for seed in 0..20 {
        let mut cluster = stored(4, 8, 12, "3s", seed);
        let at = SECOND + below(&mut RunSeed(seed).named("kill"), 2 * SECOND);
        for node in 0..4 {
            cluster.world.fault_at(at, Fault::Crash(Slot(node)));
            cluster.world.fault_at(at + 300 * MS, Fault::Recover(Slot(node)));
        }
        cluster.run(20 * SECOND);
        all_ended(&cluster, &format!("seed {seed}"));
        let lease = cluster.setup.rules.lease_ns;
        let facts = cluster.facts.lock().expect("one thread");
        let early = facts.packets.iter().filter(|sent| (at + 1..at + lease).contains(&sent.0));
        assert_eq!(early.count(), 0, "seed {seed}: an older sender has its lease yet");
        let waits = facts.packets.iter().filter(|sent| sent.0 > at).map(|sent| sent.0 - at).min();
        assert!(waits.is_some_and(|ns| ns < 2 * lease + SECOND), "seed {seed}: {waits:?}");
    }
}

/// Clocks that are set back while nodes are down repeat the time of the run, but no packet: the oracle sees none
/// twice.
#[test]
fn nothing_is_sent_twice_by_clocks_that_were_set_back() {
    for seed in 0..10 {
        let mut setup = Setup::new(4, 8);
        setup.packets = 12 * SECOND / cluster::GAP;
        setup.set_back_ns = 5 * SECOND;
        let mut cluster = with_disks(setup, "3s", seed);
        let at = 3 * SECOND + below(&mut RunSeed(seed).named("kill"), 2 * SECOND);
        for node in 0..4 {
            cluster.world.fault_at(at, Fault::Crash(Slot(node)));
            cluster.world.fault_at(at + 300 * MS, Fault::Recover(Slot(node)));
        }
        cluster.run(25 * SECOND);
        all_ended(&cluster, &format!("seed {seed}"));
    }
}

/// Nodes are killed one by one, in any order and at any time, as often as there is time for.
#[test]
fn nodes_are_killed_again_and_again() {
    for (seed, exclude) in (0..20).zip(["1s", "3s"].into_iter().cycle()) {
        let mut cluster = stored(4, 8, 40, exclude, seed);
        let mut rng = RunSeed(seed).named("kills");
        for turn in 0..20 {
            let node = Slot(u32::try_from(below(&mut rng, 4)).expect("small"));
            let at = SECOND + turn * 500 * MS;
            cluster.world.fault_at(at, Fault::Crash(node));
            let back = at + 20 * MS + below(&mut rng, 400 * MS);
            cluster.world.fault_at(back, Fault::Recover(node));
        }
        cluster.run(55 * SECOND);
        all_ended(&cluster, &format!("seed {seed}, exclude {exclude}"));
    }
}

/// An owner that is killed while it is to hand a flow over, and returns, hands it over when what ran before its
/// return can send no more.
#[test]
fn a_flow_is_not_handed_over_before_the_old_lease_is_over() {
    let mut handed = 0;
    for seed in 0..20 {
        let mut cluster = stored(4, 4, 20, "3s", seed);
        cluster.run(2 * SECOND);
        cluster.say(2, Command::Reassign { flow: 1, to: 1 });
        let at = 2 * SECOND + below(&mut RunSeed(seed).named("kill"), 4 * MS);
        cluster.world.fault_at(at, Fault::Crash(Slot(0)));
        cluster.world.fault_at(at + 100 * MS, Fault::Recover(Slot(0)));
        cluster.run(25 * SECOND);
        all_ended(&cluster, &format!("seed {seed}"));
        let facts = cluster.facts.lock().expect("one thread");
        let sent = facts.of(1);
        let last = sent.iter().rfind(|packet| packet.1 == 0).expect("it began");
        let first = sent.iter().find(|packet| packet.1 == 1).expect("the other one goes on");
        // Where it had stopped before it was killed, nothing is waited for.
        let wait = first.0.saturating_sub(at);
        handed += u32::from(last.0 > at - 20 * MS && wait >= cluster.setup.rules.lease_ns);
    }
    println!("{handed} of 20 were handed over by an owner that had returned");
    assert!(handed > 2, "{handed}");
}
