//! Windows of flows that are received here.

use itg_node::ReceiverReading;
use itg_socket::clock;

use super::row::{Arrived, Loss, Row, Volume};
use super::{Look, Source, Window};

/// Flows that a receiver serves: times count from the first packet of those that run together.
pub struct ReceivedFlows {
    read: Box<dyn Fn() -> ReceiverReading + Send + Sync>,
    /// Part that has been told.
    before: ReceiverReading,
    /// Most flows at a time in this window.
    flows: usize,
    /// The latest time with flows of which all is told.
    told: u64,
}

impl ReceivedFlows {
    /// The flows of which `read` gives the counts.
    pub fn new(read: impl Fn() -> ReceiverReading + Send + Sync + 'static) -> Self {
        Self { read: Box::new(read), before: ReceiverReading::default(), flows: 0, told: 0 }
    }

    /// The line of what has come since the last one, if it is to have one.
    fn row(&mut self, now: &ReceiverReading, window: Window, now_ns: u64) -> Option<Row> {
        let before = self.before;
        let volume = |of: &ReceiverReading| Volume { packets: of.packets, bytes: of.bytes };
        let came = volume(now).without(volume(&before));
        let flows = self.flows.max(now.flows).max(before.flows);
        // Others that have begun meanwhile have a time of their own.
        let over = now.flows == 0 || now.period > self.told + 1;
        if over && window.last {
            self.told = if now.flows == 0 { now.period } else { now.period - 1 };
        }
        if window.last && came == Volume::default() {
            return None;
        }
        let at_ns = if window.last { now.last_ns.min(now_ns) } else { now_ns };
        let until_ns = at_ns.saturating_sub(window.began_ns).max(window.since_ns);
        let steady = now.reordered == before.reordered;
        let missing = now.missing.checked_sub(before.missing).filter(|_| steady);
        let arrived = Arrived {
            volume: came,
            since_ns: None,
            bps: came.bps_over(until_ns - window.since_ns),
            loss: missing
                .map_or(Loss::Unknown { absent: None }, |missing| Loss::Numbers { missing }),
        };
        (self.before, self.flows) = (*now, now.flows);
        let row =
            Row { since_ns: window.since_ns, until_ns, flows: flows.max(1), ..Row::default() };
        Some(Row { arrived: Some(arrived), ..row })
    }
}

impl Source for ReceivedFlows {
    const SERVES: bool = true;

    fn look(&self) -> Look {
        let now = (self.read)();
        let began = now.period > self.told && now.first_ns > 0;
        Look {
            began_ns: began.then_some(now.first_ns),
            over: now.flows == 0 || now.period > self.told + 1,
            awaited: if now.first_ns == 0 { now.flows } else { 0 },
        }
    }

    async fn take(&mut self, window: Window) -> Option<Row> {
        let now = (self.read)();
        self.row(&now, window, clock::monotonic_ns())
    }
}
