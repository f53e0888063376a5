//! The ordered log: consensus on batches, instance after instance, views as entries. The default
//! atomic broadcast, and the place where view changes are decided.
//!
//! Assumes that a majority of the core of each view lives, crashes without lies, and that what is sent
//! often enough arrives; links may lose, repeat and reorder. Safe under any delay and any suspicion. In
//! a good run 4 (n − 1) messages and 4 steps for a message alone (3 and 3 when the coordinator casts
//! it); under load the last three phases are shared by a batch, and the decision travels with the next
//! proposal.
//!
//! Source: Chandra, Toueg, *Unreliable failure detectors for reliable distributed systems*, JACM
//! 43(2), 1996 (rotating coordinator, majority, estimates with times). Ours: batches, the author of
//! the last decision as first coordinator, early abort, decisions pulled by members that miss them,
//! views as entries.
//!
//! | file | what |
//! |---|---|
//! | `mod` | casting, delivering, views |
//! | `round` | the rounds of the instance in progress |
//! | `keep` | decisions that are kept: for members that are behind, snapshots, collection |
//! | `journal`, `restart` | what a member stores, and its return with that |
//! | `pieces`, `chunks` | long snapshots and records, piece by piece |
//! | `pace`, `rest` | how often members say how far they are |
//! | `message` | messages and their bytes |

mod chunks;
mod journal;
mod message;
mod outbox;
mod pace;
mod pieces;
mod rest;
mod restart;
mod retained;
mod round;

use std::collections::{BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use itg_members::{Id, Member, View, ViewChange};
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

use self::chunks::Transfer;
use self::journal::{Journal, Record};
use self::outbox::Outbox;
use self::pace::Pace;
use self::retained::{Keep, Past};
use self::round::Instance;
use super::backlog::{Backlog, Novelty};
use super::entry::{Body, Entry, MOST_PAYLOAD, MOST_SNAPSHOT, Value};
use super::event::CastEvent;
use super::interface::{CastDelivery, CastRequest, code};
use super::mutant::{Mutant, Planted};

pub(crate) use chunks::{join, split};
pub(crate) use journal::{member_of, numbered};
pub(crate) use message::{FIRST, LAST};
pub use message::{LogBody, LogMessage, Snapshot};

/// The instance that a process pulls that has no view yet: it wants a snapshot.
pub const JOINING: u64 = u64::MAX;

/// Bytes of decisions after which a member does not wait for its timer to say how far it is: under load
/// less has to be kept for others, and is still in the caches when it is dropped.
const UNTOLD: usize = 256 << 10;

/// Settings of a log; all members have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time without progress after which a member says again what may have been lost, and after
    /// as many more changes the coordinator. Doubles with each round of an instance.
    pub rotate: Duration,
    /// Time between two exchanges of how far members are.
    pub status: Duration,
    /// The longest time between two of them while nothing happens.
    pub rest: Duration,
    /// Most messages of a batch.
    pub batch_msgs: usize,
    /// Most bytes of a batch.
    pub batch_bytes: usize,
    /// Longest payload that travels in the proposal; longer ones are voted for by name.
    pub inline_max: usize,
    /// Messages of one origin that may wait to be ordered.
    pub window: u64,
    /// Most decisions that are kept for members that are behind.
    pub retain: usize,
    /// Most bytes of them.
    pub retain_bytes: usize,
    /// Bytes of a journal after which a snapshot makes it shorter.
    pub journal_bytes: usize,
    /// Bytes of a piece of a snapshot.
    pub piece_bytes: usize,
    /// Longest state of the user.
    pub most_state: usize,
    /// True if every cast and delivery is told to traces and checkers.
    pub trace: bool,
    /// A planted fault, in tests.
    pub planted: Planted,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rotate: Duration::from_millis(150),
            status: Duration::from_millis(50),
            rest: Duration::from_millis(50),
            batch_msgs: 1024,
            batch_bytes: 64 << 10,
            inline_max: 4 << 10,
            window: 1024,
            retain: 4096,
            retain_bytes: 64 << 20,
            journal_bytes: 4 << 20,
            piece_bytes: 1 << 20,
            most_state: MOST_SNAPSHOT,
            trace: false,
            planted: Planted::default(),
        }
    }
}

