//! Invariants of each step and of the end: conservation, no packet twice, nothing acknowledged that is gone.

use std::collections::{BTreeMap, BTreeSet};

use itg_record::{BlockFacts, Cause, Item, LogReader, find_blocks};
use itg_session::logs::Transport;
use itg_session::logs::keep::Fsync;
use itg_session::{Difference, FlowCounts, FlowTotals, LogSummary};

use super::ends::SPOOL;
use super::net::Client;
use super::plan::{Host, Place};
use super::server::file_names;
use super::world::World;

/// Fates of the packets of a flow.
#[derive(Debug, Default)]
struct FlowTruth {
    sent: BTreeSet<u64>,
    /// Copies on their way.
    copies: u64,
    /// Count of each number that came while the flow was open.
    delivered: BTreeMap<u64, u32>,
    /// Numbers that came to a receiver that did not wait for them.
    strayed: BTreeSet<u64>,
    /// Numbers of which the network has lost all copies.
    lost: BTreeSet<u64>,
}

/// Events as they were, whatever the programs say of them.
#[derive(Debug, Default)]
pub struct Truth {
    flows: BTreeMap<u32, FlowTruth>,
    /// Handle of each flow of each run.
    pub handles: BTreeMap<(u64, u32), u32>,
    counted: BTreeSet<(u64, u32)>,
    /// Blocks sent on each connection: number of the log at the server, checksum.
    sent: BTreeMap<usize, BTreeMap<u32, (u32, u32)>>,
    /// Numbers that the log server has given each log.
    ids: BTreeMap<usize, BTreeSet<u32>>,
    /// Numbers under which blocks of each log were acknowledged.
    acked_as: BTreeMap<usize, BTreeSet<u32>>,
    /// Blocks that the log server has acknowledged, by file.
    acked: BTreeMap<(String, u32, u32), u32>,
    /// Hosts that have lost power while not everything was on their disks.
    pub unsafe_hosts: BTreeSet<usize>,
    /// Logs whose spools are to be sent on.
    pub forwards: BTreeSet<usize>,
    /// Logs that send on, and those whose blocks they send.
    pub forwarded: BTreeMap<usize, usize>,
    pub summaries: Vec<LogSummary>,
    pub records: u64,
}

impl Truth {
    pub fn packet(&mut self, handle: u32, seq: u64) {
        self.flows.entry(handle).or_default().sent.insert(seq);
    }

    pub fn copies(&mut self, handle: u32, seq: u64, copies: usize) {
        let flow = self.flows.entry(handle).or_default();
        flow.copies += copies as u64;
        if copies == 0 {
            flow.lost.insert(seq);
        }
    }

    pub fn delivered(&mut self, handle: u32, seq: u64) {
        let flow = self.flows.entry(handle).or_default();
        flow.copies -= 1;
        *flow.delivered.entry(seq).or_default() += 1;
    }

    pub fn strayed(&mut self, handle: u32, seq: u64) {
        let flow = self.flows.entry(handle).or_default();
        flow.copies -= 1;
        flow.strayed.insert(seq);
    }

    /// Numbers at the log server of a log, whoever has sent its blocks.
    fn ids_of(&self, log: usize) -> BTreeSet<u32> {
        let forwarders = self.forwarded.iter().filter(|(_, of)| **of == log).map(|(by, _)| by);
        let ids = forwarders.chain([&log]).filter_map(|log| self.ids.get(log));
        ids.flatten().copied().collect()
    }

    /// A log writes a frame, or sends a datagram.
    pub fn sent(&mut self, log: usize, connection: Option<usize>, frame: &[u8]) {
        if let Ok(facts) = BlockFacts::check(frame) {
            if let Some(connection) = connection {
                let sent = self.sent.entry(connection).or_default();
                sent.insert(facts.block_no, (facts.log_id, facts.checksum));
            }
            self.ids.entry(log).or_default().insert(facts.log_id);
        }
    }
}

