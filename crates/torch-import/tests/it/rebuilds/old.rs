//! Checkpoints of PyTorch 0.1, which are tar files, and those before 1.6, which are pickles one after the other.
//!
//! Facts: `_legacy_load` in `torch/serialization.py` of PyTorch 2.15.

use super::programs::{call, dict, global, named, one, read_file, text};

#[test]
fn tensors_of_a_0_1_checkpoint_share_a_storage() {
    let pickle = |program: &[u8]| [b"\x80\x02", program, b"."].concat();
    let numbers: Vec<u8> = [1.0_f32, 2.0].into_iter().flat_map(f32::to_le_bytes).collect();
    let storage = pickle(&call(&[&text("7"), &text("cpu"), &global("torch.FloatStorage")]));
    let storages = [pickle(b"K\x01"), storage, 2_u64.to_le_bytes().to_vec(), numbers, pickle(b"]")].concat();
    let described = |key: &str, offset: u64| {
        let tensor = pickle(&call(&[&text(key), &text("7"), &global("torch.FloatTensor")]));
        [tensor, [1_u64, 1, 1, offset].into_iter().flat_map(u64::to_le_bytes).collect()].concat()
    };
    let tensors = [pickle(b"K\x02"), described("8", 0), described("9", 1)].concat();
    let root =
        named(&[("a", [text("8"), b"Q".to_vec()].concat()), ("b", [text("9"), b"Q".to_vec()].concat())]);
    let mut tar = tar::Builder::new(Vec::new());
    for (name, bytes) in
        [("sys_info", pickle(b"}")), ("pickle", root), ("tensors", tensors), ("storages", storages)]
    {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        tar.append_data(&mut header, name, bytes.as_slice()).expect("memory takes it");
    }
    let read = read_file(&tar.into_inner().expect("memory takes it")).expect("PyTorch 0.1 reads it");
    let found: Vec<(&str, &[u8])> =
        read.iter().map(|(name, _, bytes)| (name.as_str(), bytes.as_slice())).collect();
    assert_eq!(found, [("a", &1.0_f32.to_le_bytes()[..]), ("b", &2.0_f32.to_le_bytes()[..])]);
}

/// A legacy checkpoint with this root object and the storage `0`, which is 1, 2 and 3.
fn legacy(root: &[u8]) -> Vec<u8> {
    let start = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}.";
    let keys = [b"\x80\x02](".to_vec(), text("0"), b"e.".to_vec()].concat();
    let numbers: Vec<u8> = [1.0_f32, 2.0, 3.0].into_iter().flat_map(f32::to_le_bytes).collect();
    [start, root, &keys, &3_u64.to_le_bytes(), &numbers].concat()
}

/// The persistent id of storage `0` with this view of it.
fn viewed(view: &[u8]) -> Vec<u8> {
    let class = global("torch.FloatStorage");
    [
        b"(".to_vec(),
        text("storage"),
        class,
        text("0"),
        text("cpu"),
        b"K\x03".to_vec(),
        view.to_vec(),
        b"tQ".to_vec(),
    ]
    .concat()
}

fn legacy_numbers(root: &[u8]) -> Result<Vec<(String, Vec<f32>)>, String> {
    let read = read_file(&legacy(root))?;
    let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Ok(read.into_iter().map(|(name, _, bytes)| (name, bytes.chunks(4).map(number).collect())).collect())
}

#[test]
fn views_of_storages_are_parts_of_them() {
    let view = |key: &str, offset: u8, size: u8| call(&[&text(key), &[b'K', offset], &[b'K', size]]);
    let numbers = |view: &[u8]| legacy_numbers(&one(viewed(view)));
    let found = |numbers: &[f32]| Ok(vec![("a".to_owned(), numbers.to_vec())]);
    assert_eq!(numbers(b"N"), found(&[1.0, 2.0, 3.0]));
    assert_eq!(numbers(&view("v", 1, 1)), found(&[2.0]));
    assert_eq!(numbers(&view("v", 1, 2)), found(&[2.0, 3.0]));
    assert_eq!(numbers(&view("v", 0, 3)), found(&[1.0, 2.0, 3.0]));
    let error = numbers(&view("v", 1, 3)).expect_err("it ends after the storage");
    assert!(error.contains("a view of 3 elements at 1 of a storage that has 3"), "{error}");
    // A list is a view as it was when the storage was loaded.
    let list = [b"](".to_vec(), text("v"), b"K\x01K\x01eq\x01".to_vec()].concat();
    assert_eq!(numbers(&list), found(&[2.0]));
    let changed = [viewed(&[&list[..], b""].concat()), text("b"), b"h\x01Na".to_vec()].concat();
    let error = legacy_numbers(&one(changed)).expect_err("its view changes");
    assert!(error.contains("its view changes afterwards"), "{error}");
    // Two views with one key.
    let two = |other: &[u8]| legacy_numbers(&named(&[("a", viewed(&view("v", 0, 1))), ("b", viewed(other))]));
    assert_eq!(two(&view("v", 0, 1)).map(|found| found.len()), Ok(2));
    let error = two(&view("v", 1, 1)).expect_err("they differ");
    assert!(error.contains("storage `v` is 1 of float32 here"), "{error}");
}

#[test]
fn modules_with_their_source_are_not_storages() {
    let module = |fields: &[&[u8]]| [call(fields), b"Q".to_vec()].concat();
    let (path, source) = (text("model.py"), text("class Model: pass"));
    let class = global("__main__.Model");
    let with = |module: Vec<u8>| legacy_numbers(&named(&[("m", module), ("a", viewed(b"N"))]));
    let expected = Ok(vec![("a".to_owned(), vec![1.0, 2.0, 3.0])]);
    assert_eq!(with(module(&[&text("module"), &class, &path, &source])), expected);
    assert_eq!(with(module(&[&class, &path, &source])), expected);
    let error = with(module(&[&text("other"), &class, &path, &source])).expect_err("it is not a module");
    assert!(error.contains("found 4"), "{error}");
    let error = with(module(&[&text("module"), &path, &source])).expect_err("its first field is not a class");
    assert!(error.contains("found 3"), "{error}");
    // Its parameters are those of the class.
    let of_it = [
        module(&[&text("module"), &class, &path, &source]),
        b")\x81".to_vec(),
        dict(&[("w", &viewed(b"N"))]),
    ];
    let object = one([of_it.concat(), b"b".to_vec()].concat());
    assert!(legacy_numbers(&object).is_ok_and(|found| found.len() == 1));
}
