//! Accuracy of inter-departure times: mean rate, error of each one, distribution, and processor
//! time.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use itg_core::distribution::Unit;
use itg_core::flow::{Flow, FlowSpec};
use itg_core::seed::RunSeed;
use itg_trials::{Estimate, Lines, order, print, with_interval};

use super::bars::Book;
use super::options::PeersArgs;
use super::tools::{Distribution, Load, SEED, Stage, Tool, distribution_of, ready};
use super::trial::{present, progress};
use crate::gaps::{GapFigures, distance};
use crate::observer;
use crate::programs::memory;

/// Payload bytes.
const SIZE: usize = 64;
/// Parts of a run at its start and its end that are not judged: starting, warming up, hanging up.
const START: f64 = 0.1;
const END: f64 = 0.02;
/// Bars: relative error of the rate; error of inter-departure times at p99 over the best peer's;
/// processor time over that of a spinning peer.
const RATE_BAR: f64 = 1e-4;
const P99_BAR: f64 = 1.2;
const CPU_BAR: f64 = 0.15;
/// Largest error of the mean rate of a peer with which gaps are compared.
const RATE_OF_PEERS: f64 = 0.01;
const NOT_COMPARED: &str = "NOT MEASURED: no peer that sends at this rate";
/// Rate at which the bar on processor time holds.
const CPU_RATE: u32 = 1_000;
/// Quantile of the Kolmogorov distribution at 95 %.
const CRITICAL: f64 = 1.358;

/// Returns the distributions of these names.
pub(super) fn laws(names: &[String]) -> Result<Vec<Distribution>> {
    let known = [
        Distribution::Constant,
        Distribution::Exponential,
        Distribution::Pareto,
        Distribution::Uniform,
    ];
    names
        .iter()
        .map(|name| match known.iter().find(|distribution| distribution.name() == name) {
            Some(distribution) => Ok(*distribution),
            None => bail!("no distribution `{name}`: constant, exponential, pareto or uniform"),
        })
        .collect()
}

pub(super) fn run(
    args: &PeersArgs,
    stage: &Stage,
    laws: &[Distribution],
    book: &mut Book,
) -> Result<()> {
    let tools = present(&[
        Tool::Ditg,
        Tool::DitgPoll,
        Tool::Mgen,
        Tool::MgenPrecise,
        Tool::Iperf,
        Tool::Sockperf,
        Tool::RawSpin,
        Tool::Itg,
        Tool::ItgRealtime,
        Tool::ItgSpin,
    ]);
    if let Err(why) = observer::may_capture() {
        print(format_args!(
            "NOT MEASURED: gaps: they are taken from the kernel's stamps of departing packets, and capturing \
             those is refused ({why}): run itg-bench as root, or give it CAP_NET_RAW \
             (setcap cap_net_raw+ep)"
        ));
        return Ok(());
    }
    for &distribution in laws {
        let tools: Vec<_> = tools.iter().copied().filter(|tool| tool.knows(distribution)).collect();
        for &rate in &args.rates {
            if args.quick && ![1_000, 10_000].contains(&rate) {
                continue;
            }
            one(args, stage, distribution, rate, &tools, book)?;
        }
    }
    Ok(())
}

/// Observation of a trial.
#[derive(Clone, Copy, Debug)]
struct Trial {
    seen: GapFigures,
    /// Distance of the observed distribution of inter-departure times from the requested one.
    distance: f64,
    gaps: usize,
    /// Time that the host took away from all processors meanwhile, per wall time.
    stolen: f64,
}

