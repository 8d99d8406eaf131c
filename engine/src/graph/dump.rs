//! The stable text form of a graph, for golden tests, reports and bug reports.

use super::chain::{Chain, Instr, Src};
use super::op::{Conv, Epilogue, Op, Pool};
use super::{Graph, ValueId};
use std::fmt;

impl fmt::Display for Graph {
    /// A line an input, a constant that is read, a node and an output.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for id in &self.inputs {
            writeln!(f, "input %{} {}", id.0, self.typed(*id))?;
        }
        let mut shown = vec![false; self.values.len()];
        for node in &self.nodes {
            for id in &node.inputs {
                let value = self.value(*id);
                if value.constant.is_some() && !std::mem::replace(&mut shown[id.0 as usize], true) {
                    match value.scalar() {
                        Some(number) => writeln!(f, "const %{} {} = {number}", id.0, self.typed(*id))?,
                        None => writeln!(f, "const %{} {}", id.0, self.typed(*id))?,
                    }
                }
            }
            let outputs: Vec<String> =
                node.outputs.iter().map(|id| format!("%{} {}", id.0, self.typed(*id))).collect();
            let inputs: Vec<String> = node.inputs.iter().map(|id| format!("%{}", id.0)).collect();
            writeln!(
                f,
                "{} = {}({}) `{}`",
                outputs.join(", "),
                Text(&node.op),
                inputs.join(", "),
                node.name
            )?;
        }
        for id in &self.outputs {
            writeln!(f, "output %{}", id.0)?;
        }
        Ok(())
    }
}

impl Graph {
    fn typed(&self, id: ValueId) -> String {
        let value = self.value(id);
        let sizes: Vec<String> = value.shape.iter().map(usize::to_string).collect();
        format!("{}[{}]", value.dtype, sizes.join(","))
    }
}

/// An op with its attributes.
pub(crate) struct Text<'a>(pub(crate) &'a Op);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name())?;
        match self.0 {
            Op::Conv(conv) | Op::ConvTranspose(conv) => {
                window(f, &conv_text(conv))?;
                epilogue(f, &conv.epilogue)
            }
            Op::Einsum(einsum) => {
                let text = |labels: &[char]| labels.iter().collect::<String>();
                write!(f, "<{},{}->{}>", text(&einsum.a), text(&einsum.b), text(&einsum.c))?;
                epilogue(f, &einsum.epilogue)
            }
            Op::Attention(attention) => {
                let text = |labels: &[char]| labels.iter().collect::<String>();
                let (q, k, v) = (text(&attention.q), text(&attention.k), text(&attention.v));
                let (scores, y) = (text(&attention.scores), text(&attention.y));
                write!(f, "<{q},{k}->{scores} over {},{v}->{y}>", attention.over)?;
                f.write_str(if attention.zeroes { " NaN to 0" } else { "" })?;
                attention.chain.as_ref().map_or(Ok(()), |chain| write!(f, "+<{chain}>"))
            }
            Op::Pointwise(chain) => write!(f, "<{chain}>"),
            Op::Reduce(reducer, axes) => write!(f, "<{reducer:?} {:?}>", axes.as_slice()),
            Op::Softmax { axes, log } => {
                write!(f, "<{:?}{}>", axes.as_slice(), if *log { " log" } else { "" })
            }
            Op::Norm(norm) => write!(f, "<{:?} ε={}>", norm.axes.as_slice(), norm.epsilon),
            Op::Pool(pool) => window(f, &pool_text(pool)),
            Op::Resize(axes) => write!(f, "<{:?}>", axes.iter().map(|(axis, _)| axis).collect::<Vec<_>>()),
            Op::Concat(axis) | Op::Gather(axis) => write!(f, "<{axis}>"),
            Op::Slice { axis, start, step } => write!(f, "<{axis} from {start} by {step}>"),
            Op::Pad(pad) => write!(f, "<{:?} {:?}>", pad.before.as_slice(), pad.mode),
            Op::Permute(order) => write!(f, "<{:?}>", order.as_slice()),
            Op::Host(step) => write!(f, "<{}>", step.op()),
            Op::Reshape | Op::Broadcast | Op::Cast | Op::Copy => Ok(()),
        }
    }
}

fn conv_text(conv: &Conv) -> String {
    let w = &conv.window;
    let mut text = format!("{:?}", w.size.as_slice());
    let groups = (conv.groups != 1).then(|| format!(" groups {}", conv.groups));
    for (name, sizes, usual) in
        [("stride", &w.stride, 1), ("dilation", &w.dilation, 1), ("before", &w.before, 0)]
    {
        if sizes.iter().any(|size| *size != usual) {
            text += &format!(" {name} {:?}", sizes.as_slice());
        }
    }
    text + &groups.unwrap_or_default()
}

fn pool_text(pool: &Pool) -> String {
    let w = &pool.window;
    format!(
        "{:?} {:?} stride {:?} before {:?}",
        pool.kind,
        w.size.as_slice(),
        w.stride.as_slice(),
        w.before.as_slice()
    )
}

fn window(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    write!(f, "<{text}>")
}

fn epilogue(f: &mut fmt::Formatter<'_>, epilogue: &Epilogue) -> fmt::Result {
    if epilogue.bias {
        f.write_str("+bias")?;
    }
    match &epilogue.chain {
        Some(chain) => write!(f, "+<{chain}>"),
        None => Ok(()),
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = |src: &Src| match src {
            Src::Operand(at) => format!("${at}"),
            Src::Reg(at) => format!("r{at}"),
            Src::Const(number) => format!("{number}"),
        };
        for (at, instr) in self.instrs.iter().enumerate() {
            let comma = if at == 0 { "" } else { "; " };
            let sources: Vec<String> = instr.sources().map(|src| source(&src)).collect();
            let name = match instr {
                Instr::Unary(op, _) => format!("{op:?}"),
                Instr::Binary(op, ..) => format!("{op:?}"),
                Instr::Select(..) => "Select".into(),
            };
            write!(f, "{comma}{name} {}", sources.join(" "))?;
        }
        Ok(())
    }
}
