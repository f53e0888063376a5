//! Experiments and processes under MPI: needs the feature `mpi` and the launcher of that MPI, `mpirun` or what
//! `ITG_MPIRUN` names.
#![cfg(feature = "mpi")]

mod agents;
mod launcher;
mod ndjson;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use agents::{agent, words};
use launcher::mpirun;

const PROGRAM: &str = env!("CARGO_BIN_EXE_itg-cluster");

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn ranks(ranks: u32, args: &[&str]) -> (Option<i32>, String, String) {
    let session = tempfile::tempdir().expect("a directory");
    let mut job = mpirun(ranks, session.path());
    said(job.args(args).output().expect("mpirun: apt-get install openmpi-bin"))
}

fn alone(args: &[&str]) -> (Option<i32>, String, String) {
    said(Command::new(PROGRAM).args(args).output().expect("itg-cluster"))
}

/// An experiment of `flows` flows, with a log rank or without.
fn experiment(dir: &Path, flows: u32, log: bool) -> String {
    let mut text = "schema = 1\nname = \"x\"\nseed = 9\nduration = \"700ms\"\n".to_owned();
    if log {
        text += "[log]\nserver = \"mpi\"\n";
    }
    text += "[network]\nkind = \"switch\"\n";
    for flow in 0..flows {
        text += match flow % 3 {
            0 => "[[flow]]\nidt = \"exp(2ms)\"\nsize = \"uniform(100,900)\"\n",
            1 => "[[flow]]\nproto = \"tcp\"\nidt = \"5ms\"\nsize = \"1kB\"\n",
            _ => "[[flow]]\nidt = \"pareto(1.5,1ms)\"\nsize = \"200\"\nstart = \"100ms\"\n",
        };
    }
    let file = dir.join(format!("x{flows}{log}.toml"));
    fs::write(&file, text).expect("written");
    file.display().to_string()
}

/// The conservation line of the log rank: records and blocks that came, and that were sent.
fn conserved(err: &str) -> [u64; 4] {
    let line = err.lines().find(|line| line.starts_with("log ")).expect(err);
    let numbers: Vec<u64> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
    numbers[..4].try_into().expect(line)
}

#[test]
fn l_6_n_flows_are_n_ranks_and_one_more_with_a_log() {
    let dir = tempfile::tempdir().expect("a directory");
    for (log, count) in [(true, 3), (false, 2)] {
        let file = experiment(dir.path(), 2, log);
        let out = dir.path().join(format!("run{log}"));
        let args = ["run", &file, "--mpi", "--out", &out.display().to_string()];
        let (code, text, err) = ranks(count, &args);
        assert_eq!(code, Some(0), "{text}{err}");
        assert!(text.starts_with(&format!("MPI: {count} ranks on 1 host(s), ")), "{text}");
        assert!(out.join("receiver.itg").exists());
        assert_eq!(out.join("sender.itg").exists(), log);
        if !log {
            let dir = out.display().to_string();
            let (code, _, err) = alone(&["diff", &dir, &dir]);
            assert!(code == Some(2) && err.contains("under MPI add `[log] server"), "{err}");
        }
        let report = fs::read_to_string(out.join("report.json")).expect("a report");
        assert!(report.contains("\"world\": \"mpi\"") || report.contains("\"world\":\"mpi\""));
        if log {
            let [came, blocks, sent, sent_blocks] = conserved(&err);
            assert_eq!((came, blocks), (sent, sent_blocks), "{err}");
            assert!(came > 200, "{err}");
            assert!(err.contains(" 0 lost before"), "{err}");
        }
        // One rank more or less is refused, with the number that it needs.
        let (code, text, err) = ranks(count + 1, &args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(&format!("it needs {count} ranks and not {}", count + 1)), "{err}");
    }
}

