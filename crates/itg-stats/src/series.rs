//! The course of a flow over time, in windows of equal length.
//!
//! Window *k* holds the packets with t₀ + k·T ≤ t < t₀ + (k+1)·T, where t is the packet's own time
//! (arrival; sending at the sender of a one-way flow) and t₀ the first packet of all flows; so
//! packets out of order are counted where they belong. D-ITG's windows are open at the other end
//! and only move forward. Memory grows with the windows that hold packets.

use std::collections::BTreeMap;

use serde::Serialize;

/// The sums of one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// Sum of the known delays in nanoseconds.
    pub delay_sum: i128,
    /// Number of known delays.
    pub delays: u64,
    /// Sum of |Dᵢ − Dᵢ₋₁| in nanoseconds, each in the window of the later packet.
    pub variation_sum: u128,
    /// Number of the differences in `variation_sum`.
    pub variations: u64,
    /// Lost packets, once the account of the flow tells which they are: 0 while packets are added.
    pub lost: u64,
    /// Largest sequence number.
    pub seq_max: Option<u64>,
}

impl Window {
    /// Adds the sums of another window.
    pub fn merge(&mut self, other: &Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.delay_sum += other.delay_sum;
        self.delays += other.delays;
        self.variation_sum += other.variation_sum;
        self.variations += other.variations;
        self.lost = self.lost.saturating_add(other.lost);
        self.seq_max = self.seq_max.max(other.seq_max);
    }
}

/// Start and length of the windows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    /// Start of window 0, in Unix nanoseconds.
    pub start_unix_ns: u64,
    /// Length of each window in nanoseconds, at least 1.
    pub interval_ns: u64,
}

/// The windows of one flow that hold packets.
#[derive(Clone, Debug)]
pub struct Series {
    grid: Grid,
    windows: BTreeMap<u64, Window>,
    hot: (u64, Window),
}

/// One window of a report.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct IntervalRow {
    /// Start of the window, from the first packet of all flows.
    pub start_ns: u64,
    /// True if packets end before the window does; its rates still divide by its whole length.
    pub partial: bool,
    /// Packets.
    pub packets: u64,
    /// Bytes.
    pub bytes: u64,
    /// 8 · bytes / T.
    pub bitrate_bps: f64,
    /// Mean of the known delays; `None` when none is known.
    pub delay_mean_ns: Option<f64>,
    /// Mean of |Dᵢ − Dᵢ₋₁|; `None` when there is none.
    pub jitter_mean_ns: Option<f64>,
    /// Lost packets, each where the first one with a larger number arrived, or in the flow's last window with packets;
    /// `None` where `lost_why` says so.
    pub lost: Option<u64>,
}

impl Series {
    /// A series without packets.
    #[must_use]
    pub fn new(grid: Grid) -> Self {
        Self { grid, windows: BTreeMap::new(), hot: (0, Window::default()) }
    }

    /// Adds one packet at `unix_ns`.
    pub fn add(&mut self, unix_ns: u64, packet: &Window) {
        let since = unix_ns.saturating_sub(self.grid.start_unix_ns);
        let number = since / self.grid.interval_ns.max(1);
        if number != self.hot.0 {
            self.settle();
            self.hot.0 = number;
        }
        self.hot.1.merge(packet);
    }

    /// Puts right what a packet at `unix_ns` added to its window.
    pub(crate) fn correct(&mut self, unix_ns: u64, change: impl FnOnce(&mut Window)) {
        self.settle();
        let number = unix_ns.saturating_sub(self.grid.start_unix_ns) / self.grid.interval_ns.max(1);
        self.windows.entry(number).and_modify(change);
    }

    /// Adds the windows of another series on the same grid.
    pub fn merge(&mut self, other: &Self) {
        debug_assert_eq!(self.grid, other.grid, "series on different grids do not add up");
        self.settle();
        for (number, window) in other.windows() {
            self.windows.entry(number).or_default().merge(&window);
        }
    }

    /// The windows that hold packets, ascending.
    #[must_use]
    pub fn windows(&self) -> BTreeMap<u64, Window> {
        let mut settled = self.clone();
        settled.settle();
        settled.windows
    }

    /// Start and length of the windows.
    #[must_use]
    pub const fn grid(&self) -> Grid {
        self.grid
    }

    fn settle(&mut self) {
        let window = std::mem::take(&mut self.hot.1);
        if window.packets > 0 {
            self.windows.entry(self.hot.0).or_default().merge(&window);
        }
    }
}

impl IntervalRow {
    /// The figures of window `number`; `last` is the last window of all flows.
    #[must_use]
    pub fn new(number: u64, last: u64, grid: Grid, window: &Window, losses_known: bool) -> Self {
        let mean = |sum: f64, count: u64| (count > 0).then(|| sum / count as f64);
        Self {
            start_ns: number.saturating_mul(grid.interval_ns),
            partial: number == last,
            packets: window.packets,
            bytes: window.bytes,
            bitrate_bps: 8e9 * window.bytes as f64 / grid.interval_ns.max(1) as f64,
            delay_mean_ns: mean(window.delay_sum as f64, window.delays),
            jitter_mean_ns: mean(window.variation_sum as f64, window.variations),
            lost: losses_known.then_some(window.lost),
        }
    }
}
