//! A value in `model.toml` for an input that never changes.

use serde::de::{Deserialize, Deserializer, Error, SeqAccess, Visitor};
use std::fmt;

/// More axes than any real input has; it also bounds the recursion.
const MAX_RANK: usize = 8;

/// A scalar or an array as it was written; the dtype it takes is the input's business.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Constant {
    /// Sizes, outermost first; empty for a scalar.
    pub(crate) shape: Vec<usize>,
    /// The elements, the last axis running fastest.
    pub(crate) values: Values,
}

/// Elements of one kind.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Values {
    /// `true` and `false`.
    Bools(Vec<bool>),
    /// Whole numbers.
    Ints(Vec<i64>),
    /// Numbers of which at least one has a decimal point; also the elements of an empty array.
    Floats(Vec<f64>),
    /// Texts.
    Strings(Vec<String>),
}

impl Constant {
    fn scalar(values: Values) -> Self {
        Self { shape: Vec::new(), values }
    }

    /// One array of arrays of equal shape.
    fn stack(items: Vec<Self>) -> Result<Self, String> {
        let count = items.len();
        let mut items = items.into_iter();
        let Some(first) = items.next() else {
            return Ok(Self { shape: vec![0], values: Values::Floats(Vec::new()) });
        };
        let mut shape = vec![count];
        shape.extend(&first.shape);
        if shape.len() > MAX_RANK {
            return Err(format!("expected an array of at most {MAX_RANK} axes, got {}", shape.len()));
        }
        let mut values = first.values;
        for item in items {
            if item.shape != first.shape {
                return Err(format!(
                    "expected elements of one shape, got {:?} after {:?}",
                    item.shape, first.shape
                ));
            }
            values = values.join(item.values)?;
        }
        Ok(Self { shape, values })
    }
}

impl Values {
    fn join(self, other: Self) -> Result<Self, String> {
        let floats = |ints: Vec<i64>| ints.into_iter().map(|int| int as f64).collect::<Vec<_>>();
        Ok(match (self, other) {
            (Self::Bools(a), Self::Bools(b)) => Self::Bools(joined(a, b)),
            (Self::Ints(a), Self::Ints(b)) => Self::Ints(joined(a, b)),
            (Self::Floats(a), Self::Floats(b)) => Self::Floats(joined(a, b)),
            (Self::Ints(a), Self::Floats(b)) => Self::Floats(joined(floats(a), b)),
            (Self::Floats(a), Self::Ints(b)) => Self::Floats(joined(a, floats(b))),
            (Self::Strings(a), Self::Strings(b)) => Self::Strings(joined(a, b)),
            (a, b) => {
                return Err(format!("expected elements of one kind, got {} after {}", b.kind(), a.kind()));
            }
        })
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Bools(_) => "a boolean",
            Self::Ints(_) | Self::Floats(_) => "a number",
            Self::Strings(_) => "a string",
        }
    }
}

fn joined<T>(mut a: Vec<T>, b: Vec<T>) -> Vec<T> {
    a.extend(b);
    a
}

impl<'de> Deserialize<'de> for Constant {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Written)
    }
}

struct Written;

impl<'de> Visitor<'de> for Written {
    type Value = Constant;

    fn expecting(&self, out: &mut fmt::Formatter) -> fmt::Result {
        out.write_str("a number, a boolean, a string or an array of them")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Constant, E> {
        Ok(Constant::scalar(Values::Bools(vec![value])))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Constant, E> {
        Ok(Constant::scalar(Values::Ints(vec![value])))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Constant, E> {
        Ok(Constant::scalar(Values::Floats(vec![value])))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Constant, E> {
        Ok(Constant::scalar(Values::Strings(vec![value.to_owned()])))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Constant, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Constant::stack(items).map_err(A::Error::custom)
    }
}
