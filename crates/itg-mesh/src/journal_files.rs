//! Journals of a process as files: one for each layer, as [`itg_process::journal`] lays it out.
//!
//! A record is appended and synced before [`JournalFiles::persist`] returns. Records that take the place of all go to
//! a new file, which is synced and renamed, and then the directory is synced: the old journal or the new one is
//! there, whenever power fails. A write that fails leaves the journal damaged, and the next attempt writes all of it
//! anew: what a file holds after a failed sync is not known, so nothing is appended to it.
//!
//! Files are readable by their owner alone. Links are not followed, and what is no journal is neither read as one nor
//! replaced. The records are kept in memory as well, up to [`MOST_BYTES`] a journal; layers make theirs shorter long
//! before.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use bytes::{Bytes, BytesMut};
use itg_process::journal::{self, MAGIC};
use itg_process::{JournalWrite, Journals, LayerWrite, Stored};

/// Longest journal: 256 MiB. What would be longer waits like what a full disk does not take.
pub const MOST_BYTES: u64 = 256 << 20;
/// Rights of a journal, and of the directory of journals.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;
/// End of the name of a journal, behind that of its layer.
const SUFFIX: &str = ".journal";
/// End of the name of a journal that is being written.
const FRESH: &str = ".journal.new";

/// The journals of one process, in a directory of their own.
#[derive(Debug)]
pub struct JournalFiles {
    dir: PathBuf,
    /// The directory, to sync it.
    handle: File,
    layers: BTreeMap<String, LayerFile>,
    most: u64,
    /// Reason that writes are not durable yet.
    trouble: Option<String>,
}

/// The journal of a layer.
#[derive(Debug, Default)]
struct LayerFile {
    /// Its file; `None` when it has to be written anew.
    file: Option<File>,
    /// Bytes of the file.
    len: u64,
    /// All records, also those that are not in the file yet.
    records: Vec<Bytes>,
    /// Bytes of the journal that these make.
    whole: u64,
    /// Records that have not been appended, as they will stand in the file.
    unwritten: BytesMut,
}

impl JournalFiles {
    /// Opens the journals in a directory, which is made if it is not there; torn tails are cut off.
    ///
    /// # Errors
    /// The system's; a file that is named as a journal and is none.
    pub fn open(dir: &Path) -> io::Result<(Self, Journals)> {
        make_private_dir(dir)?;
        let handle = File::open(dir)?;
        let (mut layers, mut journals) = (BTreeMap::new(), Journals::default());
        for entry in fs::read_dir(dir)? {
            let name = entry?.file_name();
            let layer = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let Some(layer) = layer.filter(|layer| is_plain(layer)) else { continue };
            let found = LayerFile::open(&dir.join(&name), MOST_BYTES)?;
            journals.set(layer, found.records.clone());
            layers.insert(layer.to_owned(), found);
        }
        let dir = dir.to_owned();
        Ok((Self { dir, handle, layers, most: MOST_BYTES, trouble: None }, journals))
    }

    /// Makes writes durable, in their order; with [`Stored::Later`] they are not, and [`JournalFiles::store`] tries
    /// again.
    pub fn persist(&mut self, writes: Vec<LayerWrite>) -> Stored {
        for LayerWrite { layer, write } in writes {
            self.layers.entry(layer).or_default().take(write);
        }
        self.store()
    }

    /// Tries to make durable what is not yet.
    pub fn store(&mut self) -> Stored {
        let before = self.trouble.take();
        for (layer, file) in &mut self.layers {
            if let Err(error) = file.store(&self.dir, &self.handle, layer, self.most) {
                let text = format!("journal of {layer} in {}: {error}", self.dir.display());
                if before.as_ref() != Some(&text) {
                    tracing::error!("{text}: nothing is sent before it is written");
                }
                self.trouble = Some(text);
                return Stored::Later;
            }
        }
        Stored::Durable
    }

    /// Reason that writes are not durable; `None` when they are.
    #[must_use]
    pub fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }
}

