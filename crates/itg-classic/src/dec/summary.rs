//! The summary as ITGDec prints it.

use super::figures::{Figures, FlowFigures};
use crate::number::{fixed, quotient};

const RULE: &str = "----------------------------------------------------------\n";
const LINE: &str = "__________________________________________________________\n";

/// Appends `label = value unit`.
fn row(out: &mut Vec<u8>, label: &str, value: &str, unit: &str) {
    let blank = if unit.is_empty() { "" } else { " " };
    out.extend_from_slice(format!("{label:<25}= {value:>13}{blank}{unit}\n").as_bytes());
}

fn real(out: &mut Vec<u8>, label: &str, value: f64, unit: &str) {
    row(out, label, &fixed(value, 13), unit);
}

/// `part / (packets + lost)`, 0 when nothing was sent.
fn share(part: f64, packets: u64, lost: u64) -> f64 {
    let sent = packets.wrapping_add(lost);
    if sent == 0 { 0.0 } else { part / sent as f64 }
}

/// A hundred times the loss of all flows: the product wraps at 32 bits, as in D-ITG.
#[allow(clippy::cast_possible_truncation, reason = "32 bits, as in D-ITG")]
fn wrapped_percent(lost: u64) -> f64 {
    f64::from((lost as u32).wrapping_mul(100))
}

/// The lines that flows and total share, from the total time on.
struct Block {
    time: f64,
    packets: u64,
    bytes: u64,
    lost: u64,
    /// Share of packets lost, in percent.
    share: f64,
    burst: String,
}

impl Block {
    fn write(&self, delays: &super::figures::Delays, out: &mut Vec<u8>) {
        let rate = |amount: f64| if self.time > 0.0 { amount / self.time } else { 0.0 };
        real(out, "Total time", self.time, "s");
        row(out, "Total packets", &self.packets.to_string(), "");
        real(out, "Minimum delay", delays.min, "s");
        real(out, "Maximum delay", delays.max, "s");
        real(out, "Average delay", delays.mean(), "s");
        real(out, "Average jitter", delays.jitter(), "s");
        real(out, "Delay standard deviation", delays.deviation(), "s");
        row(out, "Bytes received", &self.bytes.to_string(), "");
        real(out, "Average bitrate", rate(self.bytes as f64 * 8.0 / 1000.0), "Kbit/s");
        real(out, "Average packet rate", rate(self.packets as f64), "pkt/s");
        let dropped = format!("{:>13} ({:.2} %)", self.lost, self.share);
        row(out, "Packets dropped", &dropped, "");
        row(out, "Average loss-burst size", &self.burst, "pkt");
    }
}

fn flow(flow: &FlowFigures, out: &mut Vec<u8>) {
    let key = &flow.key;
    out.extend_from_slice(RULE.as_bytes());
    out.extend_from_slice(format!("Flow number: {}\n", key.flow).as_bytes());
    for (label, address, port) in
        [("From ", key.src, key.src_port), ("To    ", key.dst, key.dst_port)]
    {
        out.extend_from_slice(label.as_bytes());
        out.extend(address.shown());
        out.extend_from_slice(format!(":{port}\n").as_bytes());
    }
    out.extend_from_slice(RULE.as_bytes());
    let losses = &flow.losses;
    let burst = match losses.lost {
        0 => 0.0,
        lost => quotient(lost as f64, f64::from(losses.events)),
    };
    let block = Block {
        time: flow.last_rx - flow.first_rx,
        packets: losses.packets,
        bytes: flow.bytes,
        lost: losses.lost,
        share: share(100.0 * losses.lost as f64, losses.packets, losses.lost),
        burst: fixed(burst, 13),
    };
    block.write(&flow.delays, out);
    out.extend_from_slice(RULE.as_bytes());
}

/// The whole summary: flows, then the total.
pub(super) fn render(figures: &Figures) -> Vec<u8> {
    let mut out = Vec::new();
    for one in &figures.flows {
        flow(one, &mut out);
    }
    let title = "****************  TOTAL RESULTS   ******************\n";
    out.extend_from_slice(format!("\n{LINE}{title}{LINE}").as_bytes());
    row(&mut out, "Number of flows", &figures.flows.len().to_string(), "");
    let mut block = Block {
        time: figures.last_rx() - figures.first_rx,
        packets: 0,
        bytes: 0,
        lost: 0,
        share: 0.0,
        burst: String::new(),
    };
    let mut events = 0_u32;
    for one in &figures.flows {
        block.packets += one.losses.packets;
        block.bytes += one.bytes;
        // 32 bits, as in D-ITG.
        block.lost = block.lost.wrapping_add(one.losses.lost) & 0xffff_ffff;
        events = events.wrapping_add(one.losses.events);
    }
    block.share = share(wrapped_percent(block.lost), block.packets, block.lost);
    block.burst = match block.lost {
        0 => "0".to_owned(),
        lost => fixed(quotient(lost as f64, f64::from(events)), 13),
    };
    block.write(&figures.delays, &mut out);
    row(&mut out, "Error lines", &figures.error_lines.to_string(), "");
    out.extend_from_slice(RULE.as_bytes());
    out
}