/// Contents of a file, as its reader tells them.
#[derive(Debug, Default)]
struct Reading {
    records: BTreeMap<(u32, u64), u32>,
    notes: u64,
    /// Bytes that are in no block.
    lost_bytes: u64,
    /// Notices of blocks or records that are not there, or of a missing end.
    told: Vec<String>,
    /// Anything but the order of blocks.
    damaged: bool,
}

fn read(bytes: &[u8]) -> Reading {
    let mut reading = Reading::default();
    for item in LogReader::new(bytes) {
        match item {
            Item::Records { records, .. } => {
                for record in records {
                    *reading.records.entry((record.flow, record.seq)).or_default() += 1;
                }
            }
            Item::Damage(damage) => {
                reading.lost_bytes += damage.len;
                reading.damaged |= damage.cause != Cause::OutOfOrder;
                if damage.cause != Cause::OutOfOrder {
                    reading.told.push(damage.reason);
                }
            }
            Item::Note { .. } => reading.notes += 1,
        }
    }
    reading
}

impl World {
    /// A host has lost its power: what its program has not synced may be gone.
    pub fn lost_power(&mut self, host: Host) {
        let spools = matches!(self.plan.places[0], Place::Server { spools: true, .. });
        if self.plan.fsync != Fsync::Block || (host == Host::Sender && spools) {
            self.truth.unsafe_hosts.insert(host as usize);
        }
        if host == Host::Server && self.plan.fsync != Fsync::Block {
            self.truth.acked.clear();
        }
        self.check_acked();
    }

    /// The log server is about to say that everything below this block is stored.
    pub fn check_ack(&mut self, connection: usize, stored_to: u32) {
        let Client::Log(log) = self.net.connections[connection].client else { return };
        let (file, _) = file_names(&self.logs[log].plan.name);
        let disk = self.disks[Host::Server as usize].clone();
        let sent = self.truth.sent.entry(connection).or_default();
        let kept = sent.split_off(&stored_to);
        for (block_no, (log_id, checksum)) in std::mem::replace(sent, kept) {
            match disk.block(&file, log_id, block_no) {
                Some(there) if there == checksum => {
                    self.truth.acked.insert((file.clone(), log_id, block_no), checksum);
                    let origin = self.truth.forwarded.get(&log).copied().unwrap_or(log);
                    self.truth.acked_as.entry(origin).or_default().insert(log_id);
                }
                _ => self.broken(format!(
                    "block {block_no} of log {log_id} is acknowledged and not in the file"
                )),
            }
        }
    }

    /// Asserts that all acknowledged records are in the files.
    pub fn check_acked(&mut self) {
        let disk = self.disks[Host::Server as usize].clone();
        let acked = &self.truth.acked;
        let gone = acked.iter().find(|((file, log_id, block_no), checksum)| {
            disk.block(file, *log_id, *block_no) != Some(**checksum)
        });
        if let Some(((file, log_id, block_no), _)) = gone {
            let text = format!(
                "block {block_no} of log {log_id} was acknowledged and is gone from {file}"
            );
            self.broken(text);
        }
    }

    /// The receiver has counted a flow.
    pub fn check_counts(&mut self, handle: u32, counts: &FlowCounts) {
        let flow = self.truth.flows.entry(handle).or_default();
        let packets: u64 = flow.delivered.values().map(|&n| u64::from(n)).sum();
        let unique = flow.delivered.len() as u64;
        if (packets, unique) != (counts.packets, counts.unique) {
            let text = format!(
                "{packets} packets came, {unique} different ones; the receiver counts {} and {}",
                counts.packets, counts.unique
            );
            self.broken(text);
        }
    }

