//! The failure detector: processes that have been silent for too long, on two levels.
//!
//! A filter below the layers that want to know. It sends a heartbeat to each of its observers when
//! nothing else has been sent there for a period, and takes everything that arrives as a sign that the
//! sender is alive. What it watches, and its observers, are told by the membership ([`Watch`]).
//!
//! With the setting `ring` heartbeats are few: each process sends them to one observer, its keeper, once in that
//! time. A keeper that misses them tells all, and a roll call follows: each asks those that it has not heard since the
//! last heartbeat, and reports who does not answer. So those that failed at one instant are missed at one instant,
//! keepers among them, and as many report them as would without a ring.
//!
//! With `ring` round trips are measured, too: time-outs are as long as they make them, and log, membership and overlay
//! are told ([`RoundTrip`]).
//!
//! | level | time-out | consequence |
//! |---|---|---|
//! | rotate | mean inter-arrival time + 4 deviations + one period, adaptive | the log changes its coordinator; harmless |
//! | exclude | 3 s, in the last half second of which helpers ask it too; both longer by four round trips | a report to the membership |
//! | – | its connection ended and its host refuses another one | both, at once |
//!
//! Each mistake doubles the time-out of its level for that process, up to a limit; time halves it
//! again. So it makes finitely many mistakes in a run that becomes timely (class ◇P). A process
//! whose own timers fire late stretches its time-outs as much and sends no reports: it may be the
//! one that is slow.
//!
//! Sources: Chen, Toueg, Aguilera, *On the quality of service of failure detectors*, IEEE ToC 51(5), 2002
//! (`T_D`, `T_MR`, `T_M`); Dadgar, Phillips, Currey, *Lifeguard*, DSN-W 2018 (local health); Das, Gupta,
//! Motivala, *SWIM*, DSN 2002 (indirect probes).

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use itg_core::streams::below;
use itg_core::units::nanoseconds;
use itg_members::View;
use itg_members::observers::{RoundTrip, Watch};
use itg_process::{
    Ctx, Dest, Injected, Layer, Level, MS, Message, NetId, Registry, RuntimeEvent, Slot, Time,
    TimerId, layer_events,
};

use crate::membership::{Evidence, MembershipRequest};

layer_events! {
    /// Events of failure detectors.
    pub enum DetectorEvent {
        /// Suspicion of a process, on the level `rotate`.
        Suspected { slot: Slot, silent_ns: u64 } = "suspected",
        /// End of a suspicion, as the process was heard.
        Trusted { slot: Slot, suspected_ns: u64 } = "trusted",
        /// Suspicion on the level `exclude`, reported to the membership.
        GivenUp { slot: Slot } = "given up",
        /// Refusal of a connection by the host of a process, reported to the membership.
        Refused { slot: Slot } = "refused",
        /// Late timers of this process: its time-outs grow by the factor `health`.
        Slow { late_ns: u64, health: u64 } = "slow",
        /// Wrong suspicions of this run: how many, how long one lasted (`T_M`), time from one to the next
        /// (`T_MR`), as means.
        Quality { mistakes: u64, mistake_ns: u64, recurrence_ns: u64 } = "detector quality",
        /// Suspicion of a process that runs.
        SuspectedWrongly = "suspected wrongly",
        /// Suspicion that is not reported, as this process itself is slow.
        SlowReportsNobody = "a slow process reports nobody",
        /// Answer of a silent process by way of another one.
        HelperReached = "a helper has reached a silent process",
        /// Silence of a process that another one has missed.
        RollCallUnanswered = "a roll call is not answered",
        /// Longest round trip of late to a process that is watched.
        RoundTrips { longest_ns: u64 } = "round trips",
        /// Timer that fired late by more than a period.
        OwnTimersLate = "own timers fire late",
    }
}

const HEARTBEAT: u32 = 1210;
const HOW_ARE_YOU: u32 = 1211;
const I_AM_FINE: u32 = 1212;
const PROBE_FOR: u32 = 1213;
const PROBE_RESULT: u32 = 1214;
/// Time-outs grow by at most this factor.
const MOST_PATIENCE: u32 = 16;
/// Own lateness stretches time-outs by at most this factor.
const MOST_HEALTH: u64 = 8;
/// Without a mistake for this long a time-out halves.
const FORGIVE: Duration = Duration::from_secs(30);
/// Round trips by which time-outs are longer: the answer to a question, over a link that is busy meanwhile.
const ROUND_TRIPS: u64 = 4;
/// Time between two measurements of a round trip that is known.
const MEASURE: Duration = Duration::from_secs(60);
/// Time between two questions of a measurement that has not come out yet.
const MEASURE_AGAIN: Duration = Duration::from_secs(1);
/// Probes for others that wait for an answer.
const MOST_PROBES: usize = 256;

/// Settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Period of heartbeats.
    pub period: Duration,
    /// Least time-out of the level `rotate`.
    pub floor: Duration,
    /// Time-out of the level `exclude`.
    pub exclude: Duration,
    /// Time that helpers may take, within the time-out of the level `exclude`; half of that at
    /// most.
    pub probe: Duration,
    /// Number of helpers that are asked; with a ring all are.
    pub helpers: usize,
    /// Period of heartbeats to the keeper alone; zero: they go to all observers each `period`.
    pub ring: Duration,
    /// True if a process that has just joined is watched like others at once: a planted fault.
    #[cfg(debug_assertions)]
    pub joiner_counts_at_once: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            period: Duration::from_millis(50),
            floor: Duration::from_millis(10),
            exclude: Duration::from_secs(3),
            probe: Duration::from_millis(500),
            helpers: 3,
            ring: Duration::ZERO,
            #[cfg(debug_assertions)]
            joiner_counts_at_once: false,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    None,
    /// Helpers have been asked; their answers are awaited until then.
    Probing(Time),
    Reported,
}

#[derive(Clone, Debug)]
struct Peer {
    heard: Time,
    /// Its heartbeats come here: silence alone says something.
    awaited: bool,
    /// Nothing has been heard of it since it joined.
    fresh: bool,
    round_trip: Measured,
    mean: u64,
    deviation: u64,
    patience: u32,
    rotated: Option<Time>,
    doubt: Doubt,
    /// Time of the last mistake about it.
    mistake: Option<Time>,
    /// Time of the last mistake, or of the last halving of its time-out.
    eased: Option<Time>,
}

/// Round trip to a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    /// Number and time of the last question to it.
    asked: (u64, Time),
    /// The last two that were measured, in nanoseconds; 0 stands for none.
    last: [u64; 2],
}

impl Measured {
    /// The shorter one of the last two: that a process stood still once says nothing about its link.
    fn ns(&self) -> u64 {
        match self.last {
            [one, 0] => one,
            [one, before] => one.min(before),
        }
    }

    fn take(&mut self, ns: u64) {
        self.last = [ns.max(1), self.last[0]];
    }

    /// Returns true if it is to be measured: it is not known, or the last two differ.
    fn is_due(&self, now: Time, period: u64) -> bool {
        let [one, before] = self.last;
        let differ = one.max(before) > period.max(2 * one.min(before));
        let wait = if differ || before == 0 { MEASURE_AGAIN } else { MEASURE };
        now.since(self.asked.1) >= nanoseconds(wait)
    }
}

/// Quality of service so far (Chen, Toueg, Aguilera), of the level `rotate`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quality {
    /// Suspicions that proved wrong.
    pub mistakes: u64,
    /// Sum of the times that they lasted: `T_M` is the mean.
    pub mistaken_ns: u64,
    /// Sum of the times between mistakes about one process, and their number: `T_MR` is the mean.
    pub between_ns: u64,
    /// Number of these times.
    pub between: u64,
}

/// The layer `detector`.
#[derive(Debug)]
pub struct Detector {
    settings: Settings,
    net: NetId,
    peers: BTreeMap<Slot, Peer>,
    observers: BTreeMap<Slot, Time>,
    helpers: Vec<Slot>,
    view: Option<View>,
    tick: Option<(TimerId, Time)>,
    health: u64,
    nonce: u64,
    /// Probes made for others: nonce, target, process that asked.
    probes: VecDeque<(u64, Slot, Slot)>,
    quality: Quality,
    /// The longest round trip that others were told, in nanoseconds.
    told_ns: u64,
}

impl Detector {
    /// A detector that watches no process yet; its messages travel on network `net`.
    #[must_use]
    pub const fn new(settings: Settings, net: NetId) -> Self {
        Self {
            settings,
            net,
            peers: BTreeMap::new(),
            observers: BTreeMap::new(),
            helpers: Vec::new(),
            view: None,
            tick: None,
            health: 1,
            nonce: 0,
            probes: VecDeque::new(),
            quality: Quality { mistakes: 0, mistaken_ns: 0, between_ns: 0, between: 0 },
            told_ns: 0,
        }
    }

