use super::super::testing::{at, indices, layout, shape, threads};
use super::*;
use proptest::prelude::*;

/// Elements that all differ, as far as their size allows.
pub(crate) fn numbered(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|i| (i * 31 + (i >> 8) * 7) as u8).collect()
}

fn element(bytes: &[u8], at: usize, size: usize) -> &[u8] {
    &bytes[at * size..(at + 1) * size]
}

proptest! {
    #[test]
    fn every_element_arrives_and_nothing_else_is_touched(
        shape in shape(0..=6, prop_oneof![Just(1usize), 0..9usize, 30..140usize], 20_000),
        (from, to) in (layout(), layout()),
        (broadcast, size, count) in (0..64u8, 0..4u32, 1..3usize),
        offset in 0..2usize,
    ) {
        let size = 1usize << size;
        let still = broadcast & broadcast >> 1;
        let own: Vec<usize> = (0..shape.len()).map(|a| if still >> a & 1 == 1 { 1 } else { shape[a] }).collect();
        let mut strides = from.strides(&own);
        (0..shape.len()).filter(|a| still >> a & 1 == 1).for_each(|a| strides[a] = 0);
        let out_strides = to.strides(&shape);
        let source = numbered(offset + walk::span(&shape, &strides) * size);
        let mut target = vec![0xAA; offset + walk::span(&shape, &out_strides) * size];
        let mut expected = target.clone();
        for index in indices(&shape) {
            let to = offset + at(&index, &out_strides) * size;
            expected[to..to + size].copy_from_slice(element(&source[offset..], at(&index, &strides), size));
        }
        let copy = Copy::new(size, &shape, &strides, &out_strides);
        // Not aligned, for one of the offsets.
        copy.run(Source::from(&source[offset..]), Target::from(&mut target[offset..]), &threads(count));
        prop_assert!(target == expected);
    }

    #[test]
    fn a_fill_fills_its_region_only(
        shape in shape(0..=5, prop_oneof![Just(1usize), 0..9usize, 30..140usize], 20_000),
        layout in layout(),
        (size, bits, count) in (0..4u32, any::<u64>(), 1..3usize),
    ) {
        let size = 1usize << size;
        let strides = layout.strides(&shape);
        let mut target = vec![0xAA; walk::span(&shape, &strides) * size];
        let mut expected = target.clone();
        for index in indices(&shape) {
            let to = at(&index, &strides) * size;
            expected[to..to + size].copy_from_slice(&bits.to_le_bytes()[..size]);
        }
        Fill::new(size, &shape, &strides).run(bits, Target::from(&mut target[..]), &threads(count));
        prop_assert!(target == expected);
    }
}

#[test]
fn images_go_to_channels_last_and_back() {
    for (channels, pixels) in [(1, 50), (2, 9), (3, 1000), (4, 33), (5, 7), (64, 100), (100, 64), (513, 37)] {
        let (planes, last) = ([pixels, 1], [1, channels]);
        let source = numbered(channels * pixels * 4);
        let (mut there, mut back) = (vec![0; source.len()], vec![0; source.len()]);
        let shape = [channels, pixels];
        Copy::new(4, &shape, &planes, &last).run(
            Source::from(&source[..]),
            Target::from(&mut there[..]),
            &threads(2),
        );
        for (channel, pixel) in (0..channels).flat_map(|c| (0..pixels).map(move |p| (c, p))) {
            assert_eq!(
                element(&there, pixel * channels + channel, 4),
                element(&source, channel * pixels + pixel, 4)
            );
        }
        Copy::new(4, &shape, &last, &planes).run(
            Source::from(&there[..]),
            Target::from(&mut back[..]),
            &threads(2),
        );
        assert!(back == source, "{channels} channels");
    }
}

#[test]
#[should_panic(expected = "a source of 15 bytes, 16 are read")]
fn a_source_that_is_too_short_is_refused() {
    let mut target = [0; 16];
    let copy = Copy::new(4, &[4], &[1], &[1]);
    copy.run(Source::from(&[0; 15][..]), Target::from(&mut target[..]), &threads(1));
}
