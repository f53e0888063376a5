//! One TCP connection as a window: what is sent when, and what is acknowledged.
//!
//! Reno: slow start, congestion avoidance, fast retransmit and fast recovery of RFC 5681 with the partial
//! acknowledgements of RFC 6582. CUBIC: the window of RFC 9438 with its Reno-friendly region and fast
//! convergence, in whole numbers (bytes and milliseconds). Both: initial window of RFC 6928, retransmission
//! timer of RFC 6298 (at least one second), an acknowledgement for every segment, no selective
//! acknowledgements, segments of 1460 bytes with 40 bytes of headers, buffers of 4 MiB at both ends.
//! Connections are open before the flow starts and are not closed.

use std::collections::{BTreeMap, VecDeque};

use itg_process::{MS, SECOND};

/// Bytes of payload of a full segment.
pub(super) const MSS: u64 = 1460;
/// Bytes of IP and TCP headers.
pub(super) const HEADERS: u64 = 40;
/// Bytes that each end can hold.
const BUFFER: u64 = 4 << 20;
/// Shortest and longest time before the retransmission timer expires.
const RTO: (u64, u64) = (SECOND, 60 * SECOND);
/// Granularity of the clock in RFC 6298.
const GRANULARITY: u64 = MS;

/// Algorithm by which the window grows and shrinks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// RFC 5681.
    Reno,
    /// RFC 9438.
    #[default]
    Cubic,
}

impl Window {
    /// Its name and standard.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "Reno (RFC 5681, 6582)",
            Self::Cubic => "CUBIC (RFC 9438)",
        }
    }
}

/// State of CUBIC since the last congestion, in bytes.
#[derive(Debug, Default)]
struct Cubic {
    w_max: u64,
    prior: u64,
    epoch: Option<u64>,
    k_ms: u64,
    w_est: u64,
}

/// A packet of the application in the byte stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// Offset of its end in the stream.
    pub(super) end: u64,
    pub(super) seq: u64,
    pub(super) size: u32,
    /// Time at which it was written, on the sender's clock.
    pub(super) sent_ns: u64,
}

/// A segment to be sent: offset and length.
pub(super) type Segment = (u64, u64);

/// Both ends of a connection.
#[derive(Debug)]
pub(super) struct Connection {
    window: Window,
    written: u64,
    una: u64,
    next: u64,
    /// Highest offset ever sent.
    sent: u64,
    cwnd: u64,
    ssthresh: u64,
    duplicates: u32,
    /// In recovery until this offset is acknowledged.
    recover: Option<u64>,
    srtt: Option<u64>,
    rttvar: u64,
    rto: u64,
    /// Time at which the retransmission timer expires.
    pub(super) timer: Option<u64>,
    /// Time of the next entry of the agenda for the timer.
    pub(super) entered: Option<u64>,
    /// One segment is timed: its end and when it left (Karn's rule).
    timed: Option<(u64, u64)>,
    cubic: Cubic,
    frames: VecDeque<Written>,
    received: u64,
    early: BTreeMap<u64, u64>,
    pub(super) retransmissions: u64,
}

impl Connection {
    pub(super) fn new(window: Window) -> Self {
        Self {
            window,
            written: 0,
            una: 0,
            next: 0,
            sent: 0,
            cwnd: 10 * MSS,
            ssthresh: u64::MAX,
            duplicates: 0,
            recover: None,
            srtt: None,
            rttvar: 0,
            rto: RTO.0,
            timer: None,
            entered: None,
            timed: None,
            cubic: Cubic::default(),
            frames: VecDeque::new(),
            received: 0,
            early: BTreeMap::new(),
            retransmissions: 0,
        }
    }

    /// Returns true if this many more bytes fit into the send buffer; an empty buffer takes
    /// anything.
    pub(super) const fn has_room(&self, bytes: u64) -> bool {
        self.written - self.una + bytes <= BUFFER || self.written == self.una
    }

