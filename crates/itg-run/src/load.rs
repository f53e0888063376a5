//! Layers that give an ordered broadcast load: they stand above it.
//!
//! | layer | what | parameters |
//! |---|---|---|
//! | `chatter` | casts at random, keeps a running hash of what is delivered as its state | `until` (forever), mean `pause` (50ms), greatest `size` (100 bytes) |
//! | `rounds` | the closed system of the thesis: in round *r* process *r* mod *n* casts, and all deliver | `rounds` (1000), `warm_up` (100), `size` (100), `members` (all) |
//! | `flood` | every process has so many casts under way until process 0 has delivered `messages` | `messages` (100000), `outstanding` (512), `size` (100) |
//! | `poisson` | casts at random instants, whatever becomes of the casts before | mean `pause` (1ms), `warm_up` (200ms), `lasts` (1s), `grace` (300ms), `size` (100) |
//! | `talkers` | the first of each `children` + 1 processes asks all the others and waits for their answers, once in each `every`, when process 0 says so to all of them | `children` (1), `every` (5ms), `warm_up` (200ms), `lasts` (500ms), `size` (64) |
//! | `asker` | a client that asks, waits for the answer and asks again | `rounds` (1000), `warm_up` (100), `size` (100) |
//!
//! `rounds`, `flood` and `asker` say how long it took when the first of them is done (`result`: count, nanoseconds;
//! `result times`: percentiles 50, 90, 99 in nanoseconds) and stop all processes. Each `poisson` says how many of its
//! casts were delivered, in how many nanoseconds they fell due, and how many there were; its times are from the
//! instant when a cast was due to its delivery here. Each parent among `talkers` says how many rounds it had and what
//! half of them took at most, in nanoseconds.

use bytes::Bytes;
use itg_core::streams::{below, exponential_ns, fnv1a};
use itg_group::cast::{CastDelivery, CastRequest, ReplicaEvent};
use itg_process::{
    Ctx, Dest, Layer, Level, MS, Message, Registry, Slot, StopReason, Time, TimerId, layer_events,
};

layer_events! {
    /// Results of the layers that measure.
    pub enum LoadEvent {
        /// Count and nanoseconds of a measurement; of `poisson` also the number of casts that fell due.
        Result { count: u64, ns: u64, offered: u64 } = "result",
        /// Percentiles of its times, in nanoseconds.
        Times { p50: u64, p90: u64, p99: u64 } = "result times",
    }
}

fn ask(ask: CastRequest, cx: &mut Ctx<'_>) {
    if let Some(message) = ask.message() {
        cx.down(message);
    }
}

/// A message of this length that begins with a number.
fn numbered(number: u64, size: usize) -> Bytes {
    let mut body = vec![7; size.max(8)];
    body[..8].copy_from_slice(&number.to_le_bytes());
    body.into()
}

fn number(payload: &[u8]) -> Option<u64> {
    payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}

/// Measured times.
#[derive(Debug, Default)]
struct Times {
    begin: Option<Time>,
    last: Option<Time>,
    gaps: Vec<u64>,
}

impl Times {
    /// Something has happened; the first time starts the clock.
    fn mark(&mut self, now: Time) {
        if let Some(last) = self.last.replace(now) {
            self.gaps.push(now.since(last));
        }
        self.begin.get_or_insert(now);
    }

    fn tell(&mut self, cx: &mut Ctx<'_>) {
        let total = self.begin.map_or(0, |begin| cx.now().since(begin));
        let count = self.gaps.len() as u64;
        cx.log(Level::Info, LoadEvent::Result { count, ns: total, offered: 0 });
        percentiles(&mut self.gaps, cx);
    }
}

/// Says the percentiles of some times.
fn percentiles(times: &mut [u64], cx: &mut Ctx<'_>) {
    times.sort_unstable();
    let at = |percent: usize| {
        let at = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(at).copied().unwrap_or(0)
    };
    let event = LoadEvent::Times { p50: at(50), p90: at(90), p99: at(99) };
    cx.log(Level::Info, event);
}

struct Chatter {
    until: Option<u64>,
    pause: u64,
    size: u64,
    begin: Time,
    state: u64,
    position: u64,
}

impl Chatter {
    fn pause(&self, cx: &mut Ctx<'_>) {
        let pause = below(cx.rng(), 2 * self.pause + 1).max(1000);
        cx.set_timer_after(pause);
    }

