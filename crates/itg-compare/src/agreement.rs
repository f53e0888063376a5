//! Agreement of two runs that should be the same, such as a run and its replay: a judgement for each figure.
//!
//! A figure is *equal* where the interval of B − A reaches the tolerance around 0, *different* where it does not. The
//! intervals are those of the comparison, widened so that all of them together cover with 95 %
//! ([`joint_factor`]): of a hundred replays of which nothing differs but chance within a run, 95 are equal in all
//! figures. An interval many times as wide as the tolerance does not say that they are equal: the figure is *not
//! known*, where it is not different. What varies from run to run is for the tolerance: a share of the value in A, and for times at least
//! `TIME_NS`, since nothing in one run tells how the load of its host varies between runs.

use std::fmt;

use itg_core::confidence::joint_factor;

use crate::bootstrap::STATISTICS;
use crate::comparison::{Comparison, Difference, Pairing};
use crate::text::cells;

/// Tolerance of times and of rates, as a share of the value in A.
const TIME_SHARE: f64 = 0.1;
const RATE_SHARE: f64 = 0.01;
/// Least tolerance of times, 50 µs: the 99th percentile of delays over loopback varies by as much from run to run where
/// other programs use the processors (`docs/lab/2026-11-23-replays.md`).
const TIME_NS: f64 = 50_000.0;
/// Widest interval of a figure that is equal, as a multiple of the tolerance.
const WIDEST: f64 = 5.0;
/// Tolerance of the share of lost packets.
const LOSS: f64 = 0.001;

/// Judgement on one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Agreement {
    /// No difference that the two runs can tell.
    Equal,
    /// A difference beyond interval and tolerance, or a figure that only one run has.
    Different,
    /// Too few packets for an interval, or for one that says anything.
    Unknown,
}

impl Agreement {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Unknown => "not known",
        }
    }
}

/// One figure of a flow, or of the total, judged.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// Number of the flow; `None` for the total.
    pub flow: Option<u32>,
    /// Name of the figure.
    pub metric: &'static str,
    /// The judgement.
    pub agreement: Agreement,
    /// Values and interval in words.
    pub values: String,
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.flow {
            Some(flow) => write!(f, "flow {flow}: ")?,
            None => write!(f, "total: ")?,
        }
        write!(f, "{}: {}: {}", self.metric, self.agreement.name(), self.values)
    }
}

/// Judges all figures that have intervals, of each flow and of the total. What neither run knows is left out.
#[must_use]
pub fn judge(comparison: &Comparison) -> Vec<Judgement> {
    let pairings = || comparison.flows.iter().chain([&comparison.total]);
    let judged = |pairing: &Pairing| {
        let known = |figure: &&Difference| figure.a.is_some() || figure.b.is_some();
        pairing.figures.iter().take(STATISTICS).filter(known).count()
    };
    let factor = joint_factor(pairings().map(judged).sum());
    pairings().flat_map(|pairing| of_pairing(pairing, factor)).collect()
}

fn of_pairing(pairing: &Pairing, factor: f64) -> Vec<Judgement> {
    let figures = pairing.figures.iter().take(STATISTICS);
    let judge = |figure: &Difference| {
        let (agreement, values) = match (figure.a, figure.b) {
            (None, None) => return None,
            (Some(_), Some(_)) => of_figure(figure, factor),
            (a, b) => {
                let [a, b] = cells(figure, [a, b]);
                (Agreement::Different, format!("{a}, then {b}"))
            }
        };
        Some(Judgement { flow: pairing.flow, metric: figure.metric, agreement, values })
    };
    figures.filter_map(judge).collect()
}

