//! Slices of a tensor, chosen by indices along one axis.

use super::axes;
use super::launch::{self, Queue, Unsupported};
use super::units::{BLOCK, Units, units};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

const AXES: usize = 6;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    from: u64,
    indices: u64,
    to: u64,
    flag: u64,
    axes: axes::Axes<3, AXES>,
    size: u32,
    stride: u32,
    wide: u32,
    units: u32,
}

/// How indices are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum Indices {
    I64,
    I32,
}

/// A gather, made for one shape.
pub(crate) struct Gather {
    /// The widest units first.
    ways: SmallVec<[Units<3, AXES>; 5]>,
    elem_bytes: usize,
    size: usize,
    stride: usize,
    indices: Indices,
}

impl Gather {
    /// From a source of that shape along `axis`. The target's axes are those of the source with `axis`
    /// replaced by those of the indices. Strides are in elements, those of source and target of `elem_bytes`
    /// (1, 2, 4 or 8).
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        source_strides: &[usize],
        axis: usize,
        indices: Indices,
        index_shape: &[usize],
        index_strides: &[usize],
        target_strides: &[usize],
    ) -> Result<Gather, Unsupported> {
        let (size, stride) = (shape[axis], source_strides[axis]);
        let zeros = |count: usize| std::iter::repeat_n(0, count);
        let inner = shape.len() - axis - 1;
        let target_shape = [&shape[..axis], index_shape, &shape[axis + 1..]].concat();
        let mut source: Vec<usize> = source_strides[..axis].to_vec();
        source.extend(zeros(index_shape.len()));
        source.extend_from_slice(&source_strides[axis + 1..]);
        let mut index: Vec<usize> = zeros(axis).collect();
        index.extend_from_slice(index_strides);
        index.extend(zeros(inner));
        // What indices add to positions must fit as well.
        let whole: axes::Loops<1> = shape
            .iter()
            .zip(source_strides)
            .map(|(&len, &stride)| axes::Axis { len, strides: [stride] })
            .collect();
        axes::check(&whole)?;
        let loops = axes::collapse(&target_shape, [&source, &index, target_strides], 2);
        let ways = units(&loops, elem_bytes, [true, false, true], &[stride])?;
        Ok(Gather { ways, elem_bytes, size, stride, indices })
    }

    /// Copies the slices; negative indices count from the end. An index out of range makes zeros and sets the
    /// word at
    /// `flag` to 1, which nothing clears. Source and target must not overlap.
    ///
    /// # Safety
    /// The tensors and the word lie at these addresses and stay there until the stream has come past the
    /// launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        from: CUdeviceptr,
        indices: CUdeviceptr,
        to: CUdeviceptr,
        flag: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let fits = |units: &&Units<3, AXES>| launch::aligned(from | to, units.bytes);
        let Some(units) = self.ways.iter().find(fits) else { return Ok(()) };
        let kernel = match units.bytes {
            1 => "gather_1",
            2 => "gather_2",
            4 => "gather_4",
            8 => "gather_8",
            _ => "gather_16",
        };
        let args = Args {
            from,
            indices,
            to,
            flag,
            axes: units.axes,
            size: self.size as u32,
            stride: (self.stride * self.elem_bytes / units.bytes) as u32,
            wide: u32::from(self.indices == Indices::I64),
            units: units.count as u32,
        };
        // SAFETY: the caller's promise; `args` is the kernel's struct, its loops stay within the tensors, and
        // the kernel checks each index.
        unsafe { queue.launch(kernel, units.grid(), (BLOCK as u32, 1), 0, &args) }
    }
}
