use proptest::prelude::*;

use super::super::matmul::tests::{close, noise};
use super::{Conv, ConvTranspose, Epilogue};
use crate::device::cpu::threads::Threads;

/// What a test does besides the convolution itself.
#[derive(Clone, Copy, Debug)]
struct How {
    threads: usize,
    bias: bool,
    residual: bool,
    clamp: bool,
    rows: bool,
    seed: u32,
}

fn how() -> impl Strategy<Value = How> {
    (1usize..4, any::<[bool; 4]>(), any::<u32>()).prop_map(
        |(threads, [bias, residual, clamp, rows], seed)| How { threads, bias, residual, clamp, rows, seed },
    )
}

/// Channels of input and output, and groups.
fn channels() -> impl Strategy<Value = (usize, usize, usize)> {
    prop_oneof![
        3 => (1usize..6, 1usize..70).prop_map(|(i, o)| (i, o, 1)),
        3 => (1usize..90, 1usize..50).prop_map(|(i, o)| (i, o, 1)),
        3 => (2usize..80).prop_map(|c| (c, c, c)),
        1 => (2usize..20, 2usize..4).prop_map(|(c, m)| (c, c * m, c)),
        2 => (1usize..12, 1usize..24, 2usize..5).prop_map(|(i, o, g)| (i * g, o * g, g)),
    ]
}

fn axis() -> impl Strategy<Value = (usize, usize, usize, usize, usize, usize)> {
    let kernel = prop_oneof![2 => Just(1usize), 3 => Just(3usize), 1 => Just(5usize), 1 => 2usize..8];
    let out = prop_oneof![1 => Just(1usize), 4 => 1usize..24];
    let dilation = prop_oneof![3 => Just(1usize), 1 => 2usize..4];
    (kernel, 1usize..4, dilation, 0usize..5, out, 0usize..4).prop_map(
        |(kernel, stride, dilation, pad, out, end)| {
            // As large an input as makes the padding at the end `end`, or some more.
            let reach = (out - 1) * stride + (kernel - 1) * dilation + 1;
            (kernel, stride, dilation, pad, out, reach.saturating_sub(pad + end).max(1))
        },
    )
}

fn conv() -> impl Strategy<Value = Conv> {
    let gaps = prop_oneof![2 => Just((0usize, 0usize)), 1 => (0usize..9, 0usize..9)];
    (1usize..4, channels(), axis(), axis(), gaps, any::<bool>()).prop_map(
        |(batch, channels, y, x, gaps, plain)| {
            let (in_c, out_c, groups) = channels;
            let conv = Conv {
                batch,
                in_h: y.5,
                in_w: x.5,
                in_c,
                out_h: y.4,
                out_w: x.4,
                out_c,
                kernel_h: y.0,
                kernel_w: x.0,
                stride_h: y.1,
                stride_w: x.1,
                dilation_h: y.2,
                dilation_w: x.2,
                pad_top: y.3,
                pad_left: x.3,
                groups,
                x_pixel_stride: in_c + gaps.0,
                out_pixel_stride: out_c + gaps.1,
            };
            if plain && conv.taps() == 1 {
                let (in_h, in_w) = (conv.out_h, conv.out_w);
                return Conv { in_h, in_w, stride_h: 1, stride_w: 1, pad_top: 0, pad_left: 0, ..conv };
            }
            conv
        },
    )
}

/// Pixels, channels and pixel stride of an output.
type Shape = (usize, usize, usize);

/// Runs `op(epilogue, out, threads)` and compares with `want`, to which the epilogue is added here.
fn check(
    how: &How,
    (pixels, channels, stride): Shape,
    terms: usize,
    want: &[f64],
    op: impl Fn(&Epilogue, &mut [f32], &Threads),
) -> Result<(), TestCaseError> {
    let bias = noise(channels, how.seed ^ 2);
    let residual = noise(pixels * (channels + 1), how.seed ^ 3);
    let clamp = how.clamp.then_some((-0.5, 1.5));
    let place = |row: usize, column: usize| (row * 10 + column) as f32 * 0.25;
    let add = |row: usize, rows: usize, block: &mut [f32], stride: usize, column: usize, columns: usize| {
        assert_eq!(block.len(), (rows - 1) * stride + columns);
        for r in 0..rows {
            for c in 0..columns {
                block[r * stride + c] += place(row + r, column + c);
            }
        }
    };
    let epilogue = Epilogue {
        bias: how.bias.then_some(&bias),
        residual: how.residual.then_some((&residual, channels + 1)),
        clamp,
        rows: how.rows.then_some(&add),
    };
    let gap = -77.123;
    let mut out = vec![gap; (pixels - 1) * stride + channels];
    op(&epilogue, &mut out, &Threads::new(how.threads).unwrap());
    for pixel in 0..pixels {
        for channel in 0..channels {
            let mut want = want[pixel * channels + channel];
            want += if how.bias { f64::from(bias[channel]) } else { 0.0 };
            want += if how.residual { f64::from(residual[pixel * (channels + 1) + channel]) } else { 0.0 };
            want = clamp.map_or(want, |(low, high)| want.clamp(f64::from(low), f64::from(high)));
            want += if how.rows { f64::from(place(pixel, channel)) } else { 0.0 };
            let got = out[pixel * stride + channel];
            prop_assert!(close(got, want, terms), "{got} for {want} at pixel {pixel}, channel {channel}");
        }
    }
    prop_assert_eq!(out.iter().filter(|&&x| x == gap).count(), out.len() - pixels * channels);
    Ok(())
}

