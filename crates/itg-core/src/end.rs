//! Causes of the end of a flow. They are text on the wire and in logs, and values everywhere else.

use std::fmt::{self, Display, Formatter};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// End of a flow whose packets have all had their turn, as logs and the wire write it.
pub const SCHEDULE_DONE: &str = "end of the schedule";
/// First word of the end of a flow that the user ended.
const INTERRUPTED: &str = "interrupted";
/// First words of the end of a flow that was too slow.
const TIME_OVER: &str = "time over";

/// Cause of the end of a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndCause {
    /// All packets of its schedule have had their turn.
    ScheduleDone,
    /// The sender's program was told to stop it.
    Interrupted,
    /// The lease under which a node sent it is over.
    LeaseOver,
    /// Its time was over, and packets that were due this long ago could not be sent.
    TooSlow {
        /// Lateness of the first packet that was not sent, in milliseconds.
        late_ms: u64,
    },
    /// The connection that carried its packets broke, with this error.
    ConnectionBroke(String),
    /// It could not be opened, here or at its receiver, for this reason.
    Refused(String),
    /// Its receiver did not agree to it in time.
    NotAgreed,
    /// The session with its receiver ended early, for this reason.
    SessionOver(String),
    /// D-ITG's receiver broke it off.
    ReceiverBrokeOff,
    /// The simulation ended before its schedule did.
    SimulationOver,
    /// Text of another program, as it came over the wire.
    Told(String),
}

impl Display for EndCause {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::ScheduleDone => f.write_str(SCHEDULE_DONE),
            Self::Interrupted => f.write_str(INTERRUPTED),
            Self::LeaseOver => f.write_str("the lease is over"),
            Self::TooSlow { late_ms } => write!(
                f,
                "{TIME_OVER} with packets due {late_ms} ms ago: this host or the path is too slow"
            ),
            Self::ConnectionBroke(error) => write!(f, "the connection broke: {error}"),
            Self::NotAgreed => f.write_str("its receiver did not agree"),
            Self::ReceiverBrokeOff => f.write_str("the receiver broke it off"),
            Self::SimulationOver => f.write_str("the simulation is over"),
            Self::Refused(text) | Self::SessionOver(text) | Self::Told(text) => f.write_str(text),
        }
    }
}

/// Cause of the end of a flow, with what else people should know of the end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndReason {
    /// The cause.
    pub cause: EndCause,
    /// Remarks for people, each a part of a sentence.
    pub remarks: Vec<String>,
}

impl EndReason {
    /// True if all packets of the schedule have had their turn: nobody need go on with the flow.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.cause == EndCause::ScheduleDone
    }

    /// True if its sender told, here or over the wire, that it ran to the end of its schedule or of its time.
    #[must_use]
    pub fn is_told_whole(&self) -> bool {
        let text = self.to_string();
        text.split("; ").next() == Some(SCHEDULE_DONE) || text.starts_with(TIME_OVER)
    }

    /// True if the user ended it, here or at its sender.
    #[must_use]
    pub fn is_interrupted(&self) -> bool {
        self.to_string().starts_with(INTERRUPTED)
    }

    /// True if its peer, its connection or its lease went away before its schedule was done.
    #[must_use]
    pub fn is_cut_off(&self) -> bool {
        match &self.cause {
            _ if self.is_interrupted() => false,
            EndCause::ConnectionBroke(_)
            | EndCause::SessionOver(_)
            | EndCause::LeaseOver
            | EndCause::ReceiverBrokeOff => true,
            EndCause::Told(_) => !self.is_told_whole(),
            EndCause::ScheduleDone
            | EndCause::Interrupted
            | EndCause::TooSlow { .. }
            | EndCause::Refused(_)
            | EndCause::NotAgreed
            | EndCause::SimulationOver => false,
        }
    }

    /// True if there is nothing to say but that the schedule is done.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        self.is_whole() && self.remarks.is_empty()
    }
}

impl From<EndCause> for EndReason {
    fn from(cause: EndCause) -> Self {
        Self { cause, remarks: Vec::new() }
    }
}

impl Display for EndReason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        self.remarks.iter().try_for_each(|remark| write!(f, "; {remark}"))
    }
}

impl Serialize for EndReason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for EndReason {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(EndCause::Told(String::deserialize(deserializer)?).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_read_as_sentences_and_travel_as_text() {
        let with = |cause: EndCause, remarks: &[&str]| EndReason {
            cause,
            remarks: remarks.iter().map(|&remark| remark.to_owned()).collect(),
        };
        for (reason, text, whole, plain) in [
            (with(EndCause::ScheduleDone, &[]), "end of the schedule", true, true),
            (with(EndCause::ScheduleDone, &["a", "b"]), "end of the schedule; a; b", true, false),
            (with(EndCause::Interrupted, &["c"]), "interrupted; c", false, false),
            (
                with(EndCause::TooSlow { late_ms: 7 }, &[]),
                "time over with packets due 7 ms ago: this host or the path is too slow",
                false,
                false,
            ),
            (
                with(EndCause::Told("stopped at the end of the schedule".to_owned()), &[]),
                "stopped at the end of the schedule",
                false,
                false,
            ),
            (
                with(EndCause::Told("end of the schedule".to_owned()), &[]),
                "end of the schedule",
                false,
                false,
            ),
        ] {
            assert_eq!(reason.to_string(), text);
            assert_eq!((reason.is_whole(), reason.is_plain()), (whole, plain), "{text}");
            let json = serde_json::to_value(&reason).expect("text");
            assert_eq!(json, text);
            let back: EndReason = serde_json::from_value(json).expect("text");
            assert_eq!(back, EndCause::Told(text.to_owned()).into());
            let told = text.starts_with("end of the schedule") || text.starts_with("time over");
            assert_eq!((reason.is_told_whole(), back.is_told_whole()), (told, told), "{text}");
        }
    }

    #[test]
    fn reasons_tell_who_ended_a_flow() {
        let told = |text: &str| EndCause::Told(text.to_owned());
        let gone = || "gone".to_owned();
        for (cause, interrupted, cut_off) in [
            (EndCause::ScheduleDone, false, false),
            (EndCause::Interrupted, true, false),
            (EndCause::LeaseOver, false, true),
            (EndCause::TooSlow { late_ms: 7 }, false, false),
            (EndCause::ConnectionBroke(gone()), false, true),
            (EndCause::Refused(gone()), false, false),
            (EndCause::NotAgreed, false, false),
            (EndCause::SessionOver(gone()), false, true),
            (EndCause::SessionOver("interrupted by its sender".to_owned()), true, false),
            (EndCause::ReceiverBrokeOff, false, true),
            (EndCause::SimulationOver, false, false),
            (told("end of the schedule"), false, false),
            (told("time over with packets due 7 ms ago"), false, false),
            (told("interrupted"), true, false),
            (told("the connection broke: reset"), false, true),
        ] {
            let reason = EndReason::from(cause);
            assert_eq!(
                (reason.is_interrupted(), reason.is_cut_off()),
                (interrupted, cut_off),
                "{reason}"
            );
        }
    }
}
