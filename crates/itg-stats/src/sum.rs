//! Sum of a count over flows that may not all tell it.

/// Sum of a count of flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    told: Option<u64>,
    /// A flow did not tell it.
    unknown: bool,
}

impl Sum {
    /// Adds the count of a flow.
    pub fn add(&mut self, count: Option<u64>) {
        match count {
            Some(count) => self.told = Some(self.told.unwrap_or(0).saturating_add(count)),
            None => self.unknown = true,
        }
    }

    /// The sum; `None` without flows, and where one did not tell its count: without some it is not that of all.
    #[must_use]
    pub fn known(self) -> Option<u64> {
        self.told.filter(|_| !self.unknown)
    }
}
