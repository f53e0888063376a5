//! Sequencer and Skeen made uniform and crash-tolerant: an order counts when a majority of the core
//! holds it, and when a process is suspected the group agrees on a cut and goes on in the next
//! view.
//!
//! Within a view, which is an epoch, the algorithms run as in their failure-free forms; messages of
//! other epochs are dropped. In isolation a message costs 4 (n − 1) with a sequencer, the price of
//! consensus, and 5 (n − 1) in Skeen's algorithm.
//!
//! *Cut.* The member that changes the view asks the core what it holds, waits for a majority, puts
//! together what has been delivered, what may have been, and what waits, and submits it with the
//! view change to the ordered log, which decides one cut for each epoch. A member that has been
//! asked acknowledges nothing more in that epoch (the fence): without it an order could become
//! stable that the cut does not know. Every order ever delivered is in the cut because a majority
//! held it. Messages whose number is not known come behind all others, in the order of their names.
//!
//! Assumes the links and crashes of the log, and a failure detector that tells of every crash; a
//! member that is suspected wrongly is excluded and may come back as another incarnation. The cut
//! is ours (`docs/group.md`); the fence is that of view-synchronous flushing (Birman, Schiper,
//! Stephenson, 1991).

mod cut;
mod history;
mod journal;
mod message;
mod note;
mod order;

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use itg_members::{Id, Member, View};
use itg_process::{Action, Dest, Input, Level, Machine, Slot, Time};

use self::cut::{Begun, Collecting, Parts};
use self::history::{AGAIN, FILL_BYTES, History, Outbox, Progress};
use self::note::{Memory, Note};
use self::order::Orders;
use super::backlog::{Backlog, Novelty};
use super::entry::{Body, Entry};
use super::event::CastEvent;
use super::interface::{CastDelivery, CastRequest, code};
use super::log::{self, Log, Settings};

pub use message::{EpochMessage, Flush, Named, UniformMessage};
pub(crate) use message::{FIRST, LAST};
pub(crate) use note::records_of_log;

/// Longest state of the user, with parts of cuts: 48 MiB. A journal, of 256 MiB at most, has it twice, once for the log;
/// both parts of it grow before they are made shorter.
const MOST_STATE: usize = 48 << 20;
/// A journal with a large state is made shorter when it has grown by as much, or by so many bytes.
const MOST_GROWTH: usize = 32 << 20;
/// Algorithm that runs within a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fast {
    /// The root of the view numbers the messages.
    Sequencer,
    /// The sender takes the greatest of all members' timestamps.
    Skeen,
}

/// The timers of a uniform broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Of the log.
    Log(log::Timer),
    /// Say again what may have been lost.
    Tick,
}

type Out = Vec<Action<Uniform>>;

/// The settings with the narrower limits of a uniform broadcast.
fn limited(settings: Settings) -> Settings {
    Settings { most_state: settings.most_state.min(MOST_STATE), ..settings }
}

/// A member of a uniform broadcast.
#[derive(Clone, Debug)]
pub struct Uniform {
    fast: Fast,
    me: Member,
    settings: Settings,
    log: Log,
    view: View,
    epoch: Epoch,
    outbox: Outbox,
    backlog: Backlog,
    /// Entries told, over all epochs.
    position: u64,
    suspected: BTreeSet<Member>,
    begun: Option<Begun>,
    gone: bool,
    local: VecDeque<EpochMessage>,
    memory: Memory,
    /// It was told that the state is too long.
    too_long: bool,
}

/// State that ends with its view.
#[derive(Clone, Debug, Default, Hash)]
struct Epoch {
    /// Slots of the view without this process.
    others: Arc<[Slot]>,
    history: History,
    orders: Orders,
    progress: Progress,
    /// Time since which this member acknowledges nothing more.
    fenced: Option<Time>,
    collecting: Option<Collecting>,
    /// Parts of cuts that the log has delivered.
    parts: Parts,
}

impl Epoch {
    /// The beginning of the epoch of a view.
    fn of(view: &View, me: Member) -> Self {
        let others = view.slots().filter(|slot| *slot != me.slot).collect();
        Self { others, ..Self::default() }
    }
}

