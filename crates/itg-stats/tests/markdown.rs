//! Tests of `markdown`, through what it shows.

use itg_stats::markdown::*;

#[test]
fn texts_of_others_are_text() {
    for (text, want) in [
        ("a|b", "a\\|b"),
        ("<img src=x>", "&lt;img src=x>"),
        ("[x](http://y)", "\\[x\\](http://y)"),
        ("\u{1b}[2J", "\\\\u001b\\[2J"),
        ("`x` a_b", "\\`x\\` a\\_b"),
    ] {
        assert_eq!(escaped(text), want);
    }
}

#[test]
fn a_table_has_a_head() {
    let rows = [vec!["a".to_owned(), "b".to_owned()], vec!["1".to_owned(), "x|y".to_owned()]];
    assert_eq!(table(&rows), "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n");
}
