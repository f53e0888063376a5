//! Files of logs on the disks of this host.

use std::fs::File;
use std::io::{self, IoSlice, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use itg_session::logs::keep::Storage;
use itg_socket::MappedFile;

/// A file of this host that grows at its end.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    path: PathBuf,
}

impl DiskFile {
    /// A new file and its path.
    pub fn new(file: File, path: &Path) -> Self {
        Self { file, path: path.to_owned() }
    }

    /// A file that may hold something, and its path.
    ///
    /// # Errors
    /// The system's.
    pub fn at_end(mut file: File, path: &Path) -> io::Result<Self> {
        file.seek(SeekFrom::End(0))?;
        Ok(Self::new(file, path))
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns true if this path leads to it.
    pub fn is_at(&self, path: &Path) -> bool {
        super::lock::is_at(&self.file, path)
    }

    /// Returns true if something is in it.
    pub(super) fn is_written(&self) -> io::Result<bool> {
        Ok(self.bytes()? > 0)
    }
}

impl Storage for DiskFile {
    fn bytes(&self) -> io::Result<u64> {
        self.file.metadata().map(|there| there.len())
    }

    fn view<R>(&self, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        if self.bytes()? == 0 {
            return Ok(look(&[]));
        }
        MappedFile::open(&self.file).map(|bytes| look(&bytes))
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(bytes, at)
    }

    fn append(&mut self, mut pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        // Without bytes there would be no end.
        IoSlice::advance_slices(&mut pieces, 0);
        while !pieces.is_empty() {
            match self.file.write_vectored(pieces) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => IoSlice::advance_slices(&mut pieces, count),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)?;
        self.file.seek(SeekFrom::Start(len)).map(drop)
    }

    fn sync(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn sync_name(&self) -> io::Result<()> {
        self.file.sync_all()?;
        let above = self.path.parent().filter(|above| !above.as_os_str().is_empty());
        File::open(above.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}
