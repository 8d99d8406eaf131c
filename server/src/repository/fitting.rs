//! What a model's settings say, held against what the model takes and gives.

use super::{Constant, ModelSettings, Values};
use plimsoll_engine::error::Error;
use plimsoll_engine::import::{self, Dim, Narrowing, Signature};
use plimsoll_engine::tensor::Shape;
use std::collections::BTreeMap;

/// What the settings narrow of a model, in the engine's terms.
pub(crate) fn narrowing(settings: &ModelSettings) -> Narrowing {
    let constants = settings.constants.iter().map(|(name, value)| (name.clone(), constant(value))).collect();
    Narrowing { dims: settings.dims.clone(), constants }
}

fn constant(written: &Constant) -> import::Constant {
    match &written.values {
        Values::Bools(values) => import::Constant::Integers(values.iter().map(|&b| i64::from(b)).collect()),
        Values::Ints(values) => import::Constant::Integers(values.clone()),
        Values::Floats(values) => import::Constant::Floats(values.clone()),
        Values::Strings(values) => import::Constant::Text(values.clone()),
    }
}

/// Labels name the classes of an output that there is, one for each where their number is fixed.
pub(super) fn check_labels(signature: &Signature, settings: &ModelSettings) -> Result<(), Error> {
    for (name, labels) in &settings.labels {
        let refused = |reason: String| Error::Setting { setting: format!("labels.`{name}`"), reason };
        let Some(port) = signature.outputs.iter().find(|port| port.name == *name) else {
            let names: Vec<&str> = signature.outputs.iter().map(|port| port.name.as_str()).collect();
            return Err(refused(format!(
                "the model has no output of that name; it gives {}",
                names.join(", ")
            )));
        };
        if let Some(Dim::Fixed(classes)) = port.dims.as_ref().and_then(|dims| dims.last())
            && *classes != labels.len()
        {
            return Err(refused(format!(
                "the output's last axis has {classes} classes, got {} names",
                labels.len()
            )));
        }
    }
    Ok(())
}

/// The shapes to prepare before the model is ready: those of the settings, else the only ones that it takes, else
/// a batch of one where just the first axis is open.
pub(super) fn first_shapes(
    signature: &Signature,
    settings: &ModelSettings,
) -> Result<Vec<Vec<Shape>>, Error> {
    if settings.prepare.is_empty() {
        let shapes = signature.inputs.iter().map(|port| {
            let dims = port.dims.as_ref()?.iter().enumerate().map(|(axis, dim)| match dim {
                Dim::Fixed(size) => Some(*size),
                _ if axis == 0 => Some(1),
                _ => None,
            });
            dims.collect::<Option<Shape>>()
        });
        return Ok(shapes.collect::<Option<Vec<Shape>>>().into_iter().collect());
    }
    settings.prepare.iter().enumerate().map(|(at, set)| named_shapes(signature, at, set)).collect()
}

fn named_shapes(
    signature: &Signature,
    at: usize,
    set: &BTreeMap<String, Vec<usize>>,
) -> Result<Vec<Shape>, Error> {
    let refused = |reason: String| Error::Setting { setting: format!("prepare[{at}]"), reason };
    let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
    if let Some(unknown) = set.keys().find(|name| !names.contains(&name.as_str())) {
        return Err(refused(format!("the model has no input `{unknown}`; it takes {}", names.join(", "))));
    }
    let shapes = signature.inputs.iter().map(|port| match (set.get(&port.name), port.fixed_shape()) {
        (Some(shape), _) => {
            port.check(port.dtype, shape)?;
            Ok(Shape::from_slice(shape))
        }
        (None, Some(fixed)) => Ok(fixed),
        (None, None) => {
            Err(refused(format!("the shape of input `{}` {} is open; name it", port.name, port.shape_text())))
        }
    });
    shapes.collect()
}