    /// Bytes that are written and not acknowledged.
    pub(super) const fn waiting(&self) -> u64 {
        self.written - self.una
    }

    /// Returns true if everything written has been acknowledged.
    pub(super) const fn is_done(&self) -> bool {
        self.una == self.written
    }

    /// The application writes a packet.
    pub(super) fn write(&mut self, seq: u64, size: u32, sent_ns: u64) {
        self.written += u64::from(size);
        self.frames.push_back(Written { end: self.written, seq, size, sent_ns });
    }

    /// The next segment that the window allows, if there is one.
    pub(super) fn poll(&mut self, now: u64) -> Option<Segment> {
        let window = self.cwnd.min(BUFFER);
        let left = self.written - self.next;
        let length = left.min(MSS);
        if left == 0 || (self.next + length > self.una + window && self.next > self.una) {
            return None;
        }
        let segment = (self.next, length);
        self.next += length;
        if self.next > self.sent {
            self.sent = self.next;
            self.timed.get_or_insert((self.next, now));
        } else {
            self.retransmissions += 1;
        }
        if self.timer.is_none() {
            self.timer = Some(now + self.rto);
        }
        Some(segment)
    }

    /// The timer has expired: what is to be sent again comes from [`Connection::poll`].
    pub(super) fn expire(&mut self, now: u64) {
        self.congestion(now);
        self.cwnd = MSS;
        self.next = self.una;
        self.recover = None;
        self.duplicates = 0;
        self.timed = None;
        self.rto = (2 * self.rto).min(RTO.1);
        self.timer = None;
    }

    /// An acknowledgement arrives; a segment that must be sent again at once is returned.
    pub(super) fn acknowledge(&mut self, now: u64, ack: u64) -> Option<Segment> {
        if ack > self.una {
            let fresh = ack - self.una;
            self.una = ack;
            self.next = self.next.max(ack);
            self.duplicates = 0;
            self.measure(now, ack);
            self.timer = (self.una < self.sent).then_some(now + self.rto);
            return match self.recover {
                Some(recover) if ack < recover => {
                    // A partial acknowledgement: the next hole.
                    self.cwnd = self.cwnd.saturating_sub(fresh).max(MSS) + MSS.min(fresh);
                    Some(self.again())
                }
                Some(_) => {
                    self.cwnd = self.ssthresh;
                    self.recover = None;
                    None
                }
                None => {
                    self.grow(now, fresh);
                    None
                }
            };
        }
        if ack < self.una || self.una == self.sent {
            return None;
        }
        self.duplicates += 1;
        if self.recover.is_some() {
            self.cwnd += MSS;
            return None;
        }
        if self.duplicates < 3 {
            return None;
        }
        self.congestion(now);
        self.cwnd = self.ssthresh + 3 * MSS;
        self.recover = Some(self.sent);
        self.timed = None;
        Some(self.again())
    }

    fn again(&mut self) -> Segment {
        self.retransmissions += 1;
        (self.una, (self.written - self.una).min(MSS))
    }

    /// A loss was noticed: the threshold, and CUBIC's memory.
    fn congestion(&mut self, _now: u64) {
        let flight = self.sent - self.una;
        match self.window {
            Window::Reno => self.ssthresh = (flight / 2).max(2 * MSS),
            Window::Cubic => {
                let cwnd = self.cwnd.min(flight.max(MSS));
                let cubic = &mut self.cubic;
                // Fast convergence: a flow that lost again before it reached its old window gives way.
                cubic.w_max = if cwnd < cubic.w_max { cwnd * 17 / 20 } else { cwnd };
                cubic.prior = cwnd;
                cubic.epoch = None;
                self.ssthresh = (cwnd * 7 / 10).max(2 * MSS);
            }
        }
    }

    /// New data were acknowledged outside recovery.
    fn grow(&mut self, now: u64, fresh: u64) {
        if self.cwnd < self.ssthresh {
            self.cwnd += fresh.min(MSS);
            return;
        }
        match self.window {
            Window::Reno => self.cwnd += (MSS * MSS / self.cwnd).max(1),
            Window::Cubic => self.grow_cubic(now, fresh),
        }
    }

