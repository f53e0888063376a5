//! Linearizability: whether some order of operations, one at a time, explains what clients have seen.
//!
//! Each operation must take effect at one instant between its call and its return, and each answer must be the one
//! of a single object that takes them in that order. One that has not returned may take effect at any instant after
//! its call, or never.
//!
//! The search puts operations behind each other, depth first: next may come whatever was called before the first
//! return of those that are left. What was tried, which operations and the state behind them, is not tried again.
//! In the worst case that is exponential in the number of operations under way at one time; clients with one
//! operation each keep it small.
//!
//! Source: Wing, Gong, *Testing and verifying concurrent objects*, JPDC 17, 1993; with the memory of Lowe,
//! *Testing for linearizability*, Concurrency and Computation 29(4), 2017. Ours: `stateright` 0.31 remembers nothing of
//! what it has tried and brings a web server, `todc-utils` 0.1 takes no history in which a call has not returned, and
//! neither knows of a return without an answer.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// An object that takes one operation at a time.
pub trait Sequential: Clone + Ord {
    /// Operation of a client.
    type Operation: Debug;
    /// Answer to it.
    type Answer: Debug;

    /// The object behind this operation, if it may give this answer; without an answer, behind any.
    #[must_use]
    fn step(&self, operation: &Self::Operation, answer: Option<&Self::Answer>) -> Option<Self>;
}

/// One operation of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call<O, A> {
    /// Who called.
    pub client: u64,
    /// Instant of the call.
    pub called: u64,
    /// The operation.
    pub operation: O,
    /// Instant of the return, if it has returned.
    pub returned: Option<u64>,
    /// The answer, if the client has got one.
    pub answer: Option<A>,
}

impl<O, A> Call<O, A> {
    fn end(&self) -> u64 {
        self.returned.unwrap_or(u64::MAX)
    }
}

/// Operations that are in the explanation so far.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Taken {
    words: Vec<u64>,
}

impl Taken {
    fn has(&self, at: usize) -> bool {
        self.words[at / 64] >> (at % 64) & 1 == 1
    }

    fn flip(&mut self, at: usize) {
        self.words[at / 64] ^= 1 << (at % 64);
    }
}

/// A place in the search: the state, what was taken to get there, and what is to be tried.
struct Place<S> {
    state: S,
    took: Option<usize>,
    next: Vec<usize>,
}

/// What may come next: called before the first return of those that are left; nothing if all have returned.
fn candidates<O, A>(calls: &[&Call<O, A>], taken: &Taken) -> Option<Vec<usize>> {
    let left = || (0..calls.len()).filter(|at| !taken.has(*at));
    let first = left().map(|at| calls[at].end()).min()?;
    if first == u64::MAX {
        return None;
    }
    let mut next: Vec<usize> = left().take_while(|at| calls[*at].called <= first).collect();
    // The earliest return is tried first.
    next.sort_by_key(|at| std::cmp::Reverse(calls[*at].end()));
    Some(next)
}

/// An order of these operations that explains their answers, as their places in `history`; operations that have not
/// returned may be left out.
///
/// Two operations of which one returns at the instant at which the other is called overlap.
///
/// # Errors
/// In words: how far an explanation gets, and what cannot come next.
pub fn linearize<S: Sequential>(
    start: &S,
    history: &[Call<S::Operation, S::Answer>],
) -> Result<Vec<usize>, String> {
    let mut order: Vec<usize> = (0..history.len()).collect();
    order.sort_by_key(|at| history[*at].called);
    let calls: Vec<_> = order.iter().map(|at| &history[*at]).collect();
    let mut taken = Taken { words: vec![0; calls.len().div_ceil(64)] };
    let mut tried = BTreeSet::new();
    let mut deepest = (0, String::new());
    let Some(next) = candidates(&calls, &taken) else { return Ok(Vec::new()) };
    let mut places = vec![Place { state: start.clone(), took: None, next }];
    while let Some(place) = places.last_mut() {
        let Some(at) = place.next.pop() else {
            if let Some(took) = place.took {
                taken.flip(took);
            }
            places.pop();
            continue;
        };
        let call = calls[at];
        let Some(state) = place.state.step(&call.operation, call.answer.as_ref()) else {
            if places.len() > deepest.0 {
                let answer = call.answer.as_ref();
                deepest.0 = places.len();
                deepest.1 = format!("{:?} of {:x}: {answer:?}", call.operation, call.client);
            }
            continue;
        };
        // What nobody has seen, and what changes nothing, explains nothing.
        if call.returned.is_none() && state == place.state {
            continue;
        }
        taken.flip(at);
        if !tried.insert((taken.clone(), state.clone())) {
            taken.flip(at);
            continue;
        }
        let Some(next) = candidates(&calls, &taken) else {
            let took = places.iter().filter_map(|place| place.took).chain([at]);
            return Ok(took.map(|at| order[at]).collect());
        };
        places.push(Place { state, took: Some(at), next });
    }
    let (depth, what) = deepest;
    let (done, all) = (depth.saturating_sub(1), calls.len());
    Err(format!("not linearizable: behind {done} of {all} operations nothing explains {what}"))
}