/// The timers of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Timer {
    /// The round in progress takes long.
    Round,
    /// Say how far one is.
    Status,
}

pub(crate) type Out<M> = Vec<Action<M>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Phase {
    /// Without a view; the process to ask for one.
    Joining(Option<Slot>),
    Member,
    Gone,
}

/// Processes that a member has to do with in its view.
#[derive(Clone, Debug, Hash)]
struct Places {
    /// The core of the instance in progress, in the order of succession.
    core: Arc<[Member]>,
    /// Slots of the core without this process.
    peers: Arc<[Slot]>,
    /// Children in the tree that are learners.
    learners: Arc<[Slot]>,
}

impl Places {
    fn of(view: &View, me: Slot) -> Self {
        let core: Arc<[Member]> = view.core().into();
        let is_core = |slot: &Slot| core.iter().any(|member| member.slot == *slot);
        let peers = core.iter().map(|member| member.slot).filter(|slot| *slot != me).collect();
        let children = view.tree().children(me).into_iter();
        let learners = children.filter(|slot| !is_core(slot)).collect();
        Self { core, peers, learners }
    }
}

/// A member of an ordered log.
#[derive(Clone, Debug)]
pub struct Log {
    me: Member,
    settings: Settings,
    life: Phase,
    view: View,
    places: Places,
    /// The instance in progress, from 0.
    k: u64,
    /// Entries delivered.
    position: u64,
    /// Author of the last decision, and its place in the core: the first coordinator.
    author: Option<Member>,
    base: usize,
    clock: u64,
    backlog: Backlog,
    outbox: Outbox,
    instance: Instance,
    /// A proposal for the next instance, which came before the decision of this one.
    ahead: Option<(u64, Member, u32, Arc<Value>)>,
    suspected: BTreeSet<Slot>,
    /// Decided here in this round, and not yet told: instance and round.
    announce: Option<(u64, u32)>,
    keep: Keep,
    /// Bytes decided since the others were told how far this member is.
    untold: usize,
    /// Decisions that the incarnation before this one knew, or this one until it was excluded: a
    /// member may have them from no other process.
    past: Past,
    /// Messages to oneself.
    local: VecDeque<LogBody>,
    journal: Journal,
    transfer: Transfer,
    pace: Pace,
}

impl Hash for Log {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.me, self.life, self.view.digest(), self.k, self.position, self.base).hash(state);
        (self.clock, &self.backlog, &self.outbox, &self.transfer).hash(state);
        (&self.instance, &self.ahead, &self.suspected, self.announce).hash(state);
        (&self.keep, &self.past, &self.local, &self.places).hash(state);
        (self.author, &self.journal, &self.pace).hash(state);
    }
}

impl Log {
    /// A member of this view from the beginning.
    #[must_use]
    pub fn new(me: Member, view: View, settings: Settings) -> Self {
        let life = if view.contains(me) { Phase::Member } else { Phase::Joining(None) };
        Self {
            me,
            settings,
            life,
            places: Places::of(&view, me.slot),
            view,
            k: 0,
            position: 0,
            author: None,
            base: 0,
            clock: 0,
            backlog: Backlog::new(settings.window),
            outbox: Outbox::default(),
            instance: Instance::default(),
            ahead: None,
            suspected: BTreeSet::new(),
            announce: None,
            keep: Keep::default(),
            untold: 0,
            past: Past::new(),
            local: VecDeque::new(),
            journal: Journal::default(),
            transfer: Transfer::default(),
            pace: Pace::new(settings.rotate, settings.status),
        }
    }

    /// This process as a member.
    #[must_use]
    pub const fn me(&self) -> Member {
        self.me
    }

    /// The view in force.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    /// Entries delivered.
    #[must_use]
    pub const fn position(&self) -> u64 {
        self.position
    }

    /// The instance in progress, from 0.
    #[must_use]
    pub const fn instance(&self) -> u64 {
        self.k
    }

