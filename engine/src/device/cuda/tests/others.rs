//! Ops that move bytes.

use super::{Rng, STORED, compare, compare_in, input};
use crate::graph::{
    Binary, Builder, Chain, Graph, Image, Instr, Norm, Op, Pad, PadMode, Pool, PoolKind, Reducer, Src, Taps,
    Unary, Window,
};
use crate::tensor::DType;
use smallvec::SmallVec;

#[test]
fn chains() {
    let unary = [Unary::Neg, Unary::Abs, Unary::Square, Unary::Exp, Unary::Sigmoid, Unary::Silu, Unary::Tanh];
    let more =
        [Unary::HardSwish, Unary::GeluErf, Unary::GeluTanh, Unary::Erf, Unary::Sin, Unary::RoundHalfEven];
    let binary = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max, Binary::Less];
    compare("chains", |rng| chain(rng, &unary, &more, &binary));
}

/// Without what turns a rounding into another answer.
#[test]
fn smooth_chains() {
    let unary = [Unary::Neg, Unary::Abs, Unary::Sigmoid, Unary::Silu, Unary::Tanh];
    let more = [Unary::HardSwish, Unary::GeluErf, Unary::GeluTanh, Unary::Erf];
    let binary = [Binary::Add, Binary::Sub, Binary::Mul, Binary::Min, Binary::Max];
    compare_in("smooth chains", &STORED, |rng| chain(rng, &unary, &more, &binary));
}

fn chain(rng: &mut Rng, unary: &[Unary], more: &[Unary], binary: &[Binary]) -> Graph {
    let mut m = Builder::new();
    let axes = rng.one(1, 5);
    let shape = rng.shape(axes, 12);
    let count = rng.one(1, 4);
    let operands: Vec<_> = (0..count)
        .map(|at| {
            let own: Vec<usize> =
                shape.iter().map(|size| if at > 0 && rng.one(0, 2) == 0 { 1 } else { *size }).collect();
            input(&mut m, rng, &own)
        })
        .collect();
    let mut instrs: Vec<Instr> = vec![];
    for at in 0..rng.one(1, 8) {
        let mut source = || match rng.one(0, 3) {
            0 if at > 0 => Src::Reg(rng.one(0, at - 1) as u16),
            1 => Src::Const(rng.float()),
            _ => Src::Operand(rng.one(0, count - 1) as u16),
        };
        let (x, y, z) = (source(), source(), source());
        instrs.push(match rng.one(0, 4) {
            0 => Instr::Unary(rng.pick(unary), x),
            1 => Instr::Unary(rng.pick(more), x),
            2 => Instr::Select(x, y, z),
            _ => Instr::Binary(rng.pick(binary), x, y),
        });
    }
    let y = m.node("y", Op::Pointwise(Chain { instrs }), &operands, DType::F32, &shape);
    m.finish(&[y])
}

#[test]
fn reductions() {
    let all = [
        Reducer::Sum,
        Reducer::Mean,
        Reducer::Max,
        Reducer::Min,
        Reducer::Product,
        Reducer::SumOfSquares,
        Reducer::MeanOfSquares,
        Reducer::ArgMax { last: false },
        Reducer::ArgMin { last: true },
    ];
    compare("reductions", |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 4);
        let most = rng.pick(&[9, 9, 60]);
        let shape = rng.shape(axes, if axes > 2 { most.min(20) } else { most * 8 });
        let x = input(&mut m, rng, &shape);
        let reducer = rng.pick(&all);
        let arg = matches!(reducer, Reducer::ArgMax { .. } | Reducer::ArgMin { .. });
        let count = if arg { 1 } else { rng.one(1, axes) };
        let reduced: SmallVec<[usize; 4]> = rng.shuffled(axes).into_iter().take(count).collect();
        let mut to = shape.clone();
        reduced.iter().for_each(|axis| to[*axis] = 1);
        let dtype = if arg { DType::I64 } else { DType::F32 };
        let y = m.node("y", Op::Reduce(reducer, reduced), &[x], dtype, &to);
        m.finish(&[y])
    });
}

#[test]
fn softmaxes() {
    compare_in("softmaxes", &STORED, |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 4);
        let most = if axes > 2 { 20 } else { 700 };
        let shape = rng.shape(axes, most);
        let x = input(&mut m, rng, &shape);
        let op = Op::Softmax { axes: [rng.one(0, axes - 1)].as_slice().into(), log: rng.bool() };
        let y = m.node("y", op, &[x], DType::F32, &shape);
        m.finish(&[y])
    });
}

#[test]
fn norms() {
    compare_in("norms", &STORED, |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 4);
        let most = if axes > 2 { 20 } else { 300 };
        let shape = rng.shape(axes, most);
        let over: SmallVec<[usize; 4]> = (rng.one(0, axes - 1)..axes).collect();
        let (scale, shift) = (rng.bool(), rng.bool());
        let mut inputs = vec![input(&mut m, rng, &shape)];
        let mut own = vec![1; axes];
        over.iter().for_each(|axis| own[*axis] = shape[*axis]);
        for _ in 0..usize::from(scale) + usize::from(shift) {
            let count = own.iter().product();
            inputs.push(m.floats("w", &own, &rng.floats(count)));
        }
        let norm = Norm { axes: over, epsilon: 1e-3, center: rng.bool(), scale, shift };
        let y = m.node("y", Op::Norm(norm), &inputs, DType::F32, &shape);
        m.finish(&[y])
    });
}

