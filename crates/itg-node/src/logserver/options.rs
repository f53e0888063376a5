//! Settings of a log server.

use std::net::SocketAddr;
use std::path::PathBuf;

use itg_engine::log::Fsync;
use itg_session::logs::LogLimits;
use itg_trust::KeyDir;

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

    /// Sets the secret that producers must know.
    #[must_use]
    pub fn secret(mut self, secret: impl Into<Option<Vec<u8>>>) -> Self {
        self.secret = secret.into();
        self
    }

    /// Sets the keys with which producers and this server prove to each other who they are (TLS).
    #[must_use]
    pub fn keys(mut self, keys: impl Into<Option<KeyDir>>) -> Self {
        self.keys = keys.into();
        self
    }

    /// Sets the bounds on producers and memory.
    #[must_use]
    pub fn limits(mut self, limits: LogLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the number of connections of one address at the same time.
    #[must_use]
    pub fn max_per_address(mut self, connections: usize) -> Self {
        self.max_per_address = connections;
        self
    }

    /// For measurements: the file of an experiment takes no more bytes a second than this.
    #[must_use]
    pub fn throttle_bytes_per_s(mut self, bytes: impl Into<Option<u64>>) -> Self {
        self.throttle_bytes_per_s = bytes.into();
        self
    }

    /// Sets when the files of experiments are synced.
    #[must_use]
    pub fn fsync(mut self, fsync: Fsync) -> Self {
        self.fsync = fsync;
        self
    }
}
