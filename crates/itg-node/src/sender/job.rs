//! A run to send, and its flows.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use itg_core::flow::Flow;
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_engine::live::FlowLive;
use itg_engine::log::{LogLimits, LogTarget};
use itg_engine::pacing::Prepared;
use itg_session::Timeouts;
use itg_socket::host;

use super::asks::ArrivalAsks;
use crate::orders::{Orders, Start};
use crate::setters::setters;

/// A flow to send: [`SendFlow::new`], then what differs from its defaults.
#[derive(Clone, Debug)]
pub struct SendFlow {
    /// The flow.
    pub(crate) flow: Flow,
    /// Its name, for the log.
    pub(crate) name: String,
    /// Signalling address of its receiver.
    pub(crate) receiver: SocketAddr,
    /// Content of its packets.
    pub(crate) content: Arc<Content>,
    /// Counters that others may watch.
    pub(crate) live: Arc<FlowLive>,
}

impl SendFlow {
    /// This flow to the receiver that listens at `receiver`, with these contents of its packets: flows can share
    /// them.
    #[must_use]
    pub fn new(flow: Flow, receiver: SocketAddr, content: impl Into<Arc<Content>>) -> Self {
        let name = format!("flow {}", flow.spec().id);
        Self { flow, name, receiver, content: content.into(), live: Arc::default() }
    }

    setters! {
        /// Sets its name, for the log; `flow` and its number unless set.
        name(name: into String);

        /// Sets the counters that others may watch.
        live(live: Arc<FlowLive>);
    }

    /// Returns the flow.
    #[must_use]
    pub const fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns its counters, to watch while it is sent.
    #[must_use]
    pub fn counters(&self) -> Arc<FlowLive> {
        Arc::clone(&self.live)
    }
}

/// A run to send: [`SendJob::new`], then what differs from its defaults.
#[derive(Debug)]
pub struct SendJob {
    /// Run id: 32 hexadecimal digits.
    pub(crate) run: String,
    /// Run seed.
    pub(crate) seed: u64,
    /// The flows, with different numbers.
    pub(crate) flows: Vec<SendFlow>,
    /// Instant from which planned times count.
    pub(crate) start: Start,
    /// Way in which the sending thread waits, with what the host grants for it; the default level when `None`.
    pub(crate) pacing: Option<Prepared>,
    /// Log of what is sent.
    pub(crate) log: Option<LogTarget>,
    /// Block sizes of the log, and bound of the memory that it may hold.
    pub(crate) log_limits: LogLimits,
    /// Name of a log that receivers are asked to keep, or the URL of a log server to send it to.
    pub(crate) recv_log: Option<String>,
    /// Secret shared with the receivers, when packets shall prove where they come from; see
    /// [`Flow::can_prove`].
    pub(crate) packet_secret: Option<Arc<[u8]>>,
    /// Name of the program, for peers and logs.
    pub(crate) program: String,
    /// Its version.
    pub(crate) version: String,
    /// Every resolved setting, for the log.
    pub(crate) settings: BTreeMap<String, String>,
    /// Of a run that is part of a larger one.
    pub(crate) orders: Option<Orders>,
    /// True if the thread that drives the run gives way to the one that sends.
    pub(crate) giving_way: bool,
    /// Time for which a receiver may be silent while packets flow.
    pub(crate) peer_timeout_ns: u64,
    /// Questions of those who watch it.
    pub(crate) arrival_asks: Option<ArrivalAsks>,
}

impl SendJob {
    /// These flows, whose numbers differ, with this run seed: they start as soon as their receivers have agreed,
    /// keep no log, and have a run id that is drawn.
    #[must_use]
    pub fn new(seed: RunSeed, flows: Vec<SendFlow>) -> Self {
        Self {
            run: format!("{:016x}{:016x}", host::random_u64(), host::random_u64()),
            seed: seed.0,
            flows,
            start: Start::Soon,
            pacing: None,
            log: None,
            log_limits: LogLimits::default(),
            recv_log: None,
            packet_secret: None,
            program: env!("CARGO_PKG_NAME").to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            settings: BTreeMap::new(),
            orders: None,
            giving_way: false,
            peer_timeout_ns: Timeouts::default().silence_ns,
            arrival_asks: None,
        }
    }

    setters! {
        /// Sets the run id: 32 hexadecimal digits.
        run(run: into String);

        /// Sets the instant from which planned times count.
        start(start: Start);

        /// Sets how the sending thread waits, with what the host grants for it; the default level unless set.
        pacing(pacing: into Option<Prepared>);

        /// Sets the log of what is sent.
        log(log: into Option<LogTarget>);

        /// Sets the block sizes of the log, and the bound of the memory that it may hold.
        log_limits(log_limits: LogLimits);

        /// Sets the name of a log that receivers are asked to keep, or the URL of a log server to send it to.
        recv_log(recv_log: into Option<String>);

        /// Sets the secret shared with the receivers, when packets shall prove where they come from; see
        /// [`Flow::can_prove`].
        packet_secret(packet_secret: into Option<Arc<[u8]>>);
    }

    /// Sets the name and the version of the program, for peers and logs.
    #[must_use]
    pub fn program(mut self, name: impl Into<String>, version: impl Into<String>) -> Self {
        self.program = name.into();
        self.version = version.into();
        self
    }

    setters! {
        /// Sets every resolved setting, for the log.
        settings(settings: BTreeMap<String, String>);

        /// Lets the thread of the runtime that drives the run have a lower priority, for good, from the moment when
        /// packets are sent: they leave in time when thousands of flows end.
        giving_way(giving_way: bool);

        /// Sets the time for which a receiver may be silent while packets flow, in nanoseconds; 30 s unless set.
        peer_timeout_ns(peer_timeout_ns: u64);

        /// Lets somebody ask what has arrived while it runs.
        arrival_asks(arrival_asks: into Option<ArrivalAsks>);

        /// Makes it part of a larger run.
        orders(orders: into Option<Orders>);
    }
}
