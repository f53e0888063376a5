//! Both machines in virtual time: a network with delays and cuts between them, drivers that answer
//! soon, late or never, and a checker of what must hold whatever happens ([`check`]).
#![allow(unreachable_pub, missing_docs, reason = "shared by several files of tests")]

mod check;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use chacha20::ChaCha8Rng;
use itg_core::flow::FlowSpec;
use itg_session::{
    EndCause, FlowCounts, FlowMeasure, FlowTotals, LogSummary, Message, OPEN_BATCH, OpenReply,
    OpenedFlow, ReceiverConfig, ReceiverInput, ReceiverOutput, ReceiverSession, SenderConfig,
    SenderInput, SenderOutput, SenderSession, Timeouts, decode, encode,
};
use rand::{RngExt, SeedableRng};

pub use check::{check, check_receiver, check_sender_order};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// Time after which a driver answers; `None`: never.
pub type Answer = Option<u64>;

/// Events of one flow.
#[derive(Clone, Debug)]
pub struct FlowPlan {
    /// The receiver opens it, or says no.
    pub opens: bool,
    pub open_answer: Answer,
    /// The sender cannot open its data socket and reports its end before the start.
    pub fails_early: bool,
    /// It ends by itself this long after `Begin`.
    pub runs: Answer,
    /// After `StopFlows`.
    pub stop_answer: Answer,
    pub count_answer: Answer,
}

/// The connection dies with this message (counted over both directions).
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    pub message: usize,
    pub sender_learns: bool,
    pub receiver_learns: bool,
}

/// One simulated session.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub flows: Vec<FlowPlan>,
    /// Longest delay of a message.
    pub delay_ns: u64,
    pub arm_answer: Answer,
    pub log_answer: Answer,
    pub keeps_log: bool,
    pub cut: Option<Cut>,
    /// The user at the sender stops.
    pub stop_at: Option<u64>,
    /// The receiver is shut down.
    pub shutdown_at: Option<u64>,
    /// Most flows that the receiver takes.
    pub max_flows: u32,
}

/// Something wrong with a program, put in on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// `FlowCounted` never reaches the sender's machine.
    SwallowFlowCounted,
    /// The sender's machine keeps a `Counted` to itself.
    SwallowCounted,
    /// The receiver's machine keeps an `Abandon` to itself.
    SwallowAbandon,
    /// The sender's machine misses its deadlines.
    DeafSender,
    /// The receiver's machine misses its deadlines.
    DeafReceiver,
    /// The receiver's machine forgets to have the log closed.
    SwallowCloseLog,
}

#[derive(Clone, Debug)]
pub enum Output {
    Sender(SenderOutput),
    Receiver(ReceiverOutput),
}

/// Record of a simulated session.
#[derive(Debug, Default)]
pub struct Trace {
    pub outputs: Vec<(u64, Output)>,
    pub sender_over_at: Option<u64>,
    pub receiver_over_at: Option<u64>,
    /// Messages put on the network.
    pub messages: usize,
    /// Flows that the receiver's driver still has open at the end.
    pub left_open: BTreeSet<u32>,
    /// Rules broken while it ran.
    pub broken: Vec<String>,
}

impl Plan {
    /// A session in which nothing goes wrong: `n` flows that run for a second.
    pub fn clean(seed: u64, n: usize) -> Self {
        let flow = FlowPlan {
            opens: true,
            open_answer: Some(MS),
            fails_early: false,
            runs: Some(SECOND),
            stop_answer: Some(MS),
            count_answer: Some(200 * MS),
        };
        Self {
            seed,
            flows: vec![flow; n],
            delay_ns: 20 * MS,
            arm_answer: Some(5 * MS),
            log_answer: Some(5 * MS),
            keeps_log: true,
            cut: None,
            stop_at: None,
            shutdown_at: None,
            max_flows: 4096,
        }
    }

