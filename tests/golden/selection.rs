//! Which tensors a conversion takes: keys of weights, patterns, prefixes, and the listing of a dry run.

use crate::carton_tools::{ok, run, scratch};
use crate::cli::json;
use crate::made::{Value, dict, tensor, write_pth};

/// A dict with one tensor of this length.
fn one(name: &str, len: u64) -> Value {
    dict(&[(name, tensor(len))])
}

/// Returns the names of the output's tensors and the notes, of a dry run.
fn taken(root: &std::path::Path, args: &[&str]) -> (Vec<String>, Vec<String>) {
    let args = [&["--json", "--dry-run", "-o", "x.safetensors"], args].concat();
    let report = json(root, &args);
    let texts = |list: &str, member: Option<&str>| {
        let list = report.get(list).and_then(serde_json::Value::as_array).cloned().unwrap_or_default();
        let text = |value: &serde_json::Value| {
            member
                .map_or(Some(value), |member| value.get(member))
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        list.iter().map(text).collect()
    };
    (texts("listing", Some("name")), texts("notes", None))
}

#[test]
fn several_keys_of_weights_are_named_as_they_are_typed() {
    let scratch = scratch();
    let root = scratch.path();
    for (file, keys) in [
        ("flat.pth", dict(&[("state_dict", one("w", 1)), ("state_dict_ema", one("w", 2))])),
        ("params.pth", dict(&[("params", one("w", 1)), ("params_ema", one("w", 2))])),
        ("ema.pth", dict(&[("model", one("w", 1)), ("ema", one("w", 2)), ("optimizer", one("m", 3))])),
        ("deep.pth", dict(&[("state_dict", dict(&[("model", one("w", 1)), ("model_ema", one("w", 2))]))])),
        (
            "deeper.pth",
            dict(&[
                ("last", dict(&[("net", one("w", 1)), ("ema net", one("w", 2))])),
                ("best", one("net", 4)),
            ]),
        ),
        ("other.pth", dict(&[("last", dict(&[("net", one("w", 1)), ("net_ema", one("w", 2))]))])),
        (
            "deepest.pth",
            dict(&[("run", dict(&[("last", dict(&[("net", one("w", 1)), ("net_ema", one("w", 2))]))]))]),
        ),
    ] {
        write_pth(&root.join(file), &keys);
    }
    let text = |file: &str| run(root, &[file, "-o", "x.safetensors", "--dry-run"]).1;
    insta::assert_snapshot!(
        ["flat.pth", "params.pth", "ema.pth", "deep.pth", "other.pth", "deepest.pth"].map(text).concat()
    );
    assert_eq!(taken(root, &["deepest.pth", "--key", "run.last.net_ema"]).0, ["w"]);
    // A key that is a part of a path is named as it is typed.
    let (_, text) = run(root, &["deepest.pth", "--key", "net_ema", "-o", "x.safetensors"]);
    assert!(text.contains("tensors are under `run.last.net_ema`; check --key"), "{text}");
    assert_eq!(taken(root, &["deep.pth", "--key", "state_dict.model_ema"]).0, ["w"]);
    let (names, notes) = taken(root, &["deeper.pth"]);
    assert_eq!(names, ["w"]);
    assert_eq!(
        notes,
        ["using key `last.net` (1 tensor); left out 1 (2 B) under `last.ema net`, 1 (4 B) under `best`"]
    );
}

#[test]
fn weights_one_level_deeper_are_found() {
    let scratch = scratch();
    let root = scratch.path();
    let deep = dict(&[
        ("state_dict", dict(&[("model", one("w", 1)), ("optimizer", one("m", 2))])),
        ("other", tensor(3)),
    ]);
    write_pth(&root.join("a.pth"), &deep);
    let (names, notes) = taken(root, &["a.pth"]);
    assert_eq!(names, ["w"]);
    assert_eq!(
        notes,
        [
            "using key `state_dict.model` (1 tensor); left out 1 (3 B) at the root, 1 (2 B) under `state_dict.optimizer`"
        ]
    );
    // A dot in a key of the state_dict is a part of a tensor's name.
    write_pth(
        &root.join("b.pth"),
        &dict(&[("state_dict", dict(&[("model.w", tensor(1)), ("head.w", tensor(2))]))]),
    );
    assert_eq!(taken(root, &["b.pth"]).0, ["model.w", "head.w"]);
}

#[test]
fn names_work_as_inspect_prints_them() {
    let scratch = scratch();
    let root = scratch.path();
    let both =
        dict(&[("model", dict(&[("a", tensor(1)), ("b", tensor(2))])), ("ema", dict(&[("a", tensor(3))]))]);
    write_pth(&root.join("a.pth"), &dict(&[("state_dict", both)]));
    assert_eq!(taken(root, &["a.pth", "--include", "state_dict.ema.*"]).0, ["a"]);
    assert_eq!(taken(root, &["a.pth", "--include", "state_dict.model.b"]).0, ["b"]);
    assert_eq!(taken(root, &["a.pth", "--exclude", "state_dict.ema.*", "--exclude", "b"]).0, ["a"]);
}

#[test]
fn a_removed_prefix_is_counted() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("module.a", tensor(1)), ("module.b", tensor(2))]));
    write_pth(&root.join("b.pth"), &dict(&[("module.a", tensor(1)), ("b", tensor(2))]));
    let strip = |file: &str| taken(root, &[file, "--strip-prefix", "module."]).1;
    assert_eq!(strip("a.pth"), ["`module.` was removed from 2 names"]);
    assert_eq!(strip("b.pth"), ["`module.` was removed from 1 of 2 names; 1 name did not start with it"]);
    write_pth(&root.join("c.pth"), &dict(&[("net.a", tensor(1)), ("net.b", tensor(2))]));
    assert_eq!(taken(root, &["c.pth"]).1, ["every name starts with `net.`"]);
}

#[test]
fn a_dry_run_lists_old_and_new_names() {
    let scratch = scratch();
    let root = scratch.path();
    let model = dict(&[("model.a", tensor(1)), ("model.b", tensor(2))]);
    write_pth(&root.join("a.pth"), &dict(&[("state_dict", model)]));
    insta::assert_snapshot!(ok(
        root,
        &["a.pth", "-o", "x.safetensors", "--dry-run", "--strip-prefix", "model.", "--rename", "^a$=first"]
    ));
    test_support::tiny_llama::write(&root.join("llama")).expect("the checkpoint is written");
    let report = json(root, &["llama", "--names", "hf", "--dry-run", "--json", "-o", "hf"]);
    assert_eq!(report["listing"][0]["from"], "tok_embeddings.weight");
    assert_eq!(report["listing"][0]["name"], "model.embed_tokens.weight");
}
