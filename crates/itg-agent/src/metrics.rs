//! `itg-cluster agent --metrics ADDR:PORT`: what the agent does, for Prometheus.
//!
//! Text exposition format 0.0.4 over HTTP/1.1, `GET /metrics` and nothing else: one answer for each connection,
//! which is closed then. Not encrypted, open to all that reach the port; so it is off unless asked for.
//! Bounds: connections at the same time, in all and of one address, bytes and header fields of a request, time for
//! all of it. A caller that says nothing gives its place to the next one.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use httparse::Status;
use itg_node::{ConnectionSlots, SlotLimits};
use itg_run::figures::{BOUNDS_NS, Figures};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Connections at the same time. Their requests are short: all of them are silent to the last byte, so the oldest
/// one of the address that has the most gives way.
const PLACES: SlotLimits = SlotLimits { total: 16, per_address: 8 };
/// Longest request.
const MOST_BYTES: usize = 8 << 10;
/// Most header fields of a request.
const MOST_HEADERS: usize = 64;
/// Time that a connection may last.
const LIMIT: Duration = Duration::from_secs(5);
/// Flows that get lines of their own.
const MOST_FLOWS: usize = 1000;

/// Facts that an agent tells of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// The run that it takes part in, and its name.
    pub(crate) run: Option<(String, String)>,
    /// Number of its view, and how many are in it.
    pub(crate) view: (u64, usize),
    /// Worker processes.
    pub(crate) workers: usize,
    /// Nanoseconds left of its lease; `None` when it has none.
    pub(crate) lease_left_ns: Option<u64>,
    /// Figures of this node's flows in this run.
    pub(crate) figures: Figures,
}

/// The page.
pub(crate) fn page(facts: &Facts) -> String {
    let mut page = Page::default();
    page.head("itg_agent_info", "gauge", "The agent and its version.");
    page.line("itg_agent_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    page.head("itg_run_info", "gauge", "The run that the agent takes part in.");
    if let Some((run, name)) = &facts.run {
        page.line("itg_run_info", &[("run", run), ("name", name)], 1);
    }
    page.one("itg_view_number", "gauge", "Number of the view of the group.", facts.view.0);
    page.one(
        "itg_view_members",
        "gauge",
        "Members of the view, the console among them.",
        facts.view.1,
    );
    page.one("itg_workers", "gauge", "Processes that send flows.", facts.workers);
    page.head(
        "itg_lease_remaining_seconds",
        "gauge",
        "How long this node may send without news from the group.",
    );
    if let Some(left) = facts.lease_left_ns {
        page.line("itg_lease_remaining_seconds", &[], seconds(left));
    }
    let figures = &facts.figures;
    type Get = fn(&itg_run::figures::FlowFigures) -> String;
    let counters: [(&str, &str, &str, Get); 4] = [
        ("itg_flow_sent_packets_total", "counter", "Packets handed to the kernel.", |f| {
            f.sent_packets.to_string()
        }),
        (
            "itg_flow_sent_bytes_total",
            "counter",
            "Bytes handed to the kernel, headers below ITG's excluded.",
            |f| f.sent_bytes.to_string(),
        ),
        (
            "itg_flow_missing_packets",
            "gauge",
            "Packets that the receiver had not read when it was asked last.",
            |f| f.missing_packets.to_string(),
        ),
        ("itg_flow_lateness_max_seconds", "gauge", "How late the latest packet left.", |f| {
            seconds(f.lateness_max_ns)
        }),
    ];
    for (name, kind, help, get) in counters {
        page.head(name, kind, help);
        for (flow, figures) in figures.flows.iter().take(MOST_FLOWS) {
            page.line(name, &[("flow", &flow.to_string())], get(figures));
        }
    }
    let left_out = figures.flows.len().saturating_sub(MOST_FLOWS);
    page.one("itg_flows_left_out", "gauge", "Flows that have no lines here.", left_out);
    let name = "itg_lateness_seconds";
    page.head(
        name,
        "histogram",
        "How late packets left: the last one of each flow, twenty times a second.",
    );
    let mut sum = 0_u64;
    for (count, bound) in figures.late.iter().zip(BOUNDS_NS) {
        sum = sum.saturating_add(*count);
        page.line(&format!("{name}_bucket"), &[("le", &seconds(bound))], sum);
    }
    page.line(&format!("{name}_bucket"), &[("le", "+Inf")], figures.samples());
    page.line(&format!("{name}_sum"), &[], seconds(figures.late_sum_ns));
    page.line(&format!("{name}_count"), &[], figures.samples());
    page.text
}

/// Nanoseconds as seconds, exactly.
fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).unwrap_or_else(|error| unreachable!("a String: {error}"));
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl std::fmt::Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        match labels.is_empty() {
            true => self.write(format_args!("{name} {value}\n")),
            false => self.write(format_args!("{name}{{{}}} {value}\n", labels.join(","))),
        }
    }

    fn one(&mut self, name: &str, kind: &str, help: &str, value: impl std::fmt::Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }
}

