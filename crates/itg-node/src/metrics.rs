//! A page for Prometheus: what a program tells of itself, and the server of it.
//!
//! Text exposition format 0.0.4 over HTTP/1.1: `GET /metrics`, and `GET /healthz`, which says in a line whether the
//! program can serve. One answer for each connection, which is closed then. Not encrypted, open to all that reach the port; so it is off unless asked for.
//! Bounds: connections at the same time, in all and of one address, bytes and header fields of a request, time for
//! all of it, pages in a second. A caller that says nothing gives its place to the next one.

use std::fmt::{Display, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use httparse::Status;
use itg_core::text::visible;
use itg_socket::clock;
use nix::sys::statvfs::statvfs;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::connection_slots::{ConnectionSlots, SlotLimits};

/// Connections at the same time. Their requests are short: all of them are silent to the last byte, so the oldest
/// one of the address that has the most gives way.
const PLACES: SlotLimits = SlotLimits { total: 16, per_address: 8 };
/// Longest request.
const MOST_BYTES: usize = 8 << 10;
/// Most header fields of a request.
const MOST_HEADERS: usize = 64;
/// Time that a connection may last.
const LIMIT: Duration = Duration::from_secs(5);
/// Time for which those who ask get the same page: whoever reaches the port causes no more work than that.
const FRESH: Duration = Duration::from_millis(100);
/// Longest value of a label, in characters; of a longer one the rest is cut off.
const MOST_CHARACTERS: usize = 128;

/// Free bytes of a disk below which it is full.
const FULL: u64 = 1 << 20;

/// Text of a page, family by family.
#[derive(Debug, Default)]
pub struct MetricsPage {
    text: String,
}

impl MetricsPage {
    /// A page that begins with the program, its version, and when it started, in Unix nanoseconds.
    #[must_use]
    pub fn new(program: &str, version: &str, started_unix_ns: u64) -> Self {
        let mut page = Self::default();
        page.head("itg_build_info", "gauge", "The program and its version.");
        page.line("itg_build_info", &[("program", program), ("version", version)], 1);
        let help = "When the program started, in Unix time.";
        page.one("process_start_time_seconds", "gauge", help, seconds(started_unix_ns));
        page
    }

    fn write(&mut self, line: std::fmt::Arguments<'_>) {
        self.text.write_fmt(line).unwrap_or_else(|error| unreachable!("a String: {error}"));
    }

    /// Begins a family: its name, its kind, and what it is.
    pub fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.write(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family. Labels may be any text.
    pub fn line(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escaped(value))).collect();
        match labels.is_empty() {
            true => self.write(format_args!("{name} {value}\n")),
            false => self.write(format_args!("{name}{{{}}} {value}\n", labels.join(","))),
        }
    }

    /// A family of one sample without labels.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.line(name, &[], value);
    }

    /// The samples of one histogram: numbers of values up to each bound and, last, of all; and their sum.
    pub fn histogram(
        &mut self,
        name: &str,
        labels: &[(&str, &str)],
        bounds_ns: &[u64],
        (up_to, sum): (&[u64], impl Display),
    ) {
        let bucket = format!("{name}_bucket");
        let bounds = bounds_ns.iter().map(|&ns| seconds(ns)).chain(["+Inf".to_owned()]);
        for (bound, count) in bounds.zip(up_to) {
            let mut with_bound = labels.to_vec();
            with_bound.push(("le", &bound));
            self.line(&bucket, &with_bound, count);
        }
        self.line(&format!("{name}_sum"), labels, sum);
        self.line(&format!("{name}_count"), labels, up_to.last().copied().unwrap_or(0));
    }

    /// The whole text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }
}

