//! Mode P, the paper's: scenarios M-3 to M-15, and M-22.

#![allow(clippy::print_stdout, reason = "what was tried, and what it led to")]

use std::time::Instant;

use crate::common::{FIXED, Group, MILLI, member, paper, slots};
use itg_group::membership::MembershipEvent;
use itg_members::Arity;
use itg_papers::model::{Constants, Contention};
use itg_process::{SECOND, Slot};
use itg_sim::Fault;

const fn welcome(event: MembershipEvent) -> bool {
    matches!(event, MembershipEvent::Welcomed { .. })
}

fn parent(a: u32, slot: u32) -> u32 {
    Arity::try_from(a).expect("an arity").parent(slot).unwrap_or(0)
}

/// One failure, detected once, by a member that is not the root.
fn single(n: u32, a: u32, victim: u32, params: &str, network: &str) -> (Group, u32) {
    let mut group = paper(n, &format!("arity = {a}, {params}"), network, 1);
    let detector = (1..n).rev().find(|slot| *slot != victim).expect("three processes");
    group.crash(MILLI, victim);
    group.suspect(2 * MILLI, detector, victim);
    (group, detector)
}

#[test]
fn m_3_each_single_failure_is_one_change_with_the_exact_count_of_messages() {
    for (n, a) in [(21, 4), (85, 4), (31, 2), (127, 2)] {
        for victim in 0..n {
            let (mut group, _) = single(n, a, victim, "publish = true", FIXED);
            let view = group.settle(SECOND);
            assert_eq!(group.changes(), 1, "{victim} of {n}");
            assert_eq!(slots(&view), (0..n).filter(|s| *s != victim).collect::<Vec<_>>());
            // Down and up an edge each, a report and its acknowledgement; of the root's failure the
            // next in succession is told, and asks whether it is true.
            let sent = edge_messages(&mut group) + 2;
            assert_eq!(sent, 2 * (u64::from(n) - 2) + 2, "{victim} of {n}");
        }
    }
}

/// Messages that were delivered, without the report and its answer; messages to the dead are not.
fn edge_messages(group: &mut Group) -> u64 {
    let down: u64 = group.world.counts().dropped.values().sum();
    group.world.counts().delivered + down - 2
}

fn ts(n: u32, a: u32, constants: Constants) -> u64 {
    let net = format!("kind = \"fixed\"\ndelay = \"{}ns\"", constants.latency);
    ts_on(n, a, &net, constants.compute)
}

fn ts_on(n: u32, a: u32, network: &str, compute: u64) -> u64 {
    let height = |n| Arity::try_from(a).expect("an arity").height(n);
    // A leaf whose loss leaves the tree as high as it was.
    let victim = if height(n - 1) == height(n) { n - 1 } else { n - 2 };
    let params = format!("compute = \"{compute}ns\", publish = false, late = \"10s\"");
    let (mut group, _) = single(n, a, victim, &params, network);
    group.settle(SECOND);
    let events = group.logged(Some);
    let at = |like: fn(&MembershipEvent) -> bool| {
        events.iter().find(|(.., event)| like(event)).map(|(at, ..)| *at)
    };
    let stable = at(|event| matches!(event, MembershipEvent::Stable { .. }));
    let reported = at(|event| matches!(event, MembershipEvent::Reported { .. }));
    stable.expect("stable") - reported.expect("reported")
}

/// `Ts` on a network whose latency grows with the number of nodes that talk.
fn crowded(n: u32, a: u32, model: Contention, compute: u64) -> u64 {
    let Contention { latency, free, slope } = model;
    let net =
        format!("kind = \"crowd\"\ndelay = \"{latency}ns\"\nfree = {free}\nslope = \"{slope}ns\"");
    ts_on(n, a, &net, compute)
}

