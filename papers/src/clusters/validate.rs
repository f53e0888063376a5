//! Makes any bytes from outside safe to use, or gives the reason of their refusal.
//!
//! Two passes over the body, the first from object to object, the second over every field; linear,
//! without recursion, no memory but one bit for every 8 bytes and type that occurs. Cycles and
//! sharing are legal: code that follows references must not recurse without a bound.

use crate::clusters::bits::Bits;
use crate::clusters::object::{OBJECT_HEADER_LEN, ObjectHeader, Refs, Run, Schema};
use crate::clusters::reference::{FixedAddress, Kind};
use crate::clusters::refusal::{Expected, Refusal};
use itg_arena::{ClusterError, FLAG_CRC, FLAG_FLAT, HEADER_LEN, Header};

/// Checks a header before anything else of the cluster has been read: kind, length up to `limit`
/// bytes, schema, identity.
pub(crate) fn check_header<S: Schema<K>, K: Kind>(
    bytes: &[u8],
    place: FixedAddress,
    limit: usize,
) -> Result<Header, Refusal> {
    let header = Header::parse(bytes)?;
    if header.kind != K::NUMBER {
        let expected = if K::NUMBER == 0 { "0 (relocatable)" } else { "1 (fixed address)" };
        return Err(ClusterError::Kind { got: header.kind, expected }.into());
    }
    if header.flags & FLAG_FLAT != 0 {
        let expected = "2 (flat) not to be among them";
        return Err(ClusterError::Flags { got: header.flags, expected }.into());
    }
    if header.total_len > limit as u64 {
        return Err(ClusterError::Limit { got: header.total_len, limit }.into());
    }
    if header.total_len > K::REACH {
        let limit = usize::try_from(K::REACH).unwrap_or(usize::MAX);
        return Err(ClusterError::Limit { got: header.total_len, limit }.into());
    }
    if header.schema != S::HASH {
        let (got, expected) = (header.schema, S::HASH);
        return Err(Refusal::Schema { got, expected, name: S::NAME });
    }
    for (field, got, expected) in [
        ("origin", u64::from(header.origin), u64::from(place.origin)),
        ("rank", u64::from(header.rank), u64::from(place.rank)),
        ("base", header.base, place.base),
    ] {
        if got != expected {
            return Err(Refusal::Place { field, got, expected });
        }
    }
    Ok(header)
}

/// Checks the body of a cluster whose header is good and returns where its objects start.
///
/// `bytes` is the whole cluster, as long as the header says.
pub(crate) fn check_body<S: Schema<K>, K: Kind>(
    bytes: &[u8],
    header: &Header,
    base: u64,
) -> Result<Vec<Bits>, Refusal> {
    if !bytes.as_ptr().cast::<u64>().is_aligned() {
        return Err(Refusal::Misaligned);
    }
    let crc = if header.flags & FLAG_CRC == 0 { 0 } else { crc32c::crc32c(&bytes[HEADER_LEN..]) };
    if crc != header.crc {
        return Err(ClusterError::Crc { stored: header.crc, computed: crc }.into());
    }
    let starts = mark_objects::<S, K>(bytes, header.objects)?;
    check_objects::<S, K>(bytes, &starts, base)?;
    check_root::<S, K>(&starts, header.root)?;
    Ok(starts)
}

/// First pass: from object to object. Afterwards every marked start has a type of the schema and a
/// length that is right for it and ends in the cluster.
fn mark_objects<S: Schema<K>, K: Kind>(bytes: &[u8], objects: u32) -> Result<Vec<Bits>, Refusal> {
    let mut starts = vec![Bits::empty(); S::TYPES.len()];
    let mut run = Run { starts: &mut starts, offset: HEADER_LEN, found: 0 };
    // The length is a multiple of 8, and so is every size: a header is whole when its first byte is.
    while let Some(header) = ObjectHeader::read(&bytes[run.offset..]) {
        let offset = run.offset;
        let left = (bytes.len() - offset) / 8;
        let Some(types) = S::TYPES.get(usize::from(header.id)) else {
            let types = S::TYPES.len();
            return Err(Refusal::Type { offset, id: header.id, types });
        };
        if header.flags != 0 {
            return Err(Refusal::ObjectFlags { offset, flags: header.flags });
        }
        let units = header.units as usize;
        if units > left {
            return Err(Refusal::Overrun { offset, units: header.units, left });
        }
        let contents = bytes.get(offset + OBJECT_HEADER_LEN..offset + units * 8);
        let expected = S::measure(header.id, contents.unwrap_or(&[]))
            .map(|len| len.div_ceil(8).saturating_add(OBJECT_HEADER_LEN / 8));
        if expected != Some(units) {
            let (name, units, expected) = (types.name, header.units, Expected(expected));
            return Err(Refusal::Size { offset, name, units, expected });
        }
        let of_type = &mut run.starts[usize::from(header.id)];
        of_type.reserve(bytes.len() / 8);
        of_type.insert(offset / 8);
        run.found += 1;
        run.offset += units * 8;
        // What follows is most often of the same type, and takes one comparison then.
        S::mark_run(header.id, bytes, &mut run);
    }
    let found = run.found;
    if found != u64::from(objects) {
        return Err(Refusal::Count { got: found, expected: objects });
    }
    Ok(starts)
}

/// Second pass: every field of every object.
fn check_objects<S: Schema<K>, K: Kind>(
    bytes: &[u8],
    starts: &[Bits],
    base: u64,
) -> Result<(), Refusal> {
    let refs = Refs::new::<S>(starts, base, bytes.len());
    let mut offset = HEADER_LEN;
    while let Some(header) = ObjectHeader::read(&bytes[offset..]) {
        match S::check_run(header.id, bytes, offset, &refs) {
            // Always forward, whatever the first pass has seen.
            Ok(end) => offset = end.max(offset + OBJECT_HEADER_LEN),
            Err((offset, fault)) => {
                let name = S::TYPES[usize::from(header.id)].name;
                return Err(Refusal::Field { offset, name, fault });
            }
        }
    }
    Ok(())
}

fn check_root<S: Schema<K>, K: Kind>(starts: &[Bits], root: u64) -> Result<(), Refusal> {
    if root == 0 {
        return Ok(());
    }
    let units = usize::try_from(root / 8).ok().filter(|_| root.is_multiple_of(8));
    let found = |units| starts.iter().zip(S::TYPES).find(|(starts, _)| starts.contains(units));
    match units.and_then(found) {
        None => Err(Refusal::Root { root }),
        Some((_, found)) if !found.root => Err(Refusal::RootType { root, name: found.name }),
        Some(_) => Ok(()),
    }
}
