//! The log of one sender's packets: the receiver's own, one that the sender has asked for, or none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use itg_engine::log::{Log, LogServerTarget, LogTarget, LogUrl};
use itg_session::LogSummary;
use itg_session::logs::Role;
use itg_socket::socket::SocketError;

use super::log_name::log_path;
use super::shared::{COMMON_LOG, Shared, log_info};
use crate::lock::lock;

/// Log of this sender's packets.
pub(super) enum SessionLog {
    None,
    Common,
    Own(usize, Log),
    Impossible(String),
}

impl SessionLog {
    /// The log of a run's packets, of which its sender wishes this; may wait for a log server.
    pub(super) fn choose(shared: &Shared, run: &str, wish: Option<String>) -> Self {
        let options = &shared.options;
        match (wish, &options.log_dir) {
            (None, _) if options.log.is_some() => Self::Common,
            (None, _) => Self::None,
            (Some(wish), _) if wish.contains("://") => {
                let server = server_of(shared, run, &wish);
                Self::own(shared, server.map(|server| LogTarget::Server(Box::new(server))))
            }
            (Some(_), None) => Self::Impossible(
                "the receiver keeps no logs for senders: start it with --log-dir DIR".to_owned(),
            ),
            (Some(name), Some(dir)) => {
                let file = log_path(dir, &name).and_then(|path| {
                    if lock(&shared.own_logs).insert(path.display().to_string()) {
                        Ok(LogTarget::Named { path, quota: options.log_quota.clone() })
                    } else {
                        Err(format!(
                            "log name `{name}`: another sender's log of that name is being \
                             written; choose another name"
                        ))
                    }
                });
                Self::own(shared, file)
            }
        }
    }

    /// Starts a log of this session's own.
    fn own(shared: &Shared, target: Result<LogTarget, String>) -> Self {
        let info = log_info(&shared.options);
        let limits = shared.options.log_limits;
        let created = target.and_then(|target| {
            // Registering with a log server takes a round trip or, when it is away, some seconds.
            tokio::task::block_in_place(|| Log::create(&target, info, limits)).map_err(|error| {
                if let LogTarget::Named { path, .. } = &target {
                    lock(&shared.own_logs).remove(&path.display().to_string());
                }
                error.to_string()
            })
        });
        match created {
            Err(why) => Self::Impossible(why),
            Ok(log) => {
                let id = shared.next_log.fetch_add(1, Ordering::Relaxed);
                shared.rx.log(id, &log);
                Self::Own(id, log)
            }
        }
    }

    /// The number of the log of this session.
    pub(super) fn number(&self) -> Result<Option<usize>, String> {
        match self {
            Self::None => Ok(None),
            Self::Common => Ok(Some(COMMON_LOG)),
            Self::Own(id, _) => Ok(Some(*id)),
            Self::Impossible(why) => Err(why.clone()),
        }
    }

    /// Closes it; a sender's `records` in the common one are those that were not lost since `lost_before`.
    pub(super) async fn close(
        self,
        shared: &Arc<Shared>,
        (records, lost_before): (u64, u64),
    ) -> Option<LogSummary> {
        match self {
            Self::None | Self::Impossible(_) => None,
            Self::Common => {
                let shared = Arc::clone(shared);
                let settling = tokio::task::spawn_blocking(move || {
                    let settled = lock(&shared.log).as_ref().map(Log::settle)?;
                    // The writer has ended when it does not answer; then all is as it was.
                    let lost = settled.recv().unwrap_or(lost_before);
                    // Exact for one sender at a time; of several at once, each may be told of all.
                    let lost_records = (lost - lost_before).min(records);
                    lock(&shared.log).as_ref().map(|log| LogSummary {
                        file: log.place().to_owned(),
                        records: records - lost_records,
                        lost_records,
                        error: log.error(),
                    })
                });
                settling.await.ok().flatten()
            }
            Self::Own(id, log) => {
                let shared = Arc::clone(shared);
                let closing = tokio::task::spawn_blocking(move || {
                    shared.rx.close_log(id);
                    let outcome = log.close();
                    lock(&shared.own_logs).remove(&outcome.place);
                    outcome
                });
                closing.await.ok().map(|outcome| LogSummary {
                    file: outcome.place,
                    records: outcome.records,
                    lost_records: outcome.lost_records,
                    error: outcome.error,
                })
            }
        }
    }
}

/// Returns the log server that a sender requests for its packets' log.
fn server_of(shared: &Shared, run: &str, wish: &str) -> Result<LogServerTarget, String> {
    if !shared.options.allow_log_servers {
        return Err("the receiver sends no logs to servers that senders name: start it with \
                    --allow-log-servers"
            .to_owned());
    }
    let url: LogUrl = tokio::task::block_in_place(|| wish.parse())
        .map_err(|error: SocketError| error.to_string())?;
    Ok(LogServerTarget {
        keys: url.keys(shared.options.log_keys.as_ref())?,
        transport: url.transport,
        address: url.address,
        run: url.name.unwrap_or_else(|| run.to_owned()),
        role: Role::Receiver,
        secret: shared.options.secret.clone(),
        spool: None,
    })
}
