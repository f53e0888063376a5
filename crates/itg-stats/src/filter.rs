//! Filters of flows: a small expression over the attributes of a flow that are known before its
//! packets are read.
//!
//! ```text
//! expression = term { "||" term }        term = factor { "&&" factor }
//! factor     = "!" factor | "(" expression ")" | attribute operator value
//! attribute  = flow | proto | src | dst | profile | side | run
//! operator   = "==" | "!=" | "<" | "<=" | ">" | ">=" | "~"
//! ```
//!
//! `flow` is compared as a number, everything else as text; `~` asks whether the value occurs in it.
//! A value with blanks, or with one of the signs above in it, stands in quotes.

use std::fmt;
use std::str::FromStr;

/// Attributes of a flow that are known before its packets are read.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attributes<'a> {
    /// Number of the flow.
    pub flow: u32,
    /// Transport protocol; empty when not known.
    pub proto: &'a str,
    /// Source address and port.
    pub src: &'a str,
    /// Destination address and port.
    pub dst: &'a str,
    /// Name in its experiment; empty where the log does not tell it.
    pub name: &'a str,
    /// Application profile; empty when there is none.
    pub profile: &'a str,
    /// `sender` or `receiver`.
    pub side: &'a str,
    /// Run id in hexadecimal.
    pub run: &'a str,
}

/// An expression over [`Attributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    text: String,
    root: Node,
}

/// An expression that does not say which flows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FilterError {
    /// Something else than what belongs there.
    #[error("filter `{text}`: expected {expected} at `{found}`")]
    Expected {
        /// The whole expression.
        text: String,
        /// Text that belongs there.
        expected: &'static str,
        /// Text that is there; `the end` at the end of the filter.
        found: String,
    },
    /// Parentheses and `!` nested too deep.
    #[error("filter `{text}`: nested deeper than {DEPTH}")]
    Deep {
        /// The whole expression.
        text: String,
    },
}

/// Deepest nesting.
const DEPTH: usize = 64;
const ATTRIBUTES: &str = "flow, name, proto, src, dst, profile, side or run";

