//! Agents that are killed and started again while they take part in a run: the run goes on, every flow comes to its
//! end, no packet is sent twice, and the console says all the time what is missing.
#![allow(missing_docs, clippy::print_stdout, reason = "tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use itg_core::seed::RunSeed;
use itg_core::streams::below;
use itg_record::{Item, Kind, LogReader, Note};
use itg_tests::{Cluster, Output, children, each_record, flow_packets, logs_below, wait_for};
use nix::sys::signal::{Signal, kill as kill_one};
use nix::unistd::Pid;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(150);

/// Two flows from each agent, for so many seconds.
fn flows(agents: usize, seconds: u64) -> String {
    let name = |node: usize| char::from(b'a' + u8::try_from(node % agents).expect("small"));
    let flow = |flow: usize| {
        let (from, to) = (name(flow % agents), name(flow % agents + 1 + flow / agents));
        format!(
            "[[flow]]\nfrom = \"{from}\"\nto = \"{to}\"\nidt = \"constant(10ms)\"\npackets = {}\n",
            seconds * 100
        )
    };
    (0..2 * agents).map(flow).collect()
}

/// Kills these agents at one instant, as nearly as there is one.
fn kill(cluster: &mut Cluster, nodes: &[usize]) {
    for node in nodes {
        if let Some(agent) = &cluster.agents[*node] {
            agent.signal(Signal::SIGKILL);
        }
    }
    for node in nodes {
        drop(cluster.agents[*node].take());
    }
}

/// Count of each packet (flow, number) in the logs as sent, and as received.
type Counts = BTreeMap<(u32, u64), [u32; 2]>;

fn packets(dir: &Path) -> Counts {
    let mut counts = Counts::new();
    each_record(dir, |_, flow, record| {
        let side = usize::from(record.kind != Kind::Sent);
        counts.entry((flow, record.seq)).or_default()[side] += 1;
    });
    counts
}

/// Lines of a file of events.
fn events(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).expect("events");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// Every flow has come to its end, no packet was sent or logged twice, and the console has told of the nodes that were
/// missing. Returns how many packets were sent and received.
fn judged(cluster: &Cluster, done: &Output, flows: u64, missing: &[&str]) -> (usize, usize) {
    let told = events(&cluster.path("events"));
    let mut states = BTreeMap::new();
    for event in told.iter().filter(|event| event["event"] == "flow") {
        states.insert(event["flow"].as_u64().expect("a number"), event["state"].clone());
    }
    let finished = |flow: &u64| states.get(flow).is_some_and(|state| state == "finished");
    assert!((1..=flows).all(|flow| finished(&flow)), "{states:?}: {done}");
    let counts = packets(&cluster.path("out"));
    let twice: Vec<_> = counts.iter().filter(|(_, times)| times.iter().any(|n| *n > 1)).collect();
    assert!(
        twice.is_empty(),
        "{} packets come twice: {:?}",
        twice.len(),
        &twice[..twice.len().min(9)]
    );
    let waits: Vec<&Value> = told.iter().filter(|event| event["event"] == "missing").collect();
    let named: BTreeSet<&str> = waits
        .iter()
        .flat_map(|event| event["nodes"].as_array().expect("nodes"))
        .filter_map(|node| node["node"].as_str())
        .collect();
    assert!(missing.iter().all(|node| named.contains(node)), "{named:?} of {missing:?}: {done}");
    for wait in &waits {
        let words = wait["waits_for"].as_str().expect("what it waits for");
        assert!(!words.is_empty(), "{wait}");
    }
    assert!(done.err.contains("missing: "), "{done}");
    // A report of each flow that has sent something.
    let report = cluster.report();
    let received: u64 = (1..=flows).map(|flow| flow_packets(&report, flow, "receiver")).sum();
    let of = |side: usize| counts.values().filter(|times| times[side] > 0).count();
    assert!(received > 0 && of(0) > 0, "{done}");
    (of(0), of(1))
}

/// Exit code of a run of which packets were not sent: nobody owned their flow when they were due.
const SHORT: i32 = 4;

/// Options of a run that is told of.
fn options(cluster: &Cluster) -> Vec<String> {
    let events = cluster.path("events");
    ["--lease", "1s", "--events", events.to_str().expect("UTF-8")].map(str::to_owned).to_vec()
}

fn run(cluster: &Cluster, text: &str) -> itg_tests::Running {
    let options = options(cluster);
    let run = cluster.run(text, &options.iter().map(String::as_str).collect::<Vec<_>>());
    cluster.wait_until_it_runs();
    run
}

