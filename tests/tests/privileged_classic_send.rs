//! `itg-send --classic` live: ITG's flows to D-ITG's own `ITGRecv` and to `itg-recv`, over every transport,
//! address family and meter. What our log says was sent is what the receiver's log holds.
#![allow(missing_docs, reason = "tests")]

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use itg_classic::log::{LogRecord, records};
use itg_tests::{
    Namespace, Pair, Running, accounts, in_parallel, itgdec, json, listens, lists,
    not_run_without_d_itg, packets, program, real, temp_dir,
};
use nix::sys::signal::Signal;

const LIMIT: Duration = Duration::from_secs(60);

fn start(host: &Namespace, folder: &Path, program: &Path, args: &[&str]) -> Running {
    Running::start(host.command(program).current_dir(folder).args(args))
}

fn end(running: Running) {
    running.signal(Signal::SIGINT);
    let done = running.finish(LIMIT);
    assert!(done.signal.is_none(), "{done}");
}

fn read(log: &Path) -> Vec<LogRecord> {
    let bytes = std::fs::read(log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    assert_eq!(bytes.len() % 144, 0, "{}: part of a record", log.display());
    records(&bytes).collect()
}

#[derive(Clone, Copy, Debug)]
struct Cell {
    real: bool,
    proto: &'static str,
    six: bool,
    meter: &'static str,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { real, proto, six, meter } = self;
        let to = if *real { "ITGRecv" } else { "itg-recv" };
        write!(f, "to {to}, {proto} {} {meter}", if *six { "v6" } else { "v4" })
    }
}

fn cell(cell: &Cell) {
    const PACKETS: u64 = 40;
    let (folder, pair) = (temp_dir(), Pair::new());
    let dir = folder.path();
    std::fs::create_dir(dir.join("logs")).expect("writable");
    let receiver = if cell.real {
        start(&pair.receiver, &dir.join("logs"), &real("ITGRecv"), &[])
    } else {
        start(&pair.receiver, dir, &program("itg-recv"), &["--log-dir", "logs"])
    };
    listens(&receiver, 9000);
    let to = if cell.six { "fd77::2" } else { "10.77.0.2" };
    let flow =
        ["--proto", cell.proto, "--meter", cell.meter, "--idt", "exp(5ms)", "--packets", "40"];
    let more = ["--size", "uniform(100,1400)", "--seed", "11", "--log", "s.itg"];
    let logs = ["--recv-log", "r.log", "--classic", to];
    let args = [&flow[..], &more, &logs].concat();
    let done = start(&pair.sender, dir, &program("itg-send"), &args).finish(LIMIT).exits(0);
    end(receiver);
    let (sent, received) = (dir.join("s.itg"), dir.join("logs/r.log"));
    let theirs = read(&received);
    let planned = packets(&[&sent]);
    let planned: BTreeMap<u64, u64> =
        planned.iter().map(|packet| (packet.seq, packet.size)).collect();
    let planned: Vec<u64> = planned.into_values().collect();
    let mut by_number: Vec<(u32, u64)> =
        theirs.iter().map(|record| (record.seq, u64::from(record.size))).collect();
    by_number.sort_unstable();
    assert!(by_number.iter().map(|(seq, _)| u64::from(*seq)).eq(1..=PACKETS), "{done}");
    let sizes: Vec<u64> = by_number.iter().map(|(_, size)| *size).collect();
    assert_eq!(sizes, planned, "{cell}: {done}");
    let report = json(&[&sent]);
    let flow = &report["flows"][0];
    assert_eq!(flow["sent_packets"], PACKETS, "{done}");
    assert_eq!(accounts(&done.out).len(), 1, "{done}");
    assert!(done.out.contains(&format!("sent {PACKETS} packets")), "{done}");
    let bytes: u64 = sizes.iter().sum();
    assert!(done.out.contains(&format!("({bytes} bytes)")), "{done}");
    if cell.meter == "rtt" {
        assert!(done.out.contains("40 replies came back, 0 did not"), "{done}");
        assert_eq!(flow["packets"], PACKETS, "replies in the log");
    }
    let summary = itgdec(&real("ITGDec"), &received);
    assert!(summary.contains("Packets dropped"), "{summary}");
    let dropped = summary.lines().find(|line| line.starts_with("Packets dropped"));
    assert!(dropped.is_some_and(|line| line.ends_with(" 0 (0.00 %)")), "{summary}");
}

