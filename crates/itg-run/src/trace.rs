//! Traces of processes: one JSON object a line (NDJSON), of one process or of many, in any world.
//!
//! ```json
//! {"at_ns":81234567890,"process":3,"layer":"runtime","event":"started","values":[1,0,0]}
//! {"at_ns":81234567999,"process":3,"layer":"membership","event":"installed","values":[2,1234,1]}
//! {"at_ns":81234568111,"process":3,"layer":"network 0","event":"send","values":[1,7,64]}
//! ```
//!
//! `at_ns` is virtual time, or the monotonic clock of the host, the same for all its processes. Of the runtime come the
//! events of [`ProcessEvent`]; those of messages (receiver or sender, type, bytes) when they are asked for. Each line
//! is written at once, so that a process that is killed leaves everything that it has said.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use itg_cli::say;
use itg_process::{Dest, LayerEvent, Report, Slot, StopReason, Way, layer_events};
use itg_sim::{Checker, Observation, ObservedEvent};
use itg_socket::clock::monotonic_ns;
use serde_json::{Value, json};

/// Name that stands for the runtime where other lines have a layer.
pub const RUNTIME: &str = "runtime";

layer_events! {
    /// Events of the runtime in traces.
    pub enum ProcessEvent {
        /// Start of the process, as this incarnation.
        Started { incarnation: u64 } = "started",
        /// Stop of the process: 0 finished, 1 failed, 2 interrupted.
        Stopped { reason: u64 } = "stopped",
        /// Crash of the process, in a simulation.
        Crashed = "crashed",
        /// End of the faults of a simulation.
        Healed = "healed",
        /// Message handed to a network.
        Sent { to: Slot, ty: u32, bytes: u64 } = "send",
        /// Message that has come.
        Delivered { from: Slot, ty: u32, bytes: u64 } = "deliver",
    }
}

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace {
    file: File,
    /// The process whose reports these are, once it has started.
    process: Slot,
    complained: bool,
}

impl Trace {
    /// A new trace.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        File::create(path).with_context(|| format!("trace {}", path.display()))?;
        Self::append(path)
    }

    /// The end of a trace that other processes write, too.
    pub(crate) fn append(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().append(true).create(true).open(path);
        let file = file.with_context(|| format!("trace {}", path.display()))?;
        Ok(Self { file, process: Slot(0), complained: false })
    }

    /// Writes a line. That one fails is said once.
    fn line(&mut self, at_ns: u64, slot: Slot, layer: &str, (event, values): (&str, [u64; 3])) {
        let line = json!({
            "at_ns": at_ns, "process": slot.0, "layer": layer, "event": event, "values": values
        });
        // One call a line: two writers of one file do not mix.
        if let Err(error) = self.file.write_all(format!("{line}\n").as_bytes())
            && !std::mem::replace(&mut self.complained, true)
        {
            say(format_args!("the trace is not complete: {error}"));
        }
    }

    /// Writes what a process reports on itself, at the present time.
    pub(crate) fn report(&mut self, report: &Report) {
        let at = monotonic_ns();
        match report {
            Report::Started { process, incarnation } => {
                self.process = *process;
                let started = ProcessEvent::Started { incarnation: *incarnation };
                self.line(at, *process, RUNTIME, started.encode());
            }
            Report::Event { layer, event, .. } => {
                self.line(at, self.process, layer, (event.name, event.values));
            }
            Report::Trace(trace) => self.message(at, self.process, trace),
            Report::Stopped(why) => self.stopped(at, self.process, *why),
        }
    }

    /// Writes that the process of the reports has stopped.
    pub(crate) fn end(&mut self, why: StopReason) {
        self.stopped(monotonic_ns(), self.process, why);
    }

    fn stopped(&mut self, at: u64, slot: Slot, why: StopReason) {
        let reason = match why {
            StopReason::Finished => 0,
            StopReason::Failed => 1,
            StopReason::Interrupted => 2,
        };
        self.line(at, slot, RUNTIME, ProcessEvent::Stopped { reason }.encode());
    }

    fn message(&mut self, at: u64, slot: Slot, trace: &itg_process::Trace) {
        let layer = format!("network {}", trace.net.0);
        let (ty, bytes) = (trace.ty, trace.len as u64);
        match (trace.way, &trace.dst) {
            (Way::Deliver, _) => {
                let event = ProcessEvent::Delivered { from: trace.src, ty, bytes };
                self.line(at, slot, &layer, event.encode());
            }
            (Way::Send, Dest::Many(all)) => {
                for &to in all.iter() {
                    self.line(at, slot, &layer, ProcessEvent::Sent { to, ty, bytes }.encode());
                }
            }
            // The runtime names all receivers.
            (Way::Send, _) => {}
        }
    }
}

