//! Messages between members about members. Names are those of the paper.

use bytes::Bytes;
use itg_members::{Changes, Member, Shape, ViewParts};
use itg_process::Slot;
use serde::{Deserialize, Serialize};

use crate::codec;

/// Reason for which a view is followed by another; one encoding serves all of the paper's messages
/// that go down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Cause {
    /// Members have failed.
    FailedNode,
    /// The root has.
    RootDead,
    /// The root has, and others too.
    RootAndNodeFailure,
    /// Processes that have never been members come.
    NewNodeJoin,
    /// Processes that have been members come back.
    AliveNodeJoin,
    /// The tree takes another shape.
    Rerank,
}

/// Evidence that a process has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Evidence {
    /// It has been silent for long.
    Silence,
    /// Its host refuses connections.
    Reset,
    /// Another process saw it end.
    Reported,
}

/// Identifier of an attempt at a view: higher ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag {
    /// Number of the view.
    pub no: u64,
    /// Member that conducts the attempt.
    pub by: Member,
}

/// A view on its way down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Attempt that it belongs to.
    pub tag: Tag,
    /// Reason of the change.
    pub cause: Cause,
    /// The last stable view, to which the changes apply.
    pub base: u64,
    /// Everything that has changed since.
    pub changes: Changes,
    /// The root of the new view.
    pub root: Member,
    /// A new shape, if it changes.
    pub shape: Option<Shape>,
    /// Digest of the new view.
    pub digest: u64,
}

/// A message between members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MembershipMessage {
    /// Are you there?
    HowAreYou {
        /// Repeated in the answer.
        nonce: u64,
    },
    /// Yes.
    IAmFine {
        /// Of the question.
        nonce: u64,
        /// Member that answers.
        me: Member,
        /// Its view.
        view: u64,
    },
    /// Members have failed: to the root.
    NodeFailure {
        /// Members that have failed.
        suspects: Vec<Member>,
        /// Evidence of it.
        evidence: Evidence,
        /// Member that reports.
        detector: Member,
    },
    /// The report has arrived: to its sender, always.
    FailureDetectAck {
        /// Members that were reported.
        suspects: Vec<Member>,
    },
    /// The root has failed: to the next in succession.
    RootFailure {
        /// All members that the detector suspects.
        suspects: Vec<Member>,
    },
    /// A view, from parent to child.
    Down(Down),
    /// The view has been installed by a whole subtree, from child to parent; or: there is a later one.
    Up {
        /// Attempt that is acknowledged.
        tag: Tag,
        /// Digest of the view.
        digest: u64,
        /// Members of the subtree that have installed it.
        count: u32,
    },
    /// A process wants to join, or to come back.
    Join {
        /// Member that it will be.
        member: Member,
        /// Tells two starts under one name apart: the time at which this one began, by its own clock.
        nonce: u64,
    },
    /// The root knows of the request.
    JoinPending,
    /// The receiver is a member, in this view, which is stable.
    Welcome {
        /// The view.
        view: ViewParts,
        /// Of the start that has joined.
        nonce: u64,
    },
    /// The joiner has installed its first view.
    Joined {
        /// Number of the view.
        no: u64,
    },
    /// Another member is root.
    RootIs {
        /// The root.
        root: Member,
        /// Number of its view.
        view: u64,
    },
    /// The receiver has been removed.
    Excluded {
        /// Number of the view without it, or of a later one.
        view: u64,
        /// Member that has been removed.
        member: Member,
    },
    /// Request for the view.
    Pull,
    /// This one.
    Push {
        /// The view.
        view: ViewParts,
        /// Member that conducted its attempt.
        by: Member,
    },
    /// The sender leaves.
    Leave {
        /// Member that leaves.
        member: Member,
    },
}

/// First type of these messages.
pub(crate) const FIRST: u32 = 1300;
/// Last type of these messages.
pub(crate) const LAST: u32 = 1339;
/// Most suspects of one report.
const MOST_SUSPECTS: usize = 4096;

impl MembershipMessage {
    /// Type of the message: 1300 and on, in the order of their definition; views by cause.
    #[must_use]
    pub fn ty(&self) -> u32 {
        let place = match self {
            Self::HowAreYou { .. } => 0,
            Self::IAmFine { .. } => 1,
            Self::NodeFailure { .. } => 2,
            Self::FailureDetectAck { .. } => 3,
            Self::RootFailure { .. } => 4,
            Self::Up { .. } => 6,
            Self::Join { member, .. } if member.incarnation == 1 => 7,
            Self::Join { .. } => 8,
            Self::JoinPending => 9,
            Self::Welcome { .. } => 10,
            Self::Joined { .. } => 11,
            Self::RootIs { .. } => 12,
            Self::Excluded { .. } => 13,
            Self::Pull => 14,
            Self::Push { .. } => 15,
            Self::Leave { .. } => 16,
            Self::Down(down) => 20 + down.cause as u32,
        };
        FIRST + place
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        codec::write(self).into()
    }

    /// The message that these bytes of this type are; `None` when they are none.
    #[must_use]
    pub fn decode(ty: u32, bytes: &[u8]) -> Option<Self> {
        let say: Self = codec::read(bytes)?;
        let sound = match &say {
            Self::NodeFailure { suspects, .. }
            | Self::FailureDetectAck { suspects }
            | Self::RootFailure { suspects } => suspects.len() <= MOST_SUSPECTS,
            Self::Down(down) => down.changes.is_sound(),
            Self::Welcome { view, .. } | Self::Push { view, .. } => view.roster.is_sound(),
            _ => true,
        };
        (sound && say.ty() == ty).then_some(say)
    }
}

/// Name of a message of this type in the paper.
#[must_use]
pub const fn name(ty: u32) -> &'static str {
    match ty.wrapping_sub(FIRST) {
        0 => "HOW_ARE_YOU",
        1 => "I_AM_FINE",
        2 => "NODE_FAILURE",
        3 => "FAILURE_DETECT_ACK",
        4 => "ROOT_FAILURE",
        6 => "FAILURE_ACK",
        7 => "NEW_NODE",
        8 => "NODE_ALIVE",
        9 => "JOIN_PENDING",
        10 => "JOIN_DETECT_ACK",
        11 => "NEW_NODE_JOIN_ACK",
        12 => "ROOT_IS",
        13 => "EXCLUDED",
        14 => "VIEW_PULL",
        15 => "VIEW_PUSH",
        16 => "LEAVE",
        20 => "FAILED_NODE",
        21 => "ROOT_DEAD",
        22 => "ROOT_AND_NODE_FAILURE",
        23 => "NEW_NODE_JOIN",
        24 => "ALIVE_NODE_JOIN",
        25 => "RERANK",
        _ => "?",
    }
}

/// Request to a membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipRequest {
    /// The failure detector suspects the process on this slot.
    Suspect(Slot, Evidence),
    /// It does not any more.
    Trust(Slot),
    /// The longest round trip to others takes so many nanoseconds.
    RoundTrip(u64),
    /// This process leaves of its own will.
    Leave,
}

/// Event that a membership reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembershipDelivery {
    /// This view is in force.
    View(itg_members::View),
    /// This process is not a member any more.
    Excluded,
    /// A majority of the core cannot be reached from here, or can be again: there is no view that this
    /// process may act in.
    Suspended(bool),
}

/// Timers of memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The tree has been recomputed.
    Computed,
    /// The window for further changes is over.
    Window,
    /// Acknowledgements are late.
    Late,
    /// Answers to questions are.
    Silent,
    /// Reports are to be repeated.
    Retry,
    /// The request to join is.
    Join,
}
