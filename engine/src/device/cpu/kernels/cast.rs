//! Conversion between dtypes.

use super::walk::{self, Axes, Axis, Cursor};
use crate::device::cpu::memory::{Source, Target};
use crate::device::cpu::threads::Threads;
use crate::tensor::DType;
use half::f16;
use half::slice::HalfFloatSliceExt;
use std::ops::Range;

#[cfg(test)]
mod tests;

/// Elements that one unit of work covers.
const PIECE: usize = 16 << 10;

/// A conversion of every element, made for one shape.
#[derive(Debug)]
pub(crate) struct Cast {
    from: Number,
    to: Number,
    outer: Axes<2>,
    cols: Axis<2>,
    extents: [usize; 2],
    bytes: usize,
}

macro_rules! numbers {
    ($($name:ident: $ty:ty, $to:ident;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum Number {
            $($name,)*
        }

        impl Number {
            fn of(dtype: DType) -> Option<Number> {
                match dtype {
                    $(DType::$name => Some(Number::$name),)*
                    DType::Bytes => None,
                }
            }

            fn bytes(self) -> usize {
                match self {
                    $(Number::$name => size_of::<$ty>(),)*
                }
            }
        }

        impl Cast {
            fn dispatch(&self, source: *const u8, target: *mut u8, units: Range<usize>) {
                match self.from {
                    $(Number::$name => self.dispatch_to::<$ty>(source, target, units),)*
                }
            }

            fn dispatch_to<F: Elem>(&self, source: *const u8, target: *mut u8, units: Range<usize>) {
                match self.to {
                    $(Number::$name => self.part(source, target, units, F::of, F::$to),)*
                }
            }
        }
    };
}

numbers! {
    Bool: bool, flag;
    U8: u8, u8;
    U16: u16, u16;
    U32: u32, u32;
    U64: u64, u64;
    I8: i8, i8;
    I16: i16, i16;
    I32: i32, i32;
    I64: i64, i64;
    F16: f16, f16;
    F32: f32, f32;
    F64: f64, f64;
}

impl Cast {
    /// From one dtype to another, as `as` of Rust does: to whole numbers towards zero and saturating from floats,
    /// wrapping from wider ones; to bool whether it is not 0. `None` for strings. Strides in elements.
    pub(crate) fn new(
        from: DType,
        to: DType,
        shape: &[usize],
        source_strides: &[usize],
        target_strides: &[usize],
    ) -> Option<Cast> {
        let (from, to) = (Number::of(from)?, Number::of(to)?);
        let mut outer = walk::collapse(shape, [source_strides, target_strides], 1);
        let extents = std::array::from_fn(|t| walk::extent(&outer, t));
        let bytes = (from.bytes() + to.bytes()) * walk::count(&outer);
        let cols = outer.pop().unwrap_or(Axis::ONCE);
        Some(Cast { from, to, outer, cols, extents, bytes })
    }

    /// Converts. Source and target are in bytes, aligned for their dtypes, and must not overlap.
    pub(crate) fn run(&self, source: Source<'_, u8>, target: Target<'_, u8>, threads: &Threads) {
        let [from, to] = [self.extents[0] * self.from.bytes(), self.extents[1] * self.to.bytes()];
        assert!(source.len() >= from, "a source of {} bytes, {from} are read", source.len());
        assert!(target.len() >= to, "a target of {} bytes, {to} are written", target.len());
        if to == 0 {
            return;
        }
        walk::share(threads, walk::count(&self.outer) * self.pieces(), self.bytes, &|units| {
            if !self.halves(source.as_ptr(), target.as_ptr(), units.clone()) {
                self.dispatch(source.as_ptr(), target.as_ptr(), units);
            }
        });
    }

    fn pieces(&self) -> usize {
        self.cols.len.div_ceil(PIECE)
    }

    /// Contiguous f16 to or from f32, which one call has processor instructions for; `false` for anything else.
    fn halves(&self, source: *const u8, target: *mut u8, units: Range<usize>) -> bool {
        let [from, to] = [self.from, self.to];
        let half = matches!((from, to), (Number::F16, Number::F32) | (Number::F32, Number::F16));
        let aligned = source.cast::<f32>().is_aligned() && target.cast::<f32>().is_aligned();
        if !half || !aligned || !self.outer.is_empty() || self.cols.strides != [1, 1] {
            return false;
        }
        let start = units.start * PIECE;
        let n = self.cols.len.min(units.end * PIECE) - start;
        // SAFETY: `run` compared the extents with the lengths; source and target do not overlap, and this thread
        // alone writes these units. Any bits are an f16 and an f32.
        unsafe {
            if from == Number::F16 {
                let source = std::slice::from_raw_parts(source.cast::<f16>().add(start), n);
                let target = std::slice::from_raw_parts_mut(target.cast::<f32>().add(start), n);
                source.convert_to_f32_slice(target);
            } else {
                let source = std::slice::from_raw_parts(source.cast::<f32>().add(start), n);
                let target = std::slice::from_raw_parts_mut(target.cast::<f16>().add(start), n);
                target.convert_from_f32_slice(source);
            }
        }
        true
    }

    #[inline(always)]
    fn part<B: Copy, F, T>(
        &self,
        source: *const u8,
        target: *mut u8,
        units: Range<usize>,
        read: impl Fn(B) -> F,
        convert: impl Fn(F) -> T,
    ) {
        let [from, to] = self.cols.strides;
        let pieces = self.pieces();
        let mut cursor = Cursor::new(&self.outer, units.start / pieces);
        let mut piece = units.start % pieces;
        for _ in units {
            let start = piece * PIECE;
            let n = (self.cols.len - start).min(PIECE);
            // SAFETY: the loops stay within the extents that `run` compared with the lengths.
            unsafe {
                let source = source.cast::<B>().add(cursor.at[0] + start * from);
                let target = target.cast::<T>().add(cursor.at[1] + start * to);
                // Two loops, so that the contiguous one is vectorised.
                if from == 1 && to == 1 {
                    for i in 0..n {
                        target.add(i).write_unaligned(convert(read(source.add(i).read_unaligned())));
                    }
                } else {
                    for i in 0..n {
                        let value = read(source.add(i * from).read_unaligned());
                        target.add(i * to).write_unaligned(convert(value));
                    }
                }
            }
            piece += 1;
            if piece == pieces {
                piece = 0;
                cursor.advance();
            }
        }
    }
}

/// What an element may be; each method gives it as the type of its name.
trait Elem: Copy {
    /// As it is read, whatever its bits.
    type Bits: Copy;

    fn of(bits: Self::Bits) -> Self;
    /// 1 where it is not 0, else 0.
    fn flag(self) -> u8;
    fn u8(self) -> u8;
    fn u16(self) -> u16;
    fn u32(self) -> u32;
    fn u64(self) -> u64;
    fn i8(self) -> i8;
    fn i16(self) -> i16;
    fn i32(self) -> i32;
    fn i64(self) -> i64;
    fn f16(self) -> f16;
    fn f32(self) -> f32;
    fn f64(self) -> f64;
}

macro_rules! elem {
    ($ty:ty, $bits:ty, |$b:ident| $of:expr, |$x:ident| $wide:expr, $zero:expr, |$h:ident| $half:expr) => {
        impl Elem for $ty {
            type Bits = $bits;

            #[inline(always)]
            fn of($b: $bits) -> $ty {
                $of
            }
            #[inline(always)]
            fn flag(self) -> u8 {
                u8::from(self != $zero)
            }
            elem!(to $ty, |$x| $wide, u8 u16 u32 u64 i8 i16 i32 i64 f32 f64);
            #[inline(always)]
            fn f16(self) -> f16 {
                let $h = self;
                $half
            }
        }
    };
    (to $ty:ty, |$x:ident| $wide:expr, $($to:ident)*) => {
        $(
            #[inline(always)]
            #[allow(clippy::unnecessary_cast)]
            fn $to(self) -> $to {
                let $x = self;
                $wide as $to
            }
        )*
    };
}

// To f16 from what f32 cannot hold by way of f64: it would be rounded twice.
elem!(bool, u8, |b| b != 0, |x| u8::from(x), false, |x| f16::from_f64(x.f64()));
elem!(u8, u8, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(u16, u16, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(u32, u32, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(u64, u64, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(i8, i8, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(i16, i16, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(i32, i32, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(i64, i64, |b| b, |x| x, 0, |x| f16::from_f64(x.f64()));
elem!(f16, f16, |b| b, |x| x.to_f32(), f16::ZERO, |x| x);
elem!(f32, f32, |b| b, |x| x, 0.0, |x| f16::from_f32(x));
elem!(f64, f64, |b| b, |x| x, 0.0, |x| f16::from_f64(x.f64()));
