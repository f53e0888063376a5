//! The bytes of log messages: golden ones of each kind, and whatever else may arrive.
#![allow(missing_docs, reason = "a test program")]

use std::collections::BTreeSet;

use crate::codecs::{self, bytes};
use crate::log_messages::{any_log_message, examples, registration};
use itg_session::logs::{
    LEAVE_FLOWS, LEFT_RANGES, LogCodecError, LogMessage, MAX_LOG_MESSAGE, MAX_NAME, MAX_REASON,
    decode, encode,
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
    let names: BTreeSet<_> = examples.iter().map(|(message, _)| message.name()).collect();
    assert_eq!(names.len(), 11, "a kind without example: {names:?}");
}

#[test]
fn bytes_that_are_no_message_are_refused_in_words() {
    for (given, want) in [
        ("", "a log message of 0 bytes cannot be understood: it ends too early"),
        ("05000000 00", "a log message of 5 bytes cannot be understood: 1 bytes follow its end"),
        (
            "04000000 ffffffffffffffff 'no' 01",
            "a log message of 15 bytes cannot be understood: it announces more than a message may \
             hold",
        ),
        (
            "04000000 0200000000000000 'no' 02",
            "a log message of 15 bytes cannot be understood: 2 stands where only 0 or 1 may stand",
        ),
        (
            "0b000000",
            "a log message of 4 bytes cannot be understood: invalid value: integer `11`, expected \
             variant index 0 <= i < 11",
        ),
        (
            "00000000 'GET / HTTP/1.1'",
            "a greeting starts with \"GET \" instead of \"ITGL\": the peer does not speak ITG's log \
             protocol (check host and port)",
        ),
        (
            "02000000 'ITGS' 0100",
            "a greeting starts with \"ITGS\" instead of \"ITGL\": the peer does not speak ITG's log \
             protocol (check host and port)",
        ),
        (
            "03000000 'ITGL' 0300 'whatever version 3 says'",
            "the peer speaks version 3 of the log protocol, this program speaks version 2: use the \
             same release of ITG on both sides",
        ),
    ] {
        let error = decode(&bytes(given)).expect_err("no message");
        assert_eq!(error.to_string(), want, "{given:?}");
    }
    let error = decode(&vec![0; MAX_LOG_MESSAGE + 1]).expect_err("too long");
    assert_eq!(
        error.to_string(),
        "a message of more than 65536 bytes was announced: the peer does not speak ITG's log \
         protocol (check host and port)"
    );
    let reason = "x".repeat(MAX_LOG_MESSAGE);
    let error = encode(&LogMessage::Refused { reason, again: false }).expect_err("too long");
    assert_eq!(error, LogCodecError::DoesNotFit { name: "Refused", bytes: MAX_LOG_MESSAGE + 13 });
    assert_eq!(
        error.to_string(),
        "the log message Refused needs 65549 bytes, more than the 65536 that a message may have"
    );
}

/// The longest contents that the machines allow fit into a frame.
#[test]
fn the_largest_messages_fit() {
    let mut who = registration(1);
    (who.run, who.host, who.program) =
        ("x".repeat(MAX_NAME), "x".repeat(MAX_NAME), "x".repeat(MAX_NAME));
    for message in [
        LogMessage::register(who, Some([0; 32])),
        LogMessage::Refused { reason: "x".repeat(MAX_REASON), again: true },
        LogMessage::Leave {
            blocks: u32::MAX,
            records: u64::MAX,
            dropped_blocks: u64::MAX,
            dropped_records: u64::MAX,
            per_flow: vec![(u32::MAX, u64::MAX); LEAVE_FLOWS],
            flows_left_out: u32::MAX,
        },
        LogMessage::Left {
            blocks: u64::MAX,
            records: u64::MAX,
            missing: vec![(u32::MAX, u32::MAX); LEFT_RANGES],
            missing_left_out: u64::MAX,
            conflicting_blocks: u64::MAX,
            conflicting_records: u64::MAX,
        },
    ] {
        let bytes = encode(&message).expect("fits");
        assert_eq!(decode(&bytes), Ok(message));
    }
}

codecs::rules!(14, b"ITGL\x02\0", any_log_message);
