//! Reports keep to the published JSON Schema.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests")]

use itg_stats::report::GroupBy;
use itg_stats::{Analysis, Options};
use itg_testkit::logs::run_of_two_flows;
use serde_json::Value;

/// Collects the places at which a value is not as its schema says: types, enumerations, required
/// and unknown keys.
fn check(path: &str, value: &Value, schema: &Value, root: &Value, wrong: &mut Vec<String>) {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
        let name = name.strip_prefix("#/$defs/").unwrap();
        return check(path, value, &root["$defs"][name], root, wrong);
    }
    let choices = schema.get("anyOf").or_else(|| schema.get("oneOf")).and_then(Value::as_array);
    if let Some(choices) = choices {
        let fits = choices.iter().any(|choice| {
            let mut own = Vec::new();
            check(path, value, choice, root, &mut own);
            own.is_empty()
        });
        if !fits {
            wrong.push(format!("{path}: {value} is none of the choices"));
        }
    }
    let names: Vec<&str> = match schema.get("type") {
        Some(Value::String(name)) => vec![name],
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let is = |name: &str| match name {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        _ => value.is_object(),
    };
    if !names.is_empty() && !names.iter().any(|name| is(name)) {
        wrong.push(format!("{path}: {value} is no {names:?}"));
    }
    if let Some(allowed) = schema.get("enum").and_then(Value::as_array)
        && !allowed.contains(value)
    {
        wrong.push(format!("{path}: {value} is none of {allowed:?}"));
    }
    if schema.get("const").is_some_and(|only| only != value) {
        wrong.push(format!("{path}: {value} is not {}", schema["const"]));
    }
    for key in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
        if value.is_object() && value.get(key.as_str().unwrap()).is_none() {
            wrong.push(format!("{path}: no key {key}"));
        }
    }
    let known = schema.get("properties").and_then(Value::as_object);
    for (key, inner) in value.as_object().into_iter().flatten() {
        match (known.and_then(|known| known.get(key)), schema.get("additionalProperties")) {
            (Some(own), _) => check(&format!("{path}.{key}"), inner, own, root, wrong),
            (None, Some(any)) if any.is_object() => {
                check(&format!("{path}.{key}"), inner, any, root, wrong);
            }
            (None, Some(Value::Bool(true))) => {}
            (None, _) if known.is_some() => wrong.push(format!("{path}: unknown key {key}")),
            (None, _) => {}
        }
    }
    if let Some(items) = schema.get("items") {
        for (k, item) in value.as_array().into_iter().flatten().enumerate() {
            check(&format!("{path}[{k}]"), item, items, root, wrong);
        }
    }
}

#[test]
fn reports_keep_to_the_schema() {
    let schema = itg_testkit::published::schema("report");
    let [sender, receiver] = run_of_two_flows();
    for logs in [&[&sender[..], &receiver][..], &[&receiver], &[&receiver[..900]], &[]] {
        let mut analysis = Analysis::new(Options {
            interval_ns: Some(100_000_000),
            by: vec![GroupBy::Proto, GroupBy::Src, GroupBy::Dst, GroupBy::Profile],
            ..Options::default()
        });
        for (k, log) in logs.iter().enumerate() {
            analysis.add_log(log, &format!("log {k}")).unwrap();
        }
        let report = serde_json::to_value(analysis.finish()).unwrap();
        let mut wrong = Vec::new();
        check("report", &report, &schema, &schema, &mut wrong);
        assert_eq!(wrong, [""; 0], "{} logs", logs.len());
    }
    let mut wrong = Vec::new();
    let broken = serde_json::json!({ "schema": "1", "flows": [{}], "surplus": 3 });
    check("report", &broken, &schema, &schema, &mut wrong);
    assert!(wrong.len() > 10, "the check finds what is wrong: {wrong:?}");
}
