//! The estimate as a curve: offset and bound at any instant.

use itg_core::units::signed_difference;
use serde::Serialize;

/// The offset of the receiver's clock against the sender's over time.
#[derive(Clone, Debug, PartialEq)]
pub struct ClockModel {
    /// By time; the first also holds before it, the last behind it. Not empty.
    pub(crate) spans: Vec<Span>,
    pub(crate) steps: Vec<Step>,
    pub(crate) skew: Skew,
    pub(crate) probes: usize,
    /// Probes at whose instants the offset was beyond its bound.
    pub(crate) apart: usize,
    pub(crate) refused: usize,
    pub(crate) round_trip_ns: u64,
    /// Unit of the stamps, in nanoseconds.
    pub(crate) unit_ns: u64,
}

/// A clock was set, or the stamps look like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Step {
    /// Not before this instant of the sender's clock as it was then, Unix time in nanoseconds.
    pub from_unix_ns: u64,
    /// Not after this instant of the sender's clock as it was then.
    pub until_unix_ns: u64,
    /// Growth of the offset, in nanoseconds.
    pub by_ns: i64,
}

/// Rate at which the receiver's clock gains on the sender's.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Skew {
    pub(crate) ppm: f64,
    pub(crate) bound_ppm: f64,
}

/// A straight part of the curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Span {
    from: u64,
    base: i64,
    /// Nanoseconds beyond `base` at `from`, and per nanosecond.
    offset: (f64, f64),
    /// Nanoseconds at `from`, and per nanosecond.
    bound: (f64, f64),
}

impl Span {
    /// From the smallest and largest offsets at its ends, in nanoseconds beyond `base`.
    pub(crate) fn between(from: u64, to: u64, base: i64, ends: [(f64, f64); 2]) -> Self {
        let length = to.saturating_sub(from).max(1) as f64;
        let line = |value: fn((f64, f64)) -> f64| {
            let [a, b] = ends.map(value);
            (a, (b - a) / length)
        };
        Self {
            from,
            base,
            offset: line(|(low, high)| (low + high) / 2.0),
            bound: line(|(low, high)| (high - low) / 2.0),
        }
    }

    /// The same line from another instant on.
    pub(crate) fn prolonged(&self, from: u64) -> Self {
        let on = |(at, slope): (f64, f64)| (at + slope * self.length_to(from), slope);
        Self { from, base: self.base, offset: on(self.offset), bound: on(self.bound) }
    }

    #[inline]
    fn length_to(&self, at: u64) -> f64 {
        signed_difference(at, self.from) as f64
    }

    #[inline]
    fn offset_at(&self, at: u64) -> i64 {
        self.base.saturating_add(whole(self.offset.0 + self.offset.1 * self.length_to(at)))
    }

    fn bound_on_line(&self, at: u64) -> f64 {
        self.bound.0 + self.bound.1 * self.length_to(at)
    }

    fn bound_at(&self, at: u64) -> u64 {
        ceiling(self.bound_on_line(at))
    }
}

/// The smallest whole number that is not below a bound.
const fn ceiling(bound: f64) -> u64 {
    whole(bound.ceil()).unsigned_abs()
}

/// The nearest whole number, kept within 64 bits.
#[allow(clippy::cast_possible_truncation, reason = "the cast of a float saturates")]
#[inline]
pub(crate) const fn whole(value: f64) -> i64 {
    value.round() as i64
}

impl ClockModel {
    /// Offset of the receiver's clock ahead of the sender's when the sender's shows `unix_ns`, in
    /// nanoseconds. The delay of a packet sent then is arrived − sent − this offset.
    #[must_use]
    pub fn offset_at(&self, unix_ns: u64) -> i64 {
        self.span(unix_ns).offset_at(unix_ns)
    }

    /// As [`offset_at`](Self::offset_at), quicker for instants that follow each other: `near` is any number and
    /// remembers the place.
    #[must_use]
    #[inline]
    pub fn offset_near(&self, unix_ns: u64, near: &mut usize) -> i64 {
        let holds = |at: usize| {
            let next = self.spans.get(at + 1).map_or(u64::MAX, |next| next.from);
            self.spans.get(at).filter(|span| (span.from..next).contains(&unix_ns))
        };
        if let Some(span) = holds(*near) {
            return span.offset_at(unix_ns);
        }
        *near = self.place(unix_ns);
        self.spans[*near].offset_at(unix_ns)
    }

