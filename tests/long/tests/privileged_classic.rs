//! D-ITG's programs and ours with one another, live: every sender with every receiver, every place
//! for logs, transport, address family and meter. Both logs hold every packet, and both decoders
//! say the same of them. Each cell has two hosts of its own.
#![allow(missing_docs, reason = "tests")]

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use itg_classic::log::records;
use itg_tests::{
    Namespace, Pair, Running, itgdec, json, listens, not_run_without_d_itg, program, real, temp_dir,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);
/// Packets of a cell, at 100 a second.
const PACKETS: u64 = 40;
/// Cells at the same time: they wait most of the time.
const TOGETHER: usize = 24;

/// Origin of a program: D-ITG's or ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Real,
    Ours,
}

impl Who {
    fn path(self, name: &str) -> PathBuf {
        match self {
            Self::Real => real(name),
            Self::Ours => program(name),
        }
    }
}

/// Destination of both logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Logs {
    Local,
    /// To `ITGLog`, by `UDP` or `TCP`.
    Itglog(Who, &'static str),
    /// To `itg-log --classic`.
    Native(&'static str),
}

impl Logs {
    /// Party whose `ITGLog` it is.
    const fn server(&self) -> Option<Who> {
        match self {
            Self::Itglog(who, _) => Some(*who),
            Self::Local | Self::Native(_) => None,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    sender: Who,
    receiver: Who,
    logs: Logs,
    transport: &'static str,
    six: bool,
    round_trip: bool,
}

impl Cell {
    /// Returns true if one of the programs is D-ITG's own.
    fn has_real(&self) -> bool {
        let parties = [Some(self.sender), Some(self.receiver), self.logs.server()];
        parties.into_iter().flatten().any(|who| matches!(who, Who::Real))
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sender, receiver, logs, transport, six, round_trip } = self;
        let family = if *six { "v6" } else { "v4" };
        let meter = if *round_trip { "rttm" } else { "owdm" };
        write!(
            f,
            "sender {sender:?}, receiver {receiver:?}, logs {logs:?}, {transport} {family} {meter}"
        )
    }
}

/// Returns true if D-ITG's own programs break a cell, always or by chance (S10 and R10 of `docs/d-itg.md`): whatever
/// comes of it says nothing of ours.
fn broken_by_d_itg(cell: &Cell) -> bool {
    let no_echo = cell.sender == Who::Real && cell.transport == "ICMP" && cell.round_trip;
    let races = cell.receiver == Who::Real && cell.logs == Logs::Itglog(Who::Real, "TCP");
    no_echo || races
}

fn cells(senders: &[Who], receivers: &[Who]) -> Vec<Cell> {
    let places = [
        Logs::Local,
        Logs::Itglog(Who::Real, "UDP"),
        Logs::Itglog(Who::Real, "TCP"),
        Logs::Itglog(Who::Ours, "UDP"),
        Logs::Itglog(Who::Ours, "TCP"),
        Logs::Native("UDP"),
        Logs::Native("TCP"),
    ];
    let mut cells = Vec::new();
    for &sender in senders {
        for &receiver in receivers {
            for logs in places {
                for transport in ["UDP", "TCP", "ICMP"] {
                    for six in [false, true] {
                        for round_trip in [false, true] {
                            cells.push(Cell { sender, receiver, logs, transport, six, round_trip });
                        }
                    }
                }
            }
        }
    }
    cells.retain(|cell| !broken_by_d_itg(cell));
    cells
}

/// A program in a namespace and a folder.
fn start(host: &Namespace, folder: &Path, program: &Path, args: &[&str]) -> Running {
    Running::start(host.command(program).current_dir(folder).args(args))
}

fn end(running: Running) -> Result<(), String> {
    running.signal(Signal::SIGINT);
    let done = running.finish(LIMIT);
    if done.signal.is_some() { Err(format!("{done}")) } else { Ok(()) }
}

/// Packets and bytes of a log.
fn amount(log: &Path) -> Result<(u64, u64), String> {
    let bytes = std::fs::read(log).map_err(|error| format!("{}: {error}", log.display()))?;
    if bytes.len() % 144 != 0 {
        return Err(format!("{}: part of a record", log.display()));
    }
    let all = records(&bytes);
    Ok((all.len() as u64, all.map(|record| u64::from(record.size)).sum()))
}

/// The figures of both decoders are the same, to the microsecond that D-ITG prints.
fn same_figures(summary: &str, flow: &serde_json::Value, side: &str) -> Result<(), String> {
    for (label, key, unit) in [
        ("Total packets", "/packets", 1.0),
        ("Bytes received", "/bytes", 1.0),
        ("Packets dropped", "/lost", 1.0),
        ("Total time", "/duration_ns", 1e9),
        ("Minimum delay", "/delay_ns/min", 1e9),
        ("Maximum delay", "/delay_ns/max", 1e9),
        ("Average delay", "/delay_ns/mean", 1e9),
        ("Average jitter", "/jitter_ns/mean", 1e9),
    ] {
        // A sender's log says nothing of losses and delays.
        let Some(ours) = flow.pointer(key).and_then(serde_json::Value::as_f64) else { continue };
        let line = summary.lines().find(|line| line.starts_with(label));
        let theirs = line.and_then(|line| line.split_once('=')).and_then(|(_, rest)| {
            rest.split_whitespace().next().and_then(|number| number.parse::<f64>().ok())
        });
        if theirs.is_none_or(|theirs| (theirs - ours / unit).abs() > 1.01e-6) {
            return Err(format!(
                "itg-decode says of the {side}'s log {key} {ours}, ITGDec {line:?}"
            ));
        }
    }
    Ok(())
}

/// Runs a cell; an error says what was not as it should be.
fn run(cell: &Cell) -> Result<(), String> {
    let folder = temp_dir();
    let pair = Pair::new();
    let place = |name: &str| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("a folder");
        path
    };
    let (at_sender, at_receiver, at_server) = (place("sender"), place("receiver"), place("server"));
    let server = match cell.logs {
        Logs::Local => None,
        Logs::Itglog(who, _) => Some(start(&pair.receiver, &at_server, &who.path("ITGLog"), &[])),
        Logs::Native(_) => {
            let args = ["--classic", "--dir", ".", "--listen", "[::1]:0"];
            Some(start(&pair.receiver, &at_server, &program("itg-log"), &args))
        }
    };
    if let Some(server) = &server {
        listens(server, 9001);
    }
    let log_here = cell.logs == Logs::Local;
    let recv_args: &[&str] = match cell.receiver {
        _ if log_here => &["-l", "r.log"],
        Who::Ours => &["--allow-log-servers"],
        Who::Real => &[],
    };
    let receiver = start(&pair.receiver, &at_receiver, &cell.receiver.path("ITGRecv"), recv_args);
    listens(&receiver, 9000);
    let packets = PACKETS.to_string();
    let dest = if cell.six { "fd77::2" } else { "10.77.0.2" };
    let mut args = vec!["-a", dest, "-C", "100", "-c", "200", "-z", &packets, "-T", cell.transport];
    if cell.transport == "ICMP" && cell.six {
        // An IPv6 echo; the default of 8 is IPv4's.
        args.push("128");
    }
    if cell.round_trip {
        args.extend(["-m", "rttm"]);
    }
    args.extend(["-l", "s.log"]);
    if let Logs::Itglog(_, proto) | Logs::Native(proto) = cell.logs {
        args.extend(["-L", "10.77.0.2", proto, "-X", "10.77.0.2", proto, "-x", "r.log"]);
    }
    let done = start(&pair.sender, &at_sender, &cell.sender.path("ITGSend"), &args).finish(LIMIT);
    if done.code != Some(0) {
        return Err(format!("{done}"));
    }
    end(receiver)?;
    server.map_or(Ok(()), end)?;
    let (sent, received) = if log_here {
        (at_sender.join("s.log"), at_receiver.join("r.log"))
    } else {
        (at_server.join("s.log"), at_server.join("r.log"))
    };
    let want = (PACKETS, PACKETS * 200);
    for (side, log) in [("sender", &sent), ("receiver", &received)] {
        let got = amount(log)?;
        if got != want {
            return Err(format!("the {side}'s log has {got:?} packets and bytes, not {want:?}"));
        }
        let (theirs, ours) = (itgdec(&real("ITGDec"), log), itgdec(&program("ITGDec"), log));
        if theirs != ours {
            return Err(format!("the {side}'s log decodes to\n{theirs}and to\n{ours}"));
        }
        let dropped = theirs.lines().find(|line| line.starts_with("Packets dropped"));
        if dropped.is_none_or(|line| !line.ends_with(" 0 (0.00 %)")) {
            return Err(format!("the {side}'s log: {dropped:?}"));
        }
        same_figures(&theirs, &json(&[log])["flows"][0], side)?;
    }
    Ok(())
}

/// Tries once, and up to three times with a program of D-ITG: those race with themselves and read
/// bytes that nobody wrote. Ours may not.
fn tried(has_real: bool, run: impl Fn() -> Result<(), String>) -> Result<(), String> {
    let once = || {
        std::panic::catch_unwind(AssertUnwindSafe(&run))
            .unwrap_or_else(|_| Err("a program hangs or fails: see above".to_owned()))
    };
    let mut went = once();
    for _ in 1..if has_real { 3 } else { 1 } {
        went = went.or_else(|_| once());
    }
    went
}

/// Runs cells, some at a time; returns what was wrong.
fn failures(cells: &[Cell]) -> Vec<String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(why) = tried(cell.has_real(), || run(cell)) {
                        failures.lock().expect("no panic").push(format!("{cell}: {why}"));
                    }
                }
            });
        }
    });
    failures.into_inner().expect("no panic")
}

