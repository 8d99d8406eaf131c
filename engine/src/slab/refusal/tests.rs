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
fn a_refusal_names_the_settings_and_the_models_that_would_help() {
    let fp16 = Remedy::Setting { setting: "precision = fp16".into(), bytes: 410 * MIB };
    let unload = Remedy::Unload(vec![unloading("segment", 300, Some(12 * 60_000 + 5_000))]);
    assert_eq!(
        refusal(Bound::Sum, vec![fp16, unload]),
        "`detect` needs 812 MiB, 640 MiB free under the ceiling of 2.0 GiB; fits with precision = fp16 (410 MiB) or \
         after unloading `segment` (300 MiB, idle 12 min)"
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
        refusal(Bound::Cap { cap_bytes: 700 * MIB }, vec![Remedy::HigherCap]),
        "`detect` needs 812 MiB, 640 MiB free under its own cap of 700 MiB; fits only with a higher cap of its own"
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
fn idle_times_are_said_in_one_unit() {
    let said = [0, 119_999, 120_000, 7_199_000, 7_200_000, 172_800_000].map(duration);
    assert_eq!(said, ["0 s", "119 s", "2 min", "119 min", "2 h", "2 days"]);
}
