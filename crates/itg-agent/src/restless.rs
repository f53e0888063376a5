//! A node that is started again and again: it gives its flows away.

use std::collections::BTreeMap;

use itg_control::{Failover, Phase, Replica, Stage};

/// Starts within [`WITHIN_S`] that make a node restless, the last one included.
pub(crate) const STARTS: usize = 3;
/// That time, in seconds.
pub(crate) const WITHIN_S: u64 = 60;

/// Flows that this node owns, each with the node that is to send it from now on: the one with the fewest flows. None where
/// flows wait for their nodes, or where no other node can send.
pub(crate) fn gifts(replica: &Replica, me: u32) -> Vec<(u32, u32)> {
    if replica.phase() != Phase::Running || replica.rules().failover != Failover::Move {
        return Vec::new();
    }
    let others = replica.holders().iter().copied();
    let others = others.filter(|slot| *slot != me && replica.rules().console != Some(*slot));
    let mut load: BTreeMap<u32, usize> = others.map(|slot| (slot, 0)).collect();
    for word in replica.words() {
        if let Some(flows) = word.owner().and_then(|owner| load.get_mut(&owner)) {
            *flows += 1;
        }
    }
    let mut gifts = Vec::new();
    for (word, flow) in replica.words().iter().zip(1_u32..) {
        if word.owner() != Some(me) || word.stage() != Stage::Running {
            continue;
        }
        let Some((to, flows)) = load.iter_mut().min_by_key(|(slot, flows)| (**flows, **slot))
        else {
            break;
        };
        *flows += 1;
        gifts.push((flow, *to));
    }
    gifts
}
