//! D-ITG's protocol on real sockets: what drives the state machines of `itg_classic`.
//!
//! The packets of D-ITG's flows leave through the same sending thread as ITG's, arrive at the same
//! receiving thread and go through the same logging; what differs is their header, their schedule and
//! the last step of the log.

mod channel;
mod sender;

pub use self::sender::{
    ClassicChannel, ClassicEnding, ClassicFlow, ClassicOutcome, ClassicProgress, ClassicSender,
    ClassicSending, ClassicSource, ClassicWay,
};
