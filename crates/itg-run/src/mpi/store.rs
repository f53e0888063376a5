//! A log at rank 0: the blocks that ranks send of theirs, checked and stored in one file.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use itg_core::units::format_duration_ns;
use itg_mpi::Keeper;
use serde_json::Value;

/// Log of several ranks.
pub(super) struct RankLog {
    path: PathBuf,
    file: BufWriter<File>,
    keeper: Keeper,
    error: Option<String>,
    lost: bool,
}

impl RankLog {
    /// Creates its file.
    pub(super) fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).with_context(|| format!("log {}", path.display()))?;
        let file = BufWriter::with_capacity(1 << 18, file);
        Ok(Self { path, file, keeper: Keeper::default(), error: None, lost: false })
    }

    /// Takes a block of a rank.
    pub(super) fn block(&mut self, from: u32, bytes: &[u8]) {
        if let Err(why) = self.keeper.block(from, bytes) {
            return self.fail(why.to_string());
        }
        if self.lost {
            return;
        }
        if let Err(error) = self.file.write_all(bytes) {
            self.lost = true;
            let path = self.path.display();
            self.fail(format!("log {path}: {error}; blocks that come later are lost"));
        }
    }

    /// Takes the account of a rank at its end.
    pub(super) fn done(&mut self, from: u32, bytes: &[u8]) {
        if let Err(why) = self.keeper.done(from, bytes) {
            self.fail(why.to_string());
        }
    }

    /// Ranks that have ended.
    pub(super) fn ended(&self) -> usize {
        self.keeper.ended()
    }

    /// Closes it, once these ranks have told what became of their part in it: the line with the account of all, and the
    /// reason for which it is not whole.
    pub(super) fn finish<'a>(
        mut self,
        ranks: impl Iterator<Item = &'a Value>,
    ) -> (String, Option<String>) {
        if let Err(error) = self.file.flush() {
            let why = format!("log {}: {error}", self.path.display());
            self.lost = true;
            self.fail(why);
        }
        let (mut count, mut lost, mut stalls, mut stalled_ns) = (0_usize, 0, 0, 0);
        for value in ranks {
            let log = value.get("log");
            let number = |key| log.and_then(|log| log.get(key)?.as_u64()).unwrap_or(0);
            count += 1;
            lost += number("lost_records");
            stalls += number("stalls");
            stalled_ns += number("stalled_ns");
        }
        let (said, came) = self.keeper.totals();
        let state = if self.lost { "came" } else { "stored" };
        let path = self.path.display();
        let line = format!(
            "log {path}: {} records in {} blocks {state} of {} in {} sent by {count} ranks, {lost} lost before; \
             packets waited for it {stalls} times ({} together)",
            came.records,
            came.blocks,
            said.records,
            said.blocks,
            format_duration_ns(stalled_ns / 1000 * 1000),
        );
        let lost = || (lost > 0).then(|| format!("log {path}: {lost} records are lost"));
        let error = self.error.take().or_else(lost);
        (line, error)
    }

    fn fail(&mut self, why: String) {
        tracing::error!("{why}");
        self.error.get_or_insert(why);
    }
}
