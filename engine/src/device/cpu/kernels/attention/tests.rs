use super::super::pointwise::Load;
use super::super::testing::{Layout, at, close, indices, layout, threads, values};
use super::*;
use crate::graph::chain::{Binary, Instr, Src, Unary};
use proptest::prelude::*;

/// What is done to the scores, and what each operand of it varies along: items, heads, queries, keys.
#[derive(Clone, Debug)]
struct Mask {
    instrs: Vec<Instr>,
    operands: Vec<(Load, [bool; 4])>,
}

fn add(x: Src, y: Src) -> Instr {
    Instr::Binary(Binary::Add, x, y)
}

/// A mask in one of the forms that models have; `along` says what its operands vary along.
fn mask(form: u8, along: [bool; 4], scale: f32) -> Mask {
    let (score, first, reg) = (Src::Operand(0), Src::Operand(1), Src::Reg(0));
    let scaled = Instr::Binary(Binary::Mul, score, Src::Const(scale));
    let (instrs, loads) = match form % 8 {
        0 => (vec![], vec![]),
        1 => (vec![scaled], vec![]),
        2 => (vec![Instr::Binary(Binary::Div, score, Src::Const(2.0)), add(reg, first)], vec![Load::F32]),
        3 => (vec![scaled, Instr::Select(first, reg, Src::Const(f32::MIN))], vec![Load::Bool]),
        4 => (vec![Instr::Select(first, Src::Const(f32::NEG_INFINITY), score)], vec![Load::Bool]),
        // (1 − mask) · −3.4e38, as BERT has it.
        5 => (
            vec![
                Instr::Unary(Unary::FromI32, first),
                Instr::Binary(Binary::Sub, Src::Const(1.0), reg),
                Instr::Binary(Binary::Mul, Src::Reg(1), Src::Const(f32::MIN)),
                Instr::Binary(Binary::Mul, score, Src::Const(scale)),
                add(Src::Reg(2), Src::Reg(3)),
            ],
            vec![Load::I32],
        ),
        // A bias and a soft cap, which is no mask.
        6 => (
            vec![add(score, first), Instr::Unary(Unary::Tanh, reg), add(Src::Reg(1), Src::Operand(2))],
            vec![Load::F32, Load::F32],
        ),
        _ => (vec![add(first, Src::Operand(2)), add(reg, score)], vec![Load::F32, Load::F32]),
    };
    Mask { instrs, operands: loads.into_iter().map(|load| (load, along)).collect() }
}

#[derive(Clone, Debug)]
struct Case {
    /// Items, heads, queries, keys, depth, columns.
    sizes: [usize; 6],
    layouts: [Layout; 4],
    mask: Mask,
    /// Whether all heads have the same keys and values.
    shared: bool,
    threads: usize,
    seed: u64,
}

fn size(most: usize) -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(1usize), 3 => 1..=most / 6, 1 => 1..=most]
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = (1..4usize, 1..4usize, size(120), size(600), size(80), size(80));
    let mask = (any::<u8>(), any::<[bool; 4]>(), prop_oneof![Just(0.125f32), Just(-1.5)])
        .prop_map(|(form, along, scale)| mask(form, along, scale));
    let layouts = [(); 4].map(|()| layout());
    (sizes, layouts, mask, any::<bool>(), 1..4usize, any::<u64>()).prop_map(
        |((b, h, m, n, d, c), layouts, mask, shared, threads, seed)| Case {
            sizes: [b, h, m, n, d, c],
            layouts,
            mask,
            shared,
            threads,
            seed,
        },
    )
}

/// The elements of an operand, as the kernel and as the chain sees them, for a shape.
enum Elements {
    F32(Vec<f32>),
    I32(Vec<i32>),
    Bool(Vec<u8>),
}

fn elements(load: Load, len: usize, seed: u64) -> Elements {
    let floats = values(len, seed);
    match load {
        // Some rows are masked as a whole.
        Load::F32 => {
            Elements::F32(floats.iter().map(|x| if *x > 3.5 { f32::NEG_INFINITY } else { *x }).collect())
        }
        Load::I32 => Elements::I32(floats.iter().map(|x| i32::from(*x > -2.0)).collect()),
        Load::Bool => Elements::Bool(floats.iter().map(|x| u8::from(*x > 0.0)).collect()),
    }
}

impl Elements {
    fn get(&self, at: usize) -> f32 {
        match self {
            Elements::F32(all) => all[at],
            Elements::I32(all) => f32::from_bits(all[at] as u32),
            Elements::Bool(all) => f32::from(all[at]),
        }
    }

