//! The live view of a run on a terminal: nodes, flows sorted by trouble, rates, lateness, loss, events.
//!
//! A `Board` is what the lines of [`crate::events`] have told so far, and draws itself; [`Live`] puts it on the
//! terminal. Ctrl-C is what it always is, and `q` is the same. The terminal gets back its first state when the view
//! ends: with the run, at the first signal, and when the program panics.

mod terminal;

use std::collections::{BTreeMap, VecDeque};

use itg_core::units::{format_bit_rate, format_duration_ns};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line as Text, Span};
use ratatui::widgets::Paragraph;

use crate::events::{FlowState, Line, NodeState, Statistics, What};
pub use crate::live::terminal::{Live, is_stuck, settle};

/// Events that are remembered.
const MOST_EVENTS: usize = 100;
/// Lines for events.
const EVENTS: u16 = 6;
/// Lines for nodes at most; two nodes share one when there are more.
const NODES: u16 = 4;

/// State of a flow.
#[derive(Clone, Debug, Default)]
struct Row {
    name: String,
    path: String,
    state: Option<FlowState>,
    owner: Option<String>,
    figures: Statistics,
}

impl Row {
    /// Larger is worse: no node sends it; many packets are missing; they leave late.
    fn trouble(&self) -> (bool, u64, u64) {
        let stands = self.state == Some(FlowState::Waiting) && self.figures.sent_packets > 0;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1000")]
        let missing = (self.figures.missing.unwrap_or(0.0).clamp(0.0, 1.0) * 1000.0) as u64;
        (stands, missing, self.figures.lateness_max_ns / 100_000)
    }
}

/// State of the run as the lines have told it so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    name: String,
    since_ns: u64,
    nodes: BTreeMap<String, NodeState>,
    flows: BTreeMap<u32, Row>,
    total: Statistics,
    late_p99_ns: Option<u64>,
    events: VecDeque<(u64, String)>,
}

impl Board {
    /// Takes a line.
    pub(crate) fn take(&mut self, line: &Line) {
        self.since_ns = line.since_ns;
        match &line.what {
            What::Run { name, nodes, flows, .. } => {
                *self = Self { name: name.clone(), ..Self::default() };
                self.nodes = nodes.iter().map(|node| (node.clone(), NodeState::Joined)).collect();
                for flow in flows {
                    let path = format!("{} > {}", flow.from, flow.to);
                    let row = Row { name: flow.name.clone(), path, ..Row::default() };
                    self.flows.insert(flow.flow, row);
                }
            }
            What::Node { node, state, why } => {
                self.nodes.insert(node.clone(), *state);
                if let Some(why) = why {
                    self.note(line.since_ns, format!("{node}: {why}"));
                }
            }
            What::View { number, members, left, came, cause, .. } => {
                let mut text = format!("view {number}: {} members", members.len());
                for (who, word) in [(left, "left"), (came, "came")] {
                    if !who.is_empty() {
                        text += &format!("; {} {word}", who.join(", "));
                    }
                }
                text += &format!(" ({cause})");
                self.note(line.since_ns, text);
            }
            What::Stable { view, after_ns } => {
                let after = format_duration_ns(after_ns / 1_000_000 * 1_000_000);
                self.note(line.since_ns, format!("view {view}: stable after {after}"));
            }
            What::Flow { flow, state, owner, before } => {
                let row = self.flows.entry(*flow).or_default();
                (row.state, row.owner) = (Some(*state), owner.clone());
                if let (Some(owner), Some(before)) = (owner, before) {
                    self.note(line.since_ns, format!("flow {flow}: from {before} to {owner}"));
                }
            }
            What::Command { by, command, void, .. } => {
                let void = void.as_ref().map_or_else(String::new, |why| format!(" (void: {why})"));
                self.note(line.since_ns, format!("{by}: {command}{void}"));
            }
            What::Statistics { total, lateness_p99_ns, flows } => {
                (self.total, self.late_p99_ns) = (*total, *lateness_p99_ns);
                for flow in flows {
                    self.flows.entry(flow.flow).or_default().figures = flow.figures;
                }
            }
            What::Missing { nodes, waits_for, .. } => {
                let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
                let text = format!("missing: {}; waits for {waits_for}", names.join(", "));
                // It comes each second.
                if self
                    .events
                    .iter()
                    .rev()
                    .find(|(_, t)| t.starts_with("missing: "))
                    .is_none_or(|(_, t)| *t != text)
                {
                    self.note(line.since_ns, text);
                }
            }
            What::Word { text } => self.note(line.since_ns, text.clone()),
            What::End { interrupted } => {
                let why = interrupted.as_deref().unwrap_or("all flows have ended");
                self.note(line.since_ns, why.to_owned());
            }
        }
    }