    /// Returns true if heartbeats go to the keeper alone.
    fn is_ring(&self) -> bool {
        !self.settings.ring.is_zero()
    }

    /// Time between two heartbeats, in nanoseconds.
    fn beat(&self) -> u64 {
        nanoseconds(if self.is_ring() { self.settings.ring } else { self.settings.period })
    }

    /// Time that a peer may be silent, and time of that in which it is asked.
    fn patience(&self, peer: &Peer) -> (u64, u64) {
        let [exclude, probe] = [self.settings.exclude, self.settings.probe].map(nanoseconds);
        let longer = ROUND_TRIPS * peer.round_trip.ns();
        // Helpers are asked in the last part of the time-out, not behind it.
        let patience = (exclude + longer) * self.health;
        (patience, (probe + longer).min(patience / 2))
    }

    fn say(&self, to: Dest, ty: u32, nonce: u64, about: Slot, cx: &mut Ctx<'_>) {
        let mut body = nonce.to_le_bytes().to_vec();
        body.extend(about.0.to_le_bytes());
        cx.down(Message::new(to, ty, body).on(self.net));
    }

    fn watch(&mut self, watch: &Watch, now: Time) {
        let old = std::mem::take(&mut self.peers);
        let (beat, ring) = (self.beat(), self.is_ring());
        for &(slot, settled) in &watch.targets {
            #[cfg(debug_assertions)]
            let settled = settled || self.settings.joiner_counts_at_once;
            let awaited = !ring || watch.ward == Some(slot);
            let new = Peer {
                heard: now,
                awaited,
                fresh: !settled,
                round_trip: Measured::default(),
                mean: beat,
                deviation: beat / 2,
                patience: 1,
                rotated: None,
                doubt: Doubt::None,
                mistake: None,
                eased: None,
            };
            let mut kept = old.get(&slot).filter(|_| settled).cloned();
            if let Some(kept) = &mut kept
                && std::mem::replace(&mut kept.awaited, awaited) != awaited
            {
                // What it has not sent here says nothing until now.
                kept.heard = kept.heard.max(Time(now.0.saturating_sub(beat)));
                (kept.mean, kept.deviation) = (beat, beat / 2);
            }
            self.peers.insert(slot, kept.unwrap_or(new));
        }
        let sent = std::mem::take(&mut self.observers);
        let to = watch.observers.iter().filter(|slot| !ring || watch.keeper == Some(**slot));
        for slot in to {
            self.observers.insert(*slot, sent.get(slot).copied().unwrap_or(Time::ZERO));
        }
        self.helpers.clone_from(&watch.helpers);
        self.view.clone_from(&watch.view);
    }

    /// Something has come from a process.
    fn heard(&mut self, slot: Slot, cx: &mut Ctx<'_>) {
        let now = cx.now();
        let Some(peer) = self.peers.get_mut(&slot) else { return };
        let gap = now.since(peer.heard);
        // Exponential means with weights 1/8 and 1/4, as in the retransmission timer of TCP.
        if peer.rotated.is_none() && !peer.fresh {
            peer.deviation = peer.deviation - peer.deviation / 4 + gap.abs_diff(peer.mean) / 4;
            peer.mean = peer.mean - peer.mean / 8 + gap / 8;
        }
        peer.heard = now;
        peer.fresh = false;
        let reported = peer.doubt == Doubt::Reported;
        peer.doubt = Doubt::None;
        if let Some(since) = peer.rotated.take() {
            peer.patience = (peer.patience * 2).min(MOST_PATIENCE);
            self.quality.mistakes += 1;
            self.quality.mistaken_ns += now.since(since);
            peer.eased = Some(now);
            if let Some(last) = peer.mistake.replace(now) {
                self.quality.between_ns += now.since(last);
                self.quality.between += 1;
            }
            cx.sometimes(DetectorEvent::SuspectedWrongly);
            let event = DetectorEvent::Trusted { slot, suspected_ns: now.since(since) };
            cx.log(Level::Info, event);
            cx.call("log", Box::new(Injected::Trust(slot)));
        }
        if reported {
            cx.call("membership", Box::new(MembershipRequest::Trust(slot)));
        }
    }