    /// Decisions kept for members that are behind.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.keep.len()
    }

    /// Returns true if this process takes part: it is neither joining nor excluded.
    #[must_use]
    pub const fn is_member(&self) -> bool {
        matches!(self.life, Phase::Member)
    }

    /// Returns true if this process was excluded, and has not begun again.
    pub(crate) const fn is_gone(&self) -> bool {
        matches!(self.life, Phase::Gone)
    }

    /// Own entries that wait to be ordered.
    pub(crate) const fn own_waiting(&self) -> usize {
        self.outbox.waiting()
    }

    /// The number of the next message that is cast here.
    pub(crate) const fn next_seq(&self) -> u64 {
        self.outbox.next_seq()
    }

    /// The coordinator of the first round of the instance in progress.
    #[must_use]
    pub fn leader(&self) -> Member {
        self.coordinator(0)
    }

    fn is_core(&self) -> bool {
        self.places.core.contains(&self.me)
    }

    /// Core, tree and first coordinator of the view in force.
    fn take_places(&mut self) {
        self.places = Places::of(&self.view, self.me.slot);
        self.find_base();
    }

    /// The first coordinator follows from the last decision alone, not from the member that
    /// announced it.
    fn find_base(&mut self) {
        let of = |author| self.places.core.iter().position(|member| *member == author);
        self.base = self.author.and_then(of).unwrap_or(0);
    }

    fn tell(&mut self, to: Slot, what: LogBody, out: &mut Out<Self>) {
        if to == self.me.slot {
            self.local.push_back(what);
        } else {
            out.push(Action::Send(Dest::One(to), LogMessage { from: self.me, what }));
        }
    }

    fn tell_peers(&self, what: LogBody, out: &mut Out<Self>) {
        if !self.places.peers.is_empty() {
            let to = Dest::Many(Arc::clone(&self.places.peers));
            out.push(Action::Send(to, LogMessage { from: self.me, what }));
        }
    }

    fn tell_core(&mut self, what: LogBody, out: &mut Out<Self>) {
        if self.is_core() {
            self.local.push_back(what.clone());
        }
        self.tell_peers(what, out);
    }

    fn cast(&mut self, body: Body, now: Time, out: &mut Out<Self>) {
        let id = self.outbox.next(self.me);
        let entry = Entry { id, lamport: self.clock + 1, body };
        if entry.len() > MOST_PAYLOAD || !self.backlog.has_room(id) {
            if let Body::Message(payload) | Body::Change(_, payload) = entry.body {
                out.push(Action::Deliver(CastDelivery::Busy(payload)));
            }
            return;
        }
        if self.settings.trace && matches!(entry.body, Body::Message(_)) {
            out.push(Action::log(CastEvent::Cast { origin: code(self.me), seq: id.seq }));
        }
        self.clock += 1;
        self.outbox.cast(entry.len());
        if !self.settings.planted.is(Mutant::CastNotStored) {
            self.note(&Record::Cast(entry.clone()), out);
        }
        self.wait(entry, now);
    }

    /// Lets an entry wait to be ordered.
    fn wait(&mut self, entry: Entry, now: Time) {
        let own = entry.id.origin == self.me;
        if self.backlog.put(entry, now) && own {
            self.outbox.wait();
        }
    }

    /// Tells others what was cast here: at once when nothing of it is under way, else in bulk.
    fn flush(&mut self, out: &mut Out<Self>) {
        let told = self.outbox.take_due(self.settings.batch_msgs, self.settings.batch_bytes);
        if told.is_empty() {
            return;
        }
        // What was proposed here in the meantime has been told.
        let proposed = self.proposed_own();
        let (origin, backlog) = (self.me, &self.backlog);
        let untold = told.into_iter().filter(|seq| proposed.binary_search(seq).is_err());
        let entries: Vec<_> =
            untold.filter_map(|seq| backlog.get(Id { origin, seq }).cloned()).collect();
        if !entries.is_empty() {
            self.tell_peers(LogBody::Data(Arc::new(entries)), out);
        }
    }

    fn data(&mut self, entries: Vec<Entry>, now: Time) {
        let mut member = None;
        for entry in entries {
            self.clock = self.clock.max(entry.lamport);
            let held = matches!(entry.body, Body::Held(_));
            if member != Some(entry.id.origin) {
                if !self.view.contains(entry.id.origin) {
                    continue;
                }
                member = Some(entry.id.origin);
            }
            if !held {
                // Own ones, too: others may answer with what was asked for.
                self.wait(entry, now);
            }
        }
    }

    fn message(&mut self, now: Time, from: Member, what: LogBody, out: &mut Out<Self>) {
        match what {
            LogBody::Data(entries) => {
                self.data(Arc::unwrap_or_clone(entries), now);
                self.complete_late(now, out);
            }
            LogBody::Est { k, .. }
            | LogBody::Prop { k, .. }
            | LogBody::Ack { k, .. }
            | LogBody::Nack { k, .. }
            | LogBody::Abort { k, .. }
            | LogBody::Done { k, .. } => self.of_instance(now, from, k, what, out),
            LogBody::Dec { k, values } => self.decisions(now, from, k, values, out),
            LogBody::Pull { k } => self.pulled(from, k, out),
            LogBody::Want { k, ids } => self.wanted(from, k, &ids, out),
            LogBody::Status { k, low, stable } => {
                self.status(now, from, k, (low, stable), out);
            }
            LogBody::Snapshot(snapshot) => self.install(now, *snapshot, out),
            LogBody::Piece { .. } => {
                if let Some(snapshot) = self.piece(now, from.slot, what, out) {
                    self.install(now, snapshot, out);
                }
            }
            LogBody::More { k, sum, offset } => self.more(from, (k, sum), offset, out),
            LogBody::Gone { view } => {
                // A view that is not installed here yet: a member of it would be in this one.
                if view > self.view.no() {
                    self.leave(view, out);
                }
            }
        }
    }

    /// Ends the part of this process: it is not in the view of this number, or cannot go on with it.
    pub(crate) fn leave(&mut self, view: u64, out: &mut Out<Self>) {
        self.life = Phase::Gone;
        self.past = self.keep.take_decisions(self.k);
        self.transfer.end();
        out.push(Action::log(CastEvent::Excluded { view, member: code(self.me) }));
        out.push(Action::Deliver(CastDelivery::Excluded { view }));
        out.push(Action::CancelTimer(Timer::Round));
        out.push(Action::CancelTimer(Timer::Status));
    }

    /// Delivers what is decided, and goes on with the instance behind that.
    fn deliver(&mut self, now: Time, out: &mut Out<Self>) {
        let before = self.k;
        while let Some(value) = self.keep.decision(self.k) {
            let no = self.view.no();
            self.note_decided(&value, out);
            self.apply(&value, out);
            if self.life == Phase::Gone {
                return;
            }
            self.author = Some(value.author);
            if value.entries.len() > 1 {
                out.push(Action::sometimes(CastEvent::BatchOfSeveral));
            }
            self.untold += retained::size(&value);
            if self.settings.trace {
                out.push(Action::log(CastEvent::Decided {
                    instance: self.k,
                    position: self.position,
                    author: code(value.author),
                }));
            }
            self.k += 1;
            self.instance = Instance::default();
            if self.view.no() == no {
                self.find_base();
            } else {
                self.view_changed();
            }
            if !self.places.learners.is_empty() {
                let to = Dest::Many(Arc::clone(&self.places.learners));
                let what = LogBody::Dec { k: self.k - 1, values: vec![value] };
                out.push(Action::Send(to, LogMessage { from: self.me, what }));
            }
        }
        if self.k > before {
            out.push(Action::CancelTimer(Timer::Round));
            if self.untold > UNTOLD {
                self.tell_status(now, out);
            }
            self.trim(out);
            self.journal.grown(self.settings.journal_bytes);
            self.checkpoint(out);
            if let Some((k, from, r, value)) = self.ahead.take_if(|ahead| ahead.0 <= self.k)
                && k == self.k
            {
                self.proposal(now, from, r, value, out);
            }
        }
    }

    /// One decided batch, entry by entry. An entry whose sender is not in the view, or that has
    /// been delivered, is void: at every member, because it follows from the log.
    fn apply(&mut self, value: &Value, out: &mut Out<Self>) {
        // One after the other from one member is the rule.
        let mut member = None;
        for entry in &value.entries {
            let id = entry.id;
            if member != Some(id.origin) {
                if !self.view.contains(id.origin) {
                    continue;
                }
                member = Some(id.origin);
            }
            let Novelty::Fresh(waiting) = self.backlog.deliver(id) else { continue };
            if id.origin == self.me && waiting.is_some() {
                self.outbox.ordered();
            }
            // What waits under a name is what was cast under it.
            let body = waiting.map_or_else(|| entry.body.clone(), |waiting| waiting.body);
            match body {
                Body::Message(payload) => {
                    let position = self.position;
                    if self.settings.trace {
                        let (origin, seq) = (code(id.origin), id.seq);
                        out.push(Action::log(CastEvent::Deliver { origin, seq, position }));
                    }
                    out.push(Action::Deliver(CastDelivery::Message { position, id, payload }));
                    self.position += 1;
                }
                Body::Change(change, with) => {
                    member = None;
                    self.change(&change, value.author, with, out);
                }
                // A member votes only for payloads that it holds, so some member has it.
                Body::Held(_) => {
                    let (origin, seq) = (code(id.origin), id.seq);
                    out.push(Action::log(CastEvent::LostPayload { origin, seq }));
                }
            }
            if self.life == Phase::Gone {
                return;
            }
        }
    }

    /// A view change in its turn: void unless it changes the view in force.
    fn change(&mut self, change: &ViewChange, author: Member, with: Bytes, out: &mut Out<Self>) {
        let fits = change.base == self.view.no() || self.settings.planted.is(Mutant::NoBaseCheck);
        let next = if fits { self.view.next(change, Some(author)) } else { None };
        let Some(view) = next else {
            let (base, view, position) = (change.base, self.view.no(), self.position);
            out.push(Action::log(CastEvent::VoidChange { base, view, position }));
            return;
        };
        if !view.contains(self.me) {
            return self.leave(view.no(), out);
        }
        self.view = view;
        let (no, digest) = (self.view.no(), self.view.digest());
        let (position, view) = (self.position, self.view.clone());
        out.push(Action::log(CastEvent::View { no, digest, position }));
        out.push(Action::Deliver(CastDelivery::View { position, view, with }));
        self.position += 1;
    }

    /// Behind a decision that contained view changes.
    fn view_changed(&mut self) {
        let view = self.view.clone();
        self.backlog.retain(|origin| view.contains(origin));
        if !view.contains(self.me) {
            self.outbox.tell_nothing();
        }
        self.suspected.retain(|slot| view.at(*slot).is_some());
        self.keep.view_changed(&view);
        self.take_places();
    }

    /// Returns true if the message is to be handled: the sender is in the view, or the message
    /// brings a state or a view. Answers a process that is in the view no more.
    fn knows(&mut self, from: Member, what: &LogBody, out: &mut Out<Self>) -> bool {
        if self.view.contains(from) {
            // A member that sends is alive.
            self.suspected.remove(&from.slot);
            return true;
        }
        let instance = what.instance();
        if instance.is_some_and(|k| k > self.k && k != JOINING) {
            // It may be of a later view.
            self.behind(from, instance.unwrap_or(self.k), out);
        } else if !matches!(what, LogBody::Pull { k: JOINING } | LogBody::Gone { .. }) {
            let view = self.view.no();
            self.tell(from.slot, LogBody::Gone { view }, out);
        }
        let brings = matches!(what, LogBody::Snapshot(_) | LogBody::Piece { .. });
        brings || matches!(what, LogBody::Gone { .. } | LogBody::Dec { .. })
    }

    fn input(&mut self, now: Time, input: Input<Self>, out: &mut Out<Self>) {
        match input {
            Input::Start => {
                out.push(Action::SetTimer(Timer::Status, now + self.settings.status));
            }
            Input::Request(CastRequest::Cast(payload)) => {
                self.cast(Body::Message(payload), now, out)
            }
            Input::Request(CastRequest::Change(change, with)) => {
                self.cast(Body::Change(Arc::new(change), with), now, out);
            }
            Input::Request(CastRequest::Suspect(slot)) => self.suspect(now, slot, out),
            Input::Request(CastRequest::Trust(slot)) => {
                self.suspected.remove(&slot);
                self.tell_anew();
            }
            Input::Request(CastRequest::RoundTrip(ns)) => self.follow_round_trip(ns),
            Input::Request(CastRequest::Join(_) | CastRequest::Rejoin(_)) => {}
            Input::Request(CastRequest::State(position, state)) => self.state(position, state, out),
            Input::Message(_, say) => {
                if self.knows(say.from, &say.what, out) {
                    self.message(now, say.from, say.what, out);
                }
            }
            Input::Timer(Timer::Round) => self.slow(now, out),
            Input::Timer(Timer::Status) => {
                self.tell_status(now, out);
                self.release_unwanted();
                self.fetch_on(now, out);
                self.tell_own_again(now, out);
            }
        }
    }

    /// A process without a view asks for a snapshot until it gets one.
    fn join(&mut self, now: Time, contact: Option<Slot>, input: Input<Self>, out: &mut Out<Self>) {
        match input {
            Input::Request(CastRequest::Join(slot)) => {
                self.life = Phase::Joining(Some(slot));
                if !self.fetches() {
                    self.pull(slot, JOINING, out);
                }
                out.push(Action::SetTimer(Timer::Status, now + self.settings.status));
            }
            Input::Timer(Timer::Status) => {
                self.fetch_on(now, out);
                if let Some(slot) = contact.filter(|_| !self.fetches()) {
                    self.pull(slot, JOINING, out);
                }
                self.paced_joining(now, out);
            }
            // One that was not asked for was for another start under this name.
            Input::Message(_, LogMessage { what: LogBody::Snapshot(snapshot), .. })
                if contact.is_some() =>
            {
                self.begin_with(now, *snapshot, out);
            }
            Input::Message(_, LogMessage { from, what: what @ LogBody::Piece { .. } })
                if contact.is_some() =>
            {
                if let Some(snapshot) = self.piece(now, from.slot, what, out) {
                    self.begin_with(now, snapshot, out);
                }
            }
            Input::Request(CastRequest::Cast(payload) | CastRequest::Change(_, payload)) => {
                out.push(Action::Deliver(CastDelivery::Busy(payload)));
            }
            Input::Start | Input::Request(_) | Input::Timer(_) | Input::Message(..) => {}
        }
    }
}

