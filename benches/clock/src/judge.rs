//! Judgement of one case: the product's estimate against the truth, and against the best.

use itg_clocks::{ClockModel, estimate};
use itg_stats::report::{BasisKind, ClockReport, DelayBasis};

use crate::best::Best;
use crate::kinds;
use crate::random::Random;
use crate::world::World;

/// Instants at which the offset is compared.
const INSTANTS: u32 = 400;
/// Instants at which the bound is compared with the best one.
const LOOKS: u32 = 9;
/// Slack for rounding, ns.
const ROUNDING_NS: f64 = 3.0;
/// Allowance of a report for the time between reading the clock and handing the packet over, ns.
const HANDING_OVER_NS: f64 = 1_000.0;

/// Meaning that a report gives to the delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Basis {
    Absolute,
    Relative,
    /// No estimate.
    Unknown,
}

/// Findings on a case.
#[derive(Clone, Debug)]
pub(crate) struct Judged {
    pub(crate) basis: Basis,
    /// True if no probe shows a step that a clock made.
    pub(crate) unseen: bool,
    /// The instant at which the truth is farthest outside: share of the run, error and bound in ns.
    pub(crate) worst: Option<(f64, f64, f64)>,
    /// The same for the delays of packets, against the bound in the report.
    pub(crate) worst_packet: Option<(f64, f64, f64)>,
    /// Median over the run of bound / best bound.
    pub(crate) ratio: Option<f64>,
}

impl Judged {
    pub(crate) fn held(&self) -> bool {
        self.worst.is_none() && self.worst_packet.is_none()
    }
}

/// Draws a case and judges it.
pub(crate) fn judge(kind: &str, seed: u64, case: u64) -> Judged {
    let mut random = Random::of(seed, kind, case);
    let setting = kinds::draw(kind, &mut random);
    let world = World::new(setting, &mut random);
    let probes: Vec<_> = world.probes.iter().map(|timed| timed.probe).collect();
    let unseen = world.has_unseen_steps();
    let Some(model) = estimate(&probes) else {
        return Judged {
            basis: Basis::Unknown,
            unseen,
            worst: None,
            worst_packet: None,
            ratio: None,
        };
    };
    let seconds = world.setting.seconds;
    let mut worst = None;
    for i in 0..=INSTANTS {
        let share = f64::from(i) / f64::from(INSTANTS);
        let at = seconds * share;
        if world.stands_still(at) {
            continue;
        }
        let (error, bound) = instant(&world, &model, at);
        note(&mut worst, share, error, bound + ROUNDING_NS);
    }
    let (basis, worst_packet) = packets(&world, &model);
    Judged { basis, unseen, worst, worst_packet, ratio: ratio(&world, &model) }
}

/// Keeps what is farthest outside its bound.
fn note(worst: &mut Option<(f64, f64, f64)>, share: f64, error: f64, bound: f64) {
    if error > bound && worst.is_none_or(|(_, e, b)| error - bound > e - b) {
        *worst = Some((share, error, bound));
    }
}

/// Error of the estimate at a true time, and its bound.
fn instant(world: &World, model: &ClockModel, at: f64) -> (f64, f64) {
    let shown = world.unix(0, at);
    let off = (i128::from(model.offset_at(shown)) - world.epochs_apart()) as f64 - world.moved(at);
    (off.abs(), model.bound_at(shown) as f64)
}

fn packets(world: &World, model: &ClockModel) -> (Basis, Option<(f64, f64, f64)>) {
    let sent = || world.packets.iter().map(|packet| packet.sent);
    let (first, last) = (sent().min().unwrap_or(0), sent().max().unwrap_or(0));
    let report = ClockReport::new(model, false, first, last);
    let mut delays: Vec<i64> = Vec::new();
    let mut worst = None;
    let all = world.packets.len() as f64;
    for (i, packet) in world.packets.iter().enumerate() {
        let delay = i128::from(packet.arrived)
            - i128::from(packet.sent)
            - i128::from(model.offset_at(packet.sent));
        delays.push(i64::try_from(delay).unwrap_or(i64::MAX));
        let error = (delay as f64 - packet.delay_ns).abs();
        note(&mut worst, i as f64 / all, error, report.bound_ns as f64 + HANDING_OVER_NS);
    }
    delays.sort_unstable();
    let median = delays.get(delays.len() / 2).copied().unwrap_or(0);
    if DelayBasis::corrected(report.bound_ns, median).kind == BasisKind::Absolute {
        (Basis::Absolute, worst)
    } else {
        (Basis::Relative, None)
    }
}

fn ratio(world: &World, model: &ClockModel) -> Option<f64> {
    let bests = Best::all(world);
    let mut ratios: Vec<f64> = Vec::new();
    for i in 0..=LOOKS {
        let at = world.setting.seconds * f64::from(i) / f64::from(LOOKS);
        if world.stands_still(at) {
            continue;
        }
        if let Some(best) = bests.iter().find(|best| best.holds(at)) {
            ratios.push(model.bound_at(world.unix(0, at)) as f64 / best.half_at(at).max(1.0));
        }
    }
    ratios.sort_by(f64::total_cmp);
    ratios.get(ratios.len() / 2).copied()
}