    fn note(&mut self, at: u64, text: String) {
        // What comes from elsewhere does not steer the terminal.
        let text: String = text.chars().filter(|c| !c.is_control()).collect();
        self.events.push_back((at, text));
        while self.events.len() > MOST_EVENTS {
            self.events.pop_front();
        }
    }

    /// Draws it.
    pub(crate) fn draw(&self, frame: &mut Frame<'_>) {
        let nodes = self.node_lines(frame.area().width);
        let height = u16::try_from(nodes.len()).unwrap_or(NODES).min(NODES);
        let [head, total, node_area, flow_area, event_area, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(1),
            Constraint::Length(height),
            Constraint::Min(4),
            Constraint::Length(EVENTS),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let since = format_duration_ns(self.since_ns / 1_000_000_000 * 1_000_000_000);
        let since = if self.since_ns < 1_000_000_000 { "0s".to_owned() } else { since };
        let title = Text::from(vec![
            Span::styled(self.name.clone(), bold),
            Span::raw(format!("  {since}")),
        ]);
        frame.render_widget(Paragraph::new(title), head);
        frame.render_widget(Paragraph::new(self.total_line(frame.area().width)), total);
        frame.render_widget(Paragraph::new(nodes), node_area);
        frame.render_widget(
            Paragraph::new(self.flow_lines(flow_area.width, flow_area.height)),
            flow_area,
        );
        frame.render_widget(Paragraph::new(self.event_lines()), event_area);
        let dim = Style::new().add_modifier(Modifier::DIM);
        let help = "q or Ctrl-C: stop all flows and report; twice: leave at once";
        frame.render_widget(Paragraph::new(Text::styled(help, dim)), foot);
    }

    fn total_line(&self, width: u16) -> Text<'static> {
        let total = &self.total;
        let late = known(self.late_p99_ns, |ns| format!("< {}", short(ns)));
        let missing = known(total.missing, |share| format!("{:.2} %", 100.0 * share));
        let plain = Style::new();
        // The larger the number, the sooner it gives way where there is no room.
        let mut parts = vec![
            (1, format!("{} packets", total.sent_packets), plain),
            (0, known(total.bitrate_bps, format_bit_rate), plain),
            (4, known(total.packet_rate_pps, |pps| format!("{pps:.0} packets/s")), plain),
            (3, format!("late p99 {late}"), plain),
            (2, format!("missing {missing}"), bad(total.missing > Some(0.01))),
        ];
        let long = |parts: &[(u8, String, Style)]| -> usize {
            parts.iter().map(|(_, text, _)| text.chars().count() + 2).sum()
        };
        while parts.len() > 1 && long(&parts) > usize::from(width) + 2 {
            let least = parts.iter().map(|(order, ..)| *order).max();
            parts.retain(|(order, ..)| Some(*order) != least);
        }
        let spans = parts
            .into_iter()
            .flat_map(|(_, text, style)| [Span::styled(text, style), Span::raw("  ")]);
        Text::from(spans.collect::<Vec<_>>())
    }

