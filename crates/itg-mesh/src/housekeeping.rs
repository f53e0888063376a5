//! The caretaker thread: timers, new connections, streams that were full.

use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use itg_process::SECOND;
use itg_socket::clock;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use socket2::Socket;

use crate::shared::{Shared, now};
use crate::stream::{self, MOST_UNKNOWN};

/// Runs until the process closes.
pub(crate) fn care(shared: &Arc<Shared>, tcp: Option<Socket>, unix: Option<Socket>) {
    clock::sharpen_timers();
    let listeners = [tcp.map(|socket| (socket, true)), unix.map(|socket| (socket, false))];
    let listeners: Vec<_> = listeners.into_iter().flatten().collect();
    while !shared.is_closing() {
        let Some((due, full)) = shared.watched() else { return };
        let mut waited = vec![PollFd::new(shared.bell().as_fd(), PollFlags::POLLIN)];
        let comes =
            listeners.iter().map(|(listener, _)| PollFd::new(listener.as_fd(), PollFlags::POLLIN));
        waited.extend(comes);
        waited.extend(full.iter().map(|(.., s)| PollFd::new(s.as_fd(), PollFlags::POLLOUT)));
        let left = due.since(now()).min(SECOND);
        let left = TimeSpec::from_duration(clock::ns(left));
        if let Err(error) = ppoll(&mut waited, Some(left), None)
            && error != nix::errno::Errno::EINTR
        {
            tracing::warn!(%error, "the caretaker cannot wait");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let happened = |k: usize| waited[k].any().unwrap_or(false);
        if happened(0) {
            shared.silence_bell();
        }
        for (k, (listener, tcp)) in (1..).zip(&listeners) {
            if happened(k) {
                accept(shared, listener, *tcp);
            }
        }
        let ready = (1 + listeners.len()..).zip(&full).filter(|(k, _)| happened(*k));
        let ready: Vec<_> = ready.map(|(_, &(net, slot, _))| (net, slot)).collect();
        shared.tend(&ready);
    }
}

fn accept(shared: &Arc<Shared>, listener: &Socket, tcp: bool) {
    while let Ok((socket, _)) = listener.accept() {
        if shared.unknown.load(Ordering::Relaxed) >= MOST_UNKNOWN {
            tracing::debug!("more connections than can be greeted: one is closed");
            continue;
        }
        let Some(mut state) = shared.lock() else { return };
        shared.unknown.fetch_add(1, Ordering::Relaxed);
        let greeted = move |shared: Arc<Shared>| stream::answer(&shared, socket, tcp);
        if !shared.spawn(&mut state, "from a process", greeted) {
            shared.unknown.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
