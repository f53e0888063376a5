//! The ordered log: costs, fail-over, crashes at every event, collection, snapshots, learners.

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

use std::collections::VecDeque;

use crate::casts::chat::ChatEvent;
use crate::casts::order::Order;
use crate::casts::world;
use bytes::Bytes;
use itg_group::cast::log::{Log, LogBody, LogMessage, Settings, Timer};
use itg_group::cast::{CastDelivery, CastEvent, CastRequest, Mutant, Planted};
use itg_group::{Changes, Member, Rules, View, ViewChange};
use itg_process::{
    Action, Dest, Event, Injected, Input, JournalWrite, MS, Machine as _, SECOND, Slot, Time,
};
use itg_sim::{Checker, Disks, Exit, Fault, Observation, ObservedEvent, World};

const UNIT: &str = "kind = \"fixed\"\ndelay = \"1ms\"";

fn log(params: &str) -> String {
    format!("{{ layer = \"log\", trace = true{params} }}")
}

fn ask(world: &mut World, at: u32, ask: CastRequest) {
    let message = ask.message().expect("a message");
    world.with(Slot(at), |process, now| process.send(now, message));
}

fn cast(world: &mut World, at: u32, text: &str) {
    ask(world, at, CastRequest::Cast(text.to_owned().into()));
}

fn is_delivery(event: &Event) -> bool {
    matches!(event.decode(), Some(CastEvent::Deliver { .. }))
}

/// Number of the view that the log puts in force by this event.
fn view(event: &Event) -> Option<u64> {
    match event.decode()? {
        CastEvent::View { no, .. } => Some(no),
        _ => None,
    }
}

/// Time and process of each delivery.
fn deliveries(world: &mut World) -> Vec<(u64, u32)> {
    let events = world.take_events().into_iter();
    events.filter(|(.., event)| is_delivery(event)).map(|(at, slot, _)| (at, slot.0)).collect()
}

fn good(world: &mut World) {
    assert_eq!(world.finish().map(ToString::to_string), None);
}

#[test]
fn b_1_the_log_costs_four_messages_a_member_in_a_good_run() {
    for n in 2..=7_u32 {
        for sender in 0..n {
            // Far from the exchange of how far members are.
            let params = ", status = \"10s\"";
            let mut world = world(n, UNIT, &log(params), Planted::default(), 1);
            world.keep_events();
            world.run(MS);
            cast(&mut world, sender, "one");
            world.run(SECOND);
            let unicasts: u64 = world.networks().map(|(_, _, usage)| usage.frames).sum();
            // The coordinator's own message travels in its proposal.
            let phases = if sender == 0 { 3 } else { 4 };
            assert_eq!(unicasts, phases * u64::from(n - 1), "n {n}, sender {sender}");
            for (at, slot) in deliveries(&mut world) {
                let coordinator = if sender == 0 { 2 } else { 3 };
                let want = if slot == 0 { coordinator } else { coordinator + 1 };
                assert_eq!(at - MS, want * MS, "n {n}, sender {sender}, process {slot}");
            }
            good(&mut world);
        }
    }
}

/// A member of the core that is started again is heard among others that cast all the time: what it had written down,
/// and perhaps told nobody, before it was killed is told then.
#[test]
fn a_core_member_that_is_back_is_heard_among_others() {
    const CAST: u64 = 20 * MS;
    const AFTER: u64 = 200 * MS;
    for late in 0..40 {
        let params = ", rotate = \"20ms\", status = \"20ms\"";
        let mut world = world(3, UNIT, &log(params), Planted::default(), 1);
        world.set_disks(Disks { sync_ns: MS, ..Disks::default() });
        world.keep_events();
        world.fault_at(CAST + late * 100_000, Fault::Crash(Slot(1)));
        world.fault_at(CAST + 50 * MS, Fault::Recover(Slot(1)));
        for at in (MS..SECOND).step_by(2_000_000) {
            world.run(at);
            cast(&mut world, 0, "x");
            if [CAST + MS, AFTER + MS].contains(&at) {
                cast(&mut world, 1, "own");
            }
        }
        let events = world.take_events();
        let after = events.iter().filter(|(at, slot, _)| *at >= AFTER && *slot == Slot(1));
        let after = after.filter_map(|(.., event)| match event.decode()? {
            CastEvent::Cast { origin, seq } => Some((origin, seq)),
            _ => None,
        });
        let after: Vec<_> = after.collect();
        assert_eq!(after.len(), 1, "late {late}");
        let heard = events.iter().any(|(_, slot, event)| match event.decode() {
            Some(CastEvent::Deliver { origin, seq, .. }) => {
                *slot == Slot(0) && (origin, seq) == after[0]
            }
            _ => false,
        });
        assert!(heard, "late {late}: {after:?}");
        good(&mut world);
    }
}