    fn node_lines(&self, width: u16) -> Vec<Text<'static>> {
        let cell = |(node, state): (&String, &NodeState)| {
            let (word, colour) = match state {
                NodeState::Joined => ("joined", Color::Reset),
                NodeState::Ready => ("ready", Color::Green),
                NodeState::Absent => ("absent", Color::Red),
                NodeState::Left => ("left", Color::Red),
            };
            let sends = self.flows.values().filter(|row| row.owner.as_ref() == Some(node)).count();
            let text = format!("{:<12}", clip(node, 12));
            [
                Span::raw(text),
                Span::styled(format!("{word:<7}"), Style::new().fg(colour)),
                Span::raw(format!("{sends:>3} flows   ")),
            ]
        };
        // As many beside each other as there is room for.
        let columns = (usize::from(width) / 32).max(1);
        let cells: Vec<_> = self.nodes.iter().map(cell).collect();
        let mut lines: Vec<Text<'static>> =
            cells.chunks(columns).map(|row| Text::from(row.concat())).collect();
        let most = usize::from(NODES);
        if lines.len() > most {
            let shown = (most - 1) * columns;
            let gone = self
                .nodes
                .values()
                .filter(|state| matches!(state, NodeState::Absent | NodeState::Left));
            let text =
                format!("{} more nodes; {} of all are gone", cells.len() - shown, gone.count());
            lines.truncate(most - 1);
            lines.push(Text::raw(text));
        }
        lines
    }

    fn flow_lines(&self, width: u16, height: u16) -> Vec<Text<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let columns = shown_columns(width);
        let mut lines = vec![row_of(HEADS.map(Span::raw), columns).style(bold)];
        let mut rows: Vec<(&u32, &Row)> = self.flows.iter().collect();
        rows.sort_by_key(|(number, row)| (std::cmp::Reverse(row.trouble()), **number));
        let room = usize::from(height).saturating_sub(1);
        let shown = if rows.len() > room { room.saturating_sub(1) } else { rows.len() };
        for (number, row) in rows.iter().take(shown) {
            let state = match row.state {
                None => "",
                Some(FlowState::Waiting) => "waiting",
                Some(FlowState::Running) => "running",
                Some(FlowState::Handing) => "handing",
                Some(FlowState::Stopped) => "stopped",
                Some(FlowState::Finished) => "finished",
            };
            let (stands, missing, late) = row.trouble();
            let figures = &row.figures;
            let cells = [
                Span::raw(number.to_string()),
                Span::raw(clip(&row.name, 14)),
                Span::raw(clip(&row.path, 15)),
                Span::styled(state, bad(stands)),
                Span::raw(known(figures.bitrate_bps, format_bit_rate)),
                Span::styled(short(figures.lateness_max_ns), bad(late >= 10)),
                Span::styled(
                    known(figures.missing, |share| format!("{:.2}%", 100.0 * share)),
                    bad(missing >= 10),
                ),
            ];
            lines.push(row_of(cells, columns));
        }
        if shown < rows.len() {
            lines.push(Text::raw(format!(
                "      {} more flows in less trouble",
                rows.len() - shown
            )));
        }
        lines
    }

    fn event_lines(&self) -> Vec<Text<'static>> {
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let mut lines = vec![Text::styled("events", bold)];
        let skip = self.events.len().saturating_sub(usize::from(EVENTS) - 1);
        for (at, text) in self.events.iter().skip(skip) {
            lines.push(Text::raw(format!(
                "{:>4}.{}s  {text}",
                at / 1_000_000_000,
                at / 100_000_000 % 10
            )));
        }
        lines
    }
}

/// Columns of flows: heads, widths, and whether they are of words.
const HEADS: [&str; 7] = ["flow", "name", "path", "state", "rate", "late max", "missing"];
const WIDTHS: [usize; 7] = [5, 14, 15, 9, 13, 8, 9];
const WORDS: std::ops::RangeInclusive<usize> = 1..=3;
/// Columns in the order in which they are left out whole where there is no room.
const LEFT_OUT: [usize; 6] = [2, 1, 5, 3, 6, 4];

/// The columns that have room side by side.
fn shown_columns(width: u16) -> [bool; 7] {
    let mut shown = [true; 7];
    for column in LEFT_OUT {
        let wide: usize = (0..7).filter(|&place| shown[place]).map(|place| WIDTHS[place] + 1).sum();
        if wide <= usize::from(width) + 1 {
            break;
        }
        shown[column] = false;
    }
    shown
}

