//! Watches TCP connections from beside the packet path: what the kernel says of each, into the log.

use std::collections::BTreeMap;

use itg_record::{Note, TcpSample};
use itg_socket::clock;
use itg_socket::sys;
use socket2::Socket;

use crate::log::Producer;

/// Between two looks: 250 ms.
pub const EVERY_NS: u64 = 250_000_000;
/// Connections that are watched; a run with more watches the first ones.
const MOST: usize = 64;

/// The connections that are watched, by the index of their flow in the log.
#[derive(Debug, Default)]
pub struct TcpWatch(BTreeMap<u32, Socket>);

impl TcpWatch {
    /// Watches a connection, by a second descriptor of its socket.
    pub fn add(&mut self, index: u32, socket: &Socket) {
        if self.0.len() >= MOST {
            return;
        }
        match socket.try_clone() {
            Ok(socket) => {
                self.0.insert(index, socket);
            }
            Err(error) => tracing::debug!(%error, index, "a TCP connection is not watched"),
        }
    }

    /// True if no connection is watched.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at all connections.
    pub fn look(&self, log: &mut Producer) {
        self.0.iter().for_each(|(&index, socket)| note(index, socket, log));
    }

    /// Looks at the connection of a flow once more and watches it no longer.
    pub fn end(&mut self, index: u32, log: &mut Producer) {
        if let Some(socket) = self.0.remove(&index) {
            note(index, &socket, log);
        }
    }
}

fn note(index: u32, socket: &Socket, log: &mut Producer) {
    let Some(info) = sys::tcp_info(socket) else { return };
    let bytes = |segments: u32| u64::from(segments) * u64::from(info.mss);
    log.note(Note::Tcp(TcpSample {
        index,
        unix_ns: clock::unix_ns(),
        rtt_ns: u64::from(info.rtt_us) * 1_000,
        rtt_var_ns: u64::from(info.rtt_var_us) * 1_000,
        min_rtt_ns: u64::from(info.min_rtt_us) * 1_000,
        cwnd_bytes: bytes(info.cwnd),
        // TCP_INFINITE_SSTHRESH
        ssthresh_bytes: (info.ssthresh < 0x7fff_ffff).then(|| bytes(info.ssthresh)),
        in_flight_bytes: bytes(info.unacked),
        acked_bytes: info.acked_bytes,
        retransmitted: u64::from(info.retransmitted),
        delivery_rate_bps: info.delivery_rate_bps,
        congestion: socket.tcp_congestion().ok().map(|name| {
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            String::from_utf8_lossy(name).into_owned()
        }),
    }));
}
