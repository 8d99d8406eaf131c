//! Products of matrices.

use super::super::kernels::epilogue::Pointers;
use super::super::kernels::gemm::{B, Gemm, Strides};
use super::super::kernels::tile::{Candidate, Size};
use super::super::launch::{Binder, Kernel, Operands, Ways, none};
use super::choice::Choice;
use super::tail::Tail;
use super::{halves, like, pack_halves};
use crate::device::NoKernel;
use crate::device::weights::Packing;
use crate::graph::Einsum;
use crate::plan::{Operand, Place, Product, Step};
use crate::tensor::DType;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUdeviceptr;
use smallvec::SmallVec;

/// A product of matrices, or several: the kernels take two axes of a batch, further ones are launches of their own.
struct Multiplication {
    gemm: Gemm,
    /// How many launches, and by how many elements each further one moves in a, b, c and the operand.
    outer: SmallVec<[Axis; 2]>,
    choice: Choice<Candidate>,
    scratch_bytes: usize,
    /// Elements of a constant b that are to be f16.
    halves: Option<usize>,
    tail: Tail,
}

/// An axis of the batch: how long it is, and its strides in a, b, c and the operand, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Axis {
    count: usize,
    strides: [usize; 4],
}

/// What a product that splits k wants to have: partial sums, and counters that are zero.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scratch {
    partial_bytes: usize,
    counters: usize,
}

/// Scratch up to here is worth a candidate that is tried.
const SCRATCH: usize = 1 << 20;

/// Those candidates that want little scratch, or no more than the most promising; and what the largest of them wants.
pub(super) fn within(
    mut candidates: Vec<Candidate>,
    size: &Size,
    binder: Binder<'_>,
) -> (Vec<Candidate>, usize) {
    let bytes = |candidate: &Candidate| Scratch::of(candidate, size).bytes();
    let most = candidates.first().map_or(0, bytes).max(SCRATCH);
    candidates.retain(|candidate| bytes(candidate) <= most);
    candidates.truncate(binder.tries());
    let largest = candidates.iter().map(bytes).max().unwrap_or(0);
    (candidates, largest)
}

impl Scratch {
    /// What a candidate wants.
    pub(super) fn of(candidate: &Candidate, size: &Size) -> Scratch {
        let (partial_bytes, counters) = candidate.scratch(size);
        Scratch { partial_bytes: partial_bytes.next_multiple_of(16), counters }
    }

    pub(super) fn bytes(&self) -> usize {
        self.partial_bytes + self.counters * 4
    }

    /// The addresses of both, the counters zeroed.
    ///
    /// # Safety
    /// The step's scratch has so many bytes.
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn ready(&self, on: &Operands<'_>) -> Result<(CUdeviceptr, CUdeviceptr), DriverError> {
        if self.counters == 0 {
            return Ok((0, 0));
        }
        let counters = on.scratch + self.partial_bytes as u64;
        // SAFETY: the caller's promise.
        unsafe { result::memset_d8_async(counters, 0, self.counters * 4, on.stream())? };
        Ok((on.scratch, counters))
    }
}

pub(super) fn bind(step: &Step, einsum: &Einsum, binder: Binder<'_>) -> Result<Box<dyn Kernel>, NoKernel> {
    let product = step.product.as_ref().ok_or_else(|| none(step, "no matrix product"))?;
    let (a, b, c) = (&step.inputs[0], &step.inputs[1], &step.outputs[0]);
    let precision = binder.product(step, a)?;
    let constant = matches!(b.place, Place::Constant(_));
    if a.dtype != c.dtype || (b.dtype != a.dtype && !(constant && b.dtype == DType::F32)) {
        return Err(none(step, format!("{} of {} and {}", c.dtype, a.dtype, b.dtype)));
    }
    let columns = |axis: usize| {
        let label = &einsum.c[axis];
        einsum.b.contains(label) && !einsum.a.contains(label)
    };
    let beside = |operand: &Operand| Beside::new(product, operand, c, columns);
    let tail = Tail::new(step, &einsum.epilogue, |operand| beside(operand).is_some())?;
    let operand = tail.operand(step);
    let along = operand.and_then(beside).unwrap_or_default();
    let mut batch: SmallVec<[Axis; 4]> = SmallVec::new();
    for (at, &(count, a, b, c)) in product.batch.iter().enumerate() {
        let operand = along.batch.get(at).copied().unwrap_or(0);
        batch.push(Axis { count, strides: [a, b, c, operand] });
    }
    let mut batch = merged(batch);
    let inner: SmallVec<[Axis; 2]> = batch.drain(batch.len().saturating_sub(2)..).collect();
    let outer: SmallVec<[Axis; 2]> = batch.into_iter().collect();
    let axis = |at: usize| match (inner.len(), at) {
        (2, at) => inner[at],
        (1, 1) => inner[0],
        _ => Axis { count: 1, strides: [0; 4] },
    };
    let of = |side: usize, (row, column): (usize, usize)| Strides {
        batch: [axis(0).strides[side], axis(1).strides[side]],
        row,
        column,
    };
    let packed = constant && product.batch.iter().all(|(_, _, b, _)| *b == 0);
    let gemm = Gemm {
        precision,
        batch: [axis(0).count, axis(1).count],
        m: product.m,
        n: product.n,
        k: product.k,
        a: of(0, product.a),
        b: if packed { B::Packed([0, 0]) } else { B::Strided(of(1, (product.b.1, product.b.0))) },
        c: of(2, product.c),
        operand: of(3, (along.row, along.column)),
        epilogue: tail.epilogue,
    };
    let gpu = binder.modules.gpu();
    // A further launch begins elsewhere.
    let lies = |side: usize, first: CUdeviceptr| {
        outer
            .iter()
            .fold(first, |all, axis| all | (axis.strides[side] * precision.bytes() % 16) as CUdeviceptr)
    };
    let pointers = Pointers {
        a: lies(0, like(a)),
        b: if packed { 0 } else { lies(1, like(b)) },
        c: lies(2, like(c)),
        operand: operand.map_or(0, |operand| lies(3, like(operand))),
        ..Pointers::default()
    };
    let (candidates, scratch_bytes) = within(gemm.candidates(&pointers, gpu), &gemm.size(), binder);
    let made = |candidate: &Candidate| (candidate.kernel(), gemm.grid(candidate, gpu));
    let choice = Choice::new(step, binder, &(&gemm, &pointers), candidates, made)?;
    // A constant that is not packed has to be of the other operand's dtype.
    let halves = (constant && !packed && b.dtype != a.dtype).then(|| b.shape.iter().product());
    Ok(Box::new(Multiplication { gemm, outer, choice, scratch_bytes, halves, tail }))
}

