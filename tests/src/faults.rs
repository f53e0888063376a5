//! Faults of a cluster whose agents have hosts of their own: drawn from a seed, carried out while a run goes on, mended.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_testkit::child::{Running, children};
use itg_testkit::host::Tmpfs;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::{Cluster, NFT, Switch, program};

/// Longest time that a process stands still, or a member is cut off, in milliseconds.
const LONGEST_MS: u64 = 30_000;
/// Time that logs take over connections that lose or hold back most of what is sent.
const FETCHING: Duration = Duration::from_secs(90);
/// Time between two looks whether the run is over.
const LOOK: Duration = Duration::from_millis(20);
/// Table of the rules of nft that are in force while a fault lasts.
const TABLE: &str = "fault";

/// Process that stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    /// The agent of a node.
    Agent(usize),
    /// The workers of a node, which send its flows.
    Workers(usize),
    /// The program at the terminal.
    Console,
}

/// Packets that are lost while a member is cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lost {
    /// Those to it and those from it.
    Both,
    /// Those to it.
    To,
    /// Those from it.
    From,
}

/// Kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An agent is killed.
    Kill(usize),
    /// An agent is killed, and started again after this time.
    Restart(usize, Duration),
    /// An agent is killed and started again so many times, after this time each.
    Loop(usize, u64, Duration),
    /// A process stands still for this time.
    Still(Process, Duration),
    /// The network of a member, or of the console, is cut for this time.
    Cut(Option<usize>, Lost, Duration),
    /// Another agent is started from a copy of the state directory of a node, beside it.
    Twin(usize),
    /// An agent is killed, and another one started in its place, from a copy of its state directory.
    Backup(usize),
    /// The disk of a node is full.
    FullDisk(usize),
    /// Thirty percent of all packets of the control connections are lost.
    Loss,
    /// The control connections of a node share 64 kbit/s each way.
    Slow(usize),
}

/// Number of kinds that are drawn.
pub const KINDS: u64 = 10;

/// A fault, and when it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Time from the start of the flows.
    pub after: Duration,
    /// Its kind.
    pub kind: Kind,
}

impl Fault {
    /// Draws a fault of a run of so many nodes, whose flows take this time. Ten seeds in a row have all kinds.
    #[must_use]
    pub fn draw(seed: u64, nodes: usize, plan: Duration) -> Self {
        let mut dice = RunSeed(seed).named("night");
        let plan_ms = u64::try_from(plan.as_millis()).unwrap_or(u64::MAX);
        let mut ms = |least: u64, most: u64| {
            Duration::from_millis(least + below(&mut dice, most.saturating_sub(least) + 1))
        };
        // Some begin when the flows are over.
        let after = ms(0, plan_ms + plan_ms / 10);
        let time = ms(1000, LONGEST_MS.min(2 * plan_ms));
        let (pause, every) = (ms(0, 5000), ms(100, 3000));
        let mut one_of = |of: usize| usize::try_from(below(&mut dice, of as u64)).unwrap_or(0);
        let node = one_of(nodes);
        // Those that take longest come first.
        let kind = match seed % KINDS {
            0 => Kind::Loss,
            1 => Kind::Slow(node),
            2 => Kind::FullDisk(node),
            3 => {
                let member = one_of(nodes + 1);
                let way = [Lost::Both, Lost::To, Lost::From][one_of(3)];
                Kind::Cut((member < nodes).then_some(member), way, time)
            }
            4 => {
                let whose = [Process::Agent(node), Process::Workers(node), Process::Console];
                Kind::Still(whose[one_of(3)], time)
            }
            5 => Kind::Kill(node),
            6 => Kind::Restart(node, pause),
            7 => Kind::Loop(node, 3 + one_of(18) as u64, every),
            8 => Kind::Twin(node),
            _ => Kind::Backup(node),
        };
        Self { after, kind }
    }

    /// Time for which the console can do nothing, or fetches logs over connections that hardly carry any.
    #[must_use]
    pub fn holds_console(&self) -> Duration {
        match self.kind {
            Kind::Still(Process::Console, time) | Kind::Cut(None, _, time) => time,
            Kind::Loss | Kind::Slow(_) => FETCHING,
            _ => Duration::ZERO,
        }
    }
}

