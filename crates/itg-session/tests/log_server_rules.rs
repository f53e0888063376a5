//! Reactions of a log server's session to its inputs, step by step.
#![allow(missing_docs, reason = "a test program")]

use crate::log_messages::registration;
use itg_session::logs::{
    LogBook, LogCodecError, LogLimits, LogMessage as M, LogServerConfig, LogServerSession,
    LogServerTimeouts, NO_ROOM, Registration, RestoredLog, Role, ServerInput as I,
    ServerOutput as O, Transport, proof_text,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

struct Server {
    book: LogBook,
    now: u64,
}

struct Session(LogServerSession);

impl Server {
    fn new() -> Self {
        let limits = LogLimits {
            producers: 2,
            experiments: 2,
            logs: 2,
            block_bytes: 4096,
            budget_bytes: 64 * 2048,
            ranges: 100,
            ..LogLimits::default()
        };
        Self { book: LogBook::new(limits), now: 0 }
    }

    fn accept(&self, id: u64) -> Session {
        self.accept_with(id, None, 9003)
    }

    fn accept_with(&self, id: u64, nonce: Option<[u8; 32]>, data_port: u16) -> Session {
        let timeouts = LogServerTimeouts::default();
        let config =
            LogServerConfig { id, nonce, token: 99, data_port, record_schema: 7, timeouts };
        Session(LogServerSession::new(config, self.now))
    }

    fn tell(&mut self, session: &mut Session, input: I) -> Vec<O> {
        let mut out = Vec::new();
        session.0.handle(self.now, input, &mut self.book, &mut out);
        out
    }

    /// Registers, as far as it goes.
    fn register(&mut self, session: &mut Session, who: Registration) -> Vec<O> {
        let out = self.tell(session, I::Message(M::register(who, None)));
        let [O::Open { run }] = &out[..] else { return out };
        self.book.restore(run, Vec::new());
        self.tell(session, I::Opened(Ok(())))
    }

    /// A session of a producer with this key, registered.
    fn registered(&mut self, id: u64, key: u8) -> Session {
        let mut session = self.accept(id);
        let out = self.register(&mut session, who(key));
        let registered = |output: &O| matches!(output, O::Send(M::Registered { .. }));
        assert!(out.iter().any(registered), "{out:?}");
        session
    }

    fn wait_for_deadline(&mut self, session: &mut Session) -> Vec<O> {
        self.now = session.0.deadline().expect("a deadline");
        self.tell(session, I::Timer)
    }
}

fn who(key: u8) -> Registration {
    Registration { next_block: 0, ..registration(key) }
}

fn block(log_id: u32, block_no: u32) -> I {
    I::Block { log_id, block_no, records: 2, bytes: 144, checksum: block_no, intact: true }
}

fn leave(blocks: u32) -> I {
    I::Message(M::Leave {
        blocks,
        records: 6,
        dropped_blocks: 0,
        dropped_records: 0,
        per_flow: Vec::new(),
        flows_left_out: 0,
    })
}

fn ack(stored_to: u32, credit: u32) -> O {
    O::Send(M::Ack { stored_to, credit })
}

/// Reason that a session gave when it refused; true if the producer may try again.
fn refusal(out: &[O]) -> Option<(&str, bool)> {
    match out {
        [.., O::Send(M::Refused { reason, again }), O::Disconnect { reason: same }]
        | [
            ..,
            O::Send(M::Refused { reason, again }),
            O::Disconnect { reason: same },
            O::Idle { .. },
        ] if same == reason => Some((reason, *again)),
        _ => None,
    }
}

#[test]
fn registrations_are_refused_with_a_reason() {
    let long = "x".repeat(257);
    for (wish, want) in [
        (
            Registration { run: long.clone(), ..who(1) },
            "the name of the experiment has 257 bytes, more than 256",
        ),
        (
            Registration { host: long.clone(), ..who(1) },
            "the name of the host has 257 bytes, more than 256",
        ),
        (
            Registration { program: long, ..who(1) },
            "the name of the program has 257 bytes, more than 256",
        ),
        (
            Registration { block_records: 0, ..who(1) },
            "blocks of at most 2048 bytes cannot hold 0 records each",
        ),
        (
            Registration { block_records: u32::MAX, ..who(1) },
            "blocks of at most 2048 bytes cannot hold 4294967295 records each",
        ),
        (
            Registration { block_bytes: 8192, ..who(1) },
            "the producer announces blocks of up to 8192 bytes, this log server takes 4096: use \
             smaller ones",
        ),
        (
            Registration { record_schema: 8, ..who(1) },
            "the producer's records are laid out in another way (schema 0x0000000000000008, this log \
             server knows 0x0000000000000007): use the same release of ITG on both sides",
        ),
        (
            Registration { transport: Transport::Udp, ..who(1) },
            "this log server takes no datagrams: use tcp://",
        ),
    ] {
        let mut server = Server::new();
        let mut session = server.accept_with(1, None, 0);
        let out = server.register(&mut session, wish);
        assert_eq!(refusal(&out), Some((want, false)), "{out:?}");
    }
}

#[test]
fn limits_are_kept() {
    let mut server = Server::new();
    let (mut first, _second) = (server.registered(1, 1), server.registered(2, 2));
    let mut third = server.accept(3);
    let out = server.register(&mut third, who(3));
    let want = "the log server has 2 producers already: its limit";
    assert_eq!(refusal(&out), Some((want, true)));

    let out = server.tell(&mut first, I::Lost("reset".to_owned()));
    let reason = "the connection to the producer is gone: reset".to_owned();
    assert_eq!(out, [O::Disconnect { reason }]);
    let mut third = server.accept(4);
    let out = server.register(&mut third, who(3));
    let want = "experiment `voip` has 2 logs already: the limit";
    assert_eq!(refusal(&out), Some((want, false)));

    let mut fourth = server.accept(5);
    server.register(&mut fourth, Registration { run: "b".to_owned(), ..who(3) });
    let mut fifth = server.accept(6);
    let out = server.register(&mut fifth, Registration { run: "c".to_owned(), ..who(3) });
    let want = "the log server has producers of 2 experiments: its limit";
    assert_eq!(refusal(&out), Some((want, true)));

    let mut server = Server::new();
    server.book =
        LogBook::new(LogLimits { budget_bytes: 3 * 4096, ..*Server::new().book.limits() });
    let mut session = server.accept(1);
    let out = server.register(&mut session, Registration { block_bytes: 4096, ..who(1) });
    let want =
        "the log server has no memory for another producer: give it more, or use smaller blocks";
    assert_eq!(refusal(&out), Some((want, true)));
}

#[test]
fn the_secret_is_asked_for_before_anything_is_opened() {
    let mut server = Server::new();
    let (nonce, proof) = ([5; 32], Some([6; 32]));
    let mut session = server.accept_with(1, Some(nonce), 0);
    // A proof that comes before the challenge proves nothing.
    let out = server.tell(&mut session, I::Message(M::register(who(1), proof)));
    assert!(matches!(&out[..], [O::Send(M::Challenge { nonce: n, .. })] if *n == nonce));
    let out = server.tell(&mut session, I::Message(M::register(who(1), proof)));
    let [O::Check { text, proof: given }] = &out[..] else { panic!("{out:?}") };
    assert_eq!((text.starts_with(b"ITG log registration 2\n\x05"), Some(*given)), (true, proof));
    // It covers all of the registration.
    for (what, change) in [
        ("the role", (|who: &mut Registration| who.role = Role::Receiver) as fn(&mut _)),
        ("the transport", |who| who.transport = Transport::Udp),
        ("the key", |who| who.key = [9; 16]),
        ("the experiment", |who| who.run.push('x')),
        ("the first block", |who| who.next_block += 1),
        ("the clock", |who| who.clock_offset_ns = Some(0)),
    ] {
        let mut other = who(1);
        change(&mut other);
        assert_ne!(*text, proof_text(&nonce, &other), "{what}");
    }
    let out = server.tell(&mut session, I::Checked(true));
    assert_eq!(out, [O::Open { run: "voip".to_owned() }]);

    let want =
        "the log server has a secret, and this producer does not know it: give both the same one";
    let mut session = server.accept_with(2, Some(nonce), 0);
    server.tell(&mut session, I::Message(M::register(who(1), None)));
    let out = server.tell(&mut session, I::Message(M::register(who(1), None)));
    assert_eq!(refusal(&out), Some((want, false)));
    let mut session = server.accept_with(3, Some(nonce), 0);
    server.tell(&mut session, I::Message(M::register(who(1), None)));
    server.tell(&mut session, I::Message(M::register(who(1), proof)));
    let out = server.tell(&mut session, I::Checked(false));
    assert_eq!(refusal(&out), Some((want, false)));
}

#[test]
fn only_what_is_stored_is_acknowledged() {
    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    for block_no in 0..3 {
        let out = server.tell(&mut session, block(1, block_no));
        assert_eq!(out, [O::Store { log_id: 1, block_no }]);
    }
    // 5 is sent next: 3 and 4 were dropped by the producer.
    server.tell(&mut session, block(1, 5));
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 1 }), []);
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 0 }), []);
    // Two of four are stored: said after the delay, as the producer does not wait for it.
    assert_eq!(session.0.deadline(), Some(5 * MS));
    assert_eq!(server.wait_for_deadline(&mut session), [ack(2, 8)]);
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 2 }), []);
    // All are stored: said at once; the gap does not hold it up.
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 5 }), [ack(6, 10)]);
    let out = server.tell(&mut session, leave(6));
    let [O::Account(account), O::Send(M::Left { blocks: 4, records: 8, missing, .. })] = &out[..]
    else {
        panic!("{out:?}")
    };
    assert_eq!(missing, &[(3, 4)]);
    assert_eq!((account.missing_blocks, account.stored_records, account.records), (2, 8, 6));
}

