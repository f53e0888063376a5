//! Marks in the IP headers of packets, as sent beside as received: DSCP (RFC 2474), ECN (RFC 3168) and hop limit.
//!
//! Where a router rewrites the DSCP the network treats the flow as something else: to 0 it is called bleaching
//! (Custura, Secchi, Fairhurst, "Exploring DSCP modification pathologies in the Internet", Computer Communications 127,
//! 2018). Marks of congestion (CE) come in runs, as queues stay full for a while.

use std::collections::BTreeMap;

use itg_core::flow::SocketOptions;
use itg_record::Record;
use serde::Serialize;

/// ECN codepoint of congestion experienced.
const CE: u8 = 3;

/// Runs of packets in order of arrival that are marked with congestion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct CeRuns {
    packets: u64,
    marked: u64,
    runs: u64,
    longest: u64,
    /// Length of the run that the first packet is in, and of that which the last one is in.
    first: u64,
    last: u64,
}

impl CeRuns {
    fn add(&mut self, marked: bool, packets: u64) {
        let run = if marked { packets } else { 0 };
        let runs = u64::from(marked);
        self.append(&Self { packets, marked: run, runs, longest: run, first: run, last: run });
    }

    /// Adds later packets.
    fn append(&mut self, later: &Self) {
        let joined = self.last + later.first;
        let is_one = self.last > 0 && later.first > 0;
        self.longest = self.longest.max(later.longest).max(joined);
        self.runs = self.runs + later.runs - u64::from(is_one);
        if self.first == self.packets {
            self.first = joined;
        }
        self.last =
            if later.last == later.packets { self.last + later.packets } else { later.last };
        self.packets += later.packets;
        self.marked += later.marked;
    }
}

/// Marks of arrivals, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Marks {
    /// Packets by hop limit and traffic class byte.
    counts: BTreeMap<(u8, u8), u64>,
    congestion: CeRuns,
    /// The marks of the last packets, and how many they are: not yet among the others.
    last: (u8, u8),
    packets: u64,
}

impl Marks {
    /// Takes the next arrival. Its marks are not known where it says no hop limit, as on TCP.
    #[inline]
    pub(crate) fn add(&mut self, record: &Record) {
        self.add_many((record.ttl, record.tos), 1);
    }

    /// Takes so many next arrivals, all with this hop limit and traffic class byte.
    #[inline]
    pub(crate) fn add_many(&mut self, marks: (u8, u8), packets: u64) {
        if marks != self.last {
            self.settle();
            self.last = marks;
        }
        self.packets += packets;
    }

    fn settle(&mut self) {
        let packets = std::mem::take(&mut self.packets);
        if packets > 0 && self.last.0 != 0 {
            *self.counts.entry(self.last).or_default() += packets;
            self.congestion.add(self.last.1 & 3 == CE, packets);
        }
    }

    /// Adds later arrivals.
    pub(crate) fn append(&mut self, later: &Self) {
        self.settle();
        let mut later = later.clone();
        later.settle();
        for (marks, packets) in later.counts {
            *self.counts.entry(marks).or_default() += packets;
        }
        self.congestion.append(&later.congestion);
    }

    /// The report of them beside what a flow asks for; `None` where no packet told its marks.
    pub(crate) fn report(&self, asked: Option<&SocketOptions>) -> Option<MarksReport> {
        let mut all = self.clone();
        all.settle();
        let counts = |of: fn((u8, u8)) -> u8| {
            let mut found: BTreeMap<u8, u64> = BTreeMap::new();
            for (&marks, packets) in &all.counts {
                *found.entry(of(marks)).or_default() += packets;
            }
            found
        };
        let CeRuns { packets, marked, runs, longest, .. } = all.congestion;
        (packets > 0).then(|| MarksReport {
            sent_dscp: asked.map(|asked| asked.tos.unwrap_or(0) >> 2),
            sent_ecn: asked.map(|asked| asked.tos.unwrap_or(0) & 3),
            sent_hop_limit: asked.and_then(|asked| asked.ttl),
            packets,
            dscp: counts(|(_, tos)| tos >> 2),
            ecn: counts(|(_, tos)| tos & 3),
            hop_limit: counts(|(ttl, _)| ttl),
            ce_packets: marked,
            ce_runs: runs,
            ce_longest_run: longest,
        })
    }
}

/// Marks of the packets of a flow that arrived, beside those that it was sent with; at the sender of a round-trip flow
/// those of the replies. Keys are the values, values the packets that had them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct MarksReport {
    /// DSCP that the flow asks for.
    pub sent_dscp: Option<u8>,
    /// ECN codepoint that it asks for.
    pub sent_ecn: Option<u8>,
    /// Hop limit or time to live that it asks for; `None` where the host chose.
    pub sent_hop_limit: Option<u8>,
    /// Packets whose marks are known.
    pub packets: u64,
    /// By DSCP.
    pub dscp: BTreeMap<u8, u64>,
    /// By ECN codepoint: 0 not capable, 1 and 2 capable, 3 congestion experienced.
    pub ecn: BTreeMap<u8, u64>,
    /// By hop limit as it arrived.
    pub hop_limit: BTreeMap<u8, u64>,
    /// Packets that are marked with congestion experienced (CE).
    pub ce_packets: u64,
    /// Runs of them, in order of arrival.
    pub ce_runs: u64,
    /// Packets of the longest run.
    pub ce_longest_run: u64,
}

