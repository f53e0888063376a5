//! FDDI: a token goes round a ring of hosts, timed by the timed-token rules of ANSI X3.139.
//!
//! Each host's token-rotation timer `TRT` counts down from `TTRT`; when it expires it starts again and
//! the host is late. When the token arrives: if the host is not late, what is left of `TRT` becomes the
//! token-holding time and `TRT` starts again; if it is late, it is late no more, `TRT` goes on and there
//! is no holding time. Synchronous (urgent) frames are sent first, for at most `sync` in each visit; then
//! asynchronous ones while holding time is left, and a frame that was begun is finished. So a rotation
//! takes at most 2 · TTRT, and TTRT in the mean (Johnson 1987; Sevcik, Johnson 1987).
//!
//! While nothing waits and no host is late the token is parked, and found where it would have come:
//! an idle ring costs no events.

use std::collections::VecDeque;

use itg_core::units::{BitRate, format_duration_ns};
use itg_process::{ConfigError, Contract, MS, Params, Slot};

use crate::model::{Drop, Effect, Model, Packet, Usage, fragments, transmission_ns};

/// Largest payload of a frame: 4500 bytes less what a frame costs.
const MTU: u64 = 4500 - FRAME_COST;
/// Bytes that a frame costs besides its payload: preamble 8, delimiters and control 4, addresses 12,
/// check sequence 4.
const FRAME_COST: u64 = 28;
/// Bytes of a token: 88 bits.
const TOKEN: u64 = 11;
/// Time through a station, in nanoseconds.
const STATION: u64 = 1000;
/// Propagation of one kilometre of fibre, in nanoseconds.
const KILOMETRE: u64 = 5085;

#[derive(Clone, Debug)]
struct Frame {
    packet: u64,
    to: Vec<Slot>,
    time: u64,
    last: bool,
}

#[derive(Debug, Default)]
struct Station {
    sync: VecDeque<Frame>,
    asynchronous: VecDeque<Frame>,
    /// Time at which `TRT` expires.
    expires: u64,
    late: bool,
    /// Time of the token's last arrival; then longest, number and sum of its rotations under load.
    last_visit: Option<u64>,
    longest: u64,
    rotations: u64,
    rotating_ns: u64,
    sent_async: u64,
}

/// State of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    /// No host needs it; it would have arrived at host `at` at time `since`.
    Parked { at: usize, since: u64 },
    /// It arrives at this host with the next wake-up.
    Arriving(usize),
    /// This host sends a frame; so much of its synchronous and holding time is left.
    Held { at: usize, sync_left: u64, holding: u64, urgent: bool, since: u64 },
}

/// Rotations of a ring, for tests of the bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotations {
    /// Complete rotations, seen at all hosts.
    pub count: u64,
    /// The longest one, in nanoseconds.
    pub longest_ns: u64,
    /// Their mean at the host with the longest mean, in nanoseconds.
    pub mean_ns: u64,
}

/// The ring.
#[derive(Debug)]
pub struct Fddi {
    rate: u64,
    ttrt: u64,
    sync: u64,
    /// Time of a bit of a frame from one station to the next.
    latency: u64,
    /// The same with the time of a token, which the next station has when its last bit is there.
    hop: u64,
    queue: u64,
    stations: Vec<Station>,
    token: Token,
    /// Arrivals since a frame was sent or a host was late.
    quiet: usize,
    usage: Usage,
}

