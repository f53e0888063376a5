//! The page of a sender: while its flows run, and for a while behind the run.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use itg_core::flow::Meter;
use itg_core::units::parse_duration_ns;
use itg_engine::{FlowLive, LatenessClasses};
use itg_experiment::Plan;
use itg_node::{FlowOutcome, SendOutcome};
use itg_socket::clock;
use itg_stats::Report;
use itg_stats::fidelity::Verdict;
use itg_stats::report::{BasisKind, FlowReport};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::classes::Classes;
use super::flows::{FlowFacts, FlowLabels, write_flows, write_lateness};
use super::{MetricsArgs, Program};
use crate::signals::Signals;

/// Time between two looks at whether the page was read.
const LOOK: Duration = Duration::from_millis(50);
/// Flows that are told of with their delays.
const MOST_MEASURES: usize = itg_node::WATCHED_MEASURES;

/// Options of programs that send and have a page for Prometheus.
#[derive(Clone, Debug, Args)]
pub struct SenderMetricsArgs {
    #[command(flatten)]
    page: MetricsArgs,
    /// After the run, stay until the page with its result was read, but no longer than this; 0s: do not stay
    #[arg(long, help_heading = "Watching", value_name = "T", requires = "metrics", default_value = "1min", value_parser = wait)]
    metrics_wait: Duration,
}

fn wait(text: &str) -> Result<Duration, String> {
    parse_duration_ns(text).map(Duration::from_nanos).map_err(|error| error.to_string())
}

impl SenderMetricsArgs {
    /// True if there shall be a page.
    #[must_use]
    pub const fn is_given(&self) -> bool {
        self.page.metrics.is_some()
    }
}

/// A flow that is sent from here.
#[derive(Debug)]
struct Sent {
    labels: FlowLabels,
    round_trip: bool,
    live: Arc<FlowLive>,
    /// What is known of it since the end of the run.
    end: Option<Box<FlowFacts>>,
}

/// What the page is made of.
#[derive(Debug, Default)]
struct State {
    flows: Vec<Sent>,
}

/// The page of a sender.
#[derive(Debug)]
pub struct SenderMetrics {
    state: Arc<Mutex<State>>,
    /// When the newest page that was read was made.
    served: Arc<AtomicU64>,
    wait: Duration,
    task: JoinHandle<()>,
}

impl SenderMetrics {
    /// Serves the page, if there shall be one; called within a tokio runtime.
    ///
    /// # Errors
    /// A port that is taken, an address that this host does not have.
    pub async fn start(
        args: &SenderMetricsArgs,
        program: Program,
        quiet: bool,
    ) -> Result<Option<Self>> {
        let Some(server) = args.page.bind(quiet).await? else { return Ok(None) };
        let served = server.served();
        let state = Arc::<Mutex<State>>::default();
        let told = Arc::clone(&state);
        let serving = server.serve(move || {
            let text = page(program, &lock(&told));
            std::future::ready(text)
        });
        let task = tokio::spawn(serving);
        Ok(Some(Self { state, served, wait: args.metrics_wait, task }))
    }

    /// The flows that are sent, before the first packet.
    pub fn begin(
        &self,
        (plan, run): (&Plan, &str),
        lives: Vec<(u32, Arc<FlowLive>)>,
        receiver: impl Fn(&str) -> Option<SocketAddr>,
    ) {
        let flows = lives.into_iter().filter_map(|(flow, live)| {
            let planned = plan.flows.iter().find(|planned| planned.flow.spec().id == flow)?;
            let spec = planned.flow.spec();
            let to = receiver(&planned.to);
            let labels = FlowLabels {
                run: run.to_owned(),
                flow,
                name: Some(planned.name.clone()),
                from: to.and_then(source).map_or_else(String::new, |ip| ip.to_string()),
                to: to.map_or_else(String::new, |at| at.ip().to_string()),
                proto: spec.proto.name(),
            };
            let round_trip = spec.meter == Meter::Rtt;
            Some(Sent { labels, round_trip, live, end: None })
        });
        let flows = flows.collect();
        lock(&self.state).flows = flows;
    }

