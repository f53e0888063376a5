//! Figures beside the classical ones: percentiles with the count behind them, delay variation after
//! RFC 5481, the ledger of where time and packets went, loss as a process of two states, and how far
//! packets were out of order. Definitions and sources: `docs/decode.md`.

use serde::Serialize;

use crate::delay::{DelayStats, SampleDistribution};
use crate::quantiles::Quantiles;
use crate::sequence::{Disorder, Loss};

/// Values that must lie beyond a percentile for it to be told: with fewer it says more about chance
/// than about the network.
pub const BEYOND: u64 = 10;

/// Returns true if enough of so many values lie beyond the percentile of this share for it to be told.
#[must_use]
pub fn is_told(count: u64, share: f64) -> bool {
    // The tolerance is for shares that are no binary fractions: 1 % of 1000 is 10.
    count as f64 * (1.0 - share) + 1e-6 >= BEYOND as f64
}

/// Percentiles (nearest rank) in nanoseconds; `None` where fewer than [`BEYOND`] values lie beyond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Percentiles {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: Option<i64>,
    /// 75th percentile.
    pub p75: Option<i64>,
    /// 90th percentile.
    pub p90: Option<i64>,
    /// 95th percentile.
    pub p95: Option<i64>,
    /// 99th percentile.
    pub p99: Option<i64>,
    /// 99.9th percentile.
    pub p999: Option<i64>,
    /// 99.99th percentile.
    pub p9999: Option<i64>,
    /// 99.999th percentile.
    pub p99999: Option<i64>,
}

impl Percentiles {
    /// Those of a list of values; `None` when there is none.
    #[must_use]
    pub fn of(values: &Quantiles) -> Option<Self> {
        Self::moved(values, 0)
    }

    /// Those of the values less `origin`.
    fn moved(values: &Quantiles, origin: i64) -> Option<Self> {
        const SHARES: [f64; 8] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 0.9999, 0.99999];
        let count = values.count();
        if count == 0 {
            return None;
        }
        let found = values.at(SHARES);
        let mut told = [None; 8];
        for ((told, value), share) in told.iter_mut().zip(found).zip(SHARES) {
            *told = is_told(count, share).then(|| value.saturating_sub(origin));
        }
        let [p50, p75, p90, p95, p99, p999, p9999, p99999] = told;
        Some(Self { count, p50, p75, p90, p95, p99, p999, p9999, p99999 })
    }
}

/// Percentiles 1 to 99. Those of few values repeat themselves: each value is kept once, with the last percentile that it
/// is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Percents(Box<[(u8, i64)]>);

impl Percents {
    /// Percentile *k* is at place *k* − 1.
    #[must_use]
    pub fn of(percentiles: [i64; 99]) -> Self {
        let runs = percentiles.chunk_by(|a, b| a == b).scan(0u8, |last, run| {
            *last += u8::try_from(run.len()).unwrap_or(0);
            Some((*last, run[0]))
        });
        Self(runs.collect())
    }

    /// The percentile with this number, 1 to 99.
    #[must_use]
    pub fn at(&self, percent: usize) -> Option<i64> {
        let place = self.0.partition_point(|(last, _)| usize::from(*last) < percent);
        self.0.get(place).filter(|_| percent > 0).map(|(_, value)| *value)
    }
}

/// Delay variation from packet to packet (RFC 5481, section 4.1) in nanoseconds: Dᵢ − Dᵢ₋₁ over
/// successive arrivals, signed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ipdv {
    /// Number of differences.
    pub count: u64,
    /// Smallest.
    pub min: i64,
    /// 1st percentile (nearest rank).
    pub p1: i64,
    /// Median.
    pub p50: i64,
    /// 99th percentile.
    pub p99: i64,
    /// Largest.
    pub max: i64,
    /// Mean of the magnitudes.
    pub mean_abs: f64,
}

/// Delay variation against the smallest delay (RFC 5481, section 4.2) in nanoseconds: Dᵢ − min D.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Pdv {
    /// Mean.
    pub mean: f64,
    /// Largest.
    pub max: i64,
    /// Percentiles.
    #[serde(flatten)]
    pub percentiles: Percentiles,
}

