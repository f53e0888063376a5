//! The examples do what their pages say.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Exit code, output and errors of the program of `mutex.rs`, with its configuration.
fn mutex(command: &str, words: &[&str]) -> (Option<i32>, String, String) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutex.toml");
    let mut program = Command::new(env!("CARGO_BIN_EXE_mutex"));
    let out = program.arg(command).arg(file).args(words).output().expect("it starts");
    let [text, err] = [out.stdout, out.stderr].map(|text| String::from_utf8(text).expect("text"));
    (out.status.code(), text, err)
}

#[test]
fn mutual_exclusion_is_judged_in_virtual_time_and_over_tcp() {
    let dir = tempfile::tempdir().expect("a directory");
    let [sim, tcp] = ["sim", "tcp"].map(|name| dir.path().join(name).display().to_string());
    let (code, text, err) = mutex("simulate", &["--events", "--trace", &sim, "--messages"]);
    assert_eq!(code, Some(0), "{text}{err}");
    // Process 3 crashes after some of its turns; the others have all of theirs, as it is suspected then.
    let turns = |slot: &str| text.lines().filter(|line| line.contains(slot)).count();
    assert_eq!([0, 1, 2].map(|slot| turns(&format!(" {slot} leaves "))), [5; 3], "{text}");
    assert!(turns(" 3 leaves ") < 5 && text.contains("all processes have stopped"), "{text}");

    let words = ["--local", "--network", "tcp", "--trace", &tcp, "--messages"];
    let (code, text, err) = mutex("process", &words);
    assert_eq!(code, Some(0), "{text}{err}");
    assert!(text.ends_with(" events, no objection of exclusion\n"), "{text}");
    assert!(err.contains("[[fault]]: 1 of the file left out"), "{err}");
    let (code, judged, err) = mutex("check", &[&tcp]);
    assert!(code == Some(0) && text.ends_with(&judged), "{judged}{err}");
    // One checker, one form of traces: what is said in the other order is objected to, wherever it was said.
    for path in [&sim, &tcp] {
        let trace = fs::read_to_string(path).expect("a trace");
        fs::write(path, trace.replace("\"leaves\"", "\"enters\"")).expect("written");
        let (code, _, err) = mutex("check", &[path]);
        assert!(code == Some(1) && err.contains("mutex: exclusion: process "), "{err}");
    }
    let program = env!("CARGO_BIN_EXE_mutex");
    let out = Command::new(program).args(["diff", &sim, &tcp]).output().expect("it starts");
    let text = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(1), "times and turns are others: {text}");
    assert!(
        text.starts_with("first difference: process ") && text.contains("mutex: asks"),
        "{text}"
    );
    assert!(text.contains("delays of messages") && text.contains("type 2 "), "{text}");
}

#[test]
fn a_sweep_finds_what_mutual_exclusion_does_not_promise_and_prints_the_command_that_repeats_it() {
    let (code, text, err) = mutex("simulate", &["--seeds", "50"]);
    assert_eq!((code, text.as_str()), (Some(0), "50 seeds, no objection\n"), "{err}");
    let (code, text, err) = mutex("simulate", &["--seeds", "50", "--faults"]);
    assert!(code == Some(1) && err.contains(" of 50 seeds fail"), "{text}{err}");
    let found = text.lines().position(|line| line.contains(" enters while "));
    let found = found.unwrap_or_else(|| panic!("no wrong suspicion lets two in:\n{text}"));
    let objection =
        text.lines().nth(found).and_then(|line| line.split_once(": ")).expect("a seed").1;
    let command = text.lines().nth(found + 1).expect("its command").trim();
    let words: Vec<_> = command.split(' ').skip(3).collect();
    let (code, _, err) = mutex("simulate", &words);
    assert!(code == Some(1) && err.contains(objection) && err.contains(command), "{err}");
}

