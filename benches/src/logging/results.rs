//! Trials by setting, and estimates from them.

use std::collections::BTreeMap;

use itg_trials::Estimate;

use super::trial::{Setting, Trial};

/// c of steps 1 and of figure 1, before c* is known.
pub(super) const FIRST_SIZE: u32 = 1024;

/// Trials by setting.
pub(super) type Results = BTreeMap<Setting, Vec<Trial>>;

pub(super) fn estimate(trials: &[Trial], of: impl Fn(&Trial) -> f64) -> Estimate {
    Estimate::of(&trials.iter().map(of).collect::<Vec<_>>())
}
