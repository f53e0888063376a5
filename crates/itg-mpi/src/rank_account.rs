//! The account of a log rank: every producer's blocks come once, whole and in order, and as many as it
//! says at its end.

use std::collections::BTreeMap;

use itg_record::BlockFacts;

/// Last message of a producer: the number of blocks and records that it has sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    /// Blocks that it has sent.
    pub blocks: u64,
    /// Records in them.
    pub records: u64,
}

impl Done {
    /// As a message.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&self.records.to_le_bytes());
        bytes
    }

    /// Out of a message.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let (blocks, records) = bytes.split_first_chunk::<8>()?;
        let records: &[u8; 8] = records.try_into().ok()?;
        Some(Self { blocks: u64::from_le_bytes(*blocks), records: u64::from_le_bytes(*records) })
    }
}

/// Reason for which the account does not balance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// Bytes that are no block.
    #[error("rank {from} sent {len} bytes that are no block of a log: {why}")]
    Damaged {
        /// Rank that sent it.
        from: u32,
        /// Length of the message in bytes.
        len: usize,
        /// Fault that was found in it.
        why: String,
    },
    /// A block of another rank's log.
    #[error("rank {from} sent a block of log {log_id}")]
    Stranger {
        /// Rank that sent it.
        from: u32,
        /// Log that the block belongs to: the rank that wrote it.
        log_id: u32,
    },
    /// A block that is not the next one.
    #[error("rank {from} sent block {got} where block {want} was due")]
    Order {
        /// Rank that sent it.
        from: u32,
        /// Number of the block.
        got: u32,
        /// Number of the next one.
        want: u64,
    },
    /// Another number of blocks or records than came.
    #[error(
        "rank {from} says it sent {} blocks with {} records: {} with {} came",
        said.blocks, said.records, came.blocks, came.records
    )]
    Done {
        /// Rank that sent the account.
        from: u32,
        /// Numbers that the producer sent.
        said: Done,
        /// Numbers that were counted here.
        came: Done,
    },
    /// A message without the two numbers.
    #[error("rank {0} ended its log with something that is no account")]
    NoAccount(u32),
}

/// Account of what came from each producer.
#[derive(Debug, Default)]
pub struct Keeper {
    came: BTreeMap<u32, Done>,
    done: BTreeMap<u32, Done>,
}

impl Keeper {
    /// Checks a block; a producer labels its log with its own rank.
    ///
    /// # Errors
    /// A block that is damaged, or not the next one of its producer: it must not be stored.
    pub fn block(&mut self, from: u32, bytes: &[u8]) -> Result<(), KeepError> {
        let facts = BlockFacts::check(bytes).map_err(|error| KeepError::Damaged {
            from,
            len: bytes.len(),
            why: error.to_string(),
        })?;
        if facts.len != bytes.len() {
            let why = format!("its block ends after {} bytes", facts.len);
            return Err(KeepError::Damaged { from, len: bytes.len(), why });
        }
        if facts.log_id != from {
            return Err(KeepError::Stranger { from, log_id: facts.log_id });
        }
        let came = self.came.entry(from).or_default();
        if u64::from(facts.block_no) != came.blocks {
            return Err(KeepError::Order { from, got: facts.block_no, want: came.blocks });
        }
        came.blocks += 1;
        came.records += u64::from(facts.records);
        Ok(())
    }

    /// A producer has ended.
    ///
    /// # Errors
    /// It has sent another number of blocks or records than came.
    pub fn done(&mut self, from: u32, message: &[u8]) -> Result<(), KeepError> {
        let said = Done::of(message).ok_or(KeepError::NoAccount(from))?;
        let came = self.came.get(&from).copied().unwrap_or_default();
        self.done.insert(from, said);
        if said == came { Ok(()) } else { Err(KeepError::Done { from, said, came }) }
    }

    /// Producers that have ended.
    #[must_use]
    pub fn ended(&self) -> usize {
        self.done.len()
    }

