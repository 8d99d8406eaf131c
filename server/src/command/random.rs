//! Random numbers that are the same at every start.

/// splitmix64: Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    /// The increment of its state, and far enough apart for neighbouring seeds.
    const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Random {
        Random(seed.wrapping_add(Random::STEP))
    }

    /// 64 bits.
    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(Random::STEP);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 to below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }
}