fn one(
    args: &PeersArgs,
    stage: &Stage,
    distribution: Distribution,
    rate: u32,
    tools: &[Tool],
    book: &mut Book,
) -> Result<()> {
    let seconds = args.seconds(4).max(2);
    let table = format!("gaps, {}, {rate} packets/s", distribution.name());
    let mut trials = vec![Vec::new(); tools.len()];
    for round in 0..args.runs() {
        progress(&table, round, args.runs());
        for place in order(tools.len(), round) {
            let trial = observed(tools[place], distribution, rate, seconds, stage)
                .with_context(|| format!("{}, {table}", tools[place].name()))?;
            trials[place].push(trial);
        }
    }
    let exact = distribution == Distribution::Constant;
    let mut lines = Lines::new([
        "",
        "mean rate error %",
        "gap error p50 µs",
        "p99 µs",
        "distance from the distribution",
        "CPU s a second",
        "stolen of all, s a second",
    ]);
    let mut medians: BTreeMap<usize, Medians> = BTreeMap::new();
    for (place, tool) in tools.iter().enumerate() {
        let mut of = |figure, value: fn(&Trial) -> f64| {
            let values: Vec<_> = trials[place].iter().map(value).collect();
            book.figure(&table, tool.name(), figure, &values)
        };
        let rate_error = of("mean rate error", |trial| trial.seen.rate_error);
        let p50 = of("gap error p50 us", |trial| trial.seen.gap_p50_us);
        let p99 = of("gap error p99 us", |trial| trial.seen.gap_p99_us);
        let distance = of("distance", |trial| trial.distance);
        let cpu = of("processor", |trial| trial.seen.cpu);
        let stolen = of("stolen", |trial| trial.stolen);
        // Where inter-departure times are random, only ours are known beforehand.
        let planned = exact || tool.is_ours();
        let known = |estimate: Estimate, digits| {
            if planned { with_interval(estimate, digits) } else { "-".to_owned() }
        };
        lines.row([
            tool.name().to_owned(),
            with_interval(rate_error.map(|error| 100.0 * error), 4),
            known(p50, 2),
            known(p99, 2),
            if exact { "-".to_owned() } else { with_interval(distance, 4) },
            with_interval(cpu, 3),
            with_interval(stolen, 3),
        ]);
        let [rate_error, p50, p99, distance, cpu] =
            [rate_error, p50, p99, distance, cpu].map(|estimate| estimate.mid);
        medians.insert(place, Medians { rate_error, p50, p99, distance, cpu });
    }
    print(format_args!("\n{table}, {seconds} s, {} trials in turns\n\n{lines}\n", args.runs()));
    let count = trials.iter().flatten().map(|trial| trial.gaps).min().unwrap_or(0);
    let critical = CRITICAL / (count.max(1) as f64).sqrt();
    let case = Case { table, exact, critical, at_cpu_rate: rate == CPU_RATE };
    case.judge(tools, &medians, book);
    print("");
    Ok(())
}

/// Medians of a tool.
#[derive(Clone, Copy)]
struct Medians {
    rate_error: f64,
    p50: f64,
    p99: f64,
    distance: f64,
    cpu: f64,
}

/// A distribution and rate, measured.
struct Case {
    table: String,
    /// Inter-departure times are constant.
    exact: bool,
    /// Distance that cannot be told from the distribution.
    critical: f64,
    /// Processor time is compared at this rate.
    at_cpu_rate: bool,
}

impl Case {
    /// Holds ours against the bars and the best of the others.
    fn judge(&self, tools: &[Tool], medians: &BTreeMap<usize, Medians>, book: &mut Book) {
        let Self { table, exact, critical, at_cpu_rate } = self;
        // One that sends at another rate is no yardstick for even gaps; random ones have another rate by chance.
        let near = if *exact { RATE_OF_PEERS } else { f64::INFINITY };
        let best = |value: fn(&Medians) -> f64| {
            let theirs = medians
                .iter()
                .filter(|(place, all)| tools[**place].is_peer() && all.rate_error.abs() < near);
            theirs.map(|(_, all)| value(all)).min_by(f64::total_cmp)
        };
        let spinning = medians
            .iter()
            .filter(|(place, _)| {
                matches!(tools[**place], Tool::DitgPoll | Tool::MgenPrecise | Tool::Sockperf)
            })
            .map(|(_, all)| all.cpu)
            .fold(0.0, f64::max);
        let ours = medians.iter().filter(|(place, _)| tools[**place].is_ours());
        for (&place, &Medians { rate_error, p50, p99, distance, cpu }) in ours {
            let name = tools[place].name();
            book.bar(
                rate_error.abs() < RATE_BAR,
                format!(
                    "{table}, {name}: mean rate error below 0.01 %: {:.4} %",
                    100.0 * rate_error
                ),
            );
            if *exact {
                let what = |figure, ours: f64, theirs: f64| {
                    format!(
                        "{table}, {name}: gap error {figure} {ours:.2} µs, best peer {theirs:.2}"
                    )
                };
                match (best(|all| all.p50), best(|all| all.p99)) {
                    (Some(best_p50), Some(best_p99)) => {
                        // A tie at the resolution of the table is one.
                        book.bar(p50 <= best_p50 + 0.005, what("p50", p50, best_p50));
                        book.bar(p99 <= P99_BAR * best_p99, what("p99", p99, best_p99));
                    }
                    _ => print(format_args!("{NOT_COMPARED}: {table}, {name}")),
                }
                let raw = medians.iter().find(|(place, _)| tools[**place] == Tool::RawSpin);
                if let Some((_, raw)) = raw {
                    print(format_args!(
                        "{table}, {name}: gap error p99 {:.2} x that of a raw loop that spins",
                        p99 / raw.p99
                    ));
                }
            } else {
                let best = best(|all| all.distance).unwrap_or(0.0);
                let what = format!(
                    "{table}, {name}: distance {distance:.4}, best peer {best:.4}; {critical:.4} cannot be \
                     told from the distribution at 95 %"
                );
                book.bar(distance <= best.max(*critical), what);
            }
            if *exact && *at_cpu_rate && spinning > 0.0 && tools[place] != Tool::ItgSpin {
                let share = cpu / spinning;
                let what = format!(
                    "{table}, {name}: {:.1} % of a spinning peer's processor time",
                    100.0 * share
                );
                book.bar(share <= CPU_BAR, what);
            }
        }
    }
}

