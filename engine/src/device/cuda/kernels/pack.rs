//! How constant right sides are laid out: as a stage of tile.cuh wants them in shared memory, so that a kernel copies
//! them there as they are.
//!
//! `[group][block of k][row][128 bytes]`: a row is a column of B (an output channel), rows are filled up to a multiple
//! of 8 and k to whole blocks with zeros. Of the eight chunks of 16 bytes of a row's 128, chunk c lies at position
//! c ^ (row % 8). Along k lie the window's taps in row-major order, each with all of its channels, which are filled up
//! to whole chunks where there are enough of them to be read so.

use super::tile::Precision;
use half::f16;

/// The shape of packed weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Packed {
    /// Groups, each with its own product.
    pub(crate) groups: usize,
    /// Columns of B, or output channels, of a group.
    pub(crate) n: usize,
    /// Taps of the window, 1 for a product.
    pub(crate) taps: usize,
    /// Input channels of a group, or k of a product.
    pub(crate) channels: usize,
    /// How they are stored.
    pub(crate) precision: Precision,
}

impl Packed {
    /// Channels that a tap has room for: a few of them follow each other without a gap and are read one by one.
    pub(crate) fn tap_channels(&self) -> usize {
        let chunk = self.precision.chunk();
        if self.channels < chunk { self.channels } else { self.channels.next_multiple_of(chunk) }
    }

    /// Elements along k.
    pub(crate) fn k(&self) -> usize {
        self.taps * self.tap_channels()
    }

    /// Blocks of 128 bytes along k.
    pub(crate) fn k_blocks(&self) -> usize {
        self.k().div_ceil(self.precision.block())
    }

    /// Rows of a block.
    pub(crate) fn rows(&self) -> usize {
        self.n.next_multiple_of(8)
    }

    /// Bytes of a group.
    pub(crate) fn group_bytes(&self) -> usize {
        self.k_blocks() * self.rows() * 128
    }

    /// Bytes of all.
    pub(crate) fn bytes(&self) -> usize {
        self.groups * self.group_bytes()
    }

    /// Writes the packed form of weights whose element (output channel of all groups, channel, tap) is what `weight`
    /// says. `out` has [`Packed::bytes`].
    pub(crate) fn pack(&self, weight: impl Fn(usize, usize, usize) -> f32, out: &mut [u8]) {
        let (rows, size, tap_channels) = (self.rows(), self.precision.bytes(), self.tap_channels());
        for (at, bytes) in out.chunks_exact_mut(16).take(self.bytes() / 16).enumerate() {
            let (line, position) = (at / 8, at % 8);
            let (row, block, group) =
                (line % rows, line / rows % self.k_blocks(), line / rows / self.k_blocks());
            let first = block * self.precision.block() + (position ^ (row % 8)) * self.precision.chunk();
            for (i, element) in bytes.chunks_exact_mut(size).enumerate() {
                let (tap, channel) = ((first + i) / tap_channels, (first + i) % tap_channels);
                let inside = row < self.n && tap < self.taps && channel < self.channels;
                let x = if inside { weight(group * self.n + row, channel, tap) } else { 0.0 };
                match self.precision {
                    Precision::F16 => element.copy_from_slice(&f16::from_f32(x).to_ne_bytes()),
                    Precision::Tf32 | Precision::F32 => element.copy_from_slice(&x.to_ne_bytes()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Packed, Precision};

    #[test]
    fn every_weight_is_where_the_kernels_look_for_it() {
        for (precision, groups, n, taps, channels) in
            [(Precision::F16, 1, 11, 9, 24), (Precision::F16, 2, 8, 1, 70), (Precision::F32, 3, 5, 4, 3)]
        {
            let packed = Packed { groups, n, taps, channels, precision };
            let mut bytes = vec![0xff; packed.bytes()];
            // Small whole numbers, which both types hold exactly; 0 is none of them.
            let number =
                |n: usize, channel: usize, tap: usize| ((n * channels + channel) * taps + tap) % 2000 + 1;
            packed.pack(|n, channel, tap| number(n, channel, tap) as f32, &mut bytes);
            let (size, chunk) = (precision.bytes(), precision.chunk());
            let mut found = 0;
            for group in 0..groups {
                for row in 0..packed.rows() {
                    for k in 0..packed.k_blocks() * precision.block() {
                        let (block, within) = (k / precision.block(), k % precision.block());
                        let line = (group * packed.k_blocks() + block) * packed.rows() + row;
                        let at = line * 128 + ((within / chunk) ^ (row % 8)) * 16 + within % chunk * size;
                        let x = match precision {
                            Precision::F16 => half::f16::from_ne_bytes([bytes[at], bytes[at + 1]]).to_f32(),
                            _ => f32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]),
                        };
                        let (tap, channel) = (k / packed.tap_channels(), k % packed.tap_channels());
                        let inside = row < n && tap < taps && channel < channels;
                        let want = if inside { number(group * n + row, channel, tap) } else { 0 };
                        assert_eq!(x, want as f32, "{packed:?} group {group} row {row} k {k}");
                        found += usize::from(inside);
                    }
                }
            }
            assert_eq!(found, groups * n * taps * channels);
        }
    }
}
