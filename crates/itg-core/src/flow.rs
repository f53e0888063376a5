//! Flows: the description as it is written in a file or on a command line ([`FlowSpec`]), and the
//! flow that can be run ([`Flow`]), in which every distribution has been checked against its
//! protocol.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::distribution::{self, Distribution, DistributionError, Resolved, Unit};
use crate::header;
use crate::rate::{self, RateChange};
use crate::schedule::Schedule;
use crate::seed::RunSeed;
use crate::settings::{Handling, SettingValue, Shape};
use crate::units::MAX_TIME_NS;

/// Transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Proto {
    /// UDP datagrams (RFC 768).
    Udp,
    /// A TCP connection; packets are framed in the byte stream.
    Tcp,
    /// ICMP echo requests, version 4 or 6 after the address (RFC 792, RFC 4443).
    Icmp,
    /// SCTP messages (RFC 9260).
    Sctp,
    /// DCCP packets (RFC 4340).
    Dccp,
}

impl Proto {
    /// All protocols, in the order in which help texts name them.
    pub const ALL: [Self; 5] = [Self::Udp, Self::Tcp, Self::Icmp, Self::Sctp, Self::Dccp];

    /// Their names in this order.
    pub const NAMES: [&'static str; Self::ALL.len()] = {
        let mut names = [""; Self::ALL.len()];
        let mut place = 0;
        while place < names.len() {
            names[place] = Self::ALL[place].name();
            place += 1;
        }
        names
    };

    /// The name on the command line, in files and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.properties().name
    }

    /// The names of all, as help texts and messages list them.
    #[must_use]
    pub fn names() -> String {
        let [others @ .., last] = Self::NAMES;
        format!("{} or {last}", others.join(", "))
    }

    /// Smallest packet in bytes: what the header needs.
    #[must_use]
    pub const fn min_size(self) -> u32 {
        self.properties().min_size
    }

    /// Largest packet in bytes that the protocol can carry as one unit.
    #[must_use]
    pub const fn max_size(self) -> u32 {
        self.properties().max_size
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown word where a protocol or another fixed choice was expected.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown {what} `{got}`: expected {expected}")]
pub struct UnknownChoice {
    /// Kind of the choice, such as `protocol`.
    pub what: &'static str,
    /// The word that was found.
    pub got: String,
    /// The words that are understood.
    pub expected: Cow<'static, str>,
}

impl FromStr for Proto {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|p| p.name().eq_ignore_ascii_case(text)).ok_or_else(|| {
            UnknownChoice { what: "protocol", got: text.to_owned(), expected: Self::names().into() }
        })
    }
}

/// Kind of delay that a flow measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meter {
    /// One-way delay: the receiver logs what arrives (RFC 7679).
    #[default]
    Owd,
    /// Round-trip time: the receiver sends every packet back and the sender logs the reply.
    Rtt,
}

impl FromStr for Meter {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "owd" => Ok(Self::Owd),
            "rtt" => Ok(Self::Rtt),
            _ => Err(UnknownChoice {
                what: "meter",
                got: text.to_owned(),
                expected: "owd (one-way delay) or rtt (round-trip time)".into(),
            }),
        }
    }
}

/// Treatment of a packet that could not leave at its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Late {
    /// It is sent as soon as possible: the mean rate is kept.
    #[default]
    Keep,
    /// It is left out and counted as skipped.
    Drop,
}

impl FromStr for Late {
    type Err = UnknownChoice;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "keep" => Ok(Self::Keep),
            "drop" => Ok(Self::Drop),
            _ => Err(UnknownChoice {
                what: "rule for late packets",
                got: text.to_owned(),
                expected: "keep (send late, mean rate holds) or drop (leave out and count)".into(),
            }),
        }
    }
}

/// Contents of a packet behind its header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Payload {
    /// Bytes drawn from the run seed.
    #[default]
    Random,
    /// These bytes, repeated.
    Pattern(Vec<u8>),
    /// The bytes of this file, repeated.
    File(String),
}

/// Bursts: the flow sends during ON periods and rests during OFF periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OnOff {
    /// Length of an ON period.
    #[serde(with = "distribution::as_time")]
    pub on: Distribution,
    /// Length of an OFF period.
    #[serde(with = "distribution::as_time")]
    pub off: Distribution,
}

/// Limits at which a flow ends; the most restrictive one wins, none means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// Packets due at or after this many nanoseconds from the flow's start are not sent.
    pub duration_ns: Option<u64>,
    /// Number of packets.
    pub packets: Option<u64>,
    /// Bytes, headers of ITG included; the packet that would pass the limit is not sent.
    pub bytes: Option<u64>,
}

