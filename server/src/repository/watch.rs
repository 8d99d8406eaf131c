//! The folder watch: compares the folder with what is served, every so often, and follows what changed.
//!
//! It looks instead of listening: file system events do not cross every container mount and network share.

use super::{Change, Found, Registry, changes, scan};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio_util::sync::CancellationToken;

/// Follows changes until `stop`.
pub(crate) async fn watch(registry: Arc<Registry>, every: Duration, stop: CancellationToken) {
    let mut told = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(every) => {}
        }
        let root = registry.root().to_path_buf();
        match tokio::task::spawn_blocking(move || scan(&root)).await {
            Ok(Ok(now)) => {
                told = false;
                follow(&registry, now).await;
            }
            Ok(Err(error)) => {
                // A folder that is away for a moment (a remount) does not unload what serves.
                if !std::mem::replace(&mut told, true) {
                    tracing::warn!(folder = %registry.root().display(), %error, "the model folder cannot be read");
                }
            }
            Err(_) => return,
        }
    }
}

/// Acts on what differs from what the registry knows; a model still being written is left for the next round.
async fn follow(registry: &Arc<Registry>, now: Vec<Found>) {
    let seen = registry.scanned();
    let clock = SystemTime::now();
    let mut kept: Vec<Found> = vec![];
    for found in now {
        if found.settled(clock) {
            kept.push(found);
        } else if let Some(before) = seen.iter().find(|before| before.name == found.name) {
            kept.push(before.clone());
        }
    }
    for change in changes(&seen, &kept) {
        let name = match change {
            Change::Removed(name) => {
                tracing::info!(model = name, "its files are gone");
                registry.gone(&name);
                continue;
            }
            Change::Added(name) | Change::Changed(name) => name,
        };
        let follows = registry.follows(&name);
        if let Some(found) = kept.iter().find(|found| found.name == name) {
            registry.found(found.clone());
        }
        if follows || registry.follows(&name) {
            // The registry logs how it went; what served before goes on where it fails.
            let _ = registry.load(&name).await;
        }
    }
}
