//! Gates: conditions under which a run fails, and messages about them.

use itg_core::text::suggestion;
use itg_experiment::{Experiment, Plan};
use itg_stats::Report;
use itg_stats::gate::{Gate, Outcome, exit_code};

use crate::failure::refuse;
use crate::verbosity::say;

/// Names of flows that a wrong one is compared with.
const MOST_NAMES: usize = 100;

/// Conditions for failure, from the command line and from experiment files.
#[derive(Clone, Debug, Default)]
pub struct Gates {
    /// The conditions.
    pub list: Vec<Gate>,
    /// True if a gate whose figure is not known passes.
    pub allow_unknown: bool,
}

/// Result of the gates.
#[derive(Clone, Debug)]
pub struct Judged {
    /// One answer a gate.
    pub outcomes: Vec<Outcome>,
    /// 98 or 99 when one fails.
    pub code: Option<u8>,
}

impl Gates {
    /// Adds those of an experiment; `origin` is the name of its file.
    ///
    /// # Errors
    /// A text that is no gate: exit code 2.
    pub fn add(&mut self, experiment: &Experiment, origin: &str) -> anyhow::Result<()> {
        let entry = &experiment.gates;
        for text in &entry.fail_if {
            let gate = Gate::parse(text);
            let gate = gate.map_err(|error| refuse(format!("{origin}: gates.fail_if: {error}")))?;
            self.list.push(gate);
        }
        self.allow_unknown |= entry.allow_unknown;
        Ok(())
    }

    /// Checks that the flows which gates name are those of a plan.
    ///
    /// # Errors
    /// A flow that will not be there: exit code 2.
    pub fn check(&self, plan: &Plan) -> anyhow::Result<()> {
        for gate in &self.list {
            let Some(asked) = gate.flow() else { continue };
            let mut known = plan.flows.iter();
            if !known.any(|flow| flow.name == asked || flow.flow.spec().id.to_string() == asked) {
                let names = plan.flows.iter().map(|flow| flow.name.as_str());
                let hint = suggestion(asked, names.take(MOST_NAMES));
                return Err(refuse(format!("gate `{gate}`: there is no flow `{asked}`: {hint}")));
            }
        }
        Ok(())
    }

    /// Judges a report and says what each gate found: all of it, or when `quiet` what fails.
    #[must_use]
    pub fn judge(&self, report: &Report, program: &str, quiet: bool) -> Judged {
        let judged = self.weigh(report);
        self.tell(&judged, program, quiet);
        judged
    }

    /// Judges a report, without a word.
    #[must_use]
    pub fn weigh(&self, report: &Report) -> Judged {
        let outcomes: Vec<_> = self.list.iter().map(|gate| gate.judge(report)).collect();
        let code = exit_code(&outcomes, self.allow_unknown);
        Judged { outcomes, code }
    }

    /// Says what each gate found: all of it, or when `quiet` what fails.
    pub fn tell(&self, judged: &Judged, program: &str, quiet: bool) {
        for outcome in &judged.outcomes {
            if !quiet || !outcome.is_fine(self.allow_unknown) {
                say(format_args!("{program}: {outcome}"));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use itg_stats::{Analysis, Options};

    use super::*;

    #[test]
    fn gates_of_a_file_are_taken_or_refused_by_name() {
        let text = |gate: &str| {
            format!("schema = 1\nname = 'x'\n[gates]\nfail_if = ['{gate}']\n[[flow]]\nto = 'b'\n")
        };
        let gates = |gate: &str| {
            let experiment = Experiment::parse(&text(gate), "x.toml").expect("an experiment");
            let mut gates = Gates::default();
            gates.add(&experiment, "x.toml").map(|()| gates)
        };
        let known = gates("total.loss > 0.1%").expect("a gate");
        let nothing = Analysis::new(Options::default()).finish();
        assert_eq!(known.judge(&nothing, "test", true).code, Some(99), "nothing is known");
        let lenient = Gates { allow_unknown: true, ..known };
        assert_eq!(lenient.judge(&nothing, "test", true).code, None);
        let error = gates("speed > 3").expect_err("no such figure").to_string();
        assert!(error.starts_with("x.toml: gates.fail_if: "), "{error}");
    }
}
