//! TOML text → a value, or an error that names the place, the mistake and the remedy.

use super::ConfigError;
use serde::de::DeserializeOwned;
use std::path::Path;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// How alike two keys must be for one to be offered in place of the other; 1 is equal.
const ALIKE: f64 = 0.75;

/// Reads a whole TOML text; `file` is how errors name it.
///
/// # Errors
/// [`ConfigError::Place`]: bad syntax, an unknown key with the nearest right one, or a wrong value with what
/// was expected and what came.
pub(crate) fn read_toml<T: DeserializeOwned>(text: &str, file: &Path) -> Result<T, ConfigError> {
    toml::from_str(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let (line, column) = position(text, at);
        let document = DeTable::parse(text).ok();
        let key = document.as_ref().and_then(|document| key_at(document.get_ref(), at));
        ConfigError::Place { file: file.to_owned(), line, column, message: sentence(error.message(), key) }
    })
}

/// Puts what the deserializer said about a value into our words.
pub(super) fn sentence(said: &str, key: Option<Key>) -> String {
    let unknown = said.strip_prefix("unknown field `").and_then(|rest| rest.split_once("`, "));
    if let Some((wrong, right)) = unknown {
        // The message is the only place where serde tells which keys it knows: each is in backticks.
        let mut keys: Vec<_> = right.split('`').skip(1).step_by(2).collect();
        keys.sort_unstable();
        let section = key.as_ref().map_or_else(String::new, Key::section_text);
        let offer = nearest(wrong, keys.iter().copied())
            .map_or_else(String::new, |right| format!("; did you mean `{right}`?"));
        return format!("unknown key `{wrong}`{section}{offer} (keys: {})", keys.join(", "));
    }
    let subject = key.map_or_else(String::new, |key| format!("`{}`{}: ", key.name, key.section_text()));
    let mismatch = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "));
    match mismatch.and_then(|rest| rest.rsplit_once(", expected ")) {
        Some((got, expected)) => {
            // TOML has its own words for what serde calls a map and a sequence.
            let expected = match expected {
                "a map" => "a table",
                "a sequence" => "an array",
                section if section.starts_with("struct ") => "a table",
                other => other,
            };
            let got = match got {
                "map" => "a table",
                "sequence" => "an array",
                other => other,
            };
            format!("{subject}expected {expected}, got {got}")
        }
        None => format!("{subject}{said}"),
    }
}

/// The candidate most like `wrong`, if any is alike at all.
pub(super) fn nearest<'a>(wrong: &str, candidates: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    candidates
        .map(|candidate| (strsim::jaro_winkler(wrong, candidate), candidate))
        .filter(|(likeness, _)| *likeness >= ALIKE)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// A key of a document and the tables that lead to it.
#[derive(Debug, PartialEq)]
pub(super) struct Key {
    section: Vec<String>,
    name: String,
}

impl Key {
    fn section_text(&self) -> String {
        match self.section.as_slice() {
            [] => " at the top level".to_owned(),
            section => format!(" in [{}]", section.join(".")),
        }
    }

    fn inside(mut self, table: &str) -> Self {
        self.section.insert(0, table.to_owned());
        self
    }
}

/// The key that stands at this byte of the text, or whose value does.
fn key_at(table: &DeTable, at: usize) -> Option<Key> {
    table.iter().find_map(|(name, value)| {
        let key = || Key { section: Vec::new(), name: name.get_ref().to_string() };
        if name.span().contains(&at) {
            return Some(key());
        }
        let deeper = key_in(value, at).map(|found| found.inside(name.get_ref()));
        deeper.or_else(|| value.span().contains(&at).then(key))
    })
}

fn key_in(value: &Spanned<DeValue>, at: usize) -> Option<Key> {
    match value.get_ref() {
        DeValue::Table(table) => key_at(table, at),
        DeValue::Array(items) => items.iter().find_map(|item| key_in(item, at)),
        _ => None,
    }
}

/// Line and column of a byte of the text, in characters, counted from 1.
fn position(text: &str, at: usize) -> (usize, usize) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let line = before.bytes().filter(|byte| *byte == b'\n').count();
    (line + 1, before[line_start..].chars().count() + 1)
}
