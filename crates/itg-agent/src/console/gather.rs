//! The end of a run over agents: all senders and receivers come to their end, and the logs of all nodes are fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, anyhow};
use itg_control::Command;
use itg_core::units::format_duration_ns;
use itg_socket::clock;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::{Console, LOOK, Node, nanoseconds};
use crate::collect::{self, Patience, Source};
use crate::finding::call;
use crate::missing::Step;
use crate::wire::{Call, Logs, Reply};

/// Times from the beginning of the end of a run.
#[derive(Debug)]
pub(super) struct Ending {
    /// Until then senders come to their end …
    drained: Duration,
    /// … receivers close their logs …
    closed: Duration,
    /// … and nodes of which no byte has come are asked for theirs.
    fetched: Duration,
}

/// Those of a run that ends by itself.
pub(super) const USUAL: Ending = Ending {
    drained: Duration::from_secs(15),
    closed: Duration::from_secs(25),
    fetched: Duration::from_secs(35),
};

/// Those of one that a signal ends.
pub(super) const HURRY: Ending = Ending {
    drained: Duration::from_secs(2),
    closed: Duration::from_secs(4),
    fetched: Duration::from_secs(6),
};

/// Time between two questions of a console that is cut off.
const ASKED: Duration = Duration::from_secs(1);
/// Time for the last answer of a node that is not done.
const GRACE: Duration = Duration::from_secs(1);
/// Time in which a node that is no member comes back at the end, so that its logs are fetched.
const BACK: Duration = Duration::from_secs(3);

/// Nodes by their slots.
type Sources = BTreeMap<u32, Source>;

impl Console {
    /// Asks all nodes, one after the other, whether they have closed their logs: true if all have.
    pub(super) fn ask_whether_closed(&self) -> JoinHandle<bool> {
        let addresses: Vec<String> = self.nodes.iter().map(|node| node.address.clone()).collect();
        let (trust, run) = (self.trust.clone(), self.run.clone());
        tokio::spawn(async move {
            tokio::time::sleep(ASKED).await;
            for address in addresses {
                let state = call(&trust, &address, Call::List(run.clone())).await;
                if !matches!(state, Ok(Reply::Files { state: Logs::Closed, .. })) {
                    return false;
                }
            }
            true
        })
    }

    /// Ends the run and fetches the logs of all nodes.
    pub(super) async fn gather(&mut self, out: &Path, times: &Ending) -> Result<Vec<PathBuf>> {
        let began = Instant::now();
        let until_ns = clock::monotonic_ns().saturating_add(nanoseconds(times.fetched));
        self.order(Command::Drain).await;
        let source = |(slot, node): (u32, &Node)| {
            (slot, Source::new(self.trust.clone(), node.address.clone(), self.run.clone()))
        };
        let sources = (0_u32..).zip(&self.nodes).map(source).collect();
        // Receivers wait for the last words of all senders.
        let until = (began + times.drained, until_ns);
        let (sources, drained) = self.wait_for_logs(sources, false, until).await?;
        for (slot, done) in drained {
            if let Err(error) = done {
                tracing::warn!("node {}: {error:#}", self.name(slot));
            }
        }
        self.order(Command::End).await;
        let mut whole = BTreeSet::new();
        let until = (began + times.closed, until_ns);
        let (sources, closed) = self.wait_for_logs(sources, true, until).await?;
        for (slot, done) in closed {
            let name = self.name(slot).to_owned();
            match done {
                Err(error) => {
                    self.lost_logs.push((name, format!("its logs are not complete: {error:#}")));
                }
                Ok(()) => drop(whole.insert(slot)),
            }
        }
        self.fetch(out, sources, &whole, (began + times.fetched, until_ns)).await
    }

