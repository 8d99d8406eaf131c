//! Tensors → the body of an inference answer.
//!
//! Written by hand in one pass into one buffer: JSON, then the outputs that were asked for as binary data, in order.

#[cfg(test)]
mod tests;

use bytes::Bytes;
use half::f16;
use plimsoll_engine::tensor::{DType, Data, Tensor};

/// What a model gave, and how to send it.
#[derive(Debug)]
pub(crate) struct InferResponse<'a> {
    /// The model's name.
    pub(crate) model_name: &'a str,
    /// The version that ran.
    pub(crate) model_version: &'a str,
    /// The request's own name, where it had one.
    pub(crate) id: Option<&'a str>,
    /// The outputs, in the order in which they go out.
    pub(crate) outputs: Vec<Output<'a>>,
}

/// One tensor of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output<'a> {
    /// Its name in the model.
    pub(crate) name: &'a str,
    /// Its values, whose own dtype and shape are the ones sent.
    pub(crate) tensor: &'a Tensor,
    /// Whether it goes out as binary data instead of JSON.
    pub(crate) binary: bool,
}

/// A body ready to send.
#[derive(Debug)]
pub(crate) struct Encoded {
    /// Bytes of JSON at the body's start, for the header `Inference-Header-Content-Length`; `None` where the body is
    /// JSON alone.
    pub(crate) header_length: Option<usize>,
    /// The whole body.
    pub(crate) body: Bytes,
}

impl Encoded {
    /// The body's `Content-Type`.
    pub(crate) fn content_type(&self) -> &'static str {
        if self.header_length.is_some() { "application/octet-stream" } else { "application/json" }
    }
}

/// The answer that a request for all outputs as JSON would get.
///
/// # Errors
/// As [`encode`].
pub(crate) fn answer_json(model_name: &str, outputs: &[(&str, &Tensor)]) -> Result<Bytes, EncodeError> {
    let outputs = outputs.iter().map(|(name, tensor)| Output { name, tensor, binary: false }).collect();
    Ok(encode(&InferResponse { model_name, model_version: "1", id: None, outputs })?.body)
}

/// Why an answer cannot be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EncodeError {
    /// JSON has no word for this number.
    #[error(
        "output `{output}`: element {index} is {value}, which JSON cannot hold; ask for this output with the \
         parameter `binary_data`"
    )]
    NotFinite {
        /// The output's name.
        output: String,
        /// Position of the element in row-major order.
        index: usize,
        /// `NaN`, `inf` or `-inf`.
        value: f64,
    },
    /// A string is longer than its 4-byte length can tell.
    #[error(
        "output `{output}`: element {index} is {length} bytes long, but binary data holds at most 4294967295; \
         ask for this output as JSON"
    )]
    TextTooLong {
        /// The output's name.
        output: String,
        /// Position of the element in row-major order.
        index: usize,
        /// Bytes of the string.
        length: usize,
    },
    /// The JSON writer failed.
    #[error("the answer could not be written: {0}")]
    Json(#[from] serde_json::Error),
}

/// Writes an answer.
///
/// # Errors
/// An output that goes out as JSON holds NaN or an infinity, or one that goes out as binary data a string of 4 GiB.
pub(crate) fn encode(answer: &InferResponse<'_>) -> Result<Encoded, EncodeError> {
    let mut body = Vec::with_capacity(capacity(answer));
    body.extend_from_slice(b"{\"model_name\":");
    serde_json::to_writer(&mut body, answer.model_name)?;
    body.extend_from_slice(b",\"model_version\":");
    serde_json::to_writer(&mut body, answer.model_version)?;
    if let Some(id) = answer.id {
        body.extend_from_slice(b",\"id\":");
        serde_json::to_writer(&mut body, id)?;
    }
    body.extend_from_slice(b",\"outputs\":[");
    list(&mut body, &answer.outputs, |body, _, output| describe(body, output))?;
    body.extend_from_slice(b"]}");
    let json_length = body.len();
    let mut any_binary = false;
    for output in answer.outputs.iter().filter(|output| output.binary) {
        any_binary = true;
        append_binary(&mut body, output)?;
    }
    Ok(Encoded { header_length: any_binary.then_some(json_length), body: Bytes::from(body) })
}

/// Bytes that the body will take, nearly: a little more than most numbers need, so that it need not grow.
fn capacity(answer: &InferResponse<'_>) -> usize {
    let names = answer.model_name.len() + answer.model_version.len() + answer.id.map_or(0, str::len);
    let outputs = answer.outputs.iter().map(|output| {
        let tensor = output.tensor;
        let data = match (tensor.data(), output.binary) {
            (_, true) => binary_size(tensor),
            (Data::Text(strings), false) => strings.iter().map(|text| text.len() + 4).sum(),
            (Data::Plain(bytes), false) => text_size(tensor.dtype(), bytes.len()),
        };
        data + output.name.len() + 20 * tensor.shape().len() + 100
    });
    names + 100 + outputs.sum::<usize>()
}

