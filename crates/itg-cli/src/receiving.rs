//! The flows of a receiver on its terminal, a line each, drawn again each second.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use itg_core::flow::Proto;
use itg_core::text::align;
use itg_node::{PeerClock, ReceiverWatch, WatchReading, WatchedFlow};
use itg_session::quantiles;
use itg_socket::clock;
use itg_stats::figures::is_told;
use itg_stats::report::DelayBasis;
use itg_stats::summary::digits;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, timeout};

use crate::result::Clock;
use crate::terminal::drawing_columns;

/// Flows that get a line of their own.
const LINES: usize = 12;
const EVERY: Duration = Duration::from_secs(1);
/// Seconds that the curve of a flow shows.
const CURVE: usize = 20;
/// Heights of the curve.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Time in which lines that are being drawn are waited for at the end.
const LAST_LINES: Duration = Duration::from_secs(1);
/// Lines that are longer than the terminal is wide are cut there, and the next line begins below.
const CUT: &str = "\x1b[?7l";
const CUT_NO_MORE: &str = "\x1b[?7h";

/// The view of a receiver, drawn on stderr by a task of its own.
#[derive(Debug)]
pub struct ReceiverView {
    drawn: Drawn,
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

/// The lines that are on the terminal now.
#[derive(Clone, Debug, Default)]
pub struct Drawn(Arc<Mutex<usize>>);

impl Drawn {
    /// Takes the lines away while something else is written.
    pub fn above<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut lines = self.lines();
        drop(io::stderr().write_all(erased(&mut lines).as_bytes()));
        write()
    }

    fn lines(&self) -> MutexGuard<'_, usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn draw(&self, text: &str) {
        let mut lines = self.lines();
        let before = erased(&mut lines);
        *lines = text.lines().count();
        // There is no other place to say that the terminal has gone.
        drop(io::stderr().write_all(format!("{before}{CUT}{text}{CUT_NO_MORE}").as_bytes()));
    }
}

/// Control codes that bring the cursor to where the lines begin and clear all below.
fn erased(lines: &mut usize) -> String {
    match std::mem::take(lines) {
        0 => String::new(),
        count => format!("\x1b[{count}F\x1b[J"),
    }
}

impl ReceiverView {
    /// Starts the view where stderr is a terminal that can draw. Called within a tokio runtime.
    #[must_use]
    pub fn start(watch: ReceiverWatch) -> Option<Self> {
        let width = drawing_columns()?;
        let drawn = Drawn::default();
        let (end, mut ended) = oneshot::channel();
        let on = drawn.clone();
        let task = tokio::spawn(async move {
            let mut ticks = tokio::time::interval(EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
            let mut table = Table::new();
            loop {
                tokio::select! {
                    _ = ticks.tick() => {}
                    _ = &mut ended => return,
                }
                let Some(reading) = watch.read().await else { return };
                // It may have another size by now.
                let width = drawing_columns().unwrap_or(width);
                let text = table.text(&reading, Instant::now(), width);
                // A terminal that stands still must not hold up senders.
                tokio::task::block_in_place(|| on.draw(&text));
            }
        });
        Some(Self { drawn, end, task })
    }

    /// Its lines, for those who write to the terminal beside it.
    #[must_use]
    pub fn drawn(&self) -> Drawn {
        self.drawn.clone()
    }

    /// Takes the lines off the terminal.
    pub async fn end(self) {
        // Fails only when the task has ended by itself.
        self.end.send(()).unwrap_or_default();
        let ended = timeout(LAST_LINES, self.task).await.is_ok();
        // Who writes to a terminal that stands still is not waited for.
        if let (true, Ok(mut lines)) = (ended, self.drawn.0.try_lock()) {
            drop(io::stderr().write_all(erased(&mut lines).as_bytes()));
        }
    }
}

/// Key that tells a flow from others.
type Key = (Arc<str>, IpAddr, IpAddr, u32, Proto);

/// Counts of a flow at the last draw.
#[derive(Clone, Debug, Default)]
struct Before {
    packets: u64,
    bytes: u64,
    /// Bits of each second that the curve shows.
    bits: Vec<f64>,
}

#[derive(Debug)]
struct Table {
    at: Instant,
    before: BTreeMap<Key, Before>,
}

impl Table {
    fn new() -> Self {
        Self { at: Instant::now(), before: BTreeMap::new() }
    }

