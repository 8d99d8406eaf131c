//! When a burst begins: a burst lane is taken after a time in which none was in use.

use std::time::{Duration, Instant};

/// So long must no burst lane have been in use for the next one to begin another burst: a load that comes and goes by
/// the second is one burst.
const QUIET: Duration = Duration::from_secs(10);

/// The burst lanes in use.
#[derive(Debug, Default)]
pub(super) struct Bursts {
    busy: usize,
    /// When the last of them came back.
    ended: Option<Instant>,
}

impl Bursts {
    /// A burst lane is taken; whether that begins a burst.
    pub(super) fn taken(&mut self, now: Instant) -> bool {
        self.busy += 1;
        let quiet = self.ended.is_none_or(|ended| now.saturating_duration_since(ended) >= QUIET);
        self.busy == 1 && quiet
    }

    /// A burst lane comes back.
    pub(super) fn given_back(&mut self, now: Instant) {
        self.busy = self.busy.saturating_sub(1);
        self.ended = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_begins_with_the_first_lane_after_a_quiet_time() {
        let (mut bursts, start) = (Bursts::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(bursts.taken(at(0)));
        assert!(!bursts.taken(at(1)), "the same burst");
        bursts.given_back(at(2));
        assert!(!bursts.taken(at(60)), "one has been in use all the while");
        bursts.given_back(at(60));
        bursts.given_back(at(61));
        assert!(!bursts.taken(at(70)), "not quiet for long enough");
        bursts.given_back(at(70));
        assert!(bursts.taken(at(80)));
    }
}
