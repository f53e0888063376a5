//! The sender's side of a session: greets, opens flows in batches, starts them, exchanges totals
//! flow by flow, takes its leave.
//!
//! Assumes a driver that does what the outputs say and reports the end of each flow. A failure
//! before [`SenderOutput::Begin`] ends the session at once. A failure after it stops the flows,
//! collects the driver's totals (each becomes a [`SenderOutput::Counted`] without the receiver's
//! counts) and only then ends the session, so that a partial result is never thrown away. A single
//! missing count does not disturb the other flows: it makes the session fail at its end.
//!
//! State: a slot for each flow. Costs of an event: a look-up in a map of the flows.

mod interface;
mod ledger;

use itg_core::text::from_peer;
use itg_core::units::format_duration_ns;

use crate::codec::CodecError;
use crate::difference::number;
use crate::error::{ErrorKind, Phase, SessionError};
use crate::measure::FlowMeasure;
use crate::message::{ClockReading, FlowCounts, FlowTotals, MAGIC, Message, OpenReply, VERSION};
use crate::offer;
use ledger::Ledger;

pub use interface::{SenderConfig, SenderInput, SenderOutput};

/// Pings are never closer than this, whatever a receiver asks for: 10 ms.
const MIN_PING_NS: u64 = 10_000_000;
/// Characters of a receiver's reason to end flows that are kept.
const MOST_REASON: usize = 200;
/// A receiver that has left pings unanswered for so long is silent, 2 s: it gets no more of them, for TCP repeats
/// those that are on their way, and its counts are waited for.
const SILENT_NS: u64 = 2_000_000_000;
/// Time that two clocks may differ over a session, in nanoseconds.
const CLOCKS_DIFFER_NS: u64 = 1_000_000_000;

/// State of the session.
#[derive(Debug)]
enum State {
    /// Not connected yet.
    Connecting,
    /// Waits for `Welcome`.
    Greeting,
    /// Waits for `Proved`.
    Proving,
    /// Waits for `Opened`.
    Opening,
    /// Waits for the driver's sockets.
    Arming,
    /// Waits for `Started`.
    Starting,
    /// Packets flow.
    Running,
    /// Every flow is accounted for; compares the clocks once more.
    Comparing,
    /// Waits for `ByeAck`.
    Closing,
    /// The receiver is lost; waits for the driver's totals.
    Salvaging(SessionError),
    /// `Done` or `Failed` has been said.
    Over,
}

/// Keep-alive state between the two sides.
#[derive(Debug)]
struct Link {
    ping_every_ns: u64,
    next_ping_ns: u64,
    pings: u64,
    /// Pings that are answered.
    answered: u64,
    /// Pings that are still to be sent as soon as the one before is answered.
    burst: u32,
    heard_ns: u64,
    /// Instant of the greeting.
    since_ns: u64,
}

impl Link {
    /// Packets that can have arrived since the greeting at most: no path brings more than one a nanosecond.
    const fn most_arrivals(&self, now_ns: u64) -> u64 {
        now_ns.saturating_sub(self.since_ns).saturating_add(CLOCKS_DIFFER_NS)
    }

    /// Returns true if the receiver should have answered long ago: it, or the path to it, stands still.
    const fn is_silent(&self, now_ns: u64) -> bool {
        self.answered < self.pings && self.heard_ns.saturating_add(SILENT_NS) <= now_ns
    }
}

/// The sender's state machine.
#[derive(Debug)]
pub struct SenderSession {
    config: SenderConfig,
    state: State,
    /// Latest end of the current state.
    until: Option<u64>,
    /// From `Welcome` on.
    link: Option<Link>,
    flows: Ledger,
    /// Error with which the session will fail at its end, though it goes on.
    shortfall: Option<SessionError>,
}

impl SenderSession {
    /// A session that is not connected yet.
    #[must_use]
    pub fn new(config: SenderConfig) -> Self {
        Self {
            config,
            state: State::Connecting,
            until: None,
            link: None,
            flows: Ledger::default(),
            shortfall: None,
        }
    }

