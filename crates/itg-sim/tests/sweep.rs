//! Many seeds, each with its own faults; and bugs that are planted to be found.
//!
//! Without arguments: the smoke sweep (60 seeds × 60 s of virtual time of correct processes, then
//! each planted bug until it is found, and found again by the command that was printed).
//! `--seed S [--bug NAME]` runs one seed and says what happened; the exit code is 1 when a checker
//! objects. `--seeds N` sweeps over N seeds.

#![allow(clippy::print_stdout, reason = "a program of its own: it prints what it finds")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use common::link::{self, Bug, LinkEvent};
use common::world;
use itg_core::seed::RunSeed;
use itg_process::farm::{self, FarmEvent};
use itg_process::{LayerEvent as _, Registry, SECOND, Slot};
use itg_sim::{Checker, Exit, Kind, Observation, ObservedEvent, Swarm, World};

/// Virtual time of the phase in which everything may fail, and of the one in which it must heal.
const SAFETY: u64 = 40 * SECOND;
const LIVENESS: u64 = 20 * SECOND;
/// Seeds of the smoke sweep.
const SMOKE: u64 = 60;
/// Situations that a sweep must have seen.
fn sometimes() -> [&'static str; 4] {
    [
        LinkEvent::Resent.name(),
        LinkEvent::Reordered.name(),
        LinkEvent::DuplicateDropped.name(),
        FarmEvent::SuspectedWrongly.name(),
    ]
}

/// Everything that was sent over a link arrives once and in order, while both ends live; queues are
/// bounded.
#[derive(Default)]
struct Links {
    sent: BTreeMap<(u32, u32), u64>,
    got: BTreeMap<(u32, u32), u64>,
    dead: BTreeSet<u32>,
    healed: bool,
}

impl Checker for Links {
    fn name(&self) -> &'static str {
        "links"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let me = seen.slot.0;
        match seen.what {
            ObservedEvent::Event(event) => match event.decode() {
                Some(LinkEvent::Sent { to: Slot(to), number }) => {
                    self.sent.insert((me, to), number);
                }
                Some(LinkEvent::Got { from: Slot(from), number }) => {
                    let last = self.got.insert((from, me), number);
                    let want = last.map_or(0, |last| last + 1);
                    if number != want {
                        return Err(format!("process {me} got {number} from {from}, not {want}"));
                    }
                }
                Some(LinkEvent::Queue { length, limit }) if length > limit => {
                    return Err(format!("{length} messages wait, the limit is {limit}"));
                }
                Some(LinkEvent::Beat { gap, most }) if gap > most => {
                    return Err(format!("{gap} ns without a beat, at most {most} were promised"));
                }
                _ => {}
            },
            ObservedEvent::Crashed => {
                self.dead.insert(me);
            }
            ObservedEvent::Healed => self.healed = true,
            _ => {}
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        let arrived = |(link, sent): (&(u32, u32), &u64)| {
            self.dead.contains(&link.0)
                || self.dead.contains(&link.1)
                || self.got.get(link) == Some(sent)
        };
        self.sent.iter().all(arrived)
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.healed && !self.converged() {
            return Err("what was sent has not arrived long after the faults".to_owned());
        }
        Ok(())
    }
}

/// The farm ends with all results, whatever happened to its workers.
#[derive(Default)]
struct Farm {
    complete: bool,
}

const TASKS: u64 = 300;

impl Checker for Farm {
    fn name(&self) -> &'static str {
        "farm"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        if let ObservedEvent::Event(event) = seen.what
            && let Some(complete @ FarmEvent::Complete { .. }) = event.decode()
        {
            self.complete = true;
            let expected = farm::expected(TASKS);
            if complete != expected {
                return Err(format!("{complete:?}, not {expected:?}"));
            }
        }
        Ok(())
    }

    fn converged(&self) -> bool {
        self.complete
    }

    fn finish(&mut self) -> Result<(), String> {
        if self.complete { Ok(()) } else { Err("the farm has not completed".to_owned()) }
    }
}

struct Found {
    text: String,
    violation: Option<String>,
    hash: u64,
    events: u64,
    sometimes: BTreeMap<&'static str, u64>,
}

