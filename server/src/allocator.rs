//! The allocator, and how long it keeps what was given back.

use libmimalloc_sys::{mi_option_set, mi_option_t};

/// An allocator that gives memory back: glibc's keeps large blocks, once it has seen some freed, for the next time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// `mi_option_purge_delay` of `mimalloc.h`, version 3, which the crate does not name.
const PURGE_DELAY: mi_option_t = 15;

/// Has freed memory go back to the system at once. By default it is kept for a second and longer, and imports that
/// follow each other then pile up what each of them needed for a moment: under a ceiling of 192 MiB that was 60 MiB.
pub(crate) fn give_back_at_once() {
    // SAFETY: options may be set at any time, and this one takes any number of milliseconds.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_option_is_the_one_that_is_meant() {
        // SAFETY: as above; options may be read at any time.
        let read = || unsafe { libmimalloc_sys::mi_option_get(PURGE_DELAY) };
        // By this default the delay is told from its neighbours: the number of NUMA nodes, and a delay of 0.
        assert_eq!(read(), 1000);
        give_back_at_once();
        assert_eq!(read(), 0);
    }
}
