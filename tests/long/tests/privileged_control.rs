//! Control traffic of agents on hosts of their own: how much there is while nothing happens, and how soon a host that
//! is gone is missed all the same. Needs root.
#![allow(missing_docs, reason = "tests")]
#![allow(clippy::print_stdout, reason = "what was measured")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{Capture, Cluster, Running, Slow, flow_packets, not_run};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(120);
/// A flow that does not begin while a test lasts.
const LATER: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\nstart = \"1000s\"\nduration = \"1s\"\n";

/// Packets and bytes, in and out, at the link of a host.
fn counted(cluster: &Cluster, host: usize) -> [u64; 2] {
    let hosts = &cluster.switch.as_ref().expect("hosts").hosts;
    let table = hosts[host].within(|| fs::read_to_string("/proc/thread-self/net/dev"));
    let table = table.expect("readable");
    let line = table.lines().find_map(|line| line.trim().strip_prefix("link0:")).expect("a link");
    let words: Vec<u64> =
        line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    [words[1] + words[9], words[0] + words[8]]
}

/// Bits a second of captured packets of the control port, with the headers of Ethernet, IPv4, and TCP with time stamps.
fn control(capture: Capture, seconds: f64) -> f64 {
    let packets = capture.end();
    let control =
        packets.iter().filter(|packet| [packet.src_port, packet.dst_port].contains(&9020));
    let bytes: u64 = control.map(|packet| 14 + 20 + 32 + packet.payload).sum();
    8.0 * bytes as f64 / seconds
}

/// Packets and bits a second at each host.
fn rates(cluster: &Cluster, time: Duration) -> Vec<[f64; 2]> {
    let hosts = 0..cluster.agents.len();
    let before: Vec<_> = hosts.clone().map(|host| counted(cluster, host)).collect();
    let began = Instant::now();
    thread::sleep(time);
    let seconds = began.elapsed().as_secs_f64();
    let grown = |host| {
        let [packets, bytes] = counted(cluster, host);
        let a_second = |now: u64, before: u64| (now - before) as f64 / seconds;
        [a_second(packets, before[host][0]), 8.0 * a_second(bytes, before[host][1])]
    };
    hosts.map(grown).collect()
}

/// Agents, and a run that waits for its flow.
fn waiting(nodes: usize) -> (Cluster, Running) {
    let cluster = Cluster::apart(nodes);
    let run = cluster.run(LATER, &[]);
    cluster.wait_until_it_runs();
    (cluster, run)
}

fn end(cluster: Cluster, run: Running) {
    run.signal(Signal::SIGINT);
    drop(run.finish(LIMIT));
    drop(cluster);
}

#[test]
fn a_group_that_waits_says_little() {
    if not_run() {
        return;
    }
    let (cluster, run) = waiting(5);
    thread::sleep(Duration::from_secs(30));
    let hosts = &cluster.switch.as_ref().expect("hosts").hosts;
    let captures: Vec<_> = hosts.iter().map(Capture::start).collect();
    let rates = rates(&cluster, Duration::from_secs(60));
    let control: Vec<f64> = captures.into_iter().map(|capture| control(capture, 60.0)).collect();
    for ([packets, bits], control) in rates.iter().zip(&control) {
        println!("{packets:.1} packets/s, {bits:.0} bit/s, {control:.0} bit/s of them control");
    }
    assert!(control.iter().all(|bits| *bits <= 5000.0 && *bits > 100.0), "{control:?}");
    // Sender and receiver of the flow have its signalling beside that.
    assert!(rates[2..].iter().all(|[_, bits]| *bits <= 5000.0), "{rates:?}");
    end(cluster, run);
}

