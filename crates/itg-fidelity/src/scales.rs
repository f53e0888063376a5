//! Sums of successive inter-departure times, planned and sent, over 2, 4, … 1024 of them.
//!
//! The sum of *k* successive inter-departure times is the time between two packets whose numbers lie *k*
//! apart. At the scale *k* packets whose number is a multiple of *k* are compared: each packet is looked at
//! twice on average, parts of a flow merge exactly, and packets that are missing in between do not matter.
//! A scale keeps a histogram of what it found more often sent than planned: 128 buckets a power of two, at
//! most 0.8 % wide. Equal sums cancel out, so that a flow as planned needs no memory; 64 kB is the most.

#[cfg(doc)]
use itg_core::units::MAX_TIME_NS;

use crate::departures::Departed;
use crate::samples::signed_difference;

/// Number of scales beyond that of single inter-departure times; the last one has sums of 2 to this power.
pub(crate) const SCALES: usize = 10;
/// Buckets for each power of two.
const FINE: usize = 128;

/// Pages of buckets: one for the values below [`FINE`], and one for each power of two above.
const PAGES: usize = 64;

/// Histogram of the differences between two samples of equal size.
#[derive(Clone, Debug)]
struct Surplus {
    /// By page, where its buckets are among all of them, in pages and from 1; 0 for those that have none.
    places: [u8; PAGES],
    buckets: Vec<i64>,
}

impl Default for Surplus {
    fn default() -> Self {
        Self { places: [0; PAGES], buckets: Vec::new() }
    }
}

impl Surplus {
    /// A value of the first sample is `planned`, and one of the second `sent`.
    #[inline]
    fn add(&mut self, planned: i64, sent: i64) {
        let (planned, sent) = (place_of(planned), place_of(sent));
        if planned != sent {
            self.count(planned, -1);
            self.count(sent, 1);
        }
    }

    #[inline]
    fn count(&mut self, place: usize, more: i64) {
        // A page that is not there ends beyond the last bucket.
        let page = usize::from(self.places[place / FINE % PAGES]).wrapping_sub(1);
        match self.buckets.get_mut(page.wrapping_mul(FINE).wrapping_add(place % FINE)) {
            Some(bucket) => *bucket += more,
            None => self.page(place / FINE)[place % FINE] += more,
        }
    }

    /// A page, made when it does not exist.
    #[cold]
    fn page(&mut self, number: usize) -> &mut [i64] {
        if self.places[number] == 0 {
            self.buckets.reserve_exact(FINE);
            self.buckets.resize(self.buckets.len() + FINE, 0);
            let pages = self.buckets.len() / FINE;
            self.places[number] = u8::try_from(pages).expect("there are fewer pages");
        }
        let start = (usize::from(self.places[number]) - 1) * FINE;
        &mut self.buckets[start..start + FINE]
    }

    /// The buckets that hold something, ascending: page, number in it, and what it holds.
    fn counts(&self) -> impl Iterator<Item = (usize, usize, i64)> {
        self.places.iter().enumerate().filter(|(_, place)| **place > 0).flat_map(|(page, place)| {
            let start = (usize::from(*place) - 1) * FINE;
            let buckets = self.buckets[start..start + FINE].iter().enumerate();
            buckets.filter(|(_, more)| **more != 0).map(move |(at, &more)| (page, at, more))
        })
    }

    fn merge(&mut self, other: &Self) {
        for (page, bucket, more) in other.counts() {
            self.count(page * FINE + bucket, more);
        }
    }

    /// ∫ |F(x) − G(x)| dx of the two samples, times their size.
    fn area(&self) -> f64 {
        let (mut ahead, mut before, mut area) = (0i64, 0.0, 0.0);
        for (page, bucket, more) in self.counts() {
            let middle = middle_of(page, bucket);
            area += ahead.unsigned_abs() as f64 * (middle - before);
            (ahead, before) = (ahead + more, middle);
        }
        area
    }
}

