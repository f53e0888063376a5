//! The bound of the clock offset, tried by somebody who wants to fool the estimate.
//!
//! A seeded generator draws two clocks, the path between them and the probes that a sender makes; the product's own
//! estimate is compared with the truth, and with the least that anybody could say (`best.rs`).

mod best;
mod judge;
mod kinds;
mod random;
mod world;

use anyhow::{Result, ensure};
use clap::Args;
use itg_trials::{Claim, Estimate, Lines, print, share, with_interval};

use crate::judge::{Basis, judge};
use crate::kinds::KINDS;

/// Share of cases whose truth is to be within the bound.
const COVERAGE: f64 = 0.999;
/// Median of bound / best bound, at most.
const RATIO: f64 = 1.5;

/// Options of `clock`.
#[derive(Debug, Args)]
pub struct Options {
    /// Cases, in equal parts of each kind
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    cases: u64,
    /// Seed of the cases
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Names the cases whose truth is outside the bound
    #[arg(long)]
    violations: bool,
}

/// Findings on the cases of a kind, or of all.
#[derive(Debug, Default)]
struct Tally {
    cases: u64,
    held: u64,
    relative: u64,
    unknown: u64,
    ratios: Vec<f64>,
    /// Cases with a step that is in no probe, and of these, those within the bound.
    unseen: (u64, u64),
}

impl Tally {
    /// The cases of a kind; `told` hears of violations.
    fn of(kind: &str, seed: u64, cases: u64, mut told: impl FnMut(String)) -> Self {
        let mut tally = Self::default();
        for case in 0..cases {
            let judged = judge(kind, seed, case);
            let held = judged.held();
            if judged.unseen {
                tally.unseen.0 += 1;
                tally.unseen.1 += u64::from(held);
                continue;
            }
            tally.cases += 1;
            tally.held += u64::from(held);
            tally.relative += u64::from(judged.basis == Basis::Relative);
            tally.unknown += u64::from(judged.basis == Basis::Unknown);
            tally.ratios.extend(judged.ratio);
            if let Some((at, error, bound)) = judged.worst.or(judged.worst_packet) {
                told(format!(
                    "{kind}, case {case}: at {:.1} % of the run off by {error:.0} ns, bound {bound:.0} ns",
                    100.0 * at
                ));
            }
        }
        tally
    }

    fn add(&mut self, other: &Self) {
        self.cases += other.cases;
        self.held += other.held;
        self.relative += other.relative;
        self.unknown += other.unknown;
        self.ratios.extend(&other.ratios);
        self.unseen.0 += other.unseen.0;
        self.unseen.1 += other.unseen.1;
    }

    fn row(&self, name: &str) -> [String; 7] {
        let percent = |count: u64, all: u64| match all {
            0 => "–".to_owned(),
            all => format!("{count} of {all}: {} %", share(count, all)),
        };
        let median = match self.ratios.len() {
            0 => "–".to_owned(),
            _ => with_interval(Estimate::of(&self.ratios), 3),
        };
        let tail = self.tail().map_or_else(|| "–".to_owned(), |tail| format!("{tail:.2}"));
        [
            name.to_owned(),
            percent(self.held, self.cases),
            percent(self.relative, self.cases),
            self.unknown.to_string(),
            median,
            tail,
            percent(self.unseen.1, self.unseen.0),
        ]
    }

    /// 95th percentile of bound / best bound.
    fn tail(&self) -> Option<f64> {
        let mut sorted = self.ratios.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get((sorted.len() * 95).div_ceil(100).saturating_sub(1)).copied()
    }

    fn covers(&self) -> bool {
        self.held as f64 >= COVERAGE * self.cases as f64
    }
}

/// Tries the bound on made cases, and prints how often it holds and how near it is to the best one.
///
/// # Errors
///
/// If there are fewer cases than kinds.
pub fn run(args: &Options) -> Result<()> {
    let kinds = KINDS.len() as u64;
    ensure!(args.cases >= kinds, "at least {kinds} cases: there are so many kinds");
    let mut lines = Lines::new([
        "kind",
        "within the bound",
        "basis relative",
        "no estimate",
        "bound / best: median",
        "95 %",
        "with unseen steps: within the bound",
    ]);
    let mut all = Tally::default();
    let mut violations = Vec::new();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let cases = args.cases / kinds + u64::from((number as u64) < args.cases % kinds);
        let tally = Tally::of(kind, args.seed, cases, |violation| violations.push(violation));
        lines.row(tally.row(kind));
        all.add(&tally);
    }
    lines.row(all.row("all"));
    print(format_args!("{lines}\n"));
    if args.violations {
        violations.iter().for_each(print);
    }
    let covered = share(all.held, all.cases);
    let words = format!(
        "truth within the bound, where probes show the steps: {} of {}, {covered} %",
        all.held, all.cases
    );
    print(Claim::new(all.covers(), &format!("{words}, {} % asked for", 100.0 * COVERAGE)));
    let median = Estimate::of(&all.ratios);
    let words = format!("bound / best bound: median {}", with_interval(median, 3));
    print(Claim::new(median.mid <= RATIO, &format!("{words}, at most {RATIO} asked for")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_truth_is_within_the_bound_whatever_is_done_to_the_probes() {
        let mut all = Tally::default();
        let mut violations = Vec::new();
        for kind in KINDS {
            all.add(&Tally::of(kind, 1, 30, |violation| violations.push(violation)));
        }
        assert!(all.cases > 250 && all.covers(), "{violations:?}");
        assert!(Estimate::of(&all.ratios).mid <= RATIO, "{:?}", Estimate::of(&all.ratios));
        assert!(50 * all.unknown <= all.cases, "{} without an estimate", all.unknown);
    }

    #[test]
    fn a_case_follows_from_its_seed() {
        for kind in KINDS {
            let ratio = || judge(kind, 5, 3).ratio;
            assert_eq!(ratio(), ratio(), "{kind}");
        }
    }
}
