//! Limits of what a receiver sends to peers that ask for flows.

use std::time::Duration;

use itg_core::flow::{Flow, FlowSpec, Meter, Payload, Proto};
use itg_core::seed::RunSeed;
use itg_core::text::grouped;
use itg_core::units::{BitRate, format_bit_rate, format_duration_ns, nanoseconds};

use super::laws;

/// Time for agreements, before and behind the flows.
const AGREEING_NS: u64 = 15_000_000_000;
/// Bits that may leave at once, as time at the rate of the limit: 1 s.
const AHEAD_S: f64 = 1.0;

/// Limits of what a receiver sends to peers that ask for flows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReverseLimits {
    /// Rate of all flows to one asker together.
    pub rate: BitRate,
    /// Time from the start of a run to the end of its flows.
    pub time: Duration,
    /// Askers at the same time.
    pub askers: usize,
}

impl ReverseLimits {
    /// The flows as they will be sent, and what was changed of them.
    ///
    /// # Errors
    /// A request beyond a limit, with the option that sets it; or one that no flow of this direction may make.
    pub(super) fn admit(&self, specs: Vec<FlowSpec>, seed: RunSeed) -> Result<Admitted, String> {
        let share = self.rate.0 / u64::try_from(specs.len().max(1)).unwrap_or(u64::MAX);
        let (mut flows, mut notices) = (Vec::new(), Vec::new());
        let (mut streams, mut sum) = (0, 0.0);
        for spec in specs {
            let id = spec.id;
            let longest_ns = nanoseconds(self.time).saturating_sub(spec.start_ns);
            check(&spec).map_err(|why| format!("flow {id}: {why}"))?;
            laws::check(&spec, longest_ns).map_err(|why| format!("flow {id}: {why}"))?;
            let (flow, bits, held) =
                self.admit_one(spec, (share, longest_ns), seed, &mut notices)?;
            streams += held;
            sum += bits;
            flows.push(flow);
        }
        if sum > rate(self.rate.0) {
            return Err(format!(
                "flows of {} together, and this receiver sends {} at most: --reverse-rate of itg-recv",
                format_bit_rate(sum),
                format_bit_rate(rate(self.rate.0))
            ));
        }
        let notices = grouped(&notices);
        Ok(Admitted { flows, notices, datagrams: BitRate(self.rate.0.saturating_sub(streams)) })
    }

    /// A flow as it will be sent, the bits a second that it takes of the limit, and the rate to which the kernel holds
    /// it.
    fn admit_one(
        &self,
        mut spec: FlowSpec,
        (share, longest_ns): (u64, u64),
        seed: RunSeed,
        notices: &mut Vec<(u32, String)>,
    ) -> Result<(Flow, f64, u64), String> {
        let (id, stop) = (spec.id, spec.stop);
        let most = format_duration_ns(nanoseconds(self.time));
        let asked_ns = stop.duration_ns.unwrap_or(longest_ns);
        if longest_ns == 0 || asked_ns > longest_ns {
            return Err(format!(
                "flow {id} ends after {}, and what this receiver sends ends after {most}: --reverse-time of itg-recv",
                format_duration_ns(asked_ns.saturating_add(spec.start_ns)),
            ));
        }
        spec.stop.duration_ns = Some(asked_ns);
        let mut held = 0;
        if spec.proto == Proto::Tcp {
            held = spec.socket.pacing_rate.map_or(share, |asked| asked.min(share));
            spec.socket.pacing_rate = Some(held);
        }
        let flow = resolve(&spec, seed)?;
        let bits = mean_bits(&flow);
        let endless = bits.is_infinite();
        if endless && spec.proto == Proto::Tcp {
            let text = format!(
                "the kernel of the sender holds it to {}: --reverse-rate of itg-recv",
                BitRate(held)
            );
            notices.push((id, text));
        } else if endless {
            return Err(format!(
                "flow {id}: UDP as fast as possible: name a rate of {} at most: --reverse-rate of itg-recv",
                format_bit_rate(rate(self.rate.0))
            ));
        }
        let bits = if endless { rate(held) } else { bits.max(rate(held)) };
        if stop.duration_ns.is_none() {
            let pace = if endless { rate(held) } else { mean_bits(&flow) };
            let bytes = stop.packets.map(|packets| rate(packets) * flow.size().mean());
            let bytes = bytes.into_iter().chain(stop.bytes.map(rate)).reduce(f64::min);
            let left = rate(longest_ns) / 1e9;
            match bytes.map(|bytes| bytes * 8.0 / pace) {
                None => {
                    notices.push((id, format!("ends after {most}: --reverse-time of itg-recv")))
                }
                Some(long) if long <= left => {}
                Some(long) => {
                    return Err(format!(
                        "flow {id} takes about {long:.0} s, and what this receiver sends ends after {most}: \
                         --reverse-time of itg-recv"
                    ));
                }
            }
        }
        Ok((flow, bits, held))
    }

