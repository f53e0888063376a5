//! The nodes of a run before it begins: found, their versions and clocks compared, told of the run.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use itg_cli::Failure;
use tokio::task::JoinSet;

use crate::member::{Compared, compare_clocks, greet};
use crate::trust::Trust;
use crate::wire::{Call, Join, Reply, ask};

/// Time that nodes may take to hear that a run does not begin.
const FORGETTING: Duration = Duration::from_secs(1);

/// A node of the experiment.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) address: String,
    /// Its clock minus ours, and how wrong that may be.
    pub(crate) clock: (i64, u64),
    /// The quickest round trip to it, in nanoseconds.
    pub(crate) round_trip_ns: u64,
}

/// Identifier of a run, and the keys of its members.
#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) trust: Trust,
}

impl Run {
    /// Compares versions and clocks with all nodes at once; the reason for each that is not there, by slot.
    pub(crate) async fn look_at(&self, nodes: &mut [Node]) -> Result<BTreeMap<u32, String>> {
        let mut asking = JoinSet::new();
        for (slot, node) in nodes.iter().enumerate() {
            let (trust, address) = (self.trust.clone(), node.address.clone());
            asking.spawn(async move { (slot, look_at(&trust, &address).await) });
        }
        let mut absent = BTreeMap::new();
        while let Some(answer) = asking.join_next().await {
            match answer? {
                (slot, Ok(Compared { offset_ns, uncertainty_ns, round_trip_ns })) => {
                    nodes[slot].clock = (offset_ns, uncertainty_ns);
                    nodes[slot].round_trip_ns = round_trip_ns;
                }
                (slot, Err(error)) => {
                    let node = &nodes[slot];
                    let text = format!("node {} ({}): {error}", node.name, node.address);
                    absent.insert(u32::try_from(slot)?, text);
                }
            }
        }
        Ok(absent)
    }

    /// Tells these nodes of the run, all before any of them misses another.
    pub(crate) async fn join<'a>(
        &self,
        join: &Join,
        nodes: impl Iterator<Item = (u32, &'a Node)>,
    ) -> Result<()> {
        let (mut joining, mut asked) = (JoinSet::new(), Vec::new());
        for (slot, node) in nodes {
            asked.push(node.address.clone());
            let (trust, node) = (self.trust.clone(), node.clone());
            let (offset_ns, uncertainty_ns) = node.clock;
            let join = Join { slot, offset_ns, uncertainty_ns, ..join.clone() };
            joining.spawn(async move {
                let joined = call(&trust, &node.address, Call::Join(join)).await;
                let place = format!("node {} ({})", node.name, node.address);
                joined.map_err(|error| Failure::new(3, format!("{place}: joining: {error:#}")))
            });
        }
        let mut failed = None;
        while let Some(done) = joining.join_next().await {
            if let Err(error) = done? {
                failed = failed.or(Some(error));
            }
        }
        let Some(failed) = failed else { return Ok(()) };
        // They would wait for a run that does not come; one whose answer was lost may have joined, too.
        self.forget(asked).await;
        Err(failed.into())
    }

    /// Tells nodes that the run does not begin: they would wait for it. Those that do not hear of it in time find out.
    pub(crate) async fn forget(&self, addresses: Vec<String>) {
        drop(tokio::time::timeout(FORGETTING, self.tell_to_forget(addresses)).await);
    }

    async fn tell_to_forget(&self, addresses: Vec<String>) {
        let mut leaving = JoinSet::new();
        for address in addresses {
            let Self { trust, id } = self.clone();
            leaving.spawn(async move { call(&trust, &address, Call::Forget(id)).await });
        }
        while let Some(left) = leaving.join_next().await {
            if let Ok(Err(error)) = left {
                tracing::debug!("a node that may have joined: {error:#}");
            }
        }
    }
}

/// The address of the receiver of an agent: the next port.
pub(crate) fn receiver(address: &str) -> Result<String> {
    let (host, port) = address.rsplit_once(':').context("an address without a port")?;
    let port: u16 = port.parse().context("port")?;
    let port = port
        .checked_add(1)
        .context("an agent cannot have the last port: data comes to the next one")?;
    Ok(format!("{host}:{port}"))
}

/// Asks an agent one thing.
pub(crate) async fn call(trust: &Trust, address: &str, call: Call) -> Result<Reply> {
    let mut line = trust.connect(address).await?;
    greet(&mut line).await?;
    ask(&mut line, &call).await
}

/// Looks at an agent: its version, its clock.
async fn look_at(trust: &Trust, address: &str) -> Result<Compared, String> {
    let mut line = trust.connect(address).await.map_err(|error| error.to_string())?;
    let greeted =
        greet(&mut line).await.map_err(|error| format!("comparing versions: {error:#}"))?;
    tracing::debug!("{address} is {}", greeted.host);
    compare_clocks(&mut line, &greeted.boot_id)
        .await
        .map_err(|error| format!("comparing clocks: {error:#}"))
}
