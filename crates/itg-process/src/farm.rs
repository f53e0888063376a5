//! The farm of processors: the reference application of Neko (2.2), and an example of layers.
//!
//! Process 0 runs `failure-detector` and `coordinator`, the others `heartbeat` and `worker`. The
//! coordinator hands out sub-tasks, one to each worker at a time. A worker that is suspected loses
//! its sub-task to another one; one that does not answer gets it once more. When all results are
//! there the coordinator says so and stops all processes.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::active::{Active, ActiveCx};
use crate::core::TimerId;
use crate::event::{Level, RuntimeEvent};
use crate::injected::Injected;
use crate::layer::{Ctx, Layer};
use crate::layer_events;
use crate::message::{MS, Message, SECOND, Slot, Time, types};
use crate::output::StopReason;
use crate::stack::Registry;

/// A sub-task for a worker: its number, u64.
const TASK: u32 = 1;
/// Its result: number and result, two u64.
const RESULT: u32 = 2;
/// A process that has sent nothing else for a while is alive.
const HEARTBEAT: u32 = 1200;
/// Goes up from the failure detector, never over a network: a process is suspected (1) or not (0).
const SUSPECT: u32 = 1201;

/// The result of a sub-task: any pure function would do.
#[must_use]
pub const fn result_of(task: u64) -> u64 {
    let mixed = (task ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed ^ (mixed >> 29)
}

layer_events! {
    /// Events of the farm.
    pub enum FarmEvent {
        /// Suspicion of a process by the failure detector.
        Suspects { slot: Slot } = "suspects",
        /// End of a suspicion.
        Trusts { slot: Slot } = "trusts",
        /// Sub-task that a suspected process has lost.
        Reassigned { task: u64, from: Slot } = "reassigned",
        /// Last result: number of all results, and their sum.
        Complete { results: u64, sum: u64 } = "farm complete",
        /// Suspicion of a process that runs, on behalf of a simulation.
        SuspectedWrongly = "suspected wrongly",
    }
}

/// Last event of the coordinator.
#[must_use]
pub fn expected(tasks: u64) -> FarmEvent {
    let sum = (0..tasks).map(result_of).fold(0, u64::wrapping_add);
    FarmEvent::Complete { results: tasks, sum }
}

/// The registry with the four layers of the farm.
#[must_use]
pub fn layers(registry: Registry) -> Registry {
    registry
        .with("heartbeat", |build| {
            let period = build.params.time_ns("period", SECOND)?;
            Ok(Box::new(Heartbeat { period, last_sent: Time::ZERO }))
        })
        .with("failure-detector", |build| {
            let timeout = build.params.time_ns("timeout", 2 * SECOND)?;
            Ok(Box::new(FailureDetector { timeout, heard: BTreeMap::new() }))
        })
        .with("worker", |build| {
            let work = build.params.time_ns("work", 10 * MS)?;
            Ok(Box::new(Active::new(move |cx| worker(cx, work))))
        })
        .with("coordinator", |build| {
            let tasks = build.params.number("tasks", 100)?;
            let again = build.params.time_ns("again", SECOND)?;
            Ok(Box::new(Active::new(move |cx| coordinator(cx, tasks, again))))
        })
}

/// Sends a heartbeat to process 0 when nothing was sent for a while.
#[derive(Debug)]
struct Heartbeat {
    period: u64,
    last_sent: Time,
}

impl Layer for Heartbeat {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        cx.set_timer_after(self.period);
    }

    fn send(&mut self, message: Message, cx: &mut Ctx<'_>) {
        self.last_sent = cx.now();
        cx.down(message);
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        if cx.now().since(self.last_sent) >= self.period {
            self.last_sent = cx.now();
            cx.down(Message::new(Slot(0), HEARTBEAT, Bytes::new()));
        }
        cx.set_timer(self.last_sent.after(self.period));
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[types::DETECTOR]
    }
}

/// Suspects a process from which nothing at all has come for a while, and says so to the layer above;
/// trusts it again when something comes.
#[derive(Debug)]
struct FailureDetector {
    timeout: u64,
    /// Time of the last message from each process; `None` is suspected.
    heard: BTreeMap<Slot, Option<Time>>,
}

impl FailureDetector {
    fn tell(slot: Slot, suspected: bool, cx: &mut Ctx<'_>) {
        let event =
            if suspected { FarmEvent::Suspects { slot } } else { FarmEvent::Trusts { slot } };
        cx.log(Level::Info, event);
        let body = Bytes::from(vec![u8::from(suspected)]);
        cx.up(Message { src: slot, ..Message::new(cx.me(), SUSPECT, body) });
    }
}

impl Layer for FailureDetector {
    fn on_start(&mut self, cx: &mut Ctx<'_>) {
        let now = cx.now();
        self.heard = (1..cx.capacity()).map(|slot| (Slot(slot), Some(now))).collect();
        cx.set_timer_after(self.timeout);
    }

    fn deliver(&mut self, message: Message, cx: &mut Ctx<'_>) {
        if let Some(heard) = self.heard.get_mut(&message.src)
            && heard.replace(cx.now()).is_none()
        {
            Self::tell(message.src, false, cx);
        }
        if message.ty != HEARTBEAT {
            cx.up(message);
        }
    }

