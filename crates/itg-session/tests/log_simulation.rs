//! Producers and a log server over whole experiments, with every kind of fault.
#![allow(missing_docs, clippy::print_stdout, reason = "a test program")]

use std::collections::BTreeSet;

use crate::log_harness::{Bug, MS, OnFull, Outage, Plan, SECOND, Trace, check, run};
use itg_session::logs::{LogFate, Transport};

fn assert_good(plan: &Plan) -> Trace {
    let trace = run(plan, None);
    let broken = check(plan, &trace);
    assert!(
        broken.is_empty(),
        "seed {}: {broken:#?}\n{plan:#?}\n{}",
        plan.seed,
        trace.lines.iter().cloned().collect::<Vec<_>>().join("\n")
    );
    trace
}

fn fates(trace: &Trace) -> Vec<LogFate> {
    trace.ends.iter().map(|end| end.clone().expect("ended").1).collect()
}

/// Draws `n` experiments and tells what came up in them.
fn sweep(seeds: std::ops::Range<u64>) -> BTreeSet<&'static str> {
    let (mut seen, mut frames, mut stored) = (BTreeSet::new(), 0, 0);
    let (mut confirmed, mut ended) = (0, 0);
    for seed in seeds {
        let trace = assert_good(&Plan::draw(seed));
        seen.extend(trace.seen.iter().copied());
        frames += trace.frames;
        stored += trace.disk.order.len();
        ended += trace.ends.len();
        confirmed += fates(&trace).iter().filter(|fate| fate.confirmed).count();
    }
    println!("{frames} frames, {stored} blocks stored, {confirmed} of {ended} logs confirmed");
    seen
}

#[test]
fn any_experiment_keeps_its_account() {
    let seen = sweep(0..3000);
    for situation in [
        "a block came out of the spool",
        "a block came twice",
        "a block was dropped",
        "a connection was cut",
        "a datagram was lost",
        "a log was taken over",
        "a producer waited for a buffer",
        "a spool could not be read",
        "a write failed",
        "it is damaged",
        "missing blocks were reported",
        "the disk was full",
        "the server was killed",
        "the server was shut down",
        "there is no memory for it",
        "written and not acknowledged",
    ] {
        assert!(seen.contains(situation), "it never happened that {situation}: {seen:#?}");
    }
}

/// Every fault but a broken spool, and producers with the patience to outlast them.
fn healing(seed: u64, transport: Transport) -> Plan {
    let mut plan = Plan::draw(seed);
    plan.spool_fails = 0.0;
    plan.secret = false;
    plan.limits.experiments = 64;
    // Longer than all outages together, and than any queue at the disk.
    plan.leave_ns = 600 * SECOND;
    let quiet = plan.quiet_at();
    for producer in &mut plan.producers {
        producer.transport = transport;
        // Otherwise one that never gets registered would be right to give up.
        producer.patience_ns.get_or_insert(SECOND);
        producer.stop_ns = quiet + 600 * SECOND;
    }
    plan
}

/// L-4: a server that is killed and comes back costs nothing on TCP.
#[test]
fn l_4_whatever_happened_on_tcp_everything_is_stored_once_all_is_well() {
    let (mut outages, mut logs) = (0, 0);
    for seed in 0..1500 {
        let plan = healing(seed, Transport::Tcp);
        outages += plan.outages.len();
        for (fate, producer) in fates(&assert_good(&plan)).iter().zip(&plan.producers) {
            assert!(fate.confirmed, "seed {seed}: {fate:?}");
            assert_eq!(fate.stored_records + fate.dropped_records, fate.records, "seed {seed}");
            if producer.on_full != OnFull::Drop {
                assert!(fate.is_complete(), "seed {seed}: {fate}");
            }
            logs += 1;
        }
    }
    println!("{logs} logs through {outages} outages");
}

/// L-4: on UDP the outage is lost, and only the outage; it is on record.
#[test]
fn l_4_on_udp_what_an_outage_costs_is_reported() {
    let mut lost = 0;
    for lasts in [0, 50 * MS, SECOND, 8 * SECOND] {
        let mut plan = Plan::clean(lasts, 3, Transport::Udp);
        for producer in &mut plan.producers {
            producer.blocks = 600;
        }
        let (at, orderly, noticed, written) = (3 * SECOND, false, true, 0);
        plan.outages.push(Outage { at, lasts, orderly, noticed, written });
        for fate in fates(&assert_good(&plan)) {
            assert!(fate.confirmed, "{fate}");
            assert_eq!(fate.stored_records + fate.missing_records, fate.records, "{fate}");
            // One block each 20 ms; then back-off, registration and what was in flight.
            let most = (lasts + 6 * SECOND) / (20 * MS);
            assert!((1..=most).contains(&fate.missing_blocks), "{lasts} ns cost {fate}");
            lost += fate.missing_blocks;
        }
    }
    println!("{lost} blocks lost");
}

