//! `itg-cluster check FILE TRACE…`: the checkers of a configuration judge the traces of real processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;
use clap::Args;
use itg_cli::{Failure, refuse};
use itg_process::{Config, Event, Level, Slot, StopReason};
use itg_sim::{Checker, Observation, ObservedEvent, Violation};

use crate::parts::Parts;
use crate::trace::{self, ProcessEvent, TraceEvent};

/// Arguments of `check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration whose `check` names the checkers (TOML)
    pub file: PathBuf,
    /// Traces of the processes, whose clocks must be one: of one host, or simulated
    #[arg(required = true)]
    pub traces: Vec<PathBuf>,
}

/// Judges.
///
/// # Errors
/// The request makes no sense, or a checker objects.
pub fn run(args: &CheckArgs, parts: &Parts) -> Result<ExitCode> {
    judge(parts, &args.file, &args.traces)
}

/// Notice where a run is over and its checkers have seen nothing of it.
pub(crate) const NOT_JUDGED: &str = "the checkers of the file have not judged this run: `check FILE TRACE` judges what \
                                     --trace writes";

/// Lets the checkers of a configuration judge these traces.
pub(crate) fn judge(parts: &Parts, file: &Path, traces: &[PathBuf]) -> Result<ExitCode> {
    let config = read_config(file)?;
    let checkers = parts.checkers(&config).map_err(refuse)?;
    let names: Vec<_> = checkers.iter().map(|checker| checker.name()).collect();
    if names.is_empty() {
        return Err(refuse(format!("{}: `check` names no checker", file.display())));
    }
    let mut events = Vec::new();
    for path in traces {
        events.extend(trace::read(path)?);
    }
    let count = events.len();
    let presence = presence(&events, config.processes);
    match verdict(checkers, events) {
        Some(violation) => Err(Failure::new(1, violation).into()),
        None => {
            let names = names.join(", ");
            itg_cli::print(&format!("{count} events{presence}, no objection of {names}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// The configuration of a file.
pub(crate) fn read_config(file: &Path) -> Result<Config> {
    let origin = file.display().to_string();
    let text = fs::read_to_string(file)
        .map_err(|error| refuse(format!("cannot read configuration `{origin}`: {error}")))?;
    Config::parse(&text, &origin).map_err(refuse)
}

/// How many processes the traces tell nothing of, and how many of the others have crashed, where there are such.
fn presence(events: &[TraceEvent], processes: u32) -> String {
    let mut running = BTreeMap::new();
    for line in events {
        let up = running.entry(line.process).or_insert(true);
        if line.layer == trace::RUNTIME {
            match line.decode() {
                Some(ProcessEvent::Started { .. }) => *up = true,
                Some(ProcessEvent::Stopped { .. }) => *up = false,
                _ => {}
            }
        }
    }
    let told = running.len();
    let crashed = running.values().filter(|up| **up).count();
    let mut text = String::new();
    if told < processes as usize {
        text += &format!(" of {told} of {processes} processes");
    }
    if crashed > 0 {
        text += &format!(", {crashed} crashed (their traces end without a stop)");
    }
    text
}

/// First objection. A process whose trace ends without a stop, or that starts again, has crashed.
fn verdict(mut checkers: Vec<Box<dyn Checker>>, mut events: Vec<TraceEvent>) -> Option<Violation> {
    events.sort_by_key(|event| event.at_ns);
    let mut names = Names::default();
    let mut up = BTreeMap::new();
    let mut see = |at: u64, slot: Slot, layer: &str, what: &ObservedEvent<'_>| {
        checkers.iter_mut().find_map(|checker| {
            let seen = Observation { at, slot, layer, what: what.clone() };
            let text = checker.see(&seen).err()?;
            Some(Violation { checker: checker.name(), text, at, slot })
        })
    };
    for line in &events {
        let (at, slot) = (line.at_ns, Slot(line.process));
        let told = (line.layer == trace::RUNTIME).then(|| line.decode()).flatten();
        let found = match told {
            Some(ProcessEvent::Started { incarnation }) => {
                let crashed = up.insert(slot, at).map(|_| ObservedEvent::Crashed);
                crashed
                    .and_then(|what| see(at, slot, "", &what))
                    .or_else(|| see(at, slot, "", &ObservedEvent::Started(incarnation)))
            }
            Some(ProcessEvent::Stopped { reason }) => {
                up.remove(&slot);
                let why = [StopReason::Finished, StopReason::Failed, StopReason::Interrupted];
                let why = usize::try_from(reason).ok().and_then(|at| why.get(at).copied());
                see(at, slot, "", &ObservedEvent::Stopped(why.unwrap_or(StopReason::Failed)))
            }
            Some(ProcessEvent::Crashed) => {
                up.remove(&slot);
                see(at, slot, "", &ObservedEvent::Crashed)
            }
            Some(ProcessEvent::Healed) => see(at, slot, "", &ObservedEvent::Healed),
            Some(ProcessEvent::Sent { .. } | ProcessEvent::Delivered { .. }) => None,
            None => {
                let name = names.lasting(&line.event);
                let event = Event { level: Level::Info, name, values: line.values };
                see(at, slot, &line.layer, &ObservedEvent::Event(&event))
            }
        };
        if found.is_some() {
            return found;
        }
    }
    let at = events.last().map_or(0, |line| line.at_ns);
    if let Some(found) = up.keys().find_map(|slot| see(at, *slot, "", &ObservedEvent::Crashed)) {
        return Some(found);
    }
    checkers.iter_mut().find_map(|checker| {
        let text = checker.finish().err()?;
        Some(Violation { checker: checker.name(), text, at, slot: Slot(0) })
    })
}

/// Names of events as events have them: they last as long as the program, each once.
#[derive(Default)]
struct Names(BTreeSet<&'static str>);

impl Names {
    fn lasting(&mut self, name: &str) -> &'static str {
        if let Some(known) = self.0.get(name) {
            return known;
        }
        let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
        self.0.insert(name);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_missing_from_traces_is_told() {
        let line = |process, layer: &str, event: &str| TraceEvent {
            at_ns: 1,
            process,
            layer: layer.to_owned(),
            event: event.to_owned(),
            values: [0; 3],
        };
        let both = [line(0, trace::RUNTIME, "stopped"), line(1, trace::RUNTIME, "stopped")];
        assert_eq!(presence(&both, 2), "");
        assert_eq!(presence(&both, 3), " of 2 of 3 processes");
        let killed = [line(0, trace::RUNTIME, "started"), line(1, "counter", "number")];
        assert_eq!(presence(&killed, 2), ", 2 crashed (their traces end without a stop)");
    }
}
