//! Choosing D*, c* and C*, and the paper's shape. Pure.

use itg_trials::{Claim, Estimate};

/// Largest share of lost records where nothing is to be lost: 0.1 %.
pub(crate) const STRICT: f64 = 0.001;
/// Largest share of lost records where some loss is tolerated: 5 %.
pub(crate) const LOOSE: f64 = 0.05;
/// Rates that differ by no more than this count as equal: 1 %.
const SAME: f64 = 0.01;

/// D*: the smallest buffer whose rate is within 1 % of the best one's.
pub(crate) fn best_buffer(rates: &[(u32, f64)]) -> Option<u32> {
    let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let good = rates.iter().filter(|(_, rate)| *rate >= best * (1.0 - SAME));
    good.map(|(buffer, _)| *buffer).min()
}

/// c* or C*: the largest value whose error is no more than the limit.
pub(crate) fn largest_within(errors: &[(u32, f64)], limit: f64) -> Option<u32> {
    errors.iter().filter(|(_, error)| *error <= limit).map(|(value, _)| *value).max()
}

/// D, c, and the C at which c was chosen: the same for all variants at one end, so that their rates compare the
/// way of the log alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) buffer: u32,
    pub(crate) size: u32,
    pub(crate) rate: u32,
}

/// c*: the largest size with which no variant loses anything; the errors of each by size.
pub(crate) fn largest_for_all(variants: &[Vec<(u32, f64)>]) -> Option<u32> {
    let sizes = variants.first()?.iter().map(|(size, _)| *size);
    let lossless = |size: &u32| {
        variants
            .iter()
            .all(|errors| errors.iter().any(|(of, error)| of == size && *error <= STRICT))
    };
    sizes.filter(lossless).max()
}

/// Capacity of one variant at one end, with the D and c of all.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Capacity {
    /// Packets a second when more are asked for than can be done, in each trial.
    pub(crate) rates: Vec<f64>,
    /// CPU time a packet of the process that logs, in nanoseconds, in the same trials.
    pub(crate) cpu_ns: Vec<f64>,
    /// C* for 0.1 % and for 5 % of loss.
    pub(crate) strict: Option<u32>,
    pub(crate) loose: Option<u32>,
}

/// (i) The rate grows with D, with vanishing gain.
pub(crate) fn grows_with_buffer(who: &str, rates: &[(u32, f64)]) -> Claim {
    let (Some(best), Some(&(first, at_first))) = (best_buffer(rates), rates.first()) else {
        return Claim { holds: false, what: format!("(i) {who}: nothing was measured") };
    };
    let at_best = rates.iter().find(|(d, _)| *d == best).map_or(0.0, |(_, rate)| *rate);
    let top = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
    let (gain, beyond) = (at_best / at_first, top / at_best);
    let last = rates.last().map_or(best, |(d, _)| *d);
    Claim {
        holds: gain > 1.0 + SAME && beyond < gain,
        what: format!(
            "(i) {who}: the rate grows with D, with vanishing gain: x {gain:.3} from D={first} to \
             D*={best}, x {beyond:.3} from there to the best up to D={last}"
        ),
    }
}

fn mid(values: &[f64]) -> f64 {
    Estimate::of(values).mid
}

/// (ii) A log server lets a host do no less than its own disk: by rate, and by CPU time.
pub(crate) fn server_is_no_worse(who: &str, server: &Capacity, disk: &Capacity) -> [Claim; 2] {
    let rate = mid(&server.rates) / mid(&disk.rates);
    let cpu = mid(&server.cpu_ns) / mid(&disk.cpu_ns);
    [
        Claim {
            holds: rate >= 1.0 - SAME,
            what: format!(
                "(ii) {who} >= CV by rate: x {rate:.3} ({:.0} / {:.0} packets/s)",
                mid(&server.rates),
                mid(&disk.rates)
            ),
        },
        Claim {
            holds: cpu <= 1.0 + SAME,
            what: format!(
                "(ii) {who} <= CV by CPU time a packet: x {cpu:.3} ({:.0} / {:.0} ns)",
                mid(&server.cpu_ns),
                mid(&disk.cpu_ns)
            ),
        },
    ]
}

