//! Application profiles: the traffic of known programs, one TOML file each.
//!
//! A profile names its source and its parameters and gives the distributions of inter-departure
//! time and packet size. Sizes include every byte handed to the socket. The built-in ones are the
//! files in `profiles/app`, part of the program; a file of the same form can stand in for any of
//! them.
//!
//! VoIP profiles give the codec instead of distributions: a constant inter-departure time of
//! `1 / packet_rate` and a constant size of `vad · frame_bytes · frames + header`, truncated to
//! whole bytes, where `header` is 12 (RTP, RFC 3550) or 2 (compressed RTP, RFC 2508) and `vad` is
//! 0.65 with voice activity detection, else 1 (D-ITG 2.8.1; packets shrink, there are no silent
//! periods).

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::distribution::{Distribution, DistributionError, Unit};
use crate::flow::{OnOff, Proto};

const BUILTIN: [(&str, &str); 13] = [
    ("telnet", include_str!("../profiles/telnet.toml")),
    ("telnet-typing", include_str!("../profiles/telnet-typing.toml")),
    ("dns", include_str!("../profiles/dns.toml")),
    ("quake3", include_str!("../profiles/quake3.toml")),
    ("counter-strike-active", include_str!("../profiles/counter-strike-active.toml")),
    ("counter-strike-idle", include_str!("../profiles/counter-strike-idle.toml")),
    ("voip-g711.1", include_str!("../profiles/voip-g711.1.toml")),
    ("voip-g711.2", include_str!("../profiles/voip-g711.2.toml")),
    ("voip-g723.1", include_str!("../profiles/voip-g723.1.toml")),
    ("voip-g723.1-6.3k", include_str!("../profiles/voip-g723.1-6.3k.toml")),
    ("voip-g723.1-5.3k", include_str!("../profiles/voip-g723.1-5.3k.toml")),
    ("voip-g729.2", include_str!("../profiles/voip-g729.2.toml")),
    ("voip-g729.3", include_str!("../profiles/voip-g729.3.toml")),
];

/// Other names of built-in profiles; D-ITG's own among them.
const ALIASES: [(&str, &str); 13] = [
    ("voip", "voip-g711.1"),
    ("voip-g711", "voip-g711.1"),
    ("voip-g723", "voip-g723.1"),
    ("voip-g729", "voip-g729.2"),
    ("g.711.1", "voip-g711.1"),
    ("g.711.2", "voip-g711.2"),
    ("g.723.1", "voip-g723.1"),
    ("g.729.2", "voip-g729.2"),
    ("g.729.3", "voip-g729.3"),
    ("csa", "counter-strike-active"),
    ("cs-active", "counter-strike-active"),
    ("csi", "counter-strike-idle"),
    ("cs-idle", "counter-strike-idle"),
];

/// Parameters of a profile: keys and values.
pub type Params = Vec<(String, String)>;

/// The traffic of an application.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    /// Name, as after `--profile`.
    pub name: String,
    /// One line for people.
    pub title: String,
    /// Source of the numbers.
    pub source: String,
    /// Transport protocol that the application uses; `None` when any will do.
    pub transport: Option<Proto>,
    /// Inter-departure time.
    pub idt: Distribution,
    /// Packet size.
    pub size: Distribution,
    /// ON and OFF periods.
    pub on_off: Option<OnOff>,
    /// Meaning of the numbers, with units, and the parameters in force: for people and reports.
    pub parameters: BTreeMap<String, String>,
}

