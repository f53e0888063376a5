//! Delay, jitter, bit rate and loss in windows of time (`-d -j -b -p -c`).
//!
//! Window *k* is `(t0 + k·W, t0 + (k+1)·W]`, where `t0` is the earliest arrival of the log, which
//! belongs to window 0. Within a flow the window only moves forward, in the order of the log. Only
//! windows that hold packets are kept; the rows between are written as they are needed.

use std::collections::BTreeMap;
use std::io::Write;

use super::args::{Options, Windows, counted};
use super::figures::{Figures, FlowKey};
use super::files::create;
use super::output::{CELLS_MAX, DecError, Outputs};
use crate::log::LogRecord;
use crate::number::{fixed, quotient};

const DELAY: usize = 0;
const JITTER: usize = 1;
const BITRATE: usize = 2;
const LOSS: usize = 3;
/// Order of the values in a combined file.
const COMBINED: [usize; 4] = [BITRATE, DELAY, JITTER, LOSS];

/// Windows of one flow.
#[derive(Default)]
struct Series {
    /// Number and values of each window that holds packets, ascending.
    windows: Vec<(u64, [f64; 4])>,
    current: u64,
    packets_before: u64,
    lost_before: u64,
    last_delay: f64,
    packets: u64,
    bytes: u64,
    delays: f64,
    steps: f64,
    lost: u64,
}

impl Series {
    fn add(&mut self, record: &LogRecord, window: u64, length_ms: f64) {
        if self.packets_before == 0 {
            self.current = window;
        } else if window > self.current {
            // A first packet alone in its window has no jitter; the last window is not that careful.
            let alone = self.windows.is_empty() && self.packets == 1;
            self.close(length_ms);
            if let (true, Some((_, values))) = (alone, self.windows.last_mut()) {
                values[JITTER] = 0.0;
            }
            self.current = window;
        }
        let delay = record.delay();
        if self.packets_before > 0 {
            self.steps += (delay - self.last_delay).abs();
        }
        self.last_delay = delay;
        self.packets += 1;
        self.bytes += u64::from(record.size);
        self.delays += delay;
        self.packets_before += 1;
        let (seen, seq) = (self.packets_before, u64::from(record.seq));
        if seq > seen + self.lost_before {
            self.lost += seq - seen - self.lost_before;
            self.lost_before = seq - seen;
        }
    }

    fn close(&mut self, length_ms: f64) {
        let n = self.packets as f64;
        let steps = if self.windows.is_empty() { n - 1.0 } else { n };
        let mut values = [0.0; 4];
        values[DELAY] = self.delays / n;
        values[JITTER] = quotient(self.steps, steps);
        values[BITRATE] = 8.0 * self.bytes as f64 / length_ms;
        values[LOSS] = self.lost as f64;
        self.windows.push((self.current, values));
        (self.packets, self.bytes, self.lost) = (0, 0, 0);
        (self.delays, self.steps) = (0.0, 0.0);
    }
}

/// The window of an arrival `rx`, seconds since midnight.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, saturates"
)]
fn window_of(rx: f64, t0: f64, length_s: f64) -> u64 {
    let mut window = (((rx - t0) / length_s).ceil() - 1.0).max(0.0) as u64;
    let end = |window: u64| t0 + (window as f64 + 1.0) * length_s;
    // The quotient may be off by a rounding error; the sum decides.
    if window > 0 && rx <= end(window - 1) {
        window -= 1;
    } else if rx > end(window) {
        window = window.saturating_add(1);
    }
    window
}

/// One column: its heading and the flow whose windows it shows.
struct Column {
    heading: Vec<u8>,
    flow: usize,
}

/// Columns in the order of the flows. Flows that differ in ports alone share a temporary file in
/// ITGDec, so that the last one's windows stand in the columns of all.
fn columns(figures: &Figures) -> Vec<Column> {
    let mut last: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    let heading = |key: &FlowKey| {
        let mut text = format!("{}-", key.flow).into_bytes();
        text.extend(key.src.shown());
        text.push(b'-');
        text.extend(key.dst.shown());
        text
    };
    for (number, flow) in figures.flows.iter().enumerate() {
        last.insert(heading(&flow.key), number);
    }
    let column = |heading: Vec<u8>| Column { flow: last[&heading], heading };
    figures.flows.iter().map(|flow| column(heading(&flow.key))).collect()
}

