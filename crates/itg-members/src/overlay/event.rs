//! Events of the overlay.

use itg_process::layer_events;

layer_events! {
    /// Events of the overlay. `seq` numbers what an origin spreads.
    pub enum OverlayEvent {
        /// Contribution that is too long, or whose topic is one too many.
        NoRoomForContribution { topic: u32, bytes: u64 } = "no room for a contribution",
        /// Contribution of so many members that does not merge with the others.
        Unmergeable { topic: u32, members: u32, bytes: u64 } = "a contribution that cannot be merged",
        /// Bytes for which this process has no room.
        NoRoomForSpread { bytes: u64 } = "no room for what is spread",
        /// Bytes that are complete and have another digest than their origin said.
        Damaged { seq: u64, bytes: u32 } = "damaged",
        /// Chunks that are dropped, as their origin has left and nobody has more of them.
        OnlyAPart { seq: u64, chunks: u32 } = "a part is all there is",
        /// Bytes that all members had and dropped before this joiner came.
        ForgottenBeforeJoiner = "what was everywhere is forgotten before a joiner has it",
    }
}
