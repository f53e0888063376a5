//! Quantities as people write them, and back: durations, sizes, counts, rates.
//!
//! Numbers are decimal (`1.5`, `2e3`). Everything that is a whole number inside (nanoseconds, bytes,
//! bit/s, counts) is converted exactly or refused; nothing is rounded. Prefixes are decimal (SI:
//! k = 1000) but for `Ki`, `Mi`, `Gi` (IEC 80000-13: Ki = 1024). Bare numbers are refused where the
//! unit would be a guess.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Largest time that is taken from a peer or a file, in nanoseconds: as a Unix time it lies in the year
/// 2116, as a duration it is 146 years. Sums and differences of two such times fit 64 bits with their sign.
pub const MAX_TIME_NS: u64 = 1 << 62;

/// A length of time in nanoseconds, kept within 64 bits (584 years).
#[must_use]
pub fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Signed difference of two instants in nanoseconds, kept within 64 bits (292 years).
#[must_use]
#[inline]
pub const fn signed_difference(later: u64, earlier: u64) -> i64 {
    let difference = later.wrapping_sub(earlier).cast_signed();
    match later >= earlier {
        true if difference < 0 => i64::MAX,
        false if difference >= 0 => i64::MIN,
        _ => difference,
    }
}

/// A text that is not the quantity it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// It does not start with a number.
    #[error("no number in {what} `{text}`: expected {expected}")]
    NoNumber {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
        /// Examples of the right form.
        expected: &'static str,
    },
    /// A bare number where the unit cannot be guessed.
    #[error("{what} `{text}` has no unit: expected {expected}")]
    NoUnit {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
        /// Examples of the right form.
        expected: &'static str,
    },
    /// A unit that this quantity does not have.
    #[error("unknown unit `{unit}` in {what} `{text}`: expected {expected}")]
    UnknownUnit {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
        /// Text that follows the number.
        unit: String,
        /// Examples of the right form.
        expected: &'static str,
    },
    /// Less than zero.
    #[error("{what} `{text}` is negative: use zero or more")]
    Negative {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
    },
    /// Zero, which makes no sense for this quantity.
    #[error("{what} `{text}` is zero: use more than zero, or leave it out")]
    Zero {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
    },
    /// A fraction of something that has no fractions here.
    #[error("{what} `{text}` is not a whole number of {grain}")]
    NotWhole {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
        /// The smallest step of the quantity.
        grain: &'static str,
    },
    /// More than 64 bits hold.
    #[error("{what} `{text}` is too large: at most {} {grain}", u64::MAX)]
    TooLarge {
        /// Name of the expected quantity.
        what: &'static str,
        /// The text that was found.
        text: String,
        /// The smallest step of the quantity.
        grain: &'static str,
    },
}

/// One kind of quantity: its name, smallest step, units (name, factor, power of ten), examples.
#[derive(Debug)]
pub(crate) struct Quantity {
    what: &'static str,
    grain: &'static str,
    units: &'static [(&'static str, u64, i32)],
    expected: &'static str,
    bare: bool,
}

/// Durations and inter-departure times, in nanoseconds.
pub(crate) const TIME: Quantity = Quantity {
    what: "duration",
    grain: "nanoseconds",
    units: &[
        ("ns", 1, 0),
        ("us", 1, 3),
        ("µs", 1, 3),
        ("μs", 1, 3),
        ("ms", 1, 6),
        ("s", 1, 9),
        ("min", 6, 10),
        ("h", 36, 11),
    ],
    expected: "a number with ns, us, ms, s, min or h, such as 500us or 20s",
    bare: false,
};

/// Sizes, in bytes.
pub(crate) const SIZE: Quantity = Quantity {
    what: "size",
    grain: "bytes",
    units: &[
        ("B", 1, 0),
        ("k", 1, 3),
        ("kB", 1, 3),
        ("M", 1, 6),
        ("MB", 1, 6),
        ("G", 1, 9),
        ("GB", 1, 9),
        ("Ki", 1 << 10, 0),
        ("KiB", 1 << 10, 0),
        ("Mi", 1 << 20, 0),
        ("MiB", 1 << 20, 0),
        ("Gi", 1 << 30, 0),
        ("GiB", 1 << 30, 0),
    ],
    expected: "bytes, or a number with kB, MB, GB (powers of 1000) or Ki, Mi, Gi (powers of 1024), \
               such as 512 or 64Ki",
    bare: true,
};

