//! Bins of time against their definition.

use itg_stats::plot::bins::{Sum, TimeBins};
use proptest::prelude::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Count(u64);

impl Sum for Count {
    fn merge(&mut self, other: &Self) {
        self.0 += other.0;
    }
}

fn bins(most: usize, times: &[u64]) -> TimeBins<Count> {
    let mut bins = TimeBins::<Count>::new(most);
    times.iter().for_each(|&time| bins.at(time).0 += 1);
    bins
}

/// The definition: the smallest width that fits, then count.
fn twin(most: usize, times: &[u64]) -> (u64, u64, Vec<u64>) {
    let (min, max) = (times.iter().min().expect("some"), times.iter().max().expect("some"));
    let fits = |s: &u32| ((max / 1000) >> s) - ((min / 1000) >> s) < most as u64;
    let shift = (0..64).find(fits).expect("a width");
    let first = (min / 1000) >> shift;
    let mut cells = vec![0; usize::try_from(((max / 1000) >> shift) - first).expect("small") + 1];
    for time in times {
        cells[usize::try_from(((time / 1000) >> shift) - first).expect("small")] += 1;
    }
    (1000 << shift, (first << shift) * 1000, cells)
}

fn times() -> impl Strategy<Value = Vec<u64>> {
    (0u32..50, 0u64..2_000_000_000_000_000_000).prop_flat_map(|(spread, from)| {
        prop::collection::vec((0..1u64 << spread).prop_map(move |t| from + t), 1..80)
    })
}

proptest! {
    #[test]
    fn agree_with_the_definition(times in times(), most in 2usize..40) {
        let got = bins(most, &times);
        let cells: Vec<_> = got.cells().map(|count| count.0).collect();
        let start = got.start_unix_ns().expect("known");
        prop_assert_eq!((got.bin_ns(), start, cells), twin(most, &times));
    }

    #[test]
    fn parts_merge_in_any_order(
        a in times(), b in times(), c in times(), most in 2usize..40,
    ) {
        let whole = bins(most, &[a.clone(), b.clone(), c.clone()].concat());
        let [a, b, c] = [a, b, c].map(|part| bins(most, &part));
        for order in [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a], [&c, &b, &a]] {
            let mut merged = TimeBins::new(most);
            order.into_iter().for_each(|part| merged.merge(part));
            prop_assert_eq!(&merged, &whole);
        }
        let mut pair = b;
        pair.merge(&c);
        let mut nested = a;
        nested.merge(&pair);
        prop_assert_eq!(&nested, &whole);
    }
}

#[test]
fn the_ends_of_time_fit_two_bins() {
    let mut all = bins(2, &[0, u64::MAX, 5]);
    assert_eq!(all.cells().map(|count| count.0).sum::<u64>(), 3);
    assert!(all.cells().len() <= 2);
    all.widen(u64::MAX);
    assert_eq!(all.cells().len(), 1);
}
