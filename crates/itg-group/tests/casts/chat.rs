//! Users of a broadcast: `rejoin` brings processes that have come back into the group; `chat`, above it,
//! casts at random and keeps a running hash of what is delivered as its state.

use bytes::Bytes;
use itg_core::streams::{below, fnv1a};
use itg_group::cast::{self, CastDelivery, CastRequest, ReplicaEvent};
use itg_group::{Changes, Member, Rules, View, ViewChange};
use itg_process::{
    Build, ConfigError, Ctx, Dest, Layer, Level, MS, Message, Registry, SECOND, Slot, Time,
    TimerId, layer_events,
};

layer_events! {
    /// Situations of `chat`.
    pub enum ChatEvent {
        /// Snapshot installed in place of messages.
        SnapshotUsed = "snapshot used",
        /// Cast that found no room.
        WindowFull = "window full",
    }
}

/// A process that has come back wants to be let in: its incarnation.
const LET_ME_IN: u32 = 100;

fn ask(ask: CastRequest, cx: &mut Ctx<'_>) {
    if let Some(message) = ask.message() {
        cx.down(message);
    }
}

struct Rejoin {
    me: Member,
    members: u32,
    view: View,
    tries: u32,
}

impl Rejoin {
    fn let_in(&self, member: Member, cx: &mut Ctx<'_>) {
        let old = self.view.at(member.slot);
        let known = old.is_some_and(|old| old.incarnation >= member.incarnation);
        if self.view.contains(self.me) && !known {
            let changes = Changes::new(old, [member]);
            let change = ViewChange { base: self.view.no(), changes, shape: None };
            ask(CastRequest::Change(change, Bytes::new()), cx);
        }
    }
}

impl Layer for Rejoin {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        if !self.view.contains(self.me) {
            cx.set_timer_after(MS);
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if !self.view.contains(self.me) {
            let body = self.me.incarnation.to_le_bytes().to_vec();
            cx.down(Message::new(Dest::AllButMe, LET_ME_IN, body));
            let me = self.me.slot.0;
            let contact = Slot((me + 1 + self.tries % (self.members - 1)) % self.members);
            self.tries += 1;
            ask(CastRequest::Join(contact), cx);
            cx.set_timer_after(300 * MS);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty == LET_ME_IN {
            if let Some(incarnation) = message.body.first_chunk::<8>() {
                let incarnation = u64::from_le_bytes(*incarnation);
                self.let_in(Member::new(message.src, incarnation), cx);
            }
            return;
        }
        if let Some(CastDelivery::View { view, .. } | CastDelivery::Install { view, .. }) =
            CastDelivery::from_message(&message)
        {
            self.view = view;
        }
        cx.up(message);
    }
}

struct Chat {
    /// Until when it casts; the mean pause between two casts; longest message.
    until: u64,
    pause: u64,
    longest: u64,
    /// Bytes of its state that say nothing.
    padding: usize,
    state: u64,
    position: u64,
}

impl Chat {
    fn pause(&self, cx: &mut Ctx<'_>) {
        let pause = below(cx.rng(), 2 * self.pause + 1);
        cx.set_timer_after(pause.max(1000));
    }

    fn tell_state(&self, cx: &mut Ctx<'_>) {
        let (position, digest) = (self.position, self.state);
        cx.log(Level::Info, ReplicaEvent::State { position, digest });
    }

    /// The state, as long as it is to be: all of it differs from that of any other position.
    fn padded(&self) -> Vec<u8> {
        let state = self.state.to_le_bytes();
        let of = |at: usize| (at >> 10).to_le_bytes()[0] ^ at.to_le_bytes()[0] ^ state[at % 8];
        state.into_iter().chain((0..self.padding).map(of)).collect()
    }

    fn take(&mut self, payload: &[u8]) {
        self.state = fnv1a(&[&self.state.to_le_bytes()[..], payload].concat());
        self.position += 1;
    }
}

impl Layer for Chat {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let start = below(cx.rng(), 20 * MS);
        cx.set_timer_after(start);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if cx.now() < Time(self.until) {
            let len = below(cx.rng(), self.longest + 1);
            let fill = u8::try_from(below(cx.rng(), 256)).expect("a byte");
            ask(CastRequest::Cast(vec![fill; usize::try_from(len).expect("short")].into()), cx);
            self.pause(cx);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match CastDelivery::from_message(&message) {
            Some(CastDelivery::Message { position, payload, .. }) => {
                assert_eq!(position, self.position, "deliveries come in order");
                self.take(&payload);
            }
            Some(CastDelivery::View { with, .. }) => self.take(&with),
            Some(CastDelivery::Checkpoint { position }) => {
                assert_eq!(position, self.position, "a checkpoint is of the present");
                self.tell_state(cx);
                ask(CastRequest::State(position, self.padded().into()), cx);
            }
            Some(CastDelivery::Install { position, state, .. }) => {
                cx.sometimes(ChatEvent::SnapshotUsed);
                self.position = position;
                self.state = u64::from_le_bytes(*state.first_chunk().expect("a number"));
                if self.padded() != state {
                    // The oracle of states sees it.
                    self.state ^= 1;
                }
                self.tell_state(cx);
            }
            Some(CastDelivery::Busy(_)) => cx.sometimes(ChatEvent::WindowFull),
            Some(
                CastDelivery::Excluded { .. }
                | CastDelivery::Restored { .. }
                | CastDelivery::Expired(_),
            )
            | None => {}
        }
    }
}

fn members(build: &mut Build<'_>) -> Result<u32, ConfigError> {
    let members = build.params.number("members", build.n.into())?;
    Ok(u32::try_from(members).expect("small"))
}

fn rejoin(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let members = members(build)?;
    let view = View::first(members, Rules::default());
    let new = || Member::new(build.me, build.incarnation);
    let me = cast::restored(build, &view).map_or_else(new, |(member, _)| member);
    Ok(Box::new(Rejoin { me, members, view, tries: 0 }))
}

fn chat(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    Ok(Box::new(Chat {
        until: build.params.time_ns("until", SECOND)?,
        pause: build.params.time_ns("pause", 20 * MS)?,
        longest: build.params.number("longest", 100)?,
        padding: usize::try_from(build.params.number("padding", 0)?).expect("small"),
        state: 0,
        position: 0,
    }))
}

pub fn layers(registry: Registry) -> Registry {
    registry.with("rejoin", rejoin).with("chat", chat)
}
