//! Membership as in the paper: the root alone decides (mode P).
//!
//! Assumes reliable links in order, and a detector that never suspects a live process: two roots are
//! possible otherwise. One clean view change of n members costs 2(n − 1) messages, and a report and its
//! acknowledgement; it is stable after 2L(H − 1) + Ocp·H from the report, where L is the latency, H the
//! height of the tree and Ocp the time to recompute it.
//!
//! Departures from the paper, all of them where it is silent. Every attempt at a view has a number
//! of its own, so that two attempts cannot be taken for one; a new root counts on from the next
//! multiple of 2³². Views go down the tree of those that were in before: joiners learn of them when
//! they are stable. Late acknowledgements are asked for before a member is suspected. Source: Varma
//! et al., *Scalable, fault tolerant membership for MPI tasks on HPC systems*, ICS 2006. Messages
//! at the arms below, in capitals, are the paper's; "ours" is what it does not have.

use std::collections::BTreeSet;
use std::time::Duration;

use itg_members::radix::Tree;
use itg_members::{Changes, Member, RootPolicy, Shape, View};
use itg_process::{Action, Dest, Input, Machine, Slot, Time};

use super::change::{cause, wants_rerank};
use super::event::MembershipEvent;
use super::message::{
    Cause, Down, Evidence, MembershipDelivery, MembershipMessage, MembershipRequest, Tag, Timer,
};

/// Numbers of views that one root can give.
const REIGN: u64 = 1 << 32;

/// Times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Time to recompute the tree: virtual computation, 0 on real hosts.
    pub compute: Duration,
    /// Time that further failures are waited for before a view change.
    pub window: Duration,
    /// Time that further joins are waited for.
    pub join_window: Duration,
    /// Time after which acknowledgements are late.
    pub late: Duration,
    /// Time after which an answer is late.
    pub silent: Duration,
    /// Interval at which reports are repeated.
    pub retry: Duration,
    /// Interval at which the request to join is repeated.
    pub join: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            compute: Duration::ZERO,
            window: Duration::ZERO,
            join_window: Duration::from_millis(5),
            late: Duration::from_millis(50),
            silent: Duration::from_millis(20),
            retry: Duration::from_millis(200),
            join: Duration::from_millis(500),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Not a member yet; this slot is asked next, and whether a slot was asked on advice.
    Outside {
        ask: Slot,
        advised: bool,
    },
    Member,
    Excluded,
}

/// An attempt under way.
#[derive(Debug)]
struct Phase {
    tag: Tag,
    waiting: BTreeSet<Slot>,
    /// Slot to acknowledge to; none at the root.
    up: Option<Slot>,
    count: u32,
}

type Out = Vec<Action<Paper>>;

/// A member, or a process that wants to be one.
#[derive(Debug)]
pub struct Paper {
    me: Member,
    settings: Settings,
    standing: Standing,
    view: View,
    tag: Tag,
    /// The last view that is known to be stable, and what has changed since.
    base: View,
    since: Changes,
    phase: Option<Phase>,
    /// A view that the tree is being recomputed for, and the slot that sent it.
    incoming: Option<(Slot, Down, View)>,
    /// A view that is asked for in full.
    wanted: Option<(Slot, Down)>,
    /// True if this process is root: it conducts attempts.
    conducts: bool,
    computing: bool,
    window_set: bool,
    cause: Option<Cause>,
    removals: BTreeSet<Member>,
    additions: BTreeSet<Member>,
    shape: Option<Shape>,
    reranked: Option<Time>,
    joiners: BTreeSet<Member>,
    leaving: BTreeSet<Member>,
    suspects: BTreeSet<Member>,
    acknowledged: BTreeSet<Member>,
    asked: BTreeSet<Slot>,
    nonce: u64,
    highest: u64,
}

impl Machine for Paper {
    type Request = MembershipRequest;
    type Delivery = MembershipDelivery;
    type Message = MembershipMessage;
    type Timer = Timer;