fn of_figure(figure: &Difference, factor: f64) -> (Agreement, String) {
    let [a, b] = cells(figure, [figure.a, figure.b]);
    let values = format!("{a}, then {b}");
    let (Some(difference), Some(interval)) = (figure.difference, figure.interval) else {
        return (Agreement::Unknown, format!("{values}: too few packets, or two clocks"));
    };
    let size = figure.a.unwrap_or(0.0).abs();
    let tolerance = match figure.unit {
        "ns" => TIME_NS.max(TIME_SHARE * size),
        "1" => LOSS,
        _ => RATE_SHARE * size,
    };
    let [low, high] = interval.map(|end| difference + factor * (end - difference));
    let wide = high - low > WIDEST * tolerance;
    let agreement = match low <= tolerance && high >= -tolerance {
        false => Agreement::Different,
        true if wide => Agreement::Unknown,
        true => Agreement::Equal,
    };
    let [a, b, low, high, tolerance] =
        cells(figure, [figure.a, figure.b, Some(low), Some(high), Some(tolerance)]);
    let values = format!("{a}, then {b}; B - A {low} to {high}, tolerance {tolerance}");
    let few = if agreement == Agreement::Unknown { ": too wide to tell" } else { "" };
    (agreement, values + few)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::Resampling;

    fn figure(metric: &'static str, unit: &'static str, a: f64, b: f64, half: f64) -> Difference {
        Difference {
            metric,
            unit,
            a: Some(a),
            b: Some(b),
            difference: Some(b - a),
            relative: None,
            interval: Some([b - a - half, b - a + half]),
            clear: Some((b - a).abs() > half),
        }
    }

    fn compared(figures: Vec<Difference>) -> Comparison {
        Comparison {
            schema: 1,
            a: String::new(),
            b: String::new(),
            resampling: Resampling::default(),
            total: Pairing { flow: None, figures, delay: None },
            flows: Vec::new(),
            only_a: Vec::new(),
            only_b: Vec::new(),
            failed: Vec::new(),
            notices: Vec::new(),
        }
    }

    #[test]
    fn a_figure_is_equal_where_its_interval_reaches_the_tolerance() {
        use Agreement::{Different, Equal, Unknown};
        for (name, mut tested, want) in [
            ("within the interval", figure("delay.mean", "ns", 1e6, 1.15e6, 2e5), Equal),
            ("within the tolerance", figure("delay.mean", "ns", 1e6, 1.1e6, 0.0), Equal),
            ("beyond both", figure("delay.mean", "ns", 1e6, 1.3e6, 1e4), Different),
            ("not sharper than the host", figure("delay.mean", "ns", 2e4, 6e4, 0.0), Equal),
            ("less is different, too", figure("delay.mean", "ns", 1e6, 7e5, 1e4), Different),
            ("a rate", figure("bitrate", "bit/s", 1e6, 1.02e6, 1e3), Different),
            ("a rate", figure("bitrate", "bit/s", 1e6, 1.009e6, 0.0), Equal),
            ("loss", figure("loss", "1", 0.0, 0.01, 0.001), Different),
            ("three packets", figure("bitrate", "bit/s", 6e5, 6e5, 9e5), Unknown),
            ("as wide as may be", figure("bitrate", "bit/s", 6e5, 6e5, 1.5e4), Equal),
            ("many times the tolerance", figure("bitrate", "bit/s", 6e5, 6e5, 1.6e4), Unknown),
            ("nothing lost of few", figure("loss", "1", 0.0, 0.0, 0.003), Unknown),
            ("a wide time", figure("delay.mean", "ns", 1e6, 1.5e6, 1.1e6), Unknown),
            (
                "wide for its size, not for the host",
                figure("delay.mean", "ns", 1e4, 1e4, 4e4),
                Equal,
            ),
            ("wide and beyond", figure("delay.mean", "ns", 1e6, 9e6, 1.1e6), Different),
            (
                "no interval",
                Difference { interval: None, ..figure("loss", "1", 0.0, 0.0, 0.0) },
                Unknown,
            ),
            (
                "one run only",
                Difference { b: None, ..figure("loss", "1", 0.0, 0.0, 0.0) },
                Different,
            ),
        ] {
            tested.clear = None;
            let mut figures = vec![tested];
            figures.resize(
                STATISTICS,
                Difference { a: None, b: None, ..figure("none", "1", 0.0, 0.0, 0.0) },
            );
            let judged = judge(&compared(figures));
            assert_eq!(judged.len(), 1, "{name}: what nobody knows is left out");
            assert_eq!(judged[0].agreement, want, "{name}: {}", judged[0]);
        }
    }

    #[test]
    fn more_figures_have_wider_intervals() {
        let tested = || figure("loss", "1", 0.0, 0.011, 0.008);
        assert_eq!(judge(&compared(vec![tested()]))[0].agreement, Agreement::Different);
        let many = judge(&compared(vec![tested(); STATISTICS]));
        let unknown = |judgement: &Judgement| judgement.agreement == Agreement::Unknown;
        assert!(many.iter().all(unknown), "{many:?}");
    }
}
