use super::super::testing::{at, indices, layout, shape, threads};
use super::*;
use proptest::prelude::*;

fn origin(position: isize, len: isize, mode: PadMode) -> Option<isize> {
    match mode {
        _ if (0..len).contains(&position) => Some(position),
        PadMode::Constant(_) => None,
        PadMode::Edge => Some(position.clamp(0, len - 1)),
        PadMode::Reflect => {
            let mut position = position;
            while !(0..len).contains(&position) && len > 1 {
                position = if position < 0 { -position } else { 2 * (len - 1) - position };
            }
            Some(if len > 1 { position } else { 0 })
        }
    }
}

proptest! {
    #[test]
    fn every_mode_pads_every_layout(
        shape in shape(1..=4, 1..9usize, 500),
        pads in proptest::collection::vec((-2..4isize, -2..4isize), 4),
        (mode, size, count) in (0..3usize, 0..4u32, 1..3usize),
        (from, to) in (layout(), layout()),
    ) {
        let size = 1usize << size;
        let mode = [PadMode::Constant(0x0102_0304_0506_0708), PadMode::Edge, PadMode::Reflect][mode];
        let rank = shape.len();
        let (before, after): (Vec<isize>, Vec<isize>) = pads[..rank].iter().copied().unzip();
        let out: Vec<usize> = (0..rank).map(|a| (shape[a] as isize + before[a] + after[a]).max(0) as usize).collect();
        let (strides, out_strides) = (from.strides(&shape), to.strides(&out));
        let source = super::super::copy::tests::numbered(walk::span(&shape, &strides) * size);
        let mut target = vec![0xAA; walk::span(&out, &out_strides) * size];
        let mut expected = target.clone();
        for index in indices(&out) {
            let mut from = Some(0);
            for axis in 0..rank {
                let origin = origin(index[axis] as isize - before[axis], shape[axis] as isize, mode);
                from = from.zip(origin).map(|(from, origin)| from + origin as usize * strides[axis]);
            }
            let to = at(&index, &out_strides) * size;
            let constant = 0x0102_0304_0506_0708u64.to_le_bytes();
            let element = from.map_or(&constant[..size], |from| &source[from * size..(from + 1) * size]);
            expected[to..to + size].copy_from_slice(element);
        }
        let pad = Pad::new(size, &shape, &strides, &out_strides, &before, &after, mode);
        pad.run(Source::from(&source[..]), Target::from(&mut target[..]), &threads(count));
        prop_assert!(target == expected);
    }
}
