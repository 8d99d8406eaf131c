//! A whole graph computed naively in f64, chains in f32: what every pass is measured against.

use crate::fuse::evaluate::{broadcast_index, element};
use crate::graph::{
    Attention, Chain, Conv, Einsum, Graph, Node, Norm, Op, PadMode, Pool, PoolKind, Reducer, ValueId,
};
use crate::tensor::DType;
use smallvec::SmallVec;
use std::collections::HashMap;

/// The graph's outputs on those inputs, in order.
pub(super) fn interpret(graph: &Graph, inputs: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut values: HashMap<ValueId, Vec<f64>> = HashMap::new();
    for (at, value) in graph.values.iter().enumerate() {
        if let Some(bytes) = &value.constant {
            values.insert(ValueId(at as u32), decode(value.dtype, &bytes.load().unwrap()));
        }
    }
    values.extend(graph.inputs.iter().copied().zip(inputs.iter().cloned()));
    for node in &graph.nodes {
        let read: Vec<&[f64]> = node.inputs.iter().map(|id| values[id].as_slice()).collect();
        let made = run(graph, node, &read);
        let y = node.outputs[0];
        assert_eq!(made.len(), graph.value(y).elements(), "{} `{}`", node.op.name(), node.name);
        let made = made.into_iter().map(|x| rounded(graph.value(y).dtype, x)).collect();
        values.insert(y, made);
    }
    graph.outputs.iter().map(|id| values[id].clone()).collect()
}

fn rounded(dtype: DType, x: f64) -> f64 {
    if dtype == DType::F32 { f64::from(x as f32) } else { x }
}

fn decode(dtype: DType, bytes: &[u8]) -> Vec<f64> {
    match dtype {
        DType::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
        DType::I32 => {
            bytes.chunks_exact(4).map(|b| i32::from_le_bytes(b.try_into().unwrap()).into()).collect()
        }
        DType::I64 => {
            bytes.chunks_exact(8).map(|b| i64::from_le_bytes(b.try_into().unwrap()) as f64).collect()
        }
        DType::Bool => bytes.iter().map(|b| f64::from(*b)).collect(),
        other => panic!("no constants of {other} in tests"),
    }
}

/// Every index of a shape in row-major order.
pub(super) fn indices(shape: &[usize]) -> impl Iterator<Item = Vec<usize>> {
    let shape = shape.to_vec();
    (0..shape.iter().product()).map(move |mut at: usize| {
        let mut index = vec![0; shape.len()];
        for axis in (0..shape.len()).rev() {
            index[axis] = at % shape[axis];
            at /= shape[axis];
        }
        index
    })
}

fn offset(index: &[usize], shape: &[usize]) -> usize {
    index.iter().zip(shape).fold(0, |at, (index, size)| at * size + index)
}

