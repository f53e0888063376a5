//! Settings of flows that came after the first version of their description.
//!
//! They travel (`itg_session`, `more`), are logged, and stand in experiment files under the names of their fields; what is
//! not set is absent everywhere, so that plans without it keep their hashes.

use serde::{Deserialize, Serialize};

use crate::units::format_duration_ns;

/// Settings of a flow that change none of its packets: they are no part of its plan, nor of the plan's hash.
///
/// They travel and are logged under the names of their fields; what is `None` is absent everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Handling {
    /// Longest time for which the receiver waits for packets behind the flow's end, in nanoseconds; at most
    /// [`MAX_DRAIN_NS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_ns: Option<u64>,
}

/// Longest time for which a receiver may be asked to wait for the last packets of a flow: 15 s, which both sides of a
/// session have patience for.
pub const MAX_DRAIN_NS: u64 = 15_000_000_000;

impl Handling {
    /// Returns true if nothing was asked for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// What was asked for, as experiment files and words at the start have it: names and values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, String)> {
        let drain = self.drain_ns.map(format_duration_ns);
        [("drain", drain)].into_iter().filter_map(|(name, value)| Some((name, value?)))
    }

    /// Refuses what neither side has patience for.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self.drain_ns {
            Some(ns) if ns > MAX_DRAIN_NS => {
                let (asked, most) = (format_duration_ns(ns), format_duration_ns(MAX_DRAIN_NS));
                Err(format!("a wait of {asked} for late packets: expected {most} at most"))
            }
            _ => Ok(()),
        }
    }
}