/// A run in which three messages are cast and `crashed` dies behind event `at`; whether `at` was
/// before the end, and events.
fn crash_at(n: u32, crashed: u32, at: u64, seed: u64) -> (bool, u64) {
    let chat = "{ layer = \"chat\", until = \"0s\" }";
    let layers = format!("{}, {chat}", log(", rotate = \"20ms\", status = \"20ms\""));
    let mut world =
        world(n, "kind = \"random\"\nmean = \"1ms\"", &layers, Planted::default(), seed);
    world.check(Order::default());
    for sender in [0, 1, n - 1] {
        cast(&mut world, sender, "m");
    }
    let mut left = at;
    let exit = world.run_while(100 * MS, |_| {
        left = left.saturating_sub(1);
        left > 0
    });
    assert_ne!(exit, Exit::Violated, "{:?}", world.violation());
    let reached = world.now() < 100 * MS;
    world.fault_at(world.now(), Fault::Crash(Slot(crashed)));
    let all: Vec<_> = (0..n).filter(|slot| *slot != crashed).map(Slot).collect();
    world.run(world.now() + MS);
    world.heal(&all);
    let from = world.now();
    while !world.converged() && world.now() < from + 20 * SECOND {
        world.run(world.now() + 20 * MS);
    }
    let found = world.finish().map(ToString::to_string);
    assert_eq!(found, None, "n {n}, process {crashed} crashes behind event {at}, seed {seed}");
    (reached, world.counts().events)
}

fn b_4(n: u32, seeds: u64) {
    let (mut runs, mut events) = (0, 0);
    for seed in 0..seeds {
        // The coordinator, the next one, and a member that casts.
        for crashed in [0, 1, n - 1] {
            for at in 1.. {
                let (reached, count) = crash_at(n, crashed, at, seed);
                runs += 1;
                events += count;
                if !reached {
                    break;
                }
            }
        }
    }
    println!("B-4: {n} processes, {seeds} schedules: {runs} crash points, {events} events");
}

#[test]
fn b_4_crash_at_every_event_of_three() {
    b_4(3, 3);
}

#[test]
fn b_4_crash_at_every_event_of_five() {
    b_4(5, 1);
}

#[test]
#[ignore = "some minutes: run it in release"]
fn b_4_crash_at_every_event_in_full() {
    b_4(3, 50);
    b_4(5, 20);
}

#[test]
fn b_9_the_next_delivery_after_a_crash_of_the_coordinator() {
    // Casts every 5 ms; the coordinator crashes; a detector suspects it after T_rotate.
    const ROTATE: u64 = 30 * MS;
    for n in [3, 5, 7] {
        let mut world = world(n, UNIT, &log(", rotate = \"10s\""), Planted::default(), 1);
        world.keep_events();
        world.check(Order::default());
        for _ in 0..10 {
            cast(&mut world, 1, "x");
            world.run(world.now() + 5 * MS);
        }
        deliveries(&mut world);
        let crash = world.now();
        world.fault_at(crash, Fault::Crash(Slot(0)));
        for slot in 1..n {
            let suspect = Fault::Inject(Slot(slot), "log", Injected::Suspect(Slot(0)));
            world.fault_at(crash + ROTATE, suspect);
        }
        let mut delays = Vec::new();
        world.run(crash + 1);
        for _ in 0..20 {
            let from = world.now();
            cast(&mut world, 2, "y");
            world.run(from + 50 * MS);
            let (at, _) = *deliveries(&mut world).first().expect("a delivery");
            delays.push(at - from);
        }
        assert!(delays[0] <= ROTATE + 4 * MS, "n {n}: {delays:?}");
        // The coordinator that took over stays: there is no cost from the third instance on.
        assert!(delays[2..].iter().all(|delay| *delay <= 4 * MS), "n {n}: {delays:?}");
        good(&mut world);
    }
}

