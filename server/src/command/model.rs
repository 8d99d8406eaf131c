//! A model for the commands that run one without a server: found by name or path, loaded without a ceiling.

use super::Usage;
use crate::cli::ModelRef;
use crate::config::Config;
use crate::repository::{self, FoundVersion, ModelSettings};
use anyhow::{Context, bail};
use plimsoll_engine::arena::Arena;
use plimsoll_engine::device::Opened;
use plimsoll_engine::fuse::Precision;
use plimsoll_engine::import::{Dim, Port, Signature};
use plimsoll_engine::model::{self, Limits, Model};
use plimsoll_engine::slab::Terms;
use plimsoll_engine::tensor::{DType, Shape, Tensor, volume};
use std::path::{Path, PathBuf};

/// A model's file, and what is set for it.
pub(super) struct Source {
    /// What it was asked for by.
    pub(super) name: String,
    file: PathBuf,
    /// The repository, which a model that is named must not lead out of.
    within: Option<PathBuf>,
    /// What its `model.toml` says.
    pub(super) settings: ModelSettings,
}

/// What `model` names: the newest version in the repository, or a file without settings.
pub(super) fn find(model: &ModelRef, config: &Config) -> anyhow::Result<Source> {
    let name = match model {
        ModelRef::File(file) => return Ok(Source::file(file)),
        ModelRef::Name(name) => name,
    };
    let root = &config.models.path;
    let found = scan(config)?;
    let Some(model) = found.iter().find(|model| model.name == *name) else {
        let names: Vec<&str> = found.iter().map(|model| model.name.as_str()).collect();
        bail!(Usage(format!("no model `{name}` in {}; there are {}", root.display(), names.join(", "))));
    };
    let settings = model.settings.clone().map_err(Usage)?;
    match (model.default_version(), &model.problem) {
        (Some(FoundVersion { file, .. }), _) => {
            Ok(Source { name: name.clone(), file: file.clone(), within: Some(root.clone()), settings })
        }
        (None, problem) => {
            bail!("model `{name}` cannot be used: {}", problem.as_deref().unwrap_or("it has no version"))
        }
    }
}

/// Everything in the repository, in name order.
pub(super) fn all(config: &Config) -> anyhow::Result<Vec<ModelRef>> {
    Ok(scan(config)?.into_iter().map(|found| ModelRef::Name(found.name)).collect())
}

fn scan(config: &Config) -> anyhow::Result<Vec<repository::Found>> {
    let root = &config.models.path;
    repository::scan(root).with_context(|| format!("the model folder {} cannot be read", root.display()))
}

impl Source {
    /// A file without settings.
    pub(super) fn file(file: &Path) -> Source {
        let (name, settings) = (file.display().to_string(), ModelSettings::default());
        Source { name, file: file.into(), within: None, settings }
    }

    /// What the settings say of it, else fp32.
    pub(super) fn precision(&self) -> Precision {
        self.settings.precision.map(Into::into).unwrap_or_default()
    }

    /// Loads the model for a device.
    pub(super) fn load(&self, limits: Limits, device: &Opened) -> anyhow::Result<Model> {
        let narrowing = repository::narrowing(&self.settings);
        let (path, within) = (self.file.as_path(), self.within.as_deref());
        let limits = Limits { tuning: limits.tuning && self.settings.tuning, ..limits };
        let source = model::Source { path, within, narrowing: &narrowing, cache: None };
        Model::load(&source, &self.name, limits, Terms::default(), &Arena::unlimited_on(device))
            .with_context(|| format!("model `{}` cannot be loaded", self.name))
    }

    /// A shape for every input: the given one, else the declared one. A first axis that is open has `batch` rows;
    /// other open sizes are those that the model's settings prepare first.
    ///
    /// `remedy` tells how this command is given a shape, with NAME for the input's name.
    ///
    /// # Errors
    /// A given name or shape is none of the model's, or an axis stays open.
    pub(super) fn shapes(
        &self,
        signature: &Signature,
        given: &[(String, Shape)],
        batch: Option<usize>,
        remedy: &str,
    ) -> anyhow::Result<Vec<Shape>> {
        let known = |name: &str| signature.inputs.iter().any(|port| port.name == name);
        if let Some((name, _)) = given.iter().find(|(name, _)| !known(name)) {
            let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
            bail!(Usage(format!("the model has no input `{name}`; it takes {}", names.join(", "))));
        }
        let shape = |port: &Port| -> anyhow::Result<Shape> {
            if let Some((_, shape)) = given.iter().find(|(name, _)| *name == port.name) {
                port.check(port.dtype, shape).map_err(|error| Usage(error.to_string()))?;
                return Ok(shape.clone());
            }
            let open = || {
                let example = remedy.replace("NAME", &port.name);
                let shape = port.shape_text();
                Usage(format!("input `{}` takes shape {shape}: settle it with {example}", port.name))
            };
            Ok(self.declared(port, batch).ok_or_else(open)?)
        };
        signature.inputs.iter().map(shape).collect()
    }

    fn declared(&self, port: &Port, batch: Option<usize>) -> Option<Shape> {
        let prepared = self.settings.prepare.first().and_then(|set| set.get(&port.name));
        let Some(dims) = &port.dims else {
            return prepared.map(|sizes| sizes.as_slice().into());
        };
        let prepared = prepared.filter(|sizes| sizes.len() == dims.len());
        let size = |(axis, dim): (usize, &Dim)| match dim {
            Dim::Fixed(size) => Some(*size),
            _ => {
                let batch = batch.filter(|_| axis == 0);
                batch.or_else(|| prepared.map(|sizes| sizes[axis])).or((axis == 0).then_some(1))
            }
        };
        dims.iter().enumerate().map(size).collect()
    }
}

/// A tensor of zeros, or of empty strings.
pub(super) fn zeros(dtype: DType, shape: &Shape) -> anyhow::Result<Tensor> {
    let elements = volume(shape).context("the shape overflows")?;
    Ok(match dtype.size_bytes() {
        Some(size) => Tensor::plain(dtype, shape.clone(), vec![0; elements * size].into())?,
        None => Tensor::text(shape.clone(), vec![String::new(); elements])?,
    })
}
