//! The built-in profiles: their published numbers, their moments over a million draws, and what is
//! said about wrong ones.

#![allow(clippy::float_cmp, reason = "published numbers are exact")]

use itg_core::distribution::{Distribution, Resolved, Unit};
use itg_core::flow::Proto;
use itg_core::profile::{Profile, builtin, builtin_names, split_spec};
use itg_core::seed::{Purpose, RunSeed};
use statrs::function::gamma::ln_gamma;

const MS: f64 = 1e6;
const MINUTE: f64 = 60e9;

fn profile(spec: &str) -> Profile {
    Profile::from_spec(spec).unwrap_or_else(|e| panic!("{spec}: {e}"))
}

fn distributions(profile: &Profile) -> (Resolved, Resolved) {
    let proto = profile.transport.unwrap_or(Proto::Udp);
    let (lo, hi) = (f64::from(proto.min_size()), f64::from(proto.max_size()));
    let idt = profile.idt.resolve(Unit::Time, 0.0, f64::INFINITY).expect("gaps are usable");
    (idt, profile.size.resolve(Unit::Size, lo, hi).expect("sizes are usable"))
}

/// D-ITG's table: codec, inter-departure time in ns, and sizes with RTP, CRTP, RTP and VAD, CRTP
/// and VAD.
#[test]
fn voip_is_the_published_table() {
    let rows = [
        ("voip-g711.1", 1e9 / 100.0, [92.0, 82.0, 64.0, 54.0]),
        ("voip-g711.2", 1e9 / 50.0, [172.0, 162.0, 116.0, 106.0]),
        ("voip-g729.2", 1e9 / 50.0, [32.0, 22.0, 25.0, 15.0]),
        ("voip-g729.3", 1e9 / 33.0, [42.0, 32.0, 31.0, 21.0]),
        ("voip-g723.1", 1e9 / 26.0, [42.0, 32.0, 31.0, 21.0]),
        ("voip-g723.1-6.3k", 1e9 / 33.333_333_333_333_336, [36.0, 26.0, 27.0, 17.0]),
        ("voip-g723.1-5.3k", 1e9 / 33.333_333_333_333_336, [32.0, 22.0, 25.0, 15.0]),
    ];
    for (name, gap, sizes) in rows {
        let params = ["", ":header=crtp", ":vad=yes", ":header=crtp,vad=yes"];
        for (params, want) in params.into_iter().zip(sizes) {
            let got = profile(&format!("{name}{params}"));
            assert_eq!(got.idt, Distribution::Constant(gap), "{name}{params}");
            assert_eq!(got.size, Distribution::Constant(want), "{name}{params}");
            assert_eq!(got.transport, Some(Proto::Udp), "{name}{params}");
            let (idt, size) = distributions(&got);
            assert!(idt.notice().is_none() && size.notice().is_none(), "{name}{params}");
        }
    }
    assert_eq!(profile("voip-g711").parameters["header"], "rtp");
    assert_eq!(profile("voip-g711:vad=yes,header=crtp").parameters["vad"], "yes");
}

/// Mean and variance of a Student distribution on condition that it is in 0..=hi: integral of the
/// density, with x = location + scale·sinh t, by the midpoint rule.
fn student_moments(location: f64, scale: f64, nu: f64, hi: f64) -> (f64, f64) {
    let constant = (ln_gamma(f64::midpoint(nu, 1.0)) - ln_gamma(nu / 2.0)).exp()
        / (nu * std::f64::consts::PI).sqrt();
    let (from, to) = ((-location / scale).asinh(), ((hi - location) / scale).asinh());
    let steps = 400_000_u32;
    let h = (to - from) / f64::from(steps);
    let (mut p, mut first, mut second) = (0.0, 0.0, 0.0);
    for i in 0..steps {
        let t = from + h * (f64::from(i) + 0.5);
        let z = t.sinh();
        let weight = constant * (1.0 + z * z / nu).powf(-nu.midpoint(1.0)) * t.cosh() * h;
        let x = location + scale * z;
        p += weight;
        first += weight * x;
        second += weight * x * x;
    }
    let mean = first / p;
    (mean, second / p - mean * mean)
}

