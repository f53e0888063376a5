//! Drops at a socket to which several flows came: the kernel does not tell whose packets they were.

use std::collections::{BTreeMap, BTreeSet};

use itg_record::Side;

use super::objects::{Object, Objects};

/// Time from the first packet of a flow that arrived to the last one, in Unix nanoseconds, and the place of the flow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Span {
    first_ns: u64,
    last_ns: u64,
    place: usize,
}

/// Marks flows of which others came to the same port of the same receiver meanwhile, and saw drops, too. Flows of a run
/// are opened before its start: they see the drops of the others from then on.
pub(super) fn mark(objects: &mut Objects<'_>) {
    let mut sockets: BTreeMap<_, Vec<(&String, Span)>> = BTreeMap::new();
    for (place, (key, object)) in objects.iter().enumerate() {
        let Object { info: Some(info), owners, stats, .. } = object else { continue };
        let drops = owners.told(|end| end.socket_drops).unwrap_or(0);
        if key.side == Side::Sender || drops == 0 {
            continue;
        }
        let port = info.dst.rsplit(':').next().unwrap_or_default().to_owned();
        let volume = stats.volume();
        let first_ns = volume.first_unix_ns.unwrap_or(0);
        let last_ns = volume.last_unix_ns.unwrap_or(u64::MAX);
        for (log, _) in owners.sources() {
            let socket = sockets.entry((log, info.spec.proto.name(), port.clone())).or_default();
            socket.push((&key.run, Span { first_ns, last_ns, place }));
        }
    }
    let mut shared = BTreeSet::new();
    for flows in sockets.into_values() {
        let mut began_ns: BTreeMap<&str, u64> = BTreeMap::new();
        for &(run, span) in &flows {
            let began_ns = began_ns.entry(run).or_insert(span.first_ns);
            *began_ns = span.first_ns.min(*began_ns);
        }
        let spans =
            flows.iter().map(|&(run, span)| Span { first_ns: began_ns[run.as_str()], ..span });
        let mut spans: Vec<_> = spans.collect();
        spans.sort_unstable();
        let mut latest: Option<Span> = None;
        for &span in &spans {
            let other =
                latest.filter(|other| other.last_ns >= span.first_ns && other.place != span.place);
            shared.extend(other.into_iter().flat_map(|other| [other.place, span.place]));
            latest = latest.into_iter().chain([span]).max_by_key(|span| span.last_ns);
        }
    }
    for place in shared {
        objects[place].1.shares_drops = true;
    }
}
