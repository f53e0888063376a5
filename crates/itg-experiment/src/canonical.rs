//! The text that a plan's hash is taken of: what decides which packets are sent, and nothing else.
//!
//! It is a form of its own, so that plans keep their hashes: a setting that is absent is absent from it, and a new one
//! changes the hash of the plans alone that use it. Settings that are not part of the plan (as how long a receiver waits
//! for late packets) are not in it. Those of its first version are written in any case, `null` where they are absent.

use std::collections::BTreeSet;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{FlowSpec, Late, Meter, OnOff, Payload, Proto, SocketOptions, Stop};
use itg_core::settings::Shape;
use serde::Serialize;

use crate::plan::Plan;

/// A flow in its canonical form: the names and the order of the first version, then what came later, each with
/// `skip_serializing_if`.
#[derive(Serialize)]
struct CanonicalFlow<'a> {
    id: u32,
    proto: Proto,
    profile: Option<&'a str>,
    idt: String,
    size: String,
    on_off: Option<Periods>,
    start_ns: u64,
    stop: CanonicalStop,
    meter: Meter,
    payload: &'a Payload,
    late: Late,
    max_burst: Option<u32>,
    burst: Option<u32>,
    socket: CanonicalSocket<'a>,
    #[serde(skip_serializing_if = "Shape::is_default")]
    shape: &'a Shape,
}

#[derive(Serialize)]
struct Periods {
    on: String,
    off: String,
}

#[derive(Serialize)]
struct CanonicalStop {
    duration_ns: Option<u64>,
    packets: Option<u64>,
    bytes: Option<u64>,
}

#[derive(Serialize)]
struct CanonicalSocket<'a> {
    source: Option<&'a str>,
    source_port: Option<u16>,
    dest_port: Option<u16>,
    interface: Option<&'a str>,
    ttl: Option<u8>,
    tos: Option<u8>,
    nagle: bool,
    congestion: Option<&'a str>,
    pacing_rate: Option<u64>,
}

impl<'a> From<&'a FlowSpec> for CanonicalFlow<'a> {
    fn from(spec: &'a FlowSpec) -> Self {
        let time = |distribution: &Distribution| distribution.display(Unit::Time);
        let Stop { duration_ns, packets, bytes } = spec.stop;
        let SocketOptions { source, interface, congestion, .. } = &spec.socket;
        let SocketOptions { source_port, dest_port, ttl, tos, nagle, pacing_rate, .. } =
            spec.socket;
        Self {
            id: spec.id,
            proto: spec.proto,
            profile: spec.profile.as_deref(),
            idt: time(&spec.idt),
            size: spec.size.display(Unit::Size),
            on_off: spec
                .on_off
                .as_ref()
                .map(|OnOff { on, off }| Periods { on: time(on), off: time(off) }),
            start_ns: spec.start_ns,
            stop: CanonicalStop { duration_ns, packets, bytes },
            meter: spec.meter,
            payload: &spec.payload,
            late: spec.late,
            max_burst: spec.max_burst,
            burst: spec.burst,
            socket: CanonicalSocket {
                source: source.as_deref(),
                source_port,
                dest_port,
                interface: interface.as_deref(),
                ttl,
                tos,
                nagle,
                congestion: congestion.as_deref(),
                pacing_rate,
            },
            shape: &spec.shape,
        }
    }
}

/// Hash of the plan: of one line for the seed, one for each flow, one for each table of a distribution; the texts of
/// distributions are the canonical ones of `itg_core::distribution`.
pub(crate) fn hash(plan: &Plan) -> u64 {
    let mut hash = fnv1a(format!("itg plan 1\nseed {}\n", plan.seed.0).as_bytes());
    let mut line = |line: String| hash = more(hash, line.as_bytes());
    let tables = plan.flows.iter().flat_map(|planned| {
        let spec = planned.flow.spec();
        let periods = spec.on_off.iter().flat_map(|periods| [&periods.on, &periods.off]);
        [&spec.idt, &spec.size]
            .into_iter()
            .chain(periods)
            .flat_map(|distribution| distribution.files())
    });
    let tables: BTreeSet<&str> = tables.collect();
    for planned in &plan.flows {
        let spec = serde_json::to_string(&CanonicalFlow::from(planned.flow.spec()));
        let spec = spec.expect("a flow is made of numbers, texts and lists");
        line(format!("flow {:?} {:?} {spec}\n", planned.from, planned.to));
    }
    for name in tables {
        let content = plan.files.get(name).map_or(0, |content| fnv1a(content.as_bytes()));
        line(format!("table {name:?} {content:016x}\n"));
    }
    hash
}

/// FNV-1a with 64 bits: a fast hash with published constants, not meant against an adversary.
///
/// Source: Fowler, Noll, Vo; RFC 9923.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    more(0xcbf2_9ce4_8422_2325, bytes)
}

/// The hash of what a hash was taken of, and of more bytes behind it.
fn more(hash: u64, bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(hash, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_gives_the_published_values() {
        for (text, want) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.as_bytes()), want, "input {text:?}");
        }
    }
}