/// A profile that cannot be used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ProfileError {
    /// No built-in profile has the name.
    #[error("unknown profile `{name}`{hint}: expected one of {}", names_text())]
    Unknown {
        /// The name that was found.
        name: String,
        /// The nearest name as a question, or nothing.
        hint: String,
    },
    /// Text after the name that is not `key=value`.
    #[error("profile `{name}`: `{text}` is not of the form key=value")]
    Spec {
        /// Name of the profile.
        name: String,
        /// The text that was found.
        text: String,
    },
    /// The file is no profile.
    #[error("cannot read profile: {reason}")]
    File {
        /// Line, column and reason.
        reason: String,
    },
    /// A distribution of the profile is wrong.
    #[error("profile `{name}`, {key}: {source}")]
    Law {
        /// Name of the profile.
        name: String,
        /// Key of the distribution in the file, such as `idt`.
        key: &'static str,
        /// Fault of the distribution.
        source: DistributionError,
    },
    /// The file says too much or too little.
    #[error("profile `{name}`: {reason}")]
    Content {
        /// Name of the profile.
        name: String,
        /// Fault of the file.
        reason: &'static str,
    },
    /// A parameter that the profile does not have, or a value that it does not take.
    #[error("profile `{name}`, parameter `{key}={value}`: {expected}")]
    Parameter {
        /// Name of the profile.
        name: String,
        /// Name of the parameter.
        key: String,
        /// The value that was given.
        value: String,
        /// Values that are understood.
        expected: &'static str,
    },
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    name: String,
    title: String,
    source: String,
    transport: Option<Proto>,
    idt: Option<String>,
    size: Option<String>,
    on_off: Option<Periods>,
    voip: Option<Voip>,
    #[serde(default)]
    parameters: BTreeMap<String, String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Periods {
    on: String,
    off: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Voip {
    frame_bytes: u32,
    frames: u32,
    packet_rate: f64,
}

impl Profile {
    /// Reads a profile file and applies parameters (`header=rtp|crtp`, `vad=yes|no` for VoIP).
    ///
    /// # Errors
    /// [`ProfileError`] when the text is no profile, a distribution is wrong, or a parameter is not
    /// known.
    pub fn parse(text: &str, params: &[(String, String)]) -> Result<Self, ProfileError> {
        let file: File = toml::from_str(text).map_err(|error| ProfileError::File {
            reason: error.to_string().trim_end().to_owned(),
        })?;
        let name = file.name;
        let content = |reason| ProfileError::Content { name: name.clone(), reason };
        let distribution = |key, text: &str, unit| {
            let wrong = |source| ProfileError::Law { name: name.clone(), key, source };
            Distribution::parse(text, unit).map_err(wrong)
        };
        let mut parameters = file.parameters;
        let (idt, size) = match (file.voip, file.idt, file.size) {
            (Some(voip), None, None) => voip.distributions(&name, params, &mut parameters)?,
            (None, Some(idt), Some(size)) => {
                if let Some((key, value)) = params.first() {
                    return Err(ProfileError::Parameter {
                        name,
                        key: key.clone(),
                        value: value.clone(),
                        expected: "this profile has no parameters",
                    });
                }
                (distribution("idt", &idt, Unit::Time)?, distribution("size", &size, Unit::Size)?)
            }
            (Some(_), ..) => return Err(content("with [voip] there is no idt and no size")),
            (None, ..) => return Err(content("idt and size are both needed, or [voip]")),
        };
        let on_off = match file.on_off {
            None => None,
            Some(Periods { on, off }) => Some(OnOff {
                on: distribution("on_off.on", &on, Unit::Time)?,
                off: distribution("on_off.off", &off, Unit::Time)?,
            }),
        };
        let (title, source, transport) = (file.title, file.source, file.transport);
        Ok(Self { name, title, source, transport, idt, size, on_off, parameters })
    }

    /// The built-in profile of a text such as `dns` or `voip-g711:header=crtp,vad=yes`.
    ///
    /// # Errors
    /// [`ProfileError`] when there is no such profile or it does not have the parameter.
    pub fn from_spec(spec: &str) -> Result<Self, ProfileError> {
        let (name, params) = split_spec(spec)?;
        Self::parse(builtin(name).ok_or_else(|| unknown(name))?, &params)
    }
}

impl Voip {
    fn distributions(
        &self,
        name: &str,
        params: &[(String, String)],
        parameters: &mut BTreeMap<String, String>,
    ) -> Result<(Distribution, Distribution), ProfileError> {
        let (mut header, mut percent) = (12_u64, 100_u64);
        for (key, value) in params {
            let expected = match (key.as_str(), value.as_str()) {
                ("header", "rtp") => {
                    header = 12;
                    continue;
                }
                ("header", "crtp") => {
                    header = 2;
                    continue;
                }
                ("vad", "no") => {
                    percent = 100;
                    continue;
                }
                ("vad", "yes") => {
                    percent = 65;
                    continue;
                }
                ("header", _) => "expected header=rtp (12 bytes) or header=crtp (2 bytes)",
                ("vad", _) => "expected vad=yes or vad=no",
                _ => "expected header=rtp|crtp or vad=yes|no",
            };
            let (name, key, value) = (name.to_owned(), key.clone(), value.clone());
            return Err(ProfileError::Parameter { name, key, value, expected });
        }
        let in_range = (1..=10_000).contains(&self.frame_bytes)
            && (1..=1000).contains(&self.frames)
            && (1.0..=1e6).contains(&self.packet_rate);
        if !in_range {
            let reason = "[voip] needs frame_bytes 1 to 10000, frames 1 to 1000, packet_rate (packets \
                          per second) 1 to 1000000";
            return Err(ProfileError::Content { name: name.to_owned(), reason });
        }
        let voice = u64::from(self.frame_bytes) * u64::from(self.frames);
        let size = voice * percent / 100 + header;
        parameters
            .insert("header".to_owned(), if header == 12 { "rtp" } else { "crtp" }.to_owned());
        parameters.insert("vad".to_owned(), if percent == 65 { "yes" } else { "no" }.to_owned());
        let size = Distribution::Constant(size as f64);
        Ok((Distribution::Constant(1e9 / self.packet_rate), size))
    }
}

/// Name and parameters of a text such as `voip-g711:header=crtp,vad=yes`.
///
/// # Errors
/// [`ProfileError::Spec`] when something after the colon is not `key=value`.
pub fn split_spec(spec: &str) -> Result<(&str, Params), ProfileError> {
    let Some((name, rest)) = spec.split_once(':') else { return Ok((spec, Vec::new())) };
    let params = rest.split(',').map(|text| match text.split_once('=') {
        Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
            Ok((key.trim().to_owned(), value.trim().to_owned()))
        }
        _ => Err(ProfileError::Spec { name: name.to_owned(), text: text.to_owned() }),
    });
    Ok((name, params.collect::<Result<_, _>>()?))
}