    fn timer(&mut self, _id: TimerId, cx: &mut Ctx<'_>) {
        let (now, timeout) = (cx.now(), self.timeout);
        let silent = |heard: &Option<Time>| heard.is_some_and(|at| now.since(at) >= timeout);
        let found: Vec<_> =
            self.heard.iter().filter(|(_, heard)| silent(heard)).map(|(slot, _)| *slot).collect();
        for slot in found {
            self.heard.insert(slot, None);
            Self::tell(slot, true, cx);
        }
        let next = self.heard.values().flatten().min().map_or(now, |oldest| *oldest);
        cx.set_timer(next.after(timeout).max(now.after(1)));
    }

    fn control(&mut self, what: &dyn Any, cx: &mut Ctx<'_>) {
        if let Some(Injected::Suspect(slot)) = what.downcast_ref()
            && let Some(heard) = self.heard.get_mut(slot)
            && heard.take().is_some()
        {
            cx.sometimes(RuntimeEvent::SuspicionTaken);
            cx.sometimes(FarmEvent::SuspectedWrongly);
            Self::tell(*slot, true, cx);
        }
    }

    fn takes_suspicions(&self) -> bool {
        true
    }

    fn types(&self) -> &[RangeInclusive<u32>] {
        &[types::DETECTOR]
    }
}

/// Works on one sub-task after the other.
async fn worker(mut cx: ActiveCx, work: u64) {
    loop {
        let message = cx.receive().await;
        if let (TASK, Some([task, 0])) = (message.ty, numbers(&message.body)) {
            cx.sleep_for(work).await;
            let body = [task.to_le_bytes(), result_of(task).to_le_bytes()].concat();
            cx.send(Message::new(message.src, RESULT, body));
        }
    }
}

/// Hands out sub-tasks until all results are there.
async fn coordinator(mut cx: ActiveCx, tasks: u64, again: u64) {
    let mut todo: VecDeque<u64> = (0..tasks).collect();
    let mut idle: BTreeSet<Slot> = (1..cx.n()).map(Slot).collect();
    // Sub-task of each worker, and the time at which it is sent once more.
    let mut busy: BTreeMap<Slot, (u64, Time)> = BTreeMap::new();
    let mut results: BTreeMap<u64, u64> = BTreeMap::new();
    while (results.len() as u64) < tasks {
        while let Some(&task) = todo.front() {
            let Some(&worker) = idle.first() else { break };
            todo.pop_front();
            if !results.contains_key(&task) {
                idle.remove(&worker);
                busy.insert(worker, (task, cx.now().after(again)));
                cx.send(task_for(worker, task));
            }
        }
        let next = busy.values().map(|(_, at)| *at).min().unwrap_or(Time::NEVER);
        let Some(message) = cx.receive_until(next).await else {
            let now = cx.now();
            for (worker, (task, at)) in busy.iter_mut().filter(|(_, (_, at))| *at <= now) {
                *at = now.after(again);
                cx.send(task_for(*worker, *task));
            }
            continue;
        };
        let src = message.src;
        match (message.ty, numbers(&message.body), message.body.first()) {
            (RESULT, Some([task, result]), _) => {
                results.insert(task, result);
                // An answer to an older question does not set it free.
                if busy.get(&src).is_some_and(|(own, _)| *own == task) {
                    busy.remove(&src);
                    idle.insert(src);
                }
            }
            (SUSPECT, _, Some(1)) => {
                idle.remove(&src);
                if let Some((task, _)) = busy.remove(&src) {
                    cx.log(Level::Info, FarmEvent::Reassigned { task, from: src });
                    todo.push_back(task);
                }
            }
            (SUSPECT, _, Some(0)) if !busy.contains_key(&src) => {
                idle.insert(src);
            }
            _ => {}
        }
    }
    let sum = results.values().fold(0, |sum: u64, result| sum.wrapping_add(*result));
    cx.log(Level::Info, FarmEvent::Complete { results: results.len() as u64, sum });
    cx.shutdown(StopReason::Finished);
}

fn task_for(worker: Slot, task: u64) -> Message {
    let body = [task.to_le_bytes(), [0; 8]].concat();
    Message::new(worker, TASK, body)
}

/// Two numbers of a body of 16 bytes.
fn numbers(body: &Bytes) -> Option<[u64; 2]> {
    let number = |range: std::ops::Range<usize>| {
        let bytes = body.get(range)?.try_into().ok()?;
        Some(u64::from_le_bytes(bytes))
    };
    (body.len() == 16).then_some(())?;
    Some([number(0..8)?, number(8..16)?])
}

/// A configuration of the farm: this many processes, and the table of its network.
#[must_use]
pub fn configuration(processes: u32, tasks: u64, network: &str) -> String {
    format!(
        "processes = {processes}\n[[network]]\nname = \"main\"\n{network}\n\
         [[process]]\nslot = 0\nlayers = [\"failure-detector\", {{ layer = \"coordinator\", tasks = \
         {tasks} }}]\n[[process]]\nlayers = [\"heartbeat\", \"worker\"]\n"
    )
}
