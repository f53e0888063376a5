//! Measurements on a network.

use clap::ValueEnum;

/// Measurement on a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Work {
    /// Requests and replies of one byte, or empty messages
    TcpRr,
    /// The same with datagrams
    UdpRr,
    /// Writes of 8192 bytes, or messages of so many
    TcpStream,
}

impl Work {
    /// With its bar, in percent of plain sockets, and what Neko attained.
    pub(crate) const ALL: [(Self, &'static str, f64, f64); 3] = [
        (Self::TcpRr, "TCP_RR.1 [trans/s]", 95.0, 89.0),
        (Self::UdpRr, "UDP_RR.1 [trans/s]", 92.0, 53.0),
        (Self::TcpStream, "TCP_STREAM.8k [kB/s]", 95.0, 58.0),
    ];
}
