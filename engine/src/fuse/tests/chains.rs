use super::*;

fn chain(build: impl Fn(&mut Model, ValueId) -> ValueId) -> String {
    let mut m = Model::default();
    let x = m.input(&[3, 4]);
    let y = build(&mut m, x);
    nodes(&m.fused(&[y])).join(" ")
}

#[test]
fn operations_that_follow_each_other_are_one_chain() {
    let text = chain(|m, x| {
        let b = m.weights(&[3, 4]);
        let sum = m.binary(Binary::Add, x, b);
        let (left, right) = (m.unary(Unary::Exp, sum), m.unary(Unary::Sin, sum));
        m.binary(Binary::Sub, left, right)
    });
    assert_eq!(text, "Pointwise<Add $0 $1; Sin r0; Exp r0; Sub r2 r1>");
}

#[test]
fn x_times_its_sigmoid_is_silu() {
    let silu = "Pointwise<Silu $0>";
    assert_eq!(
        chain(|m, x| {
            let s = m.unary(Unary::Sigmoid, x);
            m.binary(Binary::Mul, s, x)
        }),
        silu
    );
    let in_parts = |m: &mut Model, x: ValueId| {
        let minus = m.unary(Unary::Neg, x);
        let exp = m.unary(Unary::Exp, minus);
        let one = m.with(Binary::Add, exp, 1.0);
        m.binary(Binary::Div, x, one)
    };
    assert_eq!(chain(in_parts), silu);
}

#[test]
fn hard_swish_is_found_in_every_exporters_form() {
    let six = |m: &mut Model, x: ValueId| {
        let more = m.with(Binary::Add, x, 3.0);
        let low = m.with(Binary::Max, more, 0.0);
        m.with(Binary::Min, low, 6.0)
    };
    let swish = "Pointwise<HardSwish $0>";
    assert_eq!(
        chain(|m, x| {
            let part = six(m, x);
            let y = m.binary(Binary::Mul, x, part);
            m.with(Binary::Div, y, 6.0)
        }),
        swish
    );
    assert_eq!(
        chain(|m, x| {
            let part = six(m, x);
            let part = m.with(Binary::Mul, part, 1.0 / 6.0);
            m.binary(Binary::Mul, part, x)
        }),
        swish
    );
    assert_eq!(
        chain(|m, x| {
            let part = m.with(Binary::Mul, x, 1.0 / 6.0);
            let part = m.with(Binary::Add, part, 0.5);
            let part = m.with(Binary::Min, part, 1.0);
            let part = m.with(Binary::Max, part, 0.0);
            m.binary(Binary::Mul, x, part)
        }),
        swish
    );
    // Another factor stays, and so does another slope.
    assert_eq!(
        chain(|m, x| {
            let part = six(m, x);
            let y = m.binary(Binary::Mul, x, part);
            m.with(Binary::Mul, y, 0.5)
        }),
        "Pointwise<HardSwish $0; Mul r0 3>"
    );
    let other = chain(|m, x| {
        let part = m.with(Binary::Mul, x, 0.2);
        let part = m.with(Binary::Add, part, 0.5);
        let part = m.with(Binary::Max, part, 0.0);
        let part = m.with(Binary::Min, part, 1.0);
        m.binary(Binary::Mul, x, part)
    });
    assert_eq!(other, "Pointwise<Mul $0 0.2; Add r0 0.5; Max r1 0; Min r2 1; Mul r3 $0>");
}

#[test]
fn hard_swish_of_a_sum_is_found() {
    let text = chain(|m, x| {
        let x = m.with(Binary::Add, x, 0.5);
        let more = m.with(Binary::Add, x, 3.0);
        let low = m.with(Binary::Max, more, 0.0);
        let part = m.with(Binary::Min, low, 6.0);
        let y = m.binary(Binary::Mul, x, part);
        m.with(Binary::Mul, y, 1.0 / 6.0)
    });
    assert_eq!(text, "Pointwise<Add $0 0.5; HardSwish r0>");
}

