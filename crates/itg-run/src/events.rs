//! `itg-cluster run … --events FILE`: what happens, as it happens, one JSON object a line (NDJSON).
//!
//! The layout is that of [`Line`], whose JSON Schema is `docs/events.schema.json`. The live view is fed by the same
//! lines. A file that cannot be written any more is complained of once; the run goes on.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::{Context as _, Result};
use itg_cli::say;
use itg_experiment::Plan;
use itg_socket::clock;
use serde::{Deserialize, Serialize};

use crate::figures::{Figures, FlowFigures};

/// Version of the lines.
const SCHEMA: u32 = 1;

/// A line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Line {
    /// Version of this layout: 1.
    pub schema: u32,
    /// Instant of the event by the clock of this host: Unix time in nanoseconds.
    pub at_unix_ns: u64,
    /// Nanoseconds since the run was begun.
    pub since_ns: u64,
    /// The event.
    #[serde(flatten)]
    pub what: What,
}

/// An event of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// A run begins.
    Run {
        /// Name of the experiment.
        name: String,
        /// `local`, `cluster` or `mpi`.
        world: String,
        /// The run seed.
        seed: u64,
        /// Hash of the plan.
        plan: String,
        /// Names of its nodes; empty on one host.
        nodes: Vec<String>,
        /// Its flows by number, from 1.
        flows: Vec<FlowName>,
    },
    /// A node is in another state.
    Node {
        /// Its name.
        node: String,
        /// The state.
        state: NodeState,
        /// Reason, where it is known.
        why: Option<String>,
    },
    /// The group has another view.
    View {
        /// Its number.
        number: u64,
        /// Its members; `console` is this program.
        members: Vec<String>,
        /// Members of the view before that are not in this one.
        left: Vec<String>,
        /// Members that came.
        came: Vec<String>,
        /// Cause of it, as far as this program knows: which member reported which one first, else
        /// the first sign that it saw itself, else that it is not known; which ones asked to join.
        /// Never empty.
        cause: String,
        /// From that report or sign to the view, in nanoseconds; none without one.
        agreed_after_ns: Option<u64>,
    },
    /// Every flow that has not ended has an owner in the view again, and none is being handed over.
    Stable {
        /// Number of the view.
        view: u64,
        /// From the view to this, in nanoseconds, to the next look (100 ms).
        after_ns: u64,
    },
    /// A flow is in another state, or with another node.
    Flow {
        /// Its number.
        flow: u32,
        /// The state.
        state: FlowState,
        /// The node that sends it; none when no node does.
        owner: Option<String>,
        /// The node that sent it before, if that was another one.
        before: Option<String>,
    },
    /// A command was carried out, as all members carry it out.
    Command {
        /// Its position in the order.
        position: u64,
        /// Member that has cast it.
        by: String,
        /// The command for people.
        command: String,
        /// The command, with its parts.
        action: Action,
        /// Reason that it is void; none when it is not.
        void: Option<String>,
    },
    /// Counts of what was sent so far, and in the time since the line before of this kind. About
    /// one each second.
    Statistics {
        /// All flows together.
        total: Statistics,
        /// 99 % of the packets since the line before left at most this late, in nanoseconds: the bound of a
        /// class (factors of 4), or above 4.2 s the largest lateness of the run; none without packets.
        lateness_p99_ns: Option<u64>,
        /// Each flow that has sent something; number 0 adds up those for which there was no room.
        flows: Vec<FlowStatistics>,
    },
    /// Nodes are missing, or too few are reached to agree on anything. Once a second as long as that is so.
    Missing {
        /// The nodes; none when all are there and yet nothing can be agreed.
        nodes: Vec<MissingNode>,
        /// Event that this program waits for, in words.
        waits_for: String,
        /// Instant at which it gives up (Unix time in nanoseconds); none without a limit.
        gives_up_unix_ns: Option<u64>,
    },
    /// Something else worth a word.
    Word {
        /// The words.
        text: String,
    },
    /// The run is over; its report may still be made.
    End {
        /// Reason that it has ended before its time; none when it has not.
        interrupted: Option<String>,
    },
}

impl What {
    /// The beginning of a run of this plan: in which world, on which nodes.
    pub fn run(plan: &Plan, world: &str, nodes: Vec<String>) -> Self {
        let flows = plan.flows.iter().map(|planned| FlowName {
            flow: planned.flow.spec().id,
            name: planned.name.clone(),
            from: planned.from.clone(),
            to: planned.to.clone(),
        });
        Self::Run {
            name: plan.name.clone(),
            world: world.to_owned(),
            seed: plan.seed.0,
            plan: plan.hash_text(),
            nodes,
            flows: flows.collect(),
        }
    }
}