fn run(graph: &Graph, node: &Node, read: &[&[f64]]) -> Vec<f64> {
    let shapes: Vec<&[usize]> = node.inputs.iter().map(|id| graph.shape(*id)).collect();
    let y = graph.shape(node.outputs[0]);
    let (x, from) = (read[0], shapes[0]);
    match &node.op {
        Op::Pointwise(chain) => {
            let operands: Vec<usize> = (0..read.len()).collect();
            chained(graph, node, chain, y, &operands, read)
        }
        Op::Conv(conv) => ended(graph, node, convolved(conv, x, from, read[1], shapes[1], y), read),
        Op::ConvTranspose(conv) => ended(graph, node, spread(conv, x, from, read[1], shapes[1], y), read),
        Op::Einsum(einsum) => ended(graph, node, product(einsum, x, from, read[1], shapes[1], y), read),
        Op::Attention(attention) => attended(graph, node, attention, &shapes, read),
        Op::Reduce(reducer, axes) => reduced(*reducer, axes, x, from),
        Op::Softmax { axes, log } => softmax(axes, *log, x, from),
        Op::Norm(norm) => normalized(norm, &shapes, read),
        Op::Pool(pool) => pooled(pool, x, from, y),
        Op::Resize(axes) => indices(y)
            .map(|index| {
                let mut terms = vec![(index, 1.0)];
                for (axis, taps) in axes {
                    terms = terms
                        .into_iter()
                        .flat_map(|(index, weight)| {
                            taps.0[index[*axis]].iter().map(move |(at, tap)| {
                                let mut index = index.clone();
                                index[*axis] = *at;
                                (index, weight * f64::from(*tap))
                            })
                        })
                        .collect();
                }
                terms.iter().map(|(index, weight)| x[offset(index, from)] * weight).sum()
            })
            .collect(),
        Op::Concat(axis) => indices(y)
            .map(|mut index| {
                for (part, shape) in read.iter().zip(&shapes) {
                    if index[*axis] < shape[*axis] {
                        return part[offset(&index, shape)];
                    }
                    index[*axis] -= shape[*axis];
                }
                unreachable!()
            })
            .collect(),
        Op::Slice { axis, start, step } => indices(y)
            .map(|mut index| {
                index[*axis] = start + index[*axis] * step;
                x[offset(&index, from)]
            })
            .collect(),
        Op::Pad(pad) => indices(y)
            .map(|index| {
                let mut inside = vec![];
                for (axis, (at, before)) in index.iter().zip(&pad.before).enumerate() {
                    let (at, size) = (*at as isize - *before as isize, from[axis] as isize);
                    inside.push(match &pad.mode {
                        PadMode::Constant(bytes) if at < 0 || at >= size => {
                            return decode(graph.value(node.outputs[0]).dtype, bytes)[0];
                        }
                        PadMode::Reflect if at < 0 => -at as usize,
                        PadMode::Reflect if at >= size => (2 * size - 2 - at) as usize,
                        _ => at.clamp(0, size - 1) as usize,
                    });
                }
                x[offset(&inside, from)]
            })
            .collect(),
        Op::Reshape | Op::Copy => x.to_vec(),
        Op::Permute(order) => indices(y)
            .map(|index| {
                let mut source = vec![0; order.len()];
                order.iter().zip(&index).for_each(|(axis, at)| source[*axis] = *at);
                x[offset(&source, from)]
            })
            .collect(),
        Op::Broadcast => (0..y.iter().product()).map(|at| x[broadcast_index(at, y, from)]).collect(),
        Op::Gather(axis) => indices(y)
            .map(|index| {
                let after = axis + shapes[1].len();
                let row = read[1][offset(&index[*axis..after], shapes[1])];
                let row = (row + if row < 0.0 { from[*axis] as f64 } else { 0.0 }) as usize;
                x[offset(&[&index[..*axis], &[row], &index[after..]].concat(), from)]
            })
            .collect(),
        Op::Cast => x
            .iter()
            .map(|x| match graph.value(node.outputs[0]).dtype {
                DType::Bool => f64::from(*x != 0.0),
                DType::I32 => f64::from(*x as i32),
                _ => *x,
            })
            .collect(),
        Op::Host(step) => panic!("{} in a test", step.op()),
    }
}

/// A chain on inputs of the node, by their places.
fn chained(
    graph: &Graph,
    node: &Node,
    chain: &Chain,
    y: &[usize],
    places: &[usize],
    read: &[&[f64]],
) -> Vec<f64> {
    let mut registers = vec![0.0; chain.instrs.len()];
    let mut result = vec![];
    for at in 0..y.iter().product() {
        let operands: Vec<f32> = places
            .iter()
            .map(|place| {
                // The first place of an epilogue is the element, which is of the output's shape.
                let (shape, dtype) = match node.inputs.get(*place) {
                    Some(id) => (graph.shape(*id), graph.value(*id).dtype),
                    None => (y, DType::F32),
                };
                let x = read[*place][broadcast_index(at, y, shape)];
                if dtype == DType::I32 { f32::from_bits(x as i32 as u32) } else { x as f32 }
            })
            .collect();
        result.push(f64::from(element(chain, &operands, &mut registers)));
    }
    result
}

fn ended(graph: &Graph, node: &Node, mut made: Vec<f64>, read: &[&[f64]]) -> Vec<f64> {
    let epilogue = node.op.epilogue().unwrap();
    let y = graph.shape(node.outputs[0]);
    if epilogue.bias {
        let channel = match &node.op {
            Op::Conv(conv) | Op::ConvTranspose(conv) => vec![conv.image.channel],
            Op::Einsum(einsum) => (0..y.len())
                .filter(|at| einsum.b.contains(&einsum.c[*at]) && !einsum.a.contains(&einsum.c[*at]))
                .collect(),
            _ => vec![],
        };
        for (made, index) in made.iter_mut().zip(indices(y)) {
            let at = channel.iter().fold(0, |at, axis| at * y[*axis] + index[*axis]);
            *made += read[2][at];
        }
    }
    let Some(chain) = &epilogue.chain else { return made };
    let first = 2 + usize::from(epilogue.bias);
    let operands: Vec<usize> = [read.len()].into_iter().chain(first..read.len()).collect();
    let read: Vec<&[f64]> = read.iter().copied().chain([made.as_slice()]).collect();
    chained(graph, node, chain, y, &operands, &read)
}