/// Number of a value's bucket over all pages; values below 0, which only clocks that are set make, count as 0.
#[inline]
fn place_of(value: i64) -> usize {
    const LEAST: u64 = 2 * FINE as u64 - 1;
    let value = value.max(0).unsigned_abs();
    let shift = LEAST.leading_zeros() - (value | LEAST).leading_zeros();
    #[allow(clippy::cast_possible_truncation, reason = "less than 256 behind the shift")]
    let fine = (value >> shift) as usize;
    shift as usize * FINE + fine
}

/// Middle of a bucket.
fn middle_of(page: usize, bucket: usize) -> f64 {
    match page.checked_sub(1) {
        None => bucket as f64,
        Some(shift) => {
            let width = (1u64 << shift) as f64;
            (FINE + bucket) as f64 * width + (width - 1.0) / 2.0
        }
    }
}

/// Sums over one number of inter-departure times.
#[derive(Clone, Debug, Default)]
struct Scale {
    head: Option<Departed>,
    last: Option<Departed>,
    surplus: Surplus,
    sums: u64,
    /// Sum of the squares of sent − planned.
    squares: u128,
}

impl Scale {
    fn take(&mut self, packet: Departed, gaps: u64) {
        self.pair(packet, gaps);
        self.head.get_or_insert(packet);
        self.last = Some(packet);
    }

    /// Takes those of packets of consecutive numbers, `first` and on, that are multiples of `gaps`: the same as one
    /// by one, and sooner where the errors are small. Times are at most [`MAX_TIME_NS`].
    fn take_all(&mut self, first: u64, planned_ns: &[u64], sent_ns: &[u64], gaps: usize) {
        /// Squares of errors up to this, so many of them, fit in 64 bits.
        const SMALL: u64 = 1 << 28;
        debug_assert!(planned_ns.len() <= 128, "sums of more squares may not fit");
        let sum_of = gaps as u64;
        // The way up to the next multiple of a power of two.
        let way = first.wrapping_neg() & (sum_of - 1);
        let Ok(skipped) = usize::try_from(way) else { return };
        let (Some(planned_ns), Some(sent_ns)) = (planned_ns.get(skipped..), sent_ns.get(skipped..))
        else {
            return;
        };
        let mut times = planned_ns.iter().step_by(gaps).zip(sent_ns.iter().step_by(gaps));
        let Some((&planned_ns, &sent_ns)) = times.next() else { return };
        let mut before = Departed { seq: first + way, planned_ns, sent_ns };
        self.take(before, sum_of);
        let (mut squares, mut sums) = (0u64, 0);
        for (&planned_ns, &sent_ns) in times {
            let planned = planned_ns.wrapping_sub(before.planned_ns).cast_signed();
            let sent = sent_ns.wrapping_sub(before.sent_ns).cast_signed();
            (before.planned_ns, before.sent_ns) = (planned_ns, sent_ns);
            self.surplus.add(planned, sent);
            sums += 1;
            let off = sent.abs_diff(planned);
            if off <= SMALL {
                squares += off * off;
            } else {
                self.add_square(off);
            }
        }
        before.seq += sums * sum_of;
        self.sums += sums;
        self.squares = self.squares.saturating_add(u128::from(squares));
        self.last = Some(before);
    }

    fn add_square(&mut self, off: u64) {
        let off = u128::from(off);
        self.squares = self.squares.saturating_add(off.saturating_mul(off));
    }

    /// Takes the sum that ends at this packet, if it begins at the last one.
    #[inline]
    fn pair(&mut self, packet: Departed, gaps: u64) {
        let Some(before) = self.last.filter(|b| b.seq.checked_add(gaps) == Some(packet.seq)) else {
            return;
        };
        let planned = signed_difference(packet.planned_ns, before.planned_ns);
        let sent = signed_difference(packet.sent_ns, before.sent_ns);
        self.surplus.add(planned, sent);
        self.sums += 1;
        self.add_square(sent.abs_diff(planned));
    }

