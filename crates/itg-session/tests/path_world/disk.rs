//! Disks: what is not synced is lost with the power, in part, as zeros or as garbage.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, IoSlice};
use std::rc::Rc;

use itg_record::{FoundBlock, find_blocks};
use itg_session::logs::keep::Storage;

use super::dice::Dice;
use super::planted::Planted;

/// End of the names of indexes.
const INDEX: &str = ".index.jsonl";

/// Change of a file that no sync has followed.
#[derive(Clone, Debug)]
enum Change {
    Append(Vec<u8>),
    Cut(usize),
}

#[derive(Debug, Default)]
struct Contents {
    /// As programs see it.
    bytes: Vec<u8>,
    /// As the disk has it.
    synced: Vec<u8>,
    /// Changes between the two.
    pending: Vec<Change>,
    /// The name is on the disk.
    named: bool,
    /// Blocks among the first bytes, so many.
    known: (usize, BTreeMap<(u32, u32), u32>),
}

impl Contents {
    fn apply(&mut self, change: Change) {
        match &change {
            Change::Append(bytes) => self.bytes.extend_from_slice(bytes),
            Change::Cut(len) => {
                self.bytes.truncate(*len);
                if *len < self.known.0 {
                    self.known = Default::default();
                }
            }
        }
        self.pending.push(change);
    }
}

#[derive(Debug)]
struct Inner {
    files: BTreeMap<String, Contents>,
    full: bool,
    dice: Dice,
    planted: Option<Planted>,
    /// Blocks were cut off with a file that is being opened.
    opening: bool,
    dying: bool,
}

/// Disk of a host.
#[derive(Clone, Debug)]
pub struct Disk(Rc<RefCell<Inner>>);

/// A file on it.
#[derive(Clone, Debug)]
pub struct SimFile {
    disk: Disk,
    name: String,
}

impl Disk {
    pub fn new(dice: Dice, planted: Option<Planted>) -> Self {
        let files = BTreeMap::new();
        Self(Rc::new(RefCell::new(Inner {
            files,
            full: false,
            dice,
            planted,
            opening: false,
            dying: false,
        })))
    }

    pub fn set_full(&self, full: bool) {
        self.0.borrow_mut().full = full;
    }

    pub fn is_full(&self) -> bool {
        self.0.borrow().full
    }

    /// Opens a file, or makes it.
    pub fn open(&self, name: &str) -> SimFile {
        self.0.borrow_mut().files.entry(name.to_owned()).or_default();
        SimFile { disk: self.clone(), name: name.to_owned() }
    }

    /// Opens a file and removes what is in it.
    pub fn replace(&self, name: &str) -> SimFile {
        let file = self.open(name);
        self.change(name, Change::Cut(0));
        file
    }

    pub fn remove(&self, name: &str) {
        self.0.borrow_mut().files.remove(name);
    }

    pub fn names(&self) -> Vec<String> {
        self.0.borrow().files.keys().cloned().collect()
    }

    pub fn read(&self, name: &str) -> Vec<u8> {
        self.0.borrow().files.get(name).map_or_else(Vec::new, |file| file.bytes.clone())
    }

    /// A program opens files: what it cuts off is its judgement of what is whole.
    pub fn opening(&self, yes: bool) {
        self.0.borrow_mut().opening = yes;
    }

    fn change(&self, name: &str, change: Change) {
        if let Some(file) = self.0.borrow_mut().files.get_mut(name) {
            file.apply(change);
        }
    }

    /// A program is being killed: of its next write some bytes are there, and it does nothing more.
    pub fn dying(&self, yes: bool) {
        self.0.borrow_mut().dying = yes;
    }

    /// Checksum of a block that is in a file.
    pub fn block(&self, name: &str, log_id: u32, block_no: u32) -> Option<u32> {
        let mut inner = self.0.borrow_mut();
        let file = inner.files.get_mut(name)?;
        let (from, known) = &mut file.known;
        let (good, found) = find_blocks(&file.bytes[*from..]);
        for FoundBlock { facts, .. } in found {
            known.insert((facts.log_id, facts.block_no), facts.checksum);
        }
        *from += usize::try_from(good).expect("small");
        known.get(&(log_id, block_no)).copied()
    }

