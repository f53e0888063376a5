//! Reads an experiment file and finds everything that is wrong with it in one pass for the user:
//! unknown keys by a walk along the schema, bad values by reading again without them.

use std::collections::BTreeMap;
use std::ops::Range;

use itg_core::text::{ConfigError as Problem, Position};
use serde::Deserialize;
use serde::de::IntoDeserializer;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::experiment::{Experiment, SCHEMA};
use crate::problem::{ExperimentError, Positions};
use crate::schema;

/// More problems than this are not looked for: the file is probably something else.
const MAX_PROBLEMS: usize = 50;

/// A file whose syntax and version are good, and for which messages can name places.
#[derive(Clone, Copy)]
pub(crate) struct File<'a> {
    pub(crate) text: &'a str,
    pub(crate) origin: &'a str,
}

impl<'a> File<'a> {
    pub(crate) fn problem(self, at: Option<usize>, text: String) -> Problem {
        let place = at.map(|at| Position::of(self.text, at));
        Problem { origin: self.origin.to_owned(), place, text }
    }

    /// Its tables.
    pub(crate) fn document(self) -> Result<DeTable<'a>, ExperimentError> {
        let refuse = |problem| Err(ExperimentError { problems: vec![problem] });
        let root = match DeTable::parse(self.text) {
            Ok(root) => DeValue::Table(root.into_inner()),
            Err(error) => {
                let at = error.span().map(|span| span.start);
                return refuse(
                    self.problem(at, format!("not TOML: {}", one_line(error.message()))),
                );
            }
        };
        if let Some(text_of) = wrong_version(&root) {
            return refuse(self.problem(key_at(&root, "schema"), text_of));
        }
        match root {
            DeValue::Table(root) => Ok(root),
            _ => unreachable!("a document is a table"),
        }
    }
}

/// Keys of files that describe several runs.
pub(crate) const SEVERAL: [&str; 2] = ["matrix", "sweep"];

/// Reads a file that describes one run.
pub(crate) fn experiment(text: &str, origin: &str) -> Result<Experiment, ExperimentError> {
    let file = File { text, origin };
    let root = file.document()?;
    if let Some((key, _)) = root.iter().find(|(key, _)| SEVERAL.contains(&key.get_ref().as_ref())) {
        let text_of = format!(
            "[{}]: the file describes several runs, which `itg-cluster run` carries out; here one run is wanted",
            key.get_ref()
        );
        return Err(ExperimentError {
            problems: vec![file.problem(Some(key.span().start), text_of)],
        });
    }
    typed(root, file)
}

/// Reads the tables of a file.
pub(crate) fn typed(root: DeTable<'_>, file: File<'_>) -> Result<Experiment, ExperimentError> {
    let File { text, origin } = file;
    let problem = |at, text_of| file.problem(at, text_of);
    let refuse = |problems| Err(ExperimentError { problems });
    let span = 0..text.len();
    let mut root = DeValue::Table(root);
    let mut problems: Vec<_> = schema::take_unknown_keys(&mut root)
        .into_iter()
        .map(|unknown| {
            let known = unknown.known.iter().map(String::as_str);
            let hint = itg_core::text::suggestion(&unknown.key, known);
            let text_of = format!("unknown key `{}`{}: {hint}", unknown.key, unknown.in_table);
            problem(Some(unknown.at), text_of)
        })
        .collect();
    let places = Found::of(&root, text);
    let read = loop {
        let document = Spanned::new(span.clone(), root.clone());
        match Experiment::deserialize(document.into_deserializer()) {
            Ok(experiment) => break Some(experiment),
            Err(error) => {
                let at = error.span();
                let message = plain(error.message());
                if let Some(field) = message.strip_prefix("missing field ") {
                    // What is missing may be missing because it was taken out as wrong.
                    if problems.is_empty() {
                        let at = at.filter(|span| span.start > 0).map(|span| span.start);
                        problems.push(problem(at, format!("missing key {field}")));
                    }
                    break None;
                }
                let taken = at.clone().and_then(|span| take_value(&mut root, &span, "", false));
                let at = at.map(|span| span.start);
                let Some(key) = taken else {
                    problems.push(problem(at, message));
                    break None;
                };
                problems.push(problem(at, format!("{key}: {message}")));
                if problems.len() >= MAX_PROBLEMS {
                    break None;
                }
            }
        }
    };
    problems.sort_by_key(|problem| problem.place);
    match read {
        Some(mut experiment) if problems.is_empty() => {
            experiment.origin = origin.to_owned();
            experiment.places = places.root;
            for (flow, places) in experiment.flows.iter_mut().zip(places.flows) {
                flow.places = places;
            }
            Ok(experiment)
        }
        _ => refuse(problems),
    }
}

