//! Two clocks, a network between them, and the best that probes over it can say.

use itg_clocks::Probe;

/// SplitMix64 and what is drawn from it.
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF1)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn between(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in the logarithm.
    pub(crate) fn scale(&mut self, low: f64, high: f64) -> f64 {
        self.between(low.ln(), high.ln()).exp()
    }

    fn sign(&mut self) -> f64 {
        if self.unit() < 0.5 { -1.0 } else { 1.0 }
    }

    fn exp(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }
}

/// Queueing in one direction, in ns.
#[derive(Clone, Copy)]
enum Queue {
    None,
    Exponential(f64),
    Pareto(f64),
    /// Loaded most of the time.
    Loaded(f64),
}

impl Queue {
    fn draw(self, rng: &mut Rng) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Exponential(mean) => rng.exp(mean),
            Self::Pareto(scale) => scale * ((1.0 - rng.unit()).powf(-1.0 / 1.5) - 1.0),
            Self::Loaded(mean) if rng.unit() < 0.9 => mean + rng.exp(mean),
            Self::Loaded(mean) => rng.exp(mean),
        }
    }
}

/// Parameters of a world.
#[derive(Clone)]
pub(crate) struct Setting {
    seconds: f64,
    /// Of sender and receiver against true time.
    drift_ppm: [f64; 2],
    /// Random walk of the drifts, ppm per square root of a second.
    walk_ppm: f64,
    /// Fixed delay there and back, ns.
    base: [f64; 2],
    queue: [Queue; 2],
    /// True seconds, host (0 sender, 1 receiver), ns.
    steps: Vec<(f64, usize, f64)>,
    /// True if the monotonic clocks show steps.
    seen: bool,
}

impl Setting {
    pub(crate) fn drifting(rng: &mut Rng) -> Self {
        let drift_ppm = rng.between(-100.0, 100.0);
        let share = rng.unit();
        let base = [rng.scale(5e3, 2e7), rng.scale(5e3, 2e7)];
        let mean = rng.scale(5e3, 5e6);
        let queue = match (rng.unit() * 5.0) as u32 {
            0 => [Queue::None, Queue::None],
            1 => [Queue::Exponential(mean), Queue::Exponential(mean * 0.7)],
            2 => [Queue::Pareto(mean), Queue::Pareto(mean)],
            3 => [Queue::Loaded(mean), Queue::Exponential(5e3)],
            _ => [Queue::Exponential(5e3), Queue::Loaded(mean)],
        };
        let seconds = rng.between(3.0, 60.0);
        let drift_ppm = [-drift_ppm * share, drift_ppm * (1.0 - share)];
        Self { seconds, drift_ppm, walk_ppm: 0.0, base, queue, steps: Vec::new(), seen: true }
    }

    /// One or two steps of 20 µs to 10 s.
    pub(crate) fn stepping(rng: &mut Rng) -> Self {
        let mut setting = Self::drifting(rng);
        setting.step(rng, 2e4, 1e10);
        setting
    }

    /// Steps that are larger than what the network hides and that the monotonic clocks share, as when
    /// a virtual machine is moved: these do not run backwards at the sender, which orders the probes.
    pub(crate) fn stepping_unseen(rng: &mut Rng) -> Self {
        let mut setting = Self::drifting(rng);
        setting.seen = false;
        let hidden = setting.base.iter().sum::<f64>() + 2e5;
        for queue in &mut setting.queue {
            if let Queue::Pareto(scale) | Queue::Loaded(scale) | Queue::Exponential(scale) = queue {
                *scale = scale.min(1e5);
            }
        }
        setting.step(rng, 3.0 * hidden, 1e10);
        for (_, host, by) in &mut setting.steps {
            *by = if *host == 0 { by.abs() } else { *by };
        }
        setting
    }

    pub(crate) fn lasting(self, seconds: f64) -> Self {
        Self { seconds, ..self }
    }

    pub(crate) fn wandering(rng: &mut Rng) -> Self {
        Self { walk_ppm: 0.01, ..Self::drifting(rng) }.lasting(200.0)
    }

    fn step(&mut self, rng: &mut Rng, least: f64, most: f64) {
        let mut at = self.seconds * rng.between(0.1, 0.5);
        while at < self.seconds * 0.9 {
            let by = rng.sign() * rng.scale(least, most);
            self.steps.push((at, usize::from(rng.unit() < 0.5), by));
            at += self.seconds * rng.between(0.3, 0.6);
        }
    }

