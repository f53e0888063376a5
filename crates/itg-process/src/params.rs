//! Parameters of layers and networks, with the place of each in the file.
//!
//! The reader of parameters asks for each by name; [`Params::finish`] then refuses those that were
//! not asked for, and names the nearest word that would have been understood.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use itg_core::text::{ConfigError, Position, suggestion};
use itg_core::units::nanoseconds;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A value and where it stands.
#[derive(Clone, Debug)]
struct Found {
    value: toml::Value,
    place: Option<Position>,
}

/// The keys of one table.
#[derive(Clone, Debug)]
pub struct Params {
    origin: String,
    /// Name of the table in messages: ``layer `heartbeat` ``.
    what: String,
    head: Option<Position>,
    found: BTreeMap<String, Found>,
    asked: Vec<&'static str>,
}

impl Params {
    /// An empty table.
    #[must_use]
    pub fn empty(what: impl Into<String>) -> Self {
        Self {
            origin: String::new(),
            what: what.into(),
            head: None,
            found: BTreeMap::new(),
            asked: Vec::new(),
        }
    }

    /// A table whose places are not known, but for its head.
    #[must_use]
    pub fn of_table(
        table: &toml::Table,
        what: impl Into<String>,
        origin: &str,
        head: Option<Position>,
    ) -> Self {
        let found = table.iter();
        let found = found
            .map(|(key, value)| (key.clone(), Found { value: value.clone(), place: head }))
            .collect();
        Self { origin: origin.to_owned(), what: what.into(), head, found, asked: Vec::new() }
    }

    /// A table of a text.
    pub(crate) fn of_spanned(
        table: &DeTable<'_>,
        head: usize,
        text: &str,
        what: impl Into<String>,
        origin: &str,
    ) -> Self {
        let found = table
            .iter()
            .map(|(key, value)| {
                let place = Some(Position::of(text, value.span().start));
                (key.get_ref().to_string(), Found { value: plain(value), place })
            })
            .collect();
        Self {
            origin: origin.to_owned(),
            what: what.into(),
            head: Some(Position::of(text, head)),
            found,
            asked: Vec::new(),
        }
    }

    /// An error at the head of the table.
    #[must_use]
    pub fn error(&self, text: impl fmt::Display) -> ConfigError {
        ConfigError {
            origin: self.origin.clone(),
            place: self.head,
            text: format!("{}: {text}", self.what),
        }
    }

    /// An error at one of its keys.
    #[must_use]
    pub fn error_at(&self, key: &str, text: impl fmt::Display) -> ConfigError {
        let place = self.found.get(key).and_then(|found| found.place).or(self.head);
        let text = format!("{}: {key}: {text}", self.what);
        ConfigError { origin: self.origin.clone(), place, text }
    }

    fn ask(&mut self, key: &'static str) {
        if !self.asked.contains(&key) {
            self.asked.push(key);
        }
    }

    /// Returns true if a key is given; it counts as asked for.
    pub fn has(&mut self, key: &'static str) -> bool {
        self.ask(key);
        self.found.contains_key(key)
    }

    /// The raw value of a key.
    pub fn value(&mut self, key: &'static str) -> Option<toml::Value> {
        self.ask(key);
        self.found.get(key).map(|found| found.value.clone())
    }

    fn typed<T>(
        &mut self,
        key: &'static str,
        expected: &str,
        take: impl Fn(&toml::Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        self.ask(key);
        let Some(found) = self.found.get(key) else { return Ok(None) };
        take(&found.value).map(Some).ok_or_else(|| {
            self.error_at(key, format_args!("`{}`: expected {expected}", found.value))
        })
    }

    /// A text.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, key: &'static str) -> Result<Option<String>, ConfigError> {
        self.typed(key, "a text", |value| value.as_str().map(str::to_owned))
    }

    /// `true` or `false`.
    ///
    /// # Errors
    /// It is something else.
    pub fn flag(&mut self, key: &'static str, default: bool) -> Result<bool, ConfigError> {
        Ok(self.typed(key, "true or false", toml::Value::as_bool)?.unwrap_or(default))
    }

