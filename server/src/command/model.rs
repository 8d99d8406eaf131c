//! A model for the commands that run one without a server: found by name or path, loaded without a ceiling.

use super::Usage;
use crate::cli::ModelRef;
use crate::config::Config;
use crate::repository::{self, FoundVersion, ModelSettings};
use anyhow::{Context, bail};
use plimsoll_engine::import::{Dim, Port, Signature};
use plimsoll_engine::model::{Limits, Model};
use plimsoll_engine::slab::Ledger;
use plimsoll_engine::tensor::{DType, Shape, Tensor, volume};
use std::path::PathBuf;

/// Loads what `model` names: the newest version in the repository, or a file without settings.
pub(super) fn load(model: &ModelRef, config: &Config) -> anyhow::Result<Model> {
    let (name, file, settings) = match model {
        ModelRef::File(file) => (file.display().to_string(), file.clone(), ModelSettings::default()),
        ModelRef::Name(name) => {
            let (file, settings) = find(name, config)?;
            (name.clone(), file, settings)
        }
    };
    let narrowing = repository::narrowing(&settings);
    Model::load(&file, &name, &narrowing, Limits::default(), &Ledger::unlimited())
        .with_context(|| format!("model `{name}` cannot be loaded"))
}

fn find(name: &str, config: &Config) -> anyhow::Result<(PathBuf, ModelSettings)> {
    let root = &config.models.path;
    let found = repository::scan(root)
        .with_context(|| format!("the model folder {} cannot be read", root.display()))?;
    let names: Vec<&str> = found.iter().map(|model| model.name.as_str()).collect();
    let Some(model) = found.iter().find(|model| model.name == name) else {
        bail!(Usage(format!("no model `{name}` in {}; there are {}", root.display(), names.join(", "))));
    };
    let settings = model.settings.clone().map_err(Usage)?;
    match (model.default_version(), &model.problem) {
        (Some(FoundVersion { file, .. }), _) => Ok((file.clone(), settings)),
        (None, problem) => {
            bail!("model `{name}` cannot be used: {}", problem.as_deref().unwrap_or("it has no version"))
        }
    }
}

/// A shape for every input: the given one, else the declared one with `batch` for an open first axis.
///
/// # Errors
/// A given name or shape is none of the model's, or an axis stays open.
///
/// `remedy` tells how this command is given a shape, with NAME for the input's name.
pub(super) fn shapes(
    signature: &Signature,
    given: &[(String, Shape)],
    batch: usize,
    remedy: &str,
) -> anyhow::Result<Vec<Shape>> {
    let names = || signature.inputs.iter().map(|port| port.name.clone()).collect::<Vec<_>>().join(", ");
    if let Some((name, _)) =
        given.iter().find(|(name, _)| signature.inputs.iter().all(|port| port.name != *name))
    {
        bail!(Usage(format!("the model has no input `{name}`; it takes {}", names())));
    }
    let shape = |port: &Port| {
        if let Some((_, shape)) = given.iter().find(|(name, _)| *name == port.name) {
            port.check(port.dtype, shape).map_err(|error| Usage(error.to_string()))?;
            return Ok(shape.clone());
        }
        let dims = port.dims.iter().flatten().enumerate().map(|(axis, dim)| match dim {
            Dim::Fixed(size) => Some(*size),
            _ if axis == 0 => Some(batch),
            _ => None,
        });
        let shape: Option<Shape> = dims.collect();
        shape.filter(|_| port.dims.is_some()).ok_or_else(|| {
            let example = remedy.replace("NAME", &port.name);
            Usage(format!(
                "input `{}` takes shape {}: settle it with {example}",
                port.name,
                port.shape_text()
            ))
        })
    };
    signature.inputs.iter().map(|port| shape(port).map_err(anyhow::Error::from)).collect()
}

/// A tensor of zeros, or of empty strings.
pub(super) fn zeros(dtype: DType, shape: &Shape) -> anyhow::Result<Tensor> {
    let elements = volume(shape).context("the shape overflows")?;
    Ok(match dtype.size_bytes() {
        Some(size) => Tensor::plain(dtype, shape.clone(), vec![0; elements * size].into())?,
        None => Tensor::text(shape.clone(), vec![String::new(); elements])?,
    })
}
