//! Compiling kernels, where NVIDIA's run-time compiler can be loaded. It needs no GPU.

use super::kernels::Source;
use super::probe;
use cudarc::nvrtc::sys::{self, nvrtcProgram, nvrtcResult};
use std::ffi::{CString, c_char};
use std::ptr;

/// Why a kernel was not compiled.
#[derive(Debug, thiserror::Error)]
pub enum NotCompiled {
    /// There is no compiler.
    #[error("NVRTC (libnvrtc.so) cannot be loaded")]
    NoCompiler,
    /// The compiler refuses the source or the architecture.
    #[error("kernels `{source_name}` for sm_{architecture}: {log}")]
    Refused {
        /// Of which source.
        source_name: &'static str,
        /// For which architecture.
        architecture: u32,
        /// The compiler's words.
        log: String,
    },
}

/// What every source is compiled with.
pub(super) const OPTIONS: [&str; 2] = ["--std=c++17", "-default-device"];

/// Has the compiler say what every kernel takes; nothing of what it makes depends on it.
const REPORT: &str = "--ptxas-options=-v";

/// The compiler's word for an architecture.
pub(super) fn target(source: &Source, architecture: u32) -> String {
    format!("sm_{architecture}{}", if source.only_90 { "a" } else { "" })
}

/// A program of the compiler, until it is dropped.
struct Program(nvrtcProgram);

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: made by the compiler and destroyed once.
        unsafe { sys::nvrtcDestroyProgram(&mut self.0) };
    }
}

/// What the compiler has made.
pub(super) struct Compiled {
    /// For the driver.
    pub(super) binary: Vec<u8>,
    /// Bytes a thread that registers are spilled to, over all kernels.
    pub(super) spilled_bytes: u64,
}

/// The binary of a source for an architecture, such as 90 for sm_90.
///
/// # Errors
/// There is no compiler, or it refuses.
pub(super) fn compile(source: &Source, architecture: u32) -> Result<Compiled, NotCompiled> {
    if !probe::compiler() {
        return Err(NotCompiled::NoCompiler);
    }
    let refused = |log: String| NotCompiled::Refused { source_name: source.name, architecture, log };
    let word = |result: nvrtcResult| format!("{result:?}");
    let text = |text: &str| CString::new(text).map_err(|error| refused(error.to_string()));
    let (code, name) = (text(&source.text())?, text(&format!("{}.cu", source.name))?);
    let target = format!("--gpu-architecture={}", target(source, architecture));
    let options: Vec<CString> =
        OPTIONS.iter().copied().chain([target.as_str(), REPORT]).map(text).collect::<Result<_, _>>()?;
    let options: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
    let mut program = ptr::null_mut();
    // SAFETY: both texts end with 0 and live until the program is destroyed; there are no headers.
    let made = unsafe {
        sys::nvrtcCreateProgram(&mut program, code.as_ptr(), name.as_ptr(), 0, ptr::null(), ptr::null())
    };
    made.result().map_err(|error| refused(word(error.0)))?;
    let program = Program(program);
    // SAFETY: the program was just made, and the options end with 0.
    let compiled = unsafe { sys::nvrtcCompileProgram(program.0, options.len() as i32, options.as_ptr()) };
    if let Err(error) = compiled.result() {
        return Err(refused(log(&program).unwrap_or_else(|| word(error.0))));
    }
    let mut bytes = 0;
    // SAFETY: the program was compiled, and the buffer is as large as the compiler says.
    unsafe {
        sys::nvrtcGetCUBINSize(program.0, &mut bytes).result().map_err(|error| refused(word(error.0)))?;
        let mut binary = vec![0u8; bytes];
        let got = sys::nvrtcGetCUBIN(program.0, binary.as_mut_ptr().cast());
        got.result().map_err(|error| refused(word(error.0)))?;
        let spilled_bytes = log(&program).map_or(0, |log| spilled_bytes(&log));
        Ok(Compiled { binary, spilled_bytes })
    }
}

/// The sum of what the report says of every kernel: `…, 8 bytes spill stores, 8 bytes spill loads`.
fn spilled_bytes(report: &str) -> u64 {
    let ends = report.match_indices("bytes spill stores").map(|(at, _)| &report[..at]);
    let words = ends.filter_map(|text| text.trim_end().rsplit([' ', ',', '\n']).next());
    words.filter_map(|word| word.parse::<u64>().ok()).sum()
}

/// What the compiler has said.
fn log(program: &Program) -> Option<String> {
    let mut bytes = 0;
    // SAFETY: the program exists, and the buffer is as large as the compiler says.
    unsafe {
        sys::nvrtcGetProgramLogSize(program.0, &mut bytes).result().ok()?;
        let mut log = vec![0u8; bytes];
        sys::nvrtcGetProgramLog(program.0, log.as_mut_ptr().cast()).result().ok()?;
        Some(String::from_utf8_lossy(&log).trim_end_matches('\0').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spills_of_all_kernels_are_counted() {
        let report = "ptxas info    : Compiling entry function 'a' for 'sm_90'\n    \
                      0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
                      ptxas info    : Used 40 registers\n    \
                      16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n    \
                      8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n";
        assert_eq!(spilled_bytes(report), 16);
        assert_eq!(spilled_bytes(""), 0);
    }
}
