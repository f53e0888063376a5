//! Data kept for plots: parts merge to the whole, and each delay is in its row.
#![allow(missing_docs, reason = "tests")]

use itg_stats::plot::trace::{Trace, TraceSetup, row_of, row_range};
use itg_stats::series::Window;
use proptest::prelude::*;

type Packet = (u64, u64, Option<i64>, u32);

fn packets() -> impl Strategy<Value = Vec<Packet>> {
    let delay = prop::option::of(-2_000_000i64..3_000_000_000);
    let time = 1_700_000_000_000_000_000u64..1_700_000_100_000_000_000;
    prop::collection::vec((time, 0u64..10_000, delay, 20u32..70_000), 0..120)
}

fn trace(packets: &[Packet]) -> Trace {
    let mut trace = Trace::new(TraceSetup { bins: 32, origin_ns: 500 });
    for &(time, seq, delay, size) in packets {
        let window = Window {
            packets: 1,
            bytes: u64::from(size),
            delay_sum: delay.map_or(0, i128::from),
            delays: u64::from(delay.is_some()),
            seq_max: Some(seq),
            ..Window::default()
        };
        trace.add(time, delay, &window);
        trace.add_size(size, size / 2 * 2);
    }
    trace
}

proptest! {
    #[test]
    fn parts_merge_in_any_order(a in packets(), b in packets(), c in packets()) {
        let whole = trace(&[a.clone(), b.clone(), c.clone()].concat());
        let parts = [a, b, c].map(|part| trace(&part));
        for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0], [2, 1, 0]] {
            let mut merged = trace(&[]);
            order.into_iter().for_each(|at: usize| merged.merge(&parts[at]));
            prop_assert_eq!(merged.bins(), whole.bins());
            let (planned, sent) = merged.sizes();
            prop_assert_eq!(planned.points(), whole.sizes().0.points());
            prop_assert_eq!(sent.points(), whole.sizes().1.points());
        }
    }

    #[test]
    fn every_delay_is_in_its_row(delay in prop_oneof![any::<i64>(), -5000i64..5000]) {
        let (low, high) = row_range(row_of(delay));
        prop_assert!(low <= delay && delay <= high, "{delay} in {low}..{high}");
        if delay.abs() > 1024 {
            let width = (i128::from(high) - i128::from(low)) as f64;
            prop_assert!(delay.abs() >= 1 << 61 || width <= delay.abs() as f64 / 15.0);
        }
    }
}

#[test]
fn rows_join_without_gaps() {
    for row in -800i16..800 {
        let ((_, high), (low, _)) = (row_range(row), row_range(row + 1));
        assert_eq!(high, low, "rows {row} and {}", row + 1);
    }
    assert_eq!((row_of(0), row_of(1_023), row_of(1_024), row_of(-1_024)), (0, 0, 1, -1));
}
