//! The measurement procedure of the D-ITG paper (three steps), on our three ways to log.

mod choose;
mod figures;
mod peers;
mod plan;
mod results;
mod trial;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use itg_cli::say;
use itg_trials::{Claim, Estimate, Lines, order, percent, print, with_interval};

use self::choose::{
    Capacity, Chosen, STRICT, best_buffer, grows_with_buffer, knee_at_mtu, largest_for_all,
    largest_within, mpi_is_like_udp, rates_around, receiver_gains_more, server_is_no_worse,
    tcp_only_loses_to_loss,
};
use self::figures::Figures;
use self::plan::Plan;
use self::results::{FIRST_SIZE, Results, estimate};
use self::trial::{Bench, End, Setting, Variant};
use crate::link::{Link, RECEIVER};

/// Largest payload of a packet on a link with an MTU of 1500.
const FITS: u32 = 1472;

/// The procedure, and how much of it.
#[derive(Debug, Args)]
pub(crate) struct LoggingArgs {
    /// A look: few values, short trials, some minutes
    #[arg(long, conflicts_with = "paper")]
    quick: bool,
    /// The paper's plan: 50 trials of 60 s (days)
    #[arg(long)]
    paper: bool,
    /// Trials of each setting [default: 10; quick 2; paper 50]
    #[arg(long, value_name = "N")]
    trials: Option<usize>,
    /// Seconds a trial [default: 5; quick 0.3; paper 60]
    #[arg(long, value_name = "S")]
    seconds: Option<f64>,
    /// Directory for the figures as SVG; made if it is not there
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Write local log files no faster than this, as 4MB/s: shows what a slow disk does to CV
    #[arg(long, value_name = "RATE")]
    slow_disk: Option<String>,
    /// Leave out other generators, even if they are installed
    #[arg(long)]
    no_peers: bool,
}

/// Measures settings in alternating order.
fn measure(bench: &Bench, plan: &Plan, what: &str, settings: &[Setting]) -> Result<Results> {
    let started = Instant::now();
    let runs = settings.len() * plan.trials;
    say(format_args!("{what}: {runs} runs, about {:.0} s", plan.time_of(runs)));
    let mut results = Results::new();
    for round in 0..plan.trials {
        for index in order(settings.len(), round) {
            let setting = settings[index];
            let trial = bench.run(&setting).with_context(|| format!("{setting:?}"))?;
            results.entry(setting).or_default().push(trial);
        }
    }
    say(format_args!("{what}: took {:.0} s", started.elapsed().as_secs_f64()));
    Ok(results)
}

/// Everything of one end.
struct Side {
    capacities: BTreeMap<Variant, Capacity>,
    claims: Vec<Claim>,
}