    /// A whole number, not negative.
    ///
    /// # Errors
    /// It is something else.
    pub fn number(&mut self, key: &'static str, default: u64) -> Result<u64, ConfigError> {
        let expected = "a whole number, 0 or more";
        let take = |value: &toml::Value| value.as_integer().and_then(|n| u64::try_from(n).ok());
        Ok(self.typed(key, expected, take)?.unwrap_or(default))
    }

    /// A time such as `"10ms"`, in nanoseconds.
    ///
    /// # Errors
    /// It is something else.
    pub fn time_ns(&mut self, key: &'static str, default: u64) -> Result<u64, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(default) };
        itg_core::units::parse_duration_ns(&text).map_err(|error| self.error_at(key, error))
    }

    /// A time such as `"10ms"`.
    ///
    /// # Errors
    /// It is something else.
    pub fn duration(
        &mut self,
        key: &'static str,
        default: Duration,
    ) -> Result<Duration, ConfigError> {
        self.time_ns(key, nanoseconds(default)).map(Duration::from_nanos)
    }

    /// A rate such as `"100Mbps"`, in bits per second.
    ///
    /// # Errors
    /// It is something else, or zero.
    pub fn bit_rate(&mut self, key: &'static str, default: u64) -> Result<u64, ConfigError> {
        let Some(text) = self.text(key)? else { return Ok(default) };
        match text.parse::<itg_core::units::Rate>() {
            Ok(itg_core::units::Rate::Bits(rate)) => Ok(rate.0),
            Ok(itg_core::units::Rate::Packets(_)) => {
                Err(self.error_at(key, "expected bits per second, such as 100Mbps"))
            }
            Err(error) => Err(self.error_at(key, error)),
        }
    }

    /// A probability: a number from 0 to 1, in parts of a million (rounded).
    ///
    /// # Errors
    /// It is something else.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "from 0 to a million"
    )]
    pub fn probability(&mut self, key: &'static str) -> Result<u32, ConfigError> {
        let take = |value: &toml::Value| {
            let value = value.as_float().or_else(|| value.as_integer().map(|n| n as f64))?;
            (0.0..=1.0).contains(&value).then(|| (value * 1e6).round() as u32)
        };
        Ok(self.typed(key, "a probability from 0 to 1", take)?.unwrap_or(0))
    }

    /// Refuses keys that were not asked for.
    ///
    /// # Errors
    /// The first of them, with the nearest key that is understood.
    pub fn finish(&self) -> Result<(), ConfigError> {
        let unknown = self
            .found
            .iter()
            .filter(|(key, _)| !self.asked.contains(&key.as_str()))
            .min_by_key(|(_, found)| found.place);
        let Some((key, found)) = unknown else { return Ok(()) };
        let hint = suggestion(key, self.asked.iter().copied());
        let text = format!("{}: unknown key `{key}`: {hint}", self.what);
        Err(ConfigError { origin: self.origin.clone(), place: found.place, text })
    }
}

/// A value without its places.
pub(crate) fn plain(value: &Spanned<DeValue<'_>>) -> toml::Value {
    match value.get_ref() {
        DeValue::String(text) => toml::Value::String(text.to_string()),
        DeValue::Integer(number) => {
            let digits = number.as_str();
            i64::from_str_radix(digits, number.radix())
                .map_or_else(|_| toml::Value::String(digits.to_owned()), toml::Value::Integer)
        }
        DeValue::Float(number) => number
            .as_str()
            .parse()
            .map_or_else(|_| toml::Value::String(number.to_string()), toml::Value::Float),
        DeValue::Boolean(flag) => toml::Value::Boolean(*flag),
        DeValue::Datetime(time) => toml::Value::Datetime(*time),
        DeValue::Array(items) => toml::Value::Array(items.iter().map(plain).collect()),
        DeValue::Table(table) => toml::Value::Table(
            table.iter().map(|(key, value)| (key.get_ref().to_string(), plain(value))).collect(),
        ),
    }
}
