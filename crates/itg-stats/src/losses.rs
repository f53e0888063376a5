//! Lost packets of a flow by their numbers, and the times at which they count.
//!
//! A lost packet counts where the first one with a larger number arrived, or else where the last packets did. What the
//! sender's kernel refused, or the sender left out, is not lost: the sums over time are those of the flow's account.

use std::collections::BTreeMap;

use crate::plot::curve::absent;
use crate::sequence::Run;
use crate::series::Window;
use crate::stats::{Facts, FlowStats, LossBasis};

/// The numbers that were sent, as far as that is known, and how many numbers they reach over.
fn expected<'a>(
    stats: &'a FlowStats,
    facts: &Facts<'a>,
) -> Option<(Box<dyn Iterator<Item = Run> + 'a>, u64)> {
    let mut logs = [Some(stats), facts.peer].into_iter().flatten().map(FlowStats::sent_seqs);
    if let Some(sent) = logs.find(|sent| sent.unique() > 0) {
        return Some((Box::new(sent.runs()), sent.max()?.saturating_add(1)));
    }
    let seen = stats.arrived_seqs().max().map_or(0, |max| max.saturating_add(1));
    let told = facts.sent_packets.map(|n| n.saturating_add(facts.unsent()));
    let end = told.unwrap_or(seen).max(seen);
    let last = end.checked_sub(1)?;
    Some((Box::new(std::iter::once(Run { first: 0, last })), end))
}

/// Numbers of the lost packets.
pub(crate) struct Holes {
    pub(crate) runs: Vec<Run>,
    /// Count of the numbers that were sent.
    pub(crate) end: u64,
}

impl Holes {
    /// Those that the account of the flow has, or why it does not tell which they are.
    pub(crate) fn of(stats: &FlowStats, facts: &Facts<'_>) -> Result<Self, &'static str> {
        if !stats.counts_arrivals() {
            return Err("losses are in the windows of the log that has the arrivals");
        }
        let (loss, basis) = stats.account(facts).loss.ok_or("how many is not known")?;
        let (sent, end) = expected(stats, facts).ok_or("nothing is told of what was sent")?;
        if loss.lost == 0 {
            return Ok(Self { runs: Vec::new(), end });
        }
        let runs: Vec<Run> = absent(sent, stats.arrived_seqs().runs()).collect();
        let count = runs.iter().map(|run| run.last - run.first + 1).fold(0, u64::saturating_add);
        let known = count == loss.lost && basis != LossBasis::ReceiverCount;
        known
            .then_some(Self { runs, end })
            .ok_or("which of the missing numbers were sent is not known")
    }

    /// Losses by time, given the largest number in each bin or window.
    pub(crate) fn over(&self, largest: impl Iterator<Item = Option<u64>>) -> Vec<u64> {
        let mut reached = 0;
        let mut reach = |number: Option<u64>| {
            reached = reached.max(number.unwrap_or(0));
            reached
        };
        let ends: Vec<u64> = largest.map(&mut reach).collect();
        let mut lost = vec![0u64; ends.len()];
        let Some(last) = ends.len().checked_sub(1) else { return lost };
        let mut bin = 0;
        for hole in &self.runs {
            let mut first = hole.first;
            loop {
                while bin < last && ends[bin] < first {
                    bin += 1;
                }
                let until = if bin == last { hole.last } else { hole.last.min(ends[bin]) };
                lost[bin] = lost[bin].saturating_add(until - first + 1);
                if until == hole.last {
                    break;
                }
                first = until + 1;
            }
        }
        lost
    }
}

/// Puts the losses of a flow into its windows; otherwise says why they are not known.
pub(crate) fn place(
    stats: &FlowStats,
    facts: &Facts<'_>,
    windows: &mut BTreeMap<u64, Window>,
) -> Result<(), &'static str> {
    let holes = Holes::of(stats, facts)?;
    if windows.is_empty() && !holes.runs.is_empty() {
        return Err("nothing arrived: its losses have no time");
    }
    let lost = holes.over(windows.values().map(|window| window.seq_max));
    windows.values_mut().zip(lost).for_each(|(window, lost)| window.lost = lost);
    Ok(())
}
