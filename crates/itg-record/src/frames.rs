//! A row of numbers in few bytes: frames of 128, each with a centre, a width and exceptions.
//!
//! A frame says its *centre* (the median), then each number's distance from it in a fixed number of
//! bits, zigzag: 0, −1, 1, −2, … Numbers that need more bits are *exceptions*: their lower bits stand
//! in the row, the upper ones follow with their place. The width is the one that costs least, so one
//! outlier costs a few bytes and not a wider frame. All arithmetic is modulo 2⁶⁴: every number fits.
//!
//! | bytes | field |
//! |---|---|
//! | 1–10 | centre: zigzag, variable length (7 bits a byte, lowest first, bit 7: another follows) |
//! | 1 | width in bits, 0 to 64 |
//! | 1 | number of exceptions |
//! | ⌈numbers · width / 8⌉ | lower bits, one number behind the other, lowest bit first |
//! | 1 each | places of the exceptions, ascending |
//! | 1–10 each | upper bits of the exceptions, variable length |
//!
//! Costs: a median and a look at each bit length when writing, a shift and a mask for each number
//! when reading. Source: Zukowski et al., "Super-scalar RAM-CPU cache compression" (PFOR), ICDE 2006.

use crate::error::ColumnsError;

/// Numbers in a full frame; the last one of a row may have fewer.
pub(crate) const FRAME: usize = 128;

/// 0, −1, 1, −2, … as 0, 1, 2, 3, …
const fn zigzag(value: u64) -> u64 {
    value << 1 ^ 0_u64.wrapping_sub(value >> 63)
}

const fn unzigzag(code: u64) -> u64 {
    code >> 1 ^ 0_u64.wrapping_sub(code & 1)
}

/// Bits that a number needs; none for 0.
const fn bits(code: u64) -> usize {
    (u64::BITS - code.leading_zeros()) as usize
}

/// The lowest `width` bits.
const fn mask(width: usize) -> u64 {
    if width == 64 { u64::MAX } else { (1 << width) - 1 }
}

/// Bytes of a number of that many bits in variable length.
const fn varint_len(bits: usize) -> usize {
    if bits == 0 { 1 } else { bits.div_ceil(7) }
}

fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// The next `len` bytes.
fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], ColumnsError> {
    input.split_off(..len).ok_or(ColumnsError::CutOff)
}

/// The next byte.
pub(crate) fn take_byte(input: &mut &[u8]) -> Result<u8, ColumnsError> {
    input.split_off_first().copied().ok_or(ColumnsError::CutOff)
}

fn take_varint(input: &mut &[u8]) -> Result<u64, ColumnsError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let byte = take_byte(input)?;
        let part = u64::from(byte & 0x7f);
        if part << shift >> shift != part {
            break;
        }
        value |= part << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(ColumnsError::Varint)
}

/// Parameters with which a frame takes the fewest bytes.
struct Plan {
    centre: u64,
    width: usize,
    exceptions: usize,
    /// Length of the written frame in bytes.
    len: usize,
}

impl Plan {
    fn of(frame: &[u64]) -> Self {
        let first = frame[0];
        if frame.iter().all(|value| *value == first) {
            let len = varint_len(bits(zigzag(first))) + 2;
            return Self { centre: first, width: 0, exceptions: 0, len };
        }
        let mut sorted = [0; FRAME];
        let sorted = &mut sorted[..frame.len()];
        sorted.copy_from_slice(frame);
        let (_, centre, _) =
            sorted.select_nth_unstable_by_key(frame.len() / 2, |value| value.cast_signed());
        let centre = *centre;
        let mut needs = [0_usize; 65];
        for value in frame {
            needs[bits(zigzag(value.wrapping_sub(centre)))] += 1;
        }
        let needs: Vec<(usize, usize)> =
            needs.into_iter().enumerate().filter(|need| need.1 > 0).collect();
        let widest = needs.last().map_or(0, |need| need.0);
        let cost = |width: usize| {
            let upper = needs.iter().rev().take_while(|need| need.0 > width);
            let (count, bytes) = upper.fold((0, 0), |(count, bytes), (need, many)| {
                (count + many, bytes + many * (1 + varint_len(need - width)))
            });
            (bytes + (frame.len() * width).div_ceil(8), width, count)
        };
        let (len, width, exceptions) = (0..=widest).map(cost).min().unwrap_or((0, 0, 0));
        let len = len + varint_len(bits(zigzag(centre))) + 2;
        Self { centre, width, exceptions, len }
    }

