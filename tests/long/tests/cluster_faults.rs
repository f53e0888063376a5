//! Agents on this host, and faults between them: taken ports, runs that are not wanted any more,
//! silent connections, impatience, nodes that are missing.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use itg_tests::{Cluster, Running, flow_packets, program, wait_for};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const SHORT: &str = "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(10ms)\"\npackets = 100\n";
const LONG: &str = "[[flow]]\nfrom = \"a\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n\
     [[flow]]\nfrom = \"b\"\nto = \"c\"\nidt = \"constant(10ms)\"\nduration = \"12s\"\n";

/// The port behind that of an agent: its data.
fn data_port(cluster: &Cluster, node: usize) -> TcpListener {
    let address = cluster.address(node);
    let (host, port) = address.rsplit_once(':').expect("host and port");
    let port: u16 = port.parse().expect("a port");
    TcpListener::bind((host, port + 1)).expect("it is free")
}

/// Logs below a directory whose names begin so.
fn logs(dir: &Path, start: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        if path.is_dir() {
            found.extend(logs(&path, start));
        } else if name.starts_with(start) && name.ends_with(".itg") {
            found.push(path);
        }
    }
    found
}

fn decoded(logs: &[PathBuf]) -> Value {
    let mut decode = Command::new(program("itg-decode"));
    decode.args(["--format", "json"]).args(logs);
    let done = Running::start(&mut decode).finish(LIMIT);
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"))
}

#[test]
fn a_port_that_is_taken_is_waited_for_and_named_when_it_stays_so() {
    let cluster = Cluster::new(2);
    let taken = data_port(&cluster, 1);
    let run = cluster.run(SHORT, &[]);
    thread::sleep(Duration::from_millis(500));
    drop(taken);
    let done = run.finish(LIMIT).exits(0);
    assert_eq!(flow_packets(&cluster.report(), 1, "receiver"), 100, "{done}");
    let taken = data_port(&cluster, 1);
    let done = cluster.run_into("second", SHORT, &[]).finish(LIMIT).exits(3);
    assert!(done.err.contains("node b: ") && done.err.contains("another receiver runs"), "{done}");
    drop(taken);
}

/// All agents but one are gone, and what they kept with them: no agreement is possible. It falls silent, and after a
/// while another run may have it; the logs of the first one say so.
#[test]
fn a_run_that_nobody_wants_gives_way_to_another() {
    let mut cluster = Cluster::new(3);
    let run = cluster.run(LONG, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    thread::sleep(Duration::from_secs(1));
    drop(run);
    for node in [1, 2] {
        drop(cluster.agents[node].take());
        fs::remove_dir_all(cluster.path(&format!("agent-{node}/state"))).expect("it was kept");
        cluster.start(node, &[]);
    }
    let deadline = Instant::now() + Duration::from_secs(60);
    let done = loop {
        let done = cluster.run_into("second", SHORT, &[]).finish(LIMIT);
        if done.code == Some(0) || Instant::now() > deadline {
            break done.exits(0);
        }
        assert!(done.err.contains("takes part in another run"), "{done}");
        thread::sleep(Duration::from_secs(2));
    };
    wait_for("both runs have ended", LIMIT, || states(&cluster, 0) == ["abandoned\n", "closed\n"]);
    drop(done);
}

/// The console is gone before the start, while it waits for a receiver's port: the nodes, which reach each other, wait
/// for nothing, and the next run has them.
#[test]
fn a_run_whose_console_is_gone_before_the_start_gives_way() {
    let cluster = Cluster::new(3);
    let taken = data_port(&cluster, 1);
    let run = cluster.run(SHORT, &[]);
    let joined = |node| status(&cluster, node)["run"].is_string();
    wait_for("all have joined", LIMIT, || (0..3).all(joined));
    thread::sleep(Duration::from_millis(500));
    drop((run, taken));
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let done = cluster.run_into("second", SHORT, &[]).finish(LIMIT);
        if done.code == Some(0) {
            break;
        }
        assert!(done.err.contains("takes part in another run"), "{done}");
        assert!(Instant::now() < deadline, "the first run does not give way: {done}");
        thread::sleep(Duration::from_secs(1));
    }
}

fn status(cluster: &Cluster, node: usize) -> Value {
    let done = cluster.ask_of(node, &["status", "--json"]).exits(0);
    serde_json::from_str(&done.out).expect("JSON")
}

/// Final states of the logs of all runs of an agent.
fn states(cluster: &Cluster, node: usize) -> Vec<String> {
    let runs = fs::read_dir(cluster.path(&format!("agent-{node}"))).into_iter().flatten().flatten();
    let state = |run: fs::DirEntry| fs::read_to_string(run.path().join("state")).ok();
    let mut states: Vec<String> = runs.filter_map(state).collect();
    states.sort();
    states
}

