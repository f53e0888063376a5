//! Tokens of Rust, those between brackets as one group.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

/// A token; comments and spaces are none.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// Keyword or name.
    Word(&'a str),
    /// Punctuation.
    Sign(char),
    /// Tokens between brackets.
    Group {
        /// The bracket that opens it.
        opened: char,
        inner: Vec<Self>,
    },
    /// Literals and lifetimes.
    Other,
}

impl Token<'_> {
    /// Returns true for a block or a semicolon.
    pub(crate) fn ends_item(&self) -> bool {
        matches!(self, Self::Sign(';') | Self::Group { opened: '{', .. })
    }

    /// Returns true if it is this word, or a group that has it.
    pub(crate) fn has_word(&self, wanted: &str) -> bool {
        match self {
            Self::Word(word) => *word == wanted,
            Self::Group { inner, .. } => inner.iter().any(|token| token.has_word(wanted)),
            Self::Sign(_) | Self::Other => false,
        }
    }
}

/// Tokens of a file.
///
/// # Errors
///
/// Brackets that do not match, and tokens that are none of Rust's.
pub(crate) fn tokens(text: &str) -> Result<Vec<Token<'_>>, String> {
    let mut open: Vec<(char, Vec<Token<'_>>)> = Vec::new();
    let (mut outside, mut at) = (Vec::new(), 0);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let from = at;
        at += token.len as usize;
        let written = &text[from..at];
        let sign = written.chars().next().unwrap_or_default();
        let next = match token.kind {
            TokenKind::Whitespace
            | TokenKind::LineComment { .. }
            | TokenKind::BlockComment { terminated: true, .. } => continue,
            TokenKind::Ident | TokenKind::RawIdent => Token::Word(written),
            TokenKind::Literal { .. } | TokenKind::Lifetime { .. } | TokenKind::RawLifetime => {
                Token::Other
            }
            TokenKind::OpenBrace | TokenKind::OpenBracket | TokenKind::OpenParen => {
                open.push((sign, Vec::new()));
                continue;
            }
            TokenKind::CloseBrace | TokenKind::CloseBracket | TokenKind::CloseParen => {
                let closed = open.pop().filter(|(opened, _)| closes(*opened, sign));
                let (opened, inner) =
                    closed.ok_or_else(|| format!("`{sign}` at byte {from} closes nothing"))?;
                Token::Group { opened, inner }
            }
            _ if written.len() == 1 && sign.is_ascii_punctuation() => Token::Sign(sign),
            _ => return Err(format!("{:?} at byte {from}", token.kind)),
        };
        open.last_mut().map_or(&mut outside, |(_, inner)| inner).push(next);
    }
    match open.last() {
        Some((opened, _)) => Err(format!("`{opened}` is not closed")),
        None => Ok(outside),
    }
}

fn closes(opened: char, sign: char) -> bool {
    matches!((opened, sign), ('{', '}') | ('[', ']') | ('(', ')'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_make_groups_and_comments_are_nothing() {
        let text = "/// Doc\nfn f<'a>(x: &'a str) { g(\"{\", '}', r#\"(\"#) /* [ */ }";
        let tokens = tokens(text).expect("Rust");
        let [Token::Word("fn"), Token::Word("f"), .., Token::Group { opened: '{', inner }] =
            &tokens[..]
        else {
            panic!("{tokens:?}");
        };
        let [Token::Word("g"), Token::Group { opened: '(', inner }] = &inner[..] else {
            panic!("{inner:?}");
        };
        let comma = || Token::Sign(',');
        assert_eq!(inner[..], [Token::Other, comma(), Token::Other, comma(), Token::Other]);
    }

    #[test]
    fn brackets_that_do_not_match_are_refused() {
        for text in ["fn f() {", "fn f) {}", "f(]", "/* open"] {
            assert!(tokens(text).is_err(), "{text}");
        }
    }
}
