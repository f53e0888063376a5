//! Packets that arrived beside the plans of their flows, by receivers' logs alone.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use itg_core::flow::Flow;
use itg_core::schedule::Schedule;
use itg_core::seed::RunSeed;
use itg_record::{Item, LogReader, Note};

/// Packets of receivers' logs beside the plans of their flows.
pub(crate) struct Arrivals {
    /// Time from when each packet that arrived was planned until it did, in nanoseconds, sorted; below 0 where the
    /// clocks of both hosts are apart.
    late_ns: Vec<i64>,
    /// Packets that the flows had planned.
    planned: u64,
}

impl Arrivals {
    /// Of logs that have so many flows and lost no record.
    pub(crate) fn of(logs: &[impl AsRef<[u8]>], flows: u64) -> Result<Self> {
        let mut all = Self { late_ns: Vec::new(), planned: 0 };
        let mut found = 0;
        for log in logs {
            found += all.add(log.as_ref())?;
        }
        ensure!(found == flows, "{found} of {flows} flows are in the receivers' logs");
        ensure!(!all.late_ns.is_empty(), "no packet arrived");
        all.late_ns.sort_unstable();
        Ok(all)
    }

    /// Adds a log, and returns how many flows it has.
    fn add(&mut self, log: &[u8]) -> Result<u64> {
        let mut flows: BTreeMap<u32, (u64, u64, Schedule)> = BTreeMap::new();
        let mut arrived = Vec::new();
        for item in LogReader::new(log) {
            match item {
                Item::Note { note: Note::Flow(flow), .. } => {
                    let plan = Flow::resolve(flow.spec.clone(), RunSeed(flow.seed))?.schedule();
                    flows.insert(flow.index, (flow.epoch_unix_ns, 0, plan));
                }
                Item::Records { records, .. } => {
                    arrived.extend(records.map(|record| (record.flow, record.seq, record.b)));
                }
                Item::Note { note: Note::FlowEnd(end), .. } => {
                    let lost = end.log_lost_records;
                    ensure!(lost == 0, "{lost} records are not in the receiver's log");
                }
                Item::Note { .. } => {}
                Item::Damage(damage) => anyhow::bail!("the receiver's log is damaged: {damage:?}"),
            }
        }
        arrived.sort_unstable();
        for (flow, seq, arrived_ns) in arrived {
            let (epoch_ns, next, plan) = flows.get_mut(&flow).context("a record without a flow")?;
            // A packet that arrived twice has been taken already.
            while *next <= seq {
                let packet = plan.next().context("more packets than planned")?;
                if packet.seq == seq {
                    self.late_ns
                        .push(arrived_ns.wrapping_sub(*epoch_ns + packet.due_ns).cast_signed());
                }
                *next += 1;
            }
        }
        let found = flows.len() as u64;
        self.planned +=
            flows.into_values().map(|(_, next, plan)| next + plan.count() as u64).sum::<u64>();
        Ok(found)
    }

    /// Lateness that so many of a hundred packets do not exceed, in microseconds.
    pub(crate) fn late_us(&self, share: usize) -> f64 {
        self.late_ns[(self.late_ns.len() - 1) * share / 100] as f64 / 1e3
    }

    /// Share of the plan that arrived.
    pub(crate) fn share(&self) -> f64 {
        self.late_ns.len() as f64 / self.planned as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_logs::{self, LogContents};

    #[test]
    fn packets_that_did_not_arrive_are_missing_of_the_plan() {
        let dir = tempfile::tempdir().expect("a directory");
        let [run, idt, size] = ["c0ffee", "exp(10us)", "constant(512)"].map(str::to_owned);
        let wish = LogContents { run, packets: 20_000, flows: 2, idt, size };
        let made = made_logs::write(dir.path(), &wish).expect("logs");
        let log = std::fs::read(&made.receiver).expect("there");
        let arrivals = Arrivals::of(&[&log], 2).expect("arrivals");
        assert!(Arrivals::of(&[&log], 3).is_err(), "a flow is missing");
        assert!((arrivals.share() - made.arrived as f64 / 20_000.0).abs() < 1e-12);
        // Queued for at least 20 µs.
        assert!(arrivals.late_us(0) >= 20.0 && arrivals.late_us(50) > arrivals.late_us(0));
    }
}
