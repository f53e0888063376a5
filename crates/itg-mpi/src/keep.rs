//! The account of a log rank: every producer's blocks come once, whole and in order, and as many as it
//! says at its end.

use std::collections::BTreeMap;

use itg_record::BlockFacts;

/// What a producer says when it has sent its last block.
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

/// Why the account does not balance.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeepError {
    /// Bytes that are no block.
    #[error("rank {from} sent {len} bytes that are no block of a log: {why}")]
    Damaged {
        /// Who sent it.
        from: u32,
        /// How long it is.
        len: usize,
        /// What is wrong with it.
        why: String,
    },
    /// A block of somebody else's log.
    #[error("rank {from} sent a block of log {log_id}")]
    Stranger {
        /// Who sent it.
        from: u32,
        /// Whose it is.
        log_id: u32,
    },
    /// A block that is not the next one.
    #[error("rank {from} sent block {got} where block {want} was due")]
    Order {
        /// Who sent it.
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
        /// Who says so.
        from: u32,
        /// What it says.
        said: Done,
        /// What came.
        came: Done,
    },
    /// A message without the two numbers.
    #[error("rank {0} ended its log with something that is no account")]
    NoAccount(u32),
}

/// What came from each producer.
#[derive(Debug, Default)]
pub struct Keeper {
    came: BTreeMap<u32, Done>,
    done: BTreeMap<u32, Done>,
}

impl Keeper {
    /// Checks a block; whoever wrote it labels its log with its own rank.
    ///
    /// # Errors
    /// A block that is damaged, or not the next one of its producer: it must not be stored.
    pub fn block(&mut self, from: u32, bytes: &[u8]) -> Result<(), KeepError> {
        let facts = BlockFacts::check(bytes).map_err(|error| KeepError::Damaged {
            from,
            len: bytes.len(),
            why: error.to_string(),
        })?;
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
    /// It has sent something else than what came.
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
