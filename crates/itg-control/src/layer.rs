//! The replicated experiment as a layer above the ordered log and the membership.
//!
//! It carries out the commands of the log, hands the description down the tree of the view, asks for
//! leases through the log, and tells the layer above what to send.
//!
//! Its journal is the description. A process that is started again comes to its state by what the log
//! delivers again, silently, and then goes on as the same member. What sent its flows before may send yet, and
//! its lease may last longer than what the log remembers of it: so for the length of a lease the process neither
//! sends nor hands over.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;

use bytes::Bytes;
use itg_core::rate::Rates;
use itg_core::streams::{below, fnv1a};
use itg_group::{Member, RoundTrip, View, cast};
use itg_process::{
    Ctx, JournalWrite, Layer, Level, MS, Message, Registry, SECOND, Slot, Time, TimerId,
};

use crate::command::{Command, Orphan, read, write};
use crate::event::ControlEvent;
use crate::interface::{ASK, ControlDelivery, ControlRequest};
use crate::mutant::{Mutant, Planted};
use crate::state::{Change, Phase, Replica, Stage};

/// Messages between members: the description, and the request for it.
const GRAPH: u32 = 1620;
const WANT: u32 = 1621;
/// Time that a member waits for the description before it asks another one for it.
const WANT_AFTER: u64 = 300 * MS;
/// Doublings of that time when it has not come, and round trips that are waited for beside it.
const MOST_DOUBLINGS: u32 = 5;
const WANT_ROUND_TRIPS: u64 = 4;
/// Casts that a full window has turned away are tried again.
const AGAIN: u64 = 20 * MS;
/// Commands that wait for room in the window.
const MOST_WAITING: usize = 65_536;
/// Leases are asked for so many times in the length of one.
const RENEWALS: u64 = 4;
/// Requests for a lease that are remembered: those of many lengths of a lease.
const MOST_REQUESTS: usize = 256;
/// A lease is asked for so many of its lengths, and so many nanoseconds at least, before the first packet is due.
const AHEAD: u64 = 4;
const AHEAD_LEAST: u64 = 10 * SECOND;
/// Clocks of two hosts run apart by at most this share of the time: 10⁻³.
const RATE_BOUND: u64 = 1000;

/// Time that a new owner waits after it has heard that the old one is excluded: then the last lease
/// of the old owner has ended by the clock of any host.
#[must_use]
pub const fn fence_wait(lease_ns: u64) -> u64 {
    lease_ns + lease_ns / RATE_BOUND + 1
}

/// Beside a lease: the most by which clocks of hosts may lie apart in what they tell of the time of the run.
const APART_NS: u64 = SECOND;

/// Name of the layer, and so of its journal.
const EXPERIMENT: &str = "experiment";

/// The layer.
struct Control {
    planted: Planted,
    replica: Replica,
    view: Option<View>,
    graph: Option<Bytes>,
    /// True when the layer above has said that it can do its part with that description.
    able: bool,
    /// Commands that a full window has turned away.
    waiting: Vec<Bytes>,
    /// An instant of the local clock, and how long the experiment had run then.
    run_time: Option<(u64, u64)>,
    /// Until when packets may leave.
    lease_ns: u64,
    /// The log delivers again what was delivered before this start: nothing is told or asked for.
    restoring: bool,
    /// Redelivery by the log ends with an exclusion.
    outside: bool,
    /// Nobody sends any more who sent for this process before this start.
    alone: bool,
    /// The last request for a lease that is told of again: instant of the local clock, and time of the run.
    renewed: Option<(u64, u64)>,
    /// Time of the run that others had reached when a flow came to this process last, as far as it is told of again.
    taken_ns: u64,
    /// Time of the run until which those have sent who sent for this process before this start, where it is known.
    sent_by_ns: Option<u64>,
    /// Until then a sender that ran before this start may send, or an owner before this one.
    quiet_ns: u64,
    /// True after a restart until the first lease: the log may tell yet how long the leases of that sender lasted.
    unleased: bool,
    /// Instants before which another sender may send these flows.
    not_before: BTreeMap<u32, u64>,
    /// Flows that are to be handed over when nobody else can send them: fence, and number of the next packet.
    releases: BTreeMap<u32, (u16, u64)>,
    /// Instants of the requests for a lease since this start, by the local clock.
    requests: VecDeque<u64>,
    /// Flows that the layer above has been told to send, with their fences.
    duties: BTreeMap<u32, u16>,
    /// Those that it has been told to send no longer, and has not ended yet.
    ceasing: BTreeMap<u32, u16>,
    renew: Option<TimerId>,
    /// True while that timer only waits for a flow to start.
    early: bool,
    want: Option<TimerId>,
    /// Times that the description was asked for.
    wanted: u32,
    /// The longest round trip to others, in nanoseconds.
    round_trip_ns: u64,
    again: Option<TimerId>,
    release: Option<TimerId>,
}

