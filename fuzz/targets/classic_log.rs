//! Any bytes as a log of D-ITG, binary and text: every product of its decoder without a panic, and
//! records that come back unchanged. The first byte picks the products.
#![no_main]

use std::io::{self, Write};

use itg_classic::dec::{Options, Outputs, decode};
use itg_classic::log::{LogRecord, RECORD_LEN, records};
use libfuzzer_sys::fuzz_target;

const LINES: [&str; 6] = [
    "x -v -l a -o b -P -I -x",
    "x -d 600000 -j 100000 -b 900000 -p 1e7",
    "x -c 100000 -f 7",
    "x -s -f t",
    "x -t -v -l a",
    "x -r y -v",
];

struct Nowhere(io::Sink);

impl Outputs for Nowhere {
    fn stdout(&mut self) -> &mut dyn Write {
        &mut self.0
    }

    fn create(&mut self, _: &str) -> io::Result<Box<dyn Write>> {
        Ok(Box::new(io::sink()))
    }

    fn notice(&mut self, _: &str) {}
}

fuzz_target!(|bytes: &[u8]| {
    let Some((&pick, log)) = bytes.split_first() else { return };
    for record in records(log) {
        let bytes: [u8; RECORD_LEN] = record.emit();
        assert_eq!(LogRecord::parse(&bytes).emit(), bytes);
        let transit = record.emit_transit();
        assert_eq!(LogRecord::parse_transit(&transit).flow, record.flow);
    }
    let line = LINES[usize::from(pick) % LINES.len()];
    let args: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let options = Options::parse(&args).expect("good arguments");
    let other = &log[..log.len() / 2];
    let _ = decode(&options, log, Some(other), &mut Nowhere(io::sink()));
});
