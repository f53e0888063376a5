//! Plan of a simulated experiment with a log server, drawn from a seed.

use chacha20::ChaCha8Rng;
use itg_session::logs::{LogLimits, ProducerTimeouts, Transport};
use rand::{RngExt, SeedableRng};

pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1000 * MS;
/// Largest block in these simulations, in bytes.
pub const BLOCK_BYTES: u32 = 2048;

/// Behaviour of a driver that has a full block and no free buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFull {
    Wait,
    Drop,
    Grow,
}

#[derive(Clone, Debug)]
pub struct ProducerPlan {
    pub transport: Transport,
    pub run: String,
    pub blocks: u32,
    /// A block is full after each of these.
    pub interval_ns: u64,
    pub start_ns: u64,
    /// The experiment ends, whatever has been produced.
    pub stop_ns: u64,
    pub on_full: OnFull,
    pub max_unacked: u32,
    pub memory_blocks: u32,
    pub patience_ns: Option<u64>,
    pub knows_secret: bool,
}

/// The server is not there for a while.
#[derive(Clone, Copy, Debug)]
pub struct Outage {
    pub at: u64,
    pub lasts: u64,
    /// Shut down in an orderly way first.
    pub orderly: bool,
    /// Producers learn of it at once; else only by silence.
    pub noticed: bool,
    /// Writes that were waiting and reached the disk nevertheless.
    pub written: usize,
}

#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub producers: Vec<ProducerPlan>,
    pub limits: LogLimits,
    /// Longest delay of a frame.
    pub delay_ns: u64,
    /// Longest time for a write.
    pub disk_ns: u64,
    /// Most writes at once.
    pub disk_batch: usize,
    /// Share of writes that fail.
    pub store_fails: f64,
    /// Shares of datagrams lost, sent twice, and damaged (damaged: of blocks on TCP too).
    pub loss: f64,
    pub twice: f64,
    pub damage: f64,
    /// Share of frames with which a connection dies.
    pub cut: f64,
    /// The connection dies with this frame.
    pub cut_at: Option<usize>,
    pub outages: Vec<Outage>,
    /// The disk is full from, to.
    pub full: Vec<(u64, u64)>,
    pub secret: bool,
    /// Share of blocks that cannot be read from a spool.
    pub spool_fails: f64,
    /// Patience of a producer that takes its leave.
    pub leave_ns: u64,
}

impl Plan {
    /// An experiment in which nothing goes wrong.
    pub fn clean(seed: u64, producers: usize, transport: Transport) -> Self {
        let producer = ProducerPlan {
            transport,
            run: "run".to_owned(),
            blocks: 40,
            interval_ns: 20 * MS,
            start_ns: 0,
            stop_ns: 60 * SECOND,
            on_full: OnFull::Wait,
            max_unacked: 8,
            memory_blocks: 8,
            patience_ns: None,
            knows_secret: true,
        };
        Self {
            seed,
            producers: vec![producer; producers],
            limits: LogLimits {
                budget_bytes: 1 << 20,
                block_bytes: BLOCK_BYTES,
                ..LogLimits::default()
            },
            delay_ns: 5 * MS,
            disk_ns: 2 * MS,
            disk_batch: 4,
            store_fails: 0.0,
            loss: 0.0,
            twice: 0.0,
            damage: 0.0,
            cut: 0.0,
            cut_at: None,
            outages: Vec::new(),
            full: Vec::new(),
            secret: false,
            spool_fails: 0.0,
            leave_ns: ProducerTimeouts::default().leave_ns,
        }
    }

