//! Violations of the sender's rules, and its reactions to them.
#![allow(missing_docs, reason = "a test program")]

use crate::samples::{RUN, SECOND, counts, measure, no, open, reply, totals, welcome};
use itg_core::flow::{FlowSpec, Payload};
use itg_session::{
    ClockReading, CodecError, ErrorKind, FlowCounts, MAGIC, MAX_MESSAGE, Message, OPEN_BATCH,
    OpenReply, OpenedFlow, Phase, SenderConfig, SenderInput, SenderOutput, SenderSession, Timeouts,
    VERSION,
};

fn sender(flows: Vec<FlowSpec>) -> SenderSession {
    SenderSession::new(SenderConfig {
        run: RUN.to_owned(),
        seed: 42,
        program: "itg-send 0.1.0".to_owned(),
        host: "a".to_owned(),
        boot_id: "b0".to_owned(),
        flows,
        recv_log: Some("r.itg".to_owned()),
        prove: None,
        burst: 0,
        asked: false,
        timeouts: Timeouts::default(),
    })
}

#[test]
fn flows_are_opened_when_the_receiver_has_proved_itself() {
    let mut session = SenderSession::new(SenderConfig {
        prove: Some([7; 32]),
        run: RUN.to_owned(),
        seed: 42,
        program: String::new(),
        host: String::new(),
        boot_id: String::new(),
        flows: vec![FlowSpec::new(1)],
        recv_log: None,
        burst: 0,
        asked: false,
        timeouts: Timeouts::default(),
    });
    let mut said = Vec::new();
    session.handle(0, SenderInput::Connected, &mut said);
    session.handle(0, SenderInput::Message(welcome()), &mut said);
    assert_eq!(said.last(), Some(&SenderOutput::Send(Message::Prove { nonce: [7; 32] })));
    let proved = Message::Proved { nonce: [8; 32], proof: [9; 32] };
    session.handle(0, SenderInput::Message(proved), &mut said);
    assert_eq!(said.last(), Some(&SenderOutput::Send(open([1]))));
}

fn ping(n: u64) -> Message {
    Message::Ping { n, sent: ClockReading::default(), previous: None }
}

fn pong(n: u64) -> SenderInput {
    let (ping_sent, sent) = (ClockReading::default(), ClockReading::default());
    SenderInput::Message(Message::Pong {
        n,
        ping_sent,
        received_unix_ns: 0,
        sent,
        arrived: Vec::new(),
    })
}

/// Events that bring a sender with flows 1 and 2 to its run.
fn begun() -> Vec<SenderInput> {
    use SenderInput as I;
    vec![
        I::Connected,
        I::Message(welcome()),
        I::Message(Message::Opened { flows: vec![reply(1), reply(2)] }),
        I::Armed { epoch_unix_ns: 7 },
        I::Message(Message::Started),
    ]
}

