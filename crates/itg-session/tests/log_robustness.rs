//! Peers and drivers that do anything at all: no panic, no growth, sums that add up, an end in time.
#![allow(missing_docs, clippy::cast_possible_truncation, reason = "a test program")]

use std::collections::BTreeSet;

use crate::log_messages::{any_log_message, registration};
use itg_session::logs::{
    LogBook, LogLimits, LogMessage, LogProducer, LogProducerConfig, LogServerConfig,
    LogServerSession, LogServerTimeouts, ProducerInput, ProducerOutput, ProducerTimeouts,
    RestoredLog, ServerInput, ServerOutput, SpooledBlock, SpooledLog, Transport, decode,
};
use proptest::prelude::*;

const SECOND: u64 = 1_000_000_000;
/// Timer events after which a machine that hears nothing more must have ended.
const TIMERS: usize = 400;
/// Sessions of the server under test.
const SESSIONS: u64 = 4;

/// Something happens.
#[derive(Clone, Debug)]
enum Step {
    /// The input that a well-behaved peer or driver would give next.
    Proper,
    Message(LogMessage),
    Bytes(Vec<u8>),
    Timer,
    /// The driver says anything, about this block.
    Driver(u8, u32),
}

fn any_steps() -> impl Strategy<Value = Vec<(u64, u64, Step)>> {
    let step = prop_oneof![
        12 => Just(Step::Proper),
        2 => any_log_message().prop_map(Step::Message),
        1 => prop::collection::vec(any::<u8>(), 0..40).prop_map(Step::Bytes),
        1 => Just(Step::Timer),
        5 => (0u8..10, 0u32..12).prop_map(|(what, n)| Step::Driver(what, n)),
    ];
    let wait = prop_oneof![20 => 0u64..500_000_000, 1 => any::<u64>()];
    prop::collection::vec((wait, 0..SESSIONS, step), 0..150)
}

fn limits() -> LogLimits {
    LogLimits {
        producers: 3,
        experiments: 2,
        logs: 3,
        block_bytes: 4096,
        budget_bytes: 12 * 4096,
        producer_bytes: 4 * 4096,
        log_bytes: 1 << 20,
        experiment_bytes: 2 << 20,
        ranges: 4,
    }
}

/// A session with what its driver has to answer.
struct Session {
    machine: LogServerSession,
    owed: Vec<ServerInput>,
    stores: Vec<u32>,
    next_block: u32,
}

impl Session {
    fn new(id: u64, now: u64, secret: bool) -> Self {
        let config = LogServerConfig {
            id,
            nonce: secret.then_some([7; 32]),
            token: id,
            data_port: 9003,
            record_schema: 7,
            timeouts: LogServerTimeouts::default(),
        };
        let machine = LogServerSession::new(config, now);
        Self { machine, owed: Vec::new(), stores: Vec::new(), next_block: 0 }
    }

    /// Hands an input over and checks what comes out.
    fn tell(&mut self, now: u64, input: ServerInput, book: &mut LogBook) -> Vec<ServerOutput> {
        let was_over = self.machine.is_over();
        let is_block = matches!(input, ServerInput::Block { .. });
        let mut out = Vec::new();
        self.machine.handle(now, input, book, &mut out);
        let mut verdicts = 0;
        for output in &out {
            match output {
                ServerOutput::Open { run } => {
                    book.restore(run, Vec::<RestoredLog>::new());
                    self.owed.push(ServerInput::Opened(Ok(())));
                }
                ServerOutput::Check { .. } => self.owed.push(ServerInput::Checked(true)),
                ServerOutput::Store { block_no, .. } => {
                    self.stores.push(*block_no);
                    verdicts += 1;
                }
                ServerOutput::Duplicate { .. } | ServerOutput::Discard { .. } => verdicts += 1,
                ServerOutput::Send(_) | ServerOutput::Disconnect { .. } => {
                    assert!(!was_over, "{output:?} after the end");
                }
                _ => {}
            }
        }
        assert_eq!(verdicts, usize::from(is_block), "{out:?}");
        assert_eq!(self.stores.len(), self.machine.unsettled());
        out
    }

    /// The input that a proper producer and a proper driver would give next.
    fn proper(&mut self, id: u64) -> ServerInput {
        if let Some(owed) = self.owed.pop() {
            return owed;
        }
        if self.stores.len() > 1 {
            return ServerInput::Stored { block_no: self.stores.remove(0) };
        }
        match self.machine.log() {
            None => {
                let mut who = registration(u8::try_from(id % 2).expect("small"));
                who.next_block = 0;
                if id == 3 {
                    who.transport = Transport::Udp;
                }
                ServerInput::Message(LogMessage::register(who, Some([0; 32])))
            }
            Some((_, log_id)) => {
                let block_no = self.next_block;
                self.next_block += 1;
                ServerInput::Block {
                    log_id,
                    block_no,
                    records: 3,
                    bytes: 184,
                    checksum: 1,
                    intact: true,
                }
            }
        }
    }
}

