//! The wire against captures of the real programs: what they sent is understood, and our sides, in
//! the place of either of them, send the same bytes.

mod capture;
mod machines;

use itg_classic::log::{LogRecord, records};
use itg_classic::send::{FlowArgs, HeaderKind, LogProto, LogSettings, parse_request, parse_script};
use itg_classic::wire::{
    LogClient, LogClientOutput, LogServerInput, LogServerOutput, LogServerSession, PORT_LOG,
    PORT_SIGNALLING, PacketHeader, ReceiverChannel, ReceiverConfig, ReceiverEnding, ReceiverInput,
    ReceiverMessage, ReceiverOutput, RecvLog, Refusal, ReplyKind, SenderChannel, SenderConfig,
    SenderEnding, SenderInput, SenderMessage, SenderOutput, StreamPackets, block, header_len,
    reply_ended, reply_started, reply_text, to_file,
};

use capture::{conversations, read};

const ANSWER_NS: u64 = 100_000_000_000;

/// All captures with a whole signalling conversation, and whether it is in passive mode.
const CAPTURES: [(&str, bool); 18] = [
    ("udp-single.pcap", false),
    ("tcp-single.pcap", false),
    ("udp-recvlog-x.pcap", false),
    ("udp-rttm.pcap", false),
    ("tcp-rttm.pcap", false),
    ("udp-p1.pcap", false),
    ("tcp-p1.pcap", false),
    ("tcp-p2.pcap", false),
    ("icmp.pcap", false),
    ("udp6-single.pcap", false),
    ("udp-rp0.pcap", false),
    ("multi3.pcap", false),
    ("remote-log-udp.pcap", false),
    ("remote-log-tcp.pcap", false),
    ("passive-udp.pcap", true),
    ("passive-tcp.pcap", true),
    ("passive-multi2.pcap", true),
    ("daemon.pcap", false),
];

/// The conversation by roles: bytes of one side after the other, true for the sender.
fn roles(name: &str, passive: bool) -> Vec<(bool, Vec<u8>)> {
    let all = conversations(name, PORT_SIGNALLING);
    assert_eq!(all.len(), 1, "{name}");
    // The receiver listens; in passive mode the sender does.
    all.into_iter().flatten().map(|(server, bytes)| (server == passive, bytes)).collect()
}

fn sender_messages(mut bytes: &[u8], passive: bool) -> Vec<SenderMessage> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (message, len) =
            SenderMessage::decode(bytes, passive).expect("a message").expect("all of it");
        messages.push(message);
        bytes = &bytes[len..];
    }
    messages
}

fn receiver_messages(mut bytes: &[u8]) -> Vec<ReceiverMessage> {
    let mut messages = Vec::new();
    while !bytes.is_empty() {
        let (message, len) = ReceiverMessage::decode(bytes).expect("a message").expect("all of it");
        messages.push(message);
        bytes = &bytes[len..];
    }
    messages
}

/// All bytes that one side sent.
fn said(chunks: &[(bool, Vec<u8>)], by_sender: bool) -> Vec<u8> {
    chunks.iter().filter(|(sender, _)| *sender == by_sender).flat_map(|(_, b)| b.clone()).collect()
}

/// The same messages with what is undefined in them put to 0.
fn normalized(bytes: &[u8], passive: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for message in sender_messages(bytes, passive) {
        message.encode(&mut out);
    }
    out
}

#[test]
fn messages_come_back_byte_for_byte() {
    for (name, passive) in CAPTURES.into_iter().chain([("err-bind.pcap", false)]) {
        let chunks = roles(name, passive);
        let sent = said(&chunks, true);
        let again = normalized(&sent, passive);
        assert_eq!(again.len(), sent.len(), "{name}");
        let with_path = sender_messages(&sent, passive)
            .iter()
            .any(|message| matches!(message, SenderMessage::Log(_)));
        if with_path {
            // Bytes behind a path are undefined: ours are 0.
            assert!(again.iter().zip(&sent).all(|(ours, theirs)| ours == theirs || *ours == 0));
        } else {
            assert_eq!(again, sent, "{name}");
        }
        let mut out = Vec::new();
        receiver_messages(&said(&chunks, false))
            .iter()
            .for_each(|message| message.encode(&mut out));
        assert_eq!(out, said(&chunks, false), "{name}");
    }
}

