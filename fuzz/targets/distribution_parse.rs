//! Any text as a law: it is refused, or its canonical text is the same law, and the law can be
//! resolved or is refused, and sampled.
#![no_main]

use itg_core::distribution::{Distribution, Unit};
use itg_core::seed::{Purpose, RunSeed};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    for (unit, lo, hi) in [(Unit::Time, 0.0, f64::INFINITY), (Unit::Size, 12.0, 65_507.0)] {
        let Ok(distribution) = Distribution::parse(text, unit) else { continue };
        let canonical = distribution.display(unit);
        let again = Distribution::parse(&canonical, unit).expect("canonical text is understood");
        assert_eq!(again, distribution, "{canonical}");
        let _ = (distribution.mean(), distribution.variance(), distribution.cdf(1e6));
        let Ok(resolved) = distribution.resolve(unit, lo, hi) else { continue };
        let mut stream = RunSeed(1).stream(1, Purpose::Idt);
        for k in [0, 1, 1 << 40] {
            let value = resolved.sample(&mut stream, k);
            assert_eq!(resolved.sample(&mut stream, k), value, "{canonical}: draw {k}");
            assert!(value as f64 >= lo && value as f64 <= hi, "{canonical}: draw {k} is {value}");
        }
    }
});
