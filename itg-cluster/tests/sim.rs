//! Experiments and processes in virtual time, from a shell.

use std::fs;
use std::path::Path;
use std::process::Command;

use itg_testkit::child::said;

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_itg-cluster")).args(args))
}

fn profile(name: &str) -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles").join(name).display().to_string()
}

#[test]
fn an_experiment_is_simulated_twice_to_the_same_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = profile("simulated-switch.toml");
    let logs = ["a", "b"].map(|name| {
        let out = dir.path().join(name);
        let path = out.display().to_string();
        let args = ["run", &file, "--sim", "--duration", "7s", "--out", &path];
        let (code, text, err) = run(&args);
        assert_eq!(code, Some(0), "{err}");
        assert!(text.starts_with("Simulated: switch rate=100Mbps"), "{text}");
        assert!(text.contains("TCP window: CUBIC (RFC 9438)"), "{text}");
        assert!(err.contains("x real time"), "{err}");
        let json = fs::read_to_string(out.join("report.json")).expect("a report");
        assert!(json.contains("\"simulated\""));
        // Flows that were complete end as they do on real networks, which is not worth a line.
        assert!(json.contains("\"end\": \"end of the schedule\""), "{json}");
        assert!(!text.contains("the simulation is over"), "{text}");
        let read = |name| fs::read(out.join(name)).expect("a log");
        (read("sender.itg"), read("receiver.itg"))
    });
    assert!(logs[0] == logs[1], "two runs differ");
}

#[test]
fn runs_of_one_second_have_their_own_directories() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = profile("simulated-switch.toml");
    for _ in 0..4 {
        let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
        command.args(["run", &file, "--sim", "--duration", "6s"]).current_dir(dir.path());
        let (code, _, err) = said(&mut command);
        assert_eq!(code, Some(0), "{err}");
    }
    let runs = fs::read_dir(dir.path().join("itg-out")).expect("runs").count();
    assert_eq!(runs, 4);
}

#[test]
fn a_tcp_flow_faster_than_its_network_is_network_limited_and_not_the_generators_fault() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("x.toml");
    let text = "schema = 1\nname = 'x'\nseed = 1\nduration = '2s'\n[nodes]\na = { address = '10.0.0.4' }\nb = { address = '10.0.0.3' }\n\
                [[flow]]\nfrom = 'a'\nto = 'b'\nproto = 'tcp'\nrate = '200Mbps'\nsize = 1460\n\
                [network]\nkind = 'switch'\nrate = '100Mbps'\n";
    fs::write(&file, text).expect("written");
    let out = dir.path().join("out");
    let paths = [&file, &out].map(|path| path.display().to_string());
    let (code, _, err) = run(&["run", &paths[0], "--sim", "--out", &paths[1]]);
    assert_eq!(code, Some(0), "{err}");
    let json = fs::read_to_string(out.join("report.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    for fidelity in [&report["flows"][0]["fidelity"], &report["total"]["fidelity"]] {
        assert_eq!(fidelity["verdict"], "network-limited", "{fidelity}");
        assert_eq!(fidelity["causes"], serde_json::json!(["back_pressure"]), "{fidelity}");
    }
}

#[test]
fn what_is_wrong_with_a_network_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let head = "schema = 1\nname = \"x\"\nseed = 1\nduration = \"1s\"\n[[flow]]\n";
    for (network, want) in [
        ("", "--sim needs a simulated network"),
        ("[network]\nrate = \"1Mbps\"\n", "[network]: missing key `kind`"),
        ("[network]\nkind = \"swich\"\n", "no simulated network `swich`: did you mean `switch`?"),
        (
            "[network]\nkind = \"switch\"\nrat = \"1Mbps\"\n",
            "unknown key `rat`: did you mean `rate`?",
        ),
        ("[network]\nkind = \"switch\"\ntcp = \"vegas\"\n", "expected `cubic` or `reno`"),
    ] {
        let file = dir.path().join("x.toml");
        fs::write(&file, format!("{head}{network}")).expect("written");
        let out = dir.path().join("out").display().to_string();
        let (code, text, err) = run(&["run", &file.display().to_string(), "--sim", "--out", &out]);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{network}: {err}");
        assert!(err.contains(want), "{network}: {err}");
    }
}

