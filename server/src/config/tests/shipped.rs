use super::from_file;
use crate::config::keys::keys;
use crate::config::*;
use bytesize::ByteSize;
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../config")
}

/// The reference file with every `#key = value` made active.
fn uncommented() -> String {
    let text = fs::read_to_string(folder().join("plimsoll.toml")).unwrap();
    let active = |line: &str| match line.strip_prefix('#') {
        Some(setting) if setting.starts_with(|first: char| first.is_ascii_lowercase()) => setting.to_owned(),
        _ => line.to_owned(),
    };
    text.lines().map(active).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_file_that_ships_is_right() {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder()).unwrap() {
        let path = entry.unwrap().path();
        if let Err(error) = load(Some(&path), [], &Flags::default()) {
            panic!("{error}");
        }
        names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
    }
    names.sort();
    let expected = [
        "cpu.toml",
        "desktop.toml",
        "jetson-agx-orin.toml",
        "jetson-orin-nano-4gb.toml",
        "jetson-orin-nano-8gb.toml",
        "plimsoll.toml",
    ];
    assert_eq!(names, expected);
}

#[test]
fn the_reference_file_changes_nothing_as_it_is() {
    let text = fs::read_to_string(folder().join("plimsoll.toml")).unwrap();
    assert_eq!(from_file(&text).unwrap(), Config::default());
}

#[test]
fn the_reference_file_mentions_every_key() {
    let table: toml::Table = uncommented().parse().unwrap();
    for (section, keys) in keys() {
        for key in keys {
            assert!(table[section].get(key).is_some(), "[{section}] {key}");
        }
    }
}

#[test]
fn the_reference_file_gives_the_defaults() {
    let mut config = from_file(&uncommented()).unwrap();
    // These have no default, so the file shows an example.
    assert!(config.server.admin_token_file.take().is_some());
    assert!(config.server.tls_cert.take().is_some() && config.server.tls_key.take().is_some());
    assert!(config.memory.ceiling.take().is_some());
    assert!(config.device.kernels.take().is_some());
    assert!(config.lanes.steady.take().is_some());
    assert!(config.cache.dir.take().is_some());
    assert!(config.server.body_budget.take().is_some());
    assert!(config.log.arrivals.take().is_some());
    // But for `check`.
    assert_eq!(config.log.level.take(), Some(Level::Info));
    assert_eq!(config, Config::default());
}

#[test]
fn the_lines_of_every_profile_leave_most_of_the_ceiling_to_the_slab() {
    for name in ["cpu", "desktop", "jetson-orin-nano-4gb", "jetson-orin-nano-8gb", "jetson-agx-orin"] {
        let config = load(Some(&folder().join(format!("{name}.toml"))), [], &Flags::default()).unwrap();
        let limits = config.memory.limits(u64::MAX).unwrap();
        let (_, bodies) = config.server.bodies(limits.ceiling);
        assert!(bodies + limits.headroom < ByteSize::b(limits.ceiling.as_u64() / 2), "{name}");
    }
}
