use proptest::prelude::*;

use super::{B, Batch, Epilogue, MatMul};
use crate::device::cpu::threads::Threads;

/// Numbers between -1 and 1 that look random.
pub(crate) fn noise(len: usize, seed: u32) -> Vec<f32> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(12345);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    };
    (0..len).map(|_| next()).collect()
}

/// What a result is compared to, with a tolerance for the order of sums of `terms` terms.
pub(crate) fn close(got: f32, want: f64, terms: usize) -> bool {
    (f64::from(got) - want).abs() <= 1e-4 * want.abs().max(1.0).max((terms as f64).sqrt() * 0.1)
}

/// A shape with strides: how the elements of a matrix lie.
#[derive(Clone, Copy, Debug)]
enum Order {
    Rows,
    RowsWithGap,
    Columns,
}

impl Order {
    fn strides(self, rows: usize, columns: usize) -> (usize, usize) {
        match self {
            Order::Rows => (columns, 1),
            Order::RowsWithGap => (columns + 3, 1),
            Order::Columns => (1, rows),
        }
    }

    fn extent(self, rows: usize, columns: usize) -> usize {
        let (row, column) = self.strides(rows, columns);
        if rows * columns == 0 { 0 } else { (rows - 1) * row + (columns - 1) * column + 1 }
    }
}

fn order() -> impl Strategy<Value = Order> {
    prop_oneof![Just(Order::Rows), Just(Order::RowsWithGap), Just(Order::Columns)]
}

#[derive(Clone, Copy, Debug)]
struct Case {
    op: MatMul,
    packed: bool,
    threads: usize,
    bias: bool,
    residual: bool,
    clamp: bool,
    rows: bool,
    seed: u32,
}

fn size(most: usize) -> impl Strategy<Value = usize> {
    prop_oneof![3 => 1usize..=most / 8, 1 => 1..=most]
}

fn case() -> impl Strategy<Value = Case> {
    let shape = (size(220), size(130), prop_oneof![8 => size(300), 1 => Just(0usize)]);
    let batch = (1usize..4, 1usize..4, any::<[bool; 2]>(), any::<bool>());
    let switches = (any::<bool>(), 1usize..4, any::<[bool; 4]>(), any::<u32>());
    (shape, batch, (order(), order(), order()), switches).prop_map(|((m, n, k), batch, orders, switches)| {
        let (count, heads, shared, interleaved) = batch;
        let (packed, threads, [bias, residual, clamp, rows], seed) = switches;
        let (a, b, c) = (orders.0.extent(m, k), orders.1.extent(k, n), orders.2.extent(m, n));
        let mut c_strides = orders.2.strides(m, n);
        let (mut inner_c, mut outer_c) = (c, c * heads);
        if interleaved {
            // As attention writes it: a row holds all heads.
            c_strides = (n * heads, 1);
            (inner_c, outer_c) = (n, n * heads * m);
        }
        let outer = Batch { count, a: a * heads, b: if shared[0] { 0 } else { b * heads }, c: outer_c };
        let inner = Batch { count: heads, a, b: if shared[1] { 0 } else { b }, c: inner_c };
        let op = MatMul {
            m,
            n,
            k,
            batch: [Batch::ONE, outer, inner, Batch::ONE],
            a_strides: orders.0.strides(m, k),
            b_strides: orders.1.strides(k, n),
            c_strides,
        };
        Case { op, packed, threads, bias, residual, clamp, rows, seed }
    })
}

