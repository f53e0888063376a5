//! The receiving threads of a receiver. With several, the packets of UDP are spread over them by the
//! kernel (SO_REUSEPORT) after the number of their flow, so that each flow belongs to one thread.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use itg_engine::log::Log;
use itg_engine::rx::{Command, RxHandle};

/// Most threads: what the low byte of a flow's number can tell apart.
pub(super) const MOST: usize = 64;

/// The threads; at least one.
#[derive(Debug)]
pub(super) struct Shards(Vec<RxHandle>);

impl Shards {
    /// Starts them.
    pub(super) fn start(count: usize) -> io::Result<Self> {
        let name = |number| match number {
            0 => "itg-receive".to_owned(),
            number => format!("itg-receive-{number}"),
        };
        let threads = (0..count.clamp(1, MOST)).map(|number| RxHandle::start(&name(number)));
        threads.collect::<io::Result<_>>().map(Self)
    }

    /// Lets packets of any flow come from these addresses.
    pub(super) fn allow(&self, addresses: &[IpAddr]) {
        self.0.iter().for_each(|thread| thread.ask(Command::Allow(addresses.into())));
    }

    /// Packets and connections so far that belonged to no flow.
    pub(super) fn foreign(&self) -> u64 {
        self.0.iter().map(RxHandle::foreign).sum()
    }

    /// The thread of everything that is not spread.
    pub(super) fn first(&self) -> &RxHandle {
        &self.0[0]
    }

    /// The threads that read a port: all of them when its packets are spread, or the first alone.
    pub(super) fn reading(&self, spread: bool) -> &[RxHandle] {
        if spread { &self.0 } else { &self.0[..1] }
    }

    /// The thread that a flow belongs to.
    pub(super) fn of(&self, spread: bool, slot: usize) -> &RxHandle {
        let threads = self.reading(spread);
        // As `itg_socket::socket::spread` has the kernel do it.
        &threads[(slot & 0xFF) % threads.len()]
    }

    /// Gives all threads a log.
    pub(super) fn log(&self, id: usize, log: &Log) {
        let indices = Arc::new(AtomicU32::new(1));
        for thread in &self.0 {
            let indices = Arc::clone(&indices);
            thread.ask(Command::Log { id, producer: log.producer(), indices });
        }
    }

    /// Takes a log away from them, with all that they were given; waits at most five seconds for each.
    pub(super) fn close_log(&self, id: usize) {
        self.0.iter().for_each(|thread| thread.close_log(id));
    }
}
