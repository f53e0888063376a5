//! Messages for tests: golden examples of each kind, and any message at all.
#![allow(unreachable_pub, missing_docs, reason = "shared by several files of tests")]

use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{FlowSpec, Late, Meter, OnOff, Payload, Proto, SocketOptions, Stop};
use itg_session::{
    ArrivalAccount, ClockReading, DelayMeasure, EndCause, FlowArrivals, FlowCounts, FlowMeasure,
    FlowTotals, LogSummary, MAGIC, Message, MoreCounts, OpenReply, OpenedFlow, ProbeStamps,
    VERSION,
};
use proptest::prelude::*;

/// A message of each kind and its bytes: hexadecimal digits and 'quoted texts'.
#[expect(clippy::too_many_lines, reason = "a table")]
pub fn examples() -> Vec<(Message, &'static str)> {
    let text = str::to_owned;
    vec![
        (
            Message::Hello {
                magic: MAGIC,
                version: VERSION,
                run: text("00112233445566778899aabbccddeeff"),
                seed: 42,
                program: text("itg-send 0.1.0"),
                host: text("a"),
                boot_id: text("b0"),
                flows: 3,
                recv_log: Some(text("r.itg")),
            },
            "00000000 'ITGS' 0100 2000000000000000 '00112233445566778899aabbccddeeff' \
             2a00000000000000 0e00000000000000 'itg-send 0.1.0' 0100000000000000 'a' \
             0200000000000000 'b0' 03000000 01 0500000000000000 'r.itg'",
        ),
        (
            Message::Welcome {
                magic: MAGIC,
                version: VERSION,
                program: text("itg-recv 0.1.0"),
                host: text("b"),
                boot_id: text("b1"),
                control_timeout_ns: 5_000_000_000,
            },
            "01000000 'ITGS' 0100 0e00000000000000 'itg-recv 0.1.0' 0100000000000000 'b' \
             0200000000000000 'b1' 00f2052a01000000",
        ),
        (Message::Refuse { reason: text("no") }, "02000000 0200000000000000 'no'"),
        (
            Message::Open { flows: vec![FlowSpec::new(7), every_field()] },
            "03000000 0200000000000000 \
             07000000 00000000 00 0d00000000000000 'constant(1ms)' 0d00000000000000 \
             'constant(512)' 00 0000000000000000 00 00 00 00000000 00000000 00000000 00 00 \
             00 00 00 00 00 00 00 00 00 \
             08000000 01000000 01 0200000000000000 'p1' 0900000000000000 'exp(10ms)' \
             1100000000000000 'uniform(500, 600)' 01 0c00000000000000 'constant(1s)' \
             0c00000000000000 'constant(2s)' 0500000000000000 01 0600000000000000 01 \
             0700000000000000 01 0800000000000000 01000000 01000000 0200000000000000 dead \
             01000000 01 09000000 01 0a000000 01 0900000000000000 '127.0.0.1' 01 2823 01 2723 01 \
             0200000000000000 'lo' 01 40 01 b8 01 01 0300000000000000 'bbr' \
             01 0b00000000000000",
        ),
        (
            Message::Opened {
                flows: vec![
                    OpenReply {
                        flow: 7,
                        result: Ok(OpenedFlow { flow: 7, handle: 0x0102_0304, port: 8999 }),
                    },
                    OpenReply { flow: 8, result: Err(text("in use")) },
                ],
            },
            "04000000 0200000000000000 07000000 00000000 07000000 04030201 2723 \
             08000000 01000000 0600000000000000 'in use'",
        ),
        (Message::Start { epoch_unix_ns: 0x0102_0304_0506_0708 }, "05000000 0807060504030201"),
        (Message::Started, "06000000"),
        (
            Message::FlowEnded(FlowTotals {
                flow: 7,
                packets: 1,
                bytes: 2,
                skipped: 3,
                failed: 4,
                next_seq: 5,
                reason: EndCause::Told(text("over")).into(),
            }),
            "07000000 07000000 0100000000000000 0200000000000000 0300000000000000 \
             0400000000000000 0500000000000000 0400000000000000 'over'",
        ),
        (
            Message::FlowCounted(FlowCounts {
                flow: 7,
                packets: 1,
                bytes: 2,
                unique: 3,
                socket_drops: Some(4),
                foreign: 5,
                log_lost_records: 6,
                more: Default::default(),
            }),
            "08000000 07000000 0100000000000000 0200000000000000 0300000000000000 \
             01 0400000000000000 0500000000000000 0600000000000000",
        ),
        (
            Message::Ping {
                n: 1,
                sent: ClockReading { unix_ns: 2, monotonic_ns: 3 },
                previous: None,
            },
            "09000000 0100000000000000 0200000000000000 0300000000000000 00",
        ),
        (
            Message::Ping {
                n: 1,
                sent: ClockReading { unix_ns: 2, monotonic_ns: 3 },
                previous: Some(ProbeStamps {
                    sent: ClockReading { unix_ns: 4, monotonic_ns: 5 },
                    received_unix_ns: 6,
                    replied: ClockReading { unix_ns: 7, monotonic_ns: 8 },
                    arrived_unix_ns: 9,
                }),
            },
            "09000000 0100000000000000 0200000000000000 0300000000000000 01 \
             0400000000000000 0500000000000000 0600000000000000 0700000000000000 \
             0800000000000000 0900000000000000",
        ),
        (
            Message::Pong {
                n: 1,
                ping_sent: ClockReading { unix_ns: 2, monotonic_ns: 7 },
                received_unix_ns: 3,
                sent: ClockReading { unix_ns: 4, monotonic_ns: 8 },
                arrived: vec![FlowArrivals { flow: 5, packets: 6, account: None }],
            },
            "0a000000 0100000000000000 0200000000000000 0700000000000000 0300000000000000 \
             0400000000000000 0800000000000000 0100000000000000 05000000 0600000000000000",
        ),
        (Message::Bye, "0b000000"),
        (Message::ByeAck { log: None }, "0c000000 00"),
        (
            Message::Prove { nonce: [1; 32] },
            "0d000000 0101010101010101010101010101010101010101010101010101010101010101",
        ),
        (
            Message::Proved { nonce: [1; 32], proof: [2; 32] },
            "0e000000 0101010101010101010101010101010101010101010101010101010101010101 \
             0202020202020202020202020202020202020202020202020202020202020202",
        ),
        (Message::Turn { flows: Vec::new() }, "10000000 0000000000000000"),
        (
            Message::Turned { notices: vec![text("held to 8bps")] },
            "11000000 0100000000000000 0c00000000000000 'held to 8bps'",
        ),
        (Message::Halt { reason: text("over") }, "12000000 0400000000000000 'over'"),
        (
            Message::FlowMeasured(Box::new(FlowMeasure {
                flow: 7,
                first_unix_ns: 1,
                last_unix_ns: 2,
                reordered: 3,
                delays: None,
            })),
            "0f000000 07000000 0100000000000000 0200000000000000 0300000000000000 00",
        ),
        (
            Message::FlowMeasured(Box::new(FlowMeasure {
                flow: 7,
                first_unix_ns: 1,
                last_unix_ns: 2,
                reordered: 3,
                delays: Some(DelayMeasure {
                    count: 4,
                    base_ns: -1,
                    min_ns: -2,
                    max_ns: 5,
                    mean_ns: 6,
                    stddev_ns: 7,
                    jitter_ns: 8,
                    rfc3550_ns: 9,
                    above: vec![(0x0102, 0x0304_0506)],
                    below: vec![(1, 2), (3, 4)],
                    steps: Vec::new(),
                }),
            })),
            "0f000000 07000000 0100000000000000 0200000000000000 0300000000000000 01 \
             0400000000000000 ffffffffffffffff feffffffffffffff 0500000000000000 \
             0600000000000000 0700000000000000 0800000000000000 0900000000000000 \
             0100000000000000 0201 06050403 \
             0200000000000000 0100 02000000 0300 04000000 0000000000000000",
        ),
        (
            Message::ByeAck {
                log: Some(LogSummary {
                    file: text("r.itg"),
                    records: 1,
                    lost_records: 2,
                    error: Some(text("full")),
                }),
            },
            "0c000000 01 0500000000000000 'r.itg' 0100000000000000 0200000000000000 \
             01 0400000000000000 'full'",
        ),
    ]
}

