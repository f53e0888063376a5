//! Logs of the sender and of the receiver: the product's producer and files, and the truth about them.
//!
//! The thread that fills blocks, and its queue to the writer, are not shared with the product (`itg_engine::log`): here
//! they are one step. The bound on buffers and the rule of leaving out blocks are the same.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::io::IoSlice;
use std::rc::Rc;

use itg_record::{BLOCK_HEADER_LEN, BlockBuf, LogBuilder, LogInfo, Note, RECORD_LEN, Record, Side};
use itg_session::logs::keep::{
    BlockFile, Fsync, GiveBack, LogLink, RemoteEnd, RemoteLog, Spool, SpoolRest,
};
use itg_session::logs::{
    FrameHead, LogFate, LogProducer, LogProducerConfig, ProducerInput, ProducerTimeouts,
    Registration, Role, Transport,
};

use super::disk::SimFile;
use super::planted::Planted;

/// Records of a datagram.
const DATAGRAM_RECORDS: usize = 5;

/// Wish of a log to the network.
#[derive(Debug)]
pub enum Wish {
    Connect,
    HangUp,
    Write(Vec<u8>),
    Datagram(Vec<u8>),
}

/// The network as a log sees it: wishes, carried out when the log has had its turn.
#[derive(Debug)]
pub struct SimLink {
    pub now: Rc<Cell<u64>>,
    pub wishes: Vec<Wish>,
}

impl LogLink for SimLink {
    fn now_ns(&self) -> u64 {
        self.now.get()
    }

    fn connect(&mut self) -> Result<(), String> {
        self.wishes.push(Wish::Connect);
        Ok(())
    }

    fn hang_up(&mut self) {
        self.wishes.push(Wish::HangUp);
    }

    fn write(&mut self, head: FrameHead, [first, second]: [&[u8]; 2]) -> Result<(), String> {
        self.wishes.push(Wish::Write([&head.to_bytes(), first, second].concat()));
        Ok(())
    }

    fn prove(&self, _: &[u8]) -> [u8; 32] {
        [0; 32]
    }

    fn open_datagrams(&mut self, _: u16) -> Result<(), String> {
        Ok(())
    }

    fn send_datagram(&mut self, bytes: &[u8]) {
        self.wishes.push(Wish::Datagram(bytes.to_vec()));
    }

    fn send_blocks(&mut self, blocks: &[[&[u8]; 2]]) {
        self.wishes.extend(blocks.iter().map(|block| Wish::Datagram(block.concat())));
    }

    fn failed(&mut self, _: String) {}
}

/// Counts the buffers that are in use.
#[derive(Debug)]
pub struct Lender(Rc<Cell<usize>>);

impl GiveBack for Lender {
    fn give(&self, _: BlockBuf) {
        self.0.set(self.0.get() - 1);
    }
}

/// A log file of a host, as `itg_engine::log::file` writes it.
#[derive(Debug)]
pub struct FileLog {
    pub file: BlockFile<SimFile>,
    builder: LogBuilder,
    failed: bool,
    pub records: u64,
}

#[derive(Debug)]
pub enum Way {
    File(FileLog),
    Remote(Box<RemoteLog<SimLink, SimFile, Lender>>),
}

/// Settings of a log.
#[derive(Clone, Debug)]
pub struct LogPlan {
    pub side: Side,
    /// Experiment at the log server, or file.
    pub name: String,
    pub key: [u8; 16],
    pub transport: Transport,
    pub block_records: usize,
    pub most_blocks: usize,
    pub fsync: Fsync,
}

/// End of a log.
#[derive(Clone, Debug)]
pub struct LogEnding {
    pub fate: Option<LogFate>,
    pub reason: Option<String>,
    /// Records that its owner is told to be missing.
    pub lost_records: u64,
    /// Records that its owner is told to be stored.
    pub records: u64,
}

