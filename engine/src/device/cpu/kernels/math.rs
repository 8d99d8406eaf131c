//! Functions of f32 vectors that are faster or closer than those of `rten_vecmath`.

use rten_simd::ops::{BitOps, FloatOps, IntOps, NumOps};
use rten_simd::{Isa, Simd};

/// exp(x) to 2 ulp for x from -87.3 to 88.3; 0 and ∞ beyond, NaN for NaN.
#[inline(always)]
fn exp_between<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let (ops, ints) = (isa.f32(), isa.i32());
    // 2^k · exp(r) with |r| ≤ ln 2 / 2; adding 1.5 · 2^23 rounds to a whole number, which then are the low bits.
    let magic = ops.splat(12_582_912.0);
    let rounded = ops.mul_add(x, ops.splat(std::f32::consts::LOG2_E), magic);
    let k = ops.sub(rounded, magic);
    let r = ops.mul_sub_from(k, ops.splat(0.693_145_75), x);
    let r = ops.mul_sub_from(k, ops.splat(1.428_606_8e-6), r);
    let mut p = ops.splat(1.378_059_4e-3);
    for coefficient in [8.373_124_5e-3, 4.166_953_6e-2, 1.666_647_2e-1, 4.999_998_5e-1, 1.0, 1.0] {
        p = ops.mul_add(p, r, ops.splat(coefficient));
    }
    // k from -127, whose power comes out as 0, to 128, whose power comes out as ∞.
    let bits: I::I32 = rounded.reinterpret_cast();
    let power = ints.add(ints.shift_left::<23>(bits), ints.splat(127 << 23));
    ops.mul(p, power.reinterpret_cast())
}

/// exp(x) for x ≤ 0 to 2 ulp; 0 where the result would not be normal, NaN for NaN.
#[inline(always)]
pub(crate) fn exp_of_negative<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    // The bound comes first: a maximum of x86 gives its second argument for NaN.
    exp_between(isa, isa.f32().max(isa.f32().splat(-88.0), x))
}

/// tanh(x) to about 4 ulp: a quotient of polynomials on [-9, 9], past which it is ±1.
#[inline(always)]
pub(crate) fn tanh<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let x = ops.max(ops.splat(-9.0), ops.min(ops.splat(9.0), x));
    let square = ops.mul(x, x);
    let mut p = ops.splat(-2.760_768_5e-16);
    for coefficient in
        [2.000_188e-13, -8.604_672e-11, 5.122_297e-8, 1.485_722_4e-5, 6.372_619_4e-4, 4.893_524_6e-3]
    {
        p = ops.mul_add(p, square, ops.splat(coefficient));
    }
    let mut q = ops.splat(1.198_258_4e-6);
    for coefficient in [1.185_347_1e-4, 2.268_434_6e-3, 4.893_525_3e-3] {
        q = ops.mul_add(q, square, ops.splat(coefficient));
    }
    saturate(isa, x, ops.div(ops.mul(x, p), q), 9.0)
}

/// `y`, but ±1 where |x| is at least `bound`: what is multiplied by 1 - y must vanish there.
#[inline(always)]
fn saturate<I: Isa>(isa: I, x: I::F32, y: I::F32, bound: f32) -> I::F32 {
    let ops = isa.f32();
    let y = ops.select(ops.one(), y, ops.ge(x, ops.splat(bound)));
    ops.select(ops.splat(-1.0), y, ops.le(x, ops.splat(-bound)))
}

/// erf(x) to about 4 ulp: a quotient of polynomials on [-4, 4], past which it is ±1.
#[inline(always)]
pub(crate) fn erf<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let x = ops.max(ops.splat(-4.0), ops.min(ops.splat(4.0), x));
    let square = ops.mul(x, x);
    let mut p = ops.splat(-2.726_142_3e-10);
    for coefficient in
        [2.770_681_4e-8, -2.101_024e-6, -5.692_506_4e-5, -7.349_906_3e-4, -2.954_6e-3, -1.609_603_3e-2]
    {
        p = ops.mul_add(p, square, ops.splat(coefficient));
    }
    let mut q = ops.splat(-1.456_607_2e-5);
    for coefficient in [-2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2] {
        q = ops.mul_add(q, square, ops.splat(coefficient));
    }
    saturate(isa, x, ops.div(ops.mul(x, p), q), 4.0)
}

/// 1 + exp(-x), and ∞ where a quotient by it would not be normal.
#[inline(always)]
fn one_plus_exp<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    let x = ops.min(ops.splat(88.0), ops.max(ops.splat(-89.0), x));
    ops.add(ops.one(), exp_between(isa, ops.neg(x)))
}

/// 1 / (1 + exp(-x)).
#[inline(always)]
pub(crate) fn sigmoid<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let ops = isa.f32();
    ops.div(ops.one(), one_plus_exp(isa, x))
}

/// x / (1 + exp(-x)).
#[inline(always)]
pub(crate) fn silu<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    isa.f32().div(x, one_plus_exp(isa, x))
}
