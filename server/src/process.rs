//! What the system says of this process's memory.

use std::fs;

/// Resident memory of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Bytes now.
    pub(crate) now: u64,
    /// The most that there have been since the process began, also for a moment that nobody looked at.
    pub(crate) peak: u64,
}

/// Resident memory of this process, or `None` where the system does not tell.
pub(crate) fn resident() -> Option<Resident> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let now = field(&text, "VmRSS:")?;
    // Some sandboxes tell the one and not the other.
    Some(Resident { now, peak: field(&text, "VmHWM:").unwrap_or(now).max(now) })
}

/// Bytes that could be taken without swapping (`MemAvailable`), or `None` where the system does not tell.
pub(crate) fn available_bytes() -> Option<u64> {
    field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable:")
}

/// A field of the text of a `NAME: N kB` file of /proc, in bytes.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_both() {
        let resident = resident().unwrap();
        assert!(resident.now > 1 << 20 && resident.peak >= resident.now);
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
