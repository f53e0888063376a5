//! Step 4 of the bootstrap: the connections between processes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use crate::listeners::{Address, Listeners};
use crate::shared::{Agreed, News, Shared, now};

/// Up to this many processes all connect to all before the start; more connect when they have something
/// to say.
const FULL_MESH: u32 = 64;

/// Change of the connections to another process.
pub(crate) enum Change {
    /// All connections to it stand.
    Meshed { slot: u32, incarnation: u64 },
    /// It cannot be reached.
    Unreachable { slot: u32, why: String },
    /// A process of this incarnation, or a later one, has the place of this one.
    Stale { incarnation: u64 },
}

/// The connections of a process before the start.
pub(crate) struct Mesh {
    shared: Arc<Shared>,
    news: Receiver<News>,
    streams: Vec<u8>,
    /// Networks on which each process is connected.
    linked: BTreeMap<u32, BTreeSet<u8>>,
    others: Vec<u32>,
}

impl Mesh {
    /// The networks are known from here on: connections are greeted.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        agreed: Agreed<'_>,
        listeners: &mut Listeners,
    ) -> std::io::Result<Self> {
        let Agreed { identity, wanted, addresses, .. } = agreed;
        let (sender, news) = channel();
        if let Some(mut state) = shared.lock() {
            state.news = Some(sender);
        }
        shared.install(agreed, listeners)?;
        let mut streams = Vec::new();
        if identity.processes <= FULL_MESH {
            let kinds = (0_u8..=u8::MAX).zip(wanted);
            streams.extend(kinds.filter(|(_, w)| w.kind.is_stream()).map(|(number, _)| number));
        }
        let others = (0_u32..).zip(addresses);
        let others = others.filter(|(slot, its)| *slot != identity.me.0 && !its.is_empty());
        let others = others.map(|(slot, _)| slot).collect();
        Ok(Self { shared: Arc::clone(shared), news, streams, linked: BTreeMap::new(), others })
    }

    /// Connects to a process on all networks that connect before the start.
    pub(crate) fn connect(&self, slot: u32) {
        let Some(mut state) = self.shared.lock() else { return };
        for &net in &self.streams {
            self.shared.dial(&mut state, net, slot, now());
        }
    }

    /// Changes since the last call.
    pub(crate) fn changes(&mut self) -> Vec<Change> {
        let mut changes = Vec::new();
        if self.streams.is_empty() {
            let all = std::mem::take(&mut self.others).into_iter();
            changes.extend(all.map(|slot| Change::Meshed { slot, incarnation: 1 }));
        }
        while let Ok(news) = self.news.try_recv() {
            match news {
                News::Linked { slot, incarnation, net } => {
                    let linked = self.linked.entry(slot).or_default();
                    let new = linked.insert(net);
                    if new && self.streams.iter().all(|net| linked.contains(net)) {
                        changes.push(Change::Meshed { slot, incarnation });
                    }
                }
                News::Unreachable { slot, why } => {
                    changes.push(Change::Unreachable { slot, why });
                }
                News::Stale { incarnation } => changes.push(Change::Stale { incarnation }),
            }
        }
        changes
    }
}

/// The addresses of all processes out of the texts of the bootstrap; `host` is by which the master was
/// reached.
pub(crate) fn addresses(texts: &[Vec<String>], host: Option<IpAddr>) -> Vec<Vec<Address>> {
    let read = |texts: &Vec<String>, host| {
        texts.iter().filter_map(|text| Address::parse(text, host)).collect()
    };
    let first = texts.iter().take(1).map(|texts| read(texts, host));
    first.chain(texts.iter().skip(1).map(|texts| read(texts, None))).collect()
}
