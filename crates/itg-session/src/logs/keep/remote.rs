//! A log on a log server: what its producer does with blocks, buffers and spool, as the machine says.
//!
//! The buffer of a block is kept until the server has it, or until it is in the spool; the producer
//! gets it back only then, so a block in flight is never written to.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use itg_record::{BLOCK_HEADER_LEN, BlockBuf, LogEnd, Note, RECORD_LEN, note_block, record_header};

use super::held::{GiveBack, Lent, UnconfirmedBlock, label};
use super::spool::{Done, Spool};
use super::storage::Storage;
use crate::logs::codec::encode;
use crate::logs::frame::FrameHead;
use crate::logs::message::Transport;
use crate::logs::producer::{LogFate, LogProducer, ProducerInput, ProducerOutput};

/// Most datagrams that leave together.
pub const DATAGRAMS_TOGETHER: usize = 64;
/// Flows that are counted for the account at the end.
const COUNTED_FLOWS: usize = 65_536;

/// The network below a producer's log, and its clock.
pub trait LogLink {
    /// Time of any clock that never runs backwards, in nanoseconds.
    fn now_ns(&self) -> u64;

    /// Begins to connect; what comes of it is told later.
    ///
    /// # Errors
    /// It cannot even begin.
    fn connect(&mut self) -> Result<(), String>;

    /// Ends the connection, or the attempt: nothing more of it is told.
    fn hang_up(&mut self);

    /// Writes a frame on the connection, if there is one.
    ///
    /// # Errors
    /// The system's, in words.
    fn write(&mut self, head: FrameHead, pieces: [&[u8]; 2]) -> Result<(), String>;

    /// Authenticates a text with the shared secret.
    fn prove(&self, text: &[u8]) -> [u8; 32];

    /// Opens the socket of datagrams to this port of the server.
    ///
    /// # Errors
    /// The system's, in words.
    fn open_datagrams(&mut self, port: u16) -> Result<(), String>;

    /// Sends one datagram, which may be lost.
    fn send_datagram(&mut self, bytes: &[u8]);

    /// Sends blocks, at most [`DATAGRAMS_TOGETHER`], each in a datagram that may be lost.
    fn send_blocks(&mut self, blocks: &[[&[u8]; 2]]);

    /// Says that something of the log has failed.
    fn failed(&mut self, why: String);
}

/// Outcome of a log on a log server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteEnd {
    /// State of its blocks.
    pub fate: LogFate,
    /// Reason why the log failed, if it did.
    pub reason: Option<String>,
    /// Records that are neither stored nor in the spool, those aside that producers had left out.
    pub lost_records: u64,
}

/// A log on a log server, from the first block to the server's last word.
#[derive(Debug)]
pub struct RemoteLog<L, F, G: GiveBack> {
    link: L,
    machine: LogProducer,
    transport: Transport,
    held: BTreeMap<u32, UnconfirmedBlock<G>>,
    spool: Option<Spool<F>>,
    log_id: u32,
    ready: bool,
    inbox: VecDeque<ProducerInput>,
    /// Datagrams that leave together.
    batch: Vec<u32>,
    datagram_records: usize,
    per_flow: BTreeMap<u32, u64>,
    /// Account of what producers have handed over and left out; the latter is counted as lost
    /// already.
    done: Done,
    fate: Option<(LogFate, Option<String>)>,
    /// Blocks for which the spool had no room, with their records, of which the machine has not been told.
    unspooled: BTreeMap<u32, u64>,
    /// One more than the highest block that was ever sent.
    ever_sent: u32,
}

impl<L: LogLink, F: Storage, G: GiveBack> RemoteLog<L, F, G> {
    /// A log that this machine drives. On UDP its blocks have at most `datagram_records`.
    pub fn new(
        link: L,
        machine: LogProducer,
        spool: Option<Spool<F>>,
        transport: Transport,
        datagram_records: usize,
    ) -> Self {
        Self {
            link,
            machine,
            transport,
            held: BTreeMap::new(),
            spool,
            log_id: 0,
            ready: false,
            inbox: VecDeque::new(),
            batch: Vec::with_capacity(DATAGRAMS_TOGETHER),
            datagram_records,
            per_flow: BTreeMap::new(),
            done: Done::default(),
            fate: None,
            unspooled: BTreeMap::new(),
            ever_sent: 0,
        }
    }

