//! The simulated networks against what is known about them.

mod common;

use std::collections::BTreeSet;

use chacha20::ChaCha8Rng;
use common::{Bench, model};
use itg_core::seed::RunSeed;
use itg_core::streams::{below, exponential_ns};
use itg_process::{MS, Params, SECOND, Slot, To, US};
use itg_sim::networks::{Fddi, Probe, Search, worst_overhead};
use itg_sim::{Effect, Model as _, Packet};

fn rng(name: &str) -> ChaCha8Rng {
    RunSeed(3).named(name)
}

#[test]
fn n_8_ethernet_takes_its_time_and_keeps_order() {
    // One frame of 1500 bytes at 10 Mbit/s: 1538 bytes on the medium, 1230.4 µs.
    let mut bench = Bench::new(model("ethernet", "rate = \"10Mbps\"\nprop = \"0s\"", 3, 1));
    bench.send(0, 1, 0, 1, 1500);
    bench.send(0, 2, 1, 2, 1);
    bench.send(0, 3, 0, 2, 1501);
    bench.run_to(SECOND);
    // A short frame is padded: 46 + 38 bytes. The last message takes two frames.
    let (long, short) = (1_230_400, 67_200);
    let want = [(1, 1, long), (2, 2, long + short), (3, 2, 2 * long + 2 * short)];
    let want: Vec<_> = want.into_iter().map(|(id, to, at)| (id, to, Some(at))).collect();
    assert_eq!(bench.arrivals, want);
    // Random load far beyond capacity: never more than one frame at a time, in order.
    for arbitration in ["fifo", "round_robin"] {
        let params = format!("rate = \"10Mbps\"\nqueue = 20\narbitration = \"{arbitration}\"");
        let mut bench = Bench::new(model("ethernet", &params, 4, 1));
        let mut rng = rng("load");
        let mut now = 0;
        for id in 0..5_000 {
            now += exponential_ns(&mut rng, 300 * US);
            let (src, bytes) = (below(&mut rng, 4), below(&mut rng, 1500));
            let src = u32::try_from(src).expect("small");
            bench.send(now, id, src, (src + 1) % 4, bytes);
        }
        bench.run_to(u64::MAX - 1);
        let end = bench.arrivals.iter().filter_map(|a| a.2).max().expect("some arrive");
        let usage = bench.model.usage();
        assert!(usage.busy_ns <= end, "{arbitration}: utilisation above 1");
        assert!(usage.busy_ns * 100 > end * 95, "{arbitration}: the bus idles under overload");
        let arrived = bench.arrivals.iter().filter(|a| a.2.is_some()).count() as u64;
        assert_eq!((arrived, arrived + usage.dropped), (usage.frames, 5_000));
        let mut last = [None; 4];
        for (id, to, at) in bench.arrivals.iter().filter(|a| a.2.is_some()) {
            let last = &mut last[*to as usize];
            assert!(last.is_none_or(|(i, t)| i < *id && t < *at), "{arbitration}: order");
            *last = Some((*id, *at));
        }
    }
}

#[test]
fn round_robin_shares_the_bus_evenly() {
    let params = "rate = \"10Mbps\"\narbitration = \"round_robin\"";
    let mut bench = Bench::new(model("ethernet", params, 3, 1));
    // Host 0 is first with 100 frames; the others still get every third frame.
    for id in 0..300 {
        bench.send(0, id, u32::try_from(id / 100).expect("small"), 0, 1000);
    }
    bench.run_to(100 * MS);
    let hosts: Vec<_> = bench.arrivals.iter().map(|(id, ..)| id / 100).collect();
    assert!(hosts.len() > 90);
    // The bus was idle when host 0 began: its first frame goes, then all take turns.
    assert!(hosts[1..].chunks(3).filter(|c| c.len() == 3).all(|c| c == [1, 2, 0]), "{hosts:?}");
}

