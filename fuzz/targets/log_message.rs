//! Any bytes as a message of the log protocol: refused, or written again into the same bytes; and a
//! producer and a log server that are told it, at any time, keep their accounts.
#![no_main]

use itg_session::logs::{
    LogBook, LogLimits, LogMessage, LogProducer, LogProducerConfig, LogServerConfig,
    LogServerSession, LogServerTimeouts, ProducerInput, ProducerTimeouts, Registration, Role,
    ServerInput, ServerOutput, Transport, decode, encode,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: LogLimits = LogLimits {
    producers: 2,
    experiments: 2,
    logs: 2,
    block_bytes: 4096,
    budget_bytes: 32 * 4096,
    producer_bytes: 8 * 4096,
    log_bytes: 1024,
    experiment_bytes: 2048,
    ranges: 4,
};

fn producer() -> LogProducer {
    let who = Registration {
        key: [1; 16],
        run: "run".to_owned(),
        host: "a".to_owned(),
        program: "p".to_owned(),
        role: Role::Sender,
        flows: 1,
        record_schema: 1,
        transport: Transport::Tcp,
        block_records: 40,
        block_bytes: 2048,
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    };
    let timeouts = ProducerTimeouts::default();
    let (max_unacked, memory_blocks) = (4, 4);
    let config =
        LogProducerConfig { who, max_unacked, memory_blocks, patience_ns: Some(0), timeouts };
    let mut machine = LogProducer::new(config, 0);
    let mut out = Vec::new();
    machine.handle(0, ProducerInput::Timer, &mut out);
    machine.handle(0, ProducerInput::Connected, &mut out);
    machine
}

fn server(id: u64) -> LogServerSession {
    let timeouts = LogServerTimeouts::default();
    let config = LogServerConfig {
        id,
        nonce: None,
        token: 7,
        data_port: 9003,
        record_schema: 1,
        timeouts,
    };
    LogServerSession::new(config, 0)
}

/// Tells both machines a message, with a block after it.
fn tell(
    at: u64,
    message: LogMessage,
    producer: &mut LogProducer,
    session: &mut LogServerSession,
    book: &mut LogBook,
) {
    let mut out = Vec::new();
    producer.handle(at, ProducerInput::Message(message.clone()), &mut out);
    let block_no = producer.next_block();
    producer.handle(at, ProducerInput::BlockReady { block_no, records: 1, bytes: 104 }, &mut out);

    let mut inputs = vec![ServerInput::Message(message)];
    while let Some(input) = inputs.pop() {
        let mut out = Vec::new();
        session.handle(at, input, book, &mut out);
        for output in out {
            match output {
                ServerOutput::Open { run } => {
                    book.restore(&run, Vec::new());
                    inputs.push(ServerInput::Opened(Ok(())));
                }
                ServerOutput::Store { block_no, .. } => {
                    inputs.push(ServerInput::Stored { block_no });
                }
                _ => {}
            }
        }
    }
    if let Some((_, log_id)) = session.log() {
        let block_no = u32::try_from(at % 64).expect("small");
        let block = ServerInput::Block { log_id, block_no, records: 1, bytes: 104, checksum: 0, intact: true };
        session.handle(at, block, book, &mut Vec::new());
    }
    assert!(book.outstanding_bytes() <= LIMITS.budget_bytes);
    assert!(book.producers() <= LIMITS.producers);
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(message) = decode(bytes) {
        let again = encode(&message).expect("it came in a message");
        let back = decode(&again).expect("just written");
        assert_eq!(encode(&back).expect("as before"), again);
    }
    // The same bytes as a conversation: a length of two bytes in front of each message.
    let (mut producer, mut session) = (producer(), server(1));
    let mut book = LogBook::new(LIMITS);
    let (mut rest, mut at) = (bytes, 0);
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (message, after) = after.split_at(length);
        rest = after;
        at += 1;
        if let Ok(message) = decode(message) {
            tell(at, message, &mut producer, &mut session, &mut book);
        }
    }
});