    /// A session drawn from a seed, from harmless to hopeless.
    pub fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let r = &mut rng;
        let n = match r.random_range(0..10u32) {
            0..5 => r.random_range(1..4),
            5..9 => r.random_range(4..40),
            _ => r.random_range(40..200),
        };
        let mut plan = Self::clean(seed, n);
        plan.delay_ns = [0, MS, 50 * MS, 400 * MS][r.random_range(0..4usize)];
        // How unreliable drivers are: not at all in half of all sessions.
        let trouble = if r.random_bool(0.5) { 0.0 } else { r.random_range(0.0..0.3) };
        let answer = |r: &mut ChaCha8Rng| -> Answer {
            if r.random_bool(trouble / 2.0) {
                None
            } else if r.random_bool(trouble / 2.0) {
                Some(r.random_range(0..15 * SECOND))
            } else {
                let longest = [0, 10 * MS, 2 * SECOND][r.random_range(0..3usize)];
                Some(r.random_range(0..=longest))
            }
        };
        let refusals = [0.0, 0.0, 0.3, 1.0][r.random_range(0..4usize)];
        let endless = r.random_bool(0.2);
        for flow in &mut plan.flows {
            flow.opens = !r.random_bool(refusals);
            flow.open_answer =
                if r.random_bool(0.98) { Some(r.random_range(0..SECOND)) } else { answer(r) };
            flow.fails_early = r.random_bool(0.03);
            flow.runs = (!endless).then(|| r.random_range(0..20 * SECOND));
            flow.stop_answer = answer(r);
            flow.count_answer = answer(r);
        }
        plan.arm_answer = answer(r);
        plan.log_answer = answer(r);
        plan.keeps_log = r.random_bool(0.7);
        if r.random_bool(0.3) {
            plan.cut = Some(Cut {
                message: r.random_range(0..60),
                sender_learns: r.random_bool(0.5),
                receiver_learns: r.random_bool(0.5),
            });
        }
        if endless || r.random_bool(0.2) {
            plan.stop_at = Some(r.random_range(0..30 * SECOND));
        }
        if r.random_bool(0.1) {
            plan.shutdown_at = Some(r.random_range(0..30 * SECOND));
        }
        if r.random_bool(0.03) {
            plan.max_flows = r.random_range(0..4);
        }
        plan
    }

    /// Returns true if network and drivers are good enough for the run to succeed.
    pub fn is_clean(&self) -> bool {
        let quick = |answer: Answer| answer.is_some_and(|ns| ns <= 2 * SECOND);
        self.cut.is_none()
            && self.shutdown_at.is_none()
            && self.flows.len() <= self.max_flows as usize
            && [self.arm_answer, self.log_answer].into_iter().all(quick)
            && self
                .flows
                .iter()
                .all(|f| [f.open_answer, f.stop_answer, f.count_answer].into_iter().all(quick))
    }

    fn opens_any(&self) -> bool {
        self.flows.iter().any(|flow| flow.opens)
    }

    /// The sender's account of a flow.
    fn totals(&self, flow: u32) -> FlowTotals {
        FlowTotals {
            flow,
            packets: u64::from(flow) * 10,
            bytes: u64::from(flow) * 5120,
            skipped: 0,
            failed: 0,
            next_seq: u64::from(flow) * 10,
            reason: EndCause::Told("time is over".to_owned()).into(),
        }
    }

    /// The receiver's account of a flow.
    fn counts(&self, flow: u32) -> FlowCounts {
        FlowCounts {
            flow,
            packets: u64::from(flow) * 10 - 1,
            bytes: u64::from(flow) * 5120 - 512,
            unique: u64::from(flow) * 10 - 1,
            socket_drops: Some(1),
            foreign: 0,
            log_lost_records: 0,
            more: Default::default(),
        }
    }

    /// Measure of a flow.
    fn measure(flow: u32) -> Box<FlowMeasure> {
        let (first_unix_ns, last_unix_ns) = (u64::from(flow), u64::from(flow) + SECOND);
        Box::new(FlowMeasure { flow, first_unix_ns, last_unix_ns, reordered: 1, delays: None })
    }

    /// Instant by which both machines must have ended, by the sum of all deadlines.
    fn horizon(&self) -> u64 {
        let t = Timeouts::default();
        let batches = self.flows.len().div_ceil(OPEN_BATCH) as u64;
        let runs = self.flows.iter().map(|f| f.runs.unwrap_or(0)).max().unwrap_or(0);
        let set_up = t.welcome_ns + batches * t.opened_ns + t.armed_ns + t.started_ns;
        let run = runs.max(self.stop_at.unwrap_or(0)) + t.stop_ns + t.counts_ns;
        set_up + run + t.compare_ns + t.bye_ns
    }
}