/// Time after which agents here leave a run in which nothing can be agreed.
const LEAVE: &[&str] = &["--leave-after", "15s"];

/// Two agents reach each other, but neither the console nor a majority: they leave the run after a while, and
/// take the next one.
#[test]
fn too_few_to_agree_leave_the_run_in_the_end() {
    let mut cluster = Cluster::with_options(5, LEAVE);
    let run = cluster.run(LONG, &["--lease", "1s"]);
    cluster.wait_until_it_runs();
    drop(run);
    (2..5).for_each(|node| drop(cluster.agents[node].take()));
    let second = cluster.run_into("second", SHORT, &["--require", "2"]).finish(LIMIT).exits(3);
    assert!(second.err.contains("takes part in another run"), "{second}");
    let left = |node: usize| states(&cluster, node) == ["abandoned\n"];
    wait_for("they have left", Duration::from_secs(150), || left(0) && left(1));
    (2..5).for_each(|node| cluster.start(node, &[]));
    drop(cluster.run_into("third", SHORT, &[]).finish(LIMIT).exits(0));
}

/// With `finish` flows go on without console and majority; a node that only receives them stays as
/// long as they last.
#[test]
fn who_only_receives_stays_until_the_flows_that_go_on_are_over() {
    const FLOW: &str =
        "[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"constant(100ms)\"\nduration = \"30s\"\n";
    let mut cluster = Cluster::with_options(5, LEAVE);
    let run = cluster.run(FLOW, &["--lease", "1s", "--orphan", "finish"]);
    cluster.wait_until_it_runs();
    drop(run);
    (2..5).for_each(|node| drop(cluster.agents[node].take()));
    let received = || logs(&cluster.path("agent-1"), "receiver");
    let came = || flow_packets(&decoded(&received()), 1, "receiver");
    // It would leave 15 s after the others.
    wait_for("all packets have come, or the run is left", Duration::from_secs(150), || {
        thread::sleep(Duration::from_secs(1));
        states(&cluster, 1) != ["open\n"] || came() > 290
    });
    assert!(came() > 290, "{} packets: {:?}", came(), states(&cluster, 1));
}

/// A run of some length is over. Agents forget it one after the other: who does so later does not bring those back who
/// have forgotten it, and the next run has them all.
#[test]
fn a_run_that_is_over_is_not_begun_again_by_those_who_forget_it_later() {
    let mut cluster = Cluster::new(5);
    for node in 0..5 {
        // They look at their runs once a second, from their start on.
        drop(cluster.agents[node].take());
        thread::sleep(Duration::from_millis(190));
        cluster.start(node, &[]);
    }
    let flow = SHORT.replace("packets = 100", "duration = \"6s\"");
    drop(cluster.run(&flow, &[]).finish(LIMIT).exits(0));
    wait_until_forgotten(&cluster);
    drop(cluster.run_into("second", SHORT, &[]).finish(LIMIT).exits(0));
}

/// The same of one that was started again meanwhile, and knows nothing of the run but its logs.
#[test]
fn who_is_started_again_after_the_end_is_not_called_back() {
    let mut cluster = Cluster::new(3);
    let flow = SHORT.replace("packets = 100", "duration = \"6s\"");
    drop(cluster.run(&flow, &[]).finish(LIMIT).exits(0));
    drop(cluster.agents[0].take());
    cluster.start(0, &[]);
    wait_until_forgotten(&cluster);
}

/// Waits until no agent has a run; one that was called back would have it for a minute.
fn wait_until_forgotten(cluster: &Cluster) {
    wait_for("all have forgotten the run", Duration::from_secs(20), || {
        (0..cluster.agents.len()).all(|node| status(cluster, node)["run"].is_null())
    });
}

/// One node has another run: the others, which had joined already, are told that this one does not begin.
#[test]
fn nodes_that_had_joined_forget_a_run_that_does_not_begin() {
    let cluster = Cluster::new(3);
    let run_of = |name: &str, nodes: &[usize], seconds: u32| {
        let mut text =
            format!("schema = 1\nname = \"{name}\"\nduration = \"{seconds}s\"\n[nodes]\n");
        for node in nodes {
            text += &format!("n{node} = {{ address = \"{}\" }}\n", cluster.address(*node));
        }
        let (first, last) = (nodes[0], nodes[nodes.len() - 1]);
        text += &format!("[[flow]]\nfrom = \"n{first}\"\nto = \"n{last}\"\nrate = \"100pps\"\n");
        let file = cluster.path(&format!("{name}.toml"));
        fs::write(&file, text).expect("written");
        let mut run = cluster.terminal();
        run.arg("run").arg(file).arg("--keys").arg(cluster.path("keys"));
        run.arg("--out").arg(cluster.path(name));
        Running::start(&mut run)
    };
    let first = run_of("first", &[0, 1], 12);
    cluster.wait_until_it_runs();
    let second = run_of("second", &[1, 2], 1).finish(LIMIT).exits(3);
    assert!(second.err.contains("takes part in another run"), "{second}");
    // It would wait for 10 s for a run that has not come.
    drop(run_of("third", &[2], 1).finish(LIMIT).exits(0));
    drop(first.finish(LIMIT).exits(0));
}

