//! Reasons for which bytes are refused as a cluster, or a value is not taken into one.

use std::fmt;

use crate::clusters::table::Name;
use itg_arena::ClusterError;

/// Bytes that are not a cluster of this schema. Every variant names the place in bytes from the start
/// of the cluster.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// No header, or one that says something impossible; a body that does not match its checksum.
    #[error(transparent)]
    Header(#[from] ClusterError),
    /// Other types: compare the tables to learn which.
    #[error("cluster of schema {got:#018x}: expected {expected:#018x}, `{name}`")]
    Schema {
        /// Hash in the header.
        got: u64,
        /// Hash of the reader's table.
        expected: u64,
        /// Name of the reader's schema.
        name: &'static str,
    },
    /// Another cluster than the one that was agreed upon.
    #[error("cluster field `{field}` is {got:#x}: expected {expected:#x}")]
    Place {
        /// Name of the field.
        field: &'static str,
        /// Value in the header.
        got: u64,
        /// Value agreed upon.
        expected: u64,
    },
    /// More bytes than the header says.
    #[error("cluster of {len} bytes in {have} bytes: expected nothing behind it")]
    Trailing {
        /// Length in the header.
        len: u64,
        /// Bytes there are.
        have: usize,
    },
    /// The bytes do not lie where objects could be read in place.
    #[error("cluster at an address that is not a multiple of 8: copy it into a Buffer first")]
    Misaligned,
    /// Longer than the memory that is there for it.
    #[error("cluster of {len} bytes: there is memory for {have} bytes only")]
    Memory {
        /// Length in the header.
        len: u64,
        /// Bytes of memory.
        have: usize,
    },
    /// A type number that the schema does not have.
    #[error("object at byte {offset}: type number {id}, the schema has {types} types")]
    Type {
        /// Place of the object.
        offset: usize,
        /// Number in its header.
        id: u16,
        /// Types of the schema.
        types: usize,
    },
    /// Flags that do not exist.
    #[error("object at byte {offset}: flags {flags:#06x}, expected 0")]
    ObjectFlags {
        /// Place of the object.
        offset: usize,
        /// Flags in its header.
        flags: u16,
    },
    /// A size that an object of its type and contents cannot have.
    #[error(
        "object `{name}` at byte {offset}: size of {units} units of 8 bytes, expected {expected}"
    )]
    Size {
        /// Place of the object.
        offset: usize,
        /// Its type.
        name: Name,
        /// Units in its header.
        units: u32,
        /// Units its type and number of elements come to.
        expected: Expected,
    },
    /// An object that ends behind the cluster.
    #[error("object at byte {offset}: size of {units} units of 8 bytes, only {left} are left")]
    Overrun {
        /// Place of the object.
        offset: usize,
        /// Units in its header.
        units: u32,
        /// Units left in the cluster.
        left: usize,
    },
    /// Not as many objects as the header says.
    #[error("cluster of {got} objects: its header says {expected}")]
    Count {
        /// Objects found.
        got: u64,
        /// Objects in the header.
        expected: u32,
    },
    /// A field of an object is not as declared.
    #[error("object `{name}` at byte {offset}, byte {}: {fault}", .offset + .fault.offset())]
    Field {
        /// Place of the object.
        offset: usize,
        /// Its type.
        name: Name,
        /// Fault of the field.
        fault: Fault,
    },
    /// The root is not the start of an object.
    #[error("root at byte {root}: no object starts there")]
    Root {
        /// Offset in the header.
        root: u64,
    },
    /// The root is of a type that may not be one.
    #[error("root at byte {root}: a `{name}` may not be the root of a cluster")]
    RootType {
        /// Offset in the header.
        root: u64,
        /// Its type.
        name: Name,
    },
}

/// Units an object should have.
#[derive(Clone, Copy, Debug)]
pub struct Expected(pub(crate) Option<usize>);

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(units) => write!(f, "{units}"),
            None => f.write_str("a number of elements that fits"),
        }
    }
}

/// A value that is not as its type declares it.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    reason: Reason,
    /// Bytes from the start of the value.
    offset: usize,
    field: Option<&'static str>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Reason {
    NoValue { got: u64 },
    Range,
    Utf8,
    Unaligned { number: u64 },
    Outside { number: u64 },
    NoObject { number: u64 },
    Target { number: u64, got: Name, expected: Name },
}

impl Fault {
    #[cold]
    pub(crate) const fn new(reason: Reason) -> Self {
        Self { reason, offset: 0, field: None }
    }

    /// A number outside the declared bounds.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub const fn range() -> Self {
        Self::new(Reason::Range)
    }

    /// Bits that are no value of their type.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub fn no_value(bytes: &[u8]) -> Self {
        let low = bytes.iter().take(8).rev();
        Self::new(Reason::NoValue { got: low.fold(0, |got, &byte| got << 8 | u64::from(byte)) })
    }

    /// The same fault, told of a value that has this one `offset` bytes from its start.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub const fn inside(mut self, offset: usize) -> Self {
        self.offset += offset;
        self
    }

    /// The same, in a field; the name of the innermost field is kept.
    #[doc(hidden)]
    #[cold]
    #[must_use]
    pub fn in_field(mut self, offset: usize, field: &'static str) -> Self {
        self.field.get_or_insert(field);
        self.inside(offset)
    }

    /// Place of the fault, in bytes from the start of the object's header.
    #[must_use]
    pub const fn offset(&self) -> usize {
        crate::clusters::object::OBJECT_HEADER_LEN + self.offset
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = self.field {
            write!(f, "field `{field}`: ")?;
        }
        match self.reason {
            Reason::NoValue { got } => write!(f, "{got} is no value of its type"),
            Reason::Range => f.write_str("the number is outside its declared bounds"),
            Reason::Utf8 => f.write_str("the text is not UTF-8"),
            Reason::Unaligned { number } => {
                write!(f, "reference {number:#x} is not a multiple of 8 bytes into the cluster")
            }
            Reason::Outside { number } => {
                write!(f, "reference {number:#x} leads out of the cluster")
            }
            Reason::NoObject { number } => {
                write!(f, "reference {number:#x} does not lead to the start of an object")
            }
            Reason::Target { number, got, expected } => {
                write!(f, "reference {number:#x} leads to a `{got}`, expected a `{expected}`")
            }
        }
    }
}

impl std::error::Error for Fault {}

/// A value that cannot be taken into a cluster.
#[derive(Clone, Copy, Debug, thiserror::Error)]
pub enum StoreError {
    /// No room.
    #[error("no room for an object of {need} bytes in a cluster of {used} bytes: at most {limit}")]
    Full {
        /// Bytes of the object, its header included.
        need: usize,
        /// Bytes in use.
        used: usize,
        /// Bytes there may be; what the memory or the kind of cluster allows.
        limit: u64,
    },
    /// A field outside its bounds, or a reference of another cluster.
    #[error("`{name}` cannot be stored: {fault}")]
    Fault {
        /// Type of the value.
        name: Name,
        /// Fault of the value.
        fault: Fault,
    },
    /// An element that the array does not have.
    #[error("element {index} of an array of {len}: there is none")]
    Index {
        /// Index asked for.
        index: usize,
        /// Elements there are.
        len: usize,
    },
    /// The reference to change something at is null.
    #[error("a null reference leads to no `{name}` that could be changed")]
    Null {
        /// Type asked for.
        name: Name,
    },
}
