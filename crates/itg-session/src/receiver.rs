//! The receiver's side of a session: one sender's connection, from its greeting to its leave.
//!
//! Assumes nothing about the sender: whatever breaks the rules is refused with a reason, a silent
//! sender is given up, and no state grows beyond the announced number of flows, which the receiver
//! bounds. Assumes a driver that does what the outputs say; a driver that answers late ends the
//! session, never blocks it.
//!
//! Two promises to the driver: after [`ReceiverOutput::Accept`] there is exactly one
//! [`ReceiverOutput::CloseLog`] before [`ReceiverOutput::Disconnect`]; and every flow of a
//! [`ReceiverOutput::Open`] is ended by [`ReceiverOutput::End`] and counted, or else given up by
//! [`ReceiverOutput::Abandon`].

use std::collections::BTreeMap;

use itg_core::flow::FlowSpec;
use itg_core::settings::MAX_DRAIN_NS;
use itg_core::units::{MAX_TIME_NS, format_duration_ns};

use crate::codec::CodecError;
use crate::difference::number;
use crate::measure::FlowMeasure;
use crate::message::{
    ClockReading, FlowCounts, FlowTotals, LogSummary, MAGIC, Message, MoreCounts, OPEN_BATCH,
    OpenReply, VERSION,
};
use crate::offer;
use crate::timeouts::Timeouts;

/// Longest name of a program, host, boot id or log that a sender may give, in bytes.
const MAX_NAME: usize = 4096;

/// Largest count of packets or bytes that a sender may report: sums of them fit 64 bits.
const MAX_COUNT: u64 = 1 << 56;

/// Identity of a receiver, and its limits.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// Name and version of this program.
    pub program: String,
    /// Name of this host.
    pub host: String,
    /// Boot id of this host's kernel.
    pub boot_id: String,
    /// Most flows that one sender may open.
    pub max_flows: u32,
    /// True if it has a secret that senders may share.
    pub secret: bool,
    /// True if it sends flows to peers that ask for them.
    pub turns: bool,
    /// Time limits of the session.
    pub timeouts: Timeouts,
}

/// Events that a driver reports to the receiver's session.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverInput {
    /// The sender said this.
    Message(Message),
    /// The sender sent bytes that are no message.
    Garbage(CodecError),
    /// The instant of [`ReceiverSession::deadline`] has come. Too early does no harm.
    Timer,
    /// The answer to [`ReceiverOutput::Open`]. When the flow has been given up meanwhile, nothing
    /// follows, and the driver drops it by itself.
    FlowOpened(OpenReply),
    /// Measure of a flow that is about to be counted.
    FlowMeasured(Box<FlowMeasure>),
    /// The answer to [`ReceiverOutput::Turn`]: notices of what was changed, or the reason of the refusal.
    Turned(Result<Vec<String>, String>),
    /// The answer to [`ReceiverOutput::End`].
    FlowCounted(FlowCounts),
    /// The answer to [`ReceiverOutput::CloseLog`]: the log that was kept, if any.
    LogClosed(Option<LogSummary>),
    /// The signalling connection was closed or broke; with the system's words.
    Lost(String),
    /// The receiver is being shut down, with the reason.
    Shutdown(String),
    /// The user of a receiver that has asked for the flows wants to stop, for this reason: flows that run end early
    /// and all else goes on as usual.
    Halt(String),
    /// There are too many connections, and this one gives way to a newer one.
    Displaced,
}

