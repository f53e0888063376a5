//! A table of the ways in which packets do not leave, arrive or get logged: each account, live and from each log, against
//! counters of both kernels. Needs root, nft, and ss.
#![allow(missing_docs, reason = "tests")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use itg_tests::{
    NFT, Namespace, Output, Pair, Receiver, Running, in_parallel, leave_out, not_run, program,
    temp_dir, wait_for,
};
use nix::sys::signal::Signal;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(90);
/// Packets that have left when something happens.
const BEFORE: u64 = 60;
static TURN: Mutex<()> = Mutex::new(());
/// Cases at a time.
const TOGETHER: usize = 8;

/// One in ten datagrams, and one in four echoes of each kind.
const DATAGRAMS: &str = "udp length > 150 numgen inc mod 10 == 3";
const REQUESTS: &str = "icmp type echo-request numgen inc mod 4 == 3";
const REPLIES: &str = "icmp type echo-reply numgen inc mod 4 == 3";

/// Direction of the packets of all flows of a case, or of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    There,
    Back,
    Both,
    RoundTrip,
}

/// A run in its middle.
struct Run<'a> {
    pair: &'a Pair,
    sending: &'a Running,
    receiver: &'a Receiver,
}

#[derive(Clone, Copy)]
struct Case {
    /// Words for the sender, behind the address, and for the receiver.
    args: &'static str,
    receiver: &'static str,
    to: &'static str,
    way: Way,
    /// Packets that the sending and the receiving host refuse to send, and drop on arrival.
    refuse: [&'static str; 2],
    lose: [&'static str; 2],
    /// What happens in the middle.
    event: Option<fn(&Run<'_>)>,
    code: i32,
    /// Packets of the plan of each flow; 0 where the test does not know it.
    planned: u64,
    /// Error by which the kernel refuses.
    errno: &'static str,
    /// Parts of the live account that must not be zero.
    parts: &'static [&'static str],
    /// True if the plan was not carried out, and that is a fault of the traffic.
    fails: bool,
}

/// A flow in whose middle something happens.
const LONG: &str = "--rate 250pps --size 200 --packets 500";

const PLAIN: Case = Case {
    args: "--rate 500pps --size 200 --packets 500",
    receiver: "",
    to: "10.77.0.2",
    way: Way::There,
    refuse: ["", ""],
    lose: ["", ""],
    event: None,
    code: 0,
    planned: 500,
    errno: "EPERM",
    parts: &[],
    fails: false,
};

/// Counts of both kernels for one direction.
#[derive(Clone, Copy, Debug)]
struct Truth {
    refused: u64,
    left: u64,
    came: u64,
    dropped: u64,
    overflowed: u64,
    /// Datagrams for which there was no socket any more.
    unheard: u64,
}

impl Truth {
    fn of(from: &Namespace, to: &Namespace) -> Self {
        Self {
            refused: from.counted("refused"),
            left: from.counted("left"),
            came: to.counted("came"),
            dropped: to.counted("dropped"),
            overflowed: to.udp_counter("RcvbufErrors"),
            unheard: to.udp_counter("NoPorts"),
        }
    }

    fn arrived(self) -> u64 {
        self.came - self.dropped - self.overflowed - self.unheard
    }
}

fn pause() {
    sleep(Duration::from_millis(400));
}

impl Run<'_> {
    /// A route for a while, which the kernel refuses packets by.
    fn route(&self, host: &Namespace, to: &str, kind: &str) {
        host.ip(&format!("route add {kind} {to}/32"));
        pause();
        host.ip(&format!("route del {kind} {to}/32"));
    }
}

/// One of the reports on a case.
struct View<'a> {
    name: &'a str,
    report: &'a Value,
}

impl View<'_> {
    fn flows(&self) -> Vec<&Value> {
        self.report["flows"].as_array().expect("a list").iter().collect()
    }
}