/// Requested settings of a flow's socket; `None` leaves the system's default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketOptions {
    /// Source address, with a zone for link-local IPv6 (`fe80::1%eth0`).
    pub source: Option<String>,
    /// Source port.
    pub source_port: Option<u16>,
    /// Destination port of the data at the receiver.
    pub dest_port: Option<u16>,
    /// Interface to bind to (`SO_BINDTODEVICE`).
    pub interface: Option<String>,
    /// IPv4 time to live or IPv6 hop limit, 1–255.
    pub ttl: Option<u8>,
    /// Traffic class byte: DSCP in the upper six bits, ECN in the lower two.
    pub tos: Option<u8>,
    /// True if TCP gathers small writes (Nagle's algorithm); off unless requested.
    #[serde(default)]
    pub nagle: bool,
    /// Congestion control of TCP by the kernel's name, as `cubic` (`TCP_CONGESTION`).
    #[serde(default)]
    pub congestion: Option<String>,
    /// Most bits a second that the kernel lets TCP send (`SO_MAX_PACING_RATE`).
    #[serde(default)]
    pub pacing_rate: Option<u64>,
}

/// Most packets of a burst: what the kernel takes with one pass through its network stack.
pub const MAX_BURST: u32 = 64;
/// Most ON periods within a mean inter-departure time.
const MAX_PERIODS_A_GAP: f64 = 1e5;

/// A flow as it was asked for: [`FlowSpec::new`], then what differs from its defaults.
///
/// Its serde form is that of the notes of logs and describes itself: a new setting gets `default` and
/// `skip_serializing_if`, so that old logs are read and logs without it are what they were. The wire
/// (`itg_session`, `flow_wire`) and the hash of a plan (`itg_experiment`, `canonical`) have forms of their own.
///
/// ```
/// use itg_core::distribution::Distribution;
/// use itg_core::flow::{FlowSpec, Proto};
///
/// let spec = FlowSpec::new(1).proto(Proto::Tcp).size(Distribution::Constant(1400.0)).packets(1000);
/// assert_eq!(spec.stop.packets, Some(1000));
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FlowSpec {
    /// Number of the flow in its experiment, from 1.
    pub id: u32,
    /// Transport protocol.
    pub proto: Proto,
    /// Name of the application profile it came from.
    pub profile: Option<String>,
    /// Inter-departure time: time from a packet to the next one.
    #[serde(with = "distribution::as_time")]
    pub idt: Distribution,
    /// Packet size in bytes, the header of ITG included, headers of the protocols below excluded.
    #[serde(with = "distribution::as_size")]
    pub size: Distribution,
    /// ON and OFF periods.
    pub on_off: Option<OnOff>,
    /// Start after the start of the run, in nanoseconds.
    pub start_ns: u64,
    /// Limits at which it ends.
    pub stop: Stop,
    /// One-way or round-trip.
    pub meter: Meter,
    /// Contents of packets behind their headers.
    pub payload: Payload,
    /// Treatment of late packets.
    pub late: Late,
    /// At most this many packets leave back to back to catch up; the rest waits for its turn.
    pub max_burst: Option<u32>,
    /// Burst mode: so many packets at a time leave when the first of them is due, with one pass through
    /// the network stack where the kernel can (UDP only, 2 to [`MAX_BURST`]).
    #[serde(default)]
    pub burst: Option<u32>,
    /// Changes of the rate while the flow ran; no part of the description and of its text: logs
    /// have them beside it.
    #[serde(skip)]
    pub changes: Vec<RateChange>,
    /// Socket options.
    pub socket: SocketOptions,
    /// Settings that change none of its packets.
    #[serde(default, skip_serializing_if = "Handling::is_default")]
    pub handling: Handling,
    /// Settings of later versions that change its packets.
    #[serde(default, skip_serializing_if = "Shape::is_default")]
    pub shape: Shape,
}

impl FlowSpec {
    /// A flow with every setting at its default: UDP, one packet of 512 bytes each millisecond.
    #[must_use]
    pub fn new(id: u32) -> Self {
        Self {
            id,
            proto: Proto::Udp,
            profile: None,
            idt: Distribution::Constant(1e6),
            size: Distribution::Constant(512.0),
            on_off: None,
            start_ns: 0,
            stop: Stop::default(),
            meter: Meter::Owd,
            payload: Payload::Random,
            late: Late::Keep,
            max_burst: None,
            burst: None,
            changes: Vec::new(),
            socket: SocketOptions::default(),
            handling: Handling::default(),
            shape: Shape::default(),
        }
    }