/// Inputs and frames on their way.
#[derive(Debug)]
enum Event {
    ToSender(SenderInput),
    ToReceiver(ReceiverInput),
    FrameToSender(Vec<u8>),
    FrameToReceiver(Vec<u8>),
}

struct World<'a> {
    plan: &'a Plan,
    bug: Option<Bug>,
    rng: ChaCha8Rng,
    now: u64,
    queue: BTreeMap<(u64, u64), Event>,
    events: u64,
    sender: SenderSession,
    receiver: ReceiverSession,
    /// Arrival of the last message in each direction: TCP keeps the order.
    last_to_sender: u64,
    last_to_receiver: u64,
    connected: bool,
    ended: BTreeSet<u32>,
    abandoned: bool,
    trace: Trace,
}

/// Lets a session run until both sides have ended, or nothing more can happen.
pub fn run(plan: &Plan, bug: Option<Bug>) -> Trace {
    let config = SenderConfig {
        run: "0123456789abcdef0123456789abcdef".to_owned(),
        seed: plan.seed,
        program: "itg-send".to_owned(),
        host: "a".to_owned(),
        boot_id: "boot a".to_owned(),
        flows: (1..).take(plan.flows.len()).map(FlowSpec::new).collect(),
        recv_log: None,
        prove: None,
        burst: 16,
        asked: false,
        timeouts: Timeouts::default(),
    };
    let receiver = ReceiverConfig {
        secret: true,
        turns: false,
        program: "itg-recv".to_owned(),
        host: "b".to_owned(),
        boot_id: "boot b".to_owned(),
        max_flows: plan.max_flows,
        timeouts: Timeouts::default(),
    };
    let mut world = World {
        plan,
        bug,
        rng: ChaCha8Rng::seed_from_u64(!plan.seed),
        now: 0,
        queue: BTreeMap::new(),
        events: 0,
        sender: SenderSession::new(config),
        receiver: ReceiverSession::new(receiver, 0),
        last_to_sender: 0,
        last_to_receiver: 0,
        connected: true,
        ended: BTreeSet::new(),
        abandoned: false,
        trace: Trace::default(),
    };
    world.at(0, Event::ToSender(SenderInput::Connected));
    if let Some(at) = plan.stop_at {
        let reason = "interrupted".to_owned();
        world.at(at, Event::ToSender(SenderInput::Stop { reason }));
    }
    if let Some(at) = plan.shutdown_at {
        world.at(at, Event::ToReceiver(ReceiverInput::Shutdown("terminated".to_owned())));
    }
    world.live(plan.horizon() + 3600 * SECOND);
    world.trace
}

