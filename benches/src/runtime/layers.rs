//! The layers of the benchmarks: client and echo, source and sink.

use bytes::Bytes;
use itg_process::{
    Ctx, Layer, Level, MS, Message, Registry, SECOND, Slot, StopReason, Time, TimerId, US,
    layer_events,
};

layer_events! {
    /// Results of the layers.
    pub(crate) enum BenchEvent {
        /// Transactions or bytes, and in how many nanoseconds.
        Result { count: u64, ns: u64 } = "result",
    }
}

/// Bytes of a message of a stream.
pub(crate) const STREAM_BODY: usize = 8192;
/// Messages that a source sends in one go.
const BURST: usize = 32;

pub(crate) fn registry() -> Registry {
    Registry::new()
        .with("client", |build| {
            let time = build.params.time_ns("time", SECOND)?;
            Ok(Box::new(Client { time, begin: Time::ZERO, count: 0, seen: 0 }))
        })
        .with("echo", |build| {
            build.params.time_ns("time", SECOND)?;
            Ok(Box::new(Echo))
        })
        .with("source", |build| {
            let time = build.params.time_ns("time", SECOND)?;
            let body = Bytes::from(vec![7; STREAM_BODY]);
            Ok(Box::new(Source { time, end: Time::ZERO, body, refused: Vec::new() }))
        })
        .with("sink", |build| {
            build.params.time_ns("time", SECOND)?;
            Ok(Box::new(Sink { bytes: 0, first: None, last: Time::ZERO }))
        })
}

/// Sends an empty message and waits for it to come back, again and again.
struct Client {
    time: u64,
    begin: Time,
    count: u64,
    /// The count when it was looked at last.
    seen: u64,
}

impl Client {
    /// A datagram may get lost: then the request is sent again.
    const LOOK: u64 = 200 * MS;

    fn ask(cx: &mut Ctx<'_>) {
        cx.down(Message::new(Slot(1), 1, Bytes::new()));
    }
}

impl Layer for Client {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.begin = cx.now();
        cx.set_timer_after(Self::LOOK);
        Self::ask(cx);
    }

    fn deliver(&mut self, _message: Message, cx: &mut Ctx<'_>) {
        self.count += 1;
        let elapsed = cx.now().since(self.begin);
        if elapsed < self.time {
            Self::ask(cx);
        } else {
            cx.log(Level::Info, BenchEvent::Result { count: self.count, ns: elapsed });
            cx.shutdown(StopReason::Finished);
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if self.seen == self.count {
            Self::ask(cx);
        }
        self.seen = self.count;
        cx.set_timer_after(Self::LOOK);
    }
}

/// Sends back what comes.
struct Echo;

impl Layer for Echo {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        cx.down(Message { dst: message.src.into(), ..message });
    }
}

/// Sends as much as the network takes.
struct Source {
    time: u64,
    end: Time,
    body: Bytes,
    refused: Vec<Message>,
}

impl Layer for Source {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.end = cx.now().after(self.time);
        cx.set_timer_after(0);
    }

    fn refused(&mut self, message: Message, _cx: &mut Ctx<'_>) {
        self.refused.push(message);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if cx.now() >= self.end {
            cx.shutdown(StopReason::Finished);
            return;
        }
        let again = std::mem::take(&mut self.refused);
        let full = !again.is_empty();
        let new = BURST.saturating_sub(again.len());
        again.into_iter().for_each(|message| cx.down(message));
        for _ in 0..new {
            cx.down(Message::new(Slot(0), 1, self.body.clone()));
        }
        // A timer for now would fire before anything leaves; a full network is given time.
        cx.set_timer_after(if full { 100 * US } else { 1 });
    }
}

/// Counts what comes.
struct Sink {
    bytes: u64,
    first: Option<Time>,
    last: Time,
}

impl Layer for Sink {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.first.get_or_insert_with(|| cx.now());
        self.last = cx.now();
        self.bytes += message.body.len() as u64;
    }

    fn on_stop(&mut self, _why: StopReason, cx: &mut Ctx<'_>) {
        let elapsed = self.last.since(self.first.unwrap_or(self.last));
        cx.log(Level::Info, BenchEvent::Result { count: self.bytes, ns: elapsed });
    }
}
