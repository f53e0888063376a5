//! The owners of a flow at one side: the nodes that sent it, with the entries of the log on each.
//!
//! A flow that was moved, or whose sender was started again, has several: each sender's log holds its own
//! packets and its own end, and the receiver's log has a description and an end for each of the connections.
//! Counts are sums over all of them. A sum that lacks an owner is no count of the flow: what was sent is known
//! only where each owner has told it.

use std::collections::BTreeMap;

use itg_core::end::{EndCause, EndReason};
use itg_record::{FlowEnd, FlowInfo};

use crate::stats::Volume;

/// Owners that a notice names at most.
const NAMED: usize = 8;

/// One of them.
#[derive(Debug)]
struct Owner<'l> {
    /// Number of the log, and index of the flow in it.
    source: (usize, u32),
    /// Its description, unless that is lost.
    info: Option<&'l FlowInfo>,
    /// Packets in the log, and the times of the first and the last one.
    packets: u64,
    first_unix_ns: Option<u64>,
    last_unix_ns: Option<u64>,
    end: Option<&'l FlowEnd>,
    lack: Lack,
}

/// Records that a log may lack of a flow, from the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    /// None.
    #[default]
    Nothing,
    /// Those behind its last one: it breaks off before the flow ends.
    Tail,
    /// Any: some could not be written, or are damaged.
    Some,
}

impl Lack {
    /// Reason why such a log is no account.
    pub(super) const fn words(self) -> Option<&'static str> {
        match self {
            Self::Nothing => None,
            Self::Tail => Some("its log breaks off"),
            Self::Some => Some("its log lacks records"),
        }
    }
}

/// All owners of a flow at one side.
#[derive(Debug, Default)]
pub(super) struct Owners<'l>(Vec<Owner<'l>>);

/// One count of an end.
pub(super) type Count = fn(&FlowEnd) -> Option<u64>;

impl<'l> Owners<'l> {
    /// Takes another owner, unless it is known.
    pub(super) fn add(&mut self, source: (usize, u32), info: Option<&'l FlowInfo>) {
        if !self.0.iter().any(|owner| owner.source == source) {
            // Most flows have one.
            self.0.reserve_exact(1);
            self.0.push(Owner {
                source,
                info,
                packets: 0,
                first_unix_ns: None,
                last_unix_ns: None,
                end: None,
                lack: Lack::Nothing,
            });
        }
    }