/// Times in ms from a cut or a kill to the view without the host, at the console.
fn missed(rounds: usize, kill: bool) -> Vec<u128> {
    let (mut cluster, run) = waiting(5);
    let mut took = Vec::new();
    for round in 0..rounds {
        let host = 1 + round % 4;
        // Not at the same phase of whatever is periodic.
        thread::sleep(Duration::from_millis(7000 + 173 * (round as u64 % 13)));
        let name = char::from(b'a' + u8::try_from(host).expect("few"));
        let began = Instant::now();
        match kill {
            true => drop(cluster.agents[host].take()),
            false => cluster.switch.as_ref().expect("hosts").link(host, false),
        }
        let (left, back) = (format!("; {name} left"), format!("; {name} came back"));
        let times = run.err().matches(&left).count();
        while run.err().matches(&left).count() == times {
            assert!(began.elapsed() < LIMIT, "{name} is not missed: {}", run.err());
            thread::sleep(Duration::from_millis(2));
        }
        took.push(began.elapsed().as_millis());
        let times = run.err().matches(&back).count();
        match kill {
            true => cluster.start(host, &[]),
            false => cluster.switch.as_ref().expect("hosts").link(host, true),
        }
        while run.err().matches(&back).count() == times {
            assert!(began.elapsed() < LIMIT, "{name} does not come back: {}", run.err());
            thread::sleep(Duration::from_millis(20));
        }
    }
    end(cluster, run);
    took.sort_unstable();
    println!("{} after ms: {took:?}", if kill { "killed" } else { "cut" });
    took
}

#[test]
fn a_host_that_is_cut_off_is_missed_within_its_bound() {
    if not_run() {
        return;
    }
    let took = missed(5, false);
    // The time-out, and what the view change and this busy host take.
    assert!(took[2] <= 3300, "{took:?}");
}

#[test]
fn an_agent_that_is_killed_is_missed_at_once() {
    if not_run() {
        return;
    }
    let took = missed(5, true);
    assert!(took[2] <= 600, "{took:?}");
}

#[test]
#[ignore = "a measurement of some minutes"]
fn many_hosts_are_cut_off_and_killed() {
    if not_run() {
        return;
    }
    drop(missed(30, false));
    drop(missed(30, true));
}

/// Links of 64 kbit/s each way with a queue of 2 s, as modems have, and 600 ms there and back between two agents.
const SLOW: Slow =
    Slow { rate: 64_000, delay: Duration::from_millis(150), queue: Duration::from_secs(2) };

fn thin(duration: &str) -> String {
    let flow = |from, to| {
        format!(
            "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"constant(200ms)\"\nsize = \"constant(64)\"\n\
             duration = \"{duration}\"\n"
        )
    };
    ["ab", "bc", "cd", "de", "ea"].map(|ends| flow(&ends[..1], &ends[1..])).concat()
}

#[test]
fn a_run_over_slow_links_goes_right() {
    if not_run() {
        return;
    }
    let cluster = Cluster::slow(5, SLOW);
    let done = cluster.run(&thin("20s"), &[]).finish(LIMIT);
    let done = done.exits(0);
    let report = cluster.report();
    for flow in 1..=5 {
        for side in ["sender", "receiver"] {
            assert_eq!(flow_packets(&report, flow, side), 100, "flow {flow}, {side}: {done}");
        }
    }
    assert!(!done.err.contains(" left"), "nobody is excluded: {done}");
}

/// The console says at once that it ends the run, what is sent stops within the time that an order takes, and a second
/// signal ends the program: within milliseconds, on a busy host as late as its waits for logs end.
#[test]
fn signals_at_the_console_work_over_slow_links() {
    if not_run() {
        return;
    }
    let cluster = Cluster::slow(5, SLOW);
    let run = cluster.run(&thin("100s"), &[]);
    drop(run.line_with("all nodes are ready", LIMIT));
    thread::sleep(Duration::from_secs(10));
    let began = Instant::now();
    run.signal(Signal::SIGINT);
    drop(run.line_with("interrupted by SIGINT", LIMIT));
    let said = began.elapsed();
    drop(run.line_with("all flows are stopped", LIMIT));
    let stopped = began.elapsed();
    println!("said after {said:?}, stopped after {stopped:?}");
    run.signal(Signal::SIGINT);
    let again = Instant::now();
    let done = run.finish(LIMIT).exits(130);
    println!("ended {:?} after the second one", again.elapsed());
    assert!(said < Duration::from_secs(2), "{said:?}: {done}");
    assert!(stopped < Duration::from_secs(5), "{stopped:?}: {done}");
    assert!(again.elapsed() < Duration::from_secs(40), "{:?}: {done}", again.elapsed());
}
