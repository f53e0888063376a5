//! Faults that are planted so that tests can show that they would be seen.
//!
//! They have an effect only where debug assertions are compiled in: no release has them.

/// A planted fault; the numbers are those of the table in `docs/group.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mutant {
    /// 1: half of the core is taken for a majority.
    HalfIsMajority,
    /// 2: a proposal is acknowledged without being adopted.
    AckWithoutAdopting,
    /// 3: a coordinator takes any estimate instead of the one with the greatest time.
    AnyEstimate,
    /// 4: a proposal of a lower round is acknowledged after a higher one was entered.
    AckLowerRound,
    /// 5: a coordinator proposes twice in one round.
    SecondProposal,
    /// 6: the core changes when a view change is proposed, not behind its position.
    CoreTooEarly,
    /// 7: a view change applies to whatever view there is.
    NoBaseCheck,
    /// 8: a process that has come back is taken for the one that it was.
    IncarnationIgnored,
    /// 9: a member that has sent FLUSH goes on acknowledging.
    NoFence,
    /// 10: Skeen's clock does not follow final numbers.
    NoMaxRule,
    /// 11: Skeen does not break ties.
    NoTieBreak,
    /// 12: delivery before the order is stable.
    BeforeStable,
    /// 13: votes for identifiers of messages that are not held.
    NotHeld,
    /// 16: a client's retry is taken for a new request.
    RetryTwice,
    /// 20: a snapshot has no table of clients.
    SnapshotWithoutClients,
    /// 21: one member does not count for what may be collected.
    GcIgnoresOne,
    /// 26: the next coordinator is the member that announced a decision, not its author.
    Announcer,
    /// 28: the time of an estimate is not in the journal.
    TimeNotStored,
    /// 29: a journal that is shortened loses the promises of the instance in progress.
    PromiseNotKept,
    /// 30: a process that has come back begins at round 0.
    RoundForgotten,
    /// 31: messages leave before what they depend on is durable; in the driver.
    EarlySend,
    /// 32: a torn record is taken for a whole one; in the driver.
    TornRecord,
    /// 33: uniform forms: the number of a message is told before it is stored.
    OrderNotStored,
    /// 34: Skeen: a timestamp is told before it is stored.
    StampNotStored,
    /// 35: a member that has sent FLUSH forgets it in a crash.
    FenceNotStored,
    /// 36: uniform forms: an own message is told before it is stored; its name is used again.
    OwnCastNotStored,
    /// 37: uniform forms: a message that is held is not stored.
    HeldNotStored,
    /// 38: uniform forms: a journal that is shortened loses what some member may lack.
    HistoryNotKept,
    /// 39: uniform forms: a journal that is shortened loses the fence.
    FenceDropped,
    /// 40: uniform forms: a journal that is shortened loses numbers and timestamps.
    OrdersDropped,
    /// 41: a piece of a snapshot counts wherever it belongs.
    AnyPiece,
    /// 42: a vote in the journal is not taken back.
    VoteNotReplayed,
    /// 43: the state that a joiner takes over is not stored.
    StateNotStored,
    /// 44: an own message is told before it is stored; its name is used again.
    CastNotStored,
    /// 45: a journal that is shortened forgets which messages its snapshot covers.
    SeenForgotten,
    /// 46: a decision on the own estimate is not replayed, nor what comes behind it.
    DecisionNotReplayed,
    /// 47: a client's retry whose answer is forgotten is taken for a new request.
    ExpiredApplied,
    /// 48: a server answers a command that changes nothing by itself, without the order.
    StaleRead,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 38] = [
        Self::HalfIsMajority,
        Self::AckWithoutAdopting,
        Self::AnyEstimate,
        Self::AckLowerRound,
        Self::SecondProposal,
        Self::CoreTooEarly,
        Self::NoBaseCheck,
        Self::IncarnationIgnored,
        Self::NoFence,
        Self::NoMaxRule,
        Self::NoTieBreak,
        Self::BeforeStable,
        Self::NotHeld,
        Self::RetryTwice,
        Self::SnapshotWithoutClients,
        Self::GcIgnoresOne,
        Self::Announcer,
        Self::TimeNotStored,
        Self::PromiseNotKept,
        Self::RoundForgotten,
        Self::EarlySend,
        Self::TornRecord,
        Self::OrderNotStored,
        Self::StampNotStored,
        Self::FenceNotStored,
        Self::OwnCastNotStored,
        Self::HeldNotStored,
        Self::HistoryNotKept,
        Self::FenceDropped,
        Self::OrdersDropped,
        Self::AnyPiece,
        Self::VoteNotReplayed,
        Self::StateNotStored,
        Self::CastNotStored,
        Self::SeenForgotten,
        Self::DecisionNotReplayed,
        Self::ExpiredApplied,
        Self::StaleRead,
    ];
}

/// Fault of a machine: none without debug assertions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    mutant: Option<Mutant>,
}

impl Planted {
    /// A machine with this fault.
    #[must_use]
    pub const fn new(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Returns true if the machine has this fault.
    #[must_use]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        cfg!(debug_assertions) && self.mutant == Some(mutant)
    }
}
