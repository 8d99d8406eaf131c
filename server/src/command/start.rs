//! The part of a start that `serve` and `check` share: configuration → device, memory, registry.

use super::Usage;
use super::model::Source;
use crate::config::{self, Config, Kind, Server, Workspace};
use crate::http::{AdminToken, Tls};
use crate::metrics::Metrics;
use crate::process;
use crate::repository::{Defaults, Precision, Registry};
use anyhow::{Context, bail};
use plimsoll_engine::arena::{Arena, Lines};
use plimsoll_engine::cache::Cache;
use plimsoll_engine::device::{Binaries, Opened, host_available_bytes};
use plimsoll_engine::error::size;
use plimsoll_engine::fuse;
use plimsoll_engine::graph::DataFile;
use plimsoll_engine::model::{Compute, Limits};
use plimsoll_engine::slab::Fixed;
use std::path::Path;
use std::sync::Arc;

/// What is there before anything is loaded.
pub(super) struct Started {
    pub(super) config: Config,
    pub(super) arena: Arc<Arena>,
    pub(super) registry: Arc<Registry>,
    pub(super) metrics: Metrics,
    /// What an admin call must bring.
    pub(super) admin_token: Option<Arc<AdminToken>>,
    /// What clients speak, where it is not plain HTTP.
    pub(super) tls: Option<Arc<Tls>>,
}

/// The configuration that these arguments, the file and the environment make.
pub(super) fn configuration(file: Option<&Path>, flags: &config::Flags) -> anyhow::Result<Config> {
    Ok(config::load(file, std::env::vars_os(), flags)?)
}

/// Draws the lines and opens the repository.
pub(super) fn start(config: Config, compute: Compute) -> anyhow::Result<Started> {
    let (admin_token, tls) = (admin_token(&config.server)?, tls(&config.server)?);
    let device = device(&config)?;
    let metrics = Metrics::new(device.kind())?;
    let available = available_bytes(&device);
    let lines = lines(&config, device, available)?;
    // The slab is touched at once: what the system does not have would be another process's end, or ours.
    if lines.fixed.for_slab() > available {
        bail!(
            "the slab of {} is more than the {} that the system has available; lower memory.ceiling ({}), or end \
             what holds the memory",
            size(lines.fixed.for_slab()),
            size(available),
            size(lines.fixed.ceiling)
        );
    }
    if leaves_little(lines.fixed.for_slab(), available) {
        tracing::warn!(
            slab = %size(lines.fixed.for_slab()),
            available = %size(available),
            "the slab takes nearly all that the system has available: what else runs here may be ended for it"
        );
    }
    tracing::info!(slab = %size(lines.fixed.for_slab()), "taking the slab: it is filled before the port is opened");
    let arena = Arena::take(&lines, now_ms)?;
    if let Some(refused) = arena.pinned_refused().filter(|refused| refused.times > 0) {
        tracing::warn!(
            refused = %size(refused.bytes),
            pieces = refused.times,
            "the GPU's driver does not pin as much host memory: ordinary memory is used, and copies take longer"
        );
    }
    let defaults = Defaults {
        batching: config.batching.clone(),
        timeout: config.server.request_timeout,
        limits: Limits { threads: config.device.threads, compute, ..Limits::default() },
        cache: config.cache.dir.as_deref().and_then(cache),
    };
    let registry = Registry::open(&config.models, defaults, Arc::clone(&arena), metrics.clone());
    let root = config.models.path.display();
    let registry =
        registry.with_context(|| format!("the model folder {root} (models.path) cannot be read"))?;
    Ok(Started { config, arena, registry, metrics, admin_token, tls })
}

/// Opens the cache; without it a start takes longer, and nothing else is amiss.
fn cache(dir: &Path) -> Option<Arc<Cache>> {
    // The bytes of the program itself: no two builds share what one of them packed.
    let build = std::env::current_exe().and_then(|file| DataFile::open(&file)?.content());
    let report = |what: &str| tracing::warn!("{what}");
    let cache = build.and_then(|build| Cache::open(dir, &build.to_le_bytes(), Box::new(report)));
    let failed = |error| tracing::warn!(dir = %dir.display(), %error, "nothing is kept in cache.dir");
    cache.map(Arc::new).map_err(failed).ok()
}

fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Makes the device ready that the configuration settles for.
///
/// # Errors
/// One is demanded that is not there.
pub(super) fn device(config: &Config) -> anyhow::Result<Opened> {
    let cuda = || {
        let binaries = Binaries {
            ahead: config.device.kernels.clone(),
            keep: config.cache.dir.as_ref().map(|dir| dir.join("kernels")),
        };
        Opened::cuda(config.device.index, &binaries)
    };
    match config.device.kind {
        Kind::Cpu => Ok(Opened::default()),
        Kind::Cuda => cuda().context("device.kind is cuda"),
        Kind::Auto => Ok(cuda().unwrap_or_else(|why| {
            tracing::warn!("{why}: models are computed on the CPU");
            Opened::default()
        })),
    }
}

/// What is asked for, else what the model's settings say, else fp32.
///
/// # Errors
/// The device does not compute in what is asked for.
pub(super) fn precision(
    asked: Option<Precision>,
    source: &Source,
    device: &Opened,
) -> anyhow::Result<fuse::Precision> {
    let asked = asked.map(fuse::Precision::from);
    if let Some(precision) = asked.filter(|precision| !device.computes_in(*precision)) {
        let (name, kind) = (precision.name(), device.kind());
        bail!(Usage(format!(
            "`{kind}` computes in fp32 only, not in {name}; leave --precision away, or choose --device cuda"
        )));
    }
    Ok(asked.unwrap_or_else(|| source.precision()))
}

/// The admin token that the configuration names.
fn admin_token(server: &Server) -> anyhow::Result<Option<Arc<AdminToken>>> {
    let Some(file) = &server.admin_token_file else { return Ok(None) };
    let token = AdminToken::open(file);
    let token = token.with_context(|| format!("no token in {} (server.admin_token_file)", file.display()))?;
    Ok(Some(Arc::new(token)))
}

/// TLS with the certificate that the configuration names.
fn tls(server: &Server) -> anyhow::Result<Option<Arc<Tls>>> {
    let (Some(cert), Some(key)) = (&server.tls_cert, &server.tls_key) else { return Ok(None) };
    Ok(Some(Arc::new(Tls::open(cert, key)?)))
}

/// Bytes that can be had of the device; where the system does not tell, the default ceiling is taken at its word.
pub(super) fn available_bytes(device: &Opened) -> u64 {
    device.own_free_bytes().or_else(host_available_bytes).unwrap_or(u64::MAX)
}

/// Whether a slab leaves others less than a tenth of what is available.
fn leaves_little(slab: u64, available: u64) -> bool {
    slab > available - available / 10
}

/// The lines that the configuration draws on a device of so many available bytes.
pub(super) fn lines(config: &Config, device: Opened, available: u64) -> anyhow::Result<Lines> {
    let lanes = match device.kind() {
        "cpu" => config.lanes.count(cores(), config.device.threads),
        _ => config.lanes.count_on_gpu(),
    };
    let limits = config.memory.limits(available)?;
    let (_, bodies) = config.server.bodies(limits.ceiling);
    // Where device memory is host memory, what this process already holds counts, and what it will hold of requests;
    // a device with memory of its own has none of either in it.
    let (process, bodies) = match device.own_free_bytes() {
        None => (process::foreseeable_bytes().unwrap_or(0), bodies.as_u64()),
        Some(_) => (0, 0),
    };
    let fixed = Fixed {
        ceiling: limits.ceiling.as_u64(),
        driver: device.driver_bytes()?,
        process,
        bodies,
        headroom: limits.headroom.as_u64(),
        slab: 0,
    };
    let workspace = match config.lanes.workspace {
        Workspace::Auto => None,
        Workspace::Size(size) => Some(size.as_u64()),
    };
    let (reserve, threads) = (limits.reserve.as_u64(), config.device.threads);
    Ok(Lines { device, fixed, reserve, lanes, workspace, threads })
}

/// Milliseconds since the epoch, to date what happens to the memory.
fn now_ms() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::leaves_little;

    #[test]
    fn a_slab_of_more_than_nine_tenths_of_what_there_is_leaves_little() {
        assert!(leaves_little(91, 100) && leaves_little(100, 100));
        assert!(!leaves_little(90, 100) && !leaves_little(1 << 40, u64::MAX));
    }
}
