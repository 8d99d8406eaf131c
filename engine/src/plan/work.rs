//! How much a plan computes, as an estimate of how long it takes.

use super::place::Plan;
use super::steps::Step;
use crate::graph::Op;

impl Plan {
    /// Multiplications of all products and convolutions; other steps count one for an element that they write.
    pub fn multiplications(&self) -> u64 {
        self.layout.steps.iter().map(Step::multiplications).fold(0, u64::saturating_add)
    }
}

impl Step {
    fn multiplications(&self) -> u64 {
        let elements = |shape: &[usize]| shape.iter().map(|size| *size as u64).product::<u64>();
        let written = self.outputs.iter().map(|output| elements(&output.shape)).sum();
        let window = |image: &[usize], channel: usize| {
            let weights = self.inputs.get(1).map_or(0, |weights| elements(&weights.shape));
            elements(image) * weights / image.get(channel).map_or(1, |size| *size as u64).max(1)
        };
        match (&self.op, &self.inputs[..], &self.outputs[..]) {
            (Op::Conv(conv), _, [output, ..]) => window(&output.shape, conv.image.channel),
            (Op::ConvTranspose(conv), [input, ..], _) => window(&input.shape, conv.image.channel),
            (Op::Einsum(_), ..) => self.product.as_ref().map_or(written, |product| {
                let batch: u64 = product.batch.iter().map(|(count, ..)| *count as u64).product();
                batch * product.m as u64 * product.n as u64 * product.k as u64
            }),
            _ => written,
        }
    }
}
