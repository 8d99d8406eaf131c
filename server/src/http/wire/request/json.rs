//! Numbers and strings of a JSON array → a tensor, each straight from its text into its final place.

use super::error::Problem;
use super::members::unquote;
use super::scan::{Token, Tokens};
use crate::http::wire::text::excerpt;
use bytes::Bytes;
use half::f16;
use plimsoll_engine::tensor::{DType, Shape, Tensor, TensorError, volume};

/// What stands in an error for an object, and is no scalar of any dtype.
const AN_OBJECT: &str = "an object";

/// The tensor that `data` holds: the text of a JSON array, flat or nested as `shape`.
///
/// # Errors
/// The array's entries are not as many as, or nested otherwise than, the shape says; one is not of the dtype.
pub(super) fn decode(data: &str, dtype: DType, shape: Shape) -> Result<Tensor, Problem> {
    match dtype {
        DType::Bool => numbers::<bool>(data, dtype, shape),
        DType::U8 => numbers::<u8>(data, dtype, shape),
        DType::U16 => numbers::<u16>(data, dtype, shape),
        DType::U32 => numbers::<u32>(data, dtype, shape),
        DType::U64 => numbers::<u64>(data, dtype, shape),
        DType::I8 => numbers::<i8>(data, dtype, shape),
        DType::I16 => numbers::<i16>(data, dtype, shape),
        DType::I32 => numbers::<i32>(data, dtype, shape),
        DType::I64 => numbers::<i64>(data, dtype, shape),
        DType::F16 => numbers::<f16>(data, dtype, shape),
        DType::F32 => numbers::<f32>(data, dtype, shape),
        DType::F64 => numbers::<f64>(data, dtype, shape),
        DType::Bytes => strings(data, shape),
    }
}

/// The most bytes that [`decode`] takes for this text and shape.
pub(super) fn bytes(data: &str, dtype: DType, shape: &Shape) -> usize {
    // A shape that overflows is refused later.
    let expected = volume(shape).unwrap_or(0);
    match dtype.size_bytes() {
        // Every entry takes two characters at least, so that the text bounds what a wrong shape can reserve.
        Some(size) => expected.min(data.len() / 2).saturating_mul(size),
        None => expected.min(data.len() / 3).saturating_mul(size_of::<String>()).saturating_add(data.len()),
    }
}

fn numbers<T: Element>(data: &str, dtype: DType, shape: Shape) -> Result<Tensor, Problem> {
    let expected = expected(&shape)?;
    let mut bytes = Vec::with_capacity(bytes(data, dtype, &shape));
    walk(data, &shape, |index, text| {
        let value = T::parse(text).ok_or_else(|| element(index, T::EXPECTED, text))?;
        if index < expected {
            value.append(&mut bytes);
        }
        Ok(())
    })?;
    Ok(Tensor::plain(dtype, shape, Bytes::from(bytes))?)
}

fn strings(data: &str, shape: Shape) -> Result<Tensor, Problem> {
    let expected = expected(&shape)?;
    let mut strings = Vec::with_capacity(expected.min(data.len() / 3));
    walk(data, &shape, |index, text| {
        let string = unquote(text).ok_or_else(|| element(index, "a string", text))?;
        if index < expected {
            strings.push(string.into_owned());
        }
        Ok(())
    })?;
    Ok(Tensor::text(shape, strings)?)
}

/// The axes that `shape` holds: the text of a JSON array of non-negative integers.
///
/// # Errors
/// It is not such an array, or has more axes than any tensor in use.
pub(super) fn shape(text: &str) -> Result<Shape, Problem> {
    const AXES: usize = 64;
    const EXPECTED: &str = "a non-negative integer";
    let mut tokens = Tokens::new(text);
    if tokens.next() != Some(Token::Open) {
        return Err(Problem::kind("shape", "an array of non-negative integers", text));
    }
    let mut shape = Shape::new();
    for token in tokens {
        let text = match token {
            Token::Scalar(text) => text,
            Token::Close => break,
            Token::Open => "an array",
            Token::Object => AN_OBJECT,
        };
        let Ok(axis) = text.parse() else {
            let (index, got) = (shape.len(), excerpt(text));
            return Err(Problem::Element { member: "shape", index, expected: EXPECTED, got });
        };
        if shape.len() == AXES {
            return Err(Problem::TooManyAxes { limit: AXES });
        }
        shape.push(axis);
    }
    Ok(shape)
}

