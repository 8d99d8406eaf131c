//! What NVIDIA's management library says of a GPU's memory, where it is installed. It is asked before there is a
//! context, which is the only way to know what the context itself takes.

use libloading::{Library, Symbol};
use std::ffi::{CString, c_char, c_int, c_void};

#[repr(C)]
#[derive(Default)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

type Init = unsafe extern "C" fn() -> c_int;
type ByBus = unsafe extern "C" fn(*const c_char, *mut *mut c_void) -> c_int;
type MemoryInfo = unsafe extern "C" fn(*mut c_void, *mut Memory) -> c_int;

/// Bytes in use on the GPU that is plugged in there, by whomever; `None` where nobody tells.
pub(super) fn used_bytes(bus: &str) -> Option<u64> {
    let bus = CString::new(bus).ok()?;
    // SAFETY: NVIDIA's library is made to be loaded so; the functions have the signatures of nvml.h, the device handle
    // is used between `init` and `shutdown`, and the structure is that of nvmlMemory_t.
    unsafe {
        let library = Library::new("libnvidia-ml.so.1").ok()?;
        let init: Symbol<'_, Init> = library.get(b"nvmlInit_v2").ok()?;
        let shutdown: Symbol<'_, Init> = library.get(b"nvmlShutdown").ok()?;
        let by_bus: Symbol<'_, ByBus> = library.get(b"nvmlDeviceGetHandleByPciBusId_v2").ok()?;
        let info: Symbol<'_, MemoryInfo> = library.get(b"nvmlDeviceGetMemoryInfo").ok()?;
        if init() != 0 {
            return None;
        }
        let (mut device, mut memory) = (std::ptr::null_mut(), Memory::default());
        let told = by_bus(bus.as_ptr(), &mut device) == 0 && info(device, &mut memory) == 0;
        shutdown();
        told.then_some(memory.used)
    }
}
