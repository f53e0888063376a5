//! Scales, ticks, and numbers for people.

/// From values to a length on the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    low: f64,
    high: f64,
    log: bool,
}

impl Scale {
    /// Equal steps; an empty range is widened.
    pub(crate) fn linear(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + low.abs().max(1.0) * 0.1 };
        Self { low, high, log: false }
    }

    /// From 0 to a little above `high`.
    pub(crate) fn from_zero(high: f64) -> Self {
        Self::linear(0.0, if high > 0.0 { high * 1.05 } else { 1.0 })
    }

    /// Equal factors; `low` above 0.
    pub(crate) fn log(low: f64, high: f64) -> Self {
        let low = low.max(f64::MIN_POSITIVE);
        Self { low, high: if high > low * 1.01 { high } else { low * 10.0 }, log: true }
    }

    /// Equal factors when the values span more than two decades above 0.
    pub(crate) fn fitting(low: f64, high: f64) -> Self {
        if low > 0.0 && high > 100.0 * low {
            return Self::log(low, high);
        }
        let pad = 0.04 * (high - low);
        Self::linear(if low >= 0.0 { (low - pad).max(0.0) } else { low - pad }, high + pad)
    }

    pub(crate) fn is_log(self) -> bool {
        self.log
    }

    /// Lower and upper end.
    pub(crate) fn ends(self) -> (f64, f64) {
        (self.low, self.high)
    }

    /// Position of a value: 0 at the lower end, 1 at the upper; never outside.
    pub(crate) fn at(self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(0.0, 1.0)
    }

    /// The value that is drawn for this one: on a logarithmic scale nothing is below the lower end.
    pub(crate) fn drawn(self, value: f64) -> f64 {
        if self.log { value.max(self.low) } else { value }
    }

    /// The value at a position from 0 to 1.
    pub(crate) fn value(self, at: f64) -> f64 {
        if self.log {
            self.low * (self.high / self.low).powf(at)
        } else {
            self.low + (self.high - self.low) * at
        }
    }

    /// About `wanted` round values within the scale.
    pub(crate) fn ticks(self, wanted: f64) -> Vec<f64> {
        if self.log {
            let decades = (self.high / self.low).log10();
            let mut ticks = powers(self.low, self.high, (decades / wanted).ceil().max(1.0));
            if ticks.len() < 3 {
                ticks = powers(self.low, self.high, 1.0)
                    .into_iter()
                    .chain([self.low])
                    .flat_map(|ten| {
                        let ten = 10f64.powf(ten.log10().floor());
                        [1.0, 2.0, 5.0].map(|m| m * ten)
                    })
                    .filter(|tick| (self.low..=self.high).contains(tick))
                    .collect();
                ticks.sort_by(f64::total_cmp);
                ticks.dedup();
            }
            // Within a fraction of a decade equal steps are as good.
            if ticks.len() < 3 {
                return Self { log: false, ..self }.ticks(wanted);
            }
            return ticks;
        }
        let raw = (self.high - self.low) / wanted;
        let ten = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|m| m * ten).into_iter().find(|&s| s >= raw * 0.999);
        let step = step.unwrap_or(raw);
        let first = (self.low / step - 1e-9).ceil();
        (0..)
            .map(|k| (first + f64::from(k)) * step)
            .take_while(|tick| *tick <= self.high + step * 1e-9)
            .take(50)
            .collect()
    }
}

fn powers(low: f64, high: f64, step: f64) -> Vec<f64> {
    let first = (low.log10() - 1e-9).ceil();
    (0..)
        .map(|k| 10f64.powf(first + f64::from(k) * step))
        .take_while(|tick| *tick <= high * (1.0 + 1e-9))
        .take(50)
        .collect()
}

/// Quantity that an axis shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quantity {
    /// Nanoseconds.
    Time,
    /// Bits per second.
    Rate,
    /// Bytes.
    Size,
    /// A share, shown in percent.
    Share,
    /// A probability, shown as a number.
    Probability,
    /// A count.
    Count,
}

