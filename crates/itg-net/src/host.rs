//! What this host is: name, system, boot.

use std::collections::BTreeMap;
use std::fs;

use itg_record::{LogInfo, Side};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand::TryRng;
use rand::rngs::SysRng;

/// Name of this host.
#[must_use]
pub fn name() -> String {
    nix::unistd::gethostname()
        .map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// Operating system and kernel release.
#[must_use]
pub fn os() -> String {
    nix::sys::utsname::uname().map_or_else(
        |_| "unknown".to_owned(),
        |u| {
            let word = |text: &std::ffi::OsStr| text.to_string_lossy().into_owned();
            format!("{} {} {}", word(u.sysname()), word(u.release()), word(u.machine()))
        },
    )
}

/// Lets this process open as many files as it may without asking: each flow has a socket of its own.
pub(crate) fn raise_open_files() {
    let raised = getrlimit(Resource::RLIMIT_NOFILE).and_then(|(soft, hard)| {
        if soft < hard { setrlimit(Resource::RLIMIT_NOFILE, hard, hard) } else { Ok(()) }
    });
    if let Err(error) = raised {
        tracing::debug!(%error, "the limit on open files stays as it is");
    }
}

/// Identifier of this boot of this kernel: two programs that see the same one share their clocks.
#[must_use]
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_or_else(|_| String::new(), |text| text.trim().to_owned())
}

/// A number that nobody can guess: for run ids, seeds that were not given, and handles.
///
/// # Panics
/// When the system has no source of randomness.
#[must_use]
pub fn random_u64() -> u64 {
    SysRng.try_next_u64().expect("the system has a source of randomness")
}

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
        host: name(),
        os: os(),
        boot_id: boot_id(),
        pid: std::process::id(),
        started_unix_ns: crate::clock::unix_ns(),
        run,
        seed,
        settings,
        // The log that it becomes part of knows.
        block_records: 0,
    }
}
