//! A table of the ways in which packets do not leave, arrive or get their turn: each account, live and from each log,
//! against counters of both kernels. Needs root, nft, and ss.
#![allow(missing_docs, reason = "tests")]

use itg_tests::{Case, DATAGRAMS, LONG, NFT, PLAIN, REPLIES, REQUESTS, Way, pause, table};
use nix::sys::signal::Signal;

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_a_kernel_refuses() {
    const REFUSED: Case =
        Case { code: Some(1), fails: true, refuse: [DATAGRAMS, ""], parts: &["refused"], ..PLAIN };
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
        (
            "udp, what comes back",
            Case {
                args: "--meter rtt --rate 500pps --size 200 --packets 500",
                way: Way::RoundTrip,
                refuse: ["", DATAGRAMS],
                ..PLAIN
            },
        ),
        (
            "tcp, which sends again",
            Case {
                args: "--proto tcp --rate 500pps --size 200 --packets 500",
                refuse: ["meta l4proto tcp meta length > 150 numgen inc mod 50 == 3", ""],
                ..PLAIN
            },
        ),
        (
            "udp, four flows of two sockets",
            Case {
                args: "--sockets 2 --flows 4 --rate 100pps --size 200 --packets 100",
                refuse: ["udp length > 150 numgen inc mod 9 == 3", ""],
                planned: 100,
                ..REFUSED
            },
        ),
    ]);
}

#[test]
fn plans_that_are_carried_out() {
    const TCP: Case = Case { args: "--proto tcp --rate 500pps --size 200 --packets 500", ..PLAIN };
    table(&[
        ("udp", PLAIN),
        ("icmp", Case { args: "--proto icmp --rate 500pps --size 200 --packets 500", ..PLAIN }),
        ("tcp", TCP),
        (
            "tcp, round trips",
            Case {
                args: "--proto tcp --meter rtt --rate 500pps --size 200 --packets 500",
                way: Way::RoundTrip,
                ..TCP
            },
        ),
        (
            "tcp, reverse",
            Case {
                args: "--reverse --proto tcp --rate 500pps --size 200 --packets 500",
                way: Way::Back,
                ..TCP
            },
        ),
        (
            "tcp, both ways",
            Case {
                args: "--bidir --proto tcp --rate 500pps --size 200 --packets 500",
                way: Way::Both,
                ..TCP
            },
        ),
        (
            "tcp, as fast as possible",
            Case { args: "--proto tcp --rate max --size 200 --bytes 1MB", planned: 5000, ..TCP },
        ),
        (
            "tcp, as fast as possible for a time",
            Case { args: "--proto tcp --rate max --size 200 --duration 100ms", planned: 0, ..TCP },
        ),
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
            "udp, a queue of the sending host that is too short",
            Case {
                args: LONG,
                event: Some(|run| {
                    run.pair
                        .sender
                        .tc("qdisc add dev link0 root tbf rate 200kbit burst 2kb limit 1kb");
                }),
                ..PLAIN
            },
        ),
        (
            "udp, to another station",
            Case {
                args: LONG,
                event: Some(|run| {
                    let neighbour = "10.77.0.2 lladdr 02:00:00:00:00:99 dev link0 nud";
                    run.pair.sender.ip(&format!("neigh replace {neighbour} permanent"));
                    pause();
                    run.pair.sender.ip("neigh del 10.77.0.2 dev link0");
                }),
                ..PLAIN
            },
        ),
        (
            "udp, while a route of the way back is away",
            Case {
                args: "--meter rtt --rate 250pps --size 200 --packets 500",
                way: Way::RoundTrip,
                event: Some(|run| run.route(&run.pair.receiver, "10.77.0.1", "unreachable")),
                ..PLAIN
            },
        ),
        (
            "udp, whose sender is told that nobody listens",
            Case {
                args: LONG,
                event: Some(|run| {
                    let packets = "udp length > 150 numgen inc mod 10 == 3";
                    let rule =
                        format!("add rule inet a lose {packets} counter name dropped reject");
                    run.pair.receiver.run(NFT, &rule);
                }),
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
    const GONE: Case =
        Case { code: Some(1), fails: true, parts: &["refused"], args: LONG, ..PLAIN };
    const ICMP: &str = "--proto icmp --rate 250pps --size 200 --packets 500";
    const TCP: &str = "--proto tcp --rate 250pps --size 200 --packets 500";
    const CUT: Case = Case {
        args: TCP,
        planned: 500,
        code: Some(4),
        fails: true,
        parts: &["not_reached"],
        ..PLAIN
    };
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
            Case {
                code: Some(143),
                event: Some(|run| run.sending.signal(Signal::SIGTERM)),
                ..STOPPED
            },
        ),
        (
            "SIGHUP",
            Case {
                code: Some(129),
                event: Some(|run| run.sending.signal(Signal::SIGHUP)),
                ..STOPPED
            },
        ),
        (
            "SIGINT of three flows",
            Case {
                args: "--rate 150pps --size 200 --packets 300 --flows 3",
                planned: 300,
                code: Some(130),
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGINT, tcp",
            Case {
                args: TCP,
                planned: 500,
                code: Some(130),
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGINT, reverse",
            Case {
                args: "--reverse --rate 250pps --size 200 --packets 500",
                way: Way::Back,
                code: Some(130),
                event: Some(|run| run.sending.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "SIGTERM, round trips",
            Case {
                args: "--meter rtt --rate 250pps --size 200 --packets 500",
                way: Way::RoundTrip,
                code: Some(143),
                event: Some(|run| run.sending.signal(Signal::SIGTERM)),
                ..STOPPED
            },
        ),
        (
            "SIGINT of the receiver",
            Case {
                args: "--rate 250pps --size 200 --packets 500",
                code: Some(4),
                fails: true,
                event: Some(|run| run.receiver.running.signal(Signal::SIGINT)),
                ..STOPPED
            },
        ),
        (
            "packets left out of a sender that stood still",
            Case {
                args: "--rate 250pps --size 200 --packets 500 --late drop",
                code: Some(0),
                parts: &["left_out"],
                event: Some(|run| {
                    run.sending.signal(Signal::SIGSTOP);
                    pause();
                    run.sending.signal(Signal::SIGCONT);
                }),
                ..PLAIN
            },
        ),
        (
            "SIGTERM, both ways",
            Case {
                args: "--bidir --rate 250pps --size 200 --packets 500",
                way: Way::Both,
                code: Some(143),
                event: Some(|run| run.sending.signal(Signal::SIGTERM)),
                ..STOPPED
            },
        ),
        (
            "tcp, both ways, reset by the receiver's host",
            Case {
                args: "--bidir --proto tcp --rate 250pps --size 200 --packets 500",
                way: Way::Both,
                event: Some(|run| {
                    drop(run.pair.receiver.run("ss", "-K dst 10.77.0.1 sport = 8999"));
                }),
                ..CUT
            },
        ),
    ]);
}
