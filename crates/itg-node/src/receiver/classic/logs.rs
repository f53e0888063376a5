//! Logs that senders of D-ITG ask for.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use itg_classic::recv::TRUST_PEERS;
use itg_classic::wire::{PORT_LOG, RecvLog, log_file_name};
use itg_engine::log::{Log, LogTarget};

use super::super::options::ClassicNews;
use super::super::shared::{COMMON_LOG, Shared, SharedLog, log_info};
use super::Session;
use crate::lock::lock;
use itg_engine::{ClassicPlace, ClassicTarget};

/// Records written at a time unless told otherwise.
const BUFFER: u16 = 50;

/// Log of a sender's packets.
#[derive(Debug)]
pub(super) enum ChannelLog {
    None,
    Common,
    /// Under this number; a file is shared under its name.
    Own(usize, String),
}

impl ChannelLog {
    pub(super) const fn id(&self) -> Option<usize> {
        match self {
            Self::None => None,
            Self::Common => Some(COMMON_LOG),
            Self::Own(id, _) => Some(*id),
        }
    }
}

impl Session {
    /// Opens the log that the sender requests.
    pub(super) async fn open_log(&mut self, wish: &RecvLog) -> Result<(), String> {
        let options = &self.shared.options;
        let (name, target) = match wish {
            RecvLog::File { path } => {
                // A receiver with a log of its own writes no others, as D-ITG's.
                if options.log.is_some() && (options.classic.only || options.log_dir.is_none()) {
                    let text = format!(
                        "sender {} asks for the log {}: its packets go to the receiver's own",
                        self.peer,
                        path.escape_ascii()
                    );
                    self.news(ClassicNews::Notice(text));
                    return Ok(());
                }
                let dir = options
                    .log_dir
                    .as_ref()
                    .ok_or_else(|| self.refused("keeps no logs for senders", "--log-dir DIR"))?;
                let name = log_file_name(path)
                    .ok_or_else(|| format!("`{}` is no plain file name", path.escape_ascii()))?;
                let path = dir.join(name);
                let (replace, quota) = (options.replace_logs, options.log_quota.clone());
                (path.display().to_string(), ClassicPlace::Named { path, replace, quota })
            }
            RecvLog::Server { address, proto, path } => {
                if !options.allow_log_servers {
                    let what = "sends no logs to servers that senders name";
                    return Err(self.refused(what, "--allow-log-servers"));
                }
                let path = String::from_utf8_lossy(path).into_owned();
                let address = SocketAddr::new(*address, PORT_LOG);
                let id = self.shared.next_log.load(Ordering::Relaxed);
                let place = ClassicPlace::Server { address, proto: *proto, path };
                (format!("server log of {} ({id})", self.peer), place)
            }
        };
        let buffer = match options.classic.buffer {
            0 => BUFFER,
            records => records,
        };
        let target = ClassicTarget { place: target, buffer };
        let shared = Arc::clone(&self.shared);
        let key = name.clone();
        let opening = tokio::task::spawn_blocking(move || open(&shared, key, target));
        let id = opening.await.map_err(|error| error.to_string())??;
        self.log = ChannelLog::Own(id, name);
        Ok(())
    }

    /// Reason for which a log is not kept, and the option that allows it.
    fn refused(&self, what: &str, option: &str) -> String {
        let like_d_itg = if self.shared.options.classic.only {
            format!(", or with {TRUST_PEERS}, which allows peers what D-ITG allows them")
        } else {
            String::new()
        };
        format!("this receiver {what}: start it with {option}{like_d_itg}")
    }

    /// Waits until what has come so far is written.
    pub(super) async fn settle_log(&self) {
        let shared = Arc::clone(&self.shared);
        let settling = match &self.log {
            ChannelLog::None => return,
            ChannelLog::Common => lock(&shared.log).as_ref().map(Log::settle),
            ChannelLog::Own(_, name) => {
                lock(&shared.classic_logs).0.get(name).map(|shared| shared.log.settle())
            }
        };
        let Some(settling) = settling else { return };
        // An error means that the writer has ended: the outcome of the log says so.
        let waiting = tokio::task::spawn_blocking(move || settling.recv().unwrap_or_default());
        waiting.await.unwrap_or_default();
    }

    /// Leaves the log, and closes it if no other session uses it.
    pub(super) async fn close_log(&mut self) {
        let ChannelLog::Own(id, name) = std::mem::replace(&mut self.log, ChannelLog::None) else {
            return;
        };
        let shared = Arc::clone(&self.shared);
        let closing = tokio::task::spawn_blocking(move || close(&shared, id, &name));
        if let Ok(Some(text)) = closing.await {
            self.news(ClassicNews::Notice(text));
        }
    }
}

fn open(shared: &Shared, name: String, target: ClassicTarget) -> Result<usize, String> {
    let mut files = None;
    if let ClassicPlace::Named { .. } = &target.place {
        let mut logs = lock(&shared.classic_logs);
        if let Some(log) = logs.0.get_mut(&name) {
            log.users += 1;
            return Ok(log.id);
        }
        files = Some(logs);
    }
    let target = LogTarget::Classic(Box::new(target));
    let log = Log::create(&target, log_info(&shared.options), shared.options.log_limits);
    let log = log.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists if !shared.options.replace_logs => {
            format!("{error}, or start the receiver with --replace-logs")
        }
        _ => error.to_string(),
    })?;
    let id = shared.next_log.fetch_add(1, Ordering::Relaxed);
    shared.rx.log(id, &log);
    let mut logs = files.unwrap_or_else(|| lock(&shared.classic_logs));
    logs.0.insert(name, SharedLog { id, log, users: 1 });
    Ok(id)
}

/// Gives up one use of a log and closes it after the last one; returns what went wrong with it.
fn close(shared: &Shared, id: usize, name: &str) -> Option<String> {
    let log = {
        let mut logs = lock(&shared.classic_logs);
        let log = logs.0.get_mut(name)?;
        log.users -= 1;
        if log.users > 0 {
            return None;
        }
        logs.0.remove(name)?
    };
    shared.rx.close_log(id);
    let outcome = log.log.close();
    outcome.error.map(|why| format!("{why} ({} records lost)", outcome.lost_records))
}