#[test]
fn a_switch_stores_and_forwards_and_drops_at_full_ports() {
    let params = "rate = \"100Mbps\"\nprop = \"1us\"\nqueue = 10";
    let mut bench = Bench::new(model("switch", params, 3, 1));
    bench.send(0, 0, 0, 2, 1500);
    bench.run_to(SECOND);
    // 123.04 µs on each of two links, 1 µs propagation on each.
    assert_eq!(bench.arrivals, [(0, 2, Some(2 * 123_040 + 2_000))]);
    // Both inputs at full speed into one port: half of it is dropped, and the port never rests.
    let mut bench = Bench::new(model("switch", params, 3, 1));
    for k in 0..1000 {
        for src in 0..2 {
            bench.send(k * 123_040, 2 * k + u64::from(src), src, 2, 1500);
        }
    }
    bench.run_to(u64::MAX - 1);
    let arrived = bench.arrivals.iter().filter(|a| a.2.is_some()).count();
    assert!((1000..=1010).contains(&arrived), "{arrived}");
}

/// Rotations under random load, and their bounds.
#[test]
fn n_9_fddi_rotations_are_bounded() {
    let (hosts, ttrt) = (8_u32, 4 * MS);
    let table: toml::Table =
        "ttrt = \"4ms\"\nsync = \"400us\"\nqueue = 100000".parse().expect("TOML");
    let mut params = Params::of_table(&table, "network", "", None);
    let mut ring = Fddi::new(&mut params, hosts).expect("a ring");
    let (mut agenda, mut out) = (itg_sim::Agenda::default(), Vec::new());
    let mut rng = rng("load");
    let (mut now, mut next, mut id) = (0, 0, 0);
    while ring.rotations().count < 100_000 {
        // Bursts of both classes at random hosts, on the whole more than the ring can carry.
        while next <= now {
            let src = Slot(u32::try_from(below(&mut rng, hosts.into())).expect("small"));
            let to = To::One(Slot((src.0 + 1) % hosts));
            for _ in 0..below(&mut rng, 20) {
                let (bytes, urgent) = (below(&mut rng, 4500), below(&mut rng, 2) == 0);
                let packet = Packet { id, src, to: to.clone(), bytes, urgent };
                ring.submit(next, packet, &mut out);
                id += 1;
            }
            let quiet = below(&mut rng, 40) == 0;
            next += exponential_ns(&mut rng, if quiet { 50 * MS } else { 1_500 * US });
        }
        for effect in out.drain(..) {
            if let Effect::Wake(token, at) = effect {
                agenda.push(at, itg_sim::Class::World, token);
            }
        }
        match agenda.peek() {
            Some((at, _)) if at <= next => {
                let (at, token) = agenda.pop().expect("peeked");
                now = at;
                ring.wake(at, token, &mut out);
            }
            _ => now = next,
        }
    }
    let seen = ring.rotations();
    assert!(seen.longest_ns <= 2 * ttrt, "a rotation of {} ns", seen.longest_ns);
    assert!(seen.longest_ns > ttrt, "the load never made anybody late: {} ns", seen.longest_ns);
    assert!(seen.mean_ns <= ttrt, "mean rotation {} ns", seen.mean_ns);
}

