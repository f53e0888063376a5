//! The end of a run over agents: all senders and receivers come to their end, and the logs of all nodes are fetched.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use itg_control::Command;
use itg_core::units::format_duration_ns;
use itg_socket::clock;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Console, LOOK, Node, nanoseconds};
use crate::collect::{self, Patience};
use crate::missing::Step;

/// Time that senders may take to come to their end, and receivers behind them.
const ENDING: Duration = Duration::from_secs(20);
/// Time in which a node that is no member comes back at the end, so that its logs are fetched.
const BACK: Duration = Duration::from_secs(3);
/// Time in which logs of a node that was there shortly before are asked for again, and the time between two attempts.
const FETCHING: Duration = Duration::from_secs(10);
const FETCH_AGAIN: Duration = Duration::from_millis(250);

impl Console {
    /// Ends the run and fetches the logs of all nodes.
    pub(super) async fn gather(&mut self, out: &Path) -> Result<Vec<PathBuf>> {
        self.order(Command::Drain).await;
        // Receivers wait for the last words of all senders.
        for (slot, done) in self.wait_for_logs(false).await? {
            if let Err(error) = done {
                tracing::warn!("node {}: {error:#}", self.name(slot));
            }
        }
        self.order(Command::End).await;
        let mut whole = BTreeSet::new();
        for (slot, done) in self.wait_for_logs(true).await? {
            let name = self.name(slot).to_owned();
            match done {
                Err(error) => {
                    self.lost_logs.push((name, format!("its logs are not complete: {error:#}")));
                }
                Ok(()) => drop(whole.insert(slot)),
            }
        }
        self.fetch(out, &whole).await
    }

    /// Fetches the logs of all nodes, side by side; those that were `whole` a moment ago are asked for again.
    async fn fetch(&mut self, out: &Path, whole: &BTreeSet<u32>) -> Result<Vec<PathBuf>> {
        let until = Instant::now() + FETCHING;
        let until_ns = clock::monotonic_ns().saturating_add(nanoseconds(FETCHING));
        let mut fetching = JoinSet::new();
        for (slot, node) in (0_u32..).zip(self.nodes.clone()) {
            let (trust, run, dir) = (self.trust.clone(), self.run.clone(), out.join(&node.name));
            let again = whole.contains(&slot);
            fetching.spawn(async move {
                loop {
                    match collect::fetch(&trust, &node.address, &run, &dir).await {
                        // Its agent is being started again.
                        Err(_) if again && Instant::now() < until => {
                            tokio::time::sleep(FETCH_AGAIN).await;
                        }
                        fetched => return (slot, fetched),
                    }
                }
            });
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
    async fn wait_for_logs(&mut self, closed: bool) -> Result<Vec<(u32, Result<()>)>> {
        let until_ns = clock::monotonic_ns().saturating_add(nanoseconds(ENDING));
        let mut waiting = JoinSet::new();
        for (slot, node) in (0_u32..).zip(self.nodes.clone()) {
            let (trust, run) = (self.trust.clone(), self.run.clone());
            let back = match (self.members.contains(&slot), self.absent.contains_key(&slot)) {
                (true, _) => ENDING,
                (false, false) => BACK,
                (false, true) => Duration::ZERO,
            };
            let patience = Patience { limit: ENDING, back };
            waiting.spawn(async move {
                (slot, collect::wait(&trust, &node.address, &run, closed, patience).await)
            });
        }
        let (mut all, mut done) = (Vec::new(), BTreeSet::new());
        loop {
            match tokio::time::timeout(LOOK, waiting.join_next()).await {
                Ok(Some(next)) => {
                    let (slot, outcome) = next?;
                    done.insert(slot);
                    all.push((slot, outcome));
                }
                Ok(None) => return Ok(all),
                Err(_) => {
                    // Who is reached, or was done, is not missing, but waited for.
                    let mut there = self.reached();
                    there.extend(&done);
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