#[test]
fn gelu_by_tanh_is_found_in_every_association() {
    for way in 0..4 {
        let text = chain(|m, x| {
            let cubed = if way % 2 == 0 {
                let y = m.with(Binary::Mul, x, 0.044715);
                let y = m.binary(Binary::Mul, x, y);
                m.binary(Binary::Mul, x, y)
            } else {
                let y = m.with(Binary::Pow, x, 3.0);
                m.with(Binary::Mul, y, 0.044715)
            };
            let sum = m.binary(Binary::Add, x, cubed);
            let inner = m.with(Binary::Mul, sum, 0.797_884_6);
            let tanh = m.unary(Unary::Tanh, inner);
            let one = m.with(Binary::Add, tanh, 1.0);
            if way < 2 {
                let half = m.with(Binary::Mul, one, 0.5);
                m.binary(Binary::Mul, x, half)
            } else {
                let half = m.with(Binary::Mul, x, 0.5);
                m.binary(Binary::Mul, one, half)
            }
        });
        assert_eq!(text, "Pointwise<GeluTanh $0>", "way {way}");
    }
}

#[test]
fn gelu_by_erf_is_found() {
    let text = chain(|m, x| {
        let inner = m.with(Binary::Div, x, std::f32::consts::SQRT_2);
        let erf = m.unary(Unary::Erf, inner);
        let one = m.with(Binary::Add, erf, 1.0);
        let y = m.binary(Binary::Mul, x, one);
        m.with(Binary::Mul, y, 0.5)
    });
    assert_eq!(text, "Pointwise<GeluErf $0>");
}

#[test]
fn numbers_merge_unless_they_round_on_purpose() {
    let twice = chain(|m, x| {
        let y = m.with(Binary::Mul, x, 2.0);
        let y = m.with(Binary::Mul, y, 3.0);
        let y = m.with(Binary::Add, y, 1.0);
        m.with(Binary::Sub, y, 3.0)
    });
    assert_eq!(twice, "Pointwise<Mul $0 6; Add r0 -2>");
    let rounded = chain(|m, x| {
        let y = m.with(Binary::Add, x, 8388608.0);
        m.with(Binary::Sub, y, 8388608.0)
    });
    assert_eq!(rounded, "Pointwise<Add $0 8388608; Add r0 -8388608>");
}

#[test]
fn runs_of_constants_along_channels_become_one_of_each() {
    let text = chain(|m, x| {
        let [a, b, c, d] = [0; 4].map(|_| m.weights(&[3, 1]));
        let y = m.binary(Binary::Mul, x, a);
        let y = m.binary(Binary::Add, y, b);
        let y = m.binary(Binary::Mul, y, c);
        let y = m.binary(Binary::Add, y, d);
        m.relu(y)
    });
    assert_eq!(text, "Pointwise<Mul $0 $1; Add r0 $2; Max r1 0>");
}

#[test]
fn work_on_few_elements_is_not_repeated_for_many() {
    let mut m = Model::default();
    let (x, gate) = (m.input(&[40, 200]), m.input(&[40, 1]));
    let gate = m.unary(Unary::Sigmoid, gate);
    let y = m.binary(Binary::Mul, x, gate);
    let (graph, declined) = check(m.builder.finish(&[y]), &Preferences::default());
    assert_eq!(nodes(&graph), ["Pointwise<Sigmoid $0>", "Pointwise<Mul $0 $1>"]);
    assert_eq!(declined, ["chains p2: `p1` is computed for 40 elements, here it would be for 8000"]);
}

#[test]
fn cheap_work_that_several_chains_read_is_done_in_each() {
    let mut m = Model::default();
    let x = m.input(&[3, 4]);
    let relu = m.relu(x);
    let (a, b) = (m.unary(Unary::Exp, relu), m.unary(Unary::Sqrt, relu));
    assert_eq!(nodes(&m.fused(&[a, b])), ["Pointwise<Max $0 0; Exp r0>", "Pointwise<Max $0 0; Sqrt r0>"]);
}

