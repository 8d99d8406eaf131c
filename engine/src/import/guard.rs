//! A panic inside a dependency becomes an error here, quietly, and the node at fault is searched for.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::Once;

thread_local! {
    /// Whether this thread is inside [`caught`], so that the panic hook keeps quiet.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The message of a panic that was caught.
#[derive(Debug)]
pub(crate) struct Panicked(pub(crate) String);

/// Runs `work`; a panic in it becomes an `Err` with its message and is not printed.
pub(crate) fn caught<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    static HOOK: Once = Once::new();
    // The hook is the process's own; ours only stays silent where the panic is about to be an error value.
    HOOK.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info: &PanicHookInfo<'_>| {
            if !GUARDED.get() {
                previous(info);
            }
        }));
    });
    let outer = GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(work));
    GUARDED.set(outer);
    result.map_err(|payload| {
        let text = payload
            .downcast_ref::<&str>()
            .map(|s| s.to_string())
            .or_else(|| payload.downcast_ref::<String>().cloned())
            .unwrap_or_else(|| "a panic without a message".into());
        // The text of an error that was unwrapped can go on with a backtrace.
        Panicked(text.lines().next().unwrap_or_default().into())
    })
}

/// The smallest `n` in `1..=count` for which `fails(n)`, given that `fails(count)` does: the node at fault when
/// `fails(n)` imports the first `n` nodes. Asks about log2(count) times.
pub(crate) fn first_failing(count: usize, fails: impl Fn(usize) -> bool) -> usize {
    let (mut good, mut bad) = (0, count);
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if fails(middle) { bad = middle } else { good = middle }
    }
    bad
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_its_message() {
        assert_eq!(caught(|| 3).unwrap(), 3);
        let Panicked(text) = caught(|| panic!("index {} out of range", 7)).unwrap_err();
        assert_eq!(text, "index 7 out of range");
    }

    #[test]
    fn the_first_failing_prefix_is_found_wherever_it_is() {
        for count in 1..20 {
            for at in 1..=count {
                assert_eq!(first_failing(count, |n| n >= at), at);
            }
        }
    }
}
