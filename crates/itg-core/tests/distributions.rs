//! A million draws of every distribution against its distribution function, written out here or
//! taken from statrs (the draws come from rand_distr): Kolmogorov–Smirnov for times, chi-square for
//! sizes and discrete distributions, binomial bounds for the tails. Significance 10⁻⁴ each; seeds
//! are fixed.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "counts and values of tests are far below 2^53"
)]

use itg_core::distribution::{Distribution, Unit};
use itg_core::seed::{Purpose, RunSeed};
use statrs::distribution::{
    Binomial, ChiSquared, Continuous, ContinuousCDF, DiscreteCDF, Gamma, Normal, StudentsT,
};

const N: u64 = 1_000_000;
const ALPHA: f64 = 1e-4;
const MS: f64 = 1e6;

type Cdf = Box<dyn Fn(f64) -> f64>;

fn cdf(f: impl Fn(f64) -> f64 + 'static) -> Cdf {
    Box::new(f)
}

/// The distribution on condition that `lo <= X <= hi`.
fn within(f: Cdf, lo: f64, hi: f64) -> Cdf {
    let (low, high) = (f(lo), if hi.is_infinite() { 1.0 } else { f(hi) });
    Box::new(move |x| ((f(x.clamp(lo, hi)) - low) / (high - low)).clamp(0.0, 1.0))
}

fn draws(text: &str, unit: Unit, lo: f64, hi: f64) -> Vec<u64> {
    let distribution =
        Distribution::parse(text, unit).and_then(|distribution| distribution.resolve(unit, lo, hi));
    let distribution = distribution.unwrap_or_else(|error| panic!("{text}: {error}"));
    let mut stream = RunSeed(2026).stream(1, Purpose::Idt);
    let mut values: Vec<u64> = (0..N).map(|k| distribution.sample(&mut stream, k)).collect();
    values.sort_unstable();
    values
}

/// Largest distance between the draws and the distribution of the rounded values, at both sides of
/// each step.
fn kolmogorov_smirnov(sorted: &[u64], f: &Cdf) -> f64 {
    let n = sorted.len() as f64;
    let mut at = 0;
    let mut worst = 0_f64;
    while at < sorted.len() {
        let value = sorted[at];
        let next = at + sorted[at..].iter().take_while(|x| **x == value).count();
        let (below, above) = (f(value as f64 - 0.5), f(value as f64 + 0.5));
        worst = worst.max((at as f64 / n - below).abs()).max((next as f64 / n - above).abs());
        at = next;
    }
    worst
}

fn assert_ks(text: &str, sorted: &[u64], f: &Cdf) {
    let got = kolmogorov_smirnov(sorted, f);
    let limit = (-(ALPHA / 2.0).ln() / 2.0).sqrt() / (sorted.len() as f64).sqrt();
    assert!(got < limit, "{text}: KS distance {got:.6}, at most {limit:.6} is chance");
}

/// Counts beyond the 0.01 %, 0.1 %, 99.9 % and 99.99 % quantiles.
fn assert_tails(text: &str, sorted: &[u64], f: &Cdf) {
    let last = *sorted.last().expect("not empty") as f64 * 4.0;
    for quantile in [1e-4, 1e-3, 0.999, 0.9999] {
        let (mut lo, mut hi) = (0.0, last);
        for _ in 0..200 {
            let mid = f64::midpoint(lo, hi);
            if f(mid) < quantile { lo = mid } else { hi = mid }
        }
        let edge = lo.round();
        let upto = sorted.partition_point(|x| *x as f64 <= edge) as u64;
        let p = f(edge + 0.5);
        let (count, p) = if quantile < 0.5 { (upto, p) } else { (N - upto, 1.0 - p) };
        if p <= 0.0 {
            assert_eq!(count, 0, "{text}: impossible values at quantile {quantile}");
            continue;
        }
        let distribution = Binomial::new(p, N).expect("a probability");
        let chance =
            distribution.cdf(count).min(if count == 0 { 1.0 } else { distribution.sf(count - 1) });
        assert!(
            chance > ALPHA / 2.0,
            "{text}: {count} of {N} beyond quantile {quantile}, expected {:.1}",
            p * N as f64
        );
    }
}