const COUNT: Quantity = Quantity {
    what: "count",
    grain: "units",
    units: &[("k", 1, 3), ("M", 1, 6), ("G", 1, 9)],
    expected: "a whole number, or one with k, M or G, such as 1000 or 10k",
    bare: true,
};

const RATE: Quantity = Quantity {
    what: "rate",
    grain: "bit/s",
    units: &[
        ("bps", 1, 0),
        ("kbps", 1, 3),
        ("Mbps", 1, 6),
        ("Gbps", 1, 9),
        ("Tbps", 1, 12),
        // As people write them, and as they are printed.
        ("bit/s", 1, 0),
        ("kbit/s", 1, 3),
        ("Mbit/s", 1, 6),
        ("Gbit/s", 1, 9),
        ("Tbit/s", 1, 12),
        ("mbps", 1, 6),
        ("gbps", 1, 9),
        ("k", 1, 3),
        ("K", 1, 3),
        ("M", 1, 6),
        ("G", 1, 9),
    ],
    expected: "bps, kbps, Mbps, Gbps or Tbps (bits per second), or pps, kpps or Mpps (packets per \
               second), such as 10Mbps, 10M or 100kpps",
    bare: false,
};

const PACKET_RATE: &[(&str, i32)] = &[("pps", 0), ("kpps", 3), ("Mpps", 6), ("packets/s", 0)];

impl Quantity {
    /// Number and unit of a text; the unit is empty for a bare number that is allowed.
    fn split<'a>(&self, text: &'a str) -> Result<(Number<'a>, &'a str), UnitError> {
        let (what, expected) = (self.what, self.expected);
        let Some((number, unit)) = Number::split(text.trim()) else {
            return Err(UnitError::NoNumber { what, text: text.to_owned(), expected });
        };
        if unit.is_empty() && !self.bare && !number.is_zero() {
            return Err(UnitError::NoUnit { what, text: text.to_owned(), expected });
        }
        Ok((number, unit))
    }

    fn unit(&self, text: &str, unit: &str) -> Result<(u64, i32), UnitError> {
        if unit.is_empty() {
            return Ok((1, 0));
        }
        let found = self.units.iter().find(|(name, ..)| *name == unit);
        found.map(|&(_, factor, power)| (factor, power)).ok_or_else(|| UnitError::UnknownUnit {
            what: self.what,
            text: text.to_owned(),
            unit: unit.to_owned(),
            expected: self.expected,
        })
    }

    /// The exact whole value.
    fn whole(&self, text: &str) -> Result<u64, UnitError> {
        let (number, unit) = self.split(text)?;
        let (factor, power) = self.unit(text, unit)?;
        let (what, grain, text) = (self.what, self.grain, text.to_owned());
        if number.negative() && !number.is_zero() {
            return Err(UnitError::Negative { what, text });
        }
        number.whole(factor, power).map_err(|wrong| match wrong {
            Wrong::Fraction => UnitError::NotWhole { what, text, grain },
            Wrong::TooLarge => UnitError::TooLarge { what, text, grain },
        })
    }

    /// The value as a real number in the smallest step, and the size of the unit that was written.
    pub(crate) fn real(&self, text: &str) -> Result<(f64, f64), UnitError> {
        let (number, unit) = self.split(text)?;
        let (factor, power) = self.unit(text, unit)?;
        let factor = factor as f64;
        Ok((number.real(power) * factor, 10_f64.powi(power) * factor))
    }
}

enum Wrong {
    Fraction,
    TooLarge,
}

/// A decimal number in the text: sign, digits with at most one point, exponent.
struct Number<'a> {
    mantissa: &'a str,
    exponent: i32,
}

