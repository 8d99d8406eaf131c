use super::{from_file, refusal};
use crate::config::*;
use bytesize::ByteSize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[test]
fn an_empty_file_is_the_defaults() {
    let config = from_file("").unwrap();
    assert_eq!(config, Config::default());
    assert_eq!(config.server.listen, SocketAddr::from(([127, 0, 0, 1], 8000)));
    assert_eq!(config.memory.reserve, Reserve::Percent(10));
    assert_eq!(config.models.watch, Some(Duration::from_secs(2)));
}

#[test]
fn every_form_of_a_value_is_read() {
    let config = from_file(
        r#"
        [server]
        max_body = 1048576
        body_budget = "2.5 MiB"
        request_timeout = "1m 30s"
        admin_token_file = "/run/token"
        max_header = 2048
        [memory]
        reserve = "200MiB"
        ceiling = "2GiB"
        [lanes]
        workspace = "64MiB"
        [models]
        load = ["a", "b"]
        watch = false
        replace = "unload_first"
        [log]
        level = "debug"
        format = "json"
        arrivals = "a.csv"
        "#,
    )
    .unwrap();
    assert_eq!(config.server.max_body, ByteSize::mib(1));
    assert_eq!(config.server.body_budget, Some(ByteSize::kib(2560)));
    assert_eq!(config.server.request_timeout, Duration::from_secs(90));
    assert_eq!(config.server.admin_token_file, Some(PathBuf::from("/run/token")));
    assert_eq!(config.server.max_header, ByteSize::kib(2));
    assert_eq!(config.memory.reserve, Reserve::Size(ByteSize::mib(200)));
    assert_eq!(config.lanes.workspace, Workspace::Size(ByteSize::mib(64)));
    assert_eq!(config.models.load, Load::Names(vec!["a".to_owned(), "b".to_owned()]));
    assert_eq!(config.models.watch, None);
    assert_eq!(config.models.replace, Replace::UnloadFirst);
    let arrivals = Some(PathBuf::from("a.csv"));
    assert_eq!(config.log, Log { level: Some(Level::Debug), format: Format::Json, arrivals });
}

/// A file of an operator's first attempt.
const WRONG_KEY: &str = "\
# Leave half of the memory to the cameras.
[server]
listen = \"0.0.0.0:8000\"

[memory]
headroom = \"64MiB\"
cieling = \"2GiB\"
";

#[test]
fn a_wrong_key_names_its_line_and_the_nearest_right_one() {
    assert_eq!(
        refusal(from_file(WRONG_KEY)),
        "plimsoll.toml:7:1: unknown key `cieling` in [memory]; did you mean `ceiling`? \
         (keys: ceiling, headroom, reserve)"
    );
}

#[test]
fn a_wrong_section_names_its_line_and_the_nearest_right_one() {
    assert_eq!(
        refusal(from_file("\n[serve]\nlisten = \"0.0.0.0:80\"\n")),
        "plimsoll.toml:2:2: unknown key `serve` at the top level; did you mean `server`? \
         (keys: batching, cache, device, lanes, log, memory, models, server)"
    );
}

#[test]
fn a_key_like_no_other_is_offered_none() {
    assert_eq!(
        refusal(from_file("[cache]\nzzz = 1")),
        "plimsoll.toml:2:1: unknown key `zzz` in [cache] (keys: dir)"
    );
}

