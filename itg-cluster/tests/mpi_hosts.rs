//! Experiments under MPI over several hosts: namespaces of network, host name and mounts, joined by a bridge, in which
//! a launcher of ours starts the programs of MPI. Needs root, `ip`, `nft` and the feature `mpi`.
#![cfg(feature = "mpi")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use itg_testkit::child::said;
use itg_testkit::host::not_run;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_itg-cluster");
static NEXT: AtomicU32 = AtomicU32::new(0);

/// Does what `ssh` does for launchers: runs a command on the host of a name. Each host has a name of its own, and a
/// table of names in which its own one is 127.0.1.1, as on Debian.
const SHELL: &str = r#"#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
exec ip netns exec "SITE-$host" unshare --uts --mount sh -c \
  'hostname "$0" && mount --bind "DIR/hosts-$0" /etc/hosts && exec sh -c "$*"' "$host" "$@"
"#;

/// Hosts h0, h1, … with the addresses 10.78.0.1 and fd78::1, 10.78.0.2 and fd78::2, … of `eth0`.
struct Site {
    name: String,
    hosts: u32,
    dir: tempfile::TempDir,
}

#[track_caller]
fn ip(words: &str) {
    let (code, _, err) = said(Command::new("ip").args(words.split(' ')));
    assert_eq!(code, Some(0), "ip {words}: {err}");
}