/// One seed: odd ones run the farm, even ones the links; a bug is always in the links.
fn run(seed: u64, bug: Bug) -> Found {
    let seed_ = RunSeed(seed);
    let mut rng = seed_.named("shape");
    let processes = 3 + u32::try_from(itg_core::streams::below(&mut rng, 4)).expect("small");
    let mean = 1 + itg_core::streams::below(&mut rng, 30);
    let network = format!("kind = \"random\"\nmean = \"{mean}ms\"");
    let farm = bug == Bug::None && seed % 2 == 1;
    let (mut world, kinds): (World, Vec<Kind>) = if farm {
        let text = farm::configuration(processes, TASKS, &network);
        let kinds = Kind::ALL.into_iter().filter(|kind| *kind != Kind::Crash).collect();
        (world(&text, &farm::layers(Registry::new()), seed), kinds)
    } else {
        let text = format!(
            "processes = {processes}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nlayers = \
             [\"link\", \"beat\", \"chatter\"]"
        );
        // The link gives up its state with its process: no crashes here.
        let without = [Kind::Crash, Kind::Recover, Kind::Refusal, Kind::Clocks];
        let without = [&without[..], &[Kind::Pause, Kind::Slow][..]].concat();
        let kinds = Kind::ALL.into_iter().filter(|kind| !without.contains(kind)).collect();
        (world(&text, &link::layers(Registry::new(), bug), seed), kinds)
    };
    let swarm = Swarm::draw(seed_, processes, SAFETY, &kinds, Some(Slot(0)), "failure-detector");
    world.set_buggify(swarm.buggify);
    for (at, fault) in &swarm.faults {
        world.fault_at(*at, fault.clone());
    }
    if farm {
        world.check(Farm::default());
    } else {
        world.check(Links::default());
    }
    let mut exit = world.run(SAFETY);
    if exit == Exit::Until {
        world.heal(&(0..processes).map(Slot).collect::<Vec<_>>());
        exit = world.run(SAFETY + LIVENESS);
    }
    let violation = world.finish().map(ToString::to_string);
    let app = if farm { "farm" } else { "links" };
    let text = format!(
        "seed {seed:#x}: {app}, {processes} processes, {network:?}, {swarm}; {exit:?} at {} ns, {} \
         events, hash {:016x}",
        world.now(),
        world.counts().events,
        world.hash()
    );
    let (hash, counts) = (world.hash(), world.counts());
    Found { text, violation, hash, events: counts.events, sometimes: counts.sometimes.clone() }
}

/// The command that runs a seed again.
fn command(seed: u64, bug: Bug) -> String {
    format!("cargo test -p itg-sim --test sweep -- --seed {seed:#x} --bug {}", bug.name())
}

fn one(seed: u64, bug: Bug) -> bool {
    let result = run(seed, bug);
    println!("{}", result.text);
    if let Some(violation) = &result.violation {
        println!("{violation}\nreplay: {}", command(seed, bug));
    }
    result.violation.is_none()
}

/// Runs the seeds of a sweep; returns true if all is well.
fn sweep(seeds: u64) -> bool {
    let (mut events, mut seen) = (0, BTreeMap::new());
    let mut well = true;
    for seed in 0..seeds {
        let result = run(seed, Bug::None);
        events += result.events;
        for (name, count) in result.sometimes {
            *seen.entry(name).or_insert(0) += count;
        }
        if let Some(violation) = result.violation {
            well = false;
            println!("{}\n{violation}\nreplay: {}", result.text, command(seed, Bug::None));
        }
    }
    let virtual_s = seeds * (SAFETY + LIVENESS) / SECOND;
    println!("{seeds} seeds, up to {virtual_s} s of virtual time, {events} events; seen: {seen:?}");
    for name in sometimes() {
        if !seen.contains_key(name) {
            well = false;
            println!("never seen: {name}");
        }
    }
    well
}

/// Looks for a planted bug, and runs the command that was printed for it.
fn hunt(bug: Bug) -> bool {
    for seed in 0..SMOKE {
        let Some(violation) = run(seed, bug).violation else { continue };
        let printed = command(seed, bug);
        println!("bug {}: {violation}\nreplay: {printed}", bug.name());
        let words: Vec<_> = printed.split(' ').skip_while(|word| *word != "--").skip(1).collect();
        let Some((seed, bug)) = parse(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>())
        else {
            println!("the command cannot be understood");
            return false;
        };
        let again = run(seed, bug);
        let same = again.violation == Some(violation) && again.hash == run(seed, bug).hash;
        if !same {
            println!("the command does not find it again: {:?}", again.violation);
        }
        return same;
    }
    println!("bug {}: not found in {SMOKE} seeds", bug.name());
    false
}

/// Seed and bug of a command line.
fn parse(words: &[String]) -> Option<(u64, Bug)> {
    let value =
        |key: &str| words.iter().position(|word| word == key).and_then(|at| words.get(at + 1));
    let seed = value("--seed")?.parse::<RunSeed>().ok()?.0;
    let bug = value("--bug").map_or(Some(Bug::None), |name| Bug::from_name(name))?;
    Some((seed, bug))
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let well = if words.iter().any(|word| word == "--list") {
        println!("smoke: test");
        true
    } else if let Some((seed, bug)) = parse(&words) {
        one(seed, bug)
    } else if words.first().is_some_and(|word| word == "--seeds") {
        sweep(words.get(1).and_then(|count| count.parse().ok()).unwrap_or(SMOKE))
    } else {
        // All of them, so that one failure does not hide another.
        let found = Bug::ALL.map(hunt);
        sweep(SMOKE) & found.iter().all(|found| *found)
    };
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
