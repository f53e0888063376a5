//! Roles of the ranks of a job: which of them send the flows of a file, which receive them, and where.
//!
//! Without nodes all receivers are at rank 0, and each flow has a rank. With nodes rank 0 keeps the logs alone; each
//! node that receives has a rank for that, the lowest one of the node, and each of its flows another one. The same
//! plan, options and hosts give the same roles.

use std::collections::{BTreeMap, BTreeSet};

use itg_cli::Loaded;
use itg_core::text::suggestion;
use itg_experiment::{LOCAL, LOG_RANK};
use serde::{Deserialize, Serialize};

use super::options::MpiOptions;

/// Hosts of a job: ranks that reach each other over loopback share one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    of_rank: Vec<usize>,
    names: Vec<String>,
}

impl Hosts {
    /// From the name of each rank's host, and what tells it from other hosts of that name; in the order of ranks.
    pub(super) fn of(ranks: &[(String, String)]) -> Self {
        let mut known: Vec<&(String, String)> = Vec::new();
        let mut of_rank = Vec::new();
        for rank in ranks {
            let at = known.iter().position(|host| *host == rank).unwrap_or_else(|| {
                known.push(rank);
                known.len() - 1
            });
            of_rank.push(at);
        }
        Self { of_rank, names: known.into_iter().map(|(name, _)| name.clone()).collect() }
    }

    /// Number of hosts.
    pub(super) const fn count(&self) -> usize {
        self.names.len()
    }

    /// Name of the host of a rank.
    pub(super) fn name(&self, rank: u32) -> &str {
        self.at(rank).map_or("", |host| &self.names[host])
    }

    /// Returns true if two ranks share a host.
    pub(super) fn is_same(&self, a: u32, b: u32) -> bool {
        self.at(a) == self.at(b)
    }

    fn at(&self, rank: u32) -> Option<usize> {
        self.of_rank.get(rank as usize).copied()
    }

    fn ranks(&self) -> impl Iterator<Item = (u32, usize)> {
        (0..).zip(self.of_rank.iter().copied())
    }
}

/// Source of a receiver's address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Listen {
    /// Loopback: all ranks are on one host.
    Loopback,
    /// Address of `[nodes]`.
    Address(String),
    /// Interface or network, as the option says.
    Interface(String),
    /// Address that the name of the host stands for there.
    HostName,
}

/// A rank that receives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReceiverRank {
    pub(super) rank: u32,
    /// Its node; none when all receive at rank 0.
    pub(super) node: Option<String>,
    pub(super) listen: Listen,
}

/// A flow with the rank that sends it and the one that receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FlowRanks {
    pub(super) flow: u32,
    pub(super) from: u32,
    pub(super) to: u32,
}

/// Roles of the ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Placement {
    pub(super) receivers: Vec<ReceiverRank>,
    pub(super) flows: Vec<FlowRanks>,
    /// True if the senders' log goes to rank 0.
    pub(super) sender_log: bool,
    /// Ranks of nodes by name; empty without nodes.
    nodes: BTreeMap<String, Vec<u32>>,
}

/// Ranks that a node must have.
#[derive(Debug, Default)]
struct Need {
    receives: bool,
    flows: Vec<u32>,
}

impl Need {
    fn count(&self) -> usize {
        usize::from(self.receives) + self.flows.len()
    }

    /// As `receiver, flow 2`.
    fn words(&self) -> String {
        let flows = match self.flows.as_slice() {
            [] => None,
            [flow] => Some(format!("flow {flow}")),
            flows => Some(format!("flows {}", list(flows))),
        };
        let receiver = self.receives.then(|| "receiver".to_owned());
        receiver.into_iter().chain(flows).collect::<Vec<_>>().join(", ")
    }
}

/// Numbers, the first few of many.
fn list(numbers: &[u32]) -> String {
    let shown: Vec<_> = numbers.iter().take(8).map(ToString::to_string).collect();
    let more = if numbers.len() > 8 { ", …" } else { "" };
    shown.join(", ") + more
}

