//! NumPy files ↔ tensors.

use anyhow::{Context, bail};
use half::f16;
use npyz::{AutoSerialize, Deserialize, NpyFile, Order, WriterBuilder};
use plimsoll_engine::tensor::{DType, Tensor};
use std::fs::File;
use std::io::{BufReader, BufWriter, Read};
use std::path::Path;

/// Reads a `.npy` file whose array has this dtype.
///
/// # Errors
/// The file is no NumPy file, is in Fortran order, or its array has another dtype.
pub(super) fn read(file: &Path, dtype: DType) -> anyhow::Result<Tensor> {
    let reading = || format!("{}", file.display());
    let npy = NpyFile::new(BufReader::new(File::open(file).with_context(reading)?)).with_context(reading)?;
    if npy.order() != Order::C && npy.shape().len() > 1 {
        bail!("{}: the array is in Fortran order; save numpy.ascontiguousarray of it", file.display());
    }
    let shape: Vec<usize> = npy.shape().iter().map(|&size| size as usize).collect();
    let expected = || format!("{}: expected an array of {dtype}", file.display());
    match dtype {
        DType::Bool => {
            let bools: Vec<u8> =
                npy.into_vec::<bool>().with_context(expected)?.into_iter().map(u8::from).collect();
            Ok(Tensor::from_slice(dtype, &shape, &bools)?)
        }
        DType::U8 => plain::<u8>(npy, dtype, &shape).with_context(expected),
        DType::U16 => plain::<u16>(npy, dtype, &shape).with_context(expected),
        DType::U32 => plain::<u32>(npy, dtype, &shape).with_context(expected),
        DType::U64 => plain::<u64>(npy, dtype, &shape).with_context(expected),
        DType::I8 => plain::<i8>(npy, dtype, &shape).with_context(expected),
        DType::I16 => plain::<i16>(npy, dtype, &shape).with_context(expected),
        DType::I32 => plain::<i32>(npy, dtype, &shape).with_context(expected),
        DType::I64 => plain::<i64>(npy, dtype, &shape).with_context(expected),
        DType::F16 => plain::<f16>(npy, dtype, &shape).with_context(expected),
        DType::F32 => plain::<f32>(npy, dtype, &shape).with_context(expected),
        DType::F64 => plain::<f64>(npy, dtype, &shape).with_context(expected),
        DType::Bytes => bail!("{}: strings cannot be read from a NumPy file", file.display()),
    }
}

fn plain<T: Deserialize + bytemuck::NoUninit>(
    npy: NpyFile<impl Read>,
    dtype: DType,
    shape: &[usize],
) -> anyhow::Result<Tensor> {
    Ok(Tensor::from_slice(dtype, shape, &npy.into_vec::<T>()?)?)
}

/// Writes a tensor as a `.npy` file.
///
/// # Errors
/// It holds strings, or the file cannot be written.
pub(super) fn write(file: &Path, tensor: &Tensor) -> anyhow::Result<()> {
    match tensor.dtype() {
        DType::Bool => {
            let bytes =
                tensor.as_bytes().map(|bytes| bytes.iter().map(|&byte| byte != 0).collect::<Vec<_>>());
            save::<bool>(file, tensor.shape(), bytes.unwrap_or_default())
        }
        DType::U8 => numbers::<u8>(file, tensor),
        DType::U16 => numbers::<u16>(file, tensor),
        DType::U32 => numbers::<u32>(file, tensor),
        DType::U64 => numbers::<u64>(file, tensor),
        DType::I8 => numbers::<i8>(file, tensor),
        DType::I16 => numbers::<i16>(file, tensor),
        DType::I32 => numbers::<i32>(file, tensor),
        DType::I64 => numbers::<i64>(file, tensor),
        DType::F16 => numbers::<f16>(file, tensor),
        DType::F32 => numbers::<f32>(file, tensor),
        DType::F64 => numbers::<f64>(file, tensor),
        DType::Bytes => bail!("strings cannot be written to a NumPy file; print them instead"),
    }
}

fn numbers<T: AutoSerialize + bytemuck::AnyBitPattern>(file: &Path, tensor: &Tensor) -> anyhow::Result<()> {
    let bytes = tensor.as_bytes().context("the tensor holds strings")?;
    // The bytes may lie at any address: read element by element.
    let values: Vec<T> = bytes.chunks_exact(size_of::<T>()).map(bytemuck::pod_read_unaligned).collect();
    save(file, tensor.shape(), values)
}

fn save<T: AutoSerialize>(file: &Path, shape: &[usize], values: Vec<T>) -> anyhow::Result<()> {
    let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    let out = BufWriter::new(File::create(file).with_context(|| format!("{}", file.display()))?);
    let mut writer = npyz::WriteOptions::new().default_dtype().shape(&shape).writer(out).begin_nd()?;
    writer.extend(values)?;
    Ok(writer.finish()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tensor_survives_a_file() {
        let folder = temp_dir::TempDir::new().unwrap();
        let file = folder.path().join("x.npy");
        for dtype in DType::ALL.into_iter().filter(|dtype| *dtype != DType::Bytes) {
            let bytes: Vec<u8> = (0..6 * dtype.size_bytes().unwrap()).map(|at| (at % 2) as u8).collect();
            let tensor = Tensor::plain(dtype, [2, 3].as_slice().into(), bytes.into()).unwrap();
            write(&file, &tensor).unwrap();
            assert_eq!(read(&file, dtype).unwrap(), tensor, "{dtype}");
        }
        let error = format!("{:#}", read(&file, DType::I8).unwrap_err());
        assert!(error.contains("expected an array of INT8"), "{error}");
    }
}
