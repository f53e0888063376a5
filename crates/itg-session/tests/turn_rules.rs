//! The exchange of the roles: both sides, and their answers to what is against the rules.
#![allow(missing_docs, reason = "a test program")]

use crate::samples::{RUN, SECOND, hello, open, reply, totals, welcome as welcomed};
use itg_core::flow::FlowSpec;
use itg_session::{
    ClockReading, CodecError, ErrorKind, MAGIC, Message, Phase, ReceiverConfig, ReceiverInput,
    ReceiverOutput, ReceiverSession, SenderConfig, SenderInput, SenderOutput, SenderSession,
    Timeouts, TurnInput, TurnOutput, TurnSession, VERSION,
};

fn asker() -> TurnSession {
    TurnSession::new(config(false))
}

fn config(asked: bool) -> SenderConfig {
    SenderConfig {
        run: RUN.to_owned(),
        seed: 42,
        program: "itg-send 0.1.0".to_owned(),
        host: "a".to_owned(),
        boot_id: "b0".to_owned(),
        flows: vec![FlowSpec::new(1), FlowSpec::new(2)],
        recv_log: None,
        prove: None,
        burst: 0,
        asked,
        timeouts: Timeouts::default(),
    }
}

fn welcome(program: &str, magic: [u8; 4], version: u16) -> TurnInput {
    TurnInput::Message(Message::Welcome {
        magic,
        version,
        program: program.to_owned(),
        host: "b".to_owned(),
        boot_id: "b1".to_owned(),
        control_timeout_ns: 5 * SECOND,
    })
}

fn ready() -> TurnInput {
    welcome("itg-recv 0.1.0+turns", MAGIC, VERSION)
}

fn after(inputs: Vec<TurnInput>) -> Vec<TurnOutput> {
    let (mut session, mut said) = (asker(), Vec::new());
    for (ms, input) in (1..).zip(inputs) {
        said.clear();
        session.handle(ms * 1_000_000, input, &mut said);
    }
    said
}

#[test]
fn the_roles_are_exchanged_in_two_steps() {
    let flows = vec![FlowSpec::new(1), FlowSpec::new(2)];
    assert_eq!(
        after(vec![TurnInput::Connected, ready()]),
        [TurnOutput::Send(Message::Turn { flows })]
    );
    let turned = TurnInput::Message(Message::Turned { notices: vec!["\u{1b}[2J".to_owned()] });
    let said = after(vec![TurnInput::Connected, ready(), turned]);
    let TurnOutput::Turned { notices } = &said[0] else { panic!("{said:?}") };
    assert!(!notices[0].contains('\u{1b}'), "a peer's text does nothing to terminals: {notices:?}");
}

#[test]
fn an_asker_says_what_was_wrong() {
    use {ErrorKind as K, TurnInput as I};
    let lost = || I::Lost("gone".to_owned());
    let refuse = || I::Message(Message::Refuse { reason: "no".to_owned() });
    for (inputs, kind, phase, text) in [
        (vec![lost()], K::Refused, Phase::Connect, "cannot be reached: gone"),
        (vec![I::Connected, lost()], K::Vanished, Phase::Greet, "is gone: gone"),
        (
            vec![I::Connected, welcome("itg-recv 0.1.0", MAGIC, VERSION)],
            K::Refused,
            Phase::Greet,
            "sends nothing to those who ask for flows: start itg-recv there with --allow-reverse",
        ),
        (vec![I::Connected, welcome("x", *b"GET ", 1)], K::Protocol, Phase::Greet, "\"GET \""),
        (vec![I::Connected, welcome("x", MAGIC, 9)], K::Version, Phase::Greet, "version 9"),
        (
            vec![I::Connected, I::Garbage(CodecError::Version { peer: 2 })],
            K::Version,
            Phase::Greet,
            "version 2",
        ),
        (
            vec![I::Connected, I::Garbage(CodecError::TooLong)],
            K::Protocol,
            Phase::Greet,
            "longer than any",
        ),
        (
            vec![I::Connected, ready(), refuse()],
            K::Refused,
            Phase::Open,
            "the receiver refused: no",
        ),
        (
            vec![I::Connected, ready(), I::Message(Message::Started)],
            K::Protocol,
            Phase::Open,
            "Started out of turn",
        ),
        (vec![I::Connected, I::Stop("SIGINT".to_owned())], K::Interrupted, Phase::Greet, "SIGINT"),
    ] {
        let what = format!("{inputs:?}");
        let said = after(inputs);
        let [TurnOutput::Failed(error)] = &said[..] else { panic!("{what}: {said:?}") };
        assert_eq!((error.kind, error.phase), (kind, phase), "{what}: {error}");
        assert!(error.text.contains(text), "{what}: {error}");
    }
}

