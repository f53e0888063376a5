//! From `[matrix]` to cases: which values there are, and where they go in the file.
//!
//! Everything happens on the tables of the file with the places of their values, so that a bad value is
//! complained of where it stands in `[matrix]`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ops::Range;

use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::Problem;
use crate::read::File;

/// More cases than this are refused: the file has one list too many.
pub const MAX_CASES: usize = 10_000;
/// Keys that no variable can set: they say what a sweep is, or are derived from it.
const FIXED: [&str; 4] = ["schema", "seed", "matrix", "sweep"];

/// A variable and its value in one case.
#[derive(Clone, Debug)]
pub(super) struct Setting<'a> {
    pub(super) name: String,
    /// Position of the variable in the file, in bytes.
    at: Range<usize>,
    value: Spanned<DeValue<'a>>,
}

impl Setting<'_> {
    /// The value as TOML writes it.
    pub(super) fn toml(&self) -> String {
        plain(&self.value).to_string()
    }

    /// The value for people: a text without its quotes.
    pub(super) fn text(&self) -> String {
        self.value.get_ref().as_str().map_or_else(|| self.toml(), str::to_owned)
    }
}

/// A value without places.
fn plain(value: &Spanned<DeValue<'_>>) -> toml::Value {
    let read = toml::Value::deserialize(value.clone().into_deserializer());
    read.unwrap_or_else(|error| unreachable!("a value that was parsed: {error}"))
}

/// A table without places, as a text.
pub(super) fn text_of(table: &DeTable<'_>) -> String {
    let value = Spanned::new(0..0, DeValue::Table(table.clone()));
    match plain(&value) {
        toml::Value::Table(table) => toml::to_string(&table)
            .unwrap_or_else(|error| unreachable!("a table that was parsed: {error}")),
        _ => unreachable!("a table is one"),
    }
}

/// Variables of a [matrix].
struct Variables<'a> {
    /// Those with a list of values: name, place, values.
    lists: Vec<(String, Range<usize>, Vec<Spanned<DeValue<'a>>>)>,
    /// Cases that are listed.
    listed: Vec<Vec<Setting<'a>>>,
}

impl<'a> Variables<'a> {
    /// Reads them; faults are added to the problems.
    fn read(matrix: &DeTable<'a>, file: File<'_>, problems: &mut Vec<Problem>) -> Self {
        let mut lists = Vec::new();
        let mut listed: Vec<Vec<Setting<'a>>> = Vec::new();
        let mut refuse =
            |at: &Range<usize>, text: String| problems.push(file.problem(Some(at.start), text));
        for (name, at, value) in flat(matrix, "") {
            match (name.as_str(), value.get_ref()) {
                ("case", DeValue::Array(items)) => {
                    for item in items.iter() {
                        let DeValue::Table(table) = item.get_ref() else {
                            refuse(&item.span(), "`case` in [matrix]: expected tables, each under its own [[matrix.case]]".to_owned());
                            continue;
                        };
                        let settings = flat(table, "").into_iter();
                        listed.push(
                            settings.map(|(name, at, value)| Setting { name, at, value }).collect(),
                        );
                    }
                }
                ("case", _) => refuse(
                    &at,
                    "`case` in [matrix]: expected tables, each under its own [[matrix.case]]"
                        .to_owned(),
                ),
                (_, DeValue::Array(items)) if items.is_empty() => {
                    refuse(
                        &value.span(),
                        format!("`{name}` in [matrix] has no values: there would be no run"),
                    );
                }
                (_, DeValue::Array(items)) => {
                    lists.push((name, at, items.iter().cloned().collect()))
                }
                (_, other) => {
                    let got = toml_word(other);
                    refuse(
                        &value.span(),
                        format!(
                            "`{name}` in [matrix] is {got}: expected an array of its values, as {name} = [1, 2]"
                        ),
                    );
                }
            }
        }
        for setting in lists
            .iter()
            .map(|(name, at, _): &(String, _, _)| (name, at))
            .chain(listed.iter().flatten().map(|setting| (&setting.name, &setting.at)))
        {
            let first = setting.0.split('.').next().unwrap_or_default();
            if FIXED.contains(&first) {
                let why = match first {
                    "seed" => {
                        "each run derives its seed from that of the file; [sweep] repetitions = N runs a case N times"
                    }
                    _ => "it says what the file is",
                };
                refuse(setting.1, format!("`{}` cannot be a variable: {why}", setting.0));
            }
        }
        Self { lists, listed }
    }
}