/// Everything that its next steps depend on, but for the settings and a checkpoint that waits for its user's state:
/// the user of one whose states are told apart answers at once.
impl Hash for Uniform {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.me, &self.log, self.view.digest(), &self.outbox, &self.backlog).hash(state);
        (self.position, &self.epoch, &self.suspected).hash(state);
        (self.gone, &self.local, &self.memory).hash(state);
    }
}

impl Uniform {
    /// A member of this view from the beginning, or a process that will join.
    #[must_use]
    pub fn new(fast: Fast, me: Member, view: View, settings: Settings) -> Self {
        let settings = limited(settings);
        Self {
            fast,
            me,
            settings,
            log: Log::new(me, view.clone(), Settings { trace: false, ..settings }),
            epoch: Epoch::of(&view, me),
            view,
            outbox: Outbox::default(),
            backlog: Backlog::new(settings.window),
            position: 0,
            suspected: BTreeSet::new(),
            begun: None,
            gone: false,
            local: VecDeque::new(),
            memory: Memory::default(),
            too_long: false,
        }
    }

    /// Messages delivered in this epoch.
    fn done(&self) -> u64 {
        self.epoch.history.done()
    }

    fn leader(&self) -> Slot {
        self.view.root().slot
    }

    fn is_core(&self) -> bool {
        self.view.core().contains(&self.me)
    }

    fn begin_epoch(&mut self) {
        self.epoch = Epoch::of(&self.view, self.me);
        self.suspected.retain(|member| self.view.contains(*member));
    }

    fn fast(&self, what: EpochMessage) -> UniformMessage {
        UniformMessage::Fast { from: self.me, epoch: self.view.no(), what }
    }

    fn tell(&mut self, to: Slot, what: EpochMessage, out: &mut Out) {
        if to == self.me.slot {
            self.local.push_back(what);
        } else {
            out.push(Action::Send(Dest::One(to), self.fast(what)));
        }
    }

    fn tell_others(&self, what: EpochMessage, out: &mut Out) {
        if !self.epoch.others.is_empty() {
            out.push(Action::Send(Dest::Many(Arc::clone(&self.epoch.others)), self.fast(what)));
        }
    }

    /// Tells these, each once.
    fn tell_some(&mut self, to: &[Slot], what: EpochMessage, out: &mut Out) {
        let others: Vec<Slot> = to.iter().copied().filter(|slot| *slot != self.me.slot).collect();
        let own = others.len() < to.len();
        if others.len() == self.epoch.others.len() {
            self.tell_others(what.clone(), out);
        } else if !others.is_empty() {
            out.push(Action::Send(Dest::Many(others.into()), self.fast(what.clone())));
        }
        if own {
            self.local.push_back(what);
        }
    }

    fn tell_all(&mut self, what: EpochMessage, out: &mut Out) {
        self.tell_others(what.clone(), out);
        self.local.push_back(what);
    }

    fn cast(&mut self, payload: Bytes, now: Time, out: &mut Out) {
        let room = self.view.contains(self.me) && !self.epoch.history.is_full();
        let id = self.outbox.next(self.me, payload.len()).filter(|_| room);
        let Some(id) = id.filter(|id| self.backlog.has_room(*id)) else {
            return out.push(Action::Deliver(CastDelivery::Busy(payload)));
        };
        self.outbox.cast(payload.len());
        if self.settings.trace {
            out.push(Action::log(CastEvent::Cast { origin: code(self.me), seq: id.seq }));
        }
        if self.take_in(id, payload.clone(), now) {
            self.note(&Note::Message(id, payload.clone()), out);
        }
        self.tell_all(EpochMessage::Data(id, payload), out);
    }

    /// Lets a message wait to be ordered; returns true if it is new.
    fn take_in(&mut self, id: Id, payload: Bytes, now: Time) -> bool {
        let entry = Entry { id, lamport: 0, body: Body::Message(payload) };
        self.backlog.put(entry, now)
    }

    fn payload(&self, id: Id) -> Option<Bytes> {
        match &self.backlog.get(id)?.body {
            Body::Message(payload) => Some(payload.clone()),
            Body::Held(_) | Body::Change(..) => None,
        }
    }