/// Calls `element` with the index and text of each scalar, and checks the brackets around them.
fn walk<'a>(
    data: &'a str,
    shape: &Shape,
    mut element: impl FnMut(usize, &'a str) -> Result<(), Problem>,
) -> Result<(), Problem> {
    // How many entries each open bracket has had so far, outermost first.
    let mut open = Shape::new();
    let mut nested = false;
    let mut index = 0;
    for token in Tokens::new(data) {
        let depth = open.len();
        match token {
            Token::Open => {
                if let Some(entries) = open.last_mut() {
                    // Whether the first entry is a bracket decides between the two forms.
                    nested |= index == 0 && depth == 1 && *entries == 0;
                    if !nested || depth >= shape.len() {
                        return Err(Problem::Depth { index, shape: shape.clone(), got: depth + 1 });
                    }
                    *entries += 1;
                }
                open.push(0);
            }
            Token::Close => {
                let (Some(got), axis) = (open.pop(), open.len()) else { break };
                if nested && let Some(&expected) = shape.get(axis).filter(|expected| **expected != got) {
                    return Err(Problem::Axis { axis, shape: shape.clone(), expected, got });
                }
            }
            Token::Scalar(text) => {
                let Some(entries) = open.last_mut() else {
                    return Err(Problem::kind("data", "an array", text));
                };
                if nested && depth != shape.len() {
                    return Err(Problem::Depth { index, shape: shape.clone(), got: depth });
                }
                *entries += 1;
                element(index, text)?;
                index += 1;
            }
            Token::Object if depth == 0 => return Err(Problem::kind("data", "an array", AN_OBJECT)),
            Token::Object => element(index, AN_OBJECT)?,
        }
    }
    let expected = expected(shape)?;
    if index != expected {
        return Err(TensorError::ElementCount { shape: shape.clone(), expected, got: index }.into());
    }
    Ok(())
}

fn expected(shape: &Shape) -> Result<usize, Problem> {
    Ok(volume(shape).ok_or_else(|| TensorError::Overflow { shape: shape.clone() })?)
}

fn element(index: usize, expected: &'static str, got: &str) -> Problem {
    Problem::Element { member: "data", index, expected, got: excerpt(got) }
}

/// A number or bool that a JSON scalar can stand for.
trait Element: Sized {
    /// What such a scalar must be.
    const EXPECTED: &'static str;

    /// The value of a scalar's text, or `None` where it is not one.
    fn parse(text: &str) -> Option<Self>;

    /// Appends the little-endian bytes.
    fn append(self, bytes: &mut Vec<u8>);
}

macro_rules! element {
    ($type:ty, $expected:expr, $parse:expr) => {
        impl Element for $type {
            const EXPECTED: &'static str = $expected;

            #[inline]
            fn parse(text: &str) -> Option<Self> {
                $parse(text)
            }

            #[inline]
            fn append(self, bytes: &mut Vec<u8>) {
                bytes.extend_from_slice(&self.to_le_bytes());
            }
        }
    };
}

element!(u8, "an integer from 0 to 255", integer);
element!(u16, "an integer from 0 to 65535", integer);
element!(u32, "an integer from 0 to 4294967295", integer);
element!(u64, "an integer from 0 to 18446744073709551615", integer);
element!(i8, "an integer from -128 to 127", integer);
element!(i16, "an integer from -32768 to 32767", integer);
element!(i32, "an integer from -2147483648 to 2147483647", integer);
element!(i64, "an integer from -9223372036854775808 to 9223372036854775807", integer);
element!(f16, "a number from -65504 to 65504", |text| float(text)
    .map(f16::from_f64)
    .filter(|v| v.is_finite()));
element!(f32, "a number from -3.4028235e38 to 3.4028235e38", |text: &str| {
    text.parse().ok().filter(|value: &f32| value.is_finite())
});
element!(f64, "a number from -1.7976931348623157e308 to 1.7976931348623157e308", float);

impl Element for bool {
    const EXPECTED: &'static str = "true or false";

    fn parse(text: &str) -> Option<bool> {
        text.parse().ok()
    }

    fn append(self, bytes: &mut Vec<u8>) {
        bytes.push(u8::from(self));
    }
}

fn integer<T: std::str::FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn float(text: &str) -> Option<f64> {
    text.parse().ok().filter(|value: &f64| value.is_finite())
}
