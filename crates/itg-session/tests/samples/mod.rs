//! Ordinary messages for tests.
#![allow(unreachable_pub, missing_docs, reason = "shared by several files of tests")]

use itg_core::flow::FlowSpec;
use itg_session::{
    EndCause, FlowCounts, FlowMeasure, FlowTotals, MAGIC, Measuring, Message, OpenReply,
    OpenedFlow, VERSION,
};

pub const SECOND: u64 = 1_000_000_000;
pub const RUN: &str = "00112233445566778899aabbccddeeff";

pub fn hello(flows: u32) -> Message {
    Message::Hello {
        magic: MAGIC,
        version: VERSION,
        run: RUN.to_owned(),
        seed: 42,
        program: "itg-send 0.1.0".to_owned(),
        host: "a".to_owned(),
        boot_id: "b0".to_owned(),
        flows,
        recv_log: Some("r.itg".to_owned()),
    }
}

pub fn welcome() -> Message {
    Message::Welcome {
        magic: MAGIC,
        version: VERSION,
        program: "itg-recv 0.1.0".to_owned(),
        host: "b".to_owned(),
        boot_id: "b1".to_owned(),
        control_timeout_ns: 5 * SECOND,
    }
}

pub fn open(ids: impl IntoIterator<Item = u32>) -> Message {
    Message::Open { flows: ids.into_iter().map(FlowSpec::new).collect() }
}

pub fn reply(flow: u32) -> OpenReply {
    OpenReply { flow, result: Ok(OpenedFlow { flow, handle: flow + 100, port: 8999 }) }
}

pub fn no(flow: u32, why: &str) -> OpenReply {
    OpenReply { flow, result: Err(why.to_owned()) }
}

pub fn totals(flow: u32) -> FlowTotals {
    FlowTotals {
        flow,
        packets: 10,
        bytes: 5120,
        skipped: 0,
        failed: 0,
        next_seq: 10,
        reason: EndCause::Told("time is over".to_owned()).into(),
    }
}

pub fn counts(flow: u32) -> FlowCounts {
    FlowCounts {
        flow,
        packets: 10,
        bytes: 5120,
        unique: 10,
        socket_drops: Some(0),
        foreign: 0,
        log_lost_records: 0,
        more: Default::default(),
    }
}

/// Ten packets that took 1 to 10 ms.
pub fn measure(flow: u32) -> Box<FlowMeasure> {
    let mut measuring = Measuring::new();
    for k in 1..=10 {
        measuring.arrived(1, Some(k * SECOND), k * SECOND + k * 1_000_000);
    }
    Box::new(measuring.finish(flow, 0))
}
