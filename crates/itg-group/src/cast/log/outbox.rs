//! Messages that a member has cast, and those of them that wait: to be told to others, ordered, said again.

use std::time::Duration;

use itg_members::{Id, Member};
use itg_process::Time;

/// The pause between two repeats of own messages is doubled so often.
const MOST_DOUBLED: u32 = 3;

/// Messages of this member.
#[derive(Clone, Debug, Default, Hash)]
pub(super) struct Outbox {
    /// Number of the next one.
    next: u64,
    /// Cast and not yet told to others: numbers and lengths.
    untold: Vec<(u64, usize)>,
    /// Those that wait to be ordered, told or not.
    waiting: usize,
    repeats: Repeats,
}

/// Repeats of own messages that wait for long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Repeats {
    /// Instant since which the oldest of them has waited.
    oldest: Time,
    /// Instant of the last repeat.
    at: Time,
    /// Number of repeats since then.
    times: u32,
}

impl Outbox {
    /// Number of the next message.
    pub(super) const fn next_seq(&self) -> u64 {
        self.next
    }

    /// Name of the next message.
    pub(super) const fn next(&self, me: Member) -> Id {
        Id { origin: me, seq: self.next }
    }

    /// The next message is cast, with so many bytes.
    pub(super) fn cast(&mut self, bytes: usize) {
        self.untold.push((self.next, bytes));
        self.next += 1;
    }

    /// All messages before this number have been cast.
    pub(super) fn cast_before(&mut self, number: u64) {
        self.next = self.next.max(number);
    }

    /// Messages that wait to be ordered.
    pub(super) const fn waiting(&self) -> usize {
        self.waiting
    }

    /// So many wait.
    pub(super) const fn set_waiting(&mut self, waiting: usize) {
        self.waiting = waiting;
    }

    /// One more waits.
    pub(super) const fn wait(&mut self) {
        self.waiting += 1;
    }

    /// One that waited is ordered.
    pub(super) const fn ordered(&mut self) {
        self.waiting -= 1;
    }

    /// Numbers of the messages that are to be told now: at once when nothing that was told waits, else when they
    /// fill a batch.
    pub(super) fn take_due(&mut self, batch_msgs: usize, batch_bytes: usize) -> Vec<u64> {
        let bytes = || self.untold.iter().map(|(_, bytes)| bytes).sum::<usize>();
        let is_full = self.untold.len() >= batch_msgs || bytes() >= batch_bytes;
        if self.untold.is_empty() || (self.waiting > self.untold.len() && !is_full) {
            return Vec::new();
        }
        self.untold.drain(..).map(|(seq, _)| seq).collect()
    }

    /// This member is in the view no more: it tells nothing.
    pub(super) fn tell_nothing(&mut self) {
        self.untold.clear();
    }

    /// Returns true if messages of which the oldest waits since then are to be said again: ever more seldom, so
    /// that a log that is slow is not made slower.
    pub(super) fn repeat_is_due(&mut self, oldest: Time, now: Time, rotate: Duration) -> bool {
        if self.repeats.oldest != oldest {
            self.repeats = Repeats { oldest, at: oldest, times: 0 };
        }
        let due = now - self.repeats.at >= rotate * (1 << self.repeats.times.min(MOST_DOUBLED));
        if due {
            (self.repeats.at, self.repeats.times) = (now, self.repeats.times + 1);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_at_once_or_in_bulk() {
        for (bytes, told_and_waits, want) in
            [(vec![1], 0, 1), (vec![1], 1, 0), (vec![1; 3], 1, 3), (vec![60, 60], 1, 2)]
        {
            let mut outbox = Outbox::default();
            outbox.set_waiting(told_and_waits + bytes.len());
            bytes.iter().for_each(|bytes| outbox.cast(*bytes));
            assert_eq!(outbox.take_due(3, 100).len(), want, "{bytes:?}, {told_and_waits}");
        }
    }

    #[test]
    fn repeats_become_seldom_until_another_message_is_the_oldest() {
        let (mut outbox, rotate) = (Outbox::default(), Duration::from_nanos(10));
        let mut times = |oldest: u64, until: u64| {
            (oldest..until)
                .filter(|now| outbox.repeat_is_due(Time(oldest), Time(*now), rotate))
                .count()
        };
        assert_eq!(times(0, 100), 3, "after 10, 30, 70");
        assert_eq!(times(100, 131), 2, "after 10, 30");
    }
}