    /// The sender has both accounts of a flow, or is told that it will not have the other.
    pub fn check_counted(&mut self, totals: &FlowTotals, counts: Option<FlowCounts>) {
        self.truth.counted.insert((self.run, totals.flow));
        let Some(handle) = self.truth.handles.get(&(self.run, totals.flow)) else { return };
        let flow = self.truth.flows.entry(*handle).or_default();
        let sent = flow.sent.len() as u64;
        let Some(counts) = counts else {
            self.seen.insert("a flow was counted by its sender alone");
            return;
        };
        let difference = Difference::between(totals, &counts);
        let lost = sent - flow.delivered.len() as u64;
        if totals.packets != sent || difference.lost != lost || difference.unexplained > 0 {
            let text = format!("{sent} packets were sent and {lost} lost; said is {difference:?}");
            self.broken(text);
        }
    }

    /// The sender's session is done: each flow has been counted.
    pub fn check_done(&mut self) {
        let of_run = self.truth.handles.keys().filter(|(run, _)| *run == self.run);
        let missing: Vec<_> = of_run.filter(|flow| !self.truth.counted.contains(flow)).collect();
        if !missing.is_empty() {
            let text = format!("the session is done, {missing:?} not counted");
            self.broken(text);
        }
    }

    /// A log has come to its end: its owner's account adds up.
    pub fn check_log(&mut self, log: usize) {
        let sim = &self.logs[log];
        let Some(ending) = sim.ending.clone() else { return };
        let (produced, in_use) = (sim.produced(), sim.in_use());
        let mut wrong = Vec::new();
        if let Some(fate) = &ending.fate {
            let parts = [
                fate.stored_records,
                fate.missing_records,
                fate.dropped_records,
                fate.spooled_records,
                fate.unconfirmed_records,
            ];
            if parts.iter().sum::<u64>() != fate.records {
                wrong.push(format!("{} records are {parts:?}", fate.records));
            }
            if in_use > 0 {
                wrong.push(format!("{in_use} buffers were not given back"));
            }
            let spool = self.disks[Host::Sender as usize].read(SPOOL);
            let (_, found) = find_blocks(&spool);
            let spooled: BTreeMap<u32, u32> =
                found.iter().map(|block| (block.facts.block_no, block.facts.records)).collect();
            let spooled: u64 = spooled.values().map(|&records| u64::from(records)).sum();
            if spooled < fate.spooled_records && !sim.forwards {
                wrong.push(format!(
                    "{} records are said to be in the spool, {spooled} are",
                    fate.spooled_records
                ));
            }
            if self.plan.calm && !(fate.confirmed && fate.is_complete()) && !self.may_lose(log) {
                wrong.push(format!("it is not complete in peace: {fate:?}"));
            }
        }
        let spooled = ending.fate.as_ref().map_or(0, |fate| fate.spooled_records);
        let told = ending.records + ending.lost_records + spooled + self.logs[log].in_hand();
        if !self.logs[log].forwards && produced != told {
            wrong.push(format!("{produced} records were logged, {told} are accounted for"));
        }
        for what in wrong {
            self.broken(format!("log {log}: {what}; {ending:?}"));
        }
    }

    fn may_lose(&self, log: usize) -> bool {
        // All logs at the server are in one file.
        let remote = self.logs[log].is_remote();
        let beside = self.logs.iter().filter(|other| remote && other.is_remote());
        let mut beside = beside.chain([&self.logs[log]]);
        beside.any(|log| log.left_out > 0 || log.plan.transport == Transport::Udp)
    }