impl Control {
    fn me(&self, cx: &Ctx<'_>) -> Option<Member> {
        self.view.as_ref()?.at(cx.me())
    }

    fn cast(&mut self, command: &Command, cx: &mut Ctx<'_>) {
        if self.planted.is(Mutant::OwnFirst)
            && let Some(me) = self.me(cx)
        {
            self.replica.apply(me, command);
        }
        if let Some(message) = cast::CastRequest::Cast(write(command).into()).message() {
            cx.down(message);
        }
    }

    fn tell(tell: &ControlDelivery, cx: &mut Ctx<'_>) {
        cx.up(tell.message());
    }

    fn asked(&mut self, ask: ControlRequest, cx: &mut Ctx<'_>) {
        match ask {
            ControlRequest::Load(graph, routes, rules) => {
                let graph = Bytes::from(graph);
                let hash = fnv1a(&graph);
                self.keep_graph(graph, cx);
                self.cast(&Command::Load { graph: hash, routes, rules }, cx);
            }
            ControlRequest::Command(command) => self.cast(&command, cx),
            ControlRequest::RunTime(local_ns, run_ns) => {
                self.run_time = Some((local_ns, run_ns));
                self.look_again(cx);
                self.keep_lease(cx);
            }
            ControlRequest::Look => {
                Self::tell(&ControlDelivery::State(Box::new(self.replica.clone())), cx)
            }
            ControlRequest::Able => {
                self.able = true;
                self.cast(&Command::Holds { graph: self.replica.graph() }, cx);
            }
            ControlRequest::Unable(why) => {
                self.cast(&Command::Refuses { graph: self.replica.graph(), why }, cx);
            }
            ControlRequest::Ended(flow, fence, next) => match self.ended(flow, fence) {
                Some(Stage::Running) => self.cast(&Command::Finished { flow, fence, next }, cx),
                Some(Stage::Handing) => self.release(flow, fence, next, cx),
                _ => {}
            },
            ControlRequest::GaveUp(flow, fence, why) => match self.ended(flow, fence) {
                Some(Stage::Running) => self.cast(&Command::GiveUp { flow, fence, why }, cx),
                Some(Stage::Handing) => self.release(flow, fence, 0, cx),
                _ => {}
            },
        }
    }

    /// The layer above sends a flow no more: its stage, if this was its fence.
    fn ended(&mut self, flow: u32, fence: u16) -> Option<Stage> {
        if self.duties.get(&flow) == Some(&fence) {
            self.duties.remove(&flow);
        }
        self.ceasing.remove(&flow);
        self.replica.word(flow).filter(|word| word.fence() == fence).map(crate::Word::stage)
    }

    /// Takes the description, and stores it.
    fn keep_graph(&mut self, graph: Bytes, cx: &mut Ctx<'_>) {
        cx.persist(JournalWrite::Replace(vec![graph.clone()]));
        self.graph = Some(graph);
    }

    /// Says that this process sends a flow no more: its next owner begins at once, so nobody else may send it.
    fn release(&mut self, flow: u32, fence: u16, next: u64, cx: &mut Ctx<'_>) {
        let until_ns = self.not_before.get(&flow).copied().unwrap_or(0).max(self.quiet_ns);
        if until_ns <= cx.now().0 {
            return self.cast(&Command::Released { flow, fence, next }, cx);
        }
        self.releases.entry(flow).or_insert((fence, next));
        if self.release.is_none() {
            self.release = Some(cx.set_timer(Time(until_ns)));
        }
    }

