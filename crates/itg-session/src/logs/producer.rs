//! The producer's side: one log, from its first block to the server's last word.
//!
//! Assumes a driver that keeps the bytes of a block until it is told to release it, and nothing about
//! the server: when it is away the machine connects again and again, and the bounded number of buffers, or
//! the spool, bridge the gap. What a server says is never believed against the machine's own
//! count: an acknowledgement of what was not sent is refused.
//!
//! Costs: a few words for each block that is held, in memory or in the spool; constant time an event,
//! but for moving blocks to the spool.

mod account;
mod ending;
mod interface;
mod spool;
mod window;

use itg_core::text::visible;
use itg_core::units::format_duration_ns;

use super::message::{
    LEAVE_FLOWS, LOG_MAGIC, LOG_VERSION, LogMessage, MAX_NAME, MAX_REASON, Registration, Transport,
};
use super::name::{cut, proof_text};

use account::Account;
use window::{UnstoredBlock, Window};

pub use interface::{
    LogFate, LogProducerConfig, ProducerInput, ProducerOutput, SpooledBlock, SpooledLog,
};

/// State of the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// No connection; the next attempt comes at `until`, if any.
    Away,
    /// The driver connects.
    Connecting,
    /// `Register` has been said.
    Registering,
    /// The driver authenticates.
    Proving,
    /// UDP: `Bind` is being said.
    Binding,
    /// Blocks are sent.
    Running,
    /// `Leave` has been said.
    Leaving,
    /// `Finished` or `Failed` has been said.
    Over,
}

/// Relation of the server to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// It has not taken a block yet. A producer without spool fails then, if it is not registered.
    New { until: u64 },
    /// It has taken blocks at least once.
    Known,
    /// It will never take the log.
    Banished,
}

/// Time without a server that takes blocks.
#[derive(Clone, Debug, Default)]
struct Absence {
    since: Option<u64>,
    /// Attempts to connect.
    attempts: u32,
    /// Latest failure, in words.
    trouble: Option<String>,
}

/// One connection.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// `Challenge` has been answered.
    proved: bool,
    /// From `Registered`.
    log_id: u32,
    token: u64,
    heard_ns: u64,
    ping_at: u64,
    pings: u64,
    bind_at: u64,
}

/// State of the log's end, once the driver has closed it.
#[derive(Clone, Debug)]
struct Closing {
    per_flow: Vec<(u32, u64)>,
    /// Without progress until then, the server is given up.
    until: u64,
    /// `Leave` has been said, perhaps on an earlier connection.
    said: bool,
}

/// The producer's state machine.
#[derive(Debug)]
pub struct LogProducer {
    config: LogProducerConfig,
    state: State,
    /// Latest end of the current state.
    until: Option<u64>,
    standing: Standing,
    absence: Absence,
    link: Link,
    window: Window,
    account: Account,
    closing: Option<Closing>,
}

impl LogProducer {
    /// A new log. It wants its first [`ProducerInput::Timer`] at once.
    #[must_use]
    pub fn new(config: LogProducerConfig, now_ns: u64) -> Self {
        Self::resume(config, SpooledLog::default(), now_ns)
    }

    /// A log that an earlier process left in its spool; the key of the registration has to be the same.
    /// It wants its first [`ProducerInput::Timer`] at once, and [`ProducerInput::Close`] like any
    /// other.
    #[must_use]
    pub fn resume(mut config: LogProducerConfig, log: SpooledLog, now_ns: u64) -> Self {
        for text in [&mut config.who.run, &mut config.who.host, &mut config.who.program] {
            *text = cut(std::mem::take(text), MAX_NAME);
        }
        config.max_unacked = config.max_unacked.max(1);
        config.memory_blocks = config.memory_blocks.max(1);
        Self {
            state: State::Away,
            until: Some(now_ns),
            standing: Standing::New { until: now_ns.saturating_add(config.timeouts.first_ns) },
            absence: Absence { since: Some(now_ns), ..Absence::default() },
            link: Link::default(),
            window: Window::of_spool(&log.spool, log.blocks),
            account: Account::of_spool(&log),
            closing: None,
            config,
        }
    }

    /// Returns true once [`ProducerOutput::Finished`] or [`ProducerOutput::Failed`] has been said.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// Returns true while the server takes blocks.
    #[must_use]
    pub fn is_registered(&self) -> bool {
        matches!(self.state, State::Running | State::Leaving)
    }

    /// The number that the next new block must have.
    #[must_use]
    pub const fn next_block(&self) -> u32 {
        self.account.next_no
    }

