//! The logs of a simulated run: ordinary logs, whose first note says that they are simulated.

use std::collections::BTreeMap;
use std::io::{self, Write};

use itg_record::{BlockBuf, LOG_SCHEMA, LogBuilder, LogInfo, Note, Record, Side};

/// Records in a block.
const BLOCK: usize = 1024;

/// A log that is written as the simulation goes.
pub(super) struct Log<'a> {
    builder: LogBuilder,
    block: BlockBuf,
    out: &'a mut dyn Write,
}

/// Content of the first note of a log.
pub(super) struct Head {
    pub(super) side: Side,
    pub(super) program: String,
    pub(super) version: String,
    pub(super) started_unix_ns: u64,
    pub(super) run: String,
    pub(super) seed: u64,
    pub(super) settings: BTreeMap<String, String>,
}

impl<'a> Log<'a> {
    pub(super) fn begin(out: &'a mut dyn Write, head: Head) -> io::Result<Self> {
        let log_id = match head.side {
            Side::Sender => 1,
            Side::Receiver => 2,
        };
        let sender = head.side == Side::Sender;
        let mut log = Self { builder: LogBuilder::new(log_id), block: BlockBuf::new(BLOCK), out };
        log.note(&Note::Log(LogInfo {
            schema: LOG_SCHEMA,
            side: head.side,
            program: head.program,
            version: head.version,
            host: "simulated".to_owned(),
            os: "simulated".to_owned(),
            boot_id: "simulated".to_owned(),
            pid: 0,
            started_unix_ns: head.started_unix_ns,
            run: if sender { head.run } else { String::new() },
            seed: sender.then_some(head.seed),
            settings: head.settings,
            block_records: u32::try_from(BLOCK).unwrap_or(0),
            part: None,
        }))?;
        Ok(log)
    }

    pub(super) fn record(&mut self, record: &Record) -> io::Result<()> {
        if self.block.is_full() {
            self.flush()?;
        }
        self.block.push(record);
        Ok(())
    }

    pub(super) fn note(&mut self, note: &Note) -> io::Result<()> {
        self.flush()?;
        let bytes = self.builder.note(note);
        self.out.write_all(&bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.block.is_empty() {
            self.out.write_all(self.builder.seal(&mut self.block))?;
            self.block.clear();
        }
        Ok(())
    }

    pub(super) fn end(mut self) -> io::Result<()> {
        self.flush()?;
        let bytes = self.builder.end(0);
        self.out.write_all(&bytes)?;
        self.out.flush()
    }
}
