//! Requested values that a host or a path will hardly meet. Nothing is refused: a warning says what to expect.

use itg_core::flow::{Flow, Meter, Proto, Stop};
use itg_core::header;
use itg_core::text::grouped;
use itg_core::units::{format_bit_rate, format_duration_ns};

use crate::estimate::{self, Estimate, FlowEstimate, Total};
use crate::numbers::{count, size};
use crate::plan::{Plan, PlannedFlow};

/// Packets per second that one host can hardly send or receive through sockets.
const HARD_PACKET_RATE: f64 = 1e6;
/// Bit/s that one host can hardly send or receive through sockets.
const HARD_BIT_RATE: f64 = 1e10;
/// Path that is supposed where none is known: Ethernet, with IPv4.
const ETHERNET: PathMtu = PathMtu { mtu: 1500, ipv6: false };
/// Bytes of log that a user should have thought of.
const LARGE_LOG: f64 = 1e10;

/// Largest IP packet that goes whole to a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PathMtu {
    /// Its bytes.
    pub mtu: u32,
    /// True for a path of IPv6, whose header is longer.
    pub ipv6: bool,
}

impl Plan {
    /// Estimate of what the plan will send and log, with the requested values that will hardly be met.
    #[must_use]
    pub fn estimate(&self) -> Estimate {
        self.estimate_on(|_| None)
    }

    /// As [`Plan::estimate`], where the paths of flows may be known.
    #[must_use]
    pub fn estimate_on(&self, path: impl FnMut(&PlannedFlow) -> Option<PathMtu>) -> Estimate {
        let (flows, total) = estimate::of(self);
        let warnings = of(self, &flows, &total, path);
        Estimate { flows, total, warnings }
    }
}

fn of(
    plan: &Plan,
    flows: &[FlowEstimate],
    total: &Total,
    mut path: impl FnMut(&PlannedFlow) -> Option<PathMtu>,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (planned, estimate) in plan.flows.iter().zip(flows) {
        let flow = &planned.flow;
        let id = flow.spec().id;
        let of_flow = [
            rates(estimate.packet_rate, estimate.bit_rate),
            end(flow, estimate),
            bursts(flow),
            fragments(flow, estimate.packets, || path(planned)),
            short_packets(flow, estimate.packets),
            traffic_class(flow),
            hop_limit(flow),
            system(flow),
        ];
        notes.extend(of_flow.into_iter().flatten().map(|text| (id, text)));
    }
    let mut warnings = grouped(&notes);
    let alone = flows.iter().any(|flow| rates(flow.packet_rate, flow.bit_rate).is_some());
    let together = (!alone).then(|| rates(total.packet_rate, total.bit_rate)).flatten();
    warnings.extend(together.map(|text| format!("all flows together: {text}")));
    if total.log_bytes > LARGE_LOG && total.log_bytes.is_finite() {
        let bytes = size(total.log_bytes);
        warnings.push(format!("the logs will take {bytes}: see that the disks have room"));
    }
    warnings
}

fn rates(packet_rate: f64, bit_rate: f64) -> Option<String> {
    if packet_rate.is_infinite() {
        return Some("no gaps: sends as fast as the host and the path allow".to_owned());
    }
    if packet_rate > HARD_PACKET_RATE {
        let rate = count(packet_rate);
        return Some(format!("{rate} packets/s: few hosts reach 1 M packets/s through sockets"));
    }
    (bit_rate > HARD_BIT_RATE).then(|| {
        let rate = format_bit_rate(bit_rate);
        format!("{rate}: few hosts reach 10 Gbit/s through sockets")
    })
}

fn end(flow: &Flow, estimate: &FlowEstimate) -> Option<String> {
    let stop = flow.spec().stop;
    if stop == Stop::default() {
        return Some(
            "no end: `run` refuses it: give the experiment a `duration`, or the flow `duration`, \
             `packets` or `bytes`"
                .to_owned(),
        );
    }
    if estimate.packets < 1.0 {
        return Some("sends nothing: the first packet exceeds the limit of bytes".to_owned());
    }
    #[expect(clippy::cast_precision_loss, reason = "compares magnitudes")]
    let (gap, duration_ns) = (flow.idt().mean(), stop.duration_ns.map(|ns| (ns, ns as f64)));
    let (ns, duration) = duration_ns?;
    (gap > duration && stop.packets != Some(1)).then(|| {
        let (gap, duration) = (nanoseconds(gap), format_duration_ns(ns));
        format!(
            "the mean gap, {gap}, is longer than the flow, {duration}: hardly more than a packet"
        )
    })
}

