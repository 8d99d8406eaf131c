use super::*;
use proptest::prelude::*;
use std::path::PathBuf;
use temp_dir::TempDir;

fn file(bytes: &[u8]) -> (TempDir, PathBuf, Data) {
    let dir = TempDir::new().unwrap();
    let path = dir.child("weights");
    std::fs::write(&path, bytes).unwrap();
    let data = DataFile::open(&path).unwrap().whole();
    (dir, path, data)
}

fn floats(values: &[f32]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

proptest! {
    #[test]
    fn any_range_of_any_data_is_what_the_whole_has_there(
        values in prop::collection::vec(-100f32..100.0, 1..64),
        factors in prop::collection::vec(-2f32..2.0, 1..5),
        inner in 1usize..5,
        from in 0usize..256,
        len in 0usize..256,
    ) {
        let bytes = floats(&values);
        let (_dir, _, in_file) = file(&bytes);
        let halves: Vec<u8> = values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect();
        let scaled: Vec<f32> =
            values.iter().enumerate().map(|(i, x)| x * factors[(i / inner) % factors.len()]).collect();
        let widened: Vec<f32> = values.iter().map(|x| f16::from_f32(*x).to_f32()).collect();
        // Rows of `inner` floats, and of two.
        let rows = values.len() / inner;
        let second: Vec<f32> = (0..rows * 2).map(|x| x as f32).collect();
        let beside: Vec<f32> = (0..rows)
            .flat_map(|row| values[row * inner..(row + 1) * inner].iter().chain(&second[row * 2..row * 2 + 2]))
            .copied()
            .collect();
        let first = in_file.slice(0, rows * inner * 4).unwrap();
        let parts = [
            Part { data: first, row: inner * 4 },
            Part { data: Data::Bytes(floats(&second).into()), row: 8 },
        ];
        let all = [
            (Data::Beside(parts.into()), floats(&beside)),
            (Data::Bytes(bytes.clone().into()), bytes.clone()),
            (in_file.clone(), bytes),
            (Data::Scaled { base: Box::new(in_file), factors: factors.into(), inner }, floats(&scaled)),
            (Data::Widened(Box::new(Data::Bytes(halves.into()))), floats(&widened)),
        ];
        for (data, expected) in all {
            prop_assert_eq!(data.len(), expected.len());
            prop_assert_eq!(&data.load().unwrap()[..], &expected[..]);
            let mut part = vec![0; len];
            match expected.get(from..from + len) {
                Some(expected) => {
                    data.read(from, &mut part).unwrap();
                    prop_assert_eq!(&part[..], expected);
                    if let Some(slice) = data.slice(from, len) {
                        prop_assert_eq!(&slice.load().unwrap()[..], expected);
                    }
                }
                None => {
                    prop_assert!(data.read(from, &mut part).is_err());
                    prop_assert!(data.slice(from, len).is_none());
                }
            }
        }
    }
}

#[test]
fn data_is_told_apart_by_content_place_and_factors() {
    let (_dir, _, data) = file(&floats(&[1.0, 2.0, 1.0, 2.0]));
    let scaled =
        |factors: &[f32]| Data::Scaled { base: Box::new(data.clone()), factors: factors.into(), inner: 1 };
    let (front, back) = (data.slice(0, 8).unwrap(), data.slice(8, 8).unwrap());
    assert_eq!(data.identity(), data.clone().identity());
    assert_ne!(front.identity(), back.identity());
    assert_eq!(Data::Bytes(front.load().unwrap()).identity(), Data::Bytes(back.load().unwrap()).identity());
    assert_eq!(scaled(&[1.0, 3.0]).identity(), scaled(&[1.0, 3.0]).identity());
    assert_ne!(scaled(&[1.0, 3.0]).identity(), scaled(&[1.0, 4.0]).identity());
    assert_ne!(scaled(&[1.0]).identity(), data.identity());
}

#[test]
fn a_file_that_is_cut_short_or_written_to_is_an_error_that_says_so() {
    let (_dir, path, data) = file(&[7; 4096]);
    std::fs::File::options().write(true).open(&path).unwrap().set_len(100).unwrap();
    let error = data.load().unwrap_err().to_string();
    assert!(error.contains("has changed since the model was loaded"), "{error}");
    let (_dir, path, data) = file(&[7; 4096]);
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(soon).unwrap();
    let error = data.read(0, &mut [0; 8]).unwrap_err().to_string();
    assert!(error.contains("has changed since the model was loaded"), "{error}");
}

#[test]
fn another_file_in_its_place_does_no_harm() {
    let (dir, path, data) = file(&[7; 64]);
    std::fs::write(dir.child("next"), [8; 10]).unwrap();
    std::fs::rename(dir.child("next"), &path).unwrap();
    assert_eq!(&data.load().unwrap()[..], &[7; 64]);
}

#[test]
fn a_folder_is_no_file() {
    let dir = TempDir::new().unwrap();
    assert!(DataFile::open(dir.path()).is_err());
}

#[test]
fn a_file_within_a_folder_is_opened_by_whatever_links_lead_there_and_no_other() {
    use std::os::unix::fs::symlink;
    let (dir, outside) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    std::fs::write(dir.child("in"), "in").unwrap();
    std::fs::write(outside.child("out"), "out").unwrap();
    std::fs::create_dir(dir.child("inner")).unwrap();
    symlink("../in", dir.child("inner/back")).unwrap();
    symlink(outside.child("out"), dir.child("link")).unwrap();
    symlink(outside.path(), dir.child("folder")).unwrap();
    let open = |name: &str| DataFile::open_within(&dir.child(name), dir.path());
    assert_eq!(&open("in").unwrap().whole().load().unwrap()[..], b"in");
    assert_eq!(&open("inner/back").unwrap().whole().load().unwrap()[..], b"in");
    for name in ["link", "folder/out"] {
        assert!(open(name).unwrap_err().to_string().contains("outside"), "{name}");
    }
    // What was exchanged for a link after it was found to lie inside.
    for name in ["link", "folder/out", "inner/back"] {
        assert!(DataFile::open_resolved(&dir.path().canonicalize().unwrap().join(name)).is_err(), "{name}");
    }
}
