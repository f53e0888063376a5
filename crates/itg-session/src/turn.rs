//! The side that asks its peer for flows: greets, asks for the exchange of the roles, and is a receiver from then on.
//!
//! Assumes a driver that hands the connection over to a [`ReceiverSession`](crate::ReceiverSession) on
//! [`TurnOutput::Turned`]. Two messages each way, each with a deadline; nothing is kept but the state.

use itg_core::flow::FlowSpec;
use itg_core::text::from_peer;
use itg_core::units::format_duration_ns;

use crate::codec::CodecError;
use crate::error::{ErrorKind, Phase, SessionError};
use crate::message::{MAGIC, Message, VERSION};
use crate::offer;
use crate::sender::SenderConfig;

/// Events that a driver reports while it asks for the exchange of the roles.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnInput {
    /// The signalling connection is made.
    Connected,
    /// The peer said this.
    Message(Message),
    /// The peer sent bytes that are no message.
    Garbage(CodecError),
    /// The instant of [`TurnSession::deadline`] has come. Too early does no harm.
    Timer,
    /// The user wants to stop, for this reason.
    Stop(String),
    /// The signalling connection could not be made, was closed or broke; with the system's words.
    Lost(String),
}

/// Tasks for the driver, to be done in this order.
#[derive(Clone, Debug, PartialEq)]
pub enum TurnOutput {
    /// Write this message.
    Send(Message),
    /// The end: the peer sends; go on with the connection as its receiver.
    Turned {
        /// Changes that the peer has made to the flows, a sentence each.
        notices: Vec<String>,
    },
    /// The end: it does not. Close the connection.
    Failed(SessionError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not connected yet.
    Connecting,
    /// Waits for `Welcome`.
    Greeting,
    /// Waits for `Turned`.
    Asking,
    /// `Turned` or `Failed` has been said.
    Over,
}

/// The state machine of the side that asks.
#[derive(Debug)]
pub struct TurnSession {
    config: SenderConfig,
    state: State,
    until: Option<u64>,
}

impl TurnSession {
    /// A session that is not connected yet. Of the configuration it takes who asks, the run, the flows and the time
    /// limits.
    #[must_use]
    pub const fn new(config: SenderConfig) -> Self {
        Self { config, state: State::Connecting, until: None }
    }

    /// Returns true once [`TurnOutput::Turned`] or [`TurnOutput::Failed`] has been said.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.state == State::Over
    }

    /// The next instant at which the session wants [`TurnInput::Timer`], in nanoseconds of the clock of `now_ns`.
    #[must_use]
    pub const fn deadline(&self) -> Option<u64> {
        self.until
    }

    /// Takes an event at `now_ns` (nanoseconds of any clock that never runs backwards) and appends what the driver has
    /// to do.
    pub fn handle(&mut self, now_ns: u64, input: TurnInput, out: &mut Vec<TurnOutput>) {
        use {Message as M, State as S, TurnInput as I};
        let fault = match (self.state, input) {
            (S::Over, _) => return,
            (S::Connecting, I::Connected) => {
                out.push(TurnOutput::Send(self.hello()));
                return self.enter(S::Greeting, now_ns, self.config.timeouts.welcome_ns);
            }
            (S::Greeting, I::Message(M::Welcome { magic, version, program, .. })) => {
                match self.on_welcome(magic, version, &program) {
                    Ok(flows) => {
                        out.push(TurnOutput::Send(M::Turn { flows }));
                        return self.enter(S::Asking, now_ns, self.config.timeouts.opened_ns);
                    }
                    Err(fault) => fault,
                }
            }
            (S::Asking, I::Message(M::Turned { notices })) => {
                let notices = notices.iter().map(|text| from_peer(text)).collect();
                out.push(TurnOutput::Turned { notices });
                (self.state, self.until) = (S::Over, None);
                return;
            }
            (_, I::Timer) => match self.until.filter(|until| *until <= now_ns) {
                None => return,
                Some(_) => {
                    let waited = match self.state {
                        S::Greeting => self.config.timeouts.welcome_ns,
                        _ => self.config.timeouts.opened_ns,
                    };
                    let text = format!("no answer within {}", format_duration_ns(waited));
                    (ErrorKind::Timeout, text)
                }
            },
            (_, I::Message(M::Refuse { reason })) => {
                (ErrorKind::Refused, format!("the receiver refused: {}", from_peer(&reason)))
            }
            (_, I::Message(message)) => {
                let text = format!("the receiver sent {} out of turn", message.name());
                (ErrorKind::Protocol, text)
            }
            (_, I::Garbage(error @ CodecError::Version { .. })) => {
                (ErrorKind::Version, error.to_string())
            }
            (_, I::Garbage(error)) => (ErrorKind::Protocol, error.to_string()),
            (_, I::Stop(reason)) => (ErrorKind::Interrupted, reason),
            (S::Connecting, I::Lost(why)) => {
                (ErrorKind::Refused, format!("the receiver cannot be reached: {why}"))
            }
            (_, I::Lost(why)) => {
                (ErrorKind::Vanished, format!("the connection to the receiver is gone: {why}"))
            }
            (_, I::Connected) => return,
        };
        self.fail(fault, out);
    }

    fn hello(&self) -> Message {
        Message::Hello {
            magic: MAGIC,
            version: VERSION,
            run: self.config.run.clone(),
            seed: self.config.seed,
            program: self.config.program.clone(),
            host: self.config.host.clone(),
            boot_id: self.config.boot_id.clone(),
            flows: u32::try_from(self.config.flows.len()).unwrap_or(u32::MAX),
            recv_log: None,
        }
    }

    /// The flows to ask a receiver for that has greeted so.
    fn on_welcome(
        &mut self,
        magic: [u8; 4],
        version: u16,
        program: &str,
    ) -> Result<Vec<FlowSpec>, (ErrorKind, String)> {
        if magic != MAGIC {
            return Err((ErrorKind::Protocol, CodecError::Magic { got: magic }.to_string()));
        }
        if version != VERSION {
            return Err((ErrorKind::Version, CodecError::Version { peer: version }.to_string()));
        }
        if !offer::has(program, offer::TURNS) {
            let text = format!(
                "the receiver ({}) sends nothing to those who ask for flows: start itg-recv there with --allow-reverse \
                 (older releases only receive)",
                from_peer(program)
            );
            return Err((ErrorKind::Refused, text));
        }
        let asked = self.config.flows.iter().find_map(|spec| spec.later_settings().next());
        if let Some((name, _)) = asked
            && !offer::has(program, offer::MORE)
        {
            let text = format!(
                "the receiver ({}) is of an older release: leave out {name}",
                from_peer(program)
            );
            return Err((ErrorKind::Refused, text));
        }
        Ok(std::mem::take(&mut self.config.flows))
    }

    fn fail(&mut self, (kind, text): (ErrorKind, String), out: &mut Vec<TurnOutput>) {
        let phase = match self.state {
            State::Connecting => Phase::Connect,
            State::Greeting => Phase::Greet,
            State::Asking | State::Over => Phase::Open,
        };
        out.push(TurnOutput::Failed(SessionError { phase, kind, text }));
        (self.state, self.until) = (State::Over, None);
    }

    const fn enter(&mut self, state: State, now_ns: u64, wait_ns: u64) {
        self.state = state;
        self.until = Some(now_ns.saturating_add(wait_ns));
    }
}
