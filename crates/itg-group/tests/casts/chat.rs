//! A user of a broadcast: casts at random, keeps a running hash of what is delivered as its state, and
//! brings processes that have come back into the group.

use bytes::Bytes;
use itg_core::streams::{below, fnv1a};
use itg_group::cast::{Ask, Tell};
use itg_group::{Changes, Member, View, ViewChange};
use itg_process::{
    Build, ConfigError, Ctx, Dest, Layer, Level, MS, Message, Registry, SECOND, Slot, Time, TimerId,
};

/// A process that has come back wants to be let in: its incarnation.
const LET_ME_IN: u32 = 100;

pub struct Chat {
    me: Member,
    n: u32,
    /// Until when it casts; the mean pause between two casts; longest message.
    until: u64,
    pause: u64,
    longest: u64,
    state: u64,
    position: u64,
    view: Option<View>,
    /// Processes that are removed at a time, by the first member of the view.
    waits: bool,
    tries: u32,
    busy: u64,
}

fn ask(ask: Ask, cx: &mut Ctx<'_>) {
    if let Some(message) = ask.message() {
        cx.down(message);
    }
}

impl Chat {
    fn pause(&mut self, cx: &mut Ctx<'_>) {
        let pause = below(cx.rng(), 2 * self.pause + 1);
        cx.set_timer_after(pause.max(1000));
    }

    fn say_state(&self, cx: &mut Ctx<'_>) {
        cx.log(Level::Info, "state", [self.position, self.state, 0]);
    }

    fn let_in(&mut self, member: Member, cx: &mut Ctx<'_>) {
        let Some(view) = &self.view else { return };
        let old = view.at(member.slot);
        if !view.contains(self.me) || old.is_some_and(|old| old.incarnation >= member.incarnation) {
            return;
        }
        let changes = Changes::new(old, [member]);
        ask(Ask::Change(ViewChange { base: view.no(), changes, shape: None }, Bytes::new()), cx);
    }

    fn take(&mut self, payload: &[u8]) {
        self.state = fnv1a(&[&self.state.to_le_bytes()[..], payload].concat());
        self.position += 1;
    }
}

impl Layer for Chat {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.waits = !self.view.as_ref().is_some_and(|view| view.contains(self.me));
        let start = below(cx.rng(), 20 * MS);
        cx.set_timer_after(start);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if self.waits {
            let body = self.me.incarnation.to_le_bytes().to_vec();
            cx.down(Message::new(Dest::AllButMe, LET_ME_IN, body));
            let contact = Slot((self.me.slot.0 + 1 + self.tries % (self.n - 1)) % self.n);
            self.tries += 1;
            ask(Ask::Join(contact), cx);
            cx.set_timer_after(300 * MS);
        } else if cx.now() < Time(self.until) {
            let len = below(cx.rng(), self.longest + 1);
            let fill = u8::try_from(below(cx.rng(), 256)).expect("a byte");
            ask(Ask::Cast(vec![fill; usize::try_from(len).expect("short")].into()), cx);
            self.pause(cx);
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
        match Tell::from_message(&message) {
            Some(Tell::Message { position, payload, .. }) => {
                assert_eq!(position, self.position, "deliveries come in order");
                self.take(&payload);
            }
            Some(Tell::View { view, with, .. }) => {
                self.take(&with);
                self.view = Some(view);
            }
            Some(Tell::Checkpoint { position }) => {
                assert_eq!(position, self.position, "a checkpoint is of the present");
                self.say_state(cx);
                ask(Ask::State(position, self.state.to_le_bytes().to_vec().into()), cx);
            }
            Some(Tell::Install { position, view, state }) => {
                cx.sometimes("snapshot used");
                self.position = position;
                self.state = u64::from_le_bytes(*state.first_chunk().expect("a number"));
                self.say_state(cx);
                self.view = Some(view);
                if self.waits {
                    self.waits = false;
                    self.pause(cx);
                }
            }
            Some(Tell::Busy(_)) => self.busy += 1,
            Some(Tell::Excluded { .. }) => self.view = None,
            None => {}
        }
    }
}

fn make(build: &mut Build<'_>) -> Result<Box<dyn Layer>, ConfigError> {
    let members = u32::try_from(build.params.number("members", build.n.into())?).expect("small");
    let me = Member::new(build.me, build.incarnation);
    Ok(Box::new(Chat {
        me,
        n: build.n,
        until: build.params.time_ns("until", SECOND)?,
        pause: build.params.time_ns("pause", 20 * MS)?,
        longest: build.params.number("longest", 100)?,
        state: 0,
        position: 0,
        view: Some(View::first(members, itg_group::Rules::default())),
        waits: false,
        tries: 0,
        busy: 0,
    }))
}

pub fn layers(registry: Registry) -> Registry {
    registry.with("chat", make)
}