/// Connections without a message keep no other one out.
#[test]
fn silent_connections_keep_nobody_out() {
    const SILENT: usize = 4200;
    let cluster = Cluster::new(1);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).expect("limits");
    let wanted = (SILENT as u64 + 200).min(hard);
    setrlimit(Resource::RLIMIT_NOFILE, wanted.max(soft), hard).expect("up to the hard limit");
    let most = SILENT.min(usize::try_from(wanted.max(soft)).expect("small") - 100);
    let address = cluster.address(0);
    let silent: Vec<TcpStream> =
        (0..most).map(|_| TcpStream::connect(&address).expect("it listens")).collect();
    let began = Instant::now();
    let done = cluster.ask(&["status"]).exits(0);
    assert!(done.out.contains("no experiment"), "{done}");
    println!("an answer beside {} silent connections after {:?}", silent.len(), began.elapsed());
}

/// The first Ctrl-C counts at once, also while agents are looked for.
#[test]
fn impatience_counts_before_the_start() {
    let cluster = Cluster::new(2);
    cluster.agents[1].as_ref().expect("runs").signal(Signal::SIGSTOP);
    let run = cluster.run(SHORT, &[]);
    thread::sleep(Duration::from_secs(1));
    let asked = Instant::now();
    run.signal(Signal::SIGINT);
    let done = run.finish(LIMIT).exits(130);
    // An agent is waited for 10 s.
    assert!(asked.elapsed() < Duration::from_secs(9), "after {:?}: {done}", asked.elapsed());
    assert!(done.err.contains("interrupted by SIGINT"), "{done}");
}

#[test]
fn with_fewer_nodes_the_flows_of_the_others_are_moved() {
    let mut cluster = Cluster::new(3);
    drop(cluster.agents[2].take());
    let flows = format!(
        "{SHORT}[[flow]]\nfrom = \"c\"\nto = \"b\"\nidt = \"constant(10ms)\"\nduration = \"4s\"\n"
    );
    let done = cluster.run_into("all", &flows, &["--require", "3"]).finish(LIMIT).exits(3);
    assert!(done.err.contains("2 of 3 nodes are there: nothing was started"), "{done}");
    let done = cluster.run(&flows, &["--require", "2"]).finish(LIMIT).exits(4);
    assert!(done.err.contains("logs of node c: "), "{done}");
    let report = cluster.report();
    assert_eq!(flow_packets(&report, 1, "receiver"), 100, "{done}");
    assert!(flow_packets(&report, 2, "receiver") > 50, "{done}");
}

#[test]
fn with_failover_wait_flows_wait_for_their_node() {
    let mut cluster = Cluster::new(3);
    let events = cluster.path("events");
    let told = ["--lease", "1s", "--failover", "wait", "--events", events.to_str().expect("UTF-8")];
    let run = cluster.run(LONG, &told);
    cluster.wait_until_it_runs();
    thread::sleep(Duration::from_secs(2));
    drop(cluster.agents[1].take());
    drop(run.line_with("flows 2: from b to nobody", LIMIT));
    thread::sleep(Duration::from_secs(1));
    cluster.start(1, &[]);
    // What was due while nobody owned the flow was not sent.
    let done = run.finish(LIMIT).exits(4);
    assert!(done.err.contains("flows 2: from nobody to b"), "{done}");
    let report = cluster.report();
    // An agent that stands still for longer than its lease leaves out what was due meanwhile.
    assert!(!done.err.contains("flows 1: from"), "flow 1 stays where it is: {done}");
    let first = flow_packets(&report, 1, "receiver");
    assert!((1000..=1200).contains(&first), "{first} of 1200: {done}");
    let got = flow_packets(&report, 2, "receiver");
    assert!(got > 0 && got < 1200, "{got}: {done}");
    let of_a = decoded(&logs(&cluster.path("out").join("a"), "sender"));
    let mut of_a = of_a["flows"].as_array().expect("flows").iter();
    assert!(of_a.all(|entry| entry["flow"] == 1), "a sends flow 1 alone: {done}");
    // What led to a view is told.
    let lines = fs::read_to_string(&events).expect("events");
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let views: Vec<Value> = lines.filter(|line| line["event"] == "view").collect();
    let cause = |view: &Value| view["cause"].as_str().expect("a cause").to_owned();
    let causes: Vec<String> = views.iter().map(cause).collect();
    let without_b = views.iter().find(|view| view["left"] == serde_json::json!(["b"]));
    let why = cause(without_b.unwrap_or_else(|| panic!("no view without b: {views:#?}")));
    let known = ["b reported by ", "the connection of b ", "b fell silent"];
    assert!(known.iter().any(|start| why.starts_with(start)), "{why}: {causes:?}");
    assert!(causes.iter().any(|cause| cause.contains("b asked to join")), "{causes:?}");
}

