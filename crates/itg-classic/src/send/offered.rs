//! A flow of ITG for a receiver of D-ITG: what its offer says, and what the old protocol cannot carry.

use std::net::IpAddr;
use std::ops::RangeInclusive;

use itg_core::flow::{Flow, Late, Meter, Proto};

use super::flow::{HeaderKind, SIZE_MAX};
use super::profile::App;
use crate::wire::{FlowOffer, NO_SERIAL, OfferProto, PORT_DATA, header_len};

/// Request that the old protocol cannot carry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("flow {flow}: {reason}")]
pub struct CarryError {
    /// Flow number.
    pub flow: u32,
    /// The request, and a way out for the user.
    pub reason: String,
}

/// The offer of a flow of ITG.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The offer.
    pub offer: FlowOffer,
    /// Type of ICMP messages: echo requests, which the kernel of the other host answers.
    pub icmp_type: u8,
    /// Notices for the user.
    pub notices: Vec<String>,
}

/// Sizes that packets for receivers of D-ITG may have: their header and, in a stream, a byte more,
/// since D-ITG's receiver takes a header alone for the end of the flow; at most 64 000 bytes. SCTP messages
/// have the header of a stream.
#[must_use]
pub fn carried_sizes(proto: Proto) -> RangeInclusive<u32> {
    let stream = matches!(proto, Proto::Tcp | Proto::Sctp);
    let header = header_len(HeaderKind::Standard, stream);
    let least = u32::try_from(header).unwrap_or(u32::MAX) + u32::from(stream);
    least..=SIZE_MAX
}

/// The offer of a flow of ITG to the receiver at `dest`.
///
/// # Errors
/// Requests that cannot be carried.
pub fn carry(flow: &Flow, dest: IpAddr) -> Result<Carried, CarryError> {
    let spec = flow.spec();
    let most = u64::from(u32::MAX);
    if let Some(packets) = spec.stop.packets.filter(|packets| *packets > most) {
        let reason = format!(
            "D-ITG numbers packets with 32 bits, up to {most}: a limit of {packets} packets is more; \
             give a smaller one, or send it in several flows"
        );
        return Err(CarryError { flow: spec.id, reason });
    }
    let mut notices = Vec::new();
    let seconds = spec.stop.duration_ns.map_or(0.0, |ns| ns as f64 / 1e9);
    let rate = Some(flow.mean_packet_rate()).filter(|rate| rate.is_finite()).unwrap_or(0.0);
    if spec.stop.packets.is_none() && seconds * rate > most as f64 {
        notices.push(format!(
            "D-ITG numbers packets with 32 bits: behind packet {most} numbers begin again"
        ));
    }
    if spec.late == Late::Drop {
        notices.push(
            "packets that are left out because they are late look lost in the receiver's log"
                .to_owned(),
        );
    }
    let offer = FlowOffer {
        flow: spec.id,
        proto: match spec.proto {
            Proto::Tcp => OfferProto::Tcp,
            Proto::Udp => OfferProto::Udp,
            Proto::Icmp => OfferProto::Icmp,
            Proto::Sctp => OfferProto::Sctp,
            Proto::Dccp => OfferProto::Dccp,
        },
        app: App::None,
        round_trip: spec.meter == Meter::Rtt,
        tos: spec.socket.tos.unwrap_or(0),
        header: HeaderKind::Standard,
        serial: NO_SERIAL,
        port: spec.socket.dest_port.unwrap_or(PORT_DATA),
        address: dest,
        passive: None,
    };
    Ok(Carried { offer, icmp_type: if dest.is_ipv4() { 8 } else { 128 }, notices })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use itg_core::distribution::Distribution;
    use itg_core::flow::FlowSpec;
    use itg_core::seed::RunSeed;

    use super::*;

    #[test]
    fn what_the_old_protocol_cannot_carry_is_refused_or_told() {
        let told = |edit: &dyn Fn(&mut FlowSpec)| {
            let mut spec = FlowSpec::new(3);
            edit(&mut spec);
            let flow = Flow::resolve(spec, RunSeed(1)).expect("a flow that can be run");
            let carried = carry(&flow, Ipv4Addr::LOCALHOST.into());
            carried.map(|carried| carried.notices.join("; ")).map_err(|error| error.to_string())
        };
        type Edit = fn(&mut FlowSpec);
        let most = u64::from(u32::MAX);
        let rows: [(Edit, Result<&str, &str>); 6] = [
            (|_| {}, Ok("")),
            (|spec| spec.stop.packets = Some(u64::from(u32::MAX)), Ok("")),
            (
                |spec| spec.stop.packets = Some(1 << 32),
                Err("flow 3: D-ITG numbers packets with 32"),
            ),
            (|spec| spec.stop.duration_ns = Some(1_000_000_000_000), Ok("")),
            (
                |spec| {
                    spec.idt = Distribution::Constant(100.0);
                    spec.stop.duration_ns = Some(1_000_000_000_000);
                },
                Ok("numbers begin again"),
            ),
            (|spec| spec.late = Late::Drop, Ok("look lost in the receiver's log")),
        ];
        for (row, (edit, want)) in rows.iter().enumerate() {
            match (told(edit), want) {
                (Ok(told), Ok("")) => assert_eq!(told, "", "row {row}"),
                (Ok(told), Ok(want)) | (Err(told), Err(want)) => {
                    assert!(told.contains(want), "row {row}: {told}");
                }
                (told, want) => panic!("row {row}: {told:?}, not {want:?} (up to {most})"),
            }
        }
    }

    #[test]
    fn sizes_hold_a_header_and_no_more_than_d_itg_takes() {
        assert_eq!(carried_sizes(Proto::Udp), 16..=64_000);
        assert_eq!(carried_sizes(Proto::Icmp), 16..=64_000);
        assert_eq!(carried_sizes(Proto::Tcp), 21..=64_000);
        assert_eq!(carried_sizes(Proto::Sctp), 21..=64_000);
        assert_eq!(carried_sizes(Proto::Dccp), 16..=64_000);
    }
}