    /// What became of the flows. Tells when, for [`stay`](Self::stay).
    pub fn end(&self, outcome: &SendOutcome, report: &Report) -> u64 {
        let mut state = lock(&self.state);
        for (place, sent) in state.flows.iter_mut().enumerate() {
            let flow = sent.labels.flow;
            let (ended, reported) = (
                outcome.flows.iter().find(|ended| ended.flow == flow),
                report.flows.iter().find(|reported| reported.flow == flow),
            );
            if let Some((ended, reported)) = ended.zip(reported) {
                sent.end =
                    Some(Box::new(ended_facts(sent, ended, reported, place < MOST_MEASURES)));
            }
        }
        clock::machine_ns()
    }

    /// Waits until a page that was made since the end was read, the time for that is over, or the program is told to end.
    pub async fn stay(self, ended_ns: u64, signals: &Signals) {
        let until = Instant::now() + self.wait;
        // A page that was made before may still be handed over.
        let read = || self.served.load(Ordering::Relaxed) >= ended_ns;
        while Instant::now() < until && signals.stop.borrow().is_none() && !read() {
            sleep(LOOK).await;
        }
        self.task.abort();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The address from which this host reaches another one; no packet is sent for that.
fn source(to: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match to {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(to).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn page(program: Program, state: &State) -> String {
    let mut page = program.page();
    let facts: Vec<_> = state.flows.iter().map(running).collect();
    let of_run = |sent: &&Sent| sent.end.is_none() && !sent.live.read().ended;
    let help = "Flows that run.";
    page.one("itg_flows_running", "gauge", help, state.flows.iter().filter(of_run).count());
    let sums = facts.iter().filter_map(|facts| facts.sent);
    let (packets, bytes) = sums.fold((0, 0), |(p, b), sent| (p + sent.0, b + sent.1));
    let help = "Packets of all flows that were handed to the kernel.";
    page.one("itg_sent_packets_total", "counter", help, packets);
    page.one("itg_sent_bytes_total", "counter", "Bytes of these packets.", bytes);
    let (mut late, mut late_sum_ns) = (LatenessClasses::default(), 0_u64);
    for reading in state.flows.iter().map(|sent| sent.live.read()) {
        late.iter_mut().zip(reading.late).for_each(|(sum, count)| *sum += count);
        late_sum_ns = late_sum_ns.saturating_add(reading.lateness_sum_ns);
    }
    write_lateness(&mut page, &late, late_sum_ns);
    write_flows(&mut page, &facts, 0);
    page.into_text()
}

/// What is known of a flow: from its counters, or since the end of the run from the accounts.
fn running(sent: &Sent) -> FlowFacts {
    if let Some(end) = &sent.end {
        return (**end).clone();
    }
    let reading = sent.live.read();
    FlowFacts {
        labels: sent.labels.clone(),
        sent: Some((reading.sent_packets, reading.sent_bytes)),
        replies: sent.round_trip.then_some((reading.received_packets, reading.received_bytes)),
        missing: reading.missing.filter(|_| !reading.ended),
        lateness_max_ns: (reading.sent_packets > 0).then_some(reading.lateness_max_ns),
        ..FlowFacts::default()
    }
}

fn ended_facts(
    sent: &Sent,
    ended: &FlowOutcome,
    reported: &FlowReport,
    with_delays: bool,
) -> FlowFacts {
    let before = FlowFacts { missing: None, ..running(sent) };
    let metrics = reported.metrics.as_ref();
    let (totals, counts) = (ended.totals.as_ref(), ended.counts.as_ref());
    let round_trip = sent.round_trip && ended.replies.is_some();
    let measure = if round_trip { &ended.reply_measure } else { &ended.measure };
    let delays = measure.as_ref().and_then(|m| m.delays.as_ref()).filter(|_| with_delays);
    let basis = metrics.delay_basis.filter(|basis| basis.kind == BasisKind::Absolute);
    let off_ns = reported.clock.as_ref().map_or(0, |clock| clock.offset_ns);
    let replies = ended.replies.as_ref().map(|replies| (replies.packets, replies.bytes));
    FlowFacts {
        sent: totals.map(|totals| (totals.packets, totals.bytes)).or(before.sent),
        received: counts.map(|counts| (counts.packets, counts.bytes)),
        replies: replies.or(before.replies),
        metrics: metrics.clone(),
        delay: delays.filter(|_| basis.is_some()).map(|d| Classes::of_delays(d, off_ns)),
        uncertainty_ns: delays.and(basis).and_then(|basis| basis.uncertainty_ns),
        jitter: delays.map(Classes::of_steps),
        verdict: Some(metrics.fidelity.verdict).filter(|verdict| *verdict != Verdict::Unknown),
        ..before
    }
}