#[test]
fn n_9_fddi_shares_are_equal_under_equal_load() {
    let hosts = 5;
    let table: toml::Table = "queue = 1000000".parse().expect("TOML");
    let mut params = Params::of_table(&table, "network", "", None);
    let mut ring = Fddi::new(&mut params, hosts).expect("a ring");
    let (mut agenda, mut out) = (itg_sim::Agenda::default(), Vec::new());
    for id in 0..40_000_u32 {
        let src = Slot(id % hosts);
        let to = To::One(Slot((src.0 + 1) % hosts));
        ring.submit(0, Packet { id: id.into(), src, to, bytes: 4000, urgent: false }, &mut out);
    }
    // After every whole number of cycles of n + 1 rotations the shares are equal within one frame.
    let cycle = u64::from(hosts * (hosts + 1));
    let (mut start, mut cycles, mut last_count) = (None, 0, 0);
    while cycles < 20 {
        for effect in out.drain(..) {
            if let Effect::Wake(token, at) = effect {
                agenda.push(at, itg_sim::Class::World, token);
            }
        }
        let (count, frames) = (ring.rotations().count, ring.async_frames());
        if count != last_count && count >= 2 * cycle && count.is_multiple_of(cycle) {
            match &start {
                None => start = Some(frames),
                Some(start) => {
                    cycles += 1;
                    let shares: Vec<_> =
                        frames.iter().zip(start).map(|(now, then)| now - then).collect();
                    let (least, most) = (shares.iter().min(), shares.iter().max());
                    assert!(least.zip(most).is_some_and(|(l, m)| m - l <= 1), "{shares:?}");
                    assert!(least >= Some(&(20 * cycles)), "{cycles} cycles: {shares:?}");
                }
            }
        }
        last_count = count;
        let Some((at, token)) = agenda.pop() else { panic!("the ring rests") };
        ring.wake(at, token, &mut out);
    }
}

/// A frame is sent once, and then goes from station to station without waiting for a token anywhere.
#[test]
fn a_frame_reaches_stations_of_an_fddi_ring_at_the_speed_of_light_in_fibre() {
    for (hosts, km) in [(5_u32, 1_u32), (2, 1), (8, 100), (64, 1)] {
        // By hand: 1000 bytes and 28 of the frame at 100 Mbit/s, then 1 µs a station and 5.085 µs a kilometre.
        let sent_us = 8.0 * (1000.0 + 28.0) / 100.0;
        let hop_us = 1.0 + 5.085 * f64::from(km) / f64::from(hosts);
        for to in 1..hosts {
            let mut bench = Bench::new(model("fddi", &format!("ring_km = {km}"), hosts, 1));
            // The token of a ring that has just begun is at host 0.
            bench.send(0, 1, 0, to, 1000);
            bench.run_to(SECOND);
            let got = bench.arrival(1).expect("arrives");
            let want_ns = 1000.0 * (sent_us + f64::from(to) * hop_us);
            // Whole nanoseconds a hop.
            let error = (got as f64 - want_ns).abs();
            assert!(
                error <= f64::from(to),
                "{hosts} hosts, {km} km, to {to}: {got}, not {want_ns} ns"
            );
        }
    }
}

#[test]
fn fddi_refuses_targets_that_cannot_be_kept() {
    let table: toml::Table = "ttrt = \"1ms\"\nsync = \"300us\"".parse().expect("TOML");
    let mut params = Params::of_table(&table, "network", "", None);
    let error = Fddi::new(&mut params, 4).expect_err("too short").to_string();
    assert!(error.contains("ttrt: 1ms is too short"), "{error}");
}

#[test]
fn an_idle_ring_costs_nothing_and_finds_its_token() {
    let mut bench = Bench::new(model("fddi", "", 4, 1));
    bench.send(0, 0, 2, 3, 1000);
    bench.run_to(u64::MAX - 1);
    assert!(bench.agenda.is_empty(), "the token is parked");
    let first = bench.arrival(0).expect("arrives");
    let later = 3600 * SECOND;
    bench.send(later, 1, 2, 3, 1000);
    bench.run_to(u64::MAX - 1);
    let delay = bench.arrival(1).expect("arrives") - later;
    // At most one idle rotation (four hops of 3.15 µs) more or less than the first time.
    assert!(delay.abs_diff(first) < 13_000, "{first} and {delay}");
}

