//! Membership that a majority of the core agrees on (mode C, the default).
//!
//! The root collects reports and requests to join, and proposes one view change for many of them;
//! the ordered log below decides. A view is in force behind its entry in the log, at every member.
//! Safe under any delay, any suspicion and any partition: only what a majority of the core of a
//! view decides follows it. The member that the core takes for the next root proposes when the root
//! is the suspect.
//!
//! Cut detection keeps one bad observer from evicting others, and turns the failure of many into
//! one view change: each member has observers (its parent, its children, and some that follow from
//! the digest of the view). A member that is reported by `h` of them is to go; one that is reported
//! by fewer, but at least `l`, keeps the others waiting, for at most `batch_max`. Source: Suresh et
//! al., *Stable and consistent membership at scale with Rapid*, USENIX ATC 2018.
//!
//! A name (slot and incarnation) is let in once: the log says with each joiner the nonce of its start. Another
//! start under that name has forgotten what it had voted for; the name is excluded first, and the start comes in
//! under a later one. With a journal a start has the nonce of the one before it that came no further than to ask
//! under the same name, and so promised nothing. Who takes a state over knows the nonces of the members by it.
//!
//! Acknowledgements go up the tree of each view (`FAILURE_ACK`); that all have installed it is
//! information, not needed for safety.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use itg_members::observers::{marks, observers};
use itg_members::{Changes, Member, Shape, View, ViewChange};
use itg_process::{Action, Dest, Input, JournalWrite, Machine, Slot, Time};

use super::admitted::Admitted;
use super::change::wants_rerank;
use super::event::MembershipEvent;
use super::message::{Evidence, MembershipDelivery, MembershipMessage, MembershipRequest, Tag};
use crate::cast;
use crate::codec;

/// Of so many requests to join one goes to the next slot in turn, whoever has answered.
const IN_TURN: u32 = 4;

/// Times, in nanoseconds, and the number of observers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Observers of each member beside its parent and children.
    pub k_obs: u32,
    /// Time that further reports of silence are waited for.
    pub window: Duration,
    /// Time that further joins and reports of other kinds are waited for.
    pub window_sure: Duration,
    /// The longest wait for reports.
    pub batch_max: Duration,
    /// Interval at which reports, requests to join and proposals are repeated.
    pub retry: Duration,
    /// True if an excluded process comes back by itself, in another incarnation.
    pub rejoin: bool,
    /// True if every report is believed at once: a planted fault.
    #[cfg(debug_assertions)]
    pub no_cut: bool,
    /// True if each start under a name that is in the view is welcome: a planted fault.
    #[cfg(debug_assertions)]
    pub name_twice: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            k_obs: 3,
            window: Duration::from_millis(100),
            window_sure: Duration::from_millis(5),
            batch_max: Duration::from_millis(500),
            retry: Duration::from_millis(500),
            rejoin: true,
            #[cfg(debug_assertions)]
            no_cut: false,
            #[cfg(debug_assertions)]
            name_twice: false,
        }
    }
}

/// Message that it gets: from others, and from the log below.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreedInput {
    /// Another member.
    Say(MembershipMessage),
    /// The log of this process.
    Log(cast::CastDelivery),
}

/// Request of the layers beside it, and of the one above.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreedRequest {
    /// What all memberships are asked.
    Ask(MembershipRequest),
    /// The state of the layer above at this checkpoint of the log.
    State(u64, Bytes),
}

/// Action that it asks for in its process.
#[derive(Clone, Debug, PartialEq)]
pub enum AgreedOutput {
    /// Tell the layer above.
    Tell(MembershipDelivery),
    /// Ask the log below.
    Ask(cast::CastRequest),
    /// Pass on what the log has told.
    Pass(cast::CastDelivery),
}

/// Its timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The window for further reports may be over.
    Window,
    /// Repeat what has not been heard.
    Retry,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not a member; the slot that is asked next, and whether advice has been followed since the
    /// last time.
    Outside(Slot, bool),
    Member,
    Excluded,
}

/// Opinion of a member that is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opinion {
    Goes,
    Uncertain,
    Stays,
}

/// Reports about one member.
#[derive(Debug, Default)]
struct Reports {
    by: BTreeMap<Member, (Evidence, Time)>,
}

type Out = Vec<Action<Agreed>>;

