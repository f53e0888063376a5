//! Runs of a sweep whose traffic failed: repeated, marked, left out of means; and what `itg-decode compare` says of such a
//! run. Needs root, and nft, which refuses packets of the sender.
#![allow(missing_docs, reason = "tests")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use itg_tests::{Namespace, Output, Pair, Running, leave_out, not_run, program};
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
const NFT: &str = "/usr/sbin/nft";
/// Two cases; the firewall knows the packets of each by their length.
const SWEEP: &str = r#"
schema = 1
name = "q"
seed = 5
duration = "500ms"
[[flow]]
rate = "100pps"
[matrix]
flow.size = [300, 600]
[sweep]
repetitions = 2
in_order = true
compare = ["packets"]
"#;

/// A host whose firewall refuses packets as these rules say.
struct Host {
    host: Namespace,
    dir: tempfile::TempDir,
}

impl Host {
    fn new(rules: &[&str]) -> Self {
        let (host, dir) = (Pair::new().sender, itg_tests::temp_dir());
        fs::write(dir.path().join("q.toml"), SWEEP).expect("written");
        let head =
            ["add table inet a", "add chain inet a out { type filter hook output priority 0; }"];
        for rule in head.iter().chain(rules) {
            let done = host.command(Path::new(NFT)).args(rule.split(' ')).output().expect("nft");
            assert!(done.status.success(), "{rule}: {}", String::from_utf8_lossy(&done.stderr));
        }
        Self { host, dir }
    }

    fn out(&self) -> PathBuf {
        self.dir.path().join("out")
    }

    fn sweep(&self, more: &[&str]) -> Output {
        let mut command = self.host.command(&program("itg-cluster"));
        command.arg("run").arg(self.dir.path().join("q.toml")).args(["--local", "--out"]);
        Running::start(command.arg(self.out()).args(more)).finish(LIMIT)
    }

    /// The row of a case in the comparison.
    fn case(&self, place: usize) -> Value {
        let text = fs::read_to_string(self.out().join("comparison.json")).expect("a comparison");
        let table: Value = serde_json::from_str(&text).expect("JSON");
        table["cases"][place].clone()
    }
}

/// Runs of a list, by what their directories are called within their case.
fn runs(list: &Value) -> Vec<&str> {
    let list = list.as_array().expect("a list").iter();
    list.map(|run| run.as_str().and_then(|run| run.split_once('/')).expect("CASE/RUN").1).collect()
}

#[test]
fn a_run_whose_traffic_failed_is_repeated_and_what_failed_stays() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    // 15 of the first run's 50 packets.
    let host = Host::new(&["add rule inet a out udp length 308 quota until 5000 bytes drop"]);
    let done = host.sweep(&[]).exits(0);
    assert!(done.err.contains("its traffic FAILED (verdict `fail`): kept in "), "{done}");
    assert!(done.out.contains("failed and repeated: 1 runs: "), "{done}");
    let case = host.case(0);
    assert_eq!((runs(&case["repeated"]), runs(&case["failed"])), (vec!["1-failed-1"], vec![]));
    assert_eq!(
        (&case["repetitions"], &case["figures"][0]["n"]),
        (&2.into(), &2.into()),
        "{case:#}"
    );
    assert_eq!(
        (&case["figures"][0]["min"], &host.case(1)["failed"]),
        (&50.0.into(), &Value::Array(vec![]))
    );
    let mut verify = Command::new(program("itg-cluster"));
    let done = Running::start(verify.arg("verify").arg(host.out())).finish(LIMIT).exits(0);
    assert!(done.out.contains("of 5 runs, as they were left"), "{done}");
    // A run that is said to have failed and has not, is found.
    let aside = host.out().join(case["repeated"][0].as_str().expect("a name")).join("done.json");
    let record = fs::read_to_string(&aside).expect("a record");
    fs::write(&aside, record.replace("\"fail\"", "\"pass\"")).expect("written");
    let mut verify = Command::new(program("itg-cluster"));
    let done = Running::start(verify.arg("verify").arg(host.out())).finish(LIMIT).exits(1);
    assert!(done.out.contains("verdict `pass`, and the logs give `fail`"), "{done}");
    assert!(done.out.contains("set aside, although its traffic has not failed"), "{done}");
}

#[test]
fn a_run_that_goes_on_failing_is_in_no_mean_unless_asked_and_no_gate_of_a_comparison_judges_it() {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    // Every fourth packet of the second case.
    let host = Host::new(&["add rule inet a out udp length 608 numgen inc mod 4 < 1 drop"]);
    let done = host.sweep(&["--repeat-failed", "1"]).exits(1);
    assert!(
        done.out.contains("FAILED (verdict `fail`) and are left out of the means: 2 of 4 runs: ")
    );
    let row = |line: &str| line.split_whitespace().take(3).map(str::to_owned).collect::<Vec<_>>();
    let table: Vec<_> = done.out.lines().skip(1).take(3).map(row).collect();
    assert_eq!(table, [["flow.size", "runs", "failed"], ["300", "2", "0"], ["600", "2", "2"]]);
    let case = host.case(1);
    assert_eq!(runs(&case["repeated"]), ["1-failed-1", "2-failed-1"]);
    assert_eq!((runs(&case["failed"]), &case["figures"][0]["n"]), (vec!["1", "2"], &0.into()));
    assert!(case["figures"][0]["mean"].is_null(), "{case:#}");

    // Going on: what is asked of means changes no run; one more repetition of what failed does.
    let done = host.sweep(&["--repeat-failed", "1", "--resume", "--with-failed"]).exits(1);
    assert!(done.err.contains("4 runs are done") && !done.err.contains("kept in"), "{done}");
    assert!(done.out.contains("and are in the means: 2 of 4 runs"), "{done}");
    assert_eq!(host.case(1)["figures"][0]["n"], 2, "{:#}", host.case(1));
    host.sweep(&["--resume"]).exits(1);
    let repeated = host.case(1);
    let want = ["1-failed-1", "1-failed-2", "2-failed-1", "2-failed-2"];
    assert_eq!(runs(&repeated["repeated"]), want);

    let run = |case: usize| host.out().join(host.case(case)["failed"][0].as_str().expect("a name"));
    let bad = run(1);
    let cases = fs::read_dir(host.out()).expect("cases").map(|entry| entry.expect("it").path());
    let good = cases.into_iter().find(|dir| dir.join("1").exists() && !bad.starts_with(dir));
    let good = good.expect("the other case").join("1");
    let compare = |a: &Path, b: &Path, more: &[&str]| {
        let mut command = Command::new(program("itg-decode"));
        command.arg("compare").args([a, b]).args(["--fail-if", "total.loss > +50%"]);
        Running::start(command.args(more)).finish(LIMIT)
    };
    for (a, b, which) in
        [(&good, &bad, "of B"), (&bad, &good, "of A"), (&bad, &bad, "of both runs")]
    {
        let done = compare(a, b, &[]).exits(99);
        let told = format!("cannot be judged: the traffic {which} failed");
        assert!(done.err.contains(&told), "{done}");
        let note =
            format!("note: {}: its traffic FAILED (verdict `fail`: incomplete)", bad.display());
        assert!(done.out.contains(&note), "{done}");
    }
    let done = compare(&good, &bad, &["--allow-unknown", "--format", "json"]).exits(0);
    let json: Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(json["failed"], serde_json::json!(["b"]));
    let done = compare(&good, &good, &["--format", "json"]).exits(0);
    let json: Value = serde_json::from_str(&done.out).expect("JSON");
    assert_eq!(json["failed"], serde_json::json!([]));
}
