//! Plain sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Result;
use itg_trials::said;

use crate::common::BYTE;
use crate::meter::Meter;

/// Answers each request with its first byte.
pub(crate) fn serve(size: usize) -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    said(listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut body = vec![0; size];
    loop {
        match stream.read_exact(&mut body) {
            Ok(()) => stream.write_all(&body[..1])?,
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

pub(crate) fn call(at: SocketAddr, size: usize, time: Duration) -> Result<Meter> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    let body = vec![BYTE; size];
    let mut reply = [0];
    let mut meter = Meter::start(time);
    loop {
        stream.write_all(&body)?;
        stream.read_exact(&mut reply)?;
        if !meter.lap(&reply) {
            return Ok(meter);
        }
    }
}
