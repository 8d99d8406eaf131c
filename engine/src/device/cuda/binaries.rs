//! The kernels' binaries: found in a folder where they were built ahead, else compiled and kept.
//!
//! A file is one source for one architecture, compressed. Its name carries the hash of all that went into it, so that
//! no binary of another source is ever taken for it.

use super::kernels::{Source, sources};
use super::nvrtc::{self, Compiled, NotCompiled};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// Where binaries are looked for, and where those are kept that had to be compiled.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binaries {
    /// A folder of binaries that were built ahead.
    pub ahead: Option<PathBuf>,
    /// A folder to keep what is compiled in.
    pub keep: Option<PathBuf>,
}

/// What was built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Built {
    /// The file.
    pub file: PathBuf,
    /// Its bytes, compressed.
    pub bytes: u64,
    /// Bytes a thread that the kernels' registers are spilled to, over all of them.
    pub spilled_bytes: u64,
}

/// Why binaries were not built.
#[derive(Debug, thiserror::Error)]
pub enum NotBuilt {
    /// A source was not compiled.
    #[error(transparent)]
    NotCompiled(#[from] NotCompiled),
    /// A file could not be written.
    #[error("{}: {source}", path.display())]
    Write {
        /// Which one.
        path: PathBuf,
        /// The system's words.
        source: io::Error,
    },
}

/// Compiles every source for an architecture, such as 90 for sm_90, into a folder. Needs NVRTC and no GPU.
///
/// # Errors
/// There is no compiler, a source is refused, or a file cannot be written.
pub fn build(architecture: u32, folder: &Path) -> Result<Vec<Built>, NotBuilt> {
    let build = |source: &Source| {
        let Compiled { binary, spilled_bytes } = nvrtc::compile(source, architecture)?;
        let path = folder.join(file_name(source, architecture));
        let bytes = write(&path, &binary).map_err(|source| NotBuilt::Write { path: path.clone(), source })?;
        Ok(Built { file: path, bytes, spilled_bytes })
    };
    sources(architecture).map(build).collect()
}

impl Binaries {
    /// The binary of a source for a GPU of that compute capability.
    ///
    /// # Errors
    /// There is none, and it cannot be compiled here; what to do is said.
    pub(super) fn binary(&self, source: &Source, capability: u32) -> Result<Vec<u8>, String> {
        // What was compiled for an earlier GPU of the same generation runs as well, where it uses nothing of that alone.
        let first = if source.only_90 { capability } else { capability / 10 * 10 };
        let fitting = (first..=capability).rev();
        for architecture in fitting {
            let folders = self.ahead.iter().chain(&self.keep);
            let mut files = folders.map(|folder| folder.join(file_name(source, architecture)));
            if let Some(binary) = files.find_map(|file| read(&file).ok()) {
                return Ok(binary);
            }
        }
        let compiled = nvrtc::compile(source, capability).map_err(|error| {
            format!(
                "there is no binary of kernels `{}` for sm_{capability} and none can be made: {error}; build them \
                 with `plimsoll kernels build --arch sm_{capability} --out DIR` and set device.kernels to DIR, or \
                 install NVRTC",
                source.name
            )
        })?;
        let binary = compiled.binary;
        if let Some(folder) = &self.keep {
            // Without it the next start compiles again, and nothing else is amiss.
            let _ = write(&folder.join(file_name(source, capability)), &binary);
        }
        Ok(binary)
    }
}

fn file_name(source: &Source, architecture: u32) -> String {
    let mut all = source.text();
    all.extend(nvrtc::OPTIONS);
    let target = nvrtc::target(source, architecture);
    format!("{}-{:016x}.{target}.cubin.gz", source.name, xxh3_64(all.as_bytes()))
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let mut binary = vec![];
    GzDecoder::new(File::open(file)?).read_to_end(&mut binary)?;
    Ok(binary)
}

/// Writes a binary, compressed; returns the bytes that it takes.
fn write(file: &Path, binary: &[u8]) -> io::Result<u64> {
    let mut compressed = GzEncoder::new(vec![], Compression::best());
    compressed.write_all(binary)?;
    let compressed = compressed.finish()?;
    write_whole(file, &compressed)?;
    Ok(compressed.len() as u64)
}

/// Writes a file under another name first, so that nobody reads half of it.
pub(super) fn write_whole(file: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let unfinished = file.with_extension(format!("{}.unfinished", std::process::id()));
    fs::write(&unfinished, bytes)?;
    fs::rename(&unfinished, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_found_by_its_source_and_for_later_gpus_of_its_generation() {
        let folder = temp_dir::TempDir::new().unwrap();
        let binaries = Binaries { ahead: Some(folder.path().into()), keep: None };
        let (first, second) = (sources(80).next().unwrap(), sources(80).nth(1).unwrap());
        write(&folder.path().join(file_name(first, 80)), b"binary").unwrap();
        assert_eq!(binaries.binary(first, 86).unwrap(), b"binary");
        // One of another generation is none, so that the source is compiled, where there is a compiler.
        assert_ne!(binaries.binary(first, 90).ok().as_deref(), Some(&b"binary"[..]));
        assert_ne!(file_name(second, 80), file_name(first, 80));
    }
}
