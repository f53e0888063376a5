//! Reliable links in order, between two incarnations of two processes.
//!
//! A filter at the bottom of a stack: what goes to another process is numbered, kept until it is
//! acknowledged, and sent again until then; what arrives goes up once and in order. A process that
//! has begun another incarnation is another end: numbers begin again, and what was for its former
//! incarnation is dropped. Heartbeats pass by: they are worth nothing late.
//!
//! Costs 44 bytes a message and an acknowledgement for what arrives within `ack`, unless it travels with
//! a message the other way. What is not acknowledged for `give_up` is dropped and counted, and a new
//! stream begins: the receiver may miss it, and knows.
//!
//! | bytes | field |
//! |---|---|
//! | 0–7, 8–11 | the sender's incarnation and stream |
//! | 12–19 | the receiver's incarnation as far as the sender knows, or 0 |
//! | 20–23, 24–31 | the receiver's stream, and the number of its next message that is missing here |
//! | 32–39, 40–43 | number and type of this message (`DATA` alone) |

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{
    Ctx, Dest, Layer, Level, Message, NetId, Registry, RuntimeEvent, Slot, Time, TimerId,
    layer_events, types,
};

const DATA: u32 = 1110;
const ACK: u32 = 1111;
const ACK_LEN: usize = 32;
const DATA_LEN: usize = 44;
/// Messages that are sent again at once.
const BURST: usize = 32;
/// Longest time-out for an acknowledgement.
const MOST_WAIT: Duration = Duration::from_secs(1);

layer_events! {
    /// Events of links.
    pub enum LinkEvent {
        /// Messages lost, as an incarnation acknowledges nothing.
        GaveUp { slot: Slot, lost: u64, incarnation: u64 } = "link gave up",
        /// Message refused, as too many are not acknowledged.
        Full = "link full",
        /// Messages sent again.
        Resent = "resent",
        /// Message from an incarnation that has been replaced.
        OldIncarnationIgnored = "a former life is not heard",
        /// New incarnation of the other end.
        BeginsAgain = "a link begins again",
        /// Message for an incarnation that this process has replaced.
        ForOldIncarnation = "a message for a former life",
    }
}

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// First time-out for an acknowledgement; it doubles up to a second.
    pub resend: Duration,
    /// Time that an acknowledgement waits for a message to travel with.
    pub ack: Duration,
    /// Time without progress after which a receiver is given up.
    pub give_up: Duration,
    /// Messages to one process that are not acknowledged; more are refused. As many may wait for an
    /// earlier one.
    pub queue: usize,
    /// True if numbers go on when the other end begins another incarnation: a planted fault.
    #[cfg(debug_assertions)]
    pub no_reset: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            resend: Duration::from_millis(20),
            ack: Duration::from_millis(2),
            give_up: Duration::from_secs(30),
            queue: 4096,
            #[cfg(debug_assertions)]
            no_reset: false,
        }
    }
}

#[derive(Debug)]
struct Waiting {
    seq: u64,
    ty: u32,
    net: NetId,
    body: Bytes,
}

/// Both directions between this process and another one.
#[derive(Debug, Default)]
struct Peer {
    /// The incarnation of the other end; 0 is not known yet.
    incarnation: u64,
    // What is sent.
    stream: u32,
    next: u64,
    unacknowledged: VecDeque<Waiting>,
    resend_at: Option<Time>,
    wait: Duration,
    /// Time of the last acknowledgement, or at which the queue was last empty.
    progress: Time,
    // What arrives.
    their_stream: u32,
    expected: u64,
    early: BTreeMap<u64, Message>,
    acknowledge: Option<NetId>,
}

/// The layer `link`.
#[derive(Debug)]
pub struct Link {
    settings: Settings,
    peers: BTreeMap<Slot, Peer>,
    timer: Option<(TimerId, Time)>,
    ack_timer: Option<TimerId>,
}

impl Link {
    /// Links to no process yet.
    #[must_use]
    pub const fn new(settings: Settings) -> Self {
        Self { settings, peers: BTreeMap::new(), timer: None, ack_timer: None }
    }

