//! Planned against actual departures of one flow, added up.

use std::collections::BTreeMap;

use itg_core::units::MAX_TIME_NS;

use crate::autocorrelation::Autocorrelation;
use crate::errors::GapErrors;
use crate::moments::Moments;
use crate::narrow::{MOST as RUN, Narrow};
use crate::quantiles::{Counts, Quantiles};
use crate::samples::{SampleDistribution, signed_difference};
use crate::scales::Scales;
use crate::stall::{Stall, Stalls};

/// One packet of which both the planned and the actual time of sending are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departed {
    /// Sequence number.
    pub seq: u64,
    /// Planned, in nanoseconds from the start of the flow.
    pub planned_ns: u64,
    /// Sent, in Unix nanoseconds of the sender's clock.
    pub sent_ns: u64,
}

/// Planned against actual departures of one flow.
#[derive(Clone, Debug, Default)]
pub struct Departures {
    pub(crate) lateness: SampleDistribution,
    pub(crate) planned: Quantiles,
    pub(crate) sent: Quantiles,
    pub(crate) errors: GapErrors,
    pub(crate) scales: Scales,
    /// Times between stamps of packets that left back to back: how long handing packets over takes.
    pub(crate) spacings: Quantiles,
    pub(crate) gaps: Autocorrelation,
    pub(crate) gap_moments: Moments,
    sizes: BTreeMap<u32, i64>,
    sizes_compared: u64,
    sizes_wrong: u64,
    pub(crate) all_sizes: Counts,
    /// The ones with the smallest and the largest number.
    pub(crate) first: Option<Departed>,
    pub(crate) last: Option<Departed>,
    /// The ones taken first and last, with the lateness of the last one.
    head: Option<Departed>,
    before: Option<Departed>,
    before_late_ns: Option<i64>,
    pub(crate) stalls: Stalls,
}

/// Lateness of a packet, in nanoseconds; `epoch_unix_ns` is the instant that planned times count from.
#[inline]
fn lateness_ns(packet: &Departed, epoch_unix_ns: u64) -> i64 {
    signed_difference(packet.sent_ns, epoch_unix_ns.saturating_add(packet.planned_ns))
}

/// Returns true if a packet was due at the stamp of the one before, which was so late, and the two stamps are
/// as far apart as handing over takes: a sender that is late throughout keeps the planned distance.
#[inline]
const fn are_back_to_back(late: i64, planned: i64, sent: i64) -> bool {
    late >= planned && sent > 0 && (sent < planned / 2 || planned < sent / 2)
}

impl Departures {
    /// Takes a packet; `epoch_unix_ns` is the instant that planned times count from, when known.
    pub fn add(&mut self, packet: Departed, epoch_unix_ns: Option<u64>) {
        let late = epoch_unix_ns.map(|epoch| lateness_ns(&packet, epoch));
        if let Some(late) = late {
            self.lateness.add(late);
        }
        self.follow(packet);
        self.before_late_ns = late;
        self.span(packet);
    }

    /// Takes packets of consecutive numbers, `first` and on, of which there are as many planned as actual times (see
    /// [`Departed`]): the same as one by one, and sooner.
    ///
    /// # Panics
    /// If there are more of one than of the other.
    pub fn add_in_order(
        &mut self,
        first: u64,
        planned_ns: &[u64],
        sent_ns: &[u64],
        epoch_unix_ns: Option<u64>,
    ) {
        assert_eq!(planned_ns.len(), sent_ns.len(), "each packet has both");
        let mut seq = first;
        for (planned_ns, sent_ns) in planned_ns.chunks(RUN).zip(sent_ns.chunks(RUN)) {
            self.add_run(seq, planned_ns, sent_ns, epoch_unix_ns);
            seq = seq.wrapping_add(planned_ns.len() as u64);
        }
    }