/// Says so when the file is not written for this version, before anything else is complained of.
fn wrong_version(root: &DeValue<'_>) -> Option<String> {
    match root.get("schema").map(Spanned::get_ref) {
        None => Some(format!(
            "missing key `schema`: an experiment file says which version of the format it is \
             written in: schema = {SCHEMA}"
        )),
        Some(DeValue::Integer(version)) if version.to_string() == SCHEMA.to_string() => None,
        Some(DeValue::Integer(version)) => {
            Some(format!("schema {version} is not known: this program reads schema {SCHEMA}"))
        }
        Some(_) => Some(format!("schema is a number: schema = {SCHEMA}")),
    }
}

fn key_at(root: &DeValue<'_>, key: &str) -> Option<usize> {
    root.get(key).map(|value| value.span().start)
}

fn one_line(message: &str) -> String {
    message.trim().replace('\n', ", ")
}

/// A message of serde on what it expected, in the words of TOML and with the range of numbers.
fn plain(message: &str) -> String {
    let message = one_line(message);
    let words = [
        ("expected a map", "expected a table"),
        ("expected a sequence", "expected tables, each under its own [[flow]]"),
        (
            "expected an array of length 2",
            "expected two distributions, ON and OFF: [\"exp(1s)\", \"exp(1s)\"]",
        ),
        ("expected a boolean", "expected true or false"),
        ("expected u8", "expected a whole number from 0 to 255"),
        ("expected u16", "expected a whole number from 0 to 65535"),
        ("expected u32", "expected a whole number from 0 to 4294967295"),
    ];
    let found = words.iter().find_map(|(serde, ours)| Some((message.strip_suffix(serde)?, ours)));
    let text = found.map_or_else(|| message.clone(), |(start, ours)| format!("{start}{ours}"));
    text.replacen("invalid type: map", "invalid type: table", 1)
}

/// Takes the value that an error points at out of the document and names its key for people:
/// "`idt` in [[flow]]".
fn take_value(
    value: &mut DeValue<'_>,
    at: &Range<usize>,
    path: &str,
    in_array: bool,
) -> Option<String> {
    let DeValue::Table(table) = value else { return None };
    let mut hit = None;
    for (key, value) in table.iter_mut() {
        let name = key.get_ref();
        let inside = schema::path_to(path, name);
        let span = value.span();
        let deeper = match value.get_mut() {
            inner @ DeValue::Table(_) => take_value(inner, at, &inside, false),
            DeValue::Array(items) => {
                items.iter_mut().find_map(|item| take_value(item.get_mut(), at, &inside, true))
            }
            _ => None,
        };
        if deeper.is_some() {
            return deeper;
        }
        if span.start <= at.start && at.end <= span.end {
            hit = Some(key.clone());
        }
    }
    let hit = hit?;
    table.remove(&hit);
    Some(format!("`{}`{}", hit.get_ref(), schema::in_table(path, in_array)))
}

/// Positions of the keys of a file.
struct Found {
    root: Positions,
    flows: Vec<Positions>,
}

impl Found {
    fn of(root: &DeValue<'_>, text: &str) -> Self {
        let flows = match root.get("flow").map(Spanned::get_ref) {
            Some(DeValue::Array(flows)) => flows
                .iter()
                .map(|flow| Positions {
                    head: Some(Position::of(text, flow.span().start)),
                    keys: keys(flow.get_ref(), text),
                })
                .collect(),
            _ => Vec::new(),
        };
        Self { root: Positions { head: None, keys: keys(root, text) }, flows }
    }
}

fn keys(table: &DeValue<'_>, text: &str) -> BTreeMap<String, Position> {
    let DeValue::Table(table) = table else { return BTreeMap::new() };
    table
        .iter()
        .map(|(key, value)| (key.get_ref().to_string(), Position::of(text, value.span().start)))
        .collect()
}