#[test]
fn a_restarted_server_goes_on_where_its_files_end() {
    let mut server = Server::new();
    let log = RestoredLog {
        key: [1; 16],
        log_id: 7,
        blocks: vec![(0, 2, 0), (1, 2, 1), (4, 2, 4)],
        bytes: 432,
        earlier: (Vec::new(), 0),
    };
    server.book.restore("voip", [log]);
    // Blocks that the producer still holds come again, and are compared.
    for next_block in [0, 1, 2, 4, 9, u32::MAX] {
        let mut session = server.accept(u64::from(next_block) + 100);
        let out = server.register(&mut session, Registration { next_block, ..who(1) });
        let registered = out.iter().find_map(|output| match output {
            O::Send(M::Registered { log_id, stored_to, .. }) => Some((*log_id, *stored_to)),
            _ => None,
        });
        assert_eq!(registered, Some((7, next_block)), "from {next_block}");
        server.tell(&mut session, I::Lost("gone".to_owned()));
    }
    // A new log gets a number of its own, and is entered before its first block.
    let mut session = server.accept(1);
    let out = server.register(&mut session, who(2));
    assert!(matches!(&out[0], O::Enrol { log_id: 8, run, .. } if run == "voip"), "{out:?}");
}

#[test]
fn a_number_stands_for_one_content() {
    let mut server = Server::new();
    let (mut thief, other) = (server.registered(1, 1), 77);
    let with = |checksum| I::Block {
        log_id: 1,
        block_no: 1,
        records: 2,
        bytes: 144,
        checksum,
        intact: true,
    };
    server.tell(&mut thief, with(other));
    server.tell(&mut thief, I::Stored { block_no: 1 });
    server.tell(&mut thief, I::Lost("gone".to_owned()));
    let mut owner = server.registered(2, 1);
    assert_eq!(server.tell(&mut owner, block(1, 0)), [O::Store { log_id: 1, block_no: 0 }]);
    server.tell(&mut owner, I::Stored { block_no: 0 });
    // Counted once, however often it comes.
    for id in [3, 4] {
        let out = server.tell(&mut owner, with(1));
        assert_eq!(out[0], O::Duplicate { block_no: 1, same: false });
        server.tell(&mut owner, I::Lost("gone".to_owned()));
        owner = server.registered(id, 1);
    }
    let out = server.tell(&mut owner, leave(2));
    let [O::Account(account), O::Send(left)] = &out[..] else { panic!("{out:?}") };
    assert_eq!(account.conflicting_blocks, 1);
    let told =
        matches!(left, M::Left { blocks: 2, conflicting_blocks: 1, conflicting_records: 2, .. });
    assert!(told, "{left:?}");
}