    /// Everything that must hold when nothing more happens.
    pub fn check_end(&mut self) {
        if !self.violations.is_empty() {
            return;
        }
        self.check_acked();
        self.check_packets();
        let disk = self.disks[Host::Server as usize].clone();
        let files = disk.names().into_iter().filter(|name| name.ends_with(".itg"));
        let readings: BTreeMap<String, Reading> =
            files.map(|name| (name.clone(), read(&disk.read(&name)))).collect();
        let unsafe_server = self.truth.unsafe_hosts.contains(&(Host::Server as usize));
        for (name, reading) in &readings {
            if reading.lost_bytes > 0 && !unsafe_server && !self.torn.contains(name) {
                let bytes = reading.lost_bytes;
                self.broken(format!("{bytes} bytes of {name} are in no block"));
            }
        }
        for log in 0..self.logs.len() {
            let sim = &self.logs[log];
            if sim.forwards {
                continue;
            }
            let host = self.log_host(log);
            let (file, at) = if sim.is_remote() {
                (file_names(&sim.plan.name).0, Host::Server)
            } else {
                (sim.plan.name.clone(), host)
            };
            let (local, empty) = (read(&self.disks[host as usize].read(&file)), Reading::default());
            let reading = match at {
                Host::Server => readings.get(&file).unwrap_or(&empty),
                _ => &local,
            };
            self.check_records(log, at, reading);
        }
    }

    /// The packets of a flow are received, lost, or came when nobody waited.
    fn check_packets(&mut self) {
        let flows = std::mem::take(&mut self.truth.flows);
        for (handle, flow) in &flows {
            let accounted = flow.delivered.keys().chain(&flow.strayed).chain(&flow.lost);
            let accounted: BTreeSet<u64> = accounted.copied().collect();
            if accounted != flow.sent && flow.copies == 0 {
                self.broken(format!("packets of flow {handle} are neither received nor lost"));
            }
        }
        self.truth.flows = flows;
    }

    fn check_records(&mut self, log: usize, at: Host, reading: &Reading) {
        let sim = &self.logs[log];
        let first = u32::try_from(log).expect("few") * 16;
        let ours = reading.records.range((first, 0)..(first + 16, 0));
        let (mut stored, mut twice) = (0_u64, None);
        for (packet, &count) in ours {
            stored += u64::from(count);
            if count > sim.pushed.get(packet).copied().unwrap_or(0) {
                twice = Some(*packet);
            }
        }
        let produced = sim.produced();
        let unsafe_host = self.truth.unsafe_hosts.contains(&(at as usize));
        let mut wrong = Vec::new();
        if let Some(packet) = twice {
            wrong.push(format!("packet {packet:?} is in the file more often than it was logged"));
        }
        let confirmed = sim
            .ending
            .as_ref()
            .is_some_and(|ending| ending.fate.as_ref().is_none_or(|fate| fate.confirmed));
        if let Some(ending) = &sim.ending {
            let (records, safe) = (ending.records, !unsafe_host);
            if stored < records && safe {
                wrong.push(format!("{records} records are said to be stored, {stored} are"));
            }
            if confirmed && stored > records && safe {
                wrong.push(format!("{records} records are said to be stored, {stored} are"));
            }
        }
        let ids = match sim.is_remote() {
            true => self.truth.ids_of(log),
            false => BTreeSet::from([0]),
        };
        let told = ids
            .iter()
            .any(|id| reading.told.iter().any(|reason| reason.contains(&format!("log {id} "))));
        if stored < produced
            && !told
            && (stored > 0 || (!sim.is_remote() && reading.notes > 0))
            && !unsafe_host
        {
            let missing = produced - stored;
            wrong.push(format!("{missing} records are missing, and its reader is not told"));
        }
        let taken = self.truth.acked_as.get(&log).map_or(0, BTreeSet::len);
        if taken > 1 && !unsafe_host {
            wrong.push(format!("its blocks are stored as {taken} logs"));
        }
        if sim.dead && !sim.is_over() && stored < sim.written() && !unsafe_host {
            let written = sim.written();
            wrong.push(format!("{written} records were written, {stored} are there"));
        }
        if self.plan.calm && reading.damaged && !self.may_lose(log) {
            wrong.push("the file is damaged in peace".to_owned());
        }
        for what in wrong {
            self.broken(format!("log {log}: {what}"));
        }
        self.truth.records += stored;
    }
}