    fn take(&mut self, position: u64, payload: &[u8]) {
        self.state = fnv1a(&[&self.state.to_le_bytes()[..], payload].concat());
        self.position = position + 1;
    }
}

impl Layer for Chatter {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.begin = cx.now();
        self.pause(cx);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if self.until.is_none_or(|until| cx.now().since(self.begin) < until) {
            let len = usize::try_from(below(cx.rng(), self.size + 1)).unwrap_or(0);
            let fill = u8::try_from(below(cx.rng(), 256)).unwrap_or(0);
            ask(CastRequest::Cast(vec![fill; len].into()), cx);
            self.pause(cx);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match CastDelivery::take(message) {
            Some(CastDelivery::Message { position, payload, .. }) => self.take(position, &payload),
            Some(CastDelivery::View { position, with, .. }) => self.take(position, &with),
            Some(CastDelivery::Checkpoint { position }) => {
                cx.log(Level::Info, ReplicaEvent::State { position, digest: self.state });
                ask(CastRequest::State(position, self.state.to_le_bytes().to_vec().into()), cx);
            }
            Some(CastDelivery::Install { position, state, .. }) => match number(&state) {
                Some(state) => {
                    (self.position, self.state) = (position, state);
                    cx.log(Level::Info, ReplicaEvent::State { position, digest: state });
                }
                None => cx.log(Level::Error, ReplicaEvent::UnreadableState { position }),
            },
            Some(
                CastDelivery::Busy(_)
                | CastDelivery::Expired(_)
                | CastDelivery::Excluded { .. }
                | CastDelivery::Restored { .. },
            )
            | None => {}
        }
    }
}

/// A snapshot of a layer without a state.
fn stateless(tell: &CastDelivery, cx: &mut Ctx<'_>) {
    if let CastDelivery::Checkpoint { position } = tell {
        ask(CastRequest::State(*position, Bytes::new()), cx);
    }
}

struct Rounds {
    rounds: u64,
    warm_up: u64,
    size: usize,
    members: u64,
    times: Times,
}

impl Rounds {
    fn cast(&self, round: u64, cx: &mut Ctx<'_>) {
        if round % self.members.max(1) == u64::from(cx.me().0) {
            ask(CastRequest::Cast(numbered(round, self.size)), cx);
        }
    }
}

impl Layer for Rounds {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.cast(0, cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let Some(tell) = CastDelivery::take(message) else { return };
        stateless(&tell, cx);
        let CastDelivery::Message { payload, .. } = tell else { return };
        let Some(round) = number(&payload) else { return };
        if round >= self.warm_up {
            self.times.mark(cx.now());
        }
        if round < self.rounds + self.warm_up {
            self.cast(round + 1, cx);
        } else if cx.me() == Slot(0) {
            self.times.tell(cx);
            cx.shutdown(StopReason::Finished);
        }
    }
}

struct Flood {
    messages: u64,
    outstanding: u64,
    size: usize,
    under_way: u64,
    delivered: u64,
    begin: Option<Time>,
}

impl Flood {
    fn fill(&mut self, cx: &mut Ctx<'_>) {
        while self.under_way < self.outstanding && self.delivered < self.messages {
            self.under_way += 1;
            ask(CastRequest::Cast(numbered(u64::from(cx.me().0), self.size)), cx);
        }
    }
}

impl Layer for Flood {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.fill(cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let Some(tell) = CastDelivery::take(message) else { return };
        stateless(&tell, cx);
        match tell {
            CastDelivery::Message { payload, .. } => {
                let now = cx.now();
                let begin = *self.begin.get_or_insert(now);
                self.delivered += 1;
                if number(&payload) == Some(cx.me().0.into()) {
                    self.under_way -= 1;
                }
                // In bursts: half of them are under way while the other half is made.
                if self.under_way <= self.outstanding / 2 {
                    self.fill(cx);
                }
                if self.delivered == self.messages && cx.me() == Slot(0) {
                    let (count, ns) = (self.delivered, cx.now().since(begin));
                    cx.log(Level::Info, LoadEvent::Result { count, ns, offered: 0 });
                    cx.shutdown(StopReason::Finished);
                }
            }
            CastDelivery::Busy(_) => self.under_way = self.under_way.saturating_sub(1),
            _ => {}
        }
    }
}

struct Poisson {
    pause: u64,
    warm_up: u64,
    lasts: u64,
    grace: u64,
    size: usize,
    begin: Time,
    /// Due time of the next cast.
    next: Time,
    offered: u64,
    times: Vec<u64>,
}

