use super::super::testing::{at, indices, layout, shape, threads};
use super::*;
use proptest::prelude::*;

fn one<F: bytemuck::NoUninit, T: bytemuck::AnyBitPattern>(from: DType, to: DType, values: &[F]) -> Vec<T> {
    let cast = Cast::new(from, to, &[values.len()], &[1], &[1]).unwrap();
    let mut target = vec![0u8; values.len() * size_of::<T>()];
    cast.run(Source::from(bytemuck::cast_slice(values)), Target::from(&mut target[..]), &threads(1));
    target.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect()
}

#[test]
fn floats_go_to_whole_numbers_as_rust_does() {
    let x = [-1.9f32, 300.7, 1e20, -1e20, f32::NAN, 0.5, -0.0, f32::INFINITY];
    assert_eq!(one::<_, u8>(DType::F32, DType::U8, &x), x.map(|x| x as u8));
    assert_eq!(one::<_, i8>(DType::F32, DType::I8, &x), x.map(|x| x as i8));
    assert_eq!(one::<_, u16>(DType::F32, DType::U16, &x), x.map(|x| x as u16));
    assert_eq!(one::<_, i32>(DType::F32, DType::I32, &x), x.map(|x| x as i32));
    assert_eq!(one::<_, i64>(DType::F32, DType::I64, &x), x.map(|x| x as i64));
    assert_eq!(one::<_, u64>(DType::F32, DType::U64, &x), x.map(|x| x as u64));
    assert_eq!(one::<_, u8>(DType::F32, DType::Bool, &x), [1, 1, 1, 1, 1, 1, 0, 1]);
    assert_eq!(one::<_, u16>(DType::F32, DType::F16, &x), x.map(|x| f16::from_f32(x).to_bits()));
    assert_eq!(one::<_, u64>(DType::F32, DType::F64, &x), x.map(|x| f64::from(x).to_bits()));
}

#[test]
fn whole_numbers_wrap_and_bools_are_zero_or_one() {
    let x = [-1i64, 256, i64::MAX, 0, i64::MIN, 65_535];
    assert_eq!(one::<_, u8>(DType::I64, DType::U8, &x), x.map(|x| x as u8));
    assert_eq!(one::<_, i32>(DType::I64, DType::I32, &x), x.map(|x| x as i32));
    assert_eq!(one::<_, f32>(DType::I64, DType::F32, &x), x.map(|x| x as f32));
    assert_eq!(one::<_, u8>(DType::I64, DType::Bool, &x), [1, 1, 1, 0, 1, 1]);
    assert_eq!(one::<_, f32>(DType::Bool, DType::F32, &[0u8, 1, 2, 255]), [0.0, 1.0, 1.0, 1.0]);
    assert_eq!(one::<_, u8>(DType::Bool, DType::Bool, &[0u8, 1, 2, 255]), [0, 1, 1, 1]);
    let halves = [0u16, 0x8000, 0x3C00, 0xC100, 0x7C00];
    assert_eq!(one::<_, f32>(DType::F16, DType::F32, &halves), halves.map(|x| f16::from_bits(x).to_f32()));
    assert_eq!(one::<_, u8>(DType::F16, DType::Bool, &halves), [0, 0, 1, 1, 1]);
    assert_eq!(one::<_, i8>(DType::F16, DType::I8, &halves), [0, 0, 1, -2, 127]);
    assert_eq!(one::<_, u16>(DType::F16, DType::F16, &halves), halves);
}

#[test]
fn strings_have_no_number() {
    assert!(Cast::new(DType::Bytes, DType::F32, &[1], &[1], &[1]).is_none());
}

proptest! {
    #[test]
    fn any_layout_is_converted(
        shape in shape(0..=5, prop_oneof![Just(1usize), 0..9usize, 30..70usize], 3000),
        (from, to) in (layout(), layout()),
        (values, count) in (any::<u64>(), 1..3usize),
    ) {
        let (strides, out_strides) = (from.strides(&shape), to.strides(&shape));
        let x: Vec<i32> = (0..walk::span(&shape, &strides) as u64)
            .map(|i| (values.wrapping_mul(2 * i + 1) >> 7) as i32).collect();
        let mut out = vec![7.0f64; walk::span(&shape, &out_strides)];
        let cast = Cast::new(DType::I32, DType::F64, &shape, &strides, &out_strides).unwrap();
        let target = Target::from(bytemuck::cast_slice_mut(&mut out[..]));
        cast.run(Source::from(bytemuck::cast_slice(&x[..])), target, &threads(count));
        for index in indices(&shape) {
            prop_assert_eq!(out[at(&index, &out_strides)], f64::from(x[at(&index, &strides)]));
        }
    }
}
