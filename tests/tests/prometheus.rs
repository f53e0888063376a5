//! The pages for Prometheus: their figures are the accounts, whoever reads them while flows run and behind it.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use itg_testkit::child::Running;
use itg_tests::{
    Impairment, LogServer, Receiver, Relay, free_port, leave_out, program, send, sender, temp_dir,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_secs(90);

/// Asks a server of HTTP; the head and the body of its answer.
fn asked(at: SocketAddr, path: &str) -> io::Result<(String, String)> {
    let mut stream = TcpStream::connect(at)?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok((head.to_owned(), body.to_owned()))
}

/// A page: the values of its samples by name and labels, as they are written.
#[derive(Debug, Default)]
struct Page {
    text: String,
    samples: BTreeMap<String, f64>,
}

impl Page {
    /// Reads the page of a program that has said where it is; holds it against promtool, where that is there.
    #[track_caller]
    fn of(running: &Running) -> Self {
        let line = running.line_with("metrics on http://", PATIENCE);
        let (_, rest) = line.split_once("metrics on http://").expect("just found");
        let at = rest.split('/').next().and_then(|at| at.parse().ok()).expect("an address");
        let (head, body) = asked(at, "/metrics").expect("the page's server");
        assert!(head.contains(" 200 OK"), "{head}");
        let mut page = Self { text: body, ..Self::default() };
        for line in page.text.clone().lines().filter(|line| !line.starts_with('#')) {
            let (sample, value) = line.rsplit_once(' ').expect("a value");
            let value = value.parse().expect("a number");
            assert!(page.samples.insert(sample.to_owned(), value).is_none(), "twice: {line}");
        }
        page.checked();
        page
    }

    /// Asserts that promtool finds nothing to complain of.
    #[track_caller]
    fn checked(&self) {
        let command = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut promtool) = command else {
            return leave_out("promtool (apt-get install prometheus)");
        };
        promtool.stdin.take().expect("piped").write_all(self.text.as_bytes()).expect("written");
        let done = promtool.wait_with_output().expect("its end");
        let words = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success() && words.is_empty(), "{words}\n{}", self.text);
    }

    /// The values of a family whose labels contain these texts.
    fn all(&self, name: &str, labels: &[&str]) -> Vec<f64> {
        let its = |sample: &str| {
            let rest = sample.strip_prefix(name);
            rest.is_some_and(|rest| {
                (rest.is_empty() || rest.starts_with('{'))
                    && labels.iter().all(|label| rest.contains(label))
            })
        };
        self.samples.iter().filter(|(sample, _)| its(sample)).map(|(_, value)| *value).collect()
    }

    /// The only such value, a whole number.
    #[track_caller]
    fn count(&self, name: &str, labels: &[&str]) -> u64 {
        let [value] = self.all(name, labels)[..] else {
            panic!("{name} {labels:?}: {}", self.text)
        };
        // A whole number is written without a point.
        value.to_string().parse().unwrap_or_else(|error| panic!("{name} {value}: {error}"))
    }

    /// Asserts that no counter of an earlier page is larger than here.
    #[track_caller]
    fn is_not_behind(&self, earlier: &Self) {
        for (sample, before) in &earlier.samples {
            let name = sample.split('{').next().unwrap_or_default();
            if !["_total", "_bucket", "_sum", "_count"].iter().any(|end| name.ends_with(end)) {
                continue;
            }
            let now = self.samples.get(sample);
            assert!(now.is_some_and(|now| now >= before), "{sample}: {now:?} after {before}");
        }
    }
}

const METRICS: [&str; 2] = ["--metrics", "127.0.0.1:0"];

/// Reads the page again and again until it is like this.
#[track_caller]
fn until(running: &Running, like: impl Fn(&Page) -> bool) -> Page {
    let until = Instant::now() + PATIENCE;
    loop {
        let page = Page::of(running);
        if like(&page) {
            return page;
        }
        assert!(Instant::now() < until, "{}", page.text);
        sleep(Duration::from_millis(150));
    }
}