    /// The power is gone: of the changes since the last sync of each file some are there, the next in part.
    pub fn lose_power(&self) {
        let mut inner = self.0.borrow_mut();
        let Inner { files, dice, .. } = &mut *inner;
        files.retain(|_, file| file.named || dice.half());
        for file in files.values_mut() {
            let mut bytes = std::mem::take(&mut file.synced);
            let pending = std::mem::take(&mut file.pending);
            let whole = dice.upto(pending.len());
            for (at, change) in pending.into_iter().take(whole + 1).enumerate() {
                match change {
                    Change::Cut(len) if at < whole => bytes.truncate(len),
                    Change::Cut(_) => {}
                    Change::Append(mut piece) => {
                        if at == whole {
                            let kept = dice.upto(piece.len());
                            match dice.below(3) {
                                // The length of a file may be there before its bytes.
                                0 => piece[kept..].fill(0),
                                1 => piece[kept..].iter_mut().for_each(|byte| *byte = dice.byte()),
                                _ => piece.truncate(kept),
                            }
                        }
                        bytes.extend_from_slice(&piece);
                    }
                }
            }
            file.synced.clone_from(&bytes);
            (file.bytes, file.named, file.known) = (bytes, true, Default::default());
        }
    }
}

impl Storage for SimFile {
    fn bytes(&self) -> io::Result<u64> {
        self.view(|bytes| bytes.len() as u64)
    }

    fn view<R>(&self, look: impl FnOnce(&[u8]) -> R) -> io::Result<R> {
        let inner = self.disk.0.borrow();
        let file = inner.files.get(&self.name).ok_or(ErrorKind::NotFound)?;
        Ok(look(&file.bytes))
    }

    fn read_at(&self, at: u64, bytes: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(at).expect("small");
        self.view(|all| match all.get(at..at + bytes.len()) {
            Some(there) => {
                bytes.copy_from_slice(there);
                Ok(())
            }
            None => Err(ErrorKind::UnexpectedEof.into()),
        })?
    }

    fn append(&mut self, pieces: &mut [IoSlice<'_>]) -> io::Result<()> {
        let mut bytes: Vec<u8> = pieces.iter().flat_map(|piece| piece.iter().copied()).collect();
        let dying = self.disk.0.borrow().dying;
        let full = self.disk.is_full() || dying;
        if full {
            let kept = self.disk.0.borrow_mut().dice.upto(bytes.len().saturating_sub(1));
            bytes.truncate(kept);
        }
        self.disk.change(&self.name, Change::Append(bytes));
        if full { Err(ErrorKind::StorageFull.into()) } else { Ok(()) }
    }

    fn cut(&mut self, len: u64) -> io::Result<()> {
        let mut len = usize::try_from(len).expect("small");
        let (planted, opening) = {
            let inner = self.disk.0.borrow();
            if inner.dying {
                return Ok(());
            }
            (inner.planted, inner.opening)
        };
        let index = self.name.ends_with(INDEX);
        match planted {
            Some(Planted::TornTailKept) if opening && !index => return Ok(()),
            Some(Planted::TornLineKept) if opening && index => return Ok(()),
            Some(Planted::TailCutTooFar) if opening && !index => len = len.saturating_sub(1),
            _ => {}
        }
        self.disk.change(&self.name, Change::Cut(len));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.disk.0.borrow_mut();
        if inner.dying {
            return Err(ErrorKind::Interrupted.into());
        }
        match inner.planted {
            Some(Planted::SyncLeftOut) => return Ok(()),
            Some(Planted::IndexNotSynced) if self.name.ends_with(INDEX) => return Ok(()),
            _ => {}
        }
        if let Some(file) = inner.files.get_mut(&self.name) {
            file.pending.clear();
            file.synced.clone_from(&file.bytes);
        }
        Ok(())
    }

    fn sync_name(&self) -> io::Result<()> {
        self.sync()?;
        if let Some(file) = self.disk.0.borrow_mut().files.get_mut(&self.name) {
            file.named = true;
        }
        Ok(())
    }
}
