//! The report with all details, laid out as ITGDec's: a block for each flow, then the total. Of a one-way flow
//! whose two sides are known, the receiver's block says all.
//!
//! Labels that ITGDec prints are kept to the letter and come first; what it does not know follows.
//! A value that is not known is a dash. 1 Kbit = 1000 bit.

use std::fmt::Write;

use itg_core::text::visible;
use itg_core::units::format_duration_ns;

use crate::kind::Kind;
use crate::marks::MarksReport;
use crate::metric::{Figure, METRICS, Part};
use crate::report::{
    BasisKind, ClockReport, DelayBasis, FlowReport, GroupReport, Intervals, Metrics, Report,
    damage_lines,
};
use crate::series::IntervalRow;
use crate::stats::LossBasis;

const RULE: &str = "----------------------------------------------------------";
const LINE: &str = "__________________________________________________________";

/// The whole report as text, with a newline at its end.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Page(String::new());
    // The receiver's entry of a one-way flow says all that the sender's does.
    let of_receivers = report.of_side("receiver");
    for flow in &report.flows {
        let one_way = flow.side == "sender" && flow.meter != Some("rtt");
        if !(one_way && of_receivers.contains(&flow.key())) {
            page.flow(flow);
        }
    }
    if let Some(intervals) = &report.intervals {
        page.intervals(intervals);
    }
    for group in report.groups.iter().flatten() {
        page.group(group);
    }
    page.total(report);
    page.0
}

/// The text so far. Writing to a `String` cannot fail.
struct Page(String);

impl Page {
    /// A line of text; texts out of logs in it do nothing to a terminal.
    fn line(&mut self, text: &str) {
        self.0.push_str(&visible(text));
        self.0.push('\n');
    }

    /// `Label = value unit` in ITGDec's columns.
    fn value(&mut self, label: &str, value: &str, unit: &str) {
        let line = format!("{label:<25}= {value:>13} {unit}");
        self.line(line.trim_end());
    }

    fn count(&mut self, label: &str, count: Option<u64>, unit: &str) {
        let value = count.map_or_else(|| "-".to_owned(), |count| count.to_string());
        self.value(label, &value, unit);
    }