/// Four of five are killed and started again within the time in which others miss them: nobody was left who could
/// agree on anything, and the flows go on all the same.
#[test]
fn a_majority_is_killed_and_started_again() {
    let mut cluster = Cluster::new(5);
    let running = run(&cluster, &flows(5, 15));
    thread::sleep(Duration::from_secs(2));
    kill(&mut cluster, &[0, 1, 2, 3]);
    thread::sleep(Duration::from_millis(1200));
    (0..4).for_each(|node| cluster.start(node, &[]));
    let done = running.finish(LIMIT).exits(SHORT);
    let (sent, received) = judged(&cluster, &done, 10, &["a", "b", "c", "d"]);
    println!("{sent} of 15000 packets sent, {received} logged as received");
    assert!(sent > 5000, "{sent}: {done}");
}

/// All agents are gone at one instant, and come back: each takes up the run by itself.
#[test]
fn all_agents_are_killed_at_once_and_started_again() {
    let mut cluster = Cluster::new(4);
    let running = run(&cluster, &flows(4, 15));
    thread::sleep(Duration::from_secs(2));
    kill(&mut cluster, &[0, 1, 2, 3]);
    thread::sleep(Duration::from_millis(1200));
    (0..4).for_each(|node| cluster.start(node, &[]));
    let done = running.finish(LIMIT).exits(SHORT);
    let (sent, received) = judged(&cluster, &done, 8, &["a", "b", "c", "d"]);
    println!("{sent} of 12000 packets sent, {received} logged as received");
    assert!(sent > 4000, "{sent}: {done}");
    // While all were gone, each second said so.
    let told = events(&cluster.path("events"));
    let all = |event: &&Value| {
        event["event"] == "missing" && event["nodes"].as_array().is_some_and(|all| all.len() == 4)
    };
    let all: Vec<&Value> = told.iter().filter(all).collect();
    assert!(!all.is_empty(), "{done}");
    let agree = |event: &&&Value| event["waits_for"].as_str().is_some_and(|t| t.contains("agree"));
    assert!(all.iter().any(|event| agree(&event)), "{all:#?}");
    let limit = all.iter().find(agree).map(|event| event["gives_up_unix_ns"].is_u64());
    assert_eq!(limit, Some(true), "{all:#?}");
    // What they kept is gone with the run.
    let kept = |node: usize| {
        let state = cluster.path(&format!("agent-{node}/state"));
        fs::read_dir(state).expect("state").flatten().filter(|entry| entry.path().is_dir()).count()
    };
    wait_for("nothing is kept of the run", LIMIT, || (0..4).all(|node| kept(node) == 0));
}

/// Asks an agent and all its workers to end, as when its service is stopped, and waits until they have. A stranger who
/// says nothing does not keep it.
fn stop(cluster: &mut Cluster, node: usize) {
    let mut data: SocketAddr = cluster.address(node).parse().expect("an address");
    data.set_port(data.port() + 1);
    let _stranger = TcpStream::connect(data).expect("a connection");
    thread::sleep(Duration::from_millis(200));
    let agent = cluster.agents[node].take().expect("it runs");
    let pid = agent.pid();
    let workers = children(pid);
    assert!(!workers.is_empty(), "it sends nothing");
    for worker in workers {
        kill_one(Pid::from_raw(worker.cast_signed()), Signal::SIGTERM).expect("it is there");
    }
    agent.signal(Signal::SIGTERM);
    drop(agent.finish(LIMIT).exits(143));
}

/// An agent that is stopped in a run has its logs closed, and lacks no record of what left or came before.
#[test]
fn an_agent_that_is_stopped_and_started_again_loses_no_record() {
    let mut cluster = Cluster::new(3);
    let running = run(&cluster, &flows(3, 12));
    thread::sleep(Duration::from_secs(3));
    stop(&mut cluster, 1);
    for path in logs_below(&cluster.path("agent-1")) {
        let bytes = fs::read(&path).expect("readable");
        let closed = |item: Item<'_>| matches!(item, Item::Note { note: Note::End(_), .. });
        assert!(LogReader::new(&bytes).any(closed), "{} is not closed", path.display());
    }
    cluster.start(1, &[]);
    let done = running.finish(LIMIT).exits(SHORT);
    let (sent, received) = judged(&cluster, &done, 6, &["b"]);
    println!("{sent} of 7200 packets sent, {received} logged as received");
    let counts = packets(&cluster.path("out"));
    let unsent: Vec<_> = counts.iter().filter(|(_, times)| times[0] == 0).collect();
    assert!(unsent.is_empty(), "{} packets came that nobody sent: {unsent:?}", unsent.len());
}

