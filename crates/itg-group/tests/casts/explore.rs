//! All states of a small group: a search, depth first, over everything that may happen next.
//!
//! A state is the processes, what they have stored, the messages under way, and what may still happen: what users
//! ask for (in their order at each process), crashes, returns with the journal, suspicions of anybody by anybody.
//! Timers do not fire: what they would do is suspect and say again. On links without order any message may come next
//! or never (a run in which one is lost is the beginning of runs in which it comes late); on links in order, those of
//! the layer `link`, the oldest of each pair of processes comes next, and what is under way to a process that goes is
//! lost. A message comes once.
//!
//! States that have been seen are not entered again. They are told apart by 64 bits: among 10⁸ states one is taken
//! for another one with a probability below 1 in 3000.
//!
//! In each state TO3, TO4 and TO5 hold of everything that was ever delivered, by the crashed ones, too: one order, of
//! which all have delivered a prefix. At the end of a run on links in order in which nothing happens but casts every
//! message is delivered by all (TO1, TO2); otherwise timers would have to fire for that.

#![allow(clippy::disallowed_types, reason = "states that were seen: looked up, never iterated")]

use std::collections::HashSet;
use std::collections::hash_map::DefaultHasher;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use bytes::Bytes;
use itg_group::cast::log::{Log, Settings};
use itg_group::cast::uniform::{Fast, Uniform};
use itg_group::cast::{CastDelivery, CastRequest};
use itg_group::{Changes, Member, View, ViewChange};
use itg_process::{Action, Dest, Input, JournalWrite, Machine, Slot, Time};

/// A broadcast that can be explored.
pub trait Broadcast:
    Machine<Request = CastRequest, Delivery = CastDelivery> + Clone + Hash
{
    /// A process with these records, if it keeps any.
    fn begin(form: Form, me: Member, view: View, with: Settings, kept: Option<&[Bytes]>) -> Self;
}

/// Which broadcast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Log,
    Sequencer,
    Skeen,
}

impl Broadcast for Log {
    fn begin(_: Form, me: Member, view: View, with: Settings, kept: Option<&[Bytes]>) -> Self {
        match kept {
            None => Self::new(me, view, with),
            Some(records) => Self::with_journal(me, view, with, records),
        }
    }
}

impl Broadcast for Uniform {
    fn begin(form: Form, me: Member, view: View, with: Settings, kept: Option<&[Bytes]>) -> Self {
        let fast = if form == Form::Skeen { Fast::Skeen } else { Fast::Sequencer };
        match kept {
            None => Self::new(fast, me, view, with),
            Some(records) => Self::with_journal(fast, me, view, with, records),
        }
    }
}

/// What is explored.
#[derive(Clone, Debug)]
pub struct Scope {
    pub form: Form,
    /// Processes, and those of them in the first view.
    pub processes: u32,
    pub members: u32,
    /// What users ask for: process and request; those of one process in this order.
    pub asks: Vec<(u32, CastRequest)>,
    pub crashes: u32,
    pub returns: u32,
    pub suspicions: u32,
    /// Links keep the order of what they carry.
    pub in_order: bool,
    pub settings: Settings,
}

impl Scope {
    /// Three members on links in order, where nothing happens yet.
    pub fn of(form: Form) -> Self {
        let settings = Settings::default();
        let (crashes, returns, suspicions) = (0, 0, 0);
        let (asks, in_order) = (Vec::new(), true);
        Self {
            form,
            processes: 3,
            members: 3,
            asks,
            crashes,
            returns,
            suspicions,
            in_order,
            settings,
        }
    }

    /// This process casts a message.
    pub fn cast(mut self, at: u32) -> Self {
        self.asks.push((at, CastRequest::Cast("m".into())));
        self
    }

    /// This process asks for the first view without that one.
    pub fn remove(mut self, at: u32, whom: u32) -> Self {
        let changes = Changes::removal([Member::new(Slot(whom), 1)]);
        let change = ViewChange { base: 1, changes, shape: None };
        self.asks.push((at, CastRequest::Change(change, Bytes::new())));
        self
    }

