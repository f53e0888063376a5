//! Report of an earlier `itg-send doctor` about this host, for the log of a run.

use std::fs;
use std::path::Path;

use anyhow::Result;
use itg_socket::host;
use itg_stats::promise::Promise;
use serde::Deserialize;

use crate::{refuse, say};

/// Version of the JSON that `itg-send doctor` writes.
pub const DOCTOR_SCHEMA: u32 = 1;

/// Longest file that is read: 4 MiB, a hundred times what doctor writes.
const LONGEST: u64 = 4 << 20;

/// Fields of the report that are used here.
#[derive(Debug, Deserialize)]
struct Found {
    schema: u32,
    host: Host,
    pacing: String,
    promise: Promised,
}

#[derive(Debug, Deserialize)]
struct Host {
    host: String,
    boot_id: String,
}

#[derive(Debug, Deserialize)]
struct Promised {
    precision: Vec<Precision>,
}

#[derive(Debug, Deserialize)]
struct Precision {
    rate_pps: u32,
    late_p99_ns: u64,
}

/// The settings that carry a promise into a log (`--promise FILE`).
///
/// # Errors
/// The file cannot be read, is no report of `itg-send doctor` of this version, or is about another host.
pub fn promised(path: &Path) -> Result<[(String, String); 2]> {
    let fail = |why: String| refuse(format!("--promise {}: {why}", path.display()));
    let len = fs::metadata(path).map_err(|error| fail(error.to_string()))?.len();
    if len > LONGEST {
        return Err(fail("it is too long for a report of itg-send doctor".to_owned()));
    }
    let text = fs::read_to_string(path).map_err(|error| fail(error.to_string()))?;
    settings(&text, &host::name(), &host::boot_id()).map_err(fail)
}

fn settings(text: &str, host: &str, boot_id: &str) -> Result<[(String, String); 2], String> {
    let found: Found = serde_json::from_str(text).map_err(|error| {
        format!("{error}: it is no report of itg-send doctor, as --output writes it")
    })?;
    if found.schema != DOCTOR_SCHEMA {
        return Err(format!(
            "its layout {} is not the one of this version, {DOCTOR_SCHEMA}",
            found.schema
        ));
    }
    if found.host.host != host {
        return Err(format!("it is about the host {}, and this is {host}", found.host.host));
    }
    if found.host.boot_id != boot_id {
        say(
            "this host was started anew since itg-send doctor examined it: its promise may not hold",
        );
    }
    let list = found.promise.precision.iter().map(|p| (p.rate_pps, p.late_p99_ns)).collect();
    let promise = Promise::new(list).map_err(|error| error.to_string())?;
    let pair = |name: &str, value: String| (name.to_owned(), value);
    Ok([pair("promise", promise.to_string()), pair("promise_pacing", found.pacing)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_of_this_host_is_taken_and_others_are_refused_in_words() {
        let report = |schema: u32, host: &str, precision: &str| {
            format!(
                r#"{{"schema": {schema}, "host": {{"host": "{host}", "boot_id": "b", "os": "x"}},
                    "pacing": "hybrid", "promise": {{"precision": [{precision}], "rate_pps": 5}}}}"#
            )
        };
        let entry = r#"{"rate_pps": 1000, "late_p99_ns": 3400}"#;
        for (text, want) in [
            (report(DOCTOR_SCHEMA, "here", entry), Ok("1000:3400")),
            (report(DOCTOR_SCHEMA + 1, "here", entry), Err("is not the one of this version")),
            (
                report(DOCTOR_SCHEMA, "there", entry),
                Err("it is about the host there, and this is here"),
            ),
            (report(DOCTOR_SCHEMA, "here", ""), Err("is no promise")),
            (report(DOCTOR_SCHEMA, "here", &format!("{entry},{entry}")), Err("is no promise")),
            ("{}".to_owned(), Err("no report of itg-send doctor")),
        ] {
            match (settings(&text, "here", "c"), want) {
                (Ok([promise, pacing]), Ok(want)) => {
                    assert_eq!(promise, ("promise".to_owned(), want.to_owned()));
                    assert_eq!(pacing.1, "hybrid");
                }
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (got, want) => panic!("{got:?}, not {want:?}, of {text}"),
            }
        }
    }
}