    /// Hands over what has waited for that and is still to be handed over.
    fn release_waiting(&mut self, cx: &mut Ctx<'_>) {
        for (flow, (fence, next)) in std::mem::take(&mut self.releases) {
            let word = self.replica.word(flow);
            let mine = word.is_some_and(|word| {
                (word.owner(), word.fence(), word.stage())
                    == (Some(cx.me().0), fence, Stage::Handing)
            });
            if mine {
                self.release(flow, fence, next, cx);
            }
        }
    }

    /// The next entry of the log.
    fn ordered(&mut self, position: u64, by: Member, payload: &Bytes, cx: &mut Ctx<'_>) {
        let Some(command) = read::<Command>(payload) else {
            cx.log(Level::Warning, ControlEvent::NoCommand { position });
            return;
        };
        let change = self.replica.apply(by, &command);
        let state = self.replica.history();
        cx.log(Level::Info, ControlEvent::Applied { position, command: fnv1a(payload), state });
        if self.restoring {
            match command {
                Command::Renew { sent_ns, run_ns } if by.slot == cx.me() => {
                    self.renewed = Some((sent_ns, run_ns));
                }
                _ => self.note_taken(&change, cx.me()),
            }
            return;
        }
        let mine = self.me(cx) == Some(by);
        // Who is the first to hold the description again gets flows whose last owner may have a lease yet.
        let orphans = matches!(command, Command::Holds { .. });
        match &command {
            Command::Renew { sent_ns, .. } if mine => self.granted(*sent_ns, cx),
            Command::Load { graph, .. } if change == Change::Report => {
                if self.graph.as_ref().is_some_and(|held| fnv1a(held) == *graph) {
                    self.have(by.slot, cx);
                } else {
                    self.graph = None;
                    self.wanted = 0;
                    self.want = Some(cx.set_timer_after(self.want_after()));
                }
            }
            Command::SetRate { .. } => {
                self.look_again(cx);
                if let Change::Flows(flows) = &change {
                    for flow in flows.iter().filter(|flow| self.duties.contains_key(flow)) {
                        let changes = self.replica.rates(*flow).to_vec();
                        Self::tell(&ControlDelivery::Rate { flow: *flow, changes }, cx);
                    }
                }
            }
            _ => {}
        }
        if !matches!(command, Command::Renew { .. }) {
            let void = match &change {
                Change::Void(why) => Some((*why).to_owned()),
                _ => None,
            };
            Self::tell(&ControlDelivery::Applied { position, by: by.slot.0, command, void }, cx);
        }
        self.follow(&change, orphans, cx);
    }

    /// A lease that was asked for at this instant is granted: the log has taken the request, so no
    /// decision to exclude this process had been made when it was sent. One of the time before this start
    /// counts nothing: another clock may have been read then.
    fn granted(&mut self, sent_ns: u64, cx: &mut Ctx<'_>) {
        if !self.requests.contains(&sent_ns) {
            return self.tell_sent_before(cx);
        }
        self.unleased = false;
        self.requests.retain(|asked_ns| *asked_ns > sent_ns);
        let from = if self.planted.is(Mutant::LeaseFromReceipt) { cx.now().0 } else { sent_ns };
        let until = from.saturating_add(self.replica.rules().lease_ns);
        if until > self.lease_ns {
            self.lease_ns = until;
            Self::tell(&ControlDelivery::Lease(self.until()), cx);
        }
    }

    /// Tells the layer above what a sender of the time before this start may have sent: its plan may have run by
    /// another clock than the one that is read now.
    fn tell_sent_before(&self, cx: &mut Ctx<'_>) {
        if self.unleased && self.replica.phase() == Phase::Running {
            let run_ns = self.sent_by_ns.unwrap_or_else(|| self.replica.sent_before_ns());
            Self::tell(&ControlDelivery::SentBefore(run_ns), cx);
        }
    }

    /// Until when packets may leave.
    fn until(&self) -> u64 {
        let unbound = self.replica.rules().orphan == Orphan::Finish;
        if unbound || self.planted.is(Mutant::NoLease) { u64::MAX } else { self.lease_ns }
    }

