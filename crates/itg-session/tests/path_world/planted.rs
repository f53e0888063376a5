//! Faults that are planted into the world around the product's code, and must be found.

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// The log server says that a block is stored before it is written.
    AckBeforeWritten,
    /// The log server writes a block again that came again.
    StoredTwice,
    /// The log server leaves the torn tail of its file.
    TornTailKept,
    /// The log server cuts off the last good block with the tail.
    TailCutTooFar,
    /// The log server leaves the torn line at the end of an index.
    TornLineKept,
    /// The log server's index is never synced.
    IndexNotSynced,
    /// A sync does nothing.
    SyncLeftOut,
    /// A log server that starts again does not look at what is in its files.
    NumbersForgotten,
    /// A log server opens the file of an experiment as a new one.
    FileReplaced,
    /// Records that a producer left out are not told to its log.
    LossNotTold,
    /// A block that a producer left out is not counted as lost.
    LossNotCounted,
    /// The sender's session is never told that its deadline has come.
    DeafSender,
    /// A producer's machine is never told that its deadline has come.
    DeafProducer,
    /// The receiver's session is never told that its deadline has come.
    DeafReceiver,
    /// A packet that comes twice is counted as another one.
    DuplicateCounted,
    /// Deadlines are on the clock that is set.
    SteppedClock,
    /// A spool is sent under another key than the one of its log.
    SpoolFromZero,
    /// The server's list of what is missing does not reach the producer.
    MissingHidden,
    /// A packet is logged twice by its sender.
    LoggedTwice,
}

impl Planted {
    pub const ALL: [Self; 19] = [
        Self::AckBeforeWritten,
        Self::StoredTwice,
        Self::TornTailKept,
        Self::TailCutTooFar,
        Self::TornLineKept,
        Self::IndexNotSynced,
        Self::SyncLeftOut,
        Self::NumbersForgotten,
        Self::FileReplaced,
        Self::LossNotTold,
        Self::LossNotCounted,
        Self::DeafSender,
        Self::DeafProducer,
        Self::DeafReceiver,
        Self::DuplicateCounted,
        Self::SteppedClock,
        Self::SpoolFromZero,
        Self::MissingHidden,
        Self::LoggedTwice,
    ];
}
