//! Every op on random shapes on the GPU and on the processor. Where there is no GPU the tests say so and pass.

mod others;
mod products;
mod staging;

use super::launch::TRIED;
use crate::device::{Batch, Binaries, Manner, Opened, Pick, Room};
use crate::fuse::{Precision, Preferences, fuse};
use crate::graph::{Builder, Chain, Einsum, Epilogue, Graph, Instr, Op, Src, Unary, ValueId};
use crate::plan::layout;
use crate::tensor::{DType, Tensor};
use std::path::PathBuf;
use std::sync::OnceLock;

/// Cases of each op.
const CASES: u64 = 40;

/// Where kernels' binaries are kept from one run to the next.
fn kernels() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/kernels"))
}

/// The GPU, if there is one.
fn gpu() -> Option<&'static Opened> {
    static GPU: OnceLock<Option<Opened>> = OnceLock::new();
    let open = || {
        let binaries = Binaries { ahead: None, keep: Some(kernels()) };
        Opened::cuda(0, &binaries).map_err(|why| eprintln!("skipped: {why}")).ok()
    };
    GPU.get_or_init(open).as_ref()
}

/// Numbers that look random.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// One of `from..=to`.
    fn one(&mut self, from: usize, to: usize) -> usize {
        from + (self.next() % (to - from + 1) as u64) as usize
    }

    fn bool(&mut self) -> bool {
        self.next() & 1 == 1
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.one(0, of.len() - 1)]
    }

    fn shape(&mut self, axes: usize, most: usize) -> Vec<usize> {
        (0..axes).map(|_| self.one(1, most)).collect()
    }

    /// Between −2 and 2.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 22) as f32 - 2.0
    }

    fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }

    fn shuffled(&mut self, count: usize) -> Vec<usize> {
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, self.one(0, at));
        }
        order
    }
}

/// An input of that shape that lies in any order of its axes, perhaps as a part of something larger.
fn input(m: &mut Builder, rng: &mut Rng, shape: &[usize]) -> ValueId {
    let order = rng.shuffled(shape.len());
    let mut own: Vec<usize> = order.iter().map(|axis| shape[*axis]).collect();
    let (sliced, step) = (rng.one(0, shape.len().max(1) - 1), rng.one(1, 2));
    let slice = rng.one(0, 2) == 0 && !shape.is_empty();
    let part = own.clone();
    if slice {
        own[sliced] = own[sliced] * step + 1;
    }
    let mut id = m.input("x", DType::F32, &own);
    if slice {
        id = m.node("slice", Op::Slice { axis: sliced, start: 1, step }, &[id], DType::F32, &part);
    }
    let mut back = vec![0; shape.len()];
    order.iter().enumerate().for_each(|(at, axis)| back[*axis] = at);
    m.node("permute", Op::Permute(back.as_slice().into()), &[id], DType::F32, shape)
}

