//! The program that the kernel runs on each frame of a device before its network stack sees it: UDP to a
//! port that is listened on goes to the sockets of AF_XDP, everything else goes on as ever.
//!
//! Taken is what is surely ours: Ethernet to the device's own address, IPv4 without options that is no
//! fragment or IPv6 without extension headers, UDP to an address and port of the table. What is left, and what
//! comes to a queue without socket, passes. Taken frames get the time of their arrival in front
//! (CLOCK_MONOTONIC), where the driver has room for it.
//!
//! Instructions: Documentation/bpf/standardization/instruction-set.rst (RFC 9669).
#![expect(
    clippy::cast_possible_truncation,
    reason = "small constants and lengths of C structs, offsets of a short program"
)]

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::str::FromStr;

use socket2::Socket;

use super::bpf::{self, MapKind, Place};
use super::frame::Mac;

/// Bytes of the time in front of a taken frame.
pub(super) const STAMP_LEN: usize = 8;
/// Queues that may have a socket.
pub(super) const MOST_QUEUES: u32 = 64;
/// Addresses with a port that frames may be taken for.
const MOST_PLACES: u32 = 4096;
/// Bytes of an address with a port in the table: IPv6 or mapped IPv4, port, two unused.
const KEY_LEN: usize = 20;
/// Its place on the program's stack.
const KEY: i16 = -24;

/// Place in the kernel at which the filter runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver where it can, before the network stack elsewhere.
    #[default]
    Auto,
    /// In the driver.
    Native,
    /// Before the network stack.
    Generic,
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no mode `{0}`: expected auto, native or generic")]
pub struct XdpModeError(String);

impl XdpMode {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Native, Self::Generic];

    /// As on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for XdpMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for XdpMode {
    type Err = XdpModeError;

    fn from_str(text: &str) -> Result<Self, XdpModeError> {
        let found = Self::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| XdpModeError(text.to_owned()))
    }
}

/// Registers: `R0` has results, `R1` to `R5` have arguments and are lost in calls, `R10` is the end of the stack.
const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const R4: u8 = 4;
const R6: u8 = 6;
const R10: u8 = 10;
/// Sizes of what is loaded and stored: 1, 2, 4 and 8 bytes.
const BYTE: u8 = 0x10;
const HALF: u8 = 0x08;
const WORD: u8 = 0x00;
const LONG: u8 = 0x18;
/// Operations.
const LOAD: u8 = 0x61;
const STORE_IMMEDIATE: u8 = 0x62;
const STORE: u8 = 0x63;
const MOVE: u8 = 0xBF;
const MOVE_IMMEDIATE: u8 = 0xB7;
const ADD: u8 = 0x07;
const AND: u8 = 0x57;
const JUMP: u8 = 0x05;
const JUMP_EQUAL: u8 = 0x15;
const JUMP_NOT_EQUAL: u8 = 0x55;
const JUMP_NOT_EQUAL_32: u8 = 0x56;
/// The same, of two registers without sign.
const JUMP_ABOVE: u8 = 0x2D;
const JUMP_AT_MOST: u8 = 0xBD;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const LOAD_MAP: u8 = 0x18;
/// The kind of address that `LOAD_MAP` loads: the descriptor of a map.
const MAP_DESCRIPTOR: u8 = 1;
/// Functions of the kernel.
const MAP_LOOKUP: i32 = 1;
const CLOCK_MONOTONIC: i32 = 5;
const REDIRECT: i32 = 51;
const ADJUST_METADATA: i32 = 54;
/// Offsets in the program's argument (struct xdp_md): start and end of the frame, of what is in front, queue.
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const DATA_META: i16 = 8;
const QUEUE: i16 = 16;
/// A verdict: on to the network stack.
pub(super) const PASS: i32 = 2;

/// Targets of jumps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Label {
    V6,
    Port,
    Redirect,
    Pass,
}