/// (iii) The gain of a log server is larger at the receiver; each pair is (server, disk).
pub(crate) fn receiver_gains_more(
    who: &str,
    receiver: (&Capacity, &Capacity),
    sender: (&Capacity, &Capacity),
) -> [Claim; 2] {
    let gain = |of: fn(&Capacity) -> &[f64], pair: (&Capacity, &Capacity)| {
        mid(of(pair.0)) / mid(of(pair.1))
    };
    let rates = [receiver, sender].map(|pair| gain(|c| &c.rates, pair));
    let cpu = [receiver, sender].map(|pair| gain(|c| &c.cpu_ns, pair));
    [
        Claim {
            holds: rates[0] >= rates[1],
            what: format!(
                "(iii) {who}: the gain in rate is larger at the receiver: x {:.3}, sender x {:.3}",
                rates[0], rates[1]
            ),
        },
        Claim {
            holds: cpu[0] <= cpu[1],
            what: format!(
                "(iii) {who}: so is that in CPU time: receiver x {:.3}, sender x {:.3} of CV",
                cpu[0], cpu[1]
            ),
        },
    ]
}

/// (iv) TCP is below UDP only where loss is tolerated.
pub(crate) fn tcp_only_loses_to_loss(end: &str, tcp: &Capacity, udp: &Capacity) -> Claim {
    let text = |rate: Option<u32>| rate.map_or_else(|| "none".to_owned(), |rate| rate.to_string());
    Claim {
        holds: tcp.strict.is_some() && tcp.strict >= udp.strict,
        what: format!(
            "(iv) {end}: LS-TCP is below LS-UDP only where loss is tolerated: C* TCP {} / UDP {} for \
             0.1 %, {} / {} for 5 %",
            text(tcp.strict),
            text(udp.strict),
            text(tcp.loose),
            text(udp.loose)
        ),
    }
}

/// (iv) MPI reaches the rate of LS-UDP.
pub(crate) fn mpi_is_like_udp(mpi: &Capacity, udp: &Capacity) -> Claim {
    let part = mid(&mpi.rates) / mid(&udp.rates);
    Claim {
        holds: (part - 1.0).abs() <= LOOSE,
        what: format!("(iv) sender: MPI is within 5 % of LS-UDP by rate: x {part:.3}"),
    }
}

/// (v) Packets above the MTU cost more than their bytes say: the rate falls by at least 10 % between
/// the last size that fits and the first that does not.
pub(crate) fn knee_at_mtu(end: &str, rates: &[(u32, f64)], fits: u32) -> Claim {
    let last = rates.iter().filter(|(size, _)| *size <= fits).max_by_key(|(size, _)| *size);
    let next = rates.iter().filter(|(size, _)| *size > fits).min_by_key(|(size, _)| *size);
    let (Some((below, before)), Some((above, after))) = (last, next) else {
        return Claim { holds: false, what: format!("(v) {end}: nothing was measured") };
    };
    let kept = after / before;
    Claim {
        holds: kept <= 0.9,
        what: format!(
            "(v) {end}: knee at the MTU of 1500: {before:.0} packets/s of {below} bytes, {after:.0} of \
             {above}: {:.1} % fewer",
            100.0 * (1.0 - kept)
        ),
    }
}

