//! The overlay: from one to all and from all to one, along the tree of the view.
//!
//! *Down.* Any member spreads bytes, as many as it likes up to a limit; each member gets them once, in no
//! order. They flow along the edges of the tree of the view, away from their origin: one transfer for
//! each edge, in chunks, at most `window` of them under way on an edge, and passed on before all have
//! come. A receiver pulls: it asks for the chunks behind those that it has, from one neighbour at a
//! time, and from another one when that one is gone. So what a crash in the tree has interrupted goes on
//! where it stopped, along the edges of the next view. When all members of a view have everything, all
//! are told, and what passes is forgotten; what lasts is kept for later members, until it is
//! dropped.
//!
//! *Up.* Members contribute to topics; what members contribute is merged on its way up, so that the root
//! has one value and the number of members in it, once in each period. A contribution stands for itself
//! and replaces the one before: lost and repeated messages change nothing, and no member is counted
//! twice.
//!
//! Assumes a membership below that tells the views; links may lose, repeat and reorder. Spreading small
//! bytes costs 4 (n − 1) messages: offer, receipt, and the word that all have it up and down.
//!
//! | file | what |
//! |---|---|
//! | `spread` | down |
//! | `gather` | up |
//! | `event` | its events |
//! | `message` | messages between members, and within a stack |
//! | `layer` | the layer `overlay` |

mod event;
mod gather;
mod layer;
mod message;
mod spread;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

use self::gather::Topic;
use self::spread::{Blob, Had};
use crate::member::{Id, View};

pub use event::OverlayEvent;
pub use layer::{OverlayWiring, layers};
pub use message::{Offer, OverlayBody, OverlayDelivery, OverlayMessage, OverlayRequest, Sum};

/// Puts two contributions to a topic together; `None` when they are none.
pub type Merge = fn(u32, &[u8], &[u8]) -> Option<Vec<u8>>;

/// Settings; all members have the same.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Bytes of a chunk.
    pub chunk: usize,
    /// Chunks that may be under way on one edge.
    pub window: u32,
    /// Bytes of everything that is kept here.
    pub most: usize,
    /// Time without progress after which things are said again.
    pub retry: Duration,
    /// Time after which a part of what a dead origin has spread is forgotten.
    pub give_up: Duration,
    /// Time between two contributions.
    pub period: Duration,
    /// Function that merges contributions.
    pub merge: Merge,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            chunk: 16 << 10,
            window: 16,
            most: 64 << 20,
            retry: Duration::from_millis(200),
            give_up: Duration::from_secs(30),
            period: Duration::from_secs(1),
            merge: counters,
        }
    }
}

/// The usual merge: lists of counters, u64 little-endian, each added to its like.
#[must_use]
pub fn counters(_topic: u32, a: &[u8], b: &[u8]) -> Option<Vec<u8>> {
    let ((a, rest), (b, none)) = (a.as_chunks::<8>(), b.as_chunks::<8>());
    if a.len() != b.len() || !rest.is_empty() || !none.is_empty() {
        return None;
    }
    let sum = |(a, b): (&[u8; 8], &[u8; 8])| {
        u64::from_le_bytes(*a).saturating_add(u64::from_le_bytes(*b)).to_le_bytes()
    };
    Some(a.iter().zip(b).flat_map(sum).collect())
}

/// The timers of an overlay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Say again what may have been lost.
    Retry,
    /// Contribute.
    Gather,
}

type Out = Vec<Action<Overlay>>;

/// A member of an overlay.
#[derive(Debug)]
pub struct Overlay {
    me: Slot,
    settings: Settings,
    /// Time after which things are said again, and between two contributions, without round trips.
    usual: (Duration, Duration),
    view: Option<View>,
    parent: Option<Slot>,
    children: Vec<Slot>,
    /// The last that was spread here.
    last: Option<Id>,
    blobs: BTreeMap<Id, Blob>,
    /// Bytes of them, those that are still to come included.
    bytes: usize,
    had: Had,
    topics: BTreeMap<u32, Topic>,
    /// True if the timer is set.
    retrying: bool,
    gathering: bool,
}

impl Overlay {
    /// A process that has no view yet.
    #[must_use]
    pub const fn new(me: Slot, settings: Settings) -> Self {
        Self {
            me,
            settings,
            usual: (settings.retry, settings.period),
            view: None,
            parent: None,
            children: Vec::new(),
            last: None,
            blobs: BTreeMap::new(),
            bytes: 0,
            had: Had::new(),
            topics: BTreeMap::new(),
            retrying: false,
            gathering: false,
        }
    }

