//! Log messages for tests: one of each kind with its bytes, and any at all.
#![allow(unreachable_pub, missing_docs, reason = "shared by several files of tests")]

use itg_session::logs::{LOG_MAGIC, LOG_VERSION, LogMessage, Registration, Role, Transport};
use proptest::prelude::*;

pub fn registration(key: u8) -> Registration {
    Registration {
        key: [key; 16],
        run: "voip".to_owned(),
        host: "a".to_owned(),
        program: "itg-send 0.1.0".to_owned(),
        role: Role::Sender,
        flows: 2,
        record_schema: 7,
        transport: Transport::Tcp,
        block_records: 40,
        block_bytes: 2048,
        clock_offset_ns: Some(-5),
        uncertainty_ns: None,
        next_block: 3,
    }
}

/// A message of each kind and its bytes, in hexadecimal digits and 'texts'.
pub fn examples() -> Vec<(LogMessage, &'static str)> {
    let (magic, version) = (LOG_MAGIC, LOG_VERSION);
    vec![
        (
            LogMessage::register(registration(0xab), None),
            "00000000 'ITGL' 0200 abababababababababababababababab 0400000000000000 'voip' \
             0100000000000000 'a' 0e00000000000000 'itg-send 0.1.0' 00000000 02000000 \
             0700000000000000 00000000 28000000 00080000 01 fbffffffffffffff 00 03000000 00",
        ),
        (
            LogMessage::register(
                Registration {
                    role: Role::Receiver,
                    transport: Transport::Udp,
                    clock_offset_ns: None,
                    uncertainty_ns: Some(9),
                    ..registration(1)
                },
                Some([0xcd; 32]),
            ),
            "00000000 'ITGL' 0200 01010101010101010101010101010101 0400000000000000 'voip' \
             0100000000000000 'a' 0e00000000000000 'itg-send 0.1.0' 01000000 02000000 \
             0700000000000000 01000000 28000000 00080000 00 01 0900000000000000 03000000 01 \
             cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
        ),
        (
            LogMessage::Challenge { magic, version, nonce: [0xee; 32] },
            "01000000 'ITGL' 0200 \
             eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee",
        ),
        (
            LogMessage::Registered {
                magic,
                version,
                log_id: 1,
                data_port: 9003,
                token: 0x0102,
                credit: 4,
                stored_to: 3,
            },
            "02000000 'ITGL' 0200 01000000 2b23 0201000000000000 04000000 03000000",
        ),
        (
            LogMessage::Bind { magic, version, log_id: 1, token: 0x0102 },
            "03000000 'ITGL' 0200 01000000 0201000000000000",
        ),
        (
            LogMessage::Refused { reason: "full".to_owned(), again: true },
            "04000000 0400000000000000 'full' 01",
        ),
        (LogMessage::Bound, "05000000"),
        (LogMessage::Ack { stored_to: 5, credit: 8 }, "06000000 05000000 08000000"),
        (
            LogMessage::Leave {
                blocks: 9,
                records: 320,
                dropped_blocks: 1,
                dropped_records: 40,
                per_flow: vec![(0, 160), (1, 200)],
                flows_left_out: 0,
            },
            "07000000 09000000 4001000000000000 0100000000000000 2800000000000000 \
             0200000000000000 00000000 a000000000000000 01000000 c800000000000000 00000000",
        ),
        (
            LogMessage::Left {
                blocks: 8,
                records: 320,
                missing: vec![(4, 4)],
                missing_left_out: 2,
                conflicting_blocks: 1,
                conflicting_records: 40,
            },
            "08000000 0800000000000000 4001000000000000 0100000000000000 04000000 04000000 \
             0200000000000000 0100000000000000 2800000000000000",
        ),
        (LogMessage::Ping { n: 1 }, "09000000 0100000000000000"),
        (LogMessage::Pong { n: 1 }, "0a000000 0100000000000000"),
    ]
}

prop_compose! {
    fn any_registration()(
        key in 0u8..4,
        run in prop_oneof![Just("run".to_owned()), ".{0,20}", "x{250,260}"],
        host in ".{0,8}",
        flows in any::<u32>(),
        record_schema in any::<u64>(),
        udp in any::<bool>(),
        block_records in prop_oneof![Just(40u32), 0u32..60, any::<u32>()],
        block_bytes in prop_oneof![Just(2048u32), 0u32..5000, any::<u32>()],
        clock_offset_ns in any::<Option<i64>>(),
        uncertainty_ns in any::<Option<u64>>(),
        next_block in prop_oneof![Just(0u32), 0u32..20, any::<u32>()],
    ) -> Registration {
        Registration {
            key: [key; 16],
            run,
            host,
            program: "p".to_owned(),
            role: if flows % 2 == 0 { Role::Sender } else { Role::Receiver },
            flows,
            record_schema,
            transport: if udp { Transport::Udp } else { Transport::Tcp },
            block_records,
            block_bytes,
            clock_offset_ns,
            uncertainty_ns,
            next_block,
        }
    }
}

fn any_number() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0u32..20, 1 => any::<u32>()]
}

pub fn any_log_message() -> impl Strategy<Value = LogMessage> {
    let (magic, version) = (LOG_MAGIC, LOG_VERSION);
    let flow = (any::<u32>(), any::<u64>());
    let range = (any_number(), any_number());
    prop_oneof![
        (any_registration(), any::<Option<[u8; 32]>>())
            .prop_map(|(who, proof)| LogMessage::register(who, proof)),
        any::<[u8; 32]>().prop_map(move |nonce| LogMessage::Challenge { magic, version, nonce }),
        (1u32..3, prop_oneof![Just(0u16), Just(9003)], any::<u64>(), any_number(), any_number())
            .prop_map(move |(log_id, data_port, token, credit, stored_to)| {
                let (magic, version) = (LOG_MAGIC, LOG_VERSION);
                LogMessage::Registered {
                    magic,
                    version,
                    log_id,
                    data_port,
                    token,
                    credit,
                    stored_to,
                }
            }),
        (any_number(), any::<u64>()).prop_map(move |(log_id, token)| LogMessage::Bind {
            magic,
            version,
            log_id,
            token
        }),
        (".{0,20}", any::<bool>())
            .prop_map(|(reason, again)| LogMessage::Refused { reason, again }),
        Just(LogMessage::Bound),
        (any_number(), any_number())
            .prop_map(|(stored_to, credit)| LogMessage::Ack { stored_to, credit }),
        (any_number(), any::<u64>(), any::<u64>(), prop::collection::vec(flow, 0..4)).prop_map(
            |(blocks, records, dropped, per_flow)| LogMessage::Leave {
                blocks,
                records,
                dropped_blocks: dropped,
                dropped_records: dropped,
                per_flow,
                flows_left_out: blocks,
            }
        ),
        (any::<u64>(), any::<u64>(), prop::collection::vec(range, 0..4), any::<u64>()).prop_map(
            |(blocks, records, missing, missing_left_out)| LogMessage::Left {
                blocks,
                records,
                missing,
                missing_left_out,
                conflicting_blocks: blocks,
                conflicting_records: records,
            }
        ),
        any::<u64>().prop_map(|n| LogMessage::Ping { n }),
        any::<u64>().prop_map(|n| LogMessage::Pong { n }),
    ]
}
