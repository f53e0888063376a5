//! `itg-cluster simulate FILE`: processes made of layers on simulated networks, in virtual time, judged by checkers.

mod sweep;

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::Args;
use itg_cli::{Failure, refuse, say};
use itg_core::seed::RunSeed;
use itg_core::units::format_duration_ns;
use itg_experiment::{Seed, TimeSpan};
use itg_process::{Config, Registry, RuntimeEvent, SECOND, Slot};
use itg_sim::{Exit, Fault, Kind, Swarm, Violation, World, faults_of};

use crate::judge::read_config;
use crate::parts::Parts;
use crate::process::tell_undeclared;
use crate::trace::Trace;

/// Arguments of `simulate`.
#[derive(Debug, Args)]
pub struct SimulateArgs {
    /// Configuration of processes, layers, networks, checkers and faults (TOML)
    pub file: PathBuf,
    /// Seed of all random streams [default: the file's, or drawn and printed]
    #[arg(long, value_name = "N")]
    pub seed: Option<Seed>,
    /// Run with so many seeds, from --seed on [default: from the file's seed, or 0], and print the command that
    /// repeats each failure
    #[arg(long, value_name = "N", conflicts_with_all = ["capture", "events", "trace"])]
    pub seeds: Option<u64>,
    /// Runs at once, with --seeds [default: one for each processor]
    #[arg(long, value_name = "N", requires = "seeds")]
    pub jobs: Option<usize>,
    /// Kind of all networks instead of those of the file, with its default parameters
    #[arg(long, value_name = "KIND")]
    pub network: Option<String>,
    /// End of the run in virtual time, such as 60s
    #[arg(long, value_name = "T", default_value = "60s")]
    pub until: TimeSpan,
    /// Draw faults from the seed for the first two thirds of the time, beside those of the file
    #[arg(long)]
    pub faults: bool,
    /// Most processes that drawn faults let crash, such as a minority [default: all but process 0]
    #[arg(long, value_name = "N", requires = "faults")]
    pub crashes: Option<usize>,
    /// Write the messages that arrive to this file, for network analysers
    #[arg(long, value_name = "PCAPNG")]
    pub capture: Option<PathBuf>,
    /// Print every event of a layer, and the faults that are drawn
    #[arg(long)]
    pub events: bool,
    /// Write every event of all processes to this file, one JSON object a line
    #[arg(long, value_name = "NDJSON")]
    pub trace: Option<PathBuf>,
    /// Write every message that is sent or delivered to the trace, too
    #[arg(long, requires = "trace")]
    pub messages: bool,
}

/// Runs the processes and prints what happened.
///
/// # Errors
/// The request makes no sense, or a checker objects.
pub fn run(args: &SimulateArgs, parts: &Parts) -> Result<ExitCode> {
    let request = Request::read(args, parts)?;
    let named = args.seed.map(|seed| seed.0).or(request.config.seed);
    if let Some(count) = args.seeds {
        return sweep::run(&request, named.unwrap_or(RunSeed(0)), (count, args.jobs));
    }
    let seed = named.unwrap_or_else(itg_cli::draw_seed);
    let mut world = request.world(seed)?;
    world.keep_events();
    if args.capture.is_some() {
        world.keep_capture();
    }
    if let Some(path) = &args.trace {
        world.check(Trace::create(path)?);
    }
    for (network, model, _) in world.networks() {
        say(format_args!("network {}: {model}", network.name));
    }
    let replay = request.command(seed);
    say(format_args!("replay: {replay}"));
    let started = jiff::Timestamp::now();
    let drawn = args.faults.then(|| request.draw(&world, seed));
    if let Some(drawn) = &drawn {
        drawn.tell(args.events);
    }
    let detectors = detectors(&world);
    let exit = request.run(&mut world, drawn.as_ref());
    let elapsed = jiff::Timestamp::now().duration_since(started).as_secs_f64().max(1e-6);
    let events = world.take_events();
    let mut said = BTreeSet::new();
    let once = events.iter().filter(|(_, _, event)| said.insert((event.name, event.values[0])));
    once.for_each(|(_, _, event)| tell_undeclared(event));
    if args.events {
        let mut lines = String::new();
        for (at, slot, event) in events {
            let at = itg_process::Time(at);
            lines += &format!("{at} {slot} {} {:?}\n", event.name, event.values);
        }
        itg_cli::print(&lines)?;
    }
    let objection = world.finish().cloned();
    itg_cli::print(&summary(&world, exit, elapsed))?;
    let suspicions =
        suspicions(&request.faults) + drawn.map_or(0, |drawn| suspicions(&drawn.swarm.faults));
    if suspicions > 0 {
        let taken = world.counts().occurrences(RuntimeEvent::SuspicionTaken);
        itg_cli::print(&format!(
            "{taken} of {suspicions} wrong suspicions taken by {}\n",
            if detectors.is_empty() {
                "no layer: none of any process takes them".to_owned()
            } else {
                format!("the layer {}", detectors.join(", "))
            }
        ))?;
    }
    if let (Some(path), Some(bytes)) = (&args.capture, world.take_capture()) {
        fs::write(path, bytes)
            .with_context(|| format!("cannot write capture {}", path.display()))?;
    }
    match objection {
        None => Ok(ExitCode::SUCCESS),
        Some(violation) => Err(Failure::new(1, format!("{violation}; replay: {replay}")).into()),
    }
}

/// Processes to be simulated with any seed.
struct Request<'a> {
    args: &'a SimulateArgs,
    parts: &'a Parts,
    layers: Registry,
    config: Config,
    faults: Vec<(u64, Fault)>,
}