/// The settings of all cases, in the order of the file: the combinations of the lists, the first list
/// slowest, then the listed ones.
pub(super) fn cases<'a>(
    matrix: &DeTable<'a>,
    file: File<'_>,
) -> Result<Vec<Vec<Setting<'a>>>, Vec<Problem>> {
    let mut problems = Vec::new();
    let Variables { lists, listed } = Variables::read(matrix, file, &mut problems);
    let combinations =
        lists.iter().try_fold(1_usize, |product, (_, _, values)| product.checked_mul(values.len()));
    let combinations =
        if lists.is_empty() { Some(usize::from(listed.is_empty())) } else { combinations };
    let count = combinations.and_then(|count| count.checked_add(listed.len()));
    match count {
        Some(count) if count <= MAX_CASES => {}
        _ => {
            problems.push(file.problem(None, format!("[matrix] has more than {MAX_CASES} cases")));
            return Err(problems);
        }
    }
    let mut cases: Vec<Vec<Setting<'a>>> =
        if combinations == Some(0) { vec![] } else { vec![vec![]] };
    for (name, at, values) in &lists {
        cases = cases
            .into_iter()
            .flat_map(|case| {
                values.iter().map(move |value| {
                    let setting =
                        Setting { name: name.clone(), at: at.clone(), value: value.clone() };
                    case.iter().cloned().chain([setting]).collect()
                })
            })
            .collect();
    }
    cases.extend(listed);
    let mut seen = BTreeSet::new();
    for case in &cases {
        if !seen.insert(canonical(case)) {
            let at = case.last().map(|setting| setting.value.span().start);
            problems.push(file.problem(at, format!("[matrix] has the case {} twice", label(case))));
        }
    }
    if problems.is_empty() { Ok(cases) } else { Err(problems) }
}

/// Text that distinguishes a case from all others: its settings in the order of their names, as
/// TOML writes them.
pub(super) fn canonical(case: &[Setting<'_>]) -> String {
    let mut settings: Vec<_> = case.iter().map(|s| format!("{}={}", s.name, s.toml())).collect();
    settings.sort();
    settings.join("\n")
}

/// A case for people: `rate=10M size=64`.
pub(super) fn label(case: &[Setting<'_>]) -> String {
    let settings: Vec<_> = case.iter().map(|s| format!("{}={}", s.name, s.text())).collect();
    settings.join(" ")
}

/// The leaves of a table with their paths, in the order in which they stand in the file.
fn flat<'a>(table: &DeTable<'a>, path: &str) -> Vec<(String, Range<usize>, Spanned<DeValue<'a>>)> {
    let mut found = Vec::new();
    for (key, value) in table.iter() {
        let name = crate::schema::path_to(path, key.get_ref());
        match value.get_ref() {
            DeValue::Table(inner) => found.extend(flat(inner, &name)),
            _ => found.push((name, key.span(), value.clone())),
        }
    }
    found.sort_by_key(|(_, at, _)| at.start);
    found
}

fn toml_word(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) | DeValue::Float(_) => "a number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "an array",
        DeValue::Table(_) => "a table",
    }
}

/// The names that the texts of a file refer to as `${NAME}`, with their places.
pub(super) fn references(root: &DeTable<'_>) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for value in root.values() {
        collect(value, &mut found);
    }
    found
}

fn collect(value: &Spanned<DeValue<'_>>, found: &mut Vec<(String, usize)>) {
    match value.get_ref() {
        DeValue::String(text) => {
            found.extend(names(text).map(|(_, name)| (name.to_owned(), value.span().start)));
        }
        DeValue::Array(items) => items.iter().for_each(|item| collect(item, found)),
        DeValue::Table(table) => table.values().for_each(|value| collect(value, found)),
        _ => {}
    }
}

/// Each `${NAME}` of a text: where, and the name.
fn names(text: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + text[from..].find("${")?;
        let end = start + text[start..].find('}')?;
        from = end + 1;
        Some((start..end + 1, &text[start + 2..end]))
    })
}

/// The file with the values of a case in it; `referred` are the names that it refers to.
pub(super) fn put<'a>(
    root: &DeTable<'a>,
    case: &[Setting<'a>],
    referred: &BTreeSet<String>,
    file: File<'_>,
) -> Result<DeTable<'a>, Vec<Problem>> {
    let mut root = root.clone();
    let mut problems = Vec::new();
    for (_, value) in root.iter_mut() {
        replace(value, case, file, &mut problems);
    }
    for setting in case.iter().filter(|setting| !referred.contains(&setting.name)) {
        if let Err(text) = set(&mut root, setting) {
            problems.push(file.problem(Some(setting.at.start), text));
        }
    }
    if problems.is_empty() { Ok(root) } else { Err(problems) }
}

