//! Small questions to the kernel that no safe wrapper answers.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths of small C structs and the kernel's one-byte values in C ints"
)]

use std::mem;
use std::os::fd::{AsFd, AsRawFd};

/// State of the kernel's clock discipline (adjtimex).
#[derive(Clone, Copy, Debug)]
pub struct ClockQuality {
    /// Largest error of the clock, as the kernel estimates it.
    pub max_error_ns: u64,
    /// True if the kernel takes its clock for synchronised.
    pub synchronised: bool,
}

/// Steps of nice by which a thread gives way: it has a tenth of the time of one that does not, where both want all.
const WAY: i32 = 10;

/// Lowers the priority of the calling thread, and of those that it starts from now on, for good.
pub fn give_way() {
    // SAFETY: no memory is passed. Lowering is always allowed, so that the result says nothing.
    unsafe { libc::nice(WAY) };
}

/// Reads the state of the kernel's clock discipline without changing it.
pub fn clock_quality() -> Option<ClockQuality> {
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
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn set_int(socket: &impl AsFd, level: i32, option: i32, value: i32) -> std::io::Result<()> {
    set(socket, level, option, &value.to_ne_bytes())
}

fn set(socket: &impl AsFd, level: i32, option: i32, value: &[u8]) -> std::io::Result<()> {
    // SAFETY: the pointer leads to `value` and the length is its own.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_ptr().cast(),
            value.len() as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Datagrams that this socket dropped for want of buffer space since it was opened, modulo 2^32
/// (`SO_MEMINFO`: the counter that `SO_RXQ_OVFL` tells with each datagram, and `ss -m` shows as `d`;
/// asked for at the end it includes what was dropped after the last datagram).
pub fn socket_drops(socket: &impl AsFd) -> Option<u32> {
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
    (result == 0 && len as usize == size_of_val(&info)).then_some(info[DROPS])
}

/// Sets a socket option made of 32-bit words.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn set_bytes(
    socket: &impl AsFd,
    level: i32,
    option: i32,
    words: &[u32],
) -> std::io::Result<()> {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    set(socket, level, option, &bytes)
}

/// Sets a socket option of 64 bits.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn set_u64(socket: &impl AsFd, level: i32, option: i32, value: u64) -> std::io::Result<()> {
    set(socket, level, option, &value.to_ne_bytes())
}

/// Reads a socket option that is a C value of plain integers; an error when the kernel's is shorter.
fn get<T: Copy>(socket: &impl AsFd, level: i32, option: i32) -> std::io::Result<T> {
    let mut value = mem::MaybeUninit::<T>::zeroed();
    let mut len = size_of::<T>() as u32;
    // SAFETY: `value` is as long as `len` says; the kernel writes at most that much.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            value.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    match result {
        // SAFETY: `T` is made of plain integers, and every byte is zero or the kernel's.
        0 if len as usize == size_of::<T>() => Ok(unsafe { value.assume_init() }),
        0 => Err(std::io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Returns the offsets of an AF_XDP socket's rings.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn xdp_offsets(socket: &impl AsFd) -> std::io::Result<libc::xdp_mmap_offsets> {
    get(socket, libc::SOL_XDP, libc::XDP_MMAP_OFFSETS)
}

/// Returns what an AF_XDP socket has counted.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn xdp_statistics(socket: &impl AsFd) -> std::io::Result<libc::xdp_statistics> {
    get(socket, libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// Returns true if the device of an AF_XDP socket writes frames into its memory by itself.
pub fn xdp_zero_copy(socket: &impl AsFd) -> bool {
    let options = get::<libc::xdp_options>(socket, libc::SOL_XDP, libc::XDP_OPTIONS);
    options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Returns what the kernel would send from a connected socket: time to live or hop limit, traffic class, and
/// the largest IP packet on its path.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn ip_settings(socket: &impl AsFd, v6: bool) -> std::io::Result<(u8, u8, usize)> {
    let (level, options) = if v6 {
        (libc::IPPROTO_IPV6, [libc::IPV6_UNICAST_HOPS, libc::IPV6_TCLASS, libc::IPV6_MTU])
    } else {
        (libc::IPPROTO_IP, [libc::IP_TTL, libc::IP_TOS, libc::IP_MTU])
    };
    let mut values = [0i32; 3];
    for (value, option) in values.iter_mut().zip(options) {
        *value = get(socket, level, option)?;
    }
    let byte = |value: i32| u8::try_from(value).map_err(std::io::Error::other);
    let mtu = usize::try_from(values[2]).map_err(std::io::Error::other)?;
    Ok((byte(values[0])?, byte(values[1])?, mtu))
}

/// Has a classic BPF program choose among the sockets that share a port (SO_ATTACH_REUSEPORT_CBPF).
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn choose_socket(socket: &impl AsFd, program: &mut [libc::sock_filter]) -> std::io::Result<()> {
    let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: the pointers lead to `program` and its steps, which outlive the call; the kernel copies them.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_REUSEPORT_CBPF,
            (&raw const program).cast(),
            size_of_val(&program) as u32,
        )
    };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// State of a TCP connection in the kernel (`TCP_INFO`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    /// Maximum segment size, in bytes.
    pub mss: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// Its mean deviation.
    pub rtt_var_us: u32,
    /// Smallest round-trip time so far.
    pub min_rtt_us: u32,
    /// Slow-start threshold in segments.
    pub ssthresh: u32,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Segments on their way.
    pub unacked: u32,
    /// Segments sent again since the connection was opened.
    pub retransmitted: u32,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Limit on the pacing rate.
    pub max_pacing_rate_bps: u64,
    /// Latest delivery rate.
    pub delivery_rate_bps: u64,
}