/// A flow with something in every field.
fn every_field() -> FlowSpec {
    let time = |text| Distribution::parse(text, Unit::Time).expect("a distribution");
    FlowSpec::new(8)
        .proto(Proto::Tcp)
        .profile("p1".to_owned())
        .idt(time("exp(10ms)"))
        .size(Distribution::parse("uniform(500,600)", Unit::Size).expect("a distribution"))
        .on_off(OnOff { on: time("constant(1s)"), off: time("constant(2s)") })
        .start_ns(5)
        .stop(Stop { duration_ns: Some(6), packets: Some(7), bytes: Some(8) })
        .meter(Meter::Rtt)
        .payload(Payload::Pattern(vec![0xde, 0xad]))
        .late(Late::Drop)
        .max_burst(9)
        .burst(10)
        .socket(SocketOptions {
            source: Some("127.0.0.1".to_owned()),
            source_port: Some(9000),
            dest_port: Some(8999),
            interface: Some("lo".to_owned()),
            ttl: Some(64),
            tos: Some(0xb8),
            nagle: true,
            congestion: Some("bbr".to_owned()),
            pacing_rate: Some(11),
        })
}

fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![Just(String::new()), "[a-z0-9 ]{1,20}", "\\PC{0,12}"]
}

fn any_distribution(unit: Unit) -> impl Strategy<Value = Distribution> {
    let texts: &[&str] = match unit {
        Unit::Time => &[
            "constant(1ms)",
            "constant(0s)",
            "uniform(1ms,2ms)",
            "exp(10ms)",
            "normal(10ms,2ms)",
            "lognormal(10ms,0.5)",
            "pareto(1.5,1ms)",
            "cauchy(10ms,1ms)",
            "gamma(2,1ms)",
            "weibull(0.8,3ms)",
            "poisson(10ms)",
            "empirical(gaps.txt)",
            "trunc(exp(10ms),1ms,1s)",
            "mix(0.6:exp(4.29ms),0.4:constant(10.75ms))",
        ],
        Unit::Size => &[
            "constant(512)",
            "uniform(500,1000)",
            "normal(700,100)",
            "discrete(27:0.8312,28:0.0018)",
            "trunc(pareto(1.2,100),64,1400)",
        ],
    };
    prop::sample::select(texts).prop_map(move |text| {
        Distribution::parse(text, unit).unwrap_or_else(|e| panic!("{text}: {e}"))
    })
}