/// Rates around a capacity, rounded to two digits.
pub(crate) fn rates_around(capacity: f64, fractions: &[f64]) -> Vec<u32> {
    let mut rates: Vec<u32> = fractions
        .iter()
        .map(|fraction| {
            let rate = (capacity * fraction).clamp(100.0, 1e9);
            let unit = 10_f64.powf(rate.log10().floor() - 1.0);
            format!("{:.0}", (rate / unit).round() * unit).parse().unwrap_or(100)
        })
        .collect();
    rates.dedup();
    rates
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_buffer_is_the_smallest_within_one_percent() {
        for (rates, want) in [
            (&[][..], None),
            (&[(1, 50.0)], Some(1)),
            (&[(1, 50.0), (10, 98.9), (20, 99.0), (40, 100.0)], Some(20)),
            (&[(1, 100.0), (10, 90.0)], Some(1)),
            (&[(40, 100.0), (10, 99.5)], Some(10)),
        ] {
            assert_eq!(best_buffer(rates), want, "{rates:?}");
        }
    }

    #[test]
    fn the_largest_value_without_loss() {
        for (errors, want) in [
            (&[][..], None),
            (&[(64, 0.2)], None),
            (&[(64, 0.0), (1024, 0.001), (1472, 0.0011)], Some(1024)),
            (&[(64, -0.0001), (1024, 0.3), (2048, 0.0)], Some(2048)),
        ] {
            assert_eq!(largest_within(errors, STRICT), want, "{errors:?}");
        }
    }

    #[test]
    fn one_size_serves_all_variants() {
        let errors = |list: &[(u32, f64)]| list.to_vec();
        for (variants, want) in [
            (vec![], None),
            (vec![errors(&[(64, 0.0), (512, 0.0)]), errors(&[(64, 0.0), (512, 0.2)])], Some(64)),
            (vec![errors(&[(64, 0.0), (512, 0.0)]), errors(&[(64, 0.5), (512, 0.0)])], Some(512)),
            (vec![errors(&[(64, 0.0)]), errors(&[(64, 0.5)])], None),
        ] {
            assert_eq!(largest_for_all(&variants), want, "{variants:?}");
        }
    }

    #[test]
    fn mpi_may_differ_by_what_is_tolerated() {
        for (rate, want) in [(230.0, true), (222.0, true), (210.0, false), (250.0, false)] {
            let claim = mpi_is_like_udp(&capacity(rate, 1.0, 1, 1), &capacity(230.0, 1.0, 1, 1));
            assert_eq!(claim.holds, want, "{claim}");
        }
    }

    #[test]
    fn growth_must_be_there_and_must_vanish() {
        for (rates, want) in [
            (&[(1, 100.0), (10, 180.0), (40, 200.0), (160, 201.0)][..], true),
            (&[(1, 200.0), (10, 200.0)], false),
            (&[(1, 200.0), (10, 100.0)], false),
            (&[], false),
        ] {
            let got = grows_with_buffer("CV", rates);
            assert_eq!(got.holds, want, "{got}");
        }
    }

    fn capacity(rate: f64, cpu: f64, strict: u32, loose: u32) -> Capacity {
        Capacity { rates: vec![rate], cpu_ns: vec![cpu], strict: Some(strict), loose: Some(loose) }
    }

    /// S3's own numbers: 218.5 and 230.0 Mb/s at the sender, 163.5 and 180.0 at the receiver.
    #[test]
    fn the_papers_own_numbers_have_the_papers_shape() {
        let cv = [capacity(218.5, 100.0, 28, 28), capacity(163.5, 100.0, 22, 22)];
        let ls = [capacity(230.0, 95.0, 30, 30), capacity(180.0, 90.0, 24, 24)];
        for (ls, cv) in ls.iter().zip(&cv) {
            assert!(server_is_no_worse("LS", ls, cv).iter().all(|claim| claim.holds));
        }
        let claims = receiver_gains_more("LS", (&ls[1], &cv[1]), (&ls[0], &cv[0]));
        assert!(claims.iter().all(|claim| claim.holds), "{claims:?}");
        assert!(claims[0].what.contains("x 1.101, sender x 1.053"), "{}", claims[0]);
        let swapped = receiver_gains_more("LS", (&ls[0], &cv[0]), (&ls[1], &cv[1]));
        assert!(swapped.iter().all(|claim| !claim.holds), "{swapped:?}");
        assert!(tcp_only_loses_to_loss("sender", &ls[0], &ls[0]).holds);
        let tolerant = capacity(230.0, 95.0, 30, 35);
        assert!(tcp_only_loses_to_loss("sender", &ls[0], &tolerant).holds);
        let better = capacity(230.0, 95.0, 32, 32);
        assert!(!tcp_only_loses_to_loss("sender", &ls[0], &better).holds);
        let nothing = Capacity::default();
        assert!(!tcp_only_loses_to_loss("sender", &nothing, &nothing).holds);
    }

    #[test]
    fn the_knee_is_where_packets_do_not_fit() {
        for (rates, want) in [
            (&[(1024, 100.0), (1472, 99.0), (1536, 69.0), (2048, 68.0)][..], true),
            (&[(1472, 99.0), (1536, 95.0)], false),
            (&[(1024, 100.0)], false),
        ] {
            let got = knee_at_mtu("sender", rates, 1472);
            assert_eq!(got.holds, want, "{got}");
        }
    }

    #[test]
    fn rates_are_round_numbers() {
        let got = rates_around(276_543.0, &[0.0, 0.4, 0.41, 1.0, 1.2]);
        assert_eq!(got, [100, 110_000, 280_000, 330_000]);
    }
}
