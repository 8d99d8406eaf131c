//! The kernels: their sources, and beside each the launcher that chooses among them.

pub(super) mod attention;
mod axes;
pub(super) mod cast;
pub(super) mod conv;
pub(super) mod copy;
pub(super) mod depthwise;
pub(super) mod einsum;
pub(super) mod epilogue;
mod few;
pub(super) mod gather;
pub(super) mod gemm;
pub(super) mod grid;
pub(super) mod launch;
pub(super) mod norm;
mod pack;
pub(super) mod pad;
pub(super) mod pointwise;
pub(super) mod pool;
pub(super) mod reduce;
pub(super) mod resize;
pub(super) mod softmax;
mod sources;
mod split;
pub(super) mod tile;
mod transpose;
pub(super) mod transpose_conv;
mod units;

/// A source that is compiled as one and includes nothing.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// Its name, unique among sources.
    pub(super) name: &'static str,
    /// The source.
    pub(super) text: String,
    /// Whether it uses what compute capability 9.0 has and no other, later ones included.
    pub(super) only_90: bool,
}

const PROGRAMS: [launch::Program; 12] = [
    pointwise::PROGRAM,
    softmax::PROGRAM,
    norm::PROGRAM,
    reduce::PROGRAM,
    pool::PROGRAM,
    resize::PROGRAM,
    copy::PROGRAM,
    pad::PROGRAM,
    gather::PROGRAM,
    cast::PROGRAM,
    einsum::PROGRAM,
    transpose_conv::PROGRAM,
];

/// The sources that there are for a GPU of that compute capability.
pub(super) fn sources(capability: u32) -> Vec<Source> {
    let heavy = sources::SOURCES.iter().map(|source| Source {
        name: source.name,
        text: source.text(),
        only_90: source.sm_90a,
    });
    let light = PROGRAMS.iter().map(|program| Source {
        name: program.name,
        text: program.source.into(),
        only_90: false,
    });
    heavy.chain(light).filter(|source| !source.only_90 || capability == 90).collect()
}

/// The name of the source that has a kernel.
pub(super) fn source_of(kernel: &str) -> Option<&'static str> {
    if let Some(program) = PROGRAMS.iter().find(|program| program.kernels.contains(&kernel)) {
        return Some(program.name);
    }
    let name = match kernel.split('_').next()? {
        "conv" if kernel.contains("_few_") => "few",
        "conv" | "gemm" if kernel.contains("_wide_") => "wide",
        name => name,
    };
    sources::SOURCES.iter().map(|source| source.name).find(|known| *known == name)
}
