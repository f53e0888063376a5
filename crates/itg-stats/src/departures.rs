//! Departures of sampled packets from the sender's network stack, by the kernel's stamps.

use itg_core::units::format_duration_ns;
use itg_record::{DepartureTotals, Departures};
use serde::Serialize;

use crate::delay::SampleDistribution;
use crate::fidelity::{Cause, Fidelity, RESOLUTION_LIMIT, Verdict};
use crate::figures::Way;

/// Departures of a flow's packets, sampled.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct DeparturesReport {
    /// One of so many packets was sampled; 0 where the log does not say.
    pub every: u32,
    /// True if the kernel kept the times of the packets (`--pacing txtime`).
    pub held: bool,
    /// Left the network stack − planned, in nanoseconds.
    pub lateness_ns: Option<Way>,
    /// Stamps asked for; `None` when the log ends before the flow.
    pub asked: Option<u64>,
    /// Of them, those that did not come back.
    pub missing: Option<u64>,
    /// Packets that a queueing discipline dropped because their time had passed.
    pub missed: Option<u64>,
    /// Number of times that it refused a packet whose time it could not use; the packet was handed over again.
    pub invalid: Option<u64>,
}

/// Figures from the samples of a flow.
#[derive(Debug)]
pub struct Departed {
    /// What the report says of them.
    pub report: DeparturesReport,
    /// From the hand-over to the kernel to the departure.
    pub stack: SampleDistribution,
    /// Departure − planned.
    pub lateness: SampleDistribution,
}

impl Departed {
    /// Of the notes of each owner of a flow, with the start of the flow on its clock; `None` without notes,
    /// unless the log says that the kernel kept its times.
    #[must_use]
    pub fn of(owners: &[(Option<u64>, Vec<Departures>)], held: bool) -> Option<Self> {
        if owners.is_empty() && !held {
            return None;
        }
        let (mut stack, mut lateness) =
            (SampleDistribution::default(), SampleDistribution::default());
        let samples = owners.iter().flat_map(|(epoch, notes)| {
            notes.iter().flat_map(|note| &note.samples).map(move |sample| (*epoch, sample))
        });
        for (epoch, sample) in samples {
            stack.add(sample.left_after_ns);
            if let Some(epoch) = epoch {
                let left = i128::from(sample.handed_unix_ns) + i128::from(sample.left_after_ns);
                let planned = i128::from(epoch) + i128::from(sample.planned_ns);
                let late = left - planned;
                lateness.add(i64::try_from(late).unwrap_or(if late < 0 {
                    i64::MIN
                } else {
                    i64::MAX
                }));
            }
        }
        // Each owner has an account of its own; one that is missing leaves the sum unknown.
        let totals: Option<Vec<DepartureTotals>> = owners
            .iter()
            .map(|(_, notes)| notes.iter().rev().find_map(|note| note.totals))
            .collect();
        let totals = totals.filter(|totals| !totals.is_empty());
        let told = |what: fn(&DepartureTotals) -> u64| {
            totals.as_ref().map(|list| list.iter().map(what).fold(0, u64::saturating_add))
        };
        let notes = || owners.iter().flat_map(|(_, notes)| notes);
        let report = DeparturesReport {
            every: notes().last().map_or(0, |note| note.every),
            held: held || notes().any(|note| note.held),
            lateness_ns: Way::of(&lateness),
            asked: told(|totals| totals.asked),
            missing: told(|totals| totals.missing),
            missed: told(|totals| totals.missed),
            invalid: told(|totals| totals.invalid),
        };
        Some(Self { report, stack, lateness })
    }

    /// Adjusts a verdict on times that were handed to the kernel: it passes only if departures show
    /// that the kernel kept them.
    pub fn judge(&self, fidelity: &mut Fidelity) {
        let mut warnings = Vec::new();
        let of = |count: Option<u64>| count.unwrap_or(0);
        let (dropped, refused) = (of(self.report.missed), of(self.report.invalid));
        if dropped > 0 {
            let words = "packets were dropped by a queueing discipline for their time";
            warnings.push((Cause::DroppedPackets, format!("{dropped} {words}")));
        }
        if refused > 0 {
            let words = "times a packet came too late for its queueing discipline, and was handed over again";
            warnings.push((Cause::LateSender, format!("{refused} {words}")));
        }
        if self.lateness.moments().count() == 0 {
            let words =
                "no stamp says when packets left whose times the kernel was told (--tx-stamps)";
            fidelity.object(Verdict::Unresolved, Cause::Resolution, words.to_owned());
        } else if let Some(gap_ns) = fidelity.gap_ns {
            let ends = self.lateness.quantiles().at([0.01, 0.99]);
            let off_ns = ends[0].unsigned_abs().max(ends[1].unsigned_abs());
            let spread_ns = spread_ns(&self.lateness).unwrap_or(0.0);
            if off_ns as f64 > gap_ns || spread_ns > RESOLUTION_LIMIT * gap_ns {
                let off = format_duration_ns(off_ns / 1_000 * 1_000);
                let words =
                    format!("packets left up to {off} off the times that the kernel was told");
                warnings.push((Cause::LateSender, words));
            }
        }
        for (cause, words) in warnings {
            fidelity.object(Verdict::Warn, cause, words);
        }
    }

    /// Uncertainty of the time from a packet's stamp to its departure, in nanoseconds; `None` where the
    /// kernel kept the times, and with few samples.
    pub(crate) fn spread_ns(&self) -> Option<f64> {
        spread_ns(&self.stack).filter(|_| !self.report.held)
    }

    /// Notices for a reader of the figures.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        let report = &self.report;
        let mut notices = Vec::new();
        let count = self.stack.moments().count();
        if report.held {
            notices.push(match count {
                0 => "the kernel kept the times of packets, and no stamp says when they left: lateness is \
                      not known"
                    .to_owned(),
                count => format!(
                    "the kernel kept the times of packets: lateness is that of {count} packets with a \
                     stamp of their departure; gaps are those that the kernel was told"
                ),
            });
        }
        for (count, what) in [
            (report.missing, "stamps of departures did not come back"),
            (report.missed, "packets were dropped by a queueing discipline: their time had passed"),
            (
                report.invalid,
                "times a queueing discipline could not use the time of a packet, which was handed over again",
            ),
        ] {
            if let Some(count) = count.filter(|count| *count > 0) {
                notices.push(format!("{count} {what}"));
            }
        }
        notices
    }
}

/// Half of the way from the 10th to the 90th percentile: of a normal distribution 1.3 deviations, which is what
/// two values differ by on average. `None` with few values.
fn spread_ns(values: &SampleDistribution) -> Option<f64> {
    const FEW: u64 = 20;
    let [low, high] = values.quantiles().at([0.1, 0.9]);
    (values.moments().count() >= FEW).then(|| high.saturating_sub(low) as f64 / 2.0)
}
