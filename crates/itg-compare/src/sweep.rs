//! Many runs of an experiment beside each other: each figure of each case as a mean over its repetitions,
//! with Student's 95 % interval ([`itg_core::confidence`]).
//!
//! The interval tells what varies from run to run, and supposes that runs are independent and their figures
//! about normal. It is that of one figure of one case: among many, one in twenty misses. Where the number of
//! runs was chosen by the width of the interval it is a little too narrow when the runs are few (Chow,
//! Robbins, *Annals of Mathematical Statistics* 36, 1965: right in the limit).

use std::collections::BTreeMap;

use itg_core::confidence::Mean95;
use itg_core::text::align;
use itg_stats::gate::{Figure, Kind};
use serde::Serialize;

/// Value of [`Table::schema`].
pub const SWEEP_SCHEMA: u32 = 1;

/// Metrics that are compared by default.
pub const COMPARED: [&str; 6] =
    ["bitrate", "loss", "delay.mean", "delay.p99", "jitter.mean", "lateness.p99"];

/// Runs that a sentence names.
const SHOWN: usize = 10;

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Table {
    /// Version of this layout: [`SWEEP_SCHEMA`].
    pub schema: u32,
    /// Name of the experiment.
    pub name: String,
    /// Names of the variables.
    pub variables: Vec<String>,
    /// Metrics that are compared.
    pub metrics: Vec<Metric>,
    /// True if runs whose traffic failed are in the means, too.
    pub with_failed: bool,
    /// The cases, in the order of the file.
    pub cases: Vec<Row>,
}

/// Metric that is compared.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Unit of its values: `ns`, `bit/s`, `packets/s`, `bytes`, `1`.
    pub unit: &'static str,
    /// Kind of the values, for their text.
    #[serde(skip)]
    pub kind: Kind,
}

/// A case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The case for people.
    pub case: String,
    /// Its values by variable.
    pub values: BTreeMap<String, String>,
    /// Runs that are done.
    pub repetitions: u32,
    /// Those of them whose traffic failed (verdict `fail`), by their directories.
    pub failed: Vec<String>,
    /// Runs whose traffic failed and that were repeated, by their directories: in no mean.
    pub repeated: Vec<String>,
    /// One for each metric.
    pub figures: Vec<Cell>,
}

/// A figure of a case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Cell {
    /// Runs in which it is known.
    pub n: usize,
    /// Mean over these.
    pub mean: Option<f64>,
    /// Standard deviation over these.
    pub stddev: Option<f64>,
    /// 95 % interval of the mean.
    pub ci95: Option<[f64; 2]>,
    /// The smallest value.
    pub min: Option<f64>,
    /// The largest value.
    pub max: Option<f64>,
}

impl Cell {
    fn of(values: &[f64]) -> Self {
        let Some(mean) = Mean95::of(values) else { return Self::default() };
        Self {
            n: mean.n,
            mean: Some(mean.mean),
            stddev: mean.stddev,
            ci95: mean.interval(),
            min: Some(mean.min),
            max: Some(mean.max),
        }
    }

    /// For people, to four digits: `1.203 ± 0.031 ms`, `25% ± 3.1%`.
    #[must_use]
    pub fn text(&self, kind: Kind) -> String {
        let Some(mean) = self.mean else { return "-".to_owned() };
        let half = self.ci95.map(|[low, high]| (high - low) / 2.0);
        if kind == Kind::Time {
            // One unit for both, so that they can be compared at a glance.
            let units = [(1e9, "s"), (1e6, "ms"), (1e3, "us")];
            let unit = units.into_iter().find(|(size, _)| mean.abs() >= *size);
            let (size, unit) = unit.unwrap_or((1.0, "ns"));
            let half = half.map_or_else(String::new, |half| format!(" ± {}", four(half / size)));
            return format!("{}{half} {unit}", four(mean / size));
        }
        let text = |value: f64| kind.text(four(value).parse().unwrap_or(value));
        match half {
            Some(half) => format!("{} ± {}", text(mean), text(half)),
            None => text(mean),
        }
    }
}

