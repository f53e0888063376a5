//! Arrivals so far, as a sender is told them while its flows run.

use itg_engine::clock_pair;
use itg_session::{ArrivalAccount, FlowArrivals, PONG_FLOWS};

use super::Session;

impl Session {
    /// Returns what has arrived of [`PONG_FLOWS`] flows: each time of the next ones.
    pub(super) fn arrivals(&mut self) -> Vec<FlowArrivals> {
        let from = self.told_next;
        let around = self.flows.range(from..).chain(self.flows.range(..from)).take(PONG_FLOWS);
        let clocks = self.machine.takes_accounts().then(clock_pair::clock_pair);
        let told: Vec<_> = around
            .map(|(&flow, opened)| {
                let reading = opened.live.read();
                let account = clocks.as_ref().map(|clocks| {
                    let ago_ns = clocks.monotonic_ns.saturating_sub(reading.received_first_ns);
                    let began = reading.received_first_ns > 0;
                    ArrivalAccount {
                        packets: reading.received_packets,
                        bytes: reading.received_bytes,
                        missing: reading.received_missing,
                        reordered: reading.received_reordered,
                        first_unix_ns: if began {
                            clocks.unix_ns.saturating_sub(ago_ns)
                        } else {
                            0
                        },
                    }
                });
                FlowArrivals { flow, packets: reading.received_unique, account }
            })
            .collect();
        self.told_next = told.last().map_or(0, |last| last.flow.wrapping_add(1));
        told
    }
}
