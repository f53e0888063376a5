//! Faults that are planted so that tests can show that they would be seen.
//!
//! They have an effect only where debug assertions are compiled in: no release has them.

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A lease counts from when its grant came, not from when it was asked for (17 in `docs/group.md`).
    LeaseFromReceipt,
    /// A new owner does not wait for the end of the old one's lease.
    NoWait,
    /// An owner goes on without a lease.
    NoLease,
    /// A member carries commands out as it hears of its own, not in the order of the log.
    OwnFirst,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Self; 4] =
        [Self::LeaseFromReceipt, Self::NoWait, Self::NoLease, Self::OwnFirst];
}

/// Planted fault of a member: none without debug assertions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    mutant: Option<Mutant>,
}

impl Planted {
    /// A member with this fault.
    #[must_use]
    pub const fn new(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Returns true if the member has this fault.
    #[must_use]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        cfg!(debug_assertions) && self.mutant == Some(mutant)
    }
}