/// A command of an experiment, with its parts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Action {
    /// Members get the description of the experiment.
    Load {
        /// Number of its flows.
        flows: u64,
    },
    /// The member that casts this has the description and can do its part.
    Ready,
    /// The member that casts this cannot, or does not want to.
    Refuse {
        /// Reason of the refusal.
        why: String,
    },
    /// Owners make ready.
    Arm,
    /// Planned times count from an instant on.
    Start {
        /// The instant, Unix time in nanoseconds by the clock of the member that casts this.
        start_unix_ns: u64,
    },
    /// A flow ends early.
    Stop {
        /// Its number; none: all flows.
        flow: Option<u32>,
    },
    /// Another node shall send a flow.
    Move {
        /// Its number.
        flow: u32,
        /// The node.
        node: String,
    },
    /// The old owner of a flow that moves has sent its last packet.
    Released {
        /// Its number.
        flow: u32,
        /// Number of the packet behind the last one.
        next_seq: u64,
    },
    /// A flow has been sent to its end.
    Finished {
        /// Its number.
        flow: u32,
        /// Number of the packet behind the last one.
        next_seq: u64,
    },
    /// A flow ends before its last packet: its owner cannot send it on.
    GiveUp {
        /// Its number.
        flow: u32,
        /// Reason.
        why: String,
    },
    /// A flow goes on at another rate from an instant on.
    SetRate {
        /// Its number; none: all flows.
        flow: Option<u32>,
        /// The instant, in nanoseconds after the start of the experiment.
        at_ns: u64,
        /// Multiple of the rate that the experiment asks for.
        times: f64,
    },
    /// A remark for the report.
    Mark {
        /// Its text.
        label: String,
    },
    /// The member that casts this asks for a lease.
    Renew,
    /// No flow goes on; logs are closed and handed over.
    Drain,
    /// The experiment is over.
    End,
}

/// The name of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowName {
    /// Its number.
    pub flow: u32,
    /// Its name.
    pub name: String,
    /// The node that sends.
    pub from: String,
    /// The node that receives.
    pub to: String,
}

/// A node that is missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MissingNode {
    /// Its name.
    pub node: String,
    /// Instant since which it has been missing: Unix time in nanoseconds.
    pub since_unix_ns: u64,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// It is a member.
    Joined,
    /// It has the description and can do its part.
    Ready,
    /// It does not take part: it is not reached, or does not want to.
    Absent,
    /// It is a member no more.
    Left,
}

/// The state of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FlowState {
    /// Its owner may not send yet, or it has none.
    Waiting,
    /// Its owner sends it.
    Running,
    /// Its owner is to stop, because another one follows.
    Handing,
    /// It was stopped.
    Stopped,
    /// It was sent to its end.
    Finished,
}

/// Counters, and rates since the line before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Statistics {
    /// Packets handed to the kernel.
    pub sent_packets: u64,
    /// Bytes of these.
    pub sent_bytes: u64,
    /// Packets a second; none where counters of a node are not in the sums any more, or are again.
    pub packet_rate_pps: Option<f64>,
    /// Bits a second; likewise.
    pub bitrate_bps: Option<f64>,
    /// Packets that receivers had not read when they were asked last: lost, or on their way; none as long as the
    /// receiver of one has not told.
    pub missing_packets: Option<u64>,
    /// The share of these.
    pub missing: Option<f64>,
    /// Largest lateness of a packet so far, in nanoseconds.
    pub lateness_max_ns: u64,
}

/// Of one flow.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct FlowStatistics {
    /// Its number.
    pub flow: u32,
    /// Its figures.
    #[serde(flatten)]
    pub figures: Statistics,
}

impl Statistics {
    #[expect(clippy::cast_precision_loss, reason = "rates for people and plots")]
    fn of(now: &FlowFigures, before: Option<&FlowFigures>, seconds: f64) -> Self {
        let before = before.copied().unwrap_or_default();
        let rate = |now: u64, before: u64| {
            now.checked_sub(before).map(|more| more as f64 / seconds.max(1e-3))
        };
        Self {
            sent_packets: now.sent_packets,
            sent_bytes: now.sent_bytes,
            packet_rate_pps: rate(now.sent_packets, before.sent_packets),
            bitrate_bps: rate(now.sent_bytes, before.sent_bytes).map(|bytes| 8.0 * bytes),
            missing_packets: now.missing_packets,
            missing: now
                .missing_packets
                .map(|missing| missing as f64 / now.sent_packets.max(1) as f64),
            lateness_max_ns: now.lateness_max_ns,
        }
    }