    /// As [`Departures::add_in_order`], for at least one and at most [`RUN`].
    fn add_run(
        &mut self,
        seq: u64,
        planned_ns: &[u64],
        sent_ns: &[u64],
        epoch_unix_ns: Option<u64>,
    ) {
        let packet = |at: usize| Departed {
            seq: seq + at as u64,
            planned_ns: planned_ns[at],
            sent_ns: sent_ns[at],
        };
        let bits = |times: &[u64]| times.iter().fold(0, |bits, time| bits | time);
        if bits(planned_ns) | bits(sent_ns) | epoch_unix_ns.unwrap_or(0) >= MAX_TIME_NS {
            // Differences and sums may not fit.
            return (0..planned_ns.len()).for_each(|at| self.add(packet(at), epoch_unix_ns));
        }
        let mut lateness = [0; RUN];
        let lateness = &mut lateness[..planned_ns.len()];
        if let Some(epoch) = epoch_unix_ns {
            for ((late, planned), sent) in lateness.iter_mut().zip(planned_ns).zip(sent_ns) {
                *late = sent.wrapping_sub(epoch + planned).cast_signed();
            }
            self.lateness.add_all(lateness);
        }
        let last = planned_ns.len() - 1;
        self.follow(packet(0));
        self.scales.take_all(seq.wrapping_add(1), &planned_ns[1..], &sent_ns[1..]);
        let (mut planned, mut sent) = ([0; RUN], [0; RUN]);
        for (gaps, times) in [(&mut planned, planned_ns), (&mut sent, sent_ns)] {
            for ((gap, later), earlier) in gaps.iter_mut().zip(&times[1..]).zip(times) {
                *gap = later.wrapping_sub(*earlier).cast_signed();
            }
        }
        let (planned, sent) = (&planned[..last], &sent[..last]);
        if let (Some(planned), Some(near)) = (Narrow::of(planned), Narrow::of(sent)) {
            self.planned.add_narrow(&planned);
            self.sent.add_narrow(&near);
            self.gaps.add_narrow(&near);
            self.gap_moments.add_narrow(&near);
            if self.errors.add_narrow(&planned, &near) > self.stalls.longest_ns() {
                self.stalls.follow_all(seq, planned.values(), near.values());
            }
        } else {
            for (at, (&planned, &sent)) in planned.iter().zip(sent).enumerate() {
                self.take_gap(seq + at as u64, planned, sent);
            }
        }
        if epoch_unix_ns.is_some() {
            for ((late, planned), sent) in lateness.iter().zip(planned).zip(sent) {
                if are_back_to_back(*late, *planned, *sent) {
                    self.spacings.add(*sent);
                }
            }
        }
        self.before = Some(packet(last));
        self.before_late_ns = epoch_unix_ns.and_then(|_| lateness.last().copied());
        self.span(packet(0));
        self.span(packet(last));
    }

    /// Takes the size a packet had, in bytes.
    #[inline]
    pub fn count(&mut self, size: u32) {
        self.all_sizes.add(size);
    }

    /// Takes the size that so many packets had, in bytes.
    #[inline]
    pub fn count_many(&mut self, size: u32, packets: u32) {
        self.all_sizes.add_many(size, packets);
    }

    /// Takes the size a packet had and the one planned for it, in bytes.
    pub fn add_size(&mut self, sent: u32, planned: u32) {
        self.sizes_compared += 1;
        if sent != planned {
            self.sizes_wrong += 1;
            self.count_size(sent, 1);
            self.count_size(planned, -1);
        }
    }

    /// Takes the packets of a later part of the same flow, and the inter-departure time between the
    /// two parts.
    pub fn append(&mut self, later: &Self) {
        if let Some(head) = later.head {
            self.join(head);
        }
        self.scales.append(&later.scales);
        self.errors.merge(&later.errors);
        self.spacings.merge(&later.spacings);
        self.gaps.append(&later.gaps);
        self.gap_moments.merge(&later.gap_moments);
        self.all_sizes.merge(&later.all_sizes);
        self.before = later.before.or(self.before);
        if later.before.is_some() {
            self.before_late_ns = later.before_late_ns;
        }
        self.planned.merge(&later.planned);
        self.sent.merge(&later.sent);
        self.lateness.merge(&later.lateness);
        for (&size, &count) in &later.sizes {
            self.count_size(size, count);
        }
        self.sizes_compared += later.sizes_compared;
        self.sizes_wrong += later.sizes_wrong;
        for packet in [later.first, later.last].into_iter().flatten() {
            self.span(packet);
        }
        self.stalls.merge(&later.stalls);
    }

