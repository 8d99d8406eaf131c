//! Plan → plain figures: what a lane needs, when, and for what. A stable text form, and the picture.

use super::place::Plan;
use super::steps::{Block, Layout, Operand, Place, Step};
use super::svg::{Drawn, Kind, svg};
use crate::error::size;
use crate::graph::{Op, Text};
use std::fmt;

/// What a plan takes. Sizes are bytes; steps are counted from 0, in the order in which they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Bytes of weights and other constants as the device holds them, packed.
    pub weights_bytes: u64,
    /// Bytes of workspace that a lane needs.
    pub workspace_bytes: u64,
    /// Bytes alive at once at the step where they are most: what no plan for this order can go below.
    pub live_peak_bytes: u64,
    /// That step, and its name; none where no step has bytes.
    pub peak: Option<(usize, String)>,
    /// The steps that the importer's library computes, for want of a kernel.
    pub host_steps: Vec<HostStepReport>,
    /// Every step.
    pub steps: Vec<StepReport>,
    /// Every block of the workspace, the steps' scratch included.
    pub blocks: Vec<BlockReport>,
}

/// A step without a kernel of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStepReport {
    /// The node's name in the model's file.
    pub name: String,
    /// The op's name in the importer's library.
    pub op: String,
}

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// The node's name in the model's file.
    pub name: String,
    /// The op with its attributes, as in the dump of a graph.
    pub op: String,
    /// dtype and sizes of each output, such as `FP32[1,64,56,56]`.
    pub outputs: Vec<String>,
    /// Bytes of the workspace that it reads; an element that is read many times counts once.
    pub read_bytes: u64,
    /// Bytes of constants that it reads, before packing.
    pub constant_bytes: u64,
    /// Bytes of the workspace that it writes.
    pub written_bytes: u64,
    /// Bytes of the workspace that it needs for itself while it runs.
    pub scratch_bytes: u64,
    /// Bytes of the workspace that are alive while it runs, its scratch included.
    pub live_bytes: u64,
    /// Whether it is a host step.
    pub host: bool,
}

/// Bytes of the workspace for one purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReport {
    /// The value or step that it is for.
    pub name: String,
    /// Its size in bytes, before it is rounded up to the alignment.
    pub bytes: u64,
    /// Its distance from the workspace's start in bytes.
    pub offset_bytes: u64,
    /// The first step at which it is alive.
    pub first_step: usize,
    /// The last step at which it is alive, inclusive; the number of steps for an output.
    pub last_step: usize,
    /// What it is for.
    pub kind: Kind,
}

impl Report {
    /// The figures of a plan whose packed constants take `weights_bytes`.
    pub fn new(plan: &Plan, weights_bytes: u64) -> Report {
        let layout = &plan.layout;
        let live = live_bytes(plan);
        let described = layout.steps.iter().enumerate().map(|(at, step)| {
            let scratch_bytes = plan.scratch.get(at).map_or(0, |(_, bytes)| *bytes);
            described(step, scratch_bytes, live.get(at).copied().unwrap_or(0))
        });
        let host = layout.steps.iter().filter_map(|step| match &step.op {
            Op::Host(host) => Some(HostStepReport { name: step.name.clone(), op: host.op().into() }),
            _ => None,
        });
        Report {
            weights_bytes,
            workspace_bytes: plan.workspace_bytes,
            live_peak_bytes: plan.live_peak_bytes,
            peak: plan.peak_step.map(|at| (at, name_of(layout, at))),
            host_steps: host.collect(),
            steps: described.collect(),
            blocks: blocks(plan),
        }
    }

    /// A picture of the workspace, as one SVG file.
    pub fn svg(&self, title: &str) -> String {
        let drawn: Vec<Drawn> = self
            .blocks
            .iter()
            .map(|block| Drawn {
                name: &block.name,
                bytes: block.bytes,
                offset_bytes: block.offset_bytes,
                first_step: block.first_step,
                last_step: block.last_step,
                kind: block.kind,
            })
            .collect();
        // Outputs outlive the last step: a column of their own says so.
        let mut names: Vec<&str> = self.steps.iter().map(|step| step.name.as_str()).collect();
        names.push("outputs");
        svg(title, &drawn, &names, self.workspace_bytes)
    }
}