    /// This process has got the description: the layer above is told, and those below in the tree.
    fn have(&mut self, from: Slot, cx: &mut Ctx<'_>) {
        if let Some(want) = self.want.take() {
            cx.cancel(want);
        }
        let (Some(graph), Some(view)) = (self.graph.clone(), &self.view) else { return };
        let children = view.tree().children(cx.me());
        let mut next: Vec<Slot> = children.into_iter().filter(|slot| *slot != from).collect();
        if from == cx.me() && view.root().slot != from {
            // The member that has brought it gives it to the root; the tree does the rest.
            next = vec![view.root().slot];
        }
        for slot in next {
            cx.log(Level::Info, ControlEvent::GraphSent { slot, wanted: false });
            cx.down(Message::new(slot, GRAPH, graph.clone()));
        }
        Self::tell(&ControlDelivery::Graph(graph.to_vec()), cx);
    }

    /// Tells the layer above what a change means for its flows. `fenced`: another owner may hold a lease
    /// of these flows yet.
    fn follow(&mut self, change: &Change, fenced: bool, cx: &mut Ctx<'_>) {
        match change {
            Change::Void(_) | Change::Report => {}
            Change::Flows(flows) => {
                for flow in flows {
                    self.follow_flow(*flow, fenced, cx);
                }
            }
            Change::All => {
                for flow in (1..).take(self.replica.words().len()) {
                    self.follow_flow(flow, fenced, cx);
                }
            }
        }
        self.keep_lease(cx);
    }

    fn follow_flow(&mut self, flow: u32, fenced: bool, cx: &mut Ctx<'_>) {
        let Some(word) = self.replica.word(flow) else { return };
        let mine = word.owner() == Some(cx.me().0);
        let (stage, fence) = (word.stage(), word.fence());
        let running = self.replica.phase() == Phase::Running;
        let had = self.duties.get(&flow).copied();
        if mine && stage == Stage::Running && running {
            if had == Some(fence) {
                return;
            }
            self.duties.insert(flow, fence);
            self.look_again(cx);
            let wait = fenced && !self.planted.is(Mutant::NoWait);
            let wait = if wait { fence_wait(self.replica.rules().lease_ns) } else { 0 };
            let not_before_ns = cx.now().after(wait).0.max(self.quiet_ns);
            self.not_before.insert(flow, not_before_ns);
            let t0_unix_ns = self.replica.t0_unix_ns();
            let changes = self.replica.rates(flow).to_vec();
            Self::tell(
                &ControlDelivery::Emit { flow, fence, not_before_ns, t0_unix_ns, changes },
                cx,
            );
        } else if let Some(fence) = had {
            self.duties.remove(&flow);
            self.ceasing.insert(flow, fence);
            Self::tell(&ControlDelivery::Cease { flow, fence }, cx);
        } else if mine && stage == Stage::Handing && !self.ceasing.contains_key(&flow) {
            // It had not begun, or has ended by itself: its previous owner knows the position.
            let next = self.replica.next(flow).unwrap_or(0);
            self.release(flow, fence, next, cx);
        }
    }

    /// Time of the run before which no packet of the flows that are sent here is due.
    fn first_due_ns(&self) -> u64 {
        let due = |flow: &u32| {
            let start_ns = self.replica.route(*flow).map_or(0, |route| route.start_ns);
            Rates::new(self.replica.rates(*flow)).due_at(start_ns)
        };
        self.duties.keys().map(due).min().unwrap_or(0)
    }

    /// Looks anew when the first packet is due: there are other flows to send, or other rates.
    fn look_again(&mut self, cx: &mut Ctx<'_>) {
        if let Some(renew) = self.renew.take_if(|_| self.early) {
            cx.cancel(renew);
        }
    }