    /// Blocks that wait in memory for being acknowledged (TCP) or sent (UDP).
    #[must_use]
    pub const fn in_memory(&self) -> usize {
        self.window.in_memory()
    }

    /// The next instant at which the machine wants [`ProducerInput::Timer`], in nanoseconds of the
    /// clock of `now_ns`.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.state == State::Over {
            return None;
        }
        let talks = matches!(self.state, State::Binding | State::Running | State::Leaving);
        [
            self.until,
            talks.then(|| self.silent_at().min(self.link.ping_at)),
            (self.state == State::Binding).then_some(self.link.bind_at),
            self.fails_at(),
            self.closing.as_ref().map(|closing| closing.until),
            self.spool_at(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Takes an event at `now_ns` (nanoseconds of any clock that never runs backwards) and appends
    /// what the driver has to do.
    ///
    /// # Panics
    /// If a new block has not the number [`LogProducer::next_block`], or is larger than announced:
    /// bugs of the driver.
    pub fn handle(&mut self, now_ns: u64, input: ProducerInput, out: &mut Vec<ProducerOutput>) {
        use {LogMessage as M, ProducerInput as I, ProducerOutput as O, State as S};
        if matches!(input, I::Message(_)) {
            self.link.heard_ns = now_ns;
        }
        match (self.state, input) {
            (S::Over, _) => {}
            (_, I::Timer) => self.on_time(now_ns, out),

            // The connection
            (S::Connecting, I::Connected) => {
                self.link = Link::default();
                out.push(O::Send(M::register(self.who(), None)));
                self.enter(S::Registering, now_ns, self.config.timeouts.register_ns);
            }
            (S::Registering, I::Message(M::Challenge { nonce, .. })) if !self.link.proved => {
                out.push(O::Prove { text: proof_text(&nonce, &self.who()) });
                self.enter(S::Proving, now_ns, self.config.timeouts.register_ns);
            }
            (S::Proving, I::Proof(proof)) => {
                self.link.proved = true;
                out.push(O::Send(M::register(self.who(), Some(proof))));
                self.enter(S::Registering, now_ns, self.config.timeouts.register_ns);
            }
            (
                S::Registering,
                I::Message(M::Registered { log_id, data_port, token, credit, stored_to, .. }),
            ) => {
                (self.link.log_id, self.link.token) = (log_id, token);
                self.window.grant(credit);
                self.on_registered(now_ns, data_port, stored_to, out);
            }
            (S::Binding, I::Message(M::Bound)) => self.run(now_ns, out),
            (S::Running | S::Leaving, I::Message(M::Bound)) if self.is_udp() => {}

            // Blocks
            (_, I::BlockReady { block_no, records, bytes }) => {
                assert!(bytes <= self.config.who.block_bytes, "a block larger than announced");
                self.account.count_new(block_no);
                self.account.produced.add(records);
                self.window.push(block_no, records);
                self.make_room(now_ns, out);
                self.pump(now_ns, out);
            }
            (_, I::Dropped { block_no, records }) if block_no >= self.account.next_no => {
                self.account.count_new(block_no);
                self.account.dropped.add(records);
            }
            (_, I::Dropped { block_no, .. }) => self.on_spool_broken(now_ns, block_no, out),
            (S::Running, I::Message(M::Ack { stored_to, credit })) if !self.is_udp() => {
                self.on_ack(now_ns, stored_to, credit, out);
            }
            // Everything is acknowledged already; another producer's leaving may give more credit.
            (S::Leaving, I::Message(M::Ack { .. })) if !self.is_udp() => {}
            (S::Running, I::BlockSent { block_no }) if self.is_udp() => {
                self.on_sent(now_ns, block_no, out);
            }
            (_, I::BlockSent { .. }) => {}

            // The end
            (_, I::Close { per_flow }) => {
                if self.closing.is_none() {
                    let until = now_ns.saturating_add(self.config.timeouts.leave_ns);
                    self.closing = Some(Closing { per_flow, until, said: false });
                    if self.standing == Standing::Banished {
                        return self.finish(out);
                    }
                    self.pump(now_ns, out);
                }
            }
            (S::Leaving, I::Message(left @ M::Left { .. })) => {
                let fate = self.account.confirmed(left);
                self.state = S::Over;
                out.extend([O::Disconnect, O::Finished(fate)]);
            }

            // Keep-alive
            (S::Binding | S::Running | S::Leaving, I::Message(M::Pong { .. })) => {}
            (S::Away, _) => {}
            (_, other) => self.on_break(now_ns, other, out),
        }
    }

    /// Ends a connection early, where the input does.
    fn on_break(&mut self, now_ns: u64, input: ProducerInput, out: &mut Vec<ProducerOutput>) {
        use {LogMessage as M, ProducerInput as I};
        match input {
            I::Message(M::Refused { reason, again }) => {
                let reason = cut(visible(&reason).into_owned(), MAX_REASON);
                let reason = format!("the log server refused: {reason}");
                out.push(ProducerOutput::Disconnect);
                if again { self.retreat(now_ns, reason) } else { self.banish(reason, out) }
            }
            I::Message(other) => {
                let reason = format!("the log server said {} out of turn", other.name());
                self.distrust(now_ns, reason, out);
            }
            I::Garbage(error) => self.distrust(now_ns, error.to_string(), out),
            I::Lost(why) => {
                let doing = match self.state {
                    State::Connecting => "the log server cannot be reached",
                    _ => "the connection to the log server is gone",
                };
                self.retreat(now_ns, format!("{doing}: {why}"));
            }
            // A driver's answer that has been overtaken by events.
            I::Connected | I::Proof(_) => {}
            I::Timer | I::BlockReady { .. } | I::Dropped { .. } => {}
            I::BlockSent { .. } | I::Close { .. } => {}
        }
    }

    fn who(&self) -> Registration {
        let next_block = self.first_held();
        Registration { next_block, ..self.config.who.clone() }
    }

    fn is_udp(&self) -> bool {
        self.config.who.transport == Transport::Udp
    }

    /// Number of the first block that the driver keeps, or of the next one.
    fn first_held(&self) -> u32 {
        self.window.first().map_or(self.account.next_no, |block| block.block_no)
    }

    fn on_registered(
        &mut self,
        now_ns: u64,
        data_port: u16,
        stored_to: u32,
        out: &mut Vec<ProducerOutput>,
    ) {
        if stored_to > self.window.ever_sent().max(self.first_held()) {
            return self.distrust(now_ns, self.never_sent(stored_to), out);
        }
        if self.is_udp() && data_port == 0 {
            let reason = "the log server gives no port for datagrams: use tcp://".to_owned();
            return self.distrust(now_ns, reason, out);
        }
        out.push(ProducerOutput::Registered { log_id: self.link.log_id, data_port });
        self.link.heard_ns = now_ns;
        self.link.ping_at = now_ns.saturating_add(self.config.timeouts.ping_ns);
        if self.is_udp() {
            self.enter(State::Binding, now_ns, self.config.timeouts.bind_ns);
            return self.say_bind(now_ns, out);
        }
        self.release(now_ns, stored_to, out);
        self.run(now_ns, out);
    }

    fn never_sent(&self, stored_to: u32) -> String {
        format!(
            "the log server says that it has stored everything below block {stored_to}; only \
             blocks below {} have been sent",
            self.window.ever_sent()
        )
    }

    fn say_bind(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        let Link { log_id, token, .. } = self.link;
        let bind = LogMessage::Bind { magic: LOG_MAGIC, version: LOG_VERSION, log_id, token };
        out.push(ProducerOutput::SendBind(bind));
        self.link.bind_at = now_ns.saturating_add(self.config.timeouts.bind_again_ns);
    }

    /// Blocks may be sent.
    fn run(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        self.state = State::Running;
        self.until = None;
        self.standing = Standing::Known;
        self.absence = Absence::default();
        self.pump(now_ns, out);
    }

    /// Sends what may be sent; takes leave when nothing is left.
    fn pump(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        if self.state != State::Running {
            return;
        }
        let (most, by_credit) = (self.config.max_unacked as usize, !self.is_udp());
        while let Some(UnstoredBlock { block_no, in_spool, .. }) =
            self.window.send_next(most, by_credit)
        {
            out.push(if in_spool {
                ProducerOutput::Unspool { block_no }
            } else {
                ProducerOutput::SendBlock { block_no }
            });
        }
        if self.window.is_empty()
            && let Some(closing) = &mut self.closing
        {
            let flows = closing.per_flow.iter().take(LEAVE_FLOWS).copied().collect();
            let left_out = closing.per_flow.len().saturating_sub(LEAVE_FLOWS);
            if !closing.said {
                closing.said = true;
                closing.until = now_ns.saturating_add(self.config.timeouts.leave_ns);
            }
            out.push(ProducerOutput::Send(LogMessage::Leave {
                blocks: self.account.next_no,
                records: self.account.produced.records,
                dropped_blocks: self.account.dropped.blocks,
                dropped_records: self.account.dropped.records,
                per_flow: flows,
                flows_left_out: u32::try_from(left_out).unwrap_or(u32::MAX),
            }));
            self.state = State::Leaving;
        }
    }

    fn on_ack(&mut self, now_ns: u64, stored_to: u32, credit: u32, out: &mut Vec<ProducerOutput>) {
        let unsent = self.window.first_unsent();
        let unsent = unsent.map_or(self.account.next_no, |block| block.block_no);
        if stored_to > unsent {
            return self.distrust(now_ns, self.never_sent(stored_to), out);
        }
        self.window.grant(credit);
        self.release(now_ns, stored_to, out);
        self.pump(now_ns, out);
    }

    /// The server has everything below `stored_to`.
    fn release(&mut self, now_ns: u64, stored_to: u32, out: &mut Vec<ProducerOutput>) {
        let mut any = false;
        while let Some(block) = self.window.pop_below(stored_to) {
            any = true;
            self.account.gone.add(block.records);
        }
        if any {
            out.push(ProducerOutput::Release { up_to: stored_to });
            self.progress(now_ns);
        }
    }

    fn on_sent(&mut self, now_ns: u64, block_no: u32, out: &mut Vec<ProducerOutput>) {
        if self.window.is_on_its_way(block_no) {
            self.release(now_ns, block_no + 1, out);
            self.pump(now_ns, out);
        }
    }

    fn progress(&mut self, now_ns: u64) {
        if let Some(closing) = &mut self.closing {
            closing.until = now_ns.saturating_add(self.config.timeouts.leave_ns);
        }
    }

    const fn silent_at(&self) -> u64 {
        self.link.heard_ns.saturating_add(self.config.timeouts.silence_ns)
    }

    /// Instant at which it has failed, unless it is registered before.
    const fn fails_at(&self) -> Option<u64> {
        match self.standing {
            Standing::New { until } if self.config.patience_ns.is_none() => Some(until),
            _ => None,
        }
    }

    fn on_time(&mut self, now_ns: u64, out: &mut Vec<ProducerOutput>) {
        use {ProducerOutput as O, State as S};
        let t = self.config.timeouts;
        let after = format_duration_ns;
        if self.closing.as_ref().is_some_and(|closing| closing.until <= now_ns) {
            if self.state != S::Away {
                out.push(O::Disconnect);
            }
            self.absence.trouble.get_or_insert_with(|| {
                format!("the log server did not get on within {}", after(t.leave_ns))
            });
            return self.finish(out);
        }
        if self.fails_at().is_some_and(|at| at <= now_ns) {
            if self.state != S::Away {
                out.push(O::Disconnect);
            }
            let mut reason = format!("the log was not registered within {}", after(t.first_ns));
            if let Some(trouble) = self.absence.trouble.take() {
                reason += &format!("; {trouble}");
            }
            return self.fail(reason, out);
        }
        if matches!(self.state, S::Binding | S::Running | S::Leaving) {
            if self.silent_at() <= now_ns {
                out.push(O::Disconnect);
                let silence = after(t.silence_ns);
                self.retreat(now_ns, format!("the log server has been silent for {silence}"));
            } else if self.link.ping_at <= now_ns {
                out.push(O::Send(LogMessage::Ping { n: self.link.pings }));
                self.link.pings += 1;
                self.link.ping_at = now_ns.saturating_add(t.ping_ns);
            }
        }
        if self.state == S::Binding && self.link.bind_at <= now_ns {
            self.say_bind(now_ns, out);
        }
        if self.until.is_some_and(|until| until <= now_ns) {
            let trouble = match self.state {
                S::Away => {
                    out.push(O::Connect);
                    self.enter(S::Connecting, now_ns, t.connect_ns);
                    None
                }
                S::Connecting => Some(format!(
                    "the log server cannot be reached: no connection within {}",
                    after(t.connect_ns)
                )),
                S::Registering => Some(format!(
                    "no answer to the registration within {}: is it a log server of ITG that \
                     listens there?",
                    after(t.register_ns)
                )),
                S::Proving => {
                    Some(format!("no proof for the log server within {}", after(t.register_ns)))
                }
                S::Binding => Some(format!(
                    "datagrams do not reach the log server: no answer within {}",
                    after(t.bind_ns)
                )),
                S::Running | S::Leaving | S::Over => None,
            };
            if let Some(trouble) = trouble {
                out.push(O::Disconnect);
                self.retreat(now_ns, trouble);
            }
        }
        self.make_room(now_ns, out);
    }

    fn enter(&mut self, state: State, now_ns: u64, wait_ns: u64) {
        self.state = state;
        self.until = Some(now_ns.saturating_add(wait_ns));
    }
}