/// Sleeps, unless the run is over before.
fn pause(time: Duration, over: &AtomicBool) {
    let until = Instant::now() + time;
    while Instant::now() < until && !over.load(Ordering::Relaxed) {
        thread::sleep(LOOK);
    }
}

/// A fault that is being carried out.
#[derive(Debug)]
pub struct Harm {
    fault: Fault,
    /// Disk of the node that is to be full.
    disk: Option<Tmpfs>,
    /// Agents beside those of the cluster.
    twins: Vec<Running>,
    /// What agents said that were killed.
    pub said: Vec<String>,
}

impl Harm {
    /// Makes ready, before the run begins.
    #[must_use]
    pub fn prepare(fault: Fault, cluster: &mut Cluster) -> Self {
        let mut made = Self { fault, disk: None, twins: Vec::new(), said: Vec::new() };
        if let Kind::FullDisk(node) = fault.kind {
            let disk = Tmpfs::mount("4m");
            drop(cluster.agents[node].take());
            cluster.start_in(node, &disk.join("agent"), &[]);
            made.disk = Some(disk);
        }
        made
    }

    /// Does it while the flows are sent, and mends what can be mended; the run may be `over` before.
    pub fn carry_out(&mut self, cluster: &mut Cluster, console: u32, over: &AtomicBool) {
        pause(self.fault.after, over);
        match self.fault.kind {
            Kind::Kill(node) => self.kill(cluster, node),
            Kind::Restart(node, after) => {
                self.kill(cluster, node);
                pause(after, over);
                cluster.start(node, &[]);
            }
            Kind::Loop(node, times, every) => {
                for _ in 0..times {
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                    self.kill(cluster, node);
                    cluster.start(node, &[]);
                    pause(every, over);
                }
            }
            Kind::Still(process, time) => {
                let pids = match process {
                    Process::Console => vec![console],
                    Process::Agent(node) => vec![pid_of(cluster, node)],
                    Process::Workers(node) => children(pid_of(cluster, node)),
                };
                pids.iter().for_each(|pid| signal(*pid, Signal::SIGSTOP));
                pause(time, over);
                pids.iter().for_each(|pid| signal(*pid, Signal::SIGCONT));
            }
            Kind::Cut(member, way, time) => {
                cut(cluster, member, way);
                pause(time, over);
                self.mend(cluster);
            }
            Kind::Twin(node) => {
                let copy = copy_state(cluster, node);
                let beside = format!("{}:9030", Switch::address(node));
                self.twins.push(cluster.agent_at(node, &beside, &copy));
            }
            Kind::Backup(node) => {
                let copy = copy_state(cluster, node);
                self.kill(cluster, node);
                self.twins.push(cluster.agent_at(node, &cluster.address(node), &copy));
            }
            Kind::FullDisk(_) => {
                let full = self.disk.as_ref().map(|disk| disk.join("full"));
                let mut fill = Command::new("dd");
                fill.args(["if=/dev/zero", "bs=64k"]);
                fill.arg(format!("of={}", full.unwrap_or_default().display()));
                drop(fill.output());
            }
            Kind::Loss => lose(cluster),
            Kind::Slow(node) => slow(cluster, node),
        }
    }

    fn kill(&mut self, cluster: &mut Cluster, node: usize) {
        let Some(agent) = cluster.agents[node].take() else { return };
        self.said.push(agent.err());
        agent.signal(Signal::SIGKILL);
    }

    /// Mends the network and the disk.
    pub fn mend(&mut self, cluster: &Cluster) {
        if let Some(disk) = &self.disk {
            // It may not have been filled.
            drop(std::fs::remove_file(disk.join("full")));
        }
        let switch = cluster.switch.as_ref().expect("hosts of their own");
        for host in switch.hosts.iter().chain([&switch.middle]) {
            for family in ["inet", "netdev"] {
                let words = format!("delete table {family} {TABLE}");
                // It may not have one.
                drop(host.command(NFT.as_ref()).args(words.split(' ')).output());
            }
        }
    }

    /// Last words of agents that are no members of the cluster any more.
    #[must_use]
    pub fn others(&self) -> Vec<String> {
        self.said.iter().cloned().chain(self.twins.iter().map(Running::err)).collect()
    }
}

