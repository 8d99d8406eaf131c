//! One launch of a heavy kernel: its grid, and how it follows the launch before it.

use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{
    self, CUfunction, CUlaunchAttribute, CUlaunchAttributeID, CUlaunchAttributeValue, CUlaunchConfig,
    CUstream,
};
use std::ffi::c_void;

/// What of a GPU decides which kernels are tried.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gpu {
    /// Its multiprocessors.
    pub(crate) processors: usize,
    /// Shared memory that one block may have, in bytes.
    pub(crate) shared_bytes: usize,
    /// Compute capability, 90 for 9.0. From there on there are clusters and dependent launches.
    pub(crate) capability: u32,
}

/// Blocks, threads and shared memory of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Blocks along x, y and z.
    pub(crate) blocks: [u32; 3],
    /// Threads of a block.
    pub(crate) threads: u32,
    /// Dynamic shared memory of a block. More than 48 KiB must have been allowed to the function when it was loaded.
    pub(crate) shared_bytes: u32,
    /// Blocks along z that form a cluster; 0 or 1 where there are none.
    pub(crate) cluster: u32,
    /// Whether the launch may begin before the one ahead of it in the stream is done. All kernels of this folder that
    /// set it wait by themselves before they touch what another kernel wrote.
    pub(crate) dependent: bool,
}

impl Grid {
    /// Puts the launch into the stream. `args` is the kernel's only parameter. Nothing where the grid is empty.
    ///
    /// # Safety
    /// `args` is what `function` takes, and the memory that it names stays valid until the stream has come past it.
    ///
    /// # Errors
    /// The driver's.
    pub(crate) unsafe fn launch<A: Copy>(
        &self,
        function: CUfunction,
        stream: CUstream,
        args: &A,
    ) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { self.launch_by(function, [self.threads, 1], stream, args) }
    }

    /// The same, where a block's threads are counted along x and y.
    ///
    /// # Safety
    /// As for [`Grid::launch`].
    ///
    /// # Errors
    /// The driver's.
    pub(super) unsafe fn launch_by<A: Copy>(
        &self,
        function: CUfunction,
        threads: [u32; 2],
        stream: CUstream,
        args: &A,
    ) -> Result<(), DriverError> {
        if self.blocks.contains(&0) {
            return Ok(());
        }
        let mut attributes = [attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE); 2];
        let mut count = 0;
        if self.cluster > 1 {
            attributes[count] = attribute(CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
            attributes[count].value.clusterDim.x = 1;
            attributes[count].value.clusterDim.y = 1;
            attributes[count].value.clusterDim.z = self.cluster;
            count += 1;
        }
        if self.dependent {
            let id = CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
            attributes[count] = attribute(id);
            attributes[count].value.programmaticStreamSerializationAllowed = 1;
            count += 1;
        }
        let config = CUlaunchConfig {
            gridDimX: self.blocks[0],
            gridDimY: self.blocks[1],
            gridDimZ: self.blocks[2],
            blockDimX: threads[0],
            blockDimY: threads[1],
            blockDimZ: 1,
            sharedMemBytes: self.shared_bytes,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as u32,
        };
        let mut params = [std::ptr::from_ref(args).cast_mut().cast::<c_void>()];
        // SAFETY: the caller's promise; the driver copies attributes and parameter before it returns.
        unsafe { sys::cuLaunchKernelEx(&config, function, params.as_mut_ptr(), std::ptr::null_mut()) }
            .result()
    }
}

/// An attribute whose value is all zeros.
fn attribute(id: CUlaunchAttributeID) -> CUlaunchAttribute {
    CUlaunchAttribute { id, pad: [0; 4], value: CUlaunchAttributeValue { pad: [0; 64] } }
}

/// How a kernel divides by a number: n / by = (n · mul >> 32) >> shift for n below 2^31, where `mul` of 0 stands for
/// 2^32 (Granlund and Montgomery 1994, Division by Invariant Integers using Multiplication). As `Div` in tile.cuh.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Div {
    by: u32,
    mul: u32,
    shift: u32,
}

impl Div {
    /// By that number, 1 or more.
    pub(crate) fn new(by: usize) -> Div {
        let by = by.max(1) as u32;
        let shift = by.ilog2();
        let mul =
            if by.is_power_of_two() { 0 } else { ((1u64 << (32 + shift)).div_ceil(u64::from(by))) as u32 };
        Div { by, mul, shift }
    }
}

impl Default for Div {
    fn default() -> Div {
        Div::new(1)
    }
}

#[cfg(test)]
mod tests {
    use super::Div;

    #[test]
    fn division_by_multiplication_is_exact() {
        for by in (1..2000).chain([12544, 65535, 65536, 65537, (1 << 30) + 1, (1 << 31) - 1]) {
            let d = Div::new(by);
            for n in (0..100)
                .chain([by - 1, by, by + 1, 2 * by - 1, 3 * by, (1 << 31) - 1])
                .filter(|n| *n < 1 << 31)
            {
                let high = if d.mul == 0 { n as u64 } else { (n as u64 * u64::from(d.mul)) >> 32 };
                assert_eq!((high >> d.shift) as usize, n / by, "{n} / {by}");
            }
        }
    }
}