impl Quantity {
    /// Name for the script of the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Time => "time",
            Self::Rate => "rate",
            Self::Size => "size",
            Self::Share => "share",
            Self::Probability => "probability",
            Self::Count => "count",
        }
    }

    /// One unit for a whole axis that reaches to `high`: divisor and name.
    pub(crate) fn unit(self, high: f64) -> (f64, &'static str) {
        match self {
            Self::Time => prefixed(high, &[(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")]),
            Self::Rate => {
                prefixed(high, &[(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1.0, "bit/s")])
            }
            Self::Size => (1.0, "bytes"),
            Self::Share => (0.01, "%"),
            Self::Probability => (1.0, ""),
            Self::Count => prefixed(high, &[(1e9, "10⁹"), (1e6, "10⁶"), (1.0, "")]),
        }
    }

    /// A value by itself, with its unit.
    pub(crate) fn text(self, value: f64) -> String {
        if self == Self::Probability && value != 0.0 && value < 0.01 {
            let power = value.log10().round();
            let digits = format!("{:.0}", power.abs());
            let raised: String = digits.chars().map(superscript).collect();
            return format!("10⁻{raised}");
        }
        let (divisor, unit) = self.unit(value.abs());
        let number = digits(value / divisor);
        if unit.is_empty() { number } else { format!("{number} {unit}") }
    }
}

fn superscript(digit: char) -> char {
    match digit {
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        '0' => '⁰',
        '4'..='9' => char::from_u32(0x2070 + digit as u32 - '0' as u32).unwrap_or(digit),
        other => other,
    }
}

fn prefixed(high: f64, units: &[(f64, &'static str)]) -> (f64, &'static str) {
    let fits = units.iter().find(|(divisor, _)| high >= 0.9995 * divisor);
    fits.or_else(|| units.last()).copied().unwrap_or((1.0, ""))
}

/// A number with up to four significant digits, without trailing zeros.
pub(crate) fn digits(value: f64) -> String {
    if value.abs() < 1e-12 {
        return "0".to_owned();
    }
    let places = match value.abs() {
        v if v >= 999.5 => 0,
        v if v >= 99.95 => 1,
        v if v >= 9.995 => 2,
        v if v >= 0.9995 => 3,
        v if v >= 0.09995 => 4,
        v if v >= 0.009_995 => 4,
        v if v >= 0.000_999_5 => 5,
        _ => 7,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        grouped(&text)
    };
    text.replace('-', "−")
}

/// A whole number in groups of three.
pub(crate) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(text: &str) -> String {
    let (sign, plain) = text.strip_prefix('-').map_or(("", text), |rest| ("−", rest));
    let mut out = sign.to_owned();
    for (place, digit) in plain.chars().enumerate() {
        if place > 0 && (plain.len() - place).is_multiple_of(3) {
            out.push('\u{202f}');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        for (scale, want) in [
            (Scale::linear(0.0, 10.0), vec![0.0, 2.0, 4.0, 6.0, 8.0, 10.0]),
            (Scale::linear(0.0, 0.0), vec![0.0, 0.02, 0.04, 0.06, 0.08, 0.1]),
            (Scale::linear(97.0, 104.0), vec![98.0, 100.0, 102.0, 104.0]),
            (Scale::log(1.0, 1e4), vec![1.0, 10.0, 100.0, 1e3, 1e4]),
            (Scale::log(1.0, 1e12), vec![1.0, 1e3, 1e6, 1e9, 1e12]),
            (Scale::log(3.0, 40.0), vec![5.0, 10.0, 20.0]),
            (Scale::log(44.0, 76.0), vec![50.0, 60.0, 70.0]),
        ] {
            let got = scale.ticks(5.0);
            assert_eq!(got.len(), want.len(), "{scale:?}: {got:?}");
            for (got, want) in got.iter().zip(&want) {
                assert!((got - want).abs() < 1e-6 * want.abs().max(1.0), "{scale:?}: {got} {want}");
            }
        }
    }

    #[test]
    fn values_have_units() {
        for (quantity, value, want) in [
            (Quantity::Time, 0.0, "0 ns"),
            (Quantity::Time, 1_500.0, "1.5 µs"),
            (Quantity::Time, 12_345_678.0, "12.35 ms"),
            (Quantity::Time, -2e9, "−2 s"),
            (Quantity::Rate, 4_096_000.0, "4.096 Mbit/s"),
            (Quantity::Share, 0.001_25, "0.125 %"),
            (Quantity::Probability, 0.000_1, "10⁻⁴"),
            (Quantity::Probability, 0.5, "0.5"),
            (Quantity::Size, 1472.0, "1\u{202f}472 bytes"),
        ] {
            assert_eq!(quantity.text(value), want, "{quantity:?} {value}");
        }
        assert_eq!(count(1_234_567), "1\u{202f}234\u{202f}567");
    }

    #[test]
    fn places_are_within_the_scale() {
        assert!((Scale::log(1.0, 100.0).at(10.0) - 0.5).abs() < 1e-12);
        for value in [-1.0, 0.0, 1e300, f64::MIN_POSITIVE] {
            for scale in [Scale::log(1.0, 10.0), Scale::linear(-5.0, 5.0)] {
                assert!((0.0..=1.0).contains(&scale.at(value)), "{scale:?} {value}");
            }
        }
    }
}