/// Casts that one timer makes up for at most.
const MOST_AT_ONCE: usize = 4096;

impl Poisson {
    /// Returns true if a cast that was due then is counted.
    const fn counts(&self, due: Time) -> bool {
        let since = due.since(self.begin);
        since >= self.warm_up && since < self.warm_up + self.lasts
    }

    fn draw(&mut self, cx: &mut Ctx<'_>) {
        self.next = self.next.after(exponential_ns(cx.rng(), self.pause));
    }
}

impl Layer for Poisson {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        (self.begin, self.next) = (cx.now(), cx.now());
        self.draw(cx);
        cx.set_timer(self.next);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        let end = self.begin.after(self.warm_up + self.lasts);
        for _ in 0..MOST_AT_ONCE {
            if self.next > cx.now() || self.next >= end {
                break;
            }
            self.offered += u64::from(self.counts(self.next));
            let mut body = u64::from(cx.me().0).to_le_bytes().to_vec();
            body.extend(self.next.0.to_le_bytes());
            body.resize(self.size.max(16), 7);
            ask(CastRequest::Cast(body.into()), cx);
            self.draw(cx);
        }
        let over = end.after(self.grace);
        if self.next < end {
            cx.set_timer(self.next);
        } else if cx.now() < over {
            cx.set_timer(over);
        } else {
            cx.shutdown(StopReason::Finished);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let Some(tell) = CastDelivery::take(message) else { return };
        stateless(&tell, cx);
        let CastDelivery::Message { payload, .. } = tell else { return };
        let due = payload.get(8..).and_then(number).map(Time);
        if let (Some(slot), Some(due)) = (number(&payload), due)
            && slot == u64::from(cx.me().0)
            && self.counts(due)
        {
            self.times.push(cx.now().since(due));
        }
    }

    fn on_stop(&mut self, _why: StopReason, cx: &mut Ctx<'_>) {
        let count = self.times.len() as u64;
        let event = LoadEvent::Result { count, ns: self.lasts, offered: self.offered };
        cx.log(Level::Info, event);
        percentiles(&mut self.times, cx);
    }
}

/// Parents that talk with their children, all at once.
struct Talkers {
    children: u32,
    every: u64,
    warm_up: u64,
    lasts: u64,
    body: Bytes,
    begin: Time,
    /// Start of the round under way, and the number of answers it waits for.
    asked: Time,
    waiting: u32,
    rounds: Vec<u64>,
}

impl Talkers {
    /// Question and answer.
    const TALK: u32 = 1;
    /// Process 0 tells the other parents to begin.
    const BEGIN: u32 = 2;

    const fn parent(&self, slot: Slot) -> bool {
        slot.0.is_multiple_of(self.children + 1)
    }

    /// Begins a round; one that is under way goes on.
    fn ask(&mut self, cx: &mut Ctx<'_>) {
        if self.waiting == 0 {
            (self.asked, self.waiting) = (cx.now(), self.children);
            let children: Vec<_> = (1..=self.children).map(|at| Slot(cx.me().0 + at)).collect();
            cx.down(Message::new(Dest::Many(children.into()), Self::TALK, self.body.clone()));
        }
    }
}

impl Layer for Talkers {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.begin = cx.now();
        if cx.me() == Slot(0) {
            cx.set_timer_after(self.every);
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if cx.now().since(self.begin) >= self.warm_up + self.lasts {
            return cx.shutdown(StopReason::Finished);
        }
        let parents: Vec<_> = (1..cx.n()).map(Slot).filter(|slot| self.parent(*slot)).collect();
        cx.down(Message::new(Dest::Many(parents.into()), Self::BEGIN, Bytes::new()));
        self.ask(cx);
        cx.set_timer_after(self.every);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match message.ty {
            Self::BEGIN => self.ask(cx),
            Self::TALK if self.parent(cx.me()) => {
                self.waiting = self.waiting.saturating_sub(1);
                if self.waiting == 0 && self.asked.since(self.begin) >= self.warm_up {
                    self.rounds.push(cx.now().since(self.asked));
                }
            }
            _ => cx.down(Message::new(message.src, Self::TALK, message.body)),
        }
    }

