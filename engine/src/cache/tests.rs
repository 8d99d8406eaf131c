use super::*;
use proptest::prelude::*;
use temp_dir::TempDir;

fn cache(dir: &TempDir, build: &[u8]) -> Cache {
    Cache::open(dir.path(), build, Box::new(|_| {})).unwrap()
}

fn written(shelf: &Shelf, bytes: &[(u128, Vec<u8>)]) {
    let pieces: Vec<Piece<'_>> = bytes.iter().map(|(key, bytes)| Piece { key: *key, bytes }).collect();
    shelf.pieces().write(&pieces).unwrap();
}

/// The one file of a shelf whose name ends so.
fn file(dir: &TempDir, end: &str) -> PathBuf {
    let shelf = fs::read_dir(dir.path().join("models")).unwrap().next().unwrap().unwrap().path();
    let mut files = fs::read_dir(shelf).unwrap().map(|entry| entry.unwrap().path());
    files.find(|path| path.to_string_lossy().ends_with(end)).unwrap()
}

#[test]
fn what_was_put_is_there_for_the_same_build_and_name_alone() {
    let dir = TempDir::new().unwrap();
    cache(&dir, b"one").shelf("m").put("numbers", &vec![1u64, 2, 3]).unwrap();
    assert_eq!(cache(&dir, b"one").shelf("m").get("numbers"), Some(vec![1u64, 2, 3]));
    assert_eq!(cache(&dir, b"one").shelf("m").get::<Vec<u64>>("others"), None);
    assert_eq!(cache(&dir, b"one").shelf("n").get::<Vec<u64>>("numbers"), None);
    assert_eq!(cache(&dir, b"two").shelf("m").get::<Vec<u64>>("numbers"), None);
}

#[test]
fn pieces_of_several_files_are_found_and_kept() {
    let dir = TempDir::new().unwrap();
    let shelf = cache(&dir, b"").shelf("m");
    written(&shelf, &[(1, vec![1; 300_000]), (2, vec![2; 5])]);
    written(&shelf, &[(3, vec![])]);
    let pieces = shelf.pieces();
    let mut large = vec![0; 300_000];
    assert!(pieces.read(1, &mut large) && large.iter().all(|byte| *byte == 1));
    assert!(pieces.read(2, &mut [0; 5]));
    assert!(pieces.read(3, &mut []));
    // Another length is another piece.
    assert!(!pieces.read(2, &mut [0; 4]));
    assert!(!pieces.read(4, &mut []));
    assert!(!cache(&dir, b"other").shelf("m").pieces().read(2, &mut [0; 5]));
}

#[test]
fn a_folder_that_cannot_be_written_is_an_error_and_no_panic() {
    let dir = TempDir::new().unwrap();
    fs::write(dir.child("models"), b"a file where a folder should be").unwrap();
    let shelf = cache(&dir, b"").shelf("m");
    shelf.put("numbers", &1u64).unwrap_err();
    shelf.pieces().write(&[Piece { key: 1, bytes: &[1] }]).unwrap_err();
    assert_eq!(shelf.get::<u64>("numbers"), None);
}

proptest! {
    /// Whatever byte is changed or wherever the file is cut, a record is as it was or absent, never another.
    #[test]
    fn a_damaged_record_is_absent(at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()) {
        let dir = TempDir::new().unwrap();
        let shelf = cache(&dir, b"").shelf("m");
        let value: Vec<u64> = (0..20).map(|n| n * n * n).collect();
        shelf.put("numbers", &value).unwrap();
        damage(&file(&dir, "numbers"), at, flip, cut);
        prop_assert_eq!(shelf.get::<Vec<u64>>("numbers"), None);
    }

    /// The same for pieces; and what is written again afterwards is there.
    #[test]
    fn a_damaged_piece_is_absent(at in any::<prop::sample::Index>(), flip in 1u8.., cut in any::<bool>()) {
        let dir = TempDir::new().unwrap();
        let shelf = cache(&dir, b"").shelf("m");
        let bytes = [(1, (0..200).collect::<Vec<u8>>()), (2, vec![7; 50])];
        written(&shelf, &bytes);
        damage(&file(&dir, ".pieces"), at, flip, cut);
        let pieces = shelf.pieces();
        for (key, expected) in &bytes {
            let mut read = vec![0; expected.len()];
            prop_assert!(!pieces.read(*key, &mut read) || read == *expected);
        }
        written(&shelf, &bytes);
        let mut read = vec![0; 200];
        prop_assert!(shelf.pieces().read(1, &mut read) && read == bytes[0].1);
    }
}

fn damage(path: &Path, at: prop::sample::Index, flip: u8, cut: bool) {
    let mut bytes = fs::read(path).unwrap();
    let at = at.index(bytes.len());
    if cut {
        bytes.truncate(at);
    } else {
        bytes[at] ^= flip;
    }
    fs::write(path, bytes).unwrap();
}
