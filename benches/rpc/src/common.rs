//! Request and thread that all ways of a call share.

use anyhow::Result;

/// Byte that requests and replies consist of.
pub(crate) const BYTE: u8 = 7;

/// Does this on one thread, as plain sockets do.
pub(crate) fn on_one_thread<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}
