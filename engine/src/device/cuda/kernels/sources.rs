//! The heavy kernels' sources, as one text a program: what they include is put in place, once.

/// A program, compiled as one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    /// Its name; the file's without `.cu`.
    pub(crate) name: &'static str,
    text: &'static str,
    /// Whether it is for `sm_90a` alone, whose binaries run on compute capability 9.0 and nowhere else.
    pub(crate) sm_90a: bool,
}

/// The programs.
pub(crate) const SOURCES: [Source; 6] = [
    Source { name: "gemm", text: include_str!("gemm.cu"), sm_90a: false },
    Source { name: "conv", text: include_str!("conv.cu"), sm_90a: false },
    Source { name: "few", text: include_str!("few.cu"), sm_90a: false },
    Source { name: "depthwise", text: include_str!("depthwise.cu"), sm_90a: false },
    Source { name: "attention", text: include_str!("attention.cu"), sm_90a: false },
    Source { name: "wide", text: include_str!("wide.cu"), sm_90a: true },
];

/// What they include.
const HEADERS: [(&str, &str); 6] = [
    ("ptx.cuh", include_str!("ptx.cuh")),
    ("div.cuh", include_str!("div.cuh")),
    ("epilogue.cuh", include_str!("epilogue.cuh")),
    ("arithmetic.cuh", include_str!("arithmetic.cuh")),
    ("tile.cuh", include_str!("tile.cuh")),
    ("wide.cuh", include_str!("wide.cuh")),
];

impl Source {
    /// The text that is compiled; it includes nothing.
    pub(crate) fn text(&self) -> String {
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