    fn check(&mut self, cx: &mut Ctx<'_>) {
        let (now, health, beat) = (cx.now(), self.health, self.beat());
        let [floor, exclude] = [self.settings.floor, self.settings.exclude].map(nanoseconds);
        let (mut probing, mut reports) = (Vec::new(), Vec::new());
        let mut peers = std::mem::take(&mut self.peers);
        for (&slot, peer) in &mut peers {
            let silence = now.since(peer.heard);
            let (patience, asking) = self.patience(peer);
            if peer.fresh {
                // It may still be installing its first view.
                if silence > 2 * exclude {
                    peer.fresh = false;
                }
                continue;
            }
            if peer.eased.is_some_and(|at| now - at > FORGIVE) && peer.patience > 1 {
                peer.patience /= 2;
                peer.eased = Some(now);
            }
            let usual = peer.mean.max(beat) + 4 * peer.deviation + beat;
            let rotate = usual.max(floor) * u64::from(peer.patience) * health;
            if peer.awaited && silence > rotate && peer.rotated.is_none() {
                peer.rotated = Some(now);
                cx.log(Level::Info, DetectorEvent::Suspected { slot, silent_ns: silence });
                cx.call("log", Box::new(Injected::Suspect(slot)));
            }
            match peer.doubt {
                Doubt::None if peer.awaited && silence > patience - asking => {
                    peer.doubt = Doubt::Probing(now.after(asking));
                    probing.push(slot);
                }
                Doubt::Probing(until) if now >= until => {
                    // A process that is slow itself sends no reports.
                    if health == 1 {
                        peer.doubt = Doubt::Reported;
                        reports.push(slot);
                        if !peer.awaited {
                            cx.sometimes(DetectorEvent::RollCallUnanswered);
                            peer.rotated = Some(now);
                            cx.call("log", Box::new(Injected::Suspect(slot)));
                        }
                    } else {
                        cx.sometimes(DetectorEvent::SlowReportsNobody);
                        peer.doubt = Doubt::None;
                        peer.heard = now;
                    }
                }
                _ => {}
            }
        }
        self.peers = peers;
        for slot in probing {
            self.probe(slot, cx);
        }
        for slot in reports {
            cx.log(Level::Info, DetectorEvent::GivenUp { slot });
            cx.call("membership", Box::new(MembershipRequest::Suspect(slot, Evidence::Silence)));
        }
    }

    /// Asks a silent process, and helpers to ask it.
    fn probe(&mut self, target: Slot, cx: &mut Ctx<'_>) {
        let nonce = self.ask(target, cx);
        if self.is_ring() {
            self.roll_call(target, cx);
            let all: Vec<Slot> = self.view.iter().flat_map(View::slots).collect();
            let others = all.into_iter().filter(|slot| *slot != target && *slot != cx.me());
            let others: Arc<[Slot]> = others.collect();
            if !others.is_empty() {
                self.say(Dest::Many(others), PROBE_FOR, nonce, target, cx);
            }
            return;
        }
        let mut others = self.helpers.clone();
        others.retain(|slot| *slot != target && *slot != cx.me());
        for _ in 0..self.settings.helpers.min(others.len()) {
            let pick = usize::try_from(below(cx.rng(), others.len() as u64)).unwrap_or(0);
            let helper = others.swap_remove(pick);
            self.say(Dest::One(helper), PROBE_FOR, nonce, target, cx);
        }
    }

    /// Asks a process how it is; returns the number of the question.
    fn ask(&mut self, target: Slot, cx: &mut Ctx<'_>) -> u64 {
        self.nonce += 1;
        let nonce = self.nonce;
        if let Some(peer) = self.peers.get_mut(&target) {
            peer.round_trip.asked = (nonce, cx.now());
        }
        self.say(Dest::One(target), HOW_ARE_YOU, nonce, target, cx);
        nonce
    }

    /// A process is missed, and has been asked: so are all that were silent for longer than a heartbeat takes.
    fn roll_call(&mut self, missed: Slot, cx: &mut Ctx<'_>) {
        let (now, beat) = (cx.now(), self.beat());
        let silent =
            |peer: &Peer| !peer.fresh && peer.doubt == Doubt::None && now.since(peer.heard) > beat;
        let silent = self.peers.iter().filter(|(_, peer)| silent(peer));
        let called: Vec<(Slot, u64)> =
            silent.map(|(slot, peer)| (*slot, self.patience(peer).1)).collect();
        for (slot, asking) in called {
            if let Some(peer) = self.peers.get_mut(&slot) {
                peer.doubt = Doubt::Probing(now.after(asking));
            }
            if slot != missed {
                self.ask(slot, cx);
            }
        }
    }