/// Panics unless the parts of an account add up, and those that are unknown have a reason.
fn adds_up(view: &str, flow: &Value) {
    let account = &flow["account"];
    let of = |part: &str| account[part].as_u64();
    let words = || format!("{view}: {:#}\nlost {}", account, flow["lost"]);
    for part in ["planned", "sent", "refused", "left_out", "not_reached", "arrived"] {
        let has_reason = account["why"][part].as_str().is_some_and(|why| !why.is_empty());
        assert!(of(part).is_some() || has_reason, "{part} without a reason: {}", words());
    }
    let had_turn = [of("sent"), of("refused"), of("left_out"), of("not_reached")];
    if let (Some(planned), [Some(a), Some(b), Some(c), Some(d)]) = (of("planned"), had_turn) {
        assert_eq!(planned, a + b + c + d, "{}", words());
    }
    if let (Some(sent), Some(arrived), Some(lost)) =
        (of("sent"), of("arrived"), flow["lost"].as_u64())
    {
        assert_eq!(sent, arrived + lost, "{}", words());
        let places = ["socket", "network", "unknown"].map(|place| account["lost"][place].as_u64());
        assert_eq!(places.iter().flatten().sum::<u64>(), lost, "{}", words());
    }
    if let (Some(arrived), Some(logged), Some(not)) =
        (of("arrived"), of("logged"), of("not_logged"))
    {
        assert_eq!(arrived, logged + not, "{}", words());
    }
    let refused_by = account["refused_by"].as_object().expect("an object");
    let by_errors: u64 = refused_by.values().filter_map(Value::as_u64).sum();
    assert!(refused_by.is_empty() || of("refused") == Some(by_errors), "{}", words());
}

/// Sum over flows, if each has the part.
fn sum<'a>(flows: impl Iterator<Item = &'a Value>, path: &str) -> Option<u64> {
    flows.map(|flow| flow.pointer(path).expect(path).as_u64()).sum()
}

fn is_reverse(case: &Case, flow: &Value) -> bool {
    case.way == Way::Back || flow["name"] == "reverse"
}

/// Compares the flows of one direction, as one side has them, with the counts of the kernels.
fn compare(case: &Case, view: &View<'_>, side: &str, reverse: bool, [truth, back]: [Truth; 2]) {
    let of_side = |flow: &&Value| flow["side"] == side && is_reverse(case, flow) == reverse;
    let flows = || view.flows().into_iter().filter(of_side);
    if flows().next().is_none() {
        return;
    }
    // A round trip's arrivals are those at the side that tells.
    let at_sender = case.way == Way::RoundTrip && side == "sender";
    // Where there is no route, no firewall is asked.
    let refused = match sum(flows(), "/account/planned") {
        Some(planned) if case.errno != "EPERM" => planned - truth.left,
        _ => truth.refused,
    };
    let arrivals = if at_sender { back } else { truth };
    for (path, want) in [
        ("/account/refused", refused),
        ("/account/sent", truth.left),
        ("/account/arrived", arrivals.arrived()),
        ("/lost", truth.left - arrivals.arrived()),
        ("/account/lost/socket", arrivals.overflowed),
    ] {
        if let Some(have) = sum(flows(), path) {
            let accounts: Vec<_> = flows().map(|flow| &flow["account"]).collect();
            let words = format!("{}, {side}: {truth:?} {back:?}: {accounts:#?}", view.name);
            assert_eq!((path, have), (path, want), "{words}");
        }
    }
}