#[test]
fn pools() {
    let kinds = [PoolKind::Max, PoolKind::Sum, PoolKind::Average, PoolKind::AverageInside];
    compare_in("pools", &STORED, |rng| {
        let mut m = Builder::new();
        let spatial = rng.one(1, 2);
        let mut shape = vec![rng.one(1, 3), rng.one(1, 20)];
        let mut window = Window {
            size: SmallVec::new(),
            stride: SmallVec::new(),
            dilation: SmallVec::new(),
            before: SmallVec::new(),
        };
        let mut to = shape.clone();
        for _ in 0..spatial {
            let (size, stride, own) = (rng.one(1, 4), rng.one(1, 3), rng.one(4, 20));
            let before = rng.one(0, size - 1);
            shape.push(own);
            to.push((own + before - size) / stride + 1);
            window.size.push(size);
            window.stride.push(stride);
            window.dilation.push(1);
            window.before.push(before);
        }
        let x = input(&mut m, rng, &shape);
        let image = Image { batch: Some(0), channel: 1, spatial: 2 };
        let y = m.node("y", Op::Pool(Pool { image, window, kind: rng.pick(&kinds) }), &[x], DType::F32, &to);
        m.finish(&[y])
    });
}

#[test]
fn resizes() {
    compare_in("resizes", &STORED, |rng| {
        let mut m = Builder::new();
        let shape = rng.shape(4, 12);
        let mut to = shape.clone();
        let mut axes = vec![];
        for axis in [2, 3].into_iter().take(rng.one(1, 2)) {
            to[axis] = rng.one(1, 20);
            let mut taps = || -> SmallVec<[(usize, f32); 2]> {
                (0..rng.one(1, 2)).map(|_| (rng.one(0, shape[axis] - 1), rng.float())).collect()
            };
            axes.push((axis, Taps((0..to[axis]).map(|_| taps()).collect())));
        }
        let x = input(&mut m, rng, &shape);
        let y = m.node("y", Op::Resize(axes), &[x], DType::F32, &to);
        m.finish(&[y])
    });
}

#[test]
fn borders() {
    compare_in("borders", &STORED, |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 4);
        let shape: Vec<usize> = (0..axes).map(|_| rng.one(4, 12)).collect();
        let mode = match rng.one(0, 2) {
            0 => PadMode::Constant(SmallVec::from_slice(&1.5f32.to_le_bytes())),
            1 => PadMode::Edge,
            _ => PadMode::Reflect,
        };
        let before: SmallVec<[usize; 6]> = (0..axes).map(|_| rng.one(0, 3)).collect();
        let to: Vec<usize> =
            shape.iter().zip(&before).map(|(size, before)| size + before + rng.one(0, 3)).collect();
        let x = input(&mut m, rng, &shape);
        let y = m.node("y", Op::Pad(Pad { before, mode }), &[x], DType::F32, &to);
        m.finish(&[y])
    });
}

#[test]
fn gathers() {
    compare("gathers", |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 3);
        let shape = rng.shape(axes, 30);
        let axis = rng.one(0, axes - 1);
        let rank = rng.one(0, 2);
        let own = rng.shape(rank, 9);
        let x = input(&mut m, rng, &shape);
        let count = own.iter().product::<usize>();
        let indices: Vec<i64> =
            (0..count).map(|_| rng.one(0, 2 * shape[axis] - 1) as i64 - shape[axis] as i64).collect();
        let indices = bytemuck::cast_slice(&indices).to_vec();
        let indices = m.constant("i", DType::I64, &own, bytes::Bytes::from(indices));
        let to: Vec<usize> = shape[..axis].iter().chain(&own).chain(&shape[axis + 1..]).copied().collect();
        let y = m.node("y", Op::Gather(axis), &[x, indices], DType::F32, &to);
        m.finish(&[y])
    });
}

#[test]
fn casts() {
    let dtypes = [DType::F32, DType::I32, DType::I64, DType::Bool, DType::U8];
    compare("casts", |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 3);
        let shape = rng.shape(axes, 20);
        let (from, to) = (rng.pick(&dtypes), rng.pick(&dtypes));
        let x = m.input("x", from, &shape);
        let y = m.node("y", Op::Cast, &[x], to, &shape);
        m.finish(&[y])
    });
}

#[test]
fn copies() {
    compare_in("copies", &STORED, |rng| {
        let mut m = Builder::new();
        let axes = rng.one(1, 4);
        let mut shape = rng.shape(axes, 40);
        let axis = rng.one(0, axes - 1);
        let x = input(&mut m, rng, &shape);
        let first = shape[axis];
        shape[axis] = rng.one(1, 9);
        let other = input(&mut m, rng, &shape);
        shape[axis] += first;
        let y = m.node("y", Op::Concat(axis), &[x, other], DType::F32, &shape);
        m.finish(&[y, x])
    });
}
