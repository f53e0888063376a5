//! The host's errors of UDP sockets, read once for messages that came together.

use itg_socket::UdpErrors;

/// Reading of the count. Thousands of flows open, or end, at once: their messages wait in one buffer then, and what is
/// read after they have come holds for each of them.
#[derive(Debug, Default)]
pub(super) struct ErrorReadings {
    /// Read of the connection that brought the message in hand; `None` if something else is in hand.
    brought_by: Option<u64>,
    /// Count that holds for all messages of one read, and the number of that read.
    reading: Option<(u64, Option<UdpErrors>)>,
}

impl ErrorReadings {
    /// Takes note of what is in hand: a message and the number of its read, or something else.
    pub(super) fn in_hand(&mut self, brought_by: Option<u64>) {
        self.brought_by = brought_by;
    }

    /// The count, by a reading after what is in hand had come; `read` reads it.
    pub(super) fn get(&mut self, read: impl FnOnce() -> Option<UdpErrors>) -> Option<UdpErrors> {
        match (self.reading, self.brought_by) {
            (Some((by, errors)), Some(brought_by)) if by == brought_by => errors,
            (_, brought_by) => {
                let errors = read();
                self.reading = brought_by.map(|by| (by, errors));
                errors
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reading_holds_for_messages_that_had_come_before_it() {
        let mut errors = ErrorReadings::default();
        let mut count = 0;
        let mut got = Vec::new();
        for brought_by in [Some(1), Some(1), Some(2), None, None, Some(2), Some(2), Some(3)] {
            errors.in_hand(brought_by);
            got.push(errors.get(|| {
                count += 1;
                Some(UdpErrors { full: count, checksum: 0 })
            }));
        }
        // What is no message has come now: it has a reading of its own.
        let want = [1, 1, 2, 3, 4, 5, 5, 6];
        assert_eq!(got, want.map(|full| Some(UdpErrors { full, checksum: 0 })));
    }
}