/// One file, four worlds: this host, 8 agents, 17 ranks (8 flows, 8 receivers and the logs), virtual time.
#[test]
fn s_1_the_same_packets_on_one_host_from_agents_under_mpi_and_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (file, keys) = (experiment(dir.path(), 8, true), path("keys"));
    assert_eq!(alone(&["keys", &keys]).0, Some(0));
    let mut text = fs::read_to_string(&file).expect("the experiment");
    let mut agents = Vec::new();
    for node in 'a'..='h' {
        let (agent, at) = agent(&keys, &path(&node.to_string()), |_| {});
        text += &format!("[nodes.{node}]\naddress = \"{at}\"\n");
        agents.push(agent);
    }
    for (from, to) in ('a'..='h').zip(('a'..='h').cycle().skip(3)) {
        text = text.replacen(
            "[[flow]]\n",
            &format!("[[FLOW]]\npackets = 150\nfrom = \"{from}\"\nto = \"{to}\"\n"),
            1,
        );
    }
    // Ended by their packets: the end of a duration may come before the last of them.
    let text = text.replace("FLOW", "flow").replace("\"700ms\"", "\"60s\"");
    fs::write(&file, text).expect("written");
    let args = ["run", &file, "--mpi", "--out", &path("mpi")];
    let (code, _, err) = ranks(9, &args);
    let want = "has 8 flows between nodes: it needs 17 ranks and not 9: rank 0 (logs), node `a` 2 (receiver, flow 1), ";
    assert!(code == Some(2) && err.contains(want), "{err}");
    let (code, text, err) = ranks(17, &args);
    assert_eq!(code, Some(0), "{err}");
    assert!(
        text.starts_with("MPI: 17 ranks on 1 host(s), "),
        "the report says which world: {text}"
    );
    assert!(err.contains("rank 15 receives, rank 16 sends flow 8\n"), "the roles are told: {err}");
    for (world, more) in
        [("local", &["--local"][..]), ("sim", &["--sim"]), ("agents", &["--keys", &keys])]
    {
        let out = path(world);
        let (code, text, err) = alone(&[&["run", &file, "--out", &out], more].concat());
        let said = || ('a'..='h').map(|node| words(&path(&node.to_string()))).collect::<String>();
        assert_eq!(code, Some(0), "{world}: {err}{}", said());
        assert!(world != "sim" || text.starts_with("Simulated: "), "the model: {text}");
        let (code, text, err) = alone(&["diff", &path("mpi"), &out]);
        assert_eq!(code, Some(0), "{world}: {text}{err}");
        let same = text.strip_prefix("planned schedules are identical: ").expect(&text);
        let same: u64 = same.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(same > 1000 && !text.contains("sent only in"), "{world}: {text}");
    }
    for world in ["mpi", "local", "sim", "agents"] {
        let (code, text, err) = alone(&["verify", &path(world)]);
        assert_eq!(code, Some(0), "{world}: {text}{err}");
    }
    // Both are replayed in their worlds; a busy host may well give other delays.
    let again = ["replay", &path("agents"), "--keys", &keys, "--out", &path("agents again")];
    let job = ["replay", &path("mpi"), "--out", &path("mpi again")];
    for (world, (code, text, err)) in [("cluster", alone(&again)), ("mpi", ranks(17, &job))] {
        assert!(matches!(code, Some(0 | 1)), "{world}: {text}{err}");
        assert!(text.starts_with("plan: equal: "), "{world}: {text}{err}");
        assert!(!err.contains("original run: world: "), "{world}: {err}");
    }
}

const SWEEP: &str = r#"
schema = 1
name = "sizes"
seed = 5
duration = "500ms"
[log]
server = "mpi"
[network]
kind = "switch"
[[flow]]
idt = "exp(2ms)"
[[flow]]
idt = "3ms"
[matrix]
flow.size = [100, 900]
[sweep]
repetitions = 2
"#;

/// Plan, seed and exit code of each run of a sweep, by case and repetition.
fn done(out: &Path) -> BTreeMap<String, [String; 3]> {
    let dirs = |dir: &Path| -> Vec<_> {
        let entries = fs::read_dir(dir).expect("a directory").map(|entry| entry.expect("an entry"));
        entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect()
    };
    let runs = dirs(out).into_iter().flat_map(|case| dirs(&case));
    let marked = runs.map(|run| {
        let text = fs::read_to_string(run.join("done.json")).expect("a run that is done");
        let marker: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let name = run.strip_prefix(out).expect("below it").display().to_string();
        (name, ["plan", "seed", "exit_code"].map(|key| marker[key].to_string()))
    });
    marked.collect()
}