/// A log, from its first record to its end.
#[derive(Debug)]
pub struct SimLog {
    pub plan: LogPlan,
    pub way: Way,
    pub connection: Option<usize>,
    /// Of the clock of its host, set before each turn.
    pub now: Rc<Cell<u64>>,
    block: BlockBuf,
    in_use: Rc<Cell<usize>>,
    /// Records left out that the log has not been told of.
    untold: u32,
    /// Counted as lost: left out, or not written to a file.
    lost: u64,
    pub left_out: u64,
    closed: bool,
    pub ending: Option<LogEnding>,
    /// Its process is gone.
    pub dead: bool,
    /// It sends on what an earlier process has left in its spool.
    pub forwards: bool,
    /// It holds the files of a spool.
    pub uses_spool: bool,
    /// It began when no fault was left.
    pub began_healed: bool,
    /// Count of records of each packet, by flow and number.
    pub pushed: BTreeMap<(u32, u64), u32>,
    pub planted: Option<Planted>,
}

fn config(plan: &LogPlan, spools: bool) -> LogProducerConfig {
    let block_records = match plan.transport {
        Transport::Tcp => plan.block_records,
        Transport::Udp => DATAGRAM_RECORDS,
    };
    let role = if plan.side == Side::Sender { Role::Sender } else { Role::Receiver };
    let cut = match plan.transport {
        Transport::Tcp => 1,
        Transport::Udp => plan.block_records.div_ceil(DATAGRAM_RECORDS),
    };
    let who = Registration {
        key: plan.key,
        run: plan.name.clone(),
        host: "host".to_owned(),
        program: "itg".to_owned(),
        role,
        flows: 0,
        record_schema: itg_record::RECORD_SCHEMA,
        transport: plan.transport,
        block_records: u32::try_from(block_records).expect("small"),
        block_bytes: 2048,
        clock_offset_ns: None,
        uncertainty_ns: None,
        next_block: 0,
    };
    LogProducerConfig {
        who,
        max_unacked: 1024,
        memory_blocks: u32::try_from((plan.most_blocks - 1) * cut).expect("small"),
        patience_ns: spools.then_some(1_000_000_000),
        timeouts: ProducerTimeouts::default(),
    }
}

impl SimLog {
    fn with(plan: LogPlan, way: Way, now: Rc<Cell<u64>>, planted: Option<Planted>) -> Self {
        Self {
            block: BlockBuf::new(plan.block_records),
            plan,
            way,
            connection: None,
            now,
            in_use: Rc::default(),
            untold: 0,
            lost: 0,
            left_out: 0,
            closed: false,
            ending: None,
            dead: false,
            forwards: false,
            began_healed: false,
            uses_spool: false,
            pushed: BTreeMap::new(),
            planted,
        }
    }

    pub fn file(plan: LogPlan, file: SimFile, now: u64, planted: Option<Planted>) -> Self {
        plan.fsync.opened(&file).expect("the disk takes syncs");
        let file = BlockFile::new(file, 0, plan.fsync);
        let builder = LogBuilder::new(0);
        let way = Way::File(FileLog { file, builder, failed: false, records: 0 });
        let mut log = Self::with(plan, way, Rc::new(Cell::new(now)), planted);
        log.note(&log.info());
        log
    }

    pub fn remote(
        plan: LogPlan,
        spool: Option<(SimFile, SimFile)>,
        now: u64,
        planted: Option<Planted>,
    ) -> Self {
        let config = config(&plan, spool.is_some());
        let now = Rc::new(Cell::new(now));
        let link = SimLink { now: Rc::clone(&now), wishes: Vec::new() };
        // A disk without room for the index: the program does not start with this spool.
        let spool = spool.and_then(|(file, index)| Spool::create(file, index, &config.who).ok());
        let config = LogProducerConfig {
            patience_ns: config.patience_ns.filter(|_| spool.is_some()),
            ..config
        };
        let (uses_spool, machine) = (spool.is_some(), LogProducer::new(config, now.get()));
        let remote = RemoteLog::new(link, machine, spool, plan.transport, DATAGRAM_RECORDS);
        let mut log = Self::with(plan, Way::Remote(Box::new(remote)), now, planted);
        log.uses_spool = uses_spool;
        log.note(&log.info());
        log.feed(ProducerInput::Timer);
        log
    }

