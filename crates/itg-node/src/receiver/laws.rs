//! Bounds of the distributions that a peer may have computed here: what it writes in a line must not cost hours.
//!
//! Probabilities of nested distributions are computed from those inside, so that costs multiply with each level, and
//! ON/OFF periods are walked one by one. With `t·P(X > t) ≤ E[min(X, H)]` for any `t ≤ H` (Markov), a flow of length
//! `H` has at most about `2H / E[min(X, H)]` periods.

use itg_core::distribution::Distribution;
use itg_core::flow::{FlowSpec, OnOff};

/// Distributions within distributions, at most.
const DEEPEST: usize = 2;
/// Distributions of a flow together, at most.
const MOST_PARTS: usize = 16;
/// Values of one of them, at most.
const MOST_VALUES: usize = 1024;
/// Least expected length of a period, cut at that of the flow: 0.25 ms.
const LEAST_PERIOD_NS: f64 = 250_000.0;

/// Checks the distributions of a flow that lasts so long at most.
pub(super) fn check(spec: &FlowSpec, longest_ns: u64) -> Result<(), &'static str> {
    let periods = spec.on_off.as_ref();
    let laws = [Some(&spec.idt), Some(&spec.size), periods.map(|p| &p.on), periods.map(|p| &p.off)];
    let laws = || laws.into_iter().flatten();
    // Depth comes first: it bounds the recursion of what follows.
    if laws().any(|law| depth(law) > DEEPEST) {
        return Err("a receiver sends no flow with distributions nested deeper than 2");
    }
    if laws().map(parts).sum::<usize>() > MOST_PARTS {
        return Err("a receiver sends no flow of more than 16 distributions (parts of `mix`)");
    }
    if laws().any(|law| values(law) > MOST_VALUES) {
        return Err("a receiver sends no flow with more than 1024 values in `discrete`");
    }
    match periods {
        Some(OnOff { on, off }) if !lasts(on, longest_ns) && !lasts(off, longest_ns) => {
            Err("a receiver sends no flow with ON and OFF periods that are mostly below 0.5 ms")
        }
        _ => Ok(()),
    }
}

fn depth(law: &Distribution) -> usize {
    match law {
        Distribution::Mix(parts) => {
            1 + parts.iter().map(|(_, part)| depth(part)).max().unwrap_or(0)
        }
        Distribution::Trunc { distribution, .. } => 1 + depth(distribution),
        _ => 0,
    }
}

fn parts(law: &Distribution) -> usize {
    match law {
        Distribution::Mix(list) => list.iter().map(|(_, part)| parts(part)).sum(),
        Distribution::Trunc { distribution, .. } => parts(distribution),
        _ => 1,
    }
}

/// The most values of one distribution.
fn values(law: &Distribution) -> usize {
    match law {
        Distribution::Discrete(list) => list.len(),
        Distribution::Mix(list) => list.iter().map(|(_, part)| values(part)).max().unwrap_or(0),
        Distribution::Trunc { distribution, .. } => values(distribution),
        _ => 1,
    }
}

/// Returns true if periods of this law, cut at the length of the flow, have the least expected length.
#[expect(clippy::cast_precision_loss, reason = "powers of two")]
fn lasts(law: &Distribution, longest_ns: u64) -> bool {
    (0..u64::BITS)
        .map(|power| 1_u64 << power)
        .take_while(|length_ns| *length_ns <= longest_ns)
        .map(|length_ns| length_ns as f64)
        .any(|length_ns| length_ns * (1.0 - law.cdf(length_ns)) >= LEAST_PERIOD_NS)
}
