//! Connections that are open. Where there are as many as there may be, the one that has been idle longest leaves for the
//! next; where none is idle, the next waits until one is, or is closed.

use super::Underway;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Idle for less than this, a connection is between two requests and not idle.
const IDLE: Duration = Duration::from_secs(1);

/// How often it is said that there are too many.
const TELL_EVERY: Duration = Duration::from_secs(60);

/// All open connections.
pub(crate) struct Connections {
    most: usize,
    open: Mutex<State>,
    left: Notify,
}

#[derive(Default)]
struct State {
    open: HashMap<u64, Open>,
    next: u64,
    told: Option<Instant>,
}

struct Open {
    underway: Arc<Underway>,
    task: Option<AbortHandle>,
}

/// A connection's place among them, until dropped.
pub(in crate::http) struct Place {
    connections: Arc<Connections>,
    id: u64,
}

impl Connections {
    /// Room for at most so many.
    pub(crate) fn new(most: usize) -> Arc<Connections> {
        Arc::new(Connections { most, open: Mutex::default(), left: Notify::new() })
    }

    /// Connections that are open now.
    pub(crate) fn count(&self) -> usize {
        self.state().open.len()
    }

    /// Waits until there is room for another.
    pub(in crate::http) async fn room(&self) {
        while self.count() >= self.most {
            self.make_room();
            // One may become idle without leaving.
            let _ = tokio::time::timeout(IDLE / 10, self.left.notified()).await;
        }
    }

    /// A place for a connection that does what `underway` says.
    pub(in crate::http) fn enter(self: &Arc<Self>, underway: Arc<Underway>) -> Place {
        let mut state = self.state();
        let id = state.next;
        state.next += 1;
        state.open.insert(id, Open { underway, task: None });
        Place { connections: Arc::clone(self), id }
    }

    /// From now on the connection in this place, unless it has ended, can be let go of.
    pub(in crate::http) fn runs_as(&self, id: u64, task: AbortHandle) {
        if let Some(open) = self.state().open.get_mut(&id) {
            open.task = Some(task);
        }
    }

    /// Ends the connection that has been idle longest.
    fn make_room(&self) {
        let mut state = self.state();
        if state.told.is_none_or(|told| told.elapsed() > TELL_EVERY) {
            state.told = Some(Instant::now());
            tracing::warn!(
                connections = self.most,
                "no more connections than server.max_connections: idle ones are closed for new ones"
            );
        }
        let idle = |open: &Open| open.underway.idle().filter(|idle| *idle >= IDLE);
        let idlest = state.open.iter().filter_map(|(id, open)| Some((idle(open)?, *id))).max();
        if let Some(task) = idlest.and_then(|(_, id)| state.open.get_mut(&id)?.task.take()) {
            task.abort();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(in crate::http) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.connections.state().open.remove(&self.id);
        self.connections.left.notify_one();
    }
}