    /// Of the receiver's clock against the sender's, per second of the sender's.
    pub(crate) fn skew_ppm(&self) -> f64 {
        let [sender, receiver] = self.drift_ppm.map(|ppm| 1.0 + ppm / 1e6);
        (receiver / sender - 1.0) * 1e6
    }
}

const START: i128 = 1_700_000_000_000_000_000;
/// Grid on which drifts walk.
const TICK: f64 = 0.1;

pub(crate) struct World {
    pub(crate) probes: Vec<Probe>,
    /// True time at which each probe left and its answer came, seconds.
    times: Vec<(f64, f64)>,
    setting: Setting,
    epochs: [i128; 2],
    /// Nanoseconds gained by each host's clock at each tick.
    gained: [Vec<f64>; 2],
}

impl World {
    pub(crate) fn new(setting: &Setting, rng: &mut Rng) -> Self {
        let apart = (rng.sign() * rng.scale(1.0, 1e17)) as i128;
        let ticks = (setting.seconds / TICK) as usize + 60;
        let gained = setting.drift_ppm.map(|mut ppm| {
            let mut gained = vec![0.0];
            for i in 0..ticks {
                gained.push(gained[i] + ppm * 1e3 * TICK);
                ppm += setting.walk_ppm * TICK.sqrt() * (rng.unit() - 0.5) * 12f64.sqrt();
            }
            gained
        });
        let mut world = Self {
            probes: Vec::new(),
            times: Vec::new(),
            setting: setting.clone(),
            epochs: [START, START + apart],
            gained,
        };
        let mut at = 0.0;
        for _ in 0..16 {
            at = world.probe(at, rng) + 1e-5;
        }
        while at < setting.seconds {
            let next = at + 0.25;
            at = world.probe(at, rng).max(next);
        }
        for _ in 0..16 {
            at = world.probe(at, rng) + 1e-5;
        }
        world
    }

    /// A probe that leaves at a true time; returns when the answer came.
    fn probe(&mut self, at: f64, rng: &mut Rng) -> f64 {
        let [there, back] =
            [0, 1].map(|way| self.setting.base[way] + self.setting.queue[way].draw(rng));
        let came = at + there / 1e9;
        let answered = came + rng.exp(2e4) / 1e9;
        let home = answered + back / 1e9;
        let stamp = |world: &Self, host, at| u64::try_from(world.unix(host, at)).expect("in range");
        self.probes.push(Probe {
            sender_monotonic: self.monotonic(0, at),
            sent: stamp(self, 0, at),
            received: stamp(self, 1, came),
            replied: stamp(self, 1, answered),
            arrived: stamp(self, 0, home),
            receiver_monotonic: self.monotonic(1, answered),
        });
        self.times.push((at, home));
        home
    }

    /// Unix time of a host, ns, at a true time.
    fn unix(&self, host: usize, at: f64) -> i128 {
        let steps: f64 =
            self.setting.steps.iter().filter(|s| s.1 == host && s.0 <= at).map(|s| s.2).sum();
        self.epochs[host] + (at * 1e9 + self.gain(host, at) + steps) as i128
    }

    fn gain(&self, host: usize, at: f64) -> f64 {
        let gained = &self.gained[host];
        let tick = ((at / TICK) as usize).min(gained.len() - 2);
        gained[tick] + (gained[tick + 1] - gained[tick]) * (at / TICK - tick as f64)
    }

    fn monotonic(&self, host: usize, at: f64) -> u64 {
        let unix = self.unix(host, at) - self.epochs[host];
        let steps: f64 =
            self.setting.steps.iter().filter(|s| s.1 == host && s.0 <= at).map(|s| s.2).sum();
        let hidden = if self.setting.seen { steps as i128 } else { 0 };
        // Probes come in the order of this clock.
        u64::try_from(unix - hidden + 20_000_000_000).expect("in range")
    }

    /// The sender's clock and the offset of the receiver's at a share of the run.
    pub(crate) fn look(&self, share: f64) -> (u64, i128) {
        let at = self.setting.seconds * share;
        let sender = self.unix(0, at);
        (u64::try_from(sender).expect("in range"), self.unix(1, at) - sender)
    }

