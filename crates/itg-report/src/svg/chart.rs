//! A drawing of its own, for a page or as a file.

use maud::{Markup, PreEscaped, html};

use crate::svg::frame::{Frame, HEIGHT, WIDTH, short};
use crate::svg::values::Values;
use crate::svg::{ink, latex, legend};

/// The colours, for page and files alike.
pub(crate) const STYLE: &str = include_str!("plot.css");
/// For programs that read no style.
const FONTS: &str = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
/// Letters that a title above a plot has room for.
const TITLE: usize = 56;

/// Parts that a [`Chart`] is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) name: &'static str,
    pub(super) title: String,
    pub(super) desc: String,
    pub(super) frame: Frame,
    pub(super) values: Values,
    /// Names of the shapes, for the legend below the plot.
    pub(super) legend: Vec<legend::Entry>,
    pub(super) inner: Markup,
}

/// A drawing of its own.
#[derive(Debug)]
pub struct Chart {
    /// Short name, for files.
    pub name: &'static str,
    /// Title of the plot.
    pub title: String,
    /// Description of the plot in words and figures.
    pub desc: String,
    pub(super) frame: Frame,
    pub(super) values: Values,
    /// Height of the legend below the plot.
    below: f64,
    body: Markup,
}

impl From<Parts> for Chart {
    fn from(parts: Parts) -> Self {
        let (legend, below) = legend::rows(&parts.legend);
        let body = html! { (parts.frame.draw(&parts.inner)) (legend) };
        let Parts { name, title, desc, frame, values, .. } = parts;
        Self { name, title, desc, frame, values, below, body }
    }
}

impl Chart {
    /// For a page that holds [`STYLE`]; `id` is unique in it.
    pub(crate) fn inline(&self, id: &str) -> Markup {
        html! {
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT + self.below) } font-family=(FONTS) font-size="12" role="img" aria-labelledby={ (id) "-t " (id) "-d" } {
                title id={ (id) "-t" } { (self.title) }
                desc id={ (id) "-d" } { (self.desc) }
                (self.body)
            }
            // No text ends the element: every `<` is written as an escape of JSON.
            script type="application/json" { (PreEscaped(self.values.json(&self.frame).to_string().replace('<', "\\u003c"))) }
        }
    }

    /// A file of its own; `of` says what is drawn.
    #[must_use]
    pub fn file(&self, of: &str) -> String {
        self.titled(&self.title_of(of))
    }

    /// The values as CSV: `series`, then columns that name their units.
    #[must_use]
    pub fn csv(&self) -> String {
        self.values.csv()
    }

    /// The plot as a `tikzpicture` of pgfplots, values included; `of` says what is drawn.
    #[must_use]
    pub fn latex(&self, of: &str) -> String {
        latex::picture(self, &self.title_of(of))
    }

    fn title_of(&self, of: &str) -> String {
        format!("{}, {of}", self.title)
    }

    pub(super) fn titled(&self, title: &str) -> String {
        let height = HEIGHT + self.below + 28.0;
        let shown = short(title, TITLE);
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 -28 " (WIDTH) " " (height) }
                width=(WIDTH * 1.5) height=(height * 1.5) role="img" aria-labelledby="t d"
                font-family=(FONTS) font-size="12" {
                title id="t" { (title) }
                desc id="d" { (self.desc) }
                style { (PreEscaped(STYLE)) }
                rect class="paper" fill=(ink::of("paper").fill) x="0" y="-28" width=(WIDTH) height=(height) {}
                text class="head" fill=(ink::of_text("head")) font-size="14" font-weight="600" x="12" y="-8" { (shown) }
                (self.body)
            }
        };
        format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", printable(&svg.into_string()))
    }
}

/// Without the control characters that XML does not allow.
#[must_use]
pub fn printable(text: &str) -> String {
    let allowed = |&c: &char| !c.is_control() || matches!(c, '\n' | '\t' | '\r');
    text.chars().filter(allowed).filter(|c| !matches!(c, '\u{fffe}' | '\u{ffff}')).collect()
}
