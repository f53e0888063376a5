//! Autocorrelation of inter-departure times at small lags, from exact sums that merge.
//!
//! A distribution draws each inter-departure time for itself, so successive inter-departure times
//! are not correlated; a generator that sends in bursts has the right inter-departure times in the
//! wrong order. For lag *k*: the covariance of the pairs that lie *k* apart, divided by the
//! variance of all values (Box, Jenkins, *Time Series Analysis*, 2.1). Where the sequence is
//! interrupted, no pair is made across.

use crate::narrow::Narrow;

/// Largest lag.
pub const LAGS: usize = 3;
/// Values are kept within ± 2⁴⁰ ns (18 minutes), so that sums of products cannot overflow.
const LIMIT: i64 = 1 << 40;

/// The last few values, the latest first.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    values: [i64; LAGS],
    len: usize,
}

/// Sums for the autocorrelation of a sequence of values.
#[derive(Clone, Debug, Default)]
pub struct Autocorrelation {
    count: u64,
    sum: i128,
    squares: i128,
    pairs: [u64; LAGS],
    products: [i128; LAGS],
    /// Sums of both values of all pairs.
    members: [i128; LAGS],
    /// The first values up to the first interruption, in order.
    head: [i64; LAGS],
    head_len: usize,
    /// True if no more values belong to the head.
    head_closed: bool,
    /// True if the sequence starts with an interruption.
    interrupted_first: bool,
    recent: Recent,
}

impl Autocorrelation {
    /// Takes the next value.
    #[inline]
    pub fn add(&mut self, value: i64) {
        let value = value.clamp(-LIMIT, LIMIT);
        self.count += 1;
        self.sum += i128::from(value);
        self.squares += i128::from(value) * i128::from(value);
        for lag in 0..self.recent.len {
            self.pairs[lag] += 1;
            self.products[lag] += i128::from(value) * i128::from(self.recent.values[lag]);
            self.members[lag] += i128::from(value) + i128::from(self.recent.values[lag]);
        }
        if !self.head_closed {
            self.head[self.head_len] = value;
            self.head_len += 1;
            self.head_closed = self.head_len == LAGS;
        }
        self.remember(value);
    }

    /// Takes the next values, which are near 0: the same as one by one, and sooner.
    pub(crate) fn add_narrow(&mut self, values: &Narrow) {
        /// Products of values below this and of those near 0, so many of them, fit in 64 bits.
        const SMALL: u64 = 1 << 27;
        let all = values.values();
        let recent = &self.recent.values;
        let whole = self.head_closed && self.recent.len == LAGS && all.len() >= LAGS;
        let [.., third, second, last] = all else {
            return all.iter().for_each(|&value| self.add(i64::from(value)));
        };
        if !whole || recent.iter().any(|value| value.unsigned_abs() > SMALL) {
            return all.iter().for_each(|&value| self.add(i64::from(value)));
        }
        let ends = [*last, *second, *third].map(i64::from);
        let [mut before, mut second, mut third] = *recent;
        let mut products = [0; LAGS];
        for &value in all {
            let value = i64::from(value);
            products[0] += value * before;
            products[1] += value * second;
            products[2] += value * third;
            (before, second, third) = (value, before, second);
        }
        let (sum, squares) = values.sums();
        // The earlier values of the pairs: without the last ones, with those before the first one.
        let mut earlier = sum;
        for lag in 0..LAGS {
            earlier += self.recent.values[lag] - ends[lag];
            self.members[lag] += i128::from(sum + earlier);
            self.pairs[lag] += all.len() as u64;
            self.products[lag] += i128::from(products[lag]);
        }
        self.recent.values = [before, second, third];
        self.count += all.len() as u64;
        self.sum += i128::from(sum);
        self.squares += i128::from(squares);
    }

    /// The sequence is interrupted here.
    pub fn interrupt(&mut self) {
        self.recent.len = 0;
        if self.count == 0 {
            self.interrupted_first = true;
        } else {
            self.head_closed = true;
        }
    }

    /// Takes the values of a later part, which go on where these end unless either is interrupted
    /// there.
    pub fn append(&mut self, later: &Self) {
        if later.interrupted_first {
            self.interrupt();
        }
        let whole_head = later.head_len as u64 == later.count;
        for (at, &value) in later.head[..later.head_len].iter().enumerate() {
            // The pairs of this value with those on this side of the cut.
            for (back, &before) in self.recent.values[..self.recent.len].iter().enumerate() {
                let lag = at + back;
                if lag < LAGS {
                    self.pairs[lag] += 1;
                    self.products[lag] += i128::from(value) * i128::from(before);
                    self.members[lag] += i128::from(value) + i128::from(before);
                }
            }
            if !self.head_closed {
                self.head[self.head_len] = value;
                self.head_len += 1;
                self.head_closed = self.head_len == LAGS;
            }
        }
        self.head_closed |= later.head_closed && later.count > 0;
        if whole_head && !later.head_closed {
            later.head[..later.head_len].iter().for_each(|&value| self.remember(value));
        } else if later.count > 0 {
            self.recent = later.recent;
        }
        self.count += later.count;
        self.sum += later.sum;
        self.squares += later.squares;
        for lag in 0..LAGS {
            self.pairs[lag] += later.pairs[lag];
            self.products[lag] += later.products[lag];
            self.members[lag] += later.members[lag];
        }
    }

