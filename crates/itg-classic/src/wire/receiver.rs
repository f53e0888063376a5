//! The receiver's side of a signalling channel: one sender.
//!
//! Messages are served in order; while the driver opens or ends something, the following ones wait.
//! Whatever a sender says ends at most its own channel.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::message::{FlowOffer, MessageError, ReceiverMessage, RecvLog, Refusal, SenderMessage};

/// Most bytes of messages that wait: some thousand offers.
const PENDING_MAX: usize = 1 << 16;

/// Limits of a receiver.
#[derive(Clone, Copy, Debug)]
pub struct ReceiverConfig {
    /// Passive mode: this side has connected to the sender.
    pub passive: bool,
    /// Most flows of a channel at a time.
    pub flows_max: usize,
    /// Silence after which the sender is asked whether it is there, in nanoseconds: 100 s with
    /// D-ITG. After twice as long the channel is closed.
    pub silence_ns: u64,
}

/// Inputs of the receiver's side from its driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverInput<'a> {
    /// The sender said this.
    Bytes(&'a [u8]),
    /// The instant of [`ReceiverChannel::deadline`] has come. Too early does no harm.
    Timer,
    /// The answer to [`ReceiverOutput::OpenLog`].
    LogOpened(bool),
    /// The answer to [`ReceiverOutput::OpenFlow`]: the data port, or why not.
    FlowOpened(Result<u16, Refusal>),
    /// The answer to [`ReceiverOutput::EndFlow`]: what was on its way is counted and logged.
    FlowEnded(u32),
    /// The data connection of a flow broke.
    DataLost(u32),
    /// The channel was closed or broke.
    Lost,
}

/// Outcome of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiverEnding {
    /// The sender released it.
    Done,
    /// The sender went without a word.
    Lost,
    /// The sender was silent for too long.
    Silent,
    /// The sender said what no sender says.
    Confused(MessageError),
    /// The sender sent far ahead of what it was answered.
    Flooded,
}

/// Actions that the receiver's side asks of its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReceiverOutput {
    /// Send this, with one call.
    Send(Vec<u8>),
    /// Open the log, at most one for a channel, unless policy refuses: see
    /// [`super::log_file_name`].
    OpenLog(RecvLog),
    /// Open the data socket of this flow; in passive mode nothing yet but its place.
    OpenFlow(FlowOffer),
    /// Passive mode: the sender is ready; open this side of the flow towards it.
    Connect(FlowOffer),
    /// Take what is still on its way for this flow, then end it.
    EndFlow(u32),
    /// Give this flow up; no answer.
    DropFlow(u32),
    /// Close the log that was opened for this channel.
    CloseLog,
    /// Close the channel; nothing follows.
    Close(ReceiverEnding),
}

/// The answer that a driver owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owed {
    Nothing,
    Log { server: bool },
    Flow(FlowOffer),
}

/// The receiver's side of one channel.
#[derive(Clone, Debug)]
pub struct ReceiverChannel {
    config: ReceiverConfig,
    greeted: bool,
    over: bool,
    owed: Owed,
    log: bool,
    flows: BTreeMap<u32, FlowOffer>,
    /// Flows whose end is not answered yet: they end at their own pace.
    ending: BTreeSet<u32>,
    /// Flows opened so far: the places of passive mode.
    opened: u32,
    pending: VecDeque<u8>,
    heard_ns: u64,
    asked: bool,
}

impl ReceiverChannel {
    /// A channel that is connected at `now_ns`.
    #[must_use]
    pub const fn new(config: ReceiverConfig, now_ns: u64) -> Self {
        Self {
            config,
            greeted: false,
            over: false,
            owed: Owed::Nothing,
            log: false,
            flows: BTreeMap::new(),
            ending: BTreeSet::new(),
            opened: 0,
            pending: VecDeque::new(),
            heard_ns: now_ns,
            asked: false,
        }
    }