/// A line of the program.
#[derive(Clone, Copy)]
enum Line {
    /// Operation, registers that it changes and reads, offset, value.
    Do(u8, u8, u8, i16, i32),
    /// A jump, by what it compares.
    To(Label, u8, u8, u8, i32),
    /// The address of a map into a register: two instructions.
    Map(u8, RawFd),
    At(Label),
}

impl Line {
    const fn len(self) -> usize {
        match self {
            Self::Do(..) | Self::To(..) => 1,
            Self::Map(..) => 2,
            Self::At(_) => 0,
        }
    }
}

const fn load(size: u8, into: u8, from: u8, offset: i16) -> Line {
    Line::Do(LOAD | size, into, from, offset, 0)
}

const fn store(size: u8, from: u8, to: u8, offset: i16) -> Line {
    Line::Do(STORE | size, to, from, offset, 0)
}

const fn store_value(size: u8, value: i32, to: u8, offset: i16) -> Line {
    Line::Do(STORE_IMMEDIATE | size, to, 0, offset, value)
}

const fn call(function: i32) -> Line {
    Line::Do(CALL, 0, 0, 0, function)
}

/// A field of two bytes of a packet, as it is loaded.
const fn half(value: u16) -> i32 {
    u16::from_ne_bytes(value.to_be_bytes()) as i32
}

/// Writes the time in front of a frame, unless the driver has no room there.
fn stamped() -> Vec<Line> {
    use Line::{Do, To};
    vec![
        Do(MOVE, R1, R6, 0, 0),
        Do(MOVE_IMMEDIATE, R2, 0, 0, -(STAMP_LEN as i32)),
        call(ADJUST_METADATA),
        To(Label::Redirect, JUMP_NOT_EQUAL, R0, 0, 0),
        call(CLOCK_MONOTONIC),
        load(WORD, R1, R6, DATA_META),
        load(WORD, R2, R6, DATA),
        Do(MOVE, R3, R1, 0, 0),
        Do(ADD, R3, 0, 0, STAMP_LEN as i32),
        To(Label::Redirect, JUMP_ABOVE, R3, R2, 0),
        store(LONG, R0, R1, 0),
    ]
}

/// Hands a frame to the socket of its queue; without one it passes.
fn redirected(queues: RawFd) -> Vec<Line> {
    use Line::{At, Do, Map};
    vec![
        At(Label::Redirect),
        load(WORD, R2, R6, QUEUE),
        Map(R1, queues),
        Do(MOVE_IMMEDIATE, R3, 0, 0, PASS),
        call(REDIRECT),
        Do(EXIT, 0, 0, 0, 0),
    ]
}

/// The program that takes every frame, with the time of its arrival or without.
fn lines_for_all(with_time: bool, queues: RawFd) -> Vec<Line> {
    let start = vec![Line::Do(MOVE, R6, R1, 0, 0)];
    let time = if with_time { stamped() } else { Vec::new() };
    [start, time, redirected(queues)].concat()
}

