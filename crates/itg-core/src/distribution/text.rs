//! Distributions as text: the canonical form, which parses back to the same distribution, and its
//! use with serde.

use std::fmt::Write as _;

use super::{Distribution, Unit};
use crate::units::{self, pick_shortest};

/// A value with its unit, exact: `10ms`, `512`.
pub(super) fn value(x: f64, unit: Unit) -> String {
    if x.is_infinite() {
        return if x > 0.0 { "inf".to_owned() } else { "-inf".to_owned() };
    }
    match unit {
        Unit::Size => plain(x),
        Unit::Time => time(x),
    }
}

/// A plain number, exact; with an exponent when it would be long.
pub(super) fn plain(x: f64) -> String {
    let text = x.to_string();
    if text.len() > 20 { format!("{x:e}") } else { text }
}

#[allow(clippy::float_cmp, reason = "the text must read back as the very same value")]
fn time(ns: f64) -> String {
    if ns == 0.0 {
        return "0s".to_owned();
    }
    let units =
        [("s", 1e9, 1e9), ("ms", 1e6, 1e6), ("us", 1e3, 1e3), ("ns", 1.0, f64::NEG_INFINITY)];
    let texts = units.into_iter().filter(|(.., from)| ns >= *from).map(|(unit, scale, _)| {
        // The division may miss by one bit; for ns it never does.
        format!("{}{unit}", plain(ns / scale))
    });
    let long = [("min", 6e10), ("h", 3.6e12)].into_iter();
    let long = long.map(|(unit, scale)| (unit, ns / scale));
    let long = long.filter(|(_, count)| count.fract() == 0.0);
    let long = long.map(|(unit, count)| format!("{}{unit}", plain(count)));
    let same = |text: &String| units::TIME.real(text).is_ok_and(|(back, _)| back == ns);
    pick_shortest(texts.chain(long).filter(same))
}

/// A value for people, rounded to four digits: `10.28 ms`, `512 bytes`.
pub(super) fn rounded(x: f64, unit: Unit) -> String {
    if x.is_infinite() {
        return value(x, unit);
    }
    let (scale, name) = match unit {
        Unit::Size => (1.0, "bytes"),
        Unit::Time => match x {
            x if x >= 1e9 => (1e9, "s"),
            x if x >= 1e6 => (1e6, "ms"),
            x if x >= 1e3 => (1e3, "us"),
            _ => (1.0, "ns"),
        },
    };
    format!("{} {name}", digits(x / scale, 4))
}

/// A share in percent, rounded to three digits.
pub(super) fn percent(share: f64) -> String {
    format!("{} %", digits(share * 100.0, 3))
}

fn digits(x: f64, count: usize) -> String {
    let rounded: f64 = format!("{x:.*e}", count - 1).parse().unwrap_or(x);
    if rounded != 0.0 && rounded.abs() < 1e-4 {
        format!("{rounded:e}")
    } else {
        rounded.to_string()
    }
}

/// A file name, in quotes when it could be mistaken.
fn file(name: &str) -> String {
    let bare =
        !name.is_empty() && !name.contains(['(', ')', ',', ':', '"', '\\']) && name.trim() == name;
    if bare {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

impl Distribution {
    /// The canonical text, which [`Distribution::parse`] reads back as the same distribution (the values of
    /// an `empirical` table have to be loaded again).
    #[must_use]
    pub fn display(&self, unit: Unit) -> String {
        let mut out = String::new();
        self.write(unit, &mut out);
        out
    }

    fn write(&self, unit: Unit, out: &mut String) {
        let v = |x: &f64| value(*x, unit);
        let inside = match self {
            Self::Constant(x) => v(x),
            Self::Uniform { lo, hi } => format!("{}, {}", v(lo), v(hi)),
            Self::Exp { mean } => v(mean),
            Self::Normal { mean, sd } => format!("{}, {}", v(mean), v(sd)),
            Self::LogNormal { median, sigma } => format!("{}, {}", v(median), plain(*sigma)),
            Self::Cauchy { location, scale } => format!("{}, {}", v(location), v(scale)),
            Self::Student { location, scale, nu } => {
                format!("{}, {}, {}", v(location), v(scale), plain(*nu))
            }
            Self::Pareto { shape, scale }
            | Self::Gamma { shape, scale }
            | Self::Weibull { shape, scale } => format!("{}, {}", plain(*shape), v(scale)),
            Self::Poisson { mean, grain: 1.0 } if unit == Unit::Size => v(mean),
            Self::Poisson { mean, grain } => format!("{}, {}", v(mean), v(grain)),
            Self::Discrete(entries) => {
                let entries =
                    entries.iter().map(|(x, weight)| format!("{}:{}", v(x), plain(*weight)));
                entries.collect::<Vec<_>>().join(", ")
            }
            Self::Empirical { name, .. } => file(name),
            Self::Mix(parts) => {
                out.push_str("mix(");
                for (i, (weight, distribution)) in parts.iter().enumerate() {
                    let comma = if i == 0 { "" } else { ", " };
                    write!(out, "{comma}{}:", plain(*weight)).expect("writing to a string");
                    distribution.write(unit, out);
                }
                out.push(')');
                return;
            }
            Self::Trunc { distribution, lo, hi } => {
                out.push_str("trunc(");
                distribution.write(unit, out);
                write!(out, ", {}, {})", v(lo), v(hi)).expect("writing to a string");
                return;
            }
        };
        write!(out, "{}({inside})", self.name()).expect("writing to a string");
    }
}

macro_rules! with_module {
    ($(#[$doc:meta])* $name:ident, $unit:expr) => {
        $(#[$doc])*
        pub mod $name {
            use std::borrow::Cow;

            use serde::{Deserialize, Deserializer, Serializer, de::Error};

            use super::super::{Distribution, Unit};

            /// Writes the canonical text.
            ///
            /// # Errors
            /// Those of the serializer.
            pub fn serialize<S: Serializer>(distribution: &Distribution, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&distribution.display($unit))
            }

            /// Reads any text that [`Distribution::parse`] reads.
            ///
            /// # Errors
            /// Those of the deserializer; the text of [`DistributionError`](super::super::DistributionError).
            pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Distribution, D::Error> {
                let text = Cow::<'_, str>::deserialize(from)?;
                Distribution::parse(&text, $unit).map_err(D::Error::custom)
            }
        }
    };
}

with_module! {
    /// Serde `with` module for a distribution of times: its canonical text.
    as_time, Unit::Time
}
with_module! {
    /// Serde `with` module for a distribution of sizes: its canonical text.
    as_size, Unit::Size
}
