//! One operation over one tile.

use super::super::lanes::{mask, max, min};
use super::super::math;
use crate::graph::chain::{Binary, Unary};
use rten_simd::ops::{BitOps, FloatOps, NumOps, ToFloat};
use rten_simd::{Isa, Simd, SimdOp, SimdUnaryOp};
use rten_vecmath::{Cos, Exp, Sin};

/// Where a tile's elements are read from.
#[derive(Clone, Copy)]
pub(super) struct View {
    /// The first element.
    pub(super) first: *const f32,
    /// 1, or 0 for one vector of equal lanes that stands for every element.
    pub(super) step: usize,
}

/// Operations of three arguments.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ternary {
    /// `y` where `x` is not 0, else `z`.
    Select,
    /// min(max(x, y), z).
    Clamp,
    /// x · y + z, rounded twice as the two operations are.
    MulAdd,
}

/// What a step computes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Op {
    /// Of the first argument.
    Unary(Unary),
    /// Of the first two.
    Binary(Binary),
    /// Of all three.
    Ternary(Ternary),
}

/// Computes `n` elements from `out` on; `out` may be where one of the arguments with step 1 is.
///
/// # Safety
/// The arguments are valid for `n` elements (those of step 0 for a vector), and so is `out`.
pub(super) unsafe fn apply(op: Op, args: [View; 3], out: *mut f32, n: usize) {
    match op {
        Op::Unary(op) => UnaryTile { op, args: [args[0]], out, n }.dispatch(),
        Op::Binary(op) => BinaryTile { op, args: [args[0], args[1]], out, n }.dispatch(),
        Op::Ternary(op) => TernaryTile { op, args, out, n }.dispatch(),
    }
}

struct UnaryTile {
    op: Unary,
    args: [View; 1],
    out: *mut f32,
    n: usize,
}

struct BinaryTile {
    op: Binary,
    args: [View; 2],
    out: *mut f32,
    n: usize,
}

struct TernaryTile {
    op: Ternary,
    args: [View; 3],
    out: *mut f32,
    n: usize,
}

/// `f` of every vector of the arguments.
#[inline(always)]
fn map<I: Isa, const N: usize>(
    isa: I,
    args: [View; N],
    out: *mut f32,
    n: usize,
    f: impl Fn([I::F32; N]) -> I::F32,
) {
    let ops = isa.f32();
    let lanes = ops.len();
    let mut i = 0;
    // SAFETY: `apply`'s promise; the last, masked step touches only what remains of the `n` elements.
    unsafe {
        while i + 2 * lanes <= n {
            let x = args.map(|arg| ops.load_ptr(arg.first.add(i * arg.step)));
            let y = args.map(|arg| ops.load_ptr(arg.first.add((i + lanes) * arg.step)));
            let (x, y) = (f(x), f(y));
            ops.store_ptr(x, out.add(i));
            ops.store_ptr(y, out.add(i + lanes));
            i += 2 * lanes;
        }
        while i < n {
            let mask = mask(isa, (n - i).min(lanes));
            let x = args.map(|arg| ops.load_ptr_mask(arg.first.add(i * arg.step), mask));
            ops.store_ptr_mask(f(x), out.add(i), mask);
            i += lanes;
        }
    }
}

/// A function of one number for every lane; of those that a processor has an instruction for, the compiler makes
/// that instruction.
#[inline(always)]
fn lanewise<I: Isa>(isa: I, x: I::F32, f: impl Fn(f32) -> f32) -> I::F32 {
    let mut lanes = x.to_array();
    for lane in 0..isa.f32().len() {
        lanes[lane] = f(lanes[lane]);
    }
    isa.f32().load(lanes.as_ref())
}

