//! Reads an experiment file and finds everything that is wrong with it in one pass for the user:
//! unknown keys by a walk along the schema, bad values by reading again without them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use itg_core::text::{ConfigError as Problem, Position, PositionIndex};
use serde::de::{DeserializeOwned, IntoDeserializer};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::experiment::{Experiment, FlowEntry, SCHEMA};
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

/// Reads the tables of a file. Its flows are read one by one, each let go when it is read: they may be many.
pub(crate) fn typed(root: DeTable<'_>, file: File<'_>) -> Result<Experiment, ExperimentError> {
    let mut root = DeValue::Table(root);
    let mut reading = Reading {
        file,
        index: PositionIndex::of(file.text),
        names: BTreeSet::new(),
        problems: Vec::new(),
    };
    for unknown in schema::take_unknown_keys(&mut root) {
        let known = unknown.known.iter().map(String::as_str);
        let hint = itg_core::text::suggestion(&unknown.key, known);
        let text_of = format!("unknown key `{}`{}: {hint}", unknown.key, unknown.in_table);
        reading.problem(Some(unknown.at), text_of);
    }
    let places = Positions { head: None, keys: reading.keys(&root) };
    let tables = take_flows(&mut root);
    let mut flows = Vec::with_capacity(tables.len());
    let path = schema::path_to("", FLOWS);
    for table in tables {
        let head = Some(reading.index.at(table.span().start));
        let places = Positions { head, keys: reading.keys(table.get_ref()) };
        let flow = reading.value(table, &path, true);
        flows.extend(flow.map(|flow| FlowEntry { places, ..flow }));
        if reading.is_full() {
            break;
        }
    }
    let read = reading.value(Spanned::new(0..file.text.len(), root), "", false);
    let mut problems = reading.problems;
    problems.sort_by_key(|problem| problem.place);
    match read {
        Some(experiment) if problems.is_empty() => {
            let Experiment { flows: others, .. } = experiment;
            flows.extend(others);
            Ok(Experiment { origin: file.origin.to_owned(), places, flows, ..experiment })
        }
        _ => Err(ExperimentError { problems }),
    }
}

/// Key of the flows of a file.
const FLOWS: &str = "flow";

/// Takes the flows of a file out of it, if they are tables; else they stay, to be complained of.
fn take_flows<'t>(root: &mut DeValue<'t>) -> Vec<Spanned<DeValue<'t>>> {
    let DeValue::Table(root) = root else { return Vec::new() };
    let are_tables = |flows: &DeValue<'_>| match flows {
        DeValue::Array(flows) => flows.iter().all(|flow| flow.get_ref().is_table()),
        _ => false,
    };
    if !root.get(FLOWS).is_some_and(|flows| are_tables(flows.get_ref())) {
        return Vec::new();
    }
    match root.remove(FLOWS).map(Spanned::into_inner) {
        Some(DeValue::Array(flows)) => flows.into_iter().collect(),
        _ => Vec::new(),
    }
}

/// A file that is being read, and what is wrong with it so far.
struct Reading<'a> {
    file: File<'a>,
    index: PositionIndex<'a>,
    /// Names of keys.
    names: BTreeSet<Arc<str>>,
    problems: Vec<Problem>,
}

impl Reading<'_> {
    fn problem(&mut self, at: Option<usize>, text: String) {
        let (origin, place) = (self.file.origin.to_owned(), at.map(|at| self.index.at(at)));
        self.problems.push(Problem { origin, place, text });
    }

    /// Returns true if more problems are not looked for.
    fn is_full(&self) -> bool {
        self.problems.len() >= MAX_PROBLEMS
    }

    /// Reads a table at a path again and again, each time without the value that was wrong; none where that goes no
    /// further.
    fn value<T: DeserializeOwned>(
        &mut self,
        mut value: Spanned<DeValue<'_>>,
        path: &str,
        in_array: bool,
    ) -> Option<T> {
        loop {
            let error = match T::deserialize(value.clone().into_deserializer()) {
                Ok(read) => return Some(read),
                Err(error) => error,
            };
            let at = error.span();
            let message = plain(error.message());
            if let Some(field) = message.strip_prefix("missing field ") {
                // What is missing may be missing because it was taken out as wrong.
                if self.problems.is_empty() {
                    let at = at.filter(|span| span.start > 0).map(|span| span.start);
                    self.problem(at, format!("missing key {field}"));
                }
                return None;
            }
            let taken = at.clone().and_then(|at| take_value(value.get_mut(), &at, path, in_array));
            let at = at.map(|span| span.start);
            let Some(key) = taken else {
                self.problem(at, message);
                return None;
            };
            self.problem(at, format!("{key}: {message}"));
            if self.is_full() {
                return None;
            }
        }
    }

    /// Positions of the keys of a table.
    fn keys(&mut self, table: &DeValue<'_>) -> Vec<(Arc<str>, Position)> {
        let DeValue::Table(table) = table else { return Vec::new() };
        let mut keys = Vec::with_capacity(table.len());
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            let known = self.names.get(name).cloned().unwrap_or_else(|| {
                let name: Arc<str> = name.into();
                self.names.insert(Arc::clone(&name));
                name
            });
            keys.push((known, self.index.at(value.span().start)));
        }
        keys
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
