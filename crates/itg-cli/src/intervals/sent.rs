//! Windows of flows that are sent from here: what was handed to the kernel, and what has arrived as far as the receivers
//! tell. They are asked at the end of each window, and have the last word when a flow has ended.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use itg_engine::{ArrivalReading, FlowLive, FlowReading};
use itg_node::ArrivalAsker;
use itg_socket::clock;

use super::row::{Arrived, Loss, Row, Volume};
use super::{Look, Source, Window};

/// Longest wait for the answers of receivers.
const PATIENCE: Duration = Duration::from_secs(1);

/// A flow that is sent.
#[derive(Clone, Debug)]
pub(crate) struct SentFlow {
    /// Its counters.
    pub(crate) live: Arc<FlowLive>,
    /// Packets come back: those are what arrives.
    pub(crate) round_trip: bool,
    /// The transport sends again what was lost.
    pub(crate) resends: bool,
}

/// Flows that are sent.
#[derive(Debug)]
pub(crate) struct SentFlows {
    flows: Vec<(SentFlow, Told)>,
    asker: ArrivalAsker,
    /// Begin of what has not been told of as arrived.
    since_ns: u64,
    /// Instants up to which arrivals have been told, each by the clock where they arrive.
    clocks: BTreeMap<Clock, u64>,
}

/// Clock of arrivals: that of a receiver, or the one here.
type Clock = Option<usize>;

/// Part of a flow that lines have told so far.
#[derive(Clone, Copy, Debug)]
struct Told {
    sent: Volume,
    arrived: Volume,
    /// Packets that were lost up to now, where that was known.
    lost: Option<u64>,
    reordered: Option<u64>,
}

/// A flow as it is at the end of a window.
#[derive(Clone, Copy, Debug)]
struct Now {
    reading: FlowReading,
    /// Arrivals, by which clock, and whether that is all of them; `None` where it is not known.
    arrivals: Option<(ArrivalReading, Clock, bool)>,
}

/// Times of the arrivals of a window by one clock.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    volume: Volume,
    first_ns: Option<u64>,
    at_ns: Option<u64>,
}

/// Loss of a window, as it is being added up.
#[derive(Clone, Copy, Debug)]
struct LossSum {
    lost: Option<u64>,
    /// Packets that were sent and have not arrived: known ones on their way, and all.
    away: u64,
    absent: u64,
    /// Some may yet arrive; some may be lost.
    open: bool,
    lossy: bool,
}

impl Default for Told {
    fn default() -> Self {
        let nothing = Volume::default();
        Self { sent: nothing, arrived: nothing, lost: Some(0), reordered: Some(0) }
    }
}

impl SentFlows {
    pub(crate) fn new(flows: Vec<SentFlow>, asker: ArrivalAsker) -> Self {
        let flows = flows.into_iter().map(|flow| (flow, Told::default())).collect();
        Self { flows, asker, since_ns: 0, clocks: BTreeMap::new() }
    }

    /// The flows at the end of a window, and its instant. Receivers of flows that are sent one way are asked, but at the
    /// end of the run, when they have told all. The window ends when they have answered: what has arrived, or was lost,
    /// by their account was sent by then.
    async fn now(&self, last: bool) -> (u64, Vec<Now>) {
        let read = || -> Vec<_> { self.flows.iter().map(|(flow, _)| flow.live.read()).collect() };
        let (mut now_ns, mut readings) = (clock::monotonic_ns(), read());
        let asked = self.flows.iter().any(|(flow, _)| !flow.round_trip);
        let fresh = !last && asked && self.asker.ask(PATIENCE).await;
        if fresh {
            (now_ns, readings) = (clock::monotonic_ns(), read());
        }
        let flows = self.flows.iter().zip(readings).map(|((flow, _), reading)| {
            let arrivals = match reading.told {
                _ if flow.round_trip => {
                    let at_ns = if last { reading.received_last_ns } else { now_ns };
                    Some((reading.arrivals_here(at_ns), None, last))
                }
                Some(told) if told.whole || fresh => {
                    Some((told.arrivals, Some(told.receiver), told.whole))
                }
                _ if reading.sent_packets == 0 => {
                    let nothing =
                        ArrivalReading { reordered: Some(0), ..ArrivalReading::default() };
                    Some((nothing, None, false))
                }
                _ => None,
            };
            Now { reading, arrivals }
        });
        (now_ns, flows.collect())
    }

