//! Trait for putting datagrams on the wire: the seam between the sending thread, which decides what
//! leaves when, and the ways out of this host.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use crate::mmsg::{self, Outgoing};
use crate::socket::DataSocket;

/// A way out of this host, for the datagrams of many flows. Only the sending thread uses it.
pub trait Wire: fmt::Debug + Send {
    /// Puts datagrams of one flow on the wire, in order and without waiting, and returns how many it
    /// took: at least one.
    ///
    /// # Errors
    /// Reason why the first one was not taken, as the kernel says it of `send`: `WouldBlock` when there is
    /// no room, see [`Wire::watched`].
    fn send(&mut self, flow: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize>;

    /// Makes the call that sends, with no datagram in it, so that this program's part and the entry into the kernel are
    /// in the processor's caches.
    fn warm_up(&mut self, _flow: &DataSocket) {}

    /// Returns the descriptor that becomes writable when there is room again.
    fn watched<'a>(&'a self, flow: &'a DataSocket) -> BorrowedFd<'a> {
        flow.socket.as_fd()
    }

    /// Returns the reason why packets do not leave as the flow asked for; `None` when they do.
    fn remark(&self) -> Option<&str> {
        None
    }
}

/// Each flow's own socket, many datagrams with one system call.
#[derive(Debug)]
pub struct Sockets;

impl Wire for Sockets {
    fn send(&mut self, flow: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        mmsg::send(flow.socket.as_fd(), packets)
    }

    fn warm_up(&mut self, flow: &DataSocket) {
        // Nothing is sent, so nothing can fail.
        drop(mmsg::send(flow.socket.as_fd(), &[]));
    }
}

/// Each flow's own socket, datagrams of equal size with one pass through the network stack, until the
/// kernel refuses to: for bursts.
#[derive(Debug, Default)]
pub struct Segments {
    together: mmsg::Together,
    refused: Option<String>,
}

impl Segments {
    /// Room for datagrams of equal size that are to leave as one message; `None` where they cannot, or
    /// where it is quicker to leave them where they are.
    pub fn room(&mut self, count: usize, size: usize) -> Option<&mut [u8]> {
        self.together.room(count, size).filter(|_| self.refused.is_none())
    }

    /// Sends the `count` datagrams of that room; `None` when the kernel does not cut messages here.
    ///
    /// # Errors
    /// The system's, in words where the caller shows them.
    pub fn send_room(
        &mut self,
        flow: &DataSocket,
        count: usize,
        size: usize,
    ) -> Option<io::Result<usize>> {
        match self.together.send(flow.socket.as_fd(), count, size) {
            Err(error) if cannot_cut(&error) => {
                self.refuse(flow, &error);
                None
            }
            done => Some(done.map(|()| count)),
        }
    }

    fn refuse(&mut self, flow: &DataSocket, error: &io::Error) {
        let to = flow.remote;
        tracing::warn!(%error, %to, "bursts are not cut by the kernel: packet by packet");
        self.refused = Some(format!("the kernel does not cut bursts here ({error})"));
    }
}

/// Returns true for the errors that mean that the kernel, or a device on the way, cannot cut messages.
fn cannot_cut(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EINVAL | libc::EIO | libc::EOPNOTSUPP | libc::EMSGSIZE)
    )
}

impl Wire for Segments {
    fn send(&mut self, flow: &DataSocket, packets: &[Outgoing<'_>]) -> io::Result<usize> {
        let socket = flow.socket.as_fd();
        if self.refused.is_some() {
            return mmsg::send(socket, packets);
        }
        match mmsg::send_cut(socket, packets, &mut self.together) {
            Err(error) if cannot_cut(&error) && mmsg::alike(packets) > 1 => {
                self.refuse(flow, &error);
                mmsg::send(socket, packets)
            }
            done => done,
        }
    }

    fn remark(&self) -> Option<&str> {
        self.refused.as_deref()
    }
}
