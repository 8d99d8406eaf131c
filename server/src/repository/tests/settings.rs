use crate::repository::*;
use std::fs;
use std::path::Path;
use std::time::Duration;

fn read(text: &str) -> Result<ModelSettings, String> {
    ModelSettings::read(text, Path::new("digits/model.toml")).map_err(|error| error.to_string())
}

#[test]
fn an_empty_file_is_the_defaults() {
    assert_eq!(read("").unwrap(), ModelSettings::default());
}

#[test]
fn every_key_is_read() {
    let settings = read(
        r#"
        precision = "fp16"
        max_batch = 8
        max_delay = "2ms"
        priority = 9
        pin = true
        memory_limit = "40MiB"
        queue_limit = 16
        timeout = "1s"
        prepare = [{ image = [1, 3, 224, 224] }, { image = [8, 3, 224, 224] }]

        [dims]
        height = 480

        [constants]
        sr = 16000

        [labels]
        scores = ["cat", "dog"]
        "#,
    )
    .unwrap();
    assert_eq!(settings.precision, Some(Precision::Fp16));
    assert_eq!((settings.max_batch, settings.queue_limit), (Some(8), Some(16)));
    assert_eq!(settings.max_delay, Some(Duration::from_millis(2)));
    assert_eq!(settings.timeout, Some(Duration::from_secs(1)));
    assert_eq!((settings.priority, settings.pin), (9, true));
    assert_eq!(settings.memory_limit, Some(bytesize::ByteSize::mib(40)));
    assert_eq!(settings.prepare[1]["image"], [8, 3, 224, 224]);
    assert_eq!(settings.dims["height"], 480);
    assert_eq!(settings.constants["sr"], Constant { shape: vec![], values: Values::Ints(vec![16000]) });
    assert_eq!(settings.labels["scores"], ["cat", "dog"]);
}

#[test]
fn a_wrong_key_names_its_line_and_the_nearest_right_one() {
    assert_eq!(
        read("pin = true\nmax_bach = 8\n").unwrap_err(),
        "digits/model.toml:2:1: unknown key `max_bach` at the top level; did you mean `max_batch`? (keys: \
         constants, dims, labels, max_batch, max_delay, memory_limit, pin, precision, prepare, priority, queue_limit, share, \
         timeout, tuning)"
    );
}

#[test]
fn a_wrong_value_names_what_was_expected_and_what_came() {
    for (text, expected) in [
        (
            "precision = \"int8\"",
            "1:13: `precision` at the top level: expected one of \"fp32\", \"tf32\", \"fp16\", got string \"int8\"",
        ),
        (
            "priority = 10",
            "1:12: `priority` at the top level: expected a whole number from 0 to 9, got integer `10`",
        ),
        (
            "[dims]\nh = 0",
            "2:5: `h` in [dims]: expected a whole number from 1 to 4294967296, got integer `0`",
        ),
        (
            "prepare = [{ x = [1, -1] }]",
            "1:22: `x` in [prepare]: expected a whole number from 1 to 4294967296, got integer `-1`",
        ),
        (
            "share = 1.5",
            "1:9: `share` at the top level: expected a number from 0 to 1 such as 0.25, got floating point `1.5`",
        ),
        (
            "max_batch = 0",
            "1:13: `max_batch` at the top level: expected a whole number from 1 to 65536, got integer `0`",
        ),
        (
            "labels = { scores = \"cat\" }",
            "1:21: `scores` in [labels]: expected an array, got string \"cat\"",
        ),
        (
            "memory_limit = 0",
            "1:16: `memory_limit` at the top level: expected a size above zero such as \"2GiB\", got integer `0`",
        ),
        ("labels = 3", "1:10: `labels` at the top level: expected a table, got integer `3`"),
    ] {
        assert_eq!(read(text).unwrap_err(), format!("digits/model.toml:{expected}"), "{text}");
    }
}

#[test]
fn the_settings_that_ship_are_right() {
    let models = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models");
    let mut checked = 0;
    for folder in fs::read_dir(models).unwrap() {
        let file = folder.unwrap().path().join("model.toml");
        if let Ok(text) = fs::read_to_string(&file) {
            ModelSettings::read(&text, &file).unwrap();
            checked += 1;
        }
    }
    assert!(checked > 0);
}
