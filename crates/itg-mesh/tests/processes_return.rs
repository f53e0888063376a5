//! Processes that are killed and run again: they return to their run as another incarnation of their slot.
//!
//! A child is this program again, asked for the test `child` alone.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use itg_mesh::{
    Listener, MasterSetup, Meet, Node, Report, ReturnSetup, SlaveSetup, StartError, come_back,
    start_master, start_slave,
};
use itg_process::bootstrap::{Application, Ticket};
use itg_process::{
    Ctx, Dest, Layer, Level, MS, Message, Registry, Slot, StopReason, TimerId, layer_events,
};
use itg_testkit::child::Kept;
use nix::sys::signal::Signal;

/// Task of a child: `call ADDRESS` or `return` with a ticket in [`TICKET`].
const TASK: &str = "ITG_TEST_CHILD";
const TICKET: &str = "ITG_TEST_TICKET";
const LIMIT: Duration = Duration::from_secs(30);

layer_events! {
    /// Events of a process.
    enum TellerEvent {
        /// Incarnation of another process, and those that it has heard of.
        Told { slot: Slot, incarnation: u64, table: u64 } = "told",
    }
}

/// Tells all others again and again its incarnation, and which ones it has heard of last.
#[derive(Default)]
struct Teller {
    heard: [u8; 4],
}

impl Layer for Teller {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(0);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        let life = u8::try_from(cx.incarnation()).expect("few lives");
        self.heard[cx.me().index()] = life;
        cx.down(Message::new(Dest::AllButMe, 1, self.heard.to_vec()));
        cx.set_timer_after(20 * MS);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        let table: [u8; 4] = *message.body.first_chunk().expect("four lives");
        let its = table[message.src.index()];
        let last = std::mem::replace(&mut self.heard[message.src.index()], its);
        assert!(its >= last, "life {its} of {} after {last}", message.src);
        let table = u64::from(u32::from_le_bytes(table));
        let (slot, incarnation) = (message.src, its.into());
        cx.log(Level::Info, TellerEvent::Told { slot, incarnation, table });
    }
}

fn registry() -> Registry {
    Registry::new().with("teller", |_| Ok(Box::new(Teller::default())))
}

