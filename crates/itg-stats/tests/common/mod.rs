//! Logs for tests, written with itg-record.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses its part")]

use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::law::{Law, Unit};
use itg_core::schedule::Departure;
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, ClockPair, FlowEnd, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, Record, Side,
};

/// Start of all test flows: a Unix time in 2027, in nanoseconds.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;
/// Seed of all test runs.
pub const SEED: u64 = 42;

/// A log while it is written, in blocks of 16 records.
pub struct TestLog {
    builder: LogBuilder,
    bytes: Vec<u8>,
    block: BlockBuf,
}

impl TestLog {
    pub fn new(side: Side, boot_id: &str) -> Self {
        Self::with_id(if side == Side::Sender { 1 } else { 2 }, side, boot_id)
    }

    pub fn with_id(log_id: u32, side: Side, boot_id: &str) -> Self {
        Self::with_settings(log_id, side, boot_id, &[("proto", "udp")])
    }

    pub fn with_settings(
        log_id: u32,
        side: Side,
        boot_id: &str,
        settings: &[(&str, &str)],
    ) -> Self {
        let mut builder = LogBuilder::new(log_id);
        let sender = side == Side::Sender;
        let bytes = builder.note(&Note::Log(LogInfo {
            schema: LOG_SCHEMA,
            side,
            program: if sender { "itg-send" } else { "itg-recv" }.to_owned(),
            version: "0.1.0".to_owned(),
            host: if sender { "alpha" } else { "beta" }.to_owned(),
            os: "Linux".to_owned(),
            boot_id: boot_id.to_owned(),
            pid: 7,
            started_unix_ns: EPOCH - 1_000_000,
            run: if sender { "c0ffee" } else { "" }.to_owned(),
            seed: sender.then_some(SEED),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            block_records: 16,
        }));
        Self { builder, bytes, block: BlockBuf::new(16) }
    }

    pub fn note(&mut self, note: &Note) {
        self.flush();
        self.bytes.extend(self.builder.note(note));
    }

    pub fn flow(&mut self, index: u32, spec: &FlowSpec, boot_ids: [&str; 2]) {
        self.note(&Note::Flow(FlowInfo {
            changes: Vec::new(),
            index,
            flow: spec.id,
            run: "c0ffee".to_owned(),
            seed: SEED,
            spec: spec.clone(),
            src: format!("10.0.0.1:{}", 40_000 + spec.id),
            dst: "10.0.0.2:8999".to_owned(),
            epoch_unix_ns: EPOCH,
            sender_boot_id: boot_ids[0].to_owned(),
            receiver_boot_id: boot_ids[1].to_owned(),
            notices: vec![],
        }));
    }

    pub fn end_flow(&mut self, end: FlowEnd) {
        self.note(&Note::FlowEnd(end));
    }

    pub fn clock(&mut self) {
        self.note(&Note::Clock(ClockPair {
            unix_ns: EPOCH,
            monotonic_ns: 5_000,
            max_error_ns: Some(16_000),
            synchronised: Some(true),
        }));
    }

    pub fn records(&mut self, records: impl IntoIterator<Item = Record>) {
        for record in records {
            if self.block.is_full() {
                self.flush();
            }
            self.block.push(&record);
        }
    }

    fn flush(&mut self) {
        if !self.block.is_empty() {
            self.bytes.extend(self.builder.seal(&mut self.block));
            self.block.clear();
        }
    }

    pub fn finish(mut self) -> Vec<u8> {
        self.flush();
        self.bytes.extend(self.builder.end(0));
        self.bytes
    }
}

/// The blocks of a sound log, one by one.
pub fn blocks(mut log: &[u8]) -> Vec<&[u8]> {
    let mut blocks = Vec::new();
    while !log.is_empty() {
        let len = u64::from_le_bytes(log[16..24].try_into().expect("a header"));
        let (block, rest) = log.split_at(usize::try_from(len).expect("a length"));
        blocks.push(block);
        log = rest;
    }
    blocks
}