/// Figure 8: in full trees the simulation is the contention model to the nanosecond; between them it stays
/// close, rises from node to node, and leaves the base model far below.
#[test]
fn mode_p_under_contention_takes_what_the_model_says() {
    let compute = Constants::TCP.compute;
    let model = Contention { latency: Constants::TCP.latency, free: 12, slope: 5_000 };
    for (a, sizes) in [(2, &[7, 15, 31, 63, 127, 255, 511][..]), (4, &[21, 85, 341])] {
        for &n in sizes {
            let arity = Arity::try_from(a).expect("an arity");
            // The one that failed does not talk any more.
            let want = model.by_level(n - 1, arity, compute).0;
            let seen = crowded(n, a, model, compute);
            assert!(seen.abs_diff(want) <= 1, "{n} nodes, arity {a}: {seen}, not {want}");
        }
    }
    let arity = Arity::try_from(2).expect("an arity");
    let mut before = 0;
    for n in 66..=127 {
        let seen = crowded(n, 2, model, compute);
        let want = model.by_level(n - 1, arity, compute).0;
        assert!(seen >= before, "{n} nodes: {seen} after {before}");
        assert!(seen.abs_diff(want) * 100 <= want * 15, "{n} nodes: {seen}, model {want}");
        before = seen;
    }
    let base = Constants::TCP.base(arity.height(127)).0;
    assert!(before * 2 > 3 * base, "{before}, base model {base}");
    assert!(before < model.together(127, arity, compute).0, "not everybody talks all the time");
}

/// M-4: `Ts` equals the base model to the nanosecond.
fn m_4(sizes: impl Iterator<Item = u32> + Clone) {
    for constants in [Constants::BGL, Constants::TCP] {
        for a in [2, 4, 8] {
            for n in sizes.clone() {
                let height = Arity::try_from(a).expect("an arity").height(n);
                assert_eq!(ts(n, a, constants), constants.base(height).0, "{n} nodes, arity {a}");
            }
        }
    }
    // Of two one is left: none to tell.
    let mut group = paper(2, "compute = \"2us\"", FIXED, 1);
    group.crash(MILLI, 1);
    group.suspect(2 * MILLI, 0, 1);
    group.settle(SECOND);
    let stable = group.logged(|event| match event {
        MembershipEvent::Stable { no, .. } => Some(no),
        _ => None,
    });
    assert_eq!(stable[0].0, 2 * MILLI + Constants::BGL.base(1).0);
}

#[test]
fn m_4_ts_equals_the_model() {
    let corners = [127, 128, 255, 256, 257, 341, 342, 511, 512, 585, 586, 1023, 1024];
    m_4((3..70).chain(corners));
}

#[test]
#[ignore = "6132 simulations, a minute: the full size of m_4_ts_equals_the_model"]
fn m_4_ts_equals_the_model_at_every_size() {
    m_4(3..=1024);
    println!("Ts of 3 to 1024 nodes, arity 2, 4 and 8, BG/L and TCP: 6132 simulations");
}

#[test]
fn m_6_many_detectors_of_one_failure_are_all_answered_in_one_phase() {
    for detectors in [2, 7, 19] {
        let mut group = paper(21, "compute = \"2us\"", FIXED, 1);
        group.crash(MILLI, 20);
        for detector in 1..=detectors {
            group.suspect(2 * MILLI, detector, 20);
        }
        group.settle(SECOND);
        assert_eq!(group.changes(), 1);
        let delivered = group.world.counts().delivered;
        assert_eq!(delivered, 2 * 19 + 2 * u64::from(detectors), "one answer each");
        let reports = group.count(|event| matches!(event, MembershipEvent::Reported { .. }));
        assert_eq!(reports, detectors as usize);
    }
}

#[test]
fn m_7_a_second_failure_is_found_by_its_missing_acknowledgement() {
    let mut group = paper(21, "", FIXED, 1);
    group.crash(MILLI, 3);
    group.crash(MILLI, 4);
    group.suspect(2 * MILLI, 10, 3);
    let view = group.settle(SECOND);
    assert!(!slots(&view).contains(&3) && !slots(&view).contains(&4));
    assert!(group.changes() <= 2, "{} phases", group.changes());
}