fn check_conv(op: &Conv, how: &How) -> Result<(), TestCaseError> {
    let (group_in, group_out) = (op.in_c / op.groups, op.out_c / op.groups);
    let x = noise((op.batch * op.in_h * op.in_w - 1) * op.x_pixel_stride + op.in_c, how.seed);
    let weights = noise(op.out_c * op.taps() * group_in, how.seed ^ 1);
    let mut want = vec![];
    for pixel in 0..op.out_pixels() {
        let (image, oy, ox) = (pixel / (op.out_h * op.out_w), pixel / op.out_w % op.out_h, pixel % op.out_w);
        for oc in 0..op.out_c {
            let mut sum = 0.0;
            for tap in 0..op.taps() {
                let (ky, kx) = (tap / op.kernel_w, tap % op.kernel_w);
                let y = (oy * op.stride_h + ky * op.dilation_h).wrapping_sub(op.pad_top);
                let column = (ox * op.stride_w + kx * op.dilation_w).wrapping_sub(op.pad_left);
                if y < op.in_h && column < op.in_w {
                    let at = ((image * op.in_h + y) * op.in_w + column) * op.x_pixel_stride
                        + oc / group_out * group_in;
                    for c in 0..group_in {
                        let weight = weights[(oc * op.taps() + tap) * group_in + c];
                        sum += f64::from(x[at + c]) * f64::from(weight);
                    }
                }
            }
            want.push(sum);
        }
    }
    let mut packed = vec![f32::NAN; op.packed_len()];
    op.pack(&weights, &mut packed);
    check(how, (op.out_pixels(), op.out_c, op.out_pixel_stride), op.k(), &want, |epilogue, out, threads| {
        let mut scratch = vec![f32::NAN; op.scratch_len(how.threads)];
        op.run(&x, &packed, epilogue, out, &mut scratch, threads);
    })
}

fn check_transpose(op: &ConvTranspose, how: &How) -> Result<(), TestCaseError> {
    let (group_in, group_out) = (op.in_c / op.groups, op.out_c / op.groups);
    let x = noise((op.batch * op.in_h * op.in_w - 1) * op.x_pixel_stride + op.in_c, how.seed);
    let taps = op.kernel_h * op.kernel_w;
    let weights = noise(op.in_c * taps * group_out, how.seed ^ 1);
    let pixels = op.batch * op.out_h * op.out_w;
    let mut want = vec![0.0; pixels * op.out_c];
    for at in 0..op.batch * op.in_h * op.in_w * taps {
        let (pixel, ky, kx) = (at / taps, at % taps / op.kernel_w, at % op.kernel_w);
        let (image, y, column) = (pixel / (op.in_h * op.in_w), pixel / op.in_w % op.in_h, pixel % op.in_w);
        let oy = (y * op.stride_h + ky * op.dilation_h).wrapping_sub(op.pad_top);
        let ox = (column * op.stride_w + kx * op.dilation_w).wrapping_sub(op.pad_left);
        if oy >= op.out_h || ox >= op.out_w {
            continue;
        }
        for c in 0..op.in_c {
            for o in 0..group_out {
                let weight = weights[(c * taps + ky * op.kernel_w + kx) * group_out + o];
                let to = ((image * op.out_h + oy) * op.out_w + ox) * op.out_c + c / group_in * group_out + o;
                want[to] += f64::from(x[pixel * op.x_pixel_stride + c]) * f64::from(weight);
            }
        }
    }
    let mut packed = vec![f32::NAN; op.packed_len()];
    op.pack(&weights, &mut packed);
    check(how, (pixels, op.out_c, op.out_pixel_stride), taps * group_in, &want, |epilogue, out, threads| {
        let mut scratch = vec![f32::NAN; op.scratch_len(how.threads)];
        op.run(&x, &packed, epilogue, out, &mut scratch, threads);
    })
}

/// A transposed convolution whose sizes are those of a convolution, input and output exchanged.
fn transposed(conv: &Conv) -> ConvTranspose {
    ConvTranspose {
        batch: conv.batch,
        in_h: conv.out_h,
        in_w: conv.out_w,
        in_c: conv.in_c,
        out_h: conv.in_h,
        out_w: conv.in_w,
        out_c: conv.out_c,
        kernel_h: conv.kernel_h,
        kernel_w: conv.kernel_w,
        stride_h: conv.stride_h,
        stride_w: conv.stride_w,
        dilation_h: conv.dilation_h,
        dilation_w: conv.dilation_w,
        pad_top: conv.pad_top,
        pad_left: conv.pad_left,
        groups: conv.groups,
        x_pixel_stride: conv.x_pixel_stride,
        out_pixel_stride: conv.out_pixel_stride,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn convolutions_are_those_of_a_simple_loop(op in conv(), how in how()) {
        check_conv(&op, &how)?;
    }

    #[test]
    fn transposed_convolutions_are_those_of_a_simple_loop(op in conv(), how in how()) {
        check_transpose(&transposed(&op), &how)?;
    }
}