/// For an output index and a window index the image index, `None` in the border.
fn tap(
    pool: (&crate::graph::Image, &crate::graph::Window),
    index: &[usize],
    at: &[usize],
    x: &[usize],
) -> Option<Vec<usize>> {
    let (image, window) = pool;
    let mut source = index.to_vec();
    for (axis, at) in at.iter().enumerate() {
        let place = image.spatial + axis;
        let moved = index[place] * window.stride[axis] + at * window.dilation[axis];
        source[place] = moved.checked_sub(window.before[axis]).filter(|at| *at < x[place])?;
    }
    Some(source)
}

fn convolved(conv: &Conv, x: &[f64], from: &[usize], w: &[f64], weights: &[usize], y: &[usize]) -> Vec<f64> {
    let channel = conv.image.channel;
    let (per_group, outputs) = (weights[1], y[channel] / conv.groups);
    indices(y)
        .map(|index| {
            let mut sum = 0.0;
            for at in indices(&conv.window.size) {
                let Some(mut source) = tap((&conv.image, &conv.window), &index, &at, from) else { continue };
                for input in 0..per_group {
                    source[channel] = index[channel] / outputs * per_group + input;
                    let weight = [&[index[channel], input], at.as_slice()].concat();
                    sum += x[offset(&source, from)] * w[offset(&weight, weights)];
                }
            }
            sum
        })
        .collect()
}

fn spread(conv: &Conv, x: &[f64], from: &[usize], w: &[f64], weights: &[usize], y: &[usize]) -> Vec<f64> {
    assert_eq!(conv.groups, 1);
    let mut made = vec![0.0; y.iter().product()];
    let channel = conv.image.channel;
    for index in indices(from) {
        for at in indices(&conv.window.size) {
            let Some(mut target) = tap((&conv.image, &conv.window), &index, &at, y) else { continue };
            for output in 0..y[channel] {
                target[channel] = output;
                let weight = [&[index[channel], output], at.as_slice()].concat();
                made[offset(&target, y)] += x[offset(&index, from)] * w[offset(&weight, weights)];
            }
        }
    }
    made
}

/// Attention in its three parts, with all scores.
fn attended(
    graph: &Graph,
    node: &Node,
    attention: &Attention,
    shapes: &[&[usize]],
    read: &[&[f64]],
) -> Vec<f64> {
    let Attention { q, k, v, scores, y, over, zeroes, chain } = attention;
    let to = graph.shape(node.outputs[0]);
    let sizes = attention.sizes([shapes[0], shapes[1], shapes[2], to]).unwrap();
    let shape = attention.scores_shape(&sizes);
    let einsum = |a: &SmallVec<[char; 6]>, b: &SmallVec<[char; 6]>, c: &SmallVec<[char; 6]>| Einsum {
        a: a.clone(),
        b: b.clone(),
        c: c.clone(),
        epilogue: Default::default(),
    };
    let mut made = product(&einsum(q, k, scores), read[0], shapes[0], read[1], shapes[1], &shape);
    if let Some(chain) = chain {
        let operands: Vec<usize> = [read.len()].into_iter().chain(3..read.len()).collect();
        let read: Vec<&[f64]> = read.iter().copied().chain([made.as_slice()]).collect();
        made = chained(graph, node, chain, &shape, &operands, &read);
    }
    let axis = scores.iter().position(|label| label == over).unwrap();
    let mut weights = softmax(&[axis], false, &made, &shape);
    if *zeroes {
        weights.iter_mut().filter(|weight| weight.is_nan()).for_each(|weight| *weight = 0.0);
    }
    product(&einsum(scores, v, y), &weights, &shape, read[2], shapes[2], to)
}

fn product(
    einsum: &Einsum,
    x: &[f64],
    from: &[usize],
    w: &[f64],
    weights: &[usize],
    y: &[usize],
) -> Vec<f64> {
    let mut labels: Vec<(char, usize)> = vec![];
    for (label, size) in
        einsum.c.iter().zip(y).chain(einsum.a.iter().zip(from)).chain(einsum.b.iter().zip(weights))
    {
        if !labels.iter().any(|(known, _)| known == label) {
            labels.push((*label, *size));
        }
    }
    let sizes: Vec<usize> = labels.iter().map(|(_, size)| *size).collect();
    let mut made = vec![0.0; y.iter().product()];
    for index in indices(&sizes) {
        let of = |side: &[char]| -> Vec<usize> {
            side.iter()
                .map(|label| index[labels.iter().position(|(known, _)| known == label).unwrap()])
                .collect()
        };
        made[offset(&of(&einsum.c), y)] +=
            x[offset(&of(&einsum.a), from)] * w[offset(&of(&einsum.b), weights)];
    }
    made
}