/// Runs one trial under the eyes of a capture.
fn observed(
    tool: Tool,
    distribution: Distribution,
    rate: u32,
    seconds: u64,
    stage: &Stage,
) -> Result<Trial> {
    let a_second = f64::from(rate);
    let load =
        Load { rate: Some(a_second), distribution, size: SIZE, seconds, flows: 1, tcp: false };
    let logs = tempfile::Builder::new().prefix("itg-bench-").tempdir_in(memory())?;
    let ready = ready(tool, &load, stage, logs.path())?;
    let observer = observer::departures(&stage.sender, ready.data)?;
    let (began, stolen_before) = (Instant::now(), observer::stolen()?);
    let sent = ready.send(&load, stage);
    let stolen = (observer::stolen()? - stolen_before) / began.elapsed().as_secs_f64();
    let stamps = observer.stop()?;
    let cpu = sent?.cpu.as_secs_f64() / seconds as f64;
    ready.end()?;
    ensure!(stamps.len() > 20, "only {} packets were seen", stamps.len());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
    let part = |share: f64| (stamps.len() as f64 * share) as usize;
    let judged = part(START)..stamps.len() - part(END);
    let seen = if tool.is_ours() && distribution != Distribution::Constant {
        let plan = plan(distribution, a_second, stamps.len())?;
        GapFigures::of_plan(&stamps[judged.clone()], &plan[judged.clone()])
    } else {
        GapFigures::of_rate(&stamps[judged.clone()], a_second)
    };
    let mut gaps: Vec<_> = stamps[judged]
        .windows(2)
        .map(|pair| pair[1].saturating_sub(pair[0]) as f64 * a_second / 1e9)
        .collect();
    let count = gaps.len();
    let distance = distance(&mut gaps, |x| distribution.cumulative(x));
    Ok(Trial { seen: GapFigures { cpu, ..seen }, distance, gaps: count, stolen })
}

/// Instants at which our packets are due, in nanoseconds after the start.
fn plan(distribution: Distribution, rate: f64, packets: usize) -> Result<Vec<f64>> {
    let mut spec = FlowSpec::new(1);
    spec.idt = itg_core::distribution::Distribution::parse(
        &distribution_of(distribution, 1e9 / rate),
        Unit::Time,
    )?;
    let flow = Flow::resolve(spec, RunSeed(SEED.parse()?))?;
    Ok(flow.schedule().take(packets).map(|packet| packet.due_ns as f64).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_sends_at_another_rate_is_no_yardstick_for_gaps() {
        let of = |rate_error| Medians { rate_error, p50: 0.5, p99: 4.0, distance: 0.0, cpu: 1.0 };
        let bars = |tools: &[Tool], medians: &[Medians]| {
            let mut book = Book::new(String::new());
            let medians = medians.iter().copied().enumerate().collect();
            let table = "gaps".to_owned();
            let case = Case { table, exact: true, critical: 0.0, at_cpu_rate: false };
            case.judge(tools, &medians, &mut book);
            serde_json::to_string(&book).expect("JSON").matches("gap error").count()
        };
        assert_eq!(bars(&[Tool::Itg], &[of(0.0)]), 0, "nobody beside it");
        assert_eq!(bars(&[Tool::Itg, Tool::Ditg], &[of(0.0), of(-0.08)]), 0);
        assert_eq!(bars(&[Tool::Itg, Tool::DitgPoll], &[of(0.0), of(-0.0001)]), 2);
    }
}
