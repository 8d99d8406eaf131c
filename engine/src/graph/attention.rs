//! Attention (Vaswani et al. 2017, Attention Is All You Need) over labelled axes.

use super::chain::Chain;
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
