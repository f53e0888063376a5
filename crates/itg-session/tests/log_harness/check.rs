//! Rules that must hold at the end.

use super::*;

/// The rules that a finished experiment has broken.
pub fn check(plan: &Plan, trace: &Trace) -> Vec<String> {
    let mut broken = trace.broken.clone();
    if plan.is_clean() {
        for (number, end) in trace.ends.iter().enumerate() {
            match end {
                Some((_, fate, None)) if fate.confirmed => {
                    let kept = fate.stored_records + fate.dropped_records;
                    // Without memory for it, a datagram may be discarded even in peace.
                    let udp = plan.producers[number].transport == Transport::Udp;
                    if kept != fate.records && !udp {
                        broken.push(format!("producer {number} lost something in peace: {fate}"));
                    }
                }
                other => broken.push(format!("producer {number} did not end well: {other:?}")),
            }
        }
    }
    broken
}

/// Records and blocks of an outcome, part by part.
fn parts(fate: &LogFate) -> ([u64; 5], [u64; 5]) {
    let records = [
        fate.stored_records,
        fate.missing_records,
        fate.dropped_records,
        fate.spooled_records,
        fate.unconfirmed_records,
    ];
    let blocks = [
        fate.stored_blocks,
        fate.missing_blocks,
        fate.dropped_blocks,
        fate.spooled_blocks,
        fate.unconfirmed_blocks,
    ];
    (records, blocks)
}

/// Conservation, as the producer says it, as the disk has it, and as the driver counted it.
pub(super) fn check_producer(
    world: &World<'_>,
    number: usize,
    producer: &Producer,
    broken: &mut Vec<String>,
) {
    let mut wrong = |what: String| broken.push(format!("producer {number}: {what}"));
    let plan = &world.plan.producers[number];
    let Some((_, fate, failed)) = &producer.end else {
        return wrong("has not ended by its deadlines".to_owned());
    };
    let of = |n: &u32| u64::from(producer.produced[*n as usize]);
    let records: u64 = producer.produced.iter().map(|&n| u64::from(n)).sum();
    let blocks = producer.produced.len() as u64;
    let all = 0..u32::try_from(blocks).expect("few");
    let on_disk: BTreeSet<u32> = all.clone().filter(|&n| world.is_on_disk(number, n)).collect();
    let disk_records: u64 = on_disk.iter().map(of).sum();
    let (in_records, in_blocks) = parts(fate);
    if records != fate.records || in_records.iter().sum::<u64>() != records {
        wrong(format!("{records} records produced, {} reported as {in_records:?}", fate.records));
    }
    if blocks != fate.blocks || in_blocks.iter().sum::<u64>() != blocks {
        wrong(format!("{blocks} blocks produced, {} reported as {in_blocks:?}", fate.blocks));
    }
    // A driver that finds its spool broken when all is over cannot say so any more.
    if world.plan.spool_fails == 0.0 {
        let dropped: u64 = producer.dropped.iter().map(of).sum();
        let spooled: u64 = producer.spool.keys().map(of).sum();
        if dropped != fate.dropped_records {
            wrong(format!("{dropped} records dropped, {} reported", fate.dropped_records));
        }
        if spooled != fate.spooled_records {
            wrong(format!("{spooled} records in the spool, {} reported", fate.spooled_records));
        }
    }
    if fate.confirmed {
        if disk_records != fate.stored_records || on_disk.len() as u64 != fate.stored_blocks {
            wrong(format!("{disk_records} records on disk, the server said {fate}"));
        }
        let gaps: Vec<u32> = all.filter(|n| !on_disk.contains(n)).collect();
        let listed: Vec<u32> = fate.missing.iter().flat_map(|&(a, b)| a..=b).collect();
        let named = listed.len() as u64 + fate.missing_left_out;
        if (fate.missing_left_out == 0 && listed != gaps) || named != gaps.len() as u64 {
            wrong(format!("missing on disk {gaps:?}, reported {:?}", fate.missing));
        }
        let reads = world.plan.spool_fails == 0.0;
        if plan.transport == Transport::Tcp && fate.missing_records > 0 && reads {
            wrong(format!("something is missing on TCP: {fate}"));
        }
        let account = world.trace.accounts.iter().rev().find(|a| a.who.key == producer.key);
        match account {
            Some(a)
                if a.stored_records == disk_records
                    && a.missing_blocks == gaps.len() as u64
                    && a.records + a.dropped_records == records => {}
            other => wrong(format!("the server's own account is {other:?}")),
        }
    } else if plan.transport == Transport::Tcp {
        if disk_records < fate.stored_records {
            wrong(format!("{disk_records} records on disk, acknowledged {fate}"));
        }
        let mut all = all;
        let kept = |n: &u32| {
            on_disk.contains(n)
                || producer.dropped.contains(n)
                || producer.spool.contains_key(n)
                || producer.buffers.contains_key(n)
        };
        if let Some(n) = all.find(|n| !kept(n)) {
            wrong(format!("block {n} is nowhere"));
        }
    }
    if world.plan.secret && !plan.knows_secret && !on_disk.is_empty() {
        wrong("stored without knowing the secret".to_owned());
    }
    if failed.is_some() && fate.confirmed {
        wrong("failed and confirmed".to_owned());
    }
}
