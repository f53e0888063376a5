//! Many datagrams with one system call: `sendmmsg` and `recvmmsg`, with kernel receive stamps, TTL
//! and traffic class.
//!
//! All scratch memory is allocated once. Raw pointers into it, or into the caller's slices, live
//! only for the duration of one call.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths of small C structs and the kernel's one-byte values in C ints"
)]

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

use libc::{cmsghdr, iovec, mmsghdr, msghdr, sockaddr_storage};

/// Datagrams in one call.
pub const BATCH: usize = 64;
/// Datagrams for which less is prepared, as when packets leave one by one.
pub const FEW: usize = 4;
/// Largest payload of a UDP datagram over IPv4, in bytes.
const LARGEST_PAYLOAD: usize = 65_507;
/// Bytes for control messages of one datagram, with room to spare.
const CONTROL_LEN: usize = 192;
/// Bytes of the control messages that are asked for, each with its header: a stamp of two 64-bit words, and
/// TTL, traffic class and length of joined datagrams, an int each.
const CONTROL_NEED: usize = 4 * size_of::<cmsghdr>() + 16 + 3 * 8;
const _: () = assert!(CONTROL_NEED <= CONTROL_LEN);

/// One datagram to send, in two pieces.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// First bytes.
    pub head: &'a [u8],
    /// The rest.
    pub body: &'a [u8],
    /// Instructions to the kernel for it.
    pub order: Order,
}

/// Instructions to the kernel for a datagram, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// Instant at which it shall leave, in nanoseconds of the clock that its socket was given with `SO_TXTIME`;
    /// 0: at once.
    pub at_ns: u64,
    /// True if its departure is stamped (see `itg_engine::departures`).
    pub stamp: bool,
}

impl<'a> Outgoing<'a> {
    /// A datagram that leaves at once.
    #[must_use]
    pub const fn new(head: &'a [u8], body: &'a [u8]) -> Self {
        Self { head, body, order: Order { at_ns: 0, stamp: false } }
    }
}

fn empty_msghdr() -> msghdr {
    // SAFETY: msghdr is a C struct of integers and pointers; all-zero is a valid (empty) value.
    unsafe { mem::zeroed() }
}

fn iov(bytes: &[u8]) -> iovec {
    iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() }
}

/// The control messages of a datagram with an [`Order`]: each a `cmsghdr`, in words of 64 bits, and a word.
#[derive(Clone, Copy)]
struct OrderControl {
    words: [u64; 6],
    len: usize,
}

impl OrderControl {
    const NONE: Self = Self { words: [0; 6], len: 0 };
    /// Bytes that one of them takes.
    const EACH: usize = size_of::<cmsghdr>() + 8;

    fn new(order: Order) -> Self {
        let mut control = Self::NONE;
        if order.at_ns != 0 {
            control.push(libc::SCM_TXTIME, 8, order.at_ns.to_ne_bytes());
        }
        if order.stamp {
            let [a, b, c, d] = libc::SOF_TIMESTAMPING_TX_SOFTWARE.to_ne_bytes();
            control.push(libc::SO_TIMESTAMPING, 4, [a, b, c, d, 0, 0, 0, 0]);
        }
        control
    }

    /// Appends a message of the level of sockets with `used` of these bytes.
    fn push(&mut self, kind: i32, used: usize, value: [u8; 8]) {
        let at = self.len / 8;
        let [level, kind] = [libc::SOL_SOCKET, kind].map(i32::to_ne_bytes);
        let [a, b, c, d] = level;
        let [e, f, g, h] = kind;
        self.words[at] = (size_of::<cmsghdr>() + used) as u64;
        self.words[at + 1] = u64::from_ne_bytes([a, b, c, d, e, f, g, h]);
        self.words[at + 2] = u64::from_ne_bytes(value);
        self.len += Self::EACH;
    }
}

const _: () = assert!(size_of::<cmsghdr>() == 16 && 2 * OrderControl::EACH == 6 * 8);