fn check(case: &Case) -> Result<(), TestCaseError> {
    let op = &case.op;
    let (items, m, n) = (op.items(), op.m, op.n);
    let a = noise(op.extent(op.a_strides, (m, op.k), |dim| dim.a), case.seed);
    let b = noise(op.extent(op.b_strides, (op.k, n), |dim| dim.b), case.seed ^ 1);
    let bias = noise(n, case.seed ^ 2);
    let residual = noise(items * m * (n + 2), case.seed ^ 3);
    let clamp = case.clamp.then_some((-0.5, 1.5));
    // Adds to each element its place, so that one passed twice, or never, shows.
    let place = |row: usize, column: usize| (row * 10 + column) as f32 * 0.25;
    let add = |row: usize, rows: usize, block: &mut [f32], stride: usize, column: usize, columns: usize| {
        assert_eq!(block.len(), (rows - 1) * stride + columns);
        for r in 0..rows {
            for c in 0..columns {
                block[r * stride + c] += place(row + r, column + c);
            }
        }
    };
    let epilogue = Epilogue {
        bias: case.bias.then_some(&bias),
        residual: case.residual.then_some((&residual, n + 2)),
        clamp,
        rows: case.rows.then_some(&add),
    };
    let threads = Threads::new(case.threads).unwrap();
    let gap = -77.123;
    let mut c = vec![gap; op.extent(op.c_strides, (m, n), |dim| dim.c)];
    let mut scratch = vec![f32::NAN; op.scratch_len(case.packed, case.threads)];
    let mut packed = vec![f32::NAN; op.packed_len()];
    op.pack_b(&b, &mut packed);
    let second = if case.packed { B::Packed(&packed) } else { B::Plain(&b) };
    op.run(&a, second, &epilogue, &mut c, &mut scratch, &threads);
    let mut written = 0;
    for item in 0..items {
        let at = op.position(item);
        let offset = |stride: fn(&Batch) -> usize| -> usize {
            at.iter().zip(&op.batch).map(|(at, dim)| at * stride(dim)).sum()
        };
        let (a, b) = (&a[offset(|dim| dim.a).min(a.len())..], &b[offset(|dim| dim.b).min(b.len())..]);
        for row in 0..m {
            for column in 0..n {
                let product = |k| {
                    let a = a[row * op.a_strides.0 + k * op.a_strides.1];
                    f64::from(a) * f64::from(b[k * op.b_strides.0 + column * op.b_strides.1])
                };
                let mut want: f64 = (0..op.k).map(product).sum();
                let at = item * m + row;
                want += if case.bias { f64::from(bias[column]) } else { 0.0 };
                want += if case.residual { f64::from(residual[at * (n + 2) + column]) } else { 0.0 };
                want = clamp.map_or(want, |(low, high)| want.clamp(f64::from(low), f64::from(high)));
                want += if case.rows { f64::from(place(at, column)) } else { 0.0 };
                let got = c[offset(|dim| dim.c) + row * op.c_strides.0 + column * op.c_strides.1];
                prop_assert!(close(got, want, op.k), "{got} for {want} at {item}, {row}, {column}");
                written += 1;
            }
        }
    }
    let gaps = c.iter().filter(|&&x| x == gap).count();
    prop_assert_eq!(gaps, c.len() - written);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn products_are_those_of_a_simple_loop(case in case()) {
        check(&case)?;
    }
}

#[test]
fn nan_passes_a_relu_and_an_empty_matrix_is_left_alone() {
    let threads = Threads::new(1).unwrap();
    let op = MatMul::dense(1, 1, 20);
    let epilogue = Epilogue { clamp: Some((0.0, f32::INFINITY)), ..Epilogue::default() };
    let mut c = [0.0; 20];
    let mut scratch = vec![0.0; op.scratch_len(false, 1)];
    op.run(&[f32::NAN], B::Plain(&[1.0; 20]), &epilogue, &mut c, &mut scratch, &threads);
    assert!(c.iter().all(|x| x.is_nan()));
    MatMul::dense(0, 3, 4).run(&[], B::Plain(&[1.0; 12]), &epilogue, &mut [], &mut [], &threads);
}

#[test]
#[should_panic(expected = "A has 5 of 6 elements")]
fn a_short_slice_is_refused() {
    let threads = Threads::new(1).unwrap();
    let mut scratch = [0.0; 4096];
    let op = MatMul::dense(2, 3, 4);
    op.run(&[0.0; 5], B::Plain(&[0.0; 12]), &Epilogue::default(), &mut [0.0; 8], &mut scratch, &threads);
}

#[test]
#[should_panic(expected = "elements of C overlap")]
fn overlapping_rows_of_the_output_are_refused() {
    let threads = Threads::new(1).unwrap();
    let op = MatMul { c_strides: (3, 1), ..MatMul::dense(2, 3, 4) };
    let mut scratch = [0.0; 4096];
    op.run(&[0.0; 6], B::Plain(&[0.0; 12]), &Epilogue::default(), &mut [0.0; 8], &mut scratch, &threads);
}