/// A value of a label: backslash, quote and line end are escaped.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Serves the page on this socket, as long as the task runs.
pub(crate) async fn serve<F, T>(listener: TcpListener, facts: F)
where
    F: Fn() -> T + Send + Sync + 'static,
    T: Future<Output = Facts> + Send + 'static,
{
    serve_within(LIMIT, listener, facts).await;
}

/// The same, with this time for each connection.
async fn serve_within<F, T>(limit: Duration, listener: TcpListener, facts: F)
where
    F: Fn() -> T + Send + Sync + 'static,
    T: Future<Output = Facts> + Send + 'static,
{
    let places = ConnectionSlots::new(PLACES);
    let facts = Arc::new(facts);
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "metrics: a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Nobody settles, so there is always a place.
        let Ok(place) = places.take(peer.ip()) else { continue };
        let facts = Arc::clone(&facts);
        tokio::spawn(async move {
            let answering = tokio::time::timeout(limit, answer(stream, facts.as_ref()));
            tokio::select! {
                answered = answering => match answered {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "metrics: a connection has ended"),
                    Err(_) => tracing::debug!(%peer, "metrics: a connection was too slow"),
                },
                () = place.lost() => tracing::debug!(%peer, "metrics: a connection gave way"),
            }
        });
    }
}

async fn answer<T: Future<Output = Facts>>(
    mut stream: TcpStream,
    facts: &impl Fn() -> T,
) -> std::io::Result<()> {
    let mut bytes = Vec::with_capacity(MOST_BYTES);
    loop {
        let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let (status, more, body) = match request.parse(&bytes) {
            Ok(Status::Partial) if bytes.len() < MOST_BYTES => {
                if (&mut stream).take(1024).read_buf(&mut bytes).await? == 0 {
                    return Ok(());
                }
                continue;
            }
            Ok(Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                ("431 Request Header Fields Too Large", "", "too long\n".to_owned())
            }
            Err(httparse::Error::Version) => {
                ("505 HTTP Version Not Supported", "", "HTTP/1.1\n".to_owned())
            }
            Err(_) => ("400 Bad Request", "", "no request\n".to_owned()),
            Ok(Status::Complete(_)) => match (request.method, request.path) {
                (Some("GET" | "HEAD"), Some(path))
                    if path.split('?').next() == Some("/metrics") =>
                {
                    ("200 OK", "", page(&facts().await))
                }
                (Some("GET" | "HEAD"), _) => ("404 Not Found", "", "see /metrics\n".to_owned()),
                _ => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET\n".to_owned()),
            },
        };
        return reply(&mut stream, status, more, &body, request.method != Some("HEAD")).await;
    }
}

async fn reply(
    stream: &mut TcpStream,
    status: &str,
    more: &str,
    body: &str,
    with_body: bool,
) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: {}\r\n\
         Connection: close\r\n{more}\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    if with_body {
        stream.write_all(body.as_bytes()).await?;
    }
    stream.shutdown().await
}

