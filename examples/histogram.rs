//! One-way delays of a receiver's log as a histogram in text: `histogram recv.itg`.
//!
//! The delay of a packet is its arrival on the receiver's clock less its departure on the sender's: of two hosts, only
//! as good as their clocks agree. `itg-decode` compares the clocks; this shows the records as they are.

use std::collections::BTreeMap;
use std::error::Error;
use std::{env, fs};

use itg_fidelity::quantiles::Quantiles;
use itg_record::{Cause, Item, Kind, LogReader};

/// Columns of the longest bar.
const WIDTH: u64 = 50;

fn main() -> Result<(), Box<dyn Error>> {
    let path = env::args_os().nth(1).ok_or("name the log of a receiver")?;
    let bytes = fs::read(&path)?;
    let mut delays_ns = Quantiles::default();
    for item in LogReader::new(&bytes) {
        match item {
            Item::Records { records, .. } => {
                // Packets too short to say when they left have no delay.
                for record in records.filter(|r| r.kind == Kind::Received && r.a > 0) {
                    delays_ns.add(i64::try_from(i128::from(record.b) - i128::from(record.a))?);
                }
            }
            Item::Damage(damage) if damage.cause == Cause::Damaged => {
                eprintln!("at byte {}: {}", damage.offset, damage.reason);
            }
            Item::Note { .. } | Item::Damage(_) => {}
        }
    }

    // Bars of one power of two each; what clocks make negative is one bar below all others.
    let mut bars: BTreeMap<Option<u32>, u64> = BTreeMap::new();
    for point in delays_ns.points() {
        let bar = u64::try_from(point.high).ok().map(|ns| ns.max(1).ilog2());
        *bars.entry(bar).or_default() += point.count;
    }
    let most = bars.values().copied().max().ok_or("the log has no packet with a delay")?;
    println!("{:>12} {:>8}", "delay", "packets");
    for (bar, packets) in bars {
        let from = bar.map_or_else(|| "< 0".to_owned(), |bits| us(1_i64 << bits));
        let stars = usize::try_from((packets * WIDTH).div_ceil(most))?;
        println!("{from:>12} {packets:>8} {}", "*".repeat(stars));
    }
    let [p50, p99] = delays_ns.at([0.5, 0.99]);
    println!("p50 {}, p99 {}", us(p50), us(p99));
    Ok(())
}

/// Nanoseconds as microseconds with three decimals.
fn us(ns: i64) -> String {
    format!("{:.3} us", ns as f64 / 1e3)
}
