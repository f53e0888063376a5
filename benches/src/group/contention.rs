//! The membership paper's Figures 7 and 8 on this host: how the latency of a hop grows with the number of
//! processes that talk, in its three patterns, and what its contention model makes of that.

use anyhow::{Context as _, Result};
use itg_cli::print;
use itg_members::Arity;
use itg_papers::model::{Constants, Contention, Fit, Pattern, fit};
use itg_report::{Curve, Plot};
use itg_trials::Lines;

use super::common::{BenchArgs, draw, percentile, say, us};
use super::phases::{arity, phases, ts_on};
use super::processes::{Group, configuration};
use itg_run::load::LoadEvent;

/// Children of each parent, and what the pattern is called.
const PATTERNS: [(u32, &str); 3] =
    [(1, "pairs"), (2, "parent and 2 children"), (4, "parent and 4 children")];

pub(crate) fn run(args: &BenchArgs) -> Result<()> {
    let most = if args.quick { 10 } else { 32 };
    let patterns: Vec<_> =
        PATTERNS.iter().map(|(children, _)| measure(*children, most)).collect::<Result<_>>()?;
    let fit = fit(&patterns).context("latencies that no model fits")?;
    latencies(args, &patterns, &fit)?;
    changes(args, &fit)
}

/// Sizes of one pattern: whole groups, 1 to 16 of them, at most so many processes.
fn measure(children: u32, most: u32) -> Result<Pattern> {
    let group = children + 1;
    let sizes = [1, 2, 3, 4, 5, 6, 8, 10, 12, 16].map(|groups| groups * group);
    let mut points = Vec::new();
    for n in sizes.into_iter().filter(|n| *n <= most) {
        points.push((n, hop(n, children)?));
    }
    Ok(Pattern { children, points })
}

/// Latency of one hop in nanoseconds: half of a round from parents to all their children and back, median of each
/// parent's rounds, mean over the parents.
#[expect(clippy::cast_precision_loss, reason = "a mean")]
fn hop(n: u32, children: u32) -> Result<f64> {
    let layers = format!("{{ layer = \"talkers\", children = {children} }}");
    let events = Group::start(&configuration("tcp", n, &layers, None), n)?.finish()?;
    let halves = events.iter().filter_map(|(_, seen)| match seen.decode()? {
        LoadEvent::Result { count, ns, .. } if count > 0 => Some(ns),
        _ => None,
    });
    let halves: Vec<_> = halves.collect();
    if halves.len() < (n / (children + 1)) as usize {
        anyhow::bail!("{n} processes, {children} children each: a parent had not one round");
    }
    Ok(halves.iter().sum::<u64>() as f64 / halves.len() as f64 / 2.0)
}

/// Figure 7.
fn latencies(args: &BenchArgs, patterns: &[Pattern], fit: &Fit) -> Result<()> {
    print(
        "\nFigure 7: latency of a hop over TCP in µs while n processes talk in groups that begin together \
         (half of a round of 64 bytes from a parent to its children and back; median of each parent, mean over the \
         parents), and the model fitted to it\n\n",
    )?;
    let mut table = Lines::new(["pattern", "n", "measured", "model", "off [%]"]);
    let mut lines = Vec::new();
    for (at, ((_, name), pattern)) in PATTERNS.iter().zip(patterns).enumerate() {
        let (mut measured, mut model) = (Vec::new(), Vec::new());
        for (n, seen) in &pattern.points {
            let fitted = fit.latency(at, *n);
            measured.push((f64::from(*n), seen / 1e3));
            model.push((f64::from(*n), fitted / 1e3));
            let cells = [seen / 1e3, fitted / 1e3].map(|us| format!("{us:.1}"));
            let off = format!("{:+.0}", 100.0 * (fitted / seen - 1.0));
            let row = [(*name).to_owned(), n.to_string()].into_iter().chain(cells).chain([off]);
            table.row(row);
        }
        lines.push(Curve { name: format!("{name}, measured"), points: measured });
        lines.push(Curve { name: format!("{name}, model"), points: model });
    }
    print(&format!("{table}\n"))?;
    let slopes: Vec<_> =
        fit.slopes.iter().map(|(_, slope)| format!("{:.2}", slope / 1e3)).collect();
    let steeper = fit.slopes.windows(2).all(|pair| pair[0].1 < pair[1].1);
    print(&format!(
        "L0 = {:.1} µs, n0 = {}, g = {} µs a process (1, 2, 4 children); the model is off by {:.0} % (root of the mean \
         square), {:.0} % at most. The paper: L0 = 118 µs, n0 about 12, steeper with more children; here {}\n",
        fit.latency / 1e3,
        fit.free,
        slopes.join(", "),
        100.0 * fit.rms,
        100.0 * fit.worst,
        if steeper { "too" } else { "not" }
    ))?;
    let plot = by_processes("Latency of a hop while n processes talk, TCP", "µs", lines);
    draw(args, "membership-latency", &plot)
}

