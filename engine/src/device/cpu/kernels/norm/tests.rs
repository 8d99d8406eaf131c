use super::super::testing::{at, close, indices, layout, shape, threads, values};
use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn any_axes_of_any_layout_are_normalised(
        shape in shape(1..=5, prop_oneof![Just(1usize), 1..7usize, 8..70usize], 600),
        (chosen, scaled, biased) in (1..32u8, any::<u8>(), any::<u8>()),
        (from, to, scale, bias) in (layout(), layout(), layout(), layout()),
        (seed, rms, in_place, count) in (any::<u64>(), any::<bool>(), any::<bool>(), 1..3usize),
    ) {
        let bit = |mask: u8, axis: usize| mask >> axis & 1 == 1;
        let axes: Vec<usize> = (0..shape.len()).filter(|&axis| bit(chosen, axis)).collect();
        let kind = if rms { NormKind::Rms } else { NormKind::Layer };
        let strides = from.strides(&shape);
        let out_strides = if in_place { strides.clone() } else { to.strides(&shape) };
        // A parameter has the axes of its mask, and is none without any of the lowest bits.
        let parameter = |mask: u8, layout: &super::super::testing::Layout| {
            let own: Vec<usize> = (0..shape.len()).map(|a| if bit(mask, a) { shape[a] } else { 1 }).collect();
            let all = layout.strides(&own);
            let strides: Vec<usize> = (0..shape.len()).map(|a| if bit(mask, a) { all[a] } else { 0 }).collect();
            (values(walk::span(&own, &all), seed ^ u64::from(mask)), strides)
        };
        let (scale, scale_strides) = parameter(scaled, &scale);
        let (bias, bias_strides) = parameter(biased, &bias);
        let (has_scale, has_bias) = (scaled < 200, biased < 200);
        let mut x = values(walk::span(&shape, &strides), seed);
        let epsilon = 1e-3;
        let expected: Vec<f64> = indices(&shape).iter().map(|index| {
            let group: Vec<f64> = indices(&shape).iter()
                .filter(|other| (0..shape.len()).all(|a| axes.contains(&a) || other[a] == index[a]))
                .map(|other| f64::from(x[at(other, &strides)])).collect();
            let n = group.len() as f64;
            let mean = if rms { 0.0 } else { group.iter().sum::<f64>() / n };
            let variance = group.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / n;
            let y = (f64::from(x[at(index, &strides)]) - mean) / (variance + f64::from(epsilon)).sqrt();
            let scale = if has_scale { f64::from(scale[at(index, &scale_strides)]) } else { 1.0 };
            y * scale + if has_bias { f64::from(bias[at(index, &bias_strides)]) } else { 0.0 }
        }).collect();
        let norm = Norm::new(
            kind, &shape, &axes, &strides, &out_strides,
            has_scale.then_some(&scale_strides[..]), has_bias.then_some(&bias_strides[..]), epsilon,
        );
        let scale = has_scale.then_some(Source::from(&scale[..]));
        let bias = has_bias.then_some(Source::from(&bias[..]));
        let mut out = vec![7.0; walk::span(&shape, &out_strides)];
        if in_place {
            let target = Target::from(&mut x[..]);
            // SAFETY: the kernel is told that source and target are one.
            norm.run(unsafe { Source::new(target.as_ptr(), target.len()) }, scale, bias, target, &threads(count));
            out = x;
        } else {
            norm.run(Source::from(&x[..]), scale, bias, Target::from(&mut out[..]), &threads(count));
        }
        for (index, expected) in indices(&shape).iter().zip(expected) {
            let actual = out[at(index, &out_strides)];
            prop_assert!(close(actual, expected, 2e-5), "{index:?}: {actual}, expected {expected}");
        }
    }
}

#[test]
fn a_large_mean_does_not_hide_the_variance() {
    let x: Vec<f32> = (0..1000).map(|i| 4096.0 + (i % 2) as f32).collect();
    let mut out = vec![0.0; 1000];
    let norm = Norm::new(NormKind::Layer, &[1000], &[0], &[1], &[1], None, None, 0.0);
    norm.run(Source::from(&x[..]), None, None, Target::from(&mut out[..]), &threads(1));
    for (i, y) in out.iter().enumerate() {
        assert!((y.abs() - 1.0).abs() < 1e-3 && (*y > 0.0) == (i % 2 == 1), "{y}");
    }
}
