//! Workers as their agent sees them: started, given orders, heard, and seen to end.

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use itg_net::clock;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::worker::{Job, News, Order};

/// A worker that runs.
pub(crate) struct Worker {
    /// When it was started.
    pub(crate) began_ns: u64,
    /// What it is told.
    pub(crate) orders: mpsc::UnboundedSender<Order>,
    /// Flows that it has not ended yet.
    pub(crate) flows: BTreeSet<u32>,
    /// Waits for its end and kills it when dropped.
    pub(crate) task: JoinHandle<()>,
}

/// What is heard of a worker.
pub(crate) enum Event {
    /// What it tells.
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
        let program = std::env::current_exe().context("the path of this program")?;
        let mut child = process::Command::new(program)
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
                }
            });
            let why = match child.wait().await {
                Ok(status) => status.to_string(),
                Err(error) => error.to_string(),
            };
            drop(news.send((id, Event::Gone(why))));
        });
        Ok(Self { began_ns: clock::monotonic_ns(), orders, flows, task })
    }
}