/// A member, or a process that wants to be one.
#[derive(Debug)]
pub struct Agreed {
    me: Member,
    /// Time at which this process began: tells it apart from another start under the same name.
    nonce: u64,
    /// The nonce of a start before this one that promised nothing under its name.
    stored_nonce: Option<u64>,
    /// Number of requests to join.
    asked: u32,
    /// Slots of the first view.
    slots: u32,
    settings: Settings,
    /// Interval of repetition without round trips.
    retry: Duration,
    standing: Standing,
    view: View,
    /// Members that the detector of this process suspects.
    mine: BTreeMap<Member, Evidence>,
    reports: BTreeMap<Member, Reports>,
    /// Members that want to join, and the nonce of that start.
    joins: BTreeMap<Member, u64>,
    /// Nonces of the members that have joined, as the log says them.
    admitted: Admitted,
    leaves: BTreeSet<Member>,
    /// Time of the first report or request to join that has not led to a view.
    first: Option<Time>,
    proposed: Option<(u64, Time)>,
    reranked: Option<Time>,
    /// Children that have not acknowledged the view, and members below that have.
    waiting: BTreeSet<Slot>,
    count: u32,
    /// Acknowledgements of views that are not installed here yet.
    early: BTreeMap<Slot, (Tag, u64, u32)>,
    /// Number of times the acknowledgement has been sent.
    told: u32,
    suspended: bool,
}

impl Machine for Agreed {
    type Request = AgreedRequest;
    type Delivery = AgreedOutput;
    type Message = AgreedInput;
    type Timer = Timer;

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out) {
        match input {
            Input::Start => {
                self.nonce = self.stored_nonce.take().unwrap_or(now.0);
                if self.standing == Standing::Member {
                    // The view of a member that is back may be a later one: its log tells it.
                    if self.view.contains(self.me) {
                        self.installed(now, out);
                    }
                } else {
                    self.rejoin(out);
                    self.ask_to_join(out);
                }
                out.push(Action::SetTimer(Timer::Retry, now + self.settings.retry));
            }
            Input::Message(from, AgreedInput::Log(tell)) if from == self.me.slot => {
                self.log(now, tell, out);
            }
            // The log of another process has nothing to say here.
            Input::Message(from, AgreedInput::Log(_)) => {
                out.push(Action::log(MembershipEvent::NotOwnLog { from }));
            }
            Input::Message(from, AgreedInput::Say(say)) => self.message(now, from, say, out),
            Input::Request(AgreedRequest::State(position, state)) => {
                if let Some(state) = self.admitted.state(position, &state) {
                    let ask = cast::CastRequest::State(position, state);
                    out.push(Action::Deliver(AgreedOutput::Ask(ask)));
                }
            }
            Input::Request(AgreedRequest::Ask(ask)) if self.standing == Standing::Member => {
                self.asked(now, ask, out);
            }
            Input::Request(AgreedRequest::Ask(_)) => {}
            Input::Timer(Timer::Window) => self.consider(now, out),
            Input::Timer(Timer::Retry) => {
                self.again(now, out);
                out.push(Action::SetTimer(Timer::Retry, now + self.settings.retry));
            }
        }
    }
}

impl Agreed {
    /// A process; it is a member if this very incarnation is in the first view.
    #[must_use]
    pub fn new(me: Member, first: View, settings: Settings) -> Self {
        let member = first.contains(me);
        let outside = Standing::Outside(first.root().slot, false);
        Self {
            me,
            nonce: 0,
            stored_nonce: None,
            asked: 0,
            slots: first.roster().capacity(),
            settings,
            retry: settings.retry,
            standing: if member { Standing::Member } else { outside },
            view: first,
            mine: BTreeMap::new(),
            reports: BTreeMap::new(),
            joins: BTreeMap::new(),
            admitted: Admitted::default(),
            leaves: BTreeSet::new(),
            first: None,
            proposed: None,
            reranked: None,
            waiting: BTreeSet::new(),
            count: 1,
            early: BTreeMap::new(),
            told: 0,
            suspended: false,
        }
    }

    /// The process as the member that the journal of its log makes it: in a view, or on its way into one. Its own
    /// journal says under which nonce it asked.
    #[must_use]
    pub fn restored(mut self, (me, is_member): (Member, bool), own: Option<&Bytes>) -> Self {
        self.me = me;
        let asked: Option<(Member, u64)> = own.and_then(|record| codec::read(record));
        self.stored_nonce = asked.filter(|(name, _)| *name == me && !is_member).map(|(_, n)| n);
        self.standing = match is_member {
            true => Standing::Member,
            false => Standing::Outside(self.view.root().slot, false),
        };
        self
    }