/// A number to four digits, without zeros at its end.
fn four(value: f64) -> String {
    if value.abs() < 1e-300 || !value.is_finite() {
        return "0".to_owned();
    }
    let places = 3.0 - value.abs().log10().floor();
    if places <= 0.0 {
        return format!("{value:.0}");
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 304")]
    let text = format!("{value:.0$}", places as usize);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// The runs of a case.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    /// The case for people.
    pub case: String,
    /// Its values by variable.
    pub values: BTreeMap<String, String>,
    /// Its runs.
    pub runs: Vec<Run>,
    /// Directories of runs whose traffic failed and that were repeated.
    pub repeated: Vec<String>,
}

/// A run of a case.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// Its directory.
    pub dir: String,
    /// True if its traffic failed.
    pub failed: bool,
    /// Its figures by metric.
    pub figures: BTreeMap<String, Option<f64>>,
}

impl Table {
    /// The comparison of these cases; the means are over the runs whose traffic has not failed, or `with_failed` over all.
    #[must_use]
    pub fn new(
        name: &str,
        variables: &[String],
        figures: &[Figure],
        cases: Vec<Runs>,
        with_failed: bool,
    ) -> Self {
        let metrics = figures.iter().map(|figure| Metric {
            name: figure.name().to_owned(),
            unit: figure.kind().unit(),
            kind: figure.kind(),
        });
        let rows = cases.into_iter().map(|runs| {
            let cells = figures.iter().map(|figure| {
                let counted = runs.runs.iter().filter(|run| with_failed || !run.failed);
                let values = counted.filter_map(|run| run.figures.get(figure.name()).copied());
                Cell::of(&values.flatten().collect::<Vec<_>>())
            });
            let failed = runs.runs.iter().filter(|run| run.failed);
            Row {
                figures: cells.collect(),
                repetitions: u32::try_from(runs.runs.len()).unwrap_or(u32::MAX),
                failed: failed.map(|run| run.dir.clone()).collect(),
                case: runs.case,
                values: runs.values,
                repeated: runs.repeated,
            }
        });
        Self {
            schema: SWEEP_SCHEMA,
            name: name.to_owned(),
            variables: variables.to_vec(),
            metrics: metrics.collect(),
            with_failed,
            cases: rows.collect(),
        }
    }

    /// As one JSON object over several lines, with a newline at its end.
    #[must_use]
    pub fn to_json(&self) -> String {
        let text = serde_json::to_string_pretty(self);
        text.unwrap_or_else(|error| unreachable!("texts and numbers: {error}")) + "\n"
    }

    /// As CSV, one line for each case and metric; what is not known is empty.
    #[must_use]
    pub fn to_csv(&self) -> String {
        let mut out = csv::Writer::from_writer(Vec::new());
        let head = self.variables.iter().map(String::as_str);
        let tail =
            ["repetitions", "metric", "unit", "n", "mean", "stddev", "ci95_low", "ci95_high"];
        let head: Vec<&str> =
            head.chain(tail).chain(["min", "max", "failed", "repeated"]).collect();
        let mut lines = vec![head.into_iter().map(str::to_owned).collect::<Vec<_>>()];
        for row in &self.cases {
            for (metric, cell) in self.metrics.iter().zip(&row.figures) {
                let values = self.variables.iter().map(|name| row.values.get(name).cloned());
                let mut line: Vec<String> = values.map(Option::unwrap_or_default).collect();
                line.extend([
                    row.repetitions.to_string(),
                    metric.name.clone(),
                    metric.unit.to_owned(),
                    cell.n.to_string(),
                ]);
                let [low, high] = cell.ci95.map_or([None; 2], |ends| ends.map(Some));
                let numbers = [cell.mean, cell.stddev, low, high, cell.min, cell.max];
                line.extend(
                    numbers.map(|value| value.map_or_else(String::new, |value| value.to_string())),
                );
                line.extend([row.failed.len(), row.repeated.len()].map(|runs| runs.to_string()));
                lines.push(line);
            }
        }
        for line in lines {
            let written = out.write_record(&line);
            written.unwrap_or_else(|error| unreachable!("written to memory: {error}"));
        }
        let bytes = out.into_inner().unwrap_or_else(|error| unreachable!("memory: {error}"));
        String::from_utf8(bytes).unwrap_or_else(|error| unreachable!("texts: {error}"))
    }

