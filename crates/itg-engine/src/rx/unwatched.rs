//! Sources of which the receiving thread is not told: while much arrives, they are read after each nap. Whoever sends to
//! a socket that is watched pays for telling the epoll instance of each packet.

use nix::sys::epoll::{EpollEvent, EpollFlags};

use super::{BUSY, Rx, Source};

impl Rx {
    /// Reads the sockets that are not watched; returns the number of packets. Those with few are watched again.
    pub(super) fn serve_unwatched(&mut self) -> usize {
        let mut total = 0;
        for i in (0..self.unwatched.len()).rev() {
            let place = self.unwatched[i];
            let packets = self.serve(place);
            // A socket whose reading failed is gone from the list.
            if packets < BUSY && self.unwatched.get(i) == Some(&place) {
                self.unwatched.swap_remove(i);
                self.watch_again(place);
            }
            total += packets;
        }
        total
    }

    /// Reads a socket with many datagrams after each nap from now on: its sender pays for each packet of which
    /// somebody is told.
    pub(super) fn unwatch(&mut self, place: usize) {
        let Some(Some(source @ Source::Datagrams(..))) = self.sources.get(place) else { return };
        match self.epoll.delete(source.fd()) {
            Ok(()) => self.unwatched.push(place),
            Err(error) => tracing::error!(%error, "a socket stays watched"),
        }
    }

    /// Waits for all sockets again.
    pub(super) fn watch_all(&mut self) {
        while let Some(place) = self.unwatched.pop() {
            self.watch_again(place);
        }
    }

    /// Waits to be told of a socket again; of what came meanwhile it is told at once.
    fn watch_again(&mut self, place: usize) {
        let Some(Some(source)) = self.sources.get(place) else { return };
        let event = EpollEvent::new(EpollFlags::EPOLLIN, place as u64);
        if let Err(error) = self.epoll.add(source.fd(), event) {
            tracing::error!(%error, "a socket cannot be watched any more");
        }
    }

    /// Reads frames of all queues of the device; returns the number of packets.
    pub(super) fn serve_device(&mut self) -> usize {
        let mut total = 0;
        for place in 0..self.sources.len() {
            if matches!(self.sources[place], Some(Source::Frames(_))) {
                total += self.serve_frames(place);
            }
        }
        total
    }

    /// Looks for frames in each round from now on, or waits to be told of them.
    pub(super) fn look_for_frames(&mut self, looking: bool) {
        if looking == self.looking || self.device.is_none() {
            return;
        }
        self.looking = looking;
        for (place, source) in self.sources.iter().enumerate() {
            let Some(Source::Frames(queue)) = source else { continue };
            let done = if looking {
                self.epoll.delete(queue)
            } else {
                // What came meanwhile is told at once.
                self.epoll.add(queue, EpollEvent::new(EpollFlags::EPOLLIN, place as u64))
            };
            if let Err(error) = done {
                tracing::error!(%error, "frames of a queue cannot be waited for");
            }
        }
    }
}