fn name_of(layout: &Layout, step: usize) -> String {
    layout.steps.get(step).map(|step| step.name.clone()).unwrap_or_default()
}

fn block_bytes(block: &Block) -> u64 {
    (block.elements * block.dtype.size_bytes().unwrap_or(0)) as u64
}

fn blocks(plan: &Plan) -> Vec<BlockReport> {
    let values =
        plan.layout.blocks.iter().zip(&plan.block_offsets).map(|(block, &offset_bytes)| BlockReport {
            name: block.name.clone(),
            bytes: block_bytes(block),
            offset_bytes,
            first_step: block.first_step,
            last_step: block.last_step.max(block.first_step),
            kind: match (block.output, block.input) {
                (true, _) => Kind::Output,
                (_, true) => Kind::Input,
                _ => Kind::Value,
            },
        });
    let scratch = plan.scratch.iter().enumerate().filter(|(_, (_, bytes))| *bytes > 0);
    let scratch = scratch.map(|(at, &(offset_bytes, bytes))| BlockReport {
        name: name_of(&plan.layout, at),
        bytes,
        offset_bytes,
        first_step: at,
        last_step: at,
        kind: Kind::Scratch,
    });
    values.chain(scratch).collect()
}

/// For each step the bytes alive, rounded up as the plan rounds them, so that the largest is the plan's peak.
fn live_bytes(plan: &Plan) -> Vec<u64> {
    let mut live = vec![0u64; plan.layout.steps.len()];
    for block in blocks(plan) {
        let bytes = block.bytes.next_multiple_of(plan.alignment_bytes.max(1));
        for alive in live.iter_mut().take(block.last_step.saturating_add(1)).skip(block.first_step) {
            *alive += bytes;
        }
    }
    live
}

fn described(step: &Step, scratch_bytes: u64, live_bytes: u64) -> StepReport {
    let sum = |operands: &[Operand], constant: bool| {
        let chosen =
            operands.iter().filter(|operand| matches!(operand.place, Place::Constant(_)) == constant);
        chosen.map(touched_bytes).sum()
    };
    StepReport {
        name: step.name.clone(),
        op: Text(&step.op).to_string(),
        outputs: step.outputs.iter().map(typed).collect(),
        read_bytes: sum(&step.inputs, false),
        constant_bytes: sum(&step.inputs, true),
        written_bytes: sum(&step.outputs, false),
        scratch_bytes,
        live_bytes,
        host: matches!(step.op, Op::Host(_)),
    }
}

/// Bytes of the elements that an operand reaches; axes along which it repeats itself count once.
fn touched_bytes(operand: &Operand) -> u64 {
    let sizes = operand.shape.iter().zip(&operand.view.strides);
    let elements = sizes.map(|(&size, &stride)| if stride == 0 { size.min(1) } else { size });
    elements.map(|size| size as u64).product::<u64>() * operand.dtype.size_bytes().unwrap_or(0) as u64
}

fn typed(operand: &Operand) -> String {
    let sizes: Vec<String> = operand.shape.iter().map(usize::to_string).collect();
    format!("{}[{}]", operand.dtype, sizes.join(","))
}

/// A size in a column, where nothing is easier seen as a dash.
fn short(bytes: u64) -> String {
    if bytes == 0 { "-".into() } else { size(bytes) }
}

impl fmt::Display for Report {
    /// Totals, the host steps, and a line a step. `*` marks the peak, `h` a host step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "weights    {:>9}  ({} bytes)", size(self.weights_bytes), self.weights_bytes)?;
        writeln!(f, "workspace  {:>9}  ({} bytes)", size(self.workspace_bytes), self.workspace_bytes)?;
        write!(f, "live peak  {:>9}  ({} bytes)", size(self.live_peak_bytes), self.live_peak_bytes)?;
        match &self.peak {
            Some((at, name)) => writeln!(f, " at step {at} `{name}`")?,
            None => writeln!(f)?,
        }
        writeln!(f, "steps      {:>9}", self.steps.len())?;
        writeln!(f, "host steps {:>9}", self.host_steps.len())?;
        for step in &self.host_steps {
            writeln!(f, "  {} `{}`", step.op, step.name)?;
        }
        self.table(f)
    }
}

