//! Logs of D-ITG read as ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use itg_classic::log::{KnownFlow, Told, is_log, is_of_departures, later_of, to_itg_as};
use itg_core::flow::{Meter, Proto};
use itg_record::{FlowInfo, Item, LogReader, Note, Record, Side};

use crate::map::Bytes;

/// Facts on flows that a log of D-ITG does not tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Transport protocol.
    pub proto: Option<Proto>,
    /// One-way delays or round trips.
    pub meter: Option<Meter>,
}

/// Makes logs of ITG of those of D-ITG, as far as they were written; `say` hears of each where that is not all of it.
/// Facts that a log of D-ITG does not tell: as asked for, or as another log here has them.
pub fn understand(files: &mut [(String, Bytes)], asked: Asked, mut say: impl FnMut(&str, String)) {
    let ours: Vec<bool> = files.iter().map(|(_, bytes)| !is_log(bytes)).collect();
    if ours.iter().all(|&ours| ours) {
        return;
    }
    let flows: Arc<[KnownFlow]> = files
        .iter()
        .zip(&ours)
        .filter(|(_, ours)| **ours)
        .flat_map(|((_, bytes), _)| known(bytes))
        .collect();
    let told: Vec<Told> = (0..files.len())
        .map(|at| Told {
            proto: asked.proto,
            meter: asked.meter,
            side: side_of(files, &ours, at, asked),
            flows: Arc::clone(&flows),
        })
        .collect();
    for (((name, bytes), told), _) in files.iter_mut().zip(told).zip(ours).filter(|(_, ours)| !ours)
    {
        let log = to_itg_as(bytes.written(), &told);
        // What has been cut off meanwhile was read as zeros.
        let written = bytes.written().len();
        if written < bytes.len() {
            let left = bytes.len() - written;
            say(
                name,
                format!("{left} bytes from byte {written} on were never written, or are gone"),
            );
        }
        *bytes = Bytes::Read(log);
    }
}

/// Side of a log of round trips, by the log of its other side; `None` where that is not here.
fn side_of(files: &[(String, Bytes)], ours: &[bool], at: usize, asked: Asked) -> Option<Side> {
    if ours[at] || asked.meter == Some(Meter::Owd) || is_of_departures(files[at].1.written()) {
        return None;
    }
    let mut others = (0..files.len()).filter(|&other| other != at && !ours[other]);
    let is_later = others.find_map(|other| {
        let (own, other) = (files[at].1.written(), files[other].1.written());
        if is_of_departures(other) { None } else { later_of(other, own) }
    })?;
    Some(if is_later { Side::Sender } else { Side::Receiver })
}

/// The flows of a log of ITG, with the times of their first packets.
fn known(log: &[u8]) -> Vec<KnownFlow> {
    let mut infos: BTreeMap<(u32, u32), FlowInfo> = BTreeMap::new();
    let mut sides: BTreeMap<u32, Side> = BTreeMap::new();
    let mut first: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for item in LogReader::new(log) {
        match item {
            Item::Note { log, note: Note::Log(info), .. } => {
                sides.insert(log, info.side);
            }
            Item::Note { log, note: Note::Flow(info), .. } => {
                infos.insert((log, info.index), info);
            }
            Item::Records { log, records, .. } => {
                // Times that no clock shows tell no day.
                for record in records.into_iter().filter(Record::has_good_times) {
                    first.entry((log, record.flow)).or_insert(record.b);
                }
            }
            _ => {}
        }
    }
    let known = infos.into_iter().filter_map(|(key, info)| {
        let near_unix_ns = *first.get(&key)?;
        Some(KnownFlow { info, side: *sides.get(&key.0)?, near_unix_ns })
    });
    known.collect()
}