    /// Steps of the offset, ns.
    pub(crate) fn steps(&self) -> impl Iterator<Item = i64> + '_ {
        self.setting
            .steps
            .iter()
            .map(|&(_, host, by)| if host == 1 { by as i64 } else { -by as i64 })
    }

    /// The probes between steps, without those that may have been under way at a step.
    pub(crate) fn segments(&self) -> Vec<Vec<Probe>> {
        let steps = &self.setting.steps;
        let mut segments = vec![Vec::new()];
        let mut after = 0;
        for (probe, &(left, home)) in self.probes.iter().zip(&self.times) {
            let passed = steps.iter().filter(|step| step.0 <= left).count();
            let at_end = steps.iter().filter(|step| step.0 <= home).count();
            if passed != after {
                let set = |host| steps[after..passed].iter().any(|step| step.1 == host);
                if let (true, Some(before)) = (set(0), segments.last_mut()) {
                    before.pop();
                }
                segments.push(Vec::new());
                let doubtful = set(1);
                after = passed;
                if doubtful {
                    continue;
                }
            }
            if passed == at_end
                && let Some(segment) = segments.last_mut()
            {
                segment.push(*probe);
            }
        }
        segments
    }

    /// Returns true if an instant of the sender's clock is so near to a step that its side cannot
    /// be told.
    pub(crate) fn near_step(&self, unix: u64) -> bool {
        self.setting.steps.iter().any(|&(at, host, by)| {
            let there = self.unix(0, at);
            let room = 1e9 + if host == 0 { by.abs() } else { 0.0 };
            (i128::from(unix) - there).unsigned_abs() as f64 <= room
        })
    }
}

/// Best bounds from the probes of a time without steps: the linear programme over all lines, solved
/// by searching over slopes.
pub(crate) struct Best {
    from: u64,
    to: u64,
    /// Seconds, ns.
    above: Vec<(f64, f64)>,
    below: Vec<(f64, f64)>,
    slopes: (f64, f64),
    pub(crate) round_trip_ns: f64,
}

impl Best {
    pub(crate) fn of(probes: &[Probe]) -> Option<Self> {
        let (first, last) = (probes.first()?, probes.last()?);
        let offset = i128::from(first.received) - i128::from(first.sent);
        let seconds = |at: u64| (i128::from(at) - i128::from(first.sent)) as f64 / 1e9;
        let beyond = |a: u64, b: u64| (i128::from(a) - i128::from(b) - offset) as f64;
        let above = probes.iter().map(|p| (seconds(p.sent), beyond(p.received, p.sent) + 1.0));
        let below = probes.iter().map(|p| (seconds(p.arrived), beyond(p.replied, p.arrived) - 1.0));
        let mut best = Self {
            from: first.sent,
            to: last.arrived,
            above: above.collect(),
            below: below.collect(),
            slopes: (-1e6, 1e6),
            round_trip_ns: probes.iter().filter_map(Probe::round_trip_ns).min()? as f64,
        };
        let room = |slope: f64| best.ceiling(slope) - best.floor(slope);
        let top = highest(-1e6, 1e6, room);
        if room(top) < 0.0 {
            return None;
        }
        let edge = |mut outside: f64, mut inside: f64| {
            for _ in 0..100 {
                let middle = (outside + inside) / 2.0;
                if room(middle) >= 0.0 { inside = middle } else { outside = middle }
            }
            inside
        };
        best.slopes = (edge(-1e6, top), edge(1e6, top));
        Some(best)
    }

    fn ceiling(&self, slope: f64) -> f64 {
        self.above.iter().map(|&(t, v)| v - slope * t).fold(f64::INFINITY, f64::min)
    }

    fn floor(&self, slope: f64) -> f64 {
        self.below.iter().map(|&(t, v)| v - slope * t).fold(f64::NEG_INFINITY, f64::max)
    }

    pub(crate) fn instant(&self, share: f64) -> u64 {
        self.from + ((self.to - self.from) as f64 * share) as u64
    }

    /// Half the distance between the largest and the smallest possible offset, ns.
    pub(crate) fn half_at(&self, unix: u64) -> f64 {
        let t = (unix as i128 - self.from as i128) as f64 / 1e9;
        let (low, high) = self.slopes;
        let most = |slope: f64| self.ceiling(slope) + slope * t;
        let least = |slope: f64| -(self.floor(slope) + slope * t);
        (most(highest(low, high, most)) + least(highest(low, high, least))) / 2.0
    }
}

/// Argument at which a concave function is largest.
fn highest(mut low: f64, mut high: f64, value: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..120 {
        let (a, b) = (low + (high - low) / 3.0, high - (high - low) / 3.0);
        if value(a) < value(b) { low = a } else { high = b }
    }
    (low + high) / 2.0
}
