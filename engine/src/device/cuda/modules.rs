//! The kernels of a GPU, loaded once.

use super::binaries::Binaries;
use super::context::{Context, failure, text};
use super::kernels::grid::Gpu;
use super::kernels::launch::Functions;
use super::kernels::sources;
use crate::device::NoDevice;
use crate::error::Error;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::{CUfunction, CUfunction_attribute, CUmodule, CUresult};
use std::collections::HashMap;
use std::ffi::CString;
use std::sync::{Arc, Mutex, PoisonError};

/// A kernel that is loaded.
#[derive(Clone, Copy)]
pub(super) struct Function(pub(super) CUfunction);

// SAFETY: a handle of the driver's, which any thread may use that has entered the context.
unsafe impl Send for Function {}
// SAFETY: as above.
unsafe impl Sync for Function {}

/// All modules, and the functions that were asked for.
pub(super) struct Modules {
    context: Arc<Context>,
    modules: Vec<CUmodule>,
    functions: Mutex<HashMap<String, Function>>,
}

// SAFETY: the modules are handles of the driver's, which any thread may use that has entered the context.
unsafe impl Send for Modules {}
// SAFETY: as above.
unsafe impl Sync for Modules {}

impl Modules {
    /// Loads every module.
    ///
    /// # Errors
    /// There is no binary of one for this GPU, or the driver refuses it.
    pub(super) fn load(context: &Arc<Context>, binaries: &Binaries) -> Result<Modules, NoDevice> {
        let mut modules =
            Modules { context: Arc::clone(context), modules: vec![], functions: Mutex::default() };
        for source in sources(context.gpu.capability) {
            let binary = binaries.binary(source, context.gpu.capability);
            let binary = binary.map_err(|reason| NoDevice::new(&reason, "or set device.kind to cpu"))?;
            // SAFETY: a whole binary, as the compiler made it, which the driver copies.
            let module = unsafe { result::module::load_data(binary.as_ptr().cast()) };
            let module = module.map_err(|error| {
                let reason = format!("the driver does not take kernels `{}`: {}", source.name, text(error));
                NoDevice::new(&reason, "install a newer driver, or build the kernels anew")
            })?;
            modules.modules.push(module);
        }
        Ok(modules)
    }

    /// A kernel by its name, allowed all the shared memory that a block can have.
    ///
    /// # Errors
    /// The driver's.
    pub(super) fn get(&self, name: &str) -> Result<Function, DriverError> {
        let mut functions = self.functions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(function) = functions.get(name) {
            return Ok(*function);
        }
        let missing = DriverError(CUresult::CUDA_ERROR_NOT_FOUND);
        let symbol = CString::new(name).map_err(|_| missing)?;
        // SAFETY: the modules are loaded, and the function is one's.
        let function = unsafe {
            let of = |module: &CUmodule| result::module::get_function(*module, symbol.clone()).ok();
            let function = self.modules.iter().find_map(of).ok_or(missing)?;
            let fixed = CUfunction_attribute::CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES;
            let fixed = result::function::get_function_attribute(function, fixed)?;
            let most = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let bytes = self.context.gpu.shared_bytes as i32 - fixed;
            result::function::set_function_attribute(function, most, bytes)?;
            Function(function)
        };
        functions.insert(name.into(), function);
        Ok(function)
    }

    /// The GPU.
    pub(super) fn gpu(&self) -> &Gpu {
        &self.context.gpu
    }
}

impl Functions for Modules {
    fn function(&self, name: &'static str) -> Result<CUfunction, DriverError> {
        self.get(name).map(|function| function.0)
    }

    fn dependent(&self) -> bool {
        self.context.gpu.capability >= 90
    }
}

impl Drop for Modules {
    fn drop(&mut self) {
        if self.context.enter().is_err() {
            return;
        }
        for module in &self.modules {
            // SAFETY: loaded in `load`, unloaded once; nothing runs any more that it has.
            let _ = unsafe { result::module::unload(*module) };
        }
    }
}

/// The driver's refusal as an error of a run.
pub(super) fn done(result: Result<(), DriverError>) -> Result<(), Error> {
    result.map_err(failure)
}
