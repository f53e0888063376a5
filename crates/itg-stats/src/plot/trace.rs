//! Trace of a flow's packets for plots, gathered while its records are added up.

use crate::plot::bins::{Sum, TimeBins};
use crate::quantiles::Point;
use crate::series::Window;

/// Rows of the delay map for each doubling of the delay.
pub const ROWS_AN_OCTAVE: i16 = 16;
/// Sizes below this are counted one by one; larger ones to 12 bits.
const EXACT_SIZES: u32 = 4_096;
/// log2 of the nanoseconds below which delays share one row.
const FLOOR_BITS: u32 = 10;

/// Resolution of the data kept for plots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceSetup {
    /// Most bins of time.
    pub bins: usize,
    /// Delay in nanoseconds that counts as 0 in the delay map: of two clocks that disagree, one that
    /// is near the others.
    pub origin_ns: i64,
}

/// One bin of time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Packets, bytes, delays and their variation, and the largest sequence number.
    pub window: Window,
    /// Smallest and largest delay in nanoseconds, when there is one.
    pub delay_ns: Option<(i64, i64)>,
    /// Delays by row of the delay map: row and count, ascending.
    pub rows: Vec<(i16, u64)>,
}

impl Sum for Cell {
    fn merge(&mut self, other: &Self) {
        self.window.merge(&other.window);
        self.reach(other.delay_ns);
        for &(row, count) in &other.rows {
            self.count(row, count);
        }
    }
}

impl Cell {
    fn reach(&mut self, range: Option<(i64, i64)>) {
        self.delay_ns = match (self.delay_ns, range) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (own, other) => own.or(other),
        };
    }

    fn count(&mut self, row: i16, count: u64) {
        match self.rows.binary_search_by_key(&row, |&(row, _)| row) {
            Ok(place) => self.rows[place].1 += count,
            Err(place) => self.rows.insert(place, (row, count)),
        }
    }
}

/// Sizes and how often they came.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    small: Vec<u64>,
    large: std::collections::BTreeMap<u32, u64>,
}

impl Sizes {
    fn add(&mut self, size: u32) {
        if size < EXACT_SIZES {
            let place = size as usize;
            if place >= self.small.len() {
                self.small.resize(place + 1, 0);
            }
            self.small[place] += 1;
        } else {
            let drop = 20 - size.leading_zeros();
            *self.large.entry(size >> drop << drop).or_default() += 1;
        }
    }

    fn merge(&mut self, other: &Self) {
        if other.small.len() > self.small.len() {
            self.small.resize(other.small.len(), 0);
        }
        for (own, more) in self.small.iter_mut().zip(&other.small) {
            *own += more;
        }
        for (&size, &count) in &other.large {
            *self.large.entry(size).or_default() += count;
        }
    }

    /// The sizes in bytes, ascending. From 4096 on, a point stands for sizes up to 1/2048 larger.
    #[must_use]
    pub fn points(&self) -> Vec<Point> {
        let small = (0i64..).zip(&self.small).map(|(size, &count)| (size, count));
        let large = self.large.iter().map(|(&size, &count)| (i64::from(size), count));
        let all = small.chain(large).filter(|&(_, count)| count > 0);
        all.map(|(size, count)| Point { low: size, high: size, count }).collect()
    }
}

/// Data for the plots of one flow at one side. Merges in any order.
#[derive(Clone, Debug)]
pub struct Trace {
    setup: TraceSetup,
    bins: TimeBins<Cell>,
    sent: Sizes,
    planned: Sizes,
}

impl Trace {
    /// Nothing yet.
    #[must_use]
    pub fn new(setup: TraceSetup) -> Self {
        Self {
            setup,
            bins: TimeBins::new(setup.bins),
            sent: Sizes::default(),
            planned: Sizes::default(),
        }
    }

    /// Takes one packet at `unix_ns`.
    pub fn add(&mut self, unix_ns: u64, delay_ns: Option<i64>, window: &Window) {
        let row = delay_ns.map(|delay| row_of(delay.saturating_sub(self.setup.origin_ns)));
        let cell = self.bins.at(unix_ns);
        cell.window.merge(window);
        cell.reach(delay_ns.map(|delay| (delay, delay)));
        if let Some(row) = row {
            cell.count(row, 1);
        }
    }

    /// Takes the size a packet had and the one planned for it, in bytes.
    pub fn add_size(&mut self, sent: u32, planned: u32) {
        self.sent.add(sent);
        self.planned.add(planned);
    }

    /// Takes a later part of the same flow: its first delay, received at `first_delay`, also has a
    /// step from the last one here.
    pub(crate) fn append(
        own: &mut Option<Self>,
        later: Option<Self>,
        first_delay: Option<u64>,
        step: impl FnOnce() -> Option<u64>,
    ) {
        let Some(later) = later else { return };
        match own {
            Some(trace) => trace.merge(&later),
            None => *own = Some(later),
        }
        if let (Some(trace), Some(unix_ns), Some(step)) = (own, first_delay, step()) {
            let window = &mut trace.bins.at(unix_ns).window;
            window.variation_sum += u128::from(step);
            window.variations += 1;
        }
    }

    /// Takes another part of the same flow.
    pub fn merge(&mut self, other: &Self) {
        self.bins.merge(&other.bins);
        self.sent.merge(&other.sent);
        self.planned.merge(&other.planned);
    }

    /// Settings of the trace.
    #[must_use]
    pub const fn setup(&self) -> TraceSetup {
        self.setup
    }

    /// The bins of time.
    #[must_use]
    pub const fn bins(&self) -> &TimeBins<Cell> {
        &self.bins
    }

    /// Sizes planned and sent, of the packets where both are known.
    #[must_use]
    pub const fn sizes(&self) -> (&Sizes, &Sizes) {
        (&self.planned, &self.sent)
    }
}

/// The row of a delay in nanoseconds: 0 below 1 µs, then [`ROWS_AN_OCTAVE`] a doubling, and the same
/// downwards for negative ones.
#[must_use]
pub fn row_of(delay_ns: i64) -> i16 {
    let far = delay_ns.unsigned_abs();
    let octave = 63 - (far | 1).leading_zeros();
    if octave < FLOOR_BITS {
        return 0;
    }
    #[allow(clippy::cast_possible_truncation, reason = "at most 54 octaves of 16 rows")]
    let row = ((octave - FLOOR_BITS) * 16 + (far >> (octave - 4) & 15) as u32 + 1) as i16;
    if delay_ns < 0 { -row } else { row }
}

/// Smallest and largest delay of a row in nanoseconds: at least the first, less than the second
/// (the other way round for the negative ones).
#[must_use]
pub fn row_range(row: i16) -> (i64, i64) {
    let edge = |row: i32| -> i64 {
        let (octave, part) = ((row - 1) / 16 + 10, i64::from((row - 1) % 16));
        let base = 1i64 << octave.min(62);
        if octave > 62 { i64::MAX } else { base + (base >> 4) * part }
    };
    let far = i32::from(row).abs();
    match row {
        0 => (-edge(1), edge(1)),
        1.. => (edge(far), edge(far + 1)),
        _ => (-edge(far + 1), -edge(far)),
    }
}