    /// The log that a process has left in its spool, sent on.
    pub fn forward(
        plan: LogPlan,
        spool: Spool<SimFile>,
        rest: SpoolRest,
        now: u64,
        planted: Option<Planted>,
    ) -> Self {
        let mut who = rest.who;
        if planted == Some(Planted::SpoolFromZero) {
            who.key[15] ^= 1;
        }
        let config = LogProducerConfig { who, ..config(&plan, false) };
        let now = Rc::new(Cell::new(now));
        let link = SimLink { now: Rc::clone(&now), wishes: Vec::new() };
        let machine = LogProducer::resume(config, rest.log, now.get());
        let remote = RemoteLog::new(link, machine, Some(spool), Transport::Tcp, DATAGRAM_RECORDS);
        let mut log = Self::with(plan, Way::Remote(Box::new(remote)), now, planted);
        (log.forwards, log.closed, log.uses_spool) = (true, true, true);
        log.feed(ProducerInput::Timer);
        log.feed(ProducerInput::Close { per_flow: rest.per_flow });
        log
    }

    fn info(&self) -> Note {
        Note::Log(LogInfo {
            schema: itg_record::LOG_SCHEMA,
            side: self.plan.side,
            program: "itg".to_owned(),
            version: "0".to_owned(),
            host: "host".to_owned(),
            os: String::new(),
            boot_id: String::new(),
            pid: 1,
            started_unix_ns: u64::from(self.plan.key[0]),
            run: String::new(),
            seed: None,
            settings: BTreeMap::new(),
            block_records: u32::try_from(self.plan.block_records).expect("small"),
            part: None,
        })
    }

    pub fn is_remote(&self) -> bool {
        matches!(self.way, Way::Remote(_))
    }

    /// Returns true once packets may be logged, or never will be.
    pub fn is_settled(&self) -> bool {
        match &self.way {
            Way::File(_) => true,
            Way::Remote(remote) => remote.is_ready() || self.ending.is_some(),
        }
    }

    pub fn push(&mut self, record: &Record) {
        self.push_once(record);
        if self.planted == Some(Planted::LoggedTwice) && record.seq % 7 == 3 {
            self.block.push(record);
            self.flush_if_full();
        }
    }

    fn push_once(&mut self, record: &Record) {
        *self.pushed.entry((record.flow, record.seq)).or_default() += 1;
        self.block.push(record);
        self.flush_if_full();
    }

    fn flush_if_full(&mut self) {
        if self.block.is_full() {
            self.flush();
        }
    }

    /// Hands over the block in hand, or leaves it out when too many are in use.
    pub fn flush(&mut self) {
        if self.block.is_empty() {
            return;
        }
        let records = self.block.len() as u64;
        if self.is_over() {
            self.lost += records;
            return self.block.clear();
        }
        if self.in_use.get() + 1 >= self.plan.most_blocks {
            self.untold += u32::try_from(records).expect("small");
            self.left_out += records;
            if self.planted != Some(Planted::LossNotCounted) {
                self.lost += records;
            }
            return self.block.clear();
        }
        self.tell_left_out();
        let next = BlockBuf::new(self.plan.block_records);
        let mut full = std::mem::replace(&mut self.block, next);
        match &mut self.way {
            Way::File(log) => {
                let bytes = full.len() * RECORD_LEN + BLOCK_HEADER_LEN;
                let sealed = log.builder.seal(&mut full);
                assert_eq!(sealed.len(), bytes, "a block of records");
                if log.failed
                    || log.file.append(self.now.get(), &mut [IoSlice::new(sealed)]).is_err()
                {
                    log.failed = true;
                    self.lost += records;
                } else {
                    log.records += records;
                }
            }
            Way::Remote(remote) => {
                self.in_use.set(self.in_use.get() + 1);
                remote.records(full, Lender(Rc::clone(&self.in_use)));
            }
        }
        self.end_if_over();
    }

