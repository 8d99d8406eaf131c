use super::text::{escaped, fitted, mib, width_px};
use super::*;

fn drawn(
    name: &str,
    bytes: u64,
    offset_bytes: u64,
    first_step: usize,
    last_step: usize,
    kind: Kind,
) -> Drawn<'_> {
    Drawn { name, bytes, offset_bytes, first_step, last_step, kind }
}

/// Checks what a parser would refuse: that elements close in order, and that no text holds a bare `<` or `&`.
fn well_formed(xml: &str) {
    let mut open = Vec::new();
    let mut rest = xml;
    while let Some(start) = rest.find('<') {
        let (text, tag) = rest.split_at(start);
        for after in text.split('&').skip(1) {
            assert!(["amp;", "lt;", "gt;", "quot;", "#39;"].iter().any(|e| after.starts_with(e)), "{text}");
        }
        let end = tag.find('>').expect("a tag ends");
        let inside = &tag[1..end];
        assert!(!inside.contains('<') && inside.matches('"').count() % 2 == 0, "{inside}");
        let name = inside.trim_start_matches('/').split([' ', '/']).next().unwrap();
        if inside.starts_with('/') {
            assert_eq!(open.pop(), Some(name));
        } else if !inside.ends_with('/') {
            open.push(name);
        }
        rest = &tag[end + 1..];
    }
    assert!(open.is_empty() && rest.trim().is_empty());
    assert!(!xml.contains("NaN") && !xml.contains("inf"));
    assert!(xml.chars().all(|c| c == '\n' || (c >= ' ' && c != '\u{fffe}' && c != '\u{ffff}')));
}

fn plan() -> (Vec<Drawn<'static>>, Vec<&'static str>) {
    let mib = 1 << 20;
    let buffers = vec![
        drawn("image", mib, 3 * mib, 0, 0, Kind::Input),
        drawn("conv_0", 3 * mib, 0, 0, 2, Kind::Value),
        drawn("conv_1", 2 * mib, 3 * mib, 1, 2, Kind::Value),
        drawn("patches", mib, 5 * mib, 1, 1, Kind::Scratch),
        drawn("logits", mib, 5 * mib, 2, 3, Kind::Output),
    ];
    (buffers, vec!["conv_0", "conv_1", "add", "softmax"])
}

#[test]
fn a_plan_is_drawn_whole() {
    let (buffers, steps) = plan();
    let xml = svg("small", &buffers, &steps, 6 << 20);
    well_formed(&xml);
    for part in [
        "<title>conv_1: 2.0 MiB (2097152 bytes) at offset 3145728, steps 1 to 2, value</title>",
        "<title>patches: 1.0 MiB (1048576 bytes) at offset 5242880, step 1, scratch</title>",
        "workspace 6.0 MiB, live peak 6.0 MiB at step 1 (conv_1), 5 buffers, 4 steps",
        "load line 6.0 MiB",
        "prefers-color-scheme:dark",
        ">softmax</text>",
    ] {
        assert!(xml.contains(part), "{part} is not in\n{xml}");
    }
    assert!(!xml.contains("<script") && !xml.contains("@import") && !xml.contains("url("));
}

#[test]
fn rectangles_lie_where_their_bytes_do() {
    let xml =
        svg("", &[drawn("a", 100, 0, 0, 0, Kind::Value), drawn("b", 100, 100, 1, 1, Kind::Value)], &[], 200);
    // Two steps of 380 each from 84; 460 high for 210 bytes, so that 100 bytes are 219.05.
    assert!(
        xml.contains(r#"<rect class="value" x="84.00" y="336.95" width="380.00" height="219.05"/>"#),
        "{xml}"
    );
    assert!(
        xml.contains(r#"<rect class="value" x="464.00" y="117.90" width="380.00" height="219.05"/>"#),
        "{xml}"
    );
}

#[test]
fn hostile_names_are_only_text() {
    let name = "</title><script>&\"'\u{0}\u{1b}\u{ffff}\n 層";
    let xml = svg(name, &[drawn(name, 1 << 20, 0, 0, 3, Kind::Value)], &[name, name], 1 << 20);
    well_formed(&xml);
    assert!(!xml.contains("<script"));
}

#[test]
fn odd_plans_are_drawn_all_the_same() {
    well_formed(&svg("nothing", &[], &[], 0));
    well_formed(&svg("steps only", &[], &["a", "b"], 0));
    well_formed(&svg("zero", &[drawn("z", 0, 0, 0, 0, Kind::Value)], &[], 0));
    well_formed(&svg("backwards", &[drawn("z", 5, 0, 7, 2, Kind::Value)], &["a"], 5));
    well_formed(&svg("huge", &[drawn("z", u64::MAX, u64::MAX, 0, usize::MAX, Kind::Output)], &[], u64::MAX));
    let above = svg("above the line", &[drawn("z", 100, 100, 0, 0, Kind::Value)], &[], 50);
    well_formed(&above);
    assert!(above.contains("load line 50 bytes"));
}

#[test]
fn many_steps_are_not_all_numbered() {
    let names = vec!["a rather long name of a step"; 1000];
    let xml = svg("long", &[drawn("a", 1, 0, 0, 999, Kind::Value)], &names, 1);
    well_formed(&xml);
    assert!(xml.matches("tick middle").count() <= 110);
}

#[test]
fn text_is_cut_to_its_room() {
    assert_eq!(fitted("conv", 100.0).as_deref(), Some("conv"));
    assert_eq!(fitted("", 100.0), None);
    assert_eq!(fitted("convolution", 20.0), None);
    let cut = fitted("convolution_of_something", 60.0).unwrap();
    assert!(cut.ends_with('\u{2026}') && width_px(&cut) <= 60.0, "{cut}");
    assert_eq!(escaped("a<b>&\"'\u{7}"), "a&lt;b&gt;&amp;&quot;&#39;\u{fffd}");
    assert_eq!((mib(2.0, 0.5), mib(20.0, 5.0), mib(0.02, 0.01)), ("2.0".into(), "20".into(), "0.02".into()));
}
