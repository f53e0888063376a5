//! Resources that the host grants to a sending thread: quick wake-ups, real-time priority, a
//! processor.
//!
//! Each request is tried by carrying it out, and a refusal is a sentence and not an error: an
//! ordinary user gets the next best level and is told.

use std::fmt;
use std::fs::File;
use std::io::Write as _;
use std::num::NonZeroU32;

use itg_core::units::{format_duration_ns, nanoseconds};
use itg_socket::xdp::PacketEngine;
use itg_socket::{clock, sys, txtime};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::mman::{MlockAllFlags, mlockall, munlockall};
use nix::unistd::Pid;

use super::options::{Level, PacingOptions};

/// File through which the kernel takes the largest permitted wake-up latency
/// (Documentation/power/pm_qos).
const DMA_LATENCY: &str = "/dev/cpu_dma_latency";

/// Largest difference of due times in one batch when no precision is declared: 20 µs.
const TOLERANCE_NS: u64 = 20_000;

/// Outcome of a request to the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Not asked for.
    Unasked,
    /// Held.
    Granted,
    /// Refused, and why.
    Refused(String),
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unasked => f.write_str("no"),
            Self::Granted => f.write_str("yes"),
            Self::Refused(why) => write!(f, "refused ({why})"),
        }
    }
}

/// Processors kept awake, memory locked: held until dropped.
#[derive(Debug)]
pub struct Prepared {
    level: Level,
    options: PacingOptions,
    awake: Option<File>,
    /// Outcome for quick wake-ups: the processors are kept from sleeping deeply.
    pub quick: Grant,
    /// Outcome for real-time priority with locked memory.
    pub realtime: Grant,
    /// Outcome for binding the thread to its processor.
    pub pinned: Grant,
}

impl Prepared {
    /// Asks the host for what a level needs. Nothing of it outlives the value.
    #[must_use]
    pub fn new(level: Level, options: PacingOptions) -> Self {
        let (awake, quick) = if matches!(level, Level::Sleep | Level::Txtime) && !options.realtime {
            (None, Grant::Unasked)
        } else {
            match keep_awake() {
                Ok(file) => (Some(file), Grant::Granted),
                Err(error) => (None, Grant::Refused(format!("{DMA_LATENCY}: {error}"))),
            }
        };
        let realtime = match options.realtime {
            false => Grant::Unasked,
            true => try_realtime(),
        };
        let pinned = if options.cpu.is_some() { Grant::Granted } else { Grant::Unasked };
        let mut prepared = Self { level, options, awake, quick, realtime, pinned };
        prepared.pinned = prepared.try_pin();
        prepared
    }

    /// The level.
    #[must_use]
    pub const fn level(&self) -> Level {
        self.level
    }

    /// Engine through which packets leave.
    #[must_use]
    pub const fn engine(&self) -> PacketEngine {
        self.options.engine
    }

    /// Number of sockets that flows to one destination share; `None` where each has its own.
    pub const fn sockets(&self) -> Option<NonZeroU32> {
        self.options.sockets
    }

    /// Interval, in packets of a flow, between those that are stamped when they leave this host;
    /// `None`: none.
    pub fn stamp_every(&self) -> Option<u32> {
        let usual = (self.level == Level::Txtime).then_some(txtime::STAMP_EVERY);
        self.options.tx_stamps.map(NonZeroU32::get).or(usual)
    }

    /// Packets that are due at most this far apart may leave with one system call, in nanoseconds: the
    /// declared precision, or 20 µs.
    #[must_use]
    pub fn tolerance_ns(&self) -> u64 {
        self.options.max_error_p99.map_or(TOLERANCE_NS, nanoseconds)
    }

    /// In words, for settings.
    #[must_use]
    pub fn describe(&self) -> String {
        let cpu = match (self.options.cpu, &self.pinned) {
            (Some(cpu), Grant::Granted) => cpu.to_string(),
            (_, wish) => wish.to_string(),
        };
        let level = match self.level {
            Level::Txtime => format!(
                "txtime (the kernel keeps the times; packets are handed over at most {} ahead)",
                format_duration_ns(txtime::AHEAD_NS)
            ),
            level => level.to_string(),
        };
        format!(
            "{level}, quick wake-ups: {}, real-time priority: {}, processor: {cpu}",
            self.quick, self.realtime
        )
    }