    /// The line of a window with these flows at its end, if it is to have one.
    fn row(&mut self, flows: &[Now], window: Window, now_ns: u64) -> Option<Row> {
        let known = flows.iter().all(|now| now.arrivals.is_some());
        let (mut sent, mut loss, mut running) = (Volume::default(), LossSum::default(), 0);
        let mut spans: BTreeMap<Clock, Span> = BTreeMap::new();
        for (now, (flow, told)) in flows.iter().zip(&self.flows) {
            let handed = sent_of(&now.reading).without(told.sent);
            add(&mut sent, handed);
            let mut came = Volume::default();
            if let Some((arrivals, clock, whole)) = now.arrivals.filter(|_| known) {
                came = volume(&arrivals).without(told.arrived);
                loss.add(flow, &now.reading, (&arrivals, whole), told);
                spans.entry(clock).or_default().add(came, &arrivals);
            }
            let nothing = handed == Volume::default() && came == Volume::default();
            running += usize::from(!(now.reading.ended && nothing));
        }
        let mut arrived = Volume::default();
        spans.values().for_each(|span| add(&mut arrived, span.volume));
        let ended = flows.iter().all(|now| now.reading.ended || now.reading.sent_packets == 0);
        let quiet = sent == Volume::default()
            && (!known || arrived == Volume::default())
            && (!known || loss.lost.is_none_or(|lost| lost == 0));
        // Of what may still come of flows that have ended there is a line when it has come.
        if quiet && (window.last || ended) {
            return None;
        }
        let whole = flows.iter().all(|now| now.arrivals.is_none_or(|(_, _, whole)| whole));
        let until_ns = match window.last || (ended && whole) {
            true => self.last_ns(flows, &spans, window),
            false => now_ns.saturating_sub(window.began_ns).max(window.since_ns),
        };
        let row = Row {
            since_ns: window.since_ns,
            until_ns,
            flows: running,
            sent: Some(sent),
            arrived: known.then(|| Arrived {
                volume: arrived,
                since_ns: Some(self.since_ns).filter(|since| *since < window.since_ns),
                bps: self.bps(&spans, until_ns),
                loss: loss.told(),
            }),
        };
        self.keep(flows, known, until_ns, &spans);
        Some(row)
    }

    /// Notes what a line tells.
    fn keep(&mut self, flows: &[Now], known: bool, until_ns: u64, spans: &BTreeMap<Clock, Span>) {
        for (now, (flow, told)) in flows.iter().zip(&mut self.flows) {
            told.sent = sent_of(&now.reading);
            if let Some((arrivals, _, whole)) = now.arrivals.filter(|_| known) {
                told.arrived = volume(&arrivals);
                told.lost = lost(flow, &now.reading, (&arrivals, whole));
                told.reordered = arrivals.reordered;
            }
        }
        if known {
            self.since_ns = until_ns;
            for (clock, span) in spans {
                let at_ns = self.clocks.entry(*clock).or_default();
                *at_ns = span.at_ns.unwrap_or(0).max(*at_ns);
            }
        }
    }

    /// Time in which the arrivals of a window have come by one clock, if it is known.
    fn time_ns(&self, clock: Clock, span: &Span) -> Option<u64> {
        let since_ns = self.clocks.get(&clock).copied().unwrap_or(0);
        Some(span.at_ns?.saturating_sub(since_ns.max(span.first_ns?)))
    }

    /// Rate of the arrivals of a window that ends there: by each clock over the time that it shows.
    fn bps(&self, spans: &BTreeMap<Clock, Span>, until_ns: u64) -> Option<f64> {
        let all_ns = until_ns.saturating_sub(self.since_ns);
        let mut rates = spans
            .iter()
            .filter(|(_, span)| span.volume != Volume::default())
            .map(|(clock, span)| span.volume.bps_over(self.time_ns(*clock, span).unwrap_or(all_ns)))
            .peekable();
        match rates.peek() {
            Some(_) => rates.sum(),
            None => Volume::default().bps_over(all_ns),
        }
    }

    /// End of the last window: the last packet that left, or arrived.
    fn last_ns(&self, flows: &[Now], spans: &BTreeMap<Clock, Span>, window: Window) -> u64 {
        let left = flows.iter().map(|now| now.reading.sent_last_ns).max().unwrap_or(0);
        let times = spans.iter().filter(|(_, span)| span.volume != Volume::default());
        let ends = times.filter_map(|(clock, span)| {
            let all_ns = span.at_ns?.saturating_sub(span.first_ns?);
            let new_ns = self.time_ns(*clock, span)?;
            Some(all_ns.max(self.since_ns.saturating_add(new_ns)))
        });
        let arrived_ns = ends.max().unwrap_or(0);
        left.saturating_sub(window.began_ns).max(arrived_ns).max(window.since_ns)
    }
}

impl Source for SentFlows {
    const SERVES: bool = false;

