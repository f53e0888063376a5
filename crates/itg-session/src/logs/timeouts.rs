//! Time limits of producers and log servers.

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// Time limits of a producer, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerTimeouts {
    /// From `Connect` until the driver is connected. Default 5 s.
    pub connect_ns: u64,
    /// From `Register` to the server's answer, and for the driver's proof; more than the server's
    /// `check_ns` and `open_ns` together. Default 15 s.
    pub register_ns: u64,
    /// Until the first registration of a producer without a spool; then it fails. Default 20 s.
    pub first_ns: u64,
    /// From `Registered` to `Bound`, on UDP; less than `silence_ns`. Default 4 s.
    pub bind_ns: u64,
    /// Between two `Bind` datagrams. Default 200 ms.
    pub bind_again_ns: u64,
    /// Between two pings. Default 1 s.
    pub ping_ns: u64,
    /// A server that has been silent for this long is away. Default 5 s.
    pub silence_ns: u64,
    /// First and shortest wait before connecting again; it doubles with each failure. Default 100 ms.
    pub retry_min_ns: u64,
    /// Longest wait before connecting again. Default 5 s.
    pub retry_max_ns: u64,
    /// After `Close`: longest time without any block being acknowledged, and then until `Left`. More
    /// than the server's `linger_ns` and `leave_ns` together. Default 30 s.
    pub leave_ns: u64,
}

impl Default for ProducerTimeouts {
    fn default() -> Self {
        Self {
            connect_ns: 5 * SECOND,
            register_ns: 15 * SECOND,
            first_ns: 20 * SECOND,
            bind_ns: 4 * SECOND,
            bind_again_ns: 200 * MS,
            ping_ns: SECOND,
            silence_ns: 5 * SECOND,
            retry_min_ns: 100 * MS,
            retry_max_ns: 5 * SECOND,
            leave_ns: 30 * SECOND,
        }
    }
}

/// Time limits of a log server, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogServerTimeouts {
    /// From connecting to `Register`, and from `Challenge` to the second one. Default 5 s.
    pub register_ns: u64,
    /// For the driver to check a proof. Default 3 s.
    pub check_ns: u64,
    /// For the driver to open the files of an experiment. Default 10 s.
    pub open_ns: u64,
    /// A producer that has been silent for this long is gone. Default 5 s.
    pub silence_ns: u64,
    /// An `Ack` that the producer does not wait for is put off for this long at most. Default 5 ms.
    pub ack_delay_ns: u64,
    /// After `Leave`, on UDP: for datagrams that are still on their way. Default 500 ms.
    pub linger_ns: u64,
    /// After `Leave`: until everything that has come is stored. Default 20 s.
    pub leave_ns: u64,
    /// After `Shutdown`: until everything that has come is stored. Default 10 s.
    pub drain_ns: u64,
}

impl Default for LogServerTimeouts {
    fn default() -> Self {
        Self {
            register_ns: 5 * SECOND,
            check_ns: 3 * SECOND,
            open_ns: 10 * SECOND,
            silence_ns: 5 * SECOND,
            ack_delay_ns: 5 * MS,
            linger_ns: 500 * MS,
            leave_ns: 20 * SECOND,
            drain_ns: 10 * SECOND,
        }
    }
}