#[test]
fn m_8_failures_on_a_path_take_a_phase_for_each_level() {
    for (n, a, path) in
        [(85, 4, &[1, 5, 21][..]), (31, 2, &[1, 3, 7, 15]), (127, 2, &[2, 6, 13, 28, 58, 117])]
    {
        let mut group = paper(n, &format!("arity = {a}"), FIXED, 1);
        for slot in path {
            group.crash(MILLI, *slot);
        }
        group.suspect(2 * MILLI, n - 2, path[0]);
        group.settle(5 * SECOND);
        let height = Arity::try_from(a).expect("an arity").height(n);
        assert_eq!(group.changes(), u64::from(height) - 1, "{n} nodes, arity {a}");
    }
}

#[test]
fn m_9_the_root_and_any_number_of_its_successors_fail() {
    for n in [2, 5, 13, 21] {
        for dead in 1..n {
            let mut group = paper(n, "", FIXED, 1);
            for slot in 0..dead {
                group.crash(MILLI, slot);
            }
            // One survivor sees that the root has failed; the others are found out.
            group.suspect(2 * MILLI, n - 1, 0);
            let view = group.settle(20 * SECOND);
            assert_eq!(slots(&view), (dead..n).collect::<Vec<_>>());
            assert_eq!(view.root().slot, Slot(dead), "the next in succession");
        }
    }
}

/// The root fails at every event of a stabilisation.
#[test]
fn m_10_the_root_fails_at_every_event_of_a_phase() {
    let (mut states, mut finals) = (0, Vec::new());
    for number in 1.. {
        let mut group =
            paper(21, "compute = \"10us\"", "kind = \"random\"\nmean = \"1ms\"\nfifo = true", 7);
        group.crash(MILLI, 13);
        group.suspect(2 * MILLI, 5, 13);
        let more = group.run_to_event(number, 100 * MILLI);
        let now = group.world.now() + 1;
        group.crash(now, 0);
        for detector in 1..21 {
            group.suspect(now + MILLI * u64::from(detector % 5), detector, 0);
        }
        let view = group.settle(10 * SECOND);
        finals.push(slots(&view));
        states += 1;
        if !more {
            break;
        }
    }
    let want: Vec<u32> = (1..21).filter(|slot| *slot != 13).collect();
    assert!(finals.iter().all(|view| *view == want), "all runs end in one view");
    assert!(states > 60, "{states} instants of failure were tried");
    println!("M-10: {states} instants of failure");
}

#[test]
fn m_11_the_root_and_others_fail_together() {
    for seed in 0..200 {
        let n = 85;
        let mut group = paper(n, "", "kind = \"random\"\nmean = \"200us\"\nfifo = true", seed);
        let mut rng = itg_core::seed::RunSeed(seed).named("dead");
        let mut dead = vec![0];
        for _ in 0..1 + seed % 9 {
            dead.push(u32::try_from(itg_core::streams::below(&mut rng, n.into())).expect("small"));
        }
        for slot in &dead {
            group.crash(MILLI, *slot);
        }
        // Every member sees the failure of its own home parent.
        for slot in (1..n).filter(|slot| dead.contains(&parent(4, *slot))) {
            group.suspect(2 * MILLI, slot, parent(4, slot));
        }
        let view = group.settle(20 * SECOND);
        // No member sees leaves without children fail, but for the missing acknowledgement.
        assert!(dead.iter().all(|slot| !slots(&view).contains(slot)), "{dead:?} of {view:?}");
        let tree = view.tree();
        assert!(view.slots().all(|s| tree.parent(s).is_none_or(|p| !dead.contains(&p.0))));
    }
}

#[test]
fn m_12_joins_and_returns() {
    // A new process.
    let mut group = paper(6, "members = 5", FIXED, 1);
    let view = group.settle(SECOND);
    assert_eq!((slots(&view), group.changes()), ((0..6).collect(), 1));
    assert_eq!(group.count(welcome), 1);
    // One that returns, of a higher and of a lower slot than the root.
    for (policy, back, root) in
        [("oldest", 3, 0), ("lowest", 3, 0), ("oldest", 0, 1), ("lowest", 0, 0)]
    {
        let mut group = paper(6, &format!("root = \"{policy}\""), FIXED, 1);
        group.crash(MILLI, back);
        group.suspect(2 * MILLI, 5, back);
        group.recover(SECOND, back);
        // After the hand-over the new root must work.
        group.crash(2 * SECOND, 4);
        group.suspect(2 * SECOND + MILLI, 5, 4);
        let view = group.settle(4 * SECOND);
        assert_eq!(view.at(Slot(back)), Some(member(back, 65_537)), "{policy} {back}");
        assert_eq!(view.root().slot, Slot(root), "{policy} {back}");
        assert_eq!((view.len(), group.changes()), (5, 3), "{policy} {back}");
    }
}