#[test]
fn a_sweep_is_carried_out_by_one_job_and_tells_what_happens() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (file, out, events) = (path("sizes.toml"), path("mpi"), path("events"));
    fs::write(&file, SWEEP).expect("written");
    let args = ["run", &file, "--mpi", "--out", &out, "--events", &events];
    // Nothing is begun with a wrong number of ranks.
    let (code, _, err) = ranks(2, &args);
    assert!(code == Some(2) && err.contains("it needs 3 ranks and not 2"), "{code:?} {err}");
    assert!(!Path::new(&out).exists(), "{err}");
    let (code, text, err) = ranks(3, &args);
    assert_eq!(code, Some(0), "{text}{err}");
    assert!(text.starts_with("Sweep: sizes") && err.contains("4 runs in "), "{text}{err}");
    let lines = ndjson::lines(&fs::read_to_string(&events).expect("events"));
    for (event, count) in [("run", 4), ("end", 4), ("node", 12), ("flow", 16)] {
        assert_eq!(ndjson::of(&lines, event).len(), count, "{event}: {lines:#?}");
    }
    let (code, _, err) = alone(&["run", &file, "--sim", "--out", &path("sim")]);
    assert_eq!(code, Some(0), "{err}");
    assert_eq!(done(Path::new(&out)), done(Path::new(&path("sim"))), "the same plans");
    // One run has to be done again, and no other.
    let again = fs::read_dir(&out).expect("cases").map(|case| case.expect("a case").path());
    let again = again.filter(|path| path.is_dir()).min().expect("a case").join("2/done.json");
    fs::remove_file(&again).expect("removed");
    let (code, _, err) = ranks(3, &[&args[..], &["--resume"]].concat());
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("3 runs are done") && again.exists(), "{err}");
    let lines = ndjson::lines(&fs::read_to_string(&events).expect("events"));
    assert_eq!(ndjson::of(&lines, "run").len(), 5, "behind what was there");
    assert_eq!(done(Path::new(&out)), done(Path::new(&path("sim"))));
    let (code, _, err) = ranks(3, &[&args[..3], &["--out", &path("sim"), "--resume"]].concat()[..]);
    assert!(code == Some(2) && err.contains("world `sim`, this is `mpi`"), "{code:?} {err}");
}

#[test]
fn ranks_tell_what_happens_as_agents_do() {
    let dir = tempfile::tempdir().expect("a directory");
    for (log, count) in [(true, 3_u32), (false, 2)] {
        let file = experiment(dir.path(), 2, log);
        let out = dir.path().join(format!("run{log}"));
        let args = ["run", &file, "--mpi", "--duration", "1500ms", "--events", "-", "--out"];
        let (code, text, err) = ranks(count, &[&args[..], &[&out.display().to_string()]].concat());
        assert_eq!(code, Some(0), "{text}{err}");
        let lines = ndjson::lines(&text);
        let first = lines.first().expect("a line");
        assert_eq!((&first["event"], &first["world"]), (&"run".into(), &"mpi".into()));
        let names: Vec<_> = (0..count).map(|rank| format!("rank {rank}")).collect();
        assert_eq!(first["nodes"], serde_json::json!(names));
        assert_eq!(lines.last().expect("a line")["event"], "end");
        for (flow, rank) in [(1, count - 2), (2, count - 1)] {
            for state in ["running", "finished"] {
                let owner = format!("rank {rank}");
                let told = ndjson::of(&lines, "flow").into_iter().filter(|line| {
                    line["flow"] == flow && line["state"] == state && line["owner"] == owner
                });
                assert_eq!(told.count(), 1, "flow {flow} {state} {owner}: {lines:#?}");
            }
        }
        let statistics = ndjson::of(&lines, "statistics");
        let packets = |line: &&serde_json::Value| line["total"]["sent_packets"].as_u64();
        assert!(statistics.is_sorted_by_key(packets), "counters only grow");
        let last = statistics.last().expect("figures");
        assert_eq!(last["flows"].as_array().map(Vec::len), Some(2), "of all ranks: {last}");
        // The line of the end has all that was sent, as the accounts have it.
        let sent: u64 = err
            .lines()
            .filter_map(|line| line.split_once("both sides agree on "))
            .fold(0, |sum, (_, rest)| {
                let count = rest.split(' ').next().and_then(|word| word.parse::<u64>().ok());
                sum + count.expect("a number")
            });
        assert_eq!(err.matches("both sides agree on ").count(), 2, "{err}");
        assert_eq!(packets(last), Some(sent), "{err}");
        assert!(out.join("report.json").exists(), "the report is kept");
    }
}

