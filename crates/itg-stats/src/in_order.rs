//! Pieces made side by side and taken in order, with no more of them waiting than there are makers.
//!
//! The maker of the piece whose turn it is hands it on, and those behind it that are ready, while
//! the others go on making. A maker that is [`AHEAD`] pieces ahead waits: so memory holds a few
//! pieces, however slow the taker is.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::exec::Executor;

/// Pieces for each maker that may be ready before their turn.
const AHEAD: usize = 2;

/// Takes the pieces, one after the other.
type Taker<'t, T, E> = &'t mut (dyn FnMut(T) -> Result<(), E> + Send);

struct Queue<'t, T, E> {
    /// Number of the piece whose turn it is.
    next: usize,
    ready: BTreeMap<usize, T>,
    /// Absent while a maker hands a piece on.
    taker: Option<Taker<'t, T, E>>,
    failed: Option<E>,
    /// A thread has panicked: its piece never comes.
    dead: bool,
}

impl<T, E> Queue<'_, T, E> {
    const fn is_over(&self) -> bool {
        self.failed.is_some() || self.dead
    }
}

/// Tells the others when its thread panics, so that none waits for ever.
struct Leaving<'q, 't, T, E>(&'q Mutex<Queue<'t, T, E>>, &'q Condvar);

impl<T, E> Drop for Leaving<'_, '_, T, E> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            lock(self.0).dead = true;
            self.1.notify_all();
        }
    }
}

/// Calls `make` for each number from 0 to `pieces` − 1, on all threads, and `take` with what comes of it
/// in the order of the numbers. `make` gets something of the thread's own that stays from one piece to
/// the next.
///
/// # Errors
/// The first one of `take`, which ends it.
pub(crate) fn in_order<S: Default, T: Send, E: Send>(
    executor: &dyn Executor,
    pieces: usize,
    make: &(dyn Fn(&mut S, usize) -> T + Sync),
    take: Taker<'_, T, E>,
) -> Result<(), E> {
    let makers = executor.threads().clamp(1, pieces.max(1));
    let begun = AtomicUsize::new(0);
    let (ready, taker) = (BTreeMap::new(), Some(take));
    let queue = Mutex::new(Queue { next: 0, ready, taker, failed: None, dead: false });
    let moved = Condvar::new();
    executor.run(makers, &|_| {
        let mut own = S::default();
        let _leaving = Leaving(&queue, &moved);
        loop {
            let number = begun.fetch_add(1, Ordering::Relaxed);
            if number >= pieces {
                break;
            }
            let mut now = lock(&queue);
            // The piece whose turn it is belongs to another maker, which does not wait here.
            while !now.is_over() && number >= now.next + AHEAD * makers {
                now = moved.wait(now).unwrap_or_else(PoisonError::into_inner);
            }
            if now.is_over() {
                break;
            }
            drop(now);
            let made = make(&mut own, number);
            lock(&queue).ready.insert(number, made);
            hand_on(&queue, &moved);
        }
    });
    let queue = queue.into_inner().unwrap_or_else(PoisonError::into_inner);
    queue.failed.map_or(Ok(()), Err)
}

/// Hands on the pieces that are ready, unless another maker does so already.
fn hand_on<T, E>(queue: &Mutex<Queue<'_, T, E>>, moved: &Condvar) {
    let mut now = lock(queue);
    let Some(taker) = now.taker.take() else { return };
    while now.failed.is_none() {
        let next = now.next;
        let Some(piece) = now.ready.remove(&next) else { break };
        drop(now);
        let taken = taker(piece);
        now = lock(queue);
        now.next += 1;
        now.failed = taken.err();
        moved.notify_all();
    }
    now.taker = Some(taker);
}

/// A maker or taker that panics says so by itself ([`Leaving`]).
fn lock<'q, 't, T, E>(queue: &'q Mutex<Queue<'t, T, E>>) -> MutexGuard<'q, Queue<'t, T, E>> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::disallowed_methods, reason = "threads are what is tested")]
    use super::*;
    use crate::exec::Inline;

    /// As many threads as tasks.
    struct Threads(usize);

    impl Executor for Threads {
        fn threads(&self) -> usize {
            self.0
        }

        fn run(&self, tasks: usize, task: &(dyn Fn(usize) + Sync)) {
            std::thread::scope(|scope| {
                for number in 0..tasks {
                    scope.spawn(move || task(number));
                }
            });
        }
    }

    /// Takes its time, a different one for each number.
    fn slow(number: usize) -> usize {
        (0..number * 7_919 % 30_011).fold(number, |same, _| std::hint::black_box(same))
    }

    #[test]
    fn pieces_come_in_order_whoever_makes_them() {
        let executors: [&dyn Executor; 4] = [&Inline, &Threads(1), &Threads(2), &Threads(7)];
        for executor in executors {
            for pieces in [0, 1, 2, 500] {
                let (mut taken, made) = (Vec::new(), AtomicUsize::new(0));
                let make = |own: &mut usize, number| {
                    *own += 1;
                    made.fetch_add(1, Ordering::Relaxed);
                    slow(number)
                };
                let mut take = |number| {
                    let waiting = made.load(Ordering::Relaxed) - taken.len();
                    assert!(waiting <= (AHEAD + 1) * executor.threads(), "{waiting} wait");
                    taken.push(number);
                    Ok::<(), ()>(())
                };
                assert_eq!(in_order(executor, pieces, &make, &mut take), Ok(()));
                assert!(taken.into_iter().eq(0..pieces), "{pieces} pieces");
            }
        }
    }

    #[test]
    fn a_panic_ends_it_instead_of_waiting_for_ever() {
        for threads in [2, 5] {
            let make = |(): &mut (), number: usize| {
                assert_ne!(number, 20, "planted");
                slow(number)
            };
            let mut take = |_| Ok::<(), ()>(());
            let run = || in_order(&Threads(threads), 500, &make, &mut take);
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err());
        }
    }

    #[test]
    fn an_error_ends_it() {
        for threads in [1, 2, 5] {
            let mut taken = 0;
            let mut take = |number: usize| {
                taken += 1;
                if number == 20 { Err("enough") } else { Ok(()) }
            };
            let make = |_: &mut (), number| slow(number);
            assert_eq!(in_order(&Threads(threads), 10_000, &make, &mut take), Err("enough"));
            assert_eq!(taken, 21);
        }
    }
}