/// All steps of the search for a set of participants, the triggering collision included.
fn steps(arity: u32, leaves: u32, hosts: &BTreeSet<u32>) -> (u64, String) {
    let mut search = Search::new(arity, leaves);
    let (mut slots, mut text) = (1, format!("C[0,{leaves})"));
    let mut sent = Vec::new();
    let mut left = hosts.clone();
    while let Some(probe) = search.probe(&left) {
        match probe {
            Probe::Idle(from, to) => {
                slots += 1;
                text += &format!(" I[{from},{to})");
            }
            Probe::Collision(from, to) => {
                slots += 1;
                text += &format!(" C[{from},{to})");
            }
            Probe::Transmit(host) => {
                left.remove(&host);
                sent.push(host);
                text += &format!(" T{host}");
            }
        }
    }
    assert!(sent.iter().eq(hosts.iter()), "everybody sends once, in order: {text}");
    (slots, text)
}

#[test]
fn n_10_the_tree_search_meets_its_bound() {
    for (arity, leaves) in [(2, 2), (2, 4), (2, 8), (2, 16), (4, 4), (4, 16), (3, 9)] {
        let mut worst = vec![0; leaves as usize + 1];
        for set in 0_u32..1 << leaves {
            let hosts: BTreeSet<_> = (0..leaves).filter(|host| set >> host & 1 == 1).collect();
            if hosts.len() >= 2 {
                let (slots, _) = steps(arity, leaves, &hosts);
                let worst = &mut worst[hosts.len()];
                *worst = slots.max(*worst);
            }
        }
        for (k, worst) in worst.iter().enumerate().skip(2) {
            let bound = worst_overhead(arity, leaves, u32::try_from(k).expect("small"));
            assert_eq!(*worst, bound, "{k} of {leaves}, arity {arity}: attained, never passed");
        }
    }
    let mut rng = rng("sets");
    for _ in 0..2000 {
        let k = 2 + below(&mut rng, 62);
        let draw = |rng: &mut ChaCha8Rng| u32::try_from(below(rng, 64)).expect("small");
        let hosts: BTreeSet<_> = (0..k).map(|_| draw(&mut rng)).collect();
        if hosts.len() >= 2 {
            let count = u32::try_from(hosts.len()).expect("small");
            assert!(steps(2, 64, &hosts).0 <= worst_overhead(2, 64, count), "{hosts:?}");
        }
    }
}

#[test]
fn n_10_the_bounds_and_traces_of_the_annex() {
    let rows: [(u32, u32, &[u64]); 4] = [
        (2, 8, &[1, 0, 5, 4, 7, 6, 7, 6, 7]),
        (2, 16, &[1, 0, 7, 6, 11, 10, 13, 12, 15, 14, 15, 14, 15, 14, 15, 14, 15]),
        (2, 64, &[1, 0, 11, 10, 19, 18, 25, 24, 31, 30, 35, 34, 39, 38, 43, 42, 47]),
        (4, 16, &[1, 0, 7, 6, 9, 8, 11, 10, 13, 12, 11, 10, 9, 8, 7, 6, 5]),
    ];
    for (arity, leaves, want) in rows {
        let got: Vec<_> =
            (0..).take(want.len()).map(|k| worst_overhead(arity, leaves, k)).collect();
        assert_eq!(got, want, "arity {arity}, {leaves} leaves");
    }
    assert_eq!(worst_overhead(2, 64, 64), 63);
    let trace = |hosts: &[u32]| steps(2, 8, &hosts.iter().copied().collect()).1;
    assert_eq!(trace(&[1, 4, 5, 7]), "C[0,8) T1 C[4,8) C[4,6) T4 T5 T7");
    assert_eq!(trace(&[6, 7]), "C[0,8) I[0,4) C[4,8) I[4,6) C[6,8) T6 T7");
}

