//! Clients and servers: commands of clients outside the group, each applied exactly once.
//!
//! Case A: the client asks all servers, each answers, the first answer counts. Case B: the client asks
//! one server, which casts inside the group and answers. A request is named by client and number; servers
//! keep the last answer for each client, so that a retry, to whatever server, is answered from the table
//! and not applied again. In case A one server, found from the name, casts; all do when it is said again.
//!
//! Answers are kept of the clients that were answered last. Which command of a client was applied last is never
//! forgotten (20 bytes for each slot): a retry whose answer is gone is refused as expired, by all servers alike since
//! it follows from the order, and is not applied again. Commands of an incarnation that is gone are not applied
//! either.
//!
//! Source: the client/server measurements of the thesis; client numbers and the table of answers follow
//! Ongaro, Ousterhout, *In search of an understandable consensus algorithm*, 2014, section 8.
//!
//! | type | message | body |
//! |---|---|---|
//! | 1460 | request | slot u32, incarnation u64, number u64, said again u8, case u8, command |
//! | 1461 | answer | number u64, position u64, result |
//! | 1462 | expired | number u64 |

use std::collections::{BTreeMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use itg_members::wire::{Put as _, Take};
use itg_members::{Id, MAX_SLOTS, Member};
use itg_process::{Ctx, Dest, Layer, Level, Message, Slot, TimerId};

use super::entry::MOST_PART;
use super::event::{CastEvent, ServiceEvent};
use super::interface::{CastDelivery, CastRequest, code};
use super::mutant::{Mutant, Planted};

/// Types of requests and answers.
const REQUEST: u32 = 1460;
const ANSWER: u32 = 1461;
const EXPIRED: u32 = 1462;
/// Clients whose last answer is kept: beyond, the oldest answer is forgotten.
const MOST_ANSWERS: usize = 65_536;
/// Commands that wait at a client.
const MOST_WAITING: usize = 1024;
/// Longest time after which a client asks again.
const MOST_PATIENCE: Duration = Duration::from_secs(3600);

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

/// The last command of a slot that was applied.
#[derive(Clone, Debug)]
struct Last {
    incarnation: u64,
    seq: u64,
    /// None once it is forgotten.
    answer: Option<Answer>,
}

#[derive(Clone, Debug)]
struct Answer {
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
        if client.slot.0 >= MAX_SLOTS {
            return None;
        }
        let case = if take.flag()? { Case::One } else { Case::All };
        Some(Self { client, seq, again, case, command: take.rest() })
    }
}

