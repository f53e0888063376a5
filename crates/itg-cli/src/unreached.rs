//! Flows of which nothing at all arrived: what has to let them through.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use itg_core::flow::Proto;

/// Flows that are named in one sentence.
const NAMED: usize = 3;

/// A flow of which nothing arrived.
#[derive(Clone, Copy, Debug)]
pub struct Unreached {
    /// Its number.
    pub flow: u32,
    /// Its protocol.
    pub proto: Proto,
    /// Address that it was sent to.
    pub to: SocketAddr,
}

/// Sentences about such flows, one for each destination: what to open for them.
#[must_use]
pub fn unreached(flows: impl IntoIterator<Item = Unreached>) -> Vec<String> {
    let mut places: BTreeMap<(SocketAddr, Proto), Vec<u32>> = BTreeMap::new();
    for Unreached { flow, proto, to } in flows {
        let place = places.entry((to, proto)).or_default();
        if !place.contains(&flow) {
            place.push(flow);
        }
    }
    let sentence = |((to, proto), flows): ((SocketAddr, Proto), Vec<u32>)| {
        let named: Vec<_> = flows.iter().take(NAMED).map(u32::to_string).collect();
        let more = match flows.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let flows = if flows.len() == 1 { "flow" } else { "flows" };
        let open = proto.let_through(to.port());
        format!("nothing of {flows} {}{more} arrived at {}: {open}", named.join(", "), to.ip())
    };
    places.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_has_one_sentence() {
        let to = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
        let flow = |flow, proto, port| Unreached { flow, proto, to: to(port) };
        let flows = [
            flow(1, Proto::Udp, 8999),
            flow(9, Proto::Icmp, 0),
            flow(2, Proto::Udp, 8999),
            flow(1, Proto::Udp, 8999),
            flow(3, Proto::Udp, 8999),
            flow(4, Proto::Udp, 8999),
        ];
        let open = "through the firewalls on the way and of that host (all ports: docs/ports.md)";
        assert_eq!(
            unreached(flows),
            [
                format!("nothing of flow 9 arrived at 10.0.0.2: let ICMP echo {open}"),
                format!(
                    "nothing of flows 1, 2, 3 and 1 more arrived at 10.0.0.2: let UDP to port 8999 {open}"
                ),
            ]
        );
    }
}
