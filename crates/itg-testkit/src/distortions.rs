//! Made traffic: packets as planned, and packets that left otherwise in a known way.
//!
//! Each distortion moves departures so that the inter-departure times are off by a share of their mean on
//! average; sizes, that this share of the packets has another one's size. Those of a generator are planned
//! wrongly, and sent as planned.

use itg_core::flow::{Flow, FlowSpec};
use itg_core::schedule::Departure;
use itg_core::seed::RunSeed;

/// Kind of a planted distortion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distortion {
    /// None: departures jitter by a hundredth of the mean inter-departure time.
    None,
    /// Every second packet leaves late.
    Pairs,
    /// Departures wait for the next tick of a coarse clock.
    Ticks,
    /// Eight packets at a time move together.
    Clumps,
    /// The clock of the sender is slow.
    Drift,
    /// Inter-departure times are drawn towards their mean.
    Smoothing,
    /// The sender stands still every 200 packets, for ten mean inter-departure times at a share of 0.1.
    Stalls,
    /// Inter-departure times change places with their neighbours, the longer one first.
    Reordering,
    /// Sizes change places with those of other packets.
    SwappedSizes,
    /// The generator draws with a larger mean.
    WrongMean,
    /// The generator draws from another distribution, of the same mean and nearly the same variance.
    WrongShape,
    /// The generator draws the right inter-departure times in runs of long and short ones.
    Correlation,
}

impl Distortion {
    /// All of them but [`Distortion::None`].
    pub const PLANTED: [Self; 11] = [
        Self::Pairs,
        Self::Ticks,
        Self::Clumps,
        Self::Drift,
        Self::Smoothing,
        Self::Stalls,
        Self::Reordering,
        Self::SwappedSizes,
        Self::WrongMean,
        Self::WrongShape,
        Self::Correlation,
    ];

    /// Returns true if the plan itself is wrong.
    #[must_use]
    pub const fn is_of_generator(self) -> bool {
        matches!(self, Self::WrongMean | Self::WrongShape | Self::Correlation)
    }
}

/// A packet that was planned and sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadePacket {
    /// Planned, in nanoseconds from the start of the flow.
    pub planned_ns: u64,
    /// Sent, in nanoseconds from the same instant.
    pub sent_ns: u64,
    /// Planned size in bytes.
    pub planned_size: u32,
    /// Size in bytes.
    pub size: u32,
}

/// Numbers from 0 to 1 that depend on the seed and on where they are asked for.
fn draw(seed: u64, at: u64) -> f64 {
    let mixed = (seed ^ at.wrapping_mul(0xD134_2543_DE82_EF95)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 32)).wrapping_mul(0x94D0_49BB_1331_11EB);
    ((mixed ^ (mixed >> 29)) >> 11) as f64 / (1u64 << 53) as f64
}

/// The packets of a flow with a distortion; `None` where the flow has nothing that it could change, such as the
/// order of equal sizes. `share` is its size, 0.1 for a tenth of the mean inter-departure time.
#[must_use]
pub fn made(
    spec: &FlowSpec,
    seed: u64,
    distortion: Distortion,
    share: f64,
) -> Option<Vec<MadePacket>> {
    let flow = Flow::resolve(spec.clone(), RunSeed(seed)).expect("a flow that runs");
    let plan: Vec<Departure> = flow.schedule().collect();
    let due: Vec<f64> = plan.iter().map(|packet| packet.due_ns as f64).collect();
    let (&first, &last) = (due.first()?, due.last()?);
    let mean = (last - first) / (due.len() - 1).max(1) as f64;
    let gaps: Vec<f64> = due.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let spread = gaps.iter().map(|gap| (gap - mean).abs()).sum::<f64>() / gaps.len().max(1) as f64;
    let flat = spread < 0.01 * mean;
    let changed = match distortion {
        Distortion::None => jittered(&due, mean, seed),
        Distortion::SwappedSizes => due,
        Distortion::Smoothing | Distortion::Reordering | Distortion::Correlation if flat => {
            return None;
        }
        Distortion::WrongShape if flat => return None,
        Distortion::Smoothing => {
            let pull = (share * mean / spread).min(1.0);
            summed(first, gaps.iter().map(|gap| gap + pull * (mean - gap)))
        }
        Distortion::Reordering => summed(first, reordered(&gaps, mean * share, seed)),
        Distortion::Correlation => summed(first, runs(&gaps)),
        Distortion::WrongMean => due.iter().map(|due| due * (1.0 + share)).collect(),
        Distortion::WrongShape => summed(first, other_shape(&gaps, mean, seed)),
        _ => shifted(&due, mean, share, distortion),
    };
    let times: Vec<u64> = changed.iter().map(|time| to_ns(*time)).collect();
    let sizes =
        swapped(&plan, if distortion == Distortion::SwappedSizes { share } else { 0.0 }, seed)?;
    let packets = plan.iter().zip(times).zip(sizes).map(|((packet, time), size)| MadePacket {
        planned_ns: if distortion.is_of_generator() { time } else { packet.due_ns },
        sent_ns: time,
        planned_size: packet.size,
        size,
    });
    Some(packets.collect())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are small and positive"
)]
fn to_ns(time: f64) -> u64 {
    time.round().max(0.0) as u64
}