impl World<'_> {
    fn at(&mut self, time: u64, event: Event) {
        self.events += 1;
        self.queue.insert((time, self.events), event);
    }

    fn after(&mut self, answer: Answer, event: Event) {
        if let Some(ns) = answer {
            self.at(self.now + ns, event);
        }
    }

    fn live(&mut self, cap: u64) {
        while !(self.sender.is_over() && self.receiver.is_over() && self.queue.is_empty()) {
            let event = self.queue.keys().next().map(|&(time, _)| time);
            let sender = self.sender.deadline().filter(|_| self.bug != Some(Bug::DeafSender));
            let receiver = self.receiver.deadline().filter(|_| self.bug != Some(Bug::DeafReceiver));
            let Some(next) = [event, sender, receiver].into_iter().flatten().min() else { break };
            if next > cap {
                break;
            }
            self.now = self.now.max(next);
            if event == Some(next) {
                let (_, event) = self.queue.pop_first().expect("just seen");
                self.deliver(event);
            } else if sender == Some(next) {
                self.tell_sender(SenderInput::Timer);
                if self.sender.deadline().is_some_and(|at| at <= self.now) {
                    self.trace.broken.push("the sender's deadline does not move on".to_owned());
                    break;
                }
            } else {
                self.tell_receiver(ReceiverInput::Timer);
                if self.receiver.deadline().is_some_and(|at| at <= self.now) {
                    self.trace.broken.push("the receiver's deadline does not move on".to_owned());
                    break;
                }
            }
        }
    }

    fn deliver(&mut self, event: Event) {
        match event {
            Event::ToSender(SenderInput::FlowEnded(totals)) => {
                if self.ended.insert(totals.flow) {
                    self.tell_sender(SenderInput::FlowEnded(totals));
                }
            }
            Event::ToSender(input) => self.tell_sender(input),
            Event::ToReceiver(input) => {
                match &input {
                    ReceiverInput::FlowOpened(OpenReply { flow, result: Ok(_) })
                        if !self.abandoned =>
                    {
                        self.trace.left_open.insert(*flow);
                    }
                    ReceiverInput::FlowCounted(counts) => {
                        self.trace.left_open.remove(&counts.flow);
                    }
                    _ => {}
                }
                self.tell_receiver(input);
            }
            Event::FrameToSender(bytes) => {
                let message = decode(&bytes).expect("what was encoded can be decoded");
                let counted = matches!(message, Message::FlowCounted(_));
                if !(counted && self.bug == Some(Bug::SwallowFlowCounted)) {
                    self.tell_sender(SenderInput::Message(message));
                }
            }
            Event::FrameToReceiver(bytes) => {
                let message = decode(&bytes).expect("what was encoded can be decoded");
                self.tell_receiver(ReceiverInput::Message(message));
            }
        }
    }

    /// Puts a message on the network, unless the connection is gone.
    fn transmit(&mut self, message: &Message, to_sender: bool) {
        if !self.connected {
            return;
        }
        let number = self.trace.messages;
        self.trace.messages += 1;
        if let Some(cut) = self.plan.cut.filter(|cut| cut.message == number) {
            self.connected = false;
            let why = || "connection reset by peer".to_owned();
            if cut.sender_learns {
                self.after(Some(self.plan.delay_ns), Event::ToSender(SenderInput::Lost(why())));
            }
            if cut.receiver_learns {
                self.after(Some(self.plan.delay_ns), Event::ToReceiver(ReceiverInput::Lost(why())));
            }
            return;
        }
        let bytes = encode(message).expect("fits");
        let time = self.arrival(to_sender);
        let frame =
            if to_sender { Event::FrameToSender(bytes) } else { Event::FrameToReceiver(bytes) };
        self.at(time, frame);
    }

    fn arrival(&mut self, to_sender: bool) -> u64 {
        let delay = self.rng.random_range(0..=self.plan.delay_ns);
        let last = if to_sender { &mut self.last_to_sender } else { &mut self.last_to_receiver };
        *last = (*last).max(self.now + delay);
        *last
    }

    /// One side closes the connection: the other one learns it behind all messages.
    fn close(&mut self, sender_learns: bool) {
        if self.connected {
            self.connected = false;
            let why = "closed by the other side".to_owned();
            let time = self.arrival(sender_learns);
            self.at(
                time,
                if sender_learns {
                    Event::ToSender(SenderInput::Lost(why))
                } else {
                    Event::ToReceiver(ReceiverInput::Lost(why))
                },
            );
        }
    }

    fn tell_sender(&mut self, input: SenderInput) {
        let was_over = self.sender.is_over();
        let mut outputs = Vec::new();
        self.sender.handle(self.now, input, &mut outputs);
        if was_over && !outputs.is_empty() {
            self.trace.broken.push(format!("the sender says {outputs:?} after its end"));
        }
        for output in outputs {
            let hidden = matches!(output, SenderOutput::Counted { .. })
                && self.bug == Some(Bug::SwallowCounted);
            if hidden {
                continue;
            }
            self.trace.outputs.push((self.now, Output::Sender(output.clone())));
            self.drive_sender(output);
        }
        if self.sender.is_over() && !was_over {
            self.trace.sender_over_at = Some(self.now);
        }
    }

    fn drive_sender(&mut self, output: SenderOutput) {
        match output {
            SenderOutput::Send(message) => self.transmit(&message, false),
            SenderOutput::Ready { flows, .. } => {
                for opened in flows {
                    if self.flow(opened.flow).fails_early {
                        let totals = self.plan.totals(opened.flow);
                        self.after(Some(0), Event::ToSender(SenderInput::FlowEnded(totals)));
                    }
                }
                let armed = SenderInput::Armed { epoch_unix_ns: 7 };
                self.after(self.plan.arm_answer, Event::ToSender(armed));
            }
            SenderOutput::Begin => self.end_flows(|flow| flow.runs),
            SenderOutput::StopFlows { .. } => self.end_flows(|flow| flow.stop_answer),
            SenderOutput::Failed(_) | SenderOutput::Done => self.close(false),
            SenderOutput::Counted { .. }
            | SenderOutput::Measured(_)
            | SenderOutput::Clock { .. }
            | SenderOutput::LogStored(_) => {}
        }
    }

    fn flow(&self, number: u32) -> &FlowPlan {
        &self.plan.flows[number as usize - 1]
    }

    fn end_flows(&mut self, when: impl Fn(&FlowPlan) -> Answer) {
        for number in (1..).take(self.plan.flows.len()) {
            if self.flow(number).opens {
                let totals = self.plan.totals(number);
                let answer = when(self.flow(number));
                self.after(answer, Event::ToSender(SenderInput::FlowEnded(totals)));
            }
        }
    }

    fn tell_receiver(&mut self, input: ReceiverInput) {
        let was_over = self.receiver.is_over();
        let mut outputs = Vec::new();
        self.receiver.handle(self.now, input, &mut outputs);
        if was_over && !outputs.is_empty() {
            self.trace.broken.push(format!("the receiver says {outputs:?} after its end"));
        }
        for output in outputs {
            let hidden = match output {
                ReceiverOutput::Abandon { .. } => self.bug == Some(Bug::SwallowAbandon),
                ReceiverOutput::CloseLog => self.bug == Some(Bug::SwallowCloseLog),
                _ => false,
            };
            if hidden {
                continue;
            }
            self.trace.outputs.push((self.now, Output::Receiver(output.clone())));
            self.drive_receiver(output);
        }
        if self.receiver.is_over() && !was_over {
            self.trace.receiver_over_at = Some(self.now);
        }
    }

    fn drive_receiver(&mut self, output: ReceiverOutput) {
        match output {
            ReceiverOutput::Send(message) => self.transmit(&message, true),
            ReceiverOutput::Open(spec) => {
                let (flow, plan) = (spec.id, self.flow(spec.id));
                let opened = OpenedFlow { flow, handle: flow + 1000, port: 8999 };
                let result = if plan.opens { Ok(opened) } else { Err("port in use".to_owned()) };
                let reply = ReceiverInput::FlowOpened(OpenReply { flow, result });
                self.after(plan.open_answer, Event::ToReceiver(reply));
            }
            ReceiverOutput::End { totals } => {
                let answer = self.flow(totals.flow).count_answer;
                let measure = ReceiverInput::FlowMeasured(Plan::measure(totals.flow));
                self.after(answer, Event::ToReceiver(measure));
                let counts = ReceiverInput::FlowCounted(self.plan.counts(totals.flow));
                self.after(answer, Event::ToReceiver(counts));
            }
            ReceiverOutput::Abandon { .. } => {
                self.abandoned = true;
                self.trace.left_open.clear();
            }
            ReceiverOutput::CloseLog => {
                let log = self.plan.keeps_log.then(log_summary);
                self.after(self.plan.log_answer, Event::ToReceiver(ReceiverInput::LogClosed(log)));
            }
            ReceiverOutput::Disconnect { .. } => self.close(true),
            ReceiverOutput::Prove { nonce } => {
                self.transmit(&Message::Proved { nonce, proof: [0; 32] }, true);
            }
            ReceiverOutput::Turn { .. } => {
                let no = ReceiverInput::Turned(Err("it only receives".to_owned()));
                self.after(Some(1), Event::ToReceiver(no));
            }
            ReceiverOutput::Accept { .. } | ReceiverOutput::Start { .. } => {}
        }
    }
}

pub fn log_summary() -> LogSummary {
    LogSummary { file: "b.itg".to_owned(), records: 99, lost_records: 0, error: None }
}

/// The outputs of a trace, one a line, for a failing test.
pub fn script(trace: &Trace) -> String {
    let mut lines = VecDeque::new();
    for (at, output) in &trace.outputs {
        lines.push_back(format!("{:>12.6} s  {output:?}", *at as f64 / 1e9));
        if lines.len() > 200 {
            lines.pop_front();
        }
    }
    lines.into_iter().collect::<Vec<_>>().join("\n")
}
