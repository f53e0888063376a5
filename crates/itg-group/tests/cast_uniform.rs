//! The uniform forms: cuts of any length, and journals.

use crate::casts::order::Order;
use crate::casts::world;
use bytes::Bytes;
use itg_group::cast::log::Settings;
use itg_group::cast::uniform::{EpochMessage, Fast, Flush, Timer, Uniform, UniformMessage};
use itg_group::cast::{CastDelivery, CastEvent, CastRequest, Planted};
use itg_group::{Id, Member, Rules, View};
use itg_process::{Action, Injected, Input, JournalWrite, MS, Machine as _, SECOND, Slot, Time};
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
/// The root is silent for five seconds, a hundred ticks, in which nothing can be ordered.
#[test]
fn what_is_said_again_goes_to_those_that_lack_it() {
    for form in FORMS {
        let n = 5;
        let mut world = group(form, n, "");
        world.run(SECOND);
        world.fault_at(world.now(), Fault::Crash(Slot(0)));
        world.run(world.now() + 10 * MS);
        let before = world.counts().delivered;
        for _ in 0..20 {
            cast(&mut world, 1, vec![7; 100].into());
        }
        world.run(world.now() + 5 * SECOND);
        let delivered = world.counts().delivered - before;
        // Each message once and once answered; each tick what all tell all, not each message that waits.
        assert!((100..4000).contains(&delivered), "{form}: {delivered} messages");
        for slot in 1..n {
            let suspect = Injected::Suspect(Slot(0));
            world.fault_at(world.now(), Fault::Inject(Slot(slot), form, suspect));
        }
        world.run(world.now() + 40 * MS);
        settle(&mut world, 30 * SECOND);
        let events = world.take_events();
        let delivered = events.iter().filter(|(_, slot, event)| {
            *slot == Slot(4) && matches!(event.decode(), Some(CastEvent::Deliver { .. }))
        });
        assert_eq!(delivered.count(), 20, "{form}");
    }
}

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

/// Windows of 65 members and more: their number is no reason to refuse what a member tells.
#[test]
fn what_many_members_hold_is_read() {
    let named = |at: u32| {
        let id = Id { origin: Member::new(Slot(at % 80), 1), seq: u64::from(at / 80) };
        (id, Bytes::from_static(b"7"))
    };
    let waiting: Vec<_> = (0..80 * 1024).map(named).collect();
    let orders = waiting.iter().map(|(id, _)| (*id, id.seq)).collect();
    let flush = Flush { first: 0, delivered: waiting.clone(), orders, waiting };
    let (from, what) = (Member::new(Slot(1), 1), EpochMessage::Flush(flush));
    let say = UniformMessage::Fast { from, epoch: 1, what };
    let (ty, bytes) = say.encode();
    assert!(UniformMessage::decode(ty, &bytes) == Some(say), "{} bytes", bytes.len());
}

/// A member of three with these records of a journal, which it goes on writing.
fn kept(settings: Settings, records: &[Bytes]) -> Uniform {
    let view = View::first(3, Rules::default());
    Uniform::with_journal(Fast::Sequencer, Member::new(Slot(0), 1), view, settings, records)
}

/// Gives this to the machine: its requests, its journal, and its events.
fn handle(
    member: &mut Uniform,
    journal: &mut Vec<Bytes>,
    now: Time,
    input: Input<Uniform>,
) -> (Vec<CastDelivery>, Vec<CastEvent>) {
    let (mut out, mut told, mut events) = (Vec::new(), Vec::new(), Vec::new());
    member.handle(now, input, &mut out);
    for action in out {
        match action {
            Action::Persist(JournalWrite::Append(record)) => journal.push(record),
            Action::Persist(JournalWrite::Replace(records)) => *journal = records,
            Action::Deliver(tell) => told.push(tell),
            Action::Log(event) => events.extend(event.decode::<CastEvent>()),
            _ => {}
        }
    }
    (told, events)
}

/// A base that cannot be read is told, and nobody goes on as if there had been none.
#[test]
fn a_member_whose_base_cannot_be_read_leaves() {
    let mut journal = Vec::new();
    let mut member = kept(Settings::default(), &[]);
    handle(&mut member, &mut journal, Time(1), Input::Start);
    let cast = Input::Request(CastRequest::Cast(vec![7; 100].into()));
    handle(&mut member, &mut journal, Time(2), cast);
    for broken in [vec![1, 9, 9], {
        let view = [0; 4];
        [&[1][..], &view, &[7; 3]].concat()
    }] {
        let mut records = journal.clone();
        records.push(broken.into());
        let mut back = kept(Settings::default(), &records);
        let (told, events) = handle(&mut back, &mut records, Time(3), Input::Start);
        assert!(events.contains(&CastEvent::UnreadableSnapshot), "{events:?}");
        assert!(told.iter().any(|tell| matches!(tell, CastDelivery::Excluded { .. })), "{told:?}");
        assert!(!told.iter().any(|tell| matches!(tell, CastDelivery::Restored { .. })));
    }
}

/// A state that is too long for a snapshot is told once; the journal stays as it is.
#[test]
fn a_state_that_is_too_long_is_told_once() {
    let settings = Settings { most_state: 1000, journal_bytes: 200, ..Settings::default() };
    let mut journal = Vec::new();
    let mut member = kept(settings, &[]);
    handle(&mut member, &mut journal, Time(1), Input::Start);
    let (mut asked, mut said) = (0, 0);
    for turn in 1..20 {
        let now = Time(turn * 50 * MS);
        let cast = Input::Request(CastRequest::Cast(vec![7; 100].into()));
        handle(&mut member, &mut journal, now, cast);
        let (told, _) = handle(&mut member, &mut journal, now, Input::Timer(Timer::Tick));
        for tell in told {
            let CastDelivery::Checkpoint { position } = tell else { continue };
            asked += 1;
            let state = Input::Request(CastRequest::State(position, vec![7; 2000].into()));
            let (_, events) = handle(&mut member, &mut journal, now, state);
            let long = |event: &&CastEvent| matches!(event, CastEvent::SnapshotTooLong { .. });
            said += events.iter().filter(long).count();
        }
    }
    assert!((2..10).contains(&asked), "{asked}: it grows as much again before it is asked for");
    assert_eq!(said, 1);
    assert!(journal.len() > 19, "all casts are there");
}

/// A journal with a large state becomes as long again before the state is written anew.
#[test]
fn a_large_state_is_not_written_for_each_few_messages() {
    for form in FORMS {
        let layers = format!(
            "{{ layer = \"{form}\", journal_bytes = 20000 }}, \"rejoin\", {{ layer = \"chat\", until = \"2s\", pause = \
             \"4ms\", padding = 1000000 }}"
        );
        let mut world = world(5, UNIT, &layers, Planted::default(), 1);
        world.set_disks(Disks { sync_ns: MS / 10, ..Disks::default() });
        world.run(3 * SECOND);
        let shortened = world.counts().occurrences(CastEvent::JournalShortened);
        assert!((5..=10).contains(&shortened), "{form}: {shortened}");
    }
}