fn tensor(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Tensor {
    let count = shape.iter().product();
    let floats = rng.floats(count);
    match dtype {
        DType::Bool => {
            let bools: Vec<bool> = floats.iter().map(|x| *x > 0.0).collect();
            Tensor::from_slice(dtype, shape, &bools)
        }
        DType::I64 => {
            let numbers: Vec<i64> = floats.iter().map(|x| (*x * 100.0) as i64).collect();
            Tensor::from_slice(dtype, shape, &numbers)
        }
        DType::I32 => {
            let numbers: Vec<i32> = floats.iter().map(|x| (*x * 100.0) as i32).collect();
            Tensor::from_slice(dtype, shape, &numbers)
        }
        DType::U8 => {
            let numbers: Vec<u8> = floats.iter().map(|x| (*x * 100.0) as u8).collect();
            Tensor::from_slice(dtype, shape, &numbers)
        }
        _ => Tensor::from_slice(DType::F32, shape, &floats),
    }
    .unwrap()
}

/// What a device makes of the graph, run often enough to be recorded and replayed; or its refusal.
fn run(device: &Opened, graph: &Graph, inputs: &[Tensor], manner: Manner) -> Result<Vec<Tensor>, String> {
    let opened = device.device();
    let planned = layout(graph);
    let prepared = opened.prepare(graph.clone(), planned, manner).map_err(|error| error.to_string())?;
    let room = |bytes: u64| Ok(Room::own(opened.memory(bytes).unwrap(), bytes));
    let program = prepared.finish(&opened.constants(), None, &room).map_err(|error| error.to_string())?;
    let (mut workspace, mut outputs) = (device.workspace(1).unwrap(), vec![]);
    workspace.lane.at_least(program.plan().workspace_bytes as usize).unwrap();
    for now in 0..3 {
        outputs.clear();
        let batch = Batch::one(&inputs);
        let ran = program.run(&mut *workspace.lane, batch, std::slice::from_mut(&mut outputs), now);
        ran.map_err(|error| error.to_string())?;
    }
    Ok(outputs)
}

/// f32 by the kernels that promise most.
const EXACT: [Manner; 1] = [Manner { precision: Precision::F32, threads: 1, pick: Pick::Nth(0) }];

/// f32 and f16, by the kernels that promise most.
const STORED: [Manner; 2] = [EXACT[0], Manner { precision: Precision::F16, ..EXACT[0] }];

/// Every precision, by each of the kernels that are tried for a step, and by those that are measured to be the fastest.
fn every() -> Vec<Manner> {
    let precisions = [Precision::F32, Precision::Tf32, Precision::F16];
    let of = |precision| {
        let manner = Manner { precision, ..EXACT[0] };
        let nth = (0..TRIED).map(move |nth| Manner { pick: Pick::Nth(nth), ..manner });
        nth.chain([Manner { pick: Pick::Fastest, ..manner }])
    };
    precisions.into_iter().flat_map(of).collect()
}

/// How far from what the processor computes an element may be, of the largest.
fn tolerance(precision: Precision) -> f32 {
    if precision == Precision::F32 { 1e-4 } else { 2e-2 }
}

/// Compares both devices on `CASES` graphs: floats within 1e-4 of the largest, all else equal.
fn compare(name: &str, graph: impl FnMut(&mut Rng) -> Graph) {
    compare_in(name, &EXACT, graph);
}

/// The same in each of those manners; in less than f32 within 2e-2 of the largest.
fn compare_in(name: &str, manners: &[Manner], mut graph: impl FnMut(&mut Rng) -> Graph) {
    let Some(gpu) = gpu() else { return };
    let mut worst = [0f32; 3];
    for seed in 0..CASES {
        let mut rng = Rng(seed * 7919 + name.len() as u64);
        let graph = graph(&mut rng);
        let inputs: Vec<Tensor> = graph
            .inputs
            .iter()
            .map(|id| tensor(&mut rng, graph.value(*id).dtype, &graph.value(*id).shape))
            .collect();
        // What the processor refuses, no graph of a model has.
        let Ok(wanted) = run(&Opened::default(), &graph, &inputs, Manner::plain(1)) else { continue };
        for manner in manners {
            let stored = match manner.precision {
                Precision::F16 => {
                    let preferences = Preferences { precision: Precision::F16, ..gpu.device().preferences() };
                    fuse(graph.clone(), &preferences).graph
                }
                _ => graph.clone(),
            };
            let told = || format!("{name} {seed} {manner:?}\n{stored}");
            let got = run(gpu, &stored, &inputs, *manner);
            let got = got.unwrap_or_else(|error| panic!("{error}: {}", told()));
            for (got, wanted) in got.iter().zip(&wanted) {
                let apart = apart(got, wanted, tolerance(manner.precision));
                let apart = apart.unwrap_or_else(|what| panic!("{what}: {}", told()));
                let worst = &mut worst[manner.precision as usize];
                *worst = worst.max(apart);
            }
        }
    }
    let [f32, tf32, f16] = worst;
    println!("{name}: {CASES} cases, at most {f32:.1e} of the largest, in tf32 {tf32:.1e}, in f16 {f16:.1e}");
}

/// How far apart elements of two tensors are at most, of the largest; or which are too far.
fn apart(got: &Tensor, wanted: &Tensor, tolerance: f32) -> Result<f32, String> {
    let (a, b) = (got.as_bytes().unwrap(), wanted.as_bytes().unwrap());
    if wanted.dtype() != DType::F32 {
        return if a == b { Ok(0.0) } else { Err("bytes differ".into()) };
    }
    let floats = |bytes: &[u8]| -> Vec<f32> {
        bytes.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().unwrap())).collect()
    };
    let (a, b) = (floats(a), floats(b));
    let largest = b.iter().filter(|x| x.is_finite()).fold(1e-6f32, |most, x| most.max(x.abs()));
    let mut worst = 0f32;
    for (at, (a, b)) in a.iter().zip(&b).enumerate() {
        let same = a == b || a.is_nan() && b.is_nan();
        let apart = if same { 0.0 } else { (a - b).abs() / largest };
        // NaN is not near.
        if apart.is_nan() || apart > tolerance {
            return Err(format!("element {at} is {a}, not {b}, of {largest} at most"));
        }
        worst = worst.max(apart);
    }
    Ok(worst)
}

