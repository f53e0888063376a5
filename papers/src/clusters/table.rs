//! Type tables: what the objects of a schema look like, as a text that is made when the program is
//! compiled. Its hash stands in every header; two nodes whose hashes differ compare the texts and
//! find the type that differs.
//!
//! One line a type, behind a line with the names of schema and kind:
//!
//! ```text
//! example.cars.1 relocatable
//! 0 root Car 16/4 { year@0:u32, engine@4:&Engine, name@8:&str, colour@12:Colour=u8(Red=0 Blue=1) }
//! 1 Engine 4/4 { power@0:u32 in 1..=2000 }
//! 2 str
//! ```
//!
//! `16/4` are size and alignment, `@4` the offset of a field. Bounds of integers are decimal, those
//! of floating-point fields are the bits of the number in hexadecimal.

use std::fmt;

use itg_arena::schema_hash;

/// Longest text of a type table in bytes.
pub const TABLE_LEN_MAX: usize = 16 * 1024;

/// The name of a type: what a reference says of its target.
#[derive(Clone, Copy, Debug)]
pub enum Name {
    /// `u32`, `Car`.
    Plain(&'static str),
    /// `&Car`.
    Ref(&'static Self),
    /// `[u32; 4]`.
    Fixed(&'static Self, usize),
    /// `[u32]`.
    Array(&'static Self),
}

/// Meaning of the bytes of a value.
#[derive(Clone, Copy, Debug)]
pub enum Shape {
    /// A number, `bool`, or `str`.
    Primitive(&'static str),
    /// One of a few values of the integer type `repr`.
    Enum {
        /// Name of the type.
        name: &'static str,
        /// Name of the integer type.
        repr: &'static str,
        /// Names and values.
        variants: &'static [(&'static str, u64)],
    },
    /// Fields, one behind the other.
    Struct {
        /// Name of the type.
        name: &'static str,
        /// Bytes, including the gaps between fields.
        size: usize,
        /// Alignment in bytes.
        align: usize,
        /// The fields in the order of their offsets.
        fields: &'static [Field],
    },
    /// A reference to an object of that type.
    Ref(Name),
    /// So many elements, in place.
    Fixed(&'static Self, usize),
    /// Any number of elements.
    Array(&'static Self),
}

/// A field of a type.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its distance from the first byte of the value.
    pub offset: usize,
    /// Shape of its value.
    pub shape: Shape,
    /// The values it may have, when not all of its type.
    pub bound: Option<Bound>,
}

/// Lowest and highest value of a numeric field.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    /// Of an integer.
    pub integer: (i128, i128),
    /// Of a floating-point number.
    pub float: (f64, f64),
}

/// A type of a schema.
#[derive(Clone, Copy, Debug)]
pub struct Type {
    /// Name that references to the type are declared with.
    pub name: Name,
    /// Meaning of its bytes.
    pub shape: Shape,
    /// True if it may be the root of a cluster.
    pub root: bool,
}

/// The text of a type table and its hash.
#[derive(Clone, Copy)]
pub struct Table {
    text: [u8; TABLE_LEN_MAX],
    len: usize,
}

impl Table {
    /// The table of the types of `schema` for one kind of references, numbered as they stand there.
    ///
    /// # Panics
    /// If its text is longer than [`TABLE_LEN_MAX`] or there are more than 65 536 types: when the
    /// program is compiled, since it is made then.
    #[must_use]
    pub const fn of(schema: &str, kind: &str, types: &[Type]) -> Self {
        assert!(types.len() <= 1 << 16, "too many types in a schema");
        let mut table = Self { text: [0; TABLE_LEN_MAX], len: 0 };
        table.push(schema);
        table.push(" ");
        table.push(kind);
        let mut number = 0;
        while number < types.len() {
            table.push("\n");
            table.push_number(number as u128, 10);
            table.push(if types[number].root { " root " } else { " " });
            table.push_shape(types[number].shape);
            number += 1;
        }
        table
    }

    /// The text.
    #[must_use]
    pub const fn text(&self) -> &str {
        match str::from_utf8(self.text.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "", // not reached: it is made of texts
        }
    }

    /// The [`schema_hash`] of the text.
    #[must_use]
    pub const fn hash(&self) -> u64 {
        schema_hash(self.text())
    }

    const fn push(&mut self, text: &str) {
        let bytes = text.as_bytes();
        assert!(self.len + bytes.len() <= TABLE_LEN_MAX, "the type table is too long: split it");
        self.text.split_at_mut(self.len).1.split_at_mut(bytes.len()).0.copy_from_slice(bytes);
        self.len += bytes.len();
    }

    const fn push_number(&mut self, number: u128, radix: u128) {
        if number >= radix {
            self.push_number(number / radix, radix);
        }
        let digit = (number % radix) as usize;
        self.push("0123456789abcdef".split_at(digit).1.split_at(1).0);
    }

    const fn push_integer(&mut self, number: i128) {
        if number < 0 {
            self.push("-");
        }
        self.push_number(number.unsigned_abs(), 10);
    }

    const fn push_name(&mut self, name: Name) {
        match name {
            Name::Plain(name) => self.push(name),
            Name::Ref(target) => {
                self.push("&");
                self.push_name(*target);
            }
            Name::Fixed(element, count) => {
                self.push("[");
                self.push_name(*element);
                self.push("; ");
                self.push_number(count as u128, 10);
                self.push("]");
            }
            Name::Array(element) => {
                self.push("[");
                self.push_name(*element);
                self.push("]");
            }
        }
    }

    const fn push_shape(&mut self, shape: Shape) {
        match shape {
            Shape::Primitive(name) => self.push(name),
            Shape::Ref(target) => {
                self.push("&");
                self.push_name(target);
            }
            Shape::Fixed(element, count) => {
                self.push("[");
                self.push_shape(*element);
                self.push("; ");
                self.push_number(count as u128, 10);
                self.push("]");
            }
            Shape::Array(element) => {
                self.push("[");
                self.push_shape(*element);
                self.push("]");
            }
            Shape::Enum { name, repr, variants } => {
                self.push(name);
                self.push("=");
                self.push(repr);
                let mut i = 0;
                while i < variants.len() {
                    self.push(if i == 0 { "(" } else { " " });
                    self.push(variants[i].0);
                    self.push("=");
                    self.push_number(variants[i].1 as u128, 10);
                    i += 1;
                }
                self.push(")");
            }
            Shape::Struct { name, size, align, fields } => {
                self.push(name);
                self.push(" ");
                self.push_number(size as u128, 10);
                self.push("/");
                self.push_number(align as u128, 10);
                let mut i = 0;
                while i < fields.len() {
                    self.push(if i == 0 { " { " } else { ", " });
                    self.push_field(&fields[i]);
                    i += 1;
                }
                self.push(" }");
            }
        }
    }

    const fn push_field(&mut self, field: &Field) {
        self.push(field.name);
        self.push("@");
        self.push_number(field.offset as u128, 10);
        self.push(":");
        self.push_shape(field.shape);
        if let Some(bound) = field.bound {
            let float = matches!(field.shape, Shape::Primitive(name) if name.as_bytes()[0] == b'f');
            self.push(if float { " in 0x" } else { " in " });
            if float {
                self.push_number(bound.float.0.to_bits() as u128, 16);
                self.push("..=0x");
                self.push_number(bound.float.1.to_bits() as u128, 16);
            } else {
                self.push_integer(bound.integer.0);
                self.push("..=");
                self.push_integer(bound.integer.1);
            }
        }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain(name) => f.write_str(name),
            Self::Ref(target) => write!(f, "&{target}"),
            Self::Fixed(element, count) => write!(f, "[{element}; {count}]"),
            Self::Array(element) => write!(f, "[{element}]"),
        }
    }
}

/// Two nodes that do not mean the same by the same schema.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SchemaMismatch {
    /// They speak of different schemas, or kinds of references.
    #[error("schema `{here}` here, `{there}` there: the two sides do not use the same objects")]
    Schema {
        /// Name and kind here.
        here: String,
        /// Name and kind there.
        there: String,
    },
    /// A type is not the same.
    #[error("type `{name}` differs: `{here}` here, `{there}` there; both sides need one version")]
    Type {
        /// Its name.
        name: String,
        /// Its line here.
        here: String,
        /// Its line there.
        there: String,
    },
    /// A type is missing on one side.
    #[error("type `{name}` is known only {side}: both sides need one version of the schema")]
    Missing {
        /// Its name.
        name: String,
        /// `here` or `there`.
        side: &'static str,
    },
}

/// Compares the type table of this node with the text that another node sent of its own, and names
/// the first type that differs.
///
/// The text of the other node is shortened and its control characters are escaped in the error.
///
/// # Errors
/// When the texts differ.
pub fn compare_tables(here: &str, there: &str) -> Result<(), SchemaMismatch> {
    let (mut ours, mut theirs) = (here.split('\n'), there.split('\n'));
    let (our_head, their_head) = (ours.next(), theirs.next());
    if our_head != their_head {
        let (here, there) = (shown(our_head.unwrap_or("")), shown(their_head.unwrap_or("")));
        return Err(SchemaMismatch::Schema { here, there });
    }
    let name_of = |line: &str| {
        let words: Vec<_> = line.split(' ').skip(1).filter(|word| *word != "root").collect();
        let plain = !words.first().is_some_and(|word| word.starts_with('['));
        shown(if plain { words.first().copied().unwrap_or("") } else { line })
    };
    loop {
        match (ours.next(), theirs.next()) {
            (None, None) => return Ok(()),
            (Some(line), None) => {
                return Err(SchemaMismatch::Missing { name: name_of(line), side: "here" });
            }
            (None, Some(line)) => {
                return Err(SchemaMismatch::Missing { name: name_of(line), side: "there" });
            }
            (Some(ours), Some(theirs)) if ours != theirs => {
                let (here, there) = (shown(ours), shown(theirs));
                return Err(SchemaMismatch::Type { name: name_of(ours), here, there });
            }
            _ => {}
        }
    }
}

fn shown(text: &str) -> String {
    const CHARS: usize = 240;
    let mut shown: String = text.chars().take(CHARS).flat_map(|c| c.escape_debug()).collect();
    if text.chars().nth(CHARS).is_some() {
        shown.push('…');
    }
    shown
}
