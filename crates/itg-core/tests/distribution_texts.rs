//! Distributions as text: what is read, what is written, what is refused and with which words; what
//! the rules of truncation do and say.

#![allow(clippy::float_cmp, reason = "parsed values are exact")]

use itg_core::distribution::{Distribution, DistributionError, Unit};
use itg_core::seed::{Purpose, RunSeed};

fn time(text: &str) -> Result<Distribution, String> {
    Distribution::parse(text, Unit::Time).map_err(|e| e.to_string())
}

fn size(text: &str) -> Result<Distribution, String> {
    Distribution::parse(text, Unit::Size).map_err(|e| e.to_string())
}

#[test]
fn canonical_texts() {
    let rows = [
        ("10ms", "constant(10ms)"),
        ("0", "constant(0s)"),
        ("constant( 1.7857142857142857s )", "constant(1.7857142857142856s)"),
        ("uniform(1ms,2.5ms)", "uniform(1ms, 2.5ms)"),
        ("uniform(0, 500us)", "uniform(0s, 500us)"),
        (" exp (10ms)", "exp(10ms)"),
        ("exp(0.01s)", "exp(10ms)"),
        ("exp(0.3ns)", "exp(0.3ns)"),
        ("normal(10ms, 5ms)", "normal(10ms, 5ms)"),
        ("lognormal(10ms, 0.5)", "lognormal(10ms, 0.5)"),
        ("pareto(0.95, 1.1ms)", "pareto(0.95, 1.1ms)"),
        ("cauchy(20ms, 1ms)", "cauchy(20ms, 1ms)"),
        ("student(41.6994ms, 0.104821ms, 0.704073)", "student(41.6994ms, 104821ns, 0.704073)"),
        ("gamma(2, 1h)", "gamma(2, 1h)"),
        ("weibull(1.5, 90s)", "weibull(1.5, 90s)"),
        ("poisson(10ms)", "poisson(10ms, 1ms)"),
        ("poisson(10ms, 1s)", "poisson(10ms, 1s)"),
        ("discrete(1ms:5, 2ms : 3)", "discrete(1ms:5, 2ms:3)"),
        (
            "mix(0.6:exp(4.29ms), 0.4:constant(10.75ms))",
            "mix(0.6:exp(4.29ms), 0.4:constant(10.75ms))",
        ),
        ("mix(1:5ms)", "mix(1:constant(5ms))"),
        ("empirical(a/b c.txt)", "empirical(a/b c.txt)"),
        (r#"empirical("a (1), \"b\".txt")"#, r#"empirical("a (1), \"b\".txt")"#),
        ("trunc(normal(10ms,5ms),0,inf)", "trunc(normal(10ms, 5ms), 0s, inf)"),
        ("trunc(trunc(exp(1s), -inf, 2s), 1ns, 1min)", "trunc(trunc(exp(1s), -inf, 2s), 1ns, 60s)"),
    ];
    for (text, want) in rows {
        let distribution = time(text).unwrap_or_else(|e| panic!("input {text:?}: {e}"));
        assert_eq!(distribution.display(Unit::Time), want, "input {text:?}");
        assert_eq!(time(want), Ok(distribution), "input {text:?}");
    }
    let rows = [
        ("512", "constant(512)"),
        ("1.5Ki", "constant(1536)"),
        ("uniform(500,1000)", "uniform(500, 1000)"),
        ("normal(64.151757, 3.2035755)", "normal(64.151757, 3.2035755)"),
        ("poisson(500)", "poisson(500)"),
        ("poisson(1Ki)", "poisson(1024)"),
        ("poisson(500, 10)", "poisson(500, 10)"),
        ("discrete(27:0.8312, 28:0.0018)", "discrete(27:0.8312, 28:0.0018)"),
        ("pareto(1.2, 40)", "pareto(1.2, 40)"),
        ("exp(10GB)", "exp(10000000000)"),
    ];
    for (text, want) in rows {
        let distribution = size(text).unwrap_or_else(|e| panic!("input {text:?}: {e}"));
        assert_eq!(distribution.display(Unit::Size), want, "input {text:?}");
        assert_eq!(size(want), Ok(distribution), "input {text:?}");
    }
}

#[test]
fn values_are_what_was_written() {
    assert_eq!(time("exp(4.29ms)"), Ok(Distribution::Exp { mean: 4_290_000.0 }));
    assert_eq!(
        time("pareto(0.95, 1.1ms)"),
        Ok(Distribution::Pareto { shape: 0.95, scale: 1_100_000.0 })
    );
    assert_eq!(time("poisson(40us)"), Ok(Distribution::Poisson { mean: 4e4, grain: 1e3 }));
    assert_eq!(
        time("trunc(2min, 0, inf)"),
        Ok(Distribution::Trunc {
            distribution: Box::new(Distribution::Constant(1.2e11)),
            lo: 0.0,
            hi: f64::INFINITY
        })
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn what_is_refused_and_why() {
    let deep = format!("{}exp(1ms){}", "trunc(".repeat(17), ", 0, inf)".repeat(17));
    let list = format!("discrete({}1ms:1)", "1ms:1,".repeat(10_000));
    let names = "constant, uniform, exp, normal, lognormal, pareto, cauchy, student, gamma, weibull, \
                 poisson, discrete, mix, empirical, trunc";
    let no_unit = "expected a number with ns, us, ms, s, min or h, such as 500us or 20s";
    let rows = [
        ("exp(10)", format!("exp, mean: duration `10` has no unit: {no_unit}")),
        ("10", format!("constant, value: duration `10` has no unit: {no_unit}")),
        ("exp(10 apples)", {
            format!("exp, mean: unknown unit `apples` in duration `10 apples`: {no_unit}")
        }),
        ("exp(mean)", format!("exp, mean: no number in duration `mean`: {no_unit}")),
        ("exp()", "exp takes one value, the mean, got 0 value(s)".to_owned()),
        ("exp(1ms, 2ms)", "exp takes one value, the mean, got 2 value(s)".to_owned()),
        ("uniform(1ms)", "uniform takes two values: lo, hi, got 1 value(s)".to_owned()),
        ("student(1ms, 1ms)", {
            "student takes three values: location, scale, nu (plain number), got 2 value(s)"
                .to_owned()
        }),
        ("pareto(1ms, 0.95)", {
            "pareto, shape: `1ms` is not a plain number: expected one without a unit, such as 0.95"
                .to_owned()
        }),
        ("exp(0)", "exp, mean: 0s must be above 0".to_owned()),
        ("exp(-1ms)", "exp, mean: -1000000ns must not be negative".to_owned()),
        ("exp(1e30h)", {
            "exp, mean: 1e30h must be at most 1e18 ns (31 years) or bytes".to_owned()
        }),
        ("uniform(2ms, 1ms)", "uniform, hi: 1ms must be above lo".to_owned()),
        ("normal(1ms, 0)", "normal, sd: 0s must be above 0".to_owned()),
        (
            "lognormal(1ms, 11)",
            "lognormal, sigma: 11 must be a number above 0 and at most 10".to_owned(),
        ),
        ("pareto(0, 1ms)", "pareto, shape: 0 must be a number from 0.05 to 1000000".to_owned()),
        ("student(1ms, 1ms, 1e9)", {
            "student, nu: 1000000000 must be a number from 0.05 to 1000000".to_owned()
        }),
        (
            "discrete(1ms:0)",
            "discrete, weight: 0 must be a number above 0 and at most 1e15".to_owned(),
        ),
        ("discrete(1ms)", "cannot read distribution at `)`: expected value:weight".to_owned()),
        ("mix(exp(1ms))", {
            "mix, weight: `exp` is not a plain number: expected one without a unit, such as 0.95"
                .to_owned()
        }),
        ("mix(1:)", {
            "cannot read distribution at `)`: expected a distribution such as exp(10ms), or a value with its unit"
                .to_owned()
        }),
        ("exp(1ms", "cannot read distribution at `end of text`: expected `)`".to_owned()),
        ("exp(1ms) x", {
            "cannot read distribution at `x`: nothing more was expected after the distribution"
                .to_owned()
        }),
        ("exp", {
            "cannot read distribution at `exp`: values in parentheses must follow the name of a distribution"
                .to_owned()
        }),
        ("", {
            "cannot read distribution at `end of text`: expected a distribution such as exp(10ms), or a value with its \
             unit"
                .to_owned()
        }),
        ("exponential(1ms)", {
            format!(
                "unknown distribution `exponential`, did you mean `exp`?: expected one of {names}"
            )
        }),
        ("Paretto(1ms)", {
            format!(
                "unknown distribution `Paretto`, did you mean `pareto`?: expected one of {names}"
            )
        }),
        ("zipf(1)", format!("unknown distribution `zipf`: expected one of {names}")),
        (
            "trunc(exp(1ms), 5ms)",
            "cannot read distribution at `)`: trunc takes a distribution, lo and hi".to_owned(),
        ),
        ("trunc(exp(1ms), 5ms, 4ms)", "trunc, hi: 4ms must be above lo and above 0".to_owned()),
        (
            "trunc(exp(1ms), 0, 0.5ns)",
            "trunc, hi: 0.5ns must be a whole number of ns or bytes".to_owned(),
        ),
        ("trunc(exp(1ms), 0, lots)", format!("trunc, hi: no number in duration `lots`: {no_unit}")),
        ("empirical()", {
            "cannot read distribution at `)`: expected a file name, in double quotes if it has other than plain \
             characters"
                .to_owned()
        }),
        ("empirical(\"x)", {
            "cannot read distribution at `\"x)`: the closing quote of the file name is missing"
                .to_owned()
        }),
        (&deep, "distributions are nested more than 16 deep".to_owned()),
        (&list, "discrete has 10001 entries: expected 1 to 10000".to_owned()),
    ];
    for (text, want) in rows {
        let got = time(text).err().unwrap_or_default();
        assert_eq!(got, want, "input {text:?}");
    }
    assert_eq!(
        size("exp(10ms)").err().as_deref(),
        Some(
            "exp, mean: unknown unit `ms` in size `10ms`: expected bytes, or a number with kB, MB, GB \
             (powers of 1000) or Ki, Mi, Gi (powers of 1024), such as 512 or 64Ki"
        )
    );
}

#[test]
fn sixteen_levels_and_ten_thousand_entries_are_read() {
    let deep = format!("{}exp(1ms){}", "trunc(".repeat(16), ", 0, inf)".repeat(16));
    assert!(time(&deep).is_ok());
    let list = format!("discrete({}1ms:1)", "1ms:1,".repeat(9_999));
    assert!(time(&list).is_ok());
}

#[test]
fn tables_are_read_line_by_line() {
    let load = |unit, text: &str| {
        let mut distribution =
            Distribution::parse("trunc(empirical(t), 0, inf)", unit).expect("a distribution");
        distribution.load("other", "rubbish").expect("not its file");
        distribution.load("t", text).map_err(|e| e.to_string()).map(|()| distribution.mean())
    };
    assert_eq!(load(Unit::Size, "100\n 1Ki # large\n\n"), Ok(562.0));
    assert_eq!(load(Unit::Time, "unit: ms\n1\n2\n3us"), Ok(1_001_000.0));
    assert_eq!(
        load(Unit::Time, "1ms\n2\n").err().as_deref(),
        Some(
            "t, line 2: duration `2` has no unit: expected a number with ns, us, ms, s, min or h, such \
             as 500us or 20s"
        )
    );
    assert_eq!(
        load(Unit::Size, "1\n-3").err().as_deref(),
        Some("t, line 2: `-3` is not from 0 to 1e18 ns or bytes")
    );
    assert_eq!(
        load(Unit::Size, "# nothing\n").err().as_deref(),
        Some("t, line 1: the file ends without a value")
    );
    let distribution =
        Distribution::parse("mix(1:empirical(a), 1:trunc(empirical(b), 0, inf))", Unit::Size);
    let distribution = distribution.expect("a distribution");
    assert_eq!(distribution.files(), ["a", "b"]);
    assert_eq!(
        distribution.resolve(Unit::Size, 12.0, 1500.0).err().map(|e| e.to_string()).as_deref(),
        Some("the values of empirical(a) have not been read: the file is needed here")
    );
    assert!(distribution.mean().is_nan() && distribution.cdf(1.0).is_nan());
}

/// Distribution, unit, notice or error.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn rules_of_truncation_speak() {
    let rows = [
        ("constant(0)", Unit::Time, Ok(None)),
        ("exp(10ms)", Unit::Time, Ok(None)),
        ("normal(50ms, 2ms)", Unit::Time, Ok(None)),
        // One draw in ten million, which no mean tells.
        ("normal(52ms, 10ms)", Unit::Time, Ok(None)),
        // Six in a million, which are a thirtieth of all bytes.
        (
            "pareto(1.4, 12)",
            Unit::Size,
            Ok(Some(
                "0.000586 % of the draws of pareto(1.4, 12), outside 12..65507 bytes, are drawn again, which \
                 makes the mean 40.66 bytes (rule: sizes are drawn again until they fit the packet header and \
                 the limit of the protocol)",
            )),
        ),
        ("uniform(12, 65507)", Unit::Size, Ok(None)),
        (
            "normal(10ms, 5ms)",
            Unit::Time,
            Ok(Some(
                "2.28 % of the draws of normal(10ms, 5ms), outside 0s..inf, are drawn again, which \
                 makes the mean 10.28 ms (rule: times are drawn again until they are not negative)",
            )),
        ),
        (
            "pareto(0.95, 1.1ms)",
            Unit::Time,
            Ok(Some(
                "pareto(0.95, 1.1ms) has no finite mean: 0.00316 % of its draws, outside 0s..60s, are \
                 drawn again, which makes the mean 15.16 ms (rule: times without a finite mean are \
                 drawn again until they are from 0 to 60 s)",
            )),
        ),
        (
            "exp(100)",
            Unit::Size,
            Ok(Some(
                "11.3 % of the draws of exp(100), outside 12..65507 bytes, are drawn again, which makes \
                 the mean 112 bytes (rule: sizes are drawn again until they fit the packet header and \
                 the limit of the protocol)",
            )),
        ),
        ("trunc(cauchy(20ms, 1ms), 0, 1h)", Unit::Time, Ok(None)),
        ("constant(11)", Unit::Size, Err("constant(11) is outside 12..65507 bytes")),
        (
            "constant(92.5)",
            Unit::Size,
            Err("constant, value: 92.5 must be a whole number of bytes"),
        ),
        (
            "exp(1)",
            Unit::Size,
            Err(
                "exp(1) keeps 0.000614 % of its draws within 12..65507 bytes: at least 1/16 is needed, \
                 choose other parameters or bounds",
            ),
        ),
        (
            "trunc(exp(1ms), 10ms, inf)",
            Unit::Time,
            Err(
                "trunc(exp(1ms), 10ms, inf) keeps 0.00454 % of its draws within 10ms..inf: at least 1/16 \
                 is needed, choose other parameters or bounds",
            ),
        ),
        (
            "trunc(mix(1:trunc(exp(1ms), 2ms, inf), 1:exp(2ms)), 4ms, inf)",
            Unit::Time,
            Err(
                "trunc(mix(1:trunc(exp(1ms), 2ms, inf), 1:exp(2ms)), 4ms, inf) keeps 3.23 % of its draws \
                 within 4ms..inf: at least 1/16 is needed, choose other parameters or bounds",
            ),
        ),
        (
            "mix(0.999:exp(1ms), 0.001:trunc(exp(1ms), 10ms, inf))",
            Unit::Time,
            Err(
                "mix(0.999:exp(1ms), 0.001:trunc(exp(1ms), 10ms, inf)) keeps 0.00454 % of its draws \
                 within 0s..inf: at least 1/16 is needed, choose other parameters or bounds",
            ),
        ),
    ];
    for (text, unit, want) in rows {
        let (lo, hi) = if unit == Unit::Time { (0.0, f64::INFINITY) } else { (12.0, 65_507.0) };
        let got = Distribution::parse(text, unit).expect("a distribution").resolve(unit, lo, hi);
        let got =
            got.as_ref().map(|distribution| distribution.notice()).map_err(ToString::to_string);
        assert_eq!(got, want.map_err(str::to_owned), "input {text:?}");
    }
    // Distributions that were not read but made are checked as well.
    let distribution = Distribution::Exp { mean: f64::NAN };
    assert!(matches!(
        distribution.resolve(Unit::Time, 0.0, 1e9),
        Err(DistributionError::Parameter { .. })
    ));
    let distribution = Distribution::Discrete(Vec::new());
    assert!(matches!(
        distribution.resolve(Unit::Time, 0.0, 1e9),
        Err(DistributionError::Entries { got: 0, .. })
    ));
    let distribution =
        Distribution::Empirical { name: "t".to_owned(), unit: Unit::Size, table: None };
    assert!(matches!(
        distribution.resolve(Unit::Time, 0.0, 1e9),
        Err(DistributionError::Parameter { .. })
    ));
}

#[test]
fn constant_gaps_do_not_drift() {
    let mut stream = RunSeed(1).stream(1, Purpose::Idt);
    for (text, x) in
        [("10ms", 1e7), ("1.7857142857142857s", 1_785_714_285.714_285_7), ("0.3ns", 0.3)]
    {
        let distribution = Distribution::parse(text, Unit::Time).expect("a distribution");
        let distribution = distribution.resolve(Unit::Time, 0.0, f64::INFINITY).expect("usable");
        assert_eq!(distribution.is_constant(), Some(x));
        let mut sum = 0;
        for k in 0..100_000_u32 {
            sum += distribution.sample(&mut stream, u64::from(k));
            let error = sum as f64 - f64::from(k + 1) * x;
            assert!(error.abs() <= 0.51, "{text}: {error} ns off after {k} gaps");
        }
    }
}

/// Means and variances in closed form, from the literature, where an integral does not reach.
#[test]
fn published_moments() {
    let inf = f64::INFINITY;
    let rows = [
        ("constant(7)", 7.0, 0.0),
        ("uniform(2, 8)", 5.0, 3.0),
        ("exp(10)", 10.0, 100.0),
        ("normal(10, 3)", 10.0, 9.0),
        ("normal(1e9, 3)", 1e9, 9.0),
        ("lognormal(10, 2)", 10.0 * 2_f64.exp(), 100.0 * 4_f64.exp() * (4_f64.exp() - 1.0)),
        ("pareto(1.5, 2)", 6.0, inf),
        ("pareto(3, 2)", 3.0, 3.0),
        ("pareto(1, 2)", inf, inf),
        ("pareto(0.95, 2)", inf, inf),
        ("cauchy(10, 1)", f64::NAN, f64::NAN),
        ("student(10, 2, 0.7)", f64::NAN, f64::NAN),
        ("student(10, 2, 1.5)", 10.0, inf),
        ("student(10, 2, 2)", 10.0, inf),
        ("student(10, 2, 2.5)", 10.0, 20.0),
        ("student(10, 2, 6)", 10.0, 6.0),
        ("gamma(2.5, 4)", 10.0, 40.0),
        ("weibull(1, 10)", 10.0, 100.0),
        ("weibull(50, 10)", 9.888442032639132, 0.06253425856014871),
        ("weibull(2, 10)", 8.862_269_254_527_58, 21.460_183_660_255_17),
        ("poisson(500)", 500.0, 500.0),
        ("poisson(500, 10)", 500.0, 5000.0),
        ("discrete(10:1, 20:3)", 17.5, 18.75),
        ("mix(1:exp(10), 3:constant(20))", 17.5, 43.75),
        ("mix(1:exp(10), 3:pareto(1, 20))", inf, inf),
    ];
    for (text, mean, variance) in rows {
        let distribution = size(text).unwrap_or_else(|e| panic!("input {text:?}: {e}"));
        for (what, got, want) in
            [("mean", distribution.mean(), mean), ("variance", distribution.variance(), variance)]
        {
            let same = got == want || (got.is_nan() && want.is_nan());
            assert!(
                same || (got / want - 1.0).abs() < 1e-9,
                "{text}: {what} {got}, expected {want}"
            );
        }
    }
}
