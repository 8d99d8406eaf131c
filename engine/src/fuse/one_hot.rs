//! A comparison of indices with 0, 1, 2 … multiplied with a table is a look-up in that table.
//!
//! An index outside the table compares with nothing and gives zeros. So the table gets a last row of zeros, and an
//! index outside becomes that row's: `(index = 0 … n − 1) × table` = `gather(table + [0], 0 ≤ index < n ? index : n)`.

use super::edit::Edit;
use crate::graph::{Binary, Chain, Instr, Node, Op, Src, Unary, Value, ValueId};
use crate::tensor::DType;

pub(super) fn run(edit: &mut Edit<'_>) {
    for at in edit.places() {
        if let Some(found) = find(edit, at) {
            match found {
                Ok(found) => rewrite(edit, at, found),
                Err(reason) => edit.declined(at, reason),
            }
        }
    }
}

struct Found {
    compare_at: usize,
    cast_at: usize,
    indices: ValueId,
    table: ValueId,
    rows: usize,
}

/// `None` for what is no one-hot product; a reason where it cannot be looked up.
fn find(edit: &Edit<'_>, at: usize) -> Option<Result<Found, &'static str>> {
    let node = edit.node(at)?;
    let Op::Einsum(einsum) = &node.op else { return None };
    let (hot, table) = (node.inputs[0], node.inputs[1]);
    let cast = edit.made_by(hot).filter(|node| matches!(node.op, Op::Cast))?;
    let compared = *cast.inputs.first()?;
    let (Binary::EqualI32, a, b) = edit.binary(compared)? else { return None };
    let (a, b) = (a.value()?, b.value()?);
    let (numbers, reshaped) = if edit.is_constant(a) { (a, b) } else { (b, a) };
    // The one-hot axis is last, and the indices have it as an axis of 1 which is taken off.
    let Node { op: Op::Reshape, inputs, .. } = edit.made_by(reshaped)? else { return None };
    let (indices, axis) = (*inputs.first()?, edit.shape(hot).len().checked_sub(1)?);
    let rows = edit.shape(hot)[axis];
    let [k, n] = einsum.b[..] else { return Some(Err("the table has more than two axes")) };
    let plain = einsum.epilogue == Default::default()
        && einsum.a.last() == Some(&k)
        && einsum.c.last() == Some(&n)
        && einsum.c[..einsum.c.len() - 1] == einsum.a[..axis]
        && !einsum.a.contains(&n)
        && edit.shape(indices) == &edit.shape(hot)[..axis];
    if !plain || edit.shape(reshaped).last() != Some(&1) {
        return Some(Err("its axes are not those of a look-up"));
    }
    if !counts(edit.value(numbers), axis, rows) {
        return Some(Err("the numbers compared with are not 0, 1, 2 …"));
    }
    if edit.value(table).constant.is_none() || edit.value(table).elements() > LARGEST_TABLE {
        return Some(Err("the table is no constant or a large one: it has to be copied for a row of zeros"));
    }
    let (cast_at, compare_at) = (edit.maker(hot)?, edit.maker(compared)?);
    if edit.only_reader(hot) != Some(at) || edit.only_reader(compared) != Some(cast_at) {
        return Some(Err("the comparison is read by others too"));
    }
    Some(Ok(Found { compare_at, cast_at, indices, table, rows }))
}

/// Tables of more elements stay as they are.
const LARGEST_TABLE: usize = 1 << 22;

/// Whether a constant is 0, 1, 2 … along its last axis; few enough to be exact as f32.
fn counts(value: &Value, axis: usize, rows: usize) -> bool {
    const MOST: usize = 1 << 24;
    let Some(bytes) = value.small_bytes(rows).filter(|_| value.dtype == DType::I32) else { return false };
    let numbers = bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    rows < MOST
        && value.elements() == rows
        && value.shape.get(axis) == Some(&rows)
        && numbers.enumerate().all(|(at, number)| usize::try_from(number) == Ok(at))
}

fn rewrite(edit: &mut Edit<'_>, at: usize, found: Found) {
    let Found { compare_at, cast_at, indices, table, rows } = found;
    let value = edit.value(table).clone();
    let Some(mut floats) = value.small_floats(LARGEST_TABLE) else { return };
    floats.resize(floats.len() + value.shape[1], 0.0);
    let table = edit.add_floats(&value.name, &[rows + 1, value.shape[1]], &floats);
    let index = Src::Reg(0);
    let chain = Chain {
        instrs: vec![
            Instr::Unary(Unary::FromI32, Src::Operand(0)),
            Instr::Binary(Binary::GreaterEqual, index, Src::Const(0.0)),
            Instr::Binary(Binary::Less, index, Src::Const(rows as f32)),
            Instr::Binary(Binary::And, Src::Reg(1), Src::Reg(2)),
            Instr::Select(Src::Reg(3), index, Src::Const(rows as f32)),
        ],
    };
    let shape = edit.shape(indices).to_vec();
    let named =
        |dtype| Value { name: value.name.clone(), dtype, shape: shape.as_slice().into(), constant: None };
    let inside = edit.add_value(named(DType::F32));
    let whole = edit.add_value(named(DType::I32));
    edit.put(compare_at, Op::Pointwise(chain), vec![indices], vec![inside]);
    edit.put(cast_at, Op::Cast, vec![inside], vec![whole]);
    edit.set(at, Op::Gather(0), vec![table, whole]);
    edit.fused(at);
}
