//! Tests of `sum`, through what it shows.

use itg_stats::sum::*;

#[test]
fn a_sum_without_some_is_not_known() {
    let of = |counts: &[Option<u64>]| {
        let mut sum = Sum::default();
        counts.iter().for_each(|count| sum.add(*count));
        sum.known()
    };
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[Some(2), Some(u64::MAX)]), Some(u64::MAX));
    assert_eq!(of(&[Some(2), None, Some(3)]), None);
}
