//! Distribution of a log server's memory among its producers.
//!
//! A *seat* is a producer's share. Its blocks are *outstanding* from the moment in which they may
//! be sent (or, without credit, have come) until their buffers are free. Half of the budget is
//! reserved: each seat always may have [`FLOOR`] blocks outstanding, so none waits for another one.
//! The other half is the pool, from which seats take up to equal parts (at most an eighth each, and
//! not more than a limit for each) and to which settled blocks return; when it is empty, seats wait
//! in a queue and get one block each in turn. Credit that was given is never taken back; a seat
//! that does not use its own holds an eighth of the pool at most.
//!
//! Outstanding blocks of all seats, counted with the largest block that each announced, never need
//! more than the budget. Cost: constant, besides a look-up, while the pool is not empty.

use std::collections::{BTreeMap, VecDeque};

use super::book::SessionId;

/// Blocks that each seat may always have outstanding: one on the way while one is being stored.
pub(super) const FLOOR: u32 = 2;
/// One seat takes at most this part of the pool: an eighth.
const LARGEST_PART: u64 = 8;

#[derive(Clone, Debug)]
struct Seat {
    /// Memory for a block, in bytes.
    block: u64,
    /// Blocks promised or come, and not settled.
    outstanding: u32,
    /// Blocks promised since it registered.
    granted: u32,
    /// Gets credit in advance (TCP), or asks for each block (UDP).
    in_advance: bool,
    queued: bool,
    /// Gets no more.
    stopped: bool,
}

/// The memory and its seats.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    budget: u64,
    /// Most bytes that one seat may take from the pool, whatever there is.
    most_each: u64,
    reserve: u64,
    /// Bytes left in the pool.
    pool: u64,
    seats: BTreeMap<SessionId, Seat>,
    queue: VecDeque<SessionId>,
    /// The disk is full: no new promises.
    frozen: bool,
}

impl Credit {
    pub(super) const fn new(budget: u64, most_each: u64) -> Self {
        let reserve = budget / 2;
        Self {
            budget,
            most_each,
            reserve,
            pool: budget - reserve,
            seats: BTreeMap::new(),
            queue: VecDeque::new(),
            frozen: false,
        }
    }

    pub(super) fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Memory of all outstanding blocks, in bytes.
    pub(super) fn outstanding_bytes(&self) -> u64 {
        self.seats.values().map(|seat| seat.block * u64::from(seat.outstanding)).sum()
    }

    /// Takes a seat, if there is memory for its [`FLOOR`]. Gives it its first credit, and adds the
    /// sessions whose credit has grown.
    pub(super) fn join(
        &mut self,
        id: SessionId,
        block: u64,
        in_advance: bool,
        woken: &mut Vec<SessionId>,
    ) -> bool {
        let Some(left) = self.reserve.checked_sub(block * u64::from(FLOOR)) else { return false };
        self.reserve = left;
        let seat =
            Seat { block, outstanding: 0, granted: 0, in_advance, queued: false, stopped: false };
        self.seats.insert(id, seat);
        self.replenish(id);
        self.enqueue(id);
        self.distribute(woken);
        true
    }

    /// Gives a seat back with all that is outstanding. Adds those that get more credit now.
    pub(super) fn leave(&mut self, id: SessionId, woken: &mut Vec<SessionId>) {
        let Some(seat) = self.seats.remove(&id) else { return };
        self.reserve += seat.block * u64::from(FLOOR);
        self.pool += seat.block * u64::from(seat.outstanding.saturating_sub(FLOOR));
        // All parts have become larger.
        let ids: Vec<SessionId> = self.seats.keys().copied().collect();
        for id in ids {
            self.enqueue(id);
        }
        self.distribute(woken);
    }

