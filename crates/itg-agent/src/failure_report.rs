//! Signs that a member knows of why another one has left: for people, not for the protocol.

use std::collections::BTreeSet;

/// A sign that a member has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sign {
    /// This slot has reported it.
    Reported(u32),
    /// Its connection to this member has ended.
    Cut,
    /// It was silent for longer than usual.
    Silent,
}

/// Signs known of one member: reports go to the root alone, so signs of this member's own stand in for them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Signs {
    /// The first report.
    reported: Option<(u64, Sign)>,
    /// The first other sign.
    own: Option<(u64, Sign)>,
}

impl Signs {
    /// Takes a sign that was seen at this time.
    pub(crate) fn note(&mut self, at_ns: u64, sign: Sign) {
        let place =
            if matches!(sign, Sign::Reported(_)) { &mut self.reported } else { &mut self.own };
        place.get_or_insert((at_ns, sign));
    }

    /// It was heard: what this member thought itself was wrong.
    pub(crate) fn heard(&mut self) {
        self.own = None;
    }
}

/// The first of the signs of several members: instant, slot, sign. A report is better than another sign.
pub(crate) fn first(
    failure_report: impl Iterator<Item = (u32, Signs)>,
) -> Option<(u64, u32, Sign)> {
    let all: Vec<(u32, Signs)> = failure_report.collect();
    let of = |which: fn(&Signs) -> Option<(u64, Sign)>| {
        let found = all.iter().filter_map(|(slot, failure_report)| {
            which(failure_report).map(|(at, s)| (at, *slot, s))
        });
        found.min()
    };
    of(|failure_report| failure_report.reported).or_else(|| of(|failure_report| failure_report.own))
}

/// Cause of a view in words: members that left, members that came, and the first sign that is known here.
pub(crate) fn cause(
    left: &BTreeSet<u32>,
    came: &BTreeSet<u32>,
    sign: Option<(u32, Sign)>,
    name: impl Fn(u32) -> String,
) -> String {
    let names =
        |slots: &BTreeSet<u32>| slots.iter().map(|slot| name(*slot)).collect::<Vec<_>>().join(", ");
    let mut causes = Vec::new();
    match sign {
        Some((slot, Sign::Reported(by))) => {
            causes.push(format!("{} reported by {}", name(slot), name(by)));
        }
        Some((slot, Sign::Cut)) => {
            causes.push(format!("the connection of {} to the console ended", name(slot)));
        }
        Some((slot, Sign::Silent)) => causes.push(format!("{} fell silent", name(slot))),
        None if !left.is_empty() => {
            causes.push(format!("{} excluded; who reported it is not known here", names(left)));
        }
        None => {}
    }
    if !came.is_empty() {
        causes.push(format!("{} asked to join", names(came)));
    }
    if causes.is_empty() {
        causes.push("a node restarted".to_owned());
    }
    causes.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(failure_report: &[(u64, Sign)]) -> Signs {
        let mut known = Signs::default();
        failure_report.iter().for_each(|(at, sign)| known.note(*at, *sign));
        known
    }

    #[test]
    fn the_first_report_counts_and_without_one_the_first_other_sign() {
        let cut = (5, Sign::Cut);
        for (a, b, want) in [
            (&[][..], &[][..], None),
            (&[cut], &[], Some((5, 0, Sign::Cut))),
            (&[cut], &[(4, Sign::Silent)], Some((4, 1, Sign::Silent))),
            (&[cut, (7, Sign::Reported(2))], &[], Some((7, 0, Sign::Reported(2)))),
            (
                &[cut],
                &[(9, Sign::Reported(2)), (8, Sign::Reported(0))],
                Some((9, 1, Sign::Reported(2))),
            ),
            (&[(6, Sign::Reported(1))], &[(6, Sign::Reported(0))], Some((6, 0, Sign::Reported(1)))),
        ] {
            let got = first([(0, known(a)), (1, known(b))].into_iter());
            assert_eq!(got, want, "{a:?} {b:?}");
        }
    }

    #[test]
    fn a_suspicion_that_is_taken_back_is_no_sign() {
        let mut failure_report = known(&[(1, Sign::Silent)]);
        failure_report.heard();
        failure_report.note(5, Sign::Cut);
        assert_eq!(first([(0, failure_report)].into_iter()), Some((5, 0, Sign::Cut)));
        let mut failure_report = known(&[(1, Sign::Silent), (2, Sign::Reported(3))]);
        failure_report.heard();
        assert_eq!(first([(0, failure_report)].into_iter()), Some((2, 0, Sign::Reported(3))));
    }

    #[test]
    fn no_view_is_without_a_cause() {
        let name = |slot: u32| ["a", "b", "c", "console"][slot as usize].to_owned();
        for (left, came, sign, want) in [
            (&[1][..], &[][..], Some((1, Sign::Reported(0))), "b reported by a"),
            (&[1], &[], Some((1, Sign::Cut)), "the connection of b to the console ended"),
            (&[1], &[], Some((1, Sign::Silent)), "b fell silent"),
            (&[1, 2], &[], None, "b, c excluded; who reported it is not known here"),
            (&[], &[1, 2], None, "b, c asked to join"),
            (&[1], &[2], Some((1, Sign::Reported(3))), "b reported by console; c asked to join"),
            (&[], &[], None, "a node restarted"),
        ] {
            let set = |slots: &[u32]| slots.iter().copied().collect::<BTreeSet<u32>>();
            assert_eq!(cause(&set(left), &set(came), sign, name), want);
        }
    }
}