    /// Asks for a lease as long as there is something to send; not long before the first packet is due.
    fn keep_lease(&mut self, cx: &mut Ctx<'_>) {
        if self.renew.is_some() || self.duties.is_empty() || self.me(cx).is_none() {
            return;
        }
        // How long the run has lasted is known to the layer above.
        let Some((local_ns, run_ns)) = self.run_time else { return };
        let sent_ns = cx.now().0;
        let run_ns = run_ns.saturating_add(sent_ns.saturating_sub(local_ns));
        let lease_ns = self.replica.rules().lease_ns;
        let ahead_ns = lease_ns.saturating_mul(AHEAD).max(AHEAD_LEAST);
        let early_ns = self.first_due_ns().saturating_sub(run_ns.saturating_add(ahead_ns));
        self.early = early_ns > 0;
        if self.early {
            self.renew = Some(cx.set_timer_after(early_ns));
            return;
        }
        self.cast(&Command::Renew { sent_ns, run_ns }, cx);
        if self.requests.len() >= MOST_REQUESTS {
            self.requests.pop_front();
        }
        self.requests.push_back(sent_ns);
        let every = (lease_ns / RENEWALS).max(MS);
        self.renew = Some(cx.set_timer_after(every));
    }

    /// A view is in force.
    fn view(&mut self, view: View, cx: &mut Ctx<'_>) {
        let slots = view.slots().map(|slot| slot.0).collect();
        let number = view.no();
        self.view = Some(view.clone());
        let change = self.replica.view(&view);
        if self.restoring {
            return self.note_taken(&change, cx.me());
        }
        Self::tell(&ControlDelivery::View { number, slots }, cx);
        self.follow(&change, true, cx);
        // The member that was to bring the description may have left.
        if self.replica.phase() > Phase::Empty && self.graph.is_none() && self.want.is_none() {
            self.want = Some(cx.set_timer_after(self.want_after()));
        }
    }

    /// Time until the description is asked for again: it may be long, and a link slow.
    fn want_after(&self) -> u64 {
        let usual = WANT_AFTER.saturating_add(WANT_ROUND_TRIPS.saturating_mul(self.round_trip_ns));
        usual.saturating_mul(1 << self.wanted.min(MOST_DOUBLINGS))
    }

    /// The state of another member replaces this one's.
    fn install(&mut self, view: View, state: &Bytes, cx: &mut Ctx<'_>) {
        let Some(replica) = read::<Replica>(state) else {
            let bytes = state.len() as u64;
            cx.log(Level::Error, ControlEvent::UnreadableState { bytes });
            return;
        };
        self.replica = replica;
        self.view = Some(view.clone());
        if self.restoring {
            // What led to this state is not told.
            self.taken_ns = self.replica.reached_ns();
        } else {
            self.take_up(&view, true, cx);
        }
    }

    /// Notes when flows of this process came to it, or may have.
    fn note_taken(&mut self, change: &Change, me: Slot) {
        let mine = |flow: &u32| self.replica.word(*flow).is_some_and(|w| w.owner() == Some(me.0));
        let taken = match change {
            Change::Void(_) | Change::Report => false,
            Change::Flows(flows) => flows.iter().any(mine),
            Change::All => true,
        };
        if taken {
            self.taken_ns = self.replica.reached_ns();
        }
    }

    /// Time of the run at this start, by the local clock and the last request for a lease before it: nothing that is due
    /// later was sent. `None` where a sender of that time may run, or the clock is another one.
    fn sent_by(&self, now: Time) -> Option<u64> {
        let (sent_ns, run_ns) = self.renewed.filter(|_| self.alone)?;
        Some(run_ns.saturating_add(now.0.checked_sub(sent_ns)?))
    }

    /// Everything that this process had delivered before it was started again has been delivered.
    fn restored(&mut self, cx: &mut Ctx<'_>) {
        self.restoring = false;
        if !self.planted.is(Mutant::NoWait) {
            let wait_ns = fence_wait(self.replica.rules().lease_ns);
            self.sent_by_ns = self.sent_by(cx.now());
            let quiet_ns = self.sent_by_ns.map_or(wait_ns, |run_ns| {
                let words = self.replica.words().iter();
                let mut mine = words.filter(|word| word.owner() == Some(cx.me().0));
                if mine.all(|word| word.fence() == 0) {
                    // They never had another owner.
                    return 0;
                }
                let over_ns = self.taken_ns.saturating_add(wait_ns).saturating_add(APART_NS);
                over_ns.saturating_sub(run_ns).min(wait_ns)
            });
            self.quiet_ns = cx.now().after(quiet_ns).0;
            self.unleased = true;
        }
        if std::mem::take(&mut self.outside) {
            self.view = None;
            // Its part is made ready meanwhile: others send to it as soon as it is in the view again.
            if let Some(graph) =
                self.graph.as_ref().filter(|graph| fnv1a(graph) == self.replica.graph())
            {
                Self::tell(&ControlDelivery::Graph(graph.to_vec()), cx);
            }
        }
        // One that was excluded gets a state when it is let in again.
        if let Some(view) = self.view.clone() {
            // Where it is known what was sent, an owner before this one is waited for, and nobody else.
            self.take_up(&view, self.sent_by_ns.is_none(), cx);
        }
    }

