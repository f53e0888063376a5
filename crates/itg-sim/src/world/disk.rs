//! Disks of simulated hosts: what is not synced is lost in a crash, in part or as garbage.

use std::collections::BTreeMap;

use bytes::Bytes;
use chacha20::ChaCha8Rng;
use itg_core::streams::below;
use itg_process::{JournalWrite, Journals, LayerWrite, Slot, Stored, journal};
use rand::Rng as _;

use super::{Todo, World};
use crate::agenda::Class;
use crate::faults::DiskFault;

/// Disks of a world, all of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Disks {
    /// The longest time that a write takes until it is durable, in nanoseconds.
    pub sync_ns: u64,
    /// True if messages leave before the writes are durable: a planted fault of the driver.
    pub early: bool,
    /// True if records count whose checksums are wrong: a planted fault of the driver.
    pub unchecked: bool,
}

/// The disk of a host.
#[derive(Debug)]
pub(super) struct Disk {
    kind: Disks,
    rng: ChaCha8Rng,
    /// Records that a crash leaves, by layer.
    files: BTreeMap<String, Vec<u8>>,
    /// Writes that are not durable yet, in their order.
    pending: Vec<LayerWrite>,
    /// Time at which they are.
    synced_at: Option<u64>,
    slow_ns: u64,
    full_until: u64,
}

/// Bytes on the disk, one record behind the other.
fn append(file: &mut Vec<u8>, record: &[u8]) {
    if file.is_empty() {
        file.extend_from_slice(journal::MAGIC);
    }
    journal::put(record, file);
}

impl Disk {
    fn apply(&mut self, LayerWrite { layer, write }: LayerWrite) {
        match write {
            JournalWrite::Append(record) => append(self.files.entry(layer).or_default(), &record),
            JournalWrite::Replace(records) => {
                self.files.insert(layer, journal::whole(&records).into());
            }
        }
    }

    fn sync(&mut self) {
        self.synced_at = None;
        for write in std::mem::take(&mut self.pending) {
            self.apply(write);
        }
    }

    fn upto(&mut self, most: usize) -> usize {
        usize::try_from(below(&mut self.rng, most as u64 + 1)).unwrap_or(0)
    }

    /// The host crashes: some of what is not synced is there, the next piece in part.
    fn tear(&mut self) {
        self.synced_at = None;
        let mut pending = std::mem::take(&mut self.pending).into_iter();
        let whole = self.upto(pending.len());
        for write in pending.by_ref().take(whole) {
            self.apply(write);
        }
        // A new file has its name only when it is whole.
        let Some(LayerWrite { layer, write: JournalWrite::Append(record) }) = pending.next() else {
            return;
        };
        let mut piece = Vec::new();
        append(&mut piece, &record);
        piece.drain(..journal::MAGIC.len());
        let kept = self.upto(piece.len());
        match self.upto(2) {
            // The length of a file may be there before its bytes.
            0 => piece[kept..].fill(0),
            1 => self.rng.fill_bytes(&mut piece[kept..]),
            _ => piece.truncate(kept),
        }
        if let Some(file) = self.files.get_mut(&layer) {
            file.extend_from_slice(&piece);
        }
    }

    /// Content that a starting process finds: a torn tail is cut off.
    fn read(&mut self) -> Journals {
        let mut journals = Journals::default();
        for (layer, file) in &mut self.files {
            let bytes = Bytes::copy_from_slice(file);
            let found = match self.kind.unchecked {
                true => journal::read_unchecked(&bytes),
                false => journal::read(&bytes),
            };
            file.truncate(found.whole);
            journals.set(layer, found.records);
        }
        journals
    }
}

impl World {
    /// Gives every host a disk; called before the first run.
    pub fn set_disks(&mut self, kind: Disks) {
        for at in 0..self.hosts.len() {
            let rng = self.seed.named(&format!("disk {at}"));
            let (files, pending) = (BTreeMap::new(), Vec::new());
            let (synced_at, slow_ns, full_until) = (None, 0, 0);
            let disk = Disk { kind, rng, files, pending, synced_at, slow_ns, full_until };
            self.hosts[at].disk = Some(disk);
            let slot = Slot(u32::try_from(at).unwrap_or(u32::MAX));
            // The same configuration has been built before.
            if let Ok(process) = self.build(slot, 1) {
                self.hosts[at].process = Some(process);
            }
        }
    }

    /// Bytes on the disk of a host.
    #[must_use]
    pub fn stored_bytes(&self, slot: Slot) -> u64 {
        let disk = self.hosts.get(slot.index()).and_then(|host| host.disk.as_ref());
        disk.map_or(0, |disk| disk.files.values().map(|file| file.len() as u64).sum())
    }

    /// Content that the layers of a process have stored.
    pub(super) fn journals(&mut self, slot: Slot) -> Option<Journals> {
        Some(self.hosts[slot.index()].disk.as_mut()?.read())
    }

    /// Returns true if a host waits for its disk: nothing leaves it.
    pub(super) fn waits_for_disk(&self, at: usize) -> bool {
        let disk = self.hosts[at].disk.as_ref();
        disk.is_some_and(|disk| disk.synced_at.is_some() && !disk.kind.early)
    }

    pub(super) fn persist(&mut self, slot: Slot, writes: Vec<LayerWrite>) -> Stored {
        let (now, host) = (self.now, &mut self.hosts[slot.index()]);
        let Some(disk) = &mut host.disk else { return Stored::Durable };
        disk.pending.extend(writes);
        let takes = below(&mut disk.rng, disk.kind.sync_ns + 1) + disk.slow_ns;
        let at = now.max(disk.full_until) + takes;
        // A host takes part only when its first start is stored.
        if at == now || !host.booted {
            disk.sync();
            return Stored::Durable;
        }
        let at = at.max(disk.synced_at.unwrap_or(0));
        disk.synced_at = Some(at);
        let early = disk.kind.early;
        if !early {
            host.free_at = host.free_at.max(at);
        }
        self.agenda.push(at, Class::World, Todo::Synced(slot));
        if early { Stored::Durable } else { Stored::Later }
    }

    /// The time of a sync has come.
    pub(super) fn synced(&mut self, slot: Slot) {
        let now = self.now;
        let disk = self.hosts[slot.index()].disk.as_mut();
        if let Some(disk) = disk.filter(|disk| disk.synced_at == Some(now)) {
            disk.sync();
            self.after(slot.index());
        }
    }

    pub(super) fn lose_unsynced(&mut self, at: usize) {
        if let Some(disk) = &mut self.hosts[at].disk {
            disk.tear();
        }
    }

    pub(super) fn disk_fault(&mut self, slot: Slot, fault: DiskFault) {
        let now = self.now;
        let Some(disk) = self.hosts.get_mut(slot.index()).and_then(|host| host.disk.as_mut())
        else {
            return;
        };
        match fault {
            DiskFault::Full(ns) => disk.full_until = now.saturating_add(ns),
            DiskFault::Slow(ns) => disk.slow_ns = ns,
            DiskFault::Lost => disk.files.clear(),
        }
    }

    /// Disks are quick, and have room.
    pub(super) fn heal_disk(&mut self, at: usize) {
        let Some(disk) = &mut self.hosts[at].disk else { return };
        (disk.slow_ns, disk.full_until) = (0, 0);
        if disk.synced_at.is_some() {
            disk.sync();
            self.after(at);
        }
    }
}
