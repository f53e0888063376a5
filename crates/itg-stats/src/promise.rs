//! Comparison of a host's sending with the promise of `itg-send doctor`.

use itg_core::units::format_duration_ns;
pub use itg_fidelity::promise::{Promise, PromiseError};
use serde::Serialize;

use crate::fidelity::SKIPPED_LIMIT;

/// Promise of a host for its sending, and its outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct PromiseReport {
    /// Name of the sender's log.
    pub log: String,
    /// Packets a second that all its flows sent together.
    pub rate_pps: f64,
    /// 99 % of them were to leave at most so late, in nanoseconds; `None` when nothing was promised for that rate.
    pub promised_p99_ns: Option<u64>,
    /// 99 % of them left at most so late, in nanoseconds; `None` where it is not known.
    pub late_p99_ns: Option<i64>,
    /// Share of the packets that the sender left out because they were late. More than 1 % is a promise not kept.
    pub left_out_share: f64,
    /// True if the promise was kept; `None` where it cannot be told.
    pub kept: Option<bool>,
    /// Reason why it cannot be told.
    pub why_not: Option<String>,
}

/// Traffic that a host sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sent {
    /// True if the figures cover all flows of the log; false if some were not decoded.
    pub(crate) all: bool,
    /// True if none of its flows was sent by others, too.
    pub(crate) alone: bool,
    pub(crate) rate_pps: f64,
    pub(crate) late_p99_ns: Option<i64>,
    pub(crate) left_out_share: f64,
}

impl PromiseReport {
    /// Compares; `pacing` is how the sending thread waited when doctor measured, and in the run.
    pub(crate) fn of(
        log: &str,
        promise: &Promise,
        pacing: (Option<&str>, Option<&str>),
        sent: Sent,
    ) -> Self {
        let Sent { all, alone, rate_pps, late_p99_ns, left_out_share } = sent;
        let promised_p99_ns = promise.at(rate_pps);
        let why_not = match (pacing, promised_p99_ns, late_p99_ns) {
            ((promised, run), ..) if promised != run => Some(format!(
                "it was measured with other pacing ({}) than the run ({})",
                promised.unwrap_or("unknown"),
                run.unwrap_or("unknown")
            )),
            _ if !all => Some("only some flows were decoded".to_owned()),
            _ if !alone => Some("some flows were sent by other hosts, too".to_owned()),
            (_, None, _) => Some("nothing was promised for so high a rate".to_owned()),
            (.., None) => Some("how late packets left is not known".to_owned()),
            _ => None,
        };
        let kept = promised_p99_ns
            .zip(late_p99_ns)
            .filter(|_| why_not.is_none())
            .map(|(promised, late)| u64::try_from(late).unwrap_or(0) <= promised)
            .map(|kept| kept && left_out_share <= SKIPPED_LIMIT);
        let log = log.to_owned();
        Self { log, rate_pps, promised_p99_ns, late_p99_ns, left_out_share, kept, why_not }
    }
}

impl std::fmt::Display for PromiseReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kilo = self.rate_pps / 1e3;
        write!(f, "{}: ", self.log)?;
        let late_ns = u64::try_from(self.late_p99_ns.unwrap_or(0)).unwrap_or(0);
        // To three digits, upwards: a promise that was not kept does not look kept.
        let step = 10u64.pow(late_ns.max(1).ilog10().saturating_sub(2));
        let late = format_duration_ns(late_ns.div_ceil(step).saturating_mul(step));
        match (self.promised_p99_ns, self.kept, &self.why_not) {
            (Some(promised), Some(kept), _) => {
                let promised = format_duration_ns(promised);
                let verdict = if kept { "kept" } else { "not kept" };
                let left_out = if self.left_out_share > SKIPPED_LIMIT {
                    format!(", and {:.2} % were left out", 100.0 * self.left_out_share)
                } else {
                    String::new()
                };
                write!(
                    f,
                    "this host promised {kilo:.3} kpps exact to {promised} at p99; they were {late} \
                     late{left_out}: {verdict}"
                )
            }
            (_, _, why) => {
                let why = why.as_deref().unwrap_or("unknown");
                write!(f, "whether this host kept its promise cannot be said: {why}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise() -> Promise {
        Promise::parse("100:5000,1000:3000,50000:13000").expect("a promise")
    }

    #[test]
    fn the_verdict_is_told_in_words() {
        let same = (Some("hybrid"), Some("hybrid"));
        for (pacing, rate, late, kept, words) in [
            (
                same,
                50_000.0,
                Some(8_000),
                Some(true),
                "50.000 kpps exact to 13us at p99; they were 8us late: kept",
            ),
            (same, 50_000.0, Some(13_001), Some(false), "they were 13.1us late: not kept"),
            (same, 50_000.0, Some(-5), Some(true), "0s late: kept"),
            (same, 90_000.0, Some(1), None, "nothing was promised for so high a rate"),
            (same, 1_000.0, None, None, "how late packets left is not known"),
            (
                (Some("hybrid"), Some("spin")),
                1_000.0,
                Some(1),
                None,
                "other pacing (hybrid) than the run (spin)",
            ),
        ] {
            let sent = Sent {
                all: true,
                alone: true,
                rate_pps: rate,
                late_p99_ns: late,
                left_out_share: 0.01,
            };
            let report = PromiseReport::of("s.itg", &promise(), pacing, sent);
            assert_eq!(report.kept, kept, "{words}");
            assert!(report.to_string().ends_with(words), "{report}");
            let some = PromiseReport::of("s.itg", &promise(), pacing, Sent { all: false, ..sent });
            assert_eq!(some.kept, None, "of some flows: {some}");
            let holes = Sent { left_out_share: 0.02, ..sent };
            let holes = PromiseReport::of("s.itg", &promise(), pacing, holes);
            assert_eq!(holes.kept, kept.map(|_| false), "with packets left out: {holes}");
            assert_eq!(
                holes.to_string().contains(", and 2.00 % were left out: not kept"),
                kept.is_some()
            );
        }
    }
}
