//! Promises of `itg-send doctor`: their texts, and what they hold at a rate.
#![allow(missing_docs, reason = "tests")]

use itg_stats::promise::Promise;

fn promise() -> Promise {
    Promise::parse("100:5000,1000:3000,50000:13000").expect("a promise")
}

#[test]
fn texts_are_promises_or_refused() {
    assert_eq!(promise().to_string(), "100:5000,1000:3000,50000:13000");
    for bad in ["", "100", "100:x", "x:5", "100:5,100:6", "200:5,100:6", "0:5", "100:5,", "1:-1"] {
        let error = Promise::parse(bad).expect_err(bad).to_string();
        assert!(error.starts_with(&format!("`{bad}` is no promise")), "{error}");
    }
}

#[test]
fn between_two_rates_the_worse_holds() {
    for (rate, want) in [
        (10.0, Some(5_000)),
        (100.0, Some(5_000)),
        (500.0, Some(5_000)),
        (990.0, Some(3_000)),
        (1_015.0, Some(3_000)),
        (20_000.0, Some(13_000)),
        (50_900.0, Some(13_000)),
        (51_100.0, None),
    ] {
        assert_eq!(promise().at(rate), want, "{rate} packets/s");
    }
}
