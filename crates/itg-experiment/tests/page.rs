//! The page of the experiment file has every key of its schema.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use itg_experiment::Experiment;
use itg_experiment::sweep::Sweep;
use serde_json::{Map, Value};

/// The published schema.
const SCHEMA: &str = include_str!("../../../docs/experiment.schema.json");
/// Line of the page behind which everything is generated.
const BEGIN: &str = "<!-- from here on: generated from experiment.schema.json -->\n";
/// Tables of the file, in the order of the page: heading, type in the schema.
const TABLES: [(&str, &str); 6] = [
    ("`[nodes]`: each host", "NodeEntry"),
    ("`[[flow]]`", "FlowEntry"),
    ("`[log]`", "LogEntry"),
    ("`[pacing]`", "PacingEntry"),
    ("`[gates]`", "GatesEntry"),
    ("`[sweep]`", "SweepEntry"),
];

fn text<'a>(of: &'a Value, key: &str) -> &'a str {
    of[key].as_str().unwrap_or_default()
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// Name of a type that the schema refers to.
fn referred(of: &Value) -> Option<&str> {
    text(of, "$ref").strip_prefix("#/$defs/")
}

/// Value of a key in a few words.
fn value(of: &Value, types: &Value) -> String {
    if let Some(name) = referred(of) {
        return match text(&types[name], "type") {
            "object" => "table".to_owned(),
            _ => format!("[{name}](#values)"),
        };
    }
    match text(of, "type") {
        "integer" => match (&of["minimum"], &of["maximum"]) {
            (Value::Null, _) => "whole number".to_owned(),
            (least, Value::Null) => format!("whole number from {least}"),
            (least, most) if least == most => least.to_string(),
            (least, most) => format!("{least} to {most}"),
        },
        "boolean" => "`true` or `false`".to_owned(),
        "string" => "text".to_owned(),
        "array" => match referred(&of["items"]) {
            Some(name) if text(&types[name], "type") == "object" => "tables".to_owned(),
            Some(name) => format!("list of [{name}](#values)"),
            None => "list".to_owned(),
        },
        _ => "table".to_owned(),
    }
}

/// Table of the keys of a type.
fn keys(table: &Value, types: &Value) -> String {
    let none = Map::new();
    let mut out = String::from("| key | value | meaning |\n|---|---|---|\n");
    let needed = table["required"].as_array();
    for (key, of) in table["properties"].as_object().unwrap_or(&none) {
        let is_needed = needed.is_some_and(|needed| needed.iter().any(|name| name == key));
        let note = if is_needed { "Needed. " } else { "" };
        let meaning = cell(text(of, "description"));
        writeln!(out, "| `{key}` | {} | {note}{meaning} |", value(of, types)).expect("memory");
    }
    out
}

/// Everything behind [`BEGIN`].
fn generated(schema: &Value) -> String {
    let types = &schema["$defs"];
    let mut out = format!("\n## At the top\n\n{}", keys(schema, types));
    for (heading, name) in TABLES {
        let of = &types[name];
        let about = cell(text(of, "description"));
        write!(out, "\n## {heading}\n\n").expect("memory");
        for paragraph in textwrap(&about) {
            writeln!(out, "{paragraph}").expect("memory");
        }
        write!(out, "\n{}", keys(of, types)).expect("memory");
    }
    out += "\n## Values\n\n| name | written | examples |\n|---|---|---|\n";
    let types = types.as_object().expect("types");
    for (name, of) in types.iter().filter(|(_, of)| of["properties"].is_null()) {
        let examples = of["examples"].as_array().or_else(|| of["enum"].as_array());
        let examples: Vec<_> = examples
            .into_iter()
            .flatten()
            .map(|example| format!("`{}`", example.as_str().unwrap_or_default()))
            .collect();
        let written = cell(text(of, "description"));
        writeln!(out, "| {name} | {written} | {} |", examples.join(" ")).expect("memory");
    }
    out
}

/// Lines of at most 120 characters.
fn textwrap(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("one line");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= 120 {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

#[test]
fn the_page_of_the_experiment_file_has_every_key() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiment.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (written, old) = page.split_once(BEGIN).expect("the line behind which it is generated");
    let new = generated(&serde_json::from_str(SCHEMA).expect("a schema"));
    if std::env::var_os("UPDATE").is_some() {
        fs::write(&path, format!("{written}{BEGIN}{new}")).expect("written");
        return;
    }
    assert!(old == new, "docs/experiment.md is out of date: run this test with UPDATE=1");
}

/// The examples of the page are understood.
#[test]
fn the_examples_of_the_page_are_understood() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiment.md");
    let page = fs::read_to_string(path).expect("the page");
    let examples: Vec<_> = page.split("```toml\n").skip(1).collect();
    assert!(examples.len() > 1, "examples");
    for example in examples {
        let (text, _) = example.split_once("```").expect("its end");
        match Sweep::read(text, "docs/experiment.md") {
            Ok(Some(_)) => {}
            Ok(None) => {
                let read = Experiment::parse(text, "docs/experiment.md");
                assert!(read.is_ok(), "{text}\n{read:?}");
            }
            Err(error) => panic!("{text}\n{error}"),
        }
    }
}