fn any_payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        Just(Payload::Random),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Payload::Pattern),
        any_text().prop_map(Payload::File),
    ]
}

fn any_socket() -> impl Strategy<Value = SocketOptions> {
    let option = prop::option::of::<BoxedStrategy<String>>;
    (
        option(any_text().boxed()),
        any::<(Option<u16>, Option<u16>)>(),
        option(any_text().boxed()),
        any::<(Option<u8>, Option<u8>, bool)>(),
        (option(any_text().boxed()), any::<Option<u64>>()),
    )
        .prop_map(
            |(
                source,
                (source_port, dest_port),
                interface,
                (ttl, tos, nagle),
                (congestion, pacing_rate),
            )| SocketOptions {
                source,
                source_port,
                dest_port,
                interface,
                ttl,
                tos,
                nagle,
                congestion,
                pacing_rate,
            },
        )
}

/// Any flow whose number is below `ids`.
pub fn any_flow(ids: u32) -> impl Strategy<Value = FlowSpec> {
    let periods = (any_distribution(Unit::Time), any_distribution(Unit::Time))
        .prop_map(|(on, off)| OnOff { on, off });
    (
        (0..ids, prop::sample::select(&Proto::ALL[..]), prop::option::of(any_text())),
        (any_distribution(Unit::Time), any_distribution(Unit::Size), prop::option::of(periods)),
        any::<(u64, Option<u64>, Option<u64>, Option<u64>)>(),
        (any_payload(), any::<(bool, bool, Option<u32>, Option<u32>)>(), any_socket()),
        any::<Option<u64>>(),
    )
        .prop_map(
            |(
                (id, proto, profile),
                (idt, size, on_off),
                (start_ns, duration_ns, packets, bytes),
                (payload, (rtt, drop, max_burst, burst), socket),
                drain_ns,
            )| {
                FlowSpec::new(id)
                    .proto(proto)
                    .profile(profile)
                    .idt(idt)
                    .size(size)
                    .on_off(on_off)
                    .start_ns(start_ns)
                    .stop(Stop { duration_ns, packets, bytes })
                    .meter(if rtt { Meter::Rtt } else { Meter::Owd })
                    .payload(payload)
                    .late(if drop { Late::Drop } else { Late::Keep })
                    .max_burst(max_burst)
                    .burst(burst)
                    .socket(socket)
                    .drain_ns(drain_ns)
            },
        )
}

