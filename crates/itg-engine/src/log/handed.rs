//! A log whose blocks another thread of this program takes one by one.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};

use itg_record::{BlockBuf, LogBuilder, LogInfo, Note};
use itg_socket::clock;

use super::queue::{CLOCK_EVERY_NS, Job, LogOutcome, Shared, Sink, fail, give, left_out, take};
use crate::clock_pair;

/// Receiver of the blocks of a log, and their label.
#[derive(Clone, Debug)]
pub struct HandedTarget {
    /// Place of the log, in words.
    pub place: String,
    /// Number of the log among those that end in one file.
    pub log_id: u32,
    /// Takes the blocks, in their order. A full queue makes the writer wait, and so the producers.
    pub to: SyncSender<HandedBlock>,
}

/// A block on its way. Its holder owns its buffer, which goes back to the producer, and may be
/// written again, only when this is dropped.
#[derive(Debug)]
pub struct HandedBlock {
    content: Content,
    records: u64,
}

#[derive(Debug)]
enum Content {
    /// A sealed buffer, and the way back to its producer; `None` when it has been given back.
    Records(Option<BlockBuf>, SyncSender<BlockBuf>),
    Note(Vec<u8>),
}

impl HandedBlock {
    /// Records in it.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.records
    }
}

impl AsRef<[u8]> for HandedBlock {
    fn as_ref(&self) -> &[u8] {
        match &self.content {
            Content::Records(block, _) => block.as_ref().map_or(&[], BlockBuf::bytes),
            Content::Note(bytes) => bytes,
        }
    }
}

impl Drop for HandedBlock {
    fn drop(&mut self) {
        if let Content::Records(block, give_back) = &mut self.content
            && let Some(block) = block.take()
        {
            give(block, give_back);
        }
    }
}

/// Seals and labels blocks and hands them over.
pub(super) struct Writer {
    target: HandedTarget,
    builder: LogBuilder,
    shared: Arc<Shared>,
    gone: bool,
}

impl Writer {
    pub(super) fn create(target: &HandedTarget, info: LogInfo, shared: &Arc<Shared>) -> Self {
        let builder = LogBuilder::new(target.log_id);
        let shared = Arc::clone(shared);
        let mut writer = Self { target: target.clone(), builder, shared, gone: false };
        writer.note(&Note::Log(info));
        writer.note(&Note::Clock(clock_pair::clock_pair()));
        writer
    }

    pub(super) fn run(mut self, queue: &Receiver<Job>) -> LogOutcome {
        let shared = Arc::clone(&self.shared);
        take(&mut self, queue, &shared, clock::monotonic_ns() + CLOCK_EVERY_NS);
        let end = self.builder.end(self.shared.lost());
        self.hand(HandedBlock { content: Content::Note(end), records: 0 });
        if let Some(why) = left_out(&self.shared) {
            fail(&self.shared, format!("log {}: {why}", self.target.place));
        }
        let records = self.builder.records().saturating_sub(self.shared.lost());
        self.shared.outcome(self.target.place, records)
    }

    fn hand(&mut self, block: HandedBlock) {
        let records = block.records;
        if self.gone || self.target.to.send(block).is_err() {
            self.gone = true;
            self.shared.lose(records);
            fail(
                &self.shared,
                format!("log {}: nobody takes its blocks any more", self.target.place),
            );
        }
    }
}

impl Sink for Writer {
    fn records(&mut self, mut block: BlockBuf, give_back: SyncSender<BlockBuf>) {
        let records = block.len() as u64;
        self.builder.seal(&mut block);
        let content = Content::Records(Some(block), give_back);
        self.hand(HandedBlock { content, records });
    }

    fn left_out(&mut self) {
        self.builder.skip();
    }

    fn note(&mut self, note: &Note) {
        let bytes = self.builder.note(note);
        self.hand(HandedBlock { content: Content::Note(bytes), records: 0 });
    }
}