/// The elements that each output element is reduced from.
fn groups(axes: &[usize], x: &[f64], from: &[usize]) -> Vec<Vec<f64>> {
    let to: Vec<usize> =
        from.iter().enumerate().map(|(at, size)| if axes.contains(&at) { 1 } else { *size }).collect();
    let mut groups = vec![vec![]; to.iter().product()];
    for (at, x) in x.iter().enumerate() {
        groups[broadcast_index(at, from, &to)].push(*x);
    }
    groups
}

fn reduced(reducer: Reducer, axes: &[usize], x: &[f64], from: &[usize]) -> Vec<f64> {
    let reduce = |group: Vec<f64>| {
        let count = group.len() as f64;
        let squares: f64 = group.iter().map(|x| x * x).sum();
        match reducer {
            Reducer::Sum => group.iter().sum(),
            Reducer::Mean => group.iter().sum::<f64>() / count,
            Reducer::Max => group.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            Reducer::Min => group.iter().copied().fold(f64::INFINITY, f64::min),
            Reducer::Product => group.iter().product(),
            Reducer::SumOfSquares => squares,
            Reducer::MeanOfSquares => squares / count,
            Reducer::ArgMax { .. } | Reducer::ArgMin { .. } => unreachable!("no test of fusion has one"),
        }
    };
    groups(axes, x, from).into_iter().map(reduce).collect()
}

fn softmax(axes: &[usize], log: bool, x: &[f64], from: &[usize]) -> Vec<f64> {
    let max = reduced(Reducer::Max, axes, x, from);
    let to: Vec<usize> =
        from.iter().enumerate().map(|(at, size)| if axes.contains(&at) { 1 } else { *size }).collect();
    let exp: Vec<f64> =
        x.iter().enumerate().map(|(at, x)| (x - max[broadcast_index(at, from, &to)]).exp()).collect();
    let sum = reduced(Reducer::Sum, axes, &exp, from);
    let quotient = |(at, exp): (usize, &f64)| exp / sum[broadcast_index(at, from, &to)];
    exp.iter().enumerate().map(quotient).map(|y| if log { y.ln() } else { y }).collect()
}

fn normalized(norm: &Norm, shapes: &[&[usize]], read: &[&[f64]]) -> Vec<f64> {
    let (x, from) = (read[0], shapes[0]);
    let to: Vec<usize> =
        from.iter().enumerate().map(|(at, size)| if norm.axes.contains(&at) { 1 } else { *size }).collect();
    let mean = reduced(Reducer::Mean, &norm.axes, x, from);
    let centered: Vec<f64> = x
        .iter()
        .enumerate()
        .map(|(at, x)| if norm.center { x - mean[broadcast_index(at, from, &to)] } else { *x })
        .collect();
    let variance = reduced(Reducer::MeanOfSquares, &norm.axes, &centered, from);
    let made = centered.iter().enumerate().map(|(at, x)| {
        let mut y = x / (variance[broadcast_index(at, from, &to)] + f64::from(norm.epsilon)).sqrt();
        if norm.scale {
            y *= read[1][broadcast_index(at, from, shapes[1])];
        }
        if norm.shift {
            let place = 1 + usize::from(norm.scale);
            y += read[place][broadcast_index(at, from, shapes[place])];
        }
        y
    });
    made.collect()
}

fn pooled(pool: &Pool, x: &[f64], from: &[usize], y: &[usize]) -> Vec<f64> {
    indices(y)
        .map(|index| {
            let taps = indices(&pool.window.size)
                .filter_map(|at| tap((&pool.image, &pool.window), &index, &at, from))
                .map(|source| x[offset(&source, from)]);
            let taps: Vec<f64> = taps.collect();
            let sum: f64 = taps.iter().sum();
            match pool.kind {
                PoolKind::Max => taps.iter().copied().fold(f64::NEG_INFINITY, f64::max),
                PoolKind::Sum => sum,
                PoolKind::Average => sum / pool.window.size.iter().product::<usize>() as f64,
                PoolKind::AverageInside => sum / taps.len() as f64,
            }
        })
        .collect()
}
