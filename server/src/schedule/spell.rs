//! When something begins that comes and goes: a burst, or refusals.

use std::time::{Duration, Instant};

/// So long must it have been quiet for the next time to be another beginning: what comes and goes by the second is one
/// spell.
const QUIET: Duration = Duration::from_secs(10);

/// Something that comes and goes.
#[derive(Debug, Default)]
pub(super) struct Spell {
    /// How often it is on now.
    on: usize,
    /// When it was last on.
    ended: Option<Instant>,
}

impl Spell {
    /// It is on; whether that begins a spell.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        self.on += 1;
        let quiet = self.ended.is_none_or(|ended| now.saturating_duration_since(ended) >= QUIET);
        self.on == 1 && quiet
    }

    /// It is off again.
    pub(super) fn end(&mut self, now: Instant) {
        self.on = self.on.saturating_sub(1);
        self.ended = Some(now);
    }

    /// It is on for a moment; whether that begins a spell.
    pub(super) fn flash(&mut self, now: Instant) -> bool {
        let begins = self.begin(now);
        self.end(now);
        begins
    }

    /// Whether it is on, or was within so long.
    pub(super) fn is_on(&self, now: Instant, within: Duration) -> bool {
        self.on > 0 || self.ended.is_some_and(|ended| now.saturating_duration_since(ended) < within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spell_begins_after_a_quiet_time() {
        let (mut spell, start) = (Spell::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert!(spell.begin(at(0)));
        assert!(!spell.begin(at(1)), "the same one");
        spell.end(at(2));
        assert!(!spell.begin(at(60)), "it has been on all the while");
        spell.end(at(60));
        spell.end(at(61));
        assert!(!spell.begin(at(70)), "not quiet for long enough");
        spell.end(at(70));
        assert!(spell.is_on(at(70), Duration::from_secs(1)) && !spell.is_on(at(72), Duration::from_secs(1)));
        assert!(spell.flash(at(80)));
        assert!(!spell.flash(at(81)));
    }
}
