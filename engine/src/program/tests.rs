use super::*;
use crate::arena::Lines;
use crate::graph::{Binary, Builder, Chain, HostStep, Instr, Op, Src};
use crate::import::{Dim, Port};
use crate::plan::layout;
use crate::slab::Fixed;
use crate::tensor::DType;

/// A step with a bug that the number 13 brings out.
#[derive(Debug)]
struct Superstitious;

impl HostStep for Superstitious {
    fn op(&self) -> &str {
        "Superstitious"
    }

    fn constant_bytes(&self) -> usize {
        0
    }

    fn run(&self, inputs: &[Tensor], outputs: &mut Vec<Tensor>) -> Result<(), Error> {
        let thirteen = numbers(&inputs[0]).contains(&13.0);
        assert!(!thirteen, "there is no row 13");
        outputs.push(inputs[0].clone());
        Ok(())
    }
}

fn numbers(tensor: &Tensor) -> Vec<f32> {
    let bytes = tensor.as_bytes().unwrap();
    bytes.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().unwrap())).collect()
}

/// y = x + 1, by way of the step with the bug, planned in this arena.
fn program(arena: &Arc<Arena>) -> Program {
    let mut builder = Builder::new();
    let x = builder.input("x", DType::F32, &[4]);
    let same = builder.node("same", Op::Host(Arc::new(Superstitious)), &[x], DType::F32, &[4]);
    let ones = builder.floats("ones", &[4], &[1.0; 4]);
    let add = Chain { instrs: vec![Instr::Binary(Binary::Add, Src::Operand(0), Src::Operand(1))] };
    let y = builder.node("y", Op::Pointwise(add), &[same, ones], DType::F32, &[4]);
    let graph = builder.finish(&[y]);
    let layout = layout(&graph);
    let device = arena.device();
    let prepared = device.prepare(graph, layout, crate::device::Manner::plain(1)).unwrap();
    let planned = prepared.finish(&device.constants(), None, &|bytes| arena.room("m", bytes)).unwrap();
    let port = |name: &str| Port { name: name.into(), dtype: DType::F32, dims: Some(vec![Dim::Fixed(4)]) };
    let signature = Arc::new(Signature { inputs: vec![port("x")], outputs: vec![port("y")] });
    let shapes = vec![Shape::from_slice(&[4])];
    Program::new("m", signature, shapes, Executor::Planned(planned), Arc::clone(arena), None)
}

#[test]
fn a_panic_in_a_step_is_a_fault_and_program_lane_and_weights_stay_usable() {
    let fixed = Fixed { ceiling: 1 << 22, headroom: 1 << 20, ..Fixed::default() };
    let lines =
        Lines { fixed, reserve: 0, lanes: 1, workspace: Some(1 << 16), threads: 1, ..Lines::default() };
    let arena = Arena::take(&lines, || 0).unwrap();
    let program = program(&arena);
    let mut lane = arena.lanes().unwrap().take(0).unwrap();
    let mut outputs = vec![];
    let mut run = |first: f32| {
        let x = [Tensor::from_slice(DType::F32, &[4], &[first, 2.0, 3.0, 4.0]).unwrap()];
        program.run(&mut lane.workspace(), &x, &mut outputs).map(|()| numbers(&outputs[0]))
    };
    assert_eq!(run(1.0).unwrap(), [2.0, 3.0, 4.0, 5.0]);
    for _ in 0..3 {
        let fault = run(13.0).unwrap_err();
        assert!(matches!(&fault, Error::Fault { reason } if reason == "there is no row 13"), "{fault:?}");
        assert_eq!(fault.to_string(), "the run broke off: there is no row 13");
        let held = arena.snapshot().unwrap().0.held;
        assert!(held.len() == 1 && !held[0].in_use, "the weights can move and leave: {held:?}");
        assert_eq!(run(5.0).unwrap(), [6.0, 3.0, 4.0, 5.0]);
    }
    drop(lane);
    assert!(arena.lanes().unwrap().take(0).is_some());
}
