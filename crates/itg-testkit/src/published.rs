//! The JSON Schemas in `docs/`, which are those of types.

use std::path::PathBuf;

use serde::Serialize;
use serde_json::{Map, Value};

fn path(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/../../docs/{name}.schema.json", env!("CARGO_MANIFEST_DIR")))
}

/// Reads the published schema of this name.
#[must_use]
pub fn schema(name: &str) -> Value {
    let path = path(name);
    let text = std::fs::read_to_string(&path);
    let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Reads these definitions of the published schema of this name, and those to which they refer.
#[must_use]
pub fn definitions(name: &str, wanted: &[&str]) -> Map<String, Value> {
    let whole = schema(name);
    let mut found = Map::new();
    let mut open: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
    while let Some(name) = open.pop() {
        let definition = &whole["$defs"][&name];
        let text = definition.to_string();
        let referred = text.split("\"#/$defs/").skip(1).filter_map(|rest| rest.split('"').next());
        open.extend(referred.filter(|name| !found.contains_key(*name)).map(str::to_owned));
        found.insert(name, definition.clone());
    }
    found
}

/// Panics unless the published schema of this name is the one that was made from the types, and prints the command that
/// publishes that one.
pub fn compare(name: &str, made: &impl Serialize) {
    let made = serde_json::to_string_pretty(made).expect("JSON") + "\n";
    if std::fs::read_to_string(path(name)).is_ok_and(|text| text == made) {
        return;
    }
    let fresh = std::env::temp_dir().join(format!("{name}.{}.schema.json", std::process::id()));
    std::fs::write(&fresh, made).expect("write the new schema");
    panic!(
        "docs/{name}.schema.json is out of date:\n  cp {} {}",
        fresh.display(),
        path(name).display()
    );
}

/// Like [`compare`], for those definitions of a schema whose types are in a crate of their own.
pub fn compare_definitions(name: &str, made: Map<String, Value>) {
    assert!(!made.is_empty(), "there are types");
    let mut whole = schema(name);
    whole["$defs"].as_object_mut().expect("definitions").extend(made);
    compare(name, &whole);
}