#[derive(Clone, Debug, PartialEq, Eq)]
enum Node {
    Any(Vec<Self>),
    All(Vec<Self>),
    Not(Box<Self>),
    Number(Operator, u64),
    Text(Attribute, Operator, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attribute {
    Proto,
    Src,
    Dst,
    Name,
    Profile,
    Side,
    Run,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    Contains,
}

impl Operator {
    fn holds<T: Ord + ?Sized>(self, a: &T, b: &T) -> bool {
        match self {
            Self::Equal | Self::Contains => a == b,
            Self::NotEqual => a != b,
            Self::Less => a < b,
            Self::LessOrEqual => a <= b,
            Self::Greater => a > b,
            Self::GreaterOrEqual => a >= b,
        }
    }
}

impl Filter {
    /// Returns true if the filter selects the flow.
    #[must_use]
    pub fn matches(&self, flow: &Attributes<'_>) -> bool {
        self.root.matches(flow)
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Node {
    fn matches(&self, flow: &Attributes<'_>) -> bool {
        match self {
            Self::Any(list) => list.iter().any(|node| node.matches(flow)),
            Self::All(list) => list.iter().all(|node| node.matches(flow)),
            Self::Not(node) => !node.matches(flow),
            Self::Number(operator, value) => operator.holds(&u64::from(flow.flow), value),
            Self::Text(attribute, operator, value) => {
                let text = match attribute {
                    Attribute::Proto => flow.proto,
                    Attribute::Src => flow.src,
                    Attribute::Dst => flow.dst,
                    Attribute::Name => flow.name,
                    Attribute::Profile => flow.profile,
                    Attribute::Side => flow.side,
                    Attribute::Run => flow.run,
                };
                match operator {
                    Operator::Contains => text.contains(value.as_str()),
                    _ => operator.holds(text, value),
                }
            }
        }
    }
}

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, FilterError> {
        let mut parser = Parser { text, rest: text, depth: 0 };
        let root = parser.any()?;
        parser.blanks();
        if parser.rest.is_empty() {
            Ok(Self { text: text.to_owned(), root })
        } else {
            Err(parser.expected("&&, || or the end"))
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    rest: &'t str,
    depth: usize,
}

impl<'t> Parser<'t> {
    fn expected(&self, expected: &'static str) -> FilterError {
        let rest = self.rest.trim_start();
        let found = if rest.is_empty() { "the end" } else { rest };
        FilterError::Expected { text: self.text.to_owned(), expected, found: found.to_owned() }
    }

    fn blanks(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn take(&mut self, sign: &str) -> bool {
        self.blanks();
        let rest = self.rest.strip_prefix(sign);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn any(&mut self) -> Result<Node, FilterError> {
        let mut list = vec![self.all()?];
        while self.take("||") {
            list.push(self.all()?);
        }
        Ok(Node::Any(list))
    }

    fn all(&mut self) -> Result<Node, FilterError> {
        let mut list = vec![self.factor()?];
        while self.take("&&") {
            list.push(self.factor()?);
        }
        Ok(Node::All(list))
    }

    fn factor(&mut self) -> Result<Node, FilterError> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err(FilterError::Deep { text: self.text.to_owned() });
        }
        let node = if self.take("!") {
            Node::Not(Box::new(self.factor()?))
        } else if self.take("(") {
            let inside = self.any()?;
            if !self.take(")") {
                return Err(self.expected("a closing parenthesis"));
            }
            inside
        } else {
            self.comparison()?
        };
        self.depth -= 1;
        Ok(node)
    }

    fn comparison(&mut self) -> Result<Node, FilterError> {
        self.blanks();
        let end = self.rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(self.rest.len());
        let (name, rest) = self.rest.split_at(end);
        let attribute = match name {
            "flow" => None,
            "proto" => Some(Attribute::Proto),
            "src" => Some(Attribute::Src),
            "dst" => Some(Attribute::Dst),
            "name" => Some(Attribute::Name),
            "profile" => Some(Attribute::Profile),
            "side" => Some(Attribute::Side),
            "run" => Some(Attribute::Run),
            _ => return Err(self.expected(ATTRIBUTES)),
        };
        self.rest = rest;
        let operator = self.operator()?;
        match attribute {
            Some(attribute) => Ok(Node::Text(attribute, operator, self.value()?.to_owned())),
            None if operator == Operator::Contains => Err(FilterError::Expected {
                text: self.text.to_owned(),
                expected: "==, !=, <, <=, > or >= behind `flow`",
                found: "~".to_owned(),
            }),
            None => {
                let before = self.rest;
                let value = self.value()?.parse();
                self.rest = if value.is_err() { before } else { self.rest };
                Ok(Node::Number(operator, value.map_err(|_| self.expected("a number"))?))
            }
        }
    }

    fn operator(&mut self) -> Result<Operator, FilterError> {
        for (sign, operator) in [
            ("==", Operator::Equal),
            ("!=", Operator::NotEqual),
            ("<=", Operator::LessOrEqual),
            (">=", Operator::GreaterOrEqual),
            ("<", Operator::Less),
            (">", Operator::Greater),
            ("~", Operator::Contains),
        ] {
            if self.take(sign) {
                return Ok(operator);
            }
        }
        Err(self.expected("==, !=, <, <=, >, >= or ~"))
    }

    fn value(&mut self) -> Result<&'t str, FilterError> {
        self.blanks();
        for quote in ['"', '\''] {
            if let Some(inside) = self.rest.strip_prefix(quote) {
                let Some((value, rest)) = inside.split_once(quote) else {
                    return Err(self.expected("a closing quote"));
                };
                self.rest = rest;
                return Ok(value);
            }
        }
        let ends = |c: char| c.is_whitespace() || "()&|!=<>~".contains(c);
        let (value, rest) = self.rest.split_at(self.rest.find(ends).unwrap_or(self.rest.len()));
        if value.is_empty() {
            return Err(self.expected("a value"));
        }
        self.rest = rest;
        Ok(value)
    }
}
