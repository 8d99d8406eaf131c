//! Products, convolutions and attention.

use super::{Rng, compare_in, every, input};
use crate::graph::{
    Attention, Binary, Builder, Chain, Conv, Einsum, Epilogue, Image, Instr, Op, Src, Unary, ValueId, Window,
};
use crate::tensor::DType;
use smallvec::SmallVec;

/// An epilogue for an output of that shape with its channels along `axis`, and its inputs.
fn epilogue(m: &mut Builder, rng: &mut Rng, shape: &[usize], axis: usize) -> (Epilogue, Vec<ValueId>) {
    let (mut epilogue, mut inputs) = (Epilogue::default(), vec![]);
    if rng.bool() {
        epilogue.bias = true;
        inputs.push(m.floats("bias", &[shape[axis]], &rng.floats(shape[axis])));
    }
    let (x, other) = (Src::Operand(0), Src::Operand(1));
    let relu = |x| Instr::Binary(Binary::Max, x, Src::Const(0.0));
    let add = |x| Instr::Binary(Binary::Add, other, x);
    let instrs = match rng.one(0, 7) {
        0 => vec![relu(x)],
        1 => vec![relu(x), Instr::Binary(Binary::Min, Src::Reg(0), Src::Const(6.0))],
        2 => vec![Instr::Unary(rng.pick(&[Unary::Silu, Unary::HardSwish, Unary::GeluErf]), x)],
        3 => vec![add(x), relu(Src::Reg(0))],
        4 => vec![Instr::Unary(Unary::Sigmoid, x), Instr::Binary(Binary::Mul, Src::Reg(0), other)],
        5 => vec![Instr::Unary(Unary::Sin, x), add(Src::Reg(0)), Instr::Binary(Binary::Sub, Src::Reg(1), x)],
        _ => vec![],
    };
    if !instrs.is_empty() {
        if instrs.iter().any(|instr| instr.sources().any(|src| src == other)) {
            let broadcast = rng.one(0, 2) == 0;
            let own: Vec<usize> =
                shape.iter().map(|size| if broadcast && rng.bool() { 1 } else { *size }).collect();
            inputs.push(input(m, rng, &own));
        }
        epilogue.chain = Some(Chain { instrs });
    }
    (epilogue, inputs)
}

fn convolution(rng: &mut Rng, transpose: bool) -> crate::graph::Graph {
    let mut m = Builder::new();
    let spatial = rng.one(1, 2);
    let groups = rng.pick(&[1, 1, 1, 2, 4]);
    let (mut per_in, mut per_out) = (rng.pick(&[1, 3, 4, 8, 20]), rng.pick(&[1, 2, 4, 17, 40]));
    let mut groups = groups;
    if !transpose && rng.one(0, 2) == 0 {
        // Depthwise.
        (groups, per_in, per_out) = (rng.pick(&[3, 8, 12]), 1, 1);
    }
    let mut shape = vec![rng.one(1, 3), groups * per_in];
    let mut to = vec![shape[0], groups * per_out];
    let mut weights = if transpose { vec![groups * per_in, per_out] } else { vec![groups * per_out, per_in] };
    let mut window = Window {
        size: SmallVec::new(),
        stride: SmallVec::new(),
        dilation: SmallVec::new(),
        before: SmallVec::new(),
    };
    let same = rng.bool();
    let size = rng.pick(&[1, 2, 3, 5]);
    for _ in 0..spatial {
        let size = if same { size } else { rng.one(1, 4) };
        let (stride, dilation, own) = (rng.one(1, 2), rng.one(1, 2), rng.one(10, 16));
        let span = (size - 1) * dilation + 1;
        let before = if transpose { 0 } else { rng.one(0, span - 1) };
        shape.push(own);
        weights.push(size);
        to.push(if transpose { (own - 1) * stride + span } else { (own + before - span) / stride + 1 });
        window.size.push(size);
        window.stride.push(stride);
        window.dilation.push(dilation);
        window.before.push(before);
    }
    let x = input(&mut m, rng, &shape);
    let count = weights.iter().product();
    let w = m.floats("w", &weights, &rng.floats(count));
    let (epilogue, others) = epilogue(&mut m, rng, &to, 1);
    let inputs: Vec<ValueId> = [x, w].into_iter().chain(others).collect();
    let image = Image { batch: Some(0), channel: 1, spatial: 2 };
    let conv = Conv { image, window, groups, epilogue };
    let op = if transpose { Op::ConvTranspose(conv) } else { Op::Conv(conv) };
    let y = m.node("y", op, &inputs, DType::F32, &to);
    m.finish(&[y])
}