/// In a simulation a trace looks on as a checker does, and objects to nothing.
impl Checker for Trace {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        let (at, slot) = (seen.at, seen.slot);
        let runtime = match &seen.what {
            ObservedEvent::Started(incarnation) => {
                ProcessEvent::Started { incarnation: *incarnation }
            }
            ObservedEvent::Crashed => ProcessEvent::Crashed,
            ObservedEvent::Healed => ProcessEvent::Healed,
            ObservedEvent::Event(event) => {
                self.line(at, slot, seen.layer, (event.name, event.values));
                return Ok(());
            }
            ObservedEvent::Stopped(why) => {
                self.stopped(at, slot, *why);
                return Ok(());
            }
            ObservedEvent::Message(trace) => {
                self.message(at, slot, trace);
                return Ok(());
            }
            ObservedEvent::Arrived(_) => return Ok(()),
        };
        self.line(at, slot, RUNTIME, runtime.encode());
        Ok(())
    }
}

/// An event that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Virtual time, or time on the monotonic clock of the host.
    pub at_ns: u64,
    /// The process.
    pub process: u32,
    /// Name of the layer.
    pub layer: String,
    /// Name of the event.
    pub event: String,
    /// Its fields.
    pub values: [u64; 3],
}

impl TraceEvent {
    /// The event of a set that this is; `None` if it belongs to another set.
    #[must_use]
    pub fn decode<E: LayerEvent>(&self) -> Option<E> {
        E::decode(&self.event, self.values)
    }

    /// Returns true if this is the end of the faults of a simulation: no process says it.
    pub(crate) fn is_healed(&self) -> bool {
        self.layer == RUNTIME && self.event == ProcessEvent::Healed.name()
    }
}

/// Reads a trace as far as it is written; a last line that is not whole is left out.
///
/// # Errors
/// The file cannot be read, or a line is no event.
pub fn read(path: &Path) -> Result<Vec<TraceEvent>> {
    let text = fs::read_to_string(path).with_context(|| format!("trace {}", path.display()))?;
    parse(&text).with_context(|| format!("trace {}", path.display()))
}

fn parse(text: &str) -> Result<Vec<TraceEvent>> {
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| event(line).with_context(|| format!("line `{}`", line.trim_end()))).collect()
}

fn event(line: &str) -> Result<TraceEvent> {
    let value: Value = serde_json::from_str(line)?;
    let number = |key: &str| value[key].as_u64();
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let mut values = [0; 3];
    for (into, value) in values.iter_mut().zip(value["values"].as_array().context("no values")?) {
        *into = value.as_u64().context("a value is no number")?;
    }
    Ok(TraceEvent {
        at_ns: number("at_ns").context("no time")?,
        process: number("process").context("no process")?.try_into()?,
        layer: text("layer").context("no layer")?,
        event: text("event").context("no event")?,
        values,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use itg_group::membership::MembershipEvent;
    use itg_process::{Event, Level, Time};

    #[test]
    fn a_trace_is_read_as_it_was_written_and_as_far_as_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("trace.ndjson");
        let mut trace = Trace::create(&path).expect("created");
        let installed = MembershipEvent::Installed { no: 2, digest: u64::MAX, incarnation: 1 };
        let event = Event::new(Level::Info, installed);
        let said = Report::Event { at: Time::ZERO, layer: "membership".into(), event };
        trace.report(&Report::Started { process: Slot(3), incarnation: 1 });
        trace.report(&said);
        // Another process of the same file.
        let mut other = Trace::append(&path).expect("there");
        other.report(&Report::Started { process: Slot(1), incarnation: 2 });
        trace.report(&said);
        trace.end(StopReason::Interrupted);
        trace.file.write_all(b"{\"at_ns\":1,\"eve").expect("written");
        let read = read(&path).expect("read");
        assert_eq!(read.iter().map(|line| line.process).collect::<Vec<_>>(), [3, 3, 1, 3, 3]);
        assert_eq!(read[2].decode(), Some(ProcessEvent::Started { incarnation: 2 }));
        assert_eq!((read[3].decode(), read[3].layer.as_str()), (Some(installed), "membership"));
        assert_eq!(read[4].decode(), Some(ProcessEvent::Stopped { reason: 2 }));
        assert!(read.is_sorted_by_key(|line| line.at_ns));
        let rest = "\"process\":0,\"layer\":\"a\",\"event\":\"b\",\"values\"";
        assert!(parse(&format!("{{\"at_ns\":1,{rest}:[1]}}\n")).is_ok());
        for text in ["x\n", "{}\n", &format!("{{\"at_ns\":1,{rest}:[-1]}}\n")] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
