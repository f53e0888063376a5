//! Tables on stdout, as Markdown, and numbers in them.

use comfy_table::{CellAlignment, Table, presets};

use crate::trials::Estimate;

/// A table in the making; all columns but the first are numbers.
#[derive(Debug)]
pub struct Lines {
    table: Table,
}

impl Lines {
    /// An empty table with these columns.
    #[must_use]
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        let mut table = Table::new();
        let header: Vec<String> = header.into_iter().map(Into::into).collect();
        table.load_style(presets::ASCII_MARKDOWN).set_header(header);
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        Self { table }
    }

    /// Adds a row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        let cells: Vec<String> = cells.into_iter().map(Into::into).collect();
        self.table.add_row(cells);
    }
}

impl std::fmt::Display for Lines {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.table)
    }
}

/// `12.3 [11.9, 12.8]`, with this many digits behind the point; `12.3` when the interval is a point.
#[must_use]
pub fn with_interval(estimate: Estimate, digits: usize) -> String {
    let [low, mid, high] =
        [estimate.low, estimate.mid, estimate.high].map(|value| format!("{value:.digits$}"));
    if low == high { mid } else { format!("{mid} [{low}, {high}]") }
}

/// A ratio as a percentage of what is missing or gained.
#[must_use]
pub fn percent(estimate: Estimate) -> String {
    with_interval(estimate.map(|x| 100.0 * x), 2)
}

/// A share in percent with its interval of 95 % (Wilson): `12.3 [11.9, 12.8]`.
#[must_use]
pub fn share(count: u64, all: u64) -> String {
    let (n, z) = (all as f64, 1.959_964);
    let share = count as f64 / n;
    let middle = share + z * z / (2.0 * n);
    let spread = z * (share * (1.0 - share) / n + z * z / (4.0 * n * n)).sqrt();
    let [low, high] = [middle - spread, middle + spread].map(|end| 100.0 * end / (1.0 + z * z / n));
    format!("{:.1} [{:.1}, {:.1}]", 100.0 * share, low.max(0.0), high.min(100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_markdown() {
        let mut lines = Lines::new(["what", "value"]);
        lines.row(["rate", "12"]);
        lines.row(["interval", &with_interval(Estimate { low: 1.0, mid: 2.25, high: 3.0 }, 1)]);
        let text = lines.to_string();
        let first: Vec<_> = text.lines().map(|line| line.trim_end_matches('|').trim()).collect();
        assert!(first[0].starts_with("| what") && first[0].ends_with("value"), "{text}");
        assert!(first[1].starts_with("|--") || first[1].starts_with("| --"), "{text}");
        assert!(first[2].ends_with("12"), "{text}");
        assert!(text.contains("2.2 [1.0, 3.0]"), "{text}");
    }
}
