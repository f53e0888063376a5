//! Tests of `series`, through what it shows.

use proptest::prelude::*;

use itg_stats::series::*;

const GRID: Grid = Grid { start_unix_ns: 1_000, interval_ns: 10 };

fn packet(bytes: u64) -> Window {
    Window { packets: 1, bytes, delay_sum: 7, delays: 1, ..Window::default() }
}

proptest! {
    #[test]
    fn every_packet_is_in_its_window(times in prop::collection::vec(1_000u64..1_500, 0..200)) {
        let (mut series, mut halves) = (Series::new(GRID), [Series::new(GRID), Series::new(GRID)]);
        for (k, &time) in times.iter().enumerate() {
            series.add(time, &packet(time));
            halves[k % 2].add(time, &packet(time));
        }
        for number in 0..50u64 {
            let (from, to) = (1_000 + number * 10, 1_010 + number * 10);
            let inside: Vec<_> = times.iter().filter(|&&t| from <= t && t < to).collect();
            let window = series.windows().get(&number).copied().unwrap_or_default();
            prop_assert_eq!(window.packets, inside.len() as u64);
            prop_assert_eq!(window.bytes, inside.into_iter().sum::<u64>());
        }
        let [mut first, second] = halves;
        first.merge(&second);
        prop_assert_eq!(first.windows(), series.windows());
    }
}

#[test]
fn rows_divide_by_the_whole_window_and_are_never_not_a_number() {
    let row = IntervalRow::new(3, 3, GRID, &packet(50), true);
    assert_eq!((row.start_ns, row.partial, row.lost), (30, true, Some(0)));
    assert_eq!((row.bitrate_bps, row.delay_mean_ns), (4e10, Some(7.0)));
    let empty = IntervalRow::new(0, 3, GRID, &Window::default(), false);
    assert_eq!((empty.partial, empty.delay_mean_ns, empty.lost), (false, None, None));
    assert!(empty.bitrate_bps.abs() < f64::MIN_POSITIVE);
}
