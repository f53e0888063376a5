//! Processes made of layers on two hosts joined by a link: `itg-cluster process` over network namespaces.
//! Needs root.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::time::Duration;

use itg_tests::{Namespace, Output, Pair, Running, not_run, program, temp_dir};

const LIMIT: Duration = Duration::from_secs(40);

fn start(host: &Namespace, args: &[&str]) -> Running {
    Running::start(host.command(&program("itg-cluster")).arg("process").args(args))
}

/// The farm with two processes, and whatever else the configuration says.
fn farm(head: &str, network: &str) -> String {
    format!(
        "processes = 3\n{head}\n[[network]]\nname = \"main\"\n{network}\n[[process]]\nslot = 0\nlayers = \
         [\"failure-detector\", {{ layer = \"coordinator\", tasks = 200 }}]\n[[process]]\nlayers = \
         [\"heartbeat\", {{ layer = \"worker\", work = \"2ms\" }}]\n"
    )
}

fn complete(done: &Output) {
    assert!(done.out.contains("farm complete [200, "), "{done}");
}

#[test]
fn n_1_the_farm_completes_between_hosts() {
    if not_run() {
        return;
    }
    let dir = temp_dir();
    let file = dir.path().join("farm.toml");
    let path = file.to_str().expect("UTF-8");
    let pair = Pair::new();
    for network in ["kind = \"tcp\"", "kind = \"udp\"\nloss = 0.01"] {
        // They call the master, one of them from its own host.
        fs::write(&file, farm("", network)).expect("written");
        let master = start(&pair.sender, &[path, "--listen", "10.77.0.1", "--events"]);
        drop(master.line_with("listening on 10.77.0.1:9010", LIMIT));
        let near = start(&pair.sender, &["--join", "10.77.0.1"]);
        let far = start(&pair.receiver, &["--join", "10.77.0.1"]);
        complete(&master.finish(LIMIT).exits(0));
        for slave in [near, far] {
            drop(slave.finish(LIMIT).exits(0));
        }
        // The master calls them, over IPv6.
        let hosts = "hosts = [\"[fd77::2]:9010\", \"[fd77::2]:9011\"]";
        fs::write(&file, farm(hosts, network)).expect("written");
        let slaves = ["9010", "9011"].map(|port| {
            let slave = start(&pair.receiver, &["--wait", &format!("[::]:{port}")]);
            drop(slave.line_with("listening on", LIMIT));
            slave
        });
        complete(&start(&pair.sender, &[path, "--events"]).finish(LIMIT).exits(0));
        for slave in slaves {
            drop(slave.finish(LIMIT).exits(0));
        }
    }
}

#[test]
fn n_12_a_host_that_is_cut_off_is_named_with_its_step() {
    if not_run() {
        return;
    }
    let dir = temp_dir();
    let file = dir.path().join("farm.toml");
    let path = file.to_str().expect("UTF-8");
    let pair = Pair::new();
    // No host at one address, no listener at the other.
    for (host, words) in [("10.77.0.99", "no answer"), ("10.77.0.2", "refused")] {
        let hosts = format!("hosts = [\"{host}\", \"{host}\"]");
        fs::write(&file, farm(&hosts, "kind = \"tcp\"")).expect("written");
        let done = start(&pair.sender, &[path, "--step-timeout", "4s"]).finish(LIMIT).exits(3);
        assert!(done.took < Duration::from_secs(20), "{done}");
        let named = format!("host {host}: step 1 (hello): ");
        assert!(done.err.contains(&named), "{done}");
        let reason = done.err.contains(words) || done.err.contains("unreachable");
        assert!(reason || done.err.contains("No route"), "{done}");
    }
}

#[test]
fn n_13_a_signal_to_one_host_stops_all() {
    if not_run() {
        return;
    }
    let dir = temp_dir();
    let file = dir.path().join("farm.toml");
    let path = file.to_str().expect("UTF-8");
    let pair = Pair::new();
    let endless = farm("", "kind = \"tcp\"").replace("tasks = 200", "tasks = 1000000");
    fs::write(&file, endless).expect("written");
    let master = start(&pair.sender, &[path, "--listen", "10.77.0.1"]);
    drop(master.line_with("listening on", LIMIT));
    let near = start(&pair.sender, &["--join", "10.77.0.1"]);
    let far = start(&pair.receiver, &["--join", "10.77.0.1", "-v"]);
    drop(far.line_with("all processes run", LIMIT));
    far.signal(nix::sys::signal::Signal::SIGTERM);
    let asked = std::time::Instant::now();
    drop(far.finish(LIMIT).exits(143));
    drop(master.finish(LIMIT).exits(0));
    drop(near.finish(LIMIT).exits(0));
    // The time to drain is 2 s; nobody waits for the end of the tasks.
    assert!(asked.elapsed() < Duration::from_secs(20), "{:?}", asked.elapsed());
}
