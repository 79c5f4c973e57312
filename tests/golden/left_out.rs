//! What a checkpoint holds and a conversion does not take is named; what it takes is what the user chose.

use serde_json::json;

use crate::carton_tools::{ok, scratch};
use crate::cli::json;
use crate::made::{Value, dict, tensor, write_pth, write_pth_with};

/// The lines of a text that begin with `word`.
fn lines<'t>(text: &'t str, word: &str) -> Vec<&'t str> {
    text.lines().filter(|line| line.starts_with(word)).collect()
}

#[test]
fn whatever_is_left_out_is_named() {
    let scratch = scratch();
    let root = scratch.path();
    let number = |number| Value::Int(number);
    let entries = [("w", tensor(2)), ("n", number(1)), ("b", tensor(3)), ("n", number(2)), ("w", tensor(5))];
    let records: [(&str, &[u8]); 4] =
        [("data/77", b"unused"), ("data/78", b""), ("extra/labels.txt", b"cat"), ("notes.txt", b"hello")];
    write_pth_with(&root.join("a.pth"), &dict(&entries), &records);
    let report = json(root, &["inspect", "--json", "a.pth"]);
    assert_eq!(
        report["left_out"],
        json!([
            {"kind": "tensor", "name": "w", "nbytes": 2, "reason": "replaced"},
            {"kind": "object", "name": "n", "nbytes": 8, "reason": "replaced"},
            {"kind": "storage", "name": "archive/data/77", "nbytes": 6, "reason": "unreferenced"},
            {"kind": "record", "name": "archive/extra/labels.txt", "nbytes": 3, "reason": "extra_file"},
            {"kind": "record", "name": "archive/notes.txt", "nbytes": 5, "reason": "unknown_record"},
        ])
    );
    assert_eq!(report["left_out_count"], 5);
    // PyTorch's dict has the later value at the earlier place.
    assert_eq!((&report["tensors"][0]["name"], &report["tensors"][0]["shape"]), (&json!("w"), &json!([5])));
    insta::assert_snapshot!(lines(&ok(root, &["inspect", "a.pth"]), "note").join("\n"));
    let converted = json(root, &["--json", "a.pth"]);
    assert_eq!(converted["left_out"], report["left_out"]);
    let notes = |report: &serde_json::Value| {
        let notes = report["notes"].as_array().expect("a list").iter();
        notes.filter(|note| note.to_string().contains("left out")).cloned().collect::<Vec<_>>()
    };
    assert_eq!(notes(&converted), notes(&report));
}

#[test]
fn long_lists_of_what_is_left_out_are_cut() {
    let scratch = scratch();
    let root = scratch.path();
    let names: Vec<String> = (0..10_002).map(|number| format!("x{number}")).collect();
    let records: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"x".as_slice())).collect();
    write_pth_with(&root.join("a.pth"), &dict(&[("w", tensor(1))]), &records);
    let report = json(root, &["inspect", "--json", "a.pth"]);
    assert_eq!(report["left_out"].as_array().map(Vec::len), Some(10_000));
    assert_eq!(report["left_out_count"], 10_002);
    insta::assert_snapshot!(
        lines(&ok(root, &["inspect", "a.pth"]), "note").join("\n"),
        @"note        left out 10002 records (10.0 kB), not part of a checkpoint: archive/x0, archive/x1, archive/x2 and 9999 more"
    );
}

/// Four keys of the root, two of which begin with `model.`.
fn keys_with_dots() -> Value {
    let one = |name: &str, len| dict(&[(name, tensor(len))]);
    dict(&[
        ("model", one("a", 1)),
        ("model.b", tensor(2)),
        ("model.c", one("d", 3)),
        ("old", one("model.x", 4)),
    ])
}

#[test]
fn a_key_is_a_key_of_the_root_and_not_the_start_of_another() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &keys_with_dots());
    let names = |args: &[&str]| -> (Vec<String>, String) {
        let report = json(root, &[&["--json", "--dry-run", "a.pth"], args].concat());
        let outputs = report["outputs"].as_array().expect("a list");
        let names = outputs.iter().map(|output| output["name"].as_str().expect("a name").to_owned());
        (names.collect(), report["notes"][0].to_string())
    };
    // The weights are found automatically, and the note counts what is converted.
    let (found, note) = names(&[]);
    assert_eq!(found, ["a"]);
    insta::assert_snapshot!(
        note,
        @r#""using key `model` (1 tensor); left out 1 (2 B) at the root, 1 (3 B) under `model.c`, 1 (4 B) under `old`""#
    );
    assert_eq!(names(&["--key", "model"]).0, ["a"]);
    assert_eq!(names(&["--key", "model.b"]).0, ["tensor"]);
    assert_eq!(names(&["--key", "model.c"]).0, ["d"]);
    // Where there is no such key, it is the start of a path.
    assert_eq!(names(&["--key", "old.model"]).0, ["x"]);
    assert_eq!(names(&["--key", "", "--include", "model.*"]).0, ["model.a", "model.b", "model.c.d"]);
}

#[test]
fn many_equal_values_and_deep_ones_are_read() {
    let scratch = scratch();
    let root = scratch.path();
    let deep = (0..1500).fold(Value::Int(7), |inner, _| dict(&[("k", inner)]));
    write_pth(
        &root.join("a.pth"),
        &dict(&[("labels", Value::Repeated(1, 70_000)), ("deep", deep), ("w", tensor(2))]),
    );
    let report = json(root, &["inspect", "--json", "--all", "a.pth"]);
    assert_eq!(report["value_count"], 70_001);
    assert_eq!(report["tensors"][0]["name"], "w");
    let last = report["values"].as_array().and_then(|values| values.last()).expect("there are values");
    assert_eq!(last["value"], json!({"$more": "dict"}));
    assert_eq!(last["path"].as_str().map(str::len), Some("deep".len() + 999 * ".k".len()));
    assert_eq!(
        report["notes"],
        json!(["1 value is nested too deeply, or shared too often, to be listed with what is inside"])
    );
    ok(root, &["a.pth"]);
}
