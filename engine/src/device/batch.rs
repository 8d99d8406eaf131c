//! Requests that one run answers: their inputs laid behind one another in a lane, its outputs divided among them.

use crate::error::Error;
use crate::tensor::{DType, Shape, Tensor};
use smallvec::SmallVec;

/// The requests of one run, each with its inputs in the signature's order.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    requests: &'a [&'a [Tensor]],
    /// Whether each has some of the rows; else there is one, with all of them.
    shared: bool,
}

impl<'a> Batch<'a> {
    /// One request, of just the shapes that are run.
    pub(crate) fn one(inputs: &'a &'a [Tensor]) -> Batch<'a> {
        Batch { requests: std::slice::from_ref(inputs), shared: false }
    }

    /// Requests whose first axes are rows of the run, as many as it has room for or fewer.
    pub(crate) fn shared(requests: &'a [&'a [Tensor]]) -> Batch<'a> {
        Batch { requests, shared: true }
    }

    /// The bytes that each request brings for an input, in order.
    fn brought(self, input: usize) -> impl Iterator<Item = &'a [u8]> {
        self.requests.iter().filter_map(move |inputs| Some(inputs.get(input)?.as_bytes()?.as_ref()))
    }

    /// What rows hold that nobody brings: the last row that somebody does, again and again. Zeros might be values that the
    /// model does not take. Empty where nothing is brought.
    fn filling(self, input: usize) -> &'a [u8] {
        let last = self.requests.last().and_then(|inputs| inputs.get(input));
        let rows = last.and_then(|tensor| tensor.shape().first()).copied().unwrap_or(0);
        let bytes = last.and_then(Tensor::as_bytes).map_or(&[][..], |bytes| bytes);
        let row = bytes.len().checked_div(rows).unwrap_or(0);
        bytes.get(bytes.len() - row..).unwrap_or_default()
    }

    /// The pieces that fill an input's place of so many bytes, in order.
    pub(crate) fn pieces(self, input: usize, bytes: usize) -> impl Iterator<Item = &'a [u8]> {
        let brought: usize = self.brought(input).map(<[u8]>::len).sum();
        let filling = self.filling(input);
        let times = bytes.saturating_sub(brought).checked_div(filling.len()).unwrap_or(0);
        self.brought(input).chain(std::iter::repeat_n(filling, times))
    }

    /// Lays what the requests bring for an input into its place.
    pub(crate) fn gather(self, input: usize, place: &mut [u8]) {
        let pieces = self.pieces(input, place.len());
        let mut rest = place;
        for piece in pieces {
            let (mine, others) = rest.split_at_mut(piece.len());
            mine.copy_from_slice(piece);
            rest = others;
        }
    }

    /// Gives each request its rows of an output that lies in `place`.
    ///
    /// # Errors
    /// The bytes are not what shape and dtype say, which is a fault of ours.
    pub(crate) fn scatter(
        self,
        dtype: DType,
        shape: &Shape,
        place: &[u8],
        outputs: &mut [Vec<Tensor>],
    ) -> Result<(), Error> {
        let mut division = self.division(shape, place.len());
        division.put(place);
        division.finish(dtype, outputs)
    }

    /// The same for an output of so many bytes that comes in parts.
    pub(crate) fn division(self, shape: &Shape, bytes: usize) -> Division {
        let row_bytes = bytes / shape.first().copied().unwrap_or(1).max(1);
        let request = |inputs: &&[Tensor]| {
            let (mut shape, mut bytes) = (shape.clone(), bytes);
            if self.shared {
                let rows = inputs.first().and_then(|tensor| tensor.shape().first()).copied().unwrap_or(0);
                bytes = rows * row_bytes;
                if let Some(first) = shape.first_mut() {
                    *first = rows;
                }
            }
            Part { shape, got: Vec::with_capacity(bytes), wanted: bytes }
        };
        Division { parts: self.requests.iter().map(request).collect(), at: 0 }
    }
}

/// An output on its way to those whose rows it has.
pub(crate) struct Division {
    /// One for each request.
    parts: SmallVec<[Part; 1]>,
    /// Who gets the next byte.
    at: usize,
}

/// A request's part of an output.
struct Part {
    shape: Shape,
    got: Vec<u8>,
    /// Bytes that it is to get.
    wanted: usize,
}

impl Division {
    /// Gives out the next bytes. Those behind the last request's are rows that nobody asked for.
    pub(crate) fn put(&mut self, mut part: &[u8]) {
        while let Some(Part { got, wanted, .. }) = self.parts.get_mut(self.at) {
            let (mine, others) = part.split_at(part.len().min(*wanted - got.len()));
            got.extend_from_slice(mine);
            if others.is_empty() {
                return;
            }
            (part, self.at) = (others, self.at + 1);
        }
    }

    /// Adds to each request's outputs what it has got.
    ///
    /// # Errors
    /// The bytes are not what shape and dtype say, which is a fault of ours.
    pub(crate) fn finish(self, dtype: DType, outputs: &mut [Vec<Tensor>]) -> Result<(), Error> {
        for (Part { shape, got, .. }, outputs) in self.parts.into_iter().zip(outputs) {
            outputs.push(Tensor::plain(dtype, shape, got.into())?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(first: u8, rows: usize) -> Tensor {
        let values: Vec<u8> = (0..rows as u8 * 2).map(|at| first + at).collect();
        Tensor::from_slice(DType::U8, &[rows, 2], &values).unwrap()
    }

    #[test]
    fn rows_go_in_behind_one_another_and_come_back_to_whom_they_belong() {
        let (one, two) = ([rows(10, 1)], [rows(20, 2)]);
        let requests: [&[Tensor]; 2] = [&one, &two];
        let batch = Batch::shared(&requests);
        let mut place = [9; 8];
        batch.gather(0, &mut place);
        assert_eq!(place, [10, 11, 20, 21, 22, 23, 22, 23], "what nobody brings is the last row again");
        let mut outputs = vec![vec![]; 2];
        batch.scatter(DType::U8, &Shape::from_slice(&[4, 2]), &place, &mut outputs).unwrap();
        assert_eq!(outputs, [vec![rows(10, 1)], vec![rows(20, 2)]]);
        for part in 1..9 {
            let (mut division, mut parts) = (batch.division(&Shape::from_slice(&[4, 2]), 8), vec![vec![]; 2]);
            place.chunks(part).for_each(|part| division.put(part));
            division.finish(DType::U8, &mut parts).unwrap();
            assert_eq!(parts, outputs, "in parts of {part} bytes");
        }
    }
}
