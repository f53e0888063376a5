//! Ways of a run's flows out of this host: their sockets, frames past the network stack, times that the
//! kernel keeps, and samples of departures.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use itg_core::flow::{FlowSpec, Meter, Proto, SocketOptions};
use itg_core::settings::Shape;
use itg_engine::departures::{Sampler, Samples};
use itg_engine::pacing::{Level, Prepared};
use itg_socket::errqueue::ask_for_departures;
use itg_socket::socket::{self, DataSocket, SocketError};
use itg_socket::txtime;
use itg_socket::wire::{Sockets, Wire};
use itg_socket::xdp::{Frames, PacketEngine};

use super::host_drops::HostDrops;

/// Settings of a socket: flows share one that have the same.
type Settings = (SocketOptions, Shape);
/// Sockets that flows share, by destination and place, for each choice of settings.
type SharedSockets = BTreeMap<(SocketAddr, u32), Vec<(Settings, DataSocket)>>;

/// State that the flows of a run share on their way out.
#[derive(Debug, Default)]
pub(super) struct Outlets {
    engine: PacketEngine,
    /// Devices for packets that do not leave through sockets.
    frames: Option<Frames>,
    /// Ways out, if the kernel keeps the times of packets.
    held: Option<txtime::Ways>,
    /// Samples of departures, where they are asked for and there is a log for them.
    samples: Option<Samples>,
    /// Number of sockets that flows to one destination share, and those that are open.
    shared: Option<(NonZeroU32, SharedSockets)>,
    /// Drops of the devices that flows leave by.
    drops: HostDrops,
}

impl Outlets {
    pub(super) fn new(pacing: Option<&Prepared>, logs: bool) -> Self {
        let Some(pacing) = pacing else { return Self::default() };
        let held = pacing.level() == Level::Txtime;
        let every = pacing.stamp_every().filter(|_| logs);
        Self {
            engine: pacing.engine(),
            frames: None,
            held: held.then(txtime::Ways::default),
            samples: every.map(|every| Samples::new(every, held)),
            shared: pacing.sockets().map(|count| (count, BTreeMap::new())),
            drops: HostDrops::default(),
        }
    }

    /// Opens the socket of a flow, and its way past or through the queues. May wait.
    pub(super) fn open(
        &mut self,
        spec: &FlowSpec,
        target: SocketAddr,
    ) -> Result<DataSocket, SocketError> {
        let data = self.opened(spec, target)?;
        self.drops.leaves(spec.id, &data, spec.socket.interface.as_deref());
        Ok(data)
    }

    /// Packets of all traffic that this host has dropped since then below its sockets, at the device of a flow.
    pub(super) fn host_drops(&self, flow: u32) -> Option<u64> {
        self.drops.dropped(flow)
    }

    fn opened(&mut self, spec: &FlowSpec, target: SocketAddr) -> Result<DataSocket, SocketError> {
        if let Some((count, open)) = &mut self.shared
            && socket::can_share(spec)
        {
            return share(open.entry((target, spec.id % *count)).or_default(), spec, target);
        }
        let mut data = socket::open_sender(spec, target)?;
        if let Some(held) = &mut self.held {
            data.kept = Some(Box::new(held.attach(spec, &data)?));
        }
        if self.engine == PacketEngine::Xdp {
            let frames = match &mut self.frames {
                Some(frames) => frames,
                none => {
                    let new = Frames::new().map_err(|error| {
                        SocketError::io(format!("flow {}: engine {}", spec.id, self.engine), &error)
                    })?;
                    none.insert(new)
                }
            };
            frames.attach(spec, &mut data)?;
        }
        Ok(data)
    }

    /// Returns the sampler of a flow's departures, where it is asked for and this kind of flow has it; where the
    /// kernel keeps times, at least one that reads which of them it did not keep.
    pub(super) fn sampler(
        &self,
        spec: &FlowSpec,
        data: &DataSocket,
        index: u32,
    ) -> Option<Sampler> {
        let unsampled = || data.kept.is_some().then(Sampler::silent);
        let Some(samples) = &self.samples else { return unsampled() };
        let alone = spec.proto == Proto::Udp && spec.burst.is_none() && spec.meter == Meter::Owd;
        if !alone || data.path.is_some() {
            return None;
        }
        match ask_for_departures(&data.socket) {
            Ok(()) => Some(samples.sampler(index)),
            Err(error) => {
                tracing::warn!(flow = spec.id, %error, "departures are not stamped");
                unsampled()
            }
        }
    }

    pub(super) const fn samples(&self) -> Option<&Samples> {
        self.samples.as_ref()
    }

    /// Returns the wire for UDP packets that have times of their own, for the sending thread.
    pub(super) fn take_exact(&mut self) -> Box<dyn Wire> {
        match self.frames.take() {
            Some(frames) => Box::new(frames),
            None => Box::new(Sockets),
        }
    }
}

/// A flow's share of the socket among these that has its settings; it is opened for the first flow.
fn share(
    open: &mut Vec<(Settings, DataSocket)>,
    spec: &FlowSpec,
    target: SocketAddr,
) -> Result<DataSocket, SocketError> {
    let settings = (spec.socket.clone(), spec.shape.clone());
    let place = match open.iter().position(|(of, _)| *of == settings) {
        Some(place) => place,
        None => {
            open.push((settings, socket::open_sender(spec, target)?));
            open.len() - 1
        }
    };
    let DataSocket { socket, local, remote, raw_v4, .. } = &open[place].1;
    let socket = Arc::clone(socket);
    Ok(DataSocket {
        socket,
        local: *local,
        remote: *remote,
        raw_v4: *raw_v4,
        path: None,
        kept: None,
    })
}
