//! The validator again, slow and plain, for the schema `Graph` only: what the real one is held
//! against. It knows the layout from the byte table of `docs/formats.md` and from nothing else.

use std::collections::BTreeMap;

use itg_papers::clusters::{Iso, Kind, Reloc, Schema};

use super::{Graph, ISO, LIMIT};

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte))
}

/// Numbers of the types in the schema.
const NODE: u64 = 0;
const STR: u64 = 1;
const NODES: u64 = 2;
const VALUES: u64 = 3;
const FLAGS: u64 = 4;
const TRACK: u64 = 5;
const LABEL: u64 = 6;

/// Returns true if `bytes` are a cluster.
pub fn is_cluster<K: Kind>(bytes: &[u8]) -> bool {
    check(bytes, K::NUMBER == Iso::NUMBER).is_some()
}

fn check(bytes: &[u8], iso: bool) -> Option<()> {
    let must = |good: bool| good.then_some(());
    let field = |offset: usize, len: usize| Some(number(bytes.get(offset..offset + len)?));
    must(bytes.get(..4)? == b"XPC1" && field(4, 2)? == 1 && field(6, 1)? == u64::from(iso))?;
    let flags = field(7, 1)?;
    let hash = if iso { <Graph as Schema<Iso>>::HASH } else { <Graph as Schema<Reloc>>::HASH };
    must(flags < 2 && field(8, 8)? == hash)?;
    must(
        field(16, 8)? == bytes.len() as u64
            && bytes.len() <= LIMIT
            && bytes.len().is_multiple_of(8),
    )?;
    let place = if iso { ISO } else { itg_papers::clusters::FixedAddress::default() };
    must(field(24, 4)? == u64::from(place.origin) && field(28, 4)? == u64::from(place.rank))?;
    must(field(32, 8)? == place.base && bytes.len() >= 64)?;
    let crc = if flags == 1 { crc32c::crc32c(&bytes[64..]) } else { 0 };
    must(field(52, 4)? == u64::from(crc))?;

    let (width, node) = if iso { (8, 96) } else { (4, 64) };
    let mut types = BTreeMap::new();
    let mut at = 64;
    while at < bytes.len() {
        let (id, size) = (field(at, 2)?, field(at + 4, 4)? * 8);
        must(field(at + 2, 2)? == 0 && size <= (bytes.len() - at) as u64)?;
        let array = |element: u128| Some(u128::from(field(at + 8, 8)?) * element + 16);
        let need = match id {
            NODE => 8 + node,
            STR | FLAGS => array(1)?,
            NODES => array(width as u128)?,
            VALUES => array(2)?,
            TRACK => array(8)?,
            LABEL => 16,
            _ => return None,
        };
        must(u128::from(size) == need.next_multiple_of(8))?;
        must(size >= 16)?; // the number of elements lies in the object
        types.insert(at, id);
        at += size as usize;
    }
    must(types.len() as u64 == field(48, 4)?)?;

    let leads_to = |at: usize, wanted: u64| {
        let word = field(at, width)?;
        let target = match word {
            0 => return Some(()),
            address if iso => address.checked_sub(place.base)?,
            units => units * 8,
        };
        must(types.get(&(target as usize)) == Some(&wanted))
    };
    let in_unit = |at: usize| {
        let value = f32::from_bits(field(at, 4)? as u32);
        must((-1.0..=1.0).contains(&value))
    };
    for (&at, &id) in &types {
        let contents = at + 8;
        let count = field(contents, 8)? as usize;
        match id {
            NODE => {
                let delta = field(contents + 10, 2)? as i16;
                let share = f64::from_bits(field(contents + 16, 8)?);
                must((-300..=300).contains(&delta) && (0.0..=1.0).contains(&share))?;
                must(field(contents + 24, 1)? < 3 && field(contents + 25, 1)? < 2)?;
                in_unit(contents + 28)?;
                in_unit(contents + 32)?;
                let refs = contents + if iso { 40 } else { 36 };
                let wanted = [NODE, NODE, STR, NODES, VALUES, FLAGS, TRACK];
                for (index, wanted) in wanted.into_iter().enumerate() {
                    leads_to(refs + index * width, wanted)?;
                }
            }
            STR => must(str::from_utf8(&bytes[contents + 8..contents + 8 + count]).is_ok())?,
            NODES => (0..count).try_for_each(|i| leads_to(contents + 8 + i * width, NODE))?,
            FLAGS => must(bytes[contents + 8..contents + 8 + count].iter().all(|&b| b < 2))?,
            TRACK => (0..2 * count).try_for_each(|i| in_unit(contents + 8 + i * 4))?,
            _ => {}
        }
    }
    let root = field(40, 8)?;
    must(root == 0 || types.get(&(root as usize)) == Some(&NODE))
}
