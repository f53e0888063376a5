//! Swarm testing: each seed draws its own kinds of faults and how hard they hit.
//!
//! Source: Groce, Zhang, Eide, Chen, Regehr, *Swarm testing*, ISSTA 2012. The ranges are those of the
//! fault matrix; the rates are such that a minute has some faults of each kind that was drawn.

use std::fmt;

use chacha20::ChaCha8Rng;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, happens};
use itg_process::{Injected, MS, SECOND, Slot};

use crate::faults::{DiskFault, Fault, LinkFaults};

/// A kind of fault that a swarm may draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// F1.
    Crash,
    /// F2, F3.
    Recover,
    /// F4.
    Pause,
    /// F5.
    Slow,
    /// F6.
    Partition,
    /// F7.
    Cut,
    /// F8.
    Flip,
    /// F9.
    Loss,
    /// F10.
    Spikes,
    /// F11.
    Reorder,
    /// F12.
    Reset,
    /// F13.
    Damage,
    /// F14.
    Clocks,
    /// F15.
    Bandwidth,
    /// F16.
    Suspicion,
    /// F22.
    Refusal,
    /// F17: for worlds with disks; not one of [`Kind::ALL`].
    Disk,
}

impl Kind {
    /// All kinds that every world has.
    pub const ALL: [Self; 16] = [
        Self::Crash,
        Self::Recover,
        Self::Pause,
        Self::Slow,
        Self::Partition,
        Self::Cut,
        Self::Flip,
        Self::Loss,
        Self::Spikes,
        Self::Reorder,
        Self::Reset,
        Self::Damage,
        Self::Clocks,
        Self::Bandwidth,
        Self::Suspicion,
        Self::Refusal,
    ];
}

/// Faults that a seed has drawn.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Swarm {
    /// The kinds of faults.
    pub kinds: Vec<Kind>,
    /// The faults and their times, in nanoseconds.
    pub faults: Vec<(u64, Fault)>,
    /// Probability of rare but legal behaviour of layers, in parts of a million.
    pub buggify: u32,
}

impl fmt::Display for Swarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kinds, count) = (&self.kinds, self.faults.len());
        write!(f, "kinds={kinds:?} faults={count} buggify={}", self.buggify)
    }
}

/// A swarm of faults under construction.
struct Drawing {
    rng: ChaCha8Rng,
    processes: u32,
    until: u64,
    faults: Vec<(u64, Fault)>,
}

impl Swarm {
    /// The faults of this seed, before virtual time `until`, of some of the `allowed` kinds. Process
    /// `spared` neither crashes nor pauses nor gets slow; `detector` is the layer that takes
    /// [`Injected::Suspect`]; empty stands for all that do.
    #[must_use]
    pub fn draw(
        seed: RunSeed,
        processes: u32,
        until: u64,
        allowed: &[Kind],
        spared: Option<Slot>,
        detector: &'static str,
    ) -> Self {
        let rng = seed.named("swarm");
        let mut drawing = Drawing { rng, processes, until, faults: Vec::new() };
        let mut kinds = Vec::new();
        for &kind in Kind::ALL.iter().chain(&[Kind::Disk]).filter(|kind| allowed.contains(kind)) {
            if happens(&mut drawing.rng, 400_000) {
                kinds.push(kind);
            }
        }
        drawing.links(&kinds);
        for &kind in &kinds {
            drawing.add(kind, spared, detector);
        }
        let buggify = [0, 1_000, 50_000][drawing.pick(3)];
        let mut faults = drawing.faults;
        // Stable: the end of a fault that was drawn later stays behind its beginning.
        faults.sort_by_key(|(at, _)| *at);
        Self { kinds, faults, buggify }
    }
}