/// Through a bad network: pages while the flow runs, behind it, and the report of the sender.
#[test]
fn the_pages_say_what_the_accounts_say() {
    let dir = temp_dir();
    let log = dir.path().join("send.itg");
    let port = free_port();
    let mut command = Command::new(program("itg-recv"));
    let listen = format!("127.0.0.1:{}", free_port());
    command.args(["--listen", &listen, "--data-port", &port.to_string()]).args(METRICS);
    let receiver = Receiver::run(&mut command);
    let other = IpAddr::from([127, 0, 0, 2]);
    let bad = Impairment { seed: 7, lost: 0.03, twice: 0.02, late: 0.01, ..Impairment::default() };
    let relay = Relay::start(other, SocketAddr::new(receiver.address.ip(), port), bad);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let at = agreements.address.to_string();
    let running = sender(&[
        &at,
        "--json",
        "--idt",
        "exp(1ms)",
        "--size",
        "200",
        "--packets",
        "2500",
        "--seed",
        "3",
        "--log",
        log.to_str().expect("UTF-8"),
        "--metrics",
        "127.0.0.1:0",
        "--metrics-wait",
        "5min",
    ]);
    let of_flow = ["flow=\"1\"", "proto=\"udp\"", "from=\"127.0.0.1\"", "to=\"127.0.0."];
    let early = until(&receiver.running, |page| {
        page.all("itg_flow_received_packets_total", &of_flow).iter().any(|n| *n >= 200.0)
    });
    let sending = Page::of(&running);
    assert_eq!(sending.all("itg_flow_verdict", &[]), [0.0; 0]);
    assert_eq!(sending.all("itg_flow_lost_packets_total", &[]), [0.0; 0], "not known yet");
    assert!(sending.count("itg_flow_sent_packets_total", &of_flow) >= 200);
    assert_eq!(early.all("itg_flow_delay_seconds_count", &of_flow).len(), 1, "{}", early.text);
    // The sender stays until its page was read.
    let ended = until(&running, |page| !page.all("itg_flow_verdict", &[]).is_empty());
    let report: Value = serde_json::from_str(&running.finish(PATIENCE).exits(0).out).expect("JSON");
    let theirs = until(&receiver.running, |page| {
        !page.all("itg_flow_lost_packets_total", &of_flow).is_empty()
    });
    theirs.is_not_behind(&early);
    ended.is_not_behind(&sending);
    let flow = &report["flows"][0];
    let number = |key: &str| flow[key].as_u64().unwrap_or_else(|| panic!("{key}: {flow}"));
    assert!(number("lost") > 0 && number("duplicated") > 0, "{flow}");
    for page in [&ended, &theirs] {
        for (name, want) in [
            ("itg_flow_sent_packets_total", number("sent_packets")),
            ("itg_flow_sent_bytes_total", 200 * number("sent_packets")),
            ("itg_flow_received_packets_total", number("packets")),
            ("itg_flow_received_bytes_total", number("bytes")),
            ("itg_flow_lost_packets_total", number("lost")),
            ("itg_flow_duplicated_packets_total", number("duplicated")),
            ("itg_flow_reordered_packets_total", number("reordered")),
            ("itg_flow_delay_seconds_count", number("packets")),
            ("itg_flow_jitter_seconds_count", number("packets") - 1),
        ] {
            assert_eq!(page.count(name, &of_flow), want, "{name}: {}", page.text);
        }
        let sum = page.all("itg_flow_delay_seconds_sum", &of_flow)[0];
        let mean = flow["delay_ns"]["mean"].as_f64().expect("known") / 1e9;
        assert!((sum / number("packets") as f64 - mean).abs() < 1e-8 + 1e-6 * mean, "{sum} {mean}");
        assert_eq!(page.all("itg_flow_missing_packets", &of_flow), [0.0; 0]);
    }
    let verdict =
        format!("verdict=\"{}\"", flow["fidelity"]["verdict"].as_str().expect("a verdict"));
    assert_eq!(ended.count("itg_flow_verdict", &[&verdict, "name=\""]), 1);
    // Each packet is in a class of lateness, not only some that were looked at.
    assert_eq!(ended.count("itg_lateness_seconds_count", &[]), number("sent_packets"));
    assert_eq!(theirs.count("itg_received_packets_total", &[]), number("packets"));
    assert_eq!(theirs.count("itg_flows_running", &[]), 0);
    drop((relay, agreements));
    drop(receiver.stop());
}