/// Several logs in one file, as a log server writes them: a block of each by turns.
pub fn interleave(logs: &[&[u8]]) -> Vec<u8> {
    let mut queues: Vec<_> = logs.iter().map(|log| blocks(log).into_iter()).collect();
    let mut file = Vec::new();
    loop {
        let before = file.len();
        queues.iter_mut().filter_map(Iterator::next).for_each(|block| file.extend(block));
        if file.len() == before {
            return file;
        }
    }
}

/// The log with its records in column blocks.
pub fn compacted(log: &[u8]) -> Vec<u8> {
    itg_record::compact(log).collect::<Vec<_>>().concat()
}

/// The end of a flow of which nothing was counted.
pub fn end(index: u32) -> FlowEnd {
    FlowEnd {
        index,
        sent_packets: None,
        sent_bytes: None,
        skipped_packets: None,
        received_packets: None,
        received_bytes: None,
        log_lost_records: 0,
        socket_drops: None,
        buffer_errors: None,
        receive_buffer: None,
        reason: "all packets sent".to_owned(),
    }
}

/// A UDP flow of `packets` packets.
pub fn spec(id: u32, idt: &str, size: &str, packets: u64) -> FlowSpec {
    FlowSpec {
        idt: Law::parse(idt, Unit::Time).expect("a law of time"),
        size: Law::parse(size, Unit::Size).expect("a law of sizes"),
        stop: Stop { packets: Some(packets), ..Stop::default() },
        ..FlowSpec::new(id)
    }
}

/// What the seed plans for a flow.
pub fn plan(spec: &FlowSpec) -> Vec<Departure> {
    Flow::resolve(spec.clone(), RunSeed(SEED)).expect("a flow that runs").schedule().collect()
}

/// The two logs of one run of two flows on one host: flow 1 loses every seventh packet, gets every
/// tenth twice and two out of order; flow 2 is a clean Poisson process.
pub fn run_of_two_flows() -> [Vec<u8>; 2] {
    let mut sender = TestLog::new(Side::Sender, "boot-a");
    let mut receiver = TestLog::new(Side::Receiver, "boot-a");
    let specs = [
        spec(1, "constant(10ms)", "constant(100)", 70),
        spec(2, "exp(7ms)", "uniform(60,600)", 90),
    ];
    for (spec, index) in specs.iter().zip(0..) {
        sender.flow(index, spec, ["boot-a", "boot-a"]);
        // The receiver numbers its flows as they come.
        receiver.flow(5 - index, spec, ["boot-a", "boot-a"]);
    }
    for (spec, index) in specs.iter().zip(0..) {
        let (mut sent, mut arrived) = (Vec::new(), Vec::new());
        for d in plan(spec) {
            let at = EPOCH + d.due_ns + 1_000 + d.seq * 37 % 500;
            sent.push(Record::sent(index, d.seq, d.size, d.due_ns, at));
            let there = at + 50_000 + d.seq * 7_919 % 20_011;
            let record = Record::received(5 - index, d.seq, d.size, at, there, there + 700, 64, 0);
            if index == 0 && d.seq % 7 == 3 {
                continue;
            }
            arrived.push(record);
            if index == 0 && d.seq % 10 == 0 {
                arrived.push(record);
            }
        }
        if index == 0 {
            arrived.swap(20, 21);
            arrived.swap(40, 42);
        }
        let counted = FlowEnd {
            sent_packets: Some(sent.len() as u64),
            skipped_packets: Some(0),
            received_packets: Some(arrived.len() as u64),
            ..end(index)
        };
        sender.records(sent);
        receiver.records(arrived);
        sender.end_flow(counted.clone());
        receiver.end_flow(FlowEnd { index: 5 - index, ..counted });
    }
    receiver.clock();
    [sender.finish(), receiver.finish()]
}
