//! The directory of a run as a Process Run Crate: `ro-crate-metadata.json`, with the SHA-256 of every file.
//!
//! A pure function of the manifest and the list of files, so that `verify` can make it again. Sources: RO-Crate 1.1,
//! <https://w3id.org/ro/crate/1.1>; Process Run Crate 0.5, <https://w3id.org/ro/wfrun/process/0.5>.

use itg_experiment::Manifest;
use serde_json::{Map, Value, json};

use crate::directory::MANIFEST;
use crate::inventory::RunFile;
use crate::results::{COMMAND, ENDED, EXIT_CODE, INTERRUPTED, setting};

/// The file, in the directory of a run.
pub(crate) const RO_CRATE: &str = "ro-crate-metadata.json";
/// Identifier of the root entity.
pub(crate) const ROOT: &str = "./";
/// Identifier of the action that made the files.
pub(crate) const ACTION: &str = "#run";

const RO_CRATE_1_1: &str = "https://w3id.org/ro/crate/1.1";
const PROCESS_RUN_CRATE: &str = "https://w3id.org/ro/wfrun/process/0.5";
const SOFTWARE: &str = env!("CARGO_PKG_REPOSITORY");
/// Value of `license`, which the standard wants: the choice is that of whoever publishes the run.
const LICENCE: &str = "No licence has been chosen: whoever publishes this directory names one here";

/// End of the traffic as the manifest has it, or else its start; Unix time in nanoseconds.
pub(crate) fn ended(manifest: &Manifest) -> u64 {
    setting(manifest, ENDED).parse().unwrap_or(manifest.started_unix_ns)
}

/// Unix time in nanoseconds in the form of ISO 8601, UTC, to the millisecond.
pub(crate) fn utc(unix_ns: u64) -> String {
    let time = jiff::Timestamp::from_nanosecond(i128::from(unix_ns)).unwrap_or_default();
    time.strftime("%Y-%m-%dT%H:%M:%S%.3f+00:00").to_string()
}

/// Media type of a file of a run and what it holds, by its path.
pub(crate) fn about(path: &str) -> (&'static str, &'static str) {
    let name = path.rsplit('/').next().unwrap_or(path);
    let what = match name {
        "manifest.json" => {
            "manifest: the experiment, its seed, its plan's hash, facts about the host"
        }
        "experiment.toml" => "experiment file of this run alone",
        "report.json" => "report as JSON",
        "report.txt" => "report as text, all figures",
        "report.html" => "report as one page, with plots",
        "events.txt" => "events of the run in words",
        "ARTIFACT.md" => "artifact appendix",
        name if name.ends_with(".itg") && name.starts_with("receiver") => {
            "log of the receivers, a record for each packet"
        }
        name if name.ends_with(".itg") => "log of the senders, a record for each packet",
        _ => "other file of the run",
    };
    let media = match name.rsplit_once('.').map(|(_, end)| end) {
        Some("json") => "application/json",
        Some("ndjson" | "jsonl") => "application/x-ndjson",
        Some("txt") => "text/plain",
        Some("md") => "text/markdown",
        Some("html") => "text/html",
        Some("toml") => "application/toml",
        _ => "application/octet-stream",
    };
    (media, what)
}

/// Path as a relative URI: all but unreserved characters and `/` percent-encoded (RFC 3986, section 2).
fn uri(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    let part = |byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    };
    path.bytes().map(part).collect()
}