    /// An experiment drawn from a seed: which kinds of faults there are is drawn first.
    pub fn draw(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let r = &mut rng;
        let n = match r.random_range(0..20u32) {
            0..14 => r.random_range(1..4),
            14..19 => r.random_range(4..12),
            _ => r.random_range(12..40),
        };
        let mut plan = Self::clean(seed, n, Transport::Tcp);
        let spools = r.random_bool(0.5);
        let (udp, runs) = ([0.0, 0.5, 1.0][r.random_range(0..3usize)], r.random_range(1..4u32));
        for producer in &mut plan.producers {
            if r.random_bool(udp) {
                producer.transport = Transport::Udp;
            }
            producer.run = format!("run/{}", r.random_range(0..runs));
            producer.blocks = r.random_range(0..60);
            producer.interval_ns = [0, MS, 30 * MS, 400 * MS][r.random_range(0..4usize)];
            producer.start_ns = r.random_range(0..2 * SECOND);
            producer.stop_ns = producer.start_ns + r.random_range(SECOND..40 * SECOND);
            producer.on_full =
                [OnFull::Wait, OnFull::Drop, OnFull::Grow][r.random_range(0..3usize)];
            producer.max_unacked = r.random_range(1..10);
            producer.memory_blocks = r.random_range(1..10);
            producer.patience_ns = spools.then(|| r.random_range(0..5 * SECOND));
            producer.knows_secret = r.random_bool(0.9);
        }
        let mut fault = |share: f64, most: f64| {
            if r.random_bool(share) { r.random_range(0.0..most) } else { 0.0 }
        };
        plan.store_fails = fault(0.2, 0.1);
        plan.loss = fault(0.5, 0.4);
        plan.twice = fault(0.5, 0.4);
        plan.damage = fault(0.2, 0.05);
        plan.cut = fault(0.4, 0.03);
        plan.spool_fails = fault(0.1, 0.2);
        plan.delay_ns = [0, MS, 50 * MS, 400 * MS][r.random_range(0..4usize)];
        plan.disk_ns = [0, MS, 100 * MS, SECOND][r.random_range(0..4usize)];
        plan.disk_batch = r.random_range(1..9);
        plan.secret = r.random_bool(0.2);
        if r.random_bool(0.3) {
            let blocks = n as u64 * r.random_range(4..12);
            plan.limits.budget_bytes = blocks * u64::from(BLOCK_BYTES);
        }
        if r.random_bool(0.1) {
            plan.limits.ranges = 16;
        }
        if r.random_bool(0.1) {
            plan.limits.experiments = 1;
        }
        let mut at = 0;
        while plan.outages.len() < 4 && r.random_bool(0.4) {
            at += r.random_range(0..8 * SECOND);
            let longest = if r.random_bool(0.5) { 100 * MS } else { 20 * SECOND };
            let lasts = r.random_range(0..longest);
            plan.outages.push(Outage {
                at,
                lasts,
                orderly: r.random_bool(0.3),
                noticed: r.random_bool(0.7),
                written: r.random_range(0..6),
            });
            at += lasts + 12 * SECOND;
        }
        let mut at = 0;
        while plan.full.len() < 3 && r.random_bool(0.3) {
            at += r.random_range(0..8 * SECOND);
            let until = at + r.random_range(0..15 * SECOND);
            plan.full.push((at, until));
            at = until + 1;
        }
        plan
    }

    /// Returns true if every log has to be stored completely.
    pub fn is_clean(&self) -> bool {
        let shares = [self.cut, self.store_fails, self.damage, self.loss, self.spool_fails];
        shares.iter().all(|&share| share == 0.0)
            && self.outages.is_empty()
            && self.full.is_empty()
            && self.cut_at.is_none()
            && !self.secret
            && self.limits.experiments > 1
            && self.disk_ns <= 100 * MS
    }

    /// Instant at which all faults are over and all producers have been closed.
    pub fn quiet_at(&self) -> u64 {
        let stops = self.producers.iter().map(|p| p.stop_ns);
        let outages = self.outages.iter().map(|o| o.at + o.lasts + 20 * SECOND);
        let full = self.full.iter().map(|&(_, until)| until);
        stops.chain(outages).chain(full).max().unwrap_or(0)
    }

    /// Instant by which every producer must have ended: each block may take `leave_ns` at most.
    pub fn horizon(&self) -> u64 {
        let most = self.producers.iter().map(|p| u64::from(p.blocks)).max().unwrap_or(0);
        self.quiet_at() + (most + 2) * self.leave_ns
    }
}
