//! The estimate of clock offsets against simulated clocks and networks, and against the best that the same
//! probes allow, computed another way.
#![allow(
    missing_docs,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::print_stdout,
    reason = "tests: numbers of worlds that are made up here, and what came of them"
)]

mod worlds;

use itg_clocks::{Probe, estimate};
use proptest::prelude::*;
use worlds::{Best, Rng, Setting, World};

/// Simulated clocks and networks of each kind.
const WORLDS: u64 = 250;

/// Results of a run of the simulation.
struct Shown {
    /// The truth was within the bound at every instant looked at.
    held: bool,
    /// Bound / best possible bound, at instants away from steps.
    ratios: Vec<f64>,
    /// The same against the programme alone, without the floor of half the smallest round trip.
    raw: Vec<f64>,
}

fn show(world: &World) -> Shown {
    let model = estimate(&world.probes).expect("there are probes");
    let mut held = true;
    for i in 0..=400 {
        let (unix, truth) = world.look(i as f64 / 400.0);
        let off = (i128::from(model.offset_at(unix)) - truth).unsigned_abs();
        held &= off <= u128::from(model.bound_at(unix)) + 2;
    }
    let (mut ratios, mut raw) = (Vec::new(), Vec::new());
    for best in world.segments() {
        let Some(best) = Best::of(&best) else { continue };
        for i in 0..=4 {
            let unix = best.instant(f64::from(i) / 4.0);
            if world.near_step(unix) {
                continue;
            }
            let bound = model.bound_at(unix) as f64;
            let half = best.half_at(unix);
            ratios.push(bound / half.max(best.round_trip_ns / 2.0));
            raw.push(bound / half);
        }
    }
    Shown { held, ratios, raw }
}

fn quantile(values: &mut [f64], q: f64) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * q) as usize]
}

/// Number of runs of a kind in which the bound held, and the ratios of the bounds to the best ones.
fn runs(count: u64, name: &str, setting: impl Fn(&mut Rng) -> Setting) -> (u64, Vec<f64>) {
    let (mut held, mut ratios, mut raw) = (0, Vec::new(), Vec::new());
    for seed in 0..count {
        let mut rng = Rng::new(seed);
        let setting = setting(&mut rng);
        let mut shown = show(&World::new(&setting, &mut rng));
        held += u64::from(shown.held);
        ratios.append(&mut shown.ratios);
        raw.append(&mut shown.raw);
    }
    println!(
        "{name}: truth within the bound in {held} of {count} runs; bound / best possible: median {:.3}, \
         99 % {:.3}, most {:.3}; without the floor: 99 % {:.3}",
        quantile(&mut ratios, 0.5),
        quantile(&mut ratios, 0.99),
        quantile(&mut ratios, 1.0),
        quantile(&mut raw, 0.99),
    );
    (held, ratios)
}

fn drifting(count: u64) {
    let (held, mut ratios) = runs(count, "drift up to 100 ppm", Setting::drifting);
    assert!(held * 100 >= count * 99, "{held}");
    // The best possible relies on steady rates over the whole run, which the estimate does not.
    assert!(quantile(&mut ratios, 0.5) <= 1.1 && quantile(&mut ratios, 0.9) <= 2.0);
    let (held, mut ratios) =
        runs(100, "the same over 200 s", |rng| Setting::drifting(rng).lasting(200.0));
    assert!(held >= 99, "{held}");
    assert!(quantile(&mut ratios, 0.5) <= 1.1 && quantile(&mut ratios, 0.9) <= 4.0);
}

fn stepping(count: u64) {
    let (held, mut ratios) = runs(count, "clocks set, seen by the hosts", Setting::stepping);
    assert!(held * 100 >= count * 99, "{held}");
    assert!(quantile(&mut ratios, 0.5) <= 1.1 && quantile(&mut ratios, 0.9) <= 2.0);
}

fn stepping_unseen(count: u64) {
    let (held, mut ratios) = runs(count, "clocks set, unseen", Setting::stepping_unseen);
    assert!(held * 100 >= count * 99, "{held}");
    assert!(quantile(&mut ratios, 0.5) <= 1.1 && quantile(&mut ratios, 0.9) <= 2.0);
}

fn wandering(count: u64) {
    let (held, _) = runs(count, "rates that wander", Setting::wandering);
    assert!(held * 100 >= count * 99, "{held}");
}

#[test]
fn drifting_clocks_are_within_the_bound_which_is_near_the_best_possible() {
    drifting(WORLDS);
}

#[test]
fn clocks_that_were_set_are_within_the_bound() {
    stepping(WORLDS);
}

#[test]
fn steps_are_found_in_the_stamps_alone() {
    stepping_unseen(WORLDS);
}

#[test]
fn clocks_whose_rates_wander_are_within_the_bound() {
    wandering(WORLDS);
}

#[test]
#[ignore = "a minute: the full size of the four above"]
fn bounds_hold_in_many_worlds() {
    drifting(1000);
    stepping(1000);
    stepping_unseen(1000);
    wandering(1000);
}

