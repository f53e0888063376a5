//! Drops of a receiver's socket to which several flows came: the kernel does not tell whose packets they were.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use crate::difference::number;
use crate::message::FlowCounts;

/// Most flows that are named.
const NAMED: usize = 8;

/// Packets that a socket dropped of several flows together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedDrops {
    /// Address of the socket.
    pub at: SocketAddr,
    /// Numbers of the flows.
    pub flows: Vec<u32>,
    /// The packets.
    pub drops: u64,
}

impl SharedDrops {
    /// Takes the drops that are not one flow's own from these counts, each with the address at which its packets
    /// arrived.
    pub fn take<'a>(
        counts: impl IntoIterator<Item = (SocketAddr, &'a mut FlowCounts)>,
    ) -> Vec<Self> {
        let mut sockets: BTreeMap<SocketAddr, Vec<&mut FlowCounts>> = BTreeMap::new();
        for (at, counts) in counts {
            if counts.socket_drops.max(counts.more.checksum_drops) > Some(0) {
                sockets.entry(at).or_default().push(counts);
            }
        }
        sockets.retain(|_, flows| flows.len() > 1);
        let shared = sockets.into_iter().map(|(at, flows)| {
            // Each has counted since before the first packet of all: the last to end has those of the others.
            let drops = flows.iter().filter_map(|flow| flow.socket_drops).max().unwrap_or(0);
            let flows = flows.into_iter().map(|flow| {
                (flow.socket_drops, flow.more.checksum_drops) = (None, None);
                flow.flow
            });
            Self { at, flows: flows.collect(), drops }
        });
        shared.filter(|shared| shared.drops > 0).collect()
    }
}

impl fmt::Display for SharedDrops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, flows, drops } = self;
        let named: Vec<_> = flows.iter().take(NAMED).map(u32::to_string).collect();
        let more = match flows.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        write!(
            f,
            "the receiver's full socket buffer at {at} dropped {} of flows {}{more} together; of which is not known",
            number(*drops, "packet"),
            named.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_a_socket_are_told_once_and_of_no_flow() {
        let count = |flow, drops| FlowCounts {
            flow,
            packets: 10,
            bytes: 10,
            unique: 10,
            socket_drops: drops,
            foreign: 0,
            log_lost_records: 0,
            more: Default::default(),
        };
        let [here, there]: [SocketAddr; 2] =
            ["[::1]:8999", "127.0.0.1:8999"].map(|at| at.parse().expect("an address"));
        let mut all = [
            (here, count(1, Some(5))),
            (here, count(2, Some(7))),
            (here, count(3, Some(0))),
            (here, count(4, None)),
            (there, count(5, Some(9))),
        ];
        let shared = SharedDrops::take(all.iter_mut().map(|(at, counts)| (*at, counts)));
        assert_eq!(shared, [SharedDrops { at: here, flows: vec![1, 2], drops: 7 }]);
        let left: Vec<_> = all.iter().map(|(_, counts)| counts.socket_drops).collect();
        assert_eq!(left, [None, None, Some(0), None, Some(9)], "a flow's own stay with it");
        let many = SharedDrops { at: here, flows: (1..=10).collect(), drops: 1 };
        assert_eq!(
            many.to_string(),
            "the receiver's full socket buffer at [::1]:8999 dropped 1 packet of flows 1, 2, 3, 4, 5, 6, 7, 8 and 2 \
             more together; of which is not known"
        );
    }
}