/// Our receiver in the place of the real one.
#[test]
fn our_receiver_answers_as_the_real_one() {
    for (name, passive) in CAPTURES.into_iter().chain([("err-bind.pcap", false)]) {
        let chunks = roles(name, passive);
        let want = said(&chunks, false);
        // Ports and refusals are the driver's: it gives those of the capture.
        let mut answers =
            receiver_messages(&want).into_iter().filter_map(|message| match message {
                ReceiverMessage::Accept { port, .. } => Some(Ok(port)),
                ReceiverMessage::Refuse { why, .. } => Some(Err(why)),
                _ => None,
            });
        let config = ReceiverConfig { passive, flows_max: 100, silence_ns: ANSWER_NS };
        let mut channel = ReceiverChannel::new(config, 0);
        let (mut got, mut ending, mut logs, mut connected) = (Vec::new(), None, 0_i32, 0);
        for (_, bytes) in chunks.iter().filter(|(sender, _)| *sender) {
            let mut out = Vec::new();
            channel.handle(0, ReceiverInput::Bytes(bytes), &mut out);
            let mut at = 0;
            while at < out.len() {
                match out[at].clone() {
                    ReceiverOutput::Send(bytes) => got.extend(bytes),
                    ReceiverOutput::OpenLog(_) => {
                        logs += 1;
                        channel.handle(0, ReceiverInput::LogOpened(true), &mut out);
                    }
                    ReceiverOutput::OpenFlow(_) => {
                        let answer = answers.next().expect("an answer in the capture");
                        channel.handle(0, ReceiverInput::FlowOpened(answer), &mut out);
                    }
                    ReceiverOutput::EndFlow(flow) => {
                        channel.handle(0, ReceiverInput::FlowEnded(flow), &mut out);
                    }
                    ReceiverOutput::Connect(_) => connected += 1,
                    ReceiverOutput::CloseLog => logs -= 1,
                    ReceiverOutput::DropFlow(flow) => panic!("{name}: flow {flow} given up"),
                    ReceiverOutput::Close(how) => ending = Some(how),
                }
                at += 1;
            }
        }
        assert_eq!(got, want, "{name}");
        assert_eq!((ending, logs), (Some(ReceiverEnding::Done), 0), "{name}");
        assert_eq!(connected > 0, passive, "{name}");
    }
}

/// Our sender in the place of the real one.
#[test]
fn our_sender_says_what_the_real_one_says() {
    for (name, passive) in CAPTURES.into_iter().chain([("err-bind.pcap", false)]) {
        let chunks = roles(name, passive);
        let sent = said(&chunks, true);
        let (mut offers, mut log) = (Vec::new(), None);
        for message in sender_messages(&sent, passive) {
            match message {
                SenderMessage::Offer(offer) => offers.push(offer),
                SenderMessage::Log(asked) => log = Some(asked),
                _ => {}
            }
        }
        let mut channel = SenderChannel::new(SenderConfig { log, offers, answer_ns: ANSWER_NS });
        let mut out = Vec::new();
        channel.handle(0, SenderInput::Connected, &mut out);
        for (by_sender, bytes) in &chunks {
            if !by_sender {
                channel.handle(0, SenderInput::Bytes(bytes), &mut out);
                continue;
            }
            // The driver does what the capture shows, when it shows it.
            for message in sender_messages(bytes, passive) {
                match message {
                    SenderMessage::Ended(flow) => {
                        channel.handle(0, SenderInput::Ended(flow), &mut out);
                    }
                    SenderMessage::Ready(flow) => {
                        channel.handle(0, SenderInput::Ready(flow), &mut out);
                    }
                    _ => {}
                }
            }
        }
        let (mut got, mut ending) = (Vec::new(), None);
        for output in out {
            match output {
                SenderOutput::Send(bytes) => got.extend(bytes),
                SenderOutput::Close(how) => ending = Some(how),
                _ => {}
            }
        }
        assert_eq!(got, normalized(&sent, passive), "{name}");
        assert_eq!(ending, Some(SenderEnding::Done), "{name}");
    }
}