    /// Goes on from a state that no commands have led to here. `fenced`: others may hold leases of its flows yet.
    fn take_up(&mut self, view: &View, fenced: bool, cx: &mut Ctx<'_>) {
        let number = view.no();
        Self::tell(
            &ControlDelivery::View { number, slots: view.slots().map(|slot| slot.0).collect() },
            cx,
        );
        self.tell_sent_before(cx);
        for (flow, fence) in std::mem::take(&mut self.duties) {
            let word = self.replica.word(flow);
            let still = word.is_some_and(|word| {
                (word.owner(), word.fence(), word.stage())
                    == (Some(cx.me().0), fence, Stage::Running)
            });
            if still {
                self.duties.insert(flow, fence);
                // A change that the state has in it comes as no entry of the log any more.
                let changes = self.replica.rates(flow).to_vec();
                if !changes.is_empty() {
                    Self::tell(&ControlDelivery::Rate { flow, changes }, cx);
                }
            } else {
                self.ceasing.insert(flow, fence);
                Self::tell(&ControlDelivery::Cease { flow, fence }, cx);
            }
        }
        if self.replica.phase() > Phase::Empty {
            let wanted = self.replica.graph();
            if self.graph.as_ref().is_some_and(|graph| fnv1a(graph) == wanted) {
                if self.able {
                    self.cast(&Command::Holds { graph: wanted }, cx);
                } else {
                    self.have(cx.me(), cx);
                }
            } else {
                self.ask_for_graph(cx);
            }
        }
        self.follow(&Change::All, fenced, cx);
        // What was ordered while this process was away, the end of the run among it.
        Self::tell(&ControlDelivery::State(Box::new(self.replica.clone())), cx);
    }

    fn ask_for_graph(&mut self, cx: &mut Ctx<'_>) {
        let Some(view) = &self.view else { return };
        let others: Vec<Slot> = view.slots().filter(|slot| *slot != cx.me()).collect();
        self.want = Some(cx.set_timer_after(self.want_after()));
        self.wanted += 1;
        let Some(most) = u64::try_from(others.len()).ok().filter(|most| *most > 0) else { return };
        let at = usize::try_from(below(cx.rng(), most)).unwrap_or(0);
        let body = self.replica.graph().to_le_bytes().to_vec();
        cx.down(Message::new(others[at], WANT, body));
    }

    /// This process is no member any more; the membership below begins another incarnation by itself.
    fn fenced(&mut self, cx: &mut Ctx<'_>) {
        self.view = None;
        self.lease_ns = 0;
        self.waiting.clear();
        if self.restoring {
            return;
        }
        let duties = std::mem::take(&mut self.duties);
        if self.planted.is(Mutant::NoLease) {
            self.duties = duties;
            return;
        }
        Self::tell(&ControlDelivery::Fenced, cx);
        for (flow, fence) in duties {
            self.ceasing.insert(flow, fence);
            Self::tell(&ControlDelivery::Cease { flow, fence }, cx);
        }
        cx.log(Level::Info, ControlEvent::Fenced);
    }
}