    fn get(&mut self, source: (usize, u32)) -> Option<&mut Owner<'l>> {
        self.0.iter_mut().find(|owner| owner.source == source)
    }

    /// Notes the packets that the log has of an owner.
    pub(super) fn saw(&mut self, source: (usize, u32), volume: &Volume) {
        if let Some(owner) = self.get(source) {
            (owner.packets, owner.first_unix_ns) = (volume.packets, volume.first_unix_ns);
            owner.last_unix_ns = volume.last_unix_ns;
        }
    }

    /// Notes how an owner ended.
    pub(super) fn ended(&mut self, source: (usize, u32), end: &'l FlowEnd) {
        if let Some(owner) = self.get(source) {
            owner.end = Some(end);
        }
    }

    /// Notes what the log lacks of an owner's records.
    pub(super) fn lacks(&mut self, source: (usize, u32), lack: Lack) {
        if let Some(owner) = self.get(source) {
            owner.lack = lack;
        }
    }

    /// Notes what the log of a receiver may lack of an owner's records: nothing where it has all that were counted,
    /// whatever became of the records of others.
    pub(super) fn lacks_of_counted(&mut self, source: (usize, u32), lack: Lack) {
        if let Some(owner) = self.get(source) {
            let end = owner.end.filter(|end| end.log_lost_records == 0);
            let counted = end.and_then(|end| end.received_packets);
            owner.lack = if counted == Some(owner.packets) { Lack::Nothing } else { lack };
        }
    }

    /// The most that the log of an owner lacks.
    pub(super) fn lack(&self) -> Lack {
        self.0.iter().map(|owner| owner.lack).max().unwrap_or_default()
    }

    /// An account that its own log contradicts: packets counted, and the more that are in the log.
    pub(super) fn contradiction(&self, what: Count) -> Option<(u64, u64)> {
        self.0.iter().find_map(|owner| {
            let counted = owner.end.and_then(what)?;
            (counted < owner.packets).then_some((counted, owner.packets))
        })
    }

    /// Packets of all of them in the log.
    fn packets(&self) -> u64 {
        self.0.iter().map(|owner| owner.packets).fold(0, u64::saturating_add)
    }

    /// Descriptions of those that have packets in the log, each with the times of these; `first` is the flow's.
    pub(super) fn described(
        &self,
        first: Option<&'l FlowInfo>,
    ) -> impl Iterator<Item = (&'l FlowInfo, Volume)> {
        let seen = self.0.iter().filter(|owner| owner.packets > 0);
        seen.filter_map(move |owner| {
            let Owner { packets, first_unix_ns, last_unix_ns, .. } = *owner;
            let volume = Volume { packets, first_unix_ns, last_unix_ns, ..Volume::default() };
            Some((owner.info.or(first)?, volume))
        })
    }

    /// Places of their records: number of the log and index of the flow in it.
    pub(super) fn sources(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().map(|owner| owner.source)
    }

    /// A count of all of them; `None` where one of them has not told it.
    pub(super) fn sum(&self, what: Count) -> Option<u64> {
        let counts = self.0.iter().map(|owner| owner.end.and_then(what));
        let all = counts.reduce(|sum, more| Some(sum?.saturating_add(more?)));
        all.flatten()
    }

    /// A count of those that have told it; `None` if none has.
    pub(super) fn told(&self, what: Count) -> Option<u64> {
        self.ends().filter_map(what).reduce(u64::saturating_add)
    }

    /// The smallest of a figure.
    pub(super) fn smallest(&self, what: Count) -> Option<u64> {
        self.ends().filter_map(what).min()
    }

    fn ends(&self) -> impl Iterator<Item = &'l FlowEnd> {
        self.0.iter().filter_map(|owner| owner.end)
    }

    /// Records of the flow that could not be written.
    pub(super) fn unwritten(&self) -> u64 {
        self.told(|end| Some(end.log_lost_records)).unwrap_or(0)
    }

    /// Packets of a count that are not in the log; `None` where no owner has told it.
    pub(super) fn beyond_log(&self, what: Count) -> Option<u64> {
        let missing = self.0.iter().filter_map(|owner| {
            let end = owner.end?;
            // An account that its own log contradicts is an error of its own.
            let beyond = what(end)?.saturating_sub(owner.packets);
            Some(beyond.max(end.log_lost_records))
        });
        missing.reduce(u64::saturating_add)
    }

    /// Number of owners.
    pub(super) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Number of owners that have sent, or may have; the others only asked for the flow.
    fn senders(&self) -> usize {
        let heard = self.0.iter().filter(|owner| owner.packets > 0).count();
        heard + self.silent()
    }

    /// Number of owners of which nothing came, and that may have sent something.
    fn silent(&self) -> usize {
        let told = |owner: &Owner<'_>| owner.end.and_then(|end| end.sent_packets);
        self.0.iter().filter(|owner| owner.packets == 0 && told(owner) != Some(0)).count()
    }

    /// True if these are, by their logs, all owners that the receiver knows of: those that sent nothing are silent there.
    fn are_all_of(&self, heard: &Self) -> bool {
        let idle = self.len() - self.senders();
        self.senders() + idle.min(heard.silent()) >= heard.senders()
    }

    /// Reason of the flow's end; if it had several owners, that of each, in the order of their
    /// first packets.
    pub(super) fn reason(&self) -> Option<String> {
        if self.len() == 1 {
            return self.ends().next().map(|end| end.reason.clone());
        }
        let reasons: Vec<String> = self
            .in_order()
            .into_iter()
            .filter_map(|owner| {
                let end = owner.end?;
                Some(format!("{}: {}", owner.name(), end.reason))
            })
            .collect();
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }

    /// Returns true if one of them ran to the end of the schedule, or of its time.
    pub(super) fn ended_whole(&self) -> bool {
        self.ends().any(|end| told(end).is_told_whole())
    }

    /// Returns true if the user ended one of them.
    pub(super) fn interrupted(&self) -> bool {
        self.ends().any(|end| told(end).is_interrupted())
    }

    /// Packets that the kernels of all of them refused, by error.
    pub(super) fn refused_by(&self) -> BTreeMap<String, u64> {
        let mut sum = BTreeMap::new();
        for (error, count) in self.ends().flat_map(|end| &end.refused_by) {
            let entry: &mut u64 = sum.entry(error.clone()).or_default();
            *entry = entry.saturating_add(*count);
        }
        sum
    }

    fn in_order(&self) -> Vec<&Owner<'l>> {
        let mut all: Vec<_> = self.0.iter().collect();
        all.sort_by_key(|owner| (owner.first_unix_ns.is_none(), owner.first_unix_ns, owner.source));
        all
    }

    /// Names of the owners and their packets, if several have sent.
    pub(super) fn notice(&self) -> Option<String> {
        let active: Vec<_> =
            self.in_order().into_iter().filter(|owner| owner.packets > 0).collect();
        let named: Vec<String> = active
            .iter()
            .take(NAMED)
            .map(|owner| format!("{} ({} packets)", owner.name(), owner.packets))
            .collect();
        let more = active.len().saturating_sub(NAMED);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (active.len() > 1).then(|| {
            let names = named.join(", ");
            format!("{} owners sent this flow: {names}{more}; counts are their sums", active.len())
        })
    }
}