    fn grow_cubic(&mut self, now: u64, fresh: u64) {
        let cwnd = self.cwnd;
        let cubic = &mut self.cubic;
        let epoch = *cubic.epoch.get_or_insert_with(|| {
            // K: the time to reach the old window again, the cube root of (w_max − cwnd) / C.
            let distance = cubic.w_max.saturating_sub(cwnd);
            cubic.k_ms = cube_root(u128::from(distance) * 2_500_000_000 / u128::from(MSS));
            cubic.w_est = cwnd;
            now
        });
        let rtt_ms = self.srtt.unwrap_or(0) / MS;
        let t = i128::from((now - epoch) / MS + rtt_ms) - i128::from(cubic.k_ms);
        let origin = i128::from(cubic.w_max.max(cwnd.min(cubic.w_max.max(1))));
        // C = 0.4 segments a second cubed.
        let w_cubic = origin + i128::from(MSS) * 4 * t * t * t / 10_000_000_000;
        // 3 (1 − β) / (1 + β) = 9/17 until the window before the loss is reached, then 1.
        let step = u128::from(MSS) * u128::from(fresh.min(MSS)) / u128::from(cwnd);
        let step = u64::try_from(step).unwrap_or(0);
        cubic.w_est += if cubic.w_est < cubic.prior { step * 9 / 17 } else { step };
        if w_cubic < i128::from(cubic.w_est) {
            self.cwnd = cwnd.max(cubic.w_est);
            return;
        }
        let target = w_cubic.clamp(i128::from(cwnd), i128::from(cwnd) * 3 / 2);
        let target = u64::try_from(target).unwrap_or(cwnd);
        let step = u128::from(MSS) * u128::from(target - cwnd) / u128::from(cwnd);
        self.cwnd += u64::try_from(step).unwrap_or(0);
    }

    /// RFC 6298.
    fn measure(&mut self, now: u64, ack: u64) {
        let Some((end, left)) = self.timed else { return };
        if ack < end {
            return;
        }
        self.timed = None;
        let rtt = now - left;
        match self.srtt {
            None => {
                self.srtt = Some(rtt);
                self.rttvar = rtt / 2;
            }
            Some(srtt) => {
                self.rttvar = (3 * self.rttvar + srtt.abs_diff(rtt)) / 4;
                self.srtt = Some((7 * srtt + rtt) / 8);
            }
        }
        let rto = self.srtt.unwrap_or(rtt) + (4 * self.rttvar).max(GRANULARITY);
        self.rto = rto.clamp(RTO.0, RTO.1);
    }

    /// A segment arrives at the receiver: the acknowledgement, and the packets that are complete now.
    pub(super) fn segment(&mut self, from: u64, length: u64, complete: &mut Vec<Written>) -> u64 {
        let end = from + length;
        if end > self.received {
            let known = self.early.entry(from).or_insert(end);
            *known = (*known).max(end);
        }
        while let Some((&from, &end)) = self.early.first_key_value()
            && from <= self.received
        {
            self.early.pop_first();
            self.received = self.received.max(end);
        }
        while let Some(frame) = self.frames.front()
            && frame.end <= self.received
        {
            complete.push(*frame);
            self.frames.pop_front();
        }
        self.received
    }
}

