//! Two clocks and the path between them, whose truth is known, and the probes and packets that cross it.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of worlds that are made up here, far below the limits"
)]

use itg_clocks::Probe;

use crate::random::Random;

/// Unix time at which a run starts, in nanoseconds.
const START: i128 = 1_700_000_000_000_000_000;
/// Probes of a burst before and behind a run, as senders have them.
const BURST: usize = 16;
/// Time between two probes during a run, s.
const EVERY_S: f64 = 0.25;

/// A step of a clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump {
    /// True time, s.
    pub(super) at: f64,
    pub(super) by_ns: f64,
    /// True if the monotonic clock steps with it, as in a virtual machine that was moved or stood still.
    pub(super) hidden: bool,
}

/// A host: its clock and how busy it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// True times from which the clock gains so many ppm, in order.
    pub(super) rates: Vec<(f64, f64)>,
    pub(super) jumps: Vec<Jump>,
    /// Unit of its clock, ns.
    pub(super) tick_ns: f64,
    /// Share of actions that are held up, and the mean time, s.
    pub(super) busy: (f64, f64),
    /// True times between which it stands still.
    pub(super) pauses: Vec<(f64, f64)>,
}

/// Standing queue between two true times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bloat {
    pub(super) from: f64,
    pub(super) to: f64,
    /// Least delay, and the mean of what is on top, s.
    pub(super) floor: f64,
    pub(super) mean: f64,
}

/// One direction of the path.
#[derive(Clone, Debug, Default)]
pub(super) struct Way {
    /// True times from which the fixed delay is so many seconds, in order.
    pub(super) base: Vec<(f64, f64)>,
    /// Mean of the queue, s; heavy-tailed (Pareto, 1.5) where `heavy`.
    pub(super) queue: f64,
    pub(super) heavy: bool,
    pub(super) bloats: Vec<Bloat>,
}

/// Settings of a case.
#[derive(Clone, Debug, Default)]
pub(super) struct Setting {
    pub(super) seconds: f64,
    pub(super) hosts: [Host; 2],
    pub(super) ways: [Way; 2],
    /// True times between which no probe is answered.
    pub(super) silent: Vec<(f64, f64)>,
    /// Share of probes that are lost.
    pub(super) loss: f64,
    /// If not 0, only so many probes, at times of their own.
    pub(super) few: usize,
}

/// A probe with its true times, s: left, came, answered, back.
pub(super) struct Timed {
    pub(super) probe: Probe,
    pub(super) times: [f64; 4],
}

/// A packet: its stamps and its true delay.
pub(super) struct Packet {
    pub(super) sent: u64,
    pub(super) arrived: u64,
    pub(super) delay_ns: f64,
}

pub(super) struct World {
    pub(super) setting: Setting,
    /// In the order in which they were sent.
    pub(super) probes: Vec<Timed>,
    pub(super) packets: Vec<Packet>,
    /// Distance of the two clocks at the start, ns.
    apart: i128,
}

impl Host {
    /// Nanoseconds that the clock has gained on true time without its steps.
    pub(super) fn gain(&self, at: f64) -> f64 {
        let ends = self.rates.iter().skip(1).map(|rate| rate.0).chain([f64::INFINITY]);
        let parts = self.rates.iter().zip(ends);
        parts.map(|(&(from, ppm), to)| (at.min(to) - from).max(0.0) * ppm * 1e3).sum()
    }

    fn jumped(&self, at: f64, hidden_only: bool) -> f64 {
        let past = self.jumps.iter().filter(|jump| jump.at <= at && (jump.hidden || !hidden_only));
        past.map(|jump| jump.by_ns).sum()
    }

    /// Nanoseconds since the start.
    fn shows(&self, at: f64, hidden_only: bool) -> f64 {
        at * 1e9 + self.gain(at) + self.jumped(at, hidden_only)
    }

    /// The time at which something can be done that is due at `at`.
    fn free(&self, at: f64, random: &mut Random) -> f64 {
        let held = if random.happens(self.busy.0) { random.exponential(self.busy.1) } else { 0.0 };
        self.awake(at + held)
    }

    fn awake(&self, at: f64) -> f64 {
        self.pauses
            .iter()
            .fold(at, |at, &(from, to)| if (from..to).contains(&at) { to } else { at })
    }
}

impl Way {
    fn delay(&self, at: f64, random: &mut Random) -> f64 {
        let base = self.base.iter().rfind(|base| base.0 <= at).or_else(|| self.base.first());
        let queue = if self.heavy {
            self.queue * (random.unit().powf(-1.0 / 1.5) - 1.0) / 2.0
        } else {
            random.exponential(self.queue)
        };
        let over = self.bloats.iter().filter(|bloat| (bloat.from..bloat.to).contains(&at));
        let bloat: f64 = over.map(|bloat| bloat.floor + random.exponential(bloat.mean)).sum();
        // No queue is longer than two seconds.
        base.map_or(0.0, |base| base.1) + (queue + bloat).min(2.0)
    }
}

impl World {
    pub(super) fn new(setting: Setting, random: &mut Random) -> Self {
        let apart = (random.sign() * random.scale(1.0, 1e17)) as i128;
        let mut world = Self { setting, probes: Vec::new(), packets: Vec::new(), apart };
        let seconds = world.setting.seconds;
        if world.setting.few > 0 {
            let mut times: Vec<f64> =
                (0..world.setting.few).map(|_| random.between(0.0, seconds)).collect();
            times.sort_by(f64::total_cmp);
            let mut next = 0.0;
            for at in times {
                next = world.probe(at.max(next), true, random) + 1e-6;
            }
        } else {
            world.senders_probes(random);
        }
        for i in 0..200 {
            world.packet(seconds * f64::from(i) / 199.0, random);
        }
        world
    }