/// Outcome of flows whose console is killed.
#[test]
fn flows_without_a_console_do_as_they_were_told() {
    itg_tests::in_parallel(
        &[
            ("stop", (&["--orphan", "stop"][..], false)),
            ("pause", (&[], true)),
            ("pause for 1 s", (&["--orphan-after", "1s"], false)),
            ("finish", (&["--orphan", "finish"], true)),
        ],
        |(orphan, goes_on)| {
            let cluster = Cluster::new(3);
            let run = cluster.run(LONG, &[&["--lease", "1s"], *orphan].concat());
            cluster.wait_until_it_runs();
            thread::sleep(Duration::from_secs(1));
            drop(run);
            // All agents close their logs by themselves.
            let closed = |node: usize| {
                let mut runs =
                    fs::read_dir(cluster.path(&format!("agent-{node}"))).into_iter().flatten();
                runs.any(|run| {
                    run.is_ok_and(|run| {
                        fs::read_to_string(run.path().join("state"))
                            .is_ok_and(|text| text == "closed\n")
                    })
                })
            };
            wait_for("logs are closed", LIMIT, || (0..3).all(closed));
            let report = decoded(&logs(&cluster.path("agent-2"), "receiver"));
            for flow in 1..=2 {
                let got = flow_packets(&report, flow, "receiver");
                // Of 1200; those that stop do so within some 3 s of 12, on a machine that has time for them.
                let right = if *goes_on { got > 600 } else { got < 1000 };
                assert!(right, "{orphan:?}: flow {flow}: {got}");
            }
        },
    );
}

/// A rate is changed while the flow runs; the later owner of the flow, and the report, know of it.
#[test]
fn a_rate_is_changed_while_the_flow_runs() {
    let cluster = Cluster::new(3);
    let run = cluster.run(LONG, &[]);
    cluster.wait_until_it_runs();
    drop(cluster.ask(&["ctl", "1", "rate", "x3"]).exits(0));
    let again = cluster.ask(&["ctl", "9", "rate", "x3"]).exits(1);
    assert!(again.err.contains("there is no such flow"), "{again}");
    let all = cluster.ask(&["ctl", "all", "rate", "2M"]).exits(2);
    assert!(all.err.contains("no rate of their own"), "{all}");
    drop(cluster.ask(&["ctl", "all", "mark", "three times as much"]).exits(0));
    thread::sleep(Duration::from_secs(3));
    // 512 bytes each 10 ms are 409.6 kbit/s.
    drop(cluster.ask_of(1, &["ctl", "2", "rate", "204800bps"]).exits(0));
    drop(cluster.ask(&["ctl", "1", "move", "b"]).exits(0));
    let text = cluster.ask(&["status"]).exits(0).out;
    assert!(text.contains(" x3 ") && text.contains(" x0.5 "), "{text}");
    let done = run.finish(LIMIT).exits(0);
    assert!(done.err.contains("mark: three times as much"), "{done}");
    assert!(done.err.contains("flow 1: rate x 3 from "), "{done}");
    let report = cluster.report();
    let flows = report["flows"].as_array().expect("flows");
    for (flow, range) in [(1, 1300..3600), (2, 600..1190)] {
        for entry in flows.iter().filter(|entry| entry["flow"] == flow) {
            let got = entry["packets"].as_u64().expect("a count");
            assert!(range.contains(&got), "flow {flow}: {got} packets: {done}");
            // A hand-over may leave a packet out; none comes twice.
            assert!(entry["lost"].as_u64().unwrap_or(0) < 20, "{entry:#}");
            assert!(entry["duplicated"].as_u64().unwrap_or(0) == 0, "{entry:#}");
            let notices = entry["notices"].to_string();
            assert!(notices.contains("the rate was changed while the flow ran"), "{entry:#}");
            // The plan has the change: half of the packets would be late by seconds without.
            if let Some(late) = entry["lateness_ns"]["p50"].as_i64() {
                assert!(late.abs() < 200_000_000, "late by {late} ns: {entry:#}");
            }
        }
    }
}
