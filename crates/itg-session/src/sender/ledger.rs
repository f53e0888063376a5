//! The sender's book of flows: what was asked, answered, ended and counted.

use std::collections::{BTreeMap, VecDeque};

use itg_core::flow::FlowSpec;

use crate::codec::encode;
use crate::message::{FlowTotals, MAX_MESSAGE, Message, OPEN_BATCH, OpenReply, OpenedFlow};

/// State of a flow.
#[derive(Debug)]
enum Slot {
    /// Not answered by the receiver yet.
    Asked,
    /// The receiver said no.
    Refused(String),
    /// The receiver is ready for it; it has not ended yet.
    Open(OpenedFlow),
    /// It has ended; the receiver's counts are missing.
    Ended(FlowTotals),
    /// Both accounts were handed out, or this side's alone.
    Counted,
}

/// The book of flows of one session.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    /// Flow numbers in the order of the configuration.
    order: Vec<u32>,
    slots: BTreeMap<u32, Slot>,
    /// Batches that have not been answered, the one in flight first.
    batches: VecDeque<Vec<FlowSpec>>,
    running: usize,
    uncounted: usize,
    /// Instants by which counts should come, oldest first. The first one is always still
    /// missing.
    awaited: VecDeque<(u64, u32)>,
}

impl Ledger {
    /// A book of flows that have to be asked for.
    ///
    /// # Errors
    /// No flow, two flows with the same number, or a flow whose description does not fit into a message.
    pub(super) fn new(flows: &[FlowSpec]) -> Result<Self, String> {
        if flows.is_empty() {
            return Err("there is no flow to send".to_owned());
        }
        let mut slots = BTreeMap::new();
        for spec in flows {
            if slots.insert(spec.id, Slot::Asked).is_some() {
                return Err(format!("flow {} is listed twice: give it another number", spec.id));
            }
        }
        let order = flows.iter().map(|spec| spec.id).collect();
        Ok(Self { order, slots, batches: batches(flows)?, ..Self::default() })
    }

    /// The batch to be asked for next.
    pub(super) fn next_batch(&self) -> Option<&Vec<FlowSpec>> {
        self.batches.front()
    }

    /// Takes the receiver's answers to the batch in flight; `false` when they are not that.
    pub(super) fn answer(&mut self, replies: Vec<OpenReply>) -> bool {
        let asked = self.batches.pop_front().unwrap_or_default();
        let fits = |(reply, spec): (&OpenReply, &FlowSpec)| {
            let flow = reply.result.as_ref().map_or(reply.flow, |opened| opened.flow);
            reply.flow == spec.id && flow == spec.id
        };
        if replies.len() != asked.len() || !replies.iter().zip(&asked).all(fits) {
            return false;
        }
        for reply in replies {
            let slot = match reply.result {
                Ok(opened) => Slot::Open(opened),
                Err(why) => Slot::Refused(why),
            };
            self.running += usize::from(matches!(slot, Slot::Open(_)));
            self.slots.insert(reply.flow, slot);
        }
        true
    }

    /// The flows that the receiver has opened, and those it has refused with its reasons.
    pub(super) fn opened(&self) -> (Vec<OpenedFlow>, Vec<(u32, String)>) {
        let (mut flows, mut refused) = (Vec::new(), Vec::new());
        for id in &self.order {
            match self.slots.get(id) {
                Some(Slot::Open(opened)) => flows.push(*opened),
                Some(Slot::Refused(why)) => refused.push((*id, why.clone())),
                _ => {}
            }
        }
        (flows, refused)
    }

    /// Notes the end of a flow; `false` when it was not running.
    pub(super) fn end(&mut self, totals: &FlowTotals) -> bool {
        let Some(slot @ Slot::Open(_)) = self.slots.get_mut(&totals.flow) else { return false };
        *slot = Slot::Ended(totals.clone());
        self.running -= 1;
        self.uncounted += 1;
        true
    }

    /// The counts of an ended flow should come until then.
    pub(super) fn await_counts(&mut self, flow: u32, until_ns: u64) {
        self.awaited.push_back((until_ns, flow));
    }

    /// The counts that should have come by `now_ns` may come until `until_ns`.
    pub(super) fn await_longer(&mut self, now_ns: u64, until_ns: u64) {
        while let Some(&(at, flow)) = self.awaited.front()
            && at <= now_ns
        {
            self.awaited.pop_front();
            if self.awaits_counts(flow) {
                self.awaited.push_back((until_ns, flow));
            }
        }
        while self.awaited.front().is_some_and(|&(_, flow)| !self.awaits_counts(flow)) {
            self.awaited.pop_front();
        }
    }

