//! Any text as an experiment file: no panic, and an error that says where.
#![no_main]

use itg_experiment::Experiment;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Err(error) = Experiment::parse(text, "fuzz.toml") {
        assert!(error.to_string().contains("fuzz.toml"), "{error}");
    }
});