    /// The longest times for which nothing left: see [`Stall`].
    pub fn stalls(&self) -> impl Iterator<Item = Stall> {
        self.first
            .zip(self.last)
            .into_iter()
            .flat_map(|(first, last)| self.stalls.told(first, last))
    }

    #[inline]
    fn follow(&mut self, packet: Departed) {
        self.scales.take(packet);
        self.join(packet);
    }

    /// The inter-departure time to this packet from the one before.
    #[inline]
    fn join(&mut self, packet: Departed) {
        if let Some(before) = self.before.filter(|b| b.seq.checked_add(1) == Some(packet.seq)) {
            let planned = signed_difference(packet.planned_ns, before.planned_ns);
            let gap = signed_difference(packet.sent_ns, before.sent_ns);
            self.take_gap(before.seq, planned, gap);
            if self.before_late_ns.is_some_and(|late| are_back_to_back(late, planned, gap)) {
                self.spacings.add(gap);
            }
        } else if let Some(before) = self.before {
            self.gaps.interrupt();
            self.stalls.jump(before, packet);
        }
        if self.head.is_none() {
            self.head = Some(packet);
        }
        self.before = Some(packet);
    }

    /// Takes the inter-departure time between a packet and the one with the next number.
    #[inline]
    fn take_gap(&mut self, behind: u64, planned: i64, sent: i64) {
        self.planned.add(planned);
        self.sent.add(sent);
        self.errors.add(planned, sent);
        self.gaps.add(sent);
        self.gap_moments.add(sent);
        self.stalls.follow(behind, planned, sent);
    }

    fn span(&mut self, packet: Departed) {
        if self.first.is_none_or(|first| packet.seq < first.seq) {
            self.first = Some(packet);
        }
        if self.last.is_none_or(|last| packet.seq > last.seq) {
            self.last = Some(packet);
        }
    }

    /// Sizes that both have cancel out: only differences are kept.
    fn count_size(&mut self, size: u32, count: i64) {
        let entry = self.sizes.entry(size).or_default();
        *entry += count;
        if *entry == 0 {
            self.sizes.remove(&size);
        }
    }

    /// Returns true if no packet has been taken.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// Sent − due for every packet, in nanoseconds.
    #[must_use]
    pub const fn lateness(&self) -> &SampleDistribution {
        &self.lateness
    }

    /// Inter-departure times between packets of consecutive numbers in nanoseconds: planned and
    /// sent.
    #[must_use]
    pub const fn gaps(&self) -> (&Quantiles, &Quantiles) {
        (&self.planned, &self.sent)
    }

    /// Kolmogorov distance of the sizes sent and planned; `None` where none were compared.
    pub(crate) fn size_distance(&self) -> Option<f64> {
        let mut sum = 0i64;
        let largest = self.sizes.values().fold(0, |largest: u64, &count| {
            sum += count;
            largest.max(sum.unsigned_abs())
        });
        (self.sizes_compared > 0).then(|| largest as f64 / self.sizes_compared as f64)
    }

    /// Packets whose size was compared with the plan, and those of them that had another.
    pub(crate) const fn size_errors(&self) -> (u64, u64) {
        (self.sizes_compared, self.sizes_wrong)
    }

    /// Mean planned inter-departure time from the first packet to the last, in nanoseconds; `None` where
    /// it is 0.
    pub(crate) fn mean_gap_ns(&self) -> Option<f64> {
        let (first, last) = self.first.zip(self.last)?;
        let span = signed_difference(last.planned_ns, first.planned_ns) as f64;
        (span > 0.0 && last.seq > first.seq).then(|| span / (last.seq - first.seq) as f64)
    }
}
