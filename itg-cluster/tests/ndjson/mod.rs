//! Lines of `--events`, held against the published schema.

use std::path::Path;

use serde_json::Value;

/// The lines of a text; each one is what `docs/events.schema.json` says of its event, and no
/// earlier than the one before.
pub(crate) fn lines(text: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/events.schema.json");
    let schema = std::fs::read_to_string(path).expect("the schema");
    let schema: Value = serde_json::from_str(&schema).expect("JSON");
    let lines = text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON"));
    let lines: Vec<Value> = lines.collect();
    for line in &lines {
        assert_eq!(line["schema"], 1, "{line}");
        assert!(line["at_unix_ns"].as_u64().is_some_and(|at| at > 1_700_000_000_000_000_000));
        let mut kinds = schema["oneOf"].as_array().expect("kinds").iter();
        let kind = kinds.find(|kind| kind["properties"]["event"]["const"] == line["event"]);
        let kind = kind.unwrap_or_else(|| panic!("no such event: {line}"));
        let keys = line.as_object().expect("an object");
        for key in keys.keys() {
            let known = [kind, &schema].iter().any(|part| part["properties"].get(key).is_some());
            assert!(known, "`{key}` is not in the schema: {line}");
        }
        for part in [kind, &schema] {
            for key in part["required"].as_array().expect("names") {
                assert!(keys.contains_key(key.as_str().expect("a name")), "{key}: {line}");
            }
        }
    }
    let mut since = 0;
    for line in &lines {
        since = if line["event"] == "run" { 0 } else { since };
        let own = line["since_ns"].as_u64().expect("a time");
        assert!(own >= since, "in the order of their times: {line}");
        since = own;
    }
    lines
}

/// Those of one event.
pub(crate) fn of<'a>(lines: &'a [Value], event: &str) -> Vec<&'a Value> {
    lines.iter().filter(|line| line["event"] == event).collect()
}
