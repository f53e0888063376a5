//! Expected duration of a view change: the models of the paper.
//!
//! `Ts` runs from the root's receipt of the first report to its receipt of the last acknowledgement. On
//! a network of latency L, with Ocp for one recomputation of the tree and H levels:
//!
//! - base model: `Ts = 2·L·(H − 1) + Ocp·H` (equations 1 and 2);
//! - distance model: `Ts = 2·L·Σ hops(level) + Ocp·H`, where `hops(level)` is the greatest distance
//!   between a node of the level and its parent. The paper prints a further factor (H − 1), which its
//!   own text and figures contradict;
//! - contention model: L grows with the number of nodes that talk ([`Contention`]).
//!
//! Nodes lie in blocks of 8 × 8 × 8, x fastest, one block behind the other along z; distance is the sum
//! of differences, with or without wrap-around.

mod contention;

use itg_process::{Time, US};

pub use contention::{Contention, Fit, Pattern, fit};

use itg_members::Arity;

/// Latency and time to recompute, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constants {
    /// One-way latency of one hop.
    pub latency: u64,
    /// Time to recompute the tree.
    pub compute: u64,
}

impl Constants {
    /// BlueGene/L with MPI: 4.6 µs, 2 µs.
    pub const BGL: Self = Self { latency: 4_600, compute: 2 * US };
    /// TCP on Gigabit Ethernet: 118 µs, 2 µs.
    pub const TCP: Self = Self { latency: 118 * US, compute: 2 * US };

    /// `Ts` of the base model for a tree of this many levels.
    #[must_use]
    pub const fn base(self, height: u32) -> Time {
        let height = height as u64;
        Time(2 * self.latency * height.saturating_sub(1) + self.compute * height)
    }

    /// `Ts` of the distance model for these hops of each level below the root.
    #[must_use]
    pub fn distance(self, hops: &[u32]) -> Time {
        let sum: u64 = hops.iter().map(|hops| u64::from(*hops)).sum();
        Time(2 * self.latency * sum + self.compute * (hops.len() as u64 + 1))
    }
}

/// Greatest distance to the parent, for each level below the root, of `n` nodes.
#[must_use]
pub fn hops(n: u32, arity: Arity, torus: bool) -> Vec<u32> {
    let size = dimensions(n);
    let mut most = vec![0; arity.height(n).saturating_sub(1) as usize];
    for node in 1..n {
        if let Some(parent) = arity.parent(node) {
            let hops = distance(place(node), place(parent), size, torus);
            let level = &mut most[arity.level(node) as usize - 1];
            *level = hops.max(*level);
        }
    }
    most
}

fn place(node: u32) -> [u32; 3] {
    [node % 8, node / 8 % 8, node / 64]
}

/// Extent of the box that `n` nodes fill.
fn dimensions(n: u32) -> [u32; 3] {
    [n.min(8), n.div_ceil(8).min(8), n.div_ceil(64)]
}

fn distance(a: [u32; 3], b: [u32; 3], size: [u32; 3], torus: bool) -> u32 {
    (0..3)
        .map(|axis| {
            let straight = a[axis].abs_diff(b[axis]);
            if torus { straight.min(size[axis] - straight) } else { straight }
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table of 3.12, in tenths of a microsecond.
    #[test]
    fn m_5_the_models_give_the_table() {
        let tenths = |time: Time| time.0 / 100;
        for (height, bgl, tcp) in [
            (2, 132, 2400),
            (3, 244, 4780),
            (4, 356, 7160),
            (5, 468, 9540),
            (6, 580, 11_920),
            (7, 692, 14_300),
            (9, 916, 19_060),
            (10, 1028, 21_440),
            (11, 1140, 23_820),
            (14, 1476, 30_960),
            (8, 804, 16_680),
            (17, 1812, 38_100),
        ] {
            assert_eq!(tenths(Constants::BGL.base(height)), bgl, "{height} levels");
            assert_eq!(tenths(Constants::TCP.base(height)), tcp, "{height} levels");
        }
        for (n, a, mesh, torus) in [
            (64, 2, 3268, 2532),
            (64, 4, 2012, 1644),
            (256, 2, 5608, 4136),
            (256, 4, 3412, 2584),
            (512, 2, 7468, 5444),
            (512, 4, 5364, 3800),
            (1024, 2, 9880, 7304),
            (1024, 4, 5916, 4168),
        ] {
            let arity = a.try_into().expect("an arity");
            let ts = |torus| tenths(Constants::BGL.distance(&hops(n, arity, torus)));
            assert_eq!((ts(false), ts(true)), (mesh, torus), "{n} nodes, arity {a}");
        }
    }
}