    fn handle(&mut self, now: Time, input: Input<Self>, out: &mut Out) {
        if self.standing == Standing::Excluded {
            return;
        }
        match input {
            Input::Start if self.standing == Standing::Member => self.installed(out),
            Input::Start => self.ask_to_join(now, out),
            Input::Request(ask) if self.standing == Standing::Member => {
                self.asked_for(now, ask, out);
            }
            // A process that is not a member has no opinion of members.
            Input::Request(_) => {}
            Input::Timer(timer) => self.timer(now, timer, out),
            Input::Message(from, say) => match self.standing {
                Standing::Outside { .. } => self.outside(now, from, say, out),
                _ => self.message(now, from, say, out),
            },
        }
    }
}

impl Paper {
    /// A process; it is a member if this very incarnation is in the first view.
    #[must_use]
    pub fn new(me: Member, first: View, settings: Settings) -> Self {
        let member = first.contains(me);
        let ask = first.root().slot;
        let outside = Standing::Outside { ask, advised: false };
        Self {
            me,
            settings,
            standing: if member { Standing::Member } else { outside },
            tag: Tag { no: first.no(), by: first.root() },
            base: first.clone(),
            since: Changes::default(),
            phase: None,
            incoming: None,
            wanted: None,
            conducts: first.root() == me,
            computing: false,
            window_set: false,
            cause: None,
            removals: BTreeSet::new(),
            additions: BTreeSet::new(),
            shape: None,
            reranked: None,
            joiners: BTreeSet::new(),
            leaving: BTreeSet::new(),
            suspects: BTreeSet::new(),
            acknowledged: BTreeSet::new(),
            asked: BTreeSet::new(),
            nonce: 0,
            highest: 0,
            view: first,
        }
    }

    /// The view in force.
    #[must_use]
    pub const fn view(&self) -> &View {
        &self.view
    }

    fn send(to: Slot, say: MembershipMessage, out: &mut Out) {
        out.push(Action::Send(Dest::One(to), say));
    }

    fn asked_for(&mut self, now: Time, ask: MembershipRequest, out: &mut Out) {
        match ask {
            MembershipRequest::Suspect(slot, _) => {
                if let Some(member) = self.view.at(slot).filter(|member| *member != self.me) {
                    self.suspect(now, member, out);
                }
            }
            MembershipRequest::Trust(slot) => self.suspects.retain(|member| member.slot != slot),
            MembershipRequest::RoundTrip(_) => {}
            MembershipRequest::Leave => {
                if self.conducts {
                    let gone = BTreeSet::from([self.me]);
                    if let Some(heir) = self.view.successor(&gone) {
                        Self::send(
                            heir.slot,
                            MembershipMessage::RootFailure { suspects: vec![self.me] },
                            out,
                        );
                    }
                    self.excluded(out);
                } else {
                    let member = self.me;
                    Self::send(self.view.root().slot, MembershipMessage::Leave { member }, out);
                }
            }
        }
    }

    fn timer(&mut self, now: Time, timer: Timer, out: &mut Out) {
        match timer {
            Timer::Computed => match self.incoming.take() {
                Some((from, down, view)) => self.adopt(now, from, down, view, out),
                None => self.conduct(now, out),
            },
            Timer::Window => {
                self.window_set = false;
                if self.phase.is_none() && self.conducts && !self.computing {
                    self.begin(now, out);
                }
            }
            Timer::Late => {
                let Some(phase) = &self.phase else { return };
                for slot in phase.waiting.clone() {
                    self.how_are_you(now, slot, out);
                }
            }
            Timer::Silent => {
                for slot in std::mem::take(&mut self.asked) {
                    if let Some(member) = self.view.at(slot) {
                        out.push(Action::sometimes(MembershipEvent::SilentSuspected));
                        self.suspect(now, member, out);
                    }
                }
                if self.phase.is_some() {
                    out.push(Action::SetTimer(Timer::Late, now + self.settings.late));
                }
            }
            Timer::Retry => {
                if let Some(to) = self.report(now, out) {
                    self.how_are_you(now, to, out);
                }
            }
            Timer::Join => self.ask_to_join(now, out),
        }
    }

    // Joining.