/// The path that a relative URI stands for.
fn path(uri: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = uri.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        bytes.push(match first {
            b'%' => {
                let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
                rest = &rest[2..];
                u8::from_str_radix(digits, 16).ok()?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// References to files: one stands alone, several in a list.
fn several<'a>(files: impl Iterator<Item = &'a RunFile>) -> Value {
    let mut list: Vec<_> = files.map(|file| json!({ "@id": uri(&file.path) })).collect();
    if list.len() == 1 { list.remove(0) } else { Value::from(list) }
}

/// The metadata of a run with these files.
pub(crate) fn metadata(manifest: &Manifest, files: &[RunFile]) -> Value {
    let is_input = |file: &&RunFile| [MANIFEST, "experiment.toml"].contains(&file.path.as_str());
    let input = several(files.iter().filter(is_input));
    let made = several(files.iter().filter(|file| !is_input(file)));
    let all = several(files.iter());
    let Manifest { name, seed, plan, .. } = manifest;
    let done = setting(manifest, EXIT_CODE) == "0";
    let mut action = json!({
        "@id": ACTION, "@type": "CreateAction", "name": format!("Run of the experiment {name}"),
        "description": format!("itg-cluster, seed {seed}, plan {plan}: {}", setting(manifest, COMMAND)),
        "instrument": { "@id": SOFTWARE }, "object": input, "result": made,
        "startTime": utc(manifest.started_unix_ns), "endTime": utc(ended(manifest)),
        "actionStatus": format!(
            "http://schema.org/{}ActionStatus", if done { "Completed" } else { "Failed" }
        ),
    });
    let why = setting(manifest, INTERRUPTED);
    if !done && !why.is_empty() {
        action["error"] = json!(why);
    }
    let mut graph = vec![
        json!({
            "@id": RO_CRATE, "@type": "CreativeWork", "about": { "@id": ROOT },
            "conformsTo": { "@id": RO_CRATE_1_1 },
        }),
        json!({
            "@id": ROOT, "@type": "Dataset", "name": format!("Run of the experiment {name}"),
            "description": format!(
                "Logs and reports of generated network traffic: experiment {name}, seed {seed}, plan {plan}"
            ),
            "datePublished": utc(ended(manifest)), "license": LICENCE,
            "conformsTo": { "@id": PROCESS_RUN_CRATE }, "hasPart": all, "mentions": { "@id": ACTION },
        }),
        json!({
            "@id": PROCESS_RUN_CRATE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5",
        }),
        json!({
            "@id": SOFTWARE, "@type": "SoftwareApplication", "name": "itg-cluster", "url": SOFTWARE,
            "softwareVersion": manifest.version,
        }),
        action,
    ];
    graph.extend(files.iter().map(|file| {
        let (media, what) = about(&file.path);
        json!({
            "@id": uri(&file.path), "@type": "File", "name": file.path, "description": what,
            "encodingFormat": media, "contentSize": file.bytes.to_string(), "sha256": file.sha256,
        })
    }));
    // RO-Crate 1.1 has no word for SHA-256 yet; later ones have this.
    let context =
        json!([format!("{RO_CRATE_1_1}/context"), { "sha256": "http://schema.org/sha256" }]);
    json!({ "@context": context, "@graph": graph })
}

/// The metadata as the file has it.
pub(crate) fn text(manifest: &Manifest, files: &[RunFile]) -> String {
    format!("{:#}\n", metadata(manifest, files))
}

/// The entities of a crate; those without an identifier are left out.
pub(crate) fn entities(metadata: &Value) -> Vec<(&str, &Map<String, Value>)> {
    let graph = metadata.get("@graph").and_then(Value::as_array);
    let entities = graph.into_iter().flatten().filter_map(Value::as_object);
    entities.filter_map(|entity| Some((entity.get("@id")?.as_str()?, entity))).collect()
}

/// The files that a crate lists, in its order.
///
/// # Errors
/// A sentence about an entry that is not as a run writes it.
pub(crate) fn files(metadata: &Value) -> Result<Vec<RunFile>, String> {
    let is_file = |entity: &Map<String, Value>| entity.get("@type") == Some(&json!("File"));
    let files = entities(metadata).into_iter().filter(|(_, entity)| is_file(entity));
    let file = |(id, entity): (&str, &Map<String, Value>)| {
        let word = |key: &str| entity.get(key).and_then(Value::as_str);
        let bytes = word("contentSize").and_then(|number| number.parse().ok());
        // One name a file: others for the same one would hide behind it.
        let path = path(id).filter(|path| uri(path) == id);
        let found = path.zip(bytes).zip(word("sha256"));
        found
            .map(|((path, bytes), sha256)| RunFile { path, bytes, sha256: Some(sha256.to_owned()) })
            .ok_or_else(|| format!("file `{id}` has no plain path, no size or no SHA-256"))
    };
    files.map(file).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_relative_uris_and_come_back() {
        for (name, want) in
            [("a/receiver-1.itg", "a/receiver-1.itg"), ("ein Weg#1%", "ein%20Weg%231%25")]
        {
            assert_eq!(uri(name), want);
            assert_eq!(path(want).as_deref(), Some(name));
        }
        for bad in ["%", "%4", "%zz", "%ff"] {
            assert_eq!(path(bad), None, "{bad}");
        }
    }

    #[test]
    fn times_are_in_the_form_of_the_profile() {
        assert_eq!(utc(1_000_000_123_456_789), "1970-01-12T13:46:40.123+00:00");
        assert_eq!(utc(1_700_000_000_000_000_000), "2023-11-14T22:13:20.000+00:00");
    }
}
