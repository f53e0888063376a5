//! The server's side of one connection of a producer, from its registration to its leave.
//!
//! Assumes nothing about the producer: whatever breaks the rules ends the connection, with a reason; a
//! silent producer is given up; what it may make the server keep is within the limits of the
//! [`LogBook`]. Assumes a driver that writes the blocks of an experiment in the order in which it is
//! told to, behind the log's [`ServerOutput::Enrol`], and answers each [`ServerOutput::Store`], even after the
//! session is over.
//!
//! A block is acknowledged when the driver says that it is stored, never before. A producer that
//! connects again takes its log over from the session that it had before.

mod ending;
mod interface;
mod register;

use std::collections::VecDeque;

use itg_core::units::format_duration_ns;

use crate::difference::number;

use super::book::{BlockContent, LogBook, Offer};
use super::message::{LEAVE_FLOWS, LOG_MAGIC, LOG_VERSION, LogMessage, Registration, Transport};
use super::name::proof_text;

pub use interface::{LogAccount, LogServerConfig, ServerInput, ServerOutput, block_input};

/// Reason sent to a producer that gives way to another.
const DISPLACED: &str =
    "too many connections: this one has not registered yet, a newer one takes its place";

/// Reason of refusing a block that would make its log or experiment larger than it may be.
pub const NO_ROOM: &str = "its log, or its experiment, is full";
/// Reason of refusing a block that comes over UDP when memory is used up.
pub const NO_MEMORY: &str = "there is no memory for it";

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for `Register`.
    Greeting,
    /// `Challenge` has been said: waits for the second `Register`.
    Challenged,
    /// The driver checks the proof.
    Checking,
    /// The driver opens the files.
    Opening,
    /// Blocks come.
    Running,
    /// `Leave` has come: waits for what is still on its way or being stored.
    Leaving,
    /// `Left` has been said: waits for the producer to go.
    Left,
    /// `Disconnect` has been said.
    Over,
}

/// Account that the producer gave when it took leave.
#[derive(Clone, Debug)]
struct Leave {
    blocks: u32,
    records: u64,
    dropped_blocks: u64,
    dropped_records: u64,
    per_flow: Vec<(u32, u64)>,
    flows_left_out: u32,
    /// UDP: until when late datagrams are waited for; `None` when this is over.
    linger_until: Option<u64>,
}

/// A producer that registered.
#[derive(Debug)]
struct Producer {
    run: String,
    log_id: u32,
    who: Registration,
    /// TCP: blocks that came and are not acknowledged, in ascending order.
    waiting: VecDeque<u32>,
    /// TCP: blocks that came.
    received: u32,
    /// TCP: the highest of them.
    highest: Option<u32>,
    /// TCP: what was said last, and could be said now.
    said: (u32, u32),
    stored_to: u32,
    /// TCP: when an acknowledgement has to be said, if one is due.
    ack_at: Option<u64>,
    leave: Option<Leave>,
    damaged: u64,
    refused: u64,
}

/// The server's state machine for one connection.
#[derive(Debug)]
pub struct LogServerSession {
    config: LogServerConfig,
    state: State,
    /// Latest end of the current state.
    until: Option<u64>,
    heard_ns: u64,
    /// Registration that is being decided.
    candidate: Option<Registration>,
    producer: Option<Producer>,
    /// Blocks given to the driver to be stored, without its answer.
    unsettled: usize,
    /// The server is being shut down: why, and how long it waits.
    shutdown: Option<(String, u64)>,
}

impl LogServerSession {
    /// The session of a connection that was accepted at `now_ns` (nanoseconds of the clock that
    /// [`handle`](Self::handle) uses).
    #[must_use]
    pub const fn new(config: LogServerConfig, now_ns: u64) -> Self {
        let until = Some(now_ns.saturating_add(config.timeouts.register_ns));
        Self {
            config,
            state: State::Greeting,
            until,
            heard_ns: now_ns,
            candidate: None,
            producer: None,
            unsettled: 0,
            shutdown: None,
        }
    }

    /// Returns true once [`ServerOutput::Disconnect`] has been said.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Blocks that the driver has to store or has not answered for. A session that is over must be
    /// kept until there are none.
    #[must_use]
    pub const fn unsettled(&self) -> usize {
        self.unsettled
    }

    /// Experiment and number of the registered log, if any.
    #[must_use]
    pub fn log(&self) -> Option<(&str, u32)> {
        self.producer.as_ref().map(|producer| (producer.run.as_str(), producer.log_id))
    }

    /// Largest block that the producer may send, in bytes; `None` before it is registered.
    #[must_use]
    pub fn block_bytes(&self) -> Option<u32> {
        self.producer.as_ref().map(|producer| producer.who.block_bytes)
    }