/// Pearson's test over whole values; neighbours are joined until each bin expects at least 20.
fn assert_chi_square(text: &str, sorted: &[u64], probability: impl Fn(u64) -> f64, values: &[u64]) {
    let n = sorted.len() as f64;
    let (mut expected, mut got, mut bins, mut sum) = (0.0, 0_u64, 0, 0.0);
    let (mut seen, mut mass) = (0, 0.0);
    for value in values {
        let count = sorted.partition_point(|x| x <= value) - sorted.partition_point(|x| x < value);
        seen += count;
        got += count as u64;
        let p = probability(*value);
        mass += p;
        expected += p * n;
        if expected >= 20.0 {
            sum += (got as f64 - expected).powi(2) / expected;
            bins += 1;
            (expected, got) = (0.0, 0);
        }
    }
    // What is left: the last incomplete bin and everything beyond the values listed.
    let rest = expected + (1.0 - mass).max(0.0) * n;
    let got = got as f64 + (sorted.len() - seen) as f64;
    if rest >= 5.0 {
        sum += (got - rest).powi(2) / rest;
        bins += 1;
    } else {
        assert!(got <= rest + 15.0, "{text}: {got} values where {rest:.2} are expected");
    }
    assert!(bins >= 2, "{text}: only {bins} bin(s)");
    let limit = ChiSquared::new(f64::from(bins - 1)).expect("bins").inverse_cdf(1.0 - ALPHA);
    assert!(
        sum < limit,
        "{text}: chi-square {sum:.1} over {bins} bins, at most {limit:.1} is chance"
    );
}

fn normal(mean: f64, sd: f64) -> Cdf {
    let distribution = Normal::new(mean, sd).expect("parameters");
    cdf(move |x| distribution.cdf(x))
}

fn student(location: f64, scale: f64, nu: f64) -> Cdf {
    let distribution = StudentsT::new(location, scale, nu).expect("parameters");
    cdf(move |x| distribution.cdf(x))
}

fn gamma(shape: f64, scale: f64) -> Cdf {
    let distribution = Gamma::new(shape, 1.0 / scale).expect("parameters");
    cdf(move |x| distribution.cdf(x))
}

fn exp(mean: f64) -> Cdf {
    cdf(move |x| 1.0 - (-x.max(0.0) / mean).exp())
}

fn pareto(shape: f64, scale: f64) -> Cdf {
    cdf(move |x| if x <= scale { 0.0 } else { 1.0 - (scale / x).powf(shape) })
}

fn weibull(shape: f64, scale: f64) -> Cdf {
    cdf(move |x| 1.0 - (-(x.max(0.0) / scale).powf(shape)).exp())
}

fn cauchy(location: f64, scale: f64) -> Cdf {
    cdf(move |x| 0.5 + ((x - location) / scale).atan() / std::f64::consts::PI)
}

fn lognormal(median: f64, sigma: f64) -> Cdf {
    let distribution = Normal::standard();
    cdf(move |x| if x <= 0.0 { 0.0 } else { distribution.cdf((x / median).ln() / sigma) })
}

fn uniform(lo: f64, hi: f64) -> Cdf {
    cdf(move |x| ((x - lo) / (hi - lo)).clamp(0.0, 1.0))
}

