mod policy;
mod properties;
mod workers;

use super::class::{Class, Priority};
use super::services::Services;
use std::sync::Arc;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A class whose runs of a row are known to take so long; zero is not known.
fn class(model: u64, priority: u8, service: Duration) -> Class {
    let services = Services::default();
    if !service.is_zero() {
        services.reset(1, service);
    }
    let priority = Priority::new(priority);
    Class { model, queue_limit: 3, priority, share: 0.0, max_delay: Duration::ZERO, services }
}

fn shared(class: Class) -> Arc<Class> {
    Arc::new(class)
}