#[test]
fn every_cell_of_the_matrix_works() {
    if not_run_without_d_itg() {
        return;
    }
    let cells = cells(&[Who::Real, Who::Ours], &[Who::Real, Who::Ours]);
    let failures = failures(&cells);
    let (count, all) = (failures.len(), cells.len());
    assert!(count == 0, "{count} of {all} cells:\n{}", failures.join("\n"));
}

/// Runs one of the examples of ITGapi, or the manager, against a daemon.
fn asks_a_daemon(daemon: Who, asks: &Path) {
    let folder = temp_dir();
    let pair = Pair::new();
    let receiver = start(&pair.receiver, folder.path(), &real("ITGRecv"), &["-l", "r.log"]);
    listens(&receiver, 9000);
    let args = ["-Q", "-l", "s.log"];
    let waiting = start(&pair.sender, folder.path(), &daemon.path("ITGSend"), &args);
    itg_tests::takes_datagrams(&waiting, 8998);
    let request = ["127.0.0.1", "-a", "10.77.0.2", "-C", "100", "-c", "100", "-z", "20"];
    let mut command: Command = pair.sender.command(asks);
    let done = Running::start(command.args(request)).finish(LIMIT).exits(0);
    let lines: Vec<&str> = done.out.lines().collect();
    assert!(lines.iter().any(|line| line.starts_with("1 ")), "{done}");
    let last = lines.last().expect("an answer");
    assert!(last.starts_with("2 ") && last.ends_with("-a 10.77.0.2 -C 100 -c 100 -z 20"), "{done}");
    end(receiver).expect("the receiver ends");
    end(waiting).expect("the daemon ends");
    let want = (20, 2000);
    assert_eq!(amount(&folder.path().join("r.log")), Ok(want), "{done}");
    assert_eq!(amount(&folder.path().join("s.log")), Ok(want), "{done}");
}

