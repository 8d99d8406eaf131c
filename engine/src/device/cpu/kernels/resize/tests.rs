use super::super::pool::tests::{image, offset};
use super::super::testing::{close, threads, values};
use super::*;
use proptest::prelude::*;

fn mixes(len: usize, out: usize, count: usize, seed: u64) -> Vec<Mix> {
    let weights = values(out * TAPS, seed);
    (0..out)
        .map(|i| {
            let mut mix = Mix { count, ..Mix::default() };
            for tap in 0..count {
                mix.index[tap] = (i * len / out + tap).min(len - 1);
                mix.weight[tap] = if count == 1 { 1.0 } else { weights[i * TAPS + tap] / 4.0 };
            }
            mix
        })
        .collect()
}

proptest! {
    #[test]
    fn every_pixel_is_the_mix_of_its_tables(
        (images, channels) in (1..3usize, prop_oneof![1..10usize, 30..80usize]),
        (height, width, out_height, out_width) in (1..8usize, 1..8usize, 1..15usize, 1..15usize),
        (rows, cols, count, seed) in (0..3usize, 0..3usize, 1..3usize, any::<u64>()),
        gaps in (0..3usize, 0..3usize, 0..3usize),
    ) {
        let taps = [1, 2, 4];
        let (rows, cols) = (mixes(height, out_height, taps[rows], seed), mixes(width, out_width, taps[cols], !seed));
        let gaps = [gaps.0, gaps.1, gaps.2];
        let x_image = image(height, width, channels, gaps);
        let out_image = image(out_height, out_width, channels, [gaps[2], gaps[0], gaps[1]]);
        let x = values(x_image.extent(images, channels), seed);
        let mut out = vec![7.0; out_image.extent(images, channels)];
        let resize = Resize::new(images, channels, x_image, out_image, rows.clone(), cols.clone());
        resize.run(Source::from(&x[..]), Target::from(&mut out[..]), &threads(count));
        for (n, c) in (0..images).flat_map(|n| (0..channels).map(move |c| (n, c))) {
            for (y, row) in rows.iter().enumerate() {
                for (at, col) in cols.iter().enumerate() {
                    let mut expected = 0.0;
                    for j in 0..row.count {
                        for i in 0..col.count {
                            let pixel = x[offset(&x_image, n, row.index[j], col.index[i], c)];
                            expected += f64::from(row.weight[j] * col.weight[i]) * f64::from(pixel);
                        }
                    }
                    prop_assert!(close(out[offset(&out_image, n, y, at, c)], expected, 1e-5));
                }
            }
        }
    }
}
