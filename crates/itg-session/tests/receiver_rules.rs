//! Violations of the receiver's rules, and its answers to them.
#![allow(missing_docs, reason = "a test program")]

use crate::samples::{SECOND, counts, hello, measure, no, open, reply, totals, welcome};
use itg_session::{
    ClockReading, CodecError, Message, ReceiverConfig, ReceiverInput, ReceiverOutput,
    ReceiverSession, Timeouts,
};

fn ping(n: u64, unix_ns: u64) -> Message {
    Message::Ping { n, sent: ClockReading { unix_ns, monotonic_ns: 0 }, previous: None }
}

/// A good greeting with one thing changed.
fn hello_but(change: impl FnOnce(&mut [u8; 4], &mut u16, &mut String, &mut String)) -> Message {
    let mut message = hello(1);
    if let Message::Hello { magic, version, run, host, .. } = &mut message {
        change(magic, version, run, host);
    }
    message
}

fn config(secret: bool) -> ReceiverConfig {
    ReceiverConfig {
        secret,
        turns: false,
        program: "itg-recv 0.1.0".to_owned(),
        host: "b".to_owned(),
        boot_id: "b1".to_owned(),
        max_flows: 100,
        timeouts: Timeouts::default(),
    }
}

fn receiver() -> ReceiverSession {
    ReceiverSession::new(config(true), 0)
}

#[test]
fn a_receiver_proves_what_it_has_and_before_flows_alone() {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let prove = || I::Message(M::Prove { nonce: [7; 32] });
    let said = receiver_after(vec![I::Message(hello(1)), prove()]);
    assert_eq!(said, [O::Prove { nonce: [7; 32] }]);
    let mut session = ReceiverSession::new(config(false), 0);
    let mut said = Vec::new();
    [I::Message(hello(1)), prove()]
        .into_iter()
        .for_each(|input| session.handle(1, input, &mut said));
    let refused = said.iter().any(|output| {
        matches!(output, O::Send(M::Refuse { reason }) if reason.contains("--secret-file"))
    });
    assert!(refused, "{said:?}");
    let late = [running(), vec![prove()]].concat();
    assert!(matches!(&receiver_after(late)[..], [O::Send(M::Refuse { .. }), ..]));
}

/// Feeds a receiver, one event each millisecond; what it says to the last one.
fn receiver_after(inputs: Vec<ReceiverInput>) -> Vec<ReceiverOutput> {
    let (mut session, mut said) = (receiver(), Vec::new());
    for (ms, input) in (1..).zip(inputs) {
        said.clear();
        session.handle(ms * 1_000_000, input, &mut said);
    }
    said
}

