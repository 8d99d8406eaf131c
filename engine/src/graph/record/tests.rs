use super::*;
use crate::graph::{Builder, Value};
use crate::tensor::DType;
use smallvec::smallvec;
use std::path::PathBuf;
use temp_dir::TempDir;

fn constant(graph: &mut Graph, elements: usize, data: Data) -> ValueId {
    let value =
        Value { name: "w".into(), dtype: DType::F32, shape: smallvec![elements], constant: Some(data) };
    graph.add_value(value)
}

/// A file of 256 bytes, and another of the same length.
fn files() -> (TempDir, Vec<Arc<DataFile>>) {
    let dir = TempDir::new().unwrap();
    let path = |name: &str| -> PathBuf { dir.child(name) };
    for name in ["a", "b"] {
        std::fs::write(path(name), vec![name.as_bytes()[0]; 256]).unwrap();
    }
    let files = ["a", "b"].map(|name| Arc::new(DataFile::open(&path(name)).unwrap()));
    (dir, files.into())
}

fn there_and_back(graph: &Graph, files: &[Arc<DataFile>]) -> Graph {
    let record = GraphRecord::of(graph, files).unwrap();
    let bytes = postcard::to_extend(&record, vec![]).unwrap();
    postcard::from_bytes::<GraphRecord>(&bytes).unwrap().graph(files).unwrap()
}

#[test]
fn constants_come_back_with_the_identity_that_they_had() {
    let (_dir, files) = files();
    let range =
        |file: usize, offset| Data::File(FileRange { file: Arc::clone(&files[file]), offset, len: 64 });
    let mut graph = Builder::new().finish(&[]);
    let all = [
        Data::Bytes(vec![7; 64].into()),
        range(0, 8),
        range(1, 8),
        Data::Scaled { base: Box::new(range(1, 0)), factors: [1.5, 2.0].into(), inner: 2 },
        Data::Beside([Part { data: range(0, 0), row: 16 }, Part { data: range(1, 8), row: 16 }].into()),
        Data::Bytes(vec![9; LONGEST_KEPT_BYTES + 4].into()),
    ];
    for data in &all {
        constant(&mut graph, data.len() / 4, data.clone());
    }
    let again = there_and_back(&graph, &files);
    for (value, data) in again.values.iter().zip(&all) {
        let kept = value.constant.as_ref().unwrap();
        assert_eq!(kept.identity(), data.identity());
        assert_eq!(kept.identity().among(&files), data.identity().among(&files));
        assert_eq!(kept.len(), data.len());
    }
    // What is short or in a file can be read; what was long is known by its hash alone.
    for at in [3, 4] {
        assert_eq!(again.values[at].constant.as_ref().unwrap().load().unwrap(), all[at].load().unwrap());
    }
    let absent = again.values[5].constant.as_ref().unwrap();
    assert_eq!(absent.load().unwrap_err().kind(), std::io::ErrorKind::NotFound);
    assert_eq!(absent.held_bytes(), 0);
}

#[test]
fn constants_of_other_files_are_not_taken_down() {
    let (_dir, files) = files();
    let mut graph = Builder::new().finish(&[]);
    constant(&mut graph, 16, Data::File(FileRange { file: Arc::clone(&files[1]), offset: 0, len: 64 }));
    assert!(GraphRecord::of(&graph, &files[..1]).is_none());
    // Nor is a range that the file no longer has believed.
    let record = GraphRecord::of(&graph, &files).unwrap();
    assert!(record.graph(&[]).is_none());
}
