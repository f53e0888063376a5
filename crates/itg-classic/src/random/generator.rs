//! The uniform source: two multiply-with-carry registers of eight 16-bit numbers each.

/// Coefficients of the first register, for its newest number first.
const A: [i32; 8] = [1941, 1860, 1812, 1776, 1492, 1215, 1066, 12013];
/// Coefficients of the second register.
const B: [i32; 8] = [1111, 2222, 3333, 4444, 5555, 6666, 7777, 9272];

/// A seed outside (0, 1).
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("seed {0}: expected a number above 0 and below 1")]
pub struct SeedError(pub f64);

/// Eight previous numbers, newest first, and a carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Register {
    past: [i16; 8],
    carry: i16,
}

impl Register {
    #[allow(clippy::cast_possible_truncation, reason = "low and high half of a word")]
    fn step(&mut self, coefficients: &[i32; 8]) -> i16 {
        let products =
            self.past.iter().zip(coefficients).map(|(&v, c)| i32::from(v).wrapping_mul(*c));
        let sum = products.fold(i32::from(self.carry), i32::wrapping_add);
        self.past.copy_within(..7, 1);
        self.past[0] = sum as i16;
        self.carry = (sum >> 16) as i16;
        self.past[0]
    }
}

/// The generator. Cloning it repeats the sequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generator {
    a: Register,
    b: Register,
}

impl Generator {
    /// Starts the sequence of `seed`, above 0 and below 1.
    ///
    /// # Errors
    /// [`SeedError`] for anything else.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "below 2^31")]
    pub fn new(seed: f64) -> Result<Self, SeedError> {
        if !(seed > 0.0 && seed < 1.0) {
            return Err(SeedError(seed));
        }
        let mut n = (seed * 2_147_483_648.0) as u32;
        let mut fill = [0_i16; 18];
        for word in &mut fill {
            n = (n & 0xffff).wrapping_mul(30_903).wrapping_add(n >> 16);
            *word = n as u16 as i16;
        }
        let register = |words: &[i16]| {
            let mut past = [0; 8];
            past.copy_from_slice(&words[1..9]);
            Register { past, carry: words[0] & 0x7fff }
        };
        Ok(Self { a: register(&fill[..9]), b: register(&fill[9..]) })
    }

    /// The next number, above 0 and below 1.
    #[allow(clippy::cast_sign_loss, reason = "the bits of a word")]
    pub fn uniform(&mut self) -> f64 {
        let high = i32::from(self.a.step(&A)) << 16;
        let word = high.wrapping_add(i32::from(self.b.step(&B))) as u32;
        (f64::from(word) + 0.5) / 4_294_967_296.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_numbers_are_those_of_the_real_program() {
        // `-s 0.5 -u 100 1000`
        let mut generator = Generator::new(0.5).expect("a good seed");
        let sizes: Vec<u32> = (0..10)
            .map(|_| {
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small")]
                let size = 900.0_f64.mul_add(generator.uniform(), 100.0) as u32;
                size
            })
            .collect();
        assert_eq!(sizes, [653, 314, 669, 303, 783, 591, 528, 761, 639, 699]);
    }

    #[test]
    fn seeds_are_between_0_and_1() {
        for seed in [0.0, 1.0, -0.1, 2.0, f64::NAN, f64::INFINITY] {
            assert!(Generator::new(seed).is_err(), "seed {seed}");
        }
        assert!(Generator::new(1e-12).is_ok());
    }
}