    /// Gives a seat no more credit.
    pub(super) fn stop(&mut self, id: SessionId) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.stopped = true;
        }
    }

    /// Blocks that a seat may send, counted from its beginning.
    pub(super) fn granted(&self, id: SessionId) -> u32 {
        self.seats.get(&id).map_or(0, |seat| seat.granted)
    }

    /// Without credit in advance: whether there is memory for a block that has come. If so, it is
    /// outstanding from now on.
    pub(super) fn take(&mut self, id: SessionId) -> bool {
        let part = self.part();
        let Some(seat) = self.seats.get_mut(&id) else { return false };
        if seat.outstanding >= FLOOR {
            if u64::from(seat.outstanding - FLOOR) >= part / seat.block || self.pool < seat.block {
                return false;
            }
            self.pool -= seat.block;
        }
        seat.outstanding += 1;
        true
    }

    /// The buffer of one of its blocks is free. Adds those (perhaps itself) that get more credit now.
    pub(super) fn settle(&mut self, id: SessionId, woken: &mut Vec<SessionId>) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        if seat.outstanding == 0 {
            return;
        }
        seat.outstanding -= 1;
        if seat.outstanding >= FLOOR {
            self.pool += seat.block;
        }
        if self.replenish(id) {
            woken.push(id);
        }
        self.enqueue(id);
        self.distribute(woken);
    }

    /// The disk is full: no more credit until [`Credit::thaw`].
    pub(super) const fn freeze(&mut self) {
        self.frozen = true;
    }

    /// The disk has room again. Adds those that get more credit now.
    pub(super) fn thaw(&mut self, woken: &mut Vec<SessionId>) {
        self.frozen = false;
        let ids: Vec<SessionId> = self.seats.keys().copied().collect();
        for id in ids {
            if self.replenish(id) {
                woken.push(id);
            }
            self.enqueue(id);
        }
        self.distribute(woken);
    }

    /// Most bytes that a seat may take from the pool at present.
    fn part(&self) -> u64 {
        let pool = self.budget - self.budget / 2;
        (pool / LARGEST_PART.max(self.seats.len() as u64)).min(self.most_each)
    }

    /// Fills a seat up to its floor; returns true if anything was missing.
    fn replenish(&mut self, id: SessionId) -> bool {
        let Some(seat) = self.seats.get_mut(&id) else { return false };
        if self.frozen || seat.stopped || !seat.in_advance || seat.outstanding >= FLOOR {
            return false;
        }
        seat.granted = seat.granted.saturating_add(FLOOR - seat.outstanding);
        seat.outstanding = FLOOR;
        true
    }

    fn enqueue(&mut self, id: SessionId) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        if seat.in_advance && !seat.queued && !seat.stopped {
            seat.queued = true;
            self.queue.push_back(id);
        }
    }

    /// Grants one block each in turn, as long as there is memory and a seat below its part.
    fn distribute(&mut self, woken: &mut Vec<SessionId>) {
        let part = self.part();
        while let Some(&id) = self.queue.front() {
            if self.frozen {
                return;
            }
            let Some(seat) = self.seats.get_mut(&id) else {
                self.queue.pop_front();
                continue;
            };
            let above = u64::from(seat.outstanding.saturating_sub(FLOOR));
            if seat.stopped || above >= part / seat.block {
                seat.queued = false;
                self.queue.pop_front();
                continue;
            }
            if self.pool < seat.block {
                return;
            }
            self.pool -= seat.block;
            seat.outstanding += 1;
            seat.granted = seat.granted.saturating_add(1);
            woken.push(id);
            self.queue.rotate_left(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn one_seat_gets_an_eighth_of_the_pool_and_its_floor() {
        let mut credit = Credit::new(32 * MIB, u64::MAX);
        assert!(credit.join(1, MIB, true, &mut Vec::new()));
        assert_eq!(credit.granted(1), 2 + 2);
        credit.settle(1, &mut Vec::new());
        assert_eq!(credit.granted(1), 5);
    }

    #[test]
    fn one_seat_gets_no_more_than_the_limit_for_each() {
        for (most_each, granted) in [(0, 2), (MIB, 3), (5 * MIB, 4)] {
            let mut credit = Credit::new(32 * MIB, most_each);
            assert!(credit.join(1, MIB, true, &mut Vec::new()));
            assert_eq!(credit.granted(1), granted, "{most_each}");
            assert!(credit.join(2, MIB, false, &mut Vec::new()));
            let taken = (0..9).filter(|_| credit.take(2)).count();
            assert_eq!(taken, granted as usize, "{most_each}");
        }
    }

    #[test]
    fn seats_are_refused_when_their_floor_does_not_fit() {
        let mut credit = Credit::new(8 * MIB, u64::MAX);
        assert!(
            credit.join(1, MIB, true, &mut Vec::new())
                && credit.join(2, MIB, false, &mut Vec::new())
        );
        assert!(!credit.join(3, MIB, true, &mut Vec::new()));
        credit.leave(1, &mut Vec::new());
        assert!(credit.join(3, MIB, true, &mut Vec::new()));
    }

    #[test]
    fn a_newcomer_always_gets_its_floor() {
        let mut credit = Credit::new(32 * MIB, u64::MAX);
        for id in 0..8 {
            assert!(credit.join(id, MIB, true, &mut Vec::new()));
        }
        assert_eq!(credit.granted(8), 0);
        assert_eq!((0..8).map(|id| credit.granted(id)).collect::<Vec<_>>(), [4; 8]);
        credit.leave(3, &mut Vec::new());
        assert!(credit.join(8, MIB, true, &mut Vec::new()));
        assert!(credit.granted(8) >= FLOOR);
    }

    #[test]
    fn a_full_disk_freezes_credit_and_room_gives_it_back() {
        let mut credit = Credit::new(32 * MIB, u64::MAX);
        assert!(
            credit.join(1, MIB, true, &mut Vec::new())
                && credit.join(2, MIB, true, &mut Vec::new())
        );
        credit.freeze();
        let mut woken = Vec::new();
        for _ in 0..4 {
            credit.settle(1, &mut woken);
        }
        assert!(credit.join(3, MIB, true, &mut Vec::new()));
        assert_eq!((credit.granted(1), credit.granted(3), woken.len()), (4, 0, 0));
        credit.thaw(&mut woken);
        assert_eq!((credit.granted(1), credit.granted(2), credit.granted(3)), (8, 4, 4));
        woken.sort_unstable();
        woken.dedup();
        assert_eq!(woken, [1, 3]);
    }

    proptest! {
        /// In all cases: memory within the budget, nothing lost of it, and every seat that is below
        /// the floor has credit.
        #[test]
        fn the_budget_is_kept_and_nobody_starves(
            steps in prop::collection::vec((0u8..8, 0u64..12, 1u64..5), 0..400),
        ) {
            let mut credit = Credit::new(64, u64::MAX);
            let mut woken = Vec::new();
            for (what, id, block) in steps {
                match what {
                    0 if !credit.seats.contains_key(&id) => {
                        credit.join(id, block, id % 3 > 0, &mut Vec::new());
                    }
                    1 => credit.leave(id, &mut woken),
                    2 => credit.freeze(),
                    3 => credit.thaw(&mut woken),
                    4 => {
                        credit.take(id);
                    }
                    _ => credit.settle(id, &mut woken),
                }
                prop_assert!(credit.outstanding_bytes() <= 64);
                let above: u64 = credit.seats.values()
                    .map(|s| s.block * u64::from(s.outstanding.saturating_sub(FLOOR))).sum();
                let floors: u64 = credit.seats.values().map(|s| s.block * u64::from(FLOOR)).sum();
                prop_assert_eq!((credit.pool + above, credit.reserve + floors), (32, 32));
                prop_assert!(credit.queue.len() <= 12 + 4);
                for seat in credit.seats.values().filter(|s| s.in_advance && !credit.frozen) {
                    prop_assert!(seat.outstanding >= FLOOR, "{:?}", seat);
                }
            }
            credit.thaw(&mut woken);
            for seat in 0..12 {
                credit.leave(seat, &mut woken);
            }
            prop_assert_eq!((credit.pool, credit.reserve), (32, 32));
        }
    }
}