/// A way that loses few packets and doubles many: copies do not make good what is missing.
#[test]
fn copies_are_no_arrivals_of_missing_packets() {
    let port = free_port();
    let mut command = Command::new(program("itg-recv"));
    let listen = format!("127.0.0.1:{}", free_port());
    command.args(["--listen", &listen, "--data-port", &port.to_string()]);
    let receiver = Receiver::run(&mut command);
    let other = IpAddr::from([127, 0, 0, 2]);
    let bad = Impairment { seed: 7, lost: 0.05, twice: 0.3, late: 0.0, ..Impairment::default() };
    let relay = Relay::start(other, SocketAddr::new(receiver.address.ip(), port), bad);
    let agreements = Relay::start(other, receiver.address, Impairment::default());
    let at = agreements.address.to_string();
    let running =
        sender(&[&at, "--rate", "1000pps", "--duration", "10s", "--metrics", "127.0.0.1:0"]);
    let page = until(&running, |page| {
        page.all("itg_flow_sent_packets_total", &[]).iter().any(|sent| *sent >= 1500.0)
    });
    let missing = page.all("itg_flow_missing_packets", &[]);
    assert!(matches!(missing[..], [missing] if missing > 20.0), "{}", page.text);
    drop((running, relay, agreements));
    drop(receiver.stop());
}

/// Replies are told of as they come back, and round trips when the flow has ended.
#[test]
fn round_trips_have_one_clock() {
    let receiver = Receiver::start(&METRICS);
    let running = sender(&[
        &receiver.at(),
        "--json",
        "--meter",
        "rtt",
        "--idt",
        "constant(1ms)",
        "--packets",
        "1500",
        "--metrics",
        "127.0.0.1:0",
    ]);
    let page = until(&running, |page| !page.all("itg_flow_delay_seconds_count", &[]).is_empty());
    let report: Value = serde_json::from_str(&running.finish(PATIENCE).exits(0).out).expect("JSON");
    let flow = &report["flows"][0];
    assert_eq!(flow["meter"], "rtt");
    let packets = flow["packets"].as_u64().expect("a count");
    assert_eq!(page.count("itg_flow_reply_packets_total", &[]), packets);
    assert_eq!(page.count("itg_flow_delay_seconds_count", &[]), packets);
    assert_eq!(page.all("itg_flow_verdict", &[]), [0.0; 0], "no log, no verdict");
    drop(receiver.stop());
}

/// More flows than have room: the page stays as long as it is, and says how many are left out.
#[test]
fn pages_of_many_flows_are_bounded() {
    let receiver = Receiver::start(&METRICS);
    let running = sender(&[
        &receiver.at(),
        "--flows",
        "1100",
        "--rate",
        "1pps",
        "--size",
        "100",
        "--duration",
        "1min",
        "--metrics",
        "127.0.0.1:0",
        "--metrics-wait",
        "0s",
    ]);
    for program in [&receiver.running, &running] {
        let page = until(program, |page| page.all("itg_flows_running", &[]) == [1100.0]);
        assert_eq!(page.count("itg_flows_left_out", &[]), 100);
        let lines = page.all("itg_flow_received_packets_total", &[]).len()
            + page.all("itg_flow_sent_packets_total", &[]).len();
        assert_eq!(lines, 1000);
        assert!(page.all("itg_flow_delay_seconds_count", &[]).len() <= 256);
        assert!(page.text.len() < 6 << 20, "{} bytes", page.text.len());
    }
    running.signal(Signal::SIGINT);
    drop(running.finish(PATIENCE).exits(130));
    drop(receiver.stop());
}

