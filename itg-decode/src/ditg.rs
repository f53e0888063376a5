//! Logs of D-ITG, in and out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use itg_classic::log::{Packet, is_log, to_itg};
use itg_stats::PacketLine;
use itg_stats::report::Report;

use crate::map::Bytes;

/// A log of ITG as it is, one of D-ITG as a log of ITG, as far as it was written; `say` hears where that is
/// not all of it.
pub(crate) fn understood(bytes: Bytes, say: impl FnOnce(String)) -> Bytes {
    if !is_log(&bytes) {
        return bytes;
    }
    let log = to_itg(bytes.written());
    // What has been cut off meanwhile was read as zeros.
    let written = bytes.written().len();
    if written < bytes.len() {
        let left = bytes.len() - written;
        say(format!("{left} bytes from byte {written} on were never written, or are gone"));
    }
    Bytes::Read(log)
}

/// Writes the packets that arrived (or, with a sender's logs alone, were sent) as a log of D-ITG, in
/// the order of their times.
pub(crate) fn write(
    packets: &[PacketLine<'_>],
    report: &Report,
    out: &mut dyn Write,
) -> io::Result<()> {
    let arrivals = packets.iter().any(|packet| packet.arrived_ns.is_some());
    let mut lines: Vec<&PacketLine<'_>> =
        packets.iter().filter(|packet| packet.arrived_ns.is_some() == arrivals).collect();
    lines.sort_by_key(|packet| packet.arrived_ns.or(packet.sent_ns));
    let ends: BTreeMap<u32, (&str, &str)> =
        report.flows.iter().map(|flow| (flow.flow, (&*flow.src, &*flow.dst))).collect();
    for line in lines {
        let (src, dst) = ends.get(&line.flow).copied().unwrap_or(("0.0.0.0", "0.0.0.0"));
        let packet = Packet {
            flow: line.flow,
            seq: line.seq,
            size: line.size_bytes,
            src,
            dst,
            sent_ns: line.sent_ns,
            arrived_ns: line.arrived_ns,
        };
        if let Some(record) = packet.record() {
            out.write_all(&record.emit())?;
        }
    }
    Ok(())
}
