//! Promises of `itg-send doctor` for the hosts of senders, compared with the traffic sent.

use itg_record::Side;

use super::{Analysis, Objects, departed, facts};
use crate::delay::SampleDistribution;
use crate::promise::{PromiseReport, Sent};
use crate::stats::Volume;

impl Analysis<'_> {
    /// Promises of the hosts of senders, by their logs, each with its outcome.
    pub(super) fn promises(&self, objects: &Objects<'_>) -> Vec<PromiseReport> {
        let mut promises = Vec::new();
        for (number, log) in self.logs().logs.iter().enumerate() {
            let Some(promise) = log.promise().filter(|_| log.side() == Side::Sender) else {
                continue;
            };
            let (mut lateness, mut volume) = (SampleDistribution::default(), Volume::default());
            let (mut asked, mut left_out, mut alone) = (0.0, 0.0, true);
            let own = objects
                .iter()
                .map(|(_, object)| object)
                .filter(|object| object.stats.side() == Side::Sender);
            for object in own.filter(|object| object.owners.sources().any(|(log, _)| log == number))
            {
                let held = departed(object, None).filter(|departed| departed.report.held);
                match held {
                    Some(departed) => lateness.merge(&departed.lateness),
                    None => {
                        lateness.merge(object.stats.departures(&facts(object, None)).lateness())
                    }
                }
                volume.merge(object.stats.sent());
                // Its figures are those of all that sent it.
                alone &= object.owners.sources().count() == 1;
                let facts = facts(object, None);
                let skipped = facts.skipped_told.unwrap_or(0) as f64;
                asked += object.stats.sent_packets(&facts).unwrap_or(0) as f64 + skipped;
                left_out += skipped;
            }
            let [p99] = lateness.quantiles().at([0.99]);
            let late = (lateness.moments().count() > 0).then_some(p99);
            let pacing = (log.setting("promise_pacing"), log.setting("pacing"));
            let sent = Sent {
                all: self.options.flows.is_empty() && self.options.filter.is_none(),
                alone,
                rate_pps: volume.packet_rate_pps().unwrap_or(0.0),
                late_p99_ns: late,
                left_out_share: if asked > 0.0 { left_out / asked } else { 0.0 },
            };
            promises.push(PromiseReport::of(&log.name, &promise, pacing, sent));
        }
        promises
    }
}
