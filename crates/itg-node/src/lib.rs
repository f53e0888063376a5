//! Senders, receivers and log servers as programs have them: what drives the state machines of
//! `itg_session` and `itg_classic` over TCP, on tokio, beside the threads of `itg_engine`.
//!
//! Begin with [`Receiver::bind`] and [`send()`]; log servers are [`LogServer::bind`].

mod classic;
mod clock_probes;
mod connection_slots;
mod control;
mod exit_code;
mod frames;
mod lock;
mod logserver;
pub mod metrics;
mod orders;
mod packet_keys;
mod receiver;
mod sender;
mod setters;
mod waiting;

pub use classic::{
    ClassicChannel, ClassicEnding, ClassicFlow, ClassicOutcome, ClassicProgress, ClassicSender,
    ClassicSending, ClassicSource, ClassicWay,
};
pub use clock_probes::ClockProbes;
pub use connection_slots::{ConnectionSlot, ConnectionSlots, NoSlot, SlotLimits};
pub use exit_code::exit_code;
pub use logserver::{LogServer, LogServerOptions, LogServerOutcome, LogServerReading};
pub use orders::{Orders, Start};
pub use receiver::asking::AskOutcome;
pub use receiver::limits::ReverseLimits;
pub use receiver::{
    BindError, ClassicNews, ClassicReceiving, Receiver, ReceiverOptions, ReceiverOutcome,
    ReceiverReading, ReceiverWatch, SENDERS_PER_ADDRESS, ServedFlow, ServedSession, VisitError,
    WATCHED_MEASURES, WatchReading, WatchedFlow,
};

pub use sender::{
    ArrivalAsker, ArrivalAsks, FlowOutcome, PeerClock, SendFlow, SendJob, SendOutcome,
    arrival_asks, send,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExample;