pub(crate) fn run(args: &LoggingArgs) -> Result<()> {
    let started = Instant::now();
    if let Some(rate) = &args.slow_disk {
        itg_cli::parse_throttle(rate)?;
    }
    let plan = Plan::of(args.quick, args.paper, args.trials, args.seconds);
    ensure!(plan.trials > 0 && plan.seconds >= 0.05, "at least one trial of 0.05 s");
    if let Some(dir) = &args.out {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    let mut figures = Figures::new(args.out.clone());
    let bench = Bench::here(plan.seconds, args.slow_disk.clone())?;
    print(format_args!(
        "{} trials of {} s a setting; medians, in brackets {}; local disk {}",
        plan.trials,
        plan.seconds,
        if plan.trials < 6 { "the range (too few trials for 95 %)" } else { "95 % intervals" },
        args.slow_disk.as_ref().map_or("as it is", |rate| rate),
    ));
    let flat_out = Setting {
        end: End::Sender,
        variant: Variant::Cv,
        buffer: 1024,
        size: FIRST_SIZE,
        rate: 20_000_000,
    };
    let mut most = Vec::new();
    for _ in 0..3 {
        most.push(bench.run(&flat_out)?.rate);
    }
    // Load can only lower it.
    let capacity = most.into_iter().fold(0.0, f64::max);
    let rates = rates_around(capacity, &plan.fractions);
    print(format_args!(
        "flat out, {FIRST_SIZE} bytes, local log: {capacity:.0} packets/s; so C = {rates:?}"
    ));

    figure_1(&bench, &plan, args, &mut figures)?;
    let mut sides = BTreeMap::new();
    for end in End::BOTH {
        sides.insert(end, one_end(&bench, &plan, &rates, end, &mut figures)?);
    }
    if !args.no_peers {
        beside_itglog(&bench, &plan, &rates)?;
    }
    bench.end()?;

    let mut claims = shape(&sides);
    match Link::new() {
        Ok(link) => claims.extend(over_a_link(&link, &plan, capacity, &mut figures)?),
        Err(why) => print(format_args!(
            "\nNOT MEASURED: the knee at the MTU (v) needs a virtual link, but {why:#}"
        )),
    }
    print("");
    claims.iter().for_each(print);
    say(format_args!("took {:.0} s", started.elapsed().as_secs_f64()));
    figures.end();
    Ok(())
}

/// Figure 1: the rate achieved beside the rate asked for, ours and others'.
fn figure_1(bench: &Bench, plan: &Plan, args: &LoggingArgs, figures: &mut Figures) -> Result<()> {
    let setting = |rate: u32| Setting {
        end: End::Sender,
        variant: Variant::Cv,
        buffer: 1024,
        size: FIRST_SIZE,
        rate,
    };
    let settings: Vec<_> = plan.first_rates.iter().map(|rate| setting(*rate)).collect();
    let results = measure(bench, plan, "figure 1", &settings)?;
    let ours = results.iter().map(|(setting, trials)| (setting.rate, estimate(trials, |t| t.rate)));
    let mut table = vec![("itg-send".to_owned(), ours.collect::<BTreeMap<_, _>>())];
    if !args.no_peers {
        table.extend(peers::rates(plan, FIRST_SIZE)?);
    }
    figures.first(&plan.first_rates, &table)
}

/// The three steps at one end.
fn one_end(
    bench: &Bench,
    plan: &Plan,
    rates: &[u32],
    end: End,
    figures: &mut Figures,
) -> Result<Side> {
    let top = rates.last().copied().unwrap_or_default();
    // Step 1: D.
    let mut settings = Vec::new();
    for variant in Variant::BUFFERED {
        for &buffer in &plan.buffers {
            for &rate in &plan.step_1(rates) {
                settings.push(Setting { end, variant, buffer, size: FIRST_SIZE, rate });
            }
        }
    }
    let results = measure(bench, plan, &format!("{}, step 1 (D)", end.name()), &settings)?;
    figures.by_buffer(end, &results)?;
    let mut claims = Vec::new();
    let mut best = BTreeMap::new();
    for variant in Variant::BUFFERED {
        let of: Vec<_> = results
            .iter()
            .filter(|(setting, _)| setting.variant == variant && setting.rate == top)
            .map(|(setting, trials)| (setting.buffer, estimate(trials, |t| t.rate).mid))
            .collect();
        claims.push(grows_with_buffer(&format!("{}, {}", end.name(), variant.name()), &of));
        best.insert(variant, best_buffer(&of).unwrap_or(1));
    }
    let buffer = best.values().copied().max().unwrap_or(1);
    // The most that no variant loses anything at.
    let lossless = Variant::BUFFERED.map(|variant| {
        let at = |setting: &Setting| setting.variant == variant && setting.buffer == buffer;
        largest_within(&errors(&results, at, |setting| setting.rate), STRICT).unwrap_or(rates[0])
    });
    let rate = lossless.into_iter().min().unwrap_or(rates[0]);
    // Step 2: c.
    let mut variants = Variant::BUFFERED.to_vec();
    if end == End::Sender {
        match bench.has_mpi() {
            Ok(()) => variants.push(Variant::Mpi),
            Err(why) => print(format_args!("\nNOT MEASURED: the curves of MPI: {why:#}")),
        }
    }
    let mut settings = Vec::new();
    for &variant in &variants {
        for &size in &plan.sizes {
            settings.push(Setting { end, variant, buffer, size, rate });
        }
    }
    let results = measure(bench, plan, &format!("{}, step 2 (c)", end.name()), &settings)?;
    let by_size: Vec<_> = variants
        .iter()
        .map(|variant| errors(&results, |s| s.variant == *variant, |setting| setting.size))
        .collect();
    let found = largest_for_all(&by_size);
    let chosen = Chosen { buffer, size: found.unwrap_or(FIRST_SIZE), rate };
    figures.by_size(end, chosen, &results)?;
    print(format_args!(
        "\n{}: D* {}; D = {buffer} for all; c* {}; so c = {}",
        end.name(),
        best.iter().map(|(v, d)| format!("{} {d}", v.name())).collect::<Vec<_>>().join(", "),
        found.map_or_else(|| "none (each size lost something)".to_owned(), |size| size.to_string()),
        chosen.size,
    ));
    // Step 3: C.
    let mut settings = Vec::new();
    for &variant in &variants {
        for &rate in rates {
            settings.push(Setting { end, variant, buffer, size: chosen.size, rate });
        }
    }
    let results = measure(bench, plan, &format!("{}, step 3 (C)", end.name()), &settings)?;
    figures.by_rate(end, chosen, &results)?;
    let capacities = capacities(end, &variants, top, chosen, &results);
    Ok(Side { capacities, claims })
}

/// Errors of the settings that are wanted, by one of their values.
fn errors(
    results: &Results,
    wanted: impl Fn(&Setting) -> bool,
    by: impl Fn(&Setting) -> u32,
) -> Vec<(u32, f64)> {
    let of = results.iter().filter(|(setting, _)| wanted(setting));
    of.map(|(setting, trials)| (by(setting), estimate(trials, |t| t.error).mid)).collect()
}

/// What step 3 found of each variant, as a table.
fn capacities(
    end: End,
    variants: &[Variant],
    top: u32,
    chosen: Chosen,
    results: &Results,
) -> BTreeMap<Variant, Capacity> {
    let mut capacities = BTreeMap::new();
    let mut unsaturated = Vec::new();
    let mut lines = Lines::new([
        "variant",
        "C* (0.1 %)",
        "C* (5 %)",
        "most packets/s",
        "Mbit/s",
        "CPU ns a packet",
        "late p99 us",
    ]);
    for &variant in variants {
        let of = || results.iter().filter(|(setting, _)| setting.variant == variant);
        let errors = errors(results, |s| s.variant == variant, |setting| setting.rate);
        let at_top = of().find(|(setting, _)| setting.rate == top).map_or(&[][..], |(_, t)| t);
        let capacity = Capacity {
            rates: at_top.iter().map(|trial| trial.rate).collect(),
            cpu_ns: at_top.iter().map(|trial| trial.cpu_ns).collect(),
            strict: largest_within(&errors, STRICT),
            loose: largest_within(&errors, choose::LOOSE),
        };
        let bits = f64::from(chosen.size) * 8.0;
        let text = |value: Option<u32>| value.map_or_else(|| "none".to_owned(), |v| v.to_string());
        let most = Estimate::of(&capacity.rates);
        unsaturated.extend((most.mid > 0.99 * f64::from(top)).then(|| variant.name()));
        let late: Vec<_> = of()
            .filter(|(setting, _)| Some(setting.rate) == capacity.strict)
            .flat_map(|(_, trials)| trials.iter().filter_map(|trial| trial.late_us))
            .collect();
        lines.row([
            variant.name().to_owned(),
            text(capacity.strict),
            text(capacity.loose),
            with_interval(most, 0),
            with_interval(most.map(|rate| rate * bits / 1e6), 0),
            with_interval(Estimate::of(&capacity.cpu_ns), 0),
            if late.is_empty() { "-".to_owned() } else { with_interval(Estimate::of(&late), 1) },
        ]);
        capacities.insert(variant, capacity);
    }
    let Chosen { buffer, size, .. } = chosen;
    print(format_args!(
        "\n{} side, D = {buffer}, c = {size}: the most that was achieved (at C = {top}), and lateness at C*; \
         CPU time is that of the process that logs, of MPI that of all processes of the job\n{lines}",
        end.name()
    ));
    if !unsaturated.is_empty() {
        print(format_args!(
            "NOT SATURATED: {} took all that was asked for, so what they can is not known; the first \
             runs were slower than the machine is: repeat on an idle one",
            unsaturated.join(", ")
        ));
    }
    capacities
}

/// (i) to (iv).
fn shape(sides: &BTreeMap<End, Side>) -> Vec<Claim> {
    let mut claims: Vec<_> = sides.values().flat_map(|side| side.claims.clone()).collect();
    let of = |end: End, variant: Variant| &sides[&end].capacities[&variant];
    for end in End::BOTH {
        for variant in [Variant::LsTcp, Variant::LsUdp] {
            let who = format!("{}, {}", end.name(), variant.name());
            claims.extend(server_is_no_worse(&who, of(end, variant), of(end, Variant::Cv)));
        }
    }
    for variant in [Variant::LsTcp, Variant::LsUdp] {
        let pair = |end| (of(end, variant), of(end, Variant::Cv));
        let (receiver, sender) = (pair(End::Receiver), pair(End::Sender));
        claims.extend(receiver_gains_more(variant.name(), receiver, sender));
    }
    for end in End::BOTH {
        let (tcp, udp) = (of(end, Variant::LsTcp), of(end, Variant::LsUdp));
        claims.push(tcp_only_loses_to_loss(end.name(), tcp, udp));
    }
    if let Some(mpi) = sides[&End::Sender].capacities.get(&Variant::Mpi) {
        claims.push(mpi_is_like_udp(mpi, of(End::Sender, Variant::LsUdp)));
    }
    claims
}

/// D-ITG's own log server, beside ours at the same rates.
fn beside_itglog(bench: &Bench, plan: &Plan, rates: &[u32]) -> Result<()> {
    let asked = plan.peer_rates(rates);
    let theirs = peers::log_servers(plan, FIRST_SIZE, &asked)?;
    if theirs.is_empty() {
        return Ok(());
    }
    let mut settings = Vec::new();
    for (variant, buffer) in [(Variant::LsTcp, 1024), (Variant::LsUdp, 35)] {
        for &rate in &asked {
            settings.push(Setting { end: End::Sender, variant, buffer, size: FIRST_SIZE, rate });
        }
    }
    let ours = measure(bench, plan, "beside ITGLog", &settings)?;
    let mut lines = Lines::new(["log server", "C", "logged packets/s", "logged / expected %"]);
    let mut row = |who: &str, rate: u32, got: Estimate, error: Estimate| {
        let kept = Estimate { low: 1.0 - error.high, mid: 1.0 - error.mid, high: 1.0 - error.low };
        lines.row([who.to_owned(), rate.to_string(), with_interval(got, 0), percent(kept)]);
    };
    for (setting, trials) in &ours {
        let who = format!("itg-log, {}", setting.variant.name());
        let (got, error) = (estimate(trials, |t| t.rate), estimate(trials, |t| t.error));
        row(&who, setting.rate, got, error);
    }
    for ((who, rate), trials) in &theirs {
        row(who, *rate, estimate(trials, |t| t.rate), estimate(trials, |t| t.error));
    }
    print(format_args!("\nLog servers, the sender's log, {FIRST_SIZE} bytes\n{lines}"));
    Ok(())
}

/// (v) on a link with an MTU of 1500.
fn over_a_link(
    link: &Link,
    plan: &Plan,
    capacity: f64,
    figures: &mut Figures,
) -> Result<Vec<Claim>> {
    let (sender, receiver) = link.places();
    let bench = Bench::between(sender, receiver, RECEIVER, plan.seconds, None)?;
    let rate = rates_around(capacity, &[2.0])[0];
    let mut settings = Vec::new();
    for end in End::BOTH {
        for &size in &plan.link_sizes {
            settings.push(Setting { end, variant: Variant::Cv, buffer: 1024, size, rate });
        }
    }
    let results = measure(&bench, plan, "a link with MTU 1500", &settings)?;
    bench.end()?;
    figures.over_link(&results)?;
    let claims = End::BOTH.map(|end| {
        let rates: Vec<_> = results
            .iter()
            .filter(|(setting, _)| setting.end == end)
            .map(|(setting, trials)| (setting.size, estimate(trials, |t| t.rate).mid))
            .collect();
        knee_at_mtu(end.name(), &rates, FITS)
    });
    Ok(claims.into())
}
