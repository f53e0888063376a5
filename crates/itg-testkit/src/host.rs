//! Services of this host for tests: directories, file systems, parallel rows, and `/proc`.

use std::fs;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A directory that is removed at the end of the test; in memory where there is such a place, since
/// programs wait for the disk at the end of their logs, and a disk may be busy for minutes.
#[must_use]
pub fn temp_dir() -> TempDir {
    TempDir::with_prefix_in("itg-test-", "/dev/shm")
        .or_else(|_| TempDir::with_prefix("itg-test-"))
        .expect("a temporary directory")
}

/// Runs the rows of a table at the same time, one thread each; fails naming the rows that failed.
#[track_caller]
pub fn in_parallel<T: Sync>(rows: &[(&str, T)], test: impl Fn(&T) + Sync) {
    let failed: Vec<&str> = thread::scope(|scope| {
        let running: Vec<_> = rows
            .iter()
            .map(|(name, row)| {
                let test = &test;
                let run = move || panic::catch_unwind(AssertUnwindSafe(|| test(row))).is_err();
                let thread = thread::Builder::new().name((*name).to_owned());
                (*name, thread.spawn_scoped(scope, run).expect("a thread"))
            })
            .collect();
        running
            .into_iter()
            .filter_map(|(name, thread)| thread.join().unwrap_or(true).then_some(name))
            .collect()
    });
    assert!(failed.is_empty(), "failed rows (see above): {failed:?}");
}

/// Waits until something is so; fails when it does not become so in time.
#[track_caller]
pub fn wait_for(what: &str, limit: Duration, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !is_so() {
        assert!(Instant::now() < deadline, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Returns true if a test that needs root must be left out, and says so on stderr. Under CI
/// (environment variable `CI`) it fails instead.
#[must_use]
pub fn not_run() -> bool {
    if nix::unistd::geteuid().is_root() {
        return false;
    }
    assert!(std::env::var_os("CI").is_none(), "under CI this test must run, and it needs root");
    let name = thread::current().name().unwrap_or("a test").to_owned();
    // Past the test harness, which keeps to itself what passing tests print.
    drop(writeln!(io::stderr(), "NOT RUN: needs root: {name}"));
    true
}

/// Returns true if a table of sockets of a process's network namespace (`tcp`, `udp`) has one with this local port, in
/// either version of IP; in this state, if one is named: 0A listening, 07 unconnected.
#[must_use]
pub fn has_socket(pid: u32, table: &str, port: u16, state: Option<&str>) -> bool {
    let local = format!(":{port:04X}");
    ["", "6"].iter().any(|version| {
        let text = fs::read_to_string(format!("/proc/{pid}/net/{table}{version}"));
        text.unwrap_or_default().lines().any(|line| {
            let mut words = line.split_whitespace().skip(1);
            let (address, state_is) = (words.next(), words.nth(1));
            address.is_some_and(|address| address.ends_with(&local))
                && (state.is_none() || state == state_is)
        })
    })
}

/// A port that is free, and the next one too. Both are below the ephemeral ports: the agents' own
/// connections would take those.
#[must_use]
pub fn two_ports() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 900).expect("small") * 20;
    for _ in 0..9_000 {
        let port = 12_000 + (first + NEXT.fetch_add(2, Ordering::Relaxed)) % 18_000;
        let free = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
        if free(port) && free(port + 1) {
            return port;
        }
    }
    panic!("no two free ports side by side");
}

/// Number of open file descriptors of a process.
#[must_use]
pub fn open_files(pid: u32) -> usize {
    fs::read_dir(format!("/proc/{pid}/fd")).expect("a process of ours").count()
}

/// CPU time of a process so far, in clock ticks (usually of 10 ms).
#[must_use]
pub fn clock_ticks(pid: u32) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process of ours");
    let (_, fields) = text.rsplit_once(") ").expect("the name is in parentheses");
    // utime and stime are fields 14 and 15, the state behind the name is field 3.
    fields.split(' ').skip(11).take(2).map(|n| n.parse::<u64>().expect("a number")).sum()
}

/// A small file system in memory; needs root, is unmounted when dropped.
#[derive(Debug)]
pub struct Tmpfs {
    dir: TempDir,
}

impl Tmpfs {
    /// Mounts one of this size (as `1m`).
    #[must_use]
    pub fn mount(size: &str) -> Self {
        let mounted = Self { dir: temp_dir() };
        let options = format!("size={size}");
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &options, "itg-test"])
            .arg(mounted.dir.path())
            .output()
            .expect("mount");
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        mounted
    }

    /// A path within it.
    #[must_use]
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Lazily: a program of a failed test may still have a file open.
        drop(Command::new("umount").arg("--lazy").arg(self.dir.path()).output());
    }
}
