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
    // Another branch has tensors, too.
    assert_eq!(names, ["last.net.w", "last.ema net.w", "best.net"]);
    assert_eq!(notes, ["all tensors are kept under their full names: 2 under `last`, 1 under `best`"]);
}

/// An optimizer's state, as `torch.optim` returns it.
fn moments() -> Value {
    let groups = Value::Tuple(vec![dict(&[("lr", Value::Int(1))])]);
    dict(&[("state", dict(&[("0", one("exp_avg", 5))])), ("param_groups", groups)])
}

#[test]
fn several_sets_are_kept_and_optimizers_are_not() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("g", one("w", 1)), ("d", one("w", 2)), ("g_optim", moments())]));
    write_pth(&root.join("b.pth"), &dict(&[("generator", one("w", 1)), ("optim", moments())]));
    write_pth(&root.join("c.pth"), &Value::Tuple(vec![one("w", 1), moments()]));
    write_pth(
        &root.join("d.pth"),
        &dict(&[("student", dict(&[("model", one("w", 1))])), ("teacher", dict(&[("model", one("w", 2))]))]),
    );
    let text = |file: &str| run(root, &[file, "-o", "x.safetensors", "--dry-run"]).1;
    insta::assert_snapshot!(["a.pth", "b.pth", "c.pth", "d.pth"].map(text).concat());
    // The digest of a file is that of all its sets.
    let digest = |file: &str| ok(root, &["digest", file]);
    let before = digest("d.pth");
    write_pth(
        &root.join("d.pth"),
        &dict(&[("student", dict(&[("model", one("w", 1))])), ("teacher", dict(&[("model", one("w", 3))]))]),
    );
    assert_ne!(before, digest("d.pth"));
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
fn a_prefix_that_keeps_names_apart_stays() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(
        &root.join("a.pth"),
        &dict(&[("_orig_mod.a", tensor(1)), ("a", tensor(2)), ("_orig_mod.b", tensor(3))]),
    );
    for args in [["a.pth", "-o", "x.safetensors"], ["a.pth", "-o", "x.pth"], ["digest", "a.pth", "--lines"]] {
        let (status, text) = run(root, &[&args[..], &["--strip-prefix", "_orig_mod."]].concat());
        let expected = "`_orig_mod.a` and `a` would both be called `a`; check --strip-prefix";
        assert!(status == Some(1) && text.contains(expected), "{text}");
    }
}

#[test]
fn wrappers_inside_names_are_one_hint() {
    let scratch = scratch();
    let root = scratch.path();
    let names = ["model._orig_mod.a", "model.b._checkpoint_wrapped_module.w", "loss"];
    write_pth(&root.join("a.pth"), &dict(&names.map(|name| (name, tensor(1)))));
    let (_, text) = run(root, &["a.pth", "-o", "x.safetensors", "--dry-run"]);
    let flag = r"'_checkpoint_wrapped_module\.|_orig_mod\.='";
    let note = format!(
        "note: wrappers add `_orig_mod.` and `_checkpoint_wrapped_module.` to 2 of 3 names; --rename {flag} removes them\n"
    );
    assert!(text.contains(&note), "{text}");
    // This command has no such option.
    let (_, text) = run(root, &["digest", "a.pth"]);
    assert!(text.contains("to 2 of 3 names\n"), "{text}");
    let (names, notes) = taken(root, &["a.pth", "--rename", flag.trim_matches('\'')]);
    assert_eq!((names, notes), (["model.a", "model.b.w", "loss"].map(str::to_owned).into(), Vec::new()));
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

#[test]
fn one_of_two_tensors_of_a_name_is_chosen() {
    let scratch = scratch();
    let root = scratch.path();
    write_pth(&root.join("a.pth"), &dict(&[("a", one("b", 1)), ("a.b", tensor(2)), ("c", tensor(3))]));
    let text = ok(root, &["inspect", "a.pth"]);
    let note = "two tensors have the name `a.b`: ['a']['b'], and ['a.b'], which is listed as `a.b#2`";
    assert!(text.contains("\na.b#2  uint8  [2]") && text.contains(note), "{text}");
    let (status, text) = run(root, &["a.pth", "-o", "x.safetensors"]);
    let error =
        "two tensors have the name `a.b`: ['a']['b'] and ['a.b']; --exclude 'a.b#2' leaves out the second";
    assert!(status == Some(1) && text.contains(error), "{text}");
    assert_ne!(run(root, &["digest", "a.pth"]).0, Some(0));
    let length = |exclude: &str| {
        let report =
            json(root, &["a.pth", "--exclude", exclude, "--dry-run", "--json", "-o", "x.safetensors"]);
        let rows = report["listing"].as_array().expect("a list").clone();
        let row = rows.iter().find(|row| row["name"] == "a.b").expect("it is kept");
        (rows.len(), row["shape"].clone())
    };
    assert_eq!(length("a.b#2"), (2, serde_json::json!([1])));
    assert_eq!(length("a.b"), (2, serde_json::json!([2])));
}