#[test]
fn a_connection_may_die_with_any_frame() {
    for (transport, producers) in [(Transport::Tcp, 1), (Transport::Tcp, 3), (Transport::Udp, 2)] {
        let mut plan = Plan::clean(7, producers, transport);
        for producer in &mut plan.producers {
            producer.blocks = 20;
        }
        let frames = assert_good(&plan).frames;
        for at in 0..frames {
            plan.cut_at = Some(at);
            for fate in fates(&assert_good(&plan)) {
                assert!(fate.confirmed, "frame {at}: {fate:?}");
                assert!(transport == Transport::Udp || fate.is_complete(), "frame {at}: {fate}");
            }
        }
        println!("{transport:?}, {producers} producers: {frames} frames");
    }
}

/// L-1: a log is complete on TCP, and on UDP up to what is lost on the way.
#[test]
fn l_1_in_peace_everything_is_stored() {
    for transport in [Transport::Tcp, Transport::Udp] {
        for (producers, delay_ns, secret) in
            [(1, 0, false), (5, MS, true), (20, 100 * MS, false), (3, SECOND, true)]
        {
            let mut plan = Plan::clean(1, producers, transport);
            (plan.delay_ns, plan.secret) = (delay_ns, secret);
            for fate in fates(&assert_good(&plan)) {
                assert!(fate.confirmed && fate.is_complete(), "{transport:?} {delay_ns}: {fate}");
            }
        }
    }
}

/// L-1: loss, doubles and overtaking, all at once.
#[test]
fn l_1_what_is_lost_on_udp_is_reported_block_by_block() {
    for seed in 0..200 {
        let mut plan = Plan::clean(seed, 3, Transport::Udp);
        (plan.loss, plan.twice, plan.damage, plan.delay_ns) = (0.3, 0.5, 0.1, 200 * MS);
        for fate in fates(&assert_good(&plan)) {
            assert!(fate.confirmed && fate.missing_blocks > 0, "seed {seed}: {fate:?}");
            let listed: u64 = fate.missing.iter().map(|&(a, b)| u64::from(b - a) + 1).sum();
            assert_eq!(listed, fate.missing_blocks, "seed {seed}");
        }
    }
}

/// L-5: a full disk stops the credit; producers wait, or drop and say so; nothing is lost.
#[test]
fn l_5_a_full_disk_pushes_back() {
    for on_full in [OnFull::Wait, OnFull::Drop, OnFull::Grow] {
        let mut plan = Plan::clean(3, 10, Transport::Tcp);
        plan.full = vec![(SECOND / 2, 20 * SECOND)];
        plan.limits.budget_bytes = 10 * 8 * 2048;
        for producer in &mut plan.producers {
            (producer.on_full, producer.blocks) = (on_full, 200);
        }
        let trace = assert_good(&plan);
        let dropped: u64 = fates(&trace).iter().map(|fate| fate.dropped_blocks).sum();
        assert_eq!(dropped > 0, on_full == OnFull::Drop, "{on_full:?}: {dropped} blocks dropped");
        for fate in fates(&trace) {
            assert!(fate.confirmed, "{on_full:?}: {fate}");
            assert_eq!(fate.stored_blocks + fate.dropped_blocks, fate.blocks, "{on_full:?}");
        }
    }
}

/// L-5: without room to the end, nothing is acknowledged that is not stored, and the rest is spooled.
#[test]
fn l_5_a_disk_that_stays_full_leaves_the_rest_in_the_spool() {
    let mut plan = Plan::clean(3, 4, Transport::Tcp);
    plan.full = vec![(SECOND / 2, 7200 * SECOND)];
    for producer in &mut plan.producers {
        producer.patience_ns = Some(SECOND);
    }
    for fate in fates(&assert_good(&plan)) {
        assert!(!fate.confirmed && fate.spooled_blocks > 0 && fate.stored_blocks > 0, "{fate:?}");
        assert_eq!(fate.unconfirmed_blocks + fate.missing_blocks, 0, "{fate:?}");
        let trouble = fate.trouble.expect("said why");
        assert_eq!(trouble, "the log server did not get on within 30s");
    }
}

