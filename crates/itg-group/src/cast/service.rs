//! Clients and servers: commands of clients outside the group, each applied exactly once.
//!
//! Case A: the client asks all servers, each answers, the first answer counts. Case B: the client asks
//! one server, which casts inside the group and answers. A request is named by client and number; servers
//! keep the last answer for each client, so that a retry, to whatever server, is answered from the table
//! and not applied again. In case A one server, found from the name, casts; all do when it is said again.
//!
//! Source: the client/server measurements of the thesis; client numbers and the table of answers follow
//! Ongaro, Ousterhout, *In search of an understandable consensus algorithm*, 2014, section 8.
//!
//! | type | message | body |
//! |---|---|---|
//! | 1460 | request | slot u32, incarnation u64, number u64, said again u8, case u8, command |
//! | 1461 | answer | number u64, position u64, result |

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_process::{Ctx, Dest, Layer, Level, Message, SECOND, Slot, TimerId};

use super::entry::{Id, MOST_PART, Put as _, Take};
use super::event::{CastEvent, ServiceEvent};
use super::interface::{CastDelivery, CastRequest, code};
use super::mutant::{Mutant, Planted};
use crate::member::Member;

/// Types of requests and answers.
const REQUEST: u32 = 1460;
const ANSWER: u32 = 1461;
/// Clients that a server remembers; beyond, those are forgotten that have been silent for longest.
const MOST_CLIENTS: usize = 65_536;
/// Commands that wait at a client.
const MOST_WAITING: usize = 1024;

/// Replicated service: a deterministic function of the commands, in their order.
pub trait Replicated: Send {
    /// Applies a command of this client; returns its answer.
    fn apply(&mut self, client: Member, command: &Bytes) -> Bytes;
    /// The state as bytes.
    fn save(&self) -> Bytes;
    /// Takes over a state.
    fn load(&mut self, state: &Bytes);
}

/// Servers that a client asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Case {
    /// All servers.
    All,
    /// One server; the next one when it does not answer.
    One,
}

/// The last command of a client.
#[derive(Clone, Debug)]
struct Done {
    seq: u64,
    position: u64,
    result: Bytes,
}

struct Request {
    client: Member,
    seq: u64,
    again: bool,
    case: Case,
    command: Bytes,
}

impl Request {
    fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.member(self.client);
        out.put_u64_le(self.seq);
        out.put_u8(self.again.into());
        out.put_u8((self.case == Case::One).into());
        out.put_slice(&self.command);
        out.freeze()
    }

    fn decode(body: &Bytes) -> Option<Self> {
        let mut take = Take::new(body.clone());
        let (client, seq, again) = (take.member()?, take.u64()?, take.flag()?);
        let case = if take.flag()? { Case::One } else { Case::All };
        Some(Self { client, seq, again, case, command: take.rest() })
    }
}

/// A server: stands above a broadcast.
pub struct Server {
    replicated: Box<dyn Replicated>,
    /// Number of servers: slots from 0.
    servers: u32,
    table: BTreeMap<Member, Done>,
    /// Clients that asked this server, and the number of their request.
    asked: BTreeMap<Member, u64>,
    /// Requests that were cast here and not delivered yet.
    cast: BTreeMap<Member, u64>,
    planted: Planted,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("clients", &self.table.len()).finish_non_exhaustive()
    }
}

impl Server {
    /// One of `servers`, which all hold the same.
    #[must_use]
    pub fn new(replicated: Box<dyn Replicated>, servers: u32, planted: Planted) -> Self {
        let (table, asked, cast) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Self { replicated, servers, table, asked, cast, planted }
    }

    fn ask(ask: CastRequest, cx: &mut Ctx<'_>) {
        if let Some(message) = ask.message() {
            cx.down(message);
        }
    }

    fn answer(client: Member, done: &Done, cx: &mut Ctx<'_>) {
        let mut out = BytesMut::new();
        out.put_u64_le(done.seq);
        out.put_u64_le(done.position);
        out.put_slice(&done.result);
        cx.down(Message::new(client.slot, ANSWER, out.freeze()));
    }

