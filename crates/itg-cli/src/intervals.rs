//! A line for each interval of a run, for pipes and files as for terminals.
//!
//! Windows begin with the first packet, and all of them together have every packet: the last one, which is mostly
//! shorter, is told at the end. Each line names the true instants of its window, and its rate is over a true length.

mod received;
mod row;
#[cfg(feature = "send")]
mod sent;

use std::time::{Duration, Instant};

use clap::Args;
use itg_core::units::parse_duration_ns;
use itg_socket::clock;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

pub use self::received::ReceivedFlows;
use self::row::Row;
#[cfg(feature = "send")]
pub(crate) use self::sent::{SentFlow, SentFlows};
use crate::verbosity::{print, say};

/// Shortest interval: 10 ms.
const SHORTEST: Duration = Duration::from_millis(10);
/// Longest time between two looks at whether flows have begun, or ended.
const LOOK: Duration = Duration::from_millis(50);
/// Time in which a line that is being written is waited for at the end.
const LAST_LINE: Duration = Duration::from_secs(1);

/// Options of programs that print a line for each interval.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct IntervalArgs {
    /// Print a line for each interval of this length, as 1s
    ///
    /// Without a unit it is in seconds. Lines begin with the first packet and add up to the table at the end; each names
    /// the true times of its window. A sender asks its receivers at the end of each window: the rate is that of what has
    /// arrived, lost packets are those of the window, and the others are on their way. Where receivers do not tell in
    /// time, the line has what was handed to the kernel.
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
    /// Way that the lines are of, where there are several: `from here`.
    pub way: Option<&'static str>,
}

/// State of the flows that lines are of.
#[derive(Clone, Copy, Debug, Default)]
struct Look {
    /// Instant of the first packet (CLOCK_MONOTONIC), if there was one that is not told of yet.
    began_ns: Option<u64>,
    /// True if these flows have ended, and others may follow.
    over: bool,
    /// Flows that are awaited, where no packet of any has come.
    awaited: usize,
}

/// End of a window that is to be told of.
#[derive(Clone, Copy, Debug)]
struct Window {
    /// Instant of the first packet (CLOCK_MONOTONIC): the times of lines count from it.
    began_ns: u64,
    /// Begin of the window, from there.
    since_ns: u64,
    /// True if nothing comes behind it: it ends with the last packet.
    last: bool,
}

/// Flows that lines are of.
trait Source: Send + 'static {
    /// True if flows begin and end at any time.
    const SERVES: bool;

    fn look(&self) -> Look;

    /// The line of the window that ends now; `None` where there is nothing to be told.
    fn take(&mut self, window: Window) -> impl Future<Output = Option<Row>> + Send;
}

/// The lines, written by a task of their own.
#[derive(Debug)]
pub struct Intervals {
    end: oneshot::Sender<()>,
    cuts: IntervalCuts,
    task: JoinHandle<()>,
}

/// A way to have the window that is open told of at once.
#[derive(Clone, Debug)]
pub struct IntervalCuts(mpsc::UnboundedSender<oneshot::Sender<()>>);

impl IntervalCuts {
    /// Tells of all packets so far, before something else is said of them.
    pub async fn cut(&self) {
        let (done, told) = oneshot::channel();
        // The lines have ended, or a reader of stdout stands still.
        drop(self.0.send(done));
        drop(timeout(LAST_LINE, told).await);
    }
}

impl Intervals {
    /// Starts the lines of flows that are received. Called within a tokio runtime.
    #[must_use]
    pub fn received(lines: IntervalLines, flows: ReceivedFlows) -> Self {
        Self::start(lines, flows)
    }

    /// Starts the lines of flows that are sent. Called within a tokio runtime.
    #[cfg(feature = "send")]
    pub(crate) fn sent(lines: IntervalLines, flows: SentFlows) -> Self {
        Self::start(lines, flows)
    }

