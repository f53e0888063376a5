//! Peers and drivers that do anything at all: no panic, no growth, an end in time.
#![allow(missing_docs, reason = "a test program")]

use std::collections::BTreeSet;

use crate::harness::{check_receiver, check_sender_order, log_summary};
use crate::messages::any_message;
use crate::samples::{counts, hello, measure, reply, totals};
use itg_core::flow::FlowSpec;
use itg_session::{
    ClockReading, MAGIC, Message, OPEN_BATCH, OpenReply, ReceiverConfig, ReceiverInput,
    ReceiverOutput, ReceiverSession, SenderConfig, SenderInput, SenderOutput, SenderSession,
    Timeouts, VERSION, decode,
};
use proptest::prelude::*;

/// Most flows that the receiver under test takes.
const MAX_FLOWS: u32 = 6;
/// Flows of the sender under test.
const FLOWS: u32 = 5;
/// Timer events after which a machine that hears nothing more must have ended.
const TIMERS: usize = 60;

/// Something happens.
#[derive(Clone, Debug)]
enum Step {
    /// The input that a well-behaved peer or driver would give next.
    Proper,
    /// The peer says anything.
    Message(Message),
    /// The peer sends bytes.
    Bytes(Vec<u8>),
    /// The clock reaches the deadline.
    Timer,
    /// The driver says anything, about this flow.
    Driver(u8, u32),
}

fn any_steps() -> impl Strategy<Value = Vec<(u64, Step)>> {
    let step = prop_oneof![
        12 => Just(Step::Proper),
        1 => any_message().prop_map(Step::Message),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Bytes),
        1 => Just(Step::Timer),
        2 => (0u8..8, 0u32..8).prop_map(|(what, flow)| Step::Driver(what, flow)),
    ];
    let wait = prop_oneof![20 => 0u64..500_000_000, 1 => any::<u64>()];
    prop::collection::vec((wait, step), 0..120)
}

fn receiver() -> ReceiverSession {
    let config = ReceiverConfig {
        secret: true,
        turns: false,
        program: "p".to_owned(),
        host: "h".to_owned(),
        boot_id: "b".to_owned(),
        max_flows: MAX_FLOWS,
        timeouts: Timeouts::default(),
    };
    ReceiverSession::new(config, 0)
}

fn sender() -> SenderSession {
    SenderSession::new(SenderConfig {
        run: "0".repeat(32),
        seed: 1,
        program: "p".to_owned(),
        host: "h".to_owned(),
        boot_id: "b".to_owned(),
        flows: (0..FLOWS).map(FlowSpec::new).collect(),
        recv_log: None,
        prove: None,
        burst: 2,
        asked: false,
        timeouts: Timeouts::default(),
    })
}

/// Next input that a proper sender and a proper driver would give a receiver with these outputs.
fn next_for_receiver(said: &[ReceiverOutput], turn: usize) -> ReceiverInput {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let has = |f: fn(&O) -> bool| said.iter().any(f);
    let opens: Vec<u32> =
        said.iter().filter_map(|o| if let O::Open(s) = o { Some(s.id) } else { None }).collect();
    let answered = said.iter().filter(|o| matches!(o, O::Send(M::Opened { .. }))).count();
    let ended: Vec<u32> = said
        .iter()
        .filter_map(|o| if let O::End { totals } = o { Some(totals.flow) } else { None })
        .collect();
    let pick = |flows: &[u32]| flows[turn % flows.len()];
    if !has(|o| matches!(o, O::Accept { .. })) {
        return I::Message(hello(MAX_FLOWS));
    }
    if has(|o| matches!(o, O::CloseLog)) {
        return I::LogClosed(Some(log_summary()));
    }
    match (opens.is_empty(), answered, has(|o| matches!(o, O::Start { .. }))) {
        (true, ..) => I::Message(M::Open { flows: (0..4).map(FlowSpec::new).collect() }),
        (false, 0, _) => I::FlowOpened(reply(pick(&opens))),
        (false, 1, false) if turn.is_multiple_of(3) => {
            I::Message(M::Open { flows: (4..6).map(FlowSpec::new).collect() })
        }
        (false, _, false) if turn % 3 == 1 => I::FlowOpened(reply(pick(&opens))),
        (false, _, false) => I::Message(M::Start { epoch_unix_ns: 0 }),
        (false, _, true) => match turn % 4 {
            0 => I::Message(M::Ping { n: 0, sent: ClockReading::default(), previous: None }),
            1 if !ended.is_empty() => I::FlowCounted(counts(pick(&ended))),
            2 if ended.len() == opens.len() => I::Message(M::Bye),
            _ => {
                let left: Vec<u32> = opens.iter().copied().filter(|f| !ended.contains(f)).collect();
                match left.as_slice() {
                    [] => {
                        I::Message(M::Ping { n: 0, sent: ClockReading::default(), previous: None })
                    }
                    left => I::Message(M::FlowEnded(totals(pick(left)))),
                }
            }
        },
    }
}

