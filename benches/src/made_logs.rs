//! The two logs of a run that never was: a seeded plan, sent a little late, through a queue that grows
//! at times, with one packet in 200 lost. The same bytes each time.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use itg_core::distribution::{Distribution, Unit};
use itg_core::flow::{Flow, FlowSpec};
use itg_core::schedule::Schedule;
use itg_core::seed::RunSeed;
use itg_record::{FlowEnd, ReceivedPacket, Record, SentPacket, Side};
use itg_testkit::logs::{EPOCH, SEED, Setup, TestLog, end};

/// Records in a block.
const BLOCK: u32 = 4096;

/// Requested contents of the logs.
#[derive(Clone, Debug)]
pub(crate) struct LogContents {
    /// Name of the run, in hexadecimal digits.
    pub(crate) run: String,
    /// Packets sent, over all flows.
    pub(crate) packets: u64,
    /// Flows, all alike.
    pub(crate) flows: u32,
    /// Distribution of the inter-departure times.
    pub(crate) idt: String,
    /// Distribution of the sizes.
    pub(crate) size: String,
}

/// The logs that were written.
#[derive(Clone, Debug)]
pub(crate) struct Made {
    pub(crate) sender: PathBuf,
    pub(crate) receiver: PathBuf,
    /// Records in the receiver's log.
    pub(crate) arrived: u64,
}

/// A log on its way into a file.
struct Log {
    out: File,
    log: TestLog,
    waiting: u32,
}

impl Log {
    fn create(path: &Path, side: Side) -> Result<Self> {
        let out = File::create(path).with_context(|| path.display().to_string())?;
        let log = TestLog::of(Setup { block_records: BLOCK, ..Setup::new(side, "b") });
        Ok(Self { out, log, waiting: 0 })
    }

    fn push(&mut self, record: Record) -> Result<()> {
        self.log.records([record]);
        self.waiting += 1;
        if self.waiting == BLOCK {
            self.waiting = 0;
            self.out.write_all(&self.log.take())?;
        }
        Ok(())
    }
}

/// Writes `send.itg` and `recv.itg` into a directory.
pub(crate) fn write(dir: &Path, wish: &LogContents) -> Result<Made> {
    let each = wish.packets / u64::from(wish.flows.max(1));
    let [sender_path, receiver_path] = ["send.itg", "recv.itg"].map(|name| dir.join(name));
    let mut sender = Log::create(&sender_path, Side::Sender)?;
    let mut receiver = Log::create(&receiver_path, Side::Receiver)?;
    let mut schedules: Vec<Schedule> = Vec::new();
    for index in 0..wish.flows {
        let spec = FlowSpec::new(index + 1)
            .idt(Distribution::parse(&wish.idt, Unit::Time)?)
            .size(Distribution::parse(&wish.size, Unit::Size)?)
            .packets(each);
        schedules.push(Flow::resolve(spec.clone(), RunSeed(SEED))?.schedule());
        let src = format!("10.0.0.1:{}", 20_000 + index % 40_000);
        for log in [&mut sender.log, &mut receiver.log] {
            log.flow_of(index, &spec, ["b", "b"], &wish.run, &src);
        }
    }
    let (mut state, mut last, mut arrived) = (1u64, 0, 0);
    for _ in 0..each {
        for (index, schedule) in (0..wish.flows).zip(&mut schedules) {
            let Some(due) = schedule.advance() else { continue };
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = |shift: u64, span: u64| (state >> shift) % span;
            let sent = EPOCH + due.due_ns + noise(33, 3_000);
            sender.push(Record::sent(SentPacket {
                flow: index,
                seq: due.seq,
                size: due.size,
                planned_ns: due.due_ns,
                sent_ns: sent,
            }))?;
            if noise(40, 200) == 7 {
                continue;
            }
            // Queueing: mostly short, sometimes long, never out of order.
            let queue = 20_000 + noise(20, 50_000) * (1 + 40 * u64::from(noise(44, 50) == 0));
            last = (sent + queue).max(last + 400);
            let read = last + 1_000 + noise(12, 8_000);
            receiver.push(Record::received(ReceivedPacket {
                flow: index,
                seq: due.seq,
                size: due.size,
                sent_ns: sent,
                arrived_ns: last,
                read_ns: read,
                ttl: 64,
                tos: 0,
            }))?;
            arrived += 1;
        }
    }
    for Log { mut out, mut log, .. } in [sender, receiver] {
        for index in 0..wish.flows {
            let counted =
                FlowEnd { sent_packets: Some(each), skipped_packets: Some(0), ..end(index) };
            log.end_flow(counted);
        }
        out.write_all(&log.finish())?;
    }
    Ok(Made { sender: sender_path, receiver: receiver_path, arrived })
}

#[cfg(test)]
mod tests {
    use itg_record::{Item, LogReader};

    use super::*;

    #[test]
    fn the_logs_hold_what_was_wished_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let [run, idt, size] = ["c0ffee", "exp(10us)", "constant(512)"].map(str::to_owned);
        let wish = LogContents { run, packets: 20_000, flows: 2, idt, size };
        let made = write(dir.path(), &wish).expect("logs");
        let records = |path: &Path| -> u64 {
            let bytes = std::fs::read(path).expect("there");
            let items = LogReader::new(&bytes).map(|item| match item {
                Item::Records { records, .. } => records.count() as u64,
                Item::Note { .. } => 0,
                Item::Damage(damage) => panic!("{damage:?}"),
            });
            items.sum()
        };
        assert_eq!((records(&made.sender), records(&made.receiver)), (20_000, made.arrived));
        assert!((19_800..19_990).contains(&made.arrived), "{} arrived", made.arrived);
    }
}
