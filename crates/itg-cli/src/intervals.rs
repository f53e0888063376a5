//! A line for each interval of a run, for pipes and files as for terminals: packets, rate, what is missing.

use std::time::{Duration, Instant};

use clap::Args;
use itg_core::units::{format_bit_rate, parse_duration_ns};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

use crate::verbosity::{print, say};

/// Shortest interval: 10 ms.
const SHORTEST: Duration = Duration::from_millis(10);
/// Time in which a line that is being written is waited for at the end.
const LAST_LINE: Duration = Duration::from_secs(1);

/// Options of programs that print a line for each interval.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct IntervalArgs {
    /// Print a line for each interval of this length, as 1s
    ///
    /// Without a unit it is in seconds.
    #[arg(short = 'i', long, value_name = "T", value_parser = interval)]
    pub interval: Option<Duration>,
}

/// An interval: a duration, or a number of seconds.
fn interval(text: &str) -> Result<Duration, String> {
    let ns = match text.parse::<f64>() {
        Ok(_) => parse_duration_ns(&format!("{text}s")),
        Err(_) => parse_duration_ns(text),
    };
    let every = Duration::from_nanos(ns.map_err(|error| error.to_string())?);
    if every < SHORTEST {
        return Err(format!("{text} between lines: expected 10ms or more"));
    }
    Ok(every)
}

/// Lines for intervals.
#[derive(Clone, Copy, Debug)]
pub struct IntervalLines {
    /// Length of an interval.
    pub every: Duration,
    /// True if stdout has other data.
    pub on_stderr: bool,
}

/// Counts since the start of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// Flows that run.
    pub flows: usize,
    /// Packets.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets that were sent and not read by the receiver when it was asked last.
    pub missing: Option<u64>,
}

/// The lines, written by a task of their own.
#[derive(Debug)]
pub struct Intervals {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Intervals {
    /// Starts the lines; `read` gives the counts until it gives none. Called within a tokio runtime.
    pub fn start(
        lines: IntervalLines,
        read: impl Fn() -> Option<Counted> + Send + 'static,
    ) -> Self {
        let (end, mut ended) = oneshot::channel();
        let task = tokio::spawn(async move {
            let began = Instant::now();
            let mut ticks = tokio::time::interval(lines.every);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            ticks.tick().await;
            let (mut since, mut before) = (Duration::ZERO, Counted::default());
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut ended => return,
                }
                let Some(counted) = read() else { return };
                let now = began.elapsed();
                let line = line((since, now), before, counted);
                (since, before) = (now, counted);
                if lines.on_stderr {
                    say(&line);
                } else if tokio::task::block_in_place(|| print(&(line + "\n"))).is_err() {
                    return;
                }
            }
        });
        Self { end, task }
    }

    /// Ends the lines.
    pub async fn end(self) {
        // Fails only when the task has ended by itself.
        self.end.send(()).unwrap_or_default();
        // A reader of stdout that stands still gets no last line.
        drop(timeout(LAST_LINE, self.task).await);
    }
}

/// The line of an interval.
fn line((since, now): (Duration, Duration), before: Counted, counted: Counted) -> String {
    let seconds = (now - since).as_secs_f64().max(1e-3);
    let packets = counted.packets.saturating_sub(before.packets);
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let bits = counted.bytes.saturating_sub(before.bytes) as f64 * 8.0;
    let flows = if counted.flows == 1 { "flow" } else { "flows" };
    let mut line = format!(
        "{:.1}-{:.1} s: {} {flows}, {packets} packets, {}",
        since.as_secs_f64(),
        now.as_secs_f64(),
        counted.flows,
        format_bit_rate(bits / seconds),
    );
    if let Some(missing) = counted.missing {
        line += &format!(", {missing} missing");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_of_its_interval() {
        let at = Duration::from_millis;
        let before = Counted { flows: 2, packets: 100, bytes: 50_000, missing: Some(1) };
        let counted = Counted { flows: 1, packets: 300, bytes: 175_000, missing: Some(3) };
        let got = line((at(1000), at(2000)), before, counted);
        assert_eq!(got, "1.0-2.0 s: 1 flow, 200 packets, 1.00 Mbit/s, 3 missing");
        let got = line((at(0), at(500)), Counted::default(), Counted::default());
        assert_eq!(got, "0.0-0.5 s: 0 flows, 0 packets, 0.00 bit/s");
    }

    #[test]
    fn intervals_are_durations_or_seconds() {
        for (text, want) in [
            ("1", Ok(1_000)),
            ("0.5", Ok(500)),
            ("250ms", Ok(250)),
            ("2min", Ok(120_000)),
            ("1ms", Err(())),
            ("0", Err(())),
            ("-1", Err(())),
            ("x", Err(())),
        ] {
            let got = interval(text).map_err(drop);
            assert_eq!(got, want.map(Duration::from_millis), "{text}");
        }
    }
}
