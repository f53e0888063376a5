//! Sockets, clocks, threads, batched I/O and pacing on real time: what drives the pure crates on a
//! real host. All `unsafe` of the project's own code is here, in [`mmsg`], [`iso`], `beyond`, `errqueue` and `sys`, each
//! with its reason.
#![allow(unsafe_code, reason = "system calls that no well-kept crate wraps the way we need them")]

mod beyond;
mod classic;
pub mod clock;
mod clock_probes;
mod control;
mod departures;
mod due;
mod engine;
mod errqueue;
mod frames;
pub mod host;
mod icmp;
pub mod iso;
mod live;
mod log;
mod logserver;
pub mod mmsg;
mod orders;
pub mod pacing;
pub mod probe;
pub mod processes;

mod receiver;
mod rx;
mod sender;
mod socket;

mod sys;
mod tcp_watch;
mod traffic;
pub mod txtime;
mod window;
mod wire;

pub use beyond::{SendEngine, SendEngineError, rate_over_a_link};
pub use classic::{
    ClassicChannel, ClassicContent, ClassicEnding, ClassicFlow, ClassicOutcome, ClassicPlace,
    ClassicProgress, ClassicSender, ClassicSending, ClassicSource, ClassicTarget, ClassicWay,
};
pub use live::{FlowLive, FlowReading};
pub use log::{
    Forwarded, HandedBlock, HandedTarget, LOG_PORT, Log, LogLimits, LogOutcome, LogServerTarget,
    LogTarget, LogUrl, OnFull, Producer, forward,
};
pub use logserver::{LogServer, LogServerOptions, LogServerOutcome};
pub use orders::{Lease, Orders, Start};
pub use receiver::{
    BindError, ClassicNews, ClassicReceiving, Receiver, ReceiverOptions, ReceiverOutcome,
    VisitError,
};
pub use sender::{FlowOutcome, SendFlow, SendJob, SendOutcome, exit_code, send};
pub use socket::{SocketError, end_when_silent, enlarge, listen, plain, resolve};
pub use sys::socket_drops;