impl<'a> Number<'a> {
    /// Splits the number off the start of a text; the rest is trimmed.
    fn split(text: &'a str) -> Option<(Self, &'a str)> {
        let sign = usize::from(text.starts_with('-'));
        let digits = |from: usize, also: &[u8]| {
            let found = text.as_bytes()[from..].iter();
            found.take_while(|b| b.is_ascii_digit() || also.contains(b)).count()
        };
        let end = sign + digits(sign, b".");
        let mantissa = &text[..end];
        if mantissa.matches('.').count() > 1 || !mantissa.contains(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let mut number = Self { mantissa, exponent: 0 };
        let mut rest = &text[end..];
        if rest.starts_with(['e', 'E']) {
            let signed = usize::from(rest[1..].starts_with(['-', '+']));
            let len = digits(end + 1 + signed, b"");
            if len > 0 {
                number.exponent = rest[1..1 + signed + len].parse().ok()?;
                rest = &rest[1 + signed + len..];
            }
        }
        Some((number, rest.trim_start()))
    }

    fn negative(&self) -> bool {
        self.mantissa.starts_with('-')
    }

    fn is_zero(&self) -> bool {
        !self.mantissa.contains(|c: char| matches!(c, '1'..='9'))
    }

    /// The number times 10^`power`, correctly rounded.
    fn real(&self, power: i32) -> f64 {
        let exponent = self.exponent.saturating_add(power);
        format!("{}e{exponent}", self.mantissa).parse().unwrap_or(f64::NAN)
    }

    /// The absolute number times `factor`·10^`power`, when it is whole and fits.
    fn whole(&self, factor: u64, power: i32) -> Result<u64, Wrong> {
        if self.is_zero() {
            return Ok(0);
        }
        let fraction = self.mantissa.split_once('.').map_or("", |(_, after)| after);
        let fraction = fraction.trim_end_matches('0');
        let places = i32::try_from(fraction.len()).map_err(|_| Wrong::Fraction)?;
        let integer = self.mantissa.trim_start_matches('-').split('.').next().unwrap_or("");
        let digits = integer.bytes().chain(fraction.bytes()).map(|b| u128::from(b - b'0'));
        let mut value = u128::from(factor);
        let mantissa = digits
            .into_iter()
            .try_fold(0_u128, |sum, digit| sum.checked_mul(10)?.checked_add(digit))
            .ok_or(if places > 0 { Wrong::Fraction } else { Wrong::TooLarge })?;
        value = value.checked_mul(mantissa).ok_or(Wrong::TooLarge)?;
        let mut exponent = self.exponent.saturating_add(power).saturating_sub(places);
        while exponent > 0 {
            value = value.checked_mul(10).ok_or(Wrong::TooLarge)?;
            exponent -= 1;
        }
        while exponent < 0 {
            if !value.is_multiple_of(10) {
                return Err(Wrong::Fraction);
            }
            value /= 10;
            exponent += 1;
        }
        u64::try_from(value).map_err(|_| Wrong::TooLarge)
    }
}

/// A plain number without a unit, such as a shape or a weight; `None` when it is anything else.
pub(crate) fn parse_plain(text: &str) -> Option<f64> {
    let (number, rest) = Number::split(text.trim())?;
    rest.is_empty().then(|| number.real(0))
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_bytes(self.0))
    }
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        parse_bytes(text)
    }
}

/// A rate in bits per second (decimal: 1 kbit/s = 1000 bit/s).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(pub u64);

impl fmt::Display for BitRate {
    /// The shortest exact form that parses back: `10Mbps`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shortest_whole(self.0, &["bps", "kbps", "Mbps", "Gbps", "Tbps"], |name| {
            unit_factor(&RATE, name)
        }))
    }
}

/// Rate at which a flow sends: in bits or in packets per second. Always above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// Bits per second, counted over whole packets (headers of the protocols below excluded).
    Bits(BitRate),
    /// Packets per second.
    Packets(f64),
}

impl FromStr for Rate {
    type Err = UnitError;