/// Command lines give the offers of the captures.
#[test]
fn command_lines_give_the_offers_of_the_captures() {
    let local = "127.0.0.1".parse().expect("an address");
    let six = "::1".parse().expect("an address");
    let flow = |line: &str| {
        parse_request(1, line, &mut LogSettings::default())
            .unwrap_or_else(|e| panic!("{line}: {e}"))
    };
    for (name, line) in [
        ("udp-single", "-a 127.0.0.1 -T UDP -C 20 -c 64 -z 10 -s 0.5"),
        ("tcp-single", "-a 127.0.0.1 -T TCP -C 20 -c 64 -z 10 -s 0.5"),
        ("udp-rttm", "-a 127.0.0.1 -T UDP -m rttm -C 20 -c 64 -z 10"),
        ("tcp-rttm", "-a 127.0.0.1 -T TCP -m rttm -C 20 -c 64 -z 10"),
        ("udp-p1", "-a 127.0.0.1 -p 1 -T UDP -C 20 -c 64 -z 5"),
        ("tcp-p1", "-a 127.0.0.1 -p 1 -T TCP -C 20 -c 64 -z 5"),
        ("tcp-p2", "-a 127.0.0.1 -p 2 -T TCP -C 20 -c 64 -z 5"),
        ("icmp", "-a 127.0.0.1 -T ICMP -C 20 -c 64 -z 5"),
        ("udp6-single", "-a ::1 -T UDP -C 20 -c 64 -z 5"),
        ("udp-rp0", "-a 127.0.0.1 -T UDP -rp 0 -C 20 -c 64 -z 5"),
        ("daemon", "-a 127.0.0.1 -C 20 -c 64 -z 5"),
        ("passive-udp", "-H -T UDP -C 20 -c 64 -z 10"),
        ("passive-tcp", "-H -T TCP -C 20 -c 64 -z 10"),
    ] {
        let flow = flow(line);
        let sent = said(&roles(&format!("{name}.pcap"), flow.passive), true);
        let dest = if flow.dest == "::1" { six } else { local };
        let offer = SenderMessage::Offer(flow.offer(dest, None));
        assert!(sender_messages(&sent, flow.passive).contains(&offer), "{name}: {offer:?}");
    }
    let script =
        "-H -rp 9501 -sp 9601 -C 20 -z 5 -c 64\n-H -rp 9502 -sp 9602 -T TCP -C 20 -z 5 -c 64\n";
    let flows = parse_script(script, &mut LogSettings::default()).expect("a good script");
    let sent = sender_messages(&said(&roles("passive-multi2.pcap", true), true), true);
    for flow in flows {
        assert!(sent.contains(&SenderMessage::Offer(flow.offer(local, None))), "flow {}", flow.id);
    }
    let mut serial = FlowArgs::new(1);
    serial.recv_serial = Some("ttyS0long-name".to_owned());
    assert_eq!(&serial.offer(local, None).serial, b"ttyS0long\0");
}