/// Names of an experiment are labels, whatever is in them.
#[test]
fn hostile_names_are_labels() {
    let dir = temp_dir();
    let receiver = Receiver::start(&METRICS);
    let file = dir.path().join("x.toml");
    let name = r#"a\"} 1\n# TYPE x counter\nx 1\u0000\\"#;
    let long = "y".repeat(100);
    std::fs::write(
        &file,
        format!(
            "schema = 1\nname = \"x\"\nseed = 1\nduration = \"500ms\"\n[nodes]\na = {{ address = \"127.0.0.1\" }}\n\
             b = {{ address = \"{}\" }}\n[[flow]]\nname = \"{name}{long}\"\nfrom = \"a\"\nto = \"b\"\nrate = \"100pps\"\nsize = 100\n",
            receiver.at()
        ),
    )
    .expect("a file");
    let path = file.to_str().expect("UTF-8");
    let running =
        sender(&["run", path, "--node", "a", "--metrics", "127.0.0.1:0", "--metrics-wait", "5min"]);
    let page = until(&running, |page| !page.all("itg_flow_lost_packets_total", &[]).is_empty());
    assert_eq!(
        page.all("itg_flow_sent_packets_total", &["name=\"a\\\"} 1"]).len(),
        1,
        "{}",
        page.text
    );
    assert!(page.text.lines().all(|line| line.starts_with("itg_")
        || line.starts_with('#')
        || line.starts_with("process_")));
    drop(running.finish(PATIENCE).exits(0));
    drop(receiver.stop());
}

#[test]
fn a_log_server_tells_what_it_has_stored() {
    let dir = temp_dir();
    let server = LogServer::start(dir.path(), &[&METRICS[..], &["--fsync", "block"]].concat());
    let idle = Page::of(&server.running);
    assert_eq!(idle.count("itg_log_stored_blocks_total", &[]), 0);
    assert_eq!(idle.all("itg_log_last_sync_timestamp_seconds", &[]), [0.0; 0], "not known");
    let receiver = Receiver::start::<&str>(&[]);
    let url = format!("tcp://{}", server.address);
    let done = send(&[
        &receiver.at(),
        "--idt",
        "constant(1ms)",
        "--packets",
        "500",
        "--log-server",
        &url,
        "--log-name",
        "x",
    ]);
    drop(done.exits(0));
    drop(receiver.stop());
    // Somebody who speaks something else is refused.
    let mut stranger = TcpStream::connect(server.address).expect("a connection");
    stranger.write_all(&[0xff; 64]).expect("written");
    let page = until(&server.running, |page| page.all("itg_log_producers", &[]) == [0.0]);
    page.is_not_behind(&idle);
    assert_eq!(page.count("itg_log_stored_records_total", &[]), 500);
    let file = std::fs::metadata(dir.path().join("x.itg")).expect("a file").len();
    assert_eq!(page.count("itg_log_stored_bytes_total", &[]), file);
    assert_eq!(page.count("itg_log_missing_blocks", &[]), 0);
    assert_eq!(page.count("itg_log_disk_errors_total", &[]), 0);
    assert!(page.all("itg_log_last_sync_timestamp_seconds", &[])[0] > 1.7e9);
    server.running.signal(Signal::SIGINT);
    drop(server.running.finish(PATIENCE).exits(130));
}

#[test]
fn options_that_make_no_sense_are_refused() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = taken.local_addr().expect("an address").to_string();
    drop(send(&["127.0.0.1:1", "--metrics", &at]).exits(2).says("--metrics"));
    for way in ["--reverse", "--bidir", "--under-load", "--classic"] {
        drop(send(&["127.0.0.1:1", way, "--metrics", "127.0.0.1:0"]).exits(2).says("leave it out"));
    }
    drop(send(&["127.0.0.1:1", "--metrics-wait", "1s"]).exits(2));
}

