//! Tests of `plan`, through what it shows.

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::seed::RunSeed;
use proptest::prelude::*;

use itg_stats::plan::*;

fn spec() -> FlowSpec {
    FlowSpec::new(1)
        .idt(Distribution::parse("exp(1ms)", Unit::Time).expect("a distribution"))
        .size(Distribution::parse("uniform(100,1400)", Unit::Size).expect("a distribution"))
        .packets(20_000)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]
    #[test]
    fn agrees_with_the_list(asked in prop::collection::vec(0u64..20_100, 1..200)) {
        let flow = Flow::resolve(spec(), RunSeed(7)).expect("runs");
        let list: Vec<_> = flow.schedule().collect();
        let mut plan = Plan::new(&spec(), 7).expect("runs");
        let mut furthest = 0;
        for seq in asked {
            furthest = seq.min(19_999).max(furthest);
            let got = plan.at(seq);
            match list.get(usize::try_from(seq).expect("small")) {
                Some(want) if seq + (WINDOW as u64) > furthest => {
                    prop_assert_eq!(got, Some(*want));
                }
                _ => prop_assert_eq!(got, None),
            }
        }
    }
}

#[test]
fn hostile_numbers_cost_a_bounded_walk() {
    let endless = spec().stop(Stop::default());
    let mut plan = Plan::new(&endless, 7).expect("runs");
    for seq in [u64::MAX, 1 << 40, FREE_STEPS * 2] {
        assert_eq!(plan.at(seq), None, "seq {seq}");
    }
    assert_eq!(plan.at(3).map(|d| d.seq), Some(3));
}
