use super::super::testing::{close, threads, values};
use super::*;
use proptest::prelude::*;

/// Images of that size with so many elements between pixels, rows and images.
pub(crate) fn image(height: usize, width: usize, channels: usize, gaps: [usize; 3]) -> Image {
    let pixel_stride = channels + gaps[0];
    let row_stride = width * pixel_stride + gaps[1];
    Image { height, width, image_stride: height * row_stride + gaps[2], row_stride, pixel_stride }
}

/// Where a channel of a pixel lies.
pub(crate) fn offset(image: &Image, n: usize, y: usize, x: usize, c: usize) -> usize {
    n * image.image_stride + y * image.row_stride + x * image.pixel_stride + c
}

const ALL: [PoolKind; 4] = [PoolKind::Max, PoolKind::Average, PoolKind::AverageWithPadding, PoolKind::Sum];

fn reference(
    kind: PoolKind,
    window: &Window,
    size: [usize; 2],
    at: [usize; 2],
    x: impl Fn(usize, usize) -> f32,
) -> f64 {
    let (mut inside, mut padded) = (vec![], 0);
    for (ky, kx) in (0..window.kernel[0]).flat_map(|y| (0..window.kernel[1]).map(move |x| (y, x))) {
        let y = (at[0] * window.stride[0] + ky * window.dilation[0]) as isize - window.before[0] as isize;
        let x_at = (at[1] * window.stride[1] + kx * window.dilation[1]) as isize - window.before[1] as isize;
        let (height, width) = (size[0] as isize, size[1] as isize);
        if y < height + window.after[0] as isize && x_at < width + window.after[1] as isize {
            padded += 1;
        }
        if (0..height).contains(&y) && (0..width).contains(&x_at) {
            inside.push(f64::from(x(y as usize, x_at as usize)));
        }
    }
    let sum: f64 = inside.iter().sum();
    match kind {
        PoolKind::Max => inside.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        PoolKind::Average => sum / inside.len().max(1) as f64,
        PoolKind::AverageWithPadding => sum / f64::from(padded.max(1)),
        PoolKind::Sum => sum,
    }
}

proptest! {
    #[test]
    fn every_window_is_pooled(
        (images, channels) in (1..3usize, prop_oneof![1..10usize, 30..50usize]),
        size in (1..12usize, 1..12usize),
        (kernel, stride, dilation) in ((1..4usize, 1..4usize), (1..4usize, 1..4usize), (1..3usize, 1..3usize)),
        (before, after) in ((0..3usize, 0..3usize), (0..3usize, 0..3usize)),
        (ceil, kind, count, seed) in (any::<bool>(), 0..4usize, 1..3usize, any::<u64>()),
        gaps in (0..3usize, 0..3usize, 0..3usize),
    ) {
        let (size, kind) = ([size.0, size.1], ALL[kind]);
        let window = Window {
            kernel: [kernel.0, kernel.1],
            stride: [stride.0, stride.1],
            dilation: [dilation.0, dilation.1],
            before: [before.0, before.1],
            after: [after.0, after.1],
        };
        let out = [0, 1].map(|a| {
            let padded = size[a] + window.before[a] + window.after[a];
            let reach = (window.kernel[a] - 1) * window.dilation[a] + 1;
            let rest = padded.saturating_sub(reach);
            if ceil { rest.div_ceil(window.stride[a]) + 1 } else { rest / window.stride[a] + 1 }
        });
        let gaps = [gaps.0, gaps.1, gaps.2];
        let x_image = image(size[0], size[1], channels, gaps);
        let out_image = image(out[0], out[1], channels, [gaps[2], gaps[0], gaps[1]]);
        let x = values(x_image.extent(images, channels), seed);
        let mut y = vec![7.0; out_image.extent(images, channels)];
        let pool = Pool::new(kind, images, channels, x_image, out_image, &window);
        pool.run(Source::from(&x[..]), Target::from(&mut y[..]), &threads(count));
        for (n, c) in (0..images).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            for (row, col) in (0..out[0]).flat_map(|y| (0..out[1]).map(move |x| (y, x))) {
                let expected = reference(kind, &window, size, [row, col], |y, at| x[offset(&x_image, n, y, at, c)]);
                let actual = y[offset(&out_image, n, row, col, c)];
                prop_assert!(close(actual, expected, 1e-5), "{row},{col}: {actual}, expected {expected}");
            }
        }
    }
}
