//! Requirements of an experiment — gates, a declared precision — are judged by every program that
//! sees a log of the run.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use itg_tests::{Output, Receiver, Running, json, program, temp_dir};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);

/// An experiment of one flow of 200 packets from here to a receiver, with this gate.
fn experiment(dir: &Path, receiver: &str, gate: &str) -> String {
    let file = dir.join("gates.toml");
    let text = format!(
        "schema = 1\nname = 'gates'\nseed = 3\n[nodes]\na = {{ address = '127.0.0.1' }}\nb = {{ address = '{receiver}' }}\n[gates]\n\
         fail_if = ['{gate}']\n[[flow]]\nfrom = 'a'\nto = 'b'\nidt = 'exp(2ms)'\nsize = '200'\npackets = 200\n"
    );
    fs::write(&file, text).expect("written");
    file.display().to_string()
}

fn run(name: &str, args: &[&str]) -> Output {
    Running::start(Command::new(program(name)).args(args)).finish(LIMIT)
}

#[test]
fn a_run_on_this_host_is_judged_and_leaves_a_page() {
    for (gate, code, word) in
        [("total.packets > 0", 99, "holds"), ("loss > 90%", 0, "does not hold")]
    {
        let dir = temp_dir();
        let file = experiment(dir.path(), "127.0.0.1", gate);
        let out = dir.path().join("run");
        run("itg-cluster", &["run", &file, "--local", "--out", &out.display().to_string()])
            .exits(code);
        let page = fs::read_to_string(out.join("report.html")).expect("a page");
        let gate = gate.replace('>', "&gt;");
        for mark in
            [&*gate, word, "Where time and packets went", "Receive stack", "Traffic report: gates"]
        {
            assert!(page.contains(mark), "{mark:?} is not in the page of {gate}");
        }
    }
}

#[test]
fn gates_of_the_command_line_are_judged_and_kept_with_the_run() {
    let dir = temp_dir();
    let file = experiment(dir.path(), "127.0.0.1", "loss > 90%");
    let path = |name: &str| dir.path().join(name).display().to_string();
    for (name, gate, code) in [("bad", "total.packets > 0", 99), ("good", "total.packets < 1", 0)] {
        let (out, junit) = (path(name), path("gates.xml"));
        let words = ["run", &file, "--local", "--out", &out, "--format", "json"];
        let gates = ["--fail-if", gate, "--fail-if", "delay.p95 > 10s", "--junit", &junit];
        let done = run("itg-cluster", &[&words[..], &gates].concat()).exits(code);
        let report: serde_json::Value = serde_json::from_str(&done.out).expect("one object");
        assert_eq!(report["total"]["packets"], 200, "{done}");
        assert!(done.err.contains("gate `delay.p95 > 10s` passed"), "{done}");
        let junit = fs::read_to_string(&junit).expect("written");
        let failures = format!("tests=\"3\" failures=\"{}\"", u8::from(code != 0));
        assert!(junit.contains(&failures), "{junit}");
        // The page of the run has its gates, so that it can be made again.
        drop(run("itg-cluster", &["verify", &out]).exits(0));
    }
    let out = path("markdown");
    let words = ["run", &file, "--local", "--out", &out, "--format", "markdown"];
    let done = run(
        "itg-cluster",
        &[&words[..], &["--fail-if", "jitter.mean > 1h", "--fail-if", "loss > 0.95"]].concat(),
    )
    .exits(0);
    assert!(done.out.starts_with("| result | fails if | found |\n"), "{done}");
    assert!(done.out.contains("| passed | jitter.mean > 1h | "), "{done}");
    // A share without a unit is shown as what it is.
    assert!(done.out.contains("| passed | loss > 95% | "), "{done}");
    assert!(done.err.contains("gate `loss > 95%` passed"), "{done}");
    let none =
        run("itg-cluster", &["run", &file, "--local", "--fail-if", "delay.p9 5 > 1s"]).exits(2);
    assert!(none.err.contains("did you mean"), "{none}");
}

/// A gate that could never be judged costs no run.
#[test]
fn gates_on_what_will_not_be_there_are_refused_before_the_run() {
    for (gate, hint) in [
        ("cal.loss > 0.1%", "there is no flow `cal`: did you mean `call`?"),
        ("flow.2.loss > 0.1%", "there is no flow `2`"),
        ("call.los > 0.1%", "did you mean `call.los"),
        ("delay.p9 > 20ms", "did you mean `delay.p90` or `delay.p99`?"),
    ] {
        let dir = temp_dir();
        let out = dir.path().join("run");
        let out_text = out.display().to_string();
        let named = |gate: &str| {
            let file = experiment(dir.path(), "127.0.0.1", gate);
            let text = fs::read_to_string(&file).expect("just written");
            fs::write(&file, text.replace("[[flow]]", "[[flow]]\nname = 'call'")).expect("written");
            file
        };
        let file = named("call.loss > 90%");
        let words = ["run", &file, "--local", "--out", &out_text, "--fail-if", gate];
        run("itg-cluster", &words).exits(2).says(hint);
        let file = named(gate);
        run("itg-cluster", &words[..5]).exits(2).says(hint);
        assert!(!out.exists(), "{gate}: nothing was begun");
        let done = run("itg-send", &["run", &file]).exits(2).says(hint);
        assert_eq!(done.out, "", "{gate}");
    }
}

#[test]
fn a_sender_judges_what_its_log_can_tell() {
    for (gate, log, code, words) in [
        ("sent_packets > 0", true, 99, "sent_packets > 0"),
        ("sent_packets > 1000", true, 0, "sent_packets > 1000"),
        ("delay.p99 > 1us", true, 0, "does not tell about `delay.p99 > 1us`"),
        ("sent_packets > 0", false, 0, "are not judged without a log: add --log FILE"),
    ] {
        let dir = temp_dir();
        let receiver = Receiver::start::<&str>(&[]);
        let file = experiment(dir.path(), &receiver.at(), gate);
        let path = dir.path().join("send.itg").display().to_string();
        let mut args = vec!["run", file.as_str()];
        if log {
            args.extend(["--log", path.as_str()]);
        }
        run("itg-send", &args).exits(code).says(words);
        receiver.stop();
    }
}

#[test]
fn a_declared_precision_that_was_not_kept_is_warned_about() {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let receiver = Receiver::start(&["-v"]);
    let running = receiver.begin(&[
        "--idt",
        "constant(1ms)",
        "--size",
        "100",
        "--packets",
        "3000",
        "--max-error",
        "20ms",
        "--log",
        log.to_str().expect("UTF-8"),
    ]);
    thread::sleep(Duration::from_millis(300));
    running.signal(Signal::SIGSTOP);
    thread::sleep(Duration::from_millis(300));
    running.signal(Signal::SIGCONT);
    running.finish(LIMIT).exits(0);
    let fidelity = json(&[&log])["flows"][0]["fidelity"].clone();
    let reasons = fidelity["reasons"].to_string();
    assert!(reasons.contains("late, 20ms was declared"), "{fidelity}");
    assert!(fidelity["causes"].to_string().contains("late_sender"), "{fidelity}");
    assert_ne!(fidelity["verdict"], "pass", "{fidelity}");
}
