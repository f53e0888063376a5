//! Account of a flow: packets sent, lost, and those that arrived in excess.

use itg_record::Side;

use super::{Facts, FlowStats, LossBasis};
use crate::sequence::Loss;

/// Account of the packets of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Account {
    /// Packets that were sent; `None` where no log tells.
    pub sent_packets: Option<u64>,
    /// Different packets that arrived beyond those that their senders account for: more than they counted, or, where
    /// their logs have all that they counted, packets that are in none of them. Above 0 the accounts contradict each
    /// other.
    pub excess_packets: u64,
    /// Lost packets, bursts, and how they were found; `None` where the accounts contradict each other or tell nothing.
    pub loss: Option<(Loss, LossBasis)>,
}

impl Account {
    /// Account of packets sent by what the receiver counted, where no log has them.
    fn by_receiver(sent_packets: Option<u64>, facts: &Facts<'_>) -> Self {
        let both = sent_packets.zip(facts.received_unique.or(facts.received_packets));
        let lost = both.and_then(|(sent, arrived)| sent.checked_sub(arrived));
        let excess_packets = both.map_or(0, |(sent, arrived)| arrived.saturating_sub(sent));
        let loss = lost
            .filter(|_| !facts.contradicted)
            .map(|lost| (Loss { lost, ..Loss::default() }, LossBasis::ReceiverCount));
        Self { sent_packets, excess_packets, loss }
    }
}

impl FlowStats {
    /// Packets that the senders counted, or else those in their logs, unless others arrived too.
    #[must_use]
    pub fn sent_packets(&self, facts: &Facts<'_>) -> Option<u64> {
        facts.sent_packets.or_else(|| self.account(facts).sent_packets)
    }

    /// Returns true if the log has all packets that the senders counted: a number that two owners
    /// sent counts for both.
    const fn logged_all(&self, sent: u64) -> bool {
        self.sent_seqs.unique() == sent || self.sent.packets == sent
    }

    /// Different packets that the log has, sent or arrived.
    pub(crate) fn packets_seen(&self) -> u64 {
        self.sent_seqs.unique().max(self.arrived_seqs.unique())
    }

    /// Packets sent, lost, and those that arrived in excess.
    #[must_use]
    pub fn account(&self, facts: &Facts<'_>) -> Account {
        if !self.counts_arrivals() {
            return match facts.peer {
                Some(receiver) => receiver.account(&Facts { peer: Some(self), ..*facts }),
                None => self.account_of_sender(facts),
            };
        }
        let unique = self.arrived_seqs.unique();
        // By the senders' logs: what is missing, and how many packets arrived that they do not have.
        let logged =
            self.sender(facts).filter(|sender| sender.sent_seqs.unique() > 0).map(|sender| {
                let missing = self.arrived_seqs.missing_of(&sender.sent_seqs);
                let outside = unique - (sender.sent_seqs.unique() - missing.lost);
                (sender, missing, outside)
            });
        // Logs that lack records, or what arrived, do not say what was sent.
        let by_log = logged.as_ref().filter(|(.., outside)| *outside == 0 && !facts.sender_lacks);
        let by_log = by_log.map(|(sender, ..)| sender.sent_seqs.unique());
        if self.setup.side == Side::Receiver && facts.unlogged.is_some_and(|count| count > 0) {
            return Account::by_receiver(facts.sent_packets.or(by_log), facts);
        }
        let Some(sent) = facts.sent_packets.or(by_log) else {
            let loss = facts.by_numbers && !facts.lacks_records && !facts.contradicted;
            let loss = loss.then(|| (self.missing_numbers(), LossBasis::SequenceNumbers));
            return Account { sent_packets: None, excess_packets: 0, loss };
        };
        // More than 0 if more arrived: that is what is looked for.
        let more = unique.saturating_sub(sent);
        let whole = logged.filter(|(sender, ..)| sender.logged_all(sent));
        let excess_packets = whole.map_or(more, |(_, _, outside)| more.max(outside));
        let unknown = facts.breaks_off || facts.lacks_records || facts.contradicted;
        let loss = match whole {
            _ if excess_packets > 0 || unknown => None,
            Some((_, missing, _)) => Some((missing, LossBasis::SenderLog)),
            None => self.missing_by_count(sent, facts).map(|loss| (loss, LossBasis::SenderCount)),
        };
        Account { sent_packets: Some(sent), excess_packets, loss }
    }

    /// Numbers below the largest one that arrived that are missing.
    pub(crate) fn missing_numbers(&self) -> Loss {
        let end = self.arrived_seqs.max().map_or(0, |max| max.saturating_add(1));
        self.arrived_seqs.missing_before(end)
    }

    /// At a one-way sender without the receiver's log.
    fn account_of_sender(&self, facts: &Facts<'_>) -> Account {
        let logged = Some(self.sent_seqs.unique()).filter(|&n| n > 0 && !facts.sender_lacks);
        Account::by_receiver(facts.sent_packets.or(logged), facts)
    }

    /// Loss among so many packets; `None` if more arrived.
    fn missing_by_count(&self, sent: u64, facts: &Facts<'_>) -> Option<Loss> {
        let lost = sent.checked_sub(self.arrived_seqs.unique())?;
        let end = sent.saturating_add(facts.unsent());
        let seen = self.arrived_seqs.missing_before(end);
        Some(if seen.lost == lost {
            seen
        } else {
            // Which of the missing numbers were sent is not known.
            Loss { lost, bursts: seen.bursts.min(lost), ..Loss::default() }
        })
    }

    /// Packets that arrived but are not in the sender's log: all of them where that has none of the flow.
    #[must_use]
    pub fn unmatched(&self, facts: &Facts<'_>) -> u64 {
        let sent = self.sender(facts).map(|sender| &sender.sent_seqs);
        let both = sent.map_or(0, |sent| sent.unique() - self.arrived_seqs.missing_of(sent).lost);
        self.arrived_seqs.unique() - both
    }
}
