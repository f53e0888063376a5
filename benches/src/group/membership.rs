//! `itg-bench membership`: how long a view change takes, in simulation, by the models of the paper, and
//! between real processes.

use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::print;
use itg_group::membership::MembershipEvent;
use itg_papers::model::{Constants, hops};
use itg_report::{Curve, Plot};
use itg_socket::clock::monotonic_ns;
use itg_trials::Lines;
use nix::sys::signal::Signal;

use super::common::{BenchArgs, claim, draw, percentile, say, us, wanted};
use super::contention;
use super::phases::{arity, phases, ts_on};
use super::processes::{Group, configuration};

/// Arguments of `membership`.
#[derive(Debug, Args)]
pub(crate) struct MembershipArgs {
    #[command(flatten)]
    pub(super) common: BenchArgs,
    /// Processes that are killed, one after the other [default: 40, with --quick 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: Option<u32>,
    /// Processes of which they are
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(4..=256))]
    processes: u32,
    /// These parts alone, separated by commas
    #[arg(long, value_name = "PART", value_delimiter = ',')]
    only: Vec<Part>,
}

/// A part of the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Part {
    /// Figures 4 to 6: simulation and models
    Figures,
    /// Figures 7 and 8: latency while many talk, and the contention model
    Contention,
    /// A view change of mode P between processes
    Phases,
    /// Processes that are killed, mode C
    Kills,
}

pub(crate) fn run(args: &MembershipArgs) -> Result<()> {
    args.common.prepare()?;
    if wanted(&args.only, &Part::Figures) {
        figures(&args.common)?;
    }
    if wanted(&args.only, &Part::Contention) {
        contention::run(&args.common)?;
    }
    if wanted(&args.only, &Part::Phases) {
        real(&args.common)?;
    }
    if wanted(&args.only, &Part::Kills) {
        views(args)?;
    }
    Ok(())
}

/// Figures 4, 5 and 6: Ts against the number of nodes. The values of the paper's own measurements are only in
/// its figures and are not read off here; its models are exact, and the simulation is held against them.
fn figures(args: &BenchArgs) -> Result<()> {
    let sizes: &[u32] =
        if args.quick { &[3, 15, 64, 256] } else { &[3, 7, 15, 31, 47, 64, 128, 256, 512, 1024] };
    print(
        "\nTs in µs: from the root's receipt of the first report to that of the last acknowledgement. Simulated \
         (mode P, fixed latency) and by the paper's models (base: equations 1 and 2; distance: BG/L, mesh)\n\n",
    )?;
    let mut table = Lines::new([
        "nodes", "BG/L a=2", "model", "distance", "BG/L a=4", "model", "distance", "TCP a=2",
        "model", "TCP a=4", "model",
    ]);
    let names = ["BG/L", "TCP"];
    let mut lines: Vec<Vec<Curve>> = vec![Vec::new(), Vec::new()];
    let mut differ = 0_usize;
    let mut rows: Vec<Vec<String>> = sizes.iter().map(|n| vec![n.to_string()]).collect();
    for (which, constants) in [Constants::BGL, Constants::TCP].into_iter().enumerate() {
        for a in [2, 4] {
            let (mut simulated, mut model, mut distance) = (Vec::new(), Vec::new(), Vec::new());
            for (n, row) in sizes.iter().zip(&mut rows) {
                let ts = simulate(*n, a, constants)?;
                let base = constants.base(arity(a).height(*n)).0;
                differ += usize::from(ts != base);
                simulated.push((f64::from(*n), us(ts)));
                model.push((f64::from(*n), us(base)));
                row.extend([format!("{:.1}", us(ts)), format!("{:.1}", us(base))]);
                if which == 0 {
                    let far = constants.distance(&hops(*n, arity(a), false)).0;
                    distance.push((f64::from(*n), us(far)));
                    row.push(format!("{:.1}", us(far)));
                }
            }
            let line = |what: &str, points| Curve { name: format!("{what}, arity {a}"), points };
            lines[which].push(line("simulated", simulated));
            lines[which].push(line("base model", model));
            if which == 0 {
                lines[which].push(line("distance model", distance));
            }
        }
    }
    rows.into_iter().for_each(|row| table.row(row));
    print(&format!("{table}\n"))?;
    let of = 4 * sizes.len();
    let what = format!(
        "simulated Ts is the base model's to the nanosecond: in {} of {of} cells",
        of - differ
    );
    say(differ == 0, &what)?;
    for (name, lines) in names.iter().zip(lines) {
        let plot = Plot {
            title: format!("View change, {name}: simulation and models"),
            x: "nodes".to_owned(),
            x_log: true,
            y: "Ts in µs".to_owned(),
            lines,
        };
        draw(args, &format!("membership-{}", name.to_lowercase().replace('/', "")), &plot)?;
    }
    Ok(())
}

