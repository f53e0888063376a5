//! The values of an experiment file that carry a unit or a name: each is read from a text, some
//! from a plain number too, and describes itself in the JSON Schema. The command line reads the same
//! texts through [`FromStr`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;
use std::time::Duration;

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Late, Meter, Payload, Proto};
use itg_core::pacing::Level;
use itg_core::seed::RunSeed;
use itg_core::units::{self, Rate};
use serde::de::{self, Deserialize, Deserializer, Unexpected, Visitor};

/// A value that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ValueError(String);

impl ValueError {
    fn from(error: impl fmt::Display) -> Self {
        Self(error.to_string())
    }
}

/// A value that is read from text, with its description.
#[cfg_attr(
    not(test),
    allow(dead_code, reason = "the published schema alone names choices and examples")
)]
trait Value: Sized + FromStr<Err = ValueError> {
    /// Description of what is expected, for messages: "a duration with its unit, such as …".
    const EXPECTED: &'static str;
    /// The words to choose from, when the value is one of a few.
    const CHOICES: &'static [&'static str] = &[];

    /// The description, with words that another crate has.
    fn expected() -> Cow<'static, str> {
        Cow::Borrowed(Self::EXPECTED)
    }

    /// A few good texts.
    const EXAMPLES: &'static [&'static str] = &[];

    /// The value that a plain number stands for, `None` when it needs a unit.
    fn from_number(_number: u64) -> Option<Result<Self, ValueError>> {
        None
    }

    /// True if plain numbers are part of the published format.
    const NUMBERS: bool = false;
}

struct ValueVisitor<T>(PhantomData<T>);

impl<T: Value> Visitor<'_> for ValueVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&T::expected())
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        match T::from_number(number) {
            Some(value) => value.map_err(E::custom),
            None => Err(E::invalid_type(Unexpected::Unsigned(number), &self)),
        }
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        match u64::try_from(number) {
            Ok(number) => self.visit_u64(number),
            Err(_) => Err(E::invalid_value(Unexpected::Signed(number), &self)),
        }
    }
}

#[cfg(test)]
fn schema_of<T: Value>() -> schemars::Schema {
    use serde_json::json;

    let mut schema = schemars::Schema::default();
    let kind = if T::NUMBERS { json!(["string", "integer"]) } else { json!("string") };
    schema.insert("description".to_owned(), json!(T::expected()));
    if T::NUMBERS || T::CHOICES.is_empty() {
        schema.insert("type".to_owned(), kind);
    } else {
        schema.insert("enum".to_owned(), json!(T::CHOICES));
    }
    if T::NUMBERS {
        schema.insert("minimum".to_owned(), json!(0));
    }
    if !T::EXAMPLES.is_empty() {
        schema.insert("examples".to_owned(), json!(T::EXAMPLES));
    }
    schema
}

macro_rules! values {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                input.deserialize_any(ValueVisitor(PhantomData))
            }
        }
        #[cfg(test)]
        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schema_of::<Self>()
            }
        }
    )*};
}

values!(
    Seed,
    TimeSpan,
    TimeDistribution,
    SizeDistribution,
    FlowRate,
    SendRate,
    Count,
    ByteCount,
    ProtoName,
    MeterKind,
    LateRule,
    PacingLevel,
    Dscp,
    Ecn,
    PayloadKind
);

/// The run seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seed(pub RunSeed);

impl FromStr for Seed {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for Seed {
    const EXPECTED: &'static str = "a seed: a whole number from 0 to 18446744073709551615";
    const EXAMPLES: &'static [&'static str] = &["42", "0x2a"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(Ok(Self(RunSeed(number))))
    }
}

/// A span of time in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeSpan(pub u64);

impl TimeSpan {
    /// The same as a value of the standard library.
    #[must_use]
    pub const fn duration(self) -> Duration {
        Duration::from_nanos(self.0)
    }
}