/// The file of a built-in profile, by its name or an alias in any letter case.
#[must_use]
pub fn builtin(name: &str) -> Option<&'static str> {
    let lower = name.to_ascii_lowercase();
    let alias = ALIASES.iter().find(|(alias, _)| *alias == lower);
    let wanted = alias.map_or(lower.as_str(), |(_, name)| name);
    BUILTIN.iter().find(|(name, _)| *name == wanted).map(|(_, text)| *text)
}

/// Names of the built-in profiles.
pub fn builtin_names() -> impl ExactSizeIterator<Item = &'static str> + Clone {
    BUILTIN.iter().map(|(name, _)| *name)
}

/// The error for a name that is not built in, with the nearest one that is.
#[must_use]
pub fn unknown(name: &str) -> ProfileError {
    let lower = name.to_ascii_lowercase();
    let known = builtin_names().chain(ALIASES.iter().map(|(alias, _)| *alias));
    let scored = known.map(|known| (strsim::damerau_levenshtein(known, &lower), known));
    let nearest =
        scored.min_by_key(|(distance, _)| *distance).filter(|(distance, _)| *distance <= 3);
    let hint = nearest.map_or_else(String::new, |(_, known)| format!(", did you mean `{known}`?"));
    ProfileError::Unknown { name: name.to_owned(), hint }
}

fn names_text() -> String {
    builtin_names().collect::<Vec<_>>().join(", ")
}
