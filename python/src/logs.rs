//! Logs opened, decoded, and what is to be told of them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::ArrowError;
use itg_core::units::parse_duration_ns;
use itg_files::arrow::{Dictionaries, schema};
use itg_files::columns::{self, RunFacts, Selection};
use itg_files::ditg::{Asked, understand};
use itg_files::{Bytes, Threads};
use itg_stats::filter::Filter;
use itg_stats::report::LogDamage;
use itg_stats::{Analysis, Options};
use serde_json::{Value, json};

use crate::table::Table;

/// Logs to decode, and which of their flows.
pub(crate) struct Request<'r> {
    pub(crate) paths: Vec<PathBuf>,
    pub(crate) flows: Vec<u32>,
    pub(crate) filter: Option<&'r str>,
    /// Length of the windows of a report.
    pub(crate) interval: Option<&'r str>,
    /// Threads; as many as there are processors when 0.
    pub(crate) threads: usize,
}

/// Reason why nothing comes back.
pub(crate) enum Failure {
    Io(io::Error),
    Log(String),
    Value(String),
    Table(ArrowError),
}

impl From<ArrowError> for Failure {
    fn from(error: ArrowError) -> Self {
        Self::Table(error)
    }
}

/// Packets of logs as a table, and facts on them in JSON.
pub(crate) fn read(
    request: &Request<'_>,
    names: Option<&[String]>,
) -> Result<(Table, String), Failure> {
    let selection = names.map_or_else(|| Ok(Selection::all()), Selection::of);
    let selection = selection.map_err(|error| Failure::Value(error.to_string()))?;
    with_logs(request, |analysis, threads| {
        let texts = Dictionaries::default();
        let (made, runs) = columns::collect(analysis, threads, &selection, &texts);
        let schema = schema(&selection, &Dictionaries::data_type());
        let metadata = columns::metadata(&runs).map(|(key, value)| (key.to_owned(), value));
        let schema = Arc::new(schema.with_metadata(metadata));
        let texts = texts.texts();
        let batch = |(rows, columns)| {
            let columns = Dictionaries::finish(&selection, columns, &texts);
            let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(rows));
            RecordBatch::try_new_with_options(Arc::clone(&schema), columns, &options)
        };
        let batches = made.into_iter().map(batch).collect::<Result<_, _>>()?;
        Ok((Table { schema: Arc::clone(&schema), batches }, runs))
    })
    .map(|((table, runs), analysis_facts)| {
        let mut facts = analysis_facts;
        facts["runs"] = runs.iter().map(run).collect();
        (table, facts.to_string())
    })
}

/// Report of logs in JSON, and their damage.
pub(crate) fn report(request: &Request<'_>) -> Result<(String, String), Failure> {
    let (text, facts) =
        with_logs(request, |analysis, threads| Ok(analysis.finish_with(threads).to_json()))?;
    Ok((text, facts["damage"].to_string()))
}

/// Does something with logs; what they say of themselves, and their damage, is known behind it.
fn with_logs<T>(
    request: &Request<'_>,
    work: impl FnOnce(&Analysis<'_>, &Threads<'_>) -> Result<T, Failure>,
) -> Result<(T, Value), Failure> {
    let options = options(request)?;
    let mut files = Vec::new();
    for path in &request.paths {
        let name = path.display().to_string();
        // A pipe that lets wait: there is nobody to tell.
        let bytes = Bytes::open(path, |_| {}).map_err(|error| named(&name, &error))?;
        files.push((name, bytes));
    }
    let mut damage: Vec<Value> = Vec::new();
    understand(&mut files, Asked::default(), |name, reason| {
        damage.push(json!({ "log": name, "offset": null, "len": null, "reason": reason }));
    });
    let threads = Threads::new(&files, request.threads);
    let mut analysis = Analysis::new(options);
    for (name, bytes) in &files {
        let added = analysis.add_log_with(bytes, name, &threads);
        added.map_err(|error| Failure::Log(error.to_string()))?;
    }
    let done = work(&analysis, &threads)?;
    // Known when all records have been gone through.
    damage.extend(analysis.damage().iter().map(harm));
    for (name, at) in files.iter().filter_map(|(name, bytes)| Some((name, bytes.lost()?))) {
        let reason = "shortened, or could not be read, while it was decoded";
        damage.push(json!({ "log": name, "offset": at, "len": null, "reason": reason }));
    }
    let not_closed: Vec<Value> = analysis.not_closed().iter().map(harm).collect();
    let facts = json!({
        "logs": analysis.log_manifests(),
        "flows": flows(&analysis),
        "damage": damage,
        "not_closed": not_closed,
    });
    Ok((done, facts))
}

fn options(request: &Request<'_>) -> Result<Options, Failure> {
    let filter = request.filter.map(|text| text.parse::<Filter>());
    let filter = filter.transpose().map_err(|error| Failure::Value(error.to_string()))?;
    let interval_ns = request.interval.map(parse_duration_ns);
    let interval_ns = interval_ns.transpose().map_err(|error| Failure::Value(error.to_string()))?;
    if interval_ns == Some(0) {
        let words = "a window needs a length above 0, such as 100ms or 1s";
        return Err(Failure::Value(words.to_owned()));
    }
    let flows = request.flows.iter().copied().collect();
    Ok(Options { interval_ns, flows, filter, ..Options::default() })
}

/// An error with the name of its file, of the same kind: Python has a class for each.
fn named(name: &str, error: &io::Error) -> Failure {
    Failure::Io(io::Error::new(error.kind(), format!("{name}: {error}")))
}

fn harm(damage: &LogDamage) -> Value {
    let LogDamage { log, offset, len, reason } = damage;
    json!({ "log": log, "offset": offset, "len": len, "reason": reason })
}

fn flows(analysis: &Analysis<'_>) -> Value {
    let known = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let flow = |((number, run), flow): ((u32, String), itg_stats::PacketFlow)| {
        json!({
            "flow": number,
            "run": run,
            "name": known(&flow.name),
            "node": known(&flow.node),
            "proto": known(flow.proto),
            "src": known(&flow.src),
            "dst": known(&flow.dst),
            "seed": flow.seed,
        })
    };
    analysis.packet_flows().into_iter().map(flow).collect()
}

fn run(facts: &RunFacts) -> Value {
    let RunFacts { run, seed, clock_bound_ns } = facts;
    json!({ "run": run, "seed": seed, "clock_bound_ns": clock_bound_ns })
}