    /// Rate in bits a second that its sender holds it to, of a stream that is to send as fast as possible.
    #[must_use]
    pub fn own_limit(&self) -> Option<u64> {
        let held = self.proto.properties().is_stream && self.idt == Distribution::Constant(0.0);
        self.socket.pacing_rate.filter(|_| held)
    }

    /// Settings of later versions that were asked for, as experiment files have them: names and values.
    pub fn later_settings(&self) -> impl Iterator<Item = (&'static str, SettingValue)> {
        self.shape.settings().chain(self.handling.settings())
    }

    /// Sets the transport protocol.
    #[must_use]
    pub fn proto(mut self, proto: Proto) -> Self {
        self.proto = proto;
        self
    }

    /// Sets the name of the application profile it came from.
    #[must_use]
    pub fn profile(mut self, name: impl Into<Option<String>>) -> Self {
        self.profile = name.into();
        self
    }

    /// Sets the inter-departure time, in nanoseconds.
    #[must_use]
    pub fn idt(mut self, idt: Distribution) -> Self {
        self.idt = idt;
        self
    }

    /// Sets the packet size in bytes, the header of ITG included.
    #[must_use]
    pub fn size(mut self, size: Distribution) -> Self {
        self.size = size;
        self
    }

    /// Sets ON and OFF periods.
    #[must_use]
    pub fn on_off(mut self, periods: impl Into<Option<OnOff>>) -> Self {
        self.on_off = periods.into();
        self
    }

    /// Sets the start after the start of the run, in nanoseconds.
    #[must_use]
    pub fn start_ns(mut self, ns: u64) -> Self {
        self.start_ns = ns;
        self
    }

    /// Sets all limits at which it ends.
    #[must_use]
    pub fn stop(mut self, stop: Stop) -> Self {
        self.stop = stop;
        self
    }

    /// Ends it after this many nanoseconds.
    #[must_use]
    pub fn duration_ns(mut self, ns: u64) -> Self {
        self.stop.duration_ns = Some(ns);
        self
    }

    /// Ends it after this many packets.
    #[must_use]
    pub fn packets(mut self, packets: u64) -> Self {
        self.stop.packets = Some(packets);
        self
    }

    /// Ends it before the packet that would pass this many bytes.
    #[must_use]
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.stop.bytes = Some(bytes);
        self
    }

    /// Sets the kind of delay that it measures.
    #[must_use]
    pub fn meter(mut self, meter: Meter) -> Self {
        self.meter = meter;
        self
    }

    /// Sets the contents of packets behind their headers.
    #[must_use]
    pub fn payload(mut self, payload: Payload) -> Self {
        self.payload = payload;
        self
    }

    /// Sets the treatment of late packets.
    #[must_use]
    pub fn late(mut self, late: Late) -> Self {
        self.late = late;
        self
    }

    /// Sets the number of packets that may leave back to back to catch up.
    #[must_use]
    pub fn max_burst(mut self, packets: impl Into<Option<u32>>) -> Self {
        self.max_burst = packets.into();
        self
    }

    /// Sets burst mode: so many packets at a time, 2 to [`MAX_BURST`] (UDP only).
    #[must_use]
    pub fn burst(mut self, packets: impl Into<Option<u32>>) -> Self {
        self.burst = packets.into();
        self
    }

    /// Sets the options of its socket.
    #[must_use]
    pub fn socket(mut self, options: SocketOptions) -> Self {
        self.socket = options;
        self
    }
}

impl FlowSpec {
    /// Sets the longest time for which the receiver waits for packets behind the flow's end, in nanoseconds.
    #[must_use]
    pub fn drain_ns(mut self, ns: impl Into<Option<u64>>) -> Self {
        self.handling.drain_ns = ns.into();
        self
    }
}

/// Refuses settings that contradict burst mode.
fn check_burst(spec: &FlowSpec) -> Result<(), String> {
    let burst = spec.burst.unwrap_or(0);
    if !(2..=MAX_BURST).contains(&burst) {
        return Err(format!("a burst of {burst} packets: expected 2 to {MAX_BURST}"));
    }
    if spec.proto != Proto::Udp {
        return Err(format!("burst mode is for UDP: {} packets leave one by one", spec.proto));
    }
    if spec.meter == Meter::Rtt {
        return Err("burst mode measures one way: leave out `burst` or use meter owd".to_owned());
    }
    if spec.on_off.is_some() {
        return Err(
            "a burst would reach across pauses: leave out `burst` or ON/OFF periods".to_owned()
        );
    }
    if spec.max_burst.is_some() {
        return Err(
            "`max_burst` limits packets that catch up one by one: leave it out with `burst`"
                .to_owned(),
        );
    }
    Ok(())
}