#[test]
fn processes_are_simulated_and_replayed() {
    let file = profile("farm.toml");
    for more in [&[][..], &["--faults"]] {
        let args = [&["simulate", &file, "--seed", "5", "--events"][..], more].concat();
        let (code, first, err) = run(&args);
        assert_eq!(code, Some(0), "{err}");
        assert!(first.contains("farm complete"), "{first}");
        // The printed command, with the name of the file, does the same again.
        let line = err.lines().find_map(|line| line.strip_prefix("replay: itg-cluster "));
        let words: Vec<_> = line.expect("a command").split(' ').chain(["--events"]).collect();
        assert_eq!(run(&words).1, first);
    }
    let (code, _, err) = run(&["simulate", "/does/not/exist.toml"]);
    assert!(code == Some(2) && err.contains("/does/not/exist.toml"), "{err}");
}

#[test]
fn n_1_one_file_runs_on_real_networks_and_simulated_ones() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("farm.toml");
    let text = fs::read_to_string(profile("farm.toml")).expect("a profile");
    fs::write(&file, text.replace("tasks = 1000", "tasks = 100")).expect("written");
    let file = file.display().to_string();
    let complete = |words: &[&str]| {
        let (code, text, err) = run(words);
        assert_eq!(code, Some(0), "{words:?}: {err}");
        let line = text.lines().find_map(|line| line.split_once(" farm complete "));
        line.unwrap_or_else(|| panic!("{words:?}: {text}")).1.to_owned()
    };
    let simulated = complete(&["simulate", &file, "--events"]);
    assert_eq!(complete(&["simulate", &file, "--network", "steps", "--events"]), simulated);
    for network in ["tcp", "unix", "udp"] {
        let real = complete(&["process", &file, "--local", "--network", network, "--events"]);
        assert_eq!(real, simulated, "{network}");
    }
    let (code, _, err) = run(&["process", &file, "--local"]);
    assert!(code == Some(2) && err.contains("`random` is no kind of real network"), "{err}");
    let (code, _, err) = run(&["process", "--join", "127.0.0.1:1", "--patience", "1s"]);
    assert!(code == Some(3) && err.contains("master 127.0.0.1:1"), "{err}");
}

#[test]
fn a_run_and_its_simulation_plan_the_same_packets() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = path("x.toml");
    let text = "schema = 1\nname = \"x\"\nseed = 9\n[[flow]]\nidt = \
                \"exp(2ms)\"\nsize = \"uniform(100,900)\"\n[[flow]]\nproto = \"tcp\"\nidt = \"5ms\"\nsize = \
                \"1kB\"\n[[flow]]\nidt = \"pareto(1.5,1ms)\"\nsize = \"200\"\nstart = \"100ms\"\n[network]\nkind = \
                \"switch\"\n";
    // Ended by their packets: the end of a duration may come before the last of them.
    let text = text.replace("[[flow]]", "[[flow]]\npackets = 150");
    fs::write(&file, text).expect("written");
    for (world, out) in [("--local", "real"), ("--sim", "sim")] {
        let (code, _, err) = run(&["run", &file, world, "--out", &path(out)]);
        assert_eq!(code, Some(0), "{err}");
    }
    let (code, text, err) = run(&["diff", &path("real"), &path("sim")]);
    assert_eq!(code, Some(0), "{text}{err}");
    let same = text.strip_prefix("planned schedules are identical: ").expect(&text);
    let same: u64 = same.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!(same > 400, "{text}");
    let (_, json, _) = run(&["diff", &path("real"), &path("sim"), "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["planned"]["same_packets"], same);
    // Another seed plans other packets.
    let (code, _, err) = run(&["run", &file, "--sim", "--seed", "10", "--out", &path("other")]);
    assert_eq!(code, Some(0), "{err}");
    let (code, text, _) = run(&["diff", &path("real"), &path("other")]);
    assert!(code == Some(1) && text.starts_with("planned schedules differ: flow "), "{text}");
    let (code, _, err) = run(&["diff", &path("real"), &path("nowhere")]);
    assert!(code == Some(2) && err.contains("expected the directory of a run"), "{err}");
    // A torn block of the receiver takes nothing from what senders planned.
    let log = dir.path().join("real/receiver.itg");
    let mut bytes = fs::read(&log).expect("a log");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&log, bytes).expect("written");
    let (code, text, err) = run(&["diff", &path("real"), &path("sim")]);
    assert_eq!(code, Some(0), "{err}");
    assert!(text.starts_with(&format!("planned schedules are identical: {same} ")), "{text}");
    // Without a sender's log there is nothing to compare.
    fs::remove_file(dir.path().join("real/sender.itg")).expect("removed");
    let (code, _, err) = run(&["diff", &path("real"), &path("sim")]);
    assert!(code == Some(2) && err.contains("this run kept no senders' log: under MPI"), "{err}");
}