/// A process joins at every event of the failure of the root.
#[test]
fn m_13_a_join_at_every_event_of_a_root_failure() {
    let mut instants = 0;
    for number in 1.. {
        let network = "kind = \"random\"\nmean = \"1ms\"\nfifo = true";
        let mut group = paper(21, "compute = \"10us\"", network, 3);
        group.crash(MILLI, 20);
        group.suspect(2 * MILLI, 5, 20);
        group.run(SECOND);
        group.crash(SECOND, 0);
        group.suspect(SECOND + MILLI, 7, 0);
        let before = group.world.counts().events;
        let more = group.run_to_event(before + number, 2 * SECOND);
        group.recover(group.world.now() + 1, 20);
        let view = group.settle(20 * SECOND);
        assert_eq!(view.at(Slot(20)), Some(member(20, 65_537)));
        assert_eq!(group.count(welcome), 1, "event {number}");
        instants += 1;
        if !more {
            break;
        }
    }
    assert!(instants > 60, "{instants} instants of joining were tried");
    println!("M-13: {instants} instants of joining");
}

#[test]
fn m_14_a_restart_faster_than_detection_is_one_change() {
    for victim in 1..21 {
        let mut group = paper(21, "", FIXED, 1);
        group.crash(MILLI, victim);
        group.recover(2 * MILLI, victim);
        let view = group.settle(5 * SECOND);
        assert_eq!(view.at(Slot(victim)), Some(member(victim, 65_537)));
        assert_eq!((view.len(), group.changes()), (21, 1), "old out and new in at once");
    }
}