impl DelayStats {
    /// Variation from packet to packet; `None` with fewer than two delays.
    #[must_use]
    pub fn ipdv(&self) -> Option<Ipdv> {
        let steps = self.variation();
        let [p1, p50, p99] = steps.at([0.01, 0.5, 0.99]);
        (steps.count() > 0).then(|| Ipdv {
            count: steps.count(),
            min: steps.min(),
            p1,
            p50,
            p99,
            max: steps.max(),
            mean_abs: self.variation_mean(),
        })
    }

    /// Variation against the smallest delay; `None` when no delay is known.
    #[must_use]
    pub fn pdv(&self) -> Option<Pdv> {
        let moments = self.distribution().moments();
        let percentiles = Percentiles::moved(self.distribution().quantiles(), moments.min())?;
        let mean = (moments.mean() - moments.min() as f64).max(0.0);
        Some(Pdv { mean, max: moments.max().saturating_sub(moments.min()), percentiles })
    }
}

/// One way of a packet in the ledger, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Way {
    /// Packets of which it is known.
    pub count: u64,
    /// Smallest.
    pub min: i64,
    /// Mean.
    pub mean: f64,
    /// Median (nearest rank).
    pub p50: i64,
    /// 99th percentile.
    pub p99: i64,
    /// 99.9th percentile.
    pub p999: i64,
    /// Largest.
    pub max: i64,
}

impl Way {
    /// The figures of a distribution; `None` when it is empty.
    #[must_use]
    pub fn of(distribution: &SampleDistribution) -> Option<Self> {
        let moments = distribution.moments();
        let [p50, p99, p999] = distribution.quantiles().at([0.5, 0.99, 0.999]);
        (moments.count() > 0).then(|| Self {
            count: moments.count(),
            min: moments.min(),
            mean: moments.mean(),
            p50,
            p99,
            p999,
            max: moments.max(),
        })
    }
}

/// Time of the packets by its place, and lost packets by the place of their loss.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Ledger {
    /// In the sender: sent − planned.
    pub lateness_ns: Option<Way>,
    /// In the sender's network stack: left it − handed to the kernel, of packets whose departure the kernel
    /// stamped (`--tx-stamps`). Part of the time in the network.
    pub departure_ns: Option<Way>,
    /// In the network: arrived − sent; there and back in a round-trip flow.
    pub network_ns: Option<Way>,
    /// In the receive stack: read − arrived, where the kernel said when a packet arrived.
    pub stack_ns: Option<Way>,
    /// Packets.
    pub loss: LossSplit,
}

/// Lost packets by where they were lost; `None` where it is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LossSplit {
    /// Packets that the sender left out: never sent, and not among the lost.
    pub skipped: Option<u64>,
    /// Dropped by the kernel at the socket of the receiver while the flow ran, packets of other flows among them; `None`
    /// of a total where flows ran at one socket together, and of bursts some of which it dropped.
    pub socket: Option<u64>,
    /// Arrived, but their records did not make it into the log: not among the lost.
    pub log: Option<u64>,
    /// Dropped by the kernel at the receiver's socket because their checksum was wrong; told in the account.
    #[serde(skip)]
    pub checksum: Option<u64>,
    /// Arrived after the receiver had counted the flow, as far as it saw them; told in the account.
    #[serde(skip)]
    pub too_late: Option<u64>,
    /// Arrived from another port of the sender's address, and were left out; told in the account.
    #[serde(skip)]
    pub rebound: Option<u64>,
    /// Were in a connection that was over before its receiver had read them; told in the account.
    #[serde(skip)]
    pub receiver_gone: Option<u64>,
    /// Dropped by the sender's host below its sockets, of all traffic of the flow's device; told in the account.
    #[serde(skip)]
    pub sender_host: Option<u64>,
    /// The rest of the lost ones: in the network, in a host below the socket, and of round trips at the sender's socket;
    /// `None` also where it is not known how many the receiver's socket dropped, where that dropped more than were lost,
    /// as it does with duplicates, where it may have dropped packets of others, and where the sender's host dropped some.
    pub network: Option<u64>,
}

