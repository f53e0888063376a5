//! Small questions to the kernel that no safe wrapper answers.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of small C structs and the kernel's one-byte values in C ints"
)]

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// What the kernel's clock discipline says (adjtimex).
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockQuality {
    pub(crate) max_error_ns: u64,
    pub(crate) synchronised: bool,
}

/// Reads the state of the kernel's clock discipline without changing it.
pub(crate) fn clock_quality() -> Option<ClockQuality> {
    // SAFETY: timex is plain integers; `modes` 0 asks only to fill it.
    let mut timex: libc::timex = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a valid timex that outlives the call.
    let state = unsafe { libc::adjtimex(&raw mut timex) };
    (state >= 0).then(|| ClockQuality {
        max_error_ns: timex.maxerror.unsigned_abs() * 1_000,
        synchronised: state != libc::TIME_ERROR && timex.status & libc::STA_UNSYNC == 0,
    })
}

/// Sets an integer socket option.
pub(crate) fn set_int(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    value: i32,
) -> std::io::Result<()> {
    // SAFETY: the pointer leads to an i32 and the length says so.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            size_of::<i32>() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Datagrams that this socket dropped for want of buffer space since it was opened
/// (`SO_MEMINFO`, the counter that `ss -m` shows as `d`).
pub(crate) fn socket_drops(socket: &impl AsFd) -> Option<u64> {
    const SO_MEMINFO: i32 = 55;
    const DROPS: usize = 8; // SK_MEMINFO_DROPS
    let mut info = [0u32; DROPS + 1];
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` is as long as `len` says; the kernel writes at most that much.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            info.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    (result == 0 && len as usize == size_of_val(&info)).then(|| u64::from(info[DROPS]))
}

/// Sets a socket option made of 32-bit words.
pub(crate) fn set_bytes(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    words: &[u32],
) -> std::io::Result<()> {
    // SAFETY: the pointer leads to `words` and the length is theirs.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            words.as_ptr().cast(),
            size_of_val(words) as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Gives the calling thread real-time priority (SCHED_FIFO, the lowest of its levels), or takes it
/// away.
pub(crate) fn set_fifo(on: bool) -> std::io::Result<()> {
    let (policy, priority) = if on { (libc::SCHED_FIFO, 1) } else { (libc::SCHED_OTHER, 0) };
    // SAFETY: sched_param is plain integers; all-zero is valid.
    let mut param: libc::sched_param = unsafe { mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the pointer is to a valid sched_param that outlives the call; 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
