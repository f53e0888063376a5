//! What members say to each other about members. Names are those of the paper.

use bytes::Bytes;
use itg_process::Slot;
use serde::{Deserialize, Serialize};

use crate::codec;
use crate::member::{Member, Shape, ViewParts};
use crate::roster::Changes;

/// Why a view is followed by another; one encoding serves all of the paper's messages that go down.
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

/// How it is known that a process has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Evidence {
    /// It has been silent for long.
    Silence,
    /// Its host refuses connections.
    Reset,
    /// Somebody saw it end.
    Reported,
}

/// Which attempt at a view: higher ones win.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Tag {
    /// Number of the view.
    pub no: u64,
    /// Who conducts the attempt.
    pub by: Member,
}

/// A view on its way down the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Down {
    /// Which attempt.
    pub tag: Tag,
    /// Why.
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
pub enum Say {
    /// Are you there?
    HowAreYou {
        /// Repeated in the answer.
        nonce: u64,
    },
    /// Yes.
    IAmFine {
        /// Of the question.
        nonce: u64,
        /// Who answers.
        me: Member,
        /// Its view.
        view: u64,
    },
    /// Members have failed: to the root.
    NodeFailure {
        /// Who.
        suspects: Vec<Member>,
        /// How that is known.
        evidence: Evidence,
        /// Who reports.
        detector: Member,
    },
    /// The report has arrived: to its sender, always.
    FailureDetectAck {
        /// Who was reported.
        suspects: Vec<Member>,
    },
    /// The root has failed: to the next in succession.
    RootFailure {
        /// Everybody whom the detector suspects.
        suspects: Vec<Member>,
    },
    /// A view, from parent to child.
    Down(Down),
    /// The view has been installed by a whole subtree, from child to parent; or: there is a later one.
    Up {
        /// Which attempt.
        tag: Tag,
        /// Digest of the view.
        digest: u64,
        /// Members of the subtree that have installed it.
        count: u32,
    },
    /// A process wants to join, or to come back.
    Join {
        /// As whom.
        member: Member,
    },
    /// The root knows of the wish.
    JoinPending,
    /// The receiver is a member, in this view, which is stable.
    Welcome {
        /// The view.
        view: ViewParts,
    },
    /// The joiner has installed its first view.
    Joined {
        /// Number of the view.
        no: u64,
    },
    /// Somebody else is root.
    RootIs {
        /// Who.
        root: Member,
        /// In which view.
        view: u64,
    },
    /// The receiver has been removed.
    Excluded {
        /// In this view, or before.
        view: u64,
        /// Who has been removed.
        member: Member,
    },
    /// What is the view?
    Pull,
    /// This one.
    Push {
        /// The view.
        view: ViewParts,
        /// Who conducted its attempt.
        by: Member,
    },
    /// The sender leaves.
    Leave {
        /// Who.
        member: Member,
    },
}

/// First type of these messages.
pub(crate) const FIRST: u32 = 1300;
/// Last type of these messages.
pub(crate) const LAST: u32 = 1339;
/// Most suspects of one report.
const MOST_SUSPECTS: usize = 4096;

impl Say {
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
            Self::Join { member } if member.incarnation == 1 => 7,
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
            Self::Welcome { view } | Self::Push { view, .. } => view.roster.is_sound(),
            _ => true,
        };
        (sound && say.ty() == ty).then_some(say)
    }
}

/// What the paper calls a message of this type.
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

/// What a membership is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The failure detector suspects whoever is on this slot.
    Suspect(Slot, Evidence),
    /// It does not any more.
    Trust(Slot),
    /// This process leaves of its own will.
    Leave,
}

/// What a membership tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tell {
    /// This view is in force.
    View(crate::member::View),
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
    /// The wish to join is.
    Join,
}
