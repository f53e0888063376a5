//! Memory of a cluster: its own, which grows, or memory of the caller, of fixed length.

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use itg_arena::HEADER_LEN;

/// Memory in which a cluster can be built or received.
///
/// An implementation that hands out other bytes than before breaks what the cluster says, never the
/// safety of the program: every access is checked.
pub trait Memory: AsRef<[u8]> + AsMut<[u8]> {
    /// Makes the memory at least `len` bytes long and keeps its contents; false when it cannot.
    fn grow(&mut self, len: usize) -> bool;
}

/// A piece as large as a cluster header, and aligned as one: what a [`Buffer`] is made of.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C, align(64))]
struct AlignedPiece([u8; HEADER_LEN]);

/// Memory of the program's own, aligned to 64 bytes, growing on demand. Fresh memory is zero.
#[derive(Clone, Debug, Default)]
pub struct Buffer {
    lines: Vec<AlignedPiece>,
}

impl Buffer {
    /// A buffer of `bytes` bytes, rounded up to a multiple of 64.
    ///
    /// # Panics
    /// If the memory is not to be had.
    #[must_use]
    pub fn with_capacity(bytes: usize) -> Self {
        let lines =
            AlignedPiece::new_vec_zeroed(bytes.div_ceil(HEADER_LEN)).expect("enough memory");
        Self { lines }
    }
}

impl AsRef<[u8]> for Buffer {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.lines.as_bytes()
    }
}

impl AsMut<[u8]> for Buffer {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self.lines.as_mut_bytes()
    }
}

impl Memory for Buffer {
    #[inline]
    fn grow(&mut self, len: usize) -> bool {
        let have = self.lines.len();
        let need = len.div_ceil(HEADER_LEN);
        if need <= have {
            return true;
        }
        if have == 0 {
            // Straight from the system, which has zeros at no cost.
            return AlignedPiece::new_vec_zeroed(need).map(|lines| self.lines = lines).is_ok();
        }
        // At least twice as much, so that building costs linear time.
        let target = need.max(2 * have);
        let fits = self.lines.try_reserve_exact(target - have).is_ok();
        if fits {
            self.lines.resize(target, AlignedPiece([0; HEADER_LEN]));
        }
        fits
    }
}

/// Memory that stays as long as it is and where it is: a mapping at a fixed address, say.
#[derive(Clone, Copy, Debug)]
pub struct Fixed<M>(pub M);

impl<M: AsRef<[u8]>> AsRef<[u8]> for Fixed<M> {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self.0.as_ref()
    }
}

impl<M: AsMut<[u8]>> AsMut<[u8]> for Fixed<M> {
    #[inline]
    fn as_mut(&mut self) -> &mut [u8] {
        self.0.as_mut()
    }
}

impl<M: AsRef<[u8]> + AsMut<[u8]>> Memory for Fixed<M> {
    #[inline]
    fn grow(&mut self, len: usize) -> bool {
        len <= self.0.as_ref().len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zero_and_keep_what_they_hold() {
        let mut buffer = Buffer::with_capacity(1);
        assert_eq!(buffer.as_ref(), [0; 64]);
        buffer.as_mut()[63] = 7;
        assert!(buffer.grow(65));
        assert_eq!(buffer.as_ref().len(), 128);
        assert_eq!(buffer.as_ref()[63], 7);
        assert!(buffer.as_ref()[64..].iter().all(|&byte| byte == 0));
        assert!((buffer.as_ref().as_ptr() as usize).is_multiple_of(64));
    }

    #[test]
    fn fixed_memory_does_not_grow() {
        let mut bytes = [0; 80];
        let mut memory = Fixed(&mut bytes[..]);
        assert!(memory.grow(80));
        assert!(!memory.grow(81));
    }
}
