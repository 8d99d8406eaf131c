//! Chains of pointwise operations, interpreted by one kernel.

use super::axes::{self, Axes, Axis, Loops};
use super::launch::{self, Queue, Unsupported, blocks};
use crate::graph::chain::Chain;
use crate::tensor::DType;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::CUdeviceptr;
use program::{Code, INSTRS, NUMBERS, Short};
use smallvec::SmallVec;

mod program;
#[cfg(test)]
mod tests;

pub(crate) use program::OPERANDS;

const TENSORS: usize = OPERANDS + 1;
const OUT: usize = OPERANDS;
const AXES: usize = 6;
const BLOCK: usize = 128;
/// Elements from which on wider groups of f32 pay: there are threads enough, and an operation is read less
/// often.
const MANY: usize = 2 << 20;
/// Bytes of shared memory that a block can have without asking.
const SHARED: usize = 48 << 10;

/// How elements are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
#[repr(u8)]
pub(crate) enum Elements {
    F32,
    F16,
    /// Whose bits the chain compares or converts.
    I32,
    /// Of which the low 32 bits count; operands only.
    I64,
    /// As u8: 1 where not 0, else 0.
    Bool,
}

/// An operand: one stride per axis of the output, 0 where it is broadcast, and how its elements are stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Operand<'a> {
    /// In elements.
    pub(crate) strides: &'a [usize],
    /// In memory.
    pub(crate) elements: Elements,
}

/// `N` operands and the output, `M` = `N` + 1 tensors of which it comes last.
#[repr(C)]
#[derive(Clone, Copy)]
struct Tensors<const N: usize, const M: usize> {
    out: u64,
    operands: [u64; N],
    axes: Axes<M, AXES>,
    groups: u32,
    tail: u32,
    operand_count: u32,
    kinds: [u8; M],
    still: [u8; N],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Args {
    tensors: Tensors<OPERANDS, TENSORS>,
    instr_count: u32,
    numbers: [f32; NUMBERS],
    codes: [Code; INSTRS + 1],
}

#[repr(C)]
#[derive(Clone, Copy)]
struct ShortArgs {
    tensors: Tensors<2, 3>,
    chain: Short,
}

/// A chain, made for one output shape.
pub(crate) struct Pointwise {
    args: Args,
    short: Option<Short>,
    slots: usize,
    operands: usize,
    /// The best first; the last takes anything.
    ways: SmallVec<[Grouping; 4]>,
}

/// How elements are given to threads.
struct Grouping {
    kernel: &'static str,
    /// Whether the kernel is for short chains.
    short: bool,
    width: usize,
    axes: Axes<TENSORS, AXES>,
    groups: usize,
    tail: usize,
    still: [u8; OPERANDS],
    /// What the operands' and the output's addresses must be multiples of.
    alignment: [usize; TENSORS],
}

impl Elements {
    /// As tensors of that dtype store them.
    pub(crate) fn of(dtype: DType) -> Result<Elements, Unsupported> {
        match dtype {
            DType::F32 => Ok(Elements::F32),
            DType::F16 => Ok(Elements::F16),
            DType::I32 => Ok(Elements::I32),
            DType::I64 => Ok(Elements::I64),
            DType::Bool => Ok(Elements::Bool),
            other => Err(Unsupported::Elements(other)),
        }
    }