fn server_step(session: &mut Session, id: u64, step: Step) -> ServerInput {
    use ServerInput as I;
    match step {
        Step::Proper => session.proper(id),
        Step::Message(message) => I::Message(message),
        Step::Bytes(bytes) => match decode(&bytes) {
            Ok(message) => I::Message(message),
            Err(error) => I::Garbage(error),
        },
        Step::Timer => I::Timer,
        Step::Driver(0, n) => I::Bind { log_id: n, token: id },
        Step::Driver(1, n) => I::Checked(n % 2 == 0),
        Step::Driver(2, n) => I::Opened(if n % 2 == 0 { Ok(()) } else { Err("no".to_owned()) }),
        Step::Driver(3, n) if session.stores.is_empty() => I::Stored { block_no: n },
        Step::Driver(3, n) => {
            let place = n as usize % session.stores.len();
            I::Stored { block_no: session.stores.remove(place) }
        }
        Step::Driver(4, _) if !session.stores.is_empty() => {
            let reason = "input/output error".to_owned();
            I::StoreFailed { block_no: session.stores.remove(0), reason }
        }
        Step::Driver(5, _) => I::Lost("reset".to_owned()),
        Step::Driver(6, 0) => I::Shutdown("terminated".to_owned()),
        Step::Driver(7, n) => I::Message(LogMessage::Leave {
            blocks: n,
            records: 0,
            dropped_blocks: 0,
            dropped_records: 0,
            per_flow: Vec::new(),
            flows_left_out: 0,
        }),
        Step::Driver(8, n) => {
            let log_id = session.machine.log().map_or(1, |(_, log_id)| log_id);
            let block_no = if n == 0 { u32::MAX } else { n * 7 };
            I::Block {
                log_id,
                block_no,
                records: u32::MAX,
                bytes: n * 500,
                checksum: n,
                intact: n != 3,
            }
        }
        Step::Driver(..) => I::Woken,
    }
}

fn producer(transport: Transport, spools: bool, resumed: bool) -> LogProducer {
    let config = LogProducerConfig {
        who: itg_session::logs::Registration { transport, ..registration(1) },
        max_unacked: 3,
        memory_blocks: 4,
        patience_ns: spools.then_some(SECOND),
        timeouts: ProducerTimeouts::default(),
    };
    if !resumed {
        return LogProducer::new(config, 0);
    }
    let block = |block_no| SpooledBlock { block_no, records: 3 };
    let log = SpooledLog {
        spool: vec![block(2), block(5)],
        blocks: 7,
        records: 18,
        dropped_blocks: 1,
        dropped_records: 3,
    };
    LogProducer::resume(config, log, 0)
}

