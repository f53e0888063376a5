//! Bins of time that double in width, so that a bounded number of them holds a run of any length.
//!
//! Bin *k* of width 2ˢ µs holds the times with k · 2ˢ ≤ t < (k + 1) · 2ˢ, counted from the Unix
//! epoch and not from the first packet. *s* is the smallest whole number with which all times seen
//! fit the bound. Both depend on the set of times alone, so parts merge to the same bins in
//! whatever order they come. A time costs constant work, but for at most 64 doublings in all.

use std::collections::VecDeque;

/// Nanoseconds of the narrowest bin: 1 µs.
pub const FINEST_NS: u64 = 1_000;

/// Contents of a bin: begins empty and adds up.
pub trait Sum: Default + Clone {
    /// Takes what another part of the same bin, or the bin beside it, holds.
    fn merge(&mut self, other: &Self);
}

/// Bins from the first to the last time seen, empty ones between them included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TimeBins<T> {
    most: usize,
    shift: u32,
    first: u64,
    cells: VecDeque<T>,
}

impl<T: Sum> TimeBins<T> {
    /// No bins yet, and never more than `most` (at least 2).
    #[must_use]
    pub fn new(most: usize) -> Self {
        Self { most: most.max(2), shift: 0, first: 0, cells: VecDeque::new() }
    }

    /// The bin of an instant, in Unix nanoseconds.
    pub fn at(&mut self, unix_ns: u64) -> &mut T {
        let finest = unix_ns / FINEST_NS;
        loop {
            let number = finest >> self.shift;
            if self.cells.is_empty() {
                self.first = number;
                self.cells.push_back(T::default());
            }
            let last = self.first + (self.cells.len() as u64 - 1);
            if number.max(last) - number.min(self.first) >= self.most as u64 {
                self.double();
                continue;
            }
            while self.first > number {
                self.first -= 1;
                self.cells.push_front(T::default());
            }
            // Less than `most`, see above.
            let place = usize::try_from(number - self.first).unwrap_or(usize::MAX);
            if place >= self.cells.len() {
                self.cells.resize_with(place + 1, T::default);
            }
            return &mut self.cells[place];
        }
    }

    /// Takes the bins of another part.
    pub fn merge(&mut self, other: &Self) {
        if other.cells.is_empty() {
            return;
        }
        if self.cells.is_empty() {
            self.cells.clone_from(&other.cells);
            (self.shift, self.first) = (other.shift, other.first);
            while self.cells.len() > self.most {
                self.double();
            }
            return;
        }
        while self.shift < other.shift {
            self.double();
        }
        // The ends first: they may need wider bins, and then all the others do.
        let last = other.cells.len() - 1;
        for place in [0, last].into_iter().chain(1..last) {
            let start = other.start_of(place);
            let cell = self.at(start);
            cell.merge(&other.cells[place]);
            if last == 0 {
                break;
            }
        }
    }

    /// Doubles the width until it is at least `bin_ns`; for bins to lie side by side.
    pub fn widen(&mut self, bin_ns: u64) {
        while self.bin_ns() < bin_ns && self.shift < 63 {
            self.double();
        }
    }

    /// Width of a bin in nanoseconds.
    #[must_use]
    pub const fn bin_ns(&self) -> u64 {
        FINEST_NS.saturating_mul(1 << self.shift)
    }

    /// Start of the first bin in Unix nanoseconds; `None` without bins.
    #[must_use]
    pub fn start_unix_ns(&self) -> Option<u64> {
        (!self.cells.is_empty()).then(|| self.start_of(0))
    }

    /// The bins, in order of time.
    pub fn cells(&self) -> impl ExactSizeIterator<Item = &T> + DoubleEndedIterator {
        self.cells.iter()
    }

    /// The bins, in order of time, to change what they hold.
    pub fn cells_mut(&mut self) -> impl ExactSizeIterator<Item = &mut T> {
        self.cells.iter_mut()
    }

    /// Returns true if there is no bin.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.cells.is_empty()
    }

    fn start_of(&self, place: usize) -> u64 {
        ((self.first + place as u64) << self.shift).saturating_mul(FINEST_NS)
    }

    /// Merges bins in pairs. A bin starts at an even number, whatever number came first.
    fn double(&mut self) {
        let odd = usize::from(self.first % 2 == 1);
        let mut wider: VecDeque<T> = VecDeque::with_capacity(self.cells.len() / 2 + 1);
        for (place, cell) in std::mem::take(&mut self.cells).into_iter().enumerate() {
            let second = (place + odd) % 2 == 1;
            match wider.back_mut() {
                Some(pair) if second => pair.merge(&cell),
                _ => wider.push_back(cell),
            }
        }
        self.cells = wider;
        self.first /= 2;
        self.shift += 1;
    }
}
