//! Conditions for flows to decode.

use itg_stats::filter::{Attributes, Filter, FilterError};
use proptest::prelude::*;

const FLOW: Attributes<'_> = Attributes {
    flow: 7,
    proto: "udp",
    src: "10.0.0.1:4000",
    dst: "[::1]:8999",
    name: "call",
    profile: "voip g711",
    side: "receiver",
    run: "c0ffee",
};

#[test]
fn expressions() {
    for (text, want) in [
        ("flow == 7", Ok(true)),
        ("flow!=7", Ok(false)),
        ("flow >= 3 && flow < 8", Ok(true)),
        ("flow > 7 || proto == udp", Ok(true)),
        ("proto == tcp && flow == 7 || side == receiver", Ok(true)),
        ("proto == tcp && (flow == 7 || side == receiver)", Ok(false)),
        ("!(proto == tcp)", Ok(true)),
        ("!proto == udp", Ok(false)),
        ("src ~ 10.0.0.1: && dst ~ [::1]", Ok(true)),
        ("profile == 'voip g711'", Ok(true)),
        ("profile == \"voip\"", Ok(false)),
        ("run == c0ffee", Ok(true)),
        ("  ( ( flow==7 ) ) ", Ok(true)),
        (
            "",
            Err(
                "filter ``: expected flow, name, proto, src, dst, profile, side or run at `the end`",
            ),
        ),
        ("flow", Err("filter `flow`: expected ==, !=, <, <=, >, >= or ~ at `the end`")),
        ("flow == x", Err("filter `flow == x`: expected a number at `x`")),
        (
            "flow ~ 1",
            Err("filter `flow ~ 1`: expected ==, !=, <, <=, > or >= behind `flow` at `~`"),
        ),
        (
            "port == 1",
            Err(
                "filter `port == 1`: expected flow, name, proto, src, dst, profile, side or run at `port == 1`",
            ),
        ),
        ("proto ==", Err("filter `proto ==`: expected a value at `the end`")),
        ("(flow == 1", Err("filter `(flow == 1`: expected a closing parenthesis at `the end`")),
        ("src == 'a", Err("filter `src == 'a`: expected a closing quote at `'a`")),
        (
            "flow == 1 proto == udp",
            Err("filter `flow == 1 proto == udp`: expected &&, || or the end at `proto == udp`"),
        ),
    ] {
        let got = text.parse::<Filter>().map(|filter| filter.matches(&FLOW));
        assert_eq!(got.map_err(|e| e.to_string()), want.map_err(str::to_owned), "{text}");
    }
    let deep = "!".repeat(100_000);
    assert!(matches!(deep.parse::<Filter>(), Err(FilterError::Deep { .. })));
}

proptest! {
    #[test]
    fn any_text_is_taken_or_refused(text in "[a-z()!&|=<>~'\" 0-9]{0,60}") {
        if let Ok(filter) = text.parse::<Filter>() {
            let _either = filter.matches(&FLOW);
            prop_assert_eq!(filter.to_string(), text);
        }
    }
}
