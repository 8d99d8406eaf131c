//! Text in a picture: what XML may hold, and how wide it will be.

/// `text` as XML: markup is escaped, and characters that XML 1.0 does not allow become U+FFFD.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\t' | '\n' | '\r' => out.push(' '),
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            other => out.push(other),
        }
    }
    out
}

/// About how wide `text` is at the labels' 11 px, in px; a little too wide rather than too narrow, for there is no
/// font at hand to ask.
pub(super) fn width_px(text: &str) -> f64 {
    text.chars().map(character_px).sum()
}

fn character_px(character: char) -> f64 {
    match character {
        'i' | 'j' | 'l' | '.' | ',' | ':' | ';' | '|' | '\'' | ' ' => 3.6,
        'm' | 'w' | 'M' | 'W' | '@' => 10.0,
        'A'..='Z' | '\u{2026}' => 8.0,
        '\0'..='\u{2e7f}' => 6.6,
        // Chinese, Japanese and Korean characters are as wide as they are high.
        _ => 11.5,
    }
}

/// `text` escaped, cut with … to `room` px; none if there is no text, or fewer than five characters would be left.
pub(super) fn fitted(text: &str, room: f64) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    if width_px(text) <= room {
        return Some(escaped(text));
    }
    let mut left = room - character_px('\u{2026}');
    let fits = |character: &char| {
        left -= character_px(*character);
        left >= 0.0
    };
    let kept: String = text.chars().take_while(fits).collect();
    (kept.chars().count() >= 5).then(|| format!("{}\u{2026}", escaped(&kept)))
}

/// A tick of the axis in MiB, with as many digits as ticks `step` apart need.
pub(super) fn mib(value: f64, step: f64) -> String {
    let digits = (-step.log10().floor()).clamp(0.0, 7.0) as usize;
    format!("{value:.digits$}")
}