    fn look(&self) -> Look {
        let first = self.flows.iter().map(|(flow, _)| flow.live.sent_first_ns());
        Look { began_ns: first.filter(|ns| *ns > 0).min(), ..Look::default() }
    }

    async fn take(&mut self, window: Window) -> Option<Row> {
        let (now_ns, flows) = self.now(window.last).await;
        self.row(&flows, window, now_ns)
    }
}

impl Span {
    fn add(&mut self, came: Volume, arrivals: &ArrivalReading) {
        add(&mut self.volume, came);
        self.at_ns = self.at_ns.max(arrivals.at_ns);
        self.first_ns = [self.first_ns, arrivals.first_ns].into_iter().flatten().min();
    }
}

impl Default for LossSum {
    fn default() -> Self {
        Self { lost: Some(0), away: 0, absent: 0, open: false, lossy: false }
    }
}

impl LossSum {
    fn add(
        &mut self,
        flow: &SentFlow,
        reading: &FlowReading,
        (arrivals, whole): (&ArrivalReading, bool),
        told: &Told,
    ) {
        let lost = lost(flow, reading, (arrivals, whole));
        // A packet that comes late was counted as lost in a line before, or will be there in the next.
        let steady = arrivals.reordered.is_some() && arrivals.reordered == told.reordered;
        let absent = reading.sent_packets.saturating_sub(arrivals.unique);
        let settled = flow.resends || steady || ((whole || absent == 0) && told.lost == Some(0));
        let new = lost.zip(told.lost).and_then(|(now, before)| now.checked_sub(before));
        self.lost =
            self.lost.zip(new.filter(|_| settled)).map(|(sum, new)| sum.saturating_add(new));
        if !whole {
            self.open = true;
            self.absent = self.absent.saturating_add(absent);
            self.away = self.away.saturating_add(absent.saturating_sub(lost.unwrap_or(0)));
        }
        self.lossy |= !flow.resends || (whole && absent > 0);
    }

    fn told(self) -> Loss {
        match self.lost {
            Some(lost) => Loss::Known {
                lost: self.lossy.then_some(lost),
                away: self.open.then_some(self.away),
            },
            None => Loss::Unknown { absent: self.open.then_some(self.absent) },
        }
    }
}

/// Packets of a flow that were lost up to now; `None` where that cannot be told from packets that were not sent.
const fn lost(
    flow: &SentFlow,
    reading: &FlowReading,
    (arrivals, whole): (&ArrivalReading, bool),
) -> Option<u64> {
    let absent = reading.sent_packets.saturating_sub(arrivals.unique);
    match (whole || absent == 0, flow.resends, reading.unsent) {
        (true, _, _) => Some(absent),
        (false, true, _) => Some(0),
        (false, false, 0) => Some(arrivals.missing),
        (false, false, _) => None,
    }
}

const fn add(sum: &mut Volume, more: Volume) {
    sum.packets = sum.packets.saturating_add(more.packets);
    sum.bytes = sum.bytes.saturating_add(more.bytes);
}

const fn sent_of(reading: &FlowReading) -> Volume {
    Volume { packets: reading.sent_packets, bytes: reading.sent_bytes }
}

const fn volume(arrivals: &ArrivalReading) -> Volume {
    Volume { packets: arrivals.packets, bytes: arrivals.bytes }
}

#[cfg(test)]
mod tests {
    use itg_engine::ToldArrivals;
    use itg_node::arrival_asks;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn flows(count: usize, resends: bool) -> SentFlows {
        let flow = || SentFlow { live: Arc::default(), round_trip: false, resends };
        SentFlows::new((0..count).map(|_| flow()).collect(), arrival_asks().0)
    }

    /// A flow that has sent so many packets of 100 bytes.
    fn sent(packets: u64) -> FlowReading {
        FlowReading { sent_packets: packets, sent_bytes: 100 * packets, ..FlowReading::default() }
    }

    /// Arrivals that its receiver tells of a second after another one, from its second 100 on.
    fn told(unique: u64, missing: u64, reordered: u64, seconds: u64) -> ArrivalReading {
        ArrivalReading {
            packets: unique,
            bytes: 100 * unique,
            unique,
            missing,
            reordered: Some(reordered),
            first_ns: Some(100 * SECOND),
            at_ns: Some((100 + seconds) * SECOND),
        }
    }

