//! Networks that are delays: fixed, from a table, or random; with bandwidth, queue, loss, duplication,
//! reordering and jitter, each link for itself.
//!
//! A directed pair of hosts is a link: a queue of `queue` bytes before a transmitter of `rate`, then
//! the delay. Exponential delays without order (`random`) exercise algorithms more than real networks
//! do, and are the default for tests of protocols.

use std::collections::BTreeMap;

use chacha20::ChaCha8Rng;
use itg_core::seed::RunSeed;
use itg_core::streams::{below, exponential_ns, happens};
use itg_core::units::format_duration_ns;
use itg_process::{ConfigError, Contract, MS, Params, Slot};

use crate::model::{Drop, Effect, Model, Packet, Usage, transmission_ns};

/// Distribution of the delay of a packet, in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Distribution {
    Fixed(u64),
    /// Row: sender; column: receiver.
    Matrix(Vec<Vec<u64>>),
    /// Floor and mean of what comes on top.
    Exponential(u64, u64),
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    free_at: u64,
    last_arrival: u64,
    busy_ns: u64,
}

/// The network.
#[derive(Debug)]
pub(crate) struct Delay {
    distribution: Distribution,
    jitter: u64,
    rate: u64,
    queue: u64,
    overhead: u64,
    loss: u32,
    duplication: u32,
    reorder: u32,
    reorder_by: u64,
    fifo: bool,
    rng: ChaCha8Rng,
    links: BTreeMap<(Slot, Slot), Link>,
    usage: Usage,
}

impl Delay {
    /// `fixed`, `matrix` and `random`.
    pub(crate) fn new(
        kind: &str,
        params: &mut Params,
        seed: RunSeed,
        name: &str,
        hosts: u32,
    ) -> Result<Self, ConfigError> {
        let distribution = match kind {
            "fixed" => Distribution::Fixed(params.time_ns("delay", MS)?),
            "matrix" => Distribution::Matrix(matrix(params, hosts)?),
            _ => {
                Distribution::Exponential(params.time_ns("floor", 0)?, params.time_ns("mean", MS)?)
            }
        };
        let random = matches!(distribution, Distribution::Exponential(..));
        Ok(Self {
            distribution,
            jitter: params.time_ns("jitter", 0)?,
            rate: params.bit_rate("rate", 0)?,
            queue: params.number("queue", u64::MAX)?,
            overhead: params.number("overhead", 0)?,
            loss: params.probability("loss")?,
            duplication: params.probability("duplication")?,
            reorder: params.probability("reorder")?,
            reorder_by: params.time_ns("reorder_by", MS)?,
            fifo: params.flag("fifo", !random)?,
            rng: seed.named(&format!("network {name}")),
            links: BTreeMap::new(),
            usage: Usage::default(),
        })
    }

    /// Draws the delay of one packet from the distribution and the jitter, in nanoseconds.
    fn delay(&mut self, src: Slot, to: Slot) -> u64 {
        let base = match &self.distribution {
            Distribution::Fixed(delay) => *delay,
            Distribution::Matrix(rows) => rows[src.index()][to.index()],
            Distribution::Exponential(floor, mean) => floor + exponential_ns(&mut self.rng, *mean),
        };
        if self.jitter == 0 { base } else { base + exponential_ns(&mut self.rng, self.jitter) }
    }

    fn carry(&mut self, now: u64, packet: &Packet, to: Slot, out: &mut Vec<Effect>) {
        self.usage.packets += 1;
        let link = *self.links.entry((packet.src, to)).or_default();
        let drop = |usage: &mut Usage, why| {
            usage.dropped += 1;
            Effect::Drop(packet.id, to, why)
        };
        let bytes = packet.bytes + self.overhead;
        let start = link.free_at.max(now);
        // What waits before the transmitter, in bytes, the packet in transmission included.
        let waiting = || u128::from(start - now) * u128::from(self.rate) / 8_000_000_000;
        if self.rate > 0 && start > now && waiting() + u128::from(bytes) > u128::from(self.queue) {
            out.push(drop(&mut self.usage, Drop::Queue));
            return;
        }
        let time = transmission_ns(bytes, self.rate);
        let sent = start + time;
        self.usage.frames += 1;
        let lost = happens(&mut self.rng, self.loss);
        let mut arrival = sent + self.delay(packet.src, to);
        if happens(&mut self.rng, self.reorder) {
            arrival += below(&mut self.rng, self.reorder_by + 1);
        } else if self.fifo {
            arrival = arrival.max(link.last_arrival);
        }
        let busy_ns = link.busy_ns + time;
        self.usage.busy_ns = self.usage.busy_ns.max(busy_ns);
        let last_arrival = if lost { link.last_arrival } else { link.last_arrival.max(arrival) };
        self.links.insert((packet.src, to), Link { free_at: sent, last_arrival, busy_ns });
        if lost {
            out.push(drop(&mut self.usage, Drop::Loss));
            return;
        }
        out.push(Effect::Deliver(packet.id, to, arrival));
        if happens(&mut self.rng, self.duplication) {
            let again = sent + self.delay(packet.src, to);
            out.push(Effect::Again(packet.id, to, again.max(arrival)));
        }
    }
}

/// The delays between all hosts: `delays = [["0s", "1ms"], ["1ms", "0s"]]`.
fn matrix(params: &mut Params, hosts: u32) -> Result<Vec<Vec<u64>>, ConfigError> {
    let value = params.value("delays");
    let cell = |value: &toml::Value| itg_core::units::parse_duration_ns(value.as_str()?).ok();
    let row = |value: &toml::Value| -> Option<Vec<u64>> {
        value.as_array()?.iter().map(cell).collect::<Option<_>>()
    };
    let rows: Option<Vec<Vec<u64>>> = value
        .as_ref()
        .and_then(toml::Value::as_array)
        .and_then(|rows| rows.iter().map(row).collect());
    let n = hosts as usize;
    rows.filter(|rows| rows.len() == n && rows.iter().all(|row| row.len() == n)).ok_or_else(|| {
        params.error_at(
            "delays",
            format_args!(
                "expected {n} rows of {n} times, such as [[\"0s\", \"1ms\"], [\"1ms\", \"0s\"]]"
            ),
        )
    })
}

impl Model for Delay {
    fn describe(&self) -> String {
        let mut text = match &self.distribution {
            Distribution::Fixed(delay) => format!("fixed delay={}", format_duration_ns(*delay)),
            Distribution::Matrix(rows) => format!("matrix hosts={}", rows.len()),
            Distribution::Exponential(floor, mean) => {
                let (floor, mean) = (format_duration_ns(*floor), format_duration_ns(*mean));
                format!("random floor={floor} mean={mean}")
            }
        };
        if self.jitter > 0 {
            text += &format!(" jitter=exp({})", format_duration_ns(self.jitter));
        }
        if self.rate > 0 {
            text += &format!(" rate={}", itg_core::units::BitRate(self.rate));
        }
        if self.queue < u64::MAX {
            text += &format!(" queue={}", self.queue);
        }
        for (name, parts) in
            [("loss", self.loss), ("duplication", self.duplication), ("reorder", self.reorder)]
        {
            if parts > 0 {
                text += &format!(" {name}={}", f64::from(parts) / 1e6);
            }
        }
        text
    }

    fn contract(&self) -> Contract {
        Contract {
            reliable: self.loss == 0 && self.queue == u64::MAX,
            fifo: self.fifo && self.reorder == 0,
            duplicates: self.duplication > 0,
            ..Contract::STREAM
        }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        for &to in packet.to.slots() {
            self.carry(now, &packet, to, out);
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