    /// The next instant at which the session wants [`ServerInput::Timer`], in nanoseconds of the
    /// clock of `now_ns`.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.state == State::Over {
            return None;
        }
        let producer = self.producer.as_ref();
        [
            self.until,
            producer.map(|_| self.silent_at()),
            producer.and_then(|producer| producer.ack_at),
            self.linger_at(),
            self.shutdown.as_ref().map(|(_, until)| *until),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes an event at `now_ns` (nanoseconds of any clock that never runs backwards) and appends
    /// what the driver has to do.
    pub fn handle(
        &mut self,
        now_ns: u64,
        input: ServerInput,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        use {LogMessage as M, ServerInput as I, ServerOutput as O, State as S};
        if matches!(input, I::Message(_) | I::Block { .. }) {
            self.heard_ns = now_ns;
        }
        match (self.state, input) {
            // The driver's answers count also after the end.
            (_, I::Stored { block_no }) => self.on_settled(now_ns, block_no, None, book, out),
            (_, I::StoreFailed { block_no, reason }) => {
                self.on_settled(now_ns, block_no, Some(reason), book, out);
            }
            (S::Over, I::Block { block_no, .. }) => {
                out.push(O::Discard { block_no, reason: "the session is over" });
            }
            (S::Over, _) => {}
            (_, I::Timer) => self.on_time(now_ns, book, out),
            (_, I::Woken) => self.on_woken(now_ns, book, out),

            // Registration
            (S::Greeting, I::Message(M::Register { who, proof: _, .. })) => {
                if let Some(nonce) = self.config.nonce {
                    let (magic, version) = (LOG_MAGIC, LOG_VERSION);
                    out.push(O::Send(M::Challenge { magic, version, nonce }));
                    self.enter(S::Challenged, now_ns, self.config.timeouts.register_ns);
                } else {
                    self.on_register(now_ns, who, book, out);
                }
            }
            (S::Challenged, I::Message(M::Register { who, proof: Some(proof), .. })) => {
                let nonce = self.config.nonce.unwrap_or_default();
                out.push(O::Check { text: proof_text(&nonce, &who), proof });
                self.candidate = Some(who);
                self.enter(S::Checking, now_ns, self.config.timeouts.check_ns);
            }
            (S::Checking, I::Checked(true)) => {
                if let Some(who) = self.candidate.take() {
                    self.on_register(now_ns, who, book, out);
                }
            }
            (S::Challenged, I::Message(M::Register { proof: None, .. }))
            | (S::Checking, I::Checked(false)) => {
                let reason = "the log server has a secret, and this producer does not know it: give \
                              both the same one";
                self.refuse(reason.to_owned(), false, book, out);
            }
            (S::Opening, I::Opened(Ok(()))) => self.on_opened(now_ns, book, out),
            (S::Opening, I::Opened(Err(why))) => {
                let reason = format!("the log server cannot open the experiment's files: {why}");
                self.refuse(reason, true, book, out);
            }

            // Blocks
            (
                S::Running | S::Leaving,
                I::Block { log_id, block_no, records, bytes, checksum, intact },
            ) => {
                let content = BlockContent { records, bytes, checksum };
                let block = Block { log_id, block_no, content, intact };
                self.on_block(now_ns, block, book, out);
            }
            (_, I::Block { block_no, .. }) => {
                out.push(O::Discard { block_no, reason: "its log is not open" });
            }
            (S::Running | S::Leaving | S::Left, I::Bind { log_id, token }) => {
                let matches = |p: &Producer| p.log_id == log_id && is_udp(&p.who);
                if self.producer.as_ref().is_some_and(matches) && token == self.config.token {
                    out.push(O::Authorise);
                    out.push(O::Send(M::Bound));
                }
            }
            (_, I::Bind { .. }) => {}

            // The end
            (S::Running, I::Message(leave @ M::Leave { .. })) => {
                self.on_leave(now_ns, leave, book, out);
            }

            // Keep-alive
            (S::Running | S::Leaving | S::Left, I::Message(M::Ping { n })) => {
                out.push(O::Send(M::Pong { n }));
            }

            (_, other) => self.on_break(now_ns, other, book, out),
        }
    }

    /// Ends the session early, where the input does.
    fn on_break(
        &mut self,
        now_ns: u64,
        input: ServerInput,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        use ServerInput as I;
        match (self.state, input) {
            (_, I::Message(other)) => {
                self.refuse(format!("{} came out of turn", other.name()), false, book, out);
            }
            (_, I::Garbage(error)) => self.refuse(error.to_string(), false, book, out),
            (_, I::Displaced) => self.refuse(DISPLACED.to_owned(), true, book, out),
            (_, I::Shutdown(reason)) => self.on_shutdown(now_ns, reason, book, out),
            (State::Left, I::Lost(_)) => {
                self.end("the producer took its leave".to_owned(), book, out)
            }
            (_, I::Lost(why)) => {
                self.end(format!("the connection to the producer is gone: {why}"), book, out);
            }
            // A driver's answer that has been overtaken by events.
            (_, I::Checked(_) | I::Opened(_)) => {}
            (_, I::Stored { .. } | I::StoreFailed { .. } | I::Timer | I::Woken) => {}
            (_, I::Block { .. } | I::Bind { .. }) => {}
        }
    }

    /// The producer takes its leave with its own account.
    fn on_leave(
        &mut self,
        now_ns: u64,
        leave: LogMessage,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let LogMessage::Leave {
            blocks,
            records,
            dropped_blocks,
            dropped_records,
            mut per_flow,
            flows_left_out,
        } = leave
        else {
            return;
        };
        per_flow.truncate(LEAVE_FLOWS);
        if let Some(producer) = &mut self.producer {
            let linger = now_ns.saturating_add(self.config.timeouts.linger_ns);
            let linger_until = is_udp(&producer.who).then_some(linger);
            producer.leave = Some(Leave {
                blocks,
                records,
                dropped_blocks,
                dropped_records,
                per_flow,
                flows_left_out,
                linger_until,
            });
        }
        self.enter(State::Leaving, now_ns, self.config.timeouts.leave_ns);
        self.leave_if_settled(now_ns, book, out);
    }

    fn on_block(
        &mut self,
        now_ns: u64,
        block: Block,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(producer) = &mut self.producer else { return };
        let id = self.config.id;
        let Block { log_id, block_no, content, intact } = block;
        let BlockContent { bytes, .. } = content;
        let (run, udp) = (producer.run.as_str(), is_udp(&producer.who));
        let discard = |reason| ServerOutput::Discard { block_no, reason };
        if book.owner(run, producer.log_id) != Some(id) {
            out.push(discard("its log has gone to another connection"));
            return self.taken_over(book, out);
        }
        let wrong = if !intact {
            "it is damaged"
        } else if log_id != producer.log_id {
            "it belongs to another log"
        } else if bytes > producer.who.block_bytes {
            "it is larger than announced"
        } else if block_no == u32::MAX {
            "its number is too high"
        } else if !udp && producer.received >= producer.said.1 {
            "it is beyond the credit"
        } else if !udp && producer.highest.is_some_and(|highest| block_no <= highest) {
            "it is out of order"
        } else {
            ""
        };
        if !wrong.is_empty() {
            producer.damaged += u64::from(!intact);
            out.push(discard(wrong));
            if !udp {
                let reason = format!("block {block_no} is refused: {wrong}");
                self.refuse(reason, !intact, book, out);
            }
            return;
        }
        let offer = book.look_up(run, log_id, block_no);
        if offer == Offer::New
            && let Err(full) = book.may_grow(run, log_id, bytes)
        {
            producer.refused += 1;
            out.push(discard(NO_ROOM));
            if !udp {
                self.refuse(full, false, book, out);
            }
            return;
        }
        if !udp {
            producer.received += 1;
            producer.highest = Some(block_no);
            producer.waiting.push_back(block_no);
        }
        match offer {
            Offer::New if udp && !book.credit.take(id) => {
                producer.refused += 1;
                out.push(discard(NO_MEMORY));
            }
            Offer::New => {
                book.begin(run, log_id, block_no, content);
                self.unsettled += 1;
                out.push(ServerOutput::Store { log_id, block_no });
            }
            Offer::Pending | Offer::Stored => {
                let same = book.is_same(run, log_id, block_no, content);
                out.push(ServerOutput::Duplicate { block_no, same });
                if !udp {
                    self.free(book, out);
                    self.acknowledge(now_ns, book, out);
                }
            }
        }
    }

    /// The buffer of a block is free.
    fn free(&self, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        let mut woken = Vec::new();
        book.credit.settle(self.config.id, &mut woken);
        self.wake(woken, out);
    }

    fn wake(&self, mut woken: Vec<u64>, out: &mut Vec<ServerOutput>) {
        woken.sort_unstable();
        woken.dedup();
        let others = woken.into_iter().filter(|&id| id != self.config.id);
        out.extend(others.map(ServerOutput::Wake));
    }

    /// The driver has stored a block, or has failed to.
    fn on_settled(
        &mut self,
        now_ns: u64,
        block_no: u32,
        failure: Option<String>,
        book: &mut LogBook,
        out: &mut Vec<ServerOutput>,
    ) {
        let Some(producer) = &self.producer else { return };
        let (run, log_id) = (producer.run.as_str(), producer.log_id);
        if self.unsettled == 0 || book.look_up(run, log_id, block_no) != Offer::Pending {
            return;
        }
        book.end(run, log_id, block_no, failure.is_none());
        self.unsettled -= 1;
        // Another session may have got the same block again and wait for it.
        let owner = book.owner(run, log_id).filter(|&owner| owner != self.config.id);
        out.extend(owner.map(ServerOutput::Wake));
        self.free(book, out);
        if self.state == State::Over {
            return self.vacate_if_settled(book, out);
        }
        if let Some(why) = failure
            && !is_udp(&producer.who)
        {
            let reason = format!("the log server could not store block {block_no}: {why}");
            return self.refuse(reason, true, book, out);
        }
        self.acknowledge(now_ns, book, out);
        if self.state == State::Leaving {
            self.leave_if_settled(now_ns, book, out);
        }
        self.end_if_drained(book, out);
    }

    /// Says how far the log is stored: at once when the producer may wait for it, else soon.
    fn acknowledge(&mut self, now_ns: u64, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        let delay = self.config.timeouts.ack_delay_ns;
        let Some(producer) = &mut self.producer else { return };
        if is_udp(&producer.who) || !matches!(self.state, State::Running | State::Leaving) {
            return;
        }
        while let Some(&block_no) = producer.waiting.front() {
            match book.look_up(&producer.run, producer.log_id, block_no) {
                Offer::Stored => {
                    producer.waiting.pop_front();
                    producer.stored_to = producer.stored_to.max(block_no + 1);
                }
                Offer::Pending => break,
                Offer::New => {
                    // It was being stored for an earlier connection, and that failed.
                    let reason = format!("the log server could not store block {block_no}");
                    return self.refuse(reason, true, book, out);
                }
            }
        }
        let now = (producer.stored_to, book.credit.granted(self.config.id));
        if now == producer.said {
            return;
        }
        let starved = producer.received >= producer.said.1 && now.1 > producer.said.1;
        let at = *producer.ack_at.get_or_insert_with(|| now_ns.saturating_add(delay));
        if producer.waiting.is_empty() || starved || at <= now_ns {
            producer.said = now;
            producer.ack_at = None;
            out.push(ServerOutput::Send(LogMessage::Ack { stored_to: now.0, credit: now.1 }));
        }
    }

    fn on_woken(&mut self, now_ns: u64, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        let Some(producer) = &self.producer else { return };
        if book.owner(&producer.run, producer.log_id) != Some(self.config.id) {
            return self.taken_over(book, out);
        }
        self.acknowledge(now_ns, book, out);
        self.leave_if_settled(now_ns, book, out);
        self.end_if_drained(book, out);
    }

    fn taken_over(&mut self, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        self.end("the producer has connected again".to_owned(), book, out);
    }

    const fn silent_at(&self) -> u64 {
        self.heard_ns.saturating_add(self.config.timeouts.silence_ns)
    }

    fn on_time(&mut self, now_ns: u64, book: &mut LogBook, out: &mut Vec<ServerOutput>) {
        let t = self.config.timeouts;
        let after = format_duration_ns;
        if let Some((reason, _)) = self.shutdown.as_ref().filter(|(_, until)| *until <= now_ns) {
            let text = format!(
                "the log server is being shut down: {reason}; {} not stored within {}",
                blocks_are(self.unsettled),
                after(t.drain_ns)
            );
            return self.refuse(text, true, book, out);
        }
        if self.producer.is_some() && self.silent_at() <= now_ns {
            let silence = after(t.silence_ns);
            return self.end(format!("the producer has been silent for {silence}"), book, out);
        }
        if self.until.is_some_and(|until| until <= now_ns) {
            let (text, again) = match self.state {
                State::Greeting | State::Challenged => {
                    (format!("no registration within {}", after(t.register_ns)), false)
                }
                State::Checking => {
                    let wait = after(t.check_ns);
                    (format!("the log server could not check the proof within {wait}"), true)
                }
                State::Opening => {
                    let wait = after(t.open_ns);
                    (format!("the log server could not open its files within {wait}"), true)
                }
                State::Leaving => (
                    format!(
                        "{} not stored within {}",
                        blocks_are(self.unsettled),
                        after(t.leave_ns)
                    ),
                    true,
                ),
                State::Running | State::Left | State::Over => return,
            };
            return self.refuse(text, again, book, out);
        }
        self.acknowledge(now_ns, book, out);
        self.leave_if_settled(now_ns, book, out);
    }

    fn enter(&mut self, state: State, now_ns: u64, wait_ns: u64) {
        self.state = state;
        self.until = Some(now_ns.saturating_add(wait_ns));
    }
}

/// A block that has come.
struct Block {
    log_id: u32,
    block_no: u32,
    content: BlockContent,
    intact: bool,
}

fn is_udp(who: &Registration) -> bool {
    who.transport == Transport::Udp
}

fn blocks_are(n: usize) -> String {
    number(n as u64, "block") + if n == 1 { " is" } else { " are" }
}