#[test]
fn wrong_suspicions_of_the_file_reach_a_detector_of_ones_own() {
    let dir = tempfile::tempdir().expect("a directory");
    let text = include_str!("../mutex.toml");
    let mut text = text.split_once("[[fault]]").expect("one").0.to_owned();
    for at in [10, 20, 30, 40] {
        for process in 0..4 {
            let suspect = (process + 1) % 4;
            text += &format!(
                "[[fault]]\nat = \"{at}ms\"\nkind = \"suspect\"\nprocess = {process}\nsuspect = {suspect}\n"
            );
        }
    }
    let file = dir.path().join("mutex.toml");
    fs::write(&file, text).expect("written");
    let program = |words: &[&str]| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_mutex"));
        let out = program.arg("simulate").arg(&file).args(words).output().expect("it starts");
        (out.status.code(), String::from_utf8(out.stdout).expect("text"))
    };
    let (_, text) = program(&["--seed", "1"]);
    assert!(text.contains("16 of 16 wrong suspicions taken by the layer heartbeat"), "{text}");
    let (code, text) = program(&["--seeds", "20"]);
    assert!(code == Some(1) && text.contains(" enters while "), "{text}");
}

#[test]
fn the_page_on_layers_shows_what_is_compiled_here() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("a text");
    let (page, program) = (read("../docs/layers.md"), read("mutex.rs"));
    let (_, page) = page.split_once("## A whole program").expect("a section");
    let blocks: Vec<_> = page.split("```rust\n").skip(1).collect();
    assert_eq!(blocks.len(), 3);
    for block in blocks {
        let (block, _) = block.split_once("```").expect("its end");
        // What is left out is marked.
        let shown = block.lines().take_while(|line| line.trim() != "// …");
        let shown = shown.collect::<Vec<_>>().join("\n");
        assert!(shown.len() > 200 && program.contains(&shown), "not in mutex.rs:\n{shown}");
    }
}

fn run(program: &str, args: &[&Path]) -> String {
    let out = Command::new(program).args(args).output().expect("it starts");
    let err = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success() && err.is_empty(), "{program}: {err}");
    String::from_utf8(out.stdout).expect("text")
}

#[test]
fn embed_prints_the_table_and_its_log_becomes_a_histogram() {
    let dir = tempfile::tempdir().expect("a directory");
    let table = run(env!("CARGO_BIN_EXE_embed"), &[dir.path()]);
    let flow = table.lines().find(|line| line.contains("poisson"));
    let flow = flow.unwrap_or_else(|| panic!("no line of the flow:\n{table}"));
    assert!(flow.contains("1000"), "all packets are counted: {flow}");

    let bars = run(env!("CARGO_BIN_EXE_histogram"), &[&dir.path().join("recv.itg")]);
    let packets = bars.lines().filter(|line| line.ends_with('*'));
    let packets = packets.map(|line| line.split_whitespace().rev().nth(1).expect("a number"));
    let packets: u64 = packets.map(|number| number.parse::<u64>().expect("a number")).sum();
    assert_eq!(packets, 1000, "each is in a bar:\n{bars}");
    assert!(bars.contains("p50 ") && bars.contains("p99 "), "{bars}");
}

#[test]
fn a_token_goes_round_in_virtual_time_and_over_tcp() {
    let out = run(env!("CARGO_BIN_EXE_ring"), &[]);
    for world in ["virtual time", "TCP"] {
        let laps: Vec<_> =
            out.lines().filter(|line| line.starts_with(&format!("{world}: lap "))).collect();
        assert_eq!(laps.len(), 5, "{world}:\n{out}");
    }
    assert!(out.contains("virtual time: Stopped") && out.contains("TCP: Finished"), "{out}");
    // What a seed decides is the same each time.
    let virtual_time = |out: &str| {
        out.lines()
            .filter(|line| line.starts_with("virtual"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(virtual_time(&out), virtual_time(&run(env!("CARGO_BIN_EXE_ring"), &[])));
}
