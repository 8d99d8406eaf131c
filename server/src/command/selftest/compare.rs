//! What counts as equal: floats within a bound, everything else exactly.

use plimsoll_engine::import::Signature;
use plimsoll_engine::tensor::{DType, Tensor};

/// How far outputs are apart.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Difference {
    /// The largest difference as a share of the bound.
    pub(super) worst: f64,
    /// Where it is and what was expected, where it is above the bound.
    pub(super) place: Option<String>,
}

/// How near floats must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    /// |a − b| ≤ r·(|b| + 0.01·max(1, max|b|)).
    Each,
    /// The same, or |a − b| ≤ r·max|b|: matrix units add up in another order and with other roundings.
    Largest,
    /// |a − b| ≤ 0.02·max|b|: numbers are rounded to eleven bits on their way.
    Rounded,
}

/// Compares outputs in the signature's order, r of the bound being 1e-4, or 1e-3 for half floats, of which the next one
/// is as far away. NaN equals NaN.
pub(super) fn difference(
    signature: &Signature,
    got: &[Tensor],
    wanted: &[Tensor],
    bound: Bound,
) -> Difference {
    let mut all = Difference { worst: 0.0, place: None };
    if got.len() != wanted.len() {
        return apart(format!("{} outputs, expected {}", got.len(), wanted.len()));
    }
    for (at, (got, wanted)) in got.iter().zip(wanted).enumerate() {
        let one = of_tensor(got, wanted, bound);
        if one.worst > all.worst {
            let name = signature.outputs.get(at).map(|port| port.name.as_str()).unwrap_or_default();
            all = Difference { worst: one.worst, place: one.place.map(|place| format!("`{name}`: {place}")) };
        }
    }
    all
}

fn apart(place: String) -> Difference {
    Difference { worst: f64::INFINITY, place: Some(place) }
}

fn of_tensor(got: &Tensor, wanted: &Tensor, bound: Bound) -> Difference {
    if got.dtype() != wanted.dtype() || got.shape() != wanted.shape() {
        let (a, b) = (got.dtype(), wanted.dtype());
        return apart(format!("{a} {:?}, expected {b} {:?}", got.shape(), wanted.shape()));
    }
    if got.data() == wanted.data() {
        return Difference { worst: 0.0, place: None };
    }
    let (Some(a), Some(b), Some(relative)) = (floats(got), floats(wanted), relative(got.dtype())) else {
        return apart(format!("values of {} differ", got.dtype()));
    };
    let largest = b.iter().filter(|x| x.is_finite()).fold(0.0, |top: f64, x| top.max(x.abs()));
    let top = largest.max(1.0);
    let (relative, least) = match bound {
        Bound::Each => (relative, 0.0),
        Bound::Largest => (relative, largest),
        Bound::Rounded => (relative.max(0.02), largest),
    };
    let mut worst = (0.0, 0);
    for (at, (&x, &y)) in a.iter().zip(&b).enumerate() {
        let share = match x == y || (x.is_nan() && y.is_nan()) {
            true => 0.0,
            false if !x.is_finite() || !y.is_finite() => f64::INFINITY,
            false => (x - y).abs() / (relative * (y.abs() + 0.01 * top).max(least)),
        };
        if share > worst.0 {
            worst = (share, at);
        }
    }
    let (share, at) = worst;
    let place = format!("element {at} is {:e}, expected {:e}; the largest is {top:e}", a[at], b[at]);
    Difference { worst: share, place: (share > 1.0).then_some(place) }
}

fn relative(dtype: DType) -> Option<f64> {
    match dtype {
        DType::F32 | DType::F64 => Some(1e-4),
        DType::F16 => Some(1e-3),
        _ => None,
    }
}

fn floats(tensor: &Tensor) -> Option<Vec<f64>> {
    let bytes = tensor.as_bytes()?;
    let read = |size: usize| bytes.chunks_exact(size);
    match tensor.dtype() {
        DType::F16 => Some(read(2).map(|b| bytemuck::pod_read_unaligned::<half::f16>(b).to_f64()).collect()),
        DType::F32 => Some(read(4).map(|b| f64::from(bytemuck::pod_read_unaligned::<f32>(b))).collect()),
        DType::F64 => Some(read(8).map(bytemuck::pod_read_unaligned::<f64>).collect()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(got: &[f32], wanted: &[f32]) -> Difference {
        let tensor = |values: &[f32]| Tensor::from_slice(DType::F32, &[values.len()], values).unwrap();
        difference(&Signature::default(), &[tensor(got)], &[tensor(wanted)], Bound::Each)
    }

    #[test]
    fn floats_are_judged_by_the_bound_and_by_the_largest() {
        assert_eq!(of(&[1.0, 2.0], &[1.0, 2.0]).worst, 0.0);
        let half = of(&[0.0, 1.0 + 0.505e-4], &[0.0, 1.0]);
        assert!((half.worst - 0.5).abs() < 0.01 && half.place.is_none(), "{half:?}");
        // Near 0 the largest value counts.
        assert!(of(&[0.9e-3, 1000.0], &[0.0, 1000.0]).place.is_none());
        assert!(of(&[1.1e-3, 1000.0], &[0.0, 1000.0]).place.is_some());
    }

    #[test]
    fn where_the_largest_counts_small_values_may_be_further_off() {
        let tensor = |values: &[f32]| Tensor::from_slice(DType::F32, &[values.len()], values).unwrap();
        let of = |got: &[f32], bound| {
            difference(&Signature::default(), &[tensor(got)], &[tensor(&[0.1, 4.0])], bound).place.is_some()
        };
        assert!(of(&[0.1003, 4.0], Bound::Each) && !of(&[0.1003, 4.0], Bound::Largest));
        assert!(of(&[0.1005, 4.0], Bound::Largest));
    }

    #[test]
    fn nan_equals_nan_and_nothing_else() {
        let (nan, inf) = (f32::NAN, f32::INFINITY);
        assert_eq!(of(&[nan, inf, -0.0], &[-nan, inf, 0.0]).worst, 0.0);
        assert!(of(&[nan], &[1.0]).place.is_some());
        assert!(of(&[1.0], &[inf]).place.is_some());
        assert!(of(&[-inf], &[inf]).place.is_some());
    }

    #[test]
    fn whole_numbers_and_shapes_must_be_equal() {
        let tensor = |values: &[i32], shape: &[usize]| Tensor::from_slice(DType::I32, shape, values).unwrap();
        let differs =
            |a: Tensor, b: Tensor| difference(&Signature::default(), &[a], &[b], Bound::Each).place.is_some();
        assert!(!differs(tensor(&[1, 2], &[2]), tensor(&[1, 2], &[2])));
        assert!(differs(tensor(&[1, 2], &[2]), tensor(&[1, 3], &[2])));
        assert!(differs(tensor(&[1, 2], &[2]), tensor(&[1, 2], &[1, 2])));
        assert!(difference(&Signature::default(), &[], &[tensor(&[1], &[1])], Bound::Each).place.is_some());
    }
}