    #[allow(clippy::cast_possible_truncation, reason = "width ≤ 64, places and count ≤ 128")]
    fn put(&self, frame: &[u64], out: &mut Vec<u8>) {
        let Self { centre, width, exceptions, .. } = *self;
        put_varint(out, zigzag(centre));
        out.extend([width as u8, exceptions as u8]);
        let codes = frame.iter().map(|value| zigzag(value.wrapping_sub(centre)));
        if width > 0 {
            let (mut held, mut held_bits) = (0_u128, 0);
            for code in codes.clone() {
                held |= u128::from(code & mask(width)) << held_bits;
                held_bits += width;
                if held_bits >= 64 {
                    out.extend_from_slice(&(held as u64).to_le_bytes());
                    held >>= 64;
                    held_bits -= 64;
                }
            }
            out.extend_from_slice(&held.to_le_bytes()[..held_bits.div_ceil(8)]);
        }
        if exceptions > 0 {
            let upper = codes.enumerate().filter(|(_, code)| bits(*code) > width);
            out.extend(upper.clone().map(|(place, _)| place as u8));
            upper.for_each(|(_, code)| put_varint(out, code >> width));
        }
    }
}

/// Bytes that a frame of at most [`FRAME`] numbers takes.
pub(crate) fn frame_len(frame: &[u64]) -> usize {
    Plan::of(frame).len
}

/// Appends a row of numbers.
pub(crate) fn put_row(row: &[u64], out: &mut Vec<u8>) {
    row.chunks(FRAME).for_each(|frame| Plan::of(frame).put(frame, out));
}

/// Takes a row of `len` numbers off the front of `input`.
pub(crate) fn take_row(input: &mut &[u8], len: usize) -> Result<Vec<u64>, ColumnsError> {
    let mut row = Vec::with_capacity(len);
    while row.len() < len {
        take_frame(input, FRAME.min(len - row.len()), &mut row)?;
    }
    Ok(row)
}

