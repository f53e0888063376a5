//! Comparison of the traffic with the requested distributions: it finds a generator that draws wrongly.
//!
//! Planned inter-departure times and the sizes sent are tested: Kolmogorov distance with its confidence band,
//! chi-square for discrete sizes, the mean with its interval, and autocorrelation at small lags (see
//! [`crate::distribution_test`], [`crate::autocorrelation`]). Each is judged by its distance beyond that of chance.
//! Autocorrelation is that of the actual times, and judged only where they follow their plan.
//!
//! If the rate was changed while the flow ran (see `itg_core::rate`), and in burst mode, the distribution of
//! inter-departure times, which holds for one rate and for each packet by itself, is not compared.

use itg_core::distribution::{Distribution, Resolved};

use crate::distribution_test::{Z, band, chi_square, law_distance};
use crate::judge::{DistributionPair, Judge, RATE_LIMIT, exceeded};
use crate::quantiles::Point;
use crate::verdict::{Cause, Verdict};

/// Largest distance beyond chance that passes, and that is only warned about.
pub const LAW_LIMITS: (f64, f64) = (0.02, 0.10);
/// Largest autocorrelation of successive inter-departure times beyond chance, where the
/// distribution draws each by itself.
pub const CORRELATION_LIMIT: f64 = 0.15;
/// Largest effect (Cohen's w) of a chi-square test that passes, and that is only warned about.
const EFFECT_LIMITS: (f64, f64) = (0.1, 0.3);
/// Horizontal tolerance of inter-departure times, in means of their distribution: plans are rounded.
const TOLERANCE: f64 = 0.01;

impl Judge<'_> {
    /// Tests against the distributions in force.
    pub(crate) fn law(&mut self, pair: &DistributionPair) {
        if let Some(idt) = &pair.idt {
            self.idt_law(idt);
        }
        self.size_law(&pair.size);
    }

    fn wrong(&mut self, verdict: Verdict, reason: String) {
        self.fidelity.object(verdict, Cause::Generator, reason);
    }

    /// Tests the planned inter-departure times against their distribution.
    fn idt_law(&mut self, distribution: &Resolved) {
        let departures = self.departures;
        let (asked, wanted) = (distribution.distribution(), distribution.mean());
        let n = departures.planned.count();
        let epsilon = band(n);
        let tolerance = if wanted.is_finite() { (TOLERANCE * wanted).max(1.0) } else { 1.0 };
        let ks = law_distance(&departures.planned.points(), tolerance, |x| asked.cdf(x));
        let into = &mut self.fidelity;
        (into.idt_law_ks, into.idt_law_band) = (Some(ks), Some(epsilon));
        let sent = &departures.gap_moments;
        let width = Z * (sent.variance() / n.max(1) as f64).sqrt();
        (into.idt_mean_ns, into.idt_mean_half_width_ns) = (Some(sent.mean()), Some(width));
        into.idt_law_mean_ns = wanted.is_finite().then_some(wanted);
        let lags = departures.gaps.at_lags();
        into.idt_autocorrelation = lags.iter().any(Option::is_some).then_some(lags);
        if let Some(verdict) = exceeded(ks - epsilon, LAW_LIMITS) {
            let words = format!(
                "planned inter-departure times differ from their distribution by {ks:.3} (chance explains {epsilon:.3})"
            );
            self.wrong(verdict, words);
        }
        // The mean of few inter-departure times of a wide distribution says little, nothing where the
        // distribution has no variance, and nothing while its rare long values have not come.
        let spread = asked.variance();
        let mean = departures.mean_gap_ns().unwrap_or(0.0);
        let chance = Z * (spread.max(sent.variance()) / n.max(1) as f64).sqrt();
        let limit = RATE_LIMIT * wanted + chance + 1.0;
        let whole = spread.is_finite() && sent.variance() >= spread / 4.0;
        if whole && wanted > 0.0 && (mean - wanted).abs() > limit {
            let off = 100.0 * (mean / wanted - 1.0);
            let words = format!(
                "the mean planned inter-departure time is off the mean of its distribution by {off:+.2} %"
            );
            self.wrong(Verdict::Fail, words);
        }
        let alone = distribution.is_constant().is_none() && spread.is_finite();
        if alone && self.is_on_plan() {
            let chance = Z / (departures.gaps.pairs().max(1) as f64).sqrt();
            let worst = lags.iter().flatten().fold(0.0f64, |worst, &lag| worst.max(lag));
            if worst - chance > CORRELATION_LIMIT {
                let words = format!(
                    "successive inter-departure times are correlated by {worst:.3}: bursts"
                );
                self.wrong(Verdict::Fail, words);
            }
        }
    }

    /// Tests the sizes sent against their distribution.
    fn size_law(&mut self, distribution: &Resolved) {
        let counts = self.departures.all_sizes.list();
        let n = counts.iter().map(|&(_, count)| count).sum();
        if n == 0 {
            return;
        }
        let asked = distribution.distribution();
        let point = |&(size, count): &(u64, u64)| {
            let size = i64::try_from(size).unwrap_or(i64::MAX);
            Point { low: size, high: size, count }
        };
        let points: Vec<_> = counts.iter().map(point).collect();
        let epsilon = band(n);
        // Sizes are rounded to whole bytes, up to half a byte either way.
        let ks = law_distance(&points, 0.5, |x| asked.cdf(x));
        let into = &mut self.fidelity;
        (into.size_law_ks, into.size_law_band) = (Some(ks), Some(epsilon));
        if let Some(verdict) = exceeded(ks - epsilon, LAW_LIMITS) {
            let words = format!(
                "sizes differ from their distribution by {ks:.3} (chance explains {epsilon:.3})"
            );
            self.wrong(verdict, words);
        }
        if !is_discrete(asked) {
            return;
        }
        let range = counts.first().zip(counts.last());
        let mass = |from: u64, to: u64| {
            asked.cdf((to as f64 + 0.5).next_down()) - asked.cdf((from as f64 - 0.5).next_down())
        };
        let test = range.and_then(|(first, last)| chi_square(&counts, (first.0, last.0), mass));
        if let Some(test) = test {
            if let Some(verdict) = exceeded(test.effect, EFFECT_LIMITS) {
                let (x, degrees, w) = (test.statistic, test.degrees, test.effect);
                let words =
                    format!("sizes: chi-square {x:.1} with {degrees} degrees, effect {w:.2}");
                self.wrong(verdict, words);
            }
            self.fidelity.size_chi_square = Some(test);
        }
    }
}

/// Returns true if a distribution gives single values with probability above 0, and more than one.
fn is_discrete(distribution: &Distribution) -> bool {
    match distribution {
        Distribution::Poisson { .. } | Distribution::Discrete(_) => true,
        Distribution::Trunc { distribution, .. } => is_discrete(distribution),
        _ => false,
    }
}