    fn input(&self) -> Input<'_> {
        match self {
            Elements::F32(all) => Input::F32(Source::from(&all[..])),
            Elements::I32(all) => Input::I32(Source::from(&all[..])),
            Elements::Bool(all) => Input::Bool(Source::from(&all[..])),
        }
    }
}

/// The chain, one score at a time.
fn changed(instrs: &[Instr], score: f32, others: &[f32]) -> f32 {
    let mut regs: Vec<f32> = vec![];
    for instr in instrs {
        let read = |src: Src| match src {
            Src::Operand(0) => score,
            Src::Operand(at) => others[at as usize - 1],
            Src::Reg(at) => regs[at as usize],
            Src::Const(number) => number,
        };
        regs.push(match *instr {
            Instr::Binary(Binary::Add, x, y) => read(x) + read(y),
            Instr::Binary(Binary::Sub, x, y) => read(x) - read(y),
            Instr::Binary(Binary::Mul, x, y) => read(x) * read(y),
            Instr::Binary(Binary::Div, x, y) => read(x) / read(y),
            Instr::Unary(Unary::Tanh, x) => read(x).tanh(),
            Instr::Unary(Unary::FromI32, x) => read(x).to_bits() as i32 as f32,
            Instr::Select(x, y, z) => read(if read(x) != 0.0 { y } else { z }),
            other => panic!("{other:?} in no mask"),
        });
    }
    regs.last().copied().unwrap_or(score)
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let [b, h, m, n, d, c] = case.sizes;
    let heads = if case.shared { 1 } else { h };
    let shapes = [[b, h, m, d], [b, heads, n, d], [b, heads, n, c], [b, h, m, c]];
    let mut strides: Vec<Vec<usize>> =
        shapes.iter().zip(&case.layouts).map(|(shape, layout)| layout.strides(shape)).collect();
    let spans: Vec<usize> =
        shapes.iter().zip(&strides).map(|(shape, strides)| walk::span(shape, strides)).collect();
    let [q, k, v] = [0, 1, 2].map(|t| values(spans[t], case.seed ^ t as u64));
    if case.shared {
        (strides[1][1], strides[2][1]) = (0, 0);
    }
    let mut batch = [(b, Strides::default()), (h, Strides::default())];
    for (t, strides) in strides.iter().enumerate() {
        (batch[0].1[t], batch[1].1[t]) = (strides[0], strides[1]);
    }
    let (mut parts, mut others, mut other_strides) = (vec![], vec![], vec![]);
    for (t, (load, along)) in case.mask.operands.iter().enumerate() {
        let mut next = 1;
        let mut strides = [0; 4];
        for axis in (0..4).rev().filter(|axis| along[*axis]) {
            strides[axis] = next;
            next *= [b, h, m, n][axis];
        }
        (batch[0].1[4 + t], batch[1].1[4 + t]) = (strides[0], strides[1]);
        parts.push(Part { load: *load, row_stride: strides[2], col_stride: strides[3] });
        others.push(elements(*load, next, case.seed ^ (7 + t as u64)));
        other_strides.push(strides);
    }
    let side = |t: usize| (strides[t][2], strides[t][3]);
    let dims = Dims { m, n, depth: d, columns: c, q: side(0), k: side(1), v: side(2), y: side(3) };
    let chain = Chain { instrs: case.mask.instrs.clone() };
    let chain = (!chain.instrs.is_empty()).then_some(chain);
    let attention = Attention::new(dims, &batch, chain.as_ref(), &parts).unwrap();
    let threads = threads(case.threads);
    let gap = -77.125;
    let mut y = vec![gap; spans[3]];
    let mut scratch = vec![f32::NAN; attention.scratch_len(case.threads)];
    let inputs: Vec<Input<'_>> = others.iter().map(Elements::input).collect();
    let [q_in, k_in, v_in] = [&q, &k, &v].map(|x| Source::from(&x[..]));
    attention.run(q_in, k_in, v_in, &inputs, Target::from(&mut y[..]), &mut scratch, &threads);
    for index in indices(&[b, h, m]) {
        let row =
            |t: usize, at_row: usize, column: usize| at(&[index[0], index[1], at_row, column], &strides[t]);
        let score = |key: usize| {
            let products = (0..d).map(|x| f64::from(q[row(0, index[2], x)]) * f64::from(k[row(1, key, x)]));
            let masks = others.iter().zip(&other_strides);
            let masks = masks.map(|(all, strides)| all.get(at(&[&index[..], &[key]].concat(), strides)));
            f64::from(changed(&case.mask.instrs, products.sum::<f64>() as f32, &masks.collect::<Vec<_>>()))
        };
        let scores: Vec<f64> = (0..n).map(score).collect();
        let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let weights: Vec<f64> = scores.iter().map(|x| (x - most).exp()).collect();
        let sum: f64 = weights.iter().sum();
        for column in 0..c {
            let terms = (0..n).map(|key| weights[key] / sum * f64::from(v[row(2, key, column)]));
            let (got, want) = (y[row(3, index[2], column)], terms.sum::<f64>());
            // Scores of hundreds carry errors of their sums, which the exponential enlarges.
            prop_assert!(close(got, want, 4e-3), "{got} for {want} at {index:?}, {column}");
        }
    }
    let gaps = y.iter().filter(|x| **x == gap).count();
    prop_assert_eq!(gaps, y.len() - b * h * m * c);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn attention_is_its_three_parts(case in case()) {
        check(&case)?;
    }
}

