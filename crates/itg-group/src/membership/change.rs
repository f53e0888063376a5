//! Changes of views, for both modes: their cause, and when positions in the tree become ranks.

use std::time::Duration;

use itg_members::{Changes, Shape, View};
use itg_process::Time;

use super::message::Cause;

/// The tree is reranked at most this often.
const RERANK_EVERY: Duration = Duration::from_secs(60);

/// Returns true if positions should become ranks: a member has more than four times as many
/// children as the arity, and it was not done a short while ago.
pub(super) fn wants_rerank(view: &View, last: Option<Time>, now: Time) -> bool {
    let most = 4 * view.rules().arity.get() as usize;
    let holes = (view.roster().capacity() - view.len()) as usize;
    // Each hole gives the member above it at most all of its own children.
    view.shape() == Shape::Contract
        && holes * (most / 4) > most - most / 4
        && last.is_none_or(|at| now - at >= RERANK_EVERY)
        && view.tree().fan_out() > most
}

/// Cause of these changes.
pub(super) fn cause(changes: &Changes) -> Cause {
    let mut added = changes.added();
    if changes.is_empty() {
        Cause::Rerank
    } else if added.any(|member| member.incarnation > 1) {
        Cause::AliveNodeJoin
    } else if changes.added().next().is_some() {
        Cause::NewNodeJoin
    } else {
        Cause::FailedNode
    }
}
