//! Any text as a filter of flows: it is refused with a sentence, or it is a filter whose text is the same
//! filter again, and which chooses as the expression in parentheses does, and not as its negation.
#![no_main]

use itg_stats::filter::{Attributes, Filter};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match text.parse::<Filter>() {
        Ok(filter) => {
            let again: Filter = filter.to_string().parse().expect("its own text is understood");
            let flows = [
                Attributes::default(),
                Attributes {
                    name: "n",
                    flow: 7,
                    proto: "udp",
                    src: "10.0.0.1:4000",
                    dst: "[::1]:8999",
                    profile: "voip",
                    side: "receiver",
                    run: "f00d",
                },
            ];
            // One level more may be one too many.
            let inside = format!("({text})").parse::<Filter>().ok();
            let other = format!("!({text})").parse::<Filter>().ok();
            for flow in &flows {
                let chosen = filter.matches(flow);
                assert_eq!(again.matches(flow), chosen);
                assert!(inside.as_ref().is_none_or(|filter| filter.matches(flow) == chosen));
                assert!(other.as_ref().is_none_or(|filter| filter.matches(flow) != chosen));
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
