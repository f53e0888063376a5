//! Raw links: shares of writers over TCP that a single reader throws away, with no log server behind them.

use std::io::Write as _;
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Barrier, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use itg_testkit::child::Running;
use nix::sys::signal::Signal;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

/// Time within which the sink waits for links, and ends.
const READY: Duration = Duration::from_secs(20);
/// Words of the sink before its address.
const LISTENING: &str = "reading at ";
/// Bytes that are written and read at once.
const PIECE: usize = 64 << 10;

/// Reads what comes over any link, until it is killed.
pub(crate) fn sink() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        itg_cli::say(format_args!("itg-bench: {LISTENING}{}", listener.local_addr()?));
        loop {
            let (mut link, _) = listener.accept().await?;
            tokio::spawn(async move {
                let mut piece = vec![0; PIECE];
                // Each link has its turn.
                while link.read(&mut piece).await.is_ok_and(|read| read > 0) {
                    tokio::task::yield_now().await;
                }
            });
        }
    })
}

/// Lets so many threads write over a link each, for the same time; returns how much more the first of them wrote than
/// the last.
pub(crate) fn most_by_least(links: usize, lasts: Duration) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe().context("the path of this program")?);
    let sink = Running::spawn(command.arg("raw-sink"), &[])?;
    let address = sink.after(LISTENING, READY)?;
    let address = address.trim();
    let (ready, ends) = (Barrier::new(links), OnceLock::new());
    let one = || -> Result<u64> {
        let link = TcpStream::connect(address);
        ready.wait();
        let (mut link, piece) = (link?, vec![7; PIECE]);
        let ends = *ends.get_or_init(|| Instant::now() + lasts);
        let mut written = 0;
        while Instant::now() < ends {
            link.write_all(&piece)?;
            written += PIECE as u64;
        }
        Ok(written)
    };
    let written: Result<Vec<u64>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..links).map(|_| scope.spawn(one)).collect();
        let ended = threads.into_iter().map(|thread| thread.join());
        ended.map(|written| written.map_err(|_| anyhow!("a writer panicked"))?).collect()
    });
    let written = written?;
    sink.stop(Signal::SIGKILL, READY)?;
    let most = written.iter().max().copied().unwrap_or_default() as f64;
    let least = written.iter().min().copied().unwrap_or_default() as f64;
    Ok(most / least)
}