impl FromStr for TimeSpan {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        units::parse_duration_ns(text).map(Self).map_err(ValueError::from)
    }
}

impl Value for TimeSpan {
    const EXPECTED: &'static str =
        "a duration with its unit, such as \"20s\", \"1.5ms\" or \"2min\"";
    const EXAMPLES: &'static [&'static str] = &["20s", "1.5ms", "2min"];
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        (number == 0).then_some(Ok(Self(0)))
    }
}

/// A distribution of time: inter-departure times, ON and OFF periods.
#[derive(Clone, Debug, PartialEq)]
pub struct TimeDistribution(pub Distribution);

impl FromStr for TimeDistribution {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Distribution::parse(text, Unit::Time).map(Self).map_err(ValueError::from)
    }
}

impl Value for TimeDistribution {
    const EXPECTED: &'static str =
        "a distribution of time with units inside, such as \"exp(10ms)\"";
    const EXAMPLES: &'static [&'static str] =
        &["constant(10ms)", "exp(10ms)", "uniform(5ms,15ms)", "trunc(pareto(1.5,2ms),0,1s)"];
}

/// A distribution of packet sizes.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeDistribution(pub Distribution);

impl FromStr for SizeDistribution {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        Distribution::parse(text, Unit::Size).map(Self).map_err(ValueError::from)
    }
}

impl Value for SizeDistribution {
    const EXPECTED: &'static str = "a distribution of packet sizes in bytes, such as \"uniform(500,1000)\", or a number of bytes";
    const EXAMPLES: &'static [&'static str] = &["constant(512)", "uniform(500,1000)"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(format!("constant({number})").parse())
    }
}

/// A rate, in bits or packets per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FlowRate(pub Rate);

impl FromStr for FlowRate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for FlowRate {
    const EXPECTED: &'static str = "a rate with its unit, such as \"10Mbps\" or \"100kpps\"";
    const EXAMPLES: &'static [&'static str] = &["10Mbps", "1.5Gbps", "50pps", "100kpps"];
}

/// A rate at which a flow sends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SendRate {
    /// Constant inter-departure times with this mean rate.
    Mean(Rate),
    /// Each packet as soon as the one before is gone.
    Max,
}

impl FromStr for SendRate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text {
            "max" => Ok(Self::Max),
            _ => text.parse().map(Self::Mean).map_err(ValueError::from),
        }
    }
}

impl Value for SendRate {
    const EXPECTED: &'static str =
        "a rate with its unit, such as \"10Mbps\" or \"100kpps\", or max";
    const EXAMPLES: &'static [&'static str] = &["10Mbps", "1.5Gbps", "50pps", "100kpps", "max"];
}

/// A number of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count(pub u64);

impl FromStr for Count {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        units::parse_count(text).map(Self).map_err(ValueError::from)
    }
}

impl Value for Count {
    const EXPECTED: &'static str = "a number of packets, such as 1000 or \"10k\"";
    const EXAMPLES: &'static [&'static str] = &["10k", "2M"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(Ok(Self(number)))
    }
}

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteCount(pub u64);

impl FromStr for ByteCount {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        units::parse_bytes(text).map(|bytes| Self(bytes.0)).map_err(ValueError::from)
    }
}

impl Value for ByteCount {
    const EXPECTED: &'static str = "a number of bytes, such as 65536, \"64KiB\" or \"10MB\"";
    const EXAMPLES: &'static [&'static str] = &["64KiB", "10MB"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(Ok(Self(number)))
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProtoName(pub Proto);

impl FromStr for ProtoName {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for ProtoName {
    const EXPECTED: &'static str = "a protocol";
    const CHOICES: &'static [&'static str] = &Proto::NAMES;

    fn expected() -> Cow<'static, str> {
        format!("{}: {}", Self::EXPECTED, Proto::names()).into()
    }
}

/// Delay that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeterKind(pub Meter);