/// The same for a Pareto distribution up to `hi`, with x = e^t.
fn pareto_moments(shape: f64, scale: f64, hi: f64) -> (f64, f64) {
    let steps = 400_000_u32;
    let h = (hi / scale).ln() / f64::from(steps);
    let (mut p, mut first, mut second) = (0.0, 0.0, 0.0);
    for i in 0..steps {
        let t = h * (f64::from(i) + 0.5);
        let x = scale * t.exp();
        let weight = shape * (-shape * t).exp() * h;
        p += weight;
        first += weight * x;
        second += weight * x * x;
    }
    let mean = first / p;
    (mean, second / p - mean * mean)
}

/// Mean and variance of inter-departure times (ns) and sizes (bytes) as published: D-ITG's
/// parameters, the textbook formulas, and ITG's rules of truncation for the inter-departure times
/// that need them.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn moments_are_the_published_ones() {
    let mixture = |parts: &[(f64, f64, f64)]| {
        let mean: f64 = parts.iter().map(|(w, m, _)| w * m).sum();
        let second: f64 = parts.iter().map(|(w, m, sd)| w * (m * m + sd * sd)).sum();
        (mean, second - mean * mean)
    };
    let discrete = |parts: &[(f64, f64)]| {
        let mean: f64 = parts.iter().map(|(x, w)| x * w).sum();
        (mean, parts.iter().map(|(x, w)| x * x * w).sum::<f64>() - mean * mean)
    };
    let text = [
        0.65, 0.13, 0.07, 0.05, 0.03, 0.01, 0.01, 0.01, 0.01, 0.005, 0.005, 0.005, 0.005, 0.005,
        0.005,
    ];
    let telnet: Vec<_> = (21..36).map(f64::from).zip(text).collect();
    let idle = [
        (27.0, 0.8312),
        (28.0, 0.0018),
        (29.0, 0.0453),
        (30.0, 0.0195),
        (31.0, 0.0879),
        (32.0, 0.0024),
        (33.0, 0.0106),
        (35.0, 0.0013),
    ];
    let active = student_moments(41.6994 * MS, 0.104_821 * MS, 0.704_073, MINUTE);
    let rows = [
        ("telnet", pareto_moments(0.95, 1.1 * MS, MINUTE), discrete(&telnet)),
        ("telnet-typing", pareto_moments(0.9, 121.5 * MS, MINUTE), discrete(&telnet)),
        ("dns", (1e9 / 0.56, 0.0), (210.0, 220.0 * 220.0 / 12.0)),
        (
            "quake3",
            mixture(&[(0.6, 4.29 * MS, 4.29 * MS), (0.4, 10.75 * MS, 0.0)]),
            (64.151_757, 3.203_575_5 * 3.203_575_5),
        ),
        (
            "counter-strike-active",
            active,
            mixture(&[(0.3732, 34.8352, 4.3915), (0.6268, 49.4904, 3.6186)]),
        ),
        (
            "counter-strike-idle",
            (student_moments(41.6858 * MS, 0.069_439_3 * MS, 1.083_41, 1e120).0, f64::INFINITY),
            discrete(&idle),
        ),
    ];
    for (name, idt, size) in rows {
        let (gaps, sizes) = distributions(&profile(name));
        // Rounding to whole bytes adds 1/12 to the variance (Sheppard), unless they were whole; of
        // ns it is nothing beside the variance of inter-departure times, but for constant ones.
        let whole = matches!(sizes.distribution(), Distribution::Discrete(_));
        let distributions = [
            ("idt", Purpose::Idt, gaps, idt, 0.0, 0.25),
            ("size", Purpose::Size, sizes, size, if whole { 0.0 } else { 1.0 / 12.0 }, 0.0),
        ];
        for (what, purpose, distribution, (mean, variance), rounding, slack) in distributions {
            let near = |got: f64, want: f64, by: f64| got == want || (got / want - 1.0).abs() < by;
            let (got_mean, got_variance) =
                (distribution.mean(), distribution.distribution().variance());
            assert!(near(got_mean, mean, 1e-6), "{name}, {what}: mean {got_mean}, expected {mean}");
            assert!(
                near(got_variance, variance, 1e-5) || (variance == 0.0 && got_variance < 1.0),
                "{name}, {what}: variance {got_variance}, expected {variance}"
            );
            if !variance.is_finite() {
                continue;
            }
            let n = 1_000_000;
            let mut stream = RunSeed(7).stream(1, purpose);
            let (mut sum, mut squares, mut fourth) = (0.0, 0.0, 0.0);
            for k in 0..n {
                let d = distribution.sample(&mut stream, k) as f64 - mean;
                sum += d;
                squares += d * d;
                fourth += d.powi(4);
            }
            let n = n as f64;
            let error = (variance / n).sqrt() + 0.5 / n;
            assert!(
                (sum / n).abs() < 4.0 * error,
                "{name}, {what}: {} off the mean, standard error {error}",
                sum / n
            );
            let got = squares / n - (sum / n).powi(2);
            let error = ((fourth / n - got * got).max(0.0) / n).sqrt();
            assert!(
                (got - variance - rounding).abs() < 4.0 * error + slack,
                "{name}, {what}: sample variance {got}, expected {variance}, standard error {error}"
            );
        }
    }
}

