//! Counters of a process.

/// Counters of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Messages that layers sent, multicasts once.
    pub sent: u64,
    /// Messages delivered to the lowest layer.
    pub delivered: u64,
    /// Dropped: no layer understands their type.
    pub unknown_type: u64,
    /// Dropped: they went up above the highest layer.
    pub unclaimed: u64,
    /// Refused by a network, and told to the layers.
    pub refused: u64,
    /// Dropped: there is no network of this number.
    pub no_such_network: u64,
    /// Refused: longer than their network takes.
    pub too_long: u64,
    /// Calls to a layer that there is not.
    pub no_such_layer: u64,
    /// Dropped: sent after the process stopped.
    pub after_stop: u64,
    /// Dropped: more than 65 536 messages waited for the start.
    pub before_start: u64,
}
