//! A product over labels, as the matrix product that it is, given how its operands lie.

use super::view::View;
use crate::graph::Einsum;
use smallvec::SmallVec;

/// A batch of matrix products: `c[m][n] = Σ a[m][k] · b[k][n]`. All strides count elements.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Product {
    /// Products one after the other: how many, and the distance between their operands a, b and c.
    pub batch: SmallVec<[(usize, usize, usize, usize); 4]>,
    /// Rows of a and c.
    pub m: usize,
    /// Columns of b and c.
    pub n: usize,
    /// Columns of a, rows of b.
    pub k: usize,
    /// Between rows, and between columns, of a.
    pub a: (usize, usize),
    /// Between rows, and between columns, of b.
    pub b: (usize, usize),
    /// Between rows, and between columns, of c.
    pub c: (usize, usize),
}

/// The labels of a product by what they do; those of size 1 are left out.
#[derive(Clone, Debug, Default)]
pub struct Labels {
    /// On all three.
    pub batch: Vec<char>,
    /// On a and c.
    pub rows: Vec<char>,
    /// On b and c.
    pub columns: Vec<char>,
    /// On a and b.
    pub summed: Vec<char>,
}

/// An operand: its labels, sizes and strides.
#[derive(Clone, Copy)]
pub struct Side<'a> {
    /// A label an axis.
    pub labels: &'a [char],
    /// The size of each axis.
    pub shape: &'a [usize],
    /// How it lies.
    pub view: &'a View,
}

impl Side<'_> {
    fn stride(&self, label: char) -> usize {
        let axis = self.labels.iter().position(|own| *own == label);
        axis.map_or(0, |axis| self.view.strides[axis])
    }

    fn size(&self, label: char) -> Option<usize> {
        Some(self.shape[self.labels.iter().position(|own| *own == label)?])
    }

    /// The labels from the outermost in memory to the innermost.
    fn sorted(&self, labels: &[char]) -> Vec<char> {
        let mut labels = labels.to_vec();
        labels.sort_by_key(|label| std::cmp::Reverse(self.stride(*label)));
        labels
    }

    /// The one stride of labels that step as one, in their order.
    fn as_one(&self, labels: &[char]) -> Option<usize> {
        for pair in labels.windows(2) {
            if self.stride(pair[0]) != self.stride(pair[1]) * self.size(pair[1]).unwrap_or(1) {
                return None;
            }
        }
        Some(labels.last().map_or(1, |label| self.stride(*label)))
    }
}

impl Labels {
    /// Sorts the labels of an einsum whose operands have these shapes.
    pub fn of(einsum: &Einsum, a: &[usize], b: &[usize]) -> Labels {
        let mut labels = Labels::default();
        let size = |label: &char| {
            let on = |own: &[char], shape: &[usize]| Some(shape[own.iter().position(|l| l == label)?]);
            on(&einsum.a, a).or_else(|| on(&einsum.b, b)).unwrap_or(1)
        };
        let mut seen: Vec<char> = vec![];
        for label in einsum.a.iter().chain(&einsum.b) {
            if size(label) == 1 || seen.contains(label) {
                continue;
            }
            seen.push(*label);
            let list = match (einsum.a.contains(label), einsum.b.contains(label), einsum.c.contains(label)) {
                (true, true, true) => &mut labels.batch,
                (true, false, true) => &mut labels.rows,
                (false, true, true) => &mut labels.columns,
                _ => &mut labels.summed,
            };
            list.push(*label);
        }
        labels
    }

    /// The order of the output's axes that suits a product best: columns innermost; rows as they lie in a, or, where
    /// there is a batch, as the output names them, since what follows often merges them so.
    pub fn output_order(&self, einsum: &Einsum, a: Side<'_>) -> SmallVec<[usize; 6]> {
        let axis = |label: &char| einsum.c.iter().position(|own| own == label);
        let mut order: SmallVec<[usize; 6]> = SmallVec::new();
        if self.batch.is_empty() {
            order.extend(a.sorted(&self.rows).iter().filter_map(axis));
        } else {
            order.extend((0..einsum.c.len()).filter(|axis| {
                let label = &einsum.c[*axis];
                self.batch.contains(label) || self.rows.contains(label)
            }));
        }
        order.extend((0..einsum.c.len()).filter(|axis| self.columns.contains(&einsum.c[*axis])));
        // Axes of size 1 go outermost.
        let ones: SmallVec<[usize; 6]> = (0..einsum.c.len()).filter(|axis| !order.contains(axis)).collect();
        ones.into_iter().chain(order).collect()
    }