/// The text of a file in `dist/prometheus`.
#[track_caller]
fn shipped(name: &str) -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/prometheus/").to_owned() + name;
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The queries of the dashboard, with what Grafana would put into them.
fn queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&shipped("grafana-dashboard.json")).expect("JSON");
    let variables = dashboard["templating"]["list"].as_array().expect("variables");
    for name in ["name", "from", "to"] {
        assert!(variables.iter().any(|variable| variable["name"] == name), "{name}");
    }
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut ids: Vec<_> = panels.iter().map(|panel| panel["id"].as_u64().expect("an id")).collect();
    ids.dedup();
    assert_eq!(ids.len(), panels.len(), "each panel has an id of its own");
    let mut queries = Vec::new();
    for panel in panels {
        let place = &panel["gridPos"];
        assert!(["x", "y", "w", "h"].iter().all(|key| place[key].is_u64()), "{panel}");
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            let query = query.replace("$__rate_interval", "1m");
            queries.push(["$name", "$from", "$to"].iter().fold(query, |q, v| q.replace(v, ".*")));
        }
    }
    assert!(queries.len() > 15 && !queries.iter().any(|query| query.contains('$')));
    queries
}

/// Alerts and dashboard name families that there are, and Prometheus can read them.
#[test]
fn alerts_and_dashboard_fit_the_pages() {
    let sources = [
        include_str!("../../crates/itg-cli/src/metrics/flows.rs"),
        include_str!("../../crates/itg-cli/src/metrics/receiver.rs"),
        include_str!("../../crates/itg-cli/src/metrics/sender.rs"),
        include_str!("../../crates/itg-node/src/metrics.rs"),
        include_str!("../../crates/itg-stats/src/metric.rs"),
        include_str!("../../itg-log/src/metrics.rs"),
        include_str!("../../crates/itg-agent/src/metrics.rs"),
    ]
    .concat();
    let queries = queries();
    let rules = shipped("itg.rules.yml");
    for text in queries.iter().map(String::as_str).chain(rules.lines()) {
        for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let name = word.strip_suffix("_bucket").unwrap_or(word);
            let known = !name.starts_with("itg_") || sources.contains(&format!("\"{name}\""));
            assert!(known, "{name}: {text}");
        }
    }
    let dir = temp_dir();
    let file = dir.path().join("queries.yml");
    let quoted = queries.iter().enumerate().map(|(k, query)| {
        format!("  - record: panel:{k}\n    expr: {}\n", Value::from(query.as_str()))
    });
    let text = format!("groups:\n- name: panels\n  rules:\n{}", quoted.collect::<String>());
    std::fs::write(&file, text).expect("a file");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/prometheus");
    for args in [
        &["check", "rules", file.to_str().expect("UTF-8")][..],
        &["check", "config", "prometheus.yml"],
        &["test", "rules", "tests.yml"],
    ] {
        let mut promtool = Command::new("promtool");
        let Ok(done) = promtool.args(args).current_dir(shipped).output() else {
            return leave_out("promtool (apt-get install prometheus)");
        };
        let words = [done.stdout, done.stderr].concat();
        assert!(done.status.success(), "{args:?}: {}", String::from_utf8_lossy(&words));
    }
}

/// The values that a Prometheus answers a query with.
#[track_caller]
fn query(at: SocketAddr, query: &str) -> Vec<f64> {
    let encoded: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let (_, body) = asked(at, &format!("/api/v1/query?query={encoded}")).expect("Prometheus");
    let answer: Value = serde_json::from_str(&body).expect("JSON");
    assert_eq!(answer["status"], "success", "{query}: {answer}");
    let result = answer["data"]["result"].as_array().expect("a list");
    let value = |of: &Value| of["value"][1].as_str().and_then(|text| text.parse().ok());
    result.iter().map(|of| value(of).expect("a number")).collect()
}

