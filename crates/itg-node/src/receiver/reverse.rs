//! Flows that peers ask for: sending what the limits of a receiver admit.
//!
//! Anybody who reaches the signalling port may ask, so what is sent is bounded in rate, time and number
//! ([`ReverseLimits`]), and goes nowhere but to the host that has asked: over the connections, and to the source of the
//! datagrams, with which that host comes to the sockets here. Datagrams must bear a number that only the peer on the
//! signalling channel has drawn.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use itg_core::flow::{FlowSpec, Payload, Proto};
use itg_core::payload::Content;
use itg_core::seed::RunSeed;
use itg_core::units::BitRate;
use itg_socket::clock;
use tokio::sync::watch;

use super::limits::{Admitted, Bucket, ReverseLimits, resolve};
use super::shared::Shared;
use crate::connection_slots::counted;
use crate::control::Channel;
use crate::lock::lock;
use crate::sender::{Asker, SendFlow, SendJob, send_over};
use crate::waiting;

/// Time between two looks at what has been sent.
const LOOK: Duration = Duration::from_millis(250);

/// Longest time for which an asker waits for a place: a run that has just ended gives its own back.
const WAIT: Duration = Duration::from_secs(2);
/// Time between two looks for one.
const WAIT_LOOK: Duration = Duration::from_millis(20);

/// Place of an address among the askers, given back when dropped.
pub(super) struct Seat(Arc<Shared>, IpAddr);

impl Seat {
    /// Waits for a place; an address has one at a time.
    ///
    /// # Errors
    /// There is none.
    pub(super) async fn wait_for(shared: &Arc<Shared>, peer: IpAddr) -> Result<Self, String> {
        let until = Instant::now() + WAIT;
        loop {
            match Self::take(shared, peer) {
                Err(_) if Instant::now() < until => tokio::time::sleep(WAIT_LOOK).await,
                taken => return taken,
            }
        }
    }

    fn take(shared: &Arc<Shared>, peer: IpAddr) -> Result<Self, String> {
        let most = shared.options.reverse.map_or(0, |limits| limits.askers);
        let address = counted(peer);
        let mut askers = lock(&shared.askers);
        if askers.contains(&address) {
            return Err("this receiver sends to your address already: try later".to_owned());
        }
        if askers.len() >= most {
            return Err(format!(
                "this receiver sends to {most} hosts already, the limit: --reverse-max of itg-recv; try later"
            ));
        }
        askers.insert(address);
        drop(askers);
        Ok(Self(Arc::clone(shared), address))
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        lock(&self.0.askers).remove(&self.1);
    }
}

/// Flows that a peer has asked for, ready to be sent.
pub(super) struct Turn {
    limits: ReverseLimits,
    /// Rate that TCP leaves to UDP.
    datagrams: BitRate,
    job: SendJob,
    waiting: BTreeMap<u32, waiting::Waiting>,
    _seat: Seat,
}

impl Turn {
    /// Gets ready to send these flows of a run to the peer that asks for them; what was changed of them besides.
    ///
    /// # Errors
    /// Requests that the limits do not admit, or sockets that cannot be had.
    pub(super) fn prepare(
        shared: &Shared,
        seat: Seat,
        (run, seed): (&str, u64),
        specs: Vec<FlowSpec>,
        (peer, local): (SocketAddr, Option<SocketAddr>),
    ) -> Result<(Self, Vec<String>), String> {
        let limits = shared.options.reverse.ok_or("this receiver sends nothing")?;
        let Admitted { flows, notices, datagrams } = limits.admit(specs, RunSeed(seed))?;
        let mut at = local.ok_or("the connection has no address")?;
        at.set_port(0);
        let mut waiting = BTreeMap::new();
        let mut sending = Vec::new();
        for flow in flows {
            let mut spec = flow.spec().clone();
            let open = waiting::open(&spec, at).map_err(|error| error.to_string())?;
            spec.socket.source_port = Some(open.port().map_err(|error| error.to_string())?);
            let content = match &spec.payload {
                Payload::Pattern(bytes) => Content::repeated(bytes),
                Payload::Random | Payload::File(_) => Content::random(RunSeed(seed)),
            };
            waiting.insert(spec.id, open);
            let name = spec.id.to_string();
            sending.push(SendFlow::new(resolve(&spec, RunSeed(seed))?, peer, content).name(name));
        }
        let options = &shared.options;
        let job = SendJob::new(RunSeed(seed), sending)
            .run(run)
            .program(&options.program, &options.version)
            .peer_timeout_ns(options.peer_timeout_ns);
        Ok((Self { limits, datagrams, job, waiting, _seat: seat }, notices))
    }

    /// Sends the flows on the connection on which they were asked for.
    pub(super) async fn send(self, channel: Channel, mut stop: watch::Receiver<Option<String>>) {
        let Self { limits, datagrams, job, waiting, _seat } = self;
        let udp = |flow: &&SendFlow| flow.flow.spec().proto == Proto::Udp;
        let lives: Vec<_> =
            job.flows.iter().filter(udp).map(|flow| Arc::clone(&flow.live)).collect();
        let peer = job.flows.first().map(|flow| flow.receiver);
        let (end, ended) = watch::channel(None);
        let began_ns = clock::monotonic_ns();
        let mut bucket = Bucket::new(datagrams, began_ns);
        let mut looks = tokio::time::interval(LOOK);
        let sending = send_over(job, Some(Asker { channel, waiting }), ended);
        tokio::pin!(sending);
        let outcome = loop {
            tokio::select! {
                outcome = &mut sending => break outcome,
                _ = looks.tick() => {
                    let now_ns = clock::monotonic_ns();
                    let bytes = lives.iter().map(|live| live.read().sent_bytes).sum();
                    let late = limits.overdue(now_ns - began_ns);
                    if let Some(reason) = bucket.take(now_ns, bytes).err().or(late) {
                        let reason = reason.to_owned();
                        end.send_if_modified(|told| told.is_none().then(|| *told = Some(reason)).is_some());
                    }
                }
                reason = stop.wait_for(Option::is_some), if end.borrow().is_none() => {
                    let reason = reason.ok().and_then(|reason| reason.clone());
                    end.send_replace(Some(reason.unwrap_or_else(|| "the receiver ends".to_owned())));
                }
            }
        };
        let peer = peer.map_or_else(String::new, |peer| peer.to_string());
        match outcome {
            Ok(outcome) => {
                let totals = outcome.flows.iter().filter_map(|flow| flow.totals.as_ref());
                let packets: u64 = totals.map(|totals| totals.packets).sum();
                tracing::info!("{peer} has been sent the {packets} packets that it asked for");
                for (_, error) in outcome.failures {
                    tracing::info!("{peer}, which asked for flows: {error}");
                }
            }
            Err(error) => tracing::warn!("{peer} is not sent what it asked for: {error}"),
        }
    }
}