    /// Fetches the logs of all nodes, side by side; those that were `whole` a moment ago, and members, are asked until then.
    async fn fetch(
        &mut self,
        out: &Path,
        sources: Sources,
        whole: &BTreeSet<u32>,
        (until, until_ns): (Instant, u64),
    ) -> Result<Vec<PathBuf>> {
        let mut fetching = JoinSet::new();
        for (slot, mut source) in sources {
            let dir = out.join(self.name(slot));
            let again = whole.contains(&slot) || self.members.contains(&slot);
            let until = if again { until } else { Instant::now() };
            fetching.spawn(async move { (slot, collect::fetch(&mut source, &dir, until).await) });
        }
        let mut fetched = BTreeMap::new();
        loop {
            match tokio::time::timeout(LOOK, fetching.join_next()).await {
                Ok(Some(next)) => {
                    let (slot, done) = next?;
                    fetched.insert(slot, done);
                }
                Ok(None) => break,
                Err(_) => {
                    // Who is reached, or was done, is not missing, but waited for.
                    let mut there = self.reached();
                    there.extend(fetched.keys());
                    self.miss(&there, &Step::Ending(until_ns));
                }
            }
        }
        let mut logs = Vec::new();
        for ((_, done), node) in fetched.into_iter().zip(self.nodes.clone()) {
            match done {
                Ok(found) => {
                    self.skew(&node, &found);
                    logs.extend(found);
                }
                Err(error) => self.lost_logs.push((node.name, format!("{error:#}"))),
            }
        }
        Ok(logs)
    }

    /// Waits for all nodes at once to send nothing any more, or to close their logs; says meanwhile whom it waits for.
    async fn wait_for_logs(
        &mut self,
        sources: Sources,
        closed: bool,
        (until, until_ns): (Instant, u64),
    ) -> Result<(Sources, Vec<(u32, Result<()>)>)> {
        let mut waiting = JoinSet::new();
        for (slot, mut source) in sources {
            let back = match (self.members.contains(&slot), self.absent.contains_key(&slot)) {
                (true, _) => USUAL.fetched,
                (false, false) => BACK,
                (false, true) => Duration::ZERO,
            };
            let patience = Patience { until, back };
            waiting.spawn(async move {
                let waiting = collect::wait(&mut source, closed, patience);
                let done = tokio::time::timeout_at(until + GRACE, waiting).await;
                (slot, source, done.unwrap_or_else(|_| Err(anyhow!("no answer in time"))))
            });
        }
        let (mut sources, mut all) = (Sources::new(), Vec::new());
        loop {
            match tokio::time::timeout(LOOK, waiting.join_next()).await {
                Ok(Some(next)) => {
                    let (slot, source, outcome) = next?;
                    sources.insert(slot, source);
                    all.push((slot, outcome));
                }
                Ok(None) => return Ok((sources, all)),
                Err(_) => {
                    // Who is reached, or was done, is not missing, but waited for.
                    let mut there = self.reached();
                    there.extend(sources.keys());
                    self.miss(&there, &Step::Ending(until_ns));
                }
            }
        }
    }

    /// Notes how well a node has kept the common start.
    fn skew(&mut self, node: &Node, logs: &[PathBuf]) {
        let mut worst: Option<(u64, usize)> = None;
        for log in logs {
            let Ok(bytes) = fs::read(log) else { continue };
            if let Some((late, flows)) = collect::start_lateness(&bytes) {
                let (before, count) = worst.unwrap_or_default();
                worst = Some((before.max(late), count + flows));
            }
        }
        let (offset, uncertainty) = node.clock;
        let text = match worst {
            Some((late, flows)) => format!(
                "first packets of {flows} flows at most {} late; clock {offset:+} ns from the console's, ± {}",
                format_duration_ns(late),
                format_duration_ns(uncertainty)
            ),
            None => format!(
                "began no flow; clock {offset:+} ns from the console's, ± {}",
                format_duration_ns(uncertainty)
            ),
        };
        self.settings.insert(format!("start {}", node.name), text);
    }
}
