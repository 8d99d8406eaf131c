//! Whether the driver can be used at all. cudarc ends the thread where a library or a symbol of it is missing, so all
//! that is called of it is looked for here first.

use crate::device::NoDevice;
use libloading::Library;

/// All functions of the driver that this device calls.
const CALLED: [&str; 38] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetPCIBusId",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuMemGetInfo_v2",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemHostAlloc",
    "cuMemFreeHost",
    "cuMemHostGetDevicePointer_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuStreamCreate",
    "cuStreamSynchronize",
    "cuStreamDestroy_v2",
    "cuStreamBeginCapture_v2",
    "cuStreamEndCapture",
    "cuGraphInstantiateWithFlags",
    "cuGraphUpload",
    "cuGraphLaunch",
    "cuGraphExecDestroy",
    "cuGraphDestroy",
    "cuLaunchKernelEx",
];

/// Looks for the driver and everything that is called of it.
///
/// # Errors
/// What is missing, and what to do about it.
pub(super) fn driver() -> Result<(), NoDevice> {
    let install = "install NVIDIA's driver, or start the container with --gpus or --runtime nvidia";
    // The names that cudarc tries, in its order: of two libraries, the one that it takes has to be looked at.
    let mut names = ["cuda", "nvcuda"].into_iter().flat_map(cudarc::get_lib_name_candidates);
    // SAFETY: NVIDIA's library is made to be loaded so; it does nothing by being loaded.
    let library = names.find_map(|name| unsafe { Library::new(name) }.ok());
    let Some(library) = library else {
        return Err(NoDevice::new("the driver's library libcuda.so.1 is not found", install));
    };
    for name in CALLED {
        // SAFETY: the symbol's address is not used.
        if unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err() {
            let reason = format!("the driver lacks {name}");
            return Err(NoDevice::new(&reason, "install driver 535 (CUDA 12.2) or a later one"));
        }
    }
    Ok(())
}

/// The functions of NVRTC that are called.
const COMPILER: [&str; 8] = [
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcCompileProgram",
    "nvrtcGetCUBIN",
    "nvrtcGetCUBINSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetErrorString",
];

/// Whether kernels can be compiled here: the names are those that cudarc tries.
pub(super) fn compiler() -> bool {
    let names = cudarc::get_lib_name_candidates("nvrtc");
    // SAFETY: as above.
    let library = names.iter().find_map(|name| unsafe { Library::new(name) }.ok());
    library.is_some_and(|library| {
        // SAFETY: the symbol's address is not used.
        let has = |name: &&str| unsafe { library.get::<*const ()>(name.as_bytes()) }.is_ok();
        COMPILER.iter().all(has)
    })
}
