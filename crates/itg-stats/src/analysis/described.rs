//! Flows as tables of packets describe them.

use std::collections::BTreeMap;
use std::sync::Arc;

use itg_clocks::ClockModel;
use itg_core::flow::Meter;
use itg_record::Side;

use super::Analysis;
use crate::clocks::Clocks;
use crate::logs::{Log, known_proto};
use crate::report::DelayBasis;

/// Description of a flow whose packets are listed; texts are empty where no log says them.
#[derive(Clone, Debug, Default)]
pub struct PacketFlow {
    /// Host whose log has the packets that count: the receiver's, or the sender's without that log and for round
    /// trips.
    pub node: String,
    /// Name in the experiment, or else the number.
    pub name: String,
    /// Transport protocol.
    pub proto: &'static str,
    /// Source address and port.
    pub src: String,
    /// Destination address and port.
    pub dst: String,
    /// Seed of the run.
    pub seed: Option<u64>,
    /// Of each owner of the flow, the clocks of its two ends.
    clocks: Vec<Ends>,
}

/// Clocks of the two ends of a flow.
#[derive(Clone, Debug)]
enum Ends {
    OneClock,
    Compared(Arc<ClockModel>),
    /// Two that were not compared.
    Apart,
}

impl PacketFlow {
    /// Bound of the error that clocks make in the delays of packets sent between two instants, in nanoseconds, the
    /// largest of all owners; `None` where two clocks were not compared.
    #[must_use]
    pub fn clock_bound_ns(&self, from_unix_ns: u64, until_unix_ns: u64) -> Option<u64> {
        let bounds = self.clocks.iter().map(|ends| match ends {
            Ends::OneClock => DelayBasis::ONE_CLOCK.uncertainty_ns,
            Ends::Compared(clock) => Some(clock.bound_between(from_unix_ns, until_unix_ns)),
            Ends::Apart => None,
        });
        bounds.reduce(|largest, next| Some(largest?.max(next?))).flatten()
    }
}

impl Analysis<'_> {
    /// What each log says of itself, as in the manifest of the report.
    #[must_use]
    pub fn log_manifests(&self) -> Vec<serde_json::Value> {
        self.logs().logs.iter().map(Log::manifest).collect()
    }

    /// Flows whose packets are listed, by number and run.
    #[must_use]
    pub fn packet_flows(&self) -> BTreeMap<(u32, String), PacketFlow> {
        let logs = &self.logs().logs;
        let clocks = Clocks::of(logs);
        let mut flows: BTreeMap<(u32, String), PacketFlow> = BTreeMap::new();
        for log in logs {
            let side = log.side();
            let host = log.info.as_ref().map_or("", |info| &info.host);
            for (&index, info) in &log.flows {
                let key = log.key(index, side);
                if !self.wants(log, index, &key) {
                    continue;
                }
                let flow = flows.entry((key.flow, key.run)).or_default();
                let counts = (side == Side::Sender) == (info.spec.meter == Meter::Rtt);
                if counts || flow.node.is_empty() {
                    host.clone_into(&mut flow.node);
                }
                if let Some(name) = &info.name {
                    flow.name.clone_from(name);
                } else if flow.name.is_empty() {
                    flow.name = info.flow.to_string();
                }
                flow.proto = known_proto(info).unwrap_or("");
                info.src.clone_into(&mut flow.src);
                info.dst.clone_into(&mut flow.dst);
                if info.ditg.is_none() || info.seed != 0 {
                    flow.seed = Some(info.seed);
                }
                flow.clocks.push(if clocks.is_one(info) || info.spec.meter == Meter::Rtt {
                    Ends::OneClock
                } else {
                    clocks.correcting(info, Side::Receiver).map_or(Ends::Apart, Ends::Compared)
                });
            }
        }
        flows
    }
}
