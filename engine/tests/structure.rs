//! What ARCHITECTURE.md says of the structure, held against the source.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
}

/// Every Rust file below a folder of the project.
fn sources(folder: &str) -> Vec<PathBuf> {
    let mut files = vec![];
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for path in entries.flatten().map(|entry| entry.path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|end| end == "rs") => files.push(path),
                false => {}
            }
        }
    }
    assert!(!files.is_empty(), "{folder} has no source");
    files
}

/// The files below `folder`, outside `except`, with a line of code that holds `word`.
fn naming(word: &str, folder: &str, except: &str) -> Vec<PathBuf> {
    let except = root().join(except);
    let names = |file: &PathBuf| {
        read(file).lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word))
    };
    sources(folder).into_iter().filter(|file| !file.starts_with(&except)).filter(names).collect()
}

#[test]
fn every_path_that_the_documents_name_exists() {
    for document in
        ["README.md", "ARCHITECTURE.md", "SPECIFICATION.md", "loadtest/README.md", "docs/security.md"]
    {
        let text = read(&root().join(document));
        let quoted = text.split('`').skip(1).step_by(2);
        let linked = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let is_path = |text: &&str| {
            let known = "engine server models config loadtest tests docker service cluster docs";
            known.split(' ').any(|folder| text.starts_with(&format!("{folder}/")))
                && !text.contains(char::is_whitespace)
        };
        for path in quoted.chain(linked).filter(is_path) {
            assert!(root().join(path).exists(), "{document} names {path}, which does not exist");
        }
    }
}

#[test]
fn tract_is_named_by_the_importer_alone() {
    for word in ["tract_onnx", "tract_linalg", "tract_core"] {
        assert_eq!(naming(word, "engine/src", "engine/src/import"), [] as [PathBuf; 0]);
        assert_eq!(naming(word, "server/src", "engine"), [] as [PathBuf; 0]);
    }
}

#[test]
fn cuda_is_named_by_its_device_alone() {
    for word in ["cudarc", "libloading"] {
        assert_eq!(naming(word, "engine/src", "engine/src/device/cuda"), [] as [PathBuf; 0]);
        assert_eq!(naming(word, "server/src", "engine"), [] as [PathBuf; 0]);
    }
}

#[test]
fn the_engine_knows_no_runtime_no_network_and_no_json() {
    let manifest = read(&root().join("engine/Cargo.toml"));
    let dependencies = manifest.split("[dependencies]").nth(1).unwrap();
    for name in ["tokio", "axum", "hyper", "http", "serde_json", "metrics"] {
        assert!(!dependencies.lines().any(|line| line.starts_with(name)), "engine depends on {name}");
    }
    assert_eq!(naming("std::env", "engine/src", "engine/tests"), [] as [PathBuf; 0]);
    // The driver instantiates graphs, which is no clock.
    assert_eq!(naming("time::Instant", "engine/src", "engine/tests"), [] as [PathBuf; 0]);
}

#[test]
fn a_stage_of_the_engine_imports_only_earlier_stages() {
    // In the order of lib.rs; `error` speaks of all stages and is spoken of by all.
    let stages = [
        "tensor", "graph", "cache", "import", "fuse", "plan", "slab", "lane", "device", "arena", "program",
        "model",
    ];
    for (at, stage) in stages.iter().enumerate() {
        let (folder, file) =
            (root().join("engine/src").join(stage), root().join(format!("engine/src/{stage}.rs")));
        for source in
            sources("engine/src").into_iter().filter(|path| path.starts_with(&folder) || *path == file)
        {
            for later in &stages[at + 1..] {
                let import = format!("crate::{later}");
                assert!(
                    !read(&source).contains(&import),
                    "{} imports the later stage {later}",
                    source.display()
                );
            }
        }
    }
}

#[test]
fn wire_types_are_named_by_the_http_side_alone() {
    for word in ["wire::", "InferRequest", "InferResponse", "ModelMetadata", "ModelConfig", "ModelStats"] {
        assert_eq!(naming(word, "server/src", "server/src/http"), [] as [PathBuf; 0], "{word}");
    }
}

#[test]
fn unsafe_code_lies_below_device_and_in_the_allocators_settings_alone() {
    assert_eq!(naming("unsafe ", "engine/src", "engine/src/device"), [] as [PathBuf; 0]);
    assert_eq!(naming("unsafe ", "server/src", "server/src/allocator.rs"), [] as [PathBuf; 0]);
}

#[test]
fn the_stages_before_the_device_name_none() {
    for stage in ["graph", "fuse", "plan", "slab", "lane"] {
        let folder = format!("engine/src/{stage}");
        for word in ["device::", "Cpu", "Cuda", "cudarc", "rten_simd"] {
            assert_eq!(naming(word, &folder, "docs"), [] as [PathBuf; 0], "{word} in {stage}");
        }
    }
}
