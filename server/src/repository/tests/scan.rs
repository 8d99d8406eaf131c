use crate::repository::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use temp_dir::TempDir;

/// A folder with these files, each of a few bytes; a name that ends in `/` is an empty folder.
fn folder(files: &[&str]) -> TempDir {
    let root = TempDir::new().unwrap();
    for file in files {
        let path = root.path().join(file);
        if file.ends_with('/') {
            fs::create_dir_all(path).unwrap();
        } else {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "onnx").unwrap();
        }
    }
    root
}

fn only(root: &TempDir) -> Found {
    let mut found = scan(root.path()).unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// The versions as numbers and paths under the root.
fn versions(root: &TempDir, found: &Found) -> Vec<(u64, String)> {
    let shown = |path: &Path| path.strip_prefix(root.path()).unwrap().display().to_string();
    found.versions.iter().map(|version| (version.version, shown(&version.file))).collect()
}

fn problem(root: &TempDir) -> String {
    let found = only(root);
    assert!(found.versions.is_empty(), "{found:?}");
    found.problem.unwrap()
}

#[test]
fn a_bare_file_is_version_one_of_a_model_of_its_name() {
    let root = folder(&["digits.onnx"]);
    let found = only(&root);
    assert_eq!((found.name.as_str(), found.problem.as_deref()), ("digits", None));
    assert_eq!(versions(&root, &found), [(1, "digits.onnx".to_owned())]);
    assert_eq!(found.settings, Ok(ModelSettings::default()));
    assert_eq!(found.settings_fingerprint, None);
}

#[test]
fn a_folder_with_a_model_file_is_version_one() {
    let root = folder(&["digits/model.onnx", "digits/train.py"]);
    assert_eq!(versions(&root, &only(&root)), [(1, "digits/model.onnx".to_owned())]);
}

#[test]
fn the_largest_number_is_the_default_version() {
    let root = folder(&["m/2/model.onnx", "m/10/model.onnx", "m/1/model.onnx"]);
    let found = only(&root);
    let file = |version: u64| (version, format!("m/{version}/model.onnx"));
    assert_eq!(versions(&root, &found), [file(1), file(2), file(10)]);
    assert_eq!(found.default_version().unwrap().version, 10);
}

#[test]
fn a_folder_that_is_no_number_from_one_is_no_version() {
    let files =
        ["m/3/model.onnx", "m/0/model.onnx", "m/01/model.onnx", "m/-1/model.onnx", "m/old/model.onnx"];
    let root = folder(&files);
    let found = only(&root);
    assert_eq!(versions(&root, &found), [(3, "m/3/model.onnx".to_owned())]);
    assert_eq!(found.problem, None);
}

#[test]
fn models_are_in_name_order() {
    let root = folder(&["b.onnx", "a/model.onnx", "c/1/model.onnx"]);
    let names: Vec<_> = scan(root.path()).unwrap().into_iter().map(|found| found.name).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[test]
fn what_is_hidden_private_or_another_file_is_not_a_model() {
    let root =
        folder(&[".git/model.onnx", ".m.onnx", "__pycache__/x", "_old/model.onnx", "README.md", "fetch"]);
    assert!(scan(root.path()).unwrap().is_empty());
}

#[test]
fn a_folder_with_nothing_usable_says_so() {
    let root = folder(&["m/readme.txt"]);
    assert_eq!(problem(&root), "m/ has neither model.onnx nor a version such as 1/model.onnx");
}

#[test]
fn a_version_without_its_file_leaves_the_others() {
    let root = folder(&["m/1/model.onnx", "m/2/"]);
    let found = only(&root);
    assert_eq!(versions(&root, &found), [(1, "m/1/model.onnx".to_owned())]);
    assert_eq!(found.problem.unwrap(), "m/2/model.onnx is missing");
}

#[test]
fn a_model_file_beside_versions_is_refused() {
    let root = folder(&["m/model.onnx", "m/1/model.onnx"]);
    assert_eq!(
        problem(&root),
        "m/ has both model.onnx and numbered versions: move model.onnx into a version's folder"
    );
}

#[test]
fn a_file_and_a_folder_of_one_name_are_refused() {
    let root = folder(&["a.onnx", "a/model.onnx"]);
    assert_eq!(problem(&root), "both a.onnx and a/ claim this name: remove one");
}

#[test]
fn a_name_that_a_url_could_not_carry_is_refused() {
    for file in ["two words.onnx", "-x.onnx", "ä/model.onnx", "_x.onnx"] {
        let problem = problem(&folder(&[file]));
        assert!(problem.contains("is no name for a model"), "{file}: {problem}");
    }
}

#[test]
fn settings_are_read_from_beside_the_model() {
    let root = folder(&["m/1/model.onnx"]);
    fs::write(root.path().join("m/model.toml"), "max_batch = 4").unwrap();
    let found = only(&root);
    assert_eq!(found.settings.unwrap().max_batch, Some(4));
    assert!(found.settings_fingerprint.is_some());
}

#[test]
fn wrong_settings_name_the_file_as_the_operator_knows_it() {
    let root = folder(&["m/model.onnx"]);
    fs::write(root.path().join("m/model.toml"), "pinn = true").unwrap();
    let found = only(&root);
    let error = found.settings.unwrap_err();
    assert!(error.starts_with("m/model.toml:1:1: unknown key `pinn`"), "{error}");
    assert_eq!(found.versions.len(), 1);
}

#[test]
fn settings_that_are_no_text_are_refused() {
    let root = folder(&["m/model.onnx"]);
    fs::write(root.path().join("m/model.toml"), [0xff, 0xfe]).unwrap();
    let error = only(&root).settings.unwrap_err();
    assert!(error.starts_with("m/model.toml cannot be read: "), "{error}");
}

#[test]
fn a_link_inside_the_folder_is_followed() {
    let root = folder(&[".data/v7/model.onnx", "m/"]);
    symlink("../.data/v7/model.onnx", root.path().join("m/model.onnx")).unwrap();
    assert_eq!(versions(&root, &only(&root)), [(1, "m/model.onnx".to_owned())]);
}

#[test]
fn a_link_to_outside_is_refused() {
    let outside = folder(&["secret.onnx", "m/model.onnx", "model.toml"]);
    let root = folder(&["b/", "c/model.onnx"]);
    symlink(outside.path().join("secret.onnx"), root.path().join("a.onnx")).unwrap();
    symlink(outside.path().join("secret.onnx"), root.path().join("b/model.onnx")).unwrap();
    symlink(outside.path().join("model.toml"), root.path().join("c/model.toml")).unwrap();
    symlink(outside.path().join("m"), root.path().join("d")).unwrap();
    let found = scan(root.path()).unwrap();
    let refused = |file: &str| format!("{file} is a link to outside the folder of models");
    assert_eq!(found[0].problem, Some(refused("a.onnx")));
    assert_eq!(found[1].problem, Some(refused("b/model.onnx")));
    assert_eq!(found[2].settings, Err(refused("c/model.toml")));
    assert_eq!(found[3].problem, Some(refused("d/model.onnx")));
    let served: Vec<_> = found.iter().map(|found| found.versions.len()).collect();
    assert_eq!(served, [0, 0, 1, 0]);
}

#[test]
fn a_link_to_nowhere_is_reported() {
    let root = folder(&[]);
    symlink("gone.onnx", root.path().join("a.onnx")).unwrap();
    assert!(problem(&root).starts_with("a.onnx cannot be read: "));
}

#[test]
fn a_folder_in_place_of_a_model_file_is_refused() {
    let root = folder(&["m/model.onnx/"]);
    assert_eq!(problem(&root), "m/model.onnx is not a plain file");
}

#[test]
fn a_folder_that_is_not_there_is_an_error() {
    let root = folder(&[]);
    assert!(scan(&root.path().join("nowhere")).is_err());
}

#[test]
fn a_change_of_a_file_that_may_hold_constants_is_a_change_of_the_model() {
    let files = [
        "m/model.onnx",
        "m/w/one.bin",
        "b.onnx",
        "b.onnx.data",
        "b-2.onnx",
        "c.onnx",
        "v/2/model.onnx",
        "v/2/w",
    ];
    let changed = |path: &str| {
        let root = folder(&files);
        let before = scan(root.path()).unwrap();
        fs::write(root.path().join(path), "longer than before").unwrap();
        let names = |change: Change| match change {
            Change::Changed(name) => name,
            other => panic!("{other:?}"),
        };
        let changes = changes(&before, &scan(root.path()).unwrap());
        changes.into_iter().map(names).collect::<Vec<_>>()
    };
    assert_eq!(changed("m/w/one.bin"), ["m"]);
    assert_eq!(changed("b.onnx.data"), ["b"]);
    assert_eq!(changed("b-2.onnx"), ["b-2"]);
    assert_eq!(changed("v/2/w"), ["v"]);
}
