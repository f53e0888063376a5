//! Reading distributions and tables. Nesting and list lengths are bounded, so any text ends with an
//! answer.

use std::sync::Arc;

use super::{DEPTH_MAX, Distribution, DistributionError, ENTRIES_MAX, TABLE_MAX, Unit};
use crate::units::{self, Quantity};

const NAMES: [&str; 15] = [
    "constant",
    "uniform",
    "exp",
    "normal",
    "lognormal",
    "pareto",
    "cauchy",
    "student",
    "gamma",
    "weibull",
    "poisson",
    "discrete",
    "mix",
    "empirical",
    "trunc",
];
const NAMES_TEXT: &str = "constant, uniform, exp, normal, lognormal, pareto, cauchy, student, \
                          gamma, weibull, poisson, discrete, mix, empirical, trunc";

impl Unit {
    const fn quantity(self) -> &'static Quantity {
        match self {
            Self::Time => &units::TIME,
            Self::Size => &units::SIZE,
        }
    }
}

impl Distribution {
    /// Reads a distribution: `name(values)` with units inside, or a bare value for a constant.
    ///
    /// `exp(10ms)`, `uniform(500, 1000)`, `student(41.7ms, 0.1ms, 0.7)`,
    /// `mix(0.6:exp(4.29ms), 0.4:constant(10.75ms))`, `discrete(27:0.8312, 28:0.0018)`,
    /// `empirical(sizes.txt)`, `empirical("a (1).txt")`, `trunc(normal(10ms, 5ms), 0, inf)`, `512`.
    ///
    /// # Errors
    /// [`DistributionError`] when the text is no distribution, a value has the wrong unit, or a parameter is
    /// outside its range.
    pub fn parse(text: &str, unit: Unit) -> Result<Self, DistributionError> {
        let mut reader = Reader { rest: text, unit };
        let distribution = reader.distribution(0)?;
        reader.skip();
        if !reader.rest.is_empty() {
            return Err(reader.syntax("nothing more was expected after the distribution"));
        }
        distribution.check(unit)?;
        Ok(distribution)
    }

    /// Gives every `empirical(name)` in this distribution its values: one number on each line.
    ///
    /// Empty lines and what follows `#` are ignored. Values have units as in a distribution
    /// (`1.5ms`, `512`); a line `unit: ms` sets the unit of the bare numbers below it.
    ///
    /// # Errors
    /// [`DistributionError::Table`] with the line that is wrong, or when there is no value at all.
    pub fn load(&mut self, name: &str, text: &str) -> Result<(), DistributionError> {
        match self {
            Self::Empirical { name: own, unit, table } if own == name => {
                *table = Some(read_table(name, text, *unit)?);
                Ok(())
            }
            Self::Mix(parts) => {
                parts.iter_mut().try_for_each(|(_, distribution)| distribution.load(name, text))
            }
            Self::Trunc { distribution, .. } => distribution.load(name, text),
            _ => Ok(()),
        }
    }
}

fn read_table(name: &str, text: &str, unit: Unit) -> Result<Arc<[f64]>, DistributionError> {
    let wrong = |line, reason| DistributionError::Table { name: name.to_owned(), line, reason };
    let mut values = Vec::new();
    let mut bare = "";
    for (i, line) in text.lines().enumerate() {
        let entry = line.split('#').next().unwrap_or("").trim();
        if entry.is_empty() {
            continue;
        }
        if let Some(unit) = entry.strip_prefix("unit:") {
            bare = unit.trim();
            continue;
        }
        let with_unit;
        let value = if !bare.is_empty() && units::parse_plain(entry).is_some() {
            with_unit = format!("{entry}{bare}");
            with_unit.as_str()
        } else {
            entry
        };
        let (x, _) = unit.quantity().real(value).map_err(|e| wrong(i + 1, e.to_string()))?;
        if !(0.0..=super::VALUE_MAX).contains(&x) {
            return Err(wrong(i + 1, format!("`{entry}` is not from 0 to 1e18 ns or bytes")));
        }
        if values.len() == TABLE_MAX {
            return Err(wrong(i + 1, format!("more than {TABLE_MAX} values")));
        }
        values.push(x);
    }
    if values.is_empty() {
        return Err(wrong(text.lines().count().max(1), "the file ends without a value".to_owned()));
    }
    values.sort_unstable_by(f64::total_cmp);
    Ok(values.into())
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    rest: &'a str,
    unit: Unit,
}