    fn ask_to_join(&mut self, now: Time, out: &mut Out) {
        let Standing::Outside { ask, .. } = self.standing else { return };
        Self::send(ask, MembershipMessage::Join { member: self.me, nonce: 0 }, out);
        // The next one to ask, should this one not answer.
        let n = self.view.roster().capacity().max(2);
        let mut next = (ask.0 + 1) % n;
        if next == self.me.slot.0 {
            next = (next + 1) % n;
        }
        self.standing = Standing::Outside { ask: Slot(next), advised: false };
        out.push(Action::SetTimer(Timer::Join, now + self.settings.join));
    }

    fn outside(&mut self, now: Time, from: Slot, say: MembershipMessage, out: &mut Out) {
        match say {
            MembershipMessage::RootIs { root, .. } => {
                if let Standing::Outside { advised: false, .. } = self.standing
                    && root.slot != self.me.slot
                {
                    Self::send(
                        root.slot,
                        MembershipMessage::Join { member: self.me, nonce: 0 },
                        out,
                    );
                    self.standing = Standing::Outside { ask: root.slot, advised: true };
                }
            }
            MembershipMessage::JoinPending => {
                self.standing = Standing::Outside { ask: from, advised: false };
                out.push(Action::SetTimer(Timer::Join, now + 4 * self.settings.join));
            }
            MembershipMessage::Welcome { view, .. } | MembershipMessage::Push { view, .. } => {
                let Ok(view) = View::try_from(view) else { return };
                if view.contains(self.me) {
                    self.standing = Standing::Member;
                    out.push(Action::CancelTimer(Timer::Join));
                    let (no, incarnation) = (view.no(), self.me.incarnation);
                    out.push(Action::log(MembershipEvent::Welcomed { view: no, incarnation }));
                    Self::send(from, MembershipMessage::Joined { no }, out);
                    self.whole(now, view, out);
                }
            }
            MembershipMessage::Down(down)
                if down.changes.added().all(|member| member != self.me) =>
            {
                // This process is a member and has not been told: it asks for the whole view.
                out.push(Action::sometimes(MembershipEvent::ViewBeforeWelcome));
                self.wanted = Some((from, down));
                Self::send(from, MembershipMessage::Pull, out);
            }
            MembershipMessage::Excluded { member, .. } if member == self.me => self.excluded(out),
            _ => {}
        }
    }

    /// Installs a view that came as a whole.
    fn take(&mut self, now: Time, view: View, out: &mut Out) {
        self.tag = Tag { no: view.no(), by: view.root() };
        self.highest = self.highest.max(view.no());
        self.base = view.clone();
        self.since = Changes::default();
        self.conducts = view.root() == self.me;
        self.view = view;
        self.phase = None;
        self.installed(out);
        self.report(now, out);
    }

    fn excluded(&mut self, out: &mut Out) {
        self.standing = Standing::Excluded;
        self.phase = None;
        let (view, incarnation) = (self.view.no(), self.me.incarnation);
        out.push(Action::log(MembershipEvent::Excluded { view, incarnation }));
        out.push(Action::Deliver(MembershipDelivery::Excluded));
    }

    // Suspicions.

    fn suspect(&mut self, now: Time, member: Member, out: &mut Out) {
        if self.view.contains(member) && member != self.me && self.suspects.insert(member) {
            self.report(now, out);
        }
    }

    /// Does what suspicions call for: the root removes, others tell the root, or the member that
    /// follows it. Returns the slot that was told.
    fn report(&mut self, now: Time, out: &mut Out) -> Option<Slot> {
        self.suspects.retain(|member| self.view.contains(*member));
        if self.conducts {
            let new: Vec<_> = self.suspects.difference(&self.removals).copied().collect();
            if !new.is_empty() {
                self.removals.extend(new);
                self.trigger(now, out);
            }
            return None;
        }
        let root = self.view.root();
        let to = if self.suspects.contains(&root) {
            let heir = self.view.successor(&self.suspects)?;
            if heir == self.me {
                self.become_root(now, out);
                return None;
            }
            let suspects = self.suspects.iter().copied().collect();
            Self::send(heir.slot, MembershipMessage::RootFailure { suspects }, out);
            heir.slot
        } else {
            let suspects: Vec<_> = self.suspects.difference(&self.acknowledged).copied().collect();
            if suspects.is_empty() {
                return None;
            }
            let evidence = Evidence::Reported;
            let say = MembershipMessage::NodeFailure { suspects, evidence, detector: self.me };
            Self::send(root.slot, say, out);
            root.slot
        };
        out.push(Action::SetTimer(Timer::Retry, now + self.settings.retry));
        Some(to)
    }