#[test]
fn t1_managers_in_rust_python_and_the_shell_drive_a_daemon() {
    if not_run_without_d_itg() {
        return;
    }
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/itgapi");
    let asks = [program("ITGManager"), examples.join("itgapi.py"), examples.join("itgapi.sh")];
    let both = |asks: &PathBuf| [(Who::Real, asks.clone()), (Who::Ours, asks.clone())];
    let rows: Vec<_> = asks.iter().flat_map(both).collect();
    let names: Vec<String> =
        rows.iter().map(|(who, asks)| format!("{who:?}, {}", asks.display())).collect();
    let rows: Vec<_> = names.iter().map(String::as_str).zip(rows).collect();
    itg_tests::in_parallel(&rows, |(who, asks)| {
        // D-ITG's daemon now and then takes a byte more than it was sent, and answers with it.
        let went = tried(*who == Who::Real, || {
            asks_a_daemon(*who, asks);
            Ok(())
        });
        assert_eq!(went, Ok(()));
    });
}

/// Our receiver keeps its log at our server by its own `-L`; D-ITG's sender.
fn logs_at_our_server(host: &str, proto: &str) {
    let folder = temp_dir();
    let pair = Pair::new();
    let server = start(&pair.sender, folder.path(), &program("ITGLog"), &["-q", "1"]);
    listens(&server, 9001);
    let (host, proto) = (format!("a:{host}"), format!("P:{proto}"));
    let args = ["-L", &host, &proto, "-l", "own.log"];
    let receiver = start(&pair.receiver, folder.path(), &program("ITGRecv"), &args);
    listens(&receiver, 9000);
    let flow = ["-a", "10.77.0.2", "-C", "100", "-c", "200", "-z", "40"];
    let done = start(&pair.sender, folder.path(), &real("ITGSend"), &flow).finish(LIMIT).exits(0);
    end(receiver).expect("the receiver ends");
    end(server).expect("the server ends");
    assert_eq!(amount(&folder.path().join("own.log")), Ok((40, 8000)), "{done}");
}

