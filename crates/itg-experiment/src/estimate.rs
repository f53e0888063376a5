//! Estimate of what a plan will send and log: counted packet by packet where that is cheap, else by
//! the means of its distributions.
//!
//! Counting is exact, because the schedule is a pure function of the seed: the run sends these
//! packets and no others (unless late packets are dropped). By means, the number of packets of a
//! flow that lasts `T` is `T · rate`, where the rate is the share of ON time over the mean
//! inter-departure time (elementary renewal theorem: Feller, vol. II, XI.1); limits of packets and
//! bytes apply to it.

use itg_core::flow::{Flow, Meter, Stop};

use crate::plan::Plan;

/// Flows of at most this many packets are counted one by one.
pub const WALK_LIMIT: u64 = 1_000_000;

/// ON and OFF periods that are walked for one flow at most.
const PERIOD_LIMIT: f64 = 4e6;

/// Bytes of one log record (`docs/formats.md`).
pub const LOG_BYTES_PER_RECORD: u32 = 40;

/// Records of one packet: sent and received, and echoed where round trips are measured.
const fn records_per_packet(meter: Meter) -> u32 {
    match meter {
        Meter::Owd => 2,
        Meter::Rtt => 3,
    }
}

/// Method by which the packets of a flow were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// One by one: exact.
    Walked,
    /// By the means of its distributions: expected.
    Means,
}

impl Method {
    /// The word in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Walked => "counted",
            Self::Means => "expected",
        }
    }
}

/// Estimate of a flow. Infinite where nothing limits it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowEstimate {
    /// Number of the flow.
    pub flow: u32,
    /// Packets.
    pub packets: f64,
    /// Bytes, the header of ITG included, headers of the protocols below excluded.
    pub bytes: f64,
    /// Mean rate that the distributions ask for over a long time, pauses included, in packets per second.
    pub packet_rate: f64,
    /// Mean rate that the distributions ask for over a long time, pauses included, in bit/s.
    pub bit_rate: f64,
    /// Bytes of log at sender and receiver together: two records a packet, three where round trips
    /// are measured; heads of blocks excluded.
    pub log_bytes: f64,
    /// Due time of its last packet, in nanoseconds from the start of the run.
    pub end_ns: f64,
    /// Method by which packets and bytes were counted.
    pub method: Method,
}

/// Estimate of all flows together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Total {
    /// Packets.
    pub packets: f64,
    /// Bytes.
    pub bytes: f64,
    /// Packets per second while all flows are active.
    pub packet_rate: f64,
    /// Bit/s while all flows are active.
    pub bit_rate: f64,
    /// Bytes of log at senders and receivers together.
    pub log_bytes: f64,
    /// Due time of the last packet, in nanoseconds from the start of the run.
    pub end_ns: f64,
}

/// Estimate of a plan.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimate {
    /// One a flow, in the order of the plan.
    pub flows: Vec<FlowEstimate>,
    /// All flows.
    pub total: Total,
    /// Requested values that cannot be met, or hardly, one sentence each.
    pub warnings: Vec<String>,
}

/// Estimates of the flows of a plan, and of all together.
pub(crate) fn of(plan: &Plan) -> (Vec<FlowEstimate>, Total) {
    let flows: Vec<_> = plan.flows.iter().map(|planned| flow(&planned.flow)).collect();
    let mut total = Total::default();
    for flow in &flows {
        total.packets += flow.packets;
        total.bytes += flow.bytes;
        total.packet_rate += flow.packet_rate;
        total.bit_rate += flow.bit_rate;
        total.log_bytes += flow.log_bytes;
        total.end_ns = total.end_ns.max(flow.end_ns);
    }
    (flows, total)
}

#[expect(clippy::cast_precision_loss, reason = "estimates need few digits")]
fn flow(flow: &Flow) -> FlowEstimate {
    let Counted { packets, bytes, last_ns, method } = count(flow);
    let packet_rate = flow.mean_packet_rate();
    FlowEstimate {
        flow: flow.spec().id,
        packets,
        bytes,
        packet_rate,
        bit_rate: packet_rate * flow.size().mean() * 8.0,
        log_bytes: packets
            * f64::from(LOG_BYTES_PER_RECORD * records_per_packet(flow.spec().meter)),
        end_ns: flow.spec().start_ns as f64 + last_ns,
        method,
    }
}

struct Counted {
    packets: f64,
    bytes: f64,
    last_ns: f64,
    method: Method,
}

fn count(flow: &Flow) -> Counted {
    let expected = by_means(flow);
    let cheap = expected.packets <= WALK_LIMIT as f64 && periods(flow, &expected) <= PERIOD_LIMIT;
    if cheap { walk(flow).unwrap_or(expected) } else { expected }
}

/// The exact count, `None` when there are more packets than expected and than the limit.
#[expect(clippy::cast_precision_loss, reason = "at most a million packets, less than 2^53 bytes")]
fn walk(flow: &Flow) -> Option<Counted> {
    let (mut packets, mut bytes, mut last_ns) = (0_u64, 0_u64, 0_u64);
    for departure in flow.schedule() {
        packets += 1;
        bytes += u64::from(departure.size);
        last_ns = departure.due_ns;
        if packets > WALK_LIMIT {
            return None;
        }
    }
    let (packets, bytes) = (packets as f64, bytes as f64);
    Some(Counted { packets, bytes, last_ns: last_ns as f64, method: Method::Walked })
}

#[expect(clippy::cast_precision_loss, reason = "estimates need few digits")]
fn by_means(flow: &Flow) -> Counted {
    let Stop { duration_ns, packets, bytes } = flow.spec().stop;
    let rate = flow.mean_packet_rate();
    let size = flow.size().mean();
    let duration_ns = duration_ns.map_or(f64::INFINITY, |ns| ns as f64);
    let by_time =
        if duration_ns.is_finite() { (rate * duration_ns / 1e9).max(1.0) } else { f64::INFINITY };
    let by_packets = packets.map_or(f64::INFINITY, |packets| packets as f64);
    let by_bytes = bytes.map_or(f64::INFINITY, |bytes| bytes as f64 / size);
    let packets = by_time.min(by_packets).min(by_bytes);
    let last_ns =
        if packets.is_finite() { (packets / rate * 1e9).min(duration_ns) } else { duration_ns };
    Counted { packets, bytes: packets * size, last_ns, method: Method::Means }
}

/// Expected number of ON periods.
fn periods(flow: &Flow, expected: &Counted) -> f64 {
    flow.on_off().map_or(0.0, |(on, off)| expected.last_ns / (on.mean() + off.mean()))
}
