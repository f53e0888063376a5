//! Values to try, number of trials and their length. Pure.

/// Starting, ending and decoding one run, in seconds.
const OVERHEAD_S: f64 = 0.4;

/// The values of a measurement.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) trials: usize,
    pub(crate) seconds: f64,
    /// D.
    pub(crate) buffers: Vec<u32>,
    /// c.
    pub(crate) sizes: Vec<u32>,
    /// C, as parts of what this machine sends flat out; the last is more than it can.
    pub(crate) fractions: Vec<f64>,
    /// C of figure 1.
    pub(crate) first_rates: Vec<u32>,
    /// c on the link with an MTU of 1500.
    pub(crate) link_sizes: Vec<u32>,
    quick: bool,
}

impl Plan {
    pub(crate) fn of(
        quick: bool,
        paper: bool,
        trials: Option<usize>,
        seconds: Option<f64>,
    ) -> Self {
        let buffers = vec![1, 2, 5, 10, 20, 30, 40, 50, 80, 160];
        let sizes = vec![64, 128, 256, 512, 768, 1024, 1280, 1472, 1536, 2048];
        let plan = Self {
            trials: 10,
            seconds: 5.0,
            buffers,
            link_sizes: sizes[3..].to_vec(),
            sizes,
            fractions: vec![0.2, 0.4, 0.6, 0.8, 1.0, 1.5],
            first_rates: vec![10_000, 15_000, 20_000, 25_000, 30_000, 50_000, 100_000, 200_000],
            quick,
        };
        let plan = match (quick, paper) {
            (true, _) => Self {
                trials: 2,
                seconds: 0.3,
                buffers: vec![1, 10, 40, 160],
                sizes: vec![256, 1024, 1472, 2048],
                fractions: vec![0.4, 0.8, 1.5],
                first_rates: vec![10_000, 30_000, 100_000],
                link_sizes: vec![1024, 1472, 1536],
                ..plan
            },
            (_, true) => Self { trials: 50, seconds: 60.0, ..plan },
            _ => plan,
        };
        Self {
            trials: trials.unwrap_or(plan.trials),
            seconds: seconds.unwrap_or(plan.seconds),
            ..plan
        }
    }

    /// C of step 1: the quick form leaves out the lowest.
    pub(crate) fn step_1(&self, rates: &[u32]) -> Vec<u32> {
        let skip = usize::from(self.quick && rates.len() > 2);
        rates[skip..].to_vec()
    }

    /// C at which log servers are compared with D-ITG's: a low one and the highest.
    pub(crate) fn peer_rates(&self, rates: &[u32]) -> Vec<u32> {
        let mut chosen = vec![30_000];
        chosen.extend(rates.last());
        if self.quick { chosen.split_off(1) } else { chosen }
    }

    /// Seconds that some runs take.
    pub(crate) fn time_of(&self, runs: usize) -> f64 {
        runs as f64 * (self.seconds + OVERHEAD_S)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_and_overrides() {
        for (quick, paper, trials, seconds, want) in [
            (false, false, None, None, (10, 5.0, 10)),
            (true, false, None, None, (2, 0.3, 4)),
            (false, true, None, None, (50, 60.0, 10)),
            (true, false, Some(6), Some(1.0), (6, 1.0, 4)),
        ] {
            let plan = Plan::of(quick, paper, trials, seconds);
            assert_eq!((plan.trials, plan.seconds, plan.buffers.len()), want);
        }
    }

    #[test]
    fn the_highest_rate_is_always_tried() {
        for quick in [false, true] {
            let plan = Plan::of(quick, false, None, None);
            for rates in [&[100, 200, 300][..], &[100, 200], &[100]] {
                assert_eq!(plan.step_1(rates).last(), rates.last(), "{rates:?}");
                assert_eq!(plan.peer_rates(rates).last(), rates.last(), "{rates:?}");
            }
        }
    }
}
