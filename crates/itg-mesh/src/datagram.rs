//! Datagrams between processes: one socket, one thread that reads.

use std::sync::Arc;

use bytes::BytesMut;
use itg_process::frame;
use itg_process::{NetId, Slot};
use itg_socket::sys;
use socket2::Socket;

use crate::frame_reader::is_pause;
use crate::shared::Shared;

/// Longest datagram, in bytes.
const LONGEST: usize = 65_536;

/// Reads datagrams until the process closes, which shuts the socket down and so ends a read.
pub(crate) fn read(shared: &Arc<Shared>, socket: &Socket) {
    let me = shared.lock().and_then(|state| state.identity).map_or(Slot(0), |own| own.me);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::with_capacity(1);
    while !shared.is_closing() {
        buffer.clear();
        buffer.reserve(LONGEST);
        let source = match sys::receive_from(socket, &mut buffer) {
            Ok(source) => source,
            Err(error) if is_pause(&error) => continue,
            Err(error) => {
                tracing::debug!(%error, "a datagram");
                // Not the socket's end: some errors belong to one datagram.
                std::thread::sleep(std::time::Duration::from_millis(1));
                continue;
            }
        };
        let bytes = bytes::Bytes::copy_from_slice(&buffer);
        let decoded = frame::decode(&bytes, me, LONGEST);
        let whole = match decoded {
            Ok(Some((frame, taken))) if taken == bytes.len() => Some(frame),
            _ => None,
        };
        let Some(mut state) = shared.lock() else { return };
        let Some(frame) = whole else {
            count(&mut state.nets, None);
            continue;
        };
        let NetId(net) = frame.message.net;
        let Slot(slot) = frame.message.src;
        let known = state.nets.get(usize::from(net)).is_some_and(|network| {
            let peer = network.peers.get(slot as usize);
            peer.and_then(|peer| peer.ip).is_some_and(|at| Some(at) == source)
        });
        if !known {
            count(&mut state.nets, Some(net));
            continue;
        }
        drop(state);
        frames.push(frame);
        shared.deliver(net, slot, &mut frames);
    }
}

/// Counts a datagram that is no frame, or whose sender does not take part in this network.
fn count(nets: &mut [crate::shared::Net], stranger: Option<u8>) {
    use crate::kinds::Kind;
    match stranger.and_then(|net| nets.get_mut(usize::from(net))) {
        Some(network) if network.wanted.kind == Kind::Udp => network.counters.strangers += 1,
        _ => {
            if let Some(first) = nets.iter_mut().find(|net| net.wanted.kind == Kind::Udp) {
                first.counters.damaged += 1;
            }
        }
    }
}