#[test]
fn a_wrong_value_names_its_place_what_was_expected_and_what_came() {
    for (text, expected) in [
        (
            "[server]\n\nlisten = 8000",
            "3:10: `listen` in [server]: expected an address with a port such as \"127.0.0.1:8000\", \
             got integer `8000`",
        ),
        (
            "[server]\nlisten = \"localhost\"",
            "2:10: `listen` in [server]: expected an address with a port such as \"127.0.0.1:8000\", \
             got string \"localhost\"",
        ),
        (
            "[server]\nrequest_timeout = 30",
            "2:19: `request_timeout` in [server]: expected a duration from 1ms to a year such as \"30s\", \
             got integer `30`",
        ),
        (
            "[server]\nshutdown_grace = \"9000y\"",
            "2:18: `shutdown_grace` in [server]: expected a duration of at most a year such as \"30s\", \
             got string \"9000y\"",
        ),
        (
            "[server]\nmax_header = \"1MiB\"",
            "2:14: `max_header` in [server]: expected a size from \"1KiB\" to \"256KiB\", got string \"1MiB\"",
        ),
        (
            "[device]\nkind = \"gpu\"",
            "2:8: `kind` in [device]: expected one of \"auto\", \"cpu\", \"cuda\", got string \"gpu\"",
        ),
        (
            "[device]\nthreads = 0",
            "2:11: `threads` in [device]: expected a whole number from 1 to 1024, got integer `0`",
        ),
        (
            "[memory]\nceiling = \"2GX\"",
            "2:11: `ceiling` in [memory]: expected a size above zero such as \"2GiB\", got string \"2GX\"",
        ),
        (
            "[memory]\nheadroom = -1",
            "2:12: `headroom` in [memory]: expected a size such as \"2GiB\", got integer `-1`",
        ),
        (
            "[memory]\nreserve = \"91%\"",
            "2:11: `reserve` in [memory]: expected a size such as \"200MiB\" or a share of the ceiling from \
             \"0%\" to \"90%\", got string \"91%\"",
        ),
        (
            "[lanes]\nsteady = 0",
            "2:10: `steady` in [lanes]: expected a whole number from 1 to 1024, got integer `0`",
        ),
        (
            "[lanes]\nworkspace = true",
            "2:13: `workspace` in [lanes]: expected \"auto\" or a size above zero such as \"64MiB\", \
             got boolean `true`",
        ),
        ("[models]\npath = \"\"", "2:8: `path` in [models]: expected a path, got string \"\""),
        (
            "[models]\nload = \"some\"",
            "2:8: `load` in [models]: expected \"all\", \"on_demand\" or a list of names such as \
             [\"digits\"], got string \"some\"",
        ),
        ("[models]\nload = [\"a\", 1]", "2:14: `load` in [models]: expected a string, got integer `1`"),
        (
            "[models]\nwatch = true",
            "2:9: `watch` in [models]: expected false or a duration of at least 100ms such as \"2s\", \
             got boolean `true`",
        ),
        (
            "[models]\nreplace = \"always\"",
            "2:11: `replace` in [models]: expected one of \"keep\", \"unload_first\", got string \"always\"",
        ),
        ("log = 3", "1:7: `log` at the top level: expected a table, got integer `3`"),
        (
            "[log]\nlevel = { a = 1 }",
            "2:9: `level` in [log]: expected one of \"error\", \"warn\", \"info\", \"debug\", \"trace\", got a table",
        ),
    ] {
        assert_eq!(refusal(from_file(text)), format!("plimsoll.toml:{expected}"), "{text}");
    }
}

#[test]
fn bad_syntax_names_its_place() {
    for (text, place) in [("[server\n", "1:8: "), ("[log]\nlevel =\n", "2:8: "), ("[log]\n[log]\n", "2:2: ")]
    {
        let refusal = refusal(from_file(text));
        assert!(refusal.starts_with(&format!("plimsoll.toml:{place}")), "{text}: {refusal}");
    }
}

#[test]
fn a_column_counts_characters() {
    let refusal = refusal(from_file("cache = { dir = \"öä\", \"größe\" = 1 }"));
    assert!(refusal.starts_with("plimsoll.toml:1:23: unknown key `größe` in [cache]"), "{refusal}");
}

#[test]
fn values_that_contradict_each_other_are_refused_with_both() {
    for (text, expected) in [
        (
            "[server]\nbody_budget = \"1MiB\"",
            "server.body_budget (1.0 MiB) is less than twice server.max_body (64 MiB): \
             the budget must hold a body of full size and the answer to it",
        ),
        (
            "[server]\ntls_key = \"key.pem\"",
            "server.tls_key is set and server.tls_cert is not: TLS needs the certificate and its key",
        ),
        (
            "[batching]\nmax_delay = \"30s\"",
            "batching.max_delay (30s) is not below server.request_timeout (30s): \
             a request would time out while it waits for company",
        ),
        (
            "[memory]\nceiling = \"64MiB\"",
            "memory.ceiling (64 MiB) is not above memory.headroom (64 MiB): nothing is left for models",
        ),
        (
            "[memory]\nceiling = \"200MiB\"\nreserve = \"190MiB\"",
            "memory.reserve (190 MiB) is more than 90% of memory.ceiling (200 MiB), which is 180 MiB",
        ),
        (
            "[memory]\nceiling = \"200MiB\"\nreserve = \"70%\"",
            "memory.reserve (140 MiB) and memory.headroom (64 MiB) leave nothing for models under \
             memory.ceiling (200 MiB)",
        ),
    ] {
        assert_eq!(refusal(from_file(text)), expected);
    }
}

#[test]
fn a_named_file_that_is_not_there_is_an_error() {
    let error = load(Some(Path::new("nowhere/p.toml")), [], &Flags::default()).unwrap_err().to_string();
    assert!(error.starts_with("cannot read nowhere/p.toml: "), "{error}");
}
