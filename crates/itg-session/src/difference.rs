//! Difference between the sender's and the receiver's account of a flow, and its reasons.
//!
//! With *sent* packets that the sender's kernel took, *received* packets that the receiver read and
//! *unique* sequence numbers among them: duplicates = received − unique, lost = sent − unique
//! (RFC 7680: a packet is lost when no copy of it arrives; counted when the flow has been drained).

use std::fmt;

use crate::message::{FlowCounts, FlowTotals};

/// The difference between both accounts of a flow. All zero: they agree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Difference {
    /// Packets that were sent and never read.
    pub lost: u64,
    /// Packets of which the receiver's kernel says that it dropped them before the receiver could read
    /// them; 0 where it dropped more than are lost: those were of other flows, too.
    pub dropped_by_socket: u64,
    /// Further copies of packets.
    pub duplicated: u64,
    /// Sequence numbers read beyond the number of packets sent: the sender counts less than it
    /// sent. A failed send that left nevertheless shows here.
    pub unexplained: u64,
    /// Bytes received more (or less, if negative) than sent although every packet arrived once.
    pub bytes: i128,
}

impl Difference {
    /// Compares both accounts of the same flow.
    #[must_use]
    pub fn between(totals: &FlowTotals, counts: &FlowCounts) -> Self {
        let lost = totals.packets.saturating_sub(counts.unique);
        let mut difference = Self {
            lost,
            dropped_by_socket: counts.socket_drops.filter(|drops| *drops <= lost).unwrap_or(0),
            duplicated: counts.packets.saturating_sub(counts.unique),
            unexplained: counts.unique.saturating_sub(totals.packets),
            bytes: 0,
        };
        if difference == Self::default() {
            difference.bytes = i128::from(counts.bytes) - i128::from(totals.bytes);
        }
        difference
    }

    /// Returns true if packets did not arrive as they were sent, though none is missing: neither loss
    /// nor duplication explains it, so what was measured is not what was asked for.
    #[must_use]
    pub const fn is_corrupt(&self) -> bool {
        self.bytes != 0
    }

    /// Returns true if both sides agree.
    #[must_use]
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

/// Lists the differences in words: `2 packets lost in the network, 1 duplicate`.
impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let elsewhere = self.lost - self.dropped_by_socket;
        let parts = [
            (self.dropped_by_socket > 0).then(|| {
                let n = number(self.dropped_by_socket, "packet");
                format!("{n} dropped by the receiver's full socket buffer")
            }),
            (elsewhere > 0).then(|| {
                format!("{} lost in the network or at the receiver", number(elsewhere, "packet"))
            }),
            (self.duplicated > 0).then(|| number(self.duplicated, "duplicate")),
            (self.unexplained > 0).then(|| {
                format!("{} more than the sender counts", number(self.unexplained, "packet"))
            }),
            (self.bytes != 0).then(|| bytes_than_sent(self.bytes)),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        f.write_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(", ") })
    }
}

/// One sentence about a flow: both sides agree, or what explains the difference.
#[must_use]
pub fn explain(totals: &FlowTotals, counts: &FlowCounts) -> String {
    let difference = Difference::between(totals, counts);
    let (flow, sent, bytes) = (totals.flow, number(totals.packets, "packet"), totals.bytes);
    let mut text = if difference.is_none() {
        format!("flow {flow}: both sides agree on {sent} ({bytes} bytes)")
    } else {
        let (received, their_bytes) = (counts.packets, counts.bytes);
        format!(
            "flow {flow}: {sent} ({bytes} bytes) sent, {received} ({their_bytes} bytes) received: \
             {difference}"
        )
    };
    for (n, what, rest) in [
        (totals.failed, "packet", "not taken by the sender's kernel"),
        (totals.skipped, "late packet", "left out by the sender"),
        (counts.foreign, "foreign packet", "ignored by the receiver"),
        (counts.log_lost_records, "record", "missing in the receiver's log"),
    ] {
        if n > 0 {
            text += &format!("; {} {rest}", number(n, what));
        }
    }
    text + "."
}

/// A part of a sentence about the replies to a round-trip flow: how many came back, and whether as they were sent.
#[must_use]
pub fn explain_replies(totals: &FlowTotals, replies: &FlowCounts) -> String {
    let difference = Difference::between(totals, replies);
    let (unique, missing) = (replies.unique, difference.lost);
    let mut text = format!("{unique} replies came back, {missing} did not");
    if difference.bytes != 0 {
        text += &format!(", and they had {}", bytes_than_sent(difference.bytes));
    }
    text
}

