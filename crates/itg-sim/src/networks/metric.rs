//! Metric networks: time complexity in steps, message complexity in unicasts, and both under
//! contention for processors and network.
//!
//! Source for contention: Urbán, Défago, Schiper, *Contention-aware metrics for distributed algorithms:
//! comparison of atomic broadcast algorithms*, IC3N 2000.

use std::collections::VecDeque;

use itg_process::{ConfigError, Contract, Params, SECOND, Slot};

use crate::model::{Effect, Model, Packet, Usage};

/// Every message takes exactly one unit; unicasts are counted.
#[derive(Debug)]
pub(crate) struct Steps {
    unit: u64,
    multicast_counts_one: bool,
    usage: Usage,
}

impl Steps {
    pub(crate) fn new(params: &mut Params) -> Result<Self, ConfigError> {
        Ok(Self {
            unit: params.time_ns("unit", SECOND)?,
            multicast_counts_one: params.flag("multicast_counts_one", false)?,
            usage: Usage::default(),
        })
    }
}

impl Model for Steps {
    fn describe(&self) -> String {
        format!("steps unit={}", itg_core::units::format_duration_ns(self.unit))
    }

    fn contract(&self) -> Contract {
        Contract::INPROC
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let count = packet.to.slots().len() as u64;
        self.usage.packets += count;
        self.usage.frames += if self.multicast_counts_one { 1 } else { count };
        let effects = packet.to.slots().iter();
        out.extend(effects.map(|&to| Effect::Deliver(packet.id, to, now + self.unit)));
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}

/// Place of a job, and what follows.
#[derive(Clone, Debug)]
enum Stage {
    /// It is at the sender's processor, then goes through the network.
    Sending(Vec<Slot>),
    /// It is in the network, then goes to the receivers' processors.
    Carrying(Vec<Slot>),
    /// It is at the receiver's processor, then is delivered.
    Receiving(Slot),
}

#[derive(Clone, Debug)]
struct Job {
    packet: u64,
    stage: Stage,
}

/// Something that serves one job at a time, first come, first served.
#[derive(Debug, Default)]
struct Resource {
    waiting: VecDeque<Job>,
    busy_ns: u64,
}

/// A processor for each process and one network; each message uses the sender's processor for λ units,
/// the network for one, the receiver's processor for λ.
#[derive(Debug)]
pub(crate) struct Contention {
    unit: u64,
    lambda: u64,
    /// A multicast is one job at the sender and one in the network.
    broadcast: bool,
    /// The processors, then the network.
    resources: Vec<Resource>,
    usage: Usage,
}

impl Contention {
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "checked: not negative, and small"
    )]
    pub(crate) fn new(params: &mut Params, hosts: u32) -> Result<Self, ConfigError> {
        let unit = params.time_ns("unit", SECOND)?;
        let lambda = match params.value("lambda") {
            None => 1.0,
            Some(toml::Value::Float(lambda)) => lambda,
            Some(toml::Value::Integer(lambda)) => lambda as f64,
            Some(_) => -1.0,
        };
        if !(0.0..=1e6).contains(&lambda) {
            return Err(params.error_at("lambda", "expected a number from 0 to 1000000"));
        }
        let broadcast = match params.text("variant")?.as_deref() {
            None | Some("pp") => false,
            Some("br") => true,
            Some(other) => {
                let text = format!("`{other}`: expected `pp` (point to point) or `br` (broadcast)");
                return Err(params.error_at("variant", text));
            }
        };
        let resources = (0..=hosts).map(|_| Resource::default()).collect();
        let lambda = (lambda * unit as f64).round() as u64;
        Ok(Self { unit, lambda, broadcast, resources, usage: Usage::default() })
    }

    /// Queues a job at a resource, and begins it if the resource is idle.
    fn enqueue(&mut self, now: u64, at: usize, job: Job, out: &mut Vec<Effect>) {
        self.resources[at].waiting.push_back(job);
        if self.resources[at].waiting.len() == 1 {
            self.serve(now, at, out);
        }
    }

    /// Begins the job at the head of a resource's queue.
    fn serve(&mut self, now: u64, at: usize, out: &mut Vec<Effect>) {
        let network = at + 1 == self.resources.len();
        let time = if network { self.unit } else { self.lambda };
        self.resources[at].busy_ns += time;
        self.usage.busy_ns = self.usage.busy_ns.max(self.resources[at].busy_ns);
        out.push(Effect::Wake(at as u64, now + time));
    }
}

impl Model for Contention {
    fn describe(&self) -> String {
        let variant = if self.broadcast { "br" } else { "pp" };
        let (unit, lambda) = (self.unit, self.lambda);
        let text = itg_core::units::format_duration_ns;
        format!("contention variant={variant} unit={} lambda={}", text(unit), text(lambda))
    }

    fn contract(&self) -> Contract {
        Contract { multicast: self.broadcast, ..Contract::INPROC }
    }

    fn submit(&mut self, now: u64, packet: Packet, out: &mut Vec<Effect>) {
        let to = packet.to.slots();
        self.usage.packets += to.len() as u64;
        let cpu = packet.src.index();
        let groups: Vec<Vec<Slot>> = match self.broadcast {
            true => vec![to.to_vec()],
            false => to.iter().map(|to| vec![*to]).collect(),
        };
        for group in groups {
            let job = Job { packet: packet.id, stage: Stage::Sending(group) };
            self.enqueue(now, cpu, job, out);
        }
    }

    fn wake(&mut self, now: u64, token: u64, out: &mut Vec<Effect>) {
        let at = usize::try_from(token).unwrap_or(usize::MAX);
        let Some(job) = self.resources.get_mut(at).and_then(|r| r.waiting.pop_front()) else {
            return;
        };
        let packet = job.packet;
        match job.stage {
            Stage::Sending(to) => {
                let network = self.resources.len() - 1;
                let stage = Stage::Carrying(to);
                self.enqueue(now, network, Job { packet, stage }, out);
            }
            Stage::Carrying(to) => {
                self.usage.frames += 1;
                for to in to {
                    let stage = Stage::Receiving(to);
                    self.enqueue(now, to.index(), Job { packet, stage }, out);
                }
            }
            Stage::Receiving(to) => out.push(Effect::Deliver(packet, to, now)),
        }
        // The job that is done goes on before the next one begins.
        if !self.resources[at].waiting.is_empty() {
            self.serve(now, at, out);
        }
    }

    fn usage(&self) -> Usage {
        self.usage
    }
}