    /// Runs whose traffic failed, as sentences: those that are done, and those that were repeated; none without any.
    #[must_use]
    pub fn failures(&self) -> Vec<String> {
        let all = |of: fn(&Row) -> &Vec<String>| -> Vec<&str> {
            self.cases.iter().flat_map(of).map(String::as_str).collect()
        };
        let runs: u32 = self.cases.iter().map(|row| row.repetitions).sum();
        let means = if self.with_failed { "are in the means" } else { "are left out of the means" };
        let (failed, repeated) = (all(|row| &row.failed), all(|row| &row.repeated));
        let told = [
            (
                format!("FAILED (verdict `fail`) and {means}: {} of {runs} runs", failed.len()),
                failed,
            ),
            (format!("failed and repeated: {} runs", repeated.len()), repeated),
        ];
        let told = told.into_iter().filter(|(_, list)| !list.is_empty());
        told.map(|(words, list)| format!("{words}: {}", first(&list))).collect()
    }

    /// True if a run that is done has failed: the number of those is a column then.
    #[must_use]
    pub fn any_failed(&self) -> bool {
        self.cases.iter().any(|row| !row.failed.is_empty())
    }

    /// For people: a line for each case, and one for the runs whose traffic failed.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut rows: Vec<Vec<String>> = Vec::new();
        let marked = self.any_failed();
        let counts = ["runs", "failed"].into_iter().take(1 + usize::from(marked));
        let counts = counts.map(str::to_owned);
        let metrics = self.metrics.iter().map(|metric| metric.name.clone());
        rows.push(self.variables.iter().cloned().chain(counts).chain(metrics).collect());
        for row in &self.cases {
            let values = self
                .variables
                .iter()
                .map(|name| row.values.get(name).cloned().unwrap_or_else(|| "-".to_owned()));
            let figures = self.metrics.iter().zip(&row.figures);
            let figures = figures.map(|(metric, cell)| cell.text(metric.kind));
            let counts = [row.repetitions.to_string(), row.failed.len().to_string()];
            let counts = counts.into_iter().take(1 + usize::from(marked));
            rows.push(values.chain(counts).chain(figures).collect());
        }
        let table = align(&rows, |column| column < self.variables.len());
        let head = format!("Sweep: {}\n", self.name);
        let failures: String = self.failures().iter().map(|line| format!("{line}\n")).collect();
        let means = "Means over the runs of a case ± half of the 95 % interval (Student's t).\n";
        head + &table + means + &failures
    }
}

