//! Reactions of a producer's machine to its inputs, step by step.
#![allow(missing_docs, reason = "a test program")]

use crate::log_messages::registration;
use itg_session::logs::{
    LOG_MAGIC, LOG_VERSION, LogCodecError, LogFate, LogMessage as M, LogProducer,
    LogProducerConfig, ProducerInput as I, ProducerOutput as O, ProducerTimeouts, Registration,
    SpooledBlock, SpooledLog, Transport,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

struct Producer {
    machine: LogProducer,
    now: u64,
}

impl Producer {
    fn new(transport: Transport, patience_ns: Option<u64>) -> Self {
        let config = config(transport, patience_ns);
        Self { machine: LogProducer::new(config, 0), now: 0 }
    }

    fn tell(&mut self, input: I) -> Vec<O> {
        let mut out = Vec::new();
        self.machine.handle(self.now, input, &mut out);
        out
    }

    fn wait_for_deadline(&mut self) -> Vec<O> {
        self.now = self.machine.deadline().expect("a deadline");
        self.tell(I::Timer)
    }

    fn ready(&mut self) -> Vec<O> {
        let block_no = self.machine.next_block();
        self.tell(I::BlockReady { block_no, records: 10, bytes: 464 })
    }

    /// Connects and registers, with this credit and this much stored.
    fn register(&mut self, credit: u32, stored_to: u32) -> Vec<O> {
        while self.wait_for_deadline() != [O::Connect] {}
        let out = self.tell(I::Connected);
        assert!(matches!(out[..], [O::Send(M::Register { proof: None, .. })]), "{out:?}");
        self.tell(I::Message(registered(credit, stored_to, 9003)))
    }

    /// Lets the deadlines pass until it says something else than pings and attempts to connect.
    fn wait_for_end(&mut self) -> Vec<O> {
        loop {
            let out = self.wait_for_deadline();
            if self.machine.is_over() {
                return out;
            }
        }
    }
}

fn config(transport: Transport, patience_ns: Option<u64>) -> LogProducerConfig {
    LogProducerConfig {
        who: Registration { transport, ..registration(1) },
        max_unacked: 3,
        memory_blocks: 4,
        patience_ns,
        timeouts: ProducerTimeouts::default(),
    }
}

fn registered(credit: u32, stored_to: u32, data_port: u16) -> M {
    let (magic, version) = (LOG_MAGIC, LOG_VERSION);
    M::Registered { magic, version, log_id: 1, data_port, token: 5, credit, stored_to }
}

fn lost() -> I {
    I::Lost("reset".to_owned())
}

fn ack(stored_to: u32, credit: u32) -> I {
    I::Message(M::Ack { stored_to, credit })
}

fn send(block_no: u32) -> O {
    O::SendBlock { block_no }
}

fn close() -> I {
    I::Close { per_flow: vec![(0, 10)] }
}

#[test]
fn blocks_are_sent_within_credit_and_window_and_released_when_stored() {
    let mut p = Producer::new(Transport::Tcp, None);
    assert_eq!(p.ready(), []);
    assert_eq!(p.register(2, 0), [O::Registered { log_id: 1, data_port: 9003 }, send(0)]);
    assert_eq!(p.ready(), [send(1)]);
    assert_eq!(p.ready(), [], "no more credit");
    assert_eq!(p.tell(ack(0, 9)), [send(2)]);
    assert_eq!(p.ready(), [], "three on the way");
    assert_eq!(p.tell(ack(0, 4)), [], "credit never falls");
    assert_eq!(p.tell(ack(2, 9)), [O::Release { up_to: 2 }, send(3)]);
    // A dropped block leaves a gap, which holds nothing up.
    assert_eq!(p.tell(I::Dropped { block_no: 4, records: 10 }), []);
    assert_eq!(p.ready(), [send(5)]);
    assert_eq!(p.tell(ack(6, 9)), [O::Release { up_to: 6 }]);
    assert_eq!(
        p.tell(close()),
        [O::Send(M::Leave {
            blocks: 6,
            records: 50,
            dropped_blocks: 1,
            dropped_records: 10,
            per_flow: vec![(0, 10)],
            flows_left_out: 0,
        })]
    );
    let left = M::Left {
        blocks: 5,
        records: 50,
        missing: vec![(4, 4)],
        missing_left_out: 0,
        conflicting_blocks: 0,
        conflicting_records: 0,
    };
    let fate = LogFate {
        blocks: 6,
        records: 60,
        stored_blocks: 5,
        stored_records: 50,
        dropped_blocks: 1,
        dropped_records: 10,
        missing: vec![(4, 4)],
        confirmed: true,
        ..LogFate::default()
    };
    let words = "50 of 60 records stored, 10 dropped for want of room";
    assert_eq!((fate.to_string().as_str(), fate.is_complete()), (words, false));
    assert_eq!(p.tell(I::Message(left)), [O::Disconnect, O::Finished(fate)]);
    assert_eq!(p.ready(), [], "over");
}

#[test]
fn after_a_cut_what_is_not_stored_is_sent_again() {
    let mut p = Producer::new(Transport::Tcp, None);
    p.register(9, 0);
    for _ in 0..4 {
        p.ready();
    }
    assert_eq!(p.tell(lost()), []);
    let out = p.register(9, 1);
    let registered = O::Registered { log_id: 1, data_port: 9003 };
    assert_eq!(out, [registered, O::Release { up_to: 1 }, send(1), send(2), send(3)]);
    // Leave is repeated too.
    p.tell(close());
    let out = p.tell(ack(4, 9));
    assert!(matches!(out[..], [O::Release { up_to: 4 }, O::Send(M::Leave { .. })]), "{out:?}");
    p.tell(lost());
    let out = p.register(9, 4);
    assert!(matches!(out[..], [O::Registered { .. }, O::Send(M::Leave { .. })]), "{out:?}");
}

#[test]
fn waits_between_attempts_double_up_to_a_limit() {
    let mut p = Producer::new(Transport::Tcp, Some(3600 * SECOND));
    let mut waits = Vec::new();
    for _ in 0..9 {
        assert_eq!(p.wait_for_deadline(), [O::Connect]);
        p.tell(lost());
        waits.push((p.machine.deadline().expect("tries again") - p.now) / MS);
    }
    for (wait, most) in waits.iter().zip([100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000]) {
        assert!((most * 3 / 4..=most).contains(wait), "{waits:?}");
    }
}

#[test]
fn a_server_that_is_away_for_long_sends_blocks_to_the_spool() {
    let mut p = Producer::new(Transport::Tcp, Some(30 * SECOND));
    p.register(9, 0);
    p.ready();
    p.ready();
    p.tell(lost());
    assert_eq!([p.ready(), p.ready()], [[], []], "memory is full; patience");
    let spool = |block_no| O::Spool { block_no };
    loop {
        match &p.wait_for_deadline()[..] {
            [] => {}
            [O::Connect] => assert_eq!(p.tell(lost()), []),
            out => break assert_eq!(out, [spool(0), spool(1), spool(2), spool(3)]),
        }
    }
    assert!(p.now >= 30 * SECOND);
    assert_eq!((p.machine.in_memory(), p.ready()), (0, vec![]));
    // It comes back, and has block 0 already.
    let unspool = |block_no| O::Unspool { block_no };
    let out = p.register(9, 1);
    assert_eq!(out[1..], [O::Release { up_to: 1 }, unspool(1), unspool(2), unspool(3)]);
    assert_eq!(p.tell(ack(2, 9)), [O::Release { up_to: 2 }, send(4)]);
    // One that never left cannot be read any more.
    assert_eq!(p.tell(I::Dropped { block_no: 3, records: 10 }), []);
    p.tell(close());
    let out = p.wait_for_end();
    let [O::Disconnect, O::Spool { block_no: 4 }, O::Finished(fate)] = &out[..] else {
        panic!("{out:?}")
    };
    let words = "20 of 50 records stored, 10 dropped for want of room, 20 in the spool";
    assert_eq!(fate.to_string(), words);
    let want = "the log server cannot be reached: no connection within 5s";
    assert_eq!(fate.trouble.as_deref(), Some(want));
}

#[test]
fn a_spool_of_an_earlier_process_is_forwarded() {
    let block = |block_no| SpooledBlock { block_no, records: 10 };
    let log = SpooledLog {
        spool: vec![block(4), block(5)],
        blocks: 7,
        records: 60,
        dropped_blocks: 1,
        dropped_records: 10,
    };
    let machine = LogProducer::resume(config(Transport::Tcp, Some(0)), log, 0);
    let mut p = Producer { machine, now: 0 };
    assert_eq!(p.tell(close()), []);
    let out = p.register(9, 5);
    assert_eq!(out[1..], [O::Release { up_to: 5 }, O::Unspool { block_no: 5 }]);
    let out = p.tell(ack(6, 9));
    let leave = |output: &O| matches!(output, O::Send(M::Leave { blocks: 7, records: 60, .. }));
    assert!(out.iter().any(leave), "{out:?}");
    let left = M::Left {
        blocks: 6,
        records: 60,
        missing: vec![(6, 6)],
        missing_left_out: 0,
        conflicting_blocks: 0,
        conflicting_records: 0,
    };
    let out = p.tell(I::Message(left));
    let [O::Disconnect, O::Finished(fate)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((fate.stored_records, fate.dropped_records, fate.records), (60, 10, 70));
}

#[test]
fn a_block_that_others_have_replaced_is_told() {
    let mut p = Producer::new(Transport::Tcp, None);
    p.ready();
    p.register(9, 0);
    p.ready();
    p.tell(ack(2, 9));
    p.tell(close());
    let left = M::Left {
        blocks: 2,
        records: 20,
        missing: vec![],
        missing_left_out: 0,
        conflicting_blocks: 1,
        conflicting_records: 10,
    };
    let out = p.tell(I::Message(left));
    let [O::Disconnect, O::Finished(fate)] = &out[..] else { panic!("{out:?}") };
    assert_eq!((fate.stored_records, fate.missing_records, fate.is_complete()), (10, 10, false));
    assert!(fate.to_string().contains("others have written under the same number"), "{fate}");
}

#[test]
fn datagrams_follow_the_bind_and_are_gone_when_sent() {
    let mut p = Producer::new(Transport::Udp, None);
    p.ready();
    let out = p.register(0, 0);
    let [O::Registered { data_port: 9003, .. }, O::SendBind(bind)] = &out[..] else {
        panic!("{out:?}")
    };
    let (magic, version) = (LOG_MAGIC, LOG_VERSION);
    assert_eq!(*bind, M::Bind { magic, version, log_id: 1, token: 5 });
    // Nothing comes back: said again after a while.
    assert_eq!(p.wait_for_deadline(), [O::SendBind(bind.clone())]);
    assert_eq!(p.tell(I::Message(M::Bound)), [send(0)]);
    assert_eq!(p.tell(I::Message(M::Bound)), [], "the answer to the second one");
    assert_eq!(p.tell(I::BlockSent { block_no: 7 }), []);
    assert_eq!(p.tell(I::BlockSent { block_no: 0 }), [O::Release { up_to: 1 }]);
    // While the server is away, four blocks wait; older ones are given up.
    p.tell(lost());
    assert_eq!([p.ready(), p.ready(), p.ready()], [[], [], []]);
    assert_eq!(p.ready(), [O::Release { up_to: 2 }]);
    assert_eq!(p.tell(close()), []);
    let out = p.wait_for_end();
    let Some(O::Finished(fate)) = out.last() else { panic!("{out:?}") };
    let words = "0 of 50 records stored, 10 missing, 40 not confirmed by the log server";
    assert_eq!(fate.to_string(), words);
}

#[test]
fn a_server_that_does_not_want_the_log_is_a_failure() {
    let refused = |again| M::Refused { reason: "no".to_owned(), again };
    for (input, want) in [
        (I::Message(refused(false)), "the log server refused: no"),
        (I::Message(M::Bound), "the log server said Bound out of turn"),
        (
            I::Garbage(LogCodecError::Version { peer: 3 }),
            "the peer speaks version 3 of the log protocol, this program speaks version 2: use the \
             same release of ITG on both sides",
        ),
        (
            I::Message(registered(1, 1, 0)),
            "the log server says that it has stored everything below block 1; only blocks below 0 \
             have been sent",
        ),
    ] {
        let mut p = Producer::new(Transport::Tcp, Some(SECOND));
        p.wait_for_deadline();
        p.tell(I::Connected);
        let out = p.tell(input);
        let [O::Disconnect, O::Failed { reason, .. }] = &out[..] else { panic!("{out:?}") };
        assert_eq!(reason, want);
    }
    let mut p = Producer::new(Transport::Udp, None);
    p.wait_for_deadline();
    p.tell(I::Connected);
    let out = p.tell(I::Message(registered(0, 0, 0)));
    let [O::Disconnect, O::Failed { reason, .. }] = &out[..] else { panic!("{out:?}") };
    assert_eq!(reason, "the log server gives no port for datagrams: use tcp://");

    // For the time being is not for ever.
    let mut p = Producer::new(Transport::Tcp, None);
    p.wait_for_deadline();
    p.tell(I::Connected);
    assert_eq!(p.tell(I::Message(refused(true))), [O::Disconnect]);
    assert_eq!(p.register(1, 0).len(), 1);
}

#[test]
fn a_log_that_is_refused_in_the_middle_goes_to_the_spool_or_fails() {
    for patience in [None, Some(3600 * SECOND)] {
        let mut p = Producer::new(Transport::Tcp, patience);
        p.register(9, 0);
        p.ready();
        let out = p.tell(I::Message(M::Refused { reason: "no".to_owned(), again: false }));
        if patience.is_none() {
            let [O::Disconnect, O::Failed { reason, fate }] = &out[..] else { panic!("{out:?}") };
            assert_eq!(reason, "the log server refused: no");
            let words = "0 of 10 records stored, 10 not confirmed by the log server";
            assert_eq!(fate.to_string(), words);
            continue;
        }
        assert_eq!(out, [O::Disconnect, O::Spool { block_no: 0 }]);
        assert_eq!(p.ready(), [O::Spool { block_no: 1 }]);
        assert_eq!(p.machine.deadline(), None, "nothing more to wait for");
        let out = p.tell(close());
        let [O::Finished(fate)] = &out[..] else { panic!("{out:?}") };
        assert_eq!(fate.to_string(), "0 of 20 records stored, 20 in the spool");
    }
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_is_not_believed() {
    let mut p = Producer::new(Transport::Tcp, None);
    p.register(1, 0);
    p.ready();
    p.ready();
    assert_eq!(p.tell(ack(2, 9)), [O::Disconnect]);
    assert_eq!(p.register(9, 0)[1..], [send(0), send(1)]);
    assert_eq!(p.tell(ack(3, 9)), [O::Disconnect]);
    // Nor are numbers that cannot be.
    p.register(9, 0);
    p.tell(ack(2, 9));
    p.tell(close());
    let most = u64::MAX;
    let left = M::Left {
        blocks: most,
        records: most,
        missing: vec![],
        missing_left_out: most,
        conflicting_blocks: 0,
        conflicting_records: 0,
    };
    let out = p.tell(I::Message(left));
    let Some(O::Finished(fate)) = out.last() else { panic!("{out:?}") };
    assert_eq!((fate.stored_blocks, fate.stored_records), (2, 20));
}

#[test]
fn each_wait_has_an_end() {
    type Setup = fn(&mut Producer);
    let cases: [(&str, Transport, Setup, &str); 5] = [
        (
            "connecting",
            Transport::Tcp,
            |_| {},
            "the log server cannot be reached: no connection within 5s",
        ),
        (
            "registering",
            Transport::Tcp,
            |p| drop(p.tell(I::Connected)),
            "no answer to the registration within 15s: is it a log server of ITG that listens there?",
        ),
        (
            "proving",
            Transport::Tcp,
            |p| {
                p.tell(I::Connected);
                let (magic, version) = (LOG_MAGIC, LOG_VERSION);
                let out = p.tell(I::Message(M::Challenge { magic, version, nonce: [1; 32] }));
                assert!(matches!(out[..], [O::Prove { .. }]));
            },
            "no proof for the log server within 15s",
        ),
        (
            "binding",
            Transport::Udp,
            |p| {
                p.tell(I::Connected);
                p.tell(I::Message(registered(0, 0, 9003)));
            },
            "datagrams do not reach the log server: no answer within 4s",
        ),
        (
            "lost",
            Transport::Udp,
            |p| {
                p.tell(I::Connected);
                p.tell(I::Message(registered(0, 0, 9003)));
                p.tell(I::Message(M::Bound));
                p.tell(lost());
            },
            "the connection to the log server is gone: reset",
        ),
    ];
    for (what, transport, setup, want) in cases {
        let mut p = Producer::new(transport, Some(3600 * SECOND));
        assert_eq!(p.wait_for_deadline(), [O::Connect], "{what}");
        setup(&mut p);
        // Take leave when the wait is over, before another attempt.
        while p.machine.deadline().is_some_and(|_| what != "lost") {
            if p.wait_for_deadline().contains(&O::Disconnect) {
                break;
            }
        }
        p.tell(close());
        p.now += 31 * SECOND;
        let out = p.tell(I::Timer);
        let Some(O::Finished(fate)) = out.last() else { panic!("{what}: {out:?}") };
        assert_eq!(fate.trouble.as_deref(), Some(want), "{what}");
    }
}
