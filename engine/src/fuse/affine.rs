//! Runs of multiplications and additions of constants as one: scale · x + shift, computed here in f64.

use super::edit::Edit;
use super::evaluate::broadcast_index;
use super::simplify::rounds_on_purpose;
use crate::graph::{Binary, Instr, Op, Src, ValueId};
use crate::tensor::volume;

/// A constant that broadcasts.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Small {
    pub(super) shape: Vec<usize>,
    pub(super) elements: Vec<f64>,
}

/// A run of operations that computes scale · x + shift.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) scale: Option<Small>,
    pub(super) shift: Option<Small>,
    /// The place of its last operation.
    pub(super) end: usize,
    /// How many operations it has.
    pub(super) length: usize,
}

impl Small {
    fn number(rank: usize, number: f32) -> Small {
        Small { shape: vec![1; rank], elements: vec![f64::from(number)] }
    }

    fn map(&self, change: impl Fn(f64) -> f64) -> Small {
        Small { shape: self.shape.clone(), elements: self.elements.iter().map(|x| change(*x)).collect() }
    }

    fn with(&self, other: &Small, mut combine: impl FnMut(f64, f64) -> f64) -> Small {
        let shape: Vec<usize> = self
            .shape
            .iter()
            .zip(&other.shape)
            .map(|(one, other)| if *one == 1 { *other } else { *one })
            .collect();
        let at = |small: &Small, at: usize| small.elements[broadcast_index(at, &shape, &small.shape)];
        let elements = (0..volume(&shape).unwrap_or(0)).map(|i| combine(at(self, i), at(other, i))).collect();
        Small { shape, elements }
    }

    /// Whether another broadcasts to this one's shape.
    fn covers(&self, other: &Small) -> bool {
        self.shape.iter().zip(&other.shape).all(|(own, other)| own == other || *other == 1)
    }

    fn rounds_on_purpose_with(&self, other: &Small) -> bool {
        let mut rounds = false;
        self.with(other, |a, b| {
            rounds |= rounds_on_purpose(a as f32, b as f32);
            0.0
        });
        rounds
    }

    pub(super) fn floats(&self) -> Vec<f32> {
        self.elements.iter().map(|x| *x as f32).collect()
    }
}

/// The run that begins with the operation at `at` on `x`: as far as nothing else reads what is in between, and
/// constants have a shape that is `allowed`. Without multiplications where not `scales`.
pub(super) fn run_from(
    edit: &Edit<'_>,
    at: usize,
    x: ValueId,
    scales: bool,
    allowed: impl Fn(&[usize]) -> bool,
) -> Option<Run> {
    let mut run = Run { scale: None, shift: None, end: at, length: 0 };
    let (mut at, mut x) = (at, x);
    while let Some((step, constant)) = step(edit, at, x).filter(|(_, constant)| allowed(&constant.shape)) {
        if !scales && !matches!(step, Step::Add) || !run.take(step, constant) {
            break;
        }
        (run.end, run.length) = (at, run.length + 1);
        let Some(y) = edit.output(at) else { break };
        let Some(next) = edit.only_reader(y) else { break };
        (at, x) = (next, y);
    }
    (run.length > 0).then_some(run)
}

enum Step {
    Multiply,
    Add,
    /// The constant less what came in.
    SubtractFrom,
}

impl Run {
    /// Takes a step in; `false`, and nothing changed, where the order of additions matters or a constant would
    /// become larger than those that it is made of.
    fn take(&mut self, step: Step, constant: Small) -> bool {
        let added = match step {
            Step::Multiply => None,
            Step::Add => self.shift.clone(),
            Step::SubtractFrom => self.shift.as_ref().map(|shift| shift.map(|x| -x)),
        };
        let larger = |part: &&Small| !part.covers(&constant) && !constant.covers(part);
        if [&self.scale, &self.shift].into_iter().flatten().any(|part| larger(&part))
            || added.is_some_and(|shift| shift.rounds_on_purpose_with(&constant))
        {
            return false;
        }
        match step {
            Step::Multiply => self.multiply(constant),
            Step::Add => self.add(constant),
            Step::SubtractFrom => {
                self.multiply(Small::number(constant.shape.len(), -1.0));
                self.add(constant);
            }
        }
        true
    }

    fn multiply(&mut self, constant: Small) {
        self.shift = self.shift.take().map(|shift| shift.with(&constant, |a, b| a * b));
        self.scale = Some(match self.scale.take() {
            Some(scale) => scale.with(&constant, |a, b| a * b),
            None => constant,
        });
    }

    fn add(&mut self, constant: Small) {
        self.shift = Some(match self.shift.take() {
            Some(shift) => shift.with(&constant, |a, b| a + b),
            None => constant,
        });
    }
}

/// What the operation at `at` does to `x`, and with which constant.
fn step(edit: &Edit<'_>, at: usize, x: ValueId) -> Option<(Step, Small)> {
    let node = edit.node(at)?;
    let y = edit.output(at)?;
    let Op::Pointwise(chain) = &node.op else { return None };
    let [Instr::Binary(op, left, right)] = chain.instrs[..] else { return None };
    let is_x = |src: Src| matches!(src, Src::Operand(at) if node.inputs[at as usize] == x);
    if edit.shape(x) != edit.shape(y) || is_x(left) == is_x(right) {
        return None;
    }
    let constant = small(edit, &node.inputs, if is_x(left) { right } else { left }, edit.shape(x).len())?;
    match (op, is_x(left)) {
        (Binary::Mul, _) => Some((Step::Multiply, constant)),
        (Binary::Div, true) if constant.elements.iter().all(|x| (1.0 / x).is_finite()) => {
            Some((Step::Multiply, constant.map(|x| 1.0 / x)))
        }
        (Binary::Add, _) => Some((Step::Add, constant)),
        (Binary::Sub, true) => Some((Step::Add, constant.map(|x| -x))),
        (Binary::Sub, false) => Some((Step::SubtractFrom, constant)),
        _ => None,
    }
}

fn small(edit: &Edit<'_>, inputs: &[ValueId], src: Src, rank: usize) -> Option<Small> {
    const LARGEST_ELEMENTS: usize = 1 << 14;
    match src {
        Src::Const(number) => Some(Small::number(rank, number)),
        Src::Operand(at) => {
            let value = edit.value(inputs[at as usize]);
            if value.elements() > LARGEST_ELEMENTS {
                return None;
            }
            let elements = value.small_floats(LARGEST_ELEMENTS)?.into_iter().map(f64::from).collect();
            Some(Small { shape: value.shape.to_vec(), elements })
        }
        Src::Reg(_) => None,
    }
}
