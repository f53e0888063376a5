//! Both machines against each other, over thousands of seeded sessions.

use crate::harness::{Answer, Bug, Cut, MS, Output, Plan, SECOND, check, run, script};
use itg_session::{ErrorKind, Phase, SenderOutput, SessionError};

/// Sessions drawn in one test run.
const SEEDS: u64 = 10_000;

fn hold(plan: &Plan) {
    let trace = run(plan, None);
    if let Err(rule) = check(plan, &trace) {
        panic!("{rule}\n{plan:?}\n{}", script(&trace));
    }
}

/// Outcome of a session at the sender, and the numbers of flows it counted (with counts, without).
fn outcome(plan: &Plan) -> (Option<SessionError>, usize, usize) {
    let trace = run(plan, None);
    check(plan, &trace).unwrap_or_else(|rule| panic!("{rule}\n{}", script(&trace)));
    let (mut error, mut both, mut alone) = (None, 0, 0);
    for (_, output) in trace.outputs {
        match output {
            Output::Sender(SenderOutput::Failed(e)) => error = Some(e),
            Output::Sender(SenderOutput::Counted { counts: Some(_), .. }) => both += 1,
            Output::Sender(SenderOutput::Counted { counts: None, .. }) => alone += 1,
            _ => {}
        }
    }
    (error, both, alone)
}

#[test]
fn drawn_sessions_keep_the_rules() {
    for seed in 0..SEEDS {
        hold(&Plan::draw(seed));
    }
}

#[test]
fn drawn_sessions_cover_every_outcome() {
    let mut seen = std::collections::BTreeMap::<String, u32>::new();
    for seed in 0..SEEDS / 5 {
        let trace = run(&Plan::draw(seed), None);
        let end = match trace.outputs.iter().rev().find_map(|(_, o)| match o {
            Output::Sender(o) => Some(o),
            Output::Receiver(_) => None,
        }) {
            Some(SenderOutput::Failed(e)) => format!("{:?} {:?}", e.kind, e.phase),
            other => format!("{other:?}"),
        };
        *seen.entry(end).or_default() += 1;
    }
    for want in [
        "Some(Done)",
        "Refused Greet",
        "Refused Open",
        "Refused Run",
        "Vanished Greet",
        "Vanished Open",
        "Vanished Arm",
        "Vanished Run",
        "Vanished Leave",
        "Timeout Greet",
        "Timeout Arm",
        "Timeout Run",
        "Interrupted Greet",
        "Interrupted Open",
        "Interrupted Arm",
    ] {
        assert!(seen.contains_key(want), "no session ends with {want}: {seen:?}");
    }
}

#[test]
fn a_connection_may_die_at_any_message() {
    for flows in [1, 3, 70] {
        let clean = Plan::clean(flows as u64, flows);
        let messages = run(&clean, None).messages;
        hold(&clean);
        for message in 0..messages {
            for (sender_learns, receiver_learns) in
                [(true, true), (true, false), (false, true), (false, false)]
            {
                let cut = Some(Cut { message, sender_learns, receiver_learns });
                hold(&Plan { cut, ..clean.clone() });
            }
        }
    }
}

#[test]
fn planted_bugs_are_found() {
    let clean = || (0..20).map(|seed| Plan::clean(seed, 3));
    let drawn = || (0..500).map(Plan::draw);
    for (bug, plans, rule) in [
        (Bug::SwallowFlowCounted, clean().collect::<Vec<_>>(), "a harmless session fails"),
        (Bug::SwallowCounted, clean().collect(), "Done though a flow is not Counted"),
        (Bug::SwallowAbandon, drawn().collect(), "are left open at the receiver"),
        (Bug::SwallowCloseLog, drawn().collect(), "a log is left open"),
        (Bug::DeafSender, drawn().collect(), "the sender never ends"),
        (Bug::DeafReceiver, drawn().collect(), "the receiver never ends"),
    ] {
        let found: Vec<_> =
            plans.iter().filter_map(|plan| check(plan, &run(plan, Some(bug))).err()).collect();
        assert!(found.iter().any(|f| f.contains(rule)), "{bug:?} is not found: {found:?}");
    }
}

