//! A line a flow on a terminal while a run lasts: rate asked and achieved, lateness, loss, replies.

use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use itg_core::units::{format_bit_rate, format_duration_ns};
use itg_engine::{ArrivalReading, FlowLive, FlowReading};
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
    /// Arrivals that the receiver told of before its last account, with the rate between the two.
    arrived: Option<(ArrivalReading, f64)>,
    /// The transport sends again what was lost.
    resends: bool,
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
                    arrived: None,
                    resends: flow.spec().proto.properties().resends,
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
    /// Shows the state of the flow; returns its packets so far and the bit rate at which it was sent since the last time.
    fn update(&mut self) -> (u64, f64) {
        let now = Instant::now();
        let reading = self.live.read();
        let seconds = now.duration_since(self.last.0).as_secs_f64().max(1e-3);
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bps = (reading.sent_bytes - self.last.1.sent_bytes) as f64 * 8.0 / seconds;
        self.last = (now, reading);
        let rate = match self.arrival_rate(&reading) {
            Some(bps) => format!("{} received", format_bit_rate(bps)),
            None => format!("{} sent", format_bit_rate(bps)),
        };
        let mut text = format!(
            "{rate} of {}, {} packets, late {} (at most {})",
            format_bit_rate(self.asked_bps),
            reading.sent_packets,
            format_duration_ns(reading.lateness_ns / 1_000 * 1_000),
            format_duration_ns(reading.lateness_max_ns / 1_000 * 1_000),
        );
        if reading.received_packets > 0 {
            let away = reading.sent_packets.saturating_sub(reading.received_unique);
            text.push_str(&format!(", {away} not back"));
        } else {
            text.push_str(&loss(&reading, self.resends));
        }
        if reading.ended {
            text.push_str(", ended");
        } else if let Some(until) = self.until {
            text.push_str(&format!(", {} s left", until.saturating_duration_since(now).as_secs()));
        }
        self.bar.set_message(text);
        (reading.sent_packets, bps)
    }

    /// Bit rate of what has arrived between the receiver's last two accounts, by its clock.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    fn arrival_rate(&mut self, reading: &FlowReading) -> Option<f64> {
        let arrivals = reading.told?.arrivals;
        let (before, rate) = match self.arrived {
            Some((before, rate)) => (before, rate),
            None => (ArrivalReading { at_ns: arrivals.first_ns, ..ArrivalReading::default() }, 0.0),
        };
        let (from_ns, at_ns) = (before.at_ns?, arrivals.at_ns?);
        let rate = match at_ns.saturating_sub(from_ns) {
            0..1_000 => rate,
            ns => arrivals.bytes.saturating_sub(before.bytes) as f64 * 8e9 / ns as f64,
        };
        self.arrived = Some((arrivals, rate));
        Some(rate)
    }
}

/// Packets so far that are lost, and on their way, as far as the receiver has told.
fn loss(reading: &FlowReading, resends: bool) -> String {
    let Some(told) = reading.told else { return String::new() };
    let arrivals = told.arrivals;
    // Of what was sent before the receiver was asked, while it runs: what was sent since may have arrived.
    let absent = match told.whole {
        true => reading.sent_packets.saturating_sub(arrivals.unique),
        false => reading.missing.unwrap_or(0),
    };
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    let share = |lost: u64| 100.0 * lost as f64 / reading.sent_packets.max(1) as f64;
    let lost = match (told.whole, resends) {
        (true, true) if absent == 0 => return String::new(),
        (true, _) => absent,
        (false, true) => return format!(", {absent} on their way"),
        // A packet that comes late, or was not sent, is not lost.
        (false, false) if arrivals.reordered != Some(0) || reading.unsent > 0 => {
            return format!(", {absent} have not arrived yet");
        }
        (false, false) => arrivals.missing,
    };
    let mut text = format!(", {lost} lost ({:.2} %)", share(lost));
    if !told.whole {
        text.push_str(&format!(", {} on their way", absent.saturating_sub(lost)));
    }
    text
}

#[cfg(test)]
mod tests {
    use itg_engine::ToldArrivals;

    use super::*;

    #[test]
    fn loss_is_told_where_it_is_known() {
        let sent = FlowReading { sent_packets: 100, ..FlowReading::default() };
        assert_eq!(loss(&sent, false), "", "nobody has told");
        for (unique, missing, reordered, unsent, whole, resends, want) in [
            (90, 8, 0, 0, false, false, ", 8 lost (8.00 %), 2 on their way"),
            (90, 0, 0, 0, false, true, ", 10 on their way"),
            (90, 8, 1, 0, false, false, ", 10 have not arrived yet"),
            (90, 8, 0, 3, false, false, ", 10 have not arrived yet"),
            (90, 0, 1, 3, true, false, ", 10 lost (10.00 %)"),
            (100, 0, 0, 0, true, true, ""),
            (99, 0, 0, 0, true, true, ", 1 lost (1.00 %)"),
        ] {
            let reordered = Some(reordered);
            let arrivals =
                ArrivalReading { unique, missing, reordered, ..ArrivalReading::default() };
            let told = ToldArrivals { arrivals, receiver: 0, whole };
            let missing = Some(100 - unique);
            let reading = FlowReading { told: Some(told), unsent, missing, ..sent };
            assert_eq!(loss(&reading, resends), want);
        }
    }
}