    /// The last process is not in the first view: it asks this one for the state, which asks to let it in.
    pub fn join(mut self, contact: u32) -> Self {
        self.members = self.processes - 1;
        let changes = Changes::new([], [Member::new(Slot(self.members), 1)]);
        let change = ViewChange { base: 1, changes, shape: None };
        self.asks.push((contact, CastRequest::Change(change, Bytes::new())));
        self.asks.push((self.members, CastRequest::Join(Slot(contact))));
        self
    }

    /// Explores all of it, or as many states as allowed.
    pub fn explore(&self, most: usize) -> Result<Explored, String> {
        match self.form {
            Form::Log => State::<Log>::new(self).explore(self, most),
            Form::Sequencer | Form::Skeen => State::<Uniform>::new(self).explore(self, most),
        }
    }
}

/// What a search has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explored {
    pub states: usize,
    /// States in which nothing can happen any more.
    pub ends: usize,
    /// True if those are all.
    pub all: bool,
}

/// What stands at a position of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum At {
    Message(Member, u64),
    View(u64, u64),
}

/// Something with its hash, shared by the states that have it.
#[derive(Debug)]
struct Known<T> {
    hash: u64,
    what: T,
}

impl<T: Hash> Known<T> {
    fn new(what: T) -> Arc<Self> {
        Arc::new(Self { hash: hashed(&what), what })
    }
}

fn hashed(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

/// One process.
struct Place<M> {
    /// None: it has crashed.
    machine: Option<Arc<Known<M>>>,
    kept: Option<Arc<Known<Vec<Bytes>>>>,
    /// Position that it delivers next.
    next: usize,
    /// What its user has asked for.
    asked: usize,
}

impl<M> Clone for Place<M> {
    fn clone(&self) -> Self {
        let (machine, kept) = (self.machine.clone(), self.kept.clone());
        Self { machine, kept, next: self.next, asked: self.asked }
    }
}

/// A message under way.
struct UnderWay<T> {
    from: u32,
    to: u32,
    say: Arc<Known<T>>,
}

impl<T> Clone for UnderWay<T> {
    fn clone(&self) -> Self {
        Self { from: self.from, to: self.to, say: Arc::clone(&self.say) }
    }
}

/// A state of the whole group.
pub struct State<M: Machine> {
    places: Vec<Place<M>>,
    /// Everything that was ever delivered, by anybody.
    order: Vec<At>,
    under_way: Vec<UnderWay<M::Message>>,
    crashes: u32,
    returns: u32,
    suspicions: u32,
}

impl<M: Machine> Clone for State<M> {
    fn clone(&self) -> Self {
        let (places, order) = (self.places.clone(), self.order.clone());
        let under_way = self.under_way.clone();
        let (crashes, returns, suspicions) = (self.crashes, self.returns, self.suspicions);
        Self { places, order, under_way, crashes, returns, suspicions }
    }
}

/// What may happen next.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    Ask(u32),
    Deliver(usize),
    Crash(u32),
    Return(u32),
    Suspect(u32, u32),
}

/// A hash that is one already.
#[derive(Default)]
struct Same(u64);