/// A server: stands above a broadcast.
pub struct Server {
    replicated: Box<dyn Replicated>,
    /// Number of servers: slots from 0.
    servers: u32,
    table: BTreeMap<Slot, Last>,
    /// Slots whose answers are kept, by their positions; no more than `most`.
    kept: BTreeMap<u64, Slot>,
    most: usize,
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
        let (table, kept) = (BTreeMap::new(), BTreeMap::new());
        let (asked, cast) = (BTreeMap::new(), BTreeMap::new());
        Self { replicated, servers, table, kept, most: MOST_ANSWERS, asked, cast, planted }
    }

    /// The same, keeping the last answers of so many clients instead of 65 536; all servers have the same number.
    #[must_use]
    pub fn keeping(self, answers: usize) -> Self {
        Self { most: answers.clamp(1, MOST_ANSWERS), ..self }
    }

    fn ask(ask: CastRequest, cx: &mut Ctx<'_>) {
        if let Some(message) = ask.message() {
            cx.down(message);
        }
    }

    fn answer(client: Slot, last: &Last, cx: &mut Ctx<'_>) {
        let mut out = BytesMut::new();
        out.put_u64_le(last.seq);
        let Some(answer) = &last.answer else {
            cx.sometimes(ServiceEvent::RefusedAsExpired);
            return cx.down(Message::new(client, EXPIRED, out.freeze()));
        };
        out.put_u64_le(answer.position);
        out.put_slice(&answer.result);
        cx.down(Message::new(client, ANSWER, out.freeze()));
    }

    /// What was applied last of this client, if that is this command or one behind it.
    fn applied(&self, client: Member, seq: u64) -> Option<&Last> {
        let last = self.table.get(&client.slot)?;
        let twice = self.planted.is(Mutant::RetryTwice)
            || self.planted.is(Mutant::ExpiredApplied) && last.answer.is_none();
        ((last.incarnation, last.seq) >= (client.incarnation, seq) && !twice).then_some(last)
    }

    /// The command of a client that is the last one now.
    fn remember(&mut self, client: Member, seq: u64, answer: Answer) {
        self.kept.insert(answer.position, client.slot);
        let last = Last { incarnation: client.incarnation, seq, answer: Some(answer) };
        let before = self.table.insert(client.slot, last).and_then(|last| last.answer);
        if let Some(answer) = before {
            self.kept.remove(&answer.position);
        }
        while self.kept.len() > self.most {
            let oldest = self.kept.pop_first();
            let last = oldest.and_then(|(_, slot)| self.table.get_mut(&slot));
            last.into_iter().for_each(|last| last.answer = None);
        }
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
        if let Some(last) = self.applied(client, request.seq) {
            if (last.incarnation, last.seq) == (client.incarnation, request.seq) {
                cx.sometimes(ServiceEvent::AnsweredFromTable);
                Self::answer(client.slot, last, cx);
            }
            return;
        }
        if self.planted.is(Mutant::StaleRead) && self.read_here(&request, cx) {
            return;
        }
        if self.asked.len() < MOST_ANSWERS {
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
        if self.applied(client, request.seq).is_some() {
            return cx.sometimes(ServiceEvent::OrderedTwice);
        }
        let result = self.replicated.apply(client, &request.command);
        let event = ServiceEvent::Applied { client: code(client), seq: request.seq, position };
        cx.log(Level::Info, event);
        self.remember(client, request.seq, Answer { position, result });
        if self.cast.get(&client).is_some_and(|seq| *seq <= request.seq) {
            self.cast.remove(&client);
        }
        let here = self.asked.get(&client).is_some_and(|seq| *seq == request.seq);
        if here || request.case == Case::All {
            self.asked.remove(&client);
            if let Some(last) = self.table.get(&client.slot) {
                Self::answer(client.slot, last, cx);
            }
        }
    }

    /// A planted fault: a command that changes nothing is answered from what this server happens to have.
    fn read_here(&mut self, request: &Request, cx: &mut Ctx<'_>) -> bool {
        let state = self.replicated.save();
        let result = self.replicated.apply(request.client, &request.command);
        let reads = self.replicated.save() == state;
        self.replicated.load(&state);
        if reads {
            let answer = Some(Answer { position: 0, result });
            let last = Last { incarnation: request.client.incarnation, seq: request.seq, answer };
            Self::answer(request.client.slot, &last, cx);
        }
        reads
    }

    fn save(&self) -> Bytes {
        let mut out = BytesMut::new();
        out.blob(&self.replicated.save());
        let table = match self.planted.is(Mutant::SnapshotWithoutClients) {
            true => &BTreeMap::new(),
            false => &self.table,
        };
        let kept = table.values().filter(|last| last.answer.is_some()).count();
        out.put_u32_le(u32::try_from(kept).unwrap_or(u32::MAX));
        for (slot, last) in table {
            if let Some(answer) = &last.answer {
                out.member(Member::new(*slot, last.incarnation));
                out.put_u64_le(last.seq);
                out.put_u64_le(answer.position);
                out.blob(&answer.result);
            }
        }
        // Those whose answers are forgotten; a state that was saved before there were any ends here.
        out.put_u32_le(u32::try_from(table.len() - kept).unwrap_or(u32::MAX));
        for (slot, last) in table.iter().filter(|(_, last)| last.answer.is_none()) {
            out.member(Member::new(*slot, last.incarnation));
            out.put_u64_le(last.seq);
        }
        out.freeze()
    }

    fn load(&mut self, state: Bytes) -> Option<()> {
        let mut take = Take::new(state);
        let state = take.blob(MOST_PART)?;
        let table = take.list(32, |take| {
            let (client, seq, position) = (take.member()?, take.u64()?, take.u64()?);
            Some((client, seq, Answer { position, result: take.blob(MOST_PART)? }))
        })?;
        let expired = match take.is_empty() {
            true => Vec::new(),
            false => {
                take.list_of(MAX_SLOTS as usize, 20, |take| Some((take.member()?, take.u64()?)))?
            }
        };
        take.end(())?;
        self.replicated.load(&state);
        (self.table, self.kept) = (BTreeMap::new(), BTreeMap::new());
        for (client, seq) in expired {
            let last = Last { incarnation: client.incarnation, seq, answer: None };
            self.table.insert(client.slot, last);
        }
        // Of a slot the last incarnation comes last.
        for (client, seq, answer) in table {
            self.remember(client, seq, answer);
        }
        Some(())
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
                | CastDelivery::Restored { .. }
                | CastDelivery::Expired(_),
            )
            | None => cx.up(message),
        }
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[REQUEST..=REQUEST]
    }
}

