//! Load of the ordered broadcasts: the closed system of the thesis, and its clients and servers.

use std::time::Duration;

use bytes::Bytes;
use itg_group::Member;
use itg_group::cast::service::{Case, Client, Replicated, Server};
use itg_group::cast::{self, CastDelivery, CastRequest, Planted};
use itg_process::{
    Build, Ctx, Layer, Level, Message, Registry, Slot, StopReason, Time, layer_events,
};

layer_events! {
    /// Results of the layers.
    pub(crate) enum LoadEvent {
        /// Rounds, nanoseconds of all of them, and of half of them at most each.
        Result { count: u64, ns: u64, p50: u64 } = "result",
    }
}

/// Bytes of a message, as in the thesis.
pub(crate) const SIZE: usize = 100;

fn cast(round: u64, cx: &mut Ctx<'_>) {
    let mut body = vec![7; SIZE];
    body[..8].copy_from_slice(&round.to_le_bytes());
    if let Some(message) = CastRequest::Cast(body.into()).message() {
        cx.down(message);
    }
}

/// Times from one round to the next; those that warm up are not counted.
#[derive(Debug, Default)]
struct Times {
    warm_up: u64,
    last: Option<Time>,
    gaps: Vec<u64>,
}

impl Times {
    fn mark(&mut self, round: u64, now: Time) {
        if round >= self.warm_up
            && let Some(last) = self.last.replace(now)
        {
            self.gaps.push(now.since(last));
        }
    }

    fn tell(&mut self, cx: &mut Ctx<'_>) {
        self.gaps.sort_unstable();
        let p50 = self.gaps.get(self.gaps.len() / 2).copied().unwrap_or(0);
        let (count, ns) = (self.gaps.len() as u64, self.gaps.iter().sum());
        cx.log(Level::Info, LoadEvent::Result { count, ns, p50 });
    }
}

/// In round r process r mod n casts, and all deliver.
struct Rounds {
    rounds: u64,
    members: u64,
    times: Times,
}

impl Rounds {
    fn turn(&self, round: u64, cx: &mut Ctx<'_>) {
        if round % self.members == u64::from(cx.me().0) {
            cast(round, cx);
        }
    }
}

impl Layer for Rounds {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        self.turn(0, cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let Some(CastDelivery::Message { payload, .. }) = CastDelivery::take(message) else {
            return;
        };
        let Some(round) = payload.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return;
        };
        self.times.mark(round, cx.now());
        if round < self.rounds + self.times.warm_up {
            self.turn(round + 1, cx);
        } else if cx.me() == Slot(0) {
            self.times.tell(cx);
            cx.shutdown(StopReason::Finished);
        }
    }
}

/// A client that asks, waits for the first answer and asks again.
struct Asker {
    rounds: u64,
    round: u64,
    times: Times,
}

impl Layer for Asker {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cast(0, cx);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if !matches!(CastDelivery::take(message), Some(CastDelivery::Message { .. })) {
            return;
        }
        self.times.mark(self.round, cx.now());
        self.round += 1;
        if self.round <= self.rounds + self.times.warm_up {
            cast(self.round, cx);
        } else {
            cx.shutdown(StopReason::Finished);
        }
    }

    /// It is done, or another client was faster.
    fn on_stop(&mut self, _why: StopReason, cx: &mut Ctx<'_>) {
        self.times.tell(cx);
    }
}

/// A replicated service without a state: it answers with the first bytes of the command.
struct Echo;

impl Replicated for Echo {
    fn apply(&mut self, _client: Member, command: &Bytes) -> Bytes {
        command.slice(..command.len().min(8))
    }

    fn save(&self) -> Bytes {
        Bytes::new()
    }

    fn load(&mut self, _state: &Bytes) {}
}

fn times(build: &mut Build<'_>) -> Result<(u64, Times), itg_process::ConfigError> {
    let rounds = build.params.number("rounds", 1000)?;
    Ok((rounds, Times { warm_up: (rounds / 5).max(1), ..Times::default() }))
}

/// The broadcasts of `itg-group`, and what stands above them.
pub(crate) fn registry() -> Registry {
    let servers = |build: &mut Build<'_>| -> Result<u32, itg_process::ConfigError> {
        let servers = build.params.number("servers", build.n.into())?;
        Ok(u32::try_from(servers).unwrap_or(u32::MAX))
    };
    cast::layers(Registry::new(), Planted::default())
        .with("rounds", |build| {
            let (rounds, times) = times(build)?;
            Ok(Box::new(Rounds { rounds, members: build.n.into(), times }))
        })
        .with("asker", |build| {
            let (rounds, times) = times(build)?;
            Ok(Box::new(Asker { rounds, round: 0, times }))
        })
        .with("server", move |build| {
            let servers = servers(build)?;
            Ok(Box::new(Server::new(Box::new(Echo), servers, Planted::default())))
        })
        .with("client", move |build| {
            // Case A casts into the group itself, by the broadcast below; case B asks one server.
            let direct = build.params.flag("direct", false)?;
            let case = if direct { Case::All } else { Case::One };
            Ok(Box::new(Client::new(case, servers(build)?, Duration::from_secs(10), direct)))
        })
}
