//! `itg-cluster simulate FILE`: processes made of layers on simulated networks, in virtual time.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{Failure, refuse, say};
use itg_core::seed::RunSeed;
use itg_core::units::format_duration_ns;
use itg_experiment::{Seed, TimeSpan};
use itg_process::{Config, RuntimeEvent, SECOND, Slot};
use itg_sim::{Exit, Fault, Kind, Swarm, World};

/// The layers that take wrong suspicions.
const DETECTORS: [&str; 2] = ["failure-detector", "detector"];

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Configuration of processes, layers and networks (TOML)
    pub file: PathBuf,
    /// Seed of all random streams [default: the file's, or drawn and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<Seed>,
    /// Kind of all networks instead of those of the file, with its default parameters
    #[arg(long, value_name = "KIND")]
    pub network: Option<String>,
    /// End of the run in virtual time, such as 60s
    #[arg(long, value_name = "T", default_value = "60s")]
    pub until: TimeSpan,
    /// Draw faults from the seed for the first two thirds of the time
    #[arg(long)]
    pub faults: bool,
    /// Write the messages that arrive to this file, for network analysers
    #[arg(long, value_name = "PCAPNG")]
    pub capture: Option<PathBuf>,
    /// Print every event of a layer
    #[arg(long)]
    pub events: bool,
}

/// Runs the processes and prints what happened.
///
/// # Errors
/// The request makes no sense, or a checker objects.
pub fn run(args: &SimulateArgs) -> Result<ExitCode> {
    let origin = args.file.display().to_string();
    let text = fs::read_to_string(&args.file)
        .map_err(|error| refuse(format!("cannot read configuration `{origin}`: {error}")))?;
    let mut config = Config::parse(&text, &origin).map_err(refuse)?;
    if let Some(kind) = &args.network {
        config.set_networks(kind);
    }
    let seed = args.seed.map(|seed| seed.0).or(config.seed).unwrap_or_else(itg_cli::draw_seed);
    let registry = crate::layers::registry();
    let mut world = World::new(&config, &registry, seed).map_err(refuse)?;
    world.keep_events();
    if args.capture.is_some() {
        world.keep_capture();
    }
    for (network, model, _) in world.networks() {
        say(format_args!("network {}: {model}", network.name));
    }
    let faults = if args.faults { " --faults" } else { "" };
    let network =
        args.network.as_ref().map_or_else(String::new, |kind| format!(" --network {kind}"));
    let until = args.until.0;
    let replay = format!(
        "itg-cluster simulate {origin} --seed {seed} --until {}{network}{faults}",
        format_duration_ns(until)
    );
    say(format_args!("replay: {replay}"));
    let started = jiff::Timestamp::now();
    let safety = until / 3 * 2;
    let mut exit = Exit::Until;
    let mut suspected = None;
    if args.faults {
        let (swarm, suspicions) = draw(&world, &config, seed, safety);
        say(format_args!("faults: {swarm}"));
        suspected = suspicions;
        world.set_buggify(swarm.buggify);
        for (at, fault) in swarm.faults {
            world.fault_at(at, fault);
        }
        exit = world.run(safety);
        if exit == Exit::Until {
            world.heal(&(0..config.processes).map(Slot).collect::<Vec<_>>());
        }
    }
    if exit == Exit::Until {
        exit = world.run(until);
    }
    let elapsed = jiff::Timestamp::now().duration_since(started).as_secs_f64().max(1e-6);
    if args.events {
        let mut lines = String::new();
        for (at, slot, event) in world.take_events() {
            let at = itg_process::Time(at);
            lines += &format!("{at} {slot} {} {:?}\n", event.name, event.values);
        }
        itg_cli::print(&lines)?;
    }
    itg_cli::print(&summary(&world, exit, elapsed))?;
    if let Some((detector, drawn)) = suspected.filter(|(_, drawn)| *drawn > 0) {
        let taken = world.counts().occurrences(RuntimeEvent::SuspicionTaken);
        itg_cli::print(&format!(
            "{taken} of {drawn} wrong suspicions taken by the layer {detector}\n"
        ))?;
    }
    if let (Some(path), Some(bytes)) = (&args.capture, world.take_capture()) {
        fs::write(path, bytes)
            .with_context(|| format!("cannot write capture {}", path.display()))?;
    }
    match world.finish() {
        None => Ok(ExitCode::SUCCESS),
        Some(violation) => Err(Failure::new(1, format!("{violation}; replay: {replay}")).into()),
    }
}

/// The faults of a seed; the layer that takes wrong suspicions, where processes have one, and how many were drawn.
fn draw(
    world: &World,
    config: &Config,
    seed: RunSeed,
    until: u64,
) -> (Swarm, Option<(&'static str, usize)>) {
    let has = |slot: Slot, detector: &str| {
        world.process(slot).is_some_and(|process| process.layers().any(|name| name == detector))
    };
    let slots = || (0..config.processes).map(Slot);
    let found = DETECTORS.into_iter().find(|detector| slots().any(|slot| has(slot, detector)));
    let Some(detector) = found else {
        say(format_args!(
            "faults: no process has a layer that takes suspicions ({}): none are wrong",
            DETECTORS.join(", ")
        ));
        let kinds: Vec<Kind> =
            Kind::ALL.into_iter().filter(|kind| *kind != Kind::Suspicion).collect();
        return (Swarm::draw(seed, config.processes, until, &kinds, Some(Slot(0)), ""), None);
    };
    let mut swarm = Swarm::draw(seed, config.processes, until, &Kind::ALL, Some(Slot(0)), detector);
    swarm.faults.retain(|(_, fault)| match fault {
        Fault::Inject(slot, layer, _) => has(*slot, layer),
        _ => true,
    });
    let told = |(_, fault): &&(u64, Fault)| matches!(fault, Fault::Inject(..));
    let drawn = swarm.faults.iter().filter(told).count();
    (swarm, Some((detector, drawn)))
}

#[expect(clippy::cast_precision_loss, reason = "for people, rounded")]
fn summary(world: &World, exit: Exit, elapsed_s: f64) -> String {
    let counts = world.counts();
    let seconds = world.now() as f64 / SECOND as f64;
    let exit = match exit {
        Exit::Stopped => "all processes have stopped",
        Exit::Idle => "nothing is left to happen",
        Exit::Until => "the time was over",
        Exit::Violated => "a checker objected",
    };
    let mut text = format!(
        "ended at {seconds:.9} s: {exit}\n{} messages sent, {} delivered, dropped {:?}\n{} events, {} \
         faults, hash {:016x}\n",
        counts.sent,
        counts.delivered,
        counts.dropped,
        counts.events,
        counts.faults,
        world.hash()
    );
    for (network, _, usage) in world.networks() {
        text += &format!(
            "network {}: {} packets, {} transmissions, {} dropped, busy {:.3} %\n",
            network.name,
            usage.packets,
            usage.frames,
            usage.dropped,
            usage.busy_ns as f64 / world.now().max(1) as f64 * 100.0
        );
    }
    say(format_args!(
        "{:.2} M events/s, {:.0} x real time",
        counts.events as f64 / elapsed_s / 1e6,
        seconds / elapsed_s
    ));
    text
}
