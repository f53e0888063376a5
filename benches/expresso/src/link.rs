//! The ways from sender to receiver. Both ends are in one thread: the sockets do not block, and the
//! receiver's reads push what the sender has not got rid of, so that times are those of the work and
//! not of waking threads up.

use std::io::{self, IoSlice, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;

/// A connection with both its ends.
pub(crate) struct Link {
    tx: Box<dyn Write>,
    rx: Box<dyn Read>,
}

impl Link {
    pub(crate) fn unix() -> io::Result<Self> {
        let (tx, rx) = UnixStream::pair()?;
        tx.set_nonblocking(true)?;
        rx.set_nonblocking(true)?;
        Ok(Self { tx: Box::new(tx), rx: Box::new(rx) })
    }

    pub(crate) fn tcp() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let tx = TcpStream::connect(listener.local_addr()?)?;
        let (rx, _) = listener.accept()?;
        tx.set_nodelay(true)?;
        tx.set_nonblocking(true)?;
        rx.set_nonblocking(true)?;
        Ok(Self { tx: Box::new(tx), rx: Box::new(rx) })
    }

    /// Starts sending; reading from what is returned receives.
    pub(crate) fn send<'a>(&'a mut self, slices: &'a mut [IoSlice<'a>]) -> Transfer<'a> {
        Transfer { link: self, left: slices }
    }
}

/// Bytes on their way.
pub(crate) struct Transfer<'a> {
    link: &'a mut Link,
    left: &'a mut [IoSlice<'a>],
}

impl Transfer<'_> {
    fn push(&mut self) -> io::Result<()> {
        while !self.left.is_empty() {
            match self.link.tx.write_vectored(self.left) {
                Ok(written) => IoSlice::advance_slices(&mut self.left, written),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

impl Read for Transfer<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            self.push()?;
            match self.link.rx.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    }
}