/// The cells of a row, each as wide as its column.
fn row_of(cells: [Span<'static>; 7], shown: [bool; 7]) -> Text<'static> {
    let mut spans = Vec::new();
    for (place, cell) in cells.into_iter().enumerate().filter(|(place, _)| shown[*place]) {
        let width = WIDTHS[place];
        let text = match WORDS.contains(&place) {
            true => format!("{:<width$} ", cell.content),
            false => format!("{:>width$} ", cell.content),
        };
        spans.push(Span::styled(text, cell.style));
    }
    Text::from(spans)
}

fn bad(bad: bool) -> Style {
    if bad { Style::new().fg(Color::Red) } else { Style::new() }
}

/// At most so many letters, without control characters.
fn clip(text: &str, most: usize) -> String {
    let plain: Vec<char> = text.chars().filter(|c| !c.is_control()).collect();
    match plain.len() > most {
        true => plain[..most - 1].iter().collect::<String>() + "…",
        false => plain.into_iter().collect(),
    }
}

/// A figure in words, or that it is not known.
fn known<T>(figure: Option<T>, words: impl FnOnce(T) -> String) -> String {
    figure.map_or_else(|| "-".to_owned(), words)
}

/// A time to two or three digits.
fn short(ns: u64) -> String {
    match ns {
        0..1_000 => format!("{ns}ns"),
        1_000..1_000_000 => format!("{}us", ns / 1_000),
        1_000_000..10_000_000_000 => format!("{}ms", ns / 1_000_000),
        _ => format!("{}s", ns / 1_000_000_000),
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;
    use crate::events::{FlowName, FlowStatistics};

    fn line(since_ms: u64, what: What) -> Line {
        Line { schema: 1, at_unix_ns: 0, since_ns: since_ms * 1_000_000, what }
    }

    fn run(nodes: &[&str], flows: u32) -> What {
        let name = |flow| FlowName {
            flow,
            name: format!("call-{flow}"),
            from: "a".to_owned(),
            to: "b".to_owned(),
        };
        What::Run {
            name: "three nodes".to_owned(),
            world: "cluster".to_owned(),
            seed: 1,
            plan: "0".to_owned(),
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            flows: (1..=flows).map(name).collect(),
        }
    }

    fn figures(missing: f64, late_ms: u64) -> Statistics {
        Statistics {
            sent_packets: 1000,
            sent_bytes: 512_000,
            packet_rate_pps: Some(100.0),
            bitrate_bps: Some(409_600.0),
            missing_packets: Some(1),
            missing: Some(missing),
            lateness_max_ns: late_ms * 1_000_000,
        }
    }

    fn drawn(board: &Board, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        terminal.draw(|frame| board.draw(frame)).expect("drawn");
        let buffer = terminal.backend().buffer();
        (0..height)
            .map(|y| {
                (0..width)
                    .map(|x| buffer[(x, y)].symbol())
                    .collect::<String>()
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    #[test]
    fn the_view_fits_a_small_terminal() {
        let mut board = Board::default();
        let owner = |flow, state, owner: &str, before: Option<&str>| What::Flow {
            flow,
            state,
            owner: Some(owner.to_owned()),
            before: before.map(str::to_owned),
        };
        let statistics = [(1, figures(0.0, 0)), (2, figures(0.25, 1)), (3, figures(0.0, 40))];
        for what in [
            run(&["a", "b", "c"], 3),
            What::Node { node: "a".to_owned(), state: NodeState::Ready, why: None },
            What::Node {
                node: "c".to_owned(),
                state: NodeState::Left,
                why: Some("silent\x1b[2J".to_owned()),
            },
            owner(1, FlowState::Running, "a", None),
            owner(2, FlowState::Running, "a", Some("c")),
            What::View {
                number: 4,
                members: vec!["a".to_owned(), "b".to_owned(), "console".to_owned()],
                left: vec!["c".to_owned()],
                came: vec![],
                cause: "c reported by a".to_owned(),
                agreed_after_ns: Some(5),
            },
            What::Stable { view: 4, after_ns: 1_200_000_000 },
            What::Statistics {
                total: figures(0.083, 40),
                lateness_p99_ns: Some(64_000),
                flows: statistics.map(|(flow, figures)| FlowStatistics { flow, figures }).to_vec(),
            },
        ] {
            board.take(&line(12_345, what));
        }
        let got = drawn(&board, 80, 24);
        let want = [
            "three nodes  12s",
            "1000 packets  409.60 kbit/s  100 packets/s  late p99 < 64us  missing 8.30 %",
            "a           ready    2 flows   b           joined   0 flows",
            "c           left     0 flows",
            " flow name           path            state              rate late max   missing",
            "    2 call-2         a > b           running   409.60 kbit/s      1ms    25.00%",
            "    3 call-3         a > b                     409.60 kbit/s     40ms     0.00%",
            "    1 call-1         a > b           running   409.60 kbit/s      0ns     0.00%",
        ];
        assert_eq!(got[..want.len()], want, "{got:#?}");
        assert_eq!(
            got[17..],
            [
                "events",
                "  12.3s  c: silent[2J",
                "  12.3s  flow 2: from c to a",
                "  12.3s  view 4: 3 members; c left (c reported by a)",
                "  12.3s  view 4: stable after 1.2s",
                "",
                "q or Ctrl-C: stop all flows and report; twice: leave at once",
            ],
            "{got:#?}"
        );
    }

    #[test]
    fn what_has_no_room_is_counted() {
        let mut board = Board::default();
        let names: Vec<String> = (0..40).map(|k| format!("node-{k:02}")).collect();
        board.take(&line(0, run(&names.iter().map(String::as_str).collect::<Vec<_>>(), 64)));
        for k in 0..200 {
            board.take(&line(k, What::Word { text: format!("word {k}") }));
        }
        let got = drawn(&board, 80, 24).join("\n");
        for want in ["34 more nodes; 0 of all are gone", "more flows in less trouble", "word 199"] {
            assert!(got.contains(want), "{want}:\n{got}");
        }
        assert!(!got.contains("word 194"), "{got}");
        assert_eq!(board.events.len(), MOST_EVENTS);
        // Whole columns are left out, no number is cut.
        for (width, heads) in [(79, 7), (78, 6), (50, 5), (48, 5), (47, 4), (30, 3), (13, 1)] {
            let row = drawn(&board, width, 24)
                .into_iter()
                .find(|line| line.trim_start().starts_with("flow"))
                .expect("a head");
            let found = HEADS.iter().filter(|head| row.contains(*head)).count();
            assert_eq!(found, heads, "{width}: {row}");
        }
        // Nor does a terminal of no size at all stop the run.
        drawn(&board, 1, 1);
        drawn(&Board::default(), 20, 5);
    }
}