#[test]
fn r11_a_receiver_keeps_its_log_at_a_server_of_either_family() {
    if not_run_without_d_itg() {
        return;
    }
    let rows = [
        ("UDP", ("10.77.0.1", "UDP")),
        ("TCP", ("10.77.0.1", "TCP")),
        ("UDP, IPv6", ("fd77::1", "UDP")),
        ("TCP, IPv6", ("fd77::1", "TCP")),
    ];
    itg_tests::in_parallel(&rows, |(host, proto)| logs_at_our_server(host, proto));
}

/// D-ITG's receiver with its own `-L` over TCP dies at most of its starts; one that survives logs
/// at our server like any other client.
#[test]
fn r10_a_receiver_that_survives_its_start_logs_at_our_server() {
    if not_run_without_d_itg() {
        return;
    }
    const STARTS: usize = 60;
    let (folder, pair) = (temp_dir(), Pair::new());
    let server = start(&pair.sender, folder.path(), &program("ITGLog"), &[]);
    listens(&server, 9001);
    let args = ["-L", "a:10.77.0.1", "P:TCP", "-l", "own.log"];
    let receiver = (0..STARTS).find_map(|_| {
        let mut receiver = start(&pair.receiver, folder.path(), &real("ITGRecv"), &args);
        itg_tests::wait_for("D-ITG's receiver to live or die", LIMIT, || {
            !receiver.runs() || itg_tests::is_listening(&receiver, 9000)
        });
        receiver.runs().then_some(receiver)
    });
    let receiver = receiver.unwrap_or_else(|| panic!("died at each of {STARTS} starts"));
    let flow = ["-a", "10.77.0.2", "-C", "100", "-c", "200", "-z", "40"];
    let done =
        start(&pair.sender, folder.path(), &program("ITGSend"), &flow).finish(LIMIT).exits(0);
    end(receiver).expect("the receiver ends");
    end(server).expect("the server ends");
    assert_eq!(amount(&folder.path().join("own.log")), Ok((40, 8000)), "{done}");
}
