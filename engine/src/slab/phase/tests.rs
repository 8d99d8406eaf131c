use super::*;

fn take(phases: &Phases, bytes: u64) -> Result<u64, AfterStart> {
    phases.allocate(bytes, || Ok(bytes))
}

#[test]
fn memory_is_allocated_at_the_start_and_never_again() {
    let mut phases = Phases::default();
    assert_eq!(take(&phases, 10), Ok(10));
    phases.ready(1);
    assert_eq!(take(&phases, 5), Err(AfterStart { bytes: 5 }));
    let refused: Result<(), AfterStart> = phases.allocate(10, || panic!("not called"));
    assert_eq!(
        refused.unwrap_err().to_string(),
        "10 bytes of device memory asked for after the start, which alone allocates it"
    );
}

#[test]
fn what_comes_after_the_start_is_counted_from_its_first_end() {
    let mut phases = Phases::default();
    assert_eq!(phases.after_ready(3), 0);
    phases.ready(3);
    phases.ready(5);
    assert_eq!((phases.after_ready(3), phases.after_ready(5)), (0, 2));
}