    fn enqueue(&mut self, to: Slot, message: &Message, cx: &mut Ctx<'_>) {
        let (now, settings) = (cx.now(), self.settings);
        let peer = self.peers.entry(to).or_default();
        if peer.unacknowledged.len() >= settings.queue {
            cx.sometimes(LinkEvent::Full);
            return cx.refuse_up(Message { dst: Dest::One(to), ..message.clone() });
        }
        if peer.unacknowledged.is_empty() {
            peer.progress = now;
            peer.wait = settings.resend;
            peer.resend_at = Some(now + settings.resend);
        }
        let waiting = Waiting {
            seq: peer.next,
            ty: message.ty,
            net: message.net,
            body: message.body.clone(),
        };
        peer.next += 1;
        cx.down(peer.data(to, &waiting, cx.incarnation()));
        peer.unacknowledged.push_back(waiting);
        peer.acknowledge = None;
        self.wake_up(cx);
    }

    /// Sets the timer for the first message to be sent again.
    fn wake_up(&mut self, cx: &mut Ctx<'_>) {
        let Some(at) = self.peers.values().filter_map(|peer| peer.resend_at).min() else { return };
        if self.timer.is_none_or(|(_, due)| at < due) {
            if let Some((old, _)) = self.timer {
                cx.cancel(old);
            }
            self.timer = Some((cx.set_timer(at), at));
        }
    }

    fn resend(&mut self, cx: &mut Ctx<'_>) {
        let (now, settings, me) = (cx.now(), self.settings, cx.incarnation());
        for (&slot, peer) in &mut self.peers {
            if peer.resend_at.is_none_or(|at| at > now) {
                continue;
            }
            if now - peer.progress >= settings.give_up {
                let lost = peer.unacknowledged.len() as u64;
                let event = LinkEvent::GaveUp { slot, lost, incarnation: peer.incarnation };
                cx.log(Level::Warning, event);
                peer.unacknowledged.clear();
                peer.resend_at = None;
                peer.stream += 1;
                peer.next = 0;
                continue;
            }
            for waiting in peer.unacknowledged.iter().take(BURST) {
                cx.down(peer.data(slot, waiting, me));
            }
            cx.sometimes(LinkEvent::Resent);
            peer.wait = (2 * peer.wait).min(MOST_WAIT);
            peer.resend_at = Some(now + peer.wait);
        }
        self.wake_up(cx);
    }

    fn arrived(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let (from, me, now) = (message.src, cx.incarnation(), cx.now());
        let Some(head) = Head::read(&message) else {
            cx.log(Level::Warning, RuntimeEvent::MalformedMessage { ty: message.ty });
            return;
        };
        let limit = self.settings.queue;
        let peer = self.peers.entry(from).or_default();
        if head.incarnation < peer.incarnation {
            return cx.sometimes(LinkEvent::OldIncarnationIgnored);
        }
        if head.incarnation > peer.incarnation {
            #[cfg(debug_assertions)]
            let reset = !self.settings.no_reset;
            #[cfg(not(debug_assertions))]
            let reset = true;
            if peer.incarnation > 0 && reset {
                cx.sometimes(LinkEvent::BeginsAgain);
                let stream = peer.stream + 1;
                *peer = Peer { stream, ..Peer::default() };
            }
            peer.incarnation = head.incarnation;
        }
        if head.to == me && head.ack_stream == peer.stream {
            let before = peer.unacknowledged.len();
            while peer.unacknowledged.front().is_some_and(|first| first.seq < head.ack) {
                peer.unacknowledged.pop_front();
            }
            if peer.unacknowledged.len() < before {
                peer.progress = now;
                peer.wait = self.settings.resend;
                let more = !peer.unacknowledged.is_empty();
                peer.resend_at = more.then(|| now + peer.wait);
            }
        }
        let Some((seq, ty)) = head.data else { return };
        peer.acknowledge = Some(message.net);
        if self.ack_timer.is_none() {
            self.ack_timer = Some(cx.set_timer(now + self.settings.ack));
        }
        if head.to != 0 && head.to != me {
            return cx.sometimes(LinkEvent::ForOldIncarnation);
        }
        if head.stream > peer.their_stream {
            (peer.their_stream, peer.expected) = (head.stream, 0);
            peer.early.clear();
        }
        if head.stream < peer.their_stream || seq < peer.expected {
            return;
        }
        let body = message.body.slice(DATA_LEN..);
        let message = Message { ty, body, ..message };
        if seq > peer.expected {
            if peer.early.len() < limit {
                peer.early.insert(seq, message);
            }
            return;
        }
        peer.expected += 1;
        cx.up(message);
        while let Some(message) = peer.early.remove(&peer.expected) {
            peer.expected += 1;
            cx.up(message);
        }
    }
}

