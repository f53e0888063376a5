//! Services of this host for tests: directories, file systems, parallel rows, and `/proc`.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener};
use std::panic::{self, AssertUnwindSafe};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, PoisonError};
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

/// Writes a secret that nobody else may read.
pub fn write_secret(path: impl AsRef<Path>, text: &str) {
    let mut options = File::options();
    let made = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    made.and_then(|mut file| file.write_all(text.as_bytes())).expect("a secret");
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

/// Says on stderr that a test, or a part of it, is left out, and what it needs. Under CI (environment variable `CI`) it
/// fails instead.
#[track_caller]
pub fn leave_out(needs: &str) {
    assert!(std::env::var_os("CI").is_none(), "under CI this test must run, and it needs {needs}");
    let name = thread::current().name().unwrap_or("a test").to_owned();
    // Past the test harness, which keeps to itself what passing tests print.
    drop(writeln!(io::stderr(), "NOT RUN: needs {needs}: {name}"));
}

/// Returns true if a test that needs root is left out.
#[must_use]
#[track_caller]
pub fn not_run() -> bool {
    if nix::unistd::geteuid().is_root() {
        return false;
    }
    leave_out("root");
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

/// A port that is free on all addresses, over TCP and UDP; each call another one, in all programs that draw here.
#[must_use]
pub fn free_port() -> u16 {
    free_ports(1)
}

/// The first of two such ports, side by side.
#[must_use]
pub fn two_ports() -> u16 {
    free_ports(2)
}

/// Ports are below the ephemeral ones: connections would take those.
fn free_ports(count: u16) -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = u16::try_from(std::process::id() % 500).expect("small") * 40;
    for _ in 0..10_000 {
        let port = 12_000 + (first + NEXT.fetch_add(count, Ordering::Relaxed) % 20_000) % 20_000;
        if (port..port + count).all(|port| is_claimed(port) && is_free(port)) {
            return port;
        }
    }
    panic!("no {count} free ports side by side between 12000 and 32000");
}

/// Claims a port until this program ends; false if it is claimed already. The claim is an abstract socket: the kernel
/// knows each name once in a network namespace.
fn is_claimed(port: u16) -> bool {
    static CLAIMS: Mutex<Vec<UnixListener>> = Mutex::new(Vec::new());
    UnixListener::bind_addr(&claim_of(port)).is_ok_and(|claim| {
        CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).push(claim);
        true
    })
}

fn claim_of(port: u16) -> UnixAddress {
    UnixAddress::from_abstract_name(format!("itg-test-port-{port}")).expect("a short name")
}

fn is_free(port: u16) -> bool {
    let any = [IpAddr::V4(Ipv4Addr::UNSPECIFIED), IpAddr::V6(Ipv6Addr::UNSPECIFIED)];
    any.iter()
        .all(|ip| TcpListener::bind((*ip, port)).is_ok() && UdpSocket::bind((*ip, port)).is_ok())
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_port_is_drawn_twice() {
        let mut drawn = BTreeSet::new();
        for _ in 0..50 {
            let (one, two) = (free_port(), two_ports());
            for port in [one, two, two + 1] {
                // A child of another test has what was tried here until it becomes its program.
                wait_for("a free port", Duration::from_secs(5), || is_free(port));
                assert!(drawn.insert(port), "{port} twice");
            }
        }
    }

    #[test]
    fn what_another_program_has_drawn_is_left_out() {
        let next = free_port() + 1;
        // The claim of another program, of this one's other test, or none where somebody listens.
        let claim = UnixListener::bind_addr(&claim_of(next));
        for _ in 0..10 {
            assert_ne!(free_port(), next);
        }
        drop(claim);
    }
}
