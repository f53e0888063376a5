//! Connections whose other end is silent.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Has a connection end by itself when its other end has been silent for about this long although the kernel
/// asked it (`TCP_USER_TIMEOUT`, and keepalive probes while nothing is sent).
///
/// # Errors
/// The system knows no such options for this socket.
pub fn end_when_silent(stream: &impl AsFd, silence: Duration) -> io::Result<()> {
    let socket = SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(silence))?;
    let probes = TcpKeepalive::new().with_time(silence / 2).with_interval(Duration::from_secs(1));
    socket.set_tcp_keepalive(&probes.with_retries(3))
}

/// Leaves the keepalive probes of [`end_when_silent`] out: the other end is asked by messages of one's own, and the
/// connection ends when these are not acknowledged.
///
/// # Errors
/// The system knows no such option for this socket.
pub fn without_probes(stream: &impl AsFd) -> io::Result<()> {
    SockRef::from(stream).set_keepalive(false)
}
