//! Rules of both codecs, and bytes as tests write them.

/// Bytes from hexadecimal digits and 'quoted texts', with spaces between them.
pub(crate) fn bytes(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (i, part) in text.split('\'').enumerate() {
        if i % 2 == 1 {
            bytes.extend(part.bytes());
            continue;
        }
        for word in part.split_whitespace() {
            let digit = |at| u8::from_str_radix(&word[at..at + 2], 16).expect("hexadecimal");
            bytes.extend((0..word.len()).step_by(2).map(digit));
        }
    }
    bytes
}

/// Properties of `encode` and `decode` for any bytes, and for any of these messages; the first argument is the number of
/// kinds, the second what a greeting starts with.
macro_rules! rules {
    ($kinds:literal, $greeting:expr, $any:ident) => {
        /// Checks that what decodes also encodes, and then decodes to the same again.
        fn is_stable(given: &[u8]) -> Result<(), TestCaseError> {
            if let Ok(message) = decode(given) {
                let again = encode(&message).expect("what came in a frame fits into a frame");
                prop_assert_eq!(decode(&again), Ok(message));
            }
            Ok(())
        }

        proptest! {
            #![proptest_config(ProptestConfig::with_cases(4096))]

            #[test]
            fn messages_survive_the_way(message in $any()) {
                let bytes = encode(&message).expect("fits");
                prop_assert_eq!(decode(&bytes), Ok(message));
            }

            #[test]
            fn random_bytes_never_panic(kind in 0u8..$kinds, rest in prop::collection::vec(any::<u8>(), 0..300)) {
                is_stable(&rest)?;
                is_stable(&[&[kind, 0, 0, 0], &rest[..]].concat())?;
                is_stable(&[&[kind, 0, 0, 0], &$greeting[..], &rest[..]].concat())?;
            }

            #[test]
            fn mutated_messages_never_panic(
                message in $any(),
                cut in any::<prop::sample::Index>(),
                changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
                tail in prop::collection::vec(any::<u8>(), 0..3),
            ) {
                let mut bytes = encode(&message).expect("fits");
                for (place, value) in changes {
                    let place = place.index(bytes.len());
                    bytes[place] = value;
                }
                is_stable(&bytes)?;
                bytes.truncate(cut.index(bytes.len()));
                is_stable(&bytes)?;
                bytes.extend(tail);
                is_stable(&bytes)?;
            }

            #[test]
            fn each_shorter_message_is_refused(message in $any()) {
                let bytes = encode(&message).expect("fits");
                for len in 0..bytes.len() {
                    // But one that is whole without what stands behind it.
                    let whole = |shorter| encode(&shorter).is_ok_and(|again| again == bytes[..len]);
                    prop_assert!(!decode(&bytes[..len]).is_ok_and(|shorter| !whole(shorter)), "{} of {} bytes", len, bytes.len());
                }
            }
        }
    };
}

pub(crate) use rules;