#[test]
fn one_clock_is_not_two_though_it_is_set_while_probes_are_on_their_way() {
    // By so much from an instant on; up to 80 µs in a queue each way.
    let probes = |ahead: i64, by: i64, set_at: u64| -> Vec<Probe> {
        let unix = |at: u64, more: i64| {
            let set = if at >= set_at { by } else { 0 };
            (1_800_000_000_000_000_000 + at).checked_add_signed(set + more).expect("in range")
        };
        let probe = |k: u64| {
            let (sent, there, back) = (k * 250_000_000, k * 7_919 % 80_000, k * 104_729 % 80_000);
            let (received, replied) = (sent + 40_000 + there, sent + 50_000 + there);
            Probe {
                sender_monotonic: sent,
                sent: unix(sent, 0),
                received: unix(received, ahead),
                replied: unix(replied, ahead),
                arrived: unix(replied + 40_000 + back, 0),
                receiver_monotonic: replied,
            }
        };
        (1..=60).map(probe).collect()
    };
    let seconds = |seconds: f64| (seconds * 1e9) as u64;
    for set_at in [seconds(7.0), seconds(7.0) + 20_000, seconds(7.0) + 100_000, seconds(7.6)] {
        for by in [0, 50_000_000, -50_000_000, 2_000_000_000, -3_600_000_000_000] {
            let model = estimate(&probes(0, by, set_at)).expect("an estimate");
            assert!(!model.are_two(), "set by {by} ns at {set_at}");
        }
    }
    for ahead in [3_000_000, -50_000_000, 3_600_000_000_000] {
        let model = estimate(&probes(ahead, 0, 0)).expect("an estimate");
        assert!(model.are_two(), "{ahead} ns ahead");
    }
}

#[test]
fn steps_are_reported_where_and_as_large_as_they_were() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let setting = Setting::stepping(&mut rng);
        let world = World::new(&setting, &mut rng);
        let model = estimate(&world.probes).expect("there are probes");
        let want: Vec<i64> = world.steps().collect();
        let got: Vec<i64> = model.steps().iter().map(|step| step.by_ns).collect();
        assert_eq!(got.len(), want.len(), "seed {seed}: {got:?} {want:?}");
        for (got, want) in got.iter().zip(&want) {
            // A second of drift at 100 ppm.
            assert!(got.abs_diff(*want) <= 100_000, "seed {seed}: {got} {want}");
        }
        // A clock may have been set while a probe was under way.
        assert!(model.refused() <= want.len(), "seed {seed}");
    }
}

#[test]
fn skew_is_what_was_put_in() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let setting = Setting::drifting(&mut rng).lasting(30.0);
        let world = World::new(&setting, &mut rng);
        let model = estimate(&world.probes).expect("there are probes");
        let off = (model.skew_ppm() - setting.skew_ppm()).abs();
        assert!(off <= model.skew_bound_ppm() + 0.02, "seed {seed}: {off}");
        assert!(model.steps().is_empty());
    }
}

fn exchange(at_ms: u64, offset_ns: i64, there_ns: u64, back_ns: u64) -> Probe {
    let sent = 1_700_000_000_000_000_000 + at_ms * 1_000_000;
    let on = |unix: u64| unix.saturating_add_signed(offset_ns);
    Probe {
        sender_monotonic: at_ms * 1_000_000,
        sent,
        received: on(sent + there_ns),
        replied: on(sent + there_ns + 1_000),
        arrived: sent + there_ns + 1_000 + back_ns,
        // Runs like the receiver's other clock, which is never set.
        receiver_monotonic: on(sent + there_ns + 1_000) - 1_600_000_000_000_000_000,
    }
}

#[test]
fn the_skew_is_a_number_where_probes_contradict_each_other() {
    let probes = [
        (16_579, 31_198, 617_102, 0),
        (47_726, 0, 191_246, 0),
        (22_321, 524_723, 39_319, 268_680),
        (16_579, 0, 648_300, 0),
        (73_062, 0, 0, 0),
        (47_347, 0, 196_808, 0),
        (16_579, 205_476, 442_824, 0),
        (73_062, 0, 0, 1),
        (16_579, -309_519, 580_204, 230_043),
        (31_855, 478_752, 86_911, 524_178),
        (51_216, 756_838, 896_967, 616_823),
        (4_807, 268_313, 664_546, 960_217),
    ];
    let mut probes =
        probes.map(|(at, offset, there, back)| exchange(at, offset, there, back)).to_vec();
    let wild = 1_700_000_086_893_010_001;
    probes.push(Probe { sent: wild, received: wild, replied: wild, arrived: wild, ..probes[0] });
    probes[12].sender_monotonic = 86_893_000_000;
    probes[12].receiver_monotonic = 0;
    let model = estimate(&probes).expect("probes");
    let (skew, bound) = (model.skew_ppm(), model.skew_bound_ppm());
    assert!(skew.is_finite() && bound.is_finite() && bound >= 0.0, "{skew} ± {bound}");
}