    fn send(to: Slot, say: MembershipMessage, out: &mut Out) {
        out.push(Action::Send(Dest::One(to), say_of(say)));
    }

    const fn wish(&self) -> MembershipMessage {
        MembershipMessage::Join { member: self.me, nonce: self.nonce }
    }

    /// Begins under a name, from which nothing was promised yet.
    fn rejoin(&self, out: &mut Out) {
        let record = codec::write(&(self.me, self.nonce));
        out.push(Action::Persist(JournalWrite::Replace(vec![record.into()])));
        out.push(Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Rejoin(self.me))));
    }

    fn ask_to_join(&mut self, out: &mut Out) {
        let Standing::Outside(advised, _) = self.standing else { return };
        let n = self.view.roster().capacity().max(self.slots).max(1);
        self.asked = self.asked.wrapping_add(1);
        // Those that answer may be cut off from the others: all have their turns.
        let in_turn = self.asked.is_multiple_of(IN_TURN);
        let ask = if in_turn { Slot(self.asked / IN_TURN % n) } else { advised };
        if ask != self.me.slot {
            Self::send(ask, self.wish(), out);
        }
        // The next one, should this one not answer.
        self.standing = Standing::Outside(Slot((ask.0 + 1) % n), false);
    }

    // What the log says.

    fn log(&mut self, now: Time, mut tell: cast::CastDelivery, out: &mut Out) {
        match &mut tell {
            cast::CastDelivery::View { view, with, .. } => {
                self.admitted.changed(with);
                self.take(now, view.clone(), out);
            }
            cast::CastDelivery::Install { view, state, .. } => {
                let (admitted, above) = Admitted::parts(state);
                *state = above;
                // A log that is delivered again after a restart may have a state of a name before this one.
                if self.standing != Standing::Member && view.contains(self.me) {
                    self.standing = Standing::Member;
                    // From now on another start under this name would have promised something.
                    out.push(Action::Persist(JournalWrite::Replace(Vec::new())));
                    let (view, incarnation) = (view.no(), self.me.incarnation);
                    out.push(Action::log(MembershipEvent::Welcomed { view, incarnation }));
                }
                if view.no() > self.view.no() {
                    // What the log has said meanwhile is in the state.
                    self.admitted.replace(admitted);
                    self.take(now, view.clone(), out);
                }
            }
            cast::CastDelivery::Checkpoint { position } => self.admitted.checkpoint(*position),
            cast::CastDelivery::Excluded { view } => self.excluded(*view, out),
            _ => {}
        }
        out.push(Action::Deliver(AgreedOutput::Pass(tell)));
    }

    fn excluded(&mut self, no: u64, out: &mut Out) {
        if self.standing != Standing::Member {
            return;
        }
        let incarnation = self.me.incarnation;
        out.push(Action::log(MembershipEvent::Excluded { view: no, incarnation }));
        out.push(Action::Deliver(AgreedOutput::Tell(MembershipDelivery::Excluded)));
        self.standing = Standing::Excluded;
        if self.settings.rejoin {
            // Another incarnation; the log forgets everything.
            self.me.incarnation += 1;
            self.standing = Standing::Outside(self.view.root().slot, false);
            self.mine.clear();
            self.reports.clear();
            self.joins.clear();
            self.admitted.replace(BTreeMap::new());
            self.waiting.clear();
            let incarnation = self.me.incarnation;
            out.push(Action::log(MembershipEvent::BornAgain { incarnation, view: no }));
            self.rejoin(out);
            self.ask_to_join(out);
        }
    }

    /// A view is in force.
    fn take(&mut self, now: Time, view: View, out: &mut Out) {
        // The core says what has changed: one of it is always first to know.
        let next = view.no() == self.view.no() + 1;
        if next && (view.core().contains(&self.me) || self.view.core().contains(&self.me)) {
            let changes = self.view.roster().changes_to(view.roster());
            let made = MembershipEvent::made(&view, self.view.no(), &changes);
            out.extend(made.map(Action::log));
        }
        self.view = view;
        if self.standing == Standing::Member {
            self.installed(now, out);
        }
    }

    fn installed(&mut self, now: Time, out: &mut Out) {
        let view = &self.view;
        let (no, digest) = (view.no(), view.digest());
        let incarnation = self.me.incarnation;
        out.push(Action::log(MembershipEvent::Installed { no, digest, incarnation }));
        self.reports.retain(|member, _| view.contains(*member));
        for reports in self.reports.values_mut() {
            reports.by.retain(|observer, _| view.contains(*observer));
        }
        self.mine.retain(|member, _| view.contains(*member));
        self.leaves.retain(|member| view.contains(*member));
        self.proposed = None;
        let root = view.root() == self.me;
        self.admitted.retain(view);
        for (joiner, nonce) in self.joins.iter().filter(|(joiner, _)| view.contains(**joiner)) {
            // Another start under this name may have been taken in, asked for by another proposer.
            if root && self.admitted.nonce(*joiner) == Some(*nonce) {
                let say = MembershipMessage::Welcome { view: view.parts(), nonce: *nonce };
                Self::send(joiner.slot, say, out);
            }
        }
        self.joins.retain(|member, _| overtakes(view, *member));
        self.first = None;
        self.waiting = view.tree().children(self.me.slot).into_iter().collect();
        (self.count, self.told) = (1, 0);
        out.push(Action::Deliver(AgreedOutput::Tell(MembershipDelivery::View(view.clone()))));
        for (from, (tag, digest, count)) in std::mem::take(&mut self.early) {
            self.acknowledged(from, tag, digest, count, out);
        }
        self.acknowledge(out);
        self.touch(now, Evidence::Reset, out);
        if root && wants_rerank(&self.view, self.reranked, now) {
            self.reranked = Some(now);
            out.push(Action::sometimes(MembershipEvent::Reranked));
            self.propose(now, Changes::default(), Some(Shape::Rerank), out);
        }
        self.report(now, false, out);
    }

    // Acknowledgements: information.

    fn acknowledge(&mut self, out: &mut Out) {
        if !self.waiting.is_empty() || self.told >= 5 || self.standing != Standing::Member {
            return;
        }
        self.told += 1;
        let tag = Tag { no: self.view.no(), by: self.view.root() };
        let (digest, count) = (self.view.digest(), self.count);
        match self.view.tree().parent(self.me.slot) {
            Some(parent) => Self::send(parent, MembershipMessage::Up { tag, digest, count }, out),
            None if self.told == 1 => {
                out.push(Action::log(MembershipEvent::Stable {
                    no: tag.no,
                    digest,
                    members: count,
                }));
            }
            None => {}
        }
    }

    fn acknowledged(&mut self, from: Slot, tag: Tag, digest: u64, count: u32, out: &mut Out) {
        if tag.no > self.view.no() {
            self.early.insert(from, (tag, digest, count));
        } else if tag.no == self.view.no() {
            if digest != self.view.digest() {
                let (no, ours, theirs) = (tag.no, self.view.digest(), digest);
                out.push(Action::log(MembershipEvent::DigestsDiffer { no, ours, theirs }));
            } else if self.waiting.remove(&from) {
                self.count += count;
                self.acknowledge(out);
            }
        }
    }

    // Suspicions.

    fn asked(&mut self, now: Time, ask: MembershipRequest, out: &mut Out) {
        match ask {
            MembershipRequest::Suspect(slot, evidence) => {
                let suspect = self.view.at(slot).filter(|member| *member != self.me);
                if let Some(suspect) = suspect
                    && self.mine.insert(suspect, evidence) != Some(evidence)
                {
                    self.report(now, false, out);
                }
            }
            MembershipRequest::Trust(slot) => self.mine.retain(|member, _| member.slot != slot),
            MembershipRequest::RoundTrip(ns) => {
                self.settings.retry = self.retry + 2 * Duration::from_nanos(ns);
            }
            MembershipRequest::Leave => {
                let member = self.me;
                Self::send(self.leader().slot, MembershipMessage::Leave { member }, out);
            }
        }
    }

    /// Returns true if a member is taken for failed here: by this process, or by enough others.
    fn doomed(&self, member: Member) -> bool {
        let (_, l) = marks(&self.view, member, self.settings.k_obs);
        self.mine.contains_key(&member)
            || self.reports.get(&member).is_some_and(|reports| reports.by.len() >= l)
    }

    /// Member that proposes: the root, or the first of the core after it that is not taken for
    /// failed.
    fn leader(&self) -> Member {
        let all = std::iter::once(self.view.root()).chain(self.view.core().iter().copied());
        all.into_iter().find(|member| !self.doomed(*member)).unwrap_or(self.me)
    }

    /// Tells the leader the suspects of this process; when that has not helped, the whole core.
    fn report(&mut self, now: Time, again: bool, out: &mut Out) {
        let core = self.view.core();
        let lost = core.iter().filter(|member| self.mine.contains_key(member)).count();
        let suspended = core.len() - lost < self.view.majority();
        if suspended != self.suspended {
            self.suspended = suspended;
            out.push(Action::log(MembershipEvent::Suspended { suspended, view: self.view.no() }));
            out.push(Action::Deliver(AgreedOutput::Tell(MembershipDelivery::Suspended(suspended))));
        }
        let leader = self.leader();
        let mut by_evidence: BTreeMap<Evidence, Vec<Member>> = BTreeMap::new();
        for (member, evidence) in &self.mine {
            by_evidence.entry(*evidence).or_default().push(*member);
        }
        let detector = self.me;
        for (evidence, suspects) in by_evidence {
            if leader == self.me || (again && self.view.core().contains(&self.me)) {
                self.reported(now, self.me, &suspects, evidence, out);
            }
            let others: Vec<Slot> = match again {
                true => self.view.core().iter().map(|member| member.slot).collect(),
                false => vec![leader.slot],
            };
            let others: Vec<_> = others.into_iter().filter(|slot| *slot != self.me.slot).collect();
            if !others.is_empty() {
                let say = MembershipMessage::NodeFailure { suspects, evidence, detector };
                out.push(Action::Send(Dest::Many(others.into()), say_of(say)));
            }
        }
    }

    fn reported(
        &mut self,
        now: Time,
        detector: Member,
        suspects: &[Member],
        evidence: Evidence,
        out: &mut Out,
    ) {
        for suspect in suspects {
            if *suspect == self.me || !self.view.contains(*suspect) {
                continue;
            }
            // A member that is to go already needs no further reports: they do not make the others
            // wait. The first one that is surer than silence shortens the wait.
            let sure =
                |reports: &Reports| reports.by.values().any(|(how, _)| *how != Evidence::Silence);
            let idle = evidence != Evidence::Silence
                && self.reports.get(suspect).is_some_and(sure)
                && self.opinion(*suspect) == Opinion::Goes;
            let reports = self.reports.entry(*suspect).or_default();
            if reports.by.insert(detector, (evidence, now)).is_none() {
                let (suspect, by, view) = (suspect.slot, detector.slot, self.view.no());
                out.push(Action::log(MembershipEvent::Reported { suspect, by, view }));
                if !idle {
                    self.touch(now, evidence, out);
                }
            }
        }
    }

    /// Something has come up that may lead to a view change.
    fn touch(&mut self, now: Time, evidence: Evidence, out: &mut Out) {
        if self.reports.is_empty() && self.joins.is_empty() && self.leaves.is_empty() {
            return;
        }
        let first = *self.first.get_or_insert(now);
        let wait = match evidence {
            Evidence::Silence => self.settings.window,
            Evidence::Reset | Evidence::Reported => self.settings.window_sure,
        };
        let at = (now + wait).min(first + self.settings.batch_max);
        out.push(Action::SetTimer(Timer::Window, at.max(now)));
    }

    /// Proposes a view change, if it is time and this process is to do it.
    fn consider(&mut self, now: Time, out: &mut Out) {
        if self.standing != Standing::Member || self.leader() != self.me {
            return;
        }
        if self
            .proposed
            .is_some_and(|(base, at)| base == self.view.no() && now - at < 2 * self.settings.retry)
        {
            return;
        }
        let (stable, unstable) = self.cut();
        let patient = self.first.is_some_and(|first| now - first < self.settings.batch_max);
        if !unstable.is_empty() && patient {
            out.push(Action::sometimes(MembershipEvent::WaitsForReports));
            out.push(Action::SetTimer(Timer::Window, now + self.settings.window));
            return;
        }
        let joins: Vec<_> = self.joins.keys().copied().collect();
        let replaced = joins.iter().filter_map(|member| self.view.at(member.slot));
        let removed = stable.into_iter().chain(replaced).chain(self.leaves.iter().copied());
        let changes = Changes::new(removed, joins.iter().copied());
        if changes.removed().count() + changes.added().count() > 1 {
            out.push(Action::sometimes(MembershipEvent::SeveralChanges));
        }
        // Without a majority of the core nothing can be decided now; it must not be decided later.
        let core = self.view.core();
        let lost = changes.removed().filter(|member| core.contains(member)).count();
        if !changes.is_empty() && core.len() - lost >= self.view.majority() {
            self.propose(now, changes, None, out);
        }
    }

    fn propose(&mut self, now: Time, changes: Changes, shape: Option<Shape>, out: &mut Out) {
        self.proposed = Some((self.view.no(), now));
        let nonces = changes.added().filter_map(|new| Some((new, *self.joins.get(&new)?)));
        let with = Admitted::with_change(&nonces.collect::<Vec<_>>());
        out.push(Action::log(MembershipEvent::Proposed { view: self.view.no() }));
        let change = ViewChange { base: self.view.no(), changes, shape };
        let ask = cast::CastRequest::Change(change, with);
        out.push(Action::Deliver(AgreedOutput::Ask(ask)));
    }

    /// Suspects that are to go, and those that are not yet certain.
    fn cut(&self) -> (Vec<Member>, Vec<Member>) {
        let (mut stable, mut unstable) = (Vec::new(), Vec::new());
        for suspect in self.reports.keys() {
            match self.opinion(*suspect) {
                Opinion::Goes => stable.push(*suspect),
                Opinion::Uncertain => unstable.push(*suspect),
                Opinion::Stays => {}
            }
        }
        (stable, unstable)
    }

    /// Opinion that the reports about a member are enough for.
    fn opinion(&self, suspect: Member) -> Opinion {
        let Some(reports) = self.reports.get(&suspect) else { return Opinion::Stays };
        let (h, l) = marks(&self.view, suspect, self.settings.k_obs);
        #[cfg(debug_assertions)]
        let (h, l) = if self.settings.no_cut { (1, 1) } else { (h, l) };
        // An observer that is itself under suspicion counts as one that reports.
        let watchers = observers(&self.view, suspect.slot, self.settings.k_obs);
        let silent = watchers
            .iter()
            .filter_map(|slot| self.view.at(*slot))
            .filter(|member| !reports.by.contains_key(member))
            .filter(|member| self.reports.get(member).is_some_and(|r| r.by.len() >= l))
            .count();
        let seen = reports.by.len();
        // A process saw it end: there is nothing to weigh.
        let sure = reports.by.values().any(|(how, _)| *how == Evidence::Reported);
        if sure || (seen >= l.min(1) && seen + silent >= h) {
            Opinion::Goes
        } else if seen >= l {
            Opinion::Uncertain
        } else {
            Opinion::Stays
        }
    }

    /// Repeats what may have been lost, and forgets reports that are not repeated.
    fn again(&mut self, now: Time, out: &mut Out) {
        match self.standing {
            Standing::Outside(..) => return self.ask_to_join(out),
            Standing::Excluded => return,
            Standing::Member => {}
        }
        let old = 3 * self.settings.retry;
        for reports in self.reports.values_mut() {
            reports.by.retain(|_, (_, at)| now - *at <= old);
        }
        self.reports.retain(|_, reports| !reports.by.is_empty());
        self.report(now, true, out);
        self.acknowledge(out);
        self.consider(now, out);
    }

    // What others say.

    fn message(&mut self, now: Time, from: Slot, say: MembershipMessage, out: &mut Out) {
        if let Standing::Outside(..) = self.standing {
            return self.outside(from, say, out);
        }
        if self.standing == Standing::Excluded {
            return;
        }
        match say {
            MembershipMessage::NodeFailure { suspects, evidence, detector } => {
                if !self.view.contains(detector) {
                    return self.stale(from, detector, out);
                }
                let answer = MembershipMessage::FailureDetectAck { suspects: suspects.clone() };
                Self::send(from, answer, out);
                self.reported(now, detector, &suspects, evidence, out);
            }
            MembershipMessage::Join { member, nonce } => self.join(now, from, (member, nonce), out),
            MembershipMessage::Leave { member } => self.leave(now, member, out),
            MembershipMessage::Up { tag, digest, count } => {
                self.acknowledged(from, tag, digest, count, out)
            }
            MembershipMessage::Excluded { view, member }
                if member == self.me && view > self.view.no() =>
            {
                self.excluded(view, out);
            }
            MembershipMessage::HowAreYou { nonce } => {
                let fine = MembershipMessage::IAmFine { nonce, me: self.me, view: self.view.no() };
                Self::send(from, fine, out);
            }
            _ => {}
        }
    }

    fn leave(&mut self, now: Time, member: Member, out: &mut Out) {
        if self.view.contains(member) && self.leaves.insert(member) {
            self.touch(now, Evidence::Reported, out);
        }
    }

    /// A process that is no member sends as one.
    fn stale(&self, from: Slot, member: Member, out: &mut Out) {
        if !self.view.contains(member) {
            Self::send(from, MembershipMessage::Excluded { view: self.view.no(), member }, out);
        }
    }

    fn join(&mut self, now: Time, from: Slot, (member, nonce): (Member, u64), out: &mut Out) {
        if self.view.contains(member) {
            return self.join_again(now, from, (member, nonce), out);
        }
        if let Some(old) = self.view.at(member.slot)
            && old.incarnation < member.incarnation
            && self.mine.insert(old, Evidence::Reported) != Some(Evidence::Reported)
        {
            // Its new incarnation says that the old one is over.
            self.report(now, false, out);
        }
        let leader = self.leader();
        if leader != self.me {
            let view = self.view.no();
            return Self::send(from, MembershipMessage::RootIs { root: leader, view }, out);
        }
        if let Some(newer) = self.view.at(member.slot).filter(|_| !overtakes(&self.view, member)) {
            // It has begun under an older name than the last time (a clock that was set back): the
            // name that has its place tells it which one is later.
            let view = self.view.no();
            let say = MembershipMessage::Excluded { view, member: newer };
            return Self::send(from, say, out);
        }
        Self::send(from, MembershipMessage::JoinPending, out);
        if self.joins.insert(member, nonce).is_none() {
            self.touch(now, Evidence::Reset, out);
        }
    }

    /// A process asks to join under a name that is in the view. The start that the log has let in
    /// is welcome, once more. Another one has forgotten what was promised under that name: the name
    /// goes first, and it comes in under a later one.
    fn join_again(&mut self, now: Time, from: Slot, (member, nonce): (Member, u64), out: &mut Out) {
        let view = self.view.no();
        let known = self.admitted.nonce(member);
        #[cfg(debug_assertions)]
        let known = if self.settings.name_twice { Some(nonce) } else { known };
        if known == Some(nonce) {
            let say = MembershipMessage::Welcome { view: self.view.parts(), nonce };
            return Self::send(from, say, out);
        }
        let leader = self.leader();
        // One that would be sent to itself is told here.
        if known.is_none() && leader != self.me && leader.slot != member.slot {
            return Self::send(from, MembershipMessage::RootIs { root: leader, view }, out);
        }
        let Member { slot, incarnation } = member;
        out.push(Action::log(MembershipEvent::NameTaken { view, slot, incarnation }));
        if self.mine.insert(member, Evidence::Reported) != Some(Evidence::Reported) {
            self.report(now, false, out);
        }
        Self::send(from, MembershipMessage::Excluded { view, member }, out);
    }

    fn outside(&mut self, from: Slot, say: MembershipMessage, out: &mut Out) {
        match say {
            MembershipMessage::RootIs { root, .. } if root.slot != self.me.slot => {
                if !matches!(self.standing, Standing::Outside(_, true)) {
                    Self::send(root.slot, self.wish(), out);
                }
                self.standing = Standing::Outside(root.slot, true);
            }
            MembershipMessage::JoinPending => self.standing = Standing::Outside(from, true),
            MembershipMessage::Welcome { view, nonce }
                if nonce == self.nonce && view.roster.contains(self.me) =>
            {
                out.push(Action::Deliver(AgreedOutput::Ask(cast::CastRequest::Join(from))));
            }
            MembershipMessage::Excluded { member: Member { slot, incarnation }, .. }
                if slot == self.me.slot && incarnation >= self.me.incarnation =>
            {
                // Another start of this name or of a later one has been seen: this one must be later still.
                self.me.incarnation = incarnation.saturating_add(1);
                self.rejoin(out);
            }
            _ => {}
        }
    }
}

const fn say_of(say: MembershipMessage) -> AgreedInput {
    AgreedInput::Say(say)
}

/// Returns true if a process may enter this view.
fn overtakes(view: &View, member: Member) -> bool {
    view.at(member.slot).is_none_or(|old| old.incarnation < member.incarnation)
}
