//! Workers as their agent sees them: started, given orders, heard, and seen to end.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_core::rate::RateChange;
use itg_run::process::this_program;
use itg_socket::clock;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use crate::worker::{Job, News, Order};

/// A flow whose receiver was not there is tried again after this time.
pub(crate) const AGAIN_NS: u64 = 200_000_000;
/// The longest pause before it is tried again.
const MOST_PAUSE_NS: u64 = 2_000_000_000;
/// A worker that ends sooner has its flows wait before the next one.
const SHORT_LIFE_NS: u64 = 1_000_000_000;

/// A flow that this node is to send.
pub(crate) struct Duty {
    pub(crate) fence: u16,
    /// From when on it may leave; `None` for the first owner at the start.
    pub(crate) resume_ns: Option<u64>,
    /// Number of the worker that sends it; `None` while none does.
    pub(crate) worker: Option<u64>,
    /// Instant of the next attempt, in nanoseconds.
    pub(crate) at_ns: u64,
    /// Length of its last pause, in nanoseconds.
    pub(crate) pause_ns: u64,
    /// Changes of its rate; times count from the start of the run.
    pub(crate) changes: Vec<RateChange>,
}

impl Duty {
    /// Its worker has ended, and another one takes its place: at once, or after a pause where it
    /// has run so shortly that the next one may not begin either.
    pub(crate) fn lost_worker(&mut self, began_ns: u64, now_ns: u64) {
        let pause_ns = if self.was_short(began_ns, now_ns) { self.longer_pause() } else { 0 };
        // Its parent has seen it end: there is nothing to wait for.
        self.try_after(pause_ns, now_ns);
    }

    /// Its worker could not send it, or no further: another one tries it after a pause.
    pub(crate) fn put_off(&mut self, began_ns: u64, now_ns: u64) {
        self.was_short(began_ns, now_ns);
        let pause_ns = self.longer_pause();
        self.try_after(pause_ns, now_ns);
    }

    /// Its receiver is there again: a worker tries it at once.
    pub(crate) const fn try_at_once(&mut self, now_ns: u64) {
        (self.pause_ns, self.at_ns) = (0, now_ns);
    }

    /// Returns true if the life of its worker was short; after a longer one pauses are short again.
    fn was_short(&mut self, began_ns: u64, now_ns: u64) -> bool {
        let short = now_ns.saturating_sub(began_ns) < SHORT_LIFE_NS;
        if !short {
            self.pause_ns = 0;
        }
        short
    }

    /// Has no worker until then. Nothing leaves sooner than it might have before: another sender may have its lease.
    fn try_after(&mut self, pause_ns: u64, now_ns: u64) {
        let resume_ns = Some(self.resume_ns.unwrap_or(now_ns));
        (self.worker, self.resume_ns, self.at_ns) = (None, resume_ns, now_ns + pause_ns);
    }

    /// Next pause in nanoseconds: twice as long as the last one, within limits.
    fn longer_pause(&mut self) -> u64 {
        self.pause_ns = (self.pause_ns * 2).clamp(AGAIN_NS, MOST_PAUSE_NS);
        self.pause_ns
    }
}

/// A worker that runs.
pub(crate) struct Worker {
    /// Instant at which it was started.
    pub(crate) began_ns: u64,
    /// Channel for its orders.
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    /// Flows that it has not ended yet.
    pub(crate) flows: BTreeSet<u32>,
    /// Waits for its end and kills it when dropped.
    pub(crate) task: JoinHandle<()>,
    /// Time for which it has said nothing while its agent ran.
    pub(crate) silent: Duration,
    /// Has its process killed.
    kill: Arc<Notify>,
}

/// A worker that says nothing for so long stands still: it tells its figures each second.
const MOST_SILENT: Duration = Duration::from_secs(5);

/// Kills the workers that stand still; `passed` since the last look, less than what passed where this process stood still,
/// too. Others take their places.
pub(crate) fn end_silent(workers: &mut BTreeMap<u64, Worker>, passed: Duration) {
    for worker in workers.values_mut() {
        worker.silent += passed;
        if worker.silent > MOST_SILENT {
            tracing::warn!("a worker says nothing for {MOST_SILENT:?}: it is killed");
            worker.silent = Duration::ZERO;
            worker.kill.notify_one();
        }
    }
}

/// Event of a worker.
pub(crate) enum Event {
    /// Message of the worker.
    News(News),
    /// Its process has ended, and how.
    Gone(String),
}