/// Listens where the page shall be.
pub(crate) async fn listen(address: SocketAddr) -> std::io::Result<TcpListener> {
    TcpListener::bind(address).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use itg_run::figures::FlowFigures;

    /// A sample: name, labels, value.
    type Sample = (String, BTreeMap<String, String>, f64);

    /// Reads text exposition format 0.0.4, and complains of everything that it does not allow.
    fn parse(text: &str) -> Vec<Sample> {
        assert!(text.ends_with('\n'), "the last line ends");
        let plain = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|c: char| c.is_ascii_digit())
                && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == ':')
        };
        let mut types: BTreeMap<String, String> = BTreeMap::new();
        let mut samples = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').expect("a type");
                assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                assert!(types.insert(name.to_owned(), kind.to_owned()).is_none(), "twice: {line}");
                continue;
            }
            if line.starts_with("# HELP ") {
                continue;
            }
            let end = line.find(['{', ' ']).expect("a value");
            let name = &line[..end];
            assert!(plain(name), "{line}");
            let family =
                ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end));
            let family =
                family.filter(|family| types.get(*family).is_some_and(|t| t == "histogram"));
            assert!(types.contains_key(family.unwrap_or(name)), "no type before: {line}");
            let mut labels = BTreeMap::new();
            let mut rest = &line[end..];
            if let Some(inner) = rest.strip_prefix('{') {
                let mut chars = inner.char_indices();
                let (mut key, mut value, mut quoted) = (String::new(), String::new(), false);
                loop {
                    let (at, c) = chars.next().expect("a closing brace");
                    match (quoted, c) {
                        (true, '\\') => match chars.next().expect("what is escaped").1 {
                            'n' => value.push('\n'),
                            c @ ('\\' | '"') => value.push(c),
                            c => panic!("escaped {c}: {line}"),
                        },
                        (true, '"') => {
                            quoted = false;
                            assert!(plain(&key), "{line}");
                            labels.insert(std::mem::take(&mut key), std::mem::take(&mut value));
                        }
                        (true, c) => value.push(c),
                        (false, '"') => quoted = true,
                        (false, '=' | ',') => {}
                        (false, '}') => {
                            rest = &inner[at + 1..];
                            break;
                        }
                        (false, c) => key.push(c),
                    }
                }
            }
            let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
            samples.push((name.to_owned(), labels, value));
        }
        samples
    }

    fn facts() -> Facts {
        let mut figures = Figures::default();
        for flow in 1..=2 {
            let counters = FlowFigures {
                sent_packets: 10 * u64::from(flow),
                sent_bytes: 5120,
                missing_packets: 1,
                lateness_max_ns: 1_500_000_000,
            };
            figures.flows.insert(flow, counters);
        }
        figures.late[0] = 3;
        figures.late[2] = 1;
        figures.late[BOUNDS_NS.len()] = 1;
        figures.late_sum_ns = 7;
        Facts {
            run: Some(("ab12".to_owned(), "a \"b\"\\\n".to_owned())),
            view: (4, 3),
            workers: 1,
            lease_left_ns: Some(1_250_000_000),
            figures,
        }
    }

    fn value(samples: &[Sample], name: &str, label: &str) -> f64 {
        let found = samples.iter().find(|(n, labels, _)| {
            n == name && (label.is_empty() || labels.values().any(|v| v == label))
        });
        found.unwrap_or_else(|| panic!("{name} {label}")).2
    }

    #[test]
    fn the_page_says_what_there_is() {
        let samples = parse(&page(&facts()));
        for (name, label, want) in [
            ("itg_run_info", "a \"b\"\\\n", 1.0),
            ("itg_view_number", "", 4.0),
            ("itg_view_members", "", 3.0),
            ("itg_workers", "", 1.0),
            ("itg_lease_remaining_seconds", "", 1.25),
            ("itg_flow_sent_packets_total", "2", 20.0),
            ("itg_flow_lateness_max_seconds", "1", 1.5),
            ("itg_lateness_seconds_bucket", "0.000001000", 3.0),
            ("itg_lateness_seconds_bucket", "0.000016000", 4.0),
            ("itg_lateness_seconds_bucket", "+Inf", 5.0),
            ("itg_lateness_seconds_count", "", 5.0),
            ("itg_flows_left_out", "", 0.0),
        ] {
            let got = value(&samples, name, label);
            assert!((got - want).abs() < 1e-12, "{name} {label}: {got}");
        }
        let buckets: Vec<f64> = samples
            .iter()
            .filter(|(name, ..)| name == "itg_lateness_seconds_bucket")
            .map(|(_, _, value)| *value)
            .collect();
        assert!(buckets.len() == 13 && buckets.is_sorted(), "{buckets:?}");
    }

    #[test]
    fn an_idle_agent_has_a_page() {
        let samples = parse(&page(&Facts::default()));
        assert!(!samples.iter().any(|(name, ..)| name == "itg_run_info"));
        assert!(value(&samples, "itg_workers", "").abs() < 1e-12);
    }

    #[test]
    fn many_flows_do_not_make_the_page_endless() {
        let mut many = Facts::default();
        many.figures.flows = (1..=1500).map(|flow| (flow, FlowFigures::default())).collect();
        let samples = parse(&page(&many));
        let lines =
            samples.iter().filter(|(name, ..)| name == "itg_flow_sent_packets_total").count();
        assert_eq!(lines, 1000);
        assert!((value(&samples, "itg_flows_left_out", "") - 500.0).abs() < 1e-12);
    }

    #[tokio::test]
    async fn requests_are_answered_or_refused() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let at = listener.local_addr().expect("an address");
        tokio::spawn(serve(listener, || async { facts() }));
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(2 * MOST_BYTES));
        for (request, want) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "HTTP/1.1 404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 405"),
            ("GET /metrics HTTP/2\r\n\r\n", "HTTP/1.1 505"),
            ("\x00\x01\x02\r\n\r\n", "HTTP/1.1 400"),
            (long.as_str(), "HTTP/1.1 431"),
        ] {
            let mut stream = TcpStream::connect(at).await.expect("a connection");
            // It may be answered and closed before all of it is read.
            drop(stream.write_all(request.as_bytes()).await);
            let mut bytes = Vec::new();
            drop(stream.read_to_end(&mut bytes).await);
            let text = String::from_utf8(bytes).expect("text");
            assert!(text.starts_with(want), "{request:.40}: {text:.80}");
            let (head, body) = text.split_once("\r\n\r\n").expect("a head");
            if request.starts_with("GET /metrics") && want.ends_with("OK") {
                assert!(head.contains("text/plain; version=0.0.4"), "{head}");
                assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head}");
                assert!(!parse(body).is_empty());
            }
            if request.starts_with("HEAD") {
                assert_eq!(body, "");
            }
        }
    }

    /// Callers that say nothing, far more than there are places, keep nobody waiting: no time-out ends any of them.
    #[tokio::test]
    async fn silent_callers_keep_nobody_from_the_page() {
        let listener = listen("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let at = listener.local_addr().expect("an address");
        let limit = Duration::from_secs(3600);
        tokio::spawn(serve_within(limit, listener, || async { facts() }));
        for from in ["127.0.0.1", "127.0.0.2"] {
            let mut crowd = Vec::new();
            for said in ["", "GET /metrics HTTP/1.1\r\n"].iter().cycle().take(40) {
                let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
                let from = SocketAddr::new(from.parse().expect("an address"), 0);
                socket.bind(from).expect("loopback");
                let mut stream = socket.connect(at).await.expect("a connection");
                // It may have lost its place already.
                drop(stream.write_all(said.as_bytes()).await);
                crowd.push(stream);
            }
            let mut stream = TcpStream::connect(at).await.expect("a connection");
            let request = "GET /metrics HTTP/1.1\r\n\r\n";
            stream.write_all(request.as_bytes()).await.expect("written");
            let mut text = String::new();
            let answer = stream.read_to_string(&mut text);
            let answered = tokio::time::timeout(Duration::from_secs(60), answer).await;
            answered.expect("the crowd keeps others from the page").expect("an answer");
            assert!(text.starts_with("HTTP/1.1 200 OK"), "{text:.80}");
            drop(crowd);
        }
    }
}
