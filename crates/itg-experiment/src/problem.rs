//! Problems of an experiment: what is wrong, where, and what would have been understood instead.

use std::sync::Arc;

use itg_core::text::{ConfigError as Problem, Position};

/// Positions of a table and its keys in the file; empty for a table that was not read from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// The head of the table.
    pub head: Option<Position>,
    /// The values of its keys, whose names all tables of a file share.
    pub keys: Vec<(Arc<str>, Position)>,
}

impl Positions {
    /// The place of a key, or of the table when it has no such key.
    #[must_use]
    pub fn key(&self, key: &str) -> Option<Position> {
        let mut keys = self.keys.iter();
        keys.find(|(name, _)| **name == *key).map(|(_, place)| *place).or(self.head)
    }
}

/// An experiment file that cannot be read: everything that is wrong with it, in the order of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct ExperimentError {
    /// At least one.
    pub problems: Vec<Problem>,
}

/// An experiment that is well written but cannot be done as asked: all reasons, in the order of the
/// file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", lines(problems))]
pub struct PlanError {
    /// At least one.
    pub problems: Vec<Problem>,
}

fn lines(problems: &[Problem]) -> String {
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}
