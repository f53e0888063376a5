//! Intervals of differences by the circular block bootstrap over bins of time.
//!
//! Packets close to each other have similar delays and losses, so single packets must not be drawn
//! independently: whole blocks of ⌈n^⅓⌉ neighbouring bins are, from a circle of the n bins of each
//! run, and the figure is computed again from their sums. The interval reaches from the 2.5th to
//! the 97.5th percentile of B − A over all resamples, moved so that B − A of the bins falls on the
//! exact one. It covers the variation within a run, not that from run to run. With fewer than
//! [`LEAST_BINS`] bins there is none. Percentiles come from the rows of the delay map, interpolated
//! within a row of 1/16 octave.
//!
//! Sources: Politis and Romano, *A circular block-resampling procedure for stationary data* (1992);
//! Hall, Horowitz and Jing, *Biometrika* 82 (1995) for the length of the blocks.

use itg_stats::plot::Curves;
use itg_stats::plot::trace::{Cell, row_range};

use crate::comparison::Resampling;

/// Figures that have an interval.
pub(crate) const STATISTICS: usize = 7;
/// Bins below which a run says nothing about its own variation.
pub(crate) const LEAST_BINS: usize = 16;
const LEAST_RESAMPLES: u32 = 20;

/// The sums of one bin, or of many.
#[derive(Clone, Debug, Default)]
struct Sums {
    bytes: f64,
    packets: f64,
    lost: f64,
    delay: f64,
    delays: f64,
    variation: f64,
    variations: f64,
}

/// The bins of a run, ready to be drawn.
pub(crate) struct Blocks {
    bins: Vec<Sums>,
    /// For each bin: place in `edges` and count.
    rows: Vec<Vec<(usize, f64)>>,
    /// Ends of each row that occurs, in nanoseconds, ascending.
    edges: Vec<(f64, f64)>,
    bin_ns: f64,
    losses_known: bool,
}

impl Blocks {
    pub(crate) fn of(curves: &Curves) -> Self {
        let mut cells: Vec<&Cell> = curves.bins.cells().collect();
        // The first and the last bin are not full.
        if cells.len() > LEAST_BINS + 1 {
            cells.remove(0);
            cells.pop();
        }
        let mut names: Vec<i16> =
            cells.iter().flat_map(|cell| cell.rows.iter().map(|row| row.0)).collect();
        names.sort_unstable();
        names.dedup();
        let origin = curves.origin_ns as f64;
        let edges = names.iter().map(|&row| {
            let (low, high) = row_range(row);
            (low as f64 + origin, high as f64 + origin)
        });
        let place = |row: i16| names.binary_search(&row).unwrap_or(0);
        let rows = cells
            .iter()
            .map(|cell| cell.rows.iter().map(|&(row, count)| (place(row), count as f64)).collect());
        Self {
            bins: cells.iter().map(|cell| Sums::of(cell)).collect(),
            rows: rows.collect(),
            edges: edges.collect(),
            bin_ns: curves.bins.bin_ns() as f64,
            losses_known: curves.losses_known,
        }
    }

    /// The figures of the bins at these places.
    fn figures(&self, places: &[usize], counts: &mut Vec<f64>) -> [Option<f64>; STATISTICS] {
        let mut sums = Sums::default();
        counts.clear();
        counts.resize(self.edges.len(), 0.0);
        for &place in places {
            sums.add(&self.bins[place]);
            for &(row, count) in &self.rows[place] {
                counts[row] += count;
            }
        }
        let mean = |sum: f64, count: f64| (count > 0.0).then(|| sum / count);
        let at = |share| self.quantile(counts, sums.delays, share);
        [
            Some(8e9 * sums.bytes / (self.bin_ns * places.len().max(1) as f64)),
            mean(sums.lost, sums.lost + sums.packets).filter(|_| self.losses_known),
            mean(sums.delay, sums.delays),
            at(0.5),
            at(0.9),
            at(0.99),
            mean(sums.variation, sums.variations),
        ]
    }

