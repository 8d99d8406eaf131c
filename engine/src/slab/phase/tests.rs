use super::*;

fn take(phases: &mut Phases, bytes: u64) -> Result<u64, OutOfPhase> {
    phases.allocate(bytes, || Ok(bytes))
}

#[test]
fn memory_is_allocated_while_starting_and_never_again() {
    let mut phases = Phases::new();
    assert_eq!(take(&mut phases, 10), Ok(10));
    phases.ready().unwrap();
    assert_eq!(take(&mut phases, 5), Err(OutOfPhase::Allocate { bytes: 5, now: Phase::Ready }));
    phases.stop().unwrap();
    assert_eq!(take(&mut phases, 5), Err(OutOfPhase::Allocate { bytes: 5, now: Phase::Stopping }));
    assert_eq!(phases.allocated_bytes(), 10);
}

#[test]
fn a_refused_allocation_is_not_called_and_a_failed_one_not_counted() {
    let mut phases = Phases::new();
    let failed: Result<(), OutOfPhase> = phases.allocate(10, || Err(OutOfPhase::Free { now: Phase::Ready }));
    assert!(failed.is_err());
    assert_eq!(phases, Phases::new());
    phases.ready().unwrap();
    let refused: Result<(), OutOfPhase> = phases.allocate(10, || panic!("not called"));
    assert!(refused.is_err());
}

#[test]
fn memory_is_not_given_back_while_requests_may_run() {
    let mut phases = Phases::new();
    assert_eq!(phases.may_free(), Ok(()));
    phases.ready().unwrap();
    assert_eq!(phases.may_free(), Err(OutOfPhase::Free { now: Phase::Ready }));
    phases.stop().unwrap();
    assert_eq!(phases.may_free(), Ok(()));
}

#[test]
fn a_phase_moves_forward_only_and_a_call_out_of_order_changes_nothing() {
    let mut phases = Phases::new();
    phases.stop().unwrap();
    assert_eq!(phases.ready(), Err(OutOfPhase::Move { now: Phase::Stopping, next: Phase::Ready }));
    assert!(phases.stop().is_err());
    assert_eq!(phases.now(), Phase::Stopping);
}
