//! How long the models have been idle that a refusal would have unloaded.

use super::Served;
use plimsoll_engine::error::Error;
use plimsoll_engine::slab::Remedy;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{SystemTime, UNIX_EPOCH};

/// The error with what the engine cannot know: it has no clock.
pub(super) fn with_idle_times(mut error: Error, served: &[Arc<Served>]) -> Error {
    let Error::DoesNotFit(refusal) = &mut error else { return error };
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64);
    let unloadings = refusal.remedies.iter_mut().filter_map(|remedy| match remedy {
        Remedy::Unload(all) => Some(all),
        _ => None,
    });
    for unloading in unloadings.flatten() {
        let named = served.iter().find(|served| served.owner() == unloading.owner);
        let last_ms = named.map_or(0, |served| served.stats.last_inference_ms.load(Ordering::Relaxed));
        // One that has never been asked says nothing.
        unloading.idle_ms = (last_ms > 0).then(|| now_ms.saturating_sub(last_ms));
    }
    error
}
