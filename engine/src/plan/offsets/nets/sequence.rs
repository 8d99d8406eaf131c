//! Transformers and a recurrent net, unrolled.

use super::net::{Net, Value};
use crate::plan::offsets::Buffer;

/// An encoder; scores and their softmax are as large as heads × length², GELU is spelt out as exporters do.
pub(in crate::plan::offsets) fn bert(layers: u64, length: u64, hidden: u64, heads: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let ids = net.input(2, length, 1);
    let mask = net.input(2, length, 1);
    let words = net.op(&[ids], hidden, length, 1);
    let sum = net.same(words);
    let mut x = net.same(sum);
    let bias = net.op(&[mask], 1, length, 1);
    for _ in 0..layers {
        let [q, k, v] = projections(&mut net, x);
        let scores = net.op(&[q, k], heads, length, length);
        let scaled = net.op(&[scores, bias], heads, length, length);
        let likely = net.same(scaled);
        let mixed = net.op(&[likely, v], hidden, length, 1);
        x = rest(&mut net, x, mixed);
    }
    let first = net.op(&[x], hidden, 1, 1);
    let pooled = net.same(first);
    net.outputs(&[x, pooled])
}

/// A decoder's step: old keys and values are inputs, longer ones outputs, so that most bytes live from end to end.
pub(in crate::plan::offsets) fn decoder(
    layers: u64,
    new: u64,
    hidden: u64,
    heads: u64,
    old: u64,
) -> Vec<Buffer> {
    let mut net = Net::default();
    let ids = net.input(2, new, 1);
    let caches: Vec<[Value; 2]> =
        (0..layers).map(|_| [net.input(hidden, old, 1), net.input(hidden, old, 1)]).collect();
    let mut x = net.op(&[ids], hidden, new, 1);
    let mut outputs = Vec::new();
    for [old_k, old_v] in caches {
        let [q, k, v] = projections(&mut net, x);
        let k = net.op(&[old_k, k], hidden, old + new, 1);
        let v = net.op(&[old_v, v], hidden, old + new, 1);
        outputs.extend([k, v]);
        let scores = net.op(&[q, k], heads, new, old + new);
        let likely = net.same(scores);
        let mixed = net.op(&[likely, v], hidden, new, 1);
        x = rest(&mut net, x, mixed);
    }
    outputs.push(net.op(&[x], 32_000, 1, 1));
    net.outputs(&outputs)
}

fn projections(net: &mut Net, x: Value) -> [Value; 3] {
    let [q, k, v] = [(); 3].map(|()| net.same(x));
    // Each is split into heads, which copies it.
    [q, k, v].map(|value| net.same(value))
}

fn rest(net: &mut Net, x: Value, mixed: Value) -> Value {
    let merged = net.same(mixed);
    let projected = net.same(merged);
    let sum = net.add(projected, x);
    let normal = net.same(sum);
    let wide = net.op(&[normal], 4 * x.c, x.h, 1);
    let scaled = net.same(wide);
    let erf = net.same(scaled);
    let gate = net.same(erf);
    let gelu = net.add(gate, wide);
    let narrow = net.op(&[gelu], x.c, x.h, 1);
    let sum = net.add(narrow, normal);
    net.same(sum)
}

/// Unrolled: each step's result is kept for the concat at the end of its layer.
pub(in crate::plan::offsets) fn lstm(layers: u64, length: u64, hidden: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let mut x = net.input(hidden, length, 1);
    for _ in 0..layers {
        let mut state = net.op(&[], hidden, 1, 1);
        let mut cell = net.op(&[], hidden, 1, 1);
        let mut results = Vec::new();
        for _ in 0..length {
            let row = net.op(&[x], hidden, 1, 1);
            let gates = net.op(&[row, state], 4 * hidden, 1, 1);
            cell = net.op(&[gates, cell], hidden, 1, 1);
            state = net.op(&[gates, cell], hidden, 1, 1);
            results.push(state);
        }
        x = net.op(&results, hidden, length, 1);
    }
    net.outputs(&[x])
}