#[test]
fn convolutions() {
    compare_in("convolutions", &every(), |rng| convolution(rng, false));
}

#[test]
fn transposed_convolutions() {
    compare_in("transposed", &every(), |rng| convolution(rng, true));
}

#[test]
fn products() {
    compare_in("products", &every(), |rng| {
        let mut m = Builder::new();
        // Three labels of a batch, two of rows, one of columns, one summed over.
        let sizes = [rng.one(1, 3), rng.one(1, 3), rng.one(1, 2), rng.one(1, 40), rng.one(1, 4)];
        let (n, k) = (rng.one(1, 70), rng.one(1, 90));
        let batch = rng.one(0, 3);
        let labels = ['b', 'h', 'i', 'm', 'g', 'n', 'k'];
        let size = |label: &char| match label {
            'n' => n,
            'k' => k,
            other => sizes[labels.iter().position(|label| label == other).unwrap()],
        };
        let pick = |rng: &mut Rng, of: Vec<char>| -> SmallVec<[char; 6]> {
            rng.shuffled(of.len()).into_iter().map(|at| of[at]).collect()
        };
        let batches = &labels[..batch];
        let a = pick(rng, batches.iter().copied().chain(['m', 'g', 'k']).collect());
        let b = pick(rng, batches.iter().copied().chain(['n', 'k']).collect());
        let c = pick(rng, batches.iter().copied().chain(['m', 'g', 'n']).collect());
        let shape = |labels: &[char]| -> Vec<usize> { labels.iter().map(size).collect() };
        let x = input(&mut m, rng, &shape(&a));
        let w = match rng.bool() {
            true => {
                let own = shape(&b);
                let count = own.iter().product();
                m.floats("w", &own, &rng.floats(count))
            }
            false => input(&mut m, rng, &shape(&b)),
        };
        let to = shape(&c);
        let column = c.iter().position(|label| *label == 'n').unwrap();
        let (epilogue, others) = epilogue(&mut m, rng, &to, column);
        let inputs: Vec<ValueId> = [x, w].into_iter().chain(others).collect();
        let y = m.node("y", Op::Einsum(Einsum { a, b, c, epilogue }), &inputs, DType::F32, &to);
        m.finish(&[y])
    });
}

