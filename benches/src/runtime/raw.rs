//! The same with plain sockets.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use itg_trials::said;

use crate::runtime::layers::STREAM_BODY;
use crate::runtime::work::Work;

/// Bytes of one read of a stream.
const READ: usize = 128 << 10;
/// Time after which a datagram without a reply counts as lost.
const LOST: Duration = Duration::from_millis(200);

/// Prints the result of a trial.
pub(crate) fn result(work: Work, count: u64, seconds: f64) {
    let unit = if work == Work::TcpStream { 1000.0 } else { 1.0 };
    crate::print(format_args!("result {}", count as f64 / unit / seconds.max(1e-9)));
}

pub(crate) fn serve(work: Work, seconds: f64) -> Result<()> {
    let any = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    if work == Work::UdpRr {
        let socket = UdpSocket::bind(any)?;
        socket.set_read_timeout(Some(Duration::from_secs_f64(seconds) + Duration::from_secs(5)))?;
        said(socket.local_addr()?);
        let mut byte = [0; 1];
        // The last datagram is empty.
        while let (1.., from) = socket.recv_from(&mut byte)? {
            socket.send_to(&byte, from)?;
        }
        return Ok(());
    }
    let listener = TcpListener::bind(any)?;
    said(listener.local_addr()?);
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    if work == Work::TcpRr {
        let mut byte = [0; 1];
        while let 1.. = stream.read(&mut byte)? {
            stream.write_all(&byte)?;
        }
        return Ok(());
    }
    let mut buffer = vec![0; READ];
    let mut bytes = 0;
    let mut begin = None;
    loop {
        match stream.read(&mut buffer)? {
            0 => break,
            got => {
                begin.get_or_insert_with(Instant::now);
                bytes += got as u64;
            }
        }
    }
    result(work, bytes, begin.context("nothing came")?.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) fn call(work: Work, at: SocketAddr, seconds: f64) -> Result<()> {
    let time = Duration::from_secs_f64(seconds);
    let mut byte = [7; 1];
    let mut count = 0;
    if work == Work::UdpRr {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.connect(at)?;
        socket.set_read_timeout(Some(LOST))?;
        let begin = Instant::now();
        let mut lost = 0;
        while begin.elapsed() < time {
            socket.send(&byte)?;
            match socket.recv(&mut byte) {
                Ok(_) => count += 1,
                Err(error) if error.kind() == ErrorKind::WouldBlock => lost += 1,
                Err(error) => return Err(error.into()),
            }
            ensure!(lost < 10, "ten datagrams got lost over loopback");
        }
        result(work, count, begin.elapsed().as_secs_f64());
        socket.send(&[])?;
        return Ok(());
    }
    let mut stream = TcpStream::connect(at)?;
    stream.set_nodelay(true)?;
    let begin = Instant::now();
    if work == Work::TcpRr {
        while begin.elapsed() < time {
            stream.write_all(&byte)?;
            stream.read_exact(&mut byte)?;
            count += 1;
        }
        result(work, count, begin.elapsed().as_secs_f64());
        return Ok(());
    }
    let body = vec![7; STREAM_BODY];
    while begin.elapsed() < time {
        stream.write_all(&body)?;
    }
    Ok(())
}