#[test]
fn results_go_to_a_directory_that_is_new_or_empty() {
    let dir = tempfile::tempdir().expect("a directory");
    let one = profile("simulated-switch.toml");
    let many = dir.path().join("many.toml");
    let text = fs::read_to_string(&one).expect("a profile");
    fs::write(&many, format!("{text}\n[sweep]\nrepetitions = 2\n")).expect("written");
    let many = many.display().to_string();
    for file in [&one, &many] {
        for name in ["report.txt", "notes"] {
            let out = tempfile::tempdir().expect("a directory");
            let mine = out.path().join(name);
            fs::write(&mine, "mine").expect("written");
            let path = out.path().display().to_string();
            let args = ["run", file, "--sim", "--duration", "7s", "--out", &path];
            let (code, _, err) = run(&args);
            assert_eq!(code, Some(2), "{name}: {err}");
            assert!(err.contains(&mine.display().to_string()) && err.contains("--out"), "{err}");
            assert_eq!(fs::read_to_string(&mine).expect("still there"), "mine");
            assert_eq!(fs::read_dir(&path).expect("readable").count(), 1, "nothing is added");
            fs::remove_file(&mine).expect("there");
            let (code, _, err) = run(&args);
            assert_eq!(code, Some(0), "an empty directory: {err}");
            let (code, _, err) = run(&args);
            assert_eq!(code, Some(2), "{err}");
            assert!(err.contains("already"), "{err}");
        }
    }
}

/// A group of five with a detector, and one without.
fn group(detector: &str) -> String {
    format!(
        "processes = 5\n[[network]]\nname = \"main\"\nkind = \"fixed\"\ndelay = \"1ms\"\n[[process]]\n\
         layers = [\"link\", {detector}\"log\", \"membership\"]\n"
    )
}

#[test]
fn wrong_suspicions_reach_the_detector_that_is_there_or_none_is_said_to() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("group.toml");
    let simulate = |seed: u32| {
        let seed = seed.to_string();
        let file = file.display().to_string();
        let args = ["simulate", &file, "--faults", "--seed", &seed, "--until", "12s"];
        let (_, out, err) = run(&args);
        let drawn = err.lines().find(|line| line.starts_with("faults: kinds=")).expect("faults");
        (drawn.to_owned(), out, err)
    };
    fs::write(&file, group("")).expect("written");
    for seed in 0..8 {
        let (drawn, out, err) = simulate(seed);
        assert!(err.contains("no process has a layer that takes suspicions"), "{err}");
        assert!(!drawn.contains("Suspicion") && !out.contains("suspicions taken"), "{err}{out}");
    }
    fs::write(&file, group("\"detector\", ")).expect("written");
    let mut taken = 0;
    for seed in 0..8 {
        let (drawn, out, err) = simulate(seed);
        let line = out.lines().find(|line| line.contains("wrong suspicions taken"));
        assert!(line.is_none() || drawn.contains("Suspicion"), "{err}{out}");
        if let Some(line) = line {
            assert!(line.ends_with("by the layer detector"), "{line}");
            let count = |word: usize| line.split(' ').nth(word).and_then(|word| word.parse().ok());
            let (got, told): (u32, u32) = count(0).zip(count(2)).expect("two numbers");
            assert!(got <= told, "{line}");
            taken += got;
        }
    }
    assert!(taken > 0, "of eight seeds none has a wrong suspicion");
}