    /// Bound of the error of [`offset_at`](Self::offset_at), in nanoseconds: at least half the
    /// smallest round trip around that instant; it grows away from the probes and covers both sides
    /// of a step.
    #[must_use]
    pub fn bound_at(&self, unix_ns: u64) -> u64 {
        self.span(unix_ns).bound_at(unix_ns)
    }

    /// Bound of the error of delays between two instants of the sender's clock, in nanoseconds: the largest bound of the
    /// offset, with the largest step for packets that were on their way then, and the unit of the stamps.
    #[must_use]
    pub fn bound_between(&self, from_unix_ns: u64, until_unix_ns: u64) -> u64 {
        // Bounds are straight from the start of a span to the next: the largest one is at an end.
        let first = self.place(from_unix_ns);
        let last = self.place(until_unix_ns).max(first);
        let ends = (first..=last).flat_map(|place| {
            let span = &self.spans[place];
            let next =
                self.spans.get(place + 1).map_or(u64::MAX, |next| next.from.saturating_sub(1));
            let start = if place == first { from_unix_ns } else { span.from };
            [start, next.min(until_unix_ns)].map(|at| span.bound_on_line(at))
        });
        let most = ceiling(ends.fold(0.0, f64::max));
        // A packet that was on its way when a clock was set is dated by the clocks of both sides.
        let within =
            |step: &&Step| step.from_unix_ns <= until_unix_ns && step.until_unix_ns >= from_unix_ns;
        let set = self.steps.iter().filter(within).map(|step| step.by_ns.unsigned_abs());
        most.saturating_add(set.max().unwrap_or(0)).saturating_add(self.unit_ns - 1)
    }

    /// Returns true if the two cannot be one clock: when most of the probes left, the offset was beyond its bound. A clock
    /// that is set while a probe is on its way differs from itself for a moment.
    #[must_use]
    pub const fn are_two(&self) -> bool {
        2 * self.apart > self.probes
    }

    /// Notes at how many of these instants of the sender's clock the offset was beyond its bound.
    pub(crate) fn look_apart(mut self, instants: impl Iterator<Item = u64>) -> Self {
        let beyond = |at: &u64| {
            let bound_ns = self.bound_at(*at).saturating_add(self.unit_ns);
            self.offset_at(*at).unsigned_abs() > bound_ns
        };
        self.apart = instants.filter(beyond).count();
        self
    }

    /// Rate at which the receiver's clock gains on the sender's, over the longest time without a
    /// step, in parts per million.
    #[must_use]
    pub const fn skew_ppm(&self) -> f64 {
        self.skew.ppm
    }

    /// Bound of the error of [`skew_ppm`](Self::skew_ppm), in parts per million.
    #[must_use]
    pub const fn skew_bound_ppm(&self) -> f64 {
        self.skew.bound_ppm
    }

    /// Times at which clocks were set, in order.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }

    /// Probes that the estimate is made of.
    #[must_use]
    pub const fn probes(&self) -> usize {
        self.probes
    }

    /// Probes whose stamps make no sense.
    #[must_use]
    pub const fn refused(&self) -> usize {
        self.refused
    }

    /// The smallest round trip of a probe, in nanoseconds.
    #[must_use]
    pub const fn round_trip_ns(&self) -> u64 {
        self.round_trip_ns
    }

    fn span(&self, at: u64) -> &Span {
        &self.spans[self.place(at)]
    }

    #[inline]
    fn place(&self, at: u64) -> usize {
        self.spans.partition_point(|span| span.from <= at).saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_schema_is_up_to_date() {
        let settings = schemars::generate::SchemaSettings::draft2020_12().for_serialize();
        let mut generator = settings.into_generator();
        generator.subschema_for::<Step>();
        itg_testkit::published::compare_definitions("report", generator.take_definitions(true));
    }
}
