//! The text that a plan's hash is taken of: what decides which packets are sent, and nothing else.

use std::collections::BTreeSet;

use crate::plan::Plan;

/// One line for the seed, one for each flow, one for each table of a distribution; the texts of
/// distributions are the canonical ones of `itg_core::distribution`.
pub(crate) fn text(plan: &Plan) -> String {
    let mut text = format!("itg plan 1\nseed {}\n", plan.seed.0);
    let tables = plan.flows.iter().flat_map(|planned| {
        let spec = planned.flow.spec();
        let periods = spec.on_off.iter().flat_map(|periods| [&periods.on, &periods.off]);
        [&spec.idt, &spec.size]
            .into_iter()
            .chain(periods)
            .flat_map(|distribution| distribution.files())
    });
    let tables: BTreeSet<&str> = tables.collect();
    for planned in &plan.flows {
        let spec = serde_json::to_string(planned.flow.spec());
        let spec = spec.expect("a flow is made of numbers, texts and lists");
        text.push_str(&format!("flow {:?} {:?} {spec}\n", planned.from, planned.to));
    }
    for name in tables {
        let hash = plan.files.get(name).map_or(0, |content| fnv1a(content.as_bytes()));
        text.push_str(&format!("table {name:?} {hash:016x}\n"));
    }
    text
}

/// FNV-1a with 64 bits: a fast hash with published constants, not meant against an adversary.
///
/// Source: Fowler, Noll, Vo; RFC 9923.
pub(crate) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fnv1a_gives_the_published_values() {
        for (text, want) in [
            ("", 0xcbf2_9ce4_8422_2325),
            ("a", 0xaf63_dc4c_8601_ec8c),
            ("foobar", 0x8594_4171_f739_67e8),
        ] {
            assert_eq!(fnv1a(text.as_bytes()), want, "input {text:?}");
        }
    }
}