/// Figure 8.
fn changes(args: &BenchArgs, fit: &Fit) -> Result<()> {
    print(
        "\nFigure 8: Ts in µs over TCP: the base model with L0; the contention model with all n processes (L(n) in the \
         place of L) and with those of one level and their parents; simulated on the network `crowd`; between \
         processes (median). No time is charged for computing\n\n",
    )?;
    let (real, models): (&[u32], &[u32]) = match args.quick {
        true => (&[3, 7], &[]),
        false => (&[3, 5, 7, 11, 15, 19, 23, 27, 31], &[47, 63, 64, 128, 256]),
    };
    let names = ["base", "all", "level", "simulated", "processes"];
    let header = [2, 4].iter().flat_map(|a| names.map(|name| format!("{name} a={a}")));
    let header: Vec<_> = std::iter::once("nodes".to_owned()).chain(header).collect();
    let mut table = Lines::new(header.clone());
    let mut lines: Vec<Curve> =
        header[1..].iter().map(|name| Curve { name: name.clone(), points: Vec::new() }).collect();
    let mut ratios = vec![Vec::new(); names.len() - 1];
    for (at, n) in real.iter().chain(models).enumerate() {
        let mut row = vec![n.to_string()];
        for (which, a) in [2, 4].into_iter().enumerate() {
            let seen = if at < real.len() { Some(median(*n, a, args.quick)?) } else { None };
            let values = modelled(*n, arity(a), fit.of(a))?;
            for (ratios, value) in ratios.iter_mut().zip(&values) {
                ratios.extend(seen.map(|seen| seen / value));
            }
            for (column, value) in values.into_iter().map(Some).chain([seen]).enumerate() {
                row.push(value.map_or_else(|| "–".to_owned(), |value| format!("{value:.0}")));
                // What is far beyond the measured sizes would leave no room for them.
                if at < real.len() {
                    let line = &mut lines[which * names.len() + column];
                    line.points.extend(value.map(|value| (f64::from(*n), value)));
                }
            }
        }
        table.row(row);
    }
    print(&format!("{table}\n"))?;
    let parts = names.iter().zip(&ratios).map(|(name, ratios)| {
        let range = ratios.iter().fold((f64::MAX, 0.0_f64), |(a, b), x| (a.min(*x), b.max(*x)));
        format!("{name} {:.2} to {:.2}", range.0, range.1)
    });
    print(&format!("Between processes to modelled: {}\n", parts.collect::<Vec<_>>().join(", ")))?;
    // Distance of a model from what was measured, as the median of |ln(measured/modelled)|.
    let far = |model: usize| {
        let mut far: Vec<f64> = ratios[model].iter().map(|ratio| ratio.ln().abs()).collect();
        far.sort_by(f64::total_cmp);
        far.get(far.len() / 2).map_or(f64::INFINITY, |far| far.exp())
    };
    let [base, all, level] = [0, 1, 2].map(far);
    say(
        all.min(level) < base,
        &format!(
            "contention explains what the base model does not; median factor between measured and modelled: base \
             {base:.2}, all processes {all:.2}, level {level:.2}"
        ),
    )?;
    let plot = by_processes("View change under contention, TCP", "Ts in µs", lines);
    draw(args, "membership-contention", &plot)
}

/// Ts in µs by the models, and simulated.
fn modelled(n: u32, arity: Arity, model: Contention) -> Result<[f64; 4]> {
    let Contention { latency, free, slope } = model;
    let base = Constants { latency, compute: 0 }.base(arity.height(n)).0;
    let network =
        format!("kind = \"crowd\"\ndelay = \"{latency}ns\"\nfree = {free}\nslope = \"{slope}ns\"");
    let simulated = ts_on(n, arity.get(), &network, 0)?;
    let values = [base, model.together(n, arity, 0).0, model.by_level(n, arity, 0).0, simulated];
    Ok(values.map(us))
}

/// Ts in µs between processes.
fn median(n: u32, a: u32, quick: bool) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..if quick { 1 } else { 2 } {
        times.extend(phases("tcp", n, a)?);
    }
    Ok(us(percentile(&mut times, 50)))
}

fn by_processes(title: &str, y: &str, lines: Vec<Curve>) -> Plot {
    let (title, x, y) = (title.to_owned(), "processes".to_owned(), y.to_owned());
    Plot { title, x, y, lines, ..Plot::default() }
}
