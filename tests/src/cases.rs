//! Cases of packets that do not leave, arrive or get logged, and their accounts against counters of both kernels.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::Duration;

use itg_testkit::child::Running;
use itg_testkit::host::{Tmpfs, in_parallel, leave_out, not_run, temp_dir, wait_for};
use nix::sys::signal::Signal;
use serde_json::Value;

use crate::firewall::NFT;
use crate::namespace::{Namespace, Pair};
use crate::program::program;
use crate::receiver::Receiver;

const LIMIT: Duration = Duration::from_secs(90);
/// Packets that have left when something happens.
const BEFORE: u64 = 60;
static TURN: Mutex<()> = Mutex::new(());
/// Cases at a time.
const TOGETHER: usize = 8;

/// One in ten datagrams.
pub const DATAGRAMS: &str = "udp length > 150 numgen inc mod 10 == 3";
/// One in four echoes asked for.
pub const REQUESTS: &str = "icmp type echo-request numgen inc mod 4 == 3";
/// One in four echoes answered.
pub const REPLIES: &str = "icmp type echo-reply numgen inc mod 4 == 3";

/// Direction of the packets of all flows of a case, or of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// To the receiving host.
    There,
    /// Reverse flows.
    Back,
    /// Flows each way.
    Both,
    /// Packets that come back.
    RoundTrip,
}

/// A run in its middle.
#[derive(Debug)]
pub struct Run<'a> {
    /// The hosts.
    pub pair: &'a Pair,
    /// `itg-send`.
    pub sending: &'a Running,
    /// `itg-recv`.
    pub receiver: &'a Receiver,
}