#[test]
fn attention() {
    compare_in("attention", &every(), |rng| {
        let mut m = Builder::new();
        let [b, h, g] = [rng.one(1, 3), rng.one(1, 3), rng.one(1, 2)];
        let [queries, keys] = [rng.one(1, 90), rng.one(1, 90)];
        let [depth, columns] = [rng.pick(&[8, 32, 64, 77, 128]), rng.pick(&[8, 33, 64, 128])];
        let size = |label: &char| match label {
            'b' => b,
            'h' => h,
            'g' => g,
            'm' => queries,
            'n' => keys,
            'k' => depth,
            _ => columns,
        };
        let shape = |text: &str| -> Vec<usize> { text.chars().map(|label| size(&label)).collect() };
        let labels = |text: &str| -> SmallVec<[char; 6]> { text.chars().collect() };
        let texts = [
            "bhgmk",
            rng.pick(&["bhnk", "nbk", "bnhk"]),
            rng.pick(&["bhnd", "bndh", "nd"]),
            "bhgmn",
            "bhmgd",
        ];
        let (score, mask) = (Src::Operand(0), Src::Operand(1));
        let scaled = Instr::Binary(Binary::Mul, score, Src::Const(0.1));
        let instrs = match rng.one(0, 3) {
            0 => vec![],
            1 => vec![scaled],
            2 => vec![scaled, Instr::Binary(Binary::Add, Src::Reg(0), mask)],
            _ => vec![
                scaled,
                Instr::Binary(Binary::Mul, mask, Src::Const(-3.0)),
                Instr::Binary(Binary::Add, Src::Reg(0), Src::Reg(1)),
            ],
        };
        let mut inputs: Vec<ValueId> =
            texts[..3].iter().map(|text| input(&mut m, rng, &shape(text))).collect();
        if instrs.len() > 1 {
            let own: Vec<usize> =
                shape("bhgmn").into_iter().map(|size| if rng.one(0, 2) == 0 { 1 } else { size }).collect();
            inputs.push(input(&mut m, rng, &own));
        }
        let attention = Attention {
            q: labels(texts[0]),
            k: labels(texts[1]),
            v: labels(texts[2]),
            scores: labels(texts[3]),
            y: labels(texts[4]),
            over: 'n',
            zeroes: rng.bool(),
            chain: (!instrs.is_empty()).then_some(Chain { instrs }),
        };
        let y = m.node("y", Op::Attention(Box::new(attention)), &inputs, DType::F32, &shape(texts[4]));
        m.finish(&[y])
    });
}

/// What warpgroups compute, in one part of k or several.
#[test]
fn large_products() {
    compare_in("large products", &every(), |rng| {
        let mut m = Builder::new();
        let (rows, n, k) = (rng.one(49, 900), rng.one(1, 50) * 8, rng.one(100, 900) / 8 * 8);
        let x = m.input("x", DType::F32, &[rows, k]);
        let w = m.floats("w", &[k, n], &rng.floats(k * n));
        let (epilogue, others) = epilogue(&mut m, rng, &[rows, n], 1);
        let inputs: Vec<ValueId> = [x, w].into_iter().chain(others).collect();
        let labels = |labels: &str| labels.chars().collect();
        let op = Op::Einsum(Einsum { a: labels("mk"), b: labels("kn"), c: labels("mn"), epilogue });
        let y = m.node("y", op, &inputs, DType::F32, &[rows, n]);
        m.finish(&[y])
    });
}

/// The same of convolutions, images lying as their kernels want them.
#[test]
fn large_convolutions() {
    compare_in("large convolutions", &every(), |rng| {
        let mut m = Builder::new();
        let (rows, size, from, to) = (rng.one(1, 3), rng.one(17, 20), rng.one(4, 12) * 8, rng.one(1, 25) * 8);
        let (stride, last) = (rng.one(1, 2), rng.pick(&[1, 3]));
        let own = (size + last / 2 * 2 - last) / stride + 1;
        let x = m.input("x", DType::F32, &[rows, size, size, from]);
        let x = m.node(
            "permute",
            Op::Permute([0, 3, 1, 2][..].into()),
            &[x],
            DType::F32,
            &[rows, from, size, size],
        );
        let w = m.floats("w", &[to, from, last, last], &rng.floats(to * from * last * last));
        let (epilogue, others) = epilogue(&mut m, rng, &[rows, to, own, own], 1);
        let inputs: Vec<ValueId> = [x, w].into_iter().chain(others).collect();
        let both = |size: usize| SmallVec::from_elem(size, 2);
        let window =
            Window { size: both(last), stride: both(stride), dilation: both(1), before: both(last / 2) };
        let image = Image { batch: Some(0), channel: 1, spatial: 2 };
        let op = Op::Conv(Conv { image, window, groups: 1, epilogue });
        let y = m.node("y", op, &inputs, DType::F32, &[rows, to, own, own]);
        m.finish(&[y])
    });
}
