//! Destination of a program's own log: a file, or a log server.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use clap::{Args, ValueEnum};
use itg_core::units::{
    format_bytes, format_duration_ns, nanoseconds, parse_bytes, parse_duration_ns,
};
use itg_engine::{Fsync, LogLimits, LogServerTarget, LogTarget, LogUrl, OnFull, Rotation};
use itg_experiment::TimeSpan;
use itg_session::logs::Role;
use itg_trust::KeyDir;

use crate::failure::{Failure, refuse};

/// Largest block of a file, in records (16 MiB).
const MOST_RECORDS: usize = 419_428;
/// Largest block that a datagram holds, in records: (65507 − 64) / 40.
const MOST_DATAGRAM_RECORDS: usize = 1636;

/// The words for [`OnFull`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Full {
    /// Packets wait until a block is written: none is missing in the log, some may be late
    Wait,
    /// Take further memory, up to --log-memory; then wait
    Grow,
    /// Leave the block out of the log and count its records: no packet is late for the log
    Drop,
}

/// Arguments about a program's log.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log every packet to this file
    ///
    /// itg-send replaces a complete log that is there when the first flow is open; itg-recv continues a log that is
    /// there. Anything else is left alone and refused.
    #[arg(long, value_name = "FILE", conflicts_with = "log_server")]
    log: Option<PathBuf>,
    /// Log every packet to a log server (itg-log): tcp://HOST:PORT, udp://HOST:PORT, or tls://HOST:PORT
    /// with --keys
    #[arg(long, help_heading = "Logs", value_name = "URL")]
    log_server: Option<String>,
    /// Name of the experiment at the log server, and of its file there; logs of the same name are in one file
    /// [default: the run id]
    #[arg(long, help_heading = "Logs", value_name = "NAME", value_parser = log_name, conflicts_with = "log")]
    log_name: Option<String>,
    /// File for blocks while the log server is away (TCP, TLS); they are sent when it is back
    #[arg(long, help_heading = "Logs", value_name = "FILE", conflicts_with = "log")]
    log_spool: Option<PathBuf>,
    /// File with the secret of the log server
    #[arg(long, help_heading = "Logs", value_name = "FILE")]
    log_secret_file: Option<PathBuf>,
    /// Directory of keys (`itg-cluster keys`) with which this program and log servers at tls:// prove who they
    /// are to each other; what they say is encrypted
    #[arg(long, help_heading = "Logs", value_name = "DIR")]
    keys: Option<PathBuf>,
    /// Records in a block of the log [default: 1024; over UDP 35, which fit an Ethernet frame]
    #[arg(long, help_heading = "Logs", value_name = "RECORDS")]
    log_block: Option<usize>,
    /// A block that is older is written though not full
    #[arg(long, help_heading = "Logs", value_name = "T", default_value = "1s")]
    log_flush: TimeSpan,
    /// Behaviour when a block is full and the disk or the log server has not taken the one before
    #[arg(long, help_heading = "Logs", value_name = "WHAT", default_value = "grow")]
    log_full: Full,
    /// Memory for blocks of each log [default: 64Mi with --log-full grow, else two blocks]
    #[arg(long, help_heading = "Logs", value_name = "BYTES")]
    log_memory: Option<String>,
    /// Sync log files: never (the system does in its own time; only a loss of power takes what it has
    /// not), once a second (interval), or before a block counts as written (block)
    #[arg(long, help_heading = "Logs", value_name = "never|interval|block", default_value_t)]
    fsync: Fsync,
    /// For measurements: write to log files no faster than this, as 20MB/s
    #[arg(long, help_heading = "Logs", value_name = "RATE")]
    log_throttle: Option<String>,
}

/// Least size from which on a log is rotated: 64 KiB.
const LEAST_ROTATED: u64 = 64 << 10;
/// Least time after which it is.
const SHORTEST_ROTATED: Duration = Duration::from_secs(1);

/// Arguments about the rotation of a program's own log.
#[derive(Clone, Copy, Debug, Args)]
pub struct RotationArgs {
    /// Rotate the log at this size (as 1Gi, 64Ki at least) or age (as 24h, 1s at least): the file so far is renamed
    /// FILE.1, the next one FILE.2 and so on, and the log goes on in a new FILE. Decode them together
    #[arg(long, help_heading = "Logs", value_name = "SIZE|T", requires = "log", conflicts_with = "log_server", value_parser = rotated_at)]
    log_rotate: Option<RotateAt>,
    /// Rotated files to keep: the oldest ones beyond are removed [default: all]
    #[arg(long, help_heading = "Logs", value_name = "N", requires = "log_rotate")]
    log_keep: Option<u32>,
}

/// Point at which a log is rotated.
#[derive(Clone, Copy, Debug)]
enum RotateAt {
    Bytes(u64),
    Age(Duration),
}

