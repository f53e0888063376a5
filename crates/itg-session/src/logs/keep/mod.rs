//! Rules of keeping blocks: what is written when, what is cut off and what is known again after a crash.
//!
//! The files below are a [`Storage`], the network is a [`LogLink`]: the programs bring disks and sockets, simulations
//! bring others that tear, lose and break.

mod append;
mod held;
mod remote;
mod run_files;
mod spool;
mod storage;
mod sync;

pub use append::{AppendError, BlockFile};
pub use held::{GiveBack, Lent, UnconfirmedBlock};
pub use remote::{DATAGRAMS_TOGETHER, LogLink, RemoteEnd, RemoteLog};
pub use run_files::{OpenError, RunFiles};
pub use spool::{Done, Spool, SpoolRest};
pub use storage::Storage;
pub use sync::{Fsync, Syncer};