/// The program for a device with this address; longer frames pass.
fn lines(mac: Mac, longest: u16, places: RawFd, queues: RawFd) -> Vec<Line> {
    use Line::{At, Do, Map, To};
    let [a, b, c, d, e, f] = mac;
    let pass = Label::Pass;
    let chosen = vec![
        Do(MOVE, R6, R1, 0, 0),
        load(WORD, R2, R6, DATA),
        load(WORD, R3, R6, DATA_END),
        // Ethernet (14), IPv4 (20) and UDP (8) must be there, and the whole must fit a chunk.
        Do(MOVE, R4, R2, 0, 0),
        Do(ADD, R4, 0, 0, 42),
        To(pass, JUMP_ABOVE, R4, R3, 0),
        Do(MOVE, R4, R2, 0, 0),
        Do(ADD, R4, 0, 0, longest as i32 + 1),
        To(pass, JUMP_AT_MOST, R4, R3, 0),
        // To this device: neither broadcast nor what it hears of others.
        load(WORD, R4, R2, 0),
        To(pass, JUMP_NOT_EQUAL_32, R4, 0, i32::from_ne_bytes([a, b, c, d])),
        load(HALF, R4, R2, 4),
        To(pass, JUMP_NOT_EQUAL, R4, 0, u16::from_ne_bytes([e, f]) as i32),
        // The type: others, ARP and VLANs among them, pass.
        load(HALF, R4, R2, 12),
        To(Label::V6, JUMP_EQUAL, R4, 0, half(0x86DD)),
        To(pass, JUMP_NOT_EQUAL, R4, 0, half(0x0800)),
        // IPv4: version 4 with a header of five words.
        load(BYTE, R4, R2, 14),
        To(pass, JUMP_NOT_EQUAL, R4, 0, 0x45),
        // No fragment: neither more of them behind it, nor an offset.
        load(HALF, R4, R2, 20),
        Do(AND, R4, 0, 0, half(0x3FFF)),
        To(pass, JUMP_NOT_EQUAL, R4, 0, 0),
        load(BYTE, R4, R2, 23),
        To(pass, JUMP_NOT_EQUAL, R4, 0, 17),
        // The key: destination as ::ffff:a.b.c.d.
        store_value(LONG, 0, R10, KEY),
        store_value(WORD, i32::from_ne_bytes([0, 0, 0xFF, 0xFF]), R10, KEY + 8),
        load(WORD, R4, R2, 30),
        store(WORD, R4, R10, KEY + 12),
        load(HALF, R4, R2, 36),
        To(Label::Port, JUMP, 0, 0, 0),
        At(Label::V6),
        // IPv6 takes 20 bytes more.
        Do(MOVE, R4, R2, 0, 0),
        Do(ADD, R4, 0, 0, 62),
        To(pass, JUMP_ABOVE, R4, R3, 0),
        load(BYTE, R4, R2, 14),
        Do(AND, R4, 0, 0, 0xF0),
        To(pass, JUMP_NOT_EQUAL, R4, 0, 0x60),
        // UDP right behind the header.
        load(BYTE, R4, R2, 20),
        To(pass, JUMP_NOT_EQUAL, R4, 0, 17),
        load(LONG, R4, R2, 38),
        store(LONG, R4, R10, KEY),
        load(LONG, R4, R2, 46),
        store(LONG, R4, R10, KEY + 8),
        load(HALF, R4, R2, 56),
        At(Label::Port),
        store(HALF, R4, R10, KEY + 16),
        store_value(HALF, 0, R10, KEY + 18),
        Map(R1, places),
        Do(MOVE, R2, R10, 0, 0),
        Do(ADD, R2, 0, 0, KEY as i32),
        call(MAP_LOOKUP),
        To(pass, JUMP_EQUAL, R0, 0, 0),
    ];
    // Ours.
    let passed = vec![At(pass), Do(MOVE_IMMEDIATE, R0, 0, 0, PASS), Do(EXIT, 0, 0, 0, 0)];
    [chosen, stamped(), redirected(queues), passed].concat()
}

/// An instruction as it lies in memory (struct bpf_insn).
fn packed(code: u8, to: u8, from: u8, offset: i16, value: i32) -> u64 {
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    let ([a, b], [c, d, e, f]) = (offset.to_ne_bytes(), value.to_ne_bytes());
    u64::from_ne_bytes([code, registers, a, b, c, d, e, f])
}

/// The instructions of lines, with the distances of their jumps.
fn assemble(lines: &[Line]) -> Vec<u64> {
    let start = |label: Label| -> usize {
        let until = lines.iter().position(|line| matches!(line, Line::At(at) if *at == label));
        lines[..until.expect("every label is there")].iter().map(|line| line.len()).sum()
    };
    let mut out = Vec::new();
    for line in lines {
        match *line {
            Line::Do(code, to, from, offset, value) => {
                out.push(packed(code, to, from, offset, value));
            }
            Line::To(label, code, one, other, value) => {
                let distance = start(label) - (out.len() + 1);
                out.push(packed(code, one, other, distance as i16, value));
            }
            Line::Map(register, map) => {
                out.push(packed(LOAD_MAP, register, MAP_DESCRIPTOR, 0, map));
                out.push(packed(0, 0, 0, 0, 0));
            }
            Line::At(_) => {}
        }
    }
    out
}