impl Layer for Control {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match ControlRequest::from_message(&message) {
            Some(ask) => self.asked(ask, cx),
            None if message.ty == ASK => cx.log(Level::Error, ControlEvent::NoRequest),
            None => cx.down(message),
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match message.ty {
            GRAPH => {
                let known = self.graph.is_some();
                let wanted = self.replica.phase() > Phase::Empty;
                // What comes before the log says what it should be is kept, and looked at then.
                if !known && (!wanted || fnv1a(&message.body) == self.replica.graph()) {
                    self.keep_graph(message.body, cx);
                    if wanted {
                        self.have(message.src, cx);
                    }
                }
                return;
            }
            WANT => {
                let wanted = message.body.first_chunk().map(|hash| u64::from_le_bytes(*hash));
                if let Some(graph) = self.graph.clone().filter(|graph| Some(fnv1a(graph)) == wanted)
                {
                    let slot = message.src;
                    cx.log(Level::Info, ControlEvent::GraphSent { slot, wanted: true });
                    cx.down(Message::new(message.src, GRAPH, graph));
                }
                return;
            }
            _ => {}
        }
        match cast::CastDelivery::from_message(&message) {
            Some(cast::CastDelivery::Message { position, id, payload }) => {
                self.ordered(position, id.origin, &payload, cx);
            }
            Some(cast::CastDelivery::View { view, .. }) => self.view(view, cx),
            Some(cast::CastDelivery::Install { view, state, .. }) => self.install(view, &state, cx),
            Some(cast::CastDelivery::Checkpoint { position }) => {
                let state = cast::CastRequest::State(position, write(&self.replica).into());
                if let Some(message) = state.message() {
                    cx.down(message);
                }
            }
            Some(cast::CastDelivery::Busy(payload)) => {
                if self.waiting.len() < MOST_WAITING {
                    self.waiting.push(payload);
                } else {
                    cx.log(Level::Error, ControlEvent::TooManyWait);
                }
                if self.again.is_none() {
                    self.again = Some(cx.set_timer_after(AGAIN));
                }
            }
            Some(cast::CastDelivery::Excluded { .. }) => self.fenced(cx),
            Some(cast::CastDelivery::Restored { .. }) => self.restored(cx),
            Some(cast::CastDelivery::Expired(_)) | None => cx.up(message),
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        if self.renew == Some(id) {
            self.renew = None;
            self.keep_lease(cx);
        } else if self.want == Some(id) {
            self.want = None;
            if self.graph.is_none() && self.replica.phase() > Phase::Empty {
                self.ask_for_graph(cx);
            }
        } else if self.release == Some(id) {
            self.release = None;
            self.release_waiting(cx);
        } else if self.again == Some(id) {
            self.again = None;
            for payload in std::mem::take(&mut self.waiting) {
                if let Some(message) = cast::CastRequest::Cast(payload).message() {
                    cx.down(message);
                }
            }
        }
    }

    fn control(&mut self, what: &dyn Any, _cx: &mut Ctx<'_>) {
        if let Some(RoundTrip(ns)) = what.downcast_ref() {
            self.round_trip_ns = *ns;
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[ASK..=WANT]
    }
}

/// The registry with the layer `experiment`, which stands above `log` and `membership`; `members` as
/// theirs.
#[must_use]
pub fn layers(registry: Registry, planted: Planted) -> Registry {
    registry.with(EXPERIMENT, move |build| {
        let members = build.params.number("members", build.n.into())?;
        let members = u32::try_from(members).unwrap_or(u32::MAX).clamp(1, build.n.max(1));
        // The first view is known to all members; the log does not tell it.
        let view = View::first(members, itg_group::Rules::default());
        let restored = cast::restored(build, &view);
        let first = match restored {
            Some((member, _)) => view.contains(member),
            None => view.at(build.me) == Some(Member::born(build.me, build.incarnation)),
        };
        let alone = build.params.flag("alone", false)?;
        let stored = build.journals.and_then(|journals| journals.of(EXPERIMENT).last());
        let mut replica = Replica::default();
        replica.view(&view);
        Ok(Box::new(Control {
            planted,
            replica,
            view: first.then_some(view),
            graph: stored.cloned(),
            able: false,
            waiting: Vec::new(),
            run_time: None,
            lease_ns: Time::ZERO.0,
            restoring: restored.is_some(),
            outside: restored.is_some_and(|(_, is_member)| !is_member),
            alone,
            renewed: None,
            taken_ns: 0,
            sent_by_ns: None,
            quiet_ns: 0,
            unleased: false,
            not_before: BTreeMap::new(),
            releases: BTreeMap::new(),
            requests: VecDeque::new(),
            duties: BTreeMap::new(),
            ceasing: BTreeMap::new(),
            renew: None,
            early: false,
            want: None,
            wanted: 0,
            round_trip_ns: 0,
            again: None,
            release: None,
        }))
    })
}