#[test]
fn b_10_a_view_change_among_a_thousand_messages() {
    let mut world = world(5, UNIT, &log(", window = 2000"), Planted::default(), 1);
    world.keep_events();
    world.check(Order::default());
    for k in 0..1000 {
        cast(&mut world, k % 4, "in flight");
        if k == 500 {
            world.fault_at(world.now(), Fault::Crash(Slot(4)));
            let changes = Changes::removal([Member::new(Slot(4), 1)]);
            let change = ViewChange { base: 1, changes, shape: None };
            ask(&mut world, 1, CastRequest::Change(change, "cut".into()));
        }
    }
    world.run(SECOND);
    world.heal(&[]);
    world.run(2 * SECOND);
    good(&mut world);
    let events = world.take_events();
    let views = events.iter().filter_map(|(at, _, event)| Some((*at, view(event)?)));
    let views: Vec<_> = views.collect();
    assert_eq!(views.len(), 4, "everybody alive installs it");
    assert!(views.iter().all(|(at, no)| *at < 200 * MS && *no == 2), "{views:?}");
    let delivered = events.iter().filter(|(.., event)| is_delivery(event)).count();
    assert_eq!(delivered, 4000);
}

#[test]
fn b_11_without_a_majority_nothing_goes_on_and_nothing_breaks() {
    for n in [4, 5] {
        let mut world = world(n, UNIT, &log(""), Planted::default(), 1);
        world.keep_events();
        world.check(Order::default());
        // Half and more are gone for ten seconds: stopped, not dead.
        for slot in 0..n.div_ceil(2) {
            world.fault_at(MS, Fault::Pause(Slot(slot), 10 * SECOND));
        }
        world.run(2 * MS);
        cast(&mut world, n - 1, "wait");
        world.run(10 * SECOND);
        assert_eq!(deliveries(&mut world), [], "n {n}: a minority decides nothing");
        world.heal(&[]);
        world.run(20 * SECOND);
        assert_eq!(deliveries(&mut world).len(), n as usize);
        good(&mut world);
    }
}

/// No member keeps more decisions and messages than it may; and which of both was largest.
struct StoreBounds {
    decisions: u64,
    waiting: u64,
}

impl Checker for StoreBounds {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        if let ObservedEvent::Event(event) = seen.what
            && let Some(CastEvent::Kept { decisions, waiting, .. }) = event.decode()
            && (decisions > self.decisions || waiting > self.waiting)
        {
            return Err(format!("{decisions} decisions kept, {waiting} messages wait"));
        }
        Ok(())
    }
}

/// Many messages; a member stops for this many milliseconds and comes back.
fn b_12(messages: u64, stopped_ms: u64) {
    let chat = "{ layer = \"chat\", until = \"0s\" }";
    let layers = format!("{}, {chat}", log(", retain = 100, window = 4000, status = \"5ms\""));
    let mut world = world(3, "kind = \"fixed\"\ndelay = \"10us\"", &layers, Planted::default(), 1);
    world.check(StoreBounds { decisions: 101, waiting: 3 * 4000 });
    world.fault_at(SECOND / 10, Fault::Partition(vec![0, 0, 1]));
    world.fault_at(SECOND / 10 + stopped_ms * MS, Fault::Partition(Vec::new()));
    for _ in 0..messages.div_ceil(1000) {
        (0..1000).for_each(|_| cast(&mut world, 0, "0123456789"));
        world.run(world.now() + MS);
    }
    assert!(world.now() > SECOND / 10 + stopped_ms * MS, "the member is back before the end");
    world.run(world.now() + SECOND);
    good(&mut world);
    let snapshots = world.counts().occurrences(ChatEvent::SnapshotUsed);
    assert!(snapshots > 0, "the member comes back by a snapshot");
}