/// One agent after the other is killed each half second, and started again at once.
#[test]
fn agents_are_killed_again_and_again() {
    let mut cluster = Cluster::new(4);
    let running = run(&cluster, &flows(4, 20));
    let mut dice = RunSeed(19).named("victims");
    let (began, mut kills) = (Instant::now(), 0_u32);
    let mut victims = BTreeSet::new();
    while began.elapsed() < Duration::from_secs(10) {
        let victim = usize::try_from(below(&mut dice, 4)).expect("small");
        kill(&mut cluster, &[victim]);
        cluster.start(victim, &[]);
        victims.insert(victim);
        kills += 1;
        thread::sleep((Duration::from_millis(500) * kills).saturating_sub(began.elapsed()));
    }
    let done = running.finish(LIMIT).exits(SHORT);
    let (sent, received) = judged(&cluster, &done, 8, &[]);
    println!("{kills} kills: {sent} of 16000 packets sent, {received} logged as received");
    assert!(kills >= 10 && victims.len() == 4, "{kills} kills of {victims:?}");
}

/// An agent that took up a run which nobody leads any more gives way to another console soon, and to no other one than
/// that.
#[test]
fn a_run_that_nobody_leads_gives_way_to_another_console() {
    let mut cluster = Cluster::new(3);
    let first = run(&cluster, &flows(3, 60));
    kill(&mut cluster, &[0, 1, 2]);
    drop(first);
    // A majority never comes back.
    cluster.start(0, &[]);
    let text = cluster.experiment(&flows(3, 1));
    let alone = fs::read_to_string(&text).expect("text");
    let only = alone.lines().filter(|line| !line.starts_with("b = ") && !line.starts_with("c = "));
    let head: Vec<&str> = only.take_while(|line| !line.starts_with("[[flow]]")).collect();
    let flow = "[[flow]]\nfrom = \"a\"\nto = \"a\"\nidt = \"constant(10ms)\"\npackets = 50\n";
    fs::write(cluster.path("alone.toml"), format!("{}\n{flow}", head.join("\n"))).expect("written");
    let mut second = cluster.terminal();
    second.arg("run").arg(cluster.path("alone.toml")).arg("--keys").arg(cluster.path("keys"));
    second.arg("--out").arg(cluster.path("second"));
    let began = Instant::now();
    drop(itg_tests::Running::start(&mut second).finish(LIMIT).exits(0));
    // By itself it would leave after a minute.
    assert!(began.elapsed() < Duration::from_secs(45), "after {:?}", began.elapsed());
}

/// A worker that stands still outlives its agent, and may send when it goes on: the next agent waits for its lease.
#[test]
fn a_worker_that_outlives_its_agent_is_waited_for() {
    for milliseconds in [100, 400, 700] {
        let mut cluster = Cluster::new(3);
        let running = run(&cluster, &flows(3, 8));
        thread::sleep(Duration::from_secs(4));
        let pid = |pid: u32| Pid::from_raw(pid.cast_signed());
        let workers = children(cluster.agents[1].as_ref().expect("it runs").pid());
        assert!(!workers.is_empty(), "it sends");
        for worker in &workers {
            kill_one(pid(*worker), Signal::SIGSTOP).expect("it is there");
        }
        kill(&mut cluster, &[1]);
        cluster.start(1, &[]);
        thread::sleep(Duration::from_millis(milliseconds));
        for worker in &workers {
            kill_one(pid(*worker), Signal::SIGCONT).expect("it is there");
        }
        let done = running.finish(LIMIT).exits(SHORT);
        let (sent, _) = judged(&cluster, &done, 6, &[]);
        println!("{sent} of 4800 packets sent");
    }
}

/// One of five agents, a random one, is killed each two seconds and started again at once, for 40 s of 42 s. Returns how
/// many packets of 42 000 are in a log of their sender or of their receiver.
fn killed_each_two_seconds() -> usize {
    let mut cluster = Cluster::new(5);
    let running = run(&cluster, &flows(5, 42));
    let mut dice = RunSeed(20).named("victims");
    let (began, mut kills) = (Instant::now(), 0_u32);
    while began.elapsed() < Duration::from_secs(40) {
        let victim = usize::try_from(below(&mut dice, 5)).expect("small");
        kill(&mut cluster, &[victim]);
        cluster.start(victim, &[]);
        kills += 1;
        thread::sleep((Duration::from_secs(2) * kills).saturating_sub(began.elapsed()));
    }
    let done = running.finish(LIMIT).exits(SHORT);
    let (sent, received) = judged(&cluster, &done, 10, &[]);
    let left = packets(&cluster.path("out")).len();
    println!(
        "{kills} kills: {sent} logged as sent, {received} as received, {left} of 42000 in all"
    );
    assert!(kills >= 20, "{kills} kills");
    left
}

/// Who is started again does not wait for a lease of its own workers, which are gone: of the plan 96 % are sent, on a
/// machine that does other things 90 to 95 %. It was 90 % with that wait on an idle one.
#[test]
fn agents_that_are_killed_each_two_seconds_send_nearly_all() {
    const ENOUGH: usize = 37_000;
    let left = killed_each_two_seconds();
    assert!(left >= ENOUGH || killed_each_two_seconds() >= ENOUGH, "{left} of 42000");
}
