//! The driver's context of one GPU, and what is known of the GPU.

use super::kernels::grid::Gpu;
use super::{nvml, probe};
use crate::device::{NoDevice, Refused, host_available_bytes};
use crate::error::Error;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{self, CUcontext, CUdevice, CUdevice_attribute};
use std::sync::{Arc, Mutex, PoisonError};

/// A GPU that is ready to be used.
pub(super) struct Context {
    device: CUdevice,
    raw: CUcontext,
    /// What the kernels' launchers want to know.
    pub(super) gpu: Gpu,
    /// Its name.
    pub(super) name: String,
    /// The driver's version, as it counts.
    pub(super) driver: i32,
    /// Whether its memory is that of the host.
    pub(super) integrated: bool,
    /// Where it is plugged in, as NVML knows it.
    bus: String,
    /// Bytes in use on the GPU before this process touched it, where the system tells.
    before: Option<u64>,
    /// Pinned memory that the driver did not give.
    refused: Mutex<Refused>,
}

// SAFETY: the driver's handles may be used from any thread that has made the context its own.
unsafe impl Send for Context {}
// SAFETY: as above; the driver does its own locking.
unsafe impl Sync for Context {}

impl Context {
    /// Opens the GPU of that index.
    ///
    /// # Errors
    /// There is none, or the driver does not let us: what to do is said.
    pub(super) fn open(index: usize) -> Result<Arc<Context>, NoDevice> {
        probe::driver()?;
        let failed = |what: &str| {
            let what = what.to_owned();
            move |error| {
                let remedy = "see what nvidia-smi says, and whether this user may use /dev/nvidia*";
                NoDevice::new(&format!("{what}: {}", text(error)), remedy)
            }
        };
        result::init().map_err(failed("the driver cannot be used"))?;
        let count = result::device::get_count().map_err(failed("GPUs cannot be counted"))? as usize;
        if index >= count {
            let remedy = "set device.index to one that there is, or device.kind to cpu";
            return Err(NoDevice::new(&format!("there is no GPU {index}, the driver has {count}"), remedy));
        }
        let device = result::device::get(index as i32).map_err(failed("the GPU cannot be opened"))?;
        let attribute = |which| {
            // SAFETY: the device is the driver's.
            let value = unsafe { result::device::get_attribute(device, which) };
            value.map_err(failed("the GPU does not say what it is"))
        };
        let major = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)? as u32;
        let minor = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)? as u32;
        let shared = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let gpu = Gpu {
            processors: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)? as usize,
            shared_bytes: shared as usize,
            capability: major * 10 + minor,
        };
        if gpu.capability < OLDEST {
            let reason =
                format!("GPU {index} has compute capability {major}.{minor}, kernels are for 8.0 on");
            return Err(NoDevice::new(&reason, "set device.kind to cpu"));
        }
        let integrated = attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED)? != 0;
        let name = result::device::get_name(device).map_err(failed("the GPU does not say its name"))?;
        let driver = version().map_err(failed("the driver does not say its version"))?;
        let bus = bus(device).map_err(failed("the GPU does not say where it is"))?;
        let before = if integrated { host_available_bytes() } else { nvml::used_bytes(&bus) };
        // SAFETY: the device is the driver's; what is retained here is released once, on drop.
        let raw = unsafe { result::primary_ctx::retain(device) };
        let raw = raw.map_err(failed("no context can be had on the GPU"))?;
        let context =
            Context { device, raw, gpu, name, driver, integrated, bus, before, refused: Mutex::default() };
        context.enter().map_err(|error| NoDevice::new(&error.to_string(), "see what nvidia-smi says"))?;
        Ok(Arc::new(context))
    }

    /// Makes the context the calling thread's, as every call of the driver wants it.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn enter(&self) -> Result<(), Error> {
        // SAFETY: the context lives as long as this.
        unsafe { result::ctx::set_current(self.raw) }.map_err(failure)
    }

    /// Bytes that this process takes on the GPU before it asks for any: the context, kernels and libraries. By
    /// what was in use before the context was made and is now, so it is asked before anything is allocated. Where the
    /// system does not tell what was in use, all that is in use now counts, that of others included.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn driver_bytes(&self) -> Result<u64, Error> {
        self.enter()?;
        let taken = match (self.integrated, self.before) {
            (true, Some(before)) => before.saturating_sub(host_available_bytes().unwrap_or(before)),
            (false, Some(before)) => nvml::used_bytes(&self.bus).unwrap_or(before).saturating_sub(before),
            (_, None) => {
                let (free, total) = result::mem_get_info().map_err(failure)?;
                total.saturating_sub(free) as u64
            }
        };
        Ok(taken)
    }

    /// Counts pinned memory of so many bytes that the driver did not give.
    pub(super) fn refused_pinned(&self, bytes: u64) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.times += 1;
        refused.bytes += bytes;
    }

    /// Pinned memory that the driver did not give.
    pub(super) fn refused(&self) -> Refused {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bytes of the GPU's memory that nobody has taken.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn free_bytes(&self) -> Result<u64, Error> {
        self.enter()?;
        result::mem_get_info().map(|(free, _)| free as u64).map_err(failure)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: retained in `open`, and nothing that lives in it lives longer.
        let _ = unsafe { result::primary_ctx::release(self.device) };
    }
}

/// Compute capability from which on there are kernels.
const OLDEST: u32 = 80;

fn version() -> Result<i32, DriverError> {
    let mut version = 0;
    // SAFETY: the driver writes one number.
    unsafe { sys::cuDriverGetVersion(&mut version) }.result()?;
    Ok(version)
}

fn bus(device: CUdevice) -> Result<String, DriverError> {
    let mut text = [0u8; 32];
    // SAFETY: the driver writes at most so many bytes, the last of which is 0.
    unsafe { sys::cuDeviceGetPCIBusId(text.as_mut_ptr().cast(), text.len() as i32, device) }.result()?;
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(0);
    Ok(String::from_utf8_lossy(&text[..end]).into_owned())
}

/// What the driver calls its error.
pub(super) fn text(error: DriverError) -> String {
    let words = error.error_string().ok().map(|words| words.to_string_lossy().into_owned());
    format!("{} ({:?})", words.unwrap_or_default(), error.0)
}

/// The driver's error as one of ours.
pub(super) fn failure(error: DriverError) -> Error {
    Error::Fault { reason: format!("the GPU's driver: {}", text(error)) }
}