    fn on_stop(&mut self, _why: StopReason, cx: &mut Ctx<'_>) {
        if self.parent(cx.me()) {
            self.rounds.sort_unstable();
            let half = self.rounds.get(self.rounds.len() / 2).copied().unwrap_or(0);
            let count = self.rounds.len() as u64;
            cx.log(Level::Info, LoadEvent::Result { count, ns: half, offered: 0 });
        }
    }
}

struct Asker {
    rounds: u64,
    warm_up: u64,
    size: usize,
    round: u64,
    times: Times,
    told: bool,
}

impl Asker {
    fn tell(&mut self, cx: &mut Ctx<'_>) {
        if !std::mem::replace(&mut self.told, true) {
            self.times.tell(cx);
        }
    }
}

impl Layer for Asker {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        ask(CastRequest::Cast(numbered(0, self.size)), cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let tell = CastDelivery::take(message);
        if let Some(CastDelivery::Message { .. } | CastDelivery::Expired(_)) = tell {
            self.round += 1;
            if self.round > self.warm_up {
                self.times.mark(cx.now());
            }
            if self.round <= self.rounds + self.warm_up {
                ask(CastRequest::Cast(numbered(self.round, self.size)), cx);
            } else {
                self.tell(cx);
                cx.shutdown(StopReason::Finished);
            }
        }
    }

    /// Another client was faster.
    fn on_stop(&mut self, _why: StopReason, cx: &mut Ctx<'_>) {
        self.tell(cx);
    }
}

/// The registry with these layers.
pub(crate) fn layers(registry: Registry) -> Registry {
    let usize_of = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
    registry
        .with("chatter", |build| {
            let params = &mut *build.params;
            let until = params.time_ns("until", u64::MAX)?;
            Ok(Box::new(Chatter {
                until: (until < u64::MAX).then_some(until),
                pause: params.time_ns("pause", 50 * MS)?,
                size: params.number("size", 100)?,
                begin: Time::ZERO,
                state: 0,
                position: 0,
            }) as Box<dyn Layer>)
        })
        .with("rounds", move |build| {
            let params = &mut *build.params;
            Ok(Box::new(Rounds {
                rounds: params.number("rounds", 1000)?,
                warm_up: params.number("warm_up", 100)?,
                size: usize_of(params.number("size", 100)?),
                members: params.number("members", build.n.into())?,
                times: Times::default(),
            }) as Box<dyn Layer>)
        })
        .with("flood", move |build| {
            let params = &mut *build.params;
            Ok(Box::new(Flood {
                messages: params.number("messages", 100_000)?,
                outstanding: params.number("outstanding", 512)?.max(1),
                size: usize_of(params.number("size", 100)?),
                under_way: 0,
                delivered: 0,
                begin: None,
            }) as Box<dyn Layer>)
        })
        .with("asker", move |build| {
            let params = &mut *build.params;
            Ok(Box::new(Asker {
                rounds: params.number("rounds", 1000)?,
                warm_up: params.number("warm_up", 100)?,
                size: usize_of(params.number("size", 100)?),
                round: 0,
                times: Times::default(),
                told: false,
            }) as Box<dyn Layer>)
        })
        .with("talkers", move |build| {
            let params = &mut *build.params;
            let children = params.number("children", 1)?;
            let whole = u64::from(build.n).is_multiple_of(children.saturating_add(1));
            if children == 0 || !whole {
                return Err(params.error_at("children", "expected groups of as many and a parent"));
            }
            Ok(Box::new(Talkers {
                children: u32::try_from(children).unwrap_or(u32::MAX),
                every: params.time_ns("every", 5 * MS)?.max(1),
                warm_up: params.time_ns("warm_up", 200 * MS)?,
                lasts: params.time_ns("lasts", 500 * MS)?,
                body: numbered(0, usize_of(params.number("size", 64)?)),
                begin: Time::ZERO,
                asked: Time::ZERO,
                waiting: 0,
                rounds: Vec::new(),
            }) as Box<dyn Layer>)
        })
        .with("poisson", move |build| {
            let params = &mut *build.params;
            Ok(Box::new(Poisson {
                pause: params.time_ns("pause", MS)?.max(1),
                warm_up: params.time_ns("warm_up", 200 * MS)?,
                lasts: params.time_ns("lasts", 1000 * MS)?,
                grace: params.time_ns("grace", 300 * MS)?,
                size: usize_of(params.number("size", 100)?),
                begin: Time::ZERO,
                next: Time::ZERO,
                offered: 0,
                times: Vec::new(),
            }) as Box<dyn Layer>)
        })
}
