//! Files that describe several runs, from a shell: carried out, interrupted, gone on with.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use itg_testkit::child::said;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const SWEEP: &str = r#"
schema = 1
name = "q"
seed = 5
duration = "30s"
[[flow]]
idt = "exp(${gap})"
size = 1000
[network]
kind = "switch"
rate = "10Mbps"
[matrix]
gap = ["2ms", "1ms"]
network.queue = [10, 100]
[sweep]
repetitions = 3
compare = ["delay.p99", "loss", "packets"]
"#;

fn program(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    command.args(args);
    command
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    said(&mut program(args))
}

struct Dir(tempfile::TempDir);

impl Dir {
    fn new(text: &str) -> Self {
        let dir = Self(tempfile::tempdir().expect("a directory"));
        fs::write(dir.file(), text).expect("written");
        dir
    }

    fn file(&self) -> String {
        self.0.path().join("q.toml").display().to_string()
    }

    fn out(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn begin(&self, out: &str) -> Child {
        let mut command = program(&["run", &self.file(), "--sim", "--out", out]);
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("itg-cluster")
    }
}

/// The files of this name in the runs of a sweep, with their contents, by case and repetition.
fn files(out: &str, name: &str) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let entries = |dir: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(dir).into_iter().flatten();
        entries.map(|entry| entry.expect("an entry").path()).filter(|path| path.is_dir()).collect()
    };
    for case in entries(Path::new(out)) {
        for run in entries(&case) {
            if let Ok(bytes) = fs::read(run.join(name)) {
                found.insert(run.strip_prefix(out).expect("below it").to_owned(), bytes);
            }
        }
    }
    found
}