    /// Returns true if this server casts the request: of one that went to all, only the server
    /// found from its name does, until it is sent again.
    fn casts(&self, request: &Request, me: Slot) -> bool {
        let at = (u64::from(request.client.slot.0) + request.seq) % u64::from(self.servers.max(1));
        request.again || request.case == Case::One || at == u64::from(me.0)
    }

    fn request(&mut self, body: &Bytes, cx: &mut Ctx<'_>) {
        let Some(request) = Request::decode(body) else {
            return cx.log(Level::Warning, ServiceEvent::MalformedRequest);
        };
        let client = request.client;
        if let Some(done) = self.table.get(&client).filter(|done| done.seq >= request.seq)
            && !self.planted.is(Mutant::RetryTwice)
        {
            if done.seq == request.seq {
                cx.sometimes(ServiceEvent::AnsweredFromTable);
                Self::answer(client, done, cx);
            }
            return;
        }
        if self.asked.len() < MOST_CLIENTS {
            self.asked.insert(client, request.seq);
        }
        let under_way = self.cast.get(&client).is_some_and(|seq| *seq >= request.seq);
        if self.casts(&request, cx.me()) && (!under_way || request.again) {
            self.cast.insert(client, request.seq);
            Self::ask(CastRequest::Cast(request.encode()), cx);
        }
    }

    fn ordered(&mut self, position: u64, payload: &Bytes, cx: &mut Ctx<'_>) {
        let Some(request) = Request::decode(payload) else { return };
        let client = request.client;
        let last = self.table.get(&client).map(|done| done.seq);
        if last.is_some_and(|last| last >= request.seq) && !self.planted.is(Mutant::RetryTwice) {
            return cx.sometimes(ServiceEvent::OrderedTwice);
        }
        let result = self.replicated.apply(client, &request.command);
        let event = ServiceEvent::Applied { client: code(client), seq: request.seq, position };
        cx.log(Level::Info, event);
        let done = Done { seq: request.seq, position, result };
        if self.cast.get(&client).is_some_and(|seq| *seq <= request.seq) {
            self.cast.remove(&client);
        }
        let here = self.asked.get(&client).is_some_and(|seq| *seq == request.seq);
        if here || request.case == Case::All {
            self.asked.remove(&client);
            Self::answer(client, &done, cx);
        }
        self.table.insert(client, done);
        if self.table.len() > MOST_CLIENTS {
            let silent = self.table.iter().min_by_key(|(_, done)| done.position);
            if let Some(client) = silent.map(|(client, _)| *client) {
                self.table.remove(&client);
            }
        }
    }

    fn save(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.blob(&self.replicated.save());
        let table = match self.planted.is(Mutant::SnapshotWithoutClients) {
            true => &BTreeMap::new(),
            false => &self.table,
        };
        out.put_u32_le(u32::try_from(table.len()).unwrap_or(u32::MAX));
        for (client, done) in table {
            out.member(*client);
            out.put_u64_le(done.seq);
            out.put_u64_le(done.position);
            out.blob(&done.result);
        }
        out.freeze()
    }

    fn load(&mut self, state: Bytes) -> Option<()> {
        let mut take = Take::new(state);
        let state = take.blob(MOST_PART)?;
        let table = take.list(32, |take| {
            let (client, seq, position) = (take.member()?, take.u64()?, take.u64()?);
            Some((client, Done { seq, position, result: take.blob(MOST_PART)? }))
        })?;
        self.replicated.load(&state);
        self.table = table.into_iter().collect();
        take.end(())
    }
}

impl Layer for Server {
    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty == REQUEST {
            return self.request(&message.body, cx);
        }
        match CastDelivery::from_message(&message) {
            Some(CastDelivery::Message { position, payload, .. }) => {
                self.ordered(position, &payload, cx)
            }
            Some(CastDelivery::Checkpoint { position }) => {
                Self::ask(CastRequest::State(position, self.save()), cx);
            }
            Some(CastDelivery::Install { state, .. }) => {
                if self.load(state).is_none() {
                    cx.log(Level::Error, CastEvent::UnreadableSnapshot);
                }
            }
            // The client asks again.
            Some(CastDelivery::Busy(_)) => self.cast.clear(),
            Some(
                CastDelivery::View { .. }
                | CastDelivery::Excluded { .. }
                | CastDelivery::Restored { .. },
            )
            | None => cx.up(message),
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[REQUEST..=REQUEST]
    }
}