/// Every continuous distribution as an inter-departure time; where the rules truncate it, the
/// distribution here says how.
fn gap_distributions() -> Vec<(&'static str, Cdf)> {
    let inf = f64::INFINITY;
    let minute = 60_000.0 * MS;
    vec![
        ("uniform(2ms, 7ms)", uniform(2.0 * MS, 7.0 * MS)),
        ("exp(10ms)", exp(10.0 * MS)),
        ("normal(50ms, 5ms)", normal(50.0 * MS, 5.0 * MS)),
        ("normal(5ms, 5ms)", within(normal(5.0 * MS, 5.0 * MS), 0.0, inf)),
        ("lognormal(10ms, 0.5)", lognormal(10.0 * MS, 0.5)),
        ("lognormal(10ms, 2)", lognormal(10.0 * MS, 2.0)),
        ("pareto(1.5, 2ms)", pareto(1.5, 2.0 * MS)),
        ("pareto(0.95, 1.1ms)", within(pareto(0.95, 1.1 * MS), 0.0, minute)),
        ("cauchy(20ms, 1ms)", within(cauchy(20.0 * MS, MS), 0.0, minute)),
        ("student(41.6994ms, 0.104821ms, 0.704073)", {
            within(student(41.6994 * MS, 0.104_821 * MS, 0.704_073), 0.0, minute)
        }),
        ("student(40ms, 1ms, 5)", within(student(40.0 * MS, MS, 5.0), 0.0, inf)),
        ("student(5ms, 3ms, 1.5)", within(student(5.0 * MS, 3.0 * MS, 1.5), 0.0, inf)),
        ("gamma(0.3, 10ms)", gamma(0.3, 10.0 * MS)),
        ("gamma(1, 10ms)", gamma(1.0, 10.0 * MS)),
        ("gamma(4.5, 2ms)", gamma(4.5, 2.0 * MS)),
        ("weibull(0.7, 10ms)", weibull(0.7, 10.0 * MS)),
        ("weibull(3, 10ms)", weibull(3.0, 10.0 * MS)),
        ("mix(0.6:exp(4.29ms), 0.4:uniform(10ms, 11ms))", {
            let (a, b) = (exp(4.29 * MS), uniform(10.0 * MS, 11.0 * MS));
            cdf(move |x| 0.6 * a(x) + 0.4 * b(x))
        }),
        ("mix(3:trunc(exp(5ms), 1ms, 9ms), 1:normal(20ms, 1ms))", {
            let a = within(exp(5.0 * MS), MS, 9.0 * MS);
            let b = normal(20.0 * MS, MS);
            cdf(move |x| 0.75 * a(x) + 0.25 * b(x))
        }),
        // Truncation that was asked for, each distribution once.
        ("trunc(uniform(2ms, 7ms), 3ms, 4ms)", uniform(3.0 * MS, 4.0 * MS)),
        ("trunc(exp(10ms), 5ms, 30ms)", within(exp(10.0 * MS), 5.0 * MS, 30.0 * MS)),
        ("trunc(normal(50ms, 5ms), 45ms, inf)", {
            within(normal(50.0 * MS, 5.0 * MS), 45.0 * MS, inf)
        }),
        ("trunc(lognormal(10ms, 2), 1ms, 100ms)", {
            within(lognormal(10.0 * MS, 2.0), MS, 100.0 * MS)
        }),
        ("trunc(pareto(1.5, 2ms), -inf, 1s)", within(pareto(1.5, 2.0 * MS), 0.0, 1000.0 * MS)),
        ("trunc(cauchy(20ms, 1ms), 19ms, 25ms)", {
            within(cauchy(20.0 * MS, MS), 19.0 * MS, 25.0 * MS)
        }),
        ("trunc(student(40ms, 1ms, 5), 40ms, 50ms)", {
            within(student(40.0 * MS, MS, 5.0), 40.0 * MS, 50.0 * MS)
        }),
        ("trunc(gamma(0.3, 10ms), 1ms, 40ms)", within(gamma(0.3, 10.0 * MS), MS, 40.0 * MS)),
        ("trunc(weibull(0.7, 10ms), 1ms, 20ms)", {
            within(weibull(0.7, 10.0 * MS), MS, 20.0 * MS)
        }),
        ("trunc(trunc(exp(10ms), 2ms, inf), 0, 20ms)", {
            within(exp(10.0 * MS), 2.0 * MS, 20.0 * MS)
        }),
    ]
}

fn check_gaps(part: usize) {
    for (text, f) in gap_distributions().iter().skip(part).step_by(2) {
        let sorted = draws(text, Unit::Time, 0.0, f64::INFINITY);
        assert_ks(text, &sorted, f);
        assert_tails(text, &sorted, f);
    }
}

#[test]
fn gaps_follow_their_laws_and_tails_1() {
    check_gaps(0);
}

#[test]
fn gaps_follow_their_laws_and_tails_2() {
    check_gaps(1);
}

/// The tests above can fail: they see a scale that is 1 % off, and values that are one byte off.
#[test]
fn wrong_laws_are_noticed() {
    let sorted = draws("exp(10ms)", Unit::Time, 0.0, f64::INFINITY);
    let wrong = exp(10.1 * MS);
    assert!(std::panic::catch_unwind(|| assert_ks("exp", &sorted, &exp(10.1 * MS))).is_err());
    assert!(kolmogorov_smirnov(&sorted, &wrong) > 0.003);
    let sorted = draws("normal(100, 20)", Unit::Size, 12.0, 65_507.0);
    let values: Vec<u64> = (12..300).collect();
    let chi_square = |mean: f64| {
        std::panic::catch_unwind(|| {
            let f = within(normal(mean, 20.0), 12.0, 65_507.0);
            assert_chi_square(
                "normal",
                &sorted,
                |n| f(n as f64 + 0.5) - f(n as f64 - 0.5),
                &values,
            );
        })
    };
    assert!(chi_square(100.0).is_ok() && chi_square(100.5).is_err());
}

