//! A classic flow as a flow of ITG, and as an offer on the wire.

use std::net::{IpAddr, Ipv6Addr};

use itg_core::distribution::Unit;
use itg_core::flow::{FlowSpec, Late, Meter, OnOff, Payload, Proto, SocketOptions, Stop};

use super::flow::{FlowArgs, Source, Transport};
use super::profile::App;
use crate::random::SeedError;
use crate::wire::{FlowOffer, NO_SERIAL, OfferProto, Passive};

/// A flow that cannot be taken over.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// The seed is none.
    #[error(transparent)]
    Seed(#[from] SeedError),
    /// A file of values was not loaded.
    #[error("the values of {0} are not loaded")]
    NotLoaded(String),
}

impl FlowArgs {
    /// The offer of this flow: to the destination's address, or in passive mode from the own one
    /// (`-sa`), any when `None`.
    #[must_use]
    pub fn offer(&self, dest: IpAddr, source: Option<IpAddr>) -> FlowOffer {
        let dest_port = self.dest_port.unwrap_or(crate::wire::PORT_DATA);
        let mut serial = NO_SERIAL;
        if let Some(device) = &self.recv_serial {
            // At most nine characters and a NUL.
            serial = [0; 10];
            for (place, byte) in serial[..9].iter_mut().zip(device.bytes()) {
                *place = byte;
            }
        }
        let passive = self
            .passive
            .then_some(Passive { recv_port: dest_port, source_given: source.is_some() });
        FlowOffer {
            flow: self.id,
            proto: match self.transport {
                Transport::Tcp => OfferProto::Tcp,
                Transport::Udp => OfferProto::Udp,
                Transport::Icmp { .. } => OfferProto::Icmp,
                Transport::Sctp { .. } => OfferProto::Sctp,
                Transport::Dccp => OfferProto::Dccp,
            },
            app: self.app,
            round_trip: self.round_trip,
            tos: self.tos,
            header: self.header,
            serial,
            port: match passive {
                Some(_) => self.source_port.unwrap_or(crate::wire::PORT_PASSIVE),
                None => dest_port,
            },
            address: match passive {
                Some(_) => source.unwrap_or(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
                None => dest,
            },
            passive,
        }
    }

    /// The flow in ITG's terms: for estimates, manifests and the fidelity verdict. The packets
    /// themselves come from [`super::Departures`], draw for draw as D-ITG's.
    ///
    /// # Errors
    /// A file of values that was not loaded.
    pub fn to_spec(&self) -> Result<FlowSpec, SpecError> {
        let distribution = |source: &Source, unit| match source {
            Source::Law(distribution) => Ok(distribution.to_core(unit)),
            Source::File(name) => Err(SpecError::NotLoaded(name.clone())),
        };
        let proto = match self.transport {
            Transport::Tcp => Proto::Tcp,
            Transport::Udp => Proto::Udp,
            Transport::Icmp { .. } => Proto::Icmp,
            Transport::Sctp { .. } => Proto::Sctp,
            Transport::Dccp => Proto::Dccp,
        };
        let profile = match self.app {
            App::None | App::Aom => None,
            App::Telnet => Some("telnet"),
            App::Voip => Some("voip"),
            App::Dns => Some("dns"),
            App::CsActive => Some("counter-strike-active"),
            App::CsIdle => Some("counter-strike-idle"),
            App::Quake3 => Some("quake3"),
        };
        Ok(FlowSpec::new(self.id)
            .proto(proto)
            .profile(profile.map(str::to_owned))
            .idt(distribution(&self.idt, Unit::Time)?)
            .size(distribution(&self.size, Unit::Size)?)
            .on_off(self.on_off.as_ref().map(|(on, off)| OnOff {
                on: on.to_core(Unit::Time),
                off: off.to_core(Unit::Time),
            }))
            .start_ns(u64::from(self.delay_ms) * 1_000_000)
            .stop(Stop {
                duration_ns: self.limit_ms().map(|ms| u64::from(ms) * 1_000_000),
                packets: self.packets.map(u64::from),
                bytes: self.kibibytes.map(|k| u64::from(k) * 1024),
            })
            .meter(if self.round_trip { Meter::Rtt } else { Meter::Owd })
            .payload(self.payload.clone().map_or(Payload::Random, Payload::File))
            .late(Late::Keep)
            .socket(SocketOptions {
                source: self.source.clone(),
                source_port: self.source_port,
                dest_port: Some(self.dest_port.unwrap_or(crate::wire::PORT_DATA)),
                interface: self.interface.clone(),
                ttl: Some(self.ttl).filter(|&ttl| ttl > 0),
                tos: Some(self.tos).filter(|&tos| tos > 0),
                nagle: !self.nodelay,
                ..SocketOptions::default()
            }))
    }
}
