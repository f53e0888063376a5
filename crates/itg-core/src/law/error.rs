//! What can be wrong with a law.

use crate::units::UnitError;

use super::{DEPTH_MAX, ENTRIES_MAX};

/// A law that cannot be read or used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LawError {
    /// A name that no law has.
    #[error("unknown law `{name}`{hint}: expected one of {expected}")]
    Unknown {
        /// The name that was found.
        name: String,
        /// The nearest name as a question, or nothing.
        hint: String,
        /// The names that are understood.
        expected: &'static str,
    },
    /// The text does not have the form of a law.
    #[error("cannot read law at `{near}`: {reason}")]
    Syntax {
        /// The text where reading stopped.
        near: String,
        /// What was expected.
        reason: String,
    },
    /// A value that is no quantity.
    #[error("{law}, {name}: {source}")]
    Value {
        /// Name of the law.
        law: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// What is wrong with it.
        source: Box<UnitError>,
    },
    /// A shape or weight that is no plain number.
    #[error(
        "{law}, {name}: `{text}` is not a plain number: expected one without a unit, such as 0.95"
    )]
    Plain {
        /// Name of the law.
        law: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// The text that was found.
        text: String,
    },
    /// A parameter outside its range.
    #[error("{law}, {name}: {value} {rule}")]
    Parameter {
        /// Name of the law.
        law: &'static str,
        /// Name of the parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// The rule that it breaks.
        rule: &'static str,
    },
    /// The wrong number of parameters.
    #[error("{law} takes {expected}, got {got} value(s)")]
    Arguments {
        /// Name of the law.
        law: &'static str,
        /// What belongs between the parentheses.
        expected: &'static str,
        /// How many values were found.
        got: usize,
    },
    /// A list that is empty or too long.
    #[error("{law} has {got} entries: expected 1 to {ENTRIES_MAX}")]
    Entries {
        /// Name of the law.
        law: &'static str,
        /// How many were found.
        got: usize,
    },
    /// Laws within laws within laws.
    #[error("laws are nested more than {DEPTH_MAX} deep")]
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
        /// What is wrong with it.
        reason: String,
    },
    /// A law whose values are never, or too seldom, in the range that is needed.
    #[error(
        "{law} keeps {kept} of its draws within {range}: at least 1/16 is needed, choose other \
         parameters or bounds"
    )]
    Kept {
        /// The law.
        law: String,
        /// The share of its draws that is kept, in percent.
        kept: String,
        /// The range.
        range: String,
    },
    /// A constant outside the range.
    #[error("{law} is outside {range}")]
    Outside {
        /// The law.
        law: String,
        /// The range.
        range: String,
    },
}
