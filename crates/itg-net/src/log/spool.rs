//! Blocks on local disk while the log server is away.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file of blocks, by block number.
#[derive(Debug)]
pub(super) struct Spool {
    file: File,
    path: PathBuf,
    end: u64,
    blocks: BTreeMap<u32, (u64, usize)>,
}

impl Spool {
    /// An empty spool; a file of that name that holds something is refused.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("spool {}: {error}", path.display()))
        };
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(path)
            .map_err(named)?;
        if file.metadata().map_err(named)?.len() > 0 {
            return Err(named(io::Error::new(
                io::ErrorKind::AlreadyExists,
                "it holds blocks of an earlier run: decode or remove it, or choose another file",
            )));
        }
        Ok(Self { file, path: path.to_owned(), end: 0, blocks: BTreeMap::new() })
    }

    pub(super) fn put(&mut self, block_no: u32, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end)?;
        self.blocks.insert(block_no, (self.end, bytes.len()));
        self.end += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn get(&self, block_no: u32) -> io::Result<Vec<u8>> {
        let &(at, len) = self.blocks.get(&block_no).ok_or(io::ErrorKind::NotFound)?;
        let mut bytes = vec![0; len];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(bytes)
    }

    /// Forgets blocks that are stored elsewhere; an empty spool takes no space.
    pub(super) fn release(&mut self, up_to: u32) -> io::Result<()> {
        self.blocks = self.blocks.split_off(&up_to);
        if self.blocks.is_empty() && self.end > 0 {
            self.file.set_len(0)?;
            self.end = 0;
        }
        Ok(())
    }

    /// Removes the file when nothing is left in it.
    pub(super) fn close(self) {
        if self.blocks.is_empty()
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "the empty spool was not removed");
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}
