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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Analysis, Options};

    #[test]
    fn figures_are_known_by_the_names_of_gates() {
        for (name, want) in [
            ("delay.p99", None),
            ("flow.3.loss", None),
            ("total.bitrate", None),
            ("speed", Some("unknown metric `speed`")),
            ("flow..loss", Some("names no flow")),
            ("fidelity", Some("fidelity has no order")),
        ] {
            let got = Figure::parse(name).map(|figure| figure.name().to_owned());
            match (got, want) {
                (Ok(got), None) => assert_eq!(got, name),
                (Err(error), Some(want)) => assert!(error.to_string().contains(want), "{error}"),
                (got, want) => panic!("{name}: {got:?}, {want:?}"),
            }
        }
        let nothing = Analysis::new(Options::default()).finish();
        assert_eq!(Figure::parse("flow.3.loss").expect("known").of(&nothing), None);
        assert_eq!(Figure::parse("packets").expect("known").of(&nothing), Some(0.0));
    }
}
