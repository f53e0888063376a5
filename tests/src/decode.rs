//! Logs as `itg-decode` tells of them.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use itg_testkit::child::{Output, Running};
use serde_json::Value;

use crate::program::program;

/// One line of `--packets --format csv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Number of the flow.
    pub flow: u32,
    /// Sequence number.
    pub seq: u64,
    /// Size in bytes.
    pub size: u64,
    /// Planned, nanoseconds from the start of the flow.
    pub planned: Option<u64>,
    /// Sent, Unix nanoseconds.
    pub sent: Option<u64>,
    /// Arrived, Unix nanoseconds.
    pub arrived: Option<u64>,
    /// Read, Unix nanoseconds.
    pub read: Option<u64>,
    /// Run id, where there are several.
    pub run: String,
}

/// Runs `itg-decode`.
#[track_caller]
#[must_use]
pub fn decode<A: AsRef<OsStr>>(args: &[A]) -> Output {
    let mut command = Command::new(program("itg-decode"));
    Running::start(command.args(args)).finish(Duration::from_secs(60))
}

/// All packets of sound logs; of one run they do not say which.
#[track_caller]
#[must_use]
pub fn packets<P: AsRef<Path>>(logs: &[P]) -> Vec<Packet> {
    let mut args: Vec<&OsStr> = logs.iter().map(|log| log.as_ref().as_os_str()).collect();
    args.extend(["--packets", "--format", "csv"].map(OsStr::new));
    let done = decode(&args).exits(0);
    let mut lines = done.out.lines();
    let header = lines.next().unwrap_or_else(|| panic!("no header: {}", done.err));
    let more = header.strip_prefix("flow,seq,size_bytes,planned_ns,sent_ns,arrived_ns,read_ns");
    let named = match more {
        Some("") => false,
        Some(",run") => true,
        _ => panic!("not the header: `{header}`"),
    };
    lines.map(|line| packet(line, named)).collect()
}

#[track_caller]
fn packet(line: &str, named: bool) -> Packet {
    let (numbers, run) = match line.rsplit_once(',') {
        Some((numbers, run)) if named => (numbers, run),
        Some(_) if !named => (line, ""),
        _ => panic!("not a packet: `{line}`"),
    };
    let cells: Vec<_> = numbers
        .split(',')
        .map(|cell| {
            let number = || panic!("`{cell}` in `{line}`");
            (!cell.is_empty()).then(|| cell.parse::<u64>().unwrap_or_else(|_| number()))
        })
        .collect();
    let [Some(flow), Some(seq), Some(size), planned, sent, arrived, read] = cells[..] else {
        panic!("not a packet: `{line}`")
    };
    let flow = u32::try_from(flow).expect("a number of a flow");
    Packet { flow, seq, size, planned, sent, arrived, read, run: run.to_owned() }
}

/// The plan by flow: sequence number, size and planned time of each packet, in order.
#[must_use]
pub fn lists(packets: &[Packet]) -> BTreeMap<u32, Vec<(u64, u64, u64)>> {
    let mut lists = BTreeMap::<u32, Vec<_>>::new();
    for packet in packets {
        let planned = packet.planned.unwrap_or_else(|| panic!("no planned time: {packet:?}"));
        lists.entry(packet.flow).or_default().push((packet.seq, packet.size, planned));
    }
    lists
}

/// The JSON report of sound logs.
#[track_caller]
#[must_use]
pub fn json<P: AsRef<Path>>(logs: &[P]) -> Value {
    let mut args: Vec<&OsStr> = logs.iter().map(|log| log.as_ref().as_os_str()).collect();
    args.extend(["--format", "json"].map(OsStr::new));
    let done = decode(&args).exits(0);
    serde_json::from_str(&done.out).unwrap_or_else(|error| panic!("{error}: {done}"))
}
