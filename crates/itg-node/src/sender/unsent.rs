//! The account of a flow that is not sent.

use itg_session::{EndCause, FlowTotals};

/// The account of a flow of which no packet has left.
pub(super) fn unsent(flow: u32, cause: EndCause) -> FlowTotals {
    let (packets, bytes, skipped, failed, next_seq) = (0, 0, 0, 0, 0);
    FlowTotals { flow, packets, bytes, skipped, failed, next_seq, reason: cause.into() }
}