#[test]
fn an_asker_does_not_wait_for_ever() {
    for (inputs, wait) in
        [(vec![TurnInput::Connected], 5), (vec![TurnInput::Connected, ready()], 10)]
    {
        let (mut session, mut said) = (asker(), Vec::new());
        inputs.into_iter().for_each(|input| session.handle(0, input, &mut said));
        assert_eq!(session.deadline(), Some(wait * SECOND));
        said.clear();
        session.handle(wait * SECOND - 1, TurnInput::Timer, &mut said);
        assert_eq!(said, []);
        session.handle(wait * SECOND, TurnInput::Timer, &mut said);
        assert!(
            matches!(&said[..], [TurnOutput::Failed(error)] if error.kind == ErrorKind::Timeout)
        );
        assert!(session.is_over() && session.deadline().is_none());
    }
}

fn asked(inputs: Vec<ReceiverInput>) -> Vec<ReceiverOutput> {
    asked_where(true, inputs)
}

fn asked_where(turns: bool, inputs: Vec<ReceiverInput>) -> Vec<ReceiverOutput> {
    let config = ReceiverConfig {
        program: "itg-recv 0.1.0".to_owned(),
        host: "b".to_owned(),
        boot_id: "b1".to_owned(),
        max_flows: 100,
        secret: false,
        turns,
        timeouts: Timeouts::default(),
    };
    let (mut session, mut said) = (ReceiverSession::new(config, 0), Vec::new());
    for (ms, input) in (1..).zip(inputs) {
        said.clear();
        session.handle(ms * 1_000_000, input, &mut said);
    }
    said
}

#[test]
fn a_receiver_offers_to_send_and_leaves_the_connection_to_a_sender() {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let turn =
        |ids: std::ops::Range<u32>| I::Message(M::Turn { flows: ids.map(FlowSpec::new).collect() });
    let greeted = asked(vec![I::Message(hello(2))]);
    let offers = greeted.iter().any(|output| {
        matches!(output, O::Send(M::Welcome { program, .. }) if program == "itg-recv 0.1.0+turns.more")
    });
    assert!(offers, "{greeted:?}");
    let said = asked(vec![I::Message(hello(2)), turn(1..3)]);
    assert_eq!(said, [O::Turn { flows: vec![FlowSpec::new(1), FlowSpec::new(2)] }]);
    let yes = vec![I::Message(hello(2)), turn(1..3), I::Turned(Ok(Vec::new()))];
    let reason = "the roles are exchanged".to_owned();
    let turned = O::Send(M::Turned { notices: Vec::new() });
    assert_eq!(asked(yes), [turned, O::CloseLog, O::Disconnect { reason }]);
    for (inputs, want) in [
        (
            vec![I::Message(hello(2)), turn(0..0)],
            "Turn names 0 flows; it may name from 1 to 2: --flows of itg-send",
        ),
        (
            vec![I::Message(hello(2)), turn(1..4)],
            "Turn names 3 flows; it may name from 1 to 2: --flows of itg-send",
        ),
        (
            vec![I::Message(hello(99)), turn(0..65)],
            "Turn names 65 flows; it may name from 1 to 64: --flows of itg-send",
        ),
        (vec![I::Message(hello(2)), turn(1..3), I::Turned(Err("too fast".to_owned()))], "too fast"),
        (
            vec![I::Message(hello(2)), I::Message(open([1])), I::FlowOpened(reply(1)), turn(1..2)],
            "Turn came out of turn",
        ),
    ] {
        let what = format!("{inputs:?}");
        let reason = want.to_owned();
        assert_eq!(asked(inputs)[0], O::Send(M::Refuse { reason }), "{what}");
    }
}