    /// The lines of the flows that run; none where there is none.
    fn text(&mut self, reading: &WatchReading, now: Instant, width: usize) -> String {
        let seconds = now.duration_since(self.at).as_secs_f64().max(1e-3);
        self.at = now;
        let now_ns = clock::monotonic_ns();
        let (mut rows, mut kept) = (Vec::new(), BTreeMap::new());
        let running: Vec<_> = reading.flows.iter().filter(|flow| !flow.reading.ended).collect();
        for flow in &running {
            let key = (Arc::clone(&flow.run), flow.from, flow.to, flow.flow, flow.proto);
            let mut before = self.before.remove(&key).unwrap_or_default();
            let seconds = time_of(flow, &before, (seconds, now_ns));
            let row = row(flow, &mut before, seconds);
            kept.insert(key, before);
            if rows.len() < LINES {
                rows.push(row);
            }
        }
        self.before = kept;
        if rows.is_empty() {
            return String::new();
        }
        rows.insert(0, HEAD.map(str::to_owned));
        let mut text = fitting(rows, width);
        let others = running.len().saturating_sub(LINES) + reading.left_out;
        if others > 0 {
            let sum = &reading.sum;
            // Writing to a String cannot fail.
            writeln!(text, "and {others} other flows; {} packets of all flows", sum.packets)
                .unwrap_or_default();
        }
        text
    }
}

/// The rows as lines of this width at most: columns that do not fit are left out whole, and the curve shows fewer
/// seconds.
fn fitting(mut rows: Vec<[String; 10]>, width: usize) -> String {
    let length = |text: &str| text.chars().count();
    let head = length(HEAD[CURVE_AT]);
    let mut left_out = LEFT_OUT.into_iter();
    loop {
        let text = align(&rows, |column| [1, 2, CURVE_AT].contains(&column));
        let over = text.lines().map(length).max().unwrap_or(0).saturating_sub(width);
        if over == 0 {
            return text;
        }
        let curve = rows.iter().map(|row| length(&row[CURVE_AT])).max().unwrap_or(0);
        if curve >= head + over {
            for cell in rows.iter_mut().skip(1).map(|row| &mut row[CURVE_AT]) {
                *cell = cell.chars().skip(length(cell).saturating_sub(curve - over)).collect();
            }
        } else if let Some(column) = left_out.next() {
            rows.iter_mut().for_each(|row| row[column].clear());
        } else {
            return text;
        }
    }
}

/// Place of the curve, and columns in the order in which they are left out where there is no room.
const CURVE_AT: usize = 9;
const LEFT_OUT: [usize; 9] = [8, CURVE_AT, 2, 1, 6, 3, 7, 4, 5];

const HEAD: [&str; 10] = [
    "flow",
    "from",
    "proto",
    "packets",
    "packets/s",
    "Mbit/s",
    "p50 ms",
    "p99 ms",
    "reordered",
    "by second",
];

/// Seconds in which a flow had the packets that a row tells anew: those since the last draw, or since its first packet,
/// if that has come since.
#[expect(clippy::cast_precision_loss, reason = "a time for people")]
fn time_of(flow: &WatchedFlow, before: &Before, (seconds, now_ns): (f64, u64)) -> f64 {
    match flow.reading.received_first_ns {
        first_ns if before.packets == 0 && first_ns > 0 => {
            seconds.min(now_ns.saturating_sub(first_ns) as f64 / 1e9).max(1e-3)
        }
        _ => seconds,
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn row(flow: &WatchedFlow, before: &mut Before, seconds: f64) -> [String; 10] {
    let (packets, bytes) = (flow.reading.received_packets, flow.reading.received_bytes);
    let bits = bytes.saturating_sub(before.bytes) as f64 * 8.0 / seconds;
    let rate = packets.saturating_sub(before.packets) as f64 / seconds;
    (before.packets, before.bytes) = (packets, bytes);
    if before.bits.len() == CURVE {
        before.bits.remove(0);
    }
    before.bits.push(bits);
    let unknown = || "-".to_owned();
    let [p50, p99] = delays(flow).unwrap_or_else(|| [unknown(), unknown()]);
    [
        flow.flow.to_string(),
        flow.from.to_canonical().to_string(),
        flow.proto.name().to_owned(),
        packets.to_string(),
        digits(rate),
        digits(bits / 1e6),
        p50,
        p99,
        flow.measure.as_ref().map_or_else(unknown, |measure| measure.reordered.to_string()),
        curve(&before.bits),
    ]
}

/// Median and 99th percentile of the delay since the flow began, in milliseconds; unknown where the clocks are.
#[expect(clippy::cast_precision_loss, reason = "delays for people")]
fn delays(flow: &WatchedFlow) -> Option<[String; 2]> {
    let measure = flow.measure.as_ref()?;
    let values = measure.delays.as_ref()?.values();
    let compared =
        PeerClock { receiver: None, shared: flow.shared_clock, probes: flow.clock.clone() };
    let clock = Clock::of(&compared);
    let (off_ns, report) = clock.over(measure);
    let [p50, p99] = quantiles(&values, [0.5, 0.99]).map(|ns| ns.saturating_sub(off_ns));
    let basis = match report {
        _ if clock.is_shared() => DelayBasis::ONE_CLOCK,
        Some(report) => DelayBasis::corrected(report.bound_ns, p50),
        None => DelayBasis::TWO_CLOCKS,
    };
    basis.uncertainty_ns?;
    let count = measure.delays.as_ref()?.count;
    let [p50, p99] = [p50, p99].map(|ns| digits(ns as f64 / 1e6));
    Some([p50, if is_told(count, 0.99) { p99 } else { "-".to_owned() }])
}

/// Rates as heights, the largest at the top.
fn curve(rates: &[f64]) -> String {
    let most = rates.iter().copied().fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let height = |rate: &f64| {
        let place = (rate / most * 8.0).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to 8")]
        let place = place as usize;
        // Nothing at all is a space.
        place.checked_sub(1).map_or(' ', |place| HEIGHTS[place.min(7)])
    };
    rates.iter().map(height).collect()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use itg_core::flow::Meter;
    use itg_engine::FlowReading;
    use itg_node::{ClockProbes, ReceiverReading};
    use itg_session::Measuring;

    use super::*;

    const SENT: u64 = 1_800_000_000_000_000_000;

    fn flow(number: u32, packets: u64, shared_clock: bool) -> WatchedFlow {
        let mut measuring = Measuring::new();
        measuring.arrived(1, Some(SENT), SENT + 2_500_000);
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let bytes = packets * 125;
        WatchedFlow {
            run: "r".into(),
            flow: number,
            proto: Proto::Udp,
            meter: Meter::Owd,
            from: at,
            to: at,
            reading: FlowReading {
                received_packets: packets,
                received_bytes: bytes,
                ..FlowReading::default()
            },
            totals: None,
            counts: None,
            measure: Some(Arc::new(measuring.finish(number, 0))),
            shared_clock,
            clock: ClockProbes::default(),
        }
    }

    fn reading(flows: Vec<WatchedFlow>) -> WatchReading {
        let sum =
            ReceiverReading { flows: flows.len(), packets: 5_000, ..ReceiverReading::default() };
        WatchReading { sum, flows, ..WatchReading::default() }
    }

    #[test]
    fn a_line_tells_of_the_last_second() {
        let mut table = Table::new();
        let begun = table.at;
        let at = |seconds| begun + Duration::from_secs(seconds);
        assert_eq!(table.text(&reading(Vec::new()), at(1), 200), "");
        table.text(&reading(vec![flow(7, 1_000, true)]), at(2), 200);
        let text = table.text(&reading(vec![flow(7, 3_000, true), flow(8, 0, false)]), at(3), 200);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        let want: [Vec<&str>; 2] = [
            vec!["7", "127.0.0.1", "udp", "3000", "2000", "2.00", "2.50", "-", "0", "▄█"],
            vec!["8", "127.0.0.1", "udp", "0", "0", "0", "-", "-", "0"],
        ];
        assert_eq!(lines[1..], want);
        let mut over = flow(7, 3_000, true);
        over.reading.ended = true;
        assert_eq!(table.text(&reading(vec![over]), at(4), 200), "");
        assert!(table.before.is_empty());
    }

    #[test]
    fn the_first_rate_is_over_the_time_since_the_first_packet() {
        let (mut new, before) = (flow(7, 1_000, true), Before::default());
        for (first_ns, before, want) in [
            (4_500_000_000, before.clone(), 0.5),
            (3_000_000_000, before.clone(), 1.0),
            (0, before.clone(), 1.0),
            (4_500_000_000, Before { packets: 1, ..before }, 1.0),
        ] {
            new.reading.received_first_ns = first_ns;
            let got = time_of(&new, &before, (1.0, 5_000_000_000));
            assert!((got - want).abs() < 1e-9, "{first_ns}: {got}");
        }
    }

    #[test]
    fn columns_are_left_out_whole() {
        let mut table = Table::new();
        let begun = table.at;
        let mut at = 0;
        let mut lines = |width: usize| {
            // A curve of full length.
            for _ in 0..=CURVE {
                at += 1;
                let flows = reading(vec![flow(7, 1_000 * at, true)]);
                table.text(&flows, begun + Duration::from_secs(at), width);
            }
            at += 1;
            let flows = reading(vec![flow(7, 1_000 * at, true)]);
            table.text(&flows, begun + Duration::from_secs(at), width)
        };
        let all = lines(200);
        let whole: Vec<&str> = all.lines().flat_map(|line| line.split("  ")).collect();
        for width in [100, 90, 80, 70, 60, 50, 40, 30, 20, 10] {
            let text = lines(width);
            assert!(text.lines().all(|line| line.chars().count() <= width), "{width}: {text}");
            for cell in text.lines().flat_map(|line| line.split("  ")).map(str::trim) {
                let known = whole.iter().any(|whole| whole.trim() == cell);
                let counts = cell.parse::<u64>().is_ok() || cell.starts_with('█');
                assert!(known || counts, "{width}: {cell}: {text}");
            }
        }
        assert!(lines(100).contains("reordered") && lines(80).contains("by second"));
        assert!(!lines(80).contains("reordered"));
    }

    #[test]
    fn many_flows_have_a_few_lines() {
        let flows = (0..20).map(|number| flow(number, 1, true)).collect();
        let text = Table::new().text(&reading(flows), Instant::now(), 200);
        assert_eq!(text.lines().count(), 1 + LINES + 1);
        assert!(text.ends_with("and 8 other flows; 5000 packets of all flows\n"), "{text}");
    }

    #[test]
    fn curves_have_eight_heights() {
        assert_eq!(curve(&[0.0, 1.0, 4.0, 8.0]), " ▁▄█");
        assert_eq!((curve(&[0.0]), curve(&[])), (String::new(), String::new()));
    }
}
