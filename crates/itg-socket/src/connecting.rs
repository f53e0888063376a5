//! Reasons why a connection was not made.

use std::io;
use std::net::SocketAddr;

use itg_core::flow::Proto;

use crate::socket::SocketError;

/// The refusal of a connection; one that nobody answered says what to let through.
pub(crate) fn not_connected(
    step: &str,
    error: &io::Error,
    proto: Proto,
    target: SocketAddr,
) -> SocketError {
    let step = format!("{step} {proto} to {target}");
    match error.kind() {
        io::ErrorKind::TimedOut => {
            SocketError::new(step, format!("{error}: {}", proto.let_through(target.port())))
        }
        _ => SocketError::io(step, error),
    }
}