#[test]
fn n_1_the_farm_over_mpi_is_the_farm_in_simulation() {
    let dir = tempfile::tempdir().expect("a directory");
    let profile = Path::new(env!("CARGO_MANIFEST_DIR")).join("../profiles/farm.toml");
    let text = fs::read_to_string(profile).expect("a profile");
    let file = dir.path().join("farm.toml");
    fs::write(&file, text.replace("tasks = 1000", "tasks = 100")).expect("written");
    let file = file.display().to_string();
    let complete = |(code, text, err): (Option<i32>, String, String)| {
        assert_eq!(code, Some(0), "{err}");
        let line = text.lines().find_map(|line| line.split_once(" farm complete "));
        line.unwrap_or_else(|| panic!("{text}{err}")).1.to_owned()
    };
    let simulated = complete(alone(&["simulate", &file, "--events"]));
    assert_eq!(complete(ranks(5, &["process", &file, "--mpi", "--events"])), simulated);
    // All ranks write to one trace, in the form that simulations have.
    let trace = dir.path().join("trace.ndjson");
    let words = ["process", &file, "--mpi", "--messages", "--trace", &trace.display().to_string()];
    let (code, _, err) = ranks(5, &words);
    assert_eq!(code, Some(0), "{err}");
    let trace = fs::read_to_string(&trace).expect("a trace");
    for event in ["started", "stopped"] {
        let of_event = format!("\"event\":\"{event}\"");
        let lines: Vec<_> = trace.lines().filter(|line| line.contains(&of_event)).collect();
        let slots = (0..5).map(|slot| format!("\"process\":{slot},"));
        assert!(slots.clone().all(|slot| lines.iter().any(|line| line.contains(&slot))), "{trace}");
        assert_eq!(lines.len(), 5, "{event}");
    }
    assert!(trace.contains("\"layer\":\"network 0\""), "messages are there");
    let (code, _, err) = ranks(4, &["process", &file, "--mpi"]);
    assert!(code == Some(2) && err.contains("5 processes, the job 4 ranks"), "{err}");
}

