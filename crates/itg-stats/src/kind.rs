//! Kinds of figures: their units, how their values are written and read.

use itg_core::units::{
    Rate, format_bit_rate, format_bytes, format_duration_ns, parse_bytes, parse_count,
    parse_duration_ns,
};

use crate::fidelity::Verdict;

/// Kind of a metric: the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nanoseconds; written with a unit.
    Time,
    /// A share from 0 to 1; written as such or in percent.
    Share,
    /// Bits per second.
    BitRate,
    /// Packets per second.
    PacketRate,
    /// Bytes.
    Size,
    /// A whole number.
    Count,
    /// A plain number.
    Number,
    /// `pass`, `warn`, `fail`, `network-limited`, `unresolved` or `unknown`.
    Verdict,
    /// A word; gates do not know it.
    Word,
}

impl Kind {
    /// Reads a value of this kind, with its unit.
    ///
    /// # Errors
    /// The text is no such value: the reason in words.
    pub fn parse(self, text: &str) -> Result<f64, String> {
        let number = |text: &str| -> Result<f64, String> {
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite());
            number.ok_or_else(|| format!("no number in `{text}`"))
        };
        match self {
            Self::Time => {
                parse_duration_ns(text).map(|ns| ns as f64).map_err(|error| error.to_string())
            }
            Self::Share => match text.strip_suffix('%') {
                // Rounded once, so that 0.7% is 0.007.
                Some(percent) => number(&format!("{}e-2", percent.trim()))
                    .or_else(|_| number(percent).map(|percent| percent / 100.0)),
                None => number(text),
            },
            Self::BitRate => match zero_or_rate(text)? {
                None => Ok(0.0),
                Some(Rate::Bits(rate)) => Ok(rate.0 as f64),
                Some(Rate::Packets(_)) => {
                    Err("expected bits per second, such as 10Mbps".to_owned())
                }
            },
            Self::PacketRate => match zero_or_rate(text)? {
                None => Ok(0.0),
                Some(Rate::Packets(rate)) => Ok(rate),
                Some(Rate::Bits(_)) => {
                    Err("expected packets per second, such as 100pps".to_owned())
                }
            },
            Self::Size => {
                parse_bytes(text).map(|bytes| bytes.0 as f64).map_err(|error| error.to_string())
            }
            Self::Count => {
                parse_count(text).map(|count| count as f64).map_err(|error| error.to_string())
            }
            // Numbers of the report that are counts are written as such, too.
            Self::Number => {
                number(text).or_else(|why| parse_count(text).map(|n| n as f64).map_err(|_| why))
            }
            Self::Word => Err("a word has no value".to_owned()),
            Self::Verdict => {
                let verdict = Verdict::ALL.into_iter().find(|verdict| verdict.name() == text);
                let found = verdict.map(rank);
                found.ok_or_else(|| {
                    "expected pass, warn, fail, network-limited, unresolved or unknown".to_owned()
                })
            }
        }
    }

    /// The unit of its values in machine-readable forms.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Time => "ns",
            Self::BitRate => "bit/s",
            Self::PacketRate => "packets/s",
            Self::Size => "bytes",
            Self::Share | Self::Count | Self::Number | Self::Verdict | Self::Word => "1",
        }
    }

    /// A value for people, with its unit.
    #[must_use]
    pub fn text(self, value: f64) -> String {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "conversions saturate; figures of reports are far from that"
        )]
        let magnitude = value.abs().round() as u64;
        let sign = if value < 0.0 && magnitude > 0 { "-" } else { "" };
        match self {
            Self::Time => {
                // To five digits.
                let grain = 10u64.pow(magnitude.max(1).ilog10().saturating_sub(4));
                let rounded = magnitude.saturating_add(grain / 2) / grain * grain;
                format!("{sign}{}", format_duration_ns(rounded))
            }
            Self::Share => format!("{}%", shortened(100.0 * value)),
            Self::BitRate => format_bit_rate(value),
            Self::PacketRate => format!("{}pps", shortened(value)),
            Self::Size => format_bytes(magnitude),
            Self::Count => format!("{sign}{magnitude}"),
            Self::Number | Self::Word => shortened(value),
            Self::Verdict => {
                let verdict = Verdict::ALL.into_iter().find(|verdict| rank(*verdict) >= value);
                verdict.unwrap_or_default().name().to_owned()
            }
        }
    }
}

fn zero_or_rate(text: &str) -> Result<Option<Rate>, String> {
    if text == "0" {
        return Ok(None);
    }
    text.parse().map(Some).map_err(|error: itg_core::units::UnitError| error.to_string())
}

/// At most six digits after the point.
fn shortened(value: f64) -> String {
    let text = format!("{value:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

pub(crate) fn rank(verdict: Verdict) -> f64 {
    f64::from(verdict as u8)
}