    /// Measures round trips that are not known of late.
    fn measure(&mut self, cx: &mut Ctx<'_>) {
        let (now, period) = (cx.now(), nanoseconds(self.settings.period));
        let due = |peer: &Peer| !peer.fresh && peer.round_trip.is_due(now, period);
        let due = self.peers.iter().filter(|(_, peer)| due(peer)).map(|(slot, _)| *slot);
        for slot in due.collect::<Vec<_>>() {
            self.ask(slot, cx);
        }
    }

    /// An answer has come: it measures the round trip, unless this process has stood still meanwhile.
    fn measured(&mut self, from: Slot, nonce: u64, cx: &mut Ctx<'_>) {
        let (now, usable) = (cx.now(), self.is_ring() && self.health == 1);
        let peer = self.peers.get_mut(&from);
        let Some(peer) = peer.filter(|peer| usable && peer.round_trip.asked.0 == nonce) else {
            return;
        };
        peer.round_trip.take(now.since(peer.round_trip.asked.1));
        let longest_ns = self.peers.values().map(|peer| peer.round_trip.ns()).max().unwrap_or(0);
        if longest_ns.abs_diff(self.told_ns) > MS.max(self.told_ns / 4) {
            self.told_ns = longest_ns;
            cx.log(Level::Info, DetectorEvent::RoundTrips { longest_ns });
            for layer in ["log", "membership", "overlay", "experiment"] {
                cx.call(layer, Box::new(RoundTrip(longest_ns)));
            }
        }
    }

    fn own_message(&mut self, message: &Message, cx: &mut Ctx<'_>) {
        let body = &message.body;
        let (Some(nonce), Some(slot)) = (
            body.get(..8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes),
            body.get(8..12).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes),
        ) else {
            cx.log(Level::Warning, RuntimeEvent::MalformedMessage { ty: message.ty });
            return;
        };
        let (from, about) = (message.src, Slot(slot));
        match message.ty {
            HOW_ARE_YOU => self.say(Dest::One(from), I_AM_FINE, nonce, cx.me(), cx),
            PROBE_FOR => {
                if self.probes.len() == MOST_PROBES {
                    self.probes.pop_front();
                }
                // With a ring all members are told, and those that watch it ask it.
                if !self.is_ring() || self.peers.contains_key(&about) {
                    self.nonce += 1;
                    self.probes.push_back((self.nonce, about, from));
                    self.say(Dest::One(about), HOW_ARE_YOU, self.nonce, about, cx);
                }
                if self.is_ring() {
                    self.roll_call(about, cx);
                }
            }
            I_AM_FINE => {
                self.measured(from, nonce, cx);
                let asked =
                    self.probes.iter().position(|probe| (probe.0, probe.1) == (nonce, from));
                if let Some((nonce, target, asker)) = asked.and_then(|at| self.probes.remove(at)) {
                    self.say(Dest::One(asker), PROBE_RESULT, nonce, target, cx);
                }
            }
            PROBE_RESULT => {
                // It is alive, only the way between the two is bad: no reason to exclude it.
                if let Some(peer) = self.peers.get_mut(&about)
                    && matches!(peer.doubt, Doubt::Probing(_))
                {
                    cx.sometimes(DetectorEvent::HelperReached);
                    peer.doubt = Doubt::None;
                    peer.heard = cx.now();
                }
            }
            _ => {}
        }
    }
}

