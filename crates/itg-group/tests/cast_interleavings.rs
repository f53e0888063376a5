//! B-8, B-20: the interleavings of a small group, by search over all states (`casts/explore.rs`).

#![allow(clippy::print_stdout, reason = "a search says how much it has seen")]

use crate::casts::explore::{Form, Scope, State};
use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_group::cast::log::{Log, Settings};
use itg_group::cast::{Mutant, Planted};

/// States of the smoke test, and of the greatest search: a quarter of an hour of an optimised build.
const SMOKE: usize = 20_000;
const FULL: usize = 100_000_000;

const FORMS: [Form; 3] = [Form::Log, Form::Sequencer, Form::Skeen];

/// Explores a scope as far as allowed; returns true if that was all of it.
fn explore(code: &str, name: &str, scope: &Scope, most: usize) -> (usize, bool) {
    let form = scope.form;
    let found = scope.explore(most).unwrap_or_else(|text| panic!("{form:?}, {name}: {text}"));
    let all = if found.all { "all of them" } else { "not all" };
    println!("{code}: {form:?}, {name}: {} states, {} ends, {all}", found.states, found.ends);
    (found.states, found.all)
}

/// Without order, and without view changes: casts, crashes, suspicions.
fn b_8(casts: &[u32], crashes: u32, suspicions: u32) -> (String, Scope) {
    let scope = casts.iter().fold(Scope::of(Form::Log), |scope, at| scope.cast(*at));
    let name = format!(
        "links without order, {} messages, {crashes} crashes, {suspicions} suspicions",
        casts.len()
    );
    (name, Scope { crashes, suspicions, in_order: false, ..scope })
}

#[test]
fn b_8_interleavings_in_part() {
    // The full search is the ignored test: here as many states as a few seconds allow.
    for (name, scope) in [b_8(&[1], 1, 0), b_8(&[1], 0, 1), b_8(&[1, 2], 1, 2)] {
        explore("B-8", &name, &scope, SMOKE);
    }
}

#[test]
#[ignore = "seconds: run it in release"]
fn b_8_every_interleaving_in_full() {
    for (name, scope) in [b_8(&[1], 1, 0), b_8(&[1], 0, 1), b_8(&[1, 2], 0, 0)] {
        assert!(explore("B-8", &name, &scope, FULL).1, "{name}");
    }
}

#[test]
#[ignore = "a quarter of an hour and gigabytes: run it in release"]
fn b_8_two_messages_one_crash_two_suspicions() {
    let (name, scope) = b_8(&[1, 2], 1, 2);
    explore("B-8", &name, &scope, FULL);
    explore("B-8", "the same on links in order", &Scope { in_order: true, ..scope }, FULL);
}

#[test]
fn b_8_schedules_find_a_minority_that_decides() {
    // Any schedule, without searching: two coordinators decide alone.
    let planted = Planted::new(Mutant::HalfIsMajority);
    let settings = Settings { planted, ..Settings::default() };
    let scope = Scope { settings, ..b_8(&[1, 2], 0, 2).1 };
    let found = (0..2000).find_map(|seed| {
        let mut rng = RunSeed(seed).named("schedule");
        let mut state = State::<Log>::new(&scope);
        loop {
            let steps = state.steps(&scope);
            let at = usize::try_from(below(&mut rng, steps.len() as u64)).expect("small");
            if let Err(text) = state.step(&scope, *steps.get(at)?) {
                return Some(text);
            }
        }
    });
    assert!(found.expect("a violation").contains("TO3"));
}

/// Every place of a cast and of a view change: who casts, who asks for the view, who is removed.
fn placements(form: Form) -> impl Iterator<Item = Scope> {
    let places = (0..27).map(|k| (k / 9, k / 3 % 3, k % 3));
    places.map(move |(caster, at, whom)| Scope::of(form).cast(caster).remove(at, whom))
}