impl Site {
    fn new(hosts: u32) -> Self {
        let name =
            format!("itgmpi-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let dir = tempfile::tempdir().expect("a directory");
        let site = Self { name, hosts, dir };
        let (name, switch) = (&site.name, format!("{}-net", site.name));
        ip(&format!("netns add {switch}"));
        ip(&format!("-n {switch} link add bridge type bridge"));
        ip(&format!("-n {switch} link set bridge up"));
        for host in 0..hosts {
            let own = format!("{name}-h{host}");
            ip(&format!("netns add {own}"));
            ip(&format!("-n {own} link add eth0 type veth peer name port{host} netns {switch}"));
            ip(&format!("-n {switch} link set port{host} master bridge up"));
            ip(&format!("-n {own} address add 10.78.0.{}/24 dev eth0", host + 1));
            ip(&format!("-n {own} address add fd78::{}/64 dev eth0 nodad", host + 1));
            ip(&format!("-n {own} link set lo up"));
            ip(&format!("-n {own} link set eth0 up"));
            let names = (0..hosts).map(|other| match other == host {
                true => format!("127.0.1.1 h{other}\n"),
                false => format!("10.78.0.{} h{other}\n", other + 1),
            });
            let names = "127.0.0.1 localhost\n".to_owned() + &names.collect::<String>();
            fs::write(site.path(&format!("hosts-h{host}")), names).expect("written");
            for rule in [
                "add table inet seen",
                "add chain inet seen in { type filter hook input priority 0; }",
                "add rule inet seen in iifname eth0 meta l4proto udp counter",
                "add rule inet seen in iifname lo meta l4proto udp counter",
            ] {
                let mut nft = Command::new("ip");
                let (code, _, err) = said(nft.args(["netns", "exec", &own, "nft", rule]));
                assert_eq!(code, Some(0), "nft {rule}: {err}");
            }
        }
        let shell = SHELL.replace("SITE", name).replace("DIR", &dir_text(&site));
        fs::write(site.path("shell"), shell).expect("written");
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(site.path("shell"), mode).expect("a program");
        site
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// An experiment in a file.
    fn file(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).expect("written");
        self.text(name)
    }

    /// Runs the program with so many ranks on each host in turn; the launcher is on h0.
    fn job(&self, ranks: &[u32], args: &[&str]) -> (Option<i32>, String, String) {
        let hosts = || (0..).zip(ranks).filter(|(_, ranks)| **ranks > 0);
        let list = |sign: &str| {
            hosts()
                .map(|(host, ranks): (u32, _)| format!("h{host}{sign}{ranks}\n"))
                .collect::<String>()
        };
        let (open, hydra) = (self.file("open", &list(" slots=")), self.file("hydra", &list(":")));
        let total: u32 = ranks.iter().sum();
        let mpirun = std::env::var("ITG_MPIRUN").unwrap_or_else(|_| "mpirun".to_owned());
        let mut job = Command::new(self.path("shell"));
        job.args(["h0", "timeout", "120", &mpirun, "-n", &total.to_string(), PROGRAM]).args(args);
        // Hosts of all sites have the same names, and so have the directories of their launchers' sessions.
        job.env("TMPDIR", self.dir.path());
        // Settings of Open MPI, and those of MPICH; neither knows the other's.
        job.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        job.env("OMPI_MCA_plm", "rsh").env("OMPI_MCA_plm_rsh_agent", self.path("shell"));
        job.env("OMPI_MCA_orte_default_hostfile", open);
        // Where two hosts share an address Open MPI may wait for ever without this.
        let network = "10.78.0.0/24";
        job.env("OMPI_MCA_btl_tcp_if_include", network).env("OMPI_MCA_oob_tcp_if_include", network);
        job.env("OMPI_MCA_hwloc_base_binding_policy", "none");
        job.env("OMPI_MCA_mpi_yield_when_idle", "1");
        job.env("HYDRA_LAUNCHER", "ssh").env("HYDRA_LAUNCHER_EXEC", self.path("shell"));
        job.env("HYDRA_HOST_FILE", hydra).env("HYDRA_IFACE", "eth0");
        said(&mut job)
    }

    /// Datagrams that have come to a host over its link, and over loopback.
    fn datagrams(&self, host: u32) -> [u64; 2] {
        let own = format!("{}-h{host}", self.name);
        let mut nft = Command::new("ip");
        nft.args(["netns", "exec", &own, "nft", "list", "table", "inet", "seen"]);
        let (code, text, err) = said(&mut nft);
        assert_eq!(code, Some(0), "{err}");
        let counts = text.lines().filter_map(|line| line.split_once("counter packets "));
        let counts = counts.map(|(_, rest)| rest.split(' ').next().and_then(|n| n.parse().ok()));
        counts.collect::<Option<Vec<_>>>().expect("numbers").try_into().expect("two counters")
    }

    /// The report of the run in this directory.
    fn report(&self, out: &str) -> Value {
        let text = fs::read_to_string(self.path(out).join("report.json")).expect("a report");
        serde_json::from_str(&text).expect("JSON")
    }
}

fn dir_text(site: &Site) -> String {
    site.dir.path().display().to_string()
}

impl Drop for Site {
    fn drop(&mut self) {
        for host in (0..self.hosts).map(|host| format!("h{host}")).chain(["net".to_owned()]) {
            let name = format!("{}-{host}", self.name);
            let left = Command::new("ip").args(["netns", "pids", &name]).output();
            let left = left.map(|left| String::from_utf8_lossy(&left.stdout).into_owned());
            for id in left.unwrap_or_default().split_whitespace() {
                drop(Command::new("kill").args(["-9", id]).output());
            }
            drop(Command::new("ip").args(["netns", "delete", &name]).output());
        }
    }
}

/// Records of each conservation line: those that came, and those that were sent.
fn conserved(err: &str) -> Vec<[u64; 2]> {
    let lines = err.lines().filter(|line| line.starts_with("log "));
    let numbers = lines.map(|line| {
        let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        [numbers[0], numbers[2]]
    });
    numbers.collect()
}

/// Source and destination of each flow, as its receiver saw them, packets that were sent, and packets that came.
fn flows(report: &Value) -> Vec<(String, String, u64, u64)> {
    let sides = report["flows"].as_array().expect("flows").iter();
    let mut flows: Vec<_> = sides.filter(|flow| flow["side"] == "receiver").collect();
    flows.sort_by_key(|flow| flow["flow"].as_u64());
    let host = |flow: &Value, key: &str| {
        let text = flow[key].as_str().unwrap_or_default();
        text.rsplit_once(':').map_or("", |(host, _)| host).to_owned()
    };
    let one = |flow: &&Value| {
        let number = |key: &str| flow[key].as_u64().unwrap_or_else(|| panic!("{key}: {flow:#}"));
        (host(flow, "src"), host(flow, "dst"), number("sent_packets"), number("packets"))
    };
    flows.iter().map(one).collect()
}

const BOTH_WAYS: &str = r#"
schema = 1
name = "hosts"
seed = 9
duration = "700ms"
[log]
server = "mpi"
[nodes]
a = { address = "10.78.0.2" }
b = { address = "10.78.0.3:9000" }
[[flow]]
from = "a"
to = "b"
idt = "exp(2ms)"
size = "uniform(100,900)"
[[flow]]
from = "a"
to = "b"
proto = "tcp"
idt = "5ms"
size = "1kB"
[[flow]]
from = "b"
to = "a"
idt = "3ms"
size = "200"
"#;

#[test]
fn flows_go_from_node_to_node_over_the_link_and_logs_to_a_host_of_their_own() {
    if not_run() {
        return;
    }
    let site = Site::new(3);
    let (file, out) = (site.file("both.toml", BOTH_WAYS), site.text("run"));
    let events = site.text("events");
    let args = ["run", &file, "--mpi", "--out", &out, "--events", &events];
    let (code, text, err) = site.job(&[1, 3, 2], &args);
    assert_eq!(code, Some(0), "{text}{err}");
    assert!(text.starts_with("MPI: 6 ranks on 3 host(s), "), "{text}");
    let roles = "rank 0 (h0): logs; node `a` (h1): rank 1 receives, ranks 2, 3 send flows 1, 2; node `b` (h2): \
                 rank 4 receives, rank 5 sends flow 3\n";
    assert!(err.contains(roles), "{err}");
    let found = flows(&site.report("run"));
    let (a, b) = ("10.78.0.2", "10.78.0.3");
    for (flow, (from, to)) in found.iter().zip([(a, b), (a, b), (b, a)]) {
        assert_eq!((flow.0.as_str(), flow.1.as_str()), (from, to), "{found:?}");
        assert!(flow.2 > 50 && flow.2 == flow.3, "all came: {found:?}");
    }
    // The packets of each node's receiver, and pings of the sessions, came over its link, none over loopback.
    for (host, flow) in [(1, &found[2]), (2, &found[0])] {
        let [link, loopback] = site.datagrams(host);
        assert!(link >= flow.3 && loopback == 0, "h{host}: {link}, {loopback}, {found:?}");
    }
    assert_eq!(site.datagrams(0), [0, 0], "the host of the logs has no flow");
    let lines = conserved(&err);
    assert_eq!(lines.len(), 2, "one of the senders, one of the receivers: {err}");
    for [came, sent] in lines {
        assert!(came == sent && came > 200, "{err}");
    }
    let told = fs::read_to_string(&events).expect("events");
    for owner in ["rank 2", "rank 3", "rank 5"] {
        let line =
            told.lines().filter(|line| line.contains("\"finished\"") && line.contains(owner));
        assert_eq!(line.count(), 1, "{owner}: {told}");
    }
    let (code, text, err) = said(Command::new(PROGRAM).args(["verify", &out]));
    assert_eq!(code, Some(0), "{text}{err}");
}

#[test]
fn ranks_and_addresses_are_those_of_the_options() {
    if not_run() {
        return;
    }
    let site = Site::new(3);
    let (file, a, b) = (site.file("both.toml", BOTH_WAYS), "10.78.0.2", "10.78.0.3");
    // Roles by the option: the nodes are on each other's host, which has not their address.
    let swapped = ["--mpi-nodes", "a=4-6,b=1-3"];
    let args = ["run", &file, "--mpi", "--out", &site.text("swapped")];
    let (code, text, err) = site.job(&[1, 3, 3], &[&args[..], &swapped].concat());
    assert_eq!((code, text.as_str()), (Some(2), ""), "{err}");
    let want = "node `a` (rank 4, host h2): this host has no address 10.78.0.2, but lo 127.0.0.1, eth0 10.78.0.3";
    assert!(err.contains(want), "{err}");
    assert!(!site.path("swapped").exists(), "nothing is begun: {err}");
    // An interface says more than the file.
    let interface = [&args[..], &swapped, &["--mpi-interface", "eth0"]].concat();
    let (code, text, err) = site.job(&[1, 3, 3], &interface);
    assert_eq!(code, Some(0), "{text}{err}");
    assert!(err.contains("; nothing to do for 1 more: 3\n"), "{err}");
    let found = flows(&site.report("swapped"));
    assert_eq!((found[0].0.as_str(), found[0].1.as_str()), (b, a), "{found:?}");
    // A sweep, with the logs beside the first node: `a` is h0 then.
    let sweep = BOTH_WAYS.replace("700ms", "300ms") + "[matrix]\nflow.size = [100, 900]\n";
    let (file, out) = (site.file("sweep.toml", &sweep), site.text("sweep"));
    let args = ["run", &file, "--mpi", "--out", &out, "--mpi-interface", "eth0"];
    let (code, text, err) = site.job(&[4, 2], &args);
    assert_eq!(code, Some(0), "{text}{err}");
    let cases = fs::read_dir(&out).expect("cases").map(|case| case.expect("a case").path());
    let runs: Vec<_> = cases.map(|case| case.join("1")).filter(|run| run.is_dir()).collect();
    assert_eq!(runs.len(), 2, "{err}");
    for run in runs {
        let found = flows(&site.report(&run.display().to_string()));
        let (a, b) = ("10.78.0.1", "10.78.0.2");
        for (flow, (from, to)) in found.iter().zip([(a, b), (a, b), (b, a)]) {
            assert_eq!((flow.0.as_str(), flow.1.as_str()), (from, to), "{found:?}");
        }
    }
}

#[test]
fn ranks_that_do_not_do_are_refused_with_the_number_that_does() {
    if not_run() {
        return;
    }
    let site = Site::new(3);
    // Too few ranks on a host, and too few hosts, are refused with the numbers.
    let (file, none) = (site.file("both.toml", BOTH_WAYS), site.text("none"));
    let args = ["run", &file, "--mpi", "--out", &none];
    for (ranks, want) in [
        (
            &[1, 2, 3][..],
            "node `a` needs 3 ranks (receiver, flows 1, 2) and has ranks 1, 2 (host h1): start that many there",
        ),
        (
            &[2, 2, 2],
            "has 2 nodes, and ranks beside rank 0 are on 3 hosts (h0, h1, h2): start ranks on as many hosts",
        ),
        (
            &[1, 2, 2],
            "has 3 flows between nodes: it needs 6 ranks and not 5: rank 0 (logs), node `a` 3 (receiver, flows 1, 2), \
             node `b` 2 (receiver, flow 3): mpirun -n 6",
        ),
    ] {
        let (code, text, err) = site.job(ranks, &args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{ranks:?}: {err}");
        assert!(err.contains(want) && !site.path("none").exists(), "{ranks:?}: {err}");
    }
}

const NO_NODES: &str = r#"
schema = 1
name = "plain"
seed = 9
duration = "700ms"
[log]
server = "mpi"
[[flow]]
idt = "exp(2ms)"
[[flow]]
idt = "3ms"
"#;

#[test]
fn an_address_that_no_other_host_reaches_is_refused_and_an_interface_gives_another_one() {
    if not_run() {
        return;
    }
    let site = Site::new(2);
    let (file, out) = (site.file("plain.toml", NO_NODES), site.text("run"));
    let args = ["run", &file, "--mpi", "--out", &out];
    let (code, text, err) = site.job(&[2, 1], &args);
    assert_eq!((code, text.as_str()), (Some(2), ""), "{err}");
    let want = "the receivers (rank 0, host h0) would receive at 127.0.1.1, where nothing of another host comes, and so \
                not flow 2, which rank 2 sends on host h1: give --mpi-interface";
    assert!(err.contains(want) && !site.path("run").exists(), "{err}");
    let (code, text, err) =
        site.job(&[2, 1], &[&args[..], &["--mpi-interface", "10.78.0.0/24"]].concat());
    assert_eq!(code, Some(0), "{text}{err}");
    let found = flows(&site.report("run"));
    for (flow, from) in found.iter().zip(["10.78.0.1", "10.78.0.2"]) {
        assert_eq!((flow.0.as_str(), flow.1.as_str()), (from, "10.78.0.1"), "{found:?}");
        assert!(flow.2 > 50 && flow.2 == flow.3, "all came: {found:?}");
    }
    assert!(site.datagrams(0)[0] >= found[1].3, "{found:?}");
    let (code, text, err) = said(Command::new(PROGRAM).args(["verify", &out]));
    assert_eq!(code, Some(0), "{text}{err}");
    // Nodes at addresses of IPv6: the logs beside the first one.
    let text = NO_NODES.replace("[[flow]]", "[[flow]]\nfrom = \"a\"\nto = \"b\"");
    let nodes = "[nodes]\na = { address = \"fd78::1\" }\nb = { address = \"[fd78::2]:9000\" }\n";
    let six = site.file("six.toml", &(text + nodes));
    let (code, text, err) = site.job(&[3, 1], &["run", &six, "--mpi", "--out", &site.text("six")]);
    assert_eq!(code, Some(0), "{text}{err}");
    for flow in flows(&site.report("six")) {
        assert_eq!((flow.0.as_str(), flow.1.as_str()), ("[fd78::1]", "[fd78::2]"), "{flow:?}");
        assert!(flow.2 > 50 && flow.2 == flow.3, "all came: {flow:?}");
    }
    // Both hosts have it, as those with Docker have 172.17.0.1: packets would stay where they are.
    for host in 0..2 {
        let own = format!("{}-h{host}", site.name);
        ip(&format!("-n {own} link add docker0 type bridge"));
        ip(&format!("-n {own} address add 172.17.0.1/16 dev docker0"));
        ip(&format!("-n {own} link set docker0 up"));
    }
    let none = site.text("none");
    let args = ["run", &file, "--mpi", "--out", &none, "--mpi-interface", "172.17.0.0/16"];
    let (code, _, err) = site.job(&[2, 1], &args);
    let want =
        "would receive at 172.17.0.1, which is an address of the other host, too, so that flow 2";
    assert!(code == Some(2) && err.contains(want), "{code:?} {err}");
    // An interface that a host has not is named with those that it has.
    let args = ["run", &file, "--mpi", "--out", &none, "--mpi-interface", "eth7"];
    let (code, _, err) = site.job(&[2, 1], &args);
    let want = "this host has no address of `eth7`, but lo 127.0.0.1, eth0 10.78.0.1";
    assert!(code == Some(2) && err.contains(want), "{code:?} {err}");
}