/// A flow that can be run: its distributions fit its protocol, its streams derive from the run
/// seed.
#[derive(Clone, Debug)]
pub struct Flow {
    spec: FlowSpec,
    seed: RunSeed,
    idt: Resolved,
    size: Resolved,
    /// Few flows have it.
    on_off: Option<Box<(Resolved, Resolved)>>,
}

/// A flow that cannot be run as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FlowError {
    /// A distribution does not fit.
    #[error("flow {flow}: {what}: {source}")]
    Law {
        /// Flow number.
        flow: u32,
        /// Name of the distribution's field, such as `idt` or `size`.
        what: &'static str,
        /// Reason.
        source: DistributionError,
    },
    /// A setting that contradicts another one.
    #[error("flow {flow}: {reason}")]
    Setting {
        /// Flow number.
        flow: u32,
        /// Contradiction, and advice.
        reason: String,
    },
}

impl Flow {
    /// Checks the description and prepares its random processes.
    ///
    /// # Errors
    /// A distribution that cannot be used, or settings that contradict each other.
    pub fn resolve(spec: FlowSpec, seed: RunSeed) -> Result<Self, FlowError> {
        let flow = spec.id;
        let setting = |reason: &str| FlowError::Setting { flow, reason: reason.to_owned() };
        let distribution = |what: &'static str| move |source| FlowError::Law { flow, what, source };
        if spec.stop.packets == Some(0) || spec.stop.bytes == Some(0) {
            return Err(setting("a limit of 0 packets or bytes sends nothing: leave it out"));
        }
        if spec.start_ns > MAX_TIME_NS {
            return Err(setting("it is to start more than 146 years after its run"));
        }
        if spec.max_burst == Some(0) {
            return Err(setting("a catch-up limit of 0 packets would never send: use 1 or more"));
        }
        if spec.socket.ttl == Some(0) {
            return Err(setting("a time to live of 0 never leaves the host: use 1 to 255"));
        }
        spec.handling.check().map_err(|reason| setting(&reason))?;
        spec.shape.check(spec.proto).map_err(|reason| setting(&reason))?;
        if spec.burst.is_some() {
            check_burst(&spec).map_err(|reason| setting(&reason))?;
        }
        if spec.proto != Proto::Tcp {
            if spec.socket.congestion.is_some() {
                return Err(setting("`congestion` is about TCP: leave it out or use proto tcp"));
            }
            if spec.socket.pacing_rate.is_some() {
                return Err(setting(
                    "`pacing_rate` is about TCP; other protocols are paced by `idt` or `rate`",
                ));
            }
        }
        if spec.socket.pacing_rate.is_some_and(|bits| bits < 8) {
            return Err(setting("a pacing rate below 8 bps would never send: leave it out"));
        }
        if matches!(&spec.payload, Payload::Pattern(bytes) if bytes.is_empty()) {
            return Err(setting("the payload pattern is empty"));
        }
        let idt = spec.idt.resolve(Unit::Time, 0.0, f64::INFINITY).map_err(distribution("idt"))?;
        let (lo, hi) = (f64::from(spec.proto.min_size()), f64::from(spec.proto.max_size()));
        let size = spec.size.resolve(Unit::Size, lo, hi).map_err(distribution("size"))?;
        if !spec.changes.is_empty() {
            rate::check(&spec.changes).map_err(|error| setting(&error.to_string()))?;
            if idt.mean() <= 0.0 {
                return Err(setting("it sends as fast as it can: there is no rate to change"));
            }
        }
        let on_off = match &spec.on_off {
            None => None,
            Some(on_off) => {
                let on = on_off
                    .on
                    .resolve(Unit::Time, 0.0, f64::INFINITY)
                    .map_err(distribution("on"))?;
                let off = on_off
                    .off
                    .resolve(Unit::Time, 0.0, f64::INFINITY)
                    .map_err(distribution("off"))?;
                if on.mean() < 1.0 {
                    return Err(setting("ON periods of length 0 never send: give them a length"));
                }
                // Every period is walked: this bounds the walk from one packet to the next.
                if idt.mean() > MAX_PERIODS_A_GAP * on.mean() {
                    return Err(setting(
                        "ON periods are more than 100 000 times shorter than the gaps between \
                         packets: make them longer, or leave them out",
                    ));
                }
                Some(Box::new((on, off)))
            }
        };
        Ok(Self { spec, seed, idt, size, on_off })
    }