/// Judges what a report says of all flows of a case.
fn check(case: &Case, view: &View<'_>, truths: Option<[Truth; 2]>) {
    for flow in view.flows() {
        adds_up(view.name, flow);
        let verdict = &flow["fidelity"]["verdict"];
        let account = &flow["account"];
        let words = format!("{}: {verdict} {account:#} {:#}", view.name, flow["fidelity"]);
        let of = |part: &str| account[part].as_u64();
        if let (Some(planned), Some(sent)) = (of("planned"), of("sent")) {
            let much = (planned - sent) * 100 > planned;
            // An interrupt is the user's wish, and changes no verdict.
            let why = account["why"]["not_reached"].as_str().unwrap_or("");
            assert!(!much || verdict != "pass" || why.starts_with("interrupted by"), "{words}");
        }
        let planned = of("planned").is_none_or(|planned| [0, planned].contains(&case.planned));
        assert!(planned, "{words}");
        let causes = flow["fidelity"]["causes"].as_array().expect("a list");
        let incomplete = causes.contains(&"incomplete".into());
        // Another direction of the same run may have nothing to complain of, and a side that was left alone nothing
        // to judge by.
        let judged = case.way != Way::Both && of("sent").is_some();
        let silent = case.fails && !judged && (case.way == Way::Both || verdict == "unknown");
        assert!(incomplete == case.fails || silent, "{words}");
        assert!(!incomplete || verdict == "fail", "{words}");
        for (errno, _) in account["refused_by"].as_object().expect("an object") {
            assert_eq!(errno, case.errno, "{words}");
        }
    }
    if let Some([there, back]) = truths {
        for side in ["sender", "receiver"] {
            compare(case, view, side, false, [there, back]);
            compare(case, view, side, true, [back, there]);
        }
    }
}

fn decoded(logs: &[&Path]) -> (Value, Output) {
    let done = itg_tests::decode(&[logs, &[Path::new("--format"), Path::new("json")]].concat());
    let report = serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"));
    (report, done)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(' ').filter(|word| !word.is_empty())
}

/// Two hosts that count, and refuse and drop as the case says.
fn hosts(case: &Case) -> Pair {
    let pair = Pair::new();
    for (host, k) in [(&pair.sender, 0), (&pair.receiver, 1)] {
        host.count();
        for (rule, take) in [
            (case.refuse[k], Namespace::refuse as fn(&Namespace, &str)),
            (case.lose[k], Namespace::lose),
        ] {
            if !rule.is_empty() {
                take(host, rule);
            }
        }
    }
    pair
}

fn row(case: &Case) {
    let (pair, dir) = (hosts(case), temp_dir());
    let log = |name: &str| dir.path().join(name);
    let (ours, theirs) = (log("s.itg"), log("r.itg"));
    let mut command = pair.receiver.command(&program("itg-recv"));
    command.args(["-v", "--allow-reverse", "--log"]).arg(&theirs).args(words(case.receiver));
    let receiver = Receiver::run(&mut command);
    let mut command = pair.sender.command(&program("itg-send"));
    command.arg(case.to).args(words(case.args)).args(["--json", "--log"]).arg(&ours);
    let sending = Running::start(&mut command);
    if let Some(event) = case.event {
        let from = if case.way == Way::Back { &pair.receiver } else { &pair.sender };
        let counter = if case.args.contains("tcp") { "segments" } else { "left" };
        let left = || from.counted(counter);
        wait_for("packets have left", LIMIT, || left() >= BEFORE);
        event(&Run { pair: &pair, sending: &sending, receiver: &receiver });
    }
    let done = sending.finish(LIMIT);
    receiver.running.signal(Signal::SIGINT);
    drop(receiver.running.finish(LIMIT));
    let there = Truth::of(&pair.sender, &pair.receiver);
    let back = Truth::of(&pair.receiver, &pair.sender);
    // Segments of a stream are no packets of a flow.
    let truths = (!case.args.contains("tcp")).then_some([there, back]);
    for (name, logs) in [
        ("log of the sender", &[ours.as_path()][..]),
        ("log of the receiver", &[theirs.as_path()]),
        ("both logs", &[ours.as_path(), theirs.as_path()]),
    ] {
        let (report, _) = decoded(logs);
        check(case, &View { name, report: &report }, truths);
    }
    let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done}"));
    let live = View { name: "live", report: &report };
    let done = done.exits(case.code);
    check(case, &live, truths);
    let accounts: Vec<_> = live.flows().iter().map(|flow| flow["account"].clone()).collect();
    for part in case.parts {
        let some = accounts.iter().any(|account| account[part].as_u64().is_some_and(|n| n > 0));
        assert!(some, "{part}: {accounts:#?} {done}");
    }
}