#[test]
fn a_receiver_is_asked_what_has_arrived_while_packets_flow() {
    let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
    let mut said = Vec::new();
    session.handle(0, SenderInput::AskArrivals, &mut said);
    assert_eq!(said, [], "there is no connection");
    let steps = begun().len();
    for (place, input) in begun().into_iter().enumerate() {
        session.handle(0, input, &mut said);
        let before = said.len();
        session.handle(0, SenderInput::AskArrivals, &mut said);
        let asked = said.len() - before;
        assert_eq!(asked, usize::from(place + 1 == steps), "step {place}: {said:?}");
    }
    assert_eq!(said.last(), Some(&SenderOutput::Send(ping(0))));
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_sender_says_what_was_wrong() {
    use {ErrorKind as K, SenderInput as I};
    let step = |n: usize, last: I| {
        let mut inputs: Vec<I> = begun().into_iter().take(n).collect();
        inputs.push(last);
        inputs
    };
    let welcome_but = |magic, version| Message::Welcome {
        magic,
        version,
        program: String::new(),
        host: String::new(),
        boot_id: String::new(),
        control_timeout_ns: 0,
    };
    let gone = || I::Lost("connection reset by peer".to_owned());
    let refuse = || I::Message(Message::Refuse { reason: "Hello announces no flow".to_owned() });
    let opened = |flows| I::Message(Message::Opened { flows });
    let stop = || I::Stop { reason: "interrupted by SIGINT".to_owned() };
    let other_version = "the peer speaks version 2 of the signalling protocol, this program speaks \
                         version 1: use the same release of ITG on both sides";
    let other_flows = "the receiver answered for other flows than it was asked about";
    for (inputs, kind, phase, text) in [
        (
            vec![I::Lost("connection refused".to_owned())],
            K::Refused,
            Phase::Connect,
            "the receiver cannot be reached: connection refused",
        ),
        (step(0, stop()), K::Interrupted, Phase::Connect, "interrupted by SIGINT"),
        (
            step(1, gone()),
            K::Vanished,
            Phase::Greet,
            "the connection to the receiver is gone: connection reset by peer",
        ),
        (
            step(1, refuse()),
            K::Refused,
            Phase::Greet,
            "the receiver refused: Hello announces no flow",
        ),
        (step(1, I::Message(welcome_but(MAGIC, 2))), K::Version, Phase::Greet, other_version),
        (
            step(1, I::Garbage(CodecError::Version { peer: 2 })),
            K::Version,
            Phase::Greet,
            other_version,
        ),
        (
            step(1, I::Message(welcome_but(*b"HTTP", 1))),
            K::Protocol,
            Phase::Greet,
            "a greeting starts with \"HTTP\" instead of \"ITGS\": the peer does not speak ITG's \
             signalling protocol (check host and port)",
        ),
        (
            step(1, I::Message(Message::Started)),
            K::Protocol,
            Phase::Greet,
            "the receiver sent Started out of turn",
        ),
        (
            step(
                2,
                I::Message(Message::Pong {
                    n: 0,
                    ping_sent: ClockReading::default(),
                    received_unix_ns: 0,
                    sent: ClockReading::default(),
                    arrived: Vec::new(),
                }),
            ),
            K::Protocol,
            Phase::Open,
            "the receiver sent Pong out of turn",
        ),
        (step(2, opened(vec![reply(1)])), K::Protocol, Phase::Open, other_flows),
        (step(2, opened(vec![reply(2), reply(1)])), K::Protocol, Phase::Open, other_flows),
        (
            step(2, opened(vec![reply(1), OpenReply { flow: 2, ..reply(1) }])),
            K::Protocol,
            Phase::Open,
            other_flows,
        ),
        (
            step(2, opened(vec![no(1, "port in use"), no(2, "no memory")])),
            K::Refused,
            Phase::Open,
            "the receiver refused all 2 flows; flow 1: port in use",
        ),
        (step(3, stop()), K::Interrupted, Phase::Arm, "interrupted by SIGINT"),
        (step(4, stop()), K::Interrupted, Phase::Start, "interrupted by SIGINT"),
    ] {
        let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
        let mut said = Vec::new();
        for input in inputs {
            assert!(!session.is_over(), "{text}");
            session.handle(0, input, &mut said);
        }
        let Some(SenderOutput::Failed(error)) = said.last() else { panic!("{text}: {said:?}") };
        assert_eq!((error.kind, error.phase, error.text.as_str()), (kind, phase, text));
        // A receiver that has welcomed us and is still there is told.
        let told = said.contains(&SenderOutput::Send(Message::Bye));
        let polite = (kind == K::Interrupted && phase > Phase::Greet) || text.contains("all 2");
        assert_eq!(told, polite, "{text}");
    }
}

#[test]
fn a_sender_does_not_start_with_impossible_flows() {
    let endless = Payload::Pattern(vec![0; MAX_MESSAGE]);
    for (flows, want) in [
        (vec![], "there is no flow to send"),
        (
            vec![FlowSpec::new(1), FlowSpec::new(1)],
            "flow 1 is listed twice: give it another number",
        ),
        (
            vec![FlowSpec::new(1).payload(endless)],
            "flow 1 cannot be described to the receiver: the message Open needs 1048682 bytes, \
             more than the 1048576 that a message may have; use a shorter payload pattern or \
             shorter distributions",
        ),
    ] {
        let mut said = Vec::new();
        sender(flows).handle(0, SenderInput::Connected, &mut said);
        let [SenderOutput::Failed(error)] = said.as_slice() else { panic!("{want}: {said:?}") };
        assert_eq!((error.kind, error.text.as_str()), (ErrorKind::Refused, want));
    }
}

#[test]
fn a_sender_saves_what_it_has_when_the_receiver_is_gone() {
    let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
    let mut said = Vec::new();
    for input in begun() {
        session.handle(0, input, &mut said);
    }
    session.handle(0, SenderInput::FlowEnded(totals(2)), &mut said);
    said.clear();
    let refuse = Message::Refuse { reason: "the receiver is being shut down: SIGTERM".to_owned() };
    session.handle(1, SenderInput::Message(refuse), &mut said);
    let text = "the receiver refused: the receiver is being shut down: SIGTERM".to_owned();
    let alone = |flow| SenderOutput::Counted { totals: totals(flow), counts: None };
    assert_eq!(said, [alone(2), SenderOutput::StopFlows { reason: text.clone() }]);
    assert_eq!(session.deadline(), Some(1 + 5 * SECOND));
    said.clear();
    // Nothing that the receiver or the user says matters any more.
    session.handle(2, SenderInput::Message(Message::FlowCounted(counts(1))), &mut said);
    session.handle(2, SenderInput::Lost("closed".to_owned()), &mut said);
    session.handle(2, SenderInput::Stop { reason: "SIGINT".to_owned() }, &mut said);
    assert_eq!(said, []);
    session.handle(3, SenderInput::FlowEnded(totals(1)), &mut said);
    let [first, SenderOutput::Failed(error)] = said.as_slice() else { panic!("{said:?}") };
    assert_eq!(first, &alone(1));
    assert_eq!((error.kind, error.phase, &error.text), (ErrorKind::Refused, Phase::Run, &text));
    assert_eq!(error.exit_code(), 4);
}

/// While flows run an outage costs no counts, and TCP repeats the pings that are on their way; behind the last one's end
/// the wait is short.
#[test]
fn a_silent_receiver_is_waited_for_while_flows_run() {
    let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
    let mut said = Vec::new();
    for input in begun() {
        session.handle(0, input, &mut said);
    }
    said.clear();
    let until = |session: &mut SenderSession, until_ns: u64, said: &mut Vec<SenderOutput>| {
        let mut now_ns = 0;
        while let Some(at) = session.deadline().filter(|at| *at <= until_ns) {
            now_ns = at.max(now_ns);
            session.handle(now_ns, SenderInput::Timer, said);
        }
    };
    session.handle(0, SenderInput::FlowEnded(totals(1)), &mut said);
    until(&mut session, 20 * SECOND, &mut said);
    let end = SenderOutput::Send(Message::FlowEnded(totals(1)));
    let pings = |n: u64| (0..n).map(|n| SenderOutput::Send(ping(n)));
    let want: Vec<_> = std::iter::once(end).chain(pings(1)).collect();
    assert_eq!(said, want, "no count is given up");
    // It is heard again, and gives its counts.
    session.handle(20 * SECOND, pong(0), &mut said);
    session.handle(20 * SECOND, SenderInput::Message(Message::FlowCounted(counts(1))), &mut said);
    let both = SenderOutput::Counted { totals: totals(1), counts: Some(counts(1)) };
    assert_eq!(said.last(), Some(&both));
    session.handle(21 * SECOND, SenderInput::FlowEnded(totals(2)), &mut said);
    said.clear();
    until(&mut session, 32 * SECOND, &mut said);
    let Some(SenderOutput::Failed(error)) = said.last() else { panic!("{said:?}") };
    let text = "the receiver has not counted flow 2 within 10s of its end; it has not been heard of for 11s";
    assert_eq!((error.kind, error.text.as_str()), (ErrorKind::Vanished, text));
}

#[test]
fn a_second_stop_changes_nothing() {
    let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
    let mut said = Vec::new();
    for input in begun() {
        session.handle(0, input, &mut said);
    }
    said.clear();
    let stop = || SenderInput::Stop { reason: "interrupted".to_owned() };
    session.handle(1, stop(), &mut said);
    session.handle(SECOND / 2, stop(), &mut said);
    assert_eq!(said, [SenderOutput::StopFlows { reason: "interrupted".to_owned() }]);
    assert_eq!(session.deadline(), Some(SECOND), "the next ping");
}

#[test]
fn pings_follow_the_receivers_patience() {
    for (patience_ns, want) in [
        (5 * SECOND, SECOND),
        (u64::MAX, SECOND),
        (2 * SECOND, SECOND / 2),
        (0, SECOND / 100), // never more often than each 10 ms
    ] {
        let mut session = sender(vec![FlowSpec::new(1)]);
        let mut said = Vec::new();
        session.handle(0, SenderInput::Connected, &mut said);
        let mut greeting = welcome();
        if let Message::Welcome { control_timeout_ns, .. } = &mut greeting {
            *control_timeout_ns = patience_ns;
        }
        session.handle(0, SenderInput::Message(greeting), &mut said);
        assert_eq!(session.deadline(), Some(want), "patience {patience_ns} ns");
        session.handle(want, SenderInput::Timer, &mut said);
        assert_eq!(said.last(), Some(&SenderOutput::Send(ping(0))), "patience {patience_ns} ns");
    }
}

#[test]
fn clocks_are_compared_before_and_behind_the_run() {
    let mut session = SenderSession::new(SenderConfig {
        prove: None,
        burst: 3,
        asked: false,
        run: RUN.to_owned(),
        seed: 42,
        program: String::new(),
        host: String::new(),
        boot_id: String::new(),
        flows: vec![FlowSpec::new(1)],
        recv_log: None,
        timeouts: Timeouts::default(),
    });
    let mut said = Vec::new();
    let mut tell = |at, input, session: &mut SenderSession| {
        let before = said.len();
        session.handle(at, input, &mut said);
        let sent = |output: &SenderOutput| match output {
            SenderOutput::Send(message) => Some(message.clone()),
            _ => None,
        };
        said[before..].iter().filter_map(sent).collect::<Vec<_>>()
    };
    tell(0, SenderInput::Connected, &mut session);
    tell(0, SenderInput::Message(welcome()), &mut session);
    assert_eq!(session.deadline(), Some(0), "the burst starts at once");
    assert_eq!(tell(0, SenderInput::Timer, &mut session), [ping(0)]);
    // Each goes out with the answer to the one before, whatever else is going on.
    assert_eq!(tell(1, pong(0), &mut session), [ping(1)]);
    let opened = SenderInput::Message(Message::Opened { flows: vec![reply(1)] });
    tell(1, opened, &mut session);
    assert_eq!(tell(2, pong(1), &mut session), [ping(2)]);
    assert_eq!(tell(3, pong(2), &mut session), []);
    assert_eq!(session.deadline(), Some(2 + SECOND), "then one a second");
    tell(4, SenderInput::Armed { epoch_unix_ns: 7 }, &mut session);
    tell(5, SenderInput::Message(Message::Started), &mut session);
    assert_eq!(tell(2 + SECOND, SenderInput::Timer, &mut session), [ping(3)]);
    let at = 3 + SECOND;
    tell(at, SenderInput::FlowEnded(totals(1)), &mut session);
    let counted = SenderInput::Message(Message::FlowCounted(counts(1)));
    assert_eq!(tell(at, counted, &mut session), [ping(4)]);
    assert_eq!(tell(at, pong(3), &mut session), [], "not the latest");
    assert_eq!(tell(at, pong(4), &mut session), [ping(5)]);
    assert_eq!(tell(at, pong(5), &mut session), [ping(6)]);
    // A receiver that does not answer in time is not waited for.
    let patience = Timeouts::default().compare_ns;
    assert_eq!(session.deadline(), Some(at + patience));
    assert_eq!(tell(at + patience, SenderInput::Timer, &mut session), [Message::Bye]);
    assert_eq!(tell(at + patience, pong(6), &mut session), []);
    tell(at + patience, SenderInput::Message(Message::ByeAck { log: None }), &mut session);
    assert!(session.is_over());
    let clocks = |output: &&SenderOutput| matches!(output, SenderOutput::Clock { .. });
    assert_eq!(said.iter().filter(clocks).count(), 7);
    assert_eq!(said.last(), Some(&SenderOutput::Done));
}

#[test]
fn batches_are_asked_one_after_the_other() {
    let n = u32::try_from(OPEN_BATCH).expect("small");
    let mut session = sender((1..=n + 1).map(FlowSpec::new).collect());
    let mut said = Vec::new();
    session.handle(0, SenderInput::Connected, &mut said);
    said.clear();
    session.handle(0, SenderInput::Message(welcome()), &mut said);
    assert_eq!(said, [SenderOutput::Send(open(1..=n))]);
    said.clear();
    let flows = (1..=n).map(reply).collect();
    session.handle(0, SenderInput::Message(Message::Opened { flows }), &mut said);
    assert_eq!(said, [SenderOutput::Send(open([n + 1]))]);
    said.clear();
    let flows = vec![no(n + 1, "no memory")];
    session.handle(0, SenderInput::Message(Message::Opened { flows }), &mut said);
    let ready = SenderOutput::Ready {
        flows: (1..=n).map(|flow| OpenedFlow { flow, handle: flow + 100, port: 8999 }).collect(),
        refused: vec![(n + 1, "no memory".to_owned())],
    };
    assert_eq!(said, [ready]);
}

#[test]
fn a_sender_offers_to_take_measures_and_takes_sound_ones() {
    let (mut session, mut said) = (sender(vec![FlowSpec::new(1)]), Vec::new());
    session.handle(0, SenderInput::Connected, &mut said);
    let offers = |output: &SenderOutput| match output {
        SenderOutput::Send(Message::Hello { program, .. }) => {
            program == "itg-send 0.1.0+measures.more"
        }
        _ => false,
    };
    assert!(offers(&said[0]), "{said:?}");
    let measured = |measure| SenderInput::Message(Message::FlowMeasured(measure));
    let broken = |said: &[SenderOutput]| {
        said.iter().any(|output| match output {
            SenderOutput::StopFlows { reason } => reason.contains("as no receiver does"),
            SenderOutput::Failed(error) => error.text.contains("as no receiver does"),
            _ => false,
        })
    };
    let mut unsound = measure(1);
    unsound.delays.as_mut().expect("delays").above = vec![(u16::MAX, 1)];
    for (ended, given, good) in [
        (vec![1], measure(1), true),
        (vec![1], unsound, false),
        (vec![], measure(1), false),
        (vec![1], measure(2), false),
        (vec![1], measure(9), false),
    ] {
        let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
        let mut said = Vec::new();
        begun().into_iter().for_each(|input| session.handle(0, input, &mut said));
        for flow in ended {
            session.handle(0, SenderInput::FlowEnded(totals(flow)), &mut said);
        }
        session.handle(20 * SECOND, measured(given.clone()), &mut said);
        assert_eq!(said.last() == Some(&SenderOutput::Measured(given)), good, "{said:?}");
        assert_eq!(broken(&said), !good, "{said:?}");
    }
    // One that comes behind the counts says nothing any more.
    let (mut session, mut said) = (sender(vec![FlowSpec::new(1), FlowSpec::new(2)]), Vec::new());
    begun().into_iter().for_each(|input| session.handle(0, input, &mut said));
    session.handle(0, SenderInput::FlowEnded(totals(1)), &mut said);
    session.handle(0, SenderInput::Message(Message::FlowCounted(counts(1))), &mut said);
    said.clear();
    session.handle(0, measured(measure(1)), &mut said);
    assert_eq!(said, []);
}

#[test]
fn a_receiver_is_not_believed_what_cannot_have_arrived_in_the_time() {
    let told = |ns, message: Message| {
        let mut session = sender(vec![FlowSpec::new(1), FlowSpec::new(2)]);
        let mut said = Vec::new();
        begun().into_iter().for_each(|input| session.handle(0, input, &mut said));
        session.handle(0, SenderInput::FlowEnded(totals(1)), &mut said);
        session.handle(ns, SenderInput::Timer, &mut said);
        session.handle(ns, SenderInput::Message(message), &mut said);
        said
    };
    let broken = |said: &[SenderOutput]| {
        said.iter().any(|output| matches!(output, SenderOutput::StopFlows { .. }))
    };
    let good = counts(1);
    for (counts, is_sound) in [
        (good.clone(), true),
        // Duplicates may be many.
        (FlowCounts { packets: 1_000_000, ..good.clone() }, true),
        (FlowCounts { packets: u64::MAX, ..good.clone() }, false),
        (FlowCounts { packets: u64::MAX, unique: u64::MAX, ..good.clone() }, false),
        (FlowCounts { packets: 5 * SECOND, ..good.clone() }, false),
        (FlowCounts { bytes: u64::MAX, ..good.clone() }, false),
        (FlowCounts { unique: good.packets + 1, ..good.clone() }, false),
        (FlowCounts { log_lost_records: u64::MAX, ..good }, false),
    ] {
        let said = told(2 * SECOND, Message::FlowCounted(counts.clone()));
        assert_eq!(broken(&said), !is_sound, "{counts:?}: {said:?}");
    }
    // Arrivals over more time than has passed: a clock that was set, or none at all. The rest may be right.
    let said = told(2 * SECOND, Message::FlowMeasured(measure(1)));
    let times = said.iter().find_map(|output| match output {
        SenderOutput::Measured(measure) => Some((measure.first_unix_ns, measure.last_unix_ns)),
        _ => None,
    });
    assert_eq!(times, Some((0, 0)), "{said:?}");
}

/// A setting that version 1 has not: older receivers refuse what stands behind a message.
#[test]
fn a_setting_that_an_older_receiver_does_not_know_is_not_sent_to_it() {
    let spec = FlowSpec::new(1).drain_ns(5_000_000_000);
    for (program, understood) in [("itg-recv 0.1.0", false), ("itg-recv 0.1.0+more", true)] {
        let (mut session, mut said) = (sender(vec![spec.clone()]), Vec::new());
        session.handle(0, SenderInput::Connected, &mut said);
        said.clear();
        let welcome = Message::Welcome {
            magic: MAGIC,
            version: VERSION,
            program: program.to_owned(),
            host: "b".to_owned(),
            boot_id: "b1".to_owned(),
            control_timeout_ns: 5_000_000_000,
        };
        session.handle(0, SenderInput::Message(welcome), &mut said);
        let opens =
            |output: &SenderOutput| matches!(output, SenderOutput::Send(Message::Open { .. }));
        let refused = |output: &SenderOutput| match output {
            SenderOutput::Failed(error) => error.text.contains("older release"),
            _ => false,
        };
        assert_eq!(said.iter().any(opens), understood, "{said:?}");
        assert_eq!(said.iter().any(refused), !understood, "{said:?}");
    }
}
