//! Properties of transports, one row each.
//!
//! What depends on how a transport works asks for a property; what belongs to one alone, as an option of its socket or a
//! module of the kernel, names it. Every row has every property, and the compiler asks for the row of a new one.

use crate::flow::Proto;
use crate::header;

/// Properties of a transport.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// Name on the command line, in files and in reports.
    pub name: &'static str,
    /// True if data is a stream of bytes, in which ITG marks where packets begin; else each packet keeps its ends.
    pub is_stream: bool,
    /// True if a connection is made before the first packet.
    pub is_connected: bool,
    /// True if the transport itself sends again what was lost: a packet is late, and not missing.
    pub resends: bool,
    /// True if packets arrive in the order in which they were sent.
    pub is_ordered: bool,
    /// True if the transport may hold packets back, for its peer or for the network (congestion control).
    pub holds_back: bool,
    /// True if it has ports.
    pub has_ports: bool,
    /// Smallest packet in bytes: what the header needs, and the mark of its beginning in a stream.
    pub min_size: u32,
    /// Largest packet in bytes that it carries as one unit, over IPv4 and IPv6 alike.
    pub max_size: u32,
    /// Bytes of its own header before the data of a packet, options left out.
    pub header_len: u32,
}

/// Largest datagram: 65 535 − 20 − 8 (RFC 768, RFC 791).
const MAX_DATAGRAM: u32 = 65_507;

impl Proto {
    /// Its properties.
    #[must_use]
    pub const fn properties(self) -> Transport {
        let datagrams = Transport {
            name: "",
            is_stream: false,
            is_connected: false,
            resends: false,
            is_ordered: false,
            holds_back: false,
            has_ports: true,
            min_size: header::MIN_LEN,
            max_size: MAX_DATAGRAM,
            header_len: 8,
        };
        match self {
            // RFC 768
            Self::Udp => Transport { name: "udp", ..datagrams },
            // RFC 9293; ITG bounds its packets.
            Self::Tcp => Transport {
                name: "tcp",
                is_stream: true,
                is_connected: true,
                resends: true,
                is_ordered: true,
                holds_back: true,
                has_ports: true,
                min_size: header::MIN_LEN + header::FRAME_LEN,
                max_size: header::MAX_FRAME,
                header_len: 20,
            },
            // RFC 792, RFC 4443
            Self::Icmp => Transport { name: "icmp", has_ports: false, ..datagrams },
            // RFC 9260; kept to the size of a datagram.
            Self::Sctp => Transport {
                name: "sctp",
                is_connected: true,
                resends: true,
                is_ordered: true,
                holds_back: true,
                // The common header, and that of a DATA chunk.
                header_len: 12 + 16,
                ..datagrams
            },
            // RFC 4340; kept to the size of a datagram.
            Self::Dccp => Transport {
                name: "dccp",
                is_connected: true,
                holds_back: true,
                // The header with long numbers, and the number that a DataAck acknowledges.
                header_len: 16 + 8,
                ..datagrams
            },
        }
    }

    /// Advice for when nothing arrives at a port of a host.
    #[must_use]
    pub fn let_through(self, port: u16) -> String {
        let what = match self.properties() {
            Transport { has_ports: false, name, .. } => format!("{} echo", name.to_uppercase()),
            Transport { name, .. } => format!("{} to port {port}", name.to_uppercase()),
        };
        format!(
            "let {what} through the firewalls on the way and of that host (all ports: docs/ports.md)"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_agrees_with_the_standards() {
        for proto in Proto::ALL {
            let transport = proto.properties();
            assert_eq!(transport.name.parse(), Ok(proto));
            // What is sent again comes in order here; a stream is a connection, and both are held back.
            assert_eq!(transport.resends, transport.is_ordered, "{proto}");
            assert!(transport.is_connected || !transport.is_stream, "{proto}");
            assert_eq!(transport.is_connected, transport.holds_back, "{proto}");
            assert!((1..=1 << 20).contains(&transport.max_size), "{proto}");
        }
        let connected = Proto::ALL.map(|proto| proto.properties().is_connected);
        assert_eq!(connected, [false, true, false, true, true]);
    }
}