impl Fddi {
    /// A ring of this many hosts.
    ///
    /// # Errors
    /// Parameters out of range, or a target rotation time that cannot be kept.
    pub fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let rate = params.bit_rate("rate", 100_000_000)?;
        let ttrt = params.time_ns("ttrt", 8 * MS)?;
        let sync = params.time_ns("sync", 0)?;
        let km = params.number("ring_km", 1)?;
        let queue = params.number("queue", 1000)?;
        let n = u64::from(hosts.max(1));
        let latency = STATION + km.saturating_mul(KILOMETRE) / n;
        let token = transmission_ns(TOKEN, rate);
        let frame = transmission_ns(MTU + FRAME_COST, rate);
        let need = n * (sync + latency + token) + frame;
        if need > ttrt {
            let text = format!(
                "{} is too short: synchronous shares, ring latency, tokens and one frame need {}",
                format_duration_ns(ttrt),
                format_duration_ns(need)
            );
            return Err(params.error_at("ttrt", text));
        }
        let station = |_| Station { expires: ttrt, ..Station::default() };
        Ok(Self {
            rate,
            ttrt,
            sync,
            latency,
            hop: latency + token,
            queue,
            stations: (0..n).map(station).collect(),
            token: Token::Parked { at: 0, since: 0 },
            quiet: 0,
            usage: Usage::default(),
        })
    }

    /// The rotations so far; of an idle ring nothing is counted.
    #[must_use]
    pub fn rotations(&self) -> Rotations {
        let stations = &self.stations;
        let mean = |s: &Station| s.rotating_ns / s.rotations.max(1);
        Rotations {
            count: stations.iter().map(|s| s.rotations).sum(),
            longest_ns: stations.iter().map(|s| s.longest).max().unwrap_or(0),
            mean_ns: stations.iter().map(mean).max().unwrap_or(0),
        }
    }

    /// Asynchronous frames that each host has sent.
    #[must_use]
    pub fn async_frames(&self) -> Vec<u64> {
        self.stations.iter().map(|station| station.sent_async).collect()
    }

    fn next(&self, at: usize) -> usize {
        (at + 1) % self.stations.len()
    }

    /// The token arrives: timers first, then frames.
    fn arrive(&mut self, now: u64, at: usize, out: &mut Vec<Effect>) {
        let ttrt = self.ttrt;
        let station = &mut self.stations[at];
        if let Some(last) = station.last_visit {
            station.longest = station.longest.max(now - last);
            station.rotations += 1;
            station.rotating_ns += now - last;
        }
        station.last_visit = Some(now);
        while now >= station.expires {
            station.expires += ttrt;
            station.late = true;
        }
        let holding = if station.late {
            station.late = false;
            self.quiet = 0;
            0
        } else {
            let left = station.expires - now;
            station.expires = now + ttrt;
            left
        };
        self.quiet += 1;
        self.transmit(now, at, self.sync, holding, out);
    }

    /// Sends the next frame that may be sent, or passes the token.
    fn transmit(&mut self, now: u64, at: usize, sync: u64, holding: u64, out: &mut Vec<Effect>) {
        let station = &self.stations[at];
        let urgent = station.sync.front().map(|frame| frame.time).filter(|time| *time <= sync);
        let other = station.asynchronous.front().map(|frame| frame.time).filter(|_| holding > 0);
        let (time, sync_left, is_urgent) = match (urgent, other) {
            (Some(time), _) => (time, sync - time, true),
            (None, Some(time)) => (time, 0, false),
            (None, None) => return self.pass(now, at, out),
        };
        self.quiet = 0;
        self.usage.busy_ns += time;
        self.usage.frames += 1;
        self.token = Token::Held { at, sync_left, holding, urgent: is_urgent, since: now };
        out.push(Effect::Wake(0, now + time));
    }

    fn pass(&mut self, now: u64, at: usize, out: &mut Vec<Effect>) {
        let next = self.next(at);
        let idle = |s: &Station| s.sync.is_empty() && s.asynchronous.is_empty();
        // A whole rotation without a frame or a late host: nothing changes until a host sends.
        if self.quiet > self.stations.len() && self.stations.iter().all(idle) {
            self.token = Token::Parked { at: next, since: now + self.hop };
            return;
        }
        self.token = Token::Arriving(next);
        out.push(Effect::Wake(0, now + self.hop));
    }

    /// Lets the parked token go on from where it would be now.
    fn unpark(&mut self, now: u64, at: usize, since: u64, out: &mut Vec<Effect>) {
        let n = self.stations.len() as u64;
        let hops = now.saturating_sub(since).div_ceil(self.hop);
        let host = |k: u64| usize::try_from((at as u64 + k) % n).unwrap_or(0);
        // Every host that it passed meanwhile was visited in time.
        for k in hops.saturating_sub(n)..hops {
            let visit = since + k * self.hop;
            let station = &mut self.stations[host(k)];
            station.expires = visit + self.ttrt;
            station.late = false;
            station.last_visit = Some(visit);
        }
        self.quiet = 0;
        self.token = Token::Arriving(host(hops));
        out.push(Effect::Wake(0, since + hops * self.hop));
    }
}

impl Model for Fddi {
    fn describe(&self) -> String {
        let (ttrt, sync) = (format_duration_ns(self.ttrt), format_duration_ns(self.sync));
        format!("fddi rate={} ttrt={ttrt} sync={sync} queue={}", BitRate(self.rate), self.queue)
    }

    fn contract(&self) -> Contract {
        Contract { reliable: false, multicast: true, ..Contract::STREAM }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let (rate, cap) = (self.rate, self.queue);
        self.usage.packets += packet.to.slots().len() as u64;
        // Without a synchronous share everything is asynchronous.
        let urgent = packet.urgent && self.sync >= transmission_ns(MTU + FRAME_COST, rate);
        let station = &mut self.stations[packet.src.index()];
        let queue = if urgent { &mut station.sync } else { &mut station.asynchronous };
        let count = packet.bytes.div_ceil(MTU).max(1);
        if queue.len() as u64 + count > cap {
            self.usage.dropped += packet.to.slots().len() as u64;
            let drop = |&to: &Slot| Effect::Drop(packet.id, to, Drop::Queue);
            out.extend(packet.to.slots().iter().map(drop));
            return;
        }
        for (k, payload) in (1..).zip(fragments(packet.bytes, MTU)) {
            let time = transmission_ns(payload + FRAME_COST, rate);
            let to = packet.to.slots().to_vec();
            queue.push_back(Frame { packet: packet.id, to, time, last: k == count });
        }
        if let Token::Parked { at, since } = self.token {
            self.unpark(now, at, since, out);
        }
    }

    fn wake(&mut self, now: u64, _token: u64, out: &mut Vec<Effect>) {
        match self.token {
            Token::Parked { .. } => {}
            Token::Arriving(at) => self.arrive(now, at, out),
            Token::Held { at, sync_left, holding, urgent, since } => {
                let n = self.stations.len() as u64;
                let station = &mut self.stations[at];
                let queue = if urgent { &mut station.sync } else { &mut station.asynchronous };
                station.sent_async += u64::from(!urgent);
                if let Some(frame) = queue.pop_front()
                    && frame.last
                {
                    for to in frame.to {
                        let hops = (u64::from(to.0) + n - at as u64) % n;
                        out.push(Effect::Deliver(frame.packet, to, now + hops * self.latency));
                    }
                }
                let used = if urgent { 0 } else { now - since };
                self.transmit(now, at, sync_left, holding.saturating_sub(used), out);
            }
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
