//! Differences of flows whose packets are D-ITG's: their header and schedule, and the last step of
//! the log.

mod log;
mod traffic;

pub(crate) use self::log::Writer;
pub use self::log::{ClassicPlace, ClassicTarget, continue_classic};
pub use self::traffic::{ClassicContent, ClassicForm, ClassicPackets};

/// The second of the day (UTC) and the microsecond of a Unix time in nanoseconds.
pub fn time_of_day(unix_ns: u64) -> (u32, u32) {
    let micros = unix_ns / 1000;
    let seconds = micros / 1_000_000 % 86_400;
    // Both are small.
    (seconds as u32, (micros % 1_000_000) as u32)
}

/// The Unix time next to `near_ns` at which it is this second of the day and microsecond; `None` when
/// they are none.
pub fn unix_time(seconds: u32, micros: u32, near_ns: u64) -> Option<u64> {
    const DAY_NS: u64 = 86_400_000_000_000;
    if seconds >= 86_400 || micros >= 1_000_000 {
        return None;
    }
    let day = near_ns / DAY_NS * DAY_NS;
    let here = day + u64::from(seconds) * 1_000_000_000 + u64::from(micros) * 1000;
    Some(if here > near_ns + DAY_NS / 2 {
        here.saturating_sub(DAY_NS)
    } else if here + DAY_NS / 2 < near_ns {
        here + DAY_NS
    } else {
        here
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_day_find_their_day() {
        const DAY: u64 = 86_400_000_000_000;
        for now in [DAY * 20_000 + 5, DAY * 20_000 + DAY / 2, DAY * 20_001 - 1_000_000] {
            for apart in [0, 1_000_000, 3_600_000_000_000, DAY / 2 - 1_000_000_000] {
                for then in [now - apart, now + apart] {
                    let (seconds, micros) = time_of_day(then);
                    let then = then / 1000 * 1000;
                    assert_eq!(unix_time(seconds, micros, now), Some(then), "{now} {apart}");
                }
            }
        }
        assert_eq!(unix_time(86_400, 0, DAY), None);
        assert_eq!(unix_time(0, 1_000_000, DAY), None);
        assert_eq!(unix_time(86_399, 0, 0), Some(0), "no time before 1970");
    }
}
