//! Attention (Vaswani et al. 2017, Attention Is All You Need) over labelled axes.

use super::chain::{Binary, Chain, Instr, Src};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// The labels of a value's axes.
type Labels = SmallVec<[char; 6]>;

/// softmax(chain(Σ q · k)) · v: scores of queries and keys, and values weighted by them. Nobody sees the scores.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Attention {
    /// The labels of the queries' axes.
    pub q: Labels,
    /// The labels of the keys' axes; those on the queries and not on the scores are summed over.
    pub k: Labels,
    /// The labels of the values' axes.
    pub v: Labels,
    /// The labels of the scores' axes; one that no input has is of size 1.
    pub scores: Labels,
    /// The labels of the output's axes.
    pub y: Labels,
    /// The label of keys and values that the softmax goes over, and that the output lacks.
    pub over: char,
    /// Whether a query whose softmax is not a number, since all of its scores are −∞, gets zeros.
    pub zeroes: bool,
    /// What is done to each score first. It is the first operand, the others broadcast against the scores.
    pub chain: Option<Chain>,
}

/// What the labels of an attention do; those of size 1 are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// On queries and keys, summed over.
    pub depth: Option<char>,
    /// On values and output.
    pub column: Option<char>,
    /// On queries and output alone: all of them meet the same keys and values.
    pub rows: Vec<char>,
    /// The others on scores and output.
    pub batch: Vec<char>,
}

/// What is done to scores, where that is a scale and something added that is the same whatever the score is.
#[derive(Clone, Debug, PartialEq)]
pub struct Additive {
    /// What each score is multiplied by.
    pub scale: f32,
    /// What is added, as a chain over the operands after the score, of which there is then at least one.
    pub mask: Option<Mask>,
}

/// What is added to scores: a chain, or where it has no operation its first operand as it is.
pub type Mask = Chain;

/// The size of each label, none twice.
pub(crate) type Sizes = Vec<(char, usize)>;

/// The sizes of the labels of values, which agree.
pub(crate) fn sizes(sides: &[(&[char], &[usize])]) -> Result<Sizes, String> {
    let mut sizes: Sizes = vec![];
    for (labels, shape) in sides {
        if labels.len() != shape.len() {
            return Err(format!("labels {labels:?} for a shape {shape:?}"));
        }
        for (&label, &size) in labels.iter().zip(*shape) {
            match sizes.iter().find(|(known, _)| *known == label) {
                Some((_, known)) if *known != size => {
                    return Err(format!("label {label} is both {known} and {size}"));
                }
                Some(_) => {}
                None => sizes.push((label, size)),
            }
        }
    }
    Ok(sizes)
}

impl Attention {
    /// The chain as a scale and a mask; `None` where it is more than that.
    pub fn additive(&self) -> Option<Additive> {
        self.chain.as_ref().map_or(Some(Additive { scale: 1.0, mask: None }), additive)
    }

    /// The size of each label where queries, keys, values and output have these shapes.
    pub(crate) fn sizes(&self, shapes: [&[usize]; 4]) -> Result<Sizes, String> {
        let labels: [&[char]; 4] = [&self.q, &self.k, &self.v, &self.y];
        let sides: Vec<(&[char], &[usize])> = labels.into_iter().zip(shapes).collect();
        sizes(&sides)
    }

    /// The shape of the scores.
    pub(crate) fn scores_shape(&self, sizes: &Sizes) -> Vec<usize> {
        let size = |label: &char| sizes.iter().find(|(known, _)| known == label).map_or(1, |(_, size)| *size);
        self.scores.iter().map(size).collect()
    }

    /// What each label does.
    pub(crate) fn roles(&self, sizes: &Sizes) -> Result<Roles, String> {
        let on = |label: char| {
            [&self.q, &self.k, &self.v, &self.scores, &self.y].map(|labels| labels.contains(&label))
        };
        if on(self.over) != [false, true, true, true, false] {
            return Err("the softmax is not over keys that all queries share".into());
        }
        let (mut roles, mut depth, mut column) = (Roles::default(), vec![], vec![]);
        for &(label, size) in sizes {
            if size == 0 {
                return Err("there is nothing to attend to".into());
            }
            if size == 1 || label == self.over {
                continue;
            }
            match on(label) {
                [true, true, false, false, false] => depth.push(label),
                [false, false, true, false, true] => column.push(label),
                [true, false, false, true, true] => roles.rows.push(label),
                [.., true, true] => roles.batch.push(label),
                _ => return Err(format!("axis {label} is summed over apart")),
            }
        }
        if depth.len() > 1 || column.len() > 1 {
            return Err("a key or a value has several axes".into());
        }
        (roles.depth, roles.column) = (depth.pop(), column.pop());
        Ok(roles)
    }
}