impl Worker {
    /// Starts the program once more, as a worker.
    pub(crate) fn start(
        id: u64,
        job: &Job,
        news: mpsc::UnboundedSender<(u64, Event)>,
    ) -> Result<Self> {
        let mut child = process::Command::from(this_program()?)
            .args(["worker", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("starting a worker")?;
        let mut stdin = child.stdin.take().context("the worker's input")?;
        let stdout = child.stdout.take().context("the worker's output")?;
        let (orders, mut given) = mpsc::unbounded_channel::<Order>();
        let flows = job.flows.keys().copied().collect();
        let kill = Arc::new(Notify::new());
        let killed = Arc::clone(&kill);
        let mut first = serde_json::to_vec(job)?;
        first.push(b'\n');
        let task = tokio::spawn(async move {
            let ordering = async move {
                if stdin.write_all(&first).await.is_err() {
                    return;
                }
                while let Some(order) = given.recv().await {
                    let Ok(mut line) = serde_json::to_vec(&order) else { continue };
                    line.push(b'\n');
                    if stdin.write_all(&line).await.is_err() || stdin.flush().await.is_err() {
                        return;
                    }
                }
            };
            let listening = async {
                let mut lines = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    match serde_json::from_str(&line) {
                        // The work may be over.
                        Ok(found) => drop(news.send((id, Event::News(found)))),
                        Err(error) => tracing::error!(%error, "news that make no sense"),
                    }
                }
            };
            tokio::join!(listening, async {
                tokio::select! {
                    () = ordering => {}
                    // A worker that has ended takes no orders.
                    _ = child.wait() => {}
                    () = killed.notified() => {
                        if let Err(error) = child.start_kill() {
                            tracing::error!(%error, "killing a worker");
                        }
                    }
                }
            });
            let why = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            drop(news.send((id, Event::Gone(why))));
        });
        let (began_ns, silent) = (clock::monotonic_ns(), Duration::ZERO);
        Ok(Self { began_ns, orders, flows, task, silent, kill })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn duty() -> Duty {
        let (resume_ns, changes) = (None, Vec::new());
        Duty { fence: 0, resume_ns, worker: Some(1), at_ns: 0, pause_ns: 0, changes }
    }

    /// Receivers that are away for long are asked ever more seldom; those that were there, or are there again, soon.
    #[test]
    fn a_flow_that_was_sent_is_tried_again_soon() {
        let mut duty = duty();
        let pause_ms = |duty: &mut Duty, lived_ns| {
            let began = duty.at_ns;
            duty.put_off(began, began + lived_ns);
            (duty.at_ns - began - lived_ns) / 1_000_000
        };
        let refused = [0, 0, 0, 0].map(|lived_ns| pause_ms(&mut duty, lived_ns));
        assert_eq!(refused, [200, 400, 800, 1600]);
        assert_eq!(pause_ms(&mut duty, 10 * SHORT_LIFE_NS), 200, "it was sent for ten seconds");
        assert_eq!(pause_ms(&mut duty, 0), 400);
        duty.try_at_once(7);
        assert_eq!((duty.at_ns, duty.resume_ns), (7, Some(0)), "nothing else is waited for");
        assert_eq!(pause_ms(&mut duty, 0), 200);
    }

    /// A receiver that refuses does not shorten the wait for the lease of the owner before.
    #[test]
    fn a_new_attempt_is_not_earlier_than_the_lease_allows() {
        let mut duty = duty();
        duty.resume_ns = Some(5_000_000_000);
        duty.put_off(0, 1_000_000);
        assert_eq!((duty.at_ns, duty.resume_ns), (201_000_000, Some(5_000_000_000)));
        duty.try_at_once(300_000_000);
        assert_eq!(duty.resume_ns, Some(5_000_000_000));
    }

    /// A worker that cannot begin is not started again and again without a pause.
    #[test]
    fn workers_that_die_at_once_are_started_ever_more_seldom() {
        let mut duty = duty();
        let mut now = 0;
        let mut pauses_ms = Vec::new();
        for _ in 0..6 {
            let began = duty.at_ns;
            now = began + SHORT_LIFE_NS - 1;
            duty.lost_worker(began, now);
            assert!(duty.worker.is_none() && duty.resume_ns.is_some());
            pauses_ms.push((duty.at_ns - now) / 1_000_000);
        }
        assert_eq!(pauses_ms, [200, 400, 800, 1600, 2000, 2000], "as docs/cluster.md says");
        // One that has run for some time is replaced at once, but not before a lease of another
        // owner has ended.
        duty.lost_worker(now, now + SHORT_LIFE_NS);
        assert_eq!(duty.at_ns, now + SHORT_LIFE_NS);
        duty.resume_ns = Some(u64::MAX);
        duty.lost_worker(0, now);
        assert_eq!((duty.at_ns, duty.resume_ns), (now, Some(u64::MAX)));
    }
}