/// A client: one command at a time, others wait. A command whose answer no server has any more comes back as
/// [`CastDelivery::Expired`]; the next one is asked for then.
#[derive(Debug)]
pub struct Client {
    case: Case,
    servers: Arc<[Slot]>,
    /// Time after which it asks again.
    patience: Duration,
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
    pub fn new(case: Case, servers: u32, patience: Duration, direct: bool) -> Self {
        Self {
            case,
            servers: (0..servers).map(Slot).collect(),
            patience: patience.clamp(Duration::from_nanos(1), MOST_PATIENCE),
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
            self.timer = Some(cx.set_timer(cx.now() + self.patience));
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
        if !self.types().iter().any(|types| types.contains(&message.ty)) {
            return cx.up(message);
        }
        let expired = message.ty == EXPIRED;
        let mut take = Take::new(message.body);
        let position = |take: &mut Take| if expired { Some(0) } else { take.u64() };
        let Some((seq, position)) = take.u64().zip(position(&mut take)) else {
            return cx.log(Level::Warning, ServiceEvent::MalformedAnswer);
        };
        let Some(command) = self.command.take_if(|_| seq == self.seq) else { return };
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        let origin = Member::new(cx.me(), cx.incarnation());
        let client = code(origin);
        let tell = if expired {
            cx.log(Level::Warning, ServiceEvent::Expired { client, seq });
            CastDelivery::Expired(command)
        } else {
            cx.log(Level::Info, ServiceEvent::Answered { client, seq, position });
            CastDelivery::Message { position, id: Id { origin, seq }, payload: take.rest() }
        };
        cx.up(tell.message(cx.me()));
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
        &[ANSWER..=EXPIRED]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Replicated for Nothing {
        fn apply(&mut self, _client: Member, command: &Bytes) -> Bytes {
            command.clone()
        }

        fn save(&self) -> Bytes {
            Bytes::from_static(b"state")
        }

        fn load(&mut self, state: &Bytes) {
            assert_eq!(&state[..], b"state");
        }
    }

    fn server() -> Server {
        Server::new(Box::new(Nothing), 3, Planted::default()).keeping(2)
    }

    #[test]
    fn what_was_applied_last_of_a_client_outlives_its_answer_and_snapshots() {
        let mut server = server();
        for slot in 0..4 {
            let (position, result) = (slot.into(), Bytes::from_static(b"yes"));
            server.remember(Member::new(Slot(slot), 3), 7, Answer { position, result });
        }
        let mut other = self::server();
        other.load(server.save()).expect("a state");
        for server in [server, other] {
            let last = |slot, incarnation, seq| {
                let last = server.applied(Member::new(Slot(slot), incarnation), seq);
                last.map(|last| last.answer.is_some())
            };
            assert_eq!(
                [0, 1, 2, 3].map(|slot| last(slot, 3, 7)),
                [false, false, true, true].map(Some)
            );
            // The next command, that of the next incarnation, and one of an incarnation that is gone.
            assert_eq!([last(0, 3, 8), last(0, 4, 1), last(0, 2, 9)], [None, None, Some(false)]);
        }
    }

    #[test]
    fn a_state_of_the_time_before_answers_were_forgotten_is_read() {
        let mut server = server();
        let result = Bytes::from_static(b"yes");
        server.remember(Member::new(Slot(5), 1), 9, Answer { position: 4, result });
        let saved = server.save();
        // Without the list of those whose answers are forgotten.
        let old = saved.slice(..saved.len() - 4);
        let mut other = self::server();
        other.load(old).expect("a state");
        assert!(
            other.applied(Member::new(Slot(5), 1), 9).is_some_and(|last| last.answer.is_some())
        );
        assert_eq!(other.load(saved.slice(..saved.len() - 1)), None);
    }
}