impl Peer {
    fn head(&self, me: u64, out: &mut BytesMut) {
        out.put_u64_le(me);
        out.put_u32_le(self.stream);
        out.put_u64_le(self.incarnation);
        out.put_u32_le(self.their_stream);
        out.put_u64_le(self.expected);
    }

    fn data(&self, to: Slot, waiting: &Waiting, me: u64) -> Message {
        let mut out = BytesMut::with_capacity(DATA_LEN + waiting.body.len());
        self.head(me, &mut out);
        out.put_u64_le(waiting.seq);
        out.put_u32_le(waiting.ty);
        out.put_slice(&waiting.body);
        Message::new(to, DATA, out.freeze()).on(waiting.net)
    }
}

/// Header before a message.
struct Head {
    incarnation: u64,
    stream: u32,
    to: u64,
    ack_stream: u32,
    ack: u64,
    /// Number and type.
    data: Option<(u64, u32)>,
}

impl Head {
    fn read(message: &Message) -> Option<Self> {
        let body = &message.body;
        let word = |at: usize| body.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let half = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
        let data = match message.ty {
            DATA => Some((word(32)?, half(40)?)),
            _ => None,
        };
        let (incarnation, stream, to) = (word(0)?, half(8)?, word(12)?);
        Some(Self { incarnation, stream, to, ack_stream: half(20)?, ack: word(24)?, data })
    }
}

impl Layer for Link {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if types::DETECTOR.contains(&message.ty) {
            return cx.down(message);
        }
        let me = cx.me();
        let (own, others): (bool, Vec<Slot>) = match &message.dst {
            Dest::One(slot) => (*slot == me, vec![*slot]),
            Dest::Many(slots) => (slots.contains(&me), slots.to_vec()),
            Dest::All => (true, (0..cx.capacity()).map(Slot).collect()),
            Dest::AllButMe => (false, (0..cx.capacity()).map(Slot).collect()),
            Dest::View => (cx.view().contains(&me), cx.view().to_vec()),
        };
        for slot in others.into_iter().filter(|slot| *slot != me) {
            self.enqueue(slot, &message, cx);
        }
        if own {
            cx.down(Message { dst: Dest::One(me), ..message });
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match message.ty {
            DATA | ACK => self.arrived(message, cx),
            _ => cx.up(message),
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        if self.ack_timer == Some(id) {
            self.ack_timer = None;
            let me = cx.incarnation();
            for (&slot, peer) in &mut self.peers {
                if let Some(net) = peer.acknowledge.take() {
                    let mut out = BytesMut::with_capacity(ACK_LEN);
                    peer.head(me, &mut out);
                    cx.down(Message::new(slot, ACK, out.freeze()).on(net));
                }
            }
        } else if self.timer.is_some_and(|(timer, _)| timer == id) {
            self.timer = None;
            self.resend(cx);
        }
    }

    /// A full queue below is a loss like others: what matters is sent again.
    fn refused(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if !(DATA..=ACK).contains(&message.ty) {
            cx.refuse_up(message);
        }
    }

    /// Returns true once everything sent has been acknowledged: it must arrive before the process
    /// ends.
    fn drained(&self) -> bool {
        self.peers.values().all(|peer| peer.unacknowledged.is_empty())
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[DATA..=ACK]
    }
}

/// The registry with the layer `link`. Parameters: `resend` (20ms), `ack` (2ms), `give_up` (30s),
/// `queue` (4096 messages to one process).
#[must_use]
pub fn layers(registry: Registry) -> Registry {
    registry.with("link", |build| {
        let (usual, params) = (Settings::default(), &mut *build.params);
        let settings = Settings {
            resend: params.duration("resend", usual.resend)?.max(Duration::from_nanos(1)),
            ack: params.duration("ack", usual.ack)?,
            give_up: params.duration("give_up", usual.give_up)?,
            queue: usize::try_from(params.number("queue", 4096)?).unwrap_or(usize::MAX),
            #[cfg(debug_assertions)]
            no_reset: params.flag("mutant_14", false)?,
        };
        Ok(Box::new(Link::new(settings)) as Box<dyn Layer>)
    })
}
