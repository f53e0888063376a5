//! The page of a receiver.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use itg_core::flow::Proto;
use itg_node::metrics::MetricsPage;
use itg_node::{PeerClock, ReceiverWatch, WatchReading, WatchedFlow};
use itg_session::{DelayMeasure, FlowMeasure};
use itg_stats::report::DelayBasis;

use super::Program;
use super::classes::Classes;
use super::flows::{FlowFacts, FlowLabels, write_flows};
use crate::result::{Clock, counted};

/// What tells a flow from others.
type Key = (Arc<str>, String, String, u32, Proto);

/// What was told of a flow before: it never goes back.
#[derive(Clone, Copy, Debug, Default)]
struct Told {
    /// What the clocks were apart when its delays were told for the first time, and those delays.
    delay: Option<(i64, Classes)>,
    jitter: Classes,
    reordered: u64,
}

/// The page of a receiver.
#[derive(Debug)]
pub struct ReceiverPage {
    program: Program,
    watch: ReceiverWatch,
    told: Mutex<BTreeMap<Key, Told>>,
}

impl ReceiverPage {
    /// The page of the receiver that is watched.
    #[must_use]
    pub fn new(program: Program, watch: ReceiverWatch) -> Self {
        Self { program, watch, told: Mutex::default() }
    }

    /// The page, as of now.
    pub async fn text(&self) -> String {
        let mut page = self.program.page();
        if let Some(reading) = self.watch.read().await {
            self.write(&mut page, &reading);
        }
        page.into_text()
    }

    fn write(&self, page: &mut MetricsPage, reading: &WatchReading) {
        let sum = &reading.sum;
        page.one("itg_flows_running", "gauge", "Flows that run.", sum.flows);
        let help = "Packets of all flows that the receiver read.";
        page.one("itg_received_packets_total", "counter", help, sum.packets);
        let help = "Bytes of these packets.";
        page.one("itg_received_bytes_total", "counter", help, sum.bytes);
        let help = "Packets and connections on data ports that belonged to no flow.";
        page.one("itg_foreign_packets_total", "counter", help, reading.foreign);
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = BTreeMap::new();
        let flows: Vec<_> = reading
            .flows
            .iter()
            .map(|flow| {
                let (from, to) = (flow.from.to_string(), flow.to.to_string());
                let key = (Arc::clone(&flow.run), from, to, flow.flow, flow.proto);
                let mut before = told.get(&key).copied().unwrap_or_default();
                let facts = facts(flow, &mut before);
                kept.insert(key, before);
                facts
            })
            .collect();
        *told = kept;
        write_flows(page, &flows, reading.left_out);
    }
}

fn facts(flow: &WatchedFlow, told: &mut Told) -> FlowFacts {
    let (totals, counts) = (flow.totals.as_ref(), flow.counts.as_ref());
    let labels = FlowLabels {
        run: flow.run.to_string(),
        flow: flow.flow,
        name: None,
        from: flow.from.to_string(),
        to: flow.to.to_string(),
        proto: flow.proto.name(),
    };
    let mut facts = FlowFacts {
        labels,
        sent: totals.map(|totals| (totals.packets, totals.bytes)),
        received: Some((flow.reading.received_packets, flow.reading.received_bytes)),
        metrics: counted(totals, counts),
        ..FlowFacts::default()
    };
    let Some(measure) = &flow.measure else { return facts };
    told.reordered = told.reordered.max(measure.reordered);
    facts.metrics.reordered = Some(told.reordered);
    if let Some(delays) = &measure.delays {
        told.jitter = Classes::of_steps(delays).at_least(&told.jitter);
        facts.jitter = Some(told.jitter);
        if let Some((delay, uncertainty_ns)) = delay(flow, (measure, delays), told) {
            (facts.delay, facts.uncertainty_ns) = (Some(delay), Some(uncertainty_ns));
        }
    }
    facts
}

/// The delays of a flow and the bound of their error, where they are absolute. They are told by what the clocks were
/// apart the first time, so that they never go back; what that changed since is in the bound.
fn delay(
    flow: &WatchedFlow,
    (measure, delays): (&FlowMeasure, &DelayMeasure),
    told: &mut Told,
) -> Option<(Classes, u64)> {
    let probes = flow.clock.clone();
    let compared = PeerClock { receiver: None, shared: flow.shared_clock, probes };
    let clock = Clock::of(&compared);
    let (off_ns, report) = clock.over(measure);
    let bound_ns = match (&report, clock.is_shared()) {
        (_, true) => 0,
        (Some(report), false) => report.bound_ns,
        (None, false) => return None,
    };
    let (first_ns, before) = told.delay.unwrap_or_else(|| (off_ns, Classes::default()));
    let bound_ns = bound_ns.saturating_add(off_ns.abs_diff(first_ns));
    let [median] = itg_session::quantiles(&delays.values(), [0.5]);
    let basis = match clock.is_shared() {
        true => DelayBasis::ONE_CLOCK,
        false => DelayBasis::corrected(bound_ns, median.saturating_sub(off_ns)),
    };
    let uncertainty_ns = basis.uncertainty_ns?;
    let classes = Classes::of_delays(delays, first_ns).at_least(&before);
    told.delay = Some((first_ns, classes));
    Some((classes, uncertainty_ns))
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use itg_core::flow::Meter;
    use itg_engine::FlowReading;
    use itg_node::ClockProbes;
    use itg_session::Measuring;

    use super::*;

    const SENT: u64 = 1_800_000_000_000_000_000;

    fn flow(shared_clock: bool) -> WatchedFlow {
        let mut measuring = Measuring::new();
        [3_000, 5_000_000].iter().for_each(|ns| measuring.arrived(1, Some(SENT), SENT + ns));
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        WatchedFlow {
            run: "r".into(),
            flow: 1,
            proto: Proto::Udp,
            meter: Meter::Owd,
            from: at,
            to: at,
            reading: FlowReading::default(),
            totals: None,
            counts: None,
            measure: Some(Arc::new(measuring.finish(1, 0))),
            shared_clock,
            clock: ClockProbes::default(),
        }
    }

    /// Of two clocks of which nothing is known there are no delays; their variation is known all the same.
    #[test]
    fn delays_of_unknown_clocks_are_absent() {
        for shared in [false, true] {
            let facts = facts(&flow(shared), &mut Told::default());
            assert_eq!(facts.delay.is_some(), shared);
            assert_eq!(facts.uncertainty_ns.is_some(), shared);
            let jitter = facts.jitter.expect("known");
            assert_eq!(jitter.up_to[22], 1);
            let mut page = MetricsPage::default();
            write_flows(&mut page, &[facts], 0);
            assert_eq!(page.into_text().contains("itg_flow_delay_seconds"), shared);
        }
    }

    #[test]
    fn what_was_told_stays() {
        let mut told = Told::default();
        let before = facts(&flow(true), &mut told);
        let mut later = flow(true);
        // The thread did not answer with less, but a histogram may have been halved.
        let measure =
            FlowMeasure { reordered: 0, ..(**later.measure.as_ref().expect("one")).clone() };
        later.measure = Some(Arc::new(measure));
        told.reordered = 7;
        let after = facts(&later, &mut told);
        assert_eq!((after.delay, after.metrics.reordered), (before.delay, Some(7)));
    }
}
