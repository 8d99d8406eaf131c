use super::{from_both, from_variables, refusal};
use crate::config::keys::{fields, keys, variable_name};
use crate::config::source::assemble;
use crate::config::*;
use bytesize::ByteSize;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn a_variable_wins_over_the_file_and_a_flag_over_both() {
    let file = (Path::new("p.toml"), "[memory]\nceiling = \"1GiB\"\nheadroom = \"8MiB\"");
    let variable = || [(OsString::from("PLIMSOLL_MEMORY__CEILING"), OsString::from("2GiB"))];
    let flags = Flags { ceiling: Some(ByteSize::gib(3)), ..Flags::default() };
    let ceiling = |config: Result<Config, ConfigError>| config.unwrap().memory.ceiling;
    assert_eq!(ceiling(assemble(Some(file), [], &Flags::default())), Some(ByteSize::gib(1)));
    assert_eq!(ceiling(assemble(Some(file), variable(), &Flags::default())), Some(ByteSize::gib(2)));
    assert_eq!(ceiling(assemble(Some(file), variable(), &flags)), Some(ByteSize::gib(3)));
    assert_eq!(assemble(Some(file), variable(), &flags).unwrap().memory.headroom, ByteSize::mib(8));
}

#[test]
fn every_flag_overrides_its_key() {
    let flags = Flags {
        models: Some(PathBuf::from("elsewhere")),
        listen: Some(SocketAddr::from(([0, 0, 0, 0], 80))),
        ceiling: Some(ByteSize::gib(3)),
        device: Some(Kind::Cpu),
    };
    let config = assemble(None, [], &flags).unwrap();
    assert_eq!(config.models.path, PathBuf::from("elsewhere"));
    assert_eq!(config.server.listen, SocketAddr::from(([0, 0, 0, 0], 80)));
    assert_eq!((config.memory.ceiling, config.device.kind), (Some(ByteSize::gib(3)), Kind::Cpu));
}

#[test]
fn a_flag_that_contradicts_the_file_is_refused() {
    let file = (Path::new("p.toml"), "[memory]\nheadroom = \"1GiB\"");
    let flags = Flags { ceiling: Some(ByteSize::mib(512)), ..Flags::default() };
    let refusal = refusal(assemble(Some(file), [], &flags));
    assert!(refusal.starts_with("memory.ceiling (512 MiB) is not above memory.headroom"), "{refusal}");
}

#[test]
fn a_variable_is_a_toml_value_where_the_key_can_have_it_and_else_a_string() {
    let config = from_variables(&[
        ("PLIMSOLL_MEMORY__CEILING", "2GiB"),
        ("PLIMSOLL_MEMORY__HEADROOM", "1048576"),
        ("PLIMSOLL_DEVICE__THREADS", "8"),
        ("PLIMSOLL_MODELS__LOAD", r#"["a", "b"]"#),
        ("PLIMSOLL_MODELS__WATCH", "false"),
        ("PLIMSOLL_MODELS__PATH", "2024"),
        ("PLIMSOLL_CACHE__DIR", "true"),
        ("PLIMSOLL_LOG__LEVEL", "\"debug\""),
        ("PLIMSOLL_BATCHING__MAX_DELAY", "0"),
    ])
    .unwrap();
    assert_eq!((config.memory.ceiling, config.memory.headroom), (Some(ByteSize::gib(2)), ByteSize::mib(1)));
    assert_eq!(config.device.threads, 8);
    assert_eq!(config.models.load, Load::Names(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(config.models.watch, None);
    assert_eq!(config.models.path, PathBuf::from("2024"));
    assert_eq!(config.cache.dir, Some(PathBuf::from("true")));
    assert_eq!(config.log.level, Some(Level::Debug));
    assert_eq!(config.batching.max_delay, Duration::ZERO);
}

#[test]
fn a_variable_leaves_the_other_keys_of_its_section() {
    let config = from_both("[device]\nindex = 1", &[("PLIMSOLL_DEVICE__KIND", "cuda")]).unwrap();
    assert_eq!(config.device, Device { kind: Kind::Cuda, index: 1, ..Device::default() });
}

#[test]
fn a_wrong_variable_is_named_with_the_nearest_right_one() {
    for (name, right) in [
        ("PLIMSOLL_MEMORY__CIELING", "PLIMSOLL_MEMORY__CEILING"),
        ("PLIMSOLL_MEMORY_CEILING", "PLIMSOLL_MEMORY__CEILING"),
        ("PLIMSOLL_LOGS__LEVEL", "PLIMSOLL_LOG__LEVEL"),
        ("PLIMSOLL_LISTEN", "PLIMSOLL_SERVER__LISTEN"),
    ] {
        let expected = format!("{name}: unknown variable; did you mean {right}?");
        assert_eq!(refusal(from_variables(&[(name, "1")])), expected);
    }
}

#[test]
fn a_wrong_value_names_its_variable() {
    assert_eq!(
        refusal(from_variables(&[("PLIMSOLL_LANES__STEADY", "eight")])),
        "PLIMSOLL_LANES__STEADY: expected a whole number from 1 to 1024, got string \"eight\""
    );
    assert_eq!(
        refusal(from_variables(&[("PLIMSOLL_LANES__STEADY", "0")])),
        "PLIMSOLL_LANES__STEADY: expected a whole number from 1 to 1024, got integer `0`"
    );
}

#[test]
fn bytes_that_are_no_text_are_refused_only_under_our_names() {
    let bytes = || OsString::from_vec(vec![0xff]);
    assert!(
        assemble(None, [(OsString::from("PATH"), bytes()), (bytes(), bytes())], &Flags::default()).is_ok()
    );
    let ours = [(OsString::from("PLIMSOLL_CACHE__DIR"), bytes())];
    assert_eq!(
        refusal(assemble(None, ours, &Flags::default())),
        "PLIMSOLL_CACHE__DIR: expected UTF-8 text, got other bytes"
    );
}

#[test]
fn an_empty_variable_counts_as_not_set() {
    assert_eq!(from_variables(&[("PLIMSOLL_MEMORY__CEILING", "")]).unwrap(), Config::default());
}

#[test]
fn what_others_name_like_us_is_left_alone() {
    let config = from_variables(&[
        ("PLIMSOLL_CONFIG", "p.toml"),
        ("PLIMSOLL_SERVICE_HOST", "10.0.0.1"),
        ("PLIMSOLL_SERVICE_PORT_HTTP", "8000"),
        ("PLIMSOLL_PORT", "tcp://10.0.0.1:8000"),
        ("PLIMSOLL_PORT_8000_TCP_ADDR", "10.0.0.1"),
        ("PLIMSOLL_GPU_PORT", "tcp://10.0.0.2:8000"),
        ("MY_PLIMSOLL_MEMORY__CEILING", "1"),
        ("PLIMSOLLX", "1"),
    ]);
    assert_eq!(config.unwrap(), Config::default());
}

#[test]
fn every_section_has_its_variables() {
    let sections = keys().map(|(section, _)| section);
    assert_eq!(sections, fields::<Config>());
    for (section, keys) in keys() {
        assert!(!keys.is_empty(), "{section}");
    }
    assert_eq!(variable_name("memory", "ceiling"), "PLIMSOLL_MEMORY__CEILING");
}
