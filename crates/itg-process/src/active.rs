//! Active layers: an `async fn` with an inbox, which pulls its messages.
//!
//! The only things an active layer may await are [`ActiveCx::receive`], [`ActiveCx::receive_for`] and
//! [`ActiveCx::sleep_until`]; the runtime panics when it awaits anything else, because nothing else
//! would be the same on real networks and in simulation. The inbox is first in, first out. On equal
//! times a queued message wins over the time-out. Sleeping cannot be interrupted: what arrives
//! meanwhile waits in the inbox. It begins when the whole application starts.
//!
//! ```
//! use itg_process::{Active, ActiveCx, Message};
//!
//! async fn echo(mut cx: ActiveCx) {
//!     loop {
//!         let question = cx.receive().await;
//!         cx.send(Message::new(question.src, 2, question.body));
//!     }
//! }
//! let layer = Active::new(echo);
//! # drop(layer);
//! ```

use std::any::Any;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use chacha20::ChaCha8Rng;
use rand::SeedableRng as _;

use crate::core::TimerId;
use crate::event::{Event, LayerEvent, Level, RuntimeEvent};
use crate::layer::{Ctx, Layer};
use crate::message::{Message, NetId, Slot, Time};
use crate::network::{Network, network};
use crate::output::StopReason;

/// Messages that an inbox holds; more are dropped and counted in the event `inbox full`.
pub const MOST_IN_INBOX: usize = 65_536;

type Running = Pin<Box<dyn Future<Output = ()> + Send>>;
type Handler = Box<dyn FnMut(Message, &mut Ctx<'_>) -> Option<Message> + Send>;
type Body = Box<dyn FnOnce(ActiveCx) -> Running + Send>;

/// Condition that an active layer waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    Nothing,
    Message(Option<Time>),
    Until(Time),
}

enum Action {
    Down(Message),
    Up(Message),
    Call(String, Box<dyn Any + Send>),
    Log(Event),
    Shutdown(StopReason),
}

struct Shared {
    now: Time,
    me: Slot,
    n: u32,
    incarnation: u64,
    config: Arc<toml::Table>,
    networks: Arc<[Network]>,
    inbox: VecDeque<Message>,
    wait: Wait,
    actions: Vec<Action>,
    rng: ChaCha8Rng,
}

/// An active layer.
pub struct Active {
    shared: Arc<Mutex<Shared>>,
    body: Option<Body>,
    running: Option<Running>,
    handler: Option<Handler>,
    send_handler: Option<Handler>,
    timer: Option<TimerId>,
}

impl Active {
    /// A layer that runs this function from the start of the application; when it returns, the layer
    /// passes nothing up any more.
    pub fn new<F, R>(body: F) -> Self
    where
        F: FnOnce(ActiveCx) -> R + Send + 'static,
        R: Future<Output = ()> + Send + 'static,
    {
        let shared = Arc::new(Mutex::new(Shared {
            now: Time::ZERO,
            me: Slot(0),
            n: 0,
            incarnation: 0,
            config: Arc::default(),
            networks: Arc::default(),
            inbox: VecDeque::new(),
            wait: Wait::Nothing,
            actions: Vec::new(),
            // Replaced by the layer's own stream when it starts.
            rng: ChaCha8Rng::from_seed([0; 32]),
        }));
        let body: Body = Box::new(move |cx| Box::pin(body(cx)));
        let body = Some(body);
        Self { shared, body, running: None, handler: None, send_handler: None, timer: None }
    }

    /// Lets this function see each message first, at once; what it returns goes to the inbox.
    #[must_use]
    pub fn with_deliver<F>(mut self, handler: F) -> Self
    where
        F: FnMut(Message, &mut Ctx<'_>) -> Option<Message> + Send + 'static,
    {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Lets this function see each message that the layer above sends; what it returns goes down.
    #[must_use]
    pub fn with_send<F>(mut self, handler: F) -> Self
    where
        F: FnMut(Message, &mut Ctx<'_>) -> Option<Message> + Send + 'static,
    {
        self.send_handler = Some(Box::new(handler));
        self
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// Lets the function run until it waits, then does what it asked for.
    fn poll(&mut self, cx: &mut Ctx<'_>) {
        let Some(running) = &mut self.running else { return };
        {
            let mut shared = lock(&self.shared);
            shared.now = cx.now();
            shared.n = cx.n();
            shared.wait = Wait::Nothing;
        }
        let waker = Waker::from(Arc::new(NoWaker));
        let done = running.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let (actions, wait) = {
            let mut shared = self.shared();
            (std::mem::take(&mut shared.actions), shared.wait)
        };
        for action in actions {
            match action {
                Action::Down(message) => cx.down(message),
                Action::Up(message) => cx.up(message),
                Action::Call(layer, what) => cx.call(&layer, what),
                Action::Log(event) => cx.pass(event),
                Action::Shutdown(why) => cx.shutdown(why),
            }
        }
        if let Some(timer) = self.timer.take() {
            cx.cancel(timer);
        }
        if done {
            self.running = None;
            return;
        }
        self.timer = match wait {
            Wait::Message(None) => None,
            Wait::Message(Some(at)) | Wait::Until(at) => Some(cx.set_timer(at)),
            Wait::Nothing => {
                panic!("an active layer awaits something else than receive or sleep")
            }
        };
    }
}

impl std::fmt::Debug for Active {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Active").field("running", &self.running.is_some()).finish_non_exhaustive()
    }
}

impl Layer for Active {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        if let Some(body) = self.body.take() {
            {
                let mut shared = self.shared();
                shared.rng = cx.rng().clone_stream();
                shared.me = cx.me();
                shared.incarnation = cx.incarnation();
                shared.config = Arc::clone(&cx.core.config);
                shared.networks = Arc::clone(&cx.core.networks);
            }
            self.running = Some(body(ActiveCx { shared: Arc::clone(&self.shared) }));
            self.poll(cx);
        }
    }

    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let message = match &mut self.send_handler {
            Some(handler) => handler(message, cx),
            None => Some(message),
        };
        if let Some(message) = message {
            cx.down(message);
        }
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let message = match &mut self.handler {
            Some(handler) => handler(message, cx),
            None => Some(message),
        };
        let Some(message) = message else { return };
        let wait = {
            let mut shared = self.shared();
            if shared.inbox.len() >= MOST_IN_INBOX {
                cx.log(Level::Warning, RuntimeEvent::InboxFull { ty: message.ty });
                return;
            }
            shared.inbox.push_back(message);
            shared.wait
        };
        if matches!(wait, Wait::Message(_)) {
            self.poll(cx);
        }
    }

    fn timer(&mut self, id: TimerId, cx: &mut Ctx<'_>) {
        if self.timer == Some(id) {
            self.timer = None;
            self.poll(cx);
        }
    }
}

trait CloneStream {
    fn clone_stream(&self) -> Self;
}

impl CloneStream for ChaCha8Rng {
    fn clone_stream(&self) -> Self {
        let mut rng = Self::from_seed(self.get_seed());
        rng.set_stream(self.get_stream());
        rng.set_word_pos(self.get_word_pos());
        rng
    }
}

/// A waker that does nothing: the runtime polls when a message or a timer comes.
struct NoWaker;

impl Wake for NoWaker {
    fn wake(self: Arc<Self>) {}
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Context of the function of an active layer.
pub struct ActiveCx {
    shared: Arc<Mutex<Shared>>,
}

impl std::fmt::Debug for ActiveCx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ActiveCx").finish_non_exhaustive()
    }
}

