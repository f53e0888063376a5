//! The page of a log server for Prometheus.

use itg_cli::Program;
use itg_node::LogServerReading;
use itg_node::metrics::seconds;

/// The page.
pub(crate) fn page(program: Program, reading: Option<LogServerReading>) -> String {
    let mut page = program.page();
    let Some(reading) = reading else { return page.into_text() };
    let families = [
        ("itg_log_producers", "gauge", "Producers that are there.", reading.producers as u64),
        (
            "itg_log_connections_total",
            "counter",
            "Connections that were served.",
            reading.connections,
        ),
        (
            "itg_log_refused_connections_total",
            "counter",
            "Connections that were turned away, and producers that were refused.",
            reading.refused,
        ),
        ("itg_log_stored_blocks_total", "counter", "Blocks that were stored.", reading.blocks),
        (
            "itg_log_stored_records_total",
            "counter",
            "Records in the blocks that were stored.",
            reading.records,
        ),
        (
            "itg_log_refused_blocks_total",
            "counter",
            "Blocks that were not taken for want of room in their log, their experiment or memory.",
            reading.refused_blocks,
        ),
        (
            "itg_log_stored_bytes_total",
            "counter",
            "Bytes of the blocks that were stored.",
            reading.bytes,
        ),
        (
            "itg_log_missing_blocks",
            "gauge",
            "Blocks that logs lack whose producers have left.",
            reading.missing_blocks,
        ),
        (
            "itg_log_conflicting_blocks",
            "gauge",
            "Blocks of these logs that came with other contents than those stored before.",
            reading.conflicting_blocks,
        ),
        (
            "itg_log_outstanding_bytes",
            "gauge",
            "Memory for blocks on their way to the disk.",
            reading.outstanding_bytes,
        ),
        (
            "itg_log_disk_errors_total",
            "counter",
            "Writes and syncs that failed; a disk that stays full counts once.",
            reading.disk_errors,
        ),
    ];
    for (name, kind, help, value) in families {
        page.one(name, kind, help, value);
    }
    if let Some(synced) = reading.synced_unix_ns {
        let help = "Last time that blocks were synced to the disk, in Unix time.";
        page.one("itg_log_last_sync_timestamp_seconds", "gauge", help, seconds(synced));
    }
    page.into_text()
}