/// Computes the windows of all flows.
fn series(
    figures: &Figures,
    records: impl Iterator<Item = LogRecord>,
    options: &Options,
    length_ms: f64,
) -> Vec<Series> {
    let places: BTreeMap<FlowKey, usize> =
        figures.flows.iter().enumerate().map(|(number, flow)| (flow.key, number)).collect();
    let mut series: Vec<Series> = figures.flows.iter().map(|_| Series::default()).collect();
    let mut last: Option<(FlowKey, usize)> = None;
    for record in records.filter_map(|record| counted(record, options.flows)) {
        let key = FlowKey::of(&record);
        let place = match last {
            Some((known, place)) if known == key => place,
            _ => places[&key],
        };
        last = Some((key, place));
        let window = window_of(record.rx.seconds(), figures.first_rx, length_ms / 1000.0);
        series[place].add(&record, window, length_ms);
    }
    for one in &mut series {
        one.close(length_ms);
    }
    series
}

/// Rounds a value as the file does: to six decimals.
fn rounded(value: f64) -> f64 {
    if value.is_nan() { value } else { fixed(value, 0).parse().unwrap_or(value) }
}

/// Writes all files of windows that were asked for.
pub(super) fn write<'r>(
    options: &Options,
    figures: &Figures,
    records: impl Fn() -> Box<dyn Iterator<Item = LogRecord> + 'r>,
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let columns = columns(figures);
    let shared = columns.iter().enumerate().any(|(number, column)| column.flow != number);
    let asked = options.combined_series.is_some() || options.series.iter().any(Option::is_some);
    if shared && asked {
        out.notice(
            "flows that differ in ports alone share a column of windows, as with D-ITG: only the \
             last one's windows are shown; itg-decode --interval shows all",
        );
    }
    if let Some(windows) = &options.combined_series {
        let series = series(figures, records(), options, windows.length_ms);
        return table(windows, &columns, &series, &COMBINED, out);
    }
    for (which, windows) in options.series.iter().enumerate() {
        if let Some(windows) = windows {
            let series = series(figures, records(), options, windows.length_ms);
            table(windows, &columns, &series, &[which], out)?;
        }
    }
    Ok(())
}

/// Writes one file: a single kind of value with a column a flow and the sum, or the sums of several
/// kinds.
fn table(
    windows: &Windows,
    columns: &[Column],
    series: &[Series],
    kinds: &[usize],
    out: &mut dyn Outputs,
) -> Result<(), DecError> {
    let length_ms = windows.length_ms;
    let last = columns.iter().filter_map(|column| series[column.flow].windows.last());
    let rows = last.map(|(window, _)| window.saturating_add(1)).max().unwrap_or(0);
    let cells = rows.saturating_mul(columns.len() as u64 + 1);
    if cells > CELLS_MAX {
        return Err(DecError::TooManyWindows { length_ms, cells });
    }
    let mut file = create(&windows.file, out)?;
    let single = kinds.len() == 1;
    if single {
        file.write_all(b"Time ")?;
        for column in columns {
            file.write_all(&column.heading)?;
            file.write_all(b" ")?;
        }
        file.write_all(b"Aggregate-Flow\n")?;
    }
    let mut next = vec![0; columns.len()];
    for row in 0..rows {
        write!(file, "{}", fixed(row as f64 * length_ms / 1000.0, 0))?;
        let mut sums = [0.0; 4];
        for (column, next) in columns.iter().zip(&mut next) {
            let windows = &series[column.flow].windows;
            let values = match windows.get(*next) {
                Some((window, values)) if *window == row => {
                    *next += 1;
                    Some(values)
                }
                _ => None,
            };
            for (sum, kind) in sums.iter_mut().zip(kinds) {
                let value = rounded(values.map_or(0.0, |values| values[*kind]));
                *sum += value;
                if single {
                    write!(file, " {}", fixed(value, 0))?;
                }
            }
        }
        for sum in &sums[..kinds.len()] {
            write!(file, " {}", fixed(*sum, 0))?;
        }
        file.write_all(b"\n")?;
    }
    Ok(file.flush()?)
}