/// Sends datagrams of one connected socket without waiting; returns how many the kernel took.
///
/// # Errors
/// The error of the first datagram, when none was taken.
pub fn send(socket: BorrowedFd<'_>, packets: &[Outgoing<'_>]) -> io::Result<usize> {
    if packets.iter().any(|packet| packet.order != Order::default()) {
        let mut controls = [OrderControl::NONE; BATCH];
        for (control, packet) in controls.iter_mut().zip(packets) {
            *control = OrderControl::new(packet.order);
        }
        send_with::<BATCH>(socket, packets, &mut controls)
    } else if packets.len() <= FEW {
        send_with::<FEW>(socket, packets, &mut [])
    } else {
        send_with::<BATCH>(socket, packets, &mut [])
    }
}

/// The same for the first `MOST` datagrams, with these control messages, where there are any.
fn send_with<const MOST: usize>(
    socket: BorrowedFd<'_>,
    packets: &[Outgoing<'_>],
    controls: &mut [OrderControl],
) -> io::Result<usize> {
    let count = packets.len().min(MOST);
    let mut iovs = [[iov(&[]); 2]; MOST];
    let mut headers = [const { mem::MaybeUninit::<mmsghdr>::uninit() }; MOST];
    for (i, packet) in packets[..count].iter().enumerate() {
        iovs[i] = [iov(packet.head), iov(packet.body)];
        let mut header = empty_msghdr();
        header.msg_iov = iovs[i].as_mut_ptr();
        header.msg_iovlen = 2;
        if let Some(control) = controls.get_mut(i).filter(|control| control.len > 0) {
            header.msg_control = control.words.as_mut_ptr().cast();
            header.msg_controllen = control.len;
        }
        headers[i].write(mmsghdr { msg_hdr: header, msg_len: 0 });
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the first `count` headers were written above; their pointers lead to `iovs`, `controls` and
    // to the caller's slices, all alive during the call, which only reads them. `count` ≤ `MOST` ≤ 64 fits.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), count as u32, flags)
    };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Returns the number of these datagrams that may leave as one message that the kernel cuts: they are as
/// long as the first one, the last may be shorter, and together they fit a datagram. An empty one leaves
/// alone: there is nothing to cut.
#[must_use]
pub fn alike(packets: &[Outgoing<'_>]) -> usize {
    let len = |packet: &Outgoing<'_>| packet.head.len() + packet.body.len();
    let segment = match packets.first().map(len) {
        None => return 0,
        Some(0) => return 1,
        Some(segment) => segment,
    };
    let most = (LARGEST_PAYLOAD / segment).min(BATCH);
    let same = packets.iter().take(most).take_while(|packet| len(packet) == segment).count();
    let shorter = packets.get(same).is_some_and(|packet| (1..segment).contains(&len(packet)));
    (same + usize::from(shorter)).min(most)
}

/// Datagrams up to this length are put together before the kernel takes them, in bytes: it copies many
/// small pieces slowly.
const SMALL: usize = 512;

/// Room for the datagrams of one [`send_cut`].
#[derive(Debug)]
pub struct Together(Box<[u8]>);

impl Default for Together {
    fn default() -> Self {
        Self(vec![0; BATCH * SMALL].into_boxed_slice())
    }
}

impl Together {
    /// Room for `count` datagrams of `size` bytes that may leave as one message: two at least, not more
    /// than a batch or than fit a message, and small.
    pub fn room(&mut self, count: usize, size: usize) -> Option<&mut [u8]> {
        let fits = (2..=BATCH.min(LARGEST_PAYLOAD / size.max(1))).contains(&count);
        (fits && (1..=SMALL).contains(&size)).then(|| &mut self.0[..count * size])
    }

    /// Sends the datagrams in [`Together::room`], without waiting.
    ///
    /// # Errors
    /// The kernel's, also where it cannot cut.
    pub fn send(&self, socket: BorrowedFd<'_>, count: usize, size: usize) -> io::Result<()> {
        let mut bytes = iov(&self.0[..count * size]);
        let mut segment = SegmentSize { size: size as u16, ..SegmentSize::NONE };
        let mut header = empty_msghdr();
        (header.msg_iov, header.msg_iovlen) = (&raw mut bytes, 1);
        header.msg_control = (&raw mut segment).cast();
        header.msg_controllen = size_of::<SegmentSize>();
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: the header's pointers lead to `segment` and to `self`, both alive during the call, which
        // only reads them.
        let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const header, flags) };
        if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// As [`send`], of a connected UDP socket: datagrams that are [`alike`] leave as one message, which the
/// kernel cuts at the end of its network stack (UDP_SEGMENT). Returns how many datagrams it took.
///
/// # Errors
/// The kernel's about the first message, when none was taken. Where the system cannot cut, or datagrams
/// do not fit the link, [`send`] may.
pub fn send_cut(
    socket: BorrowedFd<'_>,
    packets: &[Outgoing<'_>],
    together: &mut Together,
) -> io::Result<usize> {
    let packets = &packets[..packets.len().min(BATCH)];
    let mut iovs = [iov(&[]); 2 * BATCH];
    let mut controls = [SegmentSize::NONE; BATCH];
    let mut headers = [const { mem::MaybeUninit::<mmsghdr>::uninit() }; BATCH];
    // Datagrams up to the end of each message.
    let mut ends = [0; BATCH];
    let mut room = &mut *together.0;
    let (mut messages, mut at) = (0, 0);
    while at < packets.len() {
        let count = alike(&packets[at..]).max(1);
        let message = &packets[at..at + count];
        let segment = message[0].head.len() + message[0].body.len();
        let pieces = &mut iovs[2 * at..2 * (at + count)];
        let pieces = if segment <= SMALL {
            // No datagram of the message is longer than its first one.
            let (bytes, rest) = mem::take(&mut room).split_at_mut(count * segment);
            room = rest;
            let mut used = 0;
            for part in message.iter().flat_map(|packet| [packet.head, packet.body]) {
                bytes[used..used + part.len()].copy_from_slice(part);
                used += part.len();
            }
            pieces[0] = iov(&bytes[..used]);
            &mut pieces[..1]
        } else {
            for (pair, packet) in pieces.chunks_exact_mut(2).zip(message) {
                pair.copy_from_slice(&[iov(packet.head), iov(packet.body)]);
            }
            pieces
        };
        let mut header = empty_msghdr();
        header.msg_iovlen = pieces.len();
        header.msg_iov = pieces.as_mut_ptr();
        if count > 1 {
            let control = &mut controls[messages];
            control.size = segment as u16;
            header.msg_control = ptr::from_mut(control).cast();
            header.msg_controllen = size_of::<SegmentSize>();
        }
        headers[messages].write(mmsghdr { msg_hdr: header, msg_len: 0 });
        at += count;
        ends[messages] = at;
        messages += 1;
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the first `messages` headers were written above; their pointers lead to `iovs`, `controls`,
    // `together` and the caller's slices, all alive during the call, which only reads them.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), headers.as_mut_ptr().cast(), messages as u32, flags)
    };
    let sent = usize::try_from(sent).map_err(|_| io::Error::last_os_error())?;
    Ok(sent.checked_sub(1).map_or(0, |last| ends[last]))
}

/// The control message that says where to cut, as the kernel wants it: a `cmsghdr` and 16 bits.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct SegmentSize {
    len: usize,
    level: i32,
    kind: i32,
    size: u16,
}

impl SegmentSize {
    const NONE: Self = Self {
        // Without the filling behind the two bytes.
        len: size_of::<cmsghdr>() + 2,
        level: libc::SOL_UDP,
        kind: libc::UDP_SEGMENT,
        size: 0,
    };
}

const _: () = assert!(size_of::<SegmentSize>() == size_of::<cmsghdr>() + 8);

/// One received datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// Its first bytes, as many as the buffer holds.
    pub bytes: &'a [u8],
    /// Its whole length in bytes.
    pub len: usize,
    /// Address that it came from.
    pub source: Option<SocketAddr>,
    /// Instant of its arrival: the kernel's stamp, Unix nanoseconds.
    pub arrived_ns: Option<u64>,
    /// Time to live or hop limit as received; 0 if not told.
    pub ttl: u8,
    /// Traffic class byte as received; 0 if not told.
    pub tos: u8,
    /// Size in bytes of the datagrams of one size that the kernel has joined (`UDP_GRO`), of which the
    /// last one may be shorter; 0 for a datagram by itself.
    pub segment: usize,
    /// True if the kernel marks the end of a message here (`MSG_EOR`), as it does on SCTP sockets: without
    /// the mark, the next bytes belong to the same message.
    pub ends_message: bool,
}

#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL_LEN]);

/// Buffers for one `recvmmsg` call.
pub struct RecvBatch {
    buffer_len: usize,
    buffers: Box<[u8]>,
    names: Box<[sockaddr_storage]>,
    controls: Box<[Control]>,
    iovs: Box<[iovec]>,
    headers: Box<[mmsghdr]>,
    /// Headers that the kernel has written to, from the first: they must be made anew.
    used: usize,
    /// True once it has been reported that control messages did not fit.
    told: bool,
}

// SAFETY: the raw pointers in `iovs` and `headers` lead only into buffers that this value owns, and
// they are written anew before each use.
unsafe impl Send for RecvBatch {}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("buffer_len", &self.buffer_len).finish_non_exhaustive()
    }
}

