//! Options of a job: ranks of nodes, and the interface of receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use clap::Args;

/// Ranks that an option may name: more than any launcher starts here.
const MOST_RANKS: u32 = 1 << 16;

/// Options of a job about nodes and addresses.
#[derive(Clone, Debug, Default, Args)]
pub struct MpiOptions {
    /// Under MPI: the ranks of each node, as `a=1,b=2-4,6`; without it the nodes, by their names, are the hosts of the
    /// job, by their ranks
    #[arg(long, value_name = "NODE=RANKS,…")]
    pub mpi_nodes: Option<NodeRanks>,
    /// Under MPI: interface (`eth1`) or network (`10.0.0.0/24`) whose address receivers have, and not that of `[nodes]`
    #[arg(long, value_name = "INTERFACE|NETWORK")]
    pub mpi_interface: Option<Interface>,
}

impl MpiOptions {
    /// Returns true if one of them is given.
    #[must_use]
    pub const fn any(&self) -> bool {
        self.mpi_nodes.is_some() || self.mpi_interface.is_some()
    }

    /// Those that are given, as words of a command line: what parses them gets these options again.
    #[must_use]
    pub fn words(&self) -> Vec<String> {
        let nodes = self.mpi_nodes.as_ref().map(|nodes| format!("--mpi-nodes={nodes}"));
        let interface = self.mpi_interface.as_ref();
        nodes
            .into_iter()
            .chain(interface.map(|interface| format!("--mpi-interface={interface}")))
            .collect()
    }
}

/// Ranks by node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRanks {
    text: String,
    /// Ranks of each node, ascending.
    pub(super) ranks: BTreeMap<String, BTreeSet<u32>>,
}

impl fmt::Display for NodeRanks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl FromStr for NodeRanks {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut ranks: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
        let mut taken = BTreeSet::new();
        let mut node: Option<&str> = None;
        for item in text.split(',') {
            let listed = match item.split_once('=') {
                None => item,
                Some((name, listed)) => {
                    if name.is_empty() || ranks.contains_key(name) {
                        return Err(format!("node `{name}` in `{item}`: expected another name"));
                    }
                    node = Some(name);
                    listed
                }
            };
            let Some(node) = node else {
                return Err(format!(
                    "`{item}` belongs to no node: write NODE=RANKS, as a=1,b=2-4,6"
                ));
            };
            let number = |text: &str| {
                let number = text.parse().ok().filter(|rank| *rank < MOST_RANKS);
                number.ok_or_else(|| format!("`{item}`: expected a rank, or FIRST-LAST, as 2-4"))
            };
            let (first, last) = listed.split_once('-').unwrap_or((listed, listed));
            let (first, last) = (number(first)?, number(last)?);
            if first > last {
                return Err(format!("`{item}`: the first rank is behind the last one"));
            }
            if first == 0 {
                return Err(format!("`{item}`: rank 0 keeps the logs and belongs to no node"));
            }
            for rank in first..=last {
                if !taken.insert(rank) {
                    return Err(format!("`{item}`: rank {rank} is named twice"));
                }
                ranks.entry(node.to_owned()).or_default().insert(rank);
            }
        }
        Ok(Self { text: text.to_owned(), ranks })
    }
}

/// Choice among the addresses of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Interface {
    /// Address of the interface of this name.
    Name(String),
    /// Address in a network: the first so many bits are equal.
    Network(IpAddr, u8),
}

impl fmt::Display for Interface {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Network(ip, bits) => write!(f, "{ip}/{bits}"),
        }
    }
}

impl FromStr for Interface {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((ip, bits)) = text.split_once('/') else {
            // As long as the system lets names of interfaces be.
            let plain = !text.is_empty() && text.len() < 16 && !text.contains(char::is_whitespace);
            return match plain {
                true if text.parse::<IpAddr>().is_err() => Ok(Self::Name(text.to_owned())),
                _ => Err(format!(
                    "`{text}`: expected an interface (eth1) or a network (10.0.0.0/24)"
                )),
            };
        };
        let network = ip.parse::<IpAddr>().ok().zip(bits.parse::<u8>().ok());
        let most = |ip: &IpAddr| if ip.is_ipv4() { 32 } else { 128 };
        match network {
            Some((ip, bits)) if bits <= most(&ip) => Ok(Self::Network(ip, bits)),
            _ => Err(format!("network `{text}`: expected ADDRESS/BITS, as 10.0.0.0/24")),
        }
    }
}

