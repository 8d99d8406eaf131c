//! What launchers share: kernels by name, where launches go, and what no kernel here can do.

use super::grid::Grid;
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{CUdeviceptr, CUfunction, CUstream};

/// Kernels that have been loaded.
pub(crate) trait Functions {
    /// The kernel of that name.
    ///
    /// # Errors
    /// It is not loaded.
    fn function(&self, name: &'static str) -> Result<CUfunction, DriverError>;

    /// Whether a launch may begin before the one ahead of it in the stream is done: kernels wait by themselves then.
    fn dependent(&self) -> bool;
}

/// Where launches go.
#[derive(Clone, Copy)]
pub(crate) struct Queue<'a> {
    /// The kernels.
    pub(crate) functions: &'a dyn Functions,
    /// In order after what this stream already has.
    pub(crate) stream: CUstream,
}

/// What no kernel here can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unsupported {
    /// Positions are 31 bits.
    #[error("{0} elements, fewer than 2^31 can be addressed")]
    TooLarge(usize),
    /// Axes that do not step as one.
    #[error("{have} axes that do not step as one, at most {most} fit")]
    Axes {
        /// How many are there.
        have: usize,
        /// How many fit.
        most: usize,
    },
    /// A chain that does not fit in the kernel's arguments.
    #[error("a chain of {have} {what}, at most {most} fit")]
    Chain {
        /// Of what.
        what: &'static str,
        /// How many are there.
        have: usize,
        /// How many fit.
        most: usize,
    },
    /// A chain without an operation, or one that reads what is not computed yet.
    #[error("a chain without a result")]
    Empty,
    /// Elements that the kernel does not know.
    #[error("elements of {0}")]
    Elements(crate::tensor::DType),
    /// Anything else.
    #[error("{0}")]
    Other(&'static str),
}

/// How floating-point elements are stored; all arithmetic is f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub(crate) enum Float {
    F32,
    F16,
}

impl Float {
    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        if self == Float::F32 { 4 } else { 2 }
    }

    /// Elements that an access of 16 bytes moves.
    pub(crate) fn pack(self) -> usize {
        16 / self.bytes()
    }
}

impl Queue<'_> {
    /// Launches a kernel whose one parameter is `args`; nothing where the grid is empty.
    ///
    /// # Safety
    /// `args` is what the kernel takes, and the memory that it names is valid for what the kernel does with
    /// it until the stream has come past the launch.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        kernel: &'static str,
        grid: u32,
        block: (u32, u32),
        shared_bytes: u32,
        args: &A,
    ) -> Result<(), DriverError> {
        if grid == 0 {
            return Ok(());
        }
        let function = self.functions.function(kernel)?;
        let dependent = self.functions.dependent();
        let grid = Grid { blocks: [grid, 1, 1], shared_bytes, dependent, ..Grid::default() };
        // SAFETY: the caller's promise.
        unsafe { grid.launch_by(function, [block.0, block.1], self.stream, args) }
    }
}

/// Blocks that cover so many units.
pub(crate) fn blocks(units: usize, per_block: usize) -> u32 {
    units.div_ceil(per_block) as u32
}

/// Whether an address is a multiple of so many bytes.
pub(crate) fn aligned(address: CUdeviceptr, bytes: usize) -> bool {
    address.is_multiple_of(bytes as u64)
}
