//! The published JSON Schema is the one of the types that read the file.

use std::path::Path;

use itg_experiment::Experiment;

#[test]
fn the_published_schema_is_up_to_date() {
    let made = serde_json::to_string_pretty(&Experiment::json_schema()).expect("JSON") + "\n";
    let published = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/experiment.schema.json");
    if std::fs::read_to_string(&published).is_ok_and(|text| text == made) {
        return;
    }
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("experiment.schema.json");
    std::fs::write(&fresh, made).expect("write the new schema");
    panic!(
        "docs/experiment.schema.json is out of date; take the new one:\n  cp {} {}",
        fresh.display(),
        published.display()
    );
}

#[test]
fn nothing_is_null_and_nothing_unknown_is_allowed() {
    let text = Experiment::json_schema().to_string();
    assert!(!text.contains("null"), "TOML has no null");
    let closed = text.matches("\"additionalProperties\":false").count();
    assert_eq!(
        closed, 7,
        "the file, [log], [pacing], [gates], [sweep], nodes and [[flow]] are closed"
    );
}