/// Tasks for the driver of a receiver's session, to be done in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum ReceiverOutput {
    /// Write this message (see [`Message::stamp`]).
    Send(Message),
    /// A sender has greeted: prepare a log. Nothing to answer.
    Accept {
        /// Run id: 32 hexadecimal digits.
        run: String,
        /// Run seed.
        seed: u64,
        /// Name and version of the sending program.
        program: String,
        /// Host name of the sender, as it says.
        host: String,
        /// Boot id of the sender's kernel.
        boot_id: String,
        /// Number of flows that may be opened.
        flows: u32,
        /// Requested name of the log: text of an untrusted peer, possibly a path.
        recv_log: Option<String>,
    },
    /// Packets of all flows prove where they come from: send [`Message::Proved`].
    Prove {
        /// The sender's nonce.
        nonce: [u8; 32],
    },
    /// Get ready for this flow and answer with [`ReceiverInput::FlowOpened`].
    Open(Box<FlowSpec>),
    /// Get ready to send these flows to the peer, and answer with [`ReceiverInput::Turned`]. If that says yes, the
    /// session ends with [`ReceiverOutput::Disconnect`], but the connection stays open: a
    /// [`SenderSession`](crate::SenderSession) goes on with it.
    Turn {
        /// The flows, as the peer describes them.
        flows: Vec<FlowSpec>,
    },
    /// Packets will come from now on.
    Start {
        /// Instant from which planned times count, Unix nanoseconds of the sender's clock.
        epoch_unix_ns: u64,
    },
    /// The flow has ended: drain its socket, then answer with [`ReceiverInput::FlowCounted`].
    End {
        /// The sender's account.
        totals: FlowTotals,
    },
    /// Drop all flows of this session that have not been counted; nothing to answer. What they have
    /// logged is kept.
    Abandon {
        /// Reason why the flows are dropped.
        reason: String,
    },
    /// Close the log and answer with [`ReceiverInput::LogClosed`]; when `Disconnect` follows at
    /// once, the answer is not awaited.
    CloseLog,
    /// The end: close the connection when everything has been written.
    Disconnect {
        /// Reason of the end, for the receiver's own log.
        reason: String,
    },
}

/// Reason sent to a sender that gives way to another.
const DISPLACED: &str =
    "too many connections: this one has agreed to no flow yet, a newer one takes its place";

/// State of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits for `Hello`.
    Greeting,
    /// Waits for `Open` or `Start`.
    SettingUp,
    /// Waits for the driver to open the flows of a batch.
    Opening,
    /// Waits for the driver to get ready for the exchange of the roles.
    Turning,
    /// Packets flow.
    Running,
    /// Waits for the driver to close the log.
    Closing,
    /// `Disconnect` has been said.
    Over,
}

/// State of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slot {
    /// The driver has not answered yet.
    Asked,
    /// The driver could not open it.
    Refused,
    /// Ready or running.
    Open,
    /// Ended by the sender; the driver has not counted it yet.
    Draining,
    /// The sender has been told.
    Counted,
}

/// The receiver's state machine, for one connection.
#[derive(Debug)]
pub struct ReceiverSession {
    config: ReceiverConfig,
    state: State,
    /// Latest end of the current state.
    until: Option<u64>,
    /// True once the sender has been asked to end the flows.
    halted: bool,
    heard_ns: u64,
    announced: usize,
    /// True if the sender takes measures.
    measures: bool,
    /// True if the sender takes what stands behind a message.
    takes_more: bool,
    slots: BTreeMap<u32, Slot>,
    /// Flows that are neither refused nor ended nor counted.
    open: usize,
    /// The batch that is being opened, in the sender's order, and how many answers are missing.
    batch: Vec<(u32, Option<OpenReply>)>,
    missing: usize,
}

impl ReceiverSession {
    /// Returns true if the sender takes accounts of arrivals ([`FlowArrivals::account`](crate::FlowArrivals::account)).
    #[must_use]
    pub const fn takes_accounts(&self) -> bool {
        self.takes_more
    }

    /// The session of a connection that was accepted at `now_ns` (nanoseconds of the clock that
    /// [`handle`](Self::handle) uses).
    #[must_use]
    pub const fn new(config: ReceiverConfig, now_ns: u64) -> Self {
        let until = Some(now_ns.saturating_add(config.timeouts.hello_ns));
        Self {
            config,
            state: State::Greeting,
            until,
            halted: false,
            heard_ns: now_ns,
            announced: 0,
            measures: false,
            takes_more: false,
            slots: BTreeMap::new(),
            open: 0,
            batch: Vec::new(),
            missing: 0,
        }
    }