impl Hasher for Same {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("hashes of states are numbers")
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

impl<M> State<M>
where
    M: Broadcast,
    M::Message: Clone + Hash + PartialEq,
{
    /// The beginning.
    pub fn new(scope: &Scope) -> Self {
        let kept = (scope.returns > 0).then(|| Known::new(Vec::new()));
        let place = |_| Place { machine: None, kept: kept.clone(), next: 0, asked: 0 };
        let mut state = Self {
            places: (0..scope.processes).map(place).collect(),
            order: Vec::new(),
            under_way: Vec::new(),
            crashes: scope.crashes,
            returns: scope.returns,
            suspicions: scope.suspicions,
        };
        for slot in 0..scope.processes {
            state.start(scope, slot).expect("a beginning");
        }
        state
    }

    /// A process begins, with what it has stored.
    fn start(&mut self, scope: &Scope, slot: u32) -> Result<(), String> {
        let place = &mut self.places[slot as usize];
        place.next = 0;
        let view = View::first(scope.members, itg_group::Rules::default());
        let kept = place.kept.as_ref().map(|kept| kept.what.as_slice());
        let me = Member::new(Slot(slot), 1);
        let machine = M::begin(scope.form, me, view, scope.settings, kept);
        place.machine = Some(Known::new(machine));
        self.input(slot, Input::Start)
    }

    fn hash(&self, in_order: bool) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut messages: Vec<(u32, u64)> =
            self.under_way.iter().map(|one| (one.from << 16 | one.to, one.say.hash)).collect();
        if in_order {
            // Stable: the order of each link stays.
            messages.sort_by_key(|(link, _)| *link);
        } else {
            messages.sort_unstable();
        }
        messages.hash(&mut hasher);
        for place in &self.places {
            place.machine.as_ref().map(|machine| machine.hash).hash(&mut hasher);
            if self.returns > 0 {
                place.kept.as_ref().map(|kept| kept.hash).hash(&mut hasher);
            }
            (place.next, place.asked).hash(&mut hasher);
        }
        (&self.order, self.crashes, self.returns, self.suspicions).hash(&mut hasher);
        hasher.finish()
    }

    /// Everything that may happen next.
    pub fn steps(&self, scope: &Scope) -> Vec<Step> {
        let mut steps = Vec::new();
        let n = scope.processes;
        let alive = |slot: &u32| self.places[*slot as usize].machine.is_some();
        for slot in (0..n).filter(alive) {
            if self.ask(scope, slot).is_some() {
                steps.push(Step::Ask(slot));
            }
        }
        for (at, one) in self.under_way.iter().enumerate() {
            // On links in order the first one comes next; of equal messages one is as good as another.
            let same = |other: &UnderWay<M::Message>| {
                (other.from, other.to) == (one.from, one.to)
                    && (scope.in_order || other.say.hash == one.say.hash)
            };
            if !self.under_way[..at].iter().any(same) {
                steps.push(Step::Deliver(at));
            }
        }
        for slot in (0..n).filter(alive) {
            if self.crashes > 0 {
                steps.push(Step::Crash(slot));
            }
            if self.returns > 0 {
                steps.push(Step::Return(slot));
            }
            for whom in (0..n).filter(|whom| self.suspicions > 0 && *whom != slot) {
                steps.push(Step::Suspect(slot, whom));
            }
        }
        steps
    }