#[test]
fn a_producer_that_connects_again_takes_its_log_over() {
    let mut server = Server::new();
    let mut old = server.registered(1, 1);
    assert_eq!(server.tell(&mut old, block(1, 0)), [O::Store { log_id: 1, block_no: 0 }]);
    let mut new = server.accept(2);
    let out = server.register(&mut new, who(1));
    assert_eq!(out[0], O::Wake(1));
    // The same block again, while it is being stored for the old connection: stored once.
    assert_eq!(server.tell(&mut new, block(1, 0)), [O::Duplicate { block_no: 0, same: true }]);
    let out = server.tell(&mut old, block(1, 1));
    let reason = "the producer has connected again".to_owned();
    let discard = O::Discard { block_no: 1, reason: "its log has gone to another connection" };
    assert_eq!(out, [discard, O::Disconnect { reason }]);
    assert_eq!((old.0.is_over(), old.0.unsettled(), server.book.producers()), (true, 1, 2));
    assert_eq!(server.tell(&mut old, I::Stored { block_no: 0 }), [O::Wake(2)]);
    assert_eq!(server.book.producers(), 1);
    let out = server.tell(&mut new, I::Woken);
    assert!(matches!(out[..], [O::Send(M::Ack { stored_to: 1, .. })]), "{out:?}");
}