/// Asks for [`TcpInfo`]; `None` when the socket is no TCP connection or the kernel is older than 4.9.
pub fn tcp_info(socket: &impl AsFd) -> Option<TcpInfo> {
    // The words of `struct tcp_info` (linux/tcp.h) up to `tcpi_delivery_rate`.
    let mut words = [0u32; 42];
    let mut len = size_of_val(&words) as u32;
    // SAFETY: `words` is as long as `len` says; the kernel writes at most that much.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            words.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if result != 0 || len as usize != size_of_val(&words) {
        return None;
    }
    let long = |at: usize| {
        let (low, high) = (words[at].to_ne_bytes(), words[at + 1].to_ne_bytes());
        let [a, b, c, d] = low;
        let [e, f, g, h] = high;
        u64::from_ne_bytes([a, b, c, d, e, f, g, h])
    };
    Some(TcpInfo {
        mss: words[4],
        unacked: words[6],
        rtt_us: words[17],
        rtt_var_us: words[18],
        ssthresh: words[19],
        cwnd: words[20],
        retransmitted: words[25],
        max_pacing_rate_bps: long(28).saturating_mul(8),
        acked_bytes: long(30),
        min_rtt_us: words[37],
        delivery_rate_bps: long(40).saturating_mul(8),
    })
}

/// Gives the calling thread real-time priority (SCHED_FIFO, the lowest of its levels), or takes it
/// away.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn set_fifo(on: bool) -> std::io::Result<()> {
    let (policy, priority) = if on { (libc::SCHED_FIFO, 1) } else { (libc::SCHED_OTHER, 0) };
    // SAFETY: sched_param is plain integers; all-zero is valid.
    let mut param: libc::sched_param = unsafe { mem::zeroed() };
    param.sched_priority = priority;
    // SAFETY: the pointer is to a valid sched_param that outlives the call; 0 is this thread.
    let result = unsafe { libc::sched_setscheduler(0, policy, &raw const param) };
    if result == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// The shortest turn that the kernel grants, in nanoseconds.
const SHORT_TURN_NS: u64 = 100_000;

/// Asks for the shortest turns on the processor for the calling thread: a thread that is content with little gets
/// it sooner than those that wait with it (EEVDF, Linux 6.12; older kernels change nothing).
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn ask_for_short_turns() -> std::io::Result<()> {
    let len = size_of::<libc::sched_attr>() as u32;
    // SAFETY: plain integers; all-zero is valid.
    let mut attributes: libc::sched_attr = unsafe { mem::zeroed() };
    // SAFETY: the pointer is to a valid sched_attr of this length, which the kernel fills; 0 is this thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, len, 0) };
    if got != 0 {
        return Err(std::io::Error::last_os_error());
    }
    attributes.size = len;
    attributes.sched_runtime = SHORT_TURN_NS;
    // SAFETY: the pointer is to a valid sched_attr that outlives the call; 0 is this thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    if set == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}

/// Reads from a stream socket into the spare room of a buffer; 0 is the end of the stream.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn receive(socket: &socket2::Socket, into: &mut bytes::BytesMut) -> std::io::Result<usize> {
    let got = socket.recv(into.spare_capacity_mut())?;
    let len = into.len() + got;
    // SAFETY: the kernel has written the first `got` bytes of the spare room.
    unsafe { into.set_len(len) };
    Ok(got)
}

/// Reads a datagram into the spare room of a buffer; its sender.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn receive_from(
    socket: &socket2::Socket,
    into: &mut bytes::BytesMut,
) -> std::io::Result<Option<std::net::SocketAddr>> {
    let (got, source) = socket.recv_from(into.spare_capacity_mut())?;
    let len = into.len() + got;
    // SAFETY: the kernel has written the first `got` bytes of the spare room.
    unsafe { into.set_len(len) };
    Ok(source.as_socket())
}

/// Reads from a connection, with the kernel's stamp of the last bytes read (Unix nanoseconds) where it has
/// one. The stamp is never earlier than those bytes: of joined segments the kernel keeps the last one's.
///
/// # Errors
/// The system's, in words where the caller shows them.
pub fn read_stamped(socket: &impl AsFd, into: &mut [u8]) -> std::io::Result<(usize, Option<u64>)> {
    let mut control = nix::cmsg_space!(nix::sys::time::TimeSpec);
    let mut parts = [std::io::IoSliceMut::new(into)];
    let read = nix::sys::socket::recvmsg::<()>(
        socket.as_fd().as_raw_fd(),
        &mut parts,
        Some(&mut control),
        nix::sys::socket::MsgFlags::empty(),
    )?;
    let stamp = read.cmsgs()?.find_map(|message| match message {
        nix::sys::socket::ControlMessageOwned::ScmTimestampns(at) => {
            Some(at.tv_sec().unsigned_abs() * 1_000_000_000 + at.tv_nsec().unsigned_abs())
        }
        _ => None,
    });
    Ok((read.bytes, stamp))
}

