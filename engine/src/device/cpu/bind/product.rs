//! Products of matrices.

use super::super::args::{Args, Columns, Kernel, Packing};
use super::super::kernels::matmul::{B, Batch, MatMul, lanes};
use super::epilogue::Tail;
use super::none;
use crate::device::NoKernel;
use crate::error::Error;
use crate::graph::Einsum;
use crate::plan::{Place, Step};
use smallvec::SmallVec;

struct Multiplication {
    kernel: MatMul,
    packed: bool,
    /// The axis of the second input that the columns are, where it is one.
    column: Option<usize>,
    tail: Tail,
}

impl Kernel for Multiplication {
    fn scratch_len(&self, threads: usize) -> usize {
        self.kernel.scratch_len(self.packed, threads)
    }

    fn packing(&self, input: usize) -> Option<Packing> {
        let (k, n) = (self.kernel.k, self.kernel.n);
        let columns = self.column.map(|axis| Columns { axis, unit: 2 * lanes(), height: k });
        let packing =
            || Packing { form: format!("{k} × {n} by {}", lanes()), len: self.kernel.packed_len(), columns };
        (self.packed && input == 1).then(packing)
    }

    fn pack(&self, _input: usize, columns: Option<usize>, from: &[f32], to: &mut [f32]) {
        let n = columns.unwrap_or(self.kernel.n);
        MatMul { n, b_strides: (n, 1), ..self.kernel }.pack_b(from, to);
    }

    fn run(&self, args: &Args<'_>) -> Result<(), Error> {
        let b = if self.packed { B::Packed(args.constant(1)) } else { B::Plain(args.source(1).as_slice()) };
        let (a, scratch) = (args.source(0).as_slice(), args.scratch());
        self.tail.run(args, |epilogue| {
            self.kernel.run(a, b, epilogue, args.target(0).as_mut_slice(), scratch, args.threads)
        });
        Ok(())
    }
}

pub(super) fn bind(step: &Step, einsum: &Einsum) -> Result<Box<dyn Kernel>, NoKernel> {
    let product = step.product.as_ref().ok_or_else(|| none(step, "no matrix product"))?;
    let constant = matches!(step.inputs[1].place, Place::Constant(_));
    let mut batch = [Batch::ONE; 4];
    if product.batch.len() > batch.len() {
        return Err(none(step, format!("{} batch axes", product.batch.len())));
    }
    // The kernel's rows run over the last batch axis first.
    let first = batch.len() - product.batch.len();
    for (to, &(count, a, b, c)) in batch[first..].iter_mut().zip(&product.batch) {
        *to = Batch { count, a, b, c };
    }
    let kernel = MatMul {
        m: product.m,
        n: product.n,
        k: product.k,
        batch,
        a_strides: product.a,
        b_strides: product.b,
        c_strides: product.c,
    };
    // Rows are rows of the output only where no batch comes between them.
    let output = &step.outputs[0];
    let order = output.view.order(&output.shape);
    let label = |axis: &usize| einsum.c[*axis];
    let columns: SmallVec<[usize; 6]> = order
        .iter()
        .copied()
        .filter(|axis| einsum.b.contains(&label(axis)) && !einsum.a.contains(&label(axis)))
        .collect();
    let rows: SmallVec<[usize; 6]> = order.iter().copied().filter(|axis| !columns.contains(axis)).collect();
    let simple = product.batch.is_empty() && (product.c.1 == 1 || product.n == 1);
    let tail = Tail::new(step, &einsum.epilogue, simple.then_some((&rows, &columns)))?;
    let shared_b = product.batch.iter().all(|(_, _, b, _)| *b == 0);
    let weights = &step.inputs[1].shape;
    let column = (0..weights.len()).find(|&axis| {
        let label = einsum.b[axis];
        weights[axis] == product.n && einsum.c.contains(&label) && !einsum.a.contains(&label)
    });
    Ok(Box::new(Multiplication { kernel, packed: constant && shared_b, column, tail }))
}
