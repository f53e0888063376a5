//! From a law as it was asked for to one that can be used: the rules of truncation.
//!
//! 1. Values must fit what they are used for. Times are not negative; sizes lie between the packet
//!    header and the limit of the protocol. A law that gives other values too is *conditioned*: a
//!    value outside is drawn again, never moved to the edge.
//! 2. Times without a finite mean are conditioned on at most [`MAX_GAP_WITHOUT_MEAN`].
//! 3. Conditioning must keep at least [`KEPT_SHARE_MIN`] of the draws (counting all `trunc` inside),
//!    else the law is refused. A constant outside is refused.
//! 4. What was changed is said in a notice, unless it concerns fewer than one draw in 10¹².
//!
//! The bounds are whole numbers and apply before rounding, so that the rounded value keeps them too
//! and the conditioned law has an exact distribution function.

use super::sample::Sampler;
use super::text::{percent, rounded, value};
use super::{Law, LawError, Unit};
use crate::seed::Stream;

/// Longest time, in nanoseconds (60 s), drawn from a law that has no finite mean.
pub const MAX_GAP_WITHOUT_MEAN: f64 = 60e9;
/// Least share of draws that conditioning must keep.
pub const KEPT_SHARE_MIN: f64 = 1.0 / 16.0;
/// Share of draws below which conditioning is not worth a word.
const NOTICE_SHARE_MIN: f64 = 1e-12;

/// A law that can be sampled: checked, truncated if need be, prepared.
#[derive(Clone, Debug)]
pub struct Resolved {
    law: Law,
    notice: Option<String>,
    mean: f64,
    sampler: Sampler,
}

impl Law {
    /// Checks the law for a use and prepares it for sampling; values must lie in `lo..=hi` (whole
    /// ns or bytes).
    ///
    /// # Errors
    /// [`LawError`] when a parameter is outside its range, a table is not loaded, a constant lies
    /// outside `lo..=hi`, a constant size is not whole, or fewer than [`KEPT_SHARE_MIN`] of the
    /// draws would be kept.
    pub fn resolve(&self, unit: Unit, lo: f64, hi: f64) -> Result<Resolved, LawError> {
        self.check(unit)?;
        if let Some(name) = self.missing() {
            return Err(LawError::NotLoaded { name: name.to_owned() });
        }
        let text = || self.display(unit);
        if let Self::Constant(x) = *self {
            if !(lo..=hi).contains(&x) {
                return Err(LawError::Outside { law: text(), range: range(lo, hi, unit) });
            }
            if unit == Unit::Size && x.fract() != 0.0 {
                let (law, name, rule) = (self.name(), "value", "must be a whole number of bytes");
                return Err(LawError::Parameter { law, name, value: value(x, unit), rule });
            }
        }
        let mean_asked = self.mean();
        let endless = unit == Unit::Time && !mean_asked.is_finite();
        let hi = if endless { hi.min(MAX_GAP_WITHOUT_MEAN) } else { hi };
        let support = self.support();
        let fits = lo <= support.0 && support.1 <= hi;
        let law = if fits { self.clone() } else { self.truncated(lo, hi) };
        let kept = 1.0 / attempts(&law);
        if kept.is_nan() || kept < KEPT_SHARE_MIN {
            let bounds = law.support();
            let (law, range) = (text(), range(bounds.0.max(lo), bounds.1.min(hi), unit));
            return Err(LawError::Kept { law, kept: percent(kept), range });
        }
        let outside = if fits {
            0.0
        } else {
            self.mass(f64::NEG_INFINITY, lo.next_down()) + self.mass(hi.next_up(), f64::INFINITY)
        };
        let mean = law.mean();
        let notice = (outside > NOTICE_SHARE_MIN).then(|| {
            let (text, share, mean) = (text(), percent(outside), rounded(mean, unit));
            match unit {
                Unit::Time if endless => format!(
                    "{text} has no finite mean: {share} of its draws, outside {}, are drawn again, \
                     which makes the mean {mean} (rule: times without a finite mean are drawn \
                     again until they are from 0 to 60 s)",
                    range(lo, hi, unit)
                ),
                Unit::Time => format!(
                    "{share} of the draws of {text}, outside {}, are drawn again, which makes the \
                     mean {mean} (rule: times are drawn again until they are not negative)",
                    range(lo, hi, unit)
                ),
                Unit::Size => format!(
                    "{share} of the draws of {text}, outside {}, are drawn again, which makes the \
                     mean {mean} (rule: sizes are drawn again until they fit the packet header \
                     and the limit of the protocol)",
                    range(lo, hi, unit)
                ),
            }
        });
        Ok(Resolved { sampler: Sampler::new(&law)?, law, notice, mean })
    }

    /// The law on condition that it is in `lo..=hi`.
    fn truncated(&self, lo: f64, hi: f64) -> Self {
        match self {
            Self::Trunc { law, lo: own_lo, hi: own_hi } => {
                Self::Trunc { law: law.clone(), lo: lo.max(*own_lo), hi: hi.min(*own_hi) }
            }
            law => Self::Trunc { law: Box::new(law.clone()), lo, hi },
        }
    }

    fn missing(&self) -> Option<&str> {
        match self {
            Self::Empirical { name, table: None, .. } => Some(name),
            Self::Mix(parts) => parts.iter().find_map(|(_, law)| law.missing()),
            Self::Trunc { law, .. } => law.missing(),
            _ => None,
        }
    }
}

/// Attempts that a draw takes on the average; the most that any truncation inside takes if that is
/// more than is allowed.
fn attempts(law: &Law) -> f64 {
    match law {
        Law::Mix(parts) => {
            let all: f64 = parts.iter().map(|(w, _)| w).sum();
            let each = || parts.iter().map(|(w, law)| (w / all, attempts(law)));
            let worst = each().map(|(_, n)| n).fold(1.0, f64::max);
            let mean = each().map(|(share, n)| share * n).sum();
            if worst > 1.0 / KEPT_SHARE_MIN { worst } else { mean }
        }
        Law::Trunc { law, lo, hi } => attempts(law) / law.mass(*lo, *hi),
        _ => 1.0,
    }
}

fn range(lo: f64, hi: f64, unit: Unit) -> String {
    let bytes = if unit == Unit::Size { " bytes" } else { "" };
    format!("{}..{}{bytes}", value(lo, unit), value(hi, unit))
}

impl Resolved {
    /// The value of every draw, if it is the same for all.
    pub(crate) fn steady(&self) -> Option<u64> {
        self.sampler.steady()
    }

    /// The law in force: the one that was asked for, truncated if need be. Exact but for the
    /// rounding of each draw to a whole ns or byte.
    #[must_use]
    pub const fn law(&self) -> &Law {
        &self.law
    }

    /// What had to be changed, by which rule, and what it does to the mean; `None` when nothing was.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The value of packet `k` in whole ns or bytes: a pure function of (stream, `k`).
    pub fn sample(&self, stream: &mut Stream, k: u64) -> u64 {
        self.sampler.sample(stream, k)
    }

    /// The mean of the law in force, in ns or bytes.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The value of a constant law, in ns or bytes, before rounding.
    #[must_use]
    pub const fn is_constant(&self) -> Option<f64> {
        match self.law {
            Law::Constant(x) => Some(x),
            _ => None,
        }
    }
}
