//! The replicated experiment on hosts with disks: nodes that are started again are the same members, and go on.
#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

mod cluster;

use cluster::{Cluster, NET, Setup, cluster};
use itg_control::{Command, ControlRequest, Phase, Planted, fence_wait};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_process::{Injected, MS, Process, SECOND, Slot};
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

/// A node that is killed and started again, and knows that nobody sends who sent for it before, waits for no lease: its
/// flows go on as soon as the others have granted one.
#[test]
fn who_knows_that_nobody_sends_for_it_goes_on_at_once() {
    for seed in 0..20 {
        let mut setup = Setup::new(4, 8);
        setup.packets = 12 * SECOND / cluster::GAP;
        setup.alone = true;
        let mut cluster = with_disks(setup, "3s", seed);
        let lease = cluster.setup.rules.lease_ns;
        let at = lease + 3 * SECOND + below(&mut RunSeed(seed).named("kill"), 2 * SECOND);
        cluster.world.fault_at(at, Fault::Crash(Slot(1)));
        cluster.world.fault_at(at + 100 * MS, Fault::Recover(Slot(1)));
        cluster.run(20 * SECOND);
        all_ended(&cluster, &format!("seed {seed}"));
        let facts = cluster.facts.lock().expect("one thread");
        let next =
            facts.packets.iter().filter(|sent| sent.0 > at && sent.1 == 1).map(|sent| sent.0);
        let waits = next.min().expect("it goes on") - at;
        assert!(waits < 500 * MS, "seed {seed}: after {waits} ns, of a lease of {lease}");
    }
}