/// A chain as scale · score + mask; `None` where it is more than that.
fn additive(chain: &Chain) -> Option<Additive> {
    let score = Src::Operand(0);
    // What of the chain depends on the score, and by which factor it is multiplied there.
    let mut scales: Vec<Option<f32>> = vec![];
    let mut mask = None;
    let last = chain.instrs.len().checked_sub(1)?;
    for (at, instr) in chain.instrs.iter().enumerate() {
        let scale = |src: Src| match src {
            Src::Reg(at) => scales[usize::from(at)],
            src => (src == score).then_some(1.0),
        };
        let scaled = match *instr {
            _ if instr.sources().all(|src| scale(src).is_none()) => None,
            Instr::Binary(Binary::Mul, x, Src::Const(number))
            | Instr::Binary(Binary::Mul, Src::Const(number), x) => Some(scale(x)? * number),
            Instr::Binary(Binary::Div, x, Src::Const(number)) => Some(scale(x)? / number),
            Instr::Binary(Binary::Add, x, y) if at == last => {
                let (x, y) = if scale(x).is_some() { (x, y) } else { (y, x) };
                if scale(y).is_some() {
                    return None;
                }
                mask = Some(y);
                Some(scale(x)?)
            }
            _ => return None,
        };
        scales.push(scaled);
    }
    let scale = scales[last]?;
    // The mask is computed from the other operands, which come one place earlier there.
    let mask = match mask {
        None => None,
        Some(Src::Const(_)) => return None,
        Some(Src::Operand(1)) => Some(Chain::default()),
        Some(Src::Operand(_)) => return None,
        Some(Src::Reg(made)) => {
            let instrs = chain.instrs[..=usize::from(made)].iter().enumerate();
            let own = |at: usize| scales[at].is_none();
            let place = |at: u16| (0..usize::from(at)).filter(|at| own(*at)).count() as u16;
            let renumbered = instrs.filter(|(at, _)| own(*at)).map(|(_, instr)| {
                instr.map(|src| match src {
                    Src::Operand(at) => Src::Operand(at - 1),
                    Src::Reg(at) => Src::Reg(place(at)),
                    number => number,
                })
            });
            Some(Chain { instrs: renumbered.collect() })
        }
    };
    (scale.is_finite() && scale != 0.0).then_some(Additive { scale, mask })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Unary;

    fn of(instrs: &[Instr]) -> Option<(f32, Option<Vec<Instr>>)> {
        let found = additive(&Chain { instrs: instrs.to_vec() });
        found.map(|Additive { scale, mask }| (scale, mask.map(|mask| mask.instrs)))
    }

    #[test]
    fn a_scale_and_a_mask_are_told_apart() {
        use Src::{Const, Operand, Reg};
        let half = Instr::Binary(Binary::Mul, Const(0.5), Operand(0));
        assert_eq!(of(&[half]), Some((0.5, None)));
        let add = |x, y| Instr::Binary(Binary::Add, x, y);
        assert_eq!(of(&[add(Operand(1), Operand(0))]), Some((1.0, Some(vec![]))));
        assert_eq!(of(&[half, add(Reg(0), Operand(1))]), Some((0.5, Some(vec![]))));
        let inverse = |x| Instr::Binary(Binary::Sub, Const(1.0), x);
        let large = |x| Instr::Binary(Binary::Mul, x, Const(-1e4));
        let chain = [inverse(Operand(1)), half, large(Reg(0)), add(Reg(1), Reg(2))];
        assert_eq!(of(&chain), Some((0.5, Some(vec![inverse(Operand(0)), large(Reg(0))]))));
        assert_eq!(of(&[Instr::Select(Operand(1), Operand(0), Const(-1e9))]), None);
        assert_eq!(of(&[Instr::Unary(Unary::Tanh, Operand(0))]), None);
        assert_eq!(of(&[add(Operand(0), Operand(0))]), None);
        assert_eq!(of(&[add(Operand(0), Operand(1)), Instr::Binary(Binary::Mul, Reg(0), Const(0.5))]), None);
    }
}
