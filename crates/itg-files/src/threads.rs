//! Threads for an analysis, and the memory behind it.

use std::num::NonZero;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use itg_stats::exec::Executor;

use crate::map::Bytes;

/// Runs the tasks of an analysis of these files, each with its name, on so many threads.
#[derive(Debug)]
pub struct Threads<'m> {
    threads: usize,
    files: &'m [(String, Bytes)],
}

impl<'m> Threads<'m> {
    /// On so many threads, as many as there are processors when 0.
    #[must_use]
    pub fn new(files: &'m [(String, Bytes)], threads: usize) -> Self {
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        Self { threads: if threads == 0 { processors() } else { threads }, files }
    }
}

impl Executor for Threads<'_> {
    fn threads(&self) -> usize {
        self.threads
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let work = || {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= tasks {
                    break;
                }
                task(number);
            }
        };
        thread::scope(|scope| {
            for _ in 1..self.threads.min(tasks) {
                scope.spawn(work);
            }
            work();
        });
    }

    fn coming(&self, bytes: &[u8]) {
        let _found = self.files.iter().any(|(_, file)| file.come(bytes));
    }

    fn holes(&self, file: &[u8]) -> Vec<Range<usize>> {
        let its = |(_, bytes): &&(String, Bytes)| bytes.as_ptr() == file.as_ptr();
        self.files.iter().find(its).map_or_else(Vec::new, |(_, bytes)| bytes.holes())
    }

    fn leaving(&self, bytes: &[u8]) {
        let _found = self.files.iter().any(|(_, file)| file.let_go(bytes));
    }
}