/// The largest whole number whose cube is not above this one.
fn cube_root(of: u128) -> u64 {
    let (mut low, mut high) = (0_u64, 1 << 42);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if u128::from(middle).pow(3) <= of { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cube_roots() {
        for (of, want) in [(0, 0), (1, 1), (7, 1), (8, 2), (26, 2), (27, 3), (1 << 120, 1 << 40)] {
            assert_eq!(cube_root(of), want, "{of}");
        }
    }

    /// Sends everything the window allows.
    fn flight(connection: &mut Connection, now: u64) -> Vec<Segment> {
        std::iter::from_fn(|| connection.poll(now)).collect()
    }

    #[test]
    fn slow_start_doubles_and_avoidance_adds_a_segment() {
        let mut tcp = Connection::new(Window::Reno);
        tcp.write(0, 3_000_000, 0);
        assert_eq!(flight(&mut tcp, 0).len(), 10);
        for k in 1..=10 {
            assert_eq!(tcp.acknowledge(100 * MS, k * MSS), None);
        }
        assert_eq!(tcp.cwnd, 20 * MSS);
        tcp.ssthresh = 20 * MSS;
        assert_eq!(flight(&mut tcp, 100 * MS).len(), 20);
        for k in 11..=30 {
            tcp.acknowledge(200 * MS, k * MSS);
        }
        assert!((21 * MSS - 80..=21 * MSS).contains(&tcp.cwnd), "{}", tcp.cwnd);
        assert_eq!((tcp.srtt, tcp.rto), (Some(100 * MS), SECOND));
    }

    #[test]
    fn three_duplicates_retransmit_and_halve() {
        let mut tcp = Connection::new(Window::Reno);
        tcp.write(0, 3_000_000, 0);
        flight(&mut tcp, 0);
        // The first segment is lost.
        assert_eq!(tcp.acknowledge(MS, 0), None);
        assert_eq!(tcp.acknowledge(MS, 0), None);
        assert_eq!(tcp.acknowledge(MS, 0), Some((0, MSS)));
        assert_eq!((tcp.ssthresh, tcp.cwnd), (5 * MSS, 8 * MSS));
        (0..6).for_each(|_| assert_eq!(tcp.acknowledge(MS, 0), None));
        assert_eq!(flight(&mut tcp, MS).len(), 4, "inflated window");
        assert_eq!(tcp.acknowledge(2 * MS, 10 * MSS), None);
        assert_eq!((tcp.cwnd, tcp.recover), (5 * MSS, None));
    }

    #[test]
    fn the_timer_backs_off_and_goes_back() {
        let mut tcp = Connection::new(Window::Reno);
        tcp.write(0, 3_000_000, 0);
        flight(&mut tcp, 0);
        assert_eq!(tcp.timer, Some(SECOND));
        tcp.expire(SECOND);
        assert_eq!((tcp.cwnd, tcp.ssthresh, tcp.rto), (MSS, 5 * MSS, 2 * SECOND));
        assert_eq!(flight(&mut tcp, SECOND), [(0, MSS)]);
    }

    #[test]
    fn cubic_returns_to_its_old_window_at_k() {
        let mut tcp = Connection::new(Window::Cubic);
        tcp.write(0, u32::MAX, 0);
        tcp.cwnd = 1000 * MSS;
        flight(&mut tcp, 0);
        for duplicate in 1..=3 {
            let again = tcp.acknowledge(MS, 0);
            assert_eq!(again.is_some(), duplicate == 3);
        }
        assert_eq!((tcp.cubic.w_max, tcp.ssthresh), (1000 * MSS, 700 * MSS));
        tcp.acknowledge(MS, tcp.sent);
        assert_eq!(tcp.cwnd, 700 * MSS);
        // K = cube root of 300 / 0.4: 9.086 s. Acknowledge full flights each 10 ms.
        let mut now = MS;
        let mut at_k = None;
        while now < 14 * SECOND {
            now += 10 * MS;
            flight(&mut tcp, now);
            while tcp.una < tcp.sent {
                tcp.acknowledge(now, (tcp.una + MSS).min(tcp.sent));
            }
            if now > 9_086 * MS && at_k.is_none() {
                at_k = Some(tcp.cwnd / MSS);
            }
        }
        assert!(at_k.is_some_and(|w| (985..=1100).contains(&w)), "{at_k:?} segments at K");
        assert!(tcp.cwnd / MSS > 1030, "convex growth after K: {}", tcp.cwnd / MSS);
    }
}