    /// The next message of the epoch.
    fn deliver(&mut self, id: Id, payload: Bytes, out: &mut Out) {
        if self.memory.keeps() {
            let new = self.backlog.get(id).is_none().then(|| payload.clone());
            self.note(&Note::Delivered(self.view.no(), self.done(), id, new), out);
        }
        self.epoch.orders.forget(id);
        self.epoch.history.push((id, payload.clone()));
        let Novelty::Fresh(waiting) = self.backlog.deliver(id) else { return };
        if id.origin == self.me && waiting.is_some() {
            self.outbox.delivered(payload.len());
        }
        let position = self.position;
        self.position += 1;
        if self.settings.trace {
            let (origin, seq) = (code(id.origin), id.seq);
            out.push(Action::log(CastEvent::Deliver { origin, seq, position }));
        }
        out.push(Action::Deliver(CastDelivery::Message { position, id, payload }));
    }

    /// Messages of the epoch from this number on, which all members may deliver.
    fn fill(&mut self, first: u64, list: Vec<Named>, out: &mut Out) {
        for (number, (id, payload)) in (first..).zip(list) {
            if number == self.done() {
                self.deliver(id, payload, out);
            }
        }
    }

    fn heard(&mut self, now: Time, from: Member, what: EpochMessage, out: &mut Out) {
        match what {
            // Both, step 1: the message. The sequencer numbers it, each member gives Skeen's
            // timestamp.
            EpochMessage::Data(id, payload) => {
                if !self.view.contains(id.origin) || self.backlog.is_delivered(id) {
                    return;
                }
                if self.take_in(id, payload.clone(), now) {
                    self.note(&Note::Message(id, payload), out);
                }
                self.data(id, out);
            }
            // Sequencer, step 2; Skeen, step 3: its number.
            EpochMessage::Order(id, number) => self.order(id, number, out),
            // Ours, uniform delivery: a majority of the core holds the numbers up to here before any is delivered.
            EpochMessage::Held(number) => self.held(from, number, out),
            EpochMessage::Stable(number) => {
                self.epoch.orders.stable = self.epoch.orders.stable.max(number)
            }
            // Skeen, step 2: a timestamp at the collector.
            EpochMessage::Stamp(id, ts) => self.stamp(from, id, ts, out),
            // Ours, uniform delivery of Skeen's: a majority holds this number.
            EpochMessage::HeldOne(id) => self.held_one(from, id, out),
            EpochMessage::StableOne(id) => self.epoch.orders.stable_one(id),
            EpochMessage::StableOnes(list) => {
                for (id, number) in list {
                    if self.learn(id, number, out) {
                        self.epoch.orders.stable_one(id);
                    }
                }
            }
            // Ours, fail-over: what a majority of the core holds becomes the cut that ends the epoch.
            EpochMessage::Collect => self.collect(now, from, out),
            EpochMessage::Flush(flush) => self.flushed(now, from, flush, out),
            EpochMessage::Progress(number) => self.epoch.progress.told(from.slot, number),
            EpochMessage::Fill(first, list) => self.fill(first, list, out),
        }
        self.deliver_what_is_ready(out);
    }

    /// Tells this member's progress, sends again what may have been lost, and changes the view if
    /// that is wanted.
    fn tick(&mut self, now: Time, out: &mut Out) {
        out.push(Action::SetTimer(Timer::Tick, now + self.settings.status));
        if !self.view.contains(self.me) || self.gone {
            return;
        }
        let done = self.done();
        self.tell_others(EpochMessage::Progress(done), out);
        self.epoch.progress.told(self.me.slot, done);
        let least = self.view.slots().map(|slot| self.epoch.progress.of(slot)).min().unwrap_or(0);
        self.epoch.history.forget_before(least);
        let late = |since: Time| now - since >= self.settings.rotate;
        if self.backlog.oldest(Some(self.me)).is_some_and(late) {
            for (id, payload) in self.own_waiting() {
                let to = self.lacking(id);
                self.tell_some(&to, EpochMessage::Data(id, payload), out);
            }
        }
        self.say_again(out);
        self.fill_gaps(out);
        self.change_if_wanted(now, out);
        self.shorten_if_long(out);
    }

    /// The first own messages that wait and that some member may lack. Those of which this member knows
    /// that others see to them wait for others: with them in front the rest would never be sent again.
    fn own_waiting(&self) -> Vec<Named> {
        let mut bytes = 0;
        let open = self.backlog.of(self.me).filter(|entry| self.is_mine_to_repeat(entry.id));
        let fits = open.take(AGAIN).take_while(|entry| {
            bytes += entry.len();
            bytes <= FILL_BYTES || bytes == entry.len()
        });
        fits.filter_map(|entry| Some((entry.id, self.payload(entry.id)?))).collect()
    }