impl FromStr for MeterKind {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for MeterKind {
    const EXPECTED: &'static str = "a meter: owd (one-way delay) or rtt (round-trip time)";
    const CHOICES: &'static [&'static str] = &["owd", "rtt"];
}

/// Treatment of late packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LateRule(pub Late);

impl FromStr for LateRule {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for LateRule {
    const EXPECTED: &'static str =
        "a rule for late packets: keep (send late, mean rate holds) or drop (leave out and count)";
    const CHOICES: &'static [&'static str] = &["keep", "drop"];
}

/// Way in which the sending thread waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacingLevel(pub Level);

impl FromStr for PacingLevel {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        text.parse().map(Self).map_err(ValueError::from)
    }
}

impl Value for PacingLevel {
    const EXPECTED: &'static str = "a pacing level: sleep (until the time of the packet), hybrid (sleep, then spin), spin or \
         txtime (the queueing discipline of the device keeps it)";
    const CHOICES: &'static [&'static str] = &["sleep", "hybrid", "spin", "txtime"];
}

/// Names of differentiated-services code points: RFC 2474 (CS), 2597 (AF), 3246 (EF), 5865
/// (VOICE-ADMIT, `VA`), 8622 (LE).
const DSCP_NAMES: [(&str, u8); 25] = [
    ("BE", 0),
    ("DF", 0),
    ("LE", 1),
    ("CS0", 0),
    ("CS1", 8),
    ("CS2", 16),
    ("CS3", 24),
    ("CS4", 32),
    ("CS5", 40),
    ("CS6", 48),
    ("CS7", 56),
    ("AF11", 10),
    ("AF12", 12),
    ("AF13", 14),
    ("AF21", 18),
    ("AF22", 20),
    ("AF23", 22),
    ("AF31", 26),
    ("AF32", 28),
    ("AF33", 30),
    ("AF41", 34),
    ("AF42", 36),
    ("AF43", 38),
    ("VA", 44),
    ("EF", 46),
];

/// A differentiated-services code point, 0–63 (RFC 2474).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(pub u8);

impl FromStr for Dscp {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Some((_, value)) =
            DSCP_NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(text))
        {
            return Ok(Self(*value));
        }
        small_number(text, 63).map(Self).ok_or_else(|| {
            ValueError(format!(
                "unknown DSCP `{text}`: expected EF, AF11 to AF43, CS0 to CS7, LE, BE or a number \
                 from 0 to 63"
            ))
        })
    }
}

impl Value for Dscp {
    const EXPECTED: &'static str = "a DSCP: EF, AF11 to AF43, CS0 to CS7, LE, BE or 0 to 63";
    const EXAMPLES: &'static [&'static str] = &["EF", "AF41", "CS1"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(number.to_string().parse())
    }
}

/// The ECN field, 0–3 (RFC 3168).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecn(pub u8);

impl FromStr for Ecn {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.to_ascii_lowercase().as_str() {
            "not-ect" => Ok(Self(0)),
            "ect1" => Ok(Self(1)),
            "ect0" => Ok(Self(2)),
            "ce" => Ok(Self(3)),
            other => small_number(other, 3).map(Self).ok_or_else(|| {
                ValueError(format!(
                    "unknown ECN field `{text}`: expected not-ect (0), ect1 (1), ect0 (2) or ce (3)"
                ))
            }),
        }
    }
}

impl Value for Ecn {
    const EXPECTED: &'static str = "an ECN field: not-ect (0), ect1 (1), ect0 (2) or ce (3)";
    const EXAMPLES: &'static [&'static str] = &["ect0", "ect1"];
    const NUMBERS: bool = true;
    fn from_number(number: u64) -> Option<Result<Self, ValueError>> {
        Some(number.to_string().parse())
    }
}

fn small_number(text: &str, max: u8) -> Option<u8> {
    text.parse().ok().filter(|number| *number <= max)
}

/// Content of packets behind their header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PayloadKind(pub Payload);