    fn tell_left_out(&mut self) {
        let untold = std::mem::take(&mut self.untold);
        if untold == 0 || self.planted == Some(Planted::LossNotTold) {
            return;
        }
        match &mut self.way {
            Way::File(log) => log.builder.skip(),
            Way::Remote(remote) => remote.left_out(untold),
        }
    }

    fn note(&mut self, note: &Note) {
        match &mut self.way {
            Way::File(log) => {
                let bytes = log.builder.note(note);
                if !log.failed {
                    log.failed =
                        log.file.append(self.now.get(), &mut [IoSlice::new(&bytes)]).is_err();
                }
            }
            Way::Remote(remote) => remote.note(note),
        }
    }

    pub fn close(&mut self) {
        if std::mem::replace(&mut self.closed, true) {
            return;
        }
        self.flush();
        if self.is_over() {
            return;
        }
        self.tell_left_out();
        let lost = self.lost;
        match &mut self.way {
            Way::File(log) => {
                if !log.failed {
                    let end = log.builder.end(lost);
                    let ended = log.file.append(self.now.get(), &mut [IoSlice::new(&end)]);
                    log.failed = ended.is_err() || log.file.settle(u64::MAX).is_err();
                }
                let records = log.records;
                let ending = LogEnding { fate: None, reason: None, lost_records: lost, records };
                self.ending = Some(ending);
            }
            Way::Remote(remote) => remote.close(lost),
        }
        self.end_if_over();
    }

    pub fn feed(&mut self, input: ProducerInput) {
        if let Way::Remote(remote) = &mut self.way {
            match input {
                ProducerInput::Lost(why) => remote.lose(why),
                input => remote.feed(input),
            }
        }
        self.end_if_over();
    }

    /// Syncs a file whose bytes have waited long enough.
    pub fn settle(&mut self) {
        if let Way::File(log) = &mut self.way {
            log.file.settle(self.now.get()).expect("the disk takes syncs");
        }
    }

    pub fn deadline(&self) -> Option<u64> {
        match &self.way {
            _ if self.dead || self.ending.is_some() => None,
            Way::File(log) => log.file.due_ns(),
            Way::Remote(remote) => remote.deadline(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.ending.is_some()
    }

    fn end_if_over(&mut self) {
        let Way::Remote(remote) = &mut self.way else { return };
        if self.ending.is_some() || !remote.is_over() {
            return;
        }
        let RemoteEnd { fate, reason, lost_records } = remote.end();
        if !self.forwards {
            // A disk without room: a later process knows less.
            remote.leave_spool().unwrap_or_default();
        }
        self.lost += lost_records;
        let records = fate.stored_records;
        let ending = LogEnding { fate: Some(fate), reason, lost_records: self.lost, records };
        self.ending = Some(ending);
    }

    /// Returns true once its owner has closed it.
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns true while blocks are in its spool.
    pub fn has_spooled(&self) -> bool {
        match &self.way {
            Way::Remote(remote) => remote.has_spooled(),
            Way::File(_) => false,
        }
    }

    /// Records written to a file.
    pub const fn written(&self) -> u64 {
        match &self.way {
            Way::File(log) => log.records,
            Way::Remote(_) => 0,
        }
    }

    /// Records in the block that is being filled.
    pub const fn in_hand(&self) -> u64 {
        self.block.len() as u64
    }

    /// Buffers that are with the log.
    pub fn in_use(&self) -> usize {
        self.in_use.get()
    }

    pub fn produced(&self) -> u64 {
        self.pushed.values().map(|&n| u64::from(n)).sum()
    }
}