/// Clocks that are set back while nodes are down repeat the time of the run, but no packet: the oracle sees none
/// twice.
#[test]
fn nothing_is_sent_twice_by_clocks_that_were_set_back() {
    for (seed, alone) in (0..20).zip([false, true].into_iter().cycle()) {
        let mut setup = Setup::new(4, 8);
        setup.alone = alone;
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
    let ways = [("1s", false), ("3s", false), ("1s", true), ("3s", true)];
    for (seed, (exclude, alone)) in (0..40).zip(ways.into_iter().cycle()) {
        let mut setup = Setup::new(4, 8);
        setup.packets = 40 * SECOND / cluster::GAP;
        (setup.planted, setup.alone) = (Planted::default(), alone);
        let mut cluster = with_disks(setup, exclude, seed);
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

/// Nodes that are excluded at once, as their hosts refuse connections, come in again whenever they are killed while
/// they ask for it.
#[test]
fn a_node_that_is_killed_on_its_way_in_comes_in_all_the_same() {
    for late in 0..40 {
        let mut cluster = stored(4, 8, 12, "3s", late);
        let again = 3200 * MS + late * 500_000;
        for (at, back, refused) in [
            (SECOND, 1200 * MS, true),
            (3 * SECOND, 3200 * MS, true),
            (again, again + 100 * MS, false),
        ] {
            kill(&mut cluster, at, 1, if refused { &[0, 2, 3, 4] } else { &[] });
            cluster.world.fault_at(back, Fault::Recover(Slot(1)));
        }
        cluster.run(15 * SECOND);
        assert_eq!(cluster.views().len(), 1, "late {late}: {:?}", cluster.views());
    }
}

/// Kills a node, which the others hear from its host at once.
fn kill(cluster: &mut Cluster, at: u64, node: u32, others: &[u32]) {
    cluster.world.fault_at(at, Fault::Crash(Slot(node)));
    for other in others {
        let suspect = Fault::Inject(Slot(*other), "membership", Injected::Suspect(Slot(node)));
        cluster.world.fault_at(at + MS, suspect);
    }
}

/// Two of three are killed when one of them has just been let in: its next start is the one that was let in, and
/// the majority is there again.
#[test]
fn a_majority_with_a_member_that_has_only_just_come_in_returns() {
    let start = || {
        let mut cluster = stored(2, 4, 12, "3s", 1);
        kill(&mut cluster, SECOND, 0, &[1, 2]);
        cluster.world.fault_at(1500 * MS, Fault::Recover(Slot(0)));
        cluster
    };
    let mut cluster = start();
    let view = |cluster: &Cluster| cluster.world.process(Slot(1)).map(Process::view_number);
    let seen = |at: &u64| {
        cluster.run(*at);
        view(&cluster) == Some(3)
    };
    let let_in = (1500 * MS..5 * SECOND).step_by(250_000).find(seen).expect("it comes in");
    for late in 0..40 {
        let mut cluster = start();
        let at = let_in - 2 * MS + late * 250_000;
        kill(&mut cluster, at, 0, &[]);
        kill(&mut cluster, at, 1, &[2]);
        for node in 0..2 {
            cluster.world.fault_at(at + 300 * MS, Fault::Recover(Slot(node)));
            // It is connected again.
            let trust = Fault::Inject(Slot(2), "membership", Injected::Trust(Slot(node)));
            cluster.world.fault_at(at + 301 * MS, trust);
        }
        cluster.run(20 * SECOND);
        assert_eq!(cluster.views().len(), 1, "late {late}: {:?}", cluster.views());
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

/// A flow whose owner left when nobody else could do its part waits for the owner's lease, whoever can do it next.
#[test]
fn a_flow_that_nobody_could_take_waits_for_the_lease_of_its_last_owner() {
    let at = 5 * SECOND;
    let mut setup = Setup::new(2, 4);
    setup.packets = 12 * SECOND / cluster::GAP;
    setup.able_at_ns = at + 50 * MS;
    let mut cluster = with_disks(setup, "3s", 1);
    kill(&mut cluster, SECOND, 1, &[0, 2]);
    cluster.world.fault_at(3 * SECOND, Fault::Recover(Slot(1)));
    // The owner of all flows sends on until its lease is over.
    cluster.world.fault_at(at, Fault::Partition(vec![1, 0, 0]));
    for other in [1, 2] {
        let suspect = Fault::Inject(Slot(other), "membership", Injected::Suspect(Slot(0)));
        cluster.world.fault_at(at + MS, suspect);
    }
    cluster.run(20 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    let next = facts.packets.iter().find(|sent| sent.0 > at && sent.1 == 1).expect("it goes on");
    let wait = fence_wait(cluster.setup.rules.lease_ns);
    assert!(next.0 >= at + wait, "{} ms after the partition", (next.0 - at) / MS);
}

/// A member that was away while the run ended learns it from the state with which it comes back.
#[test]
fn who_was_away_at_the_end_is_told() {
    let mut cluster = stored(3, 4, 4, "1s", 1);
    kill(&mut cluster, 6 * SECOND, 1, &[0, 2, 3]);
    cluster.run(7 * SECOND);
    cluster.say(3, Command::Drain);
    cluster.say(3, Command::End);
    cluster.run(8 * SECOND);
    let of = |cluster: &Cluster, slot: u32| {
        let facts = cluster.facts.lock().expect("one thread");
        facts.phases.get(&slot).copied()
    };
    assert_ne!(of(&cluster, 1), Some(Phase::Ended as u64), "it is away");
    cluster.world.fault_at(8 * SECOND, Fault::Recover(Slot(1)));
    cluster.run(15 * SECOND);
    assert_eq!(cluster.views().len(), 1, "it is back");
    assert_eq!(of(&cluster, 1), Some(Phase::Ended as u64));
}

/// A node that was excluded makes its part ready before it is in the view again, where others send to it at once.
#[test]
fn a_node_makes_ready_before_it_is_let_in() {
    let mut cluster = stored(4, 8, 12, "3s", 1);
    kill(&mut cluster, SECOND, 1, &[0, 2, 3, 4]);
    // It hears that it is out, but the first one that it asks does not hear it; it is killed, and knows that.
    cluster.world.fault_at(1400 * MS, Fault::Cut(Slot(1), Slot(0)));
    cluster.world.fault_at(1500 * MS, Fault::Recover(Slot(1)));
    cluster.world.fault_at(1600 * MS, Fault::Crash(Slot(1)));
    let back = 1900 * MS;
    cluster.world.fault_at(back, Fault::Recover(Slot(1)));
    cluster.run(3 * SECOND);
    cluster.world.heal(&[]);
    let mut let_in = 0;
    for at in (3 * SECOND..6 * SECOND).step_by(250_000) {
        cluster.run(at);
        if let_in == 0 && cluster.world.process(Slot(0)).is_some_and(|p| p.view_number() == 3) {
            let_in = at;
        }
    }
    let facts = cluster.facts.lock().expect("one thread");
    let told = facts.described.iter().find(|(at, slot)| *at >= back && *slot == 1);
    assert!(told.is_some_and(|(at, _)| *at < let_in), "{told:?}, let in at {let_in}");
}

/// A member that was away when a flow was given up learns it all the same.
#[test]
fn flows_that_were_given_up_are_known_to_all() {
    let mut cluster = stored(3, 4, 12, "1s", 1);
    kill(&mut cluster, 2 * SECOND, 1, &[0, 2, 3]);
    cluster.run(3 * SECOND);
    cluster.world.with(Slot(0), |process, now| {
        let request = ControlRequest::GaveUp(1, 0, "a test".to_owned());
        process.send(now, request.message());
    });
    cluster.world.fault_at(4 * SECOND, Fault::Recover(Slot(1)));
    cluster.run(16 * SECOND);
    let facts = cluster.facts.lock().expect("one thread");
    assert_eq!(facts.given_up.get(&1), Some(&1), "process 1 was away");
}
