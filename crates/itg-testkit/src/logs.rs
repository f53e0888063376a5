//! Logs of runs that never were.

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec};
use itg_core::schedule::Departure;
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, ClockPair, FlowEnd, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, ReceivedPacket,
    Record, SentPacket, Side,
};

/// Start of all test flows: a Unix time in 2027, in nanoseconds.
pub const EPOCH: u64 = 1_800_000_000_000_000_000;
/// Seed of all test runs.
pub const SEED: u64 = 42;

/// Contents of a log's first note, as far as it matters.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// Number of the log.
    pub log_id: u32,
    /// Side that writes it.
    pub side: Side,
    /// Boot of its host.
    pub boot_id: &'a str,
    /// Seed of the run and of its flows.
    pub seed: u64,
    /// Records of a block.
    pub block_records: u32,
    /// Settings of the program.
    pub settings: &'a [(&'a str, &'a str)],
}

impl<'a> Setup<'a> {
    /// Log 1 of a sender, or 2 of a receiver, in blocks of 16 records.
    #[must_use]
    pub fn new(side: Side, boot_id: &'a str) -> Self {
        let log_id = if side == Side::Sender { 1 } else { 2 };
        Self { log_id, side, boot_id, seed: SEED, block_records: 16, settings: &[("proto", "udp")] }
    }
}

/// A log while it is written.
#[derive(Debug)]
pub struct TestLog {
    seed: u64,
    builder: LogBuilder,
    bytes: Vec<u8>,
    block: BlockBuf,
}

impl TestLog {
    /// The usual log of this side.
    #[must_use]
    pub fn new(side: Side, boot_id: &str) -> Self {
        Self::of(Setup::new(side, boot_id))
    }

    /// The same with another number.
    #[must_use]
    pub fn with_id(log_id: u32, side: Side, boot_id: &str) -> Self {
        Self::of(Setup { log_id, ..Setup::new(side, boot_id) })
    }

    /// A log that begins with this.
    #[must_use]
    pub fn of(setup: Setup<'_>) -> Self {
        let Setup { log_id, side, boot_id, seed, block_records, settings } = setup;
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
            seed: sender.then_some(seed),
            settings: settings.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
            block_records,
            part: None,
        }));
        let block = BlockBuf::new(usize::try_from(block_records).expect("a small number"));
        Self { seed, builder, bytes, block }
    }

    /// Adds a note.
    pub fn note(&mut self, note: &Note) {
        self.flush();
        self.bytes.extend(self.builder.note(note));
    }

    /// Adds a flow, between hosts in these boots.
    pub fn flow(&mut self, index: u32, spec: &FlowSpec, boot_ids: [&str; 2]) {
        self.named_flow(index, spec, boot_ids, None);
    }

    /// Adds a flow with the name that its experiment gives it.
    pub fn named_flow(
        &mut self,
        index: u32,
        spec: &FlowSpec,
        boot_ids: [&str; 2],
        name: Option<&str>,
    ) {
        let src = format!("10.0.0.1:{}", 40_000 + spec.id);
        let name = name.map(ToOwned::to_owned);
        let info = self.describe(index, spec, boot_ids, "c0ffee", &src);
        self.note(&Note::Flow(FlowInfo { name, ..info }));
    }

    /// A flow of a run, sent from somewhere.
    pub fn flow_of(
        &mut self,
        index: u32,
        spec: &FlowSpec,
        boot_ids: [&str; 2],
        run: &str,
        src: &str,
    ) {
        self.note(&Note::Flow(self.describe(index, spec, boot_ids, run, src)));
    }

    fn describe(
        &self,
        index: u32,
        spec: &FlowSpec,
        boot_ids: [&str; 2],
        run: &str,
        src: &str,
    ) -> FlowInfo {
        FlowInfo {
            changes: Vec::new(),
            index,
            flow: spec.id,
            name: None,
            run: run.to_owned(),
            seed: self.seed,
            spec: spec.clone(),
            src: src.to_owned(),
            dst: "10.0.0.2:8999".to_owned(),
            epoch_unix_ns: EPOCH,
            sender_boot_id: boot_ids[0].to_owned(),
            receiver_boot_id: boot_ids[1].to_owned(),
            notices: vec![],
            ditg: None,
        }
    }

    /// Adds the end of a flow.
    pub fn end_flow(&mut self, end: FlowEnd) {
        self.note(&Note::FlowEnd(end));
    }

    /// Adds a look at the clocks of the host.
    pub fn clock(&mut self) {
        self.note(&Note::Clock(ClockPair {
            unix_ns: EPOCH,
            monotonic_ns: 5_000,
            max_error_ns: Some(16_000),
            synchronised: Some(true),
        }));
    }

    /// Adds records.
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

    /// The bytes written since the last call, for logs that are larger than memory.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// The log of a writer that was killed: without an end.
    #[must_use]
    pub fn killed(mut self) -> Vec<u8> {
        self.flush();
        self.bytes
    }

    /// The whole log.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.finish_lacking(0)
    }

    /// The log of a writer that could not write so many records.
    #[must_use]
    pub fn finish_lacking(mut self, lost_records: u64) -> Vec<u8> {
        self.flush();
        self.bytes.extend(self.builder.end(lost_records));
        self.bytes
    }
}

/// The blocks of a sound log, one by one.
#[must_use]
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
#[must_use]
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
#[must_use]
pub fn compacted(log: &[u8]) -> Vec<u8> {
    itg_record::compact(log).collect::<Vec<_>>().concat()
}

/// The end of a flow of which nothing was counted.
#[must_use]
pub fn end(index: u32) -> FlowEnd {
    FlowEnd::new(index, "all packets sent")
}

/// A UDP flow of `packets` packets.
#[must_use]
pub fn spec(id: u32, idt: &str, size: &str, packets: u64) -> FlowSpec {
    FlowSpec::new(id)
        .idt(Distribution::parse(idt, Unit::Time).expect("a distribution of time"))
        .size(Distribution::parse(size, Unit::Size).expect("a distribution of sizes"))
        .packets(packets)
}

/// Departures that the seed plans for a flow.
#[must_use]
pub fn plan(spec: &FlowSpec) -> Vec<Departure> {
    Flow::resolve(spec.clone(), RunSeed(SEED)).expect("a flow that runs").schedule().collect()
}

/// The two logs of one run of two flows on one host: flow 1 loses every seventh packet, gets every
/// tenth twice and two out of order; flow 2 is a clean Poisson process.
#[must_use]
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
            sent.push(Record::sent(SentPacket {
                flow: index,
                seq: d.seq,
                size: d.size,
                planned_ns: d.due_ns,
                sent_ns: at,
            }));
            let there = at + 50_000 + d.seq * 7_919 % 20_011;
            let record = Record::received(ReceivedPacket {
                flow: 5 - index,
                seq: d.seq,
                size: d.size,
                sent_ns: at,
                arrived_ns: there,
                read_ns: there + 700,
                ttl: 64,
                tos: 0,
            });
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
