//! Descriptions of flows on the wire: version 1 of the protocol, field by field.
//!
//! These bytes are a form of their own. A setting that [`FlowSpec`] gets does not change them: what version 1 does not
//! have travels behind a message, to peers that take it ([`more`](crate::more)). The notes of logs have another form
//! (`FlowSpec`'s own, which describes itself), and so has the text that the hash of a plan is taken of
//! (`itg_experiment::canonical`).

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{FlowSpec, Late, Meter, OnOff, Payload, Proto, SocketOptions, Stop};
use serde::{Deserialize, Serialize};

/// A flow in the order of its bytes. Fixed: fields are neither added nor moved.
#[derive(Debug, Serialize, Deserialize)]
struct WireFlow {
    id: u32,
    proto: u32,
    profile: Option<String>,
    idt: String,
    size: String,
    on_off: Option<[String; 2]>,
    start_ns: u64,
    duration_ns: Option<u64>,
    packets: Option<u64>,
    bytes: Option<u64>,
    meter: u32,
    payload: WirePayload,
    late: u32,
    max_burst: Option<u32>,
    burst: Option<u32>,
    source: Option<String>,
    source_port: Option<u16>,
    dest_port: Option<u16>,
    interface: Option<String>,
    ttl: Option<u8>,
    tos: Option<u8>,
    nagle: bool,
    congestion: Option<String>,
    pacing_rate: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
enum WirePayload {
    Random,
    Pattern(Vec<u8>),
    File(String),
}

const fn proto_number(proto: Proto) -> u32 {
    match proto {
        Proto::Udp => 0,
        Proto::Tcp => 1,
        Proto::Icmp => 2,
        Proto::Sctp => 3,
        Proto::Dccp => 4,
    }
}

const fn meter_number(meter: Meter) -> u32 {
    match meter {
        Meter::Owd => 0,
        Meter::Rtt => 1,
    }
}

const fn late_number(late: Late) -> u32 {
    match late {
        Late::Keep => 0,
        Late::Drop => 1,
    }
}

/// The value that has this number.
fn numbered<T: Copy>(
    what: &str,
    got: u32,
    all: &[T],
    number: impl Fn(T) -> u32,
) -> Result<T, String> {
    let found = all.iter().copied().find(|value| number(*value) == got);
    found.ok_or_else(|| format!("{what} {got} is not known"))
}

fn distribution(text: &str, unit: Unit) -> Result<Distribution, String> {
    Distribution::parse(text, unit).map_err(|error| error.to_string())
}

impl From<&FlowSpec> for WireFlow {
    fn from(spec: &FlowSpec) -> Self {
        let time = |distribution: &Distribution| distribution.display(Unit::Time);
        let Stop { duration_ns, packets, bytes } = spec.stop;
        let socket = spec.socket.clone();
        Self {
            id: spec.id,
            proto: proto_number(spec.proto),
            profile: spec.profile.clone(),
            idt: time(&spec.idt),
            size: spec.size.display(Unit::Size),
            on_off: spec.on_off.as_ref().map(|OnOff { on, off }| [time(on), time(off)]),
            start_ns: spec.start_ns,
            duration_ns,
            packets,
            bytes,
            meter: meter_number(spec.meter),
            payload: match &spec.payload {
                Payload::Random => WirePayload::Random,
                Payload::Pattern(bytes) => WirePayload::Pattern(bytes.clone()),
                Payload::File(name) => WirePayload::File(name.clone()),
            },
            late: late_number(spec.late),
            max_burst: spec.max_burst,
            burst: spec.burst,
            source: socket.source,
            source_port: socket.source_port,
            dest_port: socket.dest_port,
            interface: socket.interface,
            ttl: socket.ttl,
            tos: socket.tos,
            nagle: socket.nagle,
            congestion: socket.congestion,
            pacing_rate: socket.pacing_rate,
        }
    }
}

impl TryFrom<WireFlow> for FlowSpec {
    type Error = String;

    fn try_from(wire: WireFlow) -> Result<Self, String> {
        let WireFlow { duration_ns, packets, bytes, .. } = wire;
        let on_off = match &wire.on_off {
            None => None,
            Some([on, off]) => {
                let [on, off] = [distribution(on, Unit::Time)?, distribution(off, Unit::Time)?];
                Some(OnOff { on, off })
            }
        };
        Ok(Self::new(wire.id)
            .proto(numbered("transport", wire.proto, &Proto::ALL, proto_number)?)
            .profile(wire.profile)
            .idt(distribution(&wire.idt, Unit::Time)?)
            .size(distribution(&wire.size, Unit::Size)?)
            .on_off(on_off)
            .start_ns(wire.start_ns)
            .stop(Stop { duration_ns, packets, bytes })
            .meter(numbered("meter", wire.meter, &[Meter::Owd, Meter::Rtt], meter_number)?)
            .payload(match wire.payload {
                WirePayload::Random => Payload::Random,
                WirePayload::Pattern(bytes) => Payload::Pattern(bytes),
                WirePayload::File(name) => Payload::File(name),
            })
            .late(numbered(
                "rule for late packets",
                wire.late,
                &[Late::Keep, Late::Drop],
                late_number,
            )?)
            .max_burst(wire.max_burst)
            .burst(wire.burst)
            .socket(SocketOptions {
                source: wire.source,
                source_port: wire.source_port,
                dest_port: wire.dest_port,
                interface: wire.interface,
                ttl: wire.ttl,
                tos: wire.tos,
                nagle: wire.nagle,
                congestion: wire.congestion,
                pacing_rate: wire.pacing_rate,
            }))
    }
}

/// Lists of flows, for `#[serde(with = …)]`.
pub(crate) mod list {
    use itg_core::flow::FlowSpec;
    use serde::de::Error as _;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer};

    use super::WireFlow;

    pub(crate) fn serialize<S: Serializer>(flows: &[FlowSpec], to: S) -> Result<S::Ok, S::Error> {
        flows.iter().map(WireFlow::from).collect::<Vec<_>>().serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Vec<FlowSpec>, D::Error> {
        let flows = Vec::<WireFlow>::deserialize(from)?;
        flows.into_iter().map(|flow| flow.try_into().map_err(D::Error::custom)).collect()
    }
}
