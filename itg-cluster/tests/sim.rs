//! Experiments and processes in virtual time, from a shell.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_itg-cluster"));
    let Output { status, stdout, stderr } = command.args(args).output().expect("itg-cluster");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code(), text(stdout), text(stderr))
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
        let read = |name| fs::read(out.join(name)).expect("a log");
        (read("sender.itg"), read("receiver.itg"))
    });
    assert!(logs[0] == logs[1], "two runs differ");
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