    fn append(&mut self, later: &Self, gaps: u64) {
        if let Some(head) = later.head {
            self.pair(head, gaps);
            self.head.get_or_insert(head);
        }
        self.last = later.last.or(self.last);
        self.surplus.merge(&later.surplus);
        self.sums += later.sums;
        self.squares = self.squares.saturating_add(later.squares);
    }
}

/// Distance between planned and sent sums at one scale, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SumDistance {
    /// Inter-departure times in a sum.
    pub(crate) gaps: u64,
    /// Number of sums.
    pub(crate) sums: u64,
    /// Wasserstein-1 distance.
    pub(crate) distance_ns: f64,
    /// Root of the mean square of sent − planned.
    pub(crate) rms_ns: f64,
}

/// All scales, as far as packets were taken at them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scales {
    /// The packet with number 0, a multiple of everything: scales begin with it.
    zero: Option<Departed>,
    /// From the scale of 2 on.
    list: Vec<Scale>,
}

impl Scales {
    /// Takes the next packet.
    #[inline]
    pub(crate) fn take(&mut self, packet: Departed) {
        if packet.seq == 0 {
            self.zero = Some(packet);
        } else {
            self.reach((packet.seq.trailing_zeros() as usize).min(SCALES));
        }
        let scales = (packet.seq.trailing_zeros() as usize).min(self.list.len());
        for (scale, gaps) in self.list[..scales].iter_mut().zip(powers()) {
            scale.take(packet, gaps);
        }
    }

    /// Takes at most 128 packets of consecutive numbers, `first` and on; as many planned times as actual ones, at
    /// most [`MAX_TIME_NS`].
    pub(crate) fn take_all(&mut self, first: u64, planned_ns: &[u64], sent_ns: &[u64]) {
        let Some(last) = (planned_ns.len() as u64).checked_sub(1).map(|more| first + more) else {
            return;
        };
        // The highest bit in which the last number differs from the one before the first: a multiple lies there.
        let highest = first.checked_sub(1).map_or(last, |before| before ^ last);
        self.reach(highest.checked_ilog2().map_or(0, |power| (power as usize).min(SCALES)));
        for (scale, power) in self.list.iter_mut().zip(1..) {
            scale.take_all(first, planned_ns, sent_ns, 1 << power);
        }
        if first == 0 {
            let (planned_ns, sent_ns) = (planned_ns[0], sent_ns[0]);
            self.zero = Some(Departed { seq: 0, planned_ns, sent_ns });
        }
    }

    /// Makes so many scales, unless they are there.
    #[inline]
    fn reach(&mut self, scales: usize) {
        if self.list.len() < scales {
            self.list.reserve_exact(scales - self.list.len());
            self.list
                .resize(scales, Scale { head: self.zero, last: self.zero, ..Scale::default() });
        }
    }

    /// Takes those of a later part of the flow.
    pub(crate) fn append(&mut self, later: &Self) {
        self.reach(later.list.len());
        let unreached = Scale { head: later.zero, last: later.zero, ..Scale::default() };
        let all = later.list.iter().chain(std::iter::repeat(&unreached));
        for ((scale, later), gaps) in self.list.iter_mut().zip(all).zip(powers()) {
            scale.append(later, gaps);
        }
        self.zero = self.zero.or(later.zero);
    }

    /// The distances at the scales that have sums.
    pub(crate) fn distances(&self) -> impl Iterator<Item = SumDistance> {
        let scales = self.list.iter().zip(powers()).filter(|(scale, _)| scale.sums > 0);
        scales.map(|(scale, gaps)| SumDistance {
            gaps,
            sums: scale.sums,
            distance_ns: scale.surplus.area() / scale.sums as f64,
            rms_ns: (scale.squares as f64 / scale.sums as f64).sqrt(),
        })
    }
}

