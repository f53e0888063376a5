//! Experiments and processes under MPI: needs `mpirun`, and the feature `mpi`.
#![cfg(feature = "mpi")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

const PROGRAM: &str = env!("CARGO_BIN_EXE_itg-cluster");

/// A launcher of so many ranks.
fn mpirun(ranks: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string(), PROGRAM]);
    command.stdin(Stdio::null());
    command
}

fn said(output: Output) -> (Option<i32>, String, String) {
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn ranks(ranks: u32, args: &[&str]) -> (Option<i32>, String, String) {
    said(mpirun(ranks).args(args).output().expect("mpirun: apt-get install openmpi-bin"))
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
        let report = fs::read_to_string(out.join("report.json")).expect("a report");
        assert!(report.contains("\"world\": \"mpi\"") || report.contains("\"world\":\"mpi\""));
        if log {
            let [came, blocks, sent, sent_blocks] = conserved(&err);
            assert_eq!((came, blocks), (sent, sent_blocks), "{err}");
            assert!(came > 200, "{err}");
            assert!(err.contains(" 0 lost before"), "{err}");
            // These rates are far below what two buffers carry.
            assert!(err.contains("packets waited for it 0 times"), "{err}");
        }
        // One rank more or less is refused, with the number that it needs.
        let (code, text, err) = ranks(count + 1, &args);
        assert_eq!((code, text.as_str()), (Some(2), ""), "{err}");
        assert!(err.contains(&format!("it needs {count} ranks and not {}", count + 1)), "{err}");
    }
}

#[test]
fn s_1_the_same_packets_on_one_host_under_mpi_and_simulated() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = |name: &str| dir.path().join(name).display().to_string();
    let file = experiment(dir.path(), 8, true);
    let (code, _, err) = ranks(9, &["run", &file, "--mpi", "--out", &path("mpi")]);
    assert_eq!(code, Some(0), "{err}");
    for world in ["local", "sim"] {
        let flag = format!("--{world}");
        let (code, _, err) = alone(&["run", &file, &flag, "--out", &path(world)]);
        assert_eq!(code, Some(0), "{err}");
        let (code, text, err) = alone(&["diff", &path("mpi"), &path(world)]);
        assert_eq!(code, Some(0), "{text}{err}");
        let same = text.strip_prefix("planned schedules are identical: ").expect(&text);
        let same: u64 = same.split(' ').next().and_then(|n| n.parse().ok()).expect("a number");
        assert!(same > 1000, "{text}");
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
    let (code, _, err) = ranks(4, &["process", &file, "--mpi"]);
    assert!(code == Some(2) && err.contains("5 processes, the job 4 ranks"), "{err}");
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
    let mut command = mpirun(3);
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut job = command.spawn().expect("mpirun");
    let log = Path::new(&out).join("receiver.itg");
    let mut of_job = Vec::new();
    // Until packets are logged, however long this machine takes for it.
    while of_job.len() < 3 || fs::metadata(&log).map_or(0, |log| log.len()) < 10_000 {
        std::thread::sleep(Duration::from_millis(50));
        assert!(job.try_wait().expect("a child").is_none(), "the job ended by itself");
        of_job = children(job.id());
    }
    let killed = Command::new("kill").args(["-9", &of_job[1].to_string()]).status();
    assert!(killed.expect("kill").success());
    let (code, _, err) = said(job.wait_with_output().expect("mpirun"));
    assert_ne!(code, Some(0), "{err}");
    assert!(err.contains("rank") && err.contains("signal 9"), "{err}");
    for child in of_job {
        let gone = !Path::new(&format!("/proc/{child}/exe")).exists();
        assert!(gone, "rank with process id {child} is left behind");
    }
}

/// Processes that this one has started.
fn children(parent: u32) -> Vec<u32> {
    let path = format!("/proc/{parent}/task/{parent}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().filter_map(|id| id.parse().ok()).collect()
}