impl MarksReport {
    /// Returns true if the flow asks for marks, or its packets have some beside a hop limit.
    pub(crate) fn are_special(&self) -> bool {
        let marked = |counts: &BTreeMap<u8, u64>| counts.keys().any(|&value| value != 0);
        let asked = [self.sent_dscp, self.sent_ecn].into_iter().flatten().any(|value| value != 0);
        asked || self.sent_hop_limit.is_some() || marked(&self.dscp) || marked(&self.ecn)
    }

    /// Packets by a mark, the most frequent value first: `46 (990), 0 (10)`.
    pub(crate) fn words(counts: &BTreeMap<u8, u64>) -> String {
        let mut all: Vec<_> = counts.iter().collect();
        all.sort_by_key(|(value, packets)| (std::cmp::Reverse(**packets), **value));
        let named: Vec<_> = match all.as_slice() {
            [(value, _)] => vec![value.to_string()],
            all => {
                all.iter().take(4).map(|(value, packets)| format!("{value} ({packets})")).collect()
            }
        };
        let more = if all.len() > 4 { ", …" } else { "" };
        format!("{}{more}", named.join(", "))
    }

    /// Notices on what the network did to the marks.
    pub(crate) fn notices(&self) -> Vec<String> {
        let mut notices = Vec::new();
        if let Some(sent) = self.sent_dscp {
            let bleached = if sent == 0 { 0 } else { self.dscp.get(&0).copied().unwrap_or(0) };
            let others: u64 = self
                .dscp
                .iter()
                .filter(|(value, _)| ![0, sent].contains(*value))
                .map(|(_, n)| n)
                .sum();
            if bleached > 0 {
                notices.push(format!(
                    "{bleached} of {} packets were sent with DSCP {sent} and arrived with 0: it was bleached on the way",
                    self.packets
                ));
            }
            if others > 0 {
                notices.push(format!(
                    "{others} of {} packets were sent with DSCP {sent} and arrived with another: {}",
                    self.packets,
                    Self::words(&self.dscp)
                ));
            }
        }
        if self.ce_packets > 0 {
            notices.push(format!(
                "{} of {} packets arrived with a mark of congestion (CE), in {} runs, the longest of {}",
                self.ce_packets, self.packets, self.ce_runs, self.ce_longest_run
            ));
        }
        notices
    }
}

#[cfg(test)]
mod tests {
    use itg_record::ReceivedPacket;
    use proptest::prelude::*;

    use super::*;

    fn arrival(ttl: u8, tos: u8) -> Record {
        Record::received(ReceivedPacket {
            flow: 0,
            seq: 0,
            size: 64,
            sent_ns: 1,
            arrived_ns: 2,
            read_ns: 3,
            ttl,
            tos,
        })
    }

    fn marks(list: &[(u8, u8)]) -> Marks {
        let mut marks = Marks::default();
        list.iter().for_each(|&(ttl, tos)| marks.add(&arrival(ttl, tos)));
        marks
    }

    proptest! {
        #[test]
        fn parts_make_the_same_as_the_whole(
            list in prop::collection::vec((prop::sample::select(vec![0u8, 63, 64]), 0u8..8), 0..60),
            cut in 0usize..60,
        ) {
            let cut = cut.min(list.len());
            let mut parts = marks(&list[..cut]);
            parts.append(&marks(&list[cut..]));
            let whole = marks(&list).report(None);
            prop_assert_eq!(&parts.report(None), &whole);
            // Against the obvious way.
            let told: Vec<u8> = list.iter().filter(|(ttl, _)| *ttl > 0).map(|(_, tos)| tos & 3).collect();
            let runs: Vec<usize> =
                told.split(|&ecn| ecn != CE).map(<[u8]>::len).filter(|&len| len > 0).collect();
            let want = (told.len(), runs.iter().sum::<usize>(), runs.len(), runs.iter().copied().max().unwrap_or(0));
            let got = whole.map_or((0, 0, 0, 0), |m| (m.packets, m.ce_packets, m.ce_runs, m.ce_longest_run));
            let want = [want.0, want.1, want.2, want.3].map(|n| n as u64);
            prop_assert_eq!([got.0, got.1, got.2, got.3], want);
        }
    }

    #[test]
    fn what_the_network_did_to_marks_is_told() {
        let asked = SocketOptions { tos: Some(46 << 2), ttl: Some(9), ..SocketOptions::default() };
        for (list, want) in [
            (vec![(7, 46 << 2); 5], vec![]),
            (
                vec![(7, 46 << 2), (7, 0), (7, 0)],
                vec![
                    "2 of 3 packets were sent with DSCP 46 and arrived with 0: it was bleached on the way",
                ],
            ),
            (
                vec![(7, 10 << 2), (7, 46 << 2)],
                vec![
                    "1 of 2 packets were sent with DSCP 46 and arrived with another: 10 (1), 46 (1)",
                ],
            ),
            (
                vec![(7, 46 << 2 | CE), (7, 46 << 2), (7, 46 << 2 | CE), (7, 46 << 2 | CE)],
                vec![
                    "3 of 4 packets arrived with a mark of congestion (CE), in 2 runs, the longest of 2",
                ],
            ),
        ] {
            let report = marks(&list).report(Some(&asked)).expect("marks");
            assert_eq!(report.notices(), want, "{list:?}");
            assert_eq!((report.sent_dscp, report.sent_hop_limit), (Some(46), Some(9)));
        }
        assert_eq!(marks(&[(0, 0); 3]).report(Some(&asked)), None, "as on TCP");
    }
}
