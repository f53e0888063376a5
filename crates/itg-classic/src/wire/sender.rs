//! The sender's side of a signalling channel: one receiver, one or more flows.
//!
//! Flows are offered one after the other, since a real receiver with two TCP flows on one port
//! answers the second offer only after the first connection. The channel is always ended in order
//! (4 or 17 for each flow, then 11): a real receiver can die of a channel that breaks off.

use std::collections::{BTreeMap, VecDeque};

use super::message::{FlowOffer, MessageError, ReceiverMessage, RecvLog, Refusal, SenderMessage};

/// Longest bytes that wait for the rest of their message: a message has at most 7.
const PENDING_MAX: usize = 4096;

/// Settings of a sender's channel to a receiver.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The receiver's log, if any.
    pub log: Option<RecvLog>,
    /// The flows, in the order in which they are offered.
    pub offers: Vec<FlowOffer>,
    /// Time to wait for an answer, in nanoseconds: 100 s with D-ITG.
    pub answer_ns: u64,
}

/// Inputs of the sender's side from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderInput<'a> {
    /// The channel is connected.
    Connected,
    /// The receiver said this.
    Bytes(&'a [u8]),
    /// The instant of [`SenderChannel::deadline`] has come. Too early does no harm.
    Timer,
    /// Passive mode: the data socket of this flow is open.
    Ready(u32),
    /// The flow has ended and its data socket is closed.
    Ended(u32),
    /// The flow could not run.
    Failed(u32),
    /// The channel was closed or broke.
    Lost,
}

/// Outcome of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlowResult {
    /// Both sides have ended it.
    Done,
    /// The receiver refused it, or broke it off.
    Refused(Refusal),
    /// It failed here.
    Failed,
    /// The receiver did not answer its end.
    Unanswered,
}

/// Outcome of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SenderEnding {
    /// In order.
    Done,
    /// The receiver refused the log.
    LogRefused,
    /// The receiver does not answer.
    Silent,
    /// The receiver has gone.
    Lost,
    /// The receiver said what no receiver says.
    Confused(MessageError),
}

/// Actions that the sender's side asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SenderOutput {
    /// Send this, with one call.
    Send(Vec<u8>),
    /// Run the flow: to this port, 0 for the port that was offered. In passive mode, wait for the
    /// receiver to open its side first.
    Start {
        /// Flow.
        flow: u32,
        /// Data port at the receiver.
        port: u16,
    },
    /// Passive mode: open the data socket of this flow, then say [`SenderInput::Ready`].
    Open(u32),
    /// The flow is over; when it runs, stop it.
    Finished {
        /// Flow.
        flow: u32,
        /// Outcome of the flow.
        result: FlowResult,
    },
    /// Close the channel; nothing follows.
    Close(SenderEnding),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Idle,
    /// After 1, which is sent again once.
    Greeting {
        again: bool,
    },
    Log,
    Flows,
    /// After 11, which is sent again once.
    Leaving {
        again: bool,
    },
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Offered,
    /// Passive mode: accepted, the socket is being opened.
    Opening,
    Running,
    /// After 4.
    Ending {
        until_ns: u64,
    },
}

/// The sender's side of one channel.
#[derive(Clone, Debug)]
pub struct SenderChannel {
    phase: Phase,
    log: Option<RecvLog>,
    waiting: VecDeque<FlowOffer>,
    /// Flows that are offered and not over.
    flows: BTreeMap<u32, State>,
    /// The flow whose offer is not answered yet, and whether it is in passive mode.
    offered: Option<(u32, bool)>,
    answer_ns: u64,
    deadline_ns: Option<u64>,
    pending: Vec<u8>,
}

impl SenderChannel {
    /// A channel that is not connected yet.
    #[must_use]
    pub fn new(config: SenderConfig) -> Self {
        Self {
            phase: Phase::Idle,
            log: config.log,
            waiting: config.offers.into(),
            flows: BTreeMap::new(),
            offered: None,
            answer_ns: config.answer_ns,
            deadline_ns: None,
            pending: Vec::new(),
        }
    }