#[test]
fn n_10_the_bus_spends_what_the_search_says() {
    for hosts in [vec![1, 4, 5, 7], vec![6, 7], (0..8).collect(), vec![3]] {
        let mut bench = Bench::new(model("dcr", "rate = \"10Mbps\"", 8, 1));
        for &host in &hosts {
            bench.send(1000, host.into(), host, (host + 1) % 8, 1000);
        }
        bench.run_to(SECOND);
        let (slots, _) = steps(2, 8, &hosts.iter().copied().collect());
        let slots = if hosts.len() == 1 { 0 } else { slots };
        assert_eq!(bench.model.usage().overhead_ns, slots * 51_200, "{hosts:?}");
        let order: Vec<_> = bench.arrivals.iter().map(|a| a.0).collect();
        assert!(order.iter().copied().eq(hosts.iter().map(|host| u64::from(*host))));
        let last = bench.arrivals.last().and_then(|a| a.2).expect("arrives");
        let frames = hosts.len() as u64 * itg_sim::transmission_ns(1038, 10_000_000);
        assert_eq!(last, 1000 + slots * 51_200 + frames, "{hosts:?}: no other time is lost");
    }
}

#[test]
fn fixed_delays_are_exact_with_bandwidth_and_queue() {
    let params = "delay = \"10ms\"\nrate = \"8Mbps\"\nqueue = 3000";
    let mut bench = Bench::new(model("fixed", params, 2, 1));
    // 1000 bytes take 1 ms; three fit into the queue, the fourth does not; the way back is free.
    (0..4).for_each(|id| bench.send(0, id, 0, 1, 1000));
    bench.send(0, 9, 1, 0, 1000);
    bench.send(MS, 4, 0, 1, 1000);
    let want = [Some(11 * MS), Some(12 * MS), Some(13 * MS), None, Some(14 * MS)];
    assert_eq!([0, 1, 2, 3, 4].map(|id| bench.arrival(id)), want);
    assert_eq!(bench.arrival(9), Some(11 * MS));
    let delays = "delays = [[\"0s\", \"1ms\"], [\"7ms\", \"0s\"]]";
    let mut bench = Bench::new(model("matrix", delays, 2, 1));
    bench.send(0, 0, 0, 1, 10);
    bench.send(0, 1, 1, 0, 10);
    assert_eq!([bench.arrival(0), bench.arrival(1)], [Some(MS), Some(7 * MS)]);
}

#[test]
fn random_delays_lose_duplicate_and_reorder_as_asked() {
    let params = "floor = \"1ms\"\nmean = \"2ms\"\nloss = 0.1\nduplication = 0.2";
    let mut bench = Bench::new(model("random", params, 2, 5));
    let n = 100_000_u64;
    (0..n).for_each(|id| bench.send(id, id, 0, 1, 10));
    let lost = bench.arrivals.iter().filter(|a| a.2.is_none()).count() as f64;
    let arrived = bench.arrivals.len() as f64 - lost;
    let sent = n as f64;
    assert!((lost / sent - 0.1).abs() < 0.005, "{lost} lost");
    assert!((arrived / (sent - lost) - 1.2).abs() < 0.01, "{arrived} arrived");
    let delays = bench.arrivals.iter().filter_map(|(id, _, at)| Some(at.as_ref()? - id));
    let sum: u64 = delays.clone().sum();
    // Duplicates come later than their originals, so the mean is a little above 3 ms.
    assert!((2.9e6..3.5e6).contains(&(sum as f64 / arrived)), "{}", sum as f64 / arrived);
    assert!(delays.min() >= Some(MS));
    let times: Vec<_> = bench.arrivals.iter().filter_map(|a| a.2).collect();
    assert!(times.windows(2).any(|pair| pair[0] > pair[1]), "no order is kept");
    // In order when asked for.
    let mut bench = Bench::new(model("random", "fifo = true", 2, 5));
    (0..n).for_each(|id| bench.send(id * 1000, id, 0, 1, 10));
    let times: Vec<_> = bench.arrivals.iter().filter_map(|a| a.2).collect();
    assert!(times.windows(2).all(|pair| pair[0] <= pair[1]));
}