/// A Prometheus at the first address, ready to read a receiver and a sender at the others; `None` where there is none.
#[track_caller]
fn prometheus(dir: &Path, [at, theirs, ours]: [SocketAddr; 3]) -> Option<Running> {
    let config = format!(
        "global: {{scrape_interval: 200ms, evaluation_interval: 1s}}\nrule_files: [{}/../dist/prometheus/itg.rules.yml]\n\
         scrape_configs:\n- {{job_name: itg, static_configs: [{{targets: ['{theirs}']}}]}}\n\
         - {{job_name: itg-send, static_configs: [{{targets: ['{ours}']}}]}}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    let file = dir.join("prometheus.yml");
    std::fs::write(&file, config).expect("a file");
    let mut command = Command::new("prometheus");
    command.arg("--config.file").arg(&file).arg("--storage.tsdb.path").arg(dir.join("data"));
    command.args(["--web.listen-address", &at.to_string()]);
    let prometheus = Running::spawn(&mut command, &[]).ok()?;
    let begun = Instant::now();
    while !asked(at, "/-/ready").is_ok_and(|(head, _)| head.contains(" 200 ")) {
        assert!(begun.elapsed() < PATIENCE, "{}", prometheus.err());
        sleep(Duration::from_millis(100));
    }
    Some(prometheus)
}

/// A real Prometheus reads receiver and sender, and answers with what the report says; its alerts have no mistakes, and
/// the panels of the dashboard have something to show.
#[test]
fn a_prometheus_answers_with_the_accounts() {
    let dir = temp_dir();
    let ports = [free_port(), free_port(), free_port()];
    let [at, theirs, ours] = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    let Some(prometheus) = prometheus(dir.path(), [at, theirs, ours]) else {
        return leave_out("Prometheus (apt-get install prometheus)");
    };
    let receiver = Receiver::start(&["--metrics", &theirs.to_string()]);
    // A Prometheus that is ready begins to read seconds later: rates need more than the last page.
    let begun = Instant::now();
    while query(at, "up{job='itg'}") != [1.0] || query(at, "up{job='itg-send'}").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{}", prometheus.err());
        sleep(Duration::from_millis(100));
    }
    let log = dir.path().join("send.itg");
    let running = sender(&[
        &receiver.at(),
        "--json",
        "--idt",
        "exp(1ms)",
        "--size",
        "uniform(64,1400)",
        "--duration",
        "5s",
        "--seed",
        "11",
        "--log",
        log.to_str().expect("UTF-8"),
        "--metrics",
        &ours.to_string(),
        "--metrics-wait",
        "5min",
    ]);
    let done = running.finish(PATIENCE).exits(0);
    let report: Value = serde_json::from_str(&done.out).expect("JSON");
    let flow = &report["flows"][0];
    // The receiver's last page has come as well.
    let begun = Instant::now();
    while query(at, "itg_flow_lost_packets_total{job='itg'}").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{}", prometheus.err());
        sleep(Duration::from_millis(200));
    }
    for (name, key) in [
        ("itg_flow_sent_packets_total", "sent_packets"),
        ("itg_flow_received_packets_total", "packets"),
        ("itg_flow_received_bytes_total", "bytes"),
        ("itg_flow_lost_packets_total", "lost"),
        ("itg_flow_delay_seconds_count", "packets"),
    ] {
        for job in ["itg", "itg-send"] {
            // The sender is gone, what it said last is kept.
            let got = query(at, &format!("last_over_time({name}{{job='{job}'}}[5m])"));
            assert_eq!(got, [flow[key].as_f64().expect("known")], "{name} of {job}: {flow}");
        }
    }
    let p99 =
        "histogram_quantile(0.99, last_over_time(itg_flow_delay_seconds_bucket{job='itg'}[5m]))";
    let (got, want) = (query(at, p99)[0], flow["delay_ns"]["p99"].as_f64().expect("known") / 1e9);
    assert!(got >= want / 2.5 && got <= want * 2.5, "{got} {want}: within a class");
    let verdict = flow["fidelity"]["verdict"].as_str().expect("a verdict");
    let got = query(at, &format!("last_over_time(itg_flow_verdict{{verdict='{verdict}'}}[5m])"));
    assert_eq!(got, [1.0]);
    let (shown, empty): (Vec<_>, Vec<_>) =
        queries().into_iter().partition(|panel| !query(at, panel).is_empty());
    assert!(shown.len() >= 10, "without an answer: {empty:#?}");
    let (_, rules) = asked(at, "/api/v1/rules").expect("Prometheus");
    let rules: Value = serde_json::from_str(&rules).expect("JSON");
    let alerts = rules["data"]["groups"][0]["rules"].as_array().expect("rules");
    assert_eq!(alerts.len(), 8);
    assert!(alerts.iter().all(|alert| alert["health"] != "err"), "{rules}");
    drop(receiver.stop());
    prometheus.signal(Signal::SIGTERM);
}
