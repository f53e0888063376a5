//! A connection to a log server, plain or with TLS: one thread writes, another one reads.
//!
//! With TLS both share its state. Neither holds it while it waits for the network: the reader unlocks it around each
//! read, and the writer seals into memory before it writes. The reader writes nothing; what TLS has to answer goes out
//! with the writer's next bytes.

use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use itg_trust::{Holder, KeyDir, Keys, Role, explain, server_name};
use rustls::ClientConnection;
use rustls::pki_types::CertificateDer;

/// Bytes that are read from the network at once.
const READ_BYTES: usize = 4096;

/// The writing end, which owns the connection.
#[derive(Debug)]
pub(crate) struct Line {
    tcp: TcpStream,
    tls: Option<Tls>,
}

/// TLS on a connection, after both ends have proved who they are.
#[derive(Debug)]
struct Tls {
    state: Arc<Mutex<ClientConnection>>,
    /// Bytes that are sealed and not written yet.
    sealed: Vec<u8>,
    keys: KeyDir,
    /// The keys with which the server was checked last, and its certificates.
    known: Arc<Keys>,
    chain: Vec<CertificateDer<'static>>,
}

/// The reading end.
pub(super) struct LineReader {
    tcp: TcpStream,
    tls: Option<Unsealing>,
}

struct Unsealing {
    state: Arc<Mutex<ClientConnection>>,
    /// Sealed bytes from the network: those from `at` to `end` are not unsealed yet.
    buffer: [u8; READ_BYTES],
    at: usize,
    end: usize,
}

fn lock(state: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A breach of TLS as an error of reading.
fn broken(error: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, error)
}

impl Line {
    pub(super) const fn plain(tcp: TcpStream) -> Self {
        Self { tcp, tls: None }
    }

    /// Proves with keys who we are, and has the server prove that it keeps logs in the same cluster.
    pub(super) fn proved(tcp: TcpStream, keys: &KeyDir, limit: Duration) -> Result<Self, String> {
        let known = keys.keys();
        let state = ClientConnection::new(known.client(), server_name());
        let mut state = state.map_err(|error| error.to_string())?;
        shake_hands(&tcp, &mut state, limit)
            .map_err(|error| explain(&error, "a log server with keys (itg-log --keys)"))?;
        let chain = state.peer_certificates().unwrap_or_default().to_vec();
        Holder::of_chain(Some(&chain)).must_be(&[Role::Log])?;
        let (state, keys) = (Arc::new(Mutex::new(state)), keys.clone());
        Ok(Self { tcp, tls: Some(Tls { state, sealed: Vec::new(), keys, known, chain }) })
    }

    /// Bounds the time of a write.
    pub(super) fn limit_writes(&self, limit: Duration) -> io::Result<()> {
        self.tcp.set_write_timeout(Some(limit))
    }

    /// The reading end, for another thread.
    pub(super) fn reader(&self) -> io::Result<LineReader> {
        let tls = self.tls.as_ref().map(|tls| {
            let state = Arc::clone(&tls.state);
            Unsealing { state, buffer: [0; READ_BYTES], at: 0, end: 0 }
        });
        Ok(LineReader { tcp: self.tcp.try_clone()?, tls })
    }

    /// Writes all of these bytes.
    pub(super) fn write(&mut self, slices: &mut [IoSlice<'_>]) -> io::Result<()> {
        let Some(Tls { state, sealed, .. }) = &mut self.tls else {
            return write_all(slices, |rest| self.tcp.write_vectored(rest));
        };
        sealed.clear();
        let mut state = lock(state);
        write_all(slices, |rest| {
            let count = state.writer().write_vectored(rest)?;
            while state.wants_write() {
                state.write_tls(sealed)?;
            }
            Ok(count)
        })?;
        drop(state);
        self.tcp.write_all(sealed)
    }

    /// Checks the server's certificate again when the files of keys have changed.
    pub(super) fn check(&mut self) -> Result<(), String> {
        let Some(Tls { keys, known, chain, .. }) = &mut self.tls else { return Ok(()) };
        keys.check_again(known, chain)
    }

    pub(super) fn shut_down(&self) {
        // Fails when the other side has hung up before.
        self.tcp.shutdown(Shutdown::Both).unwrap_or_default();
    }
}

fn write_all(
    mut rest: &mut [IoSlice<'_>],
    mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
) -> io::Result<()> {
    while !rest.is_empty() {
        match write(rest) {
            Ok(0) => return Err(io::Error::new(ErrorKind::WriteZero, "it takes no more bytes")),
            Ok(count) => IoSlice::advance_slices(&mut rest, count),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Exchanges what TLS begins with, within a time limit.
fn shake_hands(
    mut tcp: &TcpStream,
    state: &mut ClientConnection,
    limit: Duration,
) -> io::Result<()> {
    let deadline = Instant::now() + limit;
    while state.is_handshaking() || state.wants_write() {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::Error::new(ErrorKind::TimedOut, "it did not prove who it is in time"));
        }
        if state.wants_write() {
            tcp.set_write_timeout(Some(left))?;
            state.write_tls(&mut tcp)?;
        } else {
            tcp.set_read_timeout(Some(left))?;
            if state.read_tls(&mut tcp)? == 0 {
                return Err(io::Error::new(ErrorKind::UnexpectedEof, "it closed the connection"));
            }
            if let Err(error) = state.process_new_packets() {
                // The server is told why, if it can be.
                state.write_tls(&mut tcp).unwrap_or_default();
                return Err(broken(error));
            }
        }
    }
    tcp.set_read_timeout(None)
}

impl Read for LineReader {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let Some(tls) = &mut self.tls else { return self.tcp.read(into) };
        loop {
            let mut state = lock(&tls.state);
            match state.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if tls.at < tls.end {
                let mut sealed = &tls.buffer[tls.at..tls.end];
                tls.at += state.read_tls(&mut sealed)?;
                state.process_new_packets().map_err(broken)?;
                continue;
            }
            drop(state);
            let count = self.tcp.read(&mut tls.buffer)?;
            if count == 0 {
                // Every log ends with words of its protocol: one that was cut off cannot pass for whole.
                return Ok(0);
            }
            (tls.at, tls.end) = (0, count);
        }
    }
}
