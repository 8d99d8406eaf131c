//! Published vision nets at their usual input sizes.

use super::net::{Net, Value};
use crate::plan::offsets::Buffer;

pub(in crate::plan::offsets) fn vgg16() -> Vec<Buffer> {
    let mut net = Net::default();
    let mut x = net.input(3, 224, 224);
    for (convs, c) in [(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)] {
        for _ in 0..convs {
            x = net.conv(x, c, 3, 1);
            x = net.same(x);
        }
        x = net.op(&[x], c, x.h / 2, x.w / 2);
    }
    for c in [4096, 4096, 1000] {
        x = net.op(&[x], c, 1, 1);
    }
    net.outputs(&[x])
}

pub(in crate::plan::offsets) fn resnet50(batch: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3 * batch, 224, 224);
    let x = net.conv(x, 64 * batch, 7, 2);
    let x = net.same(x);
    let mut x = net.conv(x, 64 * batch, 3, 2);
    for (stage, blocks) in [3, 4, 6, 3].into_iter().enumerate() {
        let c = (64 << stage) * batch;
        for block in 0..blocks {
            let stride = if block == 0 && stage > 0 { 2 } else { 1 };
            let a = net.conv(x, c, 1, 1);
            let a = net.same(a);
            let b = net.conv(a, c, 3, stride);
            let b = net.same(b);
            let y = net.conv(b, 4 * c, 1, 1);
            let short = if block == 0 { net.conv(x, 4 * c, 1, stride) } else { x };
            let sum = net.add(y, short);
            x = net.same(sum);
        }
    }
    let pooled = net.op(&[x], x.c, 1, 1);
    let y = net.op(&[pooled], 1000 * batch, 1, 1);
    net.outputs(&[y])
}

/// Every layer reads all features so far, joined anew by a concat that copies them.
pub(in crate::plan::offsets) fn densenet121() -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, 224, 224);
    let x = net.conv(x, 64, 7, 2);
    let mut x = net.conv(x, 64, 3, 2);
    for (stage, layers) in [6, 12, 24, 16].into_iter().enumerate() {
        let mut features = vec![x];
        for _ in 0..layers {
            let joined = if features.len() == 1 { x } else { net.concat(&features) };
            let normal = net.same(joined);
            let a = net.conv(normal, 128, 1, 1);
            let b = net.same(a);
            features.push(net.conv(b, 32, 3, 1));
        }
        x = net.concat(&features);
        if stage < 3 {
            let normal = net.same(x);
            let half = net.conv(normal, x.c / 2, 1, 1);
            x = net.op(&[half], half.c, half.h / 2, half.w / 2);
        }
    }
    let pooled = net.op(&[x], x.c, 1, 1);
    let y = net.op(&[pooled], 1000, 1, 1);
    net.outputs(&[y])
}

pub(in crate::plan::offsets) fn unet(side: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let mut x = net.input(3, side, side);
    let mut skips = Vec::new();
    for c in [64, 128, 256, 512] {
        x = net.convs(x, &[(c, 3, 1), (c, 3, 1)]);
        skips.push(x);
        x = net.op(&[x], c, x.h / 2, x.w / 2);
    }
    x = net.convs(x, &[(1024, 3, 1), (1024, 3, 1)]);
    for skip in skips.into_iter().rev() {
        let up = net.op(&[x], skip.c, skip.h, skip.w);
        let joined = net.concat(&[skip, up]);
        x = net.convs(joined, &[(skip.c, 3, 1), (skip.c, 3, 1)]);
    }
    let y = net.conv(x, 2, 1, 1);
    net.outputs(&[y])
}