    /// Closes the account of an ended flow.
    pub(super) fn settle(&mut self, flow: u32) -> Option<FlowTotals> {
        let slot = self.slots.get_mut(&flow)?;
        match std::mem::replace(slot, Slot::Counted) {
            Slot::Ended(totals) => {
                self.uncounted -= 1;
                while self.awaited.front().is_some_and(|&(_, flow)| !self.awaits_counts(flow)) {
                    self.awaited.pop_front();
                }
                Some(totals)
            }
            other => {
                *slot = other;
                None
            }
        }
    }

    /// Returns true if the account of a flow has been closed.
    pub(super) fn is_settled(&self, flow: u32) -> bool {
        matches!(self.slots.get(&flow), Some(Slot::Counted))
    }

    /// Returns true if a flow has ended and the receiver's counts of it are missing.
    pub(super) fn awaits_counts(&self, flow: u32) -> bool {
        matches!(self.slots.get(&flow), Some(Slot::Ended(_)))
    }

    /// Instant at which the first missing count should have come, and its flow.
    pub(super) fn first_awaited(&self) -> Option<(u64, u32)> {
        self.awaited.front().copied()
    }

    /// The totals of ended flows without counts, by number.
    pub(super) fn ended(&self) -> Vec<FlowTotals> {
        let ended = |slot: &Slot| match slot {
            Slot::Ended(totals) => Some(totals.clone()),
            _ => None,
        };
        self.slots.values().filter_map(ended).collect()
    }

    /// Number of open flows that have not ended.
    pub(super) const fn running(&self) -> usize {
        self.running
    }

    /// Returns true if every open flow has ended and has been settled.
    pub(super) const fn all_settled(&self) -> bool {
        self.running == 0 && self.uncounted == 0
    }
}

/// Cuts the flows into batches that fit into a message each.
fn batches(flows: &[FlowSpec]) -> Result<VecDeque<Vec<FlowSpec>>, String> {
    let empty = Message::Open { flows: Vec::new() };
    let overhead = encode(&empty).map_err(|error| error.to_string())?.len();
    let mut batches: VecDeque<Vec<FlowSpec>> = VecDeque::new();
    let mut used = MAX_MESSAGE;
    for spec in flows {
        let alone = encode(&Message::Open { flows: vec![spec.clone()] }).map_err(|error| {
            format!(
                "flow {} cannot be described to the receiver: {error}; use a shorter payload \
                 pattern or shorter distributions",
                spec.id
            )
        })?;
        let bytes = alone.len() - overhead;
        match batches.back_mut() {
            Some(batch) if batch.len() < OPEN_BATCH && used + bytes <= MAX_MESSAGE => {
                batch.push(spec.clone());
                used += bytes;
            }
            _ => {
                batches.push_back(vec![spec.clone()]);
                used = overhead + bytes;
            }
        }
    }
    Ok(batches)
}

#[cfg(test)]
mod tests {
    use itg_core::flow::Payload;

    use super::*;

    fn with_pattern(id: u32, bytes: usize) -> FlowSpec {
        FlowSpec::new(id).payload(Payload::Pattern(vec![7; bytes]))
    }

    #[test]
    fn batches_keep_to_both_limits() {
        let small = |n: u32| (1..=n).map(FlowSpec::new).collect::<Vec<_>>();
        let large: Vec<_> = (1..=3).map(|id| with_pattern(id, 400_000)).collect();
        for (flows, want) in [
            (small(1), vec![1]),
            (small(64), vec![64]),
            (small(65), vec![64, 1]),
            (small(200), vec![64, 64, 64, 8]),
            (large, vec![2, 1]),
        ] {
            let batches = batches(&flows).expect("each flow fits");
            assert_eq!(batches.iter().map(Vec::len).collect::<Vec<_>>(), want);
            assert_eq!(batches.iter().flatten().cloned().collect::<Vec<_>>(), flows);
            for flows in batches {
                let bytes = encode(&Message::Open { flows }).expect("batch fits");
                assert!(bytes.len() <= MAX_MESSAGE);
            }
        }
    }

    #[test]
    fn flows_need_numbers_of_their_own() {
        for (ids, want) in [
            (&[][..], "there is no flow to send"),
            (&[1, 2, 1][..], "flow 1 is listed twice: give it another number"),
        ] {
            let flows: Vec<_> = ids.iter().copied().map(FlowSpec::new).collect();
            assert_eq!(Ledger::new(&flows).expect_err("not usable"), want);
        }
    }

    #[test]
    fn a_description_of_any_length_up_to_the_limit_fits() {
        let one = |bytes| batches(&[with_pattern(9, bytes)]);
        let alone = encode(&Message::Open { flows: vec![with_pattern(9, 0)] }).expect("fits").len();
        assert!(one(MAX_MESSAGE - alone).is_ok());
        let error = one(MAX_MESSAGE - alone + 1).expect_err("one byte too many");
        assert_eq!(
            error,
            "flow 9 cannot be described to the receiver: the message Open needs 1048577 bytes, \
             more than the 1048576 that a message may have; use a shorter payload pattern or \
             shorter distributions"
        );
    }
}