/// A client: one command at a time, others wait.
#[derive(Debug)]
pub struct Client {
    case: Case,
    servers: Arc<[Slot]>,
    /// Nanoseconds after which it asks again.
    patience: u64,
    /// Commands are cast into the group by the broadcast below: the failure-free case A.
    direct: bool,
    seq: u64,
    command: Option<Bytes>,
    tries: u32,
    timer: Option<TimerId>,
    waiting: VecDeque<Bytes>,
}

impl Client {
    /// A client of the servers at the slots from 0. A `direct` one casts into the group itself, by the
    /// failure-free broadcast below it, and never asks again.
    #[must_use]
    pub fn new(case: Case, servers: u32, patience: u64, direct: bool) -> Self {
        Self {
            case,
            servers: (0..servers).map(Slot).collect(),
            patience: patience.clamp(1, 3600 * SECOND),
            direct,
            seq: 0,
            command: None,
            tries: 0,
            timer: None,
            waiting: VecDeque::new(),
        }
    }

    fn say(&mut self, cx: &mut Ctx<'_>) {
        let Some(command) = self.command.clone() else { return };
        let client = Member::new(cx.me(), cx.incarnation());
        let (seq, again, case) = (self.seq, self.tries > 0, self.case);
        let body = Request { client, seq, again, case, command }.encode();
        if self.direct && self.case == Case::All {
            Server::ask(CastRequest::Cast(body), cx);
            return;
        }
        let to = match self.case {
            Case::All => Dest::Many(Arc::clone(&self.servers)),
            Case::One => {
                let first = cx.me().index() + usize::try_from(self.seq).unwrap_or(0);
                let at = (first + self.tries as usize) % self.servers.len().max(1);
                Dest::One(self.servers.get(at).copied().unwrap_or_default())
            }
        };
        cx.down(Message::new(to, REQUEST, body));
        if !self.direct {
            self.timer = Some(cx.set_timer_after(self.patience));
        }
    }

    fn next(&mut self, cx: &mut Ctx<'_>) {
        if self.command.is_none()
            && let Some(command) = self.waiting.pop_front()
        {
            self.command = Some(command);
            self.seq += 1;
            self.tries = 0;
            let client = Member::new(cx.me(), cx.incarnation());
            cx.log(Level::Info, ServiceEvent::Asked { client: code(client), seq: self.seq });
            self.say(cx);
        }
    }
}

impl Layer for Client {
    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        match CastRequest::from_message(message) {
            Ok(CastRequest::Cast(command)) if self.waiting.len() < MOST_WAITING => {
                self.waiting.push_back(command);
                self.next(cx);
            }
            Ok(CastRequest::Cast(command)) => cx.up(CastDelivery::Busy(command).message(cx.me())),
            Ok(_) => {}
            Err(message) => cx.down(message),
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if message.ty != ANSWER {
            return cx.up(message);
        }
        let mut take = Take::new(message.body);
        let (Some(seq), Some(position)) = (take.u64(), take.u64()) else {
            return cx.log(Level::Warning, ServiceEvent::MalformedAnswer);
        };
        if seq != self.seq || self.command.take().is_none() {
            return;
        }
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        let origin = Member::new(cx.me(), cx.incarnation());
        cx.log(Level::Info, ServiceEvent::Answered { client: code(origin), seq, position });
        let id = Id { origin, seq };
        cx.up(CastDelivery::Message { position, id, payload: take.rest() }.message(cx.me()));
        self.next(cx);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        self.timer = None;
        if self.command.is_some() {
            self.tries = self.tries.saturating_add(1);
            cx.sometimes(ServiceEvent::AskedAgain);
            self.say(cx);
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[ANSWER..=ANSWER]
    }
}