fn bursts(flow: &Flow) -> Option<String> {
    let (on, _) = flow.on_off()?;
    let (on, gap) = (on.mean(), flow.idt().mean());
    (on < gap).then(|| {
        let (on, gap) = (nanoseconds(on), nanoseconds(gap));
        format!("ON periods, {on} on average, are shorter than the mean gap, {gap}: many are empty")
    })
}

fn fragments(flow: &Flow, packets: f64, path: impl FnOnce() -> Option<PathMtu>) -> Option<String> {
    let transport = flow.spec().proto.properties();
    if transport.is_stream {
        return None;
    }
    let known = path();
    let PathMtu { mtu, ipv6 } = known.unwrap_or(ETHERNET);
    let most = mtu.saturating_sub(if ipv6 { 40 } else { 20 } + transport.header_len);
    let share = 1.0 - flow.size().distribution().cdf(f64::from(most) + 0.5);
    happens(share, packets).then(|| {
        let (share, they) = (percent(share), "they travel in fragments, or not at all");
        match known {
            Some(_) => format!(
                "{share} of the packets exceed {most} bytes: the MTU on the way there is {mtu}, so that {they}"
            ),
            None => format!(
                "{share} of the packets exceed {most} bytes: where the path's MTU is {mtu} {they}"
            ),
        }
    })
}

fn short_packets(flow: &Flow, packets: f64) -> Option<String> {
    let frame = if flow.spec().proto.properties().is_stream { header::FRAME_LEN } else { 0 };
    let full = header::FULL_LEN + frame;
    let share = flow.size().distribution().cdf(f64::from(full) - 0.5);
    happens(share, packets).then(|| {
        let share = percent(share);
        format!(
            "{share} of the packets are shorter than {full} bytes and carry no time of sending: \
             their delay needs the sender's log"
        )
    })
}

fn traffic_class(flow: &Flow) -> Option<String> {
    let spec = flow.spec();
    (spec.proto == Proto::Tcp && spec.socket.tos.is_some_and(|tos| tos & 3 != 0))
        .then(|| "TCP sets the ECN field itself: the wish for `ecn` has no effect".to_owned())
}

fn hop_limit(flow: &Flow) -> Option<String> {
    (flow.spec().socket.ttl == Some(1))
        .then(|| "a time to live of 1 ends at the first router".to_owned())
}

fn system(flow: &Flow) -> Option<String> {
    let text = match (flow.spec().proto, flow.spec().meter) {
        (Proto::Icmp, _) => "ICMP needs root, CAP_NET_RAW, or a group in net.ipv4.ping_group_range",
        (Proto::Sctp, _) => "SCTP needs a kernel that has it (modprobe sctp)",
        (Proto::Dccp, _) => "DCCP needs a kernel that has it (Linux before 6.16, modprobe dccp)",
        (Proto::Tcp, Meter::Rtt) => {
            "the round-trip time over TCP includes waiting in both hosts' send buffers"
        }
        _ => return None,
    };
    Some(text.to_owned())
}

/// Returns true if this share of so many packets is half a packet or more.
fn happens(share: f64, packets: f64) -> bool {
    share * packets.min(1e12) >= 0.5
}

/// A share for people: never "0 %" for something that happens.
fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        p if p < 0.1 => "less than 0.1 %".to_owned(),
        p if p >= 99.95 => "all".to_owned(),
        p => format!("{p:.1} %"),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a mean gap is positive; beyond 584 years the text saturates"
)]
fn nanoseconds(ns: f64) -> String {
    // Four digits are enough for people.
    let step = 10_f64.powf((ns.log10().floor() - 3.0).max(0.0));
    format_duration_ns(((ns / step).round() * step) as u64)
}