/// On links in order: scopes that a debug build explores in seconds, and states that there are at least.
fn small(form: Form) -> Vec<(&'static str, Scope, usize)> {
    let of = || Scope::of(form);
    let mut scopes = vec![
        ("two messages", of().cast(1).cast(2), 1000),
        ("one message, a join, one crash", Scope { crashes: 1, ..of().cast(1).join(0) }, 1000),
        (
            "one message, one crash, one suspicion",
            Scope { crashes: 1, suspicions: 1, ..of().cast(1) },
            17_000,
        ),
        (
            "one message, one removal, one return",
            Scope { returns: 1, ..of().cast(1).remove(0, 2) },
            70_000,
        ),
        ("two messages, one return", Scope { returns: 1, ..of().cast(1).cast(2) }, 150_000),
    ];
    if form != Form::Skeen {
        scopes.push(("three messages", of().cast(0).cast(1).cast(2), 25_000));
        scopes.push(("two messages, one removal", of().cast(1).cast(2).remove(0, 2), 25_000));
    }
    scopes
}

/// Scopes that take an optimised build minutes.
fn large(form: Form) -> Vec<(&'static str, Scope)> {
    let of = || Scope::of(form);
    vec![
        ("three messages", of().cast(0).cast(1).cast(2)),
        ("two messages, one removal", of().cast(1).cast(2).remove(0, 2)),
        (
            "one message, one return, one suspicion",
            Scope { returns: 1, suspicions: 1, ..of().cast(1) },
        ),
        (
            "one message, one crash, two suspicions",
            Scope { crashes: 1, suspicions: 2, ..of().cast(1) },
        ),
        ("one message, a join, one return", Scope { returns: 1, ..of().cast(1).join(0) }),
        (
            "one message, one removal, one crash, one return",
            Scope { crashes: 1, returns: 1, ..of().cast(1).remove(0, 2) },
        ),
        ("one message, two returns", Scope { returns: 2, ..of().cast(1) }),
    ]
}

fn b_20(form: Form) {
    for (name, scope, least) in small(form) {
        let (states, all) = explore("B-20", name, &scope, FULL);
        assert!(all && states >= least, "{name}");
    }
    let mut sum = 0;
    for scope in placements(form) {
        let found = Scope { crashes: 1, ..scope }.explore(FULL).expect("no violation");
        assert!(found.all);
        sum += found.states;
    }
    println!("B-20: {form:?}, one message, one removal, one crash, 27 placements: {sum} states");
    assert!(sum >= 27 * 100);
}

#[test]
fn b_20_every_state_of_the_log() {
    b_20(Form::Log);
}

#[test]
fn b_20_every_state_of_the_uniform_sequencer() {
    b_20(Form::Sequencer);
}

#[test]
fn b_20_every_state_of_the_uniform_skeen() {
    b_20(Form::Skeen);
}

#[test]
#[ignore = "minutes: run it in release"]
fn b_20_every_state_in_full() {
    for form in FORMS {
        for (name, scope) in large(form) {
            explore("B-20", name, &scope, FULL);
        }
        for scope in placements(form) {
            let name = format!("one return, {:?}", scope.asks);
            assert!(explore("B-20", &name, &Scope { returns: 1, ..scope }, FULL).1, "{name}");
        }
    }
}

#[test]
fn b_20_planted_faults_are_found() {
    for (form, mutant, scope) in [
        (Form::Log, Mutant::AckWithoutAdopting, "one message, one removal, one return"),
        (Form::Log, Mutant::Announcer, "one message, one removal, one return"),
        (Form::Log, Mutant::RoundForgotten, "one message, one removal, one return"),
        (Form::Sequencer, Mutant::NoFence, "one message, one crash, one suspicion"),
        (Form::Skeen, Mutant::NoFence, "one message, one crash, one suspicion"),
        (Form::Sequencer, Mutant::BeforeStable, "one message, one crash, one suspicion"),
        (Form::Skeen, Mutant::BeforeStable, "one message, a join, one crash"),
        (Form::Sequencer, Mutant::OrderNotStored, "two messages, one return"),
        (Form::Skeen, Mutant::NoMaxRule, "two messages"),
    ] {
        let (_, found, _) = small(form).into_iter().find(|(name, ..)| *name == scope).expect("one");
        let settings = Settings { planted: Planted::new(mutant), ..Settings::default() };
        let text = Scope { settings, ..found }.explore(20_000).expect_err("a violation");
        assert!(text.starts_with("TO3"), "{form:?} {mutant:?}: {text}");
    }
}