impl<'a> Reader<'a> {
    fn syntax(&self, reason: &str) -> DistributionError {
        let near = match self.rest.chars().take(24).collect::<String>() {
            text if text.is_empty() => "end of text".to_owned(),
            text => text,
        };
        DistributionError::Syntax { near, reason: reason.to_owned() }
    }

    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    /// Takes a character if it comes next.
    fn take(&mut self, wanted: char) -> bool {
        self.skip();
        let after = self.rest.strip_prefix(wanted);
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    /// The text up to the next separator.
    fn word(&mut self) -> &'a str {
        let end = self.rest.find(['(', ')', ',', ':']).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word.trim()
    }

    fn distribution(&mut self, depth: usize) -> Result<Distribution, DistributionError> {
        if depth > DEPTH_MAX {
            return Err(DistributionError::TooDeep);
        }
        self.skip();
        let start = *self;
        let name = self.word();
        if !self.rest.starts_with('(') {
            if name.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '-' | '.')) {
                return self
                    .value("constant", "value", name)
                    .map(|(x, _)| Distribution::Constant(x));
            }
            if NAMES.contains(&name) {
                return Err(
                    start.syntax("values in parentheses must follow the name of a distribution")
                );
            }
            return Err(unknown(name).unwrap_or_else(|| {
                start.syntax("expected a distribution such as exp(10ms), or a value with its unit")
            }));
        }
        self.take('(');
        let Some(&name) = NAMES.iter().find(|known| **known == name) else {
            return Err(unknown(name)
                .unwrap_or_else(|| start.syntax("expected the name of a distribution")));
        };
        let distribution = match name {
            "discrete" => Distribution::Discrete(self.list(name, |reader| {
                let (x, _) = reader.next_value(name, "value")?;
                reader.colon("expected value:weight")?;
                Ok((x, reader.next_plain(name, "weight")?))
            })?),
            "mix" => Distribution::Mix(self.list(name, |reader| {
                let weight = reader.next_plain(name, "weight")?;
                reader.colon("expected weight:distribution")?;
                Ok((weight, reader.distribution(depth + 1)?))
            })?),
            "empirical" => {
                Distribution::Empirical { name: self.file_name()?, unit: self.unit, table: None }
            }
            "trunc" => {
                let distribution = Box::new(self.distribution(depth + 1)?);
                let mut bound = |name| {
                    if !self.take(',') {
                        return Err(self.syntax("trunc takes a distribution, lo and hi"));
                    }
                    match self.word() {
                        "inf" => Ok(f64::INFINITY),
                        "-inf" => Ok(f64::NEG_INFINITY),
                        word => self.value("trunc", name, word).map(|(x, _)| x),
                    }
                };
                Distribution::Trunc { distribution, lo: bound("lo")?, hi: bound("hi")? }
            }
            _ => self.simple(name)?,
        };
        if !self.take(')') {
            return Err(self.syntax("expected `)`"));
        }
        Ok(distribution)
    }

    /// The distributions whose parameters are numbers only.
    fn simple(&mut self, distribution: &'static str) -> Result<Distribution, DistributionError> {
        let mut words = vec![self.word()];
        while self.take(',') {
            words.push(self.word());
            if words.len() > 3 {
                break;
            }
        }
        if words == [""] {
            words.clear();
        }
        let wrong =
            |expected| DistributionError::Arguments { distribution, expected, got: words.len() };
        let value = |i: usize, name| self.value(distribution, name, words[i]).map(|(x, _)| x);
        let plain = |i: usize, name| number(distribution, name, words[i]);
        Ok(match (distribution, words.len()) {
            ("constant", 1) => Distribution::Constant(value(0, "value")?),
            ("uniform", 2) => Distribution::Uniform { lo: value(0, "lo")?, hi: value(1, "hi")? },
            ("exp", 1) => Distribution::Exp { mean: value(0, "mean")? },
            ("normal", 2) => Distribution::Normal { mean: value(0, "mean")?, sd: value(1, "sd")? },
            ("lognormal", 2) => {
                Distribution::LogNormal { median: value(0, "median")?, sigma: plain(1, "sigma")? }
            }
            ("cauchy", 2) => {
                Distribution::Cauchy { location: value(0, "location")?, scale: value(1, "scale")? }
            }
            ("student", 3) => Distribution::Student {
                location: value(0, "location")?,
                scale: value(1, "scale")?,
                nu: plain(2, "nu")?,
            },
            ("pareto", 2) => {
                Distribution::Pareto { shape: plain(0, "shape")?, scale: value(1, "scale")? }
            }
            ("gamma", 2) => {
                Distribution::Gamma { shape: plain(0, "shape")?, scale: value(1, "scale")? }
            }
            ("weibull", 2) => {
                Distribution::Weibull { shape: plain(0, "shape")?, scale: value(1, "scale")? }
            }
            ("poisson", 1 | 2) => {
                let (mean, step) = self.value(distribution, "mean", words[0])?;
                let grain = match (words.len(), self.unit) {
                    (2, _) => value(1, "grain")?,
                    (_, Unit::Time) => step,
                    (_, Unit::Size) => 1.0,
                };
                Distribution::Poisson { mean, grain }
            }
            ("constant", _) => return Err(wrong("one value")),
            ("exp", _) => return Err(wrong("one value, the mean")),
            ("uniform", _) => return Err(wrong("two values: lo, hi")),
            ("normal", _) => return Err(wrong("two values: mean, sd")),
            ("lognormal", _) => return Err(wrong("two values: median, sigma (plain number)")),
            ("cauchy", _) => return Err(wrong("two values: location, scale")),
            ("student", _) => {
                return Err(wrong("three values: location, scale, nu (plain number)"));
            }
            ("poisson", _) => return Err(wrong("a mean and, if wanted, a grain")),
            _ => return Err(wrong("two values: shape (plain number), scale")),
        })
    }

    fn list<T>(
        &mut self,
        distribution: &'static str,
        mut entry: impl FnMut(&mut Self) -> Result<T, DistributionError>,
    ) -> Result<Vec<T>, DistributionError> {
        let mut entries = vec![entry(self)?];
        while self.take(',') {
            if entries.len() == ENTRIES_MAX {
                return Err(DistributionError::Entries { distribution, got: ENTRIES_MAX + 1 });
            }
            entries.push(entry(self)?);
        }
        Ok(entries)
    }

    fn colon(&mut self, reason: &str) -> Result<(), DistributionError> {
        if self.take(':') { Ok(()) } else { Err(self.syntax(reason)) }
    }

    fn next_value(
        &mut self,
        distribution: &'static str,
        name: &'static str,
    ) -> Result<(f64, f64), DistributionError> {
        let word = self.word();
        self.value(distribution, name, word)
    }

    fn next_plain(
        &mut self,
        distribution: &'static str,
        name: &'static str,
    ) -> Result<f64, DistributionError> {
        number(distribution, name, self.word())
    }

    fn value(
        &self,
        distribution: &'static str,
        name: &'static str,
        text: &str,
    ) -> Result<(f64, f64), DistributionError> {
        let value = self.unit.quantity().real(text);
        value.map_err(|source| DistributionError::Value {
            distribution,
            name,
            source: Box::new(source),
        })
    }

    fn file_name(&mut self) -> Result<String, DistributionError> {
        self.skip();
        let start = *self;
        let Some(quoted) = self.rest.strip_prefix('"') else {
            let end = self.rest.find([',', ')']).unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            let name = name.trim();
            let odd = name.is_empty() || name.contains(['(', ':', '"', '\\']);
            let reason =
                "expected a file name, in double quotes if it has other than plain characters";
            return if odd { Err(start.syntax(reason)) } else { Ok(name.to_owned()) };
        };
        let mut name = String::new();
        let mut chars = quoted.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = &quoted[at + 1..];
                    return Ok(name);
                }
                '\\' => name.extend(chars.next().map(|(_, c)| c)),
                c => name.push(c),
            }
        }
        Err(start.syntax("the closing quote of the file name is missing"))
    }
}

fn number(
    distribution: &'static str,
    name: &'static str,
    text: &str,
) -> Result<f64, DistributionError> {
    let plain = || DistributionError::Plain { distribution, name, text: text.to_owned() };
    units::parse_plain(text).ok_or_else(plain)
}

/// The error for a name that no distribution has; `None` when it is no name at all.
fn unknown(name: &str) -> Option<DistributionError> {
    let short =
        name.len() <= 40 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if name.is_empty() || !short {
        return None;
    }
    let lower = name.to_ascii_lowercase();
    let distance = |known: &&str| strsim::damerau_levenshtein(known, &lower);
    let alias =
        [("exponential", "exp"), ("gaussian", "normal"), ("const", "constant"), ("t", "student")];
    let nearest = alias.iter().find(|(other, _)| *other == lower).map(|(_, known)| *known);
    let nearest = nearest
        .or_else(|| NAMES.into_iter().min_by_key(distance).filter(|known| distance(known) <= 2));
    Some(DistributionError::Unknown {
        name: name.to_owned(),
        hint: nearest.map_or_else(String::new, |known| format!(", did you mean `{known}`?")),
        expected: NAMES_TEXT,
    })
}
