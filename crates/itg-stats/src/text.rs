//! The report with all details, laid out as ITGDec's: a block for each flow, then the total. Of a one-way flow
//! whose two sides are known, the receiver's block says all.
//!
//! Labels that ITGDec prints are kept to the letter and come first; what it does not know follows.
//! A value that is not known is a dash. 1 Kbit = 1000 bit.

use std::fmt::Write;

use itg_core::text::visible;
use itg_core::units::format_duration_ns;

use crate::marks::MarksReport;
use crate::report::{
    BasisKind, ClockReport, DelayBasis, FlowReport, GroupReport, Intervals, Metrics, Report,
};
use crate::series::IntervalRow;
use crate::stats::LossBasis;

const RULE: &str = "----------------------------------------------------------";
const LINE: &str = "__________________________________________________________";

/// The whole report as text, with a newline at its end.
#[must_use]
pub fn render(report: &Report) -> String {
    let mut page = Page(String::new());
    for flow in report.flows.iter().filter(|flow| !told_by_receiver(report, flow)) {
        page.flow(flow);
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

/// Returns true if the receiver's entry of the same one-way flow says all that this one does.
fn told_by_receiver(report: &Report, flow: &FlowReport) -> bool {
    flow.side == "sender"
        && flow.meter != Some("rtt")
        && report.flows.iter().any(|other| {
            other.side == "receiver" && (other.flow, &other.run) == (flow.flow, &flow.run)
        })
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
        self.value("Average bitrate", &format!("{:.6}", m.bitrate_bps / 1e3), "Kbit/s");
        self.value("Average packet rate", &format!("{:.6}", m.packet_rate_pps), "pkt/s");
        self.losses(m);
        self.delays(m);
        self.hosts(m);
        self.fidelity(m);
    }

    /// Packets that are missing, came twice, or came late.
    fn losses(&mut self, m: &Metrics) {
        let dropped = m.lost.map_or_else(|| "-".to_owned(), |lost| lost.to_string());
        let share = m.loss_share().map_or_else(String::new, |s| format!(" ({:.2} %)", 100.0 * s));
        self.value("Packets dropped", &dropped, &format!("pkt{share}"));
        let burst = m.loss_burst_mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.6}"));
        self.value("Average loss-burst size", &burst, "pkt");
        self.count("Loss bursts", m.loss_bursts, "");
        if let Some(basis) = m.lost_basis {
            self.value("Loss found by", loss_basis(basis), "");
        }
        self.count("Packets sent", m.sent_packets, "pkt");
        if m.excess_packets > 0 {
            self.count("Arrived beyond those sent", Some(m.excess_packets), "pkt");
        }
        if m.skipped_packets.is_some_and(|skipped| skipped > 0) {
            self.count("Packets left out", m.skipped_packets, "pkt");
        }
        self.count("Duplicate packets", m.duplicated, "pkt");
        self.count("Reordered packets", m.reordered, "pkt");
        if let Some(r) = m.reordering.filter(|_| m.reordered.is_some_and(|count| count > 0)) {
            let extent = format!("{:.3}", r.extent_mean);
            self.value("Reordering extent", &extent, &format!("pkt (largest {})", r.extent_max));
        }
        if let Some(model) = m.loss_model.filter(|_| m.lost.is_some_and(|lost| lost > 0)) {
            let share = |p: Option<f64>| p.map_or_else(|| "-".to_owned(), |p| format!("{p:.6}"));
            self.value("Loss behind an arrival", &share(model.p), "(Gilbert p)");
            self.value("Arrival behind a loss", &share(model.r), "(Gilbert r)");
            self.count("Longest loss burst", Some(model.burst_max), "pkt");
        }
        self.split(m);
        if m.duplicated.is_some_and(|count| count > 0) {
            let goodput =
                m.goodput_bps.map_or_else(|| "-".to_owned(), |b| format!("{:.6}", b / 1e3));
            self.value("Goodput", &goodput, "Kbit/s");
        }
    }

    /// Delays and jitter beyond their means.
    fn delays(&mut self, m: &Metrics) {
        if let Some(d) = m.delay_ns {
            for (label, value) in [
                ("Delay, median", d.p50),
                ("Delay, 90th percentile", d.p90),
                ("Delay, 99th percentile", d.p99),
                ("Delay, 99.9th percentile", d.p999),
            ] {
                self.seconds(label, Some(value as f64));
            }
            self.value("Delay basis", &basis(m.delay_basis), "");
        }
        if m.negative_delays > 0 {
            self.count("Negative delays", Some(m.negative_delays), "pkt");
        }
        if let Some(j) = m.jitter_ns {
            self.seconds("Jitter, RFC 3550", j.rfc3550);
            self.seconds("Jitter, 99th percentile", Some(j.p99 as f64));
        }
        if let Some(pdv) = m.pdv_ns {
            self.seconds("PDV, 99th percentile", pdv.percentiles.p99.map(|ns| ns as f64));
        }
    }

    /// Time in the network stacks of both hosts, and lateness.
    fn hosts(&mut self, m: &Metrics) {
        if let Some(way) = m.ledger.departure_ns {
            self.seconds("Send stack, median", Some(way.p50 as f64));
            self.seconds("Send stack, 99th perc.", Some(way.p99 as f64));
            self.count("Send stack, stamps", Some(way.count), "pkt");
        }
        if let Some(stack) = m.ledger.stack_ns {
            self.seconds("Receive stack, median", Some(stack.p50 as f64));
            self.seconds("Receive stack, 99th perc.", Some(stack.p99 as f64));
        }
        let late = m.lateness_ns;
        self.seconds("Lateness, median", late.map(|l| l.p50 as f64));
        self.seconds("Lateness, 99th perc.", late.map(|l| l.p99 as f64));
        self.seconds("Lateness, maximum", late.map(|l| l.max as f64));
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

    /// Lost packets by the place of their loss, when a host lost some, and those that only a log lacks.
    fn split(&mut self, m: &Metrics) {
        let split = m.ledger.loss;
        // Not known where flows came to one socket together, or in bursts.
        let unsplit = m.lost > Some(0) && split.network.is_none();
        if unsplit || split.socket.is_some_and(|count| count > 0) {
            self.count("Lost at the socket", split.socket, "pkt");
            self.count("Lost in the network", split.network, "pkt");
        }
        if split.log.is_some_and(|count| count > 0) {
            self.count("Arrived, not in the log", split.log, "pkt");
        }
    }

    fn fidelity(&mut self, m: &Metrics) {
        let f = &m.fidelity;
        let mode =
            f.burst.map_or_else(String::new, |n| format!("(burst mode, {n} packets at a time)"));
        self.value("Fidelity", f.verdict.name(), &mode);
        let distance = |ks: Option<f64>| ks.map_or_else(|| "-".to_owned(), |ks| format!("{ks:.6}"));
        self.value("Gaps, distance to plan", &distance(f.idt_ks), "(0 to 1)");
        self.value("Gaps, error on average", &distance(f.gap_error), "of their mean");
        self.value("Sizes, distance to plan", &distance(f.size_ks), "(0 to 1)");
        let percent = |error: f64| {
            // What rounds to nothing has no sign.
            let shown = if error.abs() < 5e-7 { 0.0 } else { 100.0 * error };
            format!("{shown:+.4}")
        };
        let error = f.rate_error.map_or_else(|| "-".to_owned(), percent);
        self.value("Mean rate against plan", &error, "%");
        for reason in &f.reasons {
            self.line(&format!("Fidelity: {reason}"));
        }
    }

    fn notes(&mut self, notes: &[String]) {
        for note in notes {
            self.line(&format!("Note: {note}"));
        }
    }

    fn intervals(&mut self, intervals: &Intervals) {
        let length = format_duration_ns(intervals.interval_ns);
        for flow in &intervals.flows {
            let title = format!("Flow number: {}, {}, windows of {length}", flow.flow, flow.side);
            self.windows(&title, &flow.windows);
        }
        self.windows(&format!("All flows, windows of {length}"), &intervals.total);
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
        for damage in &report.damage {
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