/// `n` processes join one that is alone.
fn storm(n: u32) -> u64 {
    let params = "members = 1, publish = false, join = \"2s\"";
    let mut group = paper(n, params, "kind = \"random\"\nmean = \"1ms\"\nfifo = true", 1);
    let view = group.settle(60 * SECOND);
    assert_eq!(view.len(), n);
    group.changes()
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the limit is one of wall time")]
fn m_15_a_storm_of_joins_is_a_few_changes() {
    assert!(storm(1024) <= 12);
    assert!(storm(2001) <= 8);
    let start = Instant::now();
    let changes = storm(10_000);
    let wall = start.elapsed();
    println!("M-15: 1 to 10 000 in {changes} view changes, {wall:?}");
    assert!(wall.as_secs_f64() < 60.0, "{wall:?}");
}

/// 10 000 processes, one fails.
#[test]
#[allow(clippy::disallowed_methods, reason = "the limit is one of wall time")]
fn a_failure_among_ten_thousand_takes_some_seconds_at_most() {
    let (mut group, _) = single(10_000, 4, 7, "compute = \"2us\", publish = false", FIXED);
    group.run(MILLI);
    let start = Instant::now();
    group.run(SECOND);
    let wall = start.elapsed();
    assert_eq!(group.settle(SECOND).len(), 9_999);
    println!("one failure among 10 000: {wall:?}");
    assert!(wall.as_secs_f64() < 10.0, "{wall:?}");
}

/// Joins and failures at random, over random delays: all agree in the end.
#[test]
fn failures_and_returns_at_random_settle() {
    for seed in 0_u64..300 {
        let n = 5 + u32::try_from(seed % 30).expect("small");
        let network = "kind = \"random\"\nmean = \"300us\"\nfifo = true";
        let mut group = paper(
            n,
            if seed.is_multiple_of(2) { "" } else { "root = \"lowest\", arity = 2" },
            network,
            seed,
        );
        let mut rng = itg_core::seed::RunSeed(seed).named("what");
        let mut below = |bound: u64| itg_core::streams::below(&mut rng, bound);
        let mut at = MILLI;
        let first = below(n.into());
        for k in 0..u64::from(n - 2).min(8) {
            at += below(40 * MILLI);
            // The detector is accurate: no member fails again before all know that it has failed.
            let victim = u32::try_from((first + k) % u64::from(n)).expect("small");
            group.crash(at, victim);
            // The detector of the environment: all are told, some time later.
            for detector in (0..n).filter(|slot| *slot != victim) {
                group.suspect(at + MILLI + below(5 * MILLI), detector, victim);
            }
            group.recover(at + 10 * MILLI + below(100 * MILLI), victim);
        }
        group.settle(60 * SECOND);
    }
}

/// Failures and returns as Poisson processes, for very long.
fn soak(n: u32, seconds: u64) {
    let mut group = paper(n, "publish = false", "kind = \"fixed\"\ndelay = \"500us\"", 5);
    let mut rng = itg_core::seed::RunSeed(5).named("soak");
    let mut down = std::collections::BTreeMap::new();
    let (mut at, mut crashes) = (0, 0);
    while at < seconds * SECOND {
        at += SECOND + itg_core::streams::exponential_ns(&mut rng, 100 * SECOND);
        down.retain(|_, back: &mut u64| *back > at);
        let victim = u32::try_from(itg_core::streams::below(&mut rng, n.into())).expect("small");
        if down.contains_key(&victim) || down.len() > n as usize / 2 {
            continue;
        }
        group.run(at);
        let back = at + SECOND + itg_core::streams::exponential_ns(&mut rng, 1000 * SECOND);
        crashes += 1;
        group.crash(at, victim);
        let others = (0..n).filter(|slot| *slot != victim && !down.contains_key(slot));
        for detector in others.take(3) {
            group.suspect(at + 50 * MILLI, detector, victim);
        }
        group.recover(back, victim);
        down.insert(victim, back);
        // What the root holds is bounded by the group, however long it runs.
        let held = group.logged(|event| match event {
            MembershipEvent::Held { listed, runs, .. } => Some((listed, runs)),
            _ => None,
        });
        for (.., (listed, runs)) in held {
            assert!(
                listed <= u64::from(n) && runs <= u64::from(n),
                "{listed} entries, {runs} runs"
            );
        }
    }
    let view = group.settle(at + 20_000 * SECOND);
    assert_eq!(view.len(), n);
    println!("M-21: {n} processes, {seconds} s, {crashes} crashes, {} changes", group.changes());
}

#[test]
fn m_21_failures_and_returns_for_long() {
    soak(60, 20_000);
}

#[test]
#[ignore = "a million virtual seconds of 500 processes: the full size of m_21"]
fn m_21_failures_and_returns_for_very_long() {
    soak(500, 1_000_000);
}

/// M-22: with a detector that is wrong two roots are possible, and the oracle sees it.
#[test]
fn m_22_wrong_suspicions_break_the_mode_of_the_paper_and_are_seen() {
    let mut found = std::collections::BTreeMap::new();
    for seed in 0..1000 {
        let mut group = paper(9, "", "kind = \"random\"\nmean = \"1ms\"\nfifo = true", seed);
        let mut rng = itg_core::seed::RunSeed(seed).named("lies");
        let mut below = |bound: u64| itg_core::streams::below(&mut rng, bound);
        for _ in 0..6 {
            let (liar, victim) = (below(9), below(3));
            let at = MILLI + below(5 * MILLI);
            let what = itg_process::Injected::Suspect(Slot(u32::try_from(victim).expect("small")));
            let liar = Slot(u32::try_from(liar).expect("small"));
            group.world.fault_at(at, Fault::Inject(liar, "membership-paper", what));
        }
        group.world.run(2 * SECOND);
        if let Some(violation) = group.world.violation() {
            let property = violation.text.split(':').next().unwrap_or("").to_owned();
            found.entry(property).or_insert(seed);
        }
    }
    println!("M-22: property broken, first seed: {found:?}");
    assert!(found.contains_key("V5") || found.contains_key("V9"), "{found:?}");
}