    fn view_no(&self) -> u64 {
        self.view.as_ref().map_or(0, View::no)
    }

    fn tell(&self, to: Slot, what: OverlayBody, out: &mut Out) {
        out.push(Action::Send(Dest::One(to), OverlayMessage { view: self.view_no(), what }));
    }

    fn neighbours(&self) -> impl Iterator<Item = Slot> {
        self.children.iter().copied().chain(self.parent)
    }

    /// A view is in force.
    fn installed(&mut self, now: Time, view: View, out: &mut Out) {
        let tree = view.tree();
        self.parent = tree.parent(self.me);
        self.children = tree.children(self.me);
        let old = self.view.replace(view);
        self.spread_on(now, old.as_ref(), out);
        for topic in self.topics.values_mut() {
            topic.forget_children();
        }
    }

    fn retry_soon(&mut self, now: Time, out: &mut Out) {
        if !self.retrying {
            self.retrying = true;
            out.push(Action::SetTimer(Timer::Retry, now + self.settings.retry));
        }
    }

    fn message(&mut self, now: Time, from: Slot, say: OverlayMessage, out: &mut Out) {
        let Some(view) = &self.view else { return };
        let same = say.view == view.no();
        let is_member = view.at(from).is_some();
        if !is_member && same {
            return;
        }
        match say.what {
            OverlayBody::Offer(offer) => self.offered(now, from, offer, out),
            OverlayBody::Want { id, next, most, again } if is_member => {
                self.wanted(now, from, id, (next, most, again), out);
            }
            OverlayBody::Chunk { id, number, bytes } => {
                self.chunk(now, from, id, (number, bytes), out);
            }
            OverlayBody::Gone { id } => self.provider_gone(from, id, out),
            OverlayBody::Complete { id } if same && self.children.contains(&from) => {
                self.complete_below(from, id, out);
            }
            OverlayBody::Everywhere { id } if is_member => self.everywhere(id, out),
            OverlayBody::Sum(sum) if same && self.children.contains(&from) => {
                self.summed(now, from, sum, out);
            }
            // Of another view: its sender sends it again.
            OverlayBody::Want { .. }
            | OverlayBody::Complete { .. }
            | OverlayBody::Everywhere { .. }
            | OverlayBody::Sum(_) => {}
        }
    }

    fn asked(&mut self, now: Time, ask: OverlayRequest, out: &mut Out) {
        match ask {
            OverlayRequest::View(view) => self.installed(now, view, out),
            OverlayRequest::RoundTrip(ns) => {
                let round_trip = Duration::from_nanos(ns);
                self.settings.retry = self.usual.0 + 2 * round_trip;
                self.settings.period = self.usual.1 + 4 * round_trip;
            }
            OverlayRequest::Spread { lasting, bytes } => self.spread(now, lasting, bytes, out),
            OverlayRequest::Drop(id) => self.forget(id),
            OverlayRequest::Contribute(topic, bytes) => self.contribute(now, topic, bytes, out),
        }
    }
}

impl Machine for Overlay {
    type Request = OverlayRequest;
    type Delivery = OverlayDelivery;
    type Message = OverlayMessage;
    type Timer = Timer;

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out) {
        match input {
            Input::Start => {}
            Input::Request(ask) => self.asked(now, ask, out),
            Input::Message(from, say) => self.message(now, from, say, out),
            Input::Timer(Timer::Retry) => self.again(now, out),
            Input::Timer(Timer::Gather) => self.gather(now, out),
        }
    }
}

/// Refuses what cannot be done now.
fn refuse(bytes: Bytes, out: &mut Out) {
    out.push(Action::Deliver(OverlayDelivery::Refused(bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up() {
        let list = |values: &[u64]| -> Vec<u8> {
            values.iter().flat_map(|value| value.to_le_bytes()).collect()
        };
        for (a, b, want) in [
            (list(&[1, 2]), list(&[3, u64::MAX]), Some(list(&[4, u64::MAX]))),
            (list(&[]), list(&[]), Some(list(&[]))),
            (list(&[1]), list(&[1, 2]), None),
            (vec![1], vec![2], None),
        ] {
            assert_eq!(counters(0, &a, &b), want, "{a:?} and {b:?}");
        }
    }
}