fn table(cases: &[(&str, Case)]) {
    if not_run() {
        return;
    }
    if !Path::new(NFT).exists() {
        return leave_out(NFT);
    }
    // One table after another: a busy machine is late for what happens in the middle.
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    for some in cases.chunks(TOGETHER) {
        in_parallel(some, row);
    }
}

#[test]
fn what_a_kernel_refuses() {
    const REFUSED: Case =
        Case { code: 1, fails: true, refuse: [DATAGRAMS, ""], parts: &["refused"], ..PLAIN };
    const ICMP: Case = Case { refuse: [REQUESTS, ""], ..REFUSED };
    table(&[
        ("udp", REFUSED),
        ("udp, IPv6", Case { to: "fd77::2", ..REFUSED }),
        ("udp, all", Case { refuse: ["udp length > 150", ""], ..REFUSED }),
        ("icmp", Case { args: "--proto icmp --rate 500pps --size 200 --packets 500", ..ICMP }),
        (
            "icmp, round trip",
            Case {
                args: "--proto icmp --meter rtt --rate 500pps --size 200 --packets 500",
                way: Way::RoundTrip,
                ..ICMP
            },
        ),
        (
            "udp, reverse",
            Case {
                args: "--reverse --rate 500pps --size 200 --packets 500",
                way: Way::Back,
                refuse: ["", DATAGRAMS],
                ..REFUSED
            },
        ),
        (
            "udp, both ways, here",
            Case {
                args: "--bidir --rate 500pps --size 200 --packets 500",
                way: Way::Both,
                ..REFUSED
            },
        ),
        (
            "udp, both ways, there",
            Case {
                args: "--bidir --rate 500pps --size 200 --packets 500",
                way: Way::Both,
                refuse: ["", DATAGRAMS],
                ..REFUSED
            },
        ),
        (
            "on and off",
            Case {
                args: "--rate 500pps --size 200 --on-off exp(50ms),exp(50ms) --duration 1s",
                planned: 0,
                ..REFUSED
            },
        ),
        (
            "three flows",
            Case {
                args: "--rate 300pps --size 200 --packets 300 --flows 3",
                planned: 300,
                ..REFUSED
            },
        ),
        ("bytes", Case { args: "--rate 500pps --size 200 --bytes 100kB", ..REFUSED }),
        ("duration", Case { args: "--rate 500pps --size 200 --duration 1s", ..REFUSED }),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_lost_on_the_way() {
    const LOST: Case = Case { lose: ["", DATAGRAMS], ..PLAIN };
    const ICMP: Case = Case {
        args: "--proto icmp --rate 500pps --size 200 --packets 500",
        lose: ["", REQUESTS],
        ..PLAIN
    };
    const TRIPS: Case = Case {
        args: "--meter rtt --rate 500pps --size 200 --packets 500",
        way: Way::RoundTrip,
        ..LOST
    };
    const ECHOES: Case = Case {
        args: "--proto icmp --meter rtt --rate 500pps --size 200 --packets 500",
        way: Way::RoundTrip,
        ..ICMP
    };
    const BACK: Case = Case {
        args: "--reverse --rate 500pps --size 200 --packets 500",
        way: Way::Back,
        lose: [DATAGRAMS, ""],
        ..PLAIN
    };
    table(&[
        ("udp", LOST),
        ("udp, IPv6", Case { to: "fd77::2", ..LOST }),
        ("icmp", ICMP),
        ("udp, there of a round trip", TRIPS),
        ("udp, back of a round trip", Case { lose: [DATAGRAMS, ""], ..TRIPS }),
        ("icmp, there of a round trip", ECHOES),
        ("icmp, back of a round trip", Case { lose: [REPLIES, ""], ..ECHOES }),
        ("udp, reverse", BACK),
        (
            "udp, both ways",
            Case {
                args: "--bidir --rate 500pps --size 200 --packets 500",
                way: Way::Both,
                lose: [DATAGRAMS, DATAGRAMS],
                ..PLAIN
            },
        ),
        (
            "udp, three flows",
            Case { args: "--rate 300pps --size 200 --packets 300 --flows 3", planned: 300, ..LOST },
        ),
        (
            "on and off",
            Case {
                args: "--rate 500pps --size 200 --on-off exp(50ms),exp(50ms) --duration 1s",
                planned: 0,
                ..LOST
            },
        ),
        (
            "udp, all at the end",
            Case {
                args: LONG,
                event: Some(|run| run.pair.receiver.lose("udp length > 150")),
                ..PLAIN
            },
        ),
        (
            "udp, while the link is down",
            Case {
                args: LONG,
                event: Some(|run| {
                    run.pair.receiver.link(false);
                    pause();
                    run.pair.receiver.link(true);
                }),
                ..PLAIN
            },
        ),
        (
            "udp, a full socket",
            Case {
                args: LONG,
                receiver: "--receive-buffer 4kB",
                event: Some(|run| {
                    run.receiver.running.signal(Signal::SIGSTOP);
                    pause();
                    run.receiver.running.signal(Signal::SIGCONT);
                }),
                ..PLAIN
            },
        ),
        (
            "udp, the full socket of three flows",
            Case {
                args: "--rate 150pps --size 200 --packets 300 --flows 3",
                planned: 300,
                receiver: "--receive-buffer 4kB",
                event: Some(|run| {
                    run.receiver.running.signal(Signal::SIGSTOP);
                    pause();
                    run.receiver.running.signal(Signal::SIGCONT);
                }),
                ..PLAIN
            },
        ),
        (
            "udp, reverse, all at the end",
            Case {
                args: "--reverse --rate 250pps --size 200 --packets 500",
                event: Some(|run| run.pair.sender.lose("udp length > 150")),
                lose: ["", ""],
                ..BACK
            },
        ),
        (
            "tcp, which sends again",
            Case {
                args: "--proto tcp --rate 500pps --size 200 --packets 500",
                lose: ["", "tcp dport 8999 numgen inc mod 50 == 3"],
                ..PLAIN
            },
        ),
        (
            "as fast as possible, by packets",
            Case { args: "--rate max --size 200 --packets 2000", planned: 2000, ..LOST },
        ),
        (
            "as fast as possible, by bytes",
            Case { args: "--rate max --size 200 --bytes 100kB", planned: 500, ..LOST },
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_a_flow_does_not_reach() {
    const GONE: Case = Case { code: 1, fails: true, parts: &["refused"], args: LONG, ..PLAIN };
    const ICMP: &str = "--proto icmp --rate 250pps --size 200 --packets 500";
    const TCP: &str = "--proto tcp --rate 250pps --size 200 --packets 500";
    const CUT: Case =
        Case { args: TCP, planned: 500, code: 4, fails: true, parts: &["not_reached"], ..PLAIN };
    const STOPPED: Case = Case { parts: &["not_reached"], ..PLAIN };
    table(&[
        (
            "no route",
            Case {
                errno: "ENETUNREACH",
                event: Some(|run| {
                    run.pair.sender.ip("route del 10.77.0.0/24 dev link0");
                    pause();
                    run.pair.sender.ip("route add 10.77.0.0/24 dev link0");
                }),
                ..GONE
            },
        ),
        (
            "no route, icmp",
            Case {
                args: ICMP,
                errno: "ENETUNREACH",
                event: Some(|run| {
                    run.pair.sender.ip("route del 10.77.0.0/24 dev link0");
                    pause();
                    run.pair.sender.ip("route add 10.77.0.0/24 dev link0");
                }),
                ..GONE
            },
        ),
        (
            "an unreachable host",
            Case {
                errno: "EHOSTUNREACH",
                event: Some(|run| run.route(&run.pair.sender, "10.77.0.2", "unreachable")),
                ..GONE
            },
        ),
        (
            "a prohibited host",
            Case {
                errno: "EACCES",
                event: Some(|run| run.route(&run.pair.sender, "10.77.0.2", "prohibit")),
                ..GONE
            },
        ),
        (
            "a black hole",
            Case {
                errno: "EINVAL",
                event: Some(|run| run.route(&run.pair.sender, "10.77.0.2", "blackhole")),
                ..GONE
            },
        ),
        (
            "an unreachable host, reverse",
            Case {
                args: "--reverse --rate 250pps --size 200 --packets 500",
                way: Way::Back,
                errno: "EHOSTUNREACH",
                event: Some(|run| run.route(&run.pair.receiver, "10.77.0.1", "unreachable")),
                ..GONE
            },
        ),
        (
            "tcp, reset by the receiver's host",
            Case {
                event: Some(|run| {
                    drop(run.pair.receiver.run("ss", "-K dst 10.77.0.1 sport = 8999"));
                }),
                ..CUT
            },
        ),
        (
            "tcp, a round trip, reset",
            Case {
                args: "--proto tcp --meter rtt --rate 250pps --size 200 --packets 500",
                way: Way::RoundTrip,
                event: Some(|run| {
                    drop(run.pair.sender.run("ss", "-K dst 10.77.0.2 dport = 8999"));
                }),
                ..CUT
            },
        ),
        (
            "tcp, reverse, reset by the receiving host",
            Case {
                args: "--reverse --proto tcp --rate 250pps --size 200 --packets 500",
                way: Way::Back,
                event: Some(|run| {
                    drop(run.pair.sender.run("ss", "-K dst 10.77.0.2 dport != 9000"));
                }),
                ..CUT
            },
        ),
        (
            "tcp, reverse, reset by the sending host",
            Case {
                args: "--reverse --proto tcp --rate 250pps --size 200 --packets 500",
                way: Way::Back,
                event: Some(|run| {
                    drop(run.pair.receiver.run("ss", "-K dst 10.77.0.1 sport != 9000"));
                }),
                ..CUT
            },
        ),
        (
            "SIGTERM",
            Case { code: 143, event: Some(|run| run.sending.signal(Signal::SIGTERM)), ..STOPPED },
        ),
        (
            "SIGHUP",
            Case { code: 129, event: Some(|run| run.sending.signal(Signal::SIGHUP)), ..STOPPED },
        ),
        (
            "SIGINT of three flows",
            Case {
                args: "--rate 150pps --size 200 --packets 300 --flows 3",
                planned: 300,
                code: 130,
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGINT, tcp",
            Case {
                args: TCP,
                planned: 500,
                code: 130,
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGINT, reverse",
            Case {
                args: "--reverse --rate 250pps --size 200 --packets 500",
                way: Way::Back,
                code: 130,
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGTERM, round trips",
            Case {
                args: "--meter rtt --rate 250pps --size 200 --packets 500",
                way: Way::RoundTrip,
                code: 143,
                event: Some(|run| run.sending.signal(Signal::SIGTERM)),
                ..STOPPED
            },
        ),
        (
            "SIGINT of the receiver",
            Case {
                args: "--rate 250pps --size 200 --packets 500",
                code: 4,
                fails: true,
                event: Some(|run| run.receiver.running.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "packets left out of a sender that stood still",
            Case {
                args: "--rate 250pps --size 200 --packets 500 --late drop",
                code: 0,
                parts: &["left_out"],
                event: Some(|run| {
                    run.sending.signal(Signal::SIGSTOP);
                    pause();
                    run.sending.signal(Signal::SIGCONT);
                }),
                ..PLAIN
            },
        ),
    ]);
}
