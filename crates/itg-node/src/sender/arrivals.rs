//! Sockets at which the receiver that has asked for the flows arrives. All are waited for together, by one instant, on a
//! thread beside the run: the run hears its user, and the end of the session, meanwhile.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use itg_core::flow::Meter;
use itg_session::{EndCause, OpenedFlow, SenderInput};
use itg_socket::socket::{self, DataSocket, SocketError};
use tokio::sync::mpsc;

use super::unsent::unsent;
use super::{Run, Stage, tell};
use crate::waiting::{Awaited, Waiting};

/// Longest time in which the receiver must come to the sockets of all flows.
const PATIENCE: Duration = Duration::from_secs(5);
/// First bytes of the datagram with which the receiver of a flow comes; the handle of the flow follows.
const OPENING: [u8; 4] = *b"ITGW";

/// The datagram with which the receiver of a flow comes to its sender's socket.
pub(crate) fn opening(handle: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&OPENING);
    bytes[4..].copy_from_slice(&handle.to_le_bytes());
    bytes
}

/// Flows of a peer with their sockets, or the reasons why it did not come there.
pub(super) type Arrived = (usize, Vec<(OpenedFlow, Result<DataSocket, SocketError>)>);

/// Sockets of flows to which their receiver comes.
#[derive(Debug)]
pub(super) struct Arrivals {
    waiting: BTreeMap<u32, Waiting>,
    /// True once nobody waits any more.
    over: Arc<AtomicBool>,
    told: mpsc::UnboundedSender<Arrived>,
}

impl Arrivals {
    pub(super) fn new(waiting: BTreeMap<u32, Waiting>) -> (Self, mpsc::UnboundedReceiver<Arrived>) {
        let (told, tellings) = mpsc::unbounded_channel();
        (Self { waiting, over: Arc::default(), told }, tellings)
    }

    /// True if no receiver comes: this side connects.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Ends the waiting.
    pub(super) fn give_up(&self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

impl Run {
    /// Takes the data socket of a flow, or tells why there is none.
    pub(super) fn take(
        &mut self,
        index: usize,
        opened: OpenedFlow,
        data: Result<DataSocket, SocketError>,
    ) -> std::io::Result<()> {
        let place = self.place_of[&opened.flow];
        let data = match data {
            Ok(data) => data,
            Err(error) => {
                self.outcome.flows[place].refused = Some(error.to_string());
                let totals = unsent(opened.flow, EndCause::Refused(error.to_string()));
                tell(&self.peers[index], SenderInput::FlowEnded(totals));
                return Ok(());
            }
        };
        self.outcome.flows[place].path = Some((data.local, data.remote));
        let spec = self.job.flows[place].flow.spec();
        if spec.meter == Meter::Rtt {
            self.await_replies(place, opened, &data)?;
        }
        self.opened.insert(place, (opened, data));
        Ok(())
    }

    /// Waits for the receiver at the sockets of these flows; [`on_arrived`](Self::on_arrived) follows.
    pub(super) fn await_receiver(&mut self, index: usize, flows: Vec<OpenedFlow>) {
        let only = Some(socket::plain(self.peers[index].address).ip());
        let awaited: Vec<_> = flows
            .into_iter()
            .filter_map(|opened| {
                let spec = self.job.flows[self.place_of[&opened.flow]].flow.spec().clone();
                Some((opened, spec, self.arrivals.waiting.remove(&opened.flow)?))
            })
            .collect();
        let (over, told) = (Arc::clone(&self.arrivals.over), self.arrivals.told.clone());
        tokio::task::spawn_blocking(move || {
            let until = Instant::now() + PATIENCE;
            let met = awaited.into_iter().map(|(opened, spec, waiting)| {
                let met = waiting.meet(&Awaited {
                    only,
                    opening: Some(&opening(opened.handle)),
                    until,
                    give_up: &|| over.load(Ordering::Relaxed),
                    advice: "packets go to the host that asked for them alone",
                });
                let data = met.and_then(|data| {
                    socket::set_up(&data.socket, &spec, data.remote.is_ipv6())?;
                    Ok(data)
                });
                (opened, data)
            });
            // A run that has ended needs no sockets.
            drop(told.send((index, met.collect())));
        });
    }

    /// Goes on with the flows to whose sockets the receiver has come.
    pub(super) fn on_arrived(&mut self, (index, met): Arrived) -> std::io::Result<()> {
        if self.peers[index].stage != Stage::Agreeing {
            return Ok(());
        }
        for (opened, data) in met {
            self.take(index, opened, data)?;
        }
        self.ready(index);
        Ok(())
    }
}
