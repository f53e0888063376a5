//! The bytes of messages: golden ones of each kind, and whatever else may arrive.
#![allow(missing_docs, reason = "a test program")]

use crate::codecs::{self, bytes};
use crate::messages::{any_message, examples};
use crate::samples::counts;
use itg_core::flow::FlowSpec;
use itg_session::{
    ArrivalAccount, ClockReading, CodecError, FlowArrivals, FlowCounts, MAX_MESSAGE, Message,
    MoreCounts, decode, encode,
};
use proptest::prelude::*;

#[test]
fn the_bytes_of_each_kind_are_golden() {
    let examples = examples();
    for (message, golden) in &examples {
        let golden = bytes(golden);
        let got = encode(message).expect("fits");
        assert_eq!(got, golden, "{}: {}", message.name(), got.escape_ascii());
        assert_eq!(decode(&golden).as_ref(), Ok(message), "{}", message.name());
    }
    let names: std::collections::BTreeSet<_> = examples.iter().map(|(m, _)| m.name()).collect();
    assert_eq!(names.len(), 19, "a kind without example: {names:?}");
}

#[test]
fn bytes_that_are_no_message_are_refused_in_words() {
    for (given, want) in [
        ("", "a message of 0 bytes cannot be understood: it ends too early"),
        ("0b", "a message of 1 bytes cannot be understood: it ends too early"),
        (
            "0b000000 00",
            "a message of 5 bytes cannot be understood: 1 bytes follow its end: it ends too early",
        ),
        (
            // the text of Refuse is said to be longer than any message
            "02000000 ffffffffffffffff 'no'",
            "a message of 14 bytes cannot be understood: it announces more than a message may hold",
        ),
        (
            "02000000 0200000000000000 ff fe",
            "a message of 14 bytes cannot be understood: a text in it is not UTF-8",
        ),
        (
            "13000000",
            "a message of 4 bytes cannot be understood: invalid value: integer `19`, expected \
             variant index 0 <= i < 19",
        ),
        (
            "0c000000 02",
            "a message of 5 bytes cannot be understood: 2 stands where only 0 or 1 may stand",
        ),
        (
            "00000000 'SSH-2.0-OpenSSH'",
            "a greeting starts with \"SSH-\" instead of \"ITGS\": the peer does not speak ITG's \
             signalling protocol (check host and port)",
        ),
        (
            "01000000 'ITGS' 0200 'whatever version 2 says'",
            "the peer speaks version 2 of the signalling protocol, this program speaks version 1: \
             use the same release of ITG on both sides",
        ),
        (
            "00000000 'ITGS' ffff",
            "the peer speaks version 65535 of the signalling protocol, this program speaks version \
             1: use the same release of ITG on both sides",
        ),
    ] {
        let error = decode(&bytes(given)).expect_err("no message");
        assert_eq!(error.to_string(), want, "{given:?}");
    }
    let error = decode(&vec![0; MAX_MESSAGE + 1]).expect_err("too long");
    assert_eq!(
        error.to_string(),
        "a message was announced that is longer than any of its kind: the peer does not speak ITG's \
         signalling protocol (check host and port)"
    );
}

#[test]
fn messages_that_do_not_fit_are_not_sent() {
    let refuse = |len| Message::Refuse { reason: "x".repeat(len) };
    let largest = encode(&refuse(MAX_MESSAGE - 12)).expect("fits");
    assert_eq!(largest.len(), MAX_MESSAGE);
    assert_eq!(decode(&largest), Ok(refuse(MAX_MESSAGE - 12)));
    let error = encode(&refuse(MAX_MESSAGE - 11)).expect_err("one byte too many");
    assert_eq!(error, CodecError::DoesNotFit { name: "Refuse", bytes: MAX_MESSAGE + 1 });
    assert_eq!(
        error.to_string(),
        "the message Refuse needs 1048577 bytes, more than the 1048576 that a message may have"
    );
}

#[test]
fn laws_cannot_exhaust_the_stack_or_the_memory() {
    let nested = "trunc(".repeat(170_000);
    let listed = format!("discrete({}1ms:1)", "1ms:1,".repeat(170_000));
    let mixed = format!("mix({}1:exp(1ms))", "1:exp(1ms),".repeat(90_000));
    for text in [nested, listed, mixed] {
        let mut open = bytes("03000000 0100000000000000 07000000 00000000 00");
        open.extend((text.len() as u64).to_le_bytes());
        open.extend(text.bytes());
        assert!(open.len() <= MAX_MESSAGE);
        let error = decode(&open).expect_err("no law").to_string();
        assert!(error.len() < 1000, "a short answer to {}...: {error}", &text[..20]);
    }
}

codecs::rules!(17, b"ITGS\x01\0", any_message);

