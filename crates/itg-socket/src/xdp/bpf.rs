//! Programs and maps of eBPF: the few commands of bpf(2) that a filter of frames needs.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small constants and lengths of C structs"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Commands (linux/bpf.h).
const MAP_CREATE: i32 = 0;
const MAP_UPDATE_ELEM: i32 = 2;
const MAP_DELETE_ELEM: i32 = 3;
const PROG_LOAD: i32 = 5;
const LINK_CREATE: i32 = 28;
/// Type of a program that sees frames before the network stack, and where it is attached.
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
/// Bytes of text that the kernel may say about a program that it refuses.
const VERDICT: usize = 16 << 10;

/// Kind of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MapKind {
    Hash = 1,
    /// Sockets of AF_XDP by the number of their queue.
    Sockets = 17,
}

/// Place in the kernel at which a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the device's driver.
    Driver = 1 << 2,
    /// In front of the network stack, for every device.
    Stack = 1 << 1,
}

#[repr(C)]
struct MapCreate {
    kind: u32,
    key_len: u32,
    value_len: u32,
    entries: u32,
    flags: u32,
}

#[repr(C)]
struct MapElement {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

#[repr(C)]
struct ProgLoad {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    verdict_level: u32,
    verdict_len: u32,
    verdict: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    device: u32,
    attach: u32,
}

#[repr(C)]
struct LinkCreate {
    program: u32,
    device: u32,
    attach: u32,
    flags: u32,
}

/// Has the kernel do a command whose arguments are `attributes`, and returns its result.
///
/// # Safety
/// `attributes` must be what the command takes, and every address in it must be that of as many bytes as the
/// command reads or writes there.
unsafe fn bpf<T>(command: i32, attributes: &mut T) -> io::Result<i32> {
    // SAFETY: the pointer leads to `attributes` and the length is theirs; the rest is the caller's word.
    let result = unsafe {
        libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attributes), size_of::<T>())
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result as i32) }
}

fn number(fd: BorrowedFd<'_>) -> u32 {
    fd.as_raw_fd() as u32
}

/// Takes a descriptor that a command has made.
fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has made this descriptor for this call alone.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn address<T>(of: &[T]) -> u64 {
    of.as_ptr() as u64
}

/// Makes a map.
pub(super) fn map(kind: MapKind, key_len: u32, entries: u32) -> io::Result<OwnedFd> {
    let mut create = MapCreate { kind: kind as u32, key_len, value_len: 4, entries, flags: 0 };
    // SAFETY: the arguments of this command, without addresses.
    unsafe { bpf(MAP_CREATE, &mut create) }.map(owned)
}

/// Puts a value of four bytes into a map, under a key as long as the map's are.
pub(super) fn put(map: BorrowedFd<'_>, key: &[u8], value: u32) -> io::Result<()> {
    let (value, map) = ([value], number(map));
    let mut element =
        MapElement { map, unused: 0, key: address(key), value: address(&value), flags: 0 };
    // SAFETY: the arguments of this command; key and value are as long as those of the maps made here.
    unsafe { bpf(MAP_UPDATE_ELEM, &mut element) }.map(drop)
}

/// Takes a key out of a map.
pub(super) fn remove(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<()> {
    let mut element =
        MapElement { map: number(map), unused: 0, key: address(key), value: 0, flags: 0 };
    // SAFETY: the arguments of this command; the key is as long as those of the map.
    unsafe { bpf(MAP_DELETE_ELEM, &mut element) }.map(drop)
}

/// Loads a program for frames: its instructions, as the kernel lays them out.
pub(super) fn load(instructions: &[u64]) -> io::Result<OwnedFd> {
    let mut name = [0; 16];
    name[..9].copy_from_slice(b"itg_input");
    let mut verdict = Vec::new();
    loop {
        let mut load = ProgLoad {
            kind: PROG_TYPE_XDP,
            count: instructions.len() as u32,
            instructions: address(instructions),
            license: c"Dual MIT/GPL".as_ptr() as u64,
            verdict_level: u32::from(!verdict.is_empty()),
            verdict_len: verdict.len() as u32,
            verdict: if verdict.is_empty() { 0 } else { address(&verdict) },
            kernel_version: 0,
            flags: 0,
            name,
            device: 0,
            attach: ATTACH_XDP,
        };
        // SAFETY: the arguments of this command; instructions, licence and room for the verdict outlive the
        // call, and their lengths are told.
        match unsafe { bpf(PROG_LOAD, &mut load) } {
            Ok(fd) => return Ok(owned(fd)),
            // Once more, to hear why.
            Err(error) if verdict.is_empty() && error.raw_os_error() != Some(libc::EPERM) => {
                verdict = vec![0_u8; VERDICT];
            }
            Err(error) => {
                let said = String::from_utf8_lossy(&verdict);
                let said = said.trim_end_matches(['\0', '\n']);
                tracing::debug!(%error, "the kernel refuses the filter: {said}");
                return Err(error);
            }
        }
    }
}

/// Attaches a program to a device, for as long as the link that is returned is open.
pub(super) fn attach(program: BorrowedFd<'_>, device: u32, place: Place) -> io::Result<OwnedFd> {
    let (program, flags) = (number(program), place as u32);
    let mut create = LinkCreate { program, device, attach: ATTACH_XDP, flags };
    // SAFETY: the arguments of this command, without addresses.
    unsafe { bpf(LINK_CREATE, &mut create) }.map(owned)
}

/// Runs of programs on made frames.
#[cfg(test)]
pub(super) mod trial {
    use super::{BorrowedFd, address, bpf, io, number};

    const PROG_TEST_RUN: i32 = 10;

    #[repr(C)]
    struct TestRun {
        program: u32,
        verdict: u32,
        in_len: u32,
        out_len: u32,
        in_at: u64,
        out_at: u64,
        repeat: u32,
        duration: u32,
        context_in_len: u32,
        context_out_len: u32,
        context_in: u64,
        context_out: u64,
    }

    /// Verdict of a program on a frame, and the frame behind it.
    pub(in super::super) fn run(
        program: BorrowedFd<'_>,
        frame: &[u8],
    ) -> io::Result<(u32, Vec<u8>)> {
        let mut out = vec![0_u8; frame.len() + 256];
        let mut run = TestRun {
            program: number(program),
            verdict: 0,
            in_len: u32::try_from(frame.len()).expect("a frame"),
            out_len: u32::try_from(out.len()).expect("a frame"),
            in_at: address(frame),
            out_at: out.as_mut_ptr() as u64,
            repeat: 1,
            duration: 0,
            context_in_len: 0,
            context_out_len: 0,
            context_in: 0,
            context_out: 0,
        };
        // SAFETY: the arguments of this command; both buffers outlive the call and their lengths are told.
        unsafe { bpf(PROG_TEST_RUN, &mut run) }?;
        out.truncate(run.out_len as usize);
        Ok((run.verdict, out))
    }
}
