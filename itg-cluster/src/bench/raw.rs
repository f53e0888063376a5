//! Round-trips of plain sockets, without any of our layers: what the transports themselves cost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use itg_net::clock::monotonic_ns;

use super::percentile;

/// Round-trips before the measurement.
const WARM_UP: usize = 1000;

/// Median round-trip of messages of this size between two threads over TCP on loopback, in nanoseconds.
pub(crate) fn tcp(size: usize, count: usize) -> Result<u64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    round_trips(near, far, size, count)
}

/// The same over a pair of Unix sockets.
pub(crate) fn unix(size: usize, count: usize) -> Result<u64> {
    let (near, far) = UnixStream::pair()?;
    round_trips(near, far, size, count)
}

fn round_trips<S: Read + Write + Send + 'static>(
    mut near: S,
    mut far: S,
    size: usize,
    count: usize,
) -> Result<u64> {
    let total = WARM_UP + count;
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let mut buffer = vec![0; size];
        for _ in 0..total {
            far.read_exact(&mut buffer)?;
            far.write_all(&buffer)?;
        }
        Ok(())
    });
    let mut buffer = vec![7; size];
    let mut times = Vec::with_capacity(total);
    for _ in 0..total {
        let begin = monotonic_ns();
        near.write_all(&buffer)?;
        near.read_exact(&mut buffer)?;
        times.push(monotonic_ns() - begin);
    }
    echo.join().map_err(|_| anyhow!("the echo stopped on a bug"))??;
    Ok(percentile(&mut times[WARM_UP..], 50))
}