/// What version 1 does not have stands behind a message: a field that was added to a description is understood by those
/// who know it, and left out by those who do not.
#[test]
fn what_is_new_stands_behind_a_message_and_is_ignored_where_it_is_not_known() {
    let plain = Message::Open { flows: vec![FlowSpec::new(7), FlowSpec::new(8)] };
    let asked =
        Message::Open { flows: vec![FlowSpec::new(7), FlowSpec::new(8).drain_ns(5_000_000_000)] };
    let before = encode(&plain).expect("fits");
    let bytes = encode(&asked).expect("fits");
    // The bytes of version 1, then a text with its length.
    let text = r#"{"handling":{"1":{"drain_ns":5000000000}}}"#;
    let behind = |text: &str| {
        let len = u64::try_from(text.len()).expect("short").to_le_bytes();
        [&before[..], &len, text.as_bytes()].concat()
    };
    assert_eq!(bytes, behind(text));
    assert_eq!(decode(&bytes), Ok(asked.clone()));
    for (text, want) in [
        ("{}", Some(&plain)),
        (r#"{"handling":{"1":{"drain_ns":5000000000,"later":1}},"news":[1]}"#, Some(&asked)),
        (r#"{"handling":{"2":{"drain_ns":5000000000}}}"#, Some(&plain)),
        (r#"{"handling":{"1":{"drain_ns":"soon"}}}"#, None),
        ("[", None),
        ("", None),
    ] {
        assert_eq!(decode(&behind(text)).ok().as_ref(), want, "{text}");
    }
    // Settings that change packets go the same way, to who is asked to send.
    let mut shaped = FlowSpec::new(8);
    shaped.shape.mss = Some(500);
    let shaped = Message::Turn { flows: vec![FlowSpec::new(7), shaped] };
    let bytes = encode(&shaped).expect("fits");
    assert!(bytes.ends_with(br#"{"shape":{"1":{"mss":500}}}"#), "{bytes:?}");
    assert_eq!(decode(&bytes), Ok(shaped));
    // A message of another kind has nothing to put it into.
    let bye =
        [encode(&Message::Bye).expect("fits"), behind("{}")[before.len()..].to_vec()].concat();
    assert_eq!(decode(&bye), Ok(Message::Bye));
}

/// Counts that receivers of before do not tell stand behind the others.
#[test]
fn more_counts_stand_behind_the_counts() {
    let counted = |more| Message::FlowCounted(FlowCounts { more, ..counts(7) });
    let (plain, all) = (
        counted(MoreCounts::default()),
        counted(MoreCounts { missing: Some(3), ..MoreCounts::default() }),
    );
    let (before, bytes) = (encode(&plain).expect("fits"), encode(&all).expect("fits"));
    assert_eq!((&bytes[..before.len()], decode(&bytes)), (&before[..], Ok(all)));
    assert_eq!(&bytes[before.len() + 8..], br#"{"counted":{"missing":3}}"#);
    assert_eq!(decode(&before), Ok(plain));
}

/// The account of what has arrived stands there, too: of all flows of a message, or of none.
#[test]
fn accounts_of_arrivals_stand_behind_a_pong() {
    let account =
        ArrivalAccount { packets: 9, bytes: 900, missing: 1, reordered: 2, first_unix_ns: 3 };
    let pong = |accounts: [Option<ArrivalAccount>; 2]| Message::Pong {
        n: 1,
        ping_sent: ClockReading::default(),
        received_unix_ns: 0,
        sent: ClockReading::default(),
        arrived: (1..)
            .zip(accounts)
            .map(|(flow, account)| FlowArrivals { flow, packets: 8, account })
            .collect(),
    };
    let plain = encode(&pong([None; 2])).expect("fits");
    assert_eq!(encode(&pong([Some(account), None])).as_ref(), Ok(&plain), "of one alone");
    let both = pong([Some(account); 2]);
    let bytes = encode(&both).expect("fits");
    assert_eq!((&bytes[..plain.len()], decode(&bytes)), (&plain[..], Ok(both)));
    let behind = |text: &str| {
        let len = u64::try_from(text.len()).expect("short").to_le_bytes();
        [&plain[..], &len, text.as_bytes()].concat()
    };
    let told = r#"{"packets":9,"bytes":900,"missing":1,"reordered":2,"first_unix_ns":3}"#;
    assert_eq!(bytes, behind(&format!(r#"{{"arrived":[{told},{told}]}}"#)));
    for (text, want) in [
        (format!(r#"{{"arrived":[{told}]}}"#), Some(pong([None; 2]))),
        (format!(r#"{{"arrived":[{told},{told},{told}]}}"#), Some(pong([None; 2]))),
        (r#"{"arrived":[{"packets":1}]}"#.to_owned(), None),
        (r#"{"arrived":7}"#.to_owned(), None),
    ] {
        assert_eq!(decode(&behind(&text)).ok(), want, "{text}");
    }
}