impl FromStr for PayloadKind {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let payload = match text.split_once(':') {
            None if text == "random" => Payload::Random,
            Some(("pattern", hex)) => Payload::Pattern(parse_hex(hex)?),
            Some(("file", path)) if !path.is_empty() => Payload::File(path.to_owned()),
            _ => {
                return Err(ValueError(format!(
                    "unknown payload `{text}`: expected random, pattern:HEX or file:PATH"
                )));
            }
        };
        Ok(Self(payload))
    }
}

impl Value for PayloadKind {
    const EXPECTED: &'static str =
        "a payload: \"random\", \"pattern:HEX\" (these bytes, repeated) or \"file:PATH\"";
    const EXAMPLES: &'static [&'static str] = &["random", "pattern:00ff", "file:speech.raw"];
}

fn parse_hex(hex: &str) -> Result<Vec<u8>, ValueError> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let bytes: Option<Vec<u8>> = hex
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
            _ => None,
        })
        .collect();
    bytes.filter(|bytes| !bytes.is_empty()).ok_or_else(|| {
        ValueError(format!(
            "bad payload pattern `{hex}`: expected pairs of hexadecimal digits, such as 00ff"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dscp_names_and_numbers() {
        for (text, want) in [
            ("EF", Ok(46)),
            ("af41", Ok(34)),
            ("CS1", Ok(8)),
            ("63", Ok(63)),
            (
                "64",
                Err(
                    "unknown DSCP `64`: expected EF, AF11 to AF43, CS0 to CS7, LE, BE or a number \
                     from 0 to 63",
                ),
            ),
            (
                "AF44",
                Err("unknown DSCP `AF44`: expected EF, AF11 to AF43, CS0 to CS7, LE, BE or a \
                     number from 0 to 63"),
            ),
        ] {
            let got = text.parse::<Dscp>().map(|dscp| dscp.0).map_err(|e| e.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "input {text:?}");
        }
        for (name, value) in DSCP_NAMES {
            if let Some(digits) = name.strip_prefix("AF") {
                let digits: u8 = digits.parse().expect("two digits");
                assert_eq!(value, digits / 10 * 8 + digits % 10 * 2, "RFC 2597, {name}");
            }
            if let Some(class) = name.strip_prefix("CS") {
                assert_eq!(value, class.parse::<u8>().expect("digit") << 3, "RFC 2474, {name}");
            }
        }
    }

    #[test]
    fn ecn_fields() {
        for (text, want) in [
            ("not-ect", Ok(0)),
            ("ECT1", Ok(1)),
            ("ect0", Ok(2)),
            ("ce", Ok(3)),
            ("2", Ok(2)),
            (
                "ect2",
                Err("unknown ECN field `ect2`: expected not-ect (0), ect1 (1), ect0 (2) or ce (3)"),
            ),
        ] {
            let got = text.parse::<Ecn>().map(|ecn| ecn.0).map_err(|e| e.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "input {text:?}");
        }
    }

    #[test]
    fn payloads() {
        let odd = "bad payload pattern `0`: expected pairs of hexadecimal digits, such as 00ff";
        let unknown = "unknown payload `zeros`: expected random, pattern:HEX or file:PATH";
        for (text, want) in [
            ("random", Ok(Payload::Random)),
            ("pattern:00fF", Ok(Payload::Pattern(vec![0, 255]))),
            ("file:a:b", Ok(Payload::File("a:b".to_owned()))),
            ("pattern:0", Err(odd.to_owned())),
            ("pattern:", Err(odd.replace("`0`", "``"))),
            ("pattern:é", Err(odd.replace("`0`", "`é`"))),
            ("zeros", Err(unknown.to_owned())),
            ("file:", Err(unknown.replace("zeros", "file:"))),
        ] {
            let got = text.parse::<PayloadKind>().map(|p| p.0).map_err(|e| e.to_string());
            assert_eq!(got, want, "input {text:?}");
        }
    }
}