    /// Sends the messages that they miss to members that are behind and have not moved since the
    /// last time.
    fn fill_gaps(&mut self, out: &mut Out) {
        for (slot, number) in self.epoch.progress.stalled(&self.epoch.history) {
            let what = EpochMessage::Fill(number, self.epoch.history.gap(number));
            self.tell(slot, what, out);
        }
    }

    /// Hands something to the log, and takes what it says.
    fn with_log(&mut self, now: Time, input: Input<Log>, out: &mut Out) {
        let mut inner = Vec::new();
        self.log.handle(now, input, &mut inner);
        for action in inner {
            self.of_log(now, action, out);
        }
    }

    /// Takes what the log says.
    fn of_log(&mut self, now: Time, action: Action<Log>, out: &mut Out) {
        match action {
            Action::Send(dst, say) => out.push(Action::Send(dst, UniformMessage::Log(say))),
            Action::Deliver(tell) => self.told_by_log(now, tell, out),
            Action::SetTimer(timer, at) => out.push(Action::SetTimer(Timer::Log(timer), at)),
            Action::CancelTimer(timer) => out.push(Action::CancelTimer(Timer::Log(timer))),
            // What the log says of itself is not what this broadcast does.
            Action::Log(event) if event.level != Level::Sometimes => {}
            Action::Log(situation) => out.push(Action::Log(situation)),
            Action::Persist(write) => self.note_of_log(write, out),
        }
    }

    fn request(&mut self, now: Time, ask: CastRequest, out: &mut Out) {
        match ask {
            CastRequest::Cast(payload) => self.cast(payload, now, out),
            CastRequest::Change(change, with) => {
                if change.base == self.view.no() && self.epoch.collecting.is_none() {
                    self.start_collecting(now, change, with, out);
                }
            }
            CastRequest::Suspect(slot) => {
                if let Some(member) = self.view.at(slot).filter(|member| *member != self.me) {
                    self.suspected.insert(member);
                    self.with_log(now, Input::Request(CastRequest::Suspect(slot)), out);
                    self.change_if_wanted(now, out);
                }
            }
            CastRequest::Trust(slot) => {
                self.suspected.retain(|member| member.slot != slot);
                self.with_log(now, Input::Request(CastRequest::Trust(slot)), out);
            }
            CastRequest::RoundTrip(_) => self.with_log(now, Input::Request(ask), out),
            CastRequest::Join(slot) => {
                self.with_log(now, Input::Request(CastRequest::Join(slot)), out)
            }
            CastRequest::Rejoin(_) => {}
            CastRequest::State(position, state) => self.state(now, position, &state, out),
        }
    }
}

impl Machine for Uniform {
    type Request = CastRequest;
    type Delivery = CastDelivery;
    type Message = UniformMessage;
    type Timer = Timer;

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out) {
        if let Input::Request(CastRequest::Rejoin(member)) = input {
            return self.begin_again(now, member, out);
        }
        if matches!(input, Input::Start) {
            self.come_back(now, out);
            return out.push(Action::SetTimer(Timer::Tick, now + self.settings.status));
        }
        if self.gone {
            // Perhaps no other process can tell the rest what was decided before that.
            if let Input::Message(src, UniformMessage::Log(say)) = input {
                self.with_log(now, Input::Message(src, say), out);
            }
            return;
        }
        match input {
            Input::Start => {}
            Input::Request(ask) => self.request(now, ask, out),
            Input::Message(src, UniformMessage::Log(say)) => {
                self.with_log(now, Input::Message(src, say), out)
            }
            Input::Message(_, UniformMessage::Fast { from, epoch, what }) => {
                let fits = epoch == self.view.no() && self.view.contains(from);
                if fits && self.view.contains(self.me) {
                    self.heard(now, from, what, out);
                }
            }
            Input::Timer(Timer::Log(timer)) => self.with_log(now, Input::Timer(timer), out),
            Input::Timer(Timer::Tick) => self.tick(now, out),
        }
        while let Some(what) = self.local.pop_front() {
            self.heard(now, self.me, what, out);
        }
    }
}
