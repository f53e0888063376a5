//! Promise of a host (`itg-send doctor`): how late its packets leave at a rate.

/// A rate counts as one that was promised for when it is within this share of it.
const NEAR: f64 = 0.02;

/// Largest lateness of 99 % of the packets, by their rate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// Packets a second, and nanoseconds, by rate.
    list: Vec<(u32, u64)>,
}

/// A text that is no promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no promise: expected RATE:NANOSECONDS,… with growing rates")]
pub struct PromiseError(String);

impl Promise {
    /// A promise for these rates (packets a second, at least one) and nanoseconds.
    ///
    /// # Errors
    /// Rates that do not grow, or none.
    pub fn new(list: Vec<(u32, u64)>) -> Result<Self, PromiseError> {
        let promise = Self { list };
        let grows = promise.list.is_sorted_by(|a, b| a.0 < b.0);
        match promise.list.first() {
            Some((1.., _)) if grows => Ok(promise),
            _ => Err(PromiseError(promise.to_string())),
        }
    }

    /// As it stands in the settings of a log: see the `Display` form.
    ///
    /// # Errors
    /// A text that is none.
    pub fn parse(text: &str) -> Result<Self, PromiseError> {
        let entry = |entry: &str| {
            let (rate, late) = entry.split_once(':')?;
            Some((rate.parse().ok()?, late.parse().ok()?))
        };
        let list: Option<Vec<_>> = text.split(',').map(entry).collect();
        let fail = || PromiseError(text.to_owned());
        Self::new(list.ok_or_else(fail)?).map_err(|_| fail())
    }

    /// Promised lateness at a rate, in nanoseconds: between two rates that were measured the worse
    /// of both, below the lowest one the same as there, above the highest one none.
    #[must_use]
    pub fn at(&self, rate_pps: f64) -> Option<u64> {
        let near = |&&(rate, _): &&(u32, u64)| {
            (f64::from(rate) - rate_pps).abs() <= NEAR * f64::from(rate)
        };
        if let Some((_, late_ns)) = self.list.iter().find(near) {
            return Some(*late_ns);
        }
        let above = self.list.iter().position(|(rate, _)| f64::from(*rate) > rate_pps)?;
        let around = &self.list[above.saturating_sub(1)..=above];
        around.iter().map(|(_, late_ns)| *late_ns).max()
    }
}

impl std::fmt::Display for Promise {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (i, (rate, late)) in self.list.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{rate}:{late}")?;
        }
        Ok(())
    }
}
