//! Drops in this host below its sockets: by the queueing disciplines and the devices that flows leave by.
//!
//! They are counted for all traffic of a device together. So they tell for sure that a flow has lost nothing here, and
//! never how much it has.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs;

use itg_socket::socket::DataSocket;
use itg_socket::xdp::netlink::Netlink;
use nix::net::if_::{if_indextoname, if_nametoindex};

/// Counts of a device: those of its queueing disciplines, modulo 2^32, and its own.
#[derive(Clone, Copy, Debug)]
struct Dropped {
    queue: u32,
    device: u64,
}

impl Dropped {
    /// Packets that were dropped since `before`.
    const fn since(self, before: Self) -> u64 {
        let queue = self.queue.wrapping_sub(before.queue) as u64;
        queue.saturating_add(self.device.saturating_sub(before.device))
    }
}

/// The devices of the flows of a run.
#[derive(Debug, Default)]
pub(super) struct HostDrops {
    netlink: Option<Netlink>,
    /// By the number of a device: its counts when the first flow came to it.
    before: BTreeMap<u32, Dropped>,
    /// Devices of flows, by their numbers.
    of: BTreeMap<u32, u32>,
}

impl HostDrops {
    /// A flow leaves through this socket. Where the kernel does not tell by which device, its drops are not known.
    pub(super) fn leaves(&mut self, flow: u32, data: &DataSocket, interface: Option<&str>) {
        if self.netlink.is_none() {
            self.netlink = Netlink::open().ok();
        }
        let Some(netlink) = &self.netlink else { return };
        let interface = interface.and_then(|name| if_nametoindex(name).ok());
        match netlink.way_out(data.local.ip(), data.remote.ip(), interface) {
            Ok(device) => {
                if let Entry::Vacant(new) = self.before.entry(device) {
                    let Some(now) = read(netlink, device) else { return };
                    new.insert(now);
                }
                self.of.insert(flow, device);
            }
            Err(error) => tracing::debug!("drops of the device of flow {flow}: {error}"),
        }
    }

    /// Packets of all traffic that were dropped at the device of a flow since then; `None` where that is not known.
    pub(super) fn dropped(&self, flow: u32) -> Option<u64> {
        let device = self.of.get(&flow)?;
        Some(read(self.netlink.as_ref()?, *device)?.since(*self.before.get(device)?))
    }
}

fn read(netlink: &Netlink, device: u32) -> Option<Dropped> {
    let name = if_indextoname(device).ok()?;
    let path = format!("/sys/class/net/{}/statistics/tx_dropped", name.to_str().ok()?);
    let text = fs::read_to_string(path).ok()?;
    Some(Dropped { queue: netlink.dropped(device).ok()?, device: text.trim().parse().ok()? })
}
