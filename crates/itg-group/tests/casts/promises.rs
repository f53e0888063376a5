//! Promises of members, which outlive a crash: an oracle that sees votes, names and admissions.
//!
//! | property | what |
//! |---|---|
//! | P1 | a member votes in no round of an instance below one in which it has voted |
//! | P2 | a member votes once in a round: for one value |
//! | P3 | an estimate that a member tells after a vote is the one that it voted for, or a later one |
//! | P4 | a name stands for one message |
//! | P5 | an incarnation is let in once |
//! | P6 | a number of an epoch stands for one message, and a message has one number |
//! | P7 | a member gives a message one timestamp in an epoch |
//! | P8 | a member that has told what it holds acknowledges no more in that epoch |

use std::collections::{BTreeMap, BTreeSet};

use itg_group::cast::log::{LogBody, LogMessage};
use itg_group::cast::uniform::{EpochMessage, Flush, UniformMessage};
use itg_group::cast::{Body, CastEvent, Entry, code};
use itg_group::membership::MembershipEvent;
use itg_group::{Id, Member};
use itg_process::{Event, Message, Slot};
use itg_sim::{Checker, Observation, ObservedEvent, TraceHash};

/// Instances that are remembered.
const MOST: usize = 4096;
/// Messages of one origin.
const MOST_NUMBER: usize = 1 << 24;

/// The oracle of promises.
#[derive(Debug, Default)]
pub struct Promises {
    /// Name of each process, as its journal or its membership says it.
    names: BTreeMap<Slot, u64>,
    /// Last vote by instance and member: round and digest.
    votes: BTreeMap<(u64, u64), (u32, u64)>,
    /// The highest round acknowledged, by instance and member.
    acks: BTreeMap<(u64, u64), u32>,
    /// Hash of the content of each message, by origin and number; the log below a uniform broadcast has names of its
    /// own.
    contents: BTreeMap<(bool, u64), Vec<Option<u64>>>,
    admitted: BTreeSet<(Slot, u64)>,
    /// By epoch: numbers of messages by name, and names by number (of a sequencer).
    numbers: BTreeMap<(u64, Id), u64>,
    owners: BTreeMap<(u64, u64), Id>,
    /// Timestamps by epoch, member and message.
    stamps: BTreeMap<(u64, u64, Id), u64>,
    /// By epoch and member: the highest number acknowledged, and the most that it held when it was asked first.
    held: BTreeMap<(u64, u64), u64>,
    fences: BTreeMap<(u64, u64), u64>,
    /// The same by name (Skeen): messages acknowledged, and those that it held when it was asked.
    held_ones: BTreeMap<(u64, u64), BTreeSet<Id>>,
    fenced_ones: BTreeMap<(u64, u64), BTreeSet<Id>>,
    /// Messages delivered, by process and origin, one flag for each number: what all have delivered FLUSH does not
    /// name.
    delivered: BTreeMap<(Slot, u64), Vec<bool>>,
    /// True if numbers are those of a sequencer: one message each.
    sequencer: bool,
}

impl Promises {
    /// The oracle of a broadcast, by the name of its layer.
    pub fn of(layer: &str) -> Self {
        Self { sequencer: layer == "uniform-sequencer", ..Self::default() }
    }

    fn voted(&mut self, slot: Slot, k: u64, r: u32, digest: u64) -> Result<(), String> {
        let name = self.names.get(&slot).copied().unwrap_or_else(|| u64::from(slot.0) << 32 | 1);
        let last = self.votes.insert((k, name), (r, digest));
        while self.votes.len() > MOST {
            self.votes.pop_first();
        }
        match last {
            Some((before, _)) if before > r => {
                Err(format!("P1: {name:x} votes in round {r} of {k} after round {before}"))
            }
            Some((before, other)) if before == r && other != digest => {
                Err(format!("P2: {name:x} votes for two values in round {r} of {k}"))
            }
            _ => Ok(()),
        }
    }