    /// The reason to end what was asked for so long ago.
    pub(super) fn overdue(&self, elapsed_ns: u64) -> Option<&'static str> {
        let most_ns = nanoseconds(self.time).saturating_add(AGREEING_NS);
        (elapsed_ns > most_ns).then_some("the time of --reverse-time of itg-recv is over")
    }
}

/// Flows as they will be sent.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) flows: Vec<Flow>,
    /// Changes that were made to them, a sentence each.
    pub(super) notices: Vec<String>,
    /// Rate that those of TCP, to which the kernel holds them, leave to those of UDP.
    pub(super) datagrams: BitRate,
}

/// Tokens for bits: as many as the rate gives, kept for one second at most.
#[derive(Debug)]
pub(super) struct Bucket {
    /// Bits a second, and room for tokens.
    rate: f64,
    tokens: f64,
    at_ns: u64,
    bytes: u64,
}

impl Bucket {
    /// A full bucket.
    pub(super) fn new(limit: BitRate, now_ns: u64) -> Self {
        let rate = rate(limit.0);
        Self { rate, tokens: rate * AHEAD_S, at_ns: now_ns, bytes: 0 }
    }

    /// Takes tokens for the bytes that have been sent in all.
    ///
    /// # Errors
    /// There are not enough.
    pub(super) fn take(&mut self, now_ns: u64, bytes: u64) -> Result<(), &'static str> {
        let gained = rate(now_ns.saturating_sub(self.at_ns)) / 1e9 * self.rate;
        let spent = rate(bytes.saturating_sub(self.bytes)) * 8.0;
        (self.at_ns, self.bytes) = (now_ns, bytes);
        self.tokens = (self.tokens + gained - spent).min(self.rate * AHEAD_S);
        match self.tokens < 0.0 {
            true => Err("more has left than --reverse-rate of itg-recv allows"),
            false => Ok(()),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "numbers of few digits, for comparisons")]
const fn rate(number: u64) -> f64 {
    number as f64
}

pub(super) fn resolve(spec: &FlowSpec, seed: RunSeed) -> Result<Flow, String> {
    Flow::resolve(spec.clone(), seed).map_err(|error| error.to_string())
}

/// Expected bits a second; infinite when packets leave as fast as possible.
fn mean_bits(flow: &Flow) -> f64 {
    flow.mean_packet_rate() * flow.size().mean() * 8.0
}