#[test]
fn b_12_memory_is_bounded_and_a_stopped_member_returns_by_snapshot() {
    b_12(300_000, 150);
}

#[test]
#[ignore = "10 million messages: run it in release"]
fn b_12_in_full() {
    b_12(10_000_000, 9000);
}

#[test]
fn b_17_learners_follow_along_the_tree() {
    let n = 1005;
    let mut world = world(n, UNIT, &log(", status = \"1s\""), Planted::default(), 1);
    world.keep_events();
    world.check(Order::default());
    // The last one is a learner: what it casts goes to the core.
    for sender in [0, 3, n - 1] {
        cast(&mut world, sender, "to all");
    }
    world.run(SECOND / 2);
    let delivered = deliveries(&mut world);
    assert_eq!(delivered.len(), 3 * n as usize);
    let core = |slot: u32| slot < 5;
    // Height of a 4-ary tree of 1005: levels of 1, 4, 16, 64, 256, 1024.
    let height = 6;
    let core_at: Vec<u64> = delivered.iter().filter(|(_, s)| core(*s)).map(|(at, _)| *at).collect();
    let (first, last) = (core_at.iter().min().expect("some"), core_at.iter().max().expect("some"));
    for (at, slot) in delivered.iter().filter(|(_, slot)| !core(*slot)) {
        assert!(at > first, "learner {slot} is ahead of the core");
        assert!(*at <= last + height * MS, "learner {slot} delivers at {at}, the core by {last}");
    }
    good(&mut world);
}

#[test]
fn a_view_change_that_two_propose_counts_once_mutant_7() {
    let views = |planted| {
        let mut world = world(4, UNIT, &log(""), planted, 1);
        world.keep_events();
        for proposer in [0, 1] {
            let changes = Changes::removal([Member::new(Slot(3), 1)]);
            let change = ViewChange { base: 1, changes, shape: None };
            ask(&mut world, proposer, CastRequest::Change(change, "".into()));
        }
        world.run(SECOND / 2);
        let events = world.take_events();
        let of_first = events.iter().filter(|(_, slot, _)| slot.0 == 0);
        of_first.filter_map(|(.., event)| view(event)).collect::<Vec<_>>()
    };
    assert_eq!(views(Planted::default()), [2]);
    assert_eq!(views(Planted::new(Mutant::NoBaseCheck)), [2, 3], "the fault is seen");
}

#[test]
fn what_all_have_is_collected_and_nothing_else_mutant_21() {
    let run = |planted| {
        let chat = "{ layer = \"chat\", until = \"2s\", pause = \"5ms\" }";
        let layers = format!("{}, {chat}", log(", status = \"10ms\", rotate = \"50ms\""));
        let mut world = world(5, "kind = \"random\"\nmean = \"1ms\"", &layers, planted, 3);
        world.check(Order::of(0, true));
        // One after the other is cut off for a while.
        for k in 0..5_u32 {
            let at = u64::from(k) * 300 * MS;
            let apart = (0..5).map(|slot| u8::from(slot == k)).collect();
            world.fault_at(at, Fault::Partition(apart));
            world.fault_at(at + 200 * MS, Fault::Partition(Vec::new()));
        }
        world.run(2 * SECOND);
        world.heal(&[]);
        world.run(5 * SECOND);
        world.finish().map(ToString::to_string)
    };
    assert_eq!(run(Planted::default()), None);
    let found = run(Planted::new(Mutant::GcIgnoresOne)).expect("a decision too few");
    assert!(found.contains("is collected"), "{found}");
}

