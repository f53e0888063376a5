//! Draws of a world, and its clocks.

use chacha20::ChaCha8Rng;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, happens};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;

/// A stream of draws.
#[derive(Debug)]
pub struct Dice(ChaCha8Rng);

impl Dice {
    pub fn new(seed: u64, name: &str) -> Self {
        Self(RunSeed(seed).named(name))
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.0, bound)
    }

    /// From 0 to this number.
    pub fn upto(&mut self, most: usize) -> usize {
        usize::try_from(self.below(most as u64 + 1)).expect("small")
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.upto(of.len() - 1)]
    }

    pub fn half(&mut self) -> bool {
        self.below(2) == 0
    }

    pub fn happens(&mut self, parts: u32) -> bool {
        happens(&mut self.0, parts)
    }

    pub fn byte(&mut self) -> u8 {
        u8::try_from(self.below(256)).expect("a byte")
    }
}

/// Clocks of a host: one that only goes forward, at its own rate, and one that is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    pub ppm: u64,
    pub offset_ns: i64,
}

/// Start of the Unix clocks.
const EPOCH_NS: i64 = 1_700_000_000_000_000_000;

impl Clock {
    pub const fn monotonic(self, now: u64) -> u64 {
        now + now / 1_000_000 * self.ppm
    }

    /// First instant of the world at which the monotonic clock shows this time, or a later one.
    pub const fn instant(self, monotonic_ns: u64) -> u64 {
        let mut now = (monotonic_ns as u128 * 1_000_000 / (1_000_000 + self.ppm as u128)) as u64;
        while self.monotonic(now) < monotonic_ns {
            now += 1;
        }
        now
    }

    pub fn unix(self, now: u64) -> u64 {
        let shown = i64::try_from(self.monotonic(now)).expect("short");
        u64::try_from(EPOCH_NS + shown + self.offset_ns).expect("after 1970")
    }
}