/// Checks what a peer may not ask this host for.
fn check(spec: &FlowSpec) -> Result<(), &'static str> {
    if !matches!(spec.proto, Proto::Udp | Proto::Tcp) {
        return Err("UDP and TCP alone go to who asks for them");
    }
    if spec.meter == Meter::Rtt {
        return Err("a round trip is the same both ways: leave out --meter rtt");
    }
    if matches!(spec.payload, Payload::File(_)) {
        return Err("its sender reads no file for others: leave out --payload file");
    }
    let options = &spec.socket;
    if options.source.is_some() || options.source_port.is_some() || options.interface.is_some() {
        return Err(
            "its sender chooses address, port and interface: leave out --source, --source-port and --interface",
        );
    }
    if !spec.changes.is_empty() {
        return Err("its rate does not change");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use itg_core::distribution::Distribution;
    use itg_core::flow::OnOff;

    use super::*;

    fn limits() -> ReverseLimits {
        ReverseLimits { rate: BitRate(10_000_000), time: Duration::from_secs(60), askers: 2 }
    }

    fn admitted(change: impl FnOnce(&mut FlowSpec)) -> Result<Admitted, String> {
        let mut spec = FlowSpec::new(1);
        spec.stop.duration_ns = Some(10_000_000_000);
        change(&mut spec);
        limits().admit(vec![spec], RunSeed(1))
    }

    #[test]
    fn refusals_name_the_option_that_sets_the_limit() {
        for (what, change, want) in [
            ("plain", (|_| ()) as fn(&mut FlowSpec), None),
            ("long", |spec| spec.stop.duration_ns = Some(61_000_000_000), Some("--reverse-time")),
            ("late", |spec| spec.start_ns = 55_000_000_000, Some("--reverse-time")),
            ("rtt", |spec| spec.meter = Meter::Rtt, Some("--meter rtt")),
            ("icmp", |spec| spec.proto = Proto::Icmp, Some("UDP and TCP alone")),
            (
                "file",
                |spec| spec.payload = Payload::File("/etc/passwd".to_owned()),
                Some("--payload file"),
            ),
            ("fast", |spec| spec.idt = Distribution::Constant(100_000.0), Some("--reverse-rate")),
            ("max", |spec| spec.idt = Distribution::Constant(0.0), Some("--reverse-rate")),
            ("source", |spec| spec.socket.source_port = Some(53), Some("--source-port")),
        ] {
            let got = admitted(change);
            match want {
                None => assert!(got.is_ok(), "{what}: {got:?}"),
                Some(want) => {
                    let error = got.expect_err(what);
                    assert!(error.contains(want), "{what}: {error}");
                }
            }
        }
    }

    #[test]
    fn tcp_without_a_rate_is_held_to_the_limit_by_the_kernel() {
        let Admitted { flows, notices, datagrams } = admitted(|spec| {
            (spec.proto, spec.idt) = (Proto::Tcp, Distribution::Constant(0.0));
        })
        .expect("TCP gives way");
        assert_eq!(flows[0].spec().socket.pacing_rate, Some(10_000_000));
        assert!(notices[0].contains("--reverse-rate"), "{notices:?}");
        assert_eq!(datagrams, BitRate(0), "nothing is left to UDP");
    }

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn what_runs_beyond_its_time_is_ended() {
        assert_eq!(limits().overdue(75 * SECOND), None);
        let got = limits().overdue(75 * SECOND + 1).expect("too late");
        assert!(got.contains("--reverse-time"), "{got}");
    }

    /// Bytes in all at each second: the rate, one second of it at once, and no credit for having waited.
    #[test]
    fn a_bucket_keeps_one_second_of_the_rate() {
        let whole = 1_250_000; // of 10 Mbit/s
        for (what, sent, ended) in [
            ("steady", &[whole, 2 * whole, 3 * whole][..], None),
            ("a second at once", &[2 * whole, 3 * whole, 4 * whole], None),
            ("a byte more", &[2 * whole + 1], Some(1)),
            ("waited", &[0, 0, 0, 0, 2 * whole], None),
            ("waited, and a byte more", &[0, 0, 0, 0, 2 * whole + 1], Some(5)),
            ("twice", &[2 * whole, 4 * whole], Some(2)),
        ] {
            let mut bucket = Bucket::new(BitRate(10_000_000), 0);
            let over = (1..)
                .zip(sent)
                .find(|(second, bytes)| bucket.take(second * SECOND, **bytes).is_err());
            assert_eq!(over.map(|(second, _)| second), ended, "{what}");
        }
    }

    /// Limits to which the kernel holds TCP are not there for UDP.
    #[test]
    fn streams_and_datagrams_share_the_limit() {
        let of = |udp_bits: f64| {
            let mut stream = FlowSpec::new(1);
            (stream.proto, stream.idt) = (Proto::Tcp, Distribution::Constant(0.0));
            let mut datagrams = FlowSpec::new(2);
            datagrams.idt = Distribution::Constant(512.0 * 8.0 / udp_bits * 1e9);
            datagrams.size = Distribution::Constant(512.0);
            limits().admit(vec![stream, datagrams], RunSeed(1))
        };
        assert_eq!(of(4.9e6).expect("within").datagrams, BitRate(5_000_000));
        let error = of(5.1e6).expect_err("beyond");
        assert!(error.contains("--reverse-rate"), "{error}");
    }

    #[test]
    fn what_would_be_cut_is_refused() {
        let slow = |spec: &mut FlowSpec| {
            spec.stop.duration_ns = None;
            (spec.idt, spec.size) = (Distribution::Constant(1e7), Distribution::Constant(100.0));
        };
        for (packets, bytes, good) in [
            (Some(5_999), None, true),
            (Some(6_001), None, false),
            (None, Some(599_900), true),
            (None, Some(600_100), false),
            (Some(6_001), Some(100), true),
        ] {
            let got = admitted(|spec| {
                slow(spec);
                (spec.stop.packets, spec.stop.bytes) = (packets, bytes);
            });
            assert_eq!(got.is_ok(), good, "{packets:?} {bytes:?}: {got:?}");
            assert!(got.err().is_none_or(|error| error.contains("--reverse-time")));
        }
        let endless = admitted(slow).expect("without an end");
        assert!(endless.notices[0].contains("--reverse-time"), "{endless:?}");
    }

    /// Descriptions that cost their sender hours: they are refused before anything is computed of them.
    #[test]
    fn costly_distributions_are_refused() {
        use Distribution as D;
        let nested = |depth: usize| {
            (0..depth).fold(D::Exp { mean: 1e6 }, |inner, _| D::Trunc {
                distribution: Box::new(inner),
                lo: 0.0,
                hi: 1e9,
            })
        };
        let mix = |parts: usize| D::Mix(vec![(1.0, D::Exp { mean: 1e6 }); parts]);
        let periods = |on: D, off: D| {
            move |spec: &mut FlowSpec| {
                spec.idt = D::Constant(1e11);
                spec.on_off = Some(OnOff { on, off });
            }
        };
        let rare = D::Mix(vec![(1e12, D::Constant(1.0)), (1.0, D::Constant(1e18))]);
        let ms = |ms: f64| D::Constant(ms * 1e6);
        type Change = Box<dyn Fn(&mut FlowSpec)>;
        let idt = |law: D| -> Change { Box::new(move |spec| spec.idt = law.clone()) };
        let on_off = |on: D, off: D| -> Change {
            Box::new(move |spec| periods(on.clone(), off.clone())(spec))
        };
        for (what, change, good) in [
            ("2 deep", idt(nested(2)), true),
            ("3 deep", idt(nested(3)), false),
            ("14 deep", idt(nested(14)), false),
            ("16 parts", idt(mix(12)), true),
            ("many parts", idt(mix(17)), false),
            ("few values", idt(D::Discrete(vec![(1e6, 1.0); 1000])), true),
            ("many values", idt(D::Discrete(vec![(1e6, 1.0); 1025])), false),
            ("rare ON", on_off(rare.clone(), D::Constant(0.0)), false),
            ("rare ON and OFF", on_off(rare.clone(), rare), false),
            ("short ON", on_off(ms(0.01), D::Constant(0.0)), false),
            ("short ON, long OFF", on_off(ms(1.0), ms(10.0)), true),
            ("ON", on_off(D::Exp { mean: 1e7 }, D::Exp { mean: 1e7 }), true),
        ] {
            let got = admitted(|spec| change(spec));
            match got {
                Ok(_) => assert!(good, "{what} is admitted"),
                Err(error) => {
                    assert!(!good && error.contains("a receiver sends"), "{what}: {error}")
                }
            }
        }
    }
}
