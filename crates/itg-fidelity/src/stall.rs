//! Times for which a sender stood still.
//!
//! Between packets of consecutive numbers, the excess of the inter-departure time over the planned
//! one counts; between other packets its whole length, if enough numbers are left out. Both are
//! measured in mean planned inter-departure times, which are known at the end only: the longest of
//! each kind is kept.

use crate::departures::Departed;
use crate::samples::signed_difference;

/// A sender that stood still for so many mean inter-departure times is told of.
pub const STALL_GAPS: u64 = 100;

/// A time without departures that the plan does not have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// Number of the packet before it.
    pub behind: u64,
    /// Its length in nanoseconds, less the planned time if no packets were left out.
    pub length_ns: u64,
    /// Mean of the planned inter-departure times, in nanoseconds, rounded up.
    pub mean_gap_ns: u64,
    /// Packets between the one before and the one behind it, which the log does not have.
    pub left_out: u64,
}

/// The longest of some inter-departure times.
#[derive(Clone, Copy, Debug, Default)]
struct Longest {
    behind: u64,
    length_ns: i64,
    left_out: u64,
}

impl Longest {
    fn take(&mut self, other: Self) {
        if other.length_ns > self.length_ns {
            *self = other;
        }
    }
}

/// The longest ones of a flow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stalls {
    /// Excess over the plan of an inter-departure time between packets of consecutive numbers.
    still: Longest,
    /// Inter-departure times with at least [`STALL_GAPS`] numbers left out.
    absent: Longest,
}

impl Stalls {
    /// Takes the inter-departure time from a packet to the one with the next number, in nanoseconds.
    #[inline]
    pub(crate) fn follow(&mut self, behind: u64, planned: i64, sent: i64) {
        self.still.take(Longest { behind, length_ns: sent.saturating_sub(planned), left_out: 0 });
    }

    /// As [`Stalls::follow`], for packets of consecutive numbers, `first` and on.
    pub(crate) fn follow_all(&mut self, first: u64, planned: &[i32], sent: &[i32]) {
        for ((behind, &planned), &sent) in (first..).zip(planned).zip(sent) {
            self.follow(behind, planned.into(), sent.into());
        }
    }

    /// Takes two successive packets of other numbers.
    pub(crate) fn jump(&mut self, before: Departed, packet: Departed) {
        let left_out = packet.seq.saturating_sub(before.seq).saturating_sub(1);
        if left_out >= STALL_GAPS {
            let length_ns = signed_difference(packet.sent_ns, before.sent_ns);
            self.absent.take(Longest { behind: before.seq, length_ns, left_out });
        }
    }

    /// Takes those of another part of the flow.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.still.take(other.still);
        self.absent.take(other.absent);
    }

    /// Longest excess over the plan between packets of consecutive numbers, in nanoseconds.
    pub(crate) const fn longest_ns(&self) -> i64 {
        self.still.length_ns
    }

    /// Those that are long enough, given the packets of the smallest and the largest number.
    pub(crate) fn told(
        &self,
        first: Departed,
        last: Departed,
    ) -> impl Iterator<Item = Stall> + use<> {
        let gaps = last.seq.saturating_sub(first.seq).max(1);
        let span = last.planned_ns.saturating_sub(first.planned_ns);
        [self.still, self.absent].into_iter().filter_map(move |longest| {
            let Longest { behind, length_ns, left_out } = longest;
            let length_ns = u64::try_from(length_ns).ok()?;
            // The length in mean inter-departure times, without a division.
            let reached = u128::from(length_ns) * u128::from(gaps);
            let long = span > 0 && reached >= u128::from(STALL_GAPS) * u128::from(span);
            let mean_gap_ns = span.div_ceil(gaps);
            long.then_some(Stall { behind, length_ns, mean_gap_ns, left_out })
        })
    }
}
