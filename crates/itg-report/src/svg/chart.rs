//! A drawing of its own, for a page or as a file.

use maud::{Markup, html};

use crate::svg::frame::{HEIGHT, WIDTH};
use crate::svg::ink;

/// The colours, for page and files alike.
pub(crate) const STYLE: &str = include_str!("plot.css");
/// For programs that read no style.
const FONTS: &str = "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";

/// A drawing of its own.
#[derive(Debug)]
pub struct Chart {
    /// Short name, for files.
    pub name: &'static str,
    /// Title of the plot.
    pub title: String,
    /// Description of the plot in words and figures.
    pub desc: String,
    /// Room for a legend below the plot.
    pub(super) below: f64,
    pub(super) body: Markup,
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
        }
    }

    /// A file of its own; `of` says what is drawn.
    #[must_use]
    pub fn file(&self, of: &str) -> String {
        self.titled(&format!("{}, {of}", self.title))
    }

    pub(super) fn titled(&self, title: &str) -> String {
        let height = HEIGHT + self.below + 28.0;
        let svg = html! {
            svg xmlns="http://www.w3.org/2000/svg" viewBox={ "0 -28 " (WIDTH) " " (height) }
                width=(WIDTH * 1.5) height=(height * 1.5) role="img" aria-labelledby="t d"
                font-family=(FONTS) font-size="12" {
                title id="t" { (title) }
                desc id="d" { (self.desc) }
                style { (maud::PreEscaped(STYLE)) }
                rect class="paper" fill=(ink::of("paper").fill) x="0" y="-28" width=(WIDTH) height=(height) {}
                text class="head" fill=(ink::of_text("head")) font-size="14" font-weight="600" x="12" y="-8" { (title) }
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