/// A product whose sums are out of the range of f16, and what is left of them once they are divided again.
fn large() -> (Graph, Tensor) {
    let mut m = Builder::new();
    let x = m.input("x", DType::F32, &[4, 32]);
    let labels = |labels: &str| labels.chars().collect();
    let einsum = || {
        let epilogue = Epilogue::default();
        Op::Einsum(Einsum { a: labels("mk"), b: labels("kn"), c: labels("mn"), epilogue })
    };
    let w = m.floats("w", &[32, 16], &[5e4; 32 * 16]);
    let y = m.node("large", einsum(), &[x, w], DType::F32, &[4, 16]);
    let w = m.floats("w", &[16, 8], &[1.0 / (5e4 * 16.0 * 8.0); 16 * 8]);
    let y = m.node("small", einsum(), &[y, w], DType::F32, &[4, 8]);
    let chain = Chain { instrs: vec![Instr::Unary(Unary::Tanh, Src::Operand(0))] };
    let y = m.node("tanh", Op::Pointwise(chain), &[y], DType::F32, &[4, 8]);
    let floats: Vec<f32> = (0..128).map(|at| (at % 7) as f32 / 25.0).collect();
    (m.finish(&[y]), Tensor::from_slice(DType::F32, &[4, 32], &floats).unwrap())
}

#[test]
fn what_f16_has_no_room_for_is_named_and_is_right_once_it_is_wide() {
    let Some(gpu) = gpu() else { return };
    let ((graph, x), opened) = (large(), gpu.device());
    let manner = Manner { precision: Precision::F16, ..EXACT[0] };
    let halved = |wide: &[&str]| {
        let wide = wide.iter().map(|name| (*name).to_owned()).collect();
        fuse(graph.clone(), &Preferences { precision: Precision::F16, wide, ..opened.preferences() }).graph
    };
    let named = |wide: &[&str]| {
        let graph = halved(wide);
        let prepared = opened.prepare(graph.clone(), layout(&graph), manner).unwrap();
        let room = |bytes: u64| Ok(Room::own(opened.memory(bytes).unwrap(), bytes));
        let program = prepared.finish(&opened.constants(), None, &room).unwrap();
        let none = |_| Err(crate::error::Error::Memory { bytes: 1 });
        assert!(program.beyond_range(&none, 0).unwrap().is_none());
        program.beyond_range(&room, 0).unwrap().unwrap()
    };
    assert_eq!(named(&[]), ["large"]);
    assert!(named(&["large"]).is_empty());
    let got = run(gpu, &halved(&["large"]), std::slice::from_ref(&x), manner).unwrap();
    let wanted = run(&Opened::default(), &graph, &[x], Manner::plain(1)).unwrap();
    apart(&got[0], &wanted[0], tolerance(Precision::F16)).unwrap();
}