#[test]
fn a_receiver_that_sends_nothing_offers_nothing() {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let greeted = asked_where(false, vec![I::Message(hello(2))]);
    let plain = greeted.iter().any(|output| {
        matches!(output, O::Send(M::Welcome { program, .. }) if program == "itg-recv 0.1.0+more")
    });
    assert!(plain, "{greeted:?}");
    let turn = I::Message(M::Turn { flows: vec![FlowSpec::new(1)] });
    let said = asked_where(false, vec![I::Message(hello(2)), turn]);
    assert!(
        matches!(&said[0], O::Send(M::Refuse { reason }) if reason.contains("--allow-reverse")),
        "{said:?}"
    );
    assert!(!said.iter().any(|output| matches!(output, O::Turn { .. })), "{said:?}");
}

/// Answer of a sender with two running flows to this.
fn running(asked: bool, input: SenderInput) -> Vec<SenderOutput> {
    use SenderInput as I;
    let (mut session, mut said) = (SenderSession::new(config(asked)), Vec::new());
    for input in [
        I::Connected,
        I::Message(welcomed()),
        I::Message(Message::Opened { flows: vec![reply(1), reply(2)] }),
        I::Armed { epoch_unix_ns: 7 },
        I::Message(Message::Started),
        input,
    ] {
        said.clear();
        session.handle(0, input, &mut said);
    }
    said
}

#[test]
fn flows_that_nobody_asked_for_are_not_halted() {
    let halt = |reason: &str| SenderInput::Message(Message::Halt { reason: reason.to_owned() });
    let said = running(true, halt("SIGINT"));
    assert_eq!(said, [SenderOutput::StopFlows { reason: "SIGINT".to_owned() }]);
    // It ends as after any other breach of the rules: the flows stop, and the session fails.
    let said = running(false, halt("the sender is to believe that all is well"));
    let [SenderOutput::StopFlows { reason }] = &said[..] else { panic!("{said:?}") };
    assert!(reason.contains("Halt out of turn"), "{reason}");
}

#[test]
fn the_reason_to_halt_is_short_and_harmless() {
    let reason = format!("\u{1b}[2J{}", "x".repeat(100_000));
    let said = running(true, SenderInput::Message(Message::Halt { reason }));
    let [SenderOutput::StopFlows { reason }] = &said[..] else { panic!("{said:?}") };
    assert!(reason.len() < 300 && !reason.contains('\u{1b}'), "{reason}");
}

#[test]
fn a_sender_that_does_not_halt_is_not_waited_for() {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let config = ReceiverConfig {
        program: "itg-send 0.1.0".to_owned(),
        host: "b".to_owned(),
        boot_id: "b1".to_owned(),
        max_flows: 100,
        secret: false,
        turns: false,
        timeouts: Timeouts::default(),
    };
    let wait = config.timeouts.halt_ns;
    let (mut session, mut said) = (ReceiverSession::new(config, 0), Vec::new());
    for input in [
        I::Message(hello(2)),
        I::Message(open([1, 2])),
        I::FlowOpened(reply(1)),
        I::FlowOpened(reply(2)),
        I::Message(M::Start { epoch_unix_ns: 7 }),
        I::Halt("SIGINT".to_owned()),
        // One of two does not do.
        I::Message(M::FlowEnded(totals(1))),
    ] {
        session.handle(0, input, &mut said);
    }
    let ping = || I::Message(M::Ping { n: 0, sent: ClockReading::default(), previous: None });
    for second in 1..wait / SECOND {
        session.handle(second * SECOND, ping(), &mut said);
    }
    assert_eq!(session.deadline(), Some(wait));
    said.clear();
    session.handle(wait, I::Timer, &mut said);
    let told = matches!(&said[0], O::Send(M::Refuse { reason }) if reason.contains("not ended"));
    assert!(told && session.is_over(), "{said:?}");
}

/// `Turn` and `Bye` may come in one segment: what was got ready is dropped.
#[test]
fn who_leaves_after_asking_is_sent_nothing() {
    use {Message as M, ReceiverInput as I, ReceiverOutput as O};
    let turn = I::Message(M::Turn { flows: vec![FlowSpec::new(1)] });
    let said = asked(vec![I::Message(hello(1)), turn, I::Message(M::Bye)]);
    assert!(said.iter().any(|output| matches!(output, O::Abandon { .. })), "{said:?}");
}
