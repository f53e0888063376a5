//! The line of a window.

use std::fmt::{self, Display, Formatter};

use itg_core::units::format_bit_rate;

/// Packets, and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Volume {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// A window of a run. Times count from the first packet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Row {
    pub(super) since_ns: u64,
    pub(super) until_ns: u64,
    /// Flows that ran in it.
    pub(super) flows: usize,
    /// Packets that were sent; `None` where that is another side's business.
    pub(super) sent: Option<Volume>,
    /// Packets that arrived; `None` where nobody has told.
    pub(super) arrived: Option<Arrived>,
}

/// Packets that arrived in a window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Arrived {
    pub(super) volume: Volume,
    /// Begin of the time in which they arrived, where it is before that of the window: the line before did not know.
    pub(super) since_ns: Option<u64>,
    /// Bits per second over the time in which they arrived; `None` where that has no length.
    pub(super) bps: Option<f64>,
    pub(super) loss: Loss,
}

/// Packets of a window that have not arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// So many are lost, where the transport loses packets, and of all that were sent so many are on their way, as long
    /// as there may be any.
    #[cfg_attr(not(any(feature = "send", test)), expect(dead_code, reason = "senders know it"))]
    Known { lost: Option<u64>, away: Option<u64> },
    /// Packets overtake one another, or some were not sent; of all that were sent so many have not arrived, as long as
    /// they may.
    Unknown { absent: Option<u64> },
    /// A receiver alone: so many sequence numbers were passed over.
    Numbers { missing: u64 },
}

impl Volume {
    /// These without those before.
    pub(super) const fn without(self, before: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(before.packets),
            bytes: self.bytes.saturating_sub(before.bytes),
        }
    }

    /// Bits per second over this time; `None` where it is too short for a rate.
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    pub(super) fn bps_over(self, ns: u64) -> Option<f64> {
        (ns >= 1_000).then(|| self.bytes as f64 * 8.0 / (ns as f64 / 1e9))
    }
}

impl Display for Volume {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let packets = if self.packets == 1 { "packet" } else { "packets" };
        write!(f, "{} {packets} ({} bytes)", self.packets, self.bytes)
    }
}

impl Display for Loss {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known { lost, away } => {
                if let Some(lost) = lost {
                    write!(f, ", {lost} lost")?;
                }
                away.map_or(Ok(()), |away| write!(f, ", {away} on their way"))
            }
            Self::Unknown { absent: Some(absent) } => {
                write!(f, ", loss unknown ({absent} of all have not arrived yet)")
            }
            Self::Unknown { absent: None } => f.write_str(", loss unknown"),
            Self::Numbers { missing: 0 } => Ok(()),
            Self::Numbers { missing } => {
                let numbers = if *missing == 1 { "number" } else { "numbers" };
                write!(f, ", {missing} sequence {numbers} missing")
            }
        }
    }
}

/// Seconds with three digits behind the point.
struct Seconds(u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let ms = self.0.saturating_add(500_000) / 1_000_000;
        write!(f, "{}.{:03}", ms / 1000, ms % 1000)
    }
}

impl Row {
    /// The line, without its end.
    pub(super) fn line(&self, way: Option<&str>) -> String {
        let flows = if self.flows == 1 { "flow" } else { "flows" };
        let (since, until) = (Seconds(self.since_ns), Seconds(self.until_ns));
        let way = way.map_or_else(String::new, |way| format!(" {way}"));
        let mut line = format!("{since}-{until} s{way}: {} {flows}", self.flows);
        let rate = |bps: Option<f64>| {
            bps.map_or_else(String::new, |bps| format!(", {}", format_bit_rate(bps)))
        };
        match (&self.sent, &self.arrived) {
            (Some(sent), None) => {
                let bps = sent.bps_over(self.until_ns.saturating_sub(self.since_ns));
                line += &format!(", {sent} handed to the kernel{}, arrivals unknown", rate(bps));
            }
            (sent, Some(arrived)) => {
                if let Some(sent) = sent {
                    line += &format!(", {sent} sent");
                }
                line += ", ";
                if let Some(since_ns) = arrived.since_ns {
                    line += &format!("since {} s ", Seconds(since_ns));
                }
                line += &format!("{} received", arrived.volume);
                line += &rate(arrived.bps);
                line += &arrived.loss.to_string();
            }
            (None, None) => {}
        }
        line
    }
}

/// The line of flows of which no packet has arrived yet: there is no time from which windows count.
pub(super) fn nothing_yet(flows: usize, way: Option<&str>) -> String {
    let way = way.map_or_else(String::new, |way| format!("{way}: "));
    format!("{way}{flows} {}, no packet has arrived yet", if flows == 1 { "flow" } else { "flows" })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_line_says_what_is_known_of_its_window() {
        let volume = |packets| Volume { packets, bytes: packets * 500 };
        let arrived = |packets, loss| Arrived {
            volume: volume(packets),
            since_ns: None,
            bps: volume(packets).bps_over(SECOND),
            loss,
        };
        let row = Row {
            since_ns: SECOND,
            until_ns: 2 * SECOND + 1_400_000,
            flows: 1,
            sent: Some(volume(200)),
            arrived: None,
        };
        let known = |lost, away| Loss::Known { lost, away };
        for (row, way, want) in [
            (
                row,
                None,
                "1.000-2.001 s: 1 flow, 200 packets (100000 bytes) handed to the kernel, 798.88 kbit/s, arrivals unknown",
            ),
            (
                Row { arrived: Some(arrived(190, known(Some(7), Some(3)))), ..row },
                None,
                "1.000-2.001 s: 1 flow, 200 packets (100000 bytes) sent, 190 packets (95000 bytes) received, \
                 760.00 kbit/s, 7 lost, 3 on their way",
            ),
            (
                Row {
                    flows: 2,
                    arrived: Some(Arrived {
                        since_ns: Some(0),
                        bps: None,
                        ..arrived(1, known(None, None))
                    }),
                    ..row
                },
                Some("from here"),
                "1.000-2.001 s from here: 2 flows, 200 packets (100000 bytes) sent, since 0.000 s 1 packet \
                 (500 bytes) received",
            ),
            (
                Row { arrived: Some(arrived(1, Loss::Unknown { absent: Some(9) })), ..row },
                None,
                "1.000-2.001 s: 1 flow, 200 packets (100000 bytes) sent, 1 packet (500 bytes) received, 4.00 kbit/s, \
                 loss unknown (9 of all have not arrived yet)",
            ),
            (
                Row { sent: None, arrived: Some(arrived(2, Loss::Numbers { missing: 1 })), ..row },
                Some("to here"),
                "1.000-2.001 s to here: 1 flow, 2 packets (1000 bytes) received, 8.00 kbit/s, \
                 1 sequence number missing",
            ),
        ] {
            assert_eq!(row.line(way), want);
        }
    }
}
