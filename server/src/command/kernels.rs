//! `kernels build`: CUDA binaries ahead of time.

use crate::cli::BuildKernels;
use plimsoll_engine::device::build_kernels;
use plimsoll_engine::error::size;
use std::io::Write;

pub(super) fn build(arguments: &BuildKernels) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for architecture in &arguments.architectures {
        let built = build_kernels(*architecture, &arguments.out)?;
        let bytes = built.iter().map(|file| file.bytes).sum();
        writeln!(out, "sm_{architecture}: {} files, {}", built.len(), size(bytes))?;
        let spilling = built.iter().filter(|file| file.spilled_bytes > 0);
        let names: Vec<String> =
            spilling.map(|file| format!("{} ({} bytes)", file.file.display(), file.spilled_bytes)).collect();
        anyhow::ensure!(
            names.is_empty() || !arguments.deny_spills,
            "registers are spilled to memory in {}",
            names.join(", ")
        );
    }
    Ok(())
}