    fn start(lines: IntervalLines, source: impl Source) -> Self {
        let (end, ended) = oneshot::channel();
        let (cuts, cut) = mpsc::unbounded_channel();
        let task = tokio::spawn(Printer { lines, source, ended, cut }.run());
        Self { end, cuts: IntervalCuts(cuts), task }
    }

    /// A way to have the window that is open told of at once.
    #[must_use]
    pub fn cuts(&self) -> IntervalCuts {
        self.cuts.clone()
    }

    /// Ends the lines with that of the last window.
    pub async fn end(self) {
        // Fails only when the task has ended by itself.
        self.end.send(()).unwrap_or_default();
        // A reader of stdout that stands still gets no last line.
        drop(timeout(LAST_LINE, self.task).await);
    }
}

struct Printer<S> {
    lines: IntervalLines,
    source: S,
    ended: oneshot::Receiver<()>,
    cut: mpsc::UnboundedReceiver<oneshot::Sender<()>>,
}

/// Reason to look at the flows.
enum Wake {
    Time,
    Cut(oneshot::Sender<()>),
    End,
}

impl<S: Source> Printer<S> {
    async fn run(mut self) {
        let look = LOOK.min(self.lines.every / 2);
        let mut wake = Wake::Time;
        loop {
            let mut waiting_since = Instant::now();
            let began_ns = loop {
                let Look { began_ns, awaited, .. } = self.source.look();
                if let Some(began_ns) = began_ns {
                    break began_ns;
                }
                if matches!(wake, Wake::End) {
                    return;
                }
                if awaited == 0 {
                    waiting_since = Instant::now();
                } else if waiting_since.elapsed() >= self.lines.every {
                    waiting_since = Instant::now();
                    if self.print(row::nothing_yet(awaited, self.lines.way)).is_none() {
                        return;
                    }
                }
                wake = self.wait(look).await;
            };
            wake = match self.windows(began_ns, wake).await {
                Some(wake) => wake,
                None => return,
            };
        }
    }

    async fn wait(&mut self, time: Duration) -> Wake {
        tokio::select! {
            biased;
            _ = &mut self.ended => Wake::End,
            Some(done) = self.cut.recv() => Wake::Cut(done),
            () = sleep(time) => Wake::Time,
        }
    }

    /// Tells of the windows from the first packet on until the flows have ended; `None` when no others follow.
    async fn windows(&mut self, began_ns: u64, mut wake: Wake) -> Option<Wake> {
        let every_ns = u64::try_from(self.lines.every.as_nanos()).unwrap_or(u64::MAX);
        let (mut since_ns, mut next_ns) = (0, every_ns);
        loop {
            let over = self.source.look().over;
            let last = over || matches!(wake, Wake::End);
            let now_ns = clock::monotonic_ns().saturating_sub(began_ns);
            if last || now_ns >= next_ns || matches!(wake, Wake::Cut(_)) {
                let row = self.source.take(Window { began_ns, since_ns, last }).await;
                if let Some(row) = row {
                    since_ns = row.until_ns;
                    self.print(row.line(self.lines.way))?;
                }
                // Windows that this program has slept through are told of as one.
                let now_ns = clock::monotonic_ns().saturating_sub(began_ns);
                next_ns = (now_ns / every_ns).saturating_add(1).saturating_mul(every_ns);
            }
            wake = match wake {
                Wake::End => return None,
                Wake::Cut(done) => {
                    // Nobody may wait for it any more.
                    done.send(()).unwrap_or_default();
                    Wake::Time
                }
                Wake::Time => Wake::Time,
            };
            if over {
                return Some(wake);
            }
            let now_ns = clock::monotonic_ns().saturating_sub(began_ns);
            let time = clock::ns(next_ns.saturating_sub(now_ns));
            wake = self.wait(if S::SERVES { time.min(LOOK) } else { time }).await;
        }
    }

    fn print(&self, line: String) -> Option<()> {
        if self.lines.on_stderr {
            say(&line);
            return Some(());
        }
        tokio::task::block_in_place(|| print(&(line + "\n"))).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