    /// The order in which a copy of `a` suits the product: batch, rows, summed.
    pub fn order_of_a(&self, einsum: &Einsum) -> SmallVec<[usize; 6]> {
        order(&einsum.a, [&self.batch, &self.rows, &self.summed])
    }

    /// The order in which a copy of `b` suits the product: batch, summed, columns.
    pub fn order_of_b(&self, einsum: &Einsum) -> SmallVec<[usize; 6]> {
        order(&einsum.b, [&self.batch, &self.summed, &self.columns])
    }

    /// The order in which a constant `b` is packed: summed labels as they lie in `a`, columns as they lie in `c`.
    pub fn packed_order_of_b(&self, einsum: &Einsum, a: Side<'_>, c: Side<'_>) -> SmallVec<[usize; 6]> {
        order(&einsum.b, [&vec![], &a.sorted(&self.summed), &c.sorted(&self.columns)])
    }
}

fn order(own: &[char], lists: [&Vec<char>; 3]) -> SmallVec<[usize; 6]> {
    let axis = |label: &char| own.iter().position(|l| l == label);
    let long: SmallVec<[usize; 6]> = lists.iter().flat_map(|list| list.iter()).filter_map(axis).collect();
    let ones: SmallVec<[usize; 6]> = (0..own.len()).filter(|axis| !long.contains(axis)).collect();
    ones.into_iter().chain(long).collect()
}

/// Which operand lies so that no matrix product is possible; a copy of it in the suiting order makes it so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsuited {
    /// The first.
    A,
    /// The second.
    B,
}

impl Product {
    /// The matrix product of an einsum; `b` is `None` where it is constant and will be packed in the order of the
    /// summed labels as they lie in `a` and of the columns as they lie in `c`.
    ///
    /// # Errors
    /// An operand must be copied first.
    pub fn new(labels: &Labels, a: Side<'_>, b: Option<Side<'_>>, c: Side<'_>) -> Result<Product, Unsuited> {
        let size = |list: &[char], side: Side<'_>| {
            list.iter().filter_map(|label| side.size(*label)).product::<usize>()
        };
        let summed = a.sorted(&labels.summed);
        let columns = c.sorted(&labels.columns);
        let mut product = Product {
            m: 1,
            n: size(&columns, c),
            k: size(&summed, a),
            a: (0, a.as_one(&summed).ok_or(Unsuited::A)?),
            c: (0, c.as_one(&columns).unwrap_or(1)),
            ..Product::default()
        };
        product.b = match b {
            None => (product.n, 1),
            Some(b) => (b.as_one(&summed).ok_or(Unsuited::B)?, b.as_one(&columns).ok_or(Unsuited::B)?),
        };
        let b_stride = |label: char| b.map_or(0, |b| b.stride(label));
        // Rows that step as one in both a and c are one axis; the longest such is m, the others are a batch over
        // the same b.
        let mut rows: Vec<(usize, usize, usize)> = vec![];
        for label in c.sorted(&labels.rows) {
            let (count, sa, sc) = (c.size(label).unwrap_or(1), a.stride(label), c.stride(label));
            match rows.last_mut() {
                Some(last) if last.1 == sa * count && last.2 == sc * count => {
                    *last = (last.0 * count, sa, sc)
                }
                _ => rows.push((count, sa, sc)),
            }
        }
        if let Some(longest) = (0..rows.len()).max_by_key(|&at| (rows[at].0, at)) {
            let (count, sa, sc) = rows.remove(longest);
            (product.m, product.a.0, product.c.0) = (count, sa, sc);
        }
        for label in c.sorted(&labels.batch) {
            let count = c.size(label).unwrap_or(1);
            product.batch.push((count, a.stride(label), b_stride(label), c.stride(label)));
        }
        product.batch.extend(rows.into_iter().map(|(count, sa, sc)| (count, sa, 0, sc)));
        Ok(product)
    }
}