    fn without_rates(self) -> Self {
        Self { packet_rate_pps: None, bitrate_bps: None, ..self }
    }
}

/// Callback that gets each line.
pub type Viewer = Box<dyn FnMut(&Line) + Send>;

/// Destination of the lines; clones share it.
#[derive(Clone, Default)]
pub struct Events(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    out: Option<Box<dyn Write + Send>>,
    viewer: Option<Viewer>,
    began: Option<Instant>,
    /// Its end was told.
    over: bool,
    /// The figures before, and when they came.
    figures: Option<(Figures, Instant)>,
    /// Most packets that were told of each flow.
    most: BTreeMap<u32, u64>,
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Events")
    }
}

impl Events {
    /// Lines to this file, behind those that it has where `more` is set; `-` is stdout.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn to(path: Option<&Path>, more: bool) -> Result<Self> {
        let out: Option<Box<dyn Write + Send>> = match path {
            None => None,
            Some(path) if path == Path::new("-") => Some(Box::new(std::io::stdout())),
            Some(path) => {
                let mut options = File::options();
                options.create(true).write(true).append(more).truncate(!more);
                let file = options.open(path);
                Some(Box::new(file.with_context(|| format!("events to {}", path.display()))?))
            }
        };
        Ok(Self(Arc::new(Mutex::new(Inner { out, ..Inner::default() }))))
    }

    /// Shows the lines to a viewer, too; `None`: to none any more.
    pub fn show(&self, viewer: Option<Viewer>) {
        self.inner().viewer = viewer;
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A run begins: times count from now.
    pub fn begin(&self, run: What) {
        {
            let mut inner = self.inner();
            (inner.began, inner.over) = (Some(Instant::now()), false);
            inner.figures = None;
            inner.most.clear();
        }
        self.tell(run);
    }

    /// The run that was begun is over; what is said of it later does not count.
    pub fn end(&self, interrupted: Option<String>) {
        {
            let mut inner = self.inner();
            if inner.began.is_none() || inner.over {
                return;
            }
            inner.over = true;
        }
        self.tell(What::End { interrupted });
    }

    /// Returns true if a file or a viewer gets the lines.
    #[must_use]
    pub fn are_heard(&self) -> bool {
        let inner = self.inner();
        inner.out.is_some() || inner.viewer.is_some()
    }

    /// Something has happened.
    pub fn tell(&self, what: What) {
        let mut inner = self.inner();
        if inner.out.is_none() && inner.viewer.is_none() {
            return;
        }
        let since = inner.began.map(|began| began.elapsed().as_nanos());
        let since_ns = since.and_then(|ns| u64::try_from(ns).ok()).unwrap_or(0);
        let line = Line { schema: SCHEMA, at_unix_ns: clock::unix_ns(), since_ns, what };
        if let Some(viewer) = &mut inner.viewer {
            viewer(&line);
        }
        let Some(out) = &mut inner.out else { return };
        let written =
            serde_json::to_vec(&line).map_err(std::io::Error::other).and_then(|mut text| {
                text.push(b'\n');
                out.write_all(&text)?;
                out.flush()
            });
        if let Err(error) = written {
            inner.out = None;
            say(format_args!("itg-cluster: events are not written any more: {error}"));
        }
    }

    /// Figures have come: what they are, and what has changed since those before.
    pub fn statistics(&self, now: &Figures) {
        let what = {
            let mut inner = self.inner();
            let at = Instant::now();
            let (before, seconds) = match &inner.figures {
                Some((before, then)) => (Some(before), at.duration_since(*then).as_secs_f64()),
                None => (None, inner.began.map_or(1.0, |began| began.elapsed().as_secs_f64())),
            };
            // Counters that were not in the sums before, and are again: they did not grow since then alone.
            let mut returned = false;
            let flows = now.flows.iter().map(|(flow, figures)| {
                let then = before.and_then(|before| before.flows.get(flow));
                let most = inner.most.get(flow).copied().unwrap_or(0);
                let known = Statistics::of(figures, then, seconds);
                let back =
                    then.map_or(0, |then| then.sent_packets) < most && figures.sent_packets >= most;
                returned |= back;
                FlowStatistics {
                    flow: *flow,
                    figures: if back { known.without_rates() } else { known },
                }
            });
            let flows = flows.collect();
            let then = before.map(Figures::total);
            let mut total = Statistics::of(&now.total(), then.as_ref(), seconds);
            let mut lateness_p99_ns = now.late_p99_ns(before);
            if returned || before.is_some_and(|before| now.lacks(before)) {
                (total, lateness_p99_ns) = (total.without_rates(), None);
            }
            for (flow, figures) in &now.flows {
                let most = inner.most.entry(*flow).or_default();
                *most = figures.sent_packets.max(*most);
            }
            inner.figures = Some((now.clone(), at));
            What::Statistics { total, lateness_p99_ns, flows }
        };
        self.tell(what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_up_to_date() {
        itg_testkit::published::compare("events", &schemars::schema_for!(Line));
    }

    #[test]
    fn rates_are_not_known_when_the_counters_of_a_node_are_gone() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.ndjson");
        let events = Events::to(Some(&path), false).expect("a file");
        events.begin(What::Word { text: "first".to_owned() });
        let flow = |packets| FlowFigures { sent_packets: packets, ..FlowFigures::default() };
        let of = |flows: &[(u32, u64)], late: [u64; 2]| {
            let mut figures = Figures::default();
            figures.flows.extend(flows.iter().map(|(number, packets)| (*number, flow(*packets))));
            figures.late[..2].copy_from_slice(&late);
            figures
        };
        // Flow 2 goes with its node, and flow 1 has a new owner then.
        for figures in [
            of(&[(1, 10), (2, 1000)], [10, 1000]),
            of(&[(1, 20_000)], [20_000, 0]),
            of(&[(1, 5)], [5, 0]),
            of(&[(1, 15)], [15, 0]),
            // Its counters are in the sums again, with those of its new owner.
            of(&[(1, 20_030)], [20_030, 0]),
            of(&[(1, 20_040)], [20_040, 0]),
        ] {
            events.statistics(&figures);
        }
        let text = std::fs::read_to_string(&path).expect("text");
        let known: Vec<_> = (text.lines().skip(1))
            .map(|line| match serde_json::from_str::<Line>(line).expect("a line").what {
                What::Statistics { total, lateness_p99_ns, flows } => (
                    total.packet_rate_pps.is_some(),
                    flows[0].figures.packet_rate_pps.is_some(),
                    lateness_p99_ns.is_some(),
                ),
                _ => panic!("{line}"),
            })
            .collect();
        let [all, none] = [(true, true, true), (false, false, false)];
        assert_eq!(known, [all, (false, true, false), none, all, none, all], "{text}");
    }

    #[test]
    fn lines_are_objects_that_are_read_back() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("events.ndjson");
        let events = Events::to(Some(&path), false).expect("a file");
        events.begin(What::Word { text: "first".to_owned() });
        let flow = |packets| FlowFigures {
            sent_packets: packets,
            sent_bytes: 100 * packets,
            missing_packets: Some(packets / 10),
            lateness_max_ns: 5,
        };
        let mut figures = Figures::default();
        figures.flows.insert(3, flow(10));
        events.statistics(&figures);
        figures.flows.insert(3, flow(30));
        figures.late[1] = 4;
        events.statistics(&figures);
        events.tell(What::Node { node: "a".to_owned(), state: NodeState::Left, why: None });
        let text = std::fs::read_to_string(&path).expect("text");
        let lines: Vec<Line> =
            text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect();
        assert_eq!(lines.len(), 4);
        assert!(lines.is_sorted_by_key(|line| line.since_ns), "{text}");
        let What::Statistics { total, lateness_p99_ns, flows } = &lines[2].what else {
            panic!("{text}");
        };
        assert_eq!((total.sent_packets, total.missing_packets, flows[0].flow), (30, Some(3), 3));
        assert!(total.missing.is_some_and(|share| (share - 0.1).abs() < 1e-12));
        // 20 packets of 100 bytes since the line before, whatever time that took.
        let rates = total.bitrate_bps.zip(total.packet_rate_pps).expect("known");
        assert!((rates.0 / rates.1 - 800.0).abs() < 1e-6);
        assert_eq!(*lateness_p99_ns, Some(4000));
        let value: serde_json::Value =
            serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        assert_eq!((&value["event"], &value["state"]), (&"node".into(), &"left".into()));
        let more = Events::to(Some(&path), true).expect("a file");
        more.end(None);
        more.begin(What::Word { text: "second".to_owned() });
        more.end(Some("a fault".to_owned()));
        more.end(None);
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text.lines().count(), 6, "what was there, a beginning, one end: {text}");
        assert!(text.ends_with("\"event\":\"end\",\"interrupted\":\"a fault\"}\n"), "{text}");
    }
}