#[allow(clippy::cast_possible_truncation, reason = "the lower bits are meant")]
fn take_frame(input: &mut &[u8], len: usize, row: &mut Vec<u64>) -> Result<(), ColumnsError> {
    let centre = unzigzag(take_varint(input)?);
    let width = usize::from(take_byte(input)?);
    let exceptions = usize::from(take_byte(input)?);
    if width > 64 {
        return Err(ColumnsError::Width { got: width });
    }
    let lower = take(input, (len * width).div_ceil(8))?;
    let places = take(input, exceptions)?;
    let start = row.len();
    if width == 0 {
        row.resize(start + len, 0);
    } else {
        let (mut held, mut held_bits, mask) = (0_u128, 0, mask(width));
        let mut words = lower.chunks(8);
        row.extend((0..len).map(|_| {
            if held_bits < width {
                // The bytes were counted: there is a word for every number that needs one.
                let word = words.next().map_or(0, |word| {
                    word.try_into().map(u64::from_le_bytes).unwrap_or_else(|_| {
                        let mut full = [0; 8];
                        full[..word.len()].copy_from_slice(word);
                        u64::from_le_bytes(full)
                    })
                });
                held |= u128::from(word) << held_bits;
                held_bits += 64;
            }
            let code = held as u64 & mask;
            held >>= width;
            held_bits -= width;
            code
        }));
    }
    let frame = &mut row[start..];
    if !places.is_sorted_by(|a, b| a < b) {
        return Err(ColumnsError::Exceptions);
    }
    for place in places {
        let upper = take_varint(input)?;
        let code = frame.get_mut(usize::from(*place)).ok_or(ColumnsError::Exceptions)?;
        if upper == 0 || bits(upper) + width > 64 {
            return Err(ColumnsError::Exceptions);
        }
        *code |= upper << width;
    }
    frame.iter_mut().for_each(|code| *code = unzigzag(*code).wrapping_add(centre));
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::cast_possible_truncation, reason = "small test values")]
    use proptest::prelude::*;

    use super::*;

    fn written(row: &[u64]) -> Vec<u8> {
        let mut out = Vec::new();
        put_row(row, &mut out);
        assert_eq!(out.len(), row.chunks(FRAME).map(frame_len).sum::<usize>(), "{row:?}");
        out
    }

    /// A row of numbers around any centre, of any spread, with outliers.
    fn any_row() -> impl Strategy<Value = Vec<u64>> {
        let number = |centre: u64, spread: u32| {
            prop_oneof![
                9 => any::<u64>().prop_map(move |x| (x >> spread).wrapping_add(centre)),
                1 => any::<u64>(),
            ]
        };
        (any::<u64>(), 0..64_u32).prop_flat_map(move |(centre, spread)| {
            prop::collection::vec(number(centre, spread), 0..300)
        })
    }

    #[test]
    fn bytes_are_as_the_table_says() {
        let rows: [(&[u64], &[u8]); 6] = [
            (&[], &[]),
            (&[0], &[0, 0, 0]),
            (&[64; 128], &[0x80, 1, 0, 0]),
            (&[u64::MAX, u64::MAX], &[1, 0, 0]),
            // Centre 11; distances -1, 0, 1 as 1, 0, 2 in two bits each.
            (&[10, 11, 12], &[22, 2, 0, 0b10_00_01]),
            // One outlier: its distance 2^20 - 7 as 2^21 - 14, all of it above a width of 0.
            (
                &[7, 7, 7, 7, 7, 7, 7, 1 << 20],
                &[14, 0, 1, 7, 0b1111_0010, 0b1111_1111, 0b0111_1111],
            ),
        ];
        for (row, bytes) in rows {
            assert_eq!(written(row), bytes, "{row:?}");
            assert_eq!(take_row(&mut &bytes[..], row.len()), Ok(row.to_vec()), "{row:?}");
        }
    }

    #[test]
    fn bytes_that_no_row_has_are_refused() {
        let rows: [(&str, usize, &[u8], ColumnsError); 9] = [
            ("nothing", 1, &[], ColumnsError::CutOff),
            ("no width", 1, &[0], ColumnsError::CutOff),
            ("no numbers", 9, &[0, 7, 0, 1, 2, 3, 4, 5, 6, 7], ColumnsError::CutOff),
            ("too wide", 1, &[0, 65, 0], ColumnsError::Width { got: 65 }),
            ("no places", 1, &[0, 0, 1], ColumnsError::CutOff),
            ("a place beyond", 3, &[0, 0, 1, 3, 1], ColumnsError::Exceptions),
            ("a place twice", 3, &[0, 0, 2, 1, 1, 1, 1], ColumnsError::Exceptions),
            ("no upper bits", 3, &[0, 0, 1, 1, 0], ColumnsError::Exceptions),
            ("a number without end", 1, &[0xff; 11], ColumnsError::Varint),
        ];
        for (name, len, bytes, want) in rows {
            assert_eq!(take_row(&mut &bytes[..], len), Err(want), "{name}");
        }
        let mut above = vec![0, 60, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1f];
        assert_eq!(take_row(&mut &above[..], 1), Err(ColumnsError::Exceptions), "65 bits");
        above[12] = 0x0f;
        assert!(take_row(&mut &above[..], 1).is_ok(), "64 bits");
    }

    #[test]
    fn varints_of_every_length_read_back() {
        for value in (0..64).flat_map(|bit| [(1 << bit) - 1, 1 << bit, u64::MAX >> bit]) {
            let mut bytes = Vec::new();
            put_varint(&mut bytes, value);
            assert_eq!(bytes.len(), varint_len(bits(value)), "{value}");
            assert_eq!(take_varint(&mut &bytes[..]), Ok(value));
            assert_eq!(take_varint(&mut &bytes[..bytes.len() - 1]), Err(ColumnsError::CutOff));
            assert_eq!(unzigzag(zigzag(value)), value);
        }
        assert_eq!([0, u64::MAX, 1, u64::MAX - 1].map(zigzag), [0, 1, 2, 3]);
    }

    proptest! {
        #[test]
        fn every_row_reads_back_and_nothing_behind_it_is_touched(row in any_row()) {
            let mut bytes = written(&row);
            bytes.push(0xa5);
            let mut input = &bytes[..];
            prop_assert_eq!(take_row(&mut input, row.len()), Ok(row));
            prop_assert_eq!(input, &[0xa5]);
        }

        /// The obvious search for the width beside the real one.
        #[test]
        fn no_width_is_shorter(row in any_row()) {
            for frame in row.chunks(FRAME) {
                let plan = Plan::of(frame);
                for width in 0..=64 {
                    let codes = frame.iter().map(|v| zigzag(v.wrapping_sub(plan.centre)));
                    let exceptions = codes.filter(|code| bits(*code) > width).count();
                    let mut out = Vec::new();
                    Plan { width, exceptions, ..plan }.put(frame, &mut out);
                    prop_assert!(out.len() >= plan.len, "{} bits: {}", width, out.len());
                }
            }
        }

        #[test]
        fn any_bytes_are_a_row_or_refused(bytes: Vec<u8>, len in 0_usize..1000) {
            if let Ok(row) = take_row(&mut &bytes[..], len) {
                prop_assert_eq!(row.len(), len);
            }
        }
    }
}
