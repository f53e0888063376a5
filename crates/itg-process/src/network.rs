//! Promises of a network to the layers above it.
//!
//! | network | reliable | in order per pair | duplicates | multicast |
//! |---|---|---|---|---|
//! | inproc | yes | yes | no | one hand-over |
//! | tcp, unix | until the connection breaks | yes, per connection | no, per connection | unicasts |
//! | udp | no | no | possible | unicasts |
//! | mpi | yes | yes | no | unicasts |
//! | simulated | by model and faults | by model | by faults | by model |

use crate::message::NetId;

/// The promises of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "a table of yes and no")]
pub struct Contract {
    /// Every message that is taken arrives, while sender, receiver and connection live.
    pub reliable: bool,
    /// Messages between two processes arrive in the order in which they were sent.
    pub fifo: bool,
    /// A message may arrive twice.
    pub duplicates: bool,
    /// A multicast is transmitted once.
    pub multicast: bool,
    /// Largest body in bytes; longer ones are refused.
    pub max_body: usize,
}

impl Contract {
    /// Queues within one address space.
    pub const INPROC: Self = Self {
        reliable: true,
        fifo: true,
        duplicates: false,
        multicast: true,
        max_body: crate::frame::MAX_BODY,
    };
    /// A byte stream for each pair: TCP or Unix sockets.
    pub const STREAM: Self = Self { multicast: false, ..Self::INPROC };
    /// Datagrams: UDP without fragmentation on an Ethernet.
    pub const DATAGRAM: Self = Self {
        reliable: false,
        fifo: false,
        duplicates: true,
        multicast: false,
        max_body: 1500 - 48 - crate::frame::HEADER_LEN,
    };
}

/// One of the parallel networks of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its name in the configuration.
    pub name: String,
    /// Promises of the network.
    pub contract: Contract,
}

/// The network of this name.
pub(crate) fn network(networks: &[Network], name: &str) -> Option<NetId> {
    let at = networks.iter().position(|network| network.name == name)?;
    u8::try_from(at).ok().map(NetId)
}