    fn quantile(&self, counts: &[f64], total: f64, share: f64) -> Option<f64> {
        let wanted = share * total;
        let mut reached = 0.0;
        for (&count, &(low, high)) in counts.iter().zip(&self.edges) {
            if count > 0.0 && reached + count >= wanted {
                return Some(low + (high - low) * ((wanted - reached) / count).clamp(0.0, 1.0));
            }
            reached += count;
        }
        None
    }
}

impl Sums {
    fn of(cell: &Cell) -> Self {
        let window = &cell.window;
        Self {
            bytes: window.bytes as f64,
            packets: window.packets as f64,
            lost: window.lost as f64,
            delay: window.delay_sum as f64,
            delays: window.delays as f64,
            variation: window.variation_sum as f64,
            variations: window.variations as f64,
        }
    }

    fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.packets += other.packets;
        self.lost += other.lost;
        self.delay += other.delay;
        self.delays += other.delays;
        self.variation += other.variation;
        self.variations += other.variations;
    }
}

/// B − A of the bins as they are. Percentiles are within a row of the exact ones.
fn estimate(a: &Blocks, b: &Blocks) -> [Option<f64>; STATISTICS] {
    let mut counts = Vec::new();
    let [a, b] = [a, b].map(|run| {
        let places: Vec<usize> = (0..run.bins.len()).collect();
        run.figures(&places, &mut counts)
    });
    std::array::from_fn(|place| a[place].zip(b[place]).map(|(a, b)| b - a))
}

/// The 95 % intervals of B − A, counted from B − A itself.
pub(crate) fn intervals(
    a: &Blocks,
    b: &Blocks,
    resampling: Resampling,
) -> [Option<[f64; 2]>; STATISTICS] {
    let few = a.bins.len().min(b.bins.len()) < LEAST_BINS;
    if few || resampling.resamples < LEAST_RESAMPLES {
        return [None; STATISTICS];
    }
    let mut random = SplitMix(resampling.seed);
    let mut differences: [Vec<f64>; STATISTICS] = Default::default();
    let (mut places, mut counts) = (Vec::new(), Vec::new());
    for _ in 0..resampling.resamples {
        let [of_a, of_b] = [a, b].map(|run| {
            draw(run.bins.len(), &mut random, &mut places);
            run.figures(&places, &mut counts)
        });
        for ((list, a), b) in differences.iter_mut().zip(of_a).zip(of_b) {
            list.extend(a.zip(b).map(|(a, b)| b - a));
        }
    }
    let estimate = estimate(a, b);
    let mut place = 0;
    differences.map(|mut list| {
        let origin = estimate[place];
        place += 1;
        // A figure that some resamples do not have has no interval.
        if list.len() < resampling.resamples as usize {
            return None;
        }
        list.sort_unstable_by(f64::total_cmp);
        let at = |thousandths: usize| list[(list.len() - 1) * thousandths / 1000];
        let last = list.len() - 1;
        origin.map(|origin| [at(25) - origin, list[last - last * 25 / 1000] - origin])
    })
}

