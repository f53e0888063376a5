//! Data of plots: bounded, mergeable, and gathered in the one pass over the records.
//!
//! A [`Trace`] goes along with each flow: bins of time that double in width ([`bins`]), each with
//! its packets, bytes, delays by size and loss. After the pass [`Plots`] holds the curves of the
//! total and of the flows that look worst, shortened to what a page can show ([`curve`]).
//! Distributions come from the histograms that the metrics are computed from.
//!
//! Memory: at most [`MOST_BINS`] bins a flow, fewer when there are many flows, [`BINS_IN_ALL`] in
//! all (but at least [`LEAST_BINS`] each).

pub mod bins;
pub mod curve;
pub mod trace;

use itg_core::flow::FlowSpec;

use crate::losses::Holes;
use crate::plot::bins::TimeBins;
use crate::plot::curve::{magnitudes, quantiles, thin};
use crate::plot::trace::{Cell, Trace};
use crate::quantiles::{Point, Quantiles};
use crate::report::Metrics;
use crate::stats::{Facts, FlowStats};

/// Most bins of time for each flow.
pub const MOST_BINS: usize = 512;
/// Fewest bins of time for each flow.
pub const LEAST_BINS: usize = 32;
/// Bins of all flows together.
pub const BINS_IN_ALL: usize = 32_768;
/// Cells of a loss raster.
pub const RASTER_CELLS: u64 = 4_096;
/// Most rows of the map of losses over flows.
pub const LOSS_ROWS: usize = 64;
/// Steps of asked-against-actual quantiles.
pub const STEPS: u64 = 200;
/// Values that differ by less than this part of them, or by 1, are one value: histograms and whole numbers round.
const ONE_VALUE: i64 = 200;

/// Bins for each of `flows` flows.
#[must_use]
pub fn bins_each(flows: usize) -> usize {
    (BINS_IN_ALL / flows.max(1)).clamp(LEAST_BINS, MOST_BINS)
}

/// Everything to draw.
#[derive(Clone, Debug, PartialEq)]
pub struct Plots {
    /// All flows together, as the total counts them.
    pub total: Curves,
    /// The flows that are drawn one by one, in the order of the report.
    pub flows: Vec<FlowPlots>,
    /// Losses of the flows that lost most over the bins of the total; empty without loss.
    pub losses: Vec<LossRow>,
    /// Description of each flow of the report, where it is known.
    pub specs: Vec<Option<FlowSpec>>,
}

/// Course and distributions.
#[derive(Clone, Debug, PartialEq)]
pub struct Curves {
    /// The course over time. `window.lost` is exact here: a lost packet counts where the first one
    /// with a larger number arrived, or in the last bin.
    pub bins: TimeBins<Cell>,
    /// False where it is not known which packets were lost: then the bins have none.
    pub losses_known: bool,
    /// Delay that counts as 0 in the delay map, in nanoseconds.
    pub origin_ns: i64,
    /// Delays in nanoseconds, ascending.
    pub delay: Vec<Point>,
    /// Median and 99th percentile of the delays in nanoseconds, as in the report.
    pub delay_marks: [i64; 2],
    /// |Dᵢ − Dᵢ₋₁| in nanoseconds, ascending.
    pub jitter: Vec<Point>,
    /// Lateness in nanoseconds, ascending.
    pub lateness: Vec<Point>,
}

/// One flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowPlots {
    /// Its place in the list of flows of the report.
    pub place: usize,
    /// Course and distributions.
    pub curves: Curves,
    /// Raster of the lost packets; `None` where they are not known, or nothing was sent.
    pub raster: Option<Raster>,
    /// Inter-departure times, requested and actual, in nanoseconds.
    pub gaps: Option<Pair>,
    /// Sizes of packets, requested and actual, in bytes.
    pub sizes: Option<Pair>,
}

/// Quantiles at equal shares from 0 to 1, at most [`STEPS`] + 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Values as planned.
    pub asked: Vec<i64>,
    /// Values as sent.
    pub actual: Vec<i64>,
    /// Distances of the actual values from the one that was asked for, where it is one.
    pub errors: Option<Errors>,
}

/// Actual values less the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors {
    /// The value.
    pub asked: i64,
    /// The differences, ascending.
    pub points: Vec<Point>,
}