fn driver_of_receiver(what: u8, flow: u32) -> ReceiverInput {
    match what {
        0 | 1 => ReceiverInput::FlowOpened(reply(flow)),
        2 => ReceiverInput::FlowOpened(OpenReply { flow, result: Err("no".to_owned()) }),
        3 if flow > 5 => ReceiverInput::Turned(Ok(Vec::new())),
        3 => ReceiverInput::FlowMeasured(measure(flow)),
        4 | 5 => ReceiverInput::FlowCounted(counts(flow)),
        6 if flow > 5 => ReceiverInput::Shutdown("over".to_owned()),
        7 if flow > 5 => ReceiverInput::Lost("gone".to_owned()),
        _ => ReceiverInput::LogClosed(None),
    }
}

/// Next input that a proper receiver and a proper driver would give a sender with these outputs.
fn next_for_sender(said: &[SenderOutput], turn: usize) -> SenderInput {
    use {Message as M, SenderInput as I, SenderOutput as O};
    let begun = said.iter().any(|o| matches!(o, O::Begin));
    let last = said.iter().rev().find_map(|o| match o {
        O::Send(M::Ping { .. }) | O::Clock { .. } | O::Measured(_) | O::Counted { .. } => None,
        other => Some(other),
    });
    let ended = |flow| said.iter().any(|o| matches!(o, O::Send(M::FlowEnded(t)) if t.flow == flow));
    match last {
        None => I::Connected,
        Some(O::Send(M::Hello { .. })) => I::Message(M::Welcome {
            magic: MAGIC,
            version: VERSION,
            program: "p".to_owned(),
            host: "h".to_owned(),
            boot_id: "b".to_owned(),
            control_timeout_ns: 5_000_000_000,
        }),
        Some(O::Send(M::Open { flows })) => {
            I::Message(M::Opened { flows: flows.iter().map(|f| reply(f.id)).collect() })
        }
        Some(O::Ready { .. }) => I::Armed { epoch_unix_ns: 0 },
        Some(O::Send(M::Start { .. })) => I::Message(M::Started),
        Some(O::Send(M::Bye)) => I::Message(M::ByeAck { log: Some(log_summary()) }),
        _ if begun => {
            let flow = u32::try_from(turn % FLOWS as usize).expect("small");
            let counted =
                said.iter().any(|o| matches!(o, O::Counted { totals, .. } if totals.flow == flow));
            match (ended(flow), counted) {
                (false, _) => I::FlowEnded(totals(flow)),
                (true, false) => I::Message(M::FlowCounted(counts(flow))),
                (true, true) => I::Timer,
            }
        }
        _ => I::Timer,
    }
}