impl Drawing {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.rng, bound)
    }

    fn pick(&mut self, bound: usize) -> usize {
        usize::try_from(self.below(bound as u64)).unwrap_or(0)
    }

    fn parts(&mut self, most: u32) -> u32 {
        u32::try_from(self.below(u64::from(most) + 1)).unwrap_or(0)
    }

    fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    fn slot(&mut self, spared: Option<Slot>) -> Slot {
        loop {
            let slot = Slot(self.parts(self.processes - 1));
            if Some(slot) != spared || self.processes == 1 {
                return slot;
            }
        }
    }

    fn at(&mut self) -> u64 {
        self.below(self.until)
    }

    /// Link faults change once or twice in a run.
    fn links(&mut self, kinds: &[Kind]) {
        for _ in 0..2 {
            let has = |kind| kinds.contains(&kind);
            let mut links = LinkFaults { late_ns: 100 * MS, ..LinkFaults::default() };
            let mut any = false;
            for kind in [Kind::Loss, Kind::Spikes, Kind::Reorder, Kind::Damage, Kind::Bandwidth] {
                if !has(kind) {
                    continue;
                }
                any = true;
                match kind {
                    Kind::Loss => links.loss = self.parts(300_000),
                    Kind::Spikes => {
                        links.spike = self.parts(50_000);
                        links.spike_ns = self.between(MS, 5 * SECOND);
                    }
                    Kind::Reorder => {
                        links.reorder = self.parts(500_000);
                        links.duplicate = self.parts(500_000);
                    }
                    Kind::Damage => links.damage = self.parts(10_000),
                    _ => links.rate = self.between(64_000, 10_000_000),
                }
            }
            if any {
                let at = self.below(self.until / 2);
                self.faults.push((at, Fault::Links(0, links)));
            }
        }
    }

    fn add(&mut self, kind: Kind, spared: Option<Slot>, detector: &'static str) {
        let count = 1 + self.below(4);
        for _ in 0..count {
            let at = self.at();
            let slot = self.slot(spared);
            let other = self.slot(Some(slot));
            let (faults, until) = (&mut Vec::new(), self.until);
            match kind {
                Kind::Crash => faults.push((at, Fault::Crash(slot))),
                Kind::Recover => {
                    let down = self.between(MS, 20 * SECOND);
                    faults.push((at, Fault::Crash(slot)));
                    faults.push((at + down, Fault::Recover(slot)));
                }
                Kind::Pause => {
                    let time = self.between(10 * MS, 10 * SECOND);
                    faults.push((at, Fault::Pause(slot, time)));
                }
                Kind::Slow => {
                    let cost = self.between(20_000, 10 * MS);
                    faults.push((at, Fault::Slow(slot, cost)));
                    faults.push((at + self.between(MS, 10 * SECOND), Fault::Slow(slot, 0)));
                }
                Kind::Partition => {
                    let hold = self.between(100 * MS, 10 * SECOND);
                    let groups = (0..self.processes).map(|_| self.pick(2)).collect::<Vec<_>>();
                    let groups = groups.into_iter().map(|g| u8::try_from(g).unwrap_or(0)).collect();
                    faults.push((at, Fault::Partition(groups)));
                    faults.push((at + hold, Fault::Partition(Vec::new())));
                }
                Kind::Cut => {
                    faults.push((at, Fault::Cut(slot, other)));
                    faults.push((at + self.between(MS, 10 * SECOND), Fault::Mend(slot, other)));
                }
                Kind::Flip => {
                    let period = self.between(100 * MS, 5 * SECOND);
                    for k in 0..6 {
                        let at = at + k * period;
                        faults.push((at, Fault::Cut(slot, other)));
                        faults.push((at + period / 2, Fault::Mend(slot, other)));
                    }
                }
                Kind::Loss => {
                    faults.push((at, Fault::Lossy(slot, 800_000)));
                    faults.push((at + self.between(MS, 5 * SECOND), Fault::Lossy(slot, 0)));
                }
                Kind::Reset => faults.push((at, Fault::Reset(slot, other))),
                Kind::Clocks => {
                    let ppm = i32::try_from(self.below(1001)).unwrap_or(0) - 500;
                    let jump = self.below(2) * self.below(10 * SECOND);
                    faults.push((at, Fault::Clock(slot, ppm, jump)));
                }
                Kind::Suspicion => {
                    // The observer need not be one that may crash.
                    let observer = self.slot(None);
                    let fault = match detector {
                        "" => Fault::Suspect(observer, other),
                        layer => Fault::Inject(observer, layer, Injected::Suspect(other)),
                    };
                    faults.push((at, fault));
                }
                Kind::Refusal => {
                    let time = self.between(MS, 2 * SECOND);
                    faults.push((at, Fault::Refuse(slot, time)));
                }
                Kind::Disk => {
                    let time = self.between(MS, 3 * SECOND);
                    let fault =
                        [DiskFault::Full(time), DiskFault::Slow(time / 10), DiskFault::Lost];
                    faults.push((at, Fault::Disk(slot, fault[self.pick(3)])));
                }
                Kind::Spikes | Kind::Reorder | Kind::Damage | Kind::Bandwidth => {}
            }
            // What begins before the end of the phase may end after it: healing ends it then.
            self.faults.extend(faults.drain(..).filter(|(at, _)| *at < until));
        }
    }
}