#[test]
fn limits_of_the_device_hold_and_are_named() {
    let mut m = Model::default();
    let inputs: Vec<ValueId> = (0..5).map(|_| m.input(&[2, 2])).collect();
    let mut y = inputs[0];
    for x in &inputs[1..] {
        y = m.binary(Binary::Mul, y, *x);
    }
    let preferences = Preferences { chain_operands: 3, ..Preferences::default() };
    let (graph, declined) = check(m.builder.finish(&[y]), &preferences);
    assert_eq!(nodes(&graph), ["Pointwise<Mul $0 $1; Mul r0 $2>"; 2]);
    assert_eq!(declined[0], "chains p3: the chain would read 4 operands, the most is 3");
}

#[test]
fn comparisons_and_conversions_are_part_of_chains() {
    let mut m = Model::default();
    let (x, i) = (m.input(&[2, 6]), m.builder.input("i", DType::I32, &[2, 6]));
    let less = Instr::Binary(Binary::Less, Src::Operand(0), Src::Operand(1));
    let zero = m.number(2, 0.0);
    let negative = m.pointwise(less, &[x, zero], DType::Bool);
    let mask = m.builder.node("mask", Op::Cast, &[negative], DType::F32, &[2, 6]);
    let number = m.builder.node("number", Op::Cast, &[i], DType::F32, &[2, 6]);
    let y = m.binary(Binary::Mul, mask, number);
    assert_eq!(nodes(&m.fused(&[y])), ["Pointwise<FromI32 $0; Less $1 0; Mul r0 r1>"]);
}

#[test]
fn erf_and_the_activations_are_what_tables_say() {
    use crate::fuse::evaluate::unary;
    for (op, x, y) in [
        (Unary::Erf, 0.5, 0.520_499_9),
        (Unary::Erf, -2.0, -0.995_322_3),
        (Unary::Erf, 9.0, 1.0),
        (Unary::GeluErf, 1.0, 0.841_344_7),
        (Unary::GeluTanh, 1.0, 0.841_192),
        (Unary::HardSwish, 1.0, 2.0 / 3.0),
        (Unary::HardSwish, 5.0, 5.0),
        (Unary::Silu, 1.0, 0.731_058_6),
        (Unary::RoundHalfEven, 2.5, 2.0),
        (Unary::Round, 2.5, 3.0),
    ] {
        assert!((unary(op, x) - y).abs() < 1e-6, "{op:?} of {x} is {}, not {y}", unary(op, x));
    }
}

#[test]
fn results_are_counted_while_somebody_still_reads_them() {
    use crate::fuse::merge::registers;
    let (x, exp) = (Src::Operand(0), |src| Instr::Unary(Unary::Exp, src));
    let add = |one, other| Instr::Binary(Binary::Add, Src::Reg(one), Src::Reg(other));
    let line = Chain { instrs: vec![exp(x), exp(Src::Reg(0)), exp(Src::Reg(1))] };
    assert_eq!(registers(&line), 1);
    let wide = Chain { instrs: vec![exp(x), exp(Src::Reg(0)), exp(Src::Reg(1)), add(0, 1), add(3, 2)] };
    assert_eq!(registers(&wide), 3);
}

#[test]
fn a_fused_node_is_noted_once() {
    let mut m = Model::default();
    let x = m.input(&[3, 4]);
    let y = m.unary(Unary::Exp, x);
    let y = m.unary(Unary::Sin, y);
    let y = m.unary(Unary::Abs, y);
    let notes = fuse(m.builder.finish(&[y]), &Preferences::default()).notes;
    let node = |name: &str| crate::fuse::Note { pass: "chains", node: name.into(), outcome: Outcome::Fused };
    assert_eq!(notes, [node("p2"), node("p3")]);
}