fn pid_of(cluster: &Cluster, node: usize) -> u32 {
    cluster.agents[node].as_ref().expect("it runs").pid()
}

/// Sends a signal to a process that may have ended.
fn signal(pid: u32, which: Signal) {
    kill(Pid::from_raw(pid.cast_signed()), which).unwrap_or_default();
}

/// Copies the state directory of a node; the directory of an agent that has the copy.
fn copy_state(cluster: &Cluster, node: usize) -> std::path::PathBuf {
    let copy = cluster.path("copy");
    std::fs::create_dir_all(&copy).expect("a directory");
    let mut cp = Command::new("cp");
    cp.arg("-a").arg(cluster.path(&format!("agent-{node}/state"))).arg(&copy);
    // What a living agent removes meanwhile is not copied.
    drop(cp.output());
    copy
}

/// Adds the table and its chain of what comes in.
fn chain(host: &crate::Namespace) {
    host.run(NFT, &format!("add table inet {TABLE}"));
    host.run(NFT, &format!("add chain inet {TABLE} in {{ type filter hook input priority 0; }}"));
}

/// Cuts a member, or the console, off: packets are lost where they come in, so that no kernel refuses to send any.
fn cut(cluster: &Cluster, member: Option<usize>, way: Lost) {
    let switch = cluster.switch.as_ref().expect("hosts of their own");
    let all = || switch.hosts.iter().chain([&switch.middle]);
    let (cut, address) = match member {
        Some(node) => (&switch.hosts[node], Switch::address(node)),
        None => (&switch.middle, Switch::MIDDLE.to_owned()),
    };
    all().for_each(chain);
    if way != Lost::From {
        cut.run(NFT, &format!("add rule inet {TABLE} in iif != lo drop"));
    }
    if way != Lost::To {
        for host in all().filter(|host| !std::ptr::eq(*host, cut)) {
            host.run(NFT, &format!("add rule inet {TABLE} in ip saddr {address} drop"));
        }
    }
}

fn lose(cluster: &Cluster) {
    let switch = cluster.switch.as_ref().expect("hosts of their own");
    for host in switch.hosts.iter().chain([&switch.middle]) {
        chain(host);
        let rule = "meta l4proto tcp numgen random mod 100 < 30 drop";
        host.run(NFT, &format!("add rule inet {TABLE} in {rule}"));
    }
}

fn slow(cluster: &Cluster, node: usize) {
    let switch = cluster.switch.as_ref().expect("hosts of their own");
    let ends = [(&switch.hosts[node], "link0".to_owned()), (&switch.middle, format!("port{node}"))];
    for (host, device) in ends {
        host.run(NFT, &format!("add table netdev {TABLE}"));
        let hook = format!("{{ type filter hook ingress device {device} priority 0; }}");
        host.run(NFT, &format!("add chain netdev {TABLE} in {hook}"));
        let rule = "ip protocol tcp limit rate over 8 kbytes/second burst 4 kbytes drop";
        host.run(NFT, &format!("add rule netdev {TABLE} in {rule}"));
    }
}

impl Cluster {
    /// Starts one more agent on the host of a node; it may refuse.
    #[must_use]
    pub fn agent_at(&self, node: usize, listen: &str, dir: &std::path::Path) -> Running {
        let host = &self.switch.as_ref().expect("hosts of their own").hosts[node];
        let mut agent = host.command(&program("itg-cluster"));
        agent.args(["agent", "--listen", listen]);
        agent.arg("--keys").arg(self.path("keys")).arg("--dir").arg(dir);
        Running::start(&mut agent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_seeds_in_a_row_have_all_kinds_and_draw_the_same_again() {
        let plan = Duration::from_secs(60);
        let mut kinds = std::collections::BTreeSet::new();
        for seed in 41..51 {
            let fault = Fault::draw(seed, 5, plan);
            assert_eq!(fault, Fault::draw(seed, 5, plan));
            assert!(fault.after <= plan * 11 / 10, "{fault:?}");
            let words = format!("{:?}", fault.kind);
            kinds.insert(words.split('(').next().map(str::to_owned));
        }
        assert_eq!(kinds.len(), 10, "{kinds:?}");
    }
}