/// Mean and standard error of the mean.
fn mean(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// Delays in a queue with Poisson arrivals at 70 % load: mean and 99th percentile of each seed.
fn queue(seed: u64, exponential_sizes: bool) -> (f64, f64) {
    let mut bench = Bench::new(model("fixed", "delay = \"0s\"\nrate = \"8Mbps\"", 2, 1));
    let mut rng = RunSeed(seed).named("arrivals");
    let (mut now, mut delays) = (0, Vec::new());
    let (n, warm) = (60_000_u64, 5_000);
    for id in 0..n {
        now += exponential_ns(&mut rng, 1_000_000_000 / 700);
        // 1000 bytes take 1 ms. Sizes in bytes: the rounding is a thousandth of the mean.
        let size = if exponential_sizes { exponential_ns(&mut rng, 1000) } else { 1000 };
        bench.send(now, id, 0, 1, size);
        if id >= warm {
            let at = bench.arrivals.pop().and_then(|a| a.2).expect("nothing is lost");
            delays.push(at - now);
        } else {
            bench.arrivals.clear();
        }
    }
    delays.sort_unstable();
    let sum: u64 = delays.iter().sum();
    (sum as f64 / delays.len() as f64, delays[delays.len() * 99 / 100] as f64)
}

#[test]
fn queues_behave_as_theory_says() {
    // M/M/1, service rate 1/ms, load 0.7: the time in the system is exponential with mean 1/(μ − λ).
    // M/D/1: mean 1/μ + ρ/(2μ(1 − ρ)); its 99th percentile from the series of Erlang (1909) for the
    // waiting time.
    let (mu, rho) = (1e-6, 0.7);
    let mm1 = (1.0 / (mu * (1.0 - rho)), 100_f64.ln() / (mu * (1.0 - rho)));
    let md1 = (1.0 / mu + rho / (2.0 * mu * (1.0 - rho)), 1.0 / mu + md1_wait(rho, 0.99) / mu);
    for (exponential, (want_mean, want_p99)) in [(true, mm1), (false, md1)] {
        let runs: Vec<_> = (0..24).map(|seed| queue(100 + seed, exponential)).collect();
        let means: Vec<_> = runs.iter().map(|run| run.0).collect();
        let p99s: Vec<_> = runs.iter().map(|run| run.1).collect();
        for (what, values, want) in [("mean", means, want_mean), ("p99", p99s, want_p99)] {
            let (got, error) = mean(&values);
            // t(23) for 99 %, two-sided: 2.807; and one byte of rounding in the sizes (1 µs).
            let half = 2.807 * error + 1e3;
            assert!(
                (got - want).abs() <= half,
                "exponential {exponential}, {what}: {got} ± {half}, theory {want}"
            );
        }
    }
}

/// The quantile of the waiting time in M/D/1, in service times: P(W ≤ t) = (1 − ρ) Σ_{k ≤ t} e^{ρ(t−k)}
/// (−ρ(t−k))^k / k!.
fn md1_wait(rho: f64, quantile: f64) -> f64 {
    let cdf = |t: f64| {
        let terms = (0..40).filter(|k| f64::from(*k) <= t).map(|k| {
            let x = rho * (t - f64::from(k));
            let factorial: f64 = (1..=k).map(f64::from).product();
            x.exp() * (-x).powi(k) / factorial
        });
        (1.0 - rho) * terms.sum::<f64>()
    };
    let (mut low, mut high) = (0.0, 20.0);
    for _ in 0..60 {
        let middle = (low + high) / 2.0;
        if cdf(middle) < quantile { low = middle } else { high = middle }
    }
    low
}

#[test]
fn unknown_networks_and_parameters_are_named() {
    let rows = [
        ("ethernet", "rat = \"10Mbps\"", "network: unknown key `rat`: did you mean `rate`?"),
        ("ethernet", "rate = \"10\"", "network: rate: rate `10` has no unit"),
        (
            "etherent",
            "",
            "network: kind: no simulated network `etherent`: did you mean `ethernet`?",
        ),
        ("random", "loss = 2", "network: loss: `2`: expected a probability from 0 to 1"),
        ("matrix", "delays = [[\"1s\"]]", "network: delays: expected 2 rows of 2 times"),
    ];
    for (kind, text, want) in rows {
        let table: toml::Table = text.parse().expect("TOML");
        let mut params = Params::of_table(&table, "network", "", None);
        let got = itg_sim::networks::network(kind, &mut params, RunSeed(1), "x", 2);
        let got = got.map(drop).map_err(|error| error.to_string());
        assert!(got.as_ref().is_err_and(|error| error.starts_with(want)), "{kind} {text}: {got:?}");
    }
}

/// Messages of a crowd take L(n) when all leave at once, in order; what changes on the way counts for its part.
#[test]
fn a_crowd_is_slower_the_more_talk() {
    let params = "delay = \"100us\"\nfree = 4\nslope = \"10us\"";
    for (pairs, want) in [(1, 100), (2, 100), (3, 120), (10, 260)] {
        let mut bench = Bench::new(model("crowd", params, 20, 1));
        for pair in 0..pairs {
            bench.send(7, pair.into(), 2 * pair, 2 * pair + 1, 100);
        }
        bench.run_to(SECOND);
        let arrived: Vec<_> =
            (0..pairs).map(|pair| (pair.into(), 2 * pair + 1, Some(7 + want * US))).collect();
        assert_eq!(bench.arrivals, arrived, "{pairs} pairs");
        assert_eq!(bench.model.usage().busy_ns, want * US);
    }
    // One that talks with many is counted once.
    let mut bench = Bench::new(model("crowd", params, 20, 1));
    for child in 1..=5 {
        bench.send(0, child.into(), 0, child, 1);
    }
    bench.run_to(SECOND);
    assert!(bench.arrivals.iter().all(|arrival| arrival.2 == Some(120 * US)), "six talk");
    // Half of the way alone, then six talk: half of 100 µs and half of 120 µs; those that came later
    // have the other half of theirs alone again, two pairs at a time.
    let mut bench = Bench::new(model("crowd", params, 20, 1));
    bench.send(0, 1, 0, 1, 1);
    bench.send(50 * US, 2, 2, 3, 1);
    bench.send(50 * US, 3, 4, 5, 1);
    bench.run_to(SECOND);
    let times = [1, 2, 3].map(|id| bench.arrival(id));
    assert_eq!(times, [Some(110 * US), Some(160 * US), Some(160 * US)]);
}

/// Random load on a crowd: everything arrives, in order, never faster than alone nor slower than
/// with all.
#[test]
fn a_crowd_loses_nothing_and_keeps_order() {
    let params = "delay = \"100us\"\nfree = 3\nslope = \"7us\"";
    let mut bench = Bench::new(model("crowd", params, 16, 1));
    let mut rng = rng("crowd");
    let (mut now, mut left) = (0, Vec::new());
    for id in 0..5_000 {
        now += exponential_ns(&mut rng, 30 * US);
        let src = u32::try_from(below(&mut rng, 16)).expect("small");
        bench.send(now, id, src, (src + 3) % 16, 100);
        left.push(now);
    }
    bench.run_to(u64::MAX - 1);
    let ids: Vec<_> = bench.arrivals.iter().map(|arrival| arrival.0).collect();
    assert_eq!(ids, (0..5_000).collect::<Vec<_>>());
    let took = bench.arrivals.iter().zip(&left).map(|(seen, left)| seen.2.expect("all") - left);
    let (least, most) = took.fold((u64::MAX, 0), |(a, b), t| (a.min(t), b.max(t)));
    assert!((100 * US..150 * US).contains(&least), "{least}");
    // A nanosecond is lost to rounding whenever the speed changes.
    assert!((150 * US..=(100 + 13 * 7 + 1) * US).contains(&most), "{most}");
}