/// A run, what befalls it, and what its accounts have to say.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// Words for the sender, behind the address.
    pub args: &'static str,
    /// Words for the receiver.
    pub receiver: &'static str,
    /// Address of the receiver.
    pub to: &'static str,
    /// Direction of the packets.
    pub way: Way,
    /// Packets that the sending and the receiving host refuse to send.
    pub refuse: [&'static str; 2],
    /// Packets that they drop on arrival.
    pub lose: [&'static str; 2],
    /// Sizes of the disks of both logs; unlimited where empty.
    pub disks: [&'static str; 2],
    /// Event in the middle.
    pub event: Option<fn(&Run<'_>)>,
    /// Exit code of the sender; `None` if it is killed.
    pub code: Option<i32>,
    /// Packets of the plan of each flow; 0 where the test does not know it.
    pub planned: u64,
    /// Error by which the kernel refuses.
    pub errno: &'static str,
    /// Parts of the live account that must not be zero.
    pub parts: &'static [&'static str],
    /// True if the plan was not carried out, and that is a fault of the traffic.
    pub fails: bool,
}

/// Bytes of a packet.
const SIZE: u64 = 200;
/// A flow in whose middle something happens.
pub const LONG: &str = "--rate 250pps --size 200 --packets 500";

/// A flow that goes to its end.
pub const PLAIN: Case = Case {
    args: "--rate 500pps --size 200 --packets 500",
    receiver: "",
    to: "10.77.0.2",
    way: Way::There,
    refuse: ["", ""],
    lose: ["", ""],
    disks: ["", ""],
    event: None,
    code: Some(0),
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
    /// Segments that were sent again, and counted again.
    again: u64,
}

impl Truth {
    fn of(from: &Namespace, to: &Namespace) -> Self {
        Self {
            refused: from.counted("refused"),
            left: from.counted("left"),
            came: to.counted("came"),
            dropped: to.counted("dropped"),
            overflowed: to.kernel_counter("Udp:", "RcvbufErrors"),
            unheard: to.kernel_counter("Udp:", "NoPorts"),
            again: 0,
        }
    }

    /// The same of packets in a stream: its kernels send again what is dropped.
    fn of_stream(from: &Namespace, to: &Namespace) -> Self {
        let (left, came) = (from.streamed("segments", SIZE), to.streamed("arriving", SIZE));
        let again = from.kernel_counter("Tcp:", "RetransSegs");
        Self { refused: 0, left, came, dropped: 0, overflowed: 0, unheard: 0, again }
    }

    fn arrived(self) -> u64 {
        self.came - self.dropped - self.overflowed - self.unheard
    }
}

/// Waits while something is out of order.
pub fn pause() {
    sleep(Duration::from_millis(400));
}

impl Run<'_> {
    /// A route for a while, which the kernel refuses packets by.
    pub fn route(&self, host: &Namespace, to: &str, kind: &str) {
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

const PARTS: [&str; 6] = ["planned", "sent", "refused", "left_out", "not_reached", "arrived"];
/// Further parts that have a number or a reason.
const MORE_PARTS: [&str; 14] = [
    "duplicated",
    "corrupted",
    "lost.socket",
    "lost.network",
    "lost.checksum",
    "lost.too_late",
    "lost.sender_host",
    "lost.rebound",
    "lost.receiver_gone",
    "lost.unknown",
    "lost_there",
    "lost_back",
    "logged",
    "not_logged",
];

/// Panics unless the parts of an account add up, and those that are unknown have a reason.
#[track_caller]
pub fn adds_up(view: &str, flow: &Value) {
    let account = &flow["account"];
    let of = |part: &str| account[part].as_u64();
    let words = || format!("{view}: {:#}\nlost {}", account, flow["lost"]);
    let has_reason = |part: &str| account["why"][part].as_str().is_some_and(|why| !why.is_empty());
    for part in PARTS.into_iter().chain(MORE_PARTS) {
        let number = account.pointer(&format!("/{}", part.replace('.', "/"))).expect(part);
        assert!(number.is_u64() || has_reason(part), "{part} without a reason: {}", words());
    }
    assert!(flow["lost"].is_u64() || has_reason("lost"), "lost without a reason: {}", words());
    let told = of("sent").is_some() && of("arrived").is_some();
    assert!(told || flow["lost"].is_null(), "who knows what was lost: {}", words());
    let had_turn = [of("sent"), of("refused"), of("left_out"), of("not_reached")];
    if let (Some(planned), [Some(a), Some(b), Some(c), Some(d)]) = (of("planned"), had_turn) {
        assert_eq!(planned, a + b + c + d, "{}", words());
    }
    if let (Some(sent), Some(arrived), Some(lost)) =
        (of("sent"), of("arrived"), flow["lost"].as_u64())
    {
        assert_eq!(sent, arrived + lost, "{}", words());
        let places = account["lost"].as_object().expect("an object").values();
        assert_eq!(places.filter_map(Value::as_u64).sum::<u64>(), lost, "{}", words());
        if let (Some(there), Some(back)) = (of("lost_there"), of("lost_back")) {
            assert_eq!(there + back, lost, "{}", words());
        }
    }
    if let (Some(arrived), Some(logged), Some(not)) =
        (of("arrived"), of("logged"), of("not_logged"))
    {
        assert_eq!(arrived, logged + not, "{}", words());
    }
    let refused_by = account["refused_by"].as_object().expect("an object");
    let by_errors: u64 = refused_by.values().filter_map(Value::as_u64).sum();
    let told = of("refused") == Some(by_errors);
    assert!(told || refused_by.is_empty() && has_reason("refused_by"), "{}", words());
}

/// Sum over flows, if each has the part.
fn sum<'a>(flows: impl Iterator<Item = &'a Value>, path: &str) -> Option<u64> {
    flows.map(|flow| flow.pointer(path).expect(path).as_u64()).sum()
}

fn is_reverse(case: &Case, flow: &Value) -> bool {
    case.way == Way::Back || case.way == Way::Both && flow["flow"] == 2
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
    // Of a stream that was cut off a part is in buffers, and what was sent again is counted again.
    let ended = !case.args.contains("tcp") || matches!(case.code, Some(0 | 1));
    let exact = ended && truth.again + back.again == 0;
    for (path, want) in [
        ("/account/refused", refused),
        ("/account/sent", truth.left),
        ("/account/arrived", arrivals.arrived()),
        ("/lost", truth.left.abs_diff(arrivals.arrived())),
        ("/account/lost/socket", arrivals.overflowed),
        ("/account/lost_there", truth.left.abs_diff(truth.arrived())),
    ] {
        let Some(have) = sum(flows(), path) else { continue };
        let accounts: Vec<_> = flows().map(|flow| &flow["account"]).collect();
        let right = match path {
            "/account/arrived" if !exact => have <= want,
            // A receiver that goes leaves what its socket has got since it last read.
            "/account/arrived" if case.code == Some(4) && !at_sender => {
                (have..have + 3).contains(&want)
            }
            "/account/sent" | "/lost" if !exact => true,
            _ => have == want,
        };
        let words = format!("{}, {side}: {truth:?} {back:?}: {accounts:#?}", view.name);
        assert!(right, "{path}: {have}, not {want}: {words}");
    }
}

/// Judges what a report says of all flows of a case.
fn check(case: &Case, view: &View<'_>, [there, back]: [Truth; 2]) {
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
        let cut = !case.disks[1].is_empty() && view.name == "both logs";
        assert!(!cut || of("not_logged").is_some_and(|packets| packets > 0), "{words}");
        // Where both sides came to their end, everything is known.
        let ended = case.code.is_some_and(|code| code != 4) && case.disks == ["", ""];
        if ended && ["live", "both logs"].contains(&view.name) {
            // As fast as possible for a time is no number of packets.
            let planless = case.args.contains("max") && case.args.contains("duration");
            for part in PARTS.into_iter().filter(|_| !planless) {
                assert!(of(part).is_some(), "{part}: {words}");
            }
            assert!(flow["lost"].is_u64(), "lost: {words}");
        }
        let planned = of("planned").is_none_or(|planned| [0, planned].contains(&case.planned));
        assert!(planned, "{words}");
        let causes = flow["fidelity"]["causes"].as_array().expect("a list");
        let incomplete = causes.contains(&"incomplete".into());
        // An interrupt is the user's, and has a cause of its own.
        let why = account["why"]["not_reached"].as_str().unwrap_or("");
        let cut = why.starts_with("interrupted") && of("not_reached") > Some(0);
        assert_eq!(causes.contains(&"interrupted".into()), cut, "{words}");
        // Another direction of the same run may have nothing to complain of, and a side that was left alone nothing
        // to judge by.
        let judged = case.way != Way::Both && of("not_reached").is_some();
        let silent = case.fails && !judged && (case.way == Way::Both || verdict != "pass");
        assert!(incomplete == case.fails || silent, "{words}");
        assert!(!incomplete || verdict == "fail", "{words}");
        for (errno, _) in account["refused_by"].as_object().expect("an object") {
            assert_eq!(errno, case.errno, "{words}");
        }
    }
    for side in ["sender", "receiver"] {
        compare(case, view, side, false, [there, back]);
        compare(case, view, side, true, [back, there]);
    }
}

fn decoded(logs: &[&Path]) -> Value {
    let done = crate::decode::decode(&[logs, &[Path::new("--format"), Path::new("json")]].concat());
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"))
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
    let disks = case.disks.map(|size| (!size.is_empty()).then(|| Tmpfs::mount(size)));
    let log = |k: usize, name| match &disks[k] {
        Some(disk) => disk.join(name),
        None => dir.path().join(name),
    };
    let [ours, reverse, theirs] = [log(0, "s.itg"), log(0, "s.itg.reverse"), log(1, "r.itg")];
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
    let truth = if case.args.contains("tcp") { Truth::of_stream } else { Truth::of };
    let truths = [truth(&pair.sender, &pair.receiver), truth(&pair.receiver, &pair.sender)];
    for (name, logs) in [
        ("log of the sender", &[&ours, &reverse][..]),
        ("log of the receiver", &[&theirs]),
        ("both logs", &[&ours, &reverse, &theirs]),
    ] {
        // Not each run has flows that come back, and who is killed early may have no log yet.
        let logs: Vec<_> =
            logs.iter().map(|log| log.as_path()).filter(|log| log.exists()).collect();
        if case.code.is_none() && logs.is_empty() {
            continue;
        }
        let report = decoded(&logs);
        check(case, &View { name, report: &report }, truths);
    }
    let Some(code) = case.code else { return };
    let report: Value = serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {done}"));
    let live = View { name: "live", report: &report };
    let done = done.exits(code);
    check(case, &live, truths);
    let accounts: Vec<_> = live.flows().iter().map(|flow| flow["account"].clone()).collect();
    for part in case.parts {
        let some = accounts.iter().any(|account| account[part].as_u64().is_some_and(|n| n > 0));
        assert!(some, "{part}: {accounts:#?} {done}");
    }
}

/// Runs all cases, some at a time.
pub fn table(cases: &[(&str, Case)]) {
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
