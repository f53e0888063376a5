//! Time limits of the two sides of a session.

const SECOND: u64 = 1_000_000_000;

/// Time limits of a session, in nanoseconds. The default suits networks with round trips below a
/// second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// Sender: from connecting to `Welcome`. Default 5 s.
    pub welcome_ns: u64,
    /// Sender: from each `Open` to its `Opened`. Default 10 s.
    pub opened_ns: u64,
    /// Sender: from `Ready` until the driver has its data sockets (`Armed`). Default 10 s.
    pub armed_ns: u64,
    /// Sender: from `Start` to `Started`. Default 5 s.
    pub started_ns: u64,
    /// Sender: from the end of a flow to its `FlowCounted`. Default 10 s.
    pub counts_ns: u64,
    /// Sender: for the pings that compare the clocks behind the run. Default 300 ms.
    pub compare_ns: u64,
    /// Sender: from `Bye` to `ByeAck`. Default 10 s.
    pub bye_ns: u64,
    /// Sender: from `StopFlows` until the driver has reported the end of each flow. Default 5 s.
    pub stop_ns: u64,
    /// Sender: between two pings; less when the receiver's patience asks for it. Default 1 s.
    pub ping_ns: u64,
    /// Both: a peer that has been silent for this long has vanished; behind the last flow's end the sender waits no
    /// longer than `counts_ns`. The receiver tells it to the sender. Default 30 s.
    pub silence_ns: u64,
    /// Receiver: from connecting to `Hello`. Default 5 s.
    pub hello_ns: u64,
    /// Receiver: from `Open` until the driver has answered for each flow; less than the
    /// sender's `opened_ns`. Default 8 s.
    pub open_ns: u64,
    /// Receiver: for the sender's next step while no flow is running: to open, to start, to take its
    /// leave. More than the sender's `armed_ns` and `counts_ns`. Default 30 s.
    pub idle_ns: u64,
    /// Receiver that has asked for the flows: from `Halt` to the end of all flows; more than the sender's `stop_ns`.
    /// Default 8 s.
    pub halt_ns: u64,
    /// Receiver: from `CloseLog` until the driver has closed the log; less than the sender's
    /// `bye_ns`. Default 4 s.
    pub close_ns: u64,
}

impl Timeouts {
    /// The default, with patience for receivers that wait this long for late packets, in nanoseconds; at most
    /// [`MAX_DRAIN_NS`](itg_core::settings::MAX_DRAIN_NS).
    #[must_use]
    pub fn draining(drain_ns: u64) -> Self {
        let usual = Self::default();
        Self { counts_ns: usual.counts_ns.saturating_add(drain_ns), ..usual }
    }

    /// These, but a peer may be silent for so long, in nanoseconds.
    #[must_use]
    pub const fn patient(self, silence_ns: u64) -> Self {
        Self { silence_ns, ..self }
    }

    /// These, but so long between two pings, in nanoseconds.
    #[must_use]
    pub const fn pinging(self, ping_ns: u64) -> Self {
        Self { ping_ns, ..self }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            welcome_ns: 5 * SECOND,
            opened_ns: 10 * SECOND,
            armed_ns: 10 * SECOND,
            started_ns: 5 * SECOND,
            counts_ns: 10 * SECOND,
            compare_ns: 300_000_000,
            bye_ns: 10 * SECOND,
            stop_ns: 5 * SECOND,
            ping_ns: SECOND,
            silence_ns: 30 * SECOND,
            hello_ns: 5 * SECOND,
            open_ns: 8 * SECOND,
            idle_ns: 30 * SECOND,
            halt_ns: 8 * SECOND,
            close_ns: 4 * SECOND,
        }
    }
}
