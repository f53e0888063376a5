//! Logs of D-ITG, out.

use std::collections::BTreeMap;
use std::io::{self, Write};

use itg_classic::log::Packet;
use itg_stats::PacketLine;
use itg_stats::report::Report;

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
