//! Any bytes at both sides of D-ITG's signalling, at its log server and in its streams: no panic,
//! messages come back unchanged, and no side outgrows its input. The first byte says how the rest is
//! cut and whether the mode is passive.
#![no_main]

use itg_classic::send::{HeaderKind, LogProto, LogSettings, parse_request, parse_script};
use itg_classic::wire::{
    Daemon, DaemonConfig, DaemonOutput, LogClient, LogServerInput, LogServerSession, Manager,
    ReceiverChannel, ReceiverConfig, ReceiverInput, ReceiverMessage, ReceiverOutput, Refusal,
    SenderChannel, SenderConfig, SenderInput, SenderMessage, SenderOutput, StreamPackets,
    log_file_name, reply_ended, reply_started, reply_text,
};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&how, bytes)) = bytes.split_first() else { return };
    let passive = how & 1 == 1;
    messages(bytes, passive);
    let mut offers = Vec::new();
    let mut receiver =
        ReceiverChannel::new(ReceiverConfig { passive, flows_max: 4, silence_ns: 1_000 }, 0);
    let (mut server, mut out) = (LogServerSession::default(), Vec::new());
    let mut client = LogClient::new(LogProto::Tcp, b"log".to_vec());
    let mut streams =
        [HeaderKind::Standard, HeaderKind::Short, HeaderKind::None].map(StreamPackets::new);
    server.handle(LogServerInput::Connected, &mut out);
    let cut = usize::from(how >> 1) + 1;
    for (number, piece) in bytes.chunks(cut).enumerate() {
        let now = number as u64 * 300;
        serve(&mut receiver, now, piece, &mut offers);
        server.handle(LogServerInput::Bytes(piece), &mut out);
        server.handle(LogServerInput::Opened(Some(9500)), &mut out);
        client.bytes(piece, &mut Vec::new());
        for stream in &mut streams {
            let mut rest = piece;
            while let Ok(Some(packet)) = stream.next(&mut rest) {
                assert!(packet.size <= 64_000);
            }
        }
    }
    offers.truncate(20);
    let config = SenderConfig { log: None, offers, answer_ns: 1_000 };
    let mut sender = SenderChannel::new(config);
    let mut out = Vec::new();
    sender.handle(0, SenderInput::Connected, &mut out);
    for (number, piece) in bytes.chunks(cut).enumerate() {
        let now = number as u64 * 300;
        sender.handle(now, SenderInput::Bytes(piece), &mut out);
        for output in std::mem::take(&mut out) {
            match output {
                SenderOutput::Start { flow, .. } => {
                    sender.handle(now, SenderInput::Ended(flow), &mut out);
                }
                SenderOutput::Open(flow) => sender.handle(now, SenderInput::Ready(flow), &mut out),
                _ => {}
            }
        }
        sender.handle(now, SenderInput::Timer, &mut out);
    }
    let _ = log_file_name(bytes);
    let _ = reply_text(bytes);
    managers(bytes);
    let _ = (reply_started(bytes), reply_ended(bytes));
    if let Ok(text) = std::str::from_utf8(bytes) {
        let mut logs = LogSettings::default();
        let _ = parse_request(1, text, &mut logs);
        let _ = parse_script(text, &mut logs);
    }
});

fn messages(bytes: &[u8], passive: bool) {
    if let Ok(Some((message, len))) = SenderMessage::decode(bytes, passive) {
        assert!(len <= bytes.len());
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(SenderMessage::decode(&again, passive), Ok(Some((message, len))));
    }
    if let Ok(Some((message, len))) = ReceiverMessage::decode(bytes) {
        let mut again = Vec::new();
        message.encode(&mut again);
        assert_eq!(again, bytes[..len]);
    }
}

fn serve(
    receiver: &mut ReceiverChannel,
    now: u64,
    piece: &[u8],
    offers: &mut Vec<itg_classic::wire::FlowOffer>,
) {
    let mut out = Vec::new();
    receiver.handle(now, ReceiverInput::Bytes(piece), &mut out);
    let mut at = 0;
    while at < out.len() {
        match out[at].clone() {
            ReceiverOutput::OpenLog(_) => {
                receiver.handle(now, ReceiverInput::LogOpened(true), &mut out);
            }
            ReceiverOutput::OpenFlow(offer) => {
                offers.push(offer);
                let answer = if offer.flow % 5 == 0 { Err(Refusal::Bind) } else { Ok(offer.port) };
                receiver.handle(now, ReceiverInput::FlowOpened(answer), &mut out);
            }
            ReceiverOutput::EndFlow(flow) => {
                receiver.handle(now, ReceiverInput::FlowEnded(flow), &mut out);
            }
            ReceiverOutput::Close(_) => assert_eq!(at, out.len() - 1, "something after the end"),
            _ => {}
        }
        at += 1;
    }
    receiver.handle(now, ReceiverInput::Timer, &mut out);
}

/// A request is answered, and refused or run; an answer is taken.
fn managers(bytes: &[u8]) {
    let config = DaemonConfig { flows_max: 1, files: false };
    let mut daemon = Daemon::new(config, LogSettings::default());
    let mut manager = Manager::default();
    let _ = manager.reply(bytes);
    for _ in 0..2 {
        manager.sent(bytes);
        let mut out = Vec::new();
        daemon.request("a manager", true, bytes, &mut out);
        daemon.begun(1, &mut out);
        for output in out {
            if let DaemonOutput::Send { bytes, .. } = output {
                let _ = manager.reply(&bytes);
            }
        }
    }
    assert!(daemon.running() <= 1);
    let mut out = Vec::new();
    daemon.ended(1, None, &mut out);
    assert!(daemon.running() == 0 && out.len() <= 1);
}
