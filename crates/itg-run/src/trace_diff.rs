//! `itg-cluster diff A B` of two traces: what differs first, how often each event is there, how long messages take.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use itg_cli::{Failure, print};
use itg_core::units::format_duration_ns;
use serde_json::{Value, json};

use crate::diff::{DiffArgs, Format};
use crate::trace::{self, ProcessEvent, TraceEvent};

/// Compares; exit code 1 when the processes of one trace say something else than those of the other.
pub(crate) fn run(args: &DiffArgs) -> Result<ExitCode> {
    let [a, b] = [&args.real, &args.sim].map(|path| trace::read(path).map(Trace::of));
    let (a, b) = (a?, b?);
    let first = first_difference(&a, &b);
    match args.format {
        Format::Text => print(&text(&a, &b, first.as_deref()))?,
        Format::Json => {
            print(&(serde_json::to_string_pretty(&json(&a, &b, first.as_deref()))? + "\n"))?
        }
    }
    match first {
        None => Ok(ExitCode::SUCCESS),
        Some(first) => Err(Failure::new(1, format!("the traces differ: {first}")).into()),
    }
}

/// Layer and name of an event.
type Name = (String, String);

/// What is compared of a trace.
#[derive(Debug, Default)]
struct Trace {
    /// What layers and the runtime say, for each process in order, with the time from the start of the trace.
    said: BTreeMap<u32, Vec<(u64, TraceEvent)>>,
    counts: BTreeMap<Name, u64>,
    /// Delays of messages, for each type.
    delays: BTreeMap<u32, Delays>,
}

/// Delays of messages of one type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Delays {
    count: u64,
    sum_ns: u64,
    most_ns: u64,
}

impl Delays {
    fn add(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.most_ns = self.most_ns.max(ns);
    }

    const fn mean_ns(self) -> Option<u64> {
        self.sum_ns.checked_div(self.count)
    }
}

impl Trace {
    fn of(mut lines: Vec<TraceEvent>) -> Self {
        lines.sort_by_key(|line| line.at_ns);
        let start = lines.first().map_or(0, |line| line.at_ns);
        let mut trace = Self::default();
        // Sent and delivered, for each way, network, type and length.
        let mut ways: BTreeMap<_, [Vec<u64>; 2]> = BTreeMap::new();
        for line in lines.into_iter().filter(|line| !line.is_healed()) {
            let name = (line.layer.clone(), line.event.clone());
            *trace.counts.entry(name).or_default() += 1;
            let message = line.layer.starts_with("network ").then(|| line.decode()).flatten();
            let (from, to, ty, bytes, which) = match message {
                Some(ProcessEvent::Sent { to, ty, bytes }) => (line.process, to.0, ty, bytes, 0),
                Some(ProcessEvent::Delivered { from, ty, bytes }) => {
                    (from.0, line.process, ty, bytes, 1)
                }
                _ => {
                    let own = trace.said.entry(line.process).or_default();
                    own.push((line.at_ns - start, line));
                    continue;
                }
            };
            let way = ways.entry((from, to, line.layer, ty, bytes)).or_default();
            way[which].push(line.at_ns);
        }
        // The kth that arrives is the kth that was sent, where none is lost.
        for ((_, _, _, ty, _), [sent, delivered]) in ways {
            if sent.len() == delivered.len() {
                let delays = trace.delays.entry(ty).or_default();
                for (sent, delivered) in sent.into_iter().zip(delivered) {
                    delays.add(delivered.saturating_sub(sent));
                }
            }
        }
        trace
    }
}

/// First event, by its time, that a process of one trace has where the same process of the other has another one.
fn first_difference(a: &Trace, b: &Trace) -> Option<String> {
    let nothing = Vec::new();
    let processes = a.said.keys().chain(b.said.keys());
    let differing = processes.filter_map(|process| {
        let [a, b] = [a, b].map(|trace| trace.said.get(process).unwrap_or(&nothing));
        let same = |(one, other): &(&(u64, TraceEvent), &(u64, TraceEvent))| {
            let what = |(_, line): &(u64, TraceEvent)| {
                (line.layer.clone(), line.event.clone(), line.values)
            };
            what(one) == what(other)
        };
        let at = a.iter().zip(b).take_while(same).count();
        let (one, other) = (a.get(at), b.get(at));
        let time = one.or(other).map(|(time, _)| *time)?;
        Some((time, *process, at, one, other))
    });
    let (_, process, at, one, other) =
        differing.min_by_key(|(time, process, ..)| (*time, *process))?;
    let told = |side: Option<&(u64, TraceEvent)>| {
        side.map_or_else(
            || "nothing".to_owned(),
            |(time, line)| {
                let TraceEvent { layer, event, values, .. } = line;
                format!("{layer} {event} {values:?} at {}", shown(*time))
            },
        )
    };
    Some(format!(
        "process {process}, its event {}: {}, and in the second {}",
        at + 1,
        told(one),
        told(other)
    ))
}

