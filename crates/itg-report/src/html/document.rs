//! The document around the content of a page, and plots side by side in it.

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::svg::{self, printable};

/// A page around its content.
pub(super) fn whole(title: &str, body: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta http-equiv="Content-Security-Policy"
                    content="default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";
                link rel="icon" href="data:,";
                title { (title) }
                style { (PreEscaped(include_str!("page.css"))) (PreEscaped(svg::STYLE)) }
            }
            body {
                main {
                    (body)
                    footer { "Made by itg-decode " (env!("CARGO_PKG_VERSION")) ". Definitions of all figures: docs/decode.md." }
                }
                script { (PreEscaped(include_str!("page.js"))) }
            }
        }
    };
    printable(&page.into_string())
}

/// Plots side by side; `id` begins their names in the page.
pub(super) fn drawings<'a>(charts: impl IntoIterator<Item = &'a svg::Chart>, id: &str) -> Markup {
    html! {
        div.plots {
            @for (place, chart) in charts.into_iter().enumerate() {
                figure {
                    figcaption { (chart.title) }
                    (chart.inline(&format!("{id}-{place}-{}", chart.name)))
                }
            }
        }
    }
}