    fn event(&mut self, slot: Slot, event: &Event) -> Result<(), String> {
        match event.decode() {
            Some(CastEvent::Back { member, .. }) => {
                self.names.insert(slot, member);
            }
            Some(CastEvent::Adopted { instance, round, digest }) => {
                return self.voted(slot, instance, round, digest);
            }
            Some(CastEvent::Deliver { origin, seq, .. }) => {
                *at(self.delivered.entry((slot, origin)).or_default(), seq)? = true;
            }
            _ => {}
        }
        match event.decode() {
            Some(MembershipEvent::BornAgain { incarnation, .. }) => {
                self.names.insert(slot, code(Member::new(slot, incarnation)));
            }
            Some(MembershipEvent::Welcomed { incarnation, .. }) => {
                self.names.insert(slot, code(Member::new(slot, incarnation)));
                if !self.admitted.insert((slot, incarnation)) {
                    return Err(format!("P5: {slot} is let in twice as incarnation {incarnation}"));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn content(&mut self, of_log: bool, id: Id, payload: &[u8]) -> Result<(), String> {
        let (origin, mut hash) = (code(id.origin), TraceHash::default());
        hash.bytes(payload);
        let hash = hash.value();
        let known = at(self.contents.entry((of_log, origin)).or_default(), id.seq)?;
        let known = *known.get_or_insert(hash);
        match known == hash {
            true => Ok(()),
            false => Err(format!("P4: message {} of {origin:x} has two contents", id.seq)),
        }
    }

    fn entries<'a>(&mut self, entries: impl IntoIterator<Item = &'a Entry>) -> Result<(), String> {
        for entry in entries {
            if let Body::Message(payload) = &entry.body {
                self.content(true, entry.id, payload)?;
            }
        }
        Ok(())
    }

    fn of_log(&mut self, LogMessage { from, what }: LogMessage) -> Result<(), String> {
        let from = code(from);
        match what {
            LogBody::Data(entries) => self.entries(entries.iter()),
            LogBody::Prop { value, .. } => self.entries(&value.entries),
            LogBody::Ack { k, r, .. } => {
                let most = self.acks.entry((k, from)).or_insert(r);
                *most = (*most).max(r);
                while self.acks.len() > MOST {
                    self.acks.pop_first();
                }
                Ok(())
            }
            LogBody::Est { k, r, ts, .. } => match self.acks.get(&(k, from)) {
                Some(acked) if r > *acked && ts <= *acked => Err(format!(
                    "P3: {from:x} has voted in round {acked} of {k} and tells in {r} an estimate of time {ts}"
                )),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }

    /// P6.
    fn numbered(&mut self, epoch: u64, id: Id, number: u64) -> Result<(), String> {
        let known = *self.numbers.entry((epoch, id)).or_insert(number);
        let owner = *self.owners.entry((epoch, number)).or_insert(id);
        match known == number && (owner == id || !self.sequencer) {
            true => Ok(()),
            false => Err(format!(
                "P6: in epoch {epoch} {id:?} has number {number}, and {known}; or {owner:?} has it"
            )),
        }
    }

    fn of_epoch(&mut self, from: Member, epoch: u64, what: EpochMessage) -> Result<(), String> {
        match what {
            EpochMessage::Data(id, payload) => self.content(false, id, &payload),
            EpochMessage::Order(id, number) => self.numbered(epoch, id, number),
            EpochMessage::StableOnes(list) => {
                list.into_iter().try_for_each(|(id, number)| self.numbered(epoch, id, number))
            }
            EpochMessage::Stamp(id, ts) => {
                let known = *self.stamps.entry((epoch, code(from), id)).or_insert(ts);
                match known == ts {
                    true => Ok(()),
                    false => Err(format!("P7: {from} gives {id:?} {ts}, and {known} before")),
                }
            }
            EpochMessage::Held(number) => {
                let most = self.held.entry((epoch, code(from))).or_insert(number);
                *most = (*most).max(number);
                self.fenced(from, epoch)
            }
            EpochMessage::Flush(flush) => {
                let bound = held_by(&flush);
                let least = self.fences.entry((epoch, code(from))).or_insert(bound);
                *least = (*least).min(bound);
                self.fenced(from, epoch)?;
                let (key, ones) = ((epoch, code(from)), ones_held_by(&flush));
                let known = self.fenced_ones.entry(key).or_insert_with(|| ones.clone());
                known.retain(|id| ones.contains(id));
                let acked = self.held_ones.get(&key).into_iter().flatten();
                acked.copied().try_for_each(|id| self.fenced_one(from, epoch, id))
            }
            EpochMessage::HeldOne(id) => {
                self.held_ones.entry((epoch, code(from))).or_default().insert(id);
                self.fenced_one(from, epoch, id)
            }
            _ => Ok(()),
        }
    }

    fn fenced(&self, from: Member, epoch: u64) -> Result<(), String> {
        let key = (epoch, code(from));
        match (self.held.get(&key), self.fences.get(&key)) {
            (Some(held), Some(fence)) if held > fence => Err(format!(
                "P8: {from} acknowledges {held} in epoch {epoch}, and held {fence} when it was asked"
            )),
            _ => Ok(()),
        }
    }

    /// P8 for one message, which the member acknowledges by its name.
    fn fenced_one(&self, from: Member, epoch: u64, id: Id) -> Result<(), String> {
        let fence = self.fenced_ones.get(&(epoch, code(from)));
        let held = fence.is_none_or(|held| held.contains(&id)) || self.has_delivered(from.slot, id);
        match held {
            true => Ok(()),
            false => Err(format!(
                "P8: {from} acknowledges {id:?} in epoch {epoch}, and did not hold it when it was asked"
            )),
        }
    }

    fn has_delivered(&self, slot: Slot, id: Id) -> bool {
        let number = usize::try_from(id.seq).unwrap_or(usize::MAX);
        let delivered = self.delivered.get(&(slot, code(id.origin)));
        delivered.and_then(|list| list.get(number)).is_some_and(|delivered| *delivered)
    }

    fn arrived(&mut self, message: &Message) -> Result<(), String> {
        match UniformMessage::decode(message.ty, &message.body) {
            Some(UniformMessage::Log(say)) => self.of_log(say),
            Some(UniformMessage::Fast { from, epoch, what }) => self.of_epoch(from, epoch, what),
            None => Ok(()),
        }
    }
}

/// The place of this number in a list, which grows as far.
fn at<T: Clone + Default>(list: &mut Vec<T>, number: u64) -> Result<&mut T, String> {
    let number = usize::try_from(number).ok().filter(|number| *number < MOST_NUMBER);
    let number = number.ok_or("P4: a number that nobody has counted up to")?;
    if list.len() <= number {
        list.resize(number + 1, T::default());
    }
    Ok(&mut list[number])
}

/// The number up to which a member holds all messages, as it tells it.
fn held_by(flush: &Flush) -> u64 {
    let waiting: BTreeSet<Id> = flush.waiting.iter().map(|(id, _)| *id).collect();
    let orders = flush.orders.iter().filter(|(id, _)| waiting.contains(id));
    let orders: BTreeSet<u64> = orders.map(|(_, number)| *number).collect();
    let done = flush.first + flush.delivered.len() as u64;
    (done + 1..).take_while(|number| orders.contains(number)).last().unwrap_or(done)
}

/// The messages that a member holds with their numbers, or has delivered, as it tells it.
fn ones_held_by(flush: &Flush) -> BTreeSet<Id> {
    let waiting: BTreeSet<Id> = flush.waiting.iter().map(|(id, _)| *id).collect();
    let orders = flush.orders.iter().map(|(id, _)| *id).filter(|id| waiting.contains(id));
    orders.chain(flush.delivered.iter().map(|(id, _)| *id)).collect()
}

impl Checker for Promises {
    fn name(&self) -> &'static str {
        "promises"
    }

    fn see(&mut self, seen: &Observation<'_>) -> Result<(), String> {
        match seen.what {
            ObservedEvent::Started(start) => {
                let born = Member::born(seen.slot, start);
                self.names.insert(seen.slot, code(born));
                Ok(())
            }
            ObservedEvent::Event(event) => self.event(seen.slot, event),
            ObservedEvent::Arrived(message) => self.arrived(message),
            _ => Ok(()),
        }
    }
}