/// Without a finite variance the mean of a sample says little; its quartiles do.
#[test]
fn quartiles_of_counter_strike_idle() {
    let (gaps, _) = distributions(&profile("counter-strike-idle"));
    let mut stream = RunSeed(7).stream(1, Purpose::Idt);
    let n = 1_000_000_u32;
    let mut draws: Vec<_> = (0..u64::from(n)).map(|k| gaps.sample(&mut stream, k)).collect();
    draws.sort_unstable();
    for quarter in 1..4 {
        let share = f64::from(quarter) / 4.0;
        let at = gaps.distribution().cdf(draws[(quarter * n / 4) as usize] as f64);
        let error = (share * (1.0 - share) / f64::from(n)).sqrt();
        assert!((at - share).abs() < 4.0 * error, "{at} instead of {share}");
    }
    assert_eq!(draws.iter().filter(|x| **x > u64::MAX / 2).count(), 0);
}

#[test]
fn every_profile_is_complete_and_says_what_was_changed() {
    assert_eq!(builtin_names().len(), 13);
    for name in builtin_names() {
        let found = profile(name);
        assert_eq!(found.name, name);
        assert!(found.source.contains("D-ITG 2.8.1") && !found.title.is_empty(), "{name}");
        assert!(!found.parameters.is_empty(), "{name}");
        let (idt, size) = distributions(&found);
        // One size in 27 million of counter-strike-active would be below the header: too few to be told of.
        assert_eq!(size.notice(), None, "{name}");
        let truncated = ["telnet", "telnet-typing", "counter-strike-active", "counter-strike-idle"]
            .contains(&name);
        assert_eq!(idt.notice().is_some(), truncated, "{name}: {:?}", idt.notice());
    }
    assert_eq!(profile("telnet").transport, Some(Proto::Tcp));
}

#[test]
fn names_and_aliases() {
    let rows = [
        ("Telnet", Some("telnet")),
        ("DNS", Some("dns")),
        ("Quake3", Some("quake3")),
        ("VoIP", Some("voip-g711.1")),
        ("voip-g711", Some("voip-g711.1")),
        ("G.729.2", Some("voip-g729.2")),
        ("CSa", Some("counter-strike-active")),
        ("CSI", Some("counter-strike-idle")),
        ("cs-active", Some("counter-strike-active")),
        ("http", None),
        ("", None),
    ];
    for (name, want) in rows {
        let got = builtin(name).map(|text| Profile::parse(text, &[]).expect("built in").name);
        assert_eq!(got.as_deref(), want, "name {name:?}");
    }
    let params = vec![("a".to_owned(), "1".to_owned()), ("b".to_owned(), "2".to_owned())];
    assert_eq!(split_spec("x:a=1, b = 2"), Ok(("x", params)));
}

