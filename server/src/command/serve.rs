//! `serve`: the whole way, from the configuration to the last answer.

use super::warm::before_ready;
use super::{logging, start};
use crate::cli::Start;
use crate::config::{Config, Level, Server};
use crate::http::{self, App, Budget, Connections, Door, Pace};
use crate::load_line::LoadLine;
use crate::process;
use crate::repository::watch;
use crate::schedule::{Begins, Recorder, Scheduler};
use crate::shutdown;
use crate::systemd;
use anyhow::Context;
use plimsoll_engine::error::size;
use plimsoll_engine::model::Compute;
use plimsoll_engine::slab::What;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

/// Loads, preparations and large JSON run beside the async threads, on at most this many.
const BLOCKING_THREADS: usize = 16;

pub(super) fn run(arguments: &Start) -> anyhow::Result<()> {
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    logging::start(&config.log, Level::Info);
    until_stopped(config, Compute::Planned)
}

/// Serves until the process is told to stop.
pub(super) fn until_stopped(config: Config, compute: Compute) -> anyhow::Result<()> {
    let started = Instant::now();
    let begun = start::start(config, compute)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .thread_name("http")
        .build()?;
    runtime.block_on(serve(begun, started))
}

async fn serve(begun: start::Started, started: Instant) -> anyhow::Result<()> {
    let start::Started { config, arena, registry, metrics, admin_token, tls } = begun;
    let lanes = arena.lanes().cloned().context("no lanes")?;
    let account = arena.ledger().account();
    let (max_body, budget) = config.server.bodies(bytesize::ByteSize(account.fixed.ceiling));
    let stop = shutdown::on_signal()?;
    http::allow_open_files(config.server.max_connections);
    let listener = listen(&config.server).await?;
    let recorded = Arc::clone(&arena);
    let tell = move |begins, owner: &str| match begins {
        Begins::Burst(bytes) => recorded.record(What::Burst, owner, bytes),
        Begins::Shedding => {
            tracing::warn!(model = owner, "requests are refused: more come than can be answered in time");
            recorded.record(What::Shed, owner, 0);
        }
    };
    let load_line = Arc::new(LoadLine::new(Arc::clone(&arena), Box::new(process::resident)));
    load_line.watch()?;
    let recorder = config.log.arrivals.as_deref().map(Recorder::start).transpose()?;
    let app = Arc::new(App {
        registry: Arc::clone(&registry),
        scheduler: Scheduler::start(lanes, Box::new(tell))?.recorded(recorder),
        arena,
        load_line,
        metrics,
        budget: Budget::new(budget.as_u64(), max_body.as_u64()),
        readiness: Default::default(),
        connections: Connections::new(config.server.max_connections),
        admin_token: admin_token.clone(),
        started,
    });
    app.registry.set_warm(before_ready(&app));
    app.arena.ready();
    describe(&app);
    let address = listener.local_addr()?;
    tracing::info!(%address, tls = tls.is_some(), "listening");
    if admin_token.is_none() && !address.ip().is_loopback() {
        tracing::warn!(
            "other machines reach this port, and whoever does may load and unload models: set server.admin_token_file"
        );
    }
    if admin_token.is_some() || tls.is_some() {
        let (token, tls) = (admin_token, tls.clone());
        let look = move || {
            token.iter().for_each(|token| token.look());
            tls.iter().for_each(|tls| tls.look());
        };
        tokio::spawn(http::follow(look, stop.clone()));
    }
    tokio::spawn(load_wanted(Arc::clone(&app), started));
    tokio::spawn(upkeep(Arc::clone(&app)));
    if let Some(every) = config.models.watch {
        tokio::spawn(watch(registry, every, stop.clone()));
    }
    tokio::spawn(turn_away(Arc::clone(&app), stop.clone()));
    let grace = config.server.shutdown_grace;
    let door = Door { listener, tls, connections: Arc::clone(&app.connections), pace: pace(&config.server) };
    http::serve(door, http::front(Arc::clone(&app)), stop, shutdown::lead(grace), grace).await?;
    app.scheduler.finish();
    tracing::info!("stopped");
    Ok(())
}

/// The socket that a service manager has passed, else one of our own.
async fn listen(server: &Server) -> anyhow::Result<TcpListener> {
    let passed = systemd::passed_listener()
        .context("the service manager passed no listening TCP socket (LISTEN_FDS)")?;
    match passed {
        Some(passed) => Ok(TcpListener::from_std(passed)?),
        None => TcpListener::bind(server.listen)
            .await
            .with_context(|| format!("cannot listen on {} (server.listen)", server.listen)),
    }
}

fn pace(server: &Server) -> Pace {
    let Server { header_timeout, idle_timeout, send_timeout, .. } = *server;
    let max_header = usize::try_from(server.max_header.as_u64()).unwrap_or(usize::MAX);
    Pace { max_header, header_timeout, idle_timeout, send_timeout }
}

/// Loads what the configuration wants, then says ready. A model that cannot be loaded does not keep the others
/// from serving: the log and the index tell.
async fn load_wanted(app: Arc<App>, started: Instant) {
    for name in app.registry.missing() {
        tracing::error!(model = name, "models.load names it, and the folder has no such model");
    }
    for name in app.registry.wanted() {
        systemd::starting(&format!("loading {name}"));
        let _ = app.registry.load(&name).await;
    }
    app.readiness.ready();
    let models = app.registry.ready().len();
    if app.readiness.is_ready() {
        systemd::ready(&format!("ready; models loaded: {models}"));
    }
    tracing::info!(models, took = ?started.elapsed(), "ready");
}

/// Turns readiness to 503 as soon as the end begins.
async fn turn_away(app: Arc<App>, stop: CancellationToken) {
    stop.cancelled().await;
    app.readiness.stopping();
    systemd::stopping();
}

async fn upkeep(app: Arc<App>) {
    // Until they are folded, histograms hold every value.
    const EVERY: Duration = Duration::from_millis(200);
    loop {
        tokio::time::sleep(EVERY).await;
        app.metrics.upkeep();
    }
}

fn describe(app: &App) {
    let fixed = app.arena.ledger().account().fixed;
    let Some((slab, lanes)) = app.arena.snapshot() else { return };
    tracing::info!(
        ceiling = %size(fixed.ceiling),
        process = %size(fixed.process),
        bodies = %size(fixed.bodies),
        headroom = %size(fixed.headroom),
        slab = %size(fixed.slab),
        weights = %size(slab.weights.bytes),
        lanes = lanes.steady.lanes,
        lane = %size(slab.steady.iter().map(|lane| lane.bytes).max().unwrap_or(0)),
        burst_lanes = lanes.burst.lanes,
        burst_lane = %size(slab.burst.iter().map(|lane| lane.bytes).max().unwrap_or(0)),
        reserve = %size(slab.reserve.bytes),
        "the load line"
    );
}
