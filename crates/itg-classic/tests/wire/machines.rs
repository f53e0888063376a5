//! Our two sides against each other and against anything else: cut bytes, silence, floods.

use itg_classic::send::{App, HeaderKind, LogProto};
use itg_classic::wire::{
    FlowOffer, FlowResult, LogClient, LogRequest, LogServerInput, LogServerOutput,
    LogServerSession, MessageError, NO_SERIAL, OfferProto, Passive, ReceiverChannel,
    ReceiverConfig, ReceiverEnding, ReceiverInput, ReceiverMessage, ReceiverOutput, RecvLog,
    Refusal, SenderChannel, SenderConfig, SenderEnding, SenderInput, SenderMessage, SenderOutput,
    StreamPackets, log_file_name,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;

fn offer(flow: u32, passive: bool) -> FlowOffer {
    FlowOffer {
        flow,
        proto: OfferProto::Udp,
        app: App::None,
        round_trip: false,
        tos: 0,
        header: HeaderKind::Standard,
        serial: NO_SERIAL,
        port: 8999,
        address: "10.0.0.1".parse().expect("an address"),
        passive: passive.then_some(Passive { recv_port: 8999, source_given: false }),
    }
}

fn receiver(passive: bool) -> ReceiverChannel {
    let config = ReceiverConfig { passive, flows_max: 3, silence_ns: 100 * SECOND };
    ReceiverChannel::new(config, 0)
}

fn sender(flows: u32, passive: bool, log: Option<RecvLog>) -> SenderChannel {
    let offers = (1..=flows).map(|flow| offer(flow, passive)).collect();
    SenderChannel::new(SenderConfig { log, offers, answer_ns: 100 * SECOND })
}

/// Runs both sides until both have closed; `cut` bytes travel at a time.
fn run(
    flows: u32,
    passive: bool,
    log: Option<RecvLog>,
    cut: usize,
    refuse: Option<u32>,
) -> Vec<(u32, FlowResult)> {
    let (mut s, mut r) = (sender(flows, passive, log), receiver(passive));
    let (mut to_s, mut to_r) = (Vec::<u8>::new(), Vec::<u8>::new());
    let (mut out_s, mut out_r) = (Vec::new(), Vec::new());
    let (mut results, mut closed_s, mut closed_r) = (Vec::new(), None, None);
    s.handle(0, SenderInput::Connected, &mut out_s);
    for _ in 0..10_000 {
        let mut again = Vec::new();
        for output in out_s.drain(..) {
            match output {
                SenderOutput::Send(bytes) => to_r.extend(bytes),
                SenderOutput::Start { flow, .. } => again.push(SenderInput::Ended(flow)),
                SenderOutput::Open(flow) => again.push(SenderInput::Ready(flow)),
                SenderOutput::Finished { flow, result } => results.push((flow, result)),
                SenderOutput::Close(ending) => closed_s = Some(ending),
            }
        }
        for input in again {
            s.handle(0, input, &mut out_s);
        }
        let mut again = Vec::new();
        for output in out_r.drain(..) {
            match output {
                ReceiverOutput::Send(bytes) => to_s.extend(bytes),
                ReceiverOutput::OpenLog(_) => again.push(ReceiverInput::LogOpened(true)),
                ReceiverOutput::OpenFlow(offer) if Some(offer.flow) == refuse => {
                    again.push(ReceiverInput::FlowOpened(Err(Refusal::Rights)));
                }
                ReceiverOutput::OpenFlow(_) => again.push(ReceiverInput::FlowOpened(Ok(9))),
                ReceiverOutput::EndFlow(flow) => again.push(ReceiverInput::FlowEnded(flow)),
                ReceiverOutput::Close(ending) => closed_r = Some(ending),
                _ => {}
            }
        }
        for input in again {
            r.handle(0, input, &mut out_r);
        }
        let take = to_r.len().min(cut);
        let bytes: Vec<u8> = to_r.drain(..take).collect();
        r.handle(0, ReceiverInput::Bytes(&bytes), &mut out_r);
        let take = to_s.len().min(cut);
        let bytes: Vec<u8> = to_s.drain(..take).collect();
        s.handle(0, SenderInput::Bytes(&bytes), &mut out_s);
        if closed_s.is_some() && closed_r.is_some() {
            break;
        }
    }
    assert_eq!((closed_s, closed_r), (Some(SenderEnding::Done), Some(ReceiverEnding::Done)));
    results.sort_unstable_by_key(|(flow, _)| *flow);
    results
}

#[test]
fn both_sides_agree_however_bytes_are_cut() {
    let log = RecvLog::Server {
        address: "::1".parse().expect("an address"),
        proto: LogProto::Tcp,
        path: b"a.log".to_vec(),
    };
    for cut in [1, 2, 5, 1000] {
        for passive in [false, true] {
            let all = [(1, FlowResult::Done), (2, FlowResult::Done), (3, FlowResult::Done)];
            assert_eq!(run(3, passive, None, cut, None), all, "cut {cut}");
            assert_eq!(run(3, passive, Some(log.clone()), cut, None), all, "cut {cut}");
        }
        let refused = FlowResult::Refused(Refusal::Rights);
        let want = [(1, FlowResult::Done), (2, refused), (3, FlowResult::Done)];
        assert_eq!(run(3, false, None, cut, Some(2)), want, "cut {cut}");
    }
    // The receiver's limit is three at a time: flows that end make room, the rest is refused.
    assert_eq!(run(4, false, None, 1000, None).len(), 4);
}

/// Bytes before the greeting and types without meaning are passed over, as the real receiver does.
#[test]
fn strange_bytes_end_at_most_the_channel() {
    for (bytes, want) in [
        (vec![0, 5, 99, 200, 1], Ok(vec![2])),
        (vec![1, 0, 2, 6, 7, 8, 10, 13, 15, 16, 18, 21, 22, 11], Ok(vec![2, 7])),
        (vec![1, 23], Err(ReceiverEnding::Confused(MessageError::Type(23)))),
        (vec![1, 255], Err(ReceiverEnding::Confused(MessageError::Type(255)))),
        (vec![1, 20], Err(ReceiverEnding::Lost)),
        (vec![1, 14], Ok(vec![2, 7])),
        // A flow that does not exist is answered, so that the sender does not wait.
        (vec![1, 4, 0, 0, 0, 9], Ok(vec![2, 6, 0, 0, 0, 9])),
        (vec![1, 17, 0, 0, 0, 9, 11], Ok(vec![2, 7])),
    ] {
        let mut out = Vec::new();
        receiver(false).handle(0, ReceiverInput::Bytes(&bytes), &mut out);
        let sent: Vec<u8> = out
            .iter()
            .filter_map(|output| match output {
                ReceiverOutput::Send(bytes) => Some(bytes.clone()),
                _ => None,
            })
            .flatten()
            .collect();
        match want {
            Ok(want) => assert_eq!(sent, want, "{bytes:?}"),
            Err(ending) => {
                assert_eq!(out.last(), Some(&ReceiverOutput::Close(ending)), "{bytes:?}");
            }
        }
    }
    let mut out = Vec::new();
    let mut flooded = receiver(false);
    flooded.handle(0, ReceiverInput::Bytes(&vec![0; 70_000]), &mut out);
    assert_eq!(out, [ReceiverOutput::Close(ReceiverEnding::Flooded)]);
}

#[test]
fn silence_is_asked_about_and_then_ends_the_channel() {
    let mut channel = receiver(false);
    let mut out = Vec::new();
    channel.handle(5 * SECOND, ReceiverInput::Bytes(&[1]), &mut out);
    assert_eq!(channel.deadline(), Some(105 * SECOND));
    channel.handle(104 * SECOND, ReceiverInput::Timer, &mut out);
    channel.handle(105 * SECOND, ReceiverInput::Timer, &mut out);
    assert_eq!(channel.deadline(), Some(205 * SECOND));
    // An answer starts the count anew.
    channel.handle(106 * SECOND, ReceiverInput::Bytes(&[9]), &mut out);
    channel.handle(206 * SECOND, ReceiverInput::Timer, &mut out);
    channel.handle(306 * SECOND, ReceiverInput::Timer, &mut out);
    let send = |kind| ReceiverOutput::Send(vec![kind]);
    let close = ReceiverOutput::Close(ReceiverEnding::Silent);
    assert_eq!(out, [send(2), send(8), send(8), send(8), close]);
    // The sender answers at any time, greets and leaves twice, then goes.
    let mut s = sender(1, false, None);
    let mut out = Vec::new();
    s.handle(0, SenderInput::Connected, &mut out);
    s.handle(100 * SECOND, SenderInput::Timer, &mut out);
    s.handle(150 * SECOND, SenderInput::Bytes(&[8]), &mut out);
    s.handle(200 * SECOND, SenderInput::Timer, &mut out);
    let send = |kind| SenderOutput::Send(vec![kind]);
    assert_eq!(out, [send(1), send(1), send(9), SenderOutput::Close(SenderEnding::Silent)]);
}

#[test]
fn a_flow_whose_end_is_not_answered_is_given_up() {
    let mut s = sender(1, false, None);
    let mut out = Vec::new();
    s.handle(0, SenderInput::Connected, &mut out);
    s.handle(0, SenderInput::Bytes(&[2, 5, 0, 0, 0, 1, 0x23, 0x27]), &mut out);
    assert_eq!(out.last(), Some(&SenderOutput::Start { flow: 1, port: 8999 }));
    s.handle(0, SenderInput::Ended(1), &mut out);
    let deadline = s.deadline().expect("a deadline");
    s.handle(deadline, SenderInput::Timer, &mut out);
    let given_up = SenderOutput::Finished { flow: 1, result: FlowResult::Unanswered };
    assert_eq!(out[out.len() - 2..], [given_up, SenderOutput::Send(vec![11])]);
    s.handle(deadline, SenderInput::Lost, &mut out);
    assert_eq!(out.last(), Some(&SenderOutput::Close(SenderEnding::Done)));
}

#[test]
fn refusals_of_logs_end_in_order() {
    let log = RecvLog::File { path: b"/etc/passwd".to_vec() };
    let mut s = sender(1, false, Some(log));
    let mut out = Vec::new();
    s.handle(0, SenderInput::Connected, &mut out);
    s.handle(0, SenderInput::Bytes(&[2, 21]), &mut out);
    let end = [SenderOutput::Send(vec![11]), SenderOutput::Close(SenderEnding::LogRefused)];
    assert_eq!(out[out.len() - 2..], end);
}

#[test]
fn paths_of_peers_become_names() {
    for (path, want) in [
        (&b"r.log"[..], Some("r.log")),
        (b"/tmp/ITGRecv.log", Some("ITGRecv.log")),
        (b"../../etc/passwd", Some("passwd")),
        (b"", None),
        (b"/", None),
        (b"..", None),
        (b".bashrc", None),
        (b"a/.ssh", None),
        (b"-rf", None),
        (b"a\nb", None),
        (b"\xff", None),
    ] {
        assert_eq!(log_file_name(path), want, "{}", path.escape_ascii());
    }
    assert_eq!(log_file_name(&[b'a'; 101]), None);
}

/// 10 000 channels one after the other: the real receiver dies after some hundred.
#[test]
fn channels_leave_nothing_behind() {
    for _ in 0..10_000 {
        let mut out = Vec::new();
        receiver(false).handle(0, ReceiverInput::Bytes(&[1, 11]), &mut out);
        assert_eq!(out.last(), Some(&ReceiverOutput::Close(ReceiverEnding::Done)));
    }
}

#[test]
fn a_log_client_that_goes_away_ends_nothing_else() {
    for inputs in [
        vec![LogServerInput::Connected, LogServerInput::Lost],
        vec![LogServerInput::Connected, LogServerInput::Bytes(&[9; 204])],
        vec![LogServerInput::Connected, LogServerInput::Bytes(&[2; 100]), LogServerInput::Lost],
    ] {
        let (mut session, mut out) = (LogServerSession::default(), Vec::new());
        for input in inputs {
            session.handle(input, &mut out);
        }
        assert_eq!(out.last(), Some(&LogServerOutput::Close));
    }
    // One that goes while its log is opened, and one whose log is refused.
    let request = LogRequest { proto: LogProto::Udp, stop: false, path: b"a".to_vec() }.encode();
    for (answer, want) in [(Some(9500), LogServerOutput::Drain), (None, LogServerOutput::Close)] {
        let (mut session, mut out) = (LogServerSession::default(), Vec::new());
        session.handle(LogServerInput::Connected, &mut out);
        session.handle(LogServerInput::Bytes(&request), &mut out);
        session.handle(LogServerInput::Lost, &mut out);
        session.handle(LogServerInput::Opened(answer), &mut out);
        assert_eq!(out.last(), Some(&want));
    }
}

prop_compose! {
    fn any_offer(passive: bool)(
        flow: u32, proto in 0_usize..5, app in 0_u8..8, round_trip: bool, tos: u8, header in 0_usize..3,
        serial: [u8; 10], port: u16, recv_port: u16, source_given: bool, v4: [u8; 4], v6: [u8; 16],
        six: bool,
    ) -> FlowOffer {
        FlowOffer {
            flow,
            proto: [OfferProto::Tcp, OfferProto::Udp, OfferProto::Icmp, OfferProto::Sctp,
                OfferProto::Dccp][proto],
            app: App::from_code(app),
            round_trip,
            tos,
            header: [HeaderKind::Standard, HeaderKind::Short, HeaderKind::None][header],
            serial,
            port,
            address: if six { v6.into() } else { v4.into() },
            passive: passive.then_some(Passive { recv_port, source_given }),
        }
    }
}

proptest! {
    #[test]
    fn offers_come_back(plain in any_offer(false), passive in any_offer(true)) {
        for offer in [plain, passive] {
            let message = SenderMessage::Offer(offer);
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            let is_passive = offer.passive.is_some();
            for len in 0..bytes.len() {
                prop_assert_eq!(SenderMessage::decode(&bytes[..len], is_passive), Ok(None));
            }
            let len = bytes.len();
            prop_assert_eq!(SenderMessage::decode(&bytes, is_passive), Ok(Some((message, len))));
        }
    }

    /// Any bytes in any pieces: no panic, and after a close nothing more.
    #[test]
    fn any_bytes_are_survived(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..60), 0..20),
        passive: bool,
    ) {
        let (mut s, mut r) = (sender(2, passive, None), receiver(passive));
        let (mut out_s, mut out_r, mut client_out, mut server_out) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let mut client = LogClient::new(LogProto::Udp, b"x".to_vec());
        let mut server = LogServerSession::default();
        let mut stream = StreamPackets::new(HeaderKind::Standard);
        s.handle(0, SenderInput::Connected, &mut out_s);
        r.handle(0, ReceiverInput::Bytes(&[1]), &mut out_r);
        server.handle(LogServerInput::Connected, &mut server_out);
        for piece in &pieces {
            s.handle(0, SenderInput::Bytes(piece), &mut out_s);
            r.handle(0, ReceiverInput::Bytes(piece), &mut out_r);
            r.handle(0, ReceiverInput::FlowOpened(Ok(1)), &mut out_r);
            r.handle(0, ReceiverInput::FlowEnded(1), &mut out_r);
            r.handle(0, ReceiverInput::LogOpened(true), &mut out_r);
            client.bytes(piece, &mut client_out);
            server.handle(LogServerInput::Bytes(piece), &mut server_out);
            let mut bytes = piece.as_slice();
            while let Ok(Some(_)) = stream.next(&mut bytes) {}
            if let Ok(Some((_, len))) = ReceiverMessage::decode(piece) {
                prop_assert!(len <= piece.len());
            }
        }
        let closes = out_r.iter().filter(|o| matches!(o, ReceiverOutput::Close(_))).count();
        prop_assert!(closes <= 1);
        if closes == 1 {
            prop_assert!(matches!(out_r.last(), Some(ReceiverOutput::Close(_))));
        }
        prop_assert!(client_out.len() <= 3);
    }
}
