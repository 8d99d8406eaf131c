use super::*;

/// For any number of keys.
fn always() -> Preferences {
    let attention = Some(AttentionKeys { fewest: 1, fewest_selected: 1, ..AttentionKeys::default() });
    Preferences { attention, ..Preferences::default() }
}

fn softmax(m: &mut Model, scores: ValueId, axis: usize) -> ValueId {
    let (name, shape) = (m.name("softmax"), m.shape(scores));
    let op = Op::Softmax { axes: [axis].as_slice().into(), log: false };
    m.builder.node(&name, op, &[scores], DType::F32, &shape)
}

/// Queries, keys and values of 2 items, 5 tokens, 3 heads of 4 numbers.
fn heads(m: &mut Model) -> [ValueId; 3] {
    [(); 3].map(|()| m.input(&[2, 5, 3, 4]))
}

/// 2 items, 3 heads, 5 queries and 5 keys.
fn scores(m: &mut Model, q: ValueId, k: ValueId) -> ValueId {
    m.einsum("ambk,anbk->abmn", q, k, &[2, 3, 5, 5])
}

fn context(m: &mut Model, weights: ValueId, v: ValueId) -> ValueId {
    m.einsum("abmk,akbn->ambn", weights, v, &[2, 5, 3, 4])
}

fn declined(m: Model, outputs: &[ValueId]) -> Vec<String> {
    let (graph, declined) = check(m.builder.finish(outputs), &always());
    assert!(nodes(&graph).iter().all(|node| !node.starts_with("Attention")));
    declined.into_iter().filter(|reason| reason.starts_with("attention")).collect()
}

#[test]
fn scores_softmax_and_values_are_one_step() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    assert_eq!(nodes(&m.fused_as(&[y], &always())), ["Attention<ambk,anbk->abmn over n,anbc->ambc>"]);
}

#[test]
fn scale_and_mask_of_bert_become_its_chain() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let mask = m.input(&[2, 1, 1, 5]);
    let x = scores(&mut m, q, k);
    let x = m.with(Binary::Div, x, 2.0);
    let one = m.number(4, 1.0);
    let masked = m.binary(Binary::Sub, one, mask);
    let masked = m.with(Binary::Mul, masked, -1e4);
    let x = m.binary(Binary::Add, x, masked);
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    let attention = "Attention<ambk,anbk->abmn over n,anbc->ambc>\
                     +<Sub 1 $1; Mul r0 -10000; Mul $0 0.5; Add r1 r2>";
    assert_eq!(nodes(&m.fused_as(&[y], &always())), [attention]);
}

#[test]
fn a_causal_mask_selects_in_its_chain() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let causal: Vec<u8> = (0..25).map(|at| u8::from(at % 5 <= at / 5)).collect();
    let causal = m.builder.constant("causal", DType::Bool, &[1, 1, 5, 5], bytes::Bytes::from(causal));
    let x = scores(&mut m, q, k);
    let lowest = m.number(4, f32::MIN);
    let select = Instr::Select(Src::Operand(0), Src::Operand(1), Src::Operand(2));
    let x = m.builder.node(
        "where",
        Op::Pointwise(Chain { instrs: vec![select] }),
        &[causal, x, lowest],
        DType::F32,
        &[2, 3, 5, 5],
    );
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    let nodes = nodes(&m.fused_as(&[y], &always()));
    assert_eq!(nodes.len(), 1);
    assert!(nodes[0].contains("+<Select $1 $0 "), "{nodes:?}");
}

#[test]
fn operands_may_stand_the_other_way_round_and_axes_be_named_alike() {
    let mut m = Model::default();
    let (q, k, v) = (m.input(&[3, 4, 7]), m.input(&[3, 6, 4]), m.input(&[3, 5, 6]));
    // Keys first, scores with the keys in front of the queries, values first.
    let x = m.einsum("bnk,bkm->bnm", k, q, &[3, 6, 7]);
    let weights = softmax(&mut m, x, 1);
    let y = m.einsum("bmk,bkn->bmn", v, weights, &[3, 5, 7]);
    assert_eq!(nodes(&m.fused_as(&[y], &always())), ["Attention<bkm,bnk->bnm over n,ban->bam>"]);
}

#[test]
fn queries_of_several_heads_may_share_keys() {
    let mut m = Model::default();
    let (q, k, v) = (m.input(&[2, 3, 4, 6]), m.input(&[2, 5, 6]), m.input(&[2, 5, 6]));
    let x = m.einsum("gbmk,gnk->gbmn", q, k, &[2, 3, 4, 5]);
    let weights = softmax(&mut m, x, 3);
    let y = m.einsum("gbmn,gnd->gbmd", weights, v, &[2, 3, 4, 6]);
    assert_eq!(nodes(&m.fused_as(&[y], &always())), ["Attention<gbmk,gnk->gbmn over n,gna->gbma>"]);
}

#[test]
fn what_others_read_is_left_and_says_why() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    let reason = "attention einsum3: the softmax of the scores `softmax2` are read by others too";
    assert_eq!(declined(m, &[y, weights]), [reason]);
}

#[test]
fn a_softmax_over_queries_is_no_attention() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 2);
    let y = context(&mut m, weights, v);
    assert_eq!(declined(m, &[y]).len(), 1);
}

#[test]
fn what_follows_the_values_is_left_to_their_product() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    let y = m.binary(Binary::Add, y, q);
    let reasons = declined(m, &[y]);
    assert_eq!(reasons, ["attention einsum3: something follows the product with the values"]);
}

#[test]
fn few_keys_stay_steps_apart() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 3);
    let y = context(&mut m, weights, v);
    let (_, declined) = check(m.builder.finish(&[y]), &Preferences::default());
    assert_eq!(
        declined,
        ["attention einsum3: there are 5 keys, and steps apart are faster with fewer than 64"]
    );
}

#[test]
fn weights_that_are_made_zero_where_they_are_no_numbers_are_part_of_it() {
    let mut m = Model::default();
    let [q, k, v] = heads(&mut m);
    let x = scores(&mut m, q, k);
    let weights = softmax(&mut m, x, 3);
    let nan = m.pointwise(
        Instr::Binary(Binary::NotEqual, Src::Operand(0), Src::Operand(0)),
        &[weights],
        DType::Bool,
    );
    let zero = m.number(4, 0.0);
    let select = Instr::Select(Src::Operand(0), Src::Operand(1), Src::Operand(2));
    let weights = m.pointwise(select, &[nan, zero, weights], DType::F32);
    let y = context(&mut m, weights, v);
    let attention = "Attention<ambk,anbk->abmn over n,anbc->ambc> NaN to 0";
    assert_eq!(nodes(&m.fused_as(&[y], &always())), [attention]);
}
