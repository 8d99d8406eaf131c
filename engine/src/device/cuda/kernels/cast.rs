//! Elements of one dtype as another.

use super::axes::{self, Axes};
use super::launch::{self, Queue, Unsupported, blocks};
use crate::tensor::DType;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

/// A kernel for each dtype of the source.
const KERNELS: [&str; 12] = [
    "cast_bool",
    "cast_u8",
    "cast_u16",
    "cast_u32",
    "cast_u64",
    "cast_i8",
    "cast_i16",
    "cast_i32",
    "cast_i64",
    "cast_f16",
    "cast_f32",
    "cast_f64",
];

const AXES: usize = 6;
const BLOCK: usize = 128;
/// Elements that a thread converts.
const EACH: usize = 4;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    from: u64,
    to: u64,
    axes: Axes<2, AXES>,
    elements: u32,
    packed: u32,
    target: u32,
}

/// A conversion, made for one shape.
pub(crate) struct Cast {
    kernel: &'static str,
    args: Args,
    /// What the addresses must be multiples of for elements to be moved four at a time; `None` where they lie
    /// apart.
    alignment: Option<[usize; 2]>,
}

impl Cast {
    /// From one dtype to another, as `as` of Rust does: to whole numbers towards zero and saturating from
    /// floats, wrapping from wider ones; to bool whether it is not 0. Strides in elements.
    pub(crate) fn new(
        from: DType,
        to: DType,
        shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Result<Cast, Unsupported> {
        let (source, source_bytes) = number(from)?;
        let (target, target_bytes) = number(to)?;
        let loops = axes::collapse(shape, [source_strides, target_strides], 1);
        let contiguous = matches!(loops.as_slice(), [axis] if axis.strides == [1, 1]);
        let args = Args {
            from: 0,
            to: 0,
            axes: Axes::new(&loops)?,
            elements: axes::count(&loops) as u32,
            packed: 0,
            target: target as u32,
        };
        let alignment = contiguous.then_some([source_bytes * EACH, target_bytes * EACH]);
        Ok(Cast { kernel: KERNELS[source], args, alignment })
    }

    /// Converts. Source and target must not overlap.
    ///
    /// # Safety
    /// Source and target lie at these addresses and stay there until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        from: CUdeviceptr,
        to: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let aligned =
            |[source, target]: [usize; 2]| launch::aligned(from, source) && launch::aligned(to, target);
        let packed = u32::from(self.alignment.is_some_and(aligned));
        let args = Args { from, to, packed, ..self.args };
        let grid = blocks(self.args.elements as usize, BLOCK * EACH);
        // SAFETY: the caller's promise; `args` is the kernel's struct, and its loops stay within the tensors.
        unsafe { queue.launch(self.kernel, grid, (BLOCK as u32, 1), 0, &args) }
    }
}

/// The kernel's number for a dtype, and the bytes of an element.
fn number(dtype: DType) -> Result<(usize, usize), Unsupported> {
    let known = DType::ALL.iter().position(|&known| known == dtype);
    match (known, dtype.size_bytes()) {
        (Some(number), Some(bytes)) => Ok((number, bytes)),
        _ => Err(Unsupported::Elements(dtype)),
    }
}