/// The first names of a list; how many others there are.
fn first(list: &[&str]) -> String {
    let names = list.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    match list.len().saturating_sub(SHOWN) {
        0 => names,
        more => format!("{names} and {more} more (comparison.json)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let figures = ["delay.p99", "flow.2.loss"].map(|name| Figure::parse(name).expect("known"));
        let runs = |size: &str, values: &[(Option<f64>, Option<f64>)]| Runs {
            case: format!("size={size}"),
            values: BTreeMap::from([("size".to_owned(), size.to_owned())]),
            runs: values
                .iter()
                .map(|(delay, loss)| Run {
                    figures: BTreeMap::from([
                        ("delay.p99".to_owned(), *delay),
                        ("flow.2.loss".to_owned(), *loss),
                    ]),
                    ..Run::default()
                })
                .collect(),
            repeated: Vec::new(),
        };
        let three = [(Some(4e6), Some(0.0)), (Some(5e6), None), (Some(6e6), Some(0.5))];
        let cases = vec![runs("64", &three), runs("a,\"b\"", &[(Some(1e3), None)]), runs("9", &[])];
        Table::new("x", &["size".to_owned()], &figures, cases, false)
    }

    #[test]
    fn runs_that_failed_are_marked_and_left_out_of_means_unless_asked() {
        let run = |number: u32, delay: f64| Run {
            dir: format!("c/{number}"),
            failed: delay > 5e6,
            figures: BTreeMap::from([("delay.p99".to_owned(), Some(delay))]),
        };
        let table = |with_failed: bool| {
            let runs = vec![run(1, 4e6), run(2, 9e6), run(3, 2e6)];
            let repeated = vec!["c/3-failed-1".to_owned()];
            let cases = vec![Runs { runs, repeated, ..Runs::default() }];
            let figures = [Figure::parse("delay.p99").expect("known")];
            Table::new("x", &[], &figures, cases, with_failed)
        };
        for (with_failed, n, mean, words) in
            [(false, 2, 3e6, "are left out of the means"), (true, 3, 5e6, "are in the means")]
        {
            let table = table(with_failed);
            let cell = &table.cases[0].figures[0];
            assert_eq!((cell.n, cell.mean, table.cases[0].repetitions), (n, Some(mean), 3));
            let text = table.to_text();
            assert!(text.starts_with("Sweep: x\nruns  failed "), "{text}");
            let told = format!("FAILED (verdict `fail`) and {words}: 1 of 3 runs: c/2\n");
            assert!(text.contains(&told), "{text}");
            assert!(text.ends_with("failed and repeated: 1 runs: c/3-failed-1\n"), "{text}");
            assert!(table.to_csv().ends_with(",1,1\n"), "{}", table.to_csv());
        }
    }

    #[test]
    fn the_table_as_text() {
        assert_eq!(
            table().to_text(),
            "Sweep: x\n\
             size   runs     delay.p99   flow.2.loss\n\
             64        3  5 ± 2.484 ms  25% ± 317.7%\n\
             a,\"b\"     1          1 us             -\n\
             9         0             -             -\n\
             Means over the runs of a case ± half of the 95 % interval (Student's t).\n"
        );
    }

    #[test]
    fn the_table_as_csv_is_read_back() {
        let text = table().to_csv();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let head = reader.headers().expect("a head").clone();
        assert_eq!(head.get(0), Some("size"));
        let lines: Vec<csv::StringRecord> =
            reader.records().map(|line| line.expect("good")).collect();
        assert_eq!(lines.len(), 6);
        let field = |line: usize, name: &str| {
            let at = head.iter().position(|head| head == name).expect("a column");
            lines[line].get(at).expect("a field").to_owned()
        };
        assert_eq!((field(0, "mean"), field(0, "unit")), ("5000000".to_owned(), "ns".to_owned()));
        assert_eq!((field(2, "size"), field(2, "n")), ("a,\"b\"".to_owned(), "1".to_owned()));
        assert_eq!((field(2, "ci95_low"), field(3, "mean")), (String::new(), String::new()));
    }

    #[test]
    fn the_table_as_json() {
        let value: serde_json::Value = serde_json::from_str(&table().to_json()).expect("JSON");
        let cell = &value["cases"][0]["figures"][0];
        assert_eq!(cell["mean"], 5e6);
        let low = cell["ci95"][0].as_f64().expect("a number");
        assert!((low - (5e6 - 4.302_652_7 / 3f64.sqrt() * 1e6)).abs() < 1.0, "{low}");
        assert_eq!(value["metrics"][1]["unit"], "1");
        assert!(value["cases"][2]["figures"][0]["mean"].is_null(), "no run");
    }
}