    fn bytes(self) -> usize {
        match self {
            Elements::F32 | Elements::I32 => 4,
            Elements::F16 => 2,
            Elements::I64 => 8,
            Elements::Bool => 1,
        }
    }
}

impl Pointwise {
    /// `chain` for every element of an output of that shape, which is stored as f32, f16 or bool.
    pub(crate) fn new(
        chain: &Chain,
        shape: &[usize],
        operands: &[Operand<'_>],
        out_strides: &[usize],
        store: Elements,
    ) -> Result<Pointwise, Unsupported> {
        if operands.len() > OPERANDS {
            return Err(Unsupported::Chain { what: "operands", have: operands.len(), most: OPERANDS });
        }
        if matches!(store, Elements::I32 | Elements::I64) {
            return Err(Unsupported::Other("a chain's result is f32, f16 or bool"));
        }
        let program = program::Program::new(chain, operands.len())?;
        let still: SmallVec<[usize; 6]> = SmallVec::from_elem(0, shape.len());
        let strides: [&[usize]; TENSORS] = std::array::from_fn(|t| match t {
            OUT => out_strides,
            _ => operands.get(t).map_or(&still[..], |operand| operand.strides),
        });
        let loops = axes::collapse(shape, strides, OUT);
        let mut kinds = [store; TENSORS];
        for (kind, operand) in kinds.iter_mut().zip(operands) {
            *kind = operand.elements;
        }
        let alike = |elements: Elements| {
            store == elements && operands.iter().all(|operand| operand.elements == elements)
        };
        let many = axes::count(&loops) >= MANY;
        let short = program.short.is_some();
        let mixed = ("pointwise_mixed_4", 4);
        let candidates: &[(&'static str, usize)] = match (alike(Elements::F32), alike(Elements::F16)) {
            (true, _) if short => &[("pointwise_short_f32", 4)],
            (true, _) if many => &[("pointwise_f32_8", 8), ("pointwise_f32_4", 4)],
            (true, _) => &[("pointwise_f32_4", 4)],
            (_, true) if short => &[("pointwise_short_f16", 8), mixed],
            (_, true) => &[("pointwise_f16_8", 8), mixed],
            _ => &[mixed],
        };
        let mut ways = SmallVec::new();
        for &(kernel, width) in candidates {
            if program.slots * width * 4 * BLOCK <= SHARED {
                ways.extend(Grouping::along(&loops, width, kernel, &kinds)?);
            }
        }
        ways.push(Grouping::any(&loops)?);
        let tensors = Tensors {
            out: 0,
            operands: [0; OPERANDS],
            axes: Axes::new(&[])?,
            groups: 0,
            tail: 0,
            operand_count: operands.len() as u32,
            kinds: kinds.map(|kind| kind as u8),
            still: [0; OPERANDS],
        };
        let args = Args {
            tensors,
            instr_count: program.codes.len() as u32,
            numbers: std::array::from_fn(|at| program.numbers.get(at).copied().unwrap_or(0.0)),
            codes: std::array::from_fn(|at| program.codes.get(at).copied().unwrap_or_default()),
        };
        Ok(Pointwise { args, short: program.short, slots: program.slots, operands: operands.len(), ways })
    }

    /// Computes the output. An operand that shares memory with the output must have the same strides and
    /// dtype; no other may overlap it.
    ///
    /// # Safety
    /// The operands and the output lie at these addresses and stay there until the stream has come past the
    /// launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch(
        &self,
        queue: Queue<'_>,
        operands: &[CUdeviceptr],
        out: CUdeviceptr,
    ) -> Result<(), DriverError> {
        let fits = |shape: &Grouping| {
            let addresses = operands.iter().zip(&shape.alignment);
            launch::aligned(out, shape.alignment[OUT])
                && addresses.into_iter().all(|(&address, &bytes)| launch::aligned(address, bytes))
        };
        debug_assert_eq!(operands.len(), self.operands, "one address per operand");
        // The last fits whatever the addresses are.
        let Some(shape) = self.ways.iter().find(|shape| fits(shape)).or(self.ways.last()) else {
            return Ok(());
        };
        let grid = blocks(shape.groups, BLOCK);
        let block = (BLOCK as u32, 1);
        let mut tensors = Tensors {
            out,
            axes: shape.axes,
            groups: shape.groups as u32,
            tail: shape.tail as u32,
            still: shape.still,
            ..self.args.tensors
        };
        tensors.operands[..operands.len()].copy_from_slice(operands);
        if let Some(chain) = self.short.filter(|_| shape.short) {
            let args = ShortArgs { tensors: tensors.first_two(), chain };
            // SAFETY: the caller's promise; `args` is the kernels' struct, and shapes' extents are the
            // operands'.
            return unsafe { queue.launch(shape.kernel, grid, block, 0, &args) };
        }
        let shared_bytes = self.slots * shape.width * 4 * BLOCK;
        // SAFETY: as above.
        unsafe {
            queue.launch(shape.kernel, grid, block, shared_bytes as u32, &Args { tensors, ..self.args })
        }
    }
}

impl Tensors<OPERANDS, TENSORS> {
    /// The first two operands and the output.
    fn first_two(&self) -> Tensors<2, 3> {
        Tensors {
            out: self.out,
            operands: [self.operands[0], self.operands[1]],
            axes: self.axes.select([0, 1, OUT]),
            groups: self.groups,
            tail: self.tail,
            operand_count: self.operand_count,
            kinds: [self.kinds[0], self.kinds[1], self.kinds[OUT]],
            still: [self.still[0], self.still[1]],
        }
    }
}

impl Grouping {
    /// `width` neighbours a thread, where every tensor lies such that they can be moved as one.
    fn along(
        loops: &Loops<TENSORS>,
        width: usize,
        kernel: &'static str,
        kinds: &[Elements; TENSORS],
    ) -> Result<Option<Grouping>, Unsupported> {
        let Some((inner, outer)) = loops.split_last() else { return Ok(None) };
        let moves = |t: usize| inner.strides[t] == 1;
        let whole = |t: usize| !moves(t) || outer.iter().all(|axis| axis.strides[t].is_multiple_of(width));
        let rows = outer.is_empty() || inner.len.is_multiple_of(width);
        if !rows || !moves(OUT) || inner.strides.iter().any(|&stride| stride > 1) || !(0..TENSORS).all(whole)
        {
            return Ok(None);
        }
        axes::check(loops)?;
        let mut grouped = loops.clone();
        if let Some(inner) = grouped.last_mut() {
            let strides = inner.strides.map(|stride| stride * width);
            *inner = Axis { len: inner.len.div_ceil(width), strides };
        }
        let alignment =
            std::array::from_fn(|t| if moves(t) { (width * kinds[t].bytes()).min(16) } else { 1 });
        Ok(Some(Grouping {
            kernel,
            short: kernel.starts_with("pointwise_short"),
            width,
            axes: Axes::new(&grouped)?,
            groups: axes::count(&grouped),
            tail: inner.len - inner.len.saturating_sub(1) / width * width,
            still: std::array::from_fn(|t| u8::from(!moves(t))),
            alignment,
        }))
    }

    /// Elements a block apart, wherever they lie.
    fn any(loops: &Loops<TENSORS>) -> Result<Grouping, Unsupported> {
        let elements = axes::count(loops);
        Ok(Grouping {
            kernel: "pointwise_any_4",
            short: false,
            width: 4,
            axes: Axes::new(loops)?,
            // A thread for each of a whole number of blocks: the first of its elements may be one, the others
            // not.
            groups: elements.div_ceil(4 * BLOCK) * BLOCK,
            tail: elements,
            still: [0; OPERANDS],
            alignment: [1; TENSORS],
        })
    }
}
