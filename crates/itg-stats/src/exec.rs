//! Executors: this crate has no threads, its users may.
//!
//! Decoding is cut into tasks that share nothing but what they read; an [`Executor`] runs them, on
//! as many threads as it has, and hears which bytes have been passed. Results do not depend on it.

use std::ops::Range;

/// Runs independent pieces of work.
pub trait Executor: Sync {
    /// Number of tasks that can run at the same time, at least 1. Work is cut into about as many
    /// pieces.
    fn threads(&self) -> usize;

    /// Calls `task` once with each number from 0 to `tasks` − 1, in any order and on any threads,
    /// and returns when all calls have returned.
    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync));

    /// So many bytes will be passed from here on; a pass over the same bytes counts anew.
    fn expect(&self, _bytes: u64) {}

    /// These bytes will be read next, all of them.
    fn coming(&self, _bytes: &[u8]) {}

    /// Parts of a file, in order, that hold nothing but zeros because they were never written or are not
    /// there any more: nothing is looked for in them.
    fn holes(&self, _file: &[u8]) -> Vec<Range<usize>> {
        Vec::new()
    }

    /// These bytes have been passed.
    fn passed(&self, _bytes: &[u8]) {}

    /// These bytes will not be read for a while: they may leave memory, when they come back when read
    /// again.
    fn leaving(&self, _bytes: &[u8]) {}
}

/// Does everything at once, where it is called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Inline;

impl Executor for Inline {
    fn threads(&self) -> usize {
        1
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        (0..tasks).for_each(task);
    }
}

/// The results of all tasks, in the order of their numbers.
pub(crate) fn collect<T: Send>(
    executor: &dyn Executor,
    tasks: usize,
    task: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let slots: Vec<_> = (0..tasks).map(|_| std::sync::Mutex::new(None)).collect();
    executor.run(tasks, &|number| {
        let result = task(number);
        // A lock is only poisoned when a task panics, and then the run is over.
        if let Ok(mut slot) = slots[number].lock() {
            *slot = Some(result);
        }
    });
    slots.into_iter().filter_map(|slot| slot.into_inner().ok().flatten()).collect()
}