/// Gives a log this input; returns the messages that it sends, with their receivers.
fn sends(log: &mut Log, input: Input<Log>) -> Vec<(Vec<Slot>, LogMessage)> {
    sends_at(log, Time::ZERO, input)
}

/// The same at this time.
fn sends_at(log: &mut Log, now: Time, input: Input<Log>) -> Vec<(Vec<Slot>, LogMessage)> {
    let mut out = Vec::new();
    log.handle(now, input, &mut out);
    let sent = out.into_iter().filter_map(|action| match action {
        Action::Send(Dest::One(slot), say) => Some((vec![slot], say)),
        Action::Send(Dest::Many(slots), say) => Some((slots.to_vec(), say)),
        _ => None,
    });
    sent.collect()
}

/// No member waits for a timer to say how far it is while much is decided.
#[test]
fn what_all_have_is_collected_under_load_before_any_timer() {
    let view = View::first(3, Rules::default());
    let log = |slot| Log::new(Member::new(Slot(slot), 1), view.clone(), Settings::default());
    let mut logs: Vec<Log> = (0..3).map(log).collect();
    let mut most = 0;
    for burst in 0..300 {
        let cast = || Input::Request(CastRequest::Cast(vec![7; 1000].into()));
        let mut queue: VecDeque<_> = (0..60).map(|_| (Slot(burst % 3), cast())).collect();
        while let Some((at, input)) = queue.pop_front() {
            for (to, say) in sends(&mut logs[at.index()], input) {
                queue.extend(to.into_iter().map(|to| (to, Input::Message(at, say.clone()))));
            }
        }
        most = logs.iter().map(Log::kept).max().unwrap_or(0).max(most);
    }
    for log in &logs {
        assert_eq!(log.position(), 18_000);
        assert!(most < 60 && log.instance() > 300, "{most} kept of {}", log.instance());
    }
}

/// A learner sends again by the clock what it has cast and what is not decided, not for each
/// decision.
#[test]
fn a_late_learner_sends_its_own_again_once_a_period() {
    let rules = Rules { core: 3, ..Rules::default() };
    let view = View::first(8, rules);
    let settings = Settings::default();
    let log = |slot| Log::new(Member::new(Slot(slot), 1), view.clone(), settings);
    let (mut core, mut learner) = ([log(0), log(1), log(2)], log(3));
    let again = |sent: &[(Vec<Slot>, LogMessage)]| {
        sent.iter().filter(|(_, say)| matches!(say.what, LogBody::Data(_))).count()
    };
    // Its cast is lost.
    let cast = |len: usize| Input::Request(CastRequest::Cast(vec![7; len].into()));
    assert_eq!(again(&sends(&mut learner, cast(10))), 1);
    let now = Time::ZERO + 2 * settings.rotate;
    let mut heard = 0;
    for _ in 0..40 {
        let mut queue: VecDeque<_> = (0..60).map(|_| (Slot(0), cast(1000))).collect();
        while let Some((at, input)) = queue.pop_front() {
            let sent = match at.index() {
                at @ 0..3 => sends(&mut core[at], input),
                3 => {
                    let sent = sends_at(&mut learner, now, input);
                    assert_eq!(again(&sent), 0, "without a timer");
                    heard += 1;
                    sent
                }
                // Other learners are not asked for anything.
                _ => Vec::new(),
            };
            for (to, say) in sent {
                queue.extend(to.into_iter().map(|to| (to, Input::Message(at, say.clone()))));
            }
        }
    }
    assert!(heard > 40 && learner.position() == 2400, "{heard}, {}", learner.position());
    assert_eq!(again(&sends_at(&mut learner, now, Input::Timer(Timer::Status))), 1);
}