/// Any totals of a flow below `ids`.
pub fn any_totals(ids: u32) -> impl Strategy<Value = FlowTotals> {
    (0..ids, any::<[u64; 5]>(), any_text()).prop_map(
        |(flow, [packets, bytes, skipped, failed, next_seq], reason)| FlowTotals {
            flow,
            packets,
            bytes,
            skipped,
            failed,
            next_seq,
            reason: EndCause::Told(reason).into(),
        },
    )
}

/// Any counts of a flow below `ids`.
pub fn any_counts(ids: u32) -> impl Strategy<Value = FlowCounts> {
    (0..ids, any::<[u64; 5]>(), any::<[Option<u64>; 4]>()).prop_map(
        |(
            flow,
            [packets, bytes, unique, foreign, log_lost_records],
            [socket_drops, missing, checksum_drops, corrupted],
        )| {
            FlowCounts {
                flow,
                packets,
                bytes,
                unique,
                socket_drops,
                foreign,
                log_lost_records,
                more: MoreCounts { missing, checksum_drops, corrupted, rebound: missing },
            }
        },
    )
}

fn any_reply(ids: u32) -> impl Strategy<Value = OpenReply> {
    let opened = (0..ids, any::<(u32, u16)>()).prop_map(|(flow, (handle, port))| OpenedFlow {
        flow,
        handle,
        port,
    });
    let result = prop_oneof![opened.prop_map(Ok), any_text().prop_map(Err)];
    (0..ids, result).prop_map(|(flow, result)| OpenReply { flow, result })
}

fn any_greeting() -> impl Strategy<Value = Message> {
    let run = prop_oneof!["[0-9a-f]{32}", any_text()];
    (
        (run, any_text(), any_text(), any_text(), prop::option::of(any_text())),
        any::<(u64, bool)>(),
        0u32..10,
    )
        .prop_map(|((run, program, host, boot_id, recv_log), (number, hello), flows)| {
            let (magic, version) = (MAGIC, VERSION);
            if hello {
                let seed = number;
                Message::Hello {
                    magic,
                    version,
                    run,
                    seed,
                    program,
                    host,
                    boot_id,
                    flows,
                    recv_log,
                }
            } else {
                let control_timeout_ns = number;
                Message::Welcome { magic, version, program, host, boot_id, control_timeout_ns }
            }
        })
}

