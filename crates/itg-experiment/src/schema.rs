//! The JSON Schema of the experiment file, and the one walk along it that finds unknown keys.
//!
//! A test makes it from the types that read the file, and holds the published one to that, so programs
//! need no more than the published one.

use serde_json::Value;
use toml::de::DeValue;

/// The schema as it is published.
pub(crate) fn published() -> Value {
    let text = include_str!("experiment.schema.json");
    serde_json::from_str(text).expect("a test holds the published schema to the types")
}

/// The path of a key in the table at `path`.
pub(crate) fn path_to(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The table at `path` as people write it: ` in [[flow]]`; empty at the top level.
pub(crate) fn in_table(path: &str, in_array: bool) -> String {
    match (path, in_array) {
        ("", _) => String::new(),
        (path, true) => format!(" in [[{path}]]"),
        (path, false) => format!(" in [{path}]"),
    }
}

/// A key that the schema does not know.
pub(crate) struct UnknownKey {
    /// The key.
    pub(crate) key: String,
    /// The table it is in, see [`in_table`].
    pub(crate) in_table: String,
    /// The keys of that table.
    pub(crate) known: Vec<String>,
    /// Offset of the key in the document, in bytes.
    pub(crate) at: usize,
}

/// All keys of a document that the schema does not know; they are taken out of the document.
pub(crate) fn take_unknown_keys(document: &mut DeValue<'_>) -> Vec<UnknownKey> {
    let root = published();
    let mut found = Vec::new();
    Walk { root: &root, found: &mut found }.value(document, &root, "", false);
    found
}

struct Walk<'a> {
    root: &'a Value,
    found: &'a mut Vec<UnknownKey>,
}

impl Walk<'_> {
    fn value(&mut self, value: &mut DeValue<'_>, schema: &Value, path: &str, in_array: bool) {
        let target = schema.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
        let schema = target.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema);
        match value {
            DeValue::Array(items) => {
                if let Some(schema) = schema.get("items") {
                    for item in items.iter_mut() {
                        self.value(item.get_mut(), schema, path, true);
                    }
                }
            }
            DeValue::Table(table) => {
                let none = serde_json::Map::new();
                let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
                let others = schema.get("additionalProperties");
                let closed = others == Some(&Value::Bool(false));
                let mut unknown = Vec::new();
                for (key, value) in table.iter_mut() {
                    let name = key.get_ref().as_ref();
                    let inside = path_to(path, name);
                    if let Some(schema) = known.get(name) {
                        self.value(value.get_mut(), schema, &inside, false);
                    } else if let Some(schema @ Value::Object(_)) = others {
                        self.value(value.get_mut(), schema, &inside, false);
                    } else if closed {
                        self.found.push(UnknownKey {
                            key: name.to_owned(),
                            in_table: in_table(path, in_array),
                            known: known.keys().cloned().collect(),
                            at: key.span().start,
                        });
                        unknown.push(key.clone());
                    }
                }
                for key in unknown {
                    table.remove(&key);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use schemars::generate::SchemaSettings;

    use super::*;
    use crate::Experiment;

    /// The schema of the types: TOML has no null, so nothing may be null.
    fn generated() -> Value {
        let generator = SchemaSettings::draft2020_12().for_deserialize().into_generator();
        let mut schema = generator.into_root_schema_for::<Experiment>().to_value();
        drop_null(&mut schema);
        schema
    }

    fn drop_null(schema: &mut Value) {
        match schema {
            Value::Array(items) => items.iter_mut().for_each(drop_null),
            Value::Object(object) => {
                if let Some(Value::Array(types)) = object.get_mut("type") {
                    types.retain(|name| name != "null");
                    if let [only] = &types[..] {
                        let only = only.clone();
                        object.insert("type".to_owned(), only);
                    }
                }
                if let Some(Value::Array(choices)) = object.get_mut("anyOf") {
                    choices.retain(|choice| choice.get("type").is_none_or(|name| name != "null"));
                    if let [Value::Object(only)] = &mut choices[..] {
                        let only = std::mem::take(only);
                        object.remove("anyOf");
                        // What is said of the key goes before what is said of its type.
                        only.into_iter().for_each(|(key, value)| {
                            object.entry(key).or_insert(value);
                        });
                    }
                }
                // A default of null is no default.
                if object.get("default").is_some_and(Value::is_null) {
                    object.remove("default");
                }
                object.values_mut().for_each(drop_null);
            }
            _ => {}
        }
    }

    #[test]
    fn the_published_schema_is_up_to_date() {
        itg_testkit::published::compare("experiment", &generated());
    }

    #[test]
    fn nothing_is_null_and_nothing_unknown_is_allowed() {
        let text = published().to_string();
        assert!(!text.contains("null"), "TOML has no null");
        let closed = text.matches("\"additionalProperties\":false").count();
        assert_eq!(
            closed, 7,
            "the file, [log], [pacing], [gates], [sweep], nodes and [[flow]] are closed"
        );
    }
}