impl Errors {
    /// The differences, where what was asked for is one value but for rounding.
    fn of(asked: &[Point], actual: &[Point]) -> Option<Self> {
        let (low, high) = (asked.first()?.low, asked.last()?.high);
        if low <= 0 || high.saturating_sub(low) > 1 + low / ONE_VALUE {
            return None;
        }
        let error = |point: &Point| Point {
            low: point.low.saturating_sub(high),
            high: point.high.saturating_sub(low),
            count: point.count,
        };
        let points = thin(&actual.iter().map(error).collect::<Vec<_>>());
        Some(Self { asked: low + (high - low) / 2, points })
    }
}

/// Lost packets by sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Raster {
    /// Sequence numbers in each cell; the first cell begins with number 0.
    pub numbers: u64,
    /// Lost packets in each cell, at most [`RASTER_CELLS`].
    pub lost: Vec<u64>,
    /// Numbers that the last cell stands for.
    pub in_last: u64,
}

/// Losses of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct LossRow {
    /// Its place in the list of flows of the report.
    pub place: usize,
    /// Lost and arrived packets in each bin of the total.
    pub cells: Vec<(u64, u64)>,
}

/// A flow whose records have been added up.
pub(crate) struct Subject<'a> {
    pub(crate) place: usize,
    pub(crate) stats: &'a FlowStats,
    pub(crate) facts: Facts<'a>,
    pub(crate) metrics: &'a Metrics,
}