    /// Returns true once [`SenderOutput::Done`] or [`SenderOutput::Failed`] has been said.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// The next instant at which the session wants [`SenderInput::Timer`], in nanoseconds of the
    /// clock of `now_ns`.
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        if self.is_over() {
            return None;
        }
        let link = self.live_link();
        let silent = link.map(|l| l.heard_ns.saturating_add(self.config.timeouts.silence_ns));
        let ping = link.map(|l| l.next_ping_ns);
        let counts = self.flows.first_awaited().map(|(at, _)| at);
        [self.until, silent, ping, counts].into_iter().flatten().min()
    }

    /// Takes an event at `now_ns` (nanoseconds of any clock that never runs backwards) and appends
    /// what the driver has to do.
    pub fn handle(&mut self, now_ns: u64, input: SenderInput, out: &mut Vec<SenderOutput>) {
        use {Message as M, SenderInput as I, State as S};
        if let (I::Message(_), Some(link)) = (&input, &mut self.link) {
            link.heard_ns = now_ns;
        }
        match (&self.state, input) {
            (S::Over, _) => {}
            (_, I::Timer) => self.on_time(now_ns, out),

            // Set-up
            (S::Connecting, I::Connected) => self.greet(now_ns, out),
            (
                S::Greeting,
                I::Message(M::Welcome { magic, version, control_timeout_ns, program, .. }),
            ) => {
                if let Some(why) = self.not_understood(&program) {
                    return self.fail(ErrorKind::Refused, why, out);
                }
                self.on_welcome(now_ns, magic, version, control_timeout_ns, out);
            }
            (S::Proving, I::Message(M::Proved { .. })) => self.ask_next(now_ns, out),
            (S::Opening, I::Message(M::Opened { flows })) => self.on_opened(now_ns, flows, out),
            (S::Arming, I::Armed { epoch_unix_ns }) => {
                out.push(SenderOutput::Send(M::Start { epoch_unix_ns }));
                self.enter(S::Starting, now_ns, self.config.timeouts.started_ns);
            }
            (S::Starting, I::Message(M::Started)) => self.begin(now_ns, out),

            // The run
            (S::Arming | S::Starting | S::Running, I::FlowEnded(totals)) => {
                self.on_ended(now_ns, totals, out);
            }
            (S::Running, I::AskArrivals) if self.is_silent(now_ns) => {}
            (S::Running, I::AskArrivals) => self.ping(now_ns, out),
            (S::Running, I::Message(M::FlowMeasured(measure))) => {
                self.on_measured(now_ns, measure, out);
            }
            (S::Running, I::Message(M::FlowCounted(counts))) => {
                self.on_counted(now_ns, counts, out);
            }
            (S::Running, I::Stop { reason }) => self.on_stop(now_ns, reason, out),
            (S::Running, I::Message(M::Halt { reason })) if self.config.asked => {
                let reason: String = reason.chars().take(MOST_REASON).collect();
                self.on_stop(now_ns, from_peer(&reason), out);
            }

            // The end
            // A count that came after its deadline, when all others had come.
            (S::Comparing | S::Closing, I::Message(M::FlowCounted(FlowCounts { flow, .. })))
                if self.flows.is_settled(flow) => {}
            (S::Comparing | S::Closing, I::Message(M::Halt { .. })) if self.config.asked => {}
            (S::Comparing | S::Closing, I::Message(M::FlowMeasured(measure)))
                if self.flows.is_settled(measure.flow) => {}
            (S::Closing, I::Message(M::ByeAck { log })) => {
                out.extend(log.map(SenderOutput::LogStored));
                match self.shortfall.take() {
                    None => self.finish(SenderOutput::Done, out),
                    Some(error) => self.finish(SenderOutput::Failed(error), out),
                }
            }
            (S::Salvaging(_), I::FlowEnded(totals)) => self.on_salvaged(totals, out),

            // Keep-alive
            (_, I::Message(M::Pong { n, ping_sent, received_unix_ns, sent, arrived }))
                if self.live_link().is_some_and(|link| {
                    let most = link.most_arrivals(now_ns);
                    // One answer to each question, in their order.
                    (link.answered..link.pings).contains(&n)
                        && arrived.iter().all(|arrived| arrived.is_sound(most))
                }) =>
            {
                out.push(SenderOutput::Clock { ping_sent, received_unix_ns, replied: sent });
                self.on_pong(now_ns, n, out);
            }

            (S::Salvaging(_), _) => {}
            (_, other) => self.on_break(now_ns, other, out),
        }
    }

    /// Ends the session early, where the input does.
    fn on_break(&mut self, now_ns: u64, input: SenderInput, out: &mut Vec<SenderOutput>) {
        use {Message as M, SenderInput as I, State as S};
        match (&self.state, input) {
            (S::Connecting, I::Lost(why)) => {
                self.fail(
                    ErrorKind::Refused,
                    format!("the receiver cannot be reached: {why}"),
                    out,
                );
            }
            (_, I::Lost(why)) => {
                let text = format!("the connection to the receiver is gone: {why}");
                self.break_off(now_ns, ErrorKind::Vanished, text, out);
            }
            (_, I::Garbage(error @ CodecError::Version { .. })) => {
                self.break_off(now_ns, ErrorKind::Version, error.to_string(), out);
            }
            (_, I::Garbage(error)) => {
                self.break_off(now_ns, ErrorKind::Protocol, error.to_string(), out);
            }
            (_, I::Message(M::Refuse { reason })) => {
                let text = format!("the receiver refused: {}", from_peer(&reason));
                self.break_off(now_ns, ErrorKind::Refused, text, out);
            }
            (_, I::Message(message)) => {
                let text = format!("the receiver sent {} out of turn", message.name());
                self.break_off(now_ns, ErrorKind::Protocol, text, out);
            }
            (S::Comparing | S::Closing, I::Stop { .. }) => {}
            (_, I::Stop { reason }) => {
                self.say_bye(out);
                self.fail(ErrorKind::Interrupted, reason, out);
            }

            // A driver's report that has been overtaken by events.
            (_, I::Connected | I::Armed { .. } | I::FlowEnded(_) | I::Timer) => {}
            (_, I::AskArrivals) => {}
        }
    }

    fn greet(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        match Ledger::new(&self.config.flows) {
            Ok(flows) => self.flows = flows,
            Err(why) => return self.fail(ErrorKind::Refused, why, out),
        }
        out.push(SenderOutput::Send(Message::Hello {
            magic: MAGIC,
            version: VERSION,
            run: self.config.run.clone(),
            seed: self.config.seed,
            program: offer::with_all(&self.config.program, &[offer::MEASURES, offer::MORE]),
            host: self.config.host.clone(),
            boot_id: self.config.boot_id.clone(),
            flows: u32::try_from(self.config.flows.len()).unwrap_or(u32::MAX),
            recv_log: self.config.recv_log.clone(),
        }));
        self.enter(State::Greeting, now_ns, self.config.timeouts.welcome_ns);
    }

    /// The reason why a receiver that has greeted so does not understand the flows, if it does not.
    fn not_understood(&self, program: &str) -> Option<String> {
        let asks = self.config.flows.iter().any(|spec| !spec.handling.is_default());
        (asks && !offer::has(program, offer::MORE)).then(|| {
            format!(
                "the receiver ({}) is of an older release, which waits for late packets as it likes: leave out drain",
                from_peer(program)
            )
        })
    }

    fn on_welcome(
        &mut self,
        now_ns: u64,
        magic: [u8; 4],
        version: u16,
        control_timeout_ns: u64,
        out: &mut Vec<SenderOutput>,
    ) {
        if magic != MAGIC {
            let error = CodecError::Magic { got: magic };
            return self.fail(ErrorKind::Protocol, error.to_string(), out);
        }
        if version != VERSION {
            let error = CodecError::Version { peer: version };
            return self.fail(ErrorKind::Version, error.to_string(), out);
        }
        // Four pings fit into the receiver's patience.
        let every = self.config.timeouts.ping_ns.min(control_timeout_ns / 4).max(MIN_PING_NS);
        self.link = Some(Link {
            ping_every_ns: every,
            // A burst starts at once.
            next_ping_ns: now_ns.saturating_add(if self.config.burst > 0 { 0 } else { every }),
            pings: 0,
            answered: 0,
            burst: self.config.burst,
            heard_ns: now_ns,
            since_ns: now_ns,
        });
        match self.config.prove {
            None => self.ask_next(now_ns, out),
            Some(nonce) => {
                out.push(SenderOutput::Send(Message::Prove { nonce }));
                self.enter(State::Proving, now_ns, self.config.timeouts.welcome_ns);
            }
        }
    }

    /// Sends the next batch, or is ready when there is none.
    fn ask_next(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        if let Some(batch) = self.flows.next_batch() {
            out.push(SenderOutput::Send(Message::Open { flows: batch.clone() }));
            return self.enter(State::Opening, now_ns, self.config.timeouts.opened_ns);
        }
        let (flows, refused) = self.flows.opened();
        if let (true, Some((flow, why))) = (flows.is_empty(), refused.first()) {
            let text = match refused.len() {
                1 => format!("the receiver refused flow {flow}: {why}"),
                n => format!("the receiver refused all {n} flows; flow {flow}: {why}"),
            };
            self.say_bye(out);
            return self.fail(ErrorKind::Refused, text, out);
        }
        out.push(SenderOutput::Ready { flows, refused });
        self.enter(State::Arming, now_ns, self.config.timeouts.armed_ns);
    }

    fn on_opened(&mut self, now_ns: u64, replies: Vec<OpenReply>, out: &mut Vec<SenderOutput>) {
        if self.flows.answer(replies) {
            self.ask_next(now_ns, out);
        } else {
            let text = "the receiver answered for other flows than it was asked about".to_owned();
            self.fail(ErrorKind::Protocol, text, out);
        }
    }

    fn begin(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        self.state = State::Running;
        self.until = None;
        out.push(SenderOutput::Begin);
        // Flows whose sockets could not be opened have ended already.
        for totals in self.flows.ended() {
            self.announce_end(now_ns, totals, out);
        }
    }

    fn on_ended(&mut self, now_ns: u64, totals: FlowTotals, out: &mut Vec<SenderOutput>) {
        if self.flows.end(&totals) && matches!(self.state, State::Running) {
            self.announce_end(now_ns, totals, out);
            if self.flows.running() == 0 {
                self.until = None; // whoever asked to stop has been obeyed
            }
        }
    }

    fn on_stop(&mut self, now_ns: u64, reason: String, out: &mut Vec<SenderOutput>) {
        if self.flows.running() > 0 && self.until.is_none() {
            self.until = Some(now_ns.saturating_add(self.config.timeouts.stop_ns));
            out.push(SenderOutput::StopFlows { reason });
        }
    }

    fn announce_end(&mut self, now_ns: u64, totals: FlowTotals, out: &mut Vec<SenderOutput>) {
        let until = now_ns.saturating_add(self.config.timeouts.counts_ns);
        self.flows.await_counts(totals.flow, until);
        out.push(SenderOutput::Send(Message::FlowEnded(totals)));
    }

    /// Takes a measure of a flow whose counts are awaited. One that came too late is of no use.
    fn on_measured(
        &mut self,
        now_ns: u64,
        mut measure: Box<FlowMeasure>,
        out: &mut Vec<SenderOutput>,
    ) {
        let flow = measure.flow;
        let most = self.most_arrivals(now_ns);
        if self.flows.awaits_counts(flow) && measure.is_sound(most) {
            if measure.duration_ns() > most {
                // Its clock was set, or it makes them up: the times say nothing.
                (measure.first_unix_ns, measure.last_unix_ns) = (0, 0);
            }
            out.push(SenderOutput::Measured(measure));
        } else if !self.flows.is_settled(flow) {
            let text = format!("the receiver measured flow {flow} as no receiver does");
            self.break_off(now_ns, ErrorKind::Protocol, text, out);
        }
    }

    fn most_arrivals(&self, now_ns: u64) -> u64 {
        self.link.as_ref().map_or(0, |link| link.most_arrivals(now_ns))
    }

    fn on_counted(&mut self, now_ns: u64, counts: FlowCounts, out: &mut Vec<SenderOutput>) {
        if !counts.is_sound(self.most_arrivals(now_ns)) {
            let text = format!("the receiver counted flow {} as no receiver does", counts.flow);
            self.break_off(now_ns, ErrorKind::Protocol, text, out);
        } else if let Some(totals) = self.flows.settle(counts.flow) {
            out.push(SenderOutput::Counted { totals, counts: Some(counts) });
            self.leave_if_all_settled(now_ns, out);
        } else if !self.flows.is_settled(counts.flow) {
            let flow = counts.flow;
            let text =
                format!("the receiver counted flow {flow}, which has not ended or does not exist");
            self.break_off(now_ns, ErrorKind::Protocol, text, out);
        }
    }

    fn leave_if_all_settled(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        if !self.flows.all_settled() {
            return;
        }
        if let Some(link) = &mut self.link
            && self.config.burst > 0
        {
            link.burst = self.config.burst;
            self.enter(State::Comparing, now_ns, self.config.timeouts.compare_ns);
            self.ping(now_ns, out);
        } else {
            self.leave(now_ns, out);
        }
    }

    fn leave(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        out.push(SenderOutput::Send(Message::Bye));
        self.enter(State::Closing, now_ns, self.config.timeouts.bye_ns);
    }

    /// A burst goes on with the answer to its latest ping.
    fn on_pong(&mut self, now_ns: u64, n: u64, out: &mut Vec<SenderOutput>) {
        let Some(link) = &mut self.link else { return };
        link.answered = link.answered.max(n + 1);
        match (link.burst, &self.state) {
            _ if n + 1 < link.pings => {}
            (0, State::Comparing) => self.leave(now_ns, out),
            (0, _) | (_, State::Closing) => {}
            _ => self.ping(now_ns, out),
        }
    }

    fn ping(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        let Some(link) = &mut self.link else { return };
        let sent = ClockReading::default();
        out.push(SenderOutput::Send(Message::Ping { n: link.pings, sent, previous: None }));
        link.pings += 1;
        link.burst = link.burst.saturating_sub(1);
        link.next_ping_ns = now_ns.saturating_add(link.ping_every_ns);
    }

    fn on_time(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        let silence_ns = self.config.timeouts.silence_ns;
        let heard_ns = self.live_link().map(|link| link.heard_ns);
        if heard_ns.is_some_and(|heard_ns| heard_ns.saturating_add(silence_ns) <= now_ns) {
            let silence = format_duration_ns(silence_ns);
            let text = format!("the receiver has not been heard of for {silence}");
            return self.break_off(now_ns, ErrorKind::Vanished, text, out);
        }
        if self.until.is_some_and(|until| until <= now_ns) {
            return match self.state {
                State::Comparing => self.leave(now_ns, out),
                _ => self.on_phase_timeout(out),
            };
        }
        self.miss_counts(now_ns, out);
        let silent = self.is_silent(now_ns);
        match &mut self.link {
            Some(link) if link.next_ping_ns > now_ns || matches!(self.state, State::Over) => {}
            Some(link) if silent => link.next_ping_ns = now_ns.saturating_add(link.ping_every_ns),
            Some(_) => self.ping(now_ns, out),
            None => {}
        }
    }

    fn is_silent(&self, now_ns: u64) -> bool {
        self.live_link().is_some_and(|link| link.is_silent(now_ns))
    }

    /// Goes on without the counts that should have come by now; while other flows run, a receiver that is silent may
    /// give them later.
    fn miss_counts(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        let silent = self.is_silent(now_ns);
        if silent && self.flows.running() > 0 {
            let until = now_ns.saturating_add(self.config.timeouts.counts_ns);
            return self.flows.await_longer(now_ns, until);
        }
        while let Some((until, flow)) = self.flows.first_awaited()
            && until <= now_ns
            && let Some(totals) = self.flows.settle(flow)
        {
            out.push(SenderOutput::Counted { totals, counts: None });
            let wait = format_duration_ns(self.config.timeouts.counts_ns);
            let text = format!("the receiver has not counted flow {flow} within {wait} of its end");
            let error = SessionError { phase: Phase::Run, kind: ErrorKind::Timeout, text };
            self.shortfall.get_or_insert(error);
            if silent && self.flows.all_settled() {
                return self.leave_the_silent(now_ns, out);
            }
            self.leave_if_all_settled(now_ns, out);
        }
    }

    /// Every flow has ended, and the receiver does not answer: it is waited for no longer.
    fn leave_the_silent(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        let (Some(mut error), Some(link)) = (self.shortfall.take(), &self.link) else { return };
        let silence_ns = now_ns.saturating_sub(link.heard_ns);
        error.text += &format!("; it has not been heard of for {}", format_duration_ns(silence_ns));
        error.kind = ErrorKind::Vanished;
        self.say_bye(out);
        self.finish(SenderOutput::Failed(error), out);
    }

    fn on_phase_timeout(&mut self, out: &mut Vec<SenderOutput>) {
        let t = self.config.timeouts;
        let after = format_duration_ns;
        let (text, polite) = match &self.state {
            State::Greeting => (
                format!(
                    "the receiver has not answered the greeting within {}: is it a receiver of \
                     ITG that listens there?",
                    after(t.welcome_ns)
                ),
                false,
            ),
            State::Proving => {
                let text = "the receiver has not proved that it has the secret within ";
                (text.to_owned() + &after(t.welcome_ns), false)
            }
            State::Opening => {
                (format!("the receiver has not opened flows within {}", after(t.opened_ns)), false)
            }
            State::Arming => {
                (format!("the data sockets were not ready within {}", after(t.armed_ns)), true)
            }
            State::Starting => {
                (format!("the receiver has not started within {}", after(t.started_ns)), false)
            }
            State::Running => (
                format!(
                    "{} not stopped within {}",
                    flows_have(self.flows.running()),
                    after(t.stop_ns)
                ),
                true,
            ),
            State::Closing => {
                (format!("the receiver has not closed its log within {}", after(t.bye_ns)), false)
            }
            State::Salvaging(error) => {
                let mut error = error.clone();
                error.text += &format!(
                    "; {} not reported an end within {}",
                    flows_have(self.flows.running()),
                    after(t.stop_ns)
                );
                return self.finish(SenderOutput::Failed(error), out);
            }
            State::Connecting | State::Comparing | State::Over => return,
        };
        self.count_without_receiver(out);
        if polite {
            self.say_bye(out);
        }
        // A flow that was not counted is the earlier and the better reason.
        match self.shortfall.take() {
            Some(error) => self.finish(SenderOutput::Failed(error), out),
            None => self.fail(ErrorKind::Timeout, text, out),
        }
    }

    /// The session cannot go on: ends it, after the run has begun only when flows are accounted for.
    fn break_off(
        &mut self,
        now_ns: u64,
        kind: ErrorKind,
        text: String,
        out: &mut Vec<SenderOutput>,
    ) {
        if !matches!(self.state, State::Running) {
            return self.fail(kind, text, out);
        }
        self.count_without_receiver(out);
        if self.flows.running() == 0 {
            return self.fail(kind, text, out);
        }
        out.push(SenderOutput::StopFlows { reason: text.clone() });
        let error = SessionError { phase: Phase::Run, kind, text };
        self.enter(State::Salvaging(error), now_ns, self.config.timeouts.stop_ns);
    }

    fn on_salvaged(&mut self, totals: FlowTotals, out: &mut Vec<SenderOutput>) {
        if !self.flows.end(&totals) {
            return;
        }
        self.flows.settle(totals.flow);
        out.push(SenderOutput::Counted { totals, counts: None });
        if self.flows.running() == 0
            && let State::Salvaging(error) = std::mem::replace(&mut self.state, State::Over)
        {
            self.finish(SenderOutput::Failed(error), out);
        }
    }

    /// Reports the ended flows for which no count will come any more.
    fn count_without_receiver(&mut self, out: &mut Vec<SenderOutput>) {
        if matches!(self.state, State::Running) {
            for totals in self.flows.ended() {
                self.flows.settle(totals.flow);
                out.push(SenderOutput::Counted { totals, counts: None });
            }
        }
    }

    /// Lets the receiver close its log in peace, when it is there.
    fn say_bye(&self, out: &mut Vec<SenderOutput>) {
        if self.link.is_some() {
            out.push(SenderOutput::Send(Message::Bye));
        }
    }

    fn fail(&mut self, kind: ErrorKind, text: String, out: &mut Vec<SenderOutput>) {
        let error = SessionError { phase: self.phase(), kind, text };
        self.finish(SenderOutput::Failed(error), out);
    }

    fn finish(&mut self, last: SenderOutput, out: &mut Vec<SenderOutput>) {
        out.push(last);
        self.state = State::Over;
    }

    fn enter(&mut self, state: State, now_ns: u64, wait_ns: u64) {
        self.state = state;
        self.until = Some(now_ns.saturating_add(wait_ns));
    }

    const fn phase(&self) -> Phase {
        match &self.state {
            State::Connecting => Phase::Connect,
            State::Greeting => Phase::Greet,
            State::Proving | State::Opening => Phase::Open,
            State::Arming => Phase::Arm,
            State::Starting => Phase::Start,
            State::Running | State::Salvaging(_) => Phase::Run,
            State::Comparing | State::Closing | State::Over => Phase::Leave,
        }
    }

    /// The link, unless the receiver is lost.
    const fn live_link(&self) -> Option<&Link> {
        match self.state {
            State::Salvaging(_) | State::Over => None,
            _ => self.link.as_ref(),
        }
    }
}

fn flows_have(n: usize) -> String {
    number(n as u64, "flow") + if n == 1 { " has" } else { " have" }
}