impl RecvBatch {
    /// Buffers for `count` datagrams, at most 64, of which the first `buffer_len` bytes are kept.
    #[must_use]
    pub fn new(count: usize, buffer_len: usize) -> Self {
        let count = count.min(BATCH);
        // SAFETY: sockaddr_storage is plain integers; all-zero is valid.
        let name: sockaddr_storage = unsafe { mem::zeroed() };
        Self {
            buffer_len,
            buffers: vec![0; count * buffer_len].into_boxed_slice(),
            names: vec![name; count].into_boxed_slice(),
            controls: vec![Control([0; CONTROL_LEN]); count].into_boxed_slice(),
            iovs: vec![iov(&[]); count].into_boxed_slice(),
            headers: vec![mmsghdr { msg_hdr: empty_msghdr(), msg_len: 0 }; count]
                .into_boxed_slice(),
            used: count,
            told: false,
        }
    }

    /// Datagrams that one call can take.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.headers.len()
    }

    /// Takes what has arrived, without waiting, and returns the number of datagrams.
    ///
    /// # Errors
    /// The kernel's, `WouldBlock` when nothing has arrived.
    pub fn recv(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        for (i, header) in self.headers[..self.used].iter_mut().enumerate() {
            let buffer = &mut self.buffers[i * self.buffer_len..][..self.buffer_len];
            self.iovs[i] = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let mut fresh = empty_msghdr();
            fresh.msg_name = ptr::from_mut(&mut self.names[i]).cast();
            fresh.msg_namelen = size_of::<sockaddr_storage>() as u32;
            fresh.msg_iov = &raw mut self.iovs[i];
            fresh.msg_iovlen = 1;
            fresh.msg_control = self.controls[i].0.as_mut_ptr().cast();
            fresh.msg_controllen = CONTROL_LEN;
            *header = mmsghdr { msg_hdr: fresh, msg_len: 0 };
        }
        // SAFETY: every header was filled, above or before an earlier call that did not use it, with
        // pointers into heap buffers that `self` owns and that are as long as stated; the kernel writes
        // at most that much. MSG_TRUNC makes msg_len the datagram's whole length, it never makes the
        // kernel write more.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.headers.as_mut_ptr(),
                self.headers.len() as u32,
                libc::MSG_DONTWAIT | libc::MSG_TRUNC,
                ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error());
        // A failed call may have touched the first header.
        self.used = *got.as_ref().unwrap_or(&1);
        let cut = |header: &mmsghdr| header.msg_hdr.msg_flags & libc::MSG_CTRUNC != 0;
        if !self.told && got.is_ok() && self.headers[..self.used].iter().any(cut) {
            self.told = true;
            tracing::error!(
                "the kernel says more about packets than there is room for: stamps, TTL or traffic class \
                 of some are missing from the log"
            );
        }
        got
    }

    /// Datagram `i` of the last call.
    ///
    /// # Panics
    /// When `i` is not below the number that the last call returned.
    #[must_use]
    pub fn get(&self, i: usize) -> Datagram<'_> {
        let header = &self.headers[i];
        let len = header.msg_len as usize;
        let kept = len.min(self.buffer_len);
        let mut datagram = Datagram {
            bytes: &self.buffers[i * self.buffer_len..][..kept],
            len,
            source: address(&self.names[i], header.msg_hdr.msg_namelen as usize),
            arrived_ns: None,
            ttl: 0,
            tos: 0,
            segment: 0,
            ends_message: header.msg_hdr.msg_flags & libc::MSG_EOR != 0,
        };
        let used = header.msg_hdr.msg_controllen.min(CONTROL_LEN);
        read_control(&self.controls[i].0[..used], &mut datagram);
        datagram
    }
}

