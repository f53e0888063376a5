//! Accounts of flows at their end.

use std::collections::BTreeMap;

use itg_core::flow::Flow;
use itg_record::FlowEnd;
use itg_session::FlowTotals;

/// Packets that are counted at most to tell how many an overloaded flow did not send.
const MOST_COUNTED: usize = 10_000_000;

/// Counts the packets that a flow behind its time leaves out.
pub fn count_left_out(flow: &Flow, totals: &mut FlowTotals) {
    let sent = usize::try_from(totals.next_seq).unwrap_or(usize::MAX);
    let left_out = flow.schedule().skip(sent).take(MOST_COUNTED).count();
    totals.skipped += left_out as u64;
    if left_out == MOST_COUNTED {
        let remark = "so many packets were left out that the rest of them was not counted";
        totals.reason.remarks.push(remark.to_owned());
    }
}

/// The end of a flow, for the log of its sender; `waited` packets were due while the path took no more.
pub fn flow_end(
    index: u32,
    totals: &FlowTotals,
    waited: u64,
    refused_by: &BTreeMap<String, u64>,
) -> FlowEnd {
    FlowEnd {
        sent_packets: Some(totals.packets),
        sent_bytes: Some(totals.bytes),
        skipped_packets: Some(totals.skipped),
        waited_packets: Some(waited),
        refused_packets: Some(totals.failed),
        refused_by: refused_by.clone(),
        ..FlowEnd::new(index, totals.reason.to_string())
    }
}
