//! `infer`: one run, no server.

use super::{Usage, model, npy, start};
use crate::cli::Infer;
use crate::http::answer_json;
use anyhow::{Context, bail};
use plimsoll_engine::model::Limits;
use plimsoll_engine::tensor::{Data, Shape, Tensor, volume};
use std::io::Write;

pub(super) fn run(arguments: &Infer) -> anyhow::Result<()> {
    let config = start::configuration(arguments.place.config.as_deref(), &arguments.flags())?;
    let source = model::find(&arguments.model, &config)?;
    let device = start::device(&config)?;
    let limits =
        Limits { threads: config.device.threads, precision: source.precision(), ..Limits::default() };
    let model = source.load(limits, &device)?;
    let signature = model.signature();
    let mut given: Vec<(String, Tensor)> = vec![];
    for input in &arguments.inputs {
        let Some(port) = signature.inputs.iter().find(|port| port.name == input.name) else {
            let names: Vec<&str> = signature.inputs.iter().map(|port| port.name.as_str()).collect();
            bail!(Usage(format!("the model has no input `{}`; it takes {}", input.name, names.join(", "))));
        };
        given.push((input.name.clone(), npy::read(&input.file, port.dtype)?));
    }
    let named: Vec<(String, Shape)> =
        given.iter().map(|(name, tensor)| (name.clone(), tensor.shape().into())).collect();
    let shapes = source.shapes(signature, &named, None, "--input NAME=FILE.npy")?;
    let inputs: Vec<Tensor> = signature
        .inputs
        .iter()
        .zip(&shapes)
        .map(|(port, shape)| match given.iter().find(|(name, _)| *name == port.name) {
            Some((_, tensor)) => Ok(tensor.clone()),
            None => model::zeros(port.dtype, shape),
        })
        .collect::<anyhow::Result<_>>()?;
    let program = model.program(&shapes)?;
    let mut workspace = device.workspace(config.device.threads)?;
    let mut outputs = vec![];
    program.run(&mut workspace, &inputs, &mut outputs)?;
    let named: Vec<(&str, &Tensor)> =
        signature.outputs.iter().map(|port| port.name.as_str()).zip(&outputs).collect();
    if let Some(folder) = &arguments.output_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        for (name, tensor) in &named {
            // A name can hold a slash, a file's name cannot.
            npy::write(&folder.join(format!("{}.npy", name.replace('/', "_"))), tensor)?;
        }
    }
    let mut out = std::io::stdout().lock();
    if arguments.json {
        out.write_all(&answer_json(&arguments.model.to_string(), &named)?)?;
        writeln!(out)?;
    } else {
        for (name, tensor) in &named {
            writeln!(out, "{name}: {} {:?}", tensor.dtype(), tensor.shape())?;
            if arguments.output_dir.is_none() {
                writeln!(out, "  {}", beginning(tensor)?)?;
            }
        }
    }
    Ok(())
}

/// The first values of a tensor, for a person.
fn beginning(tensor: &Tensor) -> anyhow::Result<String> {
    const SHOWN: usize = 16;
    let elements = volume(tensor.shape()).unwrap_or(0);
    let shown = elements.min(SHOWN);
    let shape = Shape::from_slice(&[shown]);
    let part = match (tensor.dtype().size_bytes(), tensor.data()) {
        (Some(size), Data::Plain(bytes)) => {
            Tensor::plain(tensor.dtype(), shape, bytes.slice(..shown * size))?
        }
        (_, Data::Text(strings)) => Tensor::text(shape, strings.iter().take(shown).cloned().collect())?,
        (None, Data::Plain(_)) => return Ok(String::new()),
    };
    // JSON cannot hold NaN and infinities; a person is told so by the error's own words.
    let values = match answer_json("", &[("", &part)]) {
        Ok(body) => serde_json::from_slice::<serde_json::Value>(&body)?["outputs"][0]["data"].to_string(),
        Err(error) => error.to_string(),
    };
    Ok(if shown < elements { format!("{values} and {} more", elements - shown) } else { values })
}