#[test]
fn one_probe_says_half_its_round_trip() {
    let probe = exchange(0, 5_000_000, 30_000, 50_000);
    let model = estimate(&[probe, probe]).expect("a probe");
    assert_eq!((model.probes(), model.refused(), model.round_trip_ns()), (1, 0, 80_000));
    let (offset, bound) = (model.offset_at(probe.sent), model.bound_at(probe.sent));
    assert!(offset.abs_diff(5_000_000 - 10_000) <= 100, "{offset}");
    // These stamps are of whole microseconds.
    assert!((40_000..41_200).contains(&bound), "{bound}");
    // A second later the clocks may have gone apart by 1000 ppm; nothing else is known.
    let later = model.bound_at(probe.sent + 1_000_000_000);
    assert!((1_030_000..1_050_000).contains(&later), "{later}");
}

#[test]
fn a_single_liar_is_left_out() {
    let mut probes: Vec<_> = (0..40).map(|i| exchange(i * 250, 0, 20_000, 20_000)).collect();
    probes[17].received += 3_000_000;
    probes[17].replied += 3_000_000;
    probes[17].receiver_monotonic += 3_000_000;
    let model = estimate(&probes).expect("probes");
    assert_eq!((model.probes(), model.refused()), (39, 1));
    assert!(model.steps().is_empty() && model.bound_at(probes[17].sent) < 30_000);
}

#[test]
fn stamps_that_contradict_themselves_are_refused() {
    let good = exchange(0, 0, 10_000, 10_000);
    for (what, bad) in [
        ("arrived before it left", Probe { arrived: good.sent - 1, ..good }),
        ("answered before it came", Probe { replied: good.received - 1, ..good }),
        ("longer there than away", Probe { replied: good.replied + 30_000, ..good }),
        ("centuries apart", Probe { received: u64::MAX, replied: u64::MAX, ..good }),
    ] {
        assert_eq!(bad.round_trip_ns(), None, "{what}");
        assert!(estimate(&[bad]).is_none(), "{what}");
        assert_eq!(
            estimate(&[good, bad]).map(|m| (m.probes(), m.refused())),
            Some((1, 1)),
            "{what}"
        );
    }
    assert!(estimate(&[]).is_none());
}

#[test]
fn probes_of_a_day_are_thinned_and_still_followed() {
    let drift = |ms: u64| i64::try_from(ms * 80 / 1_000).expect("small") * 1_000;
    let probes: Vec<_> =
        (0..30_000).map(|i| exchange(i * 2_880, drift(i * 2_880), 40_000, 60_000)).collect();
    let model = estimate(&probes).expect("probes");
    assert!(model.probes() <= 8192 && model.probes() > 4000, "{}", model.probes());
    assert!((model.skew_ppm() - 80.0).abs() < 0.01, "{}", model.skew_ppm());
    for (i, probe) in probes.iter().enumerate().step_by(97) {
        let off = model.offset_at(probe.sent) - drift(i as u64 * 2_880);
        assert!(off.unsigned_abs() <= model.bound_at(probe.sent), "{i}: {off}");
        // Beyond the last probe that is kept, nothing bounds the rate.
        assert!(model.bound_at(probe.sent) < 120_000 || i + 8 >= probes.len());
    }
    // Over a time, it is the largest one in it, and no larger.
    for i in (0..29_000).step_by(500) {
        let (from, until) = (probes[i].sent, probes[i + 40].sent);
        let points = (from..=until).step_by(50_000_000);
        let most = points.map(|at| model.bound_at(at)).max().expect("points");
        let between = model.bound_between(from, until);
        assert!((most..most + 3_000).contains(&between), "{i}: {between}, {most}");
    }
}

proptest! {
    #[test]
    fn no_stamps_make_it_panic(
        wild in prop::collection::vec(any::<[u64; 6]>(), 0..40),
        tame in prop::collection::vec(
            (0u64..100_000, -1_000_000i64..1_000_000, 0u64..1_000_000, 0u64..1_000_000), 0..60),
        at: u64,
    ) {
        let mut probes: Vec<_> = tame.into_iter().map(|(a, b, c, d)| exchange(a, b, c, d)).collect();
        probes.extend(wild.iter().map(|&[sender_monotonic, sent, received, replied, arrived, receiver_monotonic]| {
            Probe { sender_monotonic, sent, received, replied, arrived, receiver_monotonic }
        }));
        // Wild stamps that pass for a probe.
        probes.extend(wild.iter().map(|&[mono, sent, received, a, b, receiver_monotonic]| Probe {
            sender_monotonic: mono,
            sent,
            received: sent ^ (received >> 20),
            replied: (sent ^ (received >> 20)).saturating_add(a >> 40),
            arrived: sent.saturating_add(a >> 40).saturating_add(b >> 34),
            receiver_monotonic,
        }));
        if let Some(model) = estimate(&probes) {
            prop_assert!(model.bound_at(at) >= model.round_trip_ns() / 2);
            let _ = (model.offset_at(at), model.steps().len());
            let between = model.bound_between(at / 2, at);
            for part in 0..=64 {
                let at = at / 2 + (at - at / 2) / 64 * part;
                prop_assert!(between >= model.bound_at(at), "{between} at {at}");
            }
            prop_assert!(model.skew_ppm().is_finite() && model.skew_bound_ppm().is_finite());
        }
    }
}
