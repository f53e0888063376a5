//! What a simulation tells a layer through [`crate::Layer::control`], as if its world had done it.

use crate::message::Slot;

/// Something that a layer is told, as if its world had done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// The failure detector suspects this process, whatever it has heard.
    Suspect(Slot),
    /// It trusts it again.
    Trust(Slot),
    /// Writing to the disk fails, or works again.
    Disk {
        /// Whether it works.
        works: bool,
    },
    /// A write to the disk takes this many nanoseconds.
    SlowDisk(u64),
    /// The log server is there, or is not.
    LogServer {
        /// Whether it is there.
        up: bool,
    },
    /// The client asks again what it has asked already.
    ClientRetry,
    /// The process says it is of another build.
    WrongBuild,
}