impl Interface {
    /// The first address that fits; of an interface one of IPv4 rather than one of IPv6, and none that is valid on its
    /// link alone.
    pub(super) fn choose(&self, all: &[(String, IpAddr)]) -> Option<IpAddr> {
        let fits = |(name, ip): &&(String, IpAddr)| match self {
            Self::Name(own) => name == own && !is_of_its_link(*ip),
            Self::Network(network, bits) => same_bits(*network, *ip, *bits),
        };
        let fitting = || all.iter().filter(fits).map(|(_, ip)| *ip);
        fitting().find(IpAddr::is_ipv4).or_else(|| fitting().next())
    }
}

/// Returns true if an address is one of IPv6 that is valid on its link alone.
pub(super) fn is_of_its_link(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}

fn same_bits(a: IpAddr, b: IpAddr, bits: u8) -> bool {
    let (a, b, len) = match (a, b) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (u128::from(a.to_bits()), u128::from(b.to_bits()), 32),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits(), b.to_bits(), 128),
        _ => return false,
    };
    (a ^ b).checked_shr(len - u32::from(bits)).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_nodes() {
        let of = |ranks: &[(&str, &[u32])]| -> BTreeMap<String, BTreeSet<u32>> {
            let one = |(node, ranks): &(&str, &[u32])| {
                ((*node).to_owned(), ranks.iter().copied().collect())
            };
            ranks.iter().map(one).collect()
        };
        for (text, want) in [
            ("a=1", Ok(of(&[("a", &[1])]))),
            ("b=2-4,6,a=1", Ok(of(&[("a", &[1]), ("b", &[2, 3, 4, 6])]))),
            ("a=0-2", Err("`a=0-2`: rank 0 keeps the logs and belongs to no node")),
            ("a=1,b=1", Err("`b=1`: rank 1 is named twice")),
            ("a=1,a=2", Err("node `a` in `a=2`: expected another name")),
            ("=1", Err("node `` in `=1`: expected another name")),
            ("1,a=2", Err("`1` belongs to no node: write NODE=RANKS, as a=1,b=2-4,6")),
            ("a=", Err("`a=`: expected a rank, or FIRST-LAST, as 2-4")),
            ("a=h1", Err("`a=h1`: expected a rank, or FIRST-LAST, as 2-4")),
            ("a=1-70000", Err("`a=1-70000`: expected a rank, or FIRST-LAST, as 2-4")),
            ("a=3-2", Err("`a=3-2`: the first rank is behind the last one")),
        ] {
            let got = text.parse::<NodeRanks>().map(|nodes| {
                assert_eq!(nodes.to_string(), text);
                nodes.ranks
            });
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }

    #[test]
    fn an_interface_or_a_network_chooses_an_address() {
        let all: Vec<(String, IpAddr)> = [
            ("lo", "127.0.0.1"),
            ("eth0", "10.0.0.4"),
            ("eth1", "fe80::4"),
            ("eth1", "fd00::4"),
            ("eth1", "192.168.7.4"),
            ("eth2", "fe80::5"),
        ]
        .map(|(name, ip)| (name.to_owned(), ip.parse().expect("an address")))
        .into();
        for (text, want) in [
            ("eth0", Ok(Some("10.0.0.4"))),
            ("eth1", Ok(Some("192.168.7.4"))),
            ("eth2", Ok(None)),
            ("eth9", Ok(None)),
            ("192.168.0.0/16", Ok(Some("192.168.7.4"))),
            ("fd00::/8", Ok(Some("fd00::4"))),
            ("0.0.0.0/0", Ok(Some("127.0.0.1"))),
            ("10.0.0.5/32", Ok(None)),
            ("10.0.0.0/33", Err("network `10.0.0.0/33`: expected ADDRESS/BITS, as 10.0.0.0/24")),
            (
                "10.0.0.4",
                Err("`10.0.0.4`: expected an interface (eth1) or a network (10.0.0.0/24)"),
            ),
            ("", Err("``: expected an interface (eth1) or a network (10.0.0.0/24)")),
        ] {
            let got = text.parse::<Interface>().map(|chosen| {
                assert_eq!(chosen.to_string(), text);
                chosen.choose(&all)
            });
            let want = want.map(|ip| ip.map(|ip| ip.parse().expect("an address")));
            assert_eq!(got, want.map_err(str::to_owned), "{text}");
        }
    }
}
