//! Nets whose wiring is irregular, where placing buffers is harder than in a chain.

use super::net::{Net, Value};
use crate::plan::offsets::Buffer;

/// Inverted bottlenecks with squeeze and excitation: large values that outlive a row of tiny ones.
pub(in crate::plan::offsets) fn efficientnet_b0() -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, 224, 224);
    let mut x = net.silu(x, 32, 3, 2);
    let stages = [
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
    ];
    for (wider, c, blocks, stride, kernel) in stages {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            let wide = net.silu(x, x.c * wider, 1, 1);
            let deep = net.silu(wide, wide.c, kernel, stride);
            let squeezed = net.op(&[deep], deep.c, 1, 1);
            let few = net.silu(squeezed, x.c / 4, 1, 1);
            let gate = net.conv(few, deep.c, 1, 1);
            let gate = net.same(gate);
            let gated = net.op(&[deep, gate], deep.c, deep.h, deep.w);
            let y = net.conv(gated, c, 1, 1);
            x = if block == 0 { y } else { net.add(y, x) };
        }
    }
    let x = net.silu(x, 1280, 1, 1);
    let pooled = net.op(&[x], 1280, 1, 1);
    let y = net.op(&[pooled], 1000, 1, 1);
    net.outputs(&[y])
}

/// Four resolutions side by side, mixed again and again.
pub(in crate::plan::offsets) fn hrnet(width: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, 256, 192);
    let x = net.conv(x, 64, 3, 2);
    let stem = net.conv(x, width, 3, 2);
    let mut branches = vec![stem];
    for modules in [1, 4, 3] {
        let deepest = branches[branches.len() - 1];
        branches.push(net.conv(deepest, 2 * deepest.c, 3, 2));
        for _ in 0..modules {
            for x in &mut branches {
                for _ in 0..4 {
                    let a = net.conv(*x, x.c, 3, 1);
                    let b = net.conv(a, x.c, 3, 1);
                    *x = net.add(b, *x);
                }
            }
            let old = branches.clone();
            for (i, to) in branches.iter_mut().enumerate() {
                let mut sum = old[i];
                for (j, from) in old.iter().enumerate() {
                    if i != j {
                        let fitted = net.op(&[*from], to.c, to.h, to.w);
                        sum = net.add(sum, fitted);
                    }
                }
                *to = net.same(sum);
            }
        }
    }
    let y = net.conv(branches[0], 17, 1, 1);
    net.outputs(&[y])
}

/// Cells that read the two cells before them and join five sums of two separable convolutions each.
pub(in crate::plan::offsets) fn nasnet(cells: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, 224, 224);
    let mut before = net.conv(x, 44, 3, 2);
    let mut last = net.conv(before, 44, 3, 1);
    for cell in 0..cells {
        let down = cell % 4 == 3;
        let c = 44 << (cell / 4 + u64::from(down));
        let stride = if down { 2 } else { 1 };
        let fit = before.h / last.h;
        let a = net.conv(before, c, 1, fit * stride);
        let b = net.conv(last, c, 1, stride);
        let mut sums = vec![a, b];
        for (i, j) in [(0, 1), (1, 0), (0, 0), (1, 1), (2, 1)] {
            let left = net.conv(sums[i], c, 5, 1);
            let left = net.conv(left, c, 5, 1);
            let right = net.conv(sums[j], c, 3, 1);
            sums.push(net.add(left, right));
        }
        let joined = net.concat(&sums[2..]);
        (before, last) = (last, joined);
    }
    let pooled = net.op(&[last], last.c, 1, 1);
    let y = net.op(&[pooled], 1000, 1, 1);
    net.outputs(&[y])
}

/// U-Net with a triangle of nested skips, each node reading all nodes before it in its row.
pub(in crate::plan::offsets) fn unet_plus_plus(side: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let mut x = net.input(3, side, side);
    let mut rows: Vec<Vec<Value>> = Vec::new();
    for depth in 0..5u64 {
        let a = net.conv(x, 32 << depth, 3, 1);
        let node = net.conv(a, 32 << depth, 3, 1);
        rows.push(vec![node]);
        x = net.op(&[node], node.c, node.h / 2, node.w / 2);
        for row in (0..depth as usize).rev() {
            let here = rows[row][0];
            let below = rows[row + 1][rows[row + 1].len() - 1];
            let up = net.op(&[below], here.c, here.h, here.w);
            let mut all = rows[row].clone();
            all.push(up);
            let joined = net.concat(&all);
            let a = net.conv(joined, here.c, 3, 1);
            let node = net.conv(a, here.c, 3, 1);
            rows[row].push(node);
        }
    }
    let y = net.conv(rows[0][4], 1, 1, 1);
    net.outputs(&[y])
}

/// Steps that each read up to three values of the last dozen, of sizes from 1 to 64 KiB, by a fixed sequence.
pub(in crate::plan::offsets) fn random_wiring(steps: u64, seed: u64) -> Vec<Buffer> {
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut net = Net::default();
    let mut values = vec![net.input(64, 8, 8)];
    for _ in 0..steps {
        let reach = values.len().min(12) as u64;
        let inputs: Vec<Value> =
            (0..1 + next(3)).map(|_| values[values.len() - 1 - next(reach) as usize]).collect();
        values.push(net.op(&inputs, 4 + next(252), 8, 8));
    }
    let last = values[values.len() - 1];
    net.outputs(&[last])
}
