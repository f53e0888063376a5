//! Pages, plots, gates, Parquet and comparisons, as users ask for them.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use assert_cmd::cargo::cargo_bin;
use itg_testkit::child::said;
use itg_testkit::logs::run_of_two_flows;
use tempfile::TempDir;

struct Dir(TempDir);

impl Dir {
    fn new() -> Self {
        let dir = Self(TempDir::new().unwrap());
        let [sender, receiver] = run_of_two_flows();
        fs::create_dir(dir.path("run")).unwrap();
        fs::write(dir.path("run/send.itg"), sender).unwrap();
        fs::write(dir.path("run/recv.itg"), receiver).unwrap();
        dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    /// Exit code, stdout, stderr of `itg-decode` with both logs.
    fn decode(&self, args: &[&str]) -> (i32, String, String) {
        self.run(&[&["run/send.itg", "run/recv.itg"], args].concat())
    }

    fn run(&self, args: &[&str]) -> (i32, String, String) {
        let mut command = Command::new(cargo_bin("itg-decode"));
        let (code, out, err) = said(command.args(args).current_dir(self.0.path()));
        (code.unwrap(), out, err)
    }
}

#[test]
fn the_page_is_whole_and_asks_for_nothing() {
    let dir = Dir::new();
    let (code, _, err) =
        dir.decode(&["--html", "r.html", "--svg", "plots", "--fail-if", "loss > 90%"]);
    assert_eq!(code, 0, "{err}");
    let page = dir.read("r.html");
    for part in [
        "<!DOCTYPE html>",
        "default-src 'none'",
        "The traffic sent was",
        "How to read this",
        "Delay, cumulative",
        "Loss raster",
        "loss &gt; 90%",
        "itg-decode run/send.itg run/recv.itg --html r.html",
        "</html>",
    ] {
        assert!(page.contains(part), "{part} is missing");
    }
    // Nothing is loaded: no address but the name space of SVG, and that only in files.
    for part in ["http://", "https://", " src=", "@import", "url("] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(page.matches("<svg").count(), page.matches("</svg>").count());
    let mut names: Vec<_> = fs::read_dir(dir.path("plots"))
        .unwrap()
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    for name in ["total-rate.svg", "total-heat.svg", "flow1-0-raster.svg", "flow2-2-gaps.svg"] {
        assert!(names.iter().any(|file| file == name), "{name} is missing: {names:?}");
    }
    for suffix in ["svg", "csv", "tex"] {
        let of = names.iter().filter(|name| name.ends_with(suffix));
        assert_eq!(3 * of.count(), names.len(), "each plot has its values: {names:?}");
    }
    for name in names.iter().filter(|name| name.ends_with(".svg")) {
        let svg = dir.read(&format!("plots/{name}"));
        assert!(
            svg.starts_with("<?xml") && svg.contains("<title") && svg.contains("<desc"),
            "{name}"
        );
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{name}");
    }
}

#[test]
fn the_page_of_a_log_without_packets_says_so() {
    let dir = Dir::new();
    let (code, _, err) = dir.run(&["run/send.itg", "--flow", "77", "--html", "r.html"]);
    assert_eq!(code, 0, "{err}");
    assert!(dir.read("r.html").contains("is not known"));
}

#[test]
fn gates_decide_the_exit_code() {
    let dir = Dir::new();
    fs::write(
        dir.path("x.toml"),
        "schema = 1\nname = \"x\"\n[gates]\nfail_if = [\"loss > 0\"]\n[[flow]]\npackets = 1\n",
    )
    .unwrap();
    for (args, code, part) in [
        (vec!["--fail-if", "loss > 90%"], 0, "gate `loss > 90%` passed: flow"),
        (vec!["--fail-if", "loss > 0"], 99, "gate `loss > 0` FAILED: flow"),
        (
            vec!["--fail-if", "total.lost >= 1", "--fail-if", "loss > 90%"],
            99,
            "FAILED: total: lost is",
        ),
        (vec!["--fail-if", "fidelity == pass"], 98, "fidelity is pass"),
        (vec!["--fail-if", "flow.9.loss > 0"], 99, "cannot be judged: there is no such flow"),
        (vec!["--fail-if", "flow.9.loss > 0", "--allow-unknown"], 0, "cannot be judged"),
        (vec!["--gates", "x.toml"], 99, "gate `loss > 0` FAILED"),
        (vec!["--fail-if", "los > 0"], 2, "unknown metric `los`"),
        (vec!["--gates", "run/send.itg"], 2, "cannot be read"),
        (vec!["--fail-if", "loss > 0", "--packets"], 2, "cannot be used with"),
    ] {
        let (got, _, err) = dir.decode(&args);
        assert_eq!(got, code, "{args:?}: {err}");
        assert!(err.contains(part), "{args:?}: {err}");
    }
    dir.decode(&["--fail-if", "loss > 0", "--fail-if", "delay.p50 < 0s", "--junit", "j.xml"]);
    let junit = dir.read("j.xml");
    for part in [
        "<?xml",
        "tests=\"2\" failures=\"1\"",
        "<testcase classname=\"itg\" name=\"not loss &gt; 0\"",
        "<failure message=\"flow",
        "</testsuites>",
    ] {
        assert!(junit.contains(part), "{part} is missing in {junit}");
    }
}

#[cfg(feature = "parquet")]
#[test]
fn parquet_says_what_the_csv_says() {
    use parquet::file::reader::{FileReader as _, SerializedFileReader};
    use parquet::record::Field;

    let dir = Dir::new();
    for (args, left_out) in [
        (vec!["--packets"], vec!["run", "node", "name", "proto", "src", "dst", "delay_ns"]),
        (vec!["--interval", "100ms"], vec!["interval_ns", "start_unix_ns"]),
    ] {
        let (code, csv, err) = dir.decode(&[&args[..], &["--format", "csv"]].concat());
        assert_eq!(code, 0, "{err}");
        let (code, _, err) =
            dir.decode(&[&args[..], &["--format", "parquet", "-o", "t.parquet"]].concat());
        assert_eq!(code, 0, "{err}");
        let file = fs::File::open(dir.path("t.parquet")).unwrap();
        let table = SerializedFileReader::new(file).unwrap();
        let columns = table.metadata().file_metadata().schema_descr().columns();
        let head: Vec<_> = csv.lines().next().unwrap().split(',').collect();
        assert_eq!(head.len() + left_out.len(), columns.len(), "{args:?}");
        assert!(
            left_out.iter().all(|name| columns.iter().any(|column| column.name() == *name)),
            "{args:?}"
        );
        let mut lines: Vec<Vec<String>> =
            vec![head.iter().map(|name| (*name).to_owned()).collect()];
        for row in table.get_row_iter(None).unwrap() {
            let cells = row.unwrap().into_columns();
            let cell = |name: &&str| match cells.iter().find(|(column, _)| column == name) {
                Some((_, Field::Null)) => String::new(),
                Some((_, Field::Str(text))) => text.clone(),
                Some((_, field)) => field.to_string(),
                None => panic!("{args:?}: no column {name}"),
            };
            lines.push(head.iter().map(cell).collect());
        }
        let want: Vec<Vec<String>> =
            csv.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect();
        assert_eq!(lines.len(), want.len(), "{args:?}");
        for (got, want) in lines.iter().zip(&want) {
            for (got, want) in got.iter().zip(want) {
                // Numbers may be written differently, 5 and 5.0.
                let same =
                    got == want
                        || got.parse::<f64>().ok().zip(want.parse::<f64>().ok()).is_some_and(
                            |(a, b)| (a - b).abs() <= f64::EPSILON * a.abs().max(b.abs()),
                        );
                assert!(same, "{args:?}: {got} and {want}");
            }
        }
    }
}

#[test]
fn parquet_needs_a_file_and_something_to_hold() {
    let dir = Dir::new();
    for (args, part) in
        [(vec!["--packets"], "--output"), (vec!["-o", "t.parquet"], "--packets or --interval")]
    {
        let (code, _, err) = dir.decode(&[&args[..], &["--format", "parquet"]].concat());
        assert!(code == 2 && err.contains(part), "{code}: {err}");
    }
}

#[test]
fn a_comparison_has_gates_and_the_interval_decides() {
    let dir = Dir::new();
    let compare = |args: &[&str]| dir.run(&[&["compare", "run", "run"], args].concat());
    for (gate, code, want) in [
        ("delay.p99 > +50%", 0, "passed: flow 1"),
        ("delay.p99 > -50%", 99, "FAILED: flow 1"),
        ("total.delay.p99 > -50%", 99, "FAILED: total"),
        ("delay.mean > +0%", 0, "is not settled"),
        ("flow.9.loss > +1%", 99, "cannot be judged"),
        ("delay.p98 > +1%", 2, "did you mean `delay.p9"),
        ("delay.p99 > 1%", 2, "with a sign"),
    ] {
        let (got, _, err) = compare(&["--fail-if", gate]);
        assert_eq!(got, code, "{gate}: {err}");
        assert!(err.contains(want), "{gate}: {err}");
    }
    assert_eq!(compare(&["--fail-if", "flow.9.loss > +1%", "--allow-unknown"]).0, 0);
    let gates = ["--fail-if", "delay.p99 > -50%", "--fail-if", "delay.mean > +0%"];
    let (code, out, _) =
        compare(&[&gates[..], &["--junit", "c.xml", "--format", "markdown"]].concat());
    assert_eq!(code, 99);
    assert!(out.contains("| **FAILED** | delay.p99 > -50% | flow 1: "), "{out}");
    assert!(out.contains("| not settled | delay.mean > +0% | "), "{out}");
    let junit = dir.read("c.xml");
    assert!(junit.contains("failures=\"1\" errors=\"0\" skipped=\"1\""), "{junit}");
    let (code, _, _) = compare(&["-o", "long.txt"]);
    assert!(code == 0 && dir.read("long.txt").contains("\nTotal\n"), "files have everything");
}

#[test]
fn a_report_is_a_table_in_markdown() {
    let dir = Dir::new();
    let (code, out, err) = dir.decode(&[
        "--format",
        "markdown",
        "--fail-if",
        "delay.p95 > 1s",
        "--fail-if",
        "loss > 90%",
    ]);
    assert_eq!(code, 0, "{err}");
    assert!(
        out.starts_with("| result | fails if | found |\n| --- | --- | --- |\n| passed |"),
        "{out}"
    );
    assert!(out.contains("| flow |") && out.contains("| total |"), "{out}");
    let (code, _, err) = dir.decode(&["--fail-if", "delay.p9x > 1s"]);
    assert!(code == 2 && err.contains("did you mean `delay.p9"), "{err}");
    let (code, _, err) =
        dir.decode(&["--fail-if", "pdv_ns.p50 > 1h", "--fail-if", "total.delay_ns.p99 > 1us"]);
    assert!(code == 99 && err.contains("gate `pdv_ns.p50 > 1h` passed"), "{err}");
}

#[test]
fn a_run_compared_with_itself_does_not_differ() {
    let dir = Dir::new();
    let (code, out, err) =
        dir.run(&["compare", "run", "run", "--format", "json", "--html", "c.html"]);
    assert_eq!(code, 0, "{err}");
    let comparison: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(comparison["flows"].as_array().unwrap().len(), 2);
    for pairing in comparison["flows"].as_array().unwrap().iter().chain([&comparison["total"]]) {
        for figure in pairing["figures"].as_array().unwrap() {
            assert!(figure["difference"].as_f64().is_none_or(|d| d.abs() < 1e-12), "{figure}");
            assert_ne!(figure["clear"], true, "{figure}");
        }
    }
    assert_eq!(comparison["total"]["delay"]["cliffs_delta"].as_f64().map(f64::abs), Some(0.0));
    assert!(dir.read("c.html").contains("NO CLEAR DIFFERENCE"));
    let (code, text, _) = dir.run(&["compare", "run", "run"]);
    assert!(
        code == 0 && text.contains(" figures do not differ") && text.lines().count() < 6,
        "{text}"
    );
    let (code, text, _) = dir.run(&["compare", "-v", "run", "run/recv.itg"]);
    assert!(code == 0 && text.contains("\nTotal\n") && text.contains("Cliff's delta"), "{text}");
    let (code, _, err) = dir.run(&["compare", "run", "nothing"]);
    assert!(code == 1 && err.contains("nothing: cannot be read"), "{code}: {err}");
}

/// Rates and delays over time, against the same windows as CSV.
#[test]
fn flent_gets_rates_and_delays_of_windows() {
    let dir = Dir::new();
    let (code, out, err) = dir.decode(&["--format", "flent"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("add --interval"), "{err}");
    let (code, out, err) = dir.decode(&["--format", "flent", "--interval", "100ms"]);
    assert_eq!(code, 0, "{err}");
    let data: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(data["version"], 4);
    let (_, csv, _) = dir.decode(&["--format", "csv", "--interval", "100ms"]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let mut compared = 0;
    for line in reader.deserialize() {
        let line: std::collections::BTreeMap<String, String> = line.unwrap();
        if line["side"] != "receiver" {
            continue;
        }
        let window = line["start_ns"].parse::<usize>().unwrap() / 100_000_000;
        assert!((data["x_values"][window].as_f64().unwrap() - window as f64 * 0.1).abs() < 1e-9);
        let of = |series: &str| &data["results"][format!("{series} {}", line["flow"])][window];
        let rate = of("UDP upload");
        if line["partial"] == "true" {
            assert!(rate.is_null(), "a window that packets do not fill has no known rate: {rate}");
        } else {
            let want = line["bitrate_bps"].parse::<f64>().unwrap() / 1e6;
            assert!((rate.as_f64().unwrap() - want).abs() < 1e-9, "{rate} {want}");
        }
        let (delay, want) = (of("Ping (ms)"), line["delay_mean_ns"].parse::<f64>().unwrap() / 1e6);
        assert!((delay.as_f64().unwrap() - want).abs() < 1e-9, "{delay} {want}");
        let raw = &data["raw_values"][format!("Ping (ms) {}", line["flow"])][window];
        assert_eq!(&raw["val"], delay);
        compared += 1;
    }
    assert!(compared > 10, "{csv}");
    assert_eq!(data["metadata"]["SERIES_META"]["UDP upload 1"]["UNITS"], "Mbits/s");
    assert_eq!(data["metadata"]["TIME"], "2027-01-15T08:00:00.000001Z");
}