/// Any measure of a flow below `ids`.
fn any_measure(ids: u32) -> impl Strategy<Value = FlowMeasure> {
    let buckets = || prop::collection::vec(any::<(u16, u32)>(), 0..4);
    let delays = (any::<[u64; 4]>(), any::<[i64; 4]>(), buckets(), buckets(), buckets()).prop_map(
        |(
            [count, stddev_ns, jitter_ns, rfc3550_ns],
            [base_ns, min_ns, max_ns, mean_ns],
            above,
            below,
            steps,
        )| DelayMeasure {
            count,
            base_ns,
            min_ns,
            max_ns,
            mean_ns,
            stddev_ns,
            jitter_ns,
            rfc3550_ns,
            above,
            below,
            steps,
        },
    );
    (0..ids, any::<[u64; 3]>(), prop::option::of(delays)).prop_map(
        |(flow, [first_unix_ns, last_unix_ns, reordered], delays)| FlowMeasure {
            flow,
            first_unix_ns,
            last_unix_ns,
            reordered,
            delays,
        },
    )
}

/// Any message; flows have small numbers, so that they are met again.
pub fn any_message() -> impl Strategy<Value = Message> {
    let ids = 10;
    let log = (any_text(), any::<(u64, u64)>(), prop::option::of(any_text())).prop_map(
        |(file, (records, lost_records), error)| LogSummary { file, records, lost_records, error },
    );
    prop_oneof![
        2 => any_greeting(),
        1 => any_text().prop_map(|reason| Message::Refuse { reason }),
        2 => prop::collection::vec(any_flow(ids), 0..4).prop_map(|flows| Message::Open { flows }),
        2 => prop::collection::vec(any_reply(ids), 0..4).prop_map(|flows| Message::Opened { flows }),
        1 => any::<u64>().prop_map(|epoch_unix_ns| Message::Start { epoch_unix_ns }),
        1 => Just(Message::Started),
        2 => any_totals(ids).prop_map(Message::FlowEnded),
        2 => any_counts(ids).prop_map(Message::FlowCounted),
        1 => (0u64..20, any::<[u64; 8]>(), any::<bool>()).prop_map(|(n, times, previous)| {
            let [unix_ns, monotonic_ns, a, b, received_unix_ns, c, d, arrived_unix_ns] = times;
            Message::Ping {
                n,
                sent: ClockReading { unix_ns, monotonic_ns },
                previous: previous.then_some(ProbeStamps {
                    sent: ClockReading { unix_ns: a, monotonic_ns: b },
                    received_unix_ns,
                    replied: ClockReading { unix_ns: c, monotonic_ns: d },
                    arrived_unix_ns,
                }),
            }
        }),
        1 => (0u64..20, any::<[u64; 5]>(), any::<bool>()).prop_map(
            |(n, [a, b, received_unix_ns, c, d], account)| Message::Pong {
                n,
                ping_sent: ClockReading { unix_ns: a, monotonic_ns: b },
                received_unix_ns,
                sent: ClockReading { unix_ns: c, monotonic_ns: d },
                arrived: vec![FlowArrivals {
                    flow: 1,
                    packets: n,
                    account: account.then_some(ArrivalAccount {
                        packets: a,
                        bytes: b,
                        missing: c,
                        reordered: d,
                        first_unix_ns: received_unix_ns,
                    }),
                }],
            }
        ),
        2 => any_measure(ids).prop_map(|measure| Message::FlowMeasured(Box::new(measure))),
        1 => Just(Message::Bye),
        1 => prop::option::of(log).prop_map(|log| Message::ByeAck { log }),
        1 => any::<[u8; 32]>().prop_map(|nonce| Message::Prove { nonce }),
        1 => prop::collection::vec(any_flow(ids), 0..4).prop_map(|flows| Message::Turn { flows }),
        1 => prop::collection::vec(any_text(), 0..4).prop_map(|notices| Message::Turned { notices }),
        1 => any_text().prop_map(|reason| Message::Halt { reason }),
        1 => any::<[[u8; 32]; 2]>().prop_map(|[nonce, proof]| Message::Proved { nonce, proof }),
    ]
}