/// Nanoseconds as seconds, exactly and without zeros at the end.
#[must_use]
pub fn seconds(ns: u64) -> String {
    let text = format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A value of a label: not longer than others, without what moves the cursor; backslash and quote are escaped.
fn escaped(value: &str) -> String {
    let cut: String = value.chars().take(MOST_CHARACTERS).collect();
    visible(&cut).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Server of a page.
#[derive(Debug)]
pub struct MetricsServer {
    listener: TcpListener,
    /// When the newest page that was handed over was made, in nanoseconds of `clock::machine_ns`.
    served: Arc<AtomicU64>,
    /// Directories that the program writes to.
    dirs: Vec<PathBuf>,
    /// Names of this host, for requests that call it by one.
    names: Vec<String>,
}

impl MetricsServer {
    /// Listens where the page shall be.
    ///
    /// # Errors
    /// The system's: a port that is taken, an address that this host does not have.
    pub async fn bind(address: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let names = vec!["localhost".to_owned(), itg_socket::host::name()];
        Ok(Self { listener, served: Arc::default(), dirs: Vec::new(), names })
    }

    /// Sets directories that the program writes to: where one of them has no room, `/healthz` says so.
    #[must_use]
    pub fn writing_to(mut self, dirs: impl IntoIterator<Item = PathBuf>) -> Self {
        self.dirs.extend(dirs);
        self
    }

    /// Adds names by which requests may call this host, beside its addresses, `localhost` and its own name: a browser
    /// that a stranger's name has led here tells that name.
    #[must_use]
    pub fn named(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.names.extend(names);
        self
    }

    /// The address where the page is.
    ///
    /// # Errors
    /// The system's.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// When the newest page that was handed over was made, in nanoseconds of `clock::machine_ns`; 0 before the first.
    /// Follows a server that runs as well.
    #[must_use]
    pub fn served(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.served)
    }

    /// Serves the page, made anew when it is asked for, as long as the task runs.
    pub async fn serve<F, T>(self, page: F)
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = String> + Send + 'static,
    {
        self.serve_within(LIMIT, page).await;
    }

    /// The same, with this time for each connection.
    async fn serve_within<F, T>(self, limit: Duration, page: F)
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: Future<Output = String> + Send + 'static,
    {
        let places = ConnectionSlots::new(PLACES);
        let pages = Arc::new(Pages {
            make: page,
            fresh: FRESH,
            last: Mutex::new(None),
            served: self.served,
            dirs: self.dirs,
            names: self.names,
        });
        loop {
            let (stream, peer) = match self.listener.accept().await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(%error, "metrics: a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Nobody settles, so there is always a place.
            let Ok(place) = places.take(peer.ip()) else { continue };
            let pages = Arc::clone(&pages);
            tokio::spawn(async move {
                let answering = tokio::time::timeout(limit, answer(stream, &pages));
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
}

/// A page, and when it was made.
type Made = (Arc<str>, u64);

/// The pages, the last one kept for a moment.
struct Pages<F> {
    make: F,
    fresh: Duration,
    last: Mutex<Option<(Instant, Made)>>,
    served: Arc<AtomicU64>,
    dirs: Vec<PathBuf>,
    names: Vec<String>,
}

/// The answer to a question for the health of a program that writes to these directories.
fn health(dirs: &[PathBuf]) -> (&'static str, String) {
    let trouble = dirs.iter().find_map(|dir| match statvfs(dir) {
        Ok(disk) => {
            let free = disk.blocks_available().saturating_mul(disk.fragment_size());
            (free < FULL).then(|| format!("the disk of {} is full", dir.display()))
        }
        Err(error) => Some(format!("{}: {}", dir.display(), error.desc())),
    });
    match trouble {
        None => ("200 OK", "ok\n".to_owned()),
        Some(why) => ("503 Service Unavailable", why + "\n"),
    }
}

impl<F, T> Pages<F>
where
    F: Fn() -> T,
    T: Future<Output = String>,
{
    /// Returns true unless a request is for another host: for an address, one of our names, or without any.
    fn is_called(&self, headers: &[httparse::Header<'_>]) -> bool {
        let mut hosts = headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
        hosts.all(|header| {
            let Ok(host) = std::str::from_utf8(header.value).map(str::trim) else { return false };
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
            let is_address = host.parse::<SocketAddr>().is_ok()
                || host.parse::<Ipv4Addr>().is_ok()
                || bare.is_some_and(|host| host.parse::<Ipv6Addr>().is_ok());
            let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
            is_address || self.names.iter().any(|known| known.eq_ignore_ascii_case(name))
        })
    }

    async fn get(&self) -> Made {
        let mut last = self.last.lock().await;
        if let Some((made, page)) = &*last
            && made.elapsed() < self.fresh
        {
            return page.clone();
        }
        let made_ns = clock::machine_ns();
        let page: Made = ((self.make)().await.into(), made_ns);
        *last = Some((Instant::now(), page.clone()));
        page
    }
}

async fn answer<F, T>(mut stream: TcpStream, pages: &Pages<F>) -> std::io::Result<()>
where
    F: Fn() -> T,
    T: Future<Output = String>,
{
    let mut bytes = Vec::with_capacity(MOST_BYTES);
    let mut made = 0;
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
                ("431 Request Header Fields Too Large", "", "too long\n".into())
            }
            Err(httparse::Error::Version) => {
                ("505 HTTP Version Not Supported", "", "HTTP/1.1\n".into())
            }
            Err(_) => ("400 Bad Request", "", "no request\n".into()),
            Ok(Status::Complete(_)) if !pages.is_called(request.headers) => (
                "421 Misdirected Request",
                "",
                "this host is not called so here: use its address, or --metrics-host NAME\n".into(),
            ),
            Ok(Status::Complete(_)) => match (request.method, request.path) {
                (Some("GET" | "HEAD"), Some(path))
                    if path.split('?').next() == Some("/metrics") =>
                {
                    let (page, made_ns) = pages.get().await;
                    made = made_ns;
                    ("200 OK", "", page)
                }
                (Some("GET" | "HEAD"), Some(path))
                    if path.split('?').next() == Some("/healthz") =>
                {
                    let dirs = pages.dirs.clone();
                    let looking = tokio::task::spawn_blocking(move || health(&dirs));
                    let (status, said) = looking.await.map_err(std::io::Error::other)?;
                    (status, "", said.into())
                }
                (Some("GET" | "HEAD"), _) => {
                    ("404 Not Found", "", "see /metrics and /healthz\n".into())
                }
                _ => ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "GET\n".into()),
            },
        };
        reply(&mut stream, status, more, &body, request.method != Some("HEAD")).await?;
        if made > 0 && request.method == Some("GET") {
            pages.served.fetch_max(made, Ordering::Relaxed);
        }
        return Ok(());
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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

    fn page() -> String {
        let mut page = MetricsPage::new("itg-test", "1.2.3", 1_500_000_000);
        page.head("itg_run_info", "gauge", "The run.");
        let long = "x".repeat(10 * MOST_CHARACTERS);
        page.line("itg_run_info", &[("run", "a \"b\"\\"), ("name", &long)], 1);
        page.head("itg_delay_seconds", "histogram", "Delays.");
        page.histogram(
            "itg_delay_seconds",
            &[("flow", "1")],
            &[1_000, 2_000_000_000],
            (&[3, 4, 5], 0.5),
        );
        page.into_text()
    }

    #[test]
    fn the_page_is_what_prometheus_reads() {
        let samples = parse(&page());
        let value = |name: &str, le: Option<&str>| {
            let its = |labels: &BTreeMap<String, String>| {
                le.is_none_or(|le| labels.get("le").is_some_and(|its| its == le))
            };
            let found = samples.iter().find(|(n, labels, _)| n == name && its(labels));
            found.unwrap_or_else(|| panic!("{name} {le:?}")).2
        };
        for (name, le, want) in [
            ("process_start_time_seconds", None, 1.5),
            ("itg_delay_seconds_bucket", Some("0.000001"), 3.0),
            ("itg_delay_seconds_bucket", Some("2"), 4.0),
            ("itg_delay_seconds_bucket", Some("+Inf"), 5.0),
            ("itg_delay_seconds_sum", None, 0.5),
            ("itg_delay_seconds_count", None, 5.0),
        ] {
            assert!((value(name, le) - want).abs() < 1e-12, "{name} {le:?}");
        }
        let info = &samples.iter().find(|(name, ..)| name == "itg_run_info").expect("a run").1;
        assert_eq!(info["run"], "a \"b\"\\");
        assert_eq!(info["name"].len(), MOST_CHARACTERS);
    }

    /// Labels that a peer chooses are one line of the page, whatever is in them.
    #[test]
    fn hostile_labels_stay_labels() {
        for text in [
            "\n# TYPE x counter\nx 1\n",
            "\"} 1\nx{y=\"",
            "\\",
            "\\\"",
            "\r\0\u{1b}[2J",
            "\u{202e}",
        ] {
            let mut page = MetricsPage::default();
            page.head("itg_run_info", "gauge", "The run.");
            page.line("itg_run_info", &[("name", text)], 1);
            let samples = parse(&page.into_text());
            assert_eq!(samples.len(), 1, "{text:?}");
            let name = &samples[0].1["name"];
            assert!(!name.chars().any(char::is_control), "{text:?}: {name:?}");
        }
    }

    #[tokio::test]
    async fn whoever_asks_often_gets_the_same_page() {
        for (fresh, want) in [(Duration::from_secs(3600), "0"), (Duration::ZERO, "9")] {
            let made = AtomicU64::new(0);
            let pages = Pages {
                make: || std::future::ready(made.fetch_add(1, Ordering::Relaxed).to_string()),
                fresh,
                last: Mutex::new(None),
                served: Arc::default(),
                dirs: Vec::new(),
                names: Vec::new(),
            };
            let mut last = pages.get().await;
            for _ in 0..9 {
                last = pages.get().await;
            }
            assert_eq!(&*last.0, want);
        }
    }

    #[tokio::test]
    async fn requests_are_answered_or_refused() {
        let server =
            MetricsServer::bind("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let at = server.address().expect("an address");
        tokio::spawn(server.named(["probe.lab".to_owned()]).serve(|| async { page() }));
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(2 * MOST_BYTES));
        for (request, want) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n\r\n", "HTTP/1.1 421"),
            ("GET /healthz HTTP/1.1\r\nHost: x:1\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nHost: \r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics HTTP/1.1\r\nhost: Localhost:9464\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]:9464\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: [::1]\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: 10.0.0.3\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: Probe.lab:9464\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /metrics HTTP/1.1\r\nHost: probe.lab\r\nHost: x\r\n\r\n", "HTTP/1.1 421"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "HTTP/1.1 200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
            ("GET /healthz HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK"),
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
        let server =
            MetricsServer::bind("127.0.0.1:0".parse().expect("an address")).await.expect("a port");
        let at = server.address().expect("an address");
        let limit = Duration::from_secs(3600);
        tokio::spawn(server.serve_within(limit, || async { page() }));
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
