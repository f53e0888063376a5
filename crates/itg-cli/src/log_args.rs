//! Where a program's own log goes: a file, or a log server.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use clap::Args;
use itg_net::{LogServerTarget, LogTarget, LogUrl};
use itg_session::logs::Role;

use crate::failure::refuse;

/// Arguments about a program's log.
#[derive(Clone, Debug, Args)]
pub struct LogArgs {
    /// Log every packet to this file; an older file of that name is replaced
    #[arg(long, value_name = "FILE", conflicts_with = "log_server")]
    log: Option<PathBuf>,
    /// Log every packet to a log server (itg-log): tcp://HOST:PORT or udp://HOST:PORT
    #[arg(long, value_name = "URL")]
    log_server: Option<String>,
    /// File for blocks while the log server is away (TCP); they are sent when it is back
    #[arg(long, value_name = "FILE", requires = "log_server")]
    log_spool: Option<PathBuf>,
    /// File with the secret of the log server
    #[arg(long, value_name = "FILE")]
    log_secret_file: Option<PathBuf>,
}

impl LogArgs {
    /// The log that was asked for; `run` names the experiment at a log server.
    ///
    /// # Errors
    /// A URL or a secret that cannot be used.
    pub fn target(&self, run: &str, role: Role) -> Result<Option<LogTarget>> {
        if let Some(path) = &self.log {
            return Ok(Some(LogTarget::File(path.clone())));
        }
        let Some(url) = &self.log_server else { return Ok(None) };
        let url: LogUrl = url.parse().map_err(refuse)?;
        Ok(Some(LogTarget::Server(Box::new(LogServerTarget {
            transport: url.transport,
            address: url.address,
            run: run.to_owned(),
            role,
            secret: self.secret()?,
            spool: self.log_spool.clone(),
        }))))
    }

    /// The secret of log servers.
    ///
    /// # Errors
    /// A file that cannot be read, or is empty.
    pub fn secret(&self) -> Result<Option<Vec<u8>>> {
        self.log_secret_file.as_deref().map(read_secret).transpose()
    }

    /// In words, for the settings.
    #[must_use]
    pub fn describe(&self) -> String {
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
/// A file that cannot be read, or is empty.
pub fn read_secret(path: &Path) -> Result<Vec<u8>> {
    let file = path.display();
    let mut secret =
        fs::read(path).map_err(|error| refuse(format!("secret file {file}: {error}")))?;
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    if secret.is_empty() {
        return Err(refuse(format!("secret file {file} is empty")));
    }
    Ok(secret)
}
