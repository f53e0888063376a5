//! Pace of a log: how often a member says how far it is, and how long it waits for others.
//!
//! A member tells its neighbours how far it is every `status`. Once nothing has changed since it told them, and nothing
//! is waited for, it does so half as often each time, down to once in `rest`. Time-outs are longer by two of the round
//! trips that the detector measures, `status` by four: with less a round over a slow link would be given up before its
//! answers come.

use std::time::Duration;

/// Number of the view, instance in progress, smallest instance of the subtree, instance before which all have
/// everything.
pub(super) type Progress = (u64, u64, u64, u64);

/// Pace of a member.
#[derive(Clone, Debug, Hash)]
pub(super) struct Pace {
    /// Times of the settings, without round trips.
    pub(super) rotate: Duration,
    pub(super) status: Duration,
    /// The progress that was told last.
    pub(super) told: Option<Progress>,
    /// Number of times that it was told since it changed.
    pub(super) quiet: u32,
}

impl Pace {
    pub(super) const fn new(rotate: Duration, status: Duration) -> Self {
        Self { rotate, status, told: None, quiet: 0 }
    }
}