/// Datagrams that were not given to a UDP socket of this network namespace, by the reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpErrors {
    /// They found a full receive buffer.
    pub full: u64,
    /// Their checksum was wrong.
    pub checksum: u64,
}

impl UdpErrors {
    /// Those since an earlier reading.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        Self {
            full: self.full.saturating_sub(before.full),
            checksum: self.checksum.saturating_sub(before.checksum),
        }
    }

    /// Drops of one socket by their reasons, where these errors are those of all sockets in the same time; `None` where
    /// that cannot be told. Kernels from 6.18 on do not count wrong checksums as drops of the socket.
    #[must_use]
    pub const fn of_socket(self, drops: u64) -> Option<Self> {
        match (self.full, self.checksum) {
            (_, 0) => Some(Self { full: drops, checksum: 0 }),
            (0, _) if drops > 0 => Some(Self { full: 0, checksum: drops }),
            // Others had none.
            (full, checksum) if full + checksum == drops => Some(self),
            _ => None,
        }
    }
}

/// Errors at all UDP sockets of this network namespace since it was made.
pub fn udp_errors() -> Option<UdpErrors> {
    let v4 = std::fs::read_to_string("/proc/thread-self/net/snmp").ok()?;
    // A host without IPv6 has no such file.
    let v6 = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap_or_default();
    udp_errors_in(&v4, &v6)
}

fn udp_errors_in(v4: &str, v6: &str) -> Option<UdpErrors> {
    let mut udp = v4.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let (names, values) = (udp.next()?, udp.next()?);
    let column = |name: &str| {
        let mut columns = names.split_ascii_whitespace().zip(values.split_ascii_whitespace());
        columns.find(|(column, _)| *column == name)?.1.parse::<u64>().ok()
    };
    let line = |name: &str| {
        let text = v6.lines().find_map(|line| line.strip_prefix("Udp6")?.strip_prefix(name));
        text.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(0)
    };
    let of = |name: &str| Some(column(name)? + line(name));
    Some(UdpErrors { full: of("RcvbufErrors")?, checksum: of("InCsumErrors").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_by_name() {
        let v4 = "Tcp: RtoAlgorithm\nTcp: 1\nUdp: InDatagrams NoPorts InErrors RcvbufErrors InCsumErrors\n\
                  Udp: 10 1 2 3 7\nUdpLite: InDatagrams RcvbufErrors\nUdpLite: 0 9\n";
        let v6 = "Udp6InErrors                    \t5\nUdp6RcvbufErrors                \t40\n\
                  Udp6InCsumErrors                \t1\n";
        for (v4, v6, want) in [
            (v4, v6, Some(UdpErrors { full: 43, checksum: 8 })),
            (v4, "", Some(UdpErrors { full: 3, checksum: 7 })),
            ("Udp: RcvbufErrors\nUdp: x\n", v6, None),
            ("Udp: NoPorts\nUdp: 1\n", v6, None),
            ("", v6, None),
        ] {
            assert_eq!(udp_errors_in(v4, v6), want, "{v4:?} {v6:?}");
        }
        assert!(udp_errors().is_some());
    }

    #[test]
    fn the_counter_of_drops_is_the_one_that_comes_with_datagrams() {
        use std::net::UdpSocket;

        use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};

        let to = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        let from = UdpSocket::bind("127.0.0.1:0").expect("loopback");
        from.connect(to.local_addr().expect("bound")).expect("loopback");
        setsockopt(&to, sockopt::RxqOvfl, &1).expect("every kernel has it");
        setsockopt(&to, sockopt::RcvBuf, &4096).expect("a small buffer");
        assert_eq!(socket_drops(&to), Some(0));
        for _ in 0..200 {
            from.send(&[7; 1000]).expect("sent, if not received");
        }
        let drops = socket_drops(&to).expect("a socket");
        assert!((100..200).contains(&drops), "{drops}");
        let mut taken = 0;
        to.set_nonblocking(true).expect("a socket");
        while to.recv(&mut [0; 1000]).is_ok() {
            taken += 1;
        }
        assert_eq!(taken + drops, 200);
        // What comes with a datagram is the count when it was queued.
        from.send(&[7; 10]).expect("sent");
        let mut space = nix::cmsg_space!(u32);
        let mut bytes = [0; 10];
        let mut into = [std::io::IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::empty();
        let read = recvmsg::<()>(to.as_raw_fd(), &mut into, Some(&mut space), flags);
        let read = read.expect("it has room");
        let told = read.cmsgs().expect("they fit").find_map(|message| match message {
            ControlMessageOwned::RxqOvfl(drops) => Some(drops),
            _ => None,
        });
        assert_eq!(told, Some(drops));
    }
}
