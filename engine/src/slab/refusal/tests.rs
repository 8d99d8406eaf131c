use super::*;

const MIB: u64 = 1 << 20;

fn refusal(bound: Bound, remedies: Vec<Remedy>) -> String {
    let (owner, holders) = ("detect".into(), vec![("segment".into(), 300 * MIB)]);
    let (needed, free, ceiling) = (812 * MIB, 640 * MIB, 2048 * MIB);
    DoesNotFit { owner, needed, free, ceiling, holders, bound, remedies }.to_string()
}

fn unloading(owner: &str, mib: u64, idle_ms: Option<u64>) -> Unloading {
    Unloading { owner: owner.into(), bytes: mib * MIB, idle_ms }
}

#[test]
fn a_refusal_names_the_models_that_would_help() {
    let unload = Remedy::Unload(vec![unloading("segment", 300, Some(12 * 60_000 + 5_000))]);
    let other = Remedy::Unload(vec![unloading("ocr", 410, None)]);
    assert_eq!(
        refusal(Bound::Sum, vec![unload, other]),
        "`detect` needs 812 MiB, 640 MiB free under the ceiling of 2.0 GiB; fits after unloading `segment` (300 MiB, \
         idle 12 min) or after unloading `ocr` (410 MiB)"
    );
}

#[test]
fn a_refusal_says_what_was_in_the_way() {
    let both = Remedy::Unload(vec![unloading("segment", 300, None), unloading("ocr", 12, Some(900))]);
    assert_eq!(
        refusal(Bound::Pieces { largest_free: 500 * MIB }, vec![both]),
        "`detect` needs 812 MiB, 640 MiB free under the ceiling of 2.0 GiB, of which 500 MiB in one piece; fits \
         after unloading `segment` (300 MiB) and `ocr` (12 MiB, idle 0 s)"
    );
    assert_eq!(
        refusal(
            Bound::Cap { cap_bytes: 700 * MIB },
            vec![Remedy::Setting { setting: "memory_limit", bytes: 872 * MIB + 1 }]
        ),
        "`detect` needs 812 MiB, 640 MiB free under its memory_limit of 700 MiB; fits with memory_limit of at least \
         873 MiB"
    );
}

#[test]
fn a_refusal_without_remedies_names_the_largest_holders() {
    assert_eq!(
        refusal(Bound::Sum, vec![]),
        "`detect` needs 812 MiB, 640 MiB free under the ceiling of 2.0 GiB; unload `segment` (300 MiB), or raise \
         memory.ceiling"
    );
}

#[test]
fn a_setting_is_never_said_too_low() {
    let said = [1, 1024, 1025, MIB, MIB + 1, 3 << 30].map(size_up);
    assert_eq!(said, ["1 KiB", "1 KiB", "2 KiB", "1024 KiB", "2 MiB", "3072 MiB"]);
}

#[test]
fn idle_times_are_said_in_one_unit() {
    let said = [0, 119_999, 120_000, 7_199_000, 7_200_000, 172_800_000].map(duration);
    assert_eq!(said, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
}
