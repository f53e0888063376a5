//! Addresses of receivers: each is found at its rank, and rank 0 judges all of them before a run begins.

use std::net::{IpAddr, Ipv4Addr};

use itg_socket::host;
use serde::{Deserialize, Serialize};

use super::options::{Interface, is_of_its_link};
use super::placement::{Hosts, Listen, Placement, ReceiverRank};

/// Facts about the addresses of a rank, for rank 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RankAddresses {
    /// Address of its receiver, or why there is none; `None` for a rank that does not receive.
    receiver: Option<Result<IpAddr, String>>,
    /// All addresses of its host.
    all: Vec<IpAddr>,
}

impl RankAddresses {
    /// Those of this rank.
    pub(super) fn find(receivers: &[ReceiverRank], rank: u32) -> Self {
        let all = host::interface_addresses();
        let own = receivers.iter().find(|receiver| receiver.rank == rank);
        let receiver = own.map(|own| address(&own.listen, &all));
        Self { receiver, all: all.into_iter().map(|(_, ip)| ip).collect() }
    }
}

/// Address of a receiver on this host, which has all these addresses.
fn address(listen: &Listen, all: &[(String, IpAddr)]) -> Result<IpAddr, String> {
    let resolve = |text: &str| {
        itg_socket::resolve(text, 0).map(|found| found.ip()).map_err(|error| error.to_string())
    };
    let ip = match listen {
        Listen::Loopback => Ipv4Addr::LOCALHOST.into(),
        Listen::Address(text) => resolve(text)?,
        Listen::HostName => resolve(&host::name())?,
        Listen::Interface(text) => text
            .parse::<Interface>()?
            .choose(all)
            .ok_or_else(|| format!("this host has no address of `{text}`, but {}", listed(all)))?,
    };
    if ip.is_unspecified() || ip.is_multicast() || is_of_its_link(ip) {
        return Err(format!(
            "senders cannot be told to send to {ip}: give an address of this host"
        ));
    }
    let has = ip.is_loopback() || all.iter().any(|(_, own)| *own == ip.to_canonical());
    if has { Ok(ip) } else { Err(format!("this host has no address {ip}, but {}", listed(all))) }
}

/// As `lo 127.0.0.1, eth0 10.0.0.4`.
fn listed(all: &[(String, IpAddr)]) -> String {
    let all = all.iter().filter(|(_, ip)| !is_of_its_link(*ip));
    let words: Vec<_> = all.take(16).map(|(name, ip)| format!("{name} {ip}")).collect();
    if words.is_empty() { "none".to_owned() } else { words.join(", ") }
}

/// The address of each receiver, in the order of the placement.
///
/// # Errors
/// Words: a receiver without an address, or one that its senders cannot reach.
pub(super) fn judge(
    placement: &Placement,
    hosts: &Hosts,
    found: &[RankAddresses],
) -> Result<Vec<IpAddr>, String> {
    let mut addresses = Vec::new();
    for receiver in &placement.receivers {
        let rank = receiver.rank;
        let own = found.get(rank as usize).and_then(|found| found.receiver.clone());
        let host = hosts.name(rank);
        let who = match &receiver.node {
            Some(node) => format!("node `{node}` (rank {rank}, host {host})"),
            None => format!("the receivers (rank {rank}, host {host})"),
        };
        let ip = own
            .unwrap_or_else(|| Err("no address has come".to_owned()))
            .map_err(|why| format!("{who}: {why}"))?;
        let flows = placement.flows.iter().filter(|flow| flow.to == rank);
        for flow in flows.filter(|flow| !hosts.is_same(flow.from, rank)) {
            let (flow, from) = (flow.flow, flow.from);
            let sender =
                format!("flow {flow}, which rank {from} sends on host {}", hosts.name(from));
            let advice = match receiver.node {
                Some(_) => {
                    "give the node another `address` in [nodes], or all receivers --mpi-interface, as eth1 or \
                     10.0.0.0/24"
                }
                None => "give --mpi-interface, as eth1 or 10.0.0.0/24",
            };
            if ip.is_loopback() {
                return Err(format!(
                    "{who} would receive at {ip}, where nothing of another host comes, and so not {sender}: {advice}"
                ));
            }
            let theirs = found.get(from as usize).map_or(&[][..], |found| &found.all);
            if theirs.contains(&ip.to_canonical()) {
                return Err(format!(
                    "{who} would receive at {ip}, which is an address of the other host, too, so that {sender} would \
                     stay there: {advice}"
                ));
            }
        }
        addresses.push(ip);
    }
    Ok(addresses)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(addresses: &[(&str, &str)]) -> Vec<(String, IpAddr)> {
        let one = |(name, ip): &(&str, &str)| ((*name).to_owned(), ip.parse().expect("an address"));
        addresses.iter().map(one).collect()
    }

    #[test]
    fn an_address_is_one_of_this_host() {
        let here = all(&[("lo", "127.0.0.1"), ("eth0", "10.0.0.4"), ("eth0", "fe80::4")]);
        let no = "but lo 127.0.0.1, eth0 10.0.0.4";
        let of = |text: &str| Listen::Address(text.to_owned());
        let interface = |text: &str| Listen::Interface(text.to_owned());
        for (listen, want) in [
            (Listen::Loopback, Ok("127.0.0.1")),
            (of("10.0.0.4"), Ok("10.0.0.4")),
            // The port is that of an agent.
            (of("10.0.0.4:9000"), Ok("10.0.0.4")),
            (of("127.0.1.1"), Ok("127.0.1.1")),
            (of("10.0.0.5"), Err(format!("this host has no address 10.0.0.5, {no}"))),
            (interface("eth0"), Ok("10.0.0.4")),
            (interface("10.0.0.0/8"), Ok("10.0.0.4")),
            (interface("eth1"), Err(format!("this host has no address of `eth1`, {no}"))),
        ] {
            let want = want.map(|ip| ip.parse::<IpAddr>().expect("an address"));
            assert_eq!(address(&listen, &here), want, "{listen:?}");
        }
        for text in ["0.0.0.0", "::", "224.0.0.1", "fe80::4%lo"] {
            let error = address(&of(text), &here).expect_err(text);
            assert!(error.starts_with("senders cannot be told to send to "), "{error}");
        }
    }
}