    fn how_are_you(&mut self, now: Time, slot: Slot, out: &mut Out) {
        if self.asked.is_empty() {
            out.push(Action::SetTimer(Timer::Silent, now + self.settings.silent));
        }
        if self.asked.insert(slot) {
            self.nonce += 1;
            Self::send(slot, MembershipMessage::HowAreYou { nonce: self.nonce }, out);
        }
    }

    /// ROOT_DEAD, or ROOT_AND_NODE_FAILURE when others are gone too: the next in succession conducts the repair.
    fn become_root(&mut self, now: Time, out: &mut Out) {
        let root = self.view.root();
        self.highest = (self.highest.max(self.view.no()) / REIGN + 1) * REIGN;
        self.conducts = true;
        self.incoming = None;
        self.phase = None;
        self.removals = self.suspects.clone();
        let others = self.removals.iter().any(|member| *member != root);
        self.cause = Some(if others { Cause::RootAndNodeFailure } else { Cause::RootDead });
        let (highest, slot, before) = (self.highest, self.me.slot, root.slot);
        out.push(Action::log(MembershipEvent::Root { highest, slot, before }));
        self.begin(now, out);
    }

    // Attempts at a view, at the root.

    /// There is something to change.
    fn trigger(&mut self, now: Time, out: &mut Out) {
        if self.computing {
            return;
        }
        let failures = !self.removals.is_subset(&self.leaving);
        if failures && self.settings.window.is_zero() {
            // Failures interrupt a phase, joins do not.
            if self.phase.is_some() {
                out.push(Action::sometimes(MembershipEvent::PhaseStartsAgain));
            }
            self.begin(now, out);
        } else if self.phase.is_none() && !self.window_set {
            let wait = if failures { self.settings.window } else { self.settings.join_window };
            self.window_set = true;
            out.push(Action::SetTimer(Timer::Window, now + wait));
        }
    }

    /// Begins the repair of the tree, or begins it again: the root recomputes it.
    fn begin(&mut self, now: Time, out: &mut Out) {
        self.computing = true;
        if self.settings.compute.is_zero() {
            self.conduct(now, out);
        } else {
            let at = now + self.settings.compute;
            out.push(Action::SetTimer(Timer::Computed, at));
        }
    }

    /// The tree is recomputed: the view goes to the children. Ours: with all changes since the last stable one.
    fn conduct(&mut self, now: Time, out: &mut Out) {
        if !self.computing || !self.conducts {
            return;
        }
        self.computing = false;
        let removals = std::mem::take(&mut self.removals);
        let additions = std::mem::take(&mut self.additions);
        let changes = self.since.and(&Changes::new(removals, additions));
        let shape = self.shape.take();
        let no = self.highest.max(self.view.no()) + 1;
        let root = match self.view.rules().root_policy {
            RootPolicy::Oldest => Some(self.me),
            RootPolicy::Lowest => None,
        };
        let Some(view) = self.base.at_no(no, &changes, shape, root) else { return };
        let cause = self.cause.take().unwrap_or_else(|| cause(&changes));
        self.tag = Tag { no, by: self.me };
        self.highest = no;
        self.since = changes.clone();
        let made = MembershipEvent::made(&view, self.base.no(), &changes);
        out.extend(made.map(Action::log));
        self.joiners.extend(changes.added());
        self.view = view;
        self.installed(out);
        let (root, digest) = (self.view.root(), self.view.digest());
        let down =
            Down { tag: self.tag, cause, base: self.base.no(), changes, root, shape, digest };
        self.enter(now, None, down, out);
    }

