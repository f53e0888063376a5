//! The verdict over many seeds: true generators pass at the stated rate of false alarms, false ones fail.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_core::flow::{Flow, FlowSpec};
use itg_core::seed::RunSeed;
use itg_fidelity::{Asked, Cause, Departed, Departures, Distributions, Fidelity, Verdict};
use itg_testkit::logs::spec;

/// Planned, sent, and size of each packet.
type Packets = Vec<(u64, u64, u32)>;

/// Sends what `packets` says (planned, sent and size of each) and judges it by the distributions of
/// `spec`.
fn judge(spec: &FlowSpec, packets: impl Iterator<Item = (u64, u64, u32)>) -> Fidelity {
    let mut departures = Departures::default();
    for (seq, (planned_ns, sent_ns, size)) in (0..).zip(packets) {
        departures.add(Departed { seq, planned_ns, sent_ns }, Some(0));
        departures.count(size);
    }
    let distributions = Distributions::new(spec, 1).unwrap();
    departures.judge(&Asked { distributions: Some(&distributions), ..Asked::default() })
}

/// The packets that a seed gives, sent on time.
fn on_time(spec: &FlowSpec, seed: u64) -> Packets {
    let flow = Flow::resolve(spec.clone(), RunSeed(seed)).unwrap();
    flow.schedule().map(|d| (d.due_ns, d.due_ns, d.size)).collect()
}

#[test]
fn true_generators_pass_over_a_thousand_seeds() {
    let distributions = [
        ("exp(5ms)", "uniform(100,1400)"),
        ("uniform(1ms,9ms)", "poisson(500)"),
        ("gamma(2,3ms)", "exp(400)"),
        ("constant(2ms)", "constant(200)"),
        ("pareto(3,2ms)", "normal(700,100)"),
    ];
    let mut blamed = Vec::new();
    for seed in 0..1_000u64 {
        let (idt, size) = distributions[usize::try_from(seed % 5).unwrap()];
        let spec = spec(1, idt, size, 600);
        let fidelity = judge(&spec, on_time(&spec, seed).into_iter());
        if fidelity.verdict != Verdict::Pass {
            blamed.push((seed, idt, size, fidelity.reasons));
        }
    }
    // Five figures at one in a thousand each, had they no limits beyond chance: 5 are expected then,
    // and more than 13 would come once in a thousand times.
    assert!(blamed.len() <= 13, "{} blamed: {blamed:#?}", blamed.len());
}

#[test]
fn false_generators_fail_over_many_seeds() {
    for seed in 0..50u64 {
        let asked = spec(1, "exp(5ms)", "uniform(100,1400)", 2_000);
        let own = |idt: &str, size: &str| on_time(&spec(1, idt, size, 2_000), seed);
        let mut sorted: Vec<u64> = Vec::new();
        let list = own("exp(5ms)", "uniform(100,1400)");
        list.windows(2).for_each(|pair| sorted.push(pair[1].0 - pair[0].0));
        // The right inter-departure times, short ones together and long ones together.
        sorted.chunks_mut(100).for_each(<[u64]>::sort_unstable);
        let mut at = 0;
        let bursts: Vec<_> = sorted
            .iter()
            .map(|gap| {
                (
                    at,
                    {
                        at += gap;
                        at - gap
                    },
                    700,
                )
            })
            .collect();
        let sizes = [100, 400, 700, 1_000, 1_400];
        let bursts = bursts.into_iter().zip(0usize..).map(|((p, s, _), k)| (p, s, sizes[k % 5]));
        let wrong: [(&str, Packets, &str); 5] = [
            (
                "another distribution of inter-departure times",
                own("uniform(3ms,7ms)", "uniform(100,1400)"),
                "times differ from their distribution",
            ),
            (
                "another rate",
                own("exp(6ms)", "uniform(100,1400)"),
                "mean planned inter-departure time is off",
            ),
            (
                "another distribution of sizes",
                own("exp(5ms)", "exp(600)"),
                "sizes differ from their distribution",
            ),
            (
                "biased sizes",
                own("exp(5ms)", "uniform(400,1400)"),
                "sizes differ from their distribution",
            ),
            ("bursts", bursts.collect(), "bursts"),
        ];
        for (name, packets, reason) in wrong {
            let got = judge(&asked, packets.into_iter());
            assert_eq!(got.verdict, Verdict::Fail, "{name}, seed {seed}: {got:?}");
            let named = got.reasons.iter().any(|text| text.contains(reason));
            assert!(named, "{name}, seed {seed}: {:?}", got.reasons);
            assert!(
                got.causes.contains(&Cause::Generator),
                "{name}, seed {seed}: {:?}",
                got.causes
            );
        }
        // Discrete sizes with a face of the die too heavy.
        let dice = spec(1, "exp(5ms)", "poisson(100)", 2_000);
        let heavy = on_time(&dice, seed).into_iter();
        let heavy = heavy.map(|(p, s, size)| (p, s, if size % 2 == 0 { size } else { size + 1 }));
        let got = judge(&dice, heavy);
        assert_eq!(got.verdict, Verdict::Fail, "heavy faces, seed {seed}: {got:?}");
        assert!(got.size_chi_square.unwrap().effect > 0.3);
        // A sender that cannot keep up.
        let late = own("exp(5ms)", "uniform(100,1400)").into_iter();
        let late = late.map(|(due, _, size)| (due, due.next_multiple_of(8_000_000), size));
        let got = judge(&asked, late);
        assert_eq!(got.verdict, Verdict::Fail);
        assert!(got.causes.contains(&Cause::LateSender), "{got:?}");
    }
}