    fn seconds(&mut self, label: &str, ns: Option<f64>) {
        let value = ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.9}", ns / 1e9));
        self.value(label, &value, "s");
    }

    fn flow(&mut self, flow: &FlowReport) {
        self.line(RULE);
        self.line(&format!("Flow number: {}", flow.flow));
        let known =
            |text: &str| if text.is_empty() { "unknown".to_owned() } else { text.to_owned() };
        self.line(&format!("From {}", known(&flow.src)));
        self.line(&format!("To    {}", known(&flow.dst)));
        if !flow.run.is_empty() {
            self.line(&format!("Run   {}", flow.run));
        }
        let proto = flow.proto.map_or_else(|| "unknown protocol".to_owned(), str::to_uppercase);
        let counted = match (flow.side, flow.meter) {
            ("sender", Some("rtt")) => "replies at the sender, round-trip delay",
            ("sender", _) => "packets sent",
            (_, None) => "packets arrived, delay one-way or of round trips",
            _ => "packets arrived at the receiver, one-way delay",
        };
        let profile =
            flow.profile.as_ref().map_or_else(String::new, |name| format!(", profile {name}"));
        self.line(&format!("Counted: {counted} ({proto}{profile})"));
        self.line(RULE);
        let sent = flow.side == "sender" && flow.meter != Some("rtt");
        self.metrics(&flow.metrics, if sent { "Bytes sent" } else { "Bytes received" });
        if let Some(clock) = flow.clock.as_ref().filter(|clock| !clock.shared) {
            self.clock(clock);
        }
        if let Some(marks) = flow.marks.as_ref().filter(|marks| marks.are_special()) {
            self.marks(marks, flow.side == "sender");
        }
        if let Some(reason) = flow.end.as_ref().filter(|reason| !reason.is_empty()) {
            self.line(&format!("Ended: {reason}"));
        }
        self.notes(&flow.notices);
        self.line(RULE);
    }

    fn metrics(&mut self, m: &Metrics, bytes: &str) {
        let delay = m.delay_ns;
        let jitter = m.jitter_ns;
        self.value("Total time", &format!("{:.6}", m.duration_ns as f64 / 1e9), "s");
        self.count("Total packets", Some(m.packets), "pkt");
        self.seconds("Minimum delay", delay.map(|d| d.min as f64));
        self.seconds("Maximum delay", delay.map(|d| d.max as f64));
        self.seconds("Average delay", delay.map(|d| d.mean));
        self.seconds("Average jitter", jitter.map(|j| j.mean));
        self.seconds("Delay standard deviation", delay.map(|d| d.stddev));
        self.count(bytes, Some(m.bytes), "B");
        // ITGDec's formulas, of n packets instead of n - 1.
        let rate =
            |count: f64| if m.duration_ns == 0 { 0.0 } else { count * 1e9 / m.duration_ns as f64 };
        let kilobits = rate(8.0 * m.bytes as f64) / 1e3;
        self.value("Average bitrate", &format!("{kilobits:.6}"), "Kbit/s");
        self.value("Average packet rate", &format!("{:.6}", rate(m.packets as f64)), "pkt/s");
        let dropped = m.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string());
        let share = m.loss_share().map_or_else(String::new, |s| format!(" ({:.2} %)", 100.0 * s));
        self.value("Packets dropped", &dropped, &format!("pkt{share}"));
        let burst = m.loss_burst_mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.6}"));
        self.value("Average loss-burst size", &burst, "pkt");
        if let Some(basis) = m.lost_basis {
            self.value("Loss found by", loss_basis(basis), "");
        }
        self.part(m, Part::Packets);
        self.part(m, Part::Delays);
        if m.delay_ns.is_some() {
            self.value("Delay basis", &basis(m.delay_basis), "");
            let unstamped = m.unstamped_packets.is_some_and(|count| count == m.packets);
            let end = if unstamped { "its reading" } else { "its arrival at the kernel there" };
            self.line(&format!("Delays are from the hand-over of a packet to the kernel to {end}"));
        }
        self.part(m, Part::Hosts);
        let f = &m.fidelity;
        let mode =
            f.burst.map_or_else(String::new, |n| format!("(burst mode, {n} packets at a time)"));
        self.value("Fidelity", f.verdict.name(), &mode);
        self.part(m, Part::Fidelity);
        for reason in &f.reasons {
            self.line(&format!("Fidelity: {reason}"));
        }
    }

    /// Lines of the metrics that belong here.
    fn part(&mut self, m: &Metrics, part: Part) {
        for metric in METRICS {
            let Some(line) = metric.line.filter(|line| line.part == part && (line.when)(m)) else {
                continue;
            };
            let unit = match metric.kind {
                Kind::Time => "s",
                Kind::BitRate => "Kbit/s",
                Kind::Share => "%",
                _ if metric.unit == "packets" => "pkt",
                _ => metric.unit,
            };
            let figure = metric.of(m);
            let value = match (metric.kind, figure.as_ref().and_then(Figure::number)) {
                (Kind::Time, Some(ns)) => format!("{:.9}", ns / 1e9),
                (Kind::BitRate, Some(bps)) => format!("{:.6}", bps / 1e3),
                // What rounds to nothing has no sign.
                (Kind::Share, Some(share)) if share.abs() < 5e-7 => "+0.0000".to_owned(),
                (Kind::Share, Some(share)) => format!("{:+.4}", 100.0 * share),
                (Kind::Number, Some(number)) => format!("{number:.6}"),
                _ => figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string()),
            };
            self.value(line.label, &value, unit);
        }
    }

    fn clock(&mut self, clock: &ClockReport) {
        let bound = format!("s +/- {}", format_duration_ns(clock.bound_ns));
        self.value("Clock offset", &format!("{:.9}", clock.offset_ns as f64 / 1e9), &bound);
        let bound = format!("ppm +/- {:.3}", clock.skew_bound_ppm);
        self.value("Clock skew", &format!("{:.3}", clock.skew_ppm), &bound);
        self.count("Clock probes", Some(clock.probes), "");
        if !clock.steps.is_empty() {
            self.count("Clock steps", Some(clock.steps.len() as u64), "");
        }
    }

    /// Marks as received beside as sent.
    fn marks(&mut self, marks: &MarksReport, of_replies: bool) {
        let sent =
            |value: Option<u8>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        for (label, counts, value) in [
            ("DSCP received", &marks.dscp, marks.sent_dscp),
            ("ECN received", &marks.ecn, marks.sent_ecn),
            ("Hop limit received", &marks.hop_limit, marks.sent_hop_limit),
        ] {
            self.value(label, &MarksReport::words(counts), &format!("(sent {})", sent(value)));
        }
        if marks.ce_packets > 0 {
            self.count("Congestion marks", Some(marks.ce_packets), "pkt");
            let longest = format!("runs (longest {})", marks.ce_longest_run);
            self.count("Congestion marks in", Some(marks.ce_runs), &longest);
        }
        if of_replies {
            self.line(
                "Marks are those of the replies: they carry the DSCP that packets arrived with (TCP: that the flow asks \
                 for) and the hop limit that the flow asks for",
            );
        }
    }

    fn notes(&mut self, notes: &[String]) {
        for note in notes {
            self.line(&format!("Note: {note}"));
        }
    }

    fn intervals(&mut self, intervals: &Intervals) {
        for flow in &intervals.flows {
            let of = format!("Flow number: {}, {}", flow.flow, flow.side);
            self.windows(&intervals.heading(&of, flow.lost_why), &flow.windows);
        }
        self.windows(&intervals.heading("All flows", intervals.lost_why), &intervals.total);
    }

    fn windows(&mut self, title: &str, rows: &[IntervalRow]) {
        self.line(RULE);
        self.line(title);
        self.line(
            "     start [s]     packets [pkt]     bytes [B]  bitrate [Kbit/s]      delay [s]     \
             jitter [s]  lost [pkt]",
        );
        let seconds =
            |ns: Option<f64>| ns.map_or_else(|| "-".to_owned(), |ns| format!("{:.9}", ns / 1e9));
        for row in rows {
            let lost = row.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string());
            let partial = if row.partial { "  (not full)" } else { "" };
            // Writing to a String cannot fail.
            let _written: Result<(), std::fmt::Error> = writeln!(
                self.0,
                "{:>14.6} {:>17} {:>13} {:>17.6} {:>14} {:>14} {lost:>11}{partial}",
                row.start_ns as f64 / 1e9,
                row.packets,
                row.bytes,
                row.bitrate_bps / 1e3,
                seconds(row.delay_mean_ns),
                seconds(row.jitter_mean_ns),
            );
        }
        self.line(RULE);
    }

    fn group(&mut self, group: &GroupReport) {
        self.line(RULE);
        let named = |(key, value): (&String, &String)| match value.as_str() {
            "" => format!("{key} unknown"),
            value => format!("{key} {value}"),
        };
        let by: Vec<_> = group.by.iter().map(named).collect();
        self.line(&format!("Group: {}", by.join(", ")));
        self.line(RULE);
        self.count("Number of flows", Some(group.flows), "");
        self.metrics(&group.metrics, bytes_of(&group.metrics));
        self.notes(&group.notices);
        self.line(RULE);
    }

    fn total(&mut self, report: &Report) {
        self.line("");
        self.line(LINE);
        self.line("****************  TOTAL RESULTS   ******************");
        self.line(LINE);
        let total = &report.total;
        self.count("Number of flows", Some(total.flows), "");
        let one_sided = |side| report.flows.iter().all(|flow| flow.side == side);
        let owd = report.flows.iter().all(|flow| flow.meter != Some("rtt"));
        let sent = !report.flows.is_empty() && one_sided("sender") && owd;
        self.metrics(&total.metrics, if sent { "Bytes sent" } else { bytes_of(&total.metrics) });
        if let Some(unmatched) = total.unmatched {
            self.count("Unmatched flows", Some(unmatched.flows), "");
            self.count("Unmatched packets", Some(unmatched.packets), "pkt");
        }
        for error in &report.errors {
            self.line(&format!("Error: {error}"));
        }
        for promise in &report.promises {
            self.line(&format!("Promise: {promise}"));
        }
        self.notes(&report.notices);
        for damage in damage_lines(&report.damage) {
            self.line(&format!("Damage: {damage}"));
        }
        self.line(RULE);
    }
}

fn loss_basis(basis: LossBasis) -> &'static str {
    match basis {
        LossBasis::SenderLog => "sender's log",
        LossBasis::SenderCount => "sender's count",
        LossBasis::SequenceNumbers => "sequence numbers",
        LossBasis::ReceiverCount => "receiver's count",
    }
}

fn basis(basis: Option<DelayBasis>) -> String {
    match basis {
        None => "-".to_owned(),
        Some(DelayBasis { kind: BasisKind::Absolute, uncertainty_ns: Some(ns) }) => {
            format!("absolute, +/- {}", format_duration_ns(ns))
        }
        Some(DelayBasis { kind: BasisKind::Absolute, uncertainty_ns: None }) => {
            "absolute".to_owned()
        }
        Some(DelayBasis { kind: BasisKind::Relative, .. }) => {
            "relative (two clocks: only differences mean something)".to_owned()
        }
    }
}
/// Name of the bytes of several flows: those without their receiver's log count what was sent.
const fn bytes_of(metrics: &Metrics) -> &'static str {
    if metrics.reordered.is_some() { "Bytes received" } else { "Bytes sent or received" }
}