    /// Reads `10Mbps`, `1.5Gbps`, `100kpps`, `50pps`; also `10M`, `10 Mbit/s`, `10mbps`.
    fn from_str(text: &str) -> Result<Self, UnitError> {
        let what = RATE.what;
        let (number, unit) = RATE.split(text)?;
        if number.is_zero() {
            return Err(UnitError::Zero { what, text: text.to_owned() });
        }
        let Some(&(_, power)) = PACKET_RATE.iter().find(|(name, _)| *name == unit) else {
            return RATE.whole(text).map(|bits| Self::Bits(BitRate(bits)));
        };
        let rate = number.real(power);
        if number.negative() {
            Err(UnitError::Negative { what, text: text.to_owned() })
        } else if !rate.is_finite() {
            Err(UnitError::TooLarge { what, text: text.to_owned(), grain: "packets per second" })
        } else if rate <= 0.0 {
            Err(UnitError::Zero { what, text: text.to_owned() })
        } else {
            Ok(Self::Packets(rate))
        }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bits(rate) => rate.fmt(f),
            Self::Packets(rate) => write!(f, "{rate}pps"),
        }
    }
}

/// Nanoseconds from a duration such as `500us`, `20s`, `1.5ms`, `2min`, `1h`, `100ns` or `0`.
///
/// # Errors
/// [`UnitError`] when the text is no duration, has no unit (but for zero), is not a whole number of
/// nanoseconds or does not fit 64 bits.
pub fn parse_duration_ns(text: &str) -> Result<u64, UnitError> {
    TIME.whole(text)
}

/// A size such as `512`, `512B`, `10MB` (10⁷ bytes), `64Ki` or `64KiB` (65 536 bytes).
///
/// # Errors
/// [`UnitError`] when the text is no size, is not a whole number of bytes or does not fit 64 bits.
pub fn parse_bytes(text: &str) -> Result<Bytes, UnitError> {
    SIZE.whole(text).map(Bytes)
}

/// A count such as `1000`, `10k` or `2M`.
///
/// # Errors
/// [`UnitError`] when the text is no whole number or does not fit 64 bits.
pub fn parse_count(text: &str) -> Result<u64, UnitError> {
    COUNT.whole(text)
}

/// The shortest exact text of a duration, which parses back: `10ms`, `1.5s`, `333333ns`, `0s`.
#[must_use]
pub fn format_duration_ns(ns: u64) -> String {
    if ns == 0 {
        return "0s".to_owned();
    }
    let texts =
        [("s", 9), ("ms", 6), ("us", 3), ("ns", 0)].into_iter().filter_map(|(unit, power)| {
            let scale = 10_u64.pow(power);
            let (whole, rest) = (ns / scale, ns % scale);
            let digits = power as usize;
            let fraction = if rest == 0 { String::new() } else { format!(".{rest:0digits$}") };
            (whole > 0).then(|| format!("{whole}{}{unit}", fraction.trim_end_matches('0')))
        });
    let long = [("min", 60_000_000_000), ("h", 3_600_000_000_000)]
        .into_iter()
        .filter(|(_, scale)| ns.is_multiple_of(*scale))
        .map(|(unit, scale)| format!("{}{unit}", ns / scale));
    pick_shortest(texts.chain(long))
}

/// The shortest text, the first of equals.
pub(crate) fn pick_shortest(texts: impl Iterator<Item = String>) -> String {
    texts.min_by_key(String::len).unwrap_or_default()
}

fn unit_factor(quantity: &Quantity, name: &str) -> u64 {
    let found = quantity.units.iter().find(|(unit, ..)| *unit == name);
    found.map_or(1, |&(_, factor, power)| factor * 10_u64.pow(power.unsigned_abs()))
}

fn shortest_whole(value: u64, names: &[&str], factor: impl Fn(&str) -> u64) -> String {
    let fitting = names.iter().filter(|name| value.is_multiple_of(factor(name)));
    let fitting = fitting.filter(|name| value > 0 || factor(name) == 1);
    pick_shortest(fitting.map(|name| format!("{}{name}", value / factor(name))))
}

/// The shortest exact text of a size, which parses back: `512B`, `64KiB`, `10MB`.
#[must_use]
pub fn format_bytes(bytes: u64) -> String {
    let names = ["B", "KiB", "MiB", "GiB", "kB", "MB", "GB"];
    shortest_whole(bytes, &names, |name| unit_factor(&SIZE, name))
}

/// A bit rate for people, rounded: `4.10 Mbit/s`, `512.00 bit/s`.
#[must_use]
pub fn format_bit_rate(bits_per_second: f64) -> String {
    let units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];
    let mut value = bits_per_second;
    let mut at = 0;
    while value.abs() >= 999.995 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    format!("{value:.2} {}", units[at])
}
