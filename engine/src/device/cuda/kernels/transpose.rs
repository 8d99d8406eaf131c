//! Transposed convolutions: each phase of the output is a convolution of stride 1 on the input, with some of the taps
//! in reverse order, whose pixels lie `stride` apart (Dumoulin and Visin 2016, A guide to convolution arithmetic).

use super::conv::{Conv, Pixels};

/// A transposed convolution: pixel i of the input reaches pixel i · stride + tap · dilation − before of the output. The
/// fields are those of a [`Conv`], `input` being what is read and `before` what is cut off the output's beginning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Transpose(pub(crate) Conv);

/// The taps of a window, along one axis, that reach a phase of the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Taps {
    /// The last of them that there may be, counted backwards from here, and the distance of the next.
    last: usize,
    step: usize,
    count: usize,
    /// The distance of the input's pixels that they read, and the border before the first.
    dilation: usize,
    before: i32,
}

/// A phase of the output.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Phase {
    /// What computes it. Its weights are packed by itself, from [`Phase::tap`]s. Without taps it has no weights.
    pub(crate) conv: Conv,
    /// Elements from the first of the output and of the operand to the phase's.
    pub(crate) y_offset: usize,
    pub(crate) operand_offset: usize,
    taps: [Taps; 2],
}

impl Phase {
    /// The tap of the transposed convolution that the phase's tap (y, x) is.
    pub(crate) fn tap(&self, y: usize, x: usize) -> [usize; 2] {
        [self.taps[0].last - y * self.taps[0].step, self.taps[1].last - x * self.taps[1].step]
    }
}

/// The greatest number that divides both.
fn divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { divisor(b, a % b) }
}

impl Transpose {
    /// The taps that reach output pixels `phase`, `phase` + stride …, along an axis.
    fn taps(&self, axis: usize, phase: usize) -> Taps {
        let (stride, dilation) = (self.0.stride[axis], self.0.dilation[axis]);
        let shared = divisor(stride, dilation);
        let step = stride / shared;
        let from = phase as i64 + i64::from(self.0.before[axis]);
        let reaches = |tap: &usize| (from - (tap * dilation) as i64).rem_euclid(stride as i64) == 0;
        let Some(first) = (0..self.0.window[axis].min(step)).find(reaches) else {
            return Taps { last: 0, step, count: 0, dilation: 1, before: 0 };
        };
        let count = (self.0.window[axis] - first).div_ceil(step);
        // The last tap reads the pixel furthest back.
        let last = first + (count - 1) * step;
        let before = -(from - (last * dilation) as i64).div_euclid(stride as i64);
        Taps { last, step, count, dilation: dilation / shared, before: before as i32 }
    }

    /// The phases, which together write every pixel of the output once.
    pub(crate) fn phases(&self) -> Vec<Phase> {
        let conv = &self.0;
        let mut phases = vec![];
        for y in 0..conv.stride[0].min(conv.output[0]) {
            for x in 0..conv.stride[1].min(conv.output[1]) {
                let mut taps = [self.taps(0, y), self.taps(1, x)];
                if taps.iter().any(|axis| axis.count == 0) {
                    taps.iter_mut().for_each(|axis| axis.count = 0);
                }
                let apart = |s: Pixels| [s[0], s[1] * conv.stride[0], s[2] * conv.stride[1], s[3]];
                let offset = |s: Pixels| y * s[1] + x * s[2];
                phases.push(Phase {
                    conv: Conv {
                        output: [
                            (conv.output[0] - y).div_ceil(conv.stride[0]),
                            (conv.output[1] - x).div_ceil(conv.stride[1]),
                        ],
                        window: taps.map(|axis| axis.count),
                        stride: [1, 1],
                        dilation: taps.map(|axis| axis.dilation),
                        before: taps.map(|axis| axis.before),
                        y: apart(conv.y),
                        operand: apart(conv.operand),
                        ..*conv
                    },
                    y_offset: offset(conv.y),
                    operand_offset: offset(conv.operand),
                    taps,
                });
            }
        }
        phases
    }
}

#[cfg(test)]
mod tests {
    use super::super::conv::{Conv, dense};
    use super::super::tile::Precision;
    use super::Transpose;
    use std::collections::BTreeSet;

    /// Every pair of an input pixel and a tap meets the output pixel it should, in one phase.
    fn check(input: usize, output: usize, window: usize, stride: usize, dilation: usize, before: i32) {
        let pair = |x| [1, x];
        let conv = Conv {
            precision: Precision::F32,
            batch: 1,
            input: pair(input),
            output: pair(output),
            in_c: 1,
            out_c: 1,
            groups: 1,
            window: pair(window),
            stride: pair(stride),
            dilation: pair(dilation),
            before: [0, before],
            x: dense(pair(input), 1),
            y: dense(pair(output), 1),
            operand: [0; 4],
            epilogue: Default::default(),
        };
        let mut got = BTreeSet::new();
        let mut written = BTreeSet::new();
        for phase in Transpose(conv).phases() {
            let c = phase.conv;
            for q in 0..c.output[1] {
                let at = phase.y_offset + q * c.y[2];
                assert!(written.insert(at));
                for x in 0..c.window[1] {
                    let from = q as i64 + (x * c.dilation[1]) as i64 - i64::from(c.before[1]);
                    if (0..input as i64).contains(&from) {
                        assert!(got.insert((from as usize, phase.tap(0, x)[1], at)));
                    }
                }
            }
        }
        let mut want = BTreeSet::new();
        for i in 0..input {
            for tap in 0..window {
                let at = (i * stride + tap * dilation) as i64 - i64::from(before);
                if (0..output as i64).contains(&at) {
                    want.insert((i, tap, at as usize));
                }
            }
        }
        assert_eq!(written, (0..output).collect());
        assert_eq!(got, want, "{conv:?}");
    }

    #[test]
    fn phases_meet_the_taps_of_the_whole() {
        for window in 1..6 {
            for stride in 1..5 {
                for dilation in 1..4 {
                    for before in 0..3 {
                        let whole = 5 * stride + (window - 1) * dilation + 1;
                        if whole > 2 * before as usize {
                            check(6, whole - 2 * before as usize, window, stride, dilation, before);
                        }
                        check(6, whole + 1, window, stride, dilation, before);
                    }
                }
            }
        }
    }
}
