//! Order of the runs.
//!
//! Runs come in rounds: the first repetition of all cases, then the second, so that what changes slowly (the
//! load of the hosts, the time of day) touches all cases alike: complete blocks. Within a round the order
//! is random, drawn from the seed (Box, Hunter, Hunter, *Statistics for Experimenters*, 2005, chapter 4:
//! "block what you can and randomize what you cannot").

use std::collections::BTreeMap;

use itg_core::seed::RunSeed;
use rand::Rng as _;

use super::Sweep;

/// A run that is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// Time that it took, in nanoseconds.
    pub elapsed_ns: u64,
    /// Its figures by metric; `None` where one is not known.
    pub figures: BTreeMap<String, Option<f64>>,
    /// True if its traffic failed, so that its figures count for no mean and no rule.
    pub left_out: bool,
}

/// Next step of a sweep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// This run.
    Run {
        /// Place of the case in [`Sweep::cases`].
        case: usize,
        /// Its repetition, from 1.
        repetition: u32,
    },
    /// Nothing: every case has been run as often as the file asks for.
    Finished,
    /// Nothing: the time is used up.
    OutOfTime,
}

impl Sweep {
    /// The next run, from those that are done by case and repetition; `repeated_ns` is the time of runs that were
    /// repeated, which are not among them.
    #[must_use]
    pub fn next(
        &self,
        seed: RunSeed,
        done: &BTreeMap<(usize, u32), Done>,
        repeated_ns: u64,
    ) -> Next {
        let (_, most) = self.repetitions();
        let stops: Vec<Option<u32>> =
            (0..self.cases.len()).map(|case| self.stop(case, done)).collect();
        for repetition in 1..=most {
            if stops.iter().all(|stop| stop.is_some_and(|stop| stop < repetition)) {
                break;
            }
            for case in self.round(seed, repetition) {
                let stopped = stops[case].is_some_and(|stop| stop < repetition);
                if stopped || done.contains_key(&(case, repetition)) {
                    continue;
                }
                let used_ns: u64 =
                    done.values().map(|run| run.elapsed_ns).fold(repeated_ns, u64::saturating_add);
                if self.settings.max_time.is_some_and(|most| used_ns >= most.0) {
                    return Next::OutOfTime;
                }
                return Next::Run { case, repetition };
            }
        }
        Next::Finished
    }

    /// The cases in the order of a round.
    #[must_use]
    pub fn round(&self, seed: RunSeed, repetition: u32) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.cases.len()).collect();
        if !self.settings.in_order {
            order.sort_by_cached_key(|case| {
                let key = &self.cases[*case].key;
                (seed.named(&format!("sweep order {repetition} {key}")).next_u64(), *case)
            });
        }
        order
    }

    /// The repetition with which a case has been run often enough, as far as the runs without a gap tell.
    #[must_use]
    pub fn stop(&self, case: usize, done: &BTreeMap<(usize, u32), Done>) -> Option<u32> {
        let (least, most) = self.repetitions();
        let mut runs = Vec::new();
        for repetition in 1..=most {
            let run = done.get(&(case, repetition))?;
            if !run.left_out {
                runs.push(&run.figures);
            }
            let enough = self.until.as_ref().is_some_and(|until| until.holds(&runs));
            if repetition == most || (runs.len() >= least as usize && enough) {
                return Some(repetition);
            }
        }
        None
    }
}
