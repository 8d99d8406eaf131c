//! Copies from one layout to another: slices, pieces of concatenations, broadcasts and transpositions.

use super::axes::{self, Axes, Axis, Divider, Loops};
use super::launch::{self, Queue, Unsupported, blocks};
use super::units::{BLOCK, Units, units};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;

const AXES: usize = 6;
/// Axes shorter than this fill too little of a tile to be worth one.
const SHORT: usize = 8;

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    from: u64,
    to: u64,
    axes: Axes<2, AXES>,
    units: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct TransposeArgs {
    from: u64,
    to: u64,
    from_len: u32,
    to_len: u32,
    from_stride: u32,
    to_stride: u32,
    from_tiles: Divider,
    to_tiles: Divider,
    axes: Axes<2, AXES>,
}

/// A copy, made for one shape.
pub(crate) struct Copy {
    way: Way,
}

enum Way {
    /// The widest units first.
    Strided(Vec<Units<2, AXES>>),
    Tiled {
        kernel: &'static str,
        args: TransposeArgs,
        grid: u32,
        /// Whether two elements can be moved at a time, if addresses allow it.
        pairs: bool,
    },
}

impl Copy {
    /// Of elements of `elem_bytes` (1, 2, 4 or 8); strides in elements, 0 in the source where it is
    /// broadcast.
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Result<Copy, Unsupported> {
        let loops = axes::collapse(shape, [source_strides, target_strides], 1);
        let way = match tiled(elem_bytes, &loops)? {
            Some(way) => way,
            None => Way::Strided(units(&loops, elem_bytes, [true; 2], &[])?.into_vec()),
        };
        Ok(Copy { way })
    }

    /// Copies. Source and target must not overlap.
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
        match &self.way {
            Way::Tiled { kernel, args, grid, pairs } => {
                let args = TransposeArgs { from, to, ..*args };
                let pairs = *pairs && launch::aligned(from | to, 4);
                let kernel = if pairs { "transpose_pairs" } else { kernel };
                // SAFETY: the caller's promise; `args` is the kernel's struct, and its loops stay within the
                // tensors.
                unsafe { queue.launch(kernel, *grid, (32, 8), 0, &args) }
            }
            Way::Strided(ways) => {
                let Some(units) = ways.iter().find(|units| launch::aligned(from | to, units.bytes)) else {
                    return Ok(());
                };
                let kernel = match units.bytes {
                    1 => "copy_1",
                    2 => "copy_2",
                    4 => "copy_4",
                    8 => "copy_8",
                    _ => "copy_16",
                };
                let args = Args { from, to, axes: units.axes, units: units.count as u32 };
                // SAFETY: as above.
                unsafe { queue.launch(kernel, units.grid(), (BLOCK as u32, 1), 0, &args) }
            }
        }
    }
}

/// By tiles, where neighbours of the target lie apart in the source and the source has neighbours of its own.
fn tiled(elem_bytes: usize, loops: &Loops<2>) -> Result<Option<Way>, Unsupported> {
    let Some((inner, outer)) = loops.split_last() else { return Ok(None) };
    let Some(at) = outer.iter().position(|axis| axis.strides[0] == 1) else { return Ok(None) };
    let along = outer[at];
    if inner.strides[1] != 1 || inner.strides[0] <= 1 || inner.len.min(along.len) < SHORT {
        return Ok(None);
    }
    axes::check(loops)?;
    let rest: Loops<2> =
        outer.iter().enumerate().filter(|(axis, _)| *axis != at).map(|(_, axis)| *axis).collect();
    let (side, kernel) = match elem_bytes {
        1 => (64, "transpose_1"),
        2 => (64, "transpose_2"),
        4 => (32, "transpose_4"),
        _ => (32, "transpose_8"),
    };
    let tiles = |axis: &Axis<2>| axis.len.div_ceil(side);
    let args = TransposeArgs {
        from: 0,
        to: 0,
        from_len: along.len as u32,
        to_len: inner.len as u32,
        from_stride: inner.strides[0] as u32,
        to_stride: along.strides[1] as u32,
        from_tiles: Divider::new(tiles(&along)),
        to_tiles: Divider::new(tiles(inner)),
        axes: Axes::new(&rest)?,
    };
    let grid = blocks(axes::count(&rest) * tiles(&along) * tiles(inner), 1);
    let even = |axis: &Axis<2>| axis.strides.iter().all(|stride| stride.is_multiple_of(2));
    let pairs = elem_bytes == 2
        && [inner.len, along.len, inner.strides[0], along.strides[1]].iter().all(|n| n.is_multiple_of(2))
        && rest.iter().all(even);
    Ok(Some(Way::Tiled { kernel, args, grid, pairs }))
}
