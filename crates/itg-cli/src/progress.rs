//! A line a flow on a terminal while a run lasts: rate asked and achieved, lateness, replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use itg_core::units::{format_bit_rate, format_duration_ns};
use itg_engine::{FlowLive, FlowReading};
use itg_experiment::PlannedFlow;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::terminal::drawing_columns;

/// Flows that get a line of their own; one line tells of the others.
const LINES: usize = 12;
const EVERY: Duration = Duration::from_millis(500);

/// The lines, kept up to date by a task of their own.
pub struct Progress {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

struct FlowBar {
    bar: ProgressBar,
    live: Arc<FlowLive>,
    asked_bps: f64,
    /// Instant at which it ends, where a time limits it.
    until: Option<Instant>,
    last: (Instant, FlowReading),
}

/// A flow that gets a line.
pub struct Shown<'a> {
    /// The flow.
    pub planned: &'a PlannedFlow,
    /// Its counters.
    pub live: Arc<FlowLive>,
}

impl Progress {
    /// Starts the lines when stderr is a terminal; otherwise nothing is shown.
    #[must_use]
    pub fn start(flows: &[Shown<'_>]) -> Self {
        let (end, mut ended) = oneshot::channel();
        let shown = drawing_columns().is_some();
        let flows = if shown { flows } else { &[] };
        let all = MultiProgress::new();
        let style = ProgressStyle::with_template("{prefix:>18} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let mut lines: Vec<_> = flows
            .iter()
            .enumerate()
            .map(|(i, Shown { planned, live })| {
                let PlannedFlow { flow, name, .. } = planned;
                let bar = ProgressBar::new(1).with_style(style.clone());
                let bar = if i < LINES { all.add(bar) } else { ProgressBar::hidden() };
                bar.set_prefix(format!("{} {name}", flow.spec().id));
                FlowBar {
                    bar,
                    live: Arc::clone(live),
                    until: flow.spec().stop.duration_ns.and_then(|ns| {
                        let last = flow.spec().start_ns.saturating_add(ns);
                        Instant::now().checked_add(Duration::from_nanos(last))
                    }),
                    asked_bps: flow.mean_packet_rate() * flow.size().mean() * 8.0,
                    last: (Instant::now(), FlowReading::default()),
                }
            })
            .collect();
        let rest = (flows.len() > LINES).then(|| {
            let bar = all.add(ProgressBar::new(1).with_style(style));
            bar.set_prefix(format!("all {} flows", flows.len()));
            bar
        });
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut ended => break,
                }
                let mut packets = 0;
                let mut bits = 0.0;
                for line in &mut lines {
                    let (now_packets, now_bits) = line.update();
                    packets += now_packets;
                    bits += now_bits;
                }
                if let Some(rest) = &rest {
                    rest.set_message(format!("{packets} packets sent, {}", format_bit_rate(bits)));
                }
            }
            drop(all.clear());
        });
        Self { end, task }
    }

    /// Takes the lines off the terminal.
    pub async fn end(self) {
        // Both fail only when the task has ended by itself.
        self.end.send(()).unwrap_or_default();
        self.task.await.unwrap_or_default();
    }
}

impl FlowBar {
    /// Shows the state of the flow; returns its packets so far and its bit rate since the last time.
    fn update(&mut self) -> (u64, f64) {
        let now = Instant::now();
        let reading = self.live.read();
        let seconds = now.duration_since(self.last.0).as_secs_f64().max(1e-3);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bps = (reading.sent_bytes - self.last.1.sent_bytes) as f64 * 8.0 / seconds;
        self.last = (now, reading);
        let mut text = format!(
            "{} of {}, {} packets, late {} (at most {})",
            format_bit_rate(bps),
            format_bit_rate(self.asked_bps),
            reading.sent_packets,
            format_duration_ns(reading.lateness_ns / 1_000 * 1_000),
            format_duration_ns(reading.lateness_max_ns / 1_000 * 1_000),
        );
        if let Some(missing) = reading.missing {
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = 100.0 * missing as f64 / reading.sent_packets.max(1) as f64;
            text.push_str(&format!(", {missing} missing ({share:.2} %)"));
        }
        if reading.received_packets > 0 {
            let away = reading.sent_packets.saturating_sub(reading.received_unique);
            text.push_str(&format!(", {away} not back"));
        }
        if reading.ended {
            text.push_str(", ended");
        } else if let Some(until) = self.until {
            text.push_str(&format!(", {} s left", until.saturating_duration_since(now).as_secs()));
        }
        self.bar.set_message(text);
        (reading.sent_packets, bps)
    }
}