fn driver_of_sender(what: u8, flow: u32) -> SenderInput {
    match what {
        0..=3 => SenderInput::FlowEnded(totals(flow)),
        4 => SenderInput::Armed { epoch_unix_ns: 1 },
        5 => SenderInput::Connected,
        6 if flow > 5 => SenderInput::Stop { reason: "interrupted".to_owned() },
        7 if flow > 5 => SenderInput::Lost("gone".to_owned()),
        _ => SenderInput::Timer,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_receiver_survives_anything(steps in any_steps()) {
        let mut session = receiver();
        let (mut now, mut said) = (0u64, Vec::new());
        for (turn, (wait, step)) in steps.into_iter().enumerate() {
            now = now.saturating_add(wait);
            let input = match step {
                Step::Proper => next_for_receiver(&said, turn),
                Step::Message(message) => ReceiverInput::Message(message),
                Step::Bytes(bytes) => match decode(&bytes) {
                    Ok(message) => ReceiverInput::Message(message),
                    Err(error) => ReceiverInput::Garbage(error),
                },
                Step::Timer => {
                    now = now.max(session.deadline().unwrap_or(0));
                    ReceiverInput::Timer
                }
                Step::Driver(what, flow) => driver_of_receiver(what, flow),
            };
            let (before, was_over) = (said.len(), session.is_over());
            session.handle(now, input, &mut said);
            prop_assert!(said.len() - before <= OPEN_BATCH, "too many outputs for one input");
            prop_assert!(!was_over || said.len() == before, "words after the end");
        }
        for _ in 0..TIMERS {
            let Some(at) = session.deadline() else { break };
            now = now.max(at);
            session.handle(now, ReceiverInput::Timer, &mut said);
            let moved = session.deadline().is_none_or(|next| next > now || now == u64::MAX);
            prop_assert!(moved, "the deadline does not move on");
        }
        prop_assert!(session.is_over(), "no end in time");
        let words: Vec<_> = said.iter().collect();
        prop_assert_eq!(check_receiver(&words), Ok(()));
        let open: BTreeSet<u32> = said
            .iter()
            .filter_map(|o| if let ReceiverOutput::Open(spec) = o { Some(spec.id) } else { None })
            .collect();
        prop_assert!(open.len() <= MAX_FLOWS as usize, "more flows than allowed");
        let ends = said.iter().filter(|o| matches!(o, ReceiverOutput::Disconnect { .. })).count();
        prop_assert_eq!(ends, 1);
    }

    #[test]
    fn a_sender_survives_anything(steps in any_steps()) {
        let mut session = sender();
        let (mut now, mut said) = (0u64, Vec::new());
        session.handle(now, SenderInput::Connected, &mut said);
        for (turn, (wait, step)) in steps.into_iter().enumerate() {
            now = now.saturating_add(wait);
            let input = match step {
                Step::Proper => next_for_sender(&said, turn),
                Step::Message(message) => SenderInput::Message(message),
                Step::Bytes(bytes) => match decode(&bytes) {
                    Ok(message) => SenderInput::Message(message),
                    Err(error) => SenderInput::Garbage(error),
                },
                Step::Timer => {
                    now = now.max(session.deadline().unwrap_or(0));
                    SenderInput::Timer
                }
                Step::Driver(what, flow) => driver_of_sender(what, flow),
            };
            let (before, was_over) = (said.len(), session.is_over());
            session.handle(now, input, &mut said);
            prop_assert!(said.len() - before <= FLOWS as usize + 3, "too many outputs");
            prop_assert!(!was_over || said.len() == before, "words after the end");
        }
        for _ in 0..TIMERS {
            let Some(at) = session.deadline() else { break };
            now = now.max(at);
            session.handle(now, SenderInput::Timer, &mut said);
            let moved = session.deadline().is_none_or(|next| next > now || now == u64::MAX);
            prop_assert!(moved, "the deadline does not move on");
        }
        prop_assert!(session.is_over(), "no end in time");
        let words: Vec<_> = said.iter().collect();
        prop_assert_eq!(check_sender_order(FLOWS as usize, &words), Ok(()));
        let end = |o: &SenderOutput| matches!(o, SenderOutput::Done | SenderOutput::Failed(_));
        prop_assert_eq!(said.iter().filter(|o| end(o)).count(), 1);
    }
}