fn wait_for_runs(out: &str, number: usize) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while files(out, "done.json").len() < number {
        assert!(Instant::now() < deadline, "no run is done");
        sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_sweep_that_is_killed_goes_on_to_the_same_result() {
    let dir = Dir::new(SWEEP);
    let whole = dir.out("whole");
    let (code, text, err) = run(&["run", &dir.file(), "--sim", "--out", &whole]);
    assert_eq!(code, Some(0), "{err}");
    assert!(text.starts_with("Sweep: q\ngap  network.queue  runs"), "{text}");
    assert_eq!(text.lines().count(), 7, "head, four cases and what they mean: {text}");
    let logs = files(&whole, "receiver.itg");
    assert_eq!(logs.len(), 12);
    assert_eq!(files(&whole, "experiment.toml").len(), 12);

    let killed = (0..10).find_map(|number| {
        let cut = dir.out(&format!("cut-{number}"));
        let mut child = dir.begin(&cut);
        wait_for_runs(&cut, 2);
        child.kill().expect("SIGKILL");
        child.wait().expect("its end");
        let before = files(&cut, "done.json");
        // All of them take half a second: it may have been done.
        (before.len() < 12).then_some((cut, before))
    });
    let (cut, before) = killed.expect("killed before all 12 runs were done");

    let (code, _, err) = run(&["run", &dir.file(), "--sim", "--out", &cut]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("add --resume to go on"), "{err}");
    let (code, again, err) = run(&["run", &dir.file(), "--sim", "--out", &cut, "--resume"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains(&format!("{} runs are done", before.len())), "{err}");
    assert_eq!(again, text, "the comparison of both");
    assert!(files(&cut, "receiver.itg") == logs, "the logs of both");
    let after = files(&cut, "done.json");
    for (run, marker) in &before {
        assert!(after.get(run) == Some(marker), "{} was done again", run.display());
    }
    for name in ["comparison.csv", "comparison.json", "delay-p99.svg", "loss.svg"] {
        let read = |out: &str| fs::read(Path::new(out).join(name)).expect("a file");
        assert!(read(&whole) == read(&cut), "{name}");
    }
    let page = fs::read_to_string(Path::new(&cut).join("comparison.html")).expect("a page");
    assert!(page.contains("delay.p99 against gap"), "the plot is in the page");

    // A run of the sweep is an experiment of its own.
    let (run_of, log) = logs.first_key_value().expect("a run");
    let file = Path::new(&whole).join(run_of).join("experiment.toml").display().to_string();
    let alone = dir.out("alone");
    let (code, _, err) = run(&["run", &file, "--sim", "--out", &alone]);
    assert_eq!(code, Some(0), "{err}");
    assert!(fs::read(Path::new(&alone).join("receiver.itg")).expect("a log") == *log);
}

#[test]
fn a_signal_ends_a_sweep_in_order() {
    let dir = Dir::new(SWEEP);
    let interrupted = (0..10).find_map(|number| {
        let out = dir.out(&format!("out-{number}"));
        let child = dir.begin(&out);
        wait_for_runs(&out, 1);
        kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGINT).expect("SIGINT");
        let Output { status, stderr, .. } = child.wait_with_output().expect("its end");
        // All runs take half a second: it may have been done.
        (status.code() != Some(0)).then_some((out, status, stderr))
    });
    let (out, status, stderr) = interrupted.expect("interrupted before all runs were done");
    let err = String::from_utf8(stderr).expect("UTF-8");
    assert_eq!(status.code(), Some(130), "{err}");
    assert!(err.contains("--resume goes on"), "{err}");
    assert!(Path::new(&out).join("comparison.txt").exists(), "what there is is compared");
    let (code, text, err) = run(&["run", &dir.file(), "--sim", "--out", &out, "--resume"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(text.contains("1ms"), "{text}");
    assert_eq!(files(&out, "done.json").len(), 12);
}

#[test]
fn a_file_that_has_changed_is_refused_or_accepted() {
    let dir = Dir::new(&SWEEP.replace("30s", "200ms"));
    let out = dir.out("out");
    let sim = |more: &[&str]| {
        let file = dir.file();
        let args = [&["run", &file, "--sim", "--out", &out][..], more].concat();
        run(&args)
    };
    assert_eq!(sim(&[]).0, Some(0));
    let before = files(&out, "done.json");
    // One value is another one, and there is a new one.
    let changed = SWEEP.replace("30s", "200ms").replace("[10, 100]", "[10, 50, 200]");
    fs::write(dir.file(), changed).expect("written");
    let (code, _, err) = sim(&["--resume"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("has changed since the sweep"), "{err}");
    assert!(files(&out, "done.json") == before, "a refusal changes nothing");
    let (code, text, err) = sim(&["--resume", "--accept-change"]);
    assert_eq!(code, Some(0), "{err}");
    assert!(err.contains("6 runs are done"), "{err}");
    assert_eq!(text.lines().count(), 9, "six cases: {text}");
    for (more, want) in [
        (&["--resume", "--seed", "9"][..], "has the seed 5, not 9"),
        (&["--resume", "--in-order"], "has changed"),
        (&["--resume", "--duration", "1s"], "has changed"),
        (&["--resume", "--pacing", "spin"], "an argument (--duration, --in-order, --pacing"),
        (&["--accept-change"], "--resume"),
    ] {
        let (code, _, err) = sim(more);
        assert_eq!(code, Some(2), "{more:?}: {err}");
        assert!(err.contains(want), "{more:?}: {err}");
    }
    let (code, _, err) = run(&["run", &dir.file(), "--local", "--out", &out, "--resume"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("begun in the world `sim`, this is `local`"), "{err}");
}

#[test]
fn a_sweep_on_this_host_stops_at_its_rule() {
    let text = SWEEP
        .replace("30s", "100ms")
        .replace("gap = [\"2ms\", \"1ms\"]", "gap = [\"10ms\"]")
        .replace("network.queue = [10, 100]", "flow.size = [64, 1000]")
        .replace("repetitions = 3", "repeat_until = \"ci95(bytes) < 90%\"\nmax_repetitions = 6");
    let dir = Dir::new(&text);
    let args = ["run", &dir.file(), "--local", "--out", &dir.out("out")];
    // On a busy host the traffic of a run may fail.
    let (code, text, err) = run(&[&args[..], &["--repeat-failed", "0"]].concat());
    assert_eq!(code, Some(0), "{err}");
    let done = files(&dir.out("out"), "done.json").len();
    assert!((6..=12).contains(&done), "{done} runs: {text}");
    assert!(text.contains("bytes"), "what the rule looks at is compared: {text}");
}

#[test]
fn a_sweep_is_planned_and_what_is_wrong_is_named() {
    let dir = Dir::new(SWEEP);
    let (code, text, err) = run(&["plan", &dir.file()]);
    assert_eq!(code, Some(0), "{err}");
    for want in [
        "gap=2ms network.queue=100",
        "4 cases, 3 runs of each: 12 runs",
        "traffic lasts 360s",
        "order of the cases of a round: random; seed 5",
    ] {
        assert!(text.contains(want), "{want}: {text}");
    }
    let (code, json, _) = run(&["plan", &dir.file(), "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((code, &json["repetitions"][1]), (Some(0), &serde_json::json!(3)));
    assert_eq!(json["cases"][3]["values"]["gap"], "1ms");
    for (from, to, want) in [
        ("\"loss\"", "\"los\"", "unknown metric `los`"),
        ("repetitions", "repetition", "did you mean `repetitions`?"),
        ("${gap}", "${gab}", "did you mean `gap`?"),
        ("\"1ms\"]", "\"1\"]", "(in the case gap=1 network.queue=10)"),
    ] {
        fs::write(dir.file(), SWEEP.replace(from, to)).expect("written");
        for command in ["plan", "run"] {
            let (code, _, err) = run(&[command, &dir.file()]);
            assert_eq!(code, Some(2), "{command} {to}: {err}");
            assert!(err.contains(want), "{command} {to}: {err}");
        }
    }
    fs::write(dir.file(), "schema = 1\nname = 'x'\nduration = '1s'\n[[flow]]\n").expect("written");
    let (code, _, err) = run(&["run", &dir.file(), "--local", "--in-order"]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("for files with [matrix]"), "{err}");
}