fn bytes_than_sent(bytes: i128) -> String {
    let (n, more) = (bytes.unsigned_abs(), bytes > 0);
    format!("{n} bytes {} than sent", if more { "more" } else { "less" })
}

/// A number and its noun.
pub(crate) fn number(n: u64, noun: &str) -> String {
    if n == 1 { format!("1 {noun}") } else { format!("{n} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use itg_core::end::EndCause;

    fn totals(packets: u64, bytes: u64) -> FlowTotals {
        FlowTotals {
            flow: 3,
            packets,
            bytes,
            skipped: 0,
            failed: 0,
            next_seq: packets,
            reason: EndCause::ScheduleDone.into(),
        }
    }

    fn counts(packets: u64, bytes: u64, unique: u64) -> FlowCounts {
        FlowCounts {
            flow: 3,
            packets,
            bytes,
            unique,
            socket_drops: None,
            foreign: 0,
            log_lost_records: 0,
            more: Default::default(),
        }
    }

    #[test]
    fn differences_are_explained_in_one_sentence() {
        let t = totals;
        let c = counts;
        let drops = |n, c| FlowCounts { socket_drops: Some(n), ..c };
        for (totals, counts, want) in [
            (t(10, 5120), c(10, 5120, 10), "flow 3: both sides agree on 10 packets (5120 bytes)."),
            (t(0, 0), c(0, 0, 0), "flow 3: both sides agree on 0 packets (0 bytes)."),
            (
                t(10, 5120),
                c(9, 4608, 9),
                "flow 3: 10 packets (5120 bytes) sent, 9 (4608 bytes) received: 1 packet lost in \
                 the network or at the receiver.",
            ),
            (
                t(100, 51_200),
                drops(7, c(92, 47_104, 90)),
                "flow 3: 100 packets (51200 bytes) sent, 92 (47104 bytes) received: 7 packets \
                 dropped by the receiver's full socket buffer, 3 packets lost in the network or at \
                 the receiver, 2 duplicates.",
            ),
            (
                // The socket dropped packets of others, too: whose the lost one was is not known.
                t(10, 5120),
                drops(99, c(9, 4608, 9)),
                "flow 3: 10 packets (5120 bytes) sent, 9 (4608 bytes) received: 1 packet lost in \
                 the network or at the receiver.",
            ),
            (
                t(10, 5120),
                c(11, 5632, 10),
                "flow 3: 10 packets (5120 bytes) sent, 11 (5632 bytes) received: 1 duplicate.",
            ),
            (
                t(10, 5120),
                c(12, 6144, 12),
                "flow 3: 10 packets (5120 bytes) sent, 12 (6144 bytes) received: 2 packets more \
                 than the sender counts.",
            ),
            (
                t(10, 5120),
                c(10, 5100, 10),
                "flow 3: 10 packets (5120 bytes) sent, 10 (5100 bytes) received: 20 bytes less \
                 than sent.",
            ),
            (
                t(10, 5120),
                c(10, u64::MAX, 10),
                "flow 3: 10 packets (5120 bytes) sent, 10 (18446744073709551615 bytes) received: \
                 18446744073709546495 bytes more than sent.",
            ),
            (
                FlowTotals { skipped: 4, failed: 1, ..t(10, 5120) },
                FlowCounts { foreign: 1, log_lost_records: 35, ..c(10, 5120, 10) },
                "flow 3: both sides agree on 10 packets (5120 bytes); 1 packet not taken by the \
                 sender's kernel; 4 late packets left out by the sender; 1 foreign packet ignored \
                 by the receiver; 35 records missing in the receiver's log.",
            ),
        ] {
            assert_eq!(explain(&totals, &counts), want, "{totals:?} {counts:?}");
        }
    }

    #[test]
    fn replies_that_are_cut_are_told() {
        for (replies, want, corrupt) in [
            (counts(10, 5120, 10), "10 replies came back, 0 did not", false),
            (counts(8, 4096, 8), "8 replies came back, 2 did not", false),
            (
                counts(10, 880, 10),
                "10 replies came back, 0 did not, and they had 4240 bytes less than sent",
                true,
            ),
        ] {
            assert_eq!(explain_replies(&totals(10, 5120), &replies), want);
            assert_eq!(Difference::between(&totals(10, 5120), &replies).is_corrupt(), corrupt);
        }
    }

    #[test]
    fn no_difference_is_called_none() {
        assert_eq!(Difference::default().to_string(), "none");
    }
}