/// Sizes are whole bytes between the header (12) and the limit of UDP: each byte count is a bin.
#[test]
fn sizes_follow_their_laws() {
    let (lo, hi) = (12.0, 65_507.0);
    let distributions = vec![
        ("uniform(500, 1000)", uniform(500.0, 1000.0)),
        ("exp(300)", exp(300.0)),
        ("normal(64.151757, 3.2035755)", normal(64.151_757, 3.203_575_5)),
        ("normal(40, 60)", normal(40.0, 60.0)),
        ("lognormal(200, 1)", lognormal(200.0, 1.0)),
        ("pareto(1.2, 40)", pareto(1.2, 40.0)),
        ("pareto(0.9, 40)", pareto(0.9, 40.0)),
        ("cauchy(500, 20)", cauchy(500.0, 20.0)),
        ("student(500, 20, 3)", student(500.0, 20.0, 3.0)),
        ("gamma(2, 100)", gamma(2.0, 100.0)),
        ("weibull(1.5, 200)", weibull(1.5, 200.0)),
        ("mix(0.3732:normal(34.8352, 4.3915), 0.6268:normal(49.4904, 3.6186))", {
            let (a, b) = (normal(34.8352, 4.3915), normal(49.4904, 3.6186));
            cdf(move |x| 0.3732 * a(x) + 0.6268 * b(x))
        }),
    ];
    let values: Vec<u64> = (12..=5000).collect();
    for (text, f) in distributions {
        let f = within(f, lo, hi);
        let sorted = draws(text, Unit::Size, lo, hi);
        assert!(sorted[0] >= 12 && sorted[sorted.len() - 1] <= 65_507, "{text}");
        assert_chi_square(text, &sorted, |n| f(n as f64 + 0.5) - f(n as f64 - 0.5), &values);
    }
}

/// Poisson probabilities by their recurrence from the mode, written out independently.
fn poisson_weights(lambda: f64, upto: usize) -> Vec<f64> {
    let log_factorial: Vec<f64> = std::iter::once(0.0)
        .chain((1..=upto).scan(0.0, |sum, n| {
            *sum += (n as f64).ln();
            Some(*sum)
        }))
        .collect();
    (0..=upto).map(|n| (n as f64 * lambda.ln() - lambda - log_factorial[n]).exp()).collect()
}

#[test]
fn discrete_laws_follow_their_probabilities() {
    // (distribution, unit, grain, mean in grains, least, greatest)
    let poisson = [
        ("poisson(3ms)", Unit::Time, 1_000_000, 3.0, 0, usize::MAX),
        ("poisson(40us, 2us)", Unit::Time, 2000, 20.0, 0, usize::MAX),
        ("poisson(500)", Unit::Size, 1, 500.0, 12, usize::MAX),
        ("poisson(14)", Unit::Size, 1, 14.0, 12, usize::MAX),
        ("trunc(poisson(20ms), 15ms, 25ms)", Unit::Time, 1_000_000, 20.0, 15, 25),
    ];
    for (text, unit, grain, lambda, first, last) in poisson {
        let lo = if unit == Unit::Size { 12.0 } else { 0.0 };
        let sorted =
            draws(text, unit, lo, if unit == Unit::Size { 65_507.0 } else { f64::INFINITY });
        let weights = poisson_weights(lambda, 1000);
        let inside = |n: usize| (first..=last).contains(&n);
        let all: f64 = (0..1000).filter(|n| inside(*n)).map(|n| weights[n]).sum();
        let values: Vec<u64> = (0..1000).map(|n| n * grain).collect();
        let p = |value: u64| {
            let n = (value / grain) as usize;
            if inside(n) { weights[n] / all } else { 0.0 }
        };
        assert_chi_square(text, &sorted, p, &values);
    }
    let telnet = "discrete(21:0.65, 22:0.13, 23:0.07, 24:0.05, 25:0.03, 26:0.01, 27:0.01)";
    let weights = [0.65, 0.13, 0.07, 0.05, 0.03, 0.01, 0.01];
    let sorted = draws(telnet, Unit::Size, 12.0, 65_507.0);
    let values: Vec<u64> = (21..28).collect();
    assert_chi_square(telnet, &sorted, |n| weights[n as usize - 21] / 0.95, &values);
    let text = "trunc(discrete(1ms:5, 2ms:3, 3ms:2), 2ms, inf)";
    let sorted = draws(text, Unit::Time, 0.0, f64::INFINITY);
    let p = |n| if n == 2_000_000 { 0.6 } else { 0.4 };
    assert_chi_square(text, &sorted, p, &[2_000_000, 3_000_000]);
    let text = "mix(1:constant(1ms), 2:constant(3ms), 1:discrete(1ms:1, 2ms:1))";
    let sorted = draws(text, Unit::Time, 0.0, f64::INFINITY);
    let p = |n| [0.375, 0.125, 0.5][(n / 1_000_000) as usize - 1];
    assert_chi_square(text, &sorted, p, &[1_000_000, 2_000_000, 3_000_000]);
}

