//! The parameters that mean something here; others are a client's own and are ignored, as the protocol says.

use super::error::Problem;
use super::members::{boolean, object, unsigned};
use serde_json::value::RawValue;
use std::time::Duration;

/// What a request asks for besides its tensors.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Parameters {
    /// How long the client will wait, from arrival; `None` where the model's own limit holds (also for 0).
    pub(crate) timeout: Option<Duration>,
    /// 1 is the most urgent; `None` for 0. Read because the protocol has it, and of no effect: priorities belong to models.
    pub(crate) priority: Option<u64>,
    /// Whether outputs that say nothing themselves come as binary data.
    pub(crate) binary_data_output: bool,
}

impl Parameters {
    /// Reads the request's own parameters: `timeout` in microseconds, `priority`, `binary_data_output`.
    pub(super) fn of_request(raw: Option<&RawValue>) -> Result<Parameters, Problem> {
        let Some(raw) = raw else { return Ok(Parameters::default()) };
        let [timeout, priority, binary] =
            object("parameters", raw, ["timeout", "priority", "binary_data_output"])?;
        let timeout = timeout.map(|raw| unsigned("timeout", raw)).transpose()?;
        let priority = priority.map(|raw| unsigned("priority", raw)).transpose()?;
        let binary = binary.map(|raw| boolean("binary_data_output", raw)).transpose()?;
        Ok(Parameters {
            timeout: timeout.filter(|micros| *micros > 0).map(Duration::from_micros),
            priority: priority.filter(|level| *level > 0),
            binary_data_output: binary.unwrap_or(false),
        })
    }
}

/// Reads an input's `binary_data_size`, in bytes.
pub(super) fn binary_data_size(raw: Option<&RawValue>) -> Result<Option<usize>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let [size, region] = object("parameters", raw, ["binary_data_size", SHARED_MEMORY])?;
    refuse(region, SHARED_MEMORY, "; send the tensor in the body")?;
    let Some(size) = size else { return Ok(None) };
    let bytes = unsigned("binary_data_size", size)?;
    let bytes = usize::try_from(bytes)
        .map_err(|_| Problem::kind("binary_data_size", "a size that can be addressed", size.get()))?;
    Ok(Some(bytes))
}

/// Reads an output's `binary_data`.
pub(super) fn binary_data(raw: Option<&RawValue>) -> Result<Option<bool>, Problem> {
    let Some(raw) = raw else { return Ok(None) };
    let [binary, classification, region] =
        object("parameters", raw, ["binary_data", "classification", SHARED_MEMORY])?;
    refuse(region, SHARED_MEMORY, "; take the tensor from the answer's body")?;
    // Zero classes is Triton's way to ask for none.
    let classification = classification.filter(|count| count.get() != "0");
    refuse(classification, "classification", "; take the tensor and rank it in the client")?;
    binary.map(|raw| boolean("binary_data", raw)).transpose()
}

const SHARED_MEMORY: &str = "shared_memory_region";

fn refuse(raw: Option<&RawValue>, parameter: &'static str, instead: &'static str) -> Result<(), Problem> {
    match raw {
        Some(_) => Err(Problem::Unsupported { parameter, instead }),
        None => Ok(()),
    }
}