#[test]
fn a_block_that_could_not_be_stored_comes_again() {
    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    server.tell(&mut session, block(1, 0));
    let reason = "no space left on device".to_owned();
    let out = server.tell(&mut session, I::StoreFailed { block_no: 0, reason });
    let want = "the log server could not store block 0: no space left on device";
    assert_eq!(refusal(&out), Some((want, true)));
    let mut session = server.accept(2);
    server.register(&mut session, who(1));
    assert_eq!(server.tell(&mut session, block(1, 0)), [O::Store { log_id: 1, block_no: 0 }]);
}

#[test]
fn logs_and_experiments_grow_up_to_their_limits() {
    let full_log = "log 1 of experiment `voip` is full: this log server takes 432B of each log";
    let full_run = "experiment `voip` is full: this log server takes 432B of each experiment";
    let none = u64::MAX;
    for (log_bytes, experiment_bytes, want) in
        [(432, none, full_log), (none, 432, full_run), (600, 432, full_run)]
    {
        let mut server = Server::new();
        let limits = *server.book.limits();
        server.book = LogBook::new(LogLimits { log_bytes, experiment_bytes, ..limits });
        let mut session = server.registered(1, 1);
        for block_no in 0..3 {
            let out = server.tell(&mut session, block(1, block_no));
            assert_eq!(out, [O::Store { log_id: 1, block_no }], "{want}");
        }
        // What could not be stored takes no room.
        let reason = "input/output error".to_owned();
        let out = server.tell(&mut session, I::StoreFailed { block_no: 1, reason });
        assert!(out.contains(&O::Disconnect {
            reason: "the log server could not store block 1: input/output error".to_owned()
        }));
        for block_no in [0, 2] {
            server.tell(&mut session, I::Stored { block_no });
        }
        let mut session = server.registered(2, 1);
        let out = server.tell(&mut session, block(1, 2));
        assert_eq!(out[0], O::Duplicate { block_no: 2, same: true });
        let out = server.tell(&mut session, block(1, 3));
        assert_eq!(out, [O::Store { log_id: 1, block_no: 3 }], "{want}");
        let out = server.tell(&mut session, block(1, 4));
        assert!(matches!(out[0], O::Discard { block_no: 4, reason: NO_ROOM }), "{out:?}");
        assert!(
            out.contains(&O::Send(M::Refused { reason: want.to_owned(), again: false })),
            "{out:?}"
        );
        server.tell(&mut session, I::Stored { block_no: 3 });

        // Another log finds room unless the experiment is full; on UDP the producer is not cut off.
        let mut other = server.accept(3);
        let udp = Registration { transport: Transport::Udp, ..who(2) };
        let out = server.register(&mut other, udp);
        if want == full_run {
            assert_eq!(refusal(&out).map(|(_, again)| again), Some(false), "{out:?}");
            continue;
        }
        for block_no in 0..4 {
            let out = server.tell(&mut other, block(2, block_no));
            let want = match block_no {
                3 => O::Discard { block_no, reason: NO_ROOM },
                _ => O::Store { log_id: 2, block_no },
            };
            assert_eq!(out, [want]);
        }
    }
}

