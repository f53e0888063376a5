//! Facts that a simulation or a network tells a layer through [`crate::Layer::control`].

use crate::message::Slot;

/// Something that a layer is told, as if its world had done it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Injected {
    /// The failure detector suspects this process, whatever it has heard.
    Suspect(Slot),
    /// It trusts it again.
    Trust(Slot),
    /// The last connection to this process ended, and its host refuses another one: it does not run. Real
    /// networks say so, too, to the layer `detector`.
    Refused(Slot),
    /// Writing to the disk fails, or works again.
    Disk {
        /// True if it works.
        works: bool,
    },
    /// A write to the disk takes this many nanoseconds.
    SlowDisk(u64),
    /// The log server is there, or is not.
    LogServer {
        /// True if it is there.
        up: bool,
    },
    /// The client asks again what it has asked already.
    ClientRetry,
    /// The process says it is of another build.
    WrongBuild,
}