/// Puts values where a text refers to them: a text that is nothing but `${NAME}` becomes the value itself,
/// a number or a list; within a text it becomes a part of the text.
fn replace<'a>(
    value: &mut Spanned<DeValue<'a>>,
    case: &[Setting<'a>],
    file: File<'_>,
    problems: &mut Vec<Problem>,
) {
    let at = value.span().start;
    match value.get_mut() {
        DeValue::Array(items) => {
            items.iter_mut().for_each(|item| replace(item, case, file, problems));
        }
        DeValue::Table(table) => {
            table.iter_mut().for_each(|(_, value)| replace(value, case, file, problems));
        }
        DeValue::String(text) => {
            let found: Vec<_> = names(text).map(|(at, name)| (at, name.to_owned())).collect();
            let mut whole = text.to_string();
            for (place, name) in found.into_iter().rev() {
                let Some(setting) = case.iter().find(|setting| setting.name == name) else {
                    let text =
                        format!("`${{{name}}}`: the case {} has no value for it", label(case));
                    problems.push(file.problem(Some(at), text));
                    return;
                };
                if place == (0..whole.len()) {
                    *value = setting.value.clone();
                    return;
                }
                if matches!(setting.value.get_ref(), DeValue::Array(_) | DeValue::Table(_)) {
                    let text = format!(
                        "`${{{name}}}` is {}, which cannot be a part of a text",
                        toml_word(setting.value.get_ref())
                    );
                    problems.push(file.problem(Some(at), text));
                    return;
                }
                whole.replace_range(place, &setting.text());
            }
            *text = Cow::Owned(whole);
        }
        _ => {}
    }
}

/// Sets the key whose path is the name of a variable.
fn set<'a>(root: &mut DeTable<'a>, setting: &Setting<'a>) -> Result<(), String> {
    let segments: Vec<&str> = setting.name.split('.').collect();
    let [first, rest @ ..] = segments.as_slice() else { return Ok(()) };
    let nowhere = || {
        format!(
            "the variable `{0}` is of no use: write \"${{{0}}}\" where its values go, or name it by the path of a key, \
             as flow.{0}",
            setting.name
        )
    };
    if rest.is_empty() && !super::top_level(first) {
        return Err(nowhere());
    }
    if *first == "flow" {
        return set_in_flows(root, rest, setting);
    }
    insert(root, &segments, setting)
}

/// `flow.KEY` of all flows, `flow.N.KEY` of the N-th, `flow.NAME.KEY` of those of this name.
fn set_in_flows<'a>(
    root: &mut DeTable<'a>,
    path: &[&str],
    setting: &Setting<'a>,
) -> Result<(), String> {
    let usage =
        || format!("`{}`: expected flow.KEY, flow.NUMBER.KEY or flow.NAME.KEY", setting.name);
    let flows = root.iter_mut().find(|(key, _)| key.get_ref() == "flow");
    let Some(DeValue::Array(flows)) = flows.map(|(_, value)| value.get_mut()) else {
        return Err(format!("`{}`: the file has no [[flow]]", setting.name));
    };
    let mut tables: Vec<&mut DeTable<'a>> = flows
        .iter_mut()
        .filter_map(|flow| match flow.get_mut() {
            DeValue::Table(table) => Some(table),
            _ => None,
        })
        .collect();
    let (mut chosen, keys): (Vec<&mut DeTable<'a>>, &[&str]) = match path {
        [] => return Err(usage()),
        [_] => (tables, path),
        [which, keys @ ..] => {
            let count = tables.len();
            let named = |table: &DeTable<'a>| {
                table.get("name").and_then(|name| name.get_ref().as_str()) == Some(which)
            };
            match which.parse::<usize>() {
                Ok(number) if (1..=count).contains(&number) => {
                    (vec![tables.swap_remove(number - 1)], keys)
                }
                Ok(_) => {
                    return Err(format!(
                        "`{}`: the file has {count} [[flow]], counted from 1",
                        setting.name
                    ));
                }
                Err(_) if tables.iter().any(|table| named(table)) => {
                    tables.retain(|table| named(table));
                    (tables, keys)
                }
                Err(_) => {
                    return Err(format!("`{}`: no [[flow]] has the name `{which}`", setting.name));
                }
            }
        }
    };
    if keys.len() != 1 {
        return Err(usage());
    }
    chosen.iter_mut().try_for_each(|table| insert(table, keys, setting))
}

/// Sets a key below a table; tables on the way are made.
fn insert<'a>(table: &mut DeTable<'a>, path: &[&str], setting: &Setting<'a>) -> Result<(), String> {
    let [first, rest @ ..] = path else { return Ok(()) };
    // A key that is there keeps its place, one that is not stands where the variable does.
    let old = table.keys().find(|key| key.get_ref() == first).cloned();
    let key = old
        .clone()
        .unwrap_or_else(|| Spanned::new(setting.at.clone(), Cow::Owned((*first).to_owned())));
    if rest.is_empty() {
        table.insert(key, setting.value.clone());
        return Ok(());
    }
    if old.is_none() {
        table.insert(
            key.clone(),
            Spanned::new(setting.at.clone(), DeValue::Table(DeTable::default())),
        );
    }
    match table.get_mut(&key).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => insert(inner, rest, setting),
        _ => Err(format!("`{}`: `{first}` is no table", setting.name)),
    }
}