#[test]
fn what_breaks_the_rules_ends_the_connection() {
    let bad = |log_id, block_no, bytes, intact| I::Block {
        log_id,
        block_no,
        records: 2,
        bytes,
        checksum: 9,
        intact,
    };
    for (input, want, again) in [
        (bad(1, 9, 144, false), "block 9 is refused: it is damaged", true),
        (bad(2, 9, 144, true), "block 9 is refused: it belongs to another log", false),
        (bad(1, 9, 2049, true), "block 9 is refused: it is larger than announced", false),
        (bad(1, u32::MAX, 144, true), "block 4294967295 is refused: its number is too high", false),
        (bad(1, 4, 144, true), "block 4 is refused: it is out of order", false),
        (I::Message(M::Bound), "Bound came out of turn", false),
        (I::Message(M::register(who(1), None)), "Register came out of turn", false),
        (
            I::Garbage(LogCodecError::Columns),
            "a column block came: producers send blocks of records and of notes",
            false,
        ),
        (
            I::Garbage(LogCodecError::Version { peer: 1 }),
            "the peer speaks version 1 of the log protocol, this program speaks version 2: use the \
             same release of ITG on both sides",
            false,
        ),
    ] {
        let mut server = Server::new();
        let mut session = server.registered(1, 1);
        server.tell(&mut session, block(1, 4));
        server.tell(&mut session, I::Stored { block_no: 4 });
        let out = server.tell(&mut session, input);
        assert_eq!(refusal(&out), Some((want, again)), "{out:?}");
        assert_eq!((server.book.producers(), server.book.outstanding_bytes()), (0, 0));
    }
    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    let out: Vec<O> =
        (0..7).flat_map(|block_no| server.tell(&mut session, block(1, block_no))).collect();
    assert_eq!(refusal(&out), Some(("block 6 is refused: it is beyond the credit", false)));
}

#[test]
fn datagrams_need_the_token_and_are_waited_for_at_the_end() {
    let mut server = Server::new();
    let mut session = server.accept(1);
    let out = server.register(&mut session, Registration { transport: Transport::Udp, ..who(1) });
    let registered = |output: &O| {
        matches!(output, O::Send(M::Registered { data_port: 9003, token: 99, credit: 0, .. }))
    };
    assert!(out.iter().any(registered), "{out:?}");
    assert_eq!(server.tell(&mut session, I::Bind { log_id: 1, token: 98 }), []);
    assert_eq!(server.tell(&mut session, I::Bind { log_id: 2, token: 99 }), []);
    let out = server.tell(&mut session, I::Bind { log_id: 1, token: 99 });
    assert_eq!(out, [O::Authorise, O::Send(M::Bound)]);
    for block_no in [2, 0] {
        let out = server.tell(&mut session, block(1, block_no));
        assert_eq!(out, [O::Store { log_id: 1, block_no }]);
        assert_eq!(server.tell(&mut session, I::Stored { block_no }), []);
    }
    assert_eq!(server.tell(&mut session, block(1, 2)), [O::Duplicate { block_no: 2, same: true }]);
    let damaged =
        I::Block { log_id: 1, block_no: 1, records: 2, bytes: 144, checksum: 1, intact: false };
    let out = server.tell(&mut session, damaged);
    assert_eq!(out, [O::Discard { block_no: 1, reason: "it is damaged" }]);
    assert_eq!(server.tell(&mut session, leave(3)), []);
    assert_eq!(session.0.deadline(), Some(500 * MS));
    let out = server.wait_for_deadline(&mut session);
    let [O::Account(account), O::Send(M::Left { blocks: 2, missing, .. })] = &out[..] else {
        panic!("{out:?}")
    };
    assert_eq!((&missing[..], account.damaged_blocks), (&[(1, 1)][..], 1));
    // What comes now is too late to be counted, and is not stored.
    let out = server.tell(&mut session, block(1, 1));
    assert_eq!(out, [O::Discard { block_no: 1, reason: "its log is not open" }]);
}

#[test]
fn datagrams_without_memory_are_discarded_and_counted() {
    let mut server = Server::new();
    let mut session = server.accept(1);
    server.register(&mut session, Registration { transport: Transport::Udp, ..who(1) });
    let out: Vec<O> =
        (0..7).flat_map(|block_no| server.tell(&mut session, block(1, block_no))).collect();
    let discard = O::Discard { block_no: 6, reason: "there is no memory for it" };
    assert_eq!((out.len(), &out[6]), (7, &discard));
    assert_eq!(session.0.unsettled(), 6);
}