    /// Returns true once [`ReceiverOutput::Disconnect`] has been said.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The next instant at which the session wants [`ReceiverInput::Timer`], in nanoseconds of the
    /// clock of `now_ns`.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Over => None,
            State::Greeting => self.until,
            _ => [self.until, Some(self.silent_at())].into_iter().flatten().min(),
        }
    }

    /// Takes an event at `now_ns` (nanoseconds of any clock that never runs backwards) and appends
    /// what the driver has to do.
    pub fn handle(&mut self, now_ns: u64, input: ReceiverInput, out: &mut Vec<ReceiverOutput>) {
        use {Message as M, ReceiverInput as I, State as S};
        if matches!(input, I::Message(_)) {
            self.heard_ns = now_ns;
        }
        match (self.state, input) {
            (S::Over, _) => {}
            (_, I::Timer) => self.on_time(now_ns, out),

            // Set-up
            (S::Greeting, I::Message(hello)) => self.on_hello(now_ns, hello, out),
            (S::SettingUp, I::Message(M::Prove { nonce })) if self.slots.is_empty() => {
                self.on_prove(nonce, out);
            }
            (S::SettingUp, I::Message(M::Open { flows })) => self.on_open(now_ns, flows, out),
            (S::SettingUp, I::Message(M::Turn { flows })) if self.slots.is_empty() => {
                self.on_turn(now_ns, flows, out);
            }
            (S::Turning, I::Turned(Ok(notices))) => {
                out.push(ReceiverOutput::Send(M::Turned { notices }));
                out.push(ReceiverOutput::CloseLog);
                self.disconnect("the roles are exchanged".to_owned(), out);
            }
            (S::Turning, I::Turned(Err(reason))) => self.refuse(reason, out),
            (S::Opening, I::FlowOpened(reply)) => self.on_opened(now_ns, reply, out),
            (S::SettingUp, I::Message(M::Start { epoch_unix_ns }))
                if epoch_unix_ns > MAX_TIME_NS =>
            {
                let text = "Start names a time beyond the year 2116: set the sender's clock";
                self.refuse(text.to_owned(), out);
            }
            (S::SettingUp, I::Message(M::Start { epoch_unix_ns })) if self.open > 0 => {
                out.push(ReceiverOutput::Start { epoch_unix_ns });
                out.push(ReceiverOutput::Send(M::Started));
                self.state = S::Running;
                self.until = None;
            }
            (S::SettingUp, I::Message(M::Start { .. })) => {
                self.refuse("Start came before any flow was open".to_owned(), out);
            }

            // The run
            (S::Running, I::Message(M::FlowEnded(totals))) => self.on_ended(now_ns, totals, out),
            (S::Running, I::FlowMeasured(measure)) => {
                if self.measures && self.slots.get(&measure.flow) == Some(&Slot::Draining) {
                    out.push(ReceiverOutput::Send(M::FlowMeasured(measure)));
                }
            }
            (S::Running, I::FlowCounted(counts)) => self.on_counted(now_ns, counts, out),

            // The end
            (S::SettingUp | S::Opening | S::Running, I::Message(M::Bye)) => {
                self.on_bye(now_ns, out);
            }
            (S::Closing, I::LogClosed(log)) => {
                out.push(ReceiverOutput::Send(M::ByeAck { log }));
                self.disconnect("the sender took its leave".to_owned(), out);
            }

            // Keep-alive
            (_, I::Message(M::Ping { n, sent, previous: _ })) => {
                out.push(ReceiverOutput::Send(M::Pong {
                    n,
                    ping_sent: sent,
                    received_unix_ns: 0,
                    sent: ClockReading::default(),
                    arrived: Vec::new(),
                }));
            }

            (_, other) => self.on_break(now_ns, other, out),
        }
    }

    /// Ends the session early, where the input does.
    fn on_break(&mut self, now_ns: u64, input: ReceiverInput, out: &mut Vec<ReceiverOutput>) {
        use {Message as M, ReceiverInput as I, State as S};
        match (self.state, input) {
            (_, I::Message(M::Hello { .. })) => {
                self.refuse("a second Hello came on the same connection".to_owned(), out);
            }
            (_, I::Message(other)) => {
                self.refuse(format!("{} came out of turn", other.name()), out);
            }
            (_, I::Garbage(error)) => self.refuse(error.to_string(), out),
            (S::Running, I::Halt(reason)) => {
                out.push(ReceiverOutput::Send(M::Halt { reason }));
                self.halted = true;
                let until = now_ns.saturating_add(self.config.timeouts.halt_ns);
                self.until = Some(self.until.map_or(until, |earlier| earlier.min(until)));
            }
            (S::Closing, I::Halt(_)) => {}
            (_, I::Shutdown(reason) | I::Halt(reason)) => {
                self.refuse(format!("the receiver is being shut down: {reason}"), out);
            }
            (_, I::Displaced) => self.refuse(DISPLACED.to_owned(), out),
            (_, I::Lost(why)) => {
                self.give_up(format!("the connection to the sender is gone: {why}"), out);
            }

            // A driver's answer that has been overtaken by events.
            (_, I::FlowOpened(_) | I::FlowMeasured(_) | I::FlowCounted(_)) => {}
            (_, I::Turned(_) | I::LogClosed(_) | I::Timer) => {}
        }
    }

    fn on_hello(&mut self, now_ns: u64, hello: Message, out: &mut Vec<ReceiverOutput>) {
        if let Err(wrong) = check_hello(&hello, self.config.max_flows) {
            return self.refuse(wrong, out);
        }
        let Message::Hello { run, seed, program, host, boot_id, flows, recv_log, .. } = hello
        else {
            return;
        };
        self.announced = usize::try_from(flows).unwrap_or(usize::MAX);
        self.measures = offer::has(&program, offer::MEASURES);
        self.takes_more = offer::has(&program, offer::MORE);
        out.push(ReceiverOutput::Accept { run, seed, program, host, boot_id, flows, recv_log });
        out.push(ReceiverOutput::Send(Message::Welcome {
            magic: MAGIC,
            version: VERSION,
            program: match self.config.turns {
                true => offer::with_all(&self.config.program, &[offer::TURNS, offer::MORE]),
                false => offer::with_all(&self.config.program, &[offer::MORE]),
            },
            host: self.config.host.clone(),
            boot_id: self.config.boot_id.clone(),
            control_timeout_ns: self.config.timeouts.silence_ns,
        }));
        self.enter(State::SettingUp, now_ns, self.config.timeouts.idle_ns);
    }

    fn on_prove(&mut self, nonce: [u8; 32], out: &mut Vec<ReceiverOutput>) {
        if self.config.secret {
            out.push(ReceiverOutput::Prove { nonce });
        } else {
            let text = "it shares no secret with senders: start it with --secret-file FILE, or send without --auth";
            self.refuse(text.to_owned(), out);
        }
    }

    fn on_turn(&mut self, now_ns: u64, flows: Vec<FlowSpec>, out: &mut Vec<ReceiverOutput>) {
        if !self.config.turns {
            let text = "this receiver sends nothing to those who ask for flows: start itg-recv with --allow-reverse";
            return self.refuse(text.to_owned(), out);
        }
        let (n, most) = (flows.len(), self.announced.min(OPEN_BATCH));
        if n == 0 || n > most {
            let text =
                format!("Turn names {n} flows; it may name from 1 to {most}: --flows of itg-send");
            return self.refuse(text, out);
        }
        out.push(ReceiverOutput::Turn { flows });
        self.enter(State::Turning, now_ns, self.config.timeouts.open_ns);
    }

    fn on_open(&mut self, now_ns: u64, flows: Vec<FlowSpec>, out: &mut Vec<ReceiverOutput>) {
        let (n, known, announced) = (flows.len(), self.slots.len(), self.announced);
        if n == 0 || n > OPEN_BATCH {
            let text = format!("Open names {n} flows; it may name from 1 to {OPEN_BATCH}");
            return self.refuse(text, out);
        }
        if known + n > announced {
            let text = format!("{} flows are to be opened; Hello announced {announced}", known + n);
            return self.refuse(text, out);
        }
        for spec in &flows {
            if spec.start_ns > MAX_TIME_NS {
                let text =
                    format!("flow {} is to start more than 146 years after its run", spec.id);
                return self.refuse(text, out);
            }
            if spec.handling.drain_ns.is_some_and(|ns| ns > MAX_DRAIN_NS) {
                let text = format!("flow {} is to wait more than 15 s for late packets", spec.id);
                return self.refuse(text, out);
            }
            if self.slots.insert(spec.id, Slot::Asked).is_some() {
                return self.refuse(format!("flow {} is to be opened twice", spec.id), out);
            }
        }
        self.batch = flows.iter().map(|spec| (spec.id, None)).collect();
        self.missing = n;
        out.extend(flows.into_iter().map(|spec| ReceiverOutput::Open(Box::new(spec))));
        self.enter(State::Opening, now_ns, self.config.timeouts.open_ns);
    }

    fn on_opened(&mut self, now_ns: u64, reply: OpenReply, out: &mut Vec<ReceiverOutput>) {
        let place = self.batch.iter_mut().find(|(flow, _)| *flow == reply.flow);
        let Some((flow, answer @ None)) = place else { return };
        let slot = if reply.result.is_ok() { Slot::Open } else { Slot::Refused };
        self.open += usize::from(slot == Slot::Open);
        self.slots.insert(*flow, slot);
        *answer = Some(reply);
        self.missing -= 1;
        if self.missing == 0 {
            let flows = self.batch.drain(..).filter_map(|(_, reply)| reply).collect();
            out.push(ReceiverOutput::Send(Message::Opened { flows }));
            self.enter(State::SettingUp, now_ns, self.config.timeouts.idle_ns);
        }
    }

    fn on_ended(&mut self, now_ns: u64, totals: FlowTotals, out: &mut Vec<ReceiverOutput>) {
        let FlowTotals { flow, packets, bytes, skipped, failed, next_seq, .. } = totals;
        if [packets, bytes, skipped, failed, next_seq].iter().any(|count| *count > MAX_COUNT) {
            let text = format!("flow {flow} ended with counts that no sender reaches");
            return self.refuse(text, out);
        }
        match self.slots.get_mut(&totals.flow) {
            Some(slot @ Slot::Open) => {
                *slot = Slot::Draining;
                self.open -= 1;
                self.watch_idle(now_ns);
                out.push(ReceiverOutput::End { totals });
            }
            Some(Slot::Draining | Slot::Counted) => {
                self.refuse(format!("flow {} ended twice", totals.flow), out);
            }
            Some(Slot::Asked | Slot::Refused) | None => {
                self.refuse(format!("flow {} ended, which is not open", totals.flow), out);
            }
        }
    }

    fn on_counted(&mut self, now_ns: u64, mut counts: FlowCounts, out: &mut Vec<ReceiverOutput>) {
        if !self.takes_more {
            counts.more = MoreCounts::default();
        }
        if let Some(slot @ Slot::Draining) = self.slots.get_mut(&counts.flow) {
            *slot = Slot::Counted;
            self.watch_idle(now_ns);
            out.push(ReceiverOutput::Send(Message::FlowCounted(counts)));
        }
    }

    /// Without a running flow, the sender has to go on within a time.
    const fn watch_idle(&mut self, now_ns: u64) {
        if self.open == 0 {
            self.until = Some(now_ns.saturating_add(self.config.timeouts.idle_ns));
        }
    }

    fn on_bye(&mut self, now_ns: u64, out: &mut Vec<ReceiverOutput>) {
        let left = self.uncounted();
        if left > 0 {
            let were = if left == 1 { "was" } else { "were" };
            let reason =
                format!("the sender took its leave before {left} of its flows {were} counted");
            out.push(ReceiverOutput::Abandon { reason });
        }
        out.push(ReceiverOutput::CloseLog);
        self.enter(State::Closing, now_ns, self.config.timeouts.close_ns);
    }

    /// Flows that the driver has or may have open.
    fn uncounted(&self) -> usize {
        let open = |slot: &&Slot| !matches!(slot, Slot::Refused | Slot::Counted);
        self.slots.values().filter(open).count()
    }

    const fn silent_at(&self) -> u64 {
        self.heard_ns.saturating_add(self.config.timeouts.silence_ns)
    }

    fn on_time(&mut self, now_ns: u64, out: &mut Vec<ReceiverOutput>) {
        let t = self.config.timeouts;
        let after = format_duration_ns;
        if self.state != State::Greeting && self.silent_at() <= now_ns {
            let silence = after(t.silence_ns);
            return self.give_up(format!("the sender has not been heard of for {silence}"), out);
        }
        if self.until.is_none_or(|until| now_ns < until) {
            return;
        }
        let text = match self.state {
            State::Greeting => format!("no Hello came within {}", after(t.hello_ns)),
            State::Running if self.halted && self.open > 0 => {
                format!("the sender has not ended its flows within {}", after(t.halt_ns))
            }
            State::SettingUp | State::Running => {
                format!("the sender has not gone on for {}", after(t.idle_ns))
            }
            State::Opening => {
                let missing = number(self.missing as u64, "flow");
                format!("the receiver could not open {missing} within {}", after(t.open_ns))
            }
            State::Turning => {
                format!("the receiver could not open its sockets within {}", after(t.open_ns))
            }
            State::Closing => {
                format!("the receiver could not close its log within {}", after(t.close_ns))
            }
            State::Over => return,
        };
        self.refuse(text, out);
    }

    /// Says no, drops everything, ends.
    fn refuse(&mut self, reason: String, out: &mut Vec<ReceiverOutput>) {
        out.push(ReceiverOutput::Send(Message::Refuse { reason: reason.clone() }));
        self.give_up(reason, out);
    }

    /// Drops everything, ends.
    fn give_up(&mut self, reason: String, out: &mut Vec<ReceiverOutput>) {
        if !matches!(self.state, State::Greeting | State::Closing) {
            out.push(ReceiverOutput::Abandon { reason: reason.clone() });
            out.push(ReceiverOutput::CloseLog);
        }
        self.disconnect(reason, out);
    }

    fn disconnect(&mut self, reason: String, out: &mut Vec<ReceiverOutput>) {
        out.push(ReceiverOutput::Disconnect { reason });
        self.state = State::Over;
        self.slots.clear();
        self.batch.clear();
    }

    const fn enter(&mut self, state: State, now_ns: u64, wait_ns: u64) {
        self.state = state;
        self.until = Some(now_ns.saturating_add(wait_ns));
    }
}

/// Checks that a greeting can be accepted; the error is the reason of the refusal.
fn check_hello(hello: &Message, max_flows: u32) -> Result<(), String> {
    let Message::Hello { magic, version, run, program, host, boot_id, flows, recv_log, .. } = hello
    else {
        return Err(format!("{} came before Hello", hello.name()));
    };
    if *magic != MAGIC {
        return Err(CodecError::Magic { got: *magic }.to_string());
    }
    if *version != VERSION {
        return Err(CodecError::Version { peer: *version }.to_string());
    }
    if run.len() != 32 || !run.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        let got: String = run.chars().take(40).collect();
        return Err(format!("the run id `{}` is not 32 hexadecimal digits", got.escape_debug()));
    }
    for name in [program, host, boot_id].into_iter().chain(recv_log) {
        if name.len() > MAX_NAME {
            let bytes = name.len();
            return Err(format!(
                "Hello has a name of {bytes} bytes; at most {MAX_NAME} are allowed"
            ));
        }
    }
    if *flows == 0 {
        return Err("Hello announces no flow".to_owned());
    }
    if *flows > max_flows {
        return Err(format!(
            "{flows} flows are announced; this receiver takes at most {max_flows} from one sender"
        ));
    }
    Ok(())
}
