//! Open load: casts at random instants, whatever becomes of those before; delay against offered load.

use anyhow::Result;
use itg_cli::print;
use itg_report::{Curve, Plot};
use itg_trials::Lines;

use super::common::{BenchArgs, draw, percentile, us};
use super::processes::{ALGORITHMS, Group, configuration};
use itg_run::load::LoadEvent;

/// Result of a load.
#[derive(Clone, Copy, Debug)]
struct LoadFigures {
    /// Median over the processes that delivered any of the medians of their own casts, in nanoseconds from due to
    /// delivered; 0 when there is none.
    p50: u64,
    /// The largest of their 99th percentiles.
    p99: u64,
    /// Casts delivered of those that were due, in parts of one.
    share: f64,
}

pub(crate) fn run(args: &BenchArgs, groups: &[u32], rounds: u64) -> Result<()> {
    // A look asks for no more than a busy host carries: from an overload nothing may arrive in time.
    let (sizes, loads): (&[u32], &[u64]) = if args.quick {
        (&[3], &[300, 1000])
    } else {
        (&[3, 5, 8], &[1000, 3000, 10_000, 30_000, 100_000])
    };
    let sizes = if groups.is_empty() { sizes } else { groups };
    let lasts = (rounds / 3).clamp(100, 1000);
    print(&format!(
        "\nOpen load, TCP, messages of 100 bytes, Poisson at all processes together, {lasts} ms each: ms from the \
         instant when a cast is due to its delivery where it was cast, p50 / p99; in brackets the share that was \
         delivered, where it is not all\n\n"
    ))?;
    let mut table = Lines::new(["n, offered/s", "Sequencer", "Skeen", "Chandra-Toueg", "log"]);
    let mut lines = Vec::new();
    for &n in sizes {
        let mut points = vec![Vec::new(); ALGORITHMS.len()];
        for &load in loads {
            let mut row = vec![format!("{n}, {load}")];
            for (name, points) in ALGORITHMS.iter().zip(&mut points) {
                let seen = offer(n, name, load, lasts)?;
                let share = match seen.share {
                    share if share >= 1.0 => String::new(),
                    // Never rounded to all of them.
                    share => format!(" ({:.2} %)", (1e4 * share).floor() / 1e2),
                };
                let (p50, p99) = (us(seen.p50) / 1000.0, us(seen.p99) / 1000.0);
                row.push(match seen.p50 {
                    0 => "none".to_owned(),
                    _ => format!("{p50:.2} / {p99:.2}{share}"),
                });
                if seen.share > 0.9995 {
                    let load = u32::try_from(load).unwrap_or(u32::MAX);
                    points.push((f64::from(load), p50));
                }
            }
            table.row(row);
        }
        let named = ALGORITHMS.iter().zip(points);
        lines
            .extend(named.map(|(name, points)| Curve { name: format!("{name}, n = {n}"), points }));
    }
    print(&format!("{table}\n"))?;
    let plot = Plot {
        title: "Ordered broadcast under an open load, TCP, 100 bytes".to_owned(),
        x: "messages offered a second".to_owned(),
        x_log: true,
        y: "ms, p50".to_owned(),
        lines,
    };
    draw(args, "broadcast-open", &plot)
}

fn offer(n: u32, algorithm: &str, load: u64, lasts_ms: u64) -> Result<LoadFigures> {
    let pause = 1_000_000_000 * u64::from(n) / load.max(1);
    let layers = format!(
        "\"{algorithm}\", {{ layer = \"poisson\", pause = \"{pause}ns\", lasts = \"{lasts_ms}ms\" }}"
    );
    let events = Group::start(&configuration("tcp", n, &layers, None), n)?.finish()?;
    let (mut counts, mut times) = (Vec::new(), Vec::new());
    for (_, seen) in events {
        match seen.decode() {
            Some(LoadEvent::Result { count, offered, .. }) => counts.push([count, offered]),
            Some(LoadEvent::Times { p50, p99, .. }) => times.push([p50, p99]),
            None => {}
        }
    }
    if counts.len() != n as usize {
        anyhow::bail!("{algorithm}, {load}/s: results of {} of {n} processes", counts.len());
    }
    let [delivered, offered] = [0, 1].map(|at| counts.iter().map(|values| values[at]).sum::<u64>());
    // A process that delivered none of its casts has no times: zeros.
    let known = || times.iter().filter(|t| t[0] > 0);
    let [mut p50, mut p99] = [0, 1].map(|at| known().map(|t| t[at]).collect::<Vec<_>>());
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = delivered as f64 / offered.max(1) as f64;
    Ok(LoadFigures { p50: percentile(&mut p50, 50), p99: percentile(&mut p99, 100), share })
}