fn producer_step(machine: &LogProducer, said: &[ProducerOutput], step: Step) -> ProducerInput {
    use {LogMessage as M, ProducerInput as I, ProducerOutput as O};
    let next = machine.next_block();
    match step {
        Step::Proper => match said.last() {
            Some(O::Connect) => I::Connected,
            Some(O::Prove { .. }) => I::Proof([0; 32]),
            Some(O::Send(M::Register { who, .. })) => I::Message(M::Registered {
                magic: *b"ITGL",
                version: itg_session::logs::LOG_VERSION,
                log_id: 1,
                data_port: if who.transport == Transport::Udp { 9003 } else { 0 },
                token: 1,
                credit: 2,
                stored_to: who.next_block,
            }),
            Some(O::SendBind(_)) => I::Message(M::Bound),
            Some(O::SendBlock { block_no } | O::Unspool { block_no }) if next.is_multiple_of(2) => {
                let (stored_to, credit) = (block_no + 1, block_no + 4);
                I::Message(M::Ack { stored_to, credit })
            }
            Some(O::SendBlock { block_no } | O::Unspool { block_no }) => {
                I::BlockSent { block_no: *block_no }
            }
            _ if next < 30 => I::BlockReady { block_no: next, records: next, bytes: 104 },
            _ => I::Timer,
        },
        Step::Message(message) => I::Message(message),
        Step::Bytes(bytes) => match decode(&bytes) {
            Ok(message) => I::Message(message),
            Err(error) => I::Garbage(error),
        },
        Step::Timer => I::Timer,
        Step::Driver(0, n) => I::BlockSent { block_no: n },
        Step::Driver(1, n) if n < next => I::Dropped { block_no: n, records: 1 },
        Step::Driver(1, _) => I::Dropped { block_no: next, records: 2 },
        Step::Driver(2, _) => I::Proof([1; 32]),
        Step::Driver(3, _) => I::Connected,
        Step::Driver(4, _) => I::Lost("reset".to_owned()),
        Step::Driver(5, 0) => I::Close { per_flow: vec![(0, 1); 5000] },
        Step::Driver(6, n) => I::Message(M::Ack { stored_to: n, credit: n + 4 }),
        Step::Driver(..) => I::BlockReady { block_no: next, records: 1, bytes: 104 },
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn a_server_bears_anything(steps in any_steps(), secret in any::<bool>()) {
        let mut book = LogBook::new(limits());
        let mut now = 0u64;
        let mut sessions: Vec<Session> =
            (0..SESSIONS).map(|id| Session::new(id, 0, secret)).collect();
        for (wait, id, step) in steps {
            now = now.saturating_add(wait);
            let session = &mut sessions[id as usize];
            if let Step::Driver(9, n) = step {
                if n % 2 == 0 { book.disk_full() } else { drop(book.disk_free()) }
            }
            let input = server_step(session, id, step);
            let out = session.tell(now, input, &mut book);
            prop_assert!(out.len() < 20, "{:?}", out);
            for other in out {
                if let ServerOutput::Wake(other) = other {
                    sessions[other as usize].tell(now, ServerInput::Woken, &mut book);
                }
            }
            prop_assert!(book.outstanding_bytes() <= limits().budget_bytes);
            prop_assert!(book.producers() <= limits().producers);
        }
        // Nothing more is said: all sessions end by their deadlines and give everything back.
        for session in &mut sessions {
            for _ in 0..TIMERS {
                let Some(deadline) = session.machine.deadline() else { break };
                now = now.max(deadline);
                session.tell(now, ServerInput::Timer, &mut book);
                let next = session.machine.deadline();
                prop_assert!(now == u64::MAX || next.is_none_or(|at| at > now), "stuck");
            }
            prop_assert!(session.machine.is_over() || now == u64::MAX);
            session.tell(now, ServerInput::Lost("gone".to_owned()), &mut book);
            while let Some(block_no) = session.stores.pop() {
                session.tell(now, ServerInput::Stored { block_no }, &mut book);
            }
        }
        prop_assert_eq!((book.producers(), book.outstanding_bytes()), (0, 0));
        for run in ["voip", "run"] {
            for log_id in 0..5 {
                prop_assert_eq!(book.log(run, log_id).map_or(0, |log| log.pending), 0);
            }
        }
    }

    #[test]
    fn a_producer_bears_anything(
        steps in any_steps(),
        udp in any::<bool>(),
        spools in any::<bool>(),
        resumed in prop::bool::weighted(0.2),
    ) {
        let transport = if udp { Transport::Udp } else { Transport::Tcp };
        let mut machine = producer(transport, spools, resumed);
        let (mut now, mut said, mut end) = (0u64, Vec::new(), None);
        // Buffers and spooled blocks that the driver keeps.
        let (mut buffers, mut spool) = (BTreeSet::new(), BTreeSet::new());
        if resumed {
            spool.extend([2, 5]);
        }
        let close = (0, 0, Step::Driver(5, 0));
        let timers = std::iter::repeat_n((0, 0, Step::Timer), TIMERS);
        let steps = steps.into_iter().map(|step| (step, false));
        let last = std::iter::once(close).chain(timers).map(|step| (step, true));
        for ((wait, _, step), in_peace) in steps.chain(last) {
            now = now.saturating_add(wait);
            let alone = in_peace && matches!(step, Step::Timer);
            if alone {
                let Some(deadline) = machine.deadline() else { break };
                now = now.max(deadline);
            }
            let input = producer_step(&machine, &said, step);
            match &input {
                ProducerInput::BlockReady { block_no, .. } if !machine.is_over() => {
                    buffers.insert(*block_no);
                }
                ProducerInput::Dropped { block_no, .. } => {
                    spool.remove(block_no);
                }
                _ => {}
            }
            let was_over = machine.is_over();
            said.clear();
            machine.handle(now, input, &mut said);
            prop_assert!(!was_over || said.is_empty());
            for output in &said {
                match output {
                    ProducerOutput::SendBlock { block_no } => {
                        prop_assert!(buffers.contains(block_no), "{:?}", output);
                    }
                    ProducerOutput::Unspool { block_no } => {
                        prop_assert!(spool.contains(block_no), "{:?}", output);
                    }
                    ProducerOutput::Spool { block_no } => {
                        prop_assert!(buffers.remove(block_no), "{:?}", output);
                        spool.insert(*block_no);
                    }
                    ProducerOutput::Release { up_to } => {
                        buffers.retain(|block_no| block_no >= up_to);
                        spool.retain(|block_no| block_no >= up_to);
                    }
                    ProducerOutput::Finished(fate) | ProducerOutput::Failed { fate, .. } => {
                        prop_assert!(end.is_none());
                        end = Some(fate.clone());
                    }
                    _ => {}
                }
            }
            if !machine.is_over() {
                prop_assert_eq!(machine.in_memory(), buffers.len());
                let stuck = alone && machine.deadline().is_none_or(|at| at <= now);
                prop_assert!(now == u64::MAX || !stuck, "stuck at {}", now);
            }
        }
        if now == u64::MAX {
            return Ok(());
        }
        let fate = end.expect("it ends by its deadlines");
        let records = fate.stored_records
            + fate.missing_records
            + fate.dropped_records
            + fate.spooled_records
            + fate.unconfirmed_records;
        let blocks = fate.stored_blocks
            + fate.missing_blocks
            + fate.dropped_blocks
            + fate.spooled_blocks
            + fate.unconfirmed_blocks;
        prop_assert_eq!((records, blocks), (fate.records, fate.blocks), "{:?}", fate);
        prop_assert_eq!(fate.blocks, u64::from(machine.next_block()));
    }
}