/// Ts of one leaf's failure in virtual time, in nanoseconds.
fn simulate(n: u32, a: u32, constants: Constants) -> Result<u64> {
    let network = format!("kind = \"fixed\"\ndelay = \"{}ns\"", constants.latency);
    ts_on(n, a, &network, constants.compute)
}

/// Ts between real processes.
fn real(args: &BenchArgs) -> Result<()> {
    let (sizes, trials): (&[u32], _) = if args.quick { (&[3, 7], 2) } else { (&[3, 7, 15, 31], 4) };
    print(
        "\nTs in µs between processes of this host (mode P, failures reported to the root at once; median): a \
         path of H − 1 levels down and up, with all processes on the same cores\n\n",
    )?;
    let mut table = Lines::new(["nodes", "Unix a=2", "Unix a=4", "TCP a=2", "TCP a=4"]);
    let mut lines: Vec<Curve> = Vec::new();
    let mut rows: Vec<Vec<String>> = sizes.iter().map(|n| vec![n.to_string()]).collect();
    for network in ["unix", "tcp"] {
        for a in [2, 4] {
            let mut points = Vec::new();
            for (n, row) in sizes.iter().zip(&mut rows) {
                let mut times = Vec::new();
                for _ in 0..trials {
                    times.extend(phases(network, *n, a)?);
                }
                let ts = us(percentile(&mut times, 50));
                points.push((f64::from(*n), ts));
                row.push(format!("{ts:.0}"));
            }
            lines.push(Curve { name: format!("{network}, arity {a}"), points });
        }
    }
    rows.into_iter().for_each(|row| table.row(row));
    print(&format!("{table}\n"))?;
    let plot = Plot {
        title: "View change between processes of one host".to_owned(),
        x: "nodes".to_owned(),
        x_log: true,
        y: "Ts in µs".to_owned(),
        lines,
    };
    draw(args, "membership-processes", &plot)
}

/// Mode C: a process is killed; when all others have the next view.
fn views(args: &MembershipArgs) -> Result<()> {
    let trials = args.trials.unwrap_or(if args.common.quick { 5 } else { 40 });
    let processes = args.processes;
    let layers = "\"detector\", \"log\", \"membership\", { layer = \"chatter\", pause = \"10s\" }";
    let mut group = Group::start(&configuration("tcp", processes, layers, None), processes)?;
    std::thread::sleep(Duration::from_millis(1000));
    let (mut reports, mut installs, mut all) = (Vec::new(), Vec::new(), Vec::new());
    for trial in 0..trials {
        // Every slot but 0 has its turn, the core included.
        let slot = 1 + trial * 7 % (processes - 1);
        let at = group.signal(slot, Signal::SIGKILL)?;
        std::thread::sleep(Duration::from_millis(200));
        group.until("the others have a view without it", |group| {
            Ok(installed(group, at, processes - 1)?.is_some())
        })?;
        let (report, last) = installed(&group, at, processes - 1)?.context("just seen")?;
        reports.push(report - at);
        installs.push(last - report);
        all.push(last - at);
        let at = monotonic_ns();
        group.come_back(slot)?;
        std::thread::sleep(Duration::from_millis(300));
        group.until("it is in again", |group| Ok(installed(group, at, processes)?.is_some()))?;
    }
    drop(group);
    let ms = |values: &mut [u64], percent| us(percentile(values, percent)) / 1000.0;
    print(&format!(
        "\n{processes} processes over TCP (mode C), one killed at a time, {trials} trials; ms\n\n"
    ))?;
    let mut table = Lines::new(["", "p50", "p99"]);
    for (name, values) in [
        ("crash to first report (T_det)", &mut reports),
        ("first report to last installation", &mut installs),
        ("crash to last installation (T_all)", &mut all),
    ] {
        let cells = [50, 99].map(|percent| format!("{:.2}", ms(values, percent)));
        table.row(std::iter::once(name.to_owned()).chain(cells));
    }
    print(&format!("{table}\n"))?;
    let p99 = ms(&mut installs, 99);
    let what = format!("{processes} processes, first report to last installation, p99");
    claim(&what, p99, "ms", p99 <= 20.0, "at most 20 ms")
}

/// After this time: the first report (or the time itself), and when so many processes had installed the newest
/// view that any of them has; `None` while it is fewer.
fn installed(group: &Group, since: u64, count: u32) -> Result<Option<(u64, u64)>> {
    let (mut report, mut newest, mut who, mut last) = (None, 0, 0, since);
    for (_, seen) in group.events()?.into_iter().filter(|(_, seen)| seen.at_ns > since) {
        match seen.decode() {
            Some(MembershipEvent::Reported { .. }) => report = report.or(Some(seen.at_ns)),
            Some(MembershipEvent::Installed { no, .. }) if no > newest => {
                (newest, who, last) = (no, 1, seen.at_ns);
            }
            Some(MembershipEvent::Installed { no, .. }) if no == newest => {
                who += 1;
                last = seen.at_ns;
            }
            _ => {}
        }
    }
    Ok((who >= count).then_some((report.unwrap_or(since), last)))
}