#[test]
fn packets_carry_what_the_real_ones_carry() {
    let standard = HeaderKind::Standard;
    for (name, kind, packets) in [
        ("udp-single", standard, 10),
        ("udp6-single", standard, 5),
        ("udp-p1", HeaderKind::Short, 5),
    ] {
        let mut count = 0;
        for packet in read(&format!("{name}.pcap")).iter().filter(|packet| packet.proto == 17) {
            count += 1;
            let header = PacketHeader::parse(kind, &packet.bytes).expect("a header");
            assert_eq!((header.flow, header.seq), (1, count), "{name}");
            let mut again = packet.bytes.clone();
            again[..header_len(kind, false)].fill(0xee);
            header.write(kind, false, &mut again);
            assert_eq!(again, packet.bytes, "{name}");
        }
        assert_eq!(count, packets, "{name}");
    }
    // The real round-trip sender skips number 2 over TCP.
    let skipped = |name: &str, seq: u32| name == "tcp-rttm" && seq == 2;
    for (name, kind, last) in
        [("tcp-single", standard, 10), ("tcp-p1", HeaderKind::Short, 5), ("tcp-rttm", standard, 10)]
    {
        let chunks = conversations(&format!("{name}.pcap"), 8999).concat();
        let stream: Vec<u8> = said(&chunks, false);
        let want: Vec<_> = (1..=last).filter(|&seq| !skipped(name, seq)).collect();
        // However the stream is cut.
        for piece in [1, 7, 64, stream.len()] {
            let mut splitter = StreamPackets::new(kind);
            let mut got = Vec::new();
            for mut bytes in stream.chunks(piece) {
                while let Some(packet) = splitter.next(&mut bytes).expect("a good stream") {
                    assert_eq!(packet.size, 64, "{name}");
                    got.extend(packet.header.map(|header| header.seq));
                }
            }
            assert_eq!(got, want, "{name} in pieces of {piece}");
        }
    }
}

/// The real receiver reads up to 2 GB into a buffer of 64000 bytes.
#[test]
fn sizes_in_a_stream_are_not_trusted() {
    for (size, good) in [
        (0, false),
        (19, false),
        (20, true),
        (64_000, true),
        (64_001, false),
        (400_000, false),
        (u32::MAX, false),
    ] {
        let mut head = vec![0; 16];
        head.extend_from_slice(&u32::to_be_bytes(size));
        let mut bytes = head.as_slice();
        let result = StreamPackets::new(HeaderKind::Standard).next(&mut bytes);
        assert_eq!(result.is_ok(), good, "{size}");
        // A packet of a header alone is a packet, not the end.
        assert_eq!(size == 20, matches!(result, Ok(Some(_))), "{size}");
    }
}

#[test]
fn logs_travel_as_they_do_in_the_captures() {
    for (name, proto) in [("remote-log-udp", LogProto::Udp), ("remote-log-tcp", LogProto::Tcp)] {
        for chunks in conversations(&format!("{name}.pcap"), PORT_LOG) {
            // At port 9001 the server speaks.
            let (server, client) = (said(&chunks, true), said(&chunks, false));
            let port = u16::from_be_bytes([server[3], server[4]]);
            let mut session = LogServerSession::default();
            let (mut got, mut path, mut out) = (Vec::new(), Vec::new(), Vec::new());
            session.handle(LogServerInput::Connected, &mut out);
            let opened = LogServerInput::Opened(Some(port));
            for (number, input) in [
                LogServerInput::Bytes(&client[..204]),
                opened,
                LogServerInput::Bytes(&client[204..]),
                LogServerInput::Drained,
            ]
            .into_iter()
            .enumerate()
            {
                session.handle(input, &mut out);
                let last = out.last().expect("something to do").clone();
                match (number, &last) {
                    (0, LogServerOutput::Open(request)) => {
                        assert_eq!((request.proto, request.stop), (proto, false));
                        path.clone_from(&request.path);
                    }
                    (1, LogServerOutput::Send(_))
                    | (2, LogServerOutput::Drain)
                    | (3, LogServerOutput::Close) => {}
                    _ => panic!("{name}: {last:?} in step {number}"),
                }
            }
            for output in &out {
                if let LogServerOutput::Send(bytes) = output {
                    got.extend_from_slice(bytes);
                }
            }
            assert_eq!(got, server, "{name}");
            // The client's side.
            let mut own = LogClient::new(proto, path.clone());
            let mut out = Vec::new();
            for byte in &server {
                own.bytes(&[*byte], &mut out);
            }
            let [LogClientOutput::Send(request), LogClientOutput::Ready(ready)] = out.as_slice()
            else {
                panic!("{name}: {out:?}");
            };
            let defined = 4 + path.len() + 1;
            assert_eq!((request.len(), &request[..defined]), (204, &client[..defined]), "{name}");
            assert_eq!((*ready, own.stop().len(), own.stop()[1]), (port, 204, client[205]));
        }
    }
}

