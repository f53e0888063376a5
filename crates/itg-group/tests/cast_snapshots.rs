//! States of any length on their way to a joiner, and in a journal.

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

use crate::casts::chat::ChatEvent;
use crate::casts::order::Order;
use crate::casts::world;
use itg_group::cast::{CastEvent, Mutant, Planted};
use itg_process::{MS, SECOND, Slot};
use itg_sim::{Disks, Exit, Fault, LinkFaults, World};

const UNIT: &str = "kind = \"fixed\"\ndelay = \"1ms\"";
const MIB: u64 = 1 << 20;

/// Five processes whose state has so many bytes.
fn group(layer: &str, padding: u64, planted: Planted, seed: u64) -> World {
    // Small ones in as many pieces as large ones.
    let piece = if padding > 8 * MIB { MIB } else { 64 << 10 };
    let layers = format!(
        "{{ layer = \"{layer}\", trace = true, journal_bytes = 20000, piece_bytes = {piece} }}, \"rejoin\", {{ layer = \"chat\", until \
         = \"2s\", padding = {padding} }}"
    );
    let mut world = world(5, UNIT, &layers, planted, seed);
    world.check(Order::default());
    world.keep_events();
    world
}

/// Process 4 comes back without its state; the same, with what happens meanwhile.
fn joins(world: &mut World, at: u64) {
    world.fault_at(SECOND, Fault::Crash(Slot(4)));
    world.fault_at(at, Fault::Recover(Slot(4)));
    world.run(at);
}

/// Runs until so many processes have taken a state over and all have everything; what does not hold.
fn settle(world: &mut World, states: u64, until: u64) -> Option<String> {
    let mut exit = world.run(world.now() + SECOND);
    let used = |world: &World| world.counts().occurrences(ChatEvent::SnapshotUsed);
    while exit == Exit::Until
        && world.now() < until
        && !(world.converged() && used(world) >= states)
    {
        exit = world.run(world.now() + 100 * MS);
    }
    world.heal(&[]);
    let found = world.finish().map(ToString::to_string);
    let few = format!("{} of {states} states", used(world));
    found.or_else(|| (used(world) < states).then_some(few))
}

fn fetched(world: &World) -> u64 {
    world.counts().occurrences(CastEvent::SnapshotInPieces)
}

#[test]
fn a_joiner_gets_a_state_of_forty_mebibytes() {
    for layer in ["log", "uniform-sequencer"] {
        let mut world = group(layer, 40 * MIB, Planted::default(), 1);
        joins(&mut world, 1200 * MS);
        assert_eq!(settle(&mut world, 1, 60 * SECOND), None, "{layer}");
        assert_eq!(fetched(&world), 1, "{layer}");
        assert_eq!(world.counts().occurrences(ChatEvent::SnapshotUsed), 1, "{layer}");
    }
}

#[test]
fn pieces_that_are_lost_are_asked_for_again() {
    let mut world = group("log", 8 * MIB, Planted::default(), 1);
    let loss = LinkFaults { loss: 300_000, ..LinkFaults::default() };
    world.fault_at(1100 * MS, Fault::Links(0, loss));
    joins(&mut world, 1200 * MS);
    assert_eq!(settle(&mut world, 1, 60 * SECOND), None);
    assert!(fetched(&world) > 0);
    let again = |event: &itg_process::Event| {
        matches!(event.decode(), Some(CastEvent::PieceAskedAgain { .. }))
    };
    assert!(world.take_events().iter().any(|(.., event)| again(event)));
}

/// The member that hands its state over crashes in the middle: the joiner says so, and asks another one.
#[test]
fn a_sender_that_crashes_in_the_middle_is_given_up() {
    let mut seen = 0;
    for turn in 0..10 {
        let mut world = group("log", 4 * MIB, Planted::default(), 1);
        // The process that it asks first.
        world.fault_at(1200 * MS + turn * 20 * MS, Fault::Crash(Slot(0)));
        joins(&mut world, 1200 * MS);
        assert_eq!(settle(&mut world, 1, 60 * SECOND), None, "turn {turn}");
        assert_eq!(world.counts().occurrences(ChatEvent::SnapshotUsed), 1);
        for (_, slot, event) in world.take_events() {
            if let Some(CastEvent::SnapshotGivenUp { from, have, total }) = event.decode() {
                assert_eq!((slot, from), (Slot(4), Slot(0)));
                assert!(0 < have && have < total, "{have} of {total}");
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "one of the crashes comes in the middle");
}

/// A journal has it in pieces, too: all are killed at once, and come back with it.
#[test]
fn a_long_state_survives_in_a_journal() {
    for layer in ["log", "uniform-skeen"] {
        let mut world = group(layer, 3 * MIB, Planted::default(), 1);
        world.set_disks(Disks { sync_ns: MS, ..Disks::default() });
        for slot in (0..5).map(Slot) {
            world.fault_at(1900 * MS, Fault::Crash(slot));
            world.fault_at(1950 * MS, Fault::Recover(slot));
        }
        world.run(2 * SECOND);
        assert_eq!(settle(&mut world, 5, 60 * SECOND), None, "{layer}");
        assert!(world.counts().occurrences(CastEvent::JournalShortened) > 0, "{layer}");
        assert_eq!(world.counts().occurrences(ChatEvent::SnapshotUsed), 5, "{layer}");
    }
}

/// Fault 41: pieces that come twice count twice.
#[test]
fn mutant_41_is_caught() {
    let found = |planted, seed| {
        let mut world = group("log", 8 * MIB, planted, seed);
        let twice = LinkFaults { duplicate: 300_000, ..LinkFaults::default() };
        world.fault_at(1100 * MS, Fault::Links(0, twice));
        joins(&mut world, 1200 * MS);
        settle(&mut world, 1, 5 * SECOND)
    };
    let mut caught = None;
    for seed in 0..20 {
        // The same run without the fault is well.
        assert_eq!(found(Planted::default(), seed), None, "seed {seed}");
        let other = |violation: &String| violation.contains("state of process 4");
        if let Some(violation) = found(Planted::new(Mutant::AnyPiece), seed).filter(other) {
            caught = Some((seed, violation));
            break;
        }
    }
    println!("mutant 41, any piece counts: {caught:?}");
    assert!(caught.is_some());
}