    /// Passes a view that is installed on to the children; a leaf acknowledges it (FAILURE_ACK).
    fn enter(&mut self, now: Time, up: Option<Slot>, down: Down, out: &mut Out) {
        let carriers = self.view.roster().before(self.view.no());
        let shape = self.base.shape();
        let tree = Tree::new(&carriers, down.tag.by.slot, self.view.rules().arity, shape);
        let waiting = tree.children(self.me.slot);
        let phase =
            Phase { tag: down.tag, waiting: waiting.iter().copied().collect(), up, count: 1 };
        self.phase = Some(phase);
        if waiting.is_empty() {
            return self.complete(now, out);
        }
        out.push(Action::Send(Dest::Many(waiting.into()), MembershipMessage::Down(down)));
        out.push(Action::SetTimer(Timer::Late, now + self.settings.late));
    }

    /// All below have installed the view: FAILURE_ACK to the parent. At the root it is stable, and
    /// joiners get JOIN_DETECT_ACK.
    fn complete(&mut self, now: Time, out: &mut Out) {
        let Some(phase) = self.phase.take() else { return };
        out.push(Action::CancelTimer(Timer::Late));
        let (tag, digest, count) = (phase.tag, self.view.digest(), phase.count);
        if let Some(up) = phase.up {
            return Self::send(up, MembershipMessage::Up { tag, digest, count }, out);
        }
        out.push(Action::log(MembershipEvent::Stable { no: tag.no, digest, members: count }));
        self.base = self.view.clone();
        self.since = Changes::default();
        for joiner in std::mem::take(&mut self.joiners) {
            if self.view.contains(joiner) {
                Self::send(
                    joiner.slot,
                    MembershipMessage::Welcome { view: self.view.parts(), nonce: 0 },
                    out,
                );
            }
        }
        for member in std::mem::take(&mut self.leaving) {
            if self.view.at(member.slot).is_none() {
                Self::send(member.slot, MembershipMessage::Excluded { view: tag.no, member }, out);
            }
        }
        self.conducts = self.view.root() == self.me;
        let held = self.suspects.len() + self.joiners.len() + self.additions.len();
        let held = held + self.acknowledged.len() + self.asked.len() + self.removals.len();
        let (listed, runs) = (held as u64, self.view.roster().runs().len() as u64);
        out.push(Action::log(MembershipEvent::Held { listed, runs, members: self.view.len() }));
        self.consider_rerank(now, out);
        if self.conducts && (!self.removals.is_empty() || !self.additions.is_empty()) {
            self.trigger(now, out);
        }
        self.report(now, out);
    }

    fn consider_rerank(&mut self, now: Time, out: &mut Out) {
        if self.conducts && wants_rerank(&self.view, self.reranked, now) {
            out.push(Action::sometimes(MembershipEvent::Reranked));
            self.reranked = Some(now);
            self.shape = Some(Shape::Rerank);
            self.begin(now, out);
        }
    }

    // Messages of members.

