//! The uniform forms: cuts of any length, and journals.

mod casts;

use bytes::Bytes;
use casts::order::Order;
use casts::world;
use itg_group::cast::log::Settings;
use itg_group::cast::uniform::{Fast, Timer, Uniform};
use itg_group::cast::{CastEvent, CastRequest, Planted};
use itg_group::{Member, Rules, View};
use itg_process::{Action, Injected, Input, MS, Machine as _, SECOND, Slot, Time};
use itg_sim::{Disks, Exit, Fault, World};

const UNIT: &str = "kind = \"fixed\"\ndelay = \"1ms\"";
const FORMS: [&str; 2] = ["uniform-sequencer", "uniform-skeen"];

fn group(form: &str, n: u32, params: &str) -> World {
    let layers = format!(
        "{{ layer = \"{form}\", trace = true{params} }}, \"rejoin\", {{ layer = \"chat\", until = \"0ms\" }}"
    );
    let mut world = world(n, UNIT, &layers, Planted::default(), 1);
    world.check(Order::default());
    world.keep_events();
    world
}

fn cast(world: &mut World, slot: u32, payload: Bytes) {
    let message = CastRequest::Cast(payload).message().expect("a message");
    world.with(Slot(slot), |process, now| process.send(now, message));
}

/// Runs until every member has everything that was cast.
#[track_caller]
fn settle(world: &mut World, until: u64) {
    let mut exit = Exit::Until;
    while exit == Exit::Until && world.now() < until && !world.converged() {
        exit = world.run(world.now() + 100 * MS);
    }
    world.heal(&[]);
    assert_eq!(world.finish().map(ToString::to_string), None, "{exit:?} at {}", world.now());
}

/// Each of 33 members has 128 KiB that wait when one crashes: more than an entry of the log holds.
#[test]
fn a_cut_of_more_than_four_mebibytes_is_made_in_parts() {
    for form in FORMS {
        let n = 33;
        let mut world = group(form, n, "");
        world.run(SECOND);
        for slot in 0..n {
            cast(&mut world, slot, vec![7; 128 << 10].into());
        }
        // Its own message is on its way to all.
        let at = world.now() + 500_000;
        world.fault_at(at, Fault::Crash(Slot(0)));
        for slot in 1..n {
            let suspect = Injected::Suspect(Slot(0));
            world.fault_at(at + 20 * MS, Fault::Inject(Slot(slot), form, suspect));
        }
        world.run(at + 40 * MS);
        settle(&mut world, 30 * SECOND);
        assert!(world.counts().occurrences(CastEvent::CutInParts) > 0, "{form}");
        let events = world.take_events();
        let delivered = events.iter().filter(|(_, slot, event)| {
            *slot == Slot(5) && matches!(event.decode(), Some(CastEvent::Deliver { .. }))
        });
        // Nobody has ordered the one of the process that is gone, or a majority has.
        let count = delivered.count();
        assert!((32..=33).contains(&count), "{form}: {count}");
    }
}

/// All are killed at one instant, with messages in every stage, and come back: each is the same member, and nothing
/// that was cast is lost.
#[test]
fn all_members_are_killed_at_once_and_lose_nothing() {
    for form in FORMS {
        for late in 0..40 {
            let mut world = group(form, 5, ", journal_bytes = 2000");
            world.set_disks(Disks { sync_ns: MS / 2, ..Disks::default() });
            world.run(SECOND);
            for turn in 0..20 {
                cast(&mut world, turn % 5, vec![7; 100].into());
                world.run(world.now() + MS);
            }
            let at = world.now() + late * MS / 4;
            for slot in (0..5).map(Slot) {
                world.fault_at(at, Fault::Crash(slot));
                world.fault_at(at + 50 * MS, Fault::Recover(slot));
            }
            world.run(at + 60 * MS);
            settle(&mut world, 20 * SECOND);
            let events = world.take_events();
            let back = events.iter().filter(|(.., event)| {
                matches!(event.decode(), Some(CastEvent::Back { counts: true, .. }))
            });
            assert_eq!(back.count(), 5, "{form}: they are the members that they were");
            let views = events
                .iter()
                .filter(|(.., event)| matches!(event.decode(), Some(CastEvent::View { .. })));
            assert_eq!(views.count(), 0, "{form}: nobody is excluded");
        }
    }
}

/// A member that was excluded has no timer any more. Under another name it must have one: what is lost is said again
/// by it alone.
#[test]
fn a_member_that_begins_again_has_its_timer() {
    for fast in [Fast::Sequencer, Fast::Skeen] {
        let view = View::first(3, Rules::default());
        let mut member = Uniform::new(fast, Member::new(Slot(1), 1), view, Settings::default());
        let mut out = Vec::new();
        let rejoin = CastRequest::Rejoin(Member::new(Slot(1), 2));
        member.handle(Time(SECOND), Input::Request(rejoin), &mut out);
        let set = |action: &Action<Uniform>| matches!(action, Action::SetTimer(Timer::Tick, _));
        assert!(out.iter().any(set), "{fast:?}");
    }
}
