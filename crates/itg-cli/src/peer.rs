//! Patience with the other side of a session.

use std::collections::BTreeMap;

use clap::Args;
use itg_core::units::{format_duration_ns, parse_duration_ns};
use itg_session::Timeouts;

/// Longest silence that may be asked for: 1 h.
const LONGEST_NS: u64 = 3_600_000_000_000;
/// Shortest silence that may be asked for: 1 s, four pings.
const SHORTEST_NS: u64 = 1_000_000_000;

/// Patience with the other side of a session.
#[derive(Clone, Copy, Debug, Args)]
pub struct PeerArgs {
    /// Time for which the other side may be silent while packets flow, 1s to 1h: an outage of the path that is shorter
    /// ends no measurement, its packets are lost and counted [default: 30s]
    ///
    /// Behind the last flow's end a sender waits 10 s for a silent receiver, whatever this says.
    #[arg(long, help_heading = "Network", value_name = "T", value_parser = peer_timeout)]
    peer_timeout: Option<u64>,
}

impl PeerArgs {
    /// Returns true if a time was asked for.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.peer_timeout.is_some()
    }

    /// Longest silence, in nanoseconds.
    #[must_use]
    pub fn timeout_ns(&self) -> u64 {
        self.peer_timeout.unwrap_or_else(|| Timeouts::default().silence_ns)
    }

    /// The resolved setting, for words and logs.
    #[must_use]
    pub fn settings(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("peer-timeout".to_owned(), format_duration_ns(self.timeout_ns()))])
    }
}

/// A time for which a peer may be silent, in nanoseconds.
fn peer_timeout(text: &str) -> Result<u64, String> {
    match parse_duration_ns(text).map_err(|error| error.to_string())? {
        ns @ SHORTEST_NS..=LONGEST_NS => Ok(ns),
        _ => Err(format!("{text} of silence: expected 1s to 1h")),
    }
}
