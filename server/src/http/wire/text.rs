//! Text that came from a client, cut to what belongs in a sentence.

/// The first characters of a text, and a mark where that is not all of it.
pub(super) fn excerpt(text: &str) -> String {
    const LIMIT: usize = 64;
    match text.char_indices().nth(LIMIT) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Names that exist, for an error about one that does not.
pub(super) fn listed<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const LIMIT: usize = 16;
    let more = names.len().saturating_sub(LIMIT);
    let mut list: Vec<String> = names.take(LIMIT).map(|name| format!("`{name}`")).collect();
    if list.is_empty() {
        return "none".into();
    }
    if more > 0 {
        list.push(format!("and {more} more"));
    }
    list.join(", ")
}

/// The message of a JSON error, which may quote a whole string of the client's.
pub(super) fn json_error(error: &serde_json::Error) -> String {
    const LIMIT: usize = 200;
    let message = error.to_string();
    if message.len() <= LIMIT {
        return message;
    }
    format!("{} at line {} column {}", excerpt(&message), error.line(), error.column())
}