/// Inception-v3's eleven blocks, the branches of each run one after another.
pub(in crate::plan::offsets) fn inception_v3() -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, 299, 299);
    let mut x =
        net.convs(x, &[(32, 3, 2), (32, 3, 1), (64, 3, 1), (64, 3, 2), (80, 1, 1), (192, 3, 1), (192, 3, 2)]);
    type Branches = &'static [&'static [(u64, u64, u64)]];
    let a: Branches =
        &[&[(64, 1, 1)], &[(48, 1, 1), (64, 5, 1)], &[(64, 1, 1), (96, 3, 1), (96, 3, 1)], &[(64, 1, 1)]];
    let down: Branches = &[&[(384, 3, 2)], &[(64, 1, 1), (96, 3, 1), (96, 3, 2)], &[(288, 3, 2)]];
    let b: Branches = &[
        &[(192, 1, 1)],
        &[(128, 1, 1), (128, 7, 1), (192, 7, 1)],
        &[(128, 1, 1), (128, 7, 1), (128, 7, 1), (128, 7, 1), (192, 7, 1)],
        &[(192, 1, 1)],
    ];
    let lower: Branches =
        &[&[(192, 1, 1), (320, 3, 2)], &[(192, 1, 1), (192, 7, 1), (192, 3, 2)], &[(768, 3, 2)]];
    let c: Branches = &[
        &[(320, 1, 1)],
        &[(384, 1, 1), (768, 3, 1)],
        &[(448, 1, 1), (384, 3, 1), (768, 3, 1)],
        &[(192, 1, 1)],
    ];
    for block in [a, a, a, down, b, b, b, b, lower, c, c] {
        let ends: Vec<Value> = block.iter().map(|branch| net.convs(x, branch)).collect();
        x = net.concat(&ends);
    }
    let pooled = net.op(&[x], x.c, 1, 1);
    let y = net.op(&[pooled], 1000, 1, 1);
    net.outputs(&[y])
}

/// YOLOv8: C2f blocks, the pyramid's long skips, and three heads whose results all live to the end.
pub(in crate::plan::offsets) fn yolov8(side: u64, width: u64) -> Vec<Buffer> {
    let mut net = Net::default();
    let x = net.input(3, side, side);
    let x = net.silu(x, width, 3, 2);
    let x = net.silu(x, 2 * width, 3, 2);
    let x = c2f(&mut net, x, 2 * width, 1);
    let x = net.silu(x, 4 * width, 3, 2);
    let p3 = c2f(&mut net, x, 4 * width, 2);
    let x = net.silu(p3, 8 * width, 3, 2);
    let p4 = c2f(&mut net, x, 8 * width, 2);
    let x = net.silu(p4, 16 * width, 3, 2);
    let x = c2f(&mut net, x, 16 * width, 1);
    let half = net.silu(x, 8 * width, 1, 1);
    let (a, b, c) = {
        let a = net.same(half);
        let b = net.same(a);
        (a, b, net.same(b))
    };
    let joined = net.concat(&[half, a, b, c]);
    let p5 = net.silu(joined, 16 * width, 1, 1);
    let up = net.op(&[p5], p5.c, p4.h, p4.w);
    let joined = net.concat(&[up, p4]);
    let n4 = c2f(&mut net, joined, 8 * width, 1);
    let up = net.op(&[n4], n4.c, p3.h, p3.w);
    let joined = net.concat(&[up, p3]);
    let n3 = c2f(&mut net, joined, 4 * width, 1);
    let down = net.silu(n3, 4 * width, 3, 2);
    let joined = net.concat(&[down, n4]);
    let m4 = c2f(&mut net, joined, 8 * width, 1);
    let down = net.silu(m4, 8 * width, 3, 2);
    let joined = net.concat(&[down, p5]);
    let m5 = c2f(&mut net, joined, 16 * width, 1);
    let mut heads = Vec::new();
    for x in [n3, m4, m5] {
        let a = net.silu(x, 64, 3, 1);
        let a = net.silu(a, 64, 3, 1);
        let boxes = net.conv(a, 64, 1, 1);
        let b = net.silu(x, 80, 3, 1);
        let b = net.silu(b, 80, 3, 1);
        let classes = net.conv(b, 80, 1, 1);
        heads.push(net.concat(&[boxes, classes]));
    }
    let anchors = heads.iter().map(|v| v.h * v.w).sum();
    let all = net.op(&heads, 144, anchors, 1);
    let boxes = net.op(&[all], 64, anchors, 1);
    let classes = net.op(&[all], 80, anchors, 1);
    let soft = net.same(boxes);
    let corners = net.op(&[soft], 4, anchors, 1);
    let likely = net.same(classes);
    let y = net.concat(&[corners, likely]);
    net.outputs(&[y])
}

fn c2f(net: &mut Net, x: Value, c: u64, blocks: usize) -> Value {
    let x = net.silu(x, c, 1, 1);
    let left = net.op(&[x], c / 2, x.h, x.w);
    let mut parts = vec![left, net.op(&[x], c / 2, x.h, x.w)];
    for _ in 0..blocks {
        let last = parts[parts.len() - 1];
        let a = net.silu(last, c / 2, 3, 1);
        let b = net.silu(a, c / 2, 3, 1);
        parts.push(net.add(last, b));
    }
    let joined = net.concat(&parts);
    net.silu(joined, c, 1, 1)
}