impl Report {
    fn table(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let outputs: Vec<String> = self.steps.iter().map(|step| step.outputs.join(" ")).collect();
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let output_width = width(&mut outputs.iter().map(|text| text.chars().count())).max(6);
        let name_width = width(&mut self.steps.iter().map(|step| step.name.chars().count())).max(4);
        writeln!(
            f,
            "\n  step       live       read  constants    written    scratch  {:<output_width$}  {:<name_width$}  op",
            "output", "name"
        )?;
        for (at, (step, output)) in self.steps.iter().zip(&outputs).enumerate() {
            let peak = self.peak.as_ref().is_some_and(|(peak, _)| *peak == at);
            writeln!(
                f,
                "{}{}{at:>4} {:>10} {:>10} {:>10} {:>10} {:>10}  {output:<output_width$}  {:<name_width$}  {}",
                if peak { '*' } else { ' ' },
                if step.host { 'h' } else { ' ' },
                short(step.live_bytes),
                short(step.read_bytes),
                short(step.constant_bytes),
                short(step.written_bytes),
                short(step.scratch_bytes),
                step.name,
                step.op
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Binary, Builder, Chain, Instr, Src};
    use crate::plan::layout;
    use crate::tensor::DType;

    /// x + x, and the sum sliced into an output of its own.
    fn report() -> Report {
        let mut builder = Builder::new();
        let x = builder.input("x", DType::F32, &[2, 100]);
        let chain = Chain { instrs: vec![Instr::Binary(Binary::Add, Src::Operand(0), Src::Operand(1))] };
        let sum = builder.node("sum", Op::Pointwise(chain), &[x, x], DType::F32, &[2, 100]);
        let part = Op::Slice { axis: 1, start: 0, step: 2 };
        let part = builder.node("half", part, &[sum], DType::F32, &[2, 50]);
        let graph = builder.finish(&[part]);
        Report::new(&Plan::new(layout(&graph), &[0, 128], 64), 7)
    }

    #[test]
    fn the_largest_live_sum_is_the_peak_of_the_plan() {
        let report = report();
        let largest = report.steps.iter().map(|step| step.live_bytes).max();
        assert_eq!(largest, Some(report.live_peak_bytes));
        let (at, name) = report.peak.clone().unwrap();
        assert_eq!(report.steps[at].live_bytes, report.live_peak_bytes);
        assert_eq!(report.steps[at].name, name);
        assert!(report.workspace_bytes >= report.live_peak_bytes);
    }

    #[test]
    fn blocks_that_are_alive_together_do_not_meet() {
        let report = report();
        for (at, a) in report.blocks.iter().enumerate() {
            assert!(a.offset_bytes + a.bytes <= report.workspace_bytes);
            for b in &report.blocks[at + 1..] {
                let apart_in_time = a.last_step < b.first_step || b.last_step < a.first_step;
                let apart =
                    a.offset_bytes + a.bytes <= b.offset_bytes || b.offset_bytes + b.bytes <= a.offset_bytes;
                assert!(apart_in_time || apart, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn the_text_names_totals_and_every_step() {
        let text = report().to_string();
        let first: Vec<&str> = text.lines().take(5).collect();
        assert_eq!(first[0], "weights      7 bytes  (7 bytes)");
        assert!(first[2].starts_with("live peak "), "{text}");
        assert_eq!(first[3], "steps              2");
        assert_eq!(first[4], "host steps         0");
        assert!(text.contains("Pointwise<Add $0 $1>"), "{text}");
        assert!(text.lines().any(|line| line.starts_with('*')), "{text}");
        assert!(report().svg("plan").starts_with("<svg "));
    }
}
