//! Up: contributions are merged on their way to the root.
//!
//! Every `period` a member contributes anew. It passes on what it and those below it contribute as
//! soon as all children have sent something new, or when the next period begins: the root gets all
//! within one period when all contribute. What has not changed goes up some times more, and then seldom: nobody waits
//! for a child that has sent nothing for two periods.

use std::collections::BTreeMap;

use bytes::Bytes;
use itg_process::{Action, Slot, Time};

use super::message::Sum;
use super::{Out, Overlay, OverlayBody, OverlayDelivery, OverlayEvent, Timer};
use crate::member::View;

/// Topics, and bytes of a contribution.
const MOST_TOPICS: usize = 256;
const MOST_BYTES: usize = 1 << 20;

/// A contribution that has not changed goes up so many times more, as its parent may not have come to the view yet, and
/// then in one of so many periods.
const REPEATS: u32 = 4;
const SELDOM: u32 = 32;
/// Periods without a contribution after which a child is not waited for.
const QUIET: u32 = 2;

/// Last contribution of a child and all below it.
#[derive(Debug)]
struct Below {
    sum: Sum,
    fresh: bool,
    /// Periods that have begun since it came.
    age: u32,
}

/// A topic.
#[derive(Debug, Default)]
pub(super) struct Topic {
    own: Option<Bytes>,
    below: BTreeMap<Slot, Below>,
    round: u64,
    /// The own contribution of this period has not gone up.
    due: bool,
    /// What went up last, with the number of members in it, and in how many periods it was the same.
    sent: Option<(u32, Bytes)>,
    same: u32,
}

impl Topic {
    pub(super) fn forget_children(&mut self) {
        self.below.clear();
        self.sent = None;
    }
}

impl Overlay {
    /// The topic, if there may be one more.
    fn topic(&mut self, topic: u32, bytes: usize, out: &mut Out) -> Option<&mut Topic> {
        let room = self.topics.len() < MOST_TOPICS || self.topics.contains_key(&topic);
        if !room || bytes > MOST_BYTES {
            let bytes = bytes as u64;
            out.push(Action::log(OverlayEvent::NoRoomForContribution { topic, bytes }));
            return None;
        }
        Some(self.topics.entry(topic).or_default())
    }

    fn gather_soon(&mut self, now: Time, out: &mut Out) {
        if !self.gathering {
            self.gathering = true;
            out.push(Action::SetTimer(Timer::Gather, now + self.settings.period));
        }
    }

    pub(super) fn contribute(&mut self, now: Time, topic: u32, bytes: Bytes, out: &mut Out) {
        if let Some(topic) = self.topic(topic, bytes.len(), out) {
            topic.own = Some(bytes);
            self.gather_soon(now, out);
        }
    }

    /// A period begins: what has not gone up goes now.
    pub(super) fn gather(&mut self, now: Time, out: &mut Out) {
        self.gathering = false;
        self.gather_soon(now, out);
        let topics: Vec<u32> = self.topics.keys().copied().collect();
        for number in topics {
            let Some(topic) = self.topics.get_mut(&number) else { continue };
            let late = topic.due || (topic.own.is_none() && topic.below.values().any(|b| b.fresh));
            if late {
                self.pass_on(number, out);
            }
            if let Some(topic) = self.topics.get_mut(&number) {
                topic.due = topic.own.is_some();
                topic.below.values_mut().for_each(|below| below.age += 1);
            }
            self.pass_on_if_complete(number, out);
        }
    }

    pub(super) fn summed(&mut self, now: Time, from: Slot, sum: Sum, out: &mut Out) {
        let number = sum.topic;
        let Some(topic) = self.topic(number, sum.bytes.len(), out) else { return };
        if topic.below.get(&from).is_some_and(|below| below.sum.round >= sum.round) {
            return;
        }
        topic.below.insert(from, Below { sum, fresh: true, age: 0 });
        self.gather_soon(now, out);
        self.pass_on_if_complete(number, out);
    }

    fn pass_on_if_complete(&mut self, number: u32, out: &mut Out) {
        let Some(topic) = self.topics.get(&number) else { return };
        let counts = |below: &Below| below.fresh || below.age > QUIET;
        let fresh = |child: &Slot| topic.below.get(child).is_some_and(counts);
        if topic.due && self.children.iter().all(fresh) {
            self.pass_on(number, out);
        }
    }

    fn pass_on(&mut self, number: u32, out: &mut Out) {
        let Some(of) = self.view.as_ref().map(View::len) else { return };
        let Some(topic) = self.topics.get_mut(&number) else { return };
        let merge = self.settings.merge;
        topic.due = false;
        topic.round += 1;
        let own = topic.own.iter().map(|bytes| (1, bytes));
        let below = topic.below.values_mut().map(|below| {
            below.fresh = false;
            (below.sum.count, &below.sum.bytes)
        });
        let (mut count, mut sum) = (0_u32, None::<Bytes>);
        for (members, bytes) in own.chain(below) {
            let merged = match &sum {
                None => Some(bytes.clone()),
                Some(sum) => merge(number, sum, bytes).map(Bytes::from),
            };
            match merged {
                Some(merged) => {
                    count = count.saturating_add(members);
                    sum = Some(merged);
                }
                None => {
                    let (topic, bytes) = (number, bytes.len() as u64);
                    out.push(Action::log(OverlayEvent::Unmergeable { topic, members, bytes }));
                }
            }
        }
        let (Some(bytes), round) = (sum, topic.round) else { return };
        match self.parent {
            Some(parent) => {
                let sent = topic.sent.replace((count, bytes.clone()));
                let same = sent.is_some_and(|sent| sent == (count, bytes.clone()));
                topic.same = if same { topic.same + 1 } else { 0 };
                if topic.same > REPEATS && topic.same % SELDOM != 0 {
                    return;
                }
                let sum = Sum { topic: number, round, count, bytes };
                self.tell(parent, OverlayBody::Sum(sum), out);
            }
            None => {
                out.push(Action::Deliver(OverlayDelivery::Gathered {
                    topic: number,
                    count,
                    of,
                    bytes,
                }));
            }
        }
    }
}
