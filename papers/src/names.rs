//! The two layers of the thesis under its own names, for algorithms and applications that are written as it writes
//! them: one thread of control, which sends, receives by type, broadcasts and delivers.
//!
//! Each stands on the [`ActiveCx`] of an active layer, so that what is written runs unchanged in simulation and on
//! sockets. Only the first layer differs between transports, as in the thesis.
//!
//! | the thesis | here |
//! |---|---|
//! | FirstLayer: connect, send, receive(type) | [`FirstLayer::connect`], [`send`](FirstLayer::send), [`receive`](FirstLayer::receive) |
//! | RBroadcast, RDeliver | [`r_broadcast`](FirstLayer::r_broadcast), [`r_deliver`](FirstLayer::r_deliver): plain broadcast, as in its failure-free runs; in no order and under crashes: the layers `reliable-…` |
//! | getTime, setTime, getServerNum | [`get_time`](FirstLayer::get_time), [`set_time`](FirstLayer::set_time), [`get_server_num`](FirstLayer::get_server_num) |
//! | emptyBuffers(ts) | [`empty_buffers`](FirstLayer::empty_buffers) |
//! | SecondLayer: connect, TOBroadcast, TODeliver | [`SecondLayer::connect`], [`to_broadcast`](SecondLayer::to_broadcast), [`to_deliver`](SecondLayer::to_deliver), above any broadcast |
//! | SendRequest, GetReply | [`ClientLayer::send_request`], [`get_reply`](ClientLayer::get_reply), above the layer `client` |
//! | WaitForRequest, SendReply | argument and result of [`Replicated::apply`](itg_group::cast::service::Replicated::apply) below the layer `server` |
//!
//! Its message `Type : Body : Timestamp : Sender` is a message of that type with the time in front of its body.

use std::collections::{BTreeMap, VecDeque};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use itg_group::cast::{CastDelivery, CastRequest};
use itg_process::{ActiveCx, Dest, Level, Message, RuntimeEvent, Slot, layer_events};

layer_events! {
    /// Events of the layers.
    pub enum NamesEvent {
        /// Message dropped, as too many wait until the layer takes their type.
        BufferFull { ty: u32 } = "buffer full",
    }
}

/// Messages that wait to be received by type; more are dropped, which the event `buffer full` says.
pub const MOST_BUFFERED: usize = 65_536;

/// A message of the first layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Typed {
    /// Type, 0 to 899.
    pub ty: u32,
    /// Its content.
    pub body: Bytes,
    /// The sender's time when it was sent.
    pub time: u64,
    /// Process that sent it.
    pub sender: Slot,
}

/// The first layer: messages between processes, and a logical clock that the algorithm keeps.
#[derive(Debug)]
pub struct FirstLayer {
    cx: ActiveCx,
    buffers: BTreeMap<u32, VecDeque<Typed>>,
    waiting: usize,
    time: u64,
}

impl FirstLayer {
    /// The first layer of this process.
    #[must_use]
    pub const fn connect(cx: ActiveCx) -> Self {
        Self { cx, buffers: BTreeMap::new(), waiting: 0, time: 0 }
    }

    /// Active layer below: time, randomness, events.
    pub const fn active(&mut self) -> &mut ActiveCx {
        &mut self.cx
    }

    /// This process's address.
    #[must_use]
    pub fn me(&self) -> Slot {
        self.cx.me()
    }

    /// Number of processes.
    #[must_use]
    pub fn get_server_num(&self) -> u32 {
        self.cx.n()
    }

    /// The logical time: messages carry it.
    #[must_use]
    pub const fn get_time(&self) -> u64 {
        self.time
    }

    /// Sets the logical time.
    pub const fn set_time(&mut self, time: u64) {
        self.time = time;
    }

    fn put(&mut self, to: Dest, ty: u32, body: &[u8]) {
        let mut bytes = BytesMut::with_capacity(8 + body.len());
        bytes.put_u64_le(self.time);
        bytes.put_slice(body);
        self.cx.send(Message::new(to, ty, bytes.freeze()));
    }

    /// Sends a message to one process, which may be this one.
    pub fn send(&mut self, to: Slot, ty: u32, body: &[u8]) {
        self.put(Dest::One(to), ty, body);
    }

    /// Sends a message to all processes, this one included.
    pub fn r_broadcast(&mut self, ty: u32, body: &[u8]) {
        self.put(Dest::All, ty, body);
    }