    fn message(&mut self, now: Time, from: Slot, say: MembershipMessage, out: &mut Out) {
        match say {
            // HOW_ARE_YOU, I_AM_FINE.
            MembershipMessage::HowAreYou { nonce } => {
                let fine = MembershipMessage::IAmFine { nonce, me: self.me, view: self.view.no() };
                Self::send(from, fine, out);
            }
            MembershipMessage::IAmFine { me, .. } => {
                self.asked.remove(&from);
                if let Some(old) = self.view.at(from).filter(|old| old.incarnation < me.incarnation)
                {
                    // It has come back before it was missed.
                    self.suspect(now, old, out);
                }
            }
            // Ours: a process that is not the one that these are for says which one is.
            MembershipMessage::NodeFailure { .. }
            | MembershipMessage::Leave { .. }
            | MembershipMessage::RootFailure { .. }
                if self.conducts == matches!(say, MembershipMessage::RootFailure { .. }) =>
            {
                self.root_is(from, out);
            }
            // NODE_FAILURE at the root: FAILURE_DETECT_ACK to its sender, always; then the repair begins.
            MembershipMessage::NodeFailure { suspects, .. } => {
                let suspect = suspects.first().map_or(Slot(0), |member| member.slot);
                let view = self.view.no();
                out.push(Action::log(MembershipEvent::Reported { suspect, by: from, view }));
                Self::send(
                    from,
                    MembershipMessage::FailureDetectAck { suspects: suspects.clone() },
                    out,
                );
                let mut new = false;
                for member in suspects {
                    if self.view.contains(member) && member != self.me {
                        new |= self.suspects.insert(member);
                    }
                }
                if new {
                    self.report(now, out);
                }
            }
            MembershipMessage::Leave { member } => {
                if self.view.contains(member) && self.leaving.insert(member) {
                    self.removals.insert(member);
                    self.trigger(now, out);
                }
            }
            MembershipMessage::FailureDetectAck { suspects } => self.acknowledged.extend(suspects),
            // ROOT_FAILURE at the next in succession. Ours: those before it are asked before it takes over.
            MembershipMessage::RootFailure { .. } => {
                let before = self.view.succession().take_while(|member| *member != self.me);
                let doubtful: Vec<_> = before.filter(|m| !self.suspects.contains(m)).collect();
                for member in doubtful {
                    self.how_are_you(now, member.slot, out);
                }
                self.report(now, out);
            }
            // FAILED_NODE, ROOT_DEAD, ROOT_AND_NODE_FAILURE, NEW_NODE_JOIN, ALIVE_NODE_JOIN: a view from the parent.
            MembershipMessage::Down(down) => self.down(now, from, down, out),
            // FAILURE_ACK from a child, for its whole subtree.
            MembershipMessage::Up { tag, digest, count } => {
                self.up(now, from, tag, (digest, count), out);
            }
            // NEW_NODE, NODE_ALIVE.
            MembershipMessage::Join { member, .. } => self.join(now, from, member, out),
            MembershipMessage::Joined { .. } | MembershipMessage::JoinPending => {}
            MembershipMessage::RootIs { root, view } => {
                // A member that must know says that a root is alive that is suspected here.
                if view >= self.view.no() && root != self.me && self.suspects.remove(&root) {
                    self.report(now, out);
                }
            }
            MembershipMessage::Excluded { member, .. } if member == self.me => self.excluded(out),
            MembershipMessage::Excluded { .. } => {}
            MembershipMessage::Pull => {
                let (view, by) = (self.view.parts(), self.tag.by);
                Self::send(from, MembershipMessage::Push { view, by }, out);
            }
            MembershipMessage::Push { view, .. } | MembershipMessage::Welcome { view, .. } => {
                self.pushed(now, view, out)
            }
        }
    }

    fn root_is(&self, to: Slot, out: &mut Out) {
        let root = if self.conducts { self.me } else { self.view.root() };
        Self::send(to, MembershipMessage::RootIs { root, view: self.view.no() }, out);
    }

    fn join(&mut self, now: Time, from: Slot, member: Member, out: &mut Out) {
        if !self.conducts {
            return self.root_is(from, out);
        }
        let old = self.view.at(member.slot);
        if old == Some(member) {
            let stable = self.base.contains(member) && self.phase.is_none();
            let say = MembershipMessage::Welcome { view: self.view.parts(), nonce: 0 };
            return Self::send(
                from,
                if stable { say } else { MembershipMessage::JoinPending },
                out,
            );
        }
        if old.is_some_and(|old| old.incarnation > member.incarnation) {
            let view = self.view.no();
            return Self::send(from, MembershipMessage::Excluded { view, member }, out);
        }
        Self::send(from, MembershipMessage::JoinPending, out);
        if self.additions.insert(member) {
            // Its former incarnation leaves in the same change.
            self.removals.extend(old);
            self.leaving.extend(old);
            self.trigger(now, out);
        }
    }

    /// A view from the parent: recomputed, installed, passed on. Ours: the attempt with the higher tag wins.
    fn down(&mut self, now: Time, from: Slot, down: Down, out: &mut Out) {
        self.highest = self.highest.max(down.tag.no);
        if down.tag < self.tag {
            let (tag, digest) = (self.tag, self.view.digest());
            return Self::send(from, MembershipMessage::Up { tag, digest, count: 0 }, out);
        }
        if down.tag == self.tag {
            return;
        }
        let known = [&self.view, &self.base].into_iter().find(|view| view.no() == down.base);
        let made = known.and_then(|base| {
            base.at_no(down.tag.no, &down.changes, down.shape, Some(down.root))
                .filter(|view| view.digest() == down.digest)
                .map(|view| (base.clone(), view))
        });
        match made {
            Some((base, view)) => {
                self.base = base;
                self.compute(now, from, down, view, out);
            }
            None => {
                out.push(Action::sometimes(MembershipEvent::WholeViewWanted));
                self.wanted = Some((from, down));
                Self::send(from, MembershipMessage::Pull, out);
            }
        }
    }

