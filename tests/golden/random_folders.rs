//! Random folders and names.

use std::path::Path;

use carton_format::is_valid_carton_path;
use carton_writer::{CartonLayout, CartonMember};
use proptest::collection::vec;
use proptest::prelude::*;
use zip_format::EntryContent;

use crate::carton_tools::{manifest, ok, run, scratch, write};

const TOML: &str = "spec_version = 1\n[runner]\nrunner_name = 'r'\nrequired_framework_version = '*'\nrunner_compat_version = 1\n";

/// Paths below a folder, with contents: nothing, text or noise.
fn files(folder: &'static str) -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
    let part = "[a-zA-Z0-9 =.~@\\[\\]ü🦙-]{1,9}";
    let path = vec(part, 1..4).prop_map(move |parts| format!("{folder}/{}", parts.join("/")));
    let bytes = prop_oneof![
        Just(Vec::new()),
        "[ab\n]{0,3000}".prop_map(String::into_bytes),
        vec(any::<u8>(), 0..3000)
    ];
    vec((path.prop_filter("inside", |path| is_valid_carton_path(path)), bytes), 0..6)
}

/// All files below `root`, sorted, with their bytes.
fn listed(root: &Path) -> Vec<(String, Vec<u8>)> {
    let (mut folders, mut found) = (vec![root.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for item in folder.read_dir().expect("it is there").flatten() {
            let path = item.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(root).expect("below it").to_str().expect("UTF-8").to_owned();
                found.push((name, std::fs::read(path).expect("it is there")));
            }
        }
    }
    found.sort();
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn unpacking_and_packing_random_folders_keeps_the_manifest_hash(
        model in files("model"),
        misc in files("misc"),
        method in prop::sample::select(&["auto", "stored", "deflate", "zstd"][..]),
    ) {
        let scratch = scratch();
        let root = scratch.path();
        write(root.join("m/carton.toml"), TOML);
        write(root.join("m/tensor_data/index.toml"), "tensor = []\n");
        write(root.join("m/model/weights"), "w");
        for (path, bytes) in model.iter().chain(&misc) {
            let path = root.join("m").join(path);
            // A path that is already a folder cannot be a file.
            if std::fs::create_dir_all(path.parent().expect("a folder")).is_ok() {
                let _ = std::fs::write(path, bytes);
            }
        }
        ok(root, &["pack", "m", "-o", "1.carton", "--compression", method, "-q"]);
        ok(root, &["verify", "1.carton", "-q"]);
        ok(root, &["unpack", "1.carton", "-o", "1", "-q"]);
        ok(root, &["pack", "1", "-o", "2.carton", "-q"]);
        prop_assert_eq!(manifest(&root.join("1.carton")), manifest(&root.join("2.carton")));
        let mut unpacked = listed(&root.join("1"));
        unpacked.retain(|(name, _)| name != "MANIFEST");
        prop_assert_eq!(unpacked, listed(&root.join("m")));
        ok(root, &["shrink", "1.carton", "--base", "https://a.b", "--blobs", "b", "--min-size", "1", "-o", "3.carton", "-q"]);
        ok(root, &["verify", "3.carton", "-q"]);
        prop_assert_eq!(manifest(&root.join("1.carton")), manifest(&root.join("3.carton")));
    }

    #[test]
    fn no_name_is_written_outside_the_folder(
        names in vec(vec(prop_oneof!["\\.{1,2}", "[a-c]", "", "C:", "\\\\\\.\\.", "\\PC{1,4}"], 1..5), 1..4),
        lead in prop::sample::select(&["", "/", "model/", "misc/", "../", "//"][..]),
    ) {
        let scratch = scratch();
        let root = scratch.path();
        let mut files = vec![
            CartonMember::new("carton.toml", EntryContent::Bytes(TOML.as_bytes())),
            CartonMember::new("model/w", EntryContent::Bytes(b"w")),
        ];
        let names: std::collections::BTreeSet<String> = names.iter().map(|parts| format!("{lead}{}", parts.join("/"))).collect();
        files.extend(names.iter().map(|name| CartonMember::new(name, EntryContent::Bytes(b"evil"))));
        let mut bytes = Vec::new();
        if CartonLayout::new(files).write(&mut bytes, byte_source::ProgressReporter::unobserved()).is_err() {
            return Ok(());
        }
        write(root.join("a/b/x.carton"), bytes);
        let (status, text) = run(&root.join("a/b"), &["unpack", "x.carton", "-o", "d", "-q"]);
        let mut found: Vec<String> = listed(root).into_iter().map(|(name, _)| name).collect();
        found.retain(|name| name != "a/b/x.carton");
        if status == Some(0) {
            prop_assert!(names.iter().all(|name| is_valid_carton_path(name)));
            prop_assert!(found.iter().all(|name| name.starts_with("a/b/d/")), "{:?}", found);
        } else {
            prop_assert_eq!(status, Some(1), "{}", text);
            prop_assert!(found.is_empty(), "{:?}", found);
        }
    }
}