impl ActiveCx {
    fn shared(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }

    /// The time, on this process's monotonic clock.
    #[must_use]
    pub fn now(&self) -> Time {
        self.shared().now
    }

    /// Address of this process.
    #[must_use]
    pub fn me(&self) -> Slot {
        self.shared().me
    }

    /// Number of processes in the view.
    #[must_use]
    pub fn n(&self) -> u32 {
        self.shared().n
    }

    /// Incarnation of this process in its slot, from 1.
    #[must_use]
    pub fn incarnation(&self) -> u64 {
        self.shared().incarnation
    }

    /// The tables of the configuration that are for layers.
    #[must_use]
    pub fn config(&self) -> Arc<toml::Table> {
        Arc::clone(&self.shared().config)
    }

    /// The network of this name.
    #[must_use]
    pub fn network(&self, name: &str) -> Option<NetId> {
        network(&self.shared().networks, name)
    }

    /// Calls another layer of this process, which understands it or not.
    pub fn call(&mut self, layer: &str, what: Box<dyn Any + Send>) {
        self.shared().actions.push(Action::Call(layer.to_owned(), what));
    }

    /// Works with the random stream of this layer.
    pub fn with_rng<R>(&mut self, draw: impl FnOnce(&mut ChaCha8Rng) -> R) -> R {
        draw(&mut self.shared().rng)
    }

    /// Sends a message through the layer below.
    pub fn send(&mut self, message: Message) {
        self.shared().actions.push(Action::Down(message));
    }

    /// Delivers a message to the layer above.
    pub fn deliver(&mut self, message: Message) {
        self.shared().actions.push(Action::Up(message));
    }

    /// Logs an event, for traces and checkers.
    pub fn log(&mut self, level: Level, event: impl LayerEvent) {
        self.shared().actions.push(Action::Log(Event::new(level, event)));
    }

    /// Stops all processes.
    pub fn shutdown(&mut self, why: StopReason) {
        self.shared().actions.push(Action::Shutdown(why));
    }

    /// The next message, however long it takes.
    pub async fn receive(&mut self) -> Message {
        loop {
            if let Some(message) = self.wait_for(None).await {
                return message;
            }
        }
    }

    /// The next message, or `None` when there is none for this many nanoseconds; 0 takes what is there.
    pub async fn receive_for(&mut self, ns: u64) -> Option<Message> {
        let until = self.now().after(ns);
        self.wait_for(Some(until)).await
    }

    /// The next message, or `None` when there is none until this time.
    pub async fn receive_until(&mut self, until: Time) -> Option<Message> {
        self.wait_for(Some(until)).await
    }

    /// Returns at this time, whatever arrives meanwhile.
    pub async fn sleep_until(&mut self, until: Time) {
        std::future::poll_fn(|_| {
            let mut shared = self.shared();
            if shared.now >= until {
                return Poll::Ready(());
            }
            shared.wait = Wait::Until(until);
            Poll::Pending
        })
        .await;
    }

    /// Returns after this many nanoseconds.
    pub async fn sleep_for(&mut self, ns: u64) {
        let until = self.now().after(ns);
        self.sleep_until(until).await;
    }

    async fn wait_for(&self, until: Option<Time>) -> Option<Message> {
        std::future::poll_fn(|_| {
            let mut shared = self.shared();
            if let Some(message) = shared.inbox.pop_front() {
                return Poll::Ready(Some(message));
            }
            if until.is_some_and(|until| shared.now >= until) {
                return Poll::Ready(None);
            }
            shared.wait = Wait::Message(until);
            Poll::Pending
        })
        .await
    }
}