    /// Blocks and records of all producers: as they say, and as they came.
    #[must_use]
    pub fn totals(&self) -> (Done, Done) {
        let sum = |all: &BTreeMap<u32, Done>| {
            all.values().fold(Done::default(), |sum, one| Done {
                blocks: sum.blocks + one.blocks,
                records: sum.records + one.records,
            })
        };
        (sum(&self.done), sum(&self.came))
    }
}

#[cfg(test)]
mod tests {
    use itg_record::{BlockBuf, Record, SentPacket};

    use super::*;

    /// Block `number` of the log of rank `rank`, with so many records.
    fn block(rank: u32, number: u32, records: u64) -> Vec<u8> {
        let mut block = BlockBuf::new(16);
        for seq in 0..records {
            block.push(&Record::sent(SentPacket {
                flow: 0,
                seq,
                size: 100,
                planned_ns: seq,
                sent_ns: seq,
            }));
        }
        block.seal(rank, number).to_vec()
    }

    fn done(blocks: u64, records: u64) -> [u8; 16] {
        Done { blocks, records }.to_bytes()
    }

    #[test]
    fn what_comes_whole_and_in_order_balances() {
        let mut keeper = Keeper::default();
        // Producers are independent of each other.
        keeper.block(2, &block(2, 0, 3)).expect("first of 2");
        keeper.block(1, &block(1, 0, 16)).expect("first of 1");
        keeper.block(2, &block(2, 1, 5)).expect("second of 2");
        keeper.done(2, &done(2, 8)).expect("2 balances");
        assert_eq!(keeper.ended(), 1);
        keeper.done(1, &done(1, 16)).expect("1 balances");
        // One that logged nothing has an account, too.
        keeper.done(3, &done(0, 0)).expect("3 balances");
        let all = Done { blocks: 3, records: 24 };
        assert_eq!((keeper.ended(), keeper.totals()), (3, (all, all)));
    }

    #[test]
    fn every_damaged_byte_is_found_and_nothing_of_it_counted() {
        let sound = block(1, 0, 2);
        for at in 0..sound.len() {
            let mut bytes = sound.clone();
            bytes[at] ^= 0x40;
            let mut keeper = Keeper::default();
            assert!(keeper.block(1, &bytes).is_err(), "byte {at}");
            assert_eq!(keeper.totals().1, Done::default(), "byte {at}");
        }
        for bytes in [&sound[..sound.len() - 1], &[sound.as_slice(), &[0; 8]].concat(), &[]] {
            let error = Keeper::default().block(1, bytes).expect_err("no block");
            let len = bytes.len();
            assert!(matches!(error, KeepError::Damaged { from: 1, len: is, .. } if is == len));
        }
    }

    #[test]
    fn a_block_that_is_not_the_next_one_of_its_producer_is_refused() {
        let mut keeper = Keeper::default();
        keeper.block(1, &block(1, 0, 2)).expect("the first");
        for (number, want) in [(0, 1), (2, 1)] {
            let error = keeper.block(1, &block(1, number, 2));
            assert_eq!(error, Err(KeepError::Order { from: 1, got: number, want }));
        }
        let stranger = keeper.block(1, &block(2, 0, 2));
        assert_eq!(stranger, Err(KeepError::Stranger { from: 1, log_id: 2 }));
        // What was refused does not count, and the next one is still welcome.
        keeper.block(1, &block(1, 1, 2)).expect("the second");
        keeper.done(1, &done(2, 4)).expect("balances");
    }

    #[test]
    fn an_account_that_does_not_balance_names_both_numbers() {
        for (blocks, records) in [(2, 2), (1, 3), (0, 0)] {
            let mut keeper = Keeper::default();
            keeper.block(1, &block(1, 0, 2)).expect("a block");
            let (said, came) = (Done { blocks, records }, Done { blocks: 1, records: 2 });
            let error = keeper.done(1, &done(blocks, records));
            assert_eq!(error, Err(KeepError::Done { from: 1, said, came }));
            assert_eq!(keeper.totals(), (said, came));
        }
        for message in [&[][..], &[0; 15], &[0; 17]] {
            let error = Keeper::default().done(1, message);
            assert_eq!(error, Err(KeepError::NoAccount(1)));
        }
    }
}