/// A time for people: from 10 µs on without nanoseconds.
fn shown(ns: u64) -> String {
    format_duration_ns(if ns < 10_000 { ns } else { ns / 1000 * 1000 })
}

/// Names of all events of both traces, with their counts.
fn counts(a: &Trace, b: &Trace) -> BTreeMap<Name, [u64; 2]> {
    let mut both: BTreeMap<Name, [u64; 2]> = BTreeMap::new();
    for (which, trace) in [a, b].into_iter().enumerate() {
        for (name, count) in &trace.counts {
            both.entry(name.clone()).or_default()[which] = *count;
        }
    }
    both
}

/// Types of messages with delays in either trace.
fn delays(a: &Trace, b: &Trace) -> BTreeMap<u32, [Delays; 2]> {
    let mut both: BTreeMap<u32, [Delays; 2]> = BTreeMap::new();
    for (which, trace) in [a, b].into_iter().enumerate() {
        for (ty, delays) in &trace.delays {
            both.entry(*ty).or_default()[which] = *delays;
        }
    }
    both
}

fn text(a: &Trace, b: &Trace, first: Option<&str>) -> String {
    let mut text = match first {
        None => "all processes say the same, in the same order\n".to_owned(),
        Some(first) => format!("first difference: {first}\n"),
    };
    // Writing to a text does not fail.
    writeln!(text, "\n{:<40} {:>12} {:>12}", "events", "first", "second").unwrap_or_default();
    for ((layer, event), [one, other]) in counts(a, b) {
        let name = format!("{layer}: {event}");
        writeln!(text, "{name:<40} {one:>12} {other:>12}").unwrap_or_default();
    }
    let delays = delays(a, b);
    if !delays.is_empty() {
        let head = "delays of messages, mean (most)";
        writeln!(text, "\n{head:<40} {:>24} {:>24}", "first", "second").unwrap_or_default();
        for (ty, both) in delays {
            let [one, other] = both.map(|delays| {
                delays.mean_ns().map_or_else(String::new, |mean| {
                    let most = shown(delays.most_ns);
                    format!("{} ({most})", shown(mean))
                })
            });
            let name = format!("type {ty}");
            writeln!(text, "{name:<40} {one:>24} {other:>24}").unwrap_or_default();
        }
    }
    text
}

fn json(a: &Trace, b: &Trace, first: Option<&str>) -> Value {
    let events = counts(a, b).into_iter().map(|((layer, event), [one, other])| {
        json!({ "layer": layer, "event": event, "first": one, "second": other })
    });
    let delays = delays(a, b).into_iter().map(|(ty, both)| {
        let [one, other] = both.map(|delays| {
            let Delays { count, most_ns, .. } = delays;
            json!({ "count": count, "mean_ns": delays.mean_ns(), "most_ns": most_ns })
        });
        json!({ "type": ty, "first": one, "second": other })
    });
    json!({
        "first_difference": first,
        "events": events.collect::<Vec<_>>(),
        "delays": delays.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(at_ns: u64, process: u32, layer: &str, event: &str, values: [u64; 3]) -> TraceEvent {
        let (layer, event) = (layer.to_owned(), event.to_owned());
        TraceEvent { at_ns, process, layer, event, values }
    }

    #[test]
    fn what_differs_first_is_named_and_messages_are_timed() {
        let a = vec![
            line(1000, 0, "mutex", "enter", [1, 0, 0]),
            line(1000, 0, "network 0", "send", [1, 7, 8]),
            line(1400, 1, "network 0", "deliver", [0, 7, 8]),
            line(2000, 0, "network 0", "send", [1, 7, 8]),
            line(2800, 1, "network 0", "deliver", [0, 7, 8]),
            line(3000, 1, "mutex", "enter", [2, 0, 0]),
        ];
        // Another clock, and the same events.
        let later = |line: &TraceEvent| TraceEvent { at_ns: line.at_ns + 77, ..line.clone() };
        let mut b: Vec<_> = a.iter().map(later).collect();
        let of = |lines: &Vec<TraceEvent>| Trace::of(lines.clone());
        assert_eq!(first_difference(&of(&a), &of(&b)), None);
        assert_eq!(of(&a).delays[&7], Delays { count: 2, sum_ns: 1200, most_ns: 800 });
        b[5].values[0] = 3;
        b.push(line(9000, 0, "mutex", "leave", [0; 3]));
        let first = first_difference(&of(&a), &of(&b)).expect("one");
        assert_eq!(
            first,
            "process 1, its event 1: mutex enter [2, 0, 0] at 2us, and in the second mutex enter [3, 0, 0] at 2us"
        );
        assert!(text(&of(&a), &of(&b), None).contains("type 7"), "delays are there");
        // One that is lost: nobody knows which.
        b.remove(2);
        assert!(of(&b).delays.is_empty());
    }
}