    /// Description that the flow was made from.
    #[must_use]
    pub const fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    /// Checks that the packets of the flow can prove where they come from.
    ///
    /// # Errors
    /// It is no flow of UDP, or has packets that are too short.
    pub fn can_prove(&self) -> Result<(), String> {
        let FlowSpec { id, proto, .. } = &self.spec;
        let (least, wanted) = (self.size().distribution().support().0, header::PROVEN_LEN);
        if *proto != Proto::Udp {
            return Err(format!(
                "flow {id}: packets of UDP alone prove where they come from: leave --auth out"
            ));
        }
        if least < f64::from(wanted) {
            return Err(format!(
                "flow {id}: a packet with a proof has {wanted} bytes at least: give another --size, as \
                 `trunc({}, {wanted}, 65507)`",
                self.spec.size.display(Unit::Size)
            ));
        }
        Ok(())
    }

    /// The same flow with these changes of its rate.
    ///
    /// # Errors
    /// Changes that cannot be followed.
    pub fn with_changes(&self, changes: Vec<RateChange>) -> Result<Self, FlowError> {
        Self::resolve(FlowSpec { changes, ..self.spec.clone() }, self.seed)
    }

    /// The run seed its streams derive from.
    #[must_use]
    pub const fn seed(&self) -> RunSeed {
        self.seed
    }

    /// The inter-departure time in force, in nanoseconds.
    #[must_use]
    pub const fn idt(&self) -> &Resolved {
        &self.idt
    }

    /// The packet size in force, in bytes.
    #[must_use]
    pub const fn size(&self) -> &Resolved {
        &self.size
    }

    /// ON and OFF periods in force, in nanoseconds.
    #[must_use]
    pub fn on_off(&self) -> Option<(&Resolved, &Resolved)> {
        self.on_off.as_deref().map(|(on, off)| (on, off))
    }

    /// Changes that were needed to make the distributions usable, one sentence each.
    pub fn notices(&self) -> impl Iterator<Item = String> + '_ {
        let id = self.spec.id;
        let periods = self.on_off.as_ref();
        [("idt", Some(&self.idt)), ("size", Some(&self.size))]
            .into_iter()
            .chain([("on", periods.map(|p| &p.0)), ("off", periods.map(|p| &p.1))])
            .filter_map(move |(what, distribution)| {
                distribution
                    .and_then(Resolved::notice)
                    .map(|text| format!("flow {id}: {what}: {text}"))
            })
    }

    /// The departures of this flow, from the first.
    #[must_use]
    pub fn schedule(&self) -> Schedule {
        Schedule::new(self)
    }

    /// Number of packets in the plan; `None` where it has no end, or more packets than the `most` that are walked over.
    ///
    /// A flow as fast as possible that ends by time has no such number.
    #[must_use]
    pub fn planned_packets(&self, most: usize) -> Option<u64> {
        let Stop { duration_ns, packets, bytes } = self.spec.stop;
        let is_timed = self.idt.mean() > 0.0;
        if !is_timed && duration_ns.is_some() {
            // Which limit comes first shows when it is sent.
            return None;
        }
        let steady = self.idt.steady().filter(|idt_ns| *idt_ns > 0);
        match (duration_ns, bytes) {
            (None, None) => packets,
            (Some(ns), None) if self.on_off.is_none() && self.spec.changes.is_empty() => {
                let by_time = steady.map(|idt_ns| ns.div_ceil(idt_ns));
                let by_time = by_time.map(|count| packets.map_or(count, |most| count.min(most)));
                by_time.or_else(|| self.walked(most))
            }
            (None, Some(bytes)) if self.size.steady().is_some_and(|size| size > 0) => {
                let by_bytes = self.size.steady().map(|size| bytes / size)?;
                Some(packets.map_or(by_bytes, |most| by_bytes.min(most)))
            }
            _ => self.walked(most),
        }
    }

    /// True if the plan has an end, and so a number of packets.
    #[must_use]
    pub fn has_plan(&self) -> bool {
        let Stop { duration_ns, packets, bytes } = self.spec.stop;
        match duration_ns {
            Some(_) => self.idt.mean() > 0.0,
            None => packets.is_some() || bytes.is_some(),
        }
    }

    /// Number of packets in the plan, counted one by one.
    fn walked(&self, most: usize) -> Option<u64> {
        let count = self.schedule().take(most.saturating_add(1)).count();
        (count <= most).then_some(count as u64)
    }

    /// Expected packets per second over a long time; 0 when inter-departure times or pauses have no
    /// finite mean, infinite if all inter-departure times are 0.
    #[must_use]
    pub fn mean_packet_rate(&self) -> f64 {
        let share = self.on_off().map_or(1.0, |(on, off)| {
            let (on, off) = (on.mean(), off.mean());
            on / (on + off)
        });
        1e9 / self.idt.mean() * share
    }
}
