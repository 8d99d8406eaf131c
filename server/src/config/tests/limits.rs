use crate::config::*;
use bytesize::ByteSize;

#[test]
fn the_default_ceiling_is_a_gibibyte_or_half_of_what_is_available() {
    let memory = Memory::default();
    let ceiling = |available: ByteSize| memory.limits(available.as_u64()).unwrap().ceiling;
    assert_eq!(ceiling(ByteSize::gib(16)), ByteSize::gib(1));
    assert_eq!(ceiling(ByteSize::gib(2)), ByteSize::gib(1));
    assert_eq!(ceiling(ByteSize::gib(1)), ByteSize::mib(512));
}

#[test]
fn a_configured_ceiling_is_taken_as_it_is() {
    let memory = Memory { ceiling: Some(ByteSize::gib(4)), ..Memory::default() };
    assert_eq!(memory.limits(0).unwrap().ceiling, ByteSize::gib(4));
}

#[test]
fn a_share_is_of_the_ceiling() {
    let memory =
        Memory { ceiling: Some(ByteSize::mib(1000)), reserve: Reserve::Percent(25), ..Memory::default() };
    assert_eq!(memory.limits(0).unwrap().reserve, ByteSize::mib(250));
    let memory = Memory { reserve: Reserve::Size(ByteSize::mib(7)), ..memory };
    assert_eq!(memory.limits(0).unwrap().reserve, ByteSize::mib(7));
}

#[test]
fn a_machine_with_too_little_is_refused() {
    let error = Memory::default().limits(ByteSize::mib(100).as_u64()).unwrap_err().to_string();
    assert!(error.starts_with("memory.ceiling (50 MiB) is not above memory.headroom (64 MiB)"), "{error}");
}

#[test]
fn the_largest_sizes_do_not_overflow() {
    let memory = Memory {
        ceiling: Some(ByteSize::b(u64::MAX)),
        reserve: Reserve::Percent(90),
        headroom: ByteSize::b(u64::MAX - 1),
    };
    assert!(memory.limits(u64::MAX).is_err());
}

#[test]
fn lanes_fill_the_cores_and_are_at_least_one() {
    let lanes = Lanes::default();
    assert_eq!([lanes.count(8, 1), lanes.count(8, 3), lanes.count(2, 4)], [8, 2, 1]);
    assert_eq!(Lanes { steady: Some(3), ..lanes }.count(8, 1), 3);
}
