use crate::repository::*;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

const SECOND_NS: i128 = 1_000_000_000;

fn fingerprint(modified_ns: i128) -> Fingerprint {
    Fingerprint { modified_ns, length_bytes: 4, inode: 1 }
}

fn model(name: &str, modified_ns: i128) -> Found {
    let file = PathBuf::from(format!("{name}.onnx"));
    Found {
        name: name.to_owned(),
        versions: vec![FoundVersion {
            version: 1,
            file,
            fingerprint: fingerprint(modified_ns),
            beside: vec![],
        }],
        settings: Ok(ModelSettings::default()),
        settings_fingerprint: None,
        problem: None,
    }
}

fn after_1970(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn changes_are_what_came_went_and_differs() {
    let old = [model("a", 0), model("b", 0), model("c", 0), model("e", 0)];
    let new = [model("b", 0), model("c", 7), model("d", 0), model("e", 0), model("f", 0)];
    let expected = [
        Change::Removed("a".to_owned()),
        Change::Changed("c".to_owned()),
        Change::Added("d".to_owned()),
        Change::Added("f".to_owned()),
    ];
    assert_eq!(changes(&old, &new), expected);
    assert_eq!(changes(&new, &new), []);
}

#[test]
fn a_new_version_other_settings_and_a_problem_are_changes() {
    let old = model("a", 0);
    let mut version = old.clone();
    version.versions.push(FoundVersion { version: 2, ..old.versions[0].clone() });
    let mut settings = old.clone();
    settings.settings_fingerprint = Some(fingerprint(0));
    let mut unreadable = old.clone();
    unreadable.settings = Err("unreadable".to_owned());
    let mut problem = old.clone();
    problem.problem = Some("broken".to_owned());
    for new in [version, settings, unreadable, problem] {
        let expected = [Change::Changed("a".to_owned())];
        assert_eq!(changes(std::slice::from_ref(&old), std::slice::from_ref(&new)), expected, "{new:?}");
    }
}

#[test]
fn a_constant_that_is_not_a_number_is_no_change() {
    let mut old = model("a", 0);
    let mut settings = ModelSettings::default();
    let nan = Constant { shape: vec![], values: Values::Floats(vec![f64::NAN]) };
    settings.constants.insert("x".to_owned(), nan);
    old.settings = Ok(settings);
    assert_eq!(changes(std::slice::from_ref(&old), std::slice::from_ref(&old.clone())), []);
}

#[test]
fn a_file_settles_a_second_after_its_last_write() {
    let found = model("a", 10 * SECOND_NS);
    assert!(!found.settled(after_1970(10)));
    assert!(found.settled(after_1970(11)));
}

#[test]
fn settings_must_settle_too() {
    let mut found = model("a", 0);
    found.settings_fingerprint = Some(fingerprint(20 * SECOND_NS));
    assert!(!found.settled(after_1970(20)));
    assert!(found.settled(after_1970(21)));
}

#[test]
fn a_file_from_a_far_future_does_not_wait_for_it() {
    assert!(model("a", 1000 * SECOND_NS).settled(after_1970(5)));
    assert!(!model("a", 5 * SECOND_NS + 1).settled(after_1970(5)));
}
