//! Interpolation along some axes, by tables of which positions make up which.

use super::axes::{self, Axes, Axis, Loops};
use super::launch::{self, Float, Queue, Unsupported, blocks};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

const AXES: usize = 6;
const RESIZED: usize = 3;
/// Source, output and the tables.
const TENSORS: usize = 2 + RESIZED;
const BLOCK: usize = 128;

/// A resized axis: for each index of the output the indices of the source that it is made of, with their
/// weights.
#[derive(Clone, Copy)]
pub(crate) struct Table<'a, T: AsRef<[(usize, f32)]>> {
    /// Which axis.
    pub(crate) axis: usize,
    /// One entry an index of the output.
    pub(crate) taps: &'a [T],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    x: u64,
    out: u64,
    tables: u64,
    axes: Axes<TENSORS, AXES>,
    threads: u32,
    first: [u32; RESIZED],
    taps: [u32; RESIZED],
    stride: [u32; RESIZED],
}

/// A resizing, made for one shape.
pub(crate) struct Resize {
    float: Float,
    args: Args,
    packed: Option<(Axes<TENSORS, AXES>, usize)>,
    elements: usize,
    tables: Vec<u8>,
}

impl Resize {
    /// From a source of `shape` to an output of `out_shape`; strides in elements. At most three axes are
    /// resized.
    pub(crate) fn new<T: AsRef<[(usize, f32)]>>(
        float: Float,
        shape: &[usize],
        out_shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
        resized: &[Table<'_, T>],
    ) -> Result<Resize, Unsupported> {
        if resized.len() > RESIZED {
            return Err(Unsupported::Axes { have: resized.len(), most: RESIZED });
        }
        let most = |table: &Table<'_, T>| {
            table.taps.iter().map(|taps| taps.as_ref().len()).max().unwrap_or(0).max(1)
        };
        let mut strides = vec![source_strides.to_vec(), target_strides.to_vec()];
        strides.resize(TENSORS, vec![0; shape.len()]);
        for (at, table) in resized.iter().enumerate() {
            strides[0][table.axis] = 0;
            strides[2 + at][table.axis] = most(table);
        }
        let loops = axes::collapse(out_shape, std::array::from_fn(|t| &strides[t][..]), 1);
        let extents: [Loops<1>; 2] =
            [(shape, source_strides), (out_shape, target_strides)].map(|(shape, strides)| {
                shape.iter().zip(strides).map(|(&len, &stride)| Axis { len, strides: [stride] }).collect()
            });
        axes::check(&extents[0])?;
        axes::check(&extents[1])?;
        let mut args = Args {
            x: 0,
            out: 0,
            tables: 0,
            axes: Axes::new(&loops)?,
            threads: 0,
            first: [0; RESIZED],
            taps: [0; RESIZED],
            stride: [0; RESIZED],
        };
        let mut tables = vec![];
        for (at, table) in resized.iter().enumerate() {
            let most = most(table);
            (args.first[at], args.taps[at]) = ((tables.len() / 8) as u32, most as u32);
            args.stride[at] = source_strides[table.axis] as u32;
            for taps in table.taps {
                for (index, weight) in filled(taps.as_ref(), most) {
                    if index >= shape[table.axis] {
                        return Err(Unsupported::Other("a tap beyond the source"));
                    }
                    tables.extend_from_slice(&(index as u32).to_le_bytes());
                    tables.extend_from_slice(&weight.to_le_bytes());
                }
            }
        }
        let pack = float.pack();
        let packed = match packed(&loops, &args, pack) {
            Some(loops) => Some((Axes::new(&loops)?, pack)),
            None => None,
        };
        Ok(Resize { float, args, packed, elements: out_shape.iter().product(), tables })
    }

    /// The tables as they are to lie in device memory, at a multiple of 8 bytes.
    pub(crate) fn tables(&self) -> &[u8] {
        &self.tables
    }

    /// Resizes. Source and target must not overlap.
    ///
    /// # Safety
    /// Source, target and [`Resize::tables`] lie at these addresses and stay there until the stream has come
    /// past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        x: CUdeviceptr,
        tables: CUdeviceptr,
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let packed = self.packed.filter(|_| launch::aligned(x | out, 16));
        let (axes, pack) = packed.unwrap_or((self.args.axes, 1));
        let kernel = match (self.float, pack) {
            (Float::F32, 1) => "resize_f32_1",
            (Float::F32, _) => "resize_f32_4",
            (Float::F16, 1) => "resize_f16_1",
            (Float::F16, _) => "resize_f16_8",
        };
        let threads = self.elements / pack;
        let args = Args { x, out, tables, axes, threads: threads as u32, ..self.args };
        // SAFETY: the caller's promise; `args` is the kernel's struct, and the tables' indices lie within the
        // source.
        unsafe { queue.launch(kernel, blocks(threads, BLOCK), (BLOCK as u32, 1), 0, &args) }
    }
}

/// So many taps: the last one is halved until there are enough, which loses nothing.
fn filled(taps: &[(usize, f32)], most: usize) -> Vec<(usize, f32)> {
    let mut taps = if taps.is_empty() { vec![(0, 0.0)] } else { taps.to_vec() };
    while taps.len() < most {
        if let Some(last) = taps.last_mut() {
            last.1 /= 2.0;
            let half = *last;
            taps.push(half);
        }
    }
    taps
}

/// The loops over packs of so many neighbours, where those are whole.
fn packed(loops: &Loops<TENSORS>, args: &Args, pack: usize) -> Option<Loops<TENSORS>> {
    let mut loops = loops.clone();
    let (inner, outer) = loops.split_last_mut()?;
    let whole = |axis: &Axis<TENSORS>| axis.strides[..2].iter().all(|stride| stride.is_multiple_of(pack));
    let apart = args.stride.iter().all(|&stride| (stride as usize).is_multiple_of(pack));
    if inner.strides != [1, 1, 0, 0, 0]
        || !inner.len.is_multiple_of(pack)
        || !outer.iter().all(whole)
        || !apart
    {
        return None;
    }
    *inner = Axis { len: inner.len / pack, strides: [pack, pack, 0, 0, 0] };
    Some(loops)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tap_that_is_shared_out_weighs_the_same() {
        assert_eq!(filled(&[(7, 0.7)], 4), [(7, 0.35), (7, 0.175), (7, 0.0875), (7, 0.0875)]);
        assert_eq!(filled(&[], 2), [(0, 0.0), (0, 0.0)]);
    }
}
