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

/// Bytes of this process that are resident or will be as it does its work: all of the program and its libraries, of
/// which only parts have been looked at so far, and what is resident of its own memory. `None` where the system does
/// not tell.
pub(crate) fn foreseeable_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let mapped = mapped_file_bytes(&fs::read_to_string("/proc/self/maps").ok()?);
    let files = field(&status, "RssFile:")?;
    Some(field(&status, "VmRSS:")? - files + mapped.max(files))
}

/// Bytes of the mappings that lie in files, by the text of `/proc/self/maps`.
fn mapped_file_bytes(maps: &str) -> u64 {
    let sizes = maps.lines().filter_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        // Permissions, offset, device, inode, path; what cannot be read, such as a gap between parts, takes no memory.
        let readable = fields.next()?.starts_with('r');
        let path = fields.nth(3)?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        (readable && path.starts_with('/')).then(|| Some(number(end)? - number(start)?))?
    });
    sizes.sum()
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
    fn linux_tells_what_is_resident() {
        let resident = resident().unwrap();
        assert!(resident.now > 1 << 20 && resident.peak >= resident.now);
    }

    #[test]
    fn what_is_foreseen_is_no_less_than_what_is_resident() {
        let binary = fs::metadata(std::env::current_exe().unwrap()).unwrap().len();
        let foreseen = foreseeable_bytes().unwrap();
        assert!(foreseen > 1 << 20 && foreseen < resident().unwrap().peak + 2 * binary + (64 << 20));
    }

    #[test]
    fn mappings_of_files_are_summed() {
        let maps = "7f00000000-7f00003000 r-xp 00000000 fe:00 42   /usr/bin/plimsoll\n\
                    7f00003000-7f00004000 ---p 00000000 fe:00 42   /usr/bin/plimsoll\n\
                    7f00005000-7f00006000 rw-p 00002000 fe:00 42   /usr/bin/plimsoll\n\
                    7f10000000-7f20000000 rw-p 00000000 00:00 0 \n\
                    7ffe000000-7ffe002000 rw-p 00000000 00:00 0    [stack]\n";
        assert_eq!(mapped_file_bytes(maps), 0x4000);
    }
}
