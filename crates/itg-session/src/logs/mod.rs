//! Agreement of the producers of a log and a log server about it: the messages, their bytes, and
//! the two state machines, [`LogProducer`] and [`LogServerSession`] with the [`LogBook`] that the
//! sessions of a server share. No I/O: time, messages and the driver's answers are passed in, what
//! is to be done comes out.
//!
//! ```text
//! producer                               log server
//!   Register ----------------------------->   identity of the log; first block that it holds
//!   <--------------------------- Challenge    only with a shared secret; Register comes again
//!   <-------------------------- Registered    number of the log, credit, how far it is stored
//!   Bind (datagram), until Bound --------->   UDP only: where its blocks will come from
//!   blocks ------------------------------->   on TCP within the credit, in ascending order
//!   <--------------------------------- Ack    TCP only: how far it is stored, more credit
//!   ... after a cut or a restart of the server: again from Register ...
//!   Leave -------------------------------->   what was produced
//!   <-------------------------------- Left    what is stored, what is missing
//! ```
//!
//! Blocks are numbered from 0; a dropped block uses up its number, so that the gap is visible. What
//! holds, whatever is cut, lost, sent twice or killed:
//!
//! - On TCP a block is released by its producer when it is stored, and it is stored once.
//! - Every record produced is stored, missing, dropped, in the producer's spool or, when the server
//!   did not answer to the end, unconfirmed: [`LogFate`] adds up.
//! - A number stands for one content: a block that comes again is compared by its checksum. Another
//!   content is not stored; server and producer say so.
//! - The server's memory is bounded by its budget ([`LogLimits`]); each producer always may have two
//!   blocks on the way, so none waits for the others.
//!
//! `now_ns` comes from any clock that never runs backwards. A driver hands over what has arrived
//! before it says `Timer`, and after `Disconnect`, or after having said `Lost`, nothing more of that
//! connection.
//!
//! Sources: Botta, Dainotti, Pescapè (log server of D-ITG: registration, block transfer, leave);
//! cumulative credit as in QUIC (RFC 9000, section 4). Resending, exactly-once, the spool and the
//! challenge are ours.

mod blocks;
mod book;
mod checksums;
mod codec;
mod credit;
mod frame;
pub mod keep;
mod message;
mod name;
mod producer;
mod server;
mod timeouts;

pub use blocks::BlockSet;
pub use book::{LogBook, LogLimits, LogState, RestoredLog, SessionId};
pub use codec::{LogCodecError, decode, encode};
pub use frame::FrameHead;
pub use message::{
    LEAVE_FLOWS, LEFT_RANGES, LOG_MAGIC, LOG_VERSION, LogMessage, MAX_LOG_MESSAGE, MAX_NAME,
    MAX_REASON, Registration, Role, Transport,
};
pub use name::{file_stem, proof_text};
pub use producer::{
    LogFate, LogProducer, LogProducerConfig, ProducerInput, ProducerOutput, SpooledBlock,
    SpooledLog,
};
pub use server::{
    LogAccount, LogServerConfig, LogServerSession, ServerInput, ServerOutput, block_input,
};
pub use server::{NO_MEMORY, NO_ROOM};
pub use timeouts::{LogServerTimeouts, ProducerTimeouts};
