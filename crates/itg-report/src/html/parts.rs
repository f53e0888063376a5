//! Verdicts, figures, notices, and how to read them.

use itg_stats::Report;
use itg_stats::fidelity::{PASS_LIMIT, RATE_LIMIT, STALL_GAPS, Verdict, WARN_LIMIT};
use itg_stats::gate::{Kind, Outcome};
use itg_stats::metric::{Figure, Line, METRICS, Metric, Part};
use itg_stats::plot::Plots;
use itg_stats::report::{BasisKind, DelayBasis, FlowReport, Metrics, damage_lines};
use maud::{Markup, html};

use crate::svg::axis::{Quantity, count};

/// With at most this many flows each one is open.
pub(super) const FLOWS_OPEN: usize = 2;
/// Most sentences of a list.
const SENTENCES: usize = 40;

/// Parts of the page beside the report.
#[derive(Clone, Copy, Debug)]
pub struct Around<'a> {
    /// Data of the plots, from the logs.
    pub plots: &'a Plots,
    /// Outcomes of the gates.
    pub gates: &'a [Outcome],
    /// True if a gate whose figure is not known passes.
    pub allow_unknown: bool,
    /// The command line that made the page.
    pub command: &'a str,
}

/// The word, with a sign for readers that cannot tell the colours.
pub(super) fn badge(verdict: Verdict) -> Markup {
    html! { span class={ "badge " (verdict.name()) } { (sign(verdict)) " " (verdict.name()) } }
}

pub(super) fn sign(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "✓",
        Verdict::Warn => "▲",
        Verdict::Fail => "✗",
        Verdict::NetworkLimited => "⇥",
        Verdict::Unresolved => "≈",
        Verdict::Unknown => "?",
    }
}

/// Time in nanoseconds for people, or a dash.
pub(super) fn time(ns: Option<f64>) -> String {
    ns.map_or_else(|| "–".to_owned(), |ns| Quantity::Time.text(ns))
}

pub(super) fn rate(bps: Option<f64>) -> String {
    bps.map_or_else(|| "–".to_owned(), |bps| Quantity::Rate.text(bps))
}

/// A share in percent, or a dash.
pub(super) fn share(share: Option<f64>) -> String {
    share.map_or_else(|| "–".to_owned(), |share| Quantity::Share.text(share))
}

/// A count, or a dash.
pub(super) fn whole(value: Option<u64>) -> String {
    value.map_or_else(|| "–".to_owned(), count)
}

