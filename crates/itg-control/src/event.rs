//! Events of the replicated experiment.

use itg_process::{Slot, layer_events};

layer_events! {
    /// Events of the layer `experiment`.
    pub enum ControlEvent {
        /// Command of the log that was carried out: its position, its digest, and that of all states
        /// up to the one behind it.
        Applied { position: u64, command: u64, state: u64 } = "applied",
        /// Entry of the log that is no command.
        NoCommand { position: u64 } = "no command",
        /// Description sent to another member, down the tree or since it has asked.
        GraphSent { slot: Slot, wanted: bool } = "graph sent",
        /// State of another member that cannot be read.
        UnreadableState { bytes: u64 } = "a state that cannot be read",
        /// Loss of the right to send.
        Fenced = "fenced",
        /// Request of the layer above that cannot be read.
        NoRequest = "no request",
        /// Command dropped, as the log has no room and too many wait already.
        TooManyWait = "too many commands wait",
    }
}
