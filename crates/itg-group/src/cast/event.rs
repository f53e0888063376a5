//! Events of broadcasts and of layers above them.

use itg_process::{Slot, layer_events};

layer_events! {
    /// Events of broadcasts. `origin`, `author` and `member` are members as [`code`](super::code) has them;
    /// `instance` numbers instances of consensus.
    pub enum CastEvent {
        /// Return of a process with what its journal holds; `counts` if it was in the first view (with `trace`).
        Back { member: u64, counts: bool } = "back",
        /// Cast of a message, the `seq`th of its origin (with `trace`).
        Cast { origin: u64, seq: u64 } = "cast",
        /// Delivery of a message at a position of the order (with `trace`).
        Deliver { origin: u64, seq: u64, position: u64 } = "deliver",
        /// View that is in force from this position on.
        View { no: u64, digest: u64, position: u64 } = "view",
        /// Snapshot that stands for everything before this position.
        Install { position: u64, view: u64, instance: u64 } = "install",
        /// View without this member, which leaves. A membership logs its own exclusion by the same name.
        Excluded { view: u64, member: u64 } = "excluded",
        /// View change that comes too late: its base is not the view in force.
        VoidChange { base: u64, view: u64, position: u64 } = "void change",
        /// Decision of an instance: the batch of `author`, from this position on (with `trace`).
        Decided { instance: u64, position: u64, author: u64 } = "decided",
        /// Vote of this process for a value in a round (with `trace`).
        Adopted { instance: u64, round: u32, digest: u64 } = "adopted",
        /// Majority of votes for a value, at its coordinator (with `trace`).
        Majority { instance: u64, round: u32, digest: u64 } = "majority",
        /// Decisions and waiting messages that the log keeps, and the instance in progress (with `trace`).
        Kept { decisions: u64, waiting: u64, instance: u64 } = "kept",
        /// Oldest decision is dropped, since all have it or since too many are kept (with `trace`).
        Collect { first: u64, too_many: bool, instance: u64 } = "collect",
        /// Message that was decided and whose payload nobody holds.
        LostPayload { origin: u64, seq: u64 } = "lost payload",
        /// Snapshot that cannot be read.
        UnreadableSnapshot = "a snapshot that cannot be read",
        /// Piece of a snapshot that has not come, and is asked for again.
        PieceAskedAgain { from: Slot, have: u64, total: u64 } = "a piece is asked for again",
        /// Sender of a snapshot that does not answer, or is too slow: the fetch begins again.
        SnapshotGivenUp { from: Slot, have: u64, total: u64 } = "a sender of a snapshot is given up",
        /// State of the user that is too long for a snapshot.
        SnapshotTooLong { bytes: u64 } = "a snapshot is too long",
        /// View change whose cut is not known here.
        UnreadableCut { view: u64 } = "a cut that cannot be read",
        /// Cut without messages that this member lacks: its first one, and how many this member has delivered.
        CutTooLate { view: u64, first: u64, delivered: u64 } = "a cut begins behind what this member has",
        /// Message dropped, as too many cannot be ordered yet.
        TooManyWait { waiting: u64 } = "too many messages wait",
        /// Cast of a message by a reliable broadcast, which has no order.
        ReliableCast { origin: u64, seq: u64 } = "rcast",
        /// Delivery of a message by a reliable broadcast.
        ReliableDeliver { origin: u64, seq: u64 } = "rdeliver",
        /// Decision on a batch with more than one entry.
        BatchOfSeveral = "a batch of several",
        /// Decision that travels with the next proposal.
        DecisionWithProposal = "a decision told with the next proposal",
        /// Proposal of a value that was adopted in an earlier round.
        AdoptedBefore = "an estimate that was adopted before",
        /// Proposal with a payload that this process has to ask for before it votes.
        PayloadMissing = "a payload was missing",
        /// Majority reached in a round that its coordinator has left.
        DecidedInLeftRound = "decided in a round that was left",
        /// Message from an excluded member, which gets the decisions that it has missed.
        ExcludedTells = "an excluded process tells what was decided",
        /// Journal that a snapshot makes shorter.
        JournalShortened = "a journal is shortened",
        /// Instance in progress that a process has come back to, with a vote.
        BackWithVote = "back with a vote",
        /// Learner that has not heard its parent for too long.
        LearnerAsksCore = "a learner without a parent asks the core",
        /// Snapshot that has come in pieces.
        SnapshotInPieces = "a snapshot in pieces",
        /// Cut that goes ahead of its view change in parts.
        CutInParts = "a cut in parts",
        /// Many numbers given out that are not stable.
        ManyOrdersOpen = "many orders are open",
    }
}

layer_events! {
    /// Events of a layer with a replicated state.
    pub enum ReplicaEvent {
        /// Digest of the state at a position of the order: all replicas have the same.
        State { position: u64, digest: u64 } = "state",
        /// Snapshot that is no state of this layer.
        UnreadableState { position: u64 } = "a state that cannot be read",
    }
}

layer_events! {
    /// Events of clients and of the servers that work for them. `client` is a member as
    /// [`code`](super::code) has it; `seq` numbers its commands.
    pub enum ServiceEvent {
        /// Command that a client asks for.
        Asked { client: u64, seq: u64 } = "asked",
        /// Command that a server applies.
        Applied { client: u64, seq: u64, position: u64 } = "applied",
        /// Answer that a client has got.
        Answered { client: u64, seq: u64, position: u64 } = "answered",
        /// Command that was applied, and whose answer no server has any more: the client learns no more than that.
        Expired { client: u64, seq: u64 } = "expired",
        /// Request to a server that cannot be read.
        MalformedRequest = "malformed request",
        /// Answer to a client that cannot be read.
        MalformedAnswer = "malformed answer",
        /// Command that was applied before and is answered from the table.
        AnsweredFromTable = "answered from the table",
        /// Command that was applied before and whose answer is forgotten.
        RefusedAsExpired = "refused as expired",
        /// Command that was ordered twice and is applied once.
        OrderedTwice = "a request ordered twice",
        /// Command without an answer, for which another server is asked.
        AskedAgain = "asked again",
    }
}
