//! Selection of the flows of an experiment that start at this host.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use itg_cli::{Loaded, refuse};
use itg_socket::host;

/// Port of the signalling channel of receivers.
pub(crate) const CONTROL_PORT: u16 = 9000;
/// Flows that are named one by one in a message.
const MOST_NAMED: usize = 8;

/// The flows that this host sends, by number.
#[derive(Debug)]
pub(crate) struct Ours {
    pub(crate) flows: BTreeSet<u32>,
    /// Note of the flows that are left out, and why.
    pub(crate) notice: Option<String>,
}

/// Those of this node; without one, those of the nodes whose addresses this host has. A flow whose node has no
/// address in the file starts here.
///
/// # Errors
/// Nothing starts here.
pub(crate) fn ours(loaded: &Loaded, node: Option<&str>) -> Result<Ours> {
    let origin = &loaded.origin;
    let mut flows = BTreeSet::new();
    let mut others: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for planned in &loaded.plan.flows {
        let id = planned.flow.spec().id;
        if is_here(loaded, &planned.from, node) {
            flows.insert(id);
        } else {
            others.entry(&planned.from).or_default().push(id);
        }
    }
    if flows.is_empty() {
        return Err(refuse(match node {
            Some(node) => format!("no flow of {origin} is sent by node `{node}`"),
            None => format!(
                "no flow of {origin} starts at this host, which has none of the addresses of {}: run this there, or \
                 send the flows of a node from here with --node NAME",
                others.keys().map(|name| addressed(loaded, name)).collect::<Vec<_>>().join(", ")
            ),
        }));
    }
    let left: Vec<String> = others
        .iter()
        .map(|(name, ids)| format!("{} of node {}", numbers(ids), addressed(loaded, name)))
        .collect();
    let why = match node {
        Some(node) => format!("--node {node}"),
        None => {
            "not addresses of this host; --node NAME sends those of a node from here".to_owned()
        }
    };
    let notice = (!left.is_empty()).then(|| format!("left out: {} ({why})", left.join(", ")));
    Ok(Ours { flows, notice })
}

fn is_here(loaded: &Loaded, name: &str, node: Option<&str>) -> bool {
    if let Some(node) = node {
        return node == name;
    }
    let Some(entry) = loaded.experiment.nodes.get(name) else { return true };
    // A name that is not known here is not this host's.
    itg_socket::resolve(&entry.address, CONTROL_PORT).is_ok_and(|at| host::has_address(at.ip()))
}

fn addressed(loaded: &Loaded, name: &str) -> String {
    match loaded.experiment.nodes.get(name) {
        Some(entry) => format!("{name} ({})", entry.address),
        None => name.to_owned(),
    }
}

fn numbers(ids: &[u32]) -> String {
    match ids {
        [id] => format!("flow {id}"),
        _ if ids.len() > MOST_NAMED => format!("{} flows", ids.len()),
        _ => {
            let ids: Vec<String> = ids.iter().map(u32::to_string).collect();
            format!("flows {}", ids.join(" "))
        }
    }
}