/// Events that bring a receiver to a running session with flows 1 and 2; flow 3 is refused.
fn running() -> Vec<ReceiverInput> {
    use ReceiverInput as I;
    vec![
        I::Message(hello(4)),
        I::Message(open([1, 2, 3])),
        I::FlowOpened(reply(1)),
        I::FlowOpened(reply(2)),
        I::FlowOpened(no(3, "port in use")),
        I::Message(Message::Start { epoch_unix_ns: 7 }),
    ]
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_receiver_refuses_what_is_against_the_rules() {
    use ReceiverInput as I;
    let after = |mut inputs: Vec<I>, last: I| {
        inputs.push(last);
        inputs
    };
    let greeted = || vec![I::Message(hello(2))];
    let message = I::Message;
    for (inputs, want) in [
        (vec![message(open([1]))], "Open came before Hello"),
        (vec![message(ping(0, 0))], "Ping came before Hello"),
        (vec![message(welcome())], "Welcome came before Hello"),
        (
            vec![I::Garbage(CodecError::TooLong)],
            "a message was announced that is longer than any of its kind: the peer does not speak ITG's \
             signalling protocol (check host and port)",
        ),
        (
            vec![I::Garbage(CodecError::Version { peer: 2 })],
            "the peer speaks version 2 of the signalling protocol, this program speaks version 1: \
             use the same release of ITG on both sides",
        ),
        (
            vec![message(hello_but(|_, version, _, _| *version = 9))],
            "the peer speaks version 9 of the signalling protocol, this program speaks version 1: \
             use the same release of ITG on both sides",
        ),
        (
            vec![message(hello_but(|magic, _, _, _| *magic = *b"GET "))],
            "a greeting starts with \"GET \" instead of \"ITGS\": the peer does not speak ITG's \
             signalling protocol (check host and port)",
        ),
        (
            vec![message(hello_but(|_, _, run, _| "../../etc\n".clone_into(run)))],
            "the run id `../../etc\\n` is not 32 hexadecimal digits",
        ),
        (
            vec![message(hello_but(|_, _, _, host| *host = "x".repeat(4097)))],
            "Hello has a name of 4097 bytes; at most 4096 are allowed",
        ),
        (vec![message(hello(0))], "Hello announces no flow"),
        (
            vec![message(hello(101))],
            "101 flows are announced; this receiver takes at most 100 from one sender",
        ),
        (after(greeted(), message(hello(2))), "a second Hello came on the same connection"),
        (after(greeted(), message(Message::Started)), "Started came out of turn"),
        (after(greeted(), message(Message::FlowEnded(totals(1)))), "FlowEnded came out of turn"),
        (
            after(greeted(), message(Message::Start { epoch_unix_ns: 0 })),
            "Start came before any flow was open",
        ),
        (after(greeted(), message(open([1, 2, 3]))), "3 flows are to be opened; Hello announced 2"),
        (after(greeted(), message(open([5, 5]))), "flow 5 is to be opened twice"),
        (after(greeted(), message(open([]))), "Open names 0 flows; it may name from 1 to 64"),
        (
            vec![message(hello(100)), message(open(0..=64))],
            "Open names 65 flows; it may name from 1 to 64",
        ),
        (vec![message(hello(2)), message(open([1])), message(open([2]))], "Open came out of turn"),
        (
            vec![
                message(hello(3)),
                message(open([1])),
                I::FlowOpened(reply(1)),
                message(open([2, 1])),
            ],
            "flow 1 is to be opened twice",
        ),
        (
            vec![
                message(hello(3)),
                message(open([1])),
                I::FlowOpened(no(1, "port in use")),
                message(Message::Start { epoch_unix_ns: 0 }),
            ],
            "Start came before any flow was open",
        ),
        (after(running(), message(open([4]))), "Open came out of turn"),
        (
            after(running(), message(Message::FlowEnded(totals(9)))),
            "flow 9 ended, which is not open",
        ),
        (
            after(running(), message(Message::FlowEnded(totals(3)))),
            "flow 3 ended, which is not open",
        ),
        (
            after(
                after(running(), message(Message::FlowEnded(totals(1)))),
                message(Message::FlowEnded(totals(1))),
            ),
            "flow 1 ended twice",
        ),
        (
            after(running(), I::Shutdown("SIGTERM".to_owned())),
            "the receiver is being shut down: SIGTERM",
        ),
        (
            after(after(running(), message(Message::Bye)), message(hello(1))),
            "a second Hello came on \
         the same connection",
        ),
    ] {
        let accepted = inputs.len() > 1;
        let closing = inputs.contains(&I::Message(Message::Bye));
        let said = receiver_after(inputs);
        let reason = want.to_owned();
        let mut all = vec![ReceiverOutput::Send(Message::Refuse { reason: reason.clone() })];
        if accepted && !closing {
            all.push(ReceiverOutput::Abandon { reason: reason.clone() });
            all.push(ReceiverOutput::CloseLog);
        }
        all.push(ReceiverOutput::Disconnect { reason });
        assert_eq!(said, all);
    }
}

#[test]
fn a_receiver_gives_up_a_sender_that_is_gone() {
    let mut inputs = running();
    inputs.push(ReceiverInput::Lost("connection reset by peer".to_owned()));
    let reason = "the connection to the sender is gone: connection reset by peer".to_owned();
    assert_eq!(
        receiver_after(inputs),
        [
            ReceiverOutput::Abandon { reason: reason.clone() },
            ReceiverOutput::CloseLog,
            ReceiverOutput::Disconnect { reason }
        ]
    );
}

/// Senders of before take what stands behind a message for damage.
#[test]
fn a_receiver_gives_accounts_to_those_who_take_them() {
    for (program, want) in [("itg-send 0.1.0", false), ("itg-send 0.1.0+measures.more", true)] {
        let (mut session, mut said) = (receiver(), Vec::new());
        let Message::Hello { magic, version, run, seed, host, boot_id, flows, recv_log, .. } =
            hello(1)
        else {
            panic!("a greeting");
        };
        let program = program.to_owned();
        let hello =
            Message::Hello { magic, version, run, seed, program, host, boot_id, flows, recv_log };
        session.handle(0, ReceiverInput::Message(hello), &mut said);
        assert_eq!(session.takes_accounts(), want, "{said:?}");
    }
}

#[test]
fn a_receiver_gives_up_a_sender_that_is_silent() {
    const SILENCE: u64 = 30 * SECOND;
    let (mut session, mut said) = (receiver(), Vec::new());
    assert_eq!(session.deadline(), Some(5 * SECOND), "for Hello");
    for (ms, input) in (1..).zip(running()) {
        session.handle(ms * 1_000_000, input, &mut said);
    }
    let last = 6_000_000; // Start came after 6 ms
    assert_eq!(session.deadline(), Some(last + SILENCE));
    said.clear();
    session.handle(last + SILENCE - 1, ReceiverInput::Timer, &mut said);
    assert_eq!(said, [], "too early");
    let ping = ReceiverInput::Message(ping(4, 77));
    session.handle(last + SILENCE - 1, ping, &mut said);
    let pong = Message::Pong {
        n: 4,
        ping_sent: ClockReading { unix_ns: 77, monotonic_ns: 0 },
        received_unix_ns: 0,
        sent: ClockReading::default(),
        arrived: Vec::new(),
    };
    assert_eq!(said, [ReceiverOutput::Send(pong)]);
    said.clear();
    session.handle(last + SILENCE, ReceiverInput::Timer, &mut said);
    assert_eq!(said, [], "it has just been heard of");
    session.handle(last + 2 * SILENCE, ReceiverInput::Timer, &mut said);
    let reason = "the sender has not been heard of for 30s".to_owned();
    assert_eq!(
        said,
        [
            ReceiverOutput::Abandon { reason: reason.clone() },
            ReceiverOutput::CloseLog,
            ReceiverOutput::Disconnect { reason }
        ]
    );
}

#[test]
fn a_receiver_does_not_wait_for_ever() {
    for (what, inputs, pings, wait, want) in [
        ("no Hello", vec![], false, 5, "no Hello came within 5s"),
        (
            "nothing opened",
            vec![ReceiverInput::Message(hello(2))],
            true,
            30,
            "the sender has not gone on for 30s",
        ),
        (
            "driver does not open",
            running().into_iter().take(3).collect(),
            true,
            8,
            "the receiver could not open 2 flows within 8s",
        ),
        (
            "no Bye",
            {
                let mut inputs = running();
                for flow in [1, 2] {
                    inputs.push(ReceiverInput::Message(Message::FlowEnded(totals(flow))));
                    inputs.push(ReceiverInput::FlowCounted(counts(flow)));
                }
                inputs
            },
            true,
            30,
            "the sender has not gone on for 30s",
        ),
        (
            "driver does not close",
            {
                let mut inputs = running();
                inputs.push(ReceiverInput::Message(Message::Bye));
                inputs
            },
            true,
            4,
            "the receiver could not close its log within 4s",
        ),
    ] {
        let (mut session, mut said) = (receiver(), Vec::new());
        for input in inputs {
            session.handle(0, input, &mut said);
        }
        let mut at = 0;
        for n in 0.. {
            let next = session.deadline().expect("not over");
            if pings && next > at + SECOND {
                at += SECOND;
                session.handle(at, ReceiverInput::Message(ping(n, 0)), &mut said);
                continue;
            }
            at = next;
            session.handle(at, ReceiverInput::Timer, &mut said);
            if session.is_over() {
                break;
            }
        }
        assert_eq!(at, wait * SECOND, "{what}");
        let reason = want.to_owned();
        assert_eq!(said.last(), Some(&ReceiverOutput::Disconnect { reason }), "{what}");
    }
}

#[test]
fn answers_come_in_the_order_of_the_question() {
    let said = receiver_after(vec![
        ReceiverInput::Message(hello(3)),
        ReceiverInput::Message(open([3, 1, 2])),
        ReceiverInput::FlowOpened(reply(2)),
        ReceiverInput::FlowOpened(no(3, "port in use")),
        ReceiverInput::FlowOpened(reply(2)), // twice, and one that was not asked for
        ReceiverInput::FlowOpened(reply(8)),
        ReceiverInput::FlowOpened(reply(1)),
    ]);
    let flows = vec![no(3, "port in use"), reply(1), reply(2)];
    assert_eq!(said, [ReceiverOutput::Send(Message::Opened { flows })]);
}

#[test]
fn an_early_leave_abandons_what_is_running() {
    let mut inputs = running();
    inputs.push(ReceiverInput::Message(Message::FlowEnded(totals(1))));
    inputs.push(ReceiverInput::FlowCounted(counts(1)));
    inputs.push(ReceiverInput::Message(Message::Bye));
    let reason = "the sender took its leave before 1 of its flows was counted".to_owned();
    let abandon = ReceiverOutput::Abandon { reason };
    assert_eq!(receiver_after(inputs.clone()), [abandon, ReceiverOutput::CloseLog]);
    inputs.push(ReceiverInput::LogClosed(None));
    assert_eq!(
        receiver_after(inputs),
        [
            ReceiverOutput::Send(Message::ByeAck { log: None }),
            ReceiverOutput::Disconnect { reason: "the sender took its leave".to_owned() }
        ]
    );
}

#[test]
fn measures_go_to_senders_that_offer_to_take_them() {
    for (program, want) in [
        ("itg-send 0.1.0", false),
        ("itg-send 0.1.0+measures", true),
        ("itg-send 0.2.0+abc.measures", true),
        ("measures", false),
    ] {
        let mut inputs = running();
        if let Some(ReceiverInput::Message(Message::Hello { program: said, .. })) =
            inputs.first_mut()
        {
            program.clone_into(said);
        }
        // Before its end there is nothing to say of a flow.
        inputs.push(ReceiverInput::FlowMeasured(measure(1)));
        assert_eq!(receiver_after(inputs.clone()), [], "{program}");
        inputs.push(ReceiverInput::Message(Message::FlowEnded(totals(1))));
        inputs.push(ReceiverInput::FlowMeasured(measure(1)));
        let said = ReceiverOutput::Send(Message::FlowMeasured(measure(1)));
        let said = if want { vec![said] } else { Vec::new() };
        assert_eq!(receiver_after(inputs.clone()), said, "{program}");
        inputs.push(ReceiverInput::FlowCounted(counts(1)));
        inputs.push(ReceiverInput::FlowMeasured(measure(1)));
        assert_eq!(receiver_after(inputs), [], "{program}");
    }
}