impl LayerFile {
    fn open(path: &Path, most: u64) -> io::Result<Self> {
        let none = || {
            let text = format!("{} is no journal", path.display());
            io::Error::new(ErrorKind::InvalidData, text)
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
            .open(path)?;
        let facts = file.metadata()?;
        if !facts.is_file() || facts.len() > most {
            return Err(none());
        }
        let mut bytes = Vec::new();
        (&file).take(most).read_to_end(&mut bytes)?;
        let found = journal::read(&Bytes::from(bytes));
        // It got its name when it was whole.
        if found.whole == 0 {
            return Err(none());
        }
        let len = found.whole as u64;
        if len < facts.len() {
            file.set_len(len)?;
            file.sync_all()?;
        }
        let (records, unwritten) = (found.records, BytesMut::new());
        Ok(Self { file: Some(file), len, records, whole: len, unwritten })
    }

    /// Takes a write into memory.
    fn take(&mut self, write: JournalWrite) {
        match write {
            JournalWrite::Append(record) => {
                let before = self.unwritten.len();
                journal::put(&record, &mut self.unwritten);
                if self.records.is_empty() && self.whole == 0 {
                    self.whole = MAGIC.len() as u64;
                }
                self.whole += (self.unwritten.len() - before) as u64;
                self.records.push(record);
            }
            JournalWrite::Replace(records) => {
                self.whole = journal::whole_len(&records) as u64;
                (self.file, self.records) = (None, records);
                self.unwritten.clear();
            }
        }
    }

    /// Makes the file what memory has.
    fn store(&mut self, dir: &Path, handle: &File, layer: &str, most: u64) -> io::Result<()> {
        let Some(file) = self.file.as_ref().filter(|_| self.whole <= most) else {
            return self.rewrite(dir, handle, layer, most);
        };
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let written = file.write_all_at(&self.unwritten, self.len).and_then(|()| file.sync_data());
        if let Err(error) = written {
            // From here on the file holds nobody knows what.
            self.file = None;
            return Err(error);
        }
        self.len += self.unwritten.len() as u64;
        self.unwritten.clear();
        Ok(())
    }

    /// Writes all records to a new file, which takes the place of the old one.
    fn rewrite(&mut self, dir: &Path, handle: &File, layer: &str, most: u64) -> io::Result<()> {
        if !is_plain(layer) {
            let text = format!("`{layer}` is no name of a layer");
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        if self.whole > most {
            let text = format!("{} bytes: {most} at most", self.whole);
            return Err(io::Error::new(ErrorKind::FileTooLarge, text));
        }
        let bytes = journal::whole(&self.records);
        let path = dir.join(format!("{layer}{SUFFIX}"));
        // What is there under this name has to be a journal, and no link.
        remove_own(&path, false)?;
        let fresh = dir.join(format!("{layer}{FRESH}"));
        remove_own(&fresh, true)?;
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(FILE_MODE)
            .custom_flags(libc::O_NOFOLLOW)
            .open(&fresh)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        handle.sync_all()?;
        (self.len, self.file) = (bytes.len() as u64, Some(file));
        self.unwritten.clear();
        Ok(())
    }
}

/// Looks whether a file is one that this module has written, and removes it if that is wanted; there may be none.
fn remove_own(path: &Path, remove: bool) -> io::Result<()> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut head = Vec::new();
    let is_file = file.metadata()?.is_file();
    if is_file {
        file.take(MAGIC.len() as u64).read_to_end(&mut head)?;
    }
    // After a loss of power a file may be there without its bytes.
    let ours = MAGIC.starts_with(&head) || head.iter().all(|byte| *byte == 0);
    if !is_file || !ours {
        let text = format!("{} is no journal, and is not replaced", path.display());
        return Err(io::Error::new(ErrorKind::AlreadyExists, text));
    }
    if remove { fs::remove_file(path) } else { Ok(()) }
}

/// Makes a directory that its owner alone may enter, unless there is one.
///
/// # Errors
/// The system's; something else is there.
pub fn make_private_dir(dir: &Path) -> io::Result<()> {
    match fs::symlink_metadata(dir) {
        Ok(facts) if facts.is_dir() => return Ok(()),
        Ok(_) => {
            let text = format!("{} is no directory", dir.display());
            return Err(io::Error::new(ErrorKind::NotADirectory, text));
        }
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    DirBuilder::new().mode(DIR_MODE).create(dir)?;
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty());
    File::open(above.unwrap_or_else(|| Path::new(".")))?.sync_all()
}

/// Returns true if a name of a layer may be that of a file.
fn is_plain(layer: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    !layer.is_empty() && layer.len() < 64 && layer.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn append(layer: &str, record: &[u8]) -> LayerWrite {
        let write = JournalWrite::Append(Bytes::copy_from_slice(record));
        LayerWrite { layer: layer.to_owned(), write }
    }

    fn replace(layer: &str, records: &[Bytes]) -> LayerWrite {
        LayerWrite { layer: layer.to_owned(), write: JournalWrite::Replace(records.to_vec()) }
    }

    fn open(dir: &Path) -> (JournalFiles, Journals) {
        JournalFiles::open(dir).expect("journals")
    }

    fn sample() -> Vec<Bytes> {
        vec![Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 300])]
    }

    #[test]
    fn what_was_stored_is_found() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("journals");
        let (mut files, found) = open(&dir);
        assert_eq!(found, Journals::default());
        let records = sample();
        for (turn, record) in records.iter().enumerate() {
            assert_eq!(
                files.persist(vec![append("log", record), append("x", b"y")]),
                Stored::Durable
            );
            // Without an end of the process: it may be killed now.
            let (_, found) = open(&dir);
            assert_eq!(found.of("log"), &records[..=turn]);
            assert_eq!(found.of("x").len(), turn + 1);
        }
        assert_eq!(files.persist(vec![replace("log", &records[1..])]), Stored::Durable);
        assert_eq!(files.persist(vec![append("log", b"more")]), Stored::Durable);
        let (mut files, found) = open(&dir);
        let want = [&records[1..], &[Bytes::from_static(b"more")]].concat();
        assert_eq!(found.of("log"), want);
        // Several writes of one step, in their order.
        let step = vec![append("log", b"gone"), replace("log", &records), append("log", b"last")];
        assert_eq!(files.persist(step), Stored::Durable);
        let (_, found) = open(&dir);
        assert_eq!(found.of("log"), [&records[..], &[Bytes::from_static(b"last")]].concat());
    }

    /// Whatever is left of the last bytes: the records before are there, and the journal goes on behind them.
    #[test]
    fn a_torn_tail_is_cut_off_wherever_it_is_torn() {
        let above = tempfile::tempdir().expect("a directory");
        let records = sample();
        let bytes = journal::whole(&records);
        for cut in MAGIC.len()..=bytes.len() {
            for tail in [&[][..], &[0; 40], &[0xa5; 40]] {
                let dir = above.path().join(format!("{cut}-{}-{:?}", tail.len(), tail.first()));
                make_private_dir(&dir).expect("made");
                let torn = [&bytes[..cut], tail].concat();
                // A tail of zeros may complete a record of zeros: not this one.
                fs::write(dir.join("log.journal"), &torn).expect("written");
                let (mut files, found) = open(&dir);
                let kept = found.of("log").len();
                assert!(records.starts_with(found.of("log")), "cut at {cut}");
                assert_eq!(kept == records.len(), cut == bytes.len(), "cut at {cut}");
                assert_eq!(files.persist(vec![append("log", b"next")]), Stored::Durable);
                let (_, found) = open(&dir);
                assert_eq!(found.of("log").len(), kept + 1, "cut at {cut}");
                assert_eq!(&found.of("log")[kept][..], b"next", "cut at {cut}");
            }
        }
    }

    /// A crash while a journal is made shorter leaves the old one, whatever there is of the new one.
    #[test]
    fn an_unfinished_new_journal_does_not_count() {
        let records = sample();
        let bytes = journal::whole(&records);
        let above = tempfile::tempdir().expect("a directory");
        for cut in 0..bytes.len() {
            let dir = above.path().join(cut.to_string());
            let (mut files, _) = open(&dir);
            assert_eq!(files.persist(vec![append("log", b"old")]), Stored::Durable);
            fs::write(dir.join("log.journal.new"), &bytes[..cut]).expect("written");
            let (mut files, found) = open(&dir);
            assert_eq!(found.of("log"), [Bytes::from_static(b"old")]);
            assert_eq!(files.persist(vec![replace("log", &records)]), Stored::Durable);
            assert_eq!(open(&dir).1.of("log"), records);
            assert_eq!(fs::read_dir(&dir).expect("entries").count(), 1, "nothing else is left");
        }
    }

    #[test]
    fn only_the_owner_reads_and_nothing_foreign_is_touched() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("journals");
        let (mut files, _) = open(&dir);
        assert_eq!(files.persist(vec![append("log", b"one")]), Stored::Durable);
        let mode = |path: &Path| fs::metadata(path).expect("facts").permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&dir.join("log.journal"))), (0o700, 0o600));
        let diary = above.path().join("diary");
        fs::write(&diary, "dear diary").expect("written");
        // A link in the place of a journal, or of one that is being written, and a text.
        symlink(&diary, dir.join("linked.journal")).expect("linked");
        assert!(JournalFiles::open(&dir).is_err());
        assert_eq!(files.persist(vec![append("linked", b"one")]), Stored::Later);
        fs::remove_file(dir.join("linked.journal")).expect("removed");
        assert_eq!(files.store(), Stored::Durable, "it is tried again");
        for name in ["other.journal.new", "other.journal"] {
            symlink(&diary, dir.join(name)).expect("linked");
            assert_eq!(files.persist(vec![append("other", b"one")]), Stored::Later, "{name}");
            fs::remove_file(dir.join(name)).expect("removed");
            fs::write(dir.join(name), "dear diary").expect("written");
            assert_eq!(files.store(), Stored::Later, "{name}");
            assert!(files.trouble().is_some_and(|why| why.contains("not replaced")), "{name}");
            assert_eq!(fs::read_to_string(dir.join(name)).expect("text"), "dear diary");
            fs::remove_file(dir.join(name)).expect("removed");
        }
        assert_eq!((files.store(), files.trouble()), (Stored::Durable, None));
        assert_eq!(fs::read_to_string(&diary).expect("text"), "dear diary");
        assert_eq!(open(&dir).1.of("other").len(), 2);
        assert_eq!(files.persist(vec![append("../up", b"one")]), Stored::Later, "no such layer");
    }

    #[test]
    fn what_does_not_fit_waits_and_is_not_lost() {
        let above = tempfile::tempdir().expect("a directory");
        let dir = above.path().join("journals");
        let (mut files, _) = open(&dir);
        files.most = 100;
        assert_eq!(files.persist(vec![append("log", &[1; 60])]), Stored::Durable);
        assert_eq!(files.persist(vec![append("log", &[2; 60])]), Stored::Later);
        assert_eq!(files.store(), Stored::Later);
        assert_eq!(open(&dir).1.of("log").len(), 1, "nothing of it is there");
        files.most = 1000;
        assert_eq!(files.store(), Stored::Durable);
        assert_eq!(open(&dir).1.of("log").len(), 2);
    }
}