impl LossSplit {
    /// Gives the network the rest of `lost` packets, by what the receiver counted of the others.
    #[must_use]
    pub fn of(self, lost: Option<u64>) -> Self {
        let here = [self.checksum, self.too_late, self.rebound, self.receiver_gone];
        let here = here.into_iter().flatten();
        let network = lost.and_then(|lost| match self.socket {
            Some(socket) => here.fold(lost.checked_sub(socket), |rest, n| rest?.checked_sub(n)),
            // Some of them, or all, may be the socket's.
            None => Some(0).filter(|_| lost == 0),
        });
        // They may be this flow's, or another one's.
        let network = network.filter(|rest| *rest == 0 || self.sender_host.unwrap_or(0) == 0);
        Self { network, ..self }
    }

    /// Gives all of the lost packets of a transport that sends again what the path loses to the end of its connection.
    #[must_use]
    pub fn of_connection(self, lost: Option<u64>) -> Self {
        let none = lost.map(|_| 0);
        Self {
            socket: none,
            checksum: none,
            too_late: none,
            rebound: none,
            receiver_gone: lost,
            sender_host: none,
            network: none,
            ..self
        }
    }

    /// Adds those of another flow, but for the network's: see [`LossSplit::of`].
    pub fn add(&mut self, other: &Self) {
        let plus = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (a, b) => a.or(b),
        };
        self.skipped = plus(self.skipped, other.skipped);
        self.socket = plus(self.socket, other.socket);
        self.log = plus(self.log, other.log);
        self.checksum = plus(self.checksum, other.checksum);
        self.sender_host = plus(self.sender_host, other.sender_host);
        self.too_late = plus(self.too_late, other.too_late);
        self.rebound = plus(self.rebound, other.rebound);
        self.receiver_gone = plus(self.receiver_gone, other.receiver_gone);
    }
}

/// Loss as a process of two states, *arrives* and *is lost*, each packet's depending on that of the
/// one before (Gilbert, Bell System Technical Journal 39, 1960, with no loss in the good state and
/// nothing else in the bad one). The estimates are those of maximum likelihood: the share of packets
/// in one state that are followed by one in the other (Yajnik et al., INFOCOM 1999).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LossModel {
    /// Probability of a loss behind an arrival; `None` without arrivals.
    pub p: Option<f64>,
    /// Probability of an arrival behind a loss; `None` without losses.
    pub r: Option<f64>,
    /// Mean length of a run of arrivals as the model has it, 1/p packets.
    pub gap_mean: Option<f64>,
    /// Mean length of a run of losses as the model has it, 1/r packets.
    pub burst_mean: Option<f64>,
    /// Longest run of losses in packets, as it was.
    pub burst_max: u64,
}

impl LossModel {
    /// The model of what was seen; `None` without two successive packets.
    #[must_use]
    pub fn of(loss: &Loss) -> Option<Self> {
        let share = |part: u64, of: u64| (of > 0).then(|| part as f64 / of as f64);
        let inverse = |p: Option<f64>| p.filter(|&p| p > 0.0).map(|p| 1.0 / p);
        let p = share(loss.good_to_bad, loss.from_good);
        let r = share(loss.bad_to_good, loss.from_bad);
        (loss.from_good + loss.from_bad > 0).then(|| Self {
            p,
            r,
            gap_mean: inverse(p),
            burst_mean: inverse(r),
            burst_max: loss.longest,
        })
    }
}

/// Extent of reordering (RFC 4737).
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reordering {
    /// Mean extent of the reordered packets: how many packets before one the first with a larger number
    /// had arrived (section 4.2.1); 0 without any.
    pub extent_mean: f64,
    /// Largest extent.
    pub extent_max: u64,
    /// Runs of packets in order that a reordered one ended (section 4.5).
    pub free_runs: u64,
    /// Mean length of these runs in packets; 0 without any.
    pub free_run_mean: f64,
}

impl Reordering {
    /// The figures of `reordered` packets.
    #[must_use]
    pub fn of(reordered: u64, disorder: &Disorder) -> Self {
        let mean = |sum: u64, count: u64| if count == 0 { 0.0 } else { sum as f64 / count as f64 };
        Self {
            extent_mean: mean(disorder.extent_sum, reordered),
            extent_max: disorder.extent_max,
            free_runs: disorder.free_runs,
            free_run_mean: mean(disorder.free_packets, disorder.free_runs),
        }
    }
}
