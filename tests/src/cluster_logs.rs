//! Logs that a run over agents has left in directories of its nodes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use itg_record::{Item, LogReader, Note, Record};

/// Logs below a directory.
#[must_use]
pub fn logs_below(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(logs_below(&path));
        } else if path.extension().is_some_and(|what| what == "itg") {
            found.push(path);
        }
    }
    found
}

/// Tells each record in the logs below a directory, with the log and the number of its flow; a killed process has not
/// closed its log.
///
/// # Panics
/// Where a log cannot be read.
pub fn each_record(dir: &Path, mut tell: impl FnMut(&Path, u32, &Record)) {
    for path in logs_below(dir) {
        let bytes = fs::read(&path).expect("readable");
        let mut flows = BTreeMap::new();
        for item in LogReader::new(&bytes) {
            match item {
                Item::Note { note: Note::Flow(info), .. } => {
                    flows.insert(info.index, info.flow);
                }
                Item::Records { records, .. } => {
                    for record in records {
                        if let Some(flow) = flows.get(&record.flow) {
                            tell(&path, *flow, &record);
                        }
                    }
                }
                Item::Note { .. } | Item::Damage(_) => {}
            }
        }
    }
}
