//! The first note of a log.

use std::collections::BTreeMap;

use itg_record::{LogInfo, Side};
use itg_socket::{clock, host};

/// The first note of a log of this process.
#[must_use]
pub fn log_info(
    side: Side,
    program: &str,
    version: &str,
    run: String,
    seed: Option<u64>,
    settings: BTreeMap<String, String>,
) -> LogInfo {
    LogInfo {
        schema: itg_record::LOG_SCHEMA,
        side,
        program: program.to_owned(),
        version: version.to_owned(),
        host: host::name(),
        os: host::os(),
        boot_id: host::boot_id(),
        pid: std::process::id(),
        started_unix_ns: clock::unix_ns(),
        run,
        seed,
        settings,
        // The log that it becomes part of knows.
        block_records: 0,
        part: None,
    }
}
