//! Offers to take more than version 1 of the protocol has: names behind the version of the program in a greeting.
//!
//! They stand where Semantic Versioning (2.0.0, section 10) puts build metadata, `itg-send 0.1.0+measures`: peers
//! of before read a version and nothing else. Who says more than version 1 has says it only to a peer that offers to
//! take it.

/// The sender takes [`Message::FlowMeasured`](crate::Message::FlowMeasured).
pub(crate) const MEASURES: &str = "measures";
/// The receiver takes [`Message::Turn`](crate::Message::Turn).
pub(crate) const TURNS: &str = "turns";

/// The peer takes what stands behind a message ([`more`](crate::more)).
pub(crate) const MORE: &str = "more";

/// The program of a greeting, with what it takes.
pub(crate) fn with(program: &str, offer: &str) -> String {
    let mark = if program.contains('+') { '.' } else { '+' };
    format!("{program}{mark}{offer}")
}

/// The same with several.
pub(crate) fn with_all(program: &str, offers: &[&str]) -> String {
    offers.iter().fold(program.to_owned(), |program, offer| with(&program, offer))
}

/// Returns true if a greeting with this program offers it.
pub(crate) fn has(program: &str, offer: &str) -> bool {
    program.rsplit_once('+').is_some_and(|(_, offers)| offers.split('.').any(|name| name == offer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_stand_behind_the_version() {
        for (program, want) in [
            ("itg-send 0.1.0", false),
            ("itg-send 0.1.0+measures", true),
            ("itg-send 0.1.0+abc.measures.x", true),
            ("itg-send 0.1.0+measuresx", false),
            ("measures", false),
            ("", false),
        ] {
            assert_eq!(has(program, MEASURES), want, "{program}");
            assert!(has(&with(program, MEASURES), MEASURES), "{program}");
        }
        assert_eq!(with("itg-send 0.1.0", MEASURES), "itg-send 0.1.0+measures");
        assert_eq!(with("itg-send 0.1.0+abc", MEASURES), "itg-send 0.1.0+abc.measures");
    }
}
