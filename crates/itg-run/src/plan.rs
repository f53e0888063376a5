//! `itg-cluster plan FILE`: what an experiment will send and log, and which requested values cannot be met.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Args, ValueEnum};
use itg_cli::{Asked, LoadArgs, WordArgs, load_case, print};
use itg_core::seed::RunSeed;
use itg_core::units::{format_bit_rate, format_duration_ns};
use itg_experiment::sweep::{Sweep, run_seed};
use itg_stats::summary::ROWS;
use serde_json::{Value, json};

use crate::sweep;

/// Arguments of `plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// The experiment.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Form of the answer
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Form of the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table
    Text,
    /// One JSON object; keys carry their units, what is unlimited is null
    Json,
}

/// Prints the plan on stdout.
///
/// # Errors
/// The request makes no sense.
pub fn run(args: &PlanArgs, words: WordArgs) -> Result<ExitCode> {
    let answer = match (itg_cli::load_any(&args.load)?, args.format) {
        (Asked::One(loaded), Format::Text) => {
            loaded.plan.render_rows(if words.verbose > 0 { usize::MAX } else { ROWS })
        }
        (Asked::One(loaded), Format::Json) => loaded.plan.to_json() + "\n",
        (Asked::Sweep(sweep, _), format) => {
            let plan = SweepPlan::of(&args.load, &sweep)?;
            match format {
                Format::Text => plan.text(&sweep),
                Format::Json => format!("{:#}\n", plan.json(&sweep)),
            }
        }
    };
    print(&answer)?;
    Ok(ExitCode::SUCCESS)
}

/// Plans of the cases of a sweep.
struct SweepPlan {
    seed: Option<RunSeed>,
    cases: Vec<CasePlan>,
}

/// One run of a case: the first repetition; the others differ in their random draws alone.
struct CasePlan {
    flows: usize,
    packets: f64,
    bit_rate: f64,
    log_bytes: f64,
    end_ns: f64,
    warnings: Vec<String>,
}

impl SweepPlan {
    fn of(args: &LoadArgs, sweep: &Sweep) -> Result<Self> {
        sweep::figures(sweep)?;
        let seed = args.seed.map(|seed| seed.0).or(sweep.seed);
        let cases = sweep.cases.iter().map(|case| {
            // Without a seed one is drawn for the run; the estimate is that of seed 0.
            let seed = run_seed(seed.unwrap_or(RunSeed(0)), case, 1);
            let plan = load_case(args, case, seed)?.plan;
            let estimate = plan.estimate();
            let total = estimate.total;
            Ok(CasePlan {
                flows: plan.flows.len(),
                packets: total.packets,
                bit_rate: total.bit_rate,
                log_bytes: total.log_bytes,
                end_ns: total.end_ns,
                warnings: estimate.warnings,
            })
        });
        Ok(Self { seed, cases: cases.collect::<Result<_>>()? })
    }

    /// Sum over all runs, when each case is run so often.
    fn total(&self, repetitions: u32, of: impl Fn(&CasePlan) -> f64) -> f64 {
        self.cases.iter().map(of).sum::<f64>() * f64::from(repetitions)
    }

    fn text(&self, sweep: &Sweep) -> String {
        let (least, most) = sweep.repetitions();
        let mut text = format!("Sweep: {}\n", sweep.name);
        let width = sweep.cases.iter().map(|case| case.label.chars().count()).max().unwrap_or(0);
        let width = width.max(4);
        text += &format!(
            "{:<width$}  {:>6}  {:>10}  {:>12}  {:>10}  {:>10}\n",
            "case", "flows", "packets", "bit rate", "log", "lasts"
        );
        for (case, plan) in sweep.cases.iter().zip(&self.cases) {
            text += &format!(
                "{:<width$}  {:>6}  {:>10}  {:>12}  {:>10}  {:>10}\n",
                case.label,
                plan.flows,
                finite(plan.packets, |packets| format!("{packets:.0}")),
                finite(plan.bit_rate, format_bit_rate),
                finite(plan.log_bytes, bytes),
                finite(plan.end_ns, time),
            );
        }
        let cases = sweep.cases.len();
        let runs = |repetitions: u32| cases as u64 * u64::from(repetitions);
        let range = |least: String, most: String| {
            if least == most { least } else { format!("{least} to {most}") }
        };
        let each = range(least.to_string(), most.to_string());
        let all = range(runs(least).to_string(), runs(most).to_string());
        text += &format!("\n{cases} cases, {each} runs of each: {all} runs");
        if let Some(rule) = &sweep.settings.repeat_until {
            text += &format!(", until {rule}");
        }
        let sums = |of: fn(&CasePlan) -> f64, words: fn(f64) -> String| {
            range(finite(self.total(least, of), words), finite(self.total(most, of), words))
        };
        let (lasts, logs) = (sums(|plan| plan.end_ns, time), sums(|plan| plan.log_bytes, bytes));
        text += &format!(
            "\ntraffic lasts {lasts} in all (start and end of each run not counted), logs take {logs}\n"
        );
        if let Some(most) = sweep.settings.max_time {
            text += &format!("no run begins after {}\n", format_duration_ns(most.0));
        }
        let order = if sweep.settings.in_order { "that of the file" } else { "random" };
        text += &match self.seed {
            Some(seed) => format!("order of the cases of a round: {order}; seed {seed}\n"),
            None => format!("order of the cases of a round: {order}; the seed will be drawn\n"),
        };
        for (case, plan) in sweep.cases.iter().zip(&self.cases) {
            for warning in &plan.warnings {
                text += &format!("warning: {}: {warning}\n", case.label);
            }
        }
        text
    }

    fn json(&self, sweep: &Sweep) -> Value {
        let (least, most) = sweep.repetitions();
        let known = |value: f64| value.is_finite().then_some(value);
        let cases = sweep.cases.iter().zip(&self.cases).map(|(case, plan)| {
            json!({
                "case": case.label, "values": case.values, "flows": plan.flows,
                "packets": known(plan.packets), "bit_rate_bps": known(plan.bit_rate),
                "log_bytes": known(plan.log_bytes), "end_ns": known(plan.end_ns),
                "warnings": plan.warnings,
            })
        });
        let cases: Vec<Value> = cases.collect();
        let total = |of: fn(&CasePlan) -> f64| {
            json!([known(self.total(least, of)), known(self.total(most, of))])
        };
        json!({
            "schema": 1, "name": sweep.name, "seed": self.seed.map(|seed| seed.0), "cases": cases,
            "repetitions": [least, most], "repeat_until": sweep.settings.repeat_until,
            "max_time_ns": sweep.settings.max_time.map(|time| time.0),
            "traffic_ns": total(|plan| plan.end_ns), "log_bytes": total(|plan| plan.log_bytes),
        })
    }
}

fn finite(value: f64, words: impl Fn(f64) -> String) -> String {
    if value.is_finite() { words(value) } else { "unlimited".to_owned() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "positive; saturates")]
fn time(ns: f64) -> String {
    // To the second where milliseconds would only be in the way.
    let grain = if ns < 60e9 { 1_000_000 } else { 1_000_000_000 };
    format_duration_ns((ns / grain as f64).round() as u64 * grain)
}

fn bytes(bytes: f64) -> String {
    format!("{:.1} MB", bytes / 1e6)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_estimate_knows_the_length_of_a_record() {
        assert_eq!(itg_experiment::LOG_BYTES_PER_RECORD as usize, itg_record::RECORD_LEN);
    }
}