/// L-11: a hundred hungry producers at a slow disk come forward side by side.
#[test]
fn l_11_a_hundred_producers_get_their_turns() {
    const N: usize = 100;
    let mut plan = Plan::clean(5, N, Transport::Tcp);
    plan.limits.budget_bytes = N as u64 * 8 * 2048;
    (plan.disk_ns, plan.disk_batch) = (20 * MS, 4);
    for (number, producer) in plan.producers.iter_mut().enumerate() {
        (producer.blocks, producer.interval_ns) = (100, 0);
        producer.stop_ns = 7200 * SECOND;
        // Some come later, when the others have taken all the credit there is.
        producer.start_ns = if number % 10 == 0 { 2 * SECOND } else { 0 };
    }
    let trace = assert_good(&plan);
    assert!(fates(&trace).iter().all(LogFate::is_complete));
    // Between two blocks of a log: how many blocks of others were stored, counted in rounds of all.
    let (mut last, mut longest) = (vec![None; N + 1], 0);
    for (place, &log_id) in trace.disk.order.iter().enumerate() {
        if let Some(before) = last[log_id as usize].replace(place) {
            longest = longest.max(place - before - 1);
        }
    }
    println!("at most {longest} blocks of others between two of a log");
    assert!(longest <= 8 * N, "{longest} blocks of others between two of one log");
    // No producer is far ahead: all end within the last part of the time.
    let ends: Vec<u64> = trace.ends.iter().flatten().map(|end| end.0).collect();
    let (first, last) = (ends.iter().min().expect("many"), ends.iter().max().expect("many"));
    println!("ended between {:.1} s and {:.1} s", *first as f64 / 1e9, *last as f64 / 1e9);
    assert!(first * 10 >= last * 7, "one ended after {first} ns, another one after {last} ns");
}

#[test]
fn without_the_secret_nothing_is_stored() {
    let mut plan = Plan::clean(3, 2, Transport::Tcp);
    plan.secret = true;
    plan.producers[1].knows_secret = false;
    let trace = assert_good(&plan);
    let ends: Vec<_> = trace.ends.iter().flatten().collect();
    assert!(ends[0].1.is_complete());
    let reason = ends[1].2.as_deref().expect("failed");
    assert_eq!(
        reason,
        "the log server refused: the log server has a secret, and this producer does not know it: \
         give both the same one"
    );
    assert_eq!(ends[1].1.stored_blocks, 0);
}

#[test]
fn a_server_that_never_comes_is_reported() {
    let mut plan = Plan::clean(3, 2, Transport::Tcp);
    let outage = Outage { at: 0, lasts: 9000 * SECOND, orderly: false, noticed: true, written: 0 };
    plan.outages = vec![outage];
    plan.producers[1].patience_ns = Some(SECOND);
    let trace = assert_good(&plan);
    let ends: Vec<_> = trace.ends.iter().flatten().collect();
    assert_eq!(
        ends[0].2.as_deref(),
        Some(
            "the log was not registered within 20s; the log server cannot be reached: connection \
             refused"
        )
    );
    assert_eq!((ends[1].2.as_deref(), ends[1].1.spooled_blocks), (None, 40));
}

#[test]
fn planted_bugs_are_caught() {
    let mut plans: Vec<Plan> = (0..1000).map(Plan::draw).collect();
    plans.extend((0..300).map(|seed| healing(seed, Transport::Tcp)));
    let mut plenty = Plan::clean(1, 2, Transport::Tcp);
    plenty.producers.iter_mut().for_each(|producer| producer.blocks = 400);
    plans.push(plenty);
    for bug in [
        Bug::AckBeforeStore,
        Bug::ForgetDedupe,
        Bug::LoseCredit,
        Bug::ReleaseEarly,
        Bug::HideGaps,
        Bug::ForgetFiles,
        Bug::DeafProducer,
    ] {
        let caught = plans.iter().position(|plan| !check(plan, &run(plan, Some(bug))).is_empty());
        println!("{bug:?}: caught in experiment {caught:?}");
        assert!(caught.is_some(), "{bug:?} was not caught");
    }
    // Healing has to be seen by its effect.
    let stuck = |plan: &Plan| {
        let trace = run(plan, Some(Bug::SwallowWake));
        trace.ends.iter().flatten().any(|(_, fate, _)| !fate.confirmed)
    };
    let caught = (0..3000).find(|&seed| stuck(&healing(seed, Transport::Tcp)));
    println!("SwallowWake: caught with seed {caught:?}");
    assert!(caught.is_some(), "SwallowWake was not caught");
}