fn told(end: &FlowEnd) -> EndReason {
    EndCause::Told(end.reason.clone()).into()
}

impl Owner<'_> {
    fn name(&self) -> &str {
        self.info.map(|info| info.src.as_str()).filter(|src| !src.is_empty()).unwrap_or("unknown")
    }
}

/// A count of a flow's senders, by the logs of its sides as far as they are given; `None` where that of an owner is
/// missing.
pub(super) fn sent(from: Option<&Owners<'_>>, to: Option<&Owners<'_>>, what: Count) -> Option<u64> {
    by_senders(from, to, what).or_else(|| by_receiver(from, to, what))
}

/// A count of the receiver: in its own log, else in the logs of all senders, whom it told.
pub(super) fn received(
    sender: Option<&Owners<'_>>,
    receiver: Option<&Owners<'_>>,
    what: Count,
) -> Option<u64> {
    by_receiver(sender, receiver, what).or_else(|| by_senders(sender, receiver, what))
}

/// Packets that arrived but are not in the receiver's log; `None` where nobody counted them, or that log is not
/// given.
pub(super) fn unlogged(sender: Option<&Owners<'_>>, receiver: Option<&Owners<'_>>) -> Option<u64> {
    let here = receiver?;
    here.beyond_log(|end| end.received_packets).or_else(|| {
        let counted = by_senders(sender, receiver, |end| end.received_packets)?;
        counted.checked_sub(here.packets())
    })
}

/// Returns true if the log of an owner that sent is not given: the receiver heard more of them, or nobody tells whether
/// there were others beside several.
pub(super) fn sender_absent(sender: Option<&Owners<'_>>, receiver: Option<&Owners<'_>>) -> bool {
    let Some(sender) = sender else { return false };
    receiver.map_or(sender.len() > 1, |receiver| !sender.are_all_of(receiver))
}

fn by_senders(
    sender: Option<&Owners<'_>>,
    receiver: Option<&Owners<'_>>,
    what: Count,
) -> Option<u64> {
    let all = |owners: &&Owners<'_>| receiver.is_none_or(|heard| owners.are_all_of(heard));
    sender.filter(all).and_then(|owners| owners.sum(what))
}

fn by_receiver(
    sender: Option<&Owners<'_>>,
    receiver: Option<&Owners<'_>>,
    what: Count,
) -> Option<u64> {
    let known = sender.map_or(0, Owners::len);
    receiver.filter(|owners| owners.len() >= known).and_then(|owners| owners.sum(what))
}

/// A count that either side may have, of all owners.
pub(super) fn of_all(own: &Owners<'_>, other: Option<&Owners<'_>>, what: Count) -> Option<u64> {
    own.sum(what).or_else(|| other.and_then(|owners| owners.sum(what)))
}

/// The same, or else of those that are known.
pub(super) fn either(own: &Owners<'_>, other: Option<&Owners<'_>>, what: Count) -> Option<u64> {
    of_all(own, other, what)
        .or_else(|| own.told(what))
        .or_else(|| other.and_then(|owners| owners.told(what)))
}