    fn compute(&mut self, now: Time, from: Slot, down: Down, view: View, out: &mut Out) {
        if self.incoming.as_ref().is_some_and(|(_, old, _)| old.tag >= down.tag) {
            return;
        }
        if self.settings.compute.is_zero() {
            return self.adopt(now, from, down, view, out);
        }
        self.incoming = Some((from, down, view));
        self.computing = false;
        out.push(Action::SetTimer(Timer::Computed, now + self.settings.compute));
    }

    fn adopt(&mut self, now: Time, from: Slot, down: Down, view: View, out: &mut Out) {
        if down.tag <= self.tag {
            return;
        }
        if !view.contains(self.me) {
            return self.excluded(out);
        }
        self.tag = down.tag;
        self.since = down.changes.clone();
        self.view = view;
        self.conducts = false;
        self.computing = false;
        self.removals.clear();
        self.additions.clear();
        self.installed(out);
        self.enter(now, Some(from), down, out);
        self.report(now, out);
    }

    fn pushed(&mut self, now: Time, view: itg_members::ViewParts, out: &mut Out) {
        let Ok(view) = View::try_from(view) else { return };
        if view.no() <= self.view.no() {
            return;
        }
        if !view.contains(self.me) {
            return self.excluded(out);
        }
        self.whole(now, view, out);
    }

    /// A view that came as a whole, as an attempt under way or to be installed at once.
    fn whole(&mut self, now: Time, view: View, out: &mut Out) {
        match self.wanted.take_if(|(_, down)| down.digest == view.digest()) {
            Some((from, down)) => {
                self.base = view.clone();
                self.compute(now, from, Down { changes: Changes::default(), ..down }, view, out);
            }
            None => self.take(now, view, out),
        }
    }

    /// FAILURE_ACK at a parent, counted; the last one of the children completes the subtree. Ours: a later view that
    /// it names is asked for, and a new root goes beyond it.
    fn up(&mut self, now: Time, from: Slot, tag: Tag, (digest, count): (u64, u32), out: &mut Out) {
        self.highest = self.highest.max(tag.no);
        if tag > self.tag {
            if self.conducts && self.suspects_or_gone(tag.by) {
                // A root that has failed had got further than this one knew.
                out.push(Action::sometimes(MembershipEvent::StartsAboveDeadRoot));
                self.highest = (self.highest / REIGN + 1) * REIGN;
                self.begin(now, out);
            } else if self.phase.is_some() {
                Self::send(from, MembershipMessage::Pull, out);
            }
            return;
        }
        let Some(phase) = self.phase.as_mut().filter(|phase| phase.tag == tag) else { return };
        if digest != self.view.digest() {
            let (no, ours, theirs) = (tag.no, self.view.digest(), digest);
            out.push(Action::log(MembershipEvent::DigestsDiffer { no, ours, theirs }));
            return;
        }
        if phase.waiting.remove(&from) {
            phase.count += count;
            if phase.waiting.is_empty() {
                self.complete(now, out);
            }
        } else {
            out.push(Action::log(MembershipEvent::NotAChild { no: tag.no, from }));
        }
    }

    fn suspects_or_gone(&self, member: Member) -> bool {
        self.suspects.contains(&member) || !self.view.contains(member)
    }

    /// Says that the view is in force.
    fn installed(&mut self, out: &mut Out) {
        self.acknowledged.clear();
        let (no, digest) = (self.view.no(), self.view.digest());
        let incarnation = self.me.incarnation;
        out.push(Action::log(MembershipEvent::Installed { no, digest, incarnation }));
        out.push(Action::Deliver(MembershipDelivery::View(self.view.clone())));
    }
}