    /// What the user of a process asks for next.
    fn ask<'a>(&self, scope: &'a Scope, slot: u32) -> Option<&'a CastRequest> {
        let asks = scope.asks.iter().filter(|(at, _)| *at == slot);
        asks.map(|(_, ask)| ask).nth(self.places[slot as usize].asked)
    }

    fn input(&mut self, at: u32, input: Input<M>) -> Result<(), String> {
        let Some(known) = self.places[at as usize].machine.take() else { return Ok(()) };
        let mut machine = known.what.clone();
        let mut inputs = vec![input];
        while let Some(input) = inputs.pop() {
            let mut out = Vec::new();
            machine.handle(Time(0), input, &mut out);
            for action in out {
                match action {
                    Action::Send(Dest::One(to), say) => self.send(at, to.0, &Known::new(say)),
                    Action::Send(Dest::Many(slots), say) => {
                        let say = Known::new(say);
                        slots.iter().for_each(|to| self.send(at, to.0, &say));
                    }
                    Action::Deliver(CastDelivery::Checkpoint { position }) => {
                        let state = CastRequest::State(position, Bytes::from_static(b"s"));
                        inputs.push(Input::Request(state));
                    }
                    Action::Deliver(tell) => self.delivered(at, &tell)?,
                    Action::Persist(write) => self.persist(at, write),
                    _ => {}
                }
            }
        }
        self.places[at as usize].machine = Some(Known::new(machine));
        Ok(())
    }

    fn persist(&mut self, at: u32, write: JournalWrite) {
        // Behind the last return nobody reads it.
        let Some(kept) = self.places[at as usize].kept.as_mut().filter(|_| self.returns > 0) else {
            return;
        };
        let mut records = kept.what.clone();
        match write {
            JournalWrite::Append(record) => records.push(record),
            JournalWrite::Replace(all) => records = all,
        }
        *kept = Known::new(records);
    }

    fn delivered(&mut self, slot: u32, tell: &CastDelivery) -> Result<(), String> {
        let place = &mut self.places[slot as usize];
        let (position, at) = match tell {
            CastDelivery::Message { position, id, .. } => {
                (*position, At::Message(id.origin, id.seq))
            }
            CastDelivery::View { position, view, .. } => {
                (*position, At::View(view.no(), view.digest()))
            }
            CastDelivery::Install { position, .. } => {
                let position = usize::try_from(*position).expect("small");
                if position > self.order.len() {
                    return Err(format!("TO5: process {slot} installs position {position}"));
                }
                place.next = position;
                return Ok(());
            }
            _ => return Ok(()),
        };
        if position != place.next as u64 {
            return Err(format!(
                "TO5: process {slot} delivers position {position}: {}",
                place.next
            ));
        }
        place.next += 1;
        match self.order.get(place.next - 1) {
            Some(found) if *found == at => Ok(()),
            Some(found) => Err(format!("TO3: process {slot} delivers {at:?} for {found:?}")),
            None if self.order.contains(&at) => Err(format!("TO4: {at:?} at two positions")),
            None => {
                self.order.push(at);
                Ok(())
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, say: &Arc<Known<M::Message>>) {
        if self.places[to as usize].machine.is_some() {
            self.under_way.push(UnderWay { from, to, say: Arc::clone(say) });
        }
    }

    /// Something happens.
    pub fn step(&mut self, scope: &Scope, step: Step) -> Result<(), String> {
        match step {
            Step::Ask(at) => {
                let ask = self.ask(scope, at).cloned().expect("something to ask for");
                self.places[at as usize].asked += 1;
                self.input(at, Input::Request(ask))
            }
            Step::Deliver(at) => {
                let one = self.under_way.remove(at);
                self.input(one.to, Input::Message(Slot(one.from), one.say.what.clone()))
            }
            Step::Crash(slot) => {
                self.crashes -= 1;
                self.places[slot as usize].machine = None;
                self.under_way.retain(|one| one.to != slot);
                Ok(())
            }
            Step::Return(slot) => {
                self.returns -= 1;
                if scope.in_order {
                    self.under_way.retain(|one| one.to != slot);
                }
                self.start(scope, slot)
            }
            Step::Suspect(slot, whom) => {
                self.suspicions -= 1;
                self.input(slot, Input::Request(CastRequest::Suspect(Slot(whom))))
            }
        }
    }

    /// Nothing can happen any more: if only messages were cast everybody has them all.
    fn ended(&self, scope: &Scope) -> Result<(), String> {
        let faults = scope.crashes + scope.returns + scope.suspicions;
        let casts = scope.asks.iter().all(|(_, ask)| matches!(ask, CastRequest::Cast(_)));
        let late = self.places.iter().position(|place| place.next != scope.asks.len());
        match late.filter(|_| scope.in_order && casts && faults == 0) {
            Some(slot) => Err(format!("TO1: process {slot} ends with a part of {:?}", self.order)),
            None => Ok(()),
        }
    }

    /// Explores everything, or as many states as allowed.
    pub fn explore(self, scope: &Scope, most: usize) -> Result<Explored, String> {
        let mut seen = HashSet::<u64, BuildHasherDefault<Same>>::default();
        seen.insert(self.hash(scope.in_order));
        let (mut stack, mut ends) = (vec![self], 0);
        while let Some(state) = stack.pop() {
            let steps = state.steps(scope);
            if steps.is_empty() {
                ends += 1;
                state.ended(scope)?;
            }
            for step in steps {
                let mut next = state.clone();
                next.step(scope, step).map_err(|text| format!("{text}, after {step:?}"))?;
                if seen.insert(next.hash(scope.in_order)) {
                    if seen.len() >= most {
                        return Ok(Explored { states: seen.len(), ends, all: false });
                    }
                    stack.push(next);
                }
            }
        }
        Ok(Explored { states: seen.len(), ends, all: true })
    }
}