    /// Instant at which [`SenderInput::Timer`] is due next, on the clock of [`Self::handle`].
    #[must_use]
    pub fn deadline(&self) -> Option<u64> {
        let ends = self.flows.values().filter_map(|state| match state {
            State::Ending { until_ns } => Some(*until_ns),
            _ => None,
        });
        self.deadline_ns.into_iter().chain(ends).min()
    }

    /// Takes one input at `now_ns` of any steady clock; appends what is to be done.
    pub fn handle(&mut self, now_ns: u64, input: SenderInput<'_>, out: &mut Vec<SenderOutput>) {
        if self.phase == Phase::Over {
            return;
        }
        match input {
            SenderInput::Connected if self.phase == Phase::Idle => {
                self.phase = Phase::Greeting { again: false };
                self.ask(now_ns, &SenderMessage::Connect, out);
            }
            SenderInput::Connected => {}
            SenderInput::Bytes(bytes) => self.bytes(now_ns, bytes, out),
            SenderInput::Timer => self.timer(now_ns, out),
            SenderInput::Ready(flow) => {
                if self.flows.get(&flow) == Some(&State::Opening) {
                    self.flows.insert(flow, State::Running);
                    send(&SenderMessage::Ready(flow), out);
                    out.push(SenderOutput::Start { flow, port: 0 });
                }
            }
            SenderInput::Ended(flow) => {
                if self.flows.get(&flow) == Some(&State::Running) {
                    // Flows that end together are answered one after the other, a second each.
                    let ending = self.flows.len() as u64 + 1;
                    let wait_ns = self.answer_ns.saturating_add(ending * 2_000_000_000);
                    let until_ns = now_ns.saturating_add(wait_ns);
                    self.flows.insert(flow, State::Ending { until_ns });
                    send(&SenderMessage::Ended(flow), out);
                }
            }
            SenderInput::Failed(flow) => {
                if matches!(self.flows.get(&flow), Some(State::Running | State::Opening)) {
                    send(&SenderMessage::Failed(flow), out);
                    self.finish(now_ns, flow, FlowResult::Failed, out);
                }
            }
            SenderInput::Lost if matches!(self.phase, Phase::Leaving { .. }) => {
                self.close(SenderEnding::Done, out);
            }
            SenderInput::Lost => self.close(SenderEnding::Lost, out),
        }
    }

    fn ask(&mut self, now_ns: u64, message: &SenderMessage, out: &mut Vec<SenderOutput>) {
        self.deadline_ns = Some(now_ns.saturating_add(self.answer_ns));
        send(message, out);
    }

    fn bytes(&mut self, now_ns: u64, bytes: &[u8], out: &mut Vec<SenderOutput>) {
        let room = PENDING_MAX.saturating_sub(self.pending.len());
        self.pending.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let mut rest = &bytes[bytes.len().min(room)..];
        while self.phase != Phase::Over {
            match ReceiverMessage::decode(&self.pending) {
                Ok(None) if rest.is_empty() => return,
                Ok(None) => {
                    let take = rest.len().min(PENDING_MAX - self.pending.len());
                    self.pending.extend_from_slice(&rest[..take]);
                    rest = &rest[take..];
                }
                Ok(Some((message, len))) => {
                    self.pending.drain(..len);
                    self.message(now_ns, message, out);
                }
                Err(error) => self.close(SenderEnding::Confused(error), out),
            }
        }
    }