/// Attention of one head over `n` keys with depth and values of one element.
fn simple(m: usize, n: usize, mask: &[f32], v: &[f32]) -> Vec<f32> {
    simple_with(false, m, n, mask, v)
}

fn simple_with(zeroes: bool, m: usize, n: usize, mask: &[f32], v: &[f32]) -> Vec<f32> {
    let dims = Dims { m, n, depth: 1, columns: 1, q: (1, 1), k: (1, 1), v: (1, 1), y: (1, 1) };
    let chain = Chain { instrs: vec![add(Src::Operand(0), Src::Operand(1))] };
    let part = Part { load: Load::F32, row_stride: n, col_stride: 1 };
    let attention = Attention::new(dims, &[], Some(&chain), &[part]).unwrap().with_zeroes(zeroes);
    let (q, k) = (vec![0.0; m], vec![0.0; n]);
    let mut scratch = vec![f32::NAN; attention.scratch_len(1)];
    let mut y = vec![7.0; m];
    let [q, k, v] = [&q[..], &k[..], v].map(Source::from);
    let mask = [Input::F32(Source::from(mask))];
    attention.run(q, k, v, &mask, Target::from(&mut y[..]), &mut scratch, &threads(1));
    y
}

#[test]
fn keys_that_are_masked_in_whole_blocks_count_for_nothing() {
    let n = 1500;
    let v: Vec<f32> = (0..n).map(|at| at as f32).collect();
    for (from, to) in [(0, 1), (n - 1, n), (700, 703)] {
        for lowest in [f32::NEG_INFINITY, f32::MIN] {
            let mask: Vec<f32> =
                (0..n).map(|at| if (from..to).contains(&at) { 0.0 } else { lowest }).collect();
            assert_eq!(simple(1, n, &mask, &v), [(from + to - 1) as f32 / 2.0]);
        }
    }
}

#[test]
fn a_row_of_minus_infinity_is_nan_and_one_of_the_lowest_number_is_even() {
    for n in [5, 1500] {
        let mask = [vec![f32::NEG_INFINITY; n], vec![f32::MIN; n]].concat();
        let y = simple(2, n, &mask, &vec![3.0; n]);
        assert!(y[0].is_nan() && (y[1] - 3.0).abs() < 1e-5, "{y:?}");
    }
}

#[test]
fn a_row_that_is_no_number_is_zero_where_that_is_wanted() {
    // Keys of one block and of several, and fewer keys than columns, whose weights are divided early.
    for n in [1, 5, 1500] {
        for bad in [f32::NEG_INFINITY, f32::NAN, f32::INFINITY] {
            let mask = [vec![bad; n], vec![0.0; n]].concat();
            let y = simple_with(true, 2, n, &mask, &vec![3.0; n]);
            assert!(y[0] == 0.0 && (y[1] - 3.0).abs() < 1e-5, "{n} keys, {bad}: {y:?}");
        }
    }
}

#[test]
fn nan_and_infinity_make_their_row_nan() {
    for bad in [f32::NAN, f32::INFINITY] {
        for at in [0, 3, 1499] {
            let mut mask = vec![0.0; 3000];
            mask[at] = bad;
            let y = simple(2, 1500, &mask, &vec![1.0; 1500]);
            assert!(y[0].is_nan() && (y[1] - 1.0).abs() < 1e-5, "{bad} at {at}: {y:?}");
        }
    }
}

#[test]
fn without_items_or_queries_nothing_is_done() {
    let dims = Dims { m: 0, n: 3, depth: 2, columns: 2, q: (2, 1), k: (2, 1), v: (2, 1), y: (2, 1) };
    let attention = Attention::new(dims, &[], None, &[]).unwrap();
    let mut scratch = vec![0.0; attention.scratch_len(1)];
    let [q, k, v] = [&[][..], &[0.0; 6][..], &[0.0; 6][..]].map(Source::from);
    attention.run(q, k, v, &[], Target::from(&mut [][..]), &mut scratch, &threads(1));
}
