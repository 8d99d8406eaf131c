//! Padding of any axes: with a constant, with the edge, or with reflections.

use super::axes::{Axes, Axis, Loops};
use super::launch::{self, Queue, Unsupported};
use super::units::{BLOCK, Units, units};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

const AXES: usize = 6;

/// What stands beyond the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PadMode {
    /// The element whose bits are the lowest ones.
    Constant(u64),
    /// The nearest element.
    Edge,
    /// The elements mirrored at the first and the last one, which are not repeated.
    Reflect,
}

#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Wide([u64; 2]);

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    from: u64,
    to: u64,
    value: Wide,
    axes: Axes<2, AXES>,
    len: [i32; AXES],
    before: [i32; AXES],
    units: u32,
    mode: u32,
}

/// A padding, made for one shape.
pub(crate) struct Pad {
    /// The widest units first.
    ways: SmallVec<[Units<2, AXES>; 5]>,
    args: Args,
    elem_bytes: usize,
}

/// An axis of the target, and which part of it is the source's.
#[derive(Clone, Copy)]
struct Bordered {
    out: Axis<2>,
    len: usize,
    before: isize,
}

impl Bordered {
    fn plain(&self) -> bool {
        self.before == 0 && self.len == self.out.len
    }
}

impl Pad {
    /// Of a source of `shape` to a target of `out_shape` that begins `before` elements before it on each
    /// axis; negative ones cut. Strides are in elements of `elem_bytes` (1, 2, 4 or 8). Nearest and mirrored
    /// elements need a source of at least one element per axis.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn new(
        elem_bytes: usize,
        shape: &[usize],
        out_shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
        before: &[isize],
        mode: PadMode,
    ) -> Result<Pad, Unsupported> {
        let mut axes: SmallVec<[Bordered; 6]> = (0..shape.len())
            .map(|axis| Bordered {
                out: Axis { len: out_shape[axis], strides: [source_strides[axis], target_strides[axis]] },
                len: shape[axis],
                before: before[axis],
            })
            .filter(|axis| !(axis.plain() && axis.len == 1))
            .collect();
        if !matches!(mode, PadMode::Constant(_)) && shape.contains(&0) && !out_shape.contains(&0) {
            return Err(Unsupported::Other("a border of elements that are not there"));
        }
        axes.sort_by_key(|axis| std::cmp::Reverse(axis.out.strides[1]));
        let axes = merged(axes);
        if axes.iter().any(|axis| axis.len.max(axis.out.len) >= 1 << 30 || axis.before.abs() >= 1 << 30) {
            return Err(Unsupported::TooLarge(1 << 30));
        }
        let loops: Loops<2> = axes.iter().map(|axis| axis.out).collect();
        let mut ways: SmallVec<[Units<2, AXES>; 5]> = units(&loops, elem_bytes, [true; 2], &[])?;
        if !axes.last().is_some_and(Bordered::plain) {
            ways.retain(|way| way.bytes == elem_bytes);
        }
        let (mut len, mut befores) = ([0; AXES], [0; AXES]);
        for (at, axis) in axes.iter().rev().enumerate() {
            (len[at], befores[at]) = (axis.len as i32, axis.before as i32);
        }
        let bits = match mode {
            PadMode::Constant(bits) => bits,
            _ => 0,
        };
        // The lowest bytes, as often as they fit.
        let repeated = match elem_bytes {
            1 => (bits & 0xff) * 0x0101_0101_0101_0101,
            2 => (bits & 0xffff) * 0x0001_0001_0001_0001,
            4 => (bits & 0xffff_ffff) * 0x0000_0001_0000_0001,
            _ => bits,
        };
        let args = Args {
            from: 0,
            to: 0,
            value: Wide([repeated; 2]),
            axes: Axes::new(&[])?,
            len,
            before: befores,
            units: 0,
            mode: match mode {
                PadMode::Constant(_) => 0,
                PadMode::Edge => 1,
                PadMode::Reflect => 2,
            },
        };
        Ok(Pad { ways, args, elem_bytes })
    }

    /// Pads. Source and target must not overlap.
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
        let fits = |units: &&Units<2, AXES>| launch::aligned(from | to, units.bytes);
        let Some(units) = self.ways.iter().find(fits) else { return Ok(()) };
        let kernel = match units.bytes {
            1 => "pad_1",
            2 => "pad_2",
            4 => "pad_4",
            8 => "pad_8",
            _ => "pad_16",
        };
        let mut args = Args { from, to, axes: units.axes, units: units.count as u32, ..self.args };
        // Units are wider than elements only along an axis without a border.
        args.len[0] /= (units.bytes / self.elem_bytes) as i32;
        // SAFETY: the caller's promise; `args` is the kernel's struct, and what it reads lies within the
        // source.
        unsafe { queue.launch(kernel, units.grid(), (BLOCK as u32, 1), 0, &args) }
    }
}

/// Neighbours without a border as one, where both tensors step evenly through them.
fn merged(axes: SmallVec<[Bordered; 6]>) -> SmallVec<[Bordered; 6]> {
    let mut merged: SmallVec<[Bordered; 6]> = SmallVec::new();
    for axis in axes {
        match merged.last_mut() {
            Some(outer)
                if outer.plain()
                    && axis.plain()
                    && (0..2).all(|t| outer.out.strides[t] == axis.out.strides[t] * axis.len) =>
            {
                let len = outer.len * axis.len;
                *outer = Bordered { out: Axis { len, strides: axis.out.strides }, len, before: 0 };
            }
            _ => merged.push(axis),
        }
    }
    merged
}
