//! Accounts of arrivals that a receiver gives while its flows run and at their end, on their way to the flows' counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use itg_engine::live::{ArrivalReading, FlowLive, ToldArrivals};
use itg_session::{FlowArrivals, FlowCounts, FlowMeasure, Message, PONG_FLOWS};
use tokio::sync::mpsc;

use super::asks::ArrivalAsk;

/// Accounts of one receiver.
pub(super) struct Telling {
    /// Its number in the run.
    receiver: usize,
    lives: BTreeMap<u32, Arc<FlowLive>>,
    /// Measures of flows whose counts are about to come.
    measures: BTreeMap<u32, ArrivalReading>,
    /// The latest ping.
    latest: Option<u64>,
    /// The ping before which it was noted what had been sent, until it is answered.
    noted: Option<u64>,
    coming: mpsc::UnboundedReceiver<ArrivalAsk>,
    /// The question that is being put to the receiver.
    asking: Option<ArrivalAsk>,
    /// Questions, each with the ping whose answer answers it.
    asks: Vec<(u64, ArrivalAsk)>,
}

impl Telling {
    pub(super) fn new(
        receiver: usize,
        lives: BTreeMap<u32, Arc<FlowLive>>,
        coming: mpsc::UnboundedReceiver<ArrivalAsk>,
    ) -> Self {
        Self {
            receiver,
            lives,
            measures: BTreeMap::new(),
            latest: None,
            noted: None,
            coming,
            asking: None,
            asks: Vec::new(),
        }
    }

    /// Waits for a question.
    pub(super) async fn next_ask(&mut self) {
        match self.coming.recv().await {
            Some(ask) => self.asking = Some(ask),
            None => std::future::pending().await,
        }
    }

    /// Pings that it takes to be told of all flows, if somebody asks; else none.
    pub(super) fn rounds(&self) -> usize {
        self.asking.as_ref().map_or(0, |_| self.lives.len().div_ceil(PONG_FLOWS))
    }

    /// A ping leaves.
    pub(super) fn asked(&mut self, n: u64) {
        self.latest = Some(n);
        if self.noted.is_none() {
            self.noted = Some(n);
            self.lives.values().for_each(|live| live.asking());
        }
    }

    /// The pings of a question have left: it is kept until they are answered. One for which there was none is answered.
    pub(super) fn all_asked(&mut self) {
        let open = self.latest.filter(|_| self.noted.is_some());
        self.asks.extend(open.zip(self.asking.take()));
    }

    /// Takes from a message what it tells.
    pub(super) fn heard(&mut self, message: &Message) {
        match message {
            Message::Pong { n, sent, arrived, .. } => {
                arrived.iter().for_each(|told| self.arrived(told, sent.unix_ns));
                if self.noted.is_some_and(|noted| noted <= *n) {
                    self.noted = None;
                }
                self.asks.retain(|(ping, _)| ping > n);
            }
            Message::FlowMeasured(measure) => self.measured(measure),
            Message::FlowCounted(counts) => self.counted(counts),
            _ => {}
        }
    }

    fn arrived(&self, told: &FlowArrivals, at_ns: u64) {
        let Some(live) = self.lives.get(&told.flow) else { return };
        live.answered(told.packets);
        let Some(account) = told.account else { return };
        let arrivals = ArrivalReading {
            packets: account.packets,
            bytes: account.bytes,
            unique: told.packets,
            missing: account.missing,
            reordered: Some(account.reordered),
            first_ns: (account.first_unix_ns > 0).then_some(account.first_unix_ns),
            at_ns: Some(at_ns),
        };
        live.told(ToldArrivals { arrivals, receiver: self.receiver, whole: false });
    }

    fn measured(&mut self, measure: &FlowMeasure) {
        let timed = measure.last_unix_ns >= measure.first_unix_ns;
        let arrivals = ArrivalReading {
            reordered: Some(measure.reordered),
            first_ns: timed.then_some(measure.first_unix_ns),
            at_ns: timed.then_some(measure.last_unix_ns),
            ..ArrivalReading::default()
        };
        self.measures.insert(measure.flow, arrivals);
    }

    fn counted(&mut self, counts: &FlowCounts) {
        let measure = self.measures.remove(&counts.flow).unwrap_or_default();
        let Some(live) = self.lives.get(&counts.flow) else { return };
        let arrivals = ArrivalReading {
            packets: counts.packets,
            bytes: counts.bytes,
            unique: counts.unique,
            ..measure
        };
        live.told(ToldArrivals { arrivals, receiver: self.receiver, whole: true });
    }
}