#[test]
fn what_is_wrong_with_a_profile() {
    let names = "telnet, telnet-typing, dns, quake3, counter-strike-active, counter-strike-idle, voip-g711.1, \
                 voip-g711.2, voip-g723.1, voip-g723.1-6.3k, voip-g723.1-5.3k, voip-g729.2, voip-g729.3";
    let rows = [
        (
            "quake",
            format!("unknown profile `quake`, did you mean `quake3`?: expected one of {names}"),
        ),
        ("http-video", format!("unknown profile `http-video`: expected one of {names}")),
        ("dns:x", "profile `dns`: `x` is not of the form key=value".to_owned()),
        ("dns:", "profile `dns`: `` is not of the form key=value".to_owned()),
        ("dns:vad=yes", {
            "profile `dns`, parameter `vad=yes`: this profile has no parameters".to_owned()
        }),
        ("voip:header=udp", {
            "profile `voip-g711.1`, parameter `header=udp`: expected header=rtp (12 bytes) or \
             header=crtp (2 bytes)"
                .to_owned()
        }),
        ("voip:vad=on", {
            "profile `voip-g711.1`, parameter `vad=on`: expected vad=yes or vad=no".to_owned()
        }),
        ("voip:codec=opus", {
            "profile `voip-g711.1`, parameter `codec=opus`: expected header=rtp|crtp or vad=yes|no"
                .to_owned()
        }),
    ];
    for (spec, want) in rows {
        assert_eq!(Profile::from_spec(spec).map_err(|e| e.to_string()), Err(want), "spec {spec:?}");
    }
    let head = "name = \"x\"\ntitle = \"t\"\nsource = \"s\"\n";
    let rows = [
        ("", "profile `x`: idt and size are both needed, or [voip]"),
        ("idt = \"1ms\"", "profile `x`: idt and size are both needed, or [voip]"),
        (
            "idt = \"exp(10)\"\nsize = \"512\"",
            "profile `x`, idt: exp, mean: duration `10` has no unit: expected a number with ns, us, ms, \
             s, min or h, such as 500us or 20s",
        ),
        (
            "idt = \"1ms\"\nsize = \"512\"\non_off = { on = \"1s\", off = \"soon\" }",
            "profile `x`, on_off.off: unknown distribution `soon`: expected one of constant, uniform, exp, \
             normal, lognormal, pareto, cauchy, student, gamma, weibull, poisson, discrete, mix, \
             empirical, trunc",
        ),
        (
            "size = \"512\"\nvoip = { frame_bytes = 80, frames = 1, packet_rate = 100 }",
            "profile `x`: with [voip] there is no idt and no size",
        ),
        (
            "voip = { frame_bytes = 80, frames = 1, packet_rate = 0 }",
            "profile `x`: [voip] needs frame_bytes 1 to 10000, frames 1 to 1000, packet_rate (packets \
             per second) 1 to 1000000",
        ),
    ];
    for (text, want) in rows {
        let got = Profile::parse(&format!("{head}{text}"), &[]).map_err(|e| e.to_string());
        assert_eq!(got, Err(want.to_owned()), "text {text:?}");
    }
    let unknown_key =
        Profile::parse(&format!("{head}gap = \"1ms\""), &[]).map_err(|e| e.to_string());
    let unknown_key = unknown_key.expect_err("an unknown key");
    assert!(unknown_key.contains("line 4") && unknown_key.contains("gap"), "{unknown_key}");
}

#[test]
fn a_profile_of_ones_own() {
    let text = "name = \"x\"\ntitle = \"t\"\nsource = \"s\"\ntransport = \"sctp\"\nidt = \"exp(1ms)\"\n\
                size = \"uniform(100, 200)\"\n[on_off]\non = \"exp(1s)\"\noff = \"2s\"\n";
    let own = Profile::parse(text, &[]).expect("a profile");
    assert_eq!(own.transport, Some(Proto::Sctp));
    let periods = own.on_off.expect("periods");
    assert_eq!(
        (periods.on, periods.off),
        (Distribution::Exp { mean: 1e9 }, Distribution::Constant(2e9))
    );
}

/// The moments on the page are those of the profiles.
#[test]
fn the_page_has_the_moments_that_follow() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/traffic-model.md");
    let page = std::fs::read_to_string(page).expect("the page");
    let ms = |ns: f64| match ns {
        ns if ns.is_finite() => format!("{} ms", significant(ns / MS)),
        _ => "∞".to_owned(),
    };
    for name in builtin_names() {
        let (gaps, sizes) = distributions(&profile(name));
        let (gap, gap_sd) = (gaps.mean(), gaps.distribution().variance().sqrt());
        let (size, size_sd) = (sizes.mean(), sizes.distribution().variance().sqrt());
        let rate = significant(1e9 / gap);
        let [size, size_sd] = [size, size_sd].map(significant);
        let row =
            format!("| `{name}` | {} | {} | {rate} | {size} | {size_sd} |\n", ms(gap), ms(gap_sd));
        assert!(page.contains(&row), "docs/traffic-model.md lacks\n{row}");
    }
}

/// Four digits, without zeros at the end.
fn significant(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let digits = (0..4).find(|digits| value.abs() >= 10_f64.powi(3 - digits)).unwrap_or(4);
    let text = format!("{value:.0$}", digits.unsigned_abs() as usize);
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}