impl Layer for Detector {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let due = cx.now() + self.settings.period;
        self.tick = Some((cx.set_timer(due), due));
    }

    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let now = cx.now();
        match &message.dst {
            Dest::One(slot) => {
                if let Some(sent) = self.observers.get_mut(slot) {
                    *sent = now;
                }
            }
            Dest::Many(slots) => {
                for slot in slots.iter() {
                    if let Some(sent) = self.observers.get_mut(slot) {
                        *sent = now;
                    }
                }
            }
            Dest::All | Dest::AllButMe => self.observers.values_mut().for_each(|sent| *sent = now),
            Dest::View => {}
        }
        cx.down(message);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.heard(message.src, cx);
        if (HEARTBEAT..=PROBE_RESULT).contains(&message.ty) {
            self.own_message(&message, cx);
        } else {
            cx.up(message);
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        let Some((_, due)) = self.tick.filter(|(tick, _)| *tick == id) else { return };
        let (now, period) = (cx.now(), nanoseconds(self.settings.period));
        let late = now.since(due);
        if late > period {
            // This process has stood still: what it has not heard says nothing about others.
            cx.sometimes(DetectorEvent::OwnTimersLate);
            self.health = (1 + late / period).min(MOST_HEALTH);
            cx.log(Level::Info, DetectorEvent::Slow { late_ns: late, health: self.health });
            for peer in self.peers.values_mut() {
                peer.heard = peer.heard.max(Time(now.0.saturating_sub(period)));
            }
        } else {
            self.health = (self.health - 1).max(1);
        }
        let (soon, beat) = (now.after(period / 2), self.beat());
        let silent = self.observers.iter_mut().filter(|(_, sent)| sent.after(beat) <= soon);
        let to: Vec<Slot> = silent
            .map(|(slot, sent)| {
                *sent = now;
                *slot
            })
            .collect();
        if !to.is_empty() {
            self.say(Dest::Many(to.into()), HEARTBEAT, 0, cx.me(), cx);
        }
        self.check(cx);
        if self.is_ring() {
            self.measure(cx);
        }
        let due = now.after(period);
        self.tick = Some((cx.set_timer(due), due));
    }

    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {
        if let Some(watch) = what.downcast_ref::<Watch>() {
            self.watch(watch, cx.now());
        }
        if let Some(Injected::Refused(slot)) = what.downcast_ref::<Injected>() {
            // No silence has to be waited for.
            let now = cx.now();
            if let Some(peer) = self.peers.get_mut(slot) {
                peer.rotated.get_or_insert(now);
                peer.doubt = Doubt::Reported;
            }
            cx.log(Level::Info, DetectorEvent::Refused { slot: *slot });
            cx.call("log", Box::new(Injected::Suspect(*slot)));
            cx.call("membership", Box::new(MembershipRequest::Suspect(*slot, Evidence::Reset)));
        }
        // A simulation makes it suspect, at once and on the level `rotate`.
        if let Some(Injected::Suspect(slot)) = what.downcast_ref::<Injected>() {
            cx.sometimes(RuntimeEvent::SuspicionTaken);
            cx.call("log", Box::new(Injected::Suspect(*slot)));
        }
    }

    fn takes_suspicions(&self) -> bool {
        true
    }

    fn on_stop(&mut self, _why: itg_process::StopReason, cx: &mut Ctx<'_>) {
        let Quality { mistakes, mistaken_ns, between_ns, between } = self.quality;
        let mean = |sum: u64, count: u64| sum.checked_div(count).unwrap_or(0);
        let (mistake_ns, recurrence_ns) = (mean(mistaken_ns, mistakes), mean(between_ns, between));
        cx.log(Level::Info, DetectorEvent::Quality { mistakes, mistake_ns, recurrence_ns });
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[HEARTBEAT..=PROBE_RESULT]
    }
}

/// The registry with the layer `detector`. Parameters: `period` (50ms), `floor` (10ms), `exclude` (3s),
/// `probe` (500ms), `helpers` (3), `ring` (0s), `net` (0).
#[must_use]
pub fn layers(registry: Registry) -> Registry {
    registry.with("detector", |build| {
        let (usual, params) = (Settings::default(), &mut *build.params);
        let settings = Settings {
            period: params.duration("period", usual.period)?.max(Duration::from_nanos(1)),
            floor: params.duration("floor", usual.floor)?,
            exclude: params.duration("exclude", usual.exclude)?,
            probe: params.duration("probe", usual.probe)?,
            helpers: usize::try_from(params.number("helpers", 3)?).unwrap_or(usize::MAX),
            ring: params.duration("ring", usual.ring)?,
            #[cfg(debug_assertions)]
            joiner_counts_at_once: params.flag("mutant_22", false)?,
        };
        let net = u8::try_from(params.number("net", 0)?).unwrap_or(u8::MAX);
        Ok(Box::new(Detector::new(settings, NetId(net))) as Box<dyn Layer>)
    })
}
