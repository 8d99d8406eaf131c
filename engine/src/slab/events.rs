//! What happened to the memory lately, as plain data; how it is written down is the server's business.

use std::collections::VecDeque;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Weights were placed.
    Load,
    /// Weights left to make room for others.
    Evict,
    /// Weights were moved to bring free bytes together.
    Move,
    /// Bytes were asked for and refused.
    Refuse,
    /// A burst lane is used, after a time in which none was.
    Burst,
    /// Requests are refused, after a time in which none was.
    Shed,
    /// Weights left because someone asked for it.
    Unload,
}

impl What {
    /// The word used in reports.
    pub fn name(self) -> &'static str {
        match self {
            What::Load => "load",
            What::Evict => "evict",
            What::Move => "move",
            What::Refuse => "refuse",
            What::Burst => "burst",
            What::Shed => "shed",
            What::Unload => "unload",
        }
    }
}

/// One thing that happened, or the same thing several times in a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Counts up from 0 over all events; that of the last time where there were several. A gap in a list is what was
    /// dropped or counted together.
    pub sequence: u64,
    /// What happened.
    pub what: What,
    /// Whose bytes: a model's name and version.
    pub owner: String,
    /// How many bytes; the most of them where there were several times.
    pub bytes: u64,
    /// When, in milliseconds on the caller's clock; the last time where there were several.
    pub at_ms: u64,
    /// How many times in a row. More than 1 for bursts and refusals only: a storm of those would drop all else.
    pub times: u64,
}

/// The last events, oldest first. Bounded: once it is full the oldest leaves and its memory is used again.
#[derive(Clone, Debug)]
pub struct Events {
    capacity: usize,
    next: u64,
    events: VecDeque<Event>,
}

impl Default for Events {
    /// 256 events.
    fn default() -> Self {
        Events::new(256)
    }
}

impl Events {
    /// A history of at most `capacity` events (0 counts as 1).
    pub fn new(capacity: usize) -> Events {
        let capacity = capacity.max(1);
        Events { capacity, next: 0, events: VecDeque::with_capacity(capacity) }
    }

    /// Adds an event and gives its sequence number.
    pub fn push(&mut self, what: What, owner: &str, bytes: u64, at_ms: u64) -> u64 {
        let sequence = self.next;
        self.next += 1;
        if matches!(what, What::Burst | What::Refuse)
            && let Some(last) = self.events.back_mut()
            && last.what == what
            && last.owner == owner
        {
            let (bytes, times) = (last.bytes.max(bytes), last.times + 1);
            (last.sequence, last.bytes, last.at_ms, last.times) = (sequence, bytes, at_ms, times);
            return sequence;
        }
        let oldest = if self.events.len() < self.capacity { None } else { self.events.pop_front() };
        // The oldest one's buffer is used again, so that a full history does not grow the heap.
        let mut name = oldest.map_or_else(String::new, |oldest| oldest.owner);
        name.clear();
        name.push_str(owner);
        self.events.push_back(Event { sequence, what, owner: name, bytes, at_ms, times: 1 });
        sequence
    }

    /// The events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.events.iter()
    }
}

#[cfg(test)]
mod tests;