#[test]
fn every_packet_of_itg_send_arrives_at_both_receivers() {
    if not_run_without_d_itg() {
        return;
    }
    let mut cells = Vec::new();
    for real in [true, false] {
        for proto in ["udp", "tcp", "icmp"] {
            for six in [false, true] {
                for meter in ["owd", "rtt"] {
                    cells.push(Cell { real, proto, six, meter });
                }
            }
        }
    }
    let names: Vec<String> = cells.iter().map(ToString::to_string).collect();
    let rows: Vec<_> = names.iter().map(String::as_str).zip(cells).collect();
    // A few at a time: each has two hosts of its own.
    for some in rows.chunks(8) {
        in_parallel(some, cell);
    }
}

/// Logs at D-ITG's server, and at ours for D-ITG's programs.
#[test]
fn receivers_keep_their_log_at_a_server_when_asked() {
    if not_run_without_d_itg() {
        return;
    }
    let at_server = |(server, proto): &(&str, &str)| {
        let (folder, pair) = (temp_dir(), Pair::new());
        let dir = folder.path();
        let path = if *server == "real" { real("ITGLog") } else { program("ITGLog") };
        let server = start(&pair.sender, dir, &path, &[]);
        listens(&server, 9001);
        let receiver = start(&pair.receiver, dir, &program("ITGRecv"), &["--allow-log-servers"]);
        listens(&receiver, 9000);
        let url = format!("{proto}://10.77.0.1");
        let flow = ["--packets", "30", "--size", "200", "--classic", "10.77.0.2"];
        let logs = ["--recv-log-server", &url, "--recv-log", "there.log"];
        let args = [&flow[..], &logs].concat();
        let done = start(&pair.sender, dir, &program("itg-send"), &args).finish(LIMIT).exits(0);
        end(receiver);
        server.signal(Signal::SIGINT);
        drop(server.finish(LIMIT));
        assert_eq!(read(&dir.join("there.log")).len(), 30, "{done}");
    };
    let rows = [
        ("D-ITG's, UDP", ("real", "udp")),
        ("D-ITG's, TCP", ("real", "tcp")),
        ("ours, UDP", ("ours", "udp")),
        ("ours, TCP", ("ours", "tcp")),
    ];
    in_parallel(&rows, at_server);
}

/// The flows of an experiment file, among them several over TCP to one port, and a profile.
#[test]
fn an_experiment_is_sent_to_d_itgs_receiver() {
    if not_run_without_d_itg() {
        return;
    }
    let (folder, pair) = (temp_dir(), Pair::new());
    let dir = folder.path();
    let receiver = start(&pair.receiver, dir, &real("ITGRecv"), &["-l", "r.log"]);
    listens(&receiver, 9000);
    let text = "schema = 1\nname = \"old\"\nseed = 5\n[nodes.there]\naddress = \"10.77.0.2\"\n\
         [nodes.here]\naddress = \"10.77.0.1\"\n\
         [[flow]]\nfrom = \"here\"\nto = \"there\"\ncount = 3\nproto = \"tcp\"\nidt = \"exp(10ms)\"\npackets = 30\n\
         [[flow]]\nfrom = \"here\"\nto = \"there\"\nidt = \"constant(10ms)\"\nsize = \"exp(512)\"\npackets = 30\n\
         [[flow]]\nfrom = \"here\"\nto = \"there\"\nprofile = \"voip-g711\"\npackets = 30\n";
    std::fs::write(dir.join("old.toml"), text).expect("writable");
    let args = ["run", "old.toml", "--classic", "--log", "s.itg"];
    let done = start(&pair.sender, dir, &program("itg-send"), &args).finish(LIMIT).exits(0);
    end(receiver);
    let theirs = read(&dir.join("r.log"));
    let sent = lists(&packets(&[dir.join("s.itg")]));
    assert_eq!(sent.len(), 5, "{done}");
    for (flow, plan) in &sent {
        let mut got: Vec<_> = theirs.iter().filter(|record| record.flow == *flow).collect();
        got.sort_by_key(|record| record.seq);
        let got: Vec<u64> = got.iter().map(|record| u64::from(record.size)).collect();
        let want: Vec<u64> = plan.iter().map(|(_, size, _)| *size).collect();
        assert_eq!((got.len(), got), (30, want), "flow {flow}: {done}");
    }
    drop(done.says("flow 4: size: ").says("drawn again").says("does not tell what arrives"));
}
