//! Inputs for models that nobody gave any: the same at every start.

use super::random::Random;
use anyhow::Context;
use plimsoll_engine::tensor::{DType, Shape, Tensor, volume};

/// Which values are drawn, each as likely as the next.
#[derive(Clone, Copy, Debug)]
pub(super) struct Values {
    /// The least float; the largest is just below 1.
    pub(super) lowest: f32,
    /// Whole numbers are below this and not below 0; 256 at most.
    pub(super) integers_below: u64,
}

impl Values {
    /// What any model takes: floats in [0, 1), and numbers that any table can be looked up with.
    pub(super) const TAME: Values = Values { lowest: 0.0, integers_below: 2 };
    /// More of what can go wrong.
    pub(super) const WILD: Values = Values { lowest: -1.0, integers_below: 256 };
}

/// A tensor of random values, or of empty strings.
pub(super) fn tensor(dtype: DType, shape: &Shape, seed: u64, values: Values) -> anyhow::Result<Tensor> {
    let elements = volume(shape).context("the shape overflows")?;
    let mut random = Random::new(seed);
    let mut next = move || random.bits();
    let float = |bits: u64| {
        let unit = (bits >> 40) as f32 / (1u64 << 24) as f32;
        values.lowest + unit * (1.0 - values.lowest)
    };
    let Some(size) = dtype.size_bytes() else {
        return Ok(Tensor::text(shape.clone(), vec![String::new(); elements])?);
    };
    let below = match dtype {
        DType::Bool => 2,
        DType::I8 => values.integers_below.min(128),
        _ => values.integers_below,
    };
    let mut bytes = Vec::with_capacity(elements * size);
    for _ in 0..elements {
        match dtype {
            DType::F16 => bytes.extend(half::f16::from_f32(float(next())).to_le_bytes()),
            DType::F32 => bytes.extend(float(next()).to_le_bytes()),
            DType::F64 => bytes.extend(f64::from(float(next())).to_le_bytes()),
            _ => {
                bytes.push((next() % below) as u8);
                bytes.resize(bytes.len() + size - 1, 0);
            }
        }
    }
    Ok(Tensor::plain(dtype, shape.clone(), bytes.into())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_the_same_every_time_and_within_their_bounds() {
        let shape = Shape::from_slice(&[1000]);
        for dtype in DType::ALL {
            let drawn = tensor(dtype, &shape, 1, Values::WILD).unwrap();
            assert_eq!(drawn, tensor(dtype, &shape, 1, Values::WILD).unwrap());
            assert_eq!((drawn.dtype(), drawn.shape()), (dtype, shape.as_slice()));
        }
        let floats = tensor(DType::F32, &shape, 1, Values::WILD).unwrap();
        let floats: Vec<f32> =
            floats.as_bytes().unwrap().chunks(4).map(bytemuck::pod_read_unaligned).collect();
        assert!(floats.iter().all(|x| (-1.0..1.0).contains(x)) && floats.iter().any(|x| *x < -0.9));
        let bytes = tensor(DType::I8, &shape, 1, Values::TAME).unwrap();
        assert!(bytes.as_bytes().unwrap().iter().all(|byte| *byte < 2));
    }
}
