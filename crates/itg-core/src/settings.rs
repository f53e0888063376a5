//! Settings of flows that came after the first version of their description.
//!
//! They travel (`itg_session`, `more`), are logged, and stand in experiment files under the names of their fields; what is
//! not set is absent everywhere, so that plans without it keep their hashes.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Serialize};

use crate::flow::Proto;
use crate::units::format_duration_ns;

/// Value of a setting, as experiment files have it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SettingValue {
    /// A text, as `5s`.
    Text(String),
    /// A number.
    Number(u64),
    /// It is set.
    Yes,
}

impl Display for SettingValue {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number(number) => number.fmt(f),
            Self::Yes => f.write_str("true"),
        }
    }
}

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

    /// Settings that were asked for, as experiment files and words at the start have them: names and values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, SettingValue)> {
        let drain = self.drain_ns.map(|ns| SettingValue::Text(format_duration_ns(ns)));
        set([("drain", drain)])
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

/// Settings of a flow that change its packets, or which of them leave: they are part of its plan, and of the plan's hash
/// where they are set. The receiver need not know them; who is asked to send must.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Shape {
    /// Largest segment of TCP, in bytes behind its header: [`MIN_MSS`] to [`MAX_MSS`], and no more than the path takes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mss: Option<u32>,
    /// No packet is cut on its way: one that is too large for the path is refused here, or by a router.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub dont_fragment: bool,
}

/// Smallest largest segment that can be asked for: Linux's `TCP_MIN_MSS`.
pub const MIN_MSS: u32 = 88;
/// Largest one: Linux's `MAX_TCP_WINDOW`.
pub const MAX_MSS: u32 = 32_767;

impl Shape {
    /// Returns true if nothing was asked for.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Settings that were asked for, as experiment files and words at the start have them: names and values.
    pub fn settings(&self) -> impl Iterator<Item = (&'static str, SettingValue)> {
        let mss = self.mss.map(|bytes| SettingValue::Number(bytes.into()));
        let whole = self.dont_fragment.then_some(SettingValue::Yes);
        set([("mss", mss), ("dont_fragment", whole)])
    }

    /// Refuses what a flow of this transport cannot have.
    pub(crate) fn check(&self, proto: Proto) -> Result<(), String> {
        match self.mss {
            Some(_) if proto != Proto::Tcp => {
                Err("`mss` is about TCP: leave it out or use proto tcp".to_owned())
            }
            Some(mss) if !(MIN_MSS..=MAX_MSS).contains(&mss) => {
                Err(format!("a largest segment of {mss} bytes: expected {MIN_MSS} to {MAX_MSS}"))
            }
            _ => Ok(()),
        }
    }
}

/// Those settings that are set.
fn set<const N: usize>(
    all: [(&'static str, Option<SettingValue>); N],
) -> impl Iterator<Item = (&'static str, SettingValue)> {
    all.into_iter().filter_map(|(name, value)| Some((name, value?)))
}
