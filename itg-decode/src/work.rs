//! Threads for the decoder, and a progress bar.

use std::io::IsTerminal;
use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use itg_files::{Bytes, Threads};
use itg_stats::exec::Executor;

/// Work that takes longer than this shows how far it is.
const PATIENCE: Duration = Duration::from_secs(1);

/// Runs the tasks of an analysis on all processors.
pub(crate) struct Work<'m> {
    threads: Threads<'m>,
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
        Self {
            threads: Threads::new(files, threads),
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
        self.threads.threads()
    }

    fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
        self.threads.run(tasks, task);
    }

    fn expect(&self, bytes: u64) {
        self.expected.fetch_add(bytes, Ordering::Relaxed);
    }

    fn coming(&self, bytes: &[u8]) {
        self.threads.coming(bytes);
    }

    fn holes(&self, file: &[u8]) -> Vec<Range<usize>> {
        self.threads.holes(file)
    }

    fn passed(&self, bytes: &[u8]) {
        let len = bytes.len() as u64;
        let passed = self.passed.fetch_add(len, Ordering::Relaxed) + len;
        self.show(passed);
    }

    fn leaving(&self, bytes: &[u8]) {
        self.threads.leaving(bytes);
    }
}