/// A driver that does not do one of its parts: what becomes of a session of three flows.
#[test]
fn each_missing_answer_has_its_deadline() {
    let never: Answer = None;
    let plan = |change: fn(&mut Plan, Answer)| {
        let mut plan = Plan::clean(1, 3);
        change(&mut plan, never);
        plan
    };
    for (what, plan, kind, phase, text, both, alone) in [
        (
            "arm",
            plan(|p, a| p.arm_answer = a),
            ErrorKind::Timeout,
            Phase::Arm,
            "the data sockets were not ready within 10s",
            0,
            0,
        ),
        (
            "open",
            plan(|p, a| p.flows[1].open_answer = a),
            ErrorKind::Refused,
            Phase::Open,
            "the receiver refused: the receiver could not open 1 flow within 8s",
            0,
            0,
        ),
        (
            "count",
            plan(|p, a| p.flows[1].count_answer = a),
            ErrorKind::Timeout,
            Phase::Run,
            "the receiver has not counted flow 2 within 10s of its end",
            2,
            1,
        ),
        (
            "stop",
            plan(|p, a| {
                p.flows[0].runs = a;
                p.flows[0].stop_answer = a;
                p.stop_at = Some(3 * SECOND);
            }),
            ErrorKind::Timeout,
            Phase::Run,
            "1 flow has not stopped within 5s",
            2,
            0,
        ),
        (
            "log",
            plan(|p, a| p.log_answer = a),
            ErrorKind::Refused,
            Phase::Leave,
            "the receiver refused: the receiver could not close its log within 4s",
            3,
            0,
        ),
        (
            "vanish and stop",
            plan(|p, a| {
                p.flows[0].runs = a;
                p.flows[0].stop_answer = a;
                p.flows[1].runs = Some(30 * SECOND);
                p.stop_at = Some(60 * SECOND);
                // Behind the 32 messages that compare the clocks, the set-up, and the end of flow 3.
                p.cut = Some(Cut { message: 46, sender_learns: false, receiver_learns: false });
            }),
            ErrorKind::Vanished,
            Phase::Run,
            "the receiver has not been heard of for 30s; 1 flow has not reported an end within 5s",
            1,
            1,
        ),
    ] {
        let (error, with, without) = outcome(&plan);
        let error = error.unwrap_or_else(|| panic!("{what}: no failure"));
        assert_eq!((error.kind, error.phase, error.text.as_str()), (kind, phase, text), "{what}");
        assert_eq!((with, without), (both, alone), "{what}: flows counted");
    }
}

#[test]
fn a_late_count_is_forgiven_and_the_session_still_fails() {
    let mut plan = Plan::clean(1, 3);
    plan.flows[0].count_answer = Some(11 * SECOND);
    plan.flows[1].runs = Some(30 * SECOND);
    let (error, both, alone) = outcome(&plan);
    assert_eq!(error.map(|e| e.exit_code()), Some(4));
    assert_eq!((both, alone), (2, 1));
}

#[test]
fn stopping_ends_flows_early_and_counts_them() {
    let mut plan = Plan::clean(1, 3);
    for flow in &mut plan.flows {
        flow.runs = Some(3600 * SECOND);
    }
    plan.stop_at = Some(10 * SECOND);
    assert_eq!(outcome(&plan), (None, 3, 0));
}

#[test]
fn a_flow_without_socket_does_not_disturb_the_others() {
    let mut plan = Plan::clean(1, 3);
    plan.flows[1].fails_early = true;
    assert_eq!(outcome(&plan), (None, 3, 0));
}

#[test]
fn partly_refused_flows_leave_the_rest_running() {
    let mut plan = Plan::clean(1, 130);
    for flow in plan.flows.iter_mut().step_by(2) {
        flow.opens = false;
    }
    assert_eq!(outcome(&plan), (None, 65, 0));
    plan.flows.truncate(1);
    let (error, ..) = outcome(&plan);
    let text = "the receiver refused flow 1: port in use (while opening flows)";
    assert_eq!(error.map(|e| e.to_string()).as_deref(), Some(text));
}

#[test]
fn a_slow_network_is_no_vanished_peer() {
    for delay_ns in [0, 100 * MS, SECOND] {
        assert_eq!(outcome(&Plan { delay_ns, ..Plan::clean(1, 3) }), (None, 3, 0));
    }
}
