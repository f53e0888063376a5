//! Properties that hold for every distribution, seed and text: tried with random ones.

use itg_core::distribution::{Distribution, Unit, as_size, as_time};
use itg_core::flow::{Flow, FlowSpec, OnOff, Stop};
use itg_core::profile::Profile;
use itg_core::seed::{Purpose, RunSeed};
use itg_core::units::{
    BitRate, Bytes, Rate, format_bytes, format_duration_ns, parse_bytes, parse_count,
    parse_duration_ns, signed_difference,
};
use proptest::prelude::*;

/// Values of all sizes: plain, fractional, tiny and huge.
fn value() -> impl Strategy<Value = f64> {
    prop_oneof![
        (1_u32..100_000).prop_map(f64::from),
        (1_u64..1_000_000_000_000).prop_map(|x| x as f64 / 1000.0),
        1e-3..1e18,
        (0_i32..18).prop_map(|e| 10_f64.powi(e)),
    ]
}

fn shape() -> impl Strategy<Value = f64> {
    prop_oneof![0.05..10.0, 0.05..1e6]
}

fn weight() -> impl Strategy<Value = f64> {
    prop_oneof![1e-9..1.0, (1_u32..100).prop_map(f64::from)]
}

fn distribution(unit: Unit) -> impl Strategy<Value = Distribution> {
    let leaf = prop_oneof![
        value().prop_map(Distribution::Constant),
        (value(), 1e-6..10.0_f64)
            .prop_map(|(lo, f)| Distribution::Uniform { lo, hi: (lo * (1.0 + f)).min(1e18) })
            .prop_filter(
                "an interval",
                |distribution| matches!(distribution, Distribution::Uniform { lo, hi } if lo < hi)
            ),
        value().prop_map(|mean| Distribution::Exp { mean }),
        (value(), value()).prop_map(|(mean, sd)| Distribution::Normal { mean, sd }),
        (value(), 1e-3..10.0).prop_map(|(median, sigma)| Distribution::LogNormal { median, sigma }),
        (shape(), value()).prop_map(|(shape, scale)| Distribution::Pareto { shape, scale }),
        (value(), value()).prop_map(|(location, scale)| Distribution::Cauchy { location, scale }),
        (value(), value(), shape()).prop_map(|(location, scale, nu)| Distribution::Student {
            location,
            scale,
            nu
        }),
        (shape(), value()).prop_map(|(shape, scale)| Distribution::Gamma { shape, scale }),
        (shape(), value()).prop_map(|(shape, scale)| Distribution::Weibull { shape, scale }),
        (1_u32..10_000, value()).prop_map(|(n, grain)| Distribution::Poisson {
            mean: (f64::from(n) * grain).min(1e18),
            grain
        }),
        prop::collection::vec((value(), weight()), 1..5).prop_map(Distribution::Discrete),
        "[ -~]{0,12}".prop_map(move |name| Distribution::Empirical { name, unit, table: None }),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec((weight(), inner.clone()), 1..4).prop_map(Distribution::Mix),
            (inner, prop::option::of(0_u32..1000), prop::option::of(1000_u64..1 << 40)).prop_map(
                |(distribution, lo, hi)| Distribution::Trunc {
                    distribution: Box::new(distribution),
                    lo: lo.map_or(f64::NEG_INFINITY, f64::from),
                    hi: hi.map_or(f64::INFINITY, |hi| (hi + 1) as f64),
                }
            ),
        ]
    })
}

fn unit() -> impl Strategy<Value = Unit> {
    prop_oneof![Just(Unit::Time), Just(Unit::Size)]
}

fn unit_and_distribution() -> impl Strategy<Value = (Unit, Distribution)> {
    unit().prop_flat_map(|unit| (Just(unit), distribution(unit)))
}

#[derive(serde::Serialize, serde::Deserialize)]
struct Pair {
    #[serde(with = "as_time")]
    idt: Distribution,
    #[serde(with = "as_size")]
    size: Distribution,
}

