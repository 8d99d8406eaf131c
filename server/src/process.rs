//! What the system says of this process's memory.

use std::fs;

/// Resident bytes of this process, or `None` where the system does not tell.
pub(crate) fn resident_bytes() -> Option<u64> {
    field("/proc/self/status", "VmRSS:")
}

/// Bytes that could be taken without swapping (`MemAvailable`), or `None` where the system does not tell.
pub(crate) fn available_bytes() -> Option<u64> {
    field("/proc/meminfo", "MemAvailable:")
}

/// A field of a `NAME: N kB` file of /proc, in bytes.
fn field(file: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn linux_tells_both() {
        assert!(resident_bytes().unwrap() > 1 << 20);
        assert!(available_bytes().unwrap() > 1 << 20);
    }
}