/// A group whose broadcasts and views are judged.
fn judged(log: &str, checkers: &str) -> String {
    format!(
        "processes = 5\ncheck = [{checkers}]\n[[network]]\nname = \"main\"\nkind = \"fixed\"\ndelay = \
         \"1ms\"\n[[process]]\nlayers = [\"link\", \"detector\", {{ layer = \"log\"{log} }}, \"membership\", \
         {{ layer = \"chatter\", until = \"8s\" }}]\n"
    )
}

#[test]
fn checkers_of_the_file_judge_group_communication() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("group.toml");
    let path = file.display().to_string();
    let simulate = |text: String, words: &[&str]| {
        fs::write(&file, text).expect("written");
        let until = if words.contains(&"--until") { &[][..] } else { &["--until", "12s"] };
        run(&[&["simulate", &path], until, words].concat())
    };
    let both = "\"order\", \"views\"";
    let traced = ", trace = true";
    // One may lose what it knows. When too many do the rest cannot agree any more, and the checkers say so.
    let one = ["--seeds", "8", "--faults", "--crashes", "1", "--until", "60s"];
    let (code, text, err) = simulate(judged(traced, both), &one);
    assert_eq!((code, text.as_str()), (Some(0), "8 seeds, no objection\n"), "{err}");
    let (code, text, err) = simulate(judged(traced, both), &["--seeds", "8", "--faults"]);
    let command = format!("  itg-cluster simulate {path} --seed 1 --until 12s --faults");
    assert!(code == Some(1) && text.contains(&command), "{text}{err}");
    for (log, checkers, want) in [
        // Another first view than the processes have.
        (traced, "{ checker = \"views\", members = 3 }", "views: V"),
        (
            "",
            "\"order\"",
            "order: no layer says what it delivers: broadcasts do with `trace = true`",
        ),
    ] {
        let (code, _, err) = simulate(judged(log, checkers), &["--seed", "1"]);
        let command = format!("replay: itg-cluster simulate {path} --seed 1 --until 12s");
        assert!(code == Some(1) && err.contains(want) && err.contains(&command), "{err}");
    }
    // A fault of the file.
    let fault = "[[fault]]\nat = \"2s\"\nkind = \"crash\"\nprocess = 4\n";
    let (code, text, err) = simulate(judged(traced, both) + fault, &["--seed", "1", "--events"]);
    assert_eq!(code, Some(0), "{err}");
    let removed = text.lines().filter(|line| line.contains(" view gone [2, 4, 1]"));
    assert!(removed.count() > 0, "the crash of the file is seen: {text}");
    // Late, and one that never ends.
    let late = fault.replace("2s", "17900ms");
    let (code, _, err) = simulate(judged(traced, both) + &late, &["--seed", "1", "--until", "18s"]);
    assert_eq!(code, Some(0), "there is half of the time more: {err}");
    let parted = "[[fault]]\nat = \"2s\"\nkind = \"partition\"\ngroups = [[0, 1]]\n";
    let (code, _, err) = simulate(judged(traced, both) + parted, &["--seed", "1"]);
    assert!(code == Some(1) && err.contains("itg-cluster: "), "two of five are cut off: {err}");
}