impl Plots {
    /// The plots of the flows that the total counts; `most` of them are drawn one by one, the worst
    /// first to be chosen: by verdict, loss, and 99th percentile of the delay.
    pub(crate) fn draw(
        subjects: &[Subject<'_>],
        most: usize,
        specs: Vec<Option<FlowSpec>>,
    ) -> Self {
        let mut total = TimeBins::new(MOST_BINS);
        let [mut delay, mut jitter, mut lateness] = [(); 3].map(|()| Quantiles::default());
        let mut origin_ns = 0;
        for subject in subjects {
            if let Some(trace) = subject.stats.trace() {
                total.merge(trace.bins());
                origin_ns = trace.setup().origin_ns;
            }
            delay.merge(subject.stats.delay().values());
            jitter.merge(subject.stats.delay().variation());
            lateness.merge(subject.stats.departures(&subject.facts).lateness().quantiles());
        }
        let mut rows = Vec::new();
        let mut losses_known = true;
        for subject in subjects {
            let Some(trace) = subject.stats.trace() else {
                // What is lost of a flow of which nothing arrived has no time.
                losses_known &= subject.metrics.lost == Some(0);
                continue;
            };
            let Some(row) = loss_row(subject, trace, &total) else {
                losses_known = false;
                continue;
            };
            if row.iter().any(|&(lost, _)| lost > 0) {
                for (sum, (more, _)) in total.cells_mut().zip(&row) {
                    sum.window.lost = sum.window.lost.saturating_add(*more);
                }
                rows.push(LossRow { place: subject.place, cells: row });
            }
        }
        if !losses_known {
            total.cells_mut().for_each(|cell| cell.window.lost = 0);
        }
        let sum = |row: &LossRow| row.cells.iter().map(|cell| cell.0).sum::<u64>();
        rows.sort_by_key(|row| std::cmp::Reverse(sum(row)));
        rows.truncate(LOSS_ROWS);
        rows.sort_by_key(|row| row.place);
        let curves = Curves {
            bins: total,
            losses_known,
            origin_ns,
            delay: thin(&delay.points()),
            delay_marks: delay.at([0.5, 0.99]),
            jitter: thin(&magnitudes(&jitter.points())),
            lateness: thin(&lateness.points()),
        };
        // Where nothing has arrived there is nothing to draw.
        let mut worst: Vec<&Subject<'_>> =
            subjects.iter().filter(|subject| subject.stats.trace().is_some()).collect();
        worst.sort_by(|a, b| badness(b.metrics).total_cmp(&badness(a.metrics)));
        worst.truncate(most);
        worst.sort_by_key(|subject| subject.place);
        let flows = worst.into_iter().filter_map(FlowPlots::of).collect();
        Self { total: curves, flows, losses: rows, specs }
    }
}

/// Worse verdicts weigh more than any loss, and loss more than any delay.
fn badness(metrics: &Metrics) -> f64 {
    let verdict = f64::from(metrics.fidelity.verdict as u8);
    let loss = metrics.loss_share().unwrap_or(0.0).clamp(0.0, 1.0);
    let delay = metrics.delay_ns.map_or(0.0, |delay| delay.p99.max(0) as f64);
    verdict * 10.0 + loss * 5.0 + delay / (delay + 1e9)
}

impl FlowPlots {
    fn of(subject: &Subject<'_>) -> Option<Self> {
        let Subject { place, stats, ref facts, .. } = *subject;
        let trace = stats.trace()?;
        let departures = stats.departures(facts);
        let (asked, actual) = departures.gaps();
        let gaps = pair(&asked.points(), &actual.points());
        let sender = facts.peer.and_then(FlowStats::trace);
        let sized = [Some(trace), sender].into_iter().flatten();
        let sizes = sized
            .filter_map(|trace| {
                let (asked, actual) = trace.sizes();
                pair(&asked.points(), &actual.points())
            })
            .next_back();
        let holes = Holes::of(stats, facts).ok();
        let curves = Curves {
            bins: counted(trace.bins(), holes.as_ref()),
            losses_known: holes.is_some(),
            origin_ns: trace.setup().origin_ns,
            delay: thin(&stats.delay().values().points()),
            delay_marks: stats.delay().values().at([0.5, 0.99]),
            jitter: thin(&magnitudes(&stats.delay().variation().points())),
            lateness: thin(&departures.lateness().quantiles().points()),
        };
        Some(Self { place, curves, raster: holes.as_ref().and_then(Raster::of), gaps, sizes })
    }
}

fn pair(asked: &[Point], actual: &[Point]) -> Option<Pair> {
    let count = asked.iter().map(|point| point.count).sum::<u64>();
    let steps = STEPS.min(count.saturating_sub(1)).max(1);
    let pair = Pair {
        asked: quantiles(asked, steps),
        actual: quantiles(actual, steps),
        errors: Errors::of(asked, actual),
    };
    (!pair.asked.is_empty() && !pair.actual.is_empty()).then_some(pair)
}

/// Largest sequence number in each bin.
fn reaches(bins: &TimeBins<Cell>) -> impl Iterator<Item = Option<u64>> {
    bins.cells().map(|cell| cell.window.seq_max)
}

/// The bins with their exact losses, none where these are not known.
fn counted(bins: &TimeBins<Cell>, holes: Option<&Holes>) -> TimeBins<Cell> {
    let mut bins = bins.clone();
    let lost =
        holes.map_or_else(|| vec![0; bins.cells().len()], |holes| holes.over(reaches(&bins)));
    for (cell, lost) in bins.cells_mut().zip(lost) {
        cell.window.lost = lost;
    }
    bins
}

/// Lost and arrived packets of one flow in the bins of the total; `None` where it is not known which were lost.
fn loss_row(
    subject: &Subject<'_>,
    trace: &Trace,
    total: &TimeBins<Cell>,
) -> Option<Vec<(u64, u64)>> {
    let holes = Holes::of(subject.stats, &subject.facts).ok()?;
    let mut row = vec![(0, 0); total.cells().len()];
    let mut bins = trace.bins().clone();
    bins.widen(total.bin_ns());
    let (Some(own), Some(start)) = (bins.start_unix_ns(), total.start_unix_ns()) else {
        return Some(row);
    };
    let skip = usize::try_from(own.saturating_sub(start) / total.bin_ns()).unwrap_or(usize::MAX);
    let lost = holes.over(reaches(&bins));
    for (place, (cell, lost)) in row.iter_mut().skip(skip).zip(bins.cells().zip(lost)) {
        *place = (lost, cell.window.packets);
    }
    Some(row)
}

impl Raster {
    fn of(holes: &Holes) -> Option<Self> {
        let end = holes.end;
        let numbers = end.div_ceil(RASTER_CELLS).max(1).checked_next_power_of_two()?;
        let cells = usize::try_from(end.div_ceil(numbers)).ok()?;
        let mut lost = vec![0u64; cells];
        for hole in &holes.runs {
            let (first, last) = (hole.first / numbers, hole.last / numbers);
            for cell in first..=last.min(cells as u64 - 1) {
                let from = hole.first.max(cell * numbers);
                let until = hole.last.min(cell * numbers + (numbers - 1));
                // Below the number of cells, see above.
                lost[usize::try_from(cell).unwrap_or(0)] += until - from + 1;
            }
        }
        let in_last = end - (cells as u64 - 1) * numbers;
        Some(Self { numbers, lost, in_last })
    }
}