impl Log {
    /// The first state of a process without a view.
    fn begin_with(&mut self, now: Time, snapshot: Snapshot, out: &mut Out<Self>) {
        if snapshot.view.contains(self.me) {
            self.life = Phase::Member;
            // Behind what excluded the incarnation before: a majority has it.
            self.past.clear();
            self.install(now, snapshot, out);
        }
    }
}

impl LogBody {
    /// The instance that it is about.
    const fn instance(&self) -> Option<u64> {
        match self {
            Self::Est { k, .. }
            | Self::Prop { k, .. }
            | Self::Ack { k, .. }
            | Self::Nack { k, .. }
            | Self::Abort { k, .. }
            | Self::Done { k, .. }
            | Self::Dec { k, .. }
            | Self::Pull { k }
            | Self::Want { k, .. }
            | Self::Status { k, .. } => Some(*k),
            Self::Data(_)
            | Self::Snapshot(_)
            | Self::Gone { .. }
            | Self::Piece { .. }
            | Self::More { .. } => None,
        }
    }
}

impl LogBody {
    /// The round that it is about.
    const fn round(&self) -> Option<u32> {
        match self {
            Self::Est { r, .. }
            | Self::Prop { r, .. }
            | Self::Ack { r, .. }
            | Self::Nack { r, .. }
            | Self::Abort { r, .. }
            | Self::Done { r, .. } => Some(*r),
            _ => None,
        }
    }
}

impl Machine for Log {
    type Request = CastRequest;
    type Delivery = CastDelivery;
    type Message = LogMessage;
    type Timer = Timer;

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out<Self>) {
        if let Input::Request(CastRequest::Rejoin(member)) = input {
            return self.begin_again(member, out);
        }
        if matches!(input, Input::Start) {
            self.come_back(now, out);
        }
        if self.life != Phase::Member
            && let Input::Message(_, say) = &input
        {
            self.remember(say, out);
        }
        match self.life {
            Phase::Gone => return,
            Phase::Joining(contact) => self.join(now, contact, input, out),
            Phase::Member => self.input(now, input, out),
        }
        loop {
            if self.life != Phase::Member {
                // What this process has decided without itself it tells all the same.
                self.announce(out);
                self.local.clear();
                return;
            }
            match self.local.pop_front() {
                Some(what) => self.message(now, self.me, what, out),
                None if self.start(now, out) => {}
                None => break,
            }
        }
        self.announce(out);
        self.flush(out);
        self.stir(now, out);
    }
}
