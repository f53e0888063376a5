//! Cost of a crash of the coordinator: the time until a message that was cast afterwards is delivered.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use itg_group::cast::CastEvent;
use itg_process::MS;
use nix::sys::signal::Signal;

use super::common::{claim, percentile, us};
use super::processes::{Group, LIMIT, configuration};
use itg_run::trace::TraceEvent;

/// Time that messages flow before the crash.
const BEFORE: Duration = Duration::from_millis(700);
/// Time that they flow after it until the traces are read; again and again while they show no delivery.
const BEHIND: Duration = Duration::from_millis(1500);

pub(crate) fn run(trials: u64) -> Result<()> {
    for (signal, what, bar) in [
        (Signal::SIGKILL, "killed (its connections are reset)", 50),
        (Signal::SIGSTOP, "stopped (it falls silent)", 250),
    ] {
        let mut times = (0..trials).map(|_| trial(signal)).collect::<Result<Vec<_>>>()?;
        let (p50, most) = (percentile(&mut times, 50), percentile(&mut times, 100));
        let what = format!(
            "ordered log, n = 3, TCP, coordinator {what}: next delivery, p50 {:.1} ms, worst of {trials}",
            us(p50) / 1000.0
        );
        claim(&what, us(most) / 1000.0, "ms", most <= bar * MS, &format!("at most {bar} ms"))?;
    }
    Ok(())
}

/// Nanoseconds from the signal until the first delivery, at a process that goes on, of a message that was cast
/// after it.
fn trial(signal: Signal) -> Result<u64> {
    let layers = "\"detector\", { layer = \"log\", trace = true }, \"membership\", { layer = \"chatter\", \
                  pause = \"2ms\" }";
    let mut group = Group::start(&configuration("tcp", 3, layers, None), 3)?;
    std::thread::sleep(BEFORE);
    // The first coordinator is the first process, and stays while it runs.
    let at = group.signal(0, signal)?;
    let deadline = Instant::now() + LIMIT;
    loop {
        std::thread::sleep(BEHIND);
        if let Some(delivered) = first_delivery(&group.events()?, at) {
            return Ok(delivered - at);
        }
        ensure!(
            Instant::now() < deadline,
            "coordinator gone: nothing was delivered within {LIMIT:?} of the crash"
        );
    }
}

/// Instant of the first delivery of a message that a process that goes on has cast after this one.
fn first_delivery(events: &[(u32, TraceEvent)], after_ns: u64) -> Option<u64> {
    let mut casts = BTreeSet::new();
    events.iter().find_map(|(slot, seen)| match seen.decode()? {
        CastEvent::Cast { origin, seq } if *slot > 0 && seen.at_ns > after_ns => {
            casts.insert((origin, seq));
            None
        }
        CastEvent::Deliver { origin, seq, .. } => {
            casts.contains(&(origin, seq)).then_some(seen.at_ns)
        }
        _ => None,
    })
}
