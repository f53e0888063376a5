//! `itg-cluster plan` as it is seen from a shell: answers, words, exit codes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use itg_testkit::child::said;

const GOOD: &str = "schema = 1\nname = \"x\"\nduration = \"10s\"\n[[flow]]\nprofile = \"dns\"\n";

/// Runs the program in a directory with these files; gives exit code, stdout, stderr.
fn run(files: &[(&str, &str)], args: &[&str]) -> (i32, String, String) {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let number = RUNS.fetch_add(1, Ordering::Relaxed);
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("plan-{number}"));
    for (name, text) in files {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().expect("inside the directory")).expect("directory");
        fs::write(path, text).expect("file");
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    let (code, out, err) = said(command.current_dir(&dir).args(args));
    fs::remove_dir_all(&dir).expect("clean up");
    (code.expect("exit code"), out, err)
}

#[test]
fn a_plan_goes_to_stdout_as_table_or_json() {
    let (code, out, err) = run(&[("x.toml", GOOD)], &["plan", "x.toml", "--seed", "7"]);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.starts_with("x: 1 flow, seed 7, plan "), "{out}");
    let json = ["plan", "x.toml", "--seed=7", "--duration=1s", "--format", "json"];
    let (code, out, err) = run(&[("x.toml", GOOD)], &json);
    assert_eq!((code, err.as_str()), (0, ""));
    let plan: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(plan["seed"], 7);
    assert_eq!(plan["flows"][0]["packets"], 1.0, "one packet in one second");
}

#[test]
fn a_seed_is_drawn_when_none_is_given() {
    let seed = || {
        let (_, out, _) = run(&[("x.toml", GOOD)], &["plan", "x.toml", "--format", "json"]);
        serde_json::from_str::<serde_json::Value>(&out).expect("JSON")["seed"].as_u64()
    };
    assert_ne!(seed(), seed());
    assert!(seed() < Some(1 << 53), "exact in every JSON reader");
}

#[test]
fn files_are_found_beside_the_experiment_and_profiles_where_told() {
    let experiment = "schema = 1\nname = \"x\"\nduration = \"1s\"\n[[flow]]\n\
                      idt = \"empirical(gaps.txt)\"\n[[flow]]\nprofile = \"dns\"\n";
    let dns = "name = \"dns\"\ntitle = \"Own\"\nsource = \"measured\"\nidt = \"constant(5ms)\"\n\
               size = \"constant(77)\"\n";
    let files = [("e/x.toml", experiment), ("e/gaps.txt", "10ms\n"), ("own/dns.toml", dns)];
    let (code, out, err) =
        run(&files, &["plan", "e/x.toml", "--profiles", "own", "--seed", "1", "--format", "json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let plan: serde_json::Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!(plan["flows"][0]["packets"], 100.0);
    assert_eq!(plan["flows"][1]["bytes"], 200.0 * 77.0);
}

#[test]
fn what_makes_no_sense_ends_with_code_2_and_one_sentence() {
    let bad = GOOD.replace("profile", "profil");
    let far = GOOD.replace("dns", "dnss");
    let endless = GOOD.replace("duration = \"10s\"\n", "");
    let files = [
        ("x.toml", GOOD),
        ("bad.toml", bad.as_str()),
        ("far.toml", far.as_str()),
        ("endless.toml", endless.as_str()),
    ];
    for (args, want) in [
        (
            &["plan", "none.toml"][..],
            "itg-cluster: cannot read experiment file `none.toml`: No such file or directory",
        ),
        (
            &["plan", "bad.toml"],
            "itg-cluster: bad.toml:5:1: unknown key `profil` in [[flow]]: did you mean `profile`?",
        ),
        (
            &["plan", "far.toml"],
            "itg-cluster: far.toml:5:11: flow 1: unknown profile `dnss`, did you mean `dns`?",
        ),
        (
            &["plan", "x.toml", "--profiles", "none"],
            "itg-cluster: cannot read directory of profiles `none`: No such file or directory",
        ),
        (&["plan", "x.toml", "--seed", "x"], "error: invalid value 'x' for '--seed <N>'"),
        (&["plan", "x.toml", "--duration", "10"], "error: invalid value '10' for '--duration <T>'"),
        (&["run", "x.toml"], "itg-cluster: running over several nodes needs the keys"),
        (
            &["run", "endless.toml", "--local"],
            "itg-cluster: flow 1: no end: give the experiment a `duration`",
        ),
    ] {
        let (code, out, err) = run(&files, args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.starts_with(want), "{args:?}: {err}");
    }
}