    /// The network.
    pub const fn link(&mut self) -> &mut L {
        &mut self.link
    }

    /// Returns true once the machine has come to its end.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.fate.is_some()
    }

    /// Returns true once the server has taken the log.
    #[must_use]
    pub const fn is_ready(&self) -> bool {
        self.ready
    }

    /// Returns true while blocks are in the spool.
    #[must_use]
    pub fn has_spooled(&self) -> bool {
        self.spool.as_ref().is_some_and(|spool| !spool.is_empty())
    }

    /// Instant at which [`ProducerInput::Timer`] is wanted, on the clock of the link.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        self.machine.deadline()
    }

    /// Takes a buffer of records.
    pub fn records(&mut self, block: BlockBuf, give_back: G) {
        self.done.records += block.len() as u64;
        self.count_flows(block.records());
        match self.transport {
            Transport::Tcp => {
                let block_no = self.machine.next_block();
                let ready = ready(block_no, block.records().len());
                self.held.insert(block_no, UnconfirmedBlock::Records(block, give_back));
                self.inbox.push_back(ready);
            }
            Transport::Udp => self.cut(block, give_back),
        }
        self.work();
    }

    /// Takes note of records that a producer had to leave out: they use up the number of a block.
    pub fn left_out(&mut self, records: u32) {
        self.done.dropped_blocks += 1;
        self.done.dropped_records += u64::from(records);
        let block_no = self.machine.next_block();
        self.feed(ProducerInput::Dropped { block_no, records });
    }

    /// Takes a note.
    pub fn note(&mut self, note: &Note) {
        let block_no = self.machine.next_block();
        let bytes = note_block(note, 0, block_no);
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.held.insert(block_no, UnconfirmedBlock::Note(bytes));
        self.feed(ProducerInput::BlockReady { block_no, records: 0, bytes: len });
    }

    /// Takes the end of the log: `lost_records` is how many records producers have lost so far.
    pub fn close(&mut self, lost_records: u64) {
        let blocks = u64::from(self.machine.next_block()) + 1;
        let records = self.done.records;
        self.note(&Note::End(LogEnd { blocks, records, lost_records, continued: false }));
        let per_flow = self.per_flow.iter().map(|(&flow, &n)| (flow, n)).collect();
        self.feed(ProducerInput::Close { per_flow });
    }

    /// Takes the loss of the connection.
    pub fn lose(&mut self, why: String) {
        self.hang_up();
        self.feed(ProducerInput::Lost(why));
    }

    /// Gives the machine an input, and does what it says, and so on.
    pub fn feed(&mut self, input: ProducerInput) {
        self.inbox.push_back(input);
        self.work();
    }

    /// Ends the log: gives all buffers back.
    pub fn end(&mut self) -> RemoteEnd {
        self.hang_up();
        std::mem::take(&mut self.held).into_values().for_each(UnconfirmedBlock::release);
        let (fate, reason) = self.fate.take().unwrap_or_default();
        // What lies in the spool is not lost: a later process brings it.
        let elsewhere = self.done.dropped_records.saturating_add(fate.spooled_records);
        let lost_records = (fate.records - fate.stored_records).saturating_sub(elsewhere);
        RemoteEnd { fate, reason, lost_records }
    }

    /// Tells a later process that finds blocks in the spool what this one knows of its log: all of it.
    ///
    /// # Errors
    /// The system's: it will know less.
    pub fn leave_spool(&mut self) -> io::Result<()> {
        let Some(spool) = self.spool.as_mut().filter(|spool| !spool.is_empty()) else {
            return Ok(());
        };
        let per_flow = std::mem::take(&mut self.per_flow).into_iter().collect();
        let blocks = self.machine.next_block();
        spool.leave(Done { blocks, per_flow, ..std::mem::take(&mut self.done) })
    }

    /// Makes datagrams of a producer's buffer.
    fn cut(&mut self, block: BlockBuf, give_back: G) {
        let lent = Arc::new(Lent::new(block, give_back));
        let mut at = 0;
        for (block_no, records) in (self.machine.next_block()..)
            .zip(lent.records().chunks(self.datagram_records * RECORD_LEN))
        {
            let head = record_header(records, self.log_id, block_no);
            let end = at + records.len();
            self.inbox.push_back(ready(block_no, records.len()));
            let lent = Arc::clone(&lent);
            self.held.insert(block_no, UnconfirmedBlock::Datagram { head, lent, at: at..end });
            at = end;
        }
    }

    fn count_flows(&mut self, records: &[u8]) {
        let (mut flow, mut run) = (0, 0);
        for record in records.chunks_exact(RECORD_LEN) {
            // The flow is the first field of a record (see docs/formats.md).
            let this = record.first_chunk().map_or(0, |word| u32::from_le_bytes(*word));
            if this != flow {
                self.count(flow, run);
                (flow, run) = (this, 0);
            }
            run += 1;
        }
        self.count(flow, run);
    }

    fn count(&mut self, flow: u32, records: u64) {
        let room = self.per_flow.len() < COUNTED_FLOWS || self.per_flow.contains_key(&flow);
        if records > 0 && room {
            *self.per_flow.entry(flow).or_default() += records;
        }
    }

    fn hang_up(&mut self) {
        // The machine has them sent again.
        self.batch.clear();
        self.link.hang_up();
    }

    fn work(&mut self) {
        let mut out = Vec::new();
        loop {
            while let Some(input) = self.inbox.pop_front() {
                if let ProducerInput::Dropped { block_no, .. } = &input {
                    self.unspooled.remove(block_no);
                }
                self.machine.handle(self.link.now_ns(), input, &mut out);
                for output in out.drain(..) {
                    self.act(output);
                }
            }
            if self.batch.is_empty() {
                return;
            }
            self.send_batch();
        }
    }

    fn act(&mut self, output: ProducerOutput) {
        match output {
            ProducerOutput::Connect => {
                self.hang_up();
                if let Err(why) = self.link.connect() {
                    self.inbox.push_back(ProducerInput::Lost(why));
                }
            }
            ProducerOutput::Disconnect => self.hang_up(),
            ProducerOutput::Send(message) => {
                let sent = encode(&message)
                    .map_err(|error| error.to_string())
                    .and_then(|bytes| self.link.write(FrameHead::message(&bytes), [&bytes, &[]]));
                self.check(sent);
            }
            ProducerOutput::Prove { text } => {
                let proof = self.link.prove(&text);
                self.inbox.push_back(ProducerInput::Proof(proof));
            }
            ProducerOutput::Registered { log_id, data_port } => {
                self.log_id = log_id;
                self.ready = true;
                if self.transport == Transport::Udp {
                    let opened = self.link.open_datagrams(data_port);
                    self.check(opened);
                }
            }
            ProducerOutput::SendBind(message) => {
                // It is repeated until the server says that it came.
                if let Ok(bytes) = encode(&message) {
                    self.link.send_datagram(&bytes);
                }
            }
            ProducerOutput::SendBlock { block_no } => {
                self.ever_sent = self.ever_sent.max(block_no.saturating_add(1));
                match self.transport {
                    Transport::Tcp => self.send_block(block_no),
                    Transport::Udp => {
                        self.batch.push(block_no);
                        if self.batch.len() == DATAGRAMS_TOGETHER {
                            self.send_batch();
                        }
                    }
                }
            }
            ProducerOutput::Unspool { block_no } => self.send_spooled(block_no),
            ProducerOutput::Release { up_to } => {
                let kept = self.held.split_off(&up_to);
                std::mem::replace(&mut self.held, kept)
                    .into_values()
                    .for_each(UnconfirmedBlock::release);
                if let Some(spool) = &mut self.spool {
                    // A spool that cannot be shortened takes space, and nothing else.
                    spool.release(up_to).unwrap_or_default();
                }
            }
            ProducerOutput::Spool { block_no } => self.put_into_spool(block_no),
            ProducerOutput::Finished(fate) => self.fate = Some((self.without_room(fate), None)),
            ProducerOutput::Failed { reason, fate } => {
                self.fate = Some((self.without_room(fate), Some(reason)));
            }
        }
    }

    /// The outcome, when there was no room in the spool for some of what the machine takes for spooled: the server may
    /// have what was sent before.
    fn without_room(&mut self, mut fate: LogFate) -> LogFate {
        for (block_no, records) in std::mem::take(&mut self.unspooled) {
            fate.spooled_blocks = fate.spooled_blocks.saturating_sub(1);
            fate.spooled_records = fate.spooled_records.saturating_sub(records);
            if block_no < self.ever_sent {
                fate.unconfirmed_blocks += 1;
                fate.unconfirmed_records += records;
            } else {
                fate.dropped_blocks += 1;
                fate.dropped_records += records;
            }
        }
        fate
    }

    fn send_block(&mut self, block_no: u32) {
        let Some(held) = self.held.get_mut(&block_no) else { return };
        let pieces = held.pieces(self.log_id, block_no);
        let sent = self.link.write(FrameHead::block(pieces), pieces);
        self.check(sent);
    }

    /// Sends the datagrams of the batch, in ascending order.
    fn send_batch(&mut self) {
        let (first, last) = (self.batch.first().copied(), self.batch.last().copied());
        self.batch.clear();
        let (Some(first), Some(last)) = (first, last) else { return };
        let mut blocks: [[&[u8]; 2]; DATAGRAMS_TOGETHER] = [[&[], &[]]; DATAGRAMS_TOGETHER];
        let mut count = 0;
        for (block, (block_no, held)) in blocks.iter_mut().zip(self.held.range_mut(first..=last)) {
            *block = held.pieces(self.log_id, *block_no);
            count += 1;
        }
        self.link.send_blocks(&blocks[..count]);
        self.inbox.push_back(ProducerInput::BlockSent { block_no: last });
    }

    fn send_spooled(&mut self, block_no: u32) {
        let got = self.spool.as_ref().map(|spool| spool.get(block_no));
        match got {
            Some(Ok(mut bytes)) => {
                label(&mut bytes, self.log_id);
                if self.transport == Transport::Udp {
                    self.link.send_datagram(&bytes);
                    self.inbox.push_back(ProducerInput::BlockSent { block_no });
                } else {
                    let pieces: [&[u8]; 2] = [&bytes, &[]];
                    let sent = self.link.write(FrameHead::block(pieces), pieces);
                    self.check(sent);
                }
            }
            Some(Err(error)) => {
                self.link.failed(format!("block {block_no} was not read from the spool: {error}"));
                self.inbox.push_back(ProducerInput::Dropped { block_no, records: 0 });
            }
            None => {}
        }
    }

    fn check(&mut self, done: Result<(), String>) {
        if let Err(why) = done {
            self.hang_up();
            self.inbox.push_back(ProducerInput::Lost(why));
        }
    }

    fn put_into_spool(&mut self, block_no: u32) {
        let begin = self.spool.as_ref().is_some_and(Spool::is_empty);
        let before = begin.then(|| self.done_before(block_no));
        let Some(mut held) = self.held.remove(&block_no) else { return };
        let bytes = held.pieces(self.log_id, block_no).concat();
        let put = self.spool.as_mut().map(|spool| {
            before.map_or(Ok(()), |before| spool.begin(before))?;
            spool.put(block_no, &bytes)
        });
        if let Some(Err(error)) = put {
            self.link.failed(format!("block {block_no} was not written to the spool: {error}"));
            self.unspooled.insert(block_no, held.records());
            self.inbox.push_back(ProducerInput::Dropped { block_no, records: 0 });
        }
        held.release();
    }

    /// Account of the time before a block that is held, as far as it matters to a process that
    /// finds the spool: blocks left out may be counted that come after it.
    fn done_before(&self, block_no: u32) -> Done {
        let held: u64 = self.held.range(block_no..).map(|(_, held)| held.records()).sum();
        let records = self.done.records.saturating_sub(held);
        Done { blocks: block_no, records, ..self.done.clone() }
    }
}

/// Makes the input that announces a block of this many bytes of records to the machine.
fn ready(block_no: u32, records: usize) -> ProducerInput {
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let (records, bytes) = (count(records / RECORD_LEN), count(BLOCK_HEADER_LEN + records));
    ProducerInput::BlockReady { block_no, records, bytes }
}
