//! Events of memberships.

use itg_members::{Changes, Member, View};
use itg_process::{Slot, layer_events};

layer_events! {
    /// Events of memberships.
    pub enum MembershipEvent {
        /// View made of the view `base`. Its changes follow, then its installation.
        ViewMade { no: u64, base: u64, root: Slot } = "view made",
        /// Member that the view has no more.
        ViewGone { no: u64, slot: Slot, incarnation: u64 } = "view gone",
        /// Member that the view has in addition.
        ViewNew { no: u64, slot: Slot, incarnation: u64 } = "view new",
        /// View that this incarnation installs.
        Installed { no: u64, digest: u64, incarnation: u64 } = "installed",
        /// View that all its members have installed, as its root knows.
        Stable { no: u64, digest: u64, members: u32 } = "stable",
        /// Exclusion of this incarnation.
        Excluded { view: u64, incarnation: u64 } = "excluded",
        /// Admission of this incarnation.
        Welcomed { view: u64, incarnation: u64 } = "welcomed",
        /// Next incarnation of a member that was excluded.
        BornAgain { incarnation: u64, view: u64 } = "born again",
        /// Request to join by a name that the view has already.
        NameTaken { view: u64, slot: Slot, incarnation: u64 } = "name taken",
        /// Suspicion that the root, or the leader, hears of.
        Reported { suspect: Slot, by: Slot, view: u64 } = "reported",
        /// Proposal of a view change.
        Proposed { view: u64 } = "proposed",
        /// Loss of the majority of the core, or its return.
        Suspended { suspended: bool, view: u64 } = "suspended",
        /// New root: this member, in place of `before`. Its views have numbers above `highest`.
        Root { highest: u64, slot: Slot, before: Slot } = "root",
        /// Sizes at the root: members in its lists, runs of slots of the view, members of the view.
        Held { listed: u64, runs: u64, members: u32 } = "held",
        /// Child that has another view of the same number.
        DigestsDiffer { no: u64, ours: u64, theirs: u64 } = "digests differ",
        /// Acknowledgement from a process that is no child.
        NotAChild { no: u64, from: Slot } = "not a child",
        /// Message of another process that only the log of this one may send.
        NotOwnLog { from: Slot } = "not from the log of this process",
        /// Suspicion of a member that does not answer the root.
        SilentSuspected = "a silent member is suspected",
        /// View for a joiner that has not been admitted.
        ViewBeforeWelcome = "a view comes before the welcome",
        /// Phase that a failure interrupts.
        PhaseStartsAgain = "a phase starts again",
        /// View with the same members and a new tree.
        Reranked = "reranked",
        /// Changes of a view that this member has missed.
        WholeViewWanted = "a whole view is asked for",
        /// Views of a root that has failed, of which the new root learns late.
        StartsAboveDeadRoot = "a new root starts again above a dead one",
        /// View change that waits, as some suspicions have too few observers yet.
        WaitsForReports = "a view change waits for more reports",
        /// View with more than one change.
        SeveralChanges = "several changes make one view",
    }
}

impl MembershipEvent {
    /// Events that tell how a view is made of the view of number `base`.
    pub(super) fn made<'a>(
        view: &View,
        base: u64,
        changes: &'a Changes,
    ) -> impl Iterator<Item = Self> + use<'a> {
        let (no, root) = (view.no(), view.root().slot);
        let gone = move |Member { slot, incarnation }| Self::ViewGone { no, slot, incarnation };
        let new = move |Member { slot, incarnation }| Self::ViewNew { no, slot, incarnation };
        [Self::ViewMade { no, base, root }]
            .into_iter()
            .chain(changes.removed().map(gone))
            .chain(changes.added().map(new))
    }
}