proptest! {
    #[test]
    fn differences_are_those_of_whole_numbers(later: u64, earlier: u64) {
        let whole = i128::from(later) - i128::from(earlier);
        let kept = whole.clamp(i64::MIN.into(), i64::MAX.into());
        prop_assert_eq!(i128::from(signed_difference(later, earlier)), kept);
    }

    #[test]
    fn laws_are_read_as_they_were_written((unit, distribution) in unit_and_distribution()) {
        let text = distribution.display(unit);
        let back = Distribution::parse(&text, unit);
        prop_assert_eq!(back, Ok(distribution), "text {}", text);
    }

    #[test]
    fn laws_survive_serde(idt in distribution(Unit::Time), size in distribution(Unit::Size)) {
        let text = serde_json::to_string(&Pair { idt: idt.clone(), size: size.clone() }).unwrap();
        let back: Pair = serde_json::from_str(&text).unwrap();
        prop_assert_eq!((back.idt, back.size), (idt, size));
    }

    #[test]
    fn resolving_ends_with_a_usable_law_or_a_reason((unit, distribution) in unit_and_distribution(), k in 0_u64..1 << 50) {
        let (lo, hi) = if unit == Unit::Time { (0.0, f64::INFINITY) } else { (12.0, 65_507.0) };
        match distribution.resolve(unit, lo, hi) {
            Err(error) => prop_assert!(!error.to_string().is_empty()),
            Ok(distribution) => {
                let mut stream = RunSeed(k).stream(1, Purpose::Size);
                let x = distribution.sample(&mut stream, k);
                prop_assert!(unit == Unit::Time || (12..=65_507).contains(&x), "{x}");
                prop_assert!(distribution.mean() >= 0.0 && distribution.distribution().variance() >= 0.0, "{distribution:?}");
                prop_assert!(distribution.mean() >= lo && (unit == Unit::Time || distribution.mean() <= hi), "{distribution:?}");
                let (half, all) = (distribution.distribution().cdf(distribution.mean()), distribution.distribution().cdf(f64::INFINITY));
                prop_assert!((0.0..=1.0 + 1e-9).contains(&half) && (all - 1.0).abs() < 1e-9, "{distribution:?}");
            }
        }
    }

    #[test]
    fn a_packet_drawn_alone_is_the_one_drawn_in_order(
        seed: u64,
        flow: u32,
        distribution in prop_oneof![
            Just("exp(10ms)"), Just("gamma(0.1, 1ms)"), Just("poisson(30ms)"), Just("normal(1ms, 1ms)"),
            Just("mix(1:trunc(exp(1ms), 1ms, inf), 1:constant(5ms))"), Just("constant(1.7us)"),
            Just("trunc(student(40ms, 1ms, 0.7), 41ms, 60ms)"), Just("discrete(1ms:1, 2ms:3)"),
        ],
        picks in prop::collection::vec(0_usize..300, 1..20),
    ) {
        let distribution = Distribution::parse(distribution, Unit::Time).unwrap();
        let distribution = distribution.resolve(Unit::Time, 0.0, f64::INFINITY).unwrap();
        let mut stream = RunSeed(seed).stream(flow, Purpose::Idt);
        let in_order: Vec<_> = (0..300).map(|k| distribution.sample(&mut stream, k)).collect();
        for k in picks {
            prop_assert_eq!(distribution.sample(&mut stream, k as u64), in_order[k], "same stream, packet {}", k);
            let mut fresh = RunSeed(seed).stream(flow, Purpose::Idt);
            prop_assert_eq!(distribution.sample(&mut fresh, k as u64), in_order[k], "fresh stream, packet {}", k);
        }
    }

    #[test]
    fn adding_flows_changes_no_other(seed: u64, ids in prop::collection::btree_set(1_u32..1000, 2..6)) {
        let departures = |id| {
            let spec = FlowSpec::new(id).idt(Distribution::parse("exp(1ms)", Unit::Time).unwrap()).size(Distribution::parse("uniform(100, 1400)", Unit::Size).unwrap());
            Flow::resolve(spec, RunSeed(seed)).unwrap().schedule().take(30).collect::<Vec<_>>()
        };
        let alone: Vec<_> = ids.iter().map(|id| departures(*id)).collect();
        let mut schedules: Vec<_> = ids.iter().rev().map(|id| departures(*id)).collect();
        schedules.reverse();
        prop_assert_eq!(&alone, &schedules);
        for (i, one) in alone.iter().enumerate() {
            for other in &alone[i + 1..] {
                prop_assert_ne!(one, other, "two flows draw the same");
            }
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in ".{0,200}") {
        for unit in [Unit::Time, Unit::Size] {
            if let Ok(distribution) = Distribution::parse(&text, unit) {
                prop_assert_eq!(Distribution::parse(&distribution.display(unit), unit), Ok(distribution));
            }
        }
        let errors = [
            text.parse::<Rate>().err().map(|e| e.to_string()),
            text.parse::<RunSeed>().err().map(|e| e.to_string()),
            Profile::from_spec(&text).err().map(|e| e.to_string()),
            Profile::parse(&text, &[]).err().map(|e| e.to_string()),
            parse_bytes(&text).err().map(|e| e.to_string()),
            parse_count(&text).err().map(|e| e.to_string()),
            parse_duration_ns(&text).err().map(|e| e.to_string()),
        ];
        prop_assert!(errors.iter().flatten().all(|error| !error.is_empty()));
    }

    #[test]
    fn texts_that_look_like_laws_are_read_or_refused(
        parts in prop::collection::vec(
            prop_oneof![
                Just("exp("), Just("mix("), Just("trunc("), Just("discrete("), Just("normal("), Just(")"),
                Just(","), Just(":"), Just("10ms"), Just("1e999s"), Just("-"), Just("0.5"), Just("inf"),
                Just("empirical("), Just("\""), Just("\\"), Just(" "), Just("µs"), Just("1e-999ns"),
            ],
            0..60,
        )
    ) {
        let text = parts.concat();
        for unit in [Unit::Time, Unit::Size] {
            if let Ok(distribution) = Distribution::parse(&text, unit) {
                prop_assert_eq!(Distribution::parse(&distribution.display(unit), unit), Ok(distribution), "text {}", &text);
            }
        }
    }

    #[test]
    fn quantities_are_read_as_they_were_written(x: u64, power in 0_u32..19, count in 0_u64..10_000) {
        for x in [x, count, count.saturating_mul(10_u64.saturating_pow(power)), count << (power % 40)] {
            prop_assert_eq!(parse_duration_ns(&format_duration_ns(x)), Ok(x));
            prop_assert_eq!(parse_bytes(&format_bytes(x)), Ok(Bytes(x)));
            prop_assert_eq!(parse_count(&x.to_string()), Ok(x));
            if x > 0 {
                let rate = Rate::Bits(BitRate(x));
                prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            }
        }
    }
}

#[test]
fn monstrous_texts_end_quickly() {
    for text in [
        "(".repeat(100_000),
        "trunc(".repeat(100_000),
        "mix(1:".repeat(100_000),
        "9".repeat(100_000),
        format!("exp({}ms)", "9".repeat(100_000)),
        format!("discrete({})", "1ms:1,".repeat(100_000)),
        format!("empirical(\"{}", "\\".repeat(100_001)),
    ] {
        assert!(Distribution::parse(&text, Unit::Time).is_err());
    }
}

/// Some stop of a flow, with limits that small flows reach.
fn stop() -> impl Strategy<Value = Stop> {
    let some = |range: std::ops::Range<u64>| prop::option::of(range);
    (some(0..40_000_000), some(0..3_000), some(0..400_000))
        .prop_map(|(duration_ns, packets, bytes)| Stop { duration_ns, packets, bytes })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_packets_of_a_plan_are_those_of_its_schedule(
        stop in stop(),
        idt in prop::sample::select(vec!["constant(0s)", "constant(13us)", "exp(40us)", "uniform(0s,90us)"]),
        size in prop::sample::select(vec!["constant(137)", "uniform(40,900)"]),
        on_off in prop::bool::ANY,
        burst in prop::option::of(2_u32..9),
        seed in prop::num::u64::ANY,
    ) {
        let of = |text: &str, unit| Distribution::parse(text, unit).expect("a distribution");
        let periods = OnOff { on: of("exp(2ms)", Unit::Time), off: of("constant(3ms)", Unit::Time) };
        let spec = FlowSpec::new(1)
            .idt(of(idt, Unit::Time))
            .size(of(size, Unit::Size))
            .on_off(Some(periods).filter(|_| on_off && idt != "constant(0s)"))
            .burst(burst.filter(|_| !on_off))
            .stop(stop);
        let Ok(flow) = Flow::resolve(spec, RunSeed(seed)) else { return Ok(()) };
        let walked = flow.schedule().take(50_001).count();
        let told = flow.planned_packets(50_000);
        if !flow.has_plan() {
            prop_assert_eq!(told, None);
        } else if walked <= 50_000 {
            prop_assert_eq!(told, Some(walked as u64));
        } else {
            // Endless, or by its size and limit known without a walk.
            prop_assert!(told.is_none_or(|count| count > 50_000), "{told:?}");
        }
    }
}