/// Records on their way become the logs that the real server wrote, and go back.
#[test]
fn records_in_transit_are_those_of_the_log() {
    for (name, proto, stem) in
        [("remote-log-udp", 17, "itglog-udp"), ("remote-log-tcp", 6, "itglog-tcp")]
    {
        for side in ["send", "recv"] {
            let golden = std::path::PathBuf::from(env!("CARGO_MANIFEST_DIR"))
                .join(format!("tests/golden/dec/{stem}-{side}.log"));
            let want: Vec<LogRecord> = records(&std::fs::read(golden).expect("readable")).collect();
            let blocks: Vec<Vec<u8>> = read(&format!("{name}.pcap"))
                .into_iter()
                .filter(|packet| packet.proto == proto && packet.bytes.len() == 1440)
                .map(|packet| packet.bytes)
                .collect();
            assert_eq!(blocks.len(), 2, "{name}: one block a side");
            let found = blocks.iter().any(|block| {
                let mut bytes = block.clone();
                bytes.extend_from_slice(b"a part of a record");
                let file = to_file(&mut bytes);
                assert_eq!(bytes, b"a part of a record");
                records(&file).collect::<Vec<_>>() == want
            });
            assert!(found, "{name} {side}");
            // Ours lose nothing on the way (M6).
            let mut travelled = block(&want);
            for (back, want) in records(&to_file(&mut travelled)).zip(&want) {
                assert!((back.rx.seconds() - want.rx.seconds()).abs() < 1e-9);
            }
        }
    }
}

#[test]
fn managers_are_answered_byte_for_byte() {
    let datagrams: Vec<_> = read("daemon.pcap")
        .into_iter()
        .filter(|packet| packet.proto == 17 && (packet.src == 8998 || packet.dst == 8998))
        .map(|packet| packet.bytes)
        .collect();
    let [request, started, ended] = datagrams.as_slice() else { panic!("three datagrams") };
    assert_eq!(&reply_started(request), started);
    assert_eq!(&reply_ended(request), ended);
    assert_eq!(reply_text(started), Some((ReplyKind::Started, &request[..request.len() - 5])));
    assert_eq!(reply_text(ended), Some((ReplyKind::Ended, request.as_slice())));
    assert_eq!(reply_text(b"short"), None);
    for len in 0..20 {
        let request = vec![b'x'; len];
        assert_eq!(reply_started(&request).len(), len + 3);
        assert_eq!(reply_ended(&request).len(), len + 8);
    }
}

/// The failed run of the capture: our receiver would have refused the log, not died.
#[test]
fn a_log_server_that_is_not_there_is_refused() {
    let chunks = &conversations("remote-log-tcp-race-fail.pcap", PORT_SIGNALLING)[0];
    let config = ReceiverConfig { passive: false, flows_max: 1, silence_ns: ANSWER_NS };
    let mut channel = ReceiverChannel::new(config, 0);
    let mut out = Vec::new();
    channel.handle(0, ReceiverInput::Bytes(&said(chunks, false)), &mut out);
    assert!(matches!(
        out.last(),
        Some(ReceiverOutput::OpenLog(RecvLog::Server { proto: LogProto::Tcp, .. }))
    ));
    channel.handle(0, ReceiverInput::LogOpened(false), &mut out);
    assert_eq!(out.last(), Some(&ReceiverOutput::Send(vec![21])));
    assert_eq!(Refusal::Bind as u8, 15);
}