impl Placement {
    /// The roles, or why there are none.
    ///
    /// # Errors
    /// Words: ranks that are missing, with the number that is needed.
    pub(super) fn of(loaded: &Loaded, hosts: &Hosts, options: &MpiOptions) -> Result<Self, String> {
        let sender_log = loaded.experiment.log.server.as_deref() == Some(LOG_RANK);
        let interface = options.mpi_interface.as_ref();
        let interface = || interface.map(|chosen| Listen::Interface(chosen.to_string()));
        let nodes = &loaded.experiment.nodes;
        if nodes.is_empty() && options.mpi_nodes.is_none() {
            let here = if hosts.count() == 1 { Listen::Loopback } else { Listen::HostName };
            let listen = interface().unwrap_or(here);
            return Self::without_nodes(loaded, hosts.of_rank.len(), sender_log, listen);
        }
        let needs = needs(loaded)?;
        let nodes_of_ranks = ranks_of(loaded, &needs, hosts, options)?;
        let mut placement =
            Self { receivers: Vec::new(), flows: Vec::new(), sender_log, nodes: nodes_of_ranks };
        let mut senders = BTreeMap::new();
        let mut receiver_of = BTreeMap::new();
        for (node, need) in &needs {
            let mut ranks = placement.nodes.get(node).into_iter().flatten().copied();
            if need.receives
                && let Some(rank) = ranks.next()
            {
                let address = nodes.get(node).map(|node| Listen::Address(node.address.clone()));
                let here = if hosts.count() == 1 { Listen::Loopback } else { Listen::HostName };
                let listen = interface().or(address).unwrap_or(here);
                receiver_of.insert(node.as_str(), rank);
                let node = Some(node.clone());
                placement.receivers.push(ReceiverRank { rank, node, listen });
            }
            senders.extend(need.flows.iter().copied().zip(ranks));
        }
        for planned in &loaded.plan.flows {
            let flow = planned.flow.spec().id;
            let found = senders.get(&flow).copied().zip(receiver_of.get(&*planned.to).copied());
            let (from, to) = found.ok_or_else(|| format!("flow {flow} has no rank"))?;
            placement.flows.push(FlowRanks { flow, from, to });
        }
        Ok(placement)
    }

    /// All receivers at rank 0.
    fn without_nodes(
        loaded: &Loaded,
        size: usize,
        sender_log: bool,
        listen: Listen,
    ) -> Result<Self, String> {
        let flows = loaded.plan.flows.iter().map(|planned| planned.flow.spec().id);
        let want = flows.len() + usize::from(sender_log);
        if want != size {
            let log = if sender_log { " and a log rank" } else { "" };
            return Err(format!(
                "{} has {} flows{log}: it needs {want} ranks and not {size}: mpirun -n {want}",
                loaded.origin,
                flows.len()
            ));
        }
        let ranks = u32::from(sender_log)..;
        Ok(Self {
            receivers: vec![ReceiverRank { rank: 0, node: None, listen }],
            flows: ranks.zip(flows).map(|(from, flow)| FlowRanks { flow, from, to: 0 }).collect(),
            sender_log,
            nodes: BTreeMap::new(),
        })
    }

    /// The flow that a rank sends.
    pub(super) fn sends(&self, rank: u32) -> Option<FlowRanks> {
        self.flows.iter().find(|flow| flow.from == rank).copied()
    }

    /// Returns true if the receivers' log comes to rank 0 from other ranks.
    pub(super) fn receiver_log(&self) -> bool {
        !self.nodes.is_empty()
    }

    /// Roles by node in words; none without nodes.
    pub(super) fn words(&self, hosts: &Hosts) -> Option<String> {
        let mut words = vec![format!("rank 0 ({}): logs", hosts.name(0))];
        let mut idle: BTreeSet<u32> = (1..).take(hosts.of_rank.len().saturating_sub(1)).collect();
        for (node, ranks) in &self.nodes {
            let receives = self.receivers.iter().find(|other| other.node.as_ref() == Some(node));
            let sends: Vec<_> = ranks.iter().filter_map(|rank| self.sends(*rank)).collect();
            let mut roles = Vec::new();
            if let Some(receiver) = receives {
                idle.remove(&receiver.rank);
                roles.push(format!("rank {} receives", receiver.rank));
            }
            if let [first, ..] = sends.as_slice() {
                let ranks: Vec<u32> = sends.iter().map(|flow| flow.from).collect();
                idle.retain(|rank| !ranks.contains(rank));
                let flows: Vec<u32> = sends.iter().map(|flow| flow.flow).collect();
                roles.push(match sends.len() {
                    1 => format!("rank {} sends flow {}", first.from, first.flow),
                    _ => format!("ranks {} send flows {}", list(&ranks), list(&flows)),
                });
            }
            if !roles.is_empty() {
                let host = ranks.first().map_or("", |rank| hosts.name(*rank));
                words.push(format!("node `{node}` ({host}): {}", roles.join(", ")));
            }
        }
        if !idle.is_empty() {
            let idle: Vec<_> = idle.into_iter().collect();
            words.push(format!("nothing to do for {} more: {}", idle.len(), list(&idle)));
        }
        self.receiver_log().then(|| words.join("; "))
    }
}

