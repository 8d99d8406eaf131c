//! Open files: every connection is one, and many systems allow a process 1024 until it asks for more.

/// What else is open: models' files, logs, the event loop's own.
#[cfg(target_os = "linux")]
const OTHERS: u64 = 256;

/// Asks for as many as so many connections need, and warns where the system does not allow them.
#[cfg(target_os = "linux")]
pub(crate) fn allow(connections: usize) {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let needed = (connections as u64).saturating_add(OTHERS);
    let mut limit = getrlimit(Resource::Nofile);
    // `None` is no limit.
    if limit.current.is_none_or(|current| current >= needed) {
        return;
    }
    let allowed = limit.maximum.map_or(needed, |maximum| maximum.min(needed));
    limit.current = Some(allowed);
    if setrlimit(Resource::Nofile, limit).is_err() || allowed < needed {
        tracing::warn!(
            needed,
            allowed,
            "the system allows this process too few open files for server.max_connections: raise its limit (ulimit -n)"
        );
    }
}

/// Other systems have limits of their own.
#[cfg(not(target_os = "linux"))]
pub(crate) fn allow(_connections: usize) {}
