//! Threads for the decoder, the memory behind them, and a progress bar.

use std::io::IsTerminal;
use std::num::NonZero;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use itg_stats::exec::Executor;

use crate::map::Bytes;

/// Work that takes longer than this shows how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the tasks of an analysis on all processors.
pub(crate) struct Work<'m> {
    threads: usize,
    files: &'m [(String, Bytes)],
    /// True to show progress.
    shows: bool,
    started: Instant,
    bar: OnceLock<ProgressBar>,
    expected: AtomicU64,
    passed: AtomicU64,
}

impl<'m> Work<'m> {
    /// On so many threads, as many as there are processors when 0.
    pub(crate) fn new(files: &'m [(String, Bytes)], threads: usize, quiet: bool) -> Self {
        let processors = || thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            threads: if threads == 0 { processors() } else { threads },
            files,
            shows: !quiet && std::io::stderr().is_terminal(),
            started: Instant::now(),
            bar: OnceLock::new(),
            expected: AtomicU64::new(0),
            passed: AtomicU64::new(0),
        }
    }

    /// Takes the bar off the screen.
    pub(crate) fn finish(&self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
        }
    }

    fn show(&self, passed: u64) {
        if !self.shows || self.started.elapsed() < PATIENCE {
            return;
        }
        let bar = self.bar.get_or_init(|| {
            let style = "{bar:40} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
            let style = ProgressStyle::with_template(style);
            ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        });
        bar.set_length(self.expected.load(Ordering::Relaxed));
        bar.set_position(passed);
    }
}

impl Executor for Work<'_> {
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

    fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    fn coming(&self, bytes: &[u8]) {
        let _found = self.files.iter().any(|(_, file)| file.come(bytes));
    }

    fn holes(&self, file: &[u8]) -> Vec<Range<usize>> {
        let its = |(_, bytes): &&(String, Bytes)| bytes.as_ptr() == file.as_ptr();
        self.files.iter().find(its).map_or_else(Vec::new, |(_, bytes)| bytes.holes())
    }

    fn passed(&self, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let passed = self.passed.fetch_add(len, Ordering::Relaxed) + len;
        self.show(passed);
    }

    fn leaving(&self, bytes: &[u8]) {
        let _found = self.files.iter().any(|(_, file)| file.let_go(bytes));
    }
}
