//! A graph as it is kept between starts: everything but the elements of large constants, which are known by where they
//! lie in the model's files, or by their hash.

use super::data::{Data, DataFile, FileRange, Part};
use super::{Graph, Op, ValueId};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Constants in memory that are longer are not kept: they were packed for their kernels, and those are kept.
const LONGEST_KEPT_BYTES: usize = 64 << 10;

/// A graph that can be written down.
#[derive(Debug, Serialize, Deserialize)]
pub struct GraphRecord {
    graph: Graph,
    constants: Vec<(ValueId, Elements)>,
}

/// As [`Data`], with a file's place among a model's files.
#[derive(Debug, Serialize, Deserialize)]
enum Elements {
    Bytes(Vec<u8>),
    File { file: usize, offset: u64, len: usize },
    Scaled { base: Box<Elements>, factors: Vec<f32>, inner: usize },
    Widened(Box<Elements>),
    Beside(Vec<(Elements, usize)>),
    Absent { content: u128, len: usize },
    Filled { element: Vec<u8>, len: usize },
}

impl GraphRecord {
    /// Takes down a graph whose constants lie in memory or in these files; `None` where that cannot be done, which is
    /// so for a graph with host steps.
    pub fn of(graph: &Graph, files: &[Arc<DataFile>]) -> Option<GraphRecord> {
        if graph.nodes.iter().any(|node| matches!(node.op, Op::Host(_))) {
            return None;
        }
        let constants = graph.values.iter().enumerate().filter_map(|(at, value)| {
            let data = value.constant.as_ref()?;
            Some(Elements::of(data, files).map(|elements| (ValueId(at as u32), elements)))
        });
        Some(GraphRecord { constants: constants.collect::<Option<_>>()?, graph: graph.clone() })
    }

    /// The graph, given the files that it was taken down with; `None` where it does not hold together.
    pub fn graph(self, files: &[Arc<DataFile>]) -> Option<Graph> {
        let GraphRecord { mut graph, constants } = self;
        for (id, elements) in constants {
            let value = graph.values.get_mut(id.0 as usize)?;
            let data = elements.data(files)?;
            if data.len() != value.bytes() {
                return None;
            }
            value.constant = Some(data);
        }
        Some(graph)
    }
}

impl Elements {
    fn of(data: &Data, files: &[Arc<DataFile>]) -> Option<Elements> {
        Some(match data {
            Data::Bytes(bytes) if bytes.len() <= LONGEST_KEPT_BYTES => Elements::Bytes(bytes.to_vec()),
            Data::Bytes(bytes) => {
                Elements::Absent { content: xxhash_rust::xxh3::xxh3_128(bytes), len: bytes.len() }
            }
            Data::File(range) => {
                let file = files.iter().position(|file| file.stamp == range.file.stamp)?;
                Elements::File { file, offset: range.offset, len: range.len }
            }
            Data::Scaled { base, factors, inner } => Elements::Scaled {
                base: Box::new(Elements::of(base, files)?),
                factors: factors.to_vec(),
                inner: *inner,
            },
            Data::Widened(base) => Elements::Widened(Box::new(Elements::of(base, files)?)),
            Data::Beside(parts) => {
                let part = |part: &Part| Some((Elements::of(&part.data, files)?, part.row));
                Elements::Beside(parts.iter().map(part).collect::<Option<_>>()?)
            }
            Data::Filled { element, len } => Elements::Filled { element: element.to_vec(), len: *len },
            Data::Absent { content, len } => Elements::Absent { content: *content, len: *len },
        })
    }

    fn data(self, files: &[Arc<DataFile>]) -> Option<Data> {
        Some(match self {
            Elements::Bytes(bytes) => Data::Bytes(bytes.into()),
            Elements::File { file, offset, len } => {
                let file = Arc::clone(files.get(file)?);
                if offset.checked_add(len as u64)? > file.len() {
                    return None;
                }
                Data::File(FileRange { file, offset, len })
            }
            Elements::Scaled { base, factors, inner } => {
                Data::Scaled { base: Box::new(base.data(files)?), factors: factors.into(), inner }
            }
            Elements::Widened(base) => Data::Widened(Box::new(base.data(files)?)),
            Elements::Beside(parts) => {
                let part = |(elements, row): (Elements, usize)| {
                    let data = elements.data(files)?;
                    Some(Part { data, row }).filter(|part| part.data.len().is_multiple_of(part.row.max(1)))
                };
                Data::Beside(parts.into_iter().map(part).collect::<Option<Vec<_>>>()?.into())
            }
            Elements::Filled { element, len } if !element.is_empty() => {
                Data::Filled { element: element.into(), len }
            }
            Elements::Filled { .. } => return None,
            Elements::Absent { content, len } => Data::Absent { content, len },
        })
    }
}

#[cfg(test)]
mod tests;