/// Process 0 decides its own exclusion with the vote of process 1 while process 2 is dead, and what
/// it announces is lost: process 1 gets the decision from it alone, in either incarnation.
#[test]
fn the_excluded_answer_for_what_was_decided() {
    let me = |slot| Member::new(Slot(slot), 1);
    let view = View::first(3, Rules::default());
    for born_again in [false, true] {
        let log = |slot| Log::new(me(slot), view.clone(), Settings::default());
        let (mut zero, mut one) = (log(0), log(1));
        let change = ViewChange { base: 1, changes: Changes::removal([me(0)]), shape: None };
        let to_one = |sent: Vec<(Vec<Slot>, LogMessage)>| {
            let mine = sent.into_iter().filter(|(to, _)| to.contains(&Slot(1)));
            mine.map(|(_, say)| Input::Message(say.from.slot, say)).collect::<Vec<_>>()
        };
        let asked = sends(&mut zero, Input::Request(CastRequest::Change(change, Bytes::new())));
        let mut votes = Vec::new();
        for input in to_one(asked) {
            votes.extend(sends(&mut one, input));
        }
        for (_, say) in votes {
            // Lost: what process 0 tells of the decision.
            sends(&mut zero, Input::Message(Slot(1), say));
        }
        assert!(!zero.is_member(), "process 0 has decided");
        assert_eq!(one.view().no(), 1, "process 1 does not know it");
        if born_again {
            sends(&mut zero, Input::Request(CastRequest::Rejoin(Member::new(Slot(0), 2))));
        }
        let mut answers = Vec::new();
        for (to, say) in sends(&mut one, Input::Timer(Timer::Status)) {
            assert!(to.contains(&Slot(0)));
            answers.extend(sends(&mut zero, Input::Message(Slot(1), say)));
        }
        for input in to_one(answers) {
            sends(&mut one, input);
        }
        assert_eq!((one.view().no(), one.view().len()), (2, 2), "born again: {born_again}");
    }
}

/// A member that is alone, its journal, and what it has delivered: numbers of its own messages, and checkpoints.
struct Alone {
    log: Log,
    journal: Vec<Bytes>,
    numbers: Vec<u64>,
    checkpoints: Vec<u64>,
}

impl Alone {
    fn start(journal: Vec<Bytes>) -> Self {
        let (me, view) = (Member::born(Slot(0), 1), View::first(1, Rules::default()));
        let settings = Settings { journal_bytes: 2000, ..Settings::default() };
        let log = Log::with_journal(me, view, settings, &journal);
        let mut alone = Self { log, journal, numbers: Vec::new(), checkpoints: Vec::new() };
        alone.step(Input::Start);
        alone
    }

    fn step(&mut self, input: Input<Log>) {
        let mut out = Vec::new();
        self.log.handle(Time(MS), input, &mut out);
        for action in out {
            match action {
                Action::Persist(JournalWrite::Append(record)) => self.journal.push(record),
                Action::Persist(JournalWrite::Replace(records)) => self.journal = records,
                Action::Deliver(CastDelivery::Message { id, .. }) => self.numbers.push(id.seq),
                Action::Deliver(CastDelivery::Checkpoint { position }) => {
                    self.checkpoints.push(position);
                }
                _ => {}
            }
        }
    }

    fn cast(&mut self) {
        self.step(Input::Request(CastRequest::Cast(vec![7; 300].into())));
    }
}

/// A state that comes late: messages that were decided meanwhile are in the shorter journal as decisions alone.
#[test]
fn a_number_is_used_once_also_after_a_journal_was_shortened() {
    let mut alone = Alone::start(Vec::new());
    while alone.checkpoints.is_empty() {
        alone.cast();
        assert!(alone.numbers.len() < 1000, "its journal becomes too long");
    }
    (0..3).for_each(|_| alone.cast());
    let (before, position) = (alone.journal.len(), alone.checkpoints[0]);
    alone.step(Input::Request(CastRequest::State(position, Bytes::from_static(b"state"))));
    assert!(alone.journal.len() < before, "it is shorter");
    let used = alone.numbers.iter().copied().max().expect("it has delivered");
    let mut again = Alone::start(alone.journal);
    again.numbers.clear();
    again.cast();
    assert_eq!(again.numbers, [used + 1], "behind {used}");
}
