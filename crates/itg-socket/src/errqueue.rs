//! The error queue of a socket: what the kernel says of packets that it took before.
#![expect(clippy::cast_possible_truncation, reason = "lengths of small C structs")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::ptr;

use libc::{mmsghdr, msghdr};

use crate::mmsg::{BATCH, control_messages, int};
use crate::sys;

/// Bytes for what is said of one packet: a stamp of three times (64), an extended error with an IPv6 address
/// (16 + 28), each behind a header, with room to spare.
const CONTROL_LEN: usize = 256;
/// Origins and codes of linux/errqueue.h.
const ORIGIN_STAMP: u8 = 4;
const ORIGIN_TXTIME: u8 = 6;
const CODE_TXTIME_MISSED: u8 = 2;

/// Has the kernel number and report the stamps that are asked for with single packets, from number 0 on.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn ask_for_departures(socket: &impl AsFd) -> io::Result<()> {
    let plain = libc::SOF_TIMESTAMPING_SOFTWARE | libc::SOF_TIMESTAMPING_OPT_TSONLY;
    let set = |flags: u32| {
        sys::set_int(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPING, flags.cast_signed())
    };
    // Switched on anew, numbers start from 0.
    set(plain)?;
    set(plain | libc::SOF_TIMESTAMPING_OPT_ID)
}

/// Report of the kernel on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorReport {
    /// The packet with this number among those whose stamp was asked for has left, at this Unix time in ns.
    Left {
        /// Number among those whose stamp was asked for.
        id: u32,
        /// Instant at which it left, in Unix nanoseconds.
        unix_ns: u64,
    },
    /// A queueing discipline dropped it: its time had passed.
    Missed,
    /// A queueing discipline dropped it: its time is none that it can use.
    Invalid,
}

/// Buffers to read error queues with.
pub struct ErrorQueue {
    controls: Box<[[u64; CONTROL_LEN / 8]]>,
    headers: Box<[mmsghdr]>,
}

// SAFETY: the raw pointers in `headers` lead only into `controls`, which this value owns, and they are
// written anew before each use.
unsafe impl Send for ErrorQueue {}

impl std::fmt::Debug for ErrorQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ErrorQueue").finish_non_exhaustive()
    }
}

impl Default for ErrorQueue {
    fn default() -> Self {
        Self::new()
    }
}

impl ErrorQueue {
    /// Buffers for one batch.
    pub fn new() -> Self {
        // SAFETY: mmsghdr is a C struct of integers and pointers; all-zero is a valid (empty) value.
        let empty = || unsafe { mem::zeroed::<mmsghdr>() };
        Self {
            controls: vec![[0; CONTROL_LEN / 8]; BATCH].into_boxed_slice(),
            headers: std::iter::repeat_with(empty).take(BATCH).collect(),
        }
    }

    /// Reads all that is there, without waiting.
    pub fn read(&mut self, socket: BorrowedFd<'_>, mut each: impl FnMut(ErrorReport)) {
        loop {
            for (header, control) in self.headers.iter_mut().zip(&mut self.controls) {
                // SAFETY: as in `new`.
                let mut fresh: msghdr = unsafe { mem::zeroed() };
                fresh.msg_control = control.as_mut_ptr().cast();
                fresh.msg_controllen = CONTROL_LEN;
                *header = mmsghdr { msg_hdr: fresh, msg_len: 0 };
            }
            // SAFETY: every header was filled just now with a pointer into `controls`, as long as stated,
            // and with no room for bytes of packets; the kernel writes at most that much.
            let got = unsafe {
                libc::recvmmsg(
                    socket.as_raw_fd(),
                    self.headers.as_mut_ptr(),
                    BATCH as u32,
                    libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
                    ptr::null_mut(),
                )
            };
            // An empty queue is an error too.
            let Ok(got) = usize::try_from(got) else { return };
            for (header, control) in self.headers.iter().zip(&self.controls).take(got) {
                let mut bytes = [0; CONTROL_LEN];
                for (to, word) in bytes.chunks_exact_mut(8).zip(control) {
                    to.copy_from_slice(&word.to_ne_bytes());
                }
                let used = header.msg_hdr.msg_controllen.min(CONTROL_LEN);
                if let Some(said) = said(&bytes[..used]) {
                    each(said);
                }
            }
            if got < BATCH {
                return;
            }
        }
    }
}