/// A size or a time.
fn rotated_at(text: &str) -> Result<RotateAt, String> {
    if let Ok(ns) = parse_duration_ns(text) {
        let age = Duration::from_nanos(ns);
        return match age >= SHORTEST_ROTATED {
            true => Ok(RotateAt::Age(age)),
            false => Err(format!("{text}: expected 1s at least")),
        };
    }
    match parse_bytes(text) {
        Ok(bytes) if bytes.0 >= LEAST_ROTATED => Ok(RotateAt::Bytes(bytes.0)),
        Ok(_) => Err(format!("{text}: expected 64Ki at least")),
        Err(_) => Err(format!("`{text}`: expected a size, as 1Gi, or a time, as 24h")),
    }
}

impl RotationArgs {
    /// The rules of rotation.
    #[must_use]
    pub const fn rotation(&self) -> Rotation {
        let (bytes, every) = match self.log_rotate {
            Some(RotateAt::Bytes(bytes)) => (Some(bytes), None),
            Some(RotateAt::Age(age)) => (None, Some(age)),
            None => (None, None),
        };
        Rotation { bytes, every, keep: self.log_keep }
    }

    /// The settings in force, for the log and the first line of words.
    pub fn settings(&self) -> impl Iterator<Item = (String, String)> {
        let at = self.log_rotate.map(|at| match at {
            RotateAt::Bytes(bytes) => format_bytes(bytes),
            RotateAt::Age(age) => format_duration_ns(nanoseconds(age)),
        });
        let keep = self.log_keep.map(|count| count.to_string());
        let list = [("log-rotate", at), ("log-keep", keep)];
        list.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)))
    }
}

/// A name that a log server takes for a file.
fn log_name(text: &str) -> Result<String, String> {
    LogUrl::check_name(text).map(|()| text.to_owned())
}

/// Bytes a second: a size, with or without `/s` behind it.
///
/// # Errors
/// A text that is no size, and nothing.
pub fn parse_throttle(text: &str) -> Result<u64> {
    let size = text.strip_suffix("/s").unwrap_or(text);
    let bytes = parse_bytes(size).map_err(|error| refuse(format!("rate `{text}`: {error}")))?.0;
    if bytes == 0 {
        return Err(refuse(format!("rate `{text}`: nothing could ever be written")));
    }
    Ok(bytes)
}

impl LogArgs {
    /// The log that was asked for; `run` names the experiment at a log server.
    ///
    /// # Errors
    /// A URL, keys or a secret that cannot be used.
    pub fn target(&self, run: &str, role: Role) -> Result<Option<LogTarget>> {
        if let Some(path) = &self.log {
            let path = path.clone();
            return Ok(Some(match role {
                Role::Sender => LogTarget::Replace(path),
                Role::Receiver => LogTarget::File(path),
            }));
        }
        let Some(url) = &self.log_server else {
            return match (&self.log_spool, &self.log_name) {
                (Some(_), _) => Err(refuse(
                    "--log-spool keeps blocks for a log server: name one with --log-server",
                )),
                (None, Some(_)) => Err(refuse(
                    "--log-name names an experiment at a log server: name one with --log-server",
                )),
                (None, None) => Ok(None),
            };
        };
        let url: LogUrl = url.parse().map_err(refuse)?;
        Ok(Some(LogTarget::Server(Box::new(LogServerTarget {
            keys: url.keys(self.keys()?.as_ref()).map_err(refuse)?,
            transport: url.transport,
            address: url.address,
            run: self.log_name.clone().or(url.name).unwrap_or_else(|| run.to_owned()),
            role,
            secret: self.secret()?,
            spool: self.log_spool.clone(),
        }))))
    }

    /// The URL of a log server with the name that was chosen for the experiment, for the other side.
    #[must_use]
    pub fn named(&self, url: String) -> String {
        match &self.log_name {
            Some(name) if !url.rsplit_once("://").is_some_and(|(_, rest)| rest.contains('/')) => {
                format!("{url}/{name}")
            }
            _ => url,
        }
    }

    /// Takes a log server where the command line names no place for the log.
    pub fn or_server(&mut self, url: &str) {
        if self.log.is_none() && self.log_server.is_none() {
            self.log_server = Some(url.to_owned());
        }
    }

    fn is_udp(&self) -> bool {
        self.log_server.as_ref().is_some_and(|url| url.starts_with("udp:"))
    }