/// Characters that `bytes` of numbers usually take at most as JSON.
pub(crate) fn text_size(dtype: DType, bytes: usize) -> usize {
    bytes / dtype.size_bytes().unwrap_or(1) * width(dtype)
}

/// Characters that a number of this dtype and its comma usually take at most.
fn width(dtype: DType) -> usize {
    match dtype {
        DType::U8 | DType::I8 => 5,
        DType::Bool | DType::U16 | DType::I16 => 7,
        DType::U32 | DType::I32 | DType::F16 => 12,
        DType::F32 => 15,
        DType::U64 | DType::I64 | DType::F64 | DType::Bytes => 22,
    }
}

/// Bytes that a tensor takes as binary data.
fn binary_size(tensor: &Tensor) -> usize {
    match tensor.data() {
        Data::Plain(bytes) => bytes.len(),
        Data::Text(strings) => strings.iter().map(|text| text.len() + size_of::<u32>()).sum(),
    }
}

/// Writes items with commas between them, each with its index.
fn list<T>(
    body: &mut Vec<u8>,
    items: impl IntoIterator<Item = T>,
    mut write: impl FnMut(&mut Vec<u8>, usize, T) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    for (index, item) in items.into_iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        write(body, index, item)?;
    }
    Ok(())
}

/// Writes an output's JSON object, its values included where they go out as JSON.
fn describe(body: &mut Vec<u8>, output: &Output<'_>) -> Result<(), EncodeError> {
    let tensor = output.tensor;
    body.extend_from_slice(b"{\"name\":");
    serde_json::to_writer(&mut *body, output.name)?;
    body.extend_from_slice(b",\"datatype\":\"");
    body.extend_from_slice(tensor.dtype().name().as_bytes());
    body.extend_from_slice(b"\",\"shape\":[");
    list(body, tensor.shape(), |body, _, axis| Ok(serde_json::to_writer(body, axis)?))?;
    if output.binary {
        body.extend_from_slice(b"],\"parameters\":{\"binary_data_size\":");
        serde_json::to_writer(&mut *body, &binary_size(tensor))?;
        body.extend_from_slice(b"}}");
        return Ok(());
    }
    body.extend_from_slice(b"],\"data\":[");
    match tensor.data() {
        Data::Plain(bytes) => write_numbers(body, bytes, output)?,
        Data::Text(strings) => {
            list(body, strings, |body, _, text| Ok(serde_json::to_writer(body, text)?))?;
        }
    }
    body.extend_from_slice(b"]}");
    Ok(())
}

/// Writes little-endian numbers as JSON, each in the fewest digits that read back as the same value of its own dtype.
fn write_numbers(body: &mut Vec<u8>, bytes: &[u8], output: &Output<'_>) -> Result<(), EncodeError> {
    macro_rules! integers {
        ($type:ty) => {{
            let (chunks, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
            list(body, chunks, |body, _, chunk| {
                Ok(serde_json::to_writer(body, &<$type>::from_le_bytes(*chunk))?)
            })
        }};
    }
    macro_rules! floats {
        ($type:ty, $as:ty) => {{
            let (chunks, _) = bytes.as_chunks::<{ size_of::<$type>() }>();
            list(body, chunks, |body, index, chunk| {
                let value = <$as>::from(<$type>::from_le_bytes(*chunk));
                if !value.is_finite() {
                    let (output, value) = (output.name.to_owned(), f64::from(value));
                    return Err(EncodeError::NotFinite { output, index, value });
                }
                Ok(serde_json::to_writer(body, &value)?)
            })
        }};
    }
    match output.tensor.dtype() {
        DType::Bool => list(body, bytes, |body, _, byte| Ok(serde_json::to_writer(body, &(*byte != 0))?)),
        DType::U8 => integers!(u8),
        DType::U16 => integers!(u16),
        DType::U32 => integers!(u32),
        DType::U64 => integers!(u64),
        DType::I8 => integers!(i8),
        DType::I16 => integers!(i16),
        DType::I32 => integers!(i32),
        DType::I64 => integers!(i64),
        DType::F16 => floats!(f16, f32),
        DType::F32 => floats!(f32, f32),
        DType::F64 => floats!(f64, f64),
        // Text is never plain bytes.
        DType::Bytes => Ok(()),
    }
}

/// Appends a tensor as the binary tensor data extension lays it out.
fn append_binary(body: &mut Vec<u8>, output: &Output<'_>) -> Result<(), EncodeError> {
    match output.tensor.data() {
        Data::Plain(bytes) => body.extend_from_slice(bytes),
        Data::Text(strings) => {
            for (index, text) in strings.iter().enumerate() {
                let length = u32::try_from(text.len()).map_err(|_| EncodeError::TextTooLong {
                    output: output.name.to_owned(),
                    index,
                    length: text.len(),
                })?;
                body.extend_from_slice(&length.to_le_bytes());
                body.extend_from_slice(text.as_bytes());
            }
        }
    }
    Ok(())
}