/// Ranks that the flows need at each node of theirs.
fn needs(loaded: &Loaded) -> Result<BTreeMap<String, Need>, String> {
    let mut needs: BTreeMap<String, Need> = BTreeMap::new();
    let listed = &loaded.experiment.nodes;
    for planned in &loaded.plan.flows {
        let flow = planned.flow.spec().id;
        for (key, node) in [("from", &planned.from), ("to", &planned.to)] {
            if listed.is_empty() && node == LOCAL {
                return Err(format!(
                    "--mpi-nodes: flow {flow} has no `{key}`: name its node there"
                ));
            }
        }
        needs.entry(planned.from.clone()).or_default().flows.push(flow);
        needs.entry(planned.to.clone()).or_default().receives = true;
    }
    Ok(needs)
}

/// The ranks of each node: as the option says, or by hosts.
fn ranks_of(
    loaded: &Loaded,
    needs: &BTreeMap<String, Need>,
    hosts: &Hosts,
    options: &MpiOptions,
) -> Result<BTreeMap<String, Vec<u32>>, String> {
    let size = hosts.of_rank.len();
    let want = 1 + needs.values().map(Need::count).sum::<usize>();
    if size < want {
        let each = needs
            .iter()
            .map(|(node, need)| format!("node `{node}` {} ({})", need.count(), need.words()));
        let each: Vec<_> = each.collect();
        return Err(format!(
            "{} has {} flows between nodes: it needs {want} ranks and not {size}: rank 0 (logs), {}: mpirun -n {want}",
            loaded.origin,
            loaded.plan.flows.len(),
            each.join(", ")
        ));
    }
    let ranks = match &options.mpi_nodes {
        Some(given) => {
            for (node, ranks) in &given.ranks {
                if !needs.contains_key(node) && !loaded.experiment.nodes.contains_key(node) {
                    let hint = suggestion(node, needs.keys().map(String::as_str));
                    return Err(format!("--mpi-nodes: there is no node `{node}`: {hint}"));
                }
                if let Some(rank) = ranks.iter().find(|rank| **rank as usize >= size) {
                    let last = size - 1;
                    return Err(format!(
                        "--mpi-nodes: node `{node}` has rank {rank}, and the job has ranks 0 to {last}"
                    ));
                }
                let mut hosts_of = ranks.iter().map(|rank| (*rank, hosts.at(*rank)));
                let first = hosts_of.next();
                if let (Some((a, _)), Some((b, _))) =
                    (first, hosts_of.find(|other| first.is_some_and(|first| first.1 != other.1)))
                {
                    return Err(format!(
                        "--mpi-nodes: ranks {a} and {b} of node `{node}` are on different hosts, {} and {}",
                        hosts.name(a),
                        hosts.name(b)
                    ));
                }
            }
            let all = given.ranks.iter();
            all.map(|(node, ranks)| (node.clone(), ranks.iter().copied().collect())).collect()
        }
        None if hosts.count() == 1 => {
            let mut free = 1..;
            let all = needs.iter();
            all.map(|(node, need)| (node.clone(), free.by_ref().take(need.count()).collect()))
                .collect()
        }
        None => by_host(loaded, hosts)?,
    };
    for (node, need) in needs {
        let own = ranks.get(node).map_or(&[][..], Vec::as_slice);
        if own.len() < need.count() {
            let host = own.first().map_or("", |rank| hosts.name(*rank));
            let has = match own {
                [] => "has none".to_owned(),
                [rank] => format!("has rank {rank} (host {host})"),
                ranks => format!("has ranks {} (host {host})", list(ranks)),
            };
            return Err(format!(
                "node `{node}` needs {} rank{} ({}) and {has}: start that many there, or give its ranks with \
                 --mpi-nodes",
                need.count(),
                if need.count() == 1 { "" } else { "s" },
                need.words(),
            ));
        }
    }
    Ok(ranks)
}

/// The nodes of the file, in the order of their names, on the hosts of the job, in the order of their ranks. A host that
/// has rank 0 alone is that of the logs.
fn by_host(loaded: &Loaded, hosts: &Hosts) -> Result<BTreeMap<String, Vec<u32>>, String> {
    let mut of_host: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
    for (rank, host) in hosts.ranks().skip(1) {
        of_host.entry(host).or_default().push(rank);
    }
    let nodes: Vec<&String> = loaded.experiment.nodes.keys().collect();
    if nodes.len() != of_host.len() {
        let names: Vec<_> = of_host.keys().map(|host| hosts.names[*host].as_str()).collect();
        return Err(format!(
            "{} has {} nodes, and ranks beside rank 0 are on {} hosts ({}): start ranks on as many hosts, or give the \
             ranks of each node with --mpi-nodes",
            loaded.origin,
            nodes.len(),
            names.len(),
            names.join(", ")
        ));
    }
    Ok(nodes.into_iter().cloned().zip(of_host.into_values()).collect())
}