    /// The file, when the log goes to one.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.log.as_deref()
    }

    /// Size of the log's blocks, and memory that they may take.
    ///
    /// # Errors
    /// Sizes that cannot be.
    pub fn limits(&self) -> Result<LogLimits> {
        let udp = self.is_udp();
        let most = if udp { MOST_DATAGRAM_RECORDS } else { MOST_RECORDS };
        if let Some(records) = self.log_block.filter(|records| !(1..=most).contains(records)) {
            let over = if udp { " over UDP" } else { "" };
            let text = format!("--log-block {records}: a block{over} has 1 to {most} records");
            return Err(refuse(text));
        }
        let defaults = LogLimits::default();
        let memory = self.log_memory.as_deref().map(parse_bytes).transpose().map_err(refuse)?;
        let on_full = match self.log_full {
            Full::Wait => OnFull::Wait,
            Full::Grow => OnFull::Grow,
            Full::Drop => OnFull::Drop,
        };
        let usual = if on_full == OnFull::Grow { defaults.pool_bytes } else { 0 };
        Ok(LogLimits {
            block_records: self.log_block.unwrap_or(defaults.block_records),
            datagram_records: self
                .log_block
                .map_or(defaults.datagram_records, |records| records.min(MOST_DATAGRAM_RECORDS)),
            flush_age: self.log_flush.duration(),
            on_full,
            fsync: self.fsync,
            throttle_bytes_per_s: self.log_throttle.as_deref().map(parse_throttle).transpose()?,
            pool_bytes: memory.map_or(usual, |m| usize::try_from(m.0).unwrap_or(usize::MAX)),
            rotation: Rotation::default(),
        })
    }

    /// The settings in force, for the log and the first line of words.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let mut settings = vec![("log".to_owned(), self.describe())];
        if (self.log.is_some() || self.log_server.is_some())
            && let Ok(limits) = self.limits()
        {
            let udp = self.is_udp();
            let full = self.log_full.to_possible_value();
            let memory = match limits.pool_bytes {
                0 => "two blocks".to_owned(),
                bytes => format_bytes(bytes as u64),
            };
            for (key, value) in [
                (
                    "log-block",
                    (if udp { limits.datagram_records } else { limits.block_records }).to_string(),
                ),
                ("log-flush", format_duration_ns(nanoseconds(limits.flush_age))),
                ("log-full", full.map_or_else(String::new, |full| full.get_name().to_owned())),
                ("log-memory", memory),
                ("fsync", limits.fsync.to_string()),
            ] {
                settings.push((key.to_owned(), value));
            }
        }
        settings
    }

    /// The secret of log servers.
    ///
    /// # Errors
    /// A file that cannot be read, or is empty.
    pub fn secret(&self) -> Result<Option<Vec<u8>>> {
        self.log_secret_file.as_deref().map(read_secret).transpose()
    }

    /// The keys for log servers over TLS.
    ///
    /// # Errors
    /// Files that are not there, or cannot be used.
    pub fn keys(&self) -> Result<Option<KeyDir>> {
        self.keys.as_deref().map(KeyDir::load).transpose().map_err(refuse)
    }

    /// In words, for the settings.
    fn describe(&self) -> String {
        match (&self.log, &self.log_server) {
            (Some(path), _) => path.display().to_string(),
            (None, Some(url)) => url.clone(),
            (None, None) => "none".to_owned(),
        }
    }
}

/// Reads a secret; line ends at its end do not belong to it.
///
/// # Errors
/// A file that cannot be read, that others can read or change, or that is empty.
pub fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let file = path.display();
    let read = itg_trust::read_guarded(path, true);
    let mut secret = read.map_err(|why| refuse(format!("secret file {file}: {why}")))?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(refuse(format!("secret file {file} is empty")));
    }
    Ok(secret)
}

/// A log that cannot be had, with its exit code: 3 for a log server, 2 for a file that is left alone, 1 for one that
/// cannot be written.
#[must_use]
pub fn log_failure(error: io::Error) -> anyhow::Error {
    let code = match error.kind() {
        io::ErrorKind::NotConnected => 3,
        io::ErrorKind::AlreadyExists | io::ErrorKind::ResourceBusy => 2,
        _ => 1,
    };
    Failure::new(code, error).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_are_rotated_by_size_or_by_time() {
        let second = Duration::from_secs(1);
        for (text, want) in [
            ("1Gi", Some((Some(1 << 30), None))),
            ("10M", Some((Some(10_000_000), None))),
            ("24h", Some((None, Some(86_400 * second)))),
            ("10min", Some((None, Some(600 * second)))),
            ("1s", Some((None, Some(second)))),
            ("1Ki", None),
            ("999ms", None),
            ("daily", None),
            ("0", None),
        ] {
            let got = rotated_at(text).ok().map(|at| {
                let rotation = RotationArgs { log_rotate: Some(at), log_keep: None }.rotation();
                (rotation.bytes, rotation.every)
            });
            assert_eq!(got, want, "{text}");
        }
    }

    #[test]
    fn rates_are_sizes_a_second() {
        for (text, want) in [
            ("20MB/s", Some(20_000_000)),
            ("64Ki", Some(65_536)),
            ("0", None),
            ("fast", None),
            ("20MB/h", None),
        ] {
            assert_eq!(parse_throttle(text).ok(), want, "rate {text:?}");
        }
    }
}
