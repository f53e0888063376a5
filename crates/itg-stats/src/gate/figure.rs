//! Figure of a report by the name that gates and sweeps know.

use super::metrics::{Get, metric};
use super::{GateError, Kind, Scope, counted, json, scope};
use crate::report::Report;

/// A figure of a report by its name: `delay.p99` of the total, `flow.2.loss` of a flow.
#[derive(Clone, Debug)]
pub struct Figure {
    name: String,
    scope: Scope,
    kind: Kind,
    get: Get,
}

impl Figure {
    /// Reads a name; without a flow it is that of the total.
    ///
    /// # Errors
    /// No such metric, or one that has no mean.
    pub fn parse(name: &str) -> Result<Self, GateError> {
        let (scope, found) = scope(name.trim())?;
        let (metric, kind, get) = metric(found)?;
        if kind == Kind::Verdict {
            return Err(GateError::Order { metric });
        }
        Ok(Self { name: name.trim().to_owned(), scope, kind, get })
    }

    /// As it was written.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Unit of its values.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// A value of it for people, with its unit.
    #[must_use]
    pub fn text(&self, value: f64) -> String {
        self.kind.text(value)
    }

    /// Its value in a report, where it is known.
    #[must_use]
    pub fn of(&self, report: &Report) -> Option<f64> {
        match &self.scope {
            Scope::Total | Scope::AnyFlow => {
                self.get.of(&report.total.metrics, &|| json(&report.total))
            }
            Scope::Flow(asked) => {
                let flow = counted(report).find(|flow| Scope::names(flow, asked))?;
                self.get.of(&flow.metrics, &|| json(flow))
            }
        }
    }
}
