//! Faults that are planted so that tests can show that they would be seen.
//!
//! They exist under the feature `mutants` alone, which nothing but this crate's own tests turns on.

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

/// Planted fault of a member: none without the feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Planted {
    #[cfg(feature = "mutants")]
    mutant: Option<Mutant>,
}

impl Planted {
    /// A member with this fault.
    #[cfg(feature = "mutants")]
    #[must_use]
    pub const fn new(mutant: Mutant) -> Self {
        Self { mutant: Some(mutant) }
    }

    /// Returns true if the member has this fault.
    #[must_use]
    #[allow(unused_variables, reason = "without the feature there is nothing to compare with")]
    pub(crate) fn is(self, mutant: Mutant) -> bool {
        #[cfg(feature = "mutants")]
        {
            self.mutant == Some(mutant)
        }
        #[cfg(not(feature = "mutants"))]
        {
            false
        }
    }
}