/// The first four bytes as an int.
pub fn int(data: &[u8]) -> Option<i32> {
    data.first_chunk().map(|bytes| i32::from_ne_bytes(*bytes))
}

/// Level, kind and contents of each control message, up to the first one that is broken.
pub fn control_messages(mut control: &[u8]) -> impl Iterator<Item = (i32, i32, &[u8])> {
    const HEAD: usize = size_of::<cmsghdr>();
    std::iter::from_fn(move || {
        let (head, _) = control.split_first_chunk::<HEAD>()?;
        let (len, rest) = head.split_first_chunk::<8>()?;
        let len = usize::from_ne_bytes(*len);
        let data = control.get(HEAD..len)?;
        control = control.get(len.next_multiple_of(8)..).unwrap_or(&[]);
        Some((int(rest)?, int(&rest[4..])?, data))
    })
}

/// Reads what the kernel says beside a datagram.
fn read_control(control: &[u8], datagram: &mut Datagram<'_>) {
    for (level, kind, data) in control_messages(control) {
        let byte = int(data).or_else(|| data.first().map(|b| i32::from(*b))).unwrap_or(0);
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                let word = |at: usize| data.get(at..at + 8).and_then(|b| b.first_chunk().copied());
                if let (Some(seconds), Some(nanos)) = (word(0), word(8)) {
                    datagram.arrived_ns = Some(
                        u64::from_ne_bytes(seconds) * 1_000_000_000 + u64::from_ne_bytes(nanos),
                    );
                }
            }
            (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                datagram.ttl = byte as u8;
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                datagram.tos = byte as u8;
            }
            (libc::SOL_UDP, libc::UDP_GRO) => {
                datagram.segment = int(data).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            }
            _ => {}
        }
    }
}