    /// Probes as a sender has them: a burst, four a second, a burst.
    fn senders_probes(&mut self, random: &mut Random) {
        let mut at = -0.1;
        for _ in 0..BURST {
            at = self.probe(at, false, random) + 1e-5;
        }
        at = 0.0;
        while at < self.setting.seconds {
            self.probe(at, false, random);
            at += EVERY_S;
        }
        for _ in 0..BURST {
            at = self.probe(at, false, random) + 1e-5;
        }
    }

    /// A probe that is due at a true time; returns when its answer came.
    fn probe(&mut self, due: f64, sure: bool, random: &mut Random) -> f64 {
        let before = self.probes.last().map_or([f64::NEG_INFINITY; 4], |timed| timed.times);
        let setting = &self.setting;
        let [sender, receiver] = &setting.hosts;
        let left = sender.awake(due.max(before[0] + 1e-6));
        // Between stamp and departure, as between arrival and stamp, a host may be busy. Probes keep their order.
        let came = sender.free(left, random);
        let came = (came + setting.ways[0].delay(came, random)).max(before[1]);
        let came = receiver.free(came, random);
        let answered = receiver.free(came + random.exponential(2e-5), random).max(before[2] + 1e-7);
        let back = receiver.free(answered, random);
        let back = (back + setting.ways[1].delay(back, random)).max(before[3]);
        let back = sender.free(back, random);
        let silent = setting.silent.iter().any(|&(from, to)| (from..to).contains(&left));
        if sure || !(silent || random.happens(setting.loss)) {
            let probe = Probe {
                sender_monotonic: self.monotonic(0, left, random),
                sent: self.unix(0, left),
                received: self.unix(1, came),
                replied: self.unix(1, answered),
                arrived: self.unix(0, back),
                receiver_monotonic: self.monotonic(1, answered, random),
            };
            self.probes.push(Timed { probe, times: [left, came, answered, back] });
        }
        back
    }

    fn packet(&mut self, due: f64, random: &mut Random) {
        let [sender, receiver] = &self.setting.hosts;
        let left = sender.awake(due);
        let came = receiver.awake(left + self.setting.ways[0].delay(left, random));
        let (sent, arrived) = (self.unix(0, left), self.unix(1, came));
        self.packets.push(Packet { sent, arrived, delay_ns: (came - left) * 1e9 });
    }

    /// Returns true if a step is in no probe: a host's clock was set twice between two of them, or before the first, or
    /// behind the last, or its monotonic clock was set with it.
    pub(super) fn has_unseen_steps(&self) -> bool {
        let instants = |host: usize| {
            let good = self.probes.iter().filter(|timed| timed.probe.round_trip_ns().is_some());
            let times = good.map(|timed| timed.times);
            times.map(move |[left, _, answered, _]| if host == 0 { left } else { answered })
        };
        self.setting.hosts.iter().enumerate().any(|(host, here)| {
            let before = |jump: &Jump| instants(host).filter(|&at| at < jump.at).count();
            let gaps: Vec<usize> = here.jumps.iter().map(before).collect();
            here.jumps.iter().any(|jump| jump.hidden)
                || gaps.windows(2).any(|pair| pair[0] == pair[1])
                || gaps.iter().any(|&gap| gap == 0 || gap == instants(host).count())
        })
    }

    /// Returns true if one of the hosts does nothing at a true time.
    pub(super) fn stands_still(&self, at: f64) -> bool {
        self.setting.hosts.iter().any(|host| host.awake(at) > at)
    }

    /// Unix time that a host shows, ns.
    pub(super) fn unix(&self, host: usize, at: f64) -> u64 {
        let tick = self.setting.hosts[host].tick_ns.max(1.0);
        let shown = self.shown(host, at);
        u64::try_from((shown as f64 / tick).floor() as i128 * tick as i128 + self.epoch(host))
            .expect("in range")
    }

    fn shown(&self, host: usize, at: f64) -> i128 {
        self.setting.hosts[host].shows(at, false) as i128
    }

    fn epoch(&self, host: usize) -> i128 {
        let tick = self.setting.hosts[host].tick_ns.max(1.0) as i128;
        (START + if host == 1 { self.apart } else { 0 }).div_euclid(tick) * tick
    }

    /// Monotonic time: the sender's starts with 100 s. A busy host's pair of readings may be taken apart.
    fn monotonic(&self, host: usize, at: f64, random: &mut Random) -> u64 {
        let here = &self.setting.hosts[host];
        let off = if random.happens(here.busy.0 / 20.0) { random.between(-3e4, 3e4) } else { 0.0 };
        let tick = here.tick_ns.max(1.0);
        u64::try_from(((here.shows(at, true) + 1e11 + off) / tick).floor() as i128 * tick as i128)
            .expect("in range")
    }

    /// Offset of the receiver's clock at a true time beyond that at the start, ns: small enough to be exact.
    pub(super) fn moved(&self, at: f64) -> f64 {
        let [a, b] = &self.setting.hosts;
        b.shows(at, false) - a.shows(at, false)
    }

    /// Offset at the start, ns.
    pub(super) fn epochs_apart(&self) -> i128 {
        self.epoch(1) - self.epoch(0)
    }
}