/// The other half of the tests.
#[test]
#[ignore = "what the other tests start"]
fn child() {
    let Ok(task) = std::env::var(TASK) else { return };
    let registry = registry();
    let node = match task.split_once(' ') {
        Some((_, at)) => start_slave(SlaveSetup::new(&registry, Meet::Call(at.to_owned()))),
        None => {
            let ticket = std::env::var(TICKET).expect("a ticket").parse().expect("a ticket");
            come_back(ReturnSetup {
                patience: Duration::from_secs(10),
                ..ReturnSetup::new(&registry, ticket)
            })
        }
    };
    match node {
        Ok(node) => {
            let reason = node.wait(LIMIT);
            drop(node.finish());
            std::process::exit(match reason {
                Some(StopReason::Interrupted) => 0,
                Some(StopReason::Failed) => 7,
                _ => 9,
            });
        }
        Err(StartError::Bootstrap(diagnosis)) => {
            eprintln!("refused: {diagnosis}");
            std::process::exit(3);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Starts this program again, as a process that calls, or returns with a ticket.
fn start(task: &str, ticket: Option<&Ticket>) -> Kept {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["child", "--exact", "--ignored", "--nocapture"]).env(TASK, task);
    command.env(TICKET, ticket.map(ToString::to_string).unwrap_or_default());
    Kept(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("a child"))
}

/// Three processes on a kind of network; this one is process 0.
struct Run {
    node: Node,
    told: Receiver<TellerEvent>,
    lives: Vec<Kept>,
}

impl Run {
    fn start(networks: &str) -> Self {
        let text = format!("processes = 3\n{networks}\n[[process]]\nlayers = [\"teller\"]\n");
        let application =
            Application { origin: "run.toml".to_owned(), text, seed: 7, network: None };
        let registry = registry();
        let at = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
        let listener = Listener::bind(at).expect("a port");
        let call = format!("call {}", listener.address());
        let lives = (0..2).map(|_| start(&call, None)).collect();
        let (tell, told) = channel();
        let mut setup = MasterSetup::new(&application, &registry);
        setup.listener = Some(listener);
        setup.watch = Some(Box::new(move |note| {
            if let Report::Event { event, .. } = note
                && let Some(event) = event.decode()
            {
                tell.send(event).unwrap_or_default();
            }
        }));
        let node = start_master(setup).expect("all are there");
        let run = Self { node, told, lives };
        run.until(1, [1, 1, 1]);
        run.until(2, [1, 1, 1]);
        run
    }

    /// The ticket of another process: the addresses are the same.
    fn ticket(&self, slot: u32) -> Ticket {
        Ticket { slot, ..self.node.ticket().expect("it runs") }
    }

    /// Waits until this slot says that it has heard of these incarnations.
    fn until(&self, slot: u64, lives: [u8; 3]) {
        let [a, b, c] = lives;
        let table = u64::from(u32::from_le_bytes([a, b, c, 0]));
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let event = self.told.recv_timeout(left);
            let event = event.unwrap_or_else(|_| panic!("slot {slot} never hears {lives:?}"));
            let incarnation = lives[usize::try_from(slot).expect("small")].into();
            let slot = Slot(u32::try_from(slot).expect("small"));
            if event == (TellerEvent::Told { slot, incarnation, table }) {
                return;
            }
        }
    }

    fn stop(mut self) {
        self.node.handle().stop(StopReason::Interrupted);
        assert_eq!(self.node.wait(LIMIT), Some(StopReason::Interrupted));
        drop(self.node.finish());
        for life in &mut self.lives {
            assert_eq!(life.code(LIMIT), Some(0));
        }
    }
}

const TCP: &str = "[[network]]\nname = \"main\"\nkind = \"tcp\"";
const UNIX: &str = "[[network]]\nname = \"main\"\nkind = \"unix\"";

#[test]
fn one_that_is_killed_returns_as_the_next_incarnation() {
    let both = format!("{TCP}\n[[network]]\nname = \"more\"\nkind = \"udp\"");
    for networks in [TCP, UNIX, &both] {
        let mut run = Run::start(networks);
        // Whichever slot it has: the other one stays.
        let killed = run.lives.remove(0);
        killed.signal(Signal::SIGKILL).expect("it runs");
        drop(killed);
        // The slot that no process answers for is the one that is free.
        let slot = free_slot(&run);
        for life in 2..4 {
            let back = start("return", Some(&run.ticket(slot)));
            let mut lives = [1; 3];
            lives[slot as usize] = life;
            run.until(slot.into(), lives);
            run.until((3 - slot).into(), lives);
            if life == 2 {
                back.signal(Signal::SIGKILL).expect("it runs");
            } else {
                run.lives.push(back);
            }
        }
        run.stop();
    }
}

/// The slot of the process that was killed: the other one goes on talking.
fn free_slot(run: &Run) -> u32 {
    let (mut left, mut in_a_row) = (Slot(0), 0);
    // Those that run speak in turn, every 20 ms.
    while in_a_row < 50 {
        let TellerEvent::Told { slot, .. } = run.told.recv_timeout(LIMIT).expect("one is left");
        in_a_row = if slot == left { in_a_row + 1 } else { 1 };
        left = slot;
    }
    3 - left.0
}

#[test]
fn a_life_that_was_asleep_is_refused_after_the_next_one_has_begun() {
    for networks in [TCP, UNIX] {
        let mut run = Run::start(networks);
        let mut old = run.lives.remove(0);
        old.signal(Signal::SIGSTOP).expect("it runs");
        let slot = free_slot(&run);
        run.lives.push(start("return", Some(&run.ticket(slot))));
        let mut lives = [1; 3];
        lives[slot as usize] = 2;
        run.until((3 - slot).into(), lives);
        old.signal(Signal::SIGCONT).expect("it runs");
        // It learns that it has been replaced, and ends; the layers see that no incarnation comes
        // before another.
        assert_eq!(old.code(LIMIT), Some(7), "{networks}");
        run.until(slot.into(), lives);
        run.until((3 - slot).into(), lives);
        run.stop();
    }
}

#[test]
fn a_ticket_of_another_run_or_a_run_that_is_over_is_refused() {
    let run = Run::start(TCP);
    let strange = Ticket { run: 1, ..run.ticket(1) };
    assert_eq!(start("return", Some(&strange)).code(LIMIT), Some(3));
    let mut beyond = Ticket { slot: 9, ..run.ticket(1) };
    beyond.addresses.resize(10, Vec::new());
    assert_eq!(start("return", Some(&beyond)).code(LIMIT), Some(3));
    // No process has been disturbed.
    run.until(1, [1, 1, 1]);
    let late = run.ticket(1);
    run.stop();
    assert_eq!(start("return", Some(&late)).code(LIMIT), Some(3));
}