/// Names in `from` and `to` alone: nodes, once the option gives them ranks.
#[test]
fn ranks_are_given_to_nodes_by_name() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let text = "schema = 1\nname = \"x\"\nseed = 9\nduration = \"300ms\"\n[[flow]]\nfrom = \"a\"\nto = \"b\"\nidt = \"2ms\"\n";
    let (named, plain) = (path("named.toml"), path("plain.toml"));
    fs::write(&named, text).expect("written");
    let unnamed = text.replace("from = \"a\"\nto = \"b\"\n", "");
    fs::write(&plain, unnamed).expect("written");
    let line = |file: &str, nodes: &str| {
        ranks(4, &["run", file, "--mpi", "--out", &path("none"), "--mpi-nodes", nodes])
    };
    for (file, nodes, want) in [
        (&named, "a=1", "node `b` needs 1 rank (receiver) and has none"),
        (&named, "a=1,b=4", "node `b` has rank 4, and the job has ranks 0 to 3"),
        (&named, "a=1,b=2,c=3", "there is no node `c`: "),
        (&named, "a=0,b=1", "`a=0`: rank 0 keeps the logs and belongs to no node"),
        (&plain, "a=1,b=2", "flow 1 has no `from`: name its node there"),
    ] {
        let (code, text, err) = line(file, nodes);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{nodes}: {err}");
        assert!(err.contains(want), "{nodes}: {err}");
    }
    // Without the option the names are not used, which is told.
    let (code, text, err) = ranks(1, &["run", &named, "--mpi", "--out", &path("unused")]);
    assert_eq!(code, Some(0), "{text}{err}");
    assert!(err.contains("`from` and `to` are not used"), "nothing is ignored in silence: {err}");
    let out = path("run");
    let args = ["run", &named, "--mpi", "--out", &out, "--mpi-nodes", "b=1,a=3"];
    let (code, text, err) = ranks(4, &args);
    assert_eq!(code, Some(0), "{text}{err}");
    let roles = "node `a` (HOST): rank 3 sends flow 1; node `b` (HOST): rank 1 receives; nothing to do for 1 more: 2\n";
    let host = nix::unistd::gethostname().expect("a name").into_string().expect("UTF-8");
    assert!(err.contains(&roles.replace("HOST", &host)), "{err}");
    // The receivers' log alone: nobody has asked for the senders'.
    let log = Path::new(&out).join("receiver.itg");
    assert!(log.exists() && !Path::new(&out).join("sender.itg").exists());
    let (code, text, err) = alone(&["verify", &out]);
    assert_eq!(code, Some(0), "{text}{err}");
    // The option is one of those that a replay takes over.
    let (code, text, err) = ranks(4, &["replay", &out, "--out", &path("again")]);
    assert!(matches!(code, Some(0 | 1)) && text.starts_with("plan: equal: "), "{text}{err}");
    assert!(err.contains("rank 3 sends flow 1"), "{err}");
    let (code, _, err) = alone(&["run", &named, "--local", "--mpi-nodes", "a=1,b=2"]);
    assert!(code == Some(2) && err.contains("about the ranks of --mpi"), "{err}");
}

#[test]
fn without_a_launcher_or_a_file_it_says_so() {
    for args in [&["run", "x.toml", "--mpi"][..], &["process", "x.toml", "--mpi"]] {
        let (code, text, err) = alone(args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains("no MPI launcher started this program: mpirun -n N"), "{err}");
        let (code, _, err) = ranks(2, args);
        assert_eq!(code, Some(2), "{err}");
        assert_eq!(err.matches("x.toml`: No such file").count(), 1, "one rank says it: {err}");
    }
}

#[test]
fn n_12_a_killed_rank_ends_the_job_and_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = experiment(dir.path(), 2, true);
    let out = dir.path().join("run").display().to_string();
    let args = ["run", &file, "--mpi", "--duration", "60s", "--out", &out];
    let mut command = mpirun(3, dir.path());
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().expect("mpirun");
    let log = Path::new(&out).join("receiver.itg");
    let mut of_job = Vec::new();
    // Until packets are logged, however long this machine takes for it.
    while of_job.len() < 3 || fs::metadata(&log).map_or(0, |log| log.len()) < 10_000 {
        std::thread::sleep(Duration::from_millis(50));
        assert!(job.try_wait().expect("a child").is_none(), "the job ended by itself");
        of_job = ranks_below(job.id());
    }
    let killed = Command::new("kill").args(["-9", &of_job[1].to_string()]).status();
    assert!(killed.expect("kill").success());
    let (code, text, err) = said(job.wait_with_output().expect("mpirun"));
    assert_ne!(code, Some(0), "{err}");
    // Open MPI names the rank, MPICH the process.
    let named = err.contains("rank") || text.contains(&format!("PID {}", of_job[1]));
    assert!(named && (text + &err).contains("signal 9"), "{err}");
    for child in of_job {
        // The launcher may end a moment before its ranks.
        let deadline = Instant::now() + Duration::from_secs(60);
        while Path::new(&format!("/proc/{child}/exe")).exists() {
            assert!(Instant::now() < deadline, "rank with process id {child} is left behind");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Ranks that this process has started, or those that it has started (MPICH's launcher has a helper between).
fn ranks_below(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    let children = text.split_whitespace().filter_map(|id| id.parse().ok());
    let is_rank = |id: u32| {
        let program = fs::read_link(format!("/proc/{id}/exe"));
        program
            .is_ok_and(|program| Path::new(PROGRAM).canonicalize().is_ok_and(|own| own == program))
    };
    children.flat_map(|id| if is_rank(id) { vec![id] } else { ranks_below(id) }).collect()
}