/// Places of `n` bins in blocks of ⌈n^⅓⌉, on a circle.
fn draw(n: usize, random: &mut SplitMix, places: &mut Vec<usize>) {
    let length = (1..).find(|length: &usize| length.pow(3) >= n).unwrap_or(1);
    places.clear();
    while places.len() < n {
        let start = random.below(n);
        places.extend((0..length.min(n - places.len())).map(|step| (start + step) % n));
    }
}

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): small, seeded, good enough to choose blocks.
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform below `n`, up to a bias of n / 2⁶⁴.
    fn below(&mut self, n: usize) -> usize {
        let wide = (u128::from(self.next()) * n as u128) >> 64;
        usize::try_from(wide).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use itg_stats::plot::bins::TimeBins;
    use itg_stats::plot::trace::{Trace, TraceSetup};
    use itg_stats::series::Window;

    use super::*;

    /// A run of 4096 packets of 100 bytes, one each millisecond, with these delays.
    fn run(delay: impl Fn(u64) -> i64) -> Curves {
        let mut trace = Trace::new(TraceSetup { bins: 512, origin_ns: 0 });
        for k in 0..4096 {
            let delay = delay(k);
            let window = Window {
                packets: 1,
                bytes: 100,
                delay_sum: i128::from(delay),
                delays: 1,
                seq_max: Some(k),
                ..Window::default()
            };
            trace.add(1_700_000_000_000_000_000 + k * 1_000_000, Some(delay), &window);
        }
        let bins: TimeBins<Cell> = trace.bins().clone();
        let none = Vec::new;
        Curves {
            bins,
            losses_known: true,
            origin_ns: 0,
            delay: none(),
            delay_marks: [0; 2],
            jitter: none(),
            lateness: none(),
        }
    }

    fn noise(k: u64, seed: u64) -> i64 {
        let mut random = SplitMix(seed);
        let mut at = SplitMix(random.next() ^ k);
        i64::try_from(at.next() % 1_000_000).expect("small")
    }

    #[test]
    fn the_generator_gives_the_published_numbers() {
        let mut random = SplitMix(1_234_567);
        assert_eq!(
            [random.next(), random.next()],
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]
        );
    }

    #[test]
    fn intervals_hold_the_truth_and_say_when_there_is_none() {
        let base = Blocks::of(&run(|k| 5_000_000 + noise(k, 1)));
        let same = Blocks::of(&run(|k| 5_000_000 + noise(k, 2)));
        let slower = Blocks::of(&run(|k| 5_300_000 + noise(k, 3)));
        let resampling = Resampling { resamples: 400, seed: 7 };
        let [rate, loss, mean, p50, .., p99, jitter] = intervals(&base, &slower, resampling);
        // A bin of 8.192 ms holds 8 packets or 9.
        let [low, high] = rate.expect("an interval");
        assert!((-5_000.0..=0.0).contains(&low) && (0.0..5_000.0).contains(&high), "{low} {high}");
        assert_eq!(jitter, None);
        assert_eq!(loss, Some([0.0, 0.0]));
        for interval in [mean, p50, p99] {
            let [low, high] = interval.expect("an interval");
            assert!((-100_000.0..0.0).contains(&low), "{low} {high}");
            assert!((0.0..100_000.0).contains(&high), "{low} {high}");
        }
        let [_, _, mean, ..] = intervals(&base, &same, resampling);
        let [low, high] = mean.expect("an interval");
        assert!(low < 0.0 && 0.0 < high, "{low} {high}");
        assert_eq!(
            intervals(&base, &same, resampling)[2],
            mean,
            "the same seed, the same interval"
        );
        let few = Resampling { resamples: 10, seed: 7 };
        assert_eq!(intervals(&base, &same, few), [None; STATISTICS]);
    }

    /// Noise in which neighbours are correlated: its intervals must be wider than independent draws
    /// would make them, and hold 0 about as often as they say.
    #[test]
    fn intervals_cover_as_often_as_they_say() {
        let mut covered = 0;
        for seed in 0..60 {
            let course = |seed| Blocks::of(&run(move |k| 5_000_000 + noise(k / 24, seed)));
            let resampling = Resampling { resamples: 200, seed };
            let (a, b) = (course(1000 + seed), course(2000 + seed));
            let [_, _, mean, ..] = intervals(&a, &b, resampling);
            let [low, high] =
                mean.expect("an interval").map(|end| end + estimate(&a, &b)[2].expect("delays"));
            covered += u32::from(low <= 0.0 && 0.0 <= high);
        }
        // Of 60 at 95 %, 57 are expected; 48 or fewer would be a wrong interval.
        assert!(covered > 48, "{covered} of 60");
    }

    #[test]
    fn blocks_are_whole_and_on_a_circle() {
        let mut places = Vec::new();
        draw(30, &mut SplitMix(3), &mut places);
        assert_eq!(places.len(), 30);
        for block in places.chunks(4).filter(|block| block.len() == 4) {
            assert!(block.windows(2).all(|pair| (pair[0] + 1) % 30 == pair[1]), "{block:?}");
        }
    }
}
