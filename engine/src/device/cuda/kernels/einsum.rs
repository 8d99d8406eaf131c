//! Any product of two tensors summed over labels, plainly: for what no matrix kernel takes.

use super::axes::{self, Axes, Axis};
use super::launch::{self, Float, Queue, Unsupported, blocks};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

/// The source and its kernels.
pub(crate) const PROGRAM: launch::Program = launch::Program {
    name: "einsum",
    source: concat!(include_str!("prelude.cu"), include_str!("einsum.cu")),
    kernels: &["einsum_f32", "einsum_f16"],
};

const KEPT: usize = 6;
const SUMMED: usize = 5;
const BLOCK: usize = 128;

/// A tensor by its labels; one entry an axis, strides in elements.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Labelled<'a> {
    /// The labels of its axes; a label may stand twice, for the diagonal.
    pub(crate) labels: &'a [char],
    /// Their sizes.
    pub(crate) shape: &'a [usize],
    /// Their strides.
    pub(crate) strides: &'a [usize],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    a: u64,
    b: u64,
    bias: u64,
    c: u64,
    kept: Axes<4, KEPT>,
    summed: Axes<2, SUMMED>,
    elements: u32,
    sums: u32,
    inner: u32,
    inner_strides: [u32; 2],
    wide_bias: u32,
}

/// A sum of products, made for one shape.
pub(crate) struct Einsum {
    float: Float,
    args: Args,
}

impl Labelled<'_> {
    /// The stride along a label: that of all axes that have it.
    fn stride(&self, label: char) -> usize {
        let axes = self.labels.iter().zip(self.shape).zip(self.strides);
        axes.filter(|((own, size), _)| **own == label && **size > 1).map(|(_, stride)| stride).sum()
    }

    fn size(&self, label: char) -> Option<usize> {
        self.labels.iter().position(|own| *own == label).map(|axis| self.shape[axis])
    }
}

impl Einsum {
    /// c = Σ a · b + bias over the labels that c does not have. The bias has a stride per axis of c, 0 where
    /// it is broadcast, and is f32 if `wide_bias`.
    pub(crate) fn new(
        float: Float,
        a: &Labelled<'_>,
        b: &Labelled<'_>,
        c: &Labelled<'_>,
        bias_strides: Option<&[usize]>,
        wide_bias: bool,
    ) -> Result<Einsum, Unsupported> {
        let of = |labels: &[char], tensor: &Labelled<'_>| -> SmallVec<[usize; 6]> {
            labels.iter().map(|&label| tensor.stride(label)).collect()
        };
        let none: SmallVec<[usize; 6]> = SmallVec::from_elem(0, c.labels.len());
        let kept = [&of(c.labels, a)[..], &of(c.labels, b), bias_strides.unwrap_or(&none), c.strides];
        let kept = axes::collapse(c.shape, kept, 3);
        let mut labels: SmallVec<[char; 6]> = SmallVec::new();
        for &label in a.labels.iter().chain(b.labels) {
            if !c.labels.contains(&label) && !labels.contains(&label) {
                labels.push(label);
            }
        }
        let sizes: SmallVec<[usize; 6]> = labels
            .iter()
            .map(|&label| a.size(label).into_iter().chain(b.size(label)).max().unwrap_or(1))
            .collect();
        let mut summed = axes::collapse(&sizes, [&of(&labels, a)[..], &of(&labels, b)], 1);
        let all: SmallVec<[Axis<2>; 6]> = kept
            .iter()
            .map(|axis| Axis { len: axis.len, strides: [axis.strides[0], axis.strides[1]] })
            .chain(summed.iter().copied())
            .collect();
        let extent = axes::extent(&all, 0).max(axes::extent(&all, 1)).max(axes::count(&summed));
        if extent >= 1 << 31 {
            return Err(Unsupported::TooLarge(extent));
        }
        let inner = summed.pop().unwrap_or(Axis::ONCE);
        let args = Args {
            a: 0,
            b: 0,
            bias: 0,
            c: 0,
            kept: Axes::new(&kept)?,
            summed: Axes::new(&summed)?,
            elements: axes::count(&kept) as u32,
            sums: axes::count(&summed) as u32,
            inner: inner.len as u32,
            inner_strides: inner.strides.map(|stride| stride as u32),
            wide_bias: u32::from(wide_bias),
        };
        Ok(Einsum { float, args })
    }

    /// Computes it. The output must not overlap what is read.
    ///
    /// # Safety
    /// The tensors lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        a: CUdeviceptr,
        b: CUdeviceptr,
        bias: Option<CUdeviceptr>,
        c: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let kernel = if self.float == Float::F32 { "einsum_f32" } else { "einsum_f16" };
        let args = Args { a, b, bias: bias.unwrap_or(0), c, ..self.args };
        let grid = blocks(self.args.elements as usize, BLOCK);
        // SAFETY: the caller's promise; `args` is the kernel's struct, and its loops stay within the tensors.
        unsafe { queue.launch(kernel, grid, (BLOCK as u32, 1), 0, &args) }
    }
}