    fn message(&mut self, now_ns: u64, message: ReceiverMessage, out: &mut Vec<SenderOutput>) {
        use ReceiverMessage as Msg;
        if message == Msg::Discovery {
            return send(&SenderMessage::Alive, out);
        }
        match (self.phase, message) {
            // One byte is the answer, whichever it is: that is how the real sender takes it.
            (Phase::Greeting { .. }, _) => match self.log.clone() {
                Some(log) => {
                    self.phase = Phase::Log;
                    self.ask(now_ns, &SenderMessage::Log(log), out);
                }
                None => {
                    self.phase = Phase::Flows;
                    self.offer(now_ns, out);
                }
            },
            (Phase::Log, Msg::LogRefused) => {
                send(&SenderMessage::Release, out);
                self.close(SenderEnding::LogRefused, out);
            }
            (Phase::Log, _) => {
                self.phase = Phase::Flows;
                self.offer(now_ns, out);
            }
            // In passive mode the number is a place in the receiver's table: offers are answered in
            // order, which tells the flow.
            (Phase::Flows, Msg::Accept { port, .. }) => {
                let Some((flow, passive)) = self.offered.take() else { return };
                if passive {
                    self.flows.insert(flow, State::Opening);
                    out.push(SenderOutput::Open(flow));
                } else {
                    self.flows.insert(flow, State::Running);
                    out.push(SenderOutput::Start { flow, port });
                }
                self.offer(now_ns, out);
            }
            (Phase::Flows, Msg::Refuse { flow, why }) if self.flows.contains_key(&flow) => {
                self.finish(now_ns, flow, FlowResult::Refused(why), out);
            }
            (Phase::Flows, Msg::Ended(flow))
                if matches!(self.flows.get(&flow), Some(State::Ending { .. })) =>
            {
                self.finish(now_ns, flow, FlowResult::Done, out);
            }
            (Phase::Leaving { .. }, _) => self.close(SenderEnding::Done, out),
            _ => {}
        }
    }

    /// Offers the next flow, or leaves when there is nothing more to wait for.
    fn offer(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        if self.offered.is_some() {
            return;
        }
        self.deadline_ns = None;
        if let Some(offer) = self.waiting.pop_front() {
            self.offered = Some((offer.flow, offer.passive.is_some()));
            self.flows.insert(offer.flow, State::Offered);
            self.ask(now_ns, &SenderMessage::Offer(offer), out);
        } else if self.flows.is_empty() {
            self.phase = Phase::Leaving { again: false };
            self.ask(now_ns, &SenderMessage::Release, out);
        }
    }

    fn finish(&mut self, now_ns: u64, flow: u32, result: FlowResult, out: &mut Vec<SenderOutput>) {
        self.flows.remove(&flow);
        if self.offered.is_some_and(|(offered, _)| offered == flow) {
            self.offered = None;
        }
        out.push(SenderOutput::Finished { flow, result });
        self.offer(now_ns, out);
    }

    fn timer(&mut self, now_ns: u64, out: &mut Vec<SenderOutput>) {
        let over: Vec<u32> = self
            .flows
            .iter()
            .filter(|(_, state)| matches!(state, State::Ending { until_ns } if now_ns >= *until_ns))
            .map(|(flow, _)| *flow)
            .collect();
        for flow in over {
            self.finish(now_ns, flow, FlowResult::Unanswered, out);
        }
        if self.deadline_ns.is_none_or(|deadline_ns| now_ns < deadline_ns) {
            return;
        }
        match self.phase {
            Phase::Greeting { again: false } => {
                self.phase = Phase::Greeting { again: true };
                self.ask(now_ns, &SenderMessage::Connect, out);
            }
            Phase::Leaving { again: false } => {
                self.phase = Phase::Leaving { again: true };
                self.ask(now_ns, &SenderMessage::Release, out);
            }
            Phase::Leaving { again: true } => self.close(SenderEnding::Done, out),
            _ => self.close(SenderEnding::Silent, out),
        }
    }

    fn close(&mut self, ending: SenderEnding, out: &mut Vec<SenderOutput>) {
        self.phase = Phase::Over;
        self.deadline_ns = None;
        for flow in std::mem::take(&mut self.flows).into_keys() {
            out.push(SenderOutput::Finished { flow, result: FlowResult::Failed });
        }
        out.push(SenderOutput::Close(ending));
    }
}

fn send(message: &SenderMessage, out: &mut Vec<SenderOutput>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    out.push(SenderOutput::Send(bytes));
}
