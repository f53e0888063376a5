//! From a distribution as it was asked for to one that can be used: the rules of truncation.
//!
//! 1. Values must fit what they are used for. Times are not negative; sizes lie between the packet
//!    header and the limit of the protocol. A distribution that gives other values too is
//!    *conditioned*: a value outside is drawn again, never moved to the edge.
//! 2. Times without a finite mean are conditioned on at most [`MAX_GAP_WITHOUT_MEAN`].
//! 3. Conditioning must keep at least [`KEPT_SHARE_MIN`] of the draws (counting all `trunc` inside),
//!    else the distribution is refused. A constant outside is refused.
//! 4. What was changed is said in a notice where it matters: where it concerns one draw in 10⁵, or moves the mean by
//!    a thousandth.
//!
//! The bounds are whole numbers and apply before rounding, so that the rounded value keeps them too
//! and the conditioned distribution has an exact distribution function.

use super::sample::Sampler;
use super::text::{percent, rounded, value};
use super::{Distribution, DistributionError, Unit};
use crate::seed::Stream;

/// Longest time, in nanoseconds (60 s), drawn from a distribution that has no finite mean.
pub const MAX_GAP_WITHOUT_MEAN: f64 = 60e9;
/// Least share of draws that conditioning must keep.
pub const KEPT_SHARE_MIN: f64 = 1.0 / 16.0;
/// Share of draws from which on conditioning is worth a word.
const NOTICE_SHARE_MIN: f64 = 1e-5;
/// Relative change of the mean from which on it is, however rare the draws are.
const NOTICE_MEAN_MIN: f64 = 1e-3;

/// A distribution that can be sampled: checked, truncated if need be, prepared.
#[derive(Clone, Debug)]
pub struct Resolved {
    distribution: Distribution,
    notice: Option<String>,
    mean: f64,
    sampler: Sampler,
}

impl Distribution {
    /// Checks the distribution for a use and prepares it for sampling; values must lie in `lo..=hi`
    /// (whole ns or bytes).
    ///
    /// # Errors
    /// [`DistributionError`] when a parameter is outside its range, a table is not loaded, a constant lies
    /// outside `lo..=hi`, a constant size is not whole, or fewer than [`KEPT_SHARE_MIN`] of the
    /// draws would be kept.
    pub fn resolve(&self, unit: Unit, lo: f64, hi: f64) -> Result<Resolved, DistributionError> {
        self.check(unit)?;
        if let Some(name) = self.missing() {
            return Err(DistributionError::NotLoaded { name: name.to_owned() });
        }
        let text = || self.display(unit);
        if let Self::Constant(x) = *self {
            if !(lo..=hi).contains(&x) {
                return Err(DistributionError::Outside {
                    distribution: text(),
                    range: range(lo, hi, unit),
                });
            }
            if unit == Unit::Size && x.fract() != 0.0 {
                let (distribution, name, rule) =
                    (self.name(), "value", "must be a whole number of bytes");
                return Err(DistributionError::Parameter {
                    distribution,
                    name,
                    value: value(x, unit),
                    rule,
                });
            }
        }
        let mean_asked = self.mean();
        let endless = unit == Unit::Time && !mean_asked.is_finite();
        let hi = if endless { hi.min(MAX_GAP_WITHOUT_MEAN) } else { hi };
        let support = self.support();
        let fits = lo <= support.0 && support.1 <= hi;
        let distribution = if fits { self.clone() } else { self.truncated(lo, hi) };
        let kept = 1.0 / attempts(&distribution);
        if kept.is_nan() || kept < KEPT_SHARE_MIN {
            let bounds = distribution.support();
            let (distribution, range) = (text(), range(bounds.0.max(lo), bounds.1.min(hi), unit));
            return Err(DistributionError::Kept { distribution, kept: percent(kept), range });
        }
        let outside = if fits {
            0.0
        } else {
            self.mass(f64::NEG_INFINITY, lo.next_down()) + self.mass(hi.next_up(), f64::INFINITY)
        };
        let mean = distribution.mean();
        // A mean that was none to begin with is a change, too.
        let moved = ((mean - mean_asked) / mean_asked).abs();
        let matters = outside >= NOTICE_SHARE_MIN || moved.is_nan() || moved >= NOTICE_MEAN_MIN;
        let notice = (outside > 0.0 && matters).then(|| {
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
        Ok(Resolved { sampler: Sampler::new(&distribution)?, distribution, notice, mean })
    }

    /// The distribution on condition that it is in `lo..=hi`.
    fn truncated(&self, lo: f64, hi: f64) -> Self {
        match self {
            Self::Trunc { distribution, lo: own_lo, hi: own_hi } => Self::Trunc {
                distribution: distribution.clone(),
                lo: lo.max(*own_lo),
                hi: hi.min(*own_hi),
            },
            distribution => Self::Trunc { distribution: Box::new(distribution.clone()), lo, hi },
        }
    }

    fn missing(&self) -> Option<&str> {
        match self {
            Self::Empirical { name, table: None, .. } => Some(name),
            Self::Mix(parts) => parts.iter().find_map(|(_, distribution)| distribution.missing()),
            Self::Trunc { distribution, .. } => distribution.missing(),
            _ => None,
        }
    }
}

/// Attempts that a draw takes on the average; the most that any truncation inside takes if that is
/// more than is allowed.
fn attempts(distribution: &Distribution) -> f64 {
    match distribution {
        Distribution::Mix(parts) => {
            let all: f64 = parts.iter().map(|(w, _)| w).sum();
            let each = || parts.iter().map(|(w, distribution)| (w / all, attempts(distribution)));
            let worst = each().map(|(_, n)| n).fold(1.0, f64::max);
            let mean = each().map(|(share, n)| share * n).sum();
            if worst > 1.0 / KEPT_SHARE_MIN { worst } else { mean }
        }
        Distribution::Trunc { distribution, lo, hi } => {
            attempts(distribution) / distribution.mass(*lo, *hi)
        }
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

    /// The distribution in force: the one that was asked for, truncated if need be. Exact but for
    /// the rounding of each draw to a whole ns or byte.
    #[must_use]
    pub const fn distribution(&self) -> &Distribution {
        &self.distribution
    }

    /// Change that was needed, by which rule, and its effect on the mean; `None` without a change.
    #[must_use]
    pub fn notice(&self) -> Option<&str> {
        self.notice.as_deref()
    }

    /// The value of packet `k` in whole ns or bytes: a pure function of (stream, `k`).
    pub fn sample(&self, stream: &mut Stream, k: u64) -> u64 {
        self.sampler.sample(stream, k)
    }

    /// The mean of the distribution in force, in ns or bytes.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The value of a constant distribution, in ns or bytes, before rounding.
    #[must_use]
    pub const fn is_constant(&self) -> Option<f64> {
        match self.distribution {
            Distribution::Constant(x) => Some(x),
            _ => None,
        }
    }
}
