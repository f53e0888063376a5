//! Settings of a log server.

use std::net::SocketAddr;
use std::path::PathBuf;

use itg_engine::log::Fsync;
use itg_session::logs::LogLimits;
use itg_trust::KeyDir;

use crate::setters::setters;

/// Connections of one address at the same time, unless the user says otherwise.
const PRODUCERS_PER_ADDRESS: usize = 128;

/// Settings of a log server: [`LogServerOptions::new`], then what differs from its defaults.
#[derive(Clone, Debug)]
pub struct LogServerOptions {
    /// Address that producers connect to; UDP blocks come to the same port.
    pub(crate) listen: SocketAddr,
    /// Directory of the experiments' files; nothing is written outside it.
    pub(crate) dir: PathBuf,
    /// Secret that producers must know.
    pub(crate) secret: Option<Vec<u8>>,
    /// Keys with which producers and this server prove to each other who they are (TLS); then nothing is plain,
    /// and no block comes by UDP.
    pub(crate) keys: Option<KeyDir>,
    /// Bounds on producers and memory.
    pub(crate) limits: LogLimits,
    /// Connections of one address at the same time.
    pub(crate) max_per_address: usize,
    /// For measurements: the file of an experiment takes no more bytes a second than this.
    pub(crate) throttle_bytes_per_s: Option<u64>,
    /// Syncing of the experiments' files; with [`Fsync::Block`] a block is acknowledged when it is safe from
    /// a loss of power.
    pub(crate) fsync: Fsync,
}

impl LogServerOptions {
    /// A log server that listens at `listen` (port 0 lets the system choose), stores logs below `dir`, asks for no
    /// secret and speaks no TLS.
    #[must_use]
    pub fn new(listen: SocketAddr, dir: impl Into<PathBuf>) -> Self {
        Self {
            listen,
            dir: dir.into(),
            secret: None,
            keys: None,
            limits: LogLimits::default(),
            max_per_address: PRODUCERS_PER_ADDRESS,
            throttle_bytes_per_s: None,
            fsync: Fsync::Never,
        }
    }

    setters! {
        /// Sets the secret that producers must know.
        secret(secret: into Option<Vec<u8>>);

        /// Sets the keys with which producers and this server prove to each other who they are (TLS).
        keys(keys: into Option<KeyDir>);

        /// Sets the bounds on producers and memory.
        limits(limits: LogLimits);

        /// Sets the number of connections of one address at the same time.
        max_per_address(max_per_address: usize);

        /// For measurements: the file of an experiment takes no more bytes a second than this.
        throttle_bytes_per_s(throttle_bytes_per_s: into Option<u64>);

        /// Sets when the files of experiments are synced.
        fsync(fsync: Fsync);
    }
}
