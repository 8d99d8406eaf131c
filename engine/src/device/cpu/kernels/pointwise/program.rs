//! A chain as steps over tiles: common pairs of operations joined, and a tile chosen for each result.

use super::super::lanes::LANES;
use super::join::{Arg, Node, join, nodes};
use super::tile::{self, Op, View};
use crate::graph::chain::Chain;
use smallvec::SmallVec;
use std::mem::MaybeUninit;

/// Elements of a tile: long enough that a step's overhead does not count, short enough that a few stay in L1.
pub(super) const TILE: usize = 512;
/// How many tiles a run has on its stack.
pub(super) const TILES: usize = 10;
/// How many results that are the same for a whole tile.
pub(super) const UNIFORMS: usize = 16;
/// How many operands a chain may have.
pub(crate) const OPERANDS: usize = 12;

/// Why a chain cannot run as one step; shorter chains can.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TooLong {
    /// Too many operands.
    #[error("a chain of {0} operands, at most {OPERANDS} fit")]
    Operands(usize),
    /// Too many results that are needed later, or operands that must be brought into order.
    #[error("a chain that needs more than {TILES} tiles at once")]
    Tiles,
    /// Too many results that do not vary within a tile.
    #[error("a chain with more than {UNIFORMS} broadcast values")]
    Uniforms,
    /// No operation, or one that reads what is not computed yet.
    #[error("a chain without a result")]
    Empty,
}

/// How a tile gets the elements of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// From where they are.
    Direct,
    /// One element for the whole tile, spread over a vector.
    Uniform,
    /// Copied into a tile first.
    Gathered,
}

/// Where a step reads from.
#[derive(Clone, Copy, Debug)]
enum Place {
    Direct(usize),
    Tile(usize),
    Uniform(usize),
    /// Index into the constants.
    Const(usize),
}

#[derive(Clone, Copy, Debug)]
enum Out {
    Tile(usize),
    Uniform(usize),
    Result,
}

#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    args: [Place; 3],
    out: Out,
}

/// One vector of equal lanes, for the widest vectors.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(super) struct Splat(pub(super) [f32; LANES]);

/// The tiles of one thread.
#[repr(C, align(64))]
pub(super) struct Scratch {
    /// Results and gathered operands.
    pub(super) tiles: [MaybeUninit<[f32; TILE]>; TILES],
    /// Values that are the same for a whole tile.
    pub(super) uniforms: [MaybeUninit<Splat>; UNIFORMS],
}

impl Scratch {
    /// Without values.
    #[inline(always)]
    pub(super) fn new() -> Scratch {
        Scratch { tiles: [MaybeUninit::uninit(); TILES], uniforms: [MaybeUninit::uninit(); UNIFORMS] }
    }

    /// The first element of that tile.
    #[inline(always)]
    pub(super) fn tile(&mut self, tile: usize) -> *mut f32 {
        self.tiles[tile].as_mut_ptr().cast()
    }

    /// Makes that uniform `value`.
    #[inline(always)]
    pub(super) fn spread(&mut self, uniform: usize, value: f32) {
        self.uniforms[uniform].write(Splat([value; LANES]));
    }
}

/// The steps of a chain.
#[derive(Debug)]
pub(super) struct Program {
    steps: SmallVec<[Step; 4]>,
    constants: Vec<Splat>,
    /// For each operand: its tile if it is gathered, its uniform if it is one.
    pub(super) slots: [usize; OPERANDS],
    /// The tile of the result, where the caller cannot take it in place.
    pub(super) result: usize,
    /// Whether any result is kept in a tile.
    pub(super) tiled: bool,
}

impl Program {
    /// The steps of `chain` where operand `i` is accessed as `access[i]` says.
    pub(super) fn new(chain: &Chain, access: &[Access]) -> Result<Program, TooLong> {
        if access.len() > OPERANDS {
            return Err(TooLong::Operands(access.len()));
        }
        let nodes = join(&nodes(chain, access.len())?);
        allocate(&nodes, access)
    }

    /// How many steps there are.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }

    /// Computes one tile of `n` elements into `out`.
    ///
    /// # Safety
    /// `direct[i]` is valid for `n` elements for each operand `i` that is not gathered or uniform; the gathered
    /// and uniform ones are in `scratch`; `out` is valid for `n` elements, and shares memory at most with direct
    /// operands that have the same first element. `n` is at most [`TILE`] if results are kept in tiles.
    #[inline]
    pub(super) unsafe fn run(
        &self,
        scratch: &mut Scratch,
        direct: &[*const f32; OPERANDS],
        out: *mut f32,
        n: usize,
    ) {
        // Taken once: a borrow per tile would end the use of the pointers before it.
        let tiles: *mut [f32; TILE] = scratch.tiles.as_mut_ptr().cast();
        let uniforms: *mut Splat = scratch.uniforms.as_mut_ptr().cast();
        let tile = |tile: usize| tiles.wrapping_add(tile).cast::<f32>();
        let uniform = |uniform: usize| uniforms.wrapping_add(uniform).cast::<f32>();
        for step in &self.steps {
            let args = step.args.map(|place| match place {
                Place::Direct(operand) => View { first: direct[operand], step: 1 },
                Place::Tile(index) => View { first: tile(index), step: 1 },
                Place::Uniform(index) => View { first: uniform(index), step: 0 },
                Place::Const(index) => View { first: self.constants[index].0.as_ptr(), step: 0 },
            });
            let (out, n) = match step.out {
                Out::Tile(index) => (tile(index), n),
                Out::Uniform(index) => (uniform(index), LANES),
                Out::Result => (out, n),
            };
            // SAFETY: the caller's promise; the tiles have TILE elements and the uniforms a vector, and a step is
            // only given a tile that was written by a step before it.
            unsafe { tile::apply(step.op, args, out, n) };
        }
    }
}

fn allocate(nodes: &[Node], access: &[Access]) -> Result<Program, TooLong> {
    let last = nodes.len() - 1;
    // Where each node's result is read last; `None` if it is read by nothing that counts.
    let mut until: Vec<Option<usize>> = vec![None; nodes.len()];
    until[last] = Some(usize::MAX);
    for (reader, node) in nodes.iter().enumerate().rev() {
        if until[reader].is_some() {
            for arg in &node.args[..node.count] {
                if let Arg::Node(read) = *arg {
                    until[read] = until[read].max(Some(reader));
                }
            }
        }
    }
    let mut free: Vec<usize> = (0..TILES).rev().collect();
    let mut uniforms = 0..UNIFORMS;
    let mut slots = [0; OPERANDS];
    for (slot, access) in slots.iter_mut().zip(access) {
        *slot = match access {
            Access::Direct => 0,
            Access::Uniform => uniforms.next().ok_or(TooLong::Uniforms)?,
            Access::Gathered => free.pop().ok_or(TooLong::Tiles)?,
        };
    }
    let mut tiled = access.contains(&Access::Gathered);
    let mut outs: Vec<Out> = Vec::with_capacity(nodes.len());
    let mut steps = SmallVec::new();
    let mut constants: Vec<Splat> = vec![];
    for (index, node) in nodes.iter().enumerate() {
        if until[index].is_none() {
            outs.push(Out::Result);
            continue;
        }
        let mut uniform = index != last;
        let mut args = [Place::Const(0); 3];
        for (place, arg) in args.iter_mut().zip(&node.args[..node.count]) {
            *place = match *arg {
                Arg::Operand(operand) => match access[operand] {
                    Access::Direct => Place::Direct(operand),
                    Access::Uniform => Place::Uniform(slots[operand]),
                    Access::Gathered => Place::Tile(slots[operand]),
                },
                Arg::Node(node) => match outs[node] {
                    Out::Tile(tile) => Place::Tile(tile),
                    Out::Uniform(uniform) => Place::Uniform(uniform),
                    Out::Result => return Err(TooLong::Empty),
                },
                Arg::Const(value) => {
                    constants.push(Splat([value; LANES]));
                    Place::Const(constants.len() - 1)
                }
            };
            uniform &= matches!(place, Place::Uniform(_) | Place::Const(_));
        }
        for place in node.count..3 {
            args[place] = args[0];
        }
        // A tile may be written by the step that reads it last: each vector is read before it is written.
        for (read, out) in outs.iter().enumerate() {
            if let Out::Tile(tile) = *out
                && until[read] == Some(index)
                && !free.contains(&tile)
            {
                free.push(tile);
            }
        }
        let out = if index == last {
            Out::Result
        } else if uniform {
            Out::Uniform(uniforms.next().ok_or(TooLong::Uniforms)?)
        } else {
            tiled = true;
            Out::Tile(free.pop().ok_or(TooLong::Tiles)?)
        };
        outs.push(out);
        steps.push(Step { op: node.op, args, out });
    }
    let result = free.pop().ok_or(TooLong::Tiles)?;
    Ok(Program { steps, constants, slots, result, tiled })
}
