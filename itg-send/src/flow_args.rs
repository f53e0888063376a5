//! The flow of a command line: the same values as in an experiment file.

use std::str::FromStr;

use clap::Args;
use itg_experiment::{
    ByteCount, Count, Dscp, Ecn, FlowEntry, FlowRate, LateRule, MeterKind, PayloadKind, ProtoName,
    SendRate, SizeDistribution, TimeDistribution, TimeSpan, ValueError,
};

#[derive(Debug, Args)]
pub(crate) struct FlowArgs {
    /// Transport protocol: udp, tcp, icmp, sctp or dccp [default: the profile's, or udp]
    #[arg(long)]
    proto: Option<ProtoName>,
    /// Distribution of inter-departure times [default: the profile's, or constant(1ms)]
    #[arg(long, value_name = "DIST", conflicts_with = "rate")]
    idt: Option<TimeDistribution>,
    /// Constant inter-departure times such that this rate holds on average, as 10Mbps or 50kpps; max: as fast as
    /// possible
    #[arg(short = 'b', long)]
    rate: Option<SendRate>,
    /// Distribution of packet sizes in bytes, ITG's header included [default: the profile's, or
    /// constant(512)]
    #[arg(short = 'l', long, value_name = "DIST")]
    size: Option<SizeDistribution>,
    /// Application profile, as voip-g711, quake3 or voip-g729.2:header=crtp,vad=yes, or a file
    #[arg(long, value_name = "NAME[:k=v,…]")]
    profile: Option<String>,
    /// Bursts: the distributions of the ON and the OFF periods, as exp(1s),constant(500ms)
    #[arg(long, value_name = "ON,OFF")]
    on_off: Option<OnOff>,
    /// End after this time [default: 10s when no other limit is given]
    #[arg(long, value_name = "T")]
    duration: Option<TimeSpan>,
    /// As --duration, in seconds where it has no unit
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = time_or_seconds, conflicts_with = "duration")]
    time: Option<TimeSpan>,
    /// End after this many packets
    #[arg(long, value_name = "N")]
    packets: Option<Count>,
    /// End before this many bytes are passed
    #[arg(long, value_name = "N")]
    bytes: Option<ByteCount>,
    /// Start after this time
    #[arg(long, value_name = "T")]
    start_after: Option<TimeSpan>,
    /// Delay to measure: owd (one-way) or rtt (round-trip) [default: owd]
    #[arg(long)]
    meter: Option<MeterKind>,
    /// Number of equal flows, each with its own random streams
    #[arg(short = 'P', long, value_name = "N", default_value_t = 1)]
    flows: u32,
    /// Spread the starts of these flows evenly over this time, so that their packets do not leave at one instant
    #[arg(long, value_name = "T", requires = "flows")]
    stagger: Option<TimeSpan>,
    /// Data port at the receiver [default: the receiver's, usually 8999]
    #[arg(long, value_name = "PORT")]
    dest_port: Option<u16>,
    /// Source address, with a zone for link-local IPv6 (fe80::1%eth0)
    #[arg(long, value_name = "ADDR")]
    source: Option<String>,
    /// Source port
    #[arg(long, value_name = "PORT")]
    source_port: Option<u16>,
    /// Interface to send from
    #[arg(long, value_name = "NAME")]
    interface: Option<String>,
    /// IPv4 time to live or IPv6 hop limit, 1 to 255
    #[arg(long, value_name = "N")]
    ttl: Option<u8>,
    /// Differentiated-services code point: EF, AF41, CS1, … or 0 to 63
    #[arg(long, value_name = "X")]
    dscp: Option<Dscp>,
    /// ECN field: not-ect, ect0, ect1, ce or 0 to 3
    #[arg(long, value_name = "X")]
    ecn: Option<Ecn>,
    /// Let TCP gather small writes (Nagle's algorithm)
    #[arg(long)]
    nagle: bool,
    /// Content of packets: random, pattern:HEX or file:PATH [default: random, from the seed]
    #[arg(long)]
    payload: Option<PayloadKind>,
    /// Packets that could not leave in time: keep (send late, the mean rate holds) or drop (leave out
    /// what is more than 1 ms late, and count) [default: keep]
    #[arg(long)]
    late: Option<LateRule>,
    /// At most this many packets back to back to catch up
    #[arg(long, value_name = "N")]
    max_burst: Option<u32>,
    /// Burst mode (UDP): N packets at a time, 2 to 64, leave when the first of them is due, with one pass
    /// through the network stack; far more packets a second, and marked as bursts everywhere
    #[arg(long, value_name = "N", conflicts_with_all = ["on_off", "max_burst"])]
    burst: Option<u32>,
    /// Congestion control of TCP, by the kernel's name: cubic, reno, bbr, … [default: the system's]
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Let the kernel send TCP no faster than this, as 10Mbps
    #[arg(long, value_name = "RATE")]
    pacing_rate: Option<FlowRate>,
}

impl FlowArgs {
    /// The same flow as an entry of an experiment file.
    pub(crate) fn entry(self) -> FlowEntry {
        FlowEntry {
            count: Some(self.flows),
            proto: self.proto,
            profile: self.profile,
            idt: self.idt,
            rate: self.rate,
            size: self.size,
            on_off: self.on_off.map(|periods| [periods.on, periods.off]),
            start: self.start_after,
            stagger: self.stagger,
            duration: self.duration.or(self.time),
            packets: self.packets,
            bytes: self.bytes,
            meter: self.meter,
            ttl: self.ttl,
            dscp: self.dscp,
            ecn: self.ecn,
            source: self.source,
            source_port: self.source_port,
            dest_port: self.dest_port,
            interface: self.interface,
            nagle: self.nagle.then_some(true),
            payload: self.payload,
            late: self.late,
            max_burst: self.max_burst,
            burst: self.burst,
            congestion: self.congestion,
            pacing_rate: self.pacing_rate,
            ..FlowEntry::default()
        }
    }
}

/// A time, or a number of seconds.
fn time_or_seconds(text: &str) -> Result<TimeSpan, String> {
    let seconds = text.parse::<f64>().is_ok().then(|| format!("{text}s"));
    seconds.as_deref().unwrap_or(text).parse().map_err(|error: ValueError| error.to_string())
}

/// Two distributions with a comma between them.
#[derive(Clone, Debug)]
struct OnOff {
    on: TimeDistribution,
    off: TimeDistribution,
}

impl FromStr for OnOff {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut depth = 0usize;
        let comma = text.char_indices().find(|&(_, c)| {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0
        });
        let (at, _) = comma.ok_or_else(|| {
            format!(
                "`{text}` is one distribution, expected two with a comma: exp(1s),constant(500ms)"
            )
        })?;
        let distribution =
            |text: &str| text.trim().parse::<TimeDistribution>().map_err(|error| error.to_string());
        Ok(Self { on: distribution(&text[..at])?, off: distribution(&text[at + 1..])? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_without_a_unit_are_seconds() {
        for (text, want) in
            [("10", Some(10_000)), ("0.5", Some(500)), ("20ms", Some(20)), ("x", None)]
        {
            let got = time_or_seconds(text).ok().map(|time| time.0 / 1_000_000);
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn two_distributions_are_split_at_the_outer_comma() {
        for (text, good) in [
            ("exp(1s),constant(500ms)", true),
            ("uniform(1s,2s), trunc(exp(1s),0,5s)", true),
            ("uniform(1s,2s)", false),
            ("exp(1s),nonsense", false),
        ] {
            assert_eq!(text.parse::<OnOff>().is_ok(), good, "input {text:?}");
        }
    }
}