/// Departures, none before the one in front of it.
fn in_order(times: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut last = 0.0f64;
    times
        .map(|time| {
            last = last.max(time);
            last
        })
        .collect()
}

fn summed(first: f64, gaps: impl IntoIterator<Item = f64>) -> Vec<f64> {
    let mut at = first;
    let rest = gaps.into_iter().map(|gap| {
        at += gap;
        at
    });
    std::iter::once(first).chain(rest.collect::<Vec<_>>()).collect()
}

fn jittered(due: &[f64], mean: f64, seed: u64) -> Vec<f64> {
    in_order((0..).zip(due).map(|(k, due)| due - 0.01 * mean * (1.0 - draw(seed, k)).ln()))
}

/// Departures that are moved one by one.
fn shifted(due: &[f64], mean: f64, share: f64, distortion: Distortion) -> Vec<f64> {
    let off = share * mean;
    in_order(due.iter().enumerate().map(|(k, &due)| match distortion {
        Distortion::Pairs => due + if k % 2 == 1 { off } else { 0.0 },
        // Two phases of a tick are a third of it apart on average.
        Distortion::Ticks => (due / (3.0 * off)).ceil() * 3.0 * off,
        // Seven inter-departure times shrink, the eighth grows by as much.
        Distortion::Clumps => due + (7 - k % 8) as f64 * off * 4.0 / 7.0,
        Distortion::Drift => due * (1.0 + share),
        Distortion::Stalls => {
            // As long as it takes to be off by the share on average: once late, and back again.
            let from = due - due % (200.0 * mean);
            if due - from < 100.0 * off { from + 100.0 * off } else { due }
        }
        _ => due,
    }))
}

/// Swaps pairs until the inter-departure times are off by so much on average.
fn reordered(gaps: &[f64], off: f64, seed: u64) -> Vec<f64> {
    let pairs = gaps.chunks(2).filter(|pair| pair.len() == 2 && pair[0] < pair[1]);
    let possible = pairs.map(|pair| 2.0 * (pair[1] - pair[0])).sum::<f64>() / gaps.len() as f64;
    let chosen = (off / possible.max(f64::MIN_POSITIVE)).min(1.0);
    let mut gaps = gaps.to_vec();
    for (at, pair) in (0..).zip(gaps.chunks_mut(2)) {
        if pair.len() == 2 && pair[0] < pair[1] && draw(seed, at) < chosen {
            pair.swap(0, 1);
        }
    }
    gaps
}

/// The same values, sorted within 16 of them, up and down.
fn runs(gaps: &[f64]) -> Vec<f64> {
    let mut gaps = gaps.to_vec();
    for (at, some) in gaps.chunks_mut(16).enumerate() {
        some.sort_by(f64::total_cmp);
        if at % 2 == 1 {
            some.reverse();
        }
    }
    gaps
}

/// Two values, a deviation below and above the mean, as far as that is not below 0.
fn other_shape(gaps: &[f64], mean: f64, seed: u64) -> Vec<f64> {
    let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    // A gap of `mean − a` with probability q, and of `mean + b` otherwise: a b = variance.
    let below = variance.sqrt().min(mean);
    let above = variance / below;
    let low = above / (above + below);
    (0..gaps.len() as u64)
        .map(|k| if draw(!seed, k) < low { mean - below } else { mean + above })
        .collect()
}

/// Sizes, a share of which have changed places; `None` if that changes nothing.
fn swapped(plan: &[Departure], share: f64, seed: u64) -> Option<Vec<u32>> {
    let mut sizes: Vec<u32> = plan.iter().map(|packet| packet.size).collect();
    if share > 0.0 {
        if sizes.iter().all(|size| *size == sizes[0]) {
            return None;
        }
        for (at, pair) in (0..).zip(sizes.chunks_mut(2)) {
            if pair.len() == 2 && draw(seed, at) < share {
                pair.swap(0, 1);
            }
        }
    }
    Some(sizes)
}