/// Decodes the control messages of one entry; `None` for entries of other origins.
fn said(control: &[u8]) -> Option<ErrorReport> {
    let mut stamp = None;
    let mut error = None;
    for (level, kind, data) in control_messages(control) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING) => {
                let word = |at: usize| Some(u64::from_ne_bytes(*data.get(at..)?.first_chunk()?));
                // The first of three is the software's.
                let nanos = |s: u64, ns: u64| s.checked_mul(1_000_000_000)?.checked_add(ns);
                stamp = word(0).zip(word(8)).and_then(|(s, ns)| nanos(s, ns));
            }
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                // struct sock_extended_err: error (4), origin, type, code, filling, info (4), data (4).
                error = data.get(12..).and_then(int).map(|id| (data[4], data[6], id));
            }
            _ => {}
        }
    }
    match error? {
        (ORIGIN_STAMP, _, id) => {
            Some(ErrorReport::Left { id: id.cast_unsigned(), unix_ns: stamp? })
        }
        (ORIGIN_TXTIME, CODE_TXTIME_MISSED, _) => Some(ErrorReport::Missed),
        (ORIGIN_TXTIME, _, _) => Some(ErrorReport::Invalid),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (16 + data.len() as u64).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn error(origin: u8, code: u8, data: u32) -> Vec<u8> {
        let mut bytes = vec![0, 0, 0, 0, origin, 0, code, 0, 0, 0, 0, 0];
        bytes.extend(data.to_ne_bytes());
        bytes
    }

    fn stamp(seconds: u64, nanos: u64) -> Vec<u8> {
        let words = [seconds, nanos, 0, 0, 0, 0].map(u64::to_ne_bytes);
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPING, &words.concat())
    }

    #[test]
    fn what_the_kernel_says_is_read() {
        let v4 = |bytes: &[u8]| message(libc::SOL_IP, libc::IP_RECVERR, bytes);
        let v6 = |bytes: &[u8]| message(libc::SOL_IPV6, libc::IPV6_RECVERR, bytes);
        let left = Some(ErrorReport::Left { id: 7, unix_ns: 3_000_000_005 });
        for (name, control, want) in [
            ("a stamp", [stamp(3, 5), v4(&error(4, 0, 7))].concat(), left),
            ("of IPv6, the other way round", [v6(&error(4, 0, 7)), stamp(3, 5)].concat(), left),
            ("a number without a stamp", v4(&error(4, 0, 7)), None),
            ("a stamp without a number", stamp(3, 5), None),
            ("a stamp beyond all time", [stamp(u64::MAX, 5), v4(&error(4, 0, 7))].concat(), None),
            ("too late", v4(&error(6, 2, 0)), Some(ErrorReport::Missed)),
            ("no time", v4(&error(6, 1, 0)), Some(ErrorReport::Invalid)),
            ("an ICMP message", v4(&error(2, 3, 0)), None),
            ("cut off", v4(&error(6, 1, 0)[..14]), None),
            ("nothing", Vec::new(), None),
        ] {
            assert_eq!(said(&control), want, "{name}");
        }
    }

    proptest! {
        #[test]
        fn nothing_that_is_said_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..CONTROL_LEN)) {
            let _any = said(&bytes);
        }

        #[test]
        fn neither_does_what_looks_right(
            len in 0u64..80, data in prop::collection::vec(any::<u8>(), 0..80), which in 0usize..3,
        ) {
            let (level, kind) = [
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPING),
                (libc::SOL_IP, libc::IP_RECVERR),
                (libc::SOL_IPV6, libc::IPV6_RECVERR),
            ][which];
            let mut bytes = message(level, kind, &data);
            bytes[..8].copy_from_slice(&len.to_ne_bytes());
            let _any = said(&bytes);
        }
    }
}