    /// Instant at which [`ReceiverInput::Timer`] is due next, on the clock of [`Self::handle`].
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        if self.over {
            return None;
        }
        let periods = if self.asked { 2 } else { 1 };
        Some(self.heard_ns.saturating_add(self.config.silence_ns.saturating_mul(periods)))
    }

    /// Takes one input at `now_ns` of any steady clock; appends what is to be done.
    pub fn handle(&mut self, now_ns: u64, input: ReceiverInput<'_>, out: &mut Vec<ReceiverOutput>) {
        if self.over {
            return;
        }
        match (input, self.owed) {
            (ReceiverInput::Bytes(bytes), _) => {
                (self.heard_ns, self.asked) = (now_ns, false);
                if self.pending.len() + bytes.len() > PENDING_MAX {
                    return self.close(ReceiverEnding::Flooded, out);
                }
                self.pending.extend(bytes);
            }
            (ReceiverInput::Timer, _) => return self.timer(now_ns, out),
            (ReceiverInput::Lost, _) => return self.close(ReceiverEnding::Lost, out),
            (ReceiverInput::LogOpened(opened), Owed::Log { server }) => {
                self.owed = Owed::Nothing;
                self.log = opened;
                let answer = match (opened, server) {
                    (false, _) => ReceiverMessage::LogRefused,
                    (true, true) => ReceiverMessage::LogServer,
                    (true, false) => ReceiverMessage::LogFile,
                };
                send(answer, out);
            }
            (ReceiverInput::FlowOpened(opened), Owed::Flow(offer)) => {
                self.owed = Owed::Nothing;
                self.flow_opened(offer, opened, out);
            }
            (ReceiverInput::FlowEnded(flow), _) => self.flow_ended(flow, out),
            (ReceiverInput::DataLost(flow), _) => self.data_lost(flow, out),
            // An answer to something that was given up meanwhile.
            _ => {}
        }
        self.serve(out);
    }

    fn flow_ended(&mut self, flow: u32, out: &mut Vec<ReceiverOutput>) {
        if self.ending.remove(&flow) {
            send(ReceiverMessage::Ended(flow), out);
        }
    }

    fn data_lost(&mut self, flow: u32, out: &mut Vec<ReceiverOutput>) {
        if self.flows.remove(&flow).is_some() {
            out.push(ReceiverOutput::DropFlow(flow));
            send(ReceiverMessage::Refuse { flow, why: Refusal::Data }, out);
        }
    }

    fn flow_opened(
        &mut self,
        offer: FlowOffer,
        opened: Result<u16, Refusal>,
        out: &mut Vec<ReceiverOutput>,
    ) {
        let flow = offer.flow;
        match opened {
            Ok(port) => {
                self.flows.insert(flow, offer);
                self.opened = self.opened.saturating_add(1);
                send(
                    match offer.passive {
                        Some(_) => ReceiverMessage::Accept { flow: self.opened, port: 0 },
                        None => ReceiverMessage::Accept { flow, port },
                    },
                    out,
                );
            }
            Err(why) => send(ReceiverMessage::Refuse { flow, why }, out),
        }
    }

    /// Serves messages until one has to wait for the driver.
    fn serve(&mut self, out: &mut Vec<ReceiverOutput>) {
        while !self.over && self.owed == Owed::Nothing && !self.pending.is_empty() {
            // Everything before the greeting is ignored, byte by byte.
            while !self.greeted && self.pending.front().is_some_and(|&kind| kind != 1) {
                self.pending.pop_front();
            }
            let passive = self.config.passive;
            let bytes = self.pending.make_contiguous();
            let (message, len) = match SenderMessage::decode(bytes, passive) {
                Ok(None) => return,
                Ok(Some(found)) => found,
                // The real receiver ignores these bytes, and dies of others.
                Err(MessageError::Type(kind)) if kind < 23 => {
                    self.pending.pop_front();
                    continue;
                }
                Err(error) => return self.close(ReceiverEnding::Confused(error), out),
            };
            self.pending.drain(..len);
            self.message(message, out);
        }
    }

    fn message(&mut self, message: SenderMessage, out: &mut Vec<ReceiverOutput>) {
        match message {
            SenderMessage::Connect => {
                self.greeted = true;
                send(ReceiverMessage::Connected, out);
            }
            SenderMessage::Log(_) if self.log => send(ReceiverMessage::LogRefused, out),
            SenderMessage::Log(log) => {
                self.owed = Owed::Log { server: matches!(log, RecvLog::Server { .. }) };
                out.push(ReceiverOutput::OpenLog(log));
            }
            SenderMessage::Offer(offer) => {
                let flow = offer.flow;
                let known = self.flows.contains_key(&flow) || self.ending.contains(&flow);
                if known || self.flows.len() + self.ending.len() >= self.config.flows_max {
                    return send(ReceiverMessage::Refuse { flow, why: Refusal::Bind }, out);
                }
                self.owed = Owed::Flow(offer);
                out.push(ReceiverOutput::OpenFlow(offer));
            }
            SenderMessage::Ready(flow) => {
                if let Some(offer) = self.flows.get(&flow).filter(|offer| offer.passive.is_some()) {
                    out.push(ReceiverOutput::Connect(*offer));
                }
            }
            SenderMessage::Ended(flow) => match self.flows.remove(&flow) {
                Some(_) => {
                    self.ending.insert(flow);
                    out.push(ReceiverOutput::EndFlow(flow));
                }
                // It is being ended.
                None if self.ending.contains(&flow) => {}
                // A flow that was given up here: the sender need not wait.
                None => send(ReceiverMessage::Ended(flow), out),
            },
            SenderMessage::Failed(flow) => {
                if self.flows.remove(&flow).is_some() {
                    out.push(ReceiverOutput::DropFlow(flow));
                }
            }
            SenderMessage::Release | SenderMessage::Error => {
                send(ReceiverMessage::Released, out);
                self.close(ReceiverEnding::Done, out);
            }
            SenderMessage::Down => self.close(ReceiverEnding::Lost, out),
            SenderMessage::Alive => {}
        }
    }

    fn timer(&mut self, now_ns: u64, out: &mut Vec<ReceiverOutput>) {
        if self.deadline().is_none_or(|deadline_ns| now_ns < deadline_ns) {
            return;
        }
        send(ReceiverMessage::Discovery, out);
        if self.asked {
            self.close(ReceiverEnding::Silent, out);
        }
        self.asked = true;
    }

    fn close(&mut self, ending: ReceiverEnding, out: &mut Vec<ReceiverOutput>) {
        self.over = true;
        if let Owed::Flow(offer) = self.owed {
            out.push(ReceiverOutput::DropFlow(offer.flow));
        }
        let flows = std::mem::take(&mut self.flows).into_keys();
        for flow in flows.chain(std::mem::take(&mut self.ending)) {
            out.push(ReceiverOutput::DropFlow(flow));
        }
        if self.log || matches!(self.owed, Owed::Log { .. }) {
            out.push(ReceiverOutput::CloseLog);
        }
        out.push(ReceiverOutput::Close(ending));
    }
}

fn send(message: ReceiverMessage, out: &mut Vec<ReceiverOutput>) {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    out.push(ReceiverOutput::Send(bytes));
}
