//! The rule that says when a case has been run often enough.

use std::collections::BTreeMap;

use itg_core::confidence::Mean95;

/// Runs of a case before the rule is asked: below, Student's interval is too wide to say anything.
pub const LEAST: u32 = 3;

/// `ci95(METRIC) < SHARE`, one or several of them, joined by `and`: half the 95 % interval of the mean is less
/// than this share of the mean.
#[derive(Clone, Debug, PartialEq)]
pub struct Until {
    conditions: Vec<Condition>,
}

#[derive(Clone, Debug, PartialEq)]
struct Condition {
    metric: String,
    /// More than 0, up to 1.
    share: f64,
}

/// A text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UntilError {
    /// Another shape.
    #[error("`{0}` is no rule: expected ci95(METRIC) < N%, such as ci95(delay.p99) < 5%")]
    Shape(String),
    /// A share that makes no sense.
    #[error("`{0}` is no share of the mean: expected more than 0% and at most 100%")]
    Share(String),
}

impl Until {
    /// Reads a rule. Whether there is such a metric is not known here: see [`Until::metrics`].
    ///
    /// # Errors
    /// [`UntilError`] names what is wrong.
    pub fn parse(text: &str) -> Result<Self, UntilError> {
        let conditions = text.split(" and ").map(Condition::parse).collect::<Result<_, _>>()?;
        Ok(Self { conditions })
    }

    /// The metrics that it looks at.
    pub fn metrics(&self) -> impl Iterator<Item = &str> {
        self.conditions.iter().map(|condition| condition.metric.as_str())
    }

    /// Returns true if it holds for these runs of a case; a figure that is not known in one of them
    /// is not known.
    #[must_use]
    pub fn holds(&self, runs: &[&BTreeMap<String, Option<f64>>]) -> bool {
        runs.len() >= LEAST as usize
            && self.conditions.iter().all(|condition| condition.holds(runs))
    }
}

impl Condition {
    fn parse(text: &str) -> Result<Self, UntilError> {
        let shape = || UntilError::Shape(text.trim().to_owned());
        let rest = text.trim().strip_prefix("ci95(").ok_or_else(shape)?;
        let (metric, rest) = rest.split_once(')').ok_or_else(shape)?;
        let limit = rest.trim_start().strip_prefix('<').ok_or_else(shape)?.trim();
        let percent = limit.strip_suffix('%').ok_or_else(|| UntilError::Share(limit.to_owned()))?;
        let share = percent.trim().parse::<f64>().ok().map(|percent| percent / 100.0);
        let share = share.filter(|share| *share > 0.0 && *share <= 1.0);
        let share = share.ok_or_else(|| UntilError::Share(limit.to_owned()))?;
        Ok(Self { metric: metric.trim().to_owned(), share })
    }

    fn holds(&self, runs: &[&BTreeMap<String, Option<f64>>]) -> bool {
        let values: Option<Vec<f64>> =
            runs.iter().map(|run| run.get(&self.metric).copied().flatten()).collect();
        let mean = values.and_then(|values| Mean95::of(&values));
        mean.and_then(|mean| mean.relative()).is_some_and(|relative| relative < self.share)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_or_refused() {
        let shape = |text: &str| Err(UntilError::Shape(text.to_owned()));
        let share = |text: &str| Err(UntilError::Share(text.to_owned()));
        for (text, want) in [
            ("ci95(delay.p99) < 5%", Ok(vec!["delay.p99"])),
            (" ci95( loss )<0.5 % and ci95(bitrate) < 100%", Ok(vec!["loss", "bitrate"])),
            ("delay.p99 < 5%", shape("delay.p99 < 5%")),
            ("ci95(delay.p99) > 5%", shape("ci95(delay.p99) > 5%")),
            ("ci95(delay.p99 < 5%", shape("ci95(delay.p99 < 5%")),
            ("ci95(delay.p99) < 2ms", share("2ms")),
            ("ci95(delay.p99) < 0%", share("0%")),
            ("ci95(delay.p99) < nan%", share("nan%")),
            ("ci95(delay.p99) < 101%", share("101%")),
            ("", shape("")),
        ] {
            let got = Until::parse(text);
            let got = got.map(|rule| rule.metrics().map(str::to_owned).collect::<Vec<_>>());
            let want = want.map(|names| names.into_iter().map(str::to_owned).collect());
            assert_eq!(got, want, "{text:?}");
        }
    }

    #[test]
    fn the_rule_holds_when_the_interval_is_narrow() {
        let rule = Until::parse("ci95(d) < 5%").expect("a rule");
        let holds = |values: &[Option<f64>]| {
            let runs: Vec<_> =
                values.iter().map(|value| BTreeMap::from([("d".to_owned(), *value)])).collect();
            rule.holds(&runs.iter().collect::<Vec<_>>())
        };
        // 4.3027 / √3 = 2.4842 standard deviations: s below 2.0127 % of the mean is enough.
        assert!(holds(&[Some(98.0), Some(100.0), Some(102.0)]));
        assert!(!holds(&[Some(97.9), Some(100.0), Some(102.1)]));
        assert!(!holds(&[Some(100.0), Some(100.0)]), "two are never enough");
        assert!(!holds(&[Some(100.0), None, Some(100.0)]), "not known");
        assert!(holds(&[Some(0.0); 3]), "always 0");
        assert!(!holds(&[Some(-1.0), Some(0.0), Some(1.0)]), "a share of 0");
    }
}
