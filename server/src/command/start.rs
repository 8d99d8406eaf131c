//! The part of a start that `serve` and `check` share: configuration → device, ledger, registry.

use crate::config::{self, Config, Kind, Workspace};
use crate::metrics::Metrics;
use crate::process;
use crate::repository::{Defaults, Registry};
use anyhow::{Context, bail};
use plimsoll_engine::model::Limits;
use plimsoll_engine::slab::{Fixed, Ledger};
use std::path::Path;
use std::sync::Arc;

/// What is there before anything is loaded.
pub(super) struct Started {
    pub(super) config: Config,
    pub(super) ledger: Arc<Ledger>,
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Metrics,
    /// Workers, and threads of each.
    pub(super) lanes: usize,
    /// What an admin call must bring.
    pub(super) admin_token: Option<String>,
}

/// The configuration that these arguments, the file and the environment make.
pub(super) fn configuration(file: Option<&Path>, flags: &config::Flags) -> anyhow::Result<Config> {
    Ok(config::load(file, std::env::vars_os(), flags)?)
}

/// Draws the lines and opens the repository.
pub(super) fn start(config: Config) -> anyhow::Result<Started> {
    device(config.device.kind)?;
    let fixed = lines(&config)?;
    let ledger = Ledger::new(fixed);
    let metrics = Metrics::new()?;
    let lanes = config.lanes.count(cores(), config.device.threads);
    let workspace_bytes = match config.lanes.workspace {
        Workspace::Auto => None,
        Workspace::Size(size) => Some(usize::try_from(size.as_u64()).unwrap_or(usize::MAX)),
    };
    let defaults = Defaults {
        queue_limit: config.batching.queue_limit,
        timeout: config.server.request_timeout,
        limits: Limits { workspace_bytes, ..Limits::default() },
    };
    let root = config.models.path.clone();
    let registry = Registry::open(
        root.clone(),
        config.models.load.clone(),
        defaults,
        Arc::clone(&ledger),
        metrics.clone(),
    )
    .with_context(|| format!("the model folder {} (models.path) cannot be read", root.display()))?;
    let admin_token = config.server.admin_token_file.as_deref().map(token).transpose()?;
    Ok(Started { config, ledger, registry, metrics, lanes, admin_token })
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Settles for a device.
///
/// # Errors
/// One is demanded that is not there.
pub(super) fn device(kind: Kind) -> anyhow::Result<()> {
    match kind {
        Kind::Cpu => Ok(()),
        Kind::Auto => {
            tracing::warn!("no CUDA device is used: this build computes on the CPU");
            Ok(())
        }
        Kind::Cuda => bail!("device.kind is cuda, and this build computes on the CPU only; use cpu or auto"),
    }
}

/// The admin token: the file's text without the space around it.
fn token(file: &Path) -> anyhow::Result<String> {
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("cannot read {} (server.admin_token_file)", file.display()))?;
    let token = text.trim();
    anyhow::ensure!(!token.is_empty(), "{} (server.admin_token_file) is empty", file.display());
    Ok(token.into())
}

fn lines(config: &Config) -> anyhow::Result<Fixed> {
    // Where the system does not tell what is available, the default ceiling is taken at its word.
    let available = process::available_bytes().unwrap_or(u64::MAX);
    let limits = config.memory.limits(available)?;
    if limits.ceiling.as_u64() > available {
        tracing::warn!(ceiling = %limits.ceiling, available = %bytesize::ByteSize(available), "the ceiling is above what is available now");
    }
    let fixed = Fixed {
        ceiling: limits.ceiling.as_u64(),
        driver: 0,
        // On the CPU, device memory is host memory: what this process already holds counts.
        process: process::resident_bytes().unwrap_or(0),
        headroom: limits.headroom.as_u64(),
        reserve: limits.reserve.as_u64(),
    };
    if fixed.for_models() == 0 {
        bail!(
            "nothing is left for models under the ceiling of {}: the process holds {}, headroom {}, reserve {}",
            limits.ceiling,
            bytesize::ByteSize(fixed.process),
            limits.headroom,
            limits.reserve
        );
    }
    Ok(fixed)
}
