//! Heartbeats to one keeper: how few messages there are, and that whoever fails is missed as soon as without that.

use std::collections::BTreeSet;

use crate::common::{Group, MILLI, Top, group, slots};
use itg_group::detector::DetectorEvent;
use itg_group::membership::MembershipEvent;
use itg_group::{cast, detector, membership};
use itg_process::{Registry, SECOND, Slot};
use itg_sim::Fault;

const NEAR: &str = "kind = \"random\"\nfloor = \"100us\"\nmean = \"200us\"";
const FAR: &str = "kind = \"fixed\"\ndelay = \"300ms\"";
/// Time-out, the window for reports of silence, and what else a view change takes over such a network.
const BOUND: u64 = 3 * SECOND + 400 * MILLI;

/// A group with the times of agents.
fn ring(n: u32, network: &str, seed: u64) -> Group {
    let layers = "{ layer = \"detector\", exclude = \"3s\", ring = \"1s\" }, { layer = \"log\", trace = true, \
         status = \"500ms\", rest = \"30s\" }, { layer = \"membership\" }, \"top\"";
    let registry = membership::layers(detector::layers(cast::layers(
        Registry::new().with("top", |_| Ok(Box::new(Top))),
        cast::Planted::default(),
    )));
    group(n, layers, network, seed, "membership", &registry)
}

/// Time of each view at the members that are left.
fn installed(group: &mut Group) -> Vec<(u64, u32, u64)> {
    group.logged(|event| match event {
        MembershipEvent::Installed { no, .. } => Some(no),
        _ => None,
    })
}

#[test]
fn a_group_that_waits_says_little() {
    for n in [2, 6, 21] {
        let mut group = ring(n, NEAR, 1);
        group.run(60 * SECOND);
        let before = group.world.counts().delivered;
        group.run(180 * SECOND);
        let each = (group.world.counts().delivered - before) as f64 / 120.0 / f64::from(n);
        // A heartbeat, and now and then a question for a round trip, its answer, and how far one is.
        assert!(each < 1.7, "{n} members: {each} messages a second from each");
        assert_eq!(group.changes(), 0);
    }
}

/// Whatever fails at one instant, a keeper with its ward or half of the core, is one view change within the bound.
#[test]
fn who_fails_at_one_instant_is_missed_at_one_instant() {
    for (n, gone) in [
        (3, vec![1]),
        (6, vec![0]),
        (6, vec![4, 5]),
        (6, vec![1, 2]),
        (6, vec![0, 5]),
        (9, vec![3, 4, 5]),
        (21, vec![7]),
        (21, (11..21).collect()),
    ] {
        for phase in 0..10 {
            let mut group = ring(n, NEAR, 1 + phase);
            let at = 70 * SECOND + phase * 97 * MILLI;
            gone.iter().for_each(|slot| group.crash(at, *slot));
            let view = group.settle(at + 10 * SECOND);
            let left: Vec<u32> = (0..n).filter(|slot| !gone.contains(slot)).collect();
            assert_eq!(slots(&view), left, "{gone:?} of {n}");
            assert_eq!(group.changes(), 1, "{gone:?} of {n}, phase {phase}");
            let last = installed(&mut group).into_iter().filter(|(.., no)| *no > 1);
            let last = last.map(|(time, ..)| time).max().expect("a view");
            assert!(
                last - at <= BOUND,
                "{gone:?} of {n}, phase {phase}: {} ms",
                (last - at) / MILLI
            );
        }
    }
}

/// Both sides of a cut miss the other one within the bound; the side without a majority waits.
#[test]
fn a_side_that_is_cut_off_knows_it() {
    for few in [vec![0], vec![4, 5], vec![0, 3], vec![1, 3]] {
        let mut group = ring(6, NEAR, 3);
        let at = 50 * SECOND;
        let few: BTreeSet<Slot> = few.into_iter().map(Slot).collect();
        let sides = (0..6).map(|slot| u8::from(few.contains(&Slot(slot)))).collect();
        group.world.fault_at(at, Fault::Partition(sides));
        group.run(at + BOUND);
        let waits = group.logged(|event| match event {
            MembershipEvent::Suspended { suspended: true, .. } => Some(()),
            _ => None,
        });
        let waits: BTreeSet<Slot> = waits.into_iter().map(|(_, slot, ())| Slot(slot)).collect();
        assert_eq!(waits, few, "who waits");
        group.world.heal(&(0..6).map(Slot).collect::<Vec<_>>());
        let view = group.settle(at + 60 * SECOND);
        assert_eq!(view.len(), 6);
    }
}

/// Round trips of 600 ms: nobody is suspected, no round is given up, and who fails is missed nearly as soon.
#[test]
fn time_outs_follow_the_round_trip() {
    let mut group = ring(6, FAR, 1);
    group.crash(60 * SECOND, 4);
    group.run(60 * SECOND);
    let mut events = group.events();
    let told = events.iter().filter_map(|(.., event)| match event.decode()? {
        DetectorEvent::RoundTrips { longest_ns } => Some(longest_ns),
        _ => None,
    });
    assert!(
        told.clone().count() >= 6 && told.clone().all(|ns| ns == 600 * MILLI),
        "{:?}",
        told.collect::<Vec<_>>()
    );
    events.retain(|(.., event)| {
        matches!(
            event.decode(),
            Some(DetectorEvent::Suspected { .. } | DetectorEvent::GivenUp { .. })
        )
    });
    assert!(events.is_empty(), "nobody is suspected: {events:?}");
    let view = group.settle(90 * SECOND);
    assert_eq!((view.len(), group.changes()), (5, 1));
    let last = installed(&mut group).into_iter().map(|(time, ..)| time).max().expect("a view");
    assert!(last < 60 * SECOND + BOUND + 4 * SECOND, "{} ms", last / MILLI);
}