    /// Refused requests, one sentence each.
    #[must_use]
    pub fn refusals(&self) -> Vec<String> {
        let wishes = [
            (
                &self.quick,
                "processors may sleep deeply between packets: wake-ups are some 15 µs later",
            ),
            (&self.realtime, "no real-time priority: other programs may delay packets"),
            (&self.pinned, "the sending thread is not bound to its processor"),
        ];
        let refused = wishes.into_iter().filter_map(|(wish, what)| match wish {
            Grant::Refused(why) => Some(format!("{what} ({why})")),
            _ => None,
        });
        refused.collect()
    }

    /// Gives the calling thread what was granted.
    pub(crate) fn enter(&self) -> Turn {
        clock::sharpen_timers();
        if self.pinned == Grant::Granted
            && let Some(cpu) = self.options.cpu
            && let Err(error) = pin(cpu)
        {
            tracing::warn!(%error, cpu, "the sending thread cannot be bound to its processor");
        }
        let fifo = self.realtime == Grant::Granted && self.level != Level::Spin;
        let fifo = fifo
            && sys::set_fifo(true)
                .inspect_err(|error| {
                    tracing::warn!(%error, "real-time priority");
                })
                .is_ok();
        // Many senders that wake at one instant go before the threads that their packets wake; one
        // that spins does not wake.
        if !fifo
            && self.level != Level::Spin
            && let Err(error) = sys::ask_for_short_turns()
        {
            tracing::debug!(%error, "short turns on the processor");
        }
        Turn { fifo, since_ns: clock::monotonic_ns() }
    }

    fn try_pin(&self) -> Grant {
        let Some(cpu) = self.options.cpu else { return Grant::Unasked };
        // Tried on a thread of its own, whose binding ends with it.
        let tried = std::thread::spawn(move || pin(cpu)).join();
        match tried {
            Ok(Ok(())) => Grant::Granted,
            Ok(Err(error)) => Grant::Refused(format!("processor {cpu}: {error}")),
            Err(_) => Grant::Refused(format!("processor {cpu}")),
        }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if self.realtime == Grant::Granted
            && let Err(error) = munlockall()
        {
            tracing::debug!(%error, "unlocking memory");
        }
        // Closing the file lets processors sleep again.
        self.awake = None;
    }
}

/// Tells the kernel that every wake-up counts, as long as the file is open.
fn keep_awake() -> std::io::Result<File> {
    let mut file = File::options().write(true).open(DMA_LATENCY)?;
    file.write_all(&0i32.to_ne_bytes())?;
    Ok(file)
}

/// Locks memory, and tries the priority on a thread of its own.
fn try_realtime() -> Grant {
    match std::thread::spawn(|| sys::set_fifo(true)).join() {
        Ok(Ok(())) => {}
        Ok(Err(error)) => return Grant::Refused(format!("SCHED_FIFO: {error}")),
        Err(_) => return Grant::Refused("SCHED_FIFO".to_owned()),
    }
    match mlockall(MlockAllFlags::MCL_CURRENT) {
        Ok(()) => Grant::Granted,
        Err(error) => Grant::Refused(format!("locking memory: {error}")),
    }
}

fn pin(cpu: u16) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(usize::from(cpu))?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Interval between looks at the share of time spent awake: 100 ms.
const LOOK_EVERY_NS: u64 = 100_000_000;
/// A real-time thread that sleeps less than this share of the time leaves its priority.
const LEAST_ASLEEP: f64 = 0.10;
/// It comes back when it sleeps more than this.
const ASLEEP_AGAIN: f64 = 0.30;

/// A thread at work with what it was granted.
///
/// The kernel stops a real-time thread that never sleeps for 50 ms of every second
/// (`sched_rt_runtime_us`), so one that hardly sleeps goes without the priority until it does again.
#[derive(Debug)]
pub(crate) struct Turn {
    fifo: bool,
    since_ns: u64,
}

impl Turn {
    /// Returns true if it is time to call [`Turn::look`].
    pub(crate) const fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.since_ns + LOOK_EVERY_NS
    }

    /// Looks at the time slept since the last look.
    pub(crate) fn look(&mut self, prepared: &Prepared, slept_ns: u64, now_ns: u64) {
        let span_ns = now_ns - self.since_ns;
        self.since_ns = now_ns;
        if prepared.realtime != Grant::Granted || prepared.level == Level::Spin {
            return;
        }
        let asleep = slept_ns as f64 / span_ns as f64;
        let wanted = if self.fifo { asleep >= LEAST_ASLEEP } else { asleep > ASLEEP_AGAIN };
        if wanted != self.fifo {
            match sys::set_fifo(wanted) {
                Ok(()) => self.fifo = wanted,
                Err(error) => tracing::debug!(%error, wanted, "real-time priority"),
            }
        }
    }
}