    /// The next message of this type, however long it takes; messages of other types wait.
    pub async fn receive(&mut self, ty: u32) -> Typed {
        self.receive_any(&[ty]).await
    }

    /// The next message of any of these types.
    pub async fn receive_any(&mut self, types: &[u32]) -> Typed {
        loop {
            for ty in types {
                if let Some(found) = self.buffers.get_mut(ty).and_then(VecDeque::pop_front) {
                    self.waiting -= 1;
                    return found;
                }
            }
            let mut message = self.cx.receive().await;
            let Ok(time) = message.body.try_get_u64_le() else {
                let event = RuntimeEvent::MalformedMessage { ty: message.ty };
                self.cx.log(Level::Warning, event);
                continue;
            };
            let Message { ty, body, src: sender, .. } = message;
            if self.waiting >= MOST_BUFFERED {
                self.cx.log(Level::Warning, NamesEvent::BufferFull { ty });
                continue;
            }
            self.waiting += 1;
            self.buffers.entry(ty).or_default().push_back(Typed { ty, body, time, sender });
        }
    }

    /// The next message of this type that was broadcast.
    pub async fn r_deliver(&mut self, ty: u32) -> Typed {
        self.receive(ty).await
    }

    /// Forgets what waits and was sent before this time.
    pub fn empty_buffers(&mut self, before: u64) {
        for buffer in self.buffers.values_mut() {
            buffer.retain(|message| message.time >= before);
        }
        self.buffers.retain(|_, buffer| !buffer.is_empty());
        self.waiting = self.buffers.values().map(VecDeque::len).sum();
    }
}

/// Message that the second layer delivers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// Its place in the order, from 0.
    pub position: u64,
    /// Process that cast it.
    pub sender: Slot,
    /// Its content.
    pub body: Bytes,
}

/// The second layer: ordered broadcast, whichever layer is below. A process that joins later begins with what is
/// delivered from then on: the application of the thesis has no state to take over.
#[derive(Debug)]
pub struct SecondLayer {
    cx: ActiveCx,
}

impl SecondLayer {
    /// The second layer of this process.
    #[must_use]
    pub const fn connect(cx: ActiveCx) -> Self {
        Self { cx }
    }

    /// Active layer below: time, randomness, events.
    pub const fn active(&mut self) -> &mut ActiveCx {
        &mut self.cx
    }

    /// Number of processes.
    #[must_use]
    pub fn get_server_num(&self) -> u32 {
        self.cx.n()
    }

    /// Casts a message to all processes.
    pub fn to_broadcast(&mut self, body: impl Into<Bytes>) {
        cast(&mut self.cx, body.into());
    }

    /// The next message in the order.
    ///
    /// # Errors
    /// A message that was not cast: the window is full, or it is too long.
    pub async fn to_deliver(&mut self) -> Result<Ordered, Bytes> {
        next(&mut self.cx).await
    }
}

/// A client outside the group: stands above the layer `client`.
#[derive(Debug)]
pub struct ClientLayer {
    cx: ActiveCx,
}

impl ClientLayer {
    /// The client's side of this process.
    #[must_use]
    pub const fn connect(cx: ActiveCx) -> Self {
        Self { cx }
    }

    /// Active layer below: time, randomness, events.
    pub const fn active(&mut self) -> &mut ActiveCx {
        &mut self.cx
    }

    /// Asks the servers.
    pub fn send_request(&mut self, body: impl Into<Bytes>) {
        cast(&mut self.cx, body.into());
    }

    /// The first answer to the oldest request that has none.
    ///
    /// # Errors
    /// A request that was not sent: too many wait.
    pub async fn get_reply(&mut self) -> Result<Bytes, Bytes> {
        next(&mut self.cx).await.map(|answer| answer.body)
    }
}

fn cast(cx: &mut ActiveCx, body: Bytes) {
    if let Some(message) = CastRequest::Cast(body).message() {
        cx.send(message);
    }
}

async fn next(cx: &mut ActiveCx) -> Result<Ordered, Bytes> {
    loop {
        match CastDelivery::take(cx.receive().await) {
            Some(CastDelivery::Message { position, id, payload }) => {
                return Ok(Ordered { position, sender: id.origin.slot, body: payload });
            }
            Some(CastDelivery::Busy(body)) => return Err(body),
            Some(CastDelivery::Checkpoint { position }) => {
                if let Some(message) = CastRequest::State(position, Bytes::new()).message() {
                    cx.send(message);
                }
            }
            _ => {}
        }
    }
}
