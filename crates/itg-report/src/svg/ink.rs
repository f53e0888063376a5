//! The light colours of `plot.css` as attributes of shapes, for programs that draw SVG without its style.
//!
//! A style goes before attributes, so browsers follow the style and its dark colours.

use maud::{Markup, html};

const PAPER: &str = "#ffffff";
const INK: &str = "#1b2430";
const MUTE: &str = "#5b6675";
const LINE: &str = "#d9dfe6";
/// Okabe and Ito's palette, told apart without red and green; the last four are for lines alone.
const SERIES: [&str; 8] =
    ["#0072b2", "#d55e00", "#009e73", "#a0527a", "#b87a00", "#1b2430", "#3f9fd8", "#7a7f87"];

/// Presentation attributes; what is `None` is left out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Ink {
    pub(super) fill: &'static str,
    pub(super) fill_opacity: Option<&'static str>,
    pub(super) stroke: Option<&'static str>,
    pub(super) width: Option<&'static str>,
    pub(super) dash: Option<&'static str>,
}

const fn filled(fill: &'static str) -> Ink {
    Ink { fill, fill_opacity: None, stroke: None, width: None, dash: None }
}

const fn drawn(stroke: &'static str, width: &'static str, dash: Option<&'static str>) -> Ink {
    Ink { stroke: Some(stroke), width: Some(width), dash, ..filled("none") }
}

const fn open(stroke: &'static str) -> Ink {
    Ink { fill: PAPER, ..drawn(stroke, "1.3", None) }
}

/// The classes of shapes.
const INKS: [(&str, Ink); 22] = [
    ("paper", filled(PAPER)),
    ("grid", drawn(LINE, "1", None)),
    ("frame", drawn(MUTE, "1", None)),
    ("ref", drawn(MUTE, "1.2", Some("4 3"))),
    ("l1", drawn(SERIES[0], "1.8", None)),
    ("l2", drawn(SERIES[1], "1.8", Some("7 3"))),
    ("l3", drawn(SERIES[2], "1.8", Some("2 3"))),
    ("l4", drawn(SERIES[3], "1.8", None)),
    ("l5", drawn(SERIES[4], "1.8", Some("9 3 2 3"))),
    ("l6", drawn(SERIES[5], "1.8", Some("4 2"))),
    ("l7", drawn(SERIES[6], "1.8", None)),
    ("l8", drawn(SERIES[7], "1.8", Some("10 3"))),
    ("a1", Ink { fill_opacity: Some(".16"), ..filled(SERIES[0]) }),
    ("b1", filled(SERIES[0])),
    ("b2", filled(SERIES[1])),
    ("b3", filled(SERIES[2])),
    ("b4", filled(SERIES[3])),
    ("o1", open(SERIES[0])),
    ("o2", open(SERIES[1])),
    ("o3", open(SERIES[2])),
    ("o4", open(SERIES[3])),
    ("calm", Ink { fill_opacity: Some(".55"), ..filled(LINE) }),
];

/// The attributes of a shape of these classes.
pub(super) fn of(classes: &str) -> Ink {
    let mut words = classes.split(' ');
    let ink = words.next().and_then(|first| INKS.iter().find(|(class, _)| *class == first));
    let ink = ink.map_or(filled(INK), |(_, ink)| *ink);
    match words.next() {
        Some("whisker") => Ink { width: Some("1.1"), dash: None, ..ink },
        _ => ink,
    }
}

/// The colour of a text of these classes.
pub(super) fn of_text(classes: &str) -> &'static str {
    if classes.split(' ').any(|class| class == "label" || class == "head") { INK } else { MUTE }
}

/// Value of `text-anchor` for a text of these classes; `None` at the start.
pub(super) fn anchor(classes: &str) -> Option<&'static str> {
    classes.split(' ').find_map(|class| match class {
        "end" => Some("end"),
        "mid" => Some("middle"),
        _ => None,
    })
}

/// A path; `title` is shown where a pointer rests on it.
pub(super) fn path(class: &str, d: &str, title: Option<&str>) -> Markup {
    let ink = of(class);
    html! {
        path class=(class) fill=(ink.fill) fill-opacity=[ink.fill_opacity] stroke=[ink.stroke]
            stroke-width=[ink.width] stroke-dasharray=[ink.dash] d=(d) {
            @if let Some(title) = title { title { (title) } }
        }
    }
}

/// A text.
pub(super) fn text(class: &str, (x, y): (&str, &str), words: &str) -> Markup {
    let classes = Some(class).filter(|class| !class.is_empty());
    html! {
        text class=[classes] fill=(of_text(class)) text-anchor=[anchor(class)] x=(x) y=(y) { (words) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::svg::chart::STYLE;

    /// The declarations of the light style for a class.
    fn styled(class: &str) -> Vec<(String, String)> {
        let light = STYLE.split("@media").next().expect("a style");
        let rules = light.split('}').filter_map(|rule| {
            rule.rsplit_once("*/").map_or(rule, |(_, rule)| rule).split_once('{')
        });
        let ours = rules.filter(|(selectors, _)| {
            selectors.split(',').any(|selector| selector.trim() == format!(".{class}"))
        });
        let declarations = ours.flat_map(|(_, body)| body.split(';'));
        let pairs = declarations.filter_map(|declaration| declaration.split_once(':'));
        pairs.map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned())).collect()
    }

    #[test]
    fn attributes_say_what_the_style_says() {
        for (class, ink) in INKS {
            let style = styled(class);
            let find = |name: &str| {
                style.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
            };
            assert!(!style.is_empty(), "{class} has no style");
            for (name, value) in [
                ("fill", Some(ink.fill)),
                ("fill-opacity", ink.fill_opacity),
                ("stroke", ink.stroke),
                ("stroke-width", ink.width),
                ("stroke-dasharray", ink.dash),
            ] {
                assert_eq!(find(name), value, "{class}: {name}");
            }
        }
        assert!(!STYLE.contains("var("), "programs that know no variables draw black");
    }
}