    /// Number of pairs that lie one apart.
    #[must_use]
    pub const fn pairs(&self) -> u64 {
        self.pairs[0]
    }

    /// The autocorrelation at lags 1 to [`LAGS`]; `None` when there are no such pairs, or the values do
    /// not differ.
    #[must_use]
    pub fn at_lags(&self) -> [Option<f64>; LAGS] {
        let n = self.count.max(1) as f64;
        let mean = self.sum as f64 / n;
        let variance = self.squares as f64 / n - mean * mean;
        let mut lags = [None; LAGS];
        for (lag, found) in lags.iter_mut().enumerate() {
            let pairs = self.pairs[lag] as f64;
            // The rest of a difference of large numbers must be more than their rounding.
            if self.pairs[lag] > 0 && variance > 1e-12 * mean * mean && variance > 0.0 {
                // The mean is that of all values: those at the ends are in fewer pairs, and may be far from it.
                let members = self.members[lag] as f64 / pairs - 2.0 * mean;
                let covariance = self.products[lag] as f64 / pairs - mean * mean - mean * members;
                *found = Some((covariance / variance).clamp(-1.0, 1.0));
            }
        }
        lags
    }

    fn remember(&mut self, value: i64) {
        self.recent.values.rotate_right(1);
        self.recent.values[0] = value;
        self.recent.len = (self.recent.len + 1).min(LAGS);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values, with `None` where the sequence is interrupted.
    fn all(list: &[Option<i64>]) -> Autocorrelation {
        let mut all = Autocorrelation::default();
        for value in list {
            match value {
                Some(value) => all.add(*value),
                None => all.interrupt(),
            }
        }
        all
    }

    fn twin(list: &[Option<i64>], lag: usize) -> Option<f64> {
        let values: Vec<f64> = list.iter().flatten().map(|&v| v as f64).collect();
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / values.len() as f64;
        let mut products = Vec::new();
        for at in lag..list.len() {
            let between = &list[at - lag..=at];
            if let (Some(Some(a)), Some(Some(b)), true) =
                (between.first(), between.last(), between.iter().all(Option::is_some))
            {
                products.push((*a as f64 - mean) * (*b as f64 - mean));
            }
        }
        let pairs = products.len() as f64;
        (pairs > 0.0 && variance > 0.0).then(|| products.iter().sum::<f64>() / pairs / variance)
    }

    fn list() -> impl Strategy<Value = Vec<Option<i64>>> {
        prop::collection::vec(
            prop_oneof![6 => (0i64..1_000).prop_map(Some), 1 => Just(None)],
            0..40,
        )
    }

    /// A value far from all others in one pair fewer than they are, at an end.
    #[test]
    fn one_value_far_from_the_others_is_no_correlation() {
        for far in [0, 99] {
            let mut list = vec![Some(41_700_000); 100];
            list[far] = Some(5_000_000);
            let lags = all(&list).at_lags();
            assert!(lags.iter().flatten().all(|lag| lag.abs() < 0.05), "{far}: {lags:?}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_formula(list in list()) {
            for (lag, got) in (1..).zip(all(&list).at_lags()) {
                match (got, twin(&list, lag)) {
                    (Some(got), Some(want)) => {
                        prop_assert!((got - want.clamp(-1.0, 1.0)).abs() < 1e-6, "{} {}", got, want);
                    }
                    (got, want) => prop_assert_eq!(got.is_some(), want.is_some()),
                }
            }
        }

        #[test]
        fn some_values_at_once_are_the_same_as_one_by_one(
            before in list(),
            values in prop::collection::vec(-200_000_000i64..200_000_000, 0..1_200),
            small: bool,
        ) {
            let values: Vec<_> = values.iter().map(|v| if small { v / 1_000 } else { *v }).collect();
            let (mut singly, mut at_once) = (all(&before), all(&before));
            values.iter().for_each(|&value| singly.add(value));
            let (now, later) = values.split_at(values.len() / 3);
            for values in [now, later].into_iter().flat_map(|values| values.chunks(100)) {
                match Narrow::of(values) {
                    Some(narrow) => at_once.add_narrow(&narrow),
                    None => values.iter().for_each(|&value| at_once.add(value)),
                }
            }
            prop_assert_eq!(at_once.pairs, singly.pairs);
            prop_assert_eq!(at_once.products, singly.products);
            prop_assert_eq!(at_once.members, singly.members);
            prop_assert_eq!((at_once.sum, at_once.squares), (singly.sum, singly.squares));
            prop_assert_eq!(at_once.recent.values, singly.recent.values);
        }

        #[test]
        fn appended_parts_are_the_whole(a in list(), b in list(), c in list()) {
            let mut parts = all(&a);
            parts.append(&all(&b));
            parts.append(&all(&c));
            let whole = all(&[a, b, c].concat());
            prop_assert_eq!(parts.pairs, whole.pairs);
            prop_assert_eq!(parts.products, whole.products);
            prop_assert_eq!(parts.at_lags(), whole.at_lags());
        }
    }
}