#[test]
fn each_wait_has_an_end() {
    let mut server = Server::new();
    let mut session = server.accept(1);
    let out = server.wait_for_deadline(&mut session);
    assert_eq!(
        (refusal(&out), server.now),
        (Some(("no registration within 5s", false)), 5 * SECOND)
    );

    let mut server = Server::new();
    let mut session = server.accept_with(1, Some([1; 32]), 0);
    server.tell(&mut session, I::Message(M::register(who(1), None)));
    server.tell(&mut session, I::Message(M::register(who(1), Some([0; 32]))));
    let out = server.wait_for_deadline(&mut session);
    let want = "the log server could not check the proof within 3s";
    assert_eq!(refusal(&out), Some((want, true)));

    let mut server = Server::new();
    let mut session = server.accept(1);
    server.tell(&mut session, I::Message(M::register(who(1), None)));
    let out = server.wait_for_deadline(&mut session);
    let want = "the log server could not open its files within 10s";
    assert_eq!(refusal(&out), Some((want, true)));
    let mut session = server.accept(2);
    server.tell(&mut session, I::Message(M::register(who(1), None)));
    let out = server.tell(&mut session, I::Opened(Err("permission denied".to_owned())));
    let want = "the log server cannot open the experiment's files: permission denied";
    assert_eq!(refusal(&out), Some((want, true)));

    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    let out = server.wait_for_deadline(&mut session);
    let reason = "the producer has been silent for 5s".to_owned();
    assert_eq!(out[0], O::Disconnect { reason });

    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    server.tell(&mut session, block(1, 0));
    server.tell(&mut session, leave(1));
    for second in 1..20 {
        server.now = second * SECOND;
        let out = server.tell(&mut session, I::Message(M::Ping { n: second }));
        assert_eq!(out, [O::Send(M::Pong { n: second })]);
    }
    let out = server.wait_for_deadline(&mut session);
    assert_eq!(refusal(&out), Some(("1 block is not stored within 20s", true)));
}

#[test]
fn a_shutdown_takes_what_it_promised_to_take() {
    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    server.tell(&mut session, block(1, 0));
    server.tell(&mut session, block(1, 1));
    let stop = || I::Shutdown("interrupted".to_owned());
    assert_eq!(server.tell(&mut session, stop()), []);
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 0 }), []);
    let out = server.tell(&mut session, I::Stored { block_no: 1 });
    assert_eq!(out[0], ack(2, 6), "all that came, and no more credit");
    let want = "the log server is being shut down: interrupted";
    assert_eq!(refusal(&out), Some((want, true)));

    let mut session = server.registered(2, 1);
    server.tell(&mut session, block(1, 2));
    server.tell(&mut session, stop());
    server.now += 4 * SECOND;
    server.tell(&mut session, I::Message(M::Ping { n: 0 }));
    server.now += 4 * SECOND;
    server.tell(&mut session, I::Message(M::Ping { n: 1 }));
    let out = server.wait_for_deadline(&mut session);
    let want = "the log server is being shut down: interrupted; 1 block is not stored within 10s";
    assert_eq!(refusal(&out), Some((want, true)));

    let mut session = server.accept(3);
    let out = server.tell(&mut session, stop());
    let want = "the log server is being shut down: interrupted";
    assert_eq!(refusal(&out), Some((want, true)));
}

#[test]
fn credit_stops_with_a_full_disk_and_comes_back() {
    let mut server = Server::new();
    let mut session = server.registered(1, 1);
    server.book.disk_full();
    for block_no in 0..6 {
        server.tell(&mut session, block(1, block_no));
    }
    for block_no in 0..5 {
        assert_eq!(server.tell(&mut session, I::Stored { block_no }), []);
    }
    assert_eq!(server.tell(&mut session, I::Stored { block_no: 5 }), [ack(6, 6)]);
    assert_eq!(server.book.disk_free(), [1]);
    assert_eq!(server.tell(&mut session, I::Woken), [ack(6, 12)]);
}

#[test]
fn an_experiment_is_forgotten_only_when_nobody_uses_it() {
    let mut server = Server::new();
    let (mut first, mut second) = (server.registered(1, 1), server.registered(2, 2));
    server.tell(&mut first, block(1, 0));
    assert!(!server.book.forget("voip"));
    server.tell(&mut first, I::Lost("gone".to_owned()));
    server.tell(&mut second, I::Lost("gone".to_owned()));
    assert!(!server.book.forget("voip"), "a block of it is being stored");
    let out = server.tell(&mut first, I::Stored { block_no: 0 });
    assert_eq!(out, [O::Idle { run: "voip".to_owned() }]);
    assert_eq!(server.book.log("voip", 1).map(|log| log.records), Some(2));
    assert!(server.book.forget("voip") && !server.book.knows("voip"));
    // Forgotten between the driver's look at it and its answer: asked again.
    let mut third = server.accept(3);
    server.tell(&mut third, I::Message(M::register(who(1), None)));
    let out = server.tell(&mut third, I::Opened(Ok(())));
    assert_eq!(out, [O::Open { run: "voip".to_owned() }]);
}
