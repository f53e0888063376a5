//! Round-trips of plain sockets, without any of our layers: what the transports themselves cost.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use anyhow::{Context as _, Result, anyhow};
use itg_socket::clock::monotonic_ns;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

use super::common::percentile;

/// Round-trips before the measurement.
const WARM_UP: usize = 1000;

/// Two processors that this program may run on; twice the same when there is one.
pub(crate) fn two_cores() -> Result<(usize, usize)> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cores = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false));
    let first = cores.next().context("no processor")?;
    Ok((first, cores.next().unwrap_or(first)))
}

/// Does something on one processor: so do the threads and processes that it starts.
pub(crate) fn on_core<R>(core: usize, act: impl FnOnce() -> R) -> Result<R> {
    let before = sched_getaffinity(Pid::from_raw(0))?;
    let mut one = CpuSet::new();
    one.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &one)?;
    let done = act();
    sched_setaffinity(Pid::from_raw(0), &before)?;
    Ok(done)
}

/// Median round-trip of messages of this size between two threads on these processors over TCP on loopback,
/// in nanoseconds.
pub(crate) fn tcp(size: usize, count: usize, cores: (usize, usize)) -> Result<u64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a port")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    on_core(cores.0, || round_trips(near, far, size, count, cores.1))?
}

/// The same over a pair of Unix sockets.
pub(crate) fn unix(size: usize, count: usize, cores: (usize, usize)) -> Result<u64> {
    let (near, far) = UnixStream::pair()?;
    on_core(cores.0, || round_trips(near, far, size, count, cores.1))?
}

fn round_trips<S: Read + Write + Send + 'static>(
    mut near: S,
    mut far: S,
    size: usize,
    count: usize,
    core: usize,
) -> Result<u64> {
    let total = WARM_UP + count;
    let echo = thread::spawn(move || -> Result<()> {
        on_core(core, || {
            let mut buffer = vec![0; size];
            for _ in 0..total {
                far.read_exact(&mut buffer)?;
                far.write_all(&buffer)?;
            }
            Ok(())
        })?
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