/// Unix time in nanoseconds as a date, to the second, in UTC.
pub(super) fn date(unix_ns: u64) -> String {
    let [year, month, day, hour, minute, second] = civil(unix_ns);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Unix time in nanoseconds as year, month, day, hour, minute and second, in UTC.
pub(crate) fn civil(unix_ns: u64) -> [u64; 6] {
    let (days, seconds) = (unix_ns / 86_400_000_000_000, unix_ns / 1_000_000_000 % 86_400);
    // Days to civil date: Hinnant, chrono-compatible low-level date algorithms.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    [year, month, day, seconds / 3_600, seconds / 60 % 60, seconds % 60]
}

/// The first of these sentences as items of a list, and how many more there are.
fn first<T>(sentences: &[T], words: impl Fn(&T) -> String) -> Markup {
    html! {
        @for sentence in sentences.iter().take(SENTENCES) { li { (words(sentence)) } }
        @if sentences.len() > SENTENCES {
            li { "and " (sentences.len() - SENTENCES) " more: see --format json" }
        }
    }
}

/// Damage of the logs, in a place that is not overlooked.
pub(super) fn damage(report: &Report) -> Markup {
    html! {
        @if !report.damage.is_empty() {
            div.notes.fail role="note" {
                b { "Parts of the logs are damaged. What is good is in the figures; of the packets in the damaged parts only those are known that were counted." }
                ul { (first(&damage_lines(&report.damage), String::clone)) }
            }
        }
    }
}

/// Accounts that contradict each other, likewise.
pub(super) fn errors(report: &Report) -> Markup {
    html! {
        @if !report.errors.is_empty() {
            div.notes.fail role="note" {
                b { "The accounts of senders and receivers contradict each other." }
                ul { (first(&report.errors, |error| named(report, error))) }
            }
        }
    }
}

pub(super) fn notices(report: &Report) -> Markup {
    let of_flows: Vec<(String, &str, &String)> = report
        .flows
        .iter()
        .flat_map(|flow| flow.notices.iter().map(|notice| (flow.title(), flow.side, notice)))
        .collect();
    html! {
        @if !report.notices.is_empty() || !of_flows.is_empty() {
            section aria-label="Notices" {
                h2 { "Notices" }
                div.notes.plain {
                    ul {
                        (first(&report.notices, Clone::clone))
                        @for (flow, side, notice) in of_flows.iter().take(SENTENCES) {
                            li { (flow.replacen("flow", "Flow", 1)) ", " (side) ": " (notice) }
                        }
                        @if of_flows.len() > SENTENCES { li { "and " (of_flows.len() - SENTENCES) " more at the flows" } }
                    }
                }
            }
        }
    }
}

/// The key figures of all flows.
pub(super) fn figures(report: &Report) -> Markup {
    let m = &report.total.metrics;
    let delay = m.delay_ns;
    let late = m.lateness_ns;
    let kind = if report.flows.iter().any(|flow| flow.meter == Some("rtt") && flow.side == "sender")
    {
        "Round trip"
    } else {
        "Delay"
    };
    // Of different flows together they say little, which the words tell.
    let all = if report.total.flows > 1 { " of all flows" } else { "" };
    let median = format!("{kind}, median{all}");
    let p99 = format!("{kind}, p99{all}");
    let figures: [(&str, String, String); 8] = [
        ("Throughput", rate(m.bitrate_bps), format!("over {}", time(Some(m.duration_ns as f64)))),
        ("Packets", count(m.packets), format!("of {} sent", whole(m.sent_packets))),
        (
            "Loss",
            share(m.loss_share()),
            match m.lost {
                Some(lost) => format!("{} packets", count(lost)),
                None => "not known".to_owned(),
            },
        ),
        (&median, time(delay.map(|d| d.p50 as f64)), basis(m.delay_basis)),
        (
            &p99,
            time(delay.map(|d| d.p99 as f64)),
            format!("largest {}", time(delay.map(|d| d.max as f64))),
        ),
        (
            "Jitter, mean",
            time(m.jitter_ns.map(|j| j.mean)),
            format!("p99 {}", time(m.jitter_ns.map(|j| j.p99 as f64))),
        ),
        (
            "Lateness, p99",
            time(late.map(|l| l.p99 as f64)),
            format!("largest {}", time(late.map(|l| l.max as f64))),
        ),
        ("Reordered", whole(m.reordered), format!("{} duplicated", whole(m.duplicated))),
    ];
    html! {
        section aria-label="Key figures" {
            div.figures {
                @for (name, value, more) in &figures {
                    div.figure { span { (name) } b { (value) } span { (more) } }
                }
            }
        }
    }
}

/// Basis of a delay: absolute with its uncertainty, or relative.
pub(super) fn basis(basis: Option<DelayBasis>) -> String {
    match basis {
        None => "not known".to_owned(),
        Some(DelayBasis { kind: BasisKind::Absolute, uncertainty_ns }) => match uncertainty_ns {
            Some(ns) => format!("absolute ± {}", Quantity::Time.text(ns as f64)),
            None => "absolute".to_owned(),
        },
        Some(DelayBasis { kind: BasisKind::Relative, .. }) => "relative: two clocks".to_owned(),
    }
}

/// A figure for people, with its unit; `None` where it is not known.
fn told(metric: &Metric, m: &Metrics) -> Option<String> {
    let figure = metric.of(m)?;
    Some(match (metric.kind, figure.number()) {
        (Kind::Time, Some(ns)) => time(Some(ns)),
        (Kind::Share, value) => share(value),
        (Kind::BitRate, bps @ Some(_)) => rate(bps),
        (Kind::PacketRate, Some(pps)) => format!("{} packets/s", crate::svg::axis::digits(pps)),
        (Kind::Number, Some(number)) => crate::svg::axis::digits(number),
        (Kind::Count | Kind::Size, Some(_)) => match figure {
            Figure::Count(number) => count(number),
            other => other.to_string(),
        },
        _ => figure.to_string(),
    })
}

/// All figures of one flow, as rows.
pub(super) fn table(m: &Metrics) -> Markup {
    let shown = |line: &Line| line.part == Part::Classic || (line.when)(m);
    let lines = METRICS.iter().filter_map(|metric| Some((metric, metric.line.filter(shown)?)));
    let mut rows: Vec<(&str, String)> =
        lines.filter_map(|(metric, line)| Some((line.label, told(metric, m)?))).collect();
    rows.push(("Delay is", basis(m.delay_basis)));
    html! {
        div.scroll {
            table {
                tbody {
                    @for (name, value) in &rows {
                        tr { th.t scope="row" { (name) } td { (value) } }
                    }
                }
            }
        }
    }
}

/// The box that explains the rest.
pub(super) fn how_to_read() -> Markup {
    html! {
        section aria-label="How to read this" {
            h2 { "How to read this" }
            details open {
                summary { "What the words and plots mean" }
                dl.how {
                    dt { "Traffic as asked" }
                    dd {
                        "Was the traffic sent the traffic asked for? Judged by the distance between asked and actual gaps and sizes, \
                         in units of the mean gap: up to " (PASS_LIMIT) " pass, up to " (WARN_LIMIT) " warn, above fail; a mean rate off by more than "
                        (100.0 * RATE_LIMIT) " % fails, and so does a stall of " (STALL_GAPS) " mean gaps. " i { "Network-limited" } ": packets were ready and had to wait for \
                         the path. " i { "Unresolved" } ": the times in the log are too coarse for gaps so short."
                    }
                    dt { "Network" }
                    dd { "What the path did to the traffic: the gates on loss, delay and rates. Without gates it is not judged." }
                    dt { "Throughput" }
                    dd { "Bits of the counted packets, ITG's header included and those of the protocols below excluded, by the time from the first to the last." }
                    dt { "Loss" }
                    dd { "Packets sent that never arrived. Packets that the sender left out are not lost but counted apart." }
                    dt { "Delay" }
                    dd {
                        "Arrived minus sent; for round-trip flows the time until the reply came back. "
                        i { "Absolute" } " delays can be read as they are, within the uncertainty given. "
                        i { "Relative" } " ones come from two clocks that disagree: only their differences mean something."
                    }
                    dt { "Percentile" }
                    dd { "p99 = 12 ms: of 100 packets, 99 took 12 ms or less." }
                    dt { "Jitter" }
                    dd { "The change of delay from one arrival to the next, without its sign." }
                    dt { "Lateness" }
                    dd { "How long after its planned time a packet left the sender. It is the generator's own error; large values make delay and gaps doubtful." }
                    dt { "Where time and packets went" }
                    dd { "Each packet has up to four times: planned, handed to the kernel, arrived at the receiver's kernel, read by the receiver. Sender, network and receive stack are the three ways between them; a slow host shows in the first and the last, never in the network." }
                    dt { "Clocks" }
                    dd { "Two-way probes tell how far the receiver's clock is ahead, never better than to half of the shortest round trip." }
                    dt { "Tails" }
                    dd { "On logarithmic scales: where the line crosses 10⁻³, one packet in a thousand was above the value below it." }
                    dt { "Delay map" }
                    dd { "Each column is a span of time, each row a range of delay; darker means more packets. Queues show as hills, pauses of a host as gaps with a spike behind." }
                    dt { "Loss raster" }
                    dd { "Packets in the order of their numbers, line by line from the bottom up. Single losses show as dots, bursts as bars, a periodic cause as a pattern." }
                    dt { "Asked and actual" }
                    dd { "Each dot is a quantile of the plan against the same quantile of what was sent. On the dashed line both are equal; dots beside it show where the generator was off. Where one value was asked for, bars show how far the actual ones are from it." }
                    dt { "Values and tables" }
                    dd { "A pointer or finger on a plot shows its values. " i { "Copy as CSV" } " puts the numbers of a plot or a table on the clipboard: times in nanoseconds, rates in bit/s, shares from 0 to 1." }
                }
            }
        }
    }
}

/// A sentence about a flow, with the name of the flow behind its number, where flows of one name alone have it: the
/// sentence does not tell the run.
pub(super) fn named(report: &Report, sentence: &str) -> String {
    let parts = sentence.strip_prefix("flow ").and_then(|rest| rest.split_once(':'));
    let flow = parts.and_then(|(number, rest)| {
        let number = number.parse::<u32>().ok()?;
        let mut of_number = report.flows.iter().filter(|flow| flow.flow == number);
        let first = of_number.next()?;
        of_number.all(|flow| flow.run == first.run).then_some((first, rest))
    });
    flow.map_or_else(|| sentence.to_owned(), |(flow, rest)| format!("{}:{rest}", flow.title()))
}

/// The sides that the total counts: of two entries of a flow the first.
pub(super) fn counted(report: &Report) -> Vec<(usize, &FlowReport)> {
    let mut before: Option<(u32, &str)> = None;
    let mut list = Vec::new();
    for (place, flow) in report.flows.iter().enumerate() {
        let key = (flow.flow, flow.run.as_str());
        if before != Some(key) {
            list.push((place, flow));
        }
        before = Some(key);
    }
    list
}

#[cfg(test)]
mod tests {
    use itg_stats::report::LogDamage;
    use itg_stats::{Analysis, Options};
    use itg_testkit::logs::{TestLog, end, spec};

    use super::*;

    /// A receiver's log of flows in runs, of which nothing arrived.
    fn report_of(flows: &[(u32, &str)]) -> Report {
        let mut log = TestLog::new(itg_record::Side::Receiver, "boot-a");
        for (index, (number, run)) in (0..).zip(flows) {
            let spec = spec(*number, "constant(10ms)", "constant(100)", 7);
            log.flow_of(index, &spec, ["boot-a", "boot-a"], run, "10.0.0.1:4000");
            log.end_flow(end(index));
        }
        let bytes = log.finish();
        let mut analysis = Analysis::new(Options::default());
        analysis.add_log(&bytes, "recv.itg").expect("a log");
        analysis.finish()
    }

    #[test]
    fn a_number_that_two_runs_have_is_not_given_the_name_of_one() {
        let mut report = report_of(&[(1, "aa"), (2, "aa"), (1, "bb")]);
        for (flow, name) in report.flows.iter_mut().zip(["call", "video", "copy"]) {
            flow.name = name.to_owned();
        }
        let two = report.flows.iter().find(|flow| flow.flow == 2).expect("flow 2").name.clone();
        assert_eq!(named(&report, "flow 1: late"), "flow 1: late");
        assert_eq!(named(&report, "flow 2: late"), format!("flow 2 ({two}): late"));
        assert_eq!(named(&report, "flow 9: late"), "flow 9: late");
    }

    #[test]
    fn a_page_is_bounded_however_many_flows_and_faults_there_are() {
        let mut report = report_of(&[(1, "aa")]);
        let size = |report: &Report| {
            let parts = [
                damage(report),
                errors(report),
                notices(report),
                super::super::flows::overview(report),
            ];
            parts.map(|part| part.into_string().len()).iter().sum::<usize>()
        };
        let mut sizes = Vec::new();
        for many in [1_500, 30_000] {
            let flow = report.flows[0].clone();
            report.flows = (0..many).map(|n| FlowReport { flow: n, ..flow.clone() }).collect();
            report.notices = (0..many).map(|n| format!("notice {n}")).collect();
            report.errors = report.notices.clone();
            let damage = LogDamage {
                log: "recv.itg".to_owned(),
                offset: 0,
                len: 7,
                reason: "a bit has changed".to_owned(),
            };
            report.damage = vec![damage; report.notices.len()];
            sizes.push(size(&report));
        }
        assert!(sizes[1] < sizes[0] + 200, "{sizes:?}");
        let page = super::super::flows::overview(&report).into_string();
        assert!(page.contains("29000 more: --format csv has all"), "what is left out is said");
    }

    #[test]
    fn dates_are_civil() {
        for (seconds, want) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_800_000_000, "2027-01-15 08:00:00 UTC"),
            (4_107_542_399, "2100-02-28 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(date(seconds * 1_000_000_000), want, "{seconds}");
        }
    }
}
