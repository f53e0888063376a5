//! A small reliable link, a pacemaker and a talker above them, correct or with a planted bug.

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use bytes::Bytes;
use itg_process::{
    Ctx, Layer, Level, MS, Message, Registry, SECOND, Slot, Time, TimerId, layer_events, types,
};

layer_events! {
    /// Events of the layers.
    pub enum LinkEvent {
        /// Message and its number.
        Sent { to: Slot, number: u64 } = "link sent",
        /// Delivery of a message.
        Got { from: Slot, number: u64 } = "link got",
        /// Messages that wait.
        Queue { length: u64, limit: u64 } = "link queue",
        /// Time since the last beat of the pacemaker, and the longest that it may be.
        Beat { gap: u64, most: u64 } = "beat",
        /// Queue that is full.
        Refuses = "link refuses",
        /// Message that came before an earlier one.
        Reordered = "reordered",
        /// Message that came again.
        DuplicateDropped = "duplicate dropped",
        /// Message sent again.
        Resent = "resent",
    }
}

/// Faults planted in the layers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    None,
    /// A message that comes early is thrown away, and acknowledged all the same.
    LostOnReorder,
    /// The pacemaker is set one period late now and then.
    TimerOff,
    /// Messages that cannot be sent yet are queued without a bound.
    UnboundedQueue,
}

impl Bug {
    pub const ALL: [Self; 3] = [Self::LostOnReorder, Self::TimerOff, Self::UnboundedQueue];

    pub fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::LostOnReorder => "lost-on-reorder",
            Self::TimerOff => "timer-off",
            Self::UnboundedQueue => "unbounded-queue",
        }
    }

    pub fn from_name(name: &str) -> Option<Self> {
        [Self::None].into_iter().chain(Self::ALL).find(|bug| bug.name() == name)
    }
}

/// The registry with the layers `link`, `beat` and `chatter`.
pub fn layers(registry: Registry, bug: Bug) -> Registry {
    registry
        .with("link", move |_| Ok(Box::new(Link { bug, peers: BTreeMap::new() })))
        .with("beat", move |_| Ok(Box::new(Beat { bug, last: Time::ZERO, count: 0 })))
        .with("chatter", |_| Ok(Box::new(Chatter)))
}

/// Data: number, then the content. Acknowledgements: the next number that is awaited.
const DATA: u32 = 1100;
const ACK: u32 = 1101;
/// Messages on their way to one peer, and waiting for that.
const WINDOW: usize = 32;
const QUEUE: usize = 256;
const RESEND: u64 = 200 * MS;

#[derive(Default)]
struct Peer {
    next: u64,
    flying: VecDeque<(u64, Bytes)>,
    waiting: VecDeque<Bytes>,
    awaited: u64,
    early: BTreeMap<u64, Bytes>,
}

/// Numbers, acknowledges, resends; delivers once and in order.
struct Link {
    bug: Bug,
    peers: BTreeMap<Slot, Peer>,
}

fn data(to: Slot, number: u64, body: &Bytes) -> Message {
    Message::new(to, DATA, [&number.to_le_bytes()[..], body].concat())
}

impl Layer for Link {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(RESEND);
    }

    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let itg_process::Dest::One(to) = message.dst else { return };
        let peer = self.peers.entry(to).or_default();
        if peer.flying.len() < WINDOW {
            let number = peer.next;
            peer.next += 1;
            cx.log(Level::Info, LinkEvent::Sent { to, number });
            cx.down(data(to, number, &message.body));
            peer.flying.push_back((number, message.body));
        } else if peer.waiting.len() < QUEUE || self.bug == Bug::UnboundedQueue {
            peer.waiting.push_back(message.body);
        } else {
            cx.sometimes(LinkEvent::Refuses);
        }
        let length = peer.waiting.len() as u64;
        cx.log(Level::Info, LinkEvent::Queue { length, limit: QUEUE as u64 });
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let src = message.src;
        let Some(number) = message.body.get(..8).and_then(|bytes| bytes.try_into().ok()) else {
            return;
        };
        let number = u64::from_le_bytes(number);
        let peer = self.peers.entry(src).or_default();
        match message.ty {
            DATA => {
                if number > peer.awaited {
                    cx.sometimes(LinkEvent::Reordered);
                    if peer.early.len() < WINDOW {
                        peer.early.insert(number, message.body.slice(8..));
                    }
                } else if number < peer.awaited {
                    cx.sometimes(LinkEvent::DuplicateDropped);
                } else {
                    peer.early.insert(number, message.body.slice(8..));
                }
                while let Some((&first, _)) = peer.early.first_key_value() {
                    // The bug: a gap is taken for the end.
                    if first != peer.awaited && self.bug != Bug::LostOnReorder {
                        break;
                    }
                    if let Some((_, body)) = peer.early.pop_first() {
                        cx.log(Level::Info, LinkEvent::Got { from: src, number: first });
                        cx.up(Message { src, ..Message::new(cx.me(), 1, body) });
                    }
                    peer.awaited = first + 1;
                }
                let awaited = peer.awaited.to_le_bytes();
                cx.down(Message::new(src, ACK, awaited.to_vec()));
            }
            ACK => {
                while peer.flying.front().is_some_and(|(first, _)| *first < number) {
                    peer.flying.pop_front();
                }
                while peer.flying.len() < WINDOW
                    && let Some(body) = peer.waiting.pop_front()
                {
                    let number = peer.next;
                    peer.next += 1;
                    cx.log(Level::Info, LinkEvent::Sent { to: src, number });
                    cx.down(data(src, number, &body));
                    peer.flying.push_back((number, body));
                }
            }
            _ => cx.up(message),
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        for (&to, peer) in &self.peers {
            for (number, body) in &peer.flying {
                cx.sometimes(LinkEvent::Resent);
                cx.down(data(to, *number, body));
            }
        }
        cx.set_timer_after(RESEND);
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[types::LINK]
    }
}

/// Says every half second that it is alive.
struct Beat {
    bug: Bug,
    last: Time,
    count: u64,
}

const BEAT: u64 = SECOND / 2;

impl Layer for Beat {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.last = cx.now();
        cx.set_timer_after(BEAT);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        let gap = cx.now().since(self.last);
        cx.log(Level::Info, LinkEvent::Beat { gap, most: BEAT });
        self.last = cx.now();
        self.count += 1;
        // The bug: off by one, now and then.
        let late = self.bug == Bug::TimerOff && self.count.is_multiple_of(32);
        cx.set_timer_after(BEAT + u64::from(late));
    }
}

/// Talks to all processes, in bursts.
struct Chatter;

impl Layer for Chatter {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(100 * MS);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        // Nothing new after the faults, so that everything can arrive.
        if cx.now() < Time(45 * SECOND) {
            let burst = 1 + itg_core::streams::below(cx.rng(), 64);
            let me = cx.me();
            for to in (0..cx.capacity()).map(Slot).filter(|to| *to != me) {
                (0..burst).for_each(|_| cx.down(Message::new(to, 1, "chat")));
            }
            let pause = itg_core::streams::below(cx.rng(), SECOND);
            cx.set_timer_after(100 * MS + pause);
        }
    }

    fn deliver(&mut self, _message: Message, _cx: &mut Ctx<'_>) {}
}