fn powers() -> impl Iterator<Item = u64> {
    (1..).map(|power: u32| 1 << power)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn packets(gaps: &[(u64, u64)]) -> Vec<Departed> {
        let (mut planned_ns, mut sent_ns) = (0, 0);
        (0..)
            .zip(gaps)
            .map(|(seq, (planned, sent))| {
                (planned_ns, sent_ns) = (planned_ns + planned, sent_ns + sent);
                Departed { seq, planned_ns, sent_ns }
            })
            .collect()
    }

    fn scales(packets: &[Departed]) -> Scales {
        let mut scales = Scales::default();
        packets.iter().for_each(|packet| scales.take(*packet));
        scales
    }

    /// Wasserstein-1 distance of two samples of equal size: the mean difference of the sorted values.
    fn twin(packets: &[Departed], gaps: usize) -> (u64, f64) {
        let ends: Vec<_> = packets.iter().step_by(gaps).collect();
        let sums = |time: fn(&Departed) -> u64| {
            let mut sums: Vec<_> = ends.windows(2).map(|p| time(p[1]) - time(p[0])).collect();
            sums.sort_unstable();
            sums
        };
        let (planned, sent) = (sums(|p| p.planned_ns), sums(|p| p.sent_ns));
        let apart: u64 = planned.iter().zip(&sent).map(|(p, s)| p.abs_diff(*s)).sum();
        (planned.len() as u64, apart as f64 / planned.len() as f64)
    }

    proptest! {
        #[test]
        fn distances_agree_with_their_definition(
            gaps in prop::collection::vec((0u64..3_000_000, 0u64..3_000_000), 3..200),
        ) {
            let packets = packets(&gaps);
            for found in scales(&packets).distances() {
                let (sums, distance) = twin(&packets, usize::try_from(found.gaps).expect("small"));
                prop_assert_eq!(found.sums, sums);
                let near = 0.008 * 3e6 * found.gaps as f64;
                prop_assert!((found.distance_ns - distance).abs() <= near, "{:?} {}", found, distance);
            }
        }

        #[test]
        fn appended_parts_are_the_whole(
            gaps in prop::collection::vec((0u64..3_000_000, 0u64..3_000_000), 1..100),
            missing in 0usize..100,
            cut in 0usize..100,
        ) {
            let mut packets = packets(&gaps);
            packets.remove(missing.min(packets.len() - 1));
            let (head, tail) = packets.split_at(cut.min(packets.len()));
            let mut parts = scales(head);
            parts.append(&scales(tail));
            let told = |scales: &Scales| format!("{:?}", scales.distances().collect::<Vec<_>>());
            prop_assert_eq!(told(&parts), told(&scales(&packets)));
        }
    }

    proptest! {
        #[test]
        fn packets_taken_together_are_taken_one_by_one(
            gaps in prop::collection::vec((0u64..3_000_000, 0u64..3_000_000), 1..128),
            first in 0u64..5_000,
            late_ns in 0u64..1_000_000_000,
        ) {
            let mut packets = packets(&gaps);
            packets.iter_mut().for_each(|packet| packet.seq += first);
            let half = packets.len() / 2;
            packets[half..].iter_mut().for_each(|packet| packet.sent_ns += late_ns);
            let mut together = Scales::default();
            for packets in packets.chunks(100) {
                let planned: Vec<_> = packets.iter().map(|packet| packet.planned_ns).collect();
                let sent: Vec<_> = packets.iter().map(|packet| packet.sent_ns).collect();
                together.take_all(packets[0].seq, &planned, &sent);
            }
            prop_assert_eq!(format!("{together:?}"), format!("{:?}", scales(&packets)));
        }
    }

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut before = 0;
        for value in (0..2_000).chain((11..62).flat_map(|bit| [(1i64 << bit) - 1, 1 << bit])) {
            let place = place_of(value);
            assert!(place >= before, "{value}");
            before = place;
            let apart = (middle_of(place / FINE, place % FINE) - value as f64).abs();
            assert!(apart <= 0.004 * value as f64, "{value} in {place:?}: {apart} from the middle");
        }
        assert_eq!(place_of(i64::MIN), 0);
        assert!(place_of(i64::MAX) < 64 * FINE);
    }
}