impl SimdOp for UnaryTile {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let UnaryTile { args, out, n, .. } = self;
        macro_rules! each {
            ($x:ident => $y:expr) => {
                map(
                    isa,
                    args,
                    out,
                    n,
                    #[inline(always)]
                    |[$x]| $y,
                )
            };
        }
        macro_rules! scalar {
            ($f:expr) => {
                each!(x => lanewise(isa, x, $f))
            };
        }
        let (zero, one) = (ops.zero(), ops.one());
        match self.op {
            Unary::Neg => each!(x => ops.neg(x)),
            Unary::Abs => each!(x => ops.abs(x)),
            Unary::Sign => each!(x => {
                let negative = ops.select(ops.neg(one), x, ops.lt(x, zero));
                ops.select(one, negative, ops.gt(x, zero))
            }),
            Unary::Square => each!(x => ops.mul(x, x)),
            Unary::Sqrt => scalar!(f32::sqrt),
            Unary::Rsqrt => each!(x => ops.div(one, lanewise(isa, x, f32::sqrt))),
            Unary::Recip => each!(x => ops.div(one, x)),
            Unary::Exp => each!(x => Exp::apply(isa, x)),
            Unary::Ln => scalar!(f32::ln),
            Unary::Sin => each!(x => Sin::apply(isa, x)),
            Unary::Cos => each!(x => Cos::apply(isa, x)),
            Unary::Tan => scalar!(f32::tan),
            Unary::Asin => scalar!(f32::asin),
            Unary::Acos => scalar!(f32::acos),
            Unary::Atan => scalar!(f32::atan),
            Unary::Sinh => scalar!(f32::sinh),
            Unary::Cosh => scalar!(f32::cosh),
            Unary::Tanh => each!(x => math::tanh(isa, x)),
            Unary::Asinh => scalar!(f32::asinh),
            Unary::Acosh => scalar!(f32::acosh),
            Unary::Atanh => scalar!(f32::atanh),
            Unary::Erf => each!(x => math::erf(isa, x)),
            Unary::Sigmoid => each!(x => math::sigmoid(isa, x)),
            Unary::Silu => each!(x => math::silu(isa, x)),
            Unary::HardSwish => each!(x => {
                let gate = ops.add(ops.mul(x, ops.splat(1.0 / 6.0)), ops.splat(0.5));
                ops.mul(x, ops.max(zero, ops.min(one, gate)))
            }),
            Unary::GeluErf => each!(x => {
                let erf = math::erf(isa, ops.mul(x, ops.splat(std::f32::consts::FRAC_1_SQRT_2)));
                ops.mul(ops.mul(x, ops.splat(0.5)), ops.add(one, erf))
            }),
            Unary::GeluTanh => each!(x => {
                let cube = ops.mul(ops.mul(x, x), x);
                let inner = ops.mul(ops.mul_add(cube, ops.splat(0.044_715), x), ops.splat(0.797_884_6));
                ops.mul(ops.mul(x, ops.splat(0.5)), ops.add(one, math::tanh(isa, inner)))
            }),
            Unary::Floor => scalar!(f32::floor),
            Unary::Ceil => scalar!(f32::ceil),
            Unary::Round => scalar!(f32::round),
            Unary::RoundHalfEven => each!(x => ops.round_ties_even(x)),
            Unary::Not => each!(x => ops.select(one, zero, ops.eq(x, zero))),
            Unary::FromI32 => each!(x => {
                let whole: I::I32 = x.reinterpret_cast();
                isa.i32().to_float(whole)
            }),
        }
    }
}

impl SimdOp for BinaryTile {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let BinaryTile { args, out, n, .. } = self;
        macro_rules! each {
            ($x:ident, $y:ident => $z:expr) => {
                map(
                    isa,
                    args,
                    out,
                    n,
                    #[inline(always)]
                    |[$x, $y]| $z,
                )
            };
        }
        let (zero, one) = (ops.zero(), ops.one());
        match self.op {
            Binary::Add => each!(x, y => ops.add(x, y)),
            Binary::Sub => each!(x, y => ops.sub(x, y)),
            Binary::Mul => each!(x, y => ops.mul(x, y)),
            Binary::Div => each!(x, y => ops.div(x, y)),
            Binary::Min => each!(x, y => min(isa, x, y)),
            Binary::Max => each!(x, y => max(isa, x, y)),
            Binary::Pow => each!(x, y => {
                let (mut base, exponent) = (x.to_array(), y.to_array());
                for lane in 0..ops.len() {
                    base[lane] = base[lane].powf(exponent[lane]);
                }
                ops.load(base.as_ref())
            }),
            Binary::Equal => each!(x, y => ops.select(one, zero, ops.eq(x, y))),
            Binary::NotEqual => each!(x, y => ops.select(zero, one, ops.eq(x, y))),
            Binary::Less => each!(x, y => ops.select(one, zero, ops.lt(x, y))),
            Binary::LessEqual => each!(x, y => ops.select(one, zero, ops.le(x, y))),
            Binary::Greater => each!(x, y => ops.select(one, zero, ops.gt(x, y))),
            Binary::GreaterEqual => each!(x, y => ops.select(one, zero, ops.ge(x, y))),
            Binary::EqualI32 => each!(x, y => {
                let (x, y): (I::I32, I::I32) = (x.reinterpret_cast(), y.reinterpret_cast());
                ops.select(one, zero, isa.i32().eq(x, y))
            }),
            Binary::And => each!(x, y => ops.min(x, y)),
            Binary::Or => each!(x, y => ops.max(x, y)),
            Binary::Xor => each!(x, y => ops.abs(ops.sub(x, y))),
            Binary::LeakyRelu => each!(x, y => ops.select(x, ops.mul(x, y), ops.ge(x, zero))),
        }
    }
}

impl SimdOp for TernaryTile {
    type Output = ();

    #[inline(always)]
    fn eval<I: Isa>(self, isa: I) {
        let ops = isa.f32();
        let TernaryTile { args, out, n, .. } = self;
        macro_rules! each {
            ($x:ident, $y:ident, $z:ident => $w:expr) => {
                map(
                    isa,
                    args,
                    out,
                    n,
                    #[inline(always)]
                    |[$x, $y, $z]| $w,
                )
            };
        }
        match self.op {
            Ternary::Select => each!(x, y, z => ops.select(z, y, ops.eq(x, ops.zero()))),
            Ternary::Clamp => each!(x, y, z => min(isa, max(isa, x, y), z)),
            Ternary::MulAdd => each!(x, y, z => ops.add(ops.mul(x, y), z)),
        }
    }
}