/// Neighbouring axes of a batch as one, where all tensors step evenly through both; axes of one element left out.
fn merged(mut axes: SmallVec<[Axis; 4]>) -> SmallVec<[Axis; 4]> {
    axes.retain(|axis| axis.count != 1);
    axes.sort_by_key(|axis| std::cmp::Reverse(axis.strides[2]));
    let mut merged: SmallVec<[Axis; 4]> = SmallVec::new();
    for axis in axes {
        match merged.last_mut() {
            Some(last) if (0..4).all(|side| last.strides[side] == axis.strides[side] * axis.count) => {
                *last = Axis { count: last.count * axis.count, strides: axis.strides };
            }
            _ => merged.push(axis),
        }
    }
    merged
}

/// How an operand of the epilogue lies, along the axes of the product.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Beside {
    batch: SmallVec<[usize; 4]>,
    row: usize,
    column: usize,
}

impl Beside {
    /// The operand's strides along the axes that the product has made of the output's; `None` where it does not step
    /// evenly along one of them.
    fn new(
        product: &Product,
        operand: &Operand,
        c: &Operand,
        column: impl Fn(usize) -> bool,
    ) -> Option<Beside> {
        let view = operand.view.broadcast(&operand.shape, &c.shape);
        let long: SmallVec<[usize; 6]> = (0..c.shape.len()).filter(|axis| c.shape[*axis] > 1).collect();
        // The output's axes that a product's axis is made of are those whose strides lie within it.
        let along = |count: usize, stride: usize, columns: bool| -> Option<usize> {
            let mut own = None;
            for &axis in long.iter().filter(|axis| column(**axis) == columns) {
                let within = c.view.strides[axis];
                if stride == 0 || count <= 1 || within < stride || within >= stride * count {
                    continue;
                }
                if !within.is_multiple_of(stride) {
                    return None;
                }
                let steps = within / stride;
                let step = view.strides[axis];
                if !step.is_multiple_of(steps) || own.is_some_and(|own| own != step / steps) {
                    return None;
                }
                own = Some(step / steps);
            }
            Some(own.unwrap_or(0))
        };
        let batch = product.batch.iter().map(|(count, _, _, stride)| along(*count, *stride, false));
        Some(Beside {
            batch: batch.collect::<Option<_>>()?,
            row: along(product.m, product.c.0, false)?,
            column: along(product.n, product.c.1, true)?,
        })
    }
}

impl Kernel for Multiplication {
    fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    fn ways(&self) -> Option<&dyn Ways> {
        Some(&self.choice)
    }

    fn packing(&self, input: usize) -> Option<Packing> {
        let packed = self.gemm.packed(1);
        if let Some(elements) = self.halves.filter(|_| input == 1) {
            return Some(halves(elements));
        }
        let is = input == 1 && matches!(self.gemm.b, B::Packed(_));
        is.then(|| Packing { form: format!("cuda product {packed:?}"), bytes: packed.bytes() })
    }

    fn pack(&self, _input: usize, from: &[f32], to: &mut [u8]) {
        if self.halves.is_some() {
            return pack_halves(from, to);
        }
        // Laid out as rows of k.
        let n = self.gemm.n;
        self.gemm.packed(1).pack(|column, row, _| from[row * n + column], to);
    }

    unsafe fn launch(&self, on: &Operands<'_>) -> Result<(), DriverError> {
        let (bias, operand) = self.tail.addresses(on);
        let bytes = self.gemm.precision.bytes();
        let (candidate, grid, function) = self.choice.now()?;
        let scratch = Scratch::of(candidate, &self.gemm.size());
        let launches: usize = self.outer.iter().map(|axis| axis.count).product();
        for mut launch in 0..launches {
            let mut moved = [0; 4];
            for axis in self.outer.iter().rev() {
                let at = launch % axis.count;
                launch /= axis.count;
                moved
                    .iter_mut()
                    .zip(axis.strides)
                    .for_each(|(moved, stride)| *moved += (at * stride * bytes) as u64);
            }
            // SAFETY: the scratch is as large as the largest of the candidates wants; launches follow each other.
            let (partials, counters) = unsafe { scratch.ready(on)? };
            let pointers = Pointers {
                a: on.inputs[0] + moved[0],
                b: on.inputs[1] + moved[1],
                c: on.outputs[0] + moved[2],
                bias,
                operand: if operand == 0 { 0 } else { operand + moved[3] },
                partials,
                counters,
            };
            let args = self.gemm.args(candidate, &pointers);
            // SAFETY: the caller's promise; the argument is the kernel's struct.
            unsafe { grid.launch(function.0, on.stream(), &args)? };
        }
        // SAFETY: the caller's promise.
        unsafe { self.tail.launch(on) }
    }
}