    /// The lines of windows of a second each, the last one at the end.
    fn lines(mut flows: SentFlows, windows: Vec<Vec<Now>>) -> Vec<String> {
        let count = windows.len();
        let mut since_ns = 0;
        let rows = windows.into_iter().zip(1..).map(|(now, k)| {
            let window =
                Window { began_ns: SECOND, since_ns, last: usize::try_from(k) == Ok(count) };
            let row = flows.row(&now, window, SECOND + k * SECOND).expect("a line");
            since_ns = row.until_ns;
            row.line(None).split_once(" flow").expect("a line").1.to_owned()
        });
        rows.collect()
    }

    fn now(reading: FlowReading, arrivals: ArrivalReading, whole: bool) -> Vec<Now> {
        let told = ToldArrivals { arrivals, receiver: 0, whole };
        let reading = FlowReading { told: Some(told), ended: whole, ..reading };
        vec![Now { reading, arrivals: Some((arrivals, Some(0), whole)) }]
    }

    #[test]
    fn what_was_not_told_in_time_is_in_the_next_line() {
        let unknown = vec![Now { reading: sent(2_000), arrivals: None }];
        let got = lines(
            flows(1, false),
            vec![
                now(sent(1_000), told(990, 8, 0, 1), false),
                unknown,
                now(sent(3_000), told(2_980, 15, 0, 3), false),
                now(sent(3_500), told(3_480, 0, 0, 4), true),
            ],
        );
        let want = [
            ", 1000 packets (100000 bytes) sent, 990 packets (99000 bytes) received, 792.00 kbit/s, 8 lost, \
             2 on their way",
            ", 1000 packets (100000 bytes) handed to the kernel, 800.00 kbit/s, arrivals unknown",
            ", 1000 packets (100000 bytes) sent, since 1.000 s 1990 packets (199000 bytes) received, 796.00 kbit/s, \
             7 lost, 5 on their way",
            ", 500 packets (50000 bytes) sent, 500 packets (50000 bytes) received, 400.00 kbit/s, 5 lost",
        ];
        assert_eq!(got, want);
    }

    #[test]
    fn the_loss_is_right_or_unknown() {
        let one = |window: Vec<Vec<Now>>| lines(flows(1, false), window).pop().expect("a line");
        let unsent = |reading: FlowReading| FlowReading { unsent: 5, ..reading };
        for (windows, want) in [
            // Packets overtake one another in the last window, not in it, and before it.
            (
                vec![(10, 5, 1, 0, false), (20, 9, 1, 1, false)],
                ", loss unknown (11 of all have not arrived yet)",
            ),
            (vec![(10, 5, 1, 1, false), (20, 9, 3, 1, false)], ", 2 lost, 8 on their way"),
            (vec![(10, 5, 1, 0, false), (20, 18, 0, 1, true)], ", loss unknown"),
            (vec![(10, 5, 0, 0, false), (20, 18, 0, 1, true)], ", 2 lost"),
            (vec![(10, 5, 1, 0, false), (20, 18, 0, 0, true)], ", 1 lost"),
        ] {
            let rows = (1..).zip(&windows).map(|(k, &(all, unique, missing, reordered, whole))| {
                now(sent(all), told(unique, missing, reordered, k), whole)
            });
            let line = one(rows.collect());
            assert!(line.ends_with(want), "{windows:?}: {line}");
        }
        let left_out = one(vec![now(unsent(sent(20)), told(12, 6, 0, 1), false)]);
        assert!(left_out.ends_with(", loss unknown (8 of all have not arrived yet)"), "{left_out}");
        let all_there = one(vec![now(unsent(sent(20)), told(20, 5, 2, 1), false)]);
        assert!(all_there.ends_with(", 0 lost, 0 on their way"), "{all_there}");
        // One line has all of the flow.
        let whole = one(vec![now(unsent(sent(20)), told(12, 0, 0, 1), true)]);
        assert!(whole.ends_with(", 8 lost"), "{whole}");
        let tcp = lines(flows(1, true), vec![now(sent(20), told(12, 0, 0, 1), false)]);
        assert!(tcp[0].ends_with("kbit/s, 8 on their way"), "{tcp:?}");
    }

    #[test]
    fn rates_of_two_receivers_are_each_by_its_own_clock() {
        let told_by = |receiver, arrivals| Now {
            reading: sent(1_000),
            arrivals: Some((arrivals, Some(receiver), false)),
        };
        // The second one answers half a second late.
        let late =
            ArrivalReading { at_ns: Some(101 * SECOND + SECOND / 2), ..told(1_500, 0, 0, 1) };
        let got =
            lines(flows(2, false), vec![vec![told_by(0, told(1_000, 0, 0, 1)), told_by(1, late)]]);
        assert!(got[0].contains("s, 2000 packets"), "{got:?}");
        assert!(got[0].contains(" 2500 packets (250000 bytes) received, 1.60 Mbit/s, "), "{got:?}");
    }
}
