//! Flows that are given up before both sides have counted them: what has arrived of them is kept.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use itg_engine::rx::{Command, RxEnded};
use itg_session::ReceiverInput;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::{Session, Telling};

/// Longest wait for what the receiving thread tells of flows that are given up: it does so within microseconds.
const FORGETTING: Duration = Duration::from_secs(5);

impl Session {
    /// Gives up the flows that are not counted yet, and takes in what has arrived of them.
    pub(super) async fn abandon(&mut self, reason: &str) {
        let (told, mut forgotten) = mpsc::unbounded_channel();
        for (flow, opened) in std::mem::take(&mut self.flows) {
            self.served.cut_short(flow, reason);
            let (shared, told) = (Arc::downgrade(&self.shared), told.clone());
            let records = Arc::clone(&self.records);
            let slot = opened.slot;
            let thread = self.shared.thread_of(&opened);
            // The slot is free only when the receiving thread has forgotten the flow.
            let done = Box::new(move |ended: Option<RxEnded>| {
                let of_flow = ended.as_ref().map_or(0, |ended| ended.records);
                records.fetch_add(of_flow, Ordering::Relaxed);
                if let Some(shared) = shared.upgrade() {
                    shared.give_back(&opened);
                }
                drop(told.send(ended));
            });
            thread.ask(Command::Abandon { slot, reason: reason.to_owned(), done });
        }
        drop(told);
        let until = Instant::now() + FORGETTING;
        while let Ok(Some(ended)) = timeout_at(until, forgotten.recv()).await {
            ended.iter().for_each(|ended| self.take_in(ended));
        }
        // Others have ended before, and their counts are on the way.
        while let Ok(telling) = self.tellings.try_recv() {
            match telling {
                Telling::Ended(ended) => self.take_in(&ended),
                Telling::Input(ReceiverInput::FlowCounted(counts)) => self.add(&counts),
                Telling::Input(_) => {}
            }
        }
    }

    /// Takes in what was received of a flow that is given up.
    fn take_in(&mut self, ended: &RxEnded) {
        if let Some(measure) = ended.measure() {
            self.served.measured(&measure);
            self.watched.measured(&measure);
        }
        self.add(&ended.counts);
    }
}
