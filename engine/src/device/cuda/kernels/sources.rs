//! The kernels' sources, each as one text: what they include is put in place, once, so that no compiler has to look for
//! files.

/// A source that is compiled as one.
#[derive(Clone, Copy, Debug)]
pub(in crate::device::cuda) struct Source {
    /// Its name; the file's without `.cu`.
    pub(in crate::device::cuda) name: &'static str,
    text: &'static str,
    /// Whether it uses what compute capability 9.0 has and no other, later ones included (`sm_90a`).
    pub(in crate::device::cuda) only_90: bool,
}

macro_rules! source {
    ($name:literal, $only_90:literal) => {
        Source { name: $name, text: include_str!(concat!($name, ".cu")), only_90: $only_90 }
    };
}

const SOURCES: [Source; 17] = [
    source!("gemm", false),
    source!("conv", false),
    source!("few", false),
    source!("wide", true),
    source!("depthwise", false),
    source!("attention", false),
    source!("transpose_conv", false),
    source!("pointwise", false),
    source!("softmax", false),
    source!("norm", false),
    source!("reduce", false),
    source!("pool", false),
    source!("resize", false),
    source!("copy", false),
    source!("pad", false),
    source!("gather", false),
    source!("cast", false),
];

/// What they include.
const HEADERS: [(&str, &str); 8] = [
    ("dependent.cuh", include_str!("dependent.cuh")),
    ("ptx.cuh", include_str!("ptx.cuh")),
    ("div.cuh", include_str!("div.cuh")),
    ("epilogue.cuh", include_str!("epilogue.cuh")),
    ("arithmetic.cuh", include_str!("arithmetic.cuh")),
    ("tile.cuh", include_str!("tile.cuh")),
    ("wide.cuh", include_str!("wide.cuh")),
    ("prelude.cuh", include_str!("prelude.cuh")),
];

/// The sources that there are for a GPU of that compute capability.
pub(in crate::device::cuda) fn sources(capability: u32) -> impl Iterator<Item = &'static Source> {
    SOURCES.iter().filter(move |source| !source.only_90 || capability == 90)
}

impl Source {
    /// The text that is compiled; it includes nothing.
    pub(in crate::device::cuda) fn text(&self) -> String {
        let mut out = String::new();
        put(self.text, &mut vec![], &mut out);
        out
    }
}

/// Adds a text with what it includes, but for what is there already.
fn put(text: &str, there: &mut Vec<&str>, out: &mut String) {
    for line in text.lines().filter(|line| *line != "#pragma once") {
        let name = line.strip_prefix("#include \"").and_then(|rest| rest.strip_suffix('"'));
        match HEADERS.iter().find(|(header, _)| name == Some(header)) {
            Some((header, _)) if there.contains(header) => {}
            Some((header, text)) => {
                there.push(header);
                put(text, there, out);
            }
            None => {
                out.push_str(line);
                out.push('\n');
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::SOURCES;

    #[test]
    fn texts_include_nothing_and_nothing_twice() {
        for source in SOURCES {
            let text = source.text();
            assert!(!text.contains("#include"), "{}", source.name);
            for once in ["struct Div {", "struct F16 :", "enum Act {"] {
                assert!(text.matches(once).count() <= 1, "{} has {once} twice", source.name);
            }
            assert!(text.contains("extern \"C\" __global__"), "{}", source.name);
        }
    }
}
