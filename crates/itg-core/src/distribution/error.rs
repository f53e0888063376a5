//! Errors in the text and the parameters of a distribution.

use crate::units::UnitError;

use super::{DEPTH_MAX, ENTRIES_MAX};

/// A distribution that cannot be read or used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DistributionError {
    /// A name that no distribution has.
    #[error("unknown distribution `{name}`{hint}: expected one of {expected}")]
    Unknown {
        /// The name that was found.
        name: String,
        /// The nearest name as a question, or nothing.
        hint: String,
        /// The names that are understood.
        expected: &'static str,
    },
    /// The text does not have the form of a distribution.
    #[error("cannot read distribution at `{near}`: {reason}")]
    Syntax {
        /// The text where reading stopped.
        near: String,
        /// Text that was expected.
        reason: String,
    },
    /// A value that is no quantity.
    #[error("{distribution}, {name}: {source}")]
    Value {
        /// Name of the distribution.
        distribution: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// Fault of the value.
        source: Box<UnitError>,
    },
    /// A shape or weight that is no plain number.
    #[error(
        "{distribution}, {name}: `{text}` is not a plain number: expected one without a unit, such as 0.95"
    )]
    Plain {
        /// Name of the distribution.
        distribution: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// The text that was found.
        text: String,
    },
    /// A parameter outside its range.
    #[error("{distribution}, {name}: {value} {rule}")]
    Parameter {
        /// Name of the distribution.
        distribution: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The wrong number of parameters.
    #[error("{distribution} takes {expected}, got {got} value(s)")]
    Arguments {
        /// Name of the distribution.
        distribution: &'static str,
        /// Parameters that belong between the parentheses.
        expected: &'static str,
        /// Number of values found.
        got: usize,
    },
    /// A list that is empty or too long.
    #[error("{distribution} has {got} entries: expected 1 to {ENTRIES_MAX}")]
    Entries {
        /// Name of the distribution.
        distribution: &'static str,
        /// Number of entries found.
        got: usize,
    },
    /// Distributions that are nested too deep.
    #[error("distributions are nested more than {DEPTH_MAX} deep")]
    TooDeep,
    /// A table that was not read.
    #[error("the values of empirical({name}) have not been read: the file is needed here")]
    NotLoaded {
        /// Name of the file.
        name: String,
    },
    /// A line of a table that is wrong.
    #[error("{name}, line {line}: {reason}")]
    Table {
        /// Name of the file.
        name: String,
        /// Line number, from 1.
        line: usize,
        /// Fault of the line.
        reason: String,
    },
    /// A distribution whose values are never, or too seldom, in the range that is needed.
    #[error(
        "{distribution} keeps {kept} of its draws within {range}: at least 1/16 is needed, choose other \
         parameters or bounds"
    )]
    Kept {
        /// The distribution.
        distribution: String,
        /// The share of its draws that is kept, in percent.
        kept: String,
        /// The range.
        range: String,
    },
    /// A constant outside the range.
    #[error("{distribution} is outside {range}")]
    Outside {
        /// The distribution.
        distribution: String,
        /// The range.
        range: String,
    },
}
