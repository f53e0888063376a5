//! Traces of processes: one JSON object a line (NDJSON).
//!
//! ```json
//! {"process":3,"life":1}
//! {"at_ns":81234567890,"event":"installed","values":[2,1234,1]}
//! ```
//!
//! `at_ns` is the monotonic clock of the host, the same for all its processes. Each line is written at
//! once, so that a process that is killed leaves everything that it has said. The line that says whose
//! trace it is comes when that is known, and holds for all of the file.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result};
use itg_process::{Event, LayerEvent};
use itg_socket::clock::monotonic_ns;
use serde_json::{Value, json};

/// A trace that is being written.
#[derive(Debug)]
pub(crate) struct Trace(File);

impl Trace {
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).with_context(|| format!("trace {}", path.display()))?;
        Ok(Self(file))
    }

    pub(crate) fn try_clone(&self) -> Result<Self> {
        Ok(Self(self.0.try_clone().context("trace")?))
    }

    fn line(&mut self, value: &Value) -> std::io::Result<()> {
        // One call a line: two writers of one file do not mix.
        self.0.write_all(format!("{value}\n").as_bytes())
    }

    /// Writes the slot and the incarnation of the process that the trace belongs to.
    pub(crate) fn process(&mut self, slot: u32, incarnation: u64) -> Result<()> {
        self.line(&json!({ "process": slot, "life": incarnation })).context("writing the trace")
    }

    /// A layer says something.
    pub(crate) fn event(&mut self, event: &Event) -> std::io::Result<()> {
        let Event { name, values, .. } = event;
        self.line(&json!({ "at_ns": monotonic_ns(), "event": name, "values": values }))
    }
}

/// An event that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceEvent {
    /// Time on the monotonic clock of the host.
    pub at_ns: u64,
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
}

/// A trace that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    /// Slot and incarnation, when it says so.
    pub process: Option<(u32, u64)>,
    /// Its events so far.
    pub events: Vec<TraceEvent>,
}

/// Reads a trace as far as it is written; a last line that is not whole is left out.
///
/// # Errors
/// The file cannot be read, or a line is no event.
pub fn read(path: &Path) -> Result<Read> {
    let text = fs::read_to_string(path).with_context(|| format!("trace {}", path.display()))?;
    parse(&text).with_context(|| format!("trace {}", path.display()))
}

fn parse(text: &str) -> Result<Read> {
    let mut read = Read::default();
    for line in text.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
        let value: Value = serde_json::from_str(line).with_context(|| format!("line `{line}`"))?;
        let number = |key: &str| value[key].as_u64();
        if let (Some(slot), Some(incarnation)) = (number("process"), number("life")) {
            read.process = Some((u32::try_from(slot)?, incarnation));
            continue;
        }
        let values = value["values"].as_array().context("no values")?;
        let mut seen = TraceEvent {
            at_ns: number("at_ns").context("no time")?,
            event: value["event"].as_str().context("no event")?.to_owned(),
            values: [0; 3],
        };
        for (into, value) in seen.values.iter_mut().zip(values) {
            *into = value.as_u64().context("a value is no number")?;
        }
        read.events.push(seen);
    }
    Ok(read)
}

#[cfg(test)]
mod tests {
    use super::*;
    use itg_group::membership::MembershipEvent;
    use itg_process::Level;

    #[test]
    fn a_trace_is_read_as_it_was_written_and_as_far_as_it_is_whole() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("trace.ndjson");
        let mut trace = Trace::create(&path).expect("created");
        let installed = MembershipEvent::Installed { no: 2, digest: u64::MAX, incarnation: 1 };
        let event = Event::new(Level::Info, installed);
        trace.event(&event).expect("written");
        trace.try_clone().expect("a file").process(3, 1).expect("written");
        trace.event(&event).expect("written");
        trace.0.write_all(b"{\"at_ns\":1,\"eve").expect("written");
        let read = read(&path).expect("read");
        assert_eq!(read.process, Some((3, 1)));
        assert_eq!(read.events.len(), 2);
        assert_eq!(read.events[0].decode(), Some(installed));
        assert!(read.events[0].at_ns <= read.events[1].at_ns);
        for text in ["x\n", "{}\n", "{\"at_ns\":1,\"event\":\"a\",\"values\":[-1]}\n"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
