//! Questions of what has arrived by now, from those who watch a run to its sessions.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

/// A question on its way: answered when all its copies are dropped.
#[derive(Clone, Debug)]
pub(super) struct ArrivalAsk {
    _answered: mpsc::Sender<()>,
}

/// Asks the receivers of a run what has arrived; made with [`arrival_asks`].
#[derive(Clone, Debug)]
pub struct ArrivalAsker(mpsc::UnboundedSender<ArrivalAsk>);

/// The end of an [`ArrivalAsker`] at the run: for [`SendJob::arrival_asks`](super::SendJob::arrival_asks).
#[derive(Debug)]
pub struct ArrivalAsks(pub(super) mpsc::UnboundedReceiver<ArrivalAsk>);

/// An asker, and its end at the run.
#[must_use]
pub fn arrival_asks() -> (ArrivalAsker, ArrivalAsks) {
    let (asker, asks) = mpsc::unbounded_channel();
    (ArrivalAsker(asker), ArrivalAsks(asks))
}

impl ArrivalAsker {
    /// Asks every receiver whose session goes on; returns true when each has answered, and the counters of its flows
    /// have its account ([`FlowReading::told`](itg_engine::FlowReading::told)), false when that takes longer than
    /// `patience`.
    pub async fn ask(&self, patience: Duration) -> bool {
        let (answered, mut answers) = mpsc::channel(1);
        // A run that is over has nobody to ask.
        drop(self.0.send(ArrivalAsk { _answered: answered }));
        timeout(patience, answers.recv()).await.is_ok()
    }
}