impl<'a> Request<'a> {
    fn read(args: &'a SimulateArgs, parts: &'a Parts) -> Result<Self> {
        let mut config = read_config(&args.file)?;
        if let Some(kind) = &args.network {
            config.set_networks(kind);
        }
        let faults = faults_of(&config).map_err(refuse)?;
        let layers = parts.layers.clone();
        let layers = if args.messages { layers.tracing_messages() } else { layers };
        Ok(Self { args, parts, layers, config, faults })
    }

    /// Processes, networks, checkers and the faults of the file.
    fn world(&self, seed: RunSeed) -> Result<World> {
        let networks = &self.parts.networks;
        let mut world =
            World::with_networks(&self.config, &self.layers, networks, seed).map_err(refuse)?;
        for checker in self.parts.checkers(&self.config).map_err(refuse)? {
            world.check(checker);
        }
        for (at, fault) in &self.faults {
            world.fault_at(*at, fault.clone());
        }
        Ok(world)
    }

    /// The command that does the same again.
    fn command(&self, seed: RunSeed) -> String {
        let Self { args, parts, .. } = self;
        let file = quoted(&args.file.display().to_string());
        let until = format_duration_ns(args.until.0);
        let network =
            args.network.as_ref().map_or_else(String::new, |kind| format!(" --network {kind}"));
        let faults = if args.faults { " --faults" } else { "" };
        let crashes = args.crashes.map_or_else(String::new, |most| format!(" --crashes {most}"));
        format!(
            "{} simulate {file} --seed {seed} --until {until}{network}{faults}{crashes}",
            parts.program
        )
    }

    /// Time for drawn faults; what begins before it is healed then.
    const fn safety(&self) -> u64 {
        self.args.until.0 / 3 * 2
    }

    /// Runs to the end. Once those that were drawn are over, or the last one of the file, the processes get half of the
    /// time more for what must happen in the end.
    fn run(&self, world: &mut World, drawn: Option<&Drawn>) -> Exit {
        let until = self.args.until.0;
        let mut exit = Exit::Until;
        if let Some(Drawn { swarm, .. }) = drawn {
            world.set_buggify(swarm.buggify);
            for (at, fault) in &swarm.faults {
                world.fault_at(*at, fault.clone());
            }
            exit = world.run(self.safety());
            if exit == Exit::Until {
                world.heal(&(0..self.config.processes).map(Slot).collect::<Vec<_>>());
            }
        } else {
            let last = self.faults.iter().map(|(at, _)| *at).max();
            if let Some(last) = last {
                exit = world.run(last.saturating_add(1).min(until));
            }
            if last.is_none_or(|last| last < until) {
                world.faults_are_over();
            }
        }
        if exit == Exit::Until {
            exit = world.run(until);
        }
        if exit == Exit::Until && !world.converged() {
            exit = world.run_while(until + until / 2, |world| !world.converged());
        }
        exit
    }

    /// Faults of a seed: with wrong suspicions where a process has a layer that takes them.
    fn draw(&self, world: &World, seed: RunSeed) -> Drawn {
        let deaf = detectors(world).is_empty();
        let kinds: Vec<Kind> =
            Kind::ALL.into_iter().filter(|kind| !deaf || *kind != Kind::Suspicion).collect();
        let processes = self.config.processes;
        let mut swarm = Swarm::draw(seed, processes, self.safety(), &kinds, Some(Slot(0)), "");
        let most = self.args.crashes.unwrap_or(usize::MAX);
        let mut crashing = BTreeSet::new();
        swarm.faults.retain(|(_, fault)| match fault {
            Fault::Crash(slot) if crashing.len() < most => {
                crashing.insert(*slot);
                true
            }
            Fault::Crash(slot) | Fault::Recover(slot) => crashing.contains(slot),
            Fault::Suspect(slot, _) => {
                world.process(*slot).is_some_and(|process| process.detectors().next().is_some())
            }
            _ => true,
        });
        Drawn { swarm, deaf }
    }
}

/// Faults that a seed has drawn.
struct Drawn {
    swarm: Swarm,
    /// No process has a layer that takes suspicions.
    deaf: bool,
}

impl Drawn {
    /// Says which faults are drawn; with `each`, when each of them comes.
    fn tell(&self, each: bool) {
        if self.deaf {
            say("faults: no process has a layer that takes suspicions: none are wrong");
        }
        say(format_args!("faults: {}", self.swarm));
        for (at, fault) in self.swarm.faults.iter().filter(|_| each) {
            say(format_args!("fault at {}: {fault}", itg_process::Time(*at)));
        }
    }
}

/// Number of wrong suspicions among these faults.
fn suspicions(faults: &[(u64, Fault)]) -> usize {
    faults.iter().filter(|(_, fault)| matches!(fault, Fault::Suspect(..))).count()
}

/// Names of the layers of all processes that take suspicions.
fn detectors(world: &World) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for slot in (0..).map(Slot).take_while(|slot| world.process(*slot).is_some()) {
        let process = world.process(slot).into_iter();
        found.extend(process.flat_map(|process| process.detectors()).map(str::to_owned));
    }
    found.sort_unstable();
    found.dedup();
    found
}

/// A word as a shell reads it.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+:@%,=".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// The objection of a checker to a run with this seed, and the number of faults that took place.
fn objection(request: &Request<'_>, seed: RunSeed) -> Result<(Option<Violation>, u64)> {
    let mut world = request.world(seed)?;
    let drawn = request.args.faults.then(|| request.draw(&world, seed));
    request.run(&mut world, drawn.as_ref());
    Ok((world.finish().cloned(), world.counts().faults))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_as_a_shell_reads_them() {
        for (word, want) in
            [("a/b.toml", "a/b.toml"), ("a b", "'a b'"), ("it's", r"'it'\''s'"), ("", "''")]
        {
            assert_eq!(quoted(word), want);
        }
    }
}
