//! The two logs of a run that never was: a seeded plan, sent a little late, through a queue that grows
//! at times, with one packet in 200 lost. The same bytes each time.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use itg_core::flow::{Flow, FlowSpec, Stop};
use itg_core::law::{Law, Unit};
use itg_core::schedule::Schedule;
use itg_core::seed::RunSeed;
use itg_record::{
    BlockBuf, FlowEnd, FlowInfo, LOG_SCHEMA, LogBuilder, LogInfo, Note, Record, Side,
};

/// Start of the run, in Unix nanoseconds.
const EPOCH: u64 = 1_800_000_000_000_000_000;
/// Records in a block.
const BLOCK: usize = 4096;

/// What is to be in the logs.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    /// Packets sent, over all flows.
    pub(crate) packets: u64,
    /// Flows, all alike.
    pub(crate) flows: u32,
    /// Law of the gaps.
    pub(crate) idt: String,
    /// Law of the sizes.
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

struct Log {
    out: BufWriter<File>,
    builder: LogBuilder,
    block: BlockBuf,
}

impl Log {
    fn create(path: &Path, side: Side) -> Result<Self> {
        let mut builder = LogBuilder::new(1);
        let file = File::create(path).with_context(|| path.display().to_string())?;
        let mut out = BufWriter::new(file);
        let info = LogInfo {
            schema: LOG_SCHEMA,
            side,
            program: "itg-bench".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            host: String::new(),
            os: String::new(),
            boot_id: "b".to_owned(),
            pid: 1,
            started_unix_ns: EPOCH,
            run: "f00d".to_owned(),
            seed: Some(1),
            settings: [].into(),
            block_records: u32::try_from(BLOCK)?,
        };
        out.write_all(&builder.note(&Note::Log(info)))?;
        Ok(Self { out, builder, block: BlockBuf::new(BLOCK) })
    }

    fn note(&mut self, note: &Note) -> Result<()> {
        self.flush()?;
        Ok(self.out.write_all(&self.builder.note(note))?)
    }

    fn push(&mut self, record: &Record) -> Result<()> {
        if self.block.is_full() {
            self.flush()?;
        }
        self.block.push(record);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if !self.block.is_empty() {
            self.out.write_all(self.builder.seal(&mut self.block))?;
            self.block.clear();
        }
        Ok(())
    }

    fn end(mut self) -> Result<()> {
        self.flush()?;
        self.out.write_all(&self.builder.end(0))?;
        Ok(self.out.flush()?)
    }
}

/// Writes `send.itg` and `recv.itg` into a directory.
pub(crate) fn write(dir: &Path, wish: &Wish) -> Result<Made> {
    let each = wish.packets / u64::from(wish.flows.max(1));
    let [sender_path, receiver_path] = ["send.itg", "recv.itg"].map(|name| dir.join(name));
    let mut sender = Log::create(&sender_path, Side::Sender)?;
    let mut receiver = Log::create(&receiver_path, Side::Receiver)?;
    let mut schedules: Vec<Schedule> = Vec::new();
    for index in 0..wish.flows {
        let spec = FlowSpec {
            idt: Law::parse(&wish.idt, Unit::Time)?,
            size: Law::parse(&wish.size, Unit::Size)?,
            stop: Stop { packets: Some(each), ..Stop::default() },
            ..FlowSpec::new(index + 1)
        };
        schedules.push(Flow::resolve(spec.clone(), RunSeed(1))?.schedule());
        let note = Note::Flow(FlowInfo {
            changes: Vec::new(),
            index,
            flow: index + 1,
            run: "f00d".to_owned(),
            seed: 1,
            spec,
            src: format!("10.0.0.1:{}", 20_000 + index % 40_000),
            dst: "10.0.0.2:8999".to_owned(),
            epoch_unix_ns: EPOCH,
            sender_boot_id: "b".to_owned(),
            receiver_boot_id: "b".to_owned(),
            notices: vec![],
        });
        sender.note(&note)?;
        receiver.note(&note)?;
    }
    let (mut state, mut last, mut arrived) = (1u64, 0, 0);
    for _ in 0..each {
        for (index, schedule) in (0..wish.flows).zip(&mut schedules) {
            let Some(due) = schedule.advance() else { continue };
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let noise = |shift: u64, span: u64| (state >> shift) % span;
            let sent = EPOCH + due.due_ns + noise(33, 3_000);
            sender.push(&Record::sent(index, due.seq, due.size, due.due_ns, sent))?;
            if noise(40, 200) == 7 {
                continue;
            }
            // Queueing: mostly short, sometimes long, never out of order.
            let queue = 20_000 + noise(20, 50_000) * (1 + 40 * u64::from(noise(44, 50) == 0));
            last = (sent + queue).max(last + 400);
            let read = last + 1_000 + noise(12, 8_000);
            receiver.push(&Record::received(index, due.seq, due.size, sent, last, read, 64, 0))?;
            arrived += 1;
        }
    }
    for mut log in [sender, receiver] {
        for index in 0..wish.flows {
            log.note(&Note::FlowEnd(FlowEnd {
                index,
                sent_packets: Some(each),
                sent_bytes: None,
                skipped_packets: Some(0),
                received_packets: None,
                received_bytes: None,
                log_lost_records: 0,
                socket_drops: None,
                buffer_errors: None,
                receive_buffer: None,
                reason: "all packets sent".to_owned(),
            }))?;
        }
        log.end()?;
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
        let (idt, size) = ("exp(10us)".to_owned(), "constant(512)".to_owned());
        let made = write(dir.path(), &Wish { packets: 20_000, flows: 2, idt, size }).expect("logs");
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
