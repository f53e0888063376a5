//! Network namespaces joined by a veth link; needs root.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::slow::{Slow, SlowLink};

/// Namespaces of these tests are called `itg-PID-N`.
const PREFIX: &str = "itg-";
static NEXT: AtomicU32 = AtomicU32::new(0);
static SWEPT: Mutex<bool> = Mutex::new(false);

/// Runs `ip` or `tc` with these words.
#[track_caller]
fn run(program: &str, words: &str) {
    let done = Command::new(program).args(words.split_whitespace()).output();
    let done = done.unwrap_or_else(|error| panic!("{program} (install iproute2): {error}"));
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "`{program} {words}`: {said}");
}

/// Removes what earlier test processes have left behind when they were killed.
fn sweep() {
    let mut swept = SWEPT.lock().expect("no panic while sweeping");
    if std::mem::replace(&mut swept, true) {
        return;
    }
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for name in entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()) {
        let pid = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let alive = |pid: &str| Path::new("/proc").join(pid).exists();
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !alive(pid)) {
            drop(Command::new("ip").args(["netns", "delete", &name]).output());
        }
    }
}

/// A network namespace; deleted when dropped.
#[derive(Debug)]
pub struct Namespace {
    name: String,
}

impl Namespace {
    fn new() -> Self {
        sweep();
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{PREFIX}{}-{number}", std::process::id());
        run("ip", &format!("netns add {name}"));
        let made = Self { name };
        made.ip("link set lo up");
        made
    }

    /// Runs `ip` within it.
    #[track_caller]
    pub fn ip(&self, words: &str) {
        run("ip", &format!("-n {} {words}", self.name));
    }

    /// Runs `tc` within it.
    #[track_caller]
    pub fn tc(&self, words: &str) {
        run("tc", &format!("-n {} {words}", self.name));
    }

    /// Cuts the link of a [`Pair`], or joins it again.
    #[track_caller]
    pub fn link(&self, up: bool) {
        self.ip(&format!("link set link0 {}", if up { "up" } else { "down" }));
    }

    /// A command that runs within it.
    #[must_use]
    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.name]).arg(program);
        command
    }

    /// Does something within it, with sockets of the test's own.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            self.enter();
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).expect("the work succeeds")
    }

    /// Moves the calling thread into it, for as long as the thread runs.
    pub(crate) fn enter(&self) {
        let path = Path::new("/run/netns").join(&self.name);
        let file = std::fs::File::open(path).expect("the namespace exists");
        nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).expect("root may enter");
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let delete = Command::new("ip").args(["netns", "delete", &self.name]).output();
        if !std::thread::panicking() {
            assert!(delete.is_ok_and(|done| done.status.success()), "{} stays behind", self.name);
        }
    }
}

/// Two hosts, joined by a link whose ends are both called `link0`.
///
/// The sender has 10.77.0.1, 10.77.0.11, fd77::1 and fe80::1; the receiver 10.77.0.2, fd77::2 and
/// fe80::2.
#[derive(Debug)]
pub struct Pair {
    /// The sending host.
    pub sender: Namespace,
    /// The receiving host.
    pub receiver: Namespace,
}

impl Pair {
    /// Makes both hosts and the link.
    #[must_use]
    pub fn new() -> Self {
        let pair = Self { sender: Namespace::new(), receiver: Namespace::new() };
        let (from, to) = (&pair.sender, &pair.receiver);
        from.ip(&format!("link add link0 type veth peer name link0 netns {}", to.name));
        for (host, number) in [(from, 1), (to, 2)] {
            host.ip("link set link0 addrgenmode none");
            host.ip(&format!("address add 10.77.0.{number}/24 dev link0"));
            host.ip(&format!("address add fd77::{number}/64 dev link0 nodad"));
            host.ip(&format!("address add fe80::{number}/64 dev link0 nodad"));
            host.ip("link set link0 up");
        }
        from.ip("address add 10.77.0.11/24 dev link0");
        pair.addresses_differ();
        pair
    }

    /// A safeguard against typing errors above: the hosts share no address.
    fn addresses_differ(&self) {
        let list = |host: &Namespace| -> BTreeSet<String> {
            let args = ["-n", &host.name, "-o", "address", "show", "dev", "link0"];
            let done = Command::new("ip").args(args).output().expect("ip");
            let text = String::from_utf8_lossy(&done.stdout).into_owned();
            text.lines()
                .filter_map(|line| line.split_whitespace().nth(3))
                .map(str::to_owned)
                .collect()
        };
        let (from, to) = (list(&self.sender), list(&self.receiver));
        assert!(from.len() == 4 && to.len() == 3 && from.is_disjoint(&to), "{from:?} {to:?}");
    }
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

/// Hosts that are joined by a switch, and one more host within the switch itself.
///
/// Host *k* has 10.78.0.(*k* + 1), the one in the middle 10.78.0.254.
#[derive(Debug)]
pub struct Switch {
    /// Namespace of the switch.
    pub middle: Namespace,
    /// The others.
    pub hosts: Vec<Namespace>,
    /// Their links, where these are slow.
    _links: Vec<SlowLink>,
}

impl Switch {
    /// Address of the host in the middle.
    pub const MIDDLE: &str = "10.78.0.254";

    /// Makes hosts and switch.
    #[must_use]
    pub fn new(hosts: usize) -> Self {
        Self::with(hosts, None)
    }

    /// The same, with slow links between the hosts and the switch.
    #[must_use]
    pub fn slow(hosts: usize, slow: Slow) -> Self {
        Self::with(hosts, Some(slow))
    }

    fn with(hosts: usize, slow: Option<Slow>) -> Self {
        let mut links = Vec::new();
        let middle = Namespace::new();
        middle.ip("link add switch0 type bridge");
        middle.ip(&format!("address add {}/24 dev switch0", Self::MIDDLE));
        middle.ip("link set switch0 up");
        let mut host = |number: usize| {
            let host = Namespace::new();
            let port = format!("port{number}");
            match slow {
                None => host.ip(&format!(
                    "link add link0 type veth peer name {port} netns {}",
                    middle.name
                )),
                Some(slow) => {
                    links.push(SlowLink::join((&host, "link0"), (&middle, &port), slow));
                }
            }
            host.ip(&format!("address add {}/24 dev link0", Self::address(number)));
            host.ip("link set link0 up");
            middle.ip(&format!("link set port{number} master switch0 up"));
            host
        };
        let hosts = (0..hosts).map(&mut host).collect();
        Self { middle, hosts, _links: links }
    }

    /// The address of a host.
    #[must_use]
    pub fn address(host: usize) -> String {
        format!("10.78.0.{}", host + 1)
    }

    /// Keeps a host from all others that are kept apart, but not from the rest; or ends that.
    #[track_caller]
    pub fn isolate(&self, host: usize, on: bool) {
        let state = if on { "on" } else { "off" };
        self.middle.ip(&format!("link set port{host} type bridge_slave isolated {state}"));
    }

    /// Cuts the link of a host, or joins it again.
    #[track_caller]
    pub fn link(&self, host: usize, up: bool) {
        self.middle.ip(&format!("link set port{host} {}", if up { "up" } else { "down" }));
    }
}