fn address(storage: &sockaddr_storage, len: usize) -> Option<SocketAddr> {
    // SAFETY: sockaddr_storage is large and aligned enough for sockaddr_in and sockaddr_in6, both
    // plain integers, and is fully initialised; the family says which one the kernel wrote.
    unsafe {
        match i32::from(storage.ss_family) {
            libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
                let v4 = &*ptr::from_ref(storage).cast::<libc::sockaddr_in>();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::new(IpAddr::V4(ip), u16::from_be(v4.sin_port)))
            }
            libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
                let v6 = &*ptr::from_ref(storage).cast::<libc::sockaddr_in6>();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddr::V6(SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id)))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn datagrams_that_are_alike_leave_together() {
        let bytes = [0; 2000];
        for (lens, want) in [
            (&[][..], 0),
            (&[100], 1),
            (&[100, 100, 100], 3),
            (&[100, 100, 60, 100], 3),
            (&[100, 200], 1),
            (&[1464; 50], 44),
            (&[1; 70], 64),
            (&[0, 0], 1),
            (&[100, 100, 0], 2),
        ] {
            let cut = |len: &usize| Outgoing::new(&bytes[..len / 2], &bytes[len / 2..*len]);
            let packets: Vec<_> = lens.iter().map(cut).collect();
            assert_eq!(alike(&packets), want, "lengths {lens:?}");
        }
    }

    #[test]
    fn a_message_is_cut_where_its_datagrams_end() {
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        from.connect(to.local_addr().expect("bound")).expect("loopback");
        to.set_nonblocking(true).expect("a socket");
        let bodies: Vec<_> = (0..20_u8).map(|i| vec![i; if i == 19 { 40 } else { 1400 }]).collect();
        let packets: Vec<_> =
            bodies.iter().map(|body| Outgoing::new(b"head", body.as_slice())).collect();
        assert_eq!(alike(&packets), 20);
        let mut together = Together::default();
        let sent = send_cut(from.as_fd(), &packets, &mut together).expect("sent");
        assert_eq!(sent, 20);
        let mut batch = RecvBatch::new(64, 1500);
        assert_eq!(batch.recv(to.as_fd()).expect("arrived"), 20);
        for (i, body) in bodies.iter().enumerate() {
            let want = [b"head", body.as_slice()].concat();
            assert_eq!(batch.get(i).bytes[..batch.get(i).len], want, "datagram {i}");
        }
    }

    #[test]
    fn small_datagrams_arrive_as_they_were_beside_large_ones() {
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        from.connect(to.local_addr().expect("bound")).expect("loopback");
        to.set_nonblocking(true).expect("a socket");
        // Messages at the bound, below it with a shorter last datagram, above it, and alone.
        let sizes = [&[SMALL; 20][..], &[64; 30], &[10, SMALL + 1, SMALL + 1, 0, 3]].concat();
        let bytes: Vec<Vec<u8>> = (0u8..)
            .zip(&sizes)
            .map(|(i, &len)| (0..len).map(|at| i ^ (at % 251) as u8).collect())
            .collect();
        let packets: Vec<_> = bytes
            .iter()
            .map(|bytes| bytes.split_at(bytes.len().min(20)))
            .map(|(head, body)| Outgoing::new(head, body))
            .collect();
        let mut together = Together::default();
        let sent = send_cut(from.as_fd(), &packets, &mut together).expect("sent");
        assert_eq!(sent, packets.len());
        let mut batch = RecvBatch::new(64, 1500);
        assert_eq!(batch.recv(to.as_fd()).expect("arrived"), packets.len());
        for (i, bytes) in bytes.iter().enumerate() {
            assert_eq!(batch.get(i).bytes, bytes, "datagram {i}");
        }
    }

    #[test]
    fn messages_that_are_cut_arrive_joined_with_the_size_of_their_parts() {
        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        crate::socket::join(&to).expect("UDP_GRO");
        crate::socket::ask_for_stamps(&to).expect("stamps");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        from.connect(to.local_addr().expect("bound")).expect("loopback");
        let body = [7; 1400];
        // Three messages: 10 of 100 bytes and a shorter one, one of 1000, 2 of 1200.
        let lens = [&[100; 10][..], &[60, 1000, 1200, 1200]].concat();
        let packets: Vec<_> =
            lens.iter().map(|&len| Outgoing::new(b"head", &body[..len - 4])).collect();
        let mut together = Together::default();
        let sent = send_cut(from.as_fd(), &packets, &mut together).expect("sent");
        assert_eq!(sent, 14);
        let mut batch = RecvBatch::new(8, 65_536);
        assert_eq!(batch.recv(to.as_fd()).expect("arrived"), 3);
        let got: Vec<_> = (0..3).map(|i| (batch.get(i).len, batch.get(i).segment)).collect();
        assert_eq!(got, [(1060, 100), (1000, 0), (2400, 1200)]);
        assert!((0..3).all(|i| batch.get(i).arrived_ns.is_some() && batch.get(i).ttl == 64));
    }

    #[test]
    fn a_batch_arrives_with_lengths_sources_and_stamps() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let to = UdpSocket::bind(address).expect("loopback");
            crate::socket::ask_for_stamps(&to).expect("stamps");
            let from = UdpSocket::bind(address).expect("loopback");
            from.connect(to.local_addr().expect("bound")).expect("loopback");
            let body = [7; 1400];
            let packets: Vec<_> =
                (0..10).map(|i| Outgoing::new(b"head", &body[..i * 100])).collect();
            assert_eq!(send(from.as_fd(), &packets).expect("sent"), 10);
            let mut batch = RecvBatch::new(64, 8);
            assert_eq!(batch.recv(to.as_fd()).expect("arrived"), 10);
            for i in 0..10 {
                let datagram = batch.get(i);
                assert_eq!(datagram.len, 4 + i * 100, "datagram {i} of {address}");
                assert_eq!(&datagram.bytes[..4], b"head");
                assert_eq!(datagram.source, from.local_addr().ok());
                let stamp = datagram.arrived_ns.expect("a kernel stamp");
                assert!(crate::clock::unix_ns().abs_diff(stamp) < 5_000_000_000);
                assert_eq!(datagram.ttl, 64, "{address}");
            }
            let error = batch.recv(to.as_fd()).expect_err("nothing is left");
            assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
        }
    }
}