#[test]
fn a_table_is_drawn_line_by_line() {
    let mut distribution =
        Distribution::parse("empirical(gaps.txt)", Unit::Time).expect("a distribution");
    assert_eq!(distribution.files(), ["gaps.txt"]);
    distribution
        .load("gaps.txt", "# measured\n1ms\n\nunit: us\n2000 # twice\n2e3\n5000\n")
        .expect("a table");
    let distribution = distribution.resolve(Unit::Time, 0.0, f64::INFINITY).expect("usable");
    let mut stream = RunSeed(1).stream(1, Purpose::Idt);
    let mut sorted: Vec<u64> = (0..N).map(|k| distribution.sample(&mut stream, k)).collect();
    sorted.sort_unstable();
    let p = |n| if n == 2_000_000 { 0.5 } else { 0.25 };
    assert_chi_square("table", &sorted, p, &[1_000_000, 2_000_000, 5_000_000]);
    assert!((distribution.mean() - 2.5e6).abs() < 1e-6);
    assert!((distribution.distribution().variance() - 2.25e12).abs() < 1.0);
}

/// The distribution function, mean and variance of each distribution in force, against an integral
/// over the function written out above: mean = ∫ 1 − F, second moment = ∫ 2x(1 − F), on a
/// logarithmic scale.
#[test]
fn distribution_functions_and_moments_are_those_of_the_draws() {
    for (text, f) in gap_distributions() {
        let distribution = Distribution::parse(text, Unit::Time).expect("a distribution");
        let distribution = distribution.resolve(Unit::Time, 0.0, f64::INFINITY).expect("usable");
        let distribution = distribution.distribution();
        for i in 0..400 {
            let x = 1e4 * 1.06_f64.powi(i);
            let (got, want) = (distribution.cdf(x), f(x));
            assert!((got - want).abs() < 1e-9, "{text} at {x}: {got}, expected {want}");
        }
        let tail = (0..2000).map(|i| 1.02_f64.powi(i)).find(|x| f(x * 1.0) > 1.0 - 1e-15);
        let Some(end) = tail.filter(|end| *end < 1e14) else { continue };
        // 20 000 trapezia in t = ln x; the first ns does not count.
        let steps = 200_000;
        let h = end.ln() / f64::from(steps);
        let (mut mean, mut second) = (0.0, 0.0);
        for i in 0..=steps {
            let x = (h * f64::from(i)).exp();
            let weight = if i == 0 || i == steps { h / 2.0 } else { h };
            let above = 1.0 - f(x);
            mean += weight * above * x;
            second += weight * above * 2.0 * x * x;
        }
        let variance = second - mean * mean;
        let (got_mean, got_variance) = (distribution.mean(), distribution.variance());
        assert!((got_mean / mean - 1.0).abs() < 3e-6, "{text}: mean {got_mean}, expected {mean}");
        assert!(
            (got_variance / variance - 1.0).abs() < 3e-4,
            "{text}: variance {got_variance}, expected {variance}"
        );
    }
}

/// statrs' Student distribution, on which the tests above rest, against its density integrated here.
#[test]
fn students_distribution_function_is_its_integrated_density() {
    for nu in [0.704_073, 1.08341, 2.0, 5.0] {
        let distribution = StudentsT::new(0.0, 1.0, nu).expect("parameters");
        // z = sinh t, Simpson's rule from 0 to 40 standard units and more
        let steps = 20_000;
        let h = 10.0 / f64::from(steps);
        let density = |i: i32| {
            let t = h * f64::from(i);
            distribution.pdf(t.sinh()) * t.cosh()
        };
        let mut sum = 0.0;
        for i in (0..steps).step_by(2) {
            sum += h / 3.0 * (density(i) + 4.0 * density(i + 1) + density(i + 2));
            let (got, want) = (distribution.cdf((h * f64::from(i + 2)).sinh()), 0.5 + sum);
            assert!((got - want).abs() < 1e-9, "nu {nu}, step {i}: {got}, expected {want}");
        }
    }
}
