//! Lines on stdout.

use std::fmt::{self, Display};

use serde::Serialize;

/// Statement about results, and whether they agree with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// True if results agree with it.
    pub holds: bool,
    /// The statement.
    pub what: String,
}

const HOLDS: &str = "HOLDS    ";
const DIFFERS: &str = "DIFFERS  ";

impl Claim {
    /// A statement that holds or does not.
    #[must_use]
    pub fn new(holds: bool, what: &str) -> Self {
        Self { holds, what: what.to_owned() }
    }

    /// The claim of a line, if it is one.
    #[must_use]
    pub fn read(line: &str) -> Option<Self> {
        let of = |start, holds| Some(Self::new(holds, line.strip_prefix(start)?));
        of(HOLDS, true).or_else(|| of(DIFFERS, false))
    }
}

impl Display for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.holds { HOLDS } else { DIFFERS }, self.what)
    }
}

/// Writes a line (or several) to stdout; a reader that has gone is no failure.
pub fn print(text: impl Display) {
    use std::io::Write as _;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_is_read_as_it_was_written() {
        for claim in [Claim::new(true, "x >= 2: 3"), Claim::new(false, "HOLDS    or not")] {
            assert_eq!(Claim::read(&claim.to_string()), Some(claim));
        }
        for line in ["", "HOLDS", "| HOLDS    a cell |", "it HOLDS    nothing"] {
            assert_eq!(Claim::read(line), None, "{line:?}");
        }
    }
}
