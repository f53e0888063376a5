//! Any text as a gate: it is refused with a sentence that names what was read, or it is a gate whose
//! text is the same gate again and which judges an empty report without an answer.
#![no_main]

use itg_stats::gate::Gate;
use itg_stats::{Analysis, Options};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    match Gate::parse(text) {
        Ok(gate) => {
            let again = Gate::parse(&gate.to_string()).expect("its own text is understood");
            assert_eq!(again, gate);
            let outcome = gate.judge(&Analysis::new(Options::default()).finish());
            assert!(!outcome.to_string().is_empty());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