/// Destination of a packet in the table.
fn key(at: SocketAddr) -> [u8; KEY_LEN] {
    let ip = match at.ip() {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let mut key = [0; KEY_LEN];
    key[..16].copy_from_slice(&ip);
    key[16..18].copy_from_slice(&at.port().to_be_bytes());
    key
}

/// A filter that is attached to a device for as long as this value lives: when the process ends, however it
/// does, the kernel takes it off.
#[derive(Debug)]
pub(super) struct Filter {
    places: OwnedFd,
    queues: OwnedFd,
    program: OwnedFd,
    link: Option<OwnedFd>,
}

impl Filter {
    /// Loads the program for frames of at most `longest` bytes to this address.
    pub(super) fn load(mac: Mac, longest: u16) -> io::Result<Self> {
        Self::of(|places, queues| lines(mac, longest, places, queues))
    }

    /// Loads the program that takes every frame, with the time of its arrival or without.
    pub(super) fn load_for_all(with_time: bool) -> io::Result<Self> {
        Self::of(|_, queues| lines_for_all(with_time, queues))
    }

    /// Loads a program that is made of the tables of destinations and of sockets.
    fn of(lines: impl FnOnce(RawFd, RawFd) -> Vec<Line>) -> io::Result<Self> {
        let places = bpf::map(MapKind::Hash, KEY_LEN as u32, MOST_PLACES)?;
        let queues = bpf::map(MapKind::Sockets, 4, MOST_QUEUES)?;
        let lines = lines(places.as_raw_fd(), queues.as_raw_fd());
        let program = bpf::load(&assemble(&lines))?;
        Ok(Self { places, queues, program, link: None })
    }

    /// Attaches it to a device that has no such program; returns where it runs.
    pub(super) fn attach(&mut self, device: u32, mode: XdpMode) -> io::Result<&'static str> {
        let places: &[Place] = match mode {
            XdpMode::Auto => &[Place::Driver, Place::Stack],
            XdpMode::Native => &[Place::Driver],
            XdpMode::Generic => &[Place::Stack],
        };
        let mut failed = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
        for place in places {
            match bpf::attach(self.program.as_fd(), device, *place) {
                Ok(link) => {
                    self.link = Some(link);
                    return Ok(match place {
                        Place::Driver => "native",
                        Place::Stack => "generic",
                    });
                }
                // Another one is there, or this user may not: no other place changes that.
                Err(error)
                    if matches!(
                        error.raw_os_error(),
                        Some(libc::EBUSY | libc::EEXIST | libc::EPERM)
                    ) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, ?place, "the filter cannot be attached there");
                    failed = error;
                }
            }
        }
        Err(failed)
    }

    /// Gives frames of a queue to a socket that is bound to it.
    pub(super) fn serve(&self, queue: u32, socket: &Socket) -> io::Result<()> {
        let number = u32::try_from(socket.as_raw_fd()).map_err(io::Error::other)?;
        bpf::put(self.queues.as_fd(), &queue.to_ne_bytes(), number)
    }

    /// Takes frames to this address and port from now on.
    pub(super) fn take(&self, at: SocketAddr) -> io::Result<()> {
        bpf::put(self.places.as_fd(), &key(at), 1)
    }

    /// Takes them no more.
    pub(super) fn leave(&self, at: SocketAddr) -> io::Result<()> {
        bpf::remove(self.places.as_fd(), &key(at))
    }

    /// Verdict of the program on a frame that comes to the first queue.
    #[cfg(test)]
    pub(super) fn judge(&self, frame: &[u8]) -> io::Result<(u32, Vec<u8>)> {
        bpf::trial::run(self.program.as_fd(), frame)
    }
}
